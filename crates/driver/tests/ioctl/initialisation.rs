//! Whose turn it is to initialise a core.

use std::sync::atomic::Ordering;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{self, CinitSetState};

use crate::client::{Client, NOWHERE};
use crate::support::Rig;

const STARTED: u32 = 1;
const COMPLETED: u32 = 2;
const INVALID: u32 = 3;

fn set(client: &Client<'_>, file: FileId, nc_id: u32, state: u32) -> Result<u32, Errno> {
    let argument = CinitSetState {
        nc_id,
        state,
        new_state: 99,
    };
    let answer = client.ioctl(file, ioctl::CINIT_SET_STATE, argument)?;
    Ok(answer.new_state)
}

#[test]
fn a_core_is_initialised_once() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (first, file) = Client::attached(&rig, 7);
        let (second, second_file) = Client::attached(&rig, 8);
        assert_eq!(set(&first, file, 1, STARTED), Ok(STARTED));
        assert_eq!(set(&first, file, 1, COMPLETED), Ok(COMPLETED));
        assert_eq!(set(&second, second_file, 1, STARTED), Ok(COMPLETED));
        assert_eq!(
            set(&second, second_file, 0, STARTED),
            Ok(STARTED),
            "another core"
        );
        assert_eq!(set(&second, second_file, 1, INVALID), Ok(INVALID));
        assert_eq!(set(&first, file, 1, STARTED), Ok(STARTED));
    }
}

#[test]
fn cores_that_the_device_has_not_are_too_big_and_states_of_nobody_invalid() {
    for (arch, cores) in [(Arch::V2, 2), (Arch::V3, 8), (Arch::V4, 8)] {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for core in [cores, u32::MAX] {
            assert_eq!(set(&client, file, core, 77), Err(Errno::E2BIG));
        }
        for state in [0, 4, u32::MAX] {
            assert_eq!(set(&client, file, cores - 1, state), Err(Errno::EINVAL));
        }
    }
}

#[test]
fn whoever_waits_for_a_starter_takes_over_after_five_seconds() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (first, file) = Client::attached(&rig, 7);
        let (second, second_file) = Client::attached(&rig, 8);
        set(&first, file, 0, STARTED).unwrap();
        assert_eq!(set(&second, second_file, 0, STARTED), Ok(STARTED));
        assert_eq!(rig.sched.bound_us.load(Ordering::Relaxed), 5_000_000);
        second.kill();
        let answer = set(&second, second_file, 0, STARTED);
        assert_eq!(answer, Err(Errno::EINTR));
    }
}

#[test]
fn of_those_who_wait_for_one_that_fails_one_goes_on() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (first, file) = Client::attached(&rig, 7);
        set(&first, file, 0, STARTED).unwrap();
        rig.sched.is_patient.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let waits = [8, 9].map(|pid| {
                let rig = &rig;
                scope.spawn(move || {
                    let (client, file) = Client::attached(rig, pid);
                    let answer = set(&client, file, 0, STARTED);
                    if answer == Ok(STARTED) {
                        set(&client, file, 0, COMPLETED).unwrap();
                    }
                    answer
                })
            });
            while rig.sched.looks.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            set(&first, file, 0, INVALID).unwrap();
            let mut answers = waits.map(|wait| wait.join().unwrap().unwrap());
            answers.sort_unstable();
            assert_eq!(answers, [STARTED, COMPLETED]);
        });
    }
}

#[test]
fn a_starter_that_closes_the_device_has_failed() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (first, file) = Client::attached(&rig, 7);
        set(&first, file, 0, STARTED).unwrap();
        set(&first, file, 1, COMPLETED).unwrap();
        first.close(file);
        let (second, file) = Client::attached(&rig, 8);
        assert_eq!(set(&second, file, 0, STARTED), Ok(STARTED));
        assert_eq!(
            rig.sched.looks.load(Ordering::Relaxed),
            0,
            "nobody is waited for"
        );
        assert_eq!(set(&second, file, 1, STARTED), Ok(COMPLETED));
    }
}

#[test]
fn structs_that_cannot_be_read_or_written_are_faults() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let short = client.space.put(&[0; 11]);
        for at in [0, NOWHERE, u64::MAX, short] {
            let answer = client.raw_ioctl(file, ioctl::CINIT_SET_STATE, at);
            assert_eq!(answer, Err(Errno::EFAULT));
        }
    }
}
