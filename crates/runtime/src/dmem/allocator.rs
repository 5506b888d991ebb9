//! Allocators: from what is asked for to a block of the driver's, and what is left at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::event::{Event, Ids, NameId};
use glia_abi::handle::{Channel, CoreId, McHandle};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::usage::Category;

use super::{AllocSpec, Dmem, List};
use crate::dml::{Allocation, Level, LogContext, ModelId, OomReport, host_failure};
use crate::error::RuntimeError;
use crate::explanation::{Explanation, Request};
use crate::ndl::{ChunkSpec, NdlError};
use crate::runtime::OpenDevice;

/// The line of code that has called the runtime.
pub(crate) type Caller = &'static std::panic::Location<'static>;

/// With whom an allocator lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// With its core: GLOBAL in the reference.
    Core,
    /// With a loaded model: MODEL.
    Model {
        id: ModelId,
        /// What the model is called, for events.
        model_name: Option<NameId>,
    },
}

/// Allocates memory for a core, and knows what of it is live.
pub(crate) struct Allocator {
    pub(super) device: Arc<OpenDevice>,
    pub(super) core: CoreId,
    pub(super) owner: Owner,
    list: Arc<List>,
}

/// A block that the driver has given.
struct Given {
    handle: McHandle,
    pa: BusAddr,
    /// Bytes that the driver was asked for.
    asked_bytes: u64,
    align_offset_bytes: u64,
}

impl Allocator {
    pub(crate) fn new(device: Arc<OpenDevice>, core: CoreId, owner: Owner) -> Self {
        let list = Arc::new(List::new(Arc::clone(&device), owner));
        Self {
            device,
            core,
            owner,
            list,
        }
    }

    pub(crate) fn device(&self) -> &OpenDevice {
        &self.device
    }

    pub(crate) fn core(&self) -> CoreId {
        self.core
    }

    /// Takes a page of a contiguous scratchpad, which the driver places by rules of its own. Want of
    /// memory is the `ceiling`, with its explanation, and nothing that is reported. Nothing is logged:
    /// see [`log_refusal`](Self::log_refusal).
    pub(crate) fn allocate_scratchpad_page(
        &self,
        size_bytes: u64,
        hint: &str,
        caller: Caller,
        ceiling: impl FnOnce(Option<Box<Explanation>>) -> RuntimeError,
    ) -> Result<Dmem, RuntimeError> {
        let spec = AllocSpec {
            hint: Some(hint),
            ..AllocSpec::device(size_bytes, MemUsage::Scratchpad)
        };
        let channel = self.channel(&spec);
        let category = Category::CONTIGUOUS_SCRATCHPAD_DEVICE;
        let allocated = self.traced(&spec, channel, || {
            match self.try_ask(&spec, channel, category) {
                Ok(given) => Ok(self.enter(&spec, channel, given, caller)),
                Err(error) if error.errno() == Some(Errno::ENOMEM) => {
                    let want = self.want(&spec, &spec, channel, true);
                    Err(ceiling(self.device.explain_bank(want).map(Box::new)))
                }
                Err(error) => Err(self.refused(&spec, &spec, channel, error)),
            }
        });
        allocated.map_err(|error| self.refuse(&spec, caller, error))
    }

    pub(crate) fn allocate(
        &self,
        spec: &AllocSpec<'_>,
        caller: Caller,
    ) -> Result<Dmem, RuntimeError> {
        let allocated = self.allocate_unlogged(spec, caller);
        allocated.inspect_err(|error| self.log_refusal(error))
    }

    /// The same for those who hold a lock: what is to be logged of a refusal is for
    /// [`log_refusal`](Self::log_refusal), later.
    pub(crate) fn allocate_unlogged(
        &self,
        spec: &AllocSpec<'_>,
        caller: Caller,
    ) -> Result<Dmem, RuntimeError> {
        let channel = self.channel(spec);
        let allocated = self.try_allocate(spec, channel, caller);
        allocated.inspect_err(|error| self.tell_failed(spec, channel, caller, error))
    }

    /// Tells of an allocation that cannot be, and gives the reason back.
    pub(crate) fn refuse(
        &self,
        spec: &AllocSpec<'_>,
        caller: Caller,
        error: RuntimeError,
    ) -> RuntimeError {
        self.tell_failed(spec, self.channel(spec), caller, &error);
        error
    }

    /// Logs why an allocation was refused, if that is for the log.
    pub(crate) fn log_refusal(&self, error: &RuntimeError) {
        let session = &self.device.session;
        match error {
            RuntimeError::DeviceMemory(report) => session.log_report(report),
            RuntimeError::HostMemory {
                size_bytes,
                events_file,
                explanation,
            } => {
                let file = events_file.as_deref();
                let lines = |context: &LogContext| host_failure(*size_bytes, file, context);
                session.log_lines(Level::Error, lines, explanation.as_deref());
            }
            RuntimeError::Exhausted {
                source,
                explanation,
            } => self.complain(&source.to_string(), Some(explanation)),
            RuntimeError::UsageRefused { usage, location } => {
                let number = usage.index();
                let message = format!("Invalid mem_usage_type {number} for {location}");
                self.complain(&message, None);
            }
            _ => {}
        }
    }

    /// The channel of an allocation.
    fn channel(&self, spec: &AllocSpec<'_>) -> Channel {
        let profile = self.device.ndl.profile();
        spec.channel.unwrap_or(profile.default_channel(self.core))
    }

    fn try_allocate(
        &self,
        spec: &AllocSpec<'_>,
        channel: Channel,
        caller: Caller,
    ) -> Result<Dmem, RuntimeError> {
        let ndl = &self.device.ndl;
        let channels = ndl.profile().region_bases.len();
        if channel.index() >= channels {
            return Err(RuntimeError::NoChannel {
                device: ndl.id(),
                channel,
                channels,
            });
        }
        let (usage, location) = (spec.usage, spec.location);
        let category = usage.category(location);
        let category = category.ok_or(RuntimeError::UsageRefused { usage, location })?;
        self.traced(spec, channel, || {
            let given = self.place(spec, channel, category)?;
            Ok(self.enter(spec, channel, given, caller))
        })
    }

    /// Asks the driver for an aligned block, or finds an aligned place in a larger one.
    fn place(
        &self,
        spec: &AllocSpec<'_>,
        channel: Channel,
        category: Category,
    ) -> Result<Given, RuntimeError> {
        let (size_bytes, align_bytes) = (spec.size_bytes, spec.align_bytes);
        let ask = |size_bytes, align_bytes| {
            let asked = AllocSpec {
                size_bytes,
                align_bytes,
                ..*spec
            };
            let given = self.try_ask(&asked, channel, category);
            given.map_err(|error| self.refused(spec, &asked, channel, error))
        };
        if align_bytes == 0 {
            return ask(size_bytes, 0);
        }
        // The driver aligns nothing on the host; to ask would only make it look too old.
        let is_device = spec.location == Location::Device;
        let driver_aligns = &self.device.session.driver_aligns;
        if is_device && driver_aligns.load(Ordering::Relaxed) {
            let answer = ask(size_bytes, align_bytes);
            let is_failure = matches!(&answer, Err(error) if error.status() == NrtStatus::Failure);
            // Out of memory is final, so that the report can name the alignment.
            if !is_failure {
                return answer;
            }
            if driver_aligns.swap(false, Ordering::Relaxed) {
                let message =
                    "The driver refuses aligned allocations; aligning in the runtime from now on";
                let session = &self.device.session;
                session.log(Level::Warn, "dmem_alloc_aligned", message);
            }
        }
        let padded_bytes = size_bytes.checked_add(align_bytes);
        let padded_bytes = padded_bytes.ok_or(RuntimeError::TooLarge {
            size_bytes,
            align_bytes,
        })?;
        let given = ask(padded_bytes, 0)?;
        Ok(Given {
            // Never 0: a block that happens to be aligned gives away one step, as in the reference.
            align_offset_bytes: align_bytes - given.pa.get() % align_bytes,
            ..given
        })
    }

    /// Asks the driver for a block, as `spec` says and no more.
    fn try_ask(
        &self,
        spec: &AllocSpec<'_>,
        channel: Channel,
        category: Category,
    ) -> Result<Given, NdlError> {
        let ndl = &self.device.ndl;
        let handle = ndl.allocate(&ChunkSpec {
            size_bytes: spec.size_bytes,
            align_bytes: spec.align_bytes,
            location: spec.location,
            channel,
            core: self.core,
            category,
        })?;
        let value = self.device.session.config().hbm_init_value;
        let value = value.filter(|_| spec.location == Location::Device && spec.size_bytes > 0);
        let filled = value.map_or(Ok(()), |value| ndl.fill(handle, 0, spec.size_bytes, value));
        let pa = filled.and_then(|()| ndl.physical_address(handle));
        let pa = pa.inspect_err(|_| {
            // The first error is the one that tells.
            let _ = ndl.free(handle);
        })?;
        Ok(Given {
            handle,
            pa,
            asked_bytes: spec.size_bytes,
            align_offset_bytes: 0,
        })
    }

    /// What a refusal of the driver means: of `asked`, for the sake of `wanted`. Want is explained.
    fn refused(
        &self,
        wanted: &AllocSpec<'_>,
        asked: &AllocSpec<'_>,
        channel: Channel,
        error: NdlError,
    ) -> RuntimeError {
        let device = &self.device;
        match (error.errno(), asked.location) {
            (Some(Errno::ENOMEM), Location::Device) => {
                let want = self.want(wanted, asked, channel, false);
                RuntimeError::DeviceMemory(Box::new(OomReport {
                    device: device.ndl.id(),
                    core: self.core,
                    channel,
                    asked_bytes: wanted.size_bytes,
                    align_bytes: wanted.align_bytes,
                    usage: wanted.usage,
                    hint: wanted.hint.map(str::to_owned),
                    lnc_size: device.lnc_size(),
                    table: device.dml.table(),
                    events_file: device.dump_events(),
                    chunks_file: device.dump_chunks(channel),
                    explanation: device.explain_bank(want),
                }))
            }
            (Some(Errno::ENOMEM), Location::Host) => RuntimeError::HostMemory {
                size_bytes: asked.size_bytes,
                explanation: device.explain_host(asked.size_bytes).map(Box::new),
                events_file: device.dump_events(),
            },
            // A handle is the one thing that the driver looks for and does not find.
            (Some(Errno::ENOENT), _) => match device.explain_handles() {
                Some(explanation) => RuntimeError::Exhausted {
                    source: error,
                    explanation: Box::new(explanation),
                },
                None => error.into(),
            },
            _ => error.into(),
        }
    }

    /// What an explanation is about.
    fn want(
        &self,
        wanted: &AllocSpec<'_>,
        asked: &AllocSpec<'_>,
        channel: Channel,
        is_scratchpad_page: bool,
    ) -> Request {
        Request {
            device: self.device.ndl.id(),
            core: self.core,
            channel,
            asked_bytes: wanted.size_bytes,
            align_bytes: wanted.align_bytes,
            driver_bytes: asked.size_bytes,
            driver_align_bytes: asked.align_bytes,
            usage: wanted.usage,
            hint: wanted.hint.map(str::to_owned),
            is_scratchpad_page,
        }
    }

    fn complain(&self, message: &str, explanation: Option<&Explanation>) {
        let session = &self.device.session;
        session.log_explained(Level::Error, "dmem_alloc_internal", message, explanation);
    }

    /// Keeps the books, and lists the allocation.
    fn enter(&self, spec: &AllocSpec<'_>, channel: Channel, given: Given, caller: Caller) -> Dmem {
        let facts = Allocation {
            size_bytes: spec.size_bytes,
            allocated_bytes: given.asked_bytes,
            pa: given.pa,
            align_offset_bytes: given.align_offset_bytes,
            location: spec.location,
            usage: spec.usage,
            core: self.core,
            channel,
            model: match self.owner {
                Owner::Core => None,
                Owner::Model { id, .. } => Some(id),
            },
            hint: spec.hint.map(Arc::from),
            site: Some(spec.site(caller)),
        };
        let entered = self.device.dml.enter(self.list.id, given.handle, &facts);
        let block = self.list.make(given.handle, facts, entered);
        self.tell_allocated(&block);
        Dmem(block)
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        match self.owner {
            Owner::Model { id, .. } => {
                let left = self.list.take_back();
                left.iter().for_each(|block| block.release());
                self.device.dml.remove_model(id);
                self.device.tell(|| {
                    let core = Some(self.core);
                    let ids = Ids {
                        core,
                        ..Ids::default()
                    };
                    (ids, Event::ModelUnloaded { model: id.0 })
                });
            }
            Owner::Core => {
                let (count, bytes) = self.device.dml.live(self.list.id);
                if count > 0 {
                    let (device, core) = (self.device.ndl.id(), self.core);
                    let message =
                        format!("{count} allocations ({bytes} bytes) are left on {device}, {core}");
                    let session = &self.device.session;
                    session.log(Level::Warn, "dmem_allocator_destroy", &message);
                }
            }
        }
    }
}
