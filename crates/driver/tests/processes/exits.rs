//! A process that has gone: what it took by a file that another process still has open.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, EngineId, FileId, Pid, QueueId};
use glia_abi::ioctl::{self, DmaQueueInit, H2tDmaAllocQueues, HbmScrubStart, MemCopyAsync64};
use glia_driver::dma::ContextState;
use zerocopy::IntoBytes;

use crate::client::{Client, device_memory};
use crate::queue_rig::{ENGINE, QUEUE, Rings};
use crate::support::{MIB, ND0, Plan, Rig};

const CORE: CoreId = CoreId::new(0);

/// Sets a queue up by the command that asks nobody to be attached.
fn set_up(client: &Client<'_>, file: FileId, entry: DmaQueueInit) -> Result<i32, Errno> {
    let mut batch = vec![0; 12_296];
    batch[0] = 1;
    batch[8..56].copy_from_slice(entry.as_bytes());
    let at = client.space.put(&batch);
    client.raw_ioctl(file, ioctl::DMA_QUEUE_INIT_BATCH, at)
}

/// Process 7 has closed its last descriptor of a file that its child shares, while another of its
/// threads is inside a command. The file is not released by that.
#[test]
fn what_a_process_takes_behind_its_last_close_ends_with_it_though_its_file_stays_open() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (dma, pid) = (rig.driver.dma(ND0).unwrap(), Pid::new(7));
        // The child's memory and its rings.
        let child = Rings::new(&rig, 8);
        let chunks = [(); 2].map(|()| child.client.alloc(child.file, device_memory(MIB)).unwrap());
        let (parent, file) = Client::attached(&rig, 7);
        parent.flush(file);
        let before = rig.memory().stats();

        let queues = H2tDmaAllocQueues {
            copy_cnt: 1,
            service_cnt: 1,
            ..H2tDmaAllocQueues::default()
        };
        let queues = parent.ioctl(file, ioctl::H2T_DMA_ALLOC_QUEUES, queues);
        let queues = queues.unwrap();
        let [copies, service] = [queues.copy_bmap, queues.service_bmap].map(u32::trailing_zeros);
        assert_eq!(set_up(&parent, file, child.request()), Ok(0), "{arch}");
        let copy = MemCopyAsync64 {
            src: chunks[0],
            dst: chunks[1],
            size: MIB,
            pwait: u32::MAX,
            ..MemCopyAsync64::default()
        };
        parent.ioctl(file, ioctl::MEM_COPY_ASYNC64, copy).unwrap();
        let user = QueueId::new(EngineId::new(ENGINE), QUEUE);
        let is_busy = || {
            let contexts = dma.queue_state(CORE).unwrap().contexts;
            contexts.iter().any(|&it| it != ContextState::Idle)
        };
        assert_eq!(dma.queue_owner(user), Some(pid));
        assert!(dma.requested_queue(CORE, copies).is_some());
        assert!(is_busy());

        rig.driver.exit(pid);
        assert_eq!(dma.queue_owner(user), None, "{arch}");
        for number in [copies, service] {
            assert_eq!(dma.requested_queue(CORE, number), None, "{arch}: {number}");
        }
        assert!(!is_busy(), "{arch}: it has been waited for");
        assert_eq!(rig.memory().stats().held_chunks, before.held_chunks);
        // Its rings are its child's again alone.
        for handle in [child.tx, child.rx] {
            child.client.free(child.file, handle).unwrap();
        }
        assert_eq!(rig.memory().stats().held_chunks, 0, "{arch}");
    }
}

/// What is under way on a channel keeps all others from it.
#[test]
fn a_scrub_that_a_process_began_behind_its_last_close_ends_with_it() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (child, child_file) = Client::attached(&rig, 8);
        let (parent, file) = Client::attached(&rig, 7);
        parent.flush(file);
        let scrub = HbmScrubStart {
            init_val: 7,
            ..HbmScrubStart::default()
        };
        let begin = |client: &Client<'_>, file| {
            let begun = client.ioctl(file, ioctl::HBM_SCRUB_START, scrub);
            begun.map(drop)
        };
        begin(&parent, file).unwrap();
        assert!(begin(&child, child_file).is_err(), "it is under way");
        rig.driver.exit(Pid::new(7));
        assert_eq!(begin(&child, child_file), Ok(()), "{arch}");
    }
}
