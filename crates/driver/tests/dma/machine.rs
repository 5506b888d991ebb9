//! A machine small enough to look into: host memory, an HBM window, queues that follow a script,
//! and a clock that only waits move.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Weak};

use glia_abi::addr::{BusAddr, HostPa, RegOffset};
use glia_abi::arch::ArchProfile;
use glia_abi::handle::{DeviceId, PinId, QueueId, WorkerId};
use glia_abi::port::{
    BadBar4Range, BadHostRange, Budget, DmaMemory, HostMemory, MachineMemory, NotCompleted, Port,
    TimedOut,
};
use glia_abi::regs::{FirmwareReg, NO_REGISTER, Place, QueueReg, RESET_RUNS_BIT};
use glia_abi::sched::{Micros, Poll, Sched, Step, Tick, WaitOn, Worker};
use glia_abi::udma::{DESC_SIZE_BYTES, DESC_WORDS, Direction, RxDesc, TxDesc};

use crate::engine::{Mode, Pair, Pending, Queue};

/// First byte of host memory.
pub(crate) const HOST: u64 = 0x1000_0000;
pub(crate) const HOST_SIZE: u64 = 8 << 20;
/// First byte of the window of HBM that has bytes.
pub(crate) const HBM: u64 = 0x0100_0000;
pub(crate) const HBM_SIZE: u64 = 17 << 20;

pub(crate) struct Machine {
    profile: &'static ArchProfile,
    host: Box<[AtomicU32]>,
    state: Mutex<State>,
    workers: Mutex<Vec<Due>>,
    clock_us: AtomicU64,
    keys: AtomicU64,
    /// Callers that wait for a lock, or have waited.
    pub(crate) in_line: AtomicU64,
    /// A wait does not begin before so many callers stand in line.
    pub(crate) gate: AtomicU64,
    /// Data descriptors move nothing: for copies larger than the memory.
    pub(crate) bodiless: AtomicBool,
    /// Host allocations that are still granted; negative: all.
    pub(crate) grants: AtomicI64,
}

/// What the firmware's status says.
#[derive(Clone, Copy)]
pub(crate) enum Reset {
    /// That a reset runs, until then.
    Until(u64),
    Unreadable,
}

impl Default for Reset {
    fn default() -> Self {
        Self::Until(0)
    }
}

/// A worker, and when it is due, in microseconds.
type Due = (Weak<dyn Worker>, Option<u64>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) hbm: Vec<u8>,
    queues: BTreeMap<QueueId, Queue>,
    modes: VecDeque<Mode>,
    host_end: u64,
    pub(crate) host_taken_bytes: u64,
    /// What straggles: a host word that is to be written, and its value.
    stragglers: Vec<(HostPa, u32)>,
    /// What was written last to each register.
    registers: BTreeMap<RegOffset, u32>,
    /// All register writes, in order.
    pub(crate) writes: Vec<(RegOffset, u32)>,
    /// All doorbells, in order.
    pub(crate) doorbells: Vec<(Direction, QueueId, u32)>,
    /// All executed pairs, in order.
    pub(crate) pairs: Vec<Pair>,
    pub(crate) reset: Reset,
    /// When the firmware's status was read.
    pub(crate) looks_us: Vec<u64>,
    /// All budgets that were waited with, and how many looks it took.
    pub(crate) waits: Vec<(Budget, Option<u64>)>,
}

impl Machine {
    pub(crate) fn new(profile: &'static ArchProfile) -> Self {
        let words = HOST_SIZE / 4;
        Self {
            profile,
            host: (0..words).map(|_| AtomicU32::new(0xdead_beef)).collect(),
            state: Mutex::new(State {
                hbm: vec![0; HBM_SIZE as usize],
                modes: VecDeque::from([Mode::Normal]),
                host_end: HOST,
                ..State::default()
            }),
            workers: Mutex::default(),
            clock_us: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            in_line: AtomicU64::new(0),
            gate: AtomicU64::new(0),
            bodiless: AtomicBool::new(false),
            grants: AtomicI64::new(-1),
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.clock_us.load(Ordering::Relaxed)
    }

    /// Steps a worker until it rests.
    fn run(&self, number: usize) {
        let worker = self.workers.lock().unwrap()[number].0.upgrade();
        let due = worker.and_then(|worker| {
            loop {
                match worker.step(self.now()) {
                    Step::Again => {}
                    Step::At(tick) => return Some(tick.micros()),
                    // Nobody else runs: it is free by the next look.
                    Step::On(_) => return Some(self.now_us()),
                    Step::Idle => return None,
                }
            }
        });
        self.workers.lock().unwrap()[number].1 = due;
    }

    /// Moves the clock to what is due next and does it; false if nothing is.
    fn run_next(&self) -> bool {
        let next = {
            let workers = self.workers.lock().unwrap();
            let due = workers.iter().enumerate();
            due.filter_map(|(number, (_, due))| Some(((*due)?, number)))
                .min()
        };
        let Some((due_us, number)) = next else {
            return false;
        };
        self.clock_us.fetch_max(due_us, Ordering::Relaxed);
        self.run(number);
        true
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// One mode for each TX doorbell from here on; the last one stays.
    pub(crate) fn script(&self, modes: &[Mode]) {
        self.state().modes = modes.iter().copied().collect();
    }

    /// What straggles is executed now.
    pub(crate) fn let_stragglers_finish(&self) {
        let stragglers = std::mem::take(&mut self.state().stragglers);
        assert!(!stragglers.is_empty());
        for (at, word) in stragglers {
            self.words(at, 4).unwrap()[0].store(word, Ordering::Release);
        }
    }

    pub(crate) fn load(&self, at: BusAddr, size_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; size_bytes];
        self.load_into(&self.state(), at, &mut bytes);
        bytes
    }

    pub(crate) fn store(&self, at: BusAddr, bytes: &[u8]) {
        self.store_into(&mut self.state(), at, bytes);
    }

    fn load_into(&self, state: &State, at: BusAddr, bytes: &mut [u8]) {
        match self.profile.bus_to_host(at) {
            Some(host) => self.read(host, bytes).unwrap(),
            None => {
                let start = (at.get() - HBM) as usize;
                bytes.copy_from_slice(&state.hbm[start..start + bytes.len()]);
            }
        }
    }

    fn store_into(&self, state: &mut State, at: BusAddr, bytes: &[u8]) {
        match self.profile.bus_to_host(at) {
            Some(host) => self.write(host, bytes).unwrap(),
            None => {
                let start = (at.get() - HBM) as usize;
                state.hbm[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    fn desc(&self, ring: BusAddr, slot: u32) -> [u32; DESC_WORDS] {
        let at = ring.get() + u64::from(slot) * DESC_SIZE_BYTES;
        let host = self.profile.bus_to_host(BusAddr::new(at)).unwrap();
        let words = self.words(host, DESC_SIZE_BYTES).unwrap();
        std::array::from_fn(|word| words[word].load(Ordering::Relaxed))
    }

    fn doorbell(&self, state: &mut State, queue: QueueId, pairs: u32) {
        let mode = state.modes[0];
        if state.modes.len() > 1 {
            state.modes.pop_front();
        }
        let now = self.clock_us.load(Ordering::Relaxed);
        let due_us = match mode {
            Mode::Normal => Some(now),
            Mode::Late(us) => Some(now + us),
            Mode::Hang | Mode::Straggle => None,
        };
        if mode == Mode::Straggle {
            let (target, marker) = self.marker_ahead(state, queue, pairs);
            state.stragglers.push((target, marker));
        }
        let pending = &mut state.queues.get_mut(&queue).unwrap().pending;
        pending.push_back(Pending { pairs, due_us });
        self.run_due(state, queue);
    }

    /// Where the marker of a batch that is all that was announced goes, and what it is.
    fn marker_ahead(&self, state: &State, queue: QueueId, pairs: u32) -> (HostPa, u32) {
        let mut ahead = state.queues[&queue].sides_only();
        let (slot, _, tx, rx) = (1..pairs).fold(ahead.advance(), |_, _| ahead.advance());
        let tx = TxDesc::from_words(self.desc(tx, slot));
        let rx = RxDesc::from_words(self.desc(rx, slot));
        let host = |at| self.profile.bus_to_host(at).unwrap();
        let marker = self.words(host(tx.source), 4).unwrap()[0].load(Ordering::Relaxed);
        (host(rx.target), marker)
    }

    /// Executes the batches of a queue that are due, in order.
    fn run_due(&self, state: &mut State, queue: QueueId) {
        let now = self.clock_us.load(Ordering::Relaxed);
        loop {
            let pending = &mut state.queues.get_mut(&queue).unwrap().pending;
            match pending.front() {
                Some(batch) if batch.due_us.is_some_and(|due| due <= now) => {
                    let pairs = batch.pairs;
                    pending.pop_front();
                    (0..pairs).for_each(|_| self.execute(state, queue));
                }
                _ => return,
            }
        }
    }

    fn execute(&self, state: &mut State, queue: QueueId) {
        let (slot, lap, tx, rx) = state.queues.get_mut(&queue).unwrap().advance();
        let tx = TxDesc::from_words(self.desc(tx, slot));
        let rx = RxDesc::from_words(self.desc(rx, slot));
        assert_eq!((tx.len_ctrl.ring_id(), rx.len_ctrl.ring_id()), (lap, lap));
        assert!(tx.len_ctrl.first() && tx.len_ctrl.last());
        assert_eq!(tx.len_ctrl.size_bytes(), rx.len_ctrl.size_bytes());
        let size = tx.len_ctrl.size_bytes() as usize;
        if size == 4 || !self.bodiless.load(Ordering::Relaxed) {
            let mut bytes = vec![0; size];
            self.load_into(state, tx.source, &mut bytes);
            self.store_into(state, rx.target, &bytes);
        }
        state.pairs.push((slot, tx, rx));
    }
}

impl Port for Machine {
    fn reg_read(&self, at: RegOffset) -> u32 {
        if FirmwareReg::of(self.profile, at) == Some(FirmwareReg::Status) {
            let now = self.clock_us.load(Ordering::Relaxed);
            let mut state = self.state();
            state.looks_us.push(now);
            return match state.reset {
                Reset::Until(us) if us <= now => 0,
                Reset::Until(_) => RESET_RUNS_BIT,
                Reset::Unreadable => NO_REGISTER,
            };
        }
        self.state().registers.get(&at).copied().unwrap_or(0)
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        let mut state = self.state();
        state.writes.push((at, value));
        state.registers.insert(at, value);
        let (queue, direction, offset) = match Place::of(self.profile, at) {
            Place::Queue {
                queue,
                direction,
                offset,
            } => (queue, direction, offset),
            Place::Engine { .. } => return,
            Place::Elsewhere => {
                assert!(
                    FirmwareReg::of(self.profile, at).is_some(),
                    "{at} is no register"
                );
                return;
            }
        };
        let register = QueueReg::of_offset(direction, offset).unwrap();
        if register == QueueReg::DrtpInc {
            state.doorbells.push((direction, queue, value));
        }
        let announced = state
            .queues
            .entry(queue)
            .or_default()
            .write(direction, register, value);
        if let Some(pairs) = announced {
            self.doorbell(&mut state, queue, pairs);
        }
    }

    fn bar4_write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), BadBar4Range> {
        panic!("a copy does not go through BAR4")
    }

    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut> {
        while self.in_line.load(Ordering::SeqCst) < self.gate.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let mut state = self.state();
        let first_look = self.clock_us.load(Ordering::Relaxed) + budget.first.0;
        let last_look = first_look + budget.following.0 + 1;
        self.clock_us.store(first_look, Ordering::Relaxed);
        loop {
            self.run_due(&mut state, queue);
            let now = self.clock_us.load(Ordering::Relaxed);
            if word.load(Ordering::Acquire) == want {
                let looks = now - first_look + 1;
                state.waits.push((budget, Some(looks)));
                return Ok(looks);
            }
            let due = state.queues[&queue]
                .pending
                .front()
                .and_then(|batch| batch.due_us);
            match due.filter(|&due| due <= last_look) {
                Some(due) => self.clock_us.store(due, Ordering::Relaxed),
                None => {
                    self.clock_us.store(last_look, Ordering::Relaxed);
                    state.waits.push((budget, None));
                    let reason = NotCompleted::TimeOver;
                    return Err(TimedOut { queue, reason });
                }
            }
        }
    }
}

impl HostMemory for Machine {
    fn alloc(&self, _device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        if self.grants.fetch_sub(1, Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.state();
        let at = state.host_end;
        if at + size_bytes > HOST + HOST_SIZE {
            return None;
        }
        state.host_end += size_bytes;
        state.host_taken_bytes += size_bytes;
        Some(HostPa::new(at))
    }

    fn free(&self, _device: DeviceId, _at: HostPa, size_bytes: u64) {
        self.state().host_taken_bytes -= size_bytes;
    }
}

impl DmaMemory for Machine {
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange> {
        let bad = BadHostRange { at, size_bytes };
        let offset = at.get().checked_sub(HOST).ok_or(bad)?;
        if !offset.is_multiple_of(4) || !size_bytes.is_multiple_of(4) {
            return Err(bad);
        }
        let first = (offset / 4) as usize;
        self.host
            .get(first..first + (size_bytes / 4) as usize)
            .ok_or(bad)
    }

    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange> {
        for (address, byte) in (at.get()..).zip(into) {
            let word = &self.words(HostPa::new(address & !3), 4)?[0];
            *byte = word.load(Ordering::Relaxed).to_le_bytes()[(address & 3) as usize];
        }
        Ok(())
    }

    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange> {
        for (address, &byte) in (at.get()..).zip(bytes) {
            let word = &self.words(HostPa::new(address & !3), 4)?[0];
            let mut whole = word.load(Ordering::Relaxed).to_le_bytes();
            whole[(address & 3) as usize] = byte;
            word.store(u32::from_le_bytes(whole), Ordering::Release);
        }
        Ok(())
    }

    fn fill(&self, at: HostPa, size_bytes: u64, value: u8) -> Result<(), BadHostRange> {
        self.write(at, &vec![value; size_bytes as usize])
    }
}

impl MachineMemory for Machine {
    fn unpin(&self, _pin: PinId) {
        panic!("the op layer pins nothing")
    }
}

impl Sched for Machine {
    fn now(&self) -> Tick {
        Tick(self.clock_us.load(Ordering::Relaxed) * 1000)
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(self.keys.fetch_add(1, Ordering::Relaxed))
    }

    fn wake(&self, _on: WaitOn) {}

    fn pause(&self) {}

    fn spawn(&self, worker: Weak<dyn Worker>) -> WorkerId {
        let mut workers = self.workers.lock().unwrap();
        workers.push((worker, None));
        WorkerId::new(workers.len() as u32 - 1)
    }

    fn kick(&self, worker: WorkerId) {
        if self.workers.lock().unwrap()[worker.index()].1.is_none() {
            self.run(worker.index());
        }
    }

    fn block(&self, _on: WaitOn, poll: &mut dyn FnMut() -> Poll, _: Option<Micros>) -> bool {
        self.in_line.fetch_add(1, Ordering::SeqCst);
        loop {
            match poll() {
                Poll::Done => return true,
                Poll::Never => return false,
                Poll::Pending if self.run_next() => {}
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }
}
