//! A device of the driver: its memory, its op layer, and what processes share of it.

use std::sync::Arc;

use glia_abi::addr::BusAddr;
use glia_abi::event::Ids;
use glia_abi::fault::{Entered, Scope};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::sched::{Sched, SleepLock};
use glia_abi::transport::Caller;

use crate::chunk::{Chunk, ChunkRef};
use crate::core_init::CoreInit;
use crate::datastore::Datastore;
use crate::dma::Dma;
use crate::memory::{DeviceMemory, OwnedPin};
use crate::model_lock::ModelLocks;
use crate::site::SiteId;

/// One device.
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    pub(crate) memory: Arc<DeviceMemory>,
    pub(crate) dma: Arc<Dma>,
    pub(crate) locks: ModelLocks,
    pub(crate) init: CoreInit,
    pub(crate) datastore: Datastore,
    /// Held by whoever opens or closes the device, before any other lock.
    pub(super) door: SleepLock<()>,
    /// What bounce buffers are taken for.
    pub(crate) bounce_site: SiteId,
    /// The firmware's memory, which stays its own whatever becomes of the chunk.
    pub(super) _carveouts: Vec<OwnedPin>,
}

impl Device {
    /// How many cores the devices before this one have, which is where its own begin in the table
    /// of [claims](crate::claims).
    pub(crate) fn first_core(&self) -> u32 {
        let profile = self.memory.config().layout.profile();
        self.id.get().saturating_mul(profile.cores)
    }

    /// The live chunk that an address lies in, for a process that asks. A bounce buffer is nobody's to
    /// see: what is in it may have been checked (divergence `hidden-bounce`).
    pub(crate) fn find_for_process(&self, at: BusAddr) -> Option<(ChunkRef, Chunk)> {
        let found = self.memory.search(at);
        found.filter(|(_, record)| record.site() != self.bounce_site)
    }

    /// A process has no file left: its queues and copies end.
    pub(super) fn end_dma(&self, by: Pid) {
        self.dma.process_exit(by);
        self.dma.settle(by);
        self.dma.release_queues_of(by);
    }

    /// A process has no file left: what it holds besides memory is free again.
    pub(super) fn forget(&self, sched: &dyn Sched, process: Pid) {
        self.locks.forget(sched, process);
        self.init.forget(sched, process);
        self.datastore.release(process);
    }

    /// Lets those look whether they are to end whose wait that may end.
    pub(super) fn let_waiters_look(&self, sched: &dyn Sched) {
        self.dma.let_waiters_look();
        self.locks.let_waiters_look(sched);
        self.init.let_waiters_look(sched);
        self.door.let_waiters_look(sched);
    }

    /// Says for whom this thread works until the answer is dropped. Whether anybody asks is not
    /// looked at: a plan may change in the middle of a call.
    pub(super) fn work_for(&self, process: Pid, command: Option<u32>) -> Entered {
        Scope {
            device: Some(self.id),
            process: Some(process),
            core: None,
            command,
        }
        .enter()
    }

    pub(super) fn ids(&self, caller: &Caller<'_>) -> Ids {
        Ids {
            process: Some(caller.pid),
            ..Ids::device(self.id)
        }
    }

    /// What a core is called that counts from this device's first one: by the device that it is of.
    /// All devices of a machine have as many.
    pub(super) fn core_ids(&self, core: u32) -> Ids {
        let cores = self.memory.config().layout.profile().cores;
        Ids {
            core: Some(CoreId::new(core % cores)),
            ..Ids::device(DeviceId::new(self.id.get() + core / cores))
        }
    }

    /// A chunk's own account: its owner's, whoever acts on it.
    pub(super) fn chunk_ids(&self, chunk: ChunkRef, record: &Chunk) -> Ids {
        Ids {
            process: Some(record.owner()),
            core: Some(record.core()),
            channel: Some(record.channel()),
            chunk: Some(chunk.into()),
            handle: record.handle(),
            ..Ids::device(self.id)
        }
    }
}
