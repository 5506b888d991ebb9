//! What changes hands in the middle of a command: at the moments when the driver touches the caller's
//! memory, the rest of the world acts.

use std::cell::RefCell;
use std::sync::Arc;

use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{FileId, Pid};
use glia_abi::ioctl::{
    self, DmaCopyDescriptors64, GetAsyncH2tDmaComplQueues, H2tDmaAllocQueues, H2tDmaFreeQueues,
    MemAllocV2Mt64, MemBufCopy64, MemBufZerocopy64, MemBufZerocopy64Batches, MemCopyAsync64,
    MemCopyAsyncWait, MemMcGetInfo, ProgramEngineNc64, ZerocopyBatch, ZerocopyOp,
};
use glia_abi::transport::{Caller, CapturedMemory, PinFault, PinnedUser, UserFault, UserMemory};
use zerocopy::IntoBytes;

use crate::client::{Client, UserSpace, device_memory, host_memory};
use crate::support::{MIB, PAGE, Plan, Rig};

/// User memory where something happens when it is read for the `reads`-th time (the struct is the
/// first), or when the answer is written, which then fails.
struct Eventful<'a> {
    space: &'a UserSpace,
    reads: RefCell<u32>,
    at_read: Option<(u32, &'a dyn Fn())>,
    at_write: Option<&'a dyn Fn()>,
}

impl UserMemory for Eventful<'_> {
    fn copy_in(&self, from: UserAddr, into: &mut [u8]) -> Result<(), UserFault> {
        let number = {
            let mut reads = self.reads.borrow_mut();
            *reads += 1;
            *reads
        };
        if let Some((_, act)) = self.at_read.filter(|(at, _)| *at == number) {
            act();
        }
        self.space.copy_in(from, into)
    }

    fn copy_out(&self, to: UserAddr, bytes: &[u8]) -> Result<(), UserFault> {
        let Some(act) = self.at_write else {
            return self.space.copy_out(to, bytes);
        };
        act();
        Err(UserFault {
            at: to,
            size_bytes: bytes.len() as u64,
        })
    }

    fn check(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<(), UserFault> {
        self.space.check(at, size_bytes, write)
    }

    fn pin(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault> {
        self.space.pin(at, size_bytes, write)
    }

    fn capture(&self, _at: UserAddr, _size_bytes: u64) -> Option<Arc<dyn CapturedMemory>> {
        None
    }
}

/// A command of process 7 in the middle of which something happens.
fn with_events<T: IntoBytes + zerocopy::Immutable>(
    rig: &Rig,
    client: &Client<'_>,
    file: FileId,
    (word, argument): (u32, T),
    at_read: Option<(u32, &dyn Fn())>,
    at_write: Option<&dyn Fn()>,
) -> Result<i32, Errno> {
    let at = client.space.put(argument.as_bytes());
    let memory = Eventful {
        space: &client.space,
        reads: RefCell::new(0),
        at_read,
        at_write,
    };
    let caller = Caller {
        pid: Pid::new(7),
        memory: &memory,
        killed: &|| false,
    };
    rig.driver.ioctl(&caller, file, word, UserAddr::new(at))
}

fn queues(client: &Client<'_>, file: FileId) -> u32 {
    let argument = H2tDmaAllocQueues {
        copy_cnt: 1,
        ..H2tDmaAllocQueues::default()
    };
    let given = client.ioctl(file, ioctl::H2T_DMA_ALLOC_QUEUES, argument);
    given.unwrap().copy_bmap
}

fn give_back(client: &Client<'_>, file: FileId, queue_bmap: u32) -> Result<(), Errno> {
    let argument = H2tDmaFreeQueues {
        queue_bmap,
        ..H2tDmaFreeQueues::default()
    };
    let given = client.ioctl(file, ioctl::H2T_DMA_FREE_QUEUES, argument);
    given.map(drop)
}

#[test]
fn a_request_for_queues_that_fails_late_takes_nothing_back_that_is_anothers_by_then() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let lowest = 1 << arch.profile().cores_per_h2t_engine;
        let hand_over = || {
            give_back(&other, other_file, lowest).unwrap();
            assert_eq!(queues(&other, other_file), lowest);
        };
        let argument = H2tDmaAllocQueues {
            copy_cnt: 1,
            ..H2tDmaAllocQueues::default()
        };
        let asked = with_events(
            &rig,
            &client,
            file,
            (ioctl::H2T_DMA_ALLOC_QUEUES, argument),
            None,
            Some(&hand_over),
        );
        assert_eq!(asked, Err(Errno::EFAULT));
        assert_eq!(
            queues(&client, file),
            lowest << 1,
            "{arch}: the other has it"
        );
        assert_eq!(give_back(&other, other_file, lowest), Ok(()));
    }
}

#[test]
fn descriptors_are_staged_where_no_process_finds_them() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let (hostile, hostile_file) = Client::attached(&rig, 8);
        // Where the staging will be.
        let staging = {
            let handle = hostile.alloc(hostile_file, host_memory(64 << 10)).unwrap();
            let at = hostile.get_pa(hostile_file, handle).unwrap();
            hostile.free(hostile_file, handle).unwrap();
            at
        };
        let mem_handle = client.alloc(file, device_memory(MIB)).unwrap();
        let descs = 2 * (64 << 10) / 16;
        let argument = DmaCopyDescriptors64 {
            mem_handle,
            buffer: client.space.put(&vec![0; 16 * descs]),
            num_descs: descs as u32,
            ..DmaCopyDescriptors64::default()
        };
        let attack = || {
            let (_, record) = rig.memory().search(BusAddr::new(staging)).unwrap();
            assert_eq!(record.owner(), Pid::new(7), "it is there");
            let find = MemMcGetInfo {
                pa: staging,
                ..MemMcGetInfo::default()
            };
            let found = hostile.ioctl(hostile_file, ioctl::MEM_MC_GET_INFO, find);
            assert_eq!(found.map(drop), Err(Errno::ENOMEM));
            let map = hostile.mmap(hostile_file, staging, 64 << 10);
            assert_eq!(map, Err(Errno::EPERM));
        };
        // The struct, then the first piece, then the second.
        let copied = with_events(
            &rig,
            &client,
            file,
            (ioctl::DMA_COPY_DESCRIPTORS64, argument),
            Some((3, &attack)),
            None,
        );
        assert_eq!(copied, Ok(0), "{arch}");
    }
}

#[test]
fn programming_holds_every_chunk_that_it_writes_to() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let take = || {
            let handle = client.alloc(file, device_memory(MIB)).unwrap();
            (client.get_pa(file, handle).unwrap(), handle)
        };
        let mut chunks = [take(), take(), take()];
        chunks.sort_unstable();
        let [(first, _), (second, middle), (third, last)] = chunks;
        assert_eq!(
            (second, third),
            (first + MIB, first + 2 * MIB),
            "neighbours"
        );
        let argument = ProgramEngineNc64 {
            dst: first + MIB / 2,
            buffer: client.space.put(&vec![7; 2 * MIB as usize]),
            size: 2 * MIB,
            ..ProgramEngineNc64::default()
        };
        let steal = || {
            for handle in [middle, last] {
                client.free(file, handle).unwrap();
            }
            let (thief, thief_file) = Client::attached(&rig, 8);
            for _ in 0..2 {
                let handle = thief.alloc(thief_file, device_memory(MIB)).unwrap();
                let at = thief.get_pa(thief_file, handle).unwrap();
                assert!(![second, third].contains(&at), "{arch}: {at:#x}");
            }
            thief.close(thief_file);
        };
        let programmed = with_events(
            &rig,
            &client,
            file,
            (ioctl::PROGRAM_ENGINE_NC64, argument),
            Some((2, &steal)),
            None,
        );
        assert_eq!(programmed, Ok(0));
        assert_eq!(rig.memory().stats().held_chunks, 0, "let go afterwards");
        assert_eq!(
            rig.peek(first + MIB / 2, 2 * MIB as usize),
            vec![7; 2 * MIB as usize]
        );
    }
}

#[test]
fn a_bad_bit_among_the_completion_queues_that_are_asked_for_makes_none_of_them() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let host_bytes = rig.memory().stats().host_bytes;
        for bad in [1 << 9, 1 << 15, 1 << 16, 1 << 31] {
            let argument = GetAsyncH2tDmaComplQueues {
                qid_bitmap: 1 | bad,
                ..GetAsyncH2tDmaComplQueues::default()
            };
            let asked = client.ioctl(file, ioctl::GET_ASYNC_H2T_DMA_COMPL_QUEUES, argument);
            assert_eq!(asked.map(drop), Err(Errno::EINVAL), "{arch}: {bad:#x}");
            assert_eq!(rig.memory().stats().host_bytes, host_bytes);
        }
        let one_page = host_memory(PAGE);
        assert!(client.alloc(file, one_page).is_ok());
    }
}

/// Two pages of the scratchpad, the newer one and the older one behind it.
fn pages(client: &Client<'_>, file: FileId) -> [u64; 2] {
    let take = || {
        let page = MemAllocV2Mt64 {
            mem_type: 19,
            ..device_memory(MIB)
        };
        let handle = client.alloc(file, page).unwrap();
        (handle, client.get_pa(file, handle).unwrap())
    };
    let ((older, behind), (newer, at)) = (take(), take());
    assert_eq!(behind, at + MIB, "neighbours");
    [newer, older]
}

#[test]
fn what_reaches_across_scratchpad_pages_holds_all_of_them() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let data = client.space.put(&vec![7; MIB as usize]);
        let into_both = MemBufCopy64 {
            buffer: data,
            offset: MIB / 2,
            size: MIB,
            copy_to_mem_handle: 1,
            ..MemBufCopy64::default()
        };
        let small = MemBufZerocopy64 {
            buffer: data,
            offset: MIB - PAGE,
            size: 2 * PAGE,
            is_copy_to_device: 1,
            bar4_wr_threshold: 8192,
            h2t_qid: -1,
            ..MemBufZerocopy64::default()
        };
        let held = || rig.memory().stats().held_chunks;
        for is_zero_copy in [false, true] {
            let [mem_handle, older] = pages(&client, file);
            let free = || {
                client.free(file, older).unwrap();
                assert_eq!(held(), 1, "{arch}: {is_zero_copy}");
            };
            // The struct, then bytes.
            let events = Some((2, &free as &dyn Fn()));
            let copied = if is_zero_copy {
                let argument = MemBufZerocopy64 {
                    mem_handle,
                    ..small
                };
                let command = (ioctl::MEM_BUF_ZEROCOPY64, argument);
                with_events(&rig, &client, file, command, events, None)
            } else {
                let argument = MemBufCopy64 {
                    mem_handle,
                    ..into_both
                };
                let command = (ioctl::MEM_BUF_COPY64, argument);
                with_events(&rig, &client, file, command, events, None)
            };
            assert_eq!(copied, Ok(0), "{arch}");
            assert_eq!(held(), 0, "{arch}: let go afterwards");
            client.free(file, mem_handle).unwrap();
        }
        assert_eq!(rig.memory().stats().channels[0].scratchpad_bytes, 0);
    }
}

#[test]
fn an_asynchronous_copy_holds_what_it_reaches_of_the_scratchpad_until_it_has_ended() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let held = || rig.memory().stats().held_chunks;
        let [src, older] = pages(&client, file);
        let dst = client.alloc(file, device_memory(2 * MIB)).unwrap();
        let copy = MemCopyAsync64 {
            src,
            dst,
            size: 2 * MIB,
            pwait: u32::MAX,
            ..MemCopyAsync64::default()
        };
        let wait = client.ioctl(file, ioctl::MEM_COPY_ASYNC64, copy);
        client.free(file, older).unwrap();
        assert_eq!(held(), 1, "{arch}");
        let wait = MemCopyAsyncWait {
            src,
            dst,
            pwait: wait.unwrap().wait,
            ..MemCopyAsyncWait::default()
        };
        client
            .ioctl(file, ioctl::MEM_COPY_ASYNC_WAIT, wait)
            .unwrap();
        assert_eq!(held(), 0, "{arch}");
    }
}

#[test]
fn a_mapping_holds_all_pages_of_the_scratchpad_that_it_shows() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let held = || rig.memory().stats().held_chunks;
        let [newer, older] = pages(&client, file);
        let at = client.get_pa(file, newer).unwrap();
        let one = client.mmap(file, at, MIB).unwrap();
        let both = client.mmap(file, at, 2 * MIB).unwrap();
        for handle in [newer, older] {
            client.free(file, handle).unwrap();
        }
        assert_eq!(held(), 2, "{arch}");
        rig.driver.munmap(both.map);
        assert_eq!(held(), 1, "{arch}: the other one shows the newer page");
        rig.driver.munmap(one.map);
        assert_eq!(held(), 0, "{arch}");
    }
}

/// The bytes of a small write are stored between the look at who has the queue and its use.
#[test]
fn a_queue_that_is_anothers_by_then_takes_no_zero_copy() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let (other, other_file) = Client::attached(&rig, 8);
        let queue_bmap = queues(&client, file);
        let mem_handle = client.alloc(file, device_memory(PAGE)).unwrap();
        let op = ZerocopyOp {
            size: 64,
            buffer: client.space.put(&[7; 64]),
            ..ZerocopyOp::default()
        };
        let batch = ZerocopyBatch {
            mem_handle,
            ops_ptr: client.space.put(op.as_bytes()),
            num_ops: 1,
            bar4_wr_threshold: 8192,
            ..ZerocopyBatch::default()
        };
        let argument = MemBufZerocopy64Batches {
            sequence_num: 1,
            batches: client.space.put(batch.as_bytes()),
            num_batches: 1,
            is_copy_to_device: 1,
            h2t_qid: queue_bmap.trailing_zeros() as i32,
            ..MemBufZerocopy64Batches::default()
        };
        let command = (ioctl::MEM_BUF_ZEROCOPY64_BATCHES, argument);
        let begun = with_events(&rig, &client, file, command, None, None);
        assert_eq!(begun, Ok(0), "{arch}: its own");
        let hand_over = || {
            give_back(&other, other_file, queue_bmap).unwrap();
            assert_eq!(queues(&other, other_file), queue_bmap);
        };
        let give = || give_back(&other, other_file, queue_bmap).unwrap();
        let acts: [&dyn Fn(); 2] = [&hand_over, &give];
        for act in acts {
            // The struct, the batches, the operations, the bytes.
            let begun = with_events(&rig, &client, file, command, Some((4, act)), None);
            assert_eq!(begun, Err(Errno::ENOENT), "{arch}");
            // Whoever has it gives it back, for the next round.
            let _ = give_back(&other, other_file, queue_bmap);
            assert_eq!(queues(&client, file), queue_bmap);
        }
    }
}
