//! The command line of Glia.
//!
//! Results go to stdout, talk to stderr. The exit code says what happened: 0 as hoped, 1 the thing
//! judged failed, 2 usage or input that cannot be read, 130 stopped by Ctrl-C. A reader that closes the pipe has seen
//! enough: that is 0, too.

mod cli;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(outcome) => outcome.into(),
        Err(error) if is_closed_pipe(&error) => cli::Outcome::AsHoped.into(),
        Err(error) => {
            // Where even stderr is closed, the exit code has to do.
            let _ = writeln!(io::stderr(), "glia: {error:#}");
            cli::Outcome::Unusable.into()
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
