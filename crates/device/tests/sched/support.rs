//! Workers that do as they are told.

use std::sync::{Arc, Mutex};

use glia_abi::handle::WorkerId;
use glia_abi::sched::{Sched, Step, Tick, Worker};

/// Does what it is told, step by step, and remembers when.
pub(crate) struct Scripted {
    steps: Mutex<Vec<Step>>,
    times: Mutex<Vec<Tick>>,
}

impl Scripted {
    /// It will say these, first to last, then that it is idle.
    pub(crate) fn new(mut steps: Vec<Step>) -> Arc<Self> {
        steps.reverse();
        Arc::new(Self {
            steps: Mutex::new(steps),
            times: Mutex::default(),
        })
    }

    pub(crate) fn times_us(&self) -> Vec<u64> {
        let times = self.times.lock().unwrap();
        times.iter().map(|time| time.micros()).collect()
    }
}

impl Worker for Scripted {
    fn step(&self, now: Tick) -> Step {
        self.times.lock().unwrap().push(now);
        self.steps.lock().unwrap().pop().unwrap_or(Step::Idle)
    }
}

pub(crate) fn at_us(us: u64) -> Step {
    Step::At(Tick(us * 1000))
}

/// Makes a worker known.
pub(crate) fn spawn<W: Worker + 'static>(sched: &dyn Sched, worker: &Arc<W>) -> WorkerId {
    let known: Arc<dyn Worker> = Arc::<W>::clone(worker);
    sched.spawn(Arc::downgrade(&known))
}

/// Makes a worker known and kicks it.
pub(crate) fn start<W: Worker + 'static>(sched: &dyn Sched, worker: &Arc<W>) -> WorkerId {
    let id = spawn(sched, worker);
    sched.kick(id);
    id
}

/// Panics in its first step; the message is not told.
pub(crate) struct Breaks(pub(crate) std::sync::atomic::AtomicU32);

impl Worker for Breaks {
    fn step(&self, _now: Tick) -> Step {
        if self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            std::panic::resume_unwind(Box::new("it broke"));
        }
        Step::Idle
    }
}
