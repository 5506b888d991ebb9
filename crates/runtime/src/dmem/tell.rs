//! What allocations and copies tell of themselves, as events.

use glia_abi::event::{CopyPath, CopyWay, Event, Ids};
use glia_abi::handle::Channel;
use glia_abi::nrt::NrtStatus;

use super::AllocSpec;
use super::allocator::{Allocator, Owner};
use super::block::Block;
use crate::error::RuntimeError;

impl Allocator {
    pub(super) fn tell_allocated(&self, block: &Block) {
        self.device.tell(|| {
            let facts = &block.facts;
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
            };
            (block.ids(), event)
        });
    }

    pub(super) fn tell_failed(&self, spec: &AllocSpec<'_>, channel: Channel, error: &RuntimeError) {
        self.device.tell(|| {
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
                status: error.status(),
            };
            (ids, event)
        });
    }
}

impl Block {
    pub(super) fn tell_freed(&self, freed: &Result<(), RuntimeError>) {
        self.device.tell(|| {
            let event = Event::Freed {
                size_bytes: self.facts.size_bytes,
                allocated_bytes: self.facts.allocated_bytes,
                location: self.facts.location,
                usage: self.facts.usage,
                status: status(freed),
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
        self.device.tell(|| {
            let event = Event::Copied {
                way,
                path,
                offset_bytes,
                size_bytes,
                status: status(copied),
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

/// What a call that ended so answers.
fn status(outcome: &Result<(), RuntimeError>) -> NrtStatus {
    match outcome {
        Ok(()) => NrtStatus::Success,
        Err(error) => error.status(),
    }
}
