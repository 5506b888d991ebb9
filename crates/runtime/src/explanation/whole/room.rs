//! A bank from which blocks are taken as the driver would, one after the other.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::insight::ChunkFacts;

use super::tree::{Hole, HoleTree};
use crate::explanation::evict::{self, Place};
use crate::explanation::holes::{Align, Bank, Fit, Pool};

/// The holes of a bank, from which blocks are taken as the driver would.
pub(super) struct Room<'a> {
    bank: &'a Bank<'a>,
    /// For each chunk, by its place in the channel's list, whether it is freed.
    is_freed: &'a [bool],
    pools: Vec<PoolHoles<'a>>,
    /// What was asked for last.
    last: Option<Fit>,
}

/// What is left of a pool's.
struct PoolHoles<'a> {
    pool: Pool<'a>,
    holes: HoleTree,
    /// Before which hole there is no room for what was asked for last.
    from: usize,
}

impl<'a> Room<'a> {
    /// With some chunks freed.
    pub(super) fn new(bank: &'a Bank<'a>, is_freed: &'a [bool]) -> Self {
        let pools = bank.pools().map(|pool| PoolHoles {
            holes: HoleTree::new(holes(&pool, is_freed)),
            pool,
            from: 0,
        });
        Self {
            bank,
            is_freed,
            pools: pools.collect(),
            last: None,
        }
    }

    /// Takes a block; where it lies. `None` for no room.
    pub(super) fn take(&mut self, fit: Fit) -> Option<u64> {
        let is_other = self.last.replace(fit) != Some(fit);
        if is_other {
            self.pools.iter_mut().for_each(|pool| pool.from = 0);
        }
        let mut pools = self.pools.iter_mut();
        let place = match self.bank.prefers_small(fit) {
            true => pools.rev().find_map(|pool| pool.take(fit)),
            false => pools.find_map(|pool| pool.take(fit)),
        };
        // The driver refuses what its arithmetic has misplaced, and does not try the other pool.
        place.filter(|&at| fit.align.divides(at))
    }

    /// The least that must be freed for a block, beside what has been freed and taken.
    pub(super) fn least(&self, fit: Fit, may: impl Fn(&ChunkFacts) -> bool) -> Option<Place> {
        let places = self
            .pools
            .iter()
            .filter_map(|PoolHoles { pool, holes, .. }| {
                let chunks = pool.chunks.iter().enumerate();
                let chunks = chunks.filter(|(at, _)| !is_freed(self.is_freed, pool, *at));
                let fillings = evict::fillings_of(pool, holes.iter(), chunks);
                let mut place = evict::least(pool, &fillings, fit, &may)?;
                for chunk in &mut place.chunks {
                    *chunk += pool.chunks_before;
                }
                Some(place)
            });
        places.min_by_key(Place::cost)
    }
}

impl PoolHoles<'_> {
    /// Takes a block at the lowest place that has room. For a mask it may be one that is not aligned.
    fn take(&mut self, fit: Fit) -> Option<u64> {
        let found = match fit.align {
            Align::Mask(_) => self.lowest_masked(fit),
            Align::None | Align::To(_) => self.lowest(fit),
        };
        let Some((number, at)) = found else {
            self.from = self.holes.len();
            return None;
        };
        self.from = number;
        self.holes.take(number, at, at.checked_add(fit.size_bytes)?);
        Some(at)
    }

    /// The hole with room for a block, and where the block lies in it.
    fn lowest(&self, fit: Fit) -> Option<(usize, u64)> {
        if fit.size_bytes == 0 {
            return None;
        }
        let mut from = self.from;
        loop {
            let number = self.holes.lowest(from, fit.size_bytes)?;
            let (start, end) = self.holes.hole(number)?;
            let at = self.pool.first(start, fit.align)?;
            let room_bytes = end.checked_sub(at);
            if room_bytes.is_some_and(|bytes| bytes >= fit.size_bytes) {
                return Some((number, at));
            }
            from = number + 1;
        }
    }

    /// The same by the driver's arithmetic for an alignment that is no power of two. No reservation
    /// has one, so that it may look at all holes.
    fn lowest_masked(&self, fit: Fit) -> Option<(usize, u64)> {
        let spans = self.holes.iter().filter_map(span);
        let holes: Vec<Span<BusAddr>> = spans.collect();
        let pool = Pool {
            holes: &holes,
            ..self.pool
        };
        let at = pool.place(fit)?;
        let numbers = 0..self.holes.len();
        let holes = numbers.filter_map(|number| Some((number, self.holes.hole(number)?)));
        let mut holes = holes.filter(|(_, (start, end))| (*start..*end).contains(&at));
        holes.next().map(|(number, _)| (number, at))
    }
}

/// Whether a chunk of a pool is, by its place in the pool's list.
fn is_freed(is_freed: &[bool], pool: &Pool<'_>, at: usize) -> bool {
    is_freed.get(pool.chunks_before + at) == Some(&true)
}

/// The chunks of a pool that are not freed, by their places in the pool's list.
pub(super) fn left<'a>(
    pool: &Pool<'a>,
    freed: &[bool],
) -> impl Iterator<Item = (usize, &'a ChunkFacts)> {
    let chunks = pool.chunks.iter().enumerate();
    chunks.filter(move |(at, _)| !is_freed(freed, pool, *at))
}

/// The holes of a pool, joined with what is freed beside them.
pub(super) fn holes(pool: &Pool<'_>, freed: &[bool]) -> Vec<Hole> {
    let chunks = pool.chunks.iter().enumerate();
    let chunks = chunks.filter(|(at, _)| is_freed(freed, pool, *at));
    let mut chunks = chunks.map(|(_, chunk)| pool.taken(chunk)).peekable();
    let mut holes = pool.holes.iter().map(evict::ends).peekable();
    let mut joined: Vec<Hole> = Vec::with_capacity(pool.holes.len());
    loop {
        let next = match (holes.peek(), chunks.peek()) {
            (Some(hole), Some(chunk)) if hole < chunk => holes.next(),
            (Some(_), None) => holes.next(),
            _ => chunks.next(),
        };
        let Some((start, end)) = next else {
            return joined;
        };
        match joined.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
}

/// `None` for one without bytes.
fn span((start, end): Hole) -> Option<Span<BusAddr>> {
    let size_bytes = end.checked_sub(start).filter(|&bytes| bytes > 0)?;
    Span::new(BusAddr::new(start), size_bytes)
}
