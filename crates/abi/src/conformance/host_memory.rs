//! Rules of [`HostMemory`].

use super::{Must, Violation, hold};
use crate::PAGE_SIZE_BYTES;
use crate::addr::{Alignment, HostPa, Span};
use crate::handle::DeviceId;
use crate::port::HostMemory;

/// One past the last address that coherent memory may have.
const LIMIT: u64 = 1 << 32;
/// Sizes of the ranges that are alive at the same time, in pages.
const SIZES_PAGES: [u64; 12] = [1, 2, 3, 16, 1, 5, 32, 1, 7, 1, 64, 2];
/// Taken and given back more often than it fits below the limit.
const CYCLE_SIZE_BYTES: u64 = 1 << 20;

/// Ranges are page-aligned, below 4 GiB and nobody else's; what was given back can be had again;
/// what cannot be had is refused.
///
/// Needs 2 MiB of free host memory, of which nobody else takes any meanwhile.
///
/// # Errors
/// The rule that it breaks.
pub fn check(memory: &dyn HostMemory, device: DeviceId) -> Result<(), Violation> {
    what_cannot_be_had_is_refused(memory, device)?;
    live_ranges_never_overlap(memory, device)?;
    ranges_of_several_threads_never_overlap(memory, device)?;
    what_is_given_back_can_be_had_again(memory, device)
}

fn what_cannot_be_had_is_refused(
    memory: &dyn HostMemory,
    device: DeviceId,
) -> Result<(), Violation> {
    let empty = memory.alloc(device, 0);
    hold!(empty.is_none(), "a size of 0 cannot be had", "{empty:?}");
    let beyond_bytes = [
        LIMIT + PAGE_SIZE_BYTES,
        1 << 40,
        Alignment::PAGE.round_down(u64::MAX),
    ];
    for size_bytes in beyond_bytes {
        let found = memory.alloc(device, size_bytes);
        hold!(
            found.is_none(),
            "what does not fit below 4 GiB cannot be had",
            "{size_bytes} bytes at {found:?}"
        );
    }
    Ok(())
}

fn live_ranges_never_overlap(memory: &dyn HostMemory, device: DeviceId) -> Result<(), Violation> {
    let mut live = Vec::new();
    for size_pages in SIZES_PAGES {
        live.push(take(memory, device, size_pages * PAGE_SIZE_BYTES)?);
        none_overlap(&live)?;
    }
    // Holes of several sizes, filled by ranges of others.
    for (round, size_pages) in SIZES_PAGES.into_iter().enumerate() {
        give(memory, device, live.remove(round * 5 % live.len()));
        live.push(take(memory, device, size_pages * PAGE_SIZE_BYTES)?);
        none_overlap(&live)?;
    }
    for range in live {
        give(memory, device, range);
    }
    Ok(())
}

fn ranges_of_several_threads_never_overlap(
    memory: &dyn HostMemory,
    device: DeviceId,
) -> Result<(), Violation> {
    let take_some = || -> Result<Vec<_>, Violation> {
        SIZES_PAGES
            .iter()
            .map(|size_pages| take(memory, device, size_pages * PAGE_SIZE_BYTES))
            .collect()
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(take_some);
        (take_some(), other.join())
    });
    let mut live = first?;
    live.extend(second.must("several threads may ask at a time")??);
    none_overlap(&live)?;
    for range in live {
        give(memory, device, range);
    }
    Ok(())
}

fn what_is_given_back_can_be_had_again(
    memory: &dyn HostMemory,
    device: DeviceId,
) -> Result<(), Violation> {
    for cycle in 0..=LIMIT / CYCLE_SIZE_BYTES {
        let at = memory.alloc(device, CYCLE_SIZE_BYTES);
        hold!(
            at.is_some(),
            "what was given back can be had again",
            "nothing after {cycle} ranges of {CYCLE_SIZE_BYTES} bytes, all given back"
        );
        if let Some(at) = at {
            memory.free(device, at, CYCLE_SIZE_BYTES);
        }
    }
    Ok(())
}

/// A range that there is room for.
pub(super) fn take(
    memory: &dyn HostMemory,
    device: DeviceId,
    size_bytes: u64,
) -> Result<Span<HostPa>, Violation> {
    let at = memory
        .alloc(device, size_bytes)
        .must("what there is room for can be had")?;
    hold!(
        at.is_aligned(Alignment::PAGE),
        "a range is page-aligned",
        "{size_bytes} bytes at {at}"
    );
    let range = Span::new(at, size_bytes).must("a range lies wholly below 4 GiB")?;
    hold!(
        range.end().get() <= LIMIT,
        "a range lies wholly below 4 GiB",
        "{range}"
    );
    Ok(range)
}

/// Gives a range back as it was taken.
pub(super) fn give(memory: &dyn HostMemory, device: DeviceId, range: Span<HostPa>) {
    memory.free(device, range.start(), range.size_bytes());
}

/// Every range against every other.
fn none_overlap(live: &[Span<HostPa>]) -> Result<(), Violation> {
    for (index, range) in live.iter().enumerate() {
        for other in &live[index + 1..] {
            hold!(
                !range.overlaps(*other),
                "live ranges never overlap",
                "{range} and {other}"
            );
        }
    }
    Ok(())
}
