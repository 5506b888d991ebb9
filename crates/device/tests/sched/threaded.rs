//! The threaded scheduler: its threads, and waiters that park.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use glia_abi::sched::{Micros, Poll, Sched, SleepLock, Step, Tick, WaitOn, Worker};
use glia_device::ThreadedSched;
use glia_device::sched::{Client, run_on_threads};

use crate::support::{Breaks, Scripted, at_us, spawn, start};

/// Waits without bound until it is so.
fn until(sched: &dyn Sched, on: WaitOn, is_so: impl Fn() -> bool) {
    let mut look = || if is_so() { Poll::Done } else { Poll::Pending };
    assert!(sched.block(on, &mut look, None));
}

#[test]
fn a_number_of_threads_that_cannot_be_is_an_error_that_names_it() {
    for threads in [0, 257] {
        let error = ThreadedSched::new(threads).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{threads} threads cannot run a machine: 1 to 256 can")
        );
    }
}

#[test]
fn due_work_is_done_when_its_time_has_come_though_nobody_kicks() {
    let sched = ThreadedSched::new(2).unwrap();
    let worker = Scripted::new(vec![at_us(3_000), at_us(1_000)]);
    start(&sched, &worker);
    let on = sched.wait_on();
    // Nobody wakes the key.
    until(&sched, on, || worker.times_us().len() == 3);
    let times_us = worker.times_us();
    assert!(
        times_us[1] >= 3_000 && times_us[2] >= times_us[1],
        "{times_us:?}"
    );
}

#[test]
fn a_worker_that_panics_is_idle_and_takes_nobody_with_it() {
    let sched = ThreadedSched::new(1).unwrap();
    let breaks = Arc::new(Breaks(AtomicU32::new(0)));
    let id = start(&sched, &breaks);
    until(&sched, sched.wait_on(), || {
        breaks.0.load(Ordering::Relaxed) == 1
    });
    let other = Scripted::new(vec![Step::Again]);
    start(&sched, &other);
    until(&sched, sched.wait_on(), || other.times_us().len() == 2);
    sched.kick(id);
    until(&sched, sched.wait_on(), || {
        breaks.0.load(Ordering::Relaxed) == 2
    });
}

/// On which thread it was stepped.
struct Where(Mutex<Vec<ThreadId>>);

impl Worker for Where {
    fn step(&self, _now: Tick) -> Step {
        self.0.lock().unwrap().push(std::thread::current().id());
        Step::Idle
    }
}

#[test]
fn what_a_client_keeps_is_done_on_its_thread_while_it_waits_and_on_another_when_it_does_not() {
    const ROUNDS: usize = 2_000;
    let sched = ThreadedSched::new(2).unwrap();
    let worker = Arc::new(Where(Mutex::default()));
    let id = spawn(&sched, &worker);
    let here = std::thread::current().id();
    let on = sched.wait_on();
    for round in 1..=ROUNDS {
        sched.keep_kicks(true);
        sched.kick(id);
        // Long enough for a thread that looks for work.
        for _ in 0..round % 7 * 100 {
            std::hint::spin_loop();
        }
        until(&sched, on, || worker.0.lock().unwrap().len() == round);
        sched.keep_kicks(false);
    }
    assert!(
        worker
            .0
            .lock()
            .unwrap()
            .iter()
            .all(|&thread| thread == here)
    );
    sched.keep_kicks(true);
    sched.kick(id);
    assert_eq!(worker.0.lock().unwrap().len(), ROUNDS);
    sched.keep_kicks(false);
    // This client does not wait, so it is one of the scheduler's threads.
    while worker.0.lock().unwrap().len() == ROUNDS {
        std::thread::yield_now();
    }
    assert!(
        worker
            .0
            .lock()
            .unwrap()
            .last()
            .is_some_and(|&thread| thread != here)
    );
}

#[test]
fn what_a_client_keeps_of_one_machine_does_not_hold_up_another() {
    let [one, other] = [(); 2].map(|()| ThreadedSched::new(1).unwrap());
    let worker = Arc::new(Where(Mutex::default()));
    let id = spawn(&other, &worker);
    one.keep_kicks(true);
    other.keep_kicks(true);
    other.kick(id);
    while worker.0.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    other.keep_kicks(false);
    one.keep_kicks(false);
}

/// Tells whether its thread is unwinding when it is dropped.
struct Notice(Sender<bool>);

impl Drop for Notice {
    fn drop(&mut self) {
        self.0.send(std::thread::panicking()).unwrap();
    }
}

/// Holds the scheduler that steps it.
struct Owner {
    sched: Mutex<Option<Arc<ThreadedSched>>>,
    last: Arc<Mutex<Option<Arc<Owner>>>>,
    _notice: Notice,
}

impl Worker for Owner {
    fn step(&self, _now: Tick) -> Step {
        // The step's own reference is the last one now.
        drop(self.last.lock().unwrap().take());
        Step::Idle
    }
}

#[test]
fn the_last_reference_may_be_dropped_by_a_worker() {
    for threads in [1, 3] {
        let sched = Arc::new(ThreadedSched::new(threads).unwrap());
        let (dropped, wait_for_drop) = channel();
        let last = Arc::new(Mutex::new(None));
        let owner = Arc::new(Owner {
            sched: Mutex::new(None),
            last: Arc::clone(&last),
            _notice: Notice(dropped),
        });
        let id = spawn(&*sched, &owner);
        *owner.sched.lock().unwrap() = Some(Arc::clone(&sched));
        *last.lock().unwrap() = Some(owner);
        sched.kick(id);
        drop(sched);
        assert_eq!(wait_for_drop.recv(), Ok(false));
    }
}

/// Eight clients take turns on whatever processors there are, so that most of them park.
#[test]
fn clients_that_park_are_woken_in_their_turn() {
    const CLIENTS: u64 = 8;
    const ROUNDS: u64 = 100;
    let sched = ThreadedSched::new(1).unwrap();
    let (turn, on) = (AtomicU64::new(0), sched.wait_on());
    let clients = (0..CLIENTS).map(|client| {
        let (sched, turn) = (&sched, &turn);
        let run: Client<'_> = Box::new(move || {
            for round in 0..ROUNDS {
                let mine = round * CLIENTS + client;
                until(sched, on, || turn.load(Ordering::Acquire) == mine);
                turn.store(mine + 1, Ordering::Release);
                sched.wake(on);
            }
        });
        run
    });
    run_on_threads(clients.collect()).unwrap();
    assert_eq!(turn.into_inner(), CLIENTS * ROUNDS);
}

/// Takes orders and fills them, a few a step, behind a lock that others hold as well.
struct Desk {
    sched: Arc<ThreadedSched>,
    ordered: AtomicU64,
    filled: AtomicU64,
    book: Arc<SleepLock<u64>>,
    on: WaitOn,
}

impl Worker for Desk {
    fn step(&self, _now: Tick) -> Step {
        let mut book = match self.book.poll_lock(&*self.sched) {
            Ok(book) => book,
            Err(on) => return Step::On(on),
        };
        let filled = self.filled.load(Ordering::Relaxed);
        let open = self.ordered.load(Ordering::Acquire) - filled;
        let now = open.min(3);
        *book += now;
        drop(book);
        self.filled.store(filled + now, Ordering::Release);
        self.sched.wake(self.on);
        if now < open { Step::Again } else { Step::Idle }
    }
}

#[test]
fn a_long_stress_of_four_clients_on_two_threads_loses_nothing() {
    const ORDERS: u64 = 5_000;
    let sched = Arc::new(ThreadedSched::new(2).unwrap());
    let book = Arc::new(SleepLock::new(0, &*sched));
    let desks: Vec<_> = (0..2)
        .map(|_| {
            Arc::new(Desk {
                sched: Arc::clone(&sched),
                ordered: AtomicU64::new(0),
                filled: AtomicU64::new(0),
                book: Arc::clone(&book),
                on: sched.wait_on(),
            })
        })
        .collect();
    let ids: Vec<_> = desks.iter().map(|desk| spawn(&*sched, desk)).collect();
    let clients = (0..4).map(|client| {
        let (sched, book) = (&sched, &book);
        let (desk, id) = (&desks[client % 2], ids[client % 2]);
        let run: Client<'_> = Box::new(move || {
            for order in 0..ORDERS {
                let mine = desk.ordered.fetch_add(1, Ordering::AcqRel) + 1;
                sched.kick(id);
                if order % 8 == 0 {
                    // Workers and clients meet at the lock, and time passes.
                    *book.lock(&**sched) += 1;
                }
                if order % 2 == 0 {
                    until(&**sched, desk.on, || {
                        desk.filled.load(Ordering::Acquire) >= mine
                    });
                }
            }
        });
        run
    });
    run_on_threads(clients.collect()).unwrap();
    for desk in &desks {
        until(&*sched, desk.on, || {
            desk.filled.load(Ordering::Acquire) == 2 * ORDERS
        });
    }
    assert_eq!(*book.lock(&*sched), 4 * ORDERS + 4 * ORDERS / 8);
}

#[test]
fn a_wait_for_what_cannot_come_takes_none_of_its_time() {
    let sched = ThreadedSched::new(1).unwrap();
    let an_hour = Micros(3_600_000_000);
    let end = sched.now().after(an_hour);
    let mut looks = 0;
    let mut stuck = || {
        looks += 1;
        if looks < 3 {
            Poll::Pending
        } else {
            Poll::Never
        }
    };
    assert!(!sched.block(sched.wait_on(), &mut stuck, Some(an_hour)));
    assert!(sched.now() < end);
}
