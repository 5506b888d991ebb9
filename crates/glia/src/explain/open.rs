//! A report while lines still come for it.

use rustc_hash::FxHashMap;

use super::category::{self, Name};
use super::finding;
use super::list::List;
use super::message::Failure;
use super::report::{Family, Kind, Report, Row, Scope, Thread, Unread};
use super::size::{Size, printed};
use super::source::Source;
use super::table::{Cell, Finished, Table};

// LIMIT: hundreds of models on eight cores are some thousand rows.
pub(super) const ROWS_MAX: usize = 4096;
// LIMIT: one report of a damaged log need not list every damaged line.
const UNREAD_MAX: usize = 64;
const ALSO_LINES_MAX: usize = 64;

/// A report that is open.
#[derive(Debug)]
pub(super) struct Open {
    /// Hundreds may be looked through for a line: what is asked most lies together.
    pub(super) thread: Option<Thread>,
    pub(super) report: Box<Report>,
    /// The first line of it; none of its report is before it.
    pub(super) opened: u64,
    /// The last line of it so far.
    pub(super) touched: u64,
    /// Whether the line with usage and place has come.
    pub(super) has_failure: bool,
    pub(super) list: Option<List>,
    pub(super) table: Option<Box<Table>>,
    /// Whether names of models may follow.
    pub(super) takes_names: bool,
    /// What stands before its lines.
    pub(super) source: Source,
    /// A list without a line that says what it is of.
    pub(super) is_anonymous: bool,
    /// The size in its failure line, if that is damaged.
    damaged_size: Option<String>,
    /// Whether the end of its failure line is lost.
    is_cut: bool,
}

impl Open {
    pub(super) fn new(report: Report, source: Source) -> Self {
        Self {
            opened: report.line,
            touched: report.line,
            thread: report.thread,
            report: Box::new(report),
            has_failure: false,
            list: None,
            table: None,
            takes_names: false,
            source,
            is_anonymous: false,
            damaged_size: None,
            is_cut: false,
        }
    }

    /// How much memory it takes, in rows.
    pub(super) fn held_rows(&self) -> usize {
        self.report.rows.len() + self.report.neffs.len()
    }

    pub(super) fn unread(&mut self, line: u64, what: String) {
        if self.report.unread.len() < UNREAD_MAX {
            self.report.unread.push(Unread { line, what });
        }
    }

    pub(super) fn also(&mut self, line: u64) {
        also(&mut self.report, line);
    }

    /// Takes the line that names size, usage and place.
    pub(super) fn fail(&mut self, failure: Failure, line: u64) {
        let report = &mut self.report;
        let exact = report
            .asked_bytes
            .filter(|_| report.asked_exact == Some(true));
        let mut unread = Vec::new();
        match failure.asked {
            Cell::Size(asked) => {
                report.asked_exact = Some(exact.is_some());
                report.asked_bytes = exact.or(Some(asked.bytes));
                report.asked = Some(asked.text.to_string());
            }
            Cell::TooLarge(size) => {
                unread.push(format!("the size asked for: {size}"));
                report.asked = Some(size.text);
                report.asked_exact = Some(false);
            }
            Cell::Unreadable(text) => {
                report.asked_exact = Some(exact.is_some());
                unread.push(format!("the size asked for is {text:?}, which is no size"));
                self.damaged_size = Some(text);
            }
            Cell::Absent => {}
        }
        if failure.is_cut {
            unread.push("the failure line is cut behind its size".to_owned());
        } else if failure.device.is_none() || failure.core.is_none() {
            unread.push("the place in the failure line is damaged".to_owned());
        }
        self.is_cut = failure.is_cut;
        report.family = Family::B;
        if let Some((text, size)) = failure.alignment {
            if !failure.has_list {
                report.family = Family::E;
            }
            report.alignment = Some(text);
            match size {
                Some(Ok(size)) => report.alignment_bytes = Some(size.bytes),
                Some(Err(size)) => unread.push(format!("the alignment: {size}")),
                None => {}
            }
        }
        report.usage = failure.usage;
        report.device = failure.device;
        report.core = failure.core;
        report.line = line;
        self.has_failure = true;
        self.touched = line;
        for what in unread {
            self.unread(line, what);
        }
    }

    /// Whether it can be told in a table.
    pub(super) fn may_have_table(&self) -> bool {
        let is_newer = self.report.alignment.is_some() || self.is_cut;
        self.has_failure && self.table.is_none() && is_newer
    }

    /// Whether the size asked for can be these bytes.
    pub(super) fn may_have_asked(&self, bytes: u64) -> bool {
        let damaged = self.damaged_size.as_ref();
        damaged.is_none_or(|damaged| is_like(damaged, bytes)) && self.report.may_have_asked(bytes)
    }

    /// Gives its list other items, in the order of their lines; what cannot be read stays.
    pub(super) fn set_list(&mut self, items: Vec<(u64, Option<Name>, Size)>) {
        let Some(list) = &mut self.list else { return };
        let Some(row) = self.report.rows.get_mut(list.row) else {
            return;
        };
        let before = std::mem::take(&mut row.categories.0);
        let before = std::mem::take(&mut list.lines).into_iter().zip(before);
        let mut all: Vec<_> = before
            .filter(|(_, (_, size))| size.is_none())
            .map(|(line, (name, size))| (line, Some(name), size))
            .collect();
        all.extend(
            items
                .into_iter()
                .map(|(line, name, size)| (line, name, Some(size))),
        );
        all.sort_by_key(|(line, ..)| *line);
        for (line, name, size) in all {
            list.add(row, line, name, size);
        }
        list.left.clear();
    }

    /// Says what fits no list.
    fn say_left(&mut self) {
        let left = self
            .list
            .as_mut()
            .map(|list| std::mem::take(&mut list.left));
        for (line, name, size) in left.unwrap_or_default() {
            let name = name.as_deref().unwrap_or("total");
            self.unread(
                line,
                format!("{name} {} fits no list that is open", size.text),
            );
        }
    }

    /// Begins a list that fills a new row.
    pub(super) fn begin_list(&mut self, row: Row, opened: u64, in_order: bool) {
        self.say_left();
        if self.report.rows.len() < ROWS_MAX {
            self.list = Some(List::new(self.report.rows.len(), opened, in_order));
            self.report.rows.push(row);
        } else {
            self.list = None;
            self.unread(row.line, format!("more than {ROWS_MAX} rows"));
        }
    }

    /// Its list, and the row that the list fills.
    pub(super) fn list_and_row(&self) -> Option<(&List, &Row)> {
        let list = self.list.as_ref()?;
        Some((list, self.report.rows.get(list.row)?))
    }

    /// Whether its list has not had its first item.
    pub(super) fn wants_total(&self) -> bool {
        let row = self
            .list
            .as_ref()
            .and_then(|list| self.report.rows.get(list.row));
        row.is_some_and(|row| row.total.is_none() && row.categories.0.is_empty())
    }

    pub(super) fn take_row(&mut self, finished: Option<Finished>) {
        let Some(Finished { row, problems }) = finished else {
            return;
        };
        for problem in problems {
            self.unread(row.line, problem);
        }
        if self.report.rows.len() < ROWS_MAX {
            self.report.rows.push(row);
        } else if self.report.rows.len() == ROWS_MAX {
            self.unread(row.line, format!("more than {ROWS_MAX} rows"));
        }
    }

    /// Whether the table of this report has, or may have, a row for the core.
    pub(super) fn wants_core(&self, core: u32) -> bool {
        let cores = &self.report.hbm_cores;
        let rows = &self.report.rows;
        let is_written = self
            .table
            .as_ref()
            .is_some_and(|table| table.writes_core(core));
        !self.takes_names
            && !is_written
            && (cores.is_empty() || cores.contains(&core))
            && !rows
                .iter()
                .any(|row| row.scope == Scope::Core && row.core == Some(core))
    }

    /// Whether the table of this report may have a row for the model. One whose names are told is
    /// complete.
    pub(super) fn wants_neff(&self, neff: u64) -> bool {
        let rows = &self.report.rows;
        let is_written = self
            .table
            .as_ref()
            .is_some_and(|table| table.writes_neff(neff));
        !self.takes_names && !is_written && !rows.iter().any(|row| row.neff == Some(neff))
    }

    /// The report, complete as it will ever be; `None` if it came to nothing.
    pub(super) fn close(mut self) -> Option<Box<Report>> {
        let finished = self.table.as_mut().and_then(|table| table.finish());
        self.take_row(finished);
        self.say_left();
        let mut report = self.report;
        report
            .rows
            .retain(|row| row.total.is_some() || !row.categories.0.is_empty());
        if self.is_anonymous {
            let known = |row: &Row| {
                let mut names = row.categories.0.iter();
                row.total.is_some() && names.any(|(name, _)| category::position(name).is_some())
            };
            if !report.rows.iter().any(known) {
                return None;
            }
        }
        if self.table.is_some() && !report.rows.is_empty() {
            report.family = Family::C;
        }
        if report.kind == Kind::Usage && report.rows.is_empty() {
            return None;
        }
        name_models(&mut report);
        place(&mut report);
        finding::judge(&mut report);
        Some(report)
    }
}

/// Whether a damaged size can be what the runtime prints for these bytes: no digit is another.
pub(super) fn is_like(damaged: &str, bytes: u64) -> bool {
    let printed = printed(bytes);
    let same = |(found, wanted): (char, char)| {
        found == wanted || !(found.is_ascii_digit() || ".KMGB".contains(found))
    };
    damaged.chars().count() == printed.len() && damaged.chars().zip(printed.chars()).all(same)
}

pub(super) fn also(report: &mut Report, line: u64) {
    if report.also_lines.len() < ALSO_LINES_MAX {
        report.also_lines.push(line);
    }
}

fn name_models(report: &mut Report) {
    for row in &mut report.rows {
        if let Some(name) = row.neff.and_then(|neff| report.neffs.get(&neff)) {
            row.name = Some(name.clone());
        }
    }
}

/// Where it was, as far as only the rows say.
fn place(report: &mut Report) {
    let top = |row: &&Row| matches!(row.scope, Scope::Device | Scope::Hbm);
    let mut tops = report.rows.iter().filter(top);
    if let (Some(row), None) = (tops.next(), tops.next()) {
        report.device = report.device.or(row.device);
        report.hbm = report.hbm.or(row.hbm);
    }
}

/// What a thread has said before the line it belongs to.
#[derive(Debug, Default)]
pub(super) struct Stash {
    pub(super) event_file: Option<String>,
    pub(super) lnc: Option<(u32, Vec<u32>)>,
    pub(super) status: Option<String>,
}

/// The stashes of all threads.
#[derive(Debug, Default)]
pub(super) struct Stashes(FxHashMap<Option<Thread>, Stash>);

impl Stashes {
    pub(super) fn of(&mut self, thread: Option<Thread>) -> &mut Stash {
        // LIMIT: a log has some hundred threads; what a thread said before a million others is of
        // no use.
        const THREADS_MAX: usize = 4096;
        if self.0.len() >= THREADS_MAX && !self.0.contains_key(&thread) {
            self.0.clear();
        }
        self.0.entry(thread).or_default()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
