//! The driver's own chunks and the firmware's: anybody gets a handle of them, and nobody frees them.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, FileId};
use glia_abi::ioctl::{self, GetAsyncH2tDmaComplQueues, MemMcGetInfoV2, NeuronDs};

use crate::client::{Client, host_memory};
use crate::queue_rig::Rings;
use crate::support::{PAGE, Plan, Rig};

/// Tries to free whatever lies at an address.
fn free_at(client: &Client<'_>, file: FileId, pa: u64) -> Result<(), Errno> {
    let argument = MemMcGetInfoV2 {
        pa,
        ..MemMcGetInfoV2::default()
    };
    let told = client.ioctl(file, ioctl::MEM_MC_GET_INFO_V2, argument);
    client.free(file, told.unwrap().mem_handle)
}

fn entry(client: &Client<'_>, file: FileId, pid: i32) -> Result<NeuronDs, Errno> {
    let argument = NeuronDs {
        pid,
        ..NeuronDs::default()
    };
    client.ioctl(file, ioctl::ACQUIRE_NEURON_DS, argument)
}

#[test]
fn an_entry_of_the_datastore_outlives_a_hostile_free() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (owner, file) = Client::attached(&rig, 7);
        let (hostile, hostile_file) = Client::attached(&rig, 8);
        let mine = entry(&owner, file, 0).unwrap();
        let refused = free_at(&hostile, hostile_file, mine.mmap_offset);
        assert_eq!(refused, Err(Errno::EPERM));
        let found = entry(&hostile, hostile_file, 7).unwrap();
        assert_eq!(found.mmap_offset, mine.mmap_offset);
        let size = u64::from(mine.size);
        let map = owner.mmap(file, mine.mmap_offset, size);
        assert!(map.is_ok(), "{arch}: {map:?}");
    }
}

#[test]
fn a_completion_queue_outlives_a_hostile_free() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (client, file) = Client::attached(&rig, 7);
        let ask = || {
            let argument = GetAsyncH2tDmaComplQueues {
                qid_bitmap: 1,
                ..GetAsyncH2tDmaComplQueues::default()
            };
            client
                .ioctl(file, ioctl::GET_ASYNC_H2T_DMA_COMPL_QUEUES, argument)
                .unwrap()
                .queues[0]
        };
        let first = ask();
        let refused = free_at(&client, file, first.mmap_offset);
        assert_eq!(refused, Err(Errno::EPERM));
        assert_eq!(ask(), first);
        let map = client.mmap(file, first.mmap_offset, first.mmap_size.into());
        assert!(map.is_ok(), "{arch}: {map:?}");
    }
}

#[test]
fn handles_of_the_drivers_chunks_leave_nothing_behind() {
    let rig = Rig::with(Plan::of(Arch::V3));
    let before = rig.memory().stats();
    let rings = Rings::new(&rig, 7);
    let own = Arch::V3.profile().h2t_queue(CoreId::new(0)).unwrap();
    let sides = rings.state(own.engine.get(), own.number).unwrap();
    let carveout = Arch::V3.profile().region_bases[0];
    let (client, file) = (&rings.client, rings.file);
    for at in [sides[0].base_addr, sides[1].base_addr, carveout] {
        for _ in 0..3 {
            assert_eq!(free_at(client, file, at), Err(Errno::EPERM));
        }
    }
    let others = client.alloc(file, host_memory(PAGE)).unwrap();
    let (child, child_file) = Client::attached(&rig, 8);
    assert_eq!(child.free(child_file, others), Ok(()), "a process's");
    child.close(child_file);
    client.close(file);
    assert_eq!(rig.memory().stats(), before);
}
