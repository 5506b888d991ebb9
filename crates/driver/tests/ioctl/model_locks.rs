//! The locks of cores by which models are loaded once.

use std::sync::atomic::Ordering;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{
    self, CRWL_READER_ENTER, CRWL_READER_EXIT, CRWL_WRITER_DOWNGRADE, CRWL_WRITER_ENTER, Crwl,
};

use crate::client::{Client, NOWHERE};
use crate::support::Rig;

const ALL: [u32; 4] = [
    CRWL_READER_ENTER,
    CRWL_READER_EXIT,
    CRWL_WRITER_ENTER,
    CRWL_WRITER_DOWNGRADE,
];

/// One process, asking for locks of core 0.
struct Asker<'a> {
    client: Client<'a>,
    file: FileId,
}

impl<'a> Asker<'a> {
    fn new(rig: &'a Rig, pid: u32) -> Self {
        let (client, file) = Client::attached(rig, pid);
        Self { client, file }
    }

    fn ask(&self, word: u32, model: u8) -> Result<(), Errno> {
        let argument = Crwl {
            nc_id: 0,
            uuid: [model; 32],
        };
        self.client.ioctl(self.file, word, argument).map(drop)
    }
}

#[test]
fn a_writer_becomes_a_reader_beside_which_others_of_its_process_read() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let mine = Asker::new(&rig, 7);
        assert_eq!(mine.ask(CRWL_WRITER_ENTER, 1), Ok(()));
        assert_eq!(mine.ask(CRWL_READER_ENTER, 1), Err(Errno::EBUSY));
        assert_eq!(mine.ask(CRWL_WRITER_DOWNGRADE, 1), Ok(()));
        assert_eq!(mine.ask(CRWL_READER_ENTER, 1), Ok(()));
        assert_eq!(mine.ask(CRWL_READER_EXIT, 1), Ok(()));
        assert_eq!(
            mine.ask(CRWL_WRITER_ENTER, 1),
            Err(Errno::EBUSY),
            "one reads"
        );
        assert_eq!(mine.ask(CRWL_READER_EXIT, 1), Ok(()));
        assert_eq!(
            mine.ask(CRWL_READER_EXIT, 1),
            Err(Errno::EINVAL),
            "none reads"
        );
    }
}

#[test]
fn whoever_loads_what_is_loaded_is_told_so_and_has_the_lock() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let mine = Asker::new(&rig, 7);
        mine.ask(CRWL_WRITER_ENTER, 1).unwrap();
        mine.ask(CRWL_WRITER_DOWNGRADE, 1).unwrap();
        mine.ask(CRWL_READER_EXIT, 1).unwrap();
        assert_eq!(mine.ask(CRWL_WRITER_ENTER, 1), Err(Errno::EALREADY));
        assert_eq!(mine.ask(CRWL_WRITER_ENTER, 1), Err(Errno::EBUSY));
        mine.ask(CRWL_WRITER_DOWNGRADE, 1).unwrap();
        mine.ask(CRWL_READER_EXIT, 1).unwrap();
        assert_eq!(mine.ask(CRWL_WRITER_ENTER, 2), Ok(()), "another model");
    }
}

#[test]
fn another_model_or_another_process_has_no_such_lock() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (mine, other) = (Asker::new(&rig, 7), Asker::new(&rig, 8));
        assert_eq!(mine.ask(CRWL_READER_ENTER, 1), Err(Errno::ENOENT));
        assert_eq!(mine.ask(CRWL_READER_EXIT, 1), Err(Errno::ENOENT));
        assert_eq!(mine.ask(CRWL_WRITER_DOWNGRADE, 1), Err(Errno::EINVAL));
        mine.ask(CRWL_WRITER_ENTER, 1).unwrap();
        assert_eq!(mine.ask(CRWL_WRITER_DOWNGRADE, 2), Err(Errno::ENOENT));
        assert_eq!(other.ask(CRWL_WRITER_DOWNGRADE, 1), Err(Errno::ENOENT));
        mine.ask(CRWL_WRITER_DOWNGRADE, 1).unwrap();
        for word in [CRWL_READER_ENTER, CRWL_READER_EXIT] {
            assert_eq!(mine.ask(word, 2), Err(Errno::ENOENT));
            assert_eq!(other.ask(word, 1), Err(Errno::ENOENT));
        }
        assert_eq!(other.ask(CRWL_WRITER_DOWNGRADE, 1), Err(Errno::EINVAL));
    }
}

#[test]
fn readers_wait_half_a_second_and_writers_two() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (mine, other) = (Asker::new(&rig, 7), Asker::new(&rig, 8));
        let bound_us = || rig.sched.bound_us.load(Ordering::Relaxed);
        mine.ask(CRWL_WRITER_ENTER, 1).unwrap();
        assert_eq!(other.ask(CRWL_READER_ENTER, 1), Err(Errno::EBUSY));
        assert_eq!(bound_us(), 500_000);
        assert_eq!(other.ask(CRWL_WRITER_ENTER, 1), Err(Errno::EBUSY));
        assert_eq!(bound_us(), 2_000_000);
        other.client.kill();
        assert_eq!(other.ask(CRWL_WRITER_ENTER, 1), Err(Errno::EINTR));
    }
}

#[test]
fn a_writer_has_the_lock_as_soon_as_the_last_reader_goes() {
    let rig = Rig::new(Arch::V2);
    let mine = Asker::new(&rig, 7);
    mine.ask(CRWL_WRITER_ENTER, 1).unwrap();
    mine.ask(CRWL_WRITER_DOWNGRADE, 1).unwrap();
    rig.sched.is_patient.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| Asker::new(&rig, 8).ask(CRWL_WRITER_ENTER, 2));
        while rig.sched.looks.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        mine.ask(CRWL_READER_EXIT, 1).unwrap();
        assert_eq!(waits.join().unwrap(), Ok(()));
    });
}

#[test]
fn the_last_close_of_the_writers_process_forgets_its_locks() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (mine, other) = (Asker::new(&rig, 7), Asker::new(&rig, 8));
        mine.ask(CRWL_WRITER_ENTER, 1).unwrap();
        let again = mine
            .client
            .open(glia_abi::transport::OpenMode::ReadOnly)
            .unwrap();
        mine.client.close(again);
        assert_eq!(other.ask(CRWL_WRITER_ENTER, 2), Err(Errno::EBUSY));
        mine.client.close(mine.file);
        assert_eq!(other.ask(CRWL_WRITER_ENTER, 2), Ok(()));
        other.client.close(other.file);
        let next = Asker::new(&rig, 7);
        assert_eq!(next.ask(CRWL_WRITER_ENTER, 1), Ok(()), "nothing is loaded");
    }
}

#[test]
fn there_are_eight_locks_and_bad_pointers_are_faults() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let ask = |word, nc_id| {
            let uuid = [1; 32];
            client.ioctl(file, word, Crwl { nc_id, uuid }).map(drop)
        };
        assert_eq!(ask(CRWL_WRITER_ENTER, 7), Ok(()));
        let short = client.space.put(&[0; 35]);
        for word in ALL {
            for nc_id in [8, u32::MAX] {
                assert_eq!(ask(word, nc_id), Err(Errno::EINVAL));
            }
            for at in [0, NOWHERE, u64::MAX, short] {
                let answer = client.raw_ioctl(file, word, at);
                assert_eq!(answer, Err(Errno::EFAULT), "{:?}", ioctl::name(word));
            }
        }
    }
}
