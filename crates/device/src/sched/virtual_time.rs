//! Time by decree, and one thing at a time: the virtual mode of [`Sched`].
//!
//! Clients are threads that pass a baton: whoever holds it runs, all others rest. At every switch
//! point (a pause, a wait that looks in vain, the end of a client) a generator, started from a
//! seed, picks what goes on next, each as likely as any other:
//!
//! ```text
//!   runnable:   client, client, worker ──► one of them ──┬ worker: a step, on this thread
//!       ▲                                                └ client: gets the baton
//!       │ woken, kicked, or its time has come
//!   resting:    Idle, On(key)   ·   timers: At(later), the end of a bounded wait, a held client
//! ```
//!
//! **Time** stands still while anything is runnable. Then those who have not looked since the last
//! step look, and then the clock moves to the first timer. In a run of several clients, some pauses
//! hold their client back for a while ([`HELD_ONE_IN`]); while one is, time passes now and then
//! ([`PASSES_ONE_IN`]) though other clients could run: waits end, and late work comes, before they
//! go on. It never passes over a worker that could. A client that is alone is not held back; time
//! passes as often at its pauses, so that what it looks for between them comes.
//!
//! **A wait for what cannot come** runs its time, as it would on hardware; everybody else goes on
//! meanwhile. It looks again after a wake, since a reset may have changed the prospects. Without a
//! bound it ends at once.
//!
//! **Nothing left**: if nobody is runnable and there is no timer, every client waits for good. All
//! are unwound then, from their waits, and the run's error says who waited for what. (Drops that
//! wait while they are unwound wait as usual; if that leads to nothing again, the process is
//! aborted, as for a panic in such a drop.)
//!
//! **Same seed, same run.** Decisions depend on nothing but the seed and what clients and workers
//! did before: not on threads, addresses or real time. That holds as far as clients meet only
//! through this scheduler. A mutex must not be held at a switch point: what its next taker waits
//! for does not get the baton.
//!
//! **Visitors** are threads that are no client of a run: they may use the scheduler, too. One at a
//! time, and while no run is under way, such a thread is the only client for the length of one
//! call, and has the baton. A wait for which nothing is left is parked until another visitor does
//! something; with nobody else about that is a hang. During a run a visitor's pauses and waits
//! begin when the run is over; its kicks and wakes take effect at once, at the price of a run that
//! cannot be had again.
//!
//! **Locks.** One mutex around the tables, never held while a worker steps, a waiter looks or a
//! client runs.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{Builder, Thread};

use glia_abi::chance::Chance;
use glia_abi::handle::WorkerId;
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};

use super::clients::{Actor, Client, Deadlock, Panicked, RunError, Waiting, outcome};
use super::workers::{self, Settled, Workers};

/// One pause of so many holds its client back, where there are others.
pub const HELD_ONE_IN: u64 = 16;
/// A client is held back for at most this long: 1, 2, 4, … microseconds, each as likely as any
/// other, so that every scale of time is met.
pub const HELD_MAX: Micros = Micros(1 << 14);
/// While a client is held back and only clients are runnable, one choice of so many is that the
/// clock moves to the first timer; and of a client that is alone one pause of so many. More often
/// than a client is held, so that most are not.
pub const PASSES_ONE_IN: u64 = 4;
/// Yields before a client that waits for the baton parks.
const SPINS: u32 = 200;

thread_local! {
    /// The client that this thread is, and the address of its scheduler.
    static SEAT: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// The virtual [`Sched`], see the module.
pub struct VirtualSched {
    /// Nanoseconds.
    clock: AtomicU64,
    next_key: AtomicU64,
    state: Mutex<State>,
    /// For visitors that want to get in, or wait for each other, and for runs.
    changed: Condvar,
}

struct State {
    random: Chance,
    workers: Workers,
    runnable: Vec<Task>,
    /// By time, then in the order in which they were entered.
    timers: BTreeMap<(Tick, u64), Task>,
    /// How many entries `timers` has had.
    entries: u64,
    /// Of the run under way, or the one visitor.
    seats: Vec<Seat>,
    turn: Turn,
    /// Steps done so far.
    steps: u64,
    /// Kicks, wakes and steps so far: what a parked visitor waits for.
    changes: u64,
    /// Threads that wait for `changed`.
    outside: u32,
    /// What the run under way has come to.
    deadlock: Option<Deadlock>,
    /// Even unwinding did not end it.
    is_beyond_help: bool,
    panics: Vec<Panicked>,
}

/// What can go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Client(usize),
    Worker(WorkerId),
}

/// Who may use the scheduler.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Nobody,
    Visitor,
    Run,
}

/// A client's.
struct Seat {
    baton: Arc<Baton>,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    /// It has the baton or is among the runnable.
    Active,
    /// Until its time comes.
    Held,
    Waits(Wait),
    Ended,
}

/// A wait under way.
#[derive(Clone, Copy)]
struct Wait {
    on: WaitOn,
    since: Tick,
    /// Neither looking nor among the runnable.
    rests: bool,
    /// Its key was woken since it began to look.
    is_woken: bool,
    /// Steps done when it began to look.
    steps_seen: u64,
}

/// What is unwound through a client that waits for good.
struct Hopeless;

/// The right to run, as one client is given it.
#[derive(Default)]
struct Baton {
    is_here: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Baton {
    fn give(&self) {
        self.is_here.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Rests until it is given.
    fn take(&self) {
        for _ in 0..SPINS {
            if self.is_here.swap(false, Ordering::Acquire) {
                return;
            }
            // Whoever has it may need this processor.
            std::thread::yield_now();
        }
        while !self.is_here.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl VirtualSched {
    /// A scheduler at time 0, with no workers, whose decisions follow from the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            clock: AtomicU64::new(0),
            next_key: AtomicU64::new(0),
            state: Mutex::new(State {
                random: Chance::new(seed),
                workers: Workers::default(),
                runnable: Vec::new(),
                timers: BTreeMap::new(),
                entries: 0,
                seats: Vec::new(),
                turn: Turn::Nobody,
                steps: 0,
                changes: 0,
                outside: 0,
                deadlock: None,
                is_beyond_help: false,
                panics: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Runs clients, each on a thread of its own and one at a time, and returns when all have
    /// ended. Their numbers are their places in `clients`. Work that nobody waited for may be left;
    /// it is done when the scheduler is used next.
    ///
    /// # Errors
    /// [`RunError::Broken`] if clients waited for each other without end (all are unwound), or if a
    /// client or a worker panicked (the others come to their end). [`RunError::Nested`] within a
    /// client or worker of this scheduler, [`RunError::NoThread`] if the system gives no thread; no
    /// client has run then.
    pub fn run(&self, clients: Vec<Client<'_>>) -> Result<(), RunError> {
        if self.seat().is_some() || workers::is_in_step() {
            return Err(RunError::Nested);
        }
        let batons: Vec<_> = clients.iter().map(|_| Arc::<Baton>::default()).collect();
        let mut state = self.admit(self.state(), Turn::Run);
        state.seats = batons.iter().cloned().map(Seat::new).collect();
        state.runnable.extend((0..clients.len()).map(Task::Client));
        drop(state);
        let is_called_off = &AtomicBool::new(false);
        let mut started = Ok(());
        std::thread::scope(|scope| {
            for (number, (client, baton)) in clients.into_iter().zip(&batons).enumerate() {
                let life = move || self.live(number, baton, client, is_called_off);
                let name = Builder::new().name(format!("client {number}"));
                match name.spawn_scoped(scope, life) {
                    Ok(thread) => {
                        baton.thread.get_or_init(|| thread.thread().clone());
                    }
                    Err(source) => {
                        is_called_off.store(true, Ordering::Relaxed);
                        self.state().strike(number..);
                        let client = number;
                        started = Err(RunError::NoThread { client, source });
                        break;
                    }
                }
            }
            let state = self.state();
            if state.is_anybody_left() {
                drop(self.switch(state, None));
            }
        });
        let mut state = self.state();
        state.seats.clear();
        state.is_beyond_help = false;
        let (deadlock, panics) = (state.deadlock.take(), std::mem::take(&mut state.panics));
        self.dismiss(state);
        started.and_then(|()| outcome(deadlock, panics))
    }

    /// A client's life, on its thread.
    fn live(&self, number: usize, baton: &Baton, client: Client<'_>, is_called_off: &AtomicBool) {
        SEAT.set(Some((number, self.address())));
        baton.take();
        let ended = if is_called_off.load(Ordering::Relaxed) {
            drop(client);
            Ok(())
        } else {
            // What it leaves behind is seen by those who asked for the run.
            catch_unwind(AssertUnwindSafe(client))
        };
        let mut state = self.state();
        if let Err(payload) = ended
            && !payload.is::<Hopeless>()
        {
            let panicked = Panicked::new(Actor::Client(number), payload);
            state.panics.push(panicked);
        }
        state.seats[number].phase = Phase::Ended;
        if state.is_anybody_left() {
            drop(self.switch(state, None));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The client of the run under way that calls.
    fn seat(&self) -> Option<usize> {
        let seat = SEAT.get().filter(|(_, sched)| *sched == self.address());
        seat.map(|(seat, _)| seat)
    }

    /// Waits until nobody has the scheduler, and takes it.
    fn admit<'a>(&'a self, mut state: MutexGuard<'a, State>, who: Turn) -> MutexGuard<'a, State> {
        while state.turn != Turn::Nobody {
            state = self.wait_outside(state);
        }
        state.turn = who;
        state
    }

    /// Lets others take the scheduler.
    fn dismiss(&self, mut state: MutexGuard<'_, State>) {
        state.turn = Turn::Nobody;
        self.note_change(&mut state);
    }

    fn wait_outside<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.outside += 1;
        let woken = self.changed.wait(state);
        let mut state = woken.unwrap_or_else(PoisonError::into_inner);
        state.outside -= 1;
        state
    }

    fn note_change(&self, state: &mut State) {
        state.changes += 1;
        if state.outside > 0 {
            self.changed.notify_all();
        }
    }

    /// Lets run what is picked, until that is `me`; if there is no `me`, until a client is.
    ///
    /// `me` is among the runnable, held or resting.
    fn switch<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        me: Option<usize>,
    ) -> MutexGuard<'a, State> {
        loop {
            match self.pick(&mut state) {
                Some(Task::Worker(worker)) => state = self.step(state, worker),
                Some(Task::Client(client)) if Some(client) == me => return state,
                Some(Task::Client(client)) => {
                    let next = Arc::clone(&state.seats[client].baton);
                    let mine = me.map(|me| Arc::clone(&state.seats[me].baton));
                    drop(state);
                    next.give();
                    if let Some(mine) = mine {
                        mine.take();
                    }
                    return self.state();
                }
                None if state.turn == Turn::Visitor => return self.park(state),
                None => state.despair(self.now()),
            }
        }
    }

    /// What goes on next; none if nothing ever will.
    fn pick(&self, state: &mut State) -> Option<Task> {
        if state.may_pass_time() && state.random.below(PASSES_ONE_IN) == 0 {
            self.pass_time(state)?;
        }
        while state.runnable.is_empty() {
            state.let_look();
            if state.runnable.is_empty() {
                self.pass_time(state)?;
            }
        }
        let count = state.runnable.len();
        let chosen = match count {
            1 => 0,
            _ => state.random.below(count as u64),
        };
        // CAST: below the length of a Vec.
        let chosen = usize::try_from(chosen).unwrap_or(0);
        Some(state.runnable.swap_remove(chosen))
    }

    /// Moves the clock to the first timer; none if there is none.
    fn pass_time(&self, state: &mut State) -> Option<()> {
        let (&(tick, _), _) = state.timers.first_key_value()?;
        self.clock.fetch_max(tick.0, Ordering::Relaxed);
        while let Some(entry) = state.timers.first_entry()
            && entry.key().0 <= tick
        {
            match entry.remove() {
                Task::Client(client) => state.rouse(client),
                Task::Worker(worker) => {
                    state.workers.is_due(worker);
                    state.runnable.push(Task::Worker(worker));
                }
            }
        }
        Some(())
    }

    /// Runs one step of a runnable worker.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>, id: WorkerId) -> MutexGuard<'a, State> {
        let Some(worker) = state.workers.begin(id) else {
            return state;
        };
        drop(state);
        let (next, panic) = workers::step(worker, self.now());
        let mut state = self.state();
        state.steps += 1;
        match state.workers.settle(id, next, self.now()) {
            Settled::Runnable => state.runnable.push(Task::Worker(id)),
            Settled::Due(tick) => {
                state.enter_timer(tick, Task::Worker(id));
            }
            Settled::Rests => {}
        }
        self.note_change(&mut state);
        match panic {
            None => state,
            Some(payload) if state.turn == Turn::Run => {
                let panicked = Panicked::new(Actor::Worker(id), payload);
                state.panics.push(panicked);
                state
            }
            Some(payload) => {
                // There is no report: it goes to whoever made the worker step.
                drop(state);
                resume_unwind(payload)
            }
        }
    }

    /// A visitor lets others in until one of them has done something.
    fn park<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let mine = std::mem::take(&mut state.seats);
        let seen = state.changes;
        state.turn = Turn::Nobody;
        if state.outside > 0 {
            self.changed.notify_all();
        }
        while state.changes == seen || state.turn != Turn::Nobody {
            state = self.wait_outside(state);
        }
        state.turn = Turn::Visitor;
        state.seats = mine;
        for seat in &mut state.seats {
            if let Phase::Waits(wait) = &mut seat.phase {
                wait.rests = false;
            }
        }
        state
    }

    /// The caller's client, with the baton.
    fn enter(&self) -> Present<'_> {
        if let Some(seat) = self.seat() {
            return Present {
                sched: self,
                seat,
                is_visitor: false,
            };
        }
        let mut state = self.admit(self.state(), Turn::Visitor);
        state.seats.push(Seat::new(Arc::default()));
        Present {
            sched: self,
            seat: 0,
            is_visitor: true,
        }
    }

    /// Looks until the wait is over, and says whether what it waited for came.
    fn wait(&self, waiting: &Waits<'_>, poll: &mut dyn FnMut() -> Poll) -> bool {
        let seat = waiting.present.seat;
        loop {
            {
                let mut state = self.state();
                let steps = state.steps;
                if let Phase::Waits(wait) = &mut state.seats[seat].phase {
                    wait.is_woken = false;
                    wait.steps_seen = steps;
                }
            }
            // Before the look: at the end there is a last one.
            let is_over = waiting.end.is_some_and(|(end, _)| self.now() >= end);
            match poll() {
                Poll::Done => return true,
                Poll::Never if waiting.end.is_none() => return false,
                Poll::Never | Poll::Pending if is_over => return false,
                Poll::Never | Poll::Pending => {}
            }
            let mut state = self.state();
            if let Phase::Waits(wait) = &mut state.seats[seat].phase {
                wait.rests = true;
                if wait.is_woken {
                    state.rouse(seat);
                }
            }
            let state = self.switch(state, Some(seat));
            let is_hopeless = state.deadlock.is_some() && !std::thread::panicking();
            if is_hopeless || state.is_beyond_help {
                drop(state);
                resume_unwind(Box::new(Hopeless) as Box<dyn Any + Send>);
            }
        }
    }
}

impl Seat {
    fn new(baton: Arc<Baton>) -> Self {
        Self {
            baton,
            phase: Phase::Active,
        }
    }
}

impl State {
    fn is_anybody_left(&self) -> bool {
        let mut phases = self.seats.iter().map(|seat| seat.phase);
        phases.any(|phase| !matches!(phase, Phase::Ended))
    }

    /// Whether anybody could run while a client is held.
    fn has_company(&self) -> bool {
        let phases = self.seats.iter().map(|seat| seat.phase);
        let left = phases.filter(|phase| !matches!(phase, Phase::Ended));
        self.turn == Turn::Run && left.count() > 1
    }

    /// Whether time may pass though a client could run: one is held back, or nobody else is left and
    /// something is to come. No worker is runnable then.
    fn may_pass_time(&self) -> bool {
        if let [Task::Client(only)] = *self.runnable
            && !self.has_company()
        {
            let pauses = matches!(self.seats[only].phase, Phase::Active);
            return pauses && !self.timers.is_empty();
        }
        let mut seats = self.seats.iter();
        seats.any(|seat| matches!(seat.phase, Phase::Held))
            && !self
                .runnable
                .iter()
                .any(|task| matches!(task, Task::Worker(_)))
    }

    /// These clients never came to life.
    fn strike(&mut self, clients: std::ops::RangeFrom<usize>) {
        for seat in &mut self.seats[clients.clone()] {
            seat.phase = Phase::Ended;
        }
        self.runnable.retain(|task| match task {
            Task::Client(client) => !clients.contains(client),
            Task::Worker(_) => true,
        });
    }

    fn enter_timer(&mut self, tick: Tick, task: Task) -> (Tick, u64) {
        self.entries += 1;
        let entry = (tick, self.entries);
        self.timers.insert(entry, task);
        entry
    }

    /// Makes a client runnable if it is not: its key was woken, or its time has come.
    fn rouse(&mut self, client: usize) {
        match &mut self.seats[client].phase {
            Phase::Waits(wait) if wait.rests => wait.rests = false,
            phase @ Phase::Held => *phase = Phase::Active,
            Phase::Waits(_) | Phase::Active | Phase::Ended => return,
        }
        self.runnable.push(Task::Client(client));
    }

    /// Makes resting clients runnable.
    fn rouse_those(&mut self, who: impl Fn(&Wait) -> bool) {
        for client in 0..self.seats.len() {
            if let Phase::Waits(wait) = &self.seats[client].phase
                && wait.rests
                && who(wait)
            {
                self.rouse(client);
            }
        }
    }

    /// No work is left: whoever has not looked since the last step looks.
    fn let_look(&mut self) {
        let steps = self.steps;
        self.rouse_those(|wait| wait.steps_seen != steps);
    }

    /// Every client waits for good: all are to be unwound.
    fn despair(&mut self, at: Tick) {
        let waiting = self.seats.iter().enumerate();
        let waiting = waiting.filter_map(|(client, seat)| match seat.phase {
            Phase::Waits(Wait { on, since, .. }) => Some(Waiting { client, on, since }),
            Phase::Active | Phase::Held | Phase::Ended => None,
        });
        let deadlock = Deadlock {
            at,
            waiting: waiting.collect(),
        };
        self.is_beyond_help = self.deadlock.is_some();
        self.deadlock.get_or_insert(deadlock);
        self.rouse_those(|_| true);
    }
}

/// A client that is inside the scheduler. A visitor leaves when this is dropped.
struct Present<'a> {
    sched: &'a VirtualSched,
    seat: usize,
    is_visitor: bool,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        if !self.is_visitor {
            return;
        }
        let mut state = self.sched.state();
        state.seats.clear();
        // A step that panicked may have left it there.
        state
            .runnable
            .retain(|task| matches!(task, Task::Worker(_)));
        self.sched.dismiss(state);
    }
}

/// A client that waits, until this is dropped.
struct Waits<'a> {
    present: Present<'a>,
    /// Its entry among the timers.
    end: Option<(Tick, u64)>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.present.sched.state();
        if let Some(end) = self.end {
            state.timers.remove(&end);
        }
        if let Some(seat) = state.seats.get_mut(self.present.seat) {
            seat.phase = Phase::Active;
        }
    }
}

impl Sched for VirtualSched {
    fn now(&self) -> Tick {
        Tick(self.clock.load(Ordering::Relaxed))
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    fn wake(&self, on: WaitOn) {
        let mut state = self.state();
        for worker in state.workers.wake(on) {
            state.runnable.push(Task::Worker(worker));
        }
        for seat in &mut state.seats {
            if let Phase::Waits(wait) = &mut seat.phase {
                wait.is_woken |= wait.on == on;
            }
        }
        state.rouse_those(|wait| wait.on == on);
        self.note_change(&mut state);
    }

    fn pause(&self) {
        if workers::is_in_step() {
            return;
        }
        let present = self.enter();
        let mut state = self.state();
        if state.has_company() && state.random.below(HELD_ONE_IN) == 0 {
            let scales = u64::from(HELD_MAX.0.ilog2()) + 1;
            let length = Micros(1 << state.random.below(scales));
            state.seats[present.seat].phase = Phase::Held;
            state.enter_timer(self.now().after(length), Task::Client(present.seat));
        } else {
            state.runnable.push(Task::Client(present.seat));
        }
        drop(self.switch(state, Some(present.seat)));
    }

    fn spawn(&self, worker: Weak<dyn Worker>) -> WorkerId {
        self.state().workers.add(worker)
    }

    /// Hopeless waits run their length here.
    fn gives_up_at_once(&self) -> bool {
        false
    }

    /// Only lets the worker run: when it does is decided at the caller's next switch point.
    fn kick(&self, worker: WorkerId) {
        let mut state = self.state();
        if state.workers.kick(worker) {
            state.timers.retain(|_, task| *task != Task::Worker(worker));
            state.runnable.push(Task::Worker(worker));
            self.note_change(&mut state);
        }
    }

    fn block(&self, on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool {
        match poll() {
            Poll::Done => return true,
            Poll::Never if within.is_none() => return false,
            Poll::Never | Poll::Pending => {}
        }
        debug_assert!(!workers::is_in_step(), "a worker waits");
        if workers::is_in_step() {
            return false;
        }
        let present = self.enter();
        let mut state = self.state();
        let since = self.now();
        let end = within.map(|within| {
            let end = since.after(within);
            state.enter_timer(end, Task::Client(present.seat))
        });
        state.seats[present.seat].phase = Phase::Waits(Wait {
            on,
            since,
            rests: false,
            is_woken: false,
            steps_seen: 0,
        });
        drop(state);
        let waiting = Waits { present, end };
        self.wait(&waiting, poll)
    }
}

impl std::fmt::Debug for VirtualSched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualSched")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
