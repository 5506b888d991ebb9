//! A list of sizes under a head line, while it is read.
//!
//! Its lines carry no thread. Where two lists are open, an item goes to the latest that can take
//! it: one that does not have it, has not gone past it, and whose total has room for it.

use super::category::{self, Name};
use super::report::Row;
use super::size::{Size, TooLarge};

// LIMIT: a list has twelve categories; a stranger's log may have anything.
const CATEGORIES_MAX: usize = 32;

/// A list that is open.
#[derive(Debug)]
pub(super) struct List {
    /// The row that it fills, in its report.
    pub(super) row: usize,
    /// When it was opened: a later one has a higher number.
    pub(super) opened: u64,
    /// Whether its items come in the known order.
    in_order: bool,
    last_position: Option<usize>,
}

impl List {
    pub(super) fn new(row: usize, opened: u64, in_order: bool) -> Self {
        Self {
            row,
            opened,
            in_order,
            last_position: None,
        }
    }

    /// Whether the item can be the next of this list.
    pub(super) fn accepts(
        &self,
        row: &Row,
        name: Option<&Name>,
        size: &Result<Size, TooLarge>,
    ) -> bool {
        let Some(name) = name else {
            return row.total.is_none() && row.categories.0.is_empty();
        };
        if row.categories.0.len() >= CATEGORIES_MAX || row.categories.has(name) {
            return false;
        }
        let position = category::position(name);
        if self.in_order && position.is_some() && position < self.last_position {
            return false;
        }
        let Ok(size) = size else { return true };
        row.total.as_ref().is_none_or(|total| {
            let rounding =
                total.rounding_bytes() + row.categories.rounding_bytes() + size.rounding_bytes();
            row.categories.sum_bytes().saturating_add(size.bytes)
                <= total.bytes.saturating_add(rounding)
        })
    }

    /// Takes an item.
    pub(super) fn add(&mut self, row: &mut Row, name: Option<Name>, size: Option<Size>) {
        let Some(name) = name else {
            row.total = size;
            return;
        };
        self.last_position = category::position(&name).or(self.last_position);
        row.categories.0.push((name, size));
    }
}
