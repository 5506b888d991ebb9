//! Rules of [`Sched`] towards those who wait. [`worker`](super::worker) has those towards workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Must, Violation, hold};
use crate::sched::{Micros, Poll, Sched, Tick, WaitOn};

/// How a scheduler runs workers and moves time: which rules can be asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A kick does the work; time moves along due work only.
    Inline,
    /// Threads do the work; time moves by itself.
    Threaded,
    /// The scheduler decides who runs; time moves by decree.
    Virtual,
}

/// What one client does during a check.
pub type Client<'a> = Box<dyn FnOnce() + Send + 'a>;

/// What the checks drive a scheduler with.
#[derive(Clone)]
pub struct SchedFixture<'a> {
    /// The scheduler. The checks never use it from the thread that calls them, but for making keys.
    pub sched: Arc<dyn Sched>,
    /// Its mode.
    pub mode: Mode,
    /// Runs each as a client of its own, beside the others, and returns when all have ended:
    /// [`threads`], unless clients have to be made known to the scheduler.
    pub clients: &'a (dyn Fn(Vec<Client<'_>>) + Sync),
}

/// Runs each client on a thread. One that panics has ended.
pub fn threads(clients: Vec<Client<'_>>) {
    std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(client))
            .collect();
        for client in running {
            // Whoever waits for its result finds none.
            drop(client.join());
        }
    });
}

/// What a check waits for at most: much longer than any wait of a scheduler that keeps the rules.
pub(super) const PATIENCE: Micros = Micros(2_000_000);

/// Waits for what comes, and says whether it came without the wait's time running out: a last look
/// then would hide that no other was made.
pub(super) fn comes(sched: &dyn Sched, on: WaitOn, poll: &mut dyn FnMut() -> Poll) -> bool {
    let end = sched.now().after(PATIENCE);
    sched.block(on, poll, Some(PATIENCE)) && sched.now() < end
}

/// Time never goes back; keys are new; a wait ends as its poll says, misses no wake, and ends when
/// its time is over.
///
/// # Errors
/// The rule that it breaks.
pub fn check(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    fixture.alone(time_never_goes_back)?;
    keys_are_never_given_twice(fixture)?;
    fixture.alone(a_wait_ends_as_its_poll_says)?;
    fixture.alone(a_wake_before_the_rest_is_not_lost)?;
    a_wake_reaches_another_client(fixture)?;
    a_wake_reaches_everybody(fixture)?;
    if fixture.mode == Mode::Inline {
        return Ok(());
    }
    fixture.alone(a_wait_ends_with_its_time)
}

impl SchedFixture<'_> {
    /// Runs one client and gives its result.
    pub(super) fn alone(
        &self,
        client: impl FnOnce(&Arc<dyn Sched>) -> Result<(), Violation> + Send,
    ) -> Result<(), Violation> {
        self.together([client])
    }

    /// Runs clients beside each other and gives the first violation that one of them found.
    pub(super) fn together<const N: usize, F>(&self, clients: [F; N]) -> Result<(), Violation>
    where
        F: FnOnce(&Arc<dyn Sched>) -> Result<(), Violation> + Send,
    {
        let mut results = [const { None }; N];
        let slots = results.iter_mut();
        let all = clients.into_iter().zip(slots).map(|(client, result)| {
            let run: Client<'_> = Box::new(|| *result = Some(client(&self.sched)));
            run
        });
        (self.clients)(all.collect());
        for result in results {
            result.must("every client comes to its end")??;
        }
        Ok(())
    }
}

fn time_never_goes_back(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    let mut last = Tick(0);
    let on = sched.wait_on();
    for _ in 0..100 {
        sched.pause();
        sched.wake(on);
        sched.block(on, &mut || Poll::Done, Some(PATIENCE));
        let now = sched.now();
        hold!(
            now >= last,
            "time never goes back",
            "{last:?}, then {now:?}"
        );
        last = now;
    }
    Ok(())
}

fn keys_are_never_given_twice(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let clients = [&mut first, &mut second].map(|keys| {
        |sched: &Arc<dyn Sched>| {
            keys.extend((0..500).map(|_| sched.wait_on()));
            Ok(())
        }
    });
    fixture.together(clients)?;
    let mut keys: Vec<WaitOn> = first.into_iter().chain(second).collect();
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    hold!(
        keys.len() == count,
        "a key to wait on is never given out twice",
        "{} keys in {count}",
        keys.len()
    );
    Ok(())
}

fn a_wait_ends_as_its_poll_says(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    for within in [None, Some(Micros(0)), Some(PATIENCE)] {
        let on = sched.wait_on();
        let mut looks = 0;
        let mut there = || {
            looks += 1;
            Poll::Done
        };
        let done = sched.block(on, &mut there, within);
        hold!(
            done && looks == 1,
            "a wait for what is there looks once and is done",
            "{done} after {looks} looks, within {within:?}"
        );
        let done = sched.block(on, &mut || Poll::Never, within);
        hold!(
            !done,
            "a wait for what cannot come ends, and is not done",
            "{done} within {within:?}"
        );
    }
    Ok(())
}

/// The wake is made by the look itself, so that it always comes between look and rest. A look that
/// takes a [`SleepLock`](crate::sched::SleepLock) and lets it go wakes in the same way.
fn a_wake_before_the_rest_is_not_lost(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    for last in [Poll::Done, Poll::Never] {
        let on = sched.wait_on();
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            if looks < 4 {
                sched.wake(on);
                return Poll::Pending;
            }
            last
        };
        let start = sched.now();
        let done = sched.block(on, &mut look, Some(PATIENCE));
        // A wait for what cannot come may run its time.
        let in_time = sched.now() < start.after(PATIENCE) || last == Poll::Never;
        hold!(
            in_time && looks >= 4 && done == (last == Poll::Done),
            "a wake between a waiter's look and its rest is not lost",
            "{done} after {looks} looks, the last of which said {last:?}"
        );
    }
    Ok(())
}

fn a_wake_reaches_another_client(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    const TURNS: u64 = 200;
    let turn = AtomicU64::new(0);
    let on = fixture.sched.wait_on();
    let clients = [0, 1].map(|parity| {
        let turn = &turn;
        move |sched: &Arc<dyn Sched>| {
            for mine in (parity..TURNS).step_by(2) {
                let mut my_turn = || match turn.load(Ordering::Acquire) {
                    now if now == mine => Poll::Done,
                    _ => Poll::Pending,
                };
                let done = comes(sched.as_ref(), on, &mut my_turn);
                hold!(
                    done,
                    "a wake lets a waiting client look again",
                    "client {parity} never saw turn {mine}"
                );
                turn.store(mine + 1, Ordering::Release);
                sched.wake(on);
            }
            Ok(())
        }
    });
    fixture.together(clients)
}

fn a_wake_reaches_everybody(fixture: &SchedFixture<'_>) -> Result<(), Violation> {
    let (arrived, open) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (arrival, opening) = (fixture.sched.wait_on(), fixture.sched.wait_on());
    let clients = [0, 1, 2].map(|number| {
        let (arrived, open) = (&arrived, &open);
        move |sched: &Arc<dyn Sched>| {
            if number == 2 {
                let mut all_here = || match arrived.load(Ordering::Acquire) {
                    2 => Poll::Done,
                    _ => Poll::Pending,
                };
                let done = comes(sched.as_ref(), arrival, &mut all_here);
                open.store(true, Ordering::Release);
                sched.wake(opening);
                hold!(
                    done,
                    "a wake lets a waiting client look again",
                    "{arrived:?} arrived"
                );
                return Ok(());
            }
            let mut looked = false;
            let mut is_open = || {
                if open.load(Ordering::Acquire) {
                    return Poll::Done;
                }
                if !looked {
                    looked = true;
                    arrived.fetch_add(1, Ordering::Release);
                    sched.wake(arrival);
                }
                Poll::Pending
            };
            let done = comes(sched.as_ref(), opening, &mut is_open);
            hold!(
                done,
                "a wake reaches everybody who waits on the key",
                "waiter {number} never looked again"
            );
            Ok(())
        }
    });
    fixture.together(clients)
}

fn a_wait_ends_with_its_time(sched: &Arc<dyn Sched>) -> Result<(), Violation> {
    for within in [Micros(0), Micros(1), Micros(200)] {
        let on = sched.wait_on();
        let start = sched.now();
        let done = sched.block(on, &mut || Poll::Pending, Some(within));
        let end = sched.now();
        hold!(
            !done,
            "a wait whose time is over is not done",
            "{done} within {within:?}"
        );
        hold!(
            end >= start.after(within),
            "a wait does not end before its time",
            "{within:?} from {start:?}, ended at {end:?}"
        );
    }
    Ok(())
}
