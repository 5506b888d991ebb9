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
mod state;

use serde::Serialize;

use glia_abi::handle::CoreId;
use glia_abi::mem_usage::MemUsage;

use self::layout::{HOLES_MAX, Room, Step, Whole};
use self::state::{Cell, Group, Owner, Place, State};
use super::WORKLOAD_FORMAT;
use super::header::DEVICES_MAX;
use crate::explain::category::RINGS;
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

/// Rebuilds a report, the `number`-th of its log.
///
/// # Errors
/// [`CannotRebuild`].
pub fn rebuild(report: &Report, number: u64) -> Result<Rebuilt, CannotRebuild> {
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
    if let Some(bytes) = asked {
        lines.request(report, failing, bytes, &mut assumed);
    }
    let devices = state.groups.iter().map(|group| group.device);
    let device = devices.max().unwrap_or(0);
    if device >= DEVICES_MAX {
        return Err(CannotRebuild::NoDevice {
            device,
            devices_max: DEVICES_MAX,
        });
    }
    let devices = device + 1;
    let first = First {
        workload: WORKLOAD_FORMAT,
        machine: model.name(),
        devices,
        report: number,
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
        most = totals.max().unwrap_or(0);
        let is_this = has_cores && has_hbms && is_shared && rows().all(is_there);
        if is_this && most <= free_bytes {
            return Ok(model);
        }
    }
    Err(CannotRebuild::NoMachine {
        total: printed(most),
    })
}

/// The first line.
#[derive(Serialize)]
struct First<'a> {
    workload: u64,
    machine: &'static str,
    devices: u32,
    report: u64,
    assumed: &'a [String],
}

/// An operation.
#[derive(Default, Serialize)]
struct Line<'a> {
    op: &'static str,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    align: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    neff: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

/// Texts and numbers under fixed keys are always JSON.
fn line(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

fn usage_name(usage: MemUsage) -> Option<String> {
    Some(usage.name().to_ascii_lowercase())
}

/// The id of the block that holds the main pool for a while.
const PLUG: &str = "plug";

/// The lines behind the first one.
#[derive(Debug, Default)]
struct Lines {
    text: String,
    ids: u64,
}

impl Lines {
    fn push(&mut self, operation: &Line<'_>) {
        self.text += &line(operation);
    }

    /// Models, in the order of their ids.
    fn loads(&mut self, state: &State) {
        for (model, place) in state.models() {
            self.push(&Line {
                op: "load",
                id: &model.id,
                device: Some(place.device),
                core: Some(place.core),
                neff: model.neff,
                name: Some(&model.name),
                ..Line::default()
            });
        }
    }

    /// What lies on one channel.
    fn group(
        &mut self,
        group: &Group,
        model: Model,
        request: Option<u64>,
        assumed: &mut Vec<String>,
    ) -> Result<(), CannotRebuild> {
        let profile = model.arch().profile();
        let no_room = || CannotRebuild::NoMachine {
            total: printed(group.cells.iter().map(|cell| cell.bytes).sum()),
        };
        let mut cells: Vec<&Cell> = group.cells.iter().filter(|cell| cell.bytes > 0).collect();
        // The large ones first, as long as there is room for them in one piece.
        cells.sort_by_key(|cell| std::cmp::Reverse(cell.bytes));
        let mut room = Room::new(profile);
        let mut placed = Vec::new();
        for &cell in &cells {
            placed.push((cell, room.place(cell.bytes).ok_or_else(no_room)?));
        }
        let Some(request) = request.filter(|&bytes| room.largest_bytes() >= room.rounded(bytes))
        else {
            for (cell, pieces) in placed {
                self.pieces(group, cell, &pieces);
            }
            return Ok(());
        };
        let free = room.free_bytes();
        if let Some(core) = group.silent_core {
            for (cell, pieces) in placed {
                self.pieces(group, cell, &pieces);
            }
            // What the log does not show of the neighbour.
            let left = room.rounded(request).saturating_sub(room.rounded(1));
            let bytes = free.saturating_sub(left);
            let cell = Cell {
                core,
                owner: Owner::Core,
                usage: MemUsage::Tensor,
                name: "tensors".into(),
                bytes,
            };
            let pieces = room.place(bytes).ok_or_else(no_room)?;
            assumed.push(format!(
                "NC {core}, which shares the HBM and is not in the log, holds {}: with less the request would fit",
                printed(bytes)
            ));
            self.pieces(group, &cell, &pieces);
            return Ok(());
        }
        let Some((&stock, others)) = cells.split_first() else {
            return Err(CannotRebuild::Empty {
                free: printed(free),
                asked: printed(request),
            });
        };
        let mut room = Room::new(profile);
        for &cell in others {
            let pieces = room.place(cell.bytes).ok_or_else(no_room)?;
            self.pieces(group, cell, &pieces);
        }
        let steps = room.crumble(stock.bytes, request).map_err(|whole| {
            let (free, asked) = (printed(free), printed(request));
            match whole {
                Whole::TooMany { holes } => CannotRebuild::TooManyHoles {
                    free,
                    asked,
                    holes,
                    holes_max: HOLES_MAX,
                },
                Whole::TooLittle { holes } => CannotRebuild::TooLittle { free, asked, holes },
            }
        })?;
        let holes = steps.iter().filter(|step| matches!(step, Step::Filler(_)));
        let (holes, free, request) = (holes.count(), printed(free), printed(request));
        assumed.push(match holes {
            0 => format!(
                "{free} are free on the HBM, and {request} were asked for, so {} is taken to be in blocks that fill no page",
                stock.name
            ),
            _ => format!(
                "{free} are free on the HBM, and {request} were asked for, so they are taken to be in pieces: \
                 holes that are too small, left by blocks that were given back ({holes})"
            ),
        });
        let mut fillers = Vec::new();
        for step in steps {
            match step {
                Step::Stock(bytes) => self.alloc(group, stock, bytes),
                Step::Filler(bytes) => {
                    let id = format!("filler {}", fillers.len() + 1);
                    self.hold(group, stock.core, &id, bytes);
                    fillers.push(id);
                }
                Step::GiveBack => {
                    for id in std::mem::take(&mut fillers) {
                        self.free(&id);
                    }
                }
                Step::Plug(bytes) => self.hold(group, stock.core, PLUG, bytes),
                Step::Unplug => self.free(PLUG),
            }
        }
        Ok(())
    }

    /// Takes bytes that are given back.
    fn hold(&mut self, group: &Group, core: u32, id: &str, bytes: u64) {
        self.push(&Line {
            op: "alloc",
            id,
            size: Some(bytes),
            device: Some(group.device),
            core: Some(core),
            ..Line::default()
        });
    }

    fn free(&mut self, id: &str) {
        self.push(&Line {
            op: "free",
            id,
            ..Line::default()
        });
    }

    fn pieces(&mut self, group: &Group, cell: &Cell, pieces: &[u64]) {
        for &bytes in pieces {
            self.alloc(group, cell, bytes);
        }
    }

    fn alloc(&mut self, group: &Group, cell: &Cell, bytes: u64) {
        self.ids += 1;
        let (model, device, core) = match &cell.owner {
            Owner::Model(model) => (Some(model.id.as_str()), None, None),
            Owner::Core => (None, Some(group.device), Some(cell.core)),
        };
        self.push(&Line {
            op: "alloc",
            id: &format!("{} {}", cell.name, self.ids),
            size: Some(bytes),
            model,
            device,
            core,
            usage: usage_name(cell.usage),
            ..Line::default()
        });
    }

    /// What failed.
    fn request(&mut self, report: &Report, at: Place, bytes: u64, assumed: &mut Vec<String>) {
        let usage = report.usage.as_deref().and_then(usage);
        match &report.usage {
            Some(name) if usage.is_none() => assumed.push(format!(
                "the request is for tensors: \"{name}\" is no usage of the runtime, so the comparison will name it"
            )),
            None => assumed.push(
                "the request is for tensors: the log does not say what it was for".to_owned(),
            ),
            Some(_) => {}
        }
        self.push(&Line {
            op: "alloc",
            id: "request",
            size: Some(bytes),
            align: report.alignment_bytes.filter(|&align| align > 0),
            device: Some(at.device),
            core: Some(at.core),
            usage: usage_name(usage.unwrap_or(MemUsage::Tensor)),
            name: report.object.as_deref(),
            ..Line::default()
        });
    }
}

/// A usage that a category counts.
fn usage(category: &str) -> Option<MemUsage> {
    Some(match category {
        "model code" => MemUsage::InstrPe,
        "model constants" => MemUsage::Weight,
        "tensors" => MemUsage::Tensor,
        "shared scratchpad" => MemUsage::Scratchpad,
        "scratchpad" => MemUsage::ScratchpadNotShared,
        "runtime" => MemUsage::Generic,
        RINGS | "dma rings runtime" => MemUsage::DmaRing,
        "dma rings io" => MemUsage::DmaRingIo,
        "dma rings spill" => MemUsage::DmaRingSpill,
        "dma rings collectives" => MemUsage::DmaRingCollectives,
        "collectives" => MemUsage::Cc,
        "xt cc" => MemUsage::XtCc,
        "profiler buffers" => MemUsage::Notification,
        _ => return None,
    })
}
