//! What can go wrong in the runtime.

use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;

use crate::dml::OomReport;
use crate::ndl::NdlError;

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
}

impl RuntimeError {
    /// The status code.
    #[must_use]
    pub const fn status(&self) -> NrtStatus {
        match self {
            Self::DeviceMemory(_) | Self::HostTensor { .. } => NrtStatus::Resource,
            Self::HostMemory { .. } => NrtStatus::FailHostMemAlloc,
            Self::Driver(_) => NrtStatus::Failure,
            Self::UsageRefused { .. }
            | Self::NoDevice { .. }
            | Self::NoCore { .. }
            | Self::NoChannel { .. }
            | Self::TooLarge { .. }
            | Self::OutOfBounds { .. } => NrtStatus::Invalid,
            Self::Gone => NrtStatus::InvalidHandle,
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
}
