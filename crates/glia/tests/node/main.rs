//! Device nodes without a device: over a fake of the system calls that answers with the software
//! driver, and over the real ones on ordinary files.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod fake;
mod over_driver;
mod system;
