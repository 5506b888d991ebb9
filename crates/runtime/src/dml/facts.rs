//! What was live at one moment, to be looked up by address and handle.

use std::collections::BTreeMap;

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, McHandle};

use super::labels::{LabelId, Words};
use super::ledger::{Allocation, ModelId};
use super::packed::{Odd, Packed};

/// Allocations at one moment, by address and handle.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    sorted: Vec<Fact>,
    odd: BTreeMap<Key, Odd>,
    /// By number of a label.
    words: Vec<Words>,
}

type Key = (BusAddr, McHandle);

#[derive(Debug, Clone, Copy)]
struct Fact {
    handle: McHandle,
    packed: Packed,
}

const _: () = assert!(size_of::<Fact>() == 32);

impl Fact {
    fn key(&self) -> Key {
        (self.packed.pa, self.handle)
    }
}

impl Facts {
    /// Keeps something said, for allocations that are added.
    pub(super) fn say(&mut self, words: Words) -> LabelId {
        self.words.push(words);
        LabelId::nth(self.words.len() - 1)
    }

    /// Adds one, with the label that [`say`](Self::say) has given. It can be found after
    /// [`sort`](Self::sort).
    pub(super) fn add(&mut self, handle: McHandle, packed: Packed, odd: Option<Odd>) {
        let fact = Fact { handle, packed };
        self.sorted.push(fact);
        self.odd.extend(odd.map(|odd| (fact.key(), odd)));
    }

    /// Puts them in order.
    pub(super) fn sort(&mut self) {
        // Most are in order: this sort finds runs.
        self.sorted.sort_by_key(Fact::key);
    }

    fn position(&self, key: Key) -> Option<&Fact> {
        let found = self.sorted.binary_search_by_key(&key, Fact::key);
        self.sorted.get(found.ok()?)
    }

    /// Whether there is one at this address with this handle.
    pub(crate) fn has(&self, at: BusAddr, handle: McHandle) -> bool {
        self.position((at, handle)).is_some()
    }

    /// The one at this address with this handle.
    pub(crate) fn find(&self, at: BusAddr, handle: McHandle) -> Option<Allocation> {
        let fact = self.position((at, handle))?;
        let words = self.words.get(fact.packed.label.index());
        let words = words.cloned().unwrap_or_default();
        Some(fact.packed.unpack(self.odd(fact), words))
    }

    fn odd(&self, fact: &Fact) -> Option<Odd> {
        let odd = fact.packed.is_odd().then(|| self.odd.get(&fact.key()));
        odd.flatten().copied()
    }

    /// The channel of each, and what the driver was asked for.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (Channel, u64)> {
        self.sorted.iter().map(|fact| {
            let rest = self.odd(fact).unwrap_or_else(|| fact.packed.plain());
            (rest.channel, rest.allocated_bytes)
        })
    }

    /// Where each lies that a model owns, with its handle and the model.
    pub(crate) fn of_models(&self) -> impl Iterator<Item = (BusAddr, McHandle, ModelId)> {
        self.sorted.iter().filter_map(|fact| {
            let words = self.words.get(fact.packed.label.index())?;
            Some((fact.packed.pa, fact.handle, words.model?))
        })
    }

    /// Forgets all but those at some addresses, which rise.
    pub(crate) fn keep(&mut self, at: impl Iterator<Item = BusAddr>) {
        let mut at = at.peekable();
        self.sorted.retain(|fact| {
            while at.next_if(|&at| at < fact.packed.pa).is_some() {}
            at.peek() == Some(&fact.packed.pa)
        });
        self.sorted.shrink_to_fit();
    }
}
