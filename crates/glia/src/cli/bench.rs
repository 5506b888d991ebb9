//! `glia bench`: what an operation costs on this machine, beside a peer in the same run.

use std::io::{self, Write as _};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use glia::bench::{self, CASES, Case, Effort, Options, Step};

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

JSON: an array of {case, op, glia_ns, peer, peer_ns, ratio, live}; op is alloc, free, pair, first or find; peer,
peer_ns and ratio are null where there is no peer.

Exit status: 0 measured, 2 wrong usage.")]
pub(crate) struct Pool {
    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Run only this case; may be given more than once
    #[arg(long = "case", value_name = "ID", value_parser = case_parser())]
    cases: Vec<&'static Case>,

    /// A hundredth of the chunks, in seconds: shows that everything runs, and the figures mean
    /// little
    #[arg(long)]
    quick: bool,
}

impl Bench {
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        match &self.what {
            What::Pool(pool) => pool.run(),
        }
    }
}

impl Pool {
    fn run(&self) -> anyhow::Result<Outcome> {
        let bar = progress_bar();
        let report = bench::run(&self.options(), &mut |step: Step| {
            bar.set_length(step.total);
            bar.set_position(step.done);
            bar.set_message(step.case);
            bar.tick();
        })?;
        bar.finish_and_clear();
        if report.effort == Effort::Quick && self.json {
            // Where even stderr is closed, nobody needs to know.
            let _ = writeln!(io::stderr(), "glia: a quick run; the figures mean little");
        }
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&report.rows)?)?;
        } else {
            write!(out, "{}", report.tables())?;
        }
        out.flush()?;
        Ok(Outcome::AsHoped)
    }

    fn options(&self) -> Options {
        let chosen = |case: &&Case| {
            self.cases.is_empty() || self.cases.iter().any(|wanted| wanted.id == case.id)
        };
        Options {
            cases: CASES.iter().filter(chosen).collect(),
            effort: if self.quick {
                Effort::Quick
            } else {
                Effort::Full
            },
            context: !self.json,
        }
    }
}

fn case_parser() -> impl TypedValueParser<Value = &'static Case> {
    let values = CASES
        .iter()
        .map(|case| PossibleValue::new(case.id).help(case.about));
    PossibleValuesParser::new(values).try_map(|id| Case::find(&id))
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
