//! Markers that do not come, pins that are refused, resets.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::fault::{FaultKind, FaultRule, Trigger};
use glia_abi::sched::Micros;

use crate::rig::{PID, Plan, Rig, bytes_of, part, pattern};

fn once(kind: FaultKind, nth: u64) -> FaultRule {
    FaultRule {
        trigger: Trigger::nth(nth),
        ..FaultRule::new(kind)
    }
}

const TIMED_OUT: i64 = -110;
const NO_MEMORY: i64 = -12;
const BUSY: i64 = -16;

#[test]
fn a_marker_that_is_lost_fails_everything_on_the_ring_and_the_next_request_works() {
    for arch in Arch::ALL {
        for timing in [false, true] {
            let rig = Rig::with(Plan {
                timing,
                ..Plan::of(arch)
            });
            let mut completions = rig.completions();
            let source = rig.buffer(&pattern(600_000, 1));
            rig.faults.add(once(FaultKind::LostMarker, 2)).unwrap();
            for sequence in 1..=3 {
                rig.begin(true, &source, sequence).unwrap();
            }
            rig.dma.settle(PID);
            let ends = completions.all();
            assert_eq!(ends.len(), 3, "{arch}: each has one completion");
            assert_eq!(ends[0], (1, TIMED_OUT), "{arch}");
            rig.assert_at_rest();
            rig.begin(true, &source, 4).unwrap();
            rig.dma.settle(PID);
            assert_eq!(completions.all(), [(4, 0)], "{arch}");
            assert!(rig.hbm_bytes(0, 600_000) == pattern(600_000, 1));
            rig.assert_at_rest();
        }
    }
}

#[test]
fn a_stuck_queue_fails_a_synchronous_copy_and_gives_its_pages_back() {
    let rig = Rig::new(Arch::V3);
    let content = pattern(2_000_000, 1);
    rig.faults.add(once(FaultKind::StuckQueue, 3)).unwrap();
    assert_eq!(
        rig.write(0, &content).unwrap_err().errno(),
        Errno::ETIMEDOUT
    );
    rig.assert_at_rest();
    rig.write(0, &content).unwrap();
    assert!(rig.hbm_bytes(0, 2_000_000) == content);
}

#[test]
fn a_pin_that_is_refused_in_the_middle_ends_its_request_alone() {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V3)
    });
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(600_000, 1));
    rig.begin(true, &source, 1).unwrap();
    rig.faults.add(once(FaultKind::FailedPin, 2)).unwrap();
    let content = pattern(2_000_000, 2);
    assert_eq!(rig.write(0, &content).unwrap_err().errno(), Errno::ENOMEM);
    rig.dma.settle(PID);
    assert_eq!(
        completions.all(),
        [(1, 0)],
        "the one before it is not concerned"
    );
    rig.assert_at_rest();
    // At once, if it is refused when the request comes.
    rig.faults.clear();
    rig.faults.add(once(FaultKind::FailedPin, 1)).unwrap();
    let refused = rig.begin(true, &source, 2).unwrap_err();
    assert_eq!(refused.errno(), Errno::ENOMEM);
    assert_eq!(completions.all(), []);
    rig.assert_at_rest();
}

#[test]
fn a_pin_that_is_refused_later_is_told_by_the_completion() {
    let mut plan = Plan {
        timing: true,
        ..Plan::of(Arch::V3)
    };
    plan.limits.pinned_pages = 64;
    let rig = Rig::with(plan);
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(2_000_000, 1));
    rig.faults.add(once(FaultKind::FailedPin, 3)).unwrap();
    rig.begin(true, &source, 1).unwrap();
    rig.begin_ops(true, &[part(&source, 0, 100, 0)], 2).unwrap();
    rig.write(3 << 20, &[1; 10]).unwrap();
    let ends = completions.all();
    assert_eq!(ends.len(), 2);
    assert!(
        ends.contains(&(1, NO_MEMORY)) && ends.contains(&(2, 0)),
        "{ends:?}"
    );
    rig.assert_at_rest();
}

#[test]
fn a_ring_without_room_by_order_ends_the_request_with_busy() {
    let rig = Rig::new(Arch::V3);
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(600_000, 1));
    rig.faults.add(once(FaultKind::ExhaustedRing, 2)).unwrap();
    rig.begin(true, &source, 1).unwrap();
    assert_eq!(completions.all(), [(1, BUSY)]);
    rig.faults.clear();
    rig.faults.add(once(FaultKind::ExhaustedRing, 1)).unwrap();
    assert_eq!(rig.write(0, &[1; 100]).unwrap_err().errno(), Errno::EBUSY);
    rig.assert_at_rest();
}

#[test]
fn planned_bit_flips_are_the_only_wrong_bytes() {
    let rig = Rig::new(Arch::V3);
    let content = pattern(600_000, 1);
    let flip = FaultKind::FlippedBits {
        offset_bytes: 5,
        size_bytes: 2,
        mask: 0x18,
    };
    rig.faults.add(once(flip, 2)).unwrap();
    rig.write(0, &content).unwrap();
    let found = rig.hbm_bytes(0, 600_000);
    let pairs = found.iter().zip(&content).enumerate();
    let wrong: Vec<_> = pairs
        .filter(|(_, (a, b))| a != b)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(wrong.len(), 2);
    assert_eq!(wrong[1], wrong[0] + 1);
}

#[test]
fn a_late_marker_is_waited_for() {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V3)
    });
    let mut completions = rig.completions();
    let late = FaultKind::LateMarker { delay: Micros(300) };
    rig.faults.add(FaultRule::new(late)).unwrap();
    let content = pattern(600_000, 1);
    let source = rig.buffer(&content);
    rig.begin(true, &source, 1).unwrap();
    rig.write(0, &content).unwrap();
    assert_eq!(completions.all(), [(1, 0)]);
    rig.assert_at_rest();
}

/// On V2 a reset of another core makes the engine hang; what it had under way is staged again.
#[test]
fn what_a_reset_of_another_core_disturbs_is_staged_again() {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V2)
    });
    let mut completions = rig.completions();
    let content = pattern(600_000, 1);
    let source = rig.buffer(&content);
    rig.faults
        .add(FaultRule::new(FaultKind::ResetHang))
        .unwrap();
    rig.dma.reset(PID, 1 << 1);
    rig.begin(true, &source, 1).unwrap();
    rig.write(1 << 20, &content).unwrap();
    rig.dma.settle(PID);
    assert_eq!(completions.all(), [(1, 0)]);
    assert!(rig.hbm_bytes(0, 600_000) == content);
    assert!(rig.hbm_bytes(1 << 20, 600_000) == content);
    rig.assert_at_rest();
}

#[test]
fn a_reset_of_the_core_itself_ends_what_was_under_way() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan {
            timing: true,
            ..Plan::of(arch)
        });
        let mut completions = rig.completions();
        let source = rig.buffer(&pattern(3_000_000, 1));
        let target = rig.buffer(&vec![0; 3_000_000]);
        rig.begin(true, &source, 1).unwrap();
        rig.begin(false, &target, 2).unwrap();
        rig.dma.reset(PID, 1);
        let ends = completions.all();
        assert_eq!(ends, [(1, TIMED_OUT), (2, TIMED_OUT)], "{arch}");
        assert_eq!(rig.host.pinned_bytes(), 0);
        let after = bytes_of(&target);
        let refused = rig.begin(true, &source, 3).unwrap_err();
        assert_eq!(refused.errno(), Errno::EPERM, "until the reset has ended");
        rig.dma.await_reset(None, &|| false);
        assert!(after == bytes_of(&target), "nothing is written any more");
        rig.begin(true, &source, 4).unwrap();
        rig.dma.settle(PID);
        assert_eq!(completions.all(), [(4, 0)], "{arch}");
        rig.assert_at_rest();
    }
}
