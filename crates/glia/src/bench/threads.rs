//! Two threads at once: how they meet, what a word between them costs, and lookups on both.
//!
//! On a shared machine the two processors can be near (a hand-off of 30 to 100 ns) or far (300 and
//! more), and that changes by itself. What two threads do is therefore read beside the hand-off.
//! Tens of microseconds mean that the two shared one processor.
//!
//! Waiting is spinning, with a yield now and then for machines that have one processor only, and it
//! ends: nobody waits for ever for a thread that never came.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::BenchError;
use super::lookups::{all_found, count_found};
use super::timing::{Op, Subject, Tally};

/// Round trips to a reading of the clock,
const ROUND_TRIPS: u32 = 20;
/// and readings: where the system takes a processor away, most of them do not notice.
const ROUNDS: u32 = 50;
/// Lookups between two looks at the sign to stop.
const STRETCH: usize = 64;
/// Stretches of one batch: a millisecond or so, beside which a new thread is little.
const STRETCHES: usize = 4096;

/// Longest wait for another thread.
const PATIENCE: Duration = Duration::from_secs(1);
/// Looks between two yields, after which the clock is looked at, too.
const LOOKS: u32 = 1 << 10;

/// A word on a cache line of its own; two, as processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

impl Line {
    fn say(&self, word: u32) {
        // ORDER: what was written before the word is seen with it.
        self.0.store(word, Ordering::Release);
    }

    fn hear(&self, word: u32) -> Result<(), BenchError> {
        wait_until(|| self.0.load(Ordering::Acquire) == word)
    }
}

fn wait_until(is_so: impl Fn() -> bool) -> Result<(), BenchError> {
    let mut since = None;
    loop {
        for _ in 0..LOOKS {
            if is_so() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        thread::yield_now();
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(BenchError::Alone);
        }
    }
}

/// The point that two threads leave together, and the sign on which the second one stops.
#[derive(Default)]
pub(super) struct Meeting {
    arrived: AtomicU32,
    over: AtomicBool,
}

impl Meeting {
    /// Waits for the other thread. If it does not come, it need not do anything any more.
    pub(super) fn arrive(&self) -> Result<(), BenchError> {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        wait_until(|| self.arrived.load(Ordering::Acquire) == 2).inspect_err(|_| self.end())
    }

    /// Tells the other thread to stop.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether to stop.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// What the thread came to; if it panicked, so do we.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Times a word to another thread and its answer.
pub(super) fn note_hand_off(tally: &mut Tally) -> Result<(), BenchError> {
    let [asked, answered, meeting] = [Line::default(), Line::default(), Line::default()];
    let answer = || {
        meeting.say(1);
        (1..=ROUNDS * ROUND_TRIPS).try_for_each(|word| {
            asked.hear(word)?;
            answered.say(word);
            Ok(())
        })
    };
    thread::scope(|scope| {
        let other = scope.spawn(answer);
        meeting.hear(1)?;
        let mut words = 1..=ROUNDS * ROUND_TRIPS;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for word in words.by_ref().take(ROUND_TRIPS as usize) {
                asked.say(word);
                answered.hear(word)?;
            }
            tally.note(Op::HandOff, start.elapsed(), ROUND_TRIPS as usize);
        }
        joined(other)
    })
}

/// Lookups on one thread or two: the cost of one is the time over the lookups of all threads.
pub(super) struct Crowd<K, F> {
    keys: Arc<[K]>,
    look_up: F,
    with_other: bool,
}

impl<K, F> Crowd<K, F> {
    pub(super) fn of_one(keys: Arc<[K]>, look_up: F) -> Self {
        Self {
            keys,
            look_up,
            with_other: false,
        }
    }

    pub(super) fn of_two(keys: Arc<[K]>, look_up: F) -> Self {
        Self {
            with_other: true,
            ..Self::of_one(keys, look_up)
        }
    }
}

impl<K: Copy + Send + Sync, T, F: Fn(K) -> Option<T> + Sync> Crowd<K, F> {
    /// The keys in stretches, again and again.
    fn stretches(&self) -> impl Iterator<Item = &[K]> {
        self.keys.chunks_exact(STRETCH).cycle()
    }

    /// The first thread's share: so many lookups, timed.
    fn look_up_a_batch(&self) -> (Duration, usize) {
        let start = Instant::now();
        let stretches = self.stretches().take(STRETCHES);
        let found = stretches.map(|keys| count_found(keys, &self.look_up));
        let found = found.sum();
        (start.elapsed(), found)
    }

    /// The second thread's: as many as come to be until the first one is done; found, and asked.
    fn look_up_until_over(&self, meeting: &Meeting) -> Result<(usize, usize), BenchError> {
        meeting.arrive()?;
        let (mut found, mut asked) = (0, 0);
        // The two are to meet on the same records, but not in step.
        for keys in self.stretches().skip(self.keys.len() / STRETCH / 2) {
            if meeting.is_over() {
                break;
            }
            found += count_found(keys, &self.look_up);
            asked += keys.len();
        }
        Ok((found, asked))
    }
}

impl<K: Copy + Send + Sync, T, F: Fn(K) -> Option<T> + Sync> Subject for Crowd<K, F> {
    fn begin_turn(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        if self.with_other {
            note_hand_off(tally)?;
        }
        Ok(())
    }

    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let asked = STRETCH * STRETCHES;
        if !self.with_other {
            let (time, found) = self.look_up_a_batch();
            tally.note(Op::Find, time, asked);
            return all_found(found, asked);
        }
        let (this, meeting) = (&*self, Meeting::default());
        thread::scope(|scope| {
            let other = scope.spawn(|| this.look_up_until_over(&meeting));
            meeting.arrive()?;
            let (time, found) = this.look_up_a_batch();
            meeting.end();
            let (found_there, asked_there) = joined(other)?;
            tally.note(Op::Find, time, asked + asked_there);
            all_found(found + found_there, asked + asked_there)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::timing::{Pace, interleave};

    const ONCE: Pace = Pace {
        turns: 1,
        turn_time: Duration::ZERO,
    };

    #[test]
    fn a_hand_off_ends_and_takes_time() {
        let mut tally = Tally::default();
        note_hand_off(&mut tally).unwrap();
        assert!(tally.medians()[&Op::HandOff] > 0.0);
    }

    #[test]
    fn one_thread_and_two_find_every_key() {
        let keys: Arc<[u32]> = (0..1000).collect();
        let mut sides: [Box<dyn Subject>; 2] = [
            Box::new(Crowd::of_one(Arc::clone(&keys), Some)),
            Box::new(Crowd::of_two(keys, Some)),
        ];
        let medians = interleave(&mut sides, &ONCE).unwrap();
        assert!(!medians[0].contains_key(&Op::HandOff));
        assert!(medians[1].contains_key(&Op::HandOff));
    }

    #[test]
    fn a_key_that_is_missed_on_either_thread_is_told() {
        let keys: Arc<[u32]> = (0..1000).collect();
        let never = |key: u32| (key != 500).then_some(key);
        let mut sides: [Box<dyn Subject>; 1] = [Box::new(Crowd::of_two(keys, never))];
        let error = interleave(&mut sides, &ONCE).unwrap_err();
        assert!(matches!(error, BenchError::Missed { .. }), "{error}");
    }
}
