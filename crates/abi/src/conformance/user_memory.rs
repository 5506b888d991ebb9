//! Rules of [`UserMemory`] and [`CapturedMemory`](crate::transport::CapturedMemory).

use super::{Must, Violation, bytes_of, difference, hold, pattern};
use crate::PAGE_SIZE_BYTES;
use crate::addr::{Alignment, Span, UserAddr};
use crate::port::MachineMemory;
use crate::transport::{PinFault, PinnedUser, UserFault, UserMemory};

/// What the check drives a process's memory with.
#[derive(Clone, Copy)]
pub struct UserFixture<'a> {
    /// What the calling process may use during the check.
    pub memory: &'a dyn UserMemory,
    /// Where its pins are ended.
    pub machine: &'a dyn MachineMemory,
    /// Where a buffer begins that may be read and not written.
    pub readable: UserAddr,
    /// What that buffer holds, all of it: 256 bytes at least.
    pub content: &'a [u8],
    /// A lent buffer that may be read and written, of 2 pages at least; it is overwritten.
    pub writable: Span<UserAddr>,
    /// Memory that outlives the call, of 2 pages at least; `None` if the process has none.
    pub lasting: Option<Span<UserAddr>>,
    /// Where the process has nothing, for a page at least.
    pub outside: UserAddr,
}

/// Bytes go in and out where the caller may; any other address is a fault that does nothing and
/// names itself; pins say where each byte lies; lent memory does not outlive its call.
///
/// # Errors
/// The rule that it breaks.
pub fn check(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    bytes_are_copied(fixture)?;
    bytes_in_place_are_those_that_nobody_writes(fixture)?;
    memory_lent_for_reading_is_not_written(fixture)?;
    addresses_outside_are_faults(fixture)?;
    ranges_that_leave_their_buffer_are_faults(fixture)?;
    nothing_is_never_a_fault(fixture)?;
    pins_say_where_each_byte_lies(fixture)?;
    pins_are_faults_where_copies_are(fixture)?;
    pins_end(fixture)?;
    only_lasting_memory_is_captured(fixture)
}

const COPIED: &str = "the caller's own memory can be copied";
const PINNED: &str = "the caller's own memory can be pinned";
const NAMED: &str = "an address that is not the caller's is a fault that names the whole range";

fn bytes_are_copied(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    // (offset, size): all of it, odd pieces, the last byte.
    let size = fixture.content.len();
    for (offset, size) in [(0, size), (1, 7), (100, 33), (size - 1, 1)] {
        let expected = fixture
            .content
            .get(offset..offset + size)
            .must("the fixture has 256 bytes to read")?;
        let mut found = vec![0; size];
        let from = above(fixture.readable, offset)?;
        fixture.memory.copy_in(from, &mut found).must(COPIED)?;
        hold!(
            found == expected,
            "the caller's bytes come in",
            "{}",
            difference(expected, &found)
        );
    }
    let start = fixture.writable.start();
    let mut expected = pattern(1, 2 * 4096);
    fixture.memory.copy_out(start, &expected).must(COPIED)?;
    for (offset, size) in [(3, 5), (4090, 20), (8191, 1)] {
        let piece = pattern(2, size);
        let to = above(start, offset)?;
        fixture.memory.copy_out(to, &piece).must(COPIED)?;
        expected[offset..offset + size].copy_from_slice(&piece);
        let mut found = vec![0; expected.len()];
        fixture.memory.copy_in(start, &mut found).must(COPIED)?;
        hold!(
            found == expected,
            "bytes go out where they were sent, and nowhere else",
            "{}",
            difference(&expected, &found)
        );
    }
    Ok(())
}

fn bytes_in_place_are_those_that_nobody_writes(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    let size = fixture.content.len();
    for (offset, size) in [(0, size), (1, 7), (size - 1, 1)] {
        let at = above(fixture.readable, offset)?;
        let found = fixture.memory.bytes(at, size as u64);
        hold!(
            found.is_none() || found == fixture.content.get(offset..offset + size),
            "bytes in place are the caller's",
            "{size} from {offset}: {found:02x?}"
        );
    }
    let beyond = fixture.memory.bytes(fixture.readable, u64::MAX);
    let outside = fixture.memory.bytes(fixture.outside, 8);
    hold!(
        beyond.is_none() && outside.is_none(),
        "what is not the caller's is not there in place",
        "{beyond:02x?}, {outside:02x?}"
    );
    let lasting = fixture.lasting.map(|lasting| lasting.start());
    for at in [Some(fixture.writable.start()), lasting]
        .into_iter()
        .flatten()
    {
        let found = fixture.memory.bytes(at, 8);
        hold!(
            found.is_none(),
            "what may be written is not there in place",
            "{found:02x?}"
        );
    }
    Ok(())
}

fn memory_lent_for_reading_is_not_written(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    let to = fixture.readable;
    let refused = fixture.memory.copy_out(to, &[0xff; 8]);
    let fault = UserFault {
        at: to,
        size_bytes: 8,
    };
    hold!(
        refused == Err(fault),
        "memory that may only be read is not written",
        "{refused:?}"
    );
    let mut found = [0; 8];
    fixture.memory.copy_in(to, &mut found).must(COPIED)?;
    hold!(
        fixture.content.starts_with(&found),
        "a fault copies nothing",
        "{found:02x?}"
    );
    Ok(())
}

/// Every allegation of 8 bytes that no caller may use.
fn addresses_outside_are_faults(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    let wild = [
        fixture.outside,
        UserAddr::new(0),
        UserAddr::new(u64::MAX - 3),
        UserAddr::new(1 << 63),
    ];
    for at in wild {
        let fault = UserFault { at, size_bytes: 8 };
        let mut buffer = [0x5a; 8];
        let copied = fixture.memory.copy_in(at, &mut buffer);
        hold!(copied == Err(fault), NAMED, "from {at}: {copied:?}");
        hold!(
            buffer == [0x5a; 8],
            "a fault copies nothing",
            "{buffer:02x?}"
        );
        let copied = fixture.memory.copy_out(at, &[1; 8]);
        hold!(copied == Err(fault), NAMED, "to {at}: {copied:?}");
    }
    Ok(())
}

fn ranges_that_leave_their_buffer_are_faults(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    let size = fixture.content.len();
    let at = above(fixture.readable, size - 4)?;
    let mut buffer = [0x5a; 64];
    let copied = fixture.memory.copy_in(at, &mut buffer);
    let fault = UserFault { at, size_bytes: 64 };
    hold!(copied == Err(fault), NAMED, "across the end: {copied:?}");
    hold!(
        buffer == [0x5a; 64],
        "a fault copies nothing",
        "{buffer:02x?}"
    );
    let end = fixture.writable.end();
    let at = end
        .checked_sub(4)
        .must("the fixture has 2 pages to write")?;
    fixture.memory.copy_out(at, &[1, 2, 3, 4]).must(COPIED)?;
    let copied = fixture.memory.copy_out(at, &[9; 64]);
    let fault = UserFault { at, size_bytes: 64 };
    hold!(copied == Err(fault), NAMED, "across the end: {copied:?}");
    let mut found = [0; 4];
    fixture.memory.copy_in(at, &mut found).must(COPIED)?;
    hold!(
        found == [1, 2, 3, 4],
        "a fault copies nothing",
        "{found:02x?} before the end"
    );
    let start = fixture.writable.start();
    let at = start.checked_sub(1).must("a buffer lies above 0")?;
    let copied = fixture.memory.copy_out(at, &[7; 2]);
    let fault = UserFault { at, size_bytes: 2 };
    hold!(copied == Err(fault), NAMED, "before the start: {copied:?}");
    Ok(())
}

fn nothing_is_never_a_fault(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    for at in [
        fixture.outside,
        UserAddr::new(0),
        UserAddr::new(u64::MAX),
        fixture.readable,
        fixture.writable.end(),
    ] {
        let copied = fixture.memory.copy_in(at, &mut []);
        hold!(
            copied.is_ok(),
            "a range of 0 bytes is never a fault",
            "copying in from {at}: {copied:?}"
        );
        let copied = fixture.memory.copy_out(at, &[]);
        hold!(
            copied.is_ok(),
            "a range of 0 bytes is never a fault",
            "copying out to {at}: {copied:?}"
        );
        let checked = fixture.memory.check(at, 0, true);
        hold!(
            checked.is_ok(),
            "a range of 0 bytes is never a fault",
            "at {at}: {checked:?}"
        );
        let pinned = fixture.memory.pin(at, 0, true);
        hold!(
            !matches!(pinned, Err(PinFault::Fault(_))),
            "a range of 0 bytes is never a fault",
            "pinning at {at}: {pinned:?}"
        );
        if let Ok(pinned) = pinned {
            fixture.machine.unpin(pinned.pin);
        }
    }
    Ok(())
}

fn pins_say_where_each_byte_lies(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    let start = fixture.writable.start();
    // (offset, size): all pages, a piece across pages, one byte, a piece of one page.
    for (offset, size_bytes) in [(0, 8192), (4090, 13), (5, 1), (4097, 4000)] {
        let at = above(start, offset)?;
        for write in [true, false] {
            let pinned = fixture.memory.pin(at, size_bytes, write).must(PINNED)?;
            spans_are_whole(&pinned, at, size_bytes)?;
            fixture.machine.unpin(pinned.pin);
        }
    }
    let size_bytes = bytes_of(fixture.content.len());
    let pinned = fixture
        .memory
        .pin(fixture.readable, size_bytes, false)
        .must(PINNED)?;
    spans_are_whole(&pinned, fixture.readable, size_bytes)?;
    fixture.machine.unpin(pinned.pin);
    Ok(())
}

/// The spans hold as many bytes as the range, and meet at borders of pages.
fn spans_are_whole(pinned: &PinnedUser, at: UserAddr, size_bytes: u64) -> Result<(), Violation> {
    let sizes = pinned.spans.iter().map(|span| span.size_bytes());
    let sum_bytes: u64 = sizes.clone().fold(0, u64::saturating_add);
    hold!(
        sum_bytes == size_bytes,
        "the spans of a pin hold as many bytes as its range",
        "{sum_bytes} of {size_bytes}"
    );
    hold!(
        sizes.clone().all(|span_bytes| span_bytes > 0),
        "no span of a pin is empty",
        "{:?}",
        pinned.spans
    );
    let in_page = |address: u64| address % PAGE_SIZE_BYTES;
    if let Some(first) = pinned.spans.first() {
        hold!(
            in_page(first.start().get()) == in_page(at.get()),
            "the first span starts at the range's offset in its page",
            "{first} for {at}"
        );
    }
    for pair in pinned.spans.windows(2) {
        hold!(
            pair[0].end().is_aligned(Alignment::PAGE)
                && pair[1].start().is_aligned(Alignment::PAGE),
            "the spans of a pin meet at borders of pages",
            "{} and {}",
            pair[0],
            pair[1]
        );
    }
    Ok(())
}

fn pins_are_faults_where_copies_are(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    let end = fixture.writable.end();
    let tail = end
        .checked_sub(4)
        .must("the fixture has 2 pages to write")?;
    let wild = [
        (fixture.readable, 8, true),
        (fixture.outside, 8, false),
        (tail, 64, false),
        (UserAddr::new(u64::MAX - 3), 8, false),
        (fixture.writable.start(), 1 << 62, true),
        (fixture.writable.start(), u64::MAX, true),
    ];
    for (at, size_bytes, write) in wild {
        let fault = UserFault { at, size_bytes };
        let checked = fixture.memory.check(at, size_bytes, write);
        hold!(
            checked == Err(fault),
            "what the caller may not use so is told when it is checked",
            "{size_bytes} bytes at {at}, to be written: {write}: {checked:?}"
        );
        let pinned = fixture.memory.pin(at, size_bytes, write);
        hold!(
            pinned == Err(PinFault::Fault(fault)),
            "what the caller may not use so cannot be pinned, and the fault names it",
            "{size_bytes} bytes at {at}, to be written: {write}: {pinned:?}"
        );
    }
    Ok(())
}

fn pins_end(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    for (at, write) in [(fixture.readable, false), (fixture.writable.start(), true)] {
        let checked = fixture.memory.check(at, 8, write);
        checked.must("the caller's own memory is found when it is checked")?;
    }
    let pin = || {
        let start = fixture.writable.start();
        fixture.memory.pin(start, PAGE_SIZE_BYTES, true)
    };
    let mut ids = Vec::new();
    // Far more than could be pinned at a time, if each pin stayed.
    for _ in 0..2_000 {
        let pinned = pin().must("a pin that has ended makes room")?;
        ids.push(pinned.pin);
        fixture.machine.unpin(pinned.pin);
    }
    let first = pin().must(PINNED)?;
    let second = pin().must("the same memory can be pinned twice")?;
    ids.extend([first.pin, second.pin]);
    // One is over and was over before; the other is not.
    fixture.machine.unpin(first.pin);
    fixture.machine.unpin(first.pin);
    let third = pin().must(PINNED)?;
    ids.push(third.pin);
    fixture.machine.unpin(second.pin);
    fixture.machine.unpin(third.pin);
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    hold!(
        ids.len() == count,
        "the id of a pin is never used twice",
        "{} ids of {count} pins",
        ids.len()
    );
    Ok(())
}

fn only_lasting_memory_is_captured(fixture: &UserFixture<'_>) -> Result<(), Violation> {
    let lent = fixture.writable;
    for (at, size_bytes) in [
        (lent.start(), lent.size_bytes()),
        (fixture.readable, 8),
        (fixture.outside, 8),
        (UserAddr::new(u64::MAX - 3), 8),
    ] {
        let captured = fixture.memory.capture(at, size_bytes);
        hold!(
            captured.is_none(),
            "only memory that outlives the call is captured",
            "{size_bytes} bytes at {at}"
        );
    }
    let Some(lasting) = fixture.lasting else {
        return Ok(());
    };
    let across = fixture
        .memory
        .capture(lasting.start(), lasting.size_bytes() + 1);
    hold!(
        across.is_none(),
        "only memory that outlives the call is captured",
        "one byte more than {lasting}"
    );
    let at = above(lasting.start(), 4090)?;
    let captured = fixture
        .memory
        .capture(at, 100)
        .must("memory that outlives the call is captured")?;
    for (offset, size_bytes, write) in [(0, 100, true), (0, 100, false), (7, 93, true)] {
        let pinned = captured
            .pin(offset, size_bytes, write)
            .must("captured memory can be pinned")?;
        let at = at.checked_add(offset).must("a buffer does not wrap")?;
        spans_are_whole(&pinned, at, size_bytes)?;
        fixture.machine.unpin(pinned.pin);
    }
    for (offset, size_bytes) in [(1, 100), (101, 1), (u64::MAX, 2)] {
        hold!(
            captured.pin(offset, size_bytes, false).is_err(),
            "what leaves the captured range is not pinned",
            "{size_bytes} bytes at offset {offset} of 100"
        );
    }
    Ok(())
}

/// The address this far up.
fn above(at: UserAddr, offset: usize) -> Result<UserAddr, Violation> {
    at.checked_add(bytes_of(offset))
        .must("a buffer does not wrap")
}
