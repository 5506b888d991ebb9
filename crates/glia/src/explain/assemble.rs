//! From lines to reports: which thread a line is of, which report it belongs to, and when a report
//! is complete.
//!
//! Lines of the runtime name their thread; what belongs to one failure of one thread is put
//! together by that. Items and rows do not name it. Items go by what an open list can take
//! (`list.rs`), and where two lists alternate, by their totals (`assemble/tangle.rs`); rows go by
//! device and core.
//!
//! A report is complete when its thread begins another or when thousands of lines have brought
//! nothing for it. Reports are given out in the order of their lines, and what is held back is
//! bounded, so a log of any length is read in flat memory (`assemble/desk.rs`).

mod desk;
mod failure;
mod messages;
mod rows;
mod tangle;
mod wrapped;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::cursor::Cursor;
use super::header;
use super::message::Sign;
use super::open::{Open, Stashes};
use super::opens::Opens;
use super::report::{Family, Kind, Report, Thread, Unread};
use super::source::Source;
use super::table::{Heading, Table};
use super::token::{self, Damage, Found, Scan, Token};
use desk::Reported;
use rows::Turns;
use wrapped::{Carried, Tail};

const UNREAD_MAX: usize = 1000;

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
    reported: Reported,
    /// Grows with everything that is opened or touched.
    tick: u64,
    /// Lists that may have got one another's items, by when they were opened.
    tangles: Vec<(u64, u64)>,
    /// The last rows of tables.
    turns: Turns,
    /// With its line and thread.
    sign: Option<(Sign, u64, Option<Thread>)>,
    has_oom: bool,
    /// Lines with "Failed to allocate" that are none of the known messages, the first few.
    refused: Vec<u64>,
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
            reported: Reported::default(),
            tick: 0,
            tangles: Vec::new(),
            turns: Turns::default(),
            sign: None,
            has_oom: false,
            refused: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Takes a line without its colours.
    pub(super) fn line(&mut self, number: u64, text: &[u8]) {
        if self.line == 0 && is_utf_16(text) {
            self.line = number;
            self.unread("looks like UTF-16, of which nothing is read");
        }
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
        let mut carried = self.carried.take();
        let headless = |scan: &Scan| {
            let first = scan.found.first();
            !first.is_some_and(|found| matches!(found.token, Token::Header(_)))
        };
        scan.read(text, true);
        if carried
            .as_ref()
            .is_some_and(|carried| carried.ends_before(text, &scan))
            && let Some(carried) = carried.take()
        {
            self.take_cut(carried);
        }
        match carried {
            Some(carried) if headless(&scan) && !text.trim_ascii().is_empty() => {
                self.join(carried, text, &mut scan);
            }
            carried => {
                self.place(text, &scan);
                self.take(text, &mut scan);
                match (carried, &self.carried) {
                    (Some(carried), Some(_)) => self.take_cut(carried),
                    (carried @ Some(_), None) => self.carried = carried,
                    (None, _) => {}
                }
            }
        }
        self.scan = scan;
    }

    /// Sees whose line it is, as far as what stands before its first token says.
    fn place(&mut self, text: &[u8], scan: &Scan) {
        // Of an ordinary line, nobody asks. All pieces of a line have its source.
        let is_ordinary = scan.found.is_empty() && (!scan.has_bar || self.open.is_empty());
        if is_ordinary || self.placed == self.line {
            return;
        }
        self.placed = self.line;
        let is_headless = !matches!(
            scan.found.first().map(|found| &found.token),
            Some(Token::Header(_))
        );
        let lead = scan
            .found
            .first()
            .map_or(text, |found| &text[..found.start]);
        let lead = &lead[..before_bar(lead)];
        let component = header::component_at_end(lead).filter(|_| is_headless);
        self.source = Source::of(&lead[..component.unwrap_or(lead.len())]);
        if component.is_some() {
            // Its time and thread are lost, and the last header is of anybody.
            self.begin_thread(None);
            return;
        }
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
        if scan.is_refused {
            self.refused();
        }
        let end = scan.found.last().map_or(0, |found| found.end);
        for found in scan.found.drain(..) {
            match found.token {
                Token::Header(header) => {
                    self.begin_thread(header.thread);
                    // The first one tells; a log may have millions.
                    if header.is_error && self.sign.is_none() {
                        self.sign(Sign::ErrorLine(words(&text[found.end..])));
                    }
                }
                Token::Message(message) => {
                    self.tail = self.tail_of(&message, text, found.end);
                    self.message(message);
                }
                Token::Item(name, cell) => self.item(name, cell),
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
            && let Ok((Token::Item(name, cell), _)) =
                token::named_size(Cursor::new(text, 0), Damage::Number)
        {
            let is_wanted = match &name {
                Some(name) => super::category::position(name).is_some(),
                None => self.open.iter().any(Open::wants_total),
            };
            if is_wanted {
                self.item(name, cell);
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

    /// A line that has the words of a failure and could not be read; of those of the runtime, the
    /// callers' lines are some.
    fn refused(&mut self) {
        const REFUSED_MAX: usize = 5;
        if self.refused.len() < REFUSED_MAX && self.refused.last() != Some(&self.line) {
            self.refused.push(self.line);
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

    /// The log ends in the middle of what may be a message.
    fn finish_carried(&mut self, carried: Carried) {
        let mut scan = Scan::default();
        scan.read(&carried.text, false);
        self.thread = carried.thread;
        self.source = carried.source;
        let is_message = |found: &Found| matches!(found.token, Token::Message(_));
        let has_message = scan.found.iter().any(is_message);
        self.take(&carried.text, &mut scan);
        if !has_message && carried.text.starts_with(b"Failed to alloc") {
            self.line = carried.line;
            self.unread("a failure line that does not end");
        }
    }

    /// Somebody has cut the log here: nothing goes on behind it but what lines of a thread say.
    fn cut(&mut self) {
        if let Some(carried) = self.carried.take() {
            self.take_cut(carried);
        }
        self.thread = None;
        self.threads.clear();
        self.stashes.clear();
        let keeps = |open: &Open| open.is_anonymous || (!open.has_failure && open.report.is_oom());
        self.untangle();
        for open in self.open.take(|open| !keeps(open)) {
            self.close(open);
        }
    }

    /// The log ends here.
    pub(super) fn finish(&mut self) {
        if let Some(carried) = self.carried.take() {
            if super::message::of_cut(&carried.text).is_some() {
                self.take_cut(carried);
            } else {
                self.finish_carried(carried);
            }
        }
        self.untangle();
        for open in self.open.take(|_| true) {
            self.close(open);
        }
        if !self.has_oom {
            for line in std::mem::take(&mut self.refused) {
                self.line = line;
                self.unread(
                    "has \"Failed to allocate\", but not in the words of the runtime; \
                     this reads the runtime's own log",
                );
            }
        }
        if !self.has_oom
            && let Some((sign, line, thread)) = self.sign.take()
        {
            let (kind, status) = match sign {
                Sign::CompilerKilled => {
                    (Kind::HostOom, "the compiler was killed (F137)".to_owned())
                }
                Sign::CompilerEstimate(text) => (Kind::NotMemory, text),
                Sign::Failure(text) | Sign::Status(text) => (Kind::NotMemory, text),
                Sign::ErrorLine(text) => {
                    let status = match text.as_str() {
                        "" => "an error line of the runtime".to_owned(),
                        text => format!("an error line of the runtime: {text}"),
                    };
                    (Kind::NotMemory, status)
                }
            };
            let mut report = Report::new(self.file, line, Family::N, kind);
            report.status = Some(status);
            report.thread = thread;
            super::finding::judge(&mut report);
            self.tick += 1;
            self.done.insert((line, self.tick), Box::new(report));
            self.is_settled = false;
        }
    }
}

/// What a line says behind the name of its function, as far as it is worth keeping.
fn words(text: &[u8]) -> String {
    const WORDS_BYTES_MAX: usize = 200;
    let name = text.iter().position(u8::is_ascii_whitespace);
    let text = &text[name.unwrap_or(text.len())..];
    let text = &text[..text.len().min(WORDS_BYTES_MAX)];
    String::from_utf8_lossy(text.trim_ascii()).into_owned()
}

/// Whether a log begins with the mark of UTF-16, or with letters of which every other byte is 0.
fn is_utf_16(text: &[u8]) -> bool {
    const LETTERS: usize = 8;
    let is_mark = text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]);
    let letters = text.chunks_exact(2).take(LETTERS);
    let is_wide = letters.len() == LETTERS
        && letters
            .clone()
            .all(|letter| (letter[0] == 0) != (letter[1] == 0));
    is_mark || is_wide
}

/// `[... lines cut ...]`, a mark of people who publish logs.
fn is_cut_mark(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"[... ") && text.trim_ascii_end().ends_with(b" ...]")
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
