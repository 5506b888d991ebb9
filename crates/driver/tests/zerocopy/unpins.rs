//! When pins go: never before the queue that may still use them has been stopped.

use std::panic::{AssertUnwindSafe, catch_unwind};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::fault::{FaultKind, FaultRule, Trigger};
use glia_abi::udma::Direction;

use crate::rig::{PID, Plan, Rig, pattern};
use crate::watch::{Answer, Seen};

/// Two contexts of zero copies.
const SIZE: usize = 400_000;

/// A rig whose engine takes its time, so that what it was given is still its own.
fn slow(arch: Arch) -> Rig {
    Rig::with(Plan {
        timing: true,
        ..Plan::of(arch)
    })
}

/// `pins` of them went, and each after both sides of the queue had been reset.
fn assert_stopped_first(rig: &Rig, pins: usize, what: &str) {
    let seen = rig.watch.take();
    let place = |of: Seen| seen.iter().position(|&seen| seen == of);
    let unpinned = seen.iter().filter(|&&seen| seen == Seen::Unpinned);
    assert_eq!(unpinned.count(), pins, "{what}");
    let first_unpinned = place(Seen::Unpinned).unwrap();
    for direction in Direction::BOTH {
        let stopped = place(Seen::Stopped(direction)).expect("the queue is stopped");
        assert!(stopped < first_unpinned, "{what}, {direction:?}: {seen:?}");
    }
    assert_eq!(rig.host.pinned_bytes(), 0);
}

#[test]
fn a_worker_that_gives_up_stops_the_queue_before_it_unpins() {
    for arch in Arch::ALL {
        let rig = slow(arch);
        let mut completions = rig.completions();
        let source = rig.buffer(&pattern(SIZE, 1));
        rig.watch.script(Answer::TimedOut, 1);
        rig.watch.take();
        rig.begin(true, &source, 1).unwrap();
        assert_eq!(completions.all(), [(1, i64::from(Errno::ETIMEDOUT.ret()))]);
        // One pin, of which both contexts hold a part.
        assert_stopped_first(&rig, 1, &arch.to_string());
    }
}

#[test]
fn a_synchronous_copy_that_gives_up_stops_the_queue_before_it_unpins() {
    for arch in Arch::ALL {
        let rig = slow(arch);
        rig.write(0, &[1; 4]).unwrap();
        rig.watch.script(Answer::TimedOut, 1);
        rig.watch.take();
        let failed = rig.write(0, &vec![1; 100_000]).unwrap_err();
        assert_eq!(failed.errno(), Errno::ETIMEDOUT);
        assert_stopped_first(&rig, 1, &arch.to_string());
    }
}

#[test]
fn a_copy_that_is_unwound_stops_the_queue_before_it_unpins() {
    for arch in Arch::ALL {
        let rig = slow(arch);
        rig.write(0, &[1; 4]).unwrap();
        rig.watch.script(Answer::Unwound, 1);
        rig.watch.take();
        let content = vec![1; 100_000];
        let unwound = catch_unwind(AssertUnwindSafe(|| rig.write(0, &content)));
        assert!(unwound.is_err());
        assert_stopped_first(&rig, 1, &arch.to_string());
        rig.write(0, &content).unwrap();
        rig.assert_at_rest();
    }
}

#[test]
fn a_reset_of_the_core_stops_the_queue_before_it_unpins() {
    for arch in Arch::ALL {
        let rig = slow(arch);
        let mut completions = rig.completions();
        let source = rig.buffer(&pattern(SIZE, 1));
        rig.begin(true, &source, 1).unwrap();
        rig.watch.take();
        rig.dma.reset(PID, 1);
        assert_eq!(completions.all().len(), 1, "{arch}");
        assert_stopped_first(&rig, 1, &arch.to_string());
    }
}

/// Its siblings were the engine's when one could not be staged, and so was a fence.
#[test]
fn a_fence_that_is_refused_stops_the_queue_before_anything_is_unpinned() {
    let rig = slow(Arch::V3);
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(2_000_000, 1));
    let exhausted = FaultRule {
        trigger: Trigger::nth(3),
        ..FaultRule::new(FaultKind::ExhaustedRing)
    };
    rig.faults.add(exhausted).unwrap();
    rig.begin(true, &source, 1).unwrap();
    rig.watch.script(Answer::TimedOut, 1);
    rig.watch.take();
    rig.dma.settle(PID);
    assert_eq!(completions.all().len(), 1);
    assert_stopped_first(&rig, 1, "cut short");
}
