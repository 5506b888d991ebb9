//! The driver's front door, driven by raw bytes and without a runtime: a test's own user memory on
//! one side, a test's own host memory and engine on the other.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod alloc;
mod by_layout;
mod chain;
mod claims;
mod client;
mod copy;
mod datastore;
mod describe;
mod descriptors;
mod events;
mod files;
mod fill;
mod forms;
mod gates;
mod h2t;
mod hostile;
mod identity;
mod initialisation;
mod lanes;
mod maps;
mod model_locks;
mod order;
mod program;
mod queue_rig;
mod queues;
mod resets;
mod ring_memory;
mod scrub;
mod support;
mod table;
