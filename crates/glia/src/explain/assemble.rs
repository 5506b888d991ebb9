//! From lines to reports: which thread a line is of, which report it belongs to, and when a report
//! is complete.
//!
//! Lines of the runtime name their thread; what belongs to one failure of one thread is put
//! together by that. Items and rows do not name it. Items go by what an open list can take
//! (`list.rs`), rows by device and core.
//!
//! A report is complete when its thread begins another or when thousands of lines have brought
//! nothing for it. Reports are given out in the order of their lines, and what is held back is
//! bounded, so a log of any length is read in flat memory (`assemble/desk.rs`).

mod desk;
mod failure;
mod rows;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::cursor::Cursor;
use super::message::{Message, Sign};
use super::open::{Open, Stashes};
use super::opens::Opens;
use super::report::{Family, Kind, Report, Row, Scope, Thread, Unread};
use super::size::Size;
use super::source::Source;
use super::table::{Heading, Table};
use super::token::{self, Scan, Token};
use failure::SIZE_TOO_LARGE;

const UNREAD_MAX: usize = 1000;
// LIMIT: a failure line wrapped at 20 columns has 5 lines.
const CARRIED_LINES_MAX: usize = 6;
const CARRIED_BYTES_MAX: usize = 4096;

/// The beginning of a message that the end of its line has cut.
#[derive(Debug)]
struct Carried {
    thread: Option<Thread>,
    source: Source,
    line: u64,
    text: Vec<u8>,
    lines: usize,
}

/// What a line ends with that is complete as it stands, and may yet go on in the next.
#[derive(Debug)]
enum Tail {
    /// The digits of the exact size of the report that begins at `line`.
    Digits { line: u64, digits: Vec<u8> },
    /// The first core of an HBM.
    Core,
}

/// Reads the lines of one log.
#[derive(Debug)]
pub(super) struct Assembler<'f> {
    file: &'f str,
    line: u64,
    /// What stands before the line.
    source: Source,
    /// The line of which that is known.
    placed: u64,
    /// Who wrote the last header, and so the lines without one.
    thread: Option<Thread>,
    /// The same, by what stands before the lines.
    threads: FxHashMap<Source, Option<Thread>>,
    scan: Scan,
    carried: Option<Carried>,
    /// What the last line ends with.
    tail: Option<Tail>,
    stashes: Stashes,
    heading: Heading,
    open: Opens,
    /// Complete, but behind an open one in the log.
    done: BTreeMap<(u64, u64), Box<Report>>,
    /// Whether none of those can be given out yet.
    is_settled: bool,
    /// Sizes of reports that name their place, with the process.
    reported: FxHashSet<(Option<u64>, String)>,
    /// Grows with everything that is opened or touched.
    tick: u64,
    sign: Option<(Sign, u64)>,
    has_oom: bool,
    /// What belongs to no report and could not be read.
    pub(super) unread: Vec<Unread>,
}

impl<'f> Assembler<'f> {
    pub(super) fn new(file: &'f str) -> Self {
        Self {
            file,
            line: 0,
            source: Source::NONE,
            placed: 0,
            thread: None,
            threads: FxHashMap::default(),
            scan: Scan::default(),
            carried: None,
            tail: None,
            stashes: Stashes::default(),
            heading: Heading::default(),
            open: Opens::default(),
            done: BTreeMap::new(),
            is_settled: true,
            reported: FxHashSet::default(),
            tick: 0,
            sign: None,
            has_oom: false,
            unread: Vec::new(),
        }
    }

    /// Takes a line without its colours.
    pub(super) fn line(&mut self, number: u64, text: &[u8]) {
        self.line = number;
        if let Some(tail) = self.tail.take()
            && self.go_on(&tail, text)
        {
            return;
        }
        if is_cut_mark(text) {
            self.cut();
            return;
        }
        let mut scan = std::mem::take(&mut self.scan);
        let carried = self.carried.take();
        let headless = |scan: &Scan| {
            let first = scan.found.first();
            !first.is_some_and(|found| matches!(found.token, Token::Header(_)))
        };
        scan.read(text, true);
        match carried {
            Some(carried) if headless(&scan) && !text.trim_ascii().is_empty() => {
                self.join(carried, text, &mut scan);
            }
            carried => {
                self.place(text, &scan);
                self.take(text, &mut scan);
                if self.carried.is_none() {
                    self.carried = carried;
                }
            }
        }
        self.scan = scan;
    }

    /// Joins the beginning of a message with the line that may complete it.
    fn join(&mut self, mut carried: Carried, text: &[u8], scan: &mut Scan) {
        let begun = carried.text.len();
        carried.text.extend_from_slice(text);
        carried.lines += 1;
        let may_go_on = carried.lines < CARRIED_LINES_MAX && carried.text.len() < CARRIED_BYTES_MAX;
        scan.read(&carried.text, may_go_on);
        let first = scan
            .found
            .first()
            .map_or(carried.text.len(), |found| found.start);
        if scan.cut == Some(0) {
            self.carried = Some(carried);
            return;
        }
        self.thread = carried.thread;
        self.source = carried.source;
        if first >= begun {
            // It was nothing; the line stands for itself.
            scan.read(text, true);
            self.place(text, scan);
            self.take(text, scan);
            return;
        }
        let here = self.line;
        self.line = carried.line;
        // The joined text is the message and what follows it in the line.
        self.take(&carried.text, scan);
        self.line = here;
    }

    /// Sees whose line it is, as far as what stands before its first token says.
    fn place(&mut self, text: &[u8], scan: &Scan) {
        // Of an ordinary line, nobody asks. All pieces of a line have its source.
        let is_ordinary = scan.found.is_empty() && (!scan.has_bar || self.open.is_empty());
        if is_ordinary || self.placed == self.line {
            return;
        }
        self.placed = self.line;
        let lead = scan
            .found
            .first()
            .map_or(text, |found| &text[..found.start]);
        self.source = Source::of(&lead[..before_bar(lead)]);
        if self.source != Source::NONE
            && let Some(&thread) = self.threads.get(&self.source)
        {
            self.thread = thread;
        }
    }

    /// The last header of a source names the thread of its lines without one.
    fn begin_thread(&mut self, thread: Option<Thread>) {
        // LIMIT: a log has some dozens of sources; words that were glued to a line make more.
        const SOURCES_MAX: usize = 4096;
        if self.threads.len() >= SOURCES_MAX {
            self.threads.clear();
        }
        self.threads.insert(self.source, thread);
        self.thread = thread;
    }

    /// Takes the rest of a number or of a list of cores that a terminal has wrapped; says whether
    /// the line is that.
    fn go_on(&mut self, tail: &Tail, text: &[u8]) -> bool {
        match tail {
            Tail::Digits { line, digits } => {
                if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
                    return false;
                }
                let whole = [digits, text].concat();
                let whole = std::str::from_utf8(&whole).ok();
                let whole = whole.and_then(|digits| digits.parse().ok());
                let of_line = |open: &&mut Open| open.report.line == *line;
                match (self.open.iter_mut().rev().find(of_line), whole) {
                    (Some(open), Some(bytes)) => open.report.set_asked_bytes(bytes),
                    _ => return false,
                }
                true
            }
            Tail::Core => {
                let mut cursor = Cursor::new(text, 0);
                let core = cursor.eat("andNC").and_then(|()| cursor.number());
                match (core, &mut self.stashes.of(self.thread).lnc) {
                    (Ok(core), Some((_, cores))) => cores.push(core),
                    _ => return false,
                }
                true
            }
        }
    }

    /// Takes the tokens of a line, in order.
    fn take(&mut self, text: &[u8], scan: &mut Scan) {
        let has_rows = scan
            .found
            .iter()
            .any(|found| matches!(found.token, Token::Row(_)));
        let lead = scan.found.first().map_or(text.len(), |found| found.start);
        if scan.found.is_empty() {
            self.bare(text, scan.has_bar);
        } else if lead > 0 && scan.has_bar {
            self.bars(&text[..lead]);
        } else if lead > 0 && self.open.takes_names() {
            // A name to which the next line is glued.
            self.model_name(&text[..lead]);
        }
        let end = scan.found.last().map_or(0, |found| found.end);
        for found in scan.found.drain(..) {
            match found.token {
                Token::Header(header) => {
                    self.begin_thread(header.thread);
                    if header.is_error {
                        self.sign(Sign::ErrorLine);
                    }
                }
                Token::Message(message) => {
                    self.tail = self.tail_of(&message, text, found.end);
                    self.message(message);
                }
                Token::Item(name, size) => self.item(name, size),
                Token::Row(label) => {
                    let bar = found_bar(&text[..found.end], found.start);
                    self.row(label, &text[bar..found.end]);
                }
            }
        }
        if let Some(at) = scan.cut {
            self.carried = Some(Carried {
                thread: self.thread,
                source: self.source,
                line: self.line,
                text: text[at..].to_vec(),
                lines: 1,
            });
        } else if scan.has_bar && !has_rows && end > 0 {
            self.bars(&text[end..]);
        }
    }

    /// What of a message, which ends at `end`, may yet go on in the next line.
    fn tail_of(&self, message: &Message, text: &[u8], end: usize) -> Option<Tail> {
        match message {
            Message::Exact { bytes: Some(_), .. } if end == text.len() => {
                let digits = text.iter().rev();
                let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
                let digits = text[text.len() - digits..].to_vec();
                let line = self.line;
                Some(Tail::Digits { line, digits })
            }
            Message::Lnc { cores, .. }
                if cores.len() == 1 && text[end..].trim_ascii().is_empty() =>
            {
                Some(Tail::Core)
            }
            _ => None,
        }
    }

    /// A line with nothing in it that is known by itself.
    fn bare(&mut self, text: &[u8], has_bar: bool) {
        if self.open.takes_names() && self.model_name(text) {
            return;
        }
        if has_bar {
            self.bars(text);
            return;
        }
        if self.open.has_lists()
            && let Ok((Token::Item(name, size), _)) = token::named_size(Cursor::new(text, 0))
        {
            let is_wanted = match &name {
                Some(name) => super::category::position(name).is_some(),
                None => self.open.iter().any(Open::wants_total),
            };
            if is_wanted {
                self.item(name, size);
            }
        }
    }

    /// Bars without a label: a heading, or the rest of a row.
    fn bars(&mut self, text: &[u8]) {
        let is_empty = text.trim_ascii().is_empty();
        if is_empty || self.heading(text) || !Table::may_go_on(text) {
            return;
        }
        let tables = self.open.iter_mut().filter_map(|open| open.table.as_mut());
        let waiting = tables.filter(|table| table.is_waiting());
        if let Some(table) = waiting.max_by_key(|table| table.touched) {
            table.go_on(text);
        }
    }

    fn message(&mut self, message: Message) {
        let line = self.line;
        let thread = self.thread;
        match message {
            Message::Exact { place, bytes } => self.exact(place, bytes),
            Message::Object {
                place,
                bytes,
                name,
                alignment_bytes,
            } => self.object(place, bytes, name, alignment_bytes),
            Message::Failure(failure) => self.failure(failure),
            Message::ListHead { device, core } => {
                let mut report = self.report(Family::B, Kind::Usage);
                report.device = Some(device);
                report.core = Some(core);
                let open = self.push(report);
                self.begin_list(open, core_row(device, core, line), true);
            }
            Message::HbmListHead => {
                let mut row = Row::new(Scope::Hbm, line);
                let fits = |open: &Open| {
                    open.thread == thread && open.has_failure && open.report.rows.is_empty()
                };
                let index = self.latest(fits).unwrap_or_else(|| {
                    let report = self.report(Family::B, Kind::Usage);
                    let index = self.push(report);
                    self.open[index].is_anonymous = true;
                    index
                });
                row.device = self.open[index].report.device;
                self.begin_list(index, row, true);
            }
            Message::TableHead => self.table_head(),
            Message::InfoHead {
                device,
                core,
                total,
            } => {
                let mut report = self.report(Family::D, Kind::Usage);
                report.device = Some(device);
                report.core = Some(core);
                let index = self.push(report);
                let mut row = core_row(device, core, line);
                match total {
                    Ok(total) => row.total = Some(total),
                    Err(total) => self.open[index].unread(line, format!("total: {total}")),
                }
                self.begin_list(index, row, false);
            }
            Message::NeffHead(name) => {
                let fits = |open: &Open| open.thread == thread && open.report.family == Family::D;
                let index = self
                    .latest(fits)
                    .unwrap_or_else(|| self.push(self.report(Family::D, Kind::Usage)));
                let report = &self.open[index].report;
                let mut row = Row::new(Scope::Neff, line);
                row.device = report.device;
                row.core = report.core;
                row.name = Some(name);
                self.begin_list(index, row, true);
            }
            Message::NamesHead => {
                let has_table = |open: &Open| open.table.is_some();
                let of_thread = |open: &Open| open.thread == thread && has_table(open);
                let index = self.latest(of_thread).or_else(|| self.latest(has_table));
                if let Some(index) = index {
                    self.open.begin_names(index);
                    self.open[index].touched = line;
                }
            }
            Message::Lnc { size, cores } => self.stashes.of(thread).lnc = Some((size, cores)),
            Message::EventFile(path) => self.stashes.of(thread).event_file = Some(path),
            Message::Kernel {
                device,
                hbm,
                needed_bytes,
                occupied_bytes,
            } => {
                // The kernel's lines are of no thread.
                let mut report = Report::new(self.file, line, Family::A, Kind::DeviceOom);
                if let Some(bytes) = needed_bytes {
                    report.set_asked_bytes(bytes);
                }
                report.device = device;
                report.hbm = hbm;
                if let Some(bytes) = occupied_bytes {
                    let mut row = Row::new(Scope::Hbm, line);
                    row.device = device;
                    row.hbm = hbm;
                    row.total = bytes.map(Size::exact);
                    report.rows.push(row);
                }
                let index = self.push(report);
                if needed_bytes.is_none() {
                    self.open[index].unread(line, SIZE_TOO_LARGE.to_owned());
                }
                if occupied_bytes == Some(None) {
                    let what = "the occupied bytes are more than 2^64";
                    self.open[index].unread(line, what.to_owned());
                }
            }
            Message::Sign(sign) => self.sign(sign),
            Message::Broken => self.unread("a failure line that is damaged behind its size"),
        }
    }

    fn sign(&mut self, sign: Sign) {
        let status = match &sign {
            Sign::Failure(text) | Sign::Status(text) => Some(text.clone()),
            _ => None,
        };
        if let Some(status) = status {
            let thread = self.thread;
            let fits = |open: &Open| open.thread == thread && open.report.is_oom();
            if let Some(index) = self.latest(fits) {
                self.open[index].report.status.get_or_insert(status);
            } else {
                self.stashes.of(thread).status = Some(status);
            }
        }
        let rank = std::mem::discriminant(&sign);
        let better = self
            .sign
            .as_ref()
            .is_none_or(|(known, _)| std::mem::discriminant(known) != rank && sign < *known);
        if better {
            self.sign = Some((sign, self.line));
        }
    }

    fn unread(&mut self, what: &str) {
        if self.unread.len() < UNREAD_MAX {
            self.unread.push(Unread {
                line: self.line,
                what: what.to_owned(),
            });
        }
    }

    /// Somebody has cut the log here: nothing goes on behind it but what lines of a thread say.
    fn cut(&mut self) {
        self.carried = None;
        self.thread = None;
        self.threads.clear();
        self.stashes.clear();
        let keeps = |open: &Open| open.is_anonymous || (!open.has_failure && open.report.is_oom());
        for open in self.open.take(|open| !keeps(open)) {
            self.close(open);
        }
    }

    /// The log ends here.
    pub(super) fn finish(&mut self) {
        if let Some(carried) = self.carried.take() {
            let mut scan = Scan::default();
            scan.read(&carried.text, false);
            self.thread = carried.thread;
            self.source = carried.source;
            self.take(&carried.text, &mut scan);
            if !scan
                .found
                .iter()
                .any(|found| matches!(found.token, Token::Message(_)))
                && carried.text.starts_with(b"Failed to alloc")
            {
                self.line = carried.line;
                self.unread("a failure line that does not end");
            }
        }
        for open in self.open.take(|_| true) {
            self.close(open);
        }
        if !self.has_oom
            && let Some((sign, line)) = self.sign.take()
        {
            let (kind, status) = match sign {
                Sign::CompilerKilled => {
                    (Kind::HostOom, "the compiler was killed (F137)".to_owned())
                }
                Sign::CompilerEstimate(text) => (Kind::NotMemory, text),
                Sign::Failure(text) | Sign::Status(text) => (Kind::NotMemory, text),
                Sign::ErrorLine => (Kind::NotMemory, "an error line of the runtime".to_owned()),
            };
            let mut report = Report::new(self.file, line, Family::N, kind);
            report.status = Some(status);
            report.points_to = super::finding::findings(&report);
            self.tick += 1;
            self.done.insert((line, self.tick), Box::new(report));
            self.is_settled = false;
        }
    }
}

/// `[... lines cut ...]`, a mark of people who publish logs.
fn is_cut_mark(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"[... ") && text.trim_ascii_end().ends_with(b" ...]")
}

fn core_row(device: u32, core: u32, line: u64) -> Row {
    let mut row = Row::new(Scope::Core, line);
    row.device = Some(device);
    row.core = Some(core);
    row
}

/// Where the first bar is; without one, the end.
fn before_bar(text: &[u8]) -> usize {
    let bar = text.iter().position(|&byte| byte == b'|');
    bar.unwrap_or(text.len())
}

/// Where a row's cells begin: behind the bar of its label.
fn found_bar(text: &[u8], start: usize) -> usize {
    let bar = text[start..].iter().position(|&byte| byte == b'|');
    bar.map_or(text.len(), |bar| start + bar + 1)
}
