//! Scrubbing HBM, by the bytes of its commands.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, HbmScrubStart, HbmScrubWait};
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE, device_memory};
use crate::support::{MIB, PAGE, Rig};

fn start(nc_id: u32, hbm_index: u32) -> HbmScrubStart {
    HbmScrubStart {
        nc_id,
        hbm_index,
        axi_port: 0,
        init_val: 7,
    }
}

/// Regions that are all carveout: there is nothing to overwrite.
fn empty(arch: Arch) -> Rig {
    Rig::with(arch, |memory| {
        let size_bytes = 16 * MIB;
        let scale = glia_abi::arch::Scale::RegionSize { size_bytes };
        memory.layout = glia_abi::arch::MemoryLayout::new(arch, scale).unwrap();
        memory.params.mempool_small_pool_size = size_bytes;
    })
}

/// The last core and the last channel.
fn last(arch: Arch) -> (u32, u32) {
    match arch {
        Arch::V2 => (1, 1),
        Arch::V3 | Arch::V4 => (7, 3),
    }
}

#[test]
fn a_scrub_is_begun_and_waited_for() {
    for arch in Arch::ALL {
        let rig = empty(arch);
        let (core, channel) = last(arch);
        let (client, file) = Client::attached(&rig, 7);
        let wait = |hbm_index| {
            let argument = HbmScrubWait {
                nc_id: core,
                hbm_index,
            };
            client.ioctl(file, ioctl::HBM_SCRUB_WAIT, argument)
        };
        assert_eq!(
            wait(channel).map(drop),
            Err(Errno::EINVAL),
            "none is under way"
        );
        let begun = client.ioctl(file, ioctl::HBM_SCRUB_START, start(core, channel));
        assert_eq!(begun, Ok(start(core, channel)), "the struct is not written");
        let twice = client.ioctl(file, ioctl::HBM_SCRUB_START, start(core, channel));
        assert_eq!(twice, Err(Errno::EBUSY));
        assert_eq!(
            wait(channel - 1).map(drop),
            Err(Errno::EINVAL),
            "another channel"
        );
        wait(channel).unwrap();
        assert_eq!(wait(channel).map(drop), Err(Errno::EINVAL));
    }
}

#[test]
fn a_scrub_of_what_is_in_use_or_not_there_is_refused() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (core, channel) = last(arch);
        let (client, file) = Client::attached(&rig, 7);
        let begin = |argument| {
            client
                .ioctl(file, ioctl::HBM_SCRUB_START, argument)
                .map(drop)
        };
        client.alloc(file, device_memory(PAGE)).unwrap();
        assert_eq!(begin(start(0, 0)), Err(Errno::EBUSY));
        assert_eq!(begin(start(0, channel + 1)), Err(Errno::EINVAL));
        assert_eq!(begin(start(core + 1, 0)), Err(Errno::EINVAL));
        for word in [ioctl::HBM_SCRUB_START, ioctl::HBM_SCRUB_WAIT] {
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
            let write_only = client.open(OpenMode::WriteOnly).unwrap();
            let answer = client.raw_ioctl(write_only, word, NOWHERE);
            assert_eq!(answer, Err(Errno::EINVAL));
        }
    }
}

#[test]
fn a_process_that_goes_leaves_no_scrub() {
    for arch in Arch::ALL {
        let rig = empty(arch);
        let (client, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let begun = client.ioctl(file, ioctl::HBM_SCRUB_START, start(0, 0));
        begun.unwrap();
        client.close(file);
        let begun = other.ioctl(other_file, ioctl::HBM_SCRUB_START, start(0, 0));
        begun.unwrap();
    }
}
