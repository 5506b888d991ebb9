//! Rules of [`DmaMemory`].

use super::{Must, Violation, bytes_of, difference, hold, pattern};
use crate::PAGE_SIZE_BYTES;
use crate::addr::{HostPa, Span};
use crate::port::{BadHostRange, DmaMemory};
use crate::sync::Ordering;

/// No machine has host memory there: a device's host addresses end below.
const OUTSIDE: HostPa = HostPa::new(1 << 62);
/// The rule of every refusal.
const REFUSED: &str = "a range that leaves host memory is refused with its address and size";

/// Bytes go in and come out by address, as bytes and as words, whatever the alignment; an access
/// that leaves host memory does nothing and says which.
///
/// `range` is the caller's own, of at least two pages; its bytes are overwritten.
///
/// # Errors
/// The rule that it breaks.
pub fn check(memory: &dyn DmaMemory, range: Span<HostPa>) -> Result<(), Violation> {
    hold!(
        range.size_bytes() >= 2 * PAGE_SIZE_BYTES,
        "the check has two pages to work in",
        "{range}"
    );
    bytes_are_kept(memory, range)?;
    a_fill_sets_its_range_alone(memory, range)?;
    words_are_the_same_memory(memory, range)?;
    misaligned_words_are_refused(memory, range)?;
    what_leaves_host_memory_is_refused(memory, range)
}

fn bytes_are_kept(memory: &dyn DmaMemory, range: Span<HostPa>) -> Result<(), Violation> {
    let mut expected = pattern(1, 2 * 4096);
    put(memory, range.start(), &expected)?;
    // (offset, size): across a page, within a word, one byte, nothing.
    for (offset, size) in [(4090, 13), (5, 2), (8191, 1), (100, 0)] {
        let piece = pattern(2, size);
        put(memory, above(range, offset)?, &piece)?;
        expected[offset..offset + size].copy_from_slice(&piece);
        let back = get(memory, above(range, offset)?, size)?;
        hold!(
            back == piece,
            "what was written is read back",
            "{}",
            difference(&piece, &back)
        );
        let all = get(memory, range.start(), expected.len())?;
        hold!(
            all == expected,
            "a write changes its range alone",
            "{}",
            difference(&expected, &all)
        );
    }
    Ok(())
}

fn a_fill_sets_its_range_alone(
    memory: &dyn DmaMemory,
    range: Span<HostPa>,
) -> Result<(), Violation> {
    let mut expected = pattern(3, 2 * 4096);
    put(memory, range.start(), &expected)?;
    for (offset, size, value) in [(3, 4100, 0xa5), (8190, 2, 0), (17, 1, 0xff), (50, 0, 7)] {
        memory
            .fill(above(range, offset)?, bytes_of(size), value)
            .must("a range within host memory is accessible")?;
        expected[offset..offset + size].fill(value);
        let all = get(memory, range.start(), expected.len())?;
        hold!(
            all == expected,
            "a fill sets every byte of its range and no other",
            "{}",
            difference(&expected, &all)
        );
    }
    Ok(())
}

fn words_are_the_same_memory(memory: &dyn DmaMemory, range: Span<HostPa>) -> Result<(), Violation> {
    let bytes = pattern(4, 4096);
    put(memory, range.start(), &bytes)?;
    let words = memory
        .words(above(range, 12)?, 64)
        .must("a range within host memory is accessible")?;
    hold!(
        words.len() == 16,
        "a range has a word for each four bytes",
        "{} for 64 bytes",
        words.len()
    );
    for (word, four) in words.iter().zip(bytes[12..].chunks_exact(4)) {
        let found = word.load(Ordering::Relaxed).to_le_bytes();
        hold!(
            found == four,
            "a word is four bytes of memory, the lowest first",
            "{found:02x?} for {four:02x?}"
        );
    }
    words[3].store(0x0403_0201, Ordering::Relaxed);
    let back = get(memory, above(range, 24)?, 4)?;
    hold!(
        back == [1, 2, 3, 4],
        "a store into a word is seen by a read",
        "{back:02x?}"
    );
    put(memory, above(range, 24)?, &[5, 6, 7, 8])?;
    let found = words[3].load(Ordering::Relaxed);
    hold!(
        found == 0x0807_0605,
        "a write is seen by the words that were fetched before",
        "{found:#010x}"
    );
    let none = memory.words(range.start(), 0);
    hold!(
        none.is_ok_and(<[_]>::is_empty),
        "no words are within any range",
        "{none:?}"
    );
    Ok(())
}

fn misaligned_words_are_refused(
    memory: &dyn DmaMemory,
    range: Span<HostPa>,
) -> Result<(), Violation> {
    for (offset, size_bytes) in [(1, 4), (2, 8), (0, 6), (4, 3)] {
        let at = above(range, offset)?;
        let refused = memory.words(at, size_bytes).map(<[_]>::len);
        hold!(
            refused == Err(BadHostRange { at, size_bytes }),
            "words that are not aligned are refused with their address and size",
            "{refused:?} for {size_bytes} bytes at {at}"
        );
    }
    Ok(())
}

fn what_leaves_host_memory_is_refused(
    memory: &dyn DmaMemory,
    range: Span<HostPa>,
) -> Result<(), Violation> {
    let before = pattern(5, 2 * 4096);
    put(memory, range.start(), &before)?;
    // The second one wraps.
    for at in [OUTSIDE, HostPa::new(u64::MAX - 3)] {
        let refusal = |size_bytes| Err(BadHostRange { at, size_bytes });
        let mut buffer = [0x5a; 8];
        let read = memory.read(at, &mut buffer);
        hold!(read == refusal(8), REFUSED, "read at {at}: {read:?}");
        hold!(
            buffer == [0x5a; 8],
            "a refused read copies nothing",
            "{buffer:02x?}"
        );
        let write = memory.write(at, &[1; 8]);
        hold!(write == refusal(8), REFUSED, "write at {at}: {write:?}");
        let words = memory.words(at, 8).map(|_| ());
        hold!(words == refusal(8), REFUSED, "words at {at}: {words:?}");
    }
    // They begin within host memory, and leave it.
    let at = range.start();
    for size_bytes in [1 << 62, u64::MAX - 3] {
        let refusal = BadHostRange { at, size_bytes };
        let fill = memory.fill(at, size_bytes, 0xee);
        hold!(fill == Err(refusal), REFUSED, "fill at {at}: {fill:?}");
        let words = memory.words(at, size_bytes).map(<[_]>::len);
        hold!(words == Err(refusal), REFUSED, "words at {at}: {words:?}");
    }
    let after = get(memory, at, before.len())?;
    hold!(
        after == before,
        "a refused access changes nothing",
        "{}",
        difference(&before, &after)
    );
    Ok(())
}

/// The address this far up in the range.
pub(super) fn above(range: Span<HostPa>, offset: usize) -> Result<HostPa, Violation> {
    let at = range.start().checked_add(bytes_of(offset));
    at.must("a range does not wrap")
}

/// Writes within host memory.
pub(super) fn put(memory: &dyn DmaMemory, at: HostPa, bytes: &[u8]) -> Result<(), Violation> {
    memory
        .write(at, bytes)
        .must("a range within host memory is accessible")
}

/// Reads within host memory.
pub(super) fn get(memory: &dyn DmaMemory, at: HostPa, size: usize) -> Result<Vec<u8>, Violation> {
    let mut bytes = vec![0; size];
    memory
        .read(at, &mut bytes)
        .must("a range within host memory is accessible")?;
    Ok(bytes)
}
