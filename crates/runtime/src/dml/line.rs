//! The prefix of the runtime's log lines, and where they go.

use std::fmt;

/// What the runtime cannot know by itself and puts before each line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogContext {
    /// The time as it is to stand there: `2025-May-15 20:58:33.895937`.
    pub time: String,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

/// Where the runtime's log lines go.
///
/// It is called by whichever thread has something to say. That thread may hold a lock of the
/// runtime's, so a log does not call the runtime.
pub trait Log: Send + Sync {
    /// Time, process and thread of what is to be written now.
    fn context(&self) -> LogContext;

    /// Takes whole lines, each with its line feed. One call is one message or one report, however
    /// many lines that has, so that those of two threads cannot be mixed.
    fn write(&self, lines: &str);
}

/// How serious a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Level {
    /// Something failed.
    Error,
    /// Something is not as it should be, and does not matter yet.
    Warn,
    /// Worth knowing.
    Info,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
        }
    }
}

impl LogContext {
    /// A line of the device component: prefix, message, line feed. A function name of more than 40
    /// letters runs into the message, as in the reference.
    pub(crate) fn line(&self, level: Level, function: &str, message: impl fmt::Display) -> String {
        let Self { time, pid, tid } = self;
        let level = level.name();
        format!(
            "{time} {pid:>5}:{tid:<5} {level:>5} {:>5}:{function:<40}{message}\n",
            "TDRV"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lines of real logs: a short process number, and a function name that is too long.
    #[test]
    fn prefixes_are_those_of_real_logs() {
        let short = LogContext {
            time: "2023-Oct-02 08:17:45.0945".to_owned(),
            pid: 4703,
            tid: 4866,
        };
        assert_eq!(
            short.line(Level::Error, "dmem_alloc_internal", "Failed"),
            "2023-Oct-02 08:17:45.0945  4703:4866  ERROR  TDRV:dmem_alloc_internal                     Failed\n"
        );
        let long = LogContext {
            time: "2024-Jul-10 09:14:38.384665".to_owned(),
            pid: 12878,
            tid: 14359,
        };
        assert_eq!(
            long.line(
                Level::Error,
                "dma_ring_create_static_rings_for_queue_bundle_instance",
                "Failed to"
            ),
            "2024-Jul-10 09:14:38.384665 12878:14359 ERROR  TDRV:dma_ring_create_static_rings_for_queue_bundle_instanceFailed to\n"
        );
    }
}
