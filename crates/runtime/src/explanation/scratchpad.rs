//! The contiguous scratchpad of a bank: where its next pages have to go.
//!
//! The driver places each page right below the ones before, by a counter of their bytes (driver
//! 2.27), so that what a reservation lacks is one run below them, as if it were one large page. Pages freed out of order make the counter too small, and then the next page would have to
//! be where an older one still is.

use std::collections::BTreeSet;

use glia_abi::insight::ChunkFacts;
use glia_abi::usage::Category;

use super::evict::{Place, for_place};
use super::holes::Pool;

/// The pages of a bank, and the place of the next ones.
pub(super) struct Pages<'a> {
    main: Pool<'a>,
    size_bytes: u64,
    /// Where the live ones begin, by the driver's counter.
    end: u64,
    /// Where the next ones have to begin; `None` if that is below the pool.
    at: Option<u64>,
}

impl<'a> Pages<'a> {
    /// In this main pool, for pages of so many bytes together.
    pub(super) fn new(main: Pool<'a>, size_bytes: u64) -> Self {
        let live = main.chunks.iter().filter(|chunk| is_page(chunk));
        let live_bytes: u64 = live.map(|chunk| chunk.span.size_bytes()).sum();
        let end = main.end.saturating_sub(live_bytes);
        let at = end.checked_sub(size_bytes);
        Self {
            main,
            size_bytes,
            end,
            at: at.filter(|&at| at >= main.start),
        }
    }

    /// The same pages in another picture of the pool.
    pub(super) fn at_end_of<'b>(&self, main: Pool<'b>) -> Pages<'b> {
        Pages::new(main, self.size_bytes)
    }

    /// Where the next ones have to begin.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.at
    }

    /// Whether the driver would give a page now.
    pub(super) fn has_room(&self) -> bool {
        self.at.is_some_and(|at| {
            let mut holes = self.main.holes.iter();
            let end = at + self.size_bytes;
            self.size_bytes > 0
                && holes.any(|hole| hole.start().get() <= at && end <= hole.end().get())
        })
    }

    /// Whether a live page is where the next one has to go.
    pub(super) fn is_out_of_order(&self) -> bool {
        self.at.is_some_and(|at| {
            let mut pages = self.main.chunks.iter().filter(|chunk| is_page(chunk));
            let end = at + self.size_bytes;
            pages.any(|page| page.span.start().get() < end && page.span.end().get() > at)
        })
    }

    /// Free bytes below the live pages, up to what lies there.
    pub(super) fn run_bytes(&self) -> u64 {
        let end = self.end;
        let mut holes = self.main.holes.iter();
        let hole = holes.find(|hole| hole.start().get() < end && end <= hole.end().get());
        hole.map_or(0, |hole| end - hole.start().get())
    }

    /// Whether [`in_the_way`](Self::in_the_way) knows all sets: not if pages of several sizes may be
    /// freed.
    pub(super) fn is_judged(&self, may: impl Fn(&ChunkFacts) -> bool) -> bool {
        let mut pages = self.main.chunks.iter().filter(|chunk| is_page(chunk));
        let mut sizes = pages.clone().map(|page| page.span.size_bytes());
        let first = sizes.next();
        sizes.all(|bytes| Some(bytes) == first) || !pages.any(may)
    }

    /// The least that must be freed for the next page. Each page that is freed moves the place of the
    /// next one up, in whatever order they are freed; what then lies there must go, too. `None` if
    /// nothing helps that may be freed, or pages of several sizes may be.
    pub(super) fn in_the_way(&self, may: impl Fn(&ChunkFacts) -> bool) -> Option<Place> {
        if !self.is_judged(&may) {
            return None;
        }
        let chunks = self.main.chunks.iter().enumerate();
        let pages: Vec<_> = chunks.filter(|(_, chunk)| is_page(chunk)).collect();
        if !pages.iter().any(|(_, page)| may(page)) {
            let at = self.at?;
            return for_place(&self.main, at, at.checked_add(self.size_bytes)?, &may);
        }
        let page_bytes = pages.first().map_or(0, |(_, page)| page.span.size_bytes());
        let places = (0..=pages.len()).filter_map(|freed| {
            let left_bytes = page_bytes.checked_mul((pages.len() - freed) as u64)?;
            let end = self.main.end.checked_sub(left_bytes)?;
            let at = end.checked_sub(self.size_bytes)?;
            if at < self.main.start {
                return None;
            }
            let there = for_place(&self.main, at, end, &may)?;
            let mut chunks: BTreeSet<usize> = there.chunks.into_iter().collect();
            let pages_there = pages.iter().filter(|(number, _)| chunks.contains(number));
            let others = freed.checked_sub(pages_there.count())?;
            // The lowest ones first, which is the order in which the driver wants them.
            let free = pages.iter().filter(|(_, page)| may(page));
            let free = free.map(|(number, _)| *number);
            let more: Vec<_> = free
                .filter(|number| !chunks.contains(number))
                .take(others)
                .collect();
            if more.len() < others {
                return None;
            }
            chunks.extend(more);
            let sizes = chunks
                .iter()
                .filter_map(|&number| self.main.chunks.get(number));
            let bytes = sizes.map(|chunk| chunk.span.size_bytes());
            Some(Place {
                at,
                bytes: bytes.fold(0, u64::saturating_add),
                chunks: chunks.into_iter().collect(),
            })
        });
        places.min_by_key(|place| place.bytes)
    }
}

pub(super) fn is_page(chunk: &ChunkFacts) -> bool {
    chunk.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE
}
