//! What a replay found: findings one by one as far as they are wanted, and counts of all of them.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use glia_abi::divergence::Divergence;

use super::compare::Difference;
use super::dma::trace::DmaTraceError;
use super::judge::Verdict;
use super::source::SourceError;
use super::trace::TraceError;
use super::value::Value;

/// The version of the report as JSON.
pub const REPORT_FORMAT: u32 = 1;

/// Whether all is as hoped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Every answer is the reference's, or differs as declared.
    Conforms,
    /// An answer differs.
    Mismatch,
    /// A file could not be replayed to its end.
    Unusable,
}

/// Counts of what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Scenarios begun, of a trace of the DMA layer.
    #[serde(skip_serializing_if = "is_zero")]
    pub scenarios: u64,
    /// Records replayed.
    pub records: u64,
    /// Fields in which an answer differs from the reference's.
    pub mismatches: u64,
    /// Records with such a field.
    pub mismatched_records: u64,
    /// Records that differ as declared, by divergence.
    #[serde(serialize_with = "by_name")]
    pub divergences: BTreeMap<Divergence, u64>,
    /// Records replayed where a declared divergence had led the two apart.
    pub tainted_records: u64,
    /// Fields that differ in these, which says nothing.
    pub tainted_differences: u64,
}

/// What was found in one file.
#[derive(Debug, Serialize)]
pub struct FileReport {
    /// The file.
    pub file: String,
    /// How much was found.
    #[serde(flatten)]
    pub counts: Counts,
    /// The first findings of each kind, in order.
    pub findings: Vec<Finding>,
    /// How many of each kind are kept.
    #[serde(skip)]
    kept: BTreeMap<Kind, usize>,
    /// The scenario that is under way.
    #[serde(skip)]
    scenario: Option<String>,
    /// Why the file could not be replayed to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<FileError>,
}

/// Why a file could not be replayed to its end.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It is not as the format of memory-pool traces has it.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It is not as the format of DMA traces has it.
    #[error(transparent)]
    Dma(#[from] DmaTraceError),
    /// The driver could not be set up for a scenario.
    #[error("the driver cannot be set up: {0}")]
    NoDevice(String),
}

/// The error's text.
impl Serialize for FileError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One finding.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// What kind of finding.
    pub kind: Kind,
    /// The line of its record, from 1; in a trace of the memory pool the record's number is one
    /// less.
    pub line: u64,
    /// The scenario, in a trace of the DMA layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The operation.
    pub op: &'static str,
    /// The field, for a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What the trace has; absent for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value<'static>>,
    /// What Glia has; absent for nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<Value<'static>>,
    /// What one should know beside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A difference.
    Mismatch,
    /// A difference where a declared divergence had led the two apart.
    Tainted,
    /// A declared divergence.
    Divergence,
}

/// Which findings are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// So many of a kind and file at most.
    pub per_kind: usize,
    /// Tainted differences and divergences, too.
    pub all_kinds: bool,
}

impl FileReport {
    /// Nothing found yet.
    #[must_use]
    pub fn new(file: String) -> Self {
        Self {
            file,
            counts: Counts::default(),
            findings: Vec::new(),
            kept: BTreeMap::new(),
            scenario: None,
            error: None,
        }
    }

    /// Whether all is as hoped in this file.
    #[must_use]
    pub fn status(&self) -> Status {
        match (&self.error, self.counts.mismatches) {
            (Some(_), _) => Status::Unusable,
            (None, 0) => Status::Conforms,
            (None, _) => Status::Mismatch,
        }
    }

    /// Counts a record and keeps of it what is wanted.
    pub fn add(
        &mut self,
        line: u64,
        op: &'static str,
        is_tainted: bool,
        verdict: Verdict,
        wanted: Wanted,
    ) {
        let counts = &mut self.counts;
        counts.records += 1;
        if let Some(divergence) = verdict.divergence {
            *counts.divergences.entry(divergence).or_default() += 1;
            self.keep(
                Finding::named(Kind::Divergence, line, op, divergence.name()),
                wanted,
            );
        }
        let counts = &mut self.counts;
        let found = verdict.differences.len() as u64;
        let kind = if is_tainted {
            counts.tainted_records += 1;
            counts.tainted_differences += found;
            Kind::Tainted
        } else {
            counts.mismatches += found;
            counts.mismatched_records += u64::from(found > 0);
            Kind::Mismatch
        };
        for difference in verdict.differences {
            self.keep(Finding::difference(kind, line, op, difference), wanted);
        }
    }

    /// Counts a scenario, to which all that is found from here on belongs.
    pub fn begin_scenario(&mut self, name: String) {
        self.counts.scenarios += 1;
        self.scenario = Some(name);
    }

    fn keep(&mut self, finding: Finding, wanted: Wanted) {
        let kept = self.kept.entry(finding.kind).or_default();
        let is_wanted = wanted.all_kinds || finding.kind == Kind::Mismatch;
        if is_wanted && *kept < wanted.per_kind {
            *kept += 1;
            let scenario = self.scenario.clone();
            self.findings.push(Finding {
                scenario,
                ..finding
            });
        }
    }

    /// Mismatches that were counted and not kept.
    #[must_use]
    pub fn mismatches_not_kept(&self) -> u64 {
        let kept = self.kept.get(&Kind::Mismatch).copied().unwrap_or(0);
        self.counts.mismatches - kept as u64
    }
}

impl Finding {
    fn difference(kind: Kind, line: u64, op: &'static str, difference: Difference) -> Self {
        let Difference {
            field,
            expected,
            got,
            note,
        } = difference;
        let field = Some(field);
        Self {
            kind,
            line,
            scenario: None,
            op,
            field,
            expected,
            got,
            note,
        }
    }

    /// A finding that is told by a name.
    fn named(kind: Kind, line: u64, op: &'static str, name: &str) -> Self {
        Self {
            kind,
            line,
            scenario: None,
            op,
            field: None,
            expected: None,
            got: None,
            note: Some(name.to_owned()),
        }
    }
}

impl Counts {
    /// Adds the counts of another file.
    pub fn absorb(&mut self, other: &Self) {
        self.scenarios += other.scenarios;
        self.records += other.records;
        self.mismatches += other.mismatches;
        self.mismatched_records += other.mismatched_records;
        self.tainted_records += other.tainted_records;
        self.tainted_differences += other.tainted_differences;
        for (divergence, count) in &other.divergences {
            *self.divergences.entry(*divergence).or_default() += count;
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn by_name<S: Serializer>(
    counts: &BTreeMap<Divergence, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(
        counts
            .iter()
            .map(|(divergence, count)| (divergence.name(), count)),
    )
}
