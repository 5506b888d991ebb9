//! Zero copies: bytes that the device moves from and to user memory by itself, and the queue that
//! tells of those that nobody waits for.
//!
//! What is waited for may be lent memory. What is not has to be [`UserBuffer`]s, which live as long
//! as the driver needs them.

use std::sync::Arc;

use glia_abi::completion::{Completion, Consumer, SIZE_BYTES};
use glia_abi::handle::{CoreId, McHandle};
use glia_abi::ioctl::{
    self, GetAsyncH2tDmaComplQueues, MemBufZerocopy64, MemBufZerocopy64Batches, ZerocopyBatch,
    ZerocopyOp,
};
use glia_abi::sched::{Micros, Poll, WaitOn};
use glia_abi::transport::{Lent, Mapping, UserBuffer, user_addr};
use zerocopy::IntoBytes;

use super::{Device, NdlError};

/// The chunk's own queue.
const DEFAULT_QUEUE: i32 = -1;
/// How long a wait for a completion rests between its first looks, where nothing else happens: nobody
/// wakes who waits for memory. Each rest is twice as long as the one before,
const LOOK: Micros = Micros(50);
/// up to this.
const LOOK_MAX: Micros = Micros(10_000);

/// A range of a buffer to copy.
#[derive(Clone, Copy)]
pub struct ZeroCopyOp<'a> {
    /// From the chunk's first byte.
    pub chunk_offset_bytes: u64,
    /// The buffer.
    pub buffer: &'a Arc<dyn UserBuffer>,
    /// From the buffer's first byte.
    pub buffer_offset_bytes: u64,
    /// Bytes, not 0.
    pub size_bytes: u64,
}

/// A range of lent memory to copy.
#[derive(Debug)]
pub struct LentOp<'a> {
    /// From where its batch begins in the chunk.
    pub offset_bytes: u64,
    /// The memory, not empty: what is read from if the way is to the device, and what is written to
    /// otherwise.
    pub lent: Lent<'a>,
}

/// Ranges to copy between a chunk and lent memory.
#[derive(Debug)]
pub struct LentBatch<'a> {
    /// The chunk.
    pub handle: McHandle,
    /// Where it begins in the chunk.
    pub offset_bytes: u64,
    /// In the order in which they are done; at least one.
    pub ops: Vec<LentOp<'a>>,
}

/// Ranges to copy between a chunk and buffers.
#[derive(Clone, Copy)]
pub struct ZeroCopyBatch<'a> {
    /// The chunk.
    pub handle: McHandle,
    /// In the order in which they are done.
    pub ops: &'a [ZeroCopyOp<'a>],
    /// Comes back in the completion.
    pub context: u64,
}

impl Device {
    /// Copies from user memory into a chunk, by the pages themselves (`MEM_BUF_ZEROCOPY64`). Writes
    /// of at most `bar4_wr_threshold_bytes` may be stored by the processor.
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` for a chunk or range that is not there, or a generation
    /// without zero copy.
    pub fn zero_copy_write(
        &self,
        handle: McHandle,
        offset_bytes: u64,
        bytes: &[u8],
        bar4_wr_threshold_bytes: u32,
    ) -> Result<(), NdlError> {
        let mut arg = MemBufZerocopy64 {
            is_copy_to_device: 1,
            bar4_wr_threshold: bar4_wr_threshold_bytes,
            ..zero_copy(handle, offset_bytes, bytes)
        };
        let word = ioctl::MEM_BUF_ZEROCOPY64;
        self.call(&self.work, word, &mut arg, &mut [Lent::In(bytes)])
    }

    /// Copies from a chunk into user memory, by the pages themselves (`MEM_BUF_ZEROCOPY64`).
    ///
    /// # Errors
    /// As [`zero_copy_write`](Self::zero_copy_write).
    pub fn zero_copy_read(
        &self,
        handle: McHandle,
        offset_bytes: u64,
        into: &mut [u8],
    ) -> Result<(), NdlError> {
        let mut arg = zero_copy(handle, offset_bytes, into);
        let word = ioctl::MEM_BUF_ZEROCOPY64;
        self.call(&self.work, word, &mut arg, &mut [Lent::Out(into)])
    }

    /// Copies batch after batch, all one way (`MEM_BUF_ZEROCOPY64_BATCHES`). With a `sequence` other
    /// than 0 it returns when all are under way, and each has a completion of that number when it
    /// has ended.
    ///
    /// # Errors
    /// [`NdlError::Call`]. Batches before the one at fault are done, or under way, all the same.
    pub fn zero_copy_batches(
        &self,
        batches: &[ZeroCopyBatch<'_>],
        to_device: bool,
        sequence: u64,
    ) -> Result<(), NdlError> {
        let ops: Vec<Vec<ZerocopyOp>> = batches
            .iter()
            .map(|batch| batch.ops.iter().map(ZeroCopyOp::raw).collect())
            .collect();
        let raw: Vec<ZerocopyBatch> = batches
            .iter()
            .zip(&ops)
            .map(|(batch, ops)| ZerocopyBatch {
                mem_handle: u64::from(batch.handle.get()),
                ops_ptr: user_addr(ops.as_bytes()).get(),
                num_ops: count(ops.len()),
                context: batch.context,
                ..ZerocopyBatch::default()
            })
            .collect();
        let mut arg = MemBufZerocopy64Batches {
            sequence_num: sequence,
            batches: user_addr(raw.as_bytes()).get(),
            num_batches: count(raw.len()),
            is_copy_to_device: u16::from(to_device),
            h2t_qid: DEFAULT_QUEUE,
            ..MemBufZerocopy64Batches::default()
        };
        let mut lent: Vec<_> = ops.iter().map(|ops| Lent::In(ops.as_bytes())).collect();
        lent.push(Lent::In(raw.as_bytes()));
        let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
        self.call(&self.work, word, &mut arg, &mut lent)
    }

    /// Copies batch after batch between chunks and lent memory, all one way, and waits
    /// (`MEM_BUF_ZEROCOPY64_BATCHES`). Writes of at most `bar4_wr_threshold_bytes` may be stored by
    /// the processor.
    ///
    /// # Errors
    /// [`NdlError::Call`]. Batches before the one at fault are done all the same.
    pub fn zero_copy_lent(
        &self,
        batches: Vec<LentBatch<'_>>,
        to_device: bool,
        bar4_wr_threshold_bytes: u16,
    ) -> Result<(), NdlError> {
        let ops: Vec<Vec<ZerocopyOp>> = batches
            .iter()
            .map(|batch| batch.ops.iter().map(LentOp::raw).collect())
            .collect();
        let raw: Vec<ZerocopyBatch> = batches
            .iter()
            .zip(&ops)
            .map(|(batch, ops)| ZerocopyBatch {
                mem_handle: u64::from(batch.handle.get()),
                mem_handle_offset: batch.offset_bytes,
                ops_ptr: user_addr(ops.as_bytes()).get(),
                num_ops: count(ops.len()),
                bar4_wr_threshold: bar4_wr_threshold_bytes,
                ..ZerocopyBatch::default()
            })
            .collect();
        let mut arg = MemBufZerocopy64Batches {
            batches: user_addr(raw.as_bytes()).get(),
            num_batches: count(raw.len()),
            is_copy_to_device: u16::from(to_device),
            h2t_qid: DEFAULT_QUEUE,
            ..MemBufZerocopy64Batches::default()
        };
        let ranges = ops.iter().map(Vec::len).sum::<usize>();
        let mut lent = Vec::with_capacity(ranges + batches.len() + 1);
        let memory = batches.into_iter().flat_map(|batch| batch.ops);
        lent.extend(memory.map(|op| op.lent));
        lent.extend(ops.iter().map(|ops| Lent::In(ops.as_bytes())));
        lent.push(Lent::In(raw.as_bytes()));
        let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
        self.call(&self.work, word, &mut arg, &mut lent)
    }

    /// The completion queue of a core, mapped (`GET_ASYNC_H2T_DMA_COMPL_QUEUES`). It has one reader
    /// at a time.
    ///
    /// # Errors
    /// [`NdlError::NoCore`] if the device has no such core, [`NdlError::Call`], or
    /// [`NdlError::Answer`] if what the driver says is no such queue.
    pub fn completions(&self, core: CoreId) -> Result<Completions, NdlError> {
        let device = self.id();
        let queue = self.profile().h2t_queue(core);
        let number = queue.ok_or(NdlError::NoCore { device, core })?.number;
        let mut arg = GetAsyncH2tDmaComplQueues {
            nc_id: core.get(),
            qid_bitmap: 1 << number,
            ..GetAsyncH2tDmaComplQueues::default()
        };
        let word = ioctl::GET_ASYNC_H2T_DMA_COMPL_QUEUES;
        self.call(&self.work, word, &mut arg, &mut [])?;
        let range = arg.queues.get(number as usize).copied().unwrap_or_default();
        let size_bytes = u64::from(range.mmap_size);
        let mapping = self
            .transport
            .mmap(self.work.fd, range.mmap_offset, size_bytes);
        let mapping = mapping.map_err(|errno| self.refused("mmap", errno))?;
        let no_queue = self.answer(word, size_bytes);
        let words = mapping.words(0, SIZE_BYTES).map_err(|_| no_queue)?;
        let consumer = Consumer::attach(words).map_err(|_| no_queue)?;
        Ok(Completions {
            on: self.sched().wait_on(),
            mapping,
            consumer,
        })
    }
}

/// The reader's end of a completion queue.
pub struct Completions {
    mapping: Arc<dyn Mapping>,
    consumer: Consumer,
    on: WaitOn,
}

impl Completions {
    /// Takes the oldest completion; `None` if there is none.
    pub fn take(&mut self) -> Option<Completion> {
        self.consumer.take(self.mapping.words(0, SIZE_BYTES).ok()?)
    }

    /// Takes the oldest completion, and waits for one up to this long.
    pub fn wait(&mut self, device: &Device, within: Micros) -> Option<Completion> {
        let sched = device.sched();
        let end = sched.now().after(within);
        let on = self.on;
        let mut rest = LOOK;
        loop {
            let mut taken = self.take();
            if taken.is_some() || sched.now() >= end {
                return taken;
            }
            let mut look = || {
                taken = self.take();
                match taken {
                    Some(_) => Poll::Done,
                    None => Poll::Pending,
                }
            };
            let left = Micros(end.micros().saturating_sub(sched.now().micros()) + 1);
            sched.block(on, &mut look, Some(left.min(rest)));
            rest = Micros(2 * rest.0).min(LOOK_MAX);
            if taken.is_some() {
                return taken;
            }
        }
    }
}

impl ZeroCopyOp<'_> {
    fn raw(&self) -> ZerocopyOp {
        ZerocopyOp {
            offset: self.chunk_offset_bytes,
            size: self.size_bytes,
            // What leaves the address space is nobody's, and the driver says so.
            buffer: self
                .buffer
                .address()
                .get()
                .saturating_add(self.buffer_offset_bytes),
        }
    }
}

impl LentOp<'_> {
    fn raw(&self) -> ZerocopyOp {
        let bytes: &[u8] = match &self.lent {
            Lent::In(bytes) => bytes,
            Lent::Out(bytes) => bytes,
        };
        ZerocopyOp {
            offset: self.offset_bytes,
            size: bytes.len() as u64,
            buffer: user_addr(bytes).get(),
        }
    }
}

fn zero_copy(handle: McHandle, offset_bytes: u64, bytes: &[u8]) -> MemBufZerocopy64 {
    MemBufZerocopy64 {
        mem_handle: u64::from(handle.get()),
        buffer: user_addr(bytes).get(),
        size: bytes.len() as u64,
        offset: offset_bytes,
        h2t_qid: DEFAULT_QUEUE,
        ..MemBufZerocopy64::default()
    }
}

/// As many as there are, or more than the driver takes.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
