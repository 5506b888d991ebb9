//! What goes back in steps of its own: the pages of a scratchpad, and the models that need them.

use std::collections::BTreeSet;

use crate::dml::ModelId;

/// Of so many models with private blocks all sets are tried.
const PRIVATE_MAX: usize = 6;
/// Looks at a model that this may take.
const STEP_LOOKS_MAX: usize = 1 << 20;

/// Bytes, and chunks.
pub(super) type Cost = (u64, usize);

/// What goes back in steps of its own.
pub(super) enum Source {
    /// A scratchpad of this process.
    Scratchpad {
        /// Its pages, the oldest first, as far as they are on this channel.
        pages: Vec<Option<Weight>>,
        /// Pages that must not go back: so many, from the first on.
        kept: usize,
        models: Vec<Loaded>,
    },
    /// Pages that another process has for a core, the oldest first.
    Others(Vec<Weight>),
}

/// A chunk and its bytes.
pub(super) type Weight = (usize, u64);

/// A model that has something of a scratchpad.
pub(super) struct Loaded {
    pub(super) id: ModelId,
    /// Pages that it needs, from the first on.
    pub(super) pages: usize,
    /// Its private blocks.
    pub(super) private: Vec<usize>,
    pub(super) may_go: bool,
    /// What goes with it beside pages.
    pub(super) chunks: Vec<Weight>,
}

/// A step of a source: what is unloaded, and what goes back with that.
#[derive(Debug, Clone, Default)]
pub(super) struct Step {
    pub(super) cost: Cost,
    /// By their places in the source.
    pub(super) models: Vec<usize>,
    /// Pages go back from this one on.
    pub(super) pages_from: usize,
}

fn total(weights: impl IntoIterator<Item = Weight>) -> Cost {
    let weights = weights.into_iter();
    weights.fold((0, 0), |(bytes, count), (_, more)| {
        (bytes.saturating_add(more), count + 1)
    })
}

pub(super) fn plus(one: Cost, other: Cost) -> Cost {
    (one.0.saturating_add(other.0), one.1 + other.1)
}

impl Source {
    /// Its steps by rising cost, the first of which is none; without those that cost more than a limit.
    /// And whether these are all.
    pub(super) fn steps(&self, limit: Option<Cost>, is_one: bool) -> (Vec<Step>, bool) {
        let (mut steps, is_all) = match self {
            Self::Others(pages) => {
                let steps = (0..=pages.len()).map(|pages_from| Step {
                    cost: total(pages.iter().skip(pages_from).copied()),
                    models: Vec::new(),
                    pages_from,
                });
                (steps.collect(), true)
            }
            Self::Scratchpad {
                pages,
                kept,
                models,
            } => steps_of_models(pages, *kept, models, limit, is_one),
        };
        steps.retain(|step: &Step| limit.is_none_or(|limit| step.cost <= limit));
        steps.sort_by(|one, other| (one.cost, &one.models).cmp(&(other.cost, &other.models)));
        (steps, is_all)
    }

    /// What goes back with a step.
    pub(super) fn chunks(&self, step: &Step) -> Vec<usize> {
        let number = |weight: &Weight| weight.0;
        match self {
            Self::Others(pages) => pages.iter().skip(step.pages_from).map(number).collect(),
            Self::Scratchpad { pages, models, .. } => {
                let models = step.models.iter().filter_map(|&model| models.get(model));
                let owned = models.flat_map(|model| &model.chunks).map(number);
                let pages = pages.iter().skip(step.pages_from).flatten().map(number);
                owned.chain(pages).collect()
            }
        }
    }

    /// Of that, what no call frees by itself, by rising place.
    pub(super) fn held(&self, step: &Step) -> Vec<usize> {
        let mut held = match self {
            Self::Others(_) => self.chunks(step),
            Self::Scratchpad { pages, models, .. } => {
                let models = step.models.iter().filter_map(|&model| models.get(model));
                let private = models.flat_map(|model| &model.private).copied();
                let pages = pages.iter().skip(step.pages_from).flatten();
                private.chain(pages.map(|weight| weight.0)).collect()
            }
        };
        held.sort_unstable();
        held
    }

    /// The models that a step unloads.
    pub(super) fn models(&self, step: &Step) -> Vec<ModelId> {
        match self {
            Self::Others(_) => Vec::new(),
            Self::Scratchpad { models, .. } => {
                let models = step.models.iter().filter_map(|&model| models.get(model));
                models.map(|model| model.id).collect()
            }
        }
    }
}

/// To unload some models: all that need more than so many pages, for each such number, and any of those
/// that have private blocks. To unload others gives back only what goes back without that.
fn steps_of_models(
    pages: &[Option<Weight>],
    kept: usize,
    models: &[Loaded],
    limit: Option<Cost>,
    is_one: bool,
) -> (Vec<Step>, bool) {
    let cost = |model: &Loaded| total(model.chunks.iter().copied());
    let is_cheap = |model: &Loaded| limit.is_none_or(|limit| cost(model) <= limit);
    let numbered = || models.iter().enumerate();
    let levels: BTreeSet<usize> = models.iter().map(|model| model.pages).chain([0]).collect();
    let (levels, is_all_levels) = some_of(levels, STEP_LOOKS_MAX / models.len().max(1));
    let private = numbered().filter(|(_, model)| !model.private.is_empty() && model.may_go);
    let private: Vec<(usize, &Loaded)> = private.filter(|(_, model)| is_cheap(model)).collect();
    let sets_max = STEP_LOOKS_MAX / (levels.len() * models.len().max(1));
    let (sets, is_all_sets) = sets_of_models(&private, sets_max, is_one);
    // Pages of nobody that is known stay where they are, and so do those before them.
    let needed = levels.last().copied().unwrap_or(0);
    let kept = match needed < pages.len() {
        true => pages.len(),
        false => kept,
    };
    let none = Step {
        pages_from: pages.len(),
        ..Step::default()
    };
    let mut seen: BTreeSet<Vec<usize>> = BTreeSet::from([Vec::new()]);
    let mut steps = vec![none];
    for level in levels {
        let above = || models.iter().filter(|model| model.pages > level);
        if !above().all(|model| model.may_go && is_cheap(model)) {
            continue;
        }
        for set in &sets {
            let is_gone =
                |(number, model): &(usize, &Loaded)| model.pages > level || set.contains(number);
            let gone = numbered().filter(is_gone).map(|(number, _)| number);
            let gone: Vec<usize> = gone.collect();
            if !seen.insert(gone.clone()) {
                continue;
            }
            let left = numbered().filter(|model| !is_gone(model));
            let left_pages = left.map(|(_, model)| model.pages).max().unwrap_or(0);
            if left_pages < kept {
                continue;
            }
            let freed = pages.iter().skip(left_pages).flatten().copied();
            let owned = gone.iter().filter_map(|&number| models.get(number));
            let owned = owned.map(cost).fold((0, 0), plus);
            steps.push(Step {
                cost: plus(owned, total(freed)),
                models: gone,
                pages_from: left_pages,
            });
        }
    }
    (steps, is_all_levels && is_all_sets)
}

/// At most so many numbers, but two in any case, with the least and the greatest; and whether they are
/// all.
fn some_of(numbers: BTreeSet<usize>, max: usize) -> (Vec<usize>, bool) {
    let (count, max) = (numbers.len(), max.max(2));
    if count <= max {
        return (numbers.into_iter().collect(), true);
    }
    let numbers: Vec<usize> = numbers.into_iter().collect();
    let picked = (0..max).filter_map(|place| numbers.get(place * (count - 1) / (max - 1)));
    (picked.copied().collect(), false)
}

/// Sets of models with private blocks: all; or all that may be touched by one place, which are those of
/// blocks that follow each other; or some. And whether these are enough.
fn sets_of_models(
    private: &[(usize, &Loaded)],
    sets_max: usize,
    is_one: bool,
) -> (Vec<BTreeSet<usize>>, bool) {
    if private.len() <= PRIVATE_MAX && 1 << private.len() <= sets_max {
        let sets = (0..1_usize << private.len()).map(|set| {
            let picked = private.iter().enumerate();
            let picked = picked.filter(|(bit, _)| set >> bit & 1 == 1);
            picked.map(|(_, &(number, _))| number).collect()
        });
        return (sets.collect(), true);
    }
    let blocks = private
        .iter()
        .flat_map(|(number, model)| model.private.iter().map(|block| (*block, *number)));
    let mut blocks: Vec<(usize, usize)> = blocks.collect();
    blocks.sort_unstable();
    let all = private.iter().map(|&(number, _)| number).collect();
    let mut sets = vec![BTreeSet::new(), all];
    let is_all = blocks.len().saturating_mul(blocks.len()) / 2 <= sets_max;
    // LIMIT: single models, or as many runs as there may be sets.
    let run_max = if is_all { blocks.len() } else { 1 };
    let mut more = BTreeSet::new();
    for first in 0..blocks.len() {
        let mut set = BTreeSet::new();
        for (_, model) in blocks.iter().skip(first).take(run_max) {
            if set.insert(*model) {
                more.insert(set.clone());
            }
        }
        if sets.len() + more.len() >= sets_max {
            break;
        }
    }
    sets.extend(more);
    (sets, is_all && is_one)
}
