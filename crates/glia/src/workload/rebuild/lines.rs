//! The lines of a workload that rebuilds a report: models, blocks, holes, and the request.

use serde::Serialize;

use glia_abi::mem_usage::MemUsage;

use super::CannotRebuild;
use super::layout::{HOLES_MAX, Room, Step, Whole};
use super::state::{Cell, Group, Owner, Place, State};
use crate::explain::category::RINGS;
use crate::explain::finding::IDLE_CORE_BYTES;
use crate::explain::report::Report;
use crate::explain::size::printed;
use crate::machine::Model;

/// The first line. It begins with [`REBUILT_STARTS`](crate::workload::REBUILT_STARTS).
#[derive(Serialize)]
pub(super) struct First<'a> {
    pub(super) report: u64,
    pub(super) workload: u64,
    pub(super) machine: &'static str,
    pub(super) devices: u32,
    pub(super) assumed: &'a [String],
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
    process: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    neff: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

/// Texts and numbers under fixed keys are always JSON.
pub(super) fn line(line: &impl Serialize) -> String {
    serde_json::to_string(line).unwrap_or_default() + "\n"
}

fn usage_name(usage: MemUsage) -> Option<String> {
    Some(usage.name().to_ascii_lowercase())
}

/// The id of the block that holds the main pool for a while.
const PLUG: &str = "plug";

/// The process that holds what the report's own does not.
const OTHER: &str = "another process";

/// The lines behind the first one.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) text: String,
    ids: u64,
}

impl Lines {
    fn push(&mut self, operation: &Line<'_>) {
        self.text += &line(operation);
    }

    /// Models, in the order of their ids.
    pub(super) fn loads(&mut self, state: &State) {
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
    pub(super) fn group(
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
        // What the request would have to be left without.
        let left = room.rounded(request).saturating_sub(room.rounded(1));
        let held = free.saturating_sub(left);
        // A process that uses a core has microcode there.
        let core = group.empty_core.filter(|_| held >= IDLE_CORE_BYTES);
        if let Some(core) = core {
            let pieces = room.place(held).ok_or_else(no_room)?;
            for (cell, pieces) in placed {
                self.pieces(group, cell, &pieces);
            }
            assumed.push(format!(
                "another process holds {} on NC {core}, which shares the HBM and where this one holds nothing: \
                 a report counts its own process only, and with less the request would fit",
                printed(held)
            ));
            self.other(group, core, &pieces);
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
                 holes that are too small, left by blocks that were given back ({holes}); \
                 other processes, which may have held them, are not in a report"
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

    /// What lies on a channel of which no request is made; false, and nothing, if it has no room.
    pub(super) fn add(&mut self, group: &Group, model: Model) -> bool {
        let (length, ids) = (self.text.len(), self.ids);
        let is_added = self.group(group, model, None, &mut Vec::new()).is_ok();
        if !is_added {
            self.text.truncate(length);
            self.ids = ids;
        }
        is_added
    }

    /// What another process holds.
    fn other(&mut self, group: &Group, core: u32, pieces: &[u64]) {
        self.push(&Line {
            op: "start",
            id: OTHER,
            ..Line::default()
        });
        for (n, &bytes) in (1..).zip(pieces) {
            self.push(&Line {
                op: "alloc",
                id: &format!("{OTHER} {n}"),
                size: Some(bytes),
                device: Some(group.device),
                core: Some(core),
                process: Some(OTHER),
                ..Line::default()
            });
        }
    }

    /// Takes bytes that are given back.
    pub(super) fn hold(&mut self, group: &Group, core: u32, id: &str, bytes: u64) {
        self.push(&Line {
            op: "alloc",
            id,
            size: Some(bytes),
            device: Some(group.device),
            core: Some(core),
            ..Line::default()
        });
    }

    pub(super) fn free(&mut self, id: &str) {
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
    pub(super) fn request(
        &mut self,
        report: &Report,
        at: Place,
        bytes: u64,
        assumed: &mut Vec<String>,
    ) {
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
pub(super) fn usage(category: &str) -> Option<MemUsage> {
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
