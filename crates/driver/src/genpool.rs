//! Gen pools: one contiguous range of addresses, handed out by an arena.
//!
//! The kernel's general-purpose pool allocator, as the reference uses it: sizes are bytes,
//! placement is in granules of a power of two, and a request that does not fill its last granule
//! still takes all of it. The arena below knows only units; this file turns bytes into units and
//! offsets into addresses.
//!
//! Two details of the reference are kept because traces show them: a request is first compared in
//! **bytes** with the bytes still available, and a range whose size is no multiple of the granule
//! counts its tail as available although no unit covers it.

use std::num::NonZeroU32;

use crate::arena::{Arena, Extent};

/// A fixed request whose place is not on a granule (the reference warns and fails).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misaligned {
    pub(crate) offset_bytes: u64,
    pub(crate) granule_bytes: u64,
}

/// One range of a pool. Addresses are plain numbers here: HBM for device pools, host physical for
/// reserve pages.
#[derive(Debug)]
pub(crate) struct GenPool<A> {
    start: u64,
    order: u32,
    available_bytes: u64,
    arena: A,
}

impl<A> GenPool<A> {
    /// First address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}

impl<A: Arena> GenPool<A> {
    /// A free range. A range of 2^32 granules or more is cut to that; no device comes near.
    pub(crate) fn new(start: u64, size_bytes: u64, order: u32) -> Self {
        let units = u32::try_from(size_bytes >> order).unwrap_or(u32::MAX);
        Self {
            start,
            order,
            available_bytes: size_bytes,
            arena: A::new(start >> order, units),
        }
    }

    /// Plain first fit.
    pub(crate) fn alloc(&mut self, size_bytes: u64) -> Option<u64> {
        let units = self.units_wanted(size_bytes)?;
        let unit = self.arena.alloc(units)?;
        Some(self.taken(unit, units))
    }

    /// First fit with the reference's arithmetic for `align_bytes`, which is at least 1.
    pub(crate) fn alloc_aligned(&mut self, size_bytes: u64, align_bytes: u64) -> Option<u64> {
        let units = self.units_wanted(size_bytes)?;
        let align_units = u32::try_from(align_bytes.div_ceil(1 << self.order))
            .ok()
            .and_then(NonZeroU32::new)?;
        let unit = self.arena.alloc_aligned(units, align_units)?;
        Some(self.taken(unit, units))
    }

    /// Takes exactly the range at `offset_bytes` from the start, or nothing.
    pub(crate) fn alloc_at(
        &mut self,
        size_bytes: u64,
        offset_bytes: u64,
    ) -> Result<Option<u64>, Misaligned> {
        let Some(units) = self.units_wanted(size_bytes) else {
            return Ok(None);
        };
        let granule_bytes = self.granule_bytes();
        if !offset_bytes.is_multiple_of(granule_bytes) {
            return Err(Misaligned {
                offset_bytes,
                granule_bytes,
            });
        }
        // An offset that wrapped below the start is a huge number here, and no unit of the arena.
        let Ok(unit) = u32::try_from(offset_bytes >> self.order) else {
            return Ok(None);
        };
        Ok(self
            .arena
            .alloc_at(unit, units)
            .then(|| self.taken(unit, units)))
    }

    /// Gives back what one request of `size_bytes` took at `at`. False if that is not wholly taken;
    /// nothing changes then.
    pub(crate) fn free(&mut self, at: u64, size_bytes: u64) -> bool {
        let unit = at
            .checked_sub(self.start)
            .and_then(|offset| u32::try_from(offset >> self.order).ok());
        let units = u32::try_from(size_bytes.div_ceil(self.granule_bytes())).ok();
        let Some((unit, units)) = unit.zip(units) else {
            return false;
        };
        if self.arena.free(unit, units).is_err() {
            return false;
        }
        self.available_bytes += u64::from(units) << self.order;
        true
    }

    pub(crate) fn granule_bytes(&self) -> u64 {
        1 << self.order
    }

    /// Bytes that the reference counts as available.
    pub(crate) fn available_bytes(&self) -> u64 {
        self.available_bytes
    }

    /// Bytes of the largest free extent.
    pub(crate) fn largest_free_bytes(&self) -> u64 {
        u64::from(self.arena.largest_free()) << self.order
    }

    /// The most bytes that a request with this alignment could take now, for an `align_bytes` that
    /// is at least 1.
    pub(crate) fn largest_aligned_bytes(&self, align_bytes: u64) -> u64 {
        // What of the start lies below a granule is in every address; the final check sees it.
        if self.start & (self.granule_bytes() - 1) & (align_bytes - 1) != 0 {
            return 0;
        }
        let align_units = u32::try_from(align_bytes.div_ceil(self.granule_bytes()));
        let align_units = align_units.ok().and_then(NonZeroU32::new);
        align_units.map_or(0, |units| {
            u64::from(self.arena.largest_aligned_fit(units)) << self.order
        })
    }

    /// Free extents in address order, as first address and size in bytes.
    pub(crate) fn free_extents(&self) -> impl Iterator<Item = (u64, u64)> {
        let bytes = |extent: Extent| {
            (
                self.start + (u64::from(extent.start) << self.order),
                u64::from(extent.len) << self.order,
            )
        };
        self.arena.free_extents().map(bytes)
    }

    /// Units for a request; `None` if it is empty or exceeds the bytes available.
    fn units_wanted(&self, size_bytes: u64) -> Option<u32> {
        if size_bytes == 0 || size_bytes > self.available_bytes {
            return None;
        }
        u32::try_from(size_bytes.div_ceil(self.granule_bytes())).ok()
    }

    fn taken(&mut self, unit: u32, units: u32) -> u64 {
        self.available_bytes -= u64::from(units) << self.order;
        self.start + (u64::from(unit) << self.order)
    }
}
