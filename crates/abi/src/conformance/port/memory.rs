//! The other ways to the same memory: BAR4, and pinned user memory.

use super::rig::{BUFFER_SIZE_BYTES, Rig, copy};
use super::{PinFixture, PortFixture};
use crate::PAGE_SIZE_BYTES;
use crate::addr::{HostPa, Span};
use crate::conformance::{Must, Violation, bytes_of, difference, hold, pattern};
use crate::port::BadBar4Range;
use crate::transport::PinnedUser;
use crate::udma::MARKER;

/// Stores through BAR4 land in HBM, and are refused outside of it.
pub(super) fn check_bar4(fixture: &PortFixture<'_>) -> Result<(), Violation> {
    let [queue, _] = fixture.queues;
    let mut rig = Rig::new(fixture, queue)?;
    let stride = fixture.layout.profile().bar4_channel_stride_bytes;
    let (channel, in_channel) = fixture
        .layout
        .hbm_offset(fixture.hbm.start())
        .must("the fixture's HBM is HBM of the device")?;
    let window = u64::from(channel.get()) * stride;
    let mut expected = pattern(1, 8_192);
    rig.fill(0, &expected)?;
    rig.run(&[copy(rig.buffer_bus(0, 0)?, fixture.hbm.start(), 8_192)])?;
    for (offset, size) in [(0, 64), (4_095, 2), (100, 1), (9, 0)] {
        let bytes = pattern(2, size);
        fixture
            .port
            .bar4_write(window + in_channel + bytes_of(offset), &bytes)
            .must("BAR4 takes bytes for all of the HBM")?;
        expected[offset..offset + size].copy_from_slice(&bytes);
    }
    rig.run(&[copy(fixture.hbm.start(), rig.buffer_bus(1, 0)?, 8_192)])?;
    let found = rig.bytes(1, expected.len())?;
    hold!(
        found == expected,
        "a store through BAR4 lands in HBM, in its range alone",
        "{}",
        difference(&expected, &found)
    );

    let region_bytes = fixture.layout.region_size_bytes();
    let channels = u64::from(fixture.layout.channels());
    let mut outside = vec![channels * stride, u64::MAX - 3];
    if region_bytes < stride {
        outside.extend([window + region_bytes, window + region_bytes - 4]);
    }
    let mut last = fixture.layout.regions().skip(channel.index());
    let end = last
        .next()
        .map(Span::end)
        .and_then(|end| end.checked_sub(4));
    let last_four = copy(
        end.must("a channel has more bytes")?,
        rig.buffer_bus(1, 0)?,
        4,
    );
    rig.run(&[last_four])?;
    let before = rig.bytes(1, 4)?;
    let other: Vec<u8> = before.iter().chain(&before).map(|byte| !byte).collect();
    for offset in outside {
        let refused = fixture.port.bar4_write(offset, &other);
        let expected = BadBar4Range {
            offset,
            size_bytes: 8,
        };
        hold!(
            refused == Err(expected),
            "a store through BAR4 that leaves the HBM is refused with its numbers",
            "8 bytes at {offset:#x}: {refused:?}"
        );
    }
    rig.run(&[last_four])?;
    let after = rig.bytes(1, 4)?;
    hold!(
        after == before,
        "a refused store through BAR4 stores nothing",
        "{}",
        difference(&before, &after)
    );
    rig.end()
}

/// A device reaches user memory by its pins.
pub(super) fn check_pins(
    fixture: &PortFixture<'_>,
    pins: &PinFixture<'_>,
) -> Result<(), Violation> {
    let [queue, _] = fixture.queues;
    let mut rig = Rig::new(fixture, queue)?;
    let start = pins.writable.start();
    // Across a page, from within one.
    let at = start.checked_add(1_000).must("a buffer does not wrap")?;
    let size_bytes = PAGE_SIZE_BYTES;
    let pin = |write| {
        let pinned = pins.user.pin(at, size_bytes, write);
        pinned.must("the caller's own memory can be pinned")
    };
    let in_user = || -> Result<Vec<u8>, Violation> {
        let mut bytes = vec![0; 2 * 4_096];
        let copied = pins.user.copy_in(start, &mut bytes);
        copied.must("the caller's own memory can be copied")?;
        Ok(bytes)
    };
    let set_user = |bytes: &[u8]| {
        let copied = pins.user.copy_out(start, bytes);
        copied.must("the caller's own memory can be copied")
    };

    // The device writes what is in the first buffer.
    let bytes = pattern(1, 4_096);
    rig.fill(0, &bytes)?;
    let mut expected = vec![0xee; 2 * 4_096];
    set_user(&expected)?;
    let pinned = pin(true)?;
    move_piecewise(&mut rig, 0, &pinned, true)?;
    expected[1_000..1_000 + 4_096].copy_from_slice(&bytes);
    let found = in_user()?;
    hold!(
        found == expected,
        "a device writes to pinned user memory, where its spans say",
        "{}",
        difference(&expected, &found)
    );
    // And reads them.
    move_piecewise(&mut rig, 1, &pinned, false)?;
    let found = rig.bytes(1, 4_096)?;
    hold!(
        found == bytes,
        "a device reads pinned user memory, where its spans say",
        "{}",
        difference(&bytes, &found)
    );

    // After the end of the pin, neither.
    fixture.memory.unpin(pinned.pin);
    refuses(
        &mut rig,
        &pinned,
        true,
        "a device does not write where a pin has ended",
    )?;
    refuses(
        &mut rig,
        &pinned,
        false,
        "a device does not read where a pin has ended",
    )?;
    let found = in_user()?;
    hold!(
        found == expected,
        "a device does not write where a pin has ended",
        "{}",
        difference(&expected, &found)
    );

    // Pinned for reading, it is read and not written.
    let pinned = pin(false)?;
    rig.fill(1, &[0; 4_096])?;
    move_piecewise(&mut rig, 1, &pinned, false)?;
    let found = rig.bytes(1, 4_096)?;
    hold!(
        found == bytes,
        "a device reads memory that was pinned for reading",
        "{}",
        difference(&bytes, &found)
    );
    rig.fill(0, &pattern(2, 4_096))?;
    refuses(
        &mut rig,
        &pinned,
        true,
        "a device does not write what was pinned for reading",
    )?;
    let found = in_user()?;
    hold!(
        found == expected,
        "a device does not write what was pinned for reading",
        "{}",
        difference(&expected, &found)
    );
    fixture.memory.unpin(pinned.pin);
    rig.end()
}

/// Moves a buffer's first bytes to the spans of a pin, or theirs to it.
fn move_piecewise(
    rig: &mut Rig<'_>,
    buffer: u64,
    pinned: &PinnedUser,
    to_user: bool,
) -> Result<(), Violation> {
    let mut offset = 0;
    for span in &pinned.spans {
        let here = rig.buffer_bus(buffer, offset)?;
        let there = rig.bus(span.start());
        offset += span.size_bytes();
        hold!(
            offset <= BUFFER_SIZE_BYTES,
            "the spans of a pin hold as many bytes as its range",
            "{offset} and more"
        );
        let transfer = match to_user {
            true => copy(here, there, span.size_bytes()),
            false => copy(there, here, span.size_bytes()),
        };
        rig.run(&[transfer])?;
    }
    Ok(())
}

/// A transfer with the first span of a pin stops the queue; it is revived afterwards.
fn refuses(
    rig: &mut Rig<'_>,
    pinned: &PinnedUser,
    to_user: bool,
    rule: &'static str,
) -> Result<(), Violation> {
    let span: &Span<HostPa> = pinned.spans.first().must("a pin has a span")?;
    let (here, there) = (rig.buffer_bus(0, 0)?, rig.bus(span.start()));
    let size_bytes = span.size_bytes().min(64);
    rig.stage(match to_user {
        true => copy(here, there, size_bytes),
        false => copy(there, here, size_bytes),
    })?;
    rig.stage_marker(MARKER)?;
    rig.announce()?;
    rig.has_stopped(rule)?;
    rig.bring_up()
}
