//! What a device's pools hold at one moment: the facts from which a failure is explained.
//!
//! The real driver tells nobody; the software one answers
//! [`Transport::insight`](crate::transport::Transport::insight).

use std::sync::Arc;

use crate::addr::{BusAddr, Span};
use crate::handle::{Channel, ChunkId, CoreId, McHandle, Pid};
use crate::mem::Lifespan;
use crate::usage::Category;

/// A live mem chunk of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkFacts {
    /// Which.
    pub chunk: ChunkId,
    /// Its bytes, rounded up as the pool does.
    pub span: Span<BusAddr>,
    /// Who took it.
    pub owner: Pid,
    /// Its handle, if it has one.
    pub handle: Option<McHandle>,
    /// The core that it is charged to.
    pub core: CoreId,
    /// What for.
    pub category: Category,
    /// Who outlives it.
    pub lifespan: Lifespan,
    /// Where it was asked for, in the caller's words; "unknown" if nobody said.
    pub site: Arc<str>,
    /// How many allocations of the device came before it.
    pub birth: u64,
}

/// One HBM channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSnapshot {
    /// Which.
    pub channel: Channel,
    /// All its HBM.
    pub region: Span<BusAddr>,
    /// Where the main pool ends and the small pool begins.
    pub main_end: BusAddr,
    /// Its chunks, by address; the driver's own are among them.
    pub chunks: Vec<ChunkFacts>,
    /// Its holes, by address. None crosses the border of the pools.
    pub free: Vec<Span<BusAddr>>,
}

/// A host reserve pool: pages put aside for the day when the machine has none left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveSnapshot {
    /// Bytes of a page, which is the most that it gives to one request.
    pub page_size_bytes: u64,
    /// Free bytes in all its pages.
    pub free_bytes: u64,
    /// Bytes of its largest hole.
    pub largest_bytes: u64,
}

/// A process that has the device open, and so takes an attach slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachedProcess {
    /// Which.
    pub pid: Pid,
    /// How often it has the device open.
    pub opens: u32,
}

/// All pools of a device, and what else can run out there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolSnapshot {
    /// Its channels, in order.
    pub channels: Vec<ChannelSnapshot>,
    /// Bytes of host chunks.
    pub host_bytes: u64,
    /// Host chunks by address; the driver's own are among them.
    pub host_chunks: Vec<ChunkFacts>,
    /// The host reserve pools, by the size of their pages.
    pub reserves: Vec<ReserveSnapshot>,
    /// Places and sizes in the device pools are multiples of this many bytes.
    pub granule_bytes: u64,
    /// Requests up to this size try the small pool first, larger ones the main pool.
    pub small_alloc_max_bytes: u64,
    /// Allocations so far: what [`ChunkFacts::birth`] counts.
    pub births: u64,
    /// Cells of the handle table; the first and the last are never given out.
    pub handle_limit: u32,
    /// Whether the handle table has gone down, from which it does not come back.
    pub handles_are_down: bool,
    /// The processes that have the device open, by slot.
    pub processes: Vec<AttachedProcess>,
    /// Attach slots of the device.
    pub process_limit: u32,
}
