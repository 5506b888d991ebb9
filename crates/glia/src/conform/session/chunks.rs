//! Operations on chunks, and the two that list what there is.

use glia_abi::addr::BusAddr;
use glia_abi::divergence::Divergence;
use glia_abi::handle::Channel;
use glia_driver::alloc::{AllocError, AllocRequest};
use glia_driver::chunk::{ChunkRef, DeadChunk};
use glia_driver::memory::{AccessError, DeviceMemory, Freed, RefError};

use super::Session;
use super::lifespans::unattached;
use crate::conform::answer::{Answer, Reference};
use crate::conform::books::Named;
use crate::conform::op::{ChunkId, Needle};
use crate::conform::outcome;
use crate::conform::trace::Stop;
use crate::conform::value::{Fields, Value};

/// A trace frees through a pointer that it does not have.
const NO_CHUNK: &[Stop] = &[Stop::NullChunk];
/// A trace frees through a pointer to a chunk that is gone.
const STALE_CHUNK: &[Stop] = &[Stop::BadMagic];
/// A trace uses, not frees, what is gone.
pub(super) const DEAD_CHUNK: &[Stop] = &[Stop::NullChunk, Stop::BadMagic];

impl Session {
    pub(super) fn alloc(
        &mut self,
        memory: &DeviceMemory,
        id: ChunkId,
        request: &AllocRequest,
    ) -> Answer {
        let made = memory.alloc(self.current, request);
        let record = made.map(|chunk| (chunk, memory.chunk(chunk)));
        match record {
            Ok((chunk, Some(record))) => {
                self.books.born(id, chunk, &record);
                Answer::outcome(outcome::alloc(memory, &record))
            }
            Ok((chunk, None)) => dead(chunk, DEAD_CHUNK),
            Err(error @ AllocError::NotAttached { .. }) => unattached(error),
            Err(error) => {
                let refused = outcome::ret(error.errno().ret());
                match error {
                    AllocError::ScratchpadMisaligned { .. } => {
                        Answer::outcome(refused.with("log", "misaligned_fixed_offset"))
                    }
                    AllocError::HostScratchpad => Answer::outcome(refused)
                        .instead(Divergence::HostScratchpad, Reference::Takes),
                    _ => Answer::outcome(refused),
                }
            }
        }
    }

    pub(super) fn add_ref(&self, memory: &DeviceMemory, id: ChunkId) -> Answer {
        self.with_chunk(id, |chunk| match memory.add_ref(chunk) {
            Ok(refs) => Answer::outcome(Fields::new().with("ref", refs)),
            Err(RefError::Dead(_)) => dead(chunk, DEAD_CHUNK),
            Err(error @ RefError::TooMany { .. }) => Answer::error(error),
        })
    }

    /// A trace passes no pointer for an id that is dead, so the driver is not asked then.
    pub(super) fn free(&mut self, memory: &DeviceMemory, id: ChunkId) -> Answer {
        match self.books.named(id) {
            Named::Live(chunk) => self.free_chunk(memory, chunk),
            Named::Gone(_) | Named::Nothing => no_chunk(id, NO_CHUNK),
        }
    }

    pub(super) fn free_stale(&mut self, memory: &DeviceMemory, id: ChunkId) -> Answer {
        match self.books.named(id) {
            Named::Live(chunk) | Named::Gone(chunk) => self.free_chunk(memory, chunk),
            Named::Nothing => no_chunk(id, DEAD_CHUNK),
        }
    }

    fn free_chunk(&mut self, memory: &DeviceMemory, chunk: ChunkRef) -> Answer {
        match memory.free(self.current, chunk) {
            Ok(Freed::Gone { complaint }) => {
                self.books.died(chunk);
                let outcome = Fields::new().with("freed", true);
                Answer::outcome(outcome::with_complaint(outcome, complaint))
            }
            // A trace takes no pins, so this chunk's memory never waits for one.
            Ok(Freed::Held) => {
                self.books.died(chunk);
                Answer::outcome(Fields::new().with("freed", true))
            }
            Ok(Freed::Kept { refs }) => {
                Answer::outcome(Fields::new().with("freed", false).with("ref", refs))
            }
            Err(DeadChunk { chunk }) => dead(chunk, STALE_CHUNK),
        }
    }

    pub(super) fn search(&self, memory: &DeviceMemory, needle: Needle) -> Answer {
        match needle {
            Needle::Pa(pa) => self.search_at(memory, pa),
            Needle::Of { id, offset_bytes } => {
                self.with_chunk(id, |chunk| match memory.chunk(chunk) {
                    Some(record) => {
                        self.search_at(memory, record.at().get().wrapping_add(offset_bytes))
                    }
                    None => dead(chunk, DEAD_CHUNK),
                })
            }
        }
    }

    fn search_at(&self, memory: &DeviceMemory, pa: u64) -> Answer {
        let at = BusAddr::new(pa);
        Answer::outcome(match memory.search(at) {
            Some((chunk, record)) => {
                let offset = at.checked_offset_from(record.at());
                let outcome = Fields::new().with("id", self.books.id_of(chunk));
                outcome.with("at", offset.map_or(Value::Null, Value::from))
            }
            None => Fields::new().with("id", Value::Null),
        })
    }

    pub(super) fn bounds(
        &self,
        memory: &DeviceMemory,
        id: ChunkId,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Answer {
        self.with_chunk(id, |chunk| {
            let answer = |is_inside: bool| Fields::new().with("ok", is_inside);
            let (end_bytes, wraps) = offset_bytes.overflowing_add(size_bytes);
            match memory.check_access(chunk, offset_bytes, size_bytes) {
                Ok(()) => Answer::outcome(answer(true)),
                Err(AccessError::Dead(_)) => dead(chunk, DEAD_CHUNK),
                Err(AccessError::OutOfBounds { .. }) if !wraps => Answer::outcome(answer(false)),
                Err(AccessError::OutOfBounds { limit_bytes, .. }) => {
                    let refused = Answer::outcome(answer(false).with("wrapped", true));
                    if end_bytes <= limit_bytes {
                        let accident = answer(true).with("wrapped", true);
                        refused.instead(Divergence::BoundsWrap, Reference::Answers(accident))
                    } else {
                        refused
                    }
                }
            }
        })
    }

    /// The reference takes from a reserve pool's counter what is freed there and never adds what is
    /// allocated, so its counter is minus all that was ever freed. Glia's counter must be what is
    /// live, else nothing is declared about it.
    pub(super) fn stats(&self, memory: &DeviceMemory, with_usage: bool) -> Answer {
        let stats = memory.stats();
        let usage = with_usage.then(|| memory.usage());
        let outcome = |stats: &_| outcome::stats(stats, self.host.used_bytes(), usage.as_ref());
        let own = outcome(&stats);
        let books = self.books.reserves();
        let is_balanced = stats
            .reserves
            .iter()
            .zip(books)
            .all(|(pool, book)| pool.allocated_bytes == book.live_bytes);
        let is_equal = books
            .iter()
            .all(|book| book.live_bytes == 0 && book.freed_bytes == 0);
        if !is_balanced || is_equal {
            return Answer::outcome(own);
        }
        let mut accident = own.clone();
        if let Some(Value::List(pools)) = accident.get_mut("hrm") {
            for (pool, book) in pools.iter_mut().zip(books) {
                if let Value::Object(pool) = pool
                    && let Some(allocated) = pool.get_mut("allocated")
                {
                    *allocated = (-i128::from(book.freed_bytes)).into();
                }
            }
        }
        Answer::outcome(own).instead(Divergence::ReserveCounter, Reference::Answers(accident))
    }

    /// Does something with the chunk of an id, dead or alive.
    pub(super) fn with_chunk(&self, id: ChunkId, then: impl FnOnce(ChunkRef) -> Answer) -> Answer {
        match self.books.named(id) {
            Named::Live(chunk) | Named::Gone(chunk) => then(chunk),
            Named::Nothing => no_chunk(id, DEAD_CHUNK),
        }
    }
}

/// The first chunks of a channel, and how many there are.
pub(super) fn dump(memory: &DeviceMemory, channel: Channel, max: u64) -> Answer {
    let chunks = memory.channel_chunks(channel);
    let shown = chunks
        .iter()
        .take(usize::try_from(max).unwrap_or(usize::MAX));
    let rows = shown.map(|chunk| {
        let category = u64::from(chunk.category().0);
        Value::from_iter([chunk.at().get(), chunk.size_bytes(), category])
    });
    let outcome = Fields::new().with("count", chunks.len() as u64);
    Answer::outcome(outcome.with("chunks", Value::from_iter(rows)))
}

/// What the replay says of an id without a chunk: there is nothing to ask the driver for.
fn no_chunk(id: ChunkId, ways: &'static [Stop]) -> Answer {
    Answer::instead_of_stop(
        format!("{id} names no live chunk"),
        Divergence::DeadChunk,
        ways,
        Fields::new(),
    )
}

/// What Glia says of a chunk that the driver finds gone.
pub(super) fn dead(chunk: ChunkRef, ways: &'static [Stop]) -> Answer {
    Answer::instead_of_stop(
        DeadChunk { chunk },
        Divergence::DeadChunk,
        ways,
        Fields::new(),
    )
}
