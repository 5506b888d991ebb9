//! Asynchronous copies: the chain of handles, and what is refused without a trace.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, Pid};
use glia_driver::alloc::AllocRequest;
use glia_driver::dma::{BATCH_BYTES_MAX, ContextState, DmaError, WaitHandle};

use crate::engine::Mode;
use crate::rig::{CORE, PID, Rig, hbm, pattern};

const IDLE: ContextState = ContextState::Idle;
const TWO_PAIRS: ContextState = ContextState::InFlight { pairs: 2 };

#[test]
fn a_chain_alternates_between_two_handles() {
    let rig = Rig::new();
    let bytes = pattern(4, 5 * 4096);
    rig.machine.store(rig.host(0).at, &bytes);
    let mut previous = WaitHandle::None;
    let mut handles = Vec::new();
    for offset in 0..5 {
        previous = rig.up_async(offset * 4096, 4096, previous).unwrap();
        handles.push(previous.to_raw());
    }
    rig.wait(previous).unwrap();
    assert_eq!(handles, [1, 2, 1, 2, 1]);
    assert_eq!(rig.machine.load(hbm(0).at, bytes.len()), bytes);
    assert_eq!((rig.contexts(), rig.queue().available), ([IDLE; 3], 8176));
}

#[test]
fn a_copy_is_staged_before_its_predecessor_is_waited_for() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Late(500), Mode::Hang]);
    let first = rig.up_async(0, 4096, WaitHandle::None).unwrap();
    assert_eq!(rig.contexts(), [IDLE, TWO_PAIRS, IDLE]);
    rig.up_async(4096, 4096, first).unwrap();
    assert_eq!(rig.contexts(), [IDLE, IDLE, TWO_PAIRS]);
    let waited = rig.machine.state().waits[0];
    assert_eq!((waited.0.first.0, waited.1), (1, Some(500)));
}

#[test]
fn a_handle_is_waited_for_once() {
    let rig = Rig::new();
    let handle = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.wait(handle).unwrap();
    let queue = rig.queue().queue;
    let again = rig.wait(handle);
    assert_eq!(again, Err(DmaError::NotInUse { handle, queue }));
}

#[test]
fn handles_that_name_no_copy_are_refused() {
    let rig = Rig::new();
    for handle in [WaitHandle::None, WaitHandle::Sync, WaitHandle::Async2] {
        let refused = rig.wait(handle).unwrap_err();
        assert_eq!(refused.errno(), Errno::EINVAL);
    }
}

#[test]
fn the_synchronous_handle_asks_for_a_synchronous_copy_of_any_size() {
    let rig = Rig::new();
    rig.machine
        .bodiless
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let handle = rig
        .up_async(0, BATCH_BYTES_MAX + 1, WaitHandle::Sync)
        .unwrap();
    assert_eq!(handle, WaitHandle::Sync);
    assert_eq!(rig.doorbells().len(), 4);
    assert_eq!(rig.contexts(), [IDLE; 3]);
}

#[test]
fn an_oversized_copy_is_refused_and_its_predecessor_stays() {
    let rig = Rig::new();
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    let (before, rung) = (rig.queue(), rig.doorbells().len());
    let size_bytes = BATCH_BYTES_MAX + 1;
    let refused = rig.up_async(0, size_bytes, first);
    assert_eq!(refused, Err(DmaError::TooLarge { size_bytes }));
    assert_eq!((rig.queue(), rig.doorbells().len(), rung), (before, 0, 2));
    rig.wait(first).unwrap();
}

/// The reference overwrites the context that the new copy would have had.
#[test]
fn a_bad_predecessor_does_not_touch_the_context_in_line() {
    let rig = Rig::new();
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    let before = rig.queue();
    let refused = rig.up_async(0, 1, WaitHandle::Async2).unwrap_err();
    assert!(matches!(refused, DmaError::NotInUse { .. }), "{refused}");
    assert_eq!(rig.queue(), before);
    rig.wait(first).unwrap();
}

#[test]
fn a_second_chain_waits_for_the_copy_in_its_way() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Late(70), Mode::Normal]);
    rig.up_async(0, 1, WaitHandle::None).unwrap();
    let second = rig.up_async(0, 1, WaitHandle::None).unwrap();
    assert_eq!(second, WaitHandle::Async1);
    let queue = rig.queue();
    assert_eq!((queue.acked, queue.next), (2, 4));
    rig.wait(second).unwrap();
    assert_eq!(rig.queue().available, 8176);
}

#[test]
fn a_chain_waits_for_a_stray_copy_in_its_way() {
    let rig = Rig::new();
    let stray_then_chain = [WaitHandle::None, WaitHandle::Async1, WaitHandle::None];
    for previous in stray_then_chain {
        rig.up_async(0, 1, previous).unwrap();
    }
    assert_eq!(rig.contexts(), [IDLE, TWO_PAIRS, TWO_PAIRS]);
    let handle = rig.up_async(0, 1, WaitHandle::Async2).unwrap();
    assert_eq!(handle, WaitHandle::Async1);
    assert_eq!(rig.contexts(), [IDLE, TWO_PAIRS, IDLE]);
    assert_eq!(rig.queue().available, 8174);
}

#[test]
fn a_copy_of_zero_bytes_has_its_place_in_the_chain() {
    let rig = Rig::new();
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    let empty = rig.up_async(0, 0, first).unwrap();
    assert_eq!(empty, WaitHandle::Async2);
    assert_eq!(rig.queue().announced, 2);
    let third = rig.up_async(0, 1, empty).unwrap();
    rig.wait(third).unwrap();
    let last = rig.up_async(0, 0, WaitHandle::None).unwrap();
    rig.wait(last).unwrap();
    assert!(rig.wait(last).is_err());
    assert_eq!(rig.contexts(), [IDLE; 3]);
}

#[test]
fn synchronous_copies_go_between_asynchronous_ones() {
    let rig = Rig::new();
    let first = rig.up_async(0, 100_000, WaitHandle::None).unwrap();
    rig.up(200_000, 5).unwrap();
    rig.wait(first).unwrap();
    assert_eq!(rig.queue().available, 8176);
}

#[test]
fn without_a_ring_a_copy_is_refused_and_a_wait_has_nothing_to_wait_for() {
    let rig = Rig::bare(Arch::V2);
    let not_ready = DmaError::NotReady { core: CORE };
    assert_eq!(rig.up(0, 1), Err(not_ready));
    assert_eq!(rig.up_async(0, 1, WaitHandle::None), Err(not_ready));
    assert_eq!(rig.dma.fill(PID, hbm(0), 1, 1), Err(not_ready));
    assert_eq!(not_ready.errno(), Errno::EPERM);
    assert_eq!(rig.wait(WaitHandle::Async1), Ok(()));
}

#[test]
fn a_range_that_leaves_the_address_space_is_refused() {
    let rig = Rig::new();
    let before = rig.queue();
    let mut target = hbm(0);
    target.at = glia_abi::addr::BusAddr::new(u64::MAX - 10);
    let none = WaitHandle::None;
    let refusals = [
        rig.dma.copy(PID, rig.host(0), target, 11).unwrap_err(),
        rig.dma.fill(PID, target, 11, 0).unwrap_err(),
        rig.dma
            .copy_async(PID, rig.host(0), target, 11, none)
            .unwrap_err(),
    ];
    for refused in refusals {
        assert!(matches!(refused, DmaError::Wraps { .. }), "{refused}");
    }
    assert_eq!(rig.queue(), before);
}

#[test]
fn a_process_that_goes_leaves_no_context_in_use() {
    let rig = Rig::new();
    let other = Pid::new(88);
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.up_async(0, 1, first).unwrap();
    rig.dma
        .copy_async(other, rig.host(0), hbm(0), 1, WaitHandle::None)
        .unwrap();
    rig.dma.settle(PID);
    assert_eq!(rig.contexts(), [IDLE, TWO_PAIRS, IDLE]);
    // A copy that hangs takes the other's with it.
    rig.machine.script(&[Mode::Hang]);
    rig.up(0, 1).unwrap_err();
    assert_eq!(rig.contexts(), [IDLE, ContextState::Failed, IDLE]);
    rig.dma.settle(other);
    assert_eq!(rig.contexts(), [IDLE; 3]);
}

#[test]
fn the_pins_of_a_copy_are_let_go_when_it_has_ended() {
    let rig = Rig::new();
    let request = AllocRequest::device(4096, Channel::new(0));
    let chunk = rig.memory.alloc(PID, &request).unwrap();
    let pins = || [(); 2].map(|()| rig.memory.pin_owned(chunk).unwrap());
    let start = |size_bytes, previous| {
        let (source, target) = (rig.host(0), hbm(0));
        rig.dma
            .copy_async_holding(PID, source, target, size_bytes, previous, pins())
    };
    let sharers = Arc::strong_count(&rig.memory);
    let held = || Arc::strong_count(&rig.memory) - sharers;
    let first = start(1, WaitHandle::None).unwrap();
    assert_eq!(held(), 2);
    start(BATCH_BYTES_MAX + 1, first).unwrap_err();
    assert_eq!(held(), 2);
    let second = start(1, first).unwrap();
    assert_eq!(held(), 2);
    rig.wait(second).unwrap();
    assert_eq!(held(), 0);
    rig.machine.script(&[Mode::Hang]);
    start(1, WaitHandle::None).unwrap();
    rig.up(0, 1).unwrap_err();
    assert_eq!(held(), 0);
}
