//! Rules of a [`SleepLock`] over a [`Sched`]: what it needs of the scheduler. To be checked after
//! those of [`sched`](super::sched) and [`worker`](super::worker), which are relied on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::sched::{SchedFixture, comes};
use super::worker::Probe;
use super::{Must, Violation, hold};
use crate::sched::{Poll, Sched, SleepLock, Step};

/// A lock that is taken says what to wait on; letting it go wakes clients and workers; holders
/// exclude each other across waits, and everybody gets it in the end.
///
/// # Errors
/// The rule that it breaks.
pub fn check(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    fixture.alone(a_taken_lock_says_what_to_wait_on)?;
    fixture.alone(a_worker_gets_the_lock_when_it_is_free)?;
    a_client_gets_the_lock_when_it_is_free(fixture)?;
    holders_exclude_each_other(fixture)
}

fn a_taken_lock_says_what_to_wait_on(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let lock = SleepLock::new(7, sched.as_ref());
    let other = SleepLock::new(8, sched.as_ref());
    let held = lock.poll_lock(sched.as_ref()).must("a new lock is free")?;
    let held_too = other.poll_lock(sched.as_ref()).must("a new lock is free")?;
    let keys = [&lock, &lock, &other].map(|lock| lock.poll_lock(sched.as_ref()).err());
    hold!(
        keys.iter().all(Option::is_some),
        "a lock that is held is not taken",
        "{keys:?}"
    );
    hold!(
        keys[0] == keys[1] && keys[0] != keys[2],
        "each lock has a key of its own",
        "{keys:?}"
    );
    drop(held);
    let again = lock.poll_lock(sched.as_ref()).map(|value| *value);
    hold!(
        again == Ok(7),
        "a lock that was let go is free, with its value",
        "{again:?}"
    );
    drop(held_too);
    Ok(())
}

fn a_worker_gets_the_lock_when_it_is_free(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let lock = Arc::new(SleepLock::new(0, sched.as_ref()));
    let (wanted, on_which) = (Arc::clone(&lock), Arc::clone(sched));
    let probe = Probe::spawn(sched, move |_, _, _| {
        match wanted.poll_lock(on_which.as_ref()) {
            Ok(mut value) => {
                *value += 1;
                Step::Idle
            }
            Err(on) => Step::On(on),
        }
    });
    let held = lock.poll_lock(sched.as_ref()).must("a new lock is free")?;
    probe.kick();
    probe.reaches(1, "a lock that is held is not taken")?;
    drop(held);
    probe.reaches(2, "letting a lock go wakes the worker that waits for it")?;
    let value = lock.poll_lock(sched.as_ref()).map(|value| *value);
    hold!(
        value == Ok(1),
        "a worker that found the lock taken gets it later",
        "{value:?}"
    );
    Ok(())
}

fn a_client_gets_the_lock_when_it_is_free(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    const HELD: u32 = 1;
    const REFUSED: u32 = 2;
    let lock = SleepLock::new((), fixture.sched.as_ref());
    let (phase, changed) = (AtomicU32::new(0), fixture.sched.wait_on());
    let wait_for = |sched: &dyn Sched, wanted| {
        let mut there = || match phase.load(Ordering::Acquire) {
            now if now >= wanted => Poll::Done,
            _ => Poll::Pending,
        };
        let came = comes(sched, changed, &mut there);
        hold!(
            came,
            "a wake reaches the client that waits",
            "phase {wanted} was not seen"
        );
        Ok(())
    };
    let enter = |sched: &dyn Sched, next| {
        phase.store(next, Ordering::Release);
        sched.wake(changed);
    };
    let clients = [true, false].map(|is_holder| {
        let (lock, wait_for, enter) = (&lock, &wait_for, &enter);
        move |sched: &Arc<dyn Sched>| {
            let sched = sched.as_ref();
            if is_holder {
                let held = lock.poll_lock(sched).must("a new lock is free")?;
                enter(sched, HELD);
                wait_for(sched, REFUSED)?;
                drop(held);
                return Ok(());
            }
            wait_for(sched, HELD)?;
            let refused = lock.poll_lock(sched).err();
            let on = refused.must("a lock that is held is not taken")?;
            let mut free = || {
                if lock.poll_lock(sched).is_ok() {
                    return Poll::Done;
                }
                enter(sched, REFUSED);
                Poll::Pending
            };
            let free = comes(sched, on, &mut free);
            hold!(
                free,
                "a wake reaches the client that waits",
                "it never found the lock free"
            );
            Ok(())
        }
    });
    fixture.together(clients)
}

fn holders_exclude_each_other(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    const ROUNDS: u64 = 100;
    let lock = SleepLock::new(0_u64, fixture.sched.as_ref());
    let clients = [(); 2].map(|()| {
        |sched: &Arc<dyn Sched>| {
            for _ in 0..ROUNDS {
                let mut value = lock.lock(sched.as_ref());
                let before = *value;
                sched.pause();
                *value = before + 1;
            }
            Ok(())
        }
    });
    fixture.together(clients)?;
    let sum = lock.poll_lock(fixture.sched.as_ref()).map(|value| *value);
    hold!(
        sum == Ok(2 * ROUNDS),
        "holders exclude each other across waits",
        "{sum:?} after {} rounds",
        2 * ROUNDS
    );
    Ok(())
}
