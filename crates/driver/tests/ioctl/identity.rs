//! Which device it is, where it is, and who uses it.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{
    self, AppInfo, Crwl, DeviceAppPid, DeviceBdf, DeviceBdfExt, DeviceGetAllAppsInfo, DeviceInfo,
    HostDeviceId, HostDeviceIdToRidMap, Printk,
};
use glia_abi::transport::OpenMode;
use zerocopy::{FromBytes, IntoBytes};

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::support::{ND1, PAGE, Rig};

#[test]
fn a_device_is_of_its_generation_and_has_no_neighbours() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let expected = DeviceInfo {
            architecture: arch.profile().number(),
            bar_size: [arch.profile().bar0_size_bytes, 0],
            ..DeviceInfo::default()
        };
        let info = client
            .ioctl(file, ioctl::DEVICE_INFO, [0xff_u8; 80])
            .unwrap();
        assert_eq!(info, expected.as_bytes());
    }
}

#[test]
fn every_device_has_a_place_and_a_number_of_its_own() {
    for arch in Arch::ALL {
        let rig = Rig::pair(arch);
        let client = Client::new(&rig, 7);
        let file = client.open_device(ND1, OpenMode::ReadWrite).unwrap();
        let place = client.ioctl(file, ioctl::DEVICE_BDF, [0xff_u8; 8]).unwrap();
        let expected = DeviceBdf {
            bus: 1,
            ..DeviceBdf::default()
        };
        assert_eq!(place, expected.as_bytes());
        let number = client.ioctl(file, ioctl::HOST_DEVICE_ID, [0xff_u8; 4]);
        assert_eq!(number.unwrap(), HostDeviceId { device_id: 1 }.as_bytes());
    }
}

#[test]
fn the_place_of_any_device_is_told_relative_to_the_opened_one() {
    for arch in Arch::ALL {
        let rig = Rig::pair(arch);
        let client = Client::new(&rig, 7);
        let ask = |file: FileId, nd_index| {
            let argument = DeviceBdfExt {
                nd_index,
                domain: 9,
                bus: 9,
                slot: 9,
                func: 9,
                pad: [0; 2],
            };
            let answer = client.ioctl(file, ioctl::DEVICE_BDF_EXT, argument)?;
            assert_eq!((answer.nd_index, answer.domain), (nd_index, 0));
            assert_eq!((answer.slot, answer.func), (0, 0));
            Ok(answer.bus)
        };
        for mode in [OpenMode::WriteOnly, OpenMode::ReadWrite] {
            let first = client.open(mode).unwrap();
            let second = client.open_device(ND1, mode).unwrap();
            assert_eq!([0, 1].map(|index| ask(first, index)), [Ok(0), Ok(1)]);
            assert_eq!(ask(first, 2), Err(Errno::EINVAL));
            assert_eq!(ask(second, 0), Ok(1));
            assert_eq!(ask(second, 1), Err(Errno::EINVAL));
            assert_eq!(ask(second, u32::MAX), Err(Errno::EINVAL));
        }
    }
}

#[test]
fn the_process_of_the_first_slot_is_told() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (first, file) = Client::attached(&rig, 7);
        let (second, second_file) = Client::attached(&rig, 8);
        let ask = |client: &Client<'_>, file| {
            let answer = client.ioctl(file, ioctl::DEVICE_APP_PID, DeviceAppPid { pid: -1 });
            answer.unwrap().pid
        };
        assert_eq!(ask(&second, second_file), 7);
        first.close(file);
        assert_eq!(ask(&second, second_file), 0);
    }
}

/// The header and as many entries as there is room for, all bytes 0xaa before.
fn apps(client: &Client<'_>, file: FileId, capacity: u32, room: usize) -> (u32, Vec<AppInfo>) {
    let header = DeviceGetAllAppsInfo {
        flags: 3,
        capacity,
        ..DeviceGetAllAppsInfo::default()
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.resize(bytes.len() + room * size_of::<AppInfo>(), 0xaa);
    let at = client.space.put(&bytes);
    let answer = client.raw_ioctl(file, ioctl::DEVICE_GET_ALL_APPS_INFO, at);
    assert_eq!(answer, Ok(0));
    let bytes = client.space.get(at);
    let (header, entries) = DeviceGetAllAppsInfo::read_from_prefix(&bytes).unwrap();
    let entries = <[AppInfo]>::ref_from_bytes(entries).unwrap();
    (header.size, entries.to_vec())
}

#[test]
fn the_attached_processes_are_told_with_what_they_use() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (first, file) = Client::attached(&rig, 7);
        let (second, second_file) = Client::attached(&rig, 8);
        first.alloc(file, device_memory(PAGE)).unwrap();
        first.alloc(file, host_memory(2 * PAGE)).unwrap();
        let lock = Crwl {
            nc_id: 3,
            uuid: [5; 32],
        };
        second
            .ioctl(second_file, ioctl::CRWL_WRITER_ENTER, lock)
            .unwrap();
        let beyond = Crwl { nc_id: 7, ..lock };
        second
            .ioctl(second_file, ioctl::CRWL_WRITER_ENTER, beyond)
            .unwrap();

        let (size, told) = apps(&first, file, 3, 3);
        assert_eq!(size, 2);
        let expected = AppInfo {
            pid: 7,
            host_mem_size: 2 * PAGE,
            device_mem_size: PAGE,
            ..AppInfo::default()
        };
        assert_eq!(told[0], expected);
        let mut expected = AppInfo {
            pid: 8,
            nc_lock_map: 0b1000_1000,
            ..AppInfo::default()
        };
        expected.uuid[3] = [5; 32];
        assert_eq!(told[1], expected);
        assert_eq!(told[2].pid, 0xaaaa_aaaa_u32.cast_signed());
    }
}

#[test]
fn no_more_processes_are_told_than_there_is_room_for() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (_second, _) = Client::attached(&rig, 8);
        let (size, told) = apps(&client, file, 1, 2);
        assert_eq!((size, told[0].pid), (1, 7));
        assert_eq!(told[1].pid, 0xaaaa_aaaa_u32.cast_signed());
        assert_eq!(apps(&client, file, 0, 0).0, 0);
        let lies = DeviceGetAllAppsInfo {
            capacity: u32::MAX,
            ..DeviceGetAllAppsInfo::default()
        };
        let answer = client.ioctl(file, ioctl::DEVICE_GET_ALL_APPS_INFO, lies);
        assert_eq!(answer.map(drop), Err(Errno::EFAULT), "there is no room");
    }
}

#[test]
fn a_line_for_the_log_has_an_end_and_a_limit() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let client = Client::new(&rig, 7);
        for mode in [OpenMode::WriteOnly, OpenMode::ReadWrite] {
            let file = client.open(mode).unwrap();
            let ask = |buffer, size| {
                let argument = Printk {
                    buffer,
                    size,
                    pad: 0,
                };
                client.ioctl(file, ioctl::PRINTK, argument).map(drop)
            };
            let line = client.space.put(b"hello\0");
            assert_eq!(ask(line, 6), Ok(()));
            assert_eq!(ask(line, 5), Err(Errno::EBADMSG));
            assert_eq!(ask(line, 0), Err(Errno::EBADMSG));
            assert_eq!(ask(line, 7), Err(Errno::EFAULT));
            assert_eq!(ask(NOWHERE, 6), Err(Errno::EFAULT));
            let long = client.space.put(&[0; 513]);
            assert_eq!(ask(long, 512), Ok(()));
            assert_eq!(ask(long, 513), Err(Errno::EFAULT));
            assert_eq!(ask(long, u32::MAX), Err(Errno::EFAULT));
        }
    }
}

#[test]
fn answers_that_cannot_be_written_are_faults() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let words = [
            ioctl::DEVICE_INFO,
            ioctl::DEVICE_BDF,
            ioctl::DEVICE_BDF_EXT,
            ioctl::HOST_DEVICE_ID,
            ioctl::DEVICE_APP_PID,
            ioctl::DEVICE_GET_ALL_APPS_INFO,
            ioctl::PRINTK,
        ];
        let short = client.space.put(&[0; 3]);
        for word in words {
            for at in [0, NOWHERE, u64::MAX, short] {
                let answer = client.raw_ioctl(file, word, at);
                assert_eq!(answer, Err(Errno::EFAULT), "{:?}", ioctl::name(word));
            }
        }
        let read_only = client.space.put_read_only(&[0; 16]);
        for word in [ioctl::DEVICE_BDF_EXT, ioctl::DEVICE_GET_ALL_APPS_INFO] {
            let answer = client.raw_ioctl(file, word, read_only);
            assert_eq!(answer, Err(Errno::EFAULT), "{:?}", ioctl::name(word));
        }
    }
}

#[test]
fn every_device_of_a_machine_in_no_pod_is_its_own_routing_id() {
    for arch in [Arch::V2, Arch::V3, Arch::V4] {
        let rig = Rig::pair(arch);
        let client = Client::new(&rig, 7);
        for mode in [OpenMode::WriteOnly, OpenMode::ReadWrite] {
            let file = client.open(mode).unwrap();
            let ask = |word| client.ioctl(file, word, HostDeviceIdToRidMap::default());
            let word = ioctl::HOST_DEVICE_ID_TO_RID_MAP;
            let map = ask(word).unwrap();
            assert_eq!((map.count, &map.rids[..3]), (2, &[0, 1, 0][..]));
            assert!(ask(word ^ 1 << 31).is_ok(), "known by its number");
            for size in [4, 0x104] {
                assert_eq!(ask(word ^ size << 16).map(drop), Err(Errno::EINVAL));
            }
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
        }
    }
}
