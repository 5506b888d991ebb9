//! What is wrong with a workload, and where.

use std::io;

use crate::faults::{FaultsError, meant};
use crate::machine::{EngineClash, MachineFileError, Model};

use super::reader::LINE_BYTES_MAX;

/// Why a workload cannot be run, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct WorkloadError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is longer than a line can be.
    #[error("is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// It is no JSON object of the keys that are allowed.
    #[error("{}", message(.0))]
    Json(#[from] serde_json::Error),
    /// The file begins with something else.
    #[error(
        "no workload: that begins with a line such as {{\"workload\":1,\"machine\":\"trn2\"}}, and this with {begins:?}; a log is read by `glia explain`"
    )]
    NoWorkload {
        /// How it begins.
        begins: String,
    },
    /// The first line does not say that this is a workload.
    #[error(
        "a workload begins with a line such as {{\"workload\":1,\"machine\":\"trn2\"}}: no \"workload\" here"
    )]
    NoHeader,
    /// It is of another version.
    #[error(
        "workload format {found}: this is for format {}",
        super::WORKLOAD_FORMAT
    )]
    Format {
        /// The version.
        found: u64,
    },
    /// A key is missing.
    #[error("{what} needs \"{key}\"")]
    Missing {
        /// Of what.
        what: &'static str,
        /// Which.
        key: &'static str,
    },
    /// A key that does not exist.
    #[error("unknown key \"{key}\"{}; allowed on {what} are {}", meant(*.nearest), allowed.join(", "))]
    UnknownKey {
        /// On what.
        what: &'static str,
        /// Which.
        key: String,
        /// The nearest right one.
        nearest: Option<&'static str>,
        /// All right ones.
        allowed: &'static [&'static str],
    },
    /// A key stands where it means nothing.
    #[error("\"{key}\" means nothing on {what}: allowed are {}", allowed.join(", "))]
    Misplaced {
        /// On what.
        what: &'static str,
        /// Which.
        key: &'static str,
        /// The keys that mean something there.
        allowed: &'static [&'static str],
    },
    /// A word that is none of those allowed.
    #[error("unknown {key} {found:?}: allowed are {allowed}")]
    Unknown {
        /// Under which key.
        key: &'static str,
        /// The word.
        found: String,
        /// All words that are allowed.
        allowed: String,
    },
    /// A number that is out of range.
    #[error("{key} {found}: {least} to {most} are allowed")]
    OutOfRange {
        /// Under which key.
        key: &'static str,
        /// The number.
        found: u64,
        /// The least allowed.
        least: u64,
        /// The greatest allowed.
        most: u64,
    },
    /// A device, a core or an HBM that the machine does not have.
    #[error("{key} {found}: 0 to {} are allowed: {}", .count.saturating_sub(1), there(.key, *.count, *.model))]
    NotThere {
        /// Under which key.
        key: &'static str,
        /// The number.
        found: u32,
        /// How many the machine has: devices, or cores or HBMs of each device.
        count: u32,
        /// Which machine.
        model: Model,
    },
    /// All ids that a model can have in reports have been used up.
    #[error("neff {found}: ids only go up, and all up to {most}, the last one, are used up")]
    NeffsUsed {
        /// The id.
        found: u32,
        /// The last one.
        most: u32,
    },
    /// A parameter has no value.
    #[error("parameter {name:?} has no value: give it with --param {name}=VALUE")]
    NoValue {
        /// The parameter.
        name: String,
    },
    /// A parameter was given something else than its kind.
    #[error("parameter {name:?} is a whole number, 0 to 2^64 - 1, and {found:?} is none")]
    NoNumber {
        /// The parameter.
        name: String,
        /// What it was given.
        found: String,
    },
    /// A fault that is ordered cannot be meant.
    #[error("{0}")]
    Rule(Box<FaultsError>),
    /// The machine of the first line cannot be meant.
    #[error("machine: {0}")]
    Machine(Box<MachineFileError>),
    /// A key of the first line that a machine in full says itself.
    #[error(
        "\"{key}\" {found} stands beside a machine in full, which says {key} {own} itself: leave it out here"
    )]
    Beside {
        /// The key.
        key: &'static str,
        /// What it says.
        found: String,
        /// What the machine says.
        own: String,
    },
    /// Engines are to run as they cannot on this machine.
    #[error(transparent)]
    Engine(#[from] EngineClash),
    /// An object is named that does not live.
    #[error(
        "no object {id:?} lives here: it was never allocated, its allocation failed, it has been freed, or it went with its model or its process"
    )]
    NoObject {
        /// The name.
        id: String,
    },
    /// A model is named that is not loaded.
    #[error(
        "no model {id:?} is loaded here: it never was, it has been unloaded, or it went with its process"
    )]
    NoModel {
        /// The name.
        id: String,
    },
    /// A process is named that does not run.
    #[error("no process {id:?} runs here: it was never started, or it has ended")]
    NoProcess {
        /// The name.
        id: String,
    },
    /// A fault is named that is not ordered.
    #[error("no fault {id:?} is ordered here: it never was, or it has been mended")]
    NoFault {
        /// The name.
        id: String,
    },
    /// What is made under a name that lives.
    #[error("{what} {id:?} {lives} since line {since}")]
    Second {
        /// An object, a model, a process or a fault.
        what: &'static str,
        /// The name.
        id: String,
        /// How it lives.
        lives: &'static str,
        /// The line that made it.
        since: u64,
    },
    /// Something that only tensors can is asked of another object.
    #[error(
        "object {id:?} is no tensor, as {op} needs: a tensor is made by an alloc of usage tensor in device memory, without align and model, or by slice or attach"
    )]
    NoTensor {
        /// The object.
        id: String,
        /// What is asked.
        op: &'static str,
    },
    /// One call is to use objects of two processes.
    #[error("objects {one:?} and {other:?} are of two processes, and no call reaches both")]
    TwoProcesses {
        /// An object.
        one: String,
        /// One of another process.
        other: String,
    },
}

/// How many of something a machine has, and how it comes to have more.
fn there(key: &str, count: u32, model: Model) -> String {
    if key == "device" {
        let devices = match count {
            1 => "1 device".to_owned(),
            count => format!("{count} devices"),
        };
        return format!(
            "the machine has {devices}; \"devices\" of the first line or of the machine's file, or \
             --devices, gives it others"
        );
    }
    let name = match model {
        // It has the devices of a Trn1, and no name of its own is kept.
        Model::Trn1 => "trn1 or inf2",
        model => model.name(),
    };
    let what = if key == "hbm" { "HBMs" } else { "cores" };
    format!("each device of a {name} has {count} {what}")
}

/// What the parser says, without the line of its own count, which is always the first, and with the
/// ranges of numbers in place of Rust's names for them.
fn message(error: &serde_json::Error) -> String {
    ranges(&error.to_string().replace(" at line 1 column ", ", column "))
}

/// What a parser says, with the ranges of numbers in place of Rust's names for them.
pub(crate) fn ranges(text: &str) -> String {
    let ranges = [
        ("expected u8", "expected a whole number, 0 to 255"),
        ("expected u32", "expected a whole number, 0 to 4294967295"),
        ("expected u64", "expected a whole number, 0 to 2^64 - 1"),
        (
            "expected a nonzero u32",
            "expected a whole number, 1 to 4294967295",
        ),
        (
            "expected a nonzero u64",
            "expected a whole number, 1 to 2^64 - 1",
        ),
    ];
    let named = ranges.iter().find(|(name, _)| text.contains(name));
    named.map_or_else(
        || text.to_owned(),
        |(name, range)| text.replace(name, range),
    )
}
