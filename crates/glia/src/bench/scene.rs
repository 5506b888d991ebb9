//! Scenes: what lies in memory, what is asked of it, and the two sides that it is asked of.

use glia_driver::arena::{ExtentTree, NaiveBitmap};
use slab::Slab;

use super::BenchError;
use super::churn::{Churn, Holes};
use super::records;
use super::rig::{Ask, Ground};
use super::search;
use super::steady::Steady;
use super::tables::{Handles, InUse};
use super::timing::Subject;

/// What lies in memory and what is asked of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scene {
    /// A batch of equal chunks, taken and given back.
    Steady {
        ground: Ground,
        ask: Ask,
        batch: usize,
    },
    /// The same on new ground each turn, with the first request on it timed alone.
    First {
        ground: Ground,
        ask: Ask,
        batch: usize,
    },
    /// Random ones of `live` chunks of a page given back, the holes refilled.
    Holes { live: u32 },
    /// Random ones of `live` chunks replaced by others of 1 to `pages_max` pages.
    Churn { live: u32, pages_max: u32 },
    /// Random addresses looked up among `live` chunks of 1 to `pages_max` pages.
    Search { live: u32, pages_max: u32 },
    /// The same, by the index alone.
    SearchBare { live: u32, pages_max: u32 },
    /// The same, beside a thread that frees and allocates.
    SearchBusy { live: u32, pages_max: u32 },
    /// Random keys of a table with `live` ones given back, issued, looked up.
    Table { live: u32 },
    /// Records of `live` chunks copied, by random handles.
    Record { live: u32 },
    /// The same on two threads.
    RecordTwoThreads { live: u32 },
    /// The same records pinned and unpinned.
    Pin { live: u32 },
}

impl Scene {
    /// The scene set up: for Glia and, `with_peer`, for what stands on the other side behind it.
    pub(super) fn subjects(self, with_peer: bool) -> Result<Vec<Box<dyn Subject>>, BenchError> {
        type Tree = ExtentTree;
        type Naive = NaiveBitmap;
        match self {
            Self::Steady { ground, ask, batch } => sides(
                Steady::<Tree>::on(ground, ask, batch)?,
                with_peer.then(|| Steady::<Naive>::on(ground, ask, batch)),
            ),
            // The naive bitmap remembers nothing: every request is its first, and new ground would
            // take it seconds.
            Self::First { ground, ask, batch } => sides(
                Steady::<Tree>::on_new(ground, ask, batch)?,
                with_peer.then(|| Steady::<Naive>::on(ground, ask, batch)),
            ),
            Self::Holes { live } => sides(
                Holes::<Tree>::among(live)?,
                with_peer.then(|| Holes::<Naive>::among(live)),
            ),
            Self::Churn { live, pages_max } => {
                let churn = Churn::<Tree>::aged(live, pages_max)?;
                let peer = with_peer.then(|| churn.copied::<Naive>(pages_max));
                sides(churn, peer)
            }
            Self::Search { live, pages_max } => {
                let (index, map) = search::sides(live, pages_max)?;
                sides(index, with_peer.then_some(Ok(map)))
            }
            Self::SearchBare { live, pages_max } => {
                let (index, map) = search::bare_sides(live, pages_max)?;
                sides(index, with_peer.then_some(Ok(map)))
            }
            Self::SearchBusy { live, pages_max } => {
                let (busy, idle) = search::beside_a_writer(live, pages_max)?;
                sides(busy, with_peer.then_some(Ok(idle)))
            }
            Self::Table { live } => sides(
                InUse::<Handles>::with(live)?,
                with_peer.then(|| InUse::<Slab<u64>>::with(live)),
            ),
            Self::Record { live } => {
                let (record, slab) = records::copies(live)?;
                sides(record, with_peer.then_some(Ok(slab)))
            }
            Self::RecordTwoThreads { live } => {
                let (two, one) = records::two_threads(live)?;
                sides(two, with_peer.then_some(Ok(one)))
            }
            Self::Pin { live } => {
                let (pin, slab) = records::pins(live)?;
                sides(pin, with_peer.then_some(Ok(slab)))
            }
        }
    }

    /// Chunks that live while the clock runs.
    pub(super) fn live(self) -> u32 {
        match self {
            Self::Steady { ground, .. } | Self::First { ground, .. } => ground.live(),
            Self::Holes { live }
            | Self::Churn { live, .. }
            | Self::Search { live, .. }
            | Self::SearchBare { live, .. }
            | Self::SearchBusy { live, .. }
            | Self::Table { live }
            | Self::Record { live }
            | Self::RecordTwoThreads { live }
            | Self::Pin { live } => live,
        }
    }

    /// The same with another number of chunks or, where there are some, holes.
    pub(super) fn sized(self, count: u32) -> Self {
        self.resized(|_| count)
    }

    /// The same with another number, made of the present one.
    pub(super) fn resized(mut self, size: impl FnOnce(u32) -> u32) -> Self {
        match &mut self {
            Self::Steady { ground, .. } | Self::First { ground, .. } => ground.resize(size),
            Self::Holes { live }
            | Self::Churn { live, .. }
            | Self::Search { live, .. }
            | Self::SearchBare { live, .. }
            | Self::SearchBusy { live, .. }
            | Self::Table { live }
            | Self::Record { live }
            | Self::RecordTwoThreads { live }
            | Self::Pin { live } => *live = size(*live),
        }
        self
    }
}

fn sides<G, P>(
    glia: G,
    peer: Option<Result<P, BenchError>>,
) -> Result<Vec<Box<dyn Subject>>, BenchError>
where
    G: Subject + 'static,
    P: Subject + 'static,
{
    let mut sides: Vec<Box<dyn Subject>> = vec![Box::new(glia)];
    if let Some(peer) = peer {
        sides.push(Box::new(peer?));
    }
    Ok(sides)
}
