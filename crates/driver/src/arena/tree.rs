//! The arena the driver uses: an address-ordered B+-tree of free extents.
//!
//! ```text
//!   inner   key    0     41    97    …    start of the first extent below each child (slot 0: 0)
//!           child  #3    #7    #4    …
//!           rows   12    5     64    …    a row for each class: the most units a request can get
//!                  |                      below each child
//!   leaf    start  0     14    30    …    free extents in address order, never touching
//!           len    12    2     7     …
//! ```
//!
//! **Searching.** "Lowest address that fits" is "leftmost extent that is long enough", so a request
//! descends from the root and takes in each node the first child whose maximum suffices. Maxima are
//! exact, so a child that promises also delivers: there is no going back. Looking for an address
//! (free, fixed placement) descends by the keys instead.
//!
//! **Alignment.** Each alignment *in use* has a [`Class`] with maxima of its own, so an aligned
//! request is searched the same way. Plain first fit is the class of alignment 1. Only an alignment
//! that is no power of two must [`walk`] through all free extents.
//!
//! **Changing.** Nearly every change touches one entry of one leaf, and as many of the maxima above
//! as it moves ([`class`]). Nodes split when full and go only when empty ([`shape`]). A fresh arena
//! is one leaf.
//!
//! It does not know what was allocated, nor borders between neighbouring allocations: only what is
//! free.

#[cfg(test)]
mod check;
mod class;
mod node;
mod shape;
mod walk;

use std::num::NonZeroU32;

use self::class::{Change, Class, ClassId, EMPTY_EXTENT};
use self::node::{FANOUT, Inner, Leaf, NONE, Row, count_up_to, first_at_least};
use super::{Arena, Extent, FreeError};

/// The driver's arena: logarithmic in the number of free extents, independent of sizes.
///
/// The alignments in use, `C`, add their part to each change: O(C log n) over the largest number
/// `n` of free extents that has been reached by ordinary use (nodes are not merged, so a caller
/// bent on it can make the tree some levels higher). An alignment's first request (or the first one
/// after a long pause) costs one walk over all free extents. Requests with an alignment that is no
/// power of two are linear in the number of free extents.
#[derive(Debug, Clone)]
pub struct ExtentTree {
    base_unit: u64,
    len_units: u32,
    free_units: u32,
    extent_count: u32,
    /// A leaf when `height` is 0, else an inner node.
    root: u32,
    height: usize,
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    leaf_free_list: u32,
    inner_free_list: u32,
    plain: Class,
    /// The classes of the alignments in use above 1.
    aligned: Vec<Class>,
    /// Changes made while there were aligned classes.
    changes: u64,
    /// The way to the leaf found last. Kept here because making a new one for each request costs
    /// more than using it.
    path: Path,
}

impl Arena for ExtentTree {
    const NAME: &'static str = "extent tree";

    fn new(base_unit: u64, len_units: u32) -> Self {
        let mut root = Leaf::EMPTY;
        if len_units > 0 {
            root.set(
                0,
                Extent {
                    start: 0,
                    len: len_units,
                },
            );
        }
        Self {
            base_unit,
            len_units,
            free_units: len_units,
            extent_count: u32::from(len_units > 0),
            root: 0,
            height: 0,
            leaves: vec![root],
            inners: Vec::new(),
            leaf_free_list: NONE,
            inner_free_list: NONE,
            plain: Class::new(base_unit, 0, 0),
            aligned: Vec::new(),
            changes: 0,
            path: Path::default(),
        }
    }

    fn len_units(&self) -> u32 {
        self.len_units
    }

    fn free_units(&self) -> u32 {
        self.free_units
    }

    fn alloc(&mut self, units: u32) -> Option<u32> {
        if self.refuses(units) {
            return None;
        }
        let (leaf, pos) = self.find(ClassId::Plain, units)?;
        let at = self.leaves[leaf as usize].start[pos];
        self.take(leaf, pos, at, units);
        Some(at)
    }

    fn alloc_aligned(&mut self, units: u32, align_units: NonZeroU32) -> Option<u32> {
        let mask = align_units.get() - 1;
        if mask == 0 {
            return self.alloc(units);
        }
        if self.refuses(units) {
            return None;
        }
        if !align_units.is_power_of_two() {
            let at = self.search_literal(units, u64::from(mask))?;
            let taken = self.alloc_at(at, units);
            debug_assert!(taken, "the search answers with a run that is free");
            return taken.then_some(at);
        }
        let class = Class::new(self.base_unit, mask, 0);
        let (leaf, pos) = if self.height == 0 {
            // One leaf is searched without a class.
            (
                self.root,
                class.find(&self.leaves[self.root as usize], units)?,
            )
        } else {
            let class = self.class(mask);
            self.find(class, units)?
        };
        let start = self.leaves[leaf as usize].start[pos];
        let at = start + class.pad(start);
        self.take(leaf, pos, at, units);
        Some(at)
    }

    fn alloc_at(&mut self, at: u32, units: u32) -> bool {
        let Some(end) = at.checked_add(units) else {
            return false;
        };
        if self.refuses(units) || end > self.len_units {
            return false;
        }
        let Place { leaf, pos, .. } = self.locate(at);
        let Some(pos) = pos.checked_sub(1) else {
            return false;
        };
        if self.leaves[leaf as usize].get(pos).end() < end {
            return false;
        }
        self.take(leaf, pos, at, units);
        true
    }

    fn free(&mut self, at: u32, units: u32) -> Result<(), FreeError> {
        let len_units = self.len_units;
        let end = at
            .checked_add(units)
            .filter(|&end| units > 0 && end <= len_units);
        let Some(end) = end else {
            return Err(FreeError::OutOfRange {
                start: at,
                len: units,
                len_units,
            });
        };
        let place = self.locate(at);
        let leaf = &self.leaves[place.leaf as usize];
        let before_is_clear = place.pos == 0 || leaf.get(place.pos - 1).end() <= at;
        // A padding and a missing next leaf are both `NONE`, which is never below the end of a run.
        let after_start = leaf.start.get(place.pos).copied().unwrap_or(NONE);
        if !before_is_clear || after_start.min(place.beyond) < end {
            return Err(FreeError::NotTaken {
                start: at,
                len: units,
            });
        }
        self.free_units += units;
        self.give(
            place,
            Extent {
                start: at,
                len: units,
            },
        );
        Ok(())
    }

    fn largest_free(&self) -> u32 {
        if self.height == 0 {
            self.plain.leaf_max(&self.leaves[self.root as usize])
        } else {
            self.plain.row_max(self.root)
        }
    }

    fn largest_aligned_fit(&self, align_units: NonZeroU32) -> u32 {
        let mask = align_units.get() - 1;
        if mask == 0 {
            return self.largest_free();
        }
        if align_units.is_power_of_two() {
            return match self.aligned.iter().find(|class| class.mask == mask) {
                Some(class) => class.row_max(self.root),
                None => {
                    let class = Class::new(self.base_unit, mask, 0);
                    self.walk()
                        .map(|extent| class.fit(extent))
                        .max()
                        .unwrap_or(0)
                }
            };
        }
        self.largest_literal_fit(u64::from(mask))
    }

    fn free_extents(&self) -> Box<dyn Iterator<Item = Extent> + '_> {
        Box::new(self.walk())
    }

    fn heap_bytes(&self) -> usize {
        let classes = std::iter::once(&self.plain).chain(&self.aligned);
        let rows: usize = classes.map(|class| class.rows.capacity()).sum();
        self.leaves.capacity() * size_of::<Leaf>()
            + self.inners.capacity() * size_of::<Inner>()
            + rows * size_of::<Row>()
            + self.aligned.capacity() * size_of::<Class>()
    }
}

/// Levels above the leaves at most.
// LIMIT: a split leaves at most 28 entries on either side (`shape::split_point`) and comes with the
// 33rd, so whatever is removed in between, a level grows by one node for five that the level below
// it has grown by. A height of 32 takes more than 5^31 insertions.
const HEIGHT_MAX: usize = 32;

/// Where a descent went through an inner node.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    node: u32,
    slot: usize,
}

/// The way from a leaf to the root: element 0 is the parent of the leaf.
type Path = [Step; HEIGHT_MAX];

/// Where a unit belongs among the free extents.
#[derive(Debug, Clone, Copy)]
struct Place {
    leaf: u32,
    /// How many extents of the leaf start at the unit or before. The last of them is the only one
    /// that can hold it.
    pos: usize,
    /// Start of the first extent behind the leaf; [`NONE`] if there is none.
    beyond: u32,
}

impl ExtentTree {
    fn refuses(&self, units: u32) -> bool {
        units == 0 || units > self.len_units
    }

    // --- Finding ---

    /// The leftmost entry that fits `class`: its leaf and place. Leaves the way there in
    /// `self.path`.
    fn find(&mut self, class: ClassId, units: u32) -> Option<(u32, usize)> {
        let class = match class {
            ClassId::Plain => &self.plain,
            ClassId::Aligned(index) => &self.aligned[index],
        };
        let mut node = self.root;
        for step in self.path[..self.height].iter_mut().rev() {
            let slot = first_at_least(&class.rows[node as usize].0, units)?;
            *step = Step { node, slot };
            node = self.inners[node as usize].child[slot];
        }
        Some((node, class.find(&self.leaves[node as usize], units)?))
    }

    /// The place of `unit` among the free extents. Leaves the way there in `self.path`.
    fn locate(&mut self, unit: u32) -> Place {
        let mut node = self.root;
        let mut beyond = NONE;
        for step in self.path[..self.height].iter_mut().rev() {
            let inner = &self.inners[node as usize];
            // The key of slot 0 is 0, so at least one is not above `unit`; paddings are above every
            // unit.
            let slot = count_up_to(&inner.key, unit).saturating_sub(1);
            if inner.has(slot + 1) {
                beyond = inner.key[slot + 1];
            }
            *step = Step { node, slot };
            node = inner.child[slot];
        }
        Place {
            leaf: node,
            pos: count_up_to(&self.leaves[node as usize].start, unit),
            beyond,
        }
    }

    // --- Taking and giving back ---

    /// Takes `[at, at + units)` out of the free extent at `pos` of `leaf`, to which `self.path`
    /// leads.
    fn take(&mut self, leaf: u32, pos: usize, at: u32, units: u32) {
        let entries = &mut self.leaves[leaf as usize];
        let old = entries.get(pos);
        let front = span(old.start, at);
        let back = span(at + units, old.end());
        let change = Change {
            gone: old,
            come: back,
        };
        self.free_units -= units;
        match (front.len, back.len) {
            (0, 0) => self.remove(leaf, pos, &change),
            // The usual case: the extent shrinks from its front, and is still where it was.
            (0, _) => {
                entries.set(pos, back);
                if pos == 0 {
                    self.set_key(0, back.start);
                }
                self.lift(leaf, &change);
            }
            (_, 0) => {
                entries.len[pos] = front.len;
                self.lift(leaf, &change);
            }
            (_, _) => {
                entries.len[pos] = front.len;
                self.insert(leaf, pos + 1, back, &change);
            }
        }
    }

    /// Adds a run that lies between the free extents around `place`, to which `self.path` leads.
    fn give(&mut self, place: Place, run: Extent) {
        let Place { leaf, pos, beyond } = place;
        let entries = &mut self.leaves[leaf as usize];
        // Keys are exact, so the extent before the run is in this leaf if there is one at all.
        let before = pos.checked_sub(1).map(|pos| entries.get(pos));
        let before = before.filter(|before| before.end() == run.start);
        let after_is_here = pos < FANOUT && entries.start[pos] != NONE;
        let after_start = if after_is_here {
            entries.start[pos]
        } else {
            beyond
        };
        // The end of an arena of `NONE` units is `NONE` as well, hence the second question.
        let joins_after = after_start == run.end() && after_start != NONE;
        match (before, joins_after) {
            (None, false) => self.insert(leaf, pos, run, &Change::came(run)),
            (Some(before), false) => {
                let grown = span(before.start, run.end());
                entries.set(pos - 1, grown);
                self.lift(leaf, &Change::came(grown));
            }
            (None, true) if after_is_here => {
                let grown = span(run.start, entries.get(pos).end());
                // No key changes: an extent with none before it in its leaf is the first of all.
                entries.set(pos, grown);
                self.lift(leaf, &Change::came(grown));
            }
            (Some(before), true) if after_is_here => {
                let grown = span(before.start, entries.get(pos).end());
                entries.set(pos - 1, grown);
                self.remove(leaf, pos, &Change::came(grown));
            }
            (None, true) => self.extend_next_leaf(run.start),
            (Some(_), true) => {
                // Two leaves change. Taking the extent out of the second can move nodes, so the
                // first is looked up again.
                let after = self.remove_from_next_leaf();
                let place = self.locate(run.start);
                self.give(
                    place,
                    Extent {
                        start: run.start,
                        len: run.len + after.len,
                    },
                );
            }
        }
    }

    /// The first free extent of the leaf after the one that `self.path` leads to grows downwards to
    /// `at`.
    fn extend_next_leaf(&mut self, at: u32) {
        if let Some(leaf) = self.step_to_next_leaf() {
            let entries = &mut self.leaves[leaf as usize];
            let grown = span(at, entries.get(0).end());
            entries.set(0, grown);
            self.set_key(0, at);
            self.lift(leaf, &Change::came(grown));
        }
    }

    /// Takes the first free extent out of the leaf after the one that `self.path` leads to.
    fn remove_from_next_leaf(&mut self) -> Extent {
        let Some(leaf) = self.step_to_next_leaf() else {
            return EMPTY_EXTENT;
        };
        let gone = self.leaves[leaf as usize].get(0);
        self.remove(
            leaf,
            0,
            &Change {
                gone,
                come: EMPTY_EXTENT,
            },
        );
        gone
    }

    fn step_to_next_leaf(&mut self) -> Option<u32> {
        let mut path = self.path;
        let leaf = self.next_leaf(&mut path);
        self.path = path;
        leaf
    }
}

/// The units from `start` to `end`; an extent of 0 units if that is none.
fn span(start: u32, end: u32) -> Extent {
    Extent {
        start,
        len: end - start,
    }
}
