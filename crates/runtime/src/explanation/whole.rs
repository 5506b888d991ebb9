//! Several blocks that have to be had together, like those of a scratchpad reservation.
//!
//! The driver is asked for one after the other, and each goes to the lowest place that has room. So
//! whether there is room for all is found by doing what the driver would do, on a copy of the holes.
//!
//! What to free is exact where the blocks are alike, as pages are. In every hole as many of them fit
//! as the driver takes, so it is enough to choose places. They can be moved down until they touch the
//! place before, or begin at the first aligned address behind a chunk: runs of places remain, each
//! begun behind a chunk, and no chunk lies in two of them. The cheapest choice of runs is found from
//! the end of the bank to its start.
//!
//! Where blocks differ, the first fit may put a small one where a large one was to go, and there is
//! no such order in it. All sets are tried where few chunks can be freed. Else chunks are freed for
//! one block after the other, and those that turn out to be spare are taken out again, the largest
//! first: what is left is enough, but another set may be smaller.

use std::collections::BTreeSet;
use std::ops::Range;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::insight::ChunkFacts;

use super::evict::{self, Filling, Place};
use super::holes::{Align, Bank, Fit, Pool};

/// All sets of so many chunks are tried.
const CHUNKS_TRIED_MAX: usize = 12;
/// Cells of the table of runs,
const CELLS_MAX: usize = 1 << 20;
/// and looks at a run that filling it takes.
const RUN_LOOKS_MAX: usize = 1 << 24;
/// Turns of the search among blocks that differ, and chunks that are then tried to be spare;
const TURNS_MAX: usize = 256;
/// and chunks that are looked at in all of them.
const LOOKS_MAX: usize = 1 << 21;

/// Bytes, and chunks, as places are compared.
type Cost = (u64, usize);

/// What to free for all blocks.
pub(super) struct Freed {
    pub(super) place: Place,
    /// Whether no other set has fewer bytes.
    pub(super) is_least: bool,
}

/// The holes of a bank, from which blocks are taken as the driver would.
struct Room<'a> {
    bank: &'a Bank<'a>,
    pools: Vec<(Pool<'a>, Vec<Span<BusAddr>>)>,
    /// What was asked for last, and before which hole of each pool there is no room for it.
    last: Option<Fit>,
    from: Vec<usize>,
}

impl<'a> Room<'a> {
    /// With some chunks freed, told by their places in the channel's list.
    fn new(bank: &'a Bank<'a>, freed: &BTreeSet<usize>) -> Self {
        let pools = bank.pools().map(|pool| {
            let chunks = pool.chunks.iter().zip(pool.chunks_before..);
            let freed = chunks.filter(|(_, number)| freed.contains(number));
            let freed = freed.map(|(chunk, _)| pool.taken(chunk));
            let mut spans: Vec<_> = pool.holes.iter().copied().map(ends).chain(freed).collect();
            spans.sort_unstable();
            let mut joined: Vec<(u64, u64)> = Vec::with_capacity(spans.len());
            for (start, end) in spans {
                match joined.last_mut() {
                    Some(last) if last.1 >= start => last.1 = last.1.max(end),
                    _ => joined.push((start, end)),
                }
            }
            (pool, joined.into_iter().filter_map(span).collect())
        });
        let pools: Vec<_> = pools.collect();
        Self {
            bank,
            last: None,
            from: vec![0; pools.len()],
            pools,
        }
    }

    /// Takes a block; where it lies. `None` for no room.
    fn take(&mut self, fit: Fit) -> Option<u64> {
        if self.last.replace(fit) != Some(fit) {
            self.from.fill(0);
        }
        let prefers_small = self.bank.prefers_small(fit);
        let mut order: Vec<usize> = (0..self.pools.len()).collect();
        if prefers_small {
            order.reverse();
        }
        for at in order {
            let (pool, holes) = self.pools.get_mut(at)?;
            let from = self.from.get_mut(at)?;
            let rest = holes.get(*from..).unwrap_or_default();
            let Some(place) = (Pool {
                holes: rest,
                ..*pool
            })
            .place(fit) else {
                *from = holes.len();
                continue;
            };
            let number = holes.partition_point(|hole| hole.end().get() <= place);
            *from = number;
            let (start, end) = ends(*holes.get(number)?);
            let left = [(start, place), (place.checked_add(fit.size_bytes)?, end)];
            holes.splice(number..=number, left.into_iter().filter_map(span));
            return fit.align.divides(place).then_some(place);
        }
        None
    }

    /// The least that must be freed for a block, beside what has been freed and taken.
    fn least(
        &self,
        fit: Fit,
        freed: &BTreeSet<usize>,
        may: impl Fn(&ChunkFacts) -> bool,
    ) -> Option<Place> {
        let places = self.pools.iter().filter_map(|(pool, holes)| {
            let chunks = (pool.chunks_before..).zip(pool.chunks);
            let (numbers, chunks): (Vec<_>, Vec<_>) = chunks
                .filter(|(number, _)| !freed.contains(number))
                .map(|(number, chunk)| (number, chunk.clone()))
                .unzip();
            let pool = Pool {
                holes,
                chunks: &chunks,
                ..*pool
            };
            let mut place = evict::least(&pool, &evict::fillings(&pool), fit, &may)?;
            for chunk in &mut place.chunks {
                *chunk = *numbers.get(*chunk)?;
            }
            Some(place)
        });
        places.min_by_key(Place::cost)
    }
}

fn ends(span: Span<BusAddr>) -> (u64, u64) {
    (span.start().get(), span.end().get())
}

/// `None` for one without bytes.
fn span((start, end): (u64, u64)) -> Option<Span<BusAddr>> {
    let size_bytes = end.checked_sub(start).filter(|&bytes| bytes > 0)?;
    Span::new(BusAddr::new(start), size_bytes)
}

/// Whether the driver would give all of these now.
pub(super) fn has_room(bank: &Bank<'_>, fits: &[Fit]) -> bool {
    place_of_first(bank, fits, &BTreeSet::new()).is_some()
}

/// Where the first of these would be, if all can be had with these chunks freed.
fn place_of_first(bank: &Bank<'_>, fits: &[Fit], freed: &BTreeSet<usize>) -> Option<u64> {
    let mut room = Room::new(bank, freed);
    let mut places = fits.iter().map(|&fit| room.take(fit));
    let first = places.next()??;
    places.all(|place| place.is_some()).then_some(first)
}

/// What must be freed for all of these, of chunks that may be; `None` if nothing helps.
pub(super) fn least(
    bank: &Bank<'_>,
    fits: &[Fit],
    may: impl Fn(&ChunkFacts) -> bool,
) -> Option<Freed> {
    let first = *fits.first()?;
    let alike = match fits.iter().all(|fit| *fit == first) {
        true => Runs::new(bank, first, fits.len(), &may),
        false => None,
    };
    let can_go = candidates(bank, &may);
    let (freed, is_least) = match alike {
        Some(runs) => (runs.least(fits.len())?, true),
        None if can_go.len() <= tried_max(bank, fits) => (of_few(bank, fits, &can_go)?, true),
        None => {
            let all = || can_go.iter().map(|&(number, _)| number).collect();
            let freed = one_by_one(bank, fits, &may).unwrap_or_else(all);
            place_of_first(bank, fits, &freed)?;
            (without_spare(bank, fits, freed), false)
        }
    };
    let chunks = freed.iter().filter_map(|&number| bank.chunk(number));
    let bytes = chunks.map(|chunk| chunk.span.size_bytes());
    Some(Freed {
        place: Place {
            at: place_of_first(bank, fits, &freed)?,
            bytes: bytes.fold(0, u64::saturating_add),
            chunks: freed.into_iter().collect(),
        },
        is_least,
    })
}

/// The chunks that may be freed, with their bytes.
fn candidates(bank: &Bank<'_>, may: impl Fn(&ChunkFacts) -> bool) -> Vec<(usize, u64)> {
    let chunks = bank.channel.chunks.iter().enumerate();
    let chunks = chunks.filter(|(_, chunk)| may(chunk));
    chunks
        .map(|(number, chunk)| (number, chunk.span.size_bytes()))
        .collect()
}

/// The least of all sets of these chunks; `None` if none helps.
fn of_few(bank: &Bank<'_>, fits: &[Fit], can_go: &[(usize, u64)]) -> Option<BTreeSet<usize>> {
    let sets = (0..1_u32 << can_go.len()).map(|set| {
        let picked = can_go.iter().enumerate();
        let picked = picked.filter(|(bit, _)| set >> bit & 1 == 1);
        let picked: Vec<(usize, u64)> = picked.map(|(_, &one)| one).collect();
        let bytes: u64 = picked.iter().map(|(_, bytes)| bytes).sum();
        (bytes, picked.len(), set, picked)
    });
    let mut sets: Vec<_> = sets.collect();
    sets.sort_unstable_by_key(|&(bytes, count, set, _)| (bytes, count, set));
    let sets = sets.into_iter().map(|(.., picked)| picked);
    let mut sets = sets.map(|picked| picked.into_iter().map(|(number, _)| number).collect());
    sets.find(|freed| place_of_first(bank, fits, freed).is_some())
}

/// How often all blocks can be placed.
fn turns(bank: &Bank<'_>, fits: &[Fit]) -> usize {
    LOOKS_MAX / (bank.channel.chunks.len() + fits.len()).max(1)
}

/// Of how many chunks all sets can be tried.
fn tried_max(bank: &Bank<'_>, fits: &[Fit]) -> usize {
    let sets = turns(bank, fits).max(1);
    CHUNKS_TRIED_MAX.min(sets.ilog2() as usize)
}

/// A set that is enough: for one block after the other, the least for it. `None` if that leads nowhere,
/// or takes too long.
fn one_by_one(
    bank: &Bank<'_>,
    fits: &[Fit],
    may: impl Fn(&ChunkFacts) -> bool,
) -> Option<BTreeSet<usize>> {
    let mut freed = BTreeSet::new();
    // LIMIT: each turn frees more.
    for _ in 0..turns(bank, fits).min(TURNS_MAX) {
        let mut room = Room::new(bank, &freed);
        let Some(refused) = fits.iter().find(|fit| room.take(**fit).is_none()) else {
            return Some(freed);
        };
        let more = room.least(*refused, &freed, &may)?.chunks;
        if more.is_empty() {
            return None;
        }
        freed.extend(more);
    }
    None
}

/// Leaves out what is not needed, largest first: of what cannot be left out as a whole, each half.
fn without_spare(bank: &Bank<'_>, fits: &[Fit], mut freed: BTreeSet<usize>) -> BTreeSet<usize> {
    let mut chunks = candidates(bank, |_| true);
    chunks.retain(|(number, _)| freed.contains(number));
    chunks.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let mut parts = vec![chunks.as_slice()];
    let mut left = turns(bank, fits).clamp(16, TURNS_MAX);
    while let Some(part) = parts.pop()
        && left > 0
    {
        left -= 1;
        let numbers = || part.iter().map(|&(number, _)| number);
        numbers().for_each(|number| {
            freed.remove(&number);
        });
        if place_of_first(bank, fits, &freed).is_some() {
            continue;
        }
        freed.extend(numbers());
        if part.len() > 1 {
            let (large, small) = part.split_at(part.len() / 2);
            parts.extend([small, large]);
        }
    }
    freed
}

/// Where runs of blocks of one kind may begin, and what each costs.
struct Runs {
    /// What lies in each pool, with the number of the pool's first chunk.
    fillings: Vec<(usize, Vec<Filling>)>,
    /// By rising address.
    starts: Vec<Start>,
}

/// A place where a run may begin.
struct Start {
    pool: usize,
    /// By how many blocks it has, one first: as long as nothing is in it that cannot be freed.
    runs: Vec<Run>,
}

struct Run {
    cost: Cost,
    /// The first start behind it.
    next: usize,
    /// What lies in it.
    fillings: Range<usize>,
}

impl Runs {
    /// `None` if there are too many.
    fn new(
        bank: &Bank<'_>,
        fit: Fit,
        count: usize,
        may: impl Fn(&ChunkFacts) -> bool,
    ) -> Option<Self> {
        let stride_bytes = match fit.align {
            Align::None => fit.size_bytes,
            Align::To(alignment) => alignment.round_up(fit.size_bytes)?,
            Align::Mask(_) => return None,
        };
        let mut runs = Self {
            fillings: Vec::new(),
            starts: Vec::new(),
        };
        for pool in bank.pools() {
            let fillings = evict::fillings(&pool);
            let sums = evict::sums(&pool, &fillings, &may);
            let edges = fillings.iter().map(|filling| filling.end);
            let edges = std::iter::once(pool.start).chain(edges);
            let is_inside = |at: &u64| {
                let end = at.checked_add(fit.size_bytes);
                end.is_some_and(|end| end <= pool.end)
            };
            let firsts = edges.filter_map(|edge| pool.first(edge, fit.align));
            let mut firsts: Vec<u64> = firsts.filter(is_inside).collect();
            firsts.dedup();
            let before = runs.starts.len();
            if (before + firsts.len()).checked_mul(count)? > CELLS_MAX {
                return None;
            }
            let run = |at: u64, blocks: u64| {
                let last = at.checked_add(stride_bytes.checked_mul(blocks)?)?;
                let end = last.checked_add(fit.size_bytes)?;
                let low = fillings.partition_point(|filling| filling.end <= at);
                let high = fillings.partition_point(|filling| filling.start < end);
                let (from, to) = (sums.get(low)?, sums.get(high.max(low))?);
                let is_free = end <= pool.end && from.1 == to.1;
                let behind = last.checked_add(stride_bytes)?;
                is_free.then(|| Run {
                    cost: (to.0 - from.0, high.max(low) - low),
                    next: before + firsts.partition_point(|&first| first < behind),
                    fillings: low..high.max(low),
                })
            };
            let starts = firsts.iter().map(|&at| Start {
                pool: runs.fillings.len(),
                runs: (0..count as u64).map_while(|more| run(at, more)).collect(),
            });
            runs.starts.extend(starts);
            runs.fillings.push((pool.chunks_before, fillings));
        }
        let all: usize = runs.starts.iter().map(|start| start.runs.len()).sum();
        if all.checked_mul(count)? > RUN_LOOKS_MAX {
            return None;
        }
        Some(runs)
    }

    /// What the cheapest runs of so many blocks in all have in them.
    fn least(&self, count: usize) -> Option<BTreeSet<usize>> {
        // For each start, and for each number of blocks that are still wanting there: the cost, and
        // how many blocks the run has that begins there, 0 for no run.
        let width = count + 1;
        let mut table: Vec<Option<(Cost, usize)>> = vec![None; (self.starts.len() + 1) * width];
        for row in 0..=self.starts.len() {
            *table.get_mut(row * width)? = Some(((0, 0), 0));
        }
        for (row, start) in self.starts.iter().enumerate().rev() {
            for wanting in 1..=count {
                let beyond = table.get((row + 1) * width + wanting).copied().flatten();
                let mut best = beyond.map(|(cost, _)| (cost, 0));
                for (blocks, run) in (1..=wanting).zip(&start.runs) {
                    let rest = table.get(run.next * width + wanting - blocks);
                    let Some(((bytes, chunks), _)) = rest.copied().flatten() else {
                        continue;
                    };
                    let cost = (bytes.saturating_add(run.cost.0), chunks + run.cost.1);
                    if best.is_none_or(|(best, _)| cost < best) {
                        best = Some((cost, blocks));
                    }
                }
                *table.get_mut(row * width + wanting)? = best;
            }
        }
        let mut freed = BTreeSet::new();
        let (mut row, mut wanting) = (0, count);
        while wanting > 0 {
            let (_, blocks) = table.get(row * width + wanting).copied().flatten()?;
            if blocks == 0 {
                row += 1;
                continue;
            }
            let start = self.starts.get(row)?;
            let run = start.runs.get(blocks - 1)?;
            let (before, fillings) = self.fillings.get(start.pool)?;
            let there = fillings.get(run.fillings.clone())?;
            freed.extend(
                there
                    .iter()
                    .filter_map(|filling| Some(before + filling.chunk?)),
            );
            (row, wanting) = (run.next, wanting - blocks);
        }
        Some(freed)
    }
}
