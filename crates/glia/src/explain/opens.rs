//! The reports that are open, and which of them a line is for.
//!
//! A job that dies may have hundreds of reports open, and most lines are for the one that was
//! written last. So the list and the table that were begun last are known by their place; only
//! where they cannot be meant, all are asked.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use super::open::Open;
use super::report::Row;
use super::source::Source;

// LIMIT: more lists than these do not alternate.
const UNFINISHED_MAX: usize = 8;

/// The reports that are open, in the order in which they were begun.
#[derive(Debug, Default)]
pub(super) struct Opens {
    all: VecDeque<Open>,
    /// Whether any has a list.
    has_lists: bool,
    /// Whether any has room for names of models.
    takes_names: bool,
    /// Lists of which the items do not come to the total yet, the last few.
    unfinished: Vec<u64>,
    /// The list that was begun last: its tick, and where its report was then.
    list: (u64, usize),
    /// The table that was written last.
    table: (u64, usize),
}

impl Index<usize> for Opens {
    type Output = Open;

    fn index(&self, index: usize) -> &Open {
        &self.all[index]
    }
}

impl IndexMut<usize> for Opens {
    fn index_mut(&mut self, index: usize) -> &mut Open {
        &mut self.all[index]
    }
}

impl Opens {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn has_lists(&self) -> bool {
        self.has_lists
    }

    pub(super) fn takes_names(&self) -> bool {
        self.takes_names
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Open> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Open> {
        self.all.iter_mut()
    }

    /// Takes one in, and says where it is.
    pub(super) fn push(&mut self, open: Open) -> usize {
        self.all.push_back(open);
        self.all.len() - 1
    }

    pub(super) fn pop_oldest(&mut self) -> Option<Open> {
        let oldest = self.all.pop_front();
        self.removed();
        oldest
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.all.remove(index);
        self.removed();
    }

    pub(super) fn retain(&mut self, stays: impl FnMut(&Open) -> bool) {
        self.all.retain(stays);
        self.removed();
    }

    /// Takes those out that are to go, in order.
    pub(super) fn take(&mut self, goes: impl Fn(&Open) -> bool) -> VecDeque<Open> {
        if !self.all.iter().any(&goes) {
            return VecDeque::new();
        }
        let all = std::mem::take(&mut self.all);
        let (gone, stay) = all.into_iter().partition(goes);
        self.all = stay;
        self.removed();
        gone
    }

    fn removed(&mut self) {
        self.has_lists = self.all.iter().any(|open| open.list.is_some());
        self.takes_names = self.all.iter().any(|open| open.takes_names);
    }

    /// Begins a list in a report; a later one has a higher tick.
    pub(super) fn begin_list(&mut self, index: usize, row: Row, tick: u64, in_order: bool) {
        self.all[index].begin_list(row, tick, in_order);
        self.list = (tick, index);
        self.has_lists = true;
        if self.unfinished.len() >= UNFINISHED_MAX {
            self.unfinished.remove(0);
        }
        self.unfinished.push(tick);
    }

    /// Notes that a list is complete.
    pub(super) fn finish_list(&mut self, tick: u64) {
        self.unfinished.retain(|&unfinished| unfinished != tick);
    }

    /// Whether there are several that are not.
    pub(super) fn has_unfinished_lists(&self) -> bool {
        self.unfinished.len() > 1
    }

    pub(super) fn is_unfinished(&self, tick: u64) -> bool {
        self.unfinished.contains(&tick)
    }

    /// Notes that the table of a report is written.
    pub(super) fn touch_table(&mut self, index: usize, tick: u64) {
        if let Some(table) = &mut self.all[index].table {
            table.touched = tick;
            self.table = (tick, index);
        }
    }

    /// Notes that names of models come for a report.
    pub(super) fn begin_names(&mut self, index: usize) {
        self.all[index].takes_names = true;
        self.takes_names = true;
    }

    /// The report last begun of those that fit; one with the same words before its lines, if there
    /// is one.
    pub(super) fn latest(&self, source: Source, fits: impl Fn(&Open) -> bool) -> Option<usize> {
        let mut other = None;
        for (index, open) in self.all.iter().enumerate().rev() {
            if open.source != source && other.is_some() || !fits(open) {
                continue;
            }
            if open.source == source {
                return Some(index);
            }
            other = Some(index);
        }
        other
    }

    /// The report of which the table was written last of those that fit; one with the same words
    /// before its lines, if there is one.
    pub(super) fn latest_table(
        &self,
        source: Source,
        fits: impl Fn(&Open) -> bool,
    ) -> Option<usize> {
        let touched = |open: &Open| open.table.as_ref().map(|table| table.touched);
        self.last_of(source, self.table, touched, fits)
    }

    /// The report of which the list was begun last of those that fit; one with the same words before
    /// its lines, if there is one.
    pub(super) fn latest_list(
        &self,
        source: Source,
        fits: impl Fn(&Open) -> bool,
    ) -> Option<usize> {
        let opened = |open: &Open| open.list.as_ref().map(|list| list.opened);
        self.last_of(source, self.list, opened, fits)
    }

    /// The one with the highest tick of those that fit; `last` has the highest of all, if it is
    /// still where it was.
    fn last_of(
        &self,
        source: Source,
        (tick, index): (u64, usize),
        ticks: impl Fn(&Open) -> Option<u64>,
        fits: impl Fn(&Open) -> bool,
    ) -> Option<usize> {
        let is_it = |open: &&Open| open.source == source && ticks(open) == Some(tick) && fits(open);
        if self.all.get(index).filter(is_it).is_some() {
            return Some(index);
        }
        let mut best = None;
        for (index, open) in self.all.iter().enumerate() {
            let Some(tick) = ticks(open) else { continue };
            let key = Some((open.source == source, tick, index));
            if key > best && fits(open) {
                best = key;
            }
        }
        best.map(|(.., index)| index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::report::{Family, Kind, Report, Scope};
    use super::*;

    fn open(line: u64, source: Source) -> Open {
        Open::new(Report::new("x", line, Family::B, Kind::Usage), source)
    }

    proptest! {
        /// What is known by its place is what asking all of them finds.
        #[test]
        fn the_latest_list_is_the_one_with_the_highest_tick(
            steps in proptest::collection::vec((0..6_u8, 0..4_usize, 0..3_u8), 0..60),
        ) {
            let sources = [b"".as_slice(), b"a", b"b"].map(Source::of);
            let mut opens = Opens::default();
            for (tick, (step, at, source)) in (1..).zip(steps) {
                let source = sources[usize::from(source)];
                match step {
                    0 | 1 => drop(opens.push(open(tick, source))),
                    2 => drop(opens.pop_oldest()),
                    3 if at < opens.len() => opens.remove(at),
                    4 if at < opens.len() => {
                        opens.begin_list(at, Row::new(Scope::Core, tick), tick, true);
                    }
                    _ => {}
                }
                let fits = |open: &Open| !open.report.line.is_multiple_of(3);
                let naive = opens.iter().enumerate().filter(|(_, open)| fits(open));
                let naive = naive.filter_map(|(index, open)| {
                    Some((open.source == source, open.list.as_ref()?.opened, index))
                });
                let naive = naive.max().map(|(.., index)| index);
                prop_assert_eq!(opens.latest_list(source, fits), naive);
                let begun = opens.iter().enumerate().filter(|(_, open)| fits(open));
                let begun = begun.map(|(index, open)| (open.source == source, index));
                prop_assert_eq!(
                    opens.latest(source, fits),
                    begun.max().map(|(_, index)| index)
                );
                let has_lists = opens.iter().any(|open| open.list.is_some());
                prop_assert_eq!(opens.has_lists(), has_lists);
            }
        }
    }
}
