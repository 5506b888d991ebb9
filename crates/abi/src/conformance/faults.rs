//! Rules of [`Faults`].

use super::{Must, Violation, hold};
use crate::fault::{FaultPoint, Faults};

/// Every point that can be asked about.
const POINTS: [FaultPoint; 5] = [
    FaultPoint::Alloc,
    FaultPoint::ChunkRecord,
    FaultPoint::HandleTable,
    FaultPoint::HandlePage,
    FaultPoint::Pool,
];
/// How often each is asked about.
const ROUNDS: usize = 200;

/// A plan answers about any point, from any thread; two copies of it give the same answers to the
/// same questions; and it counts attempts however many threads make them.
///
/// `plan` makes a fresh copy, of which nothing was asked.
///
/// # Errors
/// The rule that it breaks.
pub fn check(plan: &dyn Fn() -> Box<dyn Faults>) -> Result<(), Violation> {
    let first = answers(plan().as_ref())?;
    let second = answers(plan().as_ref())?;
    hold!(
        first == second,
        "a plan answers the same questions in the same way",
        "the answers of two copies differ"
    );
    for point in POINTS {
        let alone = strikes(plan().as_ref(), point, 2 * ROUNDS);
        let shared = strikes_in_two_threads(plan().as_ref(), point)?;
        hold!(
            alone == shared,
            "a plan counts the attempts of all threads",
            "{alone} faults at {point:?} in one thread, {shared} in two"
        );
    }
    Ok(())
}

/// The answers to a mixed row of questions, asked by a thread of their own.
fn answers(faults: &dyn Faults) -> Result<Vec<bool>, Violation> {
    let questions = POINTS.into_iter().cycle().take(ROUNDS * POINTS.len());
    let ask = || questions.map(|point| faults.strikes(point)).collect();
    let answers = std::thread::scope(|scope| scope.spawn(ask).join());
    answers.must("a plan answers about any point from any thread")
}

fn strikes(faults: &dyn Faults, point: FaultPoint, attempts: usize) -> usize {
    (0..attempts).filter(|_| faults.strikes(point)).count()
}

fn strikes_in_two_threads(faults: &dyn Faults, point: FaultPoint) -> Result<usize, Violation> {
    let counts = std::thread::scope(|scope| {
        let askers = [(); 2].map(|()| scope.spawn(|| strikes(faults, point, ROUNDS)));
        askers.map(std::thread::ScopedJoinHandle::join)
    });
    let mut sum = 0;
    for count in counts {
        sum += count.must("a plan answers about any point from any thread")?;
    }
    Ok(sum)
}
