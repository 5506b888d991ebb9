//! Why a queue of a process was not set up, or not used.

use glia_abi::addr::BusAddr;
use glia_abi::handle::{EngineId, QueueId};
use glia_abi::port::BadHostRange;
use glia_abi::udma::{
    BadTransferSize, Direction, RING_ALIGN_BYTES, RING_DESCS_MAX, RING_DESCS_MIN,
};

use super::DESCS_STEP;
use crate::dma::DmaError;

/// Why a queue of a process was not set up, or not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// `EINVAL`: the device has no such queue.
    #[error("{queue} does not exist")]
    NoQueue {
        /// The queue.
        queue: QueueId,
    },
    /// `EINVAL`: the device has no such engine.
    #[error("{engine} does not exist")]
    NoEngine {
        /// The engine.
        engine: EngineId,
    },
    /// `EALREADY`: the queue is the driver's own, or another process's.
    #[error("{queue} has a ring already")]
    Taken {
        /// The queue.
        queue: QueueId,
    },
    /// `EPERM`, as in the reference: the queue has no ring of a process.
    #[error("no process has set {queue} up")]
    NotSet {
        /// The queue.
        queue: QueueId,
    },
    /// `EPERM`, as in the reference: a ring's length is no multiple of 16.
    #[error("a ring of {descs} descriptors is no multiple of {DESCS_STEP}")]
    Uneven {
        /// Descriptors asked for.
        descs: u32,
    },
    /// `EPERM`, as in the reference: a ring begins within 256 bytes.
    #[error("{at} is no multiple of {RING_ALIGN_BYTES}")]
    Unaligned {
        /// Where it would begin.
        at: BusAddr,
    },
    /// `EINVAL`: no ring has so many descriptors.
    #[error("a ring has {RING_DESCS_MIN} to {RING_DESCS_MAX} descriptors, not {descs}")]
    Length {
        /// Descriptors asked for.
        descs: u32,
    },
    /// `EINVAL`: a ring leaves its chunk. (The reference does not look, but for completions.)
    #[error("a ring of {descs} descriptors does not fit a chunk of {size_bytes} bytes")]
    TooSmall {
        /// Descriptors asked for.
        descs: u32,
        /// Bytes of the chunk.
        size_bytes: u64,
    },
    /// `EPERM`, as in the reference: a ring for completions was asked for.
    #[error("no completion ring can be attached")]
    Completions,
    /// `EPERM`: a doorbell would announce nothing, or more than the ring has. (Driver 2.24.7 stops
    /// on an assertion for some of these.)
    #[error("the {} doorbell of a ring of {descs} cannot announce {count}", direction.name())]
    Doorbell {
        /// Which side's.
        direction: Direction,
        /// Descriptors to announce.
        count: u32,
        /// Descriptors of the ring.
        descs: u32,
    },
    /// `EINVAL`: the driver cannot keep the ring's books: its length is no power of two, or it may not
    /// put descriptors there. (Driver 2.24.7 stops on an assertion.)
    #[error("the driver does not fill the rings of {queue}")]
    NotAllocatable {
        /// The queue.
        queue: QueueId,
    },
    /// `ENOMEM`: no slot is left.
    #[error("{queue} has no room")]
    NoRoom {
        /// The queue.
        queue: QueueId,
    },
    /// `EPERM`: a descriptor cannot say this size.
    #[error(transparent)]
    Size(#[from] BadTransferSize),
    /// `EINVAL`: this generation does not know the barrier.
    #[error("there is no such barrier on this generation")]
    Barrier,
    /// `EIO`: the ring is not in host memory.
    #[error(transparent)]
    Memory(#[from] BadHostRange),
    /// No memory for the ring that the queue would be left with; the number is the cause's.
    #[error(transparent)]
    Dummy(#[from] DmaError),
}
