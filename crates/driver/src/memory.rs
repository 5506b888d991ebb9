//! The memory of one Neuron device: pools, chunks, handles, lifespans and processes behind one
//! door.
//!
//! This is the path that every allocation takes:
//!
//! 1. [`DeviceMemory::alloc`] checks the request, field by field, in the reference's order;
//! 2. the pool set (`poolset.rs`) finds a place;
//! 3. the chunk's record comes to life in the [slab](crate::chunk), its start enters the [address
//!    index](crate::index), and it joins the head of its [lifespan list](crate::lifespan);
//! 4. the [counters](crate::usage) are charged, and the caller's [attach slot](crate::process);
//! 5. later, [`DeviceMemory::publish`] gives it a [handle](crate::handles).
//!
//! [`DeviceMemory::free`] takes one reference off and, at the last one, walks the same path
//! backward. What nobody frees is swept when its process, the last file or the device goes
//! ([`sweep`]).
//!
//! Whoever must *hold* a chunk's memory takes a pin ([`pin`]).
//!
//! **Locks.** One mutex, the reference's `mpset` lock, guards pools, lists, counters and the handle
//! table (which has a lock of its own in the reference). [`chunk`](DeviceMemory::chunk),
//! [`search`](DeviceMemory::search) and [`resolve`](DeviceMemory::resolve) take none of them.
//!
//! **What this does not do.** It moves no bytes and knows no ioctl.

mod error;
mod init;
mod insight;
pub mod open;
pub mod pin;
mod stats;
pub mod sweep;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::addr::{Alignment, BusAddr, HostPa, access_fits};
use glia_abi::fault::{Entered, FaultPoint, Faults, Scope};
use glia_abi::handle::{CORES_MAX, CoreId, McHandle, Pid};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

pub use error::{AccessError, PublishError, RefError};
pub use init::{CARVEOUT_SIZE_BYTES, InitError, MemoryConfig};
pub use pin::{ChunkPin, OwnedPin, Pinned};
pub use stats::{
    ChannelFacts, ChannelStats, HandleStats, ListLengths, MemoryStats, ProcessStats, ReserveStats,
};

use crate::alloc::{AllocError, AllocRequest};
use crate::arena::{Arena, ExtentTree};
use crate::chunk::{Chunk, ChunkRef, ChunkSlab, DeadChunk, FreeSlots, NewChunk};
use crate::handles::{FreeHandles, HandleError, HandleTable, Object};
use crate::index::AddressIndex;
use crate::lifespan::{self, ListId};
use crate::pool::ScratchpadOrder;
pub use crate::poolset::PoolName;
use crate::poolset::PoolSet;
use crate::process::{AttachSlots, Attached};
pub use crate::reserve::RESERVE_POOLS;
use crate::site::Sites;
use crate::sync::{AtomicU32, Ordering};
use crate::usage::Usage;

/// What a free came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// The last reference went, and with it the chunk.
    Gone {
        /// The complaint, if it was a scratchpad page out of turn.
        complaint: Option<ScratchpadOrder>,
    },
    /// The last reference went and the chunk is dead, but somebody holds a pin: its memory is given
    /// back with the last one.
    Held,
    /// References are left.
    Kept {
        /// How many.
        refs: u32,
    },
}

/// The memory of one device. Shared between threads by reference.
pub struct DeviceMemory<A: Arena = ExtentTree> {
    config: MemoryConfig,
    faults: Arc<dyn Faults>,
    slab: ChunkSlab,
    index: AddressIndex,
    handles: HandleTable,
    sites: Sites,
    carveouts: Vec<ChunkRef>,
    /// Where each channel's main pool ends. It never moves, so it is kept outside the lock.
    main_ends: Vec<BusAddr>,
    attached: Attached,
    /// From a handle to the slot of its chunk, as it was for the newest handle: a guess. Both are handed
    /// out last in, first out, so that the distance is that of most.
    lead: AtomicU32,
    set: Mutex<Set<A>>,
}

/// What the set's lock guards.
struct Set<A> {
    pools: PoolSet<A>,
    free_slots: FreeSlots,
    free_handles: FreeHandles,
    processes: AttachSlots,
    usage: Usage,
    /// Open files of the device, of all processes. Signed, as in the reference: a close without an
    /// open counts down, too.
    open_files: i64,
    host_bytes: u64,
    device_bytes: u64,
    /// Live chunks.
    chunks: u64,
    /// Allocations so far.
    births: u64,
    /// Dead chunks whose memory is pinned.
    held: Vec<ChunkRef>,
    torn_down: bool,
}

impl<A: Arena> DeviceMemory<A> {
    /// Takes a chunk for `caller`, with one reference.
    ///
    /// # Errors
    /// [`AllocError`], the first of the reference's checks that fails; nothing is taken then.
    pub fn alloc(&self, caller: Pid, request: &AllocRequest) -> Result<ChunkRef, AllocError> {
        let _for_core = self.work_for(request.core);
        let size_bytes = self.check(request)?;
        self.take(&mut self.lock(), caller, request, size_bytes)
    }

    /// [`alloc`](Self::alloc) and [`publish`](Self::publish), under one lock: the chunk, and what became
    /// of its handle.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_published(
        &self,
        caller: Pid,
        request: &AllocRequest,
    ) -> Result<(ChunkRef, Result<McHandle, HandleError>), AllocError> {
        let _for_core = self.work_for(request.core);
        let size_bytes = self.check(request)?;
        let mut set = self.lock();
        let chunk = self.take(&mut set, caller, request, size_bytes)?;
        Ok((chunk, self.give_handle(&mut set, chunk)))
    }

    /// Takes a chunk under the lock.
    fn take(
        &self,
        set: &mut Set<A>,
        caller: Pid,
        request: &AllocRequest,
        size_bytes: u64,
    ) -> Result<ChunkRef, AllocError> {
        if set.torn_down {
            return Err(AllocError::Gone);
        }
        let (at, place) = set.pools.place(request, size_bytes)?;
        let chunk = Chunk::from(NewChunk {
            at,
            size_bytes,
            location: request.location,
            place,
            channel: request.channel,
            core: request.core,
            lifespan: request.lifespan,
            category: request.category,
            owner: caller,
            site: request.site,
            birth: set.births,
        });
        self.stamp(set, caller, &chunk).inspect_err(|_| {
            // A place that was just taken is the lowest of the scratchpad, so there is nothing to
            // complain about.
            set.pools.give_back(&chunk);
        })
    }

    /// Takes one reference off the chunk; at the last one its memory, its handle and its record are
    /// given back.
    ///
    /// `caller` is the process whose byte counter goes down, as in the reference, whoever owns the
    /// chunk.
    ///
    /// # Errors
    /// [`DeadChunk`] if that life of the chunk has ended (the reference stops the kernel:
    /// divergence `dead-chunk`).
    pub fn free(&self, caller: Pid, chunk: ChunkRef) -> Result<Freed, DeadChunk> {
        let mut set = self.lock();
        self.drop_reference(&mut set, caller, chunk)
    }

    /// Adds a reference: how many there are now.
    ///
    /// # Errors
    /// [`RefError`] if the chunk is gone, or has 2^32 - 1 references.
    pub fn add_ref(&self, chunk: ChunkRef) -> Result<u32, RefError> {
        let _set = self.lock();
        let record = self.chunk(chunk).ok_or(DeadChunk { chunk })?;
        let refs = record
            .refs()
            .checked_add(1)
            .ok_or(RefError::TooMany { chunk })?;
        self.slab.set_refs(chunk, refs);
        Ok(refs)
    }

    /// A copy of the chunk's record, `None` if it is gone. Takes no lock.
    #[must_use]
    pub fn chunk(&self, chunk: ChunkRef) -> Option<Chunk> {
        self.slab.read(chunk)
    }

    /// The live chunk that contains the address, and a copy of its record. Takes no lock.
    #[must_use]
    pub fn search(&self, at: BusAddr) -> Option<(ChunkRef, Chunk)> {
        let covers = |found: &(ChunkRef, Chunk)| found.1.contains(at);
        self.index
            .find(at, |slot| self.slab.read_slot(slot).filter(covers))
    }

    /// Whether `size_bytes` at `offset_bytes` may be accessed: within the chunk or, from a
    /// contiguous-scratchpad page, up to the end of the main pool, across all older pages. No sum
    /// can wrap (divergence `bounds-wrap`).
    ///
    /// # Errors
    /// [`AccessError`] if the chunk is gone or the access leaves its bounds.
    pub fn check_access(
        &self,
        chunk: ChunkRef,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Result<(), AccessError> {
        let record = self.chunk(chunk).ok_or(DeadChunk { chunk })?;
        self.check_bounds(&record, offset_bytes, size_bytes)
    }

    /// The chunk's handle: the one that it has, or a new one.
    ///
    /// # Errors
    /// [`PublishError`] if the chunk is gone or the table refuses.
    pub fn publish(&self, chunk: ChunkRef) -> Result<McHandle, PublishError> {
        let mut set = self.lock();
        let record = self.chunk(chunk).ok_or(DeadChunk { chunk })?;
        if let Some(handle) = record.handle() {
            return Ok(handle);
        }
        let _for_core = self.work_for(record.core());
        Ok(self.give_handle(&mut set, chunk)?)
    }

    /// Gives a live chunk that has none a handle, under the lock.
    fn give_handle(&self, set: &mut Set<A>, chunk: ChunkRef) -> Result<McHandle, HandleError> {
        let object = Object::Chunk(chunk);
        let handle = self
            .handles
            .alloc(&mut set.free_handles, object, &*self.faults)?;
        self.slab.set_handle(chunk, handle);
        let lead = chunk.slot().wrapping_sub(handle.get());
        if self.lead.load(Ordering::Relaxed) != lead {
            self.lead.store(lead, Ordering::Relaxed);
        }
        Ok(handle)
    }

    /// The live chunk that a handle names, and a copy of its record. Takes no lock. `None` if the
    /// handle is not issued, or names something else than a chunk.
    #[must_use]
    pub fn find(&self, handle: McHandle) -> Option<(ChunkRef, Chunk)> {
        // Among many chunks, cell and record are cold memory. So both come at once, and not the one when the
        // other has said where it is.
        let lead = self.lead.load(Ordering::Relaxed);
        self.slab.touch(handle.get().wrapping_add(lead));
        match self.handles.find(handle)? {
            Object::Chunk(chunk) => self.chunk(chunk).map(|record| (chunk, record)),
            Object::Other(_) => None,
        }
    }

    /// The live chunk that a handle names. Takes no lock. `None` if the handle is not issued, or
    /// names something else than a chunk.
    #[must_use]
    pub fn resolve(&self, handle: McHandle) -> Option<ChunkRef> {
        self.find(handle).map(|(chunk, _)| chunk)
    }

    /// Issues a handle for something that is no chunk.
    ///
    /// # Errors
    /// [`HandleError`] if the table is down, or goes down because it is full or gets no page.
    pub fn issue_handle(&self, number: u32) -> Result<McHandle, HandleError> {
        let object = Object::Other(number);
        self.handles
            .alloc(&mut self.lock().free_handles, object, &*self.faults)
    }

    /// Takes a handle back, whatever it names. A chunk that it named lives on, and its death frees
    /// the number once more, whoever holds it then (driver 2.27).
    ///
    /// # Errors
    /// [`HandleError`] if the table is down, or the handle is not issued.
    pub fn free_handle(&self, handle: McHandle) -> Result<(), HandleError> {
        self.handles.free(&mut self.lock().free_handles, handle)
    }

    /// What the handle names, chunk or not. Takes no lock.
    #[must_use]
    pub fn object(&self, handle: McHandle) -> Option<Object> {
        self.handles.find(handle)
    }

    /// What fails on this device.
    #[must_use]
    pub fn faults(&self) -> &Arc<dyn Faults> {
        &self.faults
    }

    /// The names of allocation sites.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// What the memory was built from.
    #[must_use]
    pub fn config(&self) -> &MemoryConfig {
        &self.config
    }

    /// Where page `page` of reserve pool `pool` lies; `None` if there is no such page.
    #[must_use]
    pub fn reserve_page(&self, pool: u32, page: u32) -> Option<HostPa> {
        self.lock()
            .pools
            .reserves()
            .get(pool as usize)?
            .pages()
            .nth(page as usize)
    }

    /// The check of an access against a record, live or pinned.
    fn check_bounds(
        &self,
        record: &Chunk,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Result<(), AccessError> {
        let limit_bytes = self.access_limit(record);
        if access_fits(offset_bytes, size_bytes, limit_bytes) {
            Ok(())
        } else {
            Err(AccessError::OutOfBounds {
                offset_bytes,
                size_bytes,
                limit_bytes,
            })
        }
    }

    /// How many bytes from the chunk's first one may be accessed.
    fn access_limit(&self, record: &Chunk) -> u64 {
        match self.main_ends.get(record.channel().index()) {
            Some(main_end) if record.category() == Category::CONTIGUOUS_SCRATCHPAD_DEVICE => {
                main_end.checked_offset_from(record.at()).unwrap_or(0)
            }
            Some(_) | None => record.size_bytes(),
        }
    }

    /// The checks before the set is locked, in the reference's order: the rounded size.
    fn check(&self, request: &AllocRequest) -> Result<u64, AllocError> {
        let asked_bytes = request.size_bytes;
        let size_bytes = match Alignment::PAGE.round_up(asked_bytes) {
            Some(size_bytes) if i64::try_from(asked_bytes).is_ok() => size_bytes,
            Some(_) | None => {
                return Err(AllocError::SizeTooLarge {
                    size_bytes: asked_bytes,
                });
            }
        };
        let channels = self.config.layout.channels();
        if request.channel.get() >= channels {
            return Err(AllocError::NoChannel {
                channel: request.channel,
                channels,
            });
        }
        if self.faults.orders(FaultPoint::Alloc) {
            return Err(AllocError::Injected {
                size_bytes: asked_bytes,
            });
        }
        if request.core.get() >= CORES_MAX {
            return Err(AllocError::NoCore { core: request.core });
        }
        if self.faults.orders(FaultPoint::ChunkRecord) {
            return Err(AllocError::NoRecord {
                size_bytes: asked_bytes,
            });
        }
        Ok(size_bytes)
    }

    /// Makes a placed chunk known: record, index, list, counters.
    fn stamp(&self, set: &mut Set<A>, caller: Pid, chunk: &Chunk) -> Result<ChunkRef, AllocError> {
        let list = match chunk.lifespan() {
            Lifespan::Local => ListId::Local,
            Lifespan::CurrentProcess => ListId::Process(
                set.processes
                    .find(caller)
                    .ok_or(AllocError::NotAttached { pid: caller })?,
            ),
            Lifespan::AllProcess => ListId::AllProcess,
            Lifespan::Device => ListId::Device,
        };
        let reference =
            self.slab
                .bring_to_life(&mut set.free_slots, chunk)
                .ok_or(AllocError::NoRecord {
                    size_bytes: chunk.size_bytes(),
                })?;
        let covered = self.index.insert(chunk.at(), reference.slot());
        debug_assert!(
            covered,
            "the windows cover every pool, and {} is of none",
            chunk.at()
        );
        lifespan::push(&self.slab, list, reference);
        set.charge(caller, chunk);
        Ok(reference)
    }

    /// Takes one reference off, under the lock.
    fn drop_reference(
        &self,
        set: &mut Set<A>,
        caller: Pid,
        chunk: ChunkRef,
    ) -> Result<Freed, DeadChunk> {
        let record = self.chunk(chunk).ok_or(DeadChunk { chunk })?;
        if record.refs() > 1 {
            let refs = record.refs() - 1;
            self.slab.set_refs(chunk, refs);
            return Ok(Freed::Kept { refs });
        }
        if let Some(handle) = record.handle() {
            // The reference ignores the result, too: somebody may have freed the handle under the
            // chunk.
            let _ = self.handles.free(&mut set.free_handles, handle);
        }
        let held = self.slab.kill(chunk);
        // First of all that is left to do: among many chunks the neighbours are cold memory, and come
        // while the rest is done.
        lifespan::unlink(&self.slab, chunk);
        self.index.remove(record.at());
        set.discharge(caller, &record);
        if held {
            set.held.push(chunk);
            return Ok(Freed::Held);
        }
        let complaint = set.pools.give_back(&record);
        self.slab.recycle(&mut set.free_slots, chunk);
        Ok(Freed::Gone { complaint })
    }

    /// Says on what this thread works until the answer is dropped, if anybody asks.
    fn work_for(&self, core: CoreId) -> Option<Entered> {
        self.faults.is_armed().then(|| {
            Scope {
                device: Some(self.config.device),
                core: Some(core),
                ..Scope::current()
            }
            .enter()
        })
    }

    fn lock(&self) -> MutexGuard<'_, Set<A>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: Arena> Drop for DeviceMemory<A> {
    /// Host memory belongs to the machine, which outlives the device.
    fn drop(&mut self) {
        self.teardown(Pid::default());
        // A pin borrows the device or shares it, so those that are left were forgotten and hold
        // nothing.
        let mut set = self.lock();
        for chunk in std::mem::take(&mut set.held) {
            self.give_place_back(&mut set, chunk);
        }
        set.pools.return_reserves();
    }
}

impl<A> Set<A> {
    fn charge(&mut self, caller: Pid, chunk: &Chunk) {
        self.births += 1;
        self.chunks += 1;
        *self.bytes(chunk.location()) += chunk.size_bytes();
        self.usage.charge(chunk);
        self.processes
            .charge(caller, chunk.location(), chunk.size_bytes());
    }

    fn discharge(&mut self, caller: Pid, chunk: &Chunk) {
        self.chunks -= 1;
        *self.bytes(chunk.location()) -= chunk.size_bytes();
        self.usage.discharge(chunk);
        self.processes
            .discharge(caller, chunk.location(), chunk.size_bytes());
    }

    fn bytes(&mut self, location: Location) -> &mut u64 {
        match location {
            Location::Host => &mut self.host_bytes,
            Location::Device => &mut self.device_bytes,
        }
    }
}
