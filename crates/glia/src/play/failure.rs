//! An operation that did not end as its line expects.

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, DeviceId};
use glia_abi::nrt::NrtStatus;
use glia_runtime::RuntimeError;

use super::pattern::Pattern;
use crate::workload::Bounds;

/// An operation that did not end as its line expects.
#[derive(Debug)]
pub struct Failure {
    /// The line.
    pub line: u64,
    /// The object that it is about.
    pub id: String,
    /// What the line expects.
    pub expected: NrtStatus,
    /// What happened instead.
    pub found: Found,
    /// What the runtime logged about it: the out-of-memory report, if that is what happened.
    pub log: String,
}

/// What happened instead of what was expected.
#[derive(Debug, thiserror::Error)]
pub enum Found {
    /// It succeeded.
    #[error("it succeeded")]
    Success,
    /// It failed, or failed otherwise.
    #[error(transparent)]
    Error(#[from] RuntimeError),
    /// What was read is not what was written.
    #[error("byte {offset_bytes} is {found:#04x}, written was {written:#04x} ({by})")]
    Differs {
        /// The byte's offset in the object.
        offset_bytes: u64,
        /// What was read.
        found: u8,
        /// What was written.
        written: u8,
        /// How it was written.
        by: Pattern,
    },
    /// It lies elsewhere.
    #[error("it lies at {found:#x}, and was to lie at {wanted:#x}", found = .found.get(), wanted = .wanted.get())]
    Elsewhere {
        /// Where it lies.
        found: BusAddr,
        /// Where it was to.
        wanted: BusAddr,
    },
    /// A size is outside its bounds.
    #[error("\"{gauge}\" of {device} hbm {} is {found} bytes, and was to be {}", .hbm.get(), told(*.bounds))]
    Beyond {
        /// What was looked at.
        gauge: &'static str,
        /// Of which device.
        device: DeviceId,
        /// Of which of its channels.
        hbm: Channel,
        /// The size.
        found: u64,
        /// What was expected.
        bounds: Bounds,
    },
    /// A reset came to nothing.
    #[error("the reset of {device} came to {result}")]
    Reset {
        /// The device.
        device: DeviceId,
        /// What the driver answered.
        result: i32,
    },
    /// The run was stopped, and it was given up between two pieces. No run ends in this: the line counts
    /// as one that was not run.
    #[error("it was stopped")]
    Stopped,
}

fn told(bounds: Bounds) -> String {
    match bounds {
        Bounds { least, most } if least == most => least.to_string(),
        Bounds {
            least,
            most: u64::MAX,
        } => format!("{least} at least"),
        Bounds { least: 0, most } => format!("{most} at most"),
        Bounds { least, most } => format!("{least} to {most}"),
    }
}

impl Found {
    /// The status; `None` if the calls succeeded, and what they came to is wrong.
    #[must_use]
    pub fn status(&self) -> Option<NrtStatus> {
        match self {
            Self::Success => Some(NrtStatus::Success),
            Self::Error(error) => Some(error.status()),
            Self::Reset { .. } => Some(NrtStatus::Failure),
            Self::Differs { .. } | Self::Elsewhere { .. } | Self::Beyond { .. } | Self::Stopped => {
                None
            }
        }
    }
}
