//! BAR0: an offset, to the engine or the queue that answers.
//!
//! | place | read | write |
//! | --- | --- | --- |
//! | a queue's register | its value | sets it, unless it is read-only |
//! | an engine's other registers | what was written, 0 before | stores it (exceptions: `udma`) |
//! | a queue block's holes, no engine, no multiple of 4 | all ones | nothing |
//!
//! What answers nothing, and a write to a read-only register, is told to the sink as a stray.

use std::sync::{Arc, OnceLock};

use glia_abi::addr::RegOffset;
use glia_abi::event::{Event, Ids};
use glia_abi::handle::{EngineId, QueueId};
use glia_abi::regs::{NO_REGISTER, Place, QueueReg};
use glia_abi::udma::Direction;

use crate::bus::Bus;
use crate::udma::Engine;
use crate::udma::queue::Queue;

/// The registers of a device, see the module.
pub(crate) struct Bar0 {
    bus: Arc<Bus>,
    engines: Box<[OnceLock<Box<Engine>>]>,
}

/// What answers at an offset.
enum Answering<'a> {
    Queue(&'a Arc<Queue>, Direction, QueueReg),
    Engine(&'a Engine, u64),
}

impl Bar0 {
    /// All registers as after power-on.
    pub(crate) fn new(bus: Arc<Bus>) -> Self {
        let engines = bus.layout.profile().engines;
        Self {
            bus,
            engines: (0..engines).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(crate) fn read(&self, at: RegOffset) -> u32 {
        match self.answering(at) {
            Some(Answering::Queue(queue, direction, register)) => queue.read(direction, register),
            Some(Answering::Engine(engine, offset)) => engine.read(offset),
            None => {
                self.stray(at, None);
                NO_REGISTER
            }
        }
    }

    pub(crate) fn write(&self, at: RegOffset, value: u32) {
        let taken = match self.answering(at) {
            Some(Answering::Queue(queue, direction, register)) => {
                queue.write(direction, register, value)
            }
            Some(Answering::Engine(engine, offset)) => engine.write(offset, value),
            None => false,
        };
        if !taken {
            self.stray(at, Some(value));
        }
    }

    /// A queue, if it has come to life.
    pub(crate) fn live_queue(&self, queue: QueueId) -> Option<&Arc<Queue>> {
        let engine = self.engines.get(queue.engine.index())?.get()?;
        engine.live_queue(queue.number)
    }

    fn answering(&self, at: RegOffset) -> Option<Answering<'_>> {
        if !at.get().is_multiple_of(4) {
            return None;
        }
        match Place::of(self.bus.layout.profile(), at) {
            Place::Queue {
                queue,
                direction,
                offset,
            } => {
                let register = QueueReg::of_offset(direction, offset)?;
                let engine = self.engine(queue.engine)?;
                let queue = engine.queue(queue.number, &self.bus)?;
                Some(Answering::Queue(queue, direction, register))
            }
            Place::Engine { engine, offset } => {
                Some(Answering::Engine(self.engine(engine)?, offset))
            }
            Place::Elsewhere => None,
        }
    }

    fn engine(&self, id: EngineId) -> Option<&Engine> {
        let engine = self.engines.get(id.index())?;
        Some(engine.get_or_init(|| Box::new(Engine::new(id))))
    }

    fn stray(&self, at: RegOffset, value: Option<u32>) {
        let ids = Ids::device(self.bus.device);
        self.bus.tell(&ids, &Event::StrayRegister { at, value });
    }
}
