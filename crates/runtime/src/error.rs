//! What can go wrong in the runtime.

use std::fmt;

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::transport::MappingError;

use crate::dml::OomReport;
use crate::explanation::Explanation;
use crate::ndl::NdlError;
use crate::scratchpad::ScratchVariable;

/// Why a call of the runtime failed. [`status`](Self::status) is the code that the C API gives.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The device has no room. The report tells who holds what.
    #[error(transparent)]
    DeviceMemory(Box<OomReport>),
    /// The host has no room that the device could reach.
    #[error("no host memory for {size_bytes} bytes")]
    HostMemory {
        /// Bytes that the driver was asked for.
        size_bytes: u64,
        /// Where the events of the device were written; `None` if they were not.
        events_file: Option<String>,
        /// Who holds it; `None` where nobody can look into the driver.
        explanation: Option<Box<Explanation>>,
    },
    /// The driver had no handle, or no attach slot: something ran out that is not memory.
    #[error("{source}")]
    Exhausted {
        /// What the driver answered.
        source: NdlError,
        /// What ran out, and who holds it.
        explanation: Box<Explanation>,
    },
    /// The driver refused a call, or a copy failed.
    #[error(transparent)]
    Driver(#[from] NdlError),
    /// This usage is not allowed at this location.
    #[error("usage {usage} is not allowed in {location} memory")]
    UsageRefused {
        /// What the memory was to be for.
        usage: MemUsage,
        /// Where it was to be.
        location: Location,
    },
    /// The runtime has not opened this device.
    #[error("{device} is not open")]
    NoDevice {
        /// Which.
        device: DeviceId,
    },
    /// The device has fewer cores.
    #[error("{device} has no {core}: its cores are 0 to {}", .cores.saturating_sub(1))]
    NoCore {
        /// Which device.
        device: DeviceId,
        /// The core asked for.
        core: CoreId,
        /// Cores that it has.
        cores: u32,
    },
    /// The device has fewer HBM channels.
    #[error("{device} has no {channel}: its channels are 0 to {}", .channels.saturating_sub(1))]
    NoChannel {
        /// Which device.
        device: DeviceId,
        /// The channel asked for.
        channel: Channel,
        /// Channels that it has.
        channels: usize,
    },
    /// Size and alignment together do not fit 64 bits.
    #[error("{size_bytes} bytes with alignment {align_bytes} do not fit 64 bits")]
    TooLarge {
        /// Bytes asked for.
        size_bytes: u64,
        /// The alignment.
        align_bytes: u64,
    },
    /// An access leaves the allocation.
    #[error(
        "{size_bytes} bytes at offset {offset_bytes} are outside: there are {limit_bytes} bytes"
    )]
    OutOfBounds {
        /// Offset from its first byte.
        offset_bytes: u64,
        /// Bytes to access.
        size_bytes: u64,
        /// Bytes of the allocation.
        limit_bytes: u64,
    },
    /// The allocation went with its model.
    #[error("the allocation is gone with its model")]
    Gone,
    /// Host tensors do not exist on this generation.
    #[error("{device} does not take tensors in host memory")]
    HostTensor {
        /// Which device.
        device: DeviceId,
    },
    /// No such placement: 0 and 1 are; 2 was taken away with runtime 2.32.
    #[error("placement {number} does not exist: 0 is the device, 1 the host")]
    NoPlacement {
        /// The number given.
        number: u32,
    },
    /// Two device tensors are copied between only if they are on the same HBM.
    #[error("a copy from {from} to {to} is not possible: they are not the same HBM")]
    OtherHbm {
        /// Where the source is.
        from: Hbm,
        /// Where the target is.
        to: Hbm,
    },
    /// One copy is of tensors of two processes, or of two machines: of runtimes that were not opened
    /// with the same transport.
    #[error("one copy takes tensors of one process, and {one} and {other} are of two")]
    OtherProcess {
        /// The first tensor.
        one: Box<Party>,
        /// The other one.
        other: Box<Party>,
    },
    /// The tensor has no bytes in HBM.
    #[error("tensor {name:?} is not in device memory")]
    NotOnDevice {
        /// Its name.
        name: String,
    },
    /// A batch copy without a batch.
    #[error("there is no batch")]
    NoBatches,
    /// The batches of one copy are of tensors on several devices.
    #[error("one batch copy takes tensors of one device, and there are {device} and {other}")]
    OtherDevice {
        /// That of the first batch.
        device: DeviceId,
        /// That of another one.
        other: DeviceId,
    },
    /// The driver refused a batch copy.
    #[error("batch {direction}: {source}")]
    Batch {
        /// "copyin" or "copyout".
        direction: &'static str,
        /// What the driver answered.
        source: NdlError,
    },
    /// An access to the caller's buffer failed.
    #[error("the attached buffer: {source}")]
    Attached {
        /// Why.
        source: MappingError,
    },
    /// A set has no tensor of this name.
    #[error("the set has no tensor {name:?}")]
    NoTensor {
        /// The name asked for.
        name: String,
    },
    /// A variable of the scratchpad ends beyond 64 bits.
    #[error("a scratchpad variable of {} bytes at offset {} does not fit 64 bits", .0.size_bytes, .0.offset_bytes)]
    ScratchVariable(ScratchVariable),
    /// A model needs more of the scratchpad than a core can have.
    #[error(
        "{need_bytes} bytes of scratchpad are more than {pages_max} pages of {page_size_bytes} bytes"
    )]
    ScratchpadPages {
        /// Bytes that the model needs.
        need_bytes: u64,
        /// Bytes of a page.
        page_size_bytes: u64,
        /// Pages that a core can have.
        pages_max: u64,
    },
    /// A contiguous scratchpad cannot grow as far as a model needs.
    #[error(
        "{device}, {core}: the contiguous scratchpad ends at {have_bytes} bytes, and {need_bytes} are needed"
    )]
    ScratchpadCeiling {
        /// Which device.
        device: DeviceId,
        /// The core that it is charged to.
        core: CoreId,
        /// Bytes that the model needs.
        need_bytes: u64,
        /// Bytes that there are.
        have_bytes: u64,
        /// Why there are no more; `None` where nobody can look into the driver.
        explanation: Option<Box<Explanation>>,
    },
    /// The driver put a page of the scratchpad where none can be.
    #[error("{device}: the driver gave a scratchpad page at {pa}, where it cannot be")]
    ScratchpadMisplaced {
        /// Which device.
        device: DeviceId,
        /// The page.
        pa: BusAddr,
    },
    /// Outputs were not complete in time.
    #[error("{count} of {expected} outputs were complete in time")]
    Incomplete {
        /// Outputs that were complete.
        count: u64,
        /// Outputs that were expected.
        expected: u64,
    },
    /// The runtime has not been initialised.
    #[error("NRT uninitialized")]
    Uninitialized,
    /// The runtime has been closed.
    #[error("NRT already closed")]
    Closed,
    /// The process is a fork of the one that initialised the runtime, or the runtime is initialised
    /// a second time.
    #[error("Incompatible runtime state")]
    WrongState,
}

/// Where the bytes of a tensor are, as far as a copy between two must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hbm {
    /// The device.
    pub device: DeviceId,
    /// Its channel.
    pub channel: Channel,
}

impl fmt::Display for Hbm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.device, self.channel)
    }
}

/// A tensor of several that one call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Party {
    /// Its name.
    pub tensor: String,
    /// The process of its runtime; `None` if the runtime was not told.
    pub process: Option<Pid>,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor {:?}", self.tensor)?;
        match self.process {
            Some(process) => write!(f, " (pid {})", process.get()),
            None => Ok(()),
        }
    }
}

impl RuntimeError {
    /// The status code.
    #[must_use]
    pub const fn status(&self) -> NrtStatus {
        match self {
            Self::DeviceMemory(_)
            | Self::HostTensor { .. }
            | Self::ScratchpadPages { .. }
            | Self::ScratchpadCeiling { .. } => NrtStatus::Resource,
            Self::HostMemory { .. } => NrtStatus::FailHostMemAlloc,
            Self::Driver(_)
            | Self::Exhausted { .. }
            | Self::Batch { .. }
            | Self::ScratchpadMisplaced { .. }
            | Self::NoTensor { .. }
            | Self::WrongState => NrtStatus::Failure,
            Self::UsageRefused { .. }
            | Self::NoDevice { .. }
            | Self::NoCore { .. }
            | Self::NoChannel { .. }
            | Self::TooLarge { .. }
            | Self::NoPlacement { .. }
            | Self::Attached { .. }
            | Self::ScratchVariable(_)
            | Self::OtherHbm { .. }
            | Self::OtherProcess { .. }
            | Self::NotOnDevice { .. }
            | Self::NoBatches
            | Self::OtherDevice { .. }
            | Self::OutOfBounds { .. } => NrtStatus::Invalid,
            Self::Incomplete { .. } => NrtStatus::Timeout,
            Self::Uninitialized => NrtStatus::Uninitialized,
            Self::Closed => NrtStatus::Closed,
            Self::Gone => NrtStatus::InvalidHandle,
        }
    }

    /// The status code of a call that ended so.
    pub(crate) const fn status_of<T>(outcome: &Result<T, Self>) -> NrtStatus {
        match outcome {
            Ok(_) => NrtStatus::Success,
            Err(error) => error.status(),
        }
    }

    /// The report, if device memory ran out.
    #[must_use]
    pub fn oom(&self) -> Option<&OomReport> {
        match self {
            Self::DeviceMemory(report) => Some(report),
            _ => None,
        }
    }

    /// Why it failed, if it was for want of something, and somebody could look into the driver.
    #[must_use]
    pub fn explanation(&self) -> Option<&Explanation> {
        match self {
            Self::DeviceMemory(report) => report.explanation.as_ref(),
            Self::HostMemory { explanation, .. } | Self::ScratchpadCeiling { explanation, .. } => {
                explanation.as_deref()
            }
            Self::Exhausted { explanation, .. } => Some(explanation),
            _ => None,
        }
    }
}
