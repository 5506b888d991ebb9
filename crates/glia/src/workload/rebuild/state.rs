//! The bytes of every cell of a report, such that all of them print as the log has them.
//!
//! The rows of each HBM make a network of their own: a core's total is the sum of what it and its
//! models own; so is each of its columns; the HBM's row is the sum of its cores. Each printed size
//! is an interval of bytes.

use std::collections::BTreeMap;

use glia_abi::handle::CoreId;
use glia_abi::mem_usage::{Aggregate, MemUsage};

use super::flow::{Edge, Flow, Network, UNBOUNDED};
use super::{CannotRebuild, usage};
use crate::explain::category::{self, Name, RINGS};
use crate::explain::report::{Report, Row, Scope};
use crate::explain::size::{Size, printed};
use crate::machine::Model;

/// What a report shows, in bytes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) groups: Vec<Group>,
}

/// What lies on one HBM channel.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) device: u32,
    pub(super) channel: u32,
    pub(super) cells: Vec<Cell>,
    /// A core of this channel of which the report says nothing.
    pub(super) silent_core: Option<u32>,
    models: Vec<(LoadedModel, u32)>,
}

/// What one owner has of one category.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) core: u32,
    pub(super) owner: Owner,
    pub(super) usage: MemUsage,
    pub(super) name: Name,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Owner {
    Core,
    Model(LoadedModel),
}

/// A model to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoadedModel {
    pub(super) id: String,
    pub(super) neff: Option<u64>,
    pub(super) name: String,
}

/// A core of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) device: u32,
    pub(super) core: u32,
}

/// The rows of one channel.
#[derive(Debug, Default)]
struct Rows<'a> {
    bank: Option<&'a Row>,
    cores: BTreeMap<u32, CoreRows<'a>>,
}

/// A core's row if there is one, and those of its models.
type CoreRows<'a> = (Option<&'a Row>, Vec<(LoadedModel, &'a Row)>);

/// How much of the report has to come out. Each gives way to the next if it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strictness {
    /// Everything; what is not printed is nothing, unless something is missing.
    All,
    /// What is not printed may be anything.
    Printed,
    /// Sums need not come out.
    Cells,
}

impl State {
    pub(super) fn new(
        report: &Report,
        model: Model,
        assumed: &mut Vec<String>,
    ) -> Result<Self, CannotRebuild> {
        let profile = model.arch().profile();
        let channel = |core: u32| profile.default_channel(CoreId::new(core)).get();
        let failing = report.core.unwrap_or(0);
        let mut all: BTreeMap<(u32, u32), Rows<'_>> = BTreeMap::new();
        let mut unnamed = 0;
        for row in &report.rows {
            let device = row.device.or(report.device).unwrap_or(0);
            let core = row.core.unwrap_or(failing);
            let cores = report.rows.iter().filter_map(|row| row.core);
            let mut channels: Vec<u32> = cores.map(channel).collect();
            channels.sort_unstable();
            channels.dedup();
            let at = match row.scope {
                Scope::Hbm => row.hbm.unwrap_or_else(|| channel(failing)),
                Scope::Device if channels.len() > 1 => {
                    assumed.push(format!(
                        "nothing of the row of ND {device}, which spans several HBMs, but its cores' rows"
                    ));
                    continue;
                }
                Scope::Device => channels.first().copied().unwrap_or(channel(failing)),
                Scope::Core | Scope::Neff => channel(core),
            };
            let rows = all.entry((device, at)).or_default();
            match row.scope {
                Scope::Hbm | Scope::Device => rows.bank = Some(row),
                Scope::Core => rows.cores.entry(core).or_default().0 = Some(row),
                Scope::Neff => {
                    unnamed += u64::from(row.neff.is_none());
                    let id = match row.neff {
                        Some(neff) => format!("NEFF {neff}"),
                        None => format!("model {unnamed}"),
                    };
                    let names = row.neff.and_then(|neff| report.neffs.get(&neff));
                    let name = row.name.clone().or_else(|| names.cloned());
                    let model = LoadedModel {
                        name: name.unwrap_or_else(|| id.clone()),
                        id,
                        neff: row.neff,
                    };
                    rows.cores.entry(core).or_default().1.push((model, row));
                }
            }
        }
        let mut groups = Vec::new();
        for ((device, at), mut rows) in all {
            let of_channel = || (0..profile.cores).filter(|&core| channel(core) == at);
            if rows.cores.is_empty() {
                let core = of_channel().find(|&core| core == failing);
                let core = core.or_else(|| of_channel().next()).unwrap_or(0);
                rows.cores.insert(core, (None, Vec::new()));
                assumed.push(format!(
                    "all of ND {device} HBM {at} belongs to NC {core}: the log has no rows of cores"
                ));
            }
            let silent = of_channel().find(|core| !rows.cores.contains_key(core));
            let mut group = solve(device, at, &rows, assumed)?;
            group.silent_core = silent.filter(|_| rows.bank.is_none());
            groups.push(group);
        }
        Ok(Self { groups })
    }

    /// The models with their cores, in the order of their ids, those without one last.
    pub(super) fn models(&self) -> Vec<(&LoadedModel, Place)> {
        let mut models: Vec<_> = (self.groups.iter())
            .flat_map(|group| {
                let device = group.device;
                let models = group.models.iter();
                models.map(move |(model, core)| {
                    let core = *core;
                    (model, Place { device, core })
                })
            })
            .collect();
        models.sort_by_key(|(model, _)| model.neff.unwrap_or(u64::MAX));
        models
    }
}

/// The bytes that print as this size.
fn interval(size: &Size) -> (u64, u64) {
    let near = [size.bytes, size.bytes.saturating_sub(1)];
    let Some(inside) = near.into_iter().find(|&bytes| size.is_printed(bytes)) else {
        return (size.bytes, size.bytes);
    };
    let reach = size.rounding_bytes() + 1;
    let edge = |mut inside: u64, mut outside: u64| {
        // Both ends are kept: one prints as the text, the other does not.
        while inside.abs_diff(outside) > 1 {
            let middle = inside.midpoint(outside);
            if size.is_printed(middle) {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        inside
    };
    let low = inside.saturating_sub(2 * reach);
    let low = if size.is_printed(low) {
        low
    } else {
        edge(inside, low)
    };
    (low, edge(inside, inside.saturating_add(2 * reach)))
}

fn bounds(size: Option<&Size>, otherwise: (u64, u64)) -> (u64, u64) {
    size.map_or(otherwise, interval)
}

const ANY: (u64, u64) = (0, UNBOUNDED);
const NOTHING: (u64, u64) = (0, 0);

/// Every category that the rows have, and one for what they do not account for.
fn columns(rows: &Rows<'_>) -> Vec<Name> {
    let mut columns: Vec<Name> = Vec::new();
    let cores = rows.cores.values();
    let cores =
        cores.flat_map(|(row, models)| row.iter().copied().chain(models.iter().map(|one| one.1)));
    let mut has_gap = false;
    for row in rows.bank.into_iter().chain(cores) {
        has_gap |= row.unaccounted_bytes().is_some();
        for (name, _) in &row.categories.0 {
            if usage(name).is_some() && !columns.contains(name) {
                columns.push(name.clone());
            }
        }
    }
    if has_gap {
        let is_there = |name: &str| {
            let rings = category::is_ring(name) && columns.iter().any(|one| one == RINGS);
            rings || columns.iter().any(|one| one == name)
        };
        let mut free = Aggregate::ALL.into_iter().map(Aggregate::name);
        let free = free.rfind(|name| !is_there(name));
        columns.extend(free.map(Name::Borrowed));
    }
    columns
}

/// An edge whose flow is what an owner has of a category.
struct Sought {
    core: u32,
    model: Option<LoadedModel>,
    name: Name,
    edge: Edge,
}

fn network(rows: &Rows<'_>, columns: &[Name], how: Strictness) -> Option<(Flow, Vec<Sought>)> {
    let mut network = Network::default();
    let (left, right) = (network.node(), network.node());
    let total = |row: Option<&Row>| match how {
        Strictness::Cells => ANY,
        _ => bounds(row.and_then(|row| row.total.as_ref()), ANY),
    };
    network.edge(right, left, total(rows.bank));
    let mut sought = Vec::new();
    let banks: Vec<_> = columns
        .iter()
        .map(|name| {
            let cell = rows.bank.and_then(|row| row.categories.get(name));
            let cell = match how {
                Strictness::Cells => ANY,
                _ => bounds(cell, ANY),
            };
            let node = network.node();
            network.edge(node, right, cell);
            node
        })
        .collect();
    for (&core, (row, models)) in &rows.cores {
        let node = network.node();
        network.edge(left, node, total(*row));
        let models: Vec<_> = models
            .iter()
            .map(|(model, row)| {
                let node_of_model = network.node();
                network.edge(node, node_of_model, total(Some(row)));
                (model, row, node_of_model)
            })
            .collect();
        for (name, &bank) in columns.iter().zip(&banks) {
            let is_missing = row.is_some_and(|row| row.unaccounted_bytes().is_some());
            let of_models = models.iter().any(|(_, row, _)| row.categories.has(name));
            let is_free = row.is_none() || is_missing || of_models || how > Strictness::All;
            let cell = row.and_then(|row| row.categories.get(name));
            let cell = bounds(cell, if is_free { ANY } else { NOTHING });
            let column = network.node();
            network.edge(column, bank, cell);
            let name = name.clone();
            for (model, row, node) in &models {
                let Some(size) = row.categories.get(&name) else {
                    continue;
                };
                sought.push(Sought {
                    core,
                    model: Some((*model).clone()),
                    name: name.clone(),
                    edge: network.edge(*node, column, interval(size)),
                });
            }
            sought.push(Sought {
                core,
                model: None,
                name,
                edge: network.edge(node, column, ANY),
            });
        }
    }
    Some((network.solve()?, sought))
}

fn solve(
    device: u32,
    channel: u32,
    rows: &Rows<'_>,
    assumed: &mut Vec<String>,
) -> Result<Group, CannotRebuild> {
    let place = format!("ND {device} HBM {channel}");
    let columns = columns(rows);
    let ways = [Strictness::All, Strictness::Printed, Strictness::Cells];
    let found = ways
        .into_iter()
        .find_map(|how| Some((how, network(rows, &columns, how)?)));
    let Some((how, (flow, sought))) = found else {
        return Err(CannotRebuild::Contradiction { place });
    };
    if how == Strictness::Cells {
        assumed.push(format!(
            "the totals of {place} are wrong: the log's cells do not sum to them, and the cells are kept"
        ));
    }
    let mut cells = Vec::new();
    for Sought {
        core,
        model,
        name,
        edge,
    } in sought
    {
        let bytes = flow.through(edge);
        let Some(usage) = usage(&name) else { continue };
        let row = rows.cores.get(&core).and_then(|(row, _)| *row);
        let is_said = row
            .or(rows.bank)
            .is_some_and(|row| row.categories.has(&name));
        if bytes > 0 && model.is_none() && !is_said {
            assumed.push(format!(
                "{} of NC {core} that the log does not account for are {name}",
                printed(bytes)
            ));
        }
        cells.push(Cell {
            core,
            owner: model.map_or(Owner::Core, Owner::Model),
            usage,
            name,
            bytes,
        });
    }
    let models = rows.cores.iter();
    let models = models.flat_map(|(&core, (_, models))| {
        models.iter().map(move |(model, _)| (model.clone(), core))
    });
    Ok(Group {
        device,
        channel,
        cells,
        silent_core: None,
        models: models.collect(),
    })
}
