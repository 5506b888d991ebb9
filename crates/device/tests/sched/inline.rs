//! The inline scheduler: what runs when, and at which time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use glia_abi::sched::{Micros, Poll, Sched, SleepLock, Step, Tick, WaitOn, Worker};
use glia_device::InlineSched;

use crate::support::{Scripted, at_us, spawn, start};

#[test]
fn a_wait_moves_the_clock_along_due_work_in_its_order() {
    let sched = InlineSched::new();
    let late = Scripted::new(vec![at_us(50)]);
    let early = Scripted::new(vec![at_us(10), at_us(30)]);
    start(&sched, &late);
    start(&sched, &early);
    assert_eq!(sched.now(), Tick(0));
    let mut there = || match early.times_us().len() {
        3 => Poll::Done,
        _ => Poll::Pending,
    };
    assert!(sched.block(sched.wait_on(), &mut there, None));
    assert_eq!(early.times_us(), [0, 10, 30]);
    assert_eq!(late.times_us(), [0]);
    assert_eq!(sched.now(), Tick(30_000));
}

#[test]
fn a_hopeless_wait_ends_at_once_and_does_not_move_the_clock() {
    let sched = InlineSched::new();
    let worker = Scripted::new(vec![at_us(10)]);
    start(&sched, &worker);
    let came = sched.block(sched.wait_on(), &mut || Poll::Never, Some(Micros(1000)));
    assert!(!came);
    assert_eq!((sched.now(), worker.times_us().len()), (Tick(0), 1));
}

#[test]
fn a_bounded_wait_ends_at_its_bound_if_the_next_due_work_lies_beyond() {
    let sched = InlineSched::new();
    let worker = Scripted::new(vec![at_us(10), at_us(500)]);
    start(&sched, &worker);
    let came = sched.block(sched.wait_on(), &mut || Poll::Pending, Some(Micros(100)));
    assert!(!came);
    assert_eq!(sched.now(), Tick(100_000));
    assert_eq!(worker.times_us(), [0, 10]);
}

#[test]
fn work_that_is_due_exactly_at_the_bound_is_seen() {
    let sched = InlineSched::new();
    let worker = Scripted::new(vec![at_us(100)]);
    start(&sched, &worker);
    let mut there = || match worker.times_us().len() {
        2 => Poll::Done,
        _ => Poll::Pending,
    };
    assert!(!sched.block(sched.wait_on(), &mut there, Some(Micros(99))));
    assert!(sched.block(sched.wait_on(), &mut there, Some(Micros(1))));
}

#[test]
fn with_nothing_due_the_wall_clock_ends_a_bounded_wait_and_the_clock_shows_it() {
    let sched = InlineSched::new();
    let came = sched.block(sched.wait_on(), &mut || Poll::Pending, Some(Micros(50)));
    assert!(!came);
    assert_eq!(sched.now(), Tick(50_000));
}

/// Kicks another from within its step, and records that this did not run it.
struct Kicker {
    sched: Arc<InlineSched>,
    other: glia_abi::handle::WorkerId,
    worked: Arc<Scripted>,
    ran_within: AtomicU64,
}

impl Worker for Kicker {
    fn step(&self, _now: Tick) -> Step {
        self.sched.kick(self.other);
        let ran = self.worked.times_us().len() as u64;
        self.ran_within.store(ran, Ordering::Relaxed);
        Step::Idle
    }
}

#[test]
fn a_kick_within_a_step_does_not_recurse_and_is_done_when_the_outer_kick_returns() {
    let sched = Arc::new(InlineSched::new());
    let worked = Scripted::new(vec![Step::Again]);
    let known: Arc<dyn Worker> = Arc::<Scripted>::clone(&worked);
    let other = sched.spawn(Arc::downgrade(&known));
    let kicker = Arc::new(Kicker {
        sched: Arc::clone(&sched),
        other,
        worked: Arc::clone(&worked),
        ran_within: AtomicU64::new(u64::MAX),
    });
    let known: Arc<dyn Worker> = Arc::<Kicker>::clone(&kicker);
    let outer = sched.spawn(Arc::downgrade(&known));
    sched.kick(outer);
    assert_eq!(kicker.ran_within.load(Ordering::Relaxed), 0);
    assert_eq!(worked.times_us().len(), 2);
}

/// Others may take locks that are held while it is kicked.
#[test]
fn a_kick_steps_nobody_else_who_is_due_or_was_woken() {
    let sched = InlineSched::new();
    let kicked = Scripted::new(vec![]);
    let kicked_id = spawn(&sched, &kicked);
    let key = sched.wait_on();
    let woken = Scripted::new(vec![Step::On(key)]);
    start(&sched, &woken);
    let due = Scripted::new(vec![at_us(100)]);
    let due_id = spawn(&sched, &due);
    // The wait's end comes first, so it ends before what is due at the same time.
    let mut looks = 0;
    let mut look = || {
        looks += 1;
        if looks == 2 {
            sched.kick(due_id);
        }
        Poll::Pending
    };
    assert!(!sched.block(sched.wait_on(), &mut look, Some(Micros(100))));
    assert_eq!(sched.now(), Tick(100_000));
    sched.wake(key);
    sched.kick(kicked_id);
    let steps = || [&kicked, &woken, &due].map(|worker| worker.times_us().len());
    assert_eq!(steps(), [1, 1, 1]);
    sched.kick(kicked_id);
    assert_eq!(steps(), [2, 1, 1]);
    sched.pause();
    assert_eq!(steps(), [2, 2, 2]);
    assert_eq!(due.times_us(), [0, 100]);
}

/// Nobody is left without a step: a wait does what no kick has done.
#[test]
fn a_wait_steps_whoever_is_due_already() {
    let sched = InlineSched::new();
    let due = Scripted::new(vec![at_us(100)]);
    let due_id = spawn(&sched, &due);
    let mut looks = 0;
    let mut look = || {
        looks += 1;
        if looks == 2 {
            sched.kick(due_id);
        }
        Poll::Pending
    };
    assert!(!sched.block(sched.wait_on(), &mut look, Some(Micros(100))));
    assert_eq!(due.times_us(), [0]);
    let mut there = || match due.times_us().len() {
        2 => Poll::Done,
        _ => Poll::Pending,
    };
    assert!(sched.block(sched.wait_on(), &mut there, None));
    assert_eq!(sched.now(), Tick(100_000));
}

#[test]
fn a_woken_worker_runs_at_the_next_pause() {
    let sched = InlineSched::new();
    let key = sched.wait_on();
    let worker = Scripted::new(vec![Step::On(key)]);
    start(&sched, &worker);
    sched.wake(WaitOn(u64::MAX));
    sched.pause();
    assert_eq!(worker.times_us().len(), 1);
    sched.wake(key);
    assert_eq!(worker.times_us().len(), 1);
    sched.pause();
    assert_eq!(worker.times_us().len(), 2);
}

#[test]
fn a_dropped_worker_takes_nothing_with_it() {
    let sched = InlineSched::new();
    let worker = Scripted::new(vec![at_us(10)]);
    start(&sched, &worker);
    drop(worker);
    let none: Weak<Scripted> = Weak::new();
    let nobody = sched.spawn(none);
    sched.kick(nobody);
    let came = sched.block(sched.wait_on(), &mut || Poll::Pending, Some(Micros(20)));
    assert!(!came);
}

#[test]
fn threads_that_contend_for_a_sleep_lock_lose_no_wake() {
    let sched = InlineSched::new();
    let lock = SleepLock::new(0_u64, &sched);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let mut value = lock.lock(&sched);
                    let before = *value;
                    // The other one finds it taken.
                    std::thread::yield_now();
                    *value = before + 1;
                }
            });
        }
    });
    assert_eq!(*lock.lock(&sched), 4_000);
}
