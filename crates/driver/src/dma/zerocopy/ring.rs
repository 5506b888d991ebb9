//! What is done with a ring for zero copies while it is held: requests enter, and get on.

mod retire;
mod stage;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::errno::Errno;
use glia_abi::port::TimedOut;
use glia_abi::sched::Tick;
use glia_abi::transport::{PinFault, UserMemory};

use retire::Gone;

use super::context::{Context, Ends, Fence, Prepared, Request, State, Told, Uncut, ZeroCopies};
use super::cut::pieces;
use super::queue::Region;
use super::{Reply, ZeroCopy};
use crate::dma::DmaError;
use crate::dma::held::Held;
use crate::memory::OwnedPin;

/// A synchronous copy begins to wait for the engine when there is room for no more than this
/// (driver 2.27.4, `DESC_WAIT_THRESHOLD_LO`),
const WAIT_BELOW: u32 = 65;
/// and goes on when there is room for so much more (`DESC_WAIT_THRESHOLD_HI`).
const WAIT_UNTIL: u32 = 520;

/// Until when the worker rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Until there is a request.
    Idle,
    /// Until this time at the latest, or the queue has done something.
    Until(Tick),
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
