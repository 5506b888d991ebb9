//! Live allocations, list by list: what an explanation shows of this process.
//!
//! Each allocator has a list, and each allocation an entry there as long as it lives: 32 bytes, half
//! a line of the caches ([`packed`](super::packed)).

use std::collections::BTreeMap;

use glia_abi::handle::McHandle;
use glia_abi::mem::Location;
use slab::Slab;

use super::facts::Facts;
use super::labels::{LabelId, Labels};
use super::packed::{Odd, Packed};

/// A list of live allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListId(u32);

impl ListId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a live allocation is entered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entered {
    pub(super) list: ListId,
    place: u32,
    /// What is said of it, which is not looked up again at its end.
    pub(super) label: LabelId,
}

/// All lists of a device.
#[derive(Debug, Default)]
pub(super) struct Lives(Slab<Live>);

impl Lives {
    /// A list with nothing on it.
    pub(super) fn add_list(&mut self) -> ListId {
        // LIMIT: there are fewer lists than handles, and fewer allocations on them.
        ListId(u32::try_from(self.0.insert(Live::default())).unwrap_or(u32::MAX))
    }

    /// Takes a list off that nobody adds to any more. What the driver has not taken back stays on it.
    pub(super) fn remove_list(&mut self, list: ListId) {
        if self.count(list).0 == 0 {
            self.0.try_remove(list.index());
        }
    }

    /// Enters an allocation, whose label has been counted.
    pub(super) fn add(
        &mut self,
        list: ListId,
        handle: McHandle,
        packed: Packed,
        odd: Option<Odd>,
    ) -> Entered {
        let live = self.0.get_mut(list.index());
        Entered {
            list,
            place: live.map_or(0, |live| live.add(handle, packed, odd)),
            label: packed.label,
        }
    }

    /// Takes an allocation off. Its label is the caller's.
    pub(super) fn remove(&mut self, entered: Entered) {
        if let Some(live) = self.0.get_mut(entered.list.index()) {
            live.remove(entered.place);
        }
    }

    /// How many are on a list, and the bytes that the driver was asked for.
    pub(super) fn count(&mut self, list: ListId) -> (usize, u64) {
        let live = self.0.get_mut(list.index());
        live.map_or((0, 0), |live| {
            live.settle();
            (live.entries.len(), live.allocated_bytes())
        })
    }

    /// What is live at this location, [to be sorted](Facts::sort).
    pub(super) fn facts(&mut self, labels: &Labels, location: Location) -> Facts {
        let mut facts = Facts::default();
        // Most labels are those of events: only what is said of these allocations is taken along.
        let mut taken: Vec<Option<LabelId>> = vec![None; labels.places()];
        for (_, live) in &mut self.0 {
            live.settle();
            for (place, entry) in &live.entries {
                let mut packed = entry.packed;
                if packed.location() != location {
                    continue;
                }
                if let Some(taken) = taken.get_mut(packed.label.index()) {
                    let say = || facts.say(labels.get(packed.label));
                    packed.label = *taken.get_or_insert_with(say);
                }
                facts.add(entry.handle, packed, live.odd(place, entry));
            }
        }
        facts
    }
}

/// So many entries are left where they are at most: see [`Live::remove`].
const GONE_MAX: usize = 64;

#[derive(Debug, Default)]
struct Live {
    entries: Slab<Entry>,
    /// By place.
    odd: BTreeMap<usize, Odd>,
    /// Places of those that are not live any more, and have an entry still.
    gone: Vec<u32>,
}

#[derive(Debug)]
#[repr(align(32))]
struct Entry {
    packed: Packed,
    handle: McHandle,
}

/// A place of a slab is no larger: the handle is never 0.
const _: () = assert!(size_of::<Option<Entry>>() == 32);

impl Live {
    fn add(&mut self, handle: McHandle, packed: Packed, odd: Option<Odd>) -> u32 {
        let place = self.entries.insert(Entry { packed, handle });
        self.odd.extend(odd.map(|odd| (place, odd)));
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Takes one off, some time. Among many, its entry is cold memory, for which one has to wait:
    /// for some at once, and not for each in turn.
    fn remove(&mut self, place: u32) {
        self.gone.push(place);
        if self.gone.len() == GONE_MAX {
            self.settle();
        }
    }

    /// Takes off what is not live any more.
    fn settle(&mut self) {
        for place in self.gone.drain(..) {
            let place = place as usize;
            let entry = self.entries.try_remove(place);
            if entry.is_some_and(|entry| entry.packed.is_odd()) {
                self.odd.remove(&place);
            }
        }
    }

    fn allocated_bytes(&self) -> u64 {
        let sizes = self.entries.iter().map(|(place, entry)| {
            let odd = self.odd(place, entry);
            odd.unwrap_or_else(|| entry.packed.plain()).allocated_bytes
        });
        sizes.fold(0, u64::saturating_add)
    }

    fn odd(&self, place: usize, entry: &Entry) -> Option<Odd> {
        let odd = entry.packed.is_odd().then(|| self.odd.get(&place));
        odd.flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::addr::BusAddr;
    use glia_abi::handle::Channel;

    use super::super::ledger::Allocation;
    use super::super::ledger::tests::device_allocation;
    use super::*;

    /// The lists, and the labels of what is on them.
    struct Listed {
        lives: Lives,
        labels: Labels,
    }

    impl Listed {
        fn new() -> Self {
            Self {
                lives: Lives::default(),
                labels: Labels::new(),
            }
        }

        fn add(&mut self, list: ListId, number: u32, allocation: &Allocation) -> Entered {
            let label = self.labels.take(allocation, 1);
            let (packed, odd) = Packed::new(allocation, label);
            self.lives.add(list, handle(number), packed, odd)
        }

        fn remove(&mut self, entered: Entered) {
            self.lives.remove(entered);
            self.labels.give_back(entered.label, 1);
        }

        fn facts(&mut self, location: Location) -> Facts {
            let mut facts = self.lives.facts(&self.labels, location);
            facts.sort();
            facts
        }
    }

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
        let mut listed = Listed::new();
        let (one, other) = (listed.lives.add_list(), listed.lives.add_list());
        let gone = listed.add(one, 3, &at(12_288, 0));
        listed.add(one, 2, &high);
        listed.add(other, 1, &low);
        listed.remove(gone);
        let mut facts = listed.facts(Location::Device);
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
        assert_eq!(listed.facts(Location::Host).sizes().count(), 0);
    }

    #[test]
    fn live_allocations_leave_nothing_behind() {
        let mut listed = Listed::new();
        let list = listed.lives.add_list();
        // More than are left where they are.
        let number = 3 * u32::try_from(GONE_MAX).unwrap();
        for turn in 0..3 {
            let entered: Vec<_> = (1..=number)
                .map(|number| {
                    let padding_bytes = u64::from(number % 2 * 64);
                    listed.add(list, number, &at(4096 * u64::from(number), padding_bytes))
                })
                .collect();
            let bytes = u64::from(number) * 100 + u64::from(number / 2) * 64;
            assert_eq!(listed.lives.count(list), (number as usize, bytes));
            let last = entered.len() - 1;
            entered[..last].iter().for_each(|one| listed.remove(*one));
            // The last is of an even number.
            assert_eq!(listed.lives.count(list), (1, 100), "turn {turn}");
            assert_eq!(listed.facts(Location::Device).sizes().count(), 1);
            listed.remove(entered[last]);
            assert_eq!(listed.lives.count(list), (0, 0));
            let live = &listed.lives.0[0];
            assert_eq!((live.odd.len(), listed.labels.len()), (0, 0));
            // What went has made room for what came.
            assert!(live.entries.capacity() < 2 * number as usize);
        }
    }
}
