#![forbid(unsafe_code)]
//! What crosses a boundary in Glia, and nothing else.
//!
//! The device model, the driver and the runtime never meet; each talks to the next through the
//! types and traits of this crate, so any of them can be tested against, or replaced by, the real
//! thing. Nothing here does I/O, keeps state or takes a lock.
//!
//! | module | what it says |
//! | --- | --- |
//! | [`addr`] | addresses as types, alignment and ranges: the only place where address arithmetic is written |
//! | [`handle`] | numbers that name things: memory handles, processes, devices, channels, cores |
//! | [`arch`] | the hardware generations as data: V2 (Trn1, Inf2), V3 (Trn2), V4 (Trn3) |
//! | [`params`] | the driver's module parameters, with the reference's names and defaults |
//! | [`mem`] | what is said of a mem chunk when it is asked for: location, lifespan |
//! | [`usage`] | allocation categories and the counters that they are charged to |
//! | [`errno`] | the error numbers that a caller sees |
//! | [`port`] | the seams: host memory as the driver asks for it |
//! | [`fault`] | where a fault can be injected, and who is asked |
//! | [`divergence`] | where Glia differs from the reference on purpose |

pub mod addr;
pub mod arch;
pub mod divergence;
pub mod errno;
pub mod fault;
pub mod handle;
pub mod mem;
pub mod params;
pub mod port;
pub mod usage;

/// Page size of the driver in bytes: sizes of chunks are multiples of it (driver 2.27,
/// `PAGE_SIZE`).
pub const PAGE_SIZE_BYTES: u64 = 4096;
