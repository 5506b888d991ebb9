//! Plan files: which faults happen in a run, as TOML or JSON (docs/formats/faults.md).
//!
//! ```text
//!   file ──► tree (TOML or JSON) ──► rules, with lines ──► FaultPlan for a machine
//!              misspelt keys are refused      what it does not have is refused
//! ```
//!
//! A file is read once and gives a fresh [`FaultPlan`] to each machine, so that every run counts
//! from its own beginning. Whatever is wrong with a file is an error that names the line, what
//! stands there and what was probably meant ([`FaultsError`]); a plan is used whole or not at all.
//!
//! After a run, [`Laid::told`] says how each rule has done: a rule that never struck is a surprise
//! for whoever wrote it.
//!
//! **What this does not do.** What a rule means is the business of [`glia_abi::fault`].

mod error;
mod reader;
mod tree;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::fault::{FaultPlan, FaultRule, RuleId};
use glia_abi::handle::QUEUES_PER_ENGINE;
use serde::Serialize;

use crate::unpack::begins_packed;

pub use error::{FaultsError, Place, Refusal};
pub(crate) use error::{meant, nearest};
pub(crate) use tree::BadSyntax;

/// What a plan can have.
// LIMIT: thousands of rules; every question looks at all of them.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The format of a plan file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML 1.0.
    Toml,
    /// JSON.
    Json,
}

/// The faults that a file orders.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFile {
    /// The file it was read from.
    path: Option<PathBuf>,
    seed: u64,
    rules: Vec<Ordered>,
    /// What it says, as JSON.
    document: serde_json::Value,
}

/// A rule, and where it stands.
#[derive(Debug, Clone, PartialEq)]
struct Ordered {
    rule: FaultRule,
    place: Place,
    /// By key.
    lines: Vec<(String, Option<u64>)>,
}

/// A plan file that is at work on a machine.
#[derive(Debug)]
pub struct Laid {
    plan: Arc<FaultPlan>,
    rules: Vec<(RuleId, Ordered)>,
}

/// How a rule has done in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// Which fault of the file, or of the workload's line, from 1.
    pub fault: usize,
    /// What the line of a workload calls it that ordered it; null for one of a file.
    pub id: Option<String>,
    /// Its line; null where the format does not tell.
    pub line: Option<u64>,
    /// Its kind.
    pub kind: &'static str,
    /// How often it could have struck.
    pub opportunities: u64,
    /// How often it has.
    pub strikes: u64,
}

impl Format {
    /// The format of a file: by the ending of its name, else by its first character. A byte order
    /// mark is none.
    #[must_use]
    pub fn of(path: &Path, text: &str) -> Self {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending {
            Some("json") => Self::Json,
            Some("toml") => Self::Toml,
            _ if unmarked(text).trim_start().starts_with('{') => Self::Json,
            _ => Self::Toml,
        }
    }
}

impl PlanFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`FaultsError`] if it cannot be read, or anything in it cannot be meant.
    pub fn read(path: &Path) -> Result<Self, FaultsError> {
        let unusable = |why| FaultsError {
            place: Place::default(),
            why,
        };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| unusable(error.into()))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let limit_bytes = FILE_BYTES_MAX;
            return Err(unusable(Refusal::TooLong { limit_bytes }));
        }
        if begins_packed(&bytes) {
            return Err(unusable(Refusal::Packed));
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        let text = text.map_err(|error| unusable(error.into()))?;
        let plan = Self::parse(Format::of(path, &text), &text)?;
        Ok(Self {
            path: Some(path.to_owned()),
            ..plan
        })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`FaultsError`] if anything in it cannot be meant.
    pub fn parse(format: Format, text: &str) -> Result<Self, FaultsError> {
        let text = unmarked(text);
        let document = match format {
            Format::Toml => tree::from_toml(text),
            Format::Json => tree::from_json(text),
        };
        let document = document.map_err(|error| FaultsError {
            place: Place {
                line: error.line,
                fault: None,
            },
            why: Refusal::Syntax(error.what),
        })?;
        let (seed, rules) = reader::plan(&document)?;
        Ok(Self {
            path: None,
            seed,
            rules,
            document: document.json(),
        })
    }

    /// The rules, in their order.
    pub fn rules(&self) -> impl Iterator<Item = &FaultRule> {
        self.rules.iter().map(|ordered| &ordered.rule)
    }

    /// The file it was read from, if it was.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The same plan as JSON.
    #[must_use]
    pub fn document(&self) -> &serde_json::Value {
        &self.document
    }

    /// What chance comes from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A fresh plan of these rules, for a machine of so many devices.
    ///
    /// # Errors
    /// [`FaultsError`] if a rule is about a device, core, engine or queue that the machine does not
    /// have.
    pub fn lay(&self, arch: Arch, devices: u32) -> Result<Laid, FaultsError> {
        self.lay_into(&Arc::new(FaultPlan::new(self.seed)), arch, devices)
    }

    /// Adds these rules to a plan that may be at work, on a machine of so many devices.
    ///
    /// # Errors
    /// As [`lay`](Self::lay). Rules before the wrong one are in the plan then.
    pub fn lay_into(
        &self,
        plan: &Arc<FaultPlan>,
        arch: Arch,
        devices: u32,
    ) -> Result<Laid, FaultsError> {
        let mut rules = Vec::new();
        for ordered in &self.rules {
            ordered.check(arch, devices)?;
            let id = plan.add(ordered.rule).map_err(|error| FaultsError {
                place: ordered.place,
                why: error.into(),
            })?;
            rules.push((id, ordered.clone()));
        }
        Ok(Laid {
            plan: Arc::clone(plan),
            rules,
        })
    }
}

/// The text behind a byte order mark, which some editors put before it.
pub(crate) fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

impl Ordered {
    /// # Errors
    /// What the machine does not have.
    fn check(&self, arch: Arch, devices: u32) -> Result<(), FaultsError> {
        let profile = arch.profile();
        let matching = self.rule.matching;
        let numbers = [
            ("device", matching.device.map(|it| it.get()), devices),
            ("core", matching.core.map(|it| it.get()), profile.cores),
            (
                "engine",
                matching.engine.map(|it| it.get()),
                profile.engines,
            ),
            ("queue", matching.queue, QUEUES_PER_ENGINE),
        ];
        for (key, number, count) in numbers {
            if let Some(number) = number.filter(|&number| number >= count) {
                let line = self.lines.iter().find(|(name, _)| name == key);
                return Err(FaultsError {
                    place: Place {
                        line: line.and_then(|&(_, line)| line).or(self.place.line),
                        ..self.place
                    },
                    why: Refusal::OutOfRange {
                        key,
                        found: number.to_string(),
                        least: 0,
                        most: u64::from(count.saturating_sub(1)),
                        machine: Some(match devices {
                            1 => format!("a machine with 1 device of {arch}"),
                            _ => format!("a machine with {devices} devices of {arch}"),
                        }),
                    },
                });
            }
        }
        Ok(())
    }
}

impl Laid {
    /// The plan, for whoever builds the machine.
    #[must_use]
    pub fn plan(&self) -> &Arc<FaultPlan> {
        &self.plan
    }

    /// Takes its rules out of the plan.
    pub fn lift(&self) {
        for (id, _) in &self.rules {
            self.plan.remove(*id);
        }
    }

    /// How each rule has done so far, in the order of the file.
    #[must_use]
    pub fn told(&self) -> Vec<RuleReport> {
        let report = |(id, ordered): &(RuleId, Ordered)| {
            let so_far = self.plan.so_far(*id).unwrap_or_default();
            RuleReport {
                fault: ordered.place.fault.unwrap_or(0),
                id: None,
                line: ordered.place.line,
                kind: ordered.rule.kind.name(),
                opportunities: so_far.opportunities,
                strikes: so_far.strikes,
            }
        };
        self.rules.iter().map(report).collect()
    }
}
