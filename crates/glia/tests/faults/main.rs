//! Faults on order: what a program sees of them, and plan files.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod files;
mod points;
