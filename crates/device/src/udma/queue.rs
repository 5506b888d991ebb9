//! A queue pair of an engine: two rings of descriptors, of which the k-th of one goes with the k-th
//! of the other.
//!
//! ```text
//!             retired        posted                       positions, counted from the start
//!                │             │                          and never back to 0
//!   TX  ─────────┼─────────────┼────────────►  ring slot = (position - origin) mod length
//!   RX  ─────────┼─────────────┼────────────►  ring id   = 1 + (position - origin) / length, mod 4
//!                └─ ready ─────┘
//! ```
//!
//! A doorbell moves `posted` and kicks the worker as soon as both sides have something; the
//! worker's step executes up to [`STEP_PAIRS`] pairs, one at a time and in order, and moves
//! `retired` after each. RX alone is credit and waits. A reset of a side drops what it has posted,
//! and puts the `origin` there: slot 0, ring id 1.
//!
//! That is so while nothing takes time, and nothing goes wrong on order. Otherwise pairs are taken
//! on one by one, and what happens to them is the affair of a [`Flight`].
//!
//! **Faults are sticky.** Whatever is wrong with a doorbell or a descriptor stops the queue: the
//! pair is not retired, doorbells are ignored. It goes on when both sides have been reset.
//!
//! **Who owns what.** Only doorbells move `posted`, only the step moves `retired`; a reset moves
//! both of its side. Descriptors between them belong to the queue.
//!
//! **Locks.** `running` is held by a step, and by whoever changes a register: after a reset or a
//! pause has returned, no descriptor is being executed. A doorbell takes no lock, nor does the
//! question whether anything can still come.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use glia_abi::event::{EngineFault, Event, Ids};
use glia_abi::fault::{PairAt, PairFault};
use glia_abi::handle::{QueueId, WorkerId};
use glia_abi::port::{Budget, Look, NotCompleted, TimedOut};
use glia_abi::regs::{COUNT_MASK, QUEUE_RESET_BIT, QueueReg, RING_BASE_LOW_MASK};
use glia_abi::sched::{Micros, Poll, Step, Tick, WaitOn, Worker};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::{DESC_SIZE_BYTES, DESC_WORDS, Direction, RxDesc, TxDesc};

use super::check::check;
use super::copy::{self, Held, HeldPins, Pair, Stretch};
use super::flight::{Did, Flight, LateHeads};
use super::side::{RLIMIT_MASK_DMB, Side, Slot};
use crate::bus::Bus;

/// Pairs that one step executes at most: whoever else has work gets a turn.
const STEP_PAIRS: u64 = 64;

/// No worker has this number.
const NOBODY: u32 = u32::MAX;

/// A queue pair, see the module.
pub(crate) struct Queue {
    id: QueueId,
    bus: Arc<Bus>,
    sides: [Side; 2],
    /// A bit per side that has to be reset before the queue goes on.
    stopped: AtomicU32,
    /// Who waits for a word.
    waiters: AtomicU32,
    /// The worker that attends to the queue, or [`NOBODY`].
    attendant: AtomicU32,
    on: WaitOn,
    worker: OnceLock<WorkerId>,
    /// With what only a step needs.
    running: Mutex<Running>,
    /// While the fault plan has rules: what each doorbell of TX announced.
    batches: Mutex<VecDeque<Announced>>,
    late_heads: Mutex<LateHeads>,
}

/// What a doorbell of TX announced.
#[derive(Clone)]
struct Announced {
    /// By position.
    pairs: Range<u64>,
    /// Whether the firmware was resetting something meanwhile.
    in_reset: bool,
}

/// What a step works with.
#[derive(Default)]
struct Running {
    stretch: Stretch,
    flight: Flight,
}

impl Queue {
    /// A queue after power-on: not enabled, no rings.
    pub(crate) fn new(id: QueueId, bus: &Arc<Bus>) -> Self {
        Self {
            id,
            bus: Arc::clone(bus),
            sides: [Side::new(), Side::new()],
            stopped: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            attendant: AtomicU32::new(NOBODY),
            on: bus.sched.wait_on(),
            worker: OnceLock::new(),
            running: Mutex::default(),
            batches: Mutex::default(),
            late_heads: Mutex::default(),
        }
    }

    /// The value of a register.
    pub(crate) fn read(&self, direction: Direction, register: QueueReg) -> u32 {
        let side = self.side(direction);
        match register {
            QueueReg::DescPrefCfg => side.desc_pref_cfg.load(Ordering::Relaxed),
            QueueReg::Cfg => side.cfg.load(Ordering::Relaxed),
            QueueReg::DrbpLow => side.drbp_low.load(Ordering::Relaxed),
            QueueReg::DrbpHigh => side.drbp_high.load(Ordering::Relaxed),
            QueueReg::Drl => side.drl.load(Ordering::Relaxed),
            QueueReg::CrbpLow => side.crbp_low.load(Ordering::Relaxed),
            QueueReg::CrbpHigh => side.crbp_high.load(Ordering::Relaxed),
            QueueReg::CompCfg => side.comp_cfg.load(Ordering::Relaxed),
            QueueReg::RlimitMask => side.rlimit_mask.load(Ordering::Relaxed),
            QueueReg::SwCtrl => side.sw_ctrl.load(Ordering::Relaxed),
            // What is retired at once has one head.
            QueueReg::Drhp | QueueReg::Dcp => side.pointer(self.head(side)),
            QueueReg::Drtp => side.pointer(side.posted.load(Ordering::Acquire)),
            // Status (uncertain: its bits), write-only, and the head of a ring that is never there.
            QueueReg::Status | QueueReg::DrtpInc | QueueReg::Crhp => 0,
        }
    }

    /// Sets a register; false if it is read-only.
    pub(crate) fn write(
        self: &Arc<Self>,
        direction: Direction,
        register: QueueReg,
        value: u32,
    ) -> bool {
        let side = self.side(direction);
        let (stored, value) = match register {
            QueueReg::DrtpInc => {
                self.doorbell(direction, value & COUNT_MASK);
                return true;
            }
            QueueReg::Status | QueueReg::Drhp | QueueReg::Drtp | QueueReg::Dcp | QueueReg::Crhp => {
                return false;
            }
            QueueReg::DescPrefCfg => (&side.desc_pref_cfg, value),
            QueueReg::Cfg => (&side.cfg, value),
            QueueReg::DrbpLow => (&side.drbp_low, value & RING_BASE_LOW_MASK),
            QueueReg::DrbpHigh => (&side.drbp_high, value),
            QueueReg::Drl => (&side.drl, value & COUNT_MASK),
            QueueReg::CrbpLow => (&side.crbp_low, value),
            QueueReg::CrbpHigh => (&side.crbp_high, value),
            QueueReg::CompCfg => (&side.comp_cfg, value),
            QueueReg::RlimitMask => (&side.rlimit_mask, value),
            QueueReg::SwCtrl => (&side.sw_ctrl, value),
        };
        {
            let mut running = lock(&self.running);
            stored.store(value, Ordering::Relaxed);
            if register == QueueReg::SwCtrl && value & QUEUE_RESET_BIT != 0 {
                self.reset_side(direction, &mut running);
            }
        }
        match register {
            // A pause may have ended.
            QueueReg::Cfg if self.ready() > 0 => self.kick(),
            // Whoever waits for what was dropped should know.
            QueueReg::Cfg | QueueReg::SwCtrl => self.rouse(),
            _ => {}
        }
        true
    }

    /// Puts the queue into its state after power-on: what it had to do is dropped. It counts on.
    pub(crate) fn power_on(&self) {
        let mut running = lock(&self.running);
        for direction in Direction::BOTH {
            self.side(direction).power_on();
            self.reset_side(direction, &mut running);
        }
        drop(running);
        self.rouse();
    }

    fn reset_side(&self, direction: Direction, running: &mut Running) {
        self.side(direction).reset();
        running.flight.clear();
        lock(&self.batches).clear();
        lock(&self.late_heads).clear();
        self.stopped
            .fetch_and(!side_bit(direction), Ordering::Release);
        self.tell(&Event::QueueReset { direction });
    }

    /// Waits for a word that this queue is to write, see [`Port::await_word`].
    ///
    /// [`Port::await_word`]: glia_abi::port::Port::await_word
    pub(crate) fn await_word(
        &self,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut> {
        let sched = &self.bus.sched;
        let began = sched.now();
        let mut reason = NotCompleted::TimeOver;
        let mut look = || match self.look(word, want) {
            Ok(()) => Poll::Done,
            Err(why) => {
                reason = why;
                match why {
                    NotCompleted::TimeOver => Poll::Pending,
                    NotCompleted::Idle | NotCompleted::Stopped => Poll::Never,
                }
            }
        };
        let within = self.within(budget);
        let counted = Waits::on(self);
        let came = sched.block(self.on, &mut look, Some(within));
        drop(counted);
        if !came {
            let queue = self.id;
            return Err(TimedOut { queue, reason });
        }
        // The first look comes after `first`, then one every microsecond.
        let waited_us = (sched.now().0 - began.0).div_ceil(1000);
        Ok(1 + waited_us.saturating_sub(budget.first.0))
    }

    /// Looks for a word once, see [`Port::look_for_word`].
    ///
    /// [`Port::look_for_word`]: glia_abi::port::Port::look_for_word
    pub(crate) fn look_for_word(
        &self,
        word: &AtomicU32,
        want: u32,
        began: Tick,
        budget: Budget,
    ) -> Look {
        let Err(reason) = self.look(word, want) else {
            return Look::There;
        };
        let sched = &self.bus.sched;
        let until = began.after(self.within(budget));
        let is_hopeless = reason != NotCompleted::TimeOver && sched.gives_up_at_once();
        if is_hopeless || sched.now() >= until {
            let queue = self.id;
            return Look::TimedOut(TimedOut { queue, reason });
        }
        Look::NotYet { until }
    }

    /// Who is kicked after each step, and when the queue stops or is roused.
    pub(crate) fn attend(&self, worker: Option<WorkerId>) {
        let raw = worker.map_or(NOBODY, WorkerId::get);
        self.attendant.store(raw, Ordering::Relaxed);
        // ORDER: the attendant is entered before it looks; pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
    }

    /// Whether the word is there; if not, whether it can still come.
    fn look(&self, word: &AtomicU32, want: u32) -> Result<(), NotCompleted> {
        // ORDER: pairs with the Release store of the word; what was written before it is seen.
        let is_there = || word.load(Ordering::Acquire) == want;
        if is_there() {
            return Ok(());
        }
        // Before it is asked whether it has stopped: a queue that stops has nothing to do.
        let is_idle = self.ready() == 0;
        let reason = if self.stopped.load(Ordering::Acquire) != 0 {
            NotCompleted::Stopped
        } else if is_idle {
            NotCompleted::Idle
        } else {
            return Err(NotCompleted::TimeOver);
        };
        // It may have come between the two looks.
        if is_there() { Ok(()) } else { Err(reason) }
    }

    /// How long a word is waited for: the last look comes one microsecond after the following
    /// budget.
    fn within(&self, budget: Budget) -> Micros {
        let following_us = budget.following.0.saturating_mul(self.bus.patience);
        let within_us = budget.first.0.saturating_add(following_us);
        Micros(within_us.saturating_add(1))
    }

    fn side(&self, direction: Direction) -> &Side {
        &self.sides[direction.index()]
    }

    /// Pairs that can be executed now.
    fn ready(&self) -> u64 {
        let [tx, rx] = &self.sides;
        if self.stopped.load(Ordering::Acquire) != 0 || !tx.is_enabled() || !rx.is_enabled() {
            return 0;
        }
        tx.pending().min(rx.pending())
    }

    fn doorbell(self: &Arc<Self>, direction: Direction, count: u32) {
        let side = self.side(direction);
        if self.stopped.load(Ordering::Acquire) != 0 {
            side.ignored.fetch_add(u64::from(count), Ordering::Relaxed);
            return;
        }
        let ring_len = side.ring_len();
        if !side.is_enabled() || ring_len == 0 {
            return self.stop(EngineFault::NotReady { direction });
        }
        let retired = side.retired.load(Ordering::Acquire);
        let posted = side.posted.load(Ordering::Relaxed);
        let room = ring_len.saturating_sub(posted.saturating_sub(retired));
        if count == 0 || u64::from(count) > room {
            // CAST: at most the ring's length, 24 bits.
            #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
            let room = room as u32;
            return self.stop(EngineFault::Doorbell {
                direction,
                count,
                room,
            });
        }
        let total = posted + u64::from(count);
        if direction == Direction::Tx && self.bus.faults.is_armed() {
            lock(&self.batches).push_back(Announced {
                pairs: posted..total,
                in_reset: self.bus.in_reset.load(Ordering::Acquire),
            });
        }
        // ORDER: the descriptors were stored before; pairs with the Acquire in `pending`. No other
        // thread rings this doorbell meanwhile (`Port`).
        side.posted.store(total, Ordering::Release);
        self.tell(&Event::Doorbell {
            direction,
            descs: count,
            total,
        });
        if self.ready() > 0 {
            self.kick();
        }
    }

    /// Executes one pair, at this slot of either ring; `ahead` are the descriptors behind `rx`.
    fn execute<'a>(
        &'a self,
        index: u64,
        (tx, tx_slot): (TxDesc, Slot),
        (rx, rx_slot): (RxDesc, Slot),
        held: &mut Held<'a, '_>,
        ahead: impl Iterator<Item = RxDesc>,
    ) -> Result<u64, EngineFault> {
        check((tx, tx_slot), (rx, rx_slot))?;
        let pair = Pair::of(tx, rx);
        copy::execute(&self.bus, pair, held, ahead)?;
        if self.tells_moved() {
            // Whoever hears it may do what it likes with pins.
            held.pins.let_go();
            self.tell_moved(index, pair);
        }
        Ok(pair.size_bytes)
    }

    /// Whether somebody wants to hear of each pair.
    fn tells_moved(&self) -> bool {
        self.bus.detail >= glia_abi::event::Detail::Descriptors
    }

    fn tell_moved(&self, index: u64, pair: Pair) {
        self.tell(&Event::Moved {
            index,
            source: pair.source,
            target: pair.target,
            size_bytes: pair.size_bytes,
        });
    }

    /// Executes what is ready, up to [`STEP_PAIRS`] pairs, and tells so.
    fn run_straight(&self, stretch: &mut Stretch) -> Step {
        let first = self.side(Direction::Tx).retired.load(Ordering::Relaxed);
        let (done, size_bytes, fault) = self.run(self.ready().min(STEP_PAIRS), stretch);
        if done > 0 {
            // CAST: at most STEP_PAIRS.
            #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
            let descs = done as u32;
            self.tell(&Event::Executed {
                first,
                descs,
                size_bytes,
            });
        }
        if let Some(fault) = fault {
            self.stop(fault);
        }
        if self.ready() > 0 {
            Step::Again
        } else {
            Step::Idle
        }
    }

    /// Executes up to so many pairs; says how many bytes they moved, and how many they were, and
    /// the fault that ended them.
    fn run(&self, pairs: u64, stretch: &mut Stretch) -> (u64, u64, Option<EngineFault>) {
        let [tx, rx] = &self.sides;
        let (mut done, mut moved_bytes) = (0, 0);
        let mut held = Held {
            pins: HeldPins::default(),
            stretch,
        };
        while done < pairs {
            let tx_position = tx.retired.load(Ordering::Relaxed);
            let rx_position = rx.retired.load(Ordering::Relaxed);
            let (tx_slot, rx_slot) = (tx.slot(tx_position), rx.slot(rx_position));
            // As far as neither ring ends.
            let tx_left = tx.ring_len().saturating_sub(tx_slot.index);
            let rx_left = rx.ring_len().saturating_sub(rx_slot.index);
            let straight = (pairs - done).min(tx_left).min(rx_left);
            if straight == 0 {
                // A length of 0 was written while descriptors were posted.
                let direction = if tx_left == 0 {
                    Direction::Tx
                } else {
                    Direction::Rx
                };
                return (done, moved_bytes, Some(EngineFault::NotReady { direction }));
            }
            let tx_descs = self.descriptors(Direction::Tx, tx_slot, straight);
            let rx_descs = self.descriptors(Direction::Rx, rx_slot, straight);
            let (tx_descs, rx_descs) = match (tx_descs, rx_descs) {
                (Ok(tx_descs), Ok(rx_descs)) => (tx_descs, rx_descs),
                (Err(fault), _) | (_, Err(fault)) => return (done, moved_bytes, Some(fault)),
            };
            for (step, (tx_desc, rx_desc)) in tx_descs.iter().zip(rx_descs).enumerate() {
                // A doorbell may have stopped the queue meanwhile.
                if self.stopped.load(Ordering::Relaxed) != 0 {
                    return (done, moved_bytes, None);
                }
                let tx_desc = TxDesc::from_words(load(tx_desc));
                let rx_desc = RxDesc::from_words(load(rx_desc));
                let behind = rx_descs.iter().skip(step + 1);
                let ahead = behind.map(|desc| RxDesc::from_words(load(desc)));
                let step = step as u64;
                let index = tx_position + step;
                let (sent, received) = ((tx_desc, tx_slot), (rx_desc, rx_slot));
                match self.execute(index, sent, received, &mut held, ahead) {
                    Ok(size_bytes) => moved_bytes += size_bytes,
                    Err(fault) => return (done, moved_bytes, Some(fault)),
                }
                done += 1;
                // ORDER: whoever sees the pair retired sees its bytes.
                tx.retired.store(index + 1, Ordering::Release);
                rx.retired.store(rx_position + step + 1, Ordering::Release);
            }
        }
        (done, moved_bytes, None)
    }

    /// Lets time go on for the pairs that take some, by one thing; says when the next is due.
    fn fly(&self, flight: &mut Flight, now: Tick) -> Option<Tick> {
        let goes_on = match self.take_on(flight, now) {
            Ok(goes_on) => goes_on,
            Err(fault) => {
                self.stop(fault);
                return None;
            }
        };
        let [tx, rx] = &self.sides;
        let oldest = tx.retired.load(Ordering::Relaxed);
        match flight.advance(&self.bus, now) {
            Did::Nothing | Did::Something => {}
            Did::Written { place, pair, fault } => {
                let index = oldest + place as u64;
                if self.tells_moved() {
                    self.tell_moved(index, pair);
                }
                lock(&self.late_heads).note(fault, index, now);
                // Each is told by itself: others may come between them.
                self.tell(&Event::Executed {
                    first: index,
                    descs: 1,
                    size_bytes: pair.size_bytes,
                });
            }
            Did::Failed(fault) => {
                flight.clear();
                self.stop(fault);
                return None;
            }
        }
        let done = flight.retire();
        for side in [tx, rx] {
            let retired = side.retired.load(Ordering::Relaxed);
            // ORDER: whoever sees the pair retired sees its bytes.
            side.retired.store(retired + done, Ordering::Release);
        }
        if flight.has_hung() {
            self.stop_silently();
            return None;
        }
        // What is wrong is told when everything before it is done.
        let is_wrong = !goes_on && flight.len() == 0;
        let more = is_wrong || goes_on && flight.has_room() && self.ready() > flight.len();
        if more { Some(now) } else { flight.due() }
    }

    /// Takes on what there is room for. A descriptor that is wrong stops the queue when everything
    /// before it is done; until then the answer is false.
    fn take_on(&self, flight: &mut Flight, now: Tick) -> Result<bool, EngineFault> {
        let [tx, rx] = &self.sides;
        let has_no_dmb = tx.rlimit_mask.load(Ordering::Relaxed) & RLIMIT_MASK_DMB != 0;
        while flight.has_room() && self.ready() > flight.len() {
            let tx_position = tx.retired.load(Ordering::Relaxed) + flight.len();
            let rx_position = rx.retired.load(Ordering::Relaxed) + flight.len();
            let (tx_slot, rx_slot) = (tx.slot(tx_position), rx.slot(rx_position));
            let first = |direction, slot| {
                let descs = self.descriptors(direction, slot, 1)?;
                let missing = EngineFault::NotReady { direction };
                descs.first().map(load).ok_or(missing)
            };
            let checked = first(Direction::Tx, tx_slot).and_then(|tx_words| {
                let mut tx = TxDesc::from_words(tx_words);
                let rx = RxDesc::from_words(first(Direction::Rx, rx_slot)?);
                check((tx, tx_slot), (rx, rx_slot))?;
                if has_no_dmb {
                    tx.len_ctrl.set_data_barrier(false);
                }
                Ok((tx, rx))
            });
            let pair = match checked {
                Ok(pair) => pair,
                Err(_) if flight.len() > 0 => return Ok(false),
                Err(fault) => return Err(fault),
            };
            let fault = self.ordered(tx_position, pair);
            if let Some(fault) = fault {
                let index = tx_position;
                self.tell(&Event::Ordered { index, fault });
            }
            flight.take_on(&self.bus, now, self.id, pair, fault);
        }
        Ok(true)
    }

    /// What the fault plan has for a pair.
    fn ordered(&self, index: u64, (tx, _): (TxDesc, RxDesc)) -> Option<PairFault> {
        let faults = &self.bus.faults;
        if !faults.is_armed() {
            return None;
        }
        let batch = {
            let mut batches = lock(&self.batches);
            while batches.front().is_some_and(|it| it.pairs.end <= index) {
                batches.pop_front();
            }
            // One that was announced before there was a plan is passed over.
            let batch = batches.front().filter(|it| it.pairs.contains(&index));
            batch.cloned()?
        };
        faults.pair(&PairAt {
            device: self.bus.device,
            queue: self.id,
            index,
            in_batch: index - batch.pairs.start,
            is_last: index + 1 == batch.pairs.end,
            size_bytes: tx.len_ctrl.size_bytes(),
            reads_hbm: !self.bus.is_host(tx.source),
            in_reset: batch.in_reset,
        })
    }

    /// Where a side's head is seen to be.
    fn head(&self, side: &Side) -> u64 {
        let retired = side.retired.load(Ordering::Acquire);
        let Some(late) = lock(&self.late_heads).first(self.bus.sched.now()) else {
            return retired;
        };
        // Positions are those of TX; either side is as far behind.
        let position = self.side(Direction::Tx).retired.load(Ordering::Acquire);
        retired.saturating_sub(position.saturating_sub(late))
    }

    /// The descriptors of a side from a slot on: `count` of them, or the first if the ring leaves
    /// memory behind it.
    fn descriptors(
        &self,
        direction: Direction,
        slot: Slot,
        count: u64,
    ) -> Result<&[[AtomicU32; DESC_WORDS]], EngineFault> {
        let base = self.side(direction).ring_base();
        let at = base.checked_add(slot.index * DESC_SIZE_BYTES);
        let found = at.and_then(|at| {
            let all = self.bus.descriptors(at, count);
            all.or_else(|| self.bus.descriptors(at, 1))
        });
        found.ok_or(EngineFault::RingAddress {
            direction,
            at: at.unwrap_or(base),
        })
    }

    fn stop(&self, fault: EngineFault) {
        if self.stopped.swap(BOTH_SIDES, Ordering::AcqRel) == 0 {
            self.tell(&Event::Stopped { fault });
        }
        self.wake();
    }

    /// Stops as an engine does that hangs: nobody is told.
    fn stop_silently(&self) {
        self.stopped.store(BOTH_SIDES, Ordering::Release);
        self.wake();
    }

    fn kick(self: &Arc<Self>) {
        let sched = &self.bus.sched;
        let worker = self.worker.get_or_init(|| {
            let queue: Arc<dyn Worker> = Arc::<Self>::clone(self);
            sched.spawn(Arc::downgrade(&queue))
        });
        sched.kick(*worker);
    }

    /// What the queue was busy with may have been dropped: nobody waits for it any more.
    fn rouse(&self) {
        self.wake();
        if let Some(&worker) = self.worker.get() {
            self.bus.sched.kick(worker);
        }
    }

    /// Lets whoever waits for a word, or attends to the queue, look again.
    fn wake(&self) {
        // ORDER: what was done is done before the waiters are counted; pairs with the fences in
        // `await_word` and `attend`, so that either we see the waiter or it sees what was done.
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.bus.sched.wake(self.on);
        }
        let attendant = self.attendant.load(Ordering::Relaxed);
        if attendant != NOBODY {
            self.bus.sched.kick(WorkerId::new(attendant));
        }
    }

    fn tell(&self, event: &Event) {
        self.bus.tell(&Ids::queue(self.bus.device, self.id), event);
    }
}

/// Somebody who waits for a word of a queue, until this is dropped: a wait may be unwound.
struct Waits<'a>(&'a Queue);

impl<'a> Waits<'a> {
    fn on(queue: &'a Queue) -> Self {
        queue.waiters.fetch_add(1, Ordering::Relaxed);
        // ORDER: the waiter is counted before it looks; pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        Self(queue)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker for Queue {
    fn step(&self, now: Tick) -> Step {
        let next = {
            let mut running = lock(&self.running);
            let running = &mut *running;
            if self.bus.is_plain() && running.flight.len() == 0 {
                self.run_straight(&mut running.stretch)
            } else {
                match self.fly(&mut running.flight, now) {
                    Some(due) if due <= now => Step::Again,
                    Some(due) => Step::At(due),
                    None => Step::Idle,
                }
            }
        };
        self.wake();
        next
    }
}

/// Both sides in `stopped`.
const BOTH_SIDES: u32 = side_bit(Direction::Tx) | side_bit(Direction::Rx);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bit of a side in `stopped`.
const fn side_bit(direction: Direction) -> u32 {
    1 << direction.index()
}

/// The words of a descriptor. They belong to the queue, so they do not change meanwhile; if
/// somebody changes them all the same, some mix is executed, as on hardware.
fn load(words: &[AtomicU32; DESC_WORDS]) -> [u32; DESC_WORDS] {
    words.each_ref().map(|word| word.load(Ordering::Relaxed))
}
