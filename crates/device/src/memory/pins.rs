//! Pinned user memory: what devices reach above 4 GiB, until it is unpinned.
//!
//! A pinned range gets pages of a physical address space that has nothing else in it, contiguous or
//! scattered ([`PinLayout`]). What can be reached is exactly the bytes that were pinned, in runs that
//! lie together on both sides: a descriptor that runs past one is an abort. Between two pins one page
//! stays empty, and addresses are used again as late as possible, so that a descriptor that comes
//! after its pin has ended meets nothing.
//!
//! **Locks.** One `RwLock`. An engine holds it for reading while it copies pairs of descriptors of
//! which either end is pinned; pinning and unpinning take it for writing. So when `unpin` returns,
//! no device uses the memory, and none will. It is held over 1 MiB at most, so nobody waits long.

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use glia_abi::addr::{HostPa, Span};
use glia_abi::chance::Chance;
use glia_abi::fault::{FaultPoint, Faults};
use glia_abi::handle::PinId;
use glia_abi::transport::{PinFault, PinnedUser};
use smallvec::{SmallVec, smallvec};

use super::{Bytes, BytesMut, Region};

const PAGE_BYTES: u64 = glia_abi::PAGE_SIZE_BYTES;
/// Pinned pages lie from here on, above all coherent memory.
pub(crate) const PINS_START: HostPa = HostPa::new(1 << 32);
/// And end below the smallest host base of any arch (V2's).
const PINS_SIZE: u64 = (1 << 44) - PINS_START.get();
/// An id is the number of its pin's first page, which has 32 bits at most, and so many of the count
/// of pins.
const NUMBER_BITS: u32 = 32;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// Where the pages of a pinned range lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PinLayout {
    /// One after the other: one span per pin.
    #[default]
    Contiguous,
    /// In an order drawn from the seed and the pin's number: nearly one span per page.
    Scattered {
        /// The same seed gives the same order.
        seed: u64,
    },
}

/// See the module.
pub(crate) struct PinTable {
    layout: PinLayout,
    pinned_bytes_max: u64,
    faults: Arc<dyn Faults>,
    pins: RwLock<Pins>,
    /// Pins of memory on loan. Changed with `pins` held for writing, and asked without.
    on_loan: AtomicU64,
}

struct Pins {
    /// By the pages that they took. Pages are given out in a circle, so that nearly always the next
    /// ones are free, and the pin comes last; mostly the oldest, which is the first, goes first. (A
    /// tree would make a node and give it back for each pin that is alone.)
    pins: VecDeque<Pin>,
    /// Where the search for free pages begins.
    next_page: u64,
    next_number: u64,
    pinned_bytes: u64,
}

struct Pin {
    id: PinId,
    /// For the time that this entry is in the table.
    bytes: Bytes<'static>,
    /// Whether they may be written.
    writable: bool,
    /// Where they lie, by address.
    runs: SmallVec<[Run; 1]>,
    /// Its pages and the empty one behind them.
    pages: Span<HostPa>,
    /// Keeps the bytes alive, if they are not on loan.
    region: Option<Arc<Region>>,
}

/// Bytes that lie together in the process and on the bus.
#[derive(Clone, Copy)]
struct Run {
    at: Span<HostPa>,
    /// From the pin's first byte.
    offset_bytes: u64,
}

impl PinTable {
    /// Nothing is pinned; at most `pinned_bytes_max` can be at a time.
    pub(crate) fn new(layout: PinLayout, pinned_bytes_max: u64, faults: Arc<dyn Faults>) -> Self {
        Self {
            layout,
            pinned_bytes_max,
            faults,
            pins: RwLock::new(Pins::new()),
            on_loan: AtomicU64::new(0),
        }
    }

    /// Pins a range of a region whose first byte lies `in_page_bytes` into its page for the
    /// process.
    ///
    /// # Errors
    /// [`PinFault::NoRoom`].
    pub(crate) fn pin_region(
        &self,
        region: &Arc<Region>,
        range: Span<HostPa>,
        in_page_bytes: u64,
        writable: bool,
    ) -> Result<PinnedUser, PinFault> {
        let size_bytes = range.size_bytes();
        let no_room = PinFault::NoRoom { size_bytes };
        let bytes = region
            .bytes_mut(range.start().get(), size_bytes)
            .ok_or(no_room)?;
        // SAFETY: the entries keep the region alive for as long as they are in the table.
        unsafe { self.insert(bytes.bytes(), writable, Some(region), in_page_bytes) }
    }

    /// A pin of no bytes.
    ///
    /// # Errors
    /// [`PinFault::NoRoom`].
    pub(crate) fn pin_nothing(&self) -> Result<PinnedUser, PinFault> {
        let none = Bytes {
            first: NonNull::dangling(),
            size_bytes: 0,
            memory: PhantomData,
        };
        // SAFETY: no bytes are always valid.
        unsafe { self.insert(none, false, None, 0) }
    }

    /// Enters a range.
    ///
    /// # Safety
    /// Until the pin is removed, or `region` (of which an entry keeps a reference) is dropped, the
    /// bytes are valid, and if `writable` may be a [`BytesMut`].
    pub(super) unsafe fn insert(
        &self,
        bytes: Bytes<'_>,
        writable: bool,
        region: Option<&Arc<Region>>,
        in_page_bytes: u64,
    ) -> Result<PinnedUser, PinFault> {
        let size_bytes = bytes.size_bytes();
        let no_room = PinFault::NoRoom { size_bytes };
        // No pages are always to be had, and lie nowhere.
        if size_bytes > 0 && self.faults.orders(FaultPoint::Pin) {
            return Err(no_room);
        }
        let mut pins = self.pins.write().unwrap_or_else(PoisonError::into_inner);
        let pinned_bytes = pins.pinned_bytes.checked_add(size_bytes);
        let pinned_bytes = pinned_bytes.filter(|&bytes| bytes <= self.pinned_bytes_max);
        let pinned_bytes = pinned_bytes.ok_or(no_room)?;
        let number = pins.next_number;
        let reached_bytes = in_page_bytes + size_bytes;
        let (spans, pages) = if size_bytes == 0 {
            // An id that no pin with pages has.
            (SmallVec::new(), Span::cut(HostPa::new(0), 0))
        } else {
            let pages = pins.take_pages(reached_bytes).ok_or(no_room)?;
            let count = reached_bytes.div_ceil(PAGE_BYTES);
            let order = if self.faults.orders(FaultPoint::ScatteredPages) {
                // Backwards, no page follows the one before it.
                Some((0..count).rev().collect())
            } else {
                self.layout.order(number, count)
            };
            let first = HostPa::new(pages.start().get() + in_page_bytes);
            let spans = match order {
                None => smallvec![Span::cut(first, size_bytes)],
                Some(order) => scattered(&order, pages, in_page_bytes, size_bytes),
            };
            (spans, pages)
        };
        pins.next_number += 1;
        let id = pin_id(pages.start(), number);
        if size_bytes > 0 {
            pins.pinned_bytes = pinned_bytes;
            let pin = Pin {
                id,
                // SAFETY: the same bytes, for the time that the caller has promised. They leave
                // this table only for the time that its lock is held.
                bytes: unsafe { Bytes::new(bytes.first, bytes.size_bytes) },
                writable,
                runs: runs(&spans),
                pages,
                region: region.cloned(),
            };
            self.count_loans(&pin, 1);
            pins.enter(pin);
        }
        Ok(PinnedUser { pin: id, spans })
    }

    /// Ends a pin, if there is such a one, when nobody reads the table.
    pub(crate) fn unpin(&self, pin: PinId) {
        self.unpin_all(&[pin]);
    }

    /// Ends those of these pins that there are.
    fn unpin_all(&self, pins: &[PinId]) {
        let mut table = self.pins.write().unwrap_or_else(PoisonError::into_inner);
        for &pin in pins {
            if let Some(pin) = table.remove(pin) {
                self.count_loans(&pin, -1);
            }
        }
    }

    /// Ends those of these pins that there are, which the caller has made of memory on loan.
    pub(super) fn end_loans(&self, pins: &[PinId]) {
        // ORDER: whoever ended the last one, and knew that no engine reads it any more, counted then;
        // and this thread has counted the pins that it made.
        if !pins.is_empty() && self.on_loan.load(Ordering::Acquire) > 0 {
            self.unpin_all(pins);
        }
    }

    /// The caller holds the table for writing, so that nobody else counts.
    fn count_loans(&self, pin: &Pin, more: i64) {
        if pin.region.is_none() {
            let count = self.on_loan.load(Ordering::Relaxed);
            let count = count.saturating_add_signed(more);
            // ORDER: pairs with the Acquire in `end_loans`.
            self.on_loan.store(count, Ordering::Release);
        }
    }

    /// Bytes that are pinned.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let pins = self.pins.read().unwrap_or_else(PoisonError::into_inner);
        pins.pinned_bytes
    }

    /// Holds all pins as they are. Take one at a time: a second may wait for a writer that waits
    /// for the first.
    pub(crate) fn reader(&self) -> PinReader<'_> {
        let pins = self.pins.read().unwrap_or_else(PoisonError::into_inner);
        let latest = Cell::new(None);
        PinReader { pins, latest }
    }
}

/// Its first page, and a number that tells it from those that had the page before.
fn pin_id(first_page: HostPa, number: u64) -> PinId {
    let first_page = first_page.get() / PAGE_BYTES;
    PinId((first_page << NUMBER_BITS) | (number & NUMBER_MASK))
}

/// The runs that lie in these spans, which are in the order of the bytes.
fn runs(spans: &[Span<HostPa>]) -> SmallVec<[Run; 1]> {
    let mut offset_bytes = 0;
    let run = |&at: &Span<HostPa>| {
        let run = Run { at, offset_bytes };
        offset_bytes += at.size_bytes();
        run
    };
    let mut runs: SmallVec<[Run; 1]> = spans.iter().map(run).collect();
    runs.sort_unstable_by_key(|run| run.at.start());
    runs
}

impl Pins {
    fn new() -> Self {
        Self {
            pins: VecDeque::new(),
            next_page: PINS_START.get(),
            next_number: 1,
            pinned_bytes: 0,
        }
    }

    /// How many begin before an address, or at it.
    fn upto(&self, at: HostPa) -> usize {
        match self.pins.back() {
            // Without a search.
            Some(last) if last.pages.start() <= at => self.pins.len(),
            _ => self.pins.partition_point(|pin| pin.pages.start() <= at),
        }
    }

    fn enter(&mut self, pin: Pin) {
        let place = self.upto(pin.pages.start());
        self.pins.insert(place, pin);
    }

    /// Takes a pin out, if there is such a one.
    fn remove(&mut self, id: PinId) -> Option<Pin> {
        let first_page = HostPa::new((id.0 >> NUMBER_BITS) * PAGE_BYTES);
        let place = self.upto(first_page).checked_sub(1)?;
        if self.pins.get(place)?.id != id {
            return None;
        }
        let pin = self.pins.remove(place)?;
        self.pinned_bytes -= pin.bytes.size_bytes();
        Some(pin)
    }

    /// Fresh pages for so many bytes, and an empty one behind them.
    fn take_pages(&mut self, size_bytes: u64) -> Option<Span<HostPa>> {
        let taken_bytes = size_bytes
            .checked_next_multiple_of(PAGE_BYTES)?
            .checked_add(PAGE_BYTES)?;
        let start = self
            .gap(taken_bytes, self.next_page)
            .or_else(|| self.gap(taken_bytes, PINS_START.get()))?;
        self.next_page = start + taken_bytes;
        Span::new(HostPa::new(start), taken_bytes)
    }

    /// The first place for so many bytes from here on.
    fn gap(&self, size_bytes: u64, from: u64) -> Option<u64> {
        let mut start = from;
        // From the last one that begins before.
        let first = self.upto(HostPa::new(from)).saturating_sub(1);
        for Pin { pages, .. } in self.pins.range(first..) {
            let other = pages.start().get();
            if other >= start && other - start >= size_bytes {
                break;
            }
            start = start.max(pages.end().get());
        }
        let end = start.checked_add(size_bytes)?;
        (end <= PINS_START.get() + PINS_SIZE).then_some(start)
    }
}

impl PinLayout {
    /// In which order the bytes go through the pages; `None` if one page after the other.
    fn order(self, number: u64, pages: u64) -> Option<Vec<u64>> {
        let Self::Scattered { seed } = self else {
            return None;
        };
        let mut order: Vec<u64> = (0..pages).collect();
        shuffle(&mut order, seed ^ number);
        Some(order)
    }
}

/// Which addresses the bytes get, in their order, runs joined.
fn scattered(
    order: &[u64],
    pages: Span<HostPa>,
    in_page_bytes: u64,
    size_bytes: u64,
) -> SmallVec<[Span<HostPa>; 1]> {
    let first = pages.start().get();
    let mut spans: SmallVec<[Span<HostPa>; 1]> = SmallVec::new();
    let (mut skip, mut left) = (in_page_bytes, size_bytes);
    for page in order {
        let at = HostPa::new(first + page * PAGE_BYTES + skip);
        let here_bytes = left.min(PAGE_BYTES - skip);
        match spans.last_mut() {
            Some(last) if last.end() == at => {
                *last = Span::cut(last.start(), last.size_bytes() + here_bytes);
            }
            _ => spans.push(Span::cut(at, here_bytes)),
        }
        left -= here_bytes;
        skip = 0;
    }
    spans
}

/// Fisher and Yates.
fn shuffle(order: &mut [u64], seed: u64) {
    let mut chance = Chance::new(seed);
    for index in (1..order.len()).rev() {
        // CAST: at most `index`, a usize.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let other = chance.below(index as u64 + 1) as usize;
        order.swap(index, other);
    }
}

/// The pins, held as they are.
pub(crate) struct PinReader<'a> {
    pins: RwLockReadGuard<'a, Pins>,
    /// What was looked for last: the next one mostly lies behind it.
    latest: Cell<Option<Found>>,
}

/// A run that was found.
#[derive(Clone, Copy)]
struct Found {
    at: Span<HostPa>,
    /// For the time that the pins are held.
    bytes: Bytes<'static>,
    writable: bool,
}

impl PinReader<'_> {
    /// A pinned range to read; `None` if it does not lie in one run.
    pub(crate) fn bytes(&self, at: HostPa, size_bytes: u64) -> Option<Bytes<'_>> {
        let found = self.find(at)?;
        let offset_bytes = at.checked_offset_from(found.at.start())?;
        found.bytes.part(offset_bytes, size_bytes)
    }

    /// A pinned range to write; `None` if it does not lie in one run, or was pinned to be read.
    pub(crate) fn bytes_mut(&self, at: HostPa, size_bytes: u64) -> Option<BytesMut<'_>> {
        let bytes = self.bytes(at, size_bytes)?;
        if !self.find(at)?.writable {
            return None;
        }
        // SAFETY: `insert` was promised that it may.
        Some(unsafe { BytesMut::of(bytes) })
    }

    /// The run that an address lies in.
    fn find(&self, at: HostPa) -> Option<Found> {
        if let Some(found) = self.latest.get().filter(|found| found.at.contains(at)) {
            return Some(found);
        }
        let pin = self.pins.pins.get(self.pins.upto(at).checked_sub(1)?)?;
        let upto = pin.runs.partition_point(|run| run.at.start() <= at);
        let run = pin.runs.get(upto.checked_sub(1)?)?;
        let found = Found {
            at: run.at,
            bytes: pin.bytes.part(run.offset_bytes, run.at.size_bytes())?,
            writable: pin.writable,
        };
        let found = found.at.contains(at).then_some(found);
        self.latest.set(found);
        found
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, NoFaults, Trigger};
    use proptest::prelude::*;

    use super::*;

    fn table(layout: PinLayout, pinned_bytes_max: u64) -> PinTable {
        PinTable::new(layout, pinned_bytes_max, Arc::new(NoFaults))
    }

    fn pin(table: &PinTable, region: &Arc<Region>, at: u64, size: u64) -> PinnedUser {
        let range = Span::new(HostPa::new(at), size).unwrap();
        table
            .pin_region(region, range, at % PAGE_BYTES, true)
            .unwrap()
    }

    #[test]
    fn a_scattered_pin_holds_its_bytes_in_order() {
        let region = Arc::new(Region::new(1 << 20, 0).unwrap());
        let table = table(PinLayout::Scattered { seed: 7 }, u64::MAX);
        let content: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
        region.bytes_mut(100, 40_000).unwrap().write(&content);
        let pinned = pin(&table, &region, 100, 40_000);
        let mut seen = Vec::new();
        for span in &pinned.spans {
            let mut part = vec![0; usize::try_from(span.size_bytes()).unwrap()];
            let reader = table.reader();
            let bytes = reader.bytes(span.start(), span.size_bytes()).unwrap();
            bytes.read(&mut part);
            seen.extend(part);
        }
        assert!(seen == content);
        assert!(pinned.spans.len() > 5);
        assert_eq!(pinned.spans[0].start().get() % PAGE_BYTES, 100);
    }

    #[test]
    fn pages_that_a_plan_scatters_lie_each_by_itself_for_that_pin() {
        let region = Arc::new(Region::new(1 << 20, 0).unwrap());
        let plan = FaultPlan::new(0);
        let rule = FaultRule {
            trigger: Trigger::nth(2),
            ..FaultRule::new(FaultKind::FragmentedPages)
        };
        plan.add(rule).unwrap();
        let table = PinTable::new(PinLayout::Contiguous, u64::MAX, Arc::new(plan));
        let content: Vec<u8> = (0..8192_u32).map(|n| (n % 251) as u8).collect();
        region.bytes_mut(100, 8192).unwrap().write(&content);
        let spans = [(); 3].map(|()| pin(&table, &region, 100, 8192).spans);
        assert_eq!(spans.each_ref().map(|spans| spans.len()), [1, 3, 1]);
        let mut seen = Vec::new();
        for span in &spans[1] {
            let mut part = vec![0; usize::try_from(span.size_bytes()).unwrap()];
            let reader = table.reader();
            let bytes = reader.bytes(span.start(), span.size_bytes()).unwrap();
            bytes.read(&mut part);
            seen.extend(part);
        }
        assert!(seen == content);
    }

    #[test]
    fn a_pin_that_a_plan_refuses_leaves_nothing_and_the_next_one_works() {
        let region = Arc::new(Region::new(1 << 20, 0).unwrap());
        let plan = Arc::new(FaultPlan::new(0));
        let id = plan.add(FaultRule::new(FaultKind::FailedPin)).unwrap();
        let table = PinTable::new(PinLayout::Contiguous, u64::MAX, Arc::clone(&plan) as _);
        let range = Span::new(HostPa::new(0), 4096).unwrap();
        let refused = table.pin_region(&region, range, 0, true);
        assert_eq!(refused, Err(PinFault::NoRoom { size_bytes: 4096 }));
        assert!(table.pin_nothing().is_ok(), "no pages are always to be had");
        assert_eq!(table.pinned_bytes(), 0);
        assert_eq!(plan.remove(id).unwrap().strikes, 1);
        assert!(table.pin_region(&region, range, 0, true).is_ok());
        assert_eq!(table.pinned_bytes(), 4096);
    }

    #[test]
    fn the_same_seed_scatters_alike() {
        let spans = |seed| {
            let region = Arc::new(Region::new(1 << 20, 0).unwrap());
            let table = table(PinLayout::Scattered { seed }, u64::MAX);
            pin(&table, &region, 0, 1 << 20).spans
        };
        assert_eq!(spans(1), spans(1));
        assert_ne!(spans(1), spans(2));
    }

    #[test]
    fn an_address_is_not_used_again_at_once() {
        let region = Arc::new(Region::new(1 << 20, 0).unwrap());
        let table = table(PinLayout::Contiguous, u64::MAX);
        let first = pin(&table, &region, 0, 4096);
        table.unpin(first.pin);
        let second = pin(&table, &region, 0, 4096);
        assert!(!first.spans[0].overlaps(second.spans[0]));
        assert!(table.reader().bytes(first.spans[0].start(), 1).is_none());
        table.unpin(first.pin);
        assert!(
            table
                .reader()
                .bytes(second.spans[0].start(), 4096)
                .is_some()
        );
    }

    #[test]
    fn pages_are_given_out_in_a_circle_and_what_is_pinned_is_stepped_over() {
        let mut pins = Pins::new();
        let take = |pins: &mut Pins, size_bytes| {
            let pages = pins.take_pages(size_bytes)?;
            let pin = Pin {
                id: pin_id(pages.start(), 0),
                bytes: Bytes {
                    first: NonNull::dangling(),
                    size_bytes: 0,
                    memory: PhantomData,
                },
                writable: false,
                runs: SmallVec::new(),
                pages,
                region: None,
            };
            pins.enter(pin);
            Some(pages.start())
        };
        let third = PINS_SIZE / 3 / PAGE_BYTES * PAGE_BYTES - PAGE_BYTES;
        let starts = [(); 3].map(|()| take(&mut pins, third).unwrap());
        assert_eq!(starts[0], PINS_START);
        assert!(take(&mut pins, third).is_none(), "all are taken");
        for given_back in [1, 0, 2] {
            pins.remove(pin_id(starts[given_back], 0)).unwrap();
            assert_eq!(take(&mut pins, third).unwrap(), starts[given_back]);
        }
        // Between two that are pinned.
        pins.remove(pin_id(starts[1], 0)).unwrap();
        let small = [(); 2].map(|()| take(&mut pins, 1).unwrap());
        let behind = starts[1].checked_add(2 * PAGE_BYTES).unwrap();
        assert_eq!(small, [starts[1], behind]);
        assert!(take(&mut pins, u64::MAX).is_none());
    }

    proptest! {
        /// Round the end of the address space, where pins come before those that are older.
        #[test]
        fn what_is_pinned_is_reachable_and_nothing_else(
            scatter in any::<bool>(),
            actions in prop::collection::vec((1..5_u64, any::<prop::sample::Index>()), 1..80),
        ) {
            let region = Arc::new(Region::new(1 << 20, 0).unwrap());
            let layout = match scatter {
                true => PinLayout::Scattered { seed: 3 },
                false => PinLayout::Contiguous,
            };
            let table = table(layout, u64::MAX);
            table.pins.write().unwrap().next_page = PINS_START.get() + PINS_SIZE - 20 * PAGE_BYTES;
            let mut live: Vec<(u64, PinnedUser)> = Vec::new();
            let mut gone = Vec::new();
            for (number, (pages, which)) in (0_u64..).zip(actions) {
                if number % 3 == 2 && !live.is_empty() {
                    let (_, pinned) = live.remove(which.index(live.len()));
                    table.unpin(pinned.pin);
                    gone.push(pinned);
                } else {
                    let from = number * PAGE_BYTES + 100;
                    live.push((from, pin(&table, &region, from, pages * PAGE_BYTES)));
                }
                let reader = table.reader();
                for (from, pinned) in &live {
                    let mut from = *from;
                    for &span in &pinned.spans {
                        let bytes = reader.bytes(span.start(), span.size_bytes()).unwrap();
                        let there = region.bytes(from, span.size_bytes()).unwrap();
                        prop_assert_eq!(bytes.address(), there.address());
                        prop_assert!(reader.bytes(span.start(), span.size_bytes() + 1).is_none());
                        from += span.size_bytes();
                    }
                }
                for span in gone.iter().flat_map(|pinned: &PinnedUser| &pinned.spans) {
                    let mut others = live.iter().flat_map(|(_, pinned)| &pinned.spans);
                    let is_taken = others.any(|other| other.contains(span.start()));
                    prop_assert_eq!(reader.bytes(span.start(), 1).is_some(), is_taken);
                }
            }
            let pinned_bytes = live.iter().flat_map(|(_, pinned)| &pinned.spans);
            let pinned_bytes: u64 = pinned_bytes.map(|span| span.size_bytes()).sum();
            prop_assert_eq!(table.pinned_bytes(), pinned_bytes);
        }
    }

    #[test]
    fn only_what_was_pinned_is_reachable() {
        let region = Arc::new(Region::new(1 << 20, 0).unwrap());
        let table = table(PinLayout::Contiguous, u64::MAX);
        let at = pin(&table, &region, 10, 100).spans[0].start();
        let reader = table.reader();
        assert!(reader.bytes(at, 100).is_some());
        assert!(reader.bytes(at, 101).is_none());
        assert!(reader.bytes(at.checked_sub(1).unwrap(), 1).is_none());
    }

    #[test]
    fn more_than_the_limit_is_refused_until_something_is_unpinned() {
        let region = Arc::new(Region::new(1 << 20, 0).unwrap());
        let table = table(PinLayout::Contiguous, 10_000);
        let first = pin(&table, &region, 0, 9_000);
        let range = Span::new(HostPa::new(0), 1_001).unwrap();
        let refused = table.pin_region(&region, range, 0, false);
        assert_eq!(refused, Err(PinFault::NoRoom { size_bytes: 1_001 }));
        table.unpin(first.pin);
        assert!(table.pin_region(&region, range, 0, false).is_ok());
        assert_eq!(table.pinned_bytes(), 1_001);
    }
}
