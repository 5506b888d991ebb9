//! The table of who holds what, while it is read.
//!
//! Columns go by their heading, not by their number: some versions have one more. A row begins with
//! its label and ends at the next one, so a row that a terminal has wrapped, or into which another
//! thread has written, is put together again.

use memchr::memchr_iter;

use super::category::{self, Name};
use super::report::{Categories, Row, Scope};
use super::size::{Size, TooLarge};
use super::token::Label;

// LIMIT: a heading has 2 lines; wrapped at 40 columns it has 10.
const HEADING_LINES_MAX: usize = 16;
// LIMIT: a row has 170 bytes, a heading line too; verbose ones some 300.
const ROW_BYTES_MAX: usize = 4096;
/// Room for the cells of a row: 14 values, what stands before them and what behind.
const CELLS: usize = 16;
const HEADING_WORDS: [&[u8]; 6] = [
    b"TOTAL",
    b"Model",
    b"DMA Rings",
    b"Shared",
    b"Profiler",
    b"Scratchpad",
];

/// The lines above a table's rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Heading {
    lines: Vec<Vec<u8>>,
    /// A table has begun below; what comes next is another heading.
    is_done: bool,
}

impl Heading {
    /// Whether a line with bars can belong to a heading.
    pub(super) fn may_take(text: &[u8]) -> bool {
        text.iter().all(|&byte| is_heading_byte(byte)) || is_heading(text)
    }

    /// Takes a line with bars; says whether it belongs to a heading.
    pub(super) fn add(&mut self, text: &[u8]) -> bool {
        let is_open = !self.is_done && !self.lines.is_empty();
        let goes_on = is_open && text.iter().all(|&byte| is_heading_byte(byte));
        if !goes_on && !is_heading(text) {
            return false;
        }
        if self.is_done {
            *self = Self::default();
        }
        if self.lines.len() < HEADING_LINES_MAX {
            self.lines
                .push(text[..text.len().min(ROW_BYTES_MAX)].to_vec());
        }
        true
    }

    /// Whether it has no such row yet; of a piece of a row, that is not known.
    pub(super) fn lacks(&self, text: &[u8]) -> bool {
        let begins = |word: &[u8]| {
            let has = |line: &[u8]| {
                line.split(|&byte| byte == b'|')
                    .any(|it| it.trim_ascii() == word)
            };
            has(text) && self.lines.iter().any(|line| has(line))
        };
        !begins(b"TOTAL") && !begins(b"Model")
    }

    pub(super) fn finish(&mut self) {
        self.is_done = true;
    }

    pub(super) fn is_fresh(&self) -> bool {
        !self.is_done && !self.lines.is_empty()
    }

    /// The columns behind TOTAL; `None` without a readable heading.
    pub(super) fn columns(&self) -> Option<Vec<Name>> {
        let rows: Vec<Vec<&[u8]>> = self.lines.iter().map(|line| cells(line)).collect();
        let [upper, lower] = rows.as_slice() else {
            return self.wrapped_columns();
        };
        let behind = behind_total(lower)?;
        // The rows begin together, also where a tool has put bars of its own before them; either
        // may be cut.
        let upper = upper.get(lower.len() - behind.len()..);
        Some(category::columns_by_heading(upper, behind))
    }

    /// The same, of one line or of more than two: their cells, joined, are those of two rows.
    fn wrapped_columns(&self) -> Option<Vec<Name>> {
        let joined = self.lines.concat();
        let all = cells(&joined);
        let lower = behind_total(&all)?;
        let before = all.len() - lower.len();
        // label, TOTAL's upper cell, upper cells; label, TOTAL, lower cells.
        let upper = before
            .checked_sub(lower.len() + 2)
            .map(|at| &all[at..at + lower.len()]);
        Some(category::columns_by_heading(upper, lower))
    }
}

fn behind_total<'c, 'l>(cells: &'c [&'l [u8]]) -> Option<&'c [&'l [u8]]> {
    let total = cells.iter().position(|cell| *cell == b"TOTAL")?;
    Some(&cells[total + 1..])
}

fn is_heading(text: &[u8]) -> bool {
    let words = text.split(|&byte| byte == b'|').map(<[u8]>::trim_ascii);
    let words = words.filter(|word| HEADING_WORDS.contains(word)).take(2);
    words.count() == 2
}

fn is_heading_byte(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte.is_ascii_whitespace() || b"|_.".contains(&byte)
}

/// The cells of a line, trimmed; what an editor has cut with dots is left out, and so is the
/// nothing behind the last bar.
fn cells(text: &[u8]) -> Vec<&[u8]> {
    let mut cells = Vec::with_capacity(CELLS);
    cells.extend(text.split(|&byte| byte == b'|').map(<[u8]>::trim_ascii));
    if cells
        .last()
        .is_some_and(|cell| cell.is_empty() || is_dots(cell))
    {
        cells.pop();
    }
    cells
}

fn bars(text: &[u8]) -> usize {
    memchr_iter(b'|', text).count()
}

fn is_dots(cell: &[u8]) -> bool {
    !cell.is_empty() && (cell.iter().all(|&byte| byte == b'.') || cell == "…".as_bytes())
}

/// A row of which cells may still come.
#[derive(Debug)]
struct Partial {
    row: Row,
    text: Vec<u8>,
    /// How many bars the text has.
    bars: usize,
}

/// A table that is open.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) columns: Option<Vec<Name>>,
    /// The lines above the rows.
    pub(super) heading: Heading,
    /// Whether a device or HBM row has been seen.
    pub(super) is_begun: bool,
    /// When it last got something: a later one has a higher number.
    pub(super) touched: u64,
    pub(super) device: Option<u32>,
    hbm: Option<u32>,
    core: Option<u32>,
    partial: Option<Partial>,
}

/// A row that is done, and what is wrong with it.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) row: Row,
    pub(super) problems: Vec<String>,
}

impl Table {
    /// Begins a row; gives the one before.
    pub(super) fn begin(&mut self, label: Label, line: u64, text: &[u8]) -> Option<Finished> {
        let before = self.finish();
        let mut row = Row::new(Scope::Device, line);
        match label {
            Label::Device(device) | Label::Hbm(device, _) => {
                self.is_begun = true;
                self.device = Some(device);
                self.hbm = None;
                self.core = None;
                if let Label::Hbm(_, hbm) = label {
                    row.scope = Scope::Hbm;
                    self.hbm = Some(hbm);
                }
            }
            Label::Core(core) => {
                row.scope = Scope::Core;
                self.core = Some(core);
            }
            Label::Neff(neff) => {
                row.scope = Scope::Neff;
                row.neff = Some(neff);
            }
        }
        row.device = self.device;
        row.hbm = self.hbm;
        row.core = self.core;
        let text = text[..text.len().min(ROW_BYTES_MAX)].to_vec();
        let bars = bars(&text);
        self.partial = Some(Partial { row, text, bars });
        before
    }

    /// Whether a row waits for more cells.
    pub(super) fn is_waiting(&self) -> bool {
        let wanted = self.columns.as_ref().map(|columns| columns.len() + 1);
        self.partial.as_ref().is_some_and(|partial| {
            partial.text.len() < ROW_BYTES_MAX && wanted.is_none_or(|wanted| partial.bars < wanted)
        })
    }

    /// Whether it has had a row.
    pub(super) fn has_rows(&self) -> bool {
        self.is_begun || self.partial.is_some()
    }

    /// Whether the row that is open is of a core.
    pub(super) fn writes_core(&self, core: u32) -> bool {
        let row = self.partial.as_ref().map(|partial| &partial.row);
        row.is_some_and(|row| row.scope == Scope::Core && row.core == Some(core))
    }

    /// Whether the row that is open is of a model.
    pub(super) fn writes_neff(&self, neff: u64) -> bool {
        let row = self.partial.as_ref().map(|partial| &partial.row);
        row.is_some_and(|row| row.neff == Some(neff))
    }

    /// Whether a line can be cells of a row.
    pub(super) fn may_go_on(text: &[u8]) -> bool {
        let can_be = |byte: &u8| byte.is_ascii_digit() || b"|.,/ \tnaKMGTB".contains(byte);
        text.iter().all(can_be)
    }

    /// Takes more cells of the row that waits.
    pub(super) fn go_on(&mut self, text: &[u8]) {
        if let Some(partial) = &mut self.partial {
            partial.text.extend_from_slice(text);
            partial.bars += bars(text);
        }
    }

    /// Ends the row that is open.
    pub(super) fn finish(&mut self) -> Option<Finished> {
        let Partial { mut row, text, .. } = self.partial.take()?;
        let mut cells = cells(&text);
        let is_cut = !text.trim_ascii_end().ends_with(b"|");
        if is_cut && cells.last().is_some_and(|cell| !Cell::is_readable(cell)) {
            cells.pop();
        }
        let behind = cells.len().saturating_sub(1);
        let by_count;
        let columns = match &self.columns {
            Some(columns) => Some(columns.as_slice()),
            None => {
                by_count = category::columns_by_count(behind);
                by_count.as_deref()
            }
        };
        let mut problems = Vec::new();
        let read = |problems: &mut Vec<String>, name: &str, cell: &[u8]| {
            let (size, what) = Cell::read(cell).told(name);
            problems.extend(what);
            size
        };
        match cells.first() {
            Some(cell) => row.total = read(&mut problems, "TOTAL", cell),
            None => problems.push("no cell behind the label".to_owned()),
        }
        let Some(columns) = columns else {
            problems.push(format!(
                "{} cells and no heading to tell what they are",
                cells.len()
            ));
            return Some(Finished { row, problems });
        };
        // Where a cell is damaged and the count is wrong, a bar may have gone with it: what stands
        // behind may be of any column.
        let damage = (behind != columns.len())
            .then(|| cells.iter().position(|cell| !Cell::is_readable(cell)))
            .flatten()
            .filter(|&at| at <= columns.len());
        let mut categories = Vec::with_capacity(columns.len());
        for (at, name) in (1..).zip(columns) {
            let size = match (damage, cells.get(at)) {
                (Some(damage), _) if at > damage => None,
                (_, Some(cell)) => read(&mut problems, name, cell),
                (_, None) => break,
            };
            categories.push((name.clone(), size));
        }
        row.categories = Categories(categories);
        if behind != columns.len() {
            let wanted = columns.len() + 1;
            let unknown = match damage {
                Some(_) => ": those behind the damaged one cannot be told apart",
                None => "",
            };
            problems.push(format!(
                "{} cells where the heading has {wanted}{unknown}",
                cells.len()
            ));
        }
        Some(Finished { row, problems })
    }
}

/// What stands where a size should.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Size(Size),
    /// `n/a`.
    Absent,
    TooLarge(TooLarge),
    /// The first letters of what it is instead.
    Unreadable(String),
}

impl From<Result<Size, TooLarge>> for Cell {
    fn from(size: Result<Size, TooLarge>) -> Self {
        size.map_or_else(Self::TooLarge, Self::Size)
    }
}

impl Cell {
    /// The size, and what is to be said if there is none but something is printed.
    pub(super) fn told(self, name: &str) -> (Option<Size>, Option<String>) {
        match self {
            Self::Size(size) => (Some(size), None),
            Self::Absent => (None, None),
            Self::TooLarge(size) => (None, Some(format!("{name}: {size}"))),
            Self::Unreadable(text) => (None, Some(format!("{name} is {text:?}, which is no size"))),
        }
    }

    fn is_readable(cell: &[u8]) -> bool {
        !matches!(Self::read(cell), Self::Unreadable(_))
    }

    /// Of the whole text.
    pub(super) fn read(cell: &[u8]) -> Self {
        match Size::read(cell) {
            Some((Ok(size), length)) if length == cell.len() => Self::Size(size),
            Some((Err(size), length)) if length == cell.len() => Self::TooLarge(size),
            _ if cell == b"n/a" => Self::Absent,
            _ => Self::Unreadable(String::from_utf8_lossy(cell).chars().take(40).collect()),
        }
    }
}
