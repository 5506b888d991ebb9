//! Copies that a reset of the device disturbs.

use glia_abi::arch::Arch;
use glia_abi::sched::Tick;
use glia_driver::dma::{ContextState, DmaError, WaitHandle};
use glia_driver::reset::ResetWindow;

use crate::engine::Mode;
use crate::rig::{CORE, Rig, hbm, pattern};

const IDLE: ContextState = ContextState::Idle;

/// How many looks each wait took; `None` for one that ended without a marker.
fn waits(rig: &Rig) -> Vec<Option<u64>> {
    let waits = std::mem::take(&mut rig.machine.state().waits);
    waits.into_iter().map(|(_, looks)| looks).collect()
}

#[test]
fn a_copy_that_a_reset_has_eaten_is_staged_again() {
    let rig = Rig::new();
    let bytes = pattern(1, 70_000);
    rig.machine.store(rig.host(0).at, &bytes);
    rig.up(4096, 10).unwrap();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    rig.up(0, 70_000).unwrap();
    assert_eq!(rig.machine.load(hbm(0).at, 70_000), bytes);
    assert_eq!(waits(&rig), [Some(1), None, Some(1)]);
    let queue = rig.queue();
    assert_eq!((queue.next, queue.acked, queue.failures), (3, 3, 0));
    assert_eq!(rig.contexts(), [IDLE; 3]);
}

#[test]
fn only_the_batch_that_was_lost_is_staged_again() {
    let rig = Rig::new();
    rig.machine
        .bodiless
        .store(true, std::sync::atomic::Ordering::Relaxed);
    rig.dma.reset_began();
    rig.machine
        .script(&[Mode::Normal, Mode::Hang, Mode::Normal]);
    rig.up(0, 133_169_153).unwrap();
    let batches: Vec<u32> = rig.doorbells().iter().map(|(_, count)| *count).collect();
    assert_eq!(batches, [2033, 2033, 2, 2, 2, 2]);
}

#[test]
fn a_copy_is_tried_four_times_at_most() {
    let rig = Rig::new();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang]);
    assert!(matches!(rig.up(0, 1), Err(DmaError::TimedOut(_))));
    assert_eq!(waits(&rig), [None; 4]);
    assert_eq!(rig.queue().failures, 1);
    rig.machine.script(&[Mode::Normal]);
    rig.up(0, 1).unwrap();
}

#[test]
fn a_copy_that_began_after_the_reset_fails() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang]);
    let before = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.dma.reset_began();
    rig.dma.reset_ended();
    rig.machine.script(&[Mode::Normal]);
    rig.wait(before).unwrap();
    assert_eq!(waits(&rig), [None, Some(1)]);
    rig.machine.script(&[Mode::Hang]);
    assert!(matches!(rig.up(0, 1), Err(DmaError::TimedOut(_))));
    assert_eq!(waits(&rig), [None]);
}

/// The second life of a copy begins when it is staged again.
#[test]
fn a_copy_that_hangs_again_after_the_reset_fails() {
    let rig = Rig::new();
    let window = ResetWindow {
        start: Tick(1),
        end: Tick(20_000_000),
    };
    rig.dma.set_reset_window(Some(window));
    rig.machine.script(&[Mode::Hang]);
    assert!(matches!(rig.up(0, 1), Err(DmaError::TimedOut(_))));
    assert_eq!(waits(&rig), [None, None]);
}

#[test]
fn a_device_that_is_never_reset_and_a_generation_that_does_not_care_do_not_retry() {
    let rig = Rig::new();
    rig.dma.set_reset_window(None);
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang]);
    assert!(rig.up(0, 1).is_err());
    assert_eq!(waits(&rig), [None]);
    let rig = Rig::bare(Arch::V3);
    rig.dma.bring_up(CORE).unwrap();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang]);
    assert!(rig.up(0, 1).is_err());
    assert_eq!(waits(&rig), [None]);
}

#[test]
fn all_that_is_under_way_is_staged_again_the_oldest_first() {
    let rig = Rig::new();
    let bytes = pattern(6, 3 * 4096);
    rig.machine.store(rig.host(0).at, &bytes);
    // Handle 2 is the older one.
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    let older = rig.up_async(0, 4096, first).unwrap();
    let newer = rig.up_async(4096, 4096, WaitHandle::None).unwrap();
    rig.dma.reset_began();
    waits(&rig);
    rig.machine.state().pairs.clear();
    rig.up(8192, 4096).unwrap();
    assert_eq!(waits(&rig), [None, Some(1)]);
    rig.wait(older).unwrap();
    rig.wait(newer).unwrap();
    assert_eq!(waits(&rig), [Some(1), Some(1)]);
    let moved = |offset| hbm(offset).at;
    let targets: Vec<_> = rig
        .machine
        .state()
        .pairs
        .iter()
        .map(|pair| pair.2.target)
        .collect();
    assert_eq!(
        [targets[0], targets[2], targets[4]],
        [moved(0), moved(4096), moved(8192)]
    );
    assert_eq!(rig.machine.load(moved(0), 3 * 4096), bytes);
    let queue = rig.queue();
    assert_eq!((queue.next, queue.acked, queue.failures), (6, 6, 0));
}

#[test]
fn a_predecessor_that_is_staged_again_is_waited_for_as_if_nothing_was_behind_it() {
    let rig = Rig::new();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    let first = rig.up_async(0, 200_000, WaitHandle::None).unwrap();
    let second = rig.up_async(0, 1, first).unwrap();
    let firsts: Vec<u64> = {
        let state = rig.machine.state();
        state
            .waits
            .iter()
            .map(|(budget, _)| budget.first.0)
            .collect()
    };
    // Five descriptors on V2: 1 us with a batch behind it, else 4 * 4 - 3.
    assert_eq!(firsts, [1, 13]);
    rig.wait(second).unwrap();
}
