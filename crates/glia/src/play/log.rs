//! What the runtime logs while a workload runs, kept until somebody asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use glia_abi::handle::Pid;
use glia_abi::sched::Sched;
use glia_runtime::dml::{Log, LogContext};

/// The day on which a machine is switched on, so that two runs of one workload log the same.
const DAY: &str = "2026-Jan-01";
const MICROS_PER_SECOND: u64 = 1_000_000;

/// Keeps what was logged since the last [`clear`](Self::clear).
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

    /// Forgets everything.
    pub(super) fn clear(&self) {
        // Who asks has heard of the end of the calls that logged.
        if self.has_lines.load(Ordering::Relaxed) {
            self.take();
        }
    }

    /// What was logged, and forgets it.
    pub(super) fn take(&self) -> String {
        self.has_lines.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
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
