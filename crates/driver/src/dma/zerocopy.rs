//! Zero copy: bytes that go between user memory and a chunk with no buffer in between (driver 2.27.4).
//!
//! User pages are pinned, 64 at a time, and the engine reads or writes them itself. Such a
//! *context* is cut out of an operation (`cut.rs`), enters the ring's queue of contexts
//! (`queue.rs`), is pinned, staged as a batch with a marker of its own, waited for and unpinned:
//!
//! ```text
//!   operations ─► pieces ─► unpinned ──► pinned ──► submitted ──► gone: unpinned, slots given back
//!                            (async, over           (the engine's)    │ last of its request
//!                             the pin budget)                         ▼
//!                                                               completion queue
//! ```
//!
//! A **synchronous** copy does all of it on the caller's thread, so that the engine works on one
//! context while the next is pinned. An **asynchronous** one enters all its contexts and returns; a
//! worker (`zerocopy/worker.rs`) does the rest, and posts one [completion] when the request has ended. Both
//! may be under way on one ring; they share the queue of contexts, the descriptor ring, and the
//! routine by which a context ends, so that no completion is lost or told twice.
//!
//! **A request ends once.** Its last context carries what is to be told (`Ends`); if that is
//! cancelled while its siblings are still the engine's, the last of those carries it. Room in the
//! completion queue is taken when the request enters, so the worker never waits for the process.
//! (The reference stalls the whole ring while the queue is full.)
//!
//! **Who owns what.** A context owns its pin; whatever becomes of it, dropping it unpins. When a
//! ring has failed, or its process has gone, the queue is stopped or has ended before pins go, so
//! nothing is read or written that was given back. A request holds its chunk until it has ended.
//!
//! **Barriers** (driver 2.27.4): only the last context of a write has one. If that is cancelled, the
//! one that ends the request in its place is followed by a batch that is nothing but a barrier. On V2 it is a write barrier
//! on its last data pair; since V3 its marker is a strongly ordered write. Reads need none, since the
//! marker follows the data on the same path.
//!
//! **Locks.** All under the ring's lock. The worker never waits for that: it comes again.

mod context;
mod cut;
mod queue;
mod ring;
mod worker;

use std::sync::Arc;

use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::completion;
use glia_abi::handle::{CoreId, Pid, QueueId, WorkerId};
use glia_abi::sched::Worker;
use glia_abi::transport::{Caller, UserFault};

use super::cores::Taking;
use super::held::Held;
use super::lane::Lane;
use super::marker::PAIR_SIZE_BYTES;
use super::{Dma, DmaError, Platform};
use crate::chunk::ChunkRef;
use crate::memory::OwnedPin;

pub(super) use context::ZeroCopies;
pub use cut::{PAGES_PER_CONTEXT, pin_size_bytes};
pub(super) use worker::Completer;

/// The contexts of copies come first.
const FIRST_CONTEXT_NUMBER: u32 = 3;
const _: () = assert!(FIRST_CONTEXT_NUMBER as usize == super::context::CONTEXTS);

/// The number by which events call the context in a slot.
pub(super) const fn context_number(slot: u32) -> u32 {
    FIRST_CONTEXT_NUMBER + slot
}

/// How much of zero copies a ring takes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCopyLimits {
    /// Slots of the queue of contexts, a power of two; one stays free.
    pub contexts: u32,
    /// Pages that are pinned at most.
    pub pinned_pages: u64,
}

impl Default for ZeroCopyLimits {
    /// Those of driver 2.27.4: 1,024 contexts and 2 GiB, which so many contexts never reach.
    fn default() -> Self {
        Self {
            contexts: 1024,
            pinned_pages: 524_288,
        }
    }
}

/// One range to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCopyOp {
    /// From the batch's base.
    pub offset_bytes: u64,
    /// Bytes. An operation of none moves none.
    pub size_bytes: u64,
    /// Where they lie in the process.
    pub buffer: UserAddr,
}

/// Ranges to copy between user memory and a chunk, one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCopy<'a> {
    /// Whose ring does it.
    pub core: CoreId,
    /// To the chunk, or from it.
    pub to_device: bool,
    /// Where the operations count from in the chunk.
    pub base: BusAddr,
    /// In the order in which they are done.
    pub ops: &'a [ZeroCopyOp],
}

/// What an asynchronous request is known by when it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The caller's number for it, not 0.
    pub sequence: u64,
    /// Given back as it is.
    pub context: u64,
}

impl ZeroCopy<'_> {
    /// Checks that no operation leaves an address space.
    fn check(&self) -> Result<(), DmaError> {
        for op in self.ops {
            let ZeroCopyOp {
                offset_bytes,
                size_bytes,
                buffer,
            } = *op;
            let at = self.base.checked_add(offset_bytes);
            at.and_then(|at| at.checked_add(size_bytes))
                .ok_or(DmaError::LeavesChunk {
                    base: self.base,
                    offset_bytes,
                    size_bytes,
                })?;
            buffer.checked_add(size_bytes).ok_or(UserFault {
                at: buffer,
                size_bytes,
            })?;
        }
        Ok(())
    }

    /// Where an operation begins in the chunk, if it was [checked](Self::check).
    fn at(&self, op: &ZeroCopyOp) -> BusAddr {
        BusAddr::new(self.base.get().wrapping_add(op.offset_bytes))
    }
}

impl Dma {
    /// Whether this device does zero copies: since V3, or by the parameter
    /// `zerocopy_trn1_override` (driver 2.27.4: where copies are not staged again after a reset).
    #[must_use]
    pub fn has_zero_copy(&self) -> bool {
        let params = &self.memory.config().params;
        !self.links.profile.retry_memcpy || params.zerocopy_trn1_override
    }

    /// Copies between user memory and a chunk, and returns when it is done. Operations are done in
    /// order; those of 0 bytes are nothing.
    ///
    /// # Errors
    /// [`DmaError`]. Any part of the bytes may have been moved then, and nothing moves any more.
    pub fn zero_copy(&self, caller: &Caller<'_>, copy: &ZeroCopy<'_>) -> Result<(), DmaError> {
        self.zero_copy_by(caller, copy, None)
    }

    /// As [`zero_copy`](Self::zero_copy), by a queue that was [asked for](super::h2t). None is the
    /// core's own.
    ///
    /// # Errors
    /// As [`zero_copy`](Self::zero_copy).
    pub fn zero_copy_by(
        &self,
        caller: &Caller<'_>,
        copy: &ZeroCopy<'_>,
        queue: Option<QueueId>,
    ) -> Result<(), DmaError> {
        self.check_zero_copy(copy)?;
        if copy.ops.iter().all(|op| op.size_bytes == 0) {
            return Ok(());
        }
        self.zero_ring(copy.core, queue, caller.pid)?
            .zero_copy(caller.memory, copy)
    }

    /// Begins to copy between user memory and a chunk. When all has been moved, or cannot be, a
    /// completion says so; those of one ring come in the order of their requests, but for requests
    /// that fail. All user memory has to be [buffers](glia_abi::transport::UserBuffer) of the
    /// process. `chunk` is held until then. A request with nothing to move ends like any other.
    ///
    /// If the pages of an operation are within the pin budget they are pinned now, otherwise when
    /// there is room.
    ///
    /// # Errors
    /// [`DmaError`]; nothing was begun then, and no completion comes.
    pub fn zero_copy_async(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        copy: &ZeroCopy<'_>,
        reply: Reply,
        chunk: Option<OwnedPin>,
    ) -> Result<(), DmaError> {
        self.zero_copy_async_by(caller, copy, None, reply, chunk)
    }

    /// As [`zero_copy_async`](Self::zero_copy_async), by a queue that was [asked for](super::h2t).
    /// None is the core's own.
    ///
    /// # Errors
    /// As [`zero_copy_async`](Self::zero_copy_async).
    pub fn zero_copy_async_by(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        copy: &ZeroCopy<'_>,
        queue: Option<QueueId>,
        reply: Reply,
        chunk: Option<OwnedPin>,
    ) -> Result<(), DmaError> {
        self.check_zero_copy(copy)?;
        let (completer, worker) = self.completer();
        let mut ring = self.zero_ring(copy.core, queue, caller.pid)?;
        ring.zero_copy_async(caller.memory, copy, reply, chunk)?;
        completer.flag(ring.lane.queue());
        self.links.port.attend(ring.lane.queue(), Some(worker));
        drop(ring);
        self.links.sched.kick(worker);
        Ok(())
    }

    /// Stores bytes into HBM by the processor, through BAR4: what small writes do instead (driver
    /// 2.27).
    ///
    /// # Errors
    /// [`DmaError::NoBar4`] if they do not lie in HBM; nothing is stored then.
    pub fn store(&self, at: BusAddr, bytes: &[u8]) -> Result<(), DmaError> {
        let size_bytes = bytes.len() as u64;
        let layout = &self.memory.config().layout;
        let stride_bytes = layout.profile().bar4_channel_stride_bytes;
        let offset = layout.hbm_offset(at).and_then(|(channel, offset)| {
            let start = u64::from(channel.get()).checked_mul(stride_bytes)?;
            start.checked_add(offset)
        });
        let outside = DmaError::NoBar4 { at, size_bytes };
        let stored = self.links.port.bar4_write(offset.ok_or(outside)?, bytes);
        stored.map_err(|_| outside)
    }

    /// Whether small writes may be [stored](Self::store): not on an emulator (driver 2.27).
    #[must_use]
    pub fn has_bar4(&self) -> bool {
        self.links.platform == Platform::Hardware
    }

    /// The completion queue of a core's ring: a chunk of host memory that lives as long as the ring.
    /// Its layout is [`completion`]'s.
    ///
    /// # Errors
    /// [`DmaError::NotReady`] if the ring is not up, [`DmaError::NoMemory`].
    pub fn completion_queue(&self, core: CoreId) -> Result<ChunkRef, DmaError> {
        self.completion_queue_of(core, None)
    }

    /// The same of a queue that was [asked for](super::h2t). None is the core's own.
    ///
    /// # Errors
    /// As [`completion_queue`](Self::completion_queue).
    pub fn completion_queue_of(
        &self,
        core: CoreId,
        queue: Option<QueueId>,
    ) -> Result<ChunkRef, DmaError> {
        let ring = self.zero_lane(self.lane_for(core, queue), super::NOBODY)?;
        let zero = ring.ring.zero_copies.as_deref();
        zero.map(ZeroCopies::completions)
            .ok_or(DmaError::NotReady { core })
    }

    fn check_zero_copy(&self, copy: &ZeroCopy<'_>) -> Result<(), DmaError> {
        if !self.has_zero_copy() {
            let arch = self.links.profile.arch;
            return Err(DmaError::NoZeroCopy { arch });
        }
        copy.check()
    }

    fn lane_for(&self, core: CoreId, queue: Option<QueueId>) -> &Lane {
        let asked_for = |queue| self.more_lanes().find(|lane| lane.queue() == queue);
        let lane = queue.and_then(asked_for);
        lane.unwrap_or_else(|| self.lane(core))
    }

    /// Takes the ring of a queue for zero copies of `by`, which has to have it for this core: whether
    /// it has can change until the ring is held, and not from then on.
    #[inline]
    fn zero_ring(
        &self,
        core: CoreId,
        queue: Option<QueueId>,
        by: Pid,
    ) -> Result<Held<'_>, DmaError> {
        let lane = self.lane_for(core, queue);
        let ring = self.zero_lane(lane, by);
        // A queue that was taken back has a closed ring, or is somebody else's by now.
        match queue.filter(|&queue| queue == lane.queue()) {
            Some(queue) if !self.may_copy_by(lane, core, by) => {
                Err(DmaError::NotGiven { core, queue })
            }
            Some(_) | None => ring,
        }
    }

    /// Takes a ring for zero copies of `by`. The first time it is given what they need. (The
    /// reference has that ready from the bring-up on.)
    #[inline]
    fn zero_lane<'a>(&'a self, lane: &'a Lane, by: Pid) -> Result<Held<'a>, DmaError> {
        loop {
            let ring = lane.hold(&self.links, by)?;
            if ring.ring.zero_copies.is_some() {
                return Ok(ring);
            }
            drop(ring);
            self.set_up_zero_copies(lane)?;
        }
    }

    fn set_up_zero_copies(&self, lane: &Lane) -> Result<(), DmaError> {
        let (links, core) = (&self.links, lane.core());
        let mut owned = self.owned.lock(&*links.sched);
        let mut ring = lane.hold(links, super::NOBODY)?;
        if ring.ring.zero_copies.is_some() {
            return Ok(());
        }
        let mut taking = Taking::new(&self.memory, core);
        let markers_bytes = u64::from(self.limits.contexts) * PAIR_SIZE_BYTES;
        let markers = taking.host(links.profile, markers_bytes)?;
        links.host.fill(markers, markers_bytes, 0)?;
        let queue = taking.host(links.profile, completion::SIZE_BYTES)?;
        let words = links.host.words(queue, completion::SIZE_BYTES)?;
        let chunk = taking.latest().ok_or(DmaError::NotReady { core })?;
        let zero = ZeroCopies::new(self.limits, markers, (queue, chunk), words, &links.host);
        ring.ring.zero_copies = Some(Box::new(zero.ok_or(DmaError::NotReady { core })?));
        owned.add(lane, taking.keep());
        Ok(())
    }

    fn completer(self: &Arc<Self>) -> (&Completer, WorkerId) {
        let (completer, worker) = self.completer.get_or_init(|| {
            let completer = Arc::new(Completer::new(Arc::downgrade(self)));
            let worker: Arc<dyn Worker> = Arc::<Completer>::clone(&completer);
            let id = self.links.sched.spawn(Arc::downgrade(&worker));
            (completer, id)
        });
        (completer, *worker)
    }
}
