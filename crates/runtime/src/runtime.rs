//! The runtime of one process: opened devices, the allocators that live with their cores, and the
//! models that are loaded.
//!
//! A core is a physical one: a device and a number there. Its memory is on the HBM channel that the
//! generation gives it, unless an allocation names another.
//!
//! What happens is told to a [`Sink`]: devices opened and closed, models loaded and unloaded,
//! allocations, copies. The ids are those of the driver's events, so that the two join by handle.
//!
//! **Who owns what.** A device is closed when the runtime and every allocation on it are dropped;
//! an allocation that outlives the runtime is named in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use glia_abi::event::{Detail, Event, Ids, NameId, NoSink, Sink};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::transport::Transport;

use crate::dmem::{AllocSpec, Allocator, Dmem, Owner};
use crate::dml::{Dml, Level, Log, ModelId, OomReport, ReportProfile, UsageTable};
use crate::error::RuntimeError;
use crate::ndl;

/// A physical core of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Core {
    /// The device.
    pub device: DeviceId,
    /// The core's number there.
    pub core: CoreId,
}

/// What the runtime is told when it is opened.
#[derive(Clone)]
pub struct RuntimeConfig {
    /// How reports look.
    pub profile: ReportProfile,
    /// Events that are kept for each device (runtime 2.31: `NEURON_RT_DEBUG_MEMLOG_MAX_SIZE`).
    pub events_max: usize,
    /// Where log lines go; `None` for nowhere.
    pub log: Option<Arc<dyn Log>>,
    /// Who hears events: as a rule, whoever hears those of the machine.
    pub sink: Arc<dyn Sink>,
    /// The process that events are about, as the driver calls it; `None` if that is not known.
    pub process: Option<Pid>,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            profile: ReportProfile::default(),
            events_max: 1 << 20,
            log: None,
            sink: Arc::new(NoSink),
            process: None,
        }
    }
}

/// What all devices of a process share.
pub(crate) struct Session {
    config: RuntimeConfig,
    /// Whether the sink wants to hear anything.
    is_heard: bool,
    /// Whether the driver is believed to understand alignments. Once false, it stays so.
    pub(crate) driver_aligns: AtomicBool,
    next_model: AtomicU32,
}

impl Session {
    /// Logs a report, which is put together only if somebody listens.
    pub(crate) fn log_report(&self, report: &OomReport) {
        if let Some(log) = &self.config.log {
            log.write(&report.text(self.config.profile, &log.context()));
        }
    }

    /// Logs a line.
    pub(crate) fn log(&self, level: Level, function: &str, message: &str) {
        if let Some(log) = &self.config.log {
            log.write(&log.context().line(level, function, message));
        }
    }
}

/// An opened device and its books.
pub(crate) struct OpenDevice {
    pub(crate) ndl: Arc<ndl::Device>,
    pub(crate) dml: Dml,
    pub(crate) session: Arc<Session>,
}

impl OpenDevice {
    fn open(
        transport: Arc<dyn Transport>,
        id: DeviceId,
        session: &Arc<Session>,
    ) -> Result<Self, RuntimeError> {
        let ndl = ndl::Device::open(transport, id)?;
        let device = Self {
            dml: Dml::new(id, ndl.profile(), session.config.events_max),
            ndl,
            session: Arc::clone(session),
        };
        device.tell(|| (Ids::default(), Event::RuntimeOpened));
        Ok(device)
    }

    /// Tells an event, which is put together only if somebody listens. Process and device are added
    /// to its ids.
    pub(crate) fn tell(&self, told: impl FnOnce() -> (Ids, Event)) {
        if !self.session.is_heard {
            return;
        }
        let config = &self.session.config;
        let (ids, event) = told();
        let ids = Ids {
            process: config.process,
            device: Some(self.ndl.id()),
            ..ids
        };
        config.sink.event(self.ndl.sched().now(), &ids, &event);
    }

    /// The number of a name in events; `None` if there is none, or nobody listens.
    pub(crate) fn name(&self, text: Option<&str>) -> Option<NameId> {
        let text = text.filter(|_| self.session.is_heard)?;
        self.session.config.sink.name(text)
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        self.tell(|| (Ids::default(), Event::RuntimeClosed));
    }
}

/// The runtime of one process.
pub struct Runtime {
    devices: Vec<Slot>,
}

struct Slot {
    device: Arc<OpenDevice>,
    /// One for each core.
    globals: Vec<Allocator>,
}

impl Runtime {
    /// Opens devices.
    ///
    /// # Errors
    /// [`RuntimeError::Driver`] if one cannot be opened; those before it are closed again.
    pub fn open(
        transport: Arc<dyn Transport>,
        devices: &[DeviceId],
        config: RuntimeConfig,
    ) -> Result<Self, RuntimeError> {
        let session = Arc::new(Session {
            is_heard: config.sink.detail() > Detail::Nothing,
            config,
            driver_aligns: AtomicBool::new(true),
            next_model: AtomicU32::new(ModelId::FIRST.0),
        });
        let open = |&id| {
            let device = OpenDevice::open(Arc::clone(&transport), id, &session)?;
            let device = Arc::new(device);
            let cores = (0..device.ndl.profile().cores).map(CoreId::new);
            let globals = cores.map(|core| Allocator::new(Arc::clone(&device), core, Owner::Core));
            Ok(Slot {
                globals: globals.collect(),
                device,
            })
        };
        let devices: Result<_, RuntimeError> = devices.iter().map(open).collect();
        Ok(Self { devices: devices? })
    }

    /// The opened devices, in the order in which they were given.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &ndl::Device> {
        self.devices.iter().map(|slot| &*slot.device.ndl)
    }

    /// Allocates memory that lives until its last [`Dmem`] is dropped.
    ///
    /// # Errors
    /// [`RuntimeError::DeviceMemory`] and [`RuntimeError::HostMemory`] if there is no room; the
    /// others if the request is wrong or the driver fails.
    pub fn allocate(&self, core: Core, spec: &AllocSpec<'_>) -> Result<Dmem, RuntimeError> {
        self.global(core)?.allocate(spec)
    }

    /// Loads a model, which is to say: gives it a name and an allocator.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`] and [`RuntimeError::NoCore`].
    pub fn load_model(&self, core: Core, name: &str) -> Result<Model, RuntimeError> {
        self.global(core)?;
        let device = &self.slot(core.device)?.device;
        let next = device.session.next_model.fetch_add(1, Ordering::Relaxed);
        let id = ModelId(next);
        device.dml.add_model(id, core.core, name);
        let model_name = device.name(Some(name));
        device.tell(|| {
            let core = Some(core.core);
            let ids = Ids {
                core,
                ..Ids::default()
            };
            let model = id.0;
            (ids, Event::ModelLoaded { model, model_name })
        });
        let owner = Owner::Model { id, model_name };
        let allocator = Allocator::new(Arc::clone(device), core.core, owner);
        Ok(Model { id, allocator })
    }

    /// Who holds what on a device.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`].
    pub fn usage(&self, device: DeviceId) -> Result<UsageTable, RuntimeError> {
        Ok(self.dml(device)?.table())
    }

    /// The usage logger of a device, which has its events.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`].
    pub fn dml(&self, device: DeviceId) -> Result<&Dml, RuntimeError> {
        Ok(&self.slot(device)?.device.dml)
    }

    /// The allocator that lives with a core.
    pub(crate) fn global(&self, core: Core) -> Result<&Allocator, RuntimeError> {
        let slot = self.slot(core.device)?;
        let allocator = slot.globals.get(core.core.index());
        allocator.ok_or(RuntimeError::NoCore {
            device: core.device,
            core: core.core,
            cores: slot.device.ndl.profile().cores,
        })
    }

    fn slot(&self, device: DeviceId) -> Result<&Slot, RuntimeError> {
        let mut slots = self.devices.iter();
        let slot = slots.find(|slot| slot.device.ndl.id() == device);
        slot.ok_or(RuntimeError::NoDevice { device })
    }
}

/// A loaded model. Dropping it unloads it: what it has allocated is freed, whoever still holds a
/// [`Dmem`] of it. (The reference leaves it behind.)
pub struct Model {
    id: ModelId,
    allocator: Allocator,
}

impl Model {
    /// The id by which reports name it.
    #[must_use]
    pub fn id(&self) -> ModelId {
        self.id
    }

    /// Allocates memory that lives with the model, or until its last [`Dmem`] is dropped.
    ///
    /// # Errors
    /// As [`Runtime::allocate`].
    pub fn allocate(&self, spec: &AllocSpec<'_>) -> Result<Dmem, RuntimeError> {
        self.allocator.allocate(spec)
    }
}
