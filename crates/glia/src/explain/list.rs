//! A list of sizes under a head line, while it is read.
//!
//! Its lines carry no thread. Where two lists are open, an item goes to the latest that can take
//! it: one that does not have it, has not gone past it, and whose total has room for it. If there
//! is none, the order does not count: people sort lists.

use super::category::{self, Name};
use super::report::Row;
use super::size::Size;
use super::table::Cell;

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
    /// Whether the total has come, be it one that cannot be read.
    has_total: bool,
    /// The line of the total; 0 for one that stands in the head.
    pub(super) total_line: u64,
    /// The lines of the categories, in their order.
    pub(super) lines: Vec<u64>,
    /// Items that fit no list when they came.
    pub(super) left: Vec<(u64, Option<Name>, Size)>,
}

impl List {
    pub(super) fn new(row: usize, opened: u64, in_order: bool) -> Self {
        Self {
            row,
            opened,
            in_order,
            last_position: None,
            has_total: false,
            total_line: 0,
            lines: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Whether the item is the next of this list as the runtime orders it.
    pub(super) fn accepts(&self, row: &Row, name: Option<&Name>, cell: &Cell) -> bool {
        let Some(name) = name else {
            return self.lacks_total(row) && row.categories.0.is_empty();
        };
        let position = category::position(name);
        if self.in_order && position.is_some() && position < self.last_position {
            return false;
        }
        self.has_room(row, name, cell)
    }

    /// Whether the item can be of this list in any order.
    pub(super) fn may_have(&self, row: &Row, name: Option<&Name>, cell: &Cell) -> bool {
        if let Some(name) = name {
            return !is_complete(row) && self.has_room(row, name, cell);
        }
        let Cell::Size(size) = cell else {
            return false;
        };
        let rounding = size.rounding_bytes() + row.categories.rounding_bytes();
        let sum = row.categories.sum_bytes();
        self.lacks_total(row) && sum <= size.bytes.saturating_add(rounding)
    }

    /// Whether it has no such item.
    pub(super) fn lacks(&self, row: &Row, name: Option<&Name>) -> bool {
        name.map_or(self.lacks_total(row), |name| !row.categories.has(name))
    }

    /// Keeps an item that fits no list; false if there is no room.
    pub(super) fn leave(&mut self, line: u64, name: Name, size: Size) -> bool {
        let has_room = self.left.len() < CATEGORIES_MAX;
        if has_room {
            self.left.push((line, Some(name), size));
        }
        has_room
    }

    fn lacks_total(&self, row: &Row) -> bool {
        row.total.is_none() && !self.has_total
    }

    fn has_room(&self, row: &Row, name: &Name, cell: &Cell) -> bool {
        if row.categories.0.len() >= CATEGORIES_MAX || row.categories.has(name) {
            return false;
        }
        let Cell::Size(size) = cell else { return true };
        row.total.as_ref().is_none_or(|total| {
            let rounding =
                total.rounding_bytes() + row.categories.rounding_bytes() + size.rounding_bytes();
            row.categories.sum_bytes().saturating_add(size.bytes)
                <= total.bytes.saturating_add(rounding)
        })
    }

    /// Takes an item.
    pub(super) fn add(&mut self, row: &mut Row, line: u64, name: Option<Name>, size: Option<Size>) {
        let Some(name) = name else {
            row.total = size;
            self.has_total = true;
            self.total_line = line;
            return;
        };
        self.last_position = category::position(&name).or(self.last_position);
        row.categories.0.push((name, size));
        self.lines.push(line);
    }
}

/// Whether the items of a list come to its total.
pub(super) fn is_complete(row: &Row) -> bool {
    row.total.is_some() && !row.categories.0.is_empty() && row.unaccounted_bytes().is_none()
}
