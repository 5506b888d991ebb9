//! Mem chunks: what is known of one live allocation, and how one is named.
//!
//! The records themselves lie in a slab (`chunk/slab.rs`).

mod slab;

use std::fmt;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::{Channel, CoreId, McHandle, Pid};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

pub(crate) use slab::{ChunkSlab, FreeSlots, RESERVE_PAGES_MAX};

use crate::site::SiteId;

/// Names one life of one chunk record. A reference to a chunk that has died is answered with
/// "dead", never with its successor.
///
/// It belongs to the device memory that made it; another one may answer with a chunk of its own.
/// A slot whose generations are used up, after 2^32 - 1 lives, is not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkRef {
    slot: u32,
    generation: u32,
}

impl ChunkRef {
    /// Bits of a slot number, so that slot and generation fit a cell of the handle table.
    const SLOT_BITS: u32 = 28;
    /// Bits of [`to_bits`](Self::to_bits).
    pub(crate) const BITS: u32 = Self::SLOT_BITS + 32;

    /// The record's slot.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.slot
    }

    /// Which life of the slot.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// Slot and generation in [`BITS`](Self::BITS) bits.
    pub(crate) fn to_bits(self) -> u64 {
        (u64::from(self.generation) << Self::SLOT_BITS) | u64::from(self.slot)
    }

    /// The inverse of [`to_bits`](Self::to_bits).
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self {
            slot: low_u32(bits) & ((1 << Self::SLOT_BITS) - 1),
            generation: low_u32(bits >> Self::SLOT_BITS),
        }
    }
}

impl fmt::Display for ChunkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}.{}", self.slot, self.generation)
    }
}

/// Which pool served a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// The main pool of its channel.
    Main,
    /// The small pool of its channel.
    Small,
    /// The machine's DMA allocator.
    Coherent,
    /// A page of a host reserve pool.
    Reserve {
        /// Which pool, 0 to 3: page size 256 KiB shifted by this.
        pool: u32,
        /// Which of its pages, in the order in which the pool obtained them.
        page: u32,
    },
}

/// A copy of a chunk's record, true at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Address as the device sees it; host chunks carry the host base.
    pub at: BusAddr,
    /// Size in bytes, rounded up to the page size.
    pub size_bytes: u64,
    /// Host or device.
    pub location: Location,
    /// Which pool served it.
    pub place: Place,
    /// The channel that was asked for (host chunks have one, too).
    pub channel: Channel,
    /// The core it is charged to.
    pub core: CoreId,
    /// The lifespan it was asked with. A promotion moves it to another list and leaves this (driver
    /// 2.27).
    pub lifespan: Lifespan,
    /// The category, as the caller gave it.
    pub category: Category,
    /// The process that asked.
    pub owner: Pid,
    /// Its handle, once published.
    pub handle: Option<McHandle>,
    /// References, 1 at birth.
    pub refs: u32,
    /// The place in the caller's program that asked.
    pub site: SiteId,
    /// Its number among all allocations of the device, from 0: an age that needs no clock.
    pub birth: u64,
}

impl Chunk {
    /// Whether the address is one of the chunk's.
    #[must_use]
    pub fn contains(&self, at: BusAddr) -> bool {
        at.checked_offset_from(self.at)
            .is_some_and(|offset_bytes| offset_bytes < self.size_bytes)
    }

    /// The chunk's addresses.
    #[must_use]
    pub fn span(&self) -> Span<BusAddr> {
        Span::cut(self.at, self.size_bytes)
    }
}

/// The chunk is gone: freed, swept, or never of this device (the reference stops the kernel here).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{chunk} is not live: it was freed, or is not of this device")]
pub struct DeadChunk {
    /// The reference that was given.
    pub chunk: ChunkRef,
}

/// Why a chunk could not be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The chunk is gone.
    #[error(transparent)]
    Dead(#[from] DeadChunk),
    /// As many pins are out as can be counted.
    #[error("{chunk} has {} pins, and more cannot be counted", (1_u32 << 31) - 1)]
    TooMany {
        /// The chunk.
        chunk: ChunkRef,
    },
}

/// The low half of a word.
fn low_u32(word: u64) -> u32 {
    // CAST: masked to 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    let low = (word & u64::from(u32::MAX)) as u32;
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_survive_the_trip_through_a_handle_cell() {
        for (slot, generation) in [
            (0, 0),
            ((1 << ChunkRef::SLOT_BITS) - 1, u32::MAX),
            (12_345, 678),
        ] {
            let chunk = ChunkRef { slot, generation };
            assert_eq!(ChunkRef::from_bits(chunk.to_bits()), chunk);
            assert!(chunk.to_bits() < 1 << ChunkRef::BITS);
        }
    }
}
