//! Staged copies: bytes between the caller and HBM, through the copy buffer of the core.
//!
//! ```text
//!   copy in, 3 chunks     half 0   fill 0 │ 0 in flight │ fill 2 │ 2 in flight
//!                         half 1          │ fill 1      │ 1 in flight         │
//!                         call            start 0       start 1  start 2       wait
//!                         (waits for)     -             0        1             2
//! ```
//!
//! A copy is cut into chunks; each start waits for the chunk before, so the half that is filled (or
//! emptied) next is free. Two contexts of the driver take turns. Small copies go in one synchronous
//! call.
//!
//! | size | chunk | |
//! | --- | --- | --- |
//! | up to 0x3fff | 0x4000 | synchronous |
//! | up to 0x100000 | half the size, rounded up to 4 KiB | synchronous if that is all |
//! | more | 0x100000 | |
//!
//! The lock of the copy buffer is held from the first chunk to the last. Whatever fails, every copy
//! has been waited for when it is let go, so the next holder's bytes are not overwritten.

use glia_abi::PAGE_SIZE_BYTES;

use super::Block;
use crate::ndl::{COPY_BUFFER_HALF_BYTES, CopyBuffer, Device, NdlError, Transfer, WaitHandle};

// CAST: a megabyte and a page fit any target's usize.
#[expect(clippy::cast_possible_truncation, reason = "see CAST")]
const HALF: usize = COPY_BUFFER_HALF_BYTES as usize;
#[expect(clippy::cast_possible_truncation, reason = "see CAST")]
const PAGE: usize = PAGE_SIZE_BYTES as usize;
/// Copies smaller than this go in one call.
const SMALL: usize = 0x4000;

/// How a copy is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Staging {
    chunk_bytes: usize,
    /// What the first chunk is started with.
    first: WaitHandle,
}

impl Staging {
    /// The reference's table (runtime 2.31).
    fn of(size_bytes: usize) -> Self {
        let chunk_bytes = match size_bytes {
            0..SMALL => SMALL,
            SMALL..=HALF => size_bytes.div_ceil(2).next_multiple_of(PAGE),
            _ => HALF,
        };
        let first = if chunk_bytes >= size_bytes {
            WaitHandle::Sync
        } else {
            WaitHandle::None
        };
        Self { chunk_bytes, first }
    }
}

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// The copies of one staged copy: at most one in flight, and none after the drop.
struct Flight<'a> {
    block: &'a Block,
    buffer: &'a CopyBuffer,
    way: Way,
    last: WaitHandle,
}

impl Flight<'_> {
    fn device(&self) -> &Device {
        &self.block.device().ndl
    }

    /// Starts a chunk, and waits for the one before.
    fn start(&mut self, half: u64, offset_bytes: u64, size: usize) -> Result<(), NdlError> {
        let buffer = (self.buffer.handle(), half);
        let hbm = (self.block.handle, self.block.raw_offset(offset_bytes));
        let (source, target) = match self.way {
            Way::In => (buffer, hbm),
            Way::Out => (hbm, buffer),
        };
        let transfer = Transfer {
            source: source.0,
            source_offset_bytes: source.1,
            target: target.0,
            target_offset_bytes: target.1,
            size_bytes: size as u64,
        };
        self.last = self.device().copy_async(&transfer, self.last)?;
        Ok(())
    }

    /// Waits for the last chunk.
    fn land(&mut self) -> Result<(), NdlError> {
        let last = std::mem::replace(&mut self.last, WaitHandle::None);
        if !last.is_in_flight() {
            return Ok(());
        }
        let (buffer, hbm) = (self.buffer.handle(), self.block.handle);
        match self.way {
            Way::In => self.device().copy_wait(buffer, hbm, last),
            Way::Out => self.device().copy_wait(hbm, buffer, last),
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // After a failure only: the copy fails for its first error, and this one is to end.
        let _ = self.land();
    }
}

/// Offset of the half that a chunk uses.
const fn half_of(chunk: usize) -> u64 {
    if chunk.is_multiple_of(2) {
        0
    } else {
        COPY_BUFFER_HALF_BYTES
    }
}

/// Copies from the caller to HBM. After a failure the chunks before the failed one are there.
pub(super) fn copy_in(block: &Block, offset_bytes: u64, bytes: &[u8]) -> Result<(), NdlError> {
    let device = &block.device().ndl;
    let buffer = device.copy_buffer(block.facts.core)?;
    let buffer = buffer.lock(device.sched());
    let Staging { chunk_bytes, first } = Staging::of(bytes.len());
    let mut flight = Flight {
        block,
        buffer: &buffer,
        way: Way::In,
        last: first,
    };
    let mut offset_bytes = offset_bytes;
    for (chunk, piece) in bytes.chunks(chunk_bytes).enumerate() {
        let half = half_of(chunk);
        buffer.write(half, piece)?;
        flight.start(half, offset_bytes, piece.len())?;
        offset_bytes += piece.len() as u64;
    }
    flight.land()
}

/// Copies from HBM to the caller. After a failure the chunk that was under way before the failed
/// one is still delivered, if it comes (as in the reference).
pub(super) fn copy_out(block: &Block, offset_bytes: u64, into: &mut [u8]) -> Result<(), NdlError> {
    let device = &block.device().ndl;
    let buffer = device.copy_buffer(block.facts.core)?;
    let buffer = buffer.lock(device.sched());
    let Staging { chunk_bytes, first } = Staging::of(into.len());
    let mut flight = Flight {
        block,
        buffer: &buffer,
        way: Way::Out,
        last: first,
    };
    let mut offset_bytes = offset_bytes;
    let mut failure = None;
    let mut under_way: Option<(u64, &mut [u8])> = None;
    for (chunk, piece) in into.chunks_mut(chunk_bytes).enumerate() {
        let half = half_of(chunk);
        if let Err(error) = flight.start(half, offset_bytes, piece.len()) {
            failure = Some(error);
            break;
        }
        offset_bytes += piece.len() as u64;
        if let Some((half, piece)) = under_way.replace((half, piece)) {
            buffer.read(half, piece)?;
        }
    }
    let landed = flight.land();
    if let (Ok(()), Some((half, piece))) = (landed, under_way) {
        buffer.read(half, piece)?;
    }
    failure.map_or(landed, Err)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn staging(size_bytes: usize) -> (usize, WaitHandle) {
        let staging = Staging::of(size_bytes);
        (staging.chunk_bytes, staging.first)
    }

    #[test]
    fn chunks_are_those_of_the_table() {
        assert_eq!(staging(1), (0x4000, WaitHandle::Sync));
        assert_eq!(staging(0x3fff), (0x4000, WaitHandle::Sync));
        assert_eq!(staging(0x4000), (0x2000, WaitHandle::None));
        assert_eq!(staging(0x6001), (0x4000, WaitHandle::None));
        assert_eq!(staging(0x10_0000), (0x8_0000, WaitHandle::None));
        assert_eq!(staging(0x10_0001), (0x10_0000, WaitHandle::None));
        assert_eq!(staging(usize::MAX), (0x10_0000, WaitHandle::None));
    }

    proptest! {
        #[test]
        fn a_chunk_fits_a_half_and_a_synchronous_copy_is_one_chunk(
            size_bytes in 1..0x40_0000_usize,
        ) {
            let (chunk_bytes, first) = staging(size_bytes);
            prop_assert!((1..=HALF).contains(&chunk_bytes));
            prop_assert_eq!(first == WaitHandle::Sync, chunk_bytes >= size_bytes);
        }
    }
}
