//! Resets by the firmware, asked for by hand.

use std::sync::Arc;

use super::rig::{DEVICE, Queue, Rig};
use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::event::{EngineFault, Event};
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, NoFaults, Trigger};
use glia_abi::handle::{CoreId, QueueId};
use glia_abi::port::{NotCompleted, Port};
use glia_abi::regs::{FirmwareReg, QUEUE_CFG_RESET, QueueReg, RESET_RUNS_BIT, ResetType};
use glia_abi::sched::{Micros, Poll, Sched, Tick};
use glia_abi::udma::Direction;
use glia_device::{DeviceConfig, PinLayout};

const HBM: BusAddr = BusAddr::new(0x40_0000);
const TAKES: Micros = Micros(500);

fn config(arch: Arch) -> DeviceConfig {
    let size_bytes = 32 << 20;
    let layout = MemoryLayout::new(arch, Scale::RegionSize { size_bytes }).unwrap();
    DeviceConfig {
        reset: TAKES,
        ..DeviceConfig::new(DEVICE, layout)
    }
}

fn rig(arch: Arch) -> Rig {
    Rig::with(config(arch), PinLayout::Contiguous, Arc::new(NoFaults))
}

fn broken(kind: FaultKind, times: u64) -> Rig {
    let trigger = Trigger {
        count: Some(times),
        ..Trigger::ALWAYS
    };
    let rule = FaultRule {
        trigger,
        ..FaultRule::new(kind)
    };
    let plan = FaultPlan::new(1);
    plan.add(rule).unwrap();
    Rig::with(config(Arch::V2), PinLayout::Contiguous, Arc::new(plan))
}

fn write(rig: &Rig, register: FirmwareReg, value: u32) {
    let at = register.at(rig.device.layout().profile());
    rig.device.reg_write(at, value);
}

fn read(rig: &Rig, register: FirmwareReg) -> u32 {
    rig.device
        .reg_read(register.at(rig.device.layout().profile()))
}

fn trigger(rig: &Rig, of: ResetType, cores: u32) {
    write(rig, FirmwareReg::ResetCores, cores);
    write(rig, FirmwareReg::ResetType, of.to_raw());
    write(rig, FirmwareReg::ResetTrigger, 1);
}

/// The queue of a core's copies, brought up.
fn queue_of(rig: &Rig, core: u32) -> Queue<'_> {
    let profile = rig.device.layout().profile();
    let QueueId { engine, number } = profile.h2t_queue(CoreId::new(core)).unwrap();
    Queue::new(rig, engine.get(), number)
}

fn is_enabled(queue: &Queue<'_>) -> bool {
    queue.read(Direction::Tx, QueueReg::Cfg) != QUEUE_CFG_RESET
}

#[test]
fn misc_ram_is_storage_and_the_status_is_read_only() {
    let rig = rig(Arch::V2);
    assert_eq!(read(&rig, FirmwareReg::RequestLow), 0);
    write(&rig, FirmwareReg::RequestLow, 0x1234);
    assert_eq!(read(&rig, FirmwareReg::RequestLow), 0x1234);
    write(&rig, FirmwareReg::Status, u32::MAX);
    assert_eq!(read(&rig, FirmwareReg::Status), 0);
    let at = FirmwareReg::Status.at(rig.device.layout().profile());
    let value = Some(u32::MAX);
    assert_eq!(rig.heard.take(), [Event::StrayRegister { at, value }]);
}

#[test]
fn a_reset_takes_its_time_and_says_so() {
    let rig = rig(Arch::V3);
    trigger(&rig, ResetType::Cores, 0b110);
    assert_eq!(read(&rig, FirmwareReg::Status), RESET_RUNS_BIT);
    rig.pass(Micros(TAKES.0 - 1));
    assert_eq!(read(&rig, FirmwareReg::Status), RESET_RUNS_BIT);
    rig.pass(Micros(1));
    assert_eq!(read(&rig, FirmwareReg::Status), 0);
    let cores = 0b110;
    assert_eq!(
        rig.heard.take(),
        [Event::ResetBegan { cores }, Event::ResetEnded { cores }]
    );
}

#[test]
fn a_core_loses_its_engines_and_its_own_queue_of_the_shared_one_and_no_other_core_does() {
    let rig = rig(Arch::V3);
    let (own, pairs_other, far) = (queue_of(&rig, 1), queue_of(&rig, 0), queue_of(&rig, 2));
    let (first, last) = (Queue::new(&rig, 16, 3), Queue::new(&rig, 31, 15));
    let (before, behind) = (Queue::new(&rig, 15, 0), Queue::new(&rig, 32, 0));
    assert_eq!(own.id.engine, pairs_other.id.engine);
    trigger(&rig, ResetType::Cores, 0b10);
    for queue in [&own, &first, &last] {
        assert!(!is_enabled(queue), "{}", queue.id);
        assert_eq!(queue.read(Direction::Rx, QueueReg::DrbpLow), 0);
        assert_eq!(queue.read(Direction::Rx, QueueReg::Drl), 0);
    }
    for mut queue in [pairs_other, far, before, behind] {
        assert!(is_enabled(&queue), "{}", queue.id);
        let source = rig.bus(rig.alloc(4096));
        queue.copy(source, HBM, 4096);
    }
}

#[test]
fn the_whole_device_loses_everything() {
    let rig = rig(Arch::V2);
    let queues = [
        queue_of(&rig, 0),
        queue_of(&rig, 1),
        Queue::new(&rig, 31, 15),
    ];
    trigger(&rig, ResetType::Device, 0);
    assert!(queues.iter().all(|queue| !is_enabled(queue)));
    assert_eq!(rig.sched.now(), Tick(0));
}

#[test]
fn what_was_under_way_never_comes_and_the_queue_counts_on() {
    let rig = rig(Arch::V2);
    let mut queue = queue_of(&rig, 0);
    let source = rig.bus(rig.alloc(4096));
    queue.copy(source, HBM, 4096);
    // Credit that waits for its other side.
    queue.stage(source, HBM, 4096);
    queue.stage_marker();
    queue.ring(Direction::Rx, 2);
    trigger(&rig, ResetType::Cores, 1);
    assert_eq!(queue.pointer(Direction::Rx, QueueReg::Drtp), (0, 1));
    let waited = queue.wait().unwrap_err();
    assert_eq!(waited.reason, NotCompleted::Idle);
    queue.reset();
    rig.heard.take();
    queue.copy(source, HBM, 4096);
    let rung = Event::Doorbell {
        direction: Direction::Tx,
        descs: 2,
        total: 4,
    };
    assert!(rig.heard.take().contains(&rung));
}

#[test]
fn a_queue_that_a_hardware_error_has_stopped_goes_on_after_a_reset() {
    for kind in [FaultKind::DmaAbort, FaultKind::UncorrectableHbm] {
        let rig = broken(kind, 1);
        let mut queue = queue_of(&rig, 1);
        let target = rig.bus(rig.alloc(4096));
        queue.stage(HBM, target, 4096);
        queue.stage_marker();
        queue.ring_both(2);
        assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Stopped);
        let stopped = |event: &Event| {
            matches!(
                event,
                Event::Stopped {
                    fault: EngineFault::Aborted { .. } | EngineFault::Uncorrectable { .. }
                }
            )
        };
        assert!(rig.heard.take().iter().any(stopped));
        // The reset of its neighbour does not help.
        trigger(&rig, ResetType::Cores, 0b01);
        assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Stopped);
        trigger(&rig, ResetType::Cores, 0b10);
        queue.reset();
        queue.copy(HBM, target, 4096);
    }
}

#[test]
fn a_batch_that_is_announced_during_a_reset_hangs_on_order_whichever_cores_it_is() {
    let rig = broken(FaultKind::ResetHang, 10);
    let mut queue = queue_of(&rig, 1);
    let source = rig.bus(rig.alloc(4096));
    queue.copy(source, HBM, 4096);
    trigger(&rig, ResetType::Cores, 0b01);
    queue.stage(source, HBM, 4096);
    queue.stage_marker();
    queue.ring_both(2);
    assert_eq!(queue.wait().unwrap_err().reason, NotCompleted::Stopped);
    rig.pass(TAKES);
    queue.reset();
    queue.copy(source, HBM, 4096);
}

#[test]
fn a_second_reset_begins_at_once_and_both_end_together() {
    let rig = rig(Arch::V2);
    trigger(&rig, ResetType::Cores, 0b01);
    rig.pass(Micros(400));
    let queue = queue_of(&rig, 1);
    trigger(&rig, ResetType::Cores, 0b10);
    assert!(!is_enabled(&queue));
    rig.pass(Micros(499));
    assert_eq!(read(&rig, FirmwareReg::Status), RESET_RUNS_BIT);
    rig.pass(Micros(1));
    assert_eq!(read(&rig, FirmwareReg::Status), 0);
    let ended = |event: &Event| matches!(event, Event::ResetEnded { .. });
    let events = rig.heard.take();
    let ends: Vec<_> = events.into_iter().filter(ended).collect();
    assert_eq!(ends, [Event::ResetEnded { cores: 0b11 }]);
}

#[test]
fn an_unknown_type_affects_nobody() {
    let rig = rig(Arch::V2);
    let queue = queue_of(&rig, 0);
    write(&rig, FirmwareReg::ResetCores, u32::MAX);
    write(&rig, FirmwareReg::ResetType, 77);
    write(&rig, FirmwareReg::ResetTrigger, 1);
    assert_eq!(read(&rig, FirmwareReg::Status), RESET_RUNS_BIT);
    assert!(is_enabled(&queue));
    rig.pass(TAKES);
    assert_eq!(read(&rig, FirmwareReg::Status), 0);
}

/// The wait ends at the time at which the reset does, and the firmware has not been stepped yet.
#[test]
fn a_trigger_at_the_end_of_a_reset_begins_another_one() {
    let rig = rig(Arch::V3);
    let mut queue = queue_of(&rig, 0);
    queue.copy(rig.bus(rig.alloc(4096)), HBM, 4096);
    let mut looks = 0;
    let mut look = || {
        looks += 1;
        if looks == 2 {
            trigger(&rig, ResetType::Cores, 0b01);
        }
        Poll::Pending
    };
    let sched = &rig.sched;
    assert!(!sched.block(sched.wait_on(), &mut look, Some(TAKES)));
    assert_eq!(sched.now(), Tick(0).after(TAKES));
    assert_eq!(read(&rig, FirmwareReg::Status), RESET_RUNS_BIT);
    trigger(&rig, ResetType::Cores, 0b01);
    rig.pass(Micros(TAKES.0 - 1));
    assert_eq!(read(&rig, FirmwareReg::Status), RESET_RUNS_BIT);
    rig.pass(Micros(1));
    assert_eq!(read(&rig, FirmwareReg::Status), 0);
}
