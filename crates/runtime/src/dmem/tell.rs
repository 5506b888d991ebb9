//! What allocations and copies tell of themselves: events, and events of the reference's trace.

use glia_abi::addr::BusAddr;
use glia_abi::event::{CopyPath, CopyWay, Event, Ids};
use glia_abi::handle::Channel;
use glia_abi::mem::Location;
use glia_abi::nrt::NrtStatus;

use super::allocator::{Allocator, Caller, Owner, Refusal};
use super::block::Block;
use super::{AllocSpec, Dmem};
use crate::dml::Site;
use crate::error::RuntimeError;
use crate::trace::{AllocStart, AllocStop, CopyStart, FreeStart, MemoryEnd, Stop, TraceId};

impl Allocator {
    /// Does an allocation as an event of a trace, if it is one of device memory.
    pub(super) fn traced(
        &self,
        spec: &AllocSpec<'_>,
        channel: Channel,
        allocate: impl FnOnce() -> Result<Dmem, Refusal>,
    ) -> Result<Dmem, Refusal> {
        if spec.location == Location::Host {
            return allocate();
        }
        let device = &self.device;
        let start = || AllocStart {
            device: device.ndl.id(),
            channel,
            usage: spec.usage,
            is_core_hbm: channel == device.ndl.profile().default_channel(self.core),
            is_aligned: spec.align_bytes > 0,
        };
        let stop = |allocated: &Result<Dmem, Refusal>| {
            let facts = allocated.as_ref().ok().map(Dmem::facts);
            let (usage_bytes, total_bytes) = device.dml.core_bytes(self.core, spec.usage);
            AllocStop {
                allocated_bytes: facts.map_or(0, |facts| facts.allocated_bytes),
                pa: facts.map_or(BusAddr::new(0), |facts| facts.pa),
                end: MemoryEnd {
                    status: match allocated {
                        Ok(_) => NrtStatus::Success,
                        Err(refusal) => refusal.status(),
                    },
                    usage_bytes,
                    total_bytes,
                },
            }
        };
        let session = &device.session;
        session.traced(TraceId::DeviceAlloc, start, allocate, stop)
    }

    pub(super) fn tell_allocated(&self, block: &Block) {
        self.device.tell(|| {
            let facts = &block.facts;
            let site = facts.site.as_ref().map(Site::to_string);
            let event = Event::Allocated {
                at: facts.first_byte(),
                size_bytes: facts.size_bytes,
                allocated_bytes: facts.allocated_bytes,
                location: facts.location,
                usage: facts.usage,
                model: facts.model.map(|id| id.0),
                model_name: match self.owner {
                    Owner::Core => None,
                    Owner::Model { model_name, .. } => model_name,
                },
                hint: self.device.name(facts.hint.as_deref()),
                site: site
                    .as_deref()
                    .and_then(|site| self.device.name(Some(site))),
            };
            (block.ids(), event)
        });
    }

    pub(super) fn tell_failed(
        &self,
        spec: &AllocSpec<'_>,
        channel: Channel,
        caller: Caller,
        error: &RuntimeError,
    ) {
        self.device.tell(|| {
            let site = spec.asked_at(caller).to_string();
            let ids = Ids {
                core: Some(self.core),
                channel: Some(channel),
                ..Ids::default()
            };
            let event = Event::AllocationFailed {
                size_bytes: spec.size_bytes,
                align_bytes: spec.align_bytes,
                location: spec.location,
                usage: spec.usage,
                hint: self.device.name(spec.hint),
                site: self.device.name(Some(&site)),
                status: error.status(),
            };
            (ids, event)
        });
    }
}

impl Block {
    /// Gives memory back as an event of a trace, if it is device memory.
    pub(super) fn traced_free(
        &self,
        free: impl FnOnce() -> Result<(), RuntimeError>,
    ) -> Result<(), RuntimeError> {
        let (device, facts) = (self.device(), &self.facts);
        if facts.location == Location::Host {
            return free();
        }
        let start = || FreeStart {
            pa: facts.pa,
            allocated_bytes: facts.allocated_bytes,
            channel: facts.channel,
            device: device.ndl.id(),
        };
        let stop = |freed: &Result<(), RuntimeError>| {
            let (usage_bytes, total_bytes) = device.dml.core_bytes(facts.core, facts.usage);
            MemoryEnd {
                status: RuntimeError::status_of(freed),
                usage_bytes,
                total_bytes,
            }
        };
        let session = &device.session;
        session.traced(TraceId::DeviceFree, start, free, stop)
    }

    /// Copies bytes of the program's as an event of a trace. The range is an offset in the
    /// allocation, and bytes.
    pub(super) fn traced_copy(
        &self,
        way: CopyWay,
        (offset_bytes, size_bytes): (u64, u64),
        copy: impl FnOnce() -> Result<(), RuntimeError>,
    ) -> Result<(), RuntimeError> {
        let id = match way {
            CopyWay::In => TraceId::CopyIn,
            CopyWay::Out => TraceId::CopyOut,
        };
        let start = || CopyStart {
            pa: self.facts.first_byte(),
            offset_bytes,
            size_bytes,
            core: self.facts.core,
            device: self.device().ndl.id(),
        };
        self.device().session.traced(id, start, copy, Stop::of)
    }

    pub(super) fn tell_freed(&self, freed: &Result<(), RuntimeError>) {
        self.device().tell(|| {
            let event = Event::Freed {
                size_bytes: self.facts.size_bytes,
                allocated_bytes: self.facts.allocated_bytes,
                location: self.facts.location,
                usage: self.facts.usage,
                status: RuntimeError::status_of(freed),
            };
            (self.ids(), event)
        });
    }

    /// The range is an offset in the allocation, and bytes.
    pub(crate) fn tell_copied(
        &self,
        (way, path): (CopyWay, CopyPath),
        (offset_bytes, size_bytes): (u64, u64),
        copied: &Result<(), RuntimeError>,
    ) {
        self.device().tell(|| {
            let event = Event::Copied {
                way,
                path,
                offset_bytes,
                size_bytes,
                status: RuntimeError::status_of(copied),
            };
            (self.ids(), event)
        });
    }

    fn ids(&self) -> Ids {
        Ids {
            core: Some(self.facts.core),
            channel: Some(self.facts.channel),
            handle: Some(self.handle),
            ..Ids::default()
        }
    }
}
