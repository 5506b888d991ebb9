//! Labels: what a caller says of an allocation in words, once for all records that share it.
//!
//! Most events have the name, the model and the site of another one, and so have most allocations: an
//! event, and the entry of a live allocation, keep a number in place of the three. A label is there as long as a record has it, and some time longer, since a
//! loop would else make and forget the same one in each turn: those that no record has are forgotten
//! together, as soon as there are more than [`IDLE_MIN`] and more than half as many as the others.
//! So a name that nobody has used for as long as a ring reaches does not stay.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;
use slab::Slab;

use super::ledger::{Allocation, ModelId};
use super::site::Site;

/// So many labels that no record has are kept in any case.
const IDLE_MIN: usize = 64;

/// Number of a label; 0 is that of nothing said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LabelId(u32);

impl LabelId {
    /// Its place among all labels.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The one in a place.
    pub(super) fn nth(index: usize) -> Self {
        // LIMIT: so many labels would take more memory than there is.
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// What a label says.
#[derive(Debug, Clone, Default)]
pub(super) struct Words {
    pub(super) model: Option<ModelId>,
    pub(super) hint: Option<Arc<str>>,
    pub(super) site: Option<Site>,
}

/// Lent for a look-up, or kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Label<'a> {
    model: Option<ModelId>,
    hint: Option<Cow<'a, Arc<str>>>,
    site: Option<Cow<'a, Site>>,
}

impl<'a> Label<'a> {
    fn of(allocation: &'a Allocation) -> Self {
        Self {
            model: allocation.model,
            hint: allocation.hint.as_ref().map(Cow::Borrowed),
            site: allocation.site.as_ref().map(Cow::Borrowed),
        }
    }

    /// Whether this is what is said of an allocation. As a rule both have it from the same place.
    #[inline]
    fn is_of(&self, allocation: &Allocation) -> bool {
        let is_same_hint = match (&self.hint, &allocation.hint) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || **one == *other,
            (None, Some(_)) | (Some(_), None) => false,
        };
        let is_same_site = match (&self.site, &allocation.site) {
            (None, None) => true,
            (Some(one), Some(other)) => **one == *other,
            (None, Some(_)) | (Some(_), None) => false,
        };
        self.model == allocation.model && is_same_hint && is_same_site
    }

    fn words(&self) -> Words {
        Words {
            model: self.model,
            hint: self.hint.as_deref().cloned(),
            site: self.site.as_deref().cloned(),
        }
    }

    fn into_owned(self) -> Label<'static> {
        Label {
            model: self.model,
            hint: self.hint.map(|hint| Cow::Owned(hint.into_owned())),
            site: self.site.map(|site| Cow::Owned(site.into_owned())),
        }
    }
}

#[derive(Debug, Clone)]
struct Kept {
    label: Label<'static>,
    /// How many have it.
    records: u64,
}

/// The labels of some records.
#[derive(Debug, Clone)]
pub(super) struct Labels {
    kept: Slab<Kept>,
    numbers: HashMap<Label<'static>, u32, FxBuildHasher>,
    /// Labels that no record has.
    idle: usize,
    /// The one that was asked for last: the end of an allocation often follows its beginning, and
    /// the next tensor of a loop the one before.
    last: u32,
}

impl Labels {
    pub(super) fn new() -> Self {
        let mut kept = Slab::new();
        // Nothing said, which is always there and so is number 0.
        kept.insert(Kept {
            label: Label::default(),
            records: 1,
        });
        Self {
            kept,
            numbers: HashMap::default(),
            idle: 0,
            last: 0,
        }
    }

    /// The label of so many records that come, all of one allocation.
    #[inline]
    pub(super) fn take(&mut self, allocation: &Allocation, records: u64) -> LabelId {
        let last = self.kept.get(self.last as usize);
        if !last.is_some_and(|kept| kept.label.is_of(allocation)) {
            self.last = self.find(Label::of(allocation));
        }
        let number = self.last;
        if let Some(kept) = self.kept.get_mut(number as usize).filter(|_| number > 0) {
            self.idle -= usize::from(kept.records == 0);
            kept.records += records;
        }
        LabelId(number)
    }

    #[inline(never)]
    fn find(&mut self, label: Label<'_>) -> u32 {
        if label == Label::default() {
            return 0;
        }
        // What is lent lives less long than what is kept, and may be looked for among it.
        let numbers: &HashMap<Label<'_>, u32, FxBuildHasher> = &self.numbers;
        if let Some(&number) = numbers.get(&label) {
            return number;
        }
        let Ok(number) = u32::try_from(self.kept.vacant_key()) else {
            // LIMIT: so many labels, each with a record, would take more memory than there is.
            return 0;
        };
        let label = label.into_owned();
        self.numbers.insert(label.clone(), number);
        self.kept.insert(Kept { label, records: 0 });
        self.idle += 1;
        number
    }

    /// Takes back the label of so many records that go.
    pub(super) fn give_back(&mut self, LabelId(number): LabelId, records: u64) {
        if number == 0 {
            return;
        }
        let Some(kept) = self.kept.get_mut(number as usize) else {
            return;
        };
        kept.records -= records;
        if kept.records == 0 {
            self.idle += 1;
            if self.idle > IDLE_MIN.max(self.kept.len() / 3) {
                self.forget_idle();
            }
        }
    }

    #[cold]
    fn forget_idle(&mut self) {
        self.kept.retain(|_, kept| {
            let has_records = kept.records > 0;
            if !has_records {
                self.numbers.remove(&kept.label);
            }
            has_records
        });
        self.idle = 0;
    }

    /// What a label says.
    pub(super) fn get(&self, label: LabelId) -> Words {
        let kept = self.kept.get(label.index());
        kept.map_or_else(Words::default, |kept| kept.label.words())
    }

    /// The model that a label says.
    pub(super) fn model(&self, label: LabelId) -> Option<ModelId> {
        self.kept.get(label.index())?.label.model
    }

    /// Behind the places of all.
    pub(super) fn places(&self) -> usize {
        let last = self.kept.iter().next_back();
        last.map_or(0, |(number, _)| number + 1)
    }

    /// How many of them records have.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len() - self.idle
    }

    /// How many there are in all.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.numbers.len()
    }
}
