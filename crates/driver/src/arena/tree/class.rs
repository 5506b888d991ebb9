//! Classes: for each alignment in use, the most units a request can get below every child.
//!
//! Long enough is not enough for an aligned request. What counts is the part of an extent behind
//! its first aligned unit, `end - round_up(start)`, in absolute units:
//!
//! ```text
//!   aligned to 4   8               12              16
//!   free extent          [ 10  11  12  13  14 ]            5 units, of which 3 from 12 on
//! ```
//!
//! A [`Class`] keeps the maxima of that for one alignment. Plain first fit is the class of
//! alignment 1 and always there. The others are built in one walk at the first request with their
//! alignment and dropped when they go unused for long (see [`IDLE_CHANGES_MIN`]); a tree of one
//! leaf keeps none, because searching that leaf needs no maxima.
//!
//! Maxima are exact after every operation. Nearly all changes are a [`Change`] of one leaf, told to
//! the levels above as "this went, that came". It stops at the first level whose maximum stays, and
//! a node is read again only when its very maximum went. When nodes split or go, the maxima on the
//! way up are measured anew.

use super::node::{BLOCK, FANOUT, Leaf, Row, first_at_least, first_in_block, max};
use super::{Extent, ExtentTree, Step};

/// One alignment: how much of an extent it can use, and the maxima of that below every child.
#[derive(Debug, Clone)]
pub(super) struct Class {
    /// Absolute number of unit 0 modulo 2^32, which is enough because no alignment is larger.
    base: u32,
    /// Alignment in units less one, a power of two less one. 0 is the plain class.
    pub(super) mask: u32,
    /// By inner node, by slot.
    pub(super) rows: Vec<Row>,
    /// The count of changes at the last request.
    used_at: u64,
}

/// Which maxima a search goes by.
#[derive(Debug, Clone, Copy)]
pub(super) enum ClassId {
    Plain,
    Aligned(usize),
}

/// What went from a leaf and what is new in it; [`EMPTY_EXTENT`] where nothing is.
///
/// One of each is enough. What a free merges away is not told, because the extent it becomes part
/// of serves whatever it could. Of the two extents that a request can leave either will do, because
/// neither serves more than the one that went.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) gone: Extent,
    pub(super) come: Extent,
}

/// No extent: serves no request, like the padding of a leaf.
pub(super) const EMPTY_EXTENT: Extent = Extent { start: 0, len: 0 };

/// A class is dropped after this many changes without a request for its alignment, or after as many
/// as there are free extents, whichever is more.
///
/// Keeping a class costs a few nanoseconds each change, building it half a nanosecond for each free
/// extent. Dropping it when the upkeep since its last use has cost a few times the price of a new
/// one bounds the waste on both sides: a caller that asks for twenty alignments once slows plain
/// traffic for a while only, and one that comes back rarely pays a walk that is small beside what
/// was saved.
const IDLE_CHANGES_MIN: u64 = 16 * 1024;

/// How many changes pass between two looks for idle classes.
const IDLE_LOOK_CHANGES: u64 = 1024;

impl Class {
    pub(super) fn new(base_unit: u64, mask: u32, used_at: u64) -> Self {
        // No alignment exceeds 2^31, so the upper half of the base never matters.
        let base = u32::try_from(base_unit & u64::from(u32::MAX)).unwrap_or(0);
        Self {
            base,
            mask,
            rows: Vec::new(),
            used_at,
        }
    }

    /// The most units that a request of this alignment can get out of `extent`; 0 for a padding.
    pub(super) fn fit(&self, extent: Extent) -> u32 {
        extent.len.saturating_sub(self.pad(extent.start))
    }

    /// Units from `start` to the next aligned one. Wrapping is right: the alignment divides 2^32.
    pub(super) fn pad(&self, start: u32) -> u32 {
        self.base.wrapping_add(start).wrapping_neg() & self.mask
    }

    /// The first entry of `leaf` that can serve a request.
    pub(super) fn find(&self, leaf: &Leaf, units: u32) -> Option<usize> {
        if self.mask == 0 {
            return first_at_least(&leaf.len, units);
        }
        leaf.blocks()
            .enumerate()
            .find_map(|(block, (starts, lens))| {
                Some(block * BLOCK + first_in_block(&self.fits(starts, lens), units)?)
            })
    }

    pub(super) fn leaf_max(&self, leaf: &Leaf) -> u32 {
        if self.mask == 0 {
            return max(&leaf.len);
        }
        max(&self.fits(&leaf.start, &leaf.len))
    }

    pub(super) fn row_max(&self, inner: u32) -> u32 {
        max(&self.rows[inner as usize].0)
    }

    /// What each of some extents can serve.
    fn fits<const N: usize>(&self, starts: &[u32; N], lens: &[u32; N]) -> [u32; N] {
        let mut fits = *lens;
        for (fit, &start) in fits.iter_mut().zip(starts) {
            *fit = fit.saturating_sub(self.pad(start));
        }
        fits
    }

    /// Takes a change of one leaf up the `path`, as far as maxima change.
    fn lift(&mut self, change: &Change, leaf: &Leaf, path: &[Step]) {
        let mut gone = self.fit(change.gone);
        let mut come = self.fit(change.come);
        let mut child = None;
        for step in path {
            let old = self.rows[step.node as usize].0[step.slot];
            let new = if come >= old {
                come
            } else if gone < old {
                return;
            } else {
                match child {
                    None => self.leaf_max(leaf),
                    Some(inner) => self.row_max(inner),
                }
            };
            if new == old {
                return;
            }
            self.rows[step.node as usize].0[step.slot] = new;
            (gone, come, child) = (old, new, Some(step.node));
        }
    }
}

impl Change {
    pub(super) fn came(come: Extent) -> Self {
        Self {
            gone: EMPTY_EXTENT,
            come,
        }
    }
}

impl ExtentTree {
    /// The class for alignments of `mask + 1` units, built if it is not there.
    pub(super) fn class(&mut self, mask: u32) -> ClassId {
        let index = self
            .aligned
            .iter()
            .position(|class| class.mask == mask)
            .unwrap_or_else(|| {
                let mut class = Class::new(self.base_unit, mask, self.changes);
                class.rows = vec![Row::EMPTY; self.inners.len()];
                self.build(&mut class, self.root, self.height);
                self.aligned.push(class);
                self.aligned.len() - 1
            });
        self.aligned[index].used_at = self.changes;
        ClassId::Aligned(index)
    }

    /// Brings the change of a leaf, to which `self.path` leads, to the maxima above it.
    pub(super) fn lift(&mut self, leaf: u32, change: &Change) {
        if self.height == 0 {
            return;
        }
        let path = &self.path[..self.height];
        let leaf = &self.leaves[leaf as usize];
        self.plain.lift(change, leaf, path);
        if self.aligned.is_empty() {
            return;
        }
        for class in &mut self.aligned {
            class.lift(change, leaf, path);
        }
        self.changes += 1;
        if self.changes.is_multiple_of(IDLE_LOOK_CHANGES) {
            self.drop_idle_classes();
        }
    }

    /// Computes the maximum of the child in `slot` of the inner node `node` again; `level` as in
    /// [`Path`](super::Path).
    pub(super) fn measure(&mut self, level: usize, node: u32, slot: usize) {
        let child = self.inners[node as usize].child[slot];
        let leaf = if level == 0 {
            Some(&self.leaves[child as usize])
        } else {
            None
        };
        for class in std::iter::once(&mut self.plain).chain(&mut self.aligned) {
            let below = match leaf {
                Some(leaf) => class.leaf_max(leaf),
                None => class.row_max(child),
            };
            class.rows[node as usize].0[slot] = below;
        }
    }

    /// Computes all maxima along `self.path` again from `level` up: after changes of structure,
    /// which are rare.
    pub(super) fn measure_up(&mut self, level: usize) {
        for level in level..self.height {
            let Step { node, slot } = self.path[level];
            self.measure(level, node, slot);
        }
    }

    pub(super) fn classes_mut(&mut self) -> impl Iterator<Item = &mut Class> {
        std::iter::once(&mut self.plain).chain(&mut self.aligned)
    }

    /// Fills the rows of a new class at and below `node`, and gives the maximum there.
    fn build(&self, class: &mut Class, node: u32, level: usize) -> u32 {
        if level == 0 {
            return class.leaf_max(&self.leaves[node as usize]);
        }
        let inner = &self.inners[node as usize];
        for slot in (0..FANOUT).take_while(|&slot| inner.has(slot)) {
            let below = self.build(class, inner.child[slot], level - 1);
            class.rows[node as usize].0[slot] = below;
        }
        class.row_max(node)
    }

    fn drop_idle_classes(&mut self) {
        let idle_max = IDLE_CHANGES_MIN.max(u64::from(self.extent_count));
        self.aligned
            .retain(|class| self.changes - class.used_at <= idle_max);
    }
}
