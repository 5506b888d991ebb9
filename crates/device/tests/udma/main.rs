//! The device without our driver: registers and descriptors written by hand.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot be set up fails; halves of addresses are cut on purpose"
)]

mod flight;
mod fuzz;
mod queues;
mod resets;
mod rig;
