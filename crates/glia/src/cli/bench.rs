//! `glia bench`: what an operation costs on this machine, beside a peer in the same run.

use std::io::{self, Write as _};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use glia::bench::{self, Case, CopyMode, Effort, HANDLE_CASES, Options, POOL_CASES, Step};

use super::Outcome;

/// Measure what operations cost here, beside a peer in the same run
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Pool(Pool),
    Handles(Handles),
    Copy(Copy),
    Runtime(Runtime),
}

/// Allocate, free and look up device memory
///
/// Every case goes the full way of an allocation: checks, lock, placement, chunk record, address
/// index, lists, counters. Beside it runs the reference driver's loop over a bitmap, coded fast,
/// under the same path; beside lookups, a BTreeMap. The two take turns, and each figure is a
/// median. The bars of the project are printed beside the figures; they do not change the exit
/// status.
///
/// It takes under a minute. Run it on a quiet machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia bench pool                                 all cases, as a table
  glia bench pool --case churn_1k --case churn_1m two cases
  glia bench pool --json > pool.json              for machines

JSON: an array of {case, op, glia_ns, peer, peer_ns, ratio, live}; op is alloc, free, pair, first
or find; peer, peer_ns and ratio are null where there is no peer.

Exit status: 0 measured, 2 wrong usage.")]
struct Pool {
    /// Run only this case; may be given more than once
    #[arg(long = "case", value_name = "ID", value_parser = one_of(&POOL_CASES))]
    cases: Vec<&'static Case>,

    #[command(flatten)]
    how: How,
}

/// Look up chunks by handle and by address
///
/// The handle table and what a handle leads to (a copy of the chunk's record, a pin) run beside
/// the slab crate, addresses beside a BTreeMap. The driver's lookups take no lock: two threads run
/// beside one, and lookups beside a thread that frees and allocates all the time. The sides take
/// turns, and each figure is a median. The bars of the project are printed beside the figures; they
/// do not change the exit status.
///
/// It takes under a minute. Run it on a quiet machine with two processors or more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia bench handles                       all cases, as a table
  glia bench handles --case record_1k      one case
  glia bench handles --json > handles.json for machines

JSON: an array of {case, op, glia_ns, peer, peer_ns, ratio, live}; op is alloc, free, find, pair
(pin and unpin) or handoff; peer, peer_ns and ratio are null where there is no peer. In
record_two_threads, glia_ns is the time over the lookups of both threads, and ratio the rate of
two threads over that of one. A handoff is the round trip of a word between the two threads; tens
of microseconds mean that they shared one processor.

Exit status: 0 measured, 2 wrong usage.")]
struct Handles {
    /// Run only this case; may be given more than once
    #[arg(long = "case", value_name = "ID", value_parser = one_of(&HANDLE_CASES))]
    cases: Vec<&'static Case>,

    #[command(flatten)]
    how: How,
}

/// Copy and fill memory through the driver's rings and the device's engines
///
/// Every copy goes the driver's way: descriptors, doorbells, a marker behind the data. Beside it
/// runs the C library's memcpy (memset beside fills) on memory of the same kind. Hot cases move the
/// same bytes over and over, cold ones walk through memory that no cache holds. The two take turns,
/// and each figure is a median. The bars of the project are printed beside the figures; they do not
/// change the exit status.
///
/// It takes about a minute and 6 GiB of memory. Run it on a quiet machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia bench copy                         all modes, as a table
  glia bench copy --mode h2d --mode d2d   two modes
  glia bench copy --json > copy.json      for machines

JSON: an array of {case, bytes, mode, glia_gbps, memcpy_gbps, ratio, hot}; rates in 10^9 bytes a
second, ratio is glia_gbps over memcpy_gbps.

Exit status: 0 measured, 2 wrong usage.")]
struct Copy {
    /// Run only this mode; may be given more than once
    #[arg(long = "mode", value_name = "MODE", value_parser = mode())]
    modes: Vec<CopyMode>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Up to 4 MiB and in seconds: shows that everything runs, and the figures mean little
    #[arg(long)]
    quick: bool,
}

/// Send commands, allocate, read and write through the whole stack
///
/// What a program pays, from the runtime's calls through ioctl bytes to the device, on its own
/// thread. Beside a copy runs the C library's memcpy, beside a command the driver's layer below it,
/// beside the books two idle locks. The sides take turns, and each figure is a median. The bars of
/// the project are printed beside the figures; they do not change the exit status.
///
/// It takes a quarter of a minute. Run it on a quiet machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  glia bench runtime                          all cases, as a table
  glia bench runtime --json > runtime.json    for machines

JSON: an array of {case, glia_ns, peer, peer_ns, ratio, bar_ns, bar_extra_ns, bar_ratio}; what does
not apply is null.

Exit status: 0 measured, 2 wrong usage.")]
struct Runtime {
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct How {
    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// A hundredth of the chunks, in seconds: shows that everything runs, and the figures mean
    /// little
    #[arg(long)]
    quick: bool,
}

impl Bench {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        match &self.what {
            What::Pool(Pool { cases, how }) => how.run(&POOL_CASES, cases),
            What::Handles(Handles { cases, how }) => how.run(&HANDLE_CASES, cases),
            What::Copy(copy) => copy.run(),
            What::Runtime(Runtime { how }) => how.run_runtime(),
        }
    }
}

impl Copy {
    fn run(&self) -> anyhow::Result<Outcome> {
        let modes = match &self.modes[..] {
            [] => &CopyMode::ALL,
            modes => modes,
        };
        let effort = effort(self.quick);
        let bar = progress_bar();
        let report = bench::run_copies(modes, effort, &mut |step| show(&bar, step))?;
        bar.finish_and_clear();
        print(effort, self.json, &report.rows, || report.table())
    }
}

impl How {
    /// Runs those of `all` that were chosen; if none was, all.
    fn run(&self, all: &'static [Case], chosen: &[&'static Case]) -> anyhow::Result<Outcome> {
        let bar = progress_bar();
        let report = bench::run(&self.options(all, chosen), &mut |step| show(&bar, step))?;
        bar.finish_and_clear();
        print(report.effort, self.json, &report.rows, || report.tables())
    }

    fn run_runtime(&self) -> anyhow::Result<Outcome> {
        let (effort, bar) = (effort(self.quick), progress_bar());
        let report = bench::run_runtime(effort, &mut |step| show(&bar, step))?;
        bar.finish_and_clear();
        print(effort, self.json, &report.rows, || report.table())
    }

    fn options(&self, all: &'static [Case], chosen: &[&'static Case]) -> Options {
        let is_chosen =
            |case: &&Case| chosen.is_empty() || chosen.iter().any(|wanted| wanted.id == case.id);
        Options {
            cases: all.iter().filter(is_chosen).collect(),
            effort: effort(self.quick),
            context: !self.json,
        }
    }
}

fn effort(quick: bool) -> Effort {
    if quick { Effort::Quick } else { Effort::Full }
}

fn print<R: Serialize>(
    effort: Effort,
    json: bool,
    rows: &[R],
    text: impl FnOnce() -> String,
) -> anyhow::Result<Outcome> {
    if effort == Effort::Quick && json {
        // Where even stderr is closed, nobody needs to know.
        let _ = writeln!(io::stderr(), "glia: a quick run; the figures mean little");
    }
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(rows)?)?;
    } else {
        write!(out, "{}", text())?;
    }
    out.flush()?;
    Ok(Outcome::AsHoped)
}

fn mode() -> impl TypedValueParser<Value = CopyMode> {
    let values = CopyMode::ALL.map(|mode| PossibleValue::new(mode.name()).help(mode.about()));
    PossibleValuesParser::new(values)
        .try_map(|name| CopyMode::named(&name).ok_or("there is no such mode"))
}

fn one_of(cases: &'static [Case]) -> impl TypedValueParser<Value = &'static Case> {
    let values = cases
        .iter()
        .map(|case| PossibleValue::new(case.id).help(case.about));
    PossibleValuesParser::new(values).try_map(move |id| Case::find(cases, &id))
}

fn show(bar: &ProgressBar, step: Step) {
    bar.set_length(step.total);
    bar.set_position(step.done);
    bar.set_message(step.case);
    bar.tick();
}

/// On stderr, if that is a terminal. It moves between cases only, so that no thread of it runs
/// beside the clock.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}
