//! The last events, in memory of a fixed size.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::event::{Detail, Event, Ids, NameId, Sink};
use glia_abi::sched::Tick;

use super::names::Names;

/// Keeps the last events that it heard, up to a number, and counts those that it had to drop for
/// them. Memory for events is all taken when it is built; names are kept besides, each once, and
/// stay known when the events that used them are gone.
pub struct EventRing {
    capacity: usize,
    detail: Detail,
    state: Mutex<State>,
}

/// An event as it was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Heard {
    /// Its number: how many were heard before it.
    pub n: u64,
    /// When it happened.
    pub at: Tick,
    /// What it is about.
    pub ids: Ids,
    /// What happened.
    pub event: Event,
}

/// What a ring holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// The events, the oldest first.
    pub events: Vec<Heard>,
    /// How many were dropped since the ring was built or last [emptied](EventRing::take). They came
    /// before the first of [`events`](Self::events).
    pub lost: u64,
}

/// `events` never grows beyond its first allocation.
struct State {
    events: VecDeque<Heard>,
    heard: u64,
    lost: u64,
    names: Names,
}

impl EventRing {
    /// A ring with room for `capacity` events, which wants to hear so much. One without room only
    /// counts.
    #[must_use]
    pub fn new(capacity: usize, detail: Detail) -> Self {
        Self {
            capacity,
            detail,
            state: Mutex::new(State {
                events: VecDeque::with_capacity(capacity),
                heard: 0,
                lost: 0,
                names: Names::default(),
            }),
        }
    }

    /// What it holds, which stays there.
    #[must_use]
    pub fn snapshot(&self) -> Kept {
        // Allocated before the lock: who tells an event must not wait for it.
        let mut events = Vec::with_capacity(self.capacity);
        let state = self.state();
        events.extend(&state.events);
        Kept {
            events,
            lost: state.lost,
        }
    }

    /// What it holds, and empties it. Numbers go on where they were.
    #[must_use]
    pub fn take(&self) -> Kept {
        let fresh = VecDeque::with_capacity(self.capacity);
        let mut state = self.state();
        let events = std::mem::replace(&mut state.events, fresh);
        let lost = std::mem::take(&mut state.lost);
        drop(state);
        Kept {
            events: events.into(),
            lost,
        }
    }

    /// How many events it has heard since it was built.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.state().heard
    }

    /// What a name in its events says; `None` if it was not told to this ring.
    #[must_use]
    pub fn text(&self, name: NameId) -> Option<Arc<str>> {
        self.state().names.text(name).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for EventRing {
    fn detail(&self) -> Detail {
        self.detail
    }

    fn name(&self, text: &str) -> Option<NameId> {
        let (name, _) = self.state().names.number(text)?;
        Some(name)
    }

    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        let mut state = self.state();
        let n = state.heard;
        state.heard += 1;
        if state.events.len() >= self.capacity {
            state.lost += 1;
            if state.events.pop_front().is_none() {
                return;
            }
        }
        state.events.push_back(Heard {
            n,
            at,
            ids: *ids,
            event: *event,
        });
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::conformance::sink::check_recorder;
    use proptest::prelude::*;

    use super::*;

    fn told(ring: &EventRing, count: u64) {
        for number in 0..count {
            ring.event(Tick(number * 10), &Ids::default(), &Event::Opened);
        }
    }

    #[test]
    fn a_ring_that_is_full_drops_the_oldest_and_counts_it() {
        let ring = EventRing::new(3, Detail::Batches);
        told(&ring, 5);
        let kept = ring.snapshot();
        let numbers: Vec<_> = kept
            .events
            .iter()
            .map(|heard| (heard.n, heard.at.0))
            .collect();
        assert_eq!(numbers, [(2, 20), (3, 30), (4, 40)]);
        assert_eq!((kept.lost, ring.heard()), (2, 5));
    }

    #[test]
    fn taking_empties_a_ring_and_its_numbers_go_on() {
        let ring = EventRing::new(2, Detail::Batches);
        told(&ring, 3);
        assert_eq!(ring.take().lost, 1);
        assert_eq!(ring.take(), Kept::default());
        told(&ring, 1);
        let kept = ring.take();
        assert_eq!((kept.events[0].n, kept.events.len(), kept.lost), (3, 1, 0));
    }

    #[test]
    fn names_stay_known_when_their_events_are_gone() {
        let ring = EventRing::new(1, Detail::Batches);
        let name = ring.name("weights").unwrap();
        assert_ne!(ring.name("activations"), Some(name));
        told(&ring, 3);
        let _ = ring.take();
        assert_eq!(ring.name("weights"), Some(name));
        assert_eq!(ring.text(name).as_deref(), Some("weights"));
        assert_eq!(ring.text(NameId::new(2)), None);
    }

    #[test]
    fn a_ring_without_room_only_counts() {
        let ring = EventRing::new(0, Detail::Batches);
        told(&ring, 4);
        let kept = ring.take();
        assert_eq!((kept.events.len(), kept.lost, ring.heard()), (0, 4, 4));
    }

    #[test]
    fn a_ring_with_room_keeps_the_rules_of_a_recorder() {
        let ring = EventRing::new(100_000, Detail::Descriptors);
        let heard = || {
            let kept = ring.snapshot().events;
            let all = kept.iter().map(|heard| (heard.at, heard.ids, heard.event));
            all.collect()
        };
        check_recorder(&ring, &heard).unwrap();
    }

    proptest! {
        #[test]
        fn what_is_kept_and_what_is_lost_are_all_that_was_heard(
            capacity in 0..5_usize,
            steps in proptest::collection::vec(prop_oneof![Just(None), (0..9_u64).prop_map(Some)], 0..20),
        ) {
            let ring = EventRing::new(capacity, Detail::Batches);
            let memory = ring.state().events.capacity();
            let (mut next, mut since) = (0, 0);
            for step in steps {
                match step {
                    Some(count) => {
                        told(&ring, count);
                        next += count;
                        since += count;
                    }
                    None => {
                        prop_assert_eq!(ring.snapshot(), ring.snapshot());
                        let kept = ring.take();
                        let first = next - kept.events.len() as u64;
                        prop_assert!(kept.events.iter().map(|heard| heard.n).eq(first..next));
                        prop_assert_eq!(kept.events.len() as u64 + kept.lost, since);
                        since = 0;
                    }
                }
                prop_assert_eq!(ring.state().events.capacity(), memory);
            }
            prop_assert_eq!(ring.heard(), next);
        }
    }
}
