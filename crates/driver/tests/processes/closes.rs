//! Opens and closes that meet: what is a process's last close, and what it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{self, CinitSetState, Crwl, MemCopyAsync64, NeuronDs};
use glia_abi::sched::Sched;
use glia_abi::transport::OpenMode;
use glia_device::{ThreadedSched, VirtualSched};

use crate::client::{Client, device_memory, host_memory};
use crate::queue_rig::{DESCS, ENGINE, QUEUE, Rings};
use crate::support::{MIB, PAGE, Plan, Rig};

/// Takes what a process can hold besides memory.
fn take_all(client: &Client<'_>, file: FileId) {
    let lock = Crwl {
        nc_id: 0,
        uuid: [7; 32],
    };
    client.ioctl(file, ioctl::CRWL_WRITER_ENTER, lock).unwrap();
    let started = CinitSetState {
        nc_id: 1,
        state: 1,
        new_state: 0,
    };
    client.ioctl(file, ioctl::CINIT_SET_STATE, started).unwrap();
    client
        .ioctl(file, ioctl::ACQUIRE_NEURON_DS, NeuronDs::default())
        .unwrap();
}

/// What of it is left of process 7: its lock, its turn, its entry.
fn left(rig: &Rig) -> [bool; 3] {
    let (other, file) = Client::attached(rig, 8);
    let entry = NeuronDs {
        pid: 7,
        ..NeuronDs::default()
    };
    let lock = Crwl {
        nc_id: 0,
        uuid: [8; 32],
    };
    let locked = other.ioctl(file, ioctl::CRWL_WRITER_ENTER, lock).is_err();
    // A killed process does not wait for its turn.
    other.kill();
    let started = CinitSetState {
        nc_id: 1,
        state: 1,
        new_state: 0,
    };
    let turn = other.ioctl(file, ioctl::CINIT_SET_STATE, started);
    let found = other.ioctl(file, ioctl::ACQUIRE_NEURON_DS, entry);
    other.close(file);
    [locked, turn.is_err(), found.is_ok()]
}

/// Threads close the files of their process at the same time, again and again.
#[test]
fn of_two_closes_at_once_one_is_the_last() {
    let sched: Arc<dyn Sched> = Arc::new(ThreadedSched::new(1).unwrap());
    let rig = Rig::with(Plan {
        sched,
        ..Plan::of(Arch::V3)
    });
    let before = rig.memory().stats();
    for round in 0..2000 {
        let client = Client::new(&rig, 7);
        let files = [(); 6].map(|()| client.open(OpenMode::ReadWrite).unwrap());
        take_all(&client, files[0]);
        let start = Barrier::new(files.len());
        std::thread::scope(|scope| {
            for file in files {
                let (start, rig) = (&start, &rig);
                scope.spawn(move || {
                    let client = Client::new(rig, 7);
                    start.wait();
                    client.close(file);
                });
            }
        });
        assert_eq!(left(&rig), [false; 3], "round {round}");
    }
    assert_eq!(rig.memory().stats().processes, before.processes);
}

/// A process closes its only file, which takes time since a copy is under way, and opens the device
/// again from another thread meanwhile: what it takes by the new file is its own.
fn open_during_a_long_close(seed: u64) {
    let sched = Arc::new(VirtualSched::new(seed));
    let rig = Rig::with(Plan {
        has_timing: true,
        sched: Arc::clone(&sched) as Arc<dyn Sched>,
        ..Plan::of(Arch::V3)
    });
    let closing = AtomicBool::new(false);
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
        closing.store(true, Ordering::Relaxed);
        client.close(file);
        closing.store(false, Ordering::Relaxed);
    };
    let open = || {
        while !closing.load(Ordering::Relaxed) {
            sched.pause();
        }
        let rings = Rings::new(&rig, 7);
        rings.init(rings.request()).unwrap();
        take_all(&rings.client, rings.file);
        // Until the close is over.
        while closing.load(Ordering::Relaxed) {
            sched.pause();
        }
        let [tx, rx] = rings.state(ENGINE, QUEUE).unwrap();
        let ring = rings.client.get_pa(rings.file, rings.tx);
        assert_eq!((Ok(tx.base_addr), tx.length), (ring, DESCS), "seed {seed}");
        assert_eq!(rx.length, DESCS);
        assert_eq!(rings.start(ENGINE, QUEUE, 0, 1), Ok(()), "seed {seed}");
        assert_eq!(left(&rig), [true; 3], "seed {seed}");
        rings.client.close(rings.file);
        assert_eq!(left(&rig), [false; 3], "seed {seed}");
    };
    sched.run(vec![Box::new(close), Box::new(open)]).unwrap();
}

#[test]
fn an_open_waits_for_a_close_and_loses_nothing_to_it() {
    for seed in 0..60 {
        open_during_a_long_close(seed);
    }
}

/// The last file is released by one process while another one opens the device: the entry that it
/// takes in the datastore is not swept with those of before.
#[test]
fn the_next_openers_entry_outlives_the_release_of_the_last_file() {
    let sched: Arc<dyn Sched> = Arc::new(ThreadedSched::new(1).unwrap());
    let rig = Rig::with(Plan {
        sched,
        ..Plan::of(Arch::V2)
    });
    for round in 0..2000 {
        let (first, file) = Client::attached(&rig, 7);
        first
            .ioctl(file, ioctl::ACQUIRE_NEURON_DS, NeuronDs::default())
            .unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            let (start, rig) = (&start, &rig);
            scope.spawn(move || {
                let first = Client::new(rig, 7);
                start.wait();
                first.close(file);
            });
            scope.spawn(move || {
                let next = Client::new(rig, 8);
                start.wait();
                let file = next.open(OpenMode::ReadWrite).unwrap();
                let own = NeuronDs::default();
                next.ioctl(file, ioctl::ACQUIRE_NEURON_DS, own).unwrap();
                let found = || {
                    let entry = NeuronDs {
                        pid: 8,
                        ..NeuronDs::default()
                    };
                    next.ioctl(file, ioctl::ACQUIRE_NEURON_DS, entry)
                };
                for _ in 0..20 {
                    assert!(found().is_ok(), "round {round}");
                }
                next.close(file);
                let refused = found().unwrap_err();
                assert_eq!(refused, Errno::EBADF);
            });
        });
    }
}

/// Another thread of the process takes something between its detaching and the end of its file.
#[test]
fn what_is_taken_after_a_copy_of_a_descriptor_was_closed_goes_with_the_file() {
    let rig = Rig::with(Plan::of(Arch::V3));
    let (client, file) = Client::attached(&rig, 7);
    // The close of a copy detaches.
    client.flush(file);
    take_all(&client, file);
    assert_eq!(left(&rig), [true; 3]);
    assert_eq!(
        client.alloc(file, host_memory(PAGE)),
        Err(Errno::EACCES),
        "it is not attached"
    );
    client.close(file);
    assert_eq!(left(&rig), [false; 3]);
}
