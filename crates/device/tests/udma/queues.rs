//! Queues that take no time: bytes, pointers, faults, registers.

use std::sync::Arc;

use super::rig::{Queue, RING_DESCS, Rig, Store};
use glia_abi::addr::{BusAddr, HostPa, RegOffset};
use glia_abi::arch::{Arch, Scale};
use glia_abi::event::{EngineFault, Event};
use glia_abi::handle::{EngineId, QueueId};
use glia_abi::port::{Budget, DmaMemory, MachineMemory, NotCompleted, Port};
use glia_abi::regs::{NO_REGISTER, QUEUE_CFG_RESET, QUEUE_ENABLED, QUEUE_RESET_BIT, QueueReg};
use glia_abi::sched::Micros;
use glia_abi::transport::{Lent, user_addr};
use glia_abi::udma::{Direction, RxDesc, TxDesc};
use glia_device::{AddressSpace, PinLayout};
use proptest::prelude::*;

const HBM: BusAddr = BusAddr::new(0x40_0000);

fn counting(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

#[test]
fn bytes_go_to_hbm_and_back_and_the_marker_comes_last() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 32, 0);
    let (from, to) = (rig.alloc(65_536), rig.alloc(65_536));
    let bytes = counting(65_536);
    rig.host.write(from, &bytes).unwrap();
    queue.stage(rig.bus(from), HBM, 65_536);
    queue.stage(HBM, rig.bus(to), 65_536);
    queue.stage_marker();
    queue.ring_both(3);
    assert_eq!(queue.wait(), Ok(1));
    assert!(rig.host_bytes(to, 65_536) == bytes);
    assert!(rig.hbm_bytes(HBM.get(), 65_536) == bytes);
}

#[test]
fn every_event_of_a_batch_is_told_with_counts_that_never_restart() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 32, 0);
    rig.heard.take();
    let source = rig.bus(rig.alloc(4096));
    queue.stage(source, HBM, 100);
    queue.ring_both(1);
    let rung = |direction, total| Event::Doorbell {
        direction,
        descs: 1,
        total,
    };
    let moved = |index| Event::Moved {
        index,
        source,
        target: HBM,
        size_bytes: 100,
    };
    let executed = |first| Event::Executed {
        first,
        descs: 1,
        size_bytes: 100,
    };
    let (tx, rx) = (Direction::Tx, Direction::Rx);
    let batch = |n| [rung(rx, n + 1), rung(tx, n + 1), moved(n), executed(n)];
    assert_eq!(rig.heard.take(), batch(0));
    queue.reset();
    let resets = [tx, rx].map(|direction| Event::QueueReset { direction });
    assert_eq!(rig.heard.take(), resets);
    queue.stage(source, HBM, 100);
    queue.ring_both(1);
    assert_eq!(rig.heard.take(), batch(1));
}

#[test]
fn ring_ids_go_round_over_several_laps() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 0, 3);
    let source = rig.alloc(4096);
    for batch in 0..5 * RING_DESCS {
        rig.host.write(source, &batch.to_ne_bytes()).unwrap();
        queue.copy(rig.bus(source), HBM, 8);
        assert_eq!(rig.hbm_bytes(HBM.get(), 4), batch.to_ne_bytes());
    }
    // Ten laps, two descriptors a batch: 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, and now 3.
    for register in [QueueReg::Drhp, QueueReg::Drtp, QueueReg::Dcp] {
        assert_eq!(queue.pointer(Direction::Tx, register), (0, 3));
    }
}

#[test]
fn credit_on_the_receiving_side_alone_waits() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 0, 0);
    queue.stage(rig.bus(rig.alloc(4096)), HBM, 8);
    queue.stage_marker();
    queue.ring(Direction::Rx, 2);
    assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Idle);
    assert_eq!(queue.pointer(Direction::Rx, QueueReg::Drtp), (2, 1));
    assert_eq!(queue.pointer(Direction::Rx, QueueReg::Drhp), (0, 1));
    queue.ring(Direction::Tx, 2);
    assert_eq!(queue.wait(), Ok(1));
}

#[test]
fn a_paused_queue_goes_on_when_it_is_enabled() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 0, 0);
    queue.stage_marker();
    queue.ring(Direction::Rx, 1);
    queue.write(Direction::Rx, QueueReg::Cfg, QUEUE_CFG_RESET);
    queue.ring(Direction::Tx, 1);
    assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Idle);
    queue.write(Direction::Rx, QueueReg::Cfg, QUEUE_ENABLED);
    assert_eq!(queue.wait(), Ok(1));
}

#[test]
fn rings_may_lie_in_hbm() {
    let rig = Rig::small();
    let rings = [0x10_0000, 0x20_0000].map(|at| Store::Hbm(BusAddr::new(at)));
    let mut queue = Queue::with_rings(&rig, 5, 7, rings);
    let source = rig.alloc(4096);
    rig.host.write(source, &counting(100)).unwrap();
    queue.copy(rig.bus(source), HBM, 100);
    assert_eq!(rig.hbm_bytes(HBM.get(), 100), counting(100));
}

#[test]
fn two_queues_work_beside_each_other() {
    let rig = Rig::small();
    let mut first = Queue::new(&rig, 32, 0);
    let mut second = Queue::new(&rig, 33, 0);
    let source = rig.alloc(4096);
    rig.host.write(source, &[7; 64]).unwrap();
    first.stage(rig.bus(source), HBM, 0x40);
    // The first stops.
    first.ring(Direction::Rx, 0);
    second.copy(rig.bus(source), HBM, 64);
    assert_eq!(rig.hbm_bytes(HBM.get(), 64), [7; 64]);
    assert_eq!(first.wait().unwrap_err().reason, NotCompleted::Stopped);
}

/// Stages three pairs, the second of which was changed, and gives the fault that stopped the queue.
fn fault_of(queue: &mut Queue<'_>, spoil: impl Fn(&mut TxDesc, &mut RxDesc)) -> EngineFault {
    queue.reset();
    let source = queue.rig.bus(queue.rig.alloc(4096));
    queue.rig.heard.take();
    queue.stage(source, HBM, 16);
    let (mut tx, mut rx) = queue.pair(source, HBM, 16);
    spoil(&mut tx, &mut rx);
    queue.stage_pair(tx, rx);
    queue.stage_marker();
    queue.ring_both(3);
    assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Stopped);
    assert_eq!(queue.pointer(Direction::Tx, QueueReg::Drhp), (1, 1));
    stopped_once(queue)
}

/// The only fault that was told since the last question.
fn stopped_once(queue: &Queue<'_>) -> EngineFault {
    let faults: Vec<_> = queue
        .rig
        .heard
        .take()
        .into_iter()
        .filter_map(|event| match event {
            Event::Stopped { fault } => Some(fault),
            _ => None,
        })
        .collect();
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0]
}

#[test]
fn a_descriptor_that_cannot_be_executed_stops_the_queue_and_says_why() {
    let rig = Rig::small();
    let queue = &mut Queue::new(&rig, 32, 0);
    let (tx, rx) = (Direction::Tx, Direction::Rx);
    let lap = |direction, found| EngineFault::RingId {
        direction,
        expected: 1,
        found,
    };
    let fault = fault_of(queue, |tx, _| tx.len_ctrl.set_ring_id(2));
    assert_eq!(fault, lap(tx, 2));
    let fault = fault_of(queue, |_, rx| rx.len_ctrl.set_ring_id(0));
    assert_eq!(fault, lap(rx, 0));
    let fault = fault_of(queue, |_, rx| rx.len_ctrl.set_length(0));
    let lengths = EngineFault::Lengths {
        tx_size_bytes: 16,
        rx_size_bytes: 65_536,
    };
    assert_eq!(fault, lengths);
    let nowhere = BusAddr::new(0x8_0000_0000);
    let address = |direction, at| EngineFault::Address {
        direction,
        at,
        size_bytes: 16,
    };
    let fault = fault_of(queue, |tx, _| tx.source = nowhere);
    assert_eq!(fault, address(tx, nowhere));
    // 8 bytes before the end of the channel; address 0 of the host; a pin that never was.
    let end = BusAddr::new((32 << 20) - 8);
    let fault = fault_of(queue, |_, rx| rx.target = end);
    assert_eq!(fault, address(rx, end));
    for pa in [0, 1 << 40] {
        let at = rig.bus(HostPa::new(pa));
        let fault = fault_of(queue, |tx, _| tx.source = at);
        assert_eq!(fault, address(tx, at));
    }
}

/// Makes a pair that cannot be executed.
type Spoil = fn(&mut TxDesc, &mut RxDesc);

#[test]
fn anything_but_a_plain_copy_is_unimplemented() {
    let rig = Rig::small();
    let queue = &mut Queue::new(&rig, 32, 0);
    let spoils: [(Direction, Spoil); 9] = [
        (Direction::Tx, |tx, _| tx.len_ctrl.set_first(false)),
        (Direction::Tx, |tx, _| tx.len_ctrl.set_last(false)),
        (Direction::Tx, |tx, _| tx.len_ctrl.set_concat(true)),
        (Direction::Tx, |tx, _| tx.len_ctrl.set_meta(true)),
        (Direction::Tx, |tx, _| tx.meta_ctrl.set_op_type(1)),
        (Direction::Tx, |tx, _| {
            tx.meta_ctrl = 0x0108_0003_u32.reverse_bits().into()
        }),
        (Direction::Rx, |_, rx| rx.len_ctrl.set_interrupt(true)),
        (Direction::Rx, |_, rx| rx.len_ctrl.set_data_barrier(true)),
        (Direction::Rx, |_, rx| rx.second_buffer_low = 1),
    ];
    for (side, spoil) in spoils {
        let fault = fault_of(queue, spoil);
        let EngineFault::Unimplemented { direction, .. } = fault else {
            unreachable!("{fault:?}");
        };
        assert_eq!(direction, side);
    }
}

/// A length of 0 under posted descriptors once made the step go round for ever.
#[test]
fn a_ring_that_loses_its_length_stops_the_queue() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 32, 0);
    queue.stage_marker();
    queue.ring(Direction::Tx, 1);
    queue.write(Direction::Tx, QueueReg::Drl, 0);
    queue.ring(Direction::Rx, 1);
    let direction = Direction::Tx;
    assert_eq!(stopped_once(&queue), EngineFault::NotReady { direction });
    queue.reset();
    queue.stage_marker();
    queue.ring_both(1);
    queue.wait().unwrap();
}

#[test]
fn a_wrong_doorbell_stops_the_queue_and_says_why() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 32, 0);
    let direction = Direction::Rx;
    let wrong = |count, room| EngineFault::Doorbell {
        direction,
        count,
        room,
    };
    queue.ring(direction, 0);
    assert_eq!(stopped_once(&queue), wrong(0, RING_DESCS));
    queue.reset();
    rig.heard.take();
    queue.ring(direction, 60);
    queue.ring(direction, 5);
    assert_eq!(stopped_once(&queue), wrong(5, 4));
    queue.reset();
    queue.write(direction, QueueReg::Cfg, QUEUE_CFG_RESET);
    rig.heard.take();
    queue.ring(direction, 1);
    assert_eq!(stopped_once(&queue), EngineFault::NotReady { direction });
}

#[test]
fn a_ring_that_cannot_be_read_stops_the_queue_at_its_first_descriptor_outside() {
    let rig = Rig::small();
    // The TX ring begins 32 bytes before the end of the channel.
    let end = BusAddr::new((32 << 20) - 64);
    let rx_ring = rig.alloc(4096);
    let rings = [Store::Hbm(end), Store::Host(rx_ring)];
    let mut queue = Queue::with_rings(&rig, 32, 0, rings);
    rig.heard.take();
    for _ in 0..4 {
        queue.stage(rig.bus(rx_ring), HBM, 4);
    }
    queue.ring_both(5);
    let at = BusAddr::new(32 << 20);
    let direction = Direction::Tx;
    assert_eq!(
        stopped_once(&queue),
        EngineFault::RingAddress { direction, at }
    );
    assert_eq!(queue.pointer(Direction::Tx, QueueReg::Drhp), (4, 1));
}

/// RX is credit: what there is too much of waits for its other half, on either side.
#[test]
fn doorbells_of_unequal_counts_wait_for_each_other() {
    let rig = Rig::small();
    for (rx_descs, tx_descs) in [(2, 3), (3, 2)] {
        let mut queue = Queue::new(&rig, 7, rx_descs);
        let source = rig.bus(rig.alloc(4096));
        queue.stage(source, HBM, 16);
        queue.stage(source, HBM, 16);
        queue.stage_marker();
        queue.ring(Direction::Rx, rx_descs);
        queue.ring(Direction::Tx, tx_descs);
        assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Idle);
        assert_eq!(queue.pointer(Direction::Tx, QueueReg::Drhp), (2, 1));
        queue.ring(Direction::Rx, 3 - rx_descs.min(2));
        queue.ring(Direction::Tx, 3 - tx_descs.min(2));
        assert_eq!(queue.wait(), Ok(1));
    }
}

#[test]
fn a_stopped_queue_ignores_doorbells_until_both_sides_were_reset() {
    let rig = Rig::small();
    let mut queue = Queue::new(&rig, 32, 0);
    queue.stage_marker();
    queue.ring(Direction::Tx, 0);
    queue.ring_both(1);
    assert_eq!(queue.pointer(Direction::Rx, QueueReg::Drtp), (0, 1));
    queue.write(Direction::Tx, QueueReg::SwCtrl, QUEUE_RESET_BIT);
    queue.ring_both(1);
    assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Stopped);
    queue.write(Direction::Rx, QueueReg::SwCtrl, QUEUE_RESET_BIT);
    queue.ring_both(1);
    assert_eq!(queue.wait(), Ok(1));
}

#[test]
fn registers_answer_as_a_bus_does() {
    let rig = Rig::small();
    let queue = Queue::new(&rig, 33, 3);
    let (tx, rx) = (Direction::Tx, Direction::Rx);
    assert_eq!(queue.read(tx, QueueReg::Cfg), QUEUE_ENABLED);
    assert_eq!(queue.read(tx, QueueReg::DrtpInc), 0);
    assert_eq!(queue.read(rx, QueueReg::Drl), RING_DESCS);
    queue.write(rx, QueueReg::DrbpLow, 0xffff_ffff);
    assert_eq!(queue.read(rx, QueueReg::DrbpLow), 0xffff_ffc0);
    // Engine 33's block: version, state, plain storage.
    let at = |offset: u64| RegOffset::new(0x30d0_0000 + offset);
    let device = &rig.device;
    assert_eq!(device.reg_read(at(0x604)), 4);
    for (request, state) in [(1, 0x1111), (4, 0x2222), (7, 0x2222), (2, 0)] {
        device.reg_write(at(0x2_0204), request);
        assert_eq!(device.reg_read(at(0x2_0200)), state);
    }
    device.reg_write(at(0x254), 0x010f_ffff);
    assert_eq!(device.reg_read(at(0x254)), 0x010f_ffff);
    rig.heard.take();
    // Nothing: before the engines, a hole of a queue block, no multiple of 4. Then a read-only one.
    let strays = [RegOffset::new(0), at(0x1004), at(0x1021)];
    for at in strays {
        assert_eq!(device.reg_read(at), NO_REGISTER);
    }
    device.reg_write(at(0x1034), 5);
    let stray = |at, value| Event::StrayRegister { at, value };
    let mut expected: Vec<_> = strays.map(|at| stray(at, None)).into();
    expected.push(stray(at(0x1034), Some(5)));
    assert_eq!(rig.heard.take(), expected);
}

#[test]
fn scattered_user_pages_are_reached_span_by_span() {
    let size_bytes = 32 << 20;
    let layout = PinLayout::Scattered { seed: 3 };
    let rig = Rig::new(Arch::V3, Scale::RegionSize { size_bytes }, layout, 0);
    let process = AddressSpace::new(Arc::clone(&rig.host));
    let mut queue = Queue::new(&rig, 128, 1);
    let input = counting(50_000);
    let mut output = vec![0; 50_000];
    let (input_at, output_at) = (user_addr(&input), user_addr(&output));
    let mut lent = [Lent::In(&input), Lent::Out(&mut output)];
    process.call(&mut [], &mut lent, |memory| {
        let pins = [
            memory.pin(input_at, 50_000, false).unwrap(),
            memory.pin(output_at, 50_000, true).unwrap(),
        ];
        let mut at = HBM;
        for span in &pins[0].spans {
            queue.copy(rig.bus(span.start()), at, span.size_bytes());
            at = at.checked_add(span.size_bytes()).unwrap();
        }
        assert!(pins[0].spans.len() > 5);
        let mut at = HBM;
        for span in &pins[1].spans {
            queue.copy(at, rig.bus(span.start()), span.size_bytes());
            at = at.checked_add(span.size_bytes()).unwrap();
        }
    });
    assert!(output == input);
}

#[test]
fn a_descriptor_that_comes_after_its_pin_has_ended_aborts() {
    let rig = Rig::small();
    let process = AddressSpace::new(Arc::clone(&rig.host));
    let buffer = process.buffer(4096).unwrap();
    let captured = process
        .call(&mut [], &mut [], |memory| {
            memory.capture(buffer.address(), 64)
        })
        .unwrap();
    let pinned = captured.pin(0, 64, false).unwrap();
    let source = rig.bus(pinned.spans[0].start());
    let mut queue = Queue::new(&rig, 32, 0);
    queue.copy(source, HBM, 64);
    // It was pinned to be read.
    rig.heard.take();
    queue.stage(HBM, source, 64);
    queue.ring_both(1);
    let abort = |direction| EngineFault::Address {
        direction,
        at: source,
        size_bytes: 64,
    };
    assert_eq!(stopped_once(&queue), abort(Direction::Rx));
    rig.host.unpin(pinned.pin);
    queue.reset();
    queue.stage(source, HBM, 64);
    queue.ring_both(1);
    assert_eq!(stopped_once(&queue), abort(Direction::Tx));
}

#[test]
fn a_mapping_outlives_the_device() {
    let rig = Rig::small();
    let mapping = rig.device.mapping(HBM, 4096).unwrap();
    rig.device.bar4_write(HBM.get() + 1, &[1, 2, 3]).unwrap();
    drop(rig);
    let mut bytes = [0; 4];
    mapping.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 1, 2, 3]);
}

#[test]
fn fresh_hbm_reads_as_the_fill_by_every_way_and_again_after_a_trim() {
    let size_bytes = 32 << 20;
    let scale = Scale::RegionSize { size_bytes };
    let rig = Rig::new(Arch::V2, scale, PinLayout::Contiguous, 0x5a);
    let mut queue = Queue::new(&rig, 32, 0);
    let target = rig.alloc(4096);
    queue.copy(HBM, rig.bus(target), 100);
    assert_eq!(rig.host_bytes(target, 100), [0x5a; 100]);
    rig.device.bar4_write(0x80_0001, &[1]).unwrap();
    assert_eq!(rig.hbm_bytes(0x80_0000, 3), [0x5a, 1, 0x5a]);
    rig.device.trim(BusAddr::new(0x70_0000), 0x20_0000).unwrap();
    assert_eq!(rig.hbm_bytes(0x80_0000, 3), [0x5a; 3]);
    assert!(rig.device.trim(HBM, 32 << 20).is_err());
}

/// Bytes of this process that lie in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_device_of_96_gib_costs_what_is_touched() {
    let before = resident_bytes();
    let rig = Rig::new(Arch::V3, Scale::Full, PinLayout::Contiguous, 0xcc);
    let mut queue = Queue::new(&rig, 131, 15);
    let last = BusAddr::new(0x8040_0000_0000 + (24 << 30) - 64);
    let target = rig.alloc(4096);
    queue.copy(last, rig.bus(target), 64);
    assert_eq!(rig.host_bytes(target, 64), [0xcc; 64]);
    // Other tests of this process run meanwhile, so the bound is wide.
    assert!(resident_bytes().saturating_sub(before) < 512 << 20);
}

#[test]
fn two_threads_drive_two_queues() {
    let rig = Rig::small();
    let buffers = [0, 1].map(|_| rig.alloc(8192));
    std::thread::scope(|scope| {
        for (engine, buffer) in [(32, buffers[0]), (33, buffers[1])] {
            let rig = &rig;
            scope.spawn(move || {
                let mut queue = Queue::new(rig, engine, 0);
                let hbm = HBM.checked_add(u64::from(engine) * 4096).unwrap();
                let back = buffer.checked_add(4096).unwrap();
                for round in 0..500_u32 {
                    let bytes = (engine << 16 | round).to_ne_bytes().repeat(1024);
                    rig.host.write(buffer, &bytes).unwrap();
                    queue.stage(rig.bus(buffer), hbm, 4096);
                    queue.stage(hbm, rig.bus(back), 4096);
                    queue.stage_marker();
                    queue.ring_both(3);
                    queue.wait().unwrap();
                    assert!(rig.host_bytes(back, 4096) == bytes);
                }
            });
        }
    });
}

/// A copy within 1 MiB of memory, half of it in HBM, half in host memory.
fn any_copy() -> impl Strategy<Value = (u64, u64, u64)> {
    let place = 0..2_u64 << 17;
    let size = prop_oneof![1..300_u64, 1..=65_536_u64];
    (place.clone(), place, size)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_copies_do_what_a_byte_array_says(copies in prop::collection::vec(any_copy(), 1..60)) {
        const HALF: u64 = 1 << 17;
        let rig = Rig::small();
        let mut queue = Queue::new(&rig, 32, 0);
        let host = rig.alloc(HALF);
        let mut model = counting(2 * HALF as usize);
        rig.host.write(host, &model[..HALF as usize]).unwrap();
        rig.device.bar4_write(HBM.get(), &model[HALF as usize..]).unwrap();
        let bus = |place: u64| match place.checked_sub(HALF) {
            None => rig.bus(host).checked_add(place).unwrap(),
            Some(above) => HBM.checked_add(above).unwrap(),
        };
        for (source, target, size) in copies {
            let room = |place: u64| HALF - place % HALF;
            let size = size.min(room(source)).min(room(target));
            queue.stage(bus(source), bus(target), size);
            queue.ring_both(1);
            let (source, size) = (source as usize, size as usize);
            model.copy_within(source..source + size, target as usize);
        }
        prop_assert!(rig.host_bytes(host, HALF as usize) == model[..HALF as usize]);
        prop_assert!(rig.hbm_bytes(HBM.get(), HALF as usize) == model[HALF as usize..]);
    }
}

#[test]
fn nothing_comes_from_a_queue_that_nobody_touched() {
    let rig = Rig::small();
    let word = &rig.host.words(rig.alloc(4096), 4).unwrap()[0];
    let budget = Budget {
        first: Micros(1),
        following: Micros(u64::MAX),
    };
    for engine in [0, 33, 1_000] {
        let id = QueueId::new(EngineId::new(engine), 15);
        let missed = rig.device.await_word(id, word, 1, budget).unwrap_err();
        assert_eq!(missed.reason, NotCompleted::Idle);
    }
}
