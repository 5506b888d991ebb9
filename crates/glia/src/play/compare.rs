//! Compares the end of a run with a report that was read of a log, cell by cell.
//!
//! A printed size has lost bytes, so ours is printed as well, and the texts are compared: two sizes
//! are equal if the log would show them as equal. What the log does not print is not compared.

use std::collections::BTreeSet;

use serde::Serialize;

use glia_abi::handle::CoreId;
use glia_abi::mem_usage::{Aggregate, MemUsage};
use glia_runtime::RuntimeError;
use glia_runtime::dml::{BankUsage, CoreUsage, ModelUsage, OomReport, UsageBytes, UsageTable};

use super::{Found, Played};
use crate::explain::category::{self, RINGS};
use crate::explain::report::{Kind, Report, Row, Scope};
use crate::explain::size::{Size, printed};

/// The column of the table that runtimes of early 2025 split off from `runtime`.
const XT_CC: &str = "xt cc";
const RUNTIME: &str = "runtime";
/// What a cell shows that there is not.
const NOTHING: &str = "nothing";
const NO_FAILURE: &str = "no failure";

/// What a comparison came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The line of the log's report.
    pub line: u64,
    /// Cells that were compared.
    pub cells: u64,
    /// Those that differ.
    pub differences: Vec<Difference>,
}

/// A cell that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The row: a bank, a core, a model, or the request.
    pub row: String,
    /// The column.
    pub column: String,
    /// What the log has.
    pub log: String,
    /// What the run came to.
    pub ours: String,
}

/// Compares the report of a log with the state at the end of a run, and with the request that
/// failed there.
#[must_use]
pub fn compare(report: &Report, played: &Played) -> Comparison {
    let mut cells = Cells(Comparison {
        line: report.line,
        cells: 0,
        differences: Vec::new(),
    });
    let oom = oom(played);
    request(report, played, oom, &mut cells);
    // A report counts the process that wrote it, and the tables of a run all that run.
    let own = oom.filter(|_| report.kind == Kind::DeviceOom);
    let own = own.map(|oom| &oom.table);
    let others = played.tables.iter();
    let others = others.filter(|table| own.is_none_or(|own| own.device != table.device));
    let tables: Vec<&UsageTable> = own.into_iter().chain(others).collect();
    // Of a row that is cut, the others tell.
    let has_xt_cc = report.rows.iter().any(|row| row.categories.has(XT_CC));
    for (index, row) in report.rows.iter().enumerate() {
        let ours = ours(report, index, &tables);
        let label = label(row);
        if let Some(total) = &row.total {
            let ours = ours.as_ref().map(|ours| ours.total(row.scope));
            cells.size(&label, "total", total, ours);
        }
        for (name, size) in row.categories.sizes() {
            let ours = ours.as_ref().and_then(|ours| ours.bytes(name, has_xt_cc));
            cells.size(&label, name, size, ours);
        }
        if let Some(name) = &row.name {
            let ours = ours.and_then(|ours| ours.name);
            cells.text(&label, "name", name, ours.as_deref().unwrap_or(NOTHING));
        }
    }
    cells.0
}

/// What a list counts as one, and a name that is not the runtime's.
fn usages(name: &str) -> Vec<Aggregate> {
    let all = Aggregate::ALL.into_iter();
    all.filter(|one| one.name() == name || (name == RINGS && category::is_ring(one.name())))
        .collect()
}

struct Cells(Comparison);

impl Cells {
    fn text(&mut self, row: &str, column: &str, log: &str, ours: &str) {
        self.0.cells += 1;
        if log != ours {
            self.0.differences.push(Difference {
                row: row.to_owned(),
                column: column.to_owned(),
                log: log.to_owned(),
                ours: ours.to_owned(),
            });
        }
    }

    fn size(&mut self, row: &str, column: &str, log: &Size, ours: Option<u64>) {
        let ours = match ours {
            Some(bytes) if is_shown(log, bytes) => log.text.to_string(),
            Some(bytes) => printed(bytes),
            None => NOTHING.to_owned(),
        };
        self.text(row, column, &log.text, &ours);
    }
}

/// Whether these bytes print as the log has it, or, where a hand has rounded that, near it.
fn is_shown(log: &Size, bytes: u64) -> bool {
    let is_runtimes = log.is_printed(log.bytes) || log.is_printed(log.bytes.saturating_sub(1));
    log.is_printed(bytes) || (!is_runtimes && printed(log.bytes) == printed(bytes))
}

/// What the run failed with, if that was want of device memory.
fn oom(played: &Played) -> Option<&OomReport> {
    match &played.failure.as_ref()?.found {
        Found::Error(error) => RuntimeError::oom(error),
        _ => None,
    }
}

fn request(report: &Report, played: &Played, oom: Option<&OomReport>, cells: &mut Cells) {
    const ROW: &str = "request";
    let failed = played.failure.as_ref();
    if report.kind != Kind::DeviceOom {
        let ours = failed.map_or(NO_FAILURE.to_owned(), |failure| failure.found.to_string());
        cells.text(ROW, "outcome", NO_FAILURE, &ours);
        return;
    }
    let Some(oom) = oom else {
        let ours = failed.map_or(NO_FAILURE.to_owned(), |failure| failure.found.to_string());
        cells.text(ROW, "outcome", "a failure for want of device memory", &ours);
        return;
    };
    if let Some(asked) = report.asked_bytes {
        match (&report.asked, report.asked_exact) {
            // As the runtime prints it: a log that somebody has typed may have "1100.000MB".
            (Some(_), Some(false)) => {
                cells.text(ROW, "asked", &printed(asked), &printed(oom.asked_bytes));
            }
            _ => cells.text(
                ROW,
                "asked bytes",
                &asked.to_string(),
                &oom.asked_bytes.to_string(),
            ),
        }
    }
    if let Some(alignment) = report.alignment_bytes {
        cells.text(
            ROW,
            "alignment",
            &printed(alignment),
            &printed(oom.align_bytes),
        );
    }
    if let Some(usage) = &report.usage {
        // A column of its own once, and counted as runtime since.
        let is_it = usages(usage).contains(&oom.usage.aggregate())
            || (usage == XT_CC && oom.usage == MemUsage::XtCc);
        let ours = oom.usage.aggregate().name();
        cells.text(ROW, "usage", usage, if is_it { usage } else { ours });
    }
    if let Some(device) = report.device {
        cells.text(
            ROW,
            "device",
            &device.to_string(),
            &oom.device.get().to_string(),
        );
    }
    if let Some(core) = report.core {
        cells.text(ROW, "core", &core.to_string(), &oom.core.get().to_string());
    }
}

/// What a row of the log accounts for, here.
struct Ours {
    /// One for each core, or the model's.
    parts: Vec<UsageBytes>,
    name: Option<String>,
}

impl Ours {
    fn total(&self, scope: Scope) -> u64 {
        let owned = |aggregate: &Aggregate| {
            !matches!(
                aggregate,
                Aggregate::Tensors | Aggregate::SharedScratchpad | Aggregate::ProfilerBuffers
            )
        };
        let of = |part: &UsageBytes| match scope {
            Scope::Neff => {
                let columns = Aggregate::ALL.into_iter().filter(owned);
                columns.map(|column| part.aggregate(column)).sum()
            }
            _ => part.total(),
        };
        self.parts.iter().map(of).sum()
    }

    /// `None` for a category that there is not.
    fn bytes(&self, name: &str, has_xt_cc: bool) -> Option<u64> {
        let sum = |of: &dyn Fn(&UsageBytes) -> u64| self.parts.iter().map(of).sum::<u64>();
        let xt_cc = sum(&|part| part.get(MemUsage::XtCc));
        if name == XT_CC {
            return Some(xt_cc);
        }
        let columns = usages(name);
        let all = columns.iter();
        let bytes = all.map(|&column| sum(&|part| part.aggregate(column)));
        let split = if has_xt_cc && name == RUNTIME {
            xt_cc
        } else {
            0
        };
        (!columns.is_empty()).then(|| bytes.sum::<u64>() - split)
    }
}

fn bank_of(table: &UsageTable, hbm: u32) -> Option<&BankUsage> {
    let mut banks = table.banks.iter();
    banks.find(|bank| bank.channel.get() == hbm)
}

fn ours(report: &Report, index: usize, tables: &[&UsageTable]) -> Option<Ours> {
    let row = &report.rows[index];
    let device = row.device.or(report.device).unwrap_or(0);
    let table = tables.iter().find(|table| table.device.get() == device)?;
    // What the log does not say is where the rebuilt state has it: on the core that failed.
    let core = || {
        let of_bank = report.hbm.and_then(|hbm| bank_of(table, hbm));
        let first = of_bank.and_then(|bank| Some(bank.cores.first()?.core));
        let core = row.core.or(report.core).map(CoreId::new);
        core.or(first).unwrap_or(CoreId::new(0))
    };
    let of_cores = |cores: Vec<&CoreUsage>| Ours {
        parts: cores.iter().map(|core| core.present).collect(),
        name: None,
    };
    match row.scope {
        Scope::Device => {
            let cores = table.banks.iter().flat_map(|bank| &bank.cores);
            Some(of_cores(cores.collect()))
        }
        Scope::Hbm => {
            let bank = match row.hbm {
                Some(hbm) => bank_of(table, hbm)?,
                None => {
                    let has = |bank: &&BankUsage| bank.cores.iter().any(|one| one.core == core());
                    table.banks.iter().find(has)?
                }
            };
            Some(of_cores(bank.cores.iter().collect()))
        }
        Scope::Core => {
            let core = table.core(core())?;
            Some(of_cores(vec![core]))
        }
        Scope::Neff => {
            let core = table.core(core())?;
            let model = model(report, index, core);
            model.map(|model| Ours {
                parts: vec![model.present],
                name: Some(model.name.clone()),
            })
        }
    }
}

/// The model of a row. The first row with an id that the core has means that one; the others, which
/// have no id or one that cannot be, mean the models that are left, in their order.
fn model<'a>(report: &Report, index: usize, core: &'a CoreUsage) -> Option<&'a ModelUsage> {
    let row = &report.rows[index];
    let is_of_core =
        |other: &Row| (other.scope, other.device, other.core) == (row.scope, row.device, row.core);
    let rows = report.rows.iter().take(index + 1);
    let rows = rows.filter(|other| is_of_core(other));
    let has = |neff: u64| {
        let mut models = core.models.iter();
        models.find(|model| u64::from(model.id.0) == neff)
    };
    let mut seen = BTreeSet::new();
    let mut left = 0;
    let mut found = None;
    for row in rows {
        found = row.neff.and_then(has).filter(|model| seen.insert(model.id));
        left += usize::from(found.is_none());
    }
    let is_meant = |model: &&ModelUsage| {
        let id = Some(u64::from(model.id.0));
        let mut rows = report.rows.iter();
        rows.any(|other| is_of_core(other) && other.neff == id)
    };
    found.or_else(|| {
        let mut models = core.models.iter().filter(|model| !is_meant(model));
        models.nth(left - 1)
    })
}

fn label(row: &Row) -> String {
    let device = row.device.unwrap_or(0);
    let core = row
        .core
        .map_or_else(String::new, |core| format!(" NC {core}"));
    match row.scope {
        Scope::Device => format!("ND {device}"),
        Scope::Hbm => format!("ND {device} HBM {}", row.hbm.unwrap_or(0)),
        Scope::Core => format!("ND {device}{core}"),
        Scope::Neff => {
            let id = row.neff.map_or_else(|| "?".to_owned(), |id| id.to_string());
            format!("ND {device}{core} NEFF {id}")
        }
    }
}
