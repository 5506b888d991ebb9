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
//! worker's step executes up to 64 pairs, one at a time and in order, and moves
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

mod fly;
mod run;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use glia_abi::event::{EngineFault, Event, Ids};
use glia_abi::handle::{QueueId, WorkerId};
use glia_abi::port::{Budget, Look, NotCompleted, TimedOut};
use glia_abi::regs::{COUNT_MASK, QUEUE_RESET_BIT, QueueReg, RING_BASE_LOW_MASK};
use glia_abi::sched::{Micros, Poll, Step, Tick, WaitOn, Worker};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::Direction;

use super::copy::Stretch;
use super::flight::{Flight, LateHeads};
use super::side::Side;
use crate::bus::Bus;

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
