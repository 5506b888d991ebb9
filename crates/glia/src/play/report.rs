//! What a run came to, as JSON (docs/formats/run.md).

use std::collections::BTreeMap;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use glia_abi::handle::CoreId;
use glia_abi::mem_usage::Aggregate;
use glia_runtime::RuntimeError;
use glia_runtime::dml::{CoreUsage, OomReport, UsageBytes, UsageTable};

use super::compare::Comparison;
use super::explanation::ExplanationReport;
use super::{Counts, Failure, Found, LoadedModel, Named, Peak, Played, ProcessMetrics, Warning};
use crate::faults::RuleReport;
use crate::machine::MachineFile;
use crate::workload::OpKind;

/// Version of the JSON form.
pub const RUN_FORMAT: u32 = 1;

/// One workload's run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReport {
    /// The workload.
    pub file: String,
    /// What it ran on.
    pub machine: Option<MachineFile>,
    /// Why it could not be run to its end; everything else is null then.
    pub error: Option<String>,
    /// The line behind which it was stopped; null if it was not.
    pub stopped: Option<u64>,
    /// How long it took, of real time.
    pub seconds: Option<f64>,
    /// Operations that ended as expected.
    pub operations: Option<Operations>,
    /// Bytes that were moved.
    pub bytes: Option<Bytes>,
    /// Who holds what at the end.
    pub devices: Option<Vec<DeviceReport>>,
    /// What lived when most was in use, by HBM channel.
    pub peaks: Option<Vec<PeakReport>>,
    /// Processes that run at the end.
    pub processes: Option<Vec<String>>,
    /// Their numbers, by which reports name them, in the same order.
    pub pids: Option<Vec<u32>>,
    /// Models that are loaded at the end.
    pub models: Option<Vec<ModelReport>>,
    /// What each process has, by the counters that sysfs shows.
    pub metrics: Option<Vec<CounterReport>>,
    /// What the runtime had to say about operations that succeeded.
    pub warnings: Option<Vec<WarningReport>>,
    /// How many operations that were.
    pub warnings_total: Option<u64>,
    /// What did not end as expected.
    pub failure: Option<FailureReport>,
    /// What a workload that was made of a log takes for granted, and what stands here hangs on; null
    /// if it says nothing of that.
    pub assumed: Option<Vec<String>>,
    /// How the rules of the fault plan have done; null without one.
    pub faults: Option<Vec<RuleReport>>,
    /// How the end compares with a log; null without one.
    pub comparison: Option<Comparison>,
}

/// Operations that ended as expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations(Counts);

impl Serialize for Operations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(counts) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("total", &counts.operations())?;
        for &kind in OpKind::ALL {
            map.serialize_entry(kind.name(), &counts.of(kind))?;
        }
        // Of all, those that were to fail; and objects that live at the end.
        map.serialize_entry("expected_errors", &counts.expected_errors)?;
        map.serialize_entry("live", &counts.live)?;
        map.end()
    }
}

/// Bytes that were moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Into objects.
    pub written: u64,
    /// Out of objects.
    pub read: u64,
    /// Of those, compared with what was written.
    pub verified: u64,
}

/// Who holds what on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// The device.
    pub device: u32,
    /// Its HBM channels.
    pub hbms: Vec<HbmReport>,
}

/// Who holds what on an HBM channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HbmReport {
    /// The channel.
    pub hbm: u32,
    /// Bytes in use.
    pub present_bytes: u64,
    /// The most bytes that ever were.
    pub peak_bytes: u64,
    /// The cores that it belongs to.
    pub cores: Vec<CoreReport>,
}

/// What lived when most of an HBM channel was in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeakReport {
    /// The device.
    pub device: u32,
    /// Its HBM channel.
    pub hbm: u32,
    /// Bytes.
    pub bytes: u64,
    /// The line that took them to this.
    pub line: u64,
    /// Bytes by category.
    pub categories: BTreeMap<&'static str, u64>,
    /// The names with the most bytes, the largest first.
    pub largest: Vec<NamedReport>,
    /// Allocations under all other names.
    pub others: NamedReport,
}

/// Allocations under one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedReport {
    /// The name; null for several.
    pub name: Option<String>,
    /// Allocations.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What is charged to a core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoreReport {
    /// The core.
    pub core: u32,
    /// Bytes in use.
    pub total_bytes: u64,
    /// Bytes by category, zeros left out.
    pub categories: BTreeMap<&'static str, u64>,
}

/// A model that is loaded at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelReport {
    /// What the workload calls it.
    pub id: String,
    /// The process that loaded it.
    pub process: String,
    /// The number by which reports name it.
    pub neff: u32,
    /// Its name.
    pub name: String,
    /// The device.
    pub device: u32,
    /// The core.
    pub core: u32,
    /// Bytes that it owns.
    pub total_bytes: u64,
    /// Those by category, zeros left out.
    pub categories: BTreeMap<&'static str, u64>,
    /// The block that the runtime logs of it.
    pub log: String,
}

/// A counter that sysfs shows, of one process, if it ever moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CounterReport {
    /// The process.
    pub process: String,
    /// The device.
    pub device: u32,
    /// The core; null for host memory, which is the device's.
    pub core: Option<u32>,
    /// Its name, below `device_mem` or `host_mem`.
    pub counter: &'static str,
    /// Bytes now.
    pub present_bytes: u64,
    /// The most at any time.
    pub peak_bytes: u64,
}

/// What the runtime had to say about an operation that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WarningReport {
    /// The line.
    pub line: u64,
    /// Operations with the same.
    pub count: u64,
    /// What it logged.
    pub log: String,
}

/// What did not end as expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureReport {
    /// The line.
    pub line: u64,
    /// The object.
    pub id: String,
    /// The status that the line expects.
    pub expected: &'static str,
    /// The status that came; null if bytes differed.
    pub status: Option<&'static str>,
    /// What happened, in words.
    pub what: String,
    /// The out-of-memory report, if that is what happened.
    pub oom: Option<Oom>,
    /// Why, if something ran out.
    pub explanation: Option<ExplanationReport>,
    /// What the runtime logged.
    pub log: String,
}

/// An allocation for which a device had no room, with the keys of `glia explain --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Oom {
    /// Bytes asked for.
    pub asked_bytes: u64,
    /// The alignment asked for; null for none.
    pub alignment_bytes: Option<u64>,
    /// What for, as the report's column is called.
    pub usage: &'static str,
    /// The device.
    pub device: u32,
    /// The core.
    pub core: u32,
    /// The HBM channel.
    pub hbm: u32,
    /// What the workload calls it.
    pub name: Option<String>,
    /// Where the events of the device were written; null if they were not.
    pub events_file: Option<String>,
    /// Where the chunks of the HBM were written; null if they were not.
    pub chunks_file: Option<String>,
}

impl RunReport {
    /// The report of a workload that was run.
    #[must_use]
    pub fn new(file: &str, played: &Played) -> Self {
        let counts = &played.counts;
        Self {
            file: file.to_owned(),
            machine: Some(played.machine.clone()),
            error: None,
            stopped: played.stopped,
            seconds: Some(played.took.as_secs_f64()),
            operations: Some(Operations(*counts)),
            bytes: Some(Bytes {
                written: counts.written_bytes,
                read: counts.read_bytes,
                verified: counts.verified_bytes,
            }),
            devices: Some(played.tables.iter().map(DeviceReport::new).collect()),
            peaks: Some(played.peaks.iter().map(PeakReport::new).collect()),
            processes: Some(played.processes.clone()),
            pids: Some(played.pids.iter().map(|pid| pid.get()).collect()),
            models: Some(played.models.iter().map(ModelReport::new).collect()),
            metrics: Some(played.metrics.iter().flat_map(counters).collect()),
            warnings: Some(
                played
                    .warnings
                    .kept
                    .iter()
                    .map(WarningReport::new)
                    .collect(),
            ),
            warnings_total: Some(played.warnings.total),
            failure: played.failure.as_ref().map(FailureReport::new),
            assumed: played.assumed.clone(),
            faults: Some(played.faults.clone()).filter(|rules| !rules.is_empty()),
            comparison: None,
        }
    }

    /// The report of a workload that could not be run to its end.
    #[must_use]
    pub fn unusable(file: &str, error: String) -> Self {
        Self {
            file: file.to_owned(),
            machine: None,
            error: Some(error),
            stopped: None,
            seconds: None,
            operations: None,
            bytes: None,
            devices: None,
            peaks: None,
            processes: None,
            pids: None,
            models: None,
            metrics: None,
            warnings: None,
            warnings_total: None,
            failure: None,
            assumed: None,
            faults: None,
            comparison: None,
        }
    }
}

impl DeviceReport {
    fn new(table: &UsageTable) -> Self {
        let hbms = table.banks.iter().map(|bank| HbmReport {
            hbm: bank.channel.get(),
            present_bytes: bank.present_bytes,
            peak_bytes: bank.peak_bytes,
            cores: bank.cores.iter().map(CoreReport::new).collect(),
        });
        Self {
            device: table.device.get(),
            hbms: hbms.collect(),
        }
    }
}

impl PeakReport {
    fn new(peak: &Peak) -> Self {
        let categories = peak.categories.iter();
        let named = |name, named: &Named| NamedReport {
            name,
            count: named.count,
            bytes: named.bytes,
        };
        let largest = peak.largest.iter();
        Self {
            device: peak.device.get(),
            hbm: peak.hbm.get(),
            bytes: peak.bytes,
            line: peak.line,
            categories: categories
                .map(|&(one, bytes)| (one.name(), bytes))
                .collect(),
            largest: largest
                .map(|one| named(Some(one.name.clone()), one))
                .collect(),
            others: named(None, &peak.others),
        }
    }
}

impl CoreReport {
    fn new(usage: &CoreUsage) -> Self {
        Self {
            core: usage.core.get(),
            total_bytes: usage.present.total(),
            categories: categories(&usage.present),
        }
    }
}

/// Bytes by category, zeros left out.
fn categories(present: &UsageBytes) -> BTreeMap<&'static str, u64> {
    let columns = Aggregate::ALL.into_iter();
    let columns = columns.map(|column| (column.name(), present.aggregate(column)));
    columns.filter(|&(_, bytes)| bytes > 0).collect()
}

impl ModelReport {
    fn new(loaded: &LoadedModel) -> Self {
        let model = &loaded.report.model;
        Self {
            id: loaded.id.clone(),
            process: loaded.process.clone(),
            neff: model.id.0,
            name: model.name.clone(),
            device: loaded.report.device.get(),
            core: loaded.report.core.get(),
            total_bytes: model.present.total(),
            categories: categories(&model.present),
            log: loaded.log.clone(),
        }
    }
}

/// What a process has of a device, without the counters that never moved.
fn counters(of: &ProcessMetrics) -> impl Iterator<Item = CounterReport> {
    let moved = of.metrics.leaves();
    let moved = moved.filter(|(.., balance)| balance.peak_bytes > 0);
    moved.filter_map(|(core, counter, balance)| {
        Some(CounterReport {
            process: of.process.clone(),
            device: of.device.get(),
            core: core.map(CoreId::get),
            counter: counter.sysfs_leaf()?,
            present_bytes: balance.present_bytes,
            peak_bytes: balance.peak_bytes,
        })
    })
}

impl WarningReport {
    fn new(warning: &Warning) -> Self {
        Self {
            line: warning.line,
            count: warning.count,
            log: warning.log.clone(),
        }
    }
}

impl FailureReport {
    fn new(failure: &Failure) -> Self {
        let error = match &failure.found {
            Found::Error(error) => Some(error),
            _ => None,
        };
        let oom = error.and_then(RuntimeError::oom);
        let explanation = error.and_then(RuntimeError::explanation);
        Self {
            line: failure.line,
            id: failure.id.clone(),
            expected: failure.expected.name(),
            status: failure.found.status().map(|status| status.name()),
            what: failure.found.to_string(),
            oom: oom.map(Oom::new),
            explanation: explanation.map(ExplanationReport::new),
            log: failure.log.clone(),
        }
    }
}

impl Oom {
    fn new(report: &OomReport) -> Self {
        Self {
            asked_bytes: report.asked_bytes,
            alignment_bytes: Some(report.align_bytes).filter(|&bytes| bytes > 0),
            usage: report.usage.aggregate().name(),
            device: report.device.get(),
            core: report.core.get(),
            hbm: report.channel.get(),
            name: report.hint.clone(),
            events_file: report.events_file.clone(),
            chunks_file: report.chunks_file.clone(),
        }
    }
}
