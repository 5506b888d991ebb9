//! Tables alone: the driver's handle table beside `slab::Slab<u64>`.
//!
//! Both hand out small numbers, last freed first, and answer what lies behind one. The driver's
//! lets other threads find meanwhile; the slab does not.

use std::time::Instant;

use glia_abi::fault::NoFaults;
use glia_abi::handle::McHandle;
use glia_driver::handles::{FreeHandles, HANDLE_LIMIT, HandleTable, Object};
use slab::Slab;

use super::BenchError;
use super::herd::Herd;
use super::lookups::{all_found, count_found};
use super::timing::{Op, Subject, Tally};

/// The peer's name.
pub(super) const PEER: &str = "slab of u64";

/// Operations to a reading of the clock.
const BATCH: usize = 1024;

/// What both sides can do.
pub(super) trait Table: Sized {
    type Key: Copy;

    fn new() -> Result<Self, BenchError>;
    fn insert(&mut self, value: u32) -> Result<Self::Key, BenchError>;
    fn get(&self, key: Self::Key) -> Option<u64>;
    fn remove(&mut self, key: Self::Key) -> Result<(), BenchError>;
}

/// The driver's table with its free chain.
pub(super) type Handles = (HandleTable, FreeHandles);

impl Table for Handles {
    type Key = McHandle;

    fn new() -> Result<Self, BenchError> {
        Ok(HandleTable::new(HANDLE_LIMIT, &NoFaults)?)
    }

    fn insert(&mut self, value: u32) -> Result<McHandle, BenchError> {
        let (table, free) = self;
        Ok(table.alloc(free, Object::Other(value), &NoFaults)?)
    }

    fn get(&self, handle: McHandle) -> Option<u64> {
        match self.0.find(handle)? {
            Object::Other(value) => Some(u64::from(value)),
            Object::Chunk(_) => None,
        }
    }

    fn remove(&mut self, handle: McHandle) -> Result<(), BenchError> {
        let (table, free) = self;
        Ok(table.free(free, handle)?)
    }
}

impl Table for Slab<u64> {
    type Key = usize;

    fn new() -> Result<Self, BenchError> {
        Ok(Self::new())
    }

    fn insert(&mut self, value: u32) -> Result<usize, BenchError> {
        Ok(self.insert(u64::from(value)))
    }

    fn get(&self, key: usize) -> Option<u64> {
        self.get(key).copied()
    }

    fn remove(&mut self, key: usize) -> Result<(), BenchError> {
        let removed = usize::from(self.try_remove(key).is_some());
        all_found(removed, 1)
    }
}

/// A table in use: random ones of its keys go, others come, others still are looked up.
pub(super) struct InUse<T: Table> {
    table: T,
    keys: Herd<T::Key>,
}

impl<T: Table> InUse<T> {
    /// With `live` keys.
    pub(super) fn with(live: u32) -> Result<Self, BenchError> {
        let mut table = T::new()?;
        let keys: Result<_, _> = (0..live).map(|value| table.insert(value)).collect();
        Ok(Self {
            keys: Herd::of(keys?),
            table,
        })
    }
}

impl<T: Table> Subject for InUse<T> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let asked = self.keys.sample(BATCH);
        let start = Instant::now();
        let found = count_found(&asked, |key| self.table.get(key));
        tally.note(Op::Find, start.elapsed(), BATCH);
        all_found(found, BATCH)?;

        let drawn = self.keys.draw(BATCH);
        let start = Instant::now();
        for key in drawn.iter() {
            self.table.remove(*key)?;
        }
        let between = Instant::now();
        for (value, key) in (0..).zip(drawn.iter_mut()) {
            *key = self.table.insert(value)?;
        }
        let end = Instant::now();
        tally.note(Op::Free, between - start, drawn.len());
        tally.note(Op::Alloc, end - between, drawn.len());
        Ok(())
    }
}
