//! Copies by DMA over a scripted engine, through the op layer's public surface.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod aftermath;
mod bytes;
mod chains;
mod cores;
mod descriptors;
mod engine;
mod events;
mod failures;
mod fuzz;
mod machine;
mod resets;
mod rig;
mod scrub;
mod users;
mod vectors;
