//! A trace of the DMA layer: scenarios, one record a line.

use super::super::arguments::{ArgumentError, Arguments};
use super::super::line::{self, LineError};
use super::super::value::{Fields, Value};
use super::op::{Op, Scenario};

// LIMIT: the longest line recorded has some 30 kB. A value in memory takes up to twenty times its
// text, and a hostile file must not fill the machine.
const LINE_BYTES_MAX: usize = 1 << 20;

/// What a scenario's line is called in reports.
const SCENARIO: &str = "scenario";

/// One record.
#[derive(Debug)]
pub struct Record<'a> {
    /// The line it stands on, from 1.
    pub line: u64,
    /// Its operation's name.
    pub name: &'static str,
    /// What is done.
    pub op: Op,
    /// What the reference did.
    pub expected: Fields<'a>,
}

/// A trace that is not as the format has it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct DmaTraceError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    #[source]
    pub problem: DmaProblem,
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaProblem {
    /// It holds no object.
    #[error(transparent)]
    Line(#[from] LineError),
    /// It has no operation.
    #[error("field `op` is {found}: it must be the name of an operation")]
    NoOp {
        /// What it has instead.
        found: String,
    },
    /// There is no such operation.
    #[error("operation \"{found}\" is not one of {}", Op::names().collect::<Vec<_>>().join(", "))]
    UnknownOp {
        /// The name found.
        found: String,
    },
    /// An argument is not as it must be.
    #[error("{op}: {source}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// What is wrong.
        source: ArgumentError,
    },
    /// The record names an object that the scenario does not have.
    #[error(
        "{op}: `{argument}` is \"{name}\": it must be a chunk or buffer of this scenario ({known})"
    )]
    NoObject {
        /// The operation.
        op: &'static str,
        /// The argument.
        argument: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The record means bytes that its object does not have.
    #[error("{op}: `{name}` has {object_bytes} bytes, and none at offset {offset} + {size_bytes}")]
    OutOfObject {
        /// The operation.
        op: &'static str,
        /// The object.
        name: String,
        /// Its size.
        object_bytes: u64,
        /// Where the range begins.
        offset: u64,
        /// Its size.
        size_bytes: u64,
    },
    /// An address at which nothing can be.
    #[error("{op}: address {at:x} cannot be: {rule}")]
    BadAddress {
        /// The operation.
        op: &'static str,
        /// The address.
        at: u64,
        /// What is allowed.
        rule: &'static str,
    },
    /// A device that cannot be added.
    #[error("{op}: device {device} is there already, or there are too many")]
    BadDevice {
        /// The operation.
        op: &'static str,
        /// Its number.
        device: u32,
    },
}

impl DmaProblem {
    /// The error that this is on a line.
    #[must_use]
    pub fn on(self, line: u64) -> DmaTraceError {
        DmaTraceError {
            line,
            problem: self,
        }
    }
}

/// Whether a text begins as a trace of the DMA layer does.
#[must_use]
pub fn is_dma(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    object(first).is_ok_and(|fields| fields.get(SCENARIO).is_some())
}

/// The records of a trace, in order, each read when it is asked for.
pub fn records(text: &str) -> impl Iterator<Item = Result<Record<'_>, DmaTraceError>> {
    (1..)
        .zip(text.lines())
        .map(|(line, text)| record(line, text).map_err(|problem| problem.on(line)))
}

fn record(line: u64, text: &str) -> Result<Record<'_>, DmaProblem> {
    let mut fields = object(text)?;
    if fields.get(SCENARIO).is_some() {
        let mut arguments = Arguments::new(fields);
        let argument = |source| DmaProblem::Argument {
            op: SCENARIO,
            source,
        };
        let scenario = Scenario::take(&mut arguments).map_err(argument)?;
        return Ok(Record {
            line,
            name: SCENARIO,
            op: Op::Scenario(scenario),
            expected: arguments.rest(),
        });
    }
    let found = match fields.take("op") {
        Some(Value::Text(name)) => name,
        other => {
            return Err(DmaProblem::NoOp {
                found: other.map_or_else(|| "missing".to_owned(), |value| value.to_string()),
            });
        }
    };
    let unknown = || DmaProblem::UnknownOp {
        found: found.clone().into_owned(),
    };
    let name = Op::names()
        .find(|name| *name == found)
        .ok_or_else(unknown)?;
    let mut arguments = Arguments::new(fields);
    let argument = |source| DmaProblem::Argument { op: name, source };
    let op = Op::take(name, &mut arguments)
        .map_err(argument)?
        .ok_or_else(unknown)?;
    let expected = match op {
        Op::SetUp(_) => {
            arguments.finish().map_err(argument)?;
            Fields::new()
        }
        Op::Scenario(_) | Op::Call(_) => arguments.rest(),
    };
    Ok(Record {
        line,
        name,
        op,
        expected,
    })
}

fn object(text: &str) -> Result<Fields<'_>, LineError> {
    line::object(text, LINE_BYTES_MAX, "{\"op\":…} or {\"scenario\":…}")
}
