//! What a device's memory says of itself: facts that never change, and a snapshot of its books.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::{Channel, McHandle, Pid, SlotId};

use super::{CARVEOUT_SIZE_BYTES, DeviceMemory};
use crate::arena::Arena;
use crate::chunk::{Chunk, ChunkRef};
use crate::genpool::GenPool;
use crate::lifespan::{self, ListId};
use crate::reserve::RESERVE_POOLS;
use crate::usage::{Balance, Usage};

/// A channel's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelFacts {
    /// The region's addresses.
    pub region: Span<BusAddr>,
    /// Where the main pool ends and the small pool begins.
    pub main_end: BusAddr,
    /// Bytes of the small pool; 0 if there is none.
    pub small_size_bytes: u64,
    /// The carveout at the region's start.
    pub carveout: ChunkRef,
    /// The first address behind the carveout, from which the driver scrubs.
    pub effective_base: BusAddr,
}

/// A channel's books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelStats {
    /// Bytes of chunks, rounded sizes, the carveout included; of live ones and of dead ones that
    /// are pinned.
    pub allocated_bytes: u64,
    /// Bytes available in the main pool.
    pub main_free_bytes: u64,
    /// Bytes available in the small pool; 0 if there is none.
    pub small_free_bytes: u64,
    /// Bytes of the largest free extent of the main pool.
    pub main_largest_bytes: u64,
    /// Bytes of the largest free extent of the small pool.
    pub small_largest_bytes: u64,
    /// Bytes that the contiguous scratchpad holds, by its counter.
    pub scratchpad_bytes: u64,
    /// Scratchpad pages freed out of turn so far.
    pub scratchpad_complaints: u64,
}

/// A host reserve pool's books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveStats {
    /// Bytes of a page.
    pub page_size_bytes: u64,
    /// Pages wanted at bring-up.
    pub pages_requested: u32,
    /// Pages obtained.
    pub pages: u32,
    /// Bytes of live chunks, rounded sizes. (The reference only ever subtracts here: divergence
    /// `reserve-counter`.)
    pub allocated_bytes: u64,
    /// Bytes available.
    pub free_bytes: u64,
}

/// An attached process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStats {
    /// Its attach slot.
    pub slot: SlotId,
    /// The process.
    pub pid: Pid,
    /// How often it has the device open.
    pub open_count: u32,
    /// Host bytes charged to the slot, with what its earlier processes left there.
    pub host: Balance,
    /// Device bytes charged to the slot, likewise.
    pub device: Balance,
    /// Chunks on its list.
    pub chunks: u64,
}

/// Lengths of the lists that belong to no process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListLengths {
    /// Chunks on the local list.
    pub local: u64,
    /// Chunks that live as long as files are open.
    pub all: u64,
    /// Chunks that live as long as the device.
    pub device: u64,
}

/// The handle table's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleStats {
    /// Whether the table is down.
    pub is_down: bool,
    /// The handle that the next allocation gives if it succeeds; `None` when the table is down.
    pub next: Option<McHandle>,
    /// Pages of 8,192 cells in use.
    pub pages: u32,
    /// Cells of the table, index 0 included.
    pub limit: u32,
}

/// The books of a device at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes of live host chunks.
    pub host_bytes: u64,
    /// Bytes of live device chunks.
    pub device_bytes: u64,
    /// Live chunks.
    pub chunks: u64,
    /// Chunks that are dead and whose memory is pinned.
    pub held_chunks: u64,
    /// Their bytes, host and device, which are in neither figure above.
    pub held_bytes: u64,
    /// By channel.
    pub channels: Vec<ChannelStats>,
    /// By reserve pool, smallest pages first.
    pub reserves: [ReserveStats; RESERVE_POOLS],
    /// Of the lists.
    pub lists: ListLengths,
    /// Of the attached processes, by slot.
    pub processes: Vec<ProcessStats>,
}

impl<A: Arena> DeviceMemory<A> {
    /// Each channel's layout.
    #[must_use]
    pub fn channel_facts(&self) -> Vec<ChannelFacts> {
        let set = self.lock();
        let facts = set
            .pools
            .channels()
            .iter()
            .zip(&self.carveouts)
            .map(|(pool, &carveout)| {
                let region = pool.region();
                let effective_base = BusAddr::new(region.start().get() + CARVEOUT_SIZE_BYTES);
                let (main_end, small_size_bytes) = (pool.main_end(), pool.small_size_bytes());
                ChannelFacts {
                    region,
                    main_end,
                    small_size_bytes,
                    carveout,
                    effective_base,
                }
            });
        facts.collect()
    }

    /// Bytes of one granule of placement.
    #[must_use]
    pub fn granule_bytes(&self) -> u64 {
        1 << self.config.params.granule_order()
    }

    /// The books. Walks every list, so it costs time with the number of live chunks.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let set = self.lock();
        let length = |list| lifespan::iter(&self.slab, list).fold(0, |count, _| count + 1);
        let channels = set.pools.channels().iter().map(|pool| ChannelStats {
            allocated_bytes: pool.allocated_bytes(),
            main_free_bytes: pool.main().available_bytes(),
            small_free_bytes: pool.small().map_or(0, GenPool::available_bytes),
            main_largest_bytes: pool.main().largest_free_bytes(),
            small_largest_bytes: pool.small().map_or(0, GenPool::largest_free_bytes),
            scratchpad_bytes: pool.scratchpad_bytes(),
            scratchpad_complaints: pool.scratchpad_complaints(),
        });
        let processes = set
            .processes
            .attached()
            .map(|(slot, pid, attached)| ProcessStats {
                slot,
                pid,
                open_count: attached.opens,
                host: attached.host,
                device: attached.device,
                chunks: length(ListId::Process(slot)),
            });
        MemoryStats {
            host_bytes: set.host_bytes,
            device_bytes: set.device_bytes,
            chunks: set.chunks,
            held_chunks: set.held.len() as u64,
            held_bytes: set
                .held
                .iter()
                .map(|&chunk| self.slab.read_kept(chunk).size_bytes())
                .sum(),
            channels: channels.collect(),
            reserves: set.pools.reserves().each_ref().map(|reserve| ReserveStats {
                page_size_bytes: reserve.page_size_bytes(),
                pages_requested: reserve.pages_requested(),
                pages: u32::try_from(reserve.pages().len()).unwrap_or(u32::MAX),
                allocated_bytes: reserve.allocated_bytes(),
                free_bytes: reserve.free_bytes(),
            }),
            lists: ListLengths {
                local: length(ListId::Local),
                all: length(ListId::AllProcess),
                device: length(ListId::Device),
            },
            processes: processes.collect(),
        }
    }

    /// The state of the handle table.
    #[must_use]
    pub fn handle_stats(&self) -> HandleStats {
        let set = self.lock();
        HandleStats {
            is_down: self.handles.is_down(),
            next: set.free_handles.next(),
            pages: self.handles.pages(),
            limit: self.handles.limit(),
        }
    }

    /// The usage counters.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.lock().usage.clone()
    }

    /// The device chunks of a channel, in address order. Empty for a channel that does not exist.
    #[must_use]
    pub fn channel_chunks(&self, channel: Channel) -> Vec<Chunk> {
        let set = self.lock();
        let Some(pool) = set.pools.channels().get(channel.index()) else {
            return Vec::new();
        };
        self.index
            .starts(pool.region())
            .filter_map(|slot| self.slab.read_slot(slot))
            .map(|(_, chunk)| chunk)
            .collect()
    }

    /// The free extents of a channel in address order, the main pool's first. Empty for a channel
    /// that does not exist.
    #[must_use]
    pub fn free_extents(&self, channel: Channel) -> Vec<Span<BusAddr>> {
        let set = self.lock();
        let Some(pool) = set.pools.channels().get(channel.index()) else {
            return Vec::new();
        };
        let pools = std::iter::once(pool.main()).chain(pool.small());
        pools
            .flat_map(GenPool::free_extents)
            .filter_map(|(at, size)| Span::new(BusAddr::new(at), size))
            .collect()
    }

    /// The most bytes that one request with this alignment could take on the channel now, in either
    /// pool (by the arena's word for an alignment that is no power of two, which bounds it from
    /// above). 0 for an alignment that is refused, and for a channel that does not exist.
    #[must_use]
    pub fn largest_aligned_fit(&self, channel: Channel, align_bytes: u64) -> u64 {
        let set = self.lock();
        let pool = set.pools.channels().get(channel.index());
        pool.map_or(0, |pool| pool.largest_aligned_fit(align_bytes))
    }
}
