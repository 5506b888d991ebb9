//! What is open and what is done: how reports begin, end, and leave in the order of their lines.

use rustc_hash::FxHashSet;

use super::super::open::{Open, also};
use super::super::report::{Family, Kind, Report, Row, Thread};
use super::super::size::printed;
use super::Assembler;

// LIMIT: the parts of a report come within milliseconds; even a hundred threads that print their
// environment fit into this.
const QUIET_LINES_MAX: u64 = 16_384;
const REPORT_LINES_MAX: u64 = 2 * QUIET_LINES_MAX;
const CHECK_LINES: u64 = 1024;
// LIMIT: a hundred threads fail at once when a large job dies.
const OPEN_MAX: usize = 256;
const HELD_ROWS_MAX: usize = 20_000;
// LIMIT: an echo comes while its report is open, or soon after.
const REPORTED_MAX: usize = 8192;

/// A process, where the line has one, and a size as printed.
type Asked = (Option<u64>, String);

/// Sizes of reports that name their place: the last so many, and at most as many before them.
#[derive(Debug, Default)]
pub(super) struct Reported {
    last: FxHashSet<Asked>,
    before: FxHashSet<Asked>,
}

impl Reported {
    fn insert(&mut self, asked: Asked) {
        if self.last.len() >= REPORTED_MAX {
            std::mem::swap(&mut self.last, &mut self.before);
            self.last.clear();
        }
        self.last.insert(asked);
    }

    fn has(&self, asked: &Asked) -> bool {
        self.last.contains(asked) || self.before.contains(asked)
    }
}

impl Assembler<'_> {
    pub(super) fn begin_list(&mut self, index: usize, row: Row, in_order: bool) {
        self.tick += 1;
        self.open[index].touched = self.line;
        self.open.begin_list(index, row, self.tick, in_order);
    }

    /// A report that begins at this line and is of the thread that writes.
    pub(super) fn report(&self, family: Family, kind: Kind) -> Report {
        let mut report = Report::new(self.file, self.line, family, kind);
        report.thread = self.thread;
        report
    }

    pub(super) fn push(&mut self, mut report: Report) -> usize {
        if self.open.len() >= OPEN_MAX {
            self.untangle();
            if let Some(oldest) = self.open.pop_oldest() {
                self.close(oldest);
            }
        }
        if report.is_oom() {
            report.status = self.stashes.of(report.thread).status.take();
        }
        self.open.push(Open::new(report, self.source))
    }

    /// The open report last begun of those that fit.
    pub(super) fn latest(&self, fits: impl Fn(&Open) -> bool) -> Option<usize> {
        self.open.latest(self.source, fits)
    }

    /// The open table last written of those that fit.
    pub(super) fn latest_table(&self, fits: impl Fn(&Open) -> bool) -> Option<usize> {
        self.open.latest_table(self.source, fits)
    }

    pub(super) fn close(&mut self, open: Open) {
        if let Some(mut report) = open.close() {
            if report.event_file.is_none() && report.family == Family::A {
                let stash = self.stashes.of(report.thread);
                report.event_file = stash.event_file.take();
            }
            self.has_oom |= report.is_oom();
            self.tick += 1;
            self.done.insert((report.line, self.tick), report);
        }
        self.is_settled = false;
    }

    /// The next report that is complete and has none before it still open.
    pub(in crate::explain) fn ready(&mut self) -> Option<Report> {
        // As long as nothing is closed, nothing more is ready.
        while !self.is_settled
            && let Some((&key, _)) = self.done.first_key_value()
        {
            let before = |open: &Open| open.opened < key.0 && open.report.line < key.0;
            if self.open.iter().any(before) {
                break;
            }
            let report = self.done.remove(&key)?;
            if !self.is_echo(&report) {
                return Some(*report);
            }
        }
        self.is_settled = true;
        None
    }

    /// Remembers a size whose report names its place.
    pub(super) fn remember(&mut self, thread: Option<Thread>, asked: &str) {
        if let Some(thread) = thread {
            self.reported.insert((Some(thread.pid), asked.to_owned()));
        }
        // The kernel's lines have no process.
        self.reported.insert((None, asked.to_owned()));
    }

    /// Whether a report is the lone first line of what another thread's report says, or the
    /// kernel's word on it.
    fn is_echo(&mut self, report: &Report) -> bool {
        let Some(bytes) = report.asked_bytes.filter(|_| report.family == Family::A) else {
            return false;
        };
        if report.kind != Kind::DeviceOom {
            return false;
        }
        let text = printed(bytes);
        let pid = report.thread.map(|thread| thread.pid);
        let key = (pid, text);
        if !self.reported.has(&key) {
            return false;
        }
        let says = |other: &Report| {
            other.asked.as_ref() == Some(&key.1)
                && (pid.is_none() || other.thread.map(|thread| thread.pid) == pid)
        };
        let done = self.done.values_mut().map(|report| &mut **report);
        let open = self.open.iter_mut().map(|open| &mut *open.report);
        if let Some(other) = done.chain(open).find(|other| says(other)) {
            also(other, report.line);
        }
        true
    }

    /// Closes what nothing has come for; to be asked at every line.
    pub(in crate::explain) fn age(&mut self) {
        if !self.line.is_multiple_of(CHECK_LINES) || self.open.is_empty() {
            return;
        }
        let line = self.line;
        self.is_settled = false;
        let held = self.open.iter().map(Open::held_rows);
        let done = self
            .done
            .values()
            .map(|report| 1 + report.rows.len() + report.neffs.len());
        let is_full = held.chain(done).sum::<usize>() > HELD_ROWS_MAX;
        let is_old = |open: &Open| {
            is_full
                || open.touched + QUIET_LINES_MAX < line
                || open.opened + REPORT_LINES_MAX < line
        };
        if self.open.iter().any(is_old) {
            self.untangle();
        }
        for open in self.open.take(is_old) {
            self.close(open);
        }
    }
}
