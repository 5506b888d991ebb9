//! What runs out besides HBM: host memory, handles, attach slots.

use std::collections::BTreeMap;

use glia_abi::handle::{DeviceId, Pid};
use glia_abi::insight::{AttachedProcess, ChunkFacts, PoolSnapshot, ReserveSnapshot};

use super::blocks::{Own, Owner};

/// What one owner holds of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Who.
    pub owner: Owner,
    /// Blocks.
    pub blocks: u64,
    /// Their bytes, in whole pages.
    pub bytes: u64,
}

/// Why there was no host memory that the device could reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostExplanation {
    /// The device.
    pub device: DeviceId,
    /// This process, if the runtime knows its number.
    pub process: Option<Pid>,
    /// Bytes that the driver was asked for.
    pub asked_bytes: u64,
    /// Bytes that are in use for this device. (Other devices of the machine have their own.)
    pub held_bytes: u64,
    /// Who holds them, most bytes first.
    pub holders: Vec<Share>,
    /// The driver's reserve, which it tries last.
    pub reserves: Vec<ReserveSnapshot>,
    /// Free bytes of HBM, which does not help here.
    pub hbm_free_bytes: u64,
}

impl HostExplanation {
    pub(super) fn new(
        device: DeviceId,
        asked_bytes: u64,
        snapshot: &PoolSnapshot,
        own: &Own,
    ) -> Self {
        let channels = snapshot.channels.iter();
        let holes = channels.flat_map(|channel| &channel.free);
        Self {
            device,
            process: own.process,
            asked_bytes,
            held_bytes: snapshot.host_bytes,
            holders: shares(&snapshot.host_chunks, own),
            reserves: snapshot.reserves.clone(),
            hbm_free_bytes: holes.map(|hole| hole.size_bytes()).sum(),
        }
    }

    /// The most bytes that the reserve could give now.
    #[must_use]
    pub fn reserve_largest_bytes(&self) -> u64 {
        let reserves = self.reserves.iter();
        reserves.map(|one| one.largest_bytes).max().unwrap_or(0)
    }
}

/// Why there was no handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandleExplanation {
    /// The device.
    pub device: DeviceId,
    /// This process, if the runtime knows its number.
    pub process: Option<Pid>,
    /// The most handles that the table can have out at the same time.
    pub handles_max: u32,
    /// Whether the table is down: it has once been full, or could not grow.
    pub is_down: bool,
    /// Who holds chunks that have a handle, most first.
    pub holders: Vec<Share>,
}

impl HandleExplanation {
    pub(super) fn new(device: DeviceId, snapshot: &PoolSnapshot, own: &Own) -> Self {
        let channels = snapshot.channels.iter();
        let chunks = channels.flat_map(|channel| &channel.chunks);
        let chunks = chunks.chain(&snapshot.host_chunks);
        let mut holders = shares(chunks.filter(|chunk| chunk.handle.is_some()), own);
        holders.sort_by_key(|share| std::cmp::Reverse(share.blocks));
        Self {
            device,
            process: own.process,
            // The first cell is no handle, and the last is never given out (driver 2.27).
            handles_max: snapshot.handle_limit.saturating_sub(2),
            is_down: snapshot.handles_are_down,
            holders,
        }
    }
}

/// A process that has the device open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotHolder {
    /// Which, and how often it has the device open.
    pub process: AttachedProcess,
    /// Bytes of HBM that it holds.
    pub device_bytes: u64,
    /// Bytes of host memory that it holds for the device.
    pub host_bytes: u64,
}

/// Why the device could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotExplanation {
    /// The device.
    pub device: DeviceId,
    /// This process, if the runtime knows its number.
    pub process: Option<Pid>,
    /// Attach slots of the device.
    pub slots: u32,
    /// Who has them, by slot.
    pub holders: Vec<SlotHolder>,
}

impl SlotExplanation {
    pub(super) fn new(device: DeviceId, process: Option<Pid>, snapshot: &PoolSnapshot) -> Self {
        let mut held: BTreeMap<Pid, (u64, u64)> = BTreeMap::new();
        let channels = snapshot.channels.iter();
        for chunk in channels.flat_map(|channel| &channel.chunks) {
            held.entry(chunk.owner).or_default().0 += chunk.span.size_bytes();
        }
        for chunk in &snapshot.host_chunks {
            held.entry(chunk.owner).or_default().1 += chunk.span.size_bytes();
        }
        let holders = snapshot.processes.iter().map(|&process| {
            let (device_bytes, host_bytes) = held.get(&process.pid).copied().unwrap_or_default();
            SlotHolder {
                process,
                device_bytes,
                host_bytes,
            }
        });
        Self {
            device,
            process,
            slots: snapshot.process_limit,
            holders: holders.collect(),
        }
    }
}

/// What each owner holds, most bytes first.
fn shares<'a>(chunks: impl IntoIterator<Item = &'a ChunkFacts>, own: &Own) -> Vec<Share> {
    let mut by_owner: BTreeMap<Owner, (u64, u64)> = BTreeMap::new();
    for chunk in chunks {
        let held = by_owner.entry(own.owner(chunk)).or_default();
        held.0 += 1;
        held.1 = held.1.saturating_add(chunk.span.size_bytes());
    }
    let shares = by_owner.into_iter();
    let mut shares: Vec<Share> = shares
        .map(|(owner, (blocks, bytes))| Share {
            owner,
            blocks,
            bytes,
        })
        .collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}
