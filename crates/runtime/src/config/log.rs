//! Which log lines, and where to.

/// The least serious line that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// None at all.
    Quiet,
    /// Errors, out-of-memory reports among them, and what is called for
    /// ([`log_oom_report`](crate::Runtime::log_oom_report), [`log_events`](crate::Runtime::log_events)):
    /// the reference's default.
    Error,
    /// Warnings, too.
    Warn,
    /// What a model owns after its load. No line is less serious here, so that this is all, and the
    /// default of a program that sets nothing.
    #[default]
    Info,
    /// As `Info`: there are no such lines.
    Debug,
    /// As `Info`: there are no such lines.
    Trace,
}

impl LogLevel {
    /// The level of a name of the reference's, whatever its case; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let known = [
            ("QUIET", Self::Quiet),
            ("ERROR", Self::Error),
            ("WARN", Self::Warn),
            ("INFO", Self::Info),
            ("DEBUG", Self::Debug),
            ("TRACE", Self::Trace),
        ];
        let mut known = known.into_iter();
        let found = known.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, level)| level)
    }
}

/// Where log lines are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LogLocation {
    /// On the console.
    #[default]
    Console,
    /// With the system's log.
    Syslog,
    /// In a file.
    File,
}

impl LogLocation {
    /// The place of a name of the reference's, whatever its case; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let known = [
            ("console", Self::Console),
            ("syslog", Self::Syslog),
            ("file", Self::File),
        ];
        let mut known = known.into_iter();
        let found = known.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, location)| location)
    }
}
