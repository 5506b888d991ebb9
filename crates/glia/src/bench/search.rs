//! Finding the chunk that contains an address: the driver's index beside a `BTreeMap` from start to
//! length and slot, and beside itself while another thread allocates and frees.
//!
//! A whole lookup ends in a copy of the chunk's record, 64 bytes; the driver's is checked for the
//! chunk's life, too, and takes no lock. The index alone answers with the slot of the chunk that
//! starts nearest below, as the length stands in the record; the map alone, which has the length,
//! with the slot of the chunk that contains the address.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use glia_abi::addr::BusAddr;
use glia_driver::arena::ExtentTree;
use glia_driver::chunk::{Chunk, ChunkRef};
use glia_driver::index::AddressIndex;

use super::BenchError;
use super::herd::Herd;
use super::lookups::Lookups;
use super::rig::{Rig, SmallPool, request};
use super::rng::{Rng, Sizes};
use super::threads::{Meeting, joined, note_hand_off};
use super::timing::{Subject, Tally};

/// The peer's name,
pub(super) const PEER: &str = "BTreeMap";
/// and that of a lookup with nobody beside it.
pub(super) const IDLE: &str = "idle writer";

/// Addresses that are looked up, one after the other and again.
const PROBES: usize = 1 << 16;
const BATCH: usize = 64;

/// As large as the driver's record.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "it is there to be copied")]
struct Record([u64; 8]);

/// Start to length and slot.
type Map = BTreeMap<u64, (u64, usize)>;

/// A device full of chunks, and addresses at random inside them.
struct Town {
    rig: Rig<ExtentTree>,
    chunks: Vec<Chunk>,
    probes: Arc<[BusAddr]>,
}

impl Town {
    /// `live` chunks of 1 to `pages_max` pages; addresses inside those that `is_asked`, by number.
    fn new(live: u32, pages_max: u32, is_asked: fn(usize) -> bool) -> Result<Self, BenchError> {
        let (sizes, mut rng) = (Sizes::log_uniform(pages_max), Rng::seeded());
        let rig = Rig::<ExtentTree>::new(SmallPool::Off)?;
        for _ in 0..live {
            rig.take(&request(sizes.draw(&mut rng)))?;
        }
        let chunks = rig.chunks();
        let inside = |_| {
            let mut numbers = std::iter::repeat_with(|| rng.below(chunks.len()));
            let number = numbers.find(|&number| is_asked(number));
            let chunk = chunks[number.unwrap_or(0)];
            let offset_bytes = rng.below(usize::try_from(chunk.size_bytes()).unwrap_or(1));
            chunk
                .at()
                .checked_add(offset_bytes as u64)
                .unwrap_or(chunk.at())
        };
        Ok(Self {
            probes: (0..PROBES).map(inside).collect(),
            chunks,
            rig,
        })
    }

    fn map(&self) -> Map {
        let starts = self.chunks.iter().enumerate();
        starts
            .map(|(slot, chunk)| (chunk.at().get(), (chunk.size_bytes(), slot)))
            .collect()
    }
}

fn slot_in(map: &Map, at: BusAddr) -> Option<usize> {
    let (&start, &(size_bytes, slot)) = map.range(..=at.get()).next_back()?;
    (at.get() - start < size_bytes).then_some(slot)
}

/// Both sides over the same chunks: the driver's lookup, the map and a record.
pub(super) fn sides(live: u32, pages_max: u32) -> Result<(impl Subject, impl Subject), BenchError> {
    let town = Town::new(live, pages_max, |_| true)?;
    let map = town.map();
    let records: Vec<Record> = town
        .chunks
        .iter()
        .map(|chunk| {
            Record([
                chunk.at().get(),
                chunk.size_bytes(),
                chunk.birth(),
                0,
                0,
                0,
                0,
                0,
            ])
        })
        .collect();
    let in_map = move |at| slot_in(&map, at).map(|slot| (slot, records[slot]));
    let (rig, probes) = (town.rig, town.probes);
    Ok((
        Lookups::of(Arc::clone(&probes), BATCH, move |at| rig.search(at)),
        Lookups::of(probes, BATCH, in_map),
    ))
}

/// The same without records: the index alone, the map alone.
pub(super) fn bare_sides(
    live: u32,
    pages_max: u32,
) -> Result<(impl Subject, impl Subject), BenchError> {
    let town = Town::new(live, pages_max, |_| true)?;
    let map = town.map();
    let index = AddressIndex::new(town.rig.layout().regions());
    for (slot, chunk) in (0..).zip(&town.chunks) {
        index.insert(chunk.at(), slot);
    }
    let probes = town.probes;
    Ok((
        Lookups::of(Arc::clone(&probes), BATCH, move |at| index.find(at, Some)),
        Lookups::of(probes, BATCH, move |at| slot_in(&map, at)),
    ))
}

/// One chunk in so many is the writer's, and nobody looks for it.
const WRITERS_SHARE: usize = 16;
/// Chunks that the writer frees at a time, before it takes as many of the same sizes.
const WRITERS_BATCH: usize = 16;
/// Batches of lookups beside one writer: some milliseconds, beside which a new thread is little.
const BATCHES_BESIDE: usize = 512;

/// The driver's lookup beside a thread that frees and allocates all the time, and alone.
pub(super) fn beside_a_writer(
    live: u32,
    pages_max: u32,
) -> Result<(impl Subject, impl Subject), BenchError> {
    let town = Town::new(live, pages_max, |number| number % WRITERS_SHARE != 0)?;
    let (rig, probes) = (Arc::new(town.rig), town.probes);
    let writers = town.chunks.iter().step_by(WRITERS_SHARE);
    let writers = writers.filter_map(|chunk| Some((rig.search(chunk.at())?.0, chunk.size_bytes())));
    let writer = Writer {
        herd: Herd::of(writers.collect()),
        rig: Arc::clone(&rig),
    };
    let look_up = |rig: Arc<Rig<ExtentTree>>| move |at| rig.search(at);
    Ok((
        Beside {
            writer,
            reader: Lookups::of(Arc::clone(&probes), BATCH, look_up(Arc::clone(&rig))),
        },
        Lookups::of(probes, BATCH, look_up(rig)),
    ))
}

/// Frees and allocates.
struct Writer {
    rig: Arc<Rig<ExtentTree>>,
    /// Its chunks and their sizes in bytes.
    herd: Herd<(ChunkRef, u64)>,
}

impl Writer {
    fn write_until_over(&mut self, meeting: &Meeting) -> Result<(), BenchError> {
        meeting.arrive()?;
        while !meeting.is_over() {
            let drawn = self.herd.draw(WRITERS_BATCH);
            for (chunk, _) in drawn.iter() {
                self.rig.give(*chunk)?;
            }
            for (chunk, size_bytes) in drawn {
                *chunk = self.rig.take(&request(*size_bytes))?;
            }
        }
        Ok(())
    }
}

/// Lookups, and a writer beside them.
struct Beside<S> {
    reader: S,
    writer: Writer,
}

impl<S: Subject> Subject for Beside<S> {
    fn begin_turn(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        note_hand_off(tally)
    }

    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let Self { reader, writer } = self;
        let meeting = Meeting::default();
        thread::scope(|scope| {
            let other = scope.spawn(|| writer.write_until_over(&meeting));
            meeting.arrive()?;
            let read = (0..BATCHES_BESIDE).try_for_each(|_| reader.run_batch(tally));
            meeting.end();
            joined(other)?;
            read
        })
    }
}
