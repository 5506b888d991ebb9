//! DML, the usage logger: who holds how much of a device's memory, and what has happened to it.
//!
//! Each device has one [`Dml`]. Every allocation goes through it when the driver has given it, every
//! free before the driver takes it back; it keeps
//!
//! - the ledger: live and greatest bytes for each HBM channel, and for each core and usage;
//! - what each loaded model owns of that;
//! - the same bytes, and those of host memory, by the [counters](MemoryMetrics) that sysfs shows;
//! - the live allocations of the runtime's allocators, which an explanation names;
//! - a ring of [events](Event), the newest of which are kept.
//!
//! Everything that is shown is computed from the ledger: the [table](UsageTable) of who holds what,
//! the [report](OomReport) of an allocation that failed, and the [block](ModelReport) of a loaded
//! model; each as data and as text. The events are data, and a [table with commas](events_csv),
//! which goes [to a file](Dump) when an allocation fails, if there is to be one; the chunks of the HBM
//! that had no room go to another.
//!
//! The invariant: the parts sum to the totals. A core's total is the sum of its usages; a channel's
//! bytes are the sum of its live allocations. Only device memory counts there; host memory is in the
//! events, and in the [counters](MemoryMetrics) of what sysfs shows.
//!
//! Bytes are *allocated* bytes: what the driver was asked for, which is more than the size for an
//! aligned allocation that the runtime had to align by itself, and less than what the driver's pool
//! takes, which rounds up to pages.
//!
//! **Locks.** One plain mutex for all of it, let go before the caller does anything else. The list of live
//! allocations needs it in any case, and to take and let go an idle one is half of what an allocation and
//! its end pay here, so there is no second one beside it. Under it, what happens is only noted
//! (`journal.rs`), and booked later, many at a time.

mod column;
mod csv;
mod dump;
mod events;
mod facts;
mod journal;
mod labels;
mod ledger;
mod line;
mod list;
mod live;
mod metrics;
mod model;
mod packed;
mod report;
mod site;
mod size;
mod table;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use glia_abi::arch::ArchProfile;
use glia_abi::handle::{CoreId, DeviceId, McHandle};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;

use events::EventRing;
use journal::Journal;
use labels::Labels;
use ledger::Ledger;
use live::Lives;
use packed::{Odd, Packed};

pub use csv::{chunks_csv, events_csv};
pub use dump::{Dump, DumpDir};
pub(crate) use dump::{chunks_file_name, events_file_name};
pub use events::{Action, Event};
pub(crate) use facts::Facts;
pub use ledger::{Allocation, Balance, ModelId, UsageBytes};
pub(crate) use line::Level;
pub use line::{Log, LogContext};
pub(crate) use live::{Entered, ListId};
pub use metrics::{CoreMetrics, Counters, MemoryMetrics};
pub use model::ModelReport;
pub(crate) use report::host_failure;
pub use report::{OomReport, ReportProfile};
pub use site::Site;
pub use size::printed;
pub use table::{BankUsage, CoreUsage, ModelUsage, UsageTable};

/// The usage logger of one device.
#[derive(Debug)]
pub struct Dml {
    device: DeviceId,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    /// What is not in ledger and ring yet.
    journal: Journal,
    ledger: Ledger,
    ring: EventRing,
    lives: Lives,
    /// What is said of those in journal and ring and of those that live.
    labels: Labels,
}

impl Books {
    /// Notes an allocation, or its end.
    #[inline]
    fn record(&mut self, action: Action, packed: Packed, odd: Option<Odd>) {
        if self.journal.note(action, packed, odd) {
            self.settle();
        }
    }

    /// Enters in the ledger and in the ring what has been noted.
    #[inline(never)]
    fn settle(&mut self) {
        let (entries, odd) = self.journal.entries();
        let mut odds = odd.iter().copied();
        let mut last = None;
        for entry in &mut *entries {
            let facts = &entry.facts;
            // Many in a row have the same.
            let model = match last {
                Some((label, model)) if label == facts.label => model,
                _ => self.labels.model(facts.label),
            };
            last = Some((facts.label, model));
            let odd = facts.is_odd().then(|| odds.next()).flatten();
            let posting = facts.posting(odd, model);
            let channel_bytes = self.ledger.record(entry.action(), &posting);
            entry.count(channel_bytes);
        }
        self.ring.extend(entries, odd, &mut self.labels);
        self.journal.clear();
    }
}

impl Dml {
    /// A logger with nothing in it, for a device of this kind, that keeps `events_max` events.
    ///
    /// A runtime makes one for each device that it opens, and whoever has memory of his own to keep
    /// books of can make one, too.
    ///
    /// ```
    /// use glia_abi::addr::BusAddr;
    /// use glia_abi::arch::Arch;
    /// use glia_abi::handle::{Channel, CoreId, DeviceId};
    /// use glia_abi::mem::Location;
    /// use glia_abi::mem_usage::MemUsage;
    /// use glia_runtime::dml::{Action, Allocation, Dml};
    ///
    /// let dml = Dml::new(DeviceId::new(0), Arch::V3.profile(), 16);
    /// let tensor = Allocation {
    ///     size_bytes: 4096,
    ///     allocated_bytes: 4096,
    ///     pa: BusAddr::new(0x1000),
    ///     align_offset_bytes: 0,
    ///     location: Location::Device,
    ///     usage: MemUsage::Tensor,
    ///     core: CoreId::new(3),
    ///     channel: Channel::new(1),
    ///     model: None,
    ///     hint: None,
    ///     site: None,
    /// };
    /// dml.record(Action::Alloc, &tensor);
    /// assert_eq!(dml.table().core(CoreId::new(3)).unwrap().present.total(), 4096);
    /// ```
    #[must_use]
    pub fn new(device: DeviceId, profile: &'static ArchProfile, events_max: usize) -> Self {
        Self {
            device,
            books: Mutex::new(Books {
                journal: Journal::new(),
                ledger: Ledger::new(profile),
                ring: EventRing::new(events_max),
                lives: Lives::default(),
                labels: Labels::new(),
            }),
        }
    }

    /// Enters an allocation, or its end, with the same facts. Counters move by its
    /// [`allocated_bytes`](Allocation::allocated_bytes), those of a model only while it is known
    /// ([`add_model`](Self::add_model)); the event is added to the ring.
    ///
    /// An end without a beginning takes no counter below 0. A core or a channel that the device does
    /// not have is in the events alone.
    pub fn record(&self, action: Action, allocation: &Allocation) {
        let mut books = self.books();
        let label = books.labels.take(allocation, 1);
        let (packed, odd) = Packed::new(allocation, label);
        books.record(action, packed, odd);
    }

    /// A list of live allocations, which somebody takes off in the end.
    pub(crate) fn add_list(&self) -> ListId {
        self.books().lives.add_list()
    }

    /// Takes a list off that nobody adds to any more, unless something is still on it.
    pub(crate) fn remove_list(&self, list: ListId) {
        self.books().lives.remove_list(list);
    }

    /// As [`record`](Self::record) of a beginning, and lists the allocation.
    pub(crate) fn enter(&self, list: ListId, handle: McHandle, allocation: &Allocation) -> Entered {
        let mut books = self.books();
        // One of an event, one of the list.
        let label = books.labels.take(allocation, 2);
        let (packed, odd) = Packed::new(allocation, label);
        books.record(Action::Alloc, packed, odd);
        books.lives.add(list, handle, packed, odd)
    }

    /// As [`record`](Self::record) of the end of what was entered with the same facts, which is not
    /// listed any more.
    pub(crate) fn leave(&self, entered: Entered, allocation: &Allocation) {
        let mut books = self.books();
        // The event has the label that the list had.
        let (packed, odd) = Packed::new(allocation, entered.label);
        books.record(Action::Free, packed, odd);
        books.lives.remove(entered);
    }

    /// How many live allocations a list has, and the bytes that the driver was asked for.
    pub(crate) fn live(&self, list: ListId) -> (usize, u64) {
        self.books().lives.count(list)
    }

    /// What is live of all lists at this location.
    pub(crate) fn facts(&self, location: Location) -> Facts {
        let mut books = self.books();
        let Books { lives, labels, .. } = &mut *books;
        let mut facts = lives.facts(labels, location);
        drop(books);
        facts.sort();
        facts
    }

    /// Makes a loaded model known: what it owns from now on is told by its name.
    pub fn add_model(&self, id: ModelId, core: CoreId, name: &str) {
        self.settled().ledger.add_model(id, core, name);
    }

    /// Forgets a model that was unloaded. What it still owns stays its core's.
    pub fn remove_model(&self, id: ModelId) {
        self.settled().ledger.remove_model(id);
    }

    /// Who holds what at this moment.
    #[must_use]
    pub fn table(&self) -> UsageTable {
        self.settled().ledger.table(self.device)
    }

    /// What the driver's counters of uses would say of this process at this moment.
    #[must_use]
    pub fn metrics(&self) -> MemoryMetrics {
        self.settled().ledger.metrics(self.device)
    }

    /// Bytes of a core for one use, and for all.
    pub(crate) fn core_bytes(&self, core: CoreId, usage: MemUsage) -> (u64, u64) {
        self.settled().ledger.core_bytes(core, usage)
    }

    /// What the loaded models are called.
    pub(crate) fn model_names(&self) -> BTreeMap<ModelId, String> {
        self.books().ledger.model_names()
    }

    /// What a model on a core owns.
    pub(crate) fn model_report(&self, id: ModelId, core: CoreId) -> ModelReport {
        let (core_present, model) = self.settled().ledger.model(id, core);
        ModelReport {
            device: self.device,
            core,
            core_present,
            model,
        }
    }

    /// The events that are kept, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events_and_losses().0
    }

    /// Both of one moment: the events that are kept, and how many older ones had to give way.
    pub(crate) fn events_and_losses(&self) -> (Vec<Event>, u64) {
        let books = self.settled();
        let (ring, labels) = (books.ring.clone(), books.labels.clone());
        drop(books);
        // They are put together without the lock.
        (ring.iter(&labels).collect(), ring.dropped())
    }

    /// How many events had to give way to newer ones.
    #[must_use]
    pub fn events_dropped(&self) -> u64 {
        self.settled().ring.dropped()
    }

    /// The books with all in them that has happened.
    fn settled(&self) -> MutexGuard<'_, Books> {
        let mut books = self.books();
        books.settle();
        books
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::arch::Arch;
    use proptest::prelude::*;

    use super::ledger::tests::any_allocation;
    use super::*;

    const MODEL: ModelId = ModelId(1001);

    #[derive(Debug, Clone)]
    enum Step {
        Record(Action, Allocation),
        AddModel,
        RemoveModel,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let action = prop_oneof![Just(Action::Alloc), Just(Action::Free)];
        let record = (action, any_allocation());
        prop_oneof![
            30 => record.prop_map(|(action, allocation)| Step::Record(action, allocation)),
            1 => Just(Step::AddModel),
            1 => Just(Step::RemoveModel),
        ]
    }

    proptest! {
        #[test]
        fn what_is_noted_counts_as_if_it_had_been_booked_at_once(
            steps in proptest::collection::vec(any_step(), 0..4 * journal::ENTRIES),
            events_max in 0..3 * journal::ENTRIES,
        ) {
            let [noted, booked] =
                [(); 2].map(|()| Dml::new(DeviceId::new(0), Arch::V3.profile(), events_max));
            for step in steps {
                for dml in [&noted, &booked] {
                    match &step {
                        Step::Record(action, allocation) => dml.record(*action, allocation),
                        Step::AddModel => dml.add_model(MODEL, CoreId::new(0), "a"),
                        Step::RemoveModel => dml.remove_model(MODEL),
                    }
                }
                // Whoever looks has it booked.
                drop(booked.settled());
            }
            prop_assert_eq!(noted.metrics(), booked.metrics());
            prop_assert_eq!(noted.table(), booked.table());
            prop_assert_eq!(noted.events_and_losses(), booked.events_and_losses());
            let kept = |dml: &Dml| dml.books().labels.len();
            prop_assert_eq!(kept(&noted), kept(&booked));
        }
    }
}
