//! The seams below the driver: a device's registers ([`Port`]), and the machine's host memory
//! ([`HostMemory`], [`DmaMemory`], [`MachineMemory`]).
//!
//! Everything by which a driver and a device meet in reality passes here and nothing else does: the
//! driver stores descriptors into host memory that the device can read, rings a doorbell register,
//! and finds a word in host memory changed. There is no call that moves bytes.
//!
//! ```text
//!   driver                                    device
//!     words()[..].store(descriptor)  ──────►  reads the ring when its doorbell is rung
//!     reg_write(doorbell, count)     ──────►
//!     await_word(queue, marker)      ◄──────  copies the marker word into host memory
//! ```
//!
//! **Who owns what.** The machine owns all host memory; a range belongs to the driver from the
//! `alloc` that returned it to its `free`. Of a ring, the descriptors between the head and the tail
//! that the doorbells have announced belong to the device, all others to the driver. A poll word
//! belongs to the device from the doorbell until it holds the marker.

use crate::addr::{HostPa, RegOffset};
use crate::handle::{DeviceId, PinId, QueueId, WorkerId};
use crate::sched::{Micros, Tick};
use crate::sync::AtomicU32;

/// The machine's allocator of host memory that devices can reach (the reference's coherent DMA
/// allocator, DMA32 zone).
///
/// **Who owns what.** The machine owns all host memory. A range belongs to the driver from the
/// `alloc` that returned it to the `free` that names it with the same address and size; the machine
/// does not touch or move it meanwhile, and never returns overlapping ranges.
///
/// An implementation may refuse at any time; the driver then falls back on its reserve pools and
/// answers `ENOMEM` in the end.
pub trait HostMemory: Send + Sync {
    /// A fresh range of `size_bytes` (a multiple of 4,096), page-aligned and wholly below 4 GiB;
    /// `None` if it cannot be had. A size of 0 cannot be had.
    fn alloc(&self, device: DeviceId, size_bytes: u64) -> Option<HostPa>;

    /// Gives a range back, whole, as it was taken.
    fn free(&self, device: DeviceId, at: HostPa, size_bytes: u64);
}

/// An access to host memory that does not lie wholly in it, or is not aligned as it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("host memory has no {size_bytes} bytes at {at}")]
pub struct BadHostRange {
    /// First byte.
    pub at: HostPa,
    /// Bytes.
    pub size_bytes: u64,
}

/// The bytes of the machine's coherent host memory, as the driver reaches them by address.
///
/// Every access is checked against the whole of that memory; which range belongs to whom is the
/// business of [`HostMemory`] and the chunk records above it. Bytes change under a reader's hands
/// when a device writes them; so single words are atomics, and a range is read and written without
/// any promise of order between its bytes.
///
/// Memory that `alloc` returned holds whatever its last owner left there.
pub trait DmaMemory: Send + Sync {
    /// The words of a range, to load and store in place. `at` and `size_bytes` are multiples of 4.
    /// Borrowed for a batch of stores, never kept: fetch them anew.
    ///
    /// # Errors
    /// [`BadHostRange`] if the range leaves host memory or is not aligned.
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange>;

    /// Copies host memory into a buffer.
    ///
    /// # Errors
    /// [`BadHostRange`] if the range leaves host memory; nothing is copied then.
    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange>;

    /// Copies a buffer into host memory.
    ///
    /// # Errors
    /// [`BadHostRange`] if the range leaves host memory; nothing is copied then.
    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange>;

    /// Sets every byte of a range.
    ///
    /// # Errors
    /// [`BadHostRange`] if the range leaves host memory; nothing is set then.
    fn fill(&self, at: HostPa, size_bytes: u64, value: u8) -> Result<(), BadHostRange>;
}

/// All of the machine's host memory: its allocator, its bytes, and the user pages that are pinned
/// in it.
pub trait MachineMemory: HostMemory + DmaMemory {
    /// Ends a pin that [`UserMemory::pin`](crate::transport::UserMemory::pin) made: when this
    /// returns, no device reads or writes that memory, and none will. A descriptor that comes later
    /// is a DMA abort. An id that is not pinned (any more) is not an error.
    ///
    /// It is here and not with the user memory, because a worker, an exit or a failing ring unpins
    /// when the caller is gone.
    fn unpin(&self, pin: PinId);
}

/// How long the driver waits for a completion (driver 2.27: one delay, then a look every
/// microsecond).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Before the first look.
    pub first: Micros,
    /// From the first look on.
    pub following: Micros,
}

/// An awaited word did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{queue} did not complete: {reason}")]
pub struct TimedOut {
    /// The queue that was to write the word.
    pub queue: QueueId,
    /// Why the wait ended.
    pub reason: NotCompleted,
}

/// Why a wait for a completion ended without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotCompleted {
    /// The budget has passed.
    #[error("its time is over")]
    TimeOver,
    /// The queue has nothing to do, so the word cannot come.
    #[error("it has nothing left to do")]
    Idle,
    /// The queue has stopped, so the word cannot come before a reset.
    #[error("it has stopped")]
    Stopped,
}

/// A write to BAR4 that does not lie wholly in the device's HBM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("BAR4 has no {size_bytes} bytes at offset {offset:#x}")]
pub struct BadBar4Range {
    /// Offset from the start of BAR4.
    pub offset: u64,
    /// Bytes.
    pub size_bytes: u64,
}

/// One device as its driver reaches it: registers, the HBM window, and the wait for a word that the
/// device is to write.
///
/// Register accesses cannot fail, as on a bus; what has no defined place answers like a bus, too,
/// and is told to the [`Sink`](crate::event::Sink).
///
/// The doorbells of one queue are rung by one thread at a time. A poll word may be seen before the
/// head has moved past its descriptor, so a driver keeps some slots free
/// ([`RING_GAP_DESCS`](crate::udma::RING_GAP_DESCS)).
pub trait Port: Send + Sync {
    /// The value of a register of BAR0. What no register has reads as all ones.
    fn reg_read(&self, at: RegOffset) -> u32;

    /// Sets a register of BAR0. A write to what no register has, or to a read-only one, does
    /// nothing. A write to a doorbell announces descriptors: all stores that were made before it
    /// are seen by the device.
    fn reg_write(&self, at: RegOffset, value: u32);

    /// Stores bytes into HBM through BAR4 (the processor's own stores, no DMA).
    ///
    /// # Errors
    /// [`BadBar4Range`] if the range leaves the HBM of the device; nothing is stored then.
    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range>;

    /// Waits until `word` holds `want`: the delay `budget.first`, then a look every microsecond,
    /// `budget.following + 2` looks in all. What `queue` wrote before the word is seen by the
    /// caller after it.
    ///
    /// Says how many looks it took, at least 1.
    ///
    /// # Errors
    /// [`TimedOut`] when the budget has passed, or as soon as it is certain that `queue` will not
    /// write the word.
    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut>;

    /// Looks for the word once, and waits for nothing: for a [`Worker`], which must not block. Its
    /// wait began at `began`, and is as long as [`await_word`](Self::await_word) would wait.
    ///
    /// Unless an implementation says otherwise, its queues do everything within the doorbell, so
    /// that what is not there does not come. A wrapper around a port passes this on.
    ///
    /// [`Worker`]: crate::sched::Worker
    fn look_for_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        began: Tick,
        budget: Budget,
    ) -> Look {
        let _ = (began, budget);
        let none = Micros(0);
        let at_once = Budget {
            first: none,
            following: none,
        };
        match self.await_word(queue, word, want, at_once) {
            Ok(_) => Look::There,
            Err(why) => Look::TimedOut(why),
        }
    }

    /// From now on this worker, and no other, is kicked whenever the queue may have written a word,
    /// or can write none any more; for `None` nobody is. Whoever asks before it looks misses
    /// nothing. Unless an implementation says otherwise, there is never anything to miss.
    fn attend(&self, queue: QueueId, worker: Option<WorkerId>) {
        let _ = (queue, worker);
    }
}

/// A port that stands before another one, to see or to change some of what passes. Whatever an
/// implementation does not do itself is passed on.
pub trait PortTap: Send + Sync {
    /// The port behind.
    fn behind(&self) -> &dyn Port;

    /// [`Port::reg_read`].
    fn reg_read(&self, at: RegOffset) -> u32 {
        self.behind().reg_read(at)
    }

    /// [`Port::reg_write`].
    fn reg_write(&self, at: RegOffset, value: u32) {
        self.behind().reg_write(at, value);
    }

    /// [`Port::bar4_write`].
    ///
    /// # Errors
    /// As there.
    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range> {
        self.behind().bar4_write(offset, bytes)
    }

    /// [`Port::await_word`].
    ///
    /// # Errors
    /// As there.
    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut> {
        self.behind().await_word(queue, word, want, budget)
    }

    /// [`Port::look_for_word`].
    fn look_for_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        began: Tick,
        budget: Budget,
    ) -> Look {
        self.behind()
            .look_for_word(queue, word, want, began, budget)
    }

    /// [`Port::attend`].
    fn attend(&self, queue: QueueId, worker: Option<WorkerId>) {
        self.behind().attend(queue, worker);
    }
}

impl<T: PortTap> Port for T {
    fn reg_read(&self, at: RegOffset) -> u32 {
        PortTap::reg_read(self, at)
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        PortTap::reg_write(self, at, value);
    }

    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range> {
        PortTap::bar4_write(self, offset, bytes)
    }

    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut> {
        PortTap::await_word(self, queue, word, want, budget)
    }

    fn look_for_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        began: Tick,
        budget: Budget,
    ) -> Look {
        PortTap::look_for_word(self, queue, word, want, began, budget)
    }

    fn attend(&self, queue: QueueId, worker: Option<WorkerId>) {
        PortTap::attend(self, queue, worker);
    }
}

/// What a look for a word has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Look {
    /// It is there.
    There,
    /// Not yet. It is waited for until this point in time.
    NotYet {
        /// The end of the wait.
        until: Tick,
    },
    /// It did not come.
    TimedOut(TimedOut),
}
