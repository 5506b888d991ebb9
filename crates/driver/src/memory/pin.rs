//! Pins: holding a chunk's memory while something works on it.
//!
//! A copy, a mapping or queued DMA must hold the memory that it works on:
//! [`pin`](DeviceMemory::pin), [`pin_handle`](DeviceMemory::pin_handle) and
//! [`pin_at`](DeviceMemory::pin_at) find a chunk without a lock and return a [`Pinned`]. A free, a
//! sweep or a teardown meanwhile ends the chunk's life at once: no lookup finds it, its handle is
//! free, its counters are down. Its *place*, however, is not given to anybody else, nor its record
//! used again, before the last pin goes (divergence `pinned-range`). Paths that only read take
//! copies and no pins: counts on a shared line do not scale.
//!
//! An access to a page of the contiguous scratchpad may run on across older pages, up to the end of
//! the main pool. [`ChunkPin::hold_access`] holds those, too, in the same pin.
//!
//! What outlives the call that began it (a mapping, an asynchronous copy) takes an [`OwnedPin`],
//! which shares the device's memory instead of borrowing it:
//! [`pin_owned`](DeviceMemory::pin_owned). The two are one type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::McHandle;

use super::{AccessError, DeviceMemory, Set};
use crate::arena::{Arena, ExtentTree};
use crate::chunk::{Chunk, ChunkRef, PinError};
use crate::handles::Object;

/// A chunk whose memory cannot be given to anybody else, whatever becomes of the chunk, until this
/// is dropped.
///
/// Address and size cannot change while the pin is held. `M` is how it reaches the device's memory:
/// see [`Pinned`] and [`OwnedPin`].
#[must_use = "a pin that is dropped holds nothing"]
pub struct ChunkPin<M, A = ExtentTree>
where
    M: Deref<Target = DeviceMemory<A>>,
    A: Arena,
{
    memory: M,
    chunk: ChunkRef,
    arena: PhantomData<fn() -> A>,
    /// The chunks behind a scratchpad page that an access to it reaches; of all others none, and then
    /// this has no memory.
    beyond: Vec<Self>,
}

/// A pin that borrows the device's memory: for the time of a call.
pub type Pinned<'a, A = ExtentTree> = ChunkPin<&'a DeviceMemory<A>, A>;

/// A pin that shares the device's memory: for as long as it takes.
pub type OwnedPin<A = ExtentTree> = ChunkPin<Arc<DeviceMemory<A>>, A>;

impl<M, A> ChunkPin<M, A>
where
    M: Deref<Target = DeviceMemory<A>>,
    A: Arena,
{
    fn new(memory: M, chunk: ChunkRef) -> Result<Self, PinError> {
        memory.slab.pin(chunk)?;
        Ok(Self {
            memory,
            chunk,
            arena: PhantomData,
            beyond: Vec::new(),
        })
    }

    /// Which chunk.
    #[must_use]
    pub fn chunk(&self) -> ChunkRef {
        self.chunk
    }

    /// Its record. While the pin is held, only references and handle can change. If the chunk has
    /// died, the handle is the one it had, which may be somebody else's by now.
    #[inline]
    #[must_use]
    pub fn record(&self) -> Chunk {
        self.memory.slab.read_kept(self.chunk)
    }

    /// Whether `size_bytes` at `offset_bytes` may be accessed, as
    /// [`DeviceMemory::check_access`] has it; a chunk that has died meanwhile is no error here. What
    /// is to be accessed is [held](Self::hold_access).
    ///
    /// # Errors
    /// [`AccessError::OutOfBounds`] if the access leaves the chunk's bounds.
    pub fn check_access(&self, offset_bytes: u64, size_bytes: u64) -> Result<(), AccessError> {
        self.memory
            .check_bounds(&self.record(), offset_bytes, size_bytes)
    }

    /// As [`check_access`](Self::check_access), and holds all live chunks that the access reaches as
    /// long as the pin: of a scratchpad page the older ones behind it, too. Takes no lock. Returns the
    /// [record](Self::record) of the pin's own chunk, which it had to read.
    ///
    /// # Errors
    /// [`AccessError::OutOfBounds`] if the access leaves the chunk's bounds.
    #[inline]
    pub fn hold_access(&mut self, offset_bytes: u64, size_bytes: u64) -> Result<Chunk, AccessError>
    where
        M: Clone,
    {
        let record = self.record();
        self.memory
            .check_bounds(&record, offset_bytes, size_bytes)?;
        let end_bytes = offset_bytes.saturating_add(size_bytes);
        if end_bytes > record.size_bytes() && size_bytes > 0 {
            self.hold_beyond(&record, offset_bytes.max(record.size_bytes()), end_bytes);
        }
        Ok(record)
    }

    /// Holds what lies behind the chunk, in offsets from its first byte.
    #[cold]
    fn hold_beyond(&mut self, record: &Chunk, first_bytes: u64, end_bytes: u64)
    where
        M: Clone,
    {
        let start = record.at().checked_add(first_bytes);
        let span = start.and_then(|start| Span::new(start, end_bytes - first_bytes));
        self.beyond
            .extend(span.into_iter().flat_map(|span| pins(&self.memory, span)));
    }
}

/// Pins the live chunks that have a byte in the range, the lowest first.
fn pins<M, A>(memory: &M, span: Span<BusAddr>) -> Vec<ChunkPin<M, A>>
where
    M: Deref<Target = DeviceMemory<A>> + Clone,
    A: Arena,
{
    let mut pins = Vec::new();
    let mut next = Some(span.start());
    while let Some(at) = next.filter(|at| span.contains(*at)) {
        let pin = memory.search(at);
        let pin = pin.and_then(|(chunk, _)| ChunkPin::new(memory.clone(), chunk).ok());
        next = match &pin {
            Some(pin) => Some(pin.record().span().end()),
            None => at.checked_add(PAGE_SIZE_BYTES),
        };
        pins.extend(pin);
    }
    pins
}

impl<M, A> Drop for ChunkPin<M, A>
where
    M: Deref<Target = DeviceMemory<A>>,
    A: Arena,
{
    fn drop(&mut self) {
        if self.memory.slab.unpin(self.chunk) {
            self.memory.give_back_held(self.chunk);
        }
    }
}

impl<M, A> fmt::Debug for ChunkPin<M, A>
where
    M: Deref<Target = DeviceMemory<A>>,
    A: Arena,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkPin")
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
        ChunkPin::new(self, chunk)
    }

    /// Pins the chunk beyond the borrow. Takes no lock.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn pin_owned(self: &Arc<Self>, chunk: ChunkRef) -> Result<OwnedPin<A>, PinError> {
        ChunkPin::new(Arc::clone(self), chunk)
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

    /// Pins the live chunks that have a byte in the range, the lowest first. Takes no lock, so one that
    /// comes to life meanwhile may be left out.
    pub fn pin_span(&self, span: Span<BusAddr>) -> Vec<Pinned<'_, A>> {
        pins(&self, span)
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
