//! The least that must be freed for a block to fit.
//!
//! A block fits if its whole place is free, so what must go for a place is every chunk that lies in
//! it, wholly or in part. Of all places of a pool only some need a look: a place that can be moved
//! down without touching a chunk that it has not touched before needs no more there. What is left is
//! the lowest place behind the start of the pool, and behind each chunk: as many as there are chunks,
//! by rising address. Two marks move along with them, at the first chunk that lies in the place and
//! at the first behind it; sums up to each chunk do the rest. So the search is exact, and as long as
//! the list of chunks.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::insight::ChunkFacts;

use super::holes::{Align, Fit, Pool};

/// What lies between the holes of a pool.
#[derive(Clone, Copy)]
pub(super) struct Filling {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The chunk, by its place in the pool's list; `None` for memory that no list has: the place of
    /// a dead chunk that is still being copied, or bytes that are no granule.
    pub(super) chunk: Option<usize>,
}

/// A place, and what must be freed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// The chunks, by their place in the pool's list.
    pub(super) chunks: Vec<usize>,
}

impl Place {
    /// By which places are compared: fewest bytes, then fewest chunks, then lowest.
    pub(super) fn cost(&self) -> (u64, usize, u64) {
        (self.bytes, self.chunks.len(), self.at)
    }
}

/// From its first byte to behind its last.
pub(super) fn ends(span: &Span<BusAddr>) -> (u64, u64) {
    (span.start().get(), span.end().get())
}

/// Everything in the pool that is not a hole, by address.
pub(super) fn fillings(pool: &Pool<'_>) -> Vec<Filling> {
    let holes = pool.holes.iter().map(ends);
    fillings_of(pool, holes, pool.chunks.iter().enumerate())
}

/// The same with other holes, and with some of the pool's chunks.
pub(super) fn fillings_of<'a>(
    pool: &Pool<'_>,
    holes: impl Iterator<Item = (u64, u64)>,
    chunks: impl Iterator<Item = (usize, &'a ChunkFacts)>,
) -> Vec<Filling> {
    let mut fillings = Vec::with_capacity(pool.chunks.len() + 1);
    let mut holes = holes.peekable();
    let mut chunks = chunks.peekable();
    let mut at = pool.start;
    loop {
        let hole = holes.peek().map(|hole| hole.0);
        let chunk = chunks.peek().map(|(_, chunk)| chunk.span.start().get());
        let next = match (hole, chunk) {
            (Some(hole), Some(chunk)) => hole.min(chunk),
            (hole, chunk) => hole.or(chunk).unwrap_or(pool.end),
        };
        if next > at {
            fillings.push(Filling {
                start: at,
                end: next,
                chunk: None,
            });
        }
        if hole == Some(next) {
            at = holes.next().map_or(at, |hole| hole.1.max(at));
        } else if let Some((number, chunk)) = chunks.next() {
            let end = pool.taken(chunk).1.max(at);
            fillings.push(Filling {
                start: next,
                end,
                chunk: Some(number),
            });
            at = end;
        } else {
            return fillings;
        }
    }
}

/// Up to each filling, and to the end: bytes of the chunks, and how many of them cannot be freed.
pub(super) fn sums(
    pool: &Pool<'_>,
    fillings: &[Filling],
    may: impl Fn(&ChunkFacts) -> bool,
) -> Vec<(u64, usize)> {
    let chunk_of = |filling: &Filling| pool.chunks.get(filling.chunk?).filter(|chunk| may(chunk));
    let mut sums = Vec::with_capacity(fillings.len() + 1);
    let (mut bytes, mut fixed) = (0_u64, 0_usize);
    sums.push((bytes, fixed));
    for filling in fillings {
        match chunk_of(filling) {
            Some(chunk) => bytes = bytes.saturating_add(chunk.span.size_bytes()),
            None => fixed += 1,
        }
        sums.push((bytes, fixed));
    }
    sums
}

/// The place for which the fewest bytes must be freed, of chunks that may be; `None` if there is
/// none.
pub(super) fn least(
    pool: &Pool<'_>,
    fillings: &[Filling],
    fit: Fit,
    may: impl Fn(&ChunkFacts) -> bool,
) -> Option<Place> {
    if fit.size_bytes == 0 {
        return None;
    }
    let sums = sums(pool, fillings, may);
    let (mut low, mut high) = (0, 0);
    let mut best: Option<(u64, usize, u64, usize)> = None;
    let edges = fillings.iter().map(|filling| filling.end);
    for edge in std::iter::once(pool.start).chain(edges) {
        let Some(at) = pool.first(edge, fit.align) else {
            break;
        };
        let Some(end) = at
            .checked_add(fit.size_bytes)
            .filter(|&end| end <= pool.end)
        else {
            break;
        };
        while fillings.get(low).is_some_and(|filling| filling.end <= at) {
            low += 1;
        }
        high = high.max(low);
        while fillings
            .get(high)
            .is_some_and(|filling| filling.start < end)
        {
            high += 1;
        }
        let (before, behind) = (sums[low], sums[high]);
        if before.1 == behind.1 {
            let cost = (behind.0 - before.0, high - low, at, low);
            best = Some(best.map_or(cost, |best| best.min(cost)));
        }
    }
    let (bytes, count, at, low) = best?;
    let chunks = fillings.iter().skip(low).take(count);
    Some(Place {
        at,
        bytes,
        chunks: chunks.filter_map(|filling| filling.chunk).collect(),
    })
}

/// The most bytes that one block of this alignment could have if every chunk were freed that may be,
/// told by its place in the pool's list.
pub(super) fn most_bytes(
    pool: &Pool<'_>,
    fillings: &[Filling],
    align: Align,
    may: impl Fn(usize) -> bool,
) -> u64 {
    let fixed = fillings.iter();
    let fixed = fixed.filter(|filling| !filling.chunk.is_some_and(&may));
    let mut most = 0;
    let mut start = pool.start;
    let end = (pool.end, pool.end);
    for (fixed_at, fixed_end) in fixed.map(|one| (one.start, one.end)).chain([end]) {
        if let Some(at) = pool.first(start, align) {
            most = most.max(fixed_at.saturating_sub(at));
        }
        start = fixed_end;
    }
    most
}

/// What must be freed for one certain place; `None` if something there cannot be.
pub(super) fn for_place(
    pool: &Pool<'_>,
    at: u64,
    end: u64,
    may: impl Fn(&ChunkFacts) -> bool,
) -> Option<Place> {
    let fillings = fillings(pool);
    let there = fillings
        .iter()
        .filter(|one| one.start < end && one.end > at);
    let chunks: Option<Vec<usize>> = there.map(|one| one.chunk).collect();
    let chunks = chunks?;
    let mut bytes = 0_u64;
    for chunk in chunks.iter().filter_map(|&number| pool.chunks.get(number)) {
        if !may(chunk) {
            return None;
        }
        bytes = bytes.saturating_add(chunk.span.size_bytes());
    }
    Some(Place { at, bytes, chunks })
}
