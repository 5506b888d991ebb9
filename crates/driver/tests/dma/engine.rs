//! The scripted engine: queues that check and execute descriptors, when their script lets them.

use std::collections::VecDeque;

use glia_abi::addr::BusAddr;
use glia_abi::regs::{QUEUE_ENABLE_BITS, QUEUE_RESET_BIT, QueueReg};
use glia_abi::udma::{Direction, RxDesc, TxDesc};

/// What becomes of a batch once its TX doorbell has rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Executed inside the doorbell.
    Normal,
    /// Executed so many microseconds later.
    Late(u64),
    /// Never executed.
    Hang,
    /// Executed when the test says so, whatever happens to the queue meanwhile.
    Straggle,
}

/// A pair as the engine read it: the slot, and both descriptors.
pub(crate) type Pair = (u32, TxDesc, RxDesc);

/// A batch that is not executed yet.
pub(crate) struct Pending {
    pub(crate) pairs: u32,
    /// When it is; `None`: never.
    pub(crate) due_us: Option<u64>,
}

/// One side of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Side {
    pub(crate) base: u64,
    pub(crate) descs: u32,
    enabled: bool,
    /// Descriptors announced and executed since the reset.
    announced: u64,
    executed: u64,
}

/// A queue of the engine.
#[derive(Default)]
pub(crate) struct Queue {
    sides: [Side; 2],
    pub(crate) pending: VecDeque<Pending>,
}

impl Queue {
    /// A register write: the doorbell's count, if it was the TX doorbell.
    pub(crate) fn write(
        &mut self,
        direction: Direction,
        register: QueueReg,
        value: u32,
    ) -> Option<u32> {
        let side = &mut self.sides[direction.index()];
        match register {
            QueueReg::Cfg => side.enabled = value & QUEUE_ENABLE_BITS == QUEUE_ENABLE_BITS,
            QueueReg::DrbpLow => side.base = side.base & !0xffff_ffff | u64::from(value),
            QueueReg::DrbpHigh => {
                side.base = side.base & 0xffff_ffff | u64::from(value) << 32;
            }
            QueueReg::Drl => side.descs = value,
            QueueReg::SwCtrl if value & QUEUE_RESET_BIT != 0 => {
                (side.announced, side.executed) = (0, 0);
                self.pending.clear();
            }
            QueueReg::DrtpInc => {
                assert!(side.enabled, "a doorbell on a queue that is not enabled");
                let room = u64::from(side.descs) - (side.announced - side.executed);
                assert!(value > 0 && u64::from(value) <= room, "{value} of {room}");
                side.announced += u64::from(value);
                if direction == Direction::Tx {
                    return Some(value);
                }
            }
            _ => {}
        }
        None
    }

    /// The same queue with nothing pending, to look ahead in.
    pub(crate) fn sides_only(&self) -> Self {
        Self {
            sides: self.sides,
            pending: VecDeque::new(),
        }
    }

    /// The next pair's slot, its lap, and the ring bases; the pair counts as executed.
    pub(crate) fn advance(&mut self) -> (u32, u32, BusAddr, BusAddr) {
        let [tx, rx] = &mut self.sides;
        assert_eq!(tx.executed, rx.executed);
        assert!(rx.announced > rx.executed, "TX has no credit of RX");
        let descs = u64::from(tx.descs);
        let (slot, lap) = (tx.executed % descs, tx.executed / descs + 1);
        tx.executed += 1;
        rx.executed += 1;
        (
            slot as u32,
            (lap % 4) as u32,
            BusAddr::new(tx.base),
            BusAddr::new(rx.base),
        )
    }
}
