//! The world around the driver: the machine's host memory, the device's registers, time, and
//! whoever listens to events, all in one, so that everything happens in one order.
//!
//! Time is the traces' clock: microseconds since the scenario began, moved by the driver's delays
//! and by the trace's `advance` alone. A wait does not look microsecond by microsecond. It goes
//! from one moment at which the engine has something to do to the next, and counts the looks
//! between.
//!
//! Host memory is handed out where the trace has it ([`Rig::place`]): the recorded addresses in
//! descriptors and registers are then the driver's own, and compare as they are.
//!
//! **Locks.** One mutex, never held while the driver runs. Blocks lie beside it, since the driver
//! keeps references into them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use glia_abi::addr::{HostPa, RegOffset};
use glia_abi::arch::{ArchProfile, MemoryLayout};
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::handle::{DeviceId, PinId, QueueId, WorkerId};
use glia_abi::port::{
    BadBar4Range, BadHostRange, Budget, DmaMemory, HostMemory, MachineMemory, NotCompleted, Port,
    TimedOut,
};
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::Direction;

use super::blocks::Blocks;
use super::books::RingBooks;
use super::content::{Content, Piece};
use super::engine::{Engine, Mode};
use super::log::{Access, BatchLog, Log, TimeoutLog, WaitLog};
use super::memory::Memory;
use super::words::NANOS_PER_MS;

/// Where blocks go for which the trace has no place: above what it uses, below 4 GiB.
const UNPLACED_FIRST: u64 = 0xc000_0000;

/// The reference's clock when a scenario begins: a million milliseconds.
const EPOCH_NS: u64 = 1_000_000 * NANOS_PER_MS;

// LIMIT: the largest chunk that backed a ring has 64 KiB; a larger one than this has no bytes for
// the driver, which then says so.
const LENT_BYTES_MAX: u64 = 16 << 20;

/// Bytes of the words of a marker buffer that a trace shows.
pub const MARKER_WORDS_BYTES: u64 = 24;

/// The world of one scenario.
#[derive(Debug)]
pub struct Rig {
    blocks: Blocks,
    state: Mutex<State>,
}

/// What the mutex guards.
#[derive(Debug)]
pub struct State {
    profile: &'static ArchProfile,
    now_us: u64,
    /// The engine.
    pub engine: Engine,
    /// HBM, chunks and buffers.
    pub memory: Memory,
    /// By queue: what its contexts were asked to do.
    pub books: BTreeMap<QueueId, RingBooks>,
    /// By queue: where its marker buffer lies in host memory.
    pub markers: BTreeMap<QueueId, u64>,
    log: Log,
    /// By size: where the next blocks go, as far as the trace says.
    places: BTreeMap<u64, VecDeque<Option<u64>>>,
    /// The next request is for an object of the trace, which is here.
    next_object: Option<u64>,
    unplaced: u64,
    waits: u64,
}

impl State {
    /// Microseconds since the scenario began.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The words of a queue's marker buffer; none if it has no buffer.
    #[must_use]
    pub fn marker_words(&self, blocks: &Blocks, queue: QueueId) -> Vec<u32> {
        let words = self
            .markers
            .get(&queue)
            .and_then(|&at| blocks.words(at, MARKER_WORDS_BYTES))
            .unwrap_or_default();
        words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect()
    }

    /// Time passes, and the engine does what is due meanwhile.
    fn advance_to(&mut self, blocks: &Blocks, at_us: u64) {
        while let Some(due_us) = self.engine.next_due_us().filter(|&due_us| due_us <= at_us) {
            self.now_us = self.now_us.max(due_us);
            self.engine.run(self.now_us, blocks, &mut self.memory);
        }
        self.now_us = self.now_us.max(at_us);
    }
}

impl Rig {
    /// A fresh device at time 0.
    #[must_use]
    pub fn new(layout: MemoryLayout) -> Self {
        let profile = layout.profile();
        Self {
            blocks: Blocks::default(),
            state: Mutex::new(State {
                profile,
                now_us: 0,
                engine: Engine::new(profile),
                memory: Memory::new(layout),
                books: BTreeMap::new(),
                markers: BTreeMap::new(),
                log: Log::default(),
                places: BTreeMap::new(),
                next_object: None,
                unplaced: UNPLACED_FIRST,
                waits: 0,
            }),
        }
    }

    /// Everything that can be looked at.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver's own memory.
    #[must_use]
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The next requests for so many bytes get these host addresses, in this order; `None` is
    /// anywhere.
    pub fn place(&self, size_bytes: u64, at: &[Option<u64>]) {
        let places = at.iter().copied().collect();
        self.state().places.insert(size_bytes, places);
    }

    /// The next request is for an object of the trace, at this host address: the driver gets to
    /// know it, and its bytes are kept as those of all objects are.
    pub fn place_object(&self, at: u64) {
        self.state().next_object = Some(at);
    }

    /// Makes words of an object of the trace, so that the driver can write descriptors into it. One
    /// that is no host memory, or too large, is left as it is.
    pub fn lend(&self, at: u64, size_bytes: u64) {
        let state = self.state();
        let Some(host) = state.memory.host_address(at) else {
            return;
        };
        if size_bytes <= LENT_BYTES_MAX && self.blocks.add(host, size_bytes) {
            let bytes = Piece::bytes(&state.memory.read(at, size_bytes));
            self.blocks.write(host, &bytes);
        }
    }

    /// What lies in a range, or would.
    #[must_use]
    pub fn content(&self, at: u64, size_bytes: u64) -> Vec<Piece> {
        let state = self.state();
        let fetched = state.memory.fetch(&self.blocks, at, size_bytes);
        fetched.unwrap_or_else(|| state.memory.read(at, size_bytes))
    }

    /// Puts pieces into an object, wherever it lies.
    pub fn put(&self, at: u64, pieces: Vec<Piece>) {
        let memory = &mut self.state().memory;
        if !memory.store(&self.blocks, at, pieces.clone()) {
            memory.write(at, pieces);
        }
    }

    /// An operation begins: what was logged before is forgotten.
    pub fn begin(&self) {
        let mut state = self.state();
        state.log = Log::default();
        state.engine.take_work();
        state.books.values_mut().for_each(RingBooks::begin);
    }

    /// What was logged since [`begin`](Self::begin).
    pub fn end(&self) -> Log {
        let mut state = self.state();
        let mut log = std::mem::take(&mut state.log);
        (log.moved_bytes, log.faults) = state.engine.take_work();
        log
    }

    /// Time passes without the driver.
    pub fn advance(&self, length_us: u64) {
        let mut state = self.state();
        let at_us = state.now_us.saturating_add(length_us);
        state.advance_to(&self.blocks, at_us);
    }

    /// Sets what becomes of the batches to come.
    pub fn set_modes(&self, modes: &[Mode]) {
        self.state().engine.set_modes(modes);
    }

    fn bad_range(at: HostPa, size_bytes: u64) -> BadHostRange {
        BadHostRange { at, size_bytes }
    }
}

impl HostMemory for Rig {
    fn alloc(&self, _device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        let mut state = self.state();
        if let Some(at) = state.next_object.take() {
            return Some(HostPa::new(at));
        }
        let placed = state
            .places
            .get_mut(&size_bytes)
            .and_then(VecDeque::pop_front)
            .flatten();
        let at = placed.unwrap_or(state.unplaced);
        if placed.is_none() {
            state.unplaced = at.checked_add(size_bytes)?;
        }
        let is_there = self.blocks.add(at, size_bytes) || self.blocks.has(at, size_bytes);
        is_there.then(|| HostPa::new(at))
    }

    /// Blocks stay until the scenario ends, and are given out again where the trace has another one
    /// just there.
    fn free(&self, _device: DeviceId, _at: HostPa, _size_bytes: u64) {}
}

impl DmaMemory for Rig {
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange> {
        self.blocks
            .words(at.get(), size_bytes)
            .ok_or_else(|| Self::bad_range(at, size_bytes))
    }

    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange> {
        let size_bytes = into.len() as u64;
        let state = self.state();
        let bus = state.profile.host_to_bus(at).get();
        let pieces = state
            .memory
            .fetch(&self.blocks, bus, size_bytes)
            .ok_or_else(|| Self::bad_range(at, size_bytes))?;
        into.copy_from_slice(&Piece::bytes(&pieces));
        Ok(())
    }

    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange> {
        self.store(at, bytes.len() as u64, Content::of_bytes(bytes))
    }

    fn fill(&self, at: HostPa, size_bytes: u64, value: u8) -> Result<(), BadHostRange> {
        self.store(at, size_bytes, Content::Byte(value))
    }
}

impl Rig {
    fn store(&self, at: HostPa, size_bytes: u64, content: Content) -> Result<(), BadHostRange> {
        let mut state = self.state();
        let bus = state.profile.host_to_bus(at).get();
        let piece = Piece {
            size_bytes,
            content,
        };
        if state.memory.store(&self.blocks, bus, vec![piece]) {
            Ok(())
        } else {
            Err(Self::bad_range(at, size_bytes))
        }
    }
}

impl MachineMemory for Rig {
    /// Nothing is ever pinned here.
    fn unpin(&self, _pin: PinId) {}
}

impl Port for Rig {
    fn reg_read(&self, at: RegOffset) -> u32 {
        let mut state = self.state();
        let value = state.engine.read(at);
        state.log.accesses.push(Access {
            at: at.get(),
            value,
            is_write: false,
            doorbell: None,
        });
        value
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        let mut state = self.state();
        let state = &mut *state;
        let doorbell = state.engine.doorbell(at);
        state.log.accesses.push(Access {
            at: at.get(),
            value,
            is_write: true,
            doorbell,
        });
        let at_us = state.now_us;
        if let Some(handed) = state.engine.write(at, value, at_us, &self.blocks) {
            state.log.batches.push(BatchLog { at_us, handed });
        }
        if doorbell.is_some() {
            state.engine.run(at_us, &self.blocks, &mut state.memory);
        }
    }

    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range> {
        // No operation of the traces stores through BAR4.
        Err(BadBar4Range {
            offset,
            size_bytes: bytes.len() as u64,
        })
    }

    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut> {
        let mut state = self.state();
        let at_us = state.now_us;
        let first_look_us = at_us.saturating_add(budget.first.0);
        let looks = budget.following.0.saturating_add(2);
        state.advance_to(&self.blocks, first_look_us);
        let mut done = 0;
        let polls = loop {
            done += 1;
            if word.load(Ordering::Acquire) == want {
                break Some(done);
            }
            // Looks before the engine does anything find nothing.
            let next_us = match state.engine.next_due_us() {
                Some(due_us) => due_us.max(state.now_us.saturating_add(1)) - first_look_us,
                None => looks,
            };
            done = next_us.min(looks);
            state.advance_to(&self.blocks, first_look_us.saturating_add(done));
            // At the end of time, a look sees nothing new.
            if done == looks || state.now_us == u64::MAX {
                break None;
            }
        };
        state.log.waits.push(WaitLog {
            count: 0,
            is_pipelined: false,
            first: budget.first,
            following: budget.following,
            polls: polls.unwrap_or(looks),
            at_us,
        });
        polls.ok_or_else(|| {
            state.log.timeout = Some(TimeoutLog {
                queue,
                sides: Direction::BOTH.map(|direction| state.engine.side(queue, direction)),
                marker: state.marker_words(&self.blocks, queue),
                accesses: state.log.accesses.len(),
            });
            TimedOut {
                queue,
                reason: NotCompleted::TimeOver,
            }
        })
    }
}

impl Sink for Rig {
    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        let Some(queue) = ids.queue else {
            return;
        };
        let mut state = self.state();
        let state = &mut *state;
        let books = state.books.entry(queue).or_default();
        match *event {
            Event::BatchStaged {
                context,
                data_descs,
                size_bytes,
                ..
            } => books.staged(context as usize, data_descs + 1, size_bytes),
            // Of the batches that a failure took along, one was waited for.
            Event::BatchDone { context, .. } => state.log.count_wait(books, context as usize),
            Event::BatchFailed { context, reason } => {
                if reason == NotCompleted::TimeOver {
                    state.log.count_wait(books, context as usize);
                }
                books.lost(context as usize);
            }
            Event::Acknowledged { direction, descs } => {
                state.engine.acknowledge(queue, direction, descs);
            }
            _ => {}
        }
    }
}

/// There is one client, which never waits for another one.
impl Sched for Rig {
    fn now(&self) -> Tick {
        Tick(EPOCH_NS.saturating_add(Micros(self.state().now_us).nanos()))
    }

    fn wait_on(&self) -> WaitOn {
        let mut state = self.state();
        state.waits += 1;
        WaitOn(state.waits)
    }

    fn wake(&self, _on: WaitOn) {}

    fn pause(&self) {}

    fn spawn(&self, _worker: Weak<dyn Worker>) -> WorkerId {
        WorkerId::new(0)
    }

    fn kick(&self, _worker: WorkerId) {}

    fn block(&self, _on: WaitOn, poll: &mut dyn FnMut() -> Poll, _within: Option<Micros>) -> bool {
        poll() == Poll::Done
    }
}
