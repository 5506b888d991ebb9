//! What the contexts of a ring were last asked to do.
//!
//! A trace shows five numbers for each context, and the reference keeps them after a copy has
//! ended. The driver shows no such history, so these books follow the requests that reach a
//! context, and the batches that the driver says it staged.

use std::collections::VecDeque;

use super::super::value::Value;

/// Contexts of a ring.
pub const CONTEXTS: usize = 3;

/// The books of one ring.
#[derive(Debug, Clone, Default)]
pub struct RingBooks {
    /// By context: 0 synchronous, 1 and 2 asynchronous.
    contexts: [ContextBooks; CONTEXTS],
    /// Contexts in which the operation under way has staged.
    staged: [bool; CONTEXTS],
}

/// What one context was asked to do.
#[derive(Debug, Clone, Default)]
struct ContextBooks {
    /// Descriptors of the last batch, marker included.
    pending: u32,
    /// Bytes of the request before the last batch.
    offset: u64,
    /// Bytes of the request from the last batch on.
    remaining: u64,
    /// Bytes of the last batch.
    outstanding: u64,
    /// Whether the request has staged a batch.
    has_staged: bool,
    /// Whether that batch was lost: the next one is the same again.
    is_lost: bool,
    /// Requests that follow on the same context, by size.
    next: VecDeque<u64>,
}

impl ContextBooks {
    fn enter(&mut self, size_bytes: u64) {
        self.pending = 0;
        self.offset = 0;
        self.remaining = size_bytes;
        self.has_staged = false;
        self.is_lost = false;
    }

    fn staged(&mut self, pairs: u32, size_bytes: u64) {
        let is_again = std::mem::take(&mut self.is_lost);
        if self.has_staged && !is_again {
            if self.remaining == self.outstanding
                && let Some(next) = self.next.pop_front()
            {
                self.enter(next);
            } else {
                self.offset += self.outstanding;
                self.remaining = self.remaining.saturating_sub(self.outstanding);
            }
        }
        self.has_staged = true;
        self.pending = pairs;
        self.outstanding = size_bytes;
    }
}

impl RingBooks {
    /// An operation begins.
    pub fn begin(&mut self) {
        self.staged = [false; CONTEXTS];
    }

    /// Requests of these sizes reach a context, one after the other.
    pub fn enter(&mut self, context: usize, sizes: &[u64]) {
        if let (Some(books), Some((first, next))) =
            (self.contexts.get_mut(context), sizes.split_first())
        {
            books.next = next.iter().copied().collect();
            books.enter(*first);
        }
    }

    /// The driver staged a batch.
    pub fn staged(&mut self, context: usize, pairs: u32, size_bytes: u64) {
        if let Some(books) = self.contexts.get_mut(context) {
            if books.is_lost {
                self.staged = [false; CONTEXTS];
            } else {
                self.staged[context] = true;
            }
            books.staged(pairs, size_bytes);
        }
    }

    /// The batch of a context was lost. If it is staged again, it is waited for as if nothing stood
    /// behind it.
    pub fn lost(&mut self, context: usize) {
        if let Some(books) = self.contexts.get_mut(context) {
            books.is_lost = true;
        }
    }

    /// Descriptors of a context's last batch.
    #[must_use]
    pub fn pending(&self, context: usize) -> u32 {
        self.contexts.get(context).map_or(0, |books| books.pending)
    }

    /// Whether the operation under way has staged in another context.
    #[must_use]
    pub fn has_staged_elsewhere(&self, context: usize) -> bool {
        (0..)
            .zip(self.staged)
            .any(|(other, staged)| staged && other != context)
    }

    /// The request in a context was for no bytes, whatever its batch moved.
    pub fn claim_nothing(&mut self, context: usize) {
        if let Some(books) = self.contexts.get_mut(context) {
            (books.remaining, books.outstanding) = (0, 0);
        }
    }

    /// The numbers of each context, behind whether it is in use.
    #[must_use]
    pub fn tell(&self, in_use: [bool; CONTEXTS]) -> Value<'static> {
        let told = self.contexts.iter().zip(in_use).map(|(books, in_use)| {
            Value::List(vec![
                u32::from(in_use).into(),
                books.pending.into(),
                books.offset.into(),
                books.remaining.into(),
                books.outstanding.into(),
            ])
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(books: &RingBooks) -> String {
        books.tell([false; CONTEXTS]).to_string()
    }

    #[test]
    fn batches_of_one_request_add_up() {
        let mut books = RingBooks::default();
        books.enter(0, &[101]);
        books.staged(0, 2033, 100);
        books.staged(0, 2, 1);
        assert_eq!(told(&books), "[[0,2,100,1,1],[0,0,0,0,0],[0,0,0,0,0]]");
    }

    #[test]
    fn a_second_request_begins_at_its_start() {
        let mut books = RingBooks::default();
        books.enter(0, &[65_536, 10]);
        books.staged(0, 2, 65_536);
        assert_eq!(
            told(&books),
            "[[0,2,0,65536,65536],[0,0,0,0,0],[0,0,0,0,0]]"
        );
        books.staged(0, 2, 10);
        assert_eq!(told(&books), "[[0,2,0,10,10],[0,0,0,0,0],[0,0,0,0,0]]");
    }

    #[test]
    fn a_batch_that_is_staged_again_counts_once_and_stands_alone() {
        let mut books = RingBooks::default();
        books.enter(0, &[101]);
        books.staged(0, 2033, 100);
        assert!(books.has_staged_elsewhere(1));
        books.lost(0);
        books.staged(0, 2033, 100);
        assert_eq!(told(&books), "[[0,2033,0,101,100],[0,0,0,0,0],[0,0,0,0,0]]");
        assert!(!books.has_staged_elsewhere(1));
        books.staged(0, 2, 1);
        assert_eq!(told(&books), "[[0,2,100,1,1],[0,0,0,0,0],[0,0,0,0,0]]");
    }

    #[test]
    fn a_request_that_staged_nothing_leaves_the_last_batch() {
        let mut books = RingBooks::default();
        books.enter(1, &[4096]);
        books.staged(1, 2, 4096);
        books.enter(1, &[5]);
        assert_eq!(told(&books), "[[0,0,0,0,0],[0,0,0,5,4096],[0,0,0,0,0]]");
    }
}
