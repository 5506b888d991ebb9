//! Opening a device that is being reset, or that a reset has left dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{FileId, Pid};
use glia_abi::ioctl::reset::{DONE, FAILED};
use glia_abi::ioctl::{self, MemCopyAsync64, NcReset, NcResetReady};
use glia_abi::sched::{Micros, Sched};
use glia_abi::transport::OpenMode;
use glia_device::VirtualSched;

use crate::client::{Client, NOWHERE, device_memory};
use crate::support::{MIB, Plan, Rig};

#[test]
fn a_process_that_is_to_end_does_not_wait_for_a_reset_of_the_device() {
    for arch in Arch::ALL {
        let sched = Arc::new(VirtualSched::new(1));
        let rig = Rig::with(Plan {
            sched: Arc::clone(&sched) as Arc<dyn Sched>,
            ..Plan::of(arch)
        });
        let life = || {
            let (client, file) = Client::attached(&rig, 7);
            let late = Client::new(&rig, 8);
            late.kill();
            let begun = client.raw_ioctl(file, ioctl::DEVICE_RESET, NOWHERE);
            assert_eq!(begun, Ok(0));
            for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                assert_eq!(late.open(mode), Err(Errno::EINTR), "{arch}");
            }
            assert!(late.open(OpenMode::WriteOnly).is_ok(), "attaches nobody");
            assert_eq!(rig.memory().open_count(Pid::new(8)), 0);
            // One that is not to end waits, and gets in.
            assert!(Client::new(&rig, 9).open(OpenMode::ReadWrite).is_ok());
            assert!(
                late.open(OpenMode::ReadWrite).is_ok(),
                "nothing to wait for"
            );
        };
        sched.run(vec![Box::new(life)]).unwrap();
    }
}

#[test]
fn a_device_whose_latest_reset_failed_cannot_be_opened_until_one_ends_well() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let other = Client::new(&rig, 8);
        rig.wire.set_mute(true);
        client
            .raw_ioctl(file, ioctl::DEVICE_RESET, NOWHERE)
            .unwrap();
        assert_eq!(told(&client, file), (0, FAILED), "{arch}");
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            assert_eq!(other.open(mode), Err(Errno::EINVAL), "{arch}");
        }
        assert!(other.open(OpenMode::WriteOnly).is_ok());
        rig.wire.set_mute(false);
        client
            .raw_ioctl(file, ioctl::DEVICE_RESET, NOWHERE)
            .unwrap();
        assert_eq!(told(&client, file), (1, DONE), "{arch}");
        assert!(other.open(OpenMode::ReadWrite).is_ok());
    }
}

/// The close of a process waits for the reset of a core that does not end; whoever opens does not.
#[test]
fn an_open_does_not_wait_for_a_reset_of_cores_behind_the_close_that_does() {
    for arch in Arch::ALL {
        let sched = Arc::new(VirtualSched::new(2));
        let rig = Rig::with(Plan {
            sched: Arc::clone(&sched) as Arc<dyn Sched>,
            ..Plan::of(arch)
        });
        let is_closed = AtomicBool::new(false);
        let close = || {
            let (client, file) = Client::attached(&rig, 7);
            rig.wire.set_mute(true);
            let reset = NcReset {
                nc_map: 1,
                ..NcReset::default()
            };
            client.ioctl(file, ioctl::NC_RESET, reset).unwrap();
            client.close(file);
            is_closed.store(true, Ordering::Relaxed);
        };
        let open = || {
            let (client, file) = Client::attached(&rig, 8);
            // By now the close waits.
            rig.pass(Micros(1_000_000));
            assert_eq!(rig.memory().open_count(Pid::new(7)), 1);
            let again = client.open(OpenMode::ReadWrite).unwrap();
            assert!(!is_closed.load(Ordering::Relaxed), "{arch}");
            assert_eq!(rig.memory().open_count(Pid::new(8)), 2);
            client.close(again);
            client.close(file);
            assert!(!is_closed.load(Ordering::Relaxed), "nor do other closes");
        };
        sched.run(vec![Box::new(close), Box::new(open)]).unwrap();
        assert_eq!(rig.memory().open_count(Pid::new(7)), 0);
    }
}

/// Who closes waits for a copy, and keeps others out meanwhile.
#[test]
fn a_process_that_is_to_end_does_not_wait_behind_a_close() {
    for seed in 0..20 {
        let sched = Arc::new(VirtualSched::new(seed));
        let rig = Rig::with(Plan {
            has_timing: true,
            sched: Arc::clone(&sched) as Arc<dyn Sched>,
            ..Plan::of(Arch::V3)
        });
        let is_closing = AtomicBool::new(false);
        let (client, file) = Client::attached(&rig, 7);
        let [src, dst] = [(); 2].map(|()| client.alloc(file, device_memory(8 * MIB)).unwrap());
        let copy = MemCopyAsync64 {
            src,
            dst,
            size: 8 * MIB,
            pwait: u32::MAX,
            ..MemCopyAsync64::default()
        };
        let close = || {
            let client = Client::new(&rig, 7);
            client.ioctl(file, ioctl::MEM_COPY_ASYNC64, copy).unwrap();
            is_closing.store(true, Ordering::Relaxed);
            client.close(file);
            is_closing.store(false, Ordering::Relaxed);
        };
        let open = || {
            let late = Client::new(&rig, 8);
            late.kill();
            while !is_closing.load(Ordering::Relaxed) {
                sched.pause();
            }
            // The copy takes some hundred microseconds.
            rig.pass(Micros(10));
            assert_eq!(late.open(OpenMode::ReadWrite), Err(Errno::EINTR), "{seed}");
            assert!(is_closing.load(Ordering::Relaxed), "{seed}");
            assert_eq!(rig.memory().open_count(Pid::new(8)), 0);
        };
        sched.run(vec![Box::new(close), Box::new(open)]).unwrap();
    }
}

/// What the two commands that wait for a reset tell of it.
fn told(client: &Client<'_>, file: FileId) -> (u8, i32) {
    let ready = client.space.put(&[9]);
    let answer = client.raw_ioctl(file, ioctl::DEVICE_READY, ready);
    assert_eq!(answer, Ok(0));
    let argument = NcResetReady {
        request_id: 7,
        result: 9,
    };
    let answer = client.ioctl(file, ioctl::NC_RESET_READY, argument);
    (client.space.get(ready)[0], answer.unwrap().result)
}
