//! A driver over a device of software, and time as the test wants it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glia_abi::addr::{BusAddr, RegOffset};
use glia_abi::arch::{Arch, ArchProfile, MemoryLayout, Scale};
use glia_abi::event::{NoSink, Sink};
use glia_abi::fault::NoFaults;
use glia_abi::handle::DeviceId;
use glia_abi::params::ModuleParams;
use glia_abi::port::{DmaMemory, Port, PortTap};
use glia_abi::regs::{FirmwareReg, NO_REGISTER};
use glia_abi::sched::{Micros, Poll, Sched};
use glia_device::{
    Device, DeviceConfig, EngineOrder, EngineTiming, HostArena, HostConfig, InlineSched,
};
use glia_driver::driver::{DeviceSetup, Driver};
use glia_driver::memory::{DeviceMemory, MemoryConfig};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const ND0: DeviceId = DeviceId::new(0);

/// How a rig is built.
pub(crate) struct Plan {
    pub(crate) arch: Arch,
    pub(crate) has_timing: bool,
    /// A seed for engines of weak order.
    pub(crate) weak: Option<u64>,
    pub(crate) sched: Arc<dyn Sched>,
}

impl Plan {
    /// Engines that work at once, on the caller's thread.
    pub(crate) fn of(arch: Arch) -> Self {
        Self {
            arch,
            has_timing: false,
            weak: None,
            sched: Arc::new(InlineSched::new()),
        }
    }
}

/// Between the driver and its device: the firmware's status may be out of reach.
pub(crate) struct Wire {
    profile: &'static ArchProfile,
    device: Arc<Device>,
    is_mute: AtomicBool,
}

impl Wire {
    /// From here on the firmware's status cannot be read, or can be again.
    pub(crate) fn set_mute(&self, is_mute: bool) {
        self.is_mute.store(is_mute, Ordering::Relaxed);
    }
}

impl PortTap for Wire {
    fn behind(&self) -> &dyn Port {
        &*self.device
    }

    fn reg_read(&self, at: RegOffset) -> u32 {
        let is_status = at == FirmwareReg::Status.at(self.profile);
        if is_status && self.is_mute.load(Ordering::Relaxed) {
            return NO_REGISTER;
        }
        self.device.reg_read(at)
    }
}

/// Device 0 with regions of 64 MiB and no host reserve.
pub(crate) struct Rig {
    pub(crate) driver: Driver,
    pub(crate) wire: Arc<Wire>,
    pub(crate) arch: Arch,
    sched: Arc<dyn Sched>,
    host: Arc<HostArena>,
    device: Arc<Device>,
}

impl Rig {
    pub(crate) fn with(plan: Plan) -> Self {
        let Plan {
            arch, sched, weak, ..
        } = plan;
        let size_bytes = 64 * MIB;
        let layout = MemoryLayout::new(arch, Scale::RegionSize { size_bytes }).unwrap();
        let host = Arc::new(HostArena::new(HostConfig::default()).unwrap());
        let order = weak.map(|seed| EngineOrder::Weak { seed });
        let config = DeviceConfig {
            timing: plan.has_timing.then(|| EngineTiming::of(arch)),
            order: order.unwrap_or(EngineOrder::Strict),
            ..DeviceConfig::new(ND0, layout)
        };
        let sink: Arc<dyn Sink> = Arc::new(NoSink);
        let device = Device::new(
            config,
            Arc::clone(&host),
            Arc::clone(&sched),
            Arc::clone(&sink),
            Arc::new(NoFaults),
        );
        let device = device.unwrap();
        let memory = MemoryConfig {
            params: ModuleParams {
                mempool_small_pool_size: 4 * MIB,
                mempool_host_memory_size: 0,
                zerocopy_trn1_override: true,
                ..ModuleParams::default()
            },
            ..MemoryConfig::new(layout)
        };
        let wire = Arc::new(Wire {
            profile: arch.profile(),
            device: Arc::clone(&device),
            is_mute: AtomicBool::new(false),
        });
        let port = Arc::clone(&wire) as Arc<dyn Port>;
        let driver = Driver::new(
            vec![DeviceSetup { memory, port }],
            Arc::clone(&host) as _,
            Arc::clone(&sched),
            sink,
            Arc::new(NoFaults),
        );
        Self {
            driver: driver.unwrap(),
            wire,
            arch,
            sched,
            host,
            device,
        }
    }

    pub(crate) fn memory(&self) -> &Arc<DeviceMemory> {
        self.driver.memory(ND0).unwrap()
    }

    /// Bytes at an address, as the device sees it.
    pub(crate) fn peek(&self, at: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        match self.arch.profile().bus_to_host(BusAddr::new(at)) {
            Some(at) => self.host.read(at, &mut bytes).unwrap(),
            None => {
                let hbm = self.device.mapping(BusAddr::new(at), size as u64);
                hbm.unwrap().read(0, &mut bytes).unwrap();
            }
        }
        bytes
    }

    pub(crate) fn poke(&self, at: u64, bytes: &[u8]) {
        match self.arch.profile().bus_to_host(BusAddr::new(at)) {
            Some(at) => self.host.write(at, bytes).unwrap(),
            None => {
                let hbm = self.device.mapping(BusAddr::new(at), bytes.len() as u64);
                hbm.unwrap().write(0, bytes).unwrap();
            }
        }
    }

    /// Lets time pass, and whatever is due.
    pub(crate) fn pass(&self, length: Micros) {
        let on = self.sched.wait_on();
        let mut never = || Poll::Pending;
        self.sched.block(on, &mut never, Some(length));
    }
}
