//! What the driver tells of files, claims and chunks, as events.

use glia_abi::event::{Event, Ids, NameId};
use glia_abi::transport::Caller;

use super::{Device, Driver};
use crate::chunk::{Chunk, ChunkRef};
use crate::claims::ClaimError;
use crate::site::SiteId;

impl Driver {
    pub(super) fn tell(&self, ids: &Ids, event: &Event) {
        if self.is_heard {
            self.sink.event(self.sched.now(), ids, event);
        }
    }

    /// Tells of a claim of cores that was refused because of another process.
    pub(crate) fn tell_refused(&self, device: &Device, caller: &Caller<'_>, refused: &ClaimError) {
        let ClaimError::TooFew {
            count,
            longest,
            holder: Some((core, holder)),
            ..
        } = *refused
        else {
            return;
        };
        let ids = Ids {
            process: Some(caller.pid),
            ..device.core_ids(core)
        };
        let event = Event::ClaimRefused {
            cores: count,
            longest,
            holder,
        };
        self.tell(&ids, &event);
    }

    /// Tells of a chunk that has just come to life, unless it has died again.
    pub(crate) fn tell_taken(&self, device: &Device, chunk: ChunkRef) {
        if !self.is_heard {
            return;
        }
        if let Some(record) = device.memory.chunk(chunk) {
            let event = Event::ChunkTaken {
                at: record.at(),
                size_bytes: record.size_bytes(),
                location: record.location(),
                category: record.category(),
                site: self.site_name(device, record.site()),
            };
            self.tell(&device.chunk_ids(chunk, &record), &event);
        }
    }

    /// The sink's number for a site; `None` if the caller did not say where it is.
    fn site_name(&self, device: &Device, site: SiteId) -> Option<NameId> {
        if site == SiteId::UNKNOWN {
            return None;
        }
        let text = device.memory.sites().name(site)?;
        self.sink.name(&text)
    }

    /// Tells of a chunk whose life has ended.
    pub(crate) fn tell_freed(&self, device: &Device, chunk: ChunkRef, record: &Chunk) {
        let event = Event::ChunkFreed {
            size_bytes: record.size_bytes(),
            location: record.location(),
        };
        self.tell(&device.chunk_ids(chunk, record), &event);
    }

    pub(super) fn tell_gone(&self, device: &Device, gone: &[(ChunkRef, Chunk)]) {
        for (chunk, record) in gone {
            self.tell_freed(device, *chunk, record);
        }
    }
}
