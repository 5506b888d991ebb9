//! What was covered, as data (docs/formats/coverage.md).

use std::collections::BTreeMap;

use glia_abi::errno::Errno;
use glia_abi::ioctl::Command;
use glia_driver::command_of;
use serde::Serialize;

use super::port::RegisterName;
use super::{Accesses, Calls};

/// Version of what [`CoverageReport`] is written as.
pub const COVERAGE_FORMAT: u32 = 1;

/// All that was exercised, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoverageReport {
    /// [`COVERAGE_FORMAT`].
    pub format: u32,
    /// Command words that came, by number.
    pub commands: Vec<CommandCoverage>,
    /// Commands of the reference that never came.
    pub not_called: Vec<UnusedCommand>,
    /// Registers that were read or written.
    pub registers: Vec<RegisterCoverage>,
    /// The others, by name.
    pub not_accessed: Vec<String>,
    /// Accesses to what no register has.
    pub stray_accesses: u64,
}

/// A command word that came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandCoverage {
    /// The command that the driver took it for; `None` if it is none of the reference.
    pub name: Option<&'static str>,
    /// Its word, in hexadecimal.
    pub word: String,
    /// How often it was taken as built, unimplemented, unknown, or in the wrong lane.
    pub classes: BTreeMap<&'static str, u64>,
    /// How often it ended well.
    pub done: u64,
    /// How often with which error.
    pub errors: BTreeMap<String, u64>,
}

/// A command that never came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusedCommand {
    /// The command.
    pub name: &'static str,
    /// Its word, in hexadecimal.
    pub word: String,
}

/// A register that was read or written, in any engine and queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegisterCoverage {
    /// The register.
    pub name: String,
    /// How often it was read.
    pub reads: u64,
    /// How often it was written.
    pub writes: u64,
}

impl CommandCoverage {
    pub(super) fn new(word: u32, calls: &Calls) -> Self {
        Self {
            name: command_of(word).map(|command| command.name),
            word: hexadecimal(word),
            classes: calls.classes.clone(),
            done: calls.done,
            errors: (calls.errors.iter())
                .map(|(&number, &count)| (error_name(number), count))
                .collect(),
        }
    }
}

impl UnusedCommand {
    pub(super) fn new(command: &Command) -> Self {
        Self {
            name: command.name,
            word: hexadecimal(command.word),
        }
    }
}

impl RegisterCoverage {
    pub(super) fn new(name: RegisterName, accesses: Accesses) -> Self {
        Self {
            name: name.to_string(),
            reads: accesses.reads,
            writes: accesses.writes,
        }
    }
}

fn hexadecimal(word: u32) -> String {
    format!("{word:#010x}")
}

fn error_name(number: i32) -> String {
    let known = Errno::ALL.into_iter().find(|it| it.number() == number);
    known.map_or_else(|| number.to_string(), |errno| errno.to_string())
}
