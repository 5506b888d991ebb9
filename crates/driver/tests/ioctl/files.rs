//! Opening, attaching, closing.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::NoSink;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{DeviceId, FileId};
use glia_abi::ioctl;
use glia_abi::transport::OpenMode;
use glia_driver::driver::{DeviceSetup, Driver, DriverInitError};

use crate::client::{Client, NOWHERE, device_memory};
use crate::support::{MIB, ND0, PAGE, Rig, small_device};

#[test]
fn the_seventeenth_process_is_refused_until_one_goes() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let clients: Vec<_> = (1..=16).map(|pid| Client::attached(&rig, pid)).collect();
        let late = Client::new(&rig, 17);
        assert_eq!(late.open(OpenMode::ReadOnly), Err(Errno::EBUSY));
        let (first, file) = &clients[0];
        first.open(OpenMode::ReadOnly).unwrap();
        late.open(OpenMode::WriteOnly).unwrap();
        first.close(*file);
        assert_eq!(late.open(OpenMode::ReadWrite), Err(Errno::EBUSY));
        let (second, file) = &clients[1];
        second.close(*file);
        assert!(late.open(OpenMode::ReadWrite).is_ok());
    }
}

#[test]
fn an_open_that_is_refused_leaves_no_file() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let _clients: Vec<_> = (1..=16).map(|pid| Client::attached(&rig, pid)).collect();
        let late = Client::new(&rig, 17);
        let before = late.open(OpenMode::WriteOnly).unwrap();
        late.open(OpenMode::ReadWrite).unwrap_err();
        let after = late.open(OpenMode::WriteOnly).unwrap();
        let slot = |file: FileId| file.0 & u64::from(u32::MAX);
        assert_eq!(slot(after), slot(before) + 1);
    }
}

#[test]
fn a_file_of_nobody_is_a_bad_descriptor() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        client.close(file);
        for file in [file, FileId(0), FileId(u64::MAX)] {
            let answer = client.raw_ioctl(file, ioctl::DEVICE_INIT, NOWHERE);
            assert_eq!(answer, Err(Errno::EBADF));
            assert_eq!(client.mmap(file, 0, PAGE), Err(Errno::EBADF));
            client.close(file);
        }
        let absent = DeviceId::new(1);
        let answer = client.call(|caller| rig.driver.open(caller, absent, OpenMode::ReadWrite));
        assert_eq!(answer, Err(Errno::ENOENT));
        assert!(rig.driver.insight(absent).is_none());
    }
}

#[test]
fn the_last_close_of_a_process_takes_its_memory_back() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let before = rig.memory().stats();
        let (client, file) = Client::attached(&rig, 7);
        let (stays, other_file) = Client::attached(&rig, 8);
        let mine = client.alloc(file, device_memory(MIB)).unwrap();
        let others = stays.alloc(other_file, device_memory(MIB)).unwrap();
        let second = client.open(OpenMode::ReadOnly).unwrap();
        client.close(second);
        assert!(client.get_pa(file, mine).is_ok(), "it is open still");
        client.close(file);
        assert_eq!(stays.get_pa(other_file, mine), Err(Errno::EINVAL));
        assert!(stays.get_pa(other_file, others).is_ok());
        stays.close(other_file);
        assert_eq!(rig.memory().stats(), before);
    }
}

#[test]
fn closing_a_copy_of_a_descriptor_detaches_the_process() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        client.flush(file);
        assert_eq!(client.free(file, handle), Err(Errno::EACCES));
        let answer = client.alloc(file, device_memory(PAGE));
        assert_eq!(answer, Err(Errno::EACCES), "the reference stops here");
        client.close(file);
    }
}

#[test]
fn a_forked_child_closes_without_effect() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (parent, file) = Client::attached(&rig, 7);
        let handle = parent.alloc(file, device_memory(PAGE)).unwrap();
        Client::new(&rig, 8).flush(file);
        assert!(parent.get_pa(file, handle).is_ok());
    }
}

#[test]
fn a_write_only_file_neither_attaches_nor_counts() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let free_access = client.open(OpenMode::WriteOnly).unwrap();
        let handle = client.alloc(file, device_memory(PAGE)).unwrap();
        client.close(free_access);
        assert!(client.get_pa(file, handle).is_ok());
    }
}

#[test]
fn bring_up_says_which_device_failed() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let up = |setups: Vec<DeviceSetup>| {
            Driver::new(
                setups,
                Arc::clone(&rig.host) as Arc<_>,
                Arc::clone(&rig.sched) as Arc<_>,
                Arc::new(NoSink),
                Arc::new(NoFaults),
            )
        };
        let setup = |number: u32| {
            let mut memory = small_device(Arch::V2);
            memory.device = DeviceId::new(number);
            let port = Arc::clone(&rig.port) as Arc<_>;
            DeviceSetup { memory, port }
        };
        let error = up(vec![setup(3), setup(3)]).unwrap_err();
        assert_eq!(error.to_string(), "nd 3 is there twice");
        let mut wrong = setup(4);
        wrong.memory.params.mempool_min_alloc_size = 5;
        let error = up(vec![setup(3), wrong]).unwrap_err();
        assert_eq!(error.to_string(), "nd 4 does not come up");
        rig.host.set_full(true);
        let error = up(vec![setup(5)]).unwrap_err();
        assert!(matches!(error, DriverInitError::Ring { .. }));
        rig.host.set_full(false);
        let driver = up(vec![setup(6), setup(2)]).unwrap();
        assert_eq!(driver.devices(), 2);
        assert!(driver.memory(DeviceId::new(2)).is_some() && driver.memory(ND0).is_none());
    }
}
