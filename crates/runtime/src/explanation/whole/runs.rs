//! What to free so that blocks have room side by side: exact, and in one pass over the bank.
//!
//! Places of blocks can be moved down until they touch the place before, or begin at the first
//! aligned address behind a chunk: runs of places remain, each begun behind a chunk, and no chunk
//! lies in two of them. A run is known by where it begins and how many blocks of each kind it has;
//! put into the order that ends lowest, they need no more than in any other. The cheapest choice of
//! runs is found from the end of the bank to its start.
//!
//! Where all blocks are alike this is what the driver needs: in every hole as many of them fit as it
//! takes. Where they differ, no set of fewer bytes is enough, but the driver may put a small one where
//! a large one was to go.

use std::ops::Range;

use glia_abi::insight::ChunkFacts;

use super::amounts::Amounts;
use super::room;
use crate::explanation::evict::{self, Filling};
use crate::explanation::holes::{Align, Bank, Fit, Pool};

/// As many looks at a run as it takes to make a cell of the table of runs.
const CELL_LOOKS: usize = 16;

/// Bytes, and chunks, as places are compared.
pub(super) type Cost = (u64, usize);

/// Where runs of blocks may begin, and what each costs.
pub(super) struct Runs {
    amounts: Amounts,
    /// What lies in each pool, with the number of the pool's first chunk.
    fillings: Vec<(usize, Vec<Filling>)>,
    /// By rising address.
    starts: Vec<Start>,
}

/// A place where a run may begin.
struct Start {
    pool: usize,
    /// By rising amount: as long as nothing is in it that cannot be freed.
    runs: Vec<Run>,
}

struct Run {
    /// How many blocks it has.
    amount: usize,
    cost: Cost,
    /// The first start behind it.
    next: usize,
    /// What lies in it.
    fillings: Range<usize>,
}

impl Runs {
    /// With some chunks freed already. `None` if to find the cheapest takes more looks than this, or it
    /// is not known where they may begin.
    pub(super) fn new(
        bank: &Bank<'_>,
        fits: &[Fit],
        is_freed: &[bool],
        looks_max: usize,
        may: impl Fn(&ChunkFacts) -> bool,
    ) -> Option<Self> {
        if fits.iter().any(|fit| matches!(fit.align, Align::Mask(_))) {
            return None;
        }
        let cells_max = looks_max / CELL_LOOKS;
        let mut runs = Self {
            amounts: Amounts::new(fits, cells_max)?,
            fillings: Vec::new(),
            starts: Vec::new(),
        };
        // Where one with the least alignment may begin, the others are moved up in the run.
        let least_mask = fits.iter().map(|fit| mask(fit.align)).min()?;
        let finest = fits.iter().find(|fit| mask(fit.align) == least_mask)?.align;
        let least_bytes = fits.iter().map(|fit| fit.size_bytes).min()?;
        for pool in bank.pools() {
            let holes = room::holes(&pool, is_freed).into_iter();
            let fillings = evict::fillings_of(&pool, holes, room::left(&pool, is_freed));
            let sums = evict::sums(&pool, &fillings, &may);
            let edges = fillings.iter().map(|filling| filling.end);
            let edges = std::iter::once(pool.start).chain(edges);
            let is_inside = |at: &u64| {
                let end = at.checked_add(least_bytes);
                end.is_some_and(|end| end <= pool.end)
            };
            let firsts = edges.filter_map(|edge| pool.first(edge, finest));
            let mut firsts: Vec<u64> = firsts.filter(is_inside).collect();
            firsts.dedup();
            let before = runs.starts.len();
            let cells = (before + firsts.len()).checked_mul(runs.amounts.all())?;
            if cells > cells_max {
                return None;
            }
            let run = |amount: usize, at: u64, end: u64| {
                let low = fillings.partition_point(|filling| filling.end <= at);
                let high = fillings.partition_point(|filling| filling.start < end);
                let (from, to) = (sums.get(low)?, sums.get(high.max(low))?);
                (from.1 == to.1).then(|| Run {
                    amount,
                    cost: (to.0 - from.0, high.max(low) - low),
                    next: before + firsts.partition_point(|&first| first < end),
                    fillings: low..high.max(low),
                })
            };
            let starts = firsts.iter().map(|&at| Start {
                pool: runs.fillings.len(),
                runs: runs_from(&pool, &runs.amounts, at, run),
            });
            let starts: Vec<Start> = starts.collect();
            runs.starts.extend(starts);
            runs.fillings.push((pool.chunks_before, fillings));
        }
        Some(runs).filter(|runs| runs.looks() <= looks_max)
    }

    /// How many looks at a run it takes to find the cheapest.
    pub(super) fn looks(&self) -> usize {
        let runs: usize = self.starts.iter().map(|start| start.runs.len()).sum();
        let looks = runs.saturating_mul(self.amounts.all());
        looks.max(CELL_LOOKS * self.starts.len() * self.amounts.all())
    }

    /// What the cheapest runs of all blocks have in them. `None` if there are none.
    pub(super) fn least(&self) -> Option<Vec<usize>> {
        // For each start, and for each amount that is still wanting there: the cost, and how many
        // blocks the run has that begins there, 0 for no run.
        let all = self.amounts.all();
        let width = all + 1;
        let mut table: Vec<Option<(Cost, usize)>> = vec![None; (self.starts.len() + 1) * width];
        for row in 0..=self.starts.len() {
            *table.get_mut(row * width)? = Some(((0, 0), 0));
        }
        for (row, start) in self.starts.iter().enumerate().rev() {
            for wanting in 1..=all {
                let beyond = table.get((row + 1) * width + wanting).copied().flatten();
                let mut best = beyond.map(|(cost, _)| (cost, 0));
                let runs = start.runs.iter().take_while(|run| run.amount <= wanting);
                for run in runs.filter(|run| self.amounts.has(wanting, run.amount)) {
                    let rest = table.get(run.next * width + wanting - run.amount);
                    let Some(((bytes, chunks), _)) = rest.copied().flatten() else {
                        continue;
                    };
                    let cost = (bytes.saturating_add(run.cost.0), chunks + run.cost.1);
                    if best.is_none_or(|(best, _)| cost < best) {
                        best = Some((cost, run.amount));
                    }
                }
                *table.get_mut(row * width + wanting)? = best;
            }
        }
        let mut freed = Vec::new();
        let (mut row, mut wanting) = (0, all);
        while wanting > 0 {
            let (_, amount) = table.get(row * width + wanting).copied().flatten()?;
            if amount == 0 {
                row += 1;
                continue;
            }
            let start = self.starts.get(row)?;
            let run = start.runs.iter().find(|run| run.amount == amount)?;
            let (before, fillings) = self.fillings.get(start.pool)?;
            let there = fillings.get(run.fillings.clone())?;
            freed.extend(
                there
                    .iter()
                    .filter_map(|filling| Some(before + filling.chunk?)),
            );
            (row, wanting) = (run.next, wanting - amount);
        }
        Some(freed)
    }
}

/// The runs of a pool that begin at an address, of those amounts that have room, in the order of their
/// blocks that ends lowest.
fn runs_from(
    pool: &Pool<'_>,
    amounts: &Amounts,
    at: u64,
    run: impl Fn(usize, u64, u64) -> Option<Run>,
) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut ends = vec![None; amounts.all() + 1];
    ends[0] = Some(at);
    for amount in 1..=amounts.all() {
        let lasts = amounts.without_one(amount);
        let lasts = lasts.filter_map(|(fit, rest)| {
            let last_at = pool.first(ends[rest]?, fit.align)?;
            last_at.checked_add(fit.size_bytes)
        });
        let end = lasts.min().filter(|&end| end <= pool.end);
        if let Some(found) = end.and_then(|end| run(amount, at, end)) {
            ends[amount] = end;
            runs.push(found);
        }
    }
    runs
}

fn mask(align: Align) -> u64 {
    match align {
        Align::None => 0,
        Align::To(alignment) => alignment.mask(),
        Align::Mask(_) => u64::MAX,
    }
}
