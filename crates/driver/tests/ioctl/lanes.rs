//! Versions and features, and which files reach which commands.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, CompatibleVersion, DeviceBasicInfo, DriverInfo};
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE, device_memory};
use crate::support::{PAGE, Rig};

#[test]
fn versions_and_features_are_those_of_the_generation() {
    // Since V3 there is zero copy, bit 8.
    let generations = [
        (Arch::V2, 7, 5, 2, 0b0_1111_1110),
        (Arch::V3, 11, 10, 3, 0b1_1111_1110),
        (Arch::V4, 11, 10, 4, 0b1_1111_1110),
    ];
    for (arch, max, min, number, features) in generations {
        let rig = Rig::new(arch);
        let client = Client::new(&rig, 7);
        for mode in [OpenMode::WriteOnly, OpenMode::ReadWrite] {
            let file = client.open(mode).unwrap();
            let versions = CompatibleVersion::default();
            let versions = client.ioctl(file, ioctl::COMPATIBLE_VERSION, versions);
            assert_eq!(versions, Ok(CompatibleVersion { max, min }));
            let info = DeviceBasicInfo::default();
            let info = client.ioctl(file, ioctl::DEVICE_BASIC_INFO, info).unwrap();
            assert_eq!(info.architecture, number);
            let info = DriverInfo::default();
            let info = client.ioctl(file, ioctl::DRIVER_INFO_GET, info).unwrap();
            assert_eq!((info.architecture, info.version), (number, 0));
            assert_eq!((info.size, info.feature_flags1), (24, features));
        }
    }
}

#[test]
fn the_driver_info_is_known_by_number_and_has_its_own_checks() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let ask = |word| client.ioctl(file, word, DriverInfo::default()).map(drop);
        assert_eq!(
            ask(ioctl::DRIVER_INFO_GET + (8 << 16)),
            Ok(()),
            "a later form"
        );
        assert_eq!(ask(ioctl::DRIVER_INFO_GET - (8 << 16)), Err(Errno::EINVAL));
        assert_eq!(ask(ioctl::DRIVER_INFO_SET), Err(Errno::ENOTSUPP));
        assert_eq!(ask(0xc018_4e6e), Err(Errno::EINVAL));
    }
}

#[test]
fn answers_that_cannot_be_written_are_faults() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let words = [
            ioctl::COMPATIBLE_VERSION,
            ioctl::DEVICE_BASIC_INFO,
            ioctl::DRIVER_INFO_GET,
        ];
        for word in words {
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
        }
    }
}

#[test]
fn a_write_only_file_reaches_the_misc_lane_alone() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let client = Client::new(&rig, 7);
        let file = client.open(OpenMode::WriteOnly).unwrap();
        for word in [ioctl::DEVICE_INIT, ioctl::MEM_FREE, ioctl::MEM_COPY64] {
            let answer = client.raw_ioctl(file, word, NOWHERE);
            assert_eq!(answer, Err(Errno::EINVAL), "{:?}", ioctl::name(word));
        }
        let answer = client.alloc(file, device_memory(PAGE));
        assert_eq!(answer, Err(Errno::EINVAL));
        let set = client.raw_ioctl(file, ioctl::DRIVER_INFO_SET, NOWHERE);
        assert_eq!(set, Err(Errno::ENOTSUPP), "the gate is of the other lane");
    }
}

#[test]
fn init_and_release_do_nothing_for_anybody() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (_parent, file) = Client::attached(&rig, 7);
        let child = Client::new(&rig, 8);
        let pauses = rig.sched.pauses.load(std::sync::atomic::Ordering::Relaxed);
        for word in [ioctl::DEVICE_INIT, ioctl::DEVICE_RELEASE] {
            assert_eq!(child.raw_ioctl(file, word, NOWHERE), Ok(0));
        }
        let now = rig.sched.pauses.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(now - pauses, 2, "others may run at every command");
    }
}

#[test]
fn commands_that_are_not_built_and_words_of_nobody_are_invalid() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let words = [
            ioctl::SEMAPHORE_READ,
            ioctl::EVENT_GET,
            ioctl::NC_MODEL_STARTED_COUNT,
            ioctl::MEM_BUF_ZEROCOPY64_2_24,
            ioctl::MEM_MC_GET_INFO ^ 4 << 16,
            ioctl::MEM_COPY ^ 1 << 30,
            ioctl::MEM_ALLOC_V2MT64 ^ 1 << 16,
            ioctl::MEM_FREE ^ 1 << 31,
            ioctl::DEVICE_INIT + 0x100,
            0,
            u32::MAX,
        ];
        for word in words {
            assert_eq!(
                client.raw_ioctl(file, word, NOWHERE),
                Err(Errno::EINVAL),
                "{word:#x}"
            );
        }
    }
}
