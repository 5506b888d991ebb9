//! Copies on a ring that is held: batches staged and completed.

use glia_abi::port::TimedOut;
use glia_abi::sched::Tick;
use glia_abi::udma::MARKER;

use super::DmaError;
use super::budget::{Awaited, budget};
use super::context::{Account, Batch, Context, Slot, Turn, WaitHandle};
use super::failure::UnderWay;
use super::held::{Batching, Held, Staged, announce};
use super::lane::Hold;
use super::split::Run;

impl Held<'_> {
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
        let account = self.account();
        let staged = if run.size_bytes() == 0 {
            Staged {
                pairs: 0,
                first: self.ring.pair.announced(),
                started: Tick(0),
            }
        } else {
            self.refuse_by_order(account, run.data_descs().saturating_add(1))?;
            self.announce(slot, account, run)?
        };
        let run = *run;
        let batch = Batch {
            account,
            run,
            staged,
        };
        self.turn(slot, Turn::Staged(batch));
        Ok(())
    }

    /// Hands a context's batch to the engine. After a refusal the ring is as it was.
    pub(super) fn announce(
        &mut self,
        slot: Slot,
        account: Account,
        run: &Run,
    ) -> Result<Staged, DmaError> {
        let links = self.links;
        let ring = &mut *self.ring;
        let batch = Batching {
            account,
            context: slot.number(),
            size_bytes: run.size_bytes(),
            data_descs: run.data_descs(),
            marker: ring.markers.transfer(links.profile, slot),
            words: ring.markers.words(&*links.host, slot)?,
        };
        announce(links, self.lane, &mut ring.pair, &batch, run.transfers())
    }

    /// Waits for a context's marker and gives the slots back; the context is idle then, also after
    /// an error. `pipelined` if another batch was staged behind it.
    fn complete(&mut self, slot: Slot, pipelined: bool) -> Result<(), DmaError> {
        let links = self.links;
        let Batch {
            account,
            run,
            staged,
        } = self.in_flight(slot)?;
        let pairs = staged.pairs;
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
        self.acknowledge(account, slot.number(), pairs, polls);
        self.turn(slot, Turn::Done);
        Ok(())
    }

    /// The marker of a context did not come, see [`overcome`](Self::overcome). If that does not help
    /// the context is idle.
    #[cold]
    fn after_timeout(&mut self, slot: Slot, why: TimedOut, retries: u32) -> Result<(), DmaError> {
        let started = match self.ring.context(slot) {
            Context::InFlight(batch) => batch.staged.started,
            Context::Idle | Context::Failed { .. } => Tick(0),
        };
        let overcome = self.overcome(UnderWay::Copy(slot), started, why, retries);
        if overcome.is_err() {
            self.forget(slot);
        }
        overcome
    }

    fn not_in_use(&self, handle: WaitHandle) -> DmaError {
        DmaError::NotInUse {
            handle,
            queue: self.ring.pair.queue(),
        }
    }
}
