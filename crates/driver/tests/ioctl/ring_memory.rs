//! What a queue reads its descriptors from belongs to nobody else: rings of processes, and the
//! driver's own.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{self, DmaQueueInit, MemBufCopy64, MemMcGetInfoV2};

use crate::client::{Client, device_memory, host_memory};
use crate::queue_rig::{ARCHES, ENGINE, QUEUE, Rings};
use crate::support::{MIB, PAGE, Rig};

/// Takes pages of host memory until none is left: where they are.
fn take_all(client: &Client<'_>, file: FileId) -> Vec<u64> {
    let mut taken = Vec::new();
    while let Ok(handle) = client.alloc(file, host_memory(PAGE)) {
        taken.push(client.get_pa(file, handle).unwrap());
    }
    assert!(!taken.is_empty());
    taken
}

#[test]
fn a_live_ring_that_is_freed_is_given_to_nobody_until_the_queue_is_set_up_again() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        rings.init(rings.request()).unwrap();
        let ring = client.get_pa(file, rings.tx).unwrap();
        client.free(file, rings.tx).unwrap();
        assert_eq!(
            client.get_pa(file, rings.tx),
            Err(Errno::EINVAL),
            "it is dead"
        );
        let (thief, thief_file) = Client::attached(&rig, 8);
        assert!(!take_all(&thief, thief_file).contains(&ring));
        assert_eq!(rings.state(ENGINE, QUEUE).unwrap()[0].base_addr, ring);
        let again = DmaQueueInit {
            tx_handle: rings.rx,
            ..rings.request()
        };
        rings.init(again).unwrap();
        assert_eq!(take_all(&thief, thief_file), [ring]);
    }
}

#[test]
fn a_refused_request_holds_nothing() {
    let rig = Rig::new(Arch::V3);
    let rings = Rings::new(&rig, 7);
    let (client, file) = (&rings.client, rings.file);
    let refused = DmaQueueInit {
        rx_desc_count: 40,
        ..rings.request()
    };
    assert_eq!(rings.init(refused), Err(Errno::EPERM));
    client.free(file, rings.tx).unwrap();
    assert_eq!(rig.memory().stats().held_chunks, 0);
}

#[test]
fn a_process_that_closes_leaves_its_queue_on_a_ring_of_nobody_before_its_chunks_go() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        rings.init(rings.request()).unwrap();
        rings.start(ENGINE, QUEUE, 0, 1).unwrap();
        let mine = rings
            .state(ENGINE, QUEUE)
            .unwrap()
            .map(|side| side.base_addr);
        let second = rings
            .client
            .open(glia_abi::transport::OpenMode::ReadWrite)
            .unwrap();
        rings.client.close(second);
        assert_eq!(
            rings.state(ENGINE, QUEUE).unwrap()[0].base_addr,
            mine[0],
            "still open"
        );
        rings.client.close(rings.file);
        assert_eq!(rig.memory().stats().held_chunks, 0);
        let other = Rings::new(&rig, 8);
        let [tx, rx] = other.state(ENGINE, QUEUE).unwrap();
        assert_eq!(tx.base_addr, rx.base_addr);
        assert!(!mine.contains(&tx.base_addr));
        assert_eq!(
            (tx.length, rx.length, rx.tail),
            (64, 64, 0),
            "what was announced is gone"
        );
        assert_eq!(
            other.start(ENGINE, QUEUE, 1, 1),
            Err(Errno::EPERM),
            "nobody's"
        );
        other.init(other.request()).unwrap();
    }
}

#[test]
fn a_queue_that_keeps_its_ring_keeps_the_rings_memory() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        // The network accelerator's, and one of an engine for the driver's copies.
        let kept = [(0, 14), (arch.profile().h2t_engine_first, 5)];
        for (eng, qid) in kept {
            rings
                .init(DmaQueueInit {
                    eng,
                    qid,
                    ..rings.request()
                })
                .unwrap();
        }
        let mine = rings.state(0, 14).unwrap().map(|side| side.base_addr);
        rings.client.close(rings.file);
        assert_eq!(rig.memory().stats().held_chunks, 2);
        let other = Rings::new(&rig, 8);
        for (eng, qid) in kept {
            let [tx, rx] = other.state(eng, qid).unwrap();
            assert_eq!([tx.base_addr, rx.base_addr], mine);
            assert_eq!(other.start(eng, qid, 1, 1), Err(Errno::EPERM), "nobody's");
            other
                .init(DmaQueueInit {
                    eng,
                    qid,
                    ..other.request()
                })
                .unwrap();
        }
        assert_eq!(rig.memory().stats().held_chunks, 0);
    }
}

#[test]
fn an_unattached_process_leaves_no_queue_behind() {
    let rig = Rig::new(Arch::V2);
    let rings = Rings::new(&rig, 7);
    let child = Client::new(&rig, 8);
    let mut batch = vec![0; 12_296];
    batch[0] = 1;
    batch[8..56].copy_from_slice(zerocopy::IntoBytes::as_bytes(&rings.request()));
    let at = child.space.put(&batch);
    let asked = child.raw_ioctl(rings.file, ioctl::DMA_QUEUE_INIT_BATCH, at);
    assert_eq!(asked, Ok(0), "this command has no gate");
    assert_eq!(rings.init(rings.request()), Err(Errno::EALREADY));
    child.flush(rings.file);
    assert_eq!(rings.init(rings.request()), Ok(()));
}

/// The handle of whatever lies at an address.
fn handle_at(client: &Client<'_>, file: FileId, pa: u64) -> u64 {
    let argument = MemMcGetInfoV2 {
        pa,
        ..MemMcGetInfoV2::default()
    };
    client
        .ioctl(file, ioctl::MEM_MC_GET_INFO_V2, argument)
        .unwrap()
        .mem_handle
}

#[test]
fn the_drivers_own_ring_is_not_freed_and_copies_go_on_in_its_memory() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        let own = arch
            .profile()
            .h2t_queue(glia_abi::handle::CoreId::new(0))
            .unwrap();
        let sides = rings.state(own.engine.get(), own.number).unwrap();
        for side in sides {
            let handle = handle_at(client, file, side.base_addr);
            assert_eq!(client.free(file, handle), Err(Errno::EPERM));
        }
        let (thief, thief_file) = Client::attached(&rig, 8);
        for page in take_all(&thief, thief_file) {
            rig.port.poke(BusAddr::new(page), &[0xff; PAGE as usize]);
            let is_in = |base: u64| (base..base + 8192 * 16).contains(&page);
            assert!(!sides.iter().any(|side| is_in(side.base_addr)), "{page:#x}");
        }
        thief.close(thief_file);
        let mem_handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let argument = MemBufCopy64 {
            mem_handle,
            buffer: client.space.put(b"moved by DMA"),
            size: 12,
            offset: 0,
            copy_to_mem_handle: 1,
            pad: 0,
        };
        client.ioctl(file, ioctl::MEM_BUF_COPY64, argument).unwrap();
        let at = client.get_pa(file, mem_handle).unwrap();
        assert_eq!(rig.port.peek(BusAddr::new(at), 12), b"moved by DMA");
    }
}

#[test]
fn the_firmwares_memory_is_not_freed_and_is_given_to_nobody() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let start = arch.profile().region_bases[0];
        let handle = handle_at(&client, file, start);
        assert_eq!(client.free(file, handle), Err(Errno::EPERM));
        while let Ok(handle) = client.alloc(file, device_memory(MIB)) {
            let at = client.get_pa(file, handle).unwrap();
            assert!(at >= start + 16 * MIB, "{at:#x}");
        }
    }
}
