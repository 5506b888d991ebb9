//! The least set for blocks that differ, by branch and bound.
//!
//! Of the sets that have certain chunks and lack others, none is cheaper than what gives the blocks
//! room side by side ([`Runs`]). The cheapest of those is looked at first: if the driver, too, gives
//! all blocks then, it is the least. If not, what is left is parted. Of the chunks that the set has
//! beyond the certain ones, another set lacks the first; or it has that and lacks the second; and so
//! on; or it has all of them and some chunk more, which are tried from the smallest on.
//!
//! Where this takes too many steps, what is known is the cost of the next set: no set is cheaper.

use std::collections::BTreeMap;

use glia_abi::addr::BusAddr;
use glia_abi::insight::ChunkFacts;

use super::runs::{Cost, Runs};
use super::{Candidate, marks, place_of_first};
use crate::explanation::holes::{Bank, Fit};

/// Looks at runs, after which no further set is looked at.
pub(super) const LOOKS_MAX: usize = 1 << 22;
/// As many of them as it takes to look at a chunk or block where all are placed.
const PLACE_LOOKS: usize = 8;

/// What is known of the least set.
pub(super) enum Found {
    /// It: for each chunk, by its place in the channel's list, whether it is freed.
    Least(Vec<bool>),
    /// No set is enough.
    Nothing,
    /// Its cost is this at the least.
    AtLeast(Cost),
}

/// Sets that have certain chunks and lack others.
struct Branch {
    /// The cheapest that may be enough. The certain chunks come first.
    set: Vec<usize>,
    certain: usize,
    lacking: Vec<BusAddr>,
    /// Whether the last of the certain chunks is one more than were needed.
    is_more: bool,
}

struct Search<'a, F> {
    bank: &'a Bank<'a>,
    fits: &'a [Fit],
    /// The chunks that may be freed, the smallest first.
    candidates: Vec<Candidate>,
    may: F,
    looks_left: usize,
    /// By their cost, and of equal ones the oldest first.
    branches: BTreeMap<(Cost, usize), Branch>,
    branches_ever: usize,
}

/// Looks for the least set of these chunks, which are those that may be freed.
pub(super) fn least(
    bank: &Bank<'_>,
    fits: &[Fit],
    candidates: &[Candidate],
    may: impl Fn(&ChunkFacts) -> bool,
) -> Found {
    let mut candidates = candidates.to_vec();
    candidates.sort_by_key(|&(_, bytes)| bytes);
    let mut search = Search {
        bank,
        fits,
        candidates,
        may,
        looks_left: LOOKS_MAX,
        branches: BTreeMap::new(),
        branches_ever: 0,
    };
    let mut at_least = (0, 0);
    if search.branch(&[], Vec::new()).is_none() {
        return Found::AtLeast(at_least);
    }
    while let Some(((cost, _), branch)) = search.branches.pop_first() {
        at_least = cost;
        let is_freed = marks(bank, branch.set.iter().copied());
        search.spend(PLACE_LOOKS * (is_freed.len() + fits.len()));
        if place_of_first(bank, fits, &is_freed).is_some() {
            return Found::Least(is_freed);
        }
        if search.part(branch).is_none() {
            return Found::AtLeast(at_least);
        }
    }
    Found::Nothing
}

impl<F: Fn(&ChunkFacts) -> bool> Search<'_, F> {
    /// Goes on with all sets of a branch but the one that was not enough. `None` if that takes too long.
    fn part(&mut self, branch: Branch) -> Option<()> {
        if self.looks_left == 0 {
            return None;
        }
        let Branch { set, lacking, .. } = branch;
        for (at, &chunk) in set.iter().enumerate().skip(branch.certain) {
            let lacking = [&lacking[..], &[self.start(chunk)]].concat();
            self.branch(&set[..at], lacking)?;
        }
        if let Some((&last, others)) = set.split_last().filter(|_| branch.is_more) {
            let lacking = [&lacking[..], &[self.start(last)]].concat();
            self.branch_with_more(others, lacking);
        }
        self.branch_with_more(&set, lacking);
        Some(())
    }

    /// The sets that have some chunks and lack others, if one may be enough. `None` if it takes too long
    /// to say.
    fn branch(&mut self, certain: &[usize], lacking: Vec<BusAddr>) -> Option<()> {
        let is_freed = marks(self.bank, certain.iter().copied());
        let may = |chunk: &ChunkFacts| (self.may)(chunk) && !lacking.contains(&chunk.span.start());
        let runs = Runs::new(self.bank, self.fits, &is_freed, self.looks_left, may)?;
        self.spend(runs.looks());
        if let Some(beyond) = runs.least() {
            self.add(Branch {
                set: [certain, &beyond].concat(),
                certain: certain.len(),
                lacking,
                is_more: false,
            });
        }
        Some(())
    }

    /// The sets that have these chunks and more, but not the lacking ones.
    fn branch_with_more(&mut self, chunks: &[usize], lacking: Vec<BusAddr>) {
        let mut candidates = self.candidates.iter().map(|&(number, _)| number);
        let more = candidates
            .find(|&number| !chunks.contains(&number) && !lacking.contains(&self.start(number)));
        if let Some(more) = more {
            self.add(Branch {
                set: [chunks, &[more]].concat(),
                certain: chunks.len() + 1,
                lacking,
                is_more: true,
            });
        }
    }

    fn add(&mut self, branch: Branch) {
        let chunks = branch.set.iter();
        let chunks = chunks.filter_map(|&number| self.bank.channel.chunks.get(number));
        let bytes = chunks.map(|chunk| chunk.span.size_bytes());
        let cost = (bytes.fold(0, u64::saturating_add), branch.set.len());
        self.branches_ever += 1;
        self.branches.insert((cost, self.branches_ever), branch);
    }

    fn spend(&mut self, looks: usize) {
        self.looks_left = self.looks_left.saturating_sub(looks);
    }

    fn start(&self, number: usize) -> BusAddr {
        let chunk = self.bank.channel.chunks.get(number);
        chunk.map_or(BusAddr::new(0), |chunk| chunk.span.start())
    }
}
