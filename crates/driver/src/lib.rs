#![forbid(unsafe_code)]
//! The kernel driver's side of Glia: where every span of HBM and host memory is placed, who holds
//! it, and who gives it back.
//!
//! One [`DeviceMemory`](memory::DeviceMemory) is the memory of one Neuron device. It places exactly
//! as the reference driver does (release 2.27.4), at logarithmic cost. Start at [`memory`], which
//! walks the path of an allocation; the other modules are its parts:
//!
//! | module | one noun |
//! | --- | --- |
//! | [`driver`] | the front door, for all devices of a machine: open, ioctl, mmap, flush, release |
//! | `files`, [`mmap`] | open files; mappings |
//! | `dispatch`, `ioctl` | from a command word to its function; the commands |
//! | [`memory`] | a device's memory as a whole: allocate, free, look up, publish, sweep |
//! | [`alloc`] | a request, and the ways to refuse it |
//! | `poolset`, `pool`, `reserve`, `genpool` | the set, a channel's pools, the host reserve, a byte range over an arena |
//! | [`arena`] | which units are free: the extent tree, and the naive bitmap as its model |
//! | [`chunk`], [`lifespan`], [`index`] | chunk records, the lists they are on, lookup by address |
//! | [`handles`] | the handle table |
//! | [`dma`], `ring` | copies by DMA, engines, queues of processes; rings of descriptors |
//! | [`reset`], [`bar0`] | which copies a reset has disturbed; which registers a process may write |
//! | [`process`], [`usage`], [`site`] | attach slots, usage counters, allocation sites |
//! | [`claims`], [`model_lock`], [`core_init`] | who uses which core: claims, models, whose turn it is |
//! | [`errno`] | every error's number, in one place |

pub mod alloc;
pub mod arena;
pub mod bar0;
pub mod chunk;
pub mod claims;
pub mod core_init;
mod datastore;
mod dispatch;
pub mod dma;
pub mod driver;
pub mod errno;
mod files;
mod genpool;
pub mod handles;
pub mod index;
#[cfg(test)]
#[cfg(loom)]
mod interleavings;
mod ioctl;
pub mod lifespan;
pub mod memory;
pub mod mmap;
pub mod model_lock;
pub mod pool;
mod poolset;
pub mod process;
mod reserve;
pub mod reset;
mod ring;
pub mod site;
mod sync;
pub mod usage;

pub use dispatch::command_of;
