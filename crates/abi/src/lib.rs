#![forbid(unsafe_code)]
//! What crosses a boundary in Glia, and nothing else.
//!
//! The device model, the driver and the runtime never meet; each talks to the next through the
//! types and traits of this crate, so any of them can be tested against, or replaced by, the real
//! thing. Nothing here does I/O. Nothing keeps state or takes a lock but the fault plan, which
//! counts, and what a thread works for in the driver.
//!
//! | module | what it says |
//! | --- | --- |
//! | [`addr`] | addresses as types, alignment and ranges: the only place where address arithmetic is written |
//! | [`handle`] | numbers that name things: memory handles, processes, devices, channels, cores, queues |
//! | [`arch`] | the hardware generations as data: V2 (Trn1, Inf2), V3 (Trn2), V4 (Trn3) |
//! | [`regs`], [`udma`] | BAR0's registers; DMA descriptors |
//! | [`completion`] | the queue in shared memory that tells of asynchronous zero copies |
//! | [`ioctl`] | command words of `/dev/neuron*` and their structs |
//! | [`params`] | the driver's module parameters, with the reference's names and defaults |
//! | [`mem`] | what is said of a mem chunk when it is asked for: location, lifespan |
//! | [`usage`], [`mem_usage`] | allocation categories and their counters; the runtime's usages and report columns |
//! | [`errno`], [`nrt`] | the error numbers of the driver; the status codes of the runtime |
//! | [`fault`] | where a fault can be injected, who is asked, and the plan that answers |
//! | [`chance`] | chance that is the same in every run |
//! | [`insight`] | what the pools hold, for whoever explains a failure |
//! | [`divergence`] | where Glia differs from the reference on purpose |
//! | [`sync`] | the atomics of shared memory |
//!
//! The seams are traits:
//!
//! | seam | between | module |
//! | --- | --- | --- |
//! | [`Port`](port::Port) | driver and device: registers, and the wait for a word | [`port`] |
//! | [`HostMemory`](port::HostMemory), [`DmaMemory`](port::DmaMemory), [`MachineMemory`](port::MachineMemory) | driver and host memory: its allocator, its bytes, its pins | [`port`] |
//! | [`Transport`](transport::Transport), [`Mapping`](transport::Mapping), [`UserBuffer`](transport::UserBuffer) | runtime and driver | [`transport`] |
//! | [`UserMemory`](transport::UserMemory), [`CapturedMemory`](transport::CapturedMemory) | driver and the calling process | [`transport`] |
//! | [`Sched`](sched::Sched), [`Worker`](sched::Worker) | whoever waits, and time | [`sched`] |
//! | [`Sink`](event::Sink) | every layer, and whoever listens | [`event`] |
//! | [`Faults`](fault::Faults) | every layer, and whoever breaks it | [`fault`] |
//!
//! An implementation of a seam can be put through its rules: [`conformance`].

pub mod addr;
pub mod arch;
pub mod chance;
pub mod completion;
pub mod conformance;
pub mod divergence;
pub mod errno;
pub mod event;
pub mod fault;
pub mod handle;
pub mod insight;
pub mod ioctl;
pub mod mem;
pub mod mem_usage;
pub mod nrt;
pub mod params;
pub mod port;
pub mod regs;
pub mod sched;
pub mod sync;
pub mod transport;
pub mod udma;
pub mod usage;

/// Page size of the driver in bytes: sizes of chunks are multiples of it (driver 2.27,
/// `PAGE_SIZE`).
pub const PAGE_SIZE_BYTES: u64 = 4096;
