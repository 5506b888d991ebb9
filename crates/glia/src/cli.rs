//! Commands, their arguments, and what they come to.

mod bench;
mod completions;
mod conform;
mod coverage_file;
mod event_file;
mod explain;
mod listener;
mod printable;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The AWS Neuron device-memory stack in software.
#[derive(Debug, Parser)]
#[command(name = "glia", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Bench),
    Completions(completions::Completions),
    Conform(conform::Conform),
    Explain(explain::Explain),
    Man(completions::Man),
    Run(run::Run),
}

/// What a command came to, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// All is as hoped: 0.
    AsHoped,
    /// What was judged has failed: 1.
    Failed,
    /// The input cannot be used: 2, as a wrong usage.
    Unusable,
    /// The user has stopped it: 130, as a shell says it.
    Stopped,
}

impl Outcome {
    /// The exit status.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::AsHoped => 0,
            Self::Failed => 1,
            Self::Unusable => 2,
            Self::Stopped => 130,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        outcome.status().into()
    }
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        match &self.command {
            Command::Bench(bench) => bench.run(),
            Command::Completions(completions) => completions.run(),
            Command::Conform(conform) => conform.run(),
            Command::Explain(explain) => explain.run(),
            Command::Man(man) => man.run(),
            Command::Run(run) => run.run(),
        }
    }
}
