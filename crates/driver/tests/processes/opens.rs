//! Opening a device that is being reset, or that a reset has left dead.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl;
use glia_abi::sched::Sched;
use glia_abi::transport::OpenMode;
use glia_device::VirtualSched;

use crate::client::{Client, NOWHERE};
use crate::support::{Plan, Rig};

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
            assert_eq!(rig.memory().open_count(glia_abi::handle::Pid::new(8)), 0);
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
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            assert_eq!(other.open(mode), Err(Errno::EINVAL), "{arch}");
        }
        assert!(other.open(OpenMode::WriteOnly).is_ok());
        rig.wire.set_mute(false);
        client
            .raw_ioctl(file, ioctl::DEVICE_RESET, NOWHERE)
            .unwrap();
        assert!(other.open(OpenMode::ReadWrite).is_ok());
    }
}
