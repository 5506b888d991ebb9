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
    MemMcGetInfo, ProgramEngineNc64,
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
