//! The UDMA engines: register storage, state, and the queues that do the work.
//!
//! An engine comes to life when one of its registers is first used, and a queue likewise: a device
//! has 132 engines and 2,112 queues, of which a program uses a handful.
//!
//! Outside its queue blocks an engine has registers for bursts, beats, time-outs and much else.
//! They are plain storage here, with two exceptions: the version, and the state of each side, which
//! follows the state that was asked for. (uncertain: what a disabled or aborted engine does with
//! its queues; here they go on.)

mod check;
pub(crate) mod copy;
pub(crate) mod flight;
pub(crate) mod queue;
pub(crate) mod reuse;
mod side;
pub(crate) mod timing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use glia_abi::handle::{EngineId, QUEUES_PER_ENGINE, QueueId};
use glia_abi::udma::Direction;

use crate::bus::Bus;
use queue::Queue;

/// Offset of the version register.
const DMA_VERSION: u64 = 0x604;
/// What it reads as: the revision that the driver knows.
const DMA_VERSION_REVISION: u32 = 4;
/// Offsets of the state of a side, and of the request for another.
const STATE: [(Direction, u64); 2] = [(Direction::Tx, 0x200), (Direction::Rx, 0x2_0200)];
const CHANGE_STATE: [(Direction, u64); 2] = [(Direction::Tx, 0x204), (Direction::Rx, 0x2_0204)];
/// All four parts of a side (completion, stream, data read, descriptor prefetch) in one state.
const STATE_IDLE: u32 = 0;
const STATE_NORMAL: u32 = 0x1111;
const STATE_ABORT: u32 = 0x2222;

/// One engine of a device.
pub(crate) struct Engine {
    id: EngineId,
    registers: Mutex<Registers>,
    queues: [OnceLock<Arc<Queue>>; QUEUES_PER_ENGINE as usize],
}

#[derive(Default)]
struct Registers {
    /// What was written, by offset in the engine's block.
    stored: BTreeMap<u64, u32>,
    state: [u32; 2],
}

impl Engine {
    /// An engine after power-on.
    pub(crate) fn new(id: EngineId) -> Self {
        Self {
            id,
            registers: Mutex::default(),
            queues: Default::default(),
        }
    }

    /// The value of a register outside the queue blocks; 0 if it was never written. The offset is a
    /// multiple of 4.
    pub(crate) fn read(&self, offset: u64) -> u32 {
        let registers = self
            .registers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if offset == DMA_VERSION {
            return DMA_VERSION_REVISION;
        }
        match side_at(STATE, offset) {
            Some(direction) => registers.state[direction.index()],
            None => registers.stored.get(&offset).copied().unwrap_or(0),
        }
    }

    /// Sets a register outside the queue blocks; false if it is read-only.
    pub(crate) fn write(&self, offset: u64, value: u32) -> bool {
        if offset == DMA_VERSION || side_at(STATE, offset).is_some() {
            return false;
        }
        let mut registers = self
            .registers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(direction) = side_at(CHANGE_STATE, offset) {
            let state = &mut registers.state[direction.index()];
            // One bit asks for one state; anything else asks for none.
            match value {
                0b001 => *state = STATE_NORMAL,
                0b010 => *state = STATE_IDLE,
                0b100 => *state = STATE_ABORT,
                _ => {}
            }
        }
        registers.stored.insert(offset, value);
        true
    }

    /// A queue, brought to life if it is not yet; `None` if there is no such queue.
    pub(crate) fn queue(&self, number: u32, bus: &Arc<Bus>) -> Option<&Arc<Queue>> {
        let queue = self.queues.get(number as usize)?;
        Some(queue.get_or_init(|| Arc::new(Queue::new(QueueId::new(self.id, number), bus))))
    }

    /// Puts the engine into its state after power-on, all its queues included.
    pub(crate) fn power_on(&self) {
        *self
            .registers
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Registers::default();
        let queues = self.queues.iter().filter_map(OnceLock::get);
        queues.for_each(|queue| queue.power_on());
    }

    /// A queue, if it has come to life.
    pub(crate) fn live_queue(&self, number: u32) -> Option<&Arc<Queue>> {
        self.queues.get(number as usize)?.get()
    }
}

fn side_at(registers: [(Direction, u64); 2], offset: u64) -> Option<Direction> {
    registers
        .into_iter()
        .find_map(|(direction, at)| (at == offset).then_some(direction))
}
