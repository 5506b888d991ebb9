//! The pools of a bank as a request sees them: their holes, and what fits into one.
//!
//! Places are found by the driver's rules (driver 2.27): first fit by lowest address, the absolute
//! address aligned, nothing across the border of main and small pool. So what this calls a hole with
//! room is one that the driver would take.

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{Alignment, BusAddr, Span};
use glia_abi::insight::{ChannelSnapshot, ChunkFacts, PoolSnapshot};

/// What a request needs of a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fit {
    /// Bytes, in whole granules; 0 fits nowhere.
    pub(super) size_bytes: u64,
    pub(super) align: Align,
}

/// How its first byte is to be aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// As every block is.
    None,
    /// To a power of two above the page size.
    To(Alignment),
    /// By a number that is no power of two, which the driver takes as bits to mask.
    Mask(u64),
}

impl Align {
    pub(super) fn new(align_bytes: u64) -> Self {
        match Alignment::new(align_bytes) {
            _ if align_bytes <= PAGE_SIZE_BYTES => Self::None,
            Some(alignment) => Self::To(alignment),
            None => Self::Mask(align_bytes),
        }
    }

    /// Whether the driver takes an address for aligned.
    pub(super) fn divides(self, at: u64) -> bool {
        match self {
            Self::None => true,
            Self::To(alignment) => alignment.divides(at),
            Self::Mask(align_bytes) => (align_bytes - 1) & at == 0,
        }
    }
}

/// Which part of a bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolPart {
    /// The larger one, from the start of the HBM.
    Main,
    /// The one at its end, which small requests prefer.
    Small,
}

impl PoolPart {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Small => "small",
        }
    }
}

/// A bank: one HBM channel.
#[derive(Clone, Copy)]
pub(super) struct Bank<'a> {
    pub(super) channel: &'a ChannelSnapshot,
    granule_bytes: u64,
    small_alloc_max_bytes: u64,
}

impl<'a> Bank<'a> {
    pub(super) fn new(snapshot: &PoolSnapshot, channel: &'a ChannelSnapshot) -> Self {
        Self {
            channel,
            granule_bytes: granule_bytes(snapshot),
            small_alloc_max_bytes: snapshot.small_alloc_max_bytes,
        }
    }

    /// The bank with another picture of its channel.
    pub(super) fn of<'b>(&self, channel: &'b ChannelSnapshot) -> Bank<'b> {
        Bank { channel, ..*self }
    }

    pub(super) fn main(&self) -> Pool<'a> {
        self.pool(PoolPart::Main)
    }

    /// Its pools that have bytes, the main one first.
    pub(super) fn pools(&self) -> impl Iterator<Item = Pool<'a>> {
        let both = [self.pool(PoolPart::Main), self.pool(PoolPart::Small)];
        both.into_iter().filter(|pool| pool.start < pool.end)
    }

    fn pool(&self, part: PoolPart) -> Pool<'a> {
        let ChannelSnapshot {
            region,
            main_end,
            chunks,
            free,
            ..
        } = self.channel;
        let holes = free.split_at(free.partition_point(|hole| hole.start() < *main_end));
        let in_main = chunks.partition_point(|one| one.span.start() < *main_end);
        let chunks = chunks.split_at(in_main);
        let granule_bytes = self.granule_bytes;
        match part {
            PoolPart::Main => Pool {
                part,
                start: region.start().get(),
                end: main_end.get(),
                granule_bytes,
                holes: holes.0,
                chunks: chunks.0,
                chunks_before: 0,
            },
            PoolPart::Small => Pool {
                part,
                start: main_end.get(),
                end: region.end().get(),
                granule_bytes,
                holes: holes.1,
                chunks: chunks.1,
                chunks_before: in_main,
            },
        }
    }

    /// Whether the driver would give this now.
    pub(super) fn has_room(&self, fit: Fit) -> bool {
        let mut pools: Vec<Pool<'_>> = self.pools().collect();
        if self.prefers_small(fit) {
            pools.reverse();
        }
        let found = pools.iter().find_map(|pool| pool.place(fit));
        // The driver refuses what its arithmetic has misplaced, and does not try the other pool.
        found.is_some_and(|at| fit.align.divides(at))
    }

    /// Whether the driver looks into the small pool first.
    pub(super) fn prefers_small(&self, fit: Fit) -> bool {
        fit.size_bytes <= self.small_alloc_max_bytes
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.pools().map(|pool| pool.free_bytes()).sum()
    }

    pub(super) fn largest_hole_bytes(&self) -> u64 {
        let largest = self.pools().map(|pool| pool.largest(Align::None));
        largest.flatten().max().unwrap_or(0)
    }

    /// The most bytes that one block of this alignment could have now; `None` where the driver has no
    /// order in it.
    pub(super) fn largest_bytes(&self, align: Align) -> Option<u64> {
        let largest: Option<Vec<u64>> = self.pools().map(|pool| pool.largest(align)).collect();
        Some(largest?.into_iter().max().unwrap_or(0))
    }
}

/// The granule of a device's pools.
pub(super) fn granule_bytes(snapshot: &PoolSnapshot) -> u64 {
    let granule_bytes = snapshot.granule_bytes.max(PAGE_SIZE_BYTES);
    1 << granule_bytes.ilog2()
}

/// One pool of a bank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pool<'a> {
    pub(super) part: PoolPart,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) granule_bytes: u64,
    pub(super) holes: &'a [Span<BusAddr>],
    pub(super) chunks: &'a [ChunkFacts],
    /// Chunks of the channel before them.
    pub(super) chunks_before: usize,
}

impl Pool<'_> {
    pub(super) fn size_bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.holes.iter().map(|hole| hole.size_bytes()).sum()
    }

    /// What a chunk takes, which is whole granules: from its start to its end.
    pub(super) fn taken(&self, chunk: &ChunkFacts) -> (u64, u64) {
        let start = chunk.span.start().get();
        let size_bytes = chunk.span.size_bytes();
        let taken_bytes = size_bytes.checked_next_multiple_of(self.granule_bytes);
        let end = taken_bytes.and_then(|bytes| start.checked_add(bytes));
        (start, end.unwrap_or(self.end))
    }

    /// The most bytes that one block of this alignment could have now; `None` for a mask.
    pub(super) fn largest(&self, align: Align) -> Option<u64> {
        if matches!(align, Align::Mask(_)) {
            return None;
        }
        let rooms = self.holes.iter().filter_map(|hole| {
            let at = self.first(hole.start().get(), align)?;
            hole.end().get().checked_sub(at)
        });
        Some(rooms.max().unwrap_or(0))
    }

    /// The lowest address from `from` on, which is on a granule, at which a block may begin; `None`
    /// if there is none, or it is not known.
    pub(super) fn first(&self, from: u64, align: Align) -> Option<u64> {
        match align {
            Align::None => Some(from),
            Align::Mask(_) => None,
            Align::To(alignment) => {
                // What of the pool's start lies below a granule is in every address.
                let odd = self.start & (self.granule_bytes - 1) & alignment.mask();
                let at = alignment.round_up(from)?;
                (odd == 0).then_some(at)
            }
        }
    }

    /// Where the driver would put it; `None` for no room. For a mask it may be a place that the
    /// driver then refuses.
    pub(super) fn place(&self, fit: Fit) -> Option<u64> {
        if fit.size_bytes == 0 {
            return None;
        }
        if let Align::Mask(align_bytes) = fit.align {
            return self.place_masked(fit.size_bytes, align_bytes);
        }
        self.holes.iter().find_map(|hole| {
            let at = self.first(hole.start().get(), fit.align)?;
            let room_bytes = hole.end().get().checked_sub(at)?;
            (room_bytes >= fit.size_bytes).then_some(at)
        })
    }

    /// The driver's search, step by step, with its arithmetic that is made for powers of two. In
    /// units of granules from the pool's start.
    fn place_masked(&self, size_bytes: u64, align_bytes: u64) -> Option<u64> {
        let granule_bytes = self.granule_bytes;
        let units = size_bytes.div_ceil(granule_bytes);
        let mask = align_bytes.div_ceil(granule_bytes) - 1;
        let offset = (self.start & (align_bytes - 1)) / granule_bytes;
        let unit = |at: BusAddr| at.get().saturating_sub(self.start) / granule_bytes;
        let mut from = 0;
        // LIMIT: each turn starts behind the one before, and most in another hole.
        loop {
            let next = self.holes.partition_point(|hole| unit(hole.end()) <= from);
            let free = from.max(unit(self.holes.get(next)?.start()));
            let at = (free.checked_add(offset)?.checked_add(mask)? & !mask).checked_sub(offset)?;
            let behind = self.holes.partition_point(|hole| unit(hole.end()) <= at);
            let hole = self.holes.get(behind)?;
            let taken = match unit(hole.start()) <= at {
                true if unit(hole.end()) - at >= units => {
                    return Some(self.start + at * granule_bytes);
                }
                true => unit(hole.end()),
                false => at,
            };
            from = taken.checked_add(1)?;
        }
    }
}
