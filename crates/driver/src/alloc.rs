//! What is asked when memory is asked for, and the ways in which it is refused.
//!
//! Every field of a request is an allegation of the caller.
//! [`DeviceMemory::alloc`](crate::memory::DeviceMemory::alloc) checks them in the reference's
//! order, and the first that fails decides the error; the error says what was asked and what is
//! allowed.

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, Pid, Region};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

use crate::site::SiteId;

/// The largest alignment of a device request: the reference passes it as an `int`.
pub const ALIGN_BYTES_MAX: u64 = 0x7fff_ffff;

/// A request for one mem chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocRequest {
    /// Bytes wanted; rounded up to the page size.
    pub size_bytes: u64,
    /// Alignment wanted, in bytes, of the absolute address. 0 to 4,096 mean none. Host requests
    /// must say 0. A value that is no power of two is taken as the reference takes it, as bits to
    /// mask, not as a divisor.
    pub align_bytes: u64,
    /// Host memory or HBM.
    pub location: Location,
    /// The HBM channel; checked for host requests, too.
    pub channel: Channel,
    /// The region in the channel. Every arch here has one region, so any number means that one.
    pub region: Region,
    /// The core that is charged, 0 to 7 on every arch.
    pub core: CoreId,
    /// Who outlives it.
    pub lifespan: Lifespan,
    /// What it is for. [`Category::CONTIGUOUS_SCRATCHPAD_DEVICE`] is placed by rules of its own.
    pub category: Category,
    /// Where in the caller's program it was asked for.
    pub site: SiteId,
}

impl AllocRequest {
    /// A plain request for HBM on `channel`, charged to core 0, that lives as long as the device:
    /// the starting point of struct-update syntax.
    #[must_use]
    pub fn device(size_bytes: u64, channel: Channel) -> Self {
        Self {
            size_bytes,
            align_bytes: 0,
            location: Location::Device,
            channel,
            region: Region::new(0),
            core: CoreId::new(0),
            lifespan: Lifespan::Device,
            category: Category::UNKNOWN_DEVICE,
            site: SiteId::UNKNOWN,
        }
    }

    /// A plain request for host memory, charged to core 0, that lives as long as the device.
    #[must_use]
    pub fn host(size_bytes: u64) -> Self {
        Self {
            location: Location::Host,
            category: Category::UNKNOWN_HOST,
            ..Self::device(size_bytes, Channel::new(0))
        }
    }
}

/// How much a pool has left, to say beside a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes of the largest free extent.
    pub largest_bytes: u64,
}

/// Why a request was refused. Nothing was taken and no counter moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// `EINVAL`: the size does not fit the reference's signed 64 bits.
    #[error(
        "size {size_bytes} is too large: at most {} bytes can be asked for",
        i64::MAX
    )]
    SizeTooLarge {
        /// Bytes asked for.
        size_bytes: u64,
    },
    /// `EINVAL`: no such channel.
    #[error("{channel} does not exist: the device has channels 0 to {}", channels.saturating_sub(1))]
    NoChannel {
        /// The channel asked for.
        channel: Channel,
        /// Channels of the device.
        channels: u32,
    },
    /// `ENOMEM`: a fault was ordered at the head of the allocation.
    #[error("an injected fault refused the allocation of {size_bytes} bytes")]
    Injected {
        /// Bytes asked for.
        size_bytes: u64,
    },
    /// `EINVAL`: no core has this number.
    #[error("{core} cannot be charged: cores 0 to 7 can, on every arch")]
    NoCore {
        /// The core asked for.
        core: CoreId,
    },
    /// `ENOMEM`: no kernel memory for the chunk's record.
    #[error("no kernel memory for the record of a chunk of {size_bytes} bytes")]
    NoRecord {
        /// Bytes asked for.
        size_bytes: u64,
    },
    /// `ENODEV`: the device has been torn down.
    #[error("the device has been torn down")]
    Gone,
    /// `EINVAL`: host memory cannot be aligned on request.
    #[error("host memory takes no alignment, but {align_bytes} was asked for; 0 is allowed")]
    HostAligned {
        /// The alignment asked for.
        align_bytes: u64,
    },
    /// `EINVAL`: the contiguous scratchpad lives in HBM (divergence `host-scratchpad`).
    #[error("category 19, the contiguous scratchpad, exists in device memory only")]
    HostScratchpad,
    /// `ENOMEM`: nothing was asked for, and the pools have no place for nothing.
    #[error("a chunk of 0 bytes cannot be had: ask for at least 1")]
    ZeroSize,
    /// `EINVAL`: the alignment does not fit the reference's `int`.
    #[error("alignment {align_bytes} is too large: at most {ALIGN_BYTES_MAX} bytes are allowed")]
    AlignTooLarge {
        /// The alignment asked for.
        align_bytes: u64,
    },
    /// `ENOMEM`: neither the machine nor a reserve pool has the memory.
    #[error(
        "no host memory for {size_bytes} bytes; reserve pools hold {reserve_free_bytes} bytes, in pages of up to 2 MiB"
    )]
    NoHostMemory {
        /// Bytes asked for, rounded up.
        size_bytes: u64,
        /// Free bytes of the four reserve pools.
        reserve_free_bytes: u64,
    },
    /// `ENOMEM`: neither pool of the channel has a free extent that fits.
    #[error("no room for {size_bytes} bytes aligned to {align_bytes} on {channel}: main pool {main}{}", small_text(*small))]
    NoDeviceMemory {
        /// Bytes asked for, rounded up.
        size_bytes: u64,
        /// The alignment asked for.
        align_bytes: u64,
        /// The channel asked for.
        channel: Channel,
        /// What the main pool has.
        main: Room,
        /// What the small pool has, if there is one.
        small: Option<Room>,
    },
    /// `ENOMEM`: the pool's answer fails the final check of the alignment, and the reference does
    /// not try another.
    #[error(
        "the pool's arithmetic places {size_bytes} bytes aligned to {align_bytes} at {at}, which is not aligned: refused"
    )]
    PlacedMisaligned {
        /// Bytes asked for, rounded up.
        size_bytes: u64,
        /// The alignment asked for.
        align_bytes: u64,
        /// Where it would have been.
        at: BusAddr,
    },
    /// `ENOMEM`: the place below the scratchpad is taken, or there is none.
    #[error(
        "no room for a scratchpad page of {size_bytes} bytes below {below} on {channel}: the place is taken or too small"
    )]
    ScratchpadBlocked {
        /// Bytes asked for, rounded up.
        size_bytes: u64,
        /// The channel asked for.
        channel: Channel,
        /// Where the page would have ended.
        below: BusAddr,
    },
    /// `ENOMEM`: the place below the scratchpad is not on a granule.
    #[error(
        "a scratchpad page of {size_bytes} bytes would start at offset {offset_bytes:#x}, no multiple of {granule_bytes}"
    )]
    ScratchpadMisaligned {
        /// Bytes asked for, rounded up.
        size_bytes: u64,
        /// Offset from the region's start.
        offset_bytes: u64,
        /// Granule of the pool.
        granule_bytes: u64,
    },
    /// `EACCES`: a chunk that dies with its process was asked for by a process that does not have
    /// the device open (divergence `unattached-process`).
    #[error("{pid} has not opened the device, so no chunk can die with it")]
    NotAttached {
        /// The caller.
        pid: Pid,
    },
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} free, largest hole {}",
            self.free_bytes, self.largest_bytes
        )
    }
}

fn small_text(small: Option<Room>) -> String {
    small.map_or_else(String::new, |room| format!("; small pool {room}"))
}
