//! Machines in which things fail on order.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod given_back;
mod matrix;
mod rig;
mod seeds;
mod stuck;
