//! Rules of [`Faults`].

use super::{Must, Violation, hold};
use crate::fault::{FaultPoint, Faults, PairAt, PairFault, Scope, StagedBatch};
use crate::handle::{DeviceId, EngineId, Pid, QueueId};
use crate::udma::MARKER_SIZE_BYTES;

/// How often each point is asked about, and how many batches are staged.
const ROUNDS: usize = 200;
/// Pairs of a batch, the marker included.
const PAIRS: u32 = 3;
const DEVICE: DeviceId = DeviceId::new(0);
const QUEUE: QueueId = QueueId::new(EngineId::new(0), 0);

/// An answer of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Point(bool),
    Pair(Option<PairFault>),
}

impl Answer {
    const fn is_fault(self) -> bool {
        matches!(self, Self::Point(true) | Self::Pair(Some(_)))
    }
}

/// A plan answers about any point and any pair, from any thread; two copies of it give the same
/// answers to the same questions; it counts attempts however many threads make them; and one that is
/// not armed orders nothing.
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
    let struck = first.iter().filter(|answer| answer.is_fault()).count();
    hold!(
        struck == 0 || plan().is_armed(),
        "a plan that is not armed orders nothing",
        "{struck} faults of a plan that said that nobody needs to ask"
    );
    for point in FaultPoint::ALL {
        let ask = |faults: &dyn Faults| faults.strikes(point);
        counts_all_threads(plan, &point, &ask)?;
    }
    let ask = |faults: &dyn Faults| faults.pair(&pair_at(0, 0)).is_some();
    counts_all_threads(plan, &"a pair", &ask)
}

fn counts_all_threads(
    plan: &dyn Fn() -> Box<dyn Faults>,
    what: &dyn std::fmt::Debug,
    ask: &(dyn Fn(&dyn Faults) -> bool + Sync),
) -> Result<(), Violation> {
    let alone = strikes(plan().as_ref(), ask, 2 * ROUNDS);
    let shared = strikes_in_two_threads(plan().as_ref(), ask)?;
    hold!(
        alone == shared,
        "a plan counts the attempts of all threads",
        "{alone} faults at {what:?} in one thread, {shared} in two"
    );
    Ok(())
}

/// A pair of a batch that begins at this count of the queue's pairs.
fn pair_at(first: u64, in_batch: u32) -> PairAt {
    let is_last = in_batch + 1 == PAIRS;
    PairAt {
        device: DEVICE,
        queue: QUEUE,
        index: first + u64::from(in_batch),
        in_batch: u64::from(in_batch),
        is_last,
        size_bytes: if is_last { MARKER_SIZE_BYTES } else { 4096 },
        reads_hbm: in_batch == 1,
        in_reset: false,
    }
}

/// The answers to a mixed row of questions, asked by a thread of their own: every point, and every
/// pair of a batch that was staged before.
fn answers(faults: &dyn Faults) -> Result<Vec<Answer>, Violation> {
    let ask = || {
        let mut answers = Vec::new();
        for (round, process) in (0..ROUNDS as u64).zip([1, 2].into_iter().cycle()) {
            let points = FaultPoint::ALL.map(|point| Answer::Point(faults.strikes(point)));
            answers.extend(points);
            let first = round * u64::from(PAIRS);
            faults.staged(&StagedBatch {
                device: DEVICE,
                queue: QUEUE,
                first,
                pairs: PAIRS,
                scope: Scope {
                    device: Some(DEVICE),
                    process: Some(Pid::new(process)),
                    ..Scope::NOBODY
                },
            });
            let pairs = (0..PAIRS).map(|pair| faults.pair(&pair_at(first, pair)));
            answers.extend(pairs.map(Answer::Pair));
        }
        answers
    };
    let answers = std::thread::scope(|scope| scope.spawn(ask).join());
    answers.must("a plan answers about anything from any thread")
}

fn strikes(faults: &dyn Faults, ask: &dyn Fn(&dyn Faults) -> bool, attempts: usize) -> usize {
    (0..attempts).filter(|_| ask(faults)).count()
}

fn strikes_in_two_threads(
    faults: &dyn Faults,
    ask: &(dyn Fn(&dyn Faults) -> bool + Sync),
) -> Result<usize, Violation> {
    let counts = std::thread::scope(|scope| {
        let askers = [(); 2].map(|()| scope.spawn(|| strikes(faults, ask, ROUNDS)));
        askers.map(std::thread::ScopedJoinHandle::join)
    });
    let mut sum = 0;
    for count in counts {
        sum += count.must("a plan answers about anything from any thread")?;
    }
    Ok(sum)
}
