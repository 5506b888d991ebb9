//! Queues of processes.

use glia_abi::addr::{BusAddr, HostPa, Span};
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{EngineId, Pid, QueueId};
use glia_abi::regs::QueueReg;
use glia_abi::udma::{Barrier, Direction, Transfer};
use glia_driver::dma::user::{
    EngineState, QueueError, QueueRequest, RingRequest, UserRingState, is_nx_queue,
};

use crate::rig::{PID, Rig, SCRATCH, hbm};

const OTHER: Pid = Pid::new(78);
const QUEUE: QueueId = QueueId::new(EngineId::new(5), 2);
const CHUNK_BYTES: u64 = 65_536;

/// The `number`-th chunk of host memory.
fn chunk(rig: &Rig, number: u64) -> Option<Span<BusAddr>> {
    let at = HostPa::new(SCRATCH + (1 << 20) + number * CHUNK_BYTES);
    Span::new(rig.profile.host_to_bus(at), CHUNK_BYTES)
}

fn request(rig: &Rig, tx_descs: u32, rx_descs: u32) -> QueueRequest {
    QueueRequest {
        tx: RingRequest {
            chunk: chunk(rig, 0),
            descs: tx_descs,
        },
        rx: RingRequest {
            chunk: chunk(rig, 1),
            descs: rx_descs,
        },
        completions: None,
        allocatable: true,
    }
}

/// A rig with a queue of 64 descriptors on each side, and nothing written yet.
fn with_queue() -> Rig {
    let rig = Rig::new();
    let request = request(&rig, 64, 64);
    rig.dma.queue_init(PID, QUEUE, &request).unwrap();
    rig.machine.state().writes.clear();
    rig
}

fn transfer(size_bytes: u64, barrier: Barrier) -> Transfer {
    Transfer {
        source: hbm(0).at,
        target: hbm(0x1000).at,
        size_bytes,
        barrier,
    }
}

fn standing(rig: &Rig) -> [UserRingState; 2] {
    rig.dma.user_ring_state(QUEUE).unwrap()
}

#[test]
fn a_queue_is_set_up_with_the_writes_of_the_reference() {
    let rig = Rig::new();
    let request = request(&rig, 128, 64);
    rig.dma.queue_init(PID, QUEUE, &request).unwrap();
    let at = |register: QueueReg, direction| register.at(rig.profile, QUEUE, direction);
    let writes = rig.machine.state().writes.clone();
    assert_eq!(writes.len(), 15);
    assert_eq!(Some(writes[0].0), at(QueueReg::RlimitMask, Direction::Tx));
    assert_eq!(Some(writes[14].0), at(QueueReg::Cfg, Direction::Rx));
    let [tx, rx] = rig.dma.queue_registers(QUEUE).unwrap();
    assert_eq!((tx.descs, rx.descs), (128, 64));
    assert_eq!(Some(tx.base), chunk(&rig, 0).map(Span::start));
    assert_eq!(Some(rx.base), chunk(&rig, 1).map(Span::start));
    assert_eq!(rig.dma.queue_owner(QUEUE), Some(PID));
    assert_eq!(standing(&rig).map(|side| side.available), [112, 48]);
}

#[test]
fn a_request_that_no_ring_can_serve_is_refused_and_changes_nothing() {
    let rig = with_queue();
    let before = standing(&rig);
    let small = Span::new(hbm(0).at, 1024 - 16);
    let odd = Span::new(hbm(128).at, CHUNK_BYTES);
    let refused = |change: &dyn Fn(&mut QueueRequest)| {
        let mut wrong = request(&rig, 64, 64);
        change(&mut wrong);
        rig.dma.queue_init(PID, QUEUE, &wrong).unwrap_err().errno()
    };
    let descs = |tx: u32, rx: u32| {
        refused(&|request: &mut QueueRequest| (request.tx.descs, request.rx.descs) = (tx, rx))
    };
    for (tx, rx, errno) in [
        (31, 31, Errno::EPERM),
        (33, 64, Errno::EPERM),
        (64, 40, Errno::EPERM),
        (16, 16, Errno::EINVAL),
        (0, 0, Errno::EINVAL),
        (1 << 24, 1 << 24, Errno::EINVAL),
        ((1 << 24) - 16, 64, Errno::EINVAL),
        (64, 4112, Errno::EINVAL),
    ] {
        assert_eq!(descs(tx, rx), errno, "{tx} {rx}");
    }
    assert_eq!(refused(&|it| it.tx.chunk = small), Errno::EINVAL);
    assert_eq!(refused(&|it| it.rx.chunk = odd), Errno::EPERM);
    assert_eq!(refused(&|it| it.completions = small), Errno::EINVAL);
    assert_eq!(refused(&|it| it.completions = chunk(&rig, 2)), Errno::EPERM);
    assert_eq!(standing(&rig), before);
    assert_eq!(rig.machine.state().writes, []);
}

#[test]
fn a_queue_that_somebody_has_is_not_given_away() {
    let rig = with_queue();
    let request = request(&rig, 64, 64);
    let init = |by, queue| rig.dma.queue_init(by, queue, &request);
    let taken = QueueError::Taken { queue: QUEUE };
    assert_eq!(init(OTHER, QUEUE), Err(taken));
    assert_eq!(taken.errno(), Errno::EALREADY);
    let own = rig.queue().queue;
    assert_eq!(init(PID, own), Err(QueueError::Taken { queue: own }));
    for queue in [
        QueueId::new(EngineId::new(5), 16),
        QueueId::new(EngineId::new(34), 0),
    ] {
        assert_eq!(init(PID, queue), Err(QueueError::NoQueue { queue }));
    }
    init(PID, QUEUE).unwrap();
}

#[test]
fn doorbells_are_rung_rx_first_and_only_for_what_the_ring_has() {
    let rig = with_queue();
    for _ in 0..4 {
        let small = transfer(64, Barrier::None);
        rig.dma.queue_push(QUEUE, &small).unwrap();
    }
    for (tx, rx) in [(3, 65), (65, 3), (3, 0)] {
        let refused = rig.dma.queue_start(QUEUE, tx, rx).unwrap_err();
        assert_eq!(refused.errno(), Errno::EPERM);
    }
    let nowhere = QueueId::new(EngineId::new(5), 16);
    let refused = rig.dma.queue_start(nowhere, 1, 1).unwrap_err();
    assert_eq!(refused, QueueError::NotSet { queue: nowhere });
    assert_eq!(rig.doorbells(), []);
    rig.dma.queue_start(QUEUE, 0, 4).unwrap();
    assert_eq!(rig.doorbells(), [(Direction::Rx, 4)]);
    rig.dma.queue_start(QUEUE, 3, 0).unwrap_err();
    rig.dma.queue_start(QUEUE, 3, 1).unwrap();
    assert_eq!(rig.doorbells(), [(Direction::Rx, 1), (Direction::Tx, 3)]);
    assert_eq!(rig.machine.state().pairs.len(), 3);
}

#[test]
fn a_pair_is_put_into_the_next_slots_or_not_at_all() {
    let rig = with_queue();
    let push = |transfer| rig.dma.queue_push(QUEUE, &transfer);
    push(transfer(4096, Barrier::None)).unwrap();
    push(transfer(65_536, Barrier::Dmb)).unwrap();
    let before = standing(&rig);
    assert_eq!(
        (before[0].next, before[1].next, before[0].available),
        (2, 2, 46)
    );
    for (size_bytes, barrier, errno) in [
        (65_537, Barrier::None, Errno::EPERM),
        (0, Barrier::None, Errno::EPERM),
        (16, Barrier::StrongOrder, Errno::EINVAL),
    ] {
        let refused = push(transfer(size_bytes, barrier)).unwrap_err();
        assert_eq!(refused.errno(), errno);
    }
    assert_eq!(standing(&rig), before);
    for _ in 0..46 {
        push(transfer(1, Barrier::None)).unwrap();
    }
    let full = push(transfer(1, Barrier::None)).unwrap_err();
    assert_eq!(full.errno(), Errno::ENOMEM);
    rig.dma.queue_ack(QUEUE, 3).unwrap();
    assert_eq!(
        standing(&rig).map(|side| (side.acked, side.available)),
        [(3, 3); 2]
    );
    let words = rig.machine.load(chunk(&rig, 0).unwrap().start(), 32);
    assert_eq!(words[..4], 0x0d00_1000_u32.to_le_bytes());
    assert_eq!(words[16..20], 0x4d00_0000_u32.to_le_bytes());
}

#[test]
fn rings_that_the_driver_cannot_keep_books_of_are_not_filled_by_it() {
    let rig = Rig::new();
    let refuses = |request: QueueRequest| {
        rig.dma.queue_init(PID, QUEUE, &request).unwrap();
        let refused = rig.dma.queue_push(QUEUE, &transfer(1, Barrier::None));
        refused == Err(QueueError::NotAllocatable { queue: QUEUE })
    };
    assert!(refuses(request(&rig, 48, 48)));
    assert!(rig.dma.queue_ack(QUEUE, 1).is_err());
    assert!(refuses(QueueRequest {
        allocatable: false,
        ..request(&rig, 64, 64)
    }));
    let nothing = RingRequest {
        chunk: None,
        descs: 64,
    };
    assert!(refuses(QueueRequest {
        tx: nothing,
        ..request(&rig, 64, 64)
    }));
    assert_eq!(rig.dma.queue_registers(QUEUE).unwrap()[0].base.get(), 0);
}

#[test]
fn an_exit_leaves_a_ring_that_is_never_filled_and_no_owner() {
    let rig = Rig::new();
    let host_bytes = rig.memory.stats().host_bytes;
    let queue = |engine, number| QueueId::new(EngineId::new(engine), number);
    let (nx, of_h2t, others) = (queue(0, 14), queue(32, 3), queue(6, 1));
    assert!(is_nx_queue(rig.profile, nx) && !is_nx_queue(rig.profile, QUEUE));
    let request = request(&rig, 64, 64);
    for (by, queue) in [(PID, QUEUE), (PID, nx), (PID, of_h2t), (OTHER, others)] {
        rig.dma.queue_init(by, queue, &request).unwrap();
    }
    // One page for the ring that is left behind.
    assert_eq!(rig.memory.stats().host_bytes, host_bytes + 4096);
    rig.machine.state().writes.clear();
    rig.dma.process_exit(PID);
    assert_eq!(rig.machine.state().writes.len(), 15);
    let base = |queue| {
        rig.dma
            .queue_registers(queue)
            .unwrap()
            .map(|side| side.base)
    };
    let [tx, rx] = base(QUEUE);
    assert_eq!(tx, rx);
    assert_ne!(Some(tx), chunk(&rig, 0).map(Span::start));
    assert_eq!(Some(base(nx)[0]), chunk(&rig, 0).map(Span::start));
    assert_eq!(Some(base(of_h2t)[0]), chunk(&rig, 0).map(Span::start));
    for gone in [QUEUE, nx, of_h2t] {
        assert_eq!(rig.dma.queue_owner(gone), None);
        assert!(rig.dma.queue_start(gone, 1, 1).is_err());
    }
    assert_eq!(rig.dma.queue_owner(others), Some(OTHER));
    rig.dma.queue_init(OTHER, QUEUE, &request).unwrap();
    rig.machine.state().writes.clear();
    rig.dma.process_exit(PID);
    assert_eq!(rig.machine.state().writes, []);
}

#[test]
fn an_engine_is_asked_for_three_states_and_no_other() {
    let rig = Rig::bare(Arch::V2);
    let engine = EngineId::new(5);
    let asked = |state| {
        rig.dma.set_engine_state(engine, state).unwrap();
        let writes = std::mem::take(&mut rig.machine.state().writes);
        let writes = writes.into_iter().map(|(at, value)| (at.get(), value));
        writes.collect::<Vec<_>>()
    };
    let both = |value| [(0x3014_0204, value), (0x3016_0204, value)];
    assert_eq!(asked(EngineState::Normal), both(1));
    assert_eq!(asked(EngineState::Disable), both(2));
    assert_eq!(asked(EngineState::Abort), both(4));
    assert_eq!(asked(EngineState::Idle), []);
    assert_eq!(asked(EngineState::Reset), []);
    let state = rig.dma.engine_state(engine).unwrap();
    assert_eq!(state, [EngineState::Idle; 2]);
    let engine = EngineId::new(34);
    assert_eq!(
        rig.dma.engine_state(engine),
        Err(QueueError::NoEngine { engine })
    );
}
