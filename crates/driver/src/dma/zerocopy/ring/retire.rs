//! How contexts end: their markers come, or they are cancelled.

use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::handle::Pid;
use glia_abi::port::{Budget, Look, NotCompleted, TimedOut};
use glia_abi::sched::{Micros, Tick};
use glia_abi::udma::MARKER;

use super::super::context::{Context, Ends, Fence, Request, State};
use super::super::context_number;
use crate::dma::DmaError;
use crate::dma::budget::{Awaited, budget};
use crate::dma::failure::{RETRIES_MAX, UnderWay};
use crate::dma::held::{Held, Staged};
use crate::dma::lane::Links;
use crate::dma::marker::words_at;

/// How soon the worker looks again whether a reset has ended.
const LOOK_AGAIN: Micros = Micros(1_000);

/// A context that has ended.
pub(super) struct Gone {
    pub(super) request: u64,
    /// It was the last of its request.
    pub(super) was_last: bool,
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
    /// Ends the contexts whose markers have come; says whether there were any, and until when the
    /// next one is waited for.
    pub(super) fn retire_ready(&mut self, now: Tick) -> (bool, Option<Tick>) {
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
    pub(super) fn retire_oldest(&mut self) -> Result<Option<Gone>, DmaError> {
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

    /// A request has ended: whoever asked for it is told, unless it stands and waits.
    pub(super) fn end(&mut self, by: Pid, ends: Ends, outcome: Result<(), Errno>) {
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
    pub(super) fn cancel(&mut self, request: u64, why: Errno) {
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
}
