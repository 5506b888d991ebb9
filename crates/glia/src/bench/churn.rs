//! Giving back random ones of many live chunks, and taking others: in pairs ([`Churn`]), or many
//! holes first ([`Holes`]).
//!
//! Which chunks go is drawn before the clock starts, and they are put side by side: the figure is
//! to be the driver's, and a caller who picks one of a million handles at random pays for a cache
//! miss of its own.

use std::time::Instant;

use glia_driver::arena::Arena;
use glia_driver::chunk::ChunkRef;

use super::BenchError;
use super::herd::Herd;
use super::rig::{Ask, Rig, SmallPool, request};
use super::rng::{Rng, Sizes};
use super::timing::{Op, Subject, Tally};

/// Holes made and refilled at a time.
const HOLES: usize = 64;
/// Pairs at a time, if there are enough chunks.
const PAIRS: usize = 1000;

/// Equal chunks without a gap, of which some random ones go and come back.
pub(super) struct Holes<A: Arena> {
    rig: Rig<A>,
    herd: Herd<ChunkRef>,
}

impl<A: Arena> Holes<A> {
    /// Among `live` chunks of a page.
    pub(super) fn among(live: u32) -> Result<Self, BenchError> {
        let rig = Rig::new(SmallPool::Off)?;
        let page = Ask::plain(1).request();
        let chunks: Result<_, _> = (0..live).map(|_| rig.take(&page)).collect();
        Ok(Self {
            herd: Herd::of(chunks?),
            rig,
        })
    }
}

impl<A: Arena> Subject for Holes<A> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let page = Ask::plain(1).request();
        let drawn = self.herd.draw(HOLES);
        let start = Instant::now();
        for chunk in drawn.iter() {
            self.rig.give(*chunk)?;
        }
        let between = Instant::now();
        for chunk in drawn.iter_mut() {
            *chunk = self.rig.take(&page)?;
        }
        let end = Instant::now();
        tally.note(Op::Free, between - start, drawn.len());
        tally.note(Op::Alloc, end - between, drawn.len());
        Ok(())
    }
}

/// Chunks of all sizes, fragmented by long use; a random one goes, one of random size comes.
pub(super) struct Churn<A: Arena> {
    rig: Rig<A>,
    herd: Herd<ChunkRef>,
    sizes: Sizes,
    /// Sizes of the next block of pairs.
    wanted: Vec<u64>,
}

impl<A: Arena> Churn<A> {
    /// `live` chunks of 1 to `pages_max` pages, each replaced twice on average.
    pub(super) fn aged(live: u32, pages_max: u32) -> Result<Self, BenchError> {
        let (sizes, mut rng) = (Sizes::log_uniform(pages_max), Rng::seeded());
        let rig = Rig::new(SmallPool::Off)?;
        let chunks: Result<_, _> = (0..live)
            .map(|_| rig.take(&request(sizes.draw(&mut rng))))
            .collect();
        let mut churn = Self {
            rig,
            herd: Herd::of(chunks?),
            sizes,
            wanted: Vec::new(),
        };
        let mut pairs = 0;
        while pairs < 2 * live as usize {
            pairs += churn.run_block()?.1;
        }
        Ok(churn)
    }

    /// The same chunks at the same addresses on another arena, without the use that led there: on
    /// the naive bitmap that would take longer than the bench.
    pub(super) fn copied<B: Arena>(&self, pages_max: u32) -> Result<Churn<B>, BenchError> {
        let rig = Rig::new(SmallPool::Off)?;
        let (mut chunks, mut plugs, mut end) = (Vec::new(), Vec::new(), None);
        for chunk in self.rig.chunks() {
            // First fit without a gap: chunks and, for now, plugs in the holes, in address order.
            let hole_bytes = end
                .and_then(|end| chunk.at().checked_offset_from(end))
                .unwrap_or(0);
            if hole_bytes > 0 {
                plugs.push(rig.take(&request(hole_bytes))?);
            }
            chunks.push(rig.take(&request(chunk.size_bytes()))?);
            end = Some(chunk.span().end());
        }
        for plug in plugs {
            rig.give(plug)?;
        }
        let sizes = Sizes::log_uniform(pages_max);
        Ok(Churn {
            rig,
            herd: Herd::of(chunks),
            sizes,
            wanted: Vec::new(),
        })
    }

    /// Time and number of a block of pairs.
    fn run_block(&mut self) -> Result<(std::time::Duration, usize), BenchError> {
        // At most an eighth of the chunks, so that chunks of all ages go.
        let pairs = PAIRS.min(self.herd.len() / 8).max(1);
        self.wanted.clear();
        self.wanted
            .extend((0..pairs).map(|_| self.sizes.draw(self.herd.rng())));
        let drawn = self.herd.draw(pairs);
        let start = Instant::now();
        for (chunk, &size_bytes) in drawn.iter_mut().zip(&self.wanted) {
            self.rig.give(*chunk)?;
            *chunk = self.rig.take(&request(size_bytes))?;
        }
        Ok((start.elapsed(), drawn.len()))
    }
}

impl<A: Arena> Subject for Churn<A> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let (time, pairs) = self.run_block()?;
        tally.note(Op::Pair, time, pairs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use glia_driver::arena::{ExtentTree, NaiveBitmap};

    use super::*;

    #[test]
    fn a_copy_has_the_same_chunks_at_the_same_addresses() {
        let aged = Churn::<ExtentTree>::aged(500, 16).unwrap();
        let copy = aged.copied::<NaiveBitmap>(16).unwrap();
        let spans = |chunks: Vec<glia_driver::chunk::Chunk>| {
            chunks.iter().map(|chunk| chunk.span()).collect::<Vec<_>>()
        };
        assert_eq!(spans(copy.rig.chunks()), spans(aged.rig.chunks()));
        assert_eq!(copy.herd.len(), 500);
    }
}
