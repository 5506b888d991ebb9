#![forbid(unsafe_code)]
//! The runtime: what a framework links against to use device memory.
//!
//! ```text
//!   tensor ─► dmem ─► ndl ─► Transport ─► driver
//!               └───► dml (who holds what) ─► report, as data and as text
//! ```
//!
//! | module | what it does |
//! | --- | --- |
//! | [`runtime`] | opens devices, keeps the allocators that live with a core, loads models |
//! | [`tensor`] | named bytes on a core: the public unit of memory |
//! | [`dmem`] | allocations: usage to category, alignment, references, staged copies |
//! | [`dml`] | the ledger of live bytes, the ring of events, the out-of-memory report |
//! | [`ndl`] | one typed call for each ioctl, and the copy buffer of each core |
//! | [`error`] | what can go wrong, and the status that each case answers |
//!
//! The runtime reaches the driver through [`Transport`](glia_abi::transport::Transport) alone. It
//! reads no clock and writes to no file: time, process numbers and the places that log lines and
//! events go to are given by whoever opens it ([`dml::Log`], [`RuntimeConfig::sink`]).
//!
//! **What this does not do.** It runs no models. A core here is a physical one. Scratchpad, zero
//! copy and batches are absent.
//!
//! **Locks.** The copy buffer of a core is held across waits and so is a
//! [`SleepLock`](glia_abi::sched::SleepLock); ledger and allocator lists have plain mutexes, which
//! are let go before any call into the driver.

pub mod dmem;
pub mod dml;
pub mod error;
pub mod ndl;
pub mod runtime;
pub mod tensor;

pub use dmem::{AllocSpec, Dmem};
pub use error::RuntimeError;
pub use runtime::{Core, Model, Runtime, RuntimeConfig};
pub use tensor::{Placement, Tensor};
