//! The contiguous scratchpad of a bank: where its next page has to go.
//!
//! The driver places each page right below the ones before, by a counter of their bytes (driver
//! 2.27). Pages freed out of order make the counter too small, and then the next page would have to
//! be where an older one still is.

use std::collections::BTreeSet;

use glia_abi::insight::ChunkFacts;
use glia_abi::usage::Category;

use super::evict::{Place, for_place};
use super::holes::Pool;

/// The pages of a bank, and the place of the next one.
pub(super) struct Pages<'a> {
    main: Pool<'a>,
    size_bytes: u64,
    /// Where the next page has to begin; `None` if that is below the pool.
    at: Option<u64>,
}

impl<'a> Pages<'a> {
    /// In this main pool, for a page of so many bytes.
    pub(super) fn new(main: Pool<'a>, size_bytes: u64) -> Self {
        let live = main.chunks.iter().filter(|chunk| is_page(chunk));
        let live_bytes = live.map(|chunk| chunk.span.size_bytes()).sum();
        let at = main.end.checked_sub(live_bytes);
        let at = at.and_then(|below| below.checked_sub(size_bytes));
        Self {
            main,
            size_bytes,
            at: at.filter(|&at| at >= main.start),
        }
    }

    /// Where the next page has to begin.
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

    /// What must be freed for the next page: what lies at its place or, if that is a page, all pages,
    /// and what then lies at the place of the first.
    pub(super) fn in_the_way(&self, may: impl Fn(&ChunkFacts) -> bool) -> Option<Place> {
        if !self.is_out_of_order() {
            let at = self.at?;
            return for_place(&self.main, at, at + self.size_bytes, may);
        }
        let at = self.main.end.checked_sub(self.size_bytes)?;
        let there = for_place(&self.main, at, self.main.end, &may)?;
        let mut chunks: BTreeSet<usize> = there.chunks.into_iter().collect();
        let mut bytes = 0_u64;
        for (number, chunk) in self.main.chunks.iter().enumerate() {
            if is_page(chunk) {
                if !may(chunk) {
                    return None;
                }
                chunks.insert(number);
            }
            if chunks.contains(&number) {
                bytes = bytes.saturating_add(chunk.span.size_bytes());
            }
        }
        let chunks = chunks.into_iter().collect();
        Some(Place { at, bytes, chunks })
    }
}

fn is_page(chunk: &ChunkFacts) -> bool {
    chunk.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE
}
