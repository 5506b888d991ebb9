//! Workloads: what a program does to device memory, as JSON Lines.
//!
//! A file names a machine and then, line by line, what is done on it: allocate, write a seeded
//! pattern, read and verify, free; load models that own memory. Every line can say which error it expects. The format is
//! described in docs/formats/workload.md.
//!
//! [`Reader`] turns lines into [`Op`]s one by one, so that a file needs no memory for what lies
//! ahead or behind; [`play`](crate::play) runs them.

mod line;
mod reader;
pub mod rebuild;
mod size;

use glia_abi::handle::{CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;

pub use reader::{Fault, Reader, WorkloadError};
pub use size::BadSize;

pub(crate) use line::DEVICES_MAX;
pub(crate) use size::Size;

use crate::machine::Model;

/// Version of the workload format.
pub const WORKLOAD_FORMAT: u64 = 1;

/// The first line: what the workload runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which machine.
    pub model: Model,
    /// How many devices it has.
    pub devices: u32,
    /// Which report of a log the workload rebuilds, from 1; `None` if it rebuilds none.
    pub report: Option<u64>,
}

/// One operation, with the error that it is to end in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<'a> {
    /// The line that it stands on, from 1.
    pub line: u64,
    /// What is done.
    pub op: Op<'a>,
    /// How it is to end.
    pub expect: NrtStatus,
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op<'a> {
    /// Takes memory.
    Alloc(Alloc<'a>),
    /// Writes the pattern of a seed.
    Write {
        /// Into which object.
        id: &'a str,
        /// Where.
        range: Range,
        /// Which pattern.
        seed: u64,
    },
    /// Reads, and compares with what was written.
    Read {
        /// From which object.
        id: &'a str,
        /// Where.
        range: Range,
    },
    /// Gives memory back.
    Free {
        /// Which object.
        id: &'a str,
    },
    /// Loads a model, which then can own memory.
    Load(Load<'a>),
    /// Unloads a model; what it owns goes back.
    Unload {
        /// Which model.
        id: &'a str,
    },
}

/// A request for memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alloc<'a> {
    /// The object's name in the workload.
    pub id: &'a str,
    /// Bytes.
    pub size_bytes: u64,
    /// Alignment in bytes; 0 for none.
    pub align_bytes: u64,
    /// The device.
    pub device: DeviceId,
    /// The core of that device.
    pub core: CoreId,
    /// HBM or host memory.
    pub location: Location,
    /// What for.
    pub usage: MemUsage,
    /// What reports call it; the id if the line does not say.
    pub name: &'a str,
    /// The model that owns it, whose device and core are its; `None` if it lives with the core.
    pub model: Option<&'a str>,
}

/// A model to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load<'a> {
    /// The model's name in the workload.
    pub id: &'a str,
    /// The device.
    pub device: DeviceId,
    /// The core of that device.
    pub core: CoreId,
    /// The id under which reports are to list it; `None` for the next one.
    pub neff: Option<u32>,
    /// What reports call it; the id if the line does not say.
    pub name: &'a str,
}

/// A part of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub offset_bytes: u64,
    /// Its bytes; `None` for all the rest.
    pub size_bytes: Option<u64>,
}

impl Op<'_> {
    /// The object or model that it is about.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Alloc(alloc) => alloc.id,
            Self::Load(load) => load.id,
            Self::Write { id, .. }
            | Self::Read { id, .. }
            | Self::Free { id }
            | Self::Unload { id } => id,
        }
    }
}
