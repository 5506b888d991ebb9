//! Reads logs of the Neuron runtime and says what failed, where, and what held the memory.
//!
//! A log is a stream of bytes that has been through terminals, wrappers, editors and people. So
//! nothing is expected of a line: its beginning may belong to another tool, its end may be in the
//! next line, another thread may have written into it. What is known is looked for anywhere:
//!
//! ```text
//! bytes ── lines ── tokens ── messages ──► assembler ── reports ──► JSON, or words
//!         lines.rs  token.rs  message.rs   assemble.rs   report.rs    tell.rs, finding.rs
//!                   header.rs cursor.rs    open.rs, list.rs, table.rs
//! ```
//!
//! - What the log does not say is `None`, never 0; what could not be read is said with its line.
//! - A printed size keeps its text beside the bytes computed from it (`size.rs`); names become
//!   those of `category.rs`.
//! - Time is linear and memory flat: a report leaves as soon as it is complete, and every buffer
//!   has a limit.
//! - No bytes make it panic.
//!
//! It does not need the rest of Glia: no device, no driver, no knowledge of the machine that wrote
//! the log. The JSON form and the rules of tolerance are described in `docs/formats/explain.md`.

pub mod category;
pub mod finding;
pub mod report;
pub mod size;
pub mod tell;

mod assemble;
mod cursor;
mod header;
mod lines;
mod list;
mod message;
mod open;
mod opens;
mod source;
mod table;
mod token;

use std::io::{self, Read};

use serde::Serialize;

use self::assemble::Assembler;
use self::lines::Lines;
use self::report::{Report, Unread};

/// A log that cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The system refused it, or its packing is damaged.
    #[error("cannot be read{}", behind(*.line))]
    Unreadable {
        /// How many lines could be read.
        line: u64,
        /// What the system or the unpacker said.
        source: io::Error,
    },
    /// A report was not taken.
    #[error("cannot write the report")]
    Taker(#[source] io::Error),
}

fn behind(line: u64) -> String {
    match line {
        0 => String::new(),
        line => format!(" behind line {line}"),
    }
}

impl ExplainError {
    /// The error and what caused it, in one line.
    #[must_use]
    pub fn told(&self) -> String {
        let (Self::Unreadable { source, .. } | Self::Taker(source)) = self;
        format!("{self}: {source}")
    }
}

/// What a log came to, beside its reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The log.
    pub file: String,
    /// Its lines.
    pub lines: u64,
    /// Its bytes, unpacked.
    pub bytes: u64,
    /// Its reports.
    pub reports: u64,
    /// What belongs to no report and could not be read.
    pub unread: Vec<Unread>,
    /// Why it was not read to its end.
    pub error: Option<String>,
}

/// Reads a log, plain or gzip, and gives each report to `taker` as soon as it is complete, in the
/// order of the lines.
///
/// What was read before an error is given all the same.
///
/// # Errors
/// [`ExplainError`] if the log cannot be read to its end or `taker` fails; the summary is complete
/// as far as the log was read.
pub fn explain(
    log: impl Read,
    file: &str,
    mut taker: impl FnMut(Report) -> io::Result<()>,
) -> (Summary, Result<(), ExplainError>) {
    let mut summary = Summary {
        file: file.to_owned(),
        ..Summary::default()
    };
    let result = read(log, &mut summary, &mut taker);
    summary.error = result.as_ref().err().map(ExplainError::told);
    (summary, result)
}

fn read(
    log: impl Read,
    summary: &mut Summary,
    taker: &mut impl FnMut(Report) -> io::Result<()>,
) -> Result<(), ExplainError> {
    let file = summary.file.clone();
    let mut assembler = Assembler::new(&file);
    let mut reports = 0;
    let mut give = |assembler: &mut Assembler<'_>| {
        while let Some(report) = assembler.ready() {
            reports += 1;
            taker(report).map_err(ExplainError::Taker)?;
        }
        Ok(())
    };
    let (mut lines, mut result) = match Lines::new(log) {
        Ok(lines) => (Some(lines), Ok(())),
        Err(source) => (None, Err(ExplainError::Unreadable { line: 0, source })),
    };
    while let Some(source) = &mut lines {
        match source.next(&mut |number, text| assembler.line(number, text)) {
            Ok(true) => {
                assembler.age();
                give(&mut assembler)?;
            }
            Ok(false) => break,
            Err(source) => {
                let line = lines.as_ref().map_or(0, Lines::count);
                result = Err(ExplainError::Unreadable { line, source });
                break;
            }
        }
    }
    assembler.finish();
    let given = give(&mut assembler);
    summary.reports = reports;
    summary.lines = lines.as_ref().map_or(0, Lines::count);
    summary.bytes = lines.as_ref().map_or(0, Lines::bytes);
    summary.unread = std::mem::take(&mut assembler.unread);
    given.and(result)
}
