//! How long an engine takes, and in which order it writes: a model, to test software by. Nothing
//! here was measured on silicon.
//!
//! Without a timing a descriptor takes no time, and whatever is announced is done at once. With one,
//! an engine takes pairs on one after the other, each for a latency and for its bytes. The default
//! figures are the driver's own: it expects 64 KiB in 4 µs on V2 and in 2 µs since V3.

use glia_abi::arch::Arch;

/// How long an engine takes for a descriptor pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EngineTiming {
    /// From taking it on to reading its source, in nanoseconds.
    pub latency_ns: u64,
    /// Bytes moved in a microsecond; 0 counts as 1.
    pub bytes_per_us: u64,
}

impl EngineTiming {
    /// The figures of a generation.
    #[must_use]
    pub const fn of(arch: Arch) -> Self {
        let bytes_per_us = match arch {
            Arch::V2 => 16_384,
            Arch::V3 | Arch::V4 => 32_768,
        };
        Self {
            latency_ns: 200,
            bytes_per_us,
        }
    }

    /// No time at all.
    pub(crate) const NONE: Self = Self {
        latency_ns: 0,
        bytes_per_us: u64::MAX,
    };

    /// From reading a source to having written the target, in nanoseconds.
    pub(crate) fn moving_ns(&self, size_bytes: u64) -> u64 {
        size_bytes.saturating_mul(1000) / self.bytes_per_us.max(1)
    }
}

/// In which order an engine reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EngineOrder {
    /// One descriptor pair after the other.
    #[default]
    Strict,
    /// As chance has it, within what barriers forbid: a driver that forgets one is found out.
    Weak {
        /// What chance comes from.
        seed: u64,
    },
}
