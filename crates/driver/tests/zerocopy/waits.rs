//! How long zero copies are waited for, how much of them at once, and since when.

use glia_abi::arch::Arch;
use glia_abi::fault::{FaultKind, FaultRule, Trigger};
use glia_abi::port::Budget;
use glia_abi::sched::{Micros, Tick};
use glia_driver::dma::zerocopy::ZeroCopyLimits;
use glia_driver::dma::{DmaError, Platform};

use crate::rig::{Plan, Rig, part, pattern};
use crate::watch::{Answer, Seen};

/// As if another batch were behind it: the first look comes at once.
fn at_once(following: u64) -> Budget {
    Budget {
        first: Micros(1),
        following: Micros(following),
    }
}

/// The budgets of a wait and of looks for 256 KiB: four descriptors and the marker.
#[test]
fn both_kinds_are_waited_for_as_if_another_one_were_behind() {
    // Four times the time of a descriptor, a hundred times over, and 100 looks for each.
    let stretch = 100_000;
    let cases = [
        (Arch::V2, Platform::Hardware, 159_900),
        (Arch::V3, Platform::Hardware, 79_900),
        (Arch::V4, Platform::Hardware, 79_900),
        (Arch::V3, Platform::Qemu, 79_900 * stretch),
        (Arch::V3, Platform::Emulator, 79_900 * stretch),
    ];
    for (arch, platform, following) in cases {
        let rig = Rig::with(Plan {
            platform,
            ..Plan::of(arch)
        });
        rig.completions();
        let source = rig.buffer(&pattern(262_144, 1));
        rig.watch.take();
        let ops = [part(&source, 0, 262_144, 0)];
        rig.caller(&mut [], |caller| {
            rig.dma.zero_copy(caller, &rig.copy(true, &ops))
        })
        .unwrap();
        rig.begin_ops(true, &ops, 1).unwrap();
        let (mut waits, mut looks) = (Vec::new(), Vec::new());
        for seen in rig.watch.take() {
            match seen {
                Seen::Waited(budget) => waits.push(budget),
                Seen::Looked(_, budget) => looks.push(budget),
                _ => {}
            }
        }
        looks.dedup();
        let expected = [at_once(following)];
        assert_eq!(waits, expected, "{arch} {platform:?}");
        assert_eq!(looks, expected, "{arch} {platform:?}");
    }
}

/// A ring takes 1,023 contexts, of one request or of many.
#[test]
fn a_ring_takes_as_many_contexts_as_the_reference() {
    let limits = ZeroCopyLimits::default();
    assert_eq!((limits.contexts, limits.pinned_pages), (1024, 524_288));
    let rig = Rig::new(Arch::V3);
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(100, 1));
    let ops = [part(&source, 0, 4, 0); 1024];
    let refused = rig.begin_ops(true, &ops, 1).unwrap_err();
    assert!(matches!(
        refused,
        DmaError::NoContexts {
            contexts: 1024,
            free: 1023,
            ..
        }
    ));
    rig.begin_ops(true, &ops[1..], 2).unwrap();
    assert_eq!(completions.all(), [(2, 0)]);
}

/// An operation over the budget is not pinned as a whole, as one within it is.
#[test]
fn an_asynchronous_operation_is_pinned_at_once_only_if_all_of_it_fits() {
    for (pinned_pages, pins) in [(128, 1), (127, 2)] {
        let rig = Rig::with(Plan {
            limits: ZeroCopyLimits {
                pinned_pages,
                ..ZeroCopyLimits::default()
            },
            ..Plan::of(Arch::V3)
        });
        let mut completions = rig.completions();
        // Two contexts of 64 pages.
        let source = rig.buffer(&pattern(524_288, 1));
        rig.watch.take();
        rig.begin(true, &source, 1).unwrap();
        let unpinned = rig.watch.take();
        let unpinned = unpinned.iter().filter(|&&seen| seen == Seen::Unpinned);
        assert_eq!(unpinned.count(), pins, "{pinned_pages} pages");
        assert_eq!(completions.all(), [(1, 0)]);
    }
}

/// Since when the worker has waited, by its latest look.
fn waits_since(rig: &Rig) -> Tick {
    let since = |seen| match seen {
        Seen::Looked(since, _) => Some(since),
        _ => None,
    };
    let looks: Vec<_> = rig.watch.take().into_iter().filter_map(since).collect();
    *looks.last().unwrap()
}

/// A rig whose first batch has its marker after 10 ms, which is within its time.
fn slow() -> Rig {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V3)
    });
    rig.completions();
    let delay = Micros(10_000);
    let late = FaultRule {
        trigger: Trigger::nth(1),
        ..FaultRule::new(FaultKind::LateMarker { delay })
    };
    rig.faults.add(late).unwrap();
    rig
}

/// A process that keeps a ring busy does not keep its failure from being seen.
#[test]
fn requests_that_come_meanwhile_do_not_put_off_the_end_of_a_wait() {
    let rig = slow();
    let source = rig.buffer(&pattern(5000, 1));
    rig.begin(true, &source, 1).unwrap();
    let began = waits_since(&rig);
    for sequence in 2..5 {
        rig.pass(Micros(1_000));
        rig.begin(true, &source, sequence).unwrap();
        assert_eq!(waits_since(&rig), began);
    }
}

/// Each batch has the whole of its time when it is its turn.
#[test]
fn the_wait_begins_anew_with_the_next_batch() {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V3)
    });
    let mut completions = rig.completions();
    let late = FaultKind::LateMarker { delay: Micros(300) };
    rig.faults.add(FaultRule::new(late)).unwrap();
    let source = rig.buffer(&pattern(5000, 1));
    rig.begin(true, &source, 1).unwrap();
    rig.begin(true, &source, 2).unwrap();
    let first = waits_since(&rig);
    while completions.take().is_none() {
        rig.pass(Micros(1));
    }
    assert!(waits_since(&rig).micros() >= first.micros() + 300);
}

#[test]
fn the_wait_begins_anew_when_a_batch_is_staged_again() {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V2)
    });
    rig.completions();
    rig.dma.reset_began();
    let source = rig.buffer(&pattern(262_144, 1));
    rig.begin(true, &source, 1).unwrap();
    let first = waits_since(&rig);
    rig.pass(Micros(5));
    // The kick of another request makes the worker look.
    rig.watch.script(Answer::TimedOut, 1);
    rig.begin(true, &source, 2).unwrap();
    assert_eq!(waits_since(&rig).micros(), first.micros() + 5);
}
