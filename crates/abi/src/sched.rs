//! Time and waiting: the seam [`Sched`], and what waits through it.
//!
//! Nothing in Glia sleeps, spins or reads a clock by itself. A caller that waits for something says
//! so to a `Sched`, which decides what runs meanwhile and how time moves:
//!
//! | mode | who runs a [`Worker`] | how time moves |
//! | --- | --- | --- |
//! | inline | whoever kicks it, on its own thread | along due work only |
//! | threaded | a few threads of the machine | as the wall clock |
//! | virtual | the scheduler, which also decides which client runs | by decree, from a seed |
//!
//! A wait has three answers, not two: *done*, *not yet*, and *never*. Never is what makes tests
//! fail at once instead of timing out: the one who is waited for knows that what is awaited cannot
//! come (its queue is idle, or stuck), and says so.
//!
//! **Who owns what.** The machine owns the `Sched`. A worker belongs to its device, and the `Sched`
//! keeps a weak reference, so that a dropped machine goes away. A wait key ([`WaitOn`]) belongs to
//! whoever made it.
//!
//! **Locks.** What may be held across a wait is a [`SleepLock`]: a second taker then waits through
//! the `Sched` like for anything else. Every other lock is let go before waiting.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError, Weak};

use crate::handle::WorkerId;

/// A length of time in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// In nanoseconds; the longest length that fits, if this one does not.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0.saturating_mul(1000)
    }
}

/// A point in time: nanoseconds since the machine was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The point `length` later; the last one, if there is none so late.
    #[must_use]
    pub const fn after(self, length: Micros) -> Self {
        Self(self.0.saturating_add(length.nanos()))
    }

    /// Whole microseconds since the machine was built.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0 / 1000
    }
}

/// A key that waiters wait on and wakers wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitOn(pub u64);

/// What a waiter sees when it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Poll {
    /// It is there.
    Done,
    /// Not yet; look again after a wake.
    Pending,
    /// It cannot come.
    Never,
}

/// What a worker has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// More, at once.
    Again,
    /// More at this point in time, or when it is kicked before.
    At(Tick),
    /// More, after a wake of this key.
    On(WaitOn),
    /// Nothing until it is kicked.
    Idle,
}

/// Something that works beside its callers: a queue of an engine, a completion handler.
pub trait Worker: Send + Sync {
    /// Does one piece of work and says what comes next. Never blocks: what it waits for is a later
    /// step. `now` is the time of the step.
    ///
    /// A `Sched` never runs two steps of one worker at the same time.
    fn step(&self, now: Tick) -> Step;
}

/// Who decides what runs and how time moves. One per machine.
pub trait Sched: Send + Sync {
    /// The time. It never goes back.
    fn now(&self) -> Tick;

    /// A new key to wait on, never given out before.
    fn wait_on(&self) -> WaitOn;

    /// Lets everybody who waits on the key look again. A wake that comes between a waiter's look
    /// and its going to rest is not lost.
    fn wake(&self, on: WaitOn);

    /// A point at which another client may run: every entry into the driver is one.
    fn pause(&self);

    /// Makes a worker known. When it has been dropped, kicks do nothing.
    fn spawn(&self, worker: Weak<dyn Worker>) -> WorkerId;

    /// Tells that a worker has work. In inline mode the work is done when this returns, as far as it
    /// is due; work that a worker orders from itself is done by the call that is under way.
    fn kick(&self, worker: WorkerId);

    /// Whether the calling thread keeps to itself what it kicks: it is about to wait for it, and does
    /// it meanwhile. Each `true` needs its `false`; at the last one, what has not been done is done
    /// as if it were kicked then. A mode without threads has no use for it.
    fn keep_kicks(&self, keep: bool) {
        let _ = keep;
    }

    /// Waits until `poll` says [`Poll::Done`], and says whether it did. Looks at once, after every
    /// wake of `on`, and whenever due work has been done.
    ///
    /// `within` bounds the wait; none waits without bound. The answer is false when `within` has
    /// passed, or `poll` said [`Poll::Never`]; whether `within` passes before a hopeless wait ends
    /// is the mode's affair.
    fn block(&self, on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool;

    /// Whether a hopeless wait ends at once, or when its length has passed: for a worker, which
    /// counts the length of its waits itself.
    fn gives_up_at_once(&self) -> bool {
        true
    }
}

/// A lock that may be held across a wait. Whoever finds it taken waits through the [`Sched`].
pub struct SleepLock<T> {
    value: Mutex<T>,
    on: WaitOn,
}

impl<T> SleepLock<T> {
    /// A free lock. It is to be taken with the same `sched` later.
    pub fn new(value: T, sched: &dyn Sched) -> Self {
        Self {
            value: Mutex::new(value),
            on: sched.wait_on(),
        }
    }

    /// Takes the lock, waiting as long as it takes.
    ///
    /// A holder that panicked leaves the value as it is; it is taken all the same, since every
    /// holder keeps it whole at each step.
    pub fn lock<'a>(&'a self, sched: &'a dyn Sched) -> SleepGuard<'a, T> {
        loop {
            match self.poll_lock(sched) {
                Ok(guard) => return guard,
                Err(on) => {
                    let mut free = || match self.value.try_lock() {
                        Err(TryLockError::WouldBlock) => Poll::Pending,
                        Ok(_) | Err(TryLockError::Poisoned(_)) => Poll::Done,
                    };
                    // Whatever the answer: look again.
                    sched.block(on, &mut free, None);
                }
            }
        }
    }

    /// Takes the lock, unless `gives_up` says so while somebody else has it. Whoever makes it say so
    /// [lets waiters look](Self::let_waiters_look) then.
    pub fn lock_unless<'a>(
        &'a self,
        sched: &'a dyn Sched,
        gives_up: &dyn Fn() -> bool,
    ) -> Option<SleepGuard<'a, T>> {
        if let Ok(guard) = self.poll_lock(sched) {
            return Some(guard);
        }
        let mut taken = None;
        let mut look = || match self.poll_lock(sched) {
            Ok(guard) => {
                taken = Some(guard);
                Poll::Done
            }
            Err(_) if gives_up() => Poll::Done,
            Err(_) => Poll::Pending,
        };
        sched.block(self.on, &mut look, None);
        taken
    }

    /// Lets those who wait for the lock look whether they give up.
    pub fn let_waiters_look(&self, sched: &dyn Sched) {
        sched.wake(self.on);
    }

    /// Takes the lock if it is free, without waiting.
    ///
    /// # Errors
    /// The key to wait on if it is taken: a [`Worker`] returns it as [`Step::On`].
    pub fn poll_lock<'a>(&'a self, sched: &'a dyn Sched) -> Result<SleepGuard<'a, T>, WaitOn> {
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(self.on),
        };
        Ok(SleepGuard {
            value: Some(value),
            on: self.on,
            sched,
        })
    }
}

impl<T> fmt::Debug for SleepLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepLock")
            .field("on", &self.on)
            .finish_non_exhaustive()
    }
}

/// A [`SleepLock`] that is held until this is dropped.
#[must_use = "a lock whose guard is dropped is free"]
pub struct SleepGuard<'a, T> {
    /// Some until the drop.
    value: Option<MutexGuard<'a, T>>,
    on: WaitOn,
    sched: &'a dyn Sched,
}

impl<T> Deref for SleepGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // PANIC: only the drop takes the guard out.
        #[expect(clippy::unwrap_used, reason = "see PANIC")]
        self.value.as_ref().unwrap()
    }
}

impl<T> DerefMut for SleepGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // PANIC: only the drop takes the guard out.
        #[expect(clippy::unwrap_used, reason = "see PANIC")]
        self.value.as_mut().unwrap()
    }
}

impl<T> Drop for SleepGuard<'_, T> {
    fn drop(&mut self) {
        // Free first: whoever is woken looks at once.
        self.value = None;
        self.sched.wake(self.on);
    }
}
