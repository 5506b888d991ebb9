//! The runtime of one process: opened devices, the allocators that live with their cores, and the
//! models that are loaded.
//!
//! A core is a physical one: a device and a number there. Its memory is on the HBM channel that the
//! generation gives it, unless an allocation names another.
//!
//! What happens is told to a [`Sink`](glia_abi::event::Sink): devices opened and closed, models loaded and unloaded,
//! allocations, copies. The ids are those of the driver's events, so that the two join by handle.
//!
//! **Who owns what.** A device is closed when the runtime and every allocation on it are dropped;
//! an allocation that outlives the runtime is named in the log.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use glia_abi::arch::Arch;
use glia_abi::event::{Detail, Event, Ids, NameId};
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::ioctl::feature;
use glia_abi::sched::Sched;
use glia_abi::transport::Transport;

use crate::config::{LogLevel, RuntimeConfig};
use crate::dmem::{AllocSpec, Allocator, Dmem, Owner};
use crate::dml::{
    Dml, Level, Log, LogContext, MemoryMetrics, ModelId, ModelReport, OomReport, UsageTable,
    chunks_csv, chunks_file_name, events_csv, events_file_name,
};
use crate::error::RuntimeError;
use crate::explanation::Explanation;
use crate::model::Model;
use crate::ndl;
use crate::scratchpad::{Scratchpad, ScratchpadInfo};
use crate::stats::MemoryStats;
use crate::trace::{Payload, TraceId};

/// A physical core of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Core {
    /// The device.
    pub device: DeviceId,
    /// The core's number there.
    pub core: CoreId,
}

// What has become of a runtime: of two fates the larger one.
const OPEN: u8 = 0;
const FORKED: u8 = 1;
const CLOSED: u8 = 2;

/// What all devices of a process share.
pub(crate) struct Session {
    config: RuntimeConfig,
    transport: Arc<dyn Transport>,
    /// What has become of the runtime: what is left of it answers so.
    fate: AtomicU8,
    /// Whether the sink wants to hear anything.
    is_heard: bool,
    /// Whether the driver is believed to understand alignments. Once false, it stays so.
    pub(crate) driver_aligns: AtomicBool,
    next_model: AtomicU32,
}

impl Session {
    pub(crate) fn config(&self) -> &RuntimeConfig {
        &self.config
    }

    /// How this process waits.
    pub(crate) fn sched(&self) -> &dyn Sched {
        self.transport.sched()
    }

    /// Lets calls through as long as the runtime is open, in the process that opened it.
    pub(crate) fn gate(&self) -> Result<(), RuntimeError> {
        match self.fate.load(Ordering::Acquire) {
            OPEN => Ok(()),
            FORKED => Err(RuntimeError::WrongState),
            _ => Err(RuntimeError::Closed),
        }
    }

    /// Does something between the two events of a trace that tell of it.
    pub(crate) fn traced<T, B: Payload, S: Payload>(
        &self,
        id: TraceId,
        start: impl FnOnce() -> B,
        work: impl FnOnce() -> T,
        stop: impl FnOnce(&T) -> S,
    ) -> T {
        let Some(tracer) = &self.config.tracer else {
            return work();
        };
        tracer.begin(id, start().to_bytes().as_ref());
        let done = work();
        tracer.stop(id, stop(&done).to_bytes().as_ref());
        done
    }

    /// Whether both reach the driver by the same files, so that a handle of one is the same memory to
    /// the other. Two runtimes of one process do.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.transport, &other.transport)
    }

    /// The log, if it wants lines of this level.
    fn log_of(&self, level: Level) -> Option<&dyn Log> {
        let least = match level {
            Level::Error => LogLevel::Error,
            Level::Warn => LogLevel::Warn,
            Level::Info => LogLevel::Info,
        };
        let log = self.config.log.as_deref();
        log.filter(|_| self.config.log_level >= least)
    }

    /// Logs a report and its explanation, which are put together only if somebody listens.
    pub(crate) fn log_report(&self, report: &OomReport) {
        if let Some(log) = self.log_of(Level::Error).filter(|_| self.config.oom_log) {
            let (profile, context) = (self.config.profile, log.context());
            let mut text = match self.config.verbose_tables {
                true => report.verbose_text(profile, &context),
                false => report.text(profile, &context),
            };
            if let Some(explanation) = &report.explanation {
                text += &explanation.text(&context);
            }
            log.write(&text);
        }
    }

    /// Logs a line and the explanation of what it says, as one message.
    pub(crate) fn log_explained(
        &self,
        level: Level,
        function: &str,
        message: &str,
        explanation: Option<&Explanation>,
    ) {
        let line = |context: &LogContext| context.line(level, function, message);
        self.log_lines(level, line, explanation);
    }

    /// Logs lines and the explanation of what they say, as one message.
    pub(crate) fn log_lines(
        &self,
        level: Level,
        lines: impl FnOnce(&LogContext) -> String,
        explanation: Option<&Explanation>,
    ) {
        if let Some(log) = self.log_of(level) {
            let context = log.context();
            let mut text = lines(&context);
            if let Some(explanation) = explanation.filter(|_| self.config.oom_log) {
                text += &explanation.text(&context);
            }
            log.write(&text);
        }
    }

    /// Logs what a model owns.
    pub(crate) fn log_model(&self, report: &ModelReport) {
        if let Some(log) = self.log_of(Level::Info) {
            log.write(&report.text(self.config.profile, &log.context()));
        }
    }

    /// Logs what somebody has called for. It is no failure and does not say that it is one, but it
    /// goes out at every level that lets anything out: the environment's default, `ERROR`, was chosen
    /// by nobody, and a call that is answered by silence looks like one that does not work. `QUIET`
    /// was chosen by somebody, who wants no lines at all.
    fn log_asked(&self, function: &str, message: &str) {
        if let Some(log) = self.log_of(Level::Error) {
            log.write(&log.context().line(Level::Info, function, message));
        }
    }

    /// Logs a line.
    pub(crate) fn log(&self, level: Level, function: &str, message: &str) {
        self.log_explained(level, function, message, None);
    }
}

/// An opened device and its books.
pub(crate) struct OpenDevice {
    pub(crate) ndl: Arc<ndl::Device>,
    pub(crate) dml: Dml,
    /// Bytes of an HBM. A device may have been given less than the silicon has.
    region_size_bytes: u64,
    /// The scratchpads of its cores, for who explains what cannot be had; they hold the device.
    pub(crate) scratchpads: OnceLock<Vec<Weak<Scratchpad>>>,
    pub(crate) session: Arc<Session>,
}

impl OpenDevice {
    fn open(
        transport: Arc<dyn Transport>,
        id: DeviceId,
        session: &Arc<Session>,
    ) -> Result<Self, RuntimeError> {
        let opened = ndl::Device::open(Arc::clone(&transport), id);
        let ndl = opened.map_err(|error| session.explain_open(&*transport, id, error))?;
        let channels = ndl.insight().map(|pools| pools.channels);
        let region = channels.as_ref().and_then(|channels| channels.first());
        let region_size_bytes = match region {
            Some(channel) => channel.region.size_bytes(),
            None => ndl.profile().region_size_bytes,
        };
        let device = Self {
            region_size_bytes,
            scratchpads: OnceLock::new(),
            dml: Dml::new(id, ndl.profile(), session.config.events_max),
            ndl,
            session: Arc::clone(session),
        };
        device.tell(|| (Ids::default(), Event::RuntimeOpened));
        Ok(device)
    }

    /// Physical cores that make a logical one.
    pub(crate) fn lnc_size(&self) -> u32 {
        match self.ndl.profile().arch {
            Arch::V2 => 1,
            Arch::V3 | Arch::V4 => self.session.config.lnc_size.max(1),
        }
    }

    /// The most bytes that the processor may store by itself in a write by the caller's pages.
    pub(crate) fn bar4_wr_threshold_bytes(&self) -> u16 {
        let told = self.session.config.bar4_wr_threshold_bytes;
        told.unwrap_or(match self.ndl.profile().arch {
            Arch::V2 => 0,
            Arch::V3 | Arch::V4 => 0x1000,
        })
    }

    /// Whether single copies go by the caller's own pages.
    pub(crate) fn copies_without_buffer(&self) -> bool {
        self.session.config.zero_copy && self.ndl.has(feature::ZEROCOPY)
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

    /// Writes the events to a file, if there is to be one; where it is.
    pub(crate) fn dump_events(&self) -> Option<String> {
        let config = &self.session.config;
        let dump = config.dump.as_ref().filter(|_| config.oom_log)?;
        let name = events_file_name(self.ndl.id(), dump.unix_time_s());
        let written = dump.write(&name, &events_csv(&self.dml.events()));
        let written = written.inspect_err(|error| {
            let message = format!("Failed to write nrt memory alloc debug info to {name}: {error}");
            self.session.log(Level::Error, "dml_dump", &message);
        });
        written.ok()
    }

    /// Writes the chunks of a channel to a file, if there is to be one and the driver lists them; where
    /// it is.
    pub(crate) fn dump_chunks(&self, channel: Channel) -> Option<String> {
        let config = &self.session.config;
        let dump = config.dump.as_ref().filter(|_| config.oom_log)?;
        let name = chunks_file_name(self.ndl.id(), channel, dump.unix_time_s());
        // A driver that does not list them is no failure.
        let chunks = self.ndl.hbm_chunks(channel).ok()?;
        let written = dump.write(&name, &chunks_csv(&chunks));
        let written = written.inspect_err(|error| {
            let message = format!("Failed to write driver memory chunk info to {name}: {error}");
            let function = "dmem_alloc_internal";
            self.session.log(Level::Error, function, &message);
        });
        written.ok()
    }

    /// Whether anybody listens to events.
    pub(crate) fn is_heard(&self) -> bool {
        self.session.is_heard
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
    session: Arc<Session>,
    devices: Vec<Slot>,
}

struct Slot {
    device: Arc<OpenDevice>,
    /// One for each core.
    globals: Vec<Allocator>,
    /// One for each logical core.
    scratchpads: Vec<Arc<Scratchpad>>,
}

impl Slot {
    fn no_core(&self, core: Core) -> RuntimeError {
        RuntimeError::NoCore {
            device: core.device,
            core: core.core,
            cores: self.device.ndl.profile().cores,
        }
    }
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
            transport: Arc::clone(&transport),
            fate: AtomicU8::new(OPEN),
            driver_aligns: AtomicBool::new(true),
            next_model: AtomicU32::new(ModelId::FIRST.0),
        });
        let open = |&id| {
            let device = OpenDevice::open(Arc::clone(&transport), id, &session)?;
            let device = Arc::new(device);
            let cores = device.ndl.profile().cores;
            let lnc_size = device.lnc_size() as usize;
            let firsts = (0..cores).step_by(lnc_size).map(CoreId::new);
            let scratchpads = firsts.map(|core| Scratchpad::new(Arc::clone(&device), core));
            let scratchpads: Vec<_> = scratchpads.map(Arc::new).collect();
            let known = || scratchpads.iter().map(Arc::downgrade).collect();
            device.scratchpads.get_or_init(known);
            let cores = (0..cores).map(CoreId::new);
            let globals = cores.map(|core| Allocator::new(Arc::clone(&device), core, Owner::Core));
            Ok(Slot {
                globals: globals.collect(),
                scratchpads,
                device,
            })
        };
        let devices: Result<_, RuntimeError> = devices.iter().map(open).collect();
        Ok(Self {
            devices: devices?,
            session,
        })
    }

    /// The opened devices, in the order in which they were given.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &ndl::Device> {
        self.devices.iter().map(|slot| &*slot.device.ndl)
    }

    /// Closes it: from now on every call of it and of its tensors answers
    /// [`RuntimeError::Closed`]. Memory goes back as it is dropped.
    pub fn close(&self) {
        self.session.fate.fetch_max(CLOSED, Ordering::AcqRel);
    }

    /// Says that this process is a fork of the one that opened it: from now on every call of it, of
    /// its tensors and of its models answers [`RuntimeError::WrongState`], and reaches no driver.
    pub(crate) fn forked(&self) {
        self.session.fate.fetch_max(FORKED, Ordering::AcqRel);
    }

    /// Bytes in use on the logical core that a core belongs to, and the most that can be
    /// (`nrt_get_vnc_memory_stats`). Cores that
    /// share an HBM share the limit: it is the sum of what they use that reaches it.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`], [`RuntimeError::NoCore`], [`RuntimeError::Closed`].
    pub fn memory_stats(&self, core: Core) -> Result<MemoryStats, RuntimeError> {
        self.global(core)?;
        let device = &self.slot(core.device)?.device;
        let table = device.dml.table();
        let lnc_size = device.lnc_size();
        let first = core.core.get() / lnc_size * lnc_size;
        let cores = (first..first.saturating_add(lnc_size)).map(CoreId::new);
        let used = cores.filter_map(|core| table.core(core));
        let used = used.map(|core| core.present.total());
        Ok(MemoryStats {
            used_bytes: used.fold(0, u64::saturating_add),
            limit_bytes: device.region_size_bytes,
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Allocates memory that lives until its last [`Dmem`] is dropped.
    ///
    /// # Errors
    /// [`RuntimeError::DeviceMemory`] and [`RuntimeError::HostMemory`] if there is no room; the
    /// others if the request is wrong or the driver fails.
    #[track_caller]
    pub fn allocate(&self, core: Core, spec: &AllocSpec<'_>) -> Result<Dmem, RuntimeError> {
        let caller = Location::caller();
        self.global(core)?.allocate(spec, caller)
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
        Ok(Model {
            scratchpad: Arc::clone(self.core_scratchpad(core)?),
            reservations: Mutex::default(),
            id,
            allocator,
        })
    }

    /// Who holds what on a device.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`].
    pub fn usage(&self, device: DeviceId) -> Result<UsageTable, RuntimeError> {
        Ok(self.dml(device)?.table())
    }

    /// What this process has of a device's memory, host memory included, by the counters that the
    /// driver shows in sysfs: bytes now, and the most at any time.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`].
    pub fn metrics(&self, device: DeviceId) -> Result<MemoryMetrics, RuntimeError> {
        Ok(self.dml(device)?.metrics())
    }

    /// The usage logger of a device, which has its events.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`].
    pub fn dml(&self, device: DeviceId) -> Result<&Dml, RuntimeError> {
        Ok(&self.slot(device)?.device.dml)
    }

    /// Logs who holds what on each device, as if an allocation had failed
    /// (`nrt_debug_log_oom_report`): one message for each. It is of the level `INFO`, since nothing
    /// has failed, and is logged at every [level](RuntimeConfig::log_level) but
    /// [`Quiet`](LogLevel::Quiet). As data: [`usage`](Self::usage).
    pub fn log_oom_report(&self) {
        let config = self.session.config();
        for Slot { device, .. } in &self.devices {
            let table = device.dml.table();
            let message = table.message(config.profile, config.verbose_tables);
            let function = match config.profile.is_list() {
                true => "log_dev_mem",
                false => "log_dev_mem_usage_table",
            };
            self.session.log_asked(function, &message);
        }
    }

    /// Logs the events of a device as a table with commas, in one message, at every level but
    /// [`Quiet`](LogLevel::Quiet). As data: [`Dml::events`].
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`].
    pub fn log_events(&self, device: DeviceId) -> Result<(), RuntimeError> {
        let dml = self.dml(device)?;
        let (events, dropped) = dml.events_and_losses();
        let csv = events_csv(&events);
        let message = format!(
            "Memory events of {device} ({dropped} older ones dropped):\n{}",
            csv.trim_end()
        );
        self.session.log_asked("dml_dump", &message);
        Ok(())
    }

    /// The scratchpad that a core uses.
    ///
    /// # Errors
    /// [`RuntimeError::NoDevice`] and [`RuntimeError::NoCore`].
    pub fn scratchpad(&self, core: Core) -> Result<ScratchpadInfo, RuntimeError> {
        Ok(self.core_scratchpad(core)?.info())
    }

    fn core_scratchpad(&self, core: Core) -> Result<&Arc<Scratchpad>, RuntimeError> {
        let slot = self.slot(core.device)?;
        let number = core.core.index() / slot.device.lnc_size() as usize;
        let scratchpad = slot.scratchpads.get(number);
        scratchpad.ok_or_else(|| slot.no_core(core))
    }

    /// The allocator that lives with a core.
    pub(crate) fn global(&self, core: Core) -> Result<&Allocator, RuntimeError> {
        let slot = self.slot(core.device)?;
        let allocator = slot.globals.get(core.core.index());
        allocator.ok_or_else(|| slot.no_core(core))
    }

    fn slot(&self, device: DeviceId) -> Result<&Slot, RuntimeError> {
        self.session.gate()?;
        let mut slots = self.devices.iter();
        let slot = slots.find(|slot| slot.device.ndl.id() == device);
        slot.ok_or(RuntimeError::NoDevice { device })
    }
}
