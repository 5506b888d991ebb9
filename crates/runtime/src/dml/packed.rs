//! Facts of allocations, packed: for those who keep many and show few.
//!
//! 24 bytes for what is different in nearly each; what callers say in words is a
//! [label](super::labels); what is 0 or the same for nearly all is kept aside for those where it is
//! not.

use std::collections::BTreeMap;

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, McHandle};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use slab::Slab;

use super::labels::{LabelId, Labels, Words};
use super::ledger::Allocation;

/// An allocation's facts as they are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    pa: BusAddr,
    size_bytes: u64,
    pub(super) label: LabelId,
    core: u8,
    channel: u8,
    usage: u8,
    /// Bits from 4 on are whose who keeps it.
    pub(super) flags: u8,
}

/// What a packed allocation has no room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Odd {
    allocated_bytes: u64,
    align_offset_bytes: u64,
    core: CoreId,
    channel: Channel,
}

impl Packed {
    /// It is host memory.
    const HOST: u8 = 1 << 0;
    /// There is more of it.
    const ODD: u8 = 1 << 1;

    /// The facts, and what there is no room for.
    pub(super) fn new(allocation: &Allocation, label: LabelId) -> (Self, Option<Odd>) {
        let (core, channel) = (allocation.core, allocation.channel);
        let places = (u8::try_from(core.get()), u8::try_from(channel.get()));
        let is_odd = allocation.allocated_bytes != allocation.size_bytes
            || allocation.align_offset_bytes != 0
            || places.0.is_err()
            || places.1.is_err();
        let odd = is_odd.then_some(Odd {
            allocated_bytes: allocation.allocated_bytes,
            align_offset_bytes: allocation.align_offset_bytes,
            core,
            channel,
        });
        let location = match allocation.location {
            Location::Host => Self::HOST,
            Location::Device => 0,
        };
        let packed = Self {
            pa: allocation.pa,
            size_bytes: allocation.size_bytes,
            label,
            core: places.0.unwrap_or_default(),
            channel: places.1.unwrap_or_default(),
            usage: allocation.usage as u8,
            flags: location | if is_odd { Self::ODD } else { 0 },
        };
        (packed, odd)
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether there is more of it.
    pub(super) fn is_odd(&self) -> bool {
        self.has(Self::ODD)
    }

    fn plain(&self) -> Odd {
        Odd {
            allocated_bytes: self.size_bytes,
            align_offset_bytes: 0,
            core: CoreId::new(self.core.into()),
            channel: Channel::new(self.channel.into()),
        }
    }

    /// The facts again, with what there was no room for, and what the label says.
    pub(super) fn unpack(&self, odd: Option<Odd>, words: Words) -> Allocation {
        let rest = odd.unwrap_or_else(|| self.plain());
        let usages = MemUsage::ALL.get(usize::from(self.usage));
        Allocation {
            size_bytes: self.size_bytes,
            allocated_bytes: rest.allocated_bytes,
            pa: self.pa,
            align_offset_bytes: rest.align_offset_bytes,
            location: self.location(),
            usage: usages.copied().unwrap_or(MemUsage::Generic),
            core: rest.core,
            channel: rest.channel,
            model: words.model,
            hint: words.hint,
            site: words.site,
        }
    }

    fn location(&self) -> Location {
        match self.has(Self::HOST) {
            true => Location::Host,
            false => Location::Device,
        }
    }
}

/// Live allocations, each with its handle and something of whoever keeps them.
#[derive(Debug)]
pub(crate) struct Live<T> {
    entries: Slab<Entry<T>>,
    /// By place.
    odd: BTreeMap<usize, Odd>,
    labels: Labels,
}

#[derive(Debug)]
struct Entry<T> {
    tag: T,
    handle: McHandle,
    packed: Packed,
}

impl<T> Default for Live<T> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            odd: BTreeMap::new(),
            labels: Labels::new(),
        }
    }
}

impl<T> Live<T> {
    /// The place of the next one.
    pub(crate) fn next_place(&self) -> usize {
        self.entries.vacant_key()
    }

    /// Adds one, at the next place.
    pub(crate) fn add(&mut self, handle: McHandle, allocation: &Allocation, tag: T) {
        let label = self.labels.take(allocation);
        let (packed, odd) = Packed::new(allocation, label);
        let place = self.entries.insert(Entry {
            tag,
            handle,
            packed,
        });
        self.odd.extend(odd.map(|odd| (place, odd)));
    }

    /// Takes one off.
    pub(crate) fn remove(&mut self, place: usize) -> Option<T> {
        let entry = self.entries.try_remove(place)?;
        self.labels.give_back(entry.packed.label);
        if entry.packed.is_odd() {
            self.odd.remove(&place);
        }
        Some(entry.tag)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is kept with each.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| &entry.tag)
    }

    /// Bytes that the driver was asked for.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let sizes = self.entries.iter().map(|(place, entry)| {
            let odd = self.odd(place, entry);
            odd.unwrap_or_else(|| entry.packed.plain()).allocated_bytes
        });
        sizes.fold(0, u64::saturating_add)
    }

    fn odd(&self, place: usize, entry: &Entry<T>) -> Option<Odd> {
        let odd = entry.packed.is_odd().then(|| self.odd.get(&place));
        odd.flatten().copied()
    }
}

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
    /// Adds those at a location. They can be found after [`sort`](Self::sort).
    pub(crate) fn add<T>(&mut self, live: &Live<T>, location: Location) {
        // The labels follow those that are there.
        let before = self.words.len();
        self.words.extend(live.labels.all());
        self.sorted.reserve(live.len());
        for (place, entry) in &live.entries {
            let mut packed = entry.packed;
            if packed.location() != location {
                continue;
            }
            packed.label = packed.label.after(before);
            let fact = Fact {
                handle: entry.handle,
                packed,
            };
            self.sorted.push(fact);
            let odd = live.odd(place, entry);
            self.odd.extend(odd.map(|odd| (fact.key(), odd)));
        }
    }

    /// Puts them in order.
    pub(crate) fn sort(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::super::ledger::tests::device_allocation;
    use super::*;

    fn handle(number: u32) -> McHandle {
        McHandle::new(number).unwrap()
    }

    fn at(pa: u64, padding_bytes: u64) -> Allocation {
        Allocation {
            pa: BusAddr::new(pa),
            allocated_bytes: 100 + padding_bytes,
            align_offset_bytes: padding_bytes,
            hint: Some(format!("at {pa}").into()),
            ..device_allocation(3, 100)
        }
    }

    #[test]
    fn an_allocation_is_found_by_address_and_handle_and_is_whole() {
        let (low, high) = (at(4096, 0), at(8192, 64));
        let (mut one, mut other) = (Live::default(), Live::default());
        one.add(handle(3), &at(12_288, 0), ());
        one.add(handle(2), &high, ());
        other.add(handle(1), &low, ());
        one.remove(0);
        let mut facts = Facts::default();
        facts.add(&one, Location::Device);
        facts.add(&other, Location::Device);
        facts.sort();
        assert_eq!(facts.find(low.pa, handle(1)), Some(low.clone()));
        assert_eq!(facts.find(high.pa, handle(2)), Some(high.clone()));
        // Another has the address now.
        assert_eq!(facts.find(high.pa, handle(1)), None);
        let channel = Channel::new(1);
        let sizes: Vec<_> = facts.sizes().collect();
        assert_eq!(sizes, [(channel, 100), (channel, 164)]);

        facts.keep([0, 8192, 9000].map(BusAddr::new).into_iter());
        assert!(!facts.has(low.pa, handle(1)));
        assert_eq!(facts.find(high.pa, handle(2)), Some(high));

        let mut on_host = Facts::default();
        on_host.add(&one, Location::Host);
        assert_eq!(on_host.sizes().count(), 0);
    }

    #[test]
    fn live_allocations_leave_nothing_behind() {
        let mut live = Live::default();
        for turn in 0..3 {
            let places = [(1, 0), (2, 64), (3, 0)].map(|(number, padding_bytes)| {
                let place = live.next_place();
                live.add(
                    handle(number),
                    &at(4096 * u64::from(number), padding_bytes),
                    number,
                );
                place
            });
            assert_eq!((live.len(), live.allocated_bytes()), (3, 364));
            assert_eq!(live.tags().count(), 3);
            let tags = places.map(|place| live.remove(place));
            assert_eq!(tags, [Some(1), Some(2), Some(3)], "turn {turn}");
            assert_eq!((live.len(), live.odd.len(), live.labels.len()), (0, 0, 0));
        }
        assert_eq!(live.remove(0), None);
    }
}
