//! A stream of independent lookups, each of which finds something.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use super::BenchError;
use super::timing::{Op, Subject, Tally};

/// Looks keys up, one after the other and again from the first.
pub(super) struct Lookups<K, F> {
    look_up: F,
    keys: Arc<[K]>,
    next: usize,
    /// Lookups to a reading of the clock.
    batch: usize,
    /// What a lookup is counted as.
    op: Op,
}

impl<K, F> Lookups<K, F> {
    pub(super) fn of(keys: Arc<[K]>, batch: usize, look_up: F) -> Self {
        Self {
            look_up,
            next: 0,
            batch: batch.min(keys.len()),
            op: Op::Find,
            keys,
        }
    }

    /// The same, counted as another operation.
    pub(super) fn counted_as(self, op: Op) -> Self {
        Self { op, ..self }
    }
}

impl<K: Copy, T, F: Fn(K) -> Option<T>> Subject for Lookups<K, F> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        if self.next + self.batch > self.keys.len() {
            self.next = 0;
        }
        let keys = &self.keys[self.next..self.next + self.batch];
        self.next += self.batch;
        let start = Instant::now();
        let found = count_found(keys, &self.look_up);
        tally.note(self.op, start.elapsed(), keys.len());
        all_found(found, keys.len())
    }
}

/// How many of the keys are found. What is found is written to memory, as a caller would have it.
#[inline]
pub(super) fn count_found<K: Copy, T>(keys: &[K], look_up: impl Fn(K) -> Option<T>) -> usize {
    let is_found = |&&key: &&K| {
        let found = look_up(key);
        black_box(&found);
        found.is_some()
    };
    keys.iter().filter(is_found).count()
}

/// # Errors
/// [`BenchError::Missed`] unless as many were found as asked for.
pub(super) fn all_found(found: usize, asked: usize) -> Result<(), BenchError> {
    if found == asked {
        Ok(())
    } else {
        let missed = asked - found;
        Err(BenchError::Missed { missed, asked })
    }
}
