//! What the front door tells of what it does.

use std::collections::BTreeMap;

use glia_abi::arch::Arch;
use glia_abi::event::{CommandClass, Event, Ids};
use glia_abi::ioctl::{self, MemBufCopy64};
use glia_abi::mem::Location;
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::support::{MIB, ND0, PAGE, Rig};

fn commands(heard: &[(Ids, Event)]) -> Vec<(u32, CommandClass, i32)> {
    let command = |(_, event): &(Ids, Event)| match *event {
        Event::Ioctl { word, class, ret } => Some((word, class, ret)),
        _ => None,
    };
    heard.iter().filter_map(command).collect()
}

#[test]
fn every_command_is_told_with_its_class_and_its_answer() {
    let rig = Rig::new(Arch::V2);
    let (client, file) = Client::attached(&rig, 7);
    let free_access = client.open(OpenMode::WriteOnly).unwrap();
    let cases = [
        (file, ioctl::DEVICE_INIT, CommandClass::Built, 0),
        (file, ioctl::MEM_FREE, CommandClass::Built, -14),
        (
            file,
            ioctl::SEMAPHORE_READ,
            CommandClass::Unimplemented,
            -22,
        ),
        (file, 0x1234_5678, CommandClass::Unknown, -22),
        (free_access, ioctl::MEM_FREE, CommandClass::WrongLane, -22),
        (
            free_access,
            ioctl::POD_INFO,
            CommandClass::Unimplemented,
            -22,
        ),
    ];
    for (file, word, class, ret) in cases {
        rig.heard.take();
        let _ = client.raw_ioctl(file, word, NOWHERE);
        let heard = rig.heard.take();
        assert_eq!(commands(&heard), [(word, class, ret)]);
        assert_eq!(heard[0].0.process.unwrap().get(), 7);
        assert_eq!(heard[0].0.device, Some(ND0));
    }
}

#[test]
fn opens_and_closes_are_told() {
    let rig = Rig::new(Arch::V2);
    rig.heard.take();
    let (client, file) = Client::attached(&rig, 7);
    client.close(file);
    let heard: Vec<_> = rig
        .heard
        .take()
        .into_iter()
        .map(|(_, event)| event)
        .collect();
    assert_eq!(heard, [Event::Opened, Event::Closed]);
}

#[test]
fn a_chunk_is_told_on_its_owners_account_with_its_handle() {
    let rig = Rig::new(Arch::V3);
    let (owner, file) = Client::attached(&rig, 7);
    let (other, other_file) = Client::attached(&rig, 8);
    rig.heard.take();
    let handle = owner.alloc(file, device_memory(5000)).unwrap();
    other.free(other_file, handle).unwrap();
    let heard = rig.heard.take();
    let [(taken_ids, taken), _, (freed_ids, freed), _] = heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!(taken_ids, freed_ids);
    assert_eq!(taken_ids.process.unwrap().get(), 7);
    assert_eq!(u64::from(taken_ids.handle.unwrap().get()), handle);
    assert!(matches!(
        taken,
        Event::ChunkTaken {
            size_bytes: 8192,
            ..
        }
    ));
    let location = Location::Device;
    let size_bytes = 8192;
    assert_eq!(
        freed,
        Event::ChunkFreed {
            size_bytes,
            location
        }
    );
}

/// Bytes by location, and live chunks, as the events tell them.
fn ledger(heard: &[(Ids, Event)]) -> (u64, u64, usize) {
    let mut live = BTreeMap::new();
    for (ids, event) in heard {
        match *event {
            Event::ChunkTaken {
                size_bytes,
                location,
                ..
            } => {
                let before = live.insert(ids.chunk.unwrap(), (location, size_bytes));
                assert_eq!(before, None);
            }
            Event::ChunkFreed {
                size_bytes,
                location,
            } => {
                let before = live.remove(&ids.chunk.unwrap());
                assert_eq!(before, Some((location, size_bytes)));
            }
            _ => {}
        }
    }
    let bytes = |wanted| {
        let of = live.values().filter(|(location, _)| *location == wanted);
        of.map(|(_, size_bytes)| size_bytes).sum()
    };
    (bytes(Location::Host), bytes(Location::Device), live.len())
}

#[test]
fn a_ledger_of_the_events_equals_the_books() {
    for arch in [Arch::V2, Arch::V3] {
        let rig = Rig::new(arch);
        let mut heard = rig.heard.take();
        let mut compare = || {
            heard.extend(rig.heard.take());
            let stats = rig.memory().stats();
            let books = (stats.host_bytes, stats.device_bytes, stats.chunks as usize);
            assert_eq!(ledger(&heard), books);
        };
        compare();
        let (client, file) = Client::attached(&rig, 7);
        let handle = client.alloc(file, device_memory(MIB)).unwrap();
        client.alloc(file, host_memory(PAGE)).unwrap();
        compare();
        let buffer = client.space.put(&[1; 70_000]);
        let copy = MemBufCopy64 {
            mem_handle: handle,
            buffer,
            size: 70_000,
            copy_to_mem_handle: 1,
            ..MemBufCopy64::default()
        };
        client.ioctl(file, ioctl::MEM_BUF_COPY64, copy).unwrap();
        let lost = glia_abi::ioctl::MemAllocV2Mt64 {
            mem_handle: NOWHERE,
            ..device_memory(PAGE)
        };
        client
            .ioctl(file, ioctl::MEM_ALLOC_V2MT64, lost)
            .unwrap_err();
        compare();
        client.close(file);
        compare();
    }
}

#[test]
fn insight_shows_what_a_client_holds() {
    let rig = Rig::new(Arch::V2);
    let (client, file) = Client::attached(&rig, 7);
    let handle = client.alloc(file, device_memory(MIB)).unwrap();
    let snapshot = rig.driver.insight(ND0).unwrap();
    let held = snapshot.channels[0].chunks.last().unwrap();
    assert_eq!(held.owner.get(), 7);
    assert_eq!(u64::from(held.handle.unwrap().get()), handle);
    assert_eq!(&*held.site, "unknown");
    assert_eq!(snapshot.channels.len(), 2);
}
