//! Where a fresh HBM puts what is allocated, so that what has to fit does, and what has to fail
//! finds no hole that is large enough.
//!
//! A fresh pool gives the lowest free place. So what is allocated in order lies in order, in the
//! small pool and in the main one, and a freed block leaves a hole of its size.

use glia_abi::arch::ArchProfile;
use glia_abi::params::ModuleParams;
use glia_driver::memory::CARVEOUT_SIZE_BYTES;

/// The free room at the end of both pools of a channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    main_bytes: u64,
    small_bytes: u64,
    small_alloc_max: u64,
    granule_bytes: u64,
}

/// One step of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Bytes of the stock.
    Stock(u64),
    /// Bytes that are given back when all is placed.
    Filler(u64),
    /// All fillers are given back.
    GiveBack,
}

// LIMIT: a workload that needs more holes than these is no longer one that a person reads.
const HOLES_MAX: u64 = 2000;

impl Room {
    /// That of a channel on which nothing is allocated.
    pub(super) fn new(profile: &ArchProfile) -> Self {
        let params = ModuleParams::default();
        let small_bytes = if profile.small_pool {
            params.mempool_small_pool_size
        } else {
            0
        };
        let main_bytes = profile.region_size_bytes - small_bytes - CARVEOUT_SIZE_BYTES;
        Self {
            main_bytes,
            small_bytes,
            small_alloc_max: params.mempool_small_alloc_max,
            granule_bytes: params.mempool_min_alloc_size,
        }
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.main_bytes + self.small_bytes
    }

    /// The largest request that would find a place.
    pub(super) fn largest_bytes(&self) -> u64 {
        self.main_bytes.max(self.small_bytes)
    }

    pub(super) fn rounded(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.granule_bytes)
    }

    /// Takes the place of an allocation; false if neither pool has one.
    fn put(&mut self, bytes: u64) -> bool {
        let rounded = self.rounded(bytes);
        let (main, small) = (&mut self.main_bytes, &mut self.small_bytes);
        let order = if bytes <= self.small_alloc_max {
            [small, main]
        } else {
            [main, small]
        };
        for pool in order {
            if rounded <= *pool {
                *pool -= rounded;
                return true;
            }
        }
        false
    }

    /// Places an allocation, in pieces if no pool has room for it whole; `None` if it does not fit.
    pub(super) fn place(&mut self, bytes: u64) -> Option<Vec<u64>> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while rest > 0 {
            let piece = rest.min(self.largest_bytes());
            if piece == 0 || !self.put(piece) {
                return None;
            }
            pieces.push(piece);
            rest -= piece;
        }
        Some(pieces)
    }

    /// How the stock, which is to be placed last, leaves no hole for a request although there are
    /// enough bytes for it. `None` if it cannot.
    pub(super) fn crumble(mut self, stock_bytes: u64, request_bytes: u64) -> Option<Vec<Step>> {
        let request = self.rounded(request_bytes);
        let hole = request.checked_sub(self.granule_bytes)?;
        // Between two holes lies something. What is small would go to the small pool.
        let between = self.rounded(self.small_alloc_max + 1);
        if hole <= between {
            return None;
        }
        let free = self.free_bytes().checked_sub(self.rounded(stock_bytes))?;
        let holes = free / hole + 2;
        if holes > HOLES_MAX {
            return None;
        }
        let first = stock_bytes.checked_sub(holes * between)?;
        let mut steps: Vec<Step> = self.place(first)?.into_iter().map(Step::Stock).collect();
        let mut rest = holes * between;
        while self.main_bytes >= request {
            let filler = hole.min(self.main_bytes.checked_sub(between)?);
            self.separate(filler, between, &mut rest, &mut steps)?;
        }
        if self.small_bytes >= request && self.main_bytes > self.small_alloc_max {
            // Full for now, so that the small pool is used.
            steps.push(Step::Filler(self.main_bytes));
            self.main_bytes = 0;
        }
        while self.small_bytes >= request {
            let filler = hole.min(self.small_bytes.checked_sub(between)?);
            self.separate(filler, between, &mut rest, &mut steps)?;
        }
        steps.push(Step::GiveBack);
        // What is left of the stock goes into the holes.
        let rest = std::iter::repeat_n(Step::Stock(between), usize::try_from(rest / between).ok()?);
        steps.extend(rest);
        Some(steps)
    }

    /// A hole, and something of the stock behind it.
    fn separate(
        &mut self,
        filler: u64,
        between: u64,
        rest: &mut u64,
        steps: &mut Vec<Step>,
    ) -> Option<()> {
        *rest = rest.checked_sub(between)?;
        if filler < between || !self.put(filler) || !self.put(between) {
            return None;
        }
        steps.extend([Step::Filler(filler), Step::Stock(between)]);
        Some(())
    }
}
