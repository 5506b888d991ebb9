//! A request, and a bank that it is looked for in: is there room, why not, and what makes room.

use std::ops::Range;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::insight::{ChannelSnapshot, ChunkFacts, PoolSnapshot};

use super::bank::Request;
use super::cause::Cause;
use super::evict::{self, Filling, Place};
use super::gone::Without;
use super::holes::{Align, Bank, Fit, Pool, PoolPart, granule_bytes};
use super::scratchpad::Pages;
use super::unload::{Found, Gone, Ties};
use super::whole::{self, Freed};

/// Chunks that are looked at in all searches with some models gone,
const LOOKS_MAX: usize = 1 << 19;
/// and searches that are made however long they take.
const SEARCHES_MIN: usize = 4;
/// Of so many chunks that can go, all sets are tried for blocks that differ.
const CHUNKS_SURE_MAX: usize = 8;

/// A pool, and what lies between its holes.
pub(super) struct Filled<'a> {
    pool: Pool<'a>,
    fillings: Vec<Filling>,
}

/// A request and a bank that it is looked for in.
pub(super) struct Look<'a> {
    pub(super) bank: Bank<'a>,
    pub(super) fit: Fit,
    /// Everything that has to be had together, if it is more than that.
    pub(super) whole: Vec<Fit>,
    is_scratchpad_page: bool,
}

impl<'a> Look<'a> {
    pub(super) fn new(
        snapshot: &PoolSnapshot,
        channel: &'a ChannelSnapshot,
        request: &Request,
    ) -> Self {
        let granule_bytes = granule_bytes(snapshot);
        let fit = |size_bytes: u64, align_bytes| {
            let pages_bytes = size_bytes.checked_next_multiple_of(PAGE_SIZE_BYTES);
            let needed_bytes =
                pages_bytes.and_then(|bytes| bytes.checked_next_multiple_of(granule_bytes));
            Fit {
                size_bytes: needed_bytes.unwrap_or(u64::MAX),
                align: match request.is_scratchpad_page {
                    true => Align::None,
                    false => Align::new(align_bytes),
                },
            }
        };
        let whole = request.whole.iter().flat_map(|piece| {
            let fit = fit(piece.size_bytes, piece.align_bytes);
            (0..piece.blocks).map(move |_| fit)
        });
        let whole: Vec<Fit> = whole.collect();
        Self {
            bank: Bank::new(snapshot, channel),
            fit: fit(request.driver_bytes, request.driver_align_bytes),
            whole: Some(whole)
                .filter(|whole| whole.len() > 1)
                .unwrap_or_default(),
            is_scratchpad_page: request.is_scratchpad_page,
        }
    }

    pub(super) fn whole_bytes(&self) -> u64 {
        let whole = self.whole.iter().map(|fit| fit.size_bytes);
        let bytes = whole.fold(0, u64::saturating_add);
        bytes.max(self.fit.size_bytes)
    }

    /// The pools that may serve it.
    pub(super) fn pools(&self) -> impl Iterator<Item = Pool<'a>> {
        let is_page = self.is_scratchpad_page;
        let pools = self.bank.pools();
        pools.filter(move |pool| !is_page || pool.part == PoolPart::Main)
    }

    pub(super) fn page(&self) -> Option<Pages<'a>> {
        self.is_scratchpad_page
            .then(|| Pages::new(self.bank.main(), self.fit.size_bytes))
    }

    pub(super) fn has_room(&self) -> bool {
        match self.page() {
            Some(page) => page.has_room(),
            None if !self.whole.is_empty() => whole::has_room(&self.bank, &self.whole),
            None => self.bank.has_room(self.fit),
        }
    }

    pub(super) fn largest_hole_bytes(&self) -> u64 {
        let largest = self.pools().filter_map(|pool| pool.largest(Align::None));
        largest.max().unwrap_or(0)
    }

    pub(super) fn largest_fit_bytes(&self) -> Option<u64> {
        match self.is_scratchpad_page {
            true => None,
            false => self.bank.largest_bytes(self.fit.align),
        }
    }

    /// What fills the pools that may serve it.
    pub(super) fn filled(&self) -> Vec<Filled<'a>> {
        let pools = self.pools();
        pools
            .map(|pool| Filled {
                fillings: evict::fillings(&pool),
                pool,
            })
            .collect()
    }

    /// Whether each chunk can be freed, alone or with models.
    pub(super) fn everything(&self, ties: &Ties, plain: impl Fn(&ChunkFacts) -> bool) -> Vec<bool> {
        let mut all: Vec<bool> = self.bank.channel.chunks.iter().map(plain).collect();
        for number in ties.can_go() {
            if let Some(can_go) = all.get_mut(number) {
                *can_go = true;
            }
        }
        all
    }

    pub(super) fn most_bytes(
        &self,
        filled: &[Filled<'a>],
        fit: Fit,
        may: impl Fn(usize) -> bool,
    ) -> Option<u64> {
        if self.is_scratchpad_page || matches!(fit.align, Align::Mask(_)) {
            return None;
        }
        let most = filled.iter().map(|Filled { pool, fillings }| {
            let may = |number: usize| may(number + pool.chunks_before);
            evict::most_bytes(pool, fillings, fit.align, may)
        });
        most.max()
    }

    /// Whether the bank is known to be too small for all blocks.
    pub(super) fn is_never_whole(&self, filled: &[Filled<'a>], everything: &[bool]) -> bool {
        let is_alike = self.whole.iter().all(|fit| *fit == self.fit);
        if is_alike {
            // Of blocks that are alike the most fit with everything gone.
            let left = Without::marked(&self.bank, everything);
            return !whole::has_room(&self.bank.of(&left.channel), &self.whole);
        }
        let chunks = self.bank.channel.chunks.iter().zip(everything);
        let freed = chunks.filter(|(_, can_go)| **can_go);
        let freed = freed.map(|(chunk, _)| chunk.span.size_bytes());
        let bytes = freed.fold(self.bank.free_bytes(), u64::saturating_add);
        let may_ever = |number: usize| everything.get(number) == Some(&true);
        let mut kinds = self.whole.clone();
        kinds.dedup();
        bytes < self.whole_bytes()
            || kinds.iter().any(|&fit| {
                let most_bytes = self.most_bytes(filled, fit, may_ever);
                most_bytes.is_some_and(|most_bytes| most_bytes < fit.size_bytes)
            })
    }

    /// Of blocks that have to be had together, how many of the first can be had with everything gone.
    pub(super) fn most_blocks(&self, left: &Without) -> Option<u64> {
        if self.whole.is_empty() {
            return None;
        }
        let bank = self.bank.of(&left.channel);
        let has_room = |blocks: usize| {
            let blocks = self.whole.get(..blocks).unwrap_or_default();
            blocks.is_empty() || whole::has_room(&bank, blocks)
        };
        let (mut low, mut high) = (0, self.whole.len());
        while low < high {
            let middle = high - (high - low) / 2;
            match has_room(middle) {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        Some(low as u64)
    }

    /// Bytes of scratchpad pages that can be had with everything gone.
    pub(super) fn most_page_bytes(&self, left: &Without) -> Option<u64> {
        let main = self.bank.of(&left.channel).main();
        let page = self.page()?;
        Some(page.at_end_of(main).run_bytes())
    }

    /// The cause, if it is not want of room.
    pub(super) fn cause_if_room(&self) -> Option<Cause> {
        match () {
            () if self.fit.size_bytes == 0 => Some(Cause::ZeroSize),
            () if self.has_room() => Some(Cause::Passing),
            () => None,
        }
    }

    /// Why there is no room.
    pub(super) fn cause(&self, is_elsewhere: bool, is_never: bool) -> Cause {
        let needed_bytes = self.fit.size_bytes;
        let too_small = match is_elsewhere {
            true => Cause::WrongBank,
            false => Cause::Capacity,
        };
        if !self.whole.is_empty() {
            return self.cause_of_whole(too_small, is_never);
        }
        let mut free = self.pools().map(|pool| pool.free_bytes());
        if free.any(|free_bytes| free_bytes >= needed_bytes) {
            return match self.page() {
                Some(page) if page.is_out_of_order() => Cause::ScratchpadOrder,
                Some(_) => Cause::ScratchpadPlace,
                None if self.largest_hole_bytes() >= needed_bytes => Cause::Alignment,
                None if is_never => too_small,
                None => Cause::Fragmentation,
            };
        }
        let usable_bytes: u64 = self.pools().map(|pool| pool.free_bytes()).sum();
        match usable_bytes >= needed_bytes && !is_never {
            true => Cause::WrongPool,
            false => too_small,
        }
    }

    fn cause_of_whole(&self, too_small: Cause, is_never: bool) -> Cause {
        let free_bytes: u64 = self.pools().map(|pool| pool.free_bytes()).sum();
        let unaligned = self.whole.iter().map(|fit| Fit {
            align: Align::None,
            ..*fit
        });
        let unaligned: Vec<Fit> = unaligned.collect();
        match () {
            () if whole::has_room(&self.bank, &unaligned) => Cause::Alignment,
            () if free_bytes >= self.whole_bytes() && !is_never => Cause::Fragmentation,
            () => too_small,
        }
    }

    /// The best place, for chunks that may be freed alone and what goes with models. Chunks are told
    /// by their place in the channel's list.
    pub(super) fn least(
        &self,
        filled: &[Filled<'a>],
        ties: &Ties,
        is_own: bool,
        plain: impl Fn(&ChunkFacts) -> bool,
    ) -> Found {
        let is_of_bank = self.is_scratchpad_page || !self.whole.is_empty();
        let can_go = self.bank.channel.chunks.iter().filter(|chunk| plain(chunk));
        let whole_looks = match self.page() {
            Some(_) => self.bank.channel.chunks.len(),
            None => whole::looks(&self.bank, &self.whole, can_go.count()),
        };
        let (mut looks, mut searches) = (0_usize, 0);
        // Where blocks differ and many chunks can go, a search that finds nothing may have missed it.
        let is_alike = self.whole.iter().all(|fit| *fit == self.fit);
        let mut can_go = self.bank.channel.chunks.iter().filter(|chunk| plain(chunk));
        let may_miss = !is_alike && can_go.nth(CHUNKS_SURE_MAX).is_some();
        let mut has_missed = false;
        let mut found = ties.least(is_own, !is_of_bank, |gone| {
            let freed = match (is_of_bank, &gone.chunks[..]) {
                (true, []) => self.least_of_bank(&self.bank, &plain),
                (true, chunks) => {
                    let left = Without::new(&self.bank, chunks);
                    let freed = self.least_of_bank(&self.bank.of(&left.channel), &plain);
                    freed.map(|mut freed| {
                        freed.place.chunks = left.numbers(&freed.place.chunks);
                        freed
                    })
                }
                (false, _) => {
                    let places = filled.iter();
                    let places = places
                        .filter_map(|filled| filled.least(self.fit, gone, &plain, &mut looks));
                    let place = places.min_by_key(Place::cost);
                    let is_least = true;
                    place.map(|place| Freed { place, is_least })
                }
            };
            has_missed |= may_miss && freed.is_none();
            looks += if is_of_bank { whole_looks } else { 0 };
            searches += 1;
            (freed, searches < SEARCHES_MIN || looks < LOOKS_MAX)
        });
        if let Some(freeing) = &mut found.freeing {
            freeing.is_least &= !has_missed;
        }
        found
    }

    /// For pages, or several blocks.
    fn least_of_bank(&self, bank: &Bank<'_>, plain: impl Fn(&ChunkFacts) -> bool) -> Option<Freed> {
        let Some(page) = self.page() else {
            return whole::least(bank, &self.whole, plain);
        };
        let place = page.at_end_of(bank.main()).in_the_way(plain)?;
        let is_least = true;
        Some(Freed { place, is_least })
    }
}

impl Filled<'_> {
    /// The best place in the pool, with some chunks gone. Counts what it looks at.
    fn least(
        &self,
        fit: Fit,
        gone: &Gone,
        may: impl Fn(&ChunkFacts) -> bool,
        looks: &mut usize,
    ) -> Option<Place> {
        let Self { pool, fillings } = self;
        let spans = self.near(fit, gone);
        let places = spans.into_iter().filter_map(|span| {
            let part = Pool {
                start: span.start,
                end: span.end,
                ..*pool
            };
            let low = fillings.partition_point(|filling| filling.end <= span.start);
            let high = fillings.partition_point(|filling| filling.start < span.end);
            let there = fillings.get(low..high.max(low)).unwrap_or_default();
            *looks += there.len();
            match &gone.chunks[..] {
                [] => evict::least(&part, there, fit, &may),
                chunks => evict::least(&part, &without(pool, there, chunks), fit, &may),
            }
        });
        let mut place = places.min_by_key(Place::cost)?;
        for chunk in &mut place.chunks {
            *chunk += pool.chunks_before;
        }
        Some(place)
    }

    /// The parts of the pool that have all places that count.
    fn near(&self, fit: Fit, gone: &Gone) -> Vec<Range<u64>> {
        let Self { pool, fillings } = self;
        let Some(near) = &gone.near else {
            return std::iter::once(pool.start..pool.end).collect();
        };
        let step_bytes = match fit.align {
            Align::To(alignment) => alignment.get(),
            Align::None | Align::Mask(_) => 0,
        };
        let before_bytes = fit.size_bytes.saturating_add(step_bytes);
        let mut spans: Vec<Range<u64>> = Vec::new();
        for chunk in near {
            let number = chunk.checked_sub(pool.chunks_before);
            let Some(chunk) = number.and_then(|number| pool.chunks.get(number)) else {
                continue;
            };
            let (start, end) = pool.taken(chunk);
            // A place begins at, or is aligned up from, the end of what lies before it.
            let from = start.saturating_sub(before_bytes);
            let first = fillings.partition_point(|filling| filling.end <= from);
            let before = first.checked_sub(1).and_then(|before| fillings.get(before));
            let from = before.map_or(pool.start, |before| before.end);
            let to = end.saturating_add(fit.size_bytes).min(pool.end);
            match spans.last_mut() {
                Some(last) if from <= last.end => last.end = last.end.max(to),
                _ => spans.push(from..to),
            }
        }
        spans
    }
}

/// What lies between the holes, with some chunks gone: where one was is a hole.
fn without(pool: &Pool<'_>, fillings: &[Filling], gone: &[usize]) -> Vec<Filling> {
    let mut left = Vec::with_capacity(fillings.len());
    let mut gone = gone.iter().peekable();
    for filling in fillings {
        if let Some(chunk) = filling.chunk {
            let number = chunk + pool.chunks_before;
            while gone.next_if(|gone| **gone < number).is_some() {}
            if gone.next_if(|gone| **gone == number).is_some() {
                continue;
            }
        }
        left.push(*filling);
    }
    left
}
