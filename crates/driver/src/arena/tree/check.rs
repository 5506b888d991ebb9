//! The tree checks itself, for tests.
//!
//! [`check`](ExtentTree::check) reads every node and computes again what the tree keeps up to date
//! change by change: keys, maxima of all classes, paddings, the counts, and the lists of released
//! nodes.

use super::node::NONE;
use super::{Extent, ExtentTree};

impl ExtentTree {
    /// Asserts that keys and maxima are exact, paddings clean, the books right and no node lost.
    pub(in crate::arena) fn check(&self) {
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

    /// Levels of nodes, the leaves included.
    pub(in crate::arena) fn levels(&self) -> usize {
        self.height + 1
    }

    /// Alignments above 1 whose maxima are kept.
    pub(in crate::arena) fn class_count(&self) -> usize {
        self.aligned.len()
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
#[derive(Default)]
struct Seen {
    extents: Vec<Extent>,
    leaves: usize,
    inners: usize,
}
