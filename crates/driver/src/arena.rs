//! Arenas: which units of a pool are free, and which free run answers a request.
//!
//! An arena is the pure half of a memory pool. It knows a row of `len_units` equal units
//! (granules), some taken, some free; it hands out *offsets* in units and never touches memory,
//! takes no lock and knows no address except one: `base_unit`, the absolute number of its first
//! unit, because alignment is of absolute addresses.
//!
//! The placement is the reference's (driver 2.27 over the kernel's general-purpose pool allocator):
//! every search begins at unit 0 and the answer is the **lowest** run that fits. Two arenas keep
//! that promise:
//!
//! - [`ExtentTree`]: the one the driver uses. Its cost grows with the logarithm of the number of
//!   free extents.
//! - [`NaiveBitmap`]: the reference's own loop over a bitmap: the model in tests and the peer in
//!   benches.
//!
//! Invariants of every arena, checked by the property tests: free plus taken units equal
//! `len_units`; free extents do not overlap and never touch each other (neighbours are merged).

mod bitmap;
#[cfg(test)]
mod tests;
mod tree;

use std::num::NonZeroU32;

pub use bitmap::NaiveBitmap;
pub use tree::ExtentTree;

/// A run of units, half open: `[start, start + len)`, in units from the arena's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// First unit.
    pub start: u32,
    /// Number of units, never 0.
    pub len: u32,
}

impl Extent {
    /// The unit after the last one.
    #[must_use]
    pub fn end(self) -> u32 {
        self.start.saturating_add(self.len)
    }
}

/// Why an arena refused to take units back. The arena is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FreeError {
    /// The run does not lie inside the arena, or is empty.
    #[error("units {start}+{len} do not lie inside the arena of {len_units} units")]
    OutOfRange {
        /// First unit of the run.
        start: u32,
        /// Units in the run.
        len: u32,
        /// Size of the arena in units.
        len_units: u32,
    },
    /// At least one of the units is free already.
    #[error("units {start}+{len} are not all taken")]
    NotTaken {
        /// First unit of the run.
        start: u32,
        /// Units in the run.
        len: u32,
    },
}

/// A row of units that is handed out by address-ordered first fit.
///
/// A request for 0 units, or for more than `len_units`, is refused by every `alloc_…` method.
pub trait Arena: Send {
    /// A name for tables and benches.
    const NAME: &'static str;

    /// A wholly free arena of `len_units` units (0 is allowed: such an arena refuses everything).
    /// `base_unit` is the absolute number of unit 0: the pool's first address divided by the
    /// granule, rounded down.
    fn new(base_unit: u64, len_units: u32) -> Self
    where
        Self: Sized;

    /// Size in units.
    fn len_units(&self) -> u32;

    /// Free units.
    fn free_units(&self) -> u32;

    /// Plain first fit: takes the lowest free run of `units` units and gives its first unit.
    fn alloc(&mut self, units: u32) -> Option<u32>;

    /// First fit with alignment (driver 2.27: the alignment is of the absolute address).
    ///
    /// With `mask = align_units - 1` and `off = base_unit & mask`, the reference walks
    ///
    /// ```text
    /// start = 0
    /// loop:  i = next free unit at or after start          (none: refused)
    ///        i = ((i + off + mask) & !mask) - off
    ///        if i + units > len_units: refused
    ///        j = first taken unit in [i, i + units);       none: i is the answer
    ///        start = j + 1
    /// ```
    ///
    /// For a power of two this is the lowest `i` with `base_unit + i` a multiple of `align_units`.
    /// For any other value it is the same bit arithmetic, which is not monotone: the answer need
    /// not be a multiple of anything nor the lowest that fits, and it is reproduced by walking
    /// exactly that loop.
    fn alloc_aligned(&mut self, units: u32, align_units: NonZeroU32) -> Option<u32>;

    /// Fixed placement: takes exactly `[at, at + units)` if all of it is free.
    fn alloc_at(&mut self, at: u32, units: u32) -> bool;

    /// Gives `[at, at + units)` back, which must be taken in full. It need not be what one request
    /// took.
    ///
    /// # Errors
    /// [`FreeError`] when the run is empty, leaves the arena or holds a free unit; nothing changes
    /// then.
    fn free(&mut self, at: u32, units: u32) -> Result<(), FreeError>;

    /// Units of the largest free extent; 0 when nothing is free.
    fn largest_free(&self) -> u32;

    /// The most units that [`alloc_aligned`](Arena::alloc_aligned) could take for this alignment
    /// now. For an alignment that is no power of two it is the largest run that starts at a unit
    /// the reference's arithmetic can answer, which bounds it from above.
    fn largest_aligned_fit(&self, align_units: NonZeroU32) -> u32;

    /// All free extents in address order, neighbours merged.
    fn free_extents(&self) -> Box<dyn Iterator<Item = Extent> + '_>;

    /// Bytes of heap that the arena holds.
    fn heap_bytes(&self) -> usize;
}
