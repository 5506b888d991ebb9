//! Batches: ranges of many tensors, read or written by one command of the driver.
//!
//! Each batch becomes an entry of `MEM_BUF_ZEROCOPY64_BATCHES`: the chunk, where the tensor begins
//! in it, and its ranges. The bytes go by the caller's own pages. A driver without zero copy is
//! asked range by range, through the copy buffer.
//!
//! All is checked before any byte moves. A copy that the driver refuses later may have moved some.
//! Each range is told as an event; all of one command end alike.

use glia_abi::event::{CopyPath, CopyWay};
use glia_abi::ioctl::feature;
use glia_abi::transport::Lent;

use super::Tensor;
use super::storage::{Access, Fence, check};
use crate::dmem::UsedBlock;
use crate::error::RuntimeError;
use crate::ndl::{LentBatch, LentOp};
use crate::trace::{BatchStart, Stop, TraceId};

/// Bytes to write at an offset of a tensor.
#[derive(Debug, Clone, Copy)]
pub struct WriteOp<'a> {
    /// From the tensor's first byte.
    pub offset_bytes: u64,
    /// What to write.
    pub bytes: &'a [u8],
}

/// Bytes to read from an offset of a tensor.
#[derive(Debug)]
pub struct ReadOp<'a> {
    /// From the tensor's first byte.
    pub offset_bytes: u64,
    /// Where to.
    pub into: &'a mut [u8],
}

/// What to write to a tensor, in this order.
#[derive(Debug, Clone, Copy)]
pub struct WriteBatch<'a> {
    /// The tensor, in device memory.
    pub tensor: &'a Tensor,
    /// The ranges.
    pub ops: &'a [WriteOp<'a>],
}

/// What to read from a tensor, in this order.
#[derive(Debug)]
pub struct ReadBatch<'a, 'b> {
    /// The tensor, in device memory.
    pub tensor: &'a Tensor,
    /// The ranges.
    pub ops: &'a mut [ReadOp<'b>],
}

/// Whether a batch copy minds other accesses to the same tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fencing {
    /// It waits for them, and they for it.
    Fenced,
    /// The caller answers for their order (`unsafe` of the C API). Bounds are checked all the same.
    Unfenced,
}

/// Writes to tensors of one device.
///
/// # Errors
/// [`RuntimeError::NoBatches`], [`RuntimeError::NotOnDevice`], [`RuntimeError::OtherDevice`],
/// [`RuntimeError::OtherProcess`] and [`RuntimeError::OutOfBounds`] before any byte moves;
/// [`RuntimeError::Closed`] and [`RuntimeError::WrongState`] if any of their runtimes is; [`RuntimeError::Batch`] (`copyin`) if the
/// driver refuses.
pub fn write_batches(batches: &[WriteBatch<'_>], fencing: Fencing) -> Result<(), RuntimeError> {
    let ranges = batches.iter().flat_map(|batch| {
        let ops = batch.ops.iter();
        ops.map(|op| (batch.tensor, op.offset_bytes, op.bytes.len()))
    });
    let tensors: Vec<&Tensor> = batches.iter().map(|batch| batch.tensor).collect();
    let copy = BatchCopy::new(&tensors, ranges, Access::Write, fencing)?;
    copy.traced(|| {
        if !copy.has_zero_copy() {
            for batch in batches {
                for op in batch.ops {
                    batch.tensor.write_unfenced(op.offset_bytes, op.bytes)?;
                }
            }
            return Ok(());
        }
        let lent = batches.iter().map(|batch| {
            let ops = batch.ops.iter();
            lent_ops(ops.map(|op| (op.offset_bytes, Lent::In(op.bytes))))
        });
        copy.run(lent)
    })
}

/// Reads from tensors of one device.
///
/// # Errors
/// As [`write_batches`], with `copyout`.
pub fn read_batches(
    batches: &mut [ReadBatch<'_, '_>],
    fencing: Fencing,
) -> Result<(), RuntimeError> {
    let ranges = batches.iter().flat_map(|batch| {
        let ops = batch.ops.iter();
        ops.map(|op| (batch.tensor, op.offset_bytes, op.into.len()))
    });
    let tensors: Vec<&Tensor> = batches.iter().map(|batch| batch.tensor).collect();
    let copy = BatchCopy::new(&tensors, ranges, Access::Read, fencing)?;
    copy.traced(|| {
        if !copy.has_zero_copy() {
            for batch in batches {
                for op in batch.ops.iter_mut() {
                    batch.tensor.read_unfenced(op.offset_bytes, op.into)?;
                }
            }
            return Ok(());
        }
        let lent = batches.iter_mut().map(|batch| {
            let ops = batch.ops.iter_mut();
            lent_ops(ops.map(|op| (op.offset_bytes, Lent::Out(&mut *op.into))))
        });
        copy.run(lent)
    })
}

/// A batch copy that has been checked: for each batch the block, and where the tensor begins.
struct BatchCopy {
    blocks: Vec<(UsedBlock, u64)>,
    access: Access,
    /// What a trace says of it.
    start: BatchStart,
    _fence: Option<Fence>,
}

impl BatchCopy {
    fn new<'a>(
        tensors: &[&'a Tensor],
        ranges: impl Iterator<Item = (&'a Tensor, u64, usize)>,
        access: Access,
        fencing: Fencing,
    ) -> Result<Self, RuntimeError> {
        for tensor in tensors {
            tensor.session.gate()?;
        }
        for pair in tensors.windows(2) {
            pair[0].is_of_the_process_of(pair[1])?;
        }
        let mut start = BatchStart {
            batches: tensors.len() as u64,
            ranges: 0,
            size_bytes: 0,
        };
        for (tensor, offset_bytes, size) in ranges {
            check(offset_bytes, size as u64, tensor.size_bytes)?;
            start.ranges += 1;
            // Ranges may overlap; each is there as the caller's memory.
            start.size_bytes = start.size_bytes.saturating_add(size as u64);
        }
        let blocks = tensors.iter().map(|tensor| tensor.device_block());
        let blocks: Vec<_> = blocks.collect::<Result<_, _>>()?;
        let (first, _) = blocks.first().ok_or(RuntimeError::NoBatches)?;
        let device = first.device().ndl.id();
        let others = blocks.iter().map(|(block, _)| block.device().ndl.id());
        if let Some(other) = others.into_iter().find(|other| *other != device) {
            return Err(RuntimeError::OtherDevice { device, other });
        }
        let storages = tensors.iter().filter_map(|tensor| tensor.storage.clone());
        let fence = match fencing {
            Fencing::Fenced => Some(Fence::begin(storages.map(|storage| (storage, access)))),
            Fencing::Unfenced => None,
        };
        Ok(Self {
            blocks,
            access,
            start,
            _fence: fence,
        })
    }

    /// Copies as an event of a trace.
    fn traced(&self, copy: impl FnOnce() -> Result<(), RuntimeError>) -> Result<(), RuntimeError> {
        let Some((block, _)) = self.blocks.first() else {
            return copy();
        };
        let id = match self.access {
            Access::Write => TraceId::TensorWriteBatch,
            Access::Read => TraceId::TensorReadBatch,
        };
        let session = &block.device().session;
        session.traced(id, || self.start, copy, Stop::of)
    }

    fn has_zero_copy(&self) -> bool {
        let mut blocks = self.blocks.iter();
        blocks.all(|(block, _)| block.device().ndl.has(feature::ZEROCOPY))
    }

    /// One command for all.
    fn run<'a>(&self, lent: impl Iterator<Item = Vec<LentOp<'a>>>) -> Result<(), RuntimeError> {
        let batches = self.blocks.iter().zip(lent);
        let batches = batches.map(|((block, begin_bytes), ops)| LentBatch {
            handle: block.handle(),
            offset_bytes: block.raw_offset(*begin_bytes),
            ops,
        });
        let batches: Vec<_> = batches.collect();
        let ranges = self.ranges(&batches);
        let batches: Vec<_> = batches
            .into_iter()
            .filter(|batch| !batch.ops.is_empty())
            .collect();
        let Some((block, _)) = self.blocks.first().filter(|_| !batches.is_empty()) else {
            return Ok(());
        };
        let ndl = &block.device().ndl;
        let (to_device, direction) = match self.access {
            Access::Write => (true, "copyin"),
            Access::Read => (false, "copyout"),
        };
        let threshold_bytes = block.device().bar4_wr_threshold_bytes();
        let copied = ndl.zero_copy_lent(batches, to_device, threshold_bytes);
        let copied = copied.map_err(|source| RuntimeError::Batch { direction, source });
        let way = match self.access {
            Access::Write => CopyWay::In,
            Access::Read => CopyWay::Out,
        };
        for (number, range) in ranges {
            if let Some((block, _)) = self.blocks.get(number) {
                block.tell_copied((way, CopyPath::ZeroCopy), range, &copied);
            }
        }
        copied
    }

    /// What is to be told afterwards: for each range the number of its block, the offset in that, and
    /// bytes. Nothing if nobody listens.
    fn ranges(&self, batches: &[LentBatch<'_>]) -> Vec<(usize, (u64, u64))> {
        let mut blocks = self.blocks.iter();
        if !blocks.any(|(block, _)| block.device().is_heard()) {
            return Vec::new();
        }
        let batches = self.blocks.iter().zip(batches).enumerate();
        let ranges = batches.flat_map(|(number, ((_, begin_bytes), batch))| {
            let ops = batch.ops.iter();
            ops.map(move |op| {
                let size = match &op.lent {
                    Lent::In(bytes) => bytes.len(),
                    Lent::Out(bytes) => bytes.len(),
                };
                (number, (begin_bytes + op.offset_bytes, size as u64))
            })
        });
        ranges.collect()
    }
}

/// Ranges by their offsets, but for those of 0 bytes, which the driver refuses.
fn lent_ops<'a>(ranges: impl ExactSizeIterator<Item = (u64, Lent<'a>)>) -> Vec<LentOp<'a>> {
    let mut ops = Vec::with_capacity(ranges.len());
    let ranges = ranges.filter(|(_, lent)| !is_empty(lent));
    ops.extend(ranges.map(|(offset_bytes, lent)| LentOp { offset_bytes, lent }));
    ops
}

fn is_empty(lent: &Lent<'_>) -> bool {
    match lent {
        Lent::In(bytes) => bytes.is_empty(),
        Lent::Out(bytes) => bytes.is_empty(),
    }
}
