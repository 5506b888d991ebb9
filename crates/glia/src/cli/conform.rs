//! `glia conform`: replays golden traces and tells what differs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use glia::conform::report::{Counts, FileReport, Finding, Kind, REPORT_FORMAT, Status, Wanted};
use glia::conform::value::Value;
use glia::conform::{replay_file, source};

use super::Outcome;
use super::listener::Listener;
use super::printable::printable;

/// Replay golden traces of the reference driver against Glia's and name each mismatch
///
/// A trace records operations on the reference's memory pool and handle table, or on its DMA layer,
/// with its answers. Every field of every answer is compared. Declared divergences
/// (docs/divergences.md) are counted apart; what follows from one until the next init or scenario
/// is tainted and does not count. The formats are described in docs/formats/golden-mempool.md and
/// golden-dma.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia conform crates/glia/tests/golden/mempool          all traces of a directory
  glia conform crates/glia/tests/golden/dma              those of the DMA layer
  glia conform basic-v2.jsonl weights-v3.jsonl.gz        some traces, plain or packed
  glia conform --max 5 --verbose lifespan-v3.jsonl.gz    few lines of each kind, tainted ones too
  glia conform --json DIR | jq .total                    for machines

Exit status: 0 no mismatch, 1 a mismatch, 2 wrong usage or a file that is unreadable or malformed.")]
pub(crate) struct Conform {
    /// Traces, plain or gzip; of a directory all *.jsonl and *.jsonl.gz in it
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Print at most so many mismatches of a file; all are counted
    #[arg(long, value_name = "N", default_value_t = 20)]
    max: usize,

    /// Print declared divergences and tainted differences as well
    #[arg(short, long)]
    verbose: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The whole run, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    format: u32,
    files: Vec<FileReport>,
    total: Total,
}

#[derive(Debug, Default, Serialize)]
struct Total {
    files: u64,
    unusable_files: u64,
    #[serde(flatten)]
    counts: Counts,
}

impl Conform {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let mut out = BufWriter::new(Listener::new(io::stdout().lock()));
        let mut total = Total::default();
        let mut files = Vec::new();
        let mut status = Status::Conforms;
        for file in self.reports() {
            status = status.max(file.status());
            total.add(&file);
            if let Some(error) = &file.error {
                // Where even stderr is closed, the exit code has to do.
                let (file, error) = (printable(&file.file), printable(&error.to_string()));
                let _ = writeln!(io::stderr(), "glia: {file}: {error}");
            }
            if self.json {
                files.push(file);
            } else {
                write_file(&mut out, &file)?;
                out.flush()?;
            }
        }
        if self.json {
            let report = Report {
                format: REPORT_FORMAT,
                files,
                total,
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            write_total(&mut out, &total)?;
        }
        out.flush()?;
        Ok(match status {
            Status::Conforms => Outcome::AsHoped,
            Status::Mismatch => Outcome::Failed,
            Status::Unusable => Outcome::Unusable,
        })
    }

    /// The report of each file, made when it is asked for.
    fn reports(&self) -> impl Iterator<Item = FileReport> {
        let wanted = Wanted {
            per_kind: self.max,
            all_kinds: self.verbose,
        };
        self.traces
            .iter()
            .flat_map(move |path| match source::traces(path) {
                Ok(files) => files.iter().map(|file| replay_file(file, wanted)).collect(),
                Err(error) => {
                    let mut report = FileReport::new(path.display().to_string());
                    report.error = Some(error.into());
                    vec![report]
                }
            })
    }
}

impl Total {
    fn add(&mut self, file: &FileReport) {
        self.files += 1;
        self.unusable_files += u64::from(file.error.is_some());
        self.counts.absorb(&file.counts);
    }
}

/// A line for each finding, then one for the file.
fn write_file(out: &mut impl Write, report: &FileReport) -> io::Result<()> {
    let file = printable(&report.file);
    for finding in &report.findings {
        write_finding(out, &file, finding)?;
    }
    let hidden = report.mismatches_not_kept();
    if hidden > 0 {
        writeln!(out, "{file}: mismatches not printed (see --max): {hidden}")?;
    }
    let broken = if report.error.is_some() {
        "; not replayed to its end"
    } else {
        ""
    };
    writeln!(out, "{file}: {}{broken}", summary(&report.counts))
}

fn write_finding(out: &mut impl Write, file: &str, finding: &Finding) -> io::Result<()> {
    let Finding { line, op, .. } = finding;
    match &finding.scenario {
        Some(name) => write!(out, "{file}:{line}: scenario {}, {op}: ", printable(name))?,
        None => write!(out, "{file}:{line}: record {}, {op}: ", line - 1)?,
    }
    let note = finding.note.as_deref().unwrap_or_default();
    let Some(field) = &finding.field else {
        return writeln!(out, "declared divergence {note}");
    };
    let kind = if finding.kind == Kind::Tainted {
        "(tainted) "
    } else {
        ""
    };
    let field = printable(field);
    write!(
        out,
        "{kind}{field}: expected {}, got {}",
        shown(finding.expected.as_ref()),
        shown(finding.got.as_ref())
    )?;
    if !note.is_empty() {
        write!(out, " ({note})")?;
    }
    writeln!(out)
}

fn shown(value: Option<&Value<'_>>) -> String {
    value.map_or_else(
        || "nothing".to_owned(),
        |value| printable(&value.to_string()),
    )
}

fn write_total(out: &mut impl Write, total: &Total) -> io::Result<()> {
    let unusable = match total.unusable_files {
        0 => String::new(),
        count => format!(" ({count} unusable)"),
    };
    let files = counted(total.files, "file");
    writeln!(out, "total: {files}{unusable}, {}", summary(&total.counts))
}

/// `211 records, 0 mismatches; declared: dead-chunk 3; tainted: 5 records, 1 difference`, behind the
/// scenarios of a trace that has some.
fn summary(counts: &Counts) -> String {
    let mut text = match counts.scenarios {
        0 => String::new(),
        count => format!("{}, ", counted(count, "scenario")),
    };
    text += &counted(counts.records, "record");
    match counts.mismatches {
        0 => text += ", 0 mismatches",
        1 => text += ", 1 mismatch",
        count => {
            let records = counted(counts.mismatched_records, "record");
            text += &format!(", {count} mismatches in {records}");
        }
    }
    if !counts.divergences.is_empty() {
        text += &format!("; declared: {}", by_name(&counts.divergences));
    }
    if counts.tainted_records > 0 {
        let records = counted(counts.tainted_records, "record");
        let differences = counted(counts.tainted_differences, "difference");
        text += &format!("; tainted: {records}, {differences}");
    }
    text
}

fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn by_name(counts: &BTreeMap<impl Display, u64>) -> String {
    let each = counts.iter().map(|(name, count)| format!("{name} {count}"));
    each.collect::<Vec<_>>().join(", ")
}
