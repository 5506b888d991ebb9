//! Time and waiting on threads of the machine's own: the threaded mode of [`Sched`].
//!
//! A few threads step the workers; clients run on theirs. Time is the wall clock.
//!
//! ```text
//!   kick, wake ──► run queue ──► a thread: step ──┬ Again, kicked ──► run queue
//!                      ▲                          ├ At(later) ──► due, by time
//!                      └── its time has come ─────┴ On(key), Idle
//! ```
//!
//! **Threads** that have nothing to do look for work for a while, one of them at a time, then park:
//! until a kick, or until the next worker is due. So the kick of a busy machine costs no system
//! call, and an idle machine costs nothing.
//!
//! **Waiters** lend their thread: whoever waits steps runnable workers meanwhile. What a client has
//! ordered and waits for is so done where its bytes are cached. A client that knows that it will wait
//! [keeps](Sched::keep_kicks) its kicks: they do not come into the run queue, and no thread is woken
//! for them, before it keeps them no longer. Of others, a thread that looks for work leaves what was
//! queued just now alone for [`GRACE`] looks.
//!
//! When there is nothing to step they look, again and again, and give up their processor every
//! [`LOOKS`] looks: the worker that they wait for may need it. After [`SPINS`] of those they park:
//! until a wake of their key, until the end of their time, or until all that was due is done.
//!
//! **No lost wake.** A waiter that is about to park enters itself first, and looks then. Whoever
//! wakes has changed what the waiter looks at first, and looks for waiters then. A wake during a
//! step is kept with the step.
//!
//! **The end.** Threads hold the tables and not the scheduler, so that they do not keep it alive.
//! Its drop stops them and waits for them, unless it happens on one of them (a worker may hold the
//! last reference to its machine). A step under way is finished, what is queued is left undone.
//!
//! **Locks.** One mutex around the tables, never held while a worker steps or a waiter looks.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};

use glia_abi::handle::WorkerId;
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};

use super::workers::{self, Settled, Workers};

/// Looks between two yields.
const LOOKS: u32 = 64;
/// Yields before a waiter parks: some 50 microseconds of an idle processor.
const SPINS: u32 = 100;
/// Yields before a thread without work parks.
const IDLE_SPINS: u32 = 100;
/// Looks at queued work before a thread that looks for work takes it: some microseconds, in which
/// the client that has queued it may have come to wait for it.
const GRACE: u32 = 64;
/// The most threads that can run a machine.
// LIMIT: more than any machine has processors for engines.
pub const THREADS_MAX: u32 = 256;

thread_local! {
    static KEPT: Kept = const { Kept::nothing() };
}

/// What this thread has kicked and keeps to itself.
struct Kept {
    /// Whose workers they are.
    of: Cell<*const Shared>,
    /// How often it was told to keep them, and not yet to let them go.
    depth: Cell<u32>,
    workers: RefCell<VecDeque<WorkerId>>,
}

/// Why there are no threads to work.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// None at all, or too many.
    #[error("{threads} threads cannot run a machine: 1 to {THREADS_MAX} can")]
    Count {
        /// How many were asked for.
        threads: u32,
    },
    /// The system gives no thread.
    #[error("a thread of the machine cannot be had")]
    Spawn(#[from] std::io::Error),
}

/// The threaded [`Sched`], see the module.
pub struct ThreadedSched {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What threads and callers share.
struct Shared {
    start: Instant,
    next_key: AtomicU64,
    /// Length of the run queue, for those who look without the lock.
    queued: AtomicU32,
    /// Entered waiters, and one if a worker minds wakes: whether a wake concerns anybody.
    concerned: AtomicU32,
    is_over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    workers: Workers,
    run_queue: VecDeque<WorkerId>,
    /// By time, then in the order in which they were entered.
    due: BTreeMap<(Tick, u64), WorkerId>,
    /// How many entries `due` has had.
    entries: u64,
    /// A thread looks for work.
    is_spinning: bool,
    parked: Vec<Thread>,
    waiters: BTreeMap<WaitOn, Vec<Arc<Waiter>>>,
    /// Steps were done that parked waiters have not looked at.
    has_worked: bool,
    /// The part of `Shared::concerned` that is the workers'.
    workers_concerned: bool,
}

/// A client that parks.
struct Waiter {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Kept {
    const fn nothing() -> Self {
        Self {
            of: Cell::new(ptr::null()),
            depth: Cell::new(0),
            workers: RefCell::new(VecDeque::new()),
        }
    }

    fn is_of(&self, shared: &Shared) -> bool {
        self.depth.get() > 0 && ptr::eq(self.of.get(), shared)
    }
}

impl ThreadedSched {
    /// A scheduler with so many threads, at time 0, with no workers.
    ///
    /// # Errors
    /// [`ThreadsError`] if that is no number of threads, or the system does not give them.
    pub fn new(threads: u32) -> Result<Self, ThreadsError> {
        if threads == 0 || threads > THREADS_MAX {
            return Err(ThreadsError::Count { threads });
        }
        let shared = Arc::new(Shared {
            start: Instant::now(),
            next_key: AtomicU64::new(0),
            queued: AtomicU32::new(0),
            concerned: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
            state: Mutex::default(),
        });
        // Whatever threads there are end with it.
        let mut sched = Self {
            shared,
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&sched.shared);
            let named = Builder::new().name(format!("engines {number}"));
            sched.threads.push(named.spawn(move || shared.work())?);
        }
        Ok(sched)
    }
}

impl Drop for ThreadedSched {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        self.shared.is_over.store(true, Ordering::Relaxed);
        let parked = std::mem::take(&mut state.parked);
        drop(state);
        parked.iter().for_each(Thread::unpark);
        let here = std::thread::current().id();
        if self.threads.iter().any(|own| own.thread().id() == here) {
            // One of them cannot wait for itself, and must not for others, which may need what is
            // being dropped.
            return;
        }
        for thread in self.threads.drain(..) {
            // Steps that panic are caught.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Tick {
        let nanos = self.start.elapsed().as_nanos();
        Tick(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A thread's life.
    fn work(&self) {
        let mut state = self.state();
        while !self.is_over.load(Ordering::Relaxed) {
            self.queue_due(&mut state);
            state = match state.run_queue.pop_front() {
                Some(worker) => {
                    self.queued.fetch_sub(1, Ordering::Relaxed);
                    self.step(state, worker)
                }
                None => self.rest(state),
            };
        }
    }

    /// Keeps a worker that this thread has made runnable, if it is to; says whether it does.
    fn keep(&self, worker: WorkerId) -> bool {
        // A thread that ends, and drops what it has of a machine, keeps nothing any more.
        let kept = KEPT.try_with(|kept| {
            let keeps = kept.is_of(self);
            if keeps {
                kept.workers.borrow_mut().push_back(worker);
            }
            keeps
        });
        kept.unwrap_or(false)
    }

    /// The next one that this thread has kept.
    fn next_kept(&self) -> Option<WorkerId> {
        let next = KEPT.try_with(|kept| {
            let mut workers = kept.is_of(self).then(|| kept.workers.borrow_mut())?;
            workers.pop_front()
        });
        next.ok().flatten()
    }

    /// Queues what this thread has kept.
    fn queue_kept(&self, workers: VecDeque<WorkerId>) {
        if workers.is_empty() {
            return;
        }
        let mut state = self.state();
        for worker in workers {
            self.queue(&mut state, worker);
        }
        let helper = state.helper();
        drop(state);
        if let Some(helper) = helper {
            helper.unpark();
        }
    }

    /// Queues a worker that has become runnable.
    fn queue(&self, state: &mut State, worker: WorkerId) {
        state.run_queue.push_back(worker);
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues those whose time has come.
    fn queue_due(&self, state: &mut State) {
        if state.due.is_empty() {
            return;
        }
        let now = self.now();
        while let Some(entry) = state.due.first_entry()
            && entry.key().0 <= now
        {
            let worker = entry.remove();
            state.workers.is_due(worker);
            self.queue(state, worker);
        }
    }

    /// Runs one step of a runnable worker.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>, id: WorkerId) -> MutexGuard<'a, State> {
        let Some(worker) = state.workers.begin(id) else {
            return state;
        };
        self.count_workers(&mut state);
        // What is left in the queue needs another thread.
        let helper = state.helper();
        drop(state);
        if let Some(helper) = helper {
            helper.unpark();
        }
        // ORDER: the step is known to wakers before it looks; pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        // A panic has been told by its hook; the machine goes on without that step.
        let (next, _panic) = workers::step(worker, self.now());
        let mut state = self.state();
        state.has_worked = true;
        match state.workers.settle(id, next, self.now()) {
            Settled::Runnable if self.keep(id) => {}
            Settled::Runnable => self.queue(&mut state, id),
            Settled::Due(tick) => {
                state.entries += 1;
                let entry = (tick, state.entries);
                state.due.insert(entry, id);
            }
            Settled::Rests => {}
        }
        self.count_workers(&mut state);
        state
    }

    /// Tells wakers whether a worker minds them.
    fn count_workers(&self, state: &mut State) {
        let are_concerned = state.workers.mind_wakes();
        if are_concerned && !state.workers_concerned {
            self.concerned.fetch_add(1, Ordering::Relaxed);
        } else if !are_concerned && state.workers_concerned {
            self.concerned.fetch_sub(1, Ordering::Relaxed);
        }
        state.workers_concerned = are_concerned;
    }

    /// Passes the time of a thread that has nothing to do, until it may have.
    fn rest<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let next_due = state.next_due();
        if !state.is_spinning {
            state.is_spinning = true;
            drop(state);
            let has_found = (0..IDLE_SPINS).any(|_| {
                std::thread::yield_now();
                (0..LOOKS).any(|_| {
                    std::hint::spin_loop();
                    self.is_left_alone() || self.is_over.load(Ordering::Relaxed)
                }) || next_due.is_some_and(|due| self.now() >= due)
            });
            state = self.state();
            state.is_spinning = false;
            if has_found || !state.run_queue.is_empty() || self.is_over.load(Ordering::Relaxed) {
                return state;
            }
        }
        self.tell_all_done(&mut state);
        // Whoever queues work, or ends the scheduler, does so under the lock and finds us parked.
        state.parked.push(std::thread::current());
        let next_due = state.next_due();
        drop(state);
        match next_due {
            None => std::thread::park(),
            Some(due) => {
                let left = due.0.saturating_sub(self.now().0);
                std::thread::park_timeout(Duration::from_nanos(left));
            }
        }
        let mut state = self.state();
        let here = std::thread::current().id();
        state.parked.retain(|parked| parked.id() != here);
        state
    }

    /// Whether work has been queued for a while, and nobody who waits has taken it.
    fn is_left_alone(&self) -> bool {
        (0..GRACE).all(|_| {
            let is_queued = self.queued.load(Ordering::Relaxed) > 0;
            std::hint::spin_loop();
            is_queued
        })
    }

    /// Lets parked waiters look, if all that was due has been done since they did.
    fn tell_all_done(&self, state: &mut State) {
        let is_done = state.run_queue.is_empty() && !state.workers.are_stepping();
        if is_done && std::mem::take(&mut state.has_worked) {
            let waiters = std::mem::take(&mut state.waiters);
            self.release(waiters.into_values().flatten());
        }
    }

    /// Steps a runnable worker on the thread of a client that waits. Says whether there was one.
    fn help(&self) -> bool {
        let kept = self.next_kept();
        if kept.is_none() && self.queued.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut state = self.state();
        let worker = match kept {
            Some(worker) => worker,
            None => {
                let Some(worker) = state.run_queue.pop_front() else {
                    return false;
                };
                self.queued.fetch_sub(1, Ordering::Relaxed);
                worker
            }
        };
        let entries = state.entries;
        let mut state = self.step(state, worker);
        self.tell_all_done(&mut state);
        // This client may not wait any more: what is left in the queue needs a thread. And a parked
        // one does not know of a worker whose time comes before that of those it knew.
        let is_later = state.entries != entries && !state.is_spinning;
        let helper = match state.helper() {
            None if is_later => state.parked.pop(),
            helper => helper,
        };
        drop(state);
        if let Some(helper) = helper {
            helper.unpark();
        }
        true
    }

    /// Lets waiters that were taken out of the table look.
    fn release(&self, waiters: impl Iterator<Item = Arc<Waiter>>) {
        for waiter in waiters {
            self.concerned.fetch_sub(1, Ordering::Relaxed);
            waiter.is_woken.store(true, Ordering::Release);
            waiter.thread.unpark();
        }
    }

    fn wake(&self, on: WaitOn) {
        // ORDER: what the waker did comes before its look for the concerned, who are known before
        // they look at it.
        fence(Ordering::SeqCst);
        if self.concerned.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state();
        for worker in state.workers.wake(on) {
            self.queue(&mut state, worker);
        }
        self.count_workers(&mut state);
        let waiters = state.waiters.remove(&on);
        let helper = state.helper();
        drop(state);
        self.release(waiters.into_iter().flatten());
        if let Some(helper) = helper {
            helper.unpark();
        }
    }
}

impl State {
    fn next_due(&self) -> Option<Tick> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// A parked thread for queued work that nobody is about to find. It is known no more, so the
    /// caller must unpark it.
    #[must_use]
    fn helper(&mut self) -> Option<Thread> {
        if self.run_queue.is_empty() || self.is_spinning {
            return None;
        }
        self.parked.pop()
    }
}

/// A waiter in the table; out of it when this is dropped.
struct Entered<'a> {
    shared: &'a Shared,
    on: WaitOn,
    waiter: Arc<Waiter>,
}

impl<'a> Entered<'a> {
    fn new(shared: &'a Shared, on: WaitOn) -> Self {
        let waiter = Arc::new(Waiter {
            thread: std::thread::current(),
            is_woken: AtomicBool::new(false),
        });
        let mut state = shared.state();
        let waiting = state.waiters.entry(on).or_default();
        waiting.push(Arc::clone(&waiter));
        shared.concerned.fetch_add(1, Ordering::Relaxed);
        drop(state);
        // ORDER: known to wakers before it looks; pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        Self { shared, on, waiter }
    }

    fn is_woken(&self) -> bool {
        self.waiter.is_woken.load(Ordering::Acquire)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.is_woken() {
            return;
        }
        let mut state = self.shared.state();
        let Some(waiting) = state.waiters.get_mut(&self.on) else {
            return;
        };
        let before = waiting.len();
        waiting.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        if waiting.len() < before {
            self.shared.concerned.fetch_sub(1, Ordering::Relaxed);
        }
        if waiting.is_empty() {
            state.waiters.remove(&self.on);
        }
    }
}

impl Sched for ThreadedSched {
    fn now(&self) -> Tick {
        self.shared.now()
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(self.shared.next_key.fetch_add(1, Ordering::Relaxed))
    }

    fn wake(&self, on: WaitOn) {
        self.shared.wake(on);
    }

    /// Nothing: the system decides which client runs.
    fn pause(&self) {}

    fn spawn(&self, worker: Weak<dyn Worker>) -> WorkerId {
        self.shared.state().workers.add(worker)
    }

    fn kick(&self, worker: WorkerId) {
        let mut state = self.shared.state();
        if !state.workers.kick(worker) {
            return;
        }
        if !state.due.is_empty() {
            state.due.retain(|_, due| *due != worker);
        }
        if self.shared.keep(worker) {
            return;
        }
        self.shared.queue(&mut state, worker);
        let helper = state.helper();
        drop(state);
        if let Some(helper) = helper {
            helper.unpark();
        }
    }

    fn keep_kicks(&self, keep: bool) {
        let shared = &*self.shared;
        let left = KEPT.try_with(|kept| {
            let depth = kept.depth.get();
            if depth == 0 {
                kept.of.set(shared);
            } else if !ptr::eq(kept.of.get(), shared) {
                // It keeps another scheduler's.
                return VecDeque::new();
            }
            let depth = if keep {
                depth + 1
            } else {
                depth.saturating_sub(1)
            };
            kept.depth.set(depth);
            match depth == 0 && !kept.workers.borrow().is_empty() {
                true => kept.workers.take(),
                // What has been done leaves its room to the next ones.
                false => VecDeque::new(),
            }
        });
        shared.queue_kept(left.unwrap_or_default());
    }

    fn block(&self, on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool {
        let shared = &*self.shared;
        debug_assert!(!workers::is_in_step(), "a worker waits");
        let mut look = || match poll() {
            Poll::Done => Some(true),
            Poll::Never => Some(false),
            Poll::Pending => None,
        };
        if let Some(ended) = look() {
            return ended;
        }
        let end = within.map(|within| shared.now().after(within));
        let is_over = || end.is_some_and(|end| shared.now() >= end);
        for _ in 0..SPINS {
            while shared.help() {
                if let Some(ended) = look() {
                    return ended;
                }
                if is_over() {
                    break;
                }
            }
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if let Some(ended) = look() {
                    return ended;
                }
            }
            if is_over() {
                break;
            }
            std::thread::yield_now();
        }
        loop {
            let entered = Entered::new(shared, on);
            // Before the look: at the end there is a last one.
            let was_over = is_over();
            if let Some(ended) = look() {
                return ended;
            }
            if was_over {
                return false;
            }
            while !entered.is_woken() && !is_over() {
                match end {
                    None => std::thread::park(),
                    Some(end) => {
                        let left = end.0.saturating_sub(shared.now().0);
                        std::thread::park_timeout(Duration::from_nanos(left));
                    }
                }
            }
        }
    }
}

impl std::fmt::Debug for ThreadedSched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadedSched")
            .field("now", &self.now())
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}
