//! All free extents in address order, and the requests that need to see them all.
//!
//! These are above all the ones with an alignment that is no power of two. There the contract's bit
//! arithmetic (see [`Arena::alloc_aligned`]) is not monotone: skipping an extent that is too short
//! would give other addresses, so no maximum can guide the search. The contract's loop is run as it
//! is written, over free extents instead of bits.
//!
//! A walk keeps its own path, so it leaves the tree as it is.

use super::node::{FANOUT, NONE};
use super::{Arena, Extent, ExtentTree, Path, Step};

/// All free extents in address order.
pub(super) struct Walk<'a> {
    tree: &'a ExtentTree,
    path: Path,
    leaf: Option<u32>,
    pos: usize,
}

impl Iterator for Walk<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut leaf = &self.tree.leaves[self.leaf? as usize];
        if self.pos == FANOUT || leaf.start[self.pos] == NONE {
            self.leaf = self.tree.next_leaf(&mut self.path);
            self.pos = 0;
            leaf = &self.tree.leaves[self.leaf? as usize];
            // Only the leaf of an arena with nothing free is empty, and it has no next one.
        }
        let extent = leaf.get(self.pos);
        self.pos += 1;
        Some(extent)
    }
}

impl ExtentTree {
    pub(super) fn walk(&self) -> Walk<'_> {
        let mut path = Path::default();
        let leaf = self.first_leaf(self.root, &mut path[..self.height]);
        Walk {
            tree: self,
            path,
            leaf: Some(leaf),
            pos: 0,
        }
    }

    /// The contract's loop for an alignment that is no power of two, over free extents instead of
    /// bits.
    pub(super) fn search_literal(&self, units: u32, mask: u64) -> Option<u32> {
        // No run is long enough, so the loop would end without an answer.
        if self.largest_free() < units {
            return None;
        }
        let off = self.base_unit & mask;
        let mut walk = self.walk();
        let mut extent = walk.next()?;
        let mut free = extent.start;
        loop {
            let at = ((u64::from(free) + off + mask) & !mask) - off;
            if at + u64::from(units) > u64::from(self.len_units) {
                return None;
            }
            while u64::from(extent.end()) <= at {
                extent = walk.next()?;
            }
            if at < u64::from(extent.start) {
                // `at` itself is taken. The search goes on behind it, where the next free unit is
                // the start of this extent.
                free = extent.start;
            } else if at + u64::from(units) <= u64::from(extent.end()) {
                return u32::try_from(at).ok();
            } else {
                // The first taken unit is the one behind this extent; the next extent begins after
                // that one.
                extent = walk.next()?;
                free = extent.start;
            }
        }
    }

    /// The largest run that starts at a unit which the contract's arithmetic can answer.
    pub(super) fn largest_literal_fit(&self, mask: u64) -> u32 {
        let off = self.base_unit & mask;
        let fit = |extent: Extent| {
            let at = next_answer(u64::from(extent.start) + off, mask) - off;
            let fit = u64::from(extent.end()).saturating_sub(at);
            u32::try_from(fit).unwrap_or(0)
        };
        self.walk().map(fit).max().unwrap_or(0)
    }

    /// Moves `path` to the next leaf in address order.
    pub(super) fn next_leaf(&self, path: &mut Path) -> Option<u32> {
        let level = (0..self.height)
            .find(|&level| self.inners[path[level].node as usize].has(path[level].slot + 1))?;
        path[level].slot += 1;
        let below = self.inners[path[level].node as usize].child[path[level].slot];
        Some(self.first_leaf(below, &mut path[..level]))
    }

    /// The first leaf below `node`, whose way down is written to `path`.
    fn first_leaf(&self, mut node: u32, path: &mut [Step]) -> u32 {
        for step in path.iter_mut().rev() {
            *step = Step { node, slot: 0 };
            node = self.inners[node as usize].child[0];
        }
        node
    }
}

/// The lowest number not below `from` that has no bit of `mask` set: what the contract's arithmetic
/// maps to itself.
fn next_answer(from: u64, mask: u64) -> u64 {
    let Some(highest_conflict) = (from & mask).checked_ilog2() else {
        return from;
    };
    // Everything below the highest conflicting bit starts anew, and the bits above it that are not
    // in the mask count one up: with all others set, adding 1 carries through to them.
    let restarted = (1 << highest_conflict) - 1;
    ((from | mask | restarted) + 1) & !mask
}
