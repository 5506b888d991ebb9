//! Allocators: from what is asked for to a block of the driver's, and what is left at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::event::{Event, Ids, NameId};
use glia_abi::handle::{Channel, CoreId, McHandle};
use glia_abi::mem::Location;
use glia_abi::nrt::NrtStatus;
use glia_abi::usage::Category;

use super::{AllocSpec, Dmem, List};
use crate::dml::{Allocation, Level, LogContext, ModelId, OomReport, host_failure};
use crate::error::RuntimeError;
use crate::explanation::{Explanation, Piece, Request};
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

/// An allocation that cannot be, as long as nobody was told of it.
pub(crate) enum Refusal {
    /// The driver gave no block of so many bytes.
    Driver {
        error: NdlError,
        asked_bytes: u64,
        asked_align_bytes: u64,
    },
    /// Anything else.
    Other(RuntimeError),
}

impl Refusal {
    /// Whether it is the driver's want of memory.
    pub(crate) fn is_want(&self) -> bool {
        matches!(self, Self::Driver { error, .. } if error.errno() == Some(Errno::ENOMEM))
    }

    /// Whether the driver refused the block, and not for want of memory.
    fn is_failed_call(&self) -> bool {
        matches!(self, Self::Driver { .. }) && !self.is_want()
    }

    /// Whether the driver gave the same answer.
    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Driver { error, .. }, Self::Driver { error: other, .. }) => error == other,
            _ => false,
        }
    }

    /// The status of device memory that was refused so.
    pub(super) fn status(&self) -> NrtStatus {
        match self {
            Self::Other(error) => error.status(),
            Self::Driver { .. } if self.is_want() => NrtStatus::Resource,
            Self::Driver { .. } => NrtStatus::Failure,
        }
    }
}

/// What must be had together with a block for anybody to be helped; by itself nothing.
#[derive(Default)]
pub(crate) struct Whole {
    /// All blocks that are wanting, in the order in which the driver is asked.
    pub(crate) pieces: Vec<Piece>,
    /// Blocks that are there for it, by address: to free one makes one more be wanting.
    pub(crate) kept: Vec<BusAddr>,
    /// The model that all this is for, which is not to be unloaded for it.
    pub(crate) model: Option<ModelId>,
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

    /// The model that it lives with.
    pub(crate) fn model(&self) -> Option<ModelId> {
        match self.owner {
            Owner::Core => None,
            Owner::Model { id, .. } => Some(id),
        }
    }

    /// Takes a page of a contiguous scratchpad, which the driver places by rules of its own. A
    /// refusal is to be [explained](Self::explain).
    pub(crate) fn try_allocate_page(
        &self,
        spec: &AllocSpec<'_>,
        caller: Caller,
    ) -> Result<Dmem, Refusal> {
        let channel = self.channel(spec);
        let category = Category::CONTIGUOUS_SCRATCHPAD_DEVICE;
        self.traced(spec, channel, || {
            let given = self.ask(spec, channel, category)?;
            Ok(self.enter(spec, channel, given, caller))
        })
    }

    pub(crate) fn allocate(
        &self,
        spec: &AllocSpec<'_>,
        caller: Caller,
    ) -> Result<Dmem, RuntimeError> {
        let allocated = self.try_allocate(spec, caller);
        allocated.map_err(|refusal| {
            let error = self.explain(spec, refusal, &Whole::default());
            self.tell(spec, caller, error)
        })
    }

    /// The channel of an allocation.
    fn channel(&self, spec: &AllocSpec<'_>) -> Channel {
        let profile = self.device.ndl.profile();
        spec.channel.unwrap_or(profile.default_channel(self.core))
    }

    /// Allocates, and tells nobody of a refusal: that is to be [explained](Self::explain) and
    /// [told](Self::tell).
    pub(crate) fn try_allocate(
        &self,
        spec: &AllocSpec<'_>,
        caller: Caller,
    ) -> Result<Dmem, Refusal> {
        let channel = self.channel(spec);
        let ndl = &self.device.ndl;
        let channels = ndl.profile().region_bases.len();
        if channel.index() >= channels {
            let device = ndl.id();
            return Err(Refusal::Other(RuntimeError::NoChannel {
                device,
                channel,
                channels,
            }));
        }
        let (usage, location) = (spec.usage, spec.location);
        let Some(category) = usage.category(location) else {
            let refused = RuntimeError::UsageRefused { usage, location };
            return Err(Refusal::Other(refused));
        };
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
    ) -> Result<Given, Refusal> {
        let (size_bytes, align_bytes) = (spec.size_bytes, spec.align_bytes);
        // The driver aligns nothing on the host; to ask would only make it look too old.
        let is_device = spec.location == Location::Device;
        let driver_aligns = &self.device.session.driver_aligns;
        let mut aligned = None;
        if align_bytes == 0 || is_device && driver_aligns.load(Ordering::Relaxed) {
            match self.ask(spec, channel, category) {
                // Out of memory is final, so that the report can name the alignment.
                Err(refusal) if align_bytes > 0 && refusal.is_failed_call() => {
                    aligned = Some(refusal);
                }
                answer => return answer,
            }
        }
        let padded_bytes = size_bytes.checked_add(align_bytes);
        let padded_bytes = padded_bytes.ok_or(Refusal::Other(RuntimeError::TooLarge {
            size_bytes,
            align_bytes,
        }))?;
        let padded = AllocSpec {
            size_bytes: padded_bytes,
            align_bytes: 0,
            ..*spec
        };
        let given = self.ask(&padded, channel, category);
        if let Some(aligned) = aligned {
            // What is refused without an alignment, too, says nothing about alignments.
            if given.as_ref().is_err_and(|other| aligned.is_alike(other)) {
                return Err(aligned);
            }
            self.align_from_now_on();
        }
        let given = given?;
        Ok(Given {
            // Never 0: a block that happens to be aligned gives away one step, as in the reference.
            align_offset_bytes: align_bytes - given.pa.get() % align_bytes,
            ..given
        })
    }

    /// Remembers that the driver does not understand alignments.
    fn align_from_now_on(&self) {
        let session = &self.device.session;
        if session.driver_aligns.swap(false, Ordering::Relaxed) {
            let message =
                "The driver refuses aligned allocations; aligning in the runtime from now on";
            session.log(Level::Warn, "dmem_alloc_aligned", message);
        }
    }

    /// Asks the driver for a block, as `spec` says and no more.
    fn ask(
        &self,
        spec: &AllocSpec<'_>,
        channel: Channel,
        category: Category,
    ) -> Result<Given, Refusal> {
        let ndl = &self.device.ndl;
        let given = ndl.allocate(&ChunkSpec {
            size_bytes: spec.size_bytes,
            align_bytes: spec.align_bytes,
            location: spec.location,
            channel,
            core: self.core,
            category,
        });
        let handle = given.map_err(|error| Refusal::Driver {
            error,
            asked_bytes: spec.size_bytes,
            asked_align_bytes: spec.align_bytes,
        })?;
        let value = self.device.session.config().hbm_init_value;
        let value = value.filter(|_| spec.location == Location::Device && spec.size_bytes > 0);
        let filled = value.map_or(Ok(()), |value| ndl.fill(handle, 0, spec.size_bytes, value));
        let pa = filled.and_then(|()| ndl.physical_address(handle));
        let pa = pa.map_err(|error| {
            // The first error is the one that tells. There was a block: whatever this wants, it is
            // not that.
            let _ = ndl.free(handle);
            Refusal::Other(error.into())
        })?;
        Ok(Given {
            handle,
            pa,
            asked_bytes: spec.size_bytes,
            align_offset_bytes: 0,
        })
    }

    /// What a refusal means. Want is explained by how things are at this moment, for all that had to
    /// be had: whoever has taken something for it gives that back before.
    pub(crate) fn explain(
        &self,
        spec: &AllocSpec<'_>,
        refusal: Refusal,
        whole: &Whole,
    ) -> RuntimeError {
        let (error, asked_bytes, asked_align_bytes) = match refusal {
            Refusal::Driver {
                error,
                asked_bytes,
                asked_align_bytes,
            } => (error, asked_bytes, asked_align_bytes),
            Refusal::Other(error) => return error,
        };
        let device = &self.device;
        let channel = self.channel(spec);
        match (error.errno(), spec.location) {
            (Some(Errno::ENOMEM), Location::Device) => {
                let request = self.request(spec, (asked_bytes, asked_align_bytes), whole);
                RuntimeError::DeviceMemory(Box::new(OomReport {
                    device: device.ndl.id(),
                    core: self.core,
                    channel,
                    asked_bytes: spec.size_bytes,
                    align_bytes: spec.align_bytes,
                    usage: spec.usage,
                    hint: spec.hint.map(str::to_owned),
                    lnc_size: device.lnc_size(),
                    table: device.dml.table(),
                    events_file: None,
                    chunks_file: None,
                    explanation: device.explain_bank(request),
                }))
            }
            (Some(Errno::ENOMEM), Location::Host) => RuntimeError::HostMemory {
                size_bytes: asked_bytes,
                explanation: device.explain_host(asked_bytes).map(Box::new),
                events_file: None,
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

    /// Why so many bytes below the pages of a contiguous scratchpad could not be had.
    pub(crate) fn explain_pages(
        &self,
        spec: &AllocSpec<'_>,
        whole: &Whole,
    ) -> Option<Box<Explanation>> {
        let request = Request {
            is_scratchpad_page: true,
            ..self.request(spec, (spec.size_bytes, 0), whole)
        };
        self.device.explain_bank(request).map(Box::new)
    }

    /// So many of what the driver would be asked for.
    pub(crate) fn piece(&self, spec: &AllocSpec<'_>, blocks: u64) -> Piece {
        let driver_aligns = &self.device.session.driver_aligns;
        let (size_bytes, align_bytes) = match driver_aligns.load(Ordering::Relaxed) {
            true => (spec.size_bytes, spec.align_bytes),
            false => (spec.size_bytes.saturating_add(spec.align_bytes), 0),
        };
        Piece {
            blocks,
            size_bytes,
            align_bytes,
        }
    }

    /// What an explanation is about; what the driver was asked for is bytes and their alignment.
    fn request(
        &self,
        spec: &AllocSpec<'_>,
        (driver_bytes, driver_align_bytes): (u64, u64),
        whole: &Whole,
    ) -> Request {
        Request {
            device: self.device.ndl.id(),
            core: self.core,
            lnc_size: self.device.lnc_size(),
            channel: self.channel(spec),
            asked_bytes: spec.size_bytes,
            align_bytes: spec.align_bytes,
            driver_bytes,
            driver_align_bytes,
            usage: spec.usage,
            hint: spec.hint.map(str::to_owned),
            is_scratchpad_page: false,
            whole: whole.pieces.clone(),
            kept: whole.kept.clone(),
            model: whole.model.or_else(|| self.model()),
        }
    }

    /// Tells of an allocation that cannot be, with the files that belong to that, and gives the reason
    /// back. This may take its time: not under a lock.
    pub(crate) fn tell(
        &self,
        spec: &AllocSpec<'_>,
        caller: Caller,
        mut error: RuntimeError,
    ) -> RuntimeError {
        let device = &self.device;
        let session = &device.session;
        match &mut error {
            RuntimeError::DeviceMemory(report) => {
                report.events_file = device.dump_events();
                report.chunks_file = device.dump_chunks(report.channel);
                session.log_report(report);
            }
            RuntimeError::HostMemory {
                size_bytes,
                explanation,
                events_file,
            } => {
                *events_file = device.dump_events();
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
        self.tell_failed(spec, self.channel(spec), caller, &error);
        error
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
            model: self.model(),
            hint: spec.hint.map(Arc::from),
            site: Some(spec.asked_at(caller)),
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
