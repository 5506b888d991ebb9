//! Where a fault can be injected, and who is asked.
//!
//! Driver, device and host memory ask a [`Faults`] before each thing that can fail in a real
//! machine. A [`plan`](FaultPlan) answers; the model then fails exactly as if the real cause had
//! occurred. There is one model: a fault never runs a second copy of it.
//!
//! ```text
//!   driver, host memory ── strikes(point) ─────────► yes or no
//!   driver              ── staged(batch) ──────────► (whose the descriptors are)
//!   engine              ── pair(at) ───────────────► a PairFault, or none
//! ```
//!
//! **Whose it is.** The driver works on its caller's thread, and says at the door for whom it works
//! and under which command: the [`Scope`]. An engine knows no process; the driver tells which
//! pairs of which queue it has staged for whom, before it rings their doorbells.
//!
//! Whoever asks does so once for each thing that can fail, so that a plan can count.

mod plan;
mod rule;
mod scope;

pub use plan::{FaultPlan, RuleId, Struck};
pub use rule::{DELAY_MAX, FaultKind, FaultRule, InternalAlloc, Matching, PlanError, Trigger};
pub use scope::{Entered, Scope};

use crate::handle::{DeviceId, QueueId};
use crate::sched::Micros;

/// A point in the driver or in host memory at which a failure can be ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultPoint {
    /// The driver's own hook at the head of an allocation (driver 2.27: between the checks of
    /// channel and core): `ENOMEM`.
    Alloc,
    /// Kernel memory for a chunk record: `ENOMEM`.
    ChunkRecord,
    /// Kernel memory for the handle table's first level or its first page, at bring-up.
    HandleTable,
    /// Kernel memory for a further page of the handle table: the table goes down.
    HandlePage,
    /// Kernel memory for an arena or its bookkeeping, at bring-up: `ENOMEM`.
    Pool,
    /// A free cell of the handle table, as if all were taken: the table goes down.
    HandleCell,
    /// Room for a batch in a DMA ring, as if the engine had completed nothing.
    RingRoom,
    /// A free process slot of a device, as if all were taken.
    ProcessSlot,
    /// The machine's allocator of coherent host memory.
    HostMemory,
    /// The pinning of user pages.
    Pin,
    /// The pages that are pinned lie scattered in host memory, each by itself. Not a failure.
    ScatteredPages,
}

impl FaultPoint {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Alloc,
        Self::ChunkRecord,
        Self::HandleTable,
        Self::HandlePage,
        Self::Pool,
        Self::HandleCell,
        Self::RingRoom,
        Self::ProcessSlot,
        Self::HostMemory,
        Self::Pin,
        Self::ScatteredPages,
    ];
}

/// A batch of descriptor pairs that the driver is about to announce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StagedBatch {
    /// The device.
    pub device: DeviceId,
    /// The queue.
    pub queue: QueueId,
    /// The queue's count of pairs before it.
    pub first: u64,
    /// Pairs, the marker's included.
    pub pairs: u32,
    /// For whom.
    pub scope: Scope,
}

/// A descriptor pair that an engine is about to execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PairAt {
    /// The device.
    pub device: DeviceId,
    /// The queue.
    pub queue: QueueId,
    /// The queue's count of pairs before it, from the machine's start.
    pub index: u64,
    /// Pairs before it that the same TX doorbell announced.
    pub in_batch: u64,
    /// It is the last one that its TX doorbell announced: of a batch of the driver, the marker.
    pub is_last: bool,
    /// Bytes that it moves.
    pub size_bytes: u64,
    /// Its source lies in HBM.
    pub reads_hbm: bool,
    /// A reset of the device, or of any of its cores, was under way when it was announced.
    pub in_reset: bool,
}

/// What becomes of a descriptor pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PairFault {
    /// Neither it nor any later one is executed, until the queue is reset. Nothing tells so.
    Hang,
    /// It is retired without having moved anything.
    Lost,
    /// It is executed so much later, and everything behind it, too.
    Late(Micros),
    /// It is executed, and everything can see that; but the head moves past it so much later.
    RetiredLate(Micros),
    /// It is executed, then bits of what it wrote are inverted.
    Flipped {
        /// The first such byte, from the start of what it wrote.
        offset_bytes: u64,
        /// How many bytes; as many as there are, if there are fewer.
        size_bytes: u64,
        /// Which bits of each.
        mask: u8,
    },
    /// The bus aborts it: the queue stops with a hardware error.
    Abort,
    /// Its source in HBM cannot be read correctly: the queue stops with a hardware error.
    Uncorrectable,
}

/// Answers whether something is to fail now. Asked from any thread, so an implementation counts
/// with atomics or a lock of its own.
pub trait Faults: Send + Sync {
    /// Whether anything is ordered at all. While this is false, nobody needs to ask.
    fn is_armed(&self) -> bool {
        true
    }

    /// True if this attempt is to fail. The thread's [`Scope`] says whose attempt it is.
    fn strikes(&self, point: FaultPoint) -> bool;

    /// Hears whose descriptors a queue is about to get.
    fn staged(&self, _batch: &StagedBatch) {}

    /// What becomes of a pair; `None` if it is executed as it should be.
    fn pair(&self, _at: &PairAt) -> Option<PairFault> {
        None
    }
}

impl dyn Faults + '_ {
    /// [`strikes`](Faults::strikes), asked only while anything is ordered.
    #[inline]
    pub fn orders(&self, point: FaultPoint) -> bool {
        self.is_armed() && self.strikes(point)
    }
}

/// The plan in which nothing fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn is_armed(&self) -> bool {
        false
    }

    fn strikes(&self, _point: FaultPoint) -> bool {
        false
    }
}
