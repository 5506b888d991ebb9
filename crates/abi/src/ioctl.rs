//! Commands of `/dev/neuron*`: their words and their structs (driver 2.24.7 to 2.27.4,
//! `neuron_ioctl.h`, 64-bit).
//!
//! ```text
//!   word = direction << 30 | size << 16 | 'N' << 8 | number
//! ```
//!
//! A command is known by its **whole word**: the ABI uses numbers again. Neither direction nor size
//! can be trusted: older commands were declared with a pointer type, so that their size says 8
//! whatever the struct has, and `MEM_ALLOC` is a "read" that reads its struct. The structs that this
//! crate has are those of the commands that are built.
//!
//! Fields that point to user memory are [`UserAddr`] numbers; fields named `pad` are there for the
//! layout alone, and 0.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::UserAddr;

macro_rules! commands {
    ($($name:ident $word:literal),* $(,)?) => {
        $(
            #[doc = concat!("Command word of `", stringify!($name), "`.")]
            pub const $name: u32 = $word;
        )*

        /// Every command of the reference, by number: its name and its word.
        pub const COMMANDS: &[(&str, u32)] = &[$((stringify!($name), $name),)*];
    };
}

commands! {
    DEVICE_RESET 0x0000_4e01,
    DEVICE_READY 0x8001_4e02,
    DEVICE_INFO 0x8008_4e03,
    DEVICE_INIT 0x8008_4e04,
    DEVICE_RELEASE 0x0000_4e05,
    DEVICE_APP_PID 0x8004_4e06,
    DEVICE_GET_ALL_APPS_INFO 0x8008_4e07,
    BAR_READ 0x8008_4e0b,
    BAR_WRITE 0x4008_4e0c,
    POST_METRIC 0x4008_4e0d,
    MEM_ALLOC 0x8008_4e15,
    MEM_FREE 0x8008_4e16,
    MEM_COPY 0x8008_4e17,
    MEM_COPY64 0x8028_4e17,
    MEM_BUF_COPY 0xc008_4e18,
    MEM_BUF_COPY64 0xc028_4e18,
    MEM_GET_PA 0x8008_4e19,
    MEM_GET_INFO 0x8008_4e1a,
    PROGRAM_ENGINE 0xc008_4e1b,
    MEMSET 0x8008_4e1c,
    MEMSET64 0x8020_4e1c,
    MEM_GET_EXTENDED_INFO 0x8008_4e1d,
    DMA_ENG_INIT 0x8008_4e1e,
    DMA_ENG_SET_STATE 0x8008_4e1f,
    DMA_ENG_GET_STATE 0xc008_4e20,
    DMA_QUEUE_INIT 0x8008_4e21,
    DMA_QUEUE_RELEASE 0x8008_4e22,
    DMA_QUEUE_COPY_START 0x8008_4e23,
    DMA_ACK_COMPLETED 0x8008_4e24,
    DMA_QUEUE_GET_STATE 0xc008_4e25,
    DMA_COPY_DESCRIPTORS 0x8008_4e26,
    DMA_COPY_DESCRIPTORS64 0x8028_4e26,
    DMA_DESCRIPTOR_COPYOUT 0xc008_4e27,
    DMA_QUIESCE_QUEUES 0x8008_4e28,
    SEMAPHORE_INCREMENT 0x8008_4e29,
    SEMAPHORE_DECREMENT 0x8008_4e2a,
    SEMAPHORE_READ 0xc008_4e2b,
    SEMAPHORE_WRITE 0x8008_4e2c,
    EVENT_SET 0x8008_4e2d,
    EVENT_GET 0xc008_4e2e,
    NOTIFICATIONS_INIT_V1 0x8008_4e33,
    NOTIFICATIONS_DESTROY_V1 0x8008_4e34,
    NOTIFICATIONS_INIT_V2 0x8008_4e35,
    NOTIFICATIONS_INIT_WITH_REALLOC_V2 0x8008_4e36,
    NOTIFICATIONS_QUEUE_INFO 0x8008_4e3a,
    READ_HW_COUNTERS 0x8008_4e3d,
    ACQUIRE_NEURON_DS 0x8008_4e47,
    RELEASE_NEURON_DS 0x8008_4e48,
    CRWL_READER_ENTER 0x4008_4e51,
    CRWL_READER_EXIT 0x4008_4e52,
    CRWL_WRITER_ENTER 0x4008_4e53,
    CRWL_WRITER_DOWNGRADE 0x4008_4e54,
    CRWL_NC_RANGE_MARK 0x4008_4e55,
    CRWL_NC_RANGE_MARK_EXT0 0xc050_4e55,
    CRWL_NC_RANGE_UNMARK 0x4008_4e56,
    CRWL_NC_RANGE_UNMARK_EXT0 0x4050_4e56,
    CINIT_SET_STATE 0x4008_4e5b,
    NC_MODEL_STARTED_COUNT 0x4008_4e5c,
    COMPATIBLE_VERSION 0x4008_4e5d,
    DEVICE_BASIC_INFO 0x4008_4e64,
    DEVICE_BDF 0x8008_4e65,
    MEM_ALLOC_V2 0x8008_4e66,
    MEM_ALLOC_V2MT 0x8030_4e66,
    MEM_ALLOC_V2MT64 0x8038_4e66,
    NC_RESET 0x8008_4e67,
    NC_RESET_READY 0x8008_4e68,
    PROGRAM_ENGINE_NC 0xc008_4e69,
    PROGRAM_ENGINE_NC64 0xc028_4e69,
    DEVICE_BDF_EXT 0x8008_4e6a,
    DEVICE_RESET_STATUS 0x8001_4e6a,
    DMABUF_FD 0x8008_4e6b,
    MEM_COPY_ASYNC 0xc030_4e6c,
    MEM_COPY_ASYNC64 0xc038_4e6c,
    MEM_COPY_ASYNC_WAIT 0x4018_4e6d,
    DRIVER_INFO_GET 0x8018_4e6e,
    DRIVER_INFO_SET 0x4018_4e6e,
    MEM_MC_GET_INFO 0xc018_4e6f,
    MEM_MC_GET_INFO_V2 0xc020_4e6f,
    RESOURCE_MMAP_INFO 0xc020_4e70,
    PRINTK 0x4010_4e71,
    HOST_DEVICE_ID 0x8004_4e72,
    HOST_DEVICE_ID_TO_RID_MAP 0xc104_4e73,
    DUMP_MEM_CHUNKS 0x8008_4e74,
    NC_PID_STATE_DUMP 0xc010_4e75,
    HBM_SCRUB_START 0xc010_4e76,
    HBM_SCRUB_WAIT 0xc008_4e77,
    GET_LOGICAL_TO_PHYSICAL_NC_MAP 0xc010_4e78,
    POD_INFO 0xc104_4e79,
    POD_STATUS 0xc10c_4e7a,
    POD_STATUS_V2 0xc114_4e7a,
    POD_CTRL 0xc010_4e7b,
    POD_CTRL_V2 0xc014_4e7b,
    MEM_BUF_ZEROCOPY64 0xc030_4e7c,
    H2T_DMA_ALLOC_QUEUES 0xc014_4e7d,
    H2T_DMA_FREE_QUEUES 0xc008_4e7e,
    POWER_PROFILE 0x4008_4e7f,
    METRICS_CTRL 0x4004_4e80,
    MEM_BUF_ZEROCOPY64_BATCHES 0xc020_4e81,
    THROTTLING_NOTIFICATIONS 0x4004_4e82,
    GET_VA_PLACEMENT 0x4010_4e83,
    GET_PERFORMANCE_PROFILE 0xc008_4e84,
    DMA_QUEUE_INIT_BATCH 0xb008_4e85,
    GET_AVAILABLE_PROFILES 0xc024_4e86,
    GET_ASYNC_H2T_DMA_COMPL_QUEUES 0xc108_4e87,
}

/// The name of a command word; `None` if the reference has no such command.
#[must_use]
pub fn name(word: u32) -> Option<&'static str> {
    COMMANDS
        .iter()
        .find_map(|&(name, known)| (known == word).then_some(name))
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

macro_rules! argument {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($(#[$field_doc:meta])* $offset:literal $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        #[expect(missing_docs, reason = "fields have the ABI's names; the struct's text tells what is not plain")]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

argument! {
    /// `COMPATIBLE_VERSION`: which protocol versions the driver accepts; all out.
    CompatibleVersion, 8 { 0 max: u32, 4 min: u32, }
}
argument! {
    /// `DEVICE_BASIC_INFO`: the [number](crate::arch::ArchProfile::number) of the generation and the
    /// hardware's revision; all out.
    DeviceBasicInfo, 8 { 0 architecture: u32, 4 revision: u32, }
}
argument! {
    /// `DRIVER_INFO_GET`: all out. `version` is 0, `size` 24, `feature_flags1` are [`feature`] bits.
    DriverInfo, 24 { 0 architecture: u32, 4 revision: u32, 8 version: u32, 12 size: u32, 16 feature_flags1: u64, }
}
argument! {
    /// `MEM_ALLOC_V2MT64`: takes a mem chunk for the calling process. `host_memory` is 0 for HBM.
    /// The handle, 8 bytes, is written to `mem_handle`.
    MemAllocV2Mt64, 56 {
        0 size: u64,
        8 align: u64,
        16 host_memory: u32,
        20 dram_channel: u32,
        24 dram_region: u32,
        28 nc_id: u32,
        32 mem_type: u32,
        36 pad0: u32,
        40 mem_handle: u64,
        48 pad: u32,
        52 pad1: u32,
    }
}
argument! {
    /// `NC_RESET`: resets the cores of a bit map, or the whole device if all bits are set; `request_id`
    /// is what to wait for, out.
    NcReset, 8 { 0 nc_map: u32, 4 request_id: u32, }
}
argument! {
    /// `NC_RESET_READY`: waits for a reset; `result` is 0 if it went well, out.
    NcResetReady, 8 { 0 request_id: u32, 4 result: i32, }
}
argument! {
    /// `MEM_FREE`: takes one reference off the chunk.
    MemFree, 8 { 0 mem_handle: u64, }
}
argument! {
    /// `MEM_GET_PA`: the chunk's address, 8 bytes, is written to `pa`.
    MemGetPa, 16 { 0 mem_handle: u64, 8 pa: u64, }
}
argument! {
    /// `MEM_GET_INFO`: the chunk's address is written to `pa`, and its offset for mmap to
    /// `mmap_offset` unless that is 0; 8 bytes each.
    MemGetInfo, 24 { 0 mem_handle: u64, 8 mmap_offset: u64, 16 pa: u64, }
}
argument! {
    /// `MEM_COPY64`: copies between two chunks and waits.
    MemCopy64, 40 { 0 src: u64, 8 dst: u64, 16 size: u64, 24 src_offset: u64, 32 dst_offset: u64, }
}
argument! {
    /// `MEM_BUF_COPY64`: copies between a user buffer and a chunk, to the chunk if
    /// `copy_to_mem_handle` is not 0.
    MemBufCopy64, 40 {
        0 mem_handle: u64,
        8 buffer: u64,
        16 size: u64,
        24 offset: u64,
        32 copy_to_mem_handle: u32,
        36 pad: u32,
    }
}
argument! {
    /// `MEM_COPY_ASYNC64`: starts a copy between two chunks and waits for the one that `pwait` names
    /// ([`wait_handle`]); `wait` is the new copy's handle, out. `host_prefetch_addr` is a hint.
    MemCopyAsync64, 56 {
        0 src: u64,
        8 dst: u64,
        16 size: u64,
        24 src_offset: u64,
        32 dst_offset: u64,
        40 host_prefetch_addr: u64,
        48 pwait: u32,
        52 wait: u32,
    }
}
argument! {
    /// `MEM_COPY_ASYNC_WAIT`: waits for a copy; `src` and `dst` are the pair that it was started
    /// with.
    MemCopyAsyncWait, 24 { 0 src: u64, 8 dst: u64, 16 pwait: u32, 20 pad: u32, }
}
argument! {
    /// `HBM_SCRUB_START`: begins to overwrite all HBM of a channel (`hbm_index`) with a word
    /// (`init_val`). `axi_port` means nothing where HBM has one port.
    HbmScrubStart, 16 { 0 nc_id: u32, 4 hbm_index: u32, 8 axi_port: u32, 12 init_val: u32, }
}
argument! {
    /// `HBM_SCRUB_WAIT`: waits until that is done.
    HbmScrubWait, 8 { 0 nc_id: u32, 4 hbm_index: u32, }
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
    fn words_are_of_this_device_type_and_none_is_there_twice() {
        for (index, &(name, word)) in COMMANDS.iter().enumerate() {
            assert_eq!((word >> 8) & 0xff, u32::from(b'N'), "{name}");
            let twice = COMMANDS[index + 1..]
                .iter()
                .any(|&(_, other)| other == word);
            assert!(!twice, "{name}");
        }
    }

    #[test]
    fn a_number_that_is_used_twice_is_told_apart_by_the_whole_word() {
        assert_eq!(number(DEVICE_BDF_EXT), number(DEVICE_RESET_STATUS));
        assert_eq!(name(0x8001_4e6a), Some("DEVICE_RESET_STATUS"));
        assert_eq!(name(0x8008_4e6a), Some("DEVICE_BDF_EXT"));
        assert_eq!(name(0x8009_4e6a), None);
    }

    #[test]
    fn forms_that_carry_their_size_carry_that_of_their_struct() {
        let sizes = [
            (MEM_ALLOC_V2MT64, size_of::<MemAllocV2Mt64>()),
            (MEM_COPY64, size_of::<MemCopy64>()),
            (MEM_BUF_COPY64, size_of::<MemBufCopy64>()),
            (MEM_COPY_ASYNC64, size_of::<MemCopyAsync64>()),
            (MEM_COPY_ASYNC_WAIT, size_of::<MemCopyAsyncWait>()),
            (NC_RESET, size_of::<NcReset>()),
            (NC_RESET_READY, size_of::<NcResetReady>()),
            (HBM_SCRUB_START, size_of::<HbmScrubStart>()),
            (HBM_SCRUB_WAIT, size_of::<HbmScrubWait>()),
            (DRIVER_INFO_GET, size_of::<DriverInfo>()),
        ];
        for (word, size) in sizes {
            assert_eq!(size_field(word) as usize, size, "{:?}", name(word));
        }
    }
}
