//! Runs workloads: every operation goes from the runtime's API through ioctls, driver and
//! descriptors to the device, and every byte that comes back is compared.
//!
//! ```text
//!   Reader ──► Player ──► Program: Runtime ──► Process (ioctl bytes) ──► Driver ──► Device
//!                ├─ Store: which object is which part of which memory, and what was written there
//!                ├─ Peaks: what lived when most was in use
//!                └─ Recorder: the lines that were run, with where their memory lay
//! ```
//!
//! Every read is compared twice: what came back, and what lies in HBM, looked at past runtime and
//! driver.
//!
//! The run ends at the first operation that does not end as its line expects. What it leaves live is
//! part of the answer; it is given back when the machine goes.
//!
//! **Memory.** What is kept is what lives: objects, and for each the extents that were written; and
//! the names and sizes of what lived at the peak of an HBM. Patterns are made anew when they are
//! compared.

mod batch;
mod bytes;
pub mod compare;
mod counts;
pub mod explanation;
mod failure;
mod log;
mod object;
mod pattern;
mod peak;
mod player;
mod program;
mod record;
pub mod report;
mod reporting;
mod written;

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use glia_abi::event::{NoSink, Sink};
use glia_abi::fault::FaultPlan;
use glia_abi::handle::Pid;
use glia_runtime::RuntimeError;
use glia_runtime::dml::UsageTable;

use crate::coverage::Coverage;
use crate::events::Tee;
use crate::faults::{FaultsError, Laid, PlanFile, RuleReport};
use crate::machine::{Client, Machine, MachineConfig, MachineError, MachineFile, RunError};
use crate::workload::{Engine, Overrides, Reader, WorkloadError};
use player::Player;
use record::Recorder;

pub use counts::Counts;
pub use failure::{Failure, Found};
pub use pattern::Pattern;
pub use peak::{Named, Peak};
pub use reporting::{LoadedModel, ProcessMetrics, Reporting, Warning, Warnings};

/// Operations between two looks at the progress.
const OPERATIONS_PER_LOOK: u64 = 4096;
/// Bytes between two looks.
const BYTES_PER_LOOK: u64 = 64 << 20;

/// What a run came to.
#[derive(Debug)]
pub struct Played {
    /// What it ran on.
    pub machine: MachineFile,
    /// What was done.
    pub counts: Counts,
    /// Who holds what at the end, by device; of all processes that run then.
    pub tables: Vec<UsageTable>,
    /// What lived when most was in use, of each HBM channel that was used.
    pub peaks: Vec<Peak>,
    /// Processes that run at the end.
    pub processes: Vec<String>,
    /// Their numbers, by which reports name them, in the same order.
    pub pids: Vec<Pid>,
    /// Models that are loaded at the end, by what the workload calls them.
    pub models: Vec<LoadedModel>,
    /// What each process that runs at the end has, by the counters that sysfs shows.
    pub metrics: Vec<ProcessMetrics>,
    /// What the runtime had to say about operations that succeeded.
    pub warnings: Warnings,
    /// Which report of a log the workload says that it rebuilds.
    pub report: Option<u64>,
    /// What it says that it takes for granted, and what the run says hangs on.
    pub assumed: Option<Vec<String>>,
    /// The operation that did not end as expected; `None` if all did.
    pub failure: Option<Failure>,
    /// The last line that was run, if the run was stopped behind it.
    pub stopped: Option<u64>,
    /// How the rules of the fault plan have done, and those of the workload behind them.
    pub faults: Vec<RuleReport>,
    /// How long it took, of real time.
    pub took: Duration,
}

/// Why a workload could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A line cannot be used.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The fault plan is about something that the machine does not have.
    #[error("the fault plan{} does not fit", named(.file))]
    Faults {
        /// The plan's file, if it was read from one.
        file: Option<PathBuf>,
        /// What it is about.
        #[source]
        source: Box<FaultsError>,
    },
    /// The machine cannot be built.
    #[error("the machine{} cannot be built{}", named(.file), struck(.faults))]
    Machine {
        /// The machine's file, if it was read from one.
        file: Option<PathBuf>,
        /// How the faults of the plan did until then.
        faults: Vec<RuleReport>,
        /// Why not.
        #[source]
        source: Box<MachineError>,
    },
    /// The run was told to stop before its first line was there.
    #[error("stopped before its first line was read")]
    Stopped,
    /// The runtime cannot open its devices.
    #[error("the runtime cannot open its devices{}", struck(.faults))]
    Open {
        /// How the faults of the plan did until then.
        faults: Vec<RuleReport>,
        /// Why not.
        #[source]
        source: RuntimeError,
    },
    /// The machine came to a halt.
    #[error("the machine came to a halt")]
    Halt(#[from] RunError),
}

fn named(file: &Option<PathBuf>) -> String {
    let name = |file: &PathBuf| format!(" {}", file.display());
    file.as_ref().map_or_else(String::new, name)
}

/// The faults of a plan that struck, and so may be the cause.
fn struck(faults: &[RuleReport]) -> String {
    let struck = faults.iter().filter(|fault| fault.strikes > 0);
    let struck = struck.map(|rule| {
        let line = match rule.line {
            Some(line) => format!(", line {line}"),
            None => String::new(),
        };
        let RuleReport {
            fault,
            kind,
            strikes,
            ..
        } = rule;
        format!("fault {fault}, {kind}{line}: strikes: {strikes}")
    });
    let struck: Vec<_> = struck.collect();
    match struck.is_empty() {
        true => String::new(),
        false => format!(" under the fault plan ({})", struck.join("; ")),
    }
}

/// Under which conditions a workload runs, from the moment at which its machine is switched on until
/// it is gone.
pub struct Conditions<'a> {
    /// What stands in the place of what the workload's first line says.
    pub instead: Overrides,
    /// What fails on order; in the place of the plan of the first line.
    pub faults: Option<&'a PlanFile>,
    /// How the runtimes report.
    pub reporting: Reporting,
    /// Who hears the events.
    pub sink: Arc<dyn Sink>,
    /// Who counts what the run exercises.
    pub coverage: Option<Arc<Coverage>>,
    /// Where the run is recorded, in blocks. A write that fails ends the recording, which its owner
    /// has to notice.
    pub record: Option<&'a mut (dyn Write + Send)>,
    /// Whether the run is to stop, looked at between two operations, and between two pieces of one that
    /// writes or reads many bytes. A source that may be waited for ends when it is set: such an end is none
    /// of the workload, even within a line.
    pub stop: Option<&'a AtomicBool>,
    /// Who hears how far it is, now and then.
    pub progress: Option<&'a (dyn Fn(&Counts) + Sync)>,
}

impl Default for Conditions<'_> {
    fn default() -> Self {
        Self {
            instead: Overrides::default(),
            faults: None,
            reporting: Reporting::default(),
            sink: Arc::new(NoSink),
            coverage: None,
            record: None,
            stop: None,
            progress: None,
        }
    }
}

/// Builds the machine that a workload names, and runs the workload on it.
///
/// # Errors
/// [`PlayError`] if the workload cannot be run to its end. An operation that fails is no error but
/// [`Played::failure`].
pub fn play(source: impl BufRead + Send) -> Result<Played, PlayError> {
    play_under(source, Conditions::default())
}

/// The same under conditions.
///
/// # Errors
/// As [`play`], and [`PlayError::Faults`].
pub fn play_under(
    source: impl BufRead + Send,
    conditions: Conditions<'_>,
) -> Result<Played, PlayError> {
    let began = Instant::now();
    let sink = match &conditions.coverage {
        Some(coverage) => Arc::new(Tee::new(conditions.sink, Arc::clone(coverage) as _)),
        None => conditions.sink,
    };
    let stop = conditions.stop;
    let is_stopped = || stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
    let mut reader = match Reader::with(source, &conditions.instead) {
        // What stands there may be cut.
        Err(_) if is_stopped() => return Err(PlayError::Stopped),
        reader => reader?,
    };
    let header = reader.header().clone();
    let faults = conditions.faults.or(header.faults.as_ref());
    // Without rules it is asked nothing; it is there since a line may order a fault.
    let seed = faults.map_or(header.seed, PlanFile::seed);
    let plan = Arc::new(FaultPlan::new(seed));
    let lay = |file: &PlanFile| {
        let laid = file.lay_into(
            &plan,
            header.machine.model().arch(),
            header.machine.devices(),
        );
        laid.map_err(|source| PlayError::Faults {
            file: file.path().map(PathBuf::from),
            source: Box::new(source),
        })
    };
    let laid = faults.map(lay).transpose()?;
    let machine = Machine::new(MachineConfig {
        sink: Arc::clone(&sink),
        coverage: conditions.coverage,
        faults: Arc::clone(&plan) as _,
        ..header.machine.config()
    });
    let machine = machine.map_err(|source| PlayError::Machine {
        file: header.machine.path().map(PathBuf::from),
        faults: laid.iter().flat_map(Laid::told).collect(),
        source: Box::new(source),
    })?;
    let mut recorder = conditions
        .record
        .map(|out| Recorder::new(out, &header, faults));
    let progress = conditions.progress;
    let reporting = conditions.reporting;
    let run = || {
        let laid = laid.into_iter().collect();
        let mut player = Player::open(&machine, &header, reporting, sink, plan, laid, stop)?;
        let mut failure = None;
        let mut done_line = reader.line();
        let (mut looked, mut looked_bytes) = (0, 0);
        while failure.is_none() {
            let next = reader.next(|step| {
                // It may have been waited for long.
                if is_stopped() {
                    return Ok(None);
                }
                let outcome = player.step(&step)?;
                if let Err(failure) = &outcome
                    && matches!(failure.found, Found::Stopped)
                {
                    return Ok(None);
                }
                if let Some(recorder) = &mut recorder {
                    recorder.put(step.text, player.lies_at());
                }
                Ok(Some(outcome))
            });
            let next = match next {
                // What stands there may be cut.
                Err(_) if is_stopped() => None,
                next => next?.flatten(),
            };
            match next {
                Some(outcome) => failure = outcome.err(),
                None => break,
            }
            done_line = reader.line();
            if let Some(progress) = progress {
                let (done, bytes) = (reader.line(), player.moved_bytes());
                if done - looked >= OPERATIONS_PER_LOOK || bytes - looked_bytes >= BYTES_PER_LOOK {
                    (looked, looked_bytes) = (done, bytes);
                    progress(&player.counts());
                }
            }
        }
        let failure = failure.map(|failure| *failure);
        let stopped = is_stopped().then_some(done_line);
        Ok::<_, PlayError>(player.end(&header, failure, stopped))
    };
    let mut played = match header.machine.engine() {
        Engine::Virtual => {
            let mut played = None;
            let client: Client<'_> = Box::new(|| played = Some(run()));
            machine.run_clients(vec![client])?;
            // A client that came to its end has left it there.
            let nothing = || RunError::Broken {
                deadlock: None,
                panics: Vec::new(),
            };
            played.ok_or_else(nothing)??
        }
        Engine::Inline | Engine::Threaded => run()?,
    };
    played.took = began.elapsed();
    Ok(played)
}
