//! Where a fault can be injected, and who is asked.
//!
//! The driver and the device ask a [`Faults`] before each thing that can fail in a real machine. A
//! plan answers; the model fails exactly as if the real cause had occurred. There is one model: a
//! fault never runs a second copy of it.

/// A point in the driver at which a failure can be ordered.
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
}

/// Answers whether something is to fail now. Asked from any thread, so an implementation counts
/// with atomics or a lock of its own.
pub trait Faults: Send + Sync {
    /// True if this attempt is to fail.
    fn strikes(&self, point: FaultPoint) -> bool;
}

/// The plan in which nothing fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn strikes(&self, _point: FaultPoint) -> bool {
        false
    }
}
