//! What the runtimes of a workload report, how, and what of it is kept.

use std::sync::Arc;

use glia_abi::handle::DeviceId;
use glia_runtime::dml::{Dump, MemoryMetrics, ModelReport, ReportProfile};

/// Warnings that are kept of a run, each with the line that brought it.
const WARNINGS_MAX: usize = 20;
/// Log lines that are kept of one.
const WARNING_LINES_MAX: usize = 20;

/// How the runtimes of a workload report.
#[derive(Clone, Default)]
pub struct Reporting {
    /// The form of their reports.
    pub profile: ReportProfile,
    /// Whether the tables of reports have a column for each usage.
    pub verbose_tables: bool,
    /// Where the events of a device, and the chunks of an HBM, are written when there was no room; also
    /// if a line expects that.
    pub dump: Option<Arc<dyn Dump>>,
}

/// What the runtime had to say about an operation that succeeded: a page size that would do better, a
/// free that the driver refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The line of the first such operation.
    pub line: u64,
    /// How many brought the same.
    pub count: u64,
    /// What it logged about the first.
    pub log: String,
}

/// All warnings of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Warnings {
    /// The first that differ, in the order in which they came.
    pub kept: Vec<Warning>,
    /// Operations that brought one, those that are not kept among them.
    pub total: u64,
}

impl Warnings {
    /// Adds what was logged about an operation. All that differs is told apart, but for the first
    /// `time_len` letters of a line that begins with its time.
    pub(super) fn add(&mut self, line: u64, log: &str, time_len: usize) {
        self.total += 1;
        let log = cut(log);
        let untimed = |line: &str| {
            let is_timed = line.starts_with(|letter: char| letter.is_ascii_digit());
            let rest = if is_timed { line.get(time_len..) } else { None };
            rest.unwrap_or(line).to_owned()
        };
        let text = |log: &str| log.lines().map(untimed).collect::<Vec<_>>();
        let mut kept = self.kept.iter_mut();
        if let Some(known) = kept.find(|known| text(&known.log) == text(&log)) {
            known.count += 1;
        } else if self.kept.len() < WARNINGS_MAX {
            self.kept.push(Warning {
                line,
                count: 1,
                log,
            });
        }
    }
}

/// The first lines, and how many there are more.
fn cut(log: &str) -> String {
    let mut ends = log.match_indices('\n').map(|(at, _)| at + 1);
    match ends.nth(WARNING_LINES_MAX - 1) {
        Some(end) if end < log.len() => {
            let more = log[end..].lines().count();
            format!("{}({more} more lines)\n", &log[..end])
        }
        _ => log.to_owned(),
    }
}

/// A model that is loaded at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedModel {
    /// What the workload calls it.
    pub id: String,
    /// The process that loaded it.
    pub process: String,
    /// What it owns, and what its core holds.
    pub report: ModelReport,
    /// The block that the runtime logs of that, in the form of the run's reports.
    pub log: String,
}

/// What a process has of a device's memory at the end, by the counters that sysfs shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMetrics {
    /// The process.
    pub process: String,
    /// The device.
    pub device: DeviceId,
    /// The counters.
    pub metrics: MemoryMetrics,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_that_comes_again_is_counted_and_of_many_the_first_are_kept() {
        let mut warnings = Warnings::default();
        warnings.add(3, "00:01 a\n", 5);
        warnings.add(4, "00:01 b\n", 5);
        warnings.add(9, "00:02 a\n", 5);
        let kept = |line, count, log: &str| Warning {
            line,
            count,
            log: log.to_owned(),
        };
        let wanted = [kept(3, 2, "00:01 a\n"), kept(4, 1, "00:01 b\n")];
        assert_eq!(warnings.kept, wanted);
        for number in 0..100 {
            warnings.add(10 + number, &format!("00:03 {number}\n"), 5);
        }
        assert_eq!((warnings.kept.len(), warnings.total), (WARNINGS_MAX, 103));
    }

    #[test]
    fn of_a_long_warning_the_first_lines_are_kept_and_the_others_counted() {
        let long = "line\n".repeat(WARNING_LINES_MAX);
        assert_eq!(cut(&long), long);
        assert_eq!(cut(&(long.clone() + "x\ny")), long + "(2 more lines)\n");
        assert_eq!(cut(""), "");
    }

    #[test]
    fn a_warning_is_the_same_at_another_time_whatever_its_lines() {
        let log =
            |time: u32, last: &str| format!("00:{time:02} one\n  more\n00:{time:02} {last}\n");
        let mut warnings = Warnings::default();
        for (line, log) in [(1, log(7, "two")), (2, log(8, "two")), (3, log(9, "three"))] {
            warnings.add(line, &log, "00:00".len());
        }
        let counts = warnings.kept.iter().map(|kept| (kept.line, kept.count));
        assert_eq!(counts.collect::<Vec<_>>(), [(1, 2), (3, 1)]);
        assert_eq!(warnings.total, 3);
    }
}
