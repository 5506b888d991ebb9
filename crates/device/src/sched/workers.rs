//! The table of workers that the threaded and the virtual mode share: where each is, and what that
//! makes of a kick, a wake, or the end of a step.
//!
//! ```text
//!   Idle ── kick ──► Runnable ── begin ──► Stepping ── settle ──┬► Runnable    Again, or overtaken
//!                        ▲                  kicked? woken?      ├► Resting     At, On
//!                        └── wake, time has come, kick of At ────┴► Idle
//! ```
//!
//! **Invariant.** A worker is stepped by one thread at a time, and what comes during its step is
//! remembered until the step ends. Whoever is made runnable is handed to the caller once, who
//! queues it as the mode does.
//!
//! **Locks.** None: the table lies within the mode's own mutex. [`step`] is called without it.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use glia_abi::handle::WorkerId;
use glia_abi::sched::{Step, Tick, WaitOn, Worker};

thread_local! {
    /// This thread is in a step.
    static IN_STEP: Cell<bool> = const { Cell::new(false) };
}

/// All workers of a scheduler, by number.
#[derive(Default)]
pub(super) struct Workers {
    slots: Vec<Slot>,
    /// Who rests until a key is woken.
    on: BTreeMap<WaitOn, Vec<WorkerId>>,
    stepping: Vec<WorkerId>,
}

struct Slot {
    /// None when it was found dropped.
    worker: Option<Weak<dyn Worker>>,
    phase: Phase,
}

enum Phase {
    Idle,
    Runnable,
    Stepping {
        kicked: bool,
        /// Keys that were woken meanwhile.
        woken: Vec<WaitOn>,
    },
    /// Until its time has come, or it is kicked.
    Due,
    /// Until its key is woken. It will find the work of a kick then.
    Resting,
}

/// Where a worker goes after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// To be stepped again.
    Runnable,
    /// To be handed to [`Workers::is_due`] when this time has come.
    Due(Tick),
    /// Until somebody kicks it or wakes its key.
    Rests,
}

impl Workers {
    /// Makes a worker known.
    pub(super) fn add(&mut self, worker: Weak<dyn Worker>) -> WorkerId {
        // CAST: workers are queues and handlers, thousands of a machine.
        let id = WorkerId::new(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        self.slots.push(Slot {
            worker: Some(worker),
            phase: Phase::Idle,
        });
        id
    }

    /// It has work. Says whether it is runnable from now on; if it was to be handed to
    /// [`is_due`](Self::is_due), it is no longer.
    pub(super) fn kick(&mut self, id: WorkerId) -> bool {
        let Some(slot) = self.slots.get_mut(id.index()) else {
            return false;
        };
        match &mut slot.phase {
            Phase::Idle | Phase::Due => {
                slot.phase = Phase::Runnable;
                true
            }
            Phase::Stepping { kicked, .. } => {
                *kicked = true;
                false
            }
            Phase::Runnable | Phase::Resting => false,
        }
    }

    /// A key is woken. Gives those who are runnable from now on, in the order of their coming to
    /// rest.
    pub(super) fn wake(&mut self, on: WaitOn) -> Vec<WorkerId> {
        for id in &self.stepping {
            if let Phase::Stepping { woken, .. } = &mut self.slots[id.index()].phase {
                woken.push(on);
            }
        }
        let woken = self.on.remove(&on).unwrap_or_default();
        for id in &woken {
            self.slots[id.index()].phase = Phase::Runnable;
        }
        woken
    }

    /// The time of a worker has come: it is runnable from now on.
    pub(super) fn is_due(&mut self, id: WorkerId) {
        self.slots[id.index()].phase = Phase::Runnable;
    }

    /// Whether a wake of any key could concern a worker.
    pub(super) fn mind_wakes(&self) -> bool {
        !self.stepping.is_empty() || !self.on.is_empty()
    }

    /// Whether somebody is in a step.
    pub(super) fn are_stepping(&self) -> bool {
        !self.stepping.is_empty()
    }

    /// Takes a runnable worker for a step; none if it has been dropped.
    pub(super) fn begin(&mut self, id: WorkerId) -> Option<Arc<dyn Worker>> {
        let slot = &mut self.slots[id.index()];
        let worker = slot.worker.as_ref().and_then(Weak::upgrade);
        if worker.is_none() {
            slot.worker = None;
            slot.phase = Phase::Idle;
            return None;
        }
        slot.phase = Phase::Stepping {
            kicked: false,
            woken: Vec::new(),
        };
        self.stepping.push(id);
        worker
    }

    /// Puts a worker where its step said.
    pub(super) fn settle(&mut self, id: WorkerId, next: Step, now: Tick) -> Settled {
        self.stepping.retain(|stepping| *stepping != id);
        let slot = &mut self.slots[id.index()];
        let (was_kicked, woken) = match std::mem::replace(&mut slot.phase, Phase::Runnable) {
            Phase::Stepping { kicked, woken } => (kicked, woken),
            Phase::Idle | Phase::Runnable | Phase::Due | Phase::Resting => (false, Vec::new()),
        };
        match next {
            Step::Again => Settled::Runnable,
            Step::At(tick) if was_kicked || tick <= now => Settled::Runnable,
            Step::At(tick) => {
                slot.phase = Phase::Due;
                Settled::Due(tick)
            }
            Step::On(key) if woken.contains(&key) => Settled::Runnable,
            Step::On(key) => {
                slot.phase = Phase::Resting;
                self.on.entry(key).or_default().push(id);
                Settled::Rests
            }
            Step::Idle if was_kicked => Settled::Runnable,
            Step::Idle => {
                slot.phase = Phase::Idle;
                Settled::Rests
            }
        }
    }
}

/// Whether the caller is a step. Within one nobody waits, and no other step begins.
pub(super) fn is_in_step() -> bool {
    IN_STEP.get()
}

/// Runs one step. A worker that panics is idle afterwards, and its panic is handed out.
///
/// The reference is let go here: it may be the last one, and what it owns may come back to the
/// scheduler.
pub(super) fn step(worker: Arc<dyn Worker>, now: Tick) -> (Step, Option<Box<dyn Any + Send>>) {
    let outer = IN_STEP.replace(true);
    // A worker that panicked is as whole as one whose thread has died: its own locks say so.
    let stepped = catch_unwind(AssertUnwindSafe(move || worker.step(now)));
    IN_STEP.set(outer);
    match stepped {
        Ok(next) => (next, None),
        Err(payload) => (Step::Idle, Some(payload)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Worker for Nothing {
        fn step(&self, _now: Tick) -> Step {
            Step::Idle
        }
    }

    const NOW: Tick = Tick(1_000);

    /// A table with one worker in a step.
    fn stepping() -> (Workers, WorkerId, Arc<dyn Worker>) {
        let mut workers = Workers::default();
        let worker: Arc<dyn Worker> = Arc::new(Nothing);
        let id = workers.add(Arc::downgrade(&worker));
        assert!(workers.kick(id));
        assert!(workers.begin(id).is_some());
        (workers, id, worker)
    }

    #[test]
    fn a_kick_makes_a_worker_runnable_that_is_idle_or_rests_until_a_time() {
        let (mut workers, id, _worker) = stepping();
        assert!(!workers.kick(id));
        assert_eq!(workers.settle(id, Step::Idle, NOW), Settled::Runnable);
        assert!(!workers.kick(id));
        assert!(workers.begin(id).is_some());
        assert_eq!(
            workers.settle(id, Step::At(Tick(1_001)), NOW),
            Settled::Due(Tick(1_001))
        );
        assert!(workers.kick(id));
        assert!(workers.begin(id).is_some());
        assert_eq!(workers.settle(id, Step::On(WaitOn(1)), NOW), Settled::Rests);
        assert!(!workers.kick(id));
    }

    #[test]
    fn a_time_that_has_come_is_no_rest() {
        let (mut workers, id, _worker) = stepping();
        assert_eq!(workers.settle(id, Step::At(NOW), NOW), Settled::Runnable);
    }

    #[test]
    fn a_wake_of_the_key_during_the_step_counts_and_of_another_does_not() {
        let (mut workers, id, _worker) = stepping();
        assert!(workers.wake(WaitOn(7)).is_empty());
        assert_eq!(
            workers.settle(id, Step::On(WaitOn(7)), NOW),
            Settled::Runnable
        );
        let (mut workers, id, _worker) = stepping();
        assert!(workers.wake(WaitOn(8)).is_empty());
        assert_eq!(workers.settle(id, Step::On(WaitOn(7)), NOW), Settled::Rests);
        assert!(workers.mind_wakes());
        assert_eq!(workers.wake(WaitOn(7)), [id]);
        assert!(!workers.mind_wakes());
    }
}
