//! A device's op layer on the scripted machine.

use std::sync::{Arc, Mutex};

use glia_abi::addr::{BusAddr, HostPa};
use glia_abi::arch::{Arch, ArchProfile, MemoryLayout, Scale};
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::fault::NoFaults;
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::params::ModuleParams;
use glia_abi::sched::Tick;
use glia_abi::udma::Direction;
use glia_driver::dma::zerocopy::ZeroCopyLimits;
use glia_driver::dma::{
    ContextState, Dma, DmaConfig, DmaError, Place, Platform, QueueState, WaitHandle,
};
use glia_driver::memory::{DeviceMemory, MemoryConfig};

use crate::machine::{HBM, HOST, HOST_SIZE, Machine};

pub(crate) const PID: Pid = Pid::new(77);
pub(crate) const CORE: CoreId = CoreId::new(0);

/// Free host memory that no allocation reaches.
pub(crate) const SCRATCH: u64 = HOST + HOST_SIZE / 2;

/// Everything that was told.
#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<(Ids, Event)>>);

impl Heard {
    pub(crate) fn take(&self) -> Vec<(Ids, Event)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Sink for Heard {
    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        self.0.lock().unwrap().push((*ids, *event));
    }
}

pub(crate) struct Rig {
    pub(crate) profile: &'static ArchProfile,
    pub(crate) machine: Arc<Machine>,
    pub(crate) memory: Arc<DeviceMemory>,
    pub(crate) heard: Arc<Heard>,
    pub(crate) dma: Arc<Dma>,
}

impl Rig {
    /// A device with no ring.
    pub(crate) fn bare(arch: Arch) -> Self {
        let size_bytes = 32 << 20;
        Self::at_scale(arch, Scale::RegionSize { size_bytes })
    }

    /// The same with regions of any size.
    pub(crate) fn at_scale(arch: Arch, scale: Scale) -> Self {
        let profile = arch.profile();
        let machine = Arc::new(Machine::new(profile));
        let params = ModuleParams {
            mempool_small_pool_size: 4 << 20,
            mempool_host_memory_size: 0,
            ..ModuleParams::default()
        };
        let config = MemoryConfig {
            params,
            ..MemoryConfig::new(MemoryLayout::new(arch, scale).unwrap())
        };
        let memory = DeviceMemory::new(config, Arc::clone(&machine) as _, Arc::new(NoFaults));
        let memory = Arc::new(memory.unwrap());
        let heard = Arc::new(Heard::default());
        let config = DmaConfig {
            device: DeviceId::new(3),
            profile,
            platform: Platform::Hardware,
            zero_copy: ZeroCopyLimits::default(),
        };
        let dma = Dma::new(
            config,
            Arc::clone(&machine) as _,
            Arc::clone(&machine) as _,
            Arc::clone(&memory),
            Arc::clone(&machine) as _,
            Arc::clone(&heard) as _,
        );
        Self {
            profile,
            machine,
            memory,
            heard,
            dma: Arc::new(dma),
        }
    }

    /// A V2 device with the ring of core 0, and nothing told or written yet.
    pub(crate) fn new() -> Self {
        let rig = Self::bare(Arch::V2);
        rig.dma.bring_up(CORE).unwrap();
        rig.heard.take();
        rig.machine.state().writes.clear();
        rig
    }

    /// A place in the scratch part of host memory.
    pub(crate) fn host(&self, offset: u64) -> Place {
        Place {
            at: self.profile.host_to_bus(HostPa::new(SCRATCH + offset)),
            location: Location::Host,
            core: CORE,
        }
    }

    /// Copies from host memory to HBM, both at this offset.
    pub(crate) fn up(&self, offset: u64, size_bytes: u64) -> Result<(), DmaError> {
        self.dma
            .copy(PID, self.host(offset), hbm(offset), size_bytes)
    }

    /// The same asynchronously.
    pub(crate) fn up_async(
        &self,
        offset: u64,
        size_bytes: u64,
        previous: WaitHandle,
    ) -> Result<WaitHandle, DmaError> {
        let (source, target) = (self.host(offset), hbm(offset));
        self.dma
            .copy_async(PID, source, target, size_bytes, previous)
    }

    /// Waits for one of those.
    pub(crate) fn wait(&self, handle: WaitHandle) -> Result<(), DmaError> {
        self.dma.wait(PID, self.host(0), hbm(0), handle)
    }

    pub(crate) fn queue(&self) -> QueueState {
        self.dma.queue_state(CORE).unwrap()
    }

    /// What each context is doing.
    pub(crate) fn contexts(&self) -> [ContextState; 3] {
        self.queue().contexts
    }

    /// Direction and count of each doorbell since the last call.
    pub(crate) fn doorbells(&self) -> Vec<(Direction, u32)> {
        std::mem::take(&mut self.machine.state().doorbells)
            .into_iter()
            .map(|(direction, _, count)| (direction, count))
            .collect()
    }
}

/// A place in the HBM window.
pub(crate) fn hbm(offset: u64) -> Place {
    Place {
        at: BusAddr::new(HBM + offset),
        location: Location::Device,
        core: CORE,
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(seed: u64, size: usize) -> Vec<u8> {
    (0..size as u64)
        .map(|index| (index * 31 + (index >> 8) * 17 + seed * 7 + 1) as u8)
        .collect()
}
