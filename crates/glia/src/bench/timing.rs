//! The clock: batches, turns, medians.
//!
//! Reading the clock costs 20 to 30 ns, about as much as an allocation, so it is read around a
//! batch of operations. One batch in a hundred meets an interrupt, and a machine has faster and
//! slower seconds: the first is met by medians, the second by letting the sides take turns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::BenchError;

/// What one figure is the cost of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Taking a chunk.
    Alloc,
    /// Giving one back.
    Free,
    /// One of each.
    Pair,
    /// Taking a chunk, the first of its kind on a device.
    First,
    /// Finding the chunk that contains an address, or that a handle names.
    Find,
    /// A word to the other thread and its answer, both through one cache line each.
    HandOff,
    /// Moving, or setting, the bytes of one operation.
    Copy,
}

impl Op {
    /// As it is printed, in tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::Pair => "pair",
            Self::First => "first",
            Self::Find => "find",
            Self::HandOff => "handoff",
            Self::Copy => "copy",
        }
    }
}

/// One side of a comparison: memory that is set up, and what is done with it.
pub(super) trait Subject {
    /// Begins a turn. What is timed here is timed once a turn.
    fn begin_turn(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let _ = tally;
        Ok(())
    }

    /// Times one batch and leaves the memory as it was, in kind if not in detail.
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError>;
}

/// How long a comparison takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Turns of each side.
    pub(super) turns: u32,
    /// A turn ends with the first batch that ends after this time.
    pub(super) turn_time: Duration,
}

/// Nanoseconds an operation, by operation.
pub(super) type Medians = BTreeMap<Op, f64>;

/// Figures of one kind of batch or turn, as they come.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<Op, Vec<f64>>);

impl Tally {
    /// Notes that `ops` operations took `time`.
    pub(super) fn note(&mut self, op: Op, time: Duration, ops: usize) {
        self.push(op, time.as_secs_f64() * 1e9 / ops as f64);
    }

    fn push(&mut self, op: Op, ns: f64) {
        self.0.entry(op).or_default().push(ns);
    }

    pub(super) fn medians(self) -> Medians {
        let medians = self
            .0
            .into_iter()
            .map(|(op, figures)| (op, median(figures)));
        medians.collect()
    }
}

/// Lets the subjects take turns: the medians of each.
pub(super) fn interleave(
    subjects: &mut [Box<dyn Subject + '_>],
    pace: &Pace,
) -> Result<Vec<Medians>, BenchError> {
    let mut turns: Vec<Tally> = subjects.iter().map(|_| Tally::default()).collect();
    for _ in 0..pace.turns {
        for (subject, turns) in subjects.iter_mut().zip(&mut turns) {
            for (op, ns) in run_turn(&mut **subject, pace)?.medians() {
                turns.push(op, ns);
            }
        }
    }
    Ok(turns.into_iter().map(Tally::medians).collect())
}

fn run_turn(subject: &mut dyn Subject, pace: &Pace) -> Result<Tally, BenchError> {
    let mut tally = Tally::default();
    subject.begin_turn(&mut tally)?;
    let start = Instant::now();
    loop {
        subject.run_batch(&mut tally)?;
        if start.elapsed() >= pace.turn_time {
            return Ok(tally);
        }
    }
}

/// The middle figure, the mean of the two middle ones if their number is even; 0 for none.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.get(middle) {
        None => 0.0,
        Some(upper) if figures.len() % 2 == 1 => *upper,
        Some(upper) => (figures[middle - 1] + upper) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_move_a_median() {
        assert_eq!(median(vec![3.0, 1.0, 1e9]), 3.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 1e9]), 3.0);
        assert_eq!(median(vec![]), 0.0);
    }

    /// A side that writes down when it was asked.
    struct Scribe<'a> {
        name: char,
        log: &'a std::cell::RefCell<String>,
    }

    impl Subject for Scribe<'_> {
        fn begin_turn(&mut self, _: &mut Tally) -> Result<(), BenchError> {
            self.log.borrow_mut().push('|');
            Ok(())
        }

        fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
            self.log.borrow_mut().push(self.name);
            tally.note(Op::Find, Duration::from_nanos(640), 64);
            Ok(())
        }
    }

    #[test]
    fn the_sides_take_turns() {
        let log: &'static _ = Box::leak(Box::new(std::cell::RefCell::new(String::new())));
        let mut subjects: [Box<dyn Subject>; 2] =
            ['a', 'b'].map(|name| -> Box<dyn Subject> { Box::new(Scribe { name, log }) });
        let pace = Pace {
            turns: 2,
            turn_time: Duration::ZERO,
        };
        let medians = interleave(&mut subjects, &pace).unwrap();
        assert_eq!(*log.borrow(), "|a|b|a|b");
        assert_eq!(medians[1][&Op::Find], 10.0);
    }
}
