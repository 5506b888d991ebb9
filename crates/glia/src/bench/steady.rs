//! Taking a batch of equal chunks and giving it back, on ground that stays as it is.

use std::time::Instant;

use glia_driver::alloc::AllocRequest;
use glia_driver::arena::Arena;
use glia_driver::chunk::ChunkRef;

use super::BenchError;
use super::rig::{Ask, Ground, Rig};
use super::timing::{Op, Subject, Tally};

/// Takes and gives back, oldest first.
pub(super) struct Steady<A: Arena> {
    rig: Rig<A>,
    request: AllocRequest,
    batch: usize,
    taken: Vec<ChunkRef>,
    /// Laid anew for each turn, to time the first request on it.
    renewed: Option<Ground>,
}

impl<A: Arena> Steady<A> {
    /// `batch` requests at a time on one ground.
    pub(super) fn on(ground: Ground, ask: Ask, batch: usize) -> Result<Self, BenchError> {
        Ok(Self {
            rig: ground.lay()?,
            request: ask.request(),
            batch,
            taken: Vec::with_capacity(batch),
            renewed: None,
        })
    }

    /// The same, on new ground for each turn, and the first request on it is a figure of its own.
    pub(super) fn on_new(ground: Ground, ask: Ask, batch: usize) -> Result<Self, BenchError> {
        Ok(Self {
            renewed: Some(ground),
            ..Self::on(Ground::Empty, ask, batch)?
        })
    }
}

impl<A: Arena> Subject for Steady<A> {
    fn begin_turn(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        if let Some(ground) = self.renewed {
            self.rig = ground.lay()?;
            let start = Instant::now();
            let first = self.rig.take(&self.request)?;
            tally.note(Op::First, start.elapsed(), 1);
            self.rig.give(first)?;
        }
        Ok(())
    }

    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let start = Instant::now();
        for _ in 0..self.batch {
            self.taken.push(self.rig.take(&self.request)?);
        }
        let between = Instant::now();
        for chunk in self.taken.drain(..) {
            self.rig.give(chunk)?;
        }
        let end = Instant::now();
        tally.note(Op::Alloc, between - start, self.batch);
        tally.note(Op::Free, end - between, self.batch);
        tally.note(Op::Pair, end - start, self.batch);
        Ok(())
    }
}
