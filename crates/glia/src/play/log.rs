//! What the runtime logs while a workload runs, kept until somebody asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use glia_abi::handle::Pid;
use glia_abi::sched::Sched;
use glia_runtime::dml::{Log, LogContext};

/// The day on which a machine is switched on, so that two runs of one workload log the same.
const DAY: &str = "2026-Jan-01";
const MICROS_PER_SECOND: u64 = 1_000_000;

/// Letters of the time before a line.
pub(super) const TIME_LEN: usize = "2026-Jan-01 00:00:00.000000".len();

/// Keeps what was logged since it was last [taken](Self::take_any).
pub(super) struct Memo {
    pid: Pid,
    sched: Arc<dyn Sched>,
    lines: Mutex<String>,
    /// Whether there are lines, for those who look without the lock.
    has_lines: AtomicBool,
}

impl Memo {
    pub(super) fn new(pid: Pid, sched: Arc<dyn Sched>) -> Self {
        Self {
            pid,
            sched,
            lines: Mutex::default(),
            has_lines: AtomicBool::new(false),
        }
    }

    /// What was logged, if anything was, and forgets it.
    pub(super) fn take_any(&self) -> Option<String> {
        // Who asks has heard of the end of the calls that logged.
        if !self.has_lines.load(Ordering::Relaxed) {
            return None;
        }
        self.has_lines.store(false, Ordering::Relaxed);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        Some(std::mem::take(&mut lines))
    }
}

impl Log for Memo {
    fn context(&self) -> LogContext {
        let micros = self.sched.now().micros();
        let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        let time = format!(
            "{DAY} {hours:02}:{minutes:02}:{:02}.{fraction:06}",
            seconds % 60
        );
        let pid = self.pid.get();
        LogContext {
            time,
            pid,
            tid: pid,
        }
    }

    fn write(&self, lines: &str) {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(lines);
        self.has_lines.store(true, Ordering::Relaxed);
    }
}
