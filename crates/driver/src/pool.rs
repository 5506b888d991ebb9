//! Device pools: one per channel, main and small part, and the scratchpad that grows down from the
//! end of the main part.
//!
//! ```text
//!   region start                                            main end                region end
//!   | carveout |  ordinary chunks, lowest first ->   <- scratchpad |  small pool, lowest first |
//!   |<------------------------- main ------------------------------>|<------- small ---------->|
//! ```
//!
//! A request up to `mempool_small_alloc_max` prefers the small pool, a larger one the main pool,
//! and each tries the other when its first choice has no room. Nothing ever spans the two. The
//! small pool is left out when it is not smaller than the region or no multiple of the unit (driver
//! 2.27).
//!
//! The **contiguous scratchpad** is a stack that grows downward: each page is placed exactly below
//! the last, in the main pool only. Freeing out of turn is noted and the counter goes down all the
//! same, so that it no longer tells the lowest page; a later request can then meet a page that
//! still lives, and fails. That is the reference's behaviour and is not repaired.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::Channel;
use glia_abi::params::ModuleParams;
use glia_abi::usage::Category;

use glia_abi::PAGE_SIZE_BYTES;

use crate::alloc::{ALIGN_BYTES_MAX, AllocError, AllocRequest, Room};
use crate::arena::Arena;
use crate::chunk::{Chunk, Place};
use crate::genpool::{GenPool, Misaligned};

/// A scratchpad page that was freed out of turn: the reference's complaint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("scratchpad page at {at} was freed out of turn: the page at {expected_at} was expected")]
pub struct ScratchpadOrder {
    /// The page that was freed.
    pub at: BusAddr,
    /// The page whose turn it was, by the counter.
    pub expected_at: BusAddr,
}

/// The pools of one channel.
#[derive(Debug)]
pub(crate) struct DevicePool<A> {
    channel: Channel,
    region: Span<BusAddr>,
    main: GenPool<A>,
    small: Option<GenPool<A>>,
    /// Where the main pool ends and the small pool begins.
    main_end: u64,
    small_size_bytes: u64,
    small_alloc_max: u64,
    allocated_bytes: u64,
    scratchpad_bytes: u64,
    scratchpad_complaints: u64,
}

impl<A: Arena> DevicePool<A> {
    /// The free pools of a region. `has_small_pool` is the arch's word.
    pub(crate) fn new(
        channel: Channel,
        region: Span<BusAddr>,
        params: &ModuleParams,
        has_small_pool: bool,
    ) -> Self {
        let wanted = params.mempool_small_pool_size;
        let fits =
            wanted < region.size_bytes() && wanted.is_multiple_of(params.mempool_min_alloc_size);
        let small_size_bytes = if has_small_pool && fits { wanted } else { 0 };
        let main_size_bytes = region.size_bytes() - small_size_bytes;
        let main_end = region.start().get() + main_size_bytes;
        let order = params.granule_order();
        Self {
            channel,
            region,
            main: GenPool::new(region.start().get(), main_size_bytes, order),
            small: (small_size_bytes > 0).then(|| GenPool::new(main_end, small_size_bytes, order)),
            main_end,
            small_size_bytes,
            small_alloc_max: params.mempool_small_alloc_max,
            allocated_bytes: 0,
            scratchpad_bytes: 0,
            scratchpad_complaints: 0,
        }
    }

    /// Finds and takes a place for `size_bytes`, which is `request.size_bytes` rounded up to the
    /// page size.
    pub(crate) fn place(
        &mut self,
        request: &AllocRequest,
        size_bytes: u64,
    ) -> Result<(BusAddr, Place), AllocError> {
        let (at, place) = if request.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE {
            self.place_scratchpad(size_bytes)?
        } else if request.align_bytes > PAGE_SIZE_BYTES {
            self.place_aligned(size_bytes, request.align_bytes)?
        } else {
            self.place_on_either(size_bytes, 0, |pool| pool.alloc(size_bytes))?
        };
        self.allocated_bytes += size_bytes;
        Ok((BusAddr::new(at), place))
    }

    /// Gives a chunk's place back; the complaint, if it was a scratchpad page out of turn.
    pub(crate) fn give_back(&mut self, chunk: &Chunk) -> Option<ScratchpadOrder> {
        self.free_at(chunk.at().get(), chunk.size_bytes(), chunk.place());
        self.allocated_bytes -= chunk.size_bytes();
        if chunk.category() != Category::CONTIGUOUS_SCRATCHPAD_DEVICE {
            return None;
        }
        let expected_at = BusAddr::new(self.main_end - self.scratchpad_bytes);
        self.scratchpad_bytes -= chunk.size_bytes();
        if chunk.at() == expected_at {
            return None;
        }
        self.scratchpad_complaints += 1;
        Some(ScratchpadOrder {
            at: chunk.at(),
            expected_at,
        })
    }

    /// The most bytes that one request with this alignment could take now, in either part.
    pub(crate) fn largest_aligned_fit(&self, align_bytes: u64) -> u64 {
        let largest = |pool: &GenPool<A>| match align_bytes {
            0..=PAGE_SIZE_BYTES => pool.largest_free_bytes(),
            _ if align_bytes > ALIGN_BYTES_MAX => 0,
            _ => pool.largest_aligned_bytes(align_bytes),
        };
        let parts = std::iter::once(&self.main).chain(&self.small);
        parts.map(largest).max().unwrap_or(0)
    }

    fn place_scratchpad(&mut self, size_bytes: u64) -> Result<(u64, Place), AllocError> {
        if size_bytes == 0 {
            return Err(AllocError::ZeroSize);
        }
        // A request that does not fit wraps to a huge offset, which no pool has (the reference
        // relies on it, too).
        let offset_bytes = (self.region.size_bytes() - self.small_size_bytes)
            .wrapping_sub(self.scratchpad_bytes)
            .wrapping_sub(size_bytes);
        match self.main.alloc_at(size_bytes, offset_bytes) {
            Ok(Some(at)) => {
                self.scratchpad_bytes += size_bytes;
                Ok((at, Place::Main))
            }
            Ok(None) => Err(AllocError::ScratchpadBlocked {
                size_bytes,
                channel: self.channel,
                below: BusAddr::new(self.main_end.saturating_sub(self.scratchpad_bytes)),
            }),
            Err(Misaligned {
                offset_bytes,
                granule_bytes,
            }) => Err(AllocError::ScratchpadMisaligned {
                size_bytes,
                offset_bytes,
                granule_bytes,
            }),
        }
    }

    fn place_aligned(
        &mut self,
        size_bytes: u64,
        align_bytes: u64,
    ) -> Result<(u64, Place), AllocError> {
        if align_bytes > ALIGN_BYTES_MAX {
            return Err(AllocError::AlignTooLarge { align_bytes });
        }
        let (at, place) = self.place_on_either(size_bytes, align_bytes, |pool| {
            pool.alloc_aligned(size_bytes, align_bytes)
        })?;
        if at & (align_bytes - 1) != 0 {
            self.free_at(at, size_bytes, place);
            return Err(AllocError::PlacedMisaligned {
                size_bytes,
                align_bytes,
                at: BusAddr::new(at),
            });
        }
        Ok((at, place))
    }

    /// Tries the pool that the size prefers, then the other one.
    fn place_on_either(
        &mut self,
        size_bytes: u64,
        align_bytes: u64,
        mut take: impl FnMut(&mut GenPool<A>) -> Option<u64>,
    ) -> Result<(u64, Place), AllocError> {
        if size_bytes == 0 {
            return Err(AllocError::ZeroSize);
        }
        let order = if size_bytes <= self.small_alloc_max {
            [Place::Small, Place::Main]
        } else {
            [Place::Main, Place::Small]
        };
        let found = order.into_iter().find_map(|place| {
            let pool = if place == Place::Small {
                self.small.as_mut()?
            } else {
                &mut self.main
            };
            take(pool).map(|at| (at, place))
        });
        found.ok_or_else(|| AllocError::NoDeviceMemory {
            size_bytes,
            align_bytes,
            channel: self.channel,
            main: room(&self.main),
            small: self.small.as_ref().map(room),
        })
    }

    fn free_at(&mut self, at: u64, size_bytes: u64, place: Place) {
        let pool = if place == Place::Small {
            self.small.as_mut()
        } else {
            Some(&mut self.main)
        };
        let freed = pool.is_some_and(|pool| pool.free(at, size_bytes));
        debug_assert!(freed, "the pool had given {at:#x}+{size_bytes} out");
    }

    pub(crate) fn region(&self) -> Span<BusAddr> {
        self.region
    }

    pub(crate) fn main_end(&self) -> BusAddr {
        BusAddr::new(self.main_end)
    }

    pub(crate) fn small_size_bytes(&self) -> u64 {
        self.small_size_bytes
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    pub(crate) fn scratchpad_bytes(&self) -> u64 {
        self.scratchpad_bytes
    }

    pub(crate) fn scratchpad_complaints(&self) -> u64 {
        self.scratchpad_complaints
    }

    pub(crate) fn main(&self) -> &GenPool<A> {
        &self.main
    }

    pub(crate) fn small(&self) -> Option<&GenPool<A>> {
        self.small.as_ref()
    }
}

fn room<A: Arena>(pool: &GenPool<A>) -> Room {
    Room {
        free_bytes: pool.available_bytes(),
        largest_bytes: pool.largest_free_bytes(),
    }
}
