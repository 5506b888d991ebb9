//! Rings that fail: who learns it, and what comes after.

use std::sync::atomic::Ordering;
use std::thread;

use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::port::{NotCompleted, TimedOut};
use glia_driver::dma::{ContextState, DmaError, WaitHandle};

use crate::engine::Mode;
use crate::rig::{Rig, hbm, pattern};

const IDLE: ContextState = ContextState::Idle;

fn timed_out(rig: &Rig) -> DmaError {
    DmaError::TimedOut(TimedOut {
        queue: rig.queue().queue,
        reason: NotCompleted::TimeOver,
    })
}

/// The ring works, and is as after its bring-up.
fn assert_fresh(rig: &Rig, failures: u64) {
    let queue = rig.queue();
    assert_eq!((queue.next, queue.acked, queue.ring_id), (0, 0, 1));
    assert_eq!((queue.available, queue.failures), (8176, failures));
    rig.machine.script(&[Mode::Normal]);
    let bytes = pattern(9, 70_000);
    rig.machine.store(rig.host(0).at, &bytes);
    rig.up(0, 70_000).unwrap();
    assert_eq!(rig.machine.load(hbm(0).at, 70_000), bytes);
}

#[test]
fn a_hung_copy_times_out_and_the_next_one_has_a_fresh_ring() {
    let rig = Rig::new();
    rig.up(0, 4096).unwrap();
    rig.machine.script(&[Mode::Hang]);
    let failed = rig.up(0, 4096).unwrap_err();
    assert_eq!(failed, timed_out(&rig));
    assert_eq!(failed.errno(), Errno::ETIMEDOUT);
    assert_eq!(rig.contexts(), [IDLE; 3]);
    assert_fresh(&rig, 1);
}

#[test]
fn the_second_batch_of_a_copy_may_hang_too() {
    let rig = Rig::new();
    rig.machine.bodiless.store(true, Ordering::Relaxed);
    rig.machine.script(&[Mode::Normal, Mode::Hang]);
    assert_eq!(rig.up(0, 200 << 20), Err(timed_out(&rig)));
    rig.machine.bodiless.store(false, Ordering::Relaxed);
    assert_fresh(&rig, 1);
}

#[test]
fn the_last_look_still_counts_and_one_later_does_not() {
    // Two descriptors on V2: 1 us, then 39,902 looks a microsecond apart.
    for (late_us, looks) in [(1, Some(1)), (39_902, Some(39_902)), (39_903, None)] {
        let rig = Rig::new();
        rig.machine.script(&[Mode::Late(late_us)]);
        assert_eq!(rig.up(0, 1).is_ok(), looks.is_some());
        assert_eq!(rig.machine.state().waits[0].1, looks);
    }
}

#[test]
fn everybody_in_line_fails_together_without_staging() {
    const IN_LINE: u64 = 6;
    let rig = Rig::new();
    let handle = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.machine.script(&[Mode::Hang]);
    rig.machine.gate.store(IN_LINE, Ordering::SeqCst);
    let announced = rig.queue().announced;
    let errors = thread::scope(|scope| {
        let holder = scope.spawn(|| rig.up(0, 4096));
        while rig.machine.state().doorbells.len() < 4 {
            thread::yield_now();
        }
        let line: Vec<_> = (0..IN_LINE)
            .map(|number| {
                let rig = &rig;
                scope.spawn(move || match number % 3 {
                    0 => rig.up(0, 4096),
                    1 => rig.up_async(0, 1, WaitHandle::None).map(drop),
                    _ => rig.wait(handle),
                })
            })
            .collect();
        let line = line.into_iter().map(|caller| caller.join().unwrap());
        let mut errors = vec![holder.join().unwrap()];
        errors.extend(line);
        errors
    });
    assert_eq!(errors, vec![Err(timed_out(&rig)); IN_LINE as usize + 1]);
    assert_eq!(rig.queue().announced, announced + 2);
    assert_eq!(rig.machine.state().waits.len(), 1);
    rig.machine.gate.store(0, Ordering::SeqCst);
    assert_eq!(rig.contexts(), [IDLE; 3]);
    assert_fresh(&rig, 1);
}

#[test]
fn a_copy_under_way_is_lost_with_its_ring_and_its_owner_is_told_once() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang]);
    let handle = rig.up_async(0, 1, WaitHandle::None).unwrap();
    assert_eq!(rig.up(0, 1), Err(timed_out(&rig)));
    assert_eq!(rig.contexts(), [IDLE, ContextState::Failed, IDLE]);
    assert_eq!(rig.wait(handle), Err(timed_out(&rig)));
    assert_eq!(rig.wait(handle).unwrap_err().errno(), Errno::EINVAL);
    assert_fresh(&rig, 1);
}

#[test]
fn a_predecessor_that_hangs_takes_its_successor_with_it() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang]);
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    assert_eq!(rig.up_async(0, 1, first), Err(timed_out(&rig)));
    assert_eq!(rig.contexts(), [IDLE; 3]);
    assert_fresh(&rig, 1);
}

#[test]
fn a_successor_of_a_lost_copy_is_told_and_stages_nothing() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang]);
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    assert_eq!(rig.up(0, 1), Err(timed_out(&rig)));
    rig.machine.script(&[Mode::Normal]);
    assert_eq!(rig.up_async(0, 1, first), Err(timed_out(&rig)));
    assert_fresh(&rig, 1);
}

#[test]
fn a_second_chain_does_not_suffer_from_the_copy_in_its_way() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.heard.take();
    let handle = rig.up_async(0, 1, WaitHandle::None).unwrap();
    let told: Vec<Event> = rig
        .heard
        .take()
        .into_iter()
        .map(|(_, event)| event)
        .collect();
    let reason = NotCompleted::TimeOver;
    assert_eq!(told[0], Event::BatchFailed { context: 1, reason });
    rig.wait(handle).unwrap();
    assert_eq!(rig.queue().failures, 1);
}

#[test]
fn a_stray_copy_that_hangs_fails_the_chain_behind_it() {
    let rig = Rig::new();
    for previous in [WaitHandle::None, WaitHandle::Async1] {
        rig.up_async(0, 1, previous).unwrap();
    }
    rig.machine.script(&[Mode::Hang]);
    rig.up_async(0, 1, WaitHandle::None).unwrap();
    let announced = rig.queue().announced;
    let failed = rig.up_async(0, 1, WaitHandle::Async2);
    assert_eq!(failed, Err(timed_out(&rig)));
    assert_eq!(rig.queue().announced, announced);
    assert_eq!(rig.contexts(), [IDLE; 3]);
    assert_fresh(&rig, 1);
}

/// A copy of 0 bytes has nothing that could be lost.
#[test]
fn an_empty_copy_survives_the_failure_of_its_ring() {
    let rig = Rig::new();
    let empty = rig.up_async(0, 0, WaitHandle::None).unwrap();
    rig.machine.script(&[Mode::Hang]);
    assert_eq!(rig.up(0, 1), Err(timed_out(&rig)));
    rig.wait(empty).unwrap();
}

/// An engine that has a marker in its hands while the queue is reset writes it afterwards.
#[test]
fn a_late_marker_completes_nobody_else() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Straggle, Mode::Hang]);
    let first = rig.up_async(0, 4096, WaitHandle::None).unwrap();
    assert_eq!(rig.wait(first), Err(timed_out(&rig)));
    let second = rig.up_async(0, 4096, WaitHandle::None).unwrap();
    assert_eq!(second, first);
    rig.machine.let_stragglers_finish();
    assert_eq!(rig.wait(second), Err(timed_out(&rig)));
    assert_fresh(&rig, 2);
}

#[test]
fn a_fill_that_hangs_leaves_its_buffer_to_the_next_one() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Normal, Mode::Hang]);
    let fill = |value| rig.dma.fill(crate::rig::PID, hbm(0), 100_000, value);
    assert_eq!(fill(1), Err(timed_out(&rig)));
    rig.machine.script(&[Mode::Normal]);
    fill(2).unwrap();
    assert_eq!(rig.machine.load(hbm(0).at, 100_000), vec![2; 100_000]);
}
