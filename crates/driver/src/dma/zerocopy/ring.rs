//! What is done with a ring for zero copies while it is held.

use std::sync::Arc;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::handle::Pid;
use glia_abi::port::{Budget, Look, NotCompleted, TimedOut};
use glia_abi::sched::{Micros, Tick};
use glia_abi::transport::{PinFault, UserMemory};
use glia_abi::udma::MARKER;

use super::context::{Context, Ends, Fence, Prepared, Request, State, Told, Uncut, ZeroCopies};
use super::cut::pieces;
use super::queue::Region;
use super::{Reply, ZeroCopy, context_number};
use crate::dma::DmaError;
use crate::dma::budget::{Awaited, budget};
use crate::dma::failure::{RETRIES_MAX, UnderWay};
use crate::dma::held::{Batching, Held, Staged, announce};
use crate::dma::lane::Links;
use crate::dma::marker::{transfer_at, words_at};
use crate::memory::OwnedPin;

/// A synchronous copy begins to wait for the engine when there is room for no more than this
/// (driver 2.27.4, `DESC_WAIT_THRESHOLD_LO`),
const WAIT_BELOW: u32 = 65;
/// and goes on when there is room for so much more (`DESC_WAIT_THRESHOLD_HI`).
const WAIT_UNTIL: u32 = 520;

/// How soon the worker looks again whether a reset has ended.
const LOOK_AGAIN: Micros = Micros(1_000);

/// Which request could not go on, and why.
pub(super) struct Refused {
    request: u64,
    why: DmaError,
}

/// A context that has ended.
struct Gone {
    request: u64,
    /// It was the last of its request.
    was_last: bool,
}

/// What came of a context that has been moved.
enum Finished {
    /// It has ended.
    Gone(Gone),
    /// The engine has its fence.
    Fencing,
    /// There was none.
    Nothing,
}

/// Until when the worker rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Until there is a request.
    Idle,
    /// Until this time at the latest, or the queue has done something.
    Until(Tick),
}

/// What a look at the oldest context has found.
enum Oldest {
    None,
    NotYet(Tick),
    Done,
    TimedOut(u32, Staged, u32, TimedOut),
}

/// How long a context is waited for, always as if another one were behind it.
fn wait_for(links: &Links, pairs: u32) -> Budget {
    let awaited = Awaited {
        descs: pairs,
        is_pipelined: true,
        is_d2d: false,
    };
    budget(&links.profile.wait, links.platform, awaited)
}

impl Held<'_> {
    /// Copies, and waits for it; see [`Dma::zero_copy`](super::super::Dma::zero_copy).
    pub(super) fn zero_copy(
        &mut self,
        memory: &dyn UserMemory,
        copy: &ZeroCopy<'_>,
    ) -> Result<(), DmaError> {
        self.answer_missed(None)?;
        let id = self.zero()?.next_request();
        let request = Request {
            id,
            account: self.account(),
            to_device: copy.to_device,
        };
        self.is_zero_copying = true;
        let copied = self.copy_pieces(memory, copy, request);
        if let Err(error) = &copied {
            // What the engine has of it is waited for: its pages are the caller's again afterwards.
            self.cancel(id, error.errno());
            while self.has_submitted(|context| context.request.id == id)
                && let Ok(Some(_)) = self.retire_oldest()
            {}
        }
        self.is_zero_copying = false;
        copied
    }

    fn copy_pieces(
        &mut self,
        memory: &dyn UserMemory,
        copy: &ZeroCopy<'_>,
        request: Request,
    ) -> Result<(), DmaError> {
        let last = copy.ops.iter().rposition(|op| op.size_bytes > 0);
        let is_done = |gone: &Gone| gone.request == request.id && gone.was_last;
        for (number, op) in copy.ops.iter().enumerate() {
            for piece in pieces(op.buffer, op.size_bytes) {
                while self.issue(Some(request.id))? {}
                while !self.takes_pinned(piece.pages)? {
                    self.make_room(request.id, piece.pages)?;
                }
                let is_last =
                    Some(number) == last && piece.offset_bytes + piece.size_bytes == op.size_bytes;
                // Both sums were checked.
                let from = UserAddr::new(op.buffer.get() + piece.offset_bytes);
                let at = BusAddr::new(copy.at(op).get() + piece.offset_bytes);
                let pinned = memory.pin(from, piece.size_bytes, !request.to_device)?;
                let part = self.zero()?.hold(pinned, u64::from(piece.pages));
                self.enter(Context {
                    request,
                    at,
                    size_bytes: piece.size_bytes,
                    pages: piece.pages,
                    state: State::Pinned(part),
                    fence: Fence::None,
                    ends: is_last.then_some(Ends::Awaited),
                })?;
                let mut threshold = WAIT_BELOW;
                while self.should_wait(threshold)? {
                    // (The reference takes one out whether there is one or not.)
                    if self.retire_oldest()?.is_none() {
                        break;
                    }
                    threshold = WAIT_UNTIL;
                }
            }
        }
        loop {
            let has_issued = self.issue(Some(request.id))?;
            match self.retire_oldest()? {
                Some(gone) if is_done(&gone) => return Ok(()),
                Some(_) => {}
                None if has_issued => {}
                // What is next does not fit, and nothing will make room. (The reference looks for ever.)
                None => return Err(self.no_room(1)),
            }
        }
    }

    /// Enters all contexts of a request; see
    /// [`Dma::zero_copy_async`](super::super::Dma::zero_copy_async).
    pub(super) fn zero_copy_async(
        &mut self,
        memory: &dyn UserMemory,
        copy: &ZeroCopy<'_>,
        reply: Reply,
        chunk: Option<OwnedPin>,
    ) -> Result<(), DmaError> {
        self.answer_missed(None)?;
        let (links, account) = (self.links, self.account());
        let queue = self.ring.pair.queue();
        let zero = self.zero()?;
        let free = zero.queue.free();
        let pieces = copy.ops.iter().map(|op| pieces(op.buffer, op.size_bytes));
        let contexts: u64 = pieces.map(|pieces| pieces.count_left()).sum();
        // One that moves nothing just keeps its place.
        let contexts = u32::try_from(contexts).unwrap_or(u32::MAX).max(1);
        if contexts > free {
            return Err(DmaError::NoContexts {
                queue,
                contexts,
                free,
            });
        }
        if !zero.promise(account.by, &*links.host) {
            return Err(DmaError::CompletionsFull { queue });
        }
        let request = Request {
            id: zero.next_request(),
            account,
            to_device: copy.to_device,
        };
        let mut pinned = match zero.prepare(memory, copy) {
            Ok(prepared) => prepared,
            Err(error) => {
                zero.break_promise();
                return Err(error.into());
            }
        };
        let ends = Ends::Told(Box::new(Told {
            reply,
            result: Ok(()),
            _chunk: chunk,
        }));
        if pinned.is_empty() {
            let region = if zero.queue.has_no_unpinned() {
                Region::Pinned
            } else {
                Region::Unpinned
            };
            let context = Context {
                request,
                at: copy.base,
                size_bytes: 0,
                pages: 0,
                state: State::Completed,
                fence: Fence::None,
                ends: Some(ends),
            };
            // There is room.
            let _ = zero.queue.push(region, context);
            return Ok(());
        }
        let unpinned = pinned.split_off(pinned.partition_point(Prepared::is_pinned));
        let (of_pinned, of_unpinned) = match unpinned.is_empty() {
            true => (Some(ends), None),
            false => (None, Some(ends)),
        };
        // There is room, and what is pinned comes first.
        let pinned = Uncut::new(request, pinned, of_pinned);
        let _ = zero.queue.push_run(Region::Pinned, pinned);
        let unpinned = Uncut::new(request, unpinned, of_unpinned);
        let _ = zero.queue.push_run(Region::Unpinned, unpinned);
        Ok(())
    }

    /// Ends the asynchronous requests of this operation's process, which goes: what the engine has of
    /// them is waited for, the rest is cancelled. The next one on the ring does not find their
    /// completions, nor those that were not taken.
    pub(in crate::dma) fn settle_zero_copies(&mut self) {
        let by = self.by;
        let Some(zero) = self.ring.zero_copies.as_deref_mut() else {
            return;
        };
        let is_mine = |context: &Context| context.request.account.by == by;
        let mine = zero.queue.iter().filter(|context| is_mine(context));
        let mut requests: Vec<_> = mine.map(|context| context.request.id).collect();
        requests.dedup();
        for request in requests {
            self.cancel(request, Errno::EINTR);
        }
        while self.has_submitted(is_mine)
            && let Ok(Some(_)) = self.retire_oldest()
        {}
        let host = &*self.links.host;
        if let Some(zero) = self.ring.zero_copies.as_deref_mut() {
            zero.leave(by, host);
        }
    }

    /// Everything is lost with the ring, and each request is told so.
    pub(in crate::dma) fn lose_zero_copies(&mut self, why: TimedOut) {
        let Some(zero) = self.ring.zero_copies.as_deref_mut() else {
            return;
        };
        let errno = DmaError::from(why).errno();
        let mut lost = Vec::new();
        // Pins go with their contexts: the queue was stopped before.
        for (_, context) in zero.queue.drain() {
            let by = context.request.account.by;
            lost.extend(context.ends.map(|ends| (by, ends)));
        }
        for (by, ends) in lost {
            self.end(by, ends, Err(errno));
        }
    }

    /// Does what can be done without waiting.
    pub(super) fn tend(&mut self, now: Tick) -> Rest {
        loop {
            let (mut has_done, until) = self.retire_ready(now);
            for step in [Self::issue_next, Self::pin_next] {
                loop {
                    match step(self) {
                        Ok(true) => has_done = true,
                        Ok(false) => break,
                        Err(refused) => {
                            self.cancel(refused.request, refused.why.errno());
                            has_done = true;
                        }
                    }
                }
            }
            if has_done {
                continue;
            }
            let stuck = match self.ring.zero_copies.as_deref_mut() {
                Some(zero) if until.is_none() => zero.next_in_line(),
                _ => None,
            };
            match (until, stuck) {
                (Some(until), _) => return Rest::Until(until),
                (None, None) => return Rest::Idle,
                // It never fits, and nothing will make room.
                (None, Some(request)) => self.cancel(request, Errno::ENOMEM),
            }
        }
    }

    /// Ends the contexts whose markers have come; says whether there were any, and until when the
    /// next one is waited for.
    fn retire_ready(&mut self, now: Tick) -> (bool, Option<Tick>) {
        let mut has_done = false;
        loop {
            match self.look_at_oldest(now) {
                Oldest::None => return (has_done, None),
                Oldest::NotYet(until) => return (has_done, Some(until)),
                Oldest::Done => {
                    self.finish_oldest(1);
                }
                Oldest::TimedOut(slot, staged, retries, why) => {
                    let culprit = UnderWay::ZeroCopy(slot);
                    let may_retry = retries < RETRIES_MAX && self.is_disturbed(staged.started);
                    if may_retry && self.links.requests.is_at_work() {
                        return (has_done, Some(now.after(LOOK_AGAIN)));
                    }
                    if !may_retry || self.stage_again(culprit, why).is_err() {
                        self.fail_ring(culprit, why);
                    }
                }
            }
            has_done = true;
        }
    }

    fn look_at_oldest(&mut self, now: Tick) -> Oldest {
        let links = self.links;
        let ring = &mut *self.ring;
        let queue = ring.pair.queue();
        let Some(zero) = ring.zero_copies.as_deref_mut() else {
            return Oldest::None;
        };
        let (slot, staged, retries) = match zero.oldest_submitted() {
            None => return Oldest::None,
            Some((_, None)) => return Oldest::Done,
            Some((slot, Some((staged, retries)))) => (slot, staged, retries),
        };
        let began = zero.awaited_since(&staged, now);
        let looked = match words_at(&*links.host, zero.marker(slot)) {
            Ok(words) => links.port.look_for_word(
                queue,
                words.poll,
                MARKER,
                began,
                wait_for(links, staged.pairs),
            ),
            Err(_) => Look::TimedOut(TimedOut {
                queue,
                reason: NotCompleted::Stopped,
            }),
        };
        match looked {
            Look::There => Oldest::Done,
            Look::NotYet { until } => Oldest::NotYet(until),
            Look::TimedOut(why) => Oldest::TimedOut(slot, staged, retries, why),
        }
    }

    /// Waits for the oldest submitted context and ends it; `None` if there is none.
    fn retire_oldest(&mut self) -> Result<Option<Gone>, DmaError> {
        let links = self.links;
        loop {
            let queue = self.ring.pair.queue();
            let zero = self.zero()?;
            let (slot, staged, retries) = match zero.oldest_submitted() {
                None => return Ok(None),
                Some((_, None)) => match self.finish_oldest(1) {
                    Finished::Gone(gone) => return Ok(Some(gone)),
                    Finished::Fencing => continue,
                    Finished::Nothing => return Ok(None),
                },
                Some((slot, Some((staged, retries)))) => (slot, staged, retries),
            };
            let words = words_at(&*links.host, zero.marker(slot))?;
            let budget = wait_for(links, staged.pairs);
            match links.port.await_word(queue, words.poll, MARKER, budget) {
                Ok(polls) => match self.finish_oldest(polls) {
                    Finished::Gone(gone) => return Ok(Some(gone)),
                    Finished::Fencing => {}
                    Finished::Nothing => return Ok(None),
                },
                Err(why) => {
                    self.overcome(UnderWay::ZeroCopy(slot), staged.started, why, retries)?;
                }
            }
        }
    }

    /// The oldest context has been moved: it ends, or its fence is staged.
    fn finish_oldest(&mut self, polls: u64) -> Finished {
        let Some(zero) = self.ring.zero_copies.as_deref_mut() else {
            return Finished::Nothing;
        };
        let Some((slot, context)) = zero.queue.oldest_submitted() else {
            return Finished::Nothing;
        };
        let Request { id, account, .. } = context.request;
        let wants_fence = context.fence == Fence::Wanted;
        if let State::Submitted(_, staged, _) = context.state {
            self.acknowledge(account, context_number(slot), staged.pairs, polls);
        }
        if wants_fence {
            if self.stage_fence(slot).is_ok() {
                return Finished::Fencing;
            }
            // A queue that is stopped keeps its writes, too.
            let why = TimedOut {
                queue: self.ring.pair.queue(),
                reason: NotCompleted::Stopped,
            };
            self.fail_ring(UnderWay::ZeroCopy(slot), why);
            return Finished::Nothing;
        }
        let zero = self.ring.zero_copies.as_deref_mut();
        let Some((_, context)) = zero.and_then(|zero| zero.queue.pop_submitted()) else {
            return Finished::Nothing;
        };
        let was_last = context.ends.is_some();
        if let Some(ends) = context.ends {
            // What it has pinned has gone by then.
            drop(context.state);
            self.end(account.by, ends, Ok(()));
        }
        Finished::Gone(Gone {
            request: id,
            was_last,
        })
    }

    /// Hands the engine a batch that moves nothing and whose marker comes behind all writes.
    fn stage_fence(&mut self, slot: u32) -> Result<(), DmaError> {
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

    /// A request has ended: whoever asked for it is told, unless it stands and waits.
    fn end(&mut self, by: Pid, ends: Ends, outcome: Result<(), Errno>) {
        let Ends::Told(told) = ends else {
            return;
        };
        let host = &*self.links.host;
        let Some(zero) = self.ring.zero_copies.as_deref_mut() else {
            return;
        };
        let posted = zero.post(host, (by, told.reply), told.result.and(outcome));
        let event = Event::CompletionPosted {
            sequence: posted.sequence,
            result: posted.result,
        };
        self.tell(by, &event);
    }

    /// Takes what the engine has not been given of a request out of the queue. What it has been
    /// given goes on; when that has ended, or at once, the request ends with this error.
    fn cancel(&mut self, request: u64, why: Errno) {
        let Some(zero) = self.ring.zero_copies.as_deref_mut() else {
            return;
        };
        let is_its = |context: &Context| context.request.id == request;
        let mut ends = None;
        let mut by = self.by;
        for context in zero.queue.remove_unsubmitted(is_its) {
            by = context.request.account.by;
            ends = context.ends.or(ends);
        }
        if let Some(Ends::Told(told)) = &mut ends {
            told.result = Err(why);
        }
        match zero.last_submitted(is_its) {
            // It ends the request now, in place of one that would have had the barrier.
            Some(sibling) if sibling.ends.is_none() => {
                if sibling.request.to_device && sibling.fence == Fence::None {
                    sibling.fence = Fence::Wanted;
                }
                sibling.ends = ends;
            }
            Some(_) => {}
            None => {
                if let Some(ends) = ends {
                    self.end(by, ends, Err(why));
                }
            }
        }
    }

    /// Stages contexts that are pinned, as long as they fit; says whether it did one. If that of
    /// `own` is refused, it is an error; any other request is told.
    fn issue(&mut self, own: Option<u64>) -> Result<bool, DmaError> {
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
    fn issue_next(&mut self) -> Result<bool, Refused> {
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

    /// Pins the context that is next, if the budget allows.
    fn pin_next(&mut self) -> Result<bool, Refused> {
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

    /// Enters a context that is pinned.
    fn enter(&mut self, context: Context) -> Result<(), DmaError> {
        let pages = context.pages;
        let refused = self.no_room(pages);
        let zero = self.zero()?;
        let entered = zero.queue.push(Region::Pinned, context);
        entered.map_err(|_| refused)
    }

    /// Whether a pinned context of so many pages may enter.
    fn takes_pinned(&mut self, pages: u32) -> Result<bool, DmaError> {
        let zero = self.zero()?;
        let has_room = zero.queue.free() > 0 && zero.queue.has_no_unpinned();
        Ok(has_room && zero.can_pin(u64::from(pages)))
    }

    /// Gets on with what is before a context, by one thing.
    fn make_room(&mut self, own: u64, pages: u32) -> Result<(), DmaError> {
        if self.issue(Some(own))? {
            return Ok(());
        }
        match self.pin_next() {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(refused) => {
                self.cancel(refused.request, refused.why.errno());
                return Ok(());
            }
        }
        if self.retire_oldest()?.is_some() {
            return Ok(());
        }
        match self.zero()?.next_in_line() {
            // It never fits, and stands in the way.
            Some(other) if other != own => {
                self.cancel(other, Errno::ENOMEM);
                Ok(())
            }
            _ => {
                let size_bytes = u64::from(pages) * PAGE_SIZE_BYTES;
                Err(PinFault::NoRoom { size_bytes }.into())
            }
        }
    }

    /// Whether a synchronous copy is to wait for the engine before it goes on.
    fn should_wait(&mut self, threshold: u32) -> Result<bool, DmaError> {
        let available = self.ring.pair.index().available();
        let zero = self.zero()?;
        Ok(zero.is_spent() || available < threshold + 1 || zero.queue.free() == 0)
    }

    fn has_submitted(&self, is_meant: impl Fn(&Context) -> bool) -> bool {
        let zero = self.ring.zero_copies.as_deref();
        zero.is_some_and(|zero| zero.queue.submitted().any(|(_, context)| is_meant(context)))
    }

    fn zero(&mut self) -> Result<&mut ZeroCopies, DmaError> {
        let core = self.lane.core();
        let zero = self.ring.zero_copies.as_deref_mut();
        zero.ok_or(DmaError::NotReady { core })
    }

    fn no_room(&self, pairs: u32) -> DmaError {
        DmaError::NoRoom {
            queue: self.ring.pair.queue(),
            pairs,
            available: self.ring.pair.index().available(),
        }
    }
}
