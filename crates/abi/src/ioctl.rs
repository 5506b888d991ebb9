//! Commands of `/dev/neuron*`: one table of their words, and their structs (driver 2.24.7 to
//! 2.27.4, `neuron_ioctl.h`, 64-bit).
//!
//! ```text
//!   word = direction << 30 | size << 16 | 'N' << 8 | number
//! ```
//!
//! A command is known by its **whole word**: the ABI uses numbers again. Neither direction nor size
//! can be trusted: older commands were declared with a pointer type, so that their size says 8
//! whatever the struct has, and `MEM_ALLOC` is a "read" that reads its struct. The
//! [table](COMMANDS) says what is true: the struct, who reaches the command, and whom it asks to be
//! attached. It has every command that is known of the reference, built or not; where no struct is
//! known, it says so.
//!
//! Each struct is there twice: as a type, and as a [`Layout`] that says what its fields mean, by
//! which [`decode`] prints any command from its bytes. A program in C, written on its own, agrees
//! with all words, sizes and offsets (`tests/ioctl_abi.c`).
//!
//! Fields that point to user memory are [`UserAddr`] numbers; fields named `pad` are there for the
//! layout alone, and 0. Nothing here answers a command or checks its argument.

mod argument;
mod claim;
mod copy;
mod decode;
mod dma;
mod memory;
mod start;

use crate::addr::UserAddr;

pub use argument::{Field, Flow, Kind, Layout, Tail};
pub use claim::*;
pub use copy::*;
pub use decode::{Decoded, decode};
pub use dma::*;
pub use memory::*;
pub use start::*;

/// A command of the reference.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// Its name, without the reference's prefix.
    pub name: &'static str,
    /// Its word.
    pub word: u32,
    /// Which files reach it.
    pub lane: Lane,
    /// Whom it asks to be attached.
    pub gate: Gate,
    /// What its argument points to.
    pub argument: Argument,
}

/// Which files reach a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Those that attach their process.
    Main,
    /// All, those that are write-only too.
    Misc,
}

/// Whether a command wants its caller to be attached, by its exact word: newer forms of a gated
/// command are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It asks nothing.
    Open,
    /// `EACCES` for a process that has not opened the device itself.
    Attached,
}

/// What the argument of a command points to.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    /// Nothing that anybody looks at.
    Nothing,
    /// A struct.
    Struct(&'static Layout),
    /// A struct that this crate does not have.
    NotCovered,
}

/// What a command word says of the direction, which proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Neither way.
    None,
    /// From the caller to the driver.
    Write,
    /// From the driver to the caller.
    Read,
    /// Both ways.
    ReadWrite,
}

macro_rules! commands {
    ($($name:ident $word:literal $lane:ident $gate:ident $argument:tt),* $(,)?) => {
        $(
            #[doc = concat!("Command word of `", stringify!($name), "`.")]
            pub const $name: u32 = $word;
        )*

        /// Every command of the reference, by number.
        pub const COMMANDS: &[Command] = &[$(Command {
            name: stringify!($name),
            word: $name,
            lane: Lane::$lane,
            gate: Gate::$gate,
            argument: commands!(@argument $argument),
        },)*];
    };
    (@argument -) => { Argument::Nothing };
    (@argument ?) => { Argument::NotCovered };
    (@argument $layout:ident) => { Argument::Struct(&$layout::LAYOUT) };
}

// Of arguments, `-` is nothing and `?` is not covered.
commands! {
    DEVICE_RESET 0x0000_4e01 Main Open -,
    DEVICE_READY 0x8001_4e02 Main Open DeviceReady,
    DEVICE_INFO 0x8008_4e03 Main Open DeviceInfo,
    DEVICE_INIT 0x8008_4e04 Main Open -,
    DEVICE_RELEASE 0x0000_4e05 Main Open -,
    DEVICE_APP_PID 0x8004_4e06 Main Open DeviceAppPid,
    DEVICE_GET_ALL_APPS_INFO 0x8008_4e07 Main Open DeviceGetAllAppsInfo,
    BAR_READ 0x8008_4e0b Main Open ?,
    BAR_WRITE 0x4008_4e0c Main Attached ?,
    POST_METRIC 0x4008_4e0d Main Attached ?,
    MEM_ALLOC 0x8008_4e15 Main Attached MemAlloc,
    MEM_FREE 0x8008_4e16 Main Attached MemFree,
    MEM_COPY 0x8008_4e17 Main Attached MemCopy,
    MEM_COPY64 0x8028_4e17 Main Open MemCopy64,
    MEM_BUF_COPY 0xc008_4e18 Main Open MemBufCopy,
    MEM_BUF_COPY64 0xc028_4e18 Main Open MemBufCopy64,
    MEM_GET_PA 0x8008_4e19 Main Attached MemGetPa,
    MEM_GET_INFO 0x8008_4e1a Main Attached MemGetInfo,
    PROGRAM_ENGINE 0xc008_4e1b Main Open ProgramEngine,
    MEMSET 0x8008_4e1c Main Open Memset,
    MEMSET64 0x8020_4e1c Main Open Memset64,
    MEM_GET_EXTENDED_INFO 0x8008_4e1d Main Open MemGetExtendedInfo,
    DMA_ENG_INIT 0x8008_4e1e Main Attached -,
    DMA_ENG_SET_STATE 0x8008_4e1f Main Attached DmaEngSetState,
    DMA_ENG_GET_STATE 0xc008_4e20 Main Open DmaEngGetState,
    DMA_QUEUE_INIT 0x8008_4e21 Main Attached DmaQueueInit,
    DMA_QUEUE_RELEASE 0x8008_4e22 Main Attached DmaQueueRelease,
    DMA_QUEUE_COPY_START 0x8008_4e23 Main Open DmaQueueCopyStart,
    DMA_ACK_COMPLETED 0x8008_4e24 Main Attached DmaAckCompleted,
    DMA_QUEUE_GET_STATE 0xc008_4e25 Main Open DmaQueueGetState,
    DMA_COPY_DESCRIPTORS 0x8008_4e26 Main Attached DmaCopyDescriptors,
    DMA_COPY_DESCRIPTORS64 0x8028_4e26 Main Open DmaCopyDescriptors64,
    DMA_DESCRIPTOR_COPYOUT 0xc008_4e27 Main Open DmaDescriptorCopyout,
    DMA_QUIESCE_QUEUES 0x8008_4e28 Main Open -,
    SEMAPHORE_INCREMENT 0x8008_4e29 Main Open ?,
    SEMAPHORE_DECREMENT 0x8008_4e2a Main Open ?,
    SEMAPHORE_READ 0xc008_4e2b Main Open ?,
    SEMAPHORE_WRITE 0x8008_4e2c Main Open ?,
    EVENT_SET 0x8008_4e2d Main Open ?,
    EVENT_GET 0xc008_4e2e Main Open ?,
    NOTIFICATIONS_INIT_V1 0x8008_4e33 Main Attached ?,
    NOTIFICATIONS_DESTROY_V1 0x8008_4e34 Main Open ?,
    NOTIFICATIONS_INIT_V2 0x8008_4e35 Main Attached ?,
    NOTIFICATIONS_INIT_WITH_REALLOC_V2 0x8008_4e36 Main Attached ?,
    NOTIFICATIONS_QUEUE_INFO 0x8008_4e3a Main Open ?,
    READ_HW_COUNTERS 0x8008_4e3d Main Open ?,
    ACQUIRE_NEURON_DS 0x8008_4e47 Main Open NeuronDs,
    RELEASE_NEURON_DS 0x8008_4e48 Main Open NeuronDs,
    CRWL_READER_ENTER 0x4008_4e51 Main Open Crwl,
    CRWL_READER_EXIT 0x4008_4e52 Main Open Crwl,
    CRWL_WRITER_ENTER 0x4008_4e53 Main Open Crwl,
    CRWL_WRITER_DOWNGRADE 0x4008_4e54 Main Open Crwl,
    CRWL_NC_RANGE_MARK 0x4008_4e55 Misc Open NcMap,
    CRWL_NC_RANGE_MARK_EXT0 0xc050_4e55 Misc Open NcMapExt,
    CRWL_NC_RANGE_UNMARK 0x4008_4e56 Misc Open NcMap,
    CRWL_NC_RANGE_UNMARK_EXT0 0x4050_4e56 Misc Open NcMapExt,
    CINIT_SET_STATE 0x4008_4e5b Main Open CinitSetState,
    NC_MODEL_STARTED_COUNT 0x4008_4e5c Main Open NcModelStartedCount,
    COMPATIBLE_VERSION 0x4008_4e5d Misc Open CompatibleVersion,
    DEVICE_BASIC_INFO 0x4008_4e64 Misc Open DeviceBasicInfo,
    DEVICE_BDF 0x8008_4e65 Main Open DeviceBdf,
    MEM_ALLOC_V2 0x8008_4e66 Main Open MemAllocV2,
    MEM_ALLOC_V2MT 0x8030_4e66 Main Open MemAllocV2Mt,
    MEM_ALLOC_V2MT64 0x8038_4e66 Main Open MemAllocV2Mt64,
    NC_RESET 0x8008_4e67 Main Open NcReset,
    NC_RESET_READY 0x8008_4e68 Main Open NcResetReady,
    PROGRAM_ENGINE_NC 0xc008_4e69 Main Open ProgramEngineNc,
    PROGRAM_ENGINE_NC64 0xc028_4e69 Main Open ProgramEngineNc64,
    DEVICE_RESET_STATUS 0x8001_4e6a Main Open DeviceResetStatus,
    DEVICE_BDF_EXT 0x8008_4e6a Misc Open DeviceBdfExt,
    DMABUF_FD 0x8008_4e6b Misc Open DmabufFd,
    MEM_COPY_ASYNC 0xc030_4e6c Main Attached MemCopyAsync,
    MEM_COPY_ASYNC64 0xc038_4e6c Main Open MemCopyAsync64,
    MEM_COPY_ASYNC_WAIT 0x4018_4e6d Main Attached MemCopyAsyncWait,
    DRIVER_INFO_GET 0x8018_4e6e Misc Open DriverInfo,
    DRIVER_INFO_SET 0x4018_4e6e Misc Attached DriverInfo,
    MEM_MC_GET_INFO 0xc018_4e6f Main Open MemMcGetInfo,
    MEM_MC_GET_INFO_V2 0xc020_4e6f Main Open MemMcGetInfoV2,
    RESOURCE_MMAP_INFO 0xc020_4e70 Main Open ResourceMmapInfo,
    PRINTK 0x4010_4e71 Misc Open Printk,
    HOST_DEVICE_ID 0x8004_4e72 Main Open HostDeviceId,
    HOST_DEVICE_ID_TO_RID_MAP 0xc104_4e73 Misc Open HostDeviceIdToRidMap,
    DUMP_MEM_CHUNKS 0x8008_4e74 Main Open DumpMemChunks,
    NC_PID_STATE_DUMP 0xc010_4e75 Misc Open ?,
    HBM_SCRUB_START 0xc010_4e76 Main Open HbmScrubStart,
    HBM_SCRUB_WAIT 0xc008_4e77 Main Open HbmScrubWait,
    GET_LOGICAL_TO_PHYSICAL_NC_MAP 0xc010_4e78 Misc Open ?,
    POD_INFO 0xc104_4e79 Misc Open ?,
    POD_STATUS 0xc10c_4e7a Misc Open ?,
    POD_STATUS_V2 0xc114_4e7a Misc Open ?,
    POD_CTRL 0xc010_4e7b Misc Open ?,
    POD_CTRL_V2 0xc014_4e7b Misc Open ?,
    MEM_BUF_ZEROCOPY64_2_24 0xc028_4e7c Main Open MemBufCopy64,
    MEM_BUF_ZEROCOPY64 0xc030_4e7c Main Open MemBufZerocopy64,
    MEM_BUF_ZEROCOPY64_2_29 0xc040_4e7c Main Open ?,
    H2T_DMA_ALLOC_QUEUES 0xc014_4e7d Main Open H2tDmaAllocQueues,
    H2T_DMA_FREE_QUEUES 0xc008_4e7e Main Open H2tDmaFreeQueues,
    POWER_PROFILE 0x4008_4e7f Main Open ?,
    METRICS_CTRL 0x4004_4e80 Main Open ?,
    MEM_BUF_ZEROCOPY64_BATCHES 0xc020_4e81 Main Open MemBufZerocopy64Batches,
    THROTTLING_NOTIFICATIONS 0x4004_4e82 Main Open ?,
    GET_VA_PLACEMENT 0x4010_4e83 Misc Open GetVaPlacement,
    GET_PERFORMANCE_PROFILE 0xc008_4e84 Main Open ?,
    DMA_QUEUE_INIT_BATCH 0xb008_4e85 Main Open DmaQueueInitBatch,
    GET_AVAILABLE_PROFILES 0xc024_4e86 Main Open ?,
    GET_ASYNC_H2T_DMA_COMPL_QUEUES 0xc108_4e87 Main Open GetAsyncH2tDmaComplQueues,
}

/// Where the commands of each number begin in the table; those of the next number end them.
const FIRST: [usize; 257] = {
    let mut first = [0; 257];
    let (mut number, mut index) = (0, 0);
    while number < first.len() {
        while index < COMMANDS.len() && (COMMANDS[index].number() as usize) < number {
            index += 1;
        }
        first[number] = index;
        number += 1;
    }
    first
};

/// The commands that have the number of a word: the forms of one command, most often.
#[must_use]
pub fn forms(word: u32) -> &'static [Command] {
    let number = number(word) as usize;
    // PANIC: a number is below 256.
    &COMMANDS[FIRST[number]..FIRST[number + 1]]
}

/// The command of a word; `None` if the reference has no such command.
#[must_use]
pub fn command(word: u32) -> Option<&'static Command> {
    forms(word).iter().find(|command| command.word == word)
}

/// The name of a command word; `None` if the reference has no such command.
#[must_use]
pub fn name(word: u32) -> Option<&'static str> {
    command(word).map(|command| command.name)
}

/// The number of a command word: its low byte.
#[must_use]
pub const fn number(word: u32) -> u32 {
    word & 0xff
}

/// The size field of a command word.
#[must_use]
pub const fn size_field(word: u32) -> u32 {
    (word >> 16) & 0x3fff
}

/// The direction bits of a command word.
#[must_use]
pub const fn direction(word: u32) -> Direction {
    match word >> 30 {
        0 => Direction::None,
        1 => Direction::Write,
        2 => Direction::Read,
        _ => Direction::ReadWrite,
    }
}

impl Command {
    /// Its number: the low byte of its word.
    #[must_use]
    pub const fn number(&self) -> u32 {
        number(self.word)
    }

    /// The size field of its word.
    #[must_use]
    pub const fn size_field(&self) -> u32 {
        size_field(self.word)
    }

    /// The direction bits of its word.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        direction(self.word)
    }
}

/// `mem_type` of `MEM_ALLOC_V2MT64` and its kin is a [`Category`](crate::usage::Category); wait
/// handles of asynchronous copies are these.
pub mod wait_handle {
    /// No copy: the start of a chain.
    pub const NONE: u32 = u32::MAX;
    /// The copy itself: fully synchronous.
    pub const SYNC: u32 = 0;
    /// The first asynchronous context.
    pub const ASYNC1: u32 = 1;
    /// The second asynchronous context.
    pub const ASYNC2: u32 = 2;
}

/// What `NC_RESET` and `NC_RESET_READY` ask for.
pub mod reset {
    /// Of `nc_map`: the whole device.
    pub const WHOLE_DEVICE: u32 = u32::MAX;
    /// Of `request_id`: whatever was asked for.
    pub const ALL_REQUESTS: u32 = u32::MAX;
    /// Of `result`: it went well.
    pub const DONE: i32 = 0;
    /// Of `result`: it did not. (uncertain: the number)
    pub const FAILED: i32 = -1;
}

/// Feature bits of [`DriverInfo`] (driver 2.27).
pub mod feature {
    /// Asynchronous copies.
    pub const ASYNC_DMA: u64 = 1 << 1;
    /// Queues are set up in batches.
    pub const BATCH_DMAQ_INIT: u64 = 1 << 2;
    /// Core maps of 512 bits.
    pub const BIG_CORE_MAPS: u64 = 1 << 3;
    /// Allocations carry a category.
    pub const MEM_ALLOC_TYPE: u64 = 1 << 4;
    /// HBM is scrubbed on request.
    pub const HBM_SCRUB: u64 = 1 << 5;
    /// 64-bit forms of allocation and copy.
    pub const MEM_ALLOC64: u64 = 1 << 6;
    /// Contiguous scratchpad.
    pub const CONTIGUOUS_SCRATCHPAD: u64 = 1 << 7;
    /// Zero copy.
    pub const ZEROCOPY: u64 = 1 << 8;
}

/// A number of a struct as the user address that it is.
#[must_use]
pub const fn pointer(field: u64) -> UserAddr {
    UserAddr::new(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_of_this_device_type_and_is_found() {
        for known in COMMANDS {
            assert_eq!((known.word >> 8) & 0xff, u32::from(b'N'), "{}", known.name);
            assert_eq!(name(known.word), Some(known.name));
        }
    }

    #[test]
    fn a_number_that_is_used_twice_is_told_apart_by_the_whole_word() {
        assert_eq!(number(DEVICE_BDF_EXT), number(DEVICE_RESET_STATUS));
        assert_eq!(forms(DEVICE_BDF_EXT).len(), 2);
        assert_eq!(name(0x8001_4e6a), Some("DEVICE_RESET_STATUS"));
        assert_eq!(name(0x8008_4e6a), Some("DEVICE_BDF_EXT"));
        assert_eq!(name(0x8009_4e6a), None);
    }

    #[test]
    fn words_of_no_command_are_not_found() {
        for word in [0, u32::MAX, 0x8038_4f66, 0x8008_4eff, 0x8008_4e08] {
            assert!(command(word).is_none(), "{word:#x}");
        }
        assert!(forms(0x8008_4eff).is_empty());
    }

    #[test]
    fn a_word_carries_the_size_of_its_struct_or_that_of_a_pointer() {
        for known in COMMANDS {
            let Argument::Struct(layout) = known.argument else {
                continue;
            };
            let size_bytes = known.size_field() as usize;
            let sizes = [size_of::<u64>(), layout.full_size_bytes()];
            assert!(sizes.contains(&size_bytes), "{}", known.name);
        }
    }

    #[test]
    fn fields_fill_their_struct_without_gaps() {
        for known in COMMANDS {
            let Argument::Struct(layout) = known.argument else {
                continue;
            };
            let end = layout.fields.iter().fold(0, |end, field| {
                assert_eq!(field.offset, end, "{}.{}", layout.name, field.name);
                end + field.size_bytes
            });
            assert_eq!(end, layout.size_bytes, "{}", layout.name);
        }
    }

    /// The names of the commands of which something holds, in the order of the table.
    fn named(holds: impl Fn(&Command) -> bool) -> Vec<&'static str> {
        let commands = COMMANDS.iter().filter(|known| holds(known));
        commands.map(|known| known.name).collect()
    }

    /// The older forms of what changes something, most often.
    #[test]
    fn these_commands_ask_for_an_attached_process_and_no_others() {
        let gated = [
            "BAR_WRITE",
            "POST_METRIC",
            "MEM_ALLOC",
            "MEM_FREE",
            "MEM_COPY",
            "MEM_GET_PA",
            "MEM_GET_INFO",
            "DMA_ENG_INIT",
            "DMA_ENG_SET_STATE",
            "DMA_QUEUE_INIT",
            "DMA_QUEUE_RELEASE",
            "DMA_ACK_COMPLETED",
            "DMA_COPY_DESCRIPTORS",
            "NOTIFICATIONS_INIT_V1",
            "NOTIFICATIONS_INIT_V2",
            "NOTIFICATIONS_INIT_WITH_REALLOC_V2",
            "MEM_COPY_ASYNC",
            "MEM_COPY_ASYNC_WAIT",
            "DRIVER_INFO_SET",
        ];
        assert_eq!(named(|known| known.gate == Gate::Attached), gated);
    }

    #[test]
    fn these_commands_are_of_the_misc_lane_and_no_others() {
        let misc = [
            "CRWL_NC_RANGE_MARK",
            "CRWL_NC_RANGE_MARK_EXT0",
            "CRWL_NC_RANGE_UNMARK",
            "CRWL_NC_RANGE_UNMARK_EXT0",
            "COMPATIBLE_VERSION",
            "DEVICE_BASIC_INFO",
            "DEVICE_BDF_EXT",
            "DMABUF_FD",
            "DRIVER_INFO_GET",
            "DRIVER_INFO_SET",
            "PRINTK",
            "HOST_DEVICE_ID_TO_RID_MAP",
            "NC_PID_STATE_DUMP",
            "GET_LOGICAL_TO_PHYSICAL_NC_MAP",
            "POD_INFO",
            "POD_STATUS",
            "POD_STATUS_V2",
            "POD_CTRL",
            "POD_CTRL_V2",
            "GET_VA_PLACEMENT",
        ];
        assert_eq!(named(|known| known.lane == Lane::Misc), misc);
    }
}
