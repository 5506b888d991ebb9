//! The rig: a device whose memory is measured, and what lies in it before the clock starts.
//!
//! A rig is a V3 device with one process attached. Everything happens on channel 0, in chunks that
//! die with the process, as a runtime takes them. The machine gives no host memory and the reserve
//! pools are empty: nothing here asks for any.
//!
//! The **small pool** is there, as by default, only when the device is otherwise empty. A scene
//! with many small chunks switches it off; it holds 1 GiB, and a scene that spills over would be
//! measured on two pools, the one full and the other not.

use std::sync::Arc;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, HostPa};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::fault::NoFaults;
use glia_abi::handle::{Channel, DeviceId, McHandle, Pid};
use glia_abi::mem::Lifespan;
use glia_abi::params::ModuleParams;
use glia_abi::port::HostMemory;
use glia_abi::usage::Category;
use glia_driver::alloc::AllocRequest;
use glia_driver::arena::Arena;
use glia_driver::chunk::{Chunk, ChunkRef};
use glia_driver::memory::{DeviceMemory, MemoryConfig, Pinned};

use super::BenchError;

const CALLER: Pid = Pid::new(4242);
const CHANNEL: Channel = Channel::new(0);

/// A device, and the process that asks for its memory.
pub(super) struct Rig<A: Arena> {
    memory: DeviceMemory<A>,
}

/// Whether the channel has its small pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SmallPool {
    Default,
    Off,
}

/// What is asked for, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pages: u32,
    /// The alignment; 0 for none.
    align_pages: u32,
}

/// What lies in memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ground {
    /// Nothing.
    Empty,
    /// `live` chunks of a page, without a gap.
    Solid { live: u32 },
    /// `lead` chunks of a page, then `holes` free extents of `hole_pages`, a live chunk of a page
    /// behind each.
    Pierced {
        lead: u32,
        holes: u32,
        hole_pages: u32,
    },
}

impl<A: Arena> Rig<A> {
    pub(super) fn new(small_pool: SmallPool) -> Result<Self, BenchError> {
        let layout = MemoryLayout::new(Arch::V3, Scale::Full)?;
        let mut config = MemoryConfig::new(layout);
        config.params.mempool_host_memory_size = 0;
        config.params.mempool_small_pool_size = match small_pool {
            SmallPool::Default => ModuleParams::default().mempool_small_pool_size,
            SmallPool::Off => 0,
        };
        let memory = DeviceMemory::new(config, Arc::new(NoHost), Arc::new(NoFaults))?;
        memory.open(CALLER)?;
        Ok(Self { memory })
    }

    /// Takes a chunk.
    pub(super) fn take(&self, request: &AllocRequest) -> Result<ChunkRef, BenchError> {
        Ok(self.memory.alloc(CALLER, request)?)
    }

    /// Gives a chunk back.
    pub(super) fn give(&self, chunk: ChunkRef) -> Result<(), BenchError> {
        self.memory.free(CALLER, chunk)?;
        Ok(())
    }

    /// Gives a chunk its handle.
    pub(super) fn publish(&self, chunk: ChunkRef) -> Result<McHandle, BenchError> {
        Ok(self.memory.publish(chunk)?)
    }

    /// Finds the chunk that a handle names.
    pub(super) fn find(&self, handle: McHandle) -> Option<(ChunkRef, Chunk)> {
        self.memory.find(handle)
    }

    /// Pins the chunk that a handle names.
    pub(super) fn pin(&self, handle: McHandle) -> Option<Pinned<'_, A>> {
        self.memory.pin_handle(handle)
    }

    /// Finds the chunk that contains an address.
    pub(super) fn search(&self, at: BusAddr) -> Option<(ChunkRef, Chunk)> {
        self.memory.search(at)
    }

    /// The device's address map.
    pub(super) fn layout(&self) -> MemoryLayout {
        self.memory.config().layout
    }

    /// The chunks of the bench in address order.
    pub(super) fn chunks(&self) -> Vec<Chunk> {
        let mut chunks = self.memory.channel_chunks(CHANNEL);
        chunks.retain(|chunk| chunk.owner() == CALLER);
        chunks
    }
}

impl Ask {
    pub(super) const fn plain(pages: u32) -> Self {
        Self {
            pages,
            align_pages: 0,
        }
    }

    pub(super) const fn aligned(pages: u32, align_pages: u32) -> Self {
        Self { pages, align_pages }
    }

    pub(super) fn request(self) -> AllocRequest {
        AllocRequest {
            align_bytes: u64::from(self.align_pages) * PAGE_SIZE_BYTES,
            ..request(u64::from(self.pages) * PAGE_SIZE_BYTES)
        }
    }
}

/// A plain request of the bench's process.
pub(super) fn request(size_bytes: u64) -> AllocRequest {
    AllocRequest {
        lifespan: Lifespan::CurrentProcess,
        category: Category::TENSORS_DEVICE,
        ..AllocRequest::device(size_bytes, CHANNEL)
    }
}

impl Ground {
    /// A rig with this ground.
    pub(super) fn lay<A: Arena>(self) -> Result<Rig<A>, BenchError> {
        let rig = Rig::new(match self {
            Self::Empty => SmallPool::Default,
            Self::Solid { .. } | Self::Pierced { .. } => SmallPool::Off,
        })?;
        let page = Ask::plain(1).request();
        match self {
            Self::Empty => {}
            Self::Solid { live } => {
                for _ in 0..live {
                    rig.take(&page)?;
                }
            }
            Self::Pierced {
                lead,
                holes,
                hole_pages,
            } => {
                for _ in 0..lead {
                    rig.take(&page)?;
                }
                let mut plugs = Vec::new();
                for _ in 0..holes {
                    plugs.push(rig.take(&Ask::plain(hole_pages).request())?);
                    rig.take(&page)?;
                }
                for plug in plugs {
                    rig.give(plug)?;
                }
            }
        }
        Ok(rig)
    }

    /// Live chunks.
    pub(super) fn live(self) -> u32 {
        match self {
            Self::Empty => 0,
            Self::Solid { live } => live,
            Self::Pierced { lead, holes, .. } => lead + holes,
        }
    }

    /// Changes the number of chunks or, where there are some, holes.
    pub(super) fn resize(&mut self, size: impl FnOnce(u32) -> u32) {
        match self {
            Self::Empty => {}
            Self::Solid { live: count } | Self::Pierced { holes: count, .. } => {
                *count = size(*count)
            }
        }
    }
}

/// A machine that has no host memory for devices.
struct NoHost;

impl HostMemory for NoHost {
    fn alloc(&self, _: DeviceId, _: u64) -> Option<HostPa> {
        None
    }

    fn free(&self, _: DeviceId, _: HostPa, _: u64) {}
}
