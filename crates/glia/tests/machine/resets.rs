//! Resets of cores and of devices, through the whole stack.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use glia::machine::{Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::addr::{BusAddr, Span};
use glia_abi::arch::Scale;
use glia_abi::errno::Errno;
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, Faults, NoFaults, Trigger};
use glia_abi::handle::{Channel, CoreId, DeviceId, EngineId, Fd, McHandle, Pid, QueueId};
use glia_abi::ioctl::{self, NcReset, NcResetReady, reset};
use glia_abi::mem::Location;
use glia_abi::params::ModuleParams;
use glia_abi::port::Port;
use glia_abi::sched::{Micros, Poll, Tick};
use glia_abi::transport::{OpenMode, Transport};
use glia_abi::usage::Category;
use glia_device::sched::Client;
use glia_driver::dma::user::{QueueRequest, RingRequest};
use glia_runtime::ndl::{ChunkSpec, Device, NdlError, Transfer, WaitHandle};
use zerocopy::IntoBytes;

const DEVICE: DeviceId = DeviceId::new(0);
const SIZE: usize = 200_000;
const MODES: [SchedMode; 3] = [
    SchedMode::Inline,
    SchedMode::THREADED,
    SchedMode::Virtual { seed: 7 },
];

/// Keeps all events.
#[derive(Default)]
struct Recorder(Mutex<Vec<Event>>);

impl Sink for Recorder {
    fn event(&self, _at: Tick, _ids: &Ids, event: &Event) {
        self.0.lock().unwrap().push(*event);
    }
}

fn config(model: Model, mode: SchedMode) -> MachineConfig {
    MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        ..MachineConfig::new(model).with_mode(mode)
    }
}

fn machine(model: Model, mode: SchedMode, faults: Arc<dyn Faults>) -> Machine {
    Machine::new(MachineConfig {
        faults,
        ..config(model, mode)
    })
    .unwrap()
}

/// A process that has the device open.
struct Program {
    process: Arc<Process>,
    fd: Fd,
    device: Arc<Device>,
}

impl Program {
    fn new(machine: &Machine, pid: u32) -> Self {
        let process = machine.process(Pid::new(pid));
        let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
        let device = Device::open(Arc::clone(&process) as Arc<_>, DEVICE).unwrap();
        Self {
            process,
            fd,
            device,
        }
    }

    /// A chunk in HBM that is charged to a core.
    fn chunk(&self, core: u32) -> McHandle {
        let core = CoreId::new(core);
        let spec = ChunkSpec {
            size_bytes: SIZE as u64,
            align_bytes: 0,
            location: Location::Device,
            channel: Channel::new(0),
            core,
            category: Category::TENSORS_DEVICE,
        };
        self.device.allocate(&spec).unwrap()
    }

    fn reset(&self, nc_map: u32) -> u32 {
        let mut argument = NcReset {
            nc_map,
            request_id: 0,
        };
        let bytes = argument.as_mut_bytes();
        let reset = self.process.ioctl(self.fd, ioctl::NC_RESET, bytes, &mut []);
        reset.unwrap();
        argument.request_id
    }

    fn ready(&self, request_id: u32) -> i32 {
        let mut argument = NcResetReady {
            request_id,
            result: 77,
        };
        let bytes = argument.as_mut_bytes();
        let word = ioctl::NC_RESET_READY;
        self.process.ioctl(self.fd, word, bytes, &mut []).unwrap();
        argument.result
    }

    /// What a command that answers one byte answers.
    fn byte(&self, word: u32) -> u8 {
        let mut byte = [77];
        let answer = self.process.ioctl(self.fd, word, &mut byte, &mut []);
        assert_eq!(answer, Ok(0));
        byte[0]
    }

    /// Writes into a chunk by DMA and reads it back.
    fn finds_its_bytes(&self, chunk: McHandle, salt: u8) {
        self.device.buf_write(chunk, 0, &bytes(salt)).unwrap();
        assert!(self.read(chunk) == bytes(salt), "salt {salt}");
    }

    fn read(&self, chunk: McHandle) -> Vec<u8> {
        let mut read = vec![0; SIZE];
        self.device.buf_read(chunk, 0, &mut read).unwrap();
        read
    }
}

fn bytes(salt: u8) -> Vec<u8> {
    (0..=250_u8)
        .cycle()
        .map(|byte| byte ^ salt)
        .take(SIZE)
        .collect()
}

fn whole(source: McHandle, target: McHandle) -> Transfer {
    Transfer {
        source,
        source_offset_bytes: 0,
        target,
        target_offset_bytes: 0,
        size_bytes: SIZE as u64,
    }
}

fn errno<T>(answer: Result<T, NdlError>) -> Option<Errno> {
    match answer {
        Err(NdlError::Call { errno, .. }) => Some(errno),
        _ => None,
    }
}

/// A plan with one rule that strikes so often.
fn plan(kind: FaultKind, count: u64) -> Arc<FaultPlan> {
    let plan = FaultPlan::new(1);
    let trigger = Trigger {
        count: Some(count),
        ..Trigger::ALWAYS
    };
    let rule = FaultRule {
        trigger,
        ..FaultRule::new(kind)
    };
    plan.add(rule).unwrap();
    Arc::new(plan)
}

#[test]
fn a_reset_in_the_middle_of_a_chain_loses_it_and_copies_go_on_right_afterwards() {
    for model in Model::ALL {
        for mode in MODES {
            let machine = machine(model, mode, Arc::new(NoFaults));
            let program = Program::new(&machine, 7);
            let (source, target) = (program.chunk(0), program.chunk(0));
            program.device.buf_write(source, 0, &bytes(1)).unwrap();
            let copy = whole(source, target);
            let first = program.device.copy_async(&copy, WaitHandle::None).unwrap();
            let second = program.device.copy_async(&copy, first).unwrap();
            let request = program.reset(0b01);
            assert_eq!(request, 7);
            // During the reset: what was lost is told, nothing is taken.
            let waited = program.device.copy_wait(source, target, second);
            assert_eq!(errno(waited), Some(Errno::ETIMEDOUT), "{model:?} {mode:?}");
            assert_eq!(errno(program.device.copy(&copy)), Some(Errno::EPERM));
            assert_eq!(program.ready(request), reset::DONE);
            program.finds_its_bytes(target, 2);
            let chain = program.device.copy_async(&copy, WaitHandle::None).unwrap();
            program.device.copy_wait(source, target, chain).unwrap();
            assert!(program.read(target) == bytes(1));
        }
    }
}

#[test]
fn a_chain_that_nobody_has_asked_about_is_told_after_the_reset() {
    let machine = machine(Model::Trn1, SchedMode::Inline, Arc::new(NoFaults));
    let program = Program::new(&machine, 7);
    let chunk = program.chunk(1);
    let copy = whole(chunk, chunk);
    let lost = program.device.copy_async(&copy, WaitHandle::None).unwrap();
    let request = program.reset(0b10);
    assert_eq!(program.ready(request), reset::DONE);
    let waited = program.device.copy_wait(chunk, chunk, lost);
    assert_eq!(errno(waited), Some(Errno::ETIMEDOUT));
    let waited = program.device.copy_wait(chunk, chunk, lost);
    assert_eq!(errno(waited), Some(Errno::EINVAL));
    program.finds_its_bytes(chunk, 3);
}

#[test]
fn resets_back_to_back_of_one_core_leave_the_copies_of_its_neighbour_alone() {
    for model in Model::ALL {
        for mode in MODES {
            let machine = machine(model, mode, Arc::new(NoFaults));
            let (one, other) = (Program::new(&machine, 1), Program::new(&machine, 2));
            let chunks = [one.chunk(0), other.chunk(1)];
            let clients: [Client<'_>; 2] = [
                Box::new(|| {
                    for salt in 0..3 {
                        one.reset(0b01);
                        let request = one.reset(0b01);
                        assert_eq!(one.ready(request), reset::DONE);
                        one.finds_its_bytes(chunks[0], salt);
                    }
                }),
                Box::new(|| (0..40).for_each(|salt| other.finds_its_bytes(chunks[1], salt))),
            ];
            machine.run_clients(clients.into()).unwrap();
        }
    }
}

#[test]
fn a_hardware_error_is_over_with_the_reset() {
    for kind in [FaultKind::DmaAbort, FaultKind::UncorrectableHbm] {
        for model in Model::ALL {
            let machine = machine(model, SchedMode::Inline, plan(kind, 1));
            let program = Program::new(&machine, 7);
            let chunk = program.chunk(1);
            let copy = whole(chunk, chunk);
            let broken = program.device.copy_async(&copy, WaitHandle::None).unwrap();
            let request = program.reset(0b10);
            assert_eq!(program.ready(request), reset::DONE);
            let waited = program.device.copy_wait(chunk, chunk, broken);
            assert_eq!(errno(waited), Some(Errno::ETIMEDOUT));
            program.finds_its_bytes(chunk, 9);
        }
    }
}

/// The clock does not move but for waits: the retries of a copy must not be used up by then. In real
/// time the reset may be over before the copy begins.
#[test]
fn a_copy_that_hangs_in_its_neighbours_reset_is_tried_again_on_v2_and_fails_elsewhere() {
    for mode in [SchedMode::Inline, SchedMode::Virtual { seed: 7 }] {
        for model in Model::ALL {
            let machine = machine(model, mode, plan(FaultKind::ResetHang, 100));
            let program = Program::new(&machine, 7);
            let chunk = program.chunk(1);
            let request = program.reset(0b01);
            let written = program.device.buf_write(chunk, 0, &bytes(5));
            if model == Model::Trn1 {
                written.unwrap();
            } else {
                assert_eq!(errno(written), Some(Errno::ETIMEDOUT), "{mode:?}");
                assert_eq!(program.ready(request), reset::DONE);
                program.device.buf_write(chunk, 0, &bytes(5)).unwrap();
            }
            assert!(program.read(chunk) == bytes(5));
        }
    }
}

#[test]
fn the_device_is_ready_when_its_reset_has_ended_whoever_asks() {
    for mode in MODES {
        let machine = machine(Model::Trn2, mode, Arc::new(NoFaults));
        let (one, other) = (Program::new(&machine, 1), Program::new(&machine, 2));
        let chunks = [one.chunk(3), other.chunk(4)];
        let word = ioctl::DEVICE_RESET;
        assert_eq!(one.process.ioctl(one.fd, word, &mut [], &mut []), Ok(0));
        assert_eq!(one.byte(ioctl::DEVICE_RESET_STATUS), 1);
        assert_eq!(other.ready(1), reset::DONE);
        other.finds_its_bytes(chunks[1], 1);
        one.finds_its_bytes(chunks[0], 2);
        assert_eq!(other.byte(ioctl::DEVICE_READY), 1);
        assert_eq!(other.ready(12_345), reset::DONE, "there is none");
    }
}

#[test]
fn who_opens_a_device_in_reset_waits_and_finds_it_whole() {
    let machine = machine(Model::Trn3, SchedMode::Inline, Arc::new(NoFaults));
    let one = Program::new(&machine, 1);
    one.reset(reset::WHOLE_DEVICE);
    let other = Program::new(&machine, 2);
    other.finds_its_bytes(other.chunk(0), 1);
}

#[test]
fn a_process_that_goes_during_its_reset_leaves_nothing() {
    for mode in MODES {
        let machine = machine(Model::Trn1, mode, Arc::new(NoFaults));
        let books = || {
            let stats = machine.driver().memory(DEVICE).unwrap().stats();
            (stats.host_bytes, stats.device_bytes, stats.chunks)
        };
        let before = books();
        let program = Program::new(&machine, 7);
        let chunk = program.chunk(0);
        let copy = whole(chunk, chunk);
        program.device.copy_async(&copy, WaitHandle::None).unwrap();
        program.reset(0b01);
        drop(program);
        assert_eq!(books(), before);
        let other = Program::new(&machine, 8);
        other.finds_its_bytes(other.chunk(0), 1);
    }
}

#[test]
fn with_no_reset_nothing_is_reset_and_all_is_well() {
    let recorder = Arc::new(Recorder::default());
    let machine = Machine::new(MachineConfig {
        params: ModuleParams {
            no_reset: true,
            ..ModuleParams::default()
        },
        sink: Arc::clone(&recorder) as _,
        ..config(Model::Trn1, SchedMode::Inline)
    })
    .unwrap();
    let program = Program::new(&machine, 7);
    let chunk = program.chunk(0);
    let request = program.reset(reset::WHOLE_DEVICE);
    program.finds_its_bytes(chunk, 1);
    assert_eq!(program.ready(request), reset::DONE);
    assert_eq!(program.byte(ioctl::DEVICE_READY), 1);
    let began = |event: &Event| matches!(event, Event::ResetBegan { .. });
    assert!(!recorder.0.lock().unwrap().iter().any(began));
}

/// What others ask for while an answer is on its way is nobody's death.
#[test]
fn many_that_reset_at_once_are_all_told_that_it_went_well() {
    let machine = machine(Model::Trn1, SchedMode::Inline, Arc::new(NoFaults));
    let clients = (0..4).map(|number| {
        let machine = &machine;
        let client: Client<'_> = Box::new(move || {
            let program = Program::new(machine, 10 + number);
            for _ in 0..100 {
                program.reset(1);
                let mut ready = [0xff];
                let word = ioctl::DEVICE_READY;
                let answer = program.process.ioctl(program.fd, word, &mut ready, &mut []);
                assert_eq!((answer, ready), (Ok(0), [1]));
            }
        });
        client
    });
    machine.run_clients(clients.collect()).unwrap();
}

/// There is always one under way and one in line, and none of them was asked for before the open but
/// the first two.
#[test]
fn who_opens_a_device_does_not_wait_for_resets_that_others_ask_for_later() {
    const ROUNDS: u32 = 50;
    for seed in 0..5 {
        let mode = SchedMode::Virtual { seed };
        let machine = machine(Model::Trn2, mode, Arc::new(NoFaults));
        let one = Program::new(&machine, 1);
        let (rounds, sched) = (AtomicU32::new(0), machine.sched());
        let opened_in = Mutex::new(None);
        let clients: [Client<'_>; 2] = [
            Box::new(|| {
                for round in 0..ROUNDS {
                    rounds.store(round, Ordering::Relaxed);
                    let word = ioctl::DEVICE_RESET;
                    assert_eq!(one.process.ioctl(one.fd, word, &mut [], &mut []), Ok(0));
                    // A reset takes twice as long.
                    sched.block(sched.wait_on(), &mut || Poll::Pending, Some(Micros(50_000)));
                }
            }),
            Box::new(|| {
                let mut has_begun = || match rounds.load(Ordering::Relaxed) {
                    0 | 1 => Poll::Pending,
                    _ => Poll::Done,
                };
                assert!(sched.block(sched.wait_on(), &mut has_begun, Some(Micros(1 << 40))));
                let other = machine.process(Pid::new(2));
                other.open(DEVICE, OpenMode::ReadWrite).unwrap();
                *opened_in.lock().unwrap() = Some(rounds.load(Ordering::Relaxed));
            }),
        ];
        machine.run_clients(clients.into()).unwrap();
        let opened_in = opened_in.into_inner().unwrap().unwrap();
        assert!(
            opened_in < 10,
            "seed {seed}, in round {opened_in} of {ROUNDS}"
        );
    }
}

/// The engine that two cores share comes back with the device, whichever of them is reset once more.
#[test]
fn a_reset_of_a_core_behind_one_of_the_device_leaves_the_shared_engine_programmed() {
    const BEATS: u64 = 0x310;
    let whole = reset::WHOLE_DEVICE;
    for model in [Model::Trn2, Model::Trn3] {
        for maps in [&[whole, 1][..], &[whole, 1, 2], &[whole, 2]] {
            let machine = machine(model, SchedMode::Inline, Arc::new(NoFaults));
            let program = Program::new(&machine, 7);
            let chunk = program.chunk(1);
            let engine = EngineId::new(machine.arch().profile().h2t_engine_first);
            let block = machine.arch().profile().engine_block(engine).unwrap();
            let beats = block.checked_add(BEATS).unwrap();
            let before = machine.devices()[0].reg_read(beats);
            assert_eq!(before, 0x0100_08f8);
            for &map in maps {
                program.reset(map);
            }
            assert_eq!(program.ready(7), reset::DONE);
            assert_eq!(machine.devices()[0].reg_read(beats), before, "{maps:x?}");
            program.finds_its_bytes(chunk, 1);
        }
    }
}

/// The look of the reset's worker is due, and has not come: the wait's end came before it. The worker
/// programs engines, each under its lock, as this setting up of a queue does.
#[test]
fn a_queue_can_be_set_up_while_the_end_of_a_reset_is_due() {
    const RING_BYTES: u64 = 4096;
    const LOOK: Micros = Micros(100_000);
    let machine = machine(Model::Trn2, SchedMode::Inline, Arc::new(NoFaults));
    let program = Program::new(&machine, 7);
    let at = program.device.physical_address(program.chunk(0)).unwrap();
    let ring = |number: u64| RingRequest {
        chunk: Span::new(BusAddr::new(at.get() + number * RING_BYTES), RING_BYTES),
        descs: 64,
    };
    let request = QueueRequest {
        tx: ring(0),
        rx: ring(1),
        completions: None,
        allocatable: false,
    };
    // Of core 1, which is reset.
    let queue = QueueId::new(EngineId::new(16), 3);
    let dma = machine.driver().dma(DEVICE).unwrap();
    let pid = program.process.pid();
    dma.queue_init(pid, queue, &request).unwrap();
    dma.queue_start(queue, 1, 1).unwrap();

    let sched = machine.sched();
    let mut looks = 0;
    let mut reset_then_look = || {
        looks += 1;
        if looks == 2 {
            program.reset(0b10);
        }
        Poll::Pending
    };
    assert!(!sched.block(sched.wait_on(), &mut reset_then_look, Some(LOOK)));
    dma.queue_init(pid, queue, &request).unwrap();
    dma.queue_start(queue, 1, 1).unwrap();
    assert_eq!(program.ready(pid.get()), reset::DONE);
}
