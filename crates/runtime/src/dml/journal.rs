//! The journal of a device: what has happened and is not booked yet.
//!
//! A program allocates and frees far more often than anybody looks. So what happens is put down here, in
//! 32 bytes, and booked in the ledger and in the ring 64 entries at a time, or before somebody looks. The
//! memory of old events is cold, and is then waited for once; and what is done in one loop is done while
//! the processor would have waited at the lock.

use super::events::{Action, Kept};
use super::packed::{Odd, Packed};

/// Entries that are booked at a time.
pub(super) const ENTRIES: usize = 64;

/// What is not booked yet, oldest first.
#[derive(Debug)]
pub(super) struct Journal {
    entries: Vec<Kept>,
    /// Of the entries that have some of it.
    odd: Vec<Odd>,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::with_capacity(ENTRIES),
            odd: Vec::new(),
        }
    }

    /// Puts down what happened to an allocation, whose label has been counted. True if all that is here
    /// is to be booked now.
    #[inline]
    pub(super) fn note(&mut self, action: Action, packed: Packed, odd: Option<Odd>) -> bool {
        if let Some(odd) = odd {
            self.odd.push(odd);
        }
        self.entries.push(Kept::new(action, packed));
        self.entries.len() >= ENTRIES
    }

    /// The entries, to be booked, and what there was no room for in them.
    pub(super) fn entries(&mut self) -> (&mut [Kept], &[Odd]) {
        (&mut self.entries, &self.odd)
    }

    /// Forgets what has been booked.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.odd.clear();
    }
}
