//! Clients that are unwound out of a wait in the driver, and go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, RunError, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::handle::{Channel, CoreId, DeviceId, McHandle, Pid};
use glia_abi::mem::Location;
use glia_abi::sched::SleepLock;
use glia_abi::transport::{Caller, UserMemory};
use glia_abi::usage::Category;
use glia_device::AddressSpace;
use glia_driver::dma::DmaError;
use glia_driver::dma::zerocopy::{ZeroCopy, ZeroCopyOp};
use glia_runtime::ndl::{ChunkSpec, Device};

const DEVICE: DeviceId = DeviceId::new(0);
const CORE: CoreId = CoreId::new(0);
const SIZE: usize = 200_000;

fn machine(model: Model, seed: u64) -> Machine {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        ..MachineConfig::new(model).with_mode(SchedMode::Virtual { seed })
    };
    Machine::new(config).unwrap()
}

/// A process with the device open, and a chunk in HBM.
fn program(machine: &Machine, pid: u32) -> (Arc<Device>, McHandle) {
    let device = Device::open(machine.process(Pid::new(pid)), DEVICE).unwrap();
    let spec = ChunkSpec {
        size_bytes: SIZE as u64,
        align_bytes: 0,
        location: Location::Device,
        channel: Channel::new(0),
        core: CORE,
        category: Category::TENSORS_DEVICE,
    };
    let chunk = device.allocate(&spec).unwrap();
    (device, chunk)
}

/// Runs a client that waits for itself, catches what ends that, and then does this, of which it
/// catches the end, too: nobody waits any more where all wait for good.
fn unwound(machine: &Machine, act: impl FnOnce() + Send) {
    let sched = &**machine.sched();
    let lock = SleepLock::new((), sched);
    let ended = machine.run_clients(vec![Box::new(|| {
        let _held = lock.lock(sched);
        let again = catch_unwind(AssertUnwindSafe(|| drop(lock.lock(sched))));
        assert!(again.is_err());
        assert!(catch_unwind(AssertUnwindSafe(act)).is_err());
    })]);
    let is_deadlock = |error: &RunError| matches!(error, RunError::Broken { deadlock: Some(_), panics } if panics.is_empty());
    assert!(is_deadlock(&ended.unwrap_err()));
}

#[test]
fn the_ring_of_a_copy_that_was_unwound_is_whole_for_the_next_process() {
    for model in Model::ALL {
        for seed in 0..5 {
            let machine = machine(model, seed);
            let books = || {
                let stats = machine.driver().memory(DEVICE).unwrap().stats();
                (stats.host_bytes, stats.device_bytes, stats.chunks)
            };
            let before = books();
            let (one, ones) = program(&machine, 1);
            let (other, others) = program(&machine, 2);
            unwound(&machine, || one.buf_write(ones, 0, &[1; SIZE]).unwrap());
            let failures = machine.driver().dma(DEVICE).unwrap().queue_state(CORE);
            assert_eq!(failures.unwrap().failures, 1);
            other.buf_write(others, 0, &[2; SIZE]).unwrap();
            let mut read = vec![0; SIZE];
            other.buf_read(others, 0, &mut read).unwrap();
            assert!(read == [2; SIZE], "{model:?}, seed {seed}");
            drop((one, other));
            assert_eq!(books(), before);
        }
    }
}

/// Its pages are lent with the call, and nobody's when it has been unwound.
#[test]
fn a_zero_copy_that_was_unwound_leaves_no_pages_and_the_next_one_is_right() {
    let machine = machine(Model::Trn2, 1);
    let (device, chunk) = program(&machine, 1);
    let base = device.physical_address(chunk).unwrap();
    let space = AddressSpace::new(Arc::clone(machine.host()));
    let buffer = space.buffer(SIZE as u64).unwrap();
    buffer.write(0, &[7; SIZE]).unwrap();
    let dma = machine.driver().dma(DEVICE).unwrap();
    let write = || -> Result<(), DmaError> {
        space.call(&mut [], &mut [], |memory: &dyn UserMemory| {
            let caller = Caller {
                pid: Pid::new(1),
                memory,
                killed: &|| false,
            };
            let ops = [ZeroCopyOp {
                offset_bytes: 0,
                size_bytes: SIZE as u64,
                buffer: buffer.address(),
            }];
            let copy = ZeroCopy {
                core: CORE,
                to_device: true,
                base,
                ops: &ops,
            };
            dma.zero_copy(&caller, &copy)
        })
    };
    unwound(&machine, || write().unwrap());
    assert_eq!(machine.host().pinned_bytes(), 0);
    write().unwrap();
    let mut read = vec![0; SIZE];
    device.buf_read(chunk, 0, &mut read).unwrap();
    assert!(read == [7; SIZE]);
}
