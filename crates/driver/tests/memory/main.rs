//! The driver's memory as a whole, through its public surface.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod errors;
mod faults;
mod lifespans;
mod model;
mod pins;
mod placement;
mod support;
mod threads;
