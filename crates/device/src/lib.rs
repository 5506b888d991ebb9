#![cfg(not(loom))]
#![deny(unsafe_code)]
//! The software device and the machine's host memory.
//!
//! A [`Device`] is a Neuron chip as its driver meets it: registers, HBM, and DMA engines that read
//! descriptors out of host memory and move bytes. A [`HostArena`] is the memory beside it, an
//! [`AddressSpace`] that of a process, and a scheduler ([`InlineSched`] or another one of [`sched`])
//! decides when the engines work. No driver is needed: whoever writes descriptors and rings
//! doorbells gets bytes moved.
//!
//! ```text
//!   driver ── Port: registers ────────► Device ── bar0 ──► udma ──► queues ─┐
//!          ── DmaMemory: descriptors ─► HostArena ◄── reads and writes ─────┤
//!          ── UserMemory: pins ───────► AddressSpace ──► pin table ◄────────┤
//!                                       Hbm ◄───────────────────────────────┘
//! ```
//!
//! | module | what it is |
//! | --- | --- |
//! | [`device`] | one chip: the [`Port`](glia_abi::port::Port) |
//! | `bar0`, `udma` | its registers; its engines, their queues, the copying of a pair |
//! | `firmware` | misc RAM, and the resets that are asked for there |
//! | `bus` | what an engine reaches by an address |
//! | `hbm` | its channels |
//! | [`host`] | host memory: the arena below 4 GiB, pinned user pages above |
//! | [`user`] | the memory of a process, as far as the driver may use it |
//! | [`sched`] | time and waiting: inline, on threads, or by decree of a seed |
//! | `memory` | the bytes themselves: the only module with unsafe code |
//!
//! **Invariants.** No byte of HBM changes but by a descriptor, a BAR4 store, a mapping or a trim.
//! Nothing here waits: whoever waits does so through the [`Sched`](glia_abi::sched::Sched). Nobody
//! is ever handed a slice of shared memory other than of atomics.
//!
//! **What is not here.** Completion rings, interrupts, compute, and of the firmware all but resets.
//! Under `--cfg loom` the crate is empty: loom's atomics cannot lie in mapped memory.

mod bar0;
mod bus;
pub mod device;
mod extents;
mod firmware;
mod hbm;
pub mod host;
mod mapping;
#[expect(
    unsafe_code,
    reason = "bytes that devices, drivers and processes share are reached by pointer"
)]
mod memory;
pub mod sched;
mod udma;
pub mod user;

pub use device::{Device, DeviceConfig, DeviceError};
pub use hbm::BadHbmRange;
pub use host::{HostArena, HostConfig, HostError, PinLayout};
pub use memory::MapError;
pub use sched::{InlineSched, ThreadedSched, VirtualSched};
pub use udma::timing::{EngineOrder, EngineTiming};
pub use user::AddressSpace;
