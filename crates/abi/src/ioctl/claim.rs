//! Structs of core claims, model locks and the datastore.

use super::argument::argument;

argument! {
    /// `CRWL_READER_ENTER` and its kin: the lock of a core, for the model `uuid`.
    Crwl, 36 { 0 In nc_id: u32 as Number, 4 In uuid: [u8; 32] as Opaque, }
}
argument! {
    /// `CRWL_NC_RANGE_MARK` and `_UNMARK`: claims `nc_count` cores in a row between `start_nc` and
    /// `end_nc`, both included and counted from the opened device; `bitmap` is those that it got,
    /// or those to give back. `max_nc_available` is the longest free run if there are too few.
    NcMap, 24 {
        0 In nc_count: u32 as Number,
        4 In start_nc: u32 as Number,
        8 In end_nc: u32 as Number,
        12 Out max_nc_available: u32 as Number,
        16 Both bitmap: u64 as Bits,
    }
}
argument! {
    /// `CRWL_NC_RANGE_MARK_EXT0` and `_UNMARK_EXT0`: the same for 512 cores.
    NcMapExt, 80 {
        0 In nc_count: u32 as Number,
        4 In start_nc: u32 as Number,
        8 In end_nc: u32 as Number,
        12 Out max_nc_available: u32 as Number,
        16 Both bitmap: [u64; 8] as Bits,
    }
}
argument! {
    /// `CINIT_SET_STATE`: moves a core's initialisation to `state`; `new_state` is where it is.
    CinitSetState, 12 {
        0 In nc_id: u32 as Number,
        4 In state: u32 as Number,
        8 Out new_state: u32 as Number,
    }
}
argument! {
    /// `NC_MODEL_STARTED_COUNT`: how many models a core has started.
    NcModelStartedCount, 16 {
        0 In nc_id: u32 as Number,
        4 In pad: u32 as Pad,
        8 Out started_count: u64 as Number,
    }
}
argument! {
    /// `ACQUIRE_NEURON_DS` and `RELEASE_NEURON_DS`: the datastore of a process, 0 for the caller's
    /// own, and where it can be mapped.
    NeuronDs, 24 {
        0 In pid: i32 as Signed,
        4 In pad: u32 as Pad,
        8 Out mmap_offset: u64 as Address,
        16 Out size: u32 as Size,
        20 In pad1: u32 as Pad,
    }
}
