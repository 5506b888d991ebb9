//! `glia run`: runs workloads through the whole stack and tells what happened.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;

use glia::explain::explain;
use glia::explain::report::Report;
use glia::faults::{PlanFile, RuleReport};
use glia::play::compare::{Comparison, Difference, compare};
use glia::play::report::{RUN_FORMAT, RunReport};
use glia::play::{Conditions, Found, Played, play_under};
use glia::workload::rebuild::choose;
use glia_abi::event::{Detail, NoSink, Sink};
use glia_runtime::dml::ReportProfile;

use super::Outcome;
use super::coverage_file::CoverageFile;
use super::event_file::EventFile;
use super::listener::Listener;
use super::printable::{lines, printable, printable_message};

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
  generate | glia run --json - | jq .failure     from standard input, for machines
  glia run --faults examples/faults-late-marker.toml examples/first-tensor.jsonl
                                                 while faults happen on order, and how often each did
  glia run --events events.jsonl examples/first-tensor.jsonl
                                                 and all that runtime, driver and device did, line by line
  glia explain job.log --workload job.jsonl && glia run job.jsonl --compare job.log
                                                 the state and the failure of a log, rebuilt

Exit status: 0 everything ended as its line expects, 1 something did not, 2 wrong usage, a workload or fault plan that cannot be used, or an event or coverage file that cannot be written.")]
pub(crate) struct Run {
    /// Workloads; "-" is standard input
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

    /// Compare the end of the run with a log of the runtime, in every cell that the log has: all
    /// equal and the same request failed is exit status 0
    #[arg(long, value_name = "LOG", value_parser = named())]
    compare: Option<PathBuf>,

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

impl Run {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        if self.events.is_some() && self.events == self.coverage {
            anyhow::bail!("--events and --coverage name one file; each needs its own");
        }
        let reports = self.compare.as_deref().map(reports).transpose()?;
        let faults = self.faults.as_deref().map(plan).transpose()?;
        let detail = self.events_detail.into();
        let create = |file| EventFile::create(file, detail);
        let mut events = self.events.as_deref().map(create).transpose()?;
        let coverage = self.coverage.as_deref();
        let coverage = coverage.map(CoverageFile::create).transpose()?;
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
            let played = open(workload)
                .map_err(anyhow::Error::from)
                .and_then(|source| {
                    let conditions = Conditions {
                        faults: faults.as_ref(),
                        sink,
                        coverage: coverage.as_ref().map(CoverageFile::coverage),
                    };
                    Ok(play_under(source, conditions)?)
                });
            let finished = match (&events, &log) {
                (Some(file), Some(log)) => file.finish(log),
                _ => Ok(()),
            };
            if let Err(error) = finished {
                outcome = Outcome::Unusable;
                // The runs go on; nothing is written behind a line that may be cut.
                events = None;
                let _ = writeln!(io::stderr(), "glia: {error:#}");
            }
            match played {
                Ok(played) => {
                    let compared = reports
                        .as_deref()
                        .and_then(|reports| choose(reports, played.report))
                        .map(|(_, report)| compare(report, &played));
                    let is_failed = match (&reports, &compared) {
                        (None, _) => played.failure.is_some(),
                        (Some(_), None) => true,
                        (Some(_), Some(compared)) => !compared.differences.is_empty(),
                    };
                    if is_failed {
                        outcome = outcome.max(Outcome::Failed);
                    }
                    if self.json {
                        runs.push(RunReport {
                            comparison: compared,
                            ..RunReport::new(&name, &played)
                        });
                    } else {
                        write_run(&mut out, &name, &played)?;
                        if let Some(log) = &self.compare {
                            write_comparison(&mut out, log, compared.as_ref())?;
                        }
                        out.flush()?;
                    }
                }
                Err(error) => {
                    outcome = Outcome::Unusable;
                    let error = printable_message(&format!("{error:#}"));
                    // Where even stderr is closed, the exit code has to do.
                    let _ = writeln!(io::stderr(), "glia: {name}: {error}");
                    if self.json {
                        runs.push(RunReport::unusable(&name, error));
                    }
                }
            }
        }
        if let Some(Err(error)) = coverage.map(CoverageFile::finish) {
            outcome = Outcome::Unusable;
            let _ = writeln!(io::stderr(), "glia: {error:#}");
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
}

/// A file by its name: standard input is for workloads, and standard output for results.
pub(super) fn named() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|file| match file.as_os_str() == "-" {
        true => Err("only a workload can be \"-\", standard input; here, name a file"),
        false => Ok(file),
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

fn open(workload: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(if workload == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(workload)?))
    })
}

/// What happened, in words.
fn write_run(out: &mut impl Write, name: &str, played: &Played) -> io::Result<()> {
    let counts = &played.counts;
    let models = match (counts.loads, counts.unloads) {
        (0, 0) => String::new(),
        (loads, unloads) => format!(", {loads} load, {unloads} unload"),
    };
    writeln!(
        out,
        "{name}: {} operations as expected ({} alloc, {} write, {} read, {} free{models}), {} of them errors that were to come",
        counts.operations(),
        counts.allocs,
        counts.writes,
        counts.reads,
        counts.frees,
        counts.expected_errors
    )?;
    let verified = if counts.read_bytes == 0 {
        "none to verify".to_owned()
    } else if counts.verified_bytes == counts.read_bytes {
        "every byte of it verified".to_owned()
    } else {
        let never = human(counts.read_bytes - counts.verified_bytes);
        format!("verified but for {never} that were never written")
    };
    writeln!(
        out,
        "  {} written, {} read and {verified}; {} objects live at the end",
        human(counts.written_bytes),
        human(counts.read_bytes),
        counts.live
    )?;
    write_faults(out, &played.faults)?;
    for table in &played.tables {
        // A machine can have hundreds of banks; those that hold nothing say nothing.
        let mut table = table.clone();
        table.banks.retain(|bank| bank.present_bytes > 0);
        if !table.banks.is_empty() {
            writeln!(out, "\n{}", lines(&table.text(ReportProfile::default())))?;
        }
    }
    let Some(failure) = &played.failure else {
        return Ok(());
    };
    writeln!(
        out,
        "{name}:{}: \"{}\" was to end in {}, but {}",
        failure.line,
        printable(&failure.id),
        failure.expected,
        match &failure.found {
            Found::Error(error) => format!("ended in {}: {error}", error.status()),
            other => other.to_string(),
        }
    )?;
    if !failure.log.is_empty() {
        writeln!(out, "\n{}", lines(&failure.log))?;
    }
    Ok(())
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
    read.with_context(|| name)?;
    Ok(reports)
}

/// Whether the run ended as the log did, and where not.
fn write_comparison(
    out: &mut impl Write,
    log: &Path,
    compared: Option<&Comparison>,
) -> io::Result<()> {
    let log = printable(&log.display().to_string());
    let Some(compared) = compared else {
        return writeln!(out, "{log}: no report to compare with");
    };
    let Comparison {
        line,
        cells,
        differences,
    } = compared;
    for Difference {
        row,
        column,
        log: theirs,
        ours,
    } in differences
    {
        let theirs = printable(theirs);
        writeln!(
            out,
            "{log}:{line}: {row}, {column}: the log has {theirs}, the run {ours}"
        )?;
    }
    match differences.len() {
        0 => writeln!(
            out,
            "{log}:{line}: all {cells} cells that the log has are equal"
        ),
        count => writeln!(out, "{log}:{line}: {count} of {cells} cells differ"),
    }
}

/// How the rules of the fault plan have done. One that never struck is a surprise for its author.
fn write_faults(out: &mut impl Write, rules: &[RuleReport]) -> io::Result<()> {
    for rule in rules {
        let RuleReport {
            fault,
            line,
            kind,
            opportunities,
            strikes,
        } = rule;
        let line = line.map_or_else(String::new, |line| format!(" (line {line})"));
        let done = match (strikes, opportunities) {
            (0, 0) => "NEVER STRUCK, and had no opportunity".to_owned(),
            (0, _) => format!("NEVER STRUCK, opportunities: {opportunities}"),
            _ => format!("strikes: {strikes}, opportunities: {opportunities}"),
        };
        writeln!(out, "  fault {fault}, {kind}{line}: {done}")?;
    }
    Ok(())
}

/// Bytes with a unit, to three decimals where they are no whole number.
fn human(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = UNITS.iter().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        None => format!("{bytes} B"),
        Some((name, shift)) if bytes.is_multiple_of(1 << shift) => {
            format!("{} {name}", bytes >> shift)
        }
        Some((name, shift)) => {
            let milli = (u128::from(bytes) * 1000) >> shift;
            format!("{}.{:03} {name}", milli / 1000, milli % 1000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_like_sizes() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(4096), "4 KiB");
        assert_eq!(human(3 << 29), "1.500 GiB");
        assert_eq!(human(u64::MAX), "16777215.999 TiB");
    }
}
