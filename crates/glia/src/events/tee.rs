//! One machine, two listeners.

use std::sync::Arc;

use glia_abi::event::{Detail, Event, Ids, Sink};
use glia_abi::sched::Tick;

/// Tells everything to two sinks, to each as much as it wants to hear. A third one is another tee.
///
/// Each has its own order: events of two threads may stand the other way round in the other.
pub struct Tee {
    sinks: [(Detail, Arc<dyn Sink>); 2],
}

impl Tee {
    /// Tells `first` before `second`.
    #[must_use]
    pub fn new(first: Arc<dyn Sink>, second: Arc<dyn Sink>) -> Self {
        Self {
            sinks: [first, second].map(|sink| (sink.detail(), sink)),
        }
    }
}

impl Sink for Tee {
    fn detail(&self) -> Detail {
        let [(first, _), (second, _)] = self.sinks;
        first.max(second)
    }

    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        let needed = match event {
            Event::Moved { .. } => Detail::Descriptors,
            _ => Detail::Batches,
        };
        for (wanted, sink) in &self.sinks {
            if *wanted >= needed {
                sink.event(at, ids, event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::addr::BusAddr;
    use glia_abi::conformance::sink::check;
    use glia_abi::event::NoSink;

    use super::*;
    use crate::events::EventRing;

    const MOVED: Event = Event::Moved {
        index: 0,
        source: BusAddr::new(0),
        target: BusAddr::new(0x1000),
        size_bytes: 64,
    };

    #[test]
    fn each_hears_what_it_wants_and_no_more() {
        let [batches, all] = [Detail::Batches, Detail::Descriptors]
            .map(|detail| Arc::new(EventRing::new(9, detail)));
        let inner = Tee::new(Arc::new(NoSink), Arc::clone(&all) as _);
        let tee = Tee::new(Arc::clone(&batches) as _, Arc::new(inner));
        assert_eq!(tee.detail(), Detail::Descriptors);
        for event in [Event::Opened, MOVED, Event::Closed] {
            tee.event(Tick(5), &Ids::default(), &event);
        }
        let events = |ring: &EventRing| -> Vec<Event> {
            let kept = ring.take().events;
            kept.iter().map(|heard| heard.event).collect()
        };
        assert_eq!(events(&batches), [Event::Opened, Event::Closed]);
        assert_eq!(events(&all), [Event::Opened, MOVED, Event::Closed]);
    }

    #[test]
    fn a_tee_of_two_that_hear_nothing_wants_nothing() {
        let tee = Tee::new(Arc::new(NoSink), Arc::new(NoSink));
        assert_eq!(tee.detail(), Detail::Nothing);
        check(&tee).unwrap();
    }
}
