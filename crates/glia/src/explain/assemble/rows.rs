//! Items of lists, rows of tables and names of models: lines that do not say whose they are.
//!
//! A list is known by what it can take, a table by its device and its cores, and where that leaves
//! a choice, the latest is meant.

use memchr::memchr_iter;

use super::super::category::Name;
use super::super::list::is_complete;
use super::super::open::{Open, ROWS_MAX};
use super::super::report::{Family, Kind, Row, Scope};
use super::super::size::Size;
use super::super::source::Source;
use super::super::table::{Cell, Heading};
use super::super::token::Label;
use super::Assembler;

/// The last two rows, by the ticks at which their tables were touched.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: Option<(u64, Level)>,
    before: Option<(u64, Level)>,
    /// Whether the last row was of another table than the one before it, and the next will be.
    alternates: bool,
}

type Level = std::mem::Discriminant<Label>;

impl Turns {
    /// A row of a table that was touched at `before`, and is now.
    fn add(&mut self, before: u64, now: u64, label: Label) {
        self.alternates = self.expected() == Some(before);
        self.before = self.last;
        self.last = Some((now, std::mem::discriminant(&label)));
    }

    /// When the table was touched that has the next row: if two alternate, or have just written
    /// the same row.
    fn expected(&self) -> Option<u64> {
        let ((_, last), (tick, before)) = (self.last?, self.before?);
        (self.alternates || last == before).then_some(tick)
    }
}

impl Assembler<'_> {
    pub(super) fn table_head(&mut self) {
        let thread = self.thread;
        let fits = |open: &Open| open.thread == thread && open.may_have_table();
        let index = self
            .latest(fits)
            .unwrap_or_else(|| self.push(self.report(Family::C, Kind::Usage)));
        self.tick += 1;
        self.open[index].touched = self.line;
        self.open[index].table = Some(Box::default());
        self.open.touch_table(index, self.tick);
    }

    /// The list that an item goes to: the latest of which it is the next one, else the latest that
    /// has room for it.
    fn list_of(&self, name: Option<&Name>, cell: &Cell) -> Option<usize> {
        // A total at the end of a list stands close to its items.
        const NEAR_LINES: u64 = 4;
        let accepts = |open: &Open| {
            let list = open.list_and_row();
            list.is_some_and(|(list, row)| list.accepts(row, name, cell))
        };
        let may_have = |open: &Open| {
            let is_near = name.is_some() || open.touched + NEAR_LINES >= self.line;
            let list = open.list_and_row();
            is_near && list.is_some_and(|(list, row)| list.may_have(row, name, cell))
        };
        let next = self.open.latest_list(self.source, accepts);
        next.or_else(|| self.open.latest_list(self.source, may_have))
    }

    pub(super) fn item(&mut self, name: Option<Name>, cell: Cell) {
        let line = self.line;
        let index = match (self.list_of(name.as_ref(), &cell), &name) {
            (Some(index), _) => index,
            // Such words may stand anywhere.
            (None, _) if matches!(cell, Cell::Absent | Cell::Unreadable(_)) => return,
            (None, None) => {
                // A list of which the beginning is lost; one that came to nothing makes room.
                self.open.retain(|open| {
                    !open.is_anonymous
                        || open
                            .report
                            .rows
                            .iter()
                            .any(|row| !row.categories.0.is_empty())
                });
                let index = self.push(self.report(Family::B, Kind::Usage));
                self.open[index].is_anonymous = true;
                self.begin_list(index, Row::new(Scope::Core, line), true);
                index
            }
            (None, Some(name)) => {
                let lists = self.open.iter_mut().filter(|open| open.list.is_some());
                let latest = lists.max_by_key(|open| open.list.as_ref().map(|list| list.opened));
                if let Some(open) = latest {
                    let text = match (cell, &mut open.list) {
                        (Cell::Size(size), Some(list)) => {
                            if list.leave(line, name.clone(), size) {
                                return;
                            }
                            size.text.to_string()
                        }
                        (Cell::TooLarge(size), _) => size.text,
                        _ => return,
                    };
                    open.unread(line, format!("{name} {text} fits no list that is open"));
                }
                return;
            }
        };
        self.note_tangle(index, name.as_ref());
        let open = &mut self.open[index];
        open.touched = line;
        let (size, what) = cell.told(name.as_deref().unwrap_or("total"));
        if let Some(what) = what {
            open.unread(line, what);
        }
        if let Some(list) = &mut open.list
            && let Some(row) = open.report.rows.get_mut(list.row)
        {
            list.add(row, line, name, size);
            if is_complete(row) {
                let opened = list.opened;
                self.open.finish_list(opened);
            }
        }
    }

    /// A row of a table: the table is known by its device, its cores, or by being the latest.
    pub(super) fn row(&mut self, label: Label, text: &[u8]) {
        let index = match label {
            Label::Device(device) | Label::Hbm(device, _) => self.table_of_device(device),
            Label::Core(core) => self
                .turn(|open| open.wants_core(core))
                .or_else(|| self.latest_table(|open| open.wants_core(core)))
                .or_else(|| self.latest_table(|_| true)),
            Label::Neff(neff) => self
                .turn(|open| open.wants_neff(neff))
                .or_else(|| self.latest_table(|open| open.wants_neff(neff)))
                .or_else(|| self.latest_table(|_| true)),
        };
        let index = index.unwrap_or_else(|| {
            let index = self.push(self.report(Family::C, Kind::Usage));
            self.open[index].table = Some(Box::default());
            index
        });
        self.tick += 1;
        let before = self.open[index]
            .table
            .as_ref()
            .map_or(0, |table| table.touched);
        self.turns.add(before, self.tick, label);
        self.open.touch_table(index, self.tick);
        let line = self.line;
        let open = &mut self.open[index];
        open.touched = line;
        let Some(table) = &mut open.table else { return };
        if table.columns.is_none() {
            if table.heading.is_fresh() {
                self.heading = std::mem::take(&mut table.heading);
            }
            // Without a heading of its own, the table is taken to be like the last one.
            table.columns = self.heading.columns();
            self.heading.finish();
        }
        let finished = table.begin(label, line, text);
        open.take_row(finished);
        if let Label::Hbm(..) | Label::Device(_) = label {
            self.absorb_list(index, text);
        }
    }

    /// Where two tables are written line by line: the one whose turn it is, if it fits.
    fn turn(&self, fits: impl Fn(&Open) -> bool) -> Option<usize> {
        let tick = self.turns.expected()?;
        let is_it = |open: &Open| {
            open.table
                .as_ref()
                .is_some_and(|table| table.touched == tick)
        };
        let index = self.open.iter().position(is_it)?;
        let open = &self.open[index];
        (open.source == self.source && fits(open)).then_some(index)
    }

    /// The table that a row of a device belongs to: one that has not begun, of a report of that
    /// device; else the one that is written.
    pub(super) fn table_of_device(&mut self, device: u32) -> Option<usize> {
        let may_be = |open: &Open| open.report.device.is_none_or(|of| of == device);
        let awaits = |open: &Open| open.table.as_ref().is_some_and(|table| !table.is_begun);
        let certain = |open: &Open| awaits(open) && open.report.device == Some(device);
        if let Some(index) = self.latest_table(certain) {
            return Some(index);
        }
        if let Some(index) = self.latest_table(|open| awaits(open) && may_be(open)) {
            return Some(index);
        }
        if self.heading.is_fresh() {
            // The line above the table is missing.
            let lacks = |open: &Open| open.may_have_table() && open.report.device == Some(device);
            let index = self.latest(lacks)?;
            self.open[index].table = Some(Box::default());
            return Some(index);
        }
        self.latest_table(|open| {
            let table = open.table.as_ref();
            table.is_some_and(|table| table.device == Some(device))
        })
    }

    /// A list for the whole HBM, printed above its table, says nothing that the table does not.
    pub(super) fn absorb_list(&mut self, index: usize, text: &[u8]) {
        let total = Size::parse(text.trim_ascii_start()).map(|(size, _)| size);
        let Some(total) = total else { return };
        let same = |open: &Open| {
            open.is_anonymous
                && open
                    .report
                    .rows
                    .iter()
                    .any(|row| row.total.as_ref() == Some(&total))
        };
        let Some(list) = self.latest(same).filter(|&list| list != index) else {
            return;
        };
        let line = self.open[list].report.line;
        let open = &mut self.open[index];
        if !open.has_failure {
            open.report.line = line;
            open.opened = open.opened.min(line);
        }
        self.open.remove(list);
        self.is_settled = false;
    }

    /// A line of a heading, for the table that waits for one; the thread's own, if it has one.
    pub(super) fn heading(&mut self, text: &[u8]) -> bool {
        if !Heading::may_take(text) {
            return false;
        }
        let thread = self.thread;
        let awaits = |open: &Open| open.table.as_ref().is_some_and(|table| !table.is_begun);
        let lacks = |open: &Open| {
            let table = open.table.as_ref();
            let is_near = open.source == self.source;
            is_near && awaits(open) && table.is_some_and(|table| table.heading.lacks(text))
        };
        let own = |open: &Open| open.thread == thread && lacks(open);
        let index = self
            .latest_table(own)
            .or_else(|| self.latest_table(lacks))
            .or_else(|| self.latest_table(awaits));
        match index.and_then(|index| self.open[index].table.as_mut()) {
            Some(table) => table.heading.add(text),
            None => self.heading.add(text),
        }
    }

    /// `1001: "name"`.
    pub(super) fn model_name(&mut self, text: &[u8]) -> bool {
        const NAME_BYTES_MAX: usize = 1024;
        let found = memchr_iter(b'"', text).find_map(|quote| {
            let (lead, id) = id_before(&text[..quote])?;
            Some((quote, lead, id))
        });
        let Some((quote, lead, id)) = found else {
            return false;
        };
        self.source = Source::of(lead);
        let name = &text[quote + 1..];
        let end = name.iter().rposition(|&byte| byte == b'"');
        let name = name[..end.unwrap_or(name.len()).min(NAME_BYTES_MAX)].trim_ascii();
        let name = String::from_utf8_lossy(name.strip_suffix(b"\\").unwrap_or(name)).into_owned();
        let takes = |open: &Open| {
            open.takes_names
                && !open.report.neffs.contains_key(&id)
                && open.held_rows() < ROWS_MAX * 2
        };
        let has_row =
            |open: &Open| takes(open) && open.report.rows.iter().any(|row| row.neff == Some(id));
        // The last row of a table is closed by the first name below it.
        for open in self.open.iter_mut().filter(|open| open.takes_names) {
            let finished = open.table.as_mut().and_then(|table| table.finish());
            open.take_row(finished);
        }
        let line = self.line;
        let index = self.latest(has_row).or_else(|| self.latest(takes));
        if let Some(open) = index.map(|index| &mut self.open[index]) {
            if end.is_none() {
                open.unread(line, format!("the name of model {id} does not end"));
            }
            open.report.neffs.insert(id, name);
            open.touched = line;
        }
        true
    }
}

/// The `1001: ` at the end of `text`, and what is before it.
fn id_before(text: &[u8]) -> Option<(&[u8], u64)> {
    let before = text.trim_ascii_end();
    // In a string, the quotation mark has a backslash.
    let before = before.strip_suffix(b"\\").unwrap_or(before);
    let before = before.trim_ascii_end().strip_suffix(b":")?;
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let (lead, digits) = before.split_at(before.len() - digits.count());
    Some((lead, std::str::from_utf8(digits).ok()?.parse().ok()?))
}
