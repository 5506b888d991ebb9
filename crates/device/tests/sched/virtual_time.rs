//! The virtual scheduler: what a seed decides, and how hopeless things end.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use glia_abi::sched::{Micros, Poll, Sched, SleepLock, Step, Tick, WaitOn, Worker};
use glia_device::VirtualSched;
use glia_device::sched::{Actor, Client, Deadlock, HELD_MAX, RunError, Waiting};

use crate::support::{Breaks, Scripted, at_us, spawn, start};

/// Who did what when.
type Log = Arc<Mutex<Vec<(&'static str, usize, Tick)>>>;

/// Works off what is ordered, with pauses between.
struct Slow {
    number: usize,
    log: Log,
    ordered: AtomicU64,
    done: AtomicU64,
}

impl Worker for Slow {
    fn step(&self, now: Tick) -> Step {
        self.log.lock().unwrap().push(("step", self.number, now));
        if self.done.load(Ordering::Relaxed) == self.ordered.load(Ordering::Relaxed) {
            return Step::Idle;
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Step::At(now.after(Micros(20)))
    }
}

/// Everything that happens in a run of three clients and two workers, in its order.
fn story(seed: u64) -> Vec<(&'static str, usize, Tick)> {
    let sched = VirtualSched::new(seed);
    let log = Log::default();
    let workers = [0, 1].map(|number| {
        Arc::new(Slow {
            number,
            log: Arc::clone(&log),
            ordered: AtomicU64::new(0),
            done: AtomicU64::new(0),
        })
    });
    let ids = workers.each_ref().map(|worker| spawn(&sched, worker));
    let shared = SleepLock::new((), &sched);
    let clients = [0, 1, 2].map(|client| {
        let (sched, log, shared) = (&sched, &log, &shared);
        let (worker, id) = (&workers[client % 2], ids[client % 2]);
        let run: Client<'_> = Box::new(move || {
            let tell = |what| log.lock().unwrap().push((what, client, sched.now()));
            for _ in 0..20 {
                sched.pause();
                tell("enters");
                let held = shared.lock(sched);
                tell("holds");
                let mine = worker.ordered.fetch_add(1, Ordering::Relaxed) + 1;
                sched.kick(id);
                let mut done = || match worker.done.load(Ordering::Relaxed) {
                    done if done >= mine => Poll::Done,
                    _ => Poll::Pending,
                };
                let came = sched.block(sched.wait_on(), &mut done, Some(Micros(50)));
                tell(if came { "done" } else { "gives up" });
                drop(held);
            }
        });
        run
    });
    sched.run(clients.into()).unwrap();
    drop(workers);
    Arc::into_inner(log).unwrap().into_inner().unwrap()
}

#[test]
fn one_seed_decides_the_same_each_time_and_another_differently() {
    for seed in 0..20 {
        let first = story(seed);
        assert!(first.len() > 180, "{}", first.len());
        assert_eq!(first, story(seed));
        assert_ne!(first, story(seed + 1_000));
    }
}

#[test]
fn seeds_choose_every_order_of_clients() {
    let order = |seed| {
        let (sched, order) = (VirtualSched::new(seed), Mutex::new(Vec::new()));
        let clients = [0, 1, 2].map(|client| {
            let run: Client<'_> = Box::new({
                let order = &order;
                move || order.lock().unwrap().push(client)
            });
            run
        });
        sched.run(clients.into()).unwrap();
        order.into_inner().unwrap()
    };
    let orders: BTreeSet<Vec<i32>> = (0..100).map(order).collect();
    assert_eq!(orders.len(), 6);
}

/// The client as what it waits for, without end or for so long.
fn waits_for_never(sched: &VirtualSched, within: Option<Micros>) -> bool {
    sched.block(sched.wait_on(), &mut || Poll::Never, within)
}

#[test]
fn a_hundred_hopeless_waits_end_together_after_one_budget() {
    let budget = Micros(4_000_000);
    let sched = VirtualSched::new(5);
    let clients = (0..100).map(|_| {
        let run: Client<'_> = Box::new(|| {
            assert!(!waits_for_never(&sched, Some(budget)));
            assert_eq!(sched.now(), Tick(0).after(budget));
        });
        run
    });
    sched.run(clients.collect()).unwrap();
    assert_eq!(sched.now(), Tick(0).after(budget));
}

#[test]
fn others_go_on_while_a_hopeless_wait_runs_its_time() {
    let sched = VirtualSched::new(5);
    let worker = Scripted::new(vec![at_us(100), at_us(200)]);
    let clients: [Client<'_>; 2] = [
        Box::new(|| assert!(!waits_for_never(&sched, Some(Micros(150))))),
        Box::new(|| {
            start(&sched, &worker);
            let mut there = || match worker.times_us().len() {
                3 => Poll::Done,
                _ => Poll::Pending,
            };
            assert!(sched.block(sched.wait_on(), &mut there, None));
        }),
    ];
    sched.run(clients.into()).unwrap();
    assert_eq!(worker.times_us(), [0, 100, 200]);
}

#[test]
fn a_hopeless_wait_without_bound_ends_at_once() {
    let sched = VirtualSched::new(5);
    let clients: [Client<'_>; 1] = [Box::new(|| assert!(!waits_for_never(&sched, None)))];
    sched.run(clients.into()).unwrap();
    assert_eq!(sched.now(), Tick(0));
}

#[test]
fn a_wake_revives_a_wait_that_was_hopeless() {
    let sched = VirtualSched::new(5);
    let (is_reset, on) = (AtomicU32::new(0), sched.wait_on());
    let clients: [Client<'_>; 2] = [
        Box::new(|| {
            let mut look = || match is_reset.load(Ordering::Relaxed) {
                0 => Poll::Never,
                _ => Poll::Done,
            };
            assert!(sched.block(on, &mut look, Some(Micros(100))));
        }),
        Box::new(|| {
            waits_for_never(&sched, Some(Micros(60)));
            is_reset.store(1, Ordering::Relaxed);
            sched.wake(on);
        }),
    ];
    sched.run(clients.into()).unwrap();
    assert_eq!(sched.now(), Tick(60_000));
}

/// Pauses so often beside `others` clients that end at once; gives the time at the end.
fn pauses(seed: u64, others: usize) -> Tick {
    let sched = VirtualSched::new(seed);
    let clients = (0..=others).map(|_| {
        let run: Client<'_> = Box::new(|| (0..100).for_each(|_| sched.pause()));
        run
    });
    sched.run(clients.collect()).unwrap();
    sched.now()
}

#[test]
fn clients_are_held_back_where_there_are_others() {
    for seed in 0..20 {
        assert_eq!(pauses(seed, 0), Tick(0));
        let held = pauses(seed, 3);
        assert!(held > Tick(0) && held < Tick(0).after(Micros(100 * HELD_MAX.0)));
    }
}

/// How often a client that is alone pauses until work that is due has been done, and when it is.
fn polls(seed: u64, is_client: bool) -> (u32, Tick) {
    let sched = VirtualSched::new(seed);
    let worker = Scripted::new(vec![at_us(100), at_us(200)]);
    let mut pauses = 0;
    let mut poll = || {
        start(&sched, &worker);
        while worker.times_us().len() < 3 {
            sched.pause();
            pauses += 1;
        }
    };
    if is_client {
        sched.run(vec![Box::new(&mut poll)]).unwrap();
    } else {
        poll();
    }
    assert_eq!(worker.times_us(), [0, 100, 200]);
    (pauses, sched.now())
}

#[test]
fn a_client_that_is_alone_sees_time_pass_at_its_pauses() {
    for is_client in [true, false] {
        let ends = (0..20).map(|seed| {
            let end = polls(seed, is_client);
            assert_eq!((end.1, end), (Tick(200_000), polls(seed, is_client)));
            end.0
        });
        let pauses: BTreeSet<u32> = ends.collect();
        assert!(pauses.len() > 3, "{pauses:?}");
    }
}

/// Its pauses pass time for nobody but itself.
#[test]
fn the_wait_of_another_does_not_end_early_while_a_client_polls() {
    for seed in 0..20 {
        let sched = VirtualSched::new(seed);
        let worker = Scripted::new(vec![at_us(100)]);
        let clients: [Client<'_>; 2] = [
            Box::new(|| {
                start(&sched, &worker);
                while worker.times_us().len() < 2 {
                    sched.pause();
                }
            }),
            Box::new(|| {
                let mut there = || match worker.times_us().len() {
                    2 => Poll::Done,
                    _ => Poll::Pending,
                };
                assert!(sched.block(sched.wait_on(), &mut there, Some(Micros(100_000))));
            }),
        ];
        sched.run(clients.into()).unwrap();
    }
}

#[test]
fn a_deadlock_is_reported_with_who_waits_on_what_since_when() {
    let sched = VirtualSched::new(5);
    let keys = [sched.wait_on(), sched.wait_on()];
    let is_hopeless = |on: WaitOn| sched.block(on, &mut || Poll::Pending, None);
    let clients: [Client<'_>; 3] = [
        Box::new(|| {
            waits_for_never(&sched, Some(Micros(10)));
            is_hopeless(keys[1]);
        }),
        Box::new(|| {}),
        Box::new(|| {
            is_hopeless(keys[0]);
        }),
    ];
    let error = sched.run(clients.into()).unwrap_err();
    let RunError::Broken { deadlock, panics } = &error else {
        unreachable!("{error}");
    };
    let waiting = [(0, keys[1], Tick(10_000)), (2, keys[0], Tick(0))];
    let waiting = waiting.map(|(client, on, since)| Waiting { client, on, since });
    let expected = Deadlock {
        at: Tick(10_000),
        waiting: waiting.into(),
    };
    assert_eq!((deadlock.as_ref(), panics.len()), (Some(&expected), 0));
    assert_eq!(
        error.to_string(),
        "deadlock at 10 us, client 0 waits on key 1 since 10 us, client 2 waits on key 0 since 0 us"
    );
    // It can be used on.
    sched.run(Vec::new()).unwrap();
}

#[test]
fn locks_taken_in_two_orders_are_a_deadlock_for_some_seeds_and_are_free_afterwards() {
    let deadlocks = (0..50).filter(|&seed| {
        let sched = VirtualSched::new(seed);
        let locks = [0, 1].map(|_| SleepLock::new((), &sched));
        let clients = [0, 1].map(|first| {
            let (sched, locks) = (&sched, &locks);
            let run: Client<'_> = Box::new(move || {
                let _first = locks[first].lock(sched);
                sched.pause();
                let _second = locks[1 - first].lock(sched);
            });
            run
        });
        let is_broken = sched.run(clients.into()).is_err();
        assert!(locks.iter().all(|lock| lock.poll_lock(&sched).is_ok()));
        is_broken
    });
    let deadlocks = deadlocks.count();
    assert!((5..45).contains(&deadlocks), "{deadlocks} of 50");
}

/// Takes a lock when it is dropped.
struct Tidy<'a>(&'a VirtualSched, &'a SleepLock<u32>);

impl Drop for Tidy<'_> {
    fn drop(&mut self) {
        *self.1.lock(self.0) += 1;
    }
}

#[test]
fn what_is_unwound_in_a_deadlock_may_wait_for_others_that_are() {
    for seed in 0..20 {
        let sched = VirtualSched::new(seed);
        let lock = SleepLock::new(0, &sched);
        let on = sched.wait_on();
        let clients: [Client<'_>; 2] = [
            Box::new(|| {
                let _held = lock.lock(&sched);
                sched.block(on, &mut || Poll::Pending, None);
            }),
            Box::new(|| {
                let _tidy = Tidy(&sched, &lock);
                sched.block(on, &mut || Poll::Pending, None);
            }),
        ];
        sched.run(clients.into()).unwrap_err();
        assert_eq!(*lock.lock(&sched), 1);
    }
}

#[test]
fn a_client_that_panics_is_reported_and_the_others_come_to_their_end() {
    let sched = VirtualSched::new(5);
    let ended = AtomicU32::new(0);
    let clients: [Client<'_>; 3] = [
        Box::new(|| {
            sched.pause();
            ended.fetch_add(1, Ordering::Relaxed);
        }),
        Box::new(|| resume_unwind(Box::new("no more"))),
        Box::new(|| {
            sched.pause();
            ended.fetch_add(1, Ordering::Relaxed);
        }),
    ];
    let error = sched.run(clients.into()).unwrap_err();
    assert_eq!(error.to_string(), "client 1 panicked: no more");
    let RunError::Broken { panics, .. } = error else {
        unreachable!();
    };
    let payload = panics.into_iter().next().unwrap().into_payload();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"no more"));
    assert_eq!(ended.into_inner(), 2);
}

#[test]
fn a_worker_that_panics_is_reported_and_idle() {
    let sched = VirtualSched::new(5);
    let breaks = Arc::new(Breaks(AtomicU32::new(0)));
    let id = spawn(&sched, &breaks);
    let clients: [Client<'_>; 1] = [Box::new(|| {
        for times in [1, 2] {
            sched.kick(id);
            let mut there = || match breaks.0.load(Ordering::Relaxed) {
                stepped if stepped == times => Poll::Done,
                _ => Poll::Pending,
            };
            assert!(sched.block(sched.wait_on(), &mut there, None));
        }
    })];
    let error = sched.run(clients.into()).unwrap_err();
    let RunError::Broken { panics, .. } = error else {
        unreachable!();
    };
    assert_eq!((panics.len(), panics[0].who), (1, Actor::Worker(id)));
}

#[test]
fn clients_cannot_run_clients() {
    let sched = VirtualSched::new(5);
    let clients: [Client<'_>; 1] = [Box::new(|| {
        let inner = sched.run(Vec::new());
        assert!(matches!(inner, Err(RunError::Nested)));
    })];
    sched.run(clients.into()).unwrap();
}

#[test]
fn a_thread_that_is_no_client_does_due_work_while_it_waits() {
    let sched = VirtualSched::new(5);
    let worker = Scripted::new(vec![at_us(30)]);
    start(&sched, &worker);
    assert_eq!(worker.times_us(), []);
    let mut there = || match worker.times_us().len() {
        2 => Poll::Done,
        _ => Poll::Pending,
    };
    assert!(sched.block(sched.wait_on(), &mut there, None));
    assert!(!waits_for_never(&sched, Some(Micros(40))));
    assert_eq!(
        (worker.times_us(), sched.now()),
        (vec![0, 30], Tick(70_000))
    );
}

#[test]
fn threads_that_are_no_clients_wait_for_each_other() {
    let sched = VirtualSched::new(5);
    let lock = SleepLock::new(0_u64, &sched);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let mut value = lock.lock(&sched);
                    let before = *value;
                    sched.pause();
                    *value = before + 1;
                }
            });
        }
    });
    assert_eq!(*lock.lock(&sched), 1_500);
}

#[test]
fn a_thread_that_is_no_client_gets_in_when_the_run_is_over() {
    let sched = VirtualSched::new(5);
    let (tell, told) = channel();
    let log = &Mutex::new(Vec::new());
    let sched = &sched;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            told.recv().unwrap();
            sched.pause();
            log.lock().unwrap().push("visitor");
        });
        let clients: [Client<'_>; 2] = [0, 1].map(|_| {
            let tell = tell.clone();
            let run: Client<'_> = Box::new(move || {
                // The second finds nobody who listens any more.
                let _ = tell.send(());
                for _ in 0..1_000 {
                    sched.pause();
                }
                log.lock().unwrap().push("client");
            });
            run
        });
        sched.run(clients.into()).unwrap();
    });
    assert_eq!(*log.lock().unwrap(), ["client", "client", "visitor"]);
}
