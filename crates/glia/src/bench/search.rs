//! Finding the chunk that contains an address: the driver's index beside a `BTreeMap` from start to
//! length and slot.
//!
//! Either answer holds a copy of the chunk's record, 64 bytes; the driver's is checked for the
//! chunk's life, too, and takes no lock.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use glia_abi::addr::BusAddr;
use glia_driver::arena::ExtentTree;

use super::BenchError;
use super::rig::{Rig, SmallPool, request};
use super::rng::{Rng, Sizes};
use super::timing::{Op, Subject, Tally};

/// The peer's name.
pub(super) const PEER: &str = "BTreeMap";

/// Addresses that are looked up, one after the other and again.
const PROBES: usize = 1 << 16;
const BATCH: usize = 64;

/// A stream of independent lookups, of which each finds something.
struct Search<F> {
    look_up: F,
    probes: Vec<BusAddr>,
    next: usize,
}

/// As large as the driver's record.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "it is there to be copied")]
struct Record([u64; 8]);

/// Both sides over the same `live` chunks of 1 to `pages_max` pages: the driver's index, the map.
pub(super) fn sides(live: u32, pages_max: u32) -> Result<(impl Subject, impl Subject), BenchError> {
    let (sizes, mut rng) = (Sizes::log_uniform(pages_max), Rng::seeded());
    let rig = Rig::<ExtentTree>::new(SmallPool::Off)?;
    for _ in 0..live {
        rig.take(&request(sizes.draw(&mut rng)))?;
    }
    let chunks = rig.chunks();
    let inside = |_| {
        let chunk = chunks[rng.below(chunks.len())];
        let offset_bytes = rng.below(usize::try_from(chunk.size_bytes).unwrap_or(1));
        chunk
            .at
            .checked_add(offset_bytes as u64)
            .unwrap_or(chunk.at)
    };
    let probes: Vec<BusAddr> = (0..PROBES).map(inside).collect();

    let records: Vec<Record> = chunks
        .iter()
        .map(|chunk| Record([chunk.at.get(), chunk.size_bytes, chunk.birth, 0, 0, 0, 0, 0]))
        .collect();
    let starts: BTreeMap<u64, (u64, usize)> = chunks
        .iter()
        .enumerate()
        .map(|(slot, chunk)| (chunk.at.get(), (chunk.size_bytes, slot)))
        .collect();
    let in_map = move |at: BusAddr| {
        let (&start, &(size_bytes, slot)) = starts.range(..=at.get()).next_back()?;
        (at.get() - start < size_bytes).then(|| (slot, records[slot]))
    };
    let in_index = move |at: BusAddr| rig.search(at);
    Ok((
        Search {
            look_up: in_index,
            probes: probes.clone(),
            next: 0,
        },
        Search {
            look_up: in_map,
            probes,
            next: 0,
        },
    ))
}

impl<T, F: Fn(BusAddr) -> Option<T>> Subject for Search<F> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let probes = &self.probes[self.next..self.next + BATCH];
        self.next = (self.next + BATCH) % PROBES;
        let start = Instant::now();
        let found = probes
            .iter()
            .filter(|&&at| black_box((self.look_up)(at)).is_some());
        let missed = BATCH - found.count();
        tally.note(Op::Find, start.elapsed(), BATCH);
        if missed > 0 {
            return Err(BenchError::Missed {
                missed,
                asked: BATCH,
            });
        }
        Ok(())
    }
}
