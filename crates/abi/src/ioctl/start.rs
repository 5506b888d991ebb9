//! Structs of start-up, identity, versions and resets.

use super::argument::argument;

argument! {
    /// `DEVICE_READY`: waits for a reset; 1 if it went well.
    DeviceReady, 1 { 0 Out ready: u8 as Number, }
}
argument! {
    /// `DEVICE_INFO`: the device, the devices that it is wired to (the first `connected_count` of
    /// `connected`), and where BAR0 and BAR2 are.
    DeviceInfo, 80 {
        0 Out architecture: u32 as Number,
        4 Out revision: u32 as Number,
        8 Out connected_count: u32 as Number,
        12 Out connected: [u32; 8] as Number,
        44 Out pad: u32 as Pad,
        48 Out bar_address: [u64; 2] as Address,
        64 Out bar_size: [u64; 2] as Size,
    }
}
argument! {
    /// `DEVICE_APP_PID`: the process in the first attach slot.
    DeviceAppPid, 4 { 0 Out pid: i32 as Signed, }
}
argument! {
    /// `DEVICE_GET_ALL_APPS_INFO`: the attached processes, as [`AppInfo`] entries behind the
    /// struct; `size` of them, at most `capacity`.
    DeviceGetAllAppsInfo, 16 {
        0 In flags: u16 as Bits,
        2 In pad: u16 as Pad,
        4 In capacity: u32 as Number,
        8 Out size: u32 as Number,
        12 In pad1: u32 as Pad,
    } then AppInfo by size, None
}
argument! {
    /// An attached process: the cores that it locks, the models it has there, and what it uses.
    AppInfo, 152 {
        0 Out pid: i32 as Signed,
        4 Out nc_lock_map: u8 as Bits,
        5 Out uuid: [[u8; 32]; 4] as Opaque,
        133 Out pad: [u8; 3] as Pad,
        136 Out host_mem_size: u64 as Size,
        144 Out device_mem_size: u64 as Size,
    }
}
argument! {
    /// `COMPATIBLE_VERSION`: which protocol versions the driver accepts.
    CompatibleVersion, 8 { 0 Out max: u32 as Number, 4 Out min: u32 as Number, }
}
argument! {
    /// `DEVICE_BASIC_INFO`: the [number](crate::arch::ArchProfile::number) of the generation and
    /// the hardware's revision.
    DeviceBasicInfo, 8 { 0 Out architecture: u32 as Number, 4 Out revision: u32 as Number, }
}
argument! {
    /// `DRIVER_INFO_GET`: `version` is 0, `size` 24, `feature_flags1` are
    /// [`feature`](super::feature) bits.
    DriverInfo, 24 {
        0 Out architecture: u32 as Number,
        4 Out revision: u32 as Number,
        8 Out version: u32 as Number,
        12 Out size: u32 as Size,
        16 Out feature_flags1: u64 as Bits,
    }
}
argument! {
    /// `DEVICE_BDF`: where the device is on the PCI bus.
    DeviceBdf, 8 {
        0 Out bus: u32 as Number,
        4 Out slot: u8 as Number,
        5 Out func: u8 as Number,
        6 Out pad: [u8; 2] as Pad,
    }
}
argument! {
    /// `DEVICE_BDF_EXT`: the same of any device; `nd_index` counts from the opened one.
    DeviceBdfExt, 16 {
        0 In nd_index: u32 as Number,
        4 Out domain: u32 as Number,
        8 Out bus: u32 as Number,
        12 Out slot: u8 as Number,
        13 Out func: u8 as Number,
        14 Out pad: [u8; 2] as Pad,
    }
}
argument! {
    /// `DEVICE_RESET_STATUS`: always 1.
    DeviceResetStatus, 1 { 0 Out done: u8 as Number, }
}
argument! {
    /// `NC_RESET`: resets the cores of a bit map, or the whole device if all bits are set;
    /// `request_id` is what to wait for.
    NcReset, 8 { 0 In nc_map: u32 as Bits, 4 Out request_id: u32 as Number, }
}
argument! {
    /// `NC_RESET_READY`: waits for a reset; `result` is 0 if it went well.
    NcResetReady, 8 { 0 In request_id: u32 as Number, 4 Out result: i32 as Signed, }
}
argument! {
    /// `HOST_DEVICE_ID`: the device's index.
    HostDeviceId, 4 { 0 Out device_id: u32 as Number, }
}
argument! {
    /// `HOST_DEVICE_ID_TO_RID_MAP`: the routing ids of the first `count` devices.
    HostDeviceIdToRidMap, 260 { 0 Out count: u32 as Number, 4 Out rids: [u32; 64] as Number, }
}
argument! {
    /// `PRINTK`: a line for the kernel's log; `buffer` points to `size` bytes that end with a NUL.
    Printk, 16 { 0 In buffer: u64 as Pointer, 8 In size: u32 as Size, 12 In pad: u32 as Pad, }
}
