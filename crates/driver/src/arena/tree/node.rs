//! The nodes of the tree: a leaf, an inner node, a row of maxima, and the loops over one.
//!
//! Every node has room for [`FANOUT`] entries, kept as columns and packed to the front. Unused
//! entries hold a padding (`start` and `key` [`NONE`], `len` and maxima 0) which no search can
//! match. So the loops over a node have a fixed length, which compiles to vector code, and a node
//! needs no count: its last entry tells whether it is full, its first whether it is empty.
//!
//! Nothing here knows the tree: which nodes hang together, or what an alignment is.

use super::Extent;

/// Entries in a node. 16 was 10 to 30 % slower in prototypes, 64 no better.
pub(super) const FANOUT: usize = 32;

/// Entries that are looked at together. A node is four blocks.
pub(super) const BLOCK: usize = FANOUT / 4;

/// No unit and no node: the padding of unused entries, and the end of the lists of free nodes.
pub(super) const NONE: u32 = u32::MAX;

/// One number for each entry of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row(pub(super) [u32; FANOUT]);

/// Free extents in address order.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) start: [u32; FANOUT],
    pub(super) len: [u32; FANOUT],
}

/// Children in address order. The maxima are kept apart, by class.
#[derive(Debug, Clone)]
pub(super) struct Inner {
    /// Start of the first extent below each child; that of slot 0 is 0 so that every unit has a
    /// child to belong to.
    pub(super) key: [u32; FANOUT],
    pub(super) child: [u32; FANOUT],
}

impl Row {
    pub(super) const EMPTY: Self = Self([0; FANOUT]);
}

impl Leaf {
    pub(super) const EMPTY: Self = Self {
        start: [NONE; FANOUT],
        len: [0; FANOUT],
    };

    pub(super) fn get(&self, pos: usize) -> Extent {
        Extent {
            start: self.start[pos],
            len: self.len[pos],
        }
    }

    pub(super) fn set(&mut self, pos: usize, extent: Extent) {
        self.start[pos] = extent.start;
        self.len[pos] = extent.len;
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = (&[u32; BLOCK], &[u32; BLOCK])> {
        self.start.as_chunks().0.iter().zip(self.len.as_chunks().0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start[0] == NONE
    }

    pub(super) fn is_full(&self) -> bool {
        self.start[FANOUT - 1] != NONE
    }

    /// Makes room at `pos`; the last entry, a padding, falls out.
    pub(super) fn insert(&mut self, pos: usize, extent: Extent) {
        insert_in(&mut self.start, pos, extent.start);
        insert_in(&mut self.len, pos, extent.len);
    }

    pub(super) fn remove(&mut self, pos: usize) {
        remove_in(&mut self.start, pos, NONE);
        remove_in(&mut self.len, pos, 0);
    }

    pub(super) fn split_off(&mut self, at: usize) -> Self {
        Self {
            start: split_in(&mut self.start, at, NONE),
            len: split_in(&mut self.len, at, 0),
        }
    }
}

impl Inner {
    pub(super) const EMPTY: Self = Self {
        key: [NONE; FANOUT],
        child: [NONE; FANOUT],
    };

    pub(super) fn is_empty(&self) -> bool {
        self.key[0] == NONE
    }

    pub(super) fn is_full(&self) -> bool {
        self.key[FANOUT - 1] != NONE
    }

    pub(super) fn has(&self, slot: usize) -> bool {
        slot < FANOUT && self.key[slot] != NONE
    }
}

/// The first element that is `units` or more.
pub(super) fn first_at_least(row: &[u32; FANOUT], units: u32) -> Option<usize> {
    let mut blocks = row.as_chunks().0.iter().enumerate();
    blocks.find_map(|(block, values)| Some(block * BLOCK + first_in_block(values, units)?))
}

pub(super) fn first_in_block(values: &[u32; BLOCK], units: u32) -> Option<usize> {
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
pub(super) fn count_up_to(row: &[u32; FANOUT], limit: u32) -> usize {
    row.iter()
        .map(|&value| u32::from(value <= limit))
        .sum::<u32>() as usize
}

pub(super) fn max(values: &[u32]) -> u32 {
    values.iter().fold(0, |max, &value| max.max(value))
}

pub(super) fn insert_in(row: &mut [u32; FANOUT], pos: usize, value: u32) {
    row.copy_within(pos..FANOUT - 1, pos + 1);
    row[pos] = value;
}

pub(super) fn remove_in(row: &mut [u32; FANOUT], pos: usize, padding: u32) {
    row.copy_within(pos + 1.., pos);
    row[FANOUT - 1] = padding;
}

/// Moves the elements from `at` on into a new row.
pub(super) fn split_in(row: &mut [u32; FANOUT], at: usize, padding: u32) -> [u32; FANOUT] {
    let mut right = [padding; FANOUT];
    right[..FANOUT - at].copy_from_slice(&row[at..]);
    row[at..].fill(padding);
    right
}
