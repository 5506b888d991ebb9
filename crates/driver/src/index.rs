//! The address index: which chunk contains an address.
//!
//! Per channel, and once for host memory, a *window* of the address space has one bit per page: "a
//! live chunk starts here", and beside it the slot of that chunk's record. A lookup finds the
//! highest start at or below the address, and the answer counts only if that record, read with its
//! generation check, still covers the address. So an update is one bit and one word whatever the
//! chunk's size, and the borders between neighbours are known, which the arenas do not know.
//!
//! Above the bits lie two levels of "something starts in these 64 words"; the highest is scanned.
//! Bits and slots are made on first use, in groups of 32,768 pages (bits) and pages of 512 (slots):
//! an untouched channel costs a few kilobytes.
//!
//! **Who owns what.** One writer at a time (in the driver: under the set's lock); readers take no
//! lock. A chunk that lives through a whole lookup is always found: its own bits do not change, no
//! other start can lie between its start and the address, and every bit of an earlier chunk was
//! cleared before this one was placed. What a reader meets of a chunk that is being made or dying
//! fails the record's check. A summary bit whose word is empty meanwhile is a miss, never an index.

use std::sync::OnceLock;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, Span};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bits in a word, and words below one summary bit's word.
const FAN: u32 = 64;
const WORDS_PER_GROUP: u32 = if cfg!(loom) { 2 } else { 512 };
const SLOTS_PER_PAGE: u32 = if cfg!(loom) { 16 } else { 512 };
const UNITS_PER_GROUP: u32 = WORDS_PER_GROUP * FAN;
const PAGES_PER_GROUP: u32 = UNITS_PER_GROUP / SLOTS_PER_PAGE;

/// The windows of a device.
pub struct AddressIndex {
    windows: Vec<Window>,
}

/// A stretch of addresses that chunks can start in.
struct Window {
    span: Span<BusAddr>,
    groups: Box<[OnceLock<Box<Group>>]>,
    /// A bit per word: some chunk starts in it.
    words_used: Box<[AtomicU64]>,
    /// A bit per word of `words_used`.
    summary: Box<[AtomicU64]>,
}

/// 32,768 units: their start bits, and the slots of the chunks that start there.
struct Group {
    starts: [AtomicU64; WORDS_PER_GROUP as usize],
    pages: [OnceLock<Box<[AtomicU32; SLOTS_PER_PAGE as usize]>>; PAGES_PER_GROUP as usize],
}

impl AddressIndex {
    /// An empty index over these windows, which must not overlap.
    pub fn new(windows: impl Iterator<Item = Span<BusAddr>>) -> Self {
        Self {
            windows: windows.map(Window::new).collect(),
        }
    }

    /// Notes that a chunk with this record slot starts at `at`. False if no window covers the
    /// address (nothing is noted).
    pub fn insert(&self, at: BusAddr, slot: u32) -> bool {
        let Some((window, unit)) = self.locate(at) else {
            return false;
        };
        window.insert(unit, slot);
        true
    }

    /// Forgets the chunk that starts at `at`.
    pub fn remove(&self, at: BusAddr) {
        if let Some((window, unit)) = self.locate(at) {
            window.remove(unit);
        }
    }

    /// Asks `look` for the chunk whose start lies nearest below or at `at`, by its record's slot.
    /// If that is not the answer, asks for the next one below: where two chunks start within one
    /// page's distance, which takes a region that is no multiple of a page, the address can lie
    /// between them. Takes no lock.
    pub fn find<T>(&self, at: BusAddr, mut look: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let (window, unit) = self.locate(at)?;
        let (start, slot) = window.last_start(unit)?;
        if let Some(found) = look(slot) {
            return Some(found);
        }
        let (_, slot) = window.last_start(start.checked_sub(1)?)?;
        look(slot)
    }

    /// Slots of all chunks that start inside `span`'s window, in address order. `span` must start a
    /// window.
    pub fn starts(&self, span: Span<BusAddr>) -> impl Iterator<Item = u32> {
        let window = self
            .windows
            .iter()
            .find(|window| window.span.start() == span.start());
        window.into_iter().flat_map(Window::slots)
    }

    fn locate(&self, at: BusAddr) -> Option<(&Window, u32)> {
        self.windows.iter().find_map(|window| {
            let offset = window.span.offset_of(at)?;
            Some((window, u32::try_from(offset / PAGE_SIZE_BYTES).ok()?))
        })
    }
}

impl Window {
    fn new(span: Span<BusAddr>) -> Self {
        let units = span.size_bytes().div_ceil(PAGE_SIZE_BYTES);
        let count =
            |per: u32| usize::try_from(units.div_ceil(u64::from(per))).unwrap_or(usize::MAX);
        Self {
            span,
            groups: (0..count(UNITS_PER_GROUP))
                .map(|_| OnceLock::new())
                .collect(),
            words_used: zeroed(count(FAN * FAN)),
            summary: zeroed(count(FAN * FAN * FAN)),
        }
    }

    fn insert(&self, unit: u32, slot: u32) {
        let group = self.groups[group_of(unit)].get_or_init(Group::boxed);
        let page = group.pages[page_in_group(unit)]
            .get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU32::new(0))));
        page[(unit % SLOTS_PER_PAGE) as usize].store(slot, Ordering::Relaxed);
        let word = &group.starts[word_in_group(unit)];
        let before = word.load(Ordering::Relaxed);
        // ORDER: the slot above comes before the bit that leads to it.
        word.store(before | bit(unit), Ordering::Release);
        if before == 0 {
            set(&self.words_used, unit / FAN);
            set(&self.summary, unit / (FAN * FAN));
        }
    }

    fn remove(&self, unit: u32) {
        let Some(group) = self.groups.get(group_of(unit)).and_then(OnceLock::get) else {
            return;
        };
        if let Some(page) = group.pages[page_in_group(unit)].get() {
            // Nobody reads it without the bit. It is for whoever comes next, most often to this place: among
            // many chunks this is cold memory, and comes beside what else is freed.
            page[(unit % SLOTS_PER_PAGE) as usize].store(0, Ordering::Relaxed);
        }
        let word = &group.starts[word_in_group(unit)];
        let left = word.load(Ordering::Relaxed) & !bit(unit);
        word.store(left, Ordering::Release);
        if left == 0 && clear(&self.words_used, unit / FAN) == 0 {
            clear(&self.summary, unit / (FAN * FAN));
        }
    }

    /// The highest unit at or below `unit` where a chunk starts, and its record's slot.
    #[inline]
    fn last_start(&self, unit: u32) -> Option<(u32, u32)> {
        // Most chunks are found in the address's own word, and then everything is in one group.
        if let Some(group) = self.group(unit)
            && let Some(found) = highest(group.word(unit) & up_to(unit))
        {
            let start = unit / FAN * FAN + found;
            return Some((start, group.slot(start)?));
        }
        let word = self.last_used_word((unit / FAN).checked_sub(1)?)?;
        let group = self.group(word * FAN)?;
        let start = word * FAN + highest(group.word(word * FAN))?;
        Some((start, group.slot(start)?))
    }

    /// The highest word at or below `word` in which a chunk starts, by the summaries.
    #[cold]
    fn last_used_word(&self, word: u32) -> Option<u32> {
        let index = word / FAN;
        if let Some(found) = highest(load(&self.words_used, index) & up_to(word)) {
            return Some(index * FAN + found);
        }
        let below = index.checked_sub(1)?;
        let first = below / FAN;
        let index = (0..=first).rev().find_map(|upper| {
            let mask = if upper == first {
                up_to(below)
            } else {
                u64::MAX
            };
            highest(load(&self.summary, upper) & mask).map(|found| upper * FAN + found)
        })?;
        highest(load(&self.words_used, index)).map(|found| index * FAN + found)
    }

    fn group(&self, unit: u32) -> Option<&Group> {
        self.groups.get(group_of(unit))?.get().map(Box::as_ref)
    }

    /// Slots in address order.
    fn slots(&self) -> impl Iterator<Item = u32> {
        let groups = (0_u32..).zip(&self.groups);
        groups
            .filter_map(|(number, group)| Some((number, group.get()?)))
            .flat_map(|(number, group)| group.slots(number))
    }
}

impl Group {
    fn word(&self, unit: u32) -> u64 {
        // ORDER: pairs with the Release store in `insert`: whoever sees the bit sees the slot.
        self.starts[word_in_group(unit)].load(Ordering::Acquire)
    }

    fn slot(&self, unit: u32) -> Option<u32> {
        let page = self.pages[page_in_group(unit)].get()?;
        Some(page[(unit % SLOTS_PER_PAGE) as usize].load(Ordering::Relaxed))
    }

    /// Slots in address order, of the group with this number.
    fn slots(&self, number: u32) -> impl Iterator<Item = u32> {
        let first = number * UNITS_PER_GROUP;
        (first..first + UNITS_PER_GROUP)
            .step_by(FAN as usize)
            .flat_map(move |unit| {
                bits(self.word(unit)).filter_map(move |found| self.slot(unit + found))
            })
    }

    fn boxed() -> Box<Self> {
        Box::new(Self {
            starts: std::array::from_fn(|_| AtomicU64::new(0)),
            pages: [const { OnceLock::new() }; _],
        })
    }
}

fn zeroed(len: usize) -> Box<[AtomicU64]> {
    (0..len).map(|_| AtomicU64::new(0)).collect()
}

fn group_of(unit: u32) -> usize {
    (unit / UNITS_PER_GROUP) as usize
}

fn word_in_group(unit: u32) -> usize {
    (unit / FAN % WORDS_PER_GROUP) as usize
}

fn page_in_group(unit: u32) -> usize {
    (unit % UNITS_PER_GROUP / SLOTS_PER_PAGE) as usize
}

fn bit(unit: u32) -> u64 {
    1 << (unit % FAN)
}

/// All bits up to and including that of `unit`.
fn up_to(unit: u32) -> u64 {
    u64::MAX >> (FAN - 1 - unit % FAN)
}

fn highest(word: u64) -> Option<u32> {
    word.checked_ilog2()
}

/// The numbers of the bits that are set, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(lowest)
    })
}

fn load(level: &[AtomicU64], index: u32) -> u64 {
    level
        .get(index as usize)
        .map_or(0, |word| word.load(Ordering::Acquire))
}

/// Sets the bit of `index`; one writer at a time, so load and store suffice.
fn set(level: &[AtomicU64], index: u32) {
    if let Some(word) = level.get((index / FAN) as usize) {
        word.store(word.load(Ordering::Relaxed) | bit(index), Ordering::Release);
    }
}

/// Clears the bit of `index` and gives what is left of its word.
fn clear(level: &[AtomicU64], index: u32) -> u64 {
    level.get((index / FAN) as usize).map_or(0, |word| {
        let left = word.load(Ordering::Relaxed) & !bit(index);
        word.store(left, Ordering::Release);
        left
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = 0x40_0000_0000;

    fn index(size_bytes: u64) -> AddressIndex {
        let windows = [(0, 1 << 20), (BASE, size_bytes)];
        AddressIndex::new(
            windows
                .into_iter()
                .map(|(base, size)| Span::new(BusAddr::new(base), size).unwrap()),
        )
    }

    fn at(unit: u32) -> BusAddr {
        BusAddr::new(BASE + u64::from(unit) * PAGE_SIZE_BYTES)
    }

    /// The slots that a lookup asks for, when it never gets its answer.
    fn asked(index: &AddressIndex, at: BusAddr) -> Vec<u32> {
        let mut slots = Vec::new();
        index.find(at, |slot| {
            slots.push(slot);
            None::<()>
        });
        slots
    }

    proptest! {
        #[test]
        fn the_index_answers_as_an_ordered_map(
            ops in prop::collection::vec((any::<bool>(), prop_oneof![0..200_u32, 0..9_400_000_u32]), 1..200),
            probes in prop::collection::vec(0..9_400_000_u32, 1..50),
        ) {
            let (index, mut model) = (index(36 << 30), BTreeMap::new());
            for (number, (insert, unit)) in (1_u32..).zip(ops) {
                if insert {
                    prop_assert!(index.insert(at(unit), number));
                    model.insert(unit, number);
                } else {
                    let victim = model.range(unit..).next().map_or(unit, |(&unit, _)| unit);
                    index.remove(at(victim));
                    model.remove(&victim);
                }
            }
            let near = model.keys().flat_map(|&unit| [unit.saturating_sub(1), unit, unit + 1]).collect::<Vec<_>>();
            for unit in probes.into_iter().chain(near).filter(|&unit| unit < 9_437_184) {
                let expected: Vec<u32> = model.range(..=unit).rev().take(2).map(|(_, &slot)| slot).collect();
                prop_assert_eq!(asked(&index, at(unit)), expected);
            }
            let window = Span::new(BusAddr::new(BASE), 36 << 30).unwrap();
            prop_assert_eq!(index.starts(window).collect::<Vec<_>>(), model.into_values().collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_address_outside_every_window_is_nobodys() {
        let index = index(1 << 30);
        assert!(!index.insert(BusAddr::new(BASE - 1), 7));
        assert!(!index.insert(BusAddr::new(BASE + (1 << 30)), 7));
        assert!(!index.insert(BusAddr::new(u64::MAX), 7));
        assert!(asked(&index, BusAddr::new(u64::MAX)).is_empty());
    }

    #[test]
    fn a_start_is_found_from_the_other_end_of_a_large_window() {
        let index = index(256 << 30);
        assert!(index.insert(at(0), 9));
        assert_eq!(asked(&index, at((1 << 26) - 1)), [9]);
    }
}
