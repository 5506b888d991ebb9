//! What of an object has been written, and with which pattern.

use std::collections::BTreeMap;

use super::pattern::Pattern;

/// Extents that do not overlap, by their first byte: where they end, and their pattern.
#[derive(Debug, Default)]
pub(super) struct Written {
    extents: BTreeMap<u64, (u64, Pattern)>,
}

impl Written {
    /// Notes that `[start, end)` now holds the pattern, whatever it held before.
    pub(super) fn note(&mut self, start: u64, end: u64, pattern: Pattern) {
        self.forget(start, end);
        if start < end {
            self.extents.insert(start, (end, pattern));
        }
    }

    /// Notes that nobody knows what `[start, end)` holds.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let overlapping: Vec<(u64, u64, Pattern)> = self.within(start, end).collect();
        for (old_start, ..) in &overlapping {
            self.extents.remove(old_start);
        }
        for (old_start, old_end, pattern) in overlapping {
            if old_start < start {
                self.extents.insert(old_start, (start, pattern));
            }
            if end < old_end {
                self.extents.insert(end, (old_end, pattern));
            }
        }
    }

    /// The extents that overlap `[start, end)`, whole, by address.
    pub(super) fn within(
        &self,
        start: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, u64, Pattern)> + '_ {
        let before = self.extents.range(..start).next_back();
        before
            .into_iter()
            .chain(self.extents.range(start..end.max(start)))
            .map(|(&from, &(to, pattern))| (from, to, pattern))
            .filter(move |&(from, to, _)| from < end && start < to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_last_write_of_each_byte_is_known(
            writes in prop::collection::vec((0..60_u64, 0..30_u64, prop::option::of(0..5_u64)), 0..30)
        ) {
            let mut written = Written::default();
            let mut model: [Option<u64>; 100] = [None; 100];
            for (start, size, seed) in writes {
                let end = start + size;
                match seed {
                    Some(seed) => written.note(start, end, Pattern::seeded(seed)),
                    None => written.forget(start, end),
                }
                for byte in start..end {
                    model[usize::try_from(byte).unwrap()] = seed;
                }
            }
            for (byte, seed) in (0..).zip(model) {
                let found: Vec<_> = written.within(byte, byte + 1).collect();
                prop_assert!(found.len() <= 1);
                prop_assert_eq!(found.first().map(|extent| extent.2), seed.map(Pattern::seeded));
            }
        }
    }
}
