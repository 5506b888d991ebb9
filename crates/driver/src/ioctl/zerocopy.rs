//! Copies between a chunk and user memory whose pages the engine reaches itself.
//!
//! Writes that are small go without the engine: the processor stores them through BAR4. All others
//! pin the user's pages, see [`zerocopy`](crate::dma::zerocopy). A request of 0 bytes passes the
//! checks and moves nothing.

use ::zerocopy::{FromBytes, IntoBytes};
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, QUEUES_PER_ENGINE, QueueId};
use glia_abi::ioctl::{
    ComplQueueRange, GetAsyncH2tDmaComplQueues, MemBufZerocopy64, MemBufZerocopy64Batches,
    ZerocopyBatch, ZerocopyOp, pointer,
};
use glia_abi::mem::Location;

use super::Call;
use super::copy::place;
use crate::chunk::Chunk;
use crate::dma::h2t::H2tUse;
use crate::dma::zerocopy::{Reply, ZeroCopy, ZeroCopyOp};
use crate::memory::OwnedPin;

/// Bytes that the processor stores through BAR4 at most: two pages (driver 2.27).
const BAR4_BYTES_MAX: u64 = 8192;
/// Bytes of them that pass through the driver's stack at a time, if they are not there in place.
const STEP_BYTES: usize = 4096;
/// The chunk's own queue.
const DEFAULT_QUEUE: i32 = -1;
// LIMIT: kernel memory for a copy of an array from user memory.
const ARRAY_BYTES_MAX: u64 = 1 << 31;

/// `MEM_BUF_ZEROCOPY64`: one range, and waits for it.
pub(crate) fn mem_buf_zerocopy64(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemBufZerocopy64 = call.read()?;
    let mut pin = call.pin(argument.mem_handle)?;
    let batch = Batch {
        chunk: pin.hold_access(argument.offset, argument.size)?,
        base: argument.offset,
        to_device: argument.is_copy_to_device != 0,
        bar4_wr_threshold: u64::from(argument.bar4_wr_threshold),
        number: argument.h2t_qid,
        ops: vec![ZeroCopyOp {
            offset_bytes: 0,
            size_bytes: argument.size,
            buffer: pointer(argument.buffer),
        }],
    };
    batch.check_user(call)?;
    batch.copy(call)
}

/// `MEM_BUF_ZEROCOPY64_BATCHES`: many ranges of many chunks, one way.
///
/// Batches before one at fault stay done, or under way. With a sequence number each batch is under
/// way when this returns, and has a completion of its own when it has ended.
pub(crate) fn mem_buf_zerocopy64_batches(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemBufZerocopy64Batches = call.read()?;
    if argument.batches == 0 || argument.num_batches == 0 {
        return Err(Errno::EINVAL);
    }
    let batches: Vec<ZerocopyBatch> = call.read_array(argument.batches, argument.num_batches)?;
    if batches
        .iter()
        .any(|batch| batch.num_ops == 0 || batch.ops_ptr == 0)
    {
        return Err(Errno::EINVAL);
    }
    for batch in &batches {
        let ops: Vec<ZerocopyOp> = call.read_array(batch.ops_ptr, batch.num_ops)?;
        let mut pin = call.pin_owned(batch.mem_handle)?;
        let ops = ops
            .iter()
            .map(|op| checked_op(call, batch, &pin, op, &argument));
        let work = Batch {
            chunk: pin.record(),
            base: batch.mem_handle_offset,
            to_device: argument.is_copy_to_device != 0,
            bar4_wr_threshold: u64::from(batch.bar4_wr_threshold),
            number: argument.h2t_qid,
            ops: ops.collect::<Result<_, _>>()?,
        };
        // From the first byte to the last; each operation is in bounds, and so is that.
        let starts = work.ops.iter().map(|op| op.offset_bytes);
        let ends = work.ops.iter().map(|op| op.offset_bytes + op.size_bytes);
        if let (Some(start), Some(end)) = (starts.min(), ends.max()) {
            pin.hold_access(work.base + start, end - start)?;
        }
        match argument.sequence_num {
            0 => work.copy(call)?,
            sequence => {
                let reply = Reply {
                    sequence,
                    context: batch.context,
                };
                work.copy_async(call, reply, pin)?;
            }
        }
    }
    Ok(())
}

fn checked_op(
    call: &Call<'_>,
    batch: &ZerocopyBatch,
    pin: &OwnedPin,
    op: &ZerocopyOp,
    argument: &MemBufZerocopy64Batches,
) -> Result<ZeroCopyOp, Errno> {
    if op.size == 0 || op.buffer == 0 {
        return Err(Errno::EINVAL);
    }
    // (The reference's sum wraps.)
    let offset = op.offset.checked_add(batch.mem_handle_offset);
    pin.check_access(offset.ok_or(Errno::EINVAL)?, op.size)?;
    let op = ZeroCopyOp {
        offset_bytes: op.offset,
        size_bytes: op.size,
        buffer: pointer(op.buffer),
    };
    check_user(call, &op, argument.is_copy_to_device != 0)?;
    Ok(op)
}

/// `GET_ASYNC_H2T_DMA_COMPL_QUEUES`: where the completion queues of a core can be mapped: of its own
/// queue, and of those that were asked for. Any other is `EINVAL`, before a completion queue is made for
/// one of them.
pub(crate) fn get_async_h2t_dma_compl_queues(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: GetAsyncH2tDmaComplQueues = call.read()?;
    let core = CoreId::new(argument.nc_id);
    let own = call.profile().h2t_queue(core).ok_or(Errno::EINVAL)?;
    if argument.qid_bitmap >> QUEUES_PER_ENGINE != 0 {
        return Err(Errno::EINVAL);
    }
    let dma = &call.device.dma;
    let mut asked = Vec::new();
    for number in (0..QUEUES_PER_ENGINE).filter(|number| argument.qid_bitmap >> number & 1 != 0) {
        if number == own.number {
            asked.push((number, None));
            continue;
        }
        let requested = dma.requested_queue(core, number);
        let (queue, requested) = requested.ok_or(Errno::EINVAL)?;
        if requested.used_for != H2tUse::Copies {
            return Err(Errno::EINVAL);
        }
        asked.push((number, Some(queue)));
    }
    for (number, queue) in asked {
        let chunk = dma.completion_queue_of(core, queue)?;
        let record = call.device.memory.chunk(chunk).ok_or(Errno::EINVAL)?;
        let range = argument.queues.get_mut(number as usize);
        *range.ok_or(Errno::EINVAL)? = ComplQueueRange {
            mmap_offset: record.at().get(),
            mmap_size: u32::try_from(record.size_bytes()).map_err(|_| Errno::EINVAL)?,
            pad: 0,
        };
    }
    call.write(&argument)
}

/// Ranges of one chunk, whose bounds have been checked.
struct Batch {
    chunk: Chunk,
    base: u64,
    to_device: bool,
    bar4_wr_threshold: u64,
    /// The caller's number for the queue.
    number: i32,
    ops: Vec<ZeroCopyOp>,
}

impl Batch {
    fn check_user(&self, call: &Call<'_>) -> Result<(), Errno> {
        let mut ops = self.ops.iter();
        ops.try_for_each(|op| check_user(call, op, self.to_device))
    }

    /// Moves everything, and waits for it.
    fn copy(&self, call: &Call<'_>) -> Result<(), Errno> {
        if self.goes_through_bar4(call) {
            return self.store(call);
        }
        let queue = self.queue(call)?;
        let copy = self.request()?;
        Ok(call.device.dma.zero_copy_by(call.caller, &copy, queue)?)
    }

    /// Has everything moved, and a completion posted when it is.
    fn copy_async(&self, call: &Call<'_>, reply: Reply, chunk: OwnedPin) -> Result<(), Errno> {
        let queue = self.queue(call)?;
        let through_bar4 = call.device.dma.has_zero_copy() && self.goes_through_bar4(call);
        if through_bar4 {
            // Done, too, if there is then no room for the completion.
            self.store(call)?;
        }
        let mut copy = self.request()?;
        if through_bar4 {
            // It still has its place among the completions.
            copy.ops = &[];
        }
        let dma = &call.device.dma;
        Ok(dma.zero_copy_async_by(call.caller, &copy, queue, reply, Some(chunk))?)
    }

    fn request(&self) -> Result<ZeroCopy<'_>, Errno> {
        Ok(ZeroCopy {
            core: self.chunk.core(),
            to_device: self.to_device,
            base: place(&self.chunk, self.base)?.at,
            ops: &self.ops,
        })
    }

    /// Whether the processor stores all of it by itself (driver 2.27).
    fn goes_through_bar4(&self, call: &Call<'_>) -> bool {
        let bytes_max = self.bar4_wr_threshold.min(BAR4_BYTES_MAX);
        let is_small = |op: &ZeroCopyOp| {
            let offset = self.base.wrapping_add(op.offset_bytes);
            op.size_bytes <= bytes_max && (op.size_bytes | offset).is_multiple_of(4)
        };
        self.to_device
            && call.device.dma.has_bar4()
            && self.chunk.location() == Location::Device
            && self.ops.iter().all(is_small)
    }

    fn store(&self, call: &Call<'_>) -> Result<(), Errno> {
        let base = place(&self.chunk, self.base)?.at;
        let (memory, dma) = (call.caller.memory, &call.device.dma);
        for op in &self.ops {
            let at = base.checked_add(op.offset_bytes).ok_or(Errno::EINVAL)?;
            if let Some(bytes) = memory.bytes(op.buffer, op.size_bytes)
                && !bytes.is_empty()
            {
                dma.store(at, bytes)?;
                continue;
            }
            let mut buffer = [0; STEP_BYTES];
            let mut done_bytes = 0;
            while done_bytes < op.size_bytes {
                let left_bytes = op.size_bytes - done_bytes;
                let step_bytes = left_bytes.min(STEP_BYTES as u64);
                // CAST: at most STEP_BYTES.
                #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
                let step = &mut buffer[..step_bytes as usize];
                let from = op.buffer.checked_add(done_bytes).ok_or(Errno::EFAULT)?;
                memory.copy_in(from, step).map_err(|_| Errno::EFAULT)?;
                let at = at.checked_add(done_bytes).ok_or(Errno::EINVAL)?;
                dma.store(at, step)?;
                done_bytes += step_bytes;
            }
        }
        Ok(())
    }

    /// The caller's queue, if it is one of the chunk's core and the caller's to use; `None` for the
    /// core's own.
    fn queue(&self, call: &Call<'_>) -> Result<Option<QueueId>, Errno> {
        let (core, dma) = (self.chunk.core(), &call.device.dma);
        let own = call.profile().h2t_queue(core);
        let own = own.and_then(|queue| i32::try_from(queue.number).ok());
        if self.number == DEFAULT_QUEUE || Some(self.number) == own {
            return Ok(None);
        }
        let number = u32::try_from(self.number).map_err(|_| Errno::ENOENT)?;
        let (queue, requested) = dma.requested_queue(core, number).ok_or(Errno::ENOENT)?;
        if requested.used_for != H2tUse::Copies {
            return Err(Errno::ENOENT);
        }
        if !dma.has_zero_copy() {
            return Err(Errno::EINVAL);
        }
        if requested.owner != call.caller.pid {
            return Err(Errno::ENOENT);
        }
        Ok(Some(queue))
    }
}

fn check_user(call: &Call<'_>, op: &ZeroCopyOp, to_device: bool) -> Result<(), Errno> {
    let memory = call.caller.memory;
    let checked = memory.check(op.buffer, op.size_bytes, !to_device);
    checked.map_err(|_| Errno::EFAULT)
}

impl Call<'_> {
    /// Reads an array to which a pointer of the struct leads.
    fn read_array<T: FromBytes + IntoBytes>(&self, at: u64, count: u32) -> Result<Vec<T>, Errno> {
        let size_bytes = u64::from(count) * size_of::<T>() as u64;
        if size_bytes > ARRAY_BYTES_MAX {
            return Err(Errno::ENOMEM);
        }
        // Before memory is taken for it.
        let memory = self.caller.memory;
        let checked = memory.check(pointer(at), size_bytes, false);
        checked.map_err(|_| Errno::EFAULT)?;
        let mut array = Vec::new();
        let reserved = array.try_reserve_exact(count as usize);
        reserved.map_err(|_| Errno::ENOMEM)?;
        array.resize_with(count as usize, T::new_zeroed);
        let read = memory.copy_in(pointer(at), array.as_mut_bytes());
        read.map_err(|_| Errno::EFAULT)?;
        Ok(array)
    }
}
