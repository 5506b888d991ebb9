//! Makes a workload of a report that was read of a log: the state that the report shows, on a
//! machine that has room for it, and the request that failed.
//!
//! ```text
//!   Report ─► machine ─► bytes of every cell ─► where they lie ─► lines of a workload
//!             (first that   flow.rs               layout.rs        └─ first line: what is assumed
//!              fits)
//! ```
//!
//! A log has sizes to three decimals, no addresses and no machine. What it does not say is chosen
//! so that everything that it does say comes out, and each choice is told:
//! [`Rebuilt::assumed`]. Nothing is chosen silently.
//!
//! It does not run what it makes; [`play`](crate::play) does, and
//! [`compare`](crate::play::compare) compares.

mod flow;
mod layout;
mod lines;
mod state;

use std::collections::BTreeSet;

use glia_abi::handle::CoreId;

use self::layout::Room;
use self::lines::{First, Lines, line};
use self::state::{Group, Owner, Place, State};
use super::WORKLOAD_FORMAT;
use super::header::DEVICES_MAX;
use crate::explain::report::{Kind, Report, Row, Scope};
use crate::explain::size::printed;
use crate::machine::Model;

/// A workload that rebuilds a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Which report of its log it is, from 1.
    pub report: u64,
    /// The machine.
    pub model: Model,
    /// What the log does not say and was assumed, one sentence each.
    pub assumed: Vec<String>,
    /// The workload.
    pub text: String,
}

/// Why a report cannot be rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotRebuild {
    /// It is about something else than device memory.
    #[error("the report is not about device memory: there is no state to rebuild")]
    NotDevice,
    /// It has no breakdown.
    #[error(
        "the log does not say what held the memory (no list, no table): only the request is known, {asked}, and a state cannot be rebuilt"
    )]
    NoRows {
        /// What was asked for.
        asked: String,
    },
    /// No machine has room for it.
    #[error("none of trn1, trn2, trn3 has these cores and room for {total} on one HBM")]
    NoMachine {
        /// The most on one HBM.
        total: String,
    },
    /// No workload has so many devices.
    #[error("it is about device {device}; a workload has {devices_max} devices at most, from 0")]
    NoDevice {
        /// The device.
        device: u32,
        /// The most that a workload can have.
        devices_max: u32,
    },
    /// Its figures exclude each other.
    #[error("the cells of {place} exclude each other, even without the totals")]
    Contradiction {
        /// Where.
        place: String,
    },
    /// The size of the request is not known, or nothing.
    #[error(
        "the log does not say how many bytes were asked for, and without a request nothing fails"
    )]
    NoRequest,
    /// The rows are about other places than the one where the request failed.
    #[error(
        "the log does not say what held {place}, where the request failed: its rows are of other places"
    )]
    NoRowsThere {
        /// Where.
        place: String,
    },
    /// The rows of the HBM hold nothing.
    #[error(
        "the log's rows show nothing on the HBM, so all {free} of it would be free and the request for {asked} would be granted"
    )]
    Empty {
        /// Free bytes.
        free: String,
        /// What was asked for.
        asked: String,
    },
    /// It takes too many holes to let the request fail.
    #[error(
        "{free} would be free on the HBM beside what the log shows, so the request for {asked} would be granted; to let it fail the free room would have to lie in {holes} holes that are smaller than it, and {holes_max} are the most that are made"
    )]
    TooManyHoles {
        /// Free bytes.
        free: String,
        /// What was asked for.
        asked: String,
        /// Holes.
        holes: u64,
        /// The most that are made.
        holes_max: u64,
    },
    /// Nothing is large enough to lie between the holes.
    #[error(
        "{free} would be free on the HBM beside what the log shows, so the request for {asked} would be granted; to let it fail the free room would have to lie in {holes} holes that are smaller than it, and the largest of the log's cells is too small to lie between so many"
    )]
    TooLittle {
        /// Free bytes.
        free: String,
        /// What was asked for.
        asked: String,
        /// Holes.
        holes: u64,
    },
}

/// Rebuilds the report of a log that [`choose`] has found, the `number`-th from 1.
///
/// What other failures of the same process show of other HBMs is there as well: an HBM that the log
/// shows as full must not look as if it had room.
///
/// # Errors
/// [`CannotRebuild`].
pub fn rebuild(report: &Report, number: u64, reports: &[Report]) -> Result<Rebuilt, CannotRebuild> {
    if matches!(report.kind, Kind::HostOom | Kind::NotMemory) {
        return Err(CannotRebuild::NotDevice);
    }
    let asked = asked(report);
    if report.rows.is_empty() {
        return Err(CannotRebuild::NoRows {
            asked: asked.map_or_else(|| "of unknown size".to_owned(), printed),
        });
    }
    if report.kind == Kind::DeviceOom && asked.is_none_or(|bytes| bytes == 0) {
        return Err(CannotRebuild::NoRequest);
    }
    let model = machine(report)?;
    let mut assumed = vec![format!(
        "the machine is a {}: the first that has these cores and room for the totals",
        model.name()
    )];
    let places = "where the blocks lie, how many there are and in which order they came: \
                  one for each cell, one behind the other";
    assumed.push(places.to_owned());
    let sizes = "the bytes behind the three decimals: such that every cell and every total prints \
                 as in the log, but for those named below";
    assumed.push(sizes.to_owned());
    let failing = failing(report, model, &mut assumed);
    let state = State::new(report, model, failing, &mut assumed)?;
    if report.kind == Kind::DeviceOom && report.asked_exact != Some(true) {
        let bytes = asked.unwrap_or(0);
        assumed.push(format!(
            "the request is for {bytes} bytes: the log has three decimals"
        ));
    }
    let channel = model.arch().profile().default_channel(failing.core());
    let is_failing =
        |group: &Group| (group.device, group.channel) == (failing.device, channel.get());
    if asked.is_some() && !state.groups.iter().any(is_failing) {
        return Err(CannotRebuild::NoRowsThere {
            place: format!("ND {} HBM {}", failing.device, channel.get()),
        });
    }
    let mut lines = Lines::default();
    lines.loads(&state);
    for group in &state.groups {
        let request = asked.filter(|_| is_failing(group));
        lines.group(group, model, request, &mut assumed)?;
    }
    let mut devices: Vec<u32> = state.groups.iter().map(|group| group.device).collect();
    if asked.is_some() {
        let has = |group: &Group| (group.device, group.channel);
        let mut known: BTreeSet<_> = state.groups.iter().map(has).collect();
        // One report for each place: a log may have thousands.
        let mut seen = known.clone();
        // Those nearest in the log first.
        let mut others: Vec<_> = (1..).zip(reports).collect();
        others.sort_by_key(|(other, _)| number.abs_diff(*other));
        for (other, found) in others {
            let place = found.device.zip(found.core);
            let place = place.filter(|_| other != number && is_beside(report, found, model));
            let place = place.map(|(device, core)| {
                let channel = model.arch().profile().default_channel(CoreId::new(core));
                (device, channel.get())
            });
            if !place.is_some_and(|place| seen.insert(place)) {
                continue;
            }
            for group in beside(found, model, &known) {
                if lines.add(&group, model) {
                    known.insert(has(&group));
                    devices.push(group.device);
                    assumed.push(format!(
                        "ND {} HBM {} is as report {other} of the log, line {}, has it",
                        group.device, group.channel, found.line
                    ));
                }
            }
        }
        assumed.push("HBMs that no report of the log shows are empty".to_owned());
    }
    if let Some(bytes) = asked {
        lines.request(report, failing, bytes, &mut assumed);
    }
    let device = devices.into_iter().max().unwrap_or(0);
    if device >= DEVICES_MAX {
        return Err(CannotRebuild::NoDevice {
            device,
            devices_max: DEVICES_MAX,
        });
    }
    let devices = device + 1;
    let first = First {
        report: number,
        workload: WORKLOAD_FORMAT,
        machine: model.name(),
        devices,
        assumed: &assumed,
    };
    let mut text = line(&first);
    text += &lines.text;
    Ok(Rebuilt {
        report: number,
        model,
        text,
        assumed,
    })
}

/// Whether a report says what the same process held elsewhere about then, on a machine of this kind.
fn is_beside(report: &Report, other: &Report, model: Model) -> bool {
    let is_same = match (report.thread, other.thread) {
        (Some(one), Some(other)) => one.pid == other.pid,
        _ => true,
    };
    let is_placed = other.device.is_some_and(|device| device < DEVICES_MAX) && other.core.is_some();
    other.kind == Kind::DeviceOom && is_placed && is_same && fits(other, model).is_ok()
}

/// What a report shows of HBMs that are not known. Its models have ids that others may have.
fn beside(report: &Report, model: Model, known: &BTreeSet<(u32, u32)>) -> Vec<Group> {
    let mut untold = Vec::new();
    let place = failing(report, model, &mut untold);
    let Ok(mut state) = State::new(report, model, place, &mut untold) else {
        return Vec::new();
    };
    let is_new = |group: &Group| !known.contains(&(group.device, group.channel));
    state
        .groups
        .retain(|group| is_new(group) && group.device < DEVICES_MAX);
    for cell in state.groups.iter_mut().flat_map(|group| &mut group.cells) {
        cell.owner = Owner::Core;
    }
    state.groups
}

/// The number, from 1, of the report to rebuild: `wanted`, or the first failure that says what held
/// the memory, or the first report that does.
#[must_use]
pub fn choose(reports: &[Report], wanted: Option<u64>) -> Option<(u64, &Report)> {
    let mut numbered = (1..).zip(reports);
    if let Some(wanted) = wanted {
        return numbered.find(|(number, _)| *number == wanted);
    }
    let all: Vec<_> = numbered.collect();
    let has_rows = |(_, report): &&(u64, &Report)| !report.rows.is_empty();
    let is_oom = |(_, report): &&(u64, &Report)| report.kind == Kind::DeviceOom;
    let found = all.iter().find(|one| has_rows(one) && is_oom(one));
    let found = found.or_else(|| all.iter().find(has_rows));
    found.or(all.first()).copied()
}

/// Bytes of the request. Those of a printed size are as good as any that print the same.
fn asked(report: &Report) -> Option<u64> {
    report
        .asked_bytes
        .filter(|_| report.kind == Kind::DeviceOom)
}

/// Where the request failed. The driver's own lines name an HBM, and no core.
fn failing(report: &Report, model: Model, assumed: &mut Vec<String>) -> Place {
    let profile = model.arch().profile();
    let is_there = |core: &u32| {
        let channel = profile.default_channel(CoreId::new(*core)).get();
        report.hbm.is_none_or(|hbm| hbm == channel)
    };
    let place = Place {
        device: report.device.unwrap_or(0),
        core: (report.core.into_iter())
            .chain((0..profile.cores).find(is_there))
            .next()
            .unwrap_or(0),
    };
    if report.kind == Kind::DeviceOom && (report.device.is_none() || report.core.is_none()) {
        let Place { device, core } = place;
        assumed.push(format!(
            "the request is made on ND {device} NC {core}: the log does not say where"
        ));
    }
    place
}

/// The first machine that has the cores of the report and room for its totals.
fn machine(report: &Report) -> Result<Model, CannotRebuild> {
    let mut most = 0;
    for model in Model::ALL {
        match fits(report, model) {
            Ok(()) => return Ok(model),
            Err(bytes) => most = bytes,
        }
    }
    Err(CannotRebuild::NoMachine {
        total: printed(most),
    })
}

/// Whether a machine has the cores of the report and room for its totals; if not, the largest of
/// these.
fn fits(report: &Report, model: Model) -> Result<(), u64> {
    let profile = model.arch().profile();
    let channels = u32::try_from(profile.region_bases.len()).unwrap_or(u32::MAX);
    let channel = |core: u32| profile.default_channel(CoreId::new(core)).get();
    let rows = || report.rows.iter();
    let cores = rows().filter_map(|row| row.core);
    let has_cores = cores.chain(report.core).all(|core| core < profile.cores);
    let hbms = rows().filter_map(|row| row.hbm);
    let has_hbms = hbms.chain(report.hbm).all(|hbm| hbm < channels);
    let mut shared = report.hbm_cores.iter().map(|&core| channel(core));
    let first = shared.next();
    let is_shared = shared.all(|channel| Some(channel) == first);
    let is_there = |row: &Row| match (row.scope, row.hbm, row.core) {
        (Scope::Core, Some(hbm), Some(core)) => channel(core) == hbm,
        _ => true,
    };
    let free_bytes = Room::new(profile).free_bytes();
    let totals = rows().filter(|row| row.scope != Scope::Neff);
    let totals = totals.map(|row| {
        let total = row.total.as_ref().map_or(0, |total| total.bytes);
        total.max(row.categories.sum_bytes())
    });
    let most = totals.max().unwrap_or(0);
    let is_this = has_cores && has_hbms && is_shared && rows().all(is_there);
    if is_this && most <= free_bytes {
        Ok(())
    } else {
        Err(most)
    }
}
