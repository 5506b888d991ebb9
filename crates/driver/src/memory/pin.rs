//! Pins: holding a chunk's memory while something works on it.
//!
//! A copy, a mapping or queued DMA must hold the memory that it works on:
//! [`pin`](DeviceMemory::pin), [`pin_handle`](DeviceMemory::pin_handle) and
//! [`pin_at`](DeviceMemory::pin_at) find a chunk without a lock and return a [`Pinned`]. A free, a
//! sweep or a teardown meanwhile ends the chunk's life at once: no lookup finds it, its handle is
//! free, its counters are down. Its *place*, however, is not given to anybody else, nor its record
//! used again, before the last pin goes (divergence `pinned-range`). Paths that only read take
//! copies and no pins: counts on a shared line do not scale.

use std::fmt;

use glia_abi::addr::BusAddr;
use glia_abi::handle::McHandle;

use super::{DeviceMemory, Set};
use crate::arena::{Arena, ExtentTree};
use crate::chunk::{Chunk, ChunkRef, PinError};
use crate::handles::Object;

/// A chunk whose memory cannot be given to anybody else, whatever becomes of the chunk, until this
/// is dropped.
///
/// Address and size cannot change while the pin is held.
#[must_use = "a pin that is dropped holds nothing"]
pub struct Pinned<'a, A: Arena = ExtentTree> {
    memory: &'a DeviceMemory<A>,
    chunk: ChunkRef,
}

impl<A: Arena> Pinned<'_, A> {
    /// Which chunk.
    #[must_use]
    pub fn chunk(&self) -> ChunkRef {
        self.chunk
    }

    /// Its record. While the pin is held, only references and handle can change. If the chunk has
    /// died, the handle is the one it had, which may be somebody else's by now.
    #[must_use]
    pub fn record(&self) -> Chunk {
        self.memory.slab.read_kept(self.chunk)
    }
}

impl<A: Arena> Drop for Pinned<'_, A> {
    fn drop(&mut self) {
        if self.memory.slab.unpin(self.chunk) {
            self.memory.give_back_held(self.chunk);
        }
    }
}

impl<A: Arena> fmt::Debug for Pinned<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("chunk", &self.chunk)
            .field("record", &self.record())
            .finish_non_exhaustive()
    }
}

impl<A: Arena> DeviceMemory<A> {
    /// Pins the chunk. Takes no lock.
    ///
    /// # Errors
    /// [`PinError`] if that life of it has ended, or 2^31 - 1 pins are out.
    pub fn pin(&self, chunk: ChunkRef) -> Result<Pinned<'_, A>, PinError> {
        self.slab.pin(chunk)?;
        Ok(Pinned {
            memory: self,
            chunk,
        })
    }

    /// Pins the chunk that the handle names. Takes no lock. `None` if the handle is not issued, or
    /// names something else than a chunk.
    pub fn pin_handle(&self, handle: McHandle) -> Option<Pinned<'_, A>> {
        match self.handles.find(handle)? {
            Object::Chunk(chunk) => self.pin(chunk).ok(),
            Object::Other(_) => None,
        }
    }

    /// Pins the live chunk that contains the address. Takes no lock.
    pub fn pin_at(&self, at: BusAddr) -> Option<Pinned<'_, A>> {
        let (chunk, _) = self.search(at)?;
        self.pin(chunk).ok()
    }

    /// The last pin of a dead chunk went: gives its memory back.
    #[cold]
    fn give_back_held(&self, chunk: ChunkRef) {
        let mut guard = self.lock();
        let set = &mut *guard;
        set.held.retain(|held| *held != chunk);
        self.give_place_back(set, chunk);
        if set.torn_down && set.held.is_empty() {
            set.pools.return_reserves();
        }
    }

    /// Gives place and slot of a dead chunk back that nobody holds any more.
    pub(super) fn give_place_back(&self, set: &mut Set<A>, chunk: ChunkRef) {
        let record = self.slab.read_kept(chunk);
        // A complaint about the scratchpad's order is counted in the pool's books; nobody is left
        // to be told.
        set.pools.give_back(&record);
        self.slab.recycle(&mut set.free_slots, chunk);
    }
}
