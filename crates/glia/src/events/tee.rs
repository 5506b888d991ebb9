//! One machine, two listeners.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::event::{Detail, Event, Ids, NameId, Sink};
use glia_abi::sched::Tick;

use super::names::Names;

/// Tells everything to two sinks, to each as much as it wants to hear. A third one is another tee.
///
/// Each has its own order: events of two threads may stand the other way round in the other. Each
/// numbers names by itself, too: an event is told with the numbers of whoever hears it.
pub struct Tee {
    sinks: [(Detail, Arc<dyn Sink>); 2],
    names: Mutex<Named>,
}

#[derive(Default)]
struct Named {
    names: Names,
    /// By number: what each sink calls it.
    theirs: Vec<[Option<NameId>; 2]>,
}

impl Tee {
    /// Tells `first` before `second`.
    #[must_use]
    pub fn new(first: Arc<dyn Sink>, second: Arc<dyn Sink>) -> Self {
        Self {
            sinks: [first, second].map(|sink| (sink.detail(), sink)),
            names: Mutex::default(),
        }
    }

    fn names(&self) -> MutexGuard<'_, Named> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Tee {
    fn detail(&self) -> Detail {
        let [(first, _), (second, _)] = self.sinks;
        first.max(second)
    }

    fn name(&self, text: &str) -> Option<NameId> {
        let mut named = self.names();
        let (name, is_new) = named.names.number(text)?;
        if is_new {
            let theirs = self.sinks.each_ref().map(|(wanted, sink)| {
                let hears = *wanted > Detail::Nothing;
                hears.then(|| sink.name(text)).flatten()
            });
            named.theirs.push(theirs);
        }
        Some(name)
    }

    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        let needed = match event {
            Event::Moved { .. } => Detail::Descriptors,
            _ => Detail::Batches,
        };
        for (number, (wanted, sink)) in self.sinks.iter().enumerate() {
            if *wanted >= needed {
                let event = event.renamed(|name| {
                    let named = self.names();
                    named.theirs.get(name.get() as usize)?[number]
                });
                sink.event(at, ids, &event);
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
    fn each_hears_names_by_its_own_numbers() {
        let [one, other] = [0, 1].map(|_| Arc::new(EventRing::new(9, Detail::Batches)));
        other.name("heard before");
        let quiet = Tee::new(Arc::new(NoSink), Arc::clone(&other) as _);
        let tee = Tee::new(Arc::clone(&one) as _, Arc::new(quiet));
        for text in ["weights", "activations", "weights"] {
            let loaded = Event::ModelLoaded {
                model: 1,
                model_name: tee.name(text),
            };
            tee.event(Tick(5), &Ids::default(), &loaded);
        }
        let texts = |ring: &EventRing| -> Vec<_> {
            let kept = ring.take().events.into_iter();
            kept.map(|heard| match heard.event {
                Event::ModelLoaded { model_name, .. } => ring.text(model_name.unwrap()).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect()
        };
        for ring in [one, other] {
            let texts = texts(&ring);
            assert!(
                texts
                    .iter()
                    .map(|text| &**text)
                    .eq(["weights", "activations", "weights"])
            );
        }
    }

    #[test]
    fn a_tee_of_two_that_hear_nothing_wants_nothing() {
        let tee = Tee::new(Arc::new(NoSink), Arc::new(NoSink));
        assert_eq!(tee.detail(), Detail::Nothing);
        check(&tee).unwrap();
    }
}
