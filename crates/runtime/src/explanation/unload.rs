//! What goes back only as models are unloaded: the memory of scratchpads.
//!
//! No call frees a page of a scratchpad. It goes back when the last model that needs it is unloaded,
//! and so the newest page goes first. A private block goes with its model; and with a model goes
//! all that it has allocated.
//!
//! ```text
//!            page 0   page 1   page 2   page 3
//!   model A  ███████████████████████████████████     to unload A gives pages 2 and 3 back,
//!   model B  ████████████████                        B alone none, and both all four
//! ```
//!
//! So what can be freed is what some models take along, and any other blocks. The searches know
//! nothing of models. They are asked what is the least of other blocks when some models are gone, for
//! each set of models, by rising bytes; until the models alone cost more than the best set so far. So
//! the least is found where there are not too many sets of models to look at.
//!
//! **Of other processes** nobody knows the models. What is known is that the pages of a core go back
//! newest first, and that private blocks go with a model; what else goes with that is not known.

mod source;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use glia_abi::addr::BusAddr;
use glia_abi::handle::{CoreId, Pid};
use glia_abi::insight::{ChannelSnapshot, ChunkFacts};
use glia_abi::usage::Category;

use self::source::{Cost, Loaded, Source, Step, Weight, plus};
use super::bank::Request;
use super::blocks::{Own, Owner};
use super::evict::Place;
use super::whole::Freed;
use crate::dml::ModelId;

/// What lives of a scratchpad of this process, and for whom.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScratchBook {
    /// Its pages, in the order in which they were taken.
    pub(crate) pages: Vec<BusAddr>,
    /// One for each reservation.
    pub(crate) users: Vec<ScratchUser>,
}

/// What a model has reserved of a scratchpad.
#[derive(Debug, Clone)]
pub(crate) struct ScratchUser {
    pub(crate) model: ModelId,
    /// How many pages it needs, from the first on.
    pub(crate) pages: usize,
    /// Its private blocks.
    pub(crate) private: Vec<BusAddr>,
}

/// The chunks of a channel that go back only as models are unloaded. Chunks are told by their places
/// in the channel's list.
pub(super) struct Ties {
    /// Of them the starts, by address.
    tied: Vec<BusAddr>,
    sources: Vec<Source>,
}

/// A set to free.
pub(super) struct Freeing {
    pub(super) place: Place,
    pub(super) is_least: bool,
    /// The models to unload for it, and how many of its chunks go with them.
    pub(super) models: Vec<ModelId>,
    pub(super) unloaded: usize,
}

/// What came of a search.
#[derive(Default)]
pub(super) struct Found {
    /// `None` if nothing helps of what was tried.
    pub(super) freeing: Option<Freeing>,
    /// Whether all sets of models were tried, or need not be.
    pub(super) is_complete: bool,
}

fn is_scratchpad(chunk: &ChunkFacts) -> bool {
    is_page(chunk) || chunk.category == Category::SCRATCHPAD_NONSHARED_DEVICE
}

fn is_page(chunk: &ChunkFacts) -> bool {
    let category = chunk.category;
    category == Category::SCRATCHPAD_DEVICE || category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE
}

impl Ties {
    /// Those of a channel, for who asks so.
    pub(super) fn new(channel: &ChannelSnapshot, request: &Request, own: &Own) -> Self {
        let chunks = &channel.chunks;
        let own_at = |at: &BusAddr| -> Option<Weight> {
            let found = chunks.binary_search_by_key(at, |chunk| chunk.span.start());
            let number = found.ok()?;
            let chunk = chunks.get(number)?;
            let is_own = request.can_free(chunk) && own.owner(chunk) == Owner::This;
            is_own.then_some((number, chunk.span.size_bytes()))
        };
        let mut ties = Self {
            tied: Vec::new(),
            sources: Vec::new(),
        };
        for book in &own.scratchpads {
            let pages: Vec<Option<Weight>> = book.pages.iter().map(own_at).collect();
            let mut models: BTreeMap<ModelId, Loaded> = BTreeMap::new();
            for user in &book.users {
                let private: Vec<Weight> = user.private.iter().filter_map(own_at).collect();
                let loaded = models.entry(user.model).or_insert_with(|| Loaded {
                    id: user.model,
                    pages: 0,
                    private: Vec::new(),
                    may_go: request.model != Some(user.model),
                    chunks: Vec::new(),
                });
                loaded.pages = loaded.pages.max(user.pages);
                loaded
                    .private
                    .extend(private.iter().map(|&(number, _)| number));
                ties.tie(chunks, private);
            }
            let is_here = pages.iter().any(Option::is_some);
            if is_here || models.values().any(|model| !model.private.is_empty()) {
                ties.tie(chunks, pages.iter().flatten().copied());
                let is_kept = |at: &BusAddr| request.kept.binary_search(at).is_ok();
                ties.sources.push(Source::Scratchpad {
                    kept: book.pages.iter().filter(|at| is_kept(at)).count(),
                    pages,
                    models: models.into_values().collect(),
                });
            }
        }
        if !ties.sources.is_empty() {
            ties.take_along(own, own_at);
        }
        ties.add_others(chunks, request, own);
        ties.tied.sort_unstable();
        ties
    }

    fn tie(&mut self, chunks: &[ChunkFacts], tied: impl IntoIterator<Item = Weight>) {
        let tied = tied
            .into_iter()
            .filter_map(|(number, _)| chunks.get(number));
        self.tied.extend(tied.map(|chunk| chunk.span.start()));
    }

    /// Gives models what they own.
    fn take_along(&mut self, own: &Own, own_at: impl Fn(&BusAddr) -> Option<Weight>) {
        let scratchpads = self.sources.iter_mut().filter_map(|source| match source {
            Source::Scratchpad { models, .. } => Some(models),
            Source::Others(_) => None,
        });
        let mut models: BTreeMap<ModelId, &mut Loaded> = scratchpads
            .flatten()
            .map(|model| (model.id, model))
            .collect();
        for (at, _, id) in own.blocks.of_models() {
            if let Some(model) = models.get_mut(&id) {
                model.chunks.extend(own_at(&at));
            }
        }
    }

    fn add_others(&mut self, chunks: &[ChunkFacts], request: &Request, own: &Own) {
        let mut pages: BTreeMap<(Pid, CoreId, u32), Vec<(u64, Weight)>> = BTreeMap::new();
        for (number, chunk) in chunks.iter().enumerate() {
            if !is_page(chunk) || !matches!(own.owner(chunk), Owner::Other(_)) {
                continue;
            }
            self.tied.push(chunk.span.start());
            if request.can_free(chunk) {
                let key = (chunk.owner, chunk.core, chunk.category.0);
                let weight = (number, chunk.span.size_bytes());
                pages.entry(key).or_default().push((chunk.birth, weight));
            }
        }
        for mut pages in pages.into_values() {
            pages.sort_unstable();
            let pages = pages.into_iter().map(|(_, weight)| weight);
            self.sources.push(Source::Others(pages.collect()));
        }
    }

    /// Whether a chunk goes back only as models are unloaded, as far as this can be searched.
    pub(super) fn has(&self, chunk: &ChunkFacts) -> bool {
        is_scratchpad(chunk) && self.tied.binary_search(&chunk.span.start()).is_ok()
    }

    /// Whether a chunk goes back only as models are unloaded, or this is to be supposed.
    pub(super) fn is_with_models(&self, chunk: &ChunkFacts, own: &Own) -> bool {
        self.has(chunk) || is_scratchpad(chunk) && matches!(own.owner(chunk), Owner::Other(_))
    }

    /// What can go back with models, by rising place.
    pub(super) fn can_go(&self) -> Vec<usize> {
        let most = |source: &Source| {
            let (steps, _) = source.steps(None, true);
            let models: BTreeSet<usize> = steps
                .iter()
                .flat_map(|step| &step.models)
                .copied()
                .collect();
            let pages_from = steps.iter().map(|step| step.pages_from);
            source.chunks(&Step {
                cost: (0, 0),
                models: models.into_iter().collect(),
                pages_from: pages_from.min().unwrap_or(usize::MAX),
            })
        };
        let mut all: Vec<usize> = self.sources.iter().flat_map(most).collect();
        all.sort_unstable();
        all
    }

    fn sources(&self, is_own: bool) -> impl Iterator<Item = &Source> {
        let is_meant =
            move |source: &&Source| !is_own || matches!(source, Source::Scratchpad { .. });
        self.sources.iter().filter(is_meant)
    }

    /// The least set. `search` finds the least of the chunks that no model holds, beside some that are
    /// gone, and says whether it may be asked for more. `is_one` tells that one place is looked for, and
    /// nothing else is needed of what can be freed.
    pub(super) fn least(
        &self,
        is_own: bool,
        is_one: bool,
        mut search: impl FnMut(&Gone) -> (Option<Freed>, bool),
    ) -> Found {
        let sources: Vec<&Source> = self.sources(is_own).collect();
        let mut tried = Tried {
            best: None,
            is_exact: true,
            may_ask: true,
        };
        tried.look(&sources, &[], true, &mut search);
        let limit = tried.best_cost();
        let mut is_complete = true;
        let steps = sources.iter().map(|source| {
            let (steps, is_all) = source.steps(limit, is_one);
            is_complete &= is_all;
            steps
        });
        let steps: Vec<Vec<Step>> = steps.collect();
        // Each choice of steps comes up once: behind the one that has one step less in its last source.
        let mut next = BinaryHeap::new();
        next.push(Reverse(((0, 0), vec![0_usize; steps.len()], 0)));
        while let Some(Reverse((cost, picks, from))) = next.pop() {
            if tried.best_cost().is_some_and(|best| cost > best) {
                break;
            }
            for source in from..steps.len() {
                let mut more = picks.clone();
                let Some(pick) = more.get_mut(source) else {
                    continue;
                };
                *pick += 1;
                if let Some(cost) = cost_of(&steps, &more) {
                    next.push(Reverse((cost, more, source)));
                }
            }
            if picks.iter().all(|&pick| pick == 0) {
                continue;
            }
            if !tried.may_ask {
                is_complete = false;
                break;
            }
            let picked: Vec<&Step> = picked(&steps, &picks);
            tried.look(&sources, &picked, false, &mut search);
        }
        if tried.best.is_none() && !is_complete {
            tried.reduce(&sources, &steps, &mut search);
        }
        let is_exact = is_complete && tried.is_exact;
        if let Some(freeing) = &mut tried.best {
            freeing.is_least &= is_exact;
        }
        Found {
            freeing: tried.best,
            is_complete,
        }
    }
}

/// `None` where there is no such choice.
fn cost_of(steps: &[Vec<Step>], picks: &[usize]) -> Option<Cost> {
    let mut cost = (0, 0);
    for (steps, &pick) in steps.iter().zip(picks) {
        cost = plus(cost, steps.get(pick)?.cost);
    }
    Some(cost)
}

fn picked<'a>(steps: &'a [Vec<Step>], picks: &[usize]) -> Vec<&'a Step> {
    let picked = steps.iter().zip(picks);
    picked
        .filter_map(|(steps, &pick)| steps.get(pick))
        .collect()
}

/// The best set so far.
struct Tried {
    best: Option<Freeing>,
    /// Whether each search has found the least.
    is_exact: bool,
    /// Whether there may be more searches.
    may_ask: bool,
}

/// What is gone of the chunks of a channel, by rising place in its list.
#[derive(Default)]
pub(super) struct Gone {
    pub(super) chunks: Vec<usize>,
    /// A place that does not touch one of these needs less to be gone, and is found without that;
    /// `None` where all places count.
    pub(super) near: Option<Vec<usize>>,
}

impl Tried {
    fn best_cost(&self) -> Option<Cost> {
        let best = self.best.as_ref()?;
        Some((best.place.bytes, best.place.chunks.len()))
    }

    /// Tries one choice of steps, everywhere or where fewer steps would not do; whether something helps
    /// then.
    fn look(
        &mut self,
        sources: &[&Source],
        steps: &[&Step],
        everywhere: bool,
        search: &mut impl FnMut(&Gone) -> (Option<Freed>, bool),
    ) -> bool {
        let steps = || sources.iter().zip(steps);
        let gone = steps().flat_map(|(source, step)| source.chunks(step));
        let mut gone: Vec<usize> = gone.collect();
        gone.sort_unstable();
        let held = steps().map(|(source, step)| source.held(step));
        let held = held.filter(|held| !held.is_empty() && !everywhere);
        let gone = Gone {
            chunks: gone,
            near: held.min_by_key(Vec::len),
        };
        let cost = steps().fold((0, 0), |cost, (_, step)| plus(cost, step.cost));
        let (freed, may_ask) = search(&gone);
        self.may_ask &= may_ask;
        let Some(Freed {
            mut place,
            is_least,
        }) = freed
        else {
            return false;
        };
        self.is_exact &= is_least;
        let unloaded = steps().filter(|(source, _)| matches!(source, Source::Scratchpad { .. }));
        let unloaded = unloaded.map(|(_, step)| step.cost.1).sum();
        place.bytes = place.bytes.saturating_add(cost.0);
        place.chunks.extend(gone.chunks);
        place.chunks.sort_unstable();
        let best = self.best.as_ref().map(|best| best.place.cost());
        if best.is_none_or(|best| place.cost() < best) {
            self.best = Some(Freeing {
                place,
                is_least,
                models: steps()
                    .flat_map(|(source, step)| source.models(step))
                    .collect(),
                unloaded,
            });
        }
        true
    }

    /// A set that is enough, where there are too many choices: from all that can go, in each source as
    /// little as is found by halves.
    fn reduce(
        &mut self,
        sources: &[&Source],
        steps: &[Vec<Step>],
        search: &mut impl FnMut(&Gone) -> (Option<Freed>, bool),
    ) {
        let mut picks: Vec<usize> = steps.iter().map(|steps| steps.len() - 1).collect();
        if !self.look(sources, &picked(steps, &picks), true, search) {
            return;
        }
        for source in 0..steps.len() {
            let (mut low, mut high) = (0, picks[source]);
            while low < high {
                let middle = low.midpoint(high);
                picks[source] = middle;
                match self.look(sources, &picked(steps, &picks), true, search) {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
            picks[source] = high;
        }
    }
}
