//! A trace of the memory pool: its first line, then its records, one a line.
//!
//! [`Trace::parse`] looks at the first line and counts the others, so that a file cut short is
//! refused before anything is replayed; [`Trace::records`] then reads them one at a time.
//! Everything that is wrong with a file is a [`TraceError`], which names the line, what was found
//! and what is allowed.

use super::arguments::{ArgumentError, Arguments};
use super::line::{self, LineError};
use super::op::{ChunkId, Op, OpError};
use super::value::{Fields, Value};

/// The format's version that is read here.
pub const FORMAT: i128 = 1;

// LIMIT: the longest line of a recording lists some ten thousand ids. A value in memory takes up to
// twenty times its text, and a hostile file must not fill the machine.
const LINE_BYTES_MAX: usize = 8 << 20;

/// A trace whose first line is right.
#[derive(Debug)]
pub struct Trace<'a> {
    /// Its name, by its first line.
    pub name: String,
    /// Number of its records.
    pub records: u64,
    lines: &'a str,
}

/// One record.
#[derive(Debug)]
pub struct Record<'a> {
    /// The line it stands on; the record's number is one less.
    pub line: u64,
    /// What is done.
    pub op: Op,
    /// What the reference answered.
    pub expected: Expected<'a>,
}

/// What the reference did.
#[derive(Debug)]
pub enum Expected<'a> {
    /// It answered.
    Outcome(Fields<'a>),
    /// It stopped the kernel.
    Stop {
        /// Why.
        stop: Stop,
        /// What is said beside.
        facts: Fields<'a>,
    },
}

/// A way in which the reference stops the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Freed through no pointer.
    NullChunk,
    /// Freed through a pointer to a chunk that is gone.
    BadMagic,
    /// The list of a process that has none.
    ProcessNotAttached,
    /// Chunks left at the end.
    ChunksRemaining,
    /// A unit size that is no multiple of the page size.
    MinAllocSize,
    /// An invalid memory access.
    Oops,
}

impl Stop {
    const ALL: [Self; 6] = [
        Self::NullChunk,
        Self::BadMagic,
        Self::ProcessNotAttached,
        Self::ChunksRemaining,
        Self::MinAllocSize,
        Self::Oops,
    ];

    /// The stop's name in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NullChunk => "null_chunk",
            Self::BadMagic => "bad_magic",
            Self::ProcessNotAttached => "process_not_attached",
            Self::ChunksRemaining => "chunks_remaining",
            Self::MinAllocSize => "min_alloc_size",
            Self::Oops => "oops",
        }
    }
}

/// A trace that is not as the format has it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It holds no object.
    #[error(transparent)]
    Line(#[from] LineError),
    /// It has no operation.
    #[error("field `op` is {found}: it must be the name of an operation")]
    NoOp {
        /// What it has instead.
        found: String,
    },
    /// The operation is not right.
    #[error(transparent)]
    Op(#[from] OpError),
    /// There is no outcome, or not an object.
    #[error("field `out` is {found}: it must be an object, what the reference answered")]
    NoOutcome {
        /// What it has instead.
        found: String,
    },
    /// A stop that nobody knows.
    #[error("stop {found} is not one of {}; an oops is written as true", Stop::ALL.map(Stop::name).join(", "))]
    UnknownStop {
        /// What was found.
        found: String,
    },
    /// The file has no line.
    #[error("the file is empty: its first line must be {{\"op\":\"meta\",\"format\":{FORMAT},…}}")]
    Empty,
    /// The first line is no `meta`.
    #[error(
        "the first line must be {{\"op\":\"meta\",\"format\":{FORMAT},…}}, or {{\"scenario\":…}} in a trace of the DMA layer, but its `op` is {found}"
    )]
    NotMeta {
        /// The operation found.
        found: String,
    },
    /// Another version of the format.
    #[error("format version {found} is not supported: it must be {FORMAT}")]
    Version {
        /// The version found.
        found: String,
    },
    /// Another field of the first line is not right.
    #[error("meta: {0}")]
    Meta(#[source] ArgumentError),
    /// There are more or fewer records than the first line says.
    #[error(
        "the file has {found} records, but its first line says {stated}: it is cut short or glued together"
    )]
    Count {
        /// Records that the file has.
        found: u64,
        /// Records that it should have.
        stated: u64,
    },
    /// A record for which there is no device.
    #[error("{op} before the first init: a trace's first record must be init")]
    BeforeInit {
        /// Its operation.
        op: &'static str,
    },
    /// An id was given to two chunks.
    #[error("alloc: {id} was used since the last init: ids must be new")]
    IdUsed {
        /// The id.
        id: ChunkId,
    },
}

impl Problem {
    /// The error that this is on a line.
    #[must_use]
    pub fn on(self, line: u64) -> TraceError {
        TraceError {
            line,
            problem: self,
        }
    }
}

impl<'a> Trace<'a> {
    /// Reads the first line and counts the others.
    ///
    /// # Errors
    /// [`TraceError`] if the first line is not that of a memory-pool trace, or the number of
    /// records is not what it says.
    pub fn parse(text: &'a str) -> Result<Self, TraceError> {
        let (first, lines) = text.split_once('\n').unwrap_or((text, ""));
        if first.trim().is_empty() {
            return Err(Problem::Empty.on(1));
        }
        let (name, stated) = meta(first).map_err(|problem| problem.on(1))?;
        let found = lines.lines().count() as u64;
        if found != stated {
            // The first record too many, or the line where one is missing.
            return Err(Problem::Count { found, stated }.on(found.min(stated) + 2));
        }
        Ok(Self {
            name,
            records: stated,
            lines,
        })
    }

    /// The records, in order, each read when it is asked for.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'a>, TraceError>> {
        (2..).zip(self.lines.lines()).map(|(line, text)| {
            let (op, expected) = record(text).map_err(|problem| problem.on(line))?;
            Ok(Record { line, op, expected })
        })
    }
}

/// Name and number of records by the first line. Fields that say more about the recording are
/// allowed.
fn meta(text: &str) -> Result<(String, u64), Problem> {
    let mut fields = object(text)?;
    match fields.take("op") {
        Some(Value::Text(op)) if op == "meta" => {}
        other => {
            return Err(Problem::NotMeta {
                found: shown(other),
            });
        }
    }
    match fields.take("format") {
        Some(Value::Int(FORMAT)) => {}
        other => {
            return Err(Problem::Version {
                found: shown(other),
            });
        }
    }
    let name = match fields.take("name") {
        Some(Value::Text(name)) => name.into_owned(),
        _ => String::new(),
    };
    let records = Arguments::new(fields).required("records");
    Ok((name, records.map_err(Problem::Meta)?))
}

fn record(text: &str) -> Result<(Op, Expected<'_>), Problem> {
    let mut fields = object(text)?;
    let name = match fields.take("op") {
        Some(Value::Text(name)) => name,
        other => {
            return Err(Problem::NoOp {
                found: shown(other),
            });
        }
    };
    let out = fields.take("out");
    let op = Op::parse(&name, Arguments::new(fields))?;
    match out {
        Some(Value::Object(outcome)) => Ok((op, expected(outcome)?)),
        other => Err(Problem::NoOutcome {
            found: shown(other),
        }),
    }
}

fn expected(mut outcome: Fields<'_>) -> Result<Expected<'_>, Problem> {
    if let Some(code) = outcome.take("bug") {
        let named = |stop: &Stop| code == Value::from(stop.name()) && *stop != Stop::Oops;
        let stop = Stop::ALL.into_iter().find(named);
        return match stop {
            Some(stop) => Ok(Expected::Stop {
                stop,
                facts: outcome,
            }),
            None => Err(Problem::UnknownStop {
                found: code.to_string(),
            }),
        };
    }
    match outcome.take("oops") {
        None => Ok(Expected::Outcome(outcome)),
        Some(Value::Bool(true)) => Ok(Expected::Stop {
            stop: Stop::Oops,
            facts: outcome,
        }),
        Some(other) => Err(Problem::UnknownStop {
            found: format!("oops: {other}"),
        }),
    }
}

fn object(text: &str) -> Result<Fields<'_>, LineError> {
    line::object(text, LINE_BYTES_MAX, "{\"op\":…}")
}

fn shown(value: Option<Value<'_>>) -> String {
    value.map_or_else(|| "missing".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::op::Call;
    use super::*;

    const META: &str = r#"{"op":"meta","format":1,"name":"t","reference":"2.24.7.0","records":1}"#;

    /// Reads a trace to its end and gives what is wrong with it.
    fn error(text: &str) -> String {
        let problem = match Trace::parse(text) {
            Ok(trace) => trace.records().find_map(Result::err),
            Err(error) => Some(error),
        };
        problem.map_or_else(|| "nothing".to_owned(), |error| error.to_string())
    }

    /// What is wrong with this record, on line 2.
    fn error_in(record: &str) -> String {
        error(&format!("{META}\n{record}\n"))
    }

    #[test]
    fn a_record_has_its_line_operation_and_outcome() {
        let text = format!("{META}\n{}\n", r#"{"op":"ref","id":4,"out":{"ref":2}}"#);
        let trace = Trace::parse(&text).unwrap();
        assert_eq!((trace.name.as_str(), trace.records), ("t", 1));
        let record = trace.records().next().unwrap().unwrap();
        assert_eq!(
            (record.line, record.op),
            (2, Op::Call(Call::Ref(ChunkId(4))))
        );
        assert!(
            matches!(record.expected, Expected::Outcome(out) if out == Fields::new().with("ref", 2))
        );
    }

    #[test]
    fn stops_are_read_with_what_stands_beside() {
        let text = format!(
            "{META}\n{}",
            r#"{"op":"teardown","out":{"bug":"chunks_remaining","remaining":2}}"#
        );
        let record = Trace::parse(&text)
            .unwrap()
            .records()
            .next()
            .unwrap()
            .unwrap();
        let Expected::Stop { stop, facts } = record.expected else {
            panic!("no stop");
        };
        assert_eq!(
            (stop, facts),
            (Stop::ChunksRemaining, Fields::new().with("remaining", 2))
        );
    }

    #[test]
    fn a_first_line_that_is_no_meta_is_refused() {
        assert!(error("").contains("line 1: the file is empty"));
        assert!(error(r#"{"op":"init","arch":"v2","out":{}}"#).contains(r#"its `op` is "init""#));
        assert!(
            error(r#"{"op":"meta","format":2,"records":0}"#)
                .contains("format version 2 is not supported: it must be 1")
        );
        assert!(
            error(r#"{"op":"meta","format":1}"#)
                .contains("line 1: meta: argument `records` is missing")
        );
    }

    #[test]
    fn a_count_that_is_not_what_the_first_line_says_names_the_line() {
        assert!(
            error(META).starts_with("line 2: the file has 0 records, but its first line says 1")
        );
        let record = r#"{"op":"hstat","out":{}}"#;
        assert!(
            error(&format!("{META}\n{record}\n{record}\n"))
                .starts_with("line 3: the file has 2 records")
        );
    }

    #[test]
    fn a_line_that_cannot_be_a_record_says_why() {
        assert!(
            error_in(r#"{"op":"free","id":1,"#)
                .starts_with("line 2: not JSON as traces have it, at column ")
        );
        assert!(error_in("").starts_with("line 2: not JSON"));
        assert_eq!(
            error_in("[1]"),
            "line 2: [1] where an object {\"op\":…} must stand"
        );
        assert!(error_in(r#"{"id":1}"#).contains("field `op` is missing"));
        assert!(error_in(r#"{"op":"hstat"}"#).contains("field `out` is missing"));
        assert!(error_in(r#"{"op":"hstat","out":3}"#).contains("field `out` is 3"));
        assert!(error_in(r#"{"op":"free","out":{}}"#).contains("free: argument `id` is missing"));
        assert!(
            error_in(r#"{"op":"defrag","out":{}}"#)
                .contains(r#"operation "defrag" is not one of init"#)
        );
        assert!(
            error_in(r#"{"op":"hstat","out":{"bug":"other"}}"#)
                .contains(r#"stop "other" is not one of null_chunk"#)
        );
        assert!(
            error_in(r#"{"op":"hstat","out":{"oops":1}}"#).contains("stop oops: 1 is not one of")
        );
    }
}
