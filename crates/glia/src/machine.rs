//! A machine: host memory, devices, their driver and the processes that use them, joined.
//!
//! ```text
//!   Process (Transport) ──► Driver ──► Device (Port) ──► HBM
//!                             └──────────────┴─► HostArena (MachineMemory)
//! ```
//!
//! Everything that the layers share passes through the seams of [`glia_abi`]; this module builds
//! one of each and hands them to each other, and does nothing else. A [`Process`] is what stands
//! for a program: its descriptors, its address space, its way to the driver.

mod file;
mod process;

use std::sync::Arc;

use glia_abi::arch::{Arch, MemoryLayout, Scale, ScaleError};
use glia_abi::event::{NoSink, Sink};
use glia_abi::fault::{Faults, NoFaults};
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::params::ModuleParams;
use glia_abi::port::Port;
use glia_abi::sched::Sched;
use glia_device::sched::{ThreadsError, run_on_threads};
use glia_device::{
    Device, DeviceConfig, DeviceError, EngineOrder, EngineTiming, HostArena, HostConfig, HostError,
    InlineSched, ThreadedSched, VirtualSched,
};
use glia_driver::driver::{DeviceSetup, Driver, DriverInitError};
use glia_driver::memory::MemoryConfig;

use crate::coverage::Coverage;

pub use file::{EngineClash, MachineFile, MachineFileError};
pub use glia_device::sched::{Client, RunError};
pub use process::Process;

/// In the threaded mode a completion may take so many of the driver's budgets: engines share two
/// processors with everybody else. What cannot come is told at once all the same.
pub(crate) const THREADED_PATIENCE: u64 = 50;

/// Which machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Model {
    /// Trn1 and Inf2: arch V2, two cores and 32 GiB a device.
    Trn1,
    /// Trn2: arch V3, eight cores and 96 GiB a device.
    Trn2,
    /// Trn3: arch V4, eight cores and 144 GiB a device.
    Trn3,
}

impl Model {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Trn1, Self::Trn2, Self::Trn3];

    /// The generation of its devices.
    #[must_use]
    pub const fn arch(self) -> Arch {
        match self {
            Self::Trn1 => Arch::V2,
            Self::Trn2 => Arch::V3,
            Self::Trn3 => Arch::V4,
        }
    }

    /// Its name in workloads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trn1 => "trn1",
            Self::Trn2 => "trn2",
            Self::Trn3 => "trn3",
        }
    }

    /// The machine of this name; `inf2` has the devices of a Trn1.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "inf2" => Some(Self::Trn1),
            name => Self::ALL.into_iter().find(|model| model.name() == name),
        }
    }
}

/// How a machine runs its engines, and how its time moves; see [`glia_device::sched`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SchedMode {
    /// Everything happens on the caller's thread, at once.
    #[default]
    Inline,
    /// Engines work beside their callers, in real time.
    Threaded {
        /// How many threads they have: 1 to 256. [`SchedMode::THREADED`] is the usual.
        threads: u32,
    },
    /// One thing at a time, in an order and at times that follow from the seed.
    Virtual {
        /// Which order.
        seed: u64,
    },
}

impl SchedMode {
    /// With as many threads as two cores can run beside two clients.
    pub const THREADED: Self = Self::Threaded { threads: 2 };
}

/// What a machine is built from.
#[derive(Clone)]
pub struct MachineConfig {
    /// Which generation its devices are.
    pub arch: Arch,
    /// How large their HBM is.
    pub scale: Scale,
    /// How many devices it has.
    pub devices: u32,
    /// The driver's module parameters.
    pub params: ModuleParams,
    /// What fresh HBM holds, byte by byte.
    pub hbm_fill: u8,
    /// Its host memory.
    pub host: HostConfig,
    /// Who runs its engines, and its time.
    pub mode: SchedMode,
    /// How long its engines take; none if no time. Not in the threaded mode, whose time is real.
    pub timing: Option<EngineTiming>,
    /// In which order its engines read and write. Strict in the threaded mode.
    pub order: EngineOrder,
    /// Who hears its events.
    pub sink: Arc<dyn Sink>,
    /// What fails.
    pub faults: Arc<dyn Faults>,
    /// Who counts the registers that its driver reads and writes. (To count commands, let it hear
    /// the events, too.)
    pub coverage: Option<Arc<Coverage>>,
}

impl MachineConfig {
    /// One device of full size, run inline; nobody listens, nothing fails.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self {
            arch: model.arch(),
            scale: Scale::Full,
            devices: 1,
            params: ModuleParams::default(),
            hbm_fill: 0,
            host: HostConfig::default(),
            mode: SchedMode::default(),
            timing: None,
            order: EngineOrder::Strict,
            sink: Arc::new(NoSink),
            faults: Arc::new(NoFaults),
            coverage: None,
        }
    }

    /// The same in another mode. In the virtual one engines take the time of their generation, and
    /// its seed decides the order of their reads and writes, too.
    #[must_use]
    pub fn with_mode(self, mode: SchedMode) -> Self {
        let (timing, order) = match mode {
            SchedMode::Inline | SchedMode::Threaded { .. } => (None, EngineOrder::Strict),
            SchedMode::Virtual { seed } => (
                Some(EngineTiming::of(self.arch)),
                EngineOrder::Weak { seed },
            ),
        };
        Self {
            mode,
            timing,
            order,
            ..self
        }
    }

    /// # Errors
    /// What does not go together.
    fn check(&self) -> Result<(), MachineError> {
        let is_timed = self.timing.is_some() || self.order != EngineOrder::Strict;
        match self.mode {
            SchedMode::Threaded { .. } if is_timed => Err(MachineError::ThreadedTiming),
            _ => Ok(()),
        }
    }
}

/// Why a machine could not be built.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The scale is none that the arch can have.
    #[error(transparent)]
    Scale(#[from] ScaleError),
    /// The process has no room for the machine's host memory.
    #[error("host memory cannot be had")]
    Host(#[source] HostError),
    /// The process has no room for a device.
    #[error("a device cannot be had")]
    Device(#[from] DeviceError),
    /// A timing or a weak order in the threaded mode.
    #[error(
        "a timing or a weak order of engines needs the inline or the virtual mode: time is real in the threaded one"
    )]
    ThreadedTiming,
    /// There are no threads to run it.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// The driver does not come up.
    #[error(transparent)]
    Driver(#[from] DriverInitError),
}

/// A machine with its devices and their driver. Clones are the same machine.
#[derive(Clone)]
pub struct Machine {
    parts: Arc<Parts>,
}

/// What a machine consists of.
struct Parts {
    arch: Arch,
    host: Arc<HostArena>,
    sched: Arc<dyn Sched>,
    /// The same, if that has to know its clients.
    virtual_sched: Option<Arc<VirtualSched>>,
    devices: Vec<Arc<Device>>,
    driver: Driver,
}

impl Machine {
    /// A machine with one Trn1 device.
    ///
    /// # Errors
    /// [`MachineError`] if this process has no room for it.
    pub fn trn1() -> Result<Self, MachineError> {
        Self::new(MachineConfig::new(Model::Trn1))
    }

    /// A machine with one Trn2 device.
    ///
    /// # Errors
    /// [`MachineError`] if this process has no room for it.
    pub fn trn2() -> Result<Self, MachineError> {
        Self::new(MachineConfig::new(Model::Trn2))
    }

    /// Builds a machine and brings its driver up.
    ///
    /// # Errors
    /// [`MachineError`]; nothing is left behind then.
    pub fn new(config: MachineConfig) -> Result<Self, MachineError> {
        config.check()?;
        let layout = MemoryLayout::new(config.arch, config.scale)?;
        let mut virtual_sched = None;
        let sched: Arc<dyn Sched> = match config.mode {
            SchedMode::Inline => Arc::new(InlineSched::new()),
            SchedMode::Threaded { threads } => Arc::new(ThreadedSched::new(threads)?),
            SchedMode::Virtual { seed } => {
                let sched = Arc::new(VirtualSched::new(seed));
                Arc::<VirtualSched>::clone(virtual_sched.insert(sched)) as _
            }
        };
        let host = HostArena::with_faults(config.host, Arc::clone(&config.faults));
        let host = Arc::new(host.map_err(MachineError::Host)?);
        let mut devices = Vec::new();
        let mut setups = Vec::new();
        for device in (0..config.devices).map(DeviceId::new) {
            let hardware = Device::new(
                DeviceConfig {
                    hbm_fill: config.hbm_fill,
                    timing: config.timing,
                    patience: match config.mode {
                        SchedMode::Threaded { .. } => THREADED_PATIENCE,
                        SchedMode::Inline | SchedMode::Virtual { .. } => 1,
                    },
                    order: config.order,
                    ..DeviceConfig::new(device, layout)
                },
                Arc::clone(&host),
                Arc::clone(&sched),
                Arc::clone(&config.sink),
                Arc::clone(&config.faults),
            )?;
            let memory = MemoryConfig {
                device,
                params: config.params,
                ..MemoryConfig::new(layout)
            };
            let port = Arc::clone(&hardware) as Arc<dyn Port>;
            setups.push(DeviceSetup {
                memory,
                port: match &config.coverage {
                    Some(coverage) => coverage.cover(port, layout.profile()),
                    None => port,
                },
            });
            devices.push(hardware);
        }
        let driver = Driver::new(
            setups,
            Arc::clone(&host) as Arc<_>,
            Arc::clone(&sched),
            config.sink,
            config.faults,
        )?;
        Ok(Self {
            parts: Arc::new(Parts {
                arch: config.arch,
                host,
                sched,
                virtual_sched,
                devices,
                driver,
            }),
        })
    }

    /// A process of this machine, with no file open.
    ///
    /// Process ids are those that Linux gives: 1 to 2^22. A process of any other gets nowhere: its
    /// calls are answered with `EINVAL`.
    #[must_use]
    pub fn process(&self, pid: Pid) -> Arc<Process> {
        Arc::new(Process::new(Arc::clone(&self.parts), pid))
    }

    /// The generation of its devices.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.parts.arch
    }

    /// Its driver.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.parts.driver
    }

    /// Its devices.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.parts.devices
    }

    /// Its host memory.
    #[must_use]
    pub fn host(&self) -> &Arc<HostArena> {
        &self.parts.host
    }

    /// Its time.
    #[must_use]
    pub fn sched(&self) -> &Arc<dyn Sched> {
        &self.parts.sched
    }

    /// Runs clients beside each other, each on a thread, and returns when all have ended. In the
    /// virtual mode one runs at a time and the seed decides which; in the others the system does.
    /// Whatever uses a machine from several threads does so from here, to run in every mode.
    ///
    /// # Errors
    /// [`RunError`]: a client panicked, or, in the virtual mode, all waited for each other.
    pub fn run_clients(&self, clients: Vec<Client<'_>>) -> Result<(), RunError> {
        match &self.parts.virtual_sched {
            Some(sched) => sched.run(clients),
            None => run_on_threads(clients),
        }
    }
}
