//! What a run has exercised of the driver and the device: which commands with which answers, and
//! which registers.
//!
//! ```text
//!   Process ─ ioctl ─► Driver ─ Event::Ioctl ─► Coverage (a Sink)
//!                        └─ Port ─► CoveredPort ─► Device
//!                                       └─ register read or written ─► Coverage
//! ```
//!
//! Nothing in the stack knows of it: commands are counted from the driver's events, registers by a
//! wrapper around the port. One `Coverage` may be shared by several machines; it adds up.
//!
//! **Locks.** One plain mutex, held for a few steps of a map. A machine that nobody covers has
//! neither.

mod port;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::arch::ArchProfile;
use glia_abi::event::{CommandClass, Detail, Event, Ids, Sink};
use glia_abi::ioctl::COMMANDS;
use glia_abi::port::Port;
use glia_abi::sched::Tick;
use glia_driver::command_of;

use port::{CoveredPort, RegisterName};
pub use report::{
    COVERAGE_FORMAT, CommandCoverage, CoverageReport, RegisterCoverage, UnusedCommand,
};

/// See the module.
#[derive(Default)]
pub struct Coverage {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    commands: BTreeMap<u32, Calls>,
    registers: BTreeMap<RegisterName, Accesses>,
    stray_accesses: u64,
}

/// How a command was answered.
#[derive(Clone, Default)]
struct Calls {
    /// By class: a command is in the wrong lane for one file and in the right one for another.
    classes: BTreeMap<&'static str, u64>,
    /// Answers of 0 and more.
    done: u64,
    /// By error number.
    errors: BTreeMap<i32, u64>,
}

#[derive(Clone, Copy, Default)]
struct Accesses {
    reads: u64,
    writes: u64,
}

impl Coverage {
    /// Nothing is covered yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A port that counts the registers that pass through it.
    pub(crate) fn cover(
        self: &Arc<Self>,
        port: Arc<dyn Port>,
        profile: &'static ArchProfile,
    ) -> Arc<dyn Port> {
        Arc::new(CoveredPort::new(port, profile, Arc::clone(self)))
    }

    fn count_register(&self, name: RegisterName, count: impl FnOnce(&mut Accesses)) {
        count(self.counts().registers.entry(name).or_default());
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been covered up to now, and what has not.
    #[must_use]
    pub fn report(&self) -> CoverageReport {
        let counts = self.counts();
        // Some commands have more words than one.
        let called: BTreeSet<_> = (counts.commands.keys())
            .filter_map(|&word| Some(command_of(word)?.word))
            .collect();
        CoverageReport {
            format: COVERAGE_FORMAT,
            commands: (counts.commands.iter())
                .map(|(&word, calls)| CommandCoverage::new(word, calls))
                .collect(),
            not_called: (COMMANDS.iter())
                .filter(|command| !called.contains(&command.word))
                .map(UnusedCommand::new)
                .collect(),
            registers: (counts.registers.iter())
                .map(|(name, &accesses)| RegisterCoverage::new(*name, accesses))
                .collect(),
            not_accessed: RegisterName::all()
                .filter(|name| !counts.registers.contains_key(name))
                .map(|name| name.to_string())
                .collect(),
            stray_accesses: counts.stray_accesses,
        }
    }
}

impl Sink for Coverage {
    fn detail(&self) -> Detail {
        Detail::Batches
    }

    fn event(&self, _at: Tick, _ids: &Ids, event: &Event) {
        match *event {
            Event::Ioctl { word, class, ret } => {
                let mut counts = self.counts();
                let calls = counts.commands.entry(word).or_default();
                *calls.classes.entry(class_name(class)).or_default() += 1;
                if ret < 0 {
                    *calls.errors.entry(-ret).or_default() += 1;
                } else {
                    calls.done += 1;
                }
            }
            Event::StrayRegister { .. } => self.counts().stray_accesses += 1,
            _ => {}
        }
    }
}

/// As events call it.
fn class_name(class: CommandClass) -> &'static str {
    match class {
        CommandClass::Built => "built",
        CommandClass::Unimplemented => "unimplemented",
        CommandClass::Unknown => "unknown",
        CommandClass::WrongLane => "wrong_lane",
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::ioctl::{MEM_BUF_ZEROCOPY64, MEM_MC_GET_INFO};

    use super::*;

    #[test]
    fn a_command_that_is_known_by_number_and_size_has_its_name_under_any_word() {
        let coverage = Coverage::new();
        let other_direction = MEM_MC_GET_INFO ^ 1 << 31;
        let other_size = MEM_BUF_ZEROCOPY64 ^ 4 << 16;
        for word in [other_direction, other_size] {
            let event = Event::Ioctl {
                word,
                class: glia_driver::command_of(word)
                    .map_or(CommandClass::Unknown, |_| CommandClass::Built),
                ret: 0,
            };
            coverage.event(Tick(0), &Ids::default(), &event);
        }
        let report = coverage.report();
        let names: Vec<_> = report.commands.iter().map(|it| it.name).collect();
        assert_eq!(names, [Some("MEM_MC_GET_INFO"), None]);
        let is_unused = |name| report.not_called.iter().any(|it| it.name == name);
        assert!(!is_unused("MEM_MC_GET_INFO"));
        assert!(is_unused("MEM_MC_GET_INFO_V2"), "another size");
        assert!(is_unused("MEM_BUF_ZEROCOPY64"));
    }
}
