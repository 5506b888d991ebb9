//! Messages that a terminal has wrapped: a line may end in the middle of one, and the next complete
//! it.

use super::super::cursor::Cursor;
use super::super::message::{self, Message};
use super::super::open::Open;
use super::super::report::Thread;
use super::super::source::Source;
use super::super::token::{Scan, Token};
use super::Assembler;

// LIMIT: a failure line wrapped at 20 columns has 5 lines.
const CARRIED_LINES_MAX: usize = 6;
const CARRIED_BYTES_MAX: usize = 4096;

/// The beginning of a message that the end of its line has cut.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) thread: Option<Thread>,
    pub(super) source: Source,
    pub(super) line: u64,
    pub(super) text: Vec<u8>,
    pub(super) lines: usize,
}

/// What a line ends with that is complete as it stands, and may yet go on in the next.
#[derive(Debug)]
pub(super) enum Tail {
    /// The digits of the exact size of the report that begins at `line`.
    Digits { line: u64, digits: Vec<u8> },
    /// The first core of an HBM.
    Core,
}

impl Carried {
    /// Whether it is a failure line that the line cannot complete: it begins with an item, or with
    /// the next header of the same thread.
    pub(super) fn ends_before(&self, text: &[u8], scan: &Scan) -> bool {
        let Some(first) = scan.found.first() else {
            return false;
        };
        let is_other = match &first.token {
            Token::Header(header) => header.thread.is_some() && header.thread == self.thread,
            Token::Item(..) | Token::Row(_) => text[..first.start].trim_ascii().is_empty(),
            Token::Message(_) => false,
        };
        is_other && message::of_cut(&self.text).is_some()
    }
}

impl Assembler<'_> {
    /// Joins the beginning of a message with the line that may complete it.
    pub(super) fn join(&mut self, mut carried: Carried, text: &[u8], scan: &mut Scan) {
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
        let is_broken = scan.found.first().is_some_and(|found| {
            let is_broken = match &found.token {
                Token::Message(Message::Broken) => true,
                Token::Message(Message::Failure(failure)) => failure.core.is_none(),
                _ => false,
            };
            found.start == 0 && is_broken
        });
        if first >= begun || is_broken && message::of_cut(&carried.text[..begun]).is_some() {
            // It was nothing, or a failure line that is cut; the line stands for itself.
            carried.text.truncate(begun);
            self.take_cut(carried);
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

    /// Takes the beginning of a failure line of which the rest has not come.
    pub(super) fn take_cut(&mut self, carried: Carried) {
        let Some(failure) = message::of_cut(&carried.text) else {
            return;
        };
        let of_line = (self.thread, self.source, self.line);
        (self.thread, self.source, self.line) = (carried.thread, carried.source, carried.line);
        self.failure(failure);
        (self.thread, self.source, self.line) = of_line;
    }

    /// Takes the rest of a number or of a list of cores that a terminal has wrapped; says whether
    /// the line is that.
    pub(super) fn go_on(&mut self, tail: &Tail, text: &[u8]) -> bool {
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

    /// What of a message, which ends at `end`, may yet go on in the next line.
    pub(super) fn tail_of(&self, message: &Message, text: &[u8], end: usize) -> Option<Tail> {
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
}
