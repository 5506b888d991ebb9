//! Queues of the copy engines: who gets them, who may use them, and for how long.

use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, FileId};
use glia_abi::ioctl::{
    self, DmaQueueInit, GetAsyncH2tDmaComplQueues, H2tDmaAllocQueues, H2tDmaFreeQueues,
    MemBufZerocopy64,
};
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE, device_memory};
use crate::queue_rig::{ARCHES, Rings};
use crate::support::{PAGE, Rig};

fn alloc(
    client: &Client<'_>,
    file: FileId,
    nc_id: u16,
    copy_cnt: u16,
    service_cnt: u16,
) -> Result<(u32, u32, u32), Errno> {
    let argument = H2tDmaAllocQueues {
        size: 20,
        nc_id,
        copy_cnt,
        service_cnt,
        ..H2tDmaAllocQueues::default()
    };
    let given = client.ioctl(file, ioctl::H2T_DMA_ALLOC_QUEUES, argument)?;
    Ok((
        given.copy_bmap,
        given.service_bmap,
        given.copy_default_queue,
    ))
}

fn free(client: &Client<'_>, file: FileId, nc_id: u8, queue_bmap: u32) -> Result<(), Errno> {
    let argument = H2tDmaFreeQueues {
        size: 8,
        nc_id,
        fill: 0,
        queue_bmap,
    };
    client
        .ioctl(file, ioctl::H2T_DMA_FREE_QUEUES, argument)
        .map(drop)
}

/// A zero copy by a queue of core 0. User memory cannot be pinned here, so that one that gets as far
/// ends in a fault.
fn zero_copy(client: &Client<'_>, file: FileId, h2t_qid: i32) -> Result<(), Errno> {
    let argument = MemBufZerocopy64 {
        mem_handle: client.alloc(file, device_memory(PAGE)).unwrap(),
        buffer: client.space.put(&[1; 64]),
        size: 64,
        is_copy_to_device: 1,
        h2t_qid,
        ..MemBufZerocopy64::default()
    };
    client
        .ioctl(file, ioctl::MEM_BUF_ZEROCOPY64, argument)
        .map(drop)
}

/// The lowest number that is no core's own.
fn first(arch: glia_abi::arch::Arch) -> u32 {
    arch.profile().cores_per_h2t_engine
}

#[test]
fn the_lowest_free_queues_are_given_copies_first() {
    for arch in ARCHES {
        let rig = Rig::with(arch, |_| ());
        let (client, file) = Client::attached(&rig, 7);
        let low = first(arch);
        let own = arch.profile().h2t_queue(CoreId::new(1)).unwrap().number;
        assert_eq!(alloc(&client, file, 1, 0, 0), Ok((0, 0, own)));
        assert_eq!(
            alloc(&client, file, 1, 2, 1),
            Ok((0b11 << low, 0b100 << low, own))
        );
        assert_eq!(alloc(&client, file, 1, 1, 0), Ok((0b1000 << low, 0, own)));
        assert_eq!(free(&client, file, 1, 0b10 << low), Ok(()));
        assert_eq!(alloc(&client, file, 1, 0, 1), Ok((0, 0b10 << low, own)));
    }
}

#[test]
fn a_request_is_refused_as_a_whole_and_in_the_order_of_the_reference() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let cores = arch.profile().cores as u16;
        assert_eq!(alloc(&client, file, cores, 1, 0), Err(Errno::E2BIG));
        for (copies, services) in [(16, 0), (0, 16), (8, 8), (u16::MAX, u16::MAX)] {
            let refused = alloc(&client, file, 0, copies, services);
            assert_eq!(refused, Err(Errno::E2BIG));
        }
        let host_bytes = rig.memory().stats().host_bytes;
        let most = 16 - first(arch) as u16;
        let services = (1 << 16) - (1 << first(arch));
        assert_eq!(alloc(&client, file, 0, 0, most).unwrap().1, services);
        assert_eq!(alloc(&client, file, 0, 1, 0), Err(Errno::EBUSY));
        free(&client, file, 0, 1 << 15).unwrap();
        assert_eq!(
            alloc(&client, file, 0, 1, 1),
            Err(Errno::EBUSY),
            "one is left"
        );
        assert_eq!(
            rig.memory().stats().host_bytes,
            host_bytes,
            "and was given back"
        );
        rig.host.set_full(true);
        assert_eq!(alloc(&client, file, 0, 1, 0), Err(Errno::ENOMEM));
        rig.host.set_full(false);
        assert_eq!(alloc(&client, file, 0, 1, 0).unwrap().0, 1 << 15);
        for word in [ioctl::H2T_DMA_ALLOC_QUEUES, ioctl::H2T_DMA_FREE_QUEUES] {
            let misc = client.open(OpenMode::WriteOnly).unwrap();
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
            assert_eq!(client.raw_ioctl(misc, word, NOWHERE), Err(Errno::EINVAL));
        }
    }
}

#[test]
fn an_answer_that_cannot_be_written_takes_the_queues_back() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let argument = H2tDmaAllocQueues {
            copy_cnt: 1,
            ..H2tDmaAllocQueues::default()
        };
        let at = client
            .space
            .put_read_only(zerocopy::IntoBytes::as_bytes(&argument));
        let asked = client.raw_ioctl(file, ioctl::H2T_DMA_ALLOC_QUEUES, at);
        assert_eq!(asked, Err(Errno::EFAULT));
        assert_eq!(alloc(&client, file, 0, 1, 0).unwrap().0, 1 << first(arch));
    }
}

#[test]
fn a_queue_is_given_back_for_its_core_alone() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let low = first(arch);
        let cores = arch.profile().cores as u8;
        assert_eq!(free(&client, file, cores, 1), Err(Errno::E2BIG));
        assert_eq!(free(&client, file, 0, 1 << 16), Err(Errno::EINVAL));
        assert_eq!(free(&client, file, 0, 1), Ok(()), "a core's own stays");
        assert_eq!(free(&client, file, 0, 1 << low), Err(Errno::ENXIO));
        alloc(&client, file, 0, 1, 0).unwrap();
        assert_eq!(free(&client, file, 1, 1 << low), Err(Errno::ENXIO));
        assert_eq!(free(&client, file, 0, 1 << low), Ok(()));
        assert_eq!(free(&client, file, 0, 1 << low), Err(Errno::ENXIO));
    }
}

#[test]
fn a_queue_for_copies_is_its_processes_alone() {
    for arch in ARCHES {
        let rig = Rig::with(arch, |memory| memory.params.zerocopy_trn1_override = true);
        let (owner, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let low = first(arch) as i32;
        assert_eq!(zero_copy(&owner, file, low), Err(Errno::ENOENT), "nobody's");
        alloc(&owner, file, 0, 1, 1).unwrap();
        assert_eq!(
            zero_copy(&owner, file, low),
            Err(Errno::EFAULT),
            "as far as the pages"
        );
        assert_eq!(zero_copy(&other, other_file, low), Err(Errno::ENOENT));
        assert_eq!(
            zero_copy(&owner, file, low + 1),
            Err(Errno::ENOENT),
            "for services"
        );
        for number in [16, -2, i32::MIN, i32::MAX] {
            assert_eq!(zero_copy(&owner, file, number), Err(Errno::ENOENT));
        }
        free(&owner, file, 0, 1 << low).unwrap();
        assert_eq!(zero_copy(&owner, file, low), Err(Errno::ENOENT));
    }
    let rig = Rig::new(glia_abi::arch::Arch::V2);
    let (client, file) = Client::attached(&rig, 7);
    alloc(&client, file, 0, 1, 0).unwrap();
    assert_eq!(
        zero_copy(&client, file, 1),
        Err(Errno::EINVAL),
        "no zero copies"
    );
}

#[test]
fn queues_go_with_their_process() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (owner, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let host_bytes = rig.memory().stats().host_bytes;
        alloc(&owner, file, 0, 2, 2).unwrap();
        assert!(rig.memory().stats().host_bytes > host_bytes);
        owner.close(file);
        assert_eq!(rig.memory().stats().host_bytes, host_bytes);
        assert_eq!(
            alloc(&other, other_file, 0, 1, 0).unwrap().0,
            1 << first(arch)
        );
    }
}

#[test]
fn a_queue_for_services_is_set_up_by_its_process_and_one_for_copies_by_nobody() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (owner, other) = (Rings::new(&rig, 7), Rings::new(&rig, 8));
        alloc(&owner.client, owner.file, 0, 1, 1).unwrap();
        let eng = arch.profile().h2t_engine_first;
        let of = |rings: &Rings<'_>, qid| {
            rings.init(DmaQueueInit {
                eng,
                qid,
                ..rings.request()
            })
        };
        let (copies, service) = (first(arch), first(arch) + 1);
        assert_eq!(of(&owner, copies), Err(Errno::EALREADY));
        assert_eq!(of(&other, service), Err(Errno::EALREADY));
        assert_eq!(of(&owner, service), Ok(()));
        assert_eq!(owner.start(eng, copies, 1, 1), Err(Errno::EPERM));
        // One that a process has set up by itself is not free.
        assert_eq!(of(&other, service + 1), Ok(()));
        let (given, ..) = alloc(&owner.client, owner.file, 0, 1, 0).unwrap();
        assert_eq!(given, 1 << (service + 2));
    }
}

#[test]
fn completion_queues_are_those_of_queues_for_copies() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let low = first(arch) as usize;
        let ask = |nc_id, qid_bitmap| {
            let argument = GetAsyncH2tDmaComplQueues {
                nc_id,
                qid_bitmap,
                ..GetAsyncH2tDmaComplQueues::default()
            };
            client.ioctl(file, ioctl::GET_ASYNC_H2T_DMA_COMPL_QUEUES, argument)
        };
        assert_eq!(ask(0, 1 << low).map(drop), Err(Errno::EINVAL), "nobody's");
        alloc(&client, file, 0, 1, 1).unwrap();
        let queues = ask(0, 1 | 1 << low).unwrap().queues;
        assert_ne!(queues[0].mmap_offset, queues[low].mmap_offset);
        let range = queues[low];
        let size = u64::from(range.mmap_size);
        assert!(client.mmap(file, range.mmap_offset, size).unwrap().writable);
        assert_eq!(
            ask(0, 2 << low).map(drop),
            Err(Errno::EINVAL),
            "for services"
        );
        assert_eq!(
            ask(1, 1 << low).map(drop),
            Err(Errno::EINVAL),
            "of another core"
        );
    }
}
