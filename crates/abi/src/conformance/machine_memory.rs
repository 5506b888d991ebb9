//! Rules of [`MachineMemory`], those of its parts included.

use super::dma_memory::{get, put};
use super::host_memory::{give, take};
use super::{Must, Violation, difference, dma_memory, hold, host_memory, pattern};
use crate::PAGE_SIZE_BYTES;
use crate::handle::{DeviceId, PinId};
use crate::port::MachineMemory;

/// All that [`host_memory::check`] and [`dma_memory::check`] ask; and every range that was
/// allocated can be reached by address and keeps its bytes while it is alive. Ending a pin that
/// never was does nothing.
///
/// Needs 2 MiB of free host memory, of which nobody else takes any meanwhile.
///
/// # Errors
/// The rule that it breaks.
pub fn check(memory: &dyn MachineMemory, device: DeviceId) -> Result<(), Violation> {
    host_memory::check(memory, device)?;
    let range = take(memory, device, 2 * PAGE_SIZE_BYTES)?;
    dma_memory::check(memory, range)?;
    give(memory, device, range);
    live_ranges_keep_their_bytes(memory, device)
}

fn live_ranges_keep_their_bytes(
    memory: &dyn MachineMemory,
    device: DeviceId,
) -> Result<(), Violation> {
    let mut live = Vec::new();
    for (seed, size_pages) in (0..).zip([1, 3, 2, 8, 1, 1, 4]) {
        let range = take(memory, device, size_pages * PAGE_SIZE_BYTES)?;
        let words = memory
            .words(range.start(), range.size_bytes())
            .must("every word of a range that was allocated can be reached")?;
        let bytes = pattern(seed, 4 * words.len());
        put(memory, range.start(), &bytes)?;
        live.push((range, bytes));
    }
    // Others come and go beside them.
    give(memory, device, live.remove(3).0);
    give(memory, device, live.remove(0).0);
    let newcomer = take(memory, device, 2 * PAGE_SIZE_BYTES)?;
    put(memory, newcomer.start(), &[0xff; 2 * 4096])?;
    // Ending a pin that is none is not an error.
    memory.unpin(PinId(u64::MAX));
    memory.unpin(PinId(u64::MAX));
    for (range, bytes) in &live {
        let found = get(memory, range.start(), bytes.len())?;
        hold!(
            found == *bytes,
            "a range keeps its bytes until it is given back",
            "{range}: {}",
            difference(bytes, &found)
        );
    }
    for (range, _) in live {
        give(memory, device, range);
    }
    give(memory, device, newcomer);
    Ok(())
}
