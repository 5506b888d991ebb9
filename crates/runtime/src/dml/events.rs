//! The ring of events of a device: what was allocated and freed, the newest ones.

use std::collections::VecDeque;

use super::ledger::Allocation;

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

/// The newest events. It takes memory as it fills.
#[derive(Debug)]
pub(super) struct EventRing {
    events: VecDeque<Event>,
    events_max: usize,
    dropped: u64,
}

impl EventRing {
    /// A ring that keeps `events_max` events.
    pub(super) fn new(events_max: usize) -> Self {
        Self {
            events: VecDeque::new(),
            events_max,
            dropped: 0,
        }
    }

    /// Adds an event; the oldest gives way if there is no room.
    pub(super) fn push(&mut self, event: Event) {
        self.events.push_back(event);
        if self.events.len() > self.events_max {
            self.events.pop_front();
            self.dropped += 1;
        }
    }

    /// The events, oldest first.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Event> {
        self.events.iter()
    }

    /// How many gave way.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::tests::device_allocation;
    use super::*;

    fn kept_after(pushed: u64, events_max: usize) -> (Vec<u64>, u64) {
        let mut ring = EventRing::new(events_max);
        for size_bytes in 0..pushed {
            ring.push(Event {
                action: Action::Alloc,
                allocation: device_allocation(0, size_bytes),
                channel_bytes: Some(0),
            });
        }
        let sizes = ring.iter().map(|event| event.allocation.size_bytes);
        (sizes.collect(), ring.dropped())
    }

    #[test]
    fn a_full_ring_drops_the_oldest_and_counts_it() {
        assert_eq!(kept_after(3, 3), (vec![0, 1, 2], 0));
        assert_eq!(kept_after(5, 3), (vec![2, 3, 4], 2));
    }

    #[test]
    fn a_ring_without_room_keeps_nothing() {
        assert_eq!(kept_after(2, 0), (vec![], 2));
    }
}
