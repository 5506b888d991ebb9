//! `glia explain`: reads logs of the runtime and says what ran out of memory, and what held it.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use glia::explain::report::{REPORT_FORMAT, Report};
use glia::explain::{ExplainError, Summary, explain, tell};
use glia::workload::REBUILT_STARTS;
use glia::workload::rebuild::{choose, rebuild};

use super::Outcome;
use super::event_file::{cannot, is_free};
use super::printable::printable;
use super::run::named;

/// Say what ran out of memory in a log of the Neuron runtime, where, and what held it
///
/// Reads what the runtime of any version prints: single lines, lists, tables, INFO blocks; with the
/// prefixes of other tools, in colour, wrapped, cut, of many threads at once. What the log does not
/// say is unknown, never 0, and what could not be read is said with its line. The JSON form is
/// described in docs/formats/explain.md.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia explain job.log                                     what failed, in words
  kubectl logs worker-0 | glia explain                     from standard input
  glia explain job.log --workload job.jsonl && glia run job.jsonl --compare job.log
                                                           the same state and failure, run
  glia explain old.log.gz new.log --json | jq '.reports[] | {line, usage, asked_bytes}'

Exit status: 0 something was found, 1 nothing that Glia understands, 2 wrong usage or a log that cannot be read.")]
pub(crate) struct Explain {
    /// Logs, plain or gzip; "-" or none is standard input
    #[arg(value_name = "LOG")]
    logs: Vec<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write a workload that rebuilds the state of a report and makes the request that failed; what
    /// the log lacks is assumed, and said on stderr and in the file
    #[arg(long, value_name = "FILE", value_parser = named())]
    workload: Option<PathBuf>,

    /// Which report to rebuild, from 1; otherwise the first failure that says what held the memory
    #[arg(long, value_name = "NUMBER", requires = "workload", value_parser = clap::value_parser!(u64).range(1..))]
    report: Option<u64>,
}

impl Explain {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let mut out = BufWriter::new(io::stdout().lock());
        let standard_input = [PathBuf::from("-")];
        let logs = if self.logs.is_empty() {
            &standard_input
        } else {
            self.logs.as_slice()
        };
        if self.workload.is_some() && logs.len() != 1 {
            anyhow::bail!("--workload needs one log: {} are named", logs.len());
        }
        let mut kept = Vec::new();
        if self.json {
            write!(out, "{{\"format\":{REPORT_FORMAT},\"reports\":[")?;
        }
        let mut summaries: Vec<Summary> = Vec::new();
        let mut reports = 0;
        for log in logs {
            let (summary, result) = self.explain(log, reports, &mut out, &mut kept);
            reports += summary.reports;
            if let Err(ExplainError::Taker(error)) = result {
                return Err(error.into());
            }
            out.flush()?;
            if let Some(error) = &summary.error {
                // Where even stderr is closed, the exit code has to do.
                let _ = writeln!(io::stderr(), "glia: {}: {error}", printable(&summary.file));
            }
            summaries.push(summary);
        }
        if self.json {
            writeln!(
                out,
                "\n],\"files\":{}}}",
                serde_json::to_string(&summaries)?
            )?;
        } else {
            write_ends(&mut out, &summaries)?;
        }
        out.flush()?;
        let is_rebuilt = match &self.workload {
            Some(file) if reports > 0 => self.rebuild(&kept, file)?,
            _ => true,
        };
        Ok(if summaries.iter().any(|summary| summary.error.is_some()) {
            Outcome::Unusable
        } else if reports == 0 || !is_rebuilt {
            Outcome::Failed
        } else {
            Outcome::AsHoped
        })
    }

    /// Writes the workload, and says what it takes for granted; false if there can be none.
    fn rebuild(&self, reports: &[Report], file: &Path) -> anyhow::Result<bool> {
        let mut err = io::stderr().lock();
        let count = reports.len();
        let Some((number, report)) = choose(reports, self.report) else {
            let wanted = self.report.unwrap_or(1);
            anyhow::bail!("--report {wanted}: the log has {count}");
        };
        let place = format!("{}:{}", printable(&report.file), report.line);
        let rebuilt = match rebuild(report, number, reports) {
            Ok(rebuilt) => rebuilt,
            Err(error) => {
                writeln!(err, "glia: {place}: cannot be rebuilt: {error}")?;
                return Ok(false);
            }
        };
        let name = printable(&file.display().to_string());
        let is_free = is_free(file, REBUILT_STARTS);
        let is_free = is_free.map_err(|error| cannot(&name, "be looked into", &error))?;
        anyhow::ensure!(
            is_free,
            "{name}: holds something else than a workload made of a log and is left as it is"
        );
        let written = std::fs::write(file, &rebuilt.text);
        written.map_err(|error| cannot(&name, "be written", &error))?;
        let file = name;
        writeln!(
            err,
            "glia: {place}: report {number} of {count} is rebuilt in {file}; assumed:"
        )?;
        for assumed in &rebuilt.assumed {
            writeln!(err, "  - {assumed}")?;
        }
        Ok(true)
    }

    /// Writes each report of a log as it comes; `before` have been written.
    fn explain(
        &self,
        log: &Path,
        mut before: u64,
        out: &mut impl Write,
        kept: &mut Vec<Report>,
    ) -> (Summary, Result<(), ExplainError>) {
        let is_input = log == Path::new("-");
        let name = if is_input {
            "(standard input)".to_owned()
        } else {
            log.display().to_string()
        };
        let mut json = Vec::new();
        let taker = |report: Report| {
            let is_first = before == 0;
            before += 1;
            if self.workload.is_some() {
                kept.push(report.clone());
            }
            if self.json {
                // Written at once: it is thousands of words.
                json.clear();
                json.extend_from_slice(if is_first { b"\n" } else { b",\n" });
                serde_json::to_writer(&mut json, &report)?;
                out.write_all(&json)
            } else {
                writeln!(out, "{}", tell::paragraph(&report))
            }
        };
        let source: io::Result<Box<dyn Read>> = if is_input {
            Ok(Box::new(io::stdin().lock()))
        } else {
            File::open(log).map(|file| Box::new(file) as Box<dyn Read>)
        };
        match source {
            Ok(source) => explain(source, &name, taker),
            Err(source) => {
                let error = ExplainError::Unreadable { line: 0, source };
                let summary = Summary {
                    file: name,
                    error: Some(error.told()),
                    ..Summary::default()
                };
                (summary, Err(error))
            }
        }
    }
}

/// What is to be said of each log behind its reports.
fn write_ends(out: &mut impl Write, summaries: &[Summary]) -> io::Result<()> {
    for summary in summaries {
        for unread in &summary.unread {
            writeln!(
                out,
                "{}:{}: not read: {}",
                summary.file, unread.line, unread.what
            )?;
        }
        if summary.reports == 0 && summary.error.is_none() {
            writeln!(out, "{}", tell::nothing(&summary.file, summary.lines))?;
        }
    }
    Ok(())
}
