//! Structs of copies and fills: between chunks, and between chunks and the caller's memory.

use super::argument::argument;

argument! {
    /// `MEM_COPY`: copies between two chunks and waits.
    MemCopy, 32 {
        0 In src: u64 as Handle,
        8 In dst: u64 as Handle,
        16 In size: u32 as Size,
        20 In src_offset: u32 as Size,
        24 In dst_offset: u32 as Size,
        28 In pad: u32 as Pad,
    }
}
argument! {
    /// `MEM_COPY64`: copies between two chunks and waits.
    MemCopy64, 40 {
        0 In src: u64 as Handle,
        8 In dst: u64 as Handle,
        16 In size: u64 as Size,
        24 In src_offset: u64 as Size,
        32 In dst_offset: u64 as Size,
    }
}
argument! {
    /// `MEM_COPY_ASYNC`: [`MemCopyAsync64`] with 32-bit sizes.
    MemCopyAsync, 48 {
        0 In src: u64 as Handle,
        8 In dst: u64 as Handle,
        16 In size: u32 as Size,
        20 In src_offset: u32 as Size,
        24 In dst_offset: u32 as Size,
        28 In pad: u32 as Pad,
        32 In host_prefetch_addr: u64 as Pointer,
        40 In pwait: u32 as Wait,
        44 Out wait: u32 as Wait,
    }
}
argument! {
    /// `MEM_COPY_ASYNC64`: starts a copy between two chunks and waits for the one that `pwait`
    /// names ([`wait_handle`](super::wait_handle)); `wait` is the new copy's handle.
    /// `host_prefetch_addr` is a hint.
    MemCopyAsync64, 56 {
        0 In src: u64 as Handle,
        8 In dst: u64 as Handle,
        16 In size: u64 as Size,
        24 In src_offset: u64 as Size,
        32 In dst_offset: u64 as Size,
        40 In host_prefetch_addr: u64 as Pointer,
        48 In pwait: u32 as Wait,
        52 Out wait: u32 as Wait,
    }
}
argument! {
    /// `MEM_COPY_ASYNC_WAIT`: waits for a copy; `src` and `dst` are the pair that it was started
    /// with.
    MemCopyAsyncWait, 24 {
        0 In src: u64 as Handle,
        8 In dst: u64 as Handle,
        16 In pwait: u32 as Wait,
        20 In pad: u32 as Pad,
    }
}
argument! {
    /// `MEMSET`: fills a part of a chunk with the low 8 bits of `value`.
    Memset, 24 {
        0 In mem_handle: u64 as Handle,
        8 In offset: u64 as Size,
        16 In value: u32 as Bits,
        20 In size: u32 as Size,
    }
}
argument! {
    /// `MEMSET64`: as [`Memset`], with a 64-bit size.
    Memset64, 32 {
        0 In mem_handle: u64 as Handle,
        8 In offset: u64 as Size,
        16 In value: u32 as Bits,
        20 In pad: u32 as Pad,
        24 In size: u64 as Size,
    }
}
argument! {
    /// `MEM_BUF_COPY`: [`MemBufCopy64`] with 32-bit sizes.
    MemBufCopy, 32 {
        0 In mem_handle: u64 as Handle,
        8 Both buffer: u64 as Pointer,
        16 In size: u32 as Size,
        20 In offset: u32 as Size,
        24 In copy_to_mem_handle: u32 as Number,
        28 In pad: u32 as Pad,
    }
}
argument! {
    /// `MEM_BUF_COPY64`: copies between a user buffer and a chunk, to the chunk if
    /// `copy_to_mem_handle` is not 0.
    MemBufCopy64, 40 {
        0 In mem_handle: u64 as Handle,
        8 Both buffer: u64 as Pointer,
        16 In size: u64 as Size,
        24 In offset: u64 as Size,
        32 In copy_to_mem_handle: u32 as Number,
        36 In pad: u32 as Pad,
    }
}
argument! {
    /// `MEM_BUF_ZEROCOPY64` (driver 2.27): as [`MemBufCopy64`], but the user's pages are moved by
    /// DMA themselves. `h2t_qid` -1 is the default queue; writes of at most `bar4_wr_threshold`
    /// bytes may go through BAR4.
    MemBufZerocopy64, 48 {
        0 In mem_handle: u64 as Handle,
        8 Both buffer: u64 as Pointer,
        16 In size: u64 as Size,
        24 In offset: u64 as Size,
        32 In is_copy_to_device: u32 as Number,
        36 In bar4_wr_threshold: u32 as Size,
        40 In h2t_qid: i32 as Signed,
        44 In unused: u32 as Pad,
    }
}
argument! {
    /// `MEM_BUF_ZEROCOPY64_BATCHES`: `batches` points to `num_batches` times [`ZerocopyBatch`], all
    /// in one direction. `sequence_num` 0 waits until all is moved; no bit of `flags` is defined.
    MemBufZerocopy64Batches, 32 {
        0 In sequence_num: u64 as Number,
        8 In batches: u64 as Pointer,
        16 In num_batches: u32 as Number,
        20 In is_copy_to_device: u16 as Number,
        22 In pad: u16 as Pad,
        24 In h2t_qid: i32 as Signed,
        28 In flags: u16 as Bits,
        30 In pad1: u16 as Pad,
    }
}
argument! {
    /// A batch of [`MemBufZerocopy64Batches`]: `ops_ptr` points to `num_ops` times [`ZerocopyOp`],
    /// all of one chunk. `context` is opaque and comes back in the batch's completion.
    ZerocopyBatch, 40 {
        0 In mem_handle: u64 as Handle,
        8 In mem_handle_offset: u64 as Size,
        16 In ops_ptr: u64 as Pointer,
        24 In num_ops: u32 as Number,
        28 In bar4_wr_threshold: u16 as Size,
        30 In flags: u16 as Bits,
        32 In context: u64 as Bits,
    }
}
argument! {
    /// A piece of a [`ZerocopyBatch`]; `offset` counts from the batch's `mem_handle_offset`.
    ZerocopyOp, 24 {
        0 In offset: u64 as Size,
        8 In size: u64 as Size,
        16 Both buffer: u64 as Pointer,
    }
}
argument! {
    /// `PROGRAM_ENGINE`: writes a user buffer to an address of the device; `offset` counts on both
    /// sides.
    ProgramEngine, 24 {
        0 In dst: u64 as Address,
        8 In buffer: u64 as Pointer,
        16 In size: u32 as Size,
        20 In offset: u32 as Size,
    }
}
argument! {
    /// `PROGRAM_ENGINE_NC`: as [`ProgramEngine`], by the queues of a core.
    ProgramEngineNc, 32 {
        0 In nc_id: u32 as Number,
        4 In pad: u32 as Pad,
        8 In dst: u64 as Address,
        16 In buffer: u64 as Pointer,
        24 In size: u32 as Size,
        28 In offset: u32 as Size,
    }
}
argument! {
    /// `PROGRAM_ENGINE_NC64`: as [`ProgramEngineNc`], with 64-bit sizes.
    ProgramEngineNc64, 40 {
        0 In nc_id: u32 as Number,
        4 In pad: u32 as Pad,
        8 In dst: u64 as Address,
        16 In buffer: u64 as Pointer,
        24 In size: u64 as Size,
        32 In offset: u64 as Size,
    }
}
