//! Queues of processes: rings that lie in their chunks, and which they fill themselves.
//!
//! A process names a queue and two chunks ([`Dma::queue_init`]), writes descriptors into the chunks
//! ([`descriptors`](super::descriptors), or by its own stores), and asks for the doorbells
//! ([`Dma::queue_start`]). When it goes, [`Dma::process_exit`] leaves its queues with a ring that is
//! always there and never filled, so that no engine looks into memory that is somebody else's by then.
//!
//! ```text
//!   no ring ──── queue_init ────► the process's ring ──── process_exit ────► the dummy ring
//!                                  ▲     │ queue_init of the same process
//!                                  └─────┘
//! ```
//!
//! The driver's own queues are no queues of processes: every operation here refuses them.
//!
//! **Who owns what.** The process that set a queue up owns it until it exits; others may ring it
//! (driver 2.27 does not look), but not set it up. The ring's memory is a chunk's: whoever calls
//! keeps it alive.
//!
//! **Locks.** One for each engine, held for some register writes and never across a wait. Those
//! kick queues, whose work takes none of these.
//!
//! **What this does not do.** It never gives a queue back before its process exits: the command to
//! do so succeeds and does nothing (driver 2.27). It does not wait for what is under way.

use std::collections::BTreeMap;

use glia_abi::addr::{BusAddr, RegOffset, Span};
use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::handle::{EngineId, Pid, QueueId};
use glia_abi::port::BadHostRange;
use glia_abi::regs::{COUNT_MASK, QueueReg, RING_BASE_LOW_MASK, RingPointer};
use glia_abi::sync::{Ordering, fence};
use glia_abi::udma::{
    BadTransferSize, Barrier, DESC_SIZE_BYTES, Direction, RING_ALIGN_BYTES, RING_DESCS_MAX,
    RING_DESCS_MIN, Transfer,
};

use super::scrub::SCRUB_QUEUE;
use super::{Dma, DmaError};
use crate::ring::{RingIndex, set_up, write};

/// Descriptors of the ring that a queue is left with (driver 2.27, `NDMA_QUEUE_DUMMY_RING_SIZE`).
const DUMMY_DESCS: u32 = 64;
/// A ring's length is a multiple of this.
const DESCS_STEP: u32 = 16;
/// The revision of the DMA engines that the driver reports.
pub const DMA_REVISION: u32 = 4;

/// State of one side of an engine, and the request for another.
const STATE: [u64; 2] = [0x0_0200, 0x2_0200];
const CHANGE_STATE: [u64; 2] = [0x0_0204, 0x2_0204];

/// What is known of an engine.
#[derive(Default)]
pub(crate) struct Engine {
    /// It has been programmed.
    pub(super) is_up: bool,
    /// Its queue for that belongs to a scrub.
    pub(super) is_scrubbing: bool,
    /// By number: the queues that processes have set up.
    rings: BTreeMap<u32, UserRing>,
}

impl Engine {
    /// Takes the queue for a scrub, unless it is a process's, or another scrub's.
    pub(super) fn claim_for_scrub(&mut self) -> Result<(), ()> {
        if self.is_scrubbing || self.rings.contains_key(&SCRUB_QUEUE) {
            return Err(());
        }
        self.is_scrubbing = true;
        Ok(())
    }
}

/// A queue of a process.
struct UserRing {
    owner: Pid,
    /// TX and RX.
    sides: [Side; 2],
    /// Whether the driver may fill it.
    allocatable: bool,
}

/// One side of a queue of a process.
struct Side {
    /// First byte; none if no chunk backs it.
    base: Option<BusAddr>,
    descs: u32,
    /// None if its length is no power of two.
    index: Option<RingIndex>,
}

/// What a process asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRequest {
    /// The source side.
    pub tx: RingRequest,
    /// The destination side.
    pub rx: RingRequest,
    /// The chunk of a ring for completions. No engine is ever given one: with a chunk the request is
    /// refused.
    pub completions: Option<Span<BusAddr>>,
    /// Whether the driver may [put descriptors](Dma::queue_push) into it.
    pub allocatable: bool,
}

/// One side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRequest {
    /// The chunk that backs it. Without one the ring is at address 0 and stays unused.
    pub chunk: Option<Span<BusAddr>>,
    /// Descriptors.
    pub descs: u32,
}

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

/// How one side of a queue of a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRingState {
    /// Slots.
    pub descs: u32,
    /// The slot that is taken next.
    pub next: u32,
    /// The oldest slot that is not acknowledged.
    pub acked: u32,
    /// The lap of the slot that is taken next, modulo 4.
    pub ring_id: u32,
    /// Slots that can be taken; 0 where the driver cannot fill the ring.
    pub available: u32,
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

/// Why a queue of a process was not set up, or not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// `EINVAL`: the device has no such queue.
    #[error("{queue} does not exist")]
    NoQueue {
        /// The queue.
        queue: QueueId,
    },
    /// `EINVAL`: the device has no such engine.
    #[error("{engine} does not exist")]
    NoEngine {
        /// The engine.
        engine: EngineId,
    },
    /// `EALREADY`: the queue is the driver's own, or another process's.
    #[error("{queue} has a ring already")]
    Taken {
        /// The queue.
        queue: QueueId,
    },
    /// `EPERM`, as in the reference: the queue has no ring of a process.
    #[error("no process has set {queue} up")]
    NotSet {
        /// The queue.
        queue: QueueId,
    },
    /// `EPERM`, as in the reference: a ring's length is no multiple of 16.
    #[error("a ring of {descs} descriptors is no multiple of {DESCS_STEP}")]
    Uneven {
        /// Descriptors asked for.
        descs: u32,
    },
    /// `EPERM`, as in the reference: a ring begins within 256 bytes.
    #[error("{at} is no multiple of {RING_ALIGN_BYTES}")]
    Unaligned {
        /// Where it would begin.
        at: BusAddr,
    },
    /// `EINVAL`: no ring has so many descriptors.
    #[error("a ring has {RING_DESCS_MIN} to {RING_DESCS_MAX} descriptors, not {descs}")]
    Length {
        /// Descriptors asked for.
        descs: u32,
    },
    /// `EINVAL`: a ring leaves its chunk. (The reference does not look, but for completions.)
    #[error("a ring of {descs} descriptors does not fit a chunk of {size_bytes} bytes")]
    TooSmall {
        /// Descriptors asked for.
        descs: u32,
        /// Bytes of the chunk.
        size_bytes: u64,
    },
    /// `EPERM`, as in the reference: a ring for completions was asked for.
    #[error("no completion ring can be attached")]
    Completions,
    /// `EPERM`: a doorbell would announce nothing, or more than the ring has. (Driver 2.24.7 stops
    /// on an assertion for some of these.)
    #[error("the {} doorbell of a ring of {descs} cannot announce {count}", direction.name())]
    Doorbell {
        /// Which side's.
        direction: Direction,
        /// Descriptors to announce.
        count: u32,
        /// Descriptors of the ring.
        descs: u32,
    },
    /// `EINVAL`: the driver cannot keep the ring's books: its length is no power of two, or it may not
    /// put descriptors there. (Driver 2.24.7 stops on an assertion.)
    #[error("the driver does not fill the rings of {queue}")]
    NotAllocatable {
        /// The queue.
        queue: QueueId,
    },
    /// `ENOMEM`: no slot is left.
    #[error("{queue} has no room")]
    NoRoom {
        /// The queue.
        queue: QueueId,
    },
    /// `EPERM`: a descriptor cannot say this size.
    #[error(transparent)]
    Size(#[from] BadTransferSize),
    /// `EINVAL`: this generation does not know the barrier.
    #[error("there is no such barrier on this generation")]
    Barrier,
    /// `EIO`: the ring is not in host memory.
    #[error(transparent)]
    Memory(#[from] BadHostRange),
    /// No memory for the ring that the queue would be left with; the number is the cause's.
    #[error(transparent)]
    Dummy(#[from] DmaError),
}

/// Whether a queue belongs to the network accelerator of the instance, which keeps its ring when
/// its process goes (driver 2.24.7).
#[must_use]
pub fn is_nx_queue(profile: &ArchProfile, queue: QueueId) -> bool {
    const NX_QUEUE: u32 = 14;
    let of_core = queue.engine.get() % 16;
    let has_one = match profile.arch {
        Arch::V2 => of_core < 11,
        Arch::V3 | Arch::V4 => matches!(of_core, 0..=4 | 7 | 8),
    };
    queue.number == NX_QUEUE && has_one
}

impl Dma {
    /// Sets a queue up with rings of the calling process, which owns it from then on. Its own queue
    /// it may set up again, which drops what the queue had to do.
    ///
    /// (Driver 2.24.7 lets anybody replace the rings of any queue; 2.27.4 refuses all but those that
    /// nobody has used.)
    ///
    /// # Errors
    /// [`QueueError`]; nothing changes then.
    pub fn queue_init(
        &self,
        by: Pid,
        queue: QueueId,
        request: &QueueRequest,
    ) -> Result<(), QueueError> {
        let links = &self.links;
        if QueueReg::Drl
            .at(links.profile, queue, Direction::Tx)
            .is_none()
        {
            return Err(QueueError::NoQueue { queue });
        }
        if self.lanes.iter().any(|lane| lane.queue() == queue) {
            return Err(QueueError::Taken { queue });
        }
        check(request)?;
        // Now, so that the exit cannot fail.
        self.dummy_ring(u64::from(DUMMY_DESCS) * DESC_SIZE_BYTES)?;

        let mut engine = self
            .engine(queue.engine)
            .ok_or(QueueError::NoQueue { queue })?;
        let is_scrubbed_with = engine.is_scrubbing && queue.number == SCRUB_QUEUE;
        if is_scrubbed_with
            || engine
                .rings
                .get(&queue.number)
                .is_some_and(|ring| ring.owner != by)
        {
            return Err(QueueError::Taken { queue });
        }
        let ring = UserRing {
            owner: by,
            sides: [Side::new(request.tx), Side::new(request.rx)],
            allocatable: request.allocatable,
        };
        for (direction, side) in Direction::BOTH.into_iter().zip(&ring.sides) {
            let base = side.base.unwrap_or(BusAddr::new(0));
            set_up(
                &*links.port,
                links.profile,
                queue,
                direction,
                base,
                side.descs,
            );
        }
        engine.rings.insert(queue.number, ring);
        Ok(())
    }

    /// Rings a queue's doorbells: RX first, then TX unless it announces nothing. All stores that the
    /// caller made before are seen by the engine.
    ///
    /// # Errors
    /// [`QueueError::NotSet`], [`QueueError::Doorbell`]; no doorbell is rung then.
    pub fn queue_start(&self, queue: QueueId, tx: u32, rx: u32) -> Result<(), QueueError> {
        let engine = self.engine(queue.engine);
        let ring = engine
            .as_ref()
            .and_then(|engine| engine.rings.get(&queue.number));
        let ring = ring.ok_or(QueueError::NotSet { queue })?;
        let counts = [(Direction::Rx, rx), (Direction::Tx, tx)];
        for (direction, count) in counts {
            let descs = ring.sides[direction.index()].descs;
            let announces_nothing = count == 0 && direction == Direction::Rx;
            if announces_nothing || count > descs {
                return Err(QueueError::Doorbell {
                    direction,
                    count,
                    descs,
                });
            }
        }
        for (direction, count) in counts {
            let doorbell = QueueReg::DrtpInc.at(self.links.profile, queue, direction);
            if let Some(at) = doorbell.filter(|_| count > 0) {
                // ORDER: the stores of descriptors before the store of the doorbell.
                fence(Ordering::Release);
                self.links.port.reg_write(at, count);
            }
        }
        Ok(())
    }

    /// Puts a pair of descriptors into the next slots of a queue, without a doorbell: what the driver
    /// does for rings that it fills itself. TX and RX may stand at different slots.
    ///
    /// # Errors
    /// [`QueueError`]; no slot is taken then. (The reference takes both before it looks at the
    /// barrier.)
    pub fn queue_push(&self, queue: QueueId, transfer: &Transfer) -> Result<(), QueueError> {
        let links = &self.links;
        let mut engine = self.engine(queue.engine);
        let ring = engine
            .as_mut()
            .and_then(|engine| engine.rings.get_mut(&queue.number))
            .ok_or(QueueError::NotSet { queue })?;
        if transfer.barrier == Barrier::StrongOrder && links.profile.arch == Arch::V2 {
            return Err(QueueError::Barrier);
        }
        let not_allocatable = QueueError::NotAllocatable { queue };
        let no_room = QueueError::NoRoom { queue };
        let [tx, rx] = &mut ring.sides;
        let (Some(mut tx_index), Some(mut rx_index)) = (tx.index, rx.index) else {
            return Err(not_allocatable);
        };
        if !ring.allocatable {
            return Err(not_allocatable);
        }
        let tx_slot = tx_index.take().ok_or(no_room)?;
        let rx_slot = rx_index.take().ok_or(no_room)?;
        let (tx_desc, rx_desc) = transfer.descriptors(tx_slot.ring_id, rx_slot.ring_id)?;
        let words = |side: &Side, number: u32| {
            let offset = u64::from(number) * DESC_SIZE_BYTES;
            let at = side.base.and_then(|base| base.checked_add(offset));
            let at = at.and_then(|at| links.profile.bus_to_host(at));
            let words = links
                .host
                .words(at.ok_or(not_allocatable)?, DESC_SIZE_BYTES)?;
            words.as_chunks().0.first().ok_or(not_allocatable)
        };
        let tx_words = words(tx, tx_slot.number)?;
        let rx_words = words(rx, rx_slot.number)?;
        write(tx_words, tx_desc.to_words());
        write(rx_words, rx_desc.to_words());
        (tx.index, rx.index) = (Some(tx_index), Some(rx_index));
        Ok(())
    }

    /// Gives back the oldest slots of both sides, at most those that are outstanding.
    ///
    /// # Errors
    /// [`QueueError::NotSet`], [`QueueError::NotAllocatable`].
    pub fn queue_ack(&self, queue: QueueId, descs: u32) -> Result<(), QueueError> {
        let mut engine = self.engine(queue.engine);
        let ring = engine
            .as_mut()
            .and_then(|engine| engine.rings.get_mut(&queue.number))
            .ok_or(QueueError::NotSet { queue })?;
        let [
            Side {
                index: Some(tx), ..
            },
            Side {
                index: Some(rx), ..
            },
        ] = &mut ring.sides
        else {
            return Err(QueueError::NotAllocatable { queue });
        };
        rx.acknowledge(descs);
        tx.acknowledge(descs);
        Ok(())
    }

    /// Who has set a queue up; `None` for the driver's own and for those that nobody has.
    #[must_use]
    pub fn queue_owner(&self, queue: QueueId) -> Option<Pid> {
        let engine = self.engine(queue.engine)?;
        Some(engine.rings.get(&queue.number)?.owner)
    }

    /// How a queue of a process stands, TX and RX; `None` if none has set it up.
    #[must_use]
    pub fn user_ring_state(&self, queue: QueueId) -> Option<[UserRingState; 2]> {
        let engine = self.engine(queue.engine)?;
        let ring = engine.rings.get(&queue.number)?;
        Some([ring.sides[0].state(), ring.sides[1].state()])
    }

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

    /// A process goes: nobody owns its queues any more, and those of compute engines get a ring that
    /// is never filled. Queues of other engines, and [those](is_nx_queue) of the network accelerator,
    /// keep their rings (driver 2.24.7; it keeps the owner, too).
    pub fn process_exit(&self, by: Pid) {
        let links = &self.links;
        for id in (0..links.profile.engines).map(EngineId::new) {
            let Some(mut engine) = self.engine(id) else {
                continue;
            };
            let is_compute = id.get() < links.profile.h2t_engine_first;
            engine.rings.retain(|&number, ring| {
                if ring.owner != by {
                    return true;
                }
                let queue = QueueId::new(id, number);
                if is_compute && !is_nx_queue(links.profile, queue) {
                    self.set_up_dummy(queue);
                }
                false
            });
        }
    }

    fn set_up_dummy(&self, queue: QueueId) {
        let links = &self.links;
        if let Some(ring) = self.dummy_ring.get() {
            let base = links.profile.host_to_bus(*ring);
            for direction in Direction::BOTH {
                set_up(
                    &*links.port,
                    links.profile,
                    queue,
                    direction,
                    base,
                    DUMMY_DESCS,
                );
            }
        }
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

/// The refusals that depend on nothing but the request, in the reference's order.
fn check(request: &QueueRequest) -> Result<(), QueueError> {
    if let Some(chunk) = request.completions {
        check_fits(chunk, request.rx.descs)?;
        return Err(QueueError::Completions);
    }
    for RingRequest { chunk, descs } in [request.tx, request.rx] {
        if !descs.is_multiple_of(DESCS_STEP) {
            return Err(QueueError::Uneven { descs });
        }
        if let Some(at) = chunk.map(Span::start)
            && !at.get().is_multiple_of(RING_ALIGN_BYTES)
        {
            return Err(QueueError::Unaligned { at });
        }
        if !(RING_DESCS_MIN..=RING_DESCS_MAX).contains(&descs) {
            return Err(QueueError::Length { descs });
        }
        if let Some(chunk) = chunk {
            check_fits(chunk, descs)?;
        }
    }
    Ok(())
}

fn check_fits(chunk: Span<BusAddr>, descs: u32) -> Result<(), QueueError> {
    let size_bytes = chunk.size_bytes();
    if u64::from(descs) * DESC_SIZE_BYTES > size_bytes {
        return Err(QueueError::TooSmall { descs, size_bytes });
    }
    Ok(())
}

impl Side {
    fn new(RingRequest { chunk, descs }: RingRequest) -> Self {
        Self {
            base: chunk.map(Span::start),
            descs,
            index: RingIndex::new(descs),
        }
    }

    fn state(&self) -> UserRingState {
        let index = self.index;
        UserRingState {
            descs: self.descs,
            next: index.map_or(0, RingIndex::next),
            acked: index.map_or(0, RingIndex::acked),
            ring_id: index.map_or(1, |index| index.ring_id().get()),
            available: index.map_or(0, RingIndex::available),
        }
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
