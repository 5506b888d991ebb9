//! Free ranges of some address space: first fit, merged on return. Plain numbers; the search is
//! linear in the number of holes.

use std::collections::BTreeMap;

/// What is free, as start → size. No two ranges touch.
#[derive(Debug)]
pub(crate) struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    /// All of `[start, start + size)` is free.
    pub(crate) fn new(start: u64, size: u64) -> Self {
        Self {
            free: BTreeMap::from([(start, size)]),
        }
    }

    /// Takes the lowest free range of `size` that starts at `from` or above it.
    pub(crate) fn take(&mut self, size: u64, from: u64) -> Option<u64> {
        // The hole that `from` lies in counts from there on.
        let (hole, start, hole_size) = self.free.iter().find_map(|(&hole, &hole_size)| {
            let start = hole.max(from);
            let left = (hole + hole_size).checked_sub(start)?;
            (left >= size).then_some((hole, start, hole_size))
        })?;
        let end = hole + hole_size;
        self.free.remove(&hole);
        if hole < start {
            self.free.insert(hole, start - hole);
        }
        if start + size < end {
            self.free.insert(start + size, end - start - size);
        }
        Some(start)
    }

    /// Gives a range back that [`take`](Self::take) returned.
    pub(crate) fn give(&mut self, start: u64, size: u64) {
        let (mut start, mut end) = (start, start + size);
        if let Some(above) = self.free.remove(&end) {
            end += above;
        }
        if let Some((&below, &below_size)) = self.free.range(..start).next_back()
            && below + below_size == start
        {
            start = below;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_range_that_fits_is_taken() {
        let mut extents = Extents::new(100, 100);
        assert_eq!(
            [10, 20, 10].map(|size| extents.take(size, 0)),
            [Some(100), Some(110), Some(130)]
        );
        extents.give(110, 20);
        assert_eq!(extents.take(21, 0), Some(140));
        assert_eq!(extents.take(20, 0), Some(110));
        assert_eq!(extents.take(40, 0), None);
    }

    #[test]
    fn freeing_the_middle_merges_both_neighbours() {
        let mut extents = Extents::new(0, 30);
        for _ in 0..3 {
            extents.take(10, 0).unwrap();
        }
        for start in [0, 20, 10] {
            extents.give(start, 10);
        }
        assert_eq!(extents.free, BTreeMap::from([(0, 30)]));
    }

    #[test]
    fn a_search_from_above_leaves_what_is_below() {
        let mut extents = Extents::new(0, 100);
        assert_eq!(extents.take(10, 40), Some(40));
        assert_eq!(extents.take(60, 40), None);
        assert_eq!(extents.take(40, 0), Some(0));
    }
}
