//! What the replay itself keeps of the chunks: which of them a trace's ids name, and what went
//! through the reserve pools.

use std::collections::HashMap;

use glia_driver::chunk::{Chunk, ChunkRef, Place};
use glia_driver::memory::RESERVE_POOLS;

use super::op::ChunkId;
use super::value::Value;

/// The chunks of one device, dead ones included: a trace may free through a pointer to a chunk that
/// is gone.
#[derive(Debug, Default)]
pub struct Books {
    by_id: HashMap<ChunkId, Option<ChunkRef>>,
    by_chunk: HashMap<ChunkRef, Known>,
    reserves: [ReserveBook; RESERVE_POOLS],
}

#[derive(Debug)]
struct Known {
    id: ChunkId,
    is_live: bool,
    size_bytes: u64,
    reserve: Option<usize>,
}

/// Bytes that went through one reserve pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReserveBook {
    /// Bytes of live chunks.
    pub live_bytes: u64,
    /// Bytes of all chunks that were ever freed.
    pub freed_bytes: u64,
}

/// What an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A live chunk.
    Live(ChunkRef),
    /// A chunk that is gone.
    Gone(ChunkRef),
    /// No chunk: never used, or its allocation failed.
    Nothing,
}

impl Books {
    /// Uses an id up; false if it was used before.
    pub fn use_up(&mut self, id: ChunkId) -> bool {
        self.by_id.insert(id, None).is_none()
    }

    /// Notes a chunk that was just made under this id.
    pub fn born(&mut self, id: ChunkId, chunk: ChunkRef, record: &Chunk) {
        let reserve = match record.place() {
            Place::Reserve { pool, .. } => Some(pool as usize),
            Place::Main | Place::Small | Place::Coherent => None,
        };
        if let Some(book) = reserve.and_then(|pool| self.reserves.get_mut(pool)) {
            book.live_bytes += record.size_bytes();
        }
        self.by_id.insert(id, Some(chunk));
        self.by_chunk.insert(
            chunk,
            Known {
                id,
                is_live: true,
                size_bytes: record.size_bytes(),
                reserve,
            },
        );
    }

    /// Notes that a chunk is gone.
    pub fn died(&mut self, chunk: ChunkRef) {
        let Some(known) = self.by_chunk.get_mut(&chunk).filter(|known| known.is_live) else {
            return;
        };
        known.is_live = false;
        if let Some(book) = known.reserve.and_then(|pool| self.reserves.get_mut(pool)) {
            book.live_bytes -= known.size_bytes;
            book.freed_bytes += known.size_bytes;
        }
    }

    /// What the trace's id names now.
    #[must_use]
    pub fn named(&self, id: ChunkId) -> Named {
        match self.by_id.get(&id) {
            Some(&Some(chunk)) => match self.by_chunk.get(&chunk) {
                Some(known) if known.is_live => Named::Live(chunk),
                Some(_) | None => Named::Gone(chunk),
            },
            Some(None) | None => Named::Nothing,
        }
    }

    /// The chunk's id as a trace writes it; a chunk that the trace knows nothing of is named in
    /// words.
    #[must_use]
    pub fn id_of(&self, chunk: ChunkRef) -> Value<'static> {
        match self.by_chunk.get(&chunk) {
            Some(known) => known.id.0.into(),
            None => format!("{chunk}, which the trace did not make").into(),
        }
    }

    /// The reserve pools, smallest pages first.
    #[must_use]
    pub fn reserves(&self) -> &[ReserveBook; RESERVE_POOLS] {
        &self.reserves
    }
}
