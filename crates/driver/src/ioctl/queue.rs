//! DMA engines and the queues of processes: set up, rung, acknowledged and looked at.
//!
//! The rings are chunks of the caller's choice; the queue holds them for as long as its registers
//! point there ([`Dma::queue_init_holding`](crate::dma::Dma::queue_init_holding)), so that
//! `MEM_FREE` of a live ring leaves its memory to the engine (divergence `live-ring`). The driver's
//! own queues can be looked at, but neither set up nor rung. Descriptors are the business of
//! [`descriptor`](super::descriptor).

use ::zerocopy::{FromBytes, IntoBytes};
use glia_abi::errno::Errno;
use glia_abi::handle::{EngineId, McHandle, QUEUES_PER_ENGINE, QueueId};
use glia_abi::ioctl::{
    DmaAckCompleted, DmaEngGetState, DmaEngSetState, DmaEngState, DmaQueueCopyStart,
    DmaQueueGetState, DmaQueueInit, DmaQueueInitBatch, DmaQueueState, pointer,
};

use super::Call;
use crate::dma::user::{
    DMA_REVISION, EngineState, QueueError, QueueRegisters, QueueRequest, RingRequest,
};
use crate::memory::OwnedPin;

/// Requests that a batch has room for.
const BATCH_ROOM: usize = 256;
/// A batch of so many requests is too long, although there would be room (driver 2.27).
const BATCH_END: u32 = 256;
/// Bytes of a batch with all its room.
const BATCH_BYTES: usize = size_of::<DmaQueueInitBatch>() + BATCH_ROOM * size_of::<DmaQueueInit>();

/// What a queue's software status says. (uncertain: the numbers)
const SW_NOT_SET_UP: u32 = 0;
const SW_ENABLED: u32 = 2;

/// `DMA_ENG_SET_STATE`.
pub(crate) fn dma_eng_set_state(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaEngSetState = call.read()?;
    let engine = call.engine(argument.eng)?;
    let state = EngineState::from_raw(argument.state).ok_or(Errno::EINVAL)?;
    Ok(call.device.dma.set_engine_state(engine, state)?)
}

/// `DMA_ENG_GET_STATE`.
pub(crate) fn dma_eng_get_state(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaEngGetState = call.read()?;
    let [tx, rx] = call.device.dma.engine_state(call.engine(argument.eng)?)?;
    let state = DmaEngState {
        revision_id: DMA_REVISION,
        max_queues: QUEUES_PER_ENGINE,
        num_queues: QUEUES_PER_ENGINE,
        tx_state: tx as u32,
        rx_state: rx as u32,
    };
    call.put(pointer(argument.state), state.as_bytes())
}

/// `DMA_QUEUE_INIT`. A struct that cannot be read is `EACCES` (driver 2.27).
pub(crate) fn dma_queue_init(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaQueueInit = call.read().map_err(|_| Errno::EACCES)?;
    queue_init(call, &argument)
}

/// `DMA_QUEUE_INIT_BATCH`: one after the other, up to the first that fails; those before it stay.
pub(crate) fn dma_queue_init_batch(call: &Call<'_>) -> Result<(), Errno> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(BATCH_BYTES);
    reserved.map_err(|_| Errno::ENOMEM)?;
    bytes.resize(BATCH_BYTES, 0);
    let read = call.caller.memory.copy_in(call.arg, &mut bytes);
    read.map_err(|_| Errno::EACCES)?;
    let (head, entries) = DmaQueueInitBatch::read_from_prefix(&bytes).map_err(|_| Errno::EINVAL)?;
    if head.count >= BATCH_END {
        return Err(Errno::E2BIG);
    }
    let entries = entries.chunks_exact(size_of::<DmaQueueInit>());
    for entry in entries.take(head.count as usize) {
        let argument = DmaQueueInit::read_from_bytes(entry).map_err(|_| Errno::EINVAL)?;
        queue_init(call, &argument)?;
    }
    Ok(())
}

fn queue_init(call: &Call<'_>, argument: &DmaQueueInit) -> Result<(), Errno> {
    let [tx, rx, completions] = [argument.tx_handle, argument.rx_handle, argument.rxc_handle]
        .map(|handle| call.ring_chunk(handle));
    let queue = call.queue(argument.eng, argument.qid)?;
    let side = |pin: &Option<OwnedPin>, descs| RingRequest {
        chunk: pin.as_ref().map(|pin| pin.record().span()),
        descs,
    };
    let request = QueueRequest {
        tx: side(&tx, argument.tx_desc_count),
        rx: side(&rx, argument.rx_desc_count),
        completions: completions.as_ref().map(|pin| pin.record().span()),
        // No command has the driver fill it.
        allocatable: false,
    };
    let dma = &call.device.dma;
    Ok(dma.queue_init_holding(call.caller.pid, queue, &request, [tx, rx])?)
}

/// `DMA_QUEUE_COPY_START`: the doorbells, RX first.
pub(crate) fn dma_queue_copy_start(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaQueueCopyStart = call.read()?;
    let queue = QueueId::new(call.engine(argument.eng)?, argument.qid);
    let (tx, rx) = (argument.tx_desc_count, argument.rx_desc_count);
    Ok(call.device.dma.queue_start(queue, tx, rx)?)
}

/// `DMA_ACK_COMPLETED`.
pub(crate) fn dma_ack_completed(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaAckCompleted = call.read()?;
    let queue = QueueId::new(call.engine(argument.eng)?, argument.qid);
    Ok(call.device.dma.queue_ack(queue, argument.count)?)
}

/// `DMA_QUEUE_GET_STATE`, of any queue. (The reference does not look at the engine's number.)
pub(crate) fn dma_queue_get_state(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaQueueGetState = call.read()?;
    let queue = call.queue(argument.eng, argument.qid)?;
    let sides = call.device.dma.queue_registers(queue)?;
    for (side, at) in sides.iter().zip([argument.tx, argument.rx]) {
        call.put(pointer(at), queue_state(side).as_bytes())?;
    }
    Ok(())
}

fn queue_state(side: &QueueRegisters) -> DmaQueueState {
    DmaQueueState {
        hw_status: side.status,
        sw_status: if side.descs == 0 {
            SW_NOT_SET_UP
        } else {
            SW_ENABLED
        },
        base_addr: side.base.get(),
        length: side.descs,
        head: side.head,
        tail: side.tail,
        pad: 0,
        compl_base_addr: side.completion_base.get(),
        compl_head: side.completion_head,
        pad1: 0,
    }
}

impl Call<'_> {
    /// The engine with this number, if the device has it.
    pub(super) fn engine(&self, number: u32) -> Result<EngineId, QueueError> {
        let engine = EngineId::new(number);
        if number < self.profile().engines {
            Ok(engine)
        } else {
            Err(QueueError::NoEngine { engine })
        }
    }

    /// The queue with these numbers, if the device has it.
    pub(super) fn queue(&self, engine: u32, number: u32) -> Result<QueueId, QueueError> {
        let queue = QueueId::new(self.engine(engine)?, number);
        if number < QUEUES_PER_ENGINE {
            Ok(queue)
        } else {
            Err(QueueError::NoQueue { queue })
        }
    }

    /// The chunk for a ring; none for a handle that names nothing (driver 2.27).
    fn ring_chunk(&self, handle: u64) -> Option<OwnedPin> {
        let memory = &self.device.memory;
        let (chunk, _) = memory.find(McHandle::from_raw(handle)?)?;
        memory.pin_owned(chunk).ok()
    }
}
