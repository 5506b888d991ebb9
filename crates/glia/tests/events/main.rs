//! Event files as their reader sees them: equal for one seed, and such that what driver and device
//! say of a batch can be joined.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod command;
mod files;
