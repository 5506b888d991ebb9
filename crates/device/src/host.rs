//! The machine's host memory: coherent memory below 4 GiB, pinned user pages above.
//!
//! ```text
//!   0      2 MiB             arena end    4 GiB                          2^44
//!   | none | coherent arena  |    none    | pinned user pages, sparse    | host base of V2
//! ```
//!
//! The arena is what the reference's coherent DMA allocator gives (DMA32 zone): [`HostArena`] takes
//! the lowest range that fits. Its bytes are sparse, like HBM. The pins come from an
//! [`AddressSpace`](crate::user::AddressSpace).
//!
//! **Invariant.** Live ranges do not overlap, whatever is freed: a `free` that names no live range
//! with its device, address and size changes nothing and is counted.
//!
//! **Locks.** One mutex around the allocator's tables; bytes are reached without any lock. The pin
//! table has its own, see there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::HostPa;
use glia_abi::fault::{FaultPoint, Faults, NoFaults, Scope};
use glia_abi::handle::{DeviceId, PinId};
use glia_abi::port::{BadHostRange, DmaMemory, HostMemory, MachineMemory};
use glia_abi::sync::AtomicU32;
use glia_abi::transport::Mapping;

use crate::extents::Extents;
use crate::mapping::RegionMapping;
pub use crate::memory::PinLayout;
use crate::memory::{Bytes, BytesMut, MapError, PinTable, Region};

/// First address of the arena: low memory, address 0 above all, is nobody's.
const ARENA_START: u64 = 2 << 20;
/// One past the last address that coherent memory can have.
const ARENA_END_MAX: u64 = 4 << 30;

/// What host memory a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostConfig {
    /// Bytes of coherent memory, a multiple of 4,096, at most 4 GiB less 2 MiB.
    pub arena_size_bytes: u64,
    /// Where pinned pages lie.
    pub pin_layout: PinLayout,
    /// Bytes that can be pinned at a time.
    pub pinned_bytes_max: u64,
}

impl Default for HostConfig {
    /// All the coherent memory that there can be, which costs nothing until it is used; pins
    /// contiguous and without limit.
    fn default() -> Self {
        Self {
            arena_size_bytes: ARENA_END_MAX - ARENA_START,
            pin_layout: PinLayout::Contiguous,
            pinned_bytes_max: u64::MAX,
        }
    }
}

/// Why a machine cannot have such host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The arena's size.
    #[error(
        "an arena of {size_bytes} bytes is no positive multiple of 4096 up to {max_bytes} bytes"
    )]
    ArenaSize {
        /// Bytes asked for.
        size_bytes: u64,
        /// The most there is room for.
        max_bytes: u64,
    },
    /// Its address space could not be had.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// Host memory of one machine, see the module.
pub struct HostArena {
    region: Arc<Region>,
    ranges: Mutex<Ranges>,
    refused_frees: AtomicU64,
    pins: PinTable,
    faults: Arc<dyn Faults>,
}

/// The arena's bookkeeping, in host addresses.
struct Ranges {
    free: Extents,
    live: BTreeMap<u64, (DeviceId, u64)>,
}

impl HostArena {
    /// Host memory of which nothing is allocated and nothing is pinned.
    ///
    /// # Errors
    /// [`HostError`] if the size is out of range or the system has no room.
    pub fn new(config: HostConfig) -> Result<Self, HostError> {
        Self::with_faults(config, Arc::new(NoFaults))
    }

    /// The same, of which a plan orders that it has no memory, pins nothing, or scatters what it
    /// pins.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_faults(config: HostConfig, faults: Arc<dyn Faults>) -> Result<Self, HostError> {
        let size_bytes = config.arena_size_bytes;
        let max_bytes = ARENA_END_MAX - ARENA_START;
        if size_bytes == 0 || size_bytes > max_bytes || !size_bytes.is_multiple_of(PAGE_SIZE_BYTES)
        {
            return Err(HostError::ArenaSize {
                size_bytes,
                max_bytes,
            });
        }
        Ok(Self {
            region: Arc::new(Region::new(size_bytes, 0)?),
            ranges: Mutex::new(Ranges {
                free: Extents::new(ARENA_START, size_bytes),
                live: BTreeMap::new(),
            }),
            refused_frees: AtomicU64::new(0),
            pins: PinTable::new(
                config.pin_layout,
                config.pinned_bytes_max,
                Arc::clone(&faults),
            ),
            faults,
        })
    }

    /// Coherent memory as an object that keeps its bytes alive (not its allocation); `None` if the
    /// range leaves the arena.
    #[must_use]
    pub fn mapping(&self, at: HostPa, size_bytes: u64, writable: bool) -> Option<Arc<dyn Mapping>> {
        let mapping = RegionMapping::new(&self.region, offset(at)?, size_bytes, writable)?;
        Some(Arc::new(mapping))
    }

    /// Bytes of coherent memory that are allocated.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges
            .live
            .values()
            .map(|&(_, size_bytes)| size_bytes)
            .sum()
    }

    /// How often `free` named no live range.
    #[must_use]
    pub fn refused_frees(&self) -> u64 {
        self.refused_frees.load(Ordering::Relaxed)
    }

    /// Bytes that are pinned at this moment.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.pins.pinned_bytes()
    }

    /// Coherent memory to read; `None` if the range leaves the arena.
    pub(crate) fn bytes(&self, at: HostPa, size_bytes: u64) -> Option<Bytes<'_>> {
        self.region.bytes(offset(at)?, size_bytes)
    }

    /// Coherent memory to write; `None` if the range leaves the arena.
    pub(crate) fn bytes_mut(&self, at: HostPa, size_bytes: u64) -> Option<BytesMut<'_>> {
        self.region.bytes_mut(offset(at)?, size_bytes)
    }

    /// Whether a plan orders that a device gets no memory.
    fn is_refused(&self, device: DeviceId) -> bool {
        if !self.faults.is_armed() {
            return false;
        }
        let _for_device = Scope {
            device: Some(device),
            ..Scope::current()
        }
        .enter();
        self.faults.strikes(FaultPoint::HostMemory)
    }

    /// The pins.
    pub(crate) fn pins(&self) -> &PinTable {
        &self.pins
    }
}

/// Offset in the arena.
fn offset(at: HostPa) -> Option<u64> {
    at.checked_offset_from(HostPa::new(ARENA_START))
}

impl HostMemory for HostArena {
    fn alloc(&self, device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        if size_bytes == 0 || !size_bytes.is_multiple_of(PAGE_SIZE_BYTES) {
            return None;
        }
        if self.is_refused(device) {
            return None;
        }
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let start = ranges.free.take(size_bytes, ARENA_START)?;
        ranges.live.insert(start, (device, size_bytes));
        Some(HostPa::new(start))
    }

    fn free(&self, device: DeviceId, at: HostPa, size_bytes: u64) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if ranges.live.get(&at.get()) != Some(&(device, size_bytes)) {
            self.refused_frees.fetch_add(1, Ordering::Relaxed);
            return;
        }
        ranges.live.remove(&at.get());
        ranges.free.give(at.get(), size_bytes);
    }
}

impl DmaMemory for HostArena {
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange> {
        let bytes = self.bytes_mut(at, size_bytes);
        bytes
            .and_then(BytesMut::words)
            .ok_or(BadHostRange { at, size_bytes })
    }

    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange> {
        let size_bytes = into.len() as u64;
        let bytes = self.bytes(at, size_bytes);
        bytes.ok_or(BadHostRange { at, size_bytes })?.read(into);
        Ok(())
    }

    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange> {
        let size_bytes = bytes.len() as u64;
        let target = self.bytes_mut(at, size_bytes);
        target.ok_or(BadHostRange { at, size_bytes })?.write(bytes);
        Ok(())
    }

    fn fill(&self, at: HostPa, size_bytes: u64, value: u8) -> Result<(), BadHostRange> {
        let target = self.bytes_mut(at, size_bytes);
        target.ok_or(BadHostRange { at, size_bytes })?.fill(value);
        Ok(())
    }
}

impl MachineMemory for HostArena {
    fn unpin(&self, pin: PinId) {
        self.pins.unpin(pin);
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, Matching, Trigger};

    use super::*;

    const DEVICE: DeviceId = DeviceId::new(0);

    fn arena(pages: u64) -> HostArena {
        let config = HostConfig {
            arena_size_bytes: pages * PAGE_SIZE_BYTES,
            ..HostConfig::default()
        };
        HostArena::new(config).unwrap()
    }

    #[test]
    fn the_lowest_range_that_fits_is_given_and_freed_ranges_merge() {
        let arena = arena(4);
        let [a, b, c, d] = [(); 4].map(|()| arena.alloc(DEVICE, 4096).unwrap());
        assert!(a.get() > 0 && a < b && b < c && c < d);
        assert_eq!(arena.alloc(DEVICE, 4096), None);
        arena.free(DEVICE, c, 4096);
        arena.free(DEVICE, b, 4096);
        assert_eq!(arena.alloc(DEVICE, 8192), Some(b));
        assert_eq!(arena.allocated_bytes(), 4 * 4096);
    }

    #[test]
    fn a_free_that_names_no_live_range_changes_nothing() {
        let arena = arena(4);
        let at = arena.alloc(DEVICE, 8192).unwrap();
        let inside = HostPa::new(at.get() + 4096);
        for (device, at, size) in [
            (DEVICE, inside, 4096),
            (DEVICE, at, 4096),
            (DeviceId::new(1), at, 8192),
            (DEVICE, HostPa::new(0), 4096),
        ] {
            arena.free(device, at, size);
        }
        assert_eq!((arena.refused_frees(), arena.allocated_bytes()), (4, 8192));
        arena.free(DEVICE, at, 8192);
        arena.free(DEVICE, at, 8192);
        assert_eq!((arena.refused_frees(), arena.allocated_bytes()), (5, 0));
        assert_eq!(arena.alloc(DEVICE, 4 * 4096), Some(at));
    }

    #[test]
    fn memory_that_a_plan_refuses_is_there_for_the_next_one() {
        let plan = Arc::new(FaultPlan::new(0));
        let config = HostConfig {
            arena_size_bytes: 4 * PAGE_SIZE_BYTES,
            ..HostConfig::default()
        };
        let arena = HostArena::with_faults(config, Arc::clone(&plan) as _).unwrap();
        let matching = Matching {
            device: Some(DEVICE),
            ..Matching::default()
        };
        let id = plan
            .add(FaultRule {
                matching,
                trigger: Trigger::nth(2),
                ..FaultRule::new(FaultKind::FailedHostAlloc)
            })
            .unwrap();
        assert!(arena.alloc(DEVICE, 4097).is_none(), "no page's multiple");
        let whole = arena.alloc(DEVICE, 4 * 4096).unwrap();
        arena.free(DEVICE, whole, 4 * 4096);
        assert_eq!(arena.alloc(DEVICE, 4096), None);
        assert_eq!(arena.allocated_bytes(), 0);
        assert!(arena.alloc(DeviceId::new(1), 4096).is_some(), "not asked");
        assert!(arena.alloc(DEVICE, 3 * 4096).is_some());
        let so_far = plan.remove(id).unwrap();
        assert_eq!((so_far.opportunities, so_far.strikes), (3, 1));
    }

    #[test]
    fn sizes_that_no_arena_has_are_refused() {
        for arena_size_bytes in [0, 4097, 4 << 30] {
            let config = HostConfig {
                arena_size_bytes,
                ..HostConfig::default()
            };
            let refused = HostArena::new(config).err().unwrap();
            assert!(matches!(refused, HostError::ArenaSize { .. }));
        }
    }

    #[test]
    fn no_access_leaves_the_arena() {
        let arena = arena(1);
        let at = arena.alloc(DEVICE, 4096).unwrap();
        assert!(arena.write(at, &[1; 4096]).is_ok());
        assert!(arena.write(at, &[1; 4097]).is_err());
        assert!(arena.fill(HostPa::new(0), 1, 0).is_err());
        assert!(arena.read(HostPa::new(u64::MAX), &mut [0; 2]).is_err());
        assert!(arena.words(at, 6).is_err());
        assert_eq!(arena.words(at, 4096).unwrap().len(), 1024);
    }
}
