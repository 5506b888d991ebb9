//! BAR0: an offset, to the engine or the queue that answers.
//!
//! | place | read | write |
//! | --- | --- | --- |
//! | a queue's register | its value | sets it, unless it is read-only |
//! | an engine's other registers | what was written, 0 before | stores it (exceptions: `udma`) |
//! | misc RAM | what was written, 0 before | stores it (exceptions: `firmware`) |
//! | a queue block's holes, none of these, no multiple of 4 | all ones | nothing |
//!
//! What answers nothing, and a write to a read-only register, is told to the sink as a stray.

use std::sync::{Arc, OnceLock};

use glia_abi::addr::RegOffset;
use glia_abi::event::{Event, Ids};
use glia_abi::handle::{CoreId, EngineId, QueueId};
use glia_abi::regs::{NO_REGISTER, Place, QueueReg, misc_ram_offset};
use glia_abi::sched::Micros;
use glia_abi::udma::Direction;

use crate::bus::Bus;
use crate::firmware::{Cores, Firmware};
use crate::udma::Engine;
use crate::udma::queue::Queue;

/// Engines of a core, besides those for the driver's copies.
const ENGINES_PER_CORE: usize = 16;

/// The registers of a device, see the module.
pub(crate) struct Bar0 {
    bus: Arc<Bus>,
    engines: Box<[OnceLock<Box<Engine>>]>,
    firmware: Arc<Firmware>,
}

/// What answers at an offset.
enum Answering<'a> {
    Queue(&'a Arc<Queue>, Direction, QueueReg),
    Engine(&'a Engine, u64),
    Firmware(u64),
}

impl Bar0 {
    /// All registers as after power-on.
    pub(crate) fn new(bus: Arc<Bus>, reset: Micros) -> Self {
        let engines = bus.layout.profile().engines;
        Self {
            firmware: Arc::new(Firmware::new(Arc::clone(&bus), reset)),
            bus,
            engines: (0..engines).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(crate) fn read(&self, at: RegOffset) -> u32 {
        match self.answering(at) {
            Some(Answering::Queue(queue, direction, register)) => queue.read(direction, register),
            Some(Answering::Engine(engine, offset)) => engine.read(offset),
            Some(Answering::Firmware(offset)) => self.firmware.read(offset),
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
            Some(Answering::Firmware(offset)) => self
                .firmware
                .write(offset, value, |cores| self.power_on(cores)),
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
            Place::Elsewhere => {
                let offset = misc_ram_offset(self.bus.layout.profile(), at)?;
                Some(Answering::Firmware(offset))
            }
        }
    }

    /// Puts what a reset of these cores affects into its state after power-on: of a core, its engines
    /// and its own queue of the engine for the driver's copies; of the whole device, everything.
    fn power_on(&self, cores: Cores) {
        let profile = self.bus.layout.profile();
        let engine_of = |id: usize| self.engines.get(id)?.get();
        if cores == Cores::ALL {
            let engines = self.engines.iter().filter_map(OnceLock::get);
            return engines.for_each(|engine| engine.power_on());
        }
        for core in (0..profile.cores).map(CoreId::new) {
            if !cores.has(core) {
                continue;
            }
            let first = core.index() * ENGINES_PER_CORE;
            let engines = (first..first + ENGINES_PER_CORE).filter_map(engine_of);
            engines.for_each(|engine| engine.power_on());
            let queue = profile.h2t_queue(core);
            if let Some(queue) = queue.and_then(|queue| self.live_queue(queue)) {
                queue.power_on();
            }
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
