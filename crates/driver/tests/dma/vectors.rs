//! The exact words: register writes, descriptors, doorbells, budgets.

use glia_abi::addr::{HostPa, RegOffset};
use glia_abi::arch::Arch;
use glia_abi::handle::{CoreId, EngineId, QueueId};
use glia_abi::regs::QueueReg;
use glia_abi::udma::Direction;
use glia_driver::dma::{BATCH_BYTES_MAX, DmaError, WaitHandle};

use crate::engine::Pair;
use crate::machine::HOST;
use crate::rig::{CORE, PID, Rig, SCRATCH, hbm};

/// The first two words of each side of the executed pairs.
fn control_words(pairs: &[Pair]) -> Vec<[u32; 4]> {
    pairs
        .iter()
        .map(|(_, tx, rx)| {
            let ([a, b, ..], [c, d, ..]) = (tx.to_words(), rx.to_words());
            [a, b, c, d]
        })
        .collect()
}

#[test]
fn bring_up_writes_the_registers_of_the_reference_in_its_order() {
    let rig = Rig::bare(Arch::V2);
    rig.dma.bring_up(CORE).unwrap();
    let writes: Vec<(u64, u32)> = rig
        .machine
        .state()
        .writes
        .iter()
        .map(|(at, value)| (at.get(), *value))
        .collect();
    // The fill buffer of 64 KiB lies before the rings, RX before TX.
    let rx = HOST as u32 + 0x1_0000;
    let tx = rx + 0x2_0000;
    assert_eq!(
        writes,
        [
            (0x3060_1074, 3),
            (0x3060_1020, 0x0300_0000),
            (0x3060_10b0, 0x100),
            (0x3060_1028, tx),
            (0x3060_102c, 0x1000),
            (0x3060_1030, 8192),
            (0x3060_10a0, 0),
            (0x3060_1020, 0x0303_0000),
            (0x3062_1020, 0x0300_0000),
            (0x3062_1064, 0x100),
            (0x3062_1028, rx),
            (0x3062_102c, 0x1000),
            (0x3062_1030, 8192),
            (0x3062_1054, 0),
            (0x3062_1020, 0x0303_0000),
        ]
    );
}

#[test]
fn bringing_up_again_does_nothing() {
    let rig = Rig::new();
    let before = (rig.queue(), rig.memory.stats());
    rig.dma.bring_up(CORE).unwrap();
    assert_eq!((rig.queue(), rig.memory.stats()), before);
    assert_eq!(rig.machine.state().writes, []);
}

#[test]
fn a_bring_up_without_memory_takes_nothing() {
    for granted in 0..4 {
        let rig = Rig::bare(Arch::V2);
        let before = rig.machine.state().host_taken_bytes;
        rig.machine
            .grants
            .store(granted, std::sync::atomic::Ordering::Relaxed);
        let refused = rig.dma.bring_up(CORE).unwrap_err();
        assert!(matches!(refused, DmaError::NoMemory { .. }), "{refused}");
        assert_eq!(rig.machine.state().host_taken_bytes, before);
        rig.dma.bring_up(CORE).unwrap();
    }
}

#[test]
fn rings_are_given_back_when_the_op_layer_goes() {
    let rig = Rig::bare(Arch::V3);
    let before = rig.memory.stats();
    (0..8).for_each(|core| rig.dma.bring_up(CoreId::new(core)).unwrap());
    drop(rig.dma);
    assert_eq!(rig.memory.stats().host_bytes, before.host_bytes);
}

#[test]
fn a_core_that_the_device_lacks_has_no_ring() {
    let rig = Rig::bare(Arch::V2);
    let (core, cores) = (CoreId::new(2), 2);
    assert_eq!(
        rig.dma.bring_up(core),
        Err(DmaError::NoCore { core, cores })
    );
}

#[test]
fn a_copy_has_the_descriptors_of_the_reference() {
    let rig = Rig::new();
    rig.up(0, 65_536 + 4096).unwrap();
    let state = rig.machine.state();
    assert_eq!(
        control_words(&state.pairs),
        [
            [0x0d00_0000, 0x0108_0003, 0x0100_0000, 0],
            [0x0d00_1000, 0x0508_0003, 0x0100_1000, 0],
            [0x0d00_0004, 0x0108_0003, 0x0100_0004, 0],
        ]
    );
    let addresses: Vec<(u64, u64)> = state
        .pairs
        .iter()
        .map(|(_, tx, rx)| (tx.source.get(), rx.target.get()))
        .collect();
    let host_base = 1 << 44;
    let markers = host_base + HOST + 0x5_0000;
    assert_eq!(
        addresses,
        [
            (host_base + SCRATCH, 0x0100_0000),
            (host_base + SCRATCH + 65_536, 0x0101_0000),
            (markers, markers + 4),
        ]
    );
}

/// Nor does a copy ask for any other order than the write barrier, on any generation.
#[test]
fn the_last_data_descriptor_of_every_batch_has_the_write_barrier_on_every_generation() {
    for arch in Arch::ALL {
        let rig = Rig::bare(arch);
        rig.dma.bring_up(CORE).unwrap();
        rig.up(0, 3 * 65_536).unwrap();
        let handle = rig.up_async(0, 65_537, WaitHandle::None).unwrap();
        rig.wait(handle).unwrap();
        let state = rig.machine.state();
        let order = |(_, tx, rx): &Pair| {
            assert!(!tx.len_ctrl.data_barrier() && !rx.len_ctrl.strong_order());
            tx.meta_ctrl.write_barrier()
        };
        let written: Vec<bool> = state.pairs.iter().map(order).collect();
        let (sync, asynchronous) = ([false, false, true, false], [false, true, false]);
        assert_eq!(written, [&sync[..], &asynchronous[..]].concat(), "{arch}");
    }
}

/// What the sheet says of addresses.
#[test]
fn addresses_are_those_of_the_reference() {
    let v3 = Arch::V3.profile();
    let host = v3.host_to_bus(HostPa::new(0x1234_5000));
    assert_eq!(host.get(), 0x4000_1234_5000);
    let doorbell = |arch: Arch, engine, number, direction| {
        let queue = QueueId::new(EngineId::new(engine), number);
        QueueReg::DrtpInc.at(arch.profile(), queue, direction)
    };
    let v2_h2d = doorbell(Arch::V2, 33, 3, Direction::Tx);
    assert_eq!(v2_h2d, Some(RegOffset::new(0x30d0_4038)));
    let v3_h2d = doorbell(Arch::V3, 129, 1, Direction::Rx);
    assert_eq!(v3_h2d, Some(RegOffset::new(0x0692_2038)));
}

#[test]
fn a_small_copy_is_two_pairs_and_two_doorbells_rx_first() {
    let rig = Rig::new();
    rig.up(0, 4096).unwrap();
    assert_eq!(rig.doorbells(), [(Direction::Rx, 2), (Direction::Tx, 2)]);
    let queue = rig.queue();
    assert_eq!((queue.next, queue.acked, queue.available), (2, 2, 8176));
}

#[test]
fn a_ring_goes_from_lap_1_to_lap_2_behind_slot_8191() {
    let rig = Rig::new();
    (0..4096).for_each(|_| rig.up(0, 1).unwrap());
    assert_eq!((rig.queue().next, rig.queue().ring_id), (0, 2));
    rig.up(0, 1).unwrap();
    let state = rig.machine.state();
    let laps: Vec<(u32, u32)> = state.pairs[8190..]
        .iter()
        .map(|(slot, tx, _)| (*slot, tx.len_ctrl.ring_id()))
        .collect();
    assert_eq!(laps, [(8190, 1), (8191, 1), (0, 2), (1, 2)]);
}

#[test]
fn a_full_batch_leaves_room_for_6143() {
    let rig = Rig::new();
    rig.machine
        .bodiless
        .store(true, std::sync::atomic::Ordering::Relaxed);
    rig.up_async(0, BATCH_BYTES_MAX, WaitHandle::None).unwrap();
    assert_eq!(
        rig.doorbells(),
        [(Direction::Rx, 2033), (Direction::Tx, 2033)]
    );
    assert_eq!(rig.queue().available, 6143);
}

#[test]
fn batches_never_overlap_and_each_is_acknowledged() {
    let rig = Rig::new();
    rig.machine
        .bodiless
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let batches = |size_bytes| {
        rig.up(0, size_bytes).unwrap();
        let counts: Vec<u32> = rig.doorbells().iter().map(|(_, count)| *count).collect();
        let queue = rig.queue();
        assert_eq!(queue.acked, queue.next);
        counts
    };
    assert_eq!(batches(133_169_152), [2033, 2033]);
    assert_eq!(batches(133_169_153), [2033, 2033, 2, 2]);
    // 200 MiB: 2,032 descriptors of 64 KiB, then the other 1,168.
    assert_eq!(batches(200 << 20), [2033, 2033, 1169, 1169]);
    let barriers = |range: std::ops::Range<usize>| {
        let pairs = &rig.machine.state().pairs[range];
        let marked = pairs
            .iter()
            .filter(|(_, tx, _)| tx.meta_ctrl.write_barrier());
        marked.count()
    };
    assert_eq!(barriers(0..2031), 0);
    assert_eq!(barriers(2031..2032), 1);
    assert_eq!(barriers(2032..2033), 0);
}

#[test]
fn waits_have_the_budgets_of_the_reference() {
    let rig = Rig::new();
    rig.machine
        .bodiless
        .store(true, std::sync::atomic::Ordering::Relaxed);
    rig.up(0, 4096).unwrap();
    rig.up(0, BATCH_BYTES_MAX).unwrap();
    let first = rig.up_async(0, BATCH_BYTES_MAX, WaitHandle::None).unwrap();
    let second = rig.up_async(0, 4096, first).unwrap();
    rig.wait(second).unwrap();
    let budgets: Vec<(u64, u64)> = rig
        .machine
        .state()
        .waits
        .iter()
        .map(|(budget, _)| (budget.first.0, budget.following.0))
        .collect();
    assert_eq!(
        budgets,
        [
            (1, 39_900),
            (8125, 80_467_500),
            (1, 81_279_900),
            (1, 39_900)
        ]
    );
}

/// A fill's second copy stays within HBM, but is waited for like any other.
#[test]
fn a_fill_is_waited_for_as_a_copy_is() {
    let rig = Rig::new();
    rig.dma.fill(PID, hbm(0), 3 * 65_536, 1).unwrap();
    let state = rig.machine.state();
    let budgets = state
        .waits
        .iter()
        .map(|(it, _)| (it.first.0, it.following.0));
    assert!(budgets.eq([(1, 39_900), (5, 79_500)]));
    let fenced = state.pairs.iter().filter(|it| it.1.len_ctrl.data_barrier());
    assert_eq!(fenced.count(), 0);
}

/// Synchronous copies go by the target's core, asynchronous ones by the source's.
#[test]
fn a_copy_between_cores_uses_the_queue_of_the_reference() {
    let rig = Rig::bare(Arch::V3);
    (0..4).for_each(|core| rig.dma.bring_up(CoreId::new(core)).unwrap());
    rig.machine.state().doorbells.clear();
    let on = |place: glia_driver::dma::Place, core| glia_driver::dma::Place {
        core: CoreId::new(core),
        ..place
    };
    let queue_of = |go: &dyn Fn()| {
        go();
        let (_, queue, _) = std::mem::take(&mut rig.machine.state().doorbells)[0];
        (queue.engine.get(), queue.number)
    };
    let (host, host_too) = (on(rig.host(0), 1), on(rig.host(4096), 2));
    let (device, device_too) = (on(hbm(0), 3), on(hbm(4096), 0));
    let copy = |source, target| queue_of(&|| rig.dma.copy(PID, source, target, 8).unwrap());
    let copy_async = |source, target| {
        queue_of(&|| {
            let none = WaitHandle::None;
            let handle = rig.dma.copy_async(PID, source, target, 8, none).unwrap();
            rig.dma.wait(PID, source, target, handle).unwrap();
        })
    };
    let (queue_0, queue_1, queue_2, queue_3) = ((128, 0), (128, 1), (129, 0), (129, 1));
    assert_eq!(copy(host, device), queue_3);
    assert_eq!(copy(device, host), queue_3);
    assert_eq!(copy(device, device_too), queue_0);
    assert_eq!(copy(host, host_too), queue_2);
    assert_eq!(copy_async(host, device), queue_3);
    assert_eq!(copy_async(device, host), queue_3);
    assert_eq!(copy_async(device, device_too), queue_3);
    assert_eq!(copy_async(host_too, host), queue_1);
}

#[test]
fn a_core_number_beyond_the_device_is_served_by_its_last_core() {
    let rig = Rig::bare(Arch::V2);
    rig.dma.bring_up(CoreId::new(1)).unwrap();
    let mut target = hbm(0);
    target.core = CoreId::new(7);
    rig.dma.copy(PID, rig.host(0), target, 8).unwrap();
    let (_, queue, _) = rig.machine.state().doorbells[0];
    assert_eq!(queue, QueueId::new(EngineId::new(33), 0));
}

#[test]
fn a_fill_of_65537_bytes_is_two_copies() {
    let rig = Rig::new();
    rig.dma.fill(PID, hbm(0x77), 65_537, 0x5a).unwrap();
    let state = rig.machine.state();
    let moves: Vec<(u64, u64, u64)> = state
        .pairs
        .iter()
        .filter(|(_, tx, _)| tx.len_ctrl.length() != 4)
        .map(|(_, tx, rx)| {
            let size_bytes = tx.len_ctrl.size_bytes();
            (tx.source.get(), rx.target.get(), size_bytes)
        })
        .collect();
    let buffer = (1 << 44) + HOST;
    assert_eq!(
        moves,
        [(buffer, 0x0100_0077, 65_536), (0x0100_0077, 0x0101_0077, 1)]
    );
}
