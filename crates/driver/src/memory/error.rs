//! Why an access, a handle or a reference was refused.

use crate::chunk::{ChunkRef, DeadChunk};
use crate::handles::HandleError;

/// Why an access may not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The chunk is gone.
    #[error(transparent)]
    Dead(#[from] DeadChunk),
    /// The access leaves the chunk (or, from a scratchpad page, the scratchpad).
    #[error(
        "{size_bytes} bytes at offset {offset_bytes} are outside: {limit_bytes} bytes may be accessed"
    )]
    OutOfBounds {
        /// Offset from the chunk's first byte.
        offset_bytes: u64,
        /// Bytes to access.
        size_bytes: u64,
        /// Bytes from the chunk's first one that may be accessed.
        limit_bytes: u64,
    },
}

/// Why a chunk could not be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The chunk is gone.
    #[error(transparent)]
    Dead(#[from] DeadChunk),
    /// The handle table refused: `ENOENT`.
    #[error(transparent)]
    Handle(#[from] HandleError),
}

/// Why a reference could not be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// The chunk is gone.
    #[error(transparent)]
    Dead(#[from] DeadChunk),
    /// The count is at its limit.
    #[error("{chunk} has {} references, and more cannot be counted", u32::MAX)]
    TooMany {
        /// The chunk.
        chunk: ChunkRef,
    },
}
