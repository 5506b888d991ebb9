//! The ring of events of a device: what was allocated and freed, the newest ones.
//!
//! A program allocates and frees far more often than anybody looks, so an event is kept small: 32
//! bytes, half a line of the caches ([`packed`](super::packed)), in blocks that are taken as the ring
//! fills and written over once it is full.

use std::collections::VecDeque;
use std::sync::Arc;

use super::labels::Labels;
use super::ledger::Allocation;
use super::packed::{Odd, Packed};

/// What happened to an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// 1: it was made.
    Alloc,
    /// 2: it was given back.
    Free,
}

/// An entry of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// To what. (The reference keeps a pointer to the hint, which dangles after a free.)
    pub allocation: Allocation,
    /// Bytes in use on its channel after that; `None` for host memory.
    pub channel_bytes: Option<u64>,
}

/// An event as it is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) facts: Packed,
    /// 0 if there is no such number.
    channel_bytes: u64,
}

/// Two of them are a line of the caches.
const _: () = assert!(size_of::<Kept>() == 32);

impl Kept {
    /// The end of an allocation.
    const FREE: u8 = 1 << 4;
    /// With bytes in use on its channel.
    const COUNTED: u8 = 1 << 5;

    /// An event that is not counted yet.
    #[inline]
    pub(super) fn new(action: Action, mut facts: Packed) -> Self {
        if action == Action::Free {
            facts.flags |= Self::FREE;
        }
        Self {
            facts,
            channel_bytes: 0,
        }
    }

    pub(super) fn action(&self) -> Action {
        match self.facts.has(Self::FREE) {
            true => Action::Free,
            false => Action::Alloc,
        }
    }

    /// Adds the bytes in use on its channel, if it has one.
    #[inline]
    pub(super) fn count(&mut self, channel_bytes: Option<u64>) {
        if let Some(bytes) = channel_bytes {
            self.facts.flags |= Self::COUNTED;
            self.channel_bytes = bytes;
        }
    }
}

/// Events that are taken memory for at a time: 64 KiB.
const BLOCK: usize = 2048;

/// The newest events.
#[derive(Debug, Clone)]
pub(super) struct EventRing {
    /// All but the last are full. Whoever copies the ring shares them, until they are written to.
    blocks: Vec<Arc<Vec<Kept>>>,
    events_max: usize,
    /// How many there ever were.
    events: u64,
    /// Where in the blocks the next one goes.
    next: usize,
    /// Of the events that have some of it, oldest first.
    odd: VecDeque<Odd>,
}

impl EventRing {
    /// A ring that keeps `events_max` events.
    pub(super) fn new(events_max: usize) -> Self {
        Self {
            blocks: Vec::new(),
            events_max,
            events: 0,
            next: 0,
            odd: VecDeque::new(),
        }
    }

    /// Adds events, whose labels have been counted, and what there was no room for in them; the oldest
    /// give way if there is no room.
    pub(super) fn extend(&mut self, events: &[Kept], odd: &[Odd], labels: &mut Labels) {
        self.events += events.len() as u64;
        let (gone, mut left) = events.split_at(events.len().saturating_sub(self.events_max));
        let odd_gone = forget(gone, labels);
        self.odd.extend(odd.iter().skip(odd_gone));
        while !left.is_empty() {
            let (block, at) = (self.next / BLOCK, self.next % BLOCK);
            let room = (self.events_max - self.next).min(BLOCK - at);
            let (placing, rest) = left.split_at(room.min(left.len()));
            if block == self.blocks.len() {
                self.blocks.push(Arc::new(Vec::with_capacity(room)));
            }
            // PANIC: the blocks before are full, so that the place is in one of them or in that.
            let places = Arc::make_mut(&mut self.blocks[block]);
            match places.get_mut(at..at + placing.len()) {
                Some(places) => {
                    let odd = forget(places, labels);
                    self.odd.drain(..odd.min(self.odd.len()));
                    places.copy_from_slice(placing);
                }
                None => places.extend_from_slice(placing),
            }
            self.next = match self.next + placing.len() {
                next if next == self.events_max => 0,
                next => next,
            };
            left = rest;
        }
    }

    fn unpack(kept: &Kept, odd: &mut impl Iterator<Item = Odd>, labels: &Labels) -> Event {
        let facts = &kept.facts;
        let odd = facts.is_odd().then(|| odd.next()).flatten();
        let is_counted = facts.has(Kept::COUNTED);
        Event {
            action: kept.action(),
            allocation: facts.unpack(odd, labels.get(facts.label)),
            channel_bytes: is_counted.then_some(kept.channel_bytes),
        }
    }

    /// The events, oldest first.
    pub(super) fn iter(&self, labels: &Labels) -> impl Iterator<Item = Event> {
        let mut odd = self.odd.iter().copied();
        let placed = self.blocks.iter().map(|block| block.len()).sum::<usize>();
        // Of a ring that is not full, the next place is behind all events.
        let places = (self.next..placed).chain(0..self.next.min(placed));
        let events = places.filter_map(|at| self.blocks.get(at / BLOCK)?.get(at % BLOCK));
        events.map(move |kept| Self::unpack(kept, &mut odd, labels))
    }

    /// How many gave way.
    pub(super) fn dropped(&self) -> u64 {
        self.events.saturating_sub(self.events_max as u64)
    }
}

/// Gives back what events have that go; how many there are more of. They are cold memory: few steps for
/// each let the processor fetch many at a time.
fn forget(events: &[Kept], labels: &mut Labels) -> usize {
    let mut odd = 0;
    for of_one_label in events.chunk_by(|one, next| one.facts.label == next.facts.label) {
        odd += of_one_label
            .iter()
            .filter(|kept| kept.facts.is_odd())
            .count();
        let label = of_one_label.first().map(|kept| kept.facts.label);
        if let Some(label) = label {
            labels.give_back(label, of_one_label.len() as u64);
        }
    }
    odd
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use glia_abi::handle::{Channel, CoreId};
    use glia_abi::mem::Location;
    use glia_abi::mem_usage::MemUsage;
    use proptest::prelude::*;

    use super::super::ledger::ModelId;
    use super::super::ledger::tests::device_allocation;
    use super::super::site::Site;
    use super::*;

    /// Events that are added together.
    const AT_A_TIME: usize = 7;

    /// A ring and the labels of its events.
    struct Pushed {
        ring: EventRing,
        labels: Labels,
    }

    impl Pushed {
        fn events(&self) -> Vec<Event> {
            self.ring.iter(&self.labels).collect()
        }
    }

    fn pushed(events: impl IntoIterator<Item = Event>, events_max: usize) -> Pushed {
        let (mut ring, mut labels) = (EventRing::new(events_max), Labels::new());
        let (mut entries, mut odd) = (Vec::new(), Vec::new());
        for event in events {
            let label = labels.take(&event.allocation, 1);
            let (packed, rest) = Packed::new(&event.allocation, label);
            odd.extend(rest);
            let mut kept = Kept::new(event.action, packed);
            kept.count(event.channel_bytes);
            entries.push(kept);
            if entries.len() == AT_A_TIME {
                ring.extend(&entries, &odd, &mut labels);
                (entries, odd) = (Vec::new(), Vec::new());
            }
        }
        ring.extend(&entries, &odd, &mut labels);
        Pushed { ring, labels }
    }

    fn named(name: &str) -> Event {
        Event {
            action: Action::Alloc,
            allocation: Allocation {
                hint: Some(name.into()),
                ..device_allocation(0, 1)
            },
            channel_bytes: Some(1),
        }
    }

    #[test]
    fn a_ring_without_room_keeps_nothing_and_counts_what_it_lost() {
        let kept = pushed([named("a"), named("b")], 0);
        assert_eq!((kept.events().len(), kept.ring.dropped()), (0, 2));
        assert_eq!(kept.labels.len(), 0);
    }

    #[test]
    fn a_name_is_kept_once_and_as_long_as_an_event_has_it() {
        let names = ["a", "b", "a", "a", "b", "c"];
        let labels = |events_max| pushed(names.map(named), events_max).labels.len();
        assert_eq!((labels(6), labels(3), labels(1)), (3, 3, 1));
        // Each has a name of its own: never more names than events.
        let kept = pushed((0..10_000).map(|n| named(&n.to_string())), 100);
        assert_eq!((kept.events().len(), kept.ring.dropped()), (100, 9_900));
        assert_eq!(kept.labels.len(), 100);
        assert!(kept.labels.kept() <= 100 + 64);
        assert_eq!(kept.ring.odd.len(), 0);
    }

    #[test]
    fn memory_is_taken_as_the_ring_fills_and_not_beyond() {
        let events = |count: usize| (0..count).map(|_| named("a"));
        let room = |kept: &Pushed| -> usize {
            let blocks = kept.ring.blocks.iter();
            blocks.map(|block| block.capacity()).sum()
        };
        assert_eq!(room(&pushed(events(1), 1 << 20)), BLOCK);
        assert_eq!(room(&pushed(events(BLOCK + 1), 1 << 20)), 2 * BLOCK);
        assert_eq!(room(&pushed(events(3 * BLOCK), BLOCK + 10)), BLOCK + 10);
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let facts = (0..4_u64, 0..2_u64, 0..2_u64, 0..2_u32, 0..22_usize);
        let words = (
            proptest::option::of(1001..1003_u32),
            proptest::option::of("[ab]"),
            proptest::option::of("[xy]"),
        );
        let rest = (any::<bool>(), any::<bool>(), proptest::option::of(0..9_u64));
        (facts, words, rest).prop_map(
            |(
                (size_bytes, padding, align_offset_bytes, far, usage),
                (model, hint, site),
                (is_free, is_host, channel_bytes),
            )| Event {
                action: if is_free { Action::Free } else { Action::Alloc },
                allocation: Allocation {
                    allocated_bytes: size_bytes + padding,
                    align_offset_bytes,
                    core: CoreId::new(3 + 1000 * far),
                    channel: Channel::new(1 + 300 * far),
                    location: if is_host {
                        Location::Host
                    } else {
                        Location::Device
                    },
                    usage: MemUsage::ALL[usage],
                    model: model.map(ModelId),
                    hint: hint.map(Arc::from),
                    site: site.map(|name| Site::Named(name.into())),
                    ..device_allocation(0, size_bytes)
                },
                channel_bytes,
            },
        )
    }

    proptest! {
        #[test]
        fn the_newest_events_come_back_whole_and_in_order(
            events in proptest::collection::vec(any_event(), 0..300),
            events_max in 1..200_usize,
        ) {
            let kept = pushed(events.clone(), events_max);
            let dropped = events.len().saturating_sub(events_max);
            prop_assert_eq!(kept.ring.dropped(), dropped as u64);
            prop_assert_eq!(kept.events(), &events[dropped..]);
            let words = events[dropped..].iter().map(|event| {
                let facts = &event.allocation;
                (facts.model, facts.hint.clone(), facts.site.as_ref().map(Site::to_string))
            });
            let mut words: Vec<_> = words.filter(|words| *words != (None, None, None)).collect();
            words.sort();
            words.dedup();
            prop_assert_eq!(kept.labels.len(), words.len());
        }
    }
}
