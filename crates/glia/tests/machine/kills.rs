//! Processes that are killed in the middle of what they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use glia::machine::{Client, Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, Scale};
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId, Fd, McHandle, Pid};
use glia_abi::ioctl::{self, CinitSetState, Crwl, DmaCopyDescriptors64, DmaQueueCopyStart, NcMap};
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Poll};
use glia_abi::transport::{Lent, OpenMode, Transport, user_addr};
use glia_abi::udma::{Barrier, RingId};
use glia_abi::usage::Category;
use glia_runtime::ndl::{
    ChunkSpec, Device, NdlError, Transfer, WaitHandle, ZeroCopyBatch, ZeroCopyOp,
};
use zerocopy::IntoBytes as _;

use crate::books::{
    Books, ask_for_queue, enter_datastore, make_what_stays, send, send_with, set_up_queue,
};

const DEVICE: DeviceId = DeviceId::new(0);
const SIZE: usize = 200_000;
const PID: Pid = Pid::new(7);

fn machine(mode: SchedMode) -> Machine {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        ..MachineConfig::new(Model::Trn1).with_mode(mode)
    };
    Machine::new(config).unwrap()
}

fn books(machine: &Machine) -> Books {
    Books::of(machine, DEVICE)
}

/// A process that has the device open twice, and a chunk.
fn program(machine: &Machine) -> (Arc<Process>, Fd, Arc<Device>, McHandle) {
    let process = machine.process(PID);
    let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let device = Device::open(Arc::clone(&process) as Arc<_>, DEVICE).unwrap();
    let spec = ChunkSpec {
        size_bytes: SIZE as u64,
        align_bytes: 0,
        location: Location::Device,
        channel: Channel::new(0),
        core: CoreId::new(0),
        category: Category::TENSORS_DEVICE,
    };
    let chunk = device.allocate(&spec).unwrap();
    (process, fd, device, chunk)
}

fn whole(chunk: McHandle) -> Transfer {
    Transfer {
        source: chunk,
        source_offset_bytes: 0,
        target: chunk,
        target_offset_bytes: 0,
        size_bytes: SIZE as u64,
    }
}

fn reset(process: &Process, fd: Fd) -> Result<i32, Errno> {
    let mut argument = [1_u32.to_ne_bytes(), [0; 4]].concat();
    process.ioctl(fd, ioctl::NC_RESET, &mut argument, &mut [])
}

fn await_reset(process: &Process, fd: Fd) -> Result<i32, Errno> {
    let mut argument = [PID.get().to_ne_bytes(), [0; 4]].concat();
    process.ioctl(fd, ioctl::NC_RESET_READY, &mut argument, &mut [])
}

/// Whoever is dead is told so, whatever it asks for.
fn is_dead(process: &Process, fd: Fd) {
    let dead = Err(Errno::EBADF);
    assert_eq!(reset(process, fd), dead);
    assert_eq!(process.open(DEVICE, OpenMode::ReadWrite), Err(Errno::EBADF));
    assert_eq!(process.dup(fd), Err(Errno::EBADF));
    assert_eq!(process.close(fd), Err(Errno::EBADF));
    assert_eq!(process.mmap(fd, 0, 4096).err(), Some(Errno::EBADF));
    assert_eq!(process.buffer(4096).err(), Some(Errno::ENOMEM));
}

#[test]
fn a_killed_process_has_gone_when_the_kill_returns_and_is_not_killed_twice() {
    let modes = [
        SchedMode::Inline,
        SchedMode::THREADED,
        SchedMode::Virtual { seed: 3 },
    ];
    for mode in modes {
        let machine = machine(mode);
        let before = books(&machine);
        let (process, fd, device, chunk) = program(&machine);
        let copy = whole(chunk);
        device.copy_async(&copy, WaitHandle::None).unwrap();
        process.kill();
        assert_eq!(books(&machine), before, "{mode:?}");
        is_dead(&process, fd);
        // Another one of its number is another process.
        let (reborn, ..) = program(&machine);
        process.kill();
        drop((process, device));
        assert_ne!(books(&machine), before);
        reborn.kill();
        assert_eq!(books(&machine), before);
    }
}

#[test]
fn a_wait_for_a_reset_ends_with_eintr_and_its_process_behind_it() {
    for seed in 0..20 {
        let machine = machine(SchedMode::Virtual { seed });
        let before = books(&machine);
        let (process, fd, device, _) = program(&machine);
        let (is_inside, sched) = (AtomicBool::new(false), machine.sched());
        let on = sched.wait_on();
        let clients: [Client<'_>; 2] = [
            Box::new(|| {
                reset(&process, fd).unwrap();
                is_inside.store(true, Ordering::Relaxed);
                sched.wake(on);
                assert_eq!(await_reset(&process, fd), Err(Errno::EINTR));
                assert_eq!(await_reset(&process, fd), Err(Errno::EBADF));
            }),
            Box::new(|| {
                let mut look = || match is_inside.load(Ordering::Relaxed) {
                    true => Poll::Done,
                    false => Poll::Pending,
                };
                assert!(sched.block(on, &mut look, None));
                process.kill();
                assert_eq!(books(&machine), before);
            }),
        ];
        machine.run_clients(clients.into()).unwrap();
        is_dead(&process, fd);
        drop(device);
    }
}

/// What a process waits for that another one has: a model lock as a reader and as a writer, and its
/// turn to initialise a core.
fn waits_for_another(process: &Process, fd: Fd, number: usize) -> Result<(), Errno> {
    let lock = Crwl {
        nc_id: 1,
        uuid: [9; 32],
    };
    match number {
        0 => send(process, fd, ioctl::CRWL_READER_ENTER, lock).map(drop),
        1 => send(process, fd, ioctl::CRWL_WRITER_ENTER, lock).map(drop),
        _ => start_core(process, fd).map(drop),
    }
}

fn start_core(process: &Process, fd: Fd) -> Result<CinitSetState, Errno> {
    let starting = CinitSetState {
        nc_id: 1,
        state: 1,
        new_state: 0,
    };
    send(process, fd, ioctl::CINIT_SET_STATE, starting)
}

/// These waits end by themselves after half a second and more; a kill does not wait for that.
#[test]
fn a_wait_for_what_another_process_has_ends_with_the_process() {
    let modes = (0..5).map(|seed| SchedMode::Virtual { seed });
    for mode in modes.chain([SchedMode::THREADED]) {
        for number in 0..3 {
            let machine = machine(mode);
            let (other, other_fd, ..) = program(&machine);
            let lock = Crwl {
                nc_id: 1,
                uuid: [7; 32],
            };
            send(&other, other_fd, ioctl::CRWL_WRITER_ENTER, lock).unwrap();
            start_core(&other, other_fd).unwrap();
            let before = books(&machine);
            let process = machine.process(Pid::new(8));
            let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
            let sched = machine.sched();
            let took = AtomicU64::new(u64::MAX);
            let clients: [Client<'_>; 2] = [
                Box::new(|| {
                    let ended = waits_for_another(&process, fd, number);
                    // On threads it may come when the process has gone.
                    let is_late = mode == SchedMode::THREADED && ended == Err(Errno::EBADF);
                    assert!(is_late || ended == Err(Errno::EINTR), "{mode:?}: {ended:?}");
                }),
                Box::new(|| {
                    let mut never = || Poll::Pending;
                    sched.block(sched.wait_on(), &mut never, Some(Micros(10_000)));
                    let begun = sched.now();
                    process.kill();
                    took.store(sched.now().micros() - begun.micros(), Ordering::Relaxed);
                    assert_eq!(books(&machine), before);
                }),
            ];
            machine.run_clients(clients.into()).unwrap();
            if let SchedMode::Virtual { .. } = mode {
                let took_us = took.load(Ordering::Relaxed);
                assert!(took_us < 1000, "{mode:?}: {number}: {took_us}");
            }
        }
    }
}

#[test]
fn calls_of_other_threads_come_to_their_end_before_their_process_does() {
    for mode in [SchedMode::THREADED, SchedMode::Inline] {
        let machine = machine(mode);
        let before = books(&machine);
        for _ in 0..20 {
            let (process, fd, device, chunk) = program(&machine);
            let (tell, told) = channel();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let (tell, device) = (tell.clone(), &device);
                    scope.spawn(move || {
                        let copy = whole(chunk);
                        let ends = (0..).find_map(|round| {
                            let copied = device.copy(&copy);
                            if round == 3 {
                                tell.send(()).unwrap();
                            }
                            copied.err()
                        });
                        let errno = match ends {
                            Some(NdlError::Call { errno, .. }) => errno,
                            other => unreachable!("{other:?}"),
                        };
                        assert_eq!(errno, Errno::EBADF);
                    });
                }
                told.recv().unwrap();
                process.kill();
                assert_eq!(books(&machine), before);
                is_dead(&process, fd);
            });
        }
    }
}

/// Two ends of one process: neither returns before it has gone.
#[test]
fn two_who_kill_a_process_both_see_it_gone() {
    for seed in 0..20 {
        let machine = machine(SchedMode::Virtual { seed });
        let before = books(&machine);
        let (process, fd, device, chunk) = program(&machine);
        let copy = whole(chunk);
        device.copy_async(&copy, WaitHandle::None).unwrap();
        let clients = [0, 1].map(|_| {
            let kill: Client<'_> = Box::new(|| {
                process.kill();
                assert_eq!(books(&machine), before);
                is_dead(&process, fd);
            });
            kill
        });
        machine.run_clients(clients.into()).unwrap();
    }
}

#[test]
fn a_number_that_no_process_has_gets_nowhere() {
    let machine = machine(SchedMode::Inline);
    for pid in [0, (1 << 22) + 1, u32::MAX] {
        let process = machine.process(Pid::new(pid));
        let opened = process.open(DEVICE, OpenMode::ReadWrite);
        assert_eq!(opened, Err(Errno::EINVAL), "{pid}");
        assert_eq!(reset(&process, Fd(0)), Err(Errno::EINVAL));
    }
    let last = machine.process(Pid::new(1 << 22));
    last.open(DEVICE, OpenMode::ReadWrite).unwrap();
}

/// Writes a transfer into the first slot of both rings of a queue, and rings for it.
fn push(process: &Process, fd: Fd, rings: [u64; 2], from: u64, to: u64) {
    let transfer = glia_abi::udma::Transfer {
        source: BusAddr::new(from),
        target: BusAddr::new(to),
        size_bytes: 4096,
        barrier: Barrier::None,
    };
    let (tx, rx) = transfer.descriptors(RingId::FIRST, RingId::FIRST).unwrap();
    let sides = rings.into_iter().zip([tx.to_words(), rx.to_words()]);
    for (queue_type, (mem_handle, words)) in (0..).zip(sides) {
        let argument = DmaCopyDescriptors64 {
            mem_handle,
            buffer: user_addr(words.as_bytes()).get(),
            num_descs: 1,
            queue_type,
            ..DmaCopyDescriptors64::default()
        };
        let lent = &mut [Lent::In(words.as_bytes())];
        send_with(process, fd, ioctl::DMA_COPY_DESCRIPTORS64, argument, lent).unwrap();
    }
    let argument = DmaQueueCopyStart {
        eng: 5,
        qid: 2,
        tx_desc_count: 1,
        rx_desc_count: 1,
    };
    send(process, fd, ioctl::DMA_QUEUE_COPY_START, argument).unwrap();
}

/// A load of every kind, one call a step, up to the step before which its process is to die; says
/// whether it came to its end.
fn load(machine: &Machine, process: &Arc<Process>, steps: usize) -> bool {
    let mut left = steps;
    let mut goes_on = || {
        let goes_on = left > 0;
        left = left.saturating_sub(1);
        goes_on
    };
    // What a process holds when it dies is dropped after its death.
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    macro_rules! step {
        ($call:expr) => {{
            if !goes_on() {
                process.kill();
                drop(held);
                return false;
            }
            $call
        }};
    }
    let fd = step!(process.open(DEVICE, OpenMode::ReadWrite).unwrap());
    let second = step!(process.dup(fd).unwrap());
    let device = step!(Device::open(Arc::clone(process) as Arc<_>, DEVICE).unwrap());
    held.push(Box::new(Arc::clone(&device)));
    let spec = |location, category| ChunkSpec {
        size_bytes: SIZE as u64,
        align_bytes: 0,
        location,
        channel: Channel::new(0),
        core: CoreId::new(0),
        category,
    };
    let free_access = step!(process.open(DEVICE, OpenMode::WriteOnly).unwrap());
    let mark = NcMap {
        nc_count: 1,
        start_nc: 0,
        end_nc: 1,
        ..NcMap::default()
    };
    step!(send(process, free_access, ioctl::CRWL_NC_RANGE_MARK, mark).unwrap());
    let lock = Crwl {
        nc_id: 1,
        uuid: [7; 32],
    };
    step!(send(process, fd, ioctl::CRWL_WRITER_ENTER, lock).unwrap());
    step!(send(process, fd, ioctl::CRWL_WRITER_DOWNGRADE, lock).unwrap());
    step!(start_core(process, fd).unwrap());
    step!(enter_datastore(process, fd).unwrap());
    step!(ask_for_queue(process, fd, 0).unwrap());
    let rings = step!(set_up_queue(process, fd, 5, 2).unwrap());
    let near = spec(Location::Device, Category::TENSORS_DEVICE);
    let host = spec(Location::Host, Category::TENSORS_HOST);
    let chunk = step!(device.allocate(&near).unwrap());
    let other = step!(device.allocate(&near).unwrap());
    let buffer = step!(device.allocate(&host).unwrap());
    let place = |chunk| device.physical_address(chunk).unwrap().get();
    step!(push(process, fd, rings, place(buffer), place(chunk)));
    let child = step!(process.fork(Pid::new(8)).unwrap());
    held.push(Box::new(child));
    let size_bytes = host.size_bytes.next_multiple_of(4096);
    let mapping = step!(device.map(buffer, size_bytes).unwrap());
    held.push(Box::new(mapping));
    step!(device.buf_write(chunk, 0, &[7; SIZE]).unwrap());
    let copy = Transfer {
        target: other,
        ..whole(chunk)
    };
    step!(device.copy(&copy).unwrap());
    let pending = step!(device.copy_async(&copy, WaitHandle::None).unwrap());
    let pending = step!(device.copy_async(&copy, pending).unwrap());
    if machine.arch() != Arch::V2 {
        let user = step!(process.buffer(SIZE as u64).unwrap());
        let ops = [ZeroCopyOp {
            chunk_offset_bytes: 0,
            buffer: &user,
            buffer_offset_bytes: 0,
            size_bytes: SIZE as u64,
        }];
        let batch = ZeroCopyBatch {
            handle: other,
            ops: &ops,
            context: 1,
        };
        step!(device.zero_copy_batches(&[batch], true, 5).unwrap());
    }
    step!(device.copy_wait(chunk, other, pending).unwrap());
    step!(reset(process, fd).unwrap());
    step!(await_reset(process, fd).unwrap());
    step!(device.free(buffer).unwrap());
    step!(process.close(second).unwrap());
    step!(process.close(fd).unwrap());
    process.kill();
    drop(held);
    true
}

#[test]
fn a_process_that_is_killed_before_any_of_its_steps_leaves_the_device_as_it_was() {
    for model in Model::ALL {
        let modes = [
            SchedMode::Inline,
            SchedMode::THREADED,
            SchedMode::Virtual { seed: 9 },
        ];
        for mode in modes {
            let config = MachineConfig {
                scale: Scale::RegionSize {
                    size_bytes: 64 << 20,
                },
                ..MachineConfig::new(model).with_mode(mode)
            };
            let machine = Machine::new(config).unwrap();
            make_what_stays(&machine, DEVICE);
            let before = books(&machine);
            assert!(load(&machine, &machine.process(PID), usize::MAX));
            assert_eq!(books(&machine), before, "{model:?} {mode:?}");
            let mut steps = 0;
            while !load(&machine, &machine.process(PID), steps) {
                assert_eq!(books(&machine), before, "{model:?} {mode:?}: step {steps}");
                steps += 1;
            }
            assert!(steps >= 27, "{steps}");
            assert_eq!(books(&machine), before, "{model:?} {mode:?}");
        }
    }
}
