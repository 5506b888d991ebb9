//! Which device it is, where it is, and who uses it; and a word for the log.
//!
//! A device of software is on no bus and has no windows in the machine's memory. It answers with
//! what is unmistakable: its own number for the bus, windows of their real size at address 0, no
//! neighbours.

use ::zerocopy::IntoBytes;
use glia_abi::errno::Errno;
use glia_abi::handle::DeviceId;
use glia_abi::ioctl::{
    AppInfo, DeviceAppPid, DeviceBdf, DeviceBdfExt, DeviceGetAllAppsInfo, DeviceInfo, HostDeviceId,
    HostDeviceIdToRidMap, Printk, pointer, size_field,
};

use super::Call;
use super::info::REVISION;
use crate::memory::ProcessStats;

/// Bytes of a line for the log (driver 2.27).
const LINE_BYTES_MAX: usize = 512;

/// `DEVICE_INFO`. Every device is alone, as one whose neighbours cannot be found. BAR2 is not
/// modelled.
pub(crate) fn device_info(call: &Call<'_>) -> Result<(), Errno> {
    call.write(&DeviceInfo {
        architecture: call.profile().number(),
        revision: REVISION,
        bar_size: [call.profile().bar0_size_bytes, 0],
        ..DeviceInfo::default()
    })
}

/// `DEVICE_BDF`.
pub(crate) fn device_bdf(call: &Call<'_>) -> Result<(), Errno> {
    call.write(&DeviceBdf {
        bus: call.device.id.get(),
        ..DeviceBdf::default()
    })
}

/// `DEVICE_BDF_EXT`: of any device of the driver.
pub(crate) fn device_bdf_ext(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DeviceBdfExt = call.read()?;
    let number = call.device.id.get().checked_add(argument.nd_index);
    let device = number.map(DeviceId::new).ok_or(Errno::EINVAL)?;
    call.driver.memory(device).ok_or(Errno::EINVAL)?;
    call.write(&DeviceBdfExt {
        nd_index: argument.nd_index,
        bus: device.get(),
        ..DeviceBdfExt::default()
    })
}

/// `HOST_DEVICE_ID`.
pub(crate) fn host_device_id(call: &Call<'_>) -> Result<(), Errno> {
    let device_id = call.device.id.get();
    call.write(&HostDeviceId { device_id })
}

/// `HOST_DEVICE_ID_TO_RID_MAP`: of a machine that is in no pod, each device is its own routing id.
/// (uncertain) Devices beyond the 64 that the struct has room for are not counted.
pub(crate) fn host_device_id_to_rid_map(call: &Call<'_>) -> Result<(), Errno> {
    if size_field(call.word) as usize != size_of::<HostDeviceIdToRidMap>() {
        return Err(Errno::EINVAL);
    }
    call.write(&rid_map(call.driver.devices()))
}

fn rid_map(devices: u32) -> HostDeviceIdToRidMap {
    let mut map = HostDeviceIdToRidMap::default();
    for (device, rid) in (0..devices).zip(&mut map.rids) {
        *rid = device;
        map.count += 1;
    }
    map
}

/// `DEVICE_APP_PID`: the process in the first attach slot, 0 if it is free.
pub(crate) fn device_app_pid(call: &Call<'_>) -> Result<(), Errno> {
    let processes = call.device.memory.stats().processes;
    let first = processes.iter().find(|process| process.slot.index() == 0);
    let pid = first.map_or(0, pid);
    call.write(&DeviceAppPid { pid })
}

/// `DEVICE_GET_ALL_APPS_INFO`: the attached processes in the order of their slots, as many as there
/// is room for. (uncertain: that every field is filled, whatever `flags` ask for)
pub(crate) fn device_get_all_apps_info(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: DeviceGetAllAppsInfo = call.read()?;
    let processes = call.device.memory.stats().processes;
    let room = processes.iter().take(argument.capacity as usize);
    let apps: Vec<AppInfo> = room.map(|process| app_info(call, process)).collect();
    argument.size = u32::try_from(apps.len()).map_err(|_| Errno::EINVAL)?;
    call.write(&argument)?;
    let header_bytes = size_of::<DeviceGetAllAppsInfo>() as u64;
    let at = call.arg.checked_add(header_bytes).ok_or(Errno::EFAULT)?;
    call.put(at, apps.as_bytes())
}

/// `PRINTK`: a line of text that ends with a NUL. Nobody keeps a log here, so it is checked alone.
pub(crate) fn printk(call: &Call<'_>) -> Result<(), Errno> {
    let argument: Printk = call.read()?;
    let mut line = [0; LINE_BYTES_MAX];
    let line = line.get_mut(..argument.size as usize);
    let line = line.ok_or(Errno::EFAULT)?;
    let read = call.caller.memory.copy_in(pointer(argument.buffer), line);
    read.map_err(|_| Errno::EFAULT)?;
    match line.last() {
        Some(0) => Ok(()),
        Some(_) | None => Err(Errno::EBADMSG),
    }
}

/// A process as the ABI shows it: the cores whose [model locks](crate::model_lock) it holds, with
/// the models of the first four, and the bytes that are charged to its slot.
fn app_info(call: &Call<'_>, process: &ProcessStats) -> AppInfo {
    let bytes = |total: i64| total.max(0).unsigned_abs();
    let mut app = AppInfo {
        pid: pid(process),
        host_mem_size: bytes(process.host.total_bytes),
        device_mem_size: bytes(process.device.total_bytes),
        ..AppInfo::default()
    };
    for (core, model) in call.device.locks.held_by(process.pid) {
        app.nc_lock_map |= 1 << core.get();
        if let Some(uuid) = app.uuid.get_mut(core.index()) {
            *uuid = model;
        }
    }
    app
}

fn pid(process: &ProcessStats) -> i32 {
    process.pid.get().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_of_routing_ids_counts_no_more_devices_than_it_has_room_for() {
        let told = |devices| {
            let map = rid_map(devices);
            (map.count, map.rids[63])
        };
        assert_eq!([2, 63, 64].map(told), [(2, 0), (63, 0), (64, 63)]);
        assert_eq!([65, u32::MAX].map(told), [(64, 63); 2]);
    }
}
