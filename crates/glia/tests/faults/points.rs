//! The points at which driver and host memory ask the plan: a program sees the error of the real
//! cause, nothing leaks, and the next attempt works.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::errno::Errno;
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, InternalAlloc, Matching, Trigger};
use glia_abi::handle::{Channel, CoreId, DeviceId, McHandle, Pid};
use glia_abi::ioctl;
use glia_abi::mem::Location;
use glia_abi::transport::{OpenMode, Transport};
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device, NdlError, Transfer, WaitHandle};

const DEVICE: DeviceId = DeviceId::new(0);
const PID: Pid = Pid::new(7);

fn machine(devices: u32) -> (Machine, Arc<FaultPlan>) {
    let plan = Arc::new(FaultPlan::new(1));
    let machine = Machine::new(MachineConfig {
        devices,
        faults: Arc::clone(&plan) as _,
        ..MachineConfig::new(Model::Trn1)
    });
    (machine.unwrap(), plan)
}

fn program(machine: &Machine) -> Arc<Device> {
    Device::open(machine.process(PID), DEVICE).unwrap()
}

fn spec(location: Location, core: u32, size_bytes: u64) -> ChunkSpec {
    ChunkSpec {
        size_bytes,
        align_bytes: 0,
        location,
        channel: Channel::new(core),
        core: CoreId::new(core),
        category: match location {
            Location::Device => Category::TENSORS_DEVICE,
            Location::Host => Category::MISC_HOST,
        },
    }
}

fn hbm(core: u32) -> ChunkSpec {
    spec(Location::Device, core, 4096)
}

/// Bytes and chunks of the device's books.
fn books(machine: &Machine) -> (u64, u64, u64) {
    let stats = machine.driver().memory(DEVICE).unwrap().stats();
    (stats.host_bytes, stats.device_bytes, stats.chunks)
}

fn errno<T: std::fmt::Debug>(answer: Result<T, NdlError>) -> Errno {
    answer.unwrap_err().errno().unwrap()
}

/// Whether this kind makes an allocation of HBM fail so, without a trace, and only while it is
/// ordered.
fn refuses_an_allocation(kind: FaultKind, with: Errno) {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let before = books(&machine);
    let id = plan.add(FaultRule::new(kind)).unwrap();
    assert_eq!(errno(device.allocate(&hbm(0))), with, "{kind:?}");
    let struck = plan.remove(id).unwrap();
    assert_eq!((struck.opportunities, struck.strikes), (1, 1), "{kind:?}");
    assert_eq!(books(&machine), before, "{kind:?}");
    let chunk = device.allocate(&hbm(0)).unwrap();
    device.free(chunk).unwrap();
    assert_eq!(books(&machine), before, "{kind:?}");
}

#[test]
fn kernel_memory_that_is_refused_is_enomem() {
    let kinds = [InternalAlloc::Request, InternalAlloc::ChunkRecord];
    for kind in kinds.map(FaultKind::FailedInternalAlloc) {
        refuses_an_allocation(kind, Errno::ENOMEM);
    }
}

#[test]
fn a_machine_that_gets_no_kernel_memory_does_not_come_up() {
    for kind in [InternalAlloc::HandleTable, InternalAlloc::Pool] {
        let plan = Arc::new(FaultPlan::new(0));
        let matching = Matching {
            device: Some(DeviceId::new(1)),
            ..Matching::default()
        };
        let kind = FaultKind::FailedInternalAlloc(kind);
        let rule = FaultRule {
            matching,
            ..FaultRule::new(kind)
        };
        let id = plan.add(rule).unwrap();
        let config = |devices| MachineConfig {
            devices,
            faults: Arc::clone(&plan) as _,
            ..MachineConfig::new(Model::Trn1)
        };
        assert!(Machine::new(config(1)).is_ok(), "{kind:?}");
        assert!(Machine::new(config(2)).is_err(), "{kind:?}");
        assert_eq!(plan.remove(id).unwrap().strikes, 1, "{kind:?}");
        assert!(Machine::new(config(2)).is_ok(), "{kind:?}");
    }
}

#[test]
fn a_handle_table_that_is_full_by_order_is_down_as_a_full_one_is() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let first = device.allocate(&hbm(0)).unwrap();
    let before = books(&machine);
    let id = plan
        .add(FaultRule::new(FaultKind::ExhaustedHandles))
        .unwrap();
    assert_eq!(errno(device.allocate(&hbm(0))), Errno::ENOENT);
    assert_eq!(errno(device.allocate(&hbm(0))), Errno::ENOENT);
    let struck = plan.remove(id).unwrap();
    assert_eq!(
        (struck.opportunities, struck.strikes),
        (1, 1),
        "down is down"
    );
    assert_eq!(books(&machine), before);
    assert_eq!(errno(device.allocate(&hbm(0))), Errno::ENOENT);
    assert_eq!(errno(device.info(first)), Errno::EINVAL);
    let memory = machine.driver().memory(DEVICE).unwrap();
    assert!(memory.handle_stats().is_down);
}

#[test]
fn an_attach_for_which_no_slot_is_left_is_ebusy_and_who_is_in_needs_none() {
    let (machine, plan) = machine(2);
    let process = machine.process(PID);
    let inside = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let id = plan
        .add(FaultRule::new(FaultKind::ExhaustedProcessSlots))
        .unwrap();
    let second = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let control = process.open(DEVICE, OpenMode::WriteOnly).unwrap();
    let stranger = machine.process(Pid::new(8));
    let refused = stranger.open(DEVICE, OpenMode::ReadWrite);
    assert_eq!(refused, Err(Errno::EBUSY));
    let struck = plan.remove(id).unwrap();
    assert_eq!((struck.opportunities, struck.strikes), (1, 1));
    assert_eq!(stranger.open(DEVICE, OpenMode::ReadWrite).unwrap().0, 0);
    for fd in [inside, second, control] {
        process.close(fd).unwrap();
    }
    let memory = machine.driver().memory(DEVICE).unwrap();
    assert_eq!(memory.open_count(PID), 0);
    assert_eq!(memory.open_count(Pid::new(8)), 1);
}

/// Two chunks of HBM of core 0, the first one written.
fn source_and_target(device: &Device) -> Transfer {
    let [source, target] = [(); 2].map(|()| device.allocate(&hbm(0)).unwrap());
    let transfer = Transfer {
        source,
        source_offset_bytes: 0,
        target,
        target_offset_bytes: 0,
        size_bytes: 4096,
    };
    device.buf_write(source, 0, &[7; 4096]).unwrap();
    transfer
}

fn content(device: &Device, chunk: McHandle) -> u8 {
    let mapping = device.map(chunk, 4096).unwrap();
    let mut byte = [0];
    mapping.read(4095, &mut byte).unwrap();
    byte[0]
}

#[test]
fn a_ring_without_room_is_ebusy_and_moves_nothing() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let transfer = source_and_target(&device);
    let rule = FaultRule {
        trigger: Trigger::nth(2),
        ..FaultRule::new(FaultKind::ExhaustedRing)
    };
    let id = plan.add(rule).unwrap();
    device.buf_write(transfer.source, 0, &[8; 4096]).unwrap();
    assert_eq!(errno(device.copy(&transfer)), Errno::EBUSY);
    assert_eq!(content(&device, transfer.target), 0);
    device.copy(&transfer).unwrap();
    assert_eq!(content(&device, transfer.target), 8);
    let struck = plan.remove(id).unwrap();
    assert_eq!((struck.opportunities, struck.strikes), (3, 1));
}

#[test]
fn a_copy_in_flight_survives_one_for_which_there_is_no_room() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let transfer = source_and_target(&device);
    let started = device.copy_async(&transfer, WaitHandle::None).unwrap();
    let id = plan.add(FaultRule::new(FaultKind::ExhaustedRing)).unwrap();
    assert_eq!(errno(device.copy_async(&transfer, started)), Errno::EBUSY);
    plan.remove(id);
    device
        .copy_wait(transfer.source, transfer.target, started)
        .unwrap();
    assert_eq!(content(&device, transfer.target), 7);
}

#[test]
fn host_memory_that_the_machine_refuses_comes_from_the_reserve() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let before = (books(&machine), machine.host().allocated_bytes());
    let id = plan
        .add(FaultRule::new(FaultKind::FailedHostAlloc))
        .unwrap();
    let served = device.allocate(&spec(Location::Host, 0, 4096)).unwrap();
    let huge = spec(Location::Host, 0, 256 << 20);
    assert_eq!(errno(device.allocate(&huge)), Errno::ENOMEM);
    let struck = plan.remove(id).unwrap();
    assert!(struck.strikes >= 2, "{struck:?}");
    device.free(served).unwrap();
    assert_eq!((books(&machine), machine.host().allocated_bytes()), before);
    let chunk = device.allocate(&huge).unwrap();
    device.free(chunk).unwrap();
    assert_eq!((books(&machine), machine.host().allocated_bytes()), before);
}

#[test]
fn a_rule_strikes_the_process_the_command_and_the_core_that_it_names() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let stranger = Device::open(machine.process(Pid::new(8)), DEVICE).unwrap();
    let no_record = FaultKind::FailedInternalAlloc(InternalAlloc::ChunkRecord);
    let fails = |matching, device: &Device, core| {
        let rule = FaultRule {
            matching,
            ..FaultRule::new(no_record)
        };
        let id = plan.add(rule).unwrap();
        let answer = device.allocate(&hbm(core));
        plan.remove(id);
        let fails = answer.is_err();
        answer.map(|chunk| device.free(chunk).unwrap()).ok();
        fails
    };
    let any = Matching::default();
    let process = Some(PID);
    assert!(fails(Matching { process, ..any }, &device, 0));
    assert!(!fails(Matching { process, ..any }, &stranger, 0));
    let command = Some(ioctl::MEM_ALLOC_V2MT64);
    assert!(fails(Matching { command, ..any }, &device, 0));
    let command = Some(ioctl::MEM_COPY64);
    assert!(!fails(Matching { command, ..any }, &device, 0));
    let core = Some(CoreId::new(1));
    assert!(fails(Matching { core, ..any }, &device, 1));
    assert!(!fails(Matching { core, ..any }, &device, 0));
    let device_1 = Some(DeviceId::new(1));
    let elsewhere = Matching {
        device: device_1,
        ..any
    };
    assert!(!fails(elsewhere, &device, 0));
}

#[test]
fn the_ring_is_asked_for_under_the_command_and_the_core_of_the_copy() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let transfer = source_and_target(&device);
    let refused = |core, command| {
        let matching = Matching {
            device: Some(DEVICE),
            process: Some(PID),
            core: Some(CoreId::new(core)),
            command: Some(command),
            ..Matching::default()
        };
        let rule = FaultRule {
            matching,
            ..FaultRule::new(FaultKind::ExhaustedRing)
        };
        let id = plan.add(rule).unwrap();
        let answer = device.copy(&transfer);
        plan.remove(id);
        answer.is_err()
    };
    assert!(refused(0, ioctl::MEM_COPY64));
    assert!(!refused(1, ioctl::MEM_COPY64));
    assert!(!refused(0, ioctl::MEM_BUF_COPY64));
}

#[test]
fn an_engine_strikes_the_copy_of_the_process_and_the_command_that_are_named() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let transfer = source_and_target(&device);
    let answer = |process, core, command| {
        let matching = Matching {
            process: Some(Pid::new(process)),
            core: Some(CoreId::new(core)),
            command: Some(command),
            ..Matching::default()
        };
        let rule = FaultRule {
            matching,
            ..FaultRule::new(FaultKind::DmaAbort)
        };
        let id = plan.add(rule).unwrap();
        let answer = device.copy(&transfer).map_err(|error| error.errno());
        plan.remove(id);
        answer
    };
    let timed_out = Err(Some(Errno::ETIMEDOUT));
    assert_eq!(answer(8, 0, ioctl::MEM_COPY64), Ok(()));
    assert_eq!(answer(7, 1, ioctl::MEM_COPY64), Ok(()));
    assert_eq!(answer(7, 0, ioctl::MEM_BUF_COPY64), Ok(()));
    assert_eq!(answer(7, 0, ioctl::MEM_COPY64), timed_out);
    assert_eq!(answer(7, 0, ioctl::MEM_BUF_COPY64), Ok(()), "up again");
}

#[test]
fn a_rule_that_comes_with_a_copy_in_flight_strikes_the_next_one() {
    let (machine, plan) = machine(1);
    let device = program(&machine);
    let transfer = source_and_target(&device);
    let started = device.copy_async(&transfer, WaitHandle::None).unwrap();
    let id = plan.add(FaultRule::new(FaultKind::LostMarker)).unwrap();
    let answer = device.copy_async(&transfer, started);
    assert!(answer.is_ok(), "waits for the one before: {answer:?}");
    let waited = device.copy_wait(transfer.source, transfer.target, answer.unwrap());
    assert_eq!(errno(waited), Errno::ETIMEDOUT);
    assert_eq!(
        content(&device, transfer.target),
        7,
        "all was moved but the marker"
    );
    plan.remove(id);
    device.copy(&transfer).unwrap();
}
