//! A scheduler with a clock that moves by decree: when every client rests and no work is due, it
//! is the next time at which somebody wants to go on.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::ThreadId;

use glia_abi::conformance::sched::{Client, Mode, SchedFixture, threads};
use glia_abi::conformance::{Violation, sched, sleep_lock, worker};
use glia_abi::handle::WorkerId;
use glia_abi::sched::{Micros, Poll, Sched, Step, Tick, WaitOn, Worker};

use crate::breaks;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    // Time and waits.
    TimeGoesBack,
    KeysRepeat,
    LooksTwice,
    NeverIsDone,
    LosesEarlyWakes,
    WakesItselfOnly,
    WakesOne,
    EndsEarly,
    OverIsDone,
    // Workers.
    OneIdForAll,
    AgainIsIdle,
    StepsOnceMore,
    WorksLater,
    LosesKicksInSteps,
    StepsInSteps,
    WorkersKickNobody,
    NeverDue,
    IgnoresTimes,
    KicksWaitForTimes,
    JumpsToTheLast,
    IgnoresKeys,
    AnyWakeWakesWorkers,
    LosesWakesInSteps,
    WakesNoWorkers,
    NoLooksAfterWork,
    KeepsWorkers,
    MissesDroppedWorkers,
    StopsAtDroppedWorkers,
    SpawnsKicked,
    StepsAhead,
    StepsGoBack,
}

/// Why a worker rests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Ready,
    At(Tick),
    On(WaitOn),
    Idle,
}

struct Known {
    worker: Weak<dyn Worker>,
    rest: Rest,
    kicked: bool,
    stepping: bool,
    /// Keys that were woken during the step.
    woken: Vec<WaitOn>,
}

struct Waiter {
    on: WaitOn,
    woken: bool,
    resting: bool,
    deadline: Option<Tick>,
    thread: ThreadId,
}

#[derive(Default)]
struct State {
    now: Tick,
    asked: u64,
    next_key: u64,
    next_waiter: u64,
    waiters: BTreeMap<u64, Waiter>,
    workers: Vec<Known>,
    kept: Vec<Arc<dyn Worker>>,
    steps: u64,
    /// Threads that are in a step.
    in_step: Vec<ThreadId>,
    clients: usize,
    /// A mutant works no more.
    stuck: bool,
}

struct FakeSched {
    flaw: Flaw,
    mode: Mode,
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    fn wake_all(&mut self) {
        self.waiters
            .values_mut()
            .for_each(|waiter| waiter.woken = true);
    }

    fn runnable(&self, flaw: Flaw) -> Option<usize> {
        let due = |known: &Known| match known.rest {
            Rest::Ready => Some(Tick(0)),
            Rest::Idle => known.kicked.then_some(Tick(0)),
            Rest::At(at) if known.kicked && flaw != Flaw::KicksWaitForTimes => {
                Some(at.min(self.now))
            }
            Rest::At(at) => (at <= self.now).then_some(at),
            Rest::On(_) => None,
        };
        let free = |known: &Known| !known.stepping || flaw == Flaw::StepsInSteps;
        let candidates = self
            .workers
            .iter()
            .enumerate()
            .filter_map(|(index, known)| {
                let at = due(known).filter(|_| free(known))?;
                Some((at, index))
            });
        let next = match flaw {
            Flaw::JumpsToTheLast => candidates.max(),
            _ => candidates.min(),
        };
        next.map(|(_, index)| index).filter(|_| !self.stuck)
    }

    /// Everybody rests: time moves to the next point at which somebody goes on.
    fn advance(&mut self, flaw: Flaw) {
        let ends = self.waiters.values().filter_map(|waiter| waiter.deadline);
        let due = self.workers.iter().filter_map(|known| match known.rest {
            Rest::At(at) => Some(at),
            _ => None,
        });
        let next = match flaw {
            Flaw::JumpsToTheLast => due.clone().max().or(ends.min()),
            _ => ends.chain(due).min(),
        };
        self.now = self
            .now
            .max(next.expect("a client waits for what never comes"));
        self.wake_all();
    }
}

impl FakeSched {
    fn new(flaw: Flaw, mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            flaw,
            mode,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Does one step of due work, if there is any.
    fn work(&self) -> bool {
        let me = std::thread::current().id();
        let mut state = self.state.lock().unwrap();
        let Some(index) = state.runnable(self.flaw) else {
            return false;
        };
        state.steps += 1;
        let now = match self.flaw {
            Flaw::StepsAhead => state.now.after(Micros(1)),
            Flaw::StepsGoBack => Tick(1_000_000 - state.steps),
            _ => state.now,
        };
        let known = &mut state.workers[index];
        known.woken.clear();
        known.stepping = true;
        if self.flaw != Flaw::StepsOnceMore {
            known.kicked = false;
        }
        let worker = match self.flaw {
            Flaw::MissesDroppedWorkers => Some(known.worker.upgrade().expect("it is alive")),
            _ => known.worker.upgrade(),
        };
        state.stuck = worker.is_none() && self.flaw == Flaw::StopsAtDroppedWorkers;
        state.in_step.push(me);
        drop(state);
        let step = worker.map_or(Step::Idle, |worker| worker.step(now));

        let mut state = self.state.lock().unwrap();
        state.in_step.retain(|thread| *thread != me);
        let known = &mut state.workers[index];
        known.stepping = false;
        if self.flaw == Flaw::LosesKicksInSteps {
            known.kicked = false;
        }
        known.rest = match step {
            Step::Again if self.flaw == Flaw::AgainIsIdle => Rest::Idle,
            Step::Again => Rest::Ready,
            Step::At(_) if self.flaw == Flaw::NeverDue => Rest::Idle,
            Step::At(_) if self.flaw == Flaw::IgnoresTimes => Rest::Ready,
            Step::At(at) => Rest::At(at),
            Step::On(_) if self.flaw == Flaw::IgnoresKeys => Rest::Ready,
            Step::On(on) if known.woken.contains(&on) => Rest::Ready,
            Step::On(on) => Rest::On(on),
            Step::Idle if self.flaw == Flaw::StepsOnceMore && known.kicked => {
                known.kicked = false;
                Rest::Ready
            }
            Step::Idle => Rest::Idle,
        };
        if self.flaw != Flaw::NoLooksAfterWork {
            state.wake_all();
        }
        self.changed.notify_all();
        true
    }

    /// Runs clients that the clock waits for.
    fn clients(&self, clients: Vec<Client<'_>>) {
        self.state.lock().unwrap().clients = clients.len();
        let counted = clients.into_iter().map(|client| {
            let counted: Client<'_> = Box::new(move || {
                let _leave = Leave(self);
                client();
            });
            counted
        });
        threads(counted.collect());
    }
}

/// One client fewer to wait for.
struct Leave<'a>(&'a FakeSched);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.state.lock() {
            state.clients -= 1;
        }
        self.0.changed.notify_all();
    }
}

impl Sched for FakeSched {
    fn now(&self) -> Tick {
        let mut state = self.state.lock().unwrap();
        state.asked += 1;
        match self.flaw {
            Flaw::TimeGoesBack => Tick(1_000_000 - state.asked),
            _ => state.now,
        }
    }

    fn wait_on(&self) -> WaitOn {
        let mut state = self.state.lock().unwrap();
        state.next_key += 1;
        match self.flaw {
            Flaw::KeysRepeat => WaitOn(0),
            _ => WaitOn(state.next_key),
        }
    }

    fn wake(&self, on: WaitOn) {
        let me = std::thread::current().id();
        let mut state = self.state.lock().unwrap();
        let mut waiters: Vec<_> = state
            .waiters
            .values_mut()
            .filter(|waiter| waiter.on == on)
            .collect();
        if self.flaw == Flaw::WakesOne {
            waiters.truncate(1);
        }
        if self.flaw == Flaw::WakesItselfOnly {
            waiters.retain(|waiter| waiter.thread == me);
        }
        waiters.iter_mut().for_each(|waiter| waiter.woken = true);
        for known in &mut state.workers {
            if known.stepping && self.flaw != Flaw::LosesWakesInSteps {
                known.woken.push(on);
            }
            let waits = match known.rest {
                Rest::On(key) => key == on || self.flaw == Flaw::AnyWakeWakesWorkers,
                _ => false,
            };
            if waits && !known.stepping && self.flaw != Flaw::WakesNoWorkers {
                known.rest = Rest::Ready;
            }
        }
        self.changed.notify_all();
    }

    fn pause(&self) {
        std::thread::yield_now();
    }

    fn spawn(&self, worker: Weak<dyn Worker>) -> WorkerId {
        let mut state = self.state.lock().unwrap();
        if self.flaw == Flaw::KeepsWorkers {
            state.kept.extend(worker.upgrade());
        }
        state.workers.push(Known {
            worker,
            rest: Rest::Idle,
            kicked: self.flaw == Flaw::SpawnsKicked,
            stepping: false,
            woken: Vec::new(),
        });
        match self.flaw {
            Flaw::OneIdForAll => WorkerId::new(0),
            _ => WorkerId::new(state.workers.len() as u32 - 1),
        }
    }

    fn kick(&self, worker: WorkerId) {
        let me = std::thread::current().id();
        let mut state = self.state.lock().unwrap();
        let in_step = state.in_step.contains(&me);
        let known = &mut state.workers[worker.index()];
        if self.flaw == Flaw::WorkersKickNobody && in_step && !known.stepping {
            return;
        }
        known.kicked = true;
        state.wake_all();
        drop(state);
        self.changed.notify_all();
        if self.mode == Mode::Inline && self.flaw != Flaw::WorksLater {
            while self.work() {}
        }
    }

    fn block(&self, on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool {
        let mut state = self.state.lock().unwrap();
        let ticket = state.next_waiter;
        state.next_waiter += 1;
        let start = state.now;
        let deadline = within.map(|within| match self.flaw {
            Flaw::EndsEarly => start.after(Micros(within.0 / 2)),
            _ => start.after(within),
        });
        let waiter = Waiter {
            on,
            woken: true,
            resting: false,
            deadline,
            thread: std::thread::current().id(),
        };
        state.waiters.insert(ticket, waiter);
        drop(state);
        let done = self.wait(ticket, poll, deadline);
        self.state.lock().unwrap().waiters.remove(&ticket);
        done
    }
}

impl FakeSched {
    fn wait(&self, ticket: u64, poll: &mut dyn FnMut() -> Poll, deadline: Option<Tick>) -> bool {
        loop {
            let mut state = self.state.lock().unwrap();
            let over = deadline.is_some_and(|deadline| state.now >= deadline);
            let waiter = state.waiters.get_mut(&ticket).unwrap();
            let woken = std::mem::take(&mut waiter.woken);
            drop(state);
            if woken {
                if self.flaw == Flaw::LooksTwice {
                    poll();
                }
                match poll() {
                    Poll::Done => return true,
                    Poll::Never => return self.flaw == Flaw::NeverIsDone,
                    Poll::Pending => {}
                }
            }
            if over {
                return self.flaw == Flaw::OverIsDone;
            }
            if self.work() {
                continue;
            }
            let mut state = self.state.lock().unwrap();
            let waiter = state.waiters.get_mut(&ticket).unwrap();
            waiter.resting = true;
            if self.flaw == Flaw::LosesEarlyWakes {
                waiter.woken = false;
            }
            loop {
                if state.waiters[&ticket].woken || state.runnable(self.flaw).is_some() {
                    break;
                }
                let resting = state
                    .waiters
                    .values()
                    .filter(|other| other.resting && !other.woken);
                let all_rest = resting.count() == state.clients;
                if all_rest && state.workers.iter().all(|known| !known.stepping) {
                    state.advance(self.flaw);
                    self.changed.notify_all();
                } else {
                    state = self.changed.wait(state).unwrap();
                }
            }
            state.waiters.get_mut(&ticket).unwrap().resting = false;
        }
    }
}

type Check = fn(&SchedFixture<'_>) -> Result<(), Violation>;

fn run(flaw: Flaw, mode: Mode, check: Check) -> Result<(), Violation> {
    let fake = FakeSched::new(flaw, mode);
    let clients = |all: Vec<Client<'_>>| fake.clients(all);
    check(&SchedFixture {
        sched: Arc::clone(&fake) as _,
        mode,
        clients: &clients,
    })
}

const CHECKS: [Check; 3] = [sched::check, worker::check, sleep_lock::check];

#[test]
fn schedulers_that_keep_the_rules_pass() {
    for mode in [Mode::Inline, Mode::Virtual, Mode::Threaded] {
        for check in CHECKS {
            run(Flaw::None, mode, check).unwrap();
        }
    }
}

#[test]
fn mutants_of_time_and_waits_are_caught() {
    let mutants = [
        (Flaw::TimeGoesBack, "time never goes back"),
        (
            Flaw::KeysRepeat,
            "a key to wait on is never given out twice",
        ),
        (
            Flaw::LooksTwice,
            "a wait for what is there looks once and is done",
        ),
        (
            Flaw::NeverIsDone,
            "a wait for what cannot come ends, and is not done",
        ),
        (
            Flaw::LosesEarlyWakes,
            "a wake between a waiter's look and its rest is not lost",
        ),
        (
            Flaw::WakesItselfOnly,
            "a wake lets a waiting client look again",
        ),
        (
            Flaw::WakesOne,
            "a wake reaches everybody who waits on the key",
        ),
        (Flaw::EndsEarly, "a wait does not end before its time"),
        (Flaw::OverIsDone, "a wait whose time is over is not done"),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Mode::Virtual, sched::check), rule, &flaw);
    }
}

#[test]
fn mutants_of_the_work_are_caught() {
    let until_idle = "a kicked worker runs until it is idle, and not on";
    let in_time = "a worker does not go on before its time";
    let until_woken = "a worker that waits for a key rests until it is woken";
    let mutants = [
        (Flaw::OneIdForAll, "each worker has an id of its own"),
        (Flaw::AgainIsIdle, until_idle),
        (Flaw::StepsOnceMore, until_idle),
        (Flaw::LosesKicksInSteps, "a kick during a step is not lost"),
        (Flaw::WorkersKickNobody, "a worker can kick another"),
        (Flaw::NeverDue, "a worker goes on when its time has come"),
        (Flaw::IgnoresTimes, in_time),
        (Flaw::KicksWaitForTimes, "a kick ends a rest until a time"),
        (
            Flaw::JumpsToTheLast,
            "due steps come in the order of their times",
        ),
        (Flaw::IgnoresKeys, until_woken),
        (Flaw::AnyWakeWakesWorkers, until_woken),
        (
            Flaw::LosesWakesInSteps,
            "a wake between a worker's look and the end of its step is not lost",
        ),
        (Flaw::WakesNoWorkers, "a wake lets a waiting worker go on"),
        (
            Flaw::NoLooksAfterWork,
            "a waiter looks whenever due work has been done",
        ),
        (
            Flaw::KeepsWorkers,
            "a scheduler does not keep a worker alive",
        ),
        (Flaw::MissesDroppedWorkers, "every client comes to its end"),
        (
            Flaw::StopsAtDroppedWorkers,
            "a dropped worker does not hold up others",
        ),
        (
            Flaw::SpawnsKicked,
            "a worker that was not kicked does not run",
        ),
        (Flaw::StepsAhead, "a step is not ahead of the time"),
        (
            Flaw::StepsGoBack,
            "the time of a worker's steps never goes back",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Mode::Virtual, worker::check), rule, &flaw);
    }
    let mutants = [
        (
            Flaw::WorksLater,
            "in inline mode the work is done when the kick returns",
        ),
        (Flaw::StepsInSteps, "two steps of a worker never overlap"),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Mode::Inline, worker::check), rule, &flaw);
    }
}

#[test]
fn schedulers_that_a_sleep_lock_cannot_work_with_are_caught() {
    let mutants = [
        (Flaw::KeysRepeat, "each lock has a key of its own"),
        (
            Flaw::WakesNoWorkers,
            "letting a lock go wakes the worker that waits for it",
        ),
        // Which of its waits ends first is chance: each names the same rule.
        (
            Flaw::WakesItselfOnly,
            "a wake reaches the client that waits",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Mode::Virtual, sleep_lock::check), rule, &flaw);
    }
}
