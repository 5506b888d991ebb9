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
//! | [`process`] | the one runtime of a process, and the gate before every call |
//! | [`runtime`] | opens devices, keeps the allocators that live with a core |
//! | [`config`] | what it is told when it is opened, from code or from the environment |
//! | [`model`] | loaded models: what they own |
//! | [`tensor`] | named bytes on a core, the public unit of memory: views, fences, batches, sets |
//! | [`scratchpad`] | memory that the models of a core take turns to use |
//! | [`dmem`] | allocations: usage to category, alignment, references, copies |
//! | [`dml`] | the ledger of live bytes, the ring of events, the reports |
//! | [`explanation`] | why there was no room: cause, who is in the way, the least to free |
//! | [`stats`] | bytes in use on a core, and the most that can be |
//! | [`trace`] | the reference's trace events: ids, payloads, who hears of them |
//! | [`ndl`] | one typed call for each ioctl, and the copy buffer of each core |
//! | [`error`] | what can go wrong, and the status that each case answers |
//!
//! The runtime reaches the driver through [`Transport`](glia_abi::transport::Transport) alone. It
//! reads no clock, no environment, and writes to no file: time, process numbers, variables and the
//! places that log lines, files and events go to are given by whoever opens it ([`dml::Log`],
//! [`dml::Dump`], [`RuntimeConfig::sink`], [`RuntimeConfig::from_env`]).
//!
//! **What this does not do.** It runs no models: whoever does says when a model is loaded
//! ([`Model::log_usage`]), what it is reading and writing ([`tensor::Fence`]) and which outputs are
//! complete. A core here is a physical one; the size of a logical core counts for the scratchpad and
//! in reports. There is no address of a tensor in the program (`nrt_tensor_get_va`), no dmabuf, and
//! nobody writes files of the reference's trace format.
//!
//! **Locks.** The copy buffer of a core and its scratchpad are held across waits and so are
//! [`SleepLock`](glia_abi::sched::SleepLock)s, the scratchpad before the buffer; the fences of
//! tensors are waited for before either. The books, the list of what goes with a model and the counts
//! of fences have plain mutexes, which are let go before any call into the driver.

pub mod config;
pub mod dmem;
pub mod dml;
pub mod error;
pub mod explanation;
pub mod model;
pub mod ndl;
pub mod process;
pub mod runtime;
pub mod scratchpad;
pub mod stats;
pub mod tensor;
pub mod trace;

pub use config::RuntimeConfig;
pub use dmem::{AllocSpec, AskedAt, Dmem};
pub use error::RuntimeError;
pub use explanation::Explanation;
pub use model::Model;
pub use runtime::{Core, Runtime};
pub use scratchpad::ScratchVariable;
pub use tensor::{Placement, Tensor, TensorSet};
