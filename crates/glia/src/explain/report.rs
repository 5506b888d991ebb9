//! What was read of a log: one [`Report`] for each failure, or each account of usage.
//!
//! What the log does not say is `None`, never 0. The JSON form is described in
//! `docs/formats/explain.md`.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::category::Name;
use super::finding::Finding;
use super::size::{Size, printed};

/// The version of the JSON form.
pub const REPORT_FORMAT: u32 = 1;

/// The shape of a report, by what the runtime's versions print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Family {
    /// A single line, no breakdown.
    A,
    /// A list of items for one core.
    B,
    /// A table with rows for HBM, cores and models.
    C,
    /// An account for each loaded model; no failure.
    D,
    /// The line of newer runtimes, its table missing.
    E,
    /// No memory report at all.
    N,
}

/// What kind of event it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Device memory was asked for and not given.
    DeviceOom,
    /// Host memory was asked for and not given.
    HostOom,
    /// An account of usage, no failure.
    Usage,
    /// A failure that no line of the log ties to memory.
    NotMemory,
}

/// What a row of a report accounts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// A device.
    Device,
    /// One HBM of a device.
    Hbm,
    /// A core.
    Core,
    /// A loaded model.
    Neff,
}

/// A thread of the process that wrote the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// The process.
    pub pid: u64,
    /// The thread in it.
    pub tid: u64,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.tid)
    }
}

impl Serialize for Thread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Categories of a row in the order of the log; `None` where it prints `n/a`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Categories(pub Vec<(Name, Option<Size>)>);

impl Categories {
    /// The size of a category; `None` if it is missing or `n/a`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Size> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.and_then(|(_, size)| size.as_ref())
    }

    /// Whether the row has a cell for the category, even an `n/a`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Those with a size, in order.
    pub fn sizes(&self) -> impl Iterator<Item = (&str, &Size)> {
        let sizes = self.0.iter();
        sizes.filter_map(|(name, size)| Some((name.as_ref(), size.as_ref()?)))
    }

    /// The bytes of all categories.
    #[must_use]
    pub fn sum_bytes(&self) -> u64 {
        let bytes = self.sizes().map(|(_, size)| size.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// How far the printed sizes may be from the true ones, all together.
    #[must_use]
    pub fn rounding_bytes(&self) -> u64 {
        let bytes = self.sizes().map(|(_, size)| size.rounding_bytes());
        bytes.fold(0, u64::saturating_add)
    }
}

impl Serialize for Categories {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, size) in &self.0 {
            map.serialize_entry(name, size)?;
        }
        map.end()
    }
}

/// What one device, HBM, core or model holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What the row accounts for.
    pub scope: Scope,
    /// The device (ND).
    pub device: Option<u32>,
    /// The HBM of the device.
    pub hbm: Option<u32>,
    /// The physical core of the device (NC).
    pub core: Option<u32>,
    /// The id of the model.
    pub neff: Option<u64>,
    /// The name of the model.
    pub name: Option<String>,
    /// The line of the log.
    pub line: u64,
    /// All that it holds.
    pub total: Option<Size>,
    /// What it holds, by category.
    pub categories: Categories,
}

impl Row {
    /// A row without sizes.
    #[must_use]
    pub fn new(scope: Scope, line: u64) -> Self {
        Self {
            scope,
            device: None,
            hbm: None,
            core: None,
            neff: None,
            name: None,
            line,
            total: None,
            categories: Categories::default(),
        }
    }

    /// How many bytes of the total no category accounts for, if that is more than rounding makes.
    #[must_use]
    pub fn unaccounted_bytes(&self) -> Option<u64> {
        let total = self.total.as_ref()?;
        let rounding = total.rounding_bytes() + self.categories.rounding_bytes();
        let missing = total.bytes.checked_sub(self.categories.sum_bytes())?;
        (missing > rounding).then_some(missing)
    }
}

/// Something of a report that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// The line of the log.
    pub line: u64,
    /// What is wrong there.
    pub what: String,
}

/// One failure, or one account of usage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The log.
    pub file: String,
    /// The line that names the failure; without one, the first line of the report.
    pub line: u64,
    /// The shape of the report.
    pub family: Family,
    /// What kind of event it was.
    pub kind: Kind,
    /// The size asked for, as printed; `None` if only its bytes are.
    pub asked: Option<String>,
    /// The size asked for.
    pub asked_bytes: Option<u64>,
    /// Whether the log has all bytes of the size; `None` if nothing was asked.
    pub asked_exact: Option<bool>,
    /// The alignment as printed, which may be "none"; `None` if the log does not say.
    pub alignment: Option<String>,
    /// The alignment; `None` if there was none or the log does not say.
    pub alignment_bytes: Option<u64>,
    /// What the memory was asked for.
    pub usage: Option<Name>,
    /// The device (ND).
    pub device: Option<u32>,
    /// The physical core of the device (NC).
    pub core: Option<u32>,
    /// The HBM of the device.
    pub hbm: Option<u32>,
    /// How many physical cores make a logical one.
    pub lnc_size: Option<u32>,
    /// The cores that share the HBM.
    pub hbm_cores: Vec<u32>,
    /// The thread that failed.
    pub thread: Option<Thread>,
    /// The tensor, ring queue or weight that the memory was for.
    pub object: Option<String>,
    /// The status that the caller got.
    pub status: Option<String>,
    /// The file with the allocation events of the device.
    pub event_file: Option<String>,
    /// Who holds what.
    pub rows: Vec<Row>,
    /// Names of models by id.
    pub neffs: BTreeMap<u64, String>,
    /// Lines that tell of the same failed size and have no report of their own.
    pub also_lines: Vec<u64>,
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// What the report points to.
    pub points_to: Vec<Finding>,
    /// What the report does not say, and a cause may hang on.
    pub not_reported: Vec<&'static str>,
}

impl Report {
    /// A report of which nothing is known.
    #[must_use]
    pub fn new(file: &str, line: u64, family: Family, kind: Kind) -> Self {
        Self {
            file: file.to_owned(),
            line,
            family,
            kind,
            asked: None,
            asked_bytes: None,
            asked_exact: None,
            alignment: None,
            alignment_bytes: None,
            usage: None,
            device: None,
            core: None,
            hbm: None,
            lnc_size: None,
            hbm_cores: Vec::new(),
            thread: None,
            object: None,
            status: None,
            event_file: None,
            rows: Vec::new(),
            neffs: BTreeMap::new(),
            also_lines: Vec::new(),
            unread: Vec::new(),
            points_to: Vec::new(),
            not_reported: Vec::new(),
        }
    }

    /// Whether it tells of memory that was not given.
    #[must_use]
    pub fn is_oom(&self) -> bool {
        matches!(self.kind, Kind::DeviceOom | Kind::HostOom)
    }

    /// Whether the size asked for can be these bytes.
    pub(super) fn may_have_asked(&self, bytes: u64) -> bool {
        match (&self.asked, self.asked_bytes) {
            (Some(text), _) => *text == printed(bytes),
            (None, Some(known)) => known == bytes,
            (None, None) => true,
        }
    }

    /// Sets the exact size asked for.
    pub(super) fn set_asked_bytes(&mut self, bytes: u64) {
        self.asked_bytes = Some(bytes);
        self.asked_exact = Some(true);
    }
}
