//! Why there was no room: one word for each kind of want.

use std::fmt;

/// Why an allocation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The HBM has fewer free bytes than are needed, and no other HBM of the device has room.
    Capacity,
    /// The HBM has fewer free bytes than are needed, and another one of the device has room.
    WrongBank,
    /// The free bytes are enough, but lie in two pools, neither of which has enough. No block spans
    /// both.
    WrongPool,
    /// A pool has enough free bytes, but no hole is large enough.
    Fragmentation,
    /// A hole is large enough, but not from an aligned address on.
    Alignment,
    /// A page of the contiguous scratchpad has one place only, and that is taken.
    ScratchpadPlace,
    /// Pages of the contiguous scratchpad were freed out of order, and the place of the next one is
    /// that of a page that lives.
    ScratchpadOrder,
    /// The host has no memory that the device could reach.
    HostMemory,
    /// All attach slots of the device are taken by other processes.
    ProcessSlots,
    /// The device's handle table is down.
    HandleTable,
    /// Nothing was asked for, and the driver has no block of 0 bytes.
    ZeroSize,
    /// There is room: memory has come free since, or something else was wanting, such as memory of
    /// the kernel's own (or a fault was ordered).
    Passing,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Capacity,
        Self::WrongBank,
        Self::WrongPool,
        Self::Fragmentation,
        Self::Alignment,
        Self::ScratchpadPlace,
        Self::ScratchpadOrder,
        Self::HostMemory,
        Self::ProcessSlots,
        Self::HandleTable,
        Self::ZeroSize,
        Self::Passing,
    ];

    /// Its name for machines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::WrongBank => "wrong_bank",
            Self::WrongPool => "wrong_pool",
            Self::Fragmentation => "fragmentation",
            Self::Alignment => "alignment",
            Self::ScratchpadPlace => "scratchpad_place",
            Self::ScratchpadOrder => "scratchpad_order",
            Self::HostMemory => "host_memory",
            Self::ProcessSlots => "process_slots",
            Self::HandleTable => "handle_table",
            Self::ZeroSize => "zero_size",
            Self::Passing => "passing",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
