//! The schedulers: what runs when, at which time, and how it ends.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod due_work;
mod inline;
mod support;
mod threaded;
mod virtual_time;
