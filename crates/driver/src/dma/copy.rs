//! What is done with a ring while it is held: batches staged, completed, or lost.

use glia_abi::event::Event;
use glia_abi::handle::Pid;
use glia_abi::port::{NotCompleted, TimedOut};
use glia_abi::sched::SleepGuard;
use glia_abi::udma::{Direction, MARKER};

use super::DmaError;
use super::context::{Batch, Context, Slot, Turn, WaitHandle};
use super::lane::{H2tRing, Hold, Lane, Links};
use super::split::Run;
use crate::ring::StageError;

/// A ring that is held for one operation.
pub(crate) struct Held<'a> {
    links: &'a Links,
    lane: &'a Lane,
    ring: SleepGuard<'a, H2tRing>,
    by: Pid,
    /// The failure that happened while this operation stood in line.
    missed: Option<TimedOut>,
}

impl<'a> Held<'a> {
    pub(super) fn new(
        links: &'a Links,
        lane: &'a Lane,
        ring: SleepGuard<'a, H2tRing>,
        by: Pid,
        missed: Option<TimedOut>,
    ) -> Self {
        Self {
            links,
            lane,
            ring,
            by,
            missed,
        }
    }

    /// Moves everything, batch after batch.
    pub(super) fn copy(&mut self, run: Run) -> Result<(), DmaError> {
        self.answer_missed(None)?;
        let mut rest = run;
        while let Some((batch, left)) = rest.split_batch() {
            self.stage(Slot::Sync, &batch)?;
            self.complete(Slot::Sync, false)?;
            rest = left;
        }
        Ok(())
    }

    /// Stages a run of one batch behind `previous`, then waits for `previous`.
    pub(super) fn copy_async(
        &mut self,
        run: Run,
        previous: WaitHandle,
        hold: Hold,
    ) -> Result<WaitHandle, DmaError> {
        let (old, new) = (previous.slot(), previous.next_slot());
        self.answer_missed(old)?;
        self.check_in_flight(old)?;
        self.vacate(new);
        // The copy that was in the way may have taken the whole ring with it.
        self.check_in_flight(old)?;
        self.stage(new, &run)?;
        self.ring.holds[new.index()] = hold;
        if let Some(old) = old {
            self.complete(old, true).inspect_err(|_| self.forget(new))?;
        }
        Ok(new.handle())
    }

    /// Waits for the copy under a handle.
    pub(super) fn wait(&mut self, handle: WaitHandle) -> Result<(), DmaError> {
        let slot = handle.slot().ok_or_else(|| self.not_in_use(handle))?;
        self.answer_missed(Some(slot))?;
        self.complete(slot, false)
    }

    /// Ends the asynchronous copies of this operation's process, whatever comes of them.
    pub(super) fn settle(&mut self) {
        for slot in [Slot::Async1, Slot::Async2] {
            if self.ring.context(slot).owner() == Some(self.by) {
                self.vacate(slot);
            }
        }
    }

    /// Answers with the failure that was missed in line, if any; `asked` is what the caller then
    /// knows to be lost.
    fn answer_missed(&mut self, asked: Option<Slot>) -> Result<(), DmaError> {
        let Some(missed) = self.missed else {
            return Ok(());
        };
        if let Some(slot) = asked {
            self.forget(slot);
        }
        Err(missed.into())
    }

    /// The batch that is under way in a context. One that was lost is told now, and forgotten.
    fn in_flight(&mut self, slot: Slot) -> Result<Batch, DmaError> {
        match self.ring.context(slot) {
            Context::InFlight(batch) => Ok(batch),
            Context::Idle => Err(self.not_in_use(slot.handle())),
            Context::Failed { why, .. } => {
                self.turn(slot, Turn::Forgotten);
                Err(why.into())
            }
        }
    }

    fn check_in_flight(&mut self, slot: Option<Slot>) -> Result<(), DmaError> {
        slot.map_or(Ok(()), |slot| self.in_flight(slot).map(drop))
    }

    /// Makes a context idle. A copy that is under way in it is waited for; that it fails is told by
    /// an event only, since nobody asked for it.
    fn vacate(&mut self, slot: Slot) {
        if let Context::InFlight(_) = self.ring.context(slot) {
            let _ = self.complete(slot, false);
        }
        self.forget(slot);
    }

    /// Stages a batch in an idle context and announces it. A batch of 0 bytes is nothing but a
    /// context in use.
    fn stage(&mut self, slot: Slot, run: &Run) -> Result<(), DmaError> {
        let links = self.links;
        if run.size_bytes() == 0 {
            self.turn(
                slot,
                Turn::Staged(Batch {
                    by: self.by,
                    pairs: 0,
                }),
            );
            return Ok(());
        }
        let queue = self.ring.pair.queue();
        let refusal = |error| match error {
            StageError::NoRoom { pairs, available } => DmaError::NoRoom {
                queue,
                pairs,
                available,
            },
            StageError::Memory(error) => DmaError::Memory(error),
            StageError::Size(error) => DmaError::Size(error),
        };
        let data_descs = run.data_descs();
        let mut staging = self
            .ring
            .pair
            .stage(&*links.host, data_descs.saturating_add(1))
            .map_err(refusal)?;
        for transfer in run.transfers() {
            staging.push(&transfer).map_err(refusal)?;
        }
        self.ring.markers.words(&*links.host, slot)?.arm();
        let marker = self.ring.markers.transfer(links.profile, slot);
        staging.push(&marker).map_err(refusal)?;

        let batch = Batch {
            by: self.by,
            pairs: staging.pairs(),
        };
        self.turn(slot, Turn::Staged(batch));
        // Told before the doorbells, since in inline mode the engine runs inside them.
        let staged = Event::BatchStaged {
            context: slot.number(),
            first: self.ring.pair.announced(),
            data_descs,
            size_bytes: run.size_bytes(),
        };
        self.tell(self.by, &staged);
        self.ring.pair.publish(&*links.port, staging);
        Ok(())
    }

    /// Waits for a context's marker and gives the slots back; the context is idle then, also after
    /// an error. `pipelined` if another batch was staged behind it.
    fn complete(&mut self, slot: Slot, pipelined: bool) -> Result<(), DmaError> {
        let links = self.links;
        let Batch { by, pairs } = self.in_flight(slot)?;
        if pairs == 0 {
            self.turn(slot, Turn::Done);
            return Ok(());
        }
        let budget = links.profile.wait.budget(pairs, pipelined);
        let queue = self.ring.pair.queue();
        let words = self.ring.markers.words(&*links.host, slot)?;
        let polls = match links.port.await_word(queue, words.poll, MARKER, budget) {
            Ok(polls) => polls,
            Err(why) => return self.after_timeout(slot, why),
        };
        words.arm();
        let context = slot.number();
        self.tell(by, &Event::BatchDone { context, polls });
        self.ring.pair.acknowledge(pairs);
        for direction in [Direction::Rx, Direction::Tx] {
            let descs = pairs;
            self.tell(by, &Event::Acknowledged { direction, descs });
        }
        self.turn(slot, Turn::Done);
        Ok(())
    }

    /// The marker of a context did not come. Everything that may be done about it is done here;
    /// what is left is that the ring has failed.
    #[cold]
    fn after_timeout(&mut self, slot: Slot, why: TimedOut) -> Result<(), DmaError> {
        self.fail_ring(slot, why);
        self.forget(slot);
        Err(why.into())
    }

    /// All that is under way is lost, and the queue is set up afresh.
    fn fail_ring(&mut self, culprit: Slot, why: TimedOut) {
        for slot in Slot::ALL {
            let Context::InFlight(batch) = self.ring.context(slot) else {
                continue;
            };
            if batch.pairs == 0 {
                continue;
            }
            let failed = Event::BatchFailed {
                context: slot.number(),
                reason: if slot == culprit {
                    why.reason
                } else {
                    NotCompleted::Stopped
                },
            };
            self.tell(batch.by, &failed);
            self.turn(slot, Turn::Lost(why));
        }
        self.ring.pair.reset(&*self.links.port);
        self.ring.markers.move_on();
        self.ring.failure = Some(why);
        self.lane.count_failure();
        let descs = self.ring.pair.index().descs();
        self.links
            .tell(self.lane, None, &Event::RingReady { descs });
    }

    /// Makes a context idle whose batch was lost.
    fn forget(&mut self, slot: Slot) {
        if let Context::Failed { .. } = self.ring.context(slot) {
            self.turn(slot, Turn::Forgotten);
        }
    }

    fn turn(&mut self, slot: Slot, turn: Turn) {
        let context = &mut self.ring.contexts[slot.index()];
        let next = context.after(turn);
        debug_assert!(next.is_some(), "{turn:?} in {context:?}");
        *context = next.unwrap_or(*context);
        if !matches!(context, Context::InFlight(_)) {
            self.ring.holds[slot.index()] = None;
        }
    }

    fn tell(&self, by: Pid, event: &Event) {
        self.links.tell(self.lane, Some(by), event);
    }

    fn not_in_use(&self, handle: WaitHandle) -> DmaError {
        DmaError::NotInUse {
            handle,
            queue: self.ring.pair.queue(),
        }
    }
}
