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

/// Where blocks go for which the trace has no place: above what it uses, below 4 GiB.
const UNPLACED_FIRST: u64 = 0xc000_0000;

/// Words of a marker buffer that a trace shows.
const MARKER_WORDS_BYTES: u64 = 24;

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
    /// By size: where the next blocks go.
    places: BTreeMap<u64, VecDeque<u64>>,
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

    /// The next requests for so many bytes get these host addresses, in this order.
    pub fn place(&self, size_bytes: u64, at: &[u64]) {
        let places = at.iter().copied().collect();
        self.state().places.insert(size_bytes, places);
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
        let placed = state
            .places
            .get_mut(&size_bytes)
            .and_then(VecDeque::pop_front);
        let at = placed.unwrap_or(state.unplaced);
        if placed.is_none() {
            state.unplaced = at.checked_add(size_bytes)?;
        }
        self.blocks.add(at, size_bytes).then(|| HostPa::new(at))
    }

    /// Blocks stay until the scenario ends.
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
        let value = state.engine.register(at);
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
            Event::BatchDone { context, .. }
            | Event::BatchFailed {
                context,
                reason: NotCompleted::TimeOver,
            } => {
                if let Some(wait) = state.log.waits.last_mut() {
                    wait.count = books.pending(context as usize);
                    wait.is_pipelined = books.has_staged_elsewhere(context as usize);
                }
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
        Tick(Micros(self.state().now_us).nanos())
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
