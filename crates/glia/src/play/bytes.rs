//! Bytes of objects: written, filled, copied, read and compared.

use std::sync::atomic::{AtomicBool, Ordering};

use glia_abi::addr::access_fits;
use glia_runtime::RuntimeError;

use super::failure::Found;
use super::object::{Memory, Object, Storage, Store};
use super::pattern::Pattern;
use crate::machine::Machine;
use crate::workload::{Copy, Fault, Range};

/// Bytes that are written or read by one call: what a program would do that streams.
const PIECE_BYTES: u64 = 8 << 20;
/// What stands in a buffer before it is read into.
const UNREAD: u8 = 0xdb;

/// How an operation ended.
pub(super) type Done = Result<Result<(), Found>, Fault>;

/// Bytes on their way; empty between operations, kept for their room.
#[derive(Default)]
pub(super) struct Pieces<'a> {
    pub(super) piece: Vec<u8>,
    check: Check,
    /// Whether the run is to stop, looked at between two pieces.
    stop: Option<&'a AtomicBool>,
}

/// What bytes are compared with.
#[derive(Default)]
pub(super) struct Check {
    /// What was written.
    wanted: Vec<u8>,
    /// What lies in HBM.
    direct: Vec<u8>,
}

/// Bytes that were moved.
#[derive(Default)]
pub(super) struct Moved {
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) verified_bytes: u64,
}

/// Writes a pattern, as it begins at the object's first byte.
pub(super) fn write(
    store: &mut Store,
    id: &str,
    range: Range,
    pattern: Pattern,
    pieces: &mut Pieces<'_>,
    moved: &mut Moved,
) -> Done {
    change(store, id, range, pattern, moved, |memory, at, end| {
        let mut at = at;
        while at < end {
            pieces.go_on()?;
            let piece = resized(&mut pieces.piece, PIECE_BYTES.min(end - at));
            pattern.fill(at, piece);
            memory.write(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    })
}

/// Fills with one value.
pub(super) fn memset(
    store: &mut Store,
    id: &str,
    range: Range,
    value: u8,
    moved: &mut Moved,
) -> Done {
    let pattern = Pattern::Filled(value);
    change(store, id, range, pattern, moved, |memory, at, end| {
        Ok(memory.fill(at, end - at, value)?)
    })
}

fn change(
    store: &mut Store,
    id: &str,
    range: Range,
    pattern: Pattern,
    moved: &mut Moved,
    change: impl FnOnce(&Memory, u64, u64) -> Result<(), Found>,
) -> Done {
    let (object, storage) = store.both(id)?;
    let (at, end) = match range.within(object) {
        Ok(part) => part,
        Err(error) => return Ok(Err(error.into())),
    };
    let (from, to) = (object.base_bytes + at, object.base_bytes + end);
    let mut written = storage.map(|storage| &mut storage.written);
    // Whatever comes of it, the old bytes are not sure to be there.
    if let Some(written) = &mut written {
        written.forget(from, to);
    }
    if let Err(found) = change(&object.memory, at, end) {
        return Ok(Err(found));
    }
    if let Some(written) = written {
        written.note(from, to, pattern.moved(0, object.base_bytes));
    }
    moved.written_bytes += end - at;
    Ok(Ok(()))
}

/// Copies between two tensors.
pub(super) fn copy(store: &mut Store, copy: &Copy<'_>, moved: &mut Moved) -> Done {
    let (source, target) = (store.get(copy.id)?, store.get(copy.to)?);
    let (from, to) = match (&source.memory, &target.memory) {
        (Memory::Tensor(from), Memory::Tensor(to)) => (from, to),
        (Memory::Tensor(_), Memory::Block(_)) => return Err(no_tensor(copy.to, "copy")),
        (Memory::Block(_), _) => return Err(no_tensor(copy.id, "copy")),
    };
    if source.program != target.program {
        return Err(Fault::TwoProcesses {
            one: copy.id.to_owned(),
            other: copy.to.to_owned(),
        });
    }
    let (at, end) = match copy.range.within(source) {
        Ok(part) => part,
        Err(error) => return Ok(Err(error.into())),
    };
    let size_bytes = end - at;
    let copied = from.copy_to(at, to, copy.to_offset_bytes, size_bytes);
    if let Err(error @ RuntimeError::OutOfBounds { .. }) = copied {
        // Nothing has moved.
        return Ok(Err(error.into()));
    }
    let (source_at, target_at) = (
        source.base_bytes + at,
        target.base_bytes + copy.to_offset_bytes,
    );
    let (source_key, target_key) = (source.storage, target.storage);
    let extents: Vec<_> = match store.storage(source_key) {
        // What becomes of ranges that overlap is not said.
        Some(_) if source_key == target_key && source_at.abs_diff(target_at) < size_bytes => {
            Vec::new()
        }
        Some(storage) => {
            let part = storage.written.within(source_at, source_at + size_bytes);
            let cut = part.map(|(from, to, pattern)| {
                let (from, to) = (from.max(source_at), to.min(source_at + size_bytes));
                (
                    from - source_at,
                    to - source_at,
                    pattern.moved(source_at, target_at),
                )
            });
            cut.collect()
        }
        None => Vec::new(),
    };
    if let Some(storage) = store.storage_mut(target_key) {
        storage.written.forget(target_at, target_at + size_bytes);
        if copied.is_ok() {
            for (from, to, pattern) in extents {
                storage
                    .written
                    .note(target_at + from, target_at + to, pattern);
            }
        }
    }
    if let Err(error) = copied {
        return Ok(Err(error.into()));
    }
    moved.written_bytes += size_bytes;
    Ok(Ok(()))
}

/// Reads, and compares.
pub(super) fn read(
    store: &Store,
    machine: &Machine,
    id: &str,
    range: Range,
    pieces: &mut Pieces<'_>,
    moved: &mut Moved,
) -> Done {
    let object = store.get(id)?;
    let storage = store.storage(object.storage);
    let (mut at, end) = match range.within(object) {
        Ok(part) => part,
        Err(error) => return Ok(Err(error.into())),
    };
    let size_bytes = end - at;
    let mut verified_bytes = 0;
    while at < end {
        if let Err(stopped) = pieces.go_on() {
            return Ok(Err(stopped));
        }
        let piece = resized(&mut pieces.piece, PIECE_BYTES.min(end - at));
        // Not what the last write left there.
        piece.fill(UNREAD);
        if let Err(error) = object.memory.read(at, piece) {
            return Ok(Err(error.into()));
        }
        if let Some(storage) = storage {
            let verified = pieces.check.verify(storage, machine, object, at, piece);
            match verified {
                Ok(bytes) => verified_bytes += bytes,
                Err(differs) => return Ok(Err(differs)),
            }
        }
        at += piece.len() as u64;
    }
    moved.read_bytes += size_bytes;
    moved.verified_bytes += verified_bytes;
    Ok(Ok(()))
}

impl Check {
    /// Compares bytes that were read of an object, from `at` on; how many of them were written.
    pub(super) fn verify(
        &mut self,
        storage: &Storage,
        machine: &Machine,
        object: &Object,
        at: u64,
        piece: &[u8],
    ) -> Result<u64, Found> {
        let base_bytes = object.base_bytes;
        let start = base_bytes + at;
        let end = start + piece.len() as u64;
        let mut verified_bytes = 0;
        for (from, to, pattern) in storage.written.within(start, end) {
            let (from, to) = (from.max(start), to.min(end));
            let wanted = resized(&mut self.wanted, to - from);
            pattern.fill(from, wanted);
            let found = part(piece, from - start, to - from);
            let offset_bytes = from - base_bytes;
            if let Some(differs) = difference(offset_bytes, found, wanted, pattern) {
                return Err(differs);
            }
            // A fault that a write and a read undo for each other shows only there.
            if let Some(hbm) = storage.direct(machine) {
                let found = resized(&mut self.direct, to - from);
                let is_read = hbm.read(from, found).is_ok();
                debug_assert!(is_read, "the mapping is as long as the storage");
                if let Some(differs) = difference(offset_bytes, found, wanted, pattern) {
                    return Err(differs);
                }
            }
            verified_bytes += to - from;
        }
        Ok(verified_bytes)
    }
}

impl<'a> Pieces<'a> {
    pub(super) fn new(stop: Option<&'a AtomicBool>) -> Self {
        Self {
            stop,
            ..Self::default()
        }
    }

    /// # Errors
    /// The run is to stop: the rest of the operation is left.
    fn go_on(&self) -> Result<(), Found> {
        match self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(Found::Stopped),
            false => Ok(()),
        }
    }

    pub(super) fn parts(&mut self) -> (&mut Vec<u8>, &mut Check) {
        (&mut self.piece, &mut self.check)
    }
}

impl Range {
    /// First byte and end of the part of an object.
    ///
    /// # Errors
    /// The part leaves the object. (It is moved in pieces, but is refused as a whole.)
    pub(super) fn within(self, object: &Object) -> Result<(u64, u64), RuntimeError> {
        let limit_bytes = object.memory.size_bytes();
        let offset_bytes = self.offset_bytes;
        let rest_bytes = limit_bytes.saturating_sub(offset_bytes);
        let size_bytes = self.size_bytes.unwrap_or(rest_bytes);
        match access_fits(offset_bytes, size_bytes, limit_bytes) {
            true => Ok((offset_bytes, offset_bytes + size_bytes)),
            false => Err(RuntimeError::OutOfBounds {
                offset_bytes,
                size_bytes,
                limit_bytes,
            }),
        }
    }
}

pub(super) fn no_tensor(id: &str, op: &'static str) -> Fault {
    Fault::NoTensor {
        id: id.to_owned(),
        op,
    }
}

/// The buffer, with this many bytes of no matter what.
pub(super) fn resized(buffer: &mut Vec<u8>, size_bytes: u64) -> &mut [u8] {
    // CAST: at most a piece or a batch.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    buffer.resize(size_bytes as usize, UNREAD);
    buffer
}

fn part(piece: &[u8], offset_bytes: u64, size_bytes: u64) -> &[u8] {
    // CAST: within a piece.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    &piece[offset_bytes as usize..][..size_bytes as usize]
}

/// The first byte that is not as written, at its offset in the object.
fn difference(offset_bytes: u64, found: &[u8], wanted: &[u8], by: Pattern) -> Option<Found> {
    if found == wanted {
        return None;
    }
    let mut both = (offset_bytes..).zip(found.iter().zip(wanted));
    let (offset_bytes, (&found, &written)) = both.find(|(_, (one, other))| one != other)?;
    Some(Found::Differs {
        offset_bytes,
        found,
        written,
        by,
    })
}
