//! Processes: what one leaves behind, and what it sees of another.

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::ioctl::{MEM_COPY_ASYNC64, MemCopyAsync64, wait_handle};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::transport::{OpenMode, Transport};
use glia_abi::usage::Category;
use zerocopy::IntoBytes as _;

use glia_runtime::ndl::{ChunkSpec, Device};
use glia_runtime::{AllocSpec, Core, Runtime, RuntimeConfig};

const DEVICE: DeviceId = DeviceId::new(0);
const CORE: Core = Core {
    device: DEVICE,
    core: CoreId::new(0),
};

fn runtime(machine: &Machine, pid: u32) -> Runtime {
    Runtime::open(
        machine.process(Pid::new(pid)),
        &[DEVICE],
        RuntimeConfig::default(),
    )
    .unwrap()
}

/// Bytes and chunks of the device's books.
fn books(machine: &Machine) -> (u64, u64, u64) {
    let stats = machine.driver().memory(DEVICE).unwrap().stats();
    (stats.host_bytes, stats.device_bytes, stats.chunks)
}

#[test]
fn an_exit_gives_everything_back() {
    let machine = Machine::trn2().unwrap();
    let before = books(&machine);
    let runtime = runtime(&machine, 7);
    let tensor = runtime
        .allocate(CORE, &AllocSpec::device(64 << 20, MemUsage::Tensor))
        .unwrap();
    tensor.write(0, &[1; 4096]).unwrap();
    let host = AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(1 << 20, MemUsage::Tensor)
    };
    let staging = runtime.allocate(CORE, &host).unwrap();
    staging.write(0, &[2; 4096]).unwrap();
    assert_ne!(books(&machine), before);
    drop((tensor, staging, runtime));
    assert_eq!(books(&machine), before);
}

#[test]
fn a_process_that_frees_nothing_leaves_nothing() {
    let machine = Machine::trn1().unwrap();
    let before = books(&machine);
    let process = machine.process(Pid::new(7));
    let device = Device::open(process, DEVICE).unwrap();
    for core in 0..2 {
        let spec = ChunkSpec {
            size_bytes: 1 << 20,
            align_bytes: 0,
            location: Location::Device,
            channel: Channel::new(core),
            core: CoreId::new(core),
            category: Category::TENSORS_DEVICE,
        };
        device.allocate(&spec).unwrap();
    }
    drop(device);
    assert_eq!(books(&machine), before);
}

#[test]
fn a_second_descriptor_is_the_same_file_and_the_lowest_number_is_given_again() {
    let machine = Machine::trn2().unwrap();
    let process = machine.process(Pid::new(7));
    let first = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let second = process.dup(first).unwrap();
    assert_eq!((first.0, second.0), (0, 1));
    process.close(first).unwrap();
    assert_eq!(process.close(first), Err(Errno::EBADF));
    assert_eq!(process.open(DEVICE, OpenMode::ReadOnly).unwrap(), first);
    assert_eq!(
        process.open(DeviceId::new(1), OpenMode::ReadWrite),
        Err(Errno::ENOENT)
    );
}

#[test]
fn seventeen_processes_are_one_too_many_until_one_goes() {
    let machine = Machine::trn2().unwrap();
    let open = |pid| {
        let process = machine.process(Pid::new(pid));
        process.open(DEVICE, OpenMode::ReadWrite).map(|_| process)
    };
    let mut inside: Vec<_> = (1..=16).map(|pid| open(pid).unwrap()).collect();
    assert_eq!(open(17).map(|_| ()), Err(Errno::EBUSY));
    inside.pop();
    open(17).unwrap();
}

/// Four processes on one device, each on a core of its own, write and read without seeing each
/// other's bytes.
#[test]
fn processes_on_threads_keep_their_bytes_apart() {
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let before = books(&machine);
    std::thread::scope(|scope| {
        for pid in 1..=4_u32 {
            let machine = machine.clone();
            scope.spawn(move || {
                let runtime = runtime(&machine, pid);
                let byte = u8::try_from(pid).unwrap();
                let core = Core {
                    core: CoreId::new(pid - 1),
                    ..CORE
                };
                for round in 0..40_usize {
                    let size = 1 + round * 70_001;
                    let spec = AllocSpec::device(size as u64, MemUsage::Tensor);
                    let tensor = runtime.allocate(core, &spec).unwrap();
                    tensor.write(0, &vec![byte; size]).unwrap();
                    let mut back = vec![0; size];
                    tensor.read(0, &mut back).unwrap();
                    assert!(back.iter().all(|&found| found == byte));
                }
            });
        }
    });
    assert_eq!(books(&machine), before);
}

/// A process that has closed the device for the last time, but has a copy of the descriptor, can
/// still start copies. What they hold goes with it.
#[test]
fn a_copy_that_a_detached_process_left_under_way_holds_nothing_after_its_exit() {
    let machine = Machine::trn2().unwrap();
    let before = books(&machine);
    let owner = Device::open(machine.process(Pid::new(1)), DEVICE).unwrap();
    let spec = ChunkSpec {
        size_bytes: 64 << 20,
        align_bytes: 0,
        location: Location::Device,
        channel: Channel::new(0),
        core: CoreId::new(0),
        category: Category::TENSORS_DEVICE,
    };
    let (source, target) = (
        owner.allocate(&spec).unwrap(),
        owner.allocate(&spec).unwrap(),
    );
    let stranger = machine.process(Pid::new(2));
    let file = stranger.open(DEVICE, OpenMode::ReadWrite).unwrap();
    let copy = stranger.dup(file).unwrap();
    stranger.close(file).unwrap();
    let mut arg = MemCopyAsync64 {
        src: u64::from(source.get()),
        dst: u64::from(target.get()),
        size: 4096,
        pwait: wait_handle::NONE,
        ..MemCopyAsync64::default()
    };
    stranger
        .ioctl(copy, MEM_COPY_ASYNC64, arg.as_mut_bytes(), &mut [])
        .unwrap();
    drop((owner, stranger));
    assert_eq!(books(&machine), before);
    let stats = machine.driver().memory(DEVICE).unwrap().stats();
    assert_eq!(stats.held_chunks, 0);
}
