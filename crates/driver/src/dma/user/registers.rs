//! What the registers of queues and engines say, and the state that an engine is asked for.

use glia_abi::addr::{BusAddr, RegOffset};
use glia_abi::handle::{EngineId, QueueId};
use glia_abi::regs::{COUNT_MASK, QueueReg, RING_BASE_LOW_MASK, RingPointer};
use glia_abi::udma::Direction;

use super::QueueError;
use crate::dma::Dma;

/// State of one side of an engine, and the request for another.
const STATE: [u64; 2] = [0x0_0200, 0x2_0200];
const CHANGE_STATE: [u64; 2] = [0x0_0204, 0x2_0204];

/// A queue as its registers have it, one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRegisters {
    /// Raw status.
    pub status: u32,
    /// The ring's first byte.
    pub base: BusAddr,
    /// The ring's descriptors.
    pub descs: u32,
    /// The descriptor that is retired next.
    pub head: u32,
    /// One past the last descriptor that was announced.
    pub tail: u32,
    /// The completion ring's first byte.
    pub completion_base: BusAddr,
    /// Its head.
    pub completion_head: u32,
}

/// The state of an engine, by the numbers of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineState {
    /// 0: takes no work. A request only; such an engine is idle.
    Disable = 0,
    /// 1: has nothing to do.
    Idle = 1,
    /// 2: works.
    Normal = 2,
    /// 3: has given up.
    Abort = 3,
    /// 4: is being reset. Nothing asks for this or reports it.
    Reset = 4,
}

impl Dma {
    /// A queue as its registers have it, TX and RX, whoever's it is.
    ///
    /// # Errors
    /// [`QueueError::NoQueue`].
    pub fn queue_registers(&self, queue: QueueId) -> Result<[QueueRegisters; 2], QueueError> {
        let links = &self.links;
        let side = |direction| -> Option<QueueRegisters> {
            let read = |register: QueueReg| {
                let at = register.at(links.profile, queue, direction)?;
                Some(links.port.reg_read(at))
            };
            let address = |low: u32, high: u32| {
                BusAddr::new(u64::from(low & RING_BASE_LOW_MASK) | u64::from(high) << 32)
            };
            let offset = |pointer: u32| RingPointer::from(pointer).offset();
            Some(QueueRegisters {
                status: read(QueueReg::Status)?,
                base: address(read(QueueReg::DrbpLow)?, read(QueueReg::DrbpHigh)?),
                descs: read(QueueReg::Drl)? & COUNT_MASK,
                head: offset(read(QueueReg::Drhp)?),
                tail: offset(read(QueueReg::Drtp)?),
                completion_base: address(read(QueueReg::CrbpLow)?, read(QueueReg::CrbpHigh)?),
                completion_head: offset(read(QueueReg::Crhp)?),
            })
        };
        let sides = side(Direction::Tx).zip(side(Direction::Rx));
        let (tx, rx) = sides.ok_or(QueueError::NoQueue { queue })?;
        Ok([tx, rx])
    }

    /// The state of an engine, TX and RX: aborted if any of its parts is, else working if any is.
    ///
    /// # Errors
    /// [`QueueError::NoEngine`].
    pub fn engine_state(&self, engine: EngineId) -> Result<[EngineState; 2], QueueError> {
        let registers = self.engine_registers(engine, STATE)?;
        Ok(registers.map(|at| EngineState::of_register(self.links.port.reg_read(at))))
    }

    /// Asks both sides of an engine for a state. [`EngineState::Idle`] and [`EngineState::Reset`]
    /// cannot be asked for; nothing is written then, and the answer is the same (driver 2.24.7).
    ///
    /// # Errors
    /// [`QueueError::NoEngine`].
    pub fn set_engine_state(&self, engine: EngineId, state: EngineState) -> Result<(), QueueError> {
        let registers = self.engine_registers(engine, CHANGE_STATE)?;
        let request = match state {
            EngineState::Normal => 1 << 0,
            EngineState::Disable => 1 << 1,
            EngineState::Abort => 1 << 2,
            EngineState::Idle | EngineState::Reset => return Ok(()),
        };
        for at in registers {
            self.links.port.reg_write(at, request);
        }
        Ok(())
    }

    fn engine_registers(
        &self,
        engine: EngineId,
        offsets: [u64; 2],
    ) -> Result<[RegOffset; 2], QueueError> {
        let block = self.links.profile.engine_block(engine);
        let block = block.ok_or(QueueError::NoEngine { engine })?;
        Ok(offsets.map(|offset| RegOffset::new(block.get() + offset)))
    }
}

impl EngineState {
    /// The state with this number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 => Self::Disable,
            1 => Self::Idle,
            2 => Self::Normal,
            3 => Self::Abort,
            4 => Self::Reset,
            _ => return None,
        })
    }

    /// The state that a register tells: two bits for each of completion, stream, data and
    /// descriptors.
    fn of_register(value: u32) -> Self {
        let parts = [0, 4, 8, 12].map(|shift| value >> shift & 0b11);
        if parts.contains(&2) {
            Self::Abort
        } else if parts.contains(&1) {
            Self::Normal
        } else {
            Self::Idle
        }
    }
}
