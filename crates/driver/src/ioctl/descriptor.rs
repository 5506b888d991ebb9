//! Descriptors that a process has the driver write into a ring, and read out of one.
//!
//! Into a ring they go through memory of the driver's own, in which their addresses are checked
//! ([`descriptors`](crate::dma::descriptors)). Any chunk will do as a ring. Out of one they are read
//! as they lie there; the ring is found by the queue's registers, so it may be the driver's own.

use glia_abi::errno::Errno;
use glia_abi::ioctl::{DmaCopyDescriptors, DmaCopyDescriptors64, DmaDescriptorCopyout, pointer};
use glia_abi::udma::{DESC_SIZE_BYTES, Direction};

use super::Call;
use super::copy::{Bounce, copy_buffer, place};
use crate::dma::descriptors::{DESCRIPTOR_PIECE_BYTES, DescriptorCopy};

/// `queue_type` of the source side.
const TX: u32 = 0;
/// `queue_type` of the destination side.
const RX: u32 = 1;

/// `DMA_COPY_DESCRIPTORS`.
pub(crate) fn dma_copy_descriptors(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaCopyDescriptors = call.read()?;
    let argument = DmaCopyDescriptors64 {
        mem_handle: argument.mem_handle,
        buffer: argument.buffer,
        num_descs: argument.num_descs,
        pad: 0,
        offset: argument.offset.into(),
        queue_type: argument.queue_type,
        pad1: 0,
    };
    copy_in(call, &argument)
}

/// `DMA_COPY_DESCRIPTORS64`.
pub(crate) fn dma_copy_descriptors64(call: &Call<'_>) -> Result<(), Errno> {
    copy_in(call, &call.read()?)
}

fn copy_in(call: &Call<'_>, argument: &DmaCopyDescriptors64) -> Result<(), Errno> {
    let mut pin = call.pin(argument.mem_handle)?;
    let size_bytes = u64::from(argument.num_descs) * DESC_SIZE_BYTES;
    let record = pin.hold_access(argument.offset, size_bytes)?;
    let staging = Bounce::take(call, record.core(), DESCRIPTOR_PIECE_BYTES)?;
    if size_bytes == 0 {
        return Ok(());
    }
    let from = pointer(argument.buffer);
    let Some(direction) = direction(argument.queue_type) else {
        // The first piece has been read when this shows.
        let first_bytes = size_bytes.min(DESCRIPTOR_PIECE_BYTES);
        let read = call.caller.memory.check(from, first_bytes, false);
        read.map_err(|_| Errno::EFAULT)?;
        return Err(Errno::EINVAL);
    };
    let copy = DescriptorCopy {
        target: place(&record, argument.offset)?,
        size_bytes,
        direction,
    };
    let (dma, devices) = (&call.device.dma, call.driver);
    Ok(dma.copy_descriptors_in(call.caller, devices, from, staging.place()?, copy)?)
}

/// `DMA_DESCRIPTOR_COPYOUT`. (Of a ring in HBM driver 2.24.7 reads from the start, whatever
/// `start_index` says.)
pub(crate) fn dma_descriptor_copyout(call: &Call<'_>) -> Result<(), Errno> {
    let argument: DmaDescriptorCopyout = call.read()?;
    if argument.count == 0 {
        return Err(Errno::EINVAL);
    }
    let queue = call.queue(argument.eng, argument.qid)?;
    let [tx, rx] = call.device.dma.queue_registers(queue)?;
    let ring = if argument.queue_type == TX { tx } else { rx };
    let (first, count) = (u64::from(argument.start_index), u64::from(argument.count));
    if first + count > u64::from(ring.descs) {
        return Err(Errno::EFBIG);
    }
    direction(argument.queue_type).ok_or(Errno::EINVAL)?;
    // A ring without a chunk is at address 0, where the firmware's memory is.
    let pin = call.device.memory.pin_at(ring.base);
    let mut pin = pin.filter(|_| ring.base.get() != 0).ok_or(Errno::EINVAL)?;
    let in_chunk = ring.base.get() - pin.record().at().get();
    let offset = in_chunk + first * DESC_SIZE_BYTES;
    let size_bytes = count * DESC_SIZE_BYTES;
    let buffer = pointer(argument.buffer);
    copy_buffer(call, &mut pin, (offset, size_bytes), buffer, false)
}

fn direction(queue_type: u32) -> Option<Direction> {
    match queue_type {
        TX => Some(Direction::Tx),
        RX => Some(Direction::Rx),
        _ => None,
    }
}
