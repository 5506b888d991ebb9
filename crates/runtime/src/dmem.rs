//! dmem: allocations of device-visible memory.
//!
//! An allocator belongs to a core or to a loaded model. The way of an allocation:
//!
//! 1. what it is for becomes the driver's category; some usages are not allowed on the host;
//! 2. the driver is asked, with the alignment if there is one. A driver that does not understand
//!    alignments is remembered, and from then on the runtime asks for more and aligns by itself;
//! 3. a refusal for want of memory becomes a report (device) or a line (host);
//! 4. the address is asked for, the books are kept ([`dml`](crate::dml)), the allocator lists it.
//!
//! What becomes of an allocation, its end and each copy are told as events, failures too. An access
//! that is refused before any byte moves is not.
//!
//! A [`Dmem`] is a reference; clones are more. With the last one the memory goes back: to the
//! driver, then in the books. A model that is dropped takes its memory with it; references that are
//! left answer [`RuntimeError::Gone`].
//!
//! Bytes go through the core's copy buffer, or through a mapping for host memory.
//!
//! **Locks.** The list and each reference have a plain mutex, never held during a call into the
//! driver. An access holds the block it works on, so memory that is freed meanwhile goes back when
//! the access is over.

mod copy;
mod tell;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use glia_abi::addr::{BusAddr, access_fits};
use glia_abi::errno::Errno;
use glia_abi::event::{CopyWay, Event, Ids, NameId};
use glia_abi::handle::{Channel, CoreId, McHandle};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::transport::Mapping;
use glia_abi::usage::Category;

use crate::dml::{Action, Allocation, Level, ModelId, OomReport, host_failure};
use crate::error::RuntimeError;
use crate::ndl::{ChunkSpec, NdlError};
use crate::runtime::OpenDevice;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocSpec<'a> {
    /// Bytes.
    pub size_bytes: u64,
    /// Alignment of the first byte, 0 for none.
    pub align_bytes: u64,
    /// What for.
    pub usage: MemUsage,
    /// Host memory or HBM.
    pub location: Location,
    /// The HBM channel; `None` for the core's own.
    pub channel: Option<Channel>,
    /// What the caller calls it.
    pub hint: Option<&'a str>,
}

impl AllocSpec<'_> {
    /// HBM of the core's channel, not aligned, without a name.
    #[must_use]
    pub const fn device(size_bytes: u64, usage: MemUsage) -> Self {
        Self {
            size_bytes,
            align_bytes: 0,
            usage,
            location: Location::Device,
            channel: None,
            hint: None,
        }
    }
}

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
    device: Arc<OpenDevice>,
    core: CoreId,
    owner: Owner,
    list: Arc<List>,
}

/// The live allocations of an allocator, in the order in which they were made.
#[derive(Default)]
struct List(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    slots: BTreeMap<u64, Weak<Slot>>,
    next: u64,
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Vec<Arc<Slot>> {
        self.lock()
            .slots
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }
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
        Self {
            device,
            core,
            owner,
            list: Arc::default(),
        }
    }

    pub(crate) fn device(&self) -> &OpenDevice {
        &self.device
    }

    pub(crate) fn allocate(&self, spec: &AllocSpec<'_>) -> Result<Dmem, RuntimeError> {
        let channel = self.channel(spec);
        let allocated = self.try_allocate(spec, channel);
        allocated.inspect_err(|error| self.tell_failed(spec, channel, error))
    }

    /// Tells of an allocation that cannot be, and gives the reason back.
    pub(crate) fn refuse(&self, spec: &AllocSpec<'_>, error: RuntimeError) -> RuntimeError {
        self.tell_failed(spec, self.channel(spec), &error);
        error
    }

    /// The channel of an allocation.
    fn channel(&self, spec: &AllocSpec<'_>) -> Channel {
        let profile = self.device.ndl.profile();
        spec.channel.unwrap_or(profile.default_channel(self.core))
    }

    fn try_allocate(&self, spec: &AllocSpec<'_>, channel: Channel) -> Result<Dmem, RuntimeError> {
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
        let Some(category) = usage.category(location) else {
            let number = usage.index();
            let message = format!("Invalid mem_usage_type {number} for {location}");
            self.complain(&message);
            return Err(RuntimeError::UsageRefused { usage, location });
        };
        let given = self.place(spec, channel, category)?;
        Ok(self.enter(spec, channel, given))
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
            let spec = AllocSpec {
                size_bytes,
                align_bytes,
                ..*spec
            };
            self.ask(&spec, channel, category)
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
    fn ask(
        &self,
        spec: &AllocSpec<'_>,
        channel: Channel,
        category: Category,
    ) -> Result<Given, RuntimeError> {
        let ndl = &self.device.ndl;
        let chunk = ChunkSpec {
            size_bytes: spec.size_bytes,
            align_bytes: spec.align_bytes,
            location: spec.location,
            channel,
            core: self.core,
            category,
        };
        let handle = ndl.allocate(&chunk);
        let handle = handle.map_err(|error| self.refused(spec, channel, error))?;
        match ndl.physical_address(handle) {
            Ok(pa) => Ok(Given {
                handle,
                pa,
                asked_bytes: spec.size_bytes,
                align_offset_bytes: 0,
            }),
            Err(error) => {
                // The first error is the one that tells.
                let _ = ndl.free(handle);
                Err(error.into())
            }
        }
    }

    /// What a refusal of the driver means. Want of memory is logged.
    fn refused(&self, spec: &AllocSpec<'_>, channel: Channel, error: NdlError) -> RuntimeError {
        if error.errno() != Some(Errno::ENOMEM) {
            return error.into();
        }
        let size_bytes = spec.size_bytes;
        match spec.location {
            Location::Device => {
                let report = OomReport {
                    device: self.device.ndl.id(),
                    core: self.core,
                    channel,
                    asked_bytes: size_bytes,
                    align_bytes: spec.align_bytes,
                    usage: spec.usage,
                    hint: spec.hint.map(str::to_owned),
                    // A core is a physical one here.
                    lnc_size: 1,
                    table: self.device.dml.table(),
                };
                self.device.session.log_report(&report);
                RuntimeError::DeviceMemory(Box::new(report))
            }
            Location::Host => {
                self.complain(&host_failure(size_bytes));
                RuntimeError::HostMemory { size_bytes }
            }
        }
    }

    fn complain(&self, message: &str) {
        let session = &self.device.session;
        session.log(Level::Error, "dmem_alloc_internal", message);
    }

    /// Keeps the books, and lists the allocation.
    fn enter(&self, spec: &AllocSpec<'_>, channel: Channel, given: Given) -> Dmem {
        let facts = Arc::new(Allocation {
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
            hint: spec.hint.map(Box::from),
        });
        self.device.dml.record(Action::Alloc, &facts);
        let block = Arc::new(Block {
            device: Arc::clone(&self.device),
            handle: given.handle,
            facts: Arc::clone(&facts),
            mapping: OnceLock::new(),
        });
        self.tell_allocated(&block);
        let mut listed = self.list.lock();
        let serial = listed.next;
        listed.next += 1;
        let slot = Arc::new(Slot {
            facts,
            block: Mutex::new(Some(block)),
            list: Arc::clone(&self.list),
            serial,
        });
        listed.slots.insert(serial, Arc::downgrade(&slot));
        Dmem(slot)
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        let left = self.list.live();
        match self.owner {
            Owner::Model { id, .. } => {
                left.iter().for_each(|slot| slot.release());
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
            Owner::Core if left.is_empty() => {}
            Owner::Core => {
                let sizes = left.iter().map(|slot| slot.facts.allocated_bytes);
                let bytes: u64 = sizes.fold(0, u64::saturating_add);
                let (count, device, core) = (left.len(), self.device.ndl.id(), self.core);
                let message =
                    format!("{count} allocations ({bytes} bytes) are left on {device}, {core}");
                let session = &self.device.session;
                session.log(Level::Warn, "dmem_allocator_destroy", &message);
            }
        }
    }
}

/// What a [`Dmem`] and its clones share.
struct Slot {
    facts: Arc<Allocation>,
    /// `None` when it went with its model.
    block: Mutex<Option<Arc<Block>>>,
    list: Arc<List>,
    serial: u64,
}

impl Slot {
    /// Gives the memory back, as soon as nobody is reading or writing it.
    fn release(&self) {
        // Two statements: the lock is let go before the driver is called.
        let block = self.block().take();
        drop(block);
    }

    fn block(&self) -> MutexGuard<'_, Option<Arc<Block>>> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.release();
        self.list.lock().slots.remove(&self.serial);
    }
}

/// The memory itself.
struct Block {
    device: Arc<OpenDevice>,
    handle: McHandle,
    facts: Arc<Allocation>,
    /// Host memory is mapped at the first access.
    mapping: OnceLock<Arc<dyn Mapping>>,
}

impl Block {
    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        let size_bytes = into.len() as u64;
        let copied = match self.facts.location {
            Location::Device => copy::copy_out(self, offset_bytes, into),
            Location::Host => self.mapping().and_then(|mapping| {
                let outcome = mapping.read(self.raw_offset(offset_bytes), into);
                crate::ndl::mapped(self.device.ndl.id(), outcome)
            }),
        };
        let copied = copied.map_err(RuntimeError::from);
        self.tell_copied(CopyWay::Out, offset_bytes, size_bytes, &copied);
        copied
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        let copied = match self.facts.location {
            Location::Device => copy::copy_in(self, offset_bytes, bytes),
            Location::Host => self.mapping().and_then(|mapping| {
                let outcome = mapping.write(self.raw_offset(offset_bytes), bytes);
                crate::ndl::mapped(self.device.ndl.id(), outcome)
            }),
        };
        let copied = copied.map_err(RuntimeError::from);
        self.tell_copied(CopyWay::In, offset_bytes, bytes.len() as u64, &copied);
        copied
    }

    /// Offset in the raw block. The driver has given size and alignment offset together, so the sum
    /// of an offset in bounds does not wrap.
    fn raw_offset(&self, offset_bytes: u64) -> u64 {
        self.facts.align_offset_bytes + offset_bytes
    }

    fn mapping(&self) -> Result<&Arc<dyn Mapping>, NdlError> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping);
        }
        let mapping = self
            .device
            .ndl
            .map(self.handle, self.facts.allocated_bytes)?;
        // Whoever was faster has mapped the same bytes.
        Ok(self.mapping.get_or_init(|| mapping))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Unmap before the memory goes back.
        self.mapping.take();
        let ndl = &self.device.ndl;
        let freed = ndl.free(self.handle).map_err(RuntimeError::from);
        if let Err(error) = &freed {
            let session = &self.device.session;
            session.log(Level::Error, "dmem_free", &error.to_string());
        }
        self.device.dml.record(Action::Free, &self.facts);
        self.tell_freed(&freed);
    }
}

/// A reference to an allocation; clones are more references to the same. The memory goes back with
/// the last one.
#[derive(Clone)]
pub struct Dmem(Arc<Slot>);

impl Dmem {
    /// Bytes, as asked for.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.0.facts.size_bytes
    }

    /// The first byte that is used, as the device sees it.
    #[must_use]
    pub fn pa(&self) -> BusAddr {
        self.0.facts.first_byte()
    }

    /// All facts of the allocation.
    #[must_use]
    pub fn facts(&self) -> &Allocation {
        &self.0.facts
    }

    /// Writes bytes at an offset. Nothing to write is no error and no access.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfBounds`]; [`RuntimeError::Gone`] if its model was unloaded;
    /// [`RuntimeError::Driver`] if a copy failed, and then some of the bytes may have been written.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        let block = self.access(offset_bytes, bytes.len())?;
        if !bytes.is_empty() {
            block.write(offset_bytes, bytes)?;
        }
        Ok(())
    }

    /// Reads bytes from an offset. Nothing to read is no error and no access.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfBounds`]; [`RuntimeError::Gone`] if its model was unloaded;
    /// [`RuntimeError::Driver`] if a copy failed, and then the bytes before it have been read.
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        let block = self.access(offset_bytes, into.len())?;
        if !into.is_empty() {
            block.read(offset_bytes, into)?;
        }
        Ok(())
    }

    fn access(&self, offset_bytes: u64, size: usize) -> Result<Arc<Block>, RuntimeError> {
        let block = self.0.block().clone().ok_or(RuntimeError::Gone)?;
        let (size_bytes, limit_bytes) = (size as u64, self.size_bytes());
        if !access_fits(offset_bytes, size_bytes, limit_bytes) {
            return Err(RuntimeError::OutOfBounds {
                offset_bytes,
                size_bytes,
                limit_bytes,
            });
        }
        Ok(block)
    }
}
