//! Time and waiting: the modes of [`Sched`](glia_abi::sched::Sched), one file each.
//!
//! | mode | type | for |
//! | --- | --- | --- |
//! | inline | [`InlineSched`] | the default: everything happens on the caller's thread, at once |
//! | threaded | [`ThreadedSched`] | engines that work beside their callers, in real time |
//! | virtual | [`VirtualSched`] | every order of events that a seed can choose, the same each time |
//!
//! They differ in who steps a worker, and in what a wait that leads nowhere costs:
//!
//! | | inline | threaded | virtual |
//! | --- | --- | --- | --- |
//! | a kick | does the work | queues it for a thread | makes it one of the choices |
//! | time | moves along due work | wall clock | moves when nothing else can |
//! | a wait for what cannot come | ends at once | ends at once | runs its time |
//! | clients that wait for each other | hang | hang | are unwound and reported |
//! | a worker that panics | unwinds its caller | goes idle | goes idle, and is reported |
//!
//! In the virtual mode clients are made known to the scheduler, by [`VirtualSched::run`]; in the
//! others [`run_on_threads`] does the same for threads that it need not know.

mod clients;
mod inline;
mod threaded;
mod virtual_time;
mod workers;

pub use clients::{Actor, Client, Deadlock, Panicked, RunError, Waiting, run_on_threads};
pub use inline::InlineSched;
pub use threaded::{THREADS_MAX, ThreadedSched, ThreadsError};
pub use virtual_time::{HELD_MAX, HELD_ONE_IN, PASSES_ONE_IN, VirtualSched};
