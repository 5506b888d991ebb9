//! Queues of processes: rings that lie in their chunks, and which they fill themselves.
//!
//! A process names a queue and two chunks ([`Dma::queue_init`]), writes descriptors into the chunks
//! ([`descriptors`](super::descriptors), or by its own stores), and asks for the doorbells
//! ([`Dma::queue_start`]). When it goes, [`Dma::process_exit`] leaves its queues with a ring that is
//! always there and never filled, so that no engine looks into memory that is somebody else's by then.
//! Those that keep their ring then are stopped, if they were ever rung.
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
//! (driver 2.27 does not look), but not set it up. The ring's memory is a chunk's, and the queue
//! [keeps the pins](Dma::queue_init_holding) on it for as long as its registers point there, whoever
//! frees the chunk meanwhile (divergence `live-ring`). Without pins, whoever calls keeps it alive.
//!
//! **Locks.** One for each engine, held for some register writes and never across a wait. Those
//! kick queues, whose work takes none of these.
//!
//! **What this does not do.** It never gives a queue back before its process exits: the command to
//! do so succeeds and does nothing (driver 2.27). It does not wait for what is under way.

mod error;
mod exit;
mod registers;

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::arch::Arch;
use glia_abi::handle::{Pid, QueueId};
use glia_abi::regs::QueueReg;
use glia_abi::sync::{Ordering, fence};
use glia_abi::udma::{
    Barrier, DESC_SIZE_BYTES, Direction, RING_ALIGN_BYTES, RING_DESCS_MAX, RING_DESCS_MIN, Transfer,
};

pub use error::QueueError;
pub use exit::is_nx_queue;
pub use registers::{EngineState, QueueRegisters};

use super::Dma;
use super::h2t::H2tUse;
use super::scrub::SCRUB_QUEUE;
use crate::memory::OwnedPin;
use crate::ring::{RingIndex, set_up, write};

/// Descriptors of the ring that a queue is left with (driver 2.27, `NDMA_QUEUE_DUMMY_RING_SIZE`).
const DUMMY_DESCS: u32 = 64;
/// A ring's length is a multiple of this.
const DESCS_STEP: u32 = 16;
/// The revision of the DMA engines that the driver reports.
pub const DMA_REVISION: u32 = 4;

/// What is known of an engine.
#[derive(Default)]
pub(crate) struct Engine {
    /// It has been programmed.
    pub(super) is_up: bool,
    /// Its queue for that belongs to a scrub.
    pub(super) is_scrubbing: bool,
    /// By number: the queues that processes have set up.
    rings: BTreeMap<u32, UserRing>,
    /// By number: the memory of queues that kept their ring when their process went.
    kept: BTreeMap<u32, RingPins>,
}

/// What holds the chunks of a queue's two rings.
pub type RingPins = [Option<OwnedPin>; 2];

impl Engine {
    /// Whether a process has set a queue up.
    pub(super) fn has_ring(&self, number: u32) -> bool {
        self.rings.contains_key(&number)
    }

    /// Takes what a queue keeps of a process that has gone.
    pub(super) fn take_kept(&mut self, number: u32) -> Option<RingPins> {
        self.kept.remove(&number)
    }

    /// Has a queue keep its rings.
    pub(super) fn keep(&mut self, number: u32, pins: Option<RingPins>) {
        if let Some(pins) = pins {
            self.kept.insert(number, pins);
        }
    }

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
    /// Its engine has been given descriptors.
    is_rung: bool,
    pins: RingPins,
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

impl Dma {
    /// Sets a queue up with rings of the calling process, which owns it from then on. Its own queue
    /// it may set up again, which drops what the queue had to do.
    ///
    /// (Driver 2.24.7 lets anybody replace the rings of any queue; 2.27.4 refuses all but those that
    /// nobody has used: divergence `taken-queue`.)
    ///
    /// # Errors
    /// [`QueueError`]: whether there is such a queue and whether it is taken comes before whatever is
    /// wrong with the request (driver 2.27.4). Nothing changes then.
    pub fn queue_init(
        &self,
        by: Pid,
        queue: QueueId,
        request: &QueueRequest,
    ) -> Result<(), QueueError> {
        self.queue_init_holding(by, queue, request, [None, None])
    }

    /// As [`queue_init`](Self::queue_init), and keeps the pins of the rings' chunks until the queue's
    /// registers point elsewhere. After a refusal they are let go at once.
    ///
    /// # Errors
    /// As [`queue_init`](Self::queue_init).
    pub fn queue_init_holding(
        &self,
        by: Pid,
        queue: QueueId,
        request: &QueueRequest,
        pins: RingPins,
    ) -> Result<(), QueueError> {
        let links = &self.links;
        if QueueReg::Drl
            .at(links.profile, queue, Direction::Tx)
            .is_none()
        {
            return Err(QueueError::NoQueue { queue });
        }
        drop(self.engine_for(by, queue)?);
        check(request)?;
        // Now, so that the exit cannot fail.
        self.dummy_ring(u64::from(DUMMY_DESCS) * DESC_SIZE_BYTES)?;

        // Somebody may have taken it meanwhile.
        let mut engine = self.engine_for(by, queue)?;
        let ring = UserRing {
            owner: by,
            sides: [Side::new(request.tx), Side::new(request.rx)],
            allocatable: request.allocatable,
            is_rung: false,
            pins,
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
        let before = engine.rings.insert(queue.number, ring);
        let kept = engine.kept.remove(&queue.number);
        // The last pin takes the lock of the device's memory: not under this one.
        drop(engine);
        drop((before, kept));
        Ok(())
    }

    /// What is known of a queue's engine, under its lock, if the queue is a process's to set up.
    fn engine_for(&self, by: Pid, queue: QueueId) -> Result<MutexGuard<'_, Engine>, QueueError> {
        let engine = self.engine(queue.engine);
        let engine = engine.ok_or(QueueError::NoQueue { queue })?;
        let ring = engine.rings.get(&queue.number);
        let mut own = self.own_lanes(u32::MAX);
        let is_taken = own.any(|(_, lane)| lane.queue() == queue)
            || ring.is_some_and(|ring| ring.owner != by)
            || engine.is_scrubbing && queue.number == SCRUB_QUEUE
            || self.request_of(queue).is_some_and(|requested| {
                requested.used_for == H2tUse::Copies || requested.owner != by
            });
        if is_taken {
            return Err(QueueError::Taken { queue });
        }
        Ok(engine)
    }

    /// Rings a queue's doorbells: RX first, then TX unless it announces nothing. All stores that the
    /// caller made before are seen by the engine.
    ///
    /// # Errors
    /// [`QueueError::NotSet`], [`QueueError::Doorbell`]; no doorbell is rung then.
    pub fn queue_start(&self, queue: QueueId, tx: u32, rx: u32) -> Result<(), QueueError> {
        let mut engine = self.engine(queue.engine);
        let ring = engine
            .as_mut()
            .and_then(|engine| engine.rings.get_mut(&queue.number));
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
        ring.is_rung = true;
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
