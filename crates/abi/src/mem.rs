//! What is said of a mem chunk when it is asked for: where it is to live and how long.

use std::fmt;

/// Where a mem chunk lives (driver 2.27, `MEM_LOC_…`). User space can produce just these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Location {
    /// Host DRAM that the device can reach, value 1.
    Host,
    /// HBM of the device, value 2.
    Device,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Device => "device",
        })
    }
}

/// Who outlives a mem chunk (driver 2.27, `MC_LIFESPAN_…`): the event that gives it back if nobody
/// frees it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lifespan {
    /// 1: until the code that took it gives it back; nobody sweeps it on his own account.
    Local,
    /// 2: until the process that took it closes the device for the last time.
    CurrentProcess,
    /// 3: until the last file of the device is closed, by whomever.
    AllProcess,
    /// 4: until the device is torn down.
    Device,
}

impl Lifespan {
    /// All four, in the order of their values.
    pub const ALL: [Self; 4] = [
        Self::Local,
        Self::CurrentProcess,
        Self::AllProcess,
        Self::Device,
    ];

    /// The reference's number, 1 to 4.
    #[must_use]
    pub const fn value(self) -> u32 {
        match self {
            Self::Local => 1,
            Self::CurrentProcess => 2,
            Self::AllProcess => 3,
            Self::Device => 4,
        }
    }
}

impl fmt::Display for Lifespan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::CurrentProcess => "current process",
            Self::AllProcess => "all processes",
            Self::Device => "device",
        })
    }
}
