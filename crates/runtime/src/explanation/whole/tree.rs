//! Holes by address, of which the lowest with room is found without a look at all of them.
//!
//! ```text
//!   largest   [1]              9
//!             [2] [3]      7       9
//!             [4] … [7]  3   7   0   9    bytes of the holes, by address
//! ```
//!
//! Each number is the larger of the two below it, so that the way down to the lowest hole with room
//! takes as many steps as there are rows, and so does a hole that shrinks. One that is used up stays
//! in its place, without bytes. To cut one in two moves those behind it and builds the rows anew:
//! only aligned blocks do that, and of those that a reservation needs, a bank has room for few.

/// From its first byte to behind its last.
pub(super) type Hole = (u64, u64);

/// Holes that blocks are taken from.
pub(super) struct HoleTree {
    holes: Vec<Hole>,
    /// How many of the numbers in `largest` come before those of the holes: a power of two.
    inner: usize,
    largest: Vec<u64>,
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl HoleTree {
    /// Of holes by rising address, none of which touches another.
    pub(super) fn new(holes: Vec<Hole>) -> Self {
        let mut tree = Self {
            holes,
            inner: 0,
            largest: Vec::new(),
            #[cfg(test)]
            looks: std::cell::Cell::default(),
        };
        tree.build();
        tree
    }

    fn build(&mut self) {
        self.inner = self.holes.len().next_power_of_two();
        self.largest.clear();
        self.largest.resize(2 * self.inner, 0);
        let leaves = self.largest.iter_mut().skip(self.inner);
        for (leaf, hole) in leaves.zip(&self.holes) {
            *leaf = size_bytes(*hole);
        }
        for node in (1..self.inner).rev() {
            self.largest[node] = self.larger_below(node);
        }
    }

    fn larger_below(&self, node: usize) -> u64 {
        self.largest[2 * node].max(self.largest[2 * node + 1])
    }

    /// How many there are, those without bytes included.
    pub(super) fn len(&self) -> usize {
        self.holes.len()
    }

    /// One by its place among them.
    pub(super) fn hole(&self, number: usize) -> Option<Hole> {
        self.holes.get(number).copied()
    }

    /// All that have bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = Hole> {
        let holes = self.holes.iter().copied();
        holes.filter(|hole| size_bytes(*hole) > 0)
    }

    /// The place of the lowest hole with so many bytes, at least one, from the place `from` on.
    pub(super) fn lowest(&self, from: usize, needed_bytes: u64) -> Option<usize> {
        if from >= self.holes.len() {
            return None;
        }
        let mut node = self.inner + from;
        loop {
            // Up as far as nothing before it comes in.
            node >>= node.trailing_zeros();
            if self.has(node, needed_bytes) {
                break;
            }
            // To the right of everything below it.
            node >>= node.trailing_ones();
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.inner {
            node *= 2;
            node += usize::from(!self.has(node, needed_bytes));
        }
        Some(node - self.inner)
    }

    fn has(&self, node: usize, needed_bytes: u64) -> bool {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        self.largest[node] >= needed_bytes
    }

    /// Takes what lies between two addresses out of the hole at a place.
    pub(super) fn take(&mut self, number: usize, start: u64, end: u64) {
        let Some(hole) = self.holes.get_mut(number) else {
            return;
        };
        let (before, behind) = ((hole.0, start), (end, hole.1));
        match (size_bytes(before), size_bytes(behind)) {
            (0, _) => *hole = behind,
            (_, 0) => *hole = before,
            _ => {
                *hole = before;
                self.holes.insert(number + 1, behind);
                return self.build();
            }
        }
        let mut node = self.inner + number;
        self.largest[node] = size_bytes(*hole);
        while node > 1 {
            node /= 2;
            let larger = self.larger_below(node);
            if std::mem::replace(&mut self.largest[node], larger) == larger {
                break;
            }
        }
    }
}

fn size_bytes((start, end): Hole) -> u64 {
    end.saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lowest_hole_costs_two_looks_a_row() {
        // Sizes rise, so that each of these goes to another hole, far behind those that are too small.
        let holes = (0..30_000_u64).map(|number| (number << 20, (number << 20) + number + 1));
        let mut tree = HoleTree::new(holes.collect());
        for size_bytes in 10_000..30_000 {
            let number = tree.lowest(0, size_bytes).unwrap();
            let (start, _) = tree.hole(number).unwrap();
            tree.take(number, start, start + size_bytes);
        }
        assert_eq!(tree.lowest(0, 10_000), Some(29_999));
        // 30,000 holes are 15 rows above them.
        assert!(tree.looks.get() <= 20_001 * 2 * 16, "{:?}", tree.looks);
    }

    proptest! {
        #[test]
        fn the_lowest_hole_is_that_which_a_look_at_all_finds(
            sizes in proptest::collection::vec((1..9_u64, 1..4_u64), 0..20),
            takes in proptest::collection::vec((0..20_usize, 1..9_u64, 0..3_u64), 0..30),
        ) {
            let mut end = 0;
            let holes = sizes.into_iter().map(|(size_bytes, beyond)| {
                let start = end + beyond;
                end = start + size_bytes;
                (start, end)
            });
            let mut holes: Vec<Hole> = holes.collect();
            let mut tree = HoleTree::new(holes.clone());
            for (from, needed_bytes, skipped_bytes) in takes {
                let found = tree.lowest(from, needed_bytes).and_then(|number| tree.hole(number));
                let from = tree.hole(from).map_or(u64::MAX, |(start, _)| start);
                let mut all = holes.iter().enumerate();
                let lowest = all.find(|(_, hole)| hole.0 >= from && size_bytes(**hole) >= needed_bytes);
                prop_assert_eq!(found, lowest.map(|(_, hole)| *hole));
                let Some((at, &(start, end))) = lowest else {
                    continue;
                };
                // From its start on, or from somewhere in it.
                let taken_at = start + skipped_bytes.min(end - start - needed_bytes);
                let behind = taken_at + needed_bytes;
                let number = tree.lowest(0, needed_bytes);
                let mut numbers = (0..tree.len()).filter(|&number| tree.hole(number) == Some((start, end)));
                prop_assert!(number.is_some());
                tree.take(numbers.next().unwrap(), taken_at, behind);
                let left = [(start, taken_at), (behind, end)];
                holes.splice(at..=at, left.into_iter().filter(|hole| size_bytes(*hole) > 0));
                prop_assert_eq!(tree.iter().collect::<Vec<_>>(), &holes[..]);
            }
        }
    }
}
