//! Options of `glia run` about what the runtimes report.

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PathBufValueParser;
use clap::{Args, ValueEnum};

use glia::play::Reporting;
use glia_runtime::dml::{Dump, DumpDir, ReportProfile};

use crate::cli::printable::printable;

/// What the runtimes report.
#[derive(Debug, Args)]
pub(super) struct ReportingOptions {
    /// Print reports and tables as this version does
    #[arg(
        long,
        value_name = "PROFILE",
        value_enum,
        default_value = "runtime-2.31"
    )]
    report_profile: Profile,

    /// Print tables with a column for each of the 22 usages
    #[arg(long)]
    report_verbose: bool,

    /// Print also, of the end, what each loaded model owns, and the memory counters that sysfs shows;
    /// the JSON document always has them
    #[arg(long)]
    details: bool,

    /// Write the events of the device and the chunks of the HBM to this directory whenever there is
    /// no room, as CSV files of the reference's names
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new())]
    dump: Option<PathBuf>,
}

/// The forms of a report by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// A list for the core, DMA rings in one
    #[value(name = "sdk-2.20")]
    Sdk2_20,
    /// A list for the core (SDK 2.21 to 2.23)
    #[value(name = "sdk-2.23")]
    Sdk2_23,
    /// A table, with "Overall" and XT CC
    #[value(name = "sdk-2.24")]
    Sdk2_24,
    /// A table, with the HBM's number
    #[value(name = "runtime-2.31")]
    Runtime2_31,
}

/// What is printed of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) profile: ReportProfile,
    pub(super) is_verbose: bool,
    pub(super) has_details: bool,
}

impl ReportingOptions {
    pub(super) fn shown(&self) -> Shown {
        Shown {
            profile: match self.report_profile {
                Profile::Sdk2_20 => ReportProfile::Sdk2_20,
                Profile::Sdk2_23 => ReportProfile::Sdk2_23,
                Profile::Sdk2_24 => ReportProfile::Sdk2_24,
                Profile::Runtime2_31 => ReportProfile::Runtime2_31,
            },
            is_verbose: self.report_verbose,
            has_details: self.details,
        }
    }

    /// What the runtimes are told.
    ///
    /// # Errors
    /// A message that names the directory of the dump, if there is none.
    pub(super) fn reporting(&self) -> anyhow::Result<Reporting> {
        if let Some(directory) = &self.dump {
            let name = printable(&directory.display().to_string());
            anyhow::ensure!(
                directory.is_dir(),
                "--dump {name}: there is no such directory"
            );
        }
        let Shown {
            profile,
            is_verbose,
            ..
        } = self.shown();
        let dump = self.dump.clone().map(DumpDir::new);
        Ok(Reporting {
            profile,
            verbose_tables: is_verbose,
            dump: dump.map(|dump| Arc::new(dump) as Arc<dyn Dump>),
        })
    }
}
