//! When a request has ended: nothing moves any more, and nobody else has paid for it.

use std::sync::{Arc, Mutex};

use glia_abi::arch::Arch;
use glia_abi::completion::{Consumer, SIZE_BYTES};
use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::fault::{FaultKind, FaultRule, Trigger};
use glia_abi::handle::{CoreId, Pid};
use glia_abi::sched::{Micros, Sched};
use glia_abi::transport::Caller;
use glia_device::{PinLayout, VirtualSched};
use glia_driver::dma::zerocopy::{Reply, ZeroCopy, ZeroCopyLimits};

use crate::rig::{PID, Plan, Rig, part, pattern, whole};

const SIZE: usize = 2_000_000;

/// An engine whose writes to HBM may come long after a marker.
fn weak(arch: Arch, seed: u64) -> Rig {
    Rig::with(Plan {
        timing: true,
        weak: Some(seed),
        pins: PinLayout::Scattered { seed },
        ..Plan::of(arch)
    })
}

fn fault(kind: FaultKind, nth: u64) -> FaultRule {
    FaultRule {
        trigger: Trigger::nth(nth),
        ..FaultRule::new(kind)
    }
}

fn assert_still(rig: &Rig, what: &str) {
    let at_the_end = rig.hbm_bytes(0, SIZE);
    rig.pass(Micros(1_000_000));
    assert!(rig.hbm_bytes(0, SIZE) == at_the_end, "{what}");
    rig.assert_at_rest();
}

#[test]
fn nothing_is_written_after_a_write_that_failed_half_way() {
    for arch in Arch::ALL {
        for seed in 0..6 {
            let rig = weak(arch, seed);
            rig.faults.add(fault(FaultKind::FailedPin, 3)).unwrap();
            let refused = rig.write(0, &pattern(SIZE, 1)).unwrap_err();
            assert_eq!(refused.errno(), Errno::ENOMEM);
            assert_still(&rig, &format!("{arch}, seed {seed}"));
        }
    }
}

#[test]
fn nothing_is_written_after_the_completion_of_a_request_that_was_cut_short() {
    for arch in Arch::ALL {
        for seed in 0..6 {
            let rig = weak(arch, seed);
            let mut completions = rig.completions();
            let source = rig.buffer(&pattern(SIZE, 1));
            rig.faults.add(fault(FaultKind::ExhaustedRing, 3)).unwrap();
            rig.begin(true, &source, 1).unwrap();
            let mut ends = completions.all();
            while ends.is_empty() {
                rig.pass(Micros(1));
                ends = completions.all();
            }
            assert_eq!(ends, [(1, i64::from(Errno::EBUSY.ret()))]);
            assert_still(&rig, &format!("{arch}, seed {seed}"));
        }
    }
}

/// More than the ring holds, so that some of it was never the engine's.
#[test]
fn nothing_is_written_after_the_process_has_gone() {
    for arch in Arch::ALL {
        for seed in 0..2 {
            let rig = weak(arch, seed);
            let mut completions = rig.completions();
            let source = rig.buffer(&pattern(6_000_000, 1));
            let ops: Vec<_> = (0..12)
                .map(|number| part(&source, number * 8192, 5_000_000, 0))
                .collect();
            rig.begin_ops(true, &ops, 1).unwrap();
            rig.heard.take();
            rig.dma.settle(PID);
            let staged = rig.heard.take().into_iter();
            let staged = staged.filter(|event| matches!(event, Event::BatchStaged { .. }));
            assert!(staged.count() <= 1, "no more than a fence");
            assert_still(&rig, &format!("{arch}, seed {seed}"));
            assert_eq!(completions.all(), [(1, i64::from(Errno::EINTR.ret()))]);
            assert_eq!(rig.completions().all(), [], "nobody takes them for his own");
        }
    }
}

/// Numbers of requests begin anew in each process.
#[test]
fn who_comes_next_does_not_find_what_a_process_that_has_gone_left_untaken() {
    let rig = Rig::new(Arch::V3);
    let source = rig.buffer(&pattern(100_000, 1));
    let other = Pid::new(8);
    let begin_as = |pid, sequence| {
        rig.caller(&mut [], |caller| {
            let ops = [whole(&source)];
            let copy = rig.copy(true, &ops);
            let caller = Caller { pid, ..*caller };
            let reply = Reply {
                sequence,
                context: sequence + 1000,
            };
            rig.dma.zero_copy_async(&caller, &copy, reply, None)
        })
    };
    let mut first = rig.completions();
    for sequence in 1..=4 {
        begin_as(PID, sequence).unwrap();
    }
    assert_eq!(first.take().map(|entry| entry.sequence), Some(1));
    rig.dma.settle(PID);
    let mut second = rig.completions();
    assert_eq!(second.all(), []);
    begin_as(other, 1).unwrap();
    assert_eq!(second.all(), [(1, 0)]);
    // What is the other's stays his.
    begin_as(PID, 5).unwrap();
    begin_as(other, 6).unwrap();
    rig.dma.settle(PID);
    assert_eq!(second.all(), [(5, 0), (6, 0)]);
}

/// A ring that somebody holds for long is not what others wait for.
#[test]
fn a_ring_that_is_held_does_not_keep_the_worker_from_the_others() {
    let sched = Arc::new(VirtualSched::new(1));
    let rig = Rig::with(Plan {
        timing: true,
        sched: Arc::clone(&sched) as Arc<dyn Sched>,
        ..Plan::of(Arch::V3)
    });
    let other = CoreId::new(4);
    let queue = rig.completions_of(other);
    let source = rig.buffer(&pattern(100_000, 1));
    rig.completions();
    rig.faults.add(fault(FaultKind::LostMarker, 1)).unwrap();
    let took = Mutex::new(Micros(0));
    let holder = || {
        rig.begin(true, &source, 1).unwrap();
        // Waits for the marker that is lost, with the ring in its hands.
        let ops = [part(&source, 0, 9000, 4 << 20)];
        let copy = rig.copy(true, &ops);
        let copied = rig.caller(&mut [], |caller| rig.dma.zero_copy(caller, &copy));
        assert_eq!(copied.unwrap_err().errno(), Errno::ETIMEDOUT);
    };
    let neighbour = || {
        rig.pass(Micros(200));
        let ops = [part(&source, 0, 100_000, 1 << 20)];
        let copy = ZeroCopy {
            core: other,
            ..rig.copy(true, &ops)
        };
        let reply = Reply {
            sequence: 5,
            context: 0,
        };
        let began = rig.sched.now();
        rig.caller(&mut [], |caller| {
            rig.dma.zero_copy_async(caller, &copy, reply, None)
        })
        .unwrap();
        let words = queue.words(0, SIZE_BYTES).unwrap();
        let mut consumer = Consumer::attach(words).unwrap();
        while consumer.take(words).is_none() {
            rig.pass(Micros(10));
        }
        *took.lock().unwrap() = Micros(rig.sched.now().micros() - began.micros());
    };
    sched
        .run(vec![Box::new(holder), Box::new(neighbour)])
        .unwrap();
    // The holder waits for 40 ms.
    let took = *took.lock().unwrap();
    assert!(took < Micros(1_000), "{took:?}");
}

fn tight(pinned_pages: u64) -> Plan {
    Plan {
        limits: ZeroCopyLimits {
            pinned_pages,
            ..ZeroCopyLimits::default()
        },
        timing: true,
        ..Plan::of(Arch::V3)
    }
}

#[test]
fn never_more_is_pinned_than_the_budget_allows() {
    let rig = Rig::with(tight(256));
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(1 << 20, 1));
    for sequence in 1..=4 {
        rig.begin(true, &source, sequence).unwrap();
        assert!(rig.host.pinned_bytes() <= 256 * 4096);
    }
    let mut ends = Vec::new();
    while ends.len() < 4 {
        rig.pass(Micros(1));
        let (pinned_bytes, counted) = (rig.host.pinned_bytes(), rig.queue().pinned_pages);
        assert!(pinned_bytes <= 256 * 4096, "{pinned_bytes}");
        assert!(
            counted * 4096 >= pinned_bytes,
            "{counted} for {pinned_bytes}"
        );
        ends.extend(completions.all());
    }
    assert_eq!(ends, [(1, 0), (2, 0), (3, 0), (4, 0)]);
    rig.assert_at_rest();
}

/// Each by itself fits, both do not: the second one is pinned later.
#[test]
fn the_operations_of_a_request_count_together() {
    let rig = Rig::with(tight(100));
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(262_144, 1));
    let ops = [whole(&source), part(&source, 0, 262_144, 1 << 20)];
    rig.begin_ops(true, &ops, 1).unwrap();
    assert!(rig.host.pinned_bytes() <= 100 * 4096);
    rig.write(2 << 20, &[1; 100]).unwrap();
    assert_eq!(completions.all(), [(1, 0)]);
    rig.assert_at_rest();
}

#[test]
fn a_request_that_never_fits_the_budget_is_the_one_that_fails() {
    let sched = Arc::new(VirtualSched::new(1));
    let rig = Rig::with(Plan {
        sched: Arc::clone(&sched) as Arc<dyn Sched>,
        ..tight(63)
    });
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(262_144, 1));
    let work = || {
        // 64 pages, and before the worker has seen it, a synchronous one of a page.
        rig.begin(true, &source, 1).unwrap();
        let ops = [part(&source, 0, 10, 0)];
        let copy = rig.copy(true, &ops);
        rig.caller(&mut [], |caller| rig.dma.zero_copy(caller, &copy))
            .unwrap();
    };
    sched.run(vec![Box::new(work)]).unwrap();
    let no_memory = i64::from(Errno::ENOMEM.ret());
    assert_eq!(completions.all(), [(1, no_memory)]);
    rig.assert_at_rest();
}

#[test]
fn requests_that_were_refused_leave_their_places_to_others() {
    let rig = Rig::new(Arch::V3);
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(100, 1));
    rig.faults
        .add(FaultRule::new(FaultKind::FailedPin))
        .unwrap();
    for sequence in 1..=1100 {
        assert!(rig.begin(true, &source, sequence).is_err());
    }
    rig.faults.clear();
    rig.begin(true, &source, 1101).unwrap();
    assert_eq!(completions.all(), [(1101, 0)]);
}

/// 4,096 contexts of 64 scattered pages: the ring holds 125 of them.
#[test]
fn a_request_with_more_descriptors_than_the_ring_waits_for_room() {
    let rig = Rig::with(Plan {
        timing: true,
        pins: PinLayout::Scattered { seed: 1 },
        ..Plan::of(Arch::V3)
    });
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(8 << 20, 1));
    let ops = [whole(&source); 6];
    rig.begin_ops(true, &ops, 1).unwrap();
    assert!(rig.queue().available < 65, "{}", rig.queue().available);
    // And so does a synchronous one, behind it.
    let copy = rig.copy(true, &ops);
    rig.caller(&mut [], |caller| rig.dma.zero_copy(caller, &copy))
        .unwrap();
    assert_eq!(completions.all(), [(1, 0)]);
    assert!(rig.hbm_bytes(0, 8 << 20) == pattern(8 << 20, 1));
    rig.assert_at_rest();
}

/// A synchronous copy fills the ring up to 65 free descriptors, and then waits until 521 are.
#[test]
fn a_synchronous_copy_waits_from_one_threshold_to_the_other() {
    let rig = Rig::with(Plan {
        timing: true,
        pins: PinLayout::Scattered { seed: 1 },
        ..Plan::of(Arch::V3)
    });
    let source = rig.buffer(&pattern(8 << 20, 1));
    let ops = [whole(&source); 6];
    rig.heard.take();
    let copy = rig.copy(true, &ops);
    rig.caller(&mut [], |caller| rig.dma.zero_copy(caller, &copy))
        .unwrap();
    // Free descriptors after each event, with the marker of each batch.
    let (mut free, mut lowest, mut rises) = (8176_u32, u32::MAX, Vec::new());
    let mut has_waited = None;
    for event in rig.heard.take() {
        match event {
            Event::BatchStaged { data_descs, .. } => {
                rises.extend(has_waited.take().map(|()| free));
                free -= data_descs + 1;
                lowest = lowest.min(free);
            }
            Event::Acknowledged {
                direction: glia_abi::udma::Direction::Tx,
                descs,
            } => {
                free += descs;
                has_waited = Some(());
            }
            _ => {}
        }
    }
    assert!(lowest < 66, "{lowest}");
    assert!(rises.len() > 3, "{rises:?}");
    // One context may have been pinned meanwhile and goes first.
    assert!(rises.iter().all(|&free| free > 520), "{rises:?}");
}
