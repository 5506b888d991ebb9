//! Rules of [`Mapping`] and [`UserBuffer`].

use super::{Must, Violation, bytes_of, difference, hold, pattern};
use crate::PAGE_SIZE_BYTES;
use crate::addr::{Alignment, Span};
use crate::sync::Ordering;
use crate::transport::{Mapping, MappingError, UserBuffer};

/// Bytes go in and come out at any offset; an access that leaves the mapping does nothing and says
/// which; a read-only mapping cannot be written in any way.
///
/// The mapping has at least one page; if it is writable, its bytes are overwritten.
///
/// # Errors
/// The rule that it breaks.
pub fn check(mapping: &dyn Mapping) -> Result<(), Violation> {
    let size_bytes = mapping.size_bytes();
    hold!(
        size_bytes >= PAGE_SIZE_BYTES,
        "the check has a page to work in",
        "{size_bytes} bytes"
    );
    what_leaves_it_is_refused(mapping)?;
    if mapping.is_writable() {
        bytes_are_kept(mapping)?;
        words_are_the_same_memory(mapping)?;
        refused_writes_change_nothing(mapping)
    } else {
        a_read_only_mapping_is_not_written(mapping)
    }
}

/// Two mappings of the same memory, both writable, show the same bytes.
///
/// Each has at least one page; their bytes are overwritten.
///
/// # Errors
/// The rule that they break.
pub fn check_shared(first: &dyn Mapping, second: &dyn Mapping) -> Result<(), Violation> {
    for (seed, writer, reader) in [(1, first, second), (2, second, first)] {
        let bytes = pattern(seed, 4096);
        put(writer, 0, &bytes)?;
        let found = get(reader, 0, bytes.len())?;
        hold!(
            found == bytes,
            "mappings of the same memory show the same bytes",
            "{}",
            difference(&bytes, &found)
        );
    }
    Ok(())
}

/// A fresh buffer of `size_bytes` is page-aligned, zeroed and writable, and keeps all that [`check`]
/// asks.
///
/// # Errors
/// The rule that it breaks.
pub fn check_buffer(buffer: &dyn UserBuffer, size_bytes: u64) -> Result<(), Violation> {
    let at = buffer.address();
    hold!(
        at.is_aligned(Alignment::PAGE),
        "a buffer is page-aligned",
        "it lies at {at}"
    );
    hold!(
        buffer.size_bytes() >= size_bytes,
        "a buffer has at least the bytes that were asked for",
        "{} of {size_bytes}",
        buffer.size_bytes()
    );
    Span::new(at, buffer.size_bytes()).must("a buffer does not wrap")?;
    hold!(buffer.is_writable(), "a buffer is writable", "it is not");
    let size = usize::try_from(size_bytes).must("the check can read the whole buffer")?;
    let bytes = get(buffer, 0, size)?;
    let other = bytes.iter().position(|&byte| byte != 0);
    hold!(
        other.is_none(),
        "a fresh buffer is zeroed",
        "byte {other:?} is not 0"
    );
    check(buffer)?;
    let again = buffer.address();
    hold!(
        again == at,
        "a buffer stays where it is",
        "it was at {at} and is at {again}"
    );
    Ok(())
}

fn what_leaves_it_is_refused(mapping: &dyn Mapping) -> Result<(), Violation> {
    let limit_bytes = mapping.size_bytes();
    // (offset, size): just past the end, across it, far away, and wrapping.
    let outside = [
        (limit_bytes, 4),
        (limit_bytes - 4, 8),
        (1 << 62, 4),
        (u64::MAX - 3, 8),
    ];
    for (offset_bytes, size) in outside {
        let refusal = MappingError::OutOfBounds {
            offset_bytes,
            size_bytes: bytes_of(size),
            limit_bytes,
        };
        let mut buffer = vec![0x5a; size];
        let read = mapping.read(offset_bytes, &mut buffer);
        hold!(
            read == Err(refusal),
            "an access that leaves the mapping is refused with its numbers",
            "reading {size} bytes at {offset_bytes}: {read:?}"
        );
        hold!(
            buffer.iter().all(|&byte| byte == 0x5a),
            "a refused read copies nothing",
            "{buffer:02x?}"
        );
    }
    let nothing = mapping.read(limit_bytes, &mut []);
    hold!(
        nothing.is_ok(),
        "no bytes at the end are within the mapping",
        "{nothing:?}"
    );
    Ok(())
}

fn bytes_are_kept(mapping: &dyn Mapping) -> Result<(), Violation> {
    let mut expected = pattern(3, 4096);
    put(mapping, 0, &expected)?;
    // (offset, size): odd, one byte, nothing, up to the end of the page.
    for (offset, size) in [(1, 7), (4095, 1), (9, 0), (4000, 96)] {
        let piece = pattern(4, size);
        put(mapping, bytes_of(offset), &piece)?;
        expected[offset..offset + size].copy_from_slice(&piece);
        let back = get(mapping, bytes_of(offset), size)?;
        hold!(
            back == piece,
            "what was written is read back",
            "{}",
            difference(&piece, &back)
        );
        let all = get(mapping, 0, expected.len())?;
        hold!(
            all == expected,
            "a write changes its range alone",
            "{}",
            difference(&expected, &all)
        );
    }
    pages_are_apart(mapping)?;
    let last = mapping.size_bytes() - 1;
    put(mapping, last, &[0x77])?;
    let back = get(mapping, last, 1)?;
    hold!(
        back == [0x77],
        "what was written is read back",
        "{back:02x?} at {last}"
    );
    Ok(())
}

fn pages_are_apart(mapping: &dyn Mapping) -> Result<(), Violation> {
    // LIMIT: pages enough for a memory that repeats to show.
    let pages = (mapping.size_bytes() / PAGE_SIZE_BYTES).min(64);
    let all = || (0..pages).map(|page| page * PAGE_SIZE_BYTES).zip(100_u32..);
    for (at, seed) in all() {
        put(mapping, at, &pattern(seed, 4096))?;
    }
    for (at, seed) in all() {
        let wanted = pattern(seed, 4096);
        let found = get(mapping, at, 4096)?;
        hold!(
            found == wanted,
            "every page is memory of its own",
            "the page at {at}: {}",
            difference(&wanted, &found)
        );
    }
    Ok(())
}

fn words_are_the_same_memory(mapping: &dyn Mapping) -> Result<(), Violation> {
    let bytes = pattern(5, 4096);
    put(mapping, 0, &bytes)?;
    let words = mapping
        .words(8, 32)
        .must("a range within the mapping is accessible")?;
    hold!(
        words.len() == 8,
        "a range has a word for each four bytes",
        "{} for 32 bytes",
        words.len()
    );
    for (word, four) in words.iter().zip(bytes[8..].chunks_exact(4)) {
        let found = word.load(Ordering::Relaxed).to_le_bytes();
        hold!(
            found == four,
            "a word is four bytes of memory, the lowest first",
            "{found:02x?} for {four:02x?}"
        );
    }
    words[1].store(0x0403_0201, Ordering::Relaxed);
    let back = get(mapping, 12, 4)?;
    hold!(
        back == [1, 2, 3, 4],
        "a store into a word is seen by a read",
        "{back:02x?}"
    );
    let limit_bytes = mapping.size_bytes();
    let outside = [
        (1, 4),
        (2, 4),
        (4, 6),
        (limit_bytes, 4),
        (u64::MAX - 3, 8),
        (0, 1 << 62),
    ];
    for (offset_bytes, size_bytes) in outside {
        let refused = mapping.words(offset_bytes, size_bytes).map(<[_]>::len);
        let refusal = MappingError::OutOfBounds {
            offset_bytes,
            size_bytes,
            limit_bytes,
        };
        hold!(
            refused == Err(refusal),
            "words that leave the mapping, or are not aligned, are refused with their numbers",
            "{size_bytes} bytes at {offset_bytes}: {refused:?}"
        );
    }
    Ok(())
}

fn refused_writes_change_nothing(mapping: &dyn Mapping) -> Result<(), Violation> {
    let limit_bytes = mapping.size_bytes();
    let tail = limit_bytes - 4;
    put(mapping, tail, &[1, 2, 3, 4])?;
    for offset_bytes in [tail, u64::MAX - 3] {
        let refused = mapping.write(offset_bytes, &[9; 8]);
        let refusal = MappingError::OutOfBounds {
            offset_bytes,
            size_bytes: 8,
            limit_bytes,
        };
        hold!(
            refused == Err(refusal),
            "an access that leaves the mapping is refused with its numbers",
            "writing 8 bytes at {offset_bytes}: {refused:?}"
        );
    }
    let back = get(mapping, tail, 4)?;
    hold!(
        back == [1, 2, 3, 4],
        "a refused write copies nothing",
        "{back:02x?} before the end"
    );
    Ok(())
}

fn a_read_only_mapping_is_not_written(mapping: &dyn Mapping) -> Result<(), Violation> {
    let before = get(mapping, 0, 4096)?;
    let other: Vec<u8> = before.iter().map(|byte| !byte).collect();
    let write = mapping.write(0, &other);
    hold!(
        write == Err(MappingError::ReadOnly),
        "a read-only mapping cannot be written",
        "{write:?}"
    );
    let words = mapping.words(0, 4).map(<[_]>::len);
    hold!(
        words == Err(MappingError::ReadOnly),
        "a read-only mapping lends no words",
        "{words:?}"
    );
    let after = get(mapping, 0, 4096)?;
    hold!(
        after == before,
        "a refused write copies nothing",
        "{}",
        difference(&before, &after)
    );
    Ok(())
}

/// Writes within the mapping.
pub(super) fn put(mapping: &dyn Mapping, offset: u64, bytes: &[u8]) -> Result<(), Violation> {
    mapping
        .write(offset, bytes)
        .must("a range within the mapping is accessible")
}

/// Reads within the mapping.
pub(super) fn get(mapping: &dyn Mapping, offset: u64, size: usize) -> Result<Vec<u8>, Violation> {
    let mut bytes = vec![0; size];
    mapping
        .read(offset, &mut bytes)
        .must("a range within the mapping is accessible")?;
    Ok(bytes)
}
