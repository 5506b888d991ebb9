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
    /// Bytes that hold the main pool while the small one is filled.
    Plug(u64),
    /// The plug is given back.
    Unplug,
    /// All fillers are given back.
    GiveBack,
}

/// Why no layout makes a request fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    /// It takes more holes than are made.
    TooMany { holes: u64 },
    /// The stock is too small to lie between so many holes.
    TooLittle { holes: u64 },
}

// LIMIT: a workload of more holes than these is long to read, and its blocks fill the handle table.
pub(super) const HOLES_MAX: u64 = 5000;

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
    /// enough bytes for it.
    ///
    /// Free room becomes holes of one granule less than the request, with a granule of the stock
    /// behind each. What is small goes to the small pool while that has room, so that one is filled
    /// first; meanwhile a plug holds the main pool, so that what is large goes there, too.
    pub(super) fn crumble(
        mut self,
        stock_bytes: u64,
        request_bytes: u64,
    ) -> Result<Vec<Step>, Whole> {
        let granule = self.granule_bytes;
        let request = self.rounded(request_bytes);
        let free = self.free_bytes().saturating_sub(self.rounded(stock_bytes));
        let Some(hole) = request.checked_sub(granule).filter(|&hole| hole > 0) else {
            return self.fill(stock_bytes);
        };
        let holes = free.div_ceil(hole);
        if holes > HOLES_MAX {
            return Err(Whole::TooMany { holes });
        }
        let too_little = Whole::TooLittle { holes };
        let mut parting = holes * granule;
        let first = stock_bytes.checked_sub(parting).ok_or(too_little)?;
        let first = self.place(first).ok_or(too_little)?;
        let mut steps: Vec<Step> = first.into_iter().map(Step::Stock).collect();
        let mut part = |steps: &mut Vec<Step>, room: &mut u64| {
            while *room >= request {
                parting = parting.saturating_sub(granule);
                steps.extend([Step::Filler(hole), Step::Stock(granule)]);
                *room -= request;
            }
        };
        let Self {
            mut main_bytes,
            mut small_bytes,
            ..
        } = self;
        if small_bytes > 0 {
            let plug = (main_bytes > 0).then_some(Step::Plug(main_bytes));
            steps.extend(plug);
            part(&mut steps, &mut small_bytes);
            if small_bytes > 0 {
                steps.push(Step::Filler(small_bytes));
            }
            steps.extend(plug.map(|_| Step::Unplug));
        }
        part(&mut steps, &mut main_bytes);
        steps.push(Step::GiveBack);
        // What is left of the stock goes into the holes.
        let rest = usize::try_from(parting / granule).unwrap_or(0);
        steps.extend(std::iter::repeat_n(Step::Stock(granule), rest));
        Ok(steps)
    }

    /// How the stock takes all that is free: a byte of it takes a whole granule.
    fn fill(mut self, stock_bytes: u64) -> Result<Vec<Step>, Whole> {
        let granules = |bytes: u64| bytes.div_ceil(self.granule_bytes);
        let all = granules(self.free_bytes());
        let mut single = all.saturating_sub(granules(stock_bytes));
        // LIMIT: each of the bytes taken away makes at most one granule more.
        loop {
            let holes = single;
            if single > HOLES_MAX {
                return Err(Whole::TooMany { holes });
            }
            let first = stock_bytes.checked_sub(single);
            let first = first.ok_or(Whole::TooLittle { holes })?;
            let wanted = all.saturating_sub(granules(first));
            if wanted <= single {
                let first = self.place(first).ok_or(Whole::TooLittle { holes })?;
                let mut steps: Vec<Step> = first.into_iter().map(Step::Stock).collect();
                let single = usize::try_from(single).unwrap_or(0);
                steps.extend(std::iter::repeat_n(Step::Stock(1), single));
                return Ok(steps);
            }
            single = wanted;
        }
    }
}
