//! The arena the driver uses: an address-ordered B+-tree of free extents.
//!
//! ```text
//!   inner   key    0      41     97     …      start of the first extent below each child (slot 0: 0)
//!           child  #3     #7     #4     …
//!           rows   12     5      64     …      one row per alignment class: the most units a request can get below each child
//!                  |
//!   leaf    start  0      14     30     …      free extents in address order, never touching
//!           len    12     2      7      …
//! ```
//!
//! **Searching.** "Lowest address that fits" is "leftmost extent that is long enough", so a request
//! descends from the root and takes in each node the first child whose maximum suffices. Maxima are
//! exact, so a child that promises also delivers: there is no going back. Looking for an address
//! (free, fixed placement) descends by the keys instead.
//!
//! **Alignment.** Long enough is not enough for an aligned request. Each alignment *in use*
//! therefore has a [`Class`] with its own maxima: of `end - round_up(start)`, the part of an extent
//! behind its first aligned unit, in absolute units. The first request with an alignment builds its
//! class in one walk; from then on each change keeps it exact. Plain first fit is the class of
//! alignment 1. A class that goes unused for long is dropped (see [`IDLE_CHANGES_MIN`]).
//!
//! **Changing.** Nearly every change touches one entry of one leaf. A change is told to the levels
//! above as "this value went, that one came" and stops at the first level whose maximum stays; a
//! node is read again only when its very maximum went. Nodes split when full and go only when
//! empty: neighbours are never merged or balanced, because an arena that has been fragmented once
//! tends to be so again.
//!
//! **Nodes** live in two vectors and are named by index; freed ones form a list through their own
//! fields. Unused entries hold a padding (`start` [`NONE`], `len` 0, maxima 0) which no search can
//! match, so that the loops over a node have a fixed length (compiled to vector code) and nodes
//! need no count. A fresh arena is one leaf.
//!
//! It does not know what was allocated, nor borders between neighbouring allocations: only what is
//! free.

use std::num::NonZeroU32;

use super::{Arena, Extent, FreeError};

/// Entries in a node. 16 was 10 to 30 % slower in prototypes, 64 no better.
const FANOUT: usize = 32;

/// Entries that are looked at together. A node is four blocks.
const BLOCK: usize = FANOUT / 4;

/// No unit and no node: the padding of unused entries, and the end of the lists of free nodes.
const NONE: u32 = u32::MAX;

/// Levels above the leaves at most.
// LIMIT: a split leaves at most 28 entries on either side (see `split_point`) and comes with the
// 33rd, so whatever is removed in between, a level grows by one node for five that the level below
// it has grown by. A height of 32 takes more than 5^31 insertions.
const HEIGHT_MAX: usize = 32;

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

const EMPTY_EXTENT: Extent = Extent { start: 0, len: 0 };

/// One number for each entry of a node.
#[derive(Debug, Clone, Copy)]
struct Row([u32; FANOUT]);

/// Free extents in address order.
#[derive(Debug, Clone)]
struct Leaf {
    start: [u32; FANOUT],
    len: [u32; FANOUT],
}

/// Children in address order. The maxima are kept apart, by class.
#[derive(Debug, Clone)]
struct Inner {
    /// Start of the first extent below each child; that of slot 0 is 0 so that every unit has a
    /// child to belong to.
    key: [u32; FANOUT],
    child: [u32; FANOUT],
}

/// Where a descent went through an inner node.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    node: u32,
    slot: usize,
}

/// The way from a leaf to the root: element 0 is the parent of the leaf.
type Path = [Step; HEIGHT_MAX];

/// What went from a leaf and what is new in it; [`EMPTY_EXTENT`] where nothing is.
///
/// One of each is enough. What a free merges away is not told, because the extent it becomes part
/// of serves whatever it could. Of the two extents that a request can leave either will do, because
/// neither serves more than the one that went.
#[derive(Debug, Clone, Copy)]
struct Change {
    gone: Extent,
    come: Extent,
}

/// One alignment: how much of an extent it can use, and the maxima of that below every child.
#[derive(Debug, Clone)]
struct Class {
    /// Absolute number of unit 0 modulo 2^32, which is enough because no alignment is larger.
    base: u32,
    /// Alignment in units less one, a power of two less one. 0 is the plain class.
    mask: u32,
    /// By inner node, by slot.
    rows: Vec<Row>,
    /// The count of changes at the last request.
    used_at: u64,
}

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

impl Change {
    fn came(come: Extent) -> Self {
        Self {
            gone: EMPTY_EXTENT,
            come,
        }
    }
}

impl Leaf {
    const EMPTY: Self = Self {
        start: [NONE; FANOUT],
        len: [0; FANOUT],
    };

    fn get(&self, pos: usize) -> Extent {
        Extent {
            start: self.start[pos],
            len: self.len[pos],
        }
    }

    fn set(&mut self, pos: usize, extent: Extent) {
        self.start[pos] = extent.start;
        self.len[pos] = extent.len;
    }

    fn blocks(&self) -> impl Iterator<Item = (&[u32; BLOCK], &[u32; BLOCK])> {
        self.start.as_chunks().0.iter().zip(self.len.as_chunks().0)
    }

    fn is_empty(&self) -> bool {
        self.start[0] == NONE
    }

    fn is_full(&self) -> bool {
        self.start[FANOUT - 1] != NONE
    }

    /// Makes room at `pos`; the last entry, a padding, falls out.
    fn insert(&mut self, pos: usize, extent: Extent) {
        insert_in(&mut self.start, pos, extent.start);
        insert_in(&mut self.len, pos, extent.len);
    }

    fn remove(&mut self, pos: usize) {
        remove_in(&mut self.start, pos, NONE);
        remove_in(&mut self.len, pos, 0);
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self {
            start: split_in(&mut self.start, at, NONE),
            len: split_in(&mut self.len, at, 0),
        }
    }
}

impl Inner {
    const EMPTY: Self = Self {
        key: [NONE; FANOUT],
        child: [NONE; FANOUT],
    };

    fn is_empty(&self) -> bool {
        self.key[0] == NONE
    }

    fn is_full(&self) -> bool {
        self.key[FANOUT - 1] != NONE
    }

    fn has(&self, slot: usize) -> bool {
        slot < FANOUT && self.key[slot] != NONE
    }
}

impl Class {
    fn new(base_unit: u64, mask: u32, used_at: u64) -> Self {
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
    fn fit(&self, extent: Extent) -> u32 {
        extent.len.saturating_sub(self.pad(extent.start))
    }

    /// Units from `start` to the next aligned one. Wrapping is right: the alignment divides 2^32.
    fn pad(&self, start: u32) -> u32 {
        self.base.wrapping_add(start).wrapping_neg() & self.mask
    }

    /// What each of some extents can serve.
    fn fits<const N: usize>(&self, starts: &[u32; N], lens: &[u32; N]) -> [u32; N] {
        let mut fits = *lens;
        for (fit, &start) in fits.iter_mut().zip(starts) {
            *fit = fit.saturating_sub(self.pad(start));
        }
        fits
    }

    /// The first entry of `leaf` that can serve a request.
    fn find(&self, leaf: &Leaf, units: u32) -> Option<usize> {
        if self.mask == 0 {
            return first_at_least(&leaf.len, units);
        }
        leaf.blocks()
            .enumerate()
            .find_map(|(block, (starts, lens))| {
                Some(block * BLOCK + first_in_block(&self.fits(starts, lens), units)?)
            })
    }

    fn leaf_max(&self, leaf: &Leaf) -> u32 {
        if self.mask == 0 {
            return max(&leaf.len);
        }
        max(&self.fits(&leaf.start, &leaf.len))
    }

    fn row_max(&self, inner: u32) -> u32 {
        max(&self.rows[inner as usize].0)
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

impl ExtentTree {
    fn new_tree(base_unit: u64, len_units: u32) -> Self {
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

    /// Moves `path` to the next leaf in address order.
    fn next_leaf(&self, path: &mut Path) -> Option<u32> {
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

    fn walk(&self) -> Walk<'_> {
        let mut path = Path::default();
        let leaf = self.first_leaf(self.root, &mut path[..self.height]);
        Walk {
            tree: self,
            path,
            leaf: Some(leaf),
            pos: 0,
        }
    }

    // --- Taking ---

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

    /// The contract's loop for an alignment that is no power of two, over free extents instead of
    /// bits.
    fn search_literal(&self, units: u32, mask: u64) -> Option<u32> {
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

    // --- Classes ---

    /// The class for alignments of `mask + 1` units, built if it is not there.
    fn class(&mut self, mask: u32) -> ClassId {
        let index = self
            .aligned
            .iter()
            .position(|class| class.mask == mask)
            .unwrap_or_else(|| {
                let mut class = Class::new(self.base_unit, mask, self.changes);
                class.rows = vec![Row([0; FANOUT]); self.inners.len()];
                self.build(&mut class, self.root, self.height);
                self.aligned.push(class);
                self.aligned.len() - 1
            });
        self.aligned[index].used_at = self.changes;
        ClassId::Aligned(index)
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

    fn classes_mut(&mut self) -> impl Iterator<Item = &mut Class> {
        std::iter::once(&mut self.plain).chain(&mut self.aligned)
    }

    fn drop_idle_classes(&mut self) {
        let idle_max = IDLE_CHANGES_MIN.max(u64::from(self.extent_count));
        self.aligned
            .retain(|class| self.changes - class.used_at <= idle_max);
    }

    // --- Keeping keys and maxima ---

    /// Brings the change of a leaf, to which `self.path` leads, to the maxima above it.
    fn lift(&mut self, leaf: u32, change: &Change) {
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

    /// The first extent below the node under `self.path[level]` starts at `start` now.
    fn set_key(&mut self, level: usize, start: u32) {
        // Slots 0 have no key of their own: it is the one of the node above.
        if let Some(step) = self.path[level..self.height]
            .iter()
            .find(|step| step.slot > 0)
        {
            self.inners[step.node as usize].key[step.slot] = start;
        }
    }

    /// Computes the maximum of the child in `slot` of the inner node `node` again; `level` as in
    /// [`Path`].
    fn measure(&mut self, level: usize, node: u32, slot: usize) {
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
    fn measure_up(&mut self, level: usize) {
        for level in level..self.height {
            let Step { node, slot } = self.path[level];
            self.measure(level, node, slot);
        }
    }

    // --- Structure ---

    /// Puts `extent` at `pos` of `leaf`, to which `self.path` leads. `change` names it and what
    /// else has changed in the leaf.
    ///
    /// No key changes: only what lies before all other free extents is put before its whole leaf.
    fn insert(&mut self, leaf: u32, pos: usize, extent: Extent, change: &Change) {
        self.extent_count += 1;
        let left = &mut self.leaves[leaf as usize];
        if !left.is_full() {
            left.insert(pos, extent);
            self.lift(leaf, change);
            return;
        }
        let middle = split_point(pos);
        let mut right = left.split_off(middle);
        if pos <= middle {
            left.insert(pos, extent);
        } else {
            right.insert(pos - middle, extent);
        }
        let right_start = right.start[0];
        let right = self.new_leaf(right);
        self.insert_child(0, leaf, right_start, right);
    }

    /// Hangs `child`, whose first extent starts at `key`, to the right of `left`, the node under
    /// `self.path[level]`, and computes the maxima of both and of all above.
    fn insert_child(&mut self, level: usize, left: u32, key: u32, child: u32) {
        if level == self.height {
            // `left` was the root.
            let mut inner = Inner::EMPTY;
            (inner.key[0], inner.child[0]) = (0, left);
            self.root = self.new_inner(inner);
            self.path[level] = Step {
                node: self.root,
                slot: 0,
            };
            self.height += 1;
        }
        let Step { mut node, slot } = self.path[level];
        let mut pos = slot + 1;
        let mut split = None;
        if self.inners[node as usize].is_full() {
            let middle = split_point(pos);
            let (right_key, right) = self.split_inner(node, middle);
            split = Some((node, right_key, right));
            if pos > middle {
                (node, pos) = (right, pos - middle);
            }
        }
        let inner = &mut self.inners[node as usize];
        insert_in(&mut inner.key, pos, key);
        insert_in(&mut inner.child, pos, child);
        for class in self.classes_mut() {
            insert_in(&mut class.rows[node as usize].0, pos, 0);
        }
        self.measure(level, node, pos - 1);
        self.measure(level, node, pos);
        match split {
            None => self.measure_up(level + 1),
            Some((left, right_key, right)) => self.insert_child(level + 1, left, right_key, right),
        }
    }

    /// Moves the entries of an inner node from `at` on into a new one; gives its key and number.
    fn split_inner(&mut self, node: u32, at: usize) -> (u32, u32) {
        let inner = &mut self.inners[node as usize];
        let mut right = Inner {
            key: split_in(&mut inner.key, at, NONE),
            child: split_in(&mut inner.child, at, NONE),
        };
        let key = std::mem::take(&mut right.key[0]);
        let right = self.new_inner(right);
        for class in self.classes_mut() {
            class.rows[right as usize].0 = split_in(&mut class.rows[node as usize].0, at, 0);
        }
        (key, right)
    }

    /// Takes the entry at `pos` out of `leaf`, to which `self.path` leads. `change` names it and
    /// what else has changed in the leaf.
    fn remove(&mut self, leaf: u32, pos: usize, change: &Change) {
        self.extent_count -= 1;
        let entries = &mut self.leaves[leaf as usize];
        entries.remove(pos);
        let first_start = entries.start[0];
        if entries.is_empty() && self.height > 0 {
            self.release_leaf(leaf);
            self.remove_child();
            return;
        }
        if pos == 0 {
            self.set_key(0, first_start);
        }
        self.lift(leaf, change);
    }

    /// Takes the leaf under `self.path` out of its parent, with all nodes above that have become
    /// empty.
    fn remove_child(&mut self) {
        for level in 0..self.height {
            let Step { node, slot } = self.path[level];
            let inner = &mut self.inners[node as usize];
            remove_in(&mut inner.key, slot, NONE);
            remove_in(&mut inner.child, slot, NONE);
            let emptied = inner.is_empty();
            let first_key = inner.key[0];
            if slot == 0 && !emptied {
                inner.key[0] = 0;
            }
            for class in self.classes_mut() {
                remove_in(&mut class.rows[node as usize].0, slot, 0);
            }
            if !emptied {
                if slot == 0 {
                    self.set_key(level + 1, first_key);
                }
                self.measure_up(level + 1);
                break;
            }
            // The root is never emptied: it has two children or more.
            self.release_inner(node);
        }
        self.lower_root();
    }

    /// Drops inner nodes at the top that have one child only.
    fn lower_root(&mut self) {
        while self.height > 0 && !self.inners[self.root as usize].has(1) {
            let only_child = self.inners[self.root as usize].child[0];
            self.release_inner(self.root);
            self.root = only_child;
            self.height -= 1;
        }
        if self.height == 0 {
            // A leaf is searched as it is. Classes come back with the first request that needs
            // them.
            self.aligned.clear();
        }
    }

    fn new_leaf(&mut self, leaf: Leaf) -> u32 {
        if self.leaf_free_list == NONE {
            grow(&mut self.leaves);
            self.leaves.push(leaf);
            return index_u32(self.leaves.len() - 1);
        }
        let id = self.leaf_free_list;
        let slot = &mut self.leaves[id as usize];
        // The list runs through `len[0]`.
        self.leaf_free_list = slot.len[0];
        *slot = leaf;
        id
    }

    fn release_leaf(&mut self, id: u32) {
        self.leaves[id as usize].len[0] = self.leaf_free_list;
        self.leaf_free_list = id;
    }

    /// A new inner node with maxima 0 in all classes.
    fn new_inner(&mut self, inner: Inner) -> u32 {
        if self.inner_free_list == NONE {
            grow(&mut self.inners);
            self.inners.push(inner);
            for class in self.classes_mut() {
                grow(&mut class.rows);
                class.rows.push(Row([0; FANOUT]));
            }
            return index_u32(self.inners.len() - 1);
        }
        let id = self.inner_free_list;
        let slot = &mut self.inners[id as usize];
        // The list runs through `child[0]`.
        self.inner_free_list = slot.child[0];
        *slot = inner;
        for class in self.classes_mut() {
            class.rows[id as usize] = Row([0; FANOUT]);
        }
        id
    }

    fn release_inner(&mut self, id: u32) {
        self.inners[id as usize].child[0] = self.inner_free_list;
        self.inner_free_list = id;
    }

    // --- Giving back ---

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

impl Arena for ExtentTree {
    const NAME: &'static str = "extent tree";

    fn new(base_unit: u64, len_units: u32) -> Self {
        Self::new_tree(base_unit, len_units)
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
        let mask = u64::from(mask);
        let off = self.base_unit & mask;
        let fit = |extent: Extent| {
            let at = next_answer(u64::from(extent.start) + off, mask) - off;
            let fit = u64::from(extent.end()).saturating_sub(at);
            u32::try_from(fit).unwrap_or(0)
        };
        self.walk().map(fit).max().unwrap_or(0)
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

/// Which maxima a search goes by.
#[derive(Debug, Clone, Copy)]
enum ClassId {
    Plain,
    Aligned(usize),
}

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

/// All free extents in address order.
struct Walk<'a> {
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

/// The units from `start` to `end`; an extent of 0 units if that is none.
fn span(start: u32, end: u32) -> Extent {
    Extent {
        start,
        len: end - start,
    }
}

/// Where a full node is split for an insertion at `pos`. A node that grows at one end, as freeing
/// in address order makes it, leaves most entries on the side where no more will come, or every
/// node would stay half empty.
fn split_point(pos: usize) -> usize {
    match pos {
        0 | 1 => FANOUT / 8,
        // Growth at the end is often just before the large free extent behind all allocations.
        31.. => FANOUT - FANOUT / 8,
        _ => FANOUT / 2,
    }
}

/// Makes room for one more element, by an eighth: with millions of extents the doubling of a vector
/// would waste as much memory as they need, and large blocks are moved by remapping.
fn grow<T>(nodes: &mut Vec<T>) {
    if nodes.len() == nodes.capacity() {
        nodes.reserve_exact(1 + nodes.len() / 8);
    }
}

/// The number of a node. There are fewer nodes than free extents, and of those no more than half as
/// many as units.
fn index_u32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

/// The first element that is `units` or more.
fn first_at_least(row: &[u32; FANOUT], units: u32) -> Option<usize> {
    let mut blocks = row.as_chunks().0.iter().enumerate();
    blocks.find_map(|(block, values)| Some(block * BLOCK + first_in_block(values, units)?))
}

fn first_in_block(values: &[u32; BLOCK], units: u32) -> Option<usize> {
    // Without a way out in the middle the compiler compares the block as vectors.
    if !values
        .iter()
        .fold(false, |hit, &value| hit | (value >= units))
    {
        return None;
    }
    values.iter().position(|&value| value >= units)
}

/// How many elements of an ascending row are `limit` or less.
fn count_up_to(row: &[u32; FANOUT], limit: u32) -> usize {
    row.iter()
        .map(|&value| u32::from(value <= limit))
        .sum::<u32>() as usize
}

fn max(values: &[u32]) -> u32 {
    values.iter().fold(0, |max, &value| max.max(value))
}

fn insert_in(row: &mut [u32; FANOUT], pos: usize, value: u32) {
    row.copy_within(pos..FANOUT - 1, pos + 1);
    row[pos] = value;
}

fn remove_in(row: &mut [u32; FANOUT], pos: usize, padding: u32) {
    row.copy_within(pos + 1.., pos);
    row[FANOUT - 1] = padding;
}

/// Moves the elements from `at` on into a new row.
fn split_in(row: &mut [u32; FANOUT], at: usize, padding: u32) -> [u32; FANOUT] {
    let mut right = [padding; FANOUT];
    right[..FANOUT - at].copy_from_slice(&row[at..]);
    row[at..].fill(padding);
    right
}

#[cfg(test)]
impl ExtentTree {
    /// Levels of nodes, the leaves included.
    pub(super) fn levels(&self) -> usize {
        self.height + 1
    }

    /// Alignments above 1 whose maxima are kept.
    pub(super) fn class_count(&self) -> usize {
        self.aligned.len()
    }

    /// Asserts that keys and maxima are exact, paddings clean, the books right and no node lost.
    pub(super) fn check(&self) {
        let mut seen = Seen::default();
        self.check_node(self.root, self.height, &mut seen);
        assert!(
            seen.extents
                .windows(2)
                .all(|pair| pair[0].end() < pair[1].start)
        );
        assert_eq!(
            seen.extents.iter().map(|extent| extent.len).sum::<u32>(),
            self.free_units
        );
        assert_eq!(seen.extents.len(), self.extent_count as usize);
        assert!(
            seen.extents
                .last()
                .is_none_or(|last| last.end() <= self.len_units)
        );
        assert!(
            self.height == 0 || self.inners[self.root as usize].has(1),
            "one child at the top"
        );

        let mut leaf = self.leaf_free_list;
        while leaf != NONE {
            seen.leaves += 1;
            leaf = self.leaves[leaf as usize].len[0];
        }
        let mut inner = self.inner_free_list;
        while inner != NONE {
            seen.inners += 1;
            inner = self.inners[inner as usize].child[0];
        }
        assert_eq!(
            (seen.leaves, seen.inners),
            (self.leaves.len(), self.inners.len())
        );
    }

    fn check_node(&self, node: u32, level: usize, seen: &mut Seen) {
        if level == 0 {
            let leaf = &self.leaves[node as usize];
            let used = leaf
                .start
                .iter()
                .take_while(|&&start| start != NONE)
                .count();
            assert!(used > 0 || self.height == 0, "an empty leaf in the tree");
            assert!(leaf.start[used..].iter().all(|&start| start == NONE));
            assert!(leaf.len[..used].iter().all(|&len| len > 0));
            assert!(leaf.len[used..].iter().all(|&len| len == 0));
            seen.leaves += 1;
            seen.extents.extend((0..used).map(|pos| leaf.get(pos)));
            return;
        }
        let inner = &self.inners[node as usize];
        let used = inner.key.iter().take_while(|&&key| key != NONE).count();
        assert!(used > 0 && inner.key[0] == 0);
        assert!(inner.key[used..].iter().all(|&key| key == NONE));
        seen.inners += 1;
        for slot in 0..used {
            let first = seen.extents.len();
            self.check_node(inner.child[slot], level - 1, seen);
            let below = &seen.extents[first..];
            assert!(
                slot == 0 || inner.key[slot] == below[0].start,
                "a key is not exact"
            );
            for class in std::iter::once(&self.plain).chain(&self.aligned) {
                let max = below.iter().map(|&extent| class.fit(extent)).max();
                let kept = class.rows[node as usize].0[slot];
                assert_eq!(
                    Some(kept),
                    max,
                    "a maximum is not exact, mask {:#x}",
                    class.mask
                );
            }
        }
        for class in std::iter::once(&self.plain).chain(&self.aligned) {
            assert_eq!(class.rows.len(), self.inners.len());
            assert!(
                class.rows[node as usize].0[used..]
                    .iter()
                    .all(|&max| max == 0)
            );
        }
    }
}

/// What a check has come across.
#[cfg(test)]
#[derive(Default)]
struct Seen {
    extents: Vec<Extent>,
    leaves: usize,
    inners: usize,
}
