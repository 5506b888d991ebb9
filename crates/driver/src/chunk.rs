//! Mem chunks: what is known of one live allocation, and how one is named.
//!
//! The records themselves lie in a slab (`chunk/slab.rs`).

mod slab;

use std::fmt;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::{Channel, ChunkId, CoreId, McHandle, Pid};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

pub(crate) use slab::{ChunkSlab, FreeSlots};

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

impl From<ChunkRef> for ChunkId {
    fn from(chunk: ChunkRef) -> Self {
        Self {
            slot: chunk.slot,
            generation: chunk.generation,
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

/// A copy of a chunk's record. What cannot change while the chunk lives is of one life; references
/// and handle, which can, are each as they were at some moment of the copying.
///
/// It stays packed as it lies in memory, so that a lookup costs little more than reading it; each
/// figure is unpacked where it is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    at: u64,
    size_bytes: u64,
    /// Category in the high half; below, the fields of [`Traits`].
    traits: u64,
    birth: u64,
    owner: u32,
    site: u32,
    handle: u32,
    refs: u32,
}

/// What a chunk is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewChunk {
    pub(crate) at: BusAddr,
    pub(crate) size_bytes: u64,
    pub(crate) location: Location,
    pub(crate) place: Place,
    pub(crate) channel: Channel,
    pub(crate) core: CoreId,
    pub(crate) lifespan: Lifespan,
    pub(crate) category: Category,
    pub(crate) owner: Pid,
    pub(crate) site: SiteId,
    pub(crate) birth: u64,
}

impl From<NewChunk> for Chunk {
    /// A record with one reference and no handle.
    #[inline]
    fn from(new: NewChunk) -> Self {
        Self {
            at: new.at.get(),
            size_bytes: new.size_bytes,
            traits: Traits::pack(&new),
            birth: new.birth,
            owner: new.owner.get(),
            site: new.site.get(),
            handle: 0,
            refs: 1,
        }
    }
}

impl Chunk {
    /// Address as the device sees it; host chunks carry the host base.
    #[must_use]
    pub fn at(&self) -> BusAddr {
        BusAddr::new(self.at)
    }

    /// Size in bytes, rounded up to the page size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Host or device.
    #[must_use]
    pub fn location(&self) -> Location {
        match Traits::LOCATION.of(self.traits) {
            0 => Location::Host,
            _ => Location::Device,
        }
    }

    /// Which pool served it.
    #[must_use]
    pub fn place(&self) -> Place {
        match Traits::PLACE.of(self.traits) {
            0 => Place::Main,
            1 => Place::Small,
            2 => Place::Coherent,
            pool => Place::Reserve {
                pool: pool - 3,
                page: Traits::PAGE.of(self.traits),
            },
        }
    }

    /// The channel that was asked for (host chunks have one, too).
    #[must_use]
    pub fn channel(&self) -> Channel {
        Channel::new(Traits::CHANNEL.of(self.traits))
    }

    /// The core it is charged to.
    #[must_use]
    pub fn core(&self) -> CoreId {
        CoreId::new(Traits::CORE.of(self.traits))
    }

    /// The lifespan it was asked with. A promotion moves it to another list and leaves this
    /// (driver 2.27).
    #[must_use]
    pub fn lifespan(&self) -> Lifespan {
        match Traits::LIFESPAN.of(self.traits) {
            0 => Lifespan::Local,
            1 => Lifespan::CurrentProcess,
            2 => Lifespan::AllProcess,
            _ => Lifespan::Device,
        }
    }

    /// The category, as the caller gave it.
    #[must_use]
    pub fn category(&self) -> Category {
        Category(low_u32(self.traits >> 32))
    }

    /// The process that asked.
    #[must_use]
    pub fn owner(&self) -> Pid {
        Pid::new(self.owner)
    }

    /// Whether it is the driver's own or the firmware's, which no process has asked for.
    #[must_use]
    pub fn is_nobodys(&self) -> bool {
        self.owner() == Pid::default()
    }

    /// Its handle, once published.
    #[must_use]
    pub fn handle(&self) -> Option<McHandle> {
        McHandle::new(self.handle)
    }

    /// References, 1 at birth.
    #[must_use]
    pub fn refs(&self) -> u32 {
        self.refs
    }

    /// The place in the caller's program that asked.
    #[must_use]
    pub fn site(&self) -> SiteId {
        SiteId::new(self.site)
    }

    /// Its number among all allocations of the device, from 0: an age that needs no clock.
    #[must_use]
    pub fn birth(&self) -> u64 {
        self.birth
    }

    /// Whether the address is one of the chunk's.
    #[must_use]
    pub fn contains(&self, at: BusAddr) -> bool {
        at.get().wrapping_sub(self.at) < self.size_bytes
    }

    /// The chunk's addresses.
    #[must_use]
    pub fn span(&self) -> Span<BusAddr> {
        Span::cut(self.at(), self.size_bytes)
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("at", &self.at())
            .field("size_bytes", &self.size_bytes())
            .field("location", &self.location())
            .field("place", &self.place())
            .field("channel", &self.channel())
            .field("core", &self.core())
            .field("lifespan", &self.lifespan())
            .field("category", &self.category())
            .field("owner", &self.owner())
            .field("handle", &self.handle())
            .field("refs", &self.refs())
            .field("site", &self.site())
            .field("birth", &self.birth())
            .finish()
    }
}

/// A few bits of the packed properties.
#[derive(Clone, Copy)]
struct Bits {
    shift: u32,
    width: u32,
}

impl Bits {
    fn of(self, traits: u64) -> u32 {
        (low_u32(traits) >> self.shift) & ((1 << self.width) - 1)
    }
}

/// The fixed properties of a chunk, packed into 32 bits below the category.
struct Traits;

impl Traits {
    const CHANNEL: Bits = Bits { shift: 0, width: 4 };
    const CORE: Bits = Bits { shift: 4, width: 4 };
    const LOCATION: Bits = Bits { shift: 8, width: 1 };
    const LIFESPAN: Bits = Bits { shift: 9, width: 2 };
    const PLACE: Bits = Bits {
        shift: 11,
        width: 3,
    };
    const PAGE: Bits = Bits {
        shift: 14,
        width: 18,
    };

    #[inline]
    fn pack(new: &NewChunk) -> u64 {
        let (place, page) = match new.place {
            Place::Main => (0, 0),
            Place::Small => (1, 0),
            Place::Coherent => (2, 0),
            Place::Reserve { pool, page } => (3 + pool, page),
        };
        let low = (new.channel.get() << Self::CHANNEL.shift)
            | (new.core.get() << Self::CORE.shift)
            | (u32::from(new.location == Location::Device) << Self::LOCATION.shift)
            | ((new.lifespan.value() - 1) << Self::LIFESPAN.shift)
            | (place << Self::PLACE.shift)
            | (page << Self::PAGE.shift);
        (u64::from(new.category.0) << 32) | u64::from(low)
    }
}

/// Pages that a record has room for. Reserve pools have fewer (driver 2.27: an `int` of bytes in
/// pages of 256 KiB is 8,192).
pub(crate) const RESERVE_PAGES_MAX: u32 = 1 << 18;

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
