//! Engines for which things take time, run in an order of their own, or go wrong on order.

use std::sync::Arc;

use super::rig::{DEVICE, Queue, Rig};
use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::event::{EngineFault, Event};
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, NoFaults, PairFault, Trigger};
use glia_abi::port::{DmaMemory, NotCompleted};
use glia_abi::regs::QueueReg;
use glia_abi::sched::{Micros, Sched, Tick};
use glia_abi::udma::{Barrier, Direction, TxDesc};
use glia_device::{DeviceConfig, EngineOrder, EngineTiming, PinLayout};
use proptest::prelude::*;

const HBM: BusAddr = BusAddr::new(0x40_0000);
const SEEDS: u64 = 200;

fn config() -> DeviceConfig {
    let size_bytes = 32 << 20;
    let layout = MemoryLayout::new(Arch::V2, Scale::RegionSize { size_bytes }).unwrap();
    DeviceConfig::new(DEVICE, layout)
}

fn weak(seed: u64) -> Rig {
    let config = DeviceConfig {
        order: EngineOrder::Weak { seed },
        timing: Some(EngineTiming::of(Arch::V2)),
        ..config()
    };
    Rig::with(config, PinLayout::Contiguous, Arc::new(NoFaults))
}

fn counting(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

/// Whether the bytes are there when the marker is, over a device of this seed. The barrier of the
/// last of four pairs and that of the marker are given.
fn marker_waits(seed: u64, last: Barrier, marker: Barrier) -> bool {
    let rig = weak(seed);
    let mut queue = Queue::new(&rig, 32, 0);
    let from = rig.alloc(4 * 4096);
    rig.host.write(from, &counting(4 * 4096)).unwrap();
    for part in 0..4 {
        let at = |base: BusAddr| base.checked_add(part * 4096).unwrap();
        let barrier = if part == 3 { last } else { Barrier::None };
        queue.stage_behind(barrier, at(rig.bus(from)), at(HBM), 4096);
    }
    queue.stage_marker_behind(marker);
    queue.ring_both(5);
    queue.wait().unwrap();
    rig.hbm_bytes(HBM.get(), 4 * 4096) == counting(4 * 4096)
}

#[test]
fn in_weak_order_a_marker_comes_before_its_data_unless_a_barrier_keeps_it_behind() {
    let kept = |last, marker| {
        let kept = (0..SEEDS).filter(|&seed| marker_waits(seed, last, marker));
        kept.count() as u64
    };
    assert!(kept(Barrier::None, Barrier::None) < SEEDS / 2);
    assert_eq!(kept(Barrier::Write, Barrier::None), SEEDS);
    assert_eq!(kept(Barrier::None, Barrier::StrongOrder), SEEDS);
}

/// Moves 4 KiB through two places of HBM to host memory, each pair with this barrier, and says
/// whether they came.
fn relays(seed: u64, barrier: Barrier, rlimit_mask: u32) -> bool {
    let rig = weak(seed);
    let mut queue = Queue::new(&rig, 32, 0);
    queue.write(Direction::Tx, QueueReg::RlimitMask, rlimit_mask);
    let (from, to) = (rig.alloc(4096), rig.alloc(4096));
    rig.host.write(from, &counting(4096)).unwrap();
    let further = HBM.checked_add(65_536).unwrap();
    queue.stage_behind(barrier, rig.bus(from), HBM, 4096);
    queue.stage_behind(barrier, HBM, further, 4096);
    queue.stage_behind(barrier, further, rig.bus(to), 4096);
    queue.stage_marker_behind(Barrier::StrongOrder);
    queue.ring_both(4);
    queue.wait().unwrap();
    rig.host_bytes(to, 4096) == counting(4096)
}

#[test]
fn in_weak_order_a_relay_needs_data_barriers_and_a_queue_that_heeds_them() {
    let kept = |barrier, mask| {
        let kept = (0..SEEDS).filter(|&seed| relays(seed, barrier, mask));
        kept.count() as u64
    };
    assert_eq!(kept(Barrier::Dmb, 0b011), SEEDS);
    assert!(kept(Barrier::Dmb, 0b111) < SEEDS / 2);
    assert!(kept(Barrier::None, 0b011) < SEEDS / 2);
}

#[test]
fn one_seed_gives_one_order_and_another_seed_another() {
    let order = |seed| {
        let rig = weak(seed);
        let mut queue = Queue::new(&rig, 32, 0);
        let source = rig.bus(rig.alloc(65_536));
        // One and the other way: on either the order is kept.
        let back = rig.bus(rig.alloc(65_536));
        for part in 0..6 {
            let target = HBM.checked_add(part * 65_536).unwrap();
            queue.stage(source, target, 65_536);
            queue.stage(source, back, 65_536);
        }
        queue.stage_marker_behind(Barrier::StrongOrder);
        queue.ring_both(13);
        queue.wait().unwrap();
        let moved = |event| match event {
            Event::Moved { index, .. } => Some(index),
            _ => None,
        };
        (
            rig.sched.now(),
            rig.heard
                .take()
                .into_iter()
                .filter_map(moved)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(order(5), order(5));
    assert_ne!(order(5).1, order(6).1);
    assert_eq!(order(5).1.len(), 13);
}

#[test]
fn a_copy_takes_its_latency_and_its_bytes_and_the_looks_count_it() {
    let timing = EngineTiming {
        latency_ns: 500,
        bytes_per_us: 65_536,
    };
    let config = DeviceConfig {
        timing: Some(timing),
        ..config()
    };
    let rig = Rig::with(config, PinLayout::Contiguous, Arc::new(NoFaults));
    let mut queue = Queue::new(&rig, 32, 0);
    let source = rig.bus(rig.alloc(65_536));
    for _ in 0..4 {
        queue.stage(source, HBM, 65_536);
    }
    queue.stage_marker();
    queue.ring_both(5);
    assert_eq!(rig.sched.now(), Tick(0));
    // 4 x (0.5 + 1) and 0.5 microseconds; the first look comes after 1, then one each.
    assert_eq!(queue.wait(), Ok(1 + 6));
    assert_eq!(rig.sched.now(), Tick(6_500));
}

#[test]
fn what_is_wrong_behind_good_pairs_stops_the_queue_when_they_are_done() {
    let timed = DeviceConfig {
        timing: Some(EngineTiming::of(Arch::V2)),
        ..config()
    };
    let order = EngineOrder::Weak { seed: 4 };
    for config in [config(), timed, DeviceConfig { order, ..config() }] {
        for good in [1, 3, 20] {
            let rig = Rig::with(config, PinLayout::Contiguous, Arc::new(NoFaults));
            let mut queue = Queue::new(&rig, 32, 0);
            let source = rig_zeros(&rig);
            for _ in 0..good {
                queue.stage(source, HBM, 64);
            }
            let (tx, rx) = queue.pair(source, HBM, 64);
            let tx = TxDesc {
                len_ctrl: tx.len_ctrl.with_length(65),
                ..tx
            };
            queue.stage_pair(tx, rx);
            queue.stage_marker();
            queue.ring_both(good + 2);
            assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Stopped);
            assert_eq!(queue.pointer(Direction::Tx, QueueReg::Drhp), (good, 1));
            let lengths = EngineFault::Lengths {
                tx_size_bytes: 65,
                rx_size_bytes: 64,
            };
            let stopped = Event::Stopped { fault: lengths };
            assert!(rig.heard.take().contains(&stopped), "{good} good ones");
        }
    }
}

struct Broken {
    rig: Rig,
    plan: Arc<FaultPlan>,
}

impl Broken {
    fn new(kind: FaultKind) -> Self {
        let plan = Arc::new(FaultPlan::new(0));
        let trigger = Trigger {
            count: Some(1),
            ..Trigger::ALWAYS
        };
        let rule = FaultRule {
            trigger,
            ..FaultRule::new(kind)
        };
        plan.add(rule).unwrap();
        let faults = Arc::clone(&plan) as _;
        Self {
            rig: Rig::with(config(), PinLayout::Contiguous, faults),
            plan,
        }
    }

    /// Copies 3 x 4 KiB into HBM; says what the wait says, and the bytes.
    fn copy(&self, queue: &mut Queue<'_>) -> (Result<u64, NotCompleted>, Vec<u8>) {
        let from = self.rig.alloc(3 * 4096);
        self.rig.host.write(from, &counting(3 * 4096)).unwrap();
        for part in 0..3 {
            let at = |base: BusAddr| base.checked_add(part * 4096).unwrap();
            queue.stage(at(self.rig.bus(from)), at(HBM), 4096);
        }
        queue.stage_marker();
        queue.ring_both(4);
        let waited = queue.wait().map_err(|error| error.reason);
        (waited, self.rig.hbm_bytes(HBM.get(), 3 * 4096))
    }

    /// That the queue works again after a reset.
    fn recovers(&self, queue: &mut Queue<'_>) {
        queue.reset();
        let (waited, bytes) = self.copy(queue);
        assert_eq!(waited, Ok(1));
        assert!(bytes == counting(3 * 4096));
    }

    fn faults(&self) -> Vec<EngineFault> {
        let stopped = |event| match event {
            Event::Stopped { fault } => Some(fault),
            _ => None,
        };
        self.rig
            .heard
            .take()
            .into_iter()
            .filter_map(stopped)
            .collect()
    }
}

#[test]
fn a_queue_that_is_stuck_moves_nothing_says_nothing_and_lives_again_after_a_reset() {
    let broken = Broken::new(FaultKind::StuckQueue);
    let mut queue = Queue::new(&broken.rig, 32, 0);
    let (waited, bytes) = broken.copy(&mut queue);
    assert_eq!(waited, Err(NotCompleted::Stopped));
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert!(broken.faults().is_empty());
    broken.recovers(&mut queue);
}

#[test]
fn a_partial_batch_moves_so_many_pairs() {
    let broken = Broken::new(FaultKind::PartialBatch { pairs: 2 });
    let mut queue = Queue::new(&broken.rig, 32, 0);
    let (waited, bytes) = broken.copy(&mut queue);
    assert_eq!(waited, Err(NotCompleted::Stopped));
    assert!(bytes[..8192] == counting(3 * 4096)[..8192]);
    assert!(bytes[8192..].iter().all(|&byte| byte == 0));
    broken.recovers(&mut queue);
}

#[test]
fn a_lost_marker_leaves_the_bytes_and_an_idle_queue() {
    let broken = Broken::new(FaultKind::LostMarker);
    let mut queue = Queue::new(&broken.rig, 32, 0);
    let (waited, bytes) = broken.copy(&mut queue);
    assert_eq!(waited, Err(NotCompleted::Idle));
    assert!(bytes == counting(3 * 4096));
    assert_eq!(queue.pointer(Direction::Tx, QueueReg::Drhp), (4, 1));
    broken.recovers(&mut queue);
}

#[test]
fn a_late_marker_is_seen_at_the_look_that_comes_then() {
    let delay = Micros(25);
    let broken = Broken::new(FaultKind::LateMarker { delay });
    let mut queue = Queue::new(&broken.rig, 32, 0);
    let (waited, bytes) = broken.copy(&mut queue);
    assert_eq!(waited, Ok(25));
    assert_eq!(broken.rig.sched.now(), Tick(25_000));
    assert!(bytes == counting(3 * 4096));
    broken.recovers(&mut queue);
}

#[test]
fn planned_bits_are_flipped_and_no_others() {
    let broken = Broken::new(FaultKind::FlippedBits {
        offset_bytes: 100,
        size_bytes: 3,
        mask: 0x81,
    });
    let mut queue = Queue::new(&broken.rig, 32, 0);
    let (waited, bytes) = broken.copy(&mut queue);
    assert_eq!(waited, Ok(1));
    let mut expected = counting(3 * 4096);
    expected[100..103].iter_mut().for_each(|byte| *byte ^= 0x81);
    assert!(bytes == expected);
    let told = broken.rig.heard.take().into_iter();
    let ordered = told.filter(|event| matches!(event, Event::Ordered { .. }));
    let fault = PairFault::Flipped {
        offset_bytes: 100,
        size_bytes: 3,
        mask: 0x81,
    };
    assert_eq!(
        ordered.collect::<Vec<_>>(),
        [Event::Ordered { index: 0, fault }]
    );
}

#[test]
fn a_head_that_moves_late_is_seen_to_move_when_its_time_has_come() {
    let delay = Micros(40);
    let broken = Broken::new(FaultKind::DelayedRetirement { delay });
    let mut queue = Queue::new(&broken.rig, 32, 0);
    let (waited, bytes) = broken.copy(&mut queue);
    assert_eq!(waited, Ok(1));
    assert!(bytes == counting(3 * 4096));
    for direction in Direction::BOTH {
        assert_eq!(queue.pointer(direction, QueueReg::Drhp), (0, 1));
        assert_eq!(queue.pointer(direction, QueueReg::Drtp), (4, 1));
    }
    broken.rig.pass(delay);
    for direction in Direction::BOTH {
        assert_eq!(queue.pointer(direction, QueueReg::Drhp), (4, 1));
    }
}

#[test]
fn an_abort_and_an_uncorrectable_error_stop_the_queue_until_its_reset() {
    let broken = Broken::new(FaultKind::DmaAbort);
    let mut queue = Queue::new(&broken.rig, 32, 0);
    assert_eq!(broken.copy(&mut queue).0, Err(NotCompleted::Stopped));
    assert_eq!(broken.faults(), [EngineFault::Aborted { at: HBM }]);
    broken.recovers(&mut queue);

    let broken = Broken::new(FaultKind::UncorrectableHbm);
    let mut queue = Queue::new(&broken.rig, 32, 0);
    // Nothing is read from HBM.
    assert_eq!(broken.copy(&mut queue).0, Ok(1));
    let to = broken.rig.bus(broken.rig.alloc(4096));
    queue.stage(HBM, to, 4096);
    queue.stage_marker();
    queue.ring_both(2);
    assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Stopped);
    assert_eq!(broken.faults(), [EngineFault::Uncorrectable { at: HBM }]);
    broken.recovers(&mut queue);
}

#[test]
fn a_plan_that_is_cleared_while_pairs_are_in_flight_lets_them_end() {
    let broken = Broken::new(FaultKind::LateMarker { delay: Micros(9) });
    let mut queue = Queue::new(&broken.rig, 32, 0);
    queue.stage(rig_zeros(&broken.rig), HBM, 4096);
    queue.stage_marker();
    queue.ring_both(2);
    broken.plan.clear();
    assert_eq!(queue.wait(), Ok(9));
    broken.recovers(&mut queue);
}

fn rig_zeros(rig: &Rig) -> BusAddr {
    rig.bus(rig.alloc(4096))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The one thing that is written twice: doing a pair at once, and in steps.
    #[test]
    fn strict_order_and_no_time_is_what_is_done_at_once(
        pairs in prop::collection::vec((0..4u64, 0..4u64, 1..=4096u64), 1..40),
    ) {
        let armed = Arc::new(FaultPlan::new(0));
        let never = Trigger { nth: Some(u64::MAX), ..Trigger::ALWAYS };
        let rule = FaultRule { trigger: never, ..FaultRule::new(FaultKind::StuckQueue) };
        armed.add(rule).unwrap();
        let rigs = [
            Rig::with(config(), PinLayout::Contiguous, Arc::new(NoFaults)),
            Rig::with(config(), PinLayout::Contiguous, armed),
        ];
        let outcomes = rigs.each_ref().map(|rig| {
            let mut queue = Queue::new(rig, 32, 0);
            let host = rig.alloc(4 * 4096);
            rig.host.write(host, &counting(4 * 4096)).unwrap();
            for &(from, to, size_bytes) in &pairs {
                let place = |number: u64| match number {
                    0 | 1 => HBM.checked_add(number * 3000).unwrap(),
                    _ => rig.bus(host).checked_add((number - 2) * 5000).unwrap(),
                };
                queue.stage(place(from), place(to), size_bytes);
            }
            queue.stage_marker();
            rig.heard.take();
            queue.ring_both(pairs.len() as u32 + 1);
            let waited = queue.wait();
            let executed = |event: &Event| !matches!(event, Event::Executed { .. });
            let events: Vec<_> = rig.heard.take().into_iter().filter(executed).collect();
            let heads = Direction::BOTH.map(|side| queue.pointer(side, QueueReg::Drhp));
            let bytes = (rig.hbm_bytes(HBM.get(), 16_384), rig.host_bytes(host, 4 * 4096));
            (waited, heads, bytes, events)
        });
        prop_assert!(outcomes[0] == outcomes[1], "{:?}", outcomes.map(|outcome| outcome.3));
    }
}
