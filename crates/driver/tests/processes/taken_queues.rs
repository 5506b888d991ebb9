//! Setting a queue up that is somebody's: that it is comes before whatever else is wrong.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::CoreId;
use glia_abi::ioctl::{self, DmaQueueInit, H2tDmaAllocQueues};

use crate::queue_rig::Rings;
use crate::support::{Plan, Rig};

#[test]
fn a_queue_that_is_taken_is_so_whatever_the_request_and_one_that_is_free_has_its_faults() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan::of(arch));
        let (mine, others) = (Rings::new(&rig, 7), Rings::new(&rig, 8));
        others.init(others.request()).unwrap();
        let asked = H2tDmaAllocQueues {
            copy_cnt: 1,
            service_cnt: 1,
            ..H2tDmaAllocQueues::default()
        };
        let word = ioctl::H2T_DMA_ALLOC_QUEUES;
        others.client.ioctl(others.file, word, asked).unwrap();
        let own = arch.profile().h2t_queue(CoreId::new(0)).unwrap();
        let copies = arch.profile().cores_per_h2t_engine;
        let request = mine.request();
        let taken = [
            (request.eng, request.qid),
            (own.engine.get(), own.number),
            (own.engine.get(), copies),
            (own.engine.get(), copies + 1),
        ];
        let wrong = [
            DmaQueueInit {
                tx_desc_count: 40,
                ..request
            },
            DmaQueueInit {
                rx_desc_count: 1 << 20,
                ..request
            },
            DmaQueueInit {
                rxc_handle: mine.tx,
                ..request
            },
        ];
        for (eng, qid) in taken {
            for wrong in wrong {
                let refused = mine.init(DmaQueueInit { eng, qid, ..wrong });
                assert_eq!(refused, Err(Errno::EALREADY), "{arch}: {eng}/{qid}");
            }
        }
        let free = |wrong| {
            let qid = request.qid + 1;
            mine.init(DmaQueueInit { qid, ..wrong })
        };
        let faults = [Errno::EPERM, Errno::EINVAL, Errno::EPERM];
        assert_eq!(wrong.map(free), faults.map(Err), "{arch}");
    }
}
