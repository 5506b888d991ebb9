//! The driver's front door over the software device, with a scheduler of the test's choice: what
//! happens when processes open and close at the same time, and what the queues of one do on real
//! engines, in time, in weak order and beside other threads.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

#[expect(dead_code, reason = "shared with the tests of single commands")]
#[path = "../ioctl/client.rs"]
mod client;
mod closes;
mod exits;
mod handovers;
mod kept_queues;
mod opens;
mod own_chunks;
#[expect(dead_code, reason = "shared with the tests of single commands")]
#[path = "../ioctl/queue_rig.rs"]
mod queue_rig;
mod support;
mod taken_queues;
mod user_queues;
