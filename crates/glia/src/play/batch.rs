//! Many ranges written or read by one call.

use glia_runtime::Tensor;
use glia_runtime::tensor::{
    Fencing, ReadBatch, ReadOp, WriteBatch, WriteOp, read_batches, write_batches,
};

use super::bytes::{Done, Moved, Pieces, no_tensor, resized};
use super::object::{Memory, Object, Store};
use super::pattern::Pattern;
use crate::machine::Machine;
use crate::workload::{Batch, Fault, OpKind, Part};

// LIMIT: the bytes of a batch are in memory all at once.
const BATCH_BYTES_MAX: u64 = 256 << 20;

/// A range of a batch, found.
struct Ranged<'a> {
    object: &'a Object,
    tensor: &'a Tensor,
    id: &'a str,
    offset_bytes: u64,
    size_bytes: u64,
    pattern: Pattern,
}

/// Finds what a batch is about. Whether its ranges are in bounds is for the runtime to say.
fn ranges<'a>(
    store: &'a Store,
    batch: &'a Batch<'_>,
    op: OpKind,
    pattern: impl Fn(u64) -> Pattern,
) -> Result<Vec<Ranged<'a>>, Fault> {
    let mut ranges: Vec<Ranged<'a>> = Vec::new();
    let mut all_bytes = 0_u64;
    for &Part { id, range, seed } in &batch.parts {
        let object = store.get(id)?;
        let Memory::Tensor(tensor) = &object.memory else {
            return Err(no_tensor(id, op.name()));
        };
        if let Some(other) = ranges
            .iter()
            .find(|one| one.object.program != object.program)
        {
            return Err(Fault::TwoProcesses {
                one: other.id.to_owned(),
                other: id.to_owned(),
            });
        }
        let rest_bytes = tensor.size_bytes().saturating_sub(range.offset_bytes);
        let size_bytes = range.size_bytes.unwrap_or(rest_bytes);
        all_bytes = all_bytes.saturating_add(size_bytes);
        ranges.push(Ranged {
            object,
            tensor,
            id,
            offset_bytes: range.offset_bytes,
            size_bytes,
            pattern: pattern(seed),
        });
    }
    if all_bytes > BATCH_BYTES_MAX {
        return Err(Fault::OutOfRange {
            key: "size of all parts",
            found: all_bytes,
            least: 0,
            most: BATCH_BYTES_MAX,
        });
    }
    Ok(ranges)
}

/// How many ranges of one tensor follow each other, from the first on.
fn runs<'a>(ranges: &'a [Ranged<'_>]) -> impl Iterator<Item = (&'a Tensor, usize)> {
    let runs = ranges.chunk_by(|one, other| one.id == other.id);
    runs.map(|run| (run[0].tensor, run.len()))
}

fn fencing(batch: &Batch<'_>) -> Fencing {
    match batch.is_fenced {
        true => Fencing::Fenced,
        false => Fencing::Unfenced,
    }
}

/// The buffer, cut into the bytes of each range.
fn cut<'a>(buffer: &'a mut [u8], ranges: &[Ranged<'_>]) -> Vec<&'a mut [u8]> {
    let mut rest = buffer;
    let pieces = ranges.iter().map(|range| {
        // CAST: within the buffer.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let (piece, left) = std::mem::take(&mut rest).split_at_mut(range.size_bytes as usize);
        rest = left;
        piece
    });
    pieces.collect()
}

/// Writes patterns by one call.
pub(super) fn write(
    store: &mut Store,
    batch: &Batch<'_>,
    pattern: impl Fn(u64) -> Pattern,
    pieces: &mut Pieces<'_>,
    moved: &mut Moved,
) -> Done {
    let ranges = ranges(store, batch, OpKind::WriteBatch, pattern)?;
    let all_bytes = ranges.iter().map(|range| range.size_bytes).sum();
    let (buffer, _) = pieces.parts();
    let bytes = cut(resized(buffer, all_bytes), &ranges);
    let ops: Vec<WriteOp<'_>> = (ranges.iter().zip(bytes))
        .map(|(range, bytes)| {
            range.pattern.fill(range.offset_bytes, bytes);
            WriteOp {
                offset_bytes: range.offset_bytes,
                bytes,
            }
        })
        .collect();
    let mut rest = &ops[..];
    let batches = runs(&ranges).map(|(tensor, count)| {
        let (ops, left) = rest.split_at(count);
        rest = left;
        WriteBatch { tensor, ops }
    });
    let batches: Vec<_> = batches.collect();
    let written = write_batches(&batches, fencing(batch));
    let notes = ranges.iter().map(|range| {
        let start = range.object.base_bytes.saturating_add(range.offset_bytes);
        let pattern = range.pattern.moved(0, range.object.base_bytes);
        (range.object.storage, start, range.size_bytes, pattern)
    });
    let notes: Vec<_> = notes.collect();
    for &(storage, start, size_bytes, pattern) in &notes {
        if let Some(storage) = store.storage_mut(storage) {
            let end = start.saturating_add(size_bytes);
            match written {
                Ok(()) => storage.written.note(start, end, pattern),
                Err(_) => storage.written.forget(start, end),
            }
        }
    }
    if let Err(error) = written {
        return Ok(Err(error.into()));
    }
    moved.written_bytes += all_bytes;
    Ok(Ok(()))
}

/// Reads by one call, and compares.
pub(super) fn read(
    store: &Store,
    machine: &Machine,
    batch: &Batch<'_>,
    pieces: &mut Pieces<'_>,
    moved: &mut Moved,
) -> Done {
    let ranges = ranges(store, batch, OpKind::ReadBatch, Pattern::seeded)?;
    let all_bytes = ranges.iter().map(|range| range.size_bytes).sum();
    let (buffer, check) = pieces.parts();
    buffer.clear();
    let bytes = cut(resized(buffer, all_bytes), &ranges);
    let ops = (ranges.iter().zip(bytes)).map(|(range, into)| ReadOp {
        offset_bytes: range.offset_bytes,
        into,
    });
    let mut ops: Vec<ReadOp<'_>> = ops.collect();
    let mut rest = &mut ops[..];
    let batches = runs(&ranges).map(|(tensor, count)| {
        let (ops, left) = std::mem::take(&mut rest).split_at_mut(count);
        rest = left;
        ReadBatch { tensor, ops }
    });
    let mut batches: Vec<_> = batches.collect();
    if let Err(error) = read_batches(&mut batches, fencing(batch)) {
        return Ok(Err(error.into()));
    }
    let mut verified_bytes = 0;
    for (range, op) in ranges.iter().zip(&ops) {
        let Some(storage) = store.storage(range.object.storage) else {
            continue;
        };
        match check.verify(storage, machine, range.object, range.offset_bytes, op.into) {
            Ok(bytes) => verified_bytes += bytes,
            Err(differs) => return Ok(Err(differs)),
        }
    }
    moved.read_bytes += all_bytes;
    moved.verified_bytes += verified_bytes;
    Ok(Ok(()))
}
