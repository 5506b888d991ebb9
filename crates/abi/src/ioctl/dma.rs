//! Structs of DMA engines, queues and rings. `eng` and `qid` name an engine of the device and a
//! queue of the engine; `queue_type` is 0 for the reading side, 1 for the writing side, 2 for
//! completions.

use super::argument::argument;

argument! {
    /// `DMA_ENG_SET_STATE`: starts or stops an engine.
    DmaEngSetState, 8 { 0 In eng: u32 as Number, 4 In state: u32 as Number, }
}
argument! {
    /// `DMA_ENG_GET_STATE`: a [`DmaEngState`] is written to `state`.
    DmaEngGetState, 16 {
        0 In eng: u32 as Number,
        4 In pad: u32 as Pad,
        8 Out state: u64 as Pointer,
    }
}
argument! {
    /// What an engine is and does.
    DmaEngState, 20 {
        0 Out revision_id: u32 as Number,
        4 Out max_queues: u32 as Number,
        8 Out num_queues: u32 as Number,
        12 Out tx_state: u32 as Number,
        16 Out rx_state: u32 as Number,
    }
}
argument! {
    /// `DMA_QUEUE_INIT`: gives a queue its rings, each a chunk; handle 0 is no ring.
    DmaQueueInit, 48 {
        0 In eng: u32 as Number,
        4 In qid: u32 as Number,
        8 In tx_desc_count: u32 as Number,
        12 In rx_desc_count: u32 as Number,
        16 In tx_handle: u64 as Handle,
        24 In rx_handle: u64 as Handle,
        32 In rxc_handle: u64 as Handle,
        40 In axi_port: u32 as Number,
        44 In pad: u32 as Pad,
    }
}
argument! {
    /// `DMA_QUEUE_INIT_BATCH`: up to 255 times [`DmaQueueInit`], behind the struct, where there is
    /// room for 256.
    DmaQueueInitBatch, 8 {
        0 In count: u32 as Number,
        4 In pad: u32 as Pad,
    } then DmaQueueInit by count, Some(256)
}
argument! {
    /// `DMA_QUEUE_RELEASE`: gives a queue back.
    DmaQueueRelease, 8 { 0 In eng: u32 as Number, 4 In qid: u32 as Number, }
}
argument! {
    /// `DMA_QUEUE_COPY_START`: rings the doorbells of a queue for so many new descriptors.
    DmaQueueCopyStart, 16 {
        0 In eng: u32 as Number,
        4 In qid: u32 as Number,
        8 In tx_desc_count: u32 as Number,
        12 In rx_desc_count: u32 as Number,
    }
}
argument! {
    /// `DMA_ACK_COMPLETED`: so many descriptors of a queue have been seen to be done.
    DmaAckCompleted, 12 {
        0 In eng: u32 as Number,
        4 In qid: u32 as Number,
        8 In count: u32 as Number,
    }
}
argument! {
    /// `DMA_QUEUE_GET_STATE`: a [`DmaQueueState`] is written to `tx` and to `rx`.
    DmaQueueGetState, 24 {
        0 In eng: u32 as Number,
        4 In qid: u32 as Number,
        8 Out tx: u64 as Pointer,
        16 Out rx: u64 as Pointer,
    }
}
argument! {
    /// One side of a queue: its ring, and where hardware and driver are in it.
    DmaQueueState, 48 {
        0 Out hw_status: u32 as Bits,
        4 Out sw_status: u32 as Bits,
        8 Out base_addr: u64 as Address,
        16 Out length: u32 as Number,
        20 Out head: u32 as Number,
        24 Out tail: u32 as Number,
        28 Out pad: u32 as Pad,
        32 Out compl_base_addr: u64 as Address,
        40 Out compl_head: u32 as Number,
        44 Out pad1: u32 as Pad,
    }
}
argument! {
    /// `DMA_COPY_DESCRIPTORS`: writes `num_descs` descriptors of 16 bytes into the ring
    /// `mem_handle`, after a look at their addresses.
    DmaCopyDescriptors, 32 {
        0 In mem_handle: u64 as Handle,
        8 In buffer: u64 as Pointer,
        16 In num_descs: u32 as Number,
        20 In offset: u32 as Size,
        24 In queue_type: u32 as Number,
        28 In pad: u32 as Pad,
    }
}
argument! {
    /// `DMA_COPY_DESCRIPTORS64`: as [`DmaCopyDescriptors`], with a 64-bit offset.
    DmaCopyDescriptors64, 40 {
        0 In mem_handle: u64 as Handle,
        8 In buffer: u64 as Pointer,
        16 In num_descs: u32 as Number,
        20 In pad: u32 as Pad,
        24 In offset: u64 as Size,
        32 In queue_type: u32 as Number,
        36 In pad1: u32 as Pad,
    }
}
argument! {
    /// `DMA_DESCRIPTOR_COPYOUT`: reads `count` descriptors of a ring, from `start_index`, to
    /// `buffer`.
    DmaDescriptorCopyout, 32 {
        0 In eng: u32 as Number,
        4 In qid: u32 as Number,
        8 In queue_type: u32 as Number,
        12 In start_index: u32 as Number,
        16 In count: u32 as Number,
        20 In pad: u32 as Pad,
        24 Out buffer: u64 as Pointer,
    }
}
argument! {
    /// `H2T_DMA_ALLOC_QUEUES`: takes queues of a core for copies and for services; the maps are
    /// those that it got. `size` is that of the struct.
    H2tDmaAllocQueues, 20 {
        0 In size: u16 as Size,
        2 In nc_id: u16 as Number,
        4 In copy_cnt: u16 as Number,
        6 In service_cnt: u16 as Number,
        8 Out copy_bmap: u32 as Bits,
        12 Out service_bmap: u32 as Bits,
        16 Out copy_default_queue: u32 as Number,
    }
}
argument! {
    /// `H2T_DMA_FREE_QUEUES`: gives queues of a core back. `size` is that of the struct.
    H2tDmaFreeQueues, 8 {
        0 In size: u16 as Size,
        2 In nc_id: u8 as Number,
        3 In fill: u8 as Pad,
        4 In queue_bmap: u32 as Bits,
    }
}
argument! {
    /// Where the completion queue of one queue can be mapped.
    ComplQueueRange, 16 {
        0 Out mmap_offset: u64 as Address,
        8 Out mmap_size: u32 as Size,
        12 Out pad: u32 as Pad,
    }
}
argument! {
    /// `GET_ASYNC_H2T_DMA_COMPL_QUEUES`: the completion queues of a core's queues, by queue number;
    /// `qid_bitmap` says which are asked for.
    GetAsyncH2tDmaComplQueues, 264 {
        0 In nc_id: u32 as Number,
        4 In qid_bitmap: u32 as Bits,
        8 Out queues: [ComplQueueRange; 16] as Structs(&ComplQueueRange::LAYOUT),
    }
}
