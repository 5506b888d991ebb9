//! The worker's flags: a request that comes when it has nothing left to do is not forgotten.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use glia_abi::arch::Arch;
use glia_abi::handle::WorkerId;
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};
use glia_abi::transport::UserBuffer;
use glia_device::InlineSched;

use crate::rig::{Plan, Rig, pattern};
use crate::watch::Seen;

/// A process that asks for more at the worst moment: when the worker has said that no queue needs
/// to kick it, and has just given the ring back.
#[derive(Default)]
struct Intruder {
    sched: InlineSched,
    rig: OnceLock<Weak<Rig>>,
    source: OnceLock<Arc<dyn UserBuffer>>,
    has_come: AtomicBool,
}

impl Intruder {
    fn look(&self) {
        let Some(rig) = self.rig.get().and_then(Weak::upgrade) else {
            return;
        };
        let is_moment = rig.watch.last() == Some(Seen::Unattended);
        if is_moment && !self.has_come.swap(true, Ordering::Relaxed) {
            rig.begin(true, self.source.get().unwrap(), 2).unwrap();
        }
    }
}

impl Sched for Intruder {
    fn now(&self) -> Tick {
        self.sched.now()
    }

    fn wait_on(&self) -> WaitOn {
        self.sched.wait_on()
    }

    /// A lock that is given back wakes whoever waits for it.
    fn wake(&self, on: WaitOn) {
        self.sched.wake(on);
        self.look();
    }

    fn pause(&self) {
        self.sched.pause();
    }

    fn spawn(&self, worker: Weak<dyn Worker>) -> WorkerId {
        self.sched.spawn(worker)
    }

    fn kick(&self, worker: WorkerId) {
        self.sched.kick(worker);
    }

    fn block(&self, on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool {
        self.sched.block(on, poll, within)
    }

    fn gives_up_at_once(&self) -> bool {
        self.sched.gives_up_at_once()
    }
}

#[test]
fn a_request_that_comes_as_the_worker_lets_go_of_the_ring_is_done() {
    let intruder = Arc::new(Intruder::default());
    let rig = Arc::new(Rig::with(Plan {
        timing: true,
        sched: Arc::clone(&intruder) as Arc<dyn Sched>,
        ..Plan::of(Arch::V3)
    }));
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(5000, 1));
    rig.begin(true, &source, 1).unwrap();
    intruder.source.set(source).ok().unwrap();
    intruder.rig.set(Arc::downgrade(&rig)).unwrap();
    rig.watch.take();
    rig.pass(Micros(1_000_000));
    assert!(intruder.has_come.load(Ordering::Relaxed));
    assert_eq!(completions.all(), [(1, 0), (2, 0)]);
    rig.assert_at_rest();
}
