//! Engines and queues, command by command: what they do, and every refusal in its order.

use glia_abi::errno::Errno;
use glia_abi::ioctl::{
    self, DmaAckCompleted, DmaEngGetState, DmaEngSetState, DmaEngState, DmaQueueInit,
    DmaQueueRelease,
};
use glia_abi::transport::OpenMode;
use zerocopy::{FromBytes, IntoBytes};

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::queue_rig::{ARCHES, DESCS, ENGINE, QUEUE, Rings};
use crate::support::{PAGE, Rig};

/// The commands of engines and queues, and whether an unattached process is refused.
const COMMANDS: [(u32, bool); 13] = [
    (ioctl::DMA_ENG_INIT, true),
    (ioctl::DMA_ENG_SET_STATE, true),
    (ioctl::DMA_ENG_GET_STATE, false),
    (ioctl::DMA_QUEUE_INIT, true),
    (ioctl::DMA_QUEUE_INIT_BATCH, false),
    (ioctl::DMA_QUEUE_RELEASE, true),
    (ioctl::DMA_QUEUE_COPY_START, false),
    (ioctl::DMA_ACK_COMPLETED, true),
    (ioctl::DMA_QUEUE_GET_STATE, false),
    (ioctl::DMA_COPY_DESCRIPTORS, true),
    (ioctl::DMA_COPY_DESCRIPTORS64, false),
    (ioctl::DMA_DESCRIPTOR_COPYOUT, false),
    (ioctl::DMA_QUIESCE_QUEUES, false),
];

#[test]
fn gates_and_lanes_are_those_of_the_reference() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (parent, file) = Client::attached(&rig, 7);
        let misc = parent.open(OpenMode::WriteOnly).unwrap();
        let child = Client::new(&rig, 8);
        for (word, is_gated) in COMMANDS {
            let lane = parent.raw_ioctl(misc, word, NOWHERE);
            assert_eq!(lane, Err(Errno::EINVAL), "{word:#x}");
            let gate = child.raw_ioctl(file, word, NOWHERE);
            let is_refused = gate == Err(Errno::EACCES);
            // One answers the same for a struct that cannot be read.
            let reads_so = word == ioctl::DMA_QUEUE_INIT_BATCH;
            assert_eq!(is_refused, is_gated || reads_so, "{word:#x}");
        }
    }
}

#[test]
fn structs_that_cannot_be_read_are_faults_or_no_access() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        for (word, _) in COMMANDS {
            let wanted = match word {
                ioctl::DMA_ENG_INIT | ioctl::DMA_QUEUE_RELEASE => Ok(0),
                ioctl::DMA_QUEUE_INIT | ioctl::DMA_QUEUE_INIT_BATCH => Err(Errno::EACCES),
                ioctl::DMA_QUIESCE_QUEUES => Err(Errno::ENOTTY),
                _ => Err(Errno::EFAULT),
            };
            assert_eq!(client.raw_ioctl(file, word, NOWHERE), wanted, "{word:#x}");
        }
    }
}

#[test]
fn an_engine_is_asked_for_a_state_and_tells_its_own() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let set = |eng, state| {
            let argument = DmaEngSetState { eng, state };
            client
                .ioctl(file, ioctl::DMA_ENG_SET_STATE, argument)
                .map(drop)
        };
        let get = |eng, state| {
            let argument = DmaEngGetState { eng, pad: 0, state };
            client.ioctl(file, ioctl::DMA_ENG_GET_STATE, argument)
        };
        let engines = arch.profile().engines;
        for last in [0, engines - 1] {
            for (state, requested) in [(0, 1 << 1), (2, 1 << 0), (3, 1 << 2)] {
                set(last, state).unwrap();
                assert_eq!(rig.port.engine_register(last, 0x204), Some(requested));
                assert_eq!(rig.port.engine_register(last, 0x2_0204), Some(requested));
            }
            let state = client.space.put(&[0xff; size_of::<DmaEngState>()]);
            get(last, state).unwrap();
            let state = DmaEngState::read_from_bytes(&client.space.get(state)).unwrap();
            assert_eq!(
                (state.revision_id, state.max_queues, state.num_queues),
                (4, 16, 16)
            );
            assert_eq!((state.tx_state, state.rx_state), (1, 1), "idle");
        }
        assert_eq!(set(engines, 2), Err(Errno::EINVAL));
        assert_eq!(set(0, 5), Err(Errno::EINVAL));
        assert_eq!(get(engines, NOWHERE).map(drop), Err(Errno::EINVAL));
        assert_eq!(get(0, NOWHERE).map(drop), Err(Errno::EFAULT));
    }
}

#[test]
fn a_queue_of_a_process_moves_bytes_when_it_is_rung() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let (client, file) = (&rings.client, rings.file);
        let source = client.alloc(file, host_memory(PAGE)).unwrap();
        let target = client.alloc(file, device_memory(PAGE)).unwrap();
        let from = client.get_pa(file, source).unwrap();
        let to = client.get_pa(file, target).unwrap();
        rig.port
            .poke(glia_abi::addr::BusAddr::new(from), b"by hand");
        rings.init(rings.request()).unwrap();
        rings.write_transfer(from, to, 7);
        rings.start(ENGINE, QUEUE, 0, 1).unwrap();
        assert_ne!(
            rig.port.peek(glia_abi::addr::BusAddr::new(to), 7),
            b"by hand"
        );
        rings.start(ENGINE, QUEUE, 1, 1).unwrap();
        assert_eq!(
            rig.port.peek(glia_abi::addr::BusAddr::new(to), 7),
            b"by hand"
        );
        let [tx, rx] = rings.state(ENGINE, QUEUE).unwrap();
        assert_eq!(tx.base_addr, client.get_pa(file, rings.tx).unwrap());
        assert_eq!(rx.base_addr, client.get_pa(file, rings.rx).unwrap());
        assert_eq!((tx.length, tx.head, tx.tail), (DESCS, 1, 1));
        assert_eq!((rx.length, rx.head, rx.tail), (DESCS, 1, 2));
        assert_eq!((tx.sw_status, rx.compl_base_addr), (2, 0));
        let release = DmaQueueRelease { eng: 999, qid: 99 };
        let released = client.ioctl(file, ioctl::DMA_QUEUE_RELEASE, release);
        released.unwrap();
        assert_eq!(
            rings.state(ENGINE, QUEUE).unwrap()[0].length,
            DESCS,
            "it does nothing"
        );
    }
}

#[test]
fn a_request_for_a_queue_is_refused_in_the_order_of_the_reference() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let good = rings.request();
        let engines = arch.profile().engines;
        let rows = [
            (
                DmaQueueInit {
                    eng: engines,
                    qid: 16,
                    ..good
                },
                Errno::EINVAL,
            ),
            (DmaQueueInit { qid: 16, ..good }, Errno::EINVAL),
            (
                DmaQueueInit {
                    rxc_handle: rings.rx,
                    rx_desc_count: 257,
                    ..good
                },
                Errno::EINVAL,
            ),
            (
                DmaQueueInit {
                    rxc_handle: rings.rx,
                    ..good
                },
                Errno::EPERM,
            ),
            (
                DmaQueueInit {
                    tx_desc_count: 40,
                    ..good
                },
                Errno::EPERM,
            ),
            (
                DmaQueueInit {
                    tx_desc_count: 16,
                    ..good
                },
                Errno::EINVAL,
            ),
            (
                DmaQueueInit {
                    tx_desc_count: 512,
                    ..good
                },
                Errno::EINVAL,
            ),
            (
                DmaQueueInit {
                    rx_desc_count: 512,
                    ..good
                },
                Errno::EINVAL,
            ),
        ];
        for (row, errno) in rows {
            assert_eq!(rings.init(row), Err(errno), "{row:?}");
        }
        assert_eq!(
            rings.state(ENGINE, QUEUE).unwrap()[0].length,
            0,
            "nothing has changed"
        );
        rings
            .init(DmaQueueInit {
                tx_handle: 0,
                rx_handle: 0xbad,
                ..good
            })
            .unwrap();
        assert_eq!(
            rings.state(ENGINE, QUEUE).unwrap()[0].base_addr,
            0,
            "no chunk"
        );
        rings
            .init(DmaQueueInit {
                tx_desc_count: 256,
                rx_desc_count: 48,
                ..good
            })
            .unwrap();
    }
}

#[test]
fn nobody_gets_at_the_drivers_own_queue_or_at_anothers() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let own = arch
            .profile()
            .h2t_queue(glia_abi::handle::CoreId::new(0))
            .unwrap();
        let (eng, qid) = (own.engine.get(), own.number);
        let before = rings.state(eng, qid).unwrap();
        assert_eq!(before[0].length, 8192);
        let request = DmaQueueInit {
            eng,
            qid,
            ..rings.request()
        };
        assert_eq!(rings.init(request), Err(Errno::EALREADY));
        assert_eq!(rings.start(eng, qid, 1, 1), Err(Errno::EPERM));
        let ack = DmaAckCompleted { eng, qid, count: 1 };
        let acked = rings
            .client
            .ioctl(rings.file, ioctl::DMA_ACK_COMPLETED, ack);
        assert_eq!(acked.map(drop), Err(Errno::EPERM));
        assert_eq!(rings.state(eng, qid).unwrap(), before);
        rings.init(rings.request()).unwrap();
        let other = Rings::new(&rig, 8);
        assert_eq!(other.init(other.request()), Err(Errno::EALREADY));
        assert_eq!(
            other.start(ENGINE, QUEUE, 0, 1),
            Ok(()),
            "but anybody may ring"
        );
    }
}

#[test]
fn doorbells_and_acknowledgements_are_refused_in_the_order_of_the_reference() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let ack = |eng, qid, count| {
            let argument = DmaAckCompleted { eng, qid, count };
            let acked = rings
                .client
                .ioctl(rings.file, ioctl::DMA_ACK_COMPLETED, argument);
            acked.map(drop)
        };
        let engines = arch.profile().engines;
        assert_eq!(rings.start(engines, QUEUE, 1, 1), Err(Errno::EINVAL));
        assert_eq!(ack(engines, QUEUE, 1), Err(Errno::EINVAL));
        for qid in [QUEUE, 16] {
            assert_eq!(
                rings.start(ENGINE, qid, 1, 1),
                Err(Errno::EPERM),
                "not set up"
            );
            assert_eq!(ack(ENGINE, qid, 1), Err(Errno::EPERM), "not set up");
        }
        rings.init(rings.request()).unwrap();
        for (tx, rx) in [(0, 0), (1, 0), (DESCS + 1, 1), (1, DESCS + 1)] {
            assert_eq!(rings.start(ENGINE, QUEUE, tx, rx), Err(Errno::EPERM));
        }
        assert_eq!(
            rings.state(ENGINE, QUEUE).unwrap()[1].tail,
            0,
            "nothing was rung"
        );
        assert_eq!(ack(ENGINE, QUEUE, 1), Ok(()));
        rings
            .init(DmaQueueInit {
                tx_desc_count: 48,
                ..rings.request()
            })
            .unwrap();
        assert_eq!(ack(ENGINE, QUEUE, 1), Err(Errno::EINVAL), "no power of two");
        assert_eq!(rings.state(engines, 0).map(drop), Err(Errno::EINVAL));
        assert_eq!(rings.state(ENGINE, 16).map(drop), Err(Errno::EINVAL));
    }
}

/// The struct of a batch, with all its room.
fn batch(count: u32, entries: &[DmaQueueInit]) -> Vec<u8> {
    let mut bytes = vec![0; 12_296];
    bytes[..4].copy_from_slice(&count.to_le_bytes());
    let entries = entries.as_bytes();
    bytes[8..8 + entries.len()].copy_from_slice(entries);
    bytes
}

#[test]
fn a_batch_sets_queues_up_until_one_fails() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let rings = Rings::new(&rig, 7);
        let ask = |bytes: &[u8]| {
            let at = rings.client.space.put(bytes);
            rings
                .client
                .raw_ioctl(rings.file, ioctl::DMA_QUEUE_INIT_BATCH, at)
        };
        let of = |qid| DmaQueueInit {
            qid,
            ..rings.request()
        };
        let length = |qid| rings.state(ENGINE, qid).unwrap()[0].length;
        assert_eq!(ask(&batch(0, &[])), Ok(0));
        let short = &batch(1, &[of(3)])[..12_295];
        assert_eq!(ask(short), Err(Errno::EACCES), "not all of it can be read");
        assert_eq!(ask(&batch(256, &[of(3)])), Err(Errno::E2BIG));
        assert_eq!(length(3), 0);
        assert_eq!(ask(&batch(3, &[of(3), of(16), of(4)])), Err(Errno::EINVAL));
        assert_eq!((length(3), length(4)), (DESCS, 0), "those before it stay");
        assert_eq!(ask(&batch(255, &[of(5); 255])), Ok(0));
        assert_eq!(length(5), DESCS);
    }
}
