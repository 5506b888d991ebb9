//! The host memory of a trace: a DMA allocator whose answers the trace decides.
//!
//! A request is rounded up to whole pages. It is granted unless, looked at in this order,
//!
//! 1. its size is 0,
//! 2. the [`Script`] says that it fails,
//! 3. it is larger than the largest single request,
//! 4. it would take the total above the capacity.
//!
//! Addresses are of no interest to a trace; they come first-fit from the 4 GiB that a device can
//! reach, without page 0.

use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{Alignment, HostPa};
use glia_abi::handle::DeviceId;
use glia_abi::port::HostMemory;
use glia_driver::arena::{Arena, ExtentTree};

use super::script::Script;

/// Number of the first page that is handed out; page 0 never is.
const FIRST_PAGE: u64 = 1;
/// Pages from there to 4 GiB.
const PAGES: u32 = (1 << 20) - 1;

/// Host memory that fails when the trace says so.
pub struct ScriptedHost(Mutex<State>);

struct State {
    arena: ExtentTree,
    script: Script,
    capacity_bytes: u64,
    alloc_bytes_max: u64,
    used_bytes: u64,
}

impl ScriptedHost {
    /// All free: `capacity_bytes` in all, `alloc_bytes_max` at once, failing by `script`.
    #[must_use]
    pub fn new(capacity_bytes: u64, alloc_bytes_max: u64, script: Script) -> Self {
        Self(Mutex::new(State {
            arena: ExtentTree::new(FIRST_PAGE, PAGES),
            script,
            capacity_bytes,
            alloc_bytes_max,
            used_bytes: 0,
        }))
    }

    /// Replaces the script.
    pub fn set_script(&self, script: Script) {
        self.state().script = script;
    }

    /// Bytes handed out and not given back.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whole pages of a size; `None` for none, and for more than there could be.
fn pages(size_bytes: u64) -> Option<(u32, u64)> {
    let size_bytes = NonZeroU64::new(Alignment::PAGE.round_up(size_bytes)?)?.get();
    let count = u32::try_from(size_bytes / PAGE_SIZE_BYTES).ok()?;
    Some((count, size_bytes))
}

impl HostMemory for ScriptedHost {
    fn alloc(&self, _device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        if size_bytes == 0 {
            return None;
        }
        let mut state = self.state();
        if state.script.strikes() {
            return None;
        }
        let (count, size_bytes) = pages(size_bytes)?;
        let used_bytes = state.used_bytes.checked_add(size_bytes)?;
        if size_bytes > state.alloc_bytes_max || used_bytes > state.capacity_bytes {
            return None;
        }
        let page = state.arena.alloc(count)?;
        state.used_bytes = used_bytes;
        state.script.succeeded();
        Some(HostPa::new(
            (FIRST_PAGE + u64::from(page)) * PAGE_SIZE_BYTES,
        ))
    }

    /// What was not handed out is not taken back, and stays in the total: the trace's `host_used`
    /// and `host_left` then tell.
    fn free(&self, _device: DeviceId, at: HostPa, size_bytes: u64) {
        let mut state = self.state();
        let page = at.align_down(Alignment::PAGE).get() / PAGE_SIZE_BYTES;
        let page = page
            .checked_sub(FIRST_PAGE)
            .and_then(|page| u32::try_from(page).ok());
        if let (Some(page), Some((count, size_bytes))) = (page, pages(size_bytes))
            && state.arena.free(page, count).is_ok()
        {
            state.used_bytes = state.used_bytes.saturating_sub(size_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Failures;
    use super::*;

    const DEVICE: DeviceId = DeviceId::new(0);

    fn host(capacity_bytes: u64, script: Script) -> ScriptedHost {
        ScriptedHost::new(capacity_bytes, 4 << 20, script)
    }

    fn failing(after: u64, failures: Failures) -> Script {
        Script { after, failures }
    }

    #[test]
    fn sizes_count_in_whole_pages_and_come_back() {
        let host = host(1 << 20, Script::NONE);
        let at = host.alloc(DEVICE, 1).unwrap();
        assert!(at.is_aligned(Alignment::PAGE) && at.get() != 0);
        assert_eq!(host.used_bytes(), 4096);
        host.free(DEVICE, at, 1);
        assert_eq!(host.used_bytes(), 0);
    }

    #[test]
    fn capacity_and_largest_request_are_inclusive() {
        let host = host(8 << 20, Script::NONE);
        assert_eq!(host.alloc(DEVICE, (4 << 20) + 1), None);
        assert!(host.alloc(DEVICE, 4 << 20).is_some());
        assert!(host.alloc(DEVICE, 4 << 20).is_some());
        assert_eq!(host.alloc(DEVICE, 1), None);
    }

    #[test]
    fn a_size_of_zero_is_refused_before_the_script_is_asked() {
        let host = host(1 << 20, failing(0, Failures::Next(1)));
        assert_eq!(host.alloc(DEVICE, 0), None);
        assert_eq!(host.alloc(DEVICE, 4096), None);
        assert!(host.alloc(DEVICE, 4096).is_some());
    }

    #[test]
    fn a_request_that_is_refused_anyway_uses_up_a_scripted_failure() {
        let host = host(1 << 20, failing(0, Failures::Next(1)));
        assert_eq!(host.alloc(DEVICE, 2 << 20), None);
        assert!(host.alloc(DEVICE, 4096).is_some());
    }

    #[test]
    fn only_successes_count_before_the_first_scripted_failure() {
        let host = host(1 << 20, failing(1, Failures::Next(1)));
        assert_eq!(host.alloc(DEVICE, 2 << 20), None);
        assert!(host.alloc(DEVICE, 4096).is_some());
        assert_eq!(host.alloc(DEVICE, 4096), None);
        assert!(host.alloc(DEVICE, 4096).is_some());
    }

    #[test]
    fn freeing_what_was_not_taken_leaves_the_total() {
        let host = host(1 << 20, Script::NONE);
        let at = host.alloc(DEVICE, 4096).unwrap();
        host.free(DEVICE, at, 8192);
        host.free(DEVICE, HostPa::new(0), 4096);
        assert_eq!(host.used_bytes(), 4096);
    }
}
