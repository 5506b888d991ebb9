//! What becomes of a ring, and of everything under way on it, when a marker does not come or the
//! ring is taken away.
//!
//! The queue is stuck then, not the request: everything that the engine has been given is lost at
//! once, and whoever waits for any of it is told. Only where a reset of the device is to blame, and
//! the generation says so, everything is staged again.

use glia_abi::event::Event;
use glia_abi::handle::Pid;
use glia_abi::port::{NotCompleted, TimedOut};
use glia_abi::sched::Tick;

use super::DmaError;
use super::context::{Context, Slot, Turn};
use super::held::{Held, Staged};
use super::zerocopy;

/// How often what a reset has disturbed is staged again (the reference does not count).
pub(super) const RETRIES_MAX: u32 = 3;

/// Something that the engine has been given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnderWay {
    /// A copy, by its context.
    Copy(Slot),
    /// A context of the zero copies, by its slot in their queue.
    ZeroCopy(u32),
}

impl UnderWay {
    /// The number by which events call its context.
    fn number(self) -> u32 {
        match self {
            Self::Copy(slot) => slot.number(),
            Self::ZeroCopy(slot) => zerocopy::context_number(slot),
        }
    }
}

/// The same with whose it is, and how it was staged.
type Lost = (UnderWay, Pid, Staged);

impl Held<'_> {
    /// A marker did not come. If a reset of the device was to blame, everything is under way again
    /// when this returns; otherwise the ring has failed, and all is done about it.
    #[cold]
    pub(super) fn overcome(
        &mut self,
        culprit: UnderWay,
        started: Tick,
        why: TimedOut,
        retries: u32,
    ) -> Result<(), DmaError> {
        if retries < RETRIES_MAX && self.is_disturbed(started) {
            // What is staged before the reset has ended would be lost, too; and where a clock stands
            // still, nothing else lets it end.
            self.links.requests.let_pass(&*self.links.sched);
            if self.stage_again(culprit, why).is_ok() {
                return Ok(());
            }
        }
        self.fail_ring(culprit, why);
        Err(why.into())
    }

    /// Whether a reset has disturbed what was staged then, and this generation cares.
    pub(super) fn is_disturbed(&self, started: Tick) -> bool {
        let links = self.links;
        links.profile.retry_memcpy && links.resets.cover(started)
    }

    /// Sets the queue up afresh and stages all that was under way again, the oldest batch first.
    /// (The reference stages the one that was waited for, and its successor.)
    ///
    /// The marker words stay: one that an engine still writes for the lost life of a batch says what
    /// is true, since all bytes of that batch were moved before it.
    pub(super) fn stage_again(&mut self, culprit: UnderWay, why: TimedOut) -> Result<(), DmaError> {
        let mut lost = self.under_way();
        lost.sort_unstable_by_key(|(_, _, staged)| staged.first);
        self.tell_failed(&lost, Some(culprit), why);
        self.set_up_afresh();
        for (what, _, _) in lost {
            match what {
                UnderWay::ZeroCopy(slot) => self.stage_context(slot)?,
                UnderWay::Copy(slot) => {
                    let Context::InFlight(mut batch) = self.ring.context(slot) else {
                        continue;
                    };
                    batch.staged = self.announce(slot, batch.account, &batch.run)?;
                    self.turn(slot, Turn::StagedAgain(batch));
                }
            }
        }
        Ok(())
    }

    /// All that is under way is lost, and the queue is set up afresh. That comes first: what the
    /// batches worked on may be somebody else's as soon as they are lost.
    pub(super) fn fail_ring(&mut self, culprit: UnderWay, why: TimedOut) {
        let lost = self.under_way();
        self.tell_failed(&lost, Some(culprit), why);
        self.set_up_afresh();
        self.ring.markers.move_on();
        self.ring.failure = Some(why);
        self.lane.count_failure();
        self.lose(lost, why);
    }

    /// Whoever waited for what it had staged has been unwound: the ring fails, since nobody else
    /// would find out what became of that.
    pub(super) fn desert(&mut self) {
        let why = TimedOut {
            queue: self.ring.pair.queue(),
            reason: NotCompleted::Stopped,
        };
        self.fail_ring(UnderWay::Copy(Slot::Sync), why);
        self.forget(Slot::Sync);
    }

    /// Everything that is under way is lost, since the core is to be reset. The queue is stopped
    /// first: what the batches worked on may be somebody else's from here on.
    pub(super) fn interrupt(&mut self) {
        self.stop_and_lose();
        self.ring.markers.move_on();
    }

    /// Everything that is under way is lost and forgotten, since the ring's memory goes. A queue
    /// that has nothing to do is left alone, as in the reference.
    pub(super) fn abandon(&mut self) {
        self.stop_and_lose();
        for slot in Slot::ALL {
            if let Context::InFlight(_) = self.ring.context(slot) {
                self.turn(slot, Turn::Done);
            }
            self.forget(slot);
        }
        self.ring.zero_copies = None;
    }

    /// Stops the queue, if it has anything to do, and loses that.
    fn stop_and_lose(&mut self) {
        let why = TimedOut {
            queue: self.ring.pair.queue(),
            reason: NotCompleted::Stopped,
        };
        let lost = self.under_way();
        if !lost.is_empty() {
            self.ring.pair.stop(&*self.links.port);
        }
        self.tell_failed(&lost, None, why);
        self.lose(lost, why);
    }

    /// What the engine has been given and not completed. A batch of 0 bytes is not among it.
    fn under_way(&mut self) -> Vec<Lost> {
        let copy = |slot| match self.ring.context(slot) {
            Context::InFlight(batch) if batch.staged.pairs > 0 => {
                Some((UnderWay::Copy(slot), batch.account.by, batch.staged))
            }
            _ => None,
        };
        let mut all: Vec<_> = Slot::ALL.into_iter().filter_map(copy).collect();
        if let Some(zero) = &self.ring.zero_copies {
            let submitted = zero.submitted();
            all.extend(submitted.map(|(slot, by, staged)| (UnderWay::ZeroCopy(slot), by, staged)));
        }
        all
    }

    /// What the engine had is lost, with everything that waits to be given to it.
    fn lose(&mut self, lost: Vec<Lost>, why: TimedOut) {
        for (what, _, _) in lost {
            if let UnderWay::Copy(slot) = what {
                self.turn(slot, Turn::Lost(why));
            }
        }
        self.lose_zero_copies(why);
    }

    fn tell_failed(&self, lost: &[Lost], culprit: Option<UnderWay>, why: TimedOut) {
        for &(what, by, _) in lost {
            let failed = Event::BatchFailed {
                context: what.number(),
                reason: if Some(what) == culprit {
                    why.reason
                } else {
                    NotCompleted::Stopped
                },
            };
            self.tell(by, &failed);
        }
    }

    fn set_up_afresh(&mut self) {
        self.ring.pair.reset(&*self.links.port);
        self.tell_ready();
    }

    fn tell_ready(&self) {
        let descs = self.ring.pair.index().descs();
        self.links
            .tell(self.lane, None, &Event::RingReady { descs });
    }
}
