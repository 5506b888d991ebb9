//! The completion queue: how a process learns that its asynchronous zero copies have ended.
//!
//! It lies in host memory that the driver and the process share (driver 2.27.4, one for each H2T
//! ring):
//!
//! ```text
//!    0   capacity: u32      1,024; written once
//!    4   head: u32          the consumer's: entries taken so far
//!    8   tail: u32          the driver's: entries posted so far
//!   12   padding
//!   16   entries: 1,024 of 24 bytes: sequence u64, result i64, context u64
//! ```
//!
//! Head and tail run freely over 32 bits; the entry of a position is that position modulo the
//! capacity. There is one [`Producer`] and one [`Consumer`] at a time.
//!
//! **Order.** The producer stores an entry's words, then the tail (release). The consumer loads the
//! tail (acquire), reads the entry, then stores the head (release), which the producer loads (acquire)
//! before it writes that entry again. So each entry is read whole, once, and in order.
//!
//! **Trust.** The process can write all of it. The producer trusts its own tail and never the shared
//! one; a head that makes no sense counts as a full queue. The consumer trusts its own head likewise.
//! Neither reaches outside the words, whatever they hold.

use crate::sync::{AtomicU32, Ordering};

/// Entries of a queue (driver 2.27.4, `NDMA_H2D_COMPL_QUEUE_CAPACITY`).
pub const CAPACITY: u32 = 1024;
/// Bytes of an entry.
pub const ENTRY_SIZE_BYTES: u64 = 24;
/// Bytes before the first entry.
pub const HEADER_SIZE_BYTES: u64 = 16;
/// Bytes of the queue. Its chunk is rounded up to whole pages.
pub const SIZE_BYTES: u64 = HEADER_SIZE_BYTES + CAPACITY as u64 * ENTRY_SIZE_BYTES;

const CAPACITY_WORD: usize = 0;
const HEAD_WORD: usize = 1;
const TAIL_WORD: usize = 2;
const HEADER_WORDS: usize = 4;
const ENTRY_WORDS: usize = 6;

/// What is told of a request that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The number that the caller gave the request; never 0.
    pub sequence: u64,
    /// 0, or a negative error number.
    pub result: i64,
    /// What the caller gave with the request.
    pub context: u64,
}

impl Completion {
    fn to_words(self) -> [u32; ENTRY_WORDS] {
        let mut words = [0; ENTRY_WORDS];
        let values = [self.sequence, self.result.cast_unsigned(), self.context];
        for (pair, value) in words.as_chunks_mut().0.iter_mut().zip(values) {
            let bytes = value.to_le_bytes();
            let (halves, _) = bytes.as_chunks();
            *pair = [0, 1].map(|half: usize| u32::from_le_bytes(halves[half]));
        }
        words
    }

    fn from_words([a, b, c, d, e, f]: [u32; ENTRY_WORDS]) -> Self {
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Self {
            sequence: join(a, b),
            result: join(c, d).cast_signed(),
            context: join(e, f),
        }
    }
}

/// The words of a queue, or too few: `words` is not [`SIZE_BYTES`] long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a completion queue has {SIZE_BYTES} bytes, and not {size_bytes}")]
pub struct BadQueueSize {
    /// Bytes there are.
    pub size_bytes: u64,
}

/// The queue has no room: the consumer has not taken what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the completion queue is full: {CAPACITY} completions have not been taken")]
pub struct QueueFull;

/// The driver's end of a queue. (Models have queues of fewer entries, a power of two.)
#[derive(Debug)]
pub struct Producer<const N: u32 = CAPACITY> {
    /// Entries posted.
    tail: u32,
    /// A mutant for loom to catch: the tail does not publish the entry.
    #[cfg(loom)]
    publishes_nothing: bool,
}

impl Producer {
    /// Makes an empty queue of these words.
    ///
    /// # Errors
    /// [`BadQueueSize`] if there are too few.
    pub fn format(words: &[AtomicU32]) -> Result<Self, BadQueueSize> {
        let words = checked(words)?;
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        words[CAPACITY_WORD].store(CAPACITY, Ordering::Relaxed);
        // ORDER: a consumer that sees the tail sees the rest.
        words[TAIL_WORD].store(0, Ordering::Release);
        Ok(Self::at(0))
    }
}

impl<const N: u32> Producer<N> {
    /// A producer that has posted so much.
    fn at(tail: u32) -> Self {
        Self {
            tail,
            #[cfg(loom)]
            publishes_nothing: false,
        }
    }

    /// How many entries can be posted now. None if the head makes no sense.
    #[must_use]
    pub fn room(&self, words: &[AtomicU32]) -> u32 {
        N.saturating_sub(self.unread(words))
    }

    /// Entries that were posted and have not been taken; more than the queue has if the head makes no
    /// sense.
    #[must_use]
    pub fn unread(&self, words: &[AtomicU32]) -> u32 {
        let Some(head) = words.get(HEAD_WORD) else {
            return u32::MAX;
        };
        // ORDER: pairs with the Release store of the head: what the consumer has read of an entry
        // it has read before this entry is written again.
        self.tail.wrapping_sub(head.load(Ordering::Acquire))
    }

    /// Takes back what has not been taken: a consumer that [attaches](Consumer::attach) from now on
    /// does not find it. There must be no consumer that still wants it.
    pub fn take_back(&mut self, words: &[AtomicU32]) {
        if let Some(head) = words.get(HEAD_WORD) {
            head.store(self.tail, Ordering::Release);
        }
    }

    /// Posts an entry.
    ///
    /// # Errors
    /// [`QueueFull`] if there is no room; nothing is written then.
    pub fn post(&mut self, words: &[AtomicU32], entry: &Completion) -> Result<(), QueueFull> {
        if self.room(words) == 0 {
            return Err(QueueFull);
        }
        let slot = entry_words::<N>(words, self.tail).ok_or(QueueFull)?;
        for (word, value) in slot.iter().zip(entry.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        // ORDER: the entry before the tail that covers it.
        words[TAIL_WORD].store(self.tail, self.publishing());
        Ok(())
    }
}

impl<const N: u32> Producer<N> {
    /// How the tail is stored.
    fn publishing(&self) -> Ordering {
        #[cfg(loom)]
        if self.publishes_nothing {
            return Ordering::Relaxed;
        }
        Ordering::Release
    }
}

/// The process's end of a queue.
#[derive(Debug)]
pub struct Consumer<const N: u32 = CAPACITY> {
    /// Entries taken.
    head: u32,
}

impl Consumer {
    /// Goes on where the queue's head stands.
    ///
    /// # Errors
    /// [`BadQueueSize`] if there are too few words.
    pub fn attach(words: &[AtomicU32]) -> Result<Self, BadQueueSize> {
        let head = checked(words)?[HEAD_WORD].load(Ordering::Relaxed);
        Ok(Self { head })
    }
}

impl<const N: u32> Consumer<N> {
    /// Takes the oldest entry; `None` if there is none.
    pub fn take(&mut self, words: &[AtomicU32]) -> Option<Completion> {
        // ORDER: pairs with the Release store of the tail.
        let tail = words.get(TAIL_WORD)?.load(Ordering::Acquire);
        if tail == self.head {
            return None;
        }
        let slot = entry_words::<N>(words, self.head)?;
        let mut entry = [0; ENTRY_WORDS];
        for (value, word) in entry.iter_mut().zip(slot) {
            *value = word.load(Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        // ORDER: the entry was read before it is given back.
        words[HEAD_WORD].store(self.head, Ordering::Release);
        Some(Completion::from_words(entry))
    }
}

fn checked(words: &[AtomicU32]) -> Result<&[AtomicU32], BadQueueSize> {
    // Not the size of the slice: loom's words are larger.
    let size_bytes = words.len() as u64 * size_of::<u32>() as u64;
    let is_whole = size_bytes >= SIZE_BYTES;
    is_whole.then_some(words).ok_or(BadQueueSize { size_bytes })
}

/// The words of the entry at a position.
fn entry_words<const N: u32>(words: &[AtomicU32], position: u32) -> Option<&[AtomicU32]> {
    let first = HEADER_WORDS + (position % N) as usize * ENTRY_WORDS;
    words.get(first..first + ENTRY_WORDS)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn words() -> Vec<AtomicU32> {
        (0..SIZE_BYTES / 4)
            .map(|_| AtomicU32::new(0xdead_beef))
            .collect()
    }

    fn entry(sequence: u64) -> Completion {
        Completion {
            sequence,
            result: -110,
            context: 0x1122_3344_5566_7788,
        }
    }

    /// The numbers of the sheet.
    #[test]
    fn the_layout_is_the_references() {
        assert_eq!(SIZE_BYTES, 24_592);
        let words = words();
        let mut producer = Producer::format(&words).unwrap();
        for sequence in 1..=6 {
            producer.post(&words, &entry(sequence)).unwrap();
        }
        let value = |byte: usize| words[byte / 4].load(Ordering::Relaxed);
        assert_eq!([0, 4, 8, 12].map(value), [1024, 0, 6, 0]);
        assert_eq!([136, 140].map(value), [6, 0], "entry 5 is at byte 136");
        assert_eq!([144, 148].map(value), [110_u32.wrapping_neg(), u32::MAX]);
        assert_eq!([152, 156].map(value), [0x5566_7788, 0x1122_3344]);
    }

    #[test]
    fn too_few_words_are_no_queue() {
        let mut short = words();
        short.pop();
        let size_bytes = SIZE_BYTES - 4;
        assert_eq!(
            Producer::format(&short).unwrap_err(),
            BadQueueSize { size_bytes }
        );
        assert_eq!(
            Consumer::attach(&short).unwrap_err(),
            BadQueueSize { size_bytes }
        );
    }

    #[test]
    fn a_full_queue_takes_nothing_more_and_loses_nothing() {
        let words = words();
        let mut producer = Producer::format(&words).unwrap();
        for sequence in 1..=1024 {
            producer.post(&words, &entry(sequence)).unwrap();
        }
        assert_eq!(producer.post(&words, &entry(9)), Err(QueueFull));
        let mut consumer = Consumer::attach(&words).unwrap();
        assert_eq!(consumer.take(&words), Some(entry(1)));
        producer.post(&words, &entry(1025)).unwrap();
        let rest: Vec<_> = std::iter::from_fn(|| consumer.take(&words)).collect();
        assert!(rest.into_iter().eq((2..=1025).map(entry)));
    }

    #[test]
    fn who_attaches_after_entries_were_taken_back_does_not_find_them() {
        let words = words();
        let mut producer = Producer::format(&words).unwrap();
        for sequence in 1..=1024 {
            producer.post(&words, &entry(sequence)).unwrap();
        }
        producer.take_back(&words);
        assert_eq!((producer.unread(&words), producer.room(&words)), (0, 1024));
        let mut consumer = Consumer::attach(&words).unwrap();
        assert_eq!(consumer.take(&words), None);
        producer.post(&words, &entry(2000)).unwrap();
        assert_eq!(consumer.take(&words), Some(entry(2000)));
    }

    #[test]
    fn what_a_process_scribbles_harms_nobody_but_itself() {
        let words = words();
        let mut producer = Producer::format(&words).unwrap();
        // A head ahead of the tail: nothing can be posted.
        words[HEAD_WORD].store(7, Ordering::Relaxed);
        assert_eq!(producer.room(&words), 0);
        words[HEAD_WORD].store(0, Ordering::Relaxed);
        // The shared tail is not the producer's.
        words[TAIL_WORD].store(77, Ordering::Relaxed);
        producer.post(&words, &entry(1)).unwrap();
        assert_eq!(words[TAIL_WORD].load(Ordering::Relaxed), 1);
        // Nor the shared head the consumer's.
        let mut consumer = Consumer::attach(&words).unwrap();
        words[HEAD_WORD].store(u32::MAX, Ordering::Relaxed);
        assert_eq!(consumer.take(&words), Some(entry(1)));
        assert_eq!(consumer.take(&words), None);
    }

    proptest! {
        #[test]
        fn every_entry_arrives_once_and_in_order(steps in prop::collection::vec(0..2000_u32, 1..40)) {
            let words = words();
            let mut producer = Producer::format(&words).unwrap();
            let mut consumer = Consumer::attach(&words).unwrap();
            let (mut queued, mut next) = (VecDeque::new(), 1);
            for (number, step) in steps.into_iter().enumerate() {
                for _ in 0..step {
                    if number % 2 == 0 {
                        let posted = producer.post(&words, &entry(next));
                        prop_assert_eq!(posted.is_ok(), queued.len() < 1024);
                        if posted.is_ok() {
                            queued.push_back(entry(next));
                            next += 1;
                        }
                    } else {
                        prop_assert_eq!(consumer.take(&words), queued.pop_front());
                    }
                }
            }
        }
    }
}

/// Interleavings of both ends, explored by loom. Run with
/// `RUSTFLAGS="--cfg loom" cargo test -p glia-abi --lib --release interleavings`.
#[cfg(test)]
#[cfg(loom)]
mod interleavings {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    const ENTRIES: u32 = 2;

    fn entry(sequence: u64) -> Completion {
        Completion {
            sequence,
            result: -1,
            context: !sequence,
        }
    }

    /// A producer and a consumer whose counters stand here, with three entries to pass on: one more
    /// than there is room for.
    fn beside(start: u32, publishes_nothing: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let count = HEADER_WORDS + ENTRIES as usize * ENTRY_WORDS;
            let words: Vec<_> = (0..count).map(|_| AtomicU32::new(0)).collect();
            words[HEAD_WORD].store(start, Ordering::Relaxed);
            words[TAIL_WORD].store(start, Ordering::Relaxed);
            let words = Arc::new(words);
            let shared = Arc::clone(&words);
            let posting = thread::spawn(move || {
                let mut producer = Producer::<ENTRIES>::at(start);
                producer.publishes_nothing = publishes_nothing;
                for sequence in 1..=3 {
                    while producer.post(&shared, &entry(sequence)).is_err() {
                        thread::yield_now();
                    }
                }
            });
            let mut consumer = Consumer::<ENTRIES> { head: start };
            for sequence in 1..=3 {
                let taken = loop {
                    match consumer.take(&words) {
                        Some(taken) => break taken,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(taken, entry(sequence), "stale entry");
            }
            assert_eq!(consumer.take(&words), None);
            posting.join().unwrap();
        });
    }

    #[test]
    fn entries_arrive_whole_and_in_order() {
        beside(0, false);
    }

    #[test]
    fn also_when_the_counters_wrap() {
        beside(u32::MAX, false);
    }

    /// The mutant: a tail that publishes nothing lets the consumer read what was there before.
    #[test]
    #[should_panic(expected = "stale entry")]
    fn without_a_release_of_the_tail_stale_entries_are_found() {
        beside(0, true);
    }
}
