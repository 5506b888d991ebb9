//! The atomics of shared memory: std's, or loom's under `--cfg loom`, so that the code that
//! publishes descriptors and waits for markers can be explored as it is.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, Ordering, fence};
