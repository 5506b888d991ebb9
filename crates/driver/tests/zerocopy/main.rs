//! Zero copies by the driver's op layer over the software device: user memory that is pinned, and a
//! completion queue that is read as a process reads it.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod asynchronous;
mod budgets;
mod cuts;
mod ends;
mod failures;
mod flags;
mod orders;
mod queues;
mod retries;
mod rig;
mod stores;
mod synchronous;
mod unpins;
mod waits;
mod watch;
