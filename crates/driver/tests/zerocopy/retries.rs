//! What a reset has disturbed: staged again in the order in which it came, and not for ever.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::mem::Location;
use glia_driver::dma::{Place, WaitHandle};

use crate::rig::{CHUNK, CORE, PID, Plan, Rig, pattern};
use crate::watch::{Answer, Seen};

/// How often what is disturbed is staged again.
const AGAIN: usize = 3;

/// A rig on which nothing that times out has to fail, since a reset is under way.
fn disturbed(timing: bool) -> Rig {
    let rig = Rig::with(Plan {
        timing,
        ..Plan::of(Arch::V2)
    });
    rig.completions();
    rig.dma.reset_began();
    rig
}

/// The contexts of all batches that were staged.
fn staged(rig: &Rig) -> Vec<u32> {
    let context = |event: Event| match event {
        Event::BatchStaged { context, .. } => Some(context),
        _ => None,
    };
    rig.heard.take().into_iter().filter_map(context).collect()
}

#[test]
fn the_worker_stages_what_times_out_three_times_again_and_then_fails_the_ring() {
    let timed_out = i64::from(Errno::ETIMEDOUT.ret());
    for (times, result, batches) in [(AGAIN, 0, 4), (AGAIN + 1, timed_out, 4)] {
        let rig = disturbed(false);
        let mut completions = rig.completions();
        let source = rig.buffer(&pattern(5000, 1));
        rig.watch.script(Answer::TimedOut, times);
        staged(&rig);
        rig.begin(true, &source, 1).unwrap();
        assert_eq!(completions.all(), [(1, result)], "{times} times");
        assert_eq!(staged(&rig), vec![3; batches], "{times} times");
        assert_eq!(rig.queue().failures, u64::from(result != 0));
        rig.assert_at_rest();
    }
}

#[test]
fn a_synchronous_copy_is_staged_three_times_again_and_then_fails() {
    for (times, is_done) in [(AGAIN, true), (AGAIN + 1, false)] {
        let rig = disturbed(false);
        rig.watch.script(Answer::TimedOut, times);
        staged(&rig);
        assert_eq!(rig.write(0, &pattern(5000, 1)).is_ok(), is_done);
        assert_eq!(staged(&rig), [3; 4], "{times} times");
        rig.assert_at_rest();
    }
}

/// Each context of a request counts for itself.
#[test]
fn a_context_is_tried_as_often_as_the_one_before_it() {
    let rig = disturbed(false);
    let mut completions = rig.completions();
    // 49 pages each.
    let source = rig.buffer(&pattern(400_000, 1));
    rig.watch.script(Answer::TimedOut, AGAIN);
    staged(&rig);
    rig.begin(true, &source, 1).unwrap();
    assert_eq!(completions.all(), [(1, 0)]);
    assert_eq!(staged(&rig), [3, 4, 3, 4, 3, 4, 3, 4]);
    assert!(rig.hbm_bytes(0, 400_000) == pattern(400_000, 1));
    rig.assert_at_rest();
}

/// Zero copies before and behind a copy, in the order in which they were staged.
#[test]
fn contexts_and_copies_are_staged_again_in_their_order() {
    let rig = disturbed(true);
    let mut completions = rig.completions();
    let source = rig.buffer(&pattern(400_000, 1));
    let device = |offset_bytes| Place {
        at: rig.at.checked_add(offset_bytes).unwrap(),
        location: Location::Device,
        core: CORE,
    };
    let (from, to) = (device(CHUNK / 2), device(CHUNK / 2 + 4096));
    staged(&rig);
    rig.begin(true, &source, 1).unwrap();
    let copy = rig
        .dma
        .copy_async(PID, from, to, 4096, WaitHandle::None)
        .unwrap();
    rig.begin(false, &source, 2).unwrap();
    let once = staged(&rig);
    // Contexts of zero copies have the numbers from 3 on.
    assert_eq!(once, [3, 4, 1, 5, 6]);
    rig.watch.take();
    rig.watch.script(Answer::TimedOut, 1);
    rig.dma.wait(PID, from, to, copy).unwrap();
    assert!(matches!(rig.watch.take()[0], Seen::Waited(_)));
    assert_eq!(staged(&rig), once);
    rig.dma.settle(PID);
    assert_eq!(completions.all(), [(1, 0), (2, 0)]);
    rig.assert_at_rest();
}
