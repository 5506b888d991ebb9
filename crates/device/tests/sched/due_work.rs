//! Virtual time waits for work that can be done now, whoever is held back meanwhile.

use std::sync::{Arc, Mutex};

use glia_abi::sched::{Micros, Sched, Step, Tick, Worker};
use glia_device::VirtualSched;
use glia_device::sched::Client;

use crate::support::{spawn, start};

/// Always has something to do a little later, so that there is a time to pass to.
struct Ticks;

impl Worker for Ticks {
    fn step(&self, now: Tick) -> Step {
        Step::At(now.after(Micros(3)))
    }
}

/// What is ordered takes it two steps; remembers how long after the order each of them was.
#[derive(Default)]
struct Prompt(Mutex<Orders>);

#[derive(Default)]
struct Orders {
    /// When the order that is being worked off was given, and whether the first step is done.
    open: Option<(Tick, bool)>,
    delays_ns: Vec<u64>,
}

impl Worker for Prompt {
    fn step(&self, now: Tick) -> Step {
        let mut orders = self.0.lock().unwrap();
        let Some((ordered, is_begun)) = orders.open else {
            return Step::Idle;
        };
        orders.delays_ns.push(now.0 - ordered.0);
        if is_begun {
            orders.open = None;
            return Step::Idle;
        }
        orders.open = Some((ordered, true));
        Step::Again
    }
}

/// How long after its order each step was, where so many clients order and pause.
fn delays_ns(seed: u64, clients: usize) -> Vec<u64> {
    let sched = VirtualSched::new(seed);
    let (prompt, ticks) = (Arc::<Prompt>::default(), Arc::new(Ticks));
    let id = spawn(&sched, &prompt);
    let clients = (0..clients).map(|_| {
        let (sched, prompt, ticks) = (&sched, &prompt, &ticks);
        let run: Client<'_> = Box::new(move || {
            start(sched, ticks);
            for _ in 0..100 {
                prompt
                    .0
                    .lock()
                    .unwrap()
                    .open
                    .get_or_insert((sched.now(), false));
                sched.kick(id);
                sched.pause();
            }
        });
        run
    });
    sched.run(clients.collect()).unwrap();
    assert!(sched.now() > Tick(0), "no time has passed at all");
    std::mem::take(&mut prompt.0.lock().unwrap().delays_ns)
}

#[test]
fn no_time_passes_over_a_worker_that_can_run() {
    for clients in [1, 2, 4] {
        for seed in 0..20 {
            let delays = delays_ns(seed, clients);
            assert!(delays.len() > 30, "{} steps", delays.len());
            assert!(
                delays.iter().all(|&delay| delay == 0),
                "{clients} clients, seed {seed}: {delays:?}"
            );
        }
    }
}
