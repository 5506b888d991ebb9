//! The bytes of every cell of a report, such that all of them print as the log has them.
//!
//! Rows make a network: a core's total is the sum of what it and its models own; so is each of its
//! columns; the HBM's row is the sum of its cores, and the device's that of its HBMs. Each printed
//! size is an interval of bytes.

use std::collections::{BTreeMap, BTreeSet};

use glia_abi::handle::CoreId;
use glia_abi::mem_usage::{Aggregate, MemUsage};
use glia_runtime::dml::ModelId;

use super::CannotRebuild;
use super::flow::{Edge, Flow, Network, Node, UNBOUNDED};
use super::lines::usage;
use crate::explain::category::{self, Name, RINGS};
use crate::explain::report::{Report, Row, Scope};
use crate::explain::size::{Size, printed};
use crate::machine::Model;
use crate::workload::NEFFS_MAX;

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
    /// One on which, as the report says, the process holds nothing. Another one may.
    pub(super) empty_core: Option<u32>,
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

impl Place {
    pub(super) fn core(self) -> CoreId {
        CoreId::new(self.core)
    }
}

/// The rows of one channel.
#[derive(Debug, Default)]
struct Bank<'a> {
    row: Option<&'a Row>,
    cores: BTreeMap<u32, CoreRows<'a>>,
}

/// A core's row if there is one, and those of its models.
type CoreRows<'a> = (Option<&'a Row>, Vec<(LoadedModel, &'a Row)>);

/// What has to come out together: the channels of a device by their numbers, and the row of the
/// device if there is one.
#[derive(Debug, Default)]
struct Rows<'a> {
    device: Option<&'a Row>,
    banks: BTreeMap<u32, Bank<'a>>,
}

impl<'a> Rows<'a> {
    /// Those of cores and models, with their cores.
    fn of_cores(&self) -> impl Iterator<Item = &'a Row> {
        let cores = self.banks.values().flat_map(|bank| bank.cores.values());
        cores.flat_map(|(row, models)| row.iter().copied().chain(models.iter().map(|one| one.1)))
    }

    fn all(&self) -> impl Iterator<Item = &'a Row> {
        let banks = self.banks.values().filter_map(|bank| bank.row);
        self.device.into_iter().chain(banks).chain(self.of_cores())
    }
}

/// How much of the report has to come out. Each gives way to the next if it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strictness {
    /// Everything; what is not printed is nothing, unless something is missing.
    All,
    /// What is not printed may be anything.
    Printed,
    /// So may cores of the same channel that have no row.
    Neighbours,
    /// Sums need not come out.
    Cells,
}

impl State {
    pub(super) fn new(
        report: &Report,
        model: Model,
        failing: Place,
        assumed: &mut Vec<String>,
    ) -> Result<Self, CannotRebuild> {
        let profile = model.arch().profile();
        let channel = |core: u32| profile.default_channel(CoreId::new(core)).get();
        let mut devices: BTreeMap<u32, Rows<'_>> = BTreeMap::new();
        let mut ids = Ids::default();
        for row in &report.rows {
            let device = row.device.unwrap_or(failing.device);
            let core = row.core.unwrap_or(failing.core);
            let rows = devices.entry(device).or_default();
            let at = match row.scope {
                Scope::Device => {
                    rows.device = Some(row);
                    continue;
                }
                Scope::Hbm => row.hbm.unwrap_or_else(|| channel(failing.core)),
                Scope::Core | Scope::Neff => channel(core),
            };
            let bank = rows.banks.entry(at).or_default();
            match row.scope {
                Scope::Hbm | Scope::Device => bank.row = Some(row),
                Scope::Core => bank.cores.entry(core).or_default().0 = Some(row),
                Scope::Neff => {
                    let model = ids.model(report, row, core, assumed);
                    bank.cores.entry(core).or_default().1.push((model, row));
                }
            }
        }
        let mut groups = Vec::new();
        for (device, mut rows) in devices {
            if rows.banks.is_empty() {
                rows.banks.entry(channel(failing.core)).or_default();
            }
            let of_channel = |at| (0..profile.cores).filter(move |&core| channel(core) == at);
            for (&at, bank) in &mut rows.banks {
                if bank.cores.is_empty() {
                    let core = of_channel(at).find(|&core| core == failing.core);
                    let core = core.or_else(|| of_channel(at).next()).unwrap_or(0);
                    bank.cores.insert(core, (None, Vec::new()));
                    assumed.push(format!(
                        "all of ND {device} HBM {at} belongs to NC {core}: the log has no rows of cores"
                    ));
                }
            }
            // Only the row of the device makes its channels depend on each other.
            let together: Vec<Rows<'_>> = match rows.device {
                Some(_) => vec![rows],
                None => (rows.banks.into_iter())
                    .map(|bank| Rows {
                        device: None,
                        banks: BTreeMap::from([bank]),
                    })
                    .collect(),
            };
            for rows in together {
                let neighbours = |at, bank: &Bank<'_>| {
                    let cores = of_channel(at).filter(|core| !bank.cores.contains_key(core));
                    cores.collect()
                };
                groups.extend(solve(device, rows, failing.core, &neighbours, assumed)?);
            }
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

fn bounds(size: Option<&Size>, otherwise: (u64, u64)) -> (u64, u64) {
    size.map_or(otherwise, Size::bounds)
}

const ANY: (u64, u64) = (0, UNBOUNDED);
const NOTHING: (u64, u64) = (0, 0);

/// The ids of models in the workload. The runtime gives each its own, counting up.
#[derive(Debug, Default)]
struct Ids {
    taken: BTreeSet<u64>,
    unnamed: u64,
}

impl Ids {
    fn model(
        &mut self,
        report: &Report,
        row: &Row,
        core: u32,
        assumed: &mut Vec<String>,
    ) -> LoadedModel {
        let allowed = u64::from(ModelId::FIRST.0)..=u64::from(ModelId::FIRST.0 + NEFFS_MAX);
        let is_taken = row.neff.is_some_and(|neff| self.taken.contains(&neff));
        let neff = row.neff.filter(|neff| allowed.contains(neff) && !is_taken);
        self.taken.extend(neff);
        self.unnamed += u64::from(neff.is_none());
        let id = match neff {
            Some(neff) => format!("NEFF {neff}"),
            None => format!("model {}", self.unnamed),
        };
        if let Some(found) = row.neff.filter(|_| neff.is_none()) {
            let why = if is_taken {
                "the log has that id twice".to_owned()
            } else {
                format!("ids are {} to {}", allowed.start(), allowed.end())
            };
            assumed.push(format!(
                "NEFF {found} of NC {core} is \"{id}\" with another id: {why}"
            ));
        }
        let names = row.neff.and_then(|neff| report.neffs.get(&neff));
        let name = row.name.clone().or_else(|| names.cloned());
        LoadedModel {
            name: name.unwrap_or_else(|| id.clone()),
            id,
            neff,
        }
    }
}

/// A category of the rows, and what its bytes are allocated for.
#[derive(Debug, Clone)]
struct Column {
    name: Name,
    usage: MemUsage,
}

/// Every category that the rows have, and one for what they do not account for.
///
/// A category that the runtime does not know counts as one that the rows do not print.
fn columns(rows: &Rows<'_>, assumed: &mut Vec<String>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let mut strange: Vec<&Name> = Vec::new();
    let mut has_gap = false;
    let mut models_have = false;
    for row in rows.all() {
        let is_short = row.unaccounted_bytes().is_some();
        has_gap |= is_short;
        models_have |= is_short && row.scope == Scope::Neff;
        for (name, size) in &row.categories.0 {
            match usage(name) {
                Some(usage) if !columns.iter().any(|column| column.name == *name) => {
                    let name = name.clone();
                    columns.push(Column { name, usage });
                }
                None if size.as_ref().is_some_and(|size| size.bytes > 0)
                    && !strange.contains(&name) =>
                {
                    strange.push(name);
                }
                _ => {}
            }
        }
    }
    let is_there = |name: &str| {
        let rings = category::is_ring(name) && columns.iter().any(|one| one.name == RINGS);
        rings || columns.iter().any(|one| one.name == name)
    };
    let free = |may_be: &dyn Fn(&str) -> bool| {
        let mut names = Aggregate::ALL.into_iter().map(Aggregate::name);
        let name = names.rfind(|name| may_be(name) && !is_there(name))?;
        Some((usage(name)?, Name::Borrowed(name)))
    };
    let of_models = free(&|name| !category::ONLY_OF_CORES.contains(&name));
    let of_models = of_models.filter(|_| models_have);
    let free = free(&|_| true);
    for name in strange {
        assumed.push(match &free {
            Some((_, free)) => format!(
                "\"{name}\" is no category of the runtime: its bytes are {free} here, and its cells cannot be equal"
            ),
            None => format!(
                "\"{name}\" is no category of the runtime, and every other one is in the log: its bytes are left out"
            ),
        });
        if let Some((usage, _)) = free {
            let name = name.clone();
            columns.push(Column { name, usage });
        }
    }
    for (usage, name) in free.filter(|_| has_gap).into_iter().chain(of_models) {
        if !columns.iter().any(|column| column.name == name) {
            columns.push(Column { name, usage });
        }
    }
    columns
}

/// Whether a model may have bytes of a category that its row does not show: the row is cut, and its
/// total is more than what is left of it.
fn is_cut_off(row: &Row, name: &str) -> bool {
    let is_of_model = !category::ONLY_OF_CORES.contains(&name);
    is_of_model && !row.categories.has(name) && row.unaccounted_bytes().is_some()
}

/// An edge whose flow is what an owner has of a category.
struct Sought {
    channel: u32,
    core: u32,
    model: Option<LoadedModel>,
    column: Column,
    edge: Edge,
}

fn network(rows: &Rows<'_>, columns: &[Column], how: Strictness) -> Option<(Flow, Vec<Sought>)> {
    let mut network = Network::default();
    let sum = |size: Option<&Size>| match how {
        Strictness::Cells => ANY,
        _ => bounds(size, ANY),
    };
    let total = |row: Option<&Row>| sum(row.and_then(|row| row.total.as_ref()));
    let cell = |row: Option<&Row>, column: &Column| {
        sum(row.and_then(|row| row.categories.get(&column.name)))
    };
    // Totals branch out from the left, columns come together on the right.
    let (left, right) = (network.node(), network.node());
    network.edge(right, left, total(rows.device));
    let to_right = |network: &mut Network, to: &[Node], row: Option<&Row>| {
        let nodes = columns.iter().zip(to).map(|(column, &to)| {
            let node = network.node();
            network.edge(node, to, cell(row, column));
            node
        });
        nodes.collect::<Vec<_>>()
    };
    let all = to_right(&mut network, &vec![right; columns.len()], rows.device);
    let mut sought = Vec::new();
    for (&channel, bank) in &rows.banks {
        let from_bank = network.node();
        network.edge(left, from_bank, total(bank.row));
        let of_bank = to_right(&mut network, &all, bank.row);
        for (&core, (row, models)) in &bank.cores {
            let node = network.node();
            network.edge(from_bank, node, total(*row));
            let models: Vec<_> = models
                .iter()
                .map(|(model, row)| {
                    let node_of_model = network.node();
                    network.edge(node, node_of_model, total(Some(row)));
                    (model, row, node_of_model)
                })
                .collect();
            for (column, &of_bank) in columns.iter().zip(&of_bank) {
                let name = &column.name;
                let is_missing = row.is_some_and(|row| row.unaccounted_bytes().is_some());
                let of_models = models.iter().any(|(_, row, _)| row.categories.has(name));
                let is_free = row.is_none() || is_missing || of_models || how > Strictness::All;
                let cell = row.and_then(|row| row.categories.get(name));
                let cell = bounds(cell, if is_free { ANY } else { NOTHING });
                let joint = network.node();
                network.edge(joint, of_bank, cell);
                let mut seek = |model: Option<&LoadedModel>, edge| {
                    sought.push(Sought {
                        channel,
                        core,
                        model: model.cloned(),
                        column: column.clone(),
                        edge,
                    });
                };
                for (model, row, node) in &models {
                    let size = row.categories.get(name);
                    if size.is_some() || is_cut_off(row, name) {
                        let edge = network.edge(*node, joint, bounds(size, ANY));
                        seek(Some(model), edge);
                    }
                }
                seek(None, network.edge(node, joint, ANY));
            }
        }
    }
    Some((network.solve()?, sought))
}

/// A core, not the one that failed, of which the row says that the process holds nothing there.
fn empty_core(bank: &Bank<'_>, failing_core: u32) -> Option<u32> {
    let is_empty = |row: &Row| row.total.as_ref().is_some_and(|total| total.bytes == 0);
    let mut cores = bank.cores.iter().filter(|&(&core, _)| core != failing_core);
    let found = cores.find(|(_, (row, models))| models.is_empty() && row.is_some_and(is_empty));
    found.map(|(&core, _)| core)
}

/// The bytes of all channels that have to come out together. `neighbours` are the cores of a
/// channel that have no row.
fn solve(
    device: u32,
    mut rows: Rows<'_>,
    failing_core: u32,
    neighbours: &dyn Fn(u32, &Bank<'_>) -> Vec<u32>,
    assumed: &mut Vec<String>,
) -> Result<Vec<Group>, CannotRebuild> {
    let columns = columns(&rows, assumed);
    let has_row_above = |bank: &Bank<'_>| rows.device.is_some() || bank.row.is_some();
    let silent: BTreeMap<u32, Option<u32>> = (rows.banks.iter())
        .filter(|(_, bank)| !has_row_above(bank))
        .map(|(&at, bank)| (at, neighbours(at, bank).first().copied()))
        .collect();
    let mut found = None;
    for how in [
        Strictness::All,
        Strictness::Printed,
        Strictness::Neighbours,
        Strictness::Cells,
    ] {
        let with_neighbours = how == Strictness::Neighbours;
        for (&at, bank) in rows.banks.iter_mut().filter(|_| with_neighbours) {
            for core in neighbours(at, bank) {
                bank.cores.insert(core, (None, Vec::new()));
            }
        }
        found = network(&rows, &columns, how).map(|found| (how, found));
        if found.is_some() {
            break;
        }
    }
    let place = match rows.banks.keys().collect::<Vec<_>>().as_slice() {
        [at] => format!("ND {device} HBM {at}"),
        _ => format!("ND {device}"),
    };
    let Some((how, (flow, sought))) = found else {
        return Err(CannotRebuild::Contradiction { place });
    };
    if how == Strictness::Cells {
        assumed.push(format!(
            "the totals of {place} do not come out: the log's cells do not sum to them, and the cells are kept"
        ));
    }
    let mut groups: BTreeMap<u32, Group> = (rows.banks.iter())
        .map(|(&channel, bank)| {
            let models = bank.cores.iter();
            let models = models.flat_map(|(&core, (_, models))| {
                models.iter().map(move |(model, _)| (model.clone(), core))
            });
            let group = Group {
                device,
                channel,
                cells: Vec::new(),
                silent_core: silent.get(&channel).copied().flatten(),
                empty_core: empty_core(bank, failing_core),
                models: models.collect(),
            };
            (channel, group)
        })
        .collect();
    for Sought {
        channel,
        core,
        model,
        column: Column { name, usage },
        edge,
    } in sought
    {
        let bytes = flow.through(edge);
        let bank = rows.banks.get(&channel);
        let row = bank.and_then(|bank| bank.cores.get(&core)?.0.or(bank.row));
        let is_said = row
            .or(rows.device)
            .is_some_and(|row| row.categories.has(&name));
        if bytes > 0 && model.is_none() && !is_said {
            assumed.push(format!(
                "{} of NC {core} that the log does not account for are {name}",
                printed(bytes)
            ));
        }
        if let Some(group) = groups.get_mut(&channel) {
            group.cells.push(Cell {
                core,
                owner: model.map_or(Owner::Core, Owner::Model),
                usage,
                name,
                bytes,
            });
        }
    }
    Ok(groups.into_values().collect())
}
