//! Descriptor pairs in flight: an engine for which things take time, happen in an order of their
//! own, or go wrong on order.
//!
//! ```text
//!              taken on            source read         target written       retired
//!   posted ─────────────► waiting ────────────► read ─────────────────► done ───────► (in order)
//! ```
//!
//! Each pair has a point in time for its read and one for its write, which are fixed when it is taken
//! on. In strict order they follow those of its predecessor. In weak order chance spreads them. Reads
//! keep their order, so that whoever finds a marker may give back what was read before it. Writes
//! to host memory go one way and those to HBM another: on either they keep their order, and a
//! marker in host memory overtakes data for HBM. Beyond that only barriers hold them back:
//!
//! | barrier | what it keeps |
//! | --- | --- |
//! | DMB (TX) | its pair reads after all earlier writes, unless the queue's rate-limit mask has bit 2 |
//! | write barrier (TX) | all later writes come after its own and all earlier ones |
//! | strong order (RX) | its own write comes after all earlier ones |
//!
//! One step does one thing, so that whoever looks in between sees everything that can be seen. A
//! fault of the plan is asked for once, when a pair is taken on.
//!
//! With no timing, strict order and nothing ordered this does what [`Queue::run`] does at once.
//!
//! [`Queue::run`]: super::queue

use std::collections::{BTreeMap, VecDeque};

use glia_abi::chance::Chance;
use glia_abi::event::EngineFault;
use glia_abi::fault::PairFault;
use glia_abi::handle::QueueId;
use glia_abi::sched::Tick;
use glia_abi::udma::{RxDesc, TxDesc};

use super::copy::{self, Pair};
use super::timing::{EngineOrder, EngineTiming};
use crate::bus::Bus;

/// Pairs that an engine works on at a time.
// LIMIT: (uncertain) of silicon; the more, the further chance can spread them.
const WINDOW: usize = 16;
/// In weak order a pair's write comes at most so many times its own duration late.
const SPREAD: u64 = 8;

/// What an engine has taken on of a queue.
#[derive(Default)]
pub(crate) struct Flight {
    pairs: VecDeque<InFlight>,
    /// When the next pair can be taken on.
    free_at: Tick,
    /// No later write comes before this.
    floor: Tick,
    /// The latest read.
    last_read: Tick,
    /// The latest write to HBM, and to host memory.
    last_writes: [Tick; 2],
    chance: Option<Chance>,
    /// Nothing more is taken on until a reset, by order.
    hangs: bool,
}

/// What a pair is and when things happen to it.
struct InFlight {
    pair: Pair,
    read_at: Tick,
    write_at: Tick,
    stage: Stage,
    fault: Option<PairFault>,
}

enum Stage {
    Waiting,
    Read(Vec<u8>),
    Done,
}

/// What came of doing one thing.
pub(crate) enum Did {
    /// Nothing is due.
    Nothing,
    /// Something that cannot be seen, or not yet.
    Something,
    /// The target of the pair `place` places behind the oldest was written.
    Written {
        place: usize,
        pair: Pair,
        fault: Option<PairFault>,
    },
    /// The queue stops.
    Failed(EngineFault),
}

impl Flight {
    /// How many pairs are in it.
    pub(crate) fn len(&self) -> u64 {
        self.pairs.len() as u64
    }

    /// Whether another pair can be taken on.
    pub(crate) fn has_room(&self) -> bool {
        let busy = self.pairs.iter().filter(|pair| !pair.is_done());
        !self.hangs && busy.count() < WINDOW
    }

    /// Whether everything in it has been done, and the queue is to stop without a word.
    pub(crate) fn has_hung(&self) -> bool {
        self.hangs && self.pairs.is_empty()
    }

    /// Forgets everything: the queue was reset.
    pub(crate) fn clear(&mut self) {
        let chance = self.chance.take();
        *self = Self {
            chance,
            ..Self::default()
        };
    }

    /// Takes a pair on at `now`, or hangs instead.
    pub(crate) fn take_on(
        &mut self,
        bus: &Bus,
        now: Tick,
        queue: QueueId,
        (tx, rx): (TxDesc, RxDesc),
        fault: Option<PairFault>,
    ) {
        if fault == Some(PairFault::Hang) {
            self.hangs = true;
            return;
        }
        let timing = bus.timing.unwrap_or(EngineTiming::NONE);
        let pair = Pair::of(tx, rx);
        let moving_ns = timing.moving_ns(pair.size_bytes);
        let mut begin = self.free_at.max(now);
        if let Some(PairFault::Late(delay)) = fault {
            begin = begin.after(delay);
        }
        if tx.len_ctrl.data_barrier() {
            begin = begin.max(self.last_write());
        }
        let (mut read_at, mut write_at) = (
            plus(begin, timing.latency_ns),
            plus(begin, timing.latency_ns.saturating_add(moving_ns)),
        );
        if let EngineOrder::Weak { seed } = bus.order {
            let which = [bus.device.get(), queue.engine.get(), queue.number]
                .into_iter()
                .fold(0, |which, part| which << 16 | u64::from(part));
            let chance = self.chance.get_or_insert_with(|| Chance::of(seed, which));
            // Without a timing the spread itself is in nanoseconds.
            let spread_ns = timing
                .latency_ns
                .saturating_add(moving_ns)
                .max(1)
                .saturating_mul(SPREAD);
            read_at = plus(read_at, chance.below(spread_ns));
            // Reads keep their order: a source may be given back when a later pair has written.
            read_at = read_at.max(self.last_read);
            self.last_read = read_at;
            write_at = plus(read_at, moving_ns.saturating_add(chance.below(spread_ns)));
        }
        let way = usize::from(bus.is_host(pair.target));
        write_at = write_at.max(self.floor).max(self.last_writes[way]);
        if rx.len_ctrl.strong_order() || bus.order == EngineOrder::Strict {
            write_at = write_at.max(self.last_write());
        }
        self.free_at = match bus.order {
            EngineOrder::Strict => write_at,
            // The next one may overtake it.
            EngineOrder::Weak { .. } => plus(begin, moving_ns),
        };
        self.last_writes[way] = write_at;
        if tx.meta_ctrl.write_barrier() {
            self.floor = self.last_write();
        }
        self.pairs.push_back(InFlight {
            pair,
            read_at,
            write_at,
            stage: Stage::Waiting,
            fault,
        });
    }

    fn last_write(&self) -> Tick {
        let [hbm, host] = self.last_writes;
        hbm.max(host)
    }

    /// Does the first thing that is due.
    pub(crate) fn advance(&mut self, bus: &Bus, now: Tick) -> Did {
        let due = self.pairs.iter().enumerate();
        let due = due.filter_map(|(place, pair)| Some((pair.next()?, place)));
        let Some((_, place)) = due.min().filter(|&(at, _)| at <= now) else {
            return Did::Nothing;
        };
        match self.pairs.get_mut(place) {
            Some(pair) => pair.advance(bus, place),
            None => Did::Nothing,
        }
    }

    /// Drops the oldest pairs that are done; says how many.
    pub(crate) fn retire(&mut self) -> u64 {
        let done = self.pairs.iter().take_while(|pair| pair.is_done()).count();
        self.pairs.drain(..done);
        done as u64
    }

    /// When the next thing is due; `None` if nothing is.
    pub(crate) fn due(&self) -> Option<Tick> {
        self.pairs.iter().filter_map(InFlight::next).min()
    }
}

impl InFlight {
    fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// When the next thing happens to it.
    fn next(&self) -> Option<Tick> {
        match self.stage {
            Stage::Waiting => Some(self.read_at),
            Stage::Read(_) => Some(self.write_at),
            Stage::Done => None,
        }
    }

    fn advance(&mut self, bus: &Bus, place: usize) -> Did {
        let pair = self.pair;
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Waiting => match self.fault {
                Some(PairFault::Lost) => Did::Something,
                Some(PairFault::Abort) => Did::Failed(EngineFault::Aborted { at: pair.target }),
                Some(PairFault::Uncorrectable) => {
                    Did::Failed(EngineFault::Uncorrectable { at: pair.source })
                }
                _ => match copy::read(bus, pair) {
                    Ok(bytes) => {
                        self.stage = Stage::Read(bytes);
                        Did::Something
                    }
                    Err(fault) => Did::Failed(fault),
                },
            },
            Stage::Read(mut bytes) => {
                if let Some(PairFault::Flipped {
                    offset_bytes,
                    size_bytes,
                    mask,
                }) = self.fault
                {
                    flip(&mut bytes, offset_bytes, size_bytes, mask);
                }
                match copy::write(bus, pair, &bytes) {
                    Ok(()) => Did::Written {
                        place,
                        pair,
                        fault: self.fault,
                    },
                    Err(fault) => Did::Failed(fault),
                }
            }
            Stage::Done => Did::Nothing,
        }
    }
}

fn plus(at: Tick, nanos: u64) -> Tick {
    Tick(at.0.saturating_add(nanos))
}

/// Inverts the bits of `mask` in so many bytes, as far as there are some.
fn flip(bytes: &mut [u8], offset_bytes: u64, size_bytes: u64, mask: u8) {
    let at = |offset: u64| {
        usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len())
    };
    let range = at(offset_bytes)..at(offset_bytes.saturating_add(size_bytes));
    for byte in &mut bytes[range] {
        *byte ^= mask;
    }
}

/// Late pairs of a queue that are told apart.
// LIMIT: a plan may have heads move years late, and that is not to take memory for each pair.
const LATE_MAX: usize = 256;

/// Heads that move late: pairs that are retired, and not seen to be until their time has come.
///
/// A head stands before the first of them, so one whose time comes no later than that of one before
/// it does not count: times rise with positions. Of more than [`LATE_MAX`] the last ones are seen
/// together, when the time of the last has come.
#[derive(Default)]
pub(crate) struct LateHeads(BTreeMap<u64, Tick>);

impl LateHeads {
    /// Notes a pair at this position that was done at `now`, if the plan has its head move late.
    pub(crate) fn note(&mut self, fault: Option<PairFault>, position: u64, now: Tick) {
        let Some(PairFault::RetiredLate(delay)) = fault else {
            return;
        };
        let at = now.after(delay);
        self.pass(now);
        let before = self.0.range(..position).next_back();
        if before.is_some_and(|(_, &other)| other >= at) {
            return;
        }
        while let Some((&behind, _)) = self.0.range(position..).next().filter(|it| *it.1 <= at) {
            self.0.remove(&behind);
        }
        self.0.insert(position, at);
        if self.0.len() > LATE_MAX
            && let Some((_, last)) = self.0.pop_last()
            && let Some(mut before) = self.0.last_entry()
        {
            before.insert(last);
        }
    }

    /// Where the head stands at `now`; `None` if none is late.
    pub(crate) fn first(&mut self, now: Tick) -> Option<u64> {
        self.pass(now);
        self.0.first_key_value().map(|(&position, _)| position)
    }

    /// The queue was reset.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn pass(&mut self, now: Tick) {
        while self.0.first_entry().is_some_and(|head| *head.get() <= now) {
            self.0.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::sched::Micros;

    use super::*;

    #[test]
    fn a_head_stands_before_the_first_late_pair_and_never_goes_back() {
        let late = |delay| Some(PairFault::RetiredLate(Micros(delay)));
        let at = |us: u64| Tick(us * 1000);
        let mut heads = LateHeads::default();
        // Written in an order of their own.
        heads.note(late(30), 5, at(0));
        heads.note(late(100), 3, at(10));
        heads.note(late(200), 9, at(10));
        heads.note(None, 4, at(11));
        let seen = [20, 40, 109, 110, 209, 210].map(|us| heads.first(at(us)));
        assert_eq!(seen, [Some(3), Some(3), Some(3), Some(9), Some(9), None]);
    }

    #[test]
    fn heads_whose_time_has_come_are_forgotten_though_nobody_looks() {
        let mut heads = LateHeads::default();
        for position in 0..10_000 {
            let delay = PairFault::RetiredLate(Micros(1));
            heads.note(Some(delay), position, Tick(position * 1000));
        }
        assert_eq!(heads.0.len(), 1);
    }

    #[test]
    fn heads_that_are_an_hour_late_take_a_bounded_number_of_entries_and_none_is_seen_early() {
        let hour = Micros(3_600_000_000);
        let mut heads = LateHeads::default();
        for position in 0..10_000 {
            heads.note(Some(PairFault::RetiredLate(hour)), position, Tick(position));
        }
        assert_eq!(heads.0.len(), LATE_MAX);
        let seen = |after_ns: u64| Tick(after_ns).after(hour);
        assert_eq!(heads.first(seen(9)), Some(10));
        let last = LATE_MAX as u64 - 1;
        assert_eq!(heads.first(seen(last - 1)), Some(last));
        assert_eq!(heads.first(seen(9_998)), Some(last));
        assert_eq!(heads.first(seen(9_999)), None);
    }
}
