//! What to free for blocks that are alike: exact, and in one pass over the bank.
//!
//! In every hole as many of them fit as the driver takes, so it is enough to choose places. They can
//! be moved down until they touch the place before, or begin at the first aligned address behind a
//! chunk: runs of places remain, each begun behind a chunk, and no chunk lies in two of them. The
//! cheapest choice of runs is found from the end of the bank to its start.

use std::ops::Range;

use glia_abi::insight::ChunkFacts;

use crate::explanation::evict::{self, Filling};
use crate::explanation::holes::{Align, Bank, Fit};

/// Cells of the table of runs,
const CELLS_MAX: usize = 1 << 20;
/// and looks at a run that filling it takes.
const RUN_LOOKS_MAX: usize = 1 << 24;

/// Bytes, and chunks, as places are compared.
type Cost = (u64, usize);

/// Where runs of blocks of one kind may begin, and what each costs.
pub(super) struct Runs {
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
    pub(super) fn new(
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
    pub(super) fn least(&self, count: usize) -> Option<Vec<usize>> {
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
        let mut freed = Vec::new();
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
