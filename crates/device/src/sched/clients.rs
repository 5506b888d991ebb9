//! Clients: what uses a machine from threads of its own, and how a run of them can end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

use glia_abi::handle::WorkerId;
use glia_abi::sched::{Tick, WaitOn};

/// What one client does, from its beginning to its end.
pub type Client<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Why a run of clients did not end well. Clients are numbered in the order of the call, from 0.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A client or a worker runs clients of the scheduler that runs it.
    #[error("clients of a scheduler are run by one of its clients or workers")]
    Nested,
    /// The system gives no thread.
    #[error("client {client} gets no thread")]
    NoThread {
        /// Which.
        client: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not every client came to its end.
    #[error("{}", tell(deadlock.as_ref(), panics))]
    Broken {
        /// Everybody waited for somebody else.
        deadlock: Option<Deadlock>,
        /// Whoever panicked, in the order in which they did; in the clients' order where they run
        /// beside each other.
        panics: Vec<Panicked>,
    },
}

/// Clients that wait without bound, while no work is due that could end a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// When nothing was left to be done.
    pub at: Tick,
    /// Who waits.
    pub waiting: Vec<Waiting>,
}

/// A client that waits for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Which client.
    pub client: usize,
    /// What it waits on.
    pub on: WaitOn,
    /// Since when.
    pub since: Tick,
}

/// Who panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// A client.
    Client(usize),
    /// A worker, in its step.
    Worker(WorkerId),
}

/// A panic in a run.
#[derive(Debug)]
pub struct Panicked {
    /// Whose.
    pub who: Actor,
    /// Its message; none if it is not a text.
    pub message: Option<String>,
    /// Behind a mutex so that the error may be shared.
    payload: Mutex<Box<dyn Any + Send>>,
}

impl Panicked {
    pub(super) fn new(who: Actor, payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self {
            who,
            message: text.map(str::to_owned),
            payload: Mutex::new(payload),
        }
    }

    /// What it panicked with, for [`std::panic::resume_unwind`].
    #[must_use]
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        let payload = self.payload.into_inner();
        payload.unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Display for Deadlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "deadlock at {} us", self.at.micros())?;
        for Waiting { client, on, since } in &self.waiting {
            let since_us = since.micros();
            write!(
                f,
                ", client {client} waits on key {} since {since_us} us",
                on.0
            )?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Panicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.who {
            Actor::Client(client) => write!(f, "client {client} panicked")?,
            Actor::Worker(worker) => write!(f, "worker {} panicked", worker.get())?,
        }
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

fn tell(deadlock: Option<&Deadlock>, panics: &[Panicked]) -> String {
    let deadlock = deadlock.map(ToString::to_string);
    let panics = panics.iter().map(ToString::to_string);
    let all: Vec<_> = deadlock.into_iter().chain(panics).collect();
    all.join("; ")
}

/// The answer to a run in which this happened.
pub(super) fn outcome(deadlock: Option<Deadlock>, panics: Vec<Panicked>) -> Result<(), RunError> {
    if deadlock.is_none() && panics.is_empty() {
        return Ok(());
    }
    Err(RunError::Broken { deadlock, panics })
}

/// Runs each client on a thread, beside the others, and returns when all have ended. For a
/// scheduler that need not know its clients, as the inline and the threaded one.
///
/// # Errors
/// [`RunError::Broken`] if a client panicked (the others come to their end),
/// [`RunError::NoThread`] if the system gives no thread; clients before that one have run then.
pub fn run_on_threads(clients: Vec<Client<'_>>) -> Result<(), RunError> {
    let mut panics = Vec::new();
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        let mut started = Ok(());
        for (number, client) in clients.into_iter().enumerate() {
            // What a client leaves behind when it panics is seen by those who asked for the run.
            let client = move || catch_unwind(AssertUnwindSafe(client));
            match Builder::new().spawn_scoped(scope, client) {
                Ok(thread) => running.push(thread),
                Err(source) => {
                    started = Err(RunError::NoThread {
                        client: number,
                        source,
                    });
                    break;
                }
            }
        }
        for (number, thread) in running.into_iter().enumerate() {
            if let Err(payload) | Ok(Err(payload)) = thread.join() {
                panics.push(Panicked::new(Actor::Client(number), payload));
            }
        }
        started
    })?;
    outcome(None, panics)
}
