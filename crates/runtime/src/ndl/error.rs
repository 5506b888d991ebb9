//! Why a call of NDL failed.

use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::transport::MappingError;

/// Why a call into the driver failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NdlError {
    /// The driver answered with an error number.
    #[error("{device}: {call} answered {errno}")]
    Call {
        /// Which device.
        device: DeviceId,
        /// The command, or "open" and "mmap".
        call: &'static str,
        /// What it answered.
        errno: Errno,
    },
    /// The driver gave a value that cannot be.
    #[error("{device}: {call} gave {value:#x}, which it cannot")]
    Answer {
        /// Which device.
        device: DeviceId,
        /// The command.
        call: &'static str,
        /// What it gave.
        value: u64,
    },
    /// The driver does not speak the runtime's version.
    #[error("{device}: this runtime speaks version {version}, the driver {min} to {max}")]
    Version {
        /// Which device.
        device: DeviceId,
        /// The runtime's.
        version: u32,
        /// The driver's oldest.
        min: u32,
        /// The driver's newest.
        max: u32,
    },
    /// An old driver, and a number of 4 GiB or more where its form of a command has 32 bits.
    #[error("{device}: {call} of this driver takes 32-bit sizes and offsets, and {value} is more")]
    Narrow {
        /// Which device.
        device: DeviceId,
        /// The command.
        call: &'static str,
        /// The size or the offset, in bytes.
        value: u64,
    },
    /// A generation that this runtime does not know.
    #[error("{device} is of generation {number}, which is not known")]
    Arch {
        /// Which device.
        device: DeviceId,
        /// What the driver calls it.
        number: u32,
    },
    /// No copy buffer, since the device has no such core.
    #[error("{device} has no {core}")]
    NoCore {
        /// Which device.
        device: DeviceId,
        /// The core asked for.
        core: CoreId,
    },
    /// Other processes have the cores that were asked for (`EBUSY`). Nothing is claimed then.
    #[error(
        "{device}: no {count} free cores in a row were seen among {first} to {last}, but {longest}{}",
        holder_text(*holder)
    )]
    CoresTaken {
        /// Which device.
        device: DeviceId,
        /// Cores asked for.
        count: u32,
        /// The first core that would have done.
        first: CoreId,
        /// The last core that would have done.
        last: CoreId,
        /// The longest free run that was seen.
        longest: u32,
        /// The first core of them that somebody has, and who; `None` if it was given back
        /// meanwhile, all of them are free, or nobody can look (a real node).
        holder: Option<(CoreId, Pid)>,
    },
    /// Mapped memory was not as large as asked for, or has ended.
    #[error("{device}: {source}")]
    Mapping {
        /// Which device.
        device: DeviceId,
        /// What was wrong.
        source: MappingError,
    },
}

impl NdlError {
    /// The error number, if it was the driver that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::CoresTaken { .. } => Some(Errno::EBUSY),
            _ => None,
        }
    }
}

fn holder_text(holder: Option<(CoreId, Pid)>) -> String {
    holder.map_or_else(String::new, |(core, pid)| format!("; {core} is {pid}'s"))
}
