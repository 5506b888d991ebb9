//! What a report points to, said with the figures that say so.
//!
//! Nothing here guesses at a cause: each finding is a statement about the rows of one report. What
//! a report does not hold (free blocks, other banks, other processes) is said by `not_reported`.

use serde::Serialize;

use super::category::{self, PROFILER, SCRATCHPAD, SHARED_SCRATCHPAD};
use super::report::{Family, Kind, Report, Row, Scope};
use super::size::{Size, printed};

/// A share from which on it is worth a sentence, in percent.
const NOTABLE_PERCENT: u64 = 10;
/// The share at which one category is the story, in percent.
const DOMINANT_PERCENT: u64 = 80;
/// Microcode takes some 96 MB of every core, from its first model on.
pub(crate) const IDLE_CORE_BYTES: u64 = 128 << 20;
/// Trn1 and Inf2: one HBM for each core. Trn2: one for two physical cores.
const HBM_V2_BYTES: u64 = 16 << 30;
const HBM_V3_BYTES: u64 = 24 << 30;
/// Trn3.
const HBM_V4_BYTES: u64 = 36 << 30;
/// What the driver keeps of every HBM for the firmware. No report counts it.
pub const FIRMWARE_BYTES: u64 = 16 << 20;
/// The share that is nearly all, in percent.
const NEARLY_ALL_PERCENT: u64 = 95;

/// What kind of thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// One category holds nearly everything.
    Dominant,
    /// DMA rings hold a large share.
    Rings,
    /// Scratchpads hold a large share.
    Scratchpad,
    /// The profiler's buffers hold a large share.
    Profiler,
    /// The process holds next to nothing on another core of the same device. Others may.
    IdleCore,
    /// The process holds a large share on another core of the same device.
    Neighbour,
    /// The report leaves more room than was asked for.
    MoreFree,
    /// The request was aligned, and may fail though enough bytes are free.
    Alignment,
    /// It was host memory, not device memory.
    Host,
    /// Nothing in the log ties the failure to memory.
    NotMemory,
}

/// What a report points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of thing it is.
    pub kind: FindingKind,
    /// A sentence with the figures.
    pub text: String,
}

/// Says of a report, when all of it is read, what it points to and what it does not say.
pub(super) fn judge(report: &mut Report) {
    report.points_to = findings(report);
    report.not_reported = not_reported(report);
}

/// What a report points to, the most telling first.
fn findings(report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |kind, text| found.push(Finding { kind, text });
    match report.kind {
        Kind::HostOom => add(
            FindingKind::Host,
            "memory of the host ran out, not of the device; smaller models \
             or fewer processes on the host help, more cores do not"
                .to_owned(),
        ),
        Kind::NotMemory => add(
            FindingKind::NotMemory,
            "no line of this log ties the failure to device memory".to_owned(),
        ),
        Kind::Usage | Kind::DeviceOom => {}
    }
    if report.kind == Kind::DeviceOom
        && let Some(row) = fullest(report)
    {
        shares(report, row, &mut add);
        more_free(report, row, &mut add);
        cores(report, &mut add);
        if report.alignment_bytes.is_some_and(|bytes| bytes > 0) {
            let alignment = report.alignment.as_deref().unwrap_or_default();
            add(
                FindingKind::Alignment,
                format!(
                    "the place had to be a multiple of {alignment}; such a request can \
                     fail while enough bytes are free, if no free block begins at one"
                ),
            );
        }
    }
    found
}

/// Where the figures fit a machine of which the HBM had room for the request.
fn more_free(report: &Report, row: &Row, add: &mut impl FnMut(FindingKind, String)) {
    let (Some(asked), Some((_, machine)), Some((least, most))) =
        (report.asked_bytes, capacity(report), free(report, row))
    else {
        return;
    };
    if least > asked {
        add(
            FindingKind::MoreFree,
            format!(
                "the report leaves more room than was asked, {} if this is {machine}: it was in \
                 pieces, split over two pools, or held by another core or process",
                printed(most)
            ),
        );
    }
}

/// The least and the most that was free of an HBM if this report's process alone had memory there:
/// the total of the row is printed to three decimals. `None` if the capacity is not known.
#[must_use]
pub fn free(report: &Report, row: &Row) -> Option<(u64, u64)> {
    let (capacity, _) = capacity(report)?;
    let (low, high) = row.total.as_ref()?.bounds();
    let free = |used| (capacity - FIRMWARE_BYTES).saturating_sub(used);
    Some((free(high), free(low)))
}

/// What the rings of a row hold; `None` if it says of none.
pub(super) fn ring_bytes(row: &Row) -> Option<u64> {
    let sizes = row.categories.sizes();
    let rings = sizes.filter(|(name, _)| category::is_ring(name));
    rings
        .map(|(_, size)| size.bytes)
        .reduce(u64::saturating_add)
}

fn shares(report: &Report, row: &Row, add: &mut impl FnMut(FindingKind, String)) {
    let Some(total) = row.total.as_ref().filter(|total| total.bytes > 0) else {
        return;
    };
    let share = |bytes: u64| percent(bytes, total.bytes);
    let sum = |wanted: &dyn Fn(&str) -> bool| {
        let sizes = row.categories.sizes().filter(|(name, _)| wanted(name));
        sizes.fold(0_u64, |sum, (_, size)| sum.saturating_add(size.bytes))
    };
    if let Some((name, size)) = largest(row).into_iter().next()
        && share(size.bytes) >= DOMINANT_PERCENT
    {
        let text = &size.text;
        let most = if share(size.bytes) >= NEARLY_ALL_PERCENT {
            "nearly all"
        } else {
            "most"
        };
        add(
            FindingKind::Dominant,
            format!("{name}: {text} of {}, {most} of it", total.text),
        );
    }
    let rings = ring_bytes(row).unwrap_or(0);
    // Of rings that were asked for, any share is worth a sentence.
    let is_asked = report.usage.as_deref().is_some_and(category::is_ring);
    if share(rings) >= NOTABLE_PERCENT || is_asked && rings > 0 {
        add(
            FindingKind::Rings,
            format!(
                "DMA rings take {} ({} %): they grow with the number and size of the \
                 transfers that a model's queues hold, so with batch, sequence length and sharding",
                printed(rings),
                share(rings)
            ),
        );
    }
    let scratchpad = sum(&|name| name == SCRATCHPAD || name == SHARED_SCRATCHPAD);
    if share(scratchpad) >= NOTABLE_PERCENT {
        let own = sum(&|name| name == SCRATCHPAD);
        let own = if own > 0 {
            format!(", {} of it private to single models", printed(own))
        } else {
            String::new()
        };
        add(
            FindingKind::Scratchpad,
            format!(
                "scratchpad takes {} ({} %){own}; NEURON_SCRATCHPAD_PAGE_SIZE \
                 decides what can be shared",
                printed(scratchpad),
                share(scratchpad)
            ),
        );
    }
    let profiler = sum(&|name| name == PROFILER);
    if share(profiler) >= NOTABLE_PERCENT {
        add(
            FindingKind::Profiler,
            format!(
                "the profiler's buffers take {} ({} %); without profiling they are not there",
                printed(profiler),
                share(profiler)
            ),
        );
    }
}

/// What the process holds on the other cores of the device.
fn cores(report: &Report, add: &mut impl FnMut(FindingKind, String)) {
    let others = report
        .rows
        .iter()
        .filter(|row| row.scope == Scope::Core && row.core.is_some() && row.core != report.core);
    let mut rows = report.rows.iter();
    let own = rows.find(|row| row.scope == Scope::Core && row.core == report.core);
    let hbm = report.hbm.or_else(|| own?.hbm);
    for row in others {
        let (Some(core), Some(total)) = (row.core, &row.total) else {
            continue;
        };
        let (is_empty, is_idle) = (total.bytes == 0, total.bytes <= IDLE_CORE_BYTES);
        let shares = report.hbm_cores.contains(&core) || row.hbm.is_some() && row.hbm == hbm;
        let (place, moved) = if shares {
            ("on the same HBM", "; a move there makes no room")
        } else {
            ("of the same device", "")
        };
        let total = &total.text;
        // A report counts one process: what it does not have there, another one may.
        let (kind, text) = if is_idle {
            let held = if is_empty {
                "nothing".to_owned()
            } else {
                format!("only {total}")
            };
            (
                FindingKind::IdleCore,
                format!("this process holds {held} on NC {core} {place}{moved}"),
            )
        } else {
            (
                FindingKind::Neighbour,
                format!("NC {core} {place} holds {total}, so it is not idle either"),
            )
        };
        add(kind, text);
    }
}

/// The row that says most of how full it was: that of the HBM, else of the device, else of the core
/// that failed.
#[must_use]
pub fn fullest(report: &Report) -> Option<&Row> {
    let of = |scope| {
        report.rows.iter().find(move |row| {
            row.scope == scope
                && (scope != Scope::Core || report.core.is_none() || row.core == report.core)
        })
    };
    of(Scope::Hbm)
        .or_else(|| of(Scope::Device))
        .or_else(|| of(Scope::Core))
}

/// The categories of a row that hold anything, largest first.
#[must_use]
pub fn largest(row: &Row) -> Vec<(&str, &Size)> {
    let mut sizes: Vec<_> = row
        .categories
        .sizes()
        .filter(|(_, size)| size.bytes > 0)
        .collect();
    sizes.sort_by_key(|(_, size)| std::cmp::Reverse(size.bytes));
    sizes
}

/// The size of the HBM that the report's figures fit, with the reason; the log never has it.
#[must_use]
pub fn capacity(report: &Report) -> Option<(u64, &'static str)> {
    let row = fullest(report)?;
    let used = row.total.as_ref()?.bytes;
    let of_hbm = |row: &Row| row.core.is_none_or(|core| report.hbm_cores.contains(&core));
    if row.scope == Scope::Device && !report.rows.iter().all(of_hbm) {
        return None;
    }
    if used > HBM_V4_BYTES - FIRMWARE_BYTES {
        return None;
    }
    if used > HBM_V3_BYTES - FIRMWARE_BYTES {
        return Some((HBM_V4_BYTES, "Trn3"));
    }
    if used > HBM_V2_BYTES - FIRMWARE_BYTES || report.hbm_cores.len() > 1 || report.core > Some(1) {
        return Some((HBM_V3_BYTES, "Trn2"));
    }
    // A list is of older runtimes; a table of these machines has one core for each HBM.
    let is_v2 = report.family == Family::B || report.hbm_cores.len() == 1 || has_one_core(report);
    (is_v2 && report.is_oom()).then_some((HBM_V2_BYTES, "Trn1 or Inf2"))
}

/// Whether the table is of one HBM and one core, which holds all of it.
fn has_one_core(report: &Report) -> bool {
    let of = |scope| report.rows.iter().filter(move |row| row.scope == scope);
    let (mut banks, mut cores) = (of(Scope::Hbm), of(Scope::Core));
    let (bank, core) = (banks.next(), cores.next());
    let (Some(bank), Some(core), None, None) = (bank, core, banks.next(), cores.next()) else {
        return false;
    };
    bank.hbm == core.core && bank.total == core.total
}

/// What a report does not say.
fn not_reported(report: &Report) -> Vec<&'static str> {
    let mut lacks = Vec::new();
    match report.kind {
        Kind::NotMemory => return vec!["whether memory had any part in it"],
        Kind::Usage => return lacks,
        Kind::HostOom => return vec!["how much host memory there was"],
        Kind::DeviceOom => {}
    }
    if report.device.is_none() {
        lacks.push("on which device");
    } else if report.core.is_none() {
        lacks.push("on which core");
    }
    if report.asked_exact == Some(false) {
        lacks.push("the exact size asked for");
    }
    if report.rows.is_empty() {
        lacks.push("what held the memory");
    } else {
        lacks.push("the largest free block");
        lacks.push("what other processes held");
        let cores = report.rows.iter().filter(|row| row.scope == Scope::Core);
        lacks.push(if cores.count() > 1 {
            "whether other HBMs were idle"
        } else {
            "whether other cores were idle"
        });
    }
    lacks
}

/// Rounded to the nearest percent.
#[must_use]
pub fn percent(part: u64, whole: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    let percent = (u128::from(part) * 100 + whole / 2) / whole;
    u64::try_from(percent).unwrap_or(u64::MAX)
}
