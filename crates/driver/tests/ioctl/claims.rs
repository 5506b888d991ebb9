//! Claims of cores, over all devices.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, FileId, Pid};
use glia_abi::ioctl::{self, NcMap, NcMapExt};
use glia_abi::transport::OpenMode;
use zerocopy::{FromBytes, IntoBytes};

use crate::client::{Client, NOWHERE};
use crate::support::{ND0, ND1, Rig};

/// What a claim came to: the answer, the bits and the longest run.
type Came = (Result<i32, Errno>, u64, u32);

fn mark(client: &Client<'_>, file: FileId, count: u32, start: u32, end: u32) -> Came {
    let argument = NcMap {
        nc_count: count,
        start_nc: start,
        end_nc: end,
        max_nc_available: 99,
        bitmap: 0xdead,
    };
    let at = client.space.put(argument.as_bytes());
    let answer = client.raw_ioctl(file, ioctl::CRWL_NC_RANGE_MARK, at);
    let after = NcMap::read_from_bytes(&client.space.get(at)).unwrap();
    (answer, after.bitmap, after.max_nc_available)
}

fn mark_ext(
    client: &Client<'_>,
    file: FileId,
    count: u32,
    start: u32,
    end: u32,
) -> (Came, [u64; 8]) {
    let argument = NcMapExt {
        nc_count: count,
        start_nc: start,
        end_nc: end,
        max_nc_available: 99,
        bitmap: [0xdead; 8],
    };
    let at = client.space.put(argument.as_bytes());
    let answer = client.raw_ioctl(file, ioctl::CRWL_NC_RANGE_MARK_EXT0, at);
    let after = NcMapExt::read_from_bytes(&client.space.get(at)).unwrap();
    let came = (answer, after.bitmap[0], after.max_nc_available);
    (came, after.bitmap)
}

fn unmark(client: &Client<'_>, file: FileId, bitmap: u64) -> Result<(), Errno> {
    let argument = NcMap {
        bitmap,
        ..NcMap::default()
    };
    let answer = client.ioctl(file, ioctl::CRWL_NC_RANGE_UNMARK, argument);
    answer.map(drop)
}

fn holders(rig: &Rig) -> Vec<Option<u32>> {
    let cores = (0..8).map(CoreId::new);
    let holders = cores.map(|core| rig.driver.core_holder(ND0, core));
    holders.map(|holder| holder.map(Pid::get)).collect()
}

fn free_access<'a>(rig: &'a Rig, pid: u32) -> (Client<'a>, FileId) {
    let client = Client::new(rig, pid);
    let file = client.open(OpenMode::WriteOnly).unwrap();
    (client, file)
}

#[test]
fn the_second_to_claim_a_core_is_refused_and_can_learn_who_has_it() {
    for arch in [Arch::V3, Arch::V4] {
        let rig = Rig::new(arch);
        let (first, file) = free_access(&rig, 7);
        let (second, second_file) = free_access(&rig, 8);
        assert_eq!(mark(&first, file, 4, 0, 7), (Ok(0), 0b1111, 4));
        let refused = mark(&second, second_file, 5, 0, 7);
        assert_eq!(refused, (Err(Errno::EBUSY), 0, 4));
        assert_eq!(
            rig.driver.core_holder(ND0, CoreId::new(3)),
            Some(Pid::new(7))
        );
        assert_eq!(rig.driver.core_holder(ND0, CoreId::new(4)), None);
        assert_eq!(
            mark(&second, second_file, 1, 2, 3),
            (Err(Errno::EBUSY), 0, 0)
        );
        let (came, bitmap) = mark_ext(&second, second_file, 4, 4, 7);
        assert_eq!(came, (Ok(0), 0b1111_0000, 4));
        assert_eq!(bitmap[1..], [0; 7]);
        let both = [Some(7); 4].into_iter().chain([Some(8); 4]);
        assert_eq!(holders(&rig), both.collect::<Vec<_>>());
    }
}

#[test]
fn ranges_that_make_no_sense_are_refused_and_nothing_is_written() {
    for arch in Arch::ALL {
        let rig = Rig::pair(arch);
        let client = Client::new(&rig, 7);
        for mode in [OpenMode::WriteOnly, OpenMode::ReadWrite] {
            let file = client.open(mode).unwrap();
            for (start, end) in [(1, 0), (0, 512), (0, u32::MAX), (u32::MAX, u32::MAX)] {
                let refused = (Err(Errno::EINVAL), 0xdead, 99);
                assert_eq!(mark(&client, file, 1, start, end), refused);
                assert_eq!(mark_ext(&client, file, 1, start, end).0, refused);
            }
        }
        // The table of 512 cores begins with those of nd 0.
        let last = match arch {
            Arch::V2 => 509,
            Arch::V3 | Arch::V4 => 503,
        };
        let second = client.open_device(ND1, OpenMode::WriteOnly).unwrap();
        let refused = mark(&client, second, 1, 0, last + 1);
        assert_eq!(refused, (Err(Errno::EINVAL), 0xdead, 99));
        assert_eq!(mark(&client, second, 1, last, last), (Ok(0), 0, 1));
        assert_eq!(holders(&rig), [None; 8]);
    }
}

#[test]
fn claims_hold_over_all_devices_and_count_from_the_opened_one() {
    for (arch, cores) in [(Arch::V2, 2), (Arch::V3, 8), (Arch::V4, 8)] {
        let rig = Rig::pair(arch);
        let client = Client::new(&rig, 7);
        let first = client.open(OpenMode::WriteOnly).unwrap();
        let second = client.open_device(ND1, OpenMode::WriteOnly).unwrap();
        assert_eq!(mark(&client, second, 1, 1, 1), (Ok(0), 0b10, 1));
        let bit = 1 << (cores + 1);
        let core = cores + 1;
        assert_eq!(
            mark(&client, first, 1, core, core),
            (Err(Errno::EBUSY), 0, 0)
        );
        assert_eq!(
            rig.driver.core_holder(ND1, CoreId::new(1)),
            Some(Pid::new(7))
        );
        let holder = rig.driver.core_holder(ND0, CoreId::new(core));
        assert_eq!(
            holder,
            Some(Pid::new(7)),
            "{arch}: by its place in the table"
        );
        unmark(&client, first, bit).unwrap();
        assert_eq!(mark(&client, first, 1, core, core), (Ok(0), bit, 1));
    }
}

#[test]
fn a_process_unmarks_its_own_cores_alone() {
    for arch in [Arch::V3, Arch::V4] {
        let rig = Rig::new(arch);
        let (first, file) = free_access(&rig, 7);
        let (second, second_file) = free_access(&rig, 8);
        mark(&first, file, 2, 0, 1).0.unwrap();
        mark(&second, second_file, 2, 2, 3).0.unwrap();
        assert_eq!(unmark(&first, file, u64::MAX), Ok(()));
        assert_eq!(holders(&rig)[..4], [None, None, Some(8), Some(8)]);
        let argument = NcMapExt {
            bitmap: [0b100, 0, 0, 0, 0, 0, 0, 1 << 63],
            ..NcMapExt::default()
        };
        let word = ioctl::CRWL_NC_RANGE_UNMARK_EXT0;
        second.ioctl(second_file, word, argument).unwrap();
        assert_eq!(holders(&rig)[..4], [None, None, None, Some(8)]);
    }
}

#[test]
fn cores_beyond_the_first_64_are_told_by_the_large_map_alone() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = free_access(&rig, 7);
        assert_eq!(mark(&client, file, 2, 63, 64), (Ok(0), 1 << 63, 2));
        let (came, bitmap) = mark_ext(&client, file, 2, 127, 511);
        assert_eq!(came, (Ok(0), 0, 2));
        assert_eq!(bitmap[..4], [0, 1 << 63, 1, 0]);
    }
}

#[test]
fn the_close_of_a_write_only_file_gives_all_cores_of_the_process_back() {
    let rig = Rig::pair(Arch::V3);
    let (client, file) = Client::attached(&rig, 7);
    let second = client.open_device(ND1, OpenMode::WriteOnly).unwrap();
    let (other, other_file) = free_access(&rig, 8);
    mark(&other, other_file, 1, 7, 7).0.unwrap();
    mark(&client, file, 2, 0, 7).0.unwrap();
    client.close(file);
    assert_eq!(
        holders(&rig)[..2],
        [Some(7); 2],
        "an attached file leaves them"
    );
    client.flush(second);
    assert_eq!(holders(&rig)[..2], [None; 2]);
    assert_eq!(holders(&rig)[7], Some(8));
}

#[test]
fn a_claim_of_which_nobody_can_be_told_is_not_kept() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = free_access(&rig, 7);
        let argument = NcMapExt {
            nc_count: 8,
            end_nc: 7,
            ..NcMapExt::default()
        };
        let words = [
            ioctl::CRWL_NC_RANGE_MARK,
            ioctl::CRWL_NC_RANGE_MARK_EXT0,
            ioctl::CRWL_NC_RANGE_UNMARK,
            ioctl::CRWL_NC_RANGE_UNMARK_EXT0,
        ];
        let short = client.space.put(&[0; 23]);
        for word in words {
            for at in [0, NOWHERE, u64::MAX, short] {
                assert_eq!(client.raw_ioctl(file, word, at), Err(Errno::EFAULT));
            }
        }
        let at = client.space.put_read_only(argument.as_bytes());
        for word in [ioctl::CRWL_NC_RANGE_MARK, ioctl::CRWL_NC_RANGE_MARK_EXT0] {
            assert_eq!(client.raw_ioctl(file, word, at), Err(Errno::EFAULT));
            assert_eq!(holders(&rig), [None; 8]);
        }
    }
}
