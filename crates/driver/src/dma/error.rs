//! Why a copy was refused, or failed.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::handle::{CoreId, EngineId, QueueId};
use glia_abi::port::{BadHostRange, TimedOut};
use glia_abi::transport::{PinFault, UserFault};
use glia_abi::udma::BadTransferSize;

use super::context::WaitHandle;
use super::split::BATCH_BYTES_MAX;
use crate::alloc::AllocError;
use crate::ring::StageError;

/// Why a copy was refused, or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// `EINVAL`: the device has no such core.
    #[error("{core} does not exist: the device has {cores} cores")]
    NoCore {
        /// The core asked for.
        core: CoreId,
        /// Cores of the device.
        cores: u32,
    },
    /// `EPERM`, as in the reference: the core's ring was never brought up.
    #[error("the ring of {core} is not set up")]
    NotReady {
        /// The core.
        core: CoreId,
    },
    /// `EINVAL`: a ring cannot be set up on an engine that was never programmed.
    #[error("the ring of {core} is on {engine}, which is not up")]
    EngineDown {
        /// The core.
        core: CoreId,
        /// The engine of its ring.
        engine: EngineId,
    },
    /// `ENOENT`: the caller has the queue no more, or not for that core.
    #[error("{queue} is not given to the caller for copies of {core}")]
    NotGiven {
        /// The core.
        core: CoreId,
        /// The queue.
        queue: QueueId,
    },
    /// `EINVAL`: an asynchronous copy is one batch.
    #[error(
        "{size_bytes} bytes are too many for an asynchronous copy: at most {} can be moved",
        BATCH_BYTES_MAX
    )]
    TooLarge {
        /// Bytes asked for.
        size_bytes: u64,
    },
    /// `EINVAL`: the range does not fit the address space.
    #[error("{size_bytes} bytes from {source_at} to {target_at} leave the address space")]
    Wraps {
        /// First byte to read.
        source_at: BusAddr,
        /// First byte to write.
        target_at: BusAddr,
        /// Bytes asked for.
        size_bytes: u64,
    },
    /// `EINVAL`: a place in host memory has an address that is none of it.
    #[error("{at} is no host address")]
    NotHost {
        /// The address.
        at: BusAddr,
    },
    /// `EINVAL`: no copy is under way under this handle.
    #[error("{handle} of {queue} names no copy that is under way")]
    NotInUse {
        /// The handle.
        handle: WaitHandle,
        /// The queue on which it was looked up.
        queue: QueueId,
    },
    /// `EBUSY`: what is under way on the ring leaves no room for the batch.
    #[error("{queue} has room for {available} descriptors, not for {pairs}")]
    NoRoom {
        /// The queue.
        queue: QueueId,
        /// Descriptors wanted on each side.
        pairs: u32,
        /// Descriptors that there is room for.
        available: u32,
    },
    /// `EINVAL`: this generation does no zero copies.
    #[error("{arch} does zero copies only with the parameter zerocopy_trn1_override")]
    NoZeroCopy {
        /// The generation.
        arch: Arch,
    },
    /// `EINVAL`: an operation leaves the address space of the device.
    #[error("{size_bytes} bytes at offset {offset_bytes} from {base} leave the address space")]
    LeavesChunk {
        /// What the operation counts from.
        base: BusAddr,
        /// Its offset.
        offset_bytes: u64,
        /// Its size.
        size_bytes: u64,
    },
    /// `EINVAL`: what is to be stored through BAR4 does not lie in HBM.
    #[error("BAR4 does not show {size_bytes} bytes at {at}")]
    NoBar4 {
        /// First byte.
        at: BusAddr,
        /// Bytes.
        size_bytes: u64,
    },
    /// `EBUSY`: the request has more contexts than there is room for.
    #[error("{queue} has room for {free} contexts, not for the {contexts} of the request")]
    NoContexts {
        /// The queue.
        queue: QueueId,
        /// Contexts of the request.
        contexts: u32,
        /// Contexts that there is room for.
        free: u32,
    },
    /// `EBUSY`: so many requests have not ended, or their completions have not been taken, that there
    /// is no room for another completion.
    #[error("{queue} has no room for another completion: take some from its completion queue")]
    CompletionsFull {
        /// The queue.
        queue: QueueId,
    },
    /// User memory could not be pinned: `EFAULT` if it is not the caller's to use so, or would not
    /// outlive the call; `ENOMEM` if there is no room.
    #[error(transparent)]
    Pin(#[from] PinFault),
    /// `ETIMEDOUT`: the engine did not complete a batch, this one or another one of its ring.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
    /// No memory for a ring; the number is the cause's.
    #[error("no memory for the ring of {core}")]
    NoMemory {
        /// The core.
        core: CoreId,
        /// Why not.
        #[source]
        cause: AllocError,
    },
    /// `EIO`: the driver's own ring is not in host memory.
    #[error(transparent)]
    Memory(#[from] BadHostRange),
    /// `EINVAL`: a descriptor cannot say this size.
    #[error(transparent)]
    Size(#[from] BadTransferSize),
}

impl From<UserFault> for DmaError {
    fn from(fault: UserFault) -> Self {
        Self::Pin(fault.into())
    }
}

impl DmaError {
    /// Why a batch was not written into the ring of a queue.
    pub(super) fn staging(queue: QueueId, error: StageError) -> Self {
        match error {
            StageError::NoRoom { pairs, available } => Self::NoRoom {
                queue,
                pairs,
                available,
            },
            StageError::Memory(error) => Self::Memory(error),
            StageError::Size(error) => Self::Size(error),
        }
    }
}
