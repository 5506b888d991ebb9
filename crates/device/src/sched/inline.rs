//! Time and waiting on the caller's thread: the inline mode of [`Sched`].
//!
//! There are no threads of the machine's own. A kick steps the worker until it has nothing to do,
//! and whom that kicks; a wait steps whatever is due until it is over. With one client thread
//! everything that happens, and the time at which it happens, follows from what the client does.
//!
//! ```text
//!   kick ──► step, step, …                      wake ──► runnable
//!              │ At(later) ─► due, by time  ──► runnable when time gets there, or at a kick
//!              │ On(key)   ─► on            ──► runnable after a wake
//!              └ Idle
//! ```
//!
//! **A kick steps nobody else.** Doorbells are rung under locks, and whoever rings one knows whom he
//! kicks, and that this worker does not take them. Any other might: one that was woken, or is due,
//! is stepped by whoever comes next to a wait or, if it was woken, to a pause; no lock is held there.
//! A wake steps nothing itself, for the same reason.
//!
//! **Time** stands still but for waits. A waiter for whom nothing is runnable moves the clock to
//! what is due next: a worker's `At`, or the end of a bounded wait, if that comes before it. It
//! does so only if nobody else is inside the scheduler, so that no work is overtaken by time.
//!
//! **Several client threads** may kick and wait at once. A waiter for whom nothing at all is due
//! can only be helped by another client, of which nothing is known here, so it parks until
//! something happens. As a net, a *bounded* wait then ends when its length has passed on the wall
//! clock; the clock moves to its bound. An unbounded one (a [`SleepLock`]) that nobody ends is a
//! deadlock of the clients, and hangs as such. (A waiter who knows that nothing can come says
//! [`Poll::Never`], and waits for none of this.)
//!
//! **No lost wake.** Everything that can change a waiter's mind counts `epoch` up. A waiter reads
//! it before it looks, and parks only if it is still the same, under the lock that whoever ends the
//! parking takes. Who is let out of the parking counts as inside from that moment on, not from when
//! the system runs it again, so that time does not move past what it may be about to do.
//!
//! **Locks.** One mutex around the tables, never held while a worker steps or a waiter looks.
//!
//! [`SleepLock`]: glia_abi::sched::SleepLock

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use glia_abi::handle::WorkerId;
use glia_abi::sched::{Micros, Poll, Sched, Step, Tick, WaitOn, Worker};

thread_local! {
    /// What this thread is stepping.
    static STEPPING: Cell<Stepping> = const { Cell::new(Stepping { sched: 0, kick: NO_KICK }) };
}

/// The kick of a worker that is runnable for another reason, and of a step that a wait or a pause
/// makes.
const NO_KICK: u64 = 0;

/// On whose behalf a step is made.
#[derive(Clone, Copy)]
struct Stepping {
    /// The scheduler, by address; 0 for none.
    sched: usize,
    /// The kick that the step belongs to, by number.
    kick: u64,
}

/// The inline [`Sched`], see the module.
#[derive(Default)]
pub struct InlineSched {
    /// Nanoseconds.
    clock: AtomicU64,
    next_key: AtomicU64,
    /// Counts what can change a waiter's mind.
    epoch: AtomicU64,
    /// Parked threads, workers that wait for a key, and steps under way: whom a wake concerns.
    concerned: AtomicU32,
    /// Length of `State::runnable`, for those who look without the lock.
    runnable: AtomicU32,
    state: Mutex<State>,
    parked: Condvar,
}

#[derive(Default)]
struct State {
    /// By worker number.
    workers: Vec<Slot>,
    /// Each with the kick that goes on with it.
    runnable: VecDeque<(WorkerId, u64)>,
    /// By time, then in the order in which they were entered.
    due: BTreeMap<(Tick, u64), WorkerId>,
    /// Ends of bounded waits; in one order with `due`.
    bounds: BTreeSet<(Tick, u64)>,
    on: BTreeMap<WaitOn, Vec<WorkerId>>,
    steps: Vec<StepUnderWay>,
    /// How many entries `due` and `bounds` have had, and how many kicks there were.
    entries: u64,
    /// Threads that kick, or wait and are not parked.
    inside: u32,
    parked: u32,
    /// How often all parked were let out.
    releases: u64,
}

struct Slot {
    /// None when it was found dropped.
    worker: Option<Weak<dyn Worker>>,
    phase: Phase,
}

/// Where a worker is; it is in one table at a time.
#[derive(Clone, Copy)]
enum Phase {
    Idle,
    Runnable,
    Stepping,
    /// Until its time comes, or its key is woken.
    Resting,
}

struct StepUnderWay {
    worker: WorkerId,
    /// It was kicked meanwhile.
    again: bool,
    /// Keys that were woken meanwhile.
    woken: Vec<WaitOn>,
}

/// What a waiter does next.
enum Next {
    Look,
    Step(WorkerId),
    Park,
}

impl InlineSched {
    /// A scheduler at time 0, with no workers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn is_stepping_here(&self) -> bool {
        STEPPING.get().sched == self.address()
    }

    fn make_runnable(&self, state: &mut State, worker: WorkerId, kick: u64) {
        state.workers[worker.index()].phase = Phase::Runnable;
        state.runnable.push_back((worker, kick));
        self.count_runnable(state);
    }

    /// For those who look without the lock.
    fn count_runnable(&self, state: &State) {
        let count = u32::try_from(state.runnable.len()).unwrap_or(u32::MAX);
        self.runnable.store(count, Ordering::Relaxed);
    }

    /// The next worker to be stepped without moving the clock.
    fn take_runnable(&self, state: &mut State) -> Option<WorkerId> {
        if let Some((worker, _)) = state.runnable.pop_front() {
            self.count_runnable(state);
            return Some(worker);
        }
        let entry = state.due.first_entry()?;
        (entry.key().0 <= self.now()).then(|| entry.remove())
    }

    /// The next worker that a kick goes on with.
    fn take_of_kick(&self, state: &mut State, kick: u64) -> Option<WorkerId> {
        let at = state.runnable.iter().position(|&(_, of)| of == kick)?;
        let (worker, _) = state.runnable.remove(at)?;
        self.count_runnable(state);
        Some(worker)
    }

    /// Runs one step of a worker that is in no table, for a kick if it belongs to one.
    fn step<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: WorkerId,
        kick: u64,
    ) -> MutexGuard<'a, State> {
        let slot = &mut state.workers[id.index()];
        let Some(worker) = slot.worker.as_ref().and_then(Weak::upgrade) else {
            slot.worker = None;
            slot.phase = Phase::Idle;
            return state;
        };
        slot.phase = Phase::Stepping;
        state.steps.push(StepUnderWay {
            worker: id,
            again: false,
            woken: Vec::new(),
        });
        self.concerned.fetch_add(1, Ordering::SeqCst);
        drop(state);
        let mut under_way = UnderWay {
            sched: self,
            worker: id,
            kick,
            outer: STEPPING.replace(Stepping {
                sched: self.address(),
                kick,
            }),
            is_over: false,
        };
        let next = worker.step(self.now());
        // The last reference may be ours, and what it owns may come back here: no lock is held.
        drop(worker);
        under_way.is_over = true;
        drop(under_way);
        self.settle(id, next, kick)
    }

    /// Puts a worker where its step said.
    fn settle(&self, id: WorkerId, next: Step, kick: u64) -> MutexGuard<'_, State> {
        let mut state = self.state();
        let at = state.steps.iter().position(|step| step.worker == id);
        // PANIC: not reached, `step` has entered it.
        let Some(under_way) = at.map(|at| state.steps.swap_remove(at)) else {
            return state;
        };
        self.concerned.fetch_sub(1, Ordering::SeqCst);
        let again = match next {
            Step::Again => true,
            Step::At(tick) => under_way.again || tick <= self.now(),
            Step::On(key) => under_way.woken.contains(&key),
            Step::Idle => under_way.again,
        };
        if again {
            self.make_runnable(&mut state, id, kick);
        } else {
            state.workers[id.index()].phase = match next {
                Step::Again | Step::Idle => Phase::Idle,
                Step::At(tick) => {
                    let entry = state.next_entry();
                    state.due.insert((tick, entry), id);
                    Phase::Resting
                }
                Step::On(key) => {
                    state.on.entry(key).or_default().push(id);
                    self.concerned.fetch_add(1, Ordering::SeqCst);
                    Phase::Resting
                }
            };
        }
        self.notify(&mut state);
        state
    }

    /// Something has happened: the parked look again.
    fn notify(&self, state: &mut State) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.release(state);
    }

    fn release(&self, state: &mut State) {
        if state.parked > 0 {
            state.inside += state.parked;
            state.parked = 0;
            state.releases += 1;
            self.parked.notify_all();
        }
    }

    /// Steps what is runnable, until nothing is.
    fn drain<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while let Some(worker) = self.take_runnable(&mut state) {
            state = self.step(state, worker, NO_KICK);
        }
        state
    }

    /// This thread leaves the scheduler. If it was the last inside, the parked may move the clock.
    fn leave(&self, mut state: MutexGuard<'_, State>) {
        state.inside -= 1;
        if state.inside == 0 && !state.due.is_empty() {
            self.notify(&mut state);
        }
    }

    /// What a waiter does who has looked in vain when the epoch was `seen`.
    fn next(&self, state: &mut State, seen: u64) -> Next {
        if let Some(worker) = self.take_runnable(state) {
            return Next::Step(worker);
        }
        if self.epoch.load(Ordering::SeqCst) != seen {
            return Next::Look;
        }
        if state.inside > 1 {
            return Next::Park;
        }
        let Some((&due, &worker)) = state.due.first_key_value() else {
            return Next::Park;
        };
        match state.bounds.first().copied().filter(|&bound| bound < due) {
            // Whose it is finds the clock there.
            Some(bound) => {
                state.bounds.remove(&bound);
                self.clock.fetch_max(bound.0.0, Ordering::Relaxed);
                self.notify(state);
                Next::Look
            }
            None => {
                state.due.remove(&due);
                self.clock.fetch_max(due.0.0, Ordering::Relaxed);
                Next::Step(worker)
            }
        }
    }

    /// Rests until something happens, if nothing has since the epoch was `seen`; at most until
    /// `end`, and says whether that came.
    fn park<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        seen: u64,
        end: Option<Instant>,
    ) -> (MutexGuard<'a, State>, bool) {
        let mut is_over = false;
        // ORDER: a wake counts the epoch up, then looks for the concerned; we do it the other way
        // round, so either it sees us or we see it.
        self.concerned.fetch_add(1, Ordering::SeqCst);
        if self.epoch.load(Ordering::SeqCst) == seen {
            state.inside -= 1;
            state.parked += 1;
            let releases = state.releases;
            while state.releases == releases && !is_over {
                state = match end {
                    None => {
                        let woken = self.parked.wait(state);
                        woken.unwrap_or_else(PoisonError::into_inner)
                    }
                    Some(end) => {
                        let left = end.saturating_duration_since(Instant::now());
                        is_over = left.is_zero();
                        let woken = self.parked.wait_timeout(state, left);
                        woken.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
            // Whoever lets the parked out counts them inside.
            if state.releases == releases {
                state.parked -= 1;
                state.inside += 1;
            }
        }
        self.concerned.fetch_sub(1, Ordering::SeqCst);
        (state, is_over)
    }
}

impl State {
    fn next_entry(&mut self) -> u64 {
        self.entries += 1;
        self.entries
    }
}

/// A step under way. One that unwinds says nothing and leaves its worker idle.
struct UnderWay<'a> {
    sched: &'a InlineSched,
    worker: WorkerId,
    kick: u64,
    /// What this thread was stepping before.
    outer: Stepping,
    is_over: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        STEPPING.set(self.outer);
        if !self.is_over {
            let mut state = self.sched.settle(self.worker, Step::Idle, self.kick);
            // The thread leaves without another word.
            state.inside -= 1;
        }
    }
}

impl Sched for InlineSched {
    fn now(&self) -> Tick {
        Tick(self.clock.load(Ordering::Relaxed))
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    fn wake(&self, on: WaitOn) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        if self.concerned.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut state = self.state();
        for step in &mut state.steps {
            step.woken.push(on);
        }
        for worker in state.on.remove(&on).unwrap_or_default() {
            self.concerned.fetch_sub(1, Ordering::SeqCst);
            self.make_runnable(&mut state, worker, NO_KICK);
        }
        self.release(&mut state);
    }

    fn pause(&self) {
        if self.runnable.load(Ordering::Relaxed) == 0 || self.is_stepping_here() {
            return;
        }
        let mut state = self.state();
        state.inside += 1;
        let state = self.drain(state);
        self.leave(state);
    }

    fn spawn(&self, worker: Weak<dyn Worker>) -> WorkerId {
        let mut state = self.state();
        let id = WorkerId::new(u32::try_from(state.workers.len()).unwrap_or(u32::MAX));
        state.workers.push(Slot {
            worker: Some(worker),
            phase: Phase::Idle,
        });
        id
    }

    fn kick(&self, worker: WorkerId) {
        let mut state = self.state();
        let Some(phase) = state.workers.get(worker.index()).map(|slot| slot.phase) else {
            return;
        };
        let stepping = STEPPING.get();
        // Within a step, the kick or wait that the step belongs to goes on with it.
        let goes_on_here = stepping.sched != self.address();
        let kick = if goes_on_here {
            state.next_entry()
        } else {
            stepping.kick
        };
        match phase {
            Phase::Idle if goes_on_here => {
                // It is next anyhow.
                state.inside += 1;
                state = self.step(state, worker, kick);
                state.inside -= 1;
            }
            Phase::Idle => self.make_runnable(&mut state, worker, kick),
            // The latest kick goes on with it.
            Phase::Runnable => {
                for (_, of) in state.runnable.iter_mut().filter(|entry| entry.0 == worker) {
                    *of = kick.max(*of);
                }
            }
            // Whoever steps it steps it again, if it says that it has nothing to do.
            Phase::Stepping => {
                for step in state.steps.iter_mut().filter(|step| step.worker == worker) {
                    step.again = true;
                }
                return;
            }
            // That ends its rest until a time; one for a key goes on.
            Phase::Resting => {
                let resting = state.due.len();
                state.due.retain(|_, due| *due != worker);
                if state.due.len() == resting {
                    return;
                }
                self.make_runnable(&mut state, worker, kick);
            }
        }
        if goes_on_here {
            state.inside += 1;
            while let Some(worker) = self.take_of_kick(&mut state, kick) {
                state = self.step(state, worker, kick);
            }
            self.leave(state);
        }
    }

    fn block(&self, on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool {
        // A wake of any key lets everybody look: there are few waiters.
        let _ = on;
        match poll() {
            Poll::Done => return true,
            Poll::Never => return false,
            Poll::Pending => {}
        }
        debug_assert!(!self.is_stepping_here(), "a worker waits");
        let mut state = self.state();
        state.inside += 1;
        let bound = within.map(|within| (self.now().after(within), state.next_entry()));
        state.bounds.extend(bound);
        let mut wall_end = None;
        let came = loop {
            let seen = self.epoch.load(Ordering::SeqCst);
            // Before the look: at the bound there is a last one.
            let is_over = bound.is_some_and(|(end, _)| self.now() >= end);
            drop(state);
            let look = poll();
            state = self.state();
            match look {
                Poll::Done => break true,
                Poll::Never => break false,
                Poll::Pending if is_over => break false,
                Poll::Pending => {}
            }
            match self.next(&mut state, seen) {
                Next::Look => {}
                Next::Step(worker) => state = self.step(state, worker, NO_KICK),
                Next::Park => {
                    let end = within.and_then(|within| {
                        let now = Instant::now();
                        now.checked_add(Duration::from_micros(within.0))
                    });
                    let end = *wall_end.get_or_insert(end);
                    let is_over;
                    (state, is_over) = self.park(state, seen, end);
                    if is_over && !state.steps.is_empty() {
                        // A thread that works on what may end this wait has lost its processor:
                        // the wait has not begun to be hopeless.
                        wall_end = None;
                    } else if let Some((end, _)) = bound.filter(|_| is_over) {
                        self.clock.fetch_max(end.0, Ordering::Relaxed);
                    }
                }
            }
        };
        if let Some(bound) = bound {
            state.bounds.remove(&bound);
        }
        self.leave(state);
        came
    }
}

impl std::fmt::Debug for InlineSched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InlineSched")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
