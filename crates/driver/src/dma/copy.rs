//! What is done with a ring while it is held: batches staged, completed, or lost.

use glia_abi::event::Event;
use glia_abi::fault::{FaultPoint, Scope, StagedBatch};
use glia_abi::handle::Pid;
use glia_abi::port::{NotCompleted, TimedOut};
use glia_abi::sched::{SleepGuard, Tick};
use glia_abi::udma::{Direction, MARKER};

use super::DmaError;
use super::budget::{Awaited, budget};
use super::context::{Batch, Context, Slot, Turn, WaitHandle};
use super::lane::{H2tRing, Hold, Lane, Links};
use super::split::Run;

/// How often a batch that a reset has disturbed is staged again (the reference does not count).
const RETRIES_MAX: u32 = 3;

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

    /// Moves a run in one batch, and waits as if another one were staged behind it, or not.
    pub(super) fn batch(&mut self, run: Run, pipelined: bool) -> Result<(), DmaError> {
        self.answer_missed(None)?;
        self.stage(Slot::Sync, &run)?;
        self.complete(Slot::Sync, pipelined)
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

    /// Whether the ring takes copies.
    pub(super) fn is_open(&self) -> bool {
        self.ring.is_open()
    }

    /// Waits for the copy under a handle. Where the ring takes none, there is nothing to wait for,
    /// but what was lost is told.
    pub(super) fn wait(&mut self, handle: WaitHandle) -> Result<(), DmaError> {
        let slot = handle.slot().ok_or_else(|| self.not_in_use(handle))?;
        if !self.is_open() && self.ring.context(slot) == Context::Idle {
            return Ok(());
        }
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
        let batch = Batch {
            by: self.by,
            command: Scope::current().command,
            pairs: 0,
            run: *run,
            first: self.ring.pair.announced(),
            started: Tick(0),
        };
        let batch = if run.size_bytes() == 0 {
            batch
        } else {
            self.refuse_by_order(&batch)?;
            self.announce(slot, batch)?
        };
        self.turn(slot, Turn::Staged(batch));
        Ok(())
    }

    /// Refuses a batch for which there is no room by order of a fault plan. One that is staged again
    /// has had its room.
    fn refuse_by_order(&self, batch: &Batch) -> Result<(), DmaError> {
        let faults = &self.links.faults;
        if !faults.is_armed() {
            return Ok(());
        }
        let _for_batch = self.scope(batch).enter();
        if !faults.strikes(FaultPoint::RingRoom) {
            return Ok(());
        }
        Err(DmaError::NoRoom {
            queue: self.ring.pair.queue(),
            pairs: batch.run.data_descs().saturating_add(1),
            available: 0,
        })
    }

    /// For whom a batch is.
    fn scope(&self, batch: &Batch) -> Scope {
        Scope {
            device: Some(self.links.device),
            process: Some(batch.by),
            core: Some(self.lane.core()),
            command: batch.command,
        }
    }

    /// Writes a batch into the ring and rings the doorbells; says what the batch is now. After a
    /// refusal the ring is as it was.
    fn announce(&mut self, slot: Slot, batch: Batch) -> Result<Batch, DmaError> {
        let links = self.links;
        let run = batch.run;
        let queue = self.ring.pair.queue();
        let refusal = |error| DmaError::staging(queue, error);
        let started = links.stamp();
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
            pairs: staging.pairs(),
            first: self.ring.pair.announced(),
            started,
            ..batch
        };
        // Told before the doorbells, since in inline mode the engine runs inside them.
        let staged = Event::BatchStaged {
            context: slot.number(),
            first: batch.first,
            data_descs,
            size_bytes: run.size_bytes(),
        };
        self.tell(batch.by, &staged);
        if links.faults.is_armed() {
            links.faults.staged(&StagedBatch {
                device: links.device,
                queue,
                first: batch.first,
                pairs: batch.pairs,
                scope: self.scope(&batch),
            });
        }
        self.ring.pair.publish(&*links.port, staging);
        Ok(batch)
    }

    /// Waits for a context's marker and gives the slots back; the context is idle then, also after
    /// an error. `pipelined` if another batch was staged behind it.
    fn complete(&mut self, slot: Slot, pipelined: bool) -> Result<(), DmaError> {
        let links = self.links;
        let Batch { by, pairs, run, .. } = self.in_flight(slot)?;
        if pairs == 0 {
            self.turn(slot, Turn::Done);
            return Ok(());
        }
        let queue = self.ring.pair.queue();
        let mut awaited = Awaited {
            descs: pairs,
            is_pipelined: pipelined,
            is_d2d: run.is_d2d(),
        };
        let mut retries = 0;
        let polls = loop {
            let words = self.ring.markers.words(&*links.host, slot)?;
            let budget = budget(&links.profile.wait, links.platform, awaited);
            match links.port.await_word(queue, words.poll, MARKER, budget) {
                Ok(polls) => {
                    words.arm();
                    break polls;
                }
                Err(why) => self.after_timeout(slot, why, retries)?,
            }
            retries += 1;
            awaited.is_pipelined = false;
        };
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

    /// The marker of a context did not come. If a reset of the device was to blame, everything is
    /// under way again when this returns; otherwise the ring has failed, and all is done about it.
    #[cold]
    fn after_timeout(&mut self, slot: Slot, why: TimedOut, retries: u32) -> Result<(), DmaError> {
        if retries < RETRIES_MAX && self.is_disturbed(slot) {
            // What is staged before the reset has ended would be lost, too; and where a clock stands
            // still, nothing else lets it end.
            self.links.requests.let_pass(&*self.links.sched);
            if self.stage_again(slot, why).is_ok() {
                return Ok(());
            }
        }
        self.fail_ring(slot, why);
        self.forget(slot);
        Err(why.into())
    }

    /// Whether a reset has disturbed the batch in a context, and this generation cares.
    fn is_disturbed(&self, slot: Slot) -> bool {
        let links = self.links;
        match self.ring.context(slot) {
            Context::InFlight(batch) if links.profile.retry_memcpy => {
                links.resets.cover(batch.started)
            }
            _ => false,
        }
    }

    /// Sets the queue up afresh and stages all that was under way again, the oldest batch first.
    /// (The reference stages the one that was waited for, and its successor.)
    ///
    /// The marker words stay: one that an engine still writes for the lost life of a batch says what
    /// is true, since all bytes of that batch were moved before it.
    fn stage_again(&mut self, culprit: Slot, why: TimedOut) -> Result<(), DmaError> {
        let mut lost = self.under_way();
        lost.sort_unstable_by_key(|(_, batch)| batch.first);
        self.tell_failed(&lost, Some(culprit), why);
        self.set_up_afresh();
        for (slot, batch) in lost {
            let batch = self.announce(slot, batch)?;
            self.turn(slot, Turn::StagedAgain(batch));
        }
        Ok(())
    }

    /// All that is under way is lost, and the queue is set up afresh.
    fn fail_ring(&mut self, culprit: Slot, why: TimedOut) {
        self.lose(Some(culprit), why);
        self.ring.markers.move_on();
        self.ring.failure = Some(why);
        self.lane.count_failure();
        self.set_up_afresh();
    }

    /// Stops the queue, if it has anything to do, and loses that.
    fn stop_and_lose(&mut self) {
        let why = TimedOut {
            queue: self.ring.pair.queue(),
            reason: NotCompleted::Stopped,
        };
        if !self.under_way().is_empty() {
            self.ring.pair.stop(&*self.links.port);
        }
        self.lose(None, why);
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
    }

    pub(super) fn ring_mut(&mut self) -> &mut H2tRing {
        &mut self.ring
    }

    /// What the engine has been given and not completed. A batch of 0 bytes is not among it.
    fn under_way(&self) -> Vec<(Slot, Batch)> {
        let in_flight = |slot| match self.ring.context(slot) {
            Context::InFlight(batch) if batch.pairs > 0 => Some((slot, batch)),
            _ => None,
        };
        Slot::ALL.into_iter().filter_map(in_flight).collect()
    }

    fn lose(&mut self, culprit: Option<Slot>, why: TimedOut) {
        let lost = self.under_way();
        self.tell_failed(&lost, culprit, why);
        for (slot, _) in lost {
            self.turn(slot, Turn::Lost(why));
        }
    }

    fn tell_failed(&self, lost: &[(Slot, Batch)], culprit: Option<Slot>, why: TimedOut) {
        for (slot, batch) in lost {
            let failed = Event::BatchFailed {
                context: slot.number(),
                reason: if Some(*slot) == culprit {
                    why.reason
                } else {
                    NotCompleted::Stopped
                },
            };
            self.tell(batch.by, &failed);
        }
    }

    fn set_up_afresh(&mut self) {
        self.ring.pair.reset(&*self.links.port);
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

    #[inline(always)]
    fn turn(&mut self, slot: Slot, turn: Turn) {
        let context = &mut self.ring.contexts[slot.index()];
        let next = context.after(turn);
        debug_assert!(next.is_some(), "{turn:?} in {context:?}");
        if let Some(next) = next {
            *context = next;
        }
        if !matches!(turn, Turn::Staged(_) | Turn::StagedAgain(_)) {
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
