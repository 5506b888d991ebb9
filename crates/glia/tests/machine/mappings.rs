//! Mappings and their end: nobody reads or writes through one what is the next owner's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use glia::machine::{Client, Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::handle::{DeviceId, Fd, Pid};
use glia_abi::mem::Location;
use glia_abi::transport::{Mapping, MappingError, OpenMode, Transport};

use crate::books::take;

const DEVICE: DeviceId = DeviceId::new(0);
const SIZE: u64 = 8192;

fn machine(model: Model, mode: SchedMode) -> Machine {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        ..MachineConfig::new(model).with_mode(mode)
    };
    Machine::new(config).unwrap()
}

/// A process with a chunk that it has mapped, and the chunk's address.
fn mapped(
    machine: &Machine,
    pid: u32,
    location: Location,
) -> (Arc<Process>, Fd, u64, Arc<dyn Mapping>) {
    let process = machine.process(Pid::new(pid));
    let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let (_, at) = take(&process, fd, location, SIZE).unwrap();
    let mapping = process.mmap(fd, at, SIZE).unwrap();
    (process, fd, at, mapping)
}

fn is_gone(mapping: &dyn Mapping) {
    let mut byte = [0];
    assert_eq!(mapping.read(0, &mut byte), Err(MappingError::Gone));
    assert_eq!(mapping.write(0, &[1]), Err(MappingError::Gone));
    assert_eq!(mapping.words(0, 4).err(), Some(MappingError::Gone));
}

fn holds(mapping: &dyn Mapping, value: u8) {
    let mut bytes = vec![!value; usize::try_from(SIZE).unwrap()];
    mapping.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == value));
}

fn fill(mapping: &dyn Mapping, value: u8) -> Result<(), MappingError> {
    mapping.write(0, &vec![value; usize::try_from(SIZE).unwrap()])
}

#[test]
fn a_mapping_ends_with_its_process_and_does_not_reach_the_next_owner() {
    for model in Model::ALL {
        for location in [Location::Host, Location::Device] {
            let machine = machine(model, SchedMode::Inline);
            let (process, _, at, mapping) = mapped(&machine, 7, location);
            fill(&*mapping, 1).unwrap();
            process.kill();
            is_gone(&*mapping);
            let (_next, _, place, other) = mapped(&machine, 8, location);
            assert_eq!(place, at, "the next owner has the place");
            fill(&*other, 2).unwrap();
            is_gone(&*mapping);
            holds(&*other, 2);
            // The unmap of one that has ended ends nothing else.
            drop(mapping);
            holds(&*other, 2);
        }
    }
}

#[test]
fn a_mapping_ends_with_the_last_close_of_its_process_too() {
    let machine = machine(Model::Trn2, SchedMode::Inline);
    let (process, fd, at, mapping) = mapped(&machine, 7, Location::Device);
    let second = process.open(DEVICE, OpenMode::ReadOnly).unwrap();
    process.close(fd).unwrap();
    fill(&*mapping, 1).unwrap();
    process.close(second).unwrap();
    is_gone(&*mapping);
    let (_next, _, place, other) = mapped(&machine, 8, Location::Device);
    assert_eq!(place, at);
    fill(&*other, 2).unwrap();
    // The process may come again; its old mapping does not.
    process.open(DEVICE, OpenMode::ReadWrite).unwrap();
    is_gone(&*mapping);
    holds(&*other, 2);
}

#[test]
fn another_processes_mapping_of_the_chunk_lives_on() {
    let machine = machine(Model::Trn2, SchedMode::Inline);
    let (owner, _, at, mapping) = mapped(&machine, 7, Location::Device);
    fill(&*mapping, 1).unwrap();
    let other = machine.process(Pid::new(8));
    let fd = other.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let reading = other.mmap(fd, at, SIZE).unwrap();
    owner.kill();
    is_gone(&*mapping);
    holds(&*reading, 1);
    let (_next, _, place, _) = mapped(&machine, 9, Location::Device);
    assert_ne!(place, at, "it is held");
}

/// Whoever has the words themselves can use them at any time: their place is nobody's until the
/// mapping is dropped.
#[test]
fn words_that_were_handed_out_keep_their_place() {
    let machine = machine(Model::Trn2, SchedMode::Inline);
    let (process, _, at, mapping) = mapped(&machine, 7, Location::Device);
    let words = mapping.words(0, 64).unwrap();
    process.kill();
    assert_eq!(mapping.words(0, 4).err(), Some(MappingError::Gone));
    let (next, _, place, other) = mapped(&machine, 8, Location::Device);
    assert_ne!(place, at);
    fill(&*other, 2).unwrap();
    for word in words {
        word.store(u32::MAX, Ordering::Relaxed);
    }
    holds(&*other, 2);
    drop((mapping, next));
    let (_, _, place, _) = mapped(&machine, 9, Location::Device);
    assert_eq!(place, at);
}

/// A process dies while another of its threads writes: the write that has begun ends before the
/// place is given away.
#[test]
fn writes_under_way_end_before_the_place_is_the_next_owners() {
    let machine = machine(Model::Trn2, SchedMode::THREADED);
    for round in 0..50 {
        let (process, _, at, mapping) = mapped(&machine, 1 + 2 * round, Location::Device);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut is_first = true;
                while fill(&*mapping, 1).is_ok() {
                    if std::mem::take(&mut is_first) {
                        tell.send(()).unwrap();
                    }
                }
                is_gone(&*mapping);
            });
            told.recv().unwrap();
            process.kill();
            let (_next, _, place, other) = mapped(&machine, 2 + 2 * round, Location::Device);
            assert_eq!(place, at);
            fill(&*other, 2).unwrap();
            for _ in 0..20 {
                holds(&*other, 2);
            }
        });
    }
}

#[test]
fn a_mapping_ends_in_virtual_time_as_well() {
    for seed in 0..10 {
        let machine = machine(Model::Trn3, SchedMode::Virtual { seed });
        let (process, _, at, mapping) = mapped(&machine, 7, Location::Device);
        let clients: [Client<'_>; 2] = [
            Box::new(|| {
                while fill(&*mapping, 1).is_ok() {
                    machine.sched().pause();
                }
            }),
            Box::new(|| process.kill()),
        ];
        machine.run_clients(clients.into()).unwrap();
        is_gone(&*mapping);
        let (_, _, place, _) = mapped(&machine, 8, Location::Device);
        assert_eq!(place, at);
    }
}
