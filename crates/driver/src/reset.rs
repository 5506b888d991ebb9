//! When a device was last reset, and which copies that has disturbed (driver 2.24.7 and 2.27.4).
//!
//! A reset wipes out what the engines have under way. On generations whose profile says so, a copy
//! that timed out and [was under way](ResetWindow::covers) during a reset is staged again instead of
//! failing.
//!
//! How a reset comes about is told in [`dma::reset`](crate::dma::reset).
//!
//! Times come from the machine's clock, made strictly increasing: no two events of a device have the
//! same stamp, so that a reset always ends after it began, and a copy that begins after a reset has a
//! later stamp than its end, also while the clock stands still. A device comes to life with one reset
//! behind it. (In the reference a device that was never reset seems to be in one for ever, and
//! retries without end.)
//!
//! **Locks.** One mutex, held for a few instructions.

use std::sync::{Mutex, MutexGuard, PoisonError};

use glia_abi::sched::Tick;

/// The latest reset of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetWindow {
    /// When it began.
    pub start: Tick,
    /// When the latest reset that has ended did so: not after `start` while one is in progress.
    pub end: Tick,
}

impl ResetWindow {
    /// Whether a reset has disturbed what began at `started`: one is in progress, or began to be
    /// waited for before the latest one ended. There is no lower bound (driver 2.27).
    #[must_use]
    pub fn covers(self, started: Tick) -> bool {
        self.end <= self.start || started <= self.end
    }
}

/// A device's resets.
pub(crate) struct Resets(Mutex<State>);

struct State {
    /// The last stamp that was given out.
    last: Tick,
    /// None if the device is never reset (driver parameter `no_reset`).
    window: Option<ResetWindow>,
}

impl Resets {
    /// Of a device that comes to life now, with one reset behind it.
    pub(crate) fn new(now: Tick) -> Self {
        let mut state = State {
            last: now,
            window: None,
        };
        let start = state.stamp(now);
        let end = state.stamp(now);
        state.window = Some(ResetWindow { start, end });
        Self(Mutex::new(state))
    }

    /// A stamp for what begins now, later than all others.
    pub(crate) fn stamp(&self, now: Tick) -> Tick {
        self.lock().stamp(now)
    }

    /// A reset begins.
    pub(crate) fn began(&self, now: Tick) {
        let mut state = self.lock();
        let start = state.stamp(now);
        if let Some(window) = &mut state.window {
            window.start = start;
        }
    }

    /// A reset has ended, well or not.
    pub(crate) fn ended(&self, now: Tick) {
        let mut state = self.lock();
        let end = state.stamp(now);
        if let Some(window) = &mut state.window {
            window.end = end;
        }
    }

    /// Replaces what is known of resets.
    pub(crate) fn set(&self, window: Option<ResetWindow>) {
        self.lock().window = window;
    }

    /// Whether a reset has disturbed what began at `started`.
    pub(crate) fn cover(&self, started: Tick) -> bool {
        let window = self.lock().window;
        window.is_some_and(|window| window.covers(started))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn stamp(&mut self, now: Tick) -> Tick {
        self.last = now.max(Tick(self.last.0.saturating_add(1)));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(start: u64, end: u64, started: u64) -> bool {
        let (start, end) = (Tick(start), Tick(end));
        ResetWindow { start, end }.covers(Tick(started))
    }

    #[test]
    fn a_window_reaches_back_for_ever_and_ends_with_the_reset() {
        assert!(covers(10, 20, 0));
        assert!(covers(10, 20, 20));
        assert!(!covers(10, 20, 21));
    }

    #[test]
    fn a_reset_in_progress_covers_everything() {
        assert!(covers(20, 15, u64::MAX));
        assert!(covers(20, 20, u64::MAX));
        assert!(covers(0, 0, u64::MAX));
    }

    /// The clock stands still throughout.
    #[test]
    fn what_begins_after_a_reset_is_not_covered_by_it() {
        let now = Tick(7);
        let resets = Resets::new(now);
        let before = resets.stamp(now);
        assert!(!resets.cover(before));
        resets.began(now);
        assert!(resets.cover(before));
        let during = resets.stamp(now);
        resets.ended(now);
        assert!(resets.cover(before) && resets.cover(during));
        assert!(!resets.cover(resets.stamp(now)));
    }

    #[test]
    fn a_device_that_is_never_reset_covers_nothing() {
        let resets = Resets::new(Tick(0));
        resets.set(None);
        resets.began(Tick(5));
        assert!(!resets.cover(Tick(0)));
    }

    #[test]
    fn stamps_follow_the_clock_when_it_moves() {
        let resets = Resets::new(Tick(0));
        let stamps = [3, 3, 9, 4].map(|now| resets.stamp(Tick(now)));
        assert_eq!(stamps, [Tick(3), Tick(4), Tick(9), Tick(10)]);
    }
}
