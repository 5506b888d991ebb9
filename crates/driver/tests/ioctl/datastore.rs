//! The datastore: who has an entry, and for how long.

use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{self, NeuronDs};
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE};
use crate::queue_rig::ARCHES;
use crate::support::Rig;

const SIZE: u64 = 256 << 10;

fn acquire(client: &Client<'_>, file: FileId, pid: i32) -> Result<u64, Errno> {
    let argument = NeuronDs {
        pid,
        ..NeuronDs::default()
    };
    let entry = client.ioctl(file, ioctl::ACQUIRE_NEURON_DS, argument)?;
    assert_eq!((entry.pid, u64::from(entry.size)), (pid, SIZE));
    Ok(entry.mmap_offset)
}

fn release(client: &Client<'_>, file: FileId, pid: i32) {
    let argument = NeuronDs {
        pid,
        ..NeuronDs::default()
    };
    client
        .ioctl(file, ioctl::RELEASE_NEURON_DS, argument)
        .unwrap();
}

#[test]
fn an_entry_is_its_processes_and_is_found_and_mapped_by_others() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (owner, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        for pid in [7, 9, -1, i32::MIN] {
            assert_eq!(acquire(&other, other_file, pid), Err(Errno::ENOENT));
        }
        let at = acquire(&owner, file, 0).unwrap();
        assert_eq!(acquire(&owner, file, 0), Ok(at), "the same");
        assert_eq!(acquire(&other, other_file, 7), Ok(at));
        assert_ne!(acquire(&other, other_file, 0), Ok(at));
        let grant = other.mmap(other_file, at, SIZE).unwrap();
        assert_eq!((grant.at, grant.writable), (BusAddr::new(at), true));
        release(&other, other_file, 7);
        assert_eq!(acquire(&other, other_file, 7), Ok(at), "not the owner");
        release(&owner, file, 7);
        assert_eq!(acquire(&other, other_file, 7), Err(Errno::ENOENT));
    }
}

#[test]
fn a_new_entry_is_empty_whoever_had_it_before() {
    let rig = Rig::new(ARCHES[0]);
    let (first, file) = Client::attached(&rig, 7);
    let at = acquire(&first, file, 0).unwrap();
    rig.port.poke(BusAddr::new(at), b"counters");
    rig.port.poke(BusAddr::new(at + SIZE - 8), b"counters");
    release(&first, file, 0);
    let (second, second_file) = Client::attached(&rig, 8);
    assert_eq!(acquire(&second, second_file, 0), Ok(at));
    assert!(
        rig.port
            .peek(BusAddr::new(at), SIZE)
            .iter()
            .all(|&byte| byte == 0)
    );
}

#[test]
fn an_entry_goes_when_its_process_closes_or_nobody_has_the_device_open() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (owner, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        acquire(&owner, file, 0).unwrap();
        let second = owner.open(OpenMode::ReadWrite).unwrap();
        owner.close(second);
        assert!(
            acquire(&other, other_file, 7).is_ok(),
            "it still has one file"
        );
        owner.close(file);
        assert_eq!(acquire(&other, other_file, 7), Err(Errno::ENOENT));
        // This command has no gate: one that is not attached, and whose close ends nothing.
        let child = Client::new(&rig, 9);
        acquire(&child, other_file, 0).unwrap();
        child.flush(other_file);
        assert!(acquire(&other, other_file, 9).is_ok());
        other.close(other_file);
        let (last, last_file) = Client::attached(&rig, 10);
        assert_eq!(acquire(&last, last_file, 9), Err(Errno::ENOENT));
    }
}

#[test]
fn sixteen_processes_have_entries_and_no_more() {
    let rig = Rig::new(ARCHES[1]);
    let (client, file) = Client::attached(&rig, 7);
    let mut taken = Vec::new();
    for pid in 100..116 {
        taken.push(acquire(&Client::new(&rig, pid), file, 0).unwrap());
    }
    taken.dedup();
    assert_eq!(taken.len(), 16);
    assert_eq!(acquire(&client, file, 0), Err(Errno::ENOMEM));
    release(&Client::new(&rig, 115), file, 0);
    assert_eq!(acquire(&client, file, 0), Ok(taken[15]));
}

#[test]
fn without_host_memory_there_is_no_entry_and_faults_are_faults() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        rig.host.set_full(true);
        assert_eq!(acquire(&client, file, 0), Err(Errno::ENOMEM));
        rig.host.set_full(false);
        assert_eq!(
            acquire(&client, file, 7),
            Err(Errno::ENOENT),
            "nothing is left of it"
        );
        let misc = client.open(OpenMode::WriteOnly).unwrap();
        for word in [ioctl::ACQUIRE_NEURON_DS, ioctl::RELEASE_NEURON_DS] {
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
            assert_eq!(client.raw_ioctl(misc, word, NOWHERE), Err(Errno::EINVAL));
        }
    }
}
