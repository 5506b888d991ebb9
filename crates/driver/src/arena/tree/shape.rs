//! The shape of the tree: entries come and go, nodes split, vanish and are used again.
//!
//! Nodes split when full and go only when empty. Neighbours are never merged or balanced, because
//! an arena that has been fragmented once tends to be so again. A split of the root puts a new one
//! on top; a root with a single child gives way to that child.
//!
//! Nodes live in two vectors and are named by index. Released ones form a list through a field of
//! their own, so a tree that was large keeps its memory.
//!
//! Keys and maxima are exact again when an insertion or a removal returns, on the levels that have
//! changed and on all above.

use super::class::Change;
use super::node::{FANOUT, Inner, Leaf, NONE, Row, insert_in, remove_in, split_in};
use super::{Extent, ExtentTree, Step};

impl ExtentTree {
    /// Puts `extent` at `pos` of `leaf`, to which `self.path` leads. `change` names it and what
    /// else has changed in the leaf.
    ///
    /// No key changes: only what lies before all other free extents is put before its whole leaf.
    pub(super) fn insert(&mut self, leaf: u32, pos: usize, extent: Extent, change: &Change) {
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

    /// Takes the entry at `pos` out of `leaf`, to which `self.path` leads. `change` names it and
    /// what else has changed in the leaf.
    pub(super) fn remove(&mut self, leaf: u32, pos: usize, change: &Change) {
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

    /// The first extent below the node under `self.path[level]` starts at `start` now.
    pub(super) fn set_key(&mut self, level: usize, start: u32) {
        // Slots 0 have no key of their own: it is the one of the node above.
        if let Some(step) = self.path[level..self.height]
            .iter()
            .find(|step| step.slot > 0)
        {
            self.inners[step.node as usize].key[step.slot] = start;
        }
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
                class.rows.push(Row::EMPTY);
            }
            return index_u32(self.inners.len() - 1);
        }
        let id = self.inner_free_list;
        let slot = &mut self.inners[id as usize];
        // The list runs through `child[0]`.
        self.inner_free_list = slot.child[0];
        *slot = inner;
        for class in self.classes_mut() {
            class.rows[id as usize] = Row::EMPTY;
        }
        id
    }

    fn release_inner(&mut self, id: u32) {
        self.inners[id as usize].child[0] = self.inner_free_list;
        self.inner_free_list = id;
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
