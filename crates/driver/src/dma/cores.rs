//! Bringing cores up and down: engines, then the ring for the driver's copies (driver 2.24.7 and
//! 2.27.4, `ndmar_init_ncs`).
//!
//! A core has 16 engines of its own; those for the driver's copies come on top, and since V3 two
//! cores share one. [`Dma::init_cores`] programs them in the reference's order and gives each core its
//! ring; a core that is up is passed over. [`Dma::close_cores`] takes rings away again.
//!
//! **Locks.** One [`SleepLock`] for everything that the op layer has taken of memory, held by whoever
//! brings something up or down. It is taken before a ring's lock.

use std::sync::Arc;

use glia_abi::addr::HostPa;
use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::event::Event;
use glia_abi::handle::{CoreId, EngineId};
use glia_abi::sched::SleepLock;
use glia_abi::udma::DESC_SIZE_BYTES;
use glia_abi::usage::Category;

use super::fill::FILL_SIZE_BYTES;
use super::lane::{H2tRing, Lane};
use super::marker::{MARKERS_SIZE_BYTES, Markers};
use super::user::QueueError;
use super::{Dma, DmaError, NOBODY, engine};
use crate::alloc::{AllocError, AllocRequest};
use crate::chunk::ChunkRef;
use crate::memory::{DeviceMemory, OwnedPin};
use crate::ring::{H2T_RING_DESCS, QueuePair, RingMemory};

/// Engines of a core, besides those for the driver's copies.
pub(super) const ENGINES_PER_CORE: u32 = 16;

/// The chunks that the op layer has taken, each pinned: a process that learns their handles may free
/// them (driver 2.27), and the memory is the rings' all the same.
pub(crate) struct Owned {
    /// What all rings use.
    shared: Vec<OwnedPin>,
    /// By lane: its ring. Empty for one that is down.
    rings: Box<[Vec<OwnedPin>]>,
}

impl Owned {
    pub(super) fn none(lanes: usize) -> Self {
        Self {
            shared: Vec::new(),
            rings: (0..lanes).map(|_| Vec::new()).collect(),
        }
    }

    /// More chunks for a lane's ring.
    pub(super) fn add(&mut self, lane: &Lane, mut chunks: Vec<OwnedPin>) {
        self.ring(lane).append(&mut chunks);
    }

    /// The chunks of a lane's ring.
    pub(super) fn ring(&mut self, lane: &Lane) -> &mut Vec<OwnedPin> {
        // PANIC: there is a place for every lane.
        &mut self.rings[lane.number()]
    }

    fn all(&self) -> impl Iterator<Item = ChunkRef> {
        let rings = self.rings.iter().flatten();
        self.shared.iter().chain(rings).map(OwnedPin::chunk)
    }
}

/// Whether bringing this core up brings the engine of its ring up, too: on V2 always; since V3 the
/// even core of the two that share it does, if all cores are meant or both of these are in the map.
#[must_use]
pub fn inits_h2t_engine(
    profile: &ArchProfile,
    core: CoreId,
    map: u32,
    is_device_reset: bool,
) -> bool {
    match profile.arch {
        Arch::V2 => true,
        Arch::V3 | Arch::V4 => {
            let pair = 0b11_u32.checked_shl(core.get()).unwrap_or(0);
            core.get().is_multiple_of(2) && (is_device_reset || map & pair == pair)
        }
    }
}

impl Dma {
    /// Brings the cores of a bit map up, in the order of their numbers: programs the 16 engines of
    /// each, the engine of its ring if it is [this core's turn](inits_h2t_engine), and sets the ring
    /// up. Cores that are up already, and bits of no core, are passed over. `is_device_reset` if the
    /// whole device is meant.
    ///
    /// # Errors
    /// [`DmaError::EngineDown`] if the engine of a ring was never programmed: of two cores that share
    /// one, a single one cannot come up first. [`DmaError::NoMemory`]. Cores before it are up then,
    /// and nothing is taken for this one. (The reference leaks its ring.)
    pub fn init_cores(&self, map: u32, is_device_reset: bool) -> Result<(), DmaError> {
        let mut owned = self.owned.lock(&*self.links.sched);
        let profile = self.links.profile;
        for (core, lane) in self.own_lanes(map) {
            if !owned.ring(lane).is_empty() {
                continue;
            }
            let first = core.get() * ENGINES_PER_CORE;
            for number in first..first + ENGINES_PER_CORE {
                self.program(EngineId::new(number));
            }
            let engine = lane.queue().engine;
            if inits_h2t_engine(profile, core, map, is_device_reset) {
                self.program(engine);
            }
            if !self.engine(engine).is_some_and(|engine| engine.is_up) {
                return Err(DmaError::EngineDown { core, engine });
            }
            self.open(&mut owned, core, lane)?;
        }
        Ok(())
    }

    /// Takes the rings of the cores of a bit map down and gives their memory back. Copies that are
    /// under way on them are lost, and waiting for them is no error; what is not is left alone.
    /// Waits for a synchronous copy to end.
    ///
    /// The engines stay programmed. (In the reference, a queue under way would go on in freed memory.)
    pub fn close_cores(&self, map: u32) {
        let mut owned = self.owned.lock(&*self.links.sched);
        for (_, lane) in self.own_lanes(map) {
            lane.shut(&self.links);
            give_back(&self.memory, owned.ring(lane));
        }
    }

    /// Programs an engine and nothing else: a command of its own (driver 2.24.7, `ndmar_eng_init`).
    ///
    /// # Errors
    /// [`QueueError::NoEngine`].
    pub fn init_engine(&self, engine: EngineId) -> Result<(), QueueError> {
        self.program(engine);
        let is_there = self.engine(engine).is_some();
        is_there
            .then_some(())
            .ok_or(QueueError::NoEngine { engine })
    }

    /// Brings the ring of a core up and nothing else: its engine is taken as it is. Does nothing if
    /// it is up already.
    ///
    /// # Errors
    /// [`DmaError::NoCore`], [`DmaError::NoMemory`]; nothing is taken then.
    pub fn bring_up(&self, core: CoreId) -> Result<(), DmaError> {
        let lane = self.own_lane(core).ok_or(DmaError::NoCore {
            core,
            cores: self.links.profile.cores,
        })?;
        let mut owned = self.owned.lock(&*self.links.sched);
        if owned.ring(lane).is_empty() {
            self.open(&mut owned, core, lane)?;
        }
        Ok(())
    }

    /// The chunks that it has taken for itself.
    pub(crate) fn chunks(&self) -> Vec<ChunkRef> {
        self.owned.lock(&*self.links.sched).all().collect()
    }

    /// What a queue is left with whose process has gone: taken with the first queue of a process.
    pub(super) fn dummy_ring(&self, size_bytes: u64) -> Result<HostPa, DmaError> {
        let mut owned = self.owned.lock(&*self.links.sched);
        if let Some(ring) = self.dummy_ring.get() {
            return Ok(*ring);
        }
        let mut taking = Taking::new(&self.memory, CoreId::new(0));
        let ring = taking.host(self.links.profile, size_bytes)?;
        self.links.host.fill(ring, size_bytes, 0)?;
        owned.shared.append(&mut taking.chunks);
        Ok(*self.dummy_ring.get_or_init(|| ring))
    }

    /// Takes the memory of a ring (RX, TX, markers, in that order) and sets its queue up.
    pub(super) fn open(
        &self,
        owned: &mut Owned,
        core: CoreId,
        lane: &Lane,
    ) -> Result<(), DmaError> {
        let links = &self.links;
        let mut shared = Taking::new(&self.memory, core);
        let fill_buffer = match self.fill_buffer.get() {
            Some(_) => None,
            None => Some(shared.host(links.profile, FILL_SIZE_BYTES)?),
        };
        let mut taking = Taking::new(&self.memory, core);
        let size_bytes = u64::from(H2T_RING_DESCS) * DESC_SIZE_BYTES;
        let rx = taking.host(links.profile, size_bytes)?;
        let tx = taking.host(links.profile, size_bytes)?;
        let markers = taking.host(links.profile, MARKERS_SIZE_BYTES)?;
        links.host.fill(markers, MARKERS_SIZE_BYTES, 0)?;
        let memory = RingMemory {
            tx,
            rx,
            descs: H2T_RING_DESCS,
        };
        let mut pair = QueuePair::new(links.profile, lane.queue(), memory)
            .ok_or(DmaError::NotReady { core })?;
        pair.reset(&*links.port);
        let ready = Event::RingReady {
            descs: H2T_RING_DESCS,
        };
        links.tell(lane, None, &ready);
        lane.open(&*links.sched, H2tRing::new(pair, Markers::new(markers)));
        if let Some(buffer) = fill_buffer {
            self.fill_buffer
                .get_or_init(|| SleepLock::new(buffer, &*links.sched));
        }
        owned.shared.append(&mut shared.chunks);
        owned.ring(lane).append(&mut taking.chunks);
        Ok(())
    }

    pub(super) fn program(&self, id: EngineId) {
        let links = &self.links;
        if let Some(mut engine) = self.engine(id) {
            engine.is_up |= engine::bring_up(&*links.port, links.profile, id, engine.is_up);
        }
    }

    /// All lanes that work for the cores of a bit map, with their cores.
    pub(super) fn lanes(&self, map: u32) -> impl Iterator<Item = (CoreId, &Lane)> {
        let in_map = move |core: &CoreId| map.checked_shr(core.get()).unwrap_or(0) & 1 != 0;
        let lanes = self.lanes.iter().map(|lane| (lane.core(), lane));
        lanes.filter(move |(core, _)| in_map(core))
    }

    /// Those of them that are the cores' own.
    pub(super) fn own_lanes(&self, map: u32) -> impl Iterator<Item = (CoreId, &Lane)> {
        let cores = self.links.profile.cores as usize;
        self.lanes(map)
            .filter(move |(_, lane)| lane.number() < cores)
    }

    /// Stops all rings and gives everything back.
    pub(super) fn take_down(&mut self) {
        self.stop_scrubs();
        self.stop_user_queues();
        for lane in &mut self.lanes {
            lane.close(&self.links);
        }
        let mut owned = self.owned.lock(&*self.links.sched);
        let Owned { shared, rings } = &mut *owned;
        give_back(&self.memory, shared);
        for ring in rings {
            give_back(&self.memory, ring);
        }
    }
}

/// Chunks that are being taken; dropped half-way, they are given back.
pub(super) struct Taking<'a> {
    memory: &'a Arc<DeviceMemory>,
    core: CoreId,
    chunks: Vec<OwnedPin>,
}

impl<'a> Taking<'a> {
    pub(super) fn new(memory: &'a Arc<DeviceMemory>, core: CoreId) -> Self {
        Self {
            memory,
            core,
            chunks: Vec::new(),
        }
    }

    /// Who is charged.
    pub(super) fn core(&self) -> CoreId {
        self.core
    }

    /// Takes a chunk.
    pub(super) fn take(&mut self, request: &AllocRequest) -> Result<ChunkRef, AllocError> {
        let chunk = self.memory.alloc(NOBODY, request)?;
        // A chunk that has just been taken is only gone if the device is.
        let pin = self.memory.pin_owned(chunk).map_err(|_| AllocError::Gone)?;
        self.chunks.push(pin);
        Ok(chunk)
    }

    /// The chunk that was taken last.
    pub(super) fn latest(&self) -> Option<ChunkRef> {
        self.chunks.last().map(OwnedPin::chunk)
    }

    /// All that was taken, which is somebody else's to give back from now on.
    pub(super) fn keep(mut self) -> Vec<OwnedPin> {
        std::mem::take(&mut self.chunks)
    }

    /// Takes host memory.
    pub(super) fn host(
        &mut self,
        profile: &ArchProfile,
        size_bytes: u64,
    ) -> Result<HostPa, DmaError> {
        let request = AllocRequest {
            core: self.core,
            category: Category::NCDEV_HOST,
            site: self.memory.sites().intern("driver dma rings"),
            ..AllocRequest::host(size_bytes)
        };
        let core = self.core;
        let chunk = self
            .take(&request)
            .map_err(|cause| DmaError::NoMemory { core, cause })?;
        self.memory
            .chunk(chunk)
            .and_then(|record| profile.bus_to_host(record.at()))
            .ok_or(DmaError::NotReady { core })
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        give_back(self.memory, &mut self.chunks);
    }
}

/// Frees chunks and lets go of their memory, which nothing points to any more.
pub(super) fn give_back(memory: &DeviceMemory, chunks: &mut Vec<OwnedPin>) {
    for pin in chunks.drain(..) {
        let chunk = pin.chunk();
        drop(pin);
        // One that is dead was freed by a process, or went with the device's memory.
        let _ = memory.free(NOBODY, chunk);
    }
}
