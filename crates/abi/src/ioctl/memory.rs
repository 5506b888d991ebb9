//! Structs of mem chunks: taking them, giving them back and asking for them.

use super::argument::argument;

argument! {
    /// `MEM_ALLOC`: takes a mem chunk for the calling process. `host_memory` is 0 for HBM. The
    /// handle, 8 bytes, is written to `mem_handle`.
    MemAlloc, 32 {
        0 In size: u64 as Size,
        8 In host_memory: u32 as Number,
        12 In dram_channel: u32 as Number,
        16 In dram_region: u32 as Number,
        20 In nc_id: u32 as Number,
        24 Out mem_handle: u64 as Pointer,
    }
}
argument! {
    /// `MEM_ALLOC_V2`: as [`MemAlloc`], aligned.
    MemAllocV2, 40 {
        0 In size: u64 as Size,
        8 In align: u64 as Size,
        16 In host_memory: u32 as Number,
        20 In dram_channel: u32 as Number,
        24 In dram_region: u32 as Number,
        28 In nc_id: u32 as Number,
        32 Out mem_handle: u64 as Pointer,
    }
}
argument! {
    /// `MEM_ALLOC_V2MT`: as [`MemAllocV2`], with a [`Category`](crate::usage::Category).
    MemAllocV2Mt, 48 {
        0 In size: u64 as Size,
        8 In align: u64 as Size,
        16 In host_memory: u32 as Number,
        20 In dram_channel: u32 as Number,
        24 In dram_region: u32 as Number,
        28 In nc_id: u32 as Number,
        32 In mem_type: u32 as Number,
        36 In pad: u32 as Pad,
        40 Out mem_handle: u64 as Pointer,
    }
}
argument! {
    /// `MEM_ALLOC_V2MT64`: as [`MemAllocV2Mt`]; `pad` is there to give the command another word.
    MemAllocV2Mt64, 56 {
        0 In size: u64 as Size,
        8 In align: u64 as Size,
        16 In host_memory: u32 as Number,
        20 In dram_channel: u32 as Number,
        24 In dram_region: u32 as Number,
        28 In nc_id: u32 as Number,
        32 In mem_type: u32 as Number,
        36 In pad0: u32 as Pad,
        40 Out mem_handle: u64 as Pointer,
        48 In pad: u32 as Pad,
        52 In pad1: u32 as Pad,
    }
}
argument! {
    /// `MEM_FREE`: takes one reference off the chunk.
    MemFree, 8 { 0 In mem_handle: u64 as Handle, }
}
argument! {
    /// `MEM_GET_PA`: the chunk's address, 8 bytes, is written to `pa`.
    MemGetPa, 16 { 0 In mem_handle: u64 as Handle, 8 Out pa: u64 as Pointer, }
}
argument! {
    /// `MEM_GET_INFO`: the chunk's address is written to `pa`, and its offset for mmap to
    /// `mmap_offset` unless that is 0; 8 bytes each.
    MemGetInfo, 24 {
        0 In mem_handle: u64 as Handle,
        8 Out mmap_offset: u64 as Pointer,
        16 Out pa: u64 as Pointer,
    }
}
argument! {
    /// `MEM_GET_EXTENDED_INFO`: what is known of a chunk; `pid` is the process that took it.
    MemGetExtendedInfo, 48 {
        0 Both mem_handle: u64 as Handle,
        8 Out version: u32 as Number,
        12 Out host_memory: u32 as Number,
        16 Out mmap_offset: u64 as Address,
        24 Out pa: u64 as Address,
        32 Out pid: u64 as Number,
        40 Out size: u64 as Size,
    }
}
argument! {
    /// `MEM_MC_GET_INFO`: the chunk that an address lies in.
    MemMcGetInfo, 24 {
        0 In pa: u64 as Address,
        8 Out mmap_offset: u64 as Address,
        16 Out size: u64 as Size,
    }
}
argument! {
    /// `MEM_MC_GET_INFO_V2`: as [`MemMcGetInfo`], with its handle.
    MemMcGetInfoV2, 32 {
        0 In pa: u64 as Address,
        8 Out mmap_offset: u64 as Address,
        16 Out size: u64 as Size,
        24 Out mem_handle: u64 as Handle,
    }
}
argument! {
    /// `RESOURCE_MMAP_INFO`: where a resource of a block of the chip can be mapped.
    ResourceMmapInfo, 32 {
        0 In block: u32 as Number,
        4 In block_id: u32 as Number,
        8 In resource: u32 as Number,
        12 In pad: u32 as Pad,
        16 Out offset: u64 as Address,
        24 Out size: u64 as Size,
    }
}
argument! {
    /// `DMABUF_FD`: a descriptor for a mapped range; written to `fd`, 4 bytes.
    DmabufFd, 24 {
        0 In va: u64 as Pointer,
        8 In size: u64 as Size,
        16 Out fd: u64 as Pointer,
    }
}
argument! {
    /// `DUMP_MEM_CHUNKS`: the chunks of a channel; `data` points to room for `num_entries_in` times
    /// [`MemChunkInfo`], and `num_entries_out` is how many there are.
    DumpMemChunks, 24 {
        0 In hbm_index: u32 as Number,
        4 In num_entries_in: u32 as Number,
        8 Out num_entries_out: u32 as Number,
        12 In pad: u32 as Pad,
        16 Out data: u64 as Pointer,
    }
}
argument! {
    /// A chunk of [`DumpMemChunks`]; `mem_type` is a [`Category`](crate::usage::Category).
    MemChunkInfo, 24 {
        0 Out pa: u64 as Address,
        8 Out size: u64 as Size,
        16 Out mem_type: u32 as Number,
        20 Out pad: u32 as Pad,
    }
}
argument! {
    /// `GET_VA_PLACEMENT`: the device and the channel that a mapped address belongs to.
    GetVaPlacement, 16 {
        0 In va: u64 as Pointer,
        8 Out device: i32 as Signed,
        12 Out index: i32 as Signed,
    }
}
argument! {
    /// `HBM_SCRUB_START`: begins to overwrite all HBM of a channel (`hbm_index`) with a word
    /// (`init_val`). `axi_port` means nothing where HBM has one port.
    HbmScrubStart, 16 {
        0 In nc_id: u32 as Number,
        4 In hbm_index: u32 as Number,
        8 In axi_port: u32 as Number,
        12 In init_val: u32 as Bits,
    }
}
argument! {
    /// `HBM_SCRUB_WAIT`: waits until that is done.
    HbmScrubWait, 8 { 0 In nc_id: u32 as Number, 4 In hbm_index: u32 as Number, }
}
