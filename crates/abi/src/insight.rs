//! What a device's pools hold at one moment: the facts from which a failure is explained.
//!
//! The real driver tells nobody; the software one answers
//! [`Transport::insight`](crate::transport::Transport::insight).

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
    pub site: String,
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

/// All pools of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// Its channels, in order.
    pub channels: Vec<ChannelSnapshot>,
    /// Bytes of host chunks.
    pub host_bytes: u64,
}
