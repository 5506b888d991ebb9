//! How contexts are pinned, and handed to the engine.

use std::sync::Arc;

use super::super::context::{Context, Fence, State};
use super::super::context_number;
use crate::dma::DmaError;
use crate::dma::held::{Batching, Held, announce};
use crate::dma::marker::{transfer_at, words_at};

/// Which request could not go on, and why.
pub(super) struct Refused {
    pub(super) request: u64,
    pub(super) why: DmaError,
}

impl Held<'_> {
    /// Stages contexts that are pinned, as long as they fit; says whether it did one. If that of
    /// `own` is refused, it is an error; any other request is told.
    pub(super) fn issue(&mut self, own: Option<u64>) -> Result<bool, DmaError> {
        match self.issue_next() {
            Ok(has_issued) => Ok(has_issued),
            Err(refused) if Some(refused.request) == own => Err(refused.why),
            Err(refused) => {
                self.cancel(refused.request, refused.why.errno());
                Ok(true)
            }
        }
    }

    /// Stages the context that is next, if it fits.
    pub(super) fn issue_next(&mut self) -> Result<bool, Refused> {
        let available = self.ring.pair.index().available();
        let Some(zero) = self.ring.zero_copies.as_deref_mut() else {
            return Ok(false);
        };
        let Some((slot, context)) = zero.queue.next_pinned() else {
            return Ok(false);
        };
        let (request, pages) = (context.request, context.pages);
        if let State::Completed = context.state {
            zero.queue.mark_submitted();
            return Ok(true);
        }
        if available <= pages {
            return Ok(false);
        }
        let staged = self
            .refuse_by_order(request.account, pages.saturating_add(1))
            .and_then(|()| self.stage_context(slot));
        match staged {
            Ok(()) => {
                if let Some(zero) = self.ring.zero_copies.as_deref_mut() {
                    zero.queue.mark_submitted();
                }
                Ok(true)
            }
            Err(why) => Err(Refused {
                request: request.id,
                why,
            }),
        }
    }

    /// Hands the context in a slot to the engine, for the first time or again.
    pub(in crate::dma) fn stage_context(&mut self, slot: u32) -> Result<(), DmaError> {
        let links = self.links;
        let ring = &mut *self.ring;
        let Some(zero) = ring.zero_copies.as_deref_mut() else {
            return Ok(());
        };
        let marker = zero.marker(slot);
        let Some(context) = zero.queue.get_mut(slot) else {
            return Ok(());
        };
        let (State::Pinned(part) | State::Submitted(part, ..)) = &context.state else {
            return Ok(());
        };
        let profile = links.profile;
        let to_bus = |at| profile.host_to_bus(at);
        let (transfers, barrier) = context.transfers(part, profile.arch, to_bus);
        let batch = Batching {
            account: context.request.account,
            context: context_number(slot),
            size_bytes: context.size_bytes,
            // One for a page at most.
            data_descs: u32::try_from(transfers.clone().count()).unwrap_or(u32::MAX),
            marker: transfer_at(profile, marker, barrier),
            words: words_at(&*links.host, marker)?,
        };
        let staged = announce(links, self.lane, &mut ring.pair, &batch, transfers)?;
        if context.fence == Fence::Staged {
            // Its bytes are moved again, and what comes behind them, too.
            context.fence = Fence::Wanted;
        }
        let state = std::mem::replace(&mut context.state, State::Completed);
        context.state = state.submitted(staged);
        Ok(())
    }

    /// Hands the engine a batch that moves nothing and whose marker comes behind all writes.
    pub(super) fn stage_fence(&mut self, slot: u32) -> Result<(), DmaError> {
        let links = self.links;
        let ring = &mut *self.ring;
        let Some(zero) = ring.zero_copies.as_deref_mut() else {
            return Ok(());
        };
        let marker = zero.marker(slot);
        let Some(context) = zero.queue.get_mut(slot) else {
            return Ok(());
        };
        let profile = links.profile;
        let (transfer, barrier) = Context::fence(profile.arch, profile.host_to_bus(marker));
        let batch = Batching {
            account: context.request.account,
            context: context_number(slot),
            size_bytes: transfer.size_bytes,
            data_descs: 1,
            marker: transfer_at(profile, marker, barrier),
            words: words_at(&*links.host, marker)?,
        };
        let transfers = std::iter::once(transfer);
        let fence = announce(links, self.lane, &mut ring.pair, &batch, transfers)?;
        context.fence = Fence::Staged;
        if let State::Submitted(_, staged, _) = &mut context.state {
            *staged = fence;
        }
        Ok(())
    }

    /// Pins the context that is next, if the budget allows.
    pub(super) fn pin_next(&mut self) -> Result<bool, Refused> {
        let Some(zero) = self.ring.zero_copies.as_deref_mut() else {
            return Ok(false);
        };
        let Some((_, context)) = zero.queue.next_unpinned() else {
            return Ok(false);
        };
        let (request, pages) = (context.request, context.pages);
        let State::Unpinned {
            memory,
            offset_bytes,
        } = &context.state
        else {
            zero.queue.mark_pinned();
            return Ok(true);
        };
        let (memory, range) = (Arc::clone(memory), (*offset_bytes, context.size_bytes));
        if !zero.can_pin(u64::from(pages)) {
            return Ok(false);
        }
        let pinned = {
            let _for_request = self.scope(request.account).enter();
            let (offset_bytes, size_bytes) = range;
            memory.pin(offset_bytes, size_bytes, !request.to_device)
        };
        let pinned = pinned.map_err(|fault| Refused {
            request: request.id,
            why: fault.into(),
        })?;
        if let Some(zero) = self.ring.zero_copies.as_deref_mut() {
            let part = zero.hold(pinned, u64::from(pages));
            if let Some((_, context)) = zero.queue.next_unpinned() {
                context.state = State::Pinned(part);
                zero.queue.mark_pinned();
            }
        }
        Ok(true)
    }
}
