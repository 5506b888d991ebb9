//! `glia run`: runs workloads through the whole stack and tells what happened.

mod recording;
mod reporting;
mod source;
mod text;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use glia::explain::explain;
use glia::explain::report::Report;
use glia::faults::PlanFile;
use glia::machine::{MachineFile, Model};
use glia::play::compare::compare;
use glia::play::report::{RUN_FORMAT, RunReport};
use glia::play::{Conditions, Counts, PlayError, Played, Reporting, play_under};
use glia::unpack::unpacked;
use glia::workload::rebuild::choose;
use glia::workload::{Engine, Overrides};
use glia_abi::event::{Detail, NoSink, Sink};

use super::Outcome;
use super::coverage_file::CoverageFile;
use super::event_file::EventFile;
use super::listener::Listener;
use super::printable::{printable, printable_message};
use recording::Recording;
use reporting::ReportingOptions;
use source::{Source, Stop};
use text::{write_comparison, write_run};

/// What is read of a workload at a time.
const SOURCE_BYTES: usize = 256 << 10;

/// Run a workload through runtime, driver and device, and verify every byte
///
/// A workload says, line by line, what a program does to device memory: allocate, write, read,
/// free, and which error is expected where (docs/formats/workload.md). It is run on a machine of its
/// own, with real ioctls, real descriptors and bytes that really move. Of an allocation for which
/// there is no room, the runtime's report is printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia run examples/first-tensor.jsonl           verify, and show who holds what at the end
  glia run examples/kv-cache-trn2.jsonl          one that does not fit: the report, exit status 1
  generate | glia run --json - | jq '.runs[].failure'
                                                 from standard input, for machines
  glia run --faults examples/faults-late-marker.toml examples/first-tensor.jsonl
                                                 while faults happen on order, and how often each did
  glia run --events events.jsonl examples/first-tensor.jsonl
                                                 and all that runtime, driver and device did, line by line
  glia run --machine examples/machine.toml examples/first-tensor.jsonl
                                                 on a small machine, where memory runs out soon
  glia run --details --report-verbose examples/trn2-table.jsonl
                                                 every usage, what each model owns, sysfs counters
  glia run --record trace.jsonl --engine virtual --seed 7 examples/first-tensor.jsonl
                                                 to run it again, with the same end: glia run trace.jsonl
  glia explain job.log --workload job.jsonl && glia run job.jsonl --compare job.log
                                                 the state and the failure of a log, rebuilt

Exit status: 0 everything ended as its line expects, 1 something did not, 2 wrong usage, a workload, machine or fault plan that cannot be used, or a file that cannot be written, 130 stopped by Ctrl-C, with the summary of what was run until then.")]
pub(crate) struct Run {
    /// Workloads, plain or gzip; "-" is standard input
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<PathBuf>,

    /// Let faults happen as this plan orders, TOML or JSON (docs/formats/faults.md); each workload
    /// begins the plan anew
    #[arg(long, value_name = "FILE", value_parser = named())]
    faults: Option<PathBuf>,

    /// Write what runtime, driver and device do to this file, as JSON Lines (docs/formats/events.md)
    #[arg(long, value_name = "FILE", value_parser = named())]
    events: Option<PathBuf>,

    /// How much of it
    #[arg(
        long,
        value_name = "DETAIL",
        value_enum,
        default_value = "batches",
        requires = "events"
    )]
    events_detail: EventsDetail,

    /// Record the run to this file: the lines that were run, and where their memory lay, as a
    /// workload that can be run again (docs/formats/workload.md); of one workload
    #[arg(long, value_name = "TRACE", value_parser = named())]
    record: Option<PathBuf>,

    /// Run on the machine of this file, TOML or JSON (docs/formats/machine.md), in the place of the
    /// workload's: its devices and engines, too. --arch, --devices, --engine and --seed act upon it
    #[arg(long, value_name = "FILE", value_parser = named())]
    machine: Option<PathBuf>,

    /// Run on this machine, in the place of the workload's: trn1, trn2, trn3 or inf2
    #[arg(long, value_name = "MACHINE", value_parser = machine())]
    arch: Option<Model>,

    /// Run on a machine with so many devices, 1 to 16
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    devices: Option<u32>,

    /// How the machine runs its engines; a workload that does not say has inline
    #[arg(long, value_name = "ENGINE", value_parser = engine())]
    engine: Option<Engine>,

    /// What chance comes from: the order of events of the virtual engine, faults of the workload, and
    /// the bytes of patterns; 0 to 2^64 - 1
    #[arg(long, value_name = "SEED", allow_negative_numbers = true, value_parser = seed)]
    seed: Option<u64>,

    /// Give a parameter of the workload a value; may be given more than once
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = param)]
    params: Vec<(String, String)>,

    /// Compare the end of the run with a log of the runtime, plain or gzip, in every cell that the log has: all
    /// equal and the same request failed is exit status 0
    #[arg(long, value_name = "LOG", value_parser = named())]
    compare: Option<PathBuf>,

    #[command(flatten)]
    reporting: ReportingOptions,

    /// Write which commands, errors and registers the runs exercised, and which not, to this file, as
    /// JSON (docs/formats/coverage.md)
    #[arg(long, value_name = "FILE", value_parser = named())]
    coverage: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// How much the event file has.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum EventsDetail {
    /// Everything but single descriptors
    Batches,
    /// Every descriptor pair as well
    Descriptors,
}

impl From<EventsDetail> for Detail {
    fn from(detail: EventsDetail) -> Self {
        match detail {
            EventsDetail::Batches => Self::Batches,
            EventsDetail::Descriptors => Self::Descriptors,
        }
    }
}

/// All runs, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Document {
    format: u32,
    runs: Vec<RunReport>,
}

/// All that a run is told but its workload.
struct Told {
    reports: Option<Vec<Report>>,
    faults: Option<PlanFile>,
    instead: Overrides,
    reporting: Reporting,
    stop: Stop,
    coverage: Option<CoverageFile>,
}

impl Run {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        self.check()?;
        let told = Told {
            reports: self.compare.as_deref().map(reports).transpose()?,
            faults: self.faults.as_deref().map(plan).transpose()?,
            instead: Overrides {
                machine: self.machine.as_deref().map(machine_file).transpose()?,
                model: self.arch,
                devices: self.devices,
                engine: self.engine,
                seed: self.seed,
                params: self.params.clone(),
            },
            reporting: self.reporting.reporting()?,
            stop: Stop::by_signals().context("signals cannot be caught")?,
            coverage: self
                .coverage
                .as_deref()
                .map(CoverageFile::create)
                .transpose()?,
        };
        let detail = self.events_detail.into();
        let create = |file| EventFile::create(file, detail);
        let mut events = self.events.as_deref().map(create).transpose()?;
        let mut recording = self.record.as_deref().map(Recording::create).transpose()?;
        let mut out = BufWriter::new(Listener::new(io::stdout().lock()));
        let mut outcome = Outcome::AsHoped;
        let mut runs = Vec::new();
        for workload in &self.workloads {
            let name = printable(&name(workload));
            let log = events.as_ref().map(|file| file.log(&name)).transpose()?;
            let sink: Arc<dyn Sink> = match &log {
                Some(log) => Arc::clone(log) as _,
                None => Arc::new(NoSink),
            };
            let played = told.play(workload, sink, recording.as_mut());
            let finished = match (&events, &log) {
                (Some(file), Some(log)) => file.finish(log),
                _ => Ok(()),
            };
            if let Err(error) = finished {
                outcome = outcome.max(Outcome::Unusable);
                // The runs go on; nothing is written behind a line that may be cut.
                events = None;
                complain(&format!("{error:#}"));
            }
            match played {
                Ok(played) => {
                    let compared = told
                        .reports
                        .as_deref()
                        .and_then(|reports| choose(reports, played.report))
                        .map(|(_, report)| compare(report, &played));
                    let is_failed = match (&told.reports, &compared) {
                        (None, _) => played.failure.is_some(),
                        (Some(_), None) => true,
                        (Some(_), Some(compared)) => !compared.differences.is_empty(),
                    };
                    if is_failed {
                        outcome = outcome.max(Outcome::Failed);
                    }
                    if let (Some(reports), None) = (&told.reports, &compared) {
                        complain(&format!("{name}: {}", none_to_compare(reports, &played)));
                    }
                    if self.json {
                        runs.push(RunReport {
                            comparison: compared,
                            ..RunReport::new(&name, &played)
                        });
                    } else {
                        write_run(&mut out, &name, &played, self.reporting.shown())?;
                        if let (Some(log), Some(compared)) = (&self.compare, &compared) {
                            write_comparison(&mut out, log, compared)?;
                        }
                        out.flush()?;
                    }
                    if played.stopped.is_some() {
                        outcome = Outcome::Stopped;
                        break;
                    }
                }
                Err(error) => {
                    let is_stopped = matches!(error.downcast_ref(), Some(PlayError::Stopped));
                    outcome = outcome.max(match is_stopped {
                        true => Outcome::Stopped,
                        false => Outcome::Unusable,
                    });
                    let error = printable_message(&chain(&error));
                    complain(&format!("{name}: {error}"));
                    if self.json {
                        runs.push(RunReport::unusable(&name, error));
                    }
                    if is_stopped {
                        break;
                    }
                }
            }
        }
        let finished = [
            told.coverage.map(CoverageFile::finish),
            recording.map(Recording::finish),
        ];
        for error in finished.into_iter().flatten().filter_map(Result::err) {
            outcome = outcome.max(Outcome::Unusable);
            complain(&format!("{error:#}"));
        }
        if self.json {
            let document = Document {
                format: RUN_FORMAT,
                runs,
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
        }
        out.flush()?;
        Ok(outcome)
    }

    /// Refuses files that would be written over each other.
    fn check(&self) -> anyhow::Result<()> {
        let written = [
            ("--events", &self.events),
            ("--coverage", &self.coverage),
            ("--record", &self.record),
        ];
        let written = written.map(|(option, file)| (option, file.as_deref()));
        for (n, (option, file)) in written.iter().enumerate() {
            let others = written[..n].iter();
            if let Some((other, _)) = others
                .into_iter()
                .find(|(_, it)| it.is_some() && it == file)
            {
                anyhow::bail!("{other} and {option} name one file; each needs its own");
            }
        }
        let Some(record) = &self.record else {
            return Ok(());
        };
        anyhow::ensure!(
            self.workloads.len() == 1,
            "--record takes one workload: a recording is of one run"
        );
        let real = |file: &Path| file.canonicalize().ok();
        anyhow::ensure!(
            real(record).is_none() || real(record) != real(&self.workloads[0]),
            "--record would write over the workload that it is to record"
        );
        Ok(())
    }
}

impl Told {
    fn play(
        &self,
        workload: &Path,
        sink: Arc<dyn Sink>,
        recording: Option<&mut Recording>,
    ) -> anyhow::Result<Played> {
        let source = unpacked(Source::open(workload, &self.stop)?)?;
        let source = BufReader::with_capacity(SOURCE_BYTES, source);
        let bar = progress_bar();
        let shows = !bar.is_hidden();
        let progress = |counts: &Counts| show(&bar, counts);
        let conditions = Conditions {
            instead: self.instead.clone(),
            faults: self.faults.as_ref(),
            reporting: self.reporting.clone(),
            sink,
            coverage: self.coverage.as_ref().map(CoverageFile::coverage),
            record: recording.map(|recording| recording as &mut (dyn Write + Send)),
            stop: Some(self.stop.flag()),
            progress: shows.then_some(&progress),
        };
        let played = play_under(source, conditions);
        bar.finish_and_clear();
        Ok(played?)
    }
}

/// Why there is nothing to compare a run with.
fn none_to_compare(reports: &[Report], played: &Played) -> String {
    match (reports.len(), played.report) {
        (0, _) | (_, None) => "the log has no report to compare with".to_owned(),
        (count, Some(wanted)) => {
            format!("it rebuilds report {wanted}, and the log to compare with has {count}")
        }
    }
}

/// On stderr, if that is a terminal.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, counts: &Counts) {
    let (operations, live) = (counts.operations(), counts.live);
    let bytes = text::human(counts.written_bytes + counts.read_bytes);
    bar.set_message(format!(
        "{operations} operations, {bytes} moved, {live} objects live"
    ));
    bar.tick();
}

/// Where even stderr is closed, the exit code has to do.
fn complain(error: &str) {
    let _ = writeln!(io::stderr(), "glia: {error}");
}

/// An error with its causes. A cause that has been quoted is not quoted again.
fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn machine() -> impl TypedValueParser<Value = Model> {
    let names = ["trn1", "trn2", "trn3", "inf2"];
    PossibleValuesParser::new(names)
        .try_map(|name| Model::named(&name).ok_or("no machine has this name"))
}

fn engine() -> impl TypedValueParser<Value = Engine> {
    let named = |name: String| Engine::ALL.into_iter().find(|one| one.name() == name);
    PossibleValuesParser::new(Engine::ALL.map(Engine::name))
        .try_map(move |name| named(name).ok_or("no engine has this name"))
}

fn seed(text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| "a seed is a whole number, 0 to 2^64 - 1".to_owned())
}

fn param(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a parameter is given as NAME=VALUE".to_owned()),
    }
}

/// A file by its name: standard input is for workloads, and standard output for results.
pub(super) fn named() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|file| match file.as_os_str() == "-" {
        true => Err("only a workload can be \"-\", standard input; here, name a file"),
        false => Ok(file),
    })
}

/// A machine, which is used whole or not at all.
fn machine_file(file: &Path) -> anyhow::Result<MachineFile> {
    MachineFile::read(file).map_err(|error| {
        let name = printable(&file.display().to_string());
        let is_model = file.to_str().and_then(Model::named).is_some();
        let hint = match is_model && !file.exists() {
            true => format!("; a machine by its name is --arch {name}"),
            false => String::new(),
        };
        let error = printable_message(&chain(&error.into()));
        anyhow::anyhow!("{name}: {error}{hint}")
    })
}

/// A fault plan, which is used whole or not at all.
fn plan(file: &Path) -> anyhow::Result<PlanFile> {
    PlanFile::read(file).map_err(|error| {
        let name = printable(&file.display().to_string());
        anyhow::anyhow!("{name}: {}", printable_message(&error.to_string()))
    })
}

fn name(workload: &Path) -> String {
    if workload == Path::new("-") {
        "(standard input)".to_owned()
    } else {
        workload.display().to_string()
    }
}

/// The reports of a log.
fn reports(log: &Path) -> anyhow::Result<Vec<Report>> {
    let name = printable(&log.display().to_string());
    let source = File::open(log).with_context(|| name.clone())?;
    let mut reports = Vec::new();
    let (_, read) = explain(source, &name, |report| {
        reports.push(report);
        Ok(())
    });
    read.map_err(|error| anyhow::anyhow!("{name}: {}", chain(&error.into())))?;
    Ok(reports)
}
