//! Numbers that name things. Each is a type of its own, so that a core cannot be given where a
//! channel is asked.

use std::fmt;
use std::num::NonZeroU32;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $label:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u32);

        impl $name {
            /// The thing with this number. The number is an allegation until somebody has looked it
            /// up.
            #[must_use]
            pub const fn new(raw: u32) -> Self {
                Self(raw)
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The number as an index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }
    };
}

number! {
    /// A Neuron device: the minor number of its node, 0 to 63.
    DeviceId, "nd"
}
number! {
    /// An HBM (DRAM) channel of a device.
    Channel, "channel"
}
number! {
    /// A region inside a channel. Every arch that Glia models has one, and the driver then takes
    /// any number for it.
    Region, "region"
}
number! {
    /// A NeuronCore of a device, as an allocation is charged to it. The driver accepts 0 to 7 on
    /// every arch.
    CoreId, "core"
}
/// Cores that an allocation may be charged to, on every arch, whatever the arch has (driver 2.27,
/// `MAX_NC_PER_DEVICE`).
pub const CORES_MAX: u32 = 8;

number! {
    /// A process, by its thread-group id.
    Pid, "pid"
}
number! {
    /// One of the 16 attach slots of a device.
    SlotId, "slot"
}

number! {
    /// A DMA engine of a device: the compute cores' engines first, then those that move data between
    /// host and device.
    EngineId, "engine"
}

number! {
    /// A worker that a [`Sched`](crate::sched::Sched) runs.
    WorkerId, "worker"
}

/// Queues of each engine (driver 2.27; the hardware has 16 per direction).
pub const QUEUES_PER_ENGINE: u32 = 16;

/// A queue pair, source side and destination side, of a DMA engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct QueueId {
    /// The engine.
    pub engine: EngineId,
    /// Which of its 16 queues.
    pub number: u32,
}

impl QueueId {
    /// Queue `number` of `engine`.
    #[must_use]
    pub const fn new(engine: EngineId, number: u32) -> Self {
        Self { engine, number }
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, queue {}", self.engine, self.number)
    }
}

/// Names one life of a mem chunk across layers and in traces: the slot of its record, and which
/// life of that slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId {
    /// The record's slot.
    pub slot: u32,
    /// Which life of it.
    pub generation: u32,
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}.{}", self.slot, self.generation)
    }
}

/// Names a range of user memory that a device may reach until it is unpinned; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinId(pub u64);

/// A file descriptor of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fd(pub i32);

impl fmt::Display for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fd {}", self.0)
    }
}

/// An open file of the driver, which several descriptors of several processes may share; never used
/// twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// A memory handle: what user space holds for a mem chunk. It is an index into the device's handle
/// table; 0 is never one.
///
/// A handle has no generation (the ABI leaves no room): a stale one answers with whoever holds its
/// index now, as in the reference. It may be logged; the table's cells and host pointers may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct McHandle(NonZeroU32);

impl McHandle {
    /// `None` for 0, which means "no handle".
    #[must_use]
    pub const fn new(index: u32) -> Option<Self> {
        match NonZeroU32::new(index) {
            Some(index) => Some(Self(index)),
            None => None,
        }
    }

    /// A handle from the 64-bit field of an ioctl; `None` for 0 and for what no table could hold.
    #[must_use]
    pub fn from_raw(raw: u64) -> Option<Self> {
        u32::try_from(raw).ok().and_then(Self::new)
    }

    /// The index.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for McHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handle {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_handle_from_an_ioctl_keeps_its_number_or_is_refused(raw in prop_oneof![0..10_u64, any::<u64>(), any::<u32>().prop_map(u64::from)]) {
            let handle = McHandle::from_raw(raw);
            prop_assert_eq!(handle.is_some(), raw != 0 && raw <= u64::from(u32::MAX));
            if let Some(handle) = handle {
                prop_assert_eq!(u64::from(handle.get()), raw);
            }
        }
    }

    #[test]
    fn numbers_say_what_they_number() {
        assert_eq!(Channel::new(2).to_string(), "channel 2");
        assert_eq!(Pid::new(77).to_string(), "pid 77");
        assert_eq!(McHandle::new(9).unwrap().to_string(), "handle 9");
    }
}
