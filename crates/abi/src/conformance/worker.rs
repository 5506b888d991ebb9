//! Rules of [`Sched`] towards the [`Worker`]s that it runs. To be checked after those of
//! [`sched`](super::sched), which are relied on.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::sched::{Mode, SchedFixture, comes};
use super::{Must, Violation, hold};
use crate::handle::WorkerId;
use crate::sched::{Micros, Poll, Sched, Step, Tick, WaitOn, Worker};

/// A kicked worker runs until it is idle, one step at a time, and never before what it waits for;
/// no kick and no wake is lost on it; when it has been dropped nobody minds.
///
/// # Errors
/// The rule that it breaks.
pub fn check(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    let mode = fixture.mode;
    fixture.alone(workers_have_ids_of_their_own)?;
    fixture.alone(|sched| a_kicked_worker_runs_until_it_is_idle(sched, mode))?;
    fixture.alone(|sched| a_kick_during_a_step_is_not_lost(sched, mode))?;
    fixture.alone(|sched| a_worker_can_kick_another(sched, mode))?;
    fixture.alone(|sched| a_kept_kick_is_done_by_the_wait_or_when_it_is_let_go(sched, mode))?;
    fixture.alone(a_worker_rests_until_its_time)?;
    fixture.alone(a_kick_ends_a_rest_until_a_time)?;
    fixture.alone(|sched| due_steps_come_in_the_order_of_their_times(sched, mode))?;
    fixture.alone(a_worker_rests_until_its_key_is_woken)?;
    fixture.alone(a_wake_during_a_step_is_not_lost)?;
    fixture.alone(waiters_look_when_due_work_is_done)?;
    fixture.alone(a_dropped_worker_is_forgotten)?;
    steps_of_a_worker_never_overlap(fixture)
}

/// What a probe does, given the number of the step and its time.
type Script = dyn Fn(&Probe, usize, Tick) -> Step + Send + Sync;

/// A worker that does as its script says.
pub(super) struct Probe {
    sched: Arc<dyn Sched>,
    id: OnceLock<WorkerId>,
    script: Box<Script>,
    steps: AtomicUsize,
    stepping: AtomicBool,
    overlapped: AtomicBool,
    times: Mutex<Vec<Tick>>,
    /// Woken at the end of each step.
    stepped: WaitOn,
}

impl Worker for Probe {
    fn step(&self, now: Tick) -> Step {
        if self.stepping.swap(true, Ordering::AcqRel) {
            self.overlapped.store(true, Ordering::Release);
            return Step::Idle;
        }
        self.times().push(now);
        let number = self.steps.load(Ordering::Relaxed);
        let next = (self.script)(self, number, now);
        self.steps.store(number + 1, Ordering::Release);
        self.stepping.store(false, Ordering::Release);
        self.sched.wake(self.stepped);
        next
    }
}

impl Probe {
    /// A worker that the scheduler knows.
    pub(super) fn spawn(
        sched: &Arc<dyn Sched>,
        script: impl Fn(&Self, usize, Tick) -> Step + Send + Sync + 'static,
    ) -> Arc<Self> {
        let probe = Arc::new(Self {
            sched: Arc::clone(sched),
            id: OnceLock::new(),
            script: Box::new(script),
            steps: AtomicUsize::new(0),
            stepping: AtomicBool::new(false),
            overlapped: AtomicBool::new(false),
            times: Mutex::default(),
            stepped: sched.wait_on(),
        });
        let this: Weak<dyn Worker> = Arc::downgrade(&probe) as _;
        probe.id.get_or_init(|| sched.spawn(this));
        probe
    }

    pub(super) fn kick(&self) {
        if let Some(&id) = self.id.get() {
            self.sched.kick(id);
        }
    }

    fn steps(&self) -> usize {
        self.steps.load(Ordering::Acquire)
    }

    fn times(&self) -> MutexGuard<'_, Vec<Tick>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has done so many steps, and says how many it has done.
    fn wait_for(&self, steps: usize, rule: &'static str) -> Result<usize, Violation> {
        let mut far_enough = || match self.steps() {
            done if done >= steps => Poll::Done,
            _ => Poll::Pending,
        };
        let came = comes(self.sched.as_ref(), self.stepped, &mut far_enough);
        let done = self.steps();
        hold!(came, rule, "{done} steps, not {steps}, in good time");
        Ok(done)
    }

    /// Waits until it has done so many steps: no more, no fewer.
    pub(super) fn reaches(&self, steps: usize, rule: &'static str) -> Result<(), Violation> {
        let done = self.wait_for(steps, rule);
        self.had_one_step_at_a_time()?;
        let done = done?;
        hold!(done == steps, rule, "{done} steps, not {steps}");
        let times = self.times().clone();
        let back = times.windows(2).find(|pair| pair[0] > pair[1]);
        hold!(
            back.is_none(),
            "the time of a worker's steps never goes back",
            "{back:?}"
        );
        let (last, now) = (times.last().copied(), self.sched.now());
        hold!(
            last <= Some(now),
            "a step is not ahead of the time",
            "{last:?} at {now:?}"
        );
        Ok(())
    }

    fn had_one_step_at_a_time(&self) -> Result<(), Violation> {
        hold!(
            !self.overlapped.load(Ordering::Acquire),
            "two steps of a worker never overlap",
            "one began before the other had ended"
        );
        Ok(())
    }

    /// In inline mode: it has done so many steps already.
    fn has_reached(&self, mode: Mode, steps: usize) -> Result<(), Violation> {
        self.had_one_step_at_a_time()?;
        let done = self.steps();
        hold!(
            mode != Mode::Inline || done == steps,
            "in inline mode the work is done when the kick returns",
            "{done} steps, not {steps}"
        );
        Ok(())
    }
}

/// Whatever can be done now is done meanwhile.
fn let_time_pass(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let probe = Probe::spawn(sched, |_, number, now| match number {
        0 => Step::At(now.after(Micros(10))),
        _ => Step::Idle,
    });
    probe.kick();
    probe.reaches(2, "a worker goes on when its time has come")
}

fn workers_have_ids_of_their_own(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let probes: Vec<_> = (0..100)
        .map(|_| Probe::spawn(sched, |_, _, _| Step::Idle))
        .collect();
    let mut ids: Vec<_> = probes.iter().filter_map(|probe| probe.id.get()).collect();
    ids.sort_unstable();
    ids.dedup();
    hold!(
        ids.len() == probes.len(),
        "each worker has an id of its own",
        "{} ids of {} workers",
        ids.len(),
        probes.len()
    );
    Ok(())
}

fn a_kicked_worker_runs_until_it_is_idle(
    sched: &Arc<dyn Sched>,
    mode: Mode,
) -> Result<(), Violation> {
    const RULE: &str = "a kicked worker runs until it is idle, and not on";
    let bystander = Probe::spawn(sched, |_, _, _| Step::Idle);
    let probe = Probe::spawn(sched, |_, number, _| match number {
        0..4 => Step::Again,
        _ => Step::Idle,
    });
    probe.kick();
    probe.has_reached(mode, 5)?;
    probe.reaches(5, RULE)?;
    probe.kick();
    probe.has_reached(mode, 6)?;
    probe.reaches(6, RULE)?;
    let_time_pass(sched)?;
    probe.reaches(6, RULE)?;
    bystander.reaches(0, "a worker that was not kicked does not run")
}

fn a_kick_during_a_step_is_not_lost(sched: &Arc<dyn Sched>, mode: Mode) -> Result<(), Violation> {
    let probe = Probe::spawn(sched, |probe, number, _| {
        if number == 0 {
            probe.kick();
        }
        Step::Idle
    });
    probe.kick();
    probe.has_reached(mode, 2)?;
    probe.reaches(2, "a kick during a step is not lost")
}

fn a_worker_can_kick_another(sched: &Arc<dyn Sched>, mode: Mode) -> Result<(), Violation> {
    let second = Probe::spawn(sched, |_, _, _| Step::Idle);
    let kicked = Arc::clone(&second);
    let first = Probe::spawn(sched, move |_, _, _| {
        kicked.kick();
        Step::Idle
    });
    first.kick();
    first.has_reached(mode, 1)?;
    second.has_reached(mode, 1)?;
    first.reaches(1, "a worker can kick another")?;
    second.reaches(1, "a worker can kick another")
}

fn a_kept_kick_is_done_by_the_wait_or_when_it_is_let_go(
    sched: &Arc<dyn Sched>,
    mode: Mode,
) -> Result<(), Violation> {
    const RULE: &str = "a kick that is kept is not lost";
    // The second step asks for a third.
    let probe = Probe::spawn(sched, |_, number, _| match number {
        1 => Step::Again,
        _ => Step::Idle,
    });
    sched.keep_kicks(true);
    probe.kick();
    let waited = probe.reaches(1, RULE);
    sched.keep_kicks(true);
    probe.kick();
    sched.keep_kicks(false);
    if mode == Mode::Threaded {
        let rule = "a kick is kept until the last keeper lets go";
        hold!(probe.steps() == 1, rule, "it was done at the first");
    }
    sched.keep_kicks(false);
    waited?;
    probe.reaches(3, RULE)
}

fn a_worker_rests_until_its_time(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let due = sched.now().after(Micros(1_000));
    let probe = Probe::spawn(sched, move |_, number, _| match number {
        0 => Step::At(due),
        _ => Step::Idle,
    });
    probe.kick();
    probe.wait_for(1, "a kicked worker runs until it is idle, and not on")?;
    probe.wait_for(2, "a worker goes on when its time has come")?;
    let at = probe.times().get(1).copied();
    hold!(
        at >= Some(due),
        "a worker does not go on before its time",
        "at {at:?}, due at {due:?}"
    );
    Ok(())
}

/// More to do may change what the time was good for.
fn a_kick_ends_a_rest_until_a_time(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let due = sched.now().after(super::sched::PATIENCE);
    let probe = Probe::spawn(sched, move |_, number, _| match number {
        0 => Step::At(due),
        _ => Step::Idle,
    });
    probe.kick();
    probe.wait_for(1, "a kicked worker runs until it is idle, and not on")?;
    probe.kick();
    const RULE: &str = "a kick ends a rest until a time";
    probe.wait_for(2, RULE)?;
    let at = probe.times().get(1).copied();
    hold!(at < Some(due), RULE, "at {at:?}, due at {due:?}");
    Ok(())
}

fn due_steps_come_in_the_order_of_their_times(
    sched: &Arc<dyn Sched>,
    mode: Mode,
) -> Result<(), Violation> {
    let start = sched.now();
    let order = Arc::new(Mutex::new(Vec::new()));
    let probes = [300, 100, 200].map(|delay_us| {
        let order = Arc::clone(&order);
        Probe::spawn(sched, move |_, number, _| {
            if number == 0 {
                return Step::At(start.after(Micros(delay_us)));
            }
            let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
            order.push(delay_us);
            Step::Idle
        })
    });
    for probe in &probes {
        probe.kick();
    }
    for probe in &probes {
        probe.reaches(2, "a worker goes on when its time has come")?;
    }
    // Threads may overtake each other between a time and its step.
    let order = order.lock().unwrap_or_else(PoisonError::into_inner);
    hold!(
        mode == Mode::Threaded || *order == [100, 200, 300],
        "due steps come in the order of their times",
        "after {order:?} microseconds"
    );
    Ok(())
}

fn a_worker_rests_until_its_key_is_woken(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let key = sched.wait_on();
    let other = sched.wait_on();
    let probe = Probe::spawn(sched, move |_, number, _| match number {
        0 => Step::On(key),
        _ => Step::Idle,
    });
    probe.kick();
    probe.reaches(1, "a worker that waits for a key rests until it is woken")?;
    sched.wake(other);
    let_time_pass(sched)?;
    probe.reaches(1, "a worker that waits for a key rests until it is woken")?;
    sched.wake(key);
    probe.reaches(2, "a wake lets a waiting worker go on")
}

fn a_wake_during_a_step_is_not_lost(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let key = sched.wait_on();
    let probe = Probe::spawn(sched, move |probe, number, _| {
        if number == 0 {
            probe.sched.wake(key);
            return Step::On(key);
        }
        Step::Idle
    });
    probe.kick();
    probe.reaches(
        2,
        "a wake between a worker's look and the end of its step is not lost",
    )
}

fn waiters_look_when_due_work_is_done(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let due = sched.now().after(Micros(100));
    let probe = Probe::spawn(sched, move |_, number, _| match number {
        0 => Step::At(due),
        _ => Step::Idle,
    });
    probe.kick();
    // Nobody wakes this key.
    let on = sched.wait_on();
    let mut worked = || match probe.steps() {
        2 => Poll::Done,
        _ => Poll::Pending,
    };
    let done = comes(sched.as_ref(), on, &mut worked);
    hold!(
        done,
        "a waiter looks whenever due work has been done",
        "it missed the end of the work"
    );
    Ok(())
}

fn a_dropped_worker_is_forgotten(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let probe = Probe::spawn(sched, |_, _, _| Step::Idle);
    let id = probe.id.get().copied().must("a worker has an id")?;
    let weak = Arc::downgrade(&probe);
    drop(probe);
    hold!(
        weak.upgrade().is_none(),
        "a scheduler does not keep a worker alive",
        "it is alive after its owner has dropped it"
    );
    sched.kick(id);
    // While it waits for a key, and for its time.
    let key = sched.wait_on();
    let due = sched.now().after(Micros(50));
    for rest in [Step::On(key), Step::At(due)] {
        let probe = Probe::spawn(sched, move |_, number, _| match number {
            0 => rest,
            _ => Step::Idle,
        });
        probe.kick();
        // Its time may have come already where time moves by itself.
        probe.wait_for(1, "a dropped worker does not hold up others")?;
        drop(probe);
    }
    sched.wake(key);
    // All others go on.
    let probe = Probe::spawn(sched, move |_, number, now| match number {
        0 => Step::At(now.after(Micros(100))),
        _ => Step::Idle,
    });
    probe.kick();
    probe.reaches(2, "a dropped worker does not hold up others")
}

fn steps_of_a_worker_never_overlap(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    const KICKS: u64 = 200;
    let (ordered, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stock = Arc::clone(&ordered);
    let finished = Arc::clone(&done);
    let probe = Probe::spawn(&fixture.sched, move |_, _, _| {
        finished.fetch_add(stock.swap(0, Ordering::AcqRel), Ordering::Release);
        Step::Idle
    });
    let clients = [(); 2].map(|()| {
        let (probe, ordered, done) = (&probe, &ordered, &done);
        move |sched: &Arc<dyn Sched>| {
            for _ in 0..KICKS {
                ordered.fetch_add(1, Ordering::AcqRel);
                probe.kick();
                sched.pause();
            }
            let mut all_done = || match done.load(Ordering::Acquire) {
                done if done == 2 * KICKS => Poll::Done,
                _ => Poll::Pending,
            };
            let all = comes(sched.as_ref(), probe.stepped, &mut all_done);
            hold!(
                all,
                "a kick during a step is not lost",
                "{done:?} of {} pieces of work were done",
                2 * KICKS
            );
            Ok(())
        }
    });
    let all_done = fixture.together(clients);
    probe.had_one_step_at_a_time()?;
    all_done
}
