//! Event files as their reader sees them: equal for one seed, every name defined before its use, and
//! such that what the layers say of a chunk or of a batch can be joined.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod command;
mod files;
mod names;
