//! The plan: rules that say what fails, when, and how often, and how they have done.
//!
//! Each time somebody asks whether something fails, the rules are looked at in order. A rule has an
//! **opportunity** when the question is about its [kind](super::FaultKind) and
//! [matches](super::Matching); it counts its opportunities, and its [trigger](super::Trigger) says
//! at which of them it strikes. The first rule that strikes decides; those behind it do not count
//! that question.
//!
//! The same questions in the same order get the same answers: chance comes from the plan's seed and
//! the rule's number.
//!
//! **Whose a pair is.** For each queue the plan remembers what was staged for whom, and forgets it
//! when a pair behind it is asked about: a queue works in order, and its count never goes back, not
//! even when a reset drops batches. A pair of which nothing was told is nobody's.
//!
//! **Locks.** One mutex, held for one question. An empty plan is known to be empty without it.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{FaultPoint, FaultRule, Faults, PairAt, PairFault, PlanError, Scope, StagedBatch};
use crate::chance::Chance;
use crate::handle::{DeviceId, QueueId};

/// Batches of a queue whose owner is remembered: more than its ring can hold are not under way.
// LIMIT: three contexts of a ring, and what zero copy keeps in flight.
const BATCHES_REMEMBERED: usize = 1024;

/// The number of a rule in its plan; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u64);

/// How a rule has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Struck {
    /// Opportunities.
    pub opportunities: u64,
    /// Strikes.
    pub strikes: u64,
}

/// Rules that can be changed while the machine runs.
pub struct FaultPlan {
    seed: u64,
    /// Whether there is a rule, for those who look without the lock.
    is_armed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Live>,
    next_id: u64,
    /// By queue: the batches that were staged, oldest first, none overlapping.
    staged: HashMap<(DeviceId, QueueId), VecDeque<StagedBatch>>,
}

struct Live {
    id: RuleId,
    rule: FaultRule,
    so_far: Struck,
    chance: Chance,
}

impl FaultPlan {
    /// A plan without rules, whose chance comes from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            is_armed: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Adds a rule behind the others.
    ///
    /// # Errors
    /// [`PlanError`] if it cannot be meant; the plan is as it was.
    pub fn add(&self, rule: FaultRule) -> Result<RuleId, PlanError> {
        rule.check()?;
        let mut state = self.state();
        let id = RuleId(state.next_id);
        state.next_id += 1;
        state.rules.push(Live {
            id,
            rule,
            so_far: Struck::default(),
            chance: Chance::of(self.seed, id.0),
        });
        self.is_armed.store(true, Ordering::Release);
        Ok(id)
    }

    /// Takes a rule out; says how it did, or `None` if there is no such rule.
    pub fn remove(&self, id: RuleId) -> Option<Struck> {
        let mut state = self.state();
        let at = state.rules.iter().position(|live| live.id == id)?;
        let live = state.rules.remove(at);
        if state.rules.is_empty() {
            self.is_armed.store(false, Ordering::Release);
        }
        Some(live.so_far)
    }

    /// Takes all rules out.
    pub fn clear(&self) {
        let mut state = self.state();
        state.rules.clear();
        self.is_armed.store(false, Ordering::Release);
    }

    /// How a rule has done; `None` if there is no such rule.
    #[must_use]
    pub fn so_far(&self, id: RuleId) -> Option<Struck> {
        let state = self.state();
        let live = state.rules.iter().find(|live| live.id == id)?;
        Some(live.so_far)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let rules = state.rules.iter().map(|live| (live.rule, live.so_far));
        f.debug_list().entries(rules).finish()
    }
}

impl Faults for FaultPlan {
    fn is_armed(&self) -> bool {
        self.is_armed.load(Ordering::Acquire)
    }

    fn strikes(&self, point: FaultPoint) -> bool {
        let scope = Scope::current();
        let mut state = self.state();
        let mut asked = state.rules.iter_mut().filter(|live| {
            live.rule.kind.point() == Some(point) && live.rule.matching.scope(scope)
        });
        asked.any(Live::strikes)
    }

    fn staged(&self, batch: &StagedBatch) {
        let mut state = self.state();
        let batches = state.staged.entry((batch.device, batch.queue)).or_default();
        // A count that went back is that of another machine under the same plan.
        while batches.back().is_some_and(|last| end(last) > batch.first) {
            batches.pop_back();
        }
        if batches.len() == BATCHES_REMEMBERED {
            batches.pop_front();
        }
        batches.push_back(*batch);
    }

    fn pair(&self, at: &PairAt) -> Option<PairFault> {
        let mut state = self.state();
        let scope = state.scope_of(at);
        state.rules.iter_mut().find_map(|live| {
            let fault = live.rule.kind.at_pair(at)?;
            let matching = live.rule.matching;
            let matches = matching.queue(at.queue) && matching.scope(scope);
            (matches && live.strikes()).then_some(fault)
        })
    }
}

impl State {
    /// For whom a pair was staged.
    fn scope_of(&mut self, at: &PairAt) -> Scope {
        let nobody = Scope {
            device: Some(at.device),
            ..Scope::NOBODY
        };
        let Some(batches) = self.staged.get_mut(&(at.device, at.queue)) else {
            return nobody;
        };
        while batches.front().is_some_and(|first| end(first) <= at.index) {
            batches.pop_front();
        }
        match batches.front() {
            Some(batch) if batch.first <= at.index => batch.scope,
            _ => nobody,
        }
    }
}

/// The queue's count of pairs after a batch.
fn end(batch: &StagedBatch) -> u64 {
    batch.first.saturating_add(u64::from(batch.pairs))
}

impl Live {
    /// Counts an opportunity and says whether the rule strikes at it.
    fn strikes(&mut self) -> bool {
        let trigger = self.rule.trigger;
        let before = self.so_far;
        self.so_far.opportunities += 1;
        if trigger.count.is_some_and(|count| before.strikes >= count) {
            return false;
        }
        let is_stuck = trigger.sticky && before.strikes > 0;
        let strikes = is_stuck
            || (trigger.is_due(before.opportunities)
                && trigger
                    .probability
                    .is_none_or(|probability| self.chance.fraction() < probability));
        self.so_far.strikes += u64::from(strikes);
        strikes
    }
}
