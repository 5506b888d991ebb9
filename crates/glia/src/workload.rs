//! Workloads: what programs do to device memory, as JSON Lines.
//!
//! A file names a machine and then, line by line, what is done on it: allocate, write a seeded
//! pattern, read and verify, free; load models that own memory; start and kill processes. Every
//! line can say which error it expects. The format is described in docs/formats/workload.md.
//!
//! ```text
//!   line ──► parameters put in ──► keys (fields.rs) ──► Op (line.rs) ──► whoever runs it
//! ```
//!
//! [`Reader`] turns lines into [`Op`]s one by one, so that a file needs no memory for what lies
//! ahead or behind; [`play`](crate::play) runs them.

mod error;
mod fields;
mod header;
mod line;
mod params;
mod reader;
pub mod rebuild;
mod size;
mod text;

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_runtime::ScratchVariable;

pub use error::{Fault, WorkloadError};
pub use header::{Engine, Header, Overrides};
pub use reader::Reader;
pub use size::BadSize;

pub(crate) use error::ranges;
pub(crate) use header::DEVICES_MAX;
pub(crate) use size::Size;
pub(crate) use text::Object;

use crate::faults::PlanFile;

/// Version of the workload format. Operations and keys may be added without a new one, since a
/// reader refuses those that it does not know; one that goes or changes its meaning makes it 2.
pub const WORKLOAD_FORMAT: u64 = 1;

/// How a recording begins, and no other workload: a key of its first line, which means nothing.
pub const RECORDING_STARTS: &str = "{\"recorded\":1,\"workload\":";

/// How a workload begins that rebuilds a report of a log, and one written by hand hardly.
pub const REBUILT_STARTS: &str = "{\"report\":";

// LIMIT: ids of models on the way to the one that a line names are used up one by one.
pub(crate) const NEFFS_MAX: u32 = 100_000;

/// The process that runs from the beginning.
pub const MAIN: &str = "main";

/// One operation, with the error that it is to end in.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<'a> {
    /// The line that it stands on, from 1.
    pub line: u64,
    /// The line, with parameters put in.
    pub text: &'a [u8],
    /// What is done.
    pub op: Op<'a>,
    /// How it is to end.
    pub expect: NrtStatus,
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
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
    /// Fills with one value.
    Memset {
        /// Which object.
        id: &'a str,
        /// Where.
        range: Range,
        /// With what.
        value: u8,
    },
    /// Copies between two tensors.
    Copy(Copy<'a>),
    /// Makes a view of a part of a tensor.
    Slice(Slice<'a>),
    /// Makes a buffer of the program the bytes of a tensor.
    Attach(Attach<'a>),
    /// Writes patterns to many ranges by one call.
    WriteBatch(Batch<'a>),
    /// Reads many ranges by one call, and compares.
    ReadBatch(Batch<'a>),
    /// Reserves variables of the scratchpad for a model.
    Reserve {
        /// Which model.
        id: &'a str,
        /// What it keeps there.
        variables: Vec<ScratchVariable>,
    },
    /// Resets cores, or a device.
    Reset(Reset<'a>),
    /// Starts a process.
    Start {
        /// What it is called.
        id: &'a str,
    },
    /// Ends a process in order: what it holds goes back first.
    Exit {
        /// Which.
        id: &'a str,
    },
    /// Ends a process as a signal does.
    Kill {
        /// Which.
        id: &'a str,
    },
    /// Orders a fault from now on.
    Fault {
        /// What it is called.
        id: &'a str,
        /// The one rule.
        plan: Box<PlanFile>,
    },
    /// Takes a fault back.
    Mend {
        /// Which.
        id: &'a str,
    },
    /// Compares sizes with what is expected.
    Check(Check),
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
    /// The model that owns it, whose process, device and core are its; `None` if it lives with the
    /// core.
    pub model: Option<&'a str>,
    /// The process that takes it; `None` for the first one.
    pub process: Option<&'a str>,
    /// Where it is to lie, if that matters.
    pub at: Option<BusAddr>,
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
    /// The process that loads it; `None` for the first one.
    pub process: Option<&'a str>,
}

/// A part of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub offset_bytes: u64,
    /// Its bytes; `None` for all the rest.
    pub size_bytes: Option<u64>,
}

/// A copy between two tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy<'a> {
    /// From which.
    pub id: &'a str,
    /// Which part of it.
    pub range: Range,
    /// To which.
    pub to: &'a str,
    /// Where there.
    pub to_offset_bytes: u64,
}

/// A view of a part of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice<'a> {
    /// The view.
    pub id: &'a str,
    /// The tensor, or view, that it is cut from.
    pub of: &'a str,
    /// Which part of that.
    pub range: Range,
    /// What the runtime calls it.
    pub name: &'a str,
}

/// A buffer of the program for a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attach<'a> {
    /// The tensor; an empty one is made first if there is none of this name.
    pub id: &'a str,
    /// Bytes of the buffer.
    pub size_bytes: u64,
    /// What the runtime calls a tensor that is made.
    pub name: &'a str,
    /// The process of a tensor that is made; `None` for the first one.
    pub process: Option<&'a str>,
}

/// Many ranges in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<'a> {
    /// In their order.
    pub parts: Vec<Part<'a>>,
    /// Whether other accesses to the tensors are waited for.
    pub is_fenced: bool,
}

/// A range of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// Of which tensor.
    pub id: &'a str,
    /// Which part.
    pub range: Range,
    /// The pattern to write.
    pub seed: u64,
}

/// A reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset<'a> {
    /// Of which device.
    pub device: DeviceId,
    /// A bit for each core that is reset; `None` for the whole device.
    pub cores: Option<u32>,
    /// The process that asks for it; `None` for the first one.
    pub process: Option<&'a str>,
}

/// Sizes of an HBM channel that are to lie within bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The device.
    pub device: DeviceId,
    /// The channel.
    pub hbm: Channel,
    /// What is looked at, and its bounds.
    pub bounds: Vec<(Gauge, Bounds)>,
}

/// A size that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gauge {
    /// Bytes in use, as the runtimes count.
    Present,
    /// The most that ever were.
    Peak,
    /// Bytes that the driver has left.
    Free,
    /// Bytes of its largest hole.
    LargestFree,
}

/// The least and the greatest that is as expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub least: u64,
    /// The greatest.
    pub most: u64,
}

impl Gauge {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Present, Self::Peak, Self::Free, Self::LargestFree];

    /// The key of its bounds.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Peak => "peak",
            Self::Free => "free",
            Self::LargestFree => "largest_free",
        }
    }
}

macro_rules! kinds {
    ($($kind:ident $name:literal $pattern:pat,)*) => {
        /// What an operation is called.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant is an operation of the format")]
        pub enum OpKind {
            $($kind,)*
        }

        impl OpKind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name in workloads.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The kind of this name.
            pub(crate) fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$kind),)* _ => None }
            }
        }

        impl Op<'_> {
            /// What it is called.
            #[must_use]
            pub fn kind(&self) -> OpKind {
                match self { $($pattern => OpKind::$kind,)* }
            }
        }
    };
}

kinds! {
    Alloc "alloc" Self::Alloc(_),
    Write "write" Self::Write { .. },
    Read "read" Self::Read { .. },
    Free "free" Self::Free { .. },
    Load "load" Self::Load(_),
    Unload "unload" Self::Unload { .. },
    Memset "memset" Self::Memset { .. },
    Copy "copy" Self::Copy(_),
    Slice "slice" Self::Slice(_),
    Attach "attach" Self::Attach(_),
    WriteBatch "write_batch" Self::WriteBatch(_),
    ReadBatch "read_batch" Self::ReadBatch(_),
    Reserve "reserve" Self::Reserve { .. },
    Reset "reset" Self::Reset(_),
    Start "start" Self::Start { .. },
    Exit "exit" Self::Exit { .. },
    Kill "kill" Self::Kill { .. },
    Fault "fault" Self::Fault { .. },
    Mend "mend" Self::Mend { .. },
    Check "check" Self::Check(_),
}

impl OpKind {
    /// Its position in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl Op<'_> {
    /// What it is about: an object, a model, a process, a fault; its own name if none of these.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Alloc(Alloc { id, .. })
            | Self::Load(Load { id, .. })
            | Self::Copy(Copy { id, .. })
            | Self::Slice(Slice { id, .. })
            | Self::Attach(Attach { id, .. })
            | Self::Write { id, .. }
            | Self::Read { id, .. }
            | Self::Free { id }
            | Self::Unload { id }
            | Self::Memset { id, .. }
            | Self::Reserve { id, .. }
            | Self::Start { id }
            | Self::Exit { id }
            | Self::Kill { id }
            | Self::Fault { id, .. }
            | Self::Mend { id } => id,
            Self::WriteBatch(_) | Self::ReadBatch(_) | Self::Reset(_) | Self::Check(_) => {
                self.kind().name()
            }
        }
    }
}
