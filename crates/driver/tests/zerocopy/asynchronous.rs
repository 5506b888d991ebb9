//! Asynchronous zero copies and their completions.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::completion::SIZE_BYTES;
use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::transport::{Lent, user_addr};
use glia_driver::dma::DmaError;
use glia_driver::dma::zerocopy::{ZeroCopyLimits, ZeroCopyOp};

use crate::rig::{PID, Plan, Rig, bytes_of, part, pattern, whole};

#[test]
fn each_request_has_one_completion_with_what_its_caller_gave_it() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let mut completions = rig.completions();
        let content = pattern(700_000, 5);
        let (source, target) = (rig.buffer(&content), rig.buffer(&vec![0; 700_000]));
        rig.begin(true, &source, 41).unwrap();
        rig.begin(false, &target, 42).unwrap();
        assert_eq!(completions.all(), [(41, 0), (42, 0)], "{arch}");
        assert!(bytes_of(&target) == content);
        assert_eq!(completions.all(), []);
        rig.assert_at_rest();
        let posted: Vec<_> = rig
            .heard
            .take()
            .into_iter()
            .filter(|event| matches!(event, Event::CompletionPosted { .. }))
            .collect();
        assert_eq!(posted.len(), 2);
    }
}

#[test]
fn a_request_with_nothing_to_move_ends_in_its_turn() {
    let rig = Rig::new(Arch::V3);
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(300_000, 1));
    rig.begin(true, &source, 1).unwrap();
    rig.begin_ops(true, &[], 2).unwrap();
    rig.begin_ops(true, &[part(&source, 0, 0, 0)], 3).unwrap();
    rig.begin(true, &source, 4).unwrap();
    assert_eq!(completions.all(), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    rig.assert_at_rest();
}

/// An empty last operation loses the completion in the reference.
#[test]
fn an_empty_last_operation_loses_nothing() {
    let rig = Rig::new(Arch::V3);
    let mut completions = rig.completions();
    let content = pattern(300_000, 8);
    let source = rig.buffer(&content);
    let ops = [whole(&source), part(&source, 0, 0, 0)];
    rig.begin_ops(true, &ops, 9).unwrap();
    assert_eq!(completions.all(), [(9, 0)]);
    assert!(rig.hbm_bytes(0, 300_000) == content);
}

/// In the reference a synchronous request ends asynchronous ones without a word.
#[test]
fn synchronous_and_asynchronous_requests_share_a_ring_and_lose_nothing() {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V3)
    });
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(1_000_000, 2));
    let small = pattern(10_000, 3);
    for round in 0..5 {
        rig.begin(true, &source, 10 + round).unwrap();
        rig.write(2 << 20, &small).unwrap();
    }
    let ends: Vec<_> = (10..15).map(|sequence| (sequence, 0)).collect();
    assert_eq!(completions.all(), ends, "each before the write behind it");
    assert!(rig.hbm_bytes(2 << 20, 10_000) == small);
    rig.assert_at_rest();
}

#[test]
fn memory_that_ends_with_the_call_is_a_fault() {
    let rig = Rig::new(Arch::V3);
    let mut completions = rig.completions();
    let lent = pattern(5000, 1);
    let ops = [ZeroCopyOp {
        offset_bytes: 0,
        size_bytes: 5000,
        buffer: user_addr(&lent),
    }];
    let reply = glia_driver::dma::zerocopy::Reply {
        sequence: 1,
        context: 0,
    };
    let refused = rig.caller(&mut [Lent::In(&lent)], |caller| {
        let copy = rig.copy(true, &ops);
        rig.dma.zero_copy_async(caller, &copy, reply, None)
    });
    assert_eq!(refused.unwrap_err().errno(), Errno::EFAULT);
    assert_eq!(completions.all(), [], "what was refused has no completion");
    rig.assert_at_rest();
}

#[test]
fn a_request_with_more_contexts_than_there_is_room_for_is_refused_whole() {
    let rig = Rig::with(Plan {
        limits: ZeroCopyLimits {
            contexts: 8,
            ..ZeroCopyLimits::default()
        },
        ..Plan::of(Arch::V3)
    });
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(8 << 18, 1));
    let refused = rig.begin(true, &source, 1).unwrap_err();
    let DmaError::NoContexts { contexts, free, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!((contexts, free, refused.errno()), (8, 7, Errno::EBUSY));
    rig.begin_ops(true, &[part(&source, 0, 7 << 18, 0)], 2)
        .unwrap();
    assert_eq!(completions.all(), [(2, 0)]);
    // A synchronous one of any size passes through.
    rig.write(0, &pattern(4 << 20, 1)).unwrap();
    rig.assert_at_rest();
}

/// The reference waits for the process with the ring's lock held.
#[test]
fn a_process_that_takes_no_completions_is_refused_and_stops_nobody() {
    let rig = Rig::new(Arch::V3);
    let mut completions = rig.completions();
    for sequence in 1..=1024 {
        rig.begin_ops(true, &[], sequence).unwrap();
    }
    let refused = rig.begin_ops(true, &[], 1025).unwrap_err();
    assert!(matches!(refused, DmaError::CompletionsFull { .. }));
    assert_eq!(refused.errno(), Errno::EBUSY);
    rig.write(0, &[1; 100]).unwrap();
    assert_eq!(completions.take().unwrap().sequence, 1);
    rig.begin_ops(true, &[], 1025).unwrap();
    let rest = completions.all();
    assert_eq!((rest.len(), rest[0], rest[1023]), (1024, (2, 0), (1025, 0)));
}

#[test]
fn what_a_process_writes_over_its_queue_harms_nobody_else() {
    let rig = Rig::new(Arch::V3);
    let completions = rig.completions();
    let words = completions.mapping.words(0, SIZE_BYTES).unwrap();
    for word in words {
        word.store(0x7777_7777, glia_abi::sync::Ordering::Relaxed);
    }
    let source = rig.buffer(&pattern(5000, 1));
    let refused = rig.begin(true, &source, 1).unwrap_err();
    assert_eq!(refused.errno(), Errno::EBUSY, "its head makes no sense");
    rig.write(0, &pattern(5000, 2)).unwrap();
    rig.assert_at_rest();
}

#[test]
fn what_is_under_way_when_its_process_goes_ends_and_nothing_is_left() {
    let rig = Rig::with(Plan {
        timing: true,
        ..Plan::of(Arch::V3)
    });
    let mut completions = rig.completions();
    let content = pattern(3_000_000, 6);
    let source = rig.buffer(&content);
    rig.begin(true, &source, 1).unwrap();
    let target = rig.buffer(&vec![0; 3_000_000]);
    rig.begin(false, &target, 2).unwrap();
    assert!(rig.host.pinned_bytes() > 0);
    drop(source);
    rig.dma.settle(PID);
    rig.space.close();
    rig.assert_at_rest();
    let after = bytes_of(&target);
    let before = rig.sched.now();
    rig.dma.settle(PID);
    assert_eq!(
        (before, after == bytes_of(&target)),
        (rig.sched.now(), true)
    );
    assert_eq!(completions.all().len(), 2);
    assert_eq!(Arc::strong_count(&target), 1, "nobody else holds it");
}
