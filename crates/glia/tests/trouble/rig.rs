//! A small machine in virtual time, and what must be as before when everybody has gone.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::arch::{Arch, Scale};
use glia_abi::errno::Errno;
use glia_abi::event::Sink;
use glia_abi::fault::{FaultPlan, Faults};
use glia_abi::handle::{Channel, CoreId, DeviceId, McHandle, Pid};
use glia_abi::ioctl;
use glia_abi::mem::Location;
use glia_abi::port::Port;
use glia_abi::regs::{FirmwareReg, RESET_RUNS_BIT};
use glia_abi::transport::{OpenMode, Transport};
use glia_abi::usage::Category;
use glia_driver::dma::{Place, QueueState};
use glia_driver::memory::MemoryStats;
use glia_runtime::ndl::{ChunkSpec, Device, NdlError, Transfer, ZeroCopyBatch, ZeroCopyOp};

pub(crate) const DEVICE: DeviceId = DeviceId::new(0);
pub(crate) const CORE: CoreId = CoreId::new(0);

/// A machine with one small device.
pub(crate) struct Rig {
    pub(crate) machine: Machine,
    pub(crate) plan: Arc<FaultPlan>,
}

/// What a machine holds that nobody uses. Counters that only go up are left out.
#[derive(Debug, PartialEq)]
pub(crate) struct Rest {
    memory: MemoryStats,
    host_bytes: u64,
    pinned_bytes: u64,
    /// Slots that are free, and what the contexts do.
    rings: Vec<Option<QueueState>>,
}

impl Rig {
    pub(crate) fn new(arch: Arch, mode: SchedMode, sink: Arc<dyn Sink>) -> Self {
        Self::with(arch, |config| MachineConfig {
            sink,
            ..config.with_mode(mode)
        })
    }

    pub(crate) fn with(arch: Arch, change: impl FnOnce(MachineConfig) -> MachineConfig) -> Self {
        Self::under(FaultPlan::new(1), arch, change)
    }

    /// Under this plan, whose chance comes from its own seed.
    pub(crate) fn under(
        plan: FaultPlan,
        arch: Arch,
        change: impl FnOnce(MachineConfig) -> MachineConfig,
    ) -> Self {
        let model = Model::ALL.into_iter().find(|model| model.arch() == arch);
        let plan = Arc::new(plan);
        let config = MachineConfig {
            scale: Scale::RegionSize {
                size_bytes: 512 << 20,
            },
            faults: Arc::clone(&plan) as Arc<dyn Faults>,
            ..MachineConfig::new(model.unwrap())
        };
        let mut config = change(config);
        config.params.zerocopy_trn1_override = true;
        let machine = Machine::new(config).unwrap();
        // What a ring has for zero copies stays with it.
        let dma = machine.driver().dma(DEVICE).unwrap();
        dma.completion_queue(CORE).unwrap();
        Self { machine, plan }
    }

    /// A process that has opened the device.
    pub(crate) fn open(&self, pid: u32) -> Result<Client, NdlError> {
        let process = self.machine.process(Pid::new(pid));
        let device = Device::open(Arc::clone(&process) as Arc<_>, DEVICE)?;
        Ok(Client { device, process })
    }

    /// Lets others run until the firmware is at work on a reset.
    pub(crate) fn await_running_reset(&self) {
        let profile = self.machine.arch().profile();
        let device = &self.machine.devices()[0];
        let status = FirmwareReg::Status.at(profile);
        for _ in 0..1000 {
            if device.reg_read(status) & RESET_RUNS_BIT != 0 {
                return;
            }
            self.machine.sched().pause();
        }
        panic!("no reset has begun");
    }

    pub(crate) fn rest(&self) -> Rest {
        let driver = self.machine.driver();
        let memory = driver.memory(DEVICE).unwrap();
        let dma = driver.dma(DEVICE).unwrap();
        let cores = self.machine.arch().profile().cores;
        let ring = |core| {
            let state = dma.queue_state(CoreId::new(core))?;
            // Where a ring stands differs, and how much it has done.
            Some(QueueState {
                next: 0,
                acked: 0,
                ring_id: 0,
                announced: 0,
                failures: 0,
                ..state
            })
        };
        Rest {
            memory: memory.stats(),
            host_bytes: self.machine.host().allocated_bytes(),
            pinned_bytes: self.machine.host().pinned_bytes(),
            rings: (0..cores).map(ring).collect(),
        }
    }
}

/// What a process has reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// By their bits.
    Cores(u32),
    Device,
}

/// A process and its open device.
pub(crate) struct Client {
    pub(crate) device: Arc<Device>,
    pub(crate) process: Arc<Process>,
}

impl Client {
    /// Begins to copy fresh memory of the process with this content to a chunk.
    pub(crate) fn zero_copy_begin(&self, target: McHandle, content: &[u8]) -> Result<(), NdlError> {
        let buffer = self.process.buffer(content.len() as u64).unwrap();
        buffer.write(0, content).unwrap();
        let ops = [ZeroCopyOp {
            chunk_offset_bytes: 0,
            buffer: &buffer,
            buffer_offset_bytes: 0,
            size_bytes: content.len() as u64,
        }];
        let batch = ZeroCopyBatch {
            handle: target,
            ops: &ops,
            context: 0,
        };
        self.device.zero_copy_batches(&[batch], true, 1)
    }

    pub(crate) fn alloc(&self, location: Location, size_bytes: u64) -> Result<McHandle, NdlError> {
        self.device.allocate(&ChunkSpec {
            size_bytes,
            align_bytes: 0,
            location,
            channel: Channel::new(0),
            core: CORE,
            category: match location {
                Location::Host => Category::TENSORS_HOST,
                Location::Device => Category::TENSORS_DEVICE,
            },
        })
    }

    /// Sets bytes through the op layer, since NDL has no such call.
    pub(crate) fn fill(
        &self,
        rig: &Rig,
        target: McHandle,
        size_bytes: u64,
        value: u8,
    ) -> Result<(), NdlError> {
        let place = Place {
            at: self.device.physical_address(target)?,
            location: Location::Device,
            core: CORE,
        };
        let dma = rig.machine.driver().dma(DEVICE).unwrap();
        let filled = dma.fill(self.process.pid(), place, size_bytes, value);
        filled.map_err(|error| refused("fill", error.errno()))
    }

    /// Asks for a reset; returns when it has begun.
    pub(crate) fn reset_begin(&self, reset: Reset) -> Result<(), NdlError> {
        let (word, argument) = match reset {
            Reset::Cores(map) => (ioctl::NC_RESET, map),
            Reset::Device => (ioctl::DEVICE_RESET, 0),
        };
        self.reset_call(word, argument).map(drop)
    }

    /// Waits until this process' reset is over.
    pub(crate) fn reset_wait(&self, reset: Reset) -> Result<(), NdlError> {
        let pid = self.process.pid().get();
        let went_well = match reset {
            Reset::Cores(_) => self.reset_call(ioctl::NC_RESET_READY, pid)?[4..] == [0; 4],
            Reset::Device => self.reset_call(ioctl::DEVICE_READY, 0)?[0] == 1,
        };
        went_well
            .then_some(())
            .ok_or_else(|| refused("reset", Errno::EIO))
    }

    fn reset_call(&self, word: u32, first: u32) -> Result<[u8; 8], NdlError> {
        let call = |errno| refused("reset", errno);
        let fd = self
            .process
            .open(DEVICE, OpenMode::ReadWrite)
            .map_err(call)?;
        let mut argument = [0; 8];
        argument[..4].copy_from_slice(&first.to_ne_bytes());
        let answer = self.process.ioctl(fd, word, &mut argument, &mut []);
        self.process.close(fd).map_err(call)?;
        answer.map(|_| argument).map_err(call)
    }

    pub(crate) fn copy(
        &self,
        source: McHandle,
        target: McHandle,
        size_bytes: u64,
    ) -> Result<(), NdlError> {
        self.device.copy(&whole(source, target, size_bytes))
    }
}

fn refused(call: &'static str, errno: Errno) -> NdlError {
    NdlError::Call {
        device: DEVICE,
        call,
        errno,
    }
}

pub(crate) fn whole(source: McHandle, target: McHandle, size_bytes: u64) -> Transfer {
    Transfer {
        source,
        source_offset_bytes: 0,
        target,
        target_offset_bytes: 0,
        size_bytes,
    }
}

/// Bytes that differ between seeds and repeat after no multiple of a descriptor. However many they
/// are, they take no room.
pub(crate) struct Content {
    /// What repeats, twice, so that a window of that size lies in it wherever it begins.
    tiles: Vec<u8>,
    size_bytes: u64,
}

impl Content {
    const TILE: usize = 65_537;
    /// The most that is looked at at once.
    const WINDOW: u64 = 65_536;

    pub(crate) fn new(size_bytes: u64, seed: u64) -> Self {
        let tile: Vec<u8> = (0..Self::TILE as u64)
            .map(|index| u8::try_from((index * 31 + index / 256 * 17 + seed) % 251).unwrap())
            .collect();
        Self {
            tiles: tile.repeat(2),
            size_bytes,
        }
    }

    /// So many bytes of one value.
    pub(crate) fn of(value: u8, size_bytes: u64) -> Self {
        Self {
            tiles: vec![value; 2 * Self::TILE],
            size_bytes,
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The bytes, window after window: offset and bytes of each.
    pub(crate) fn windows(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let step = usize::try_from(Self::WINDOW).unwrap();
        (0..self.size_bytes).step_by(step).map(|offset| {
            let size = Self::WINDOW.min(self.size_bytes - offset);
            let first = usize::try_from(offset).unwrap() % Self::TILE;
            let window = &self.tiles[first..][..usize::try_from(size).unwrap()];
            (offset, window)
        })
    }

    /// All of them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let windows = self.windows().map(|(_, window)| window);
        windows.collect::<Vec<_>>().concat()
    }
}

/// The bytes of a [`Content`].
pub(crate) fn pattern(size_bytes: u64, seed: u64) -> Vec<u8> {
    Content::new(size_bytes, seed).bytes()
}
