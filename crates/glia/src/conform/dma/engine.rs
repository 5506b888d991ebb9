//! The engine behind the doorbells, as the traces' description has it.
//!
//! A TX doorbell hands a batch over, an RX doorbell gives credit. Each batch consumes a [`Mode`]:
//! it is executed at once, some time after its doorbell, or never. A queue executes its batches in
//! order, so one that is never executed holds up those behind it, until a reset drops them all.
//!
//! Ring ids, lengths, packet bits and addresses of every pair are checked; a fault stops the queue
//! until its reset. The engine is an instrument of these traces, not the software device.

use std::collections::{BTreeMap, VecDeque};

use glia_abi::addr::RegOffset;
use glia_abi::arch::ArchProfile;
use glia_abi::handle::QueueId;
use glia_abi::regs::{
    COUNT_MASK, Place, QUEUE_RESET_BIT, QueueReg, RING_BASE_LOW_MASK, RingPointer,
};
use glia_abi::sync::Ordering;
use glia_abi::udma::{DESC_SIZE_BYTES, Direction, RingId, RxDesc, TxDesc};

use super::blocks::Blocks;
use super::memory::Memory;

/// What becomes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is executed inside its doorbell.
    Normal,
    /// It is executed so many microseconds after its doorbell.
    Late(u64),
    /// It is never executed.
    Hang,
}

/// A place in a ring and its lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// The slot.
    pub slot: u32,
    /// The lap, modulo 4; 0 before the first reset.
    pub ring_id: u32,
}

impl Pointer {
    const UNSET: Self = Self {
        slot: 0,
        ring_id: 0,
    };
    const RESET: Self = Self {
        slot: 0,
        ring_id: RingId::FIRST.get(),
    };

    /// So many slots further in a ring of `descs` slots.
    fn advanced(self, count: u32, descs: u32) -> Self {
        let sum = u64::from(self.slot) + u64::from(count);
        let (laps, slot) = match descs {
            0 => (0, 0),
            descs => (sum / u64::from(descs), sum % u64::from(descs)),
        };
        // CAST: laps are counted modulo 4, and a slot is below `descs`.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let (laps, slot) = ((laps & 3) as u32, slot as u32);
        Self {
            slot,
            ring_id: RingId::new(self.ring_id + laps).get(),
        }
    }
}

/// One side of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// First byte of its ring, as the device sees it.
    pub base: u64,
    /// Slots.
    pub descs: u32,
    /// The next descriptor that is executed.
    pub head: Pointer,
    /// One past the last one that was announced.
    pub tail: Pointer,
    /// The oldest slot that the driver has not acknowledged.
    pub acked: u32,
}

impl Side {
    const UNSET: Self = Self {
        base: 0,
        descs: 0,
        head: Pointer::UNSET,
        tail: Pointer::UNSET,
        acked: 0,
    };

    /// The same side after a reset.
    #[must_use]
    pub fn afresh(self) -> Self {
        Self {
            head: Pointer::RESET,
            tail: Pointer::RESET,
            acked: 0,
            ..self
        }
    }
}

/// A pair of descriptors as it stands in the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Slot in the TX ring.
    pub tx_slot: u32,
    /// The TX descriptor's words.
    pub tx: [u32; 4],
    /// Slot in the RX ring.
    pub rx_slot: u32,
    /// The RX descriptor's words.
    pub rx: [u32; 4],
}

/// A batch that was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// To which queue.
    pub queue: QueueId,
    /// What becomes of it.
    pub mode: Mode,
    /// Its pairs; those whose rings cannot be read are missing.
    pub pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Batch {
    pairs: u32,
    /// `None`: never.
    due_us: Option<u64>,
    /// Of all batches of all queues.
    order: u64,
}

#[derive(Debug)]
struct Queue {
    sides: [Side; 2],
    batches: VecDeque<Batch>,
    /// RX descriptors announced and not used.
    credit: u64,
    is_stopped: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            sides: [Side::UNSET; 2],
            batches: VecDeque::new(),
            credit: 0,
            is_stopped: false,
        }
    }
}

impl Queue {
    /// When the next batch is executed, and its place in the order of all.
    fn next_due(&self) -> Option<(u64, u64)> {
        let batch = self.batches.front()?;
        let can_run = !self.is_stopped && u64::from(batch.pairs) <= self.credit;
        batch
            .due_us
            .filter(|_| can_run)
            .map(|due_us| (due_us, batch.order))
    }
}

/// All queues of a device.
#[derive(Debug)]
pub struct Engine {
    profile: &'static ArchProfile,
    registers: BTreeMap<u64, u32>,
    queues: BTreeMap<QueueId, Queue>,
    /// Of the batches to come; the last one stays.
    modes: VecDeque<Mode>,
    batches: u64,
    moved_bytes: u64,
    faults: Vec<&'static str>,
}

impl Engine {
    /// Queues that nobody has set up, and which execute at once.
    #[must_use]
    pub fn new(profile: &'static ArchProfile) -> Self {
        Self {
            profile,
            registers: BTreeMap::new(),
            queues: BTreeMap::new(),
            modes: VecDeque::from([Mode::Normal]),
            batches: 0,
            moved_bytes: 0,
            faults: Vec::new(),
        }
    }

    /// Sets what becomes of the batches to come; the last mode stays. None at all changes nothing.
    pub fn set_modes(&mut self, modes: &[Mode]) {
        if !modes.is_empty() {
            self.modes = modes.iter().copied().collect();
        }
    }

    /// How a side of a queue stands.
    #[must_use]
    pub fn side(&self, queue: QueueId, direction: Direction) -> Side {
        self.queues
            .get(&queue)
            .map_or(Side::UNSET, |queue| queue.sides[direction.index()])
    }

    /// Notes that the driver has taken slots back.
    pub fn acknowledge(&mut self, queue: QueueId, direction: Direction, count: u32) {
        let side = &mut self.queues.entry(queue).or_default().sides[direction.index()];
        let acked = Pointer {
            slot: side.acked,
            ring_id: 0,
        };
        side.acked = acked.advanced(count, side.descs).slot;
    }

    /// Bytes moved, and faults, since the last call.
    pub fn take_work(&mut self) -> (u64, Vec<&'static str>) {
        (
            std::mem::take(&mut self.moved_bytes),
            std::mem::take(&mut self.faults),
        )
    }

    /// What a register reads as: heads and tails as they stand, others as they were written; 0 if
    /// nothing was.
    #[must_use]
    pub fn read(&self, at: RegOffset) -> u32 {
        let pointer = |pointer: Pointer| {
            let pointer = RingPointer::new()
                .with_offset(pointer.slot & COUNT_MASK)
                .with_ring_id(pointer.ring_id & 3);
            u32::from(pointer)
        };
        match self.queue_register(at) {
            Some((queue, direction, QueueReg::Drhp)) => {
                return pointer(self.side(queue, direction).head);
            }
            Some((queue, direction, QueueReg::Drtp)) => {
                return pointer(self.side(queue, direction).tail);
            }
            _ => {}
        }
        self.registers.get(&at.get()).copied().unwrap_or(0)
    }

    /// Which doorbell lies at this offset.
    #[must_use]
    pub fn doorbell(&self, at: RegOffset) -> Option<(QueueId, Direction)> {
        match self.queue_register(at) {
            Some((queue, direction, QueueReg::DrtpInc)) => Some((queue, direction)),
            _ => None,
        }
    }

    fn queue_register(&self, at: RegOffset) -> Option<(QueueId, Direction, QueueReg)> {
        match Place::of(self.profile, at) {
            Place::Queue {
                queue,
                direction,
                offset,
            } => Some((queue, direction, QueueReg::of_offset(direction, offset)?)),
            Place::Engine { .. } | Place::Elsewhere => None,
        }
    }

    /// A register is written, at a time in microseconds. Says what was handed over, if it was a TX
    /// doorbell; that is executed by [`run`](Self::run).
    pub fn write(
        &mut self,
        at: RegOffset,
        value: u32,
        now_us: u64,
        blocks: &Blocks,
    ) -> Option<Handed> {
        self.registers.insert(at.get(), value);
        let (id, direction, register) = self.queue_register(at)?;
        let queue = self.queues.entry(id).or_default();
        let side = &mut queue.sides[direction.index()];
        match register {
            QueueReg::DrbpLow => {
                side.base = side.base >> 32 << 32 | u64::from(value & RING_BASE_LOW_MASK);
            }
            QueueReg::DrbpHigh => {
                side.base = u64::from(value) << 32 | side.base & u64::from(u32::MAX);
            }
            QueueReg::Drl => side.descs = value & COUNT_MASK,
            QueueReg::SwCtrl if value & QUEUE_RESET_BIT != 0 => {
                *side = side.afresh();
                queue.batches.clear();
                queue.credit = 0;
                queue.is_stopped = false;
            }
            QueueReg::DrtpInc => {
                let first = side.tail;
                side.tail = first.advanced(value & COUNT_MASK, side.descs);
                match direction {
                    Direction::Rx => queue.credit += u64::from(value & COUNT_MASK),
                    Direction::Tx => return Some(self.hand_over(id, first, value, now_us, blocks)),
                }
            }
            _ => {}
        }
        None
    }

    fn hand_over(
        &mut self,
        id: QueueId,
        first: Pointer,
        count: u32,
        now_us: u64,
        blocks: &Blocks,
    ) -> Handed {
        let mode = match self.modes.len() {
            0 => Mode::Normal,
            1 => self.modes[0],
            _ => self.modes.pop_front().unwrap_or(Mode::Normal),
        };
        let order = self.batches;
        self.batches += 1;
        let queue = self.queues.entry(id).or_default();
        queue.batches.push_back(Batch {
            pairs: count & COUNT_MASK,
            due_us: match mode {
                Mode::Normal => Some(now_us),
                Mode::Late(late_us) => Some(now_us.saturating_add(late_us)),
                Mode::Hang => None,
            },
            order,
        });
        let [tx, rx] = queue.sides;
        // Both sides take the same number of slots, so the RX slots are as far from its head.
        let mut slots = (first, rx.head);
        let behind = distance(tx.head, first, tx.descs);
        slots.1 = slots.1.advanced(behind, rx.descs);
        let mut pairs = Vec::new();
        for _ in 0..(count & COUNT_MASK).min(tx.descs) {
            let pair = read_pair(self.profile, blocks, (&tx, slots.0), (&rx, slots.1));
            pairs.extend(pair);
            slots = (slots.0.advanced(1, tx.descs), slots.1.advanced(1, rx.descs));
        }
        Handed {
            queue: id,
            mode,
            pairs,
        }
    }

    /// When the next batch of any queue is executed, if one is.
    #[must_use]
    pub fn next_due_us(&self) -> Option<u64> {
        let due = self.queues.values().filter_map(Queue::next_due);
        due.min().map(|(due_us, _)| due_us)
    }

    /// Executes every batch that is due.
    pub fn run(&mut self, now_us: u64, blocks: &Blocks, memory: &mut Memory) {
        loop {
            let due = self.queues.iter_mut().filter_map(|(_, queue)| {
                let due = queue.next_due().filter(|&(due_us, _)| due_us <= now_us)?;
                Some((due, queue))
            });
            let Some((_, queue)) = due.min_by_key(|(due, _)| *due) else {
                return;
            };
            let Some(batch) = queue.batches.pop_front() else {
                return;
            };
            for _ in 0..batch.pairs {
                match execute(self.profile, queue, blocks, memory) {
                    Ok(moved_bytes) => self.moved_bytes += moved_bytes,
                    Err(fault) => {
                        queue.is_stopped = true;
                        self.faults.push(fault);
                        break;
                    }
                }
            }
        }
    }
}

/// Slots from one place of a ring to a later one.
fn distance(from: Pointer, to: Pointer, descs: u32) -> u32 {
    if to.slot >= from.slot {
        to.slot - from.slot
    } else {
        (descs - from.slot) + to.slot
    }
}

fn read_pair(
    profile: &ArchProfile,
    blocks: &Blocks,
    tx: (&Side, Pointer),
    rx: (&Side, Pointer),
) -> Option<Pair> {
    Some(Pair {
        tx_slot: tx.1.slot,
        tx: read_desc(profile, blocks, tx)?,
        rx_slot: rx.1.slot,
        rx: read_desc(profile, blocks, rx)?,
    })
}

fn read_desc(
    profile: &ArchProfile,
    blocks: &Blocks,
    (side, place): (&Side, Pointer),
) -> Option<[u32; 4]> {
    let at = side
        .base
        .checked_add(u64::from(place.slot) * DESC_SIZE_BYTES)?;
    let host = profile.bus_to_host(glia_abi::addr::BusAddr::new(at))?;
    let words = blocks.words(host.get(), DESC_SIZE_BYTES)?;
    let words: &[_; 4] = words.try_into().ok()?;
    Some(words.each_ref().map(|word| word.load(Ordering::Acquire)))
}

/// Executes the pair at the heads and says how many bytes it moved.
fn execute(
    profile: &ArchProfile,
    queue: &mut Queue,
    blocks: &Blocks,
    memory: &mut Memory,
) -> Result<u64, &'static str> {
    let [tx_side, rx_side] = &mut queue.sides;
    let (tx_head, rx_head) = (tx_side.head, rx_side.head);
    let pair =
        read_pair(profile, blocks, (tx_side, tx_head), (rx_side, rx_head)).ok_or("ring address")?;
    let (tx, rx) = (TxDesc::from_words(pair.tx), RxDesc::from_words(pair.rx));
    let ring_ids = (tx.len_ctrl.ring_id(), rx.len_ctrl.ring_id());
    if ring_ids != (tx_head.ring_id, rx_head.ring_id) {
        return Err("ring id");
    }
    if !(tx.len_ctrl.first() && tx.len_ctrl.last()) {
        return Err("packet bits");
    }
    let size_bytes = tx.len_ctrl.size_bytes();
    if size_bytes != rx.len_ctrl.size_bytes() {
        return Err("length");
    }
    let pieces = memory
        .fetch(blocks, tx.source.get(), size_bytes)
        .ok_or("data address")?;
    if !memory.store(blocks, rx.target.get(), pieces) {
        return Err("data address");
    }
    tx_side.head = tx_head.advanced(1, tx_side.descs);
    rx_side.head = rx_head.advanced(1, rx_side.descs);
    queue.credit = queue.credit.saturating_sub(1);
    Ok(size_bytes)
}
