//! Why an allocation failed, as JSON (docs/formats/explanation.md).

use serde::Serialize;

use glia_abi::addr::BusAddr;
use glia_abi::handle::Pid;
use glia_runtime::explanation::{
    BankExplanation, BankRoom, Block, Explanation, HandleExplanation, Holder, HostExplanation,
    Opening, Owner, Share, SlotExplanation,
};

// LIMIT: of the blocks of an opening, so many are listed; all are counted.
const BLOCKS_MAX: usize = 1000;

/// Why something could not be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplanationReport {
    /// Why, in one word.
    pub cause: &'static str,
    /// The same in words, line by line.
    pub text: Vec<String>,
    /// An HBM without room.
    pub bank: Option<BankReport>,
    /// A host without room.
    pub host: Option<HostReport>,
    /// A handle table that is down.
    pub handles: Option<HandlesReport>,
    /// A device without a free attach slot.
    pub slots: Option<SlotsReport>,
}

/// An HBM without room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct BankReport {
    pub device: u32,
    pub hbm: u32,
    pub core: u32,
    pub process: Option<u32>,
    pub usage: &'static str,
    pub name: Option<String>,
    pub asked_bytes: u64,
    pub alignment_bytes: Option<u64>,
    pub driver_bytes: u64,
    pub driver_alignment_bytes: Option<u64>,
    pub needed_bytes: u64,
    pub whole_blocks: u64,
    pub whole_bytes: u64,
    pub free_bytes: u64,
    pub device_free_bytes: u64,
    pub largest_hole_bytes: u64,
    pub largest_fit_bytes: Option<u64>,
    pub most_bytes: Option<u64>,
    pub never_fits: bool,
    pub most_blocks: Option<u64>,
    pub page_at: Option<String>,
    pub scratchpad_pages: u64,
    pub pools: Vec<PoolReport>,
    pub to_free: Option<OpeningReport>,
    pub own_to_free: Option<OpeningReport>,
    pub holders: Vec<HolderReport>,
    pub neighbour_bytes: u64,
    pub hbms: Vec<HbmRoom>,
    pub charged_bytes: u64,
    pub rounded_bytes: u64,
}

/// A pool of the HBM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct PoolReport {
    pub pool: &'static str,
    pub size_bytes: u64,
    pub free_bytes: u64,
    pub holes: u64,
    pub largest_hole_bytes: u64,
}

/// What to free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct OpeningReport {
    pub at: String,
    pub is_least: bool,
    pub freed_bytes: u64,
    pub unload: Vec<UnloadReport>,
    pub unloaded_blocks: u64,
    pub blocks_total: u64,
    pub blocks: Vec<BlockReport>,
}

/// A model to unload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct UnloadReport {
    pub neff: u32,
    pub name: String,
}

/// A block in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct BlockReport {
    pub at: String,
    pub bytes: u64,
    pub owner: &'static str,
    pub pid: Option<u32>,
    pub core: u32,
    pub category: String,
    pub usage: Option<&'static str>,
    pub name: Option<String>,
    pub neff: Option<u32>,
    pub asked_bytes: Option<u64>,
    pub goes_with_models: bool,
    pub site: Option<String>,
    pub allocations_since: u64,
}

/// What one owner holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct HolderReport {
    pub owner: &'static str,
    pub pid: Option<u32>,
    pub core: Option<u32>,
    pub bytes: u64,
    pub blocks: u64,
}

/// How full an HBM is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct HbmRoom {
    pub hbm: u32,
    pub cores: Vec<u32>,
    pub size_bytes: u64,
    pub free_bytes: u64,
    pub largest_hole_bytes: u64,
    pub has_room: bool,
}

/// A host without room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct HostReport {
    pub device: u32,
    pub process: Option<u32>,
    pub asked_bytes: u64,
    pub held_bytes: u64,
    pub holders: Vec<HolderReport>,
    pub reserves: Vec<ReserveReport>,
    pub hbm_free_bytes: u64,
}

/// A pool of the driver's reserve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct ReserveReport {
    pub page_bytes: u64,
    pub free_bytes: u64,
    pub largest_hole_bytes: u64,
}

/// A handle table that is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct HandlesReport {
    pub device: u32,
    pub process: Option<u32>,
    pub handles_max: u32,
    pub is_down: bool,
    pub holders: Vec<HolderReport>,
}

/// A device without a free attach slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct SlotsReport {
    pub device: u32,
    pub process: Option<u32>,
    pub slots: u32,
    pub holders: Vec<SlotReport>,
}

/// Who has a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "docs/formats/explanation.md describes each key"
)]
pub struct SlotReport {
    pub pid: u32,
    pub opens: u32,
    pub device_bytes: u64,
    pub host_bytes: u64,
}

impl ExplanationReport {
    /// The form of an explanation.
    #[must_use]
    pub fn new(explanation: &Explanation) -> Self {
        let mut report = Self {
            cause: explanation.cause().name(),
            text: explanation.words().lines().map(str::to_owned).collect(),
            bank: None,
            host: None,
            handles: None,
            slots: None,
        };
        match explanation {
            Explanation::Bank(bank) => report.bank = Some(BankReport::new(bank)),
            Explanation::Host(host) => report.host = Some(HostReport::new(host)),
            Explanation::Handles(handles) => report.handles = Some(HandlesReport::new(handles)),
            Explanation::Slots(slots) => report.slots = Some(SlotsReport::new(slots)),
        }
        report
    }
}

impl BankReport {
    fn new(bank: &BankExplanation) -> Self {
        let BankExplanation {
            request, process, ..
        } = bank;
        let alignment = |bytes: u64| Some(bytes).filter(|&bytes| bytes > 0);
        let opening = |opening: &Option<Opening>| {
            let opening = opening.as_ref()?;
            Some(OpeningReport::new(opening, *process))
        };
        let pools = bank.pools.iter().map(|pool| PoolReport {
            pool: pool.part.name(),
            size_bytes: pool.size_bytes,
            free_bytes: pool.free_bytes,
            holes: pool.holes,
            largest_hole_bytes: pool.largest_hole_bytes,
        });
        let holders = bank.holders.iter();
        Self {
            device: request.device.get(),
            hbm: request.channel.get(),
            core: request.core.get(),
            process: process.map(Pid::get),
            usage: request.usage.aggregate().name(),
            name: request.hint.clone(),
            asked_bytes: request.asked_bytes,
            alignment_bytes: alignment(request.align_bytes),
            driver_bytes: request.driver_bytes,
            driver_alignment_bytes: alignment(request.driver_align_bytes),
            needed_bytes: bank.needed_bytes,
            whole_blocks: bank.whole_blocks,
            whole_bytes: bank.whole_bytes,
            free_bytes: bank.usable_bytes,
            device_free_bytes: bank.device_free_bytes,
            largest_hole_bytes: bank.largest_hole_bytes,
            largest_fit_bytes: bank.largest_fit_bytes,
            most_bytes: bank.most_bytes,
            never_fits: bank.is_never,
            most_blocks: bank.most_blocks,
            page_at: bank.page_at.as_ref().map(BusAddr::to_string),
            scratchpad_pages: bank.scratchpad_pages,
            pools: pools.collect(),
            to_free: opening(&bank.opening),
            own_to_free: opening(&bank.own_opening),
            holders: holders
                .map(|holder| HolderReport::of_core(holder, *process))
                .collect(),
            neighbour_bytes: bank.neighbour_bytes(),
            hbms: bank.banks.iter().map(HbmRoom::new).collect(),
            charged_bytes: bank.charged_bytes,
            rounded_bytes: bank.rounded_bytes,
        }
    }
}

impl OpeningReport {
    fn new(opening: &Opening, process: Option<Pid>) -> Self {
        let blocks = opening.blocks.iter().take(BLOCKS_MAX);
        let unload = opening.unloads.iter().map(|unload| UnloadReport {
            neff: unload.model.0,
            name: unload.name.clone(),
        });
        Self {
            at: opening.at.to_string(),
            is_least: opening.is_least,
            freed_bytes: opening.freed_bytes,
            unload: unload.collect(),
            unloaded_blocks: opening.unloaded_blocks,
            blocks_total: opening.blocks.len() as u64,
            blocks: blocks
                .map(|block| BlockReport::new(&block, process))
                .collect(),
        }
    }
}

impl BlockReport {
    fn new(block: &Block, process: Option<Pid>) -> Self {
        let category = block.category.name();
        let asked = block.allocation.as_ref();
        Self {
            at: block.span.start().to_string(),
            bytes: block.span.size_bytes(),
            owner: owner(block.owner),
            pid: pid(block.owner, process),
            core: block.core.get(),
            category: category.unwrap_or_else(|| block.category.0.to_string()),
            usage: block.usage().map(|usage| usage.aggregate().name()),
            name: block.name().map(str::to_owned),
            neff: block.model().map(|model| model.0),
            asked_bytes: asked.map(|allocation| allocation.allocated_bytes),
            goes_with_models: block.goes_with_models,
            site: block.site.as_deref().map(str::to_owned),
            allocations_since: block.allocations_since,
        }
    }
}

impl HolderReport {
    fn of_core(holder: &Holder, process: Option<Pid>) -> Self {
        Self {
            owner: owner(holder.owner),
            pid: pid(holder.owner, process),
            core: Some(holder.core.get()),
            bytes: holder.bytes,
            blocks: holder.blocks,
        }
    }

    fn new(share: &Share, process: Option<Pid>) -> Self {
        Self {
            owner: owner(share.owner),
            pid: pid(share.owner, process),
            core: None,
            bytes: share.bytes,
            blocks: share.blocks,
        }
    }

    fn all(shares: &[Share], process: Option<Pid>) -> Vec<Self> {
        let shares = shares.iter();
        shares.map(|share| Self::new(share, process)).collect()
    }
}

impl HbmRoom {
    fn new(bank: &BankRoom) -> Self {
        Self {
            hbm: bank.channel.get(),
            cores: bank.cores.iter().map(|core| core.get()).collect(),
            size_bytes: bank.size_bytes,
            free_bytes: bank.free_bytes,
            largest_hole_bytes: bank.largest_hole_bytes,
            has_room: bank.has_room,
        }
    }
}

impl HostReport {
    fn new(host: &HostExplanation) -> Self {
        let reserves = host.reserves.iter().map(|reserve| ReserveReport {
            page_bytes: reserve.page_size_bytes,
            free_bytes: reserve.free_bytes,
            largest_hole_bytes: reserve.largest_bytes,
        });
        Self {
            device: host.device.get(),
            process: host.process.map(Pid::get),
            asked_bytes: host.asked_bytes,
            held_bytes: host.held_bytes,
            holders: HolderReport::all(&host.holders, host.process),
            reserves: reserves.collect(),
            hbm_free_bytes: host.hbm_free_bytes,
        }
    }
}

impl HandlesReport {
    fn new(handles: &HandleExplanation) -> Self {
        Self {
            device: handles.device.get(),
            process: handles.process.map(Pid::get),
            handles_max: handles.handles_max,
            is_down: handles.is_down,
            holders: HolderReport::all(&handles.holders, handles.process),
        }
    }
}

impl SlotsReport {
    fn new(slots: &SlotExplanation) -> Self {
        let holders = slots.holders.iter().map(|holder| SlotReport {
            pid: holder.process.pid.get(),
            opens: holder.process.opens,
            device_bytes: holder.device_bytes,
            host_bytes: holder.host_bytes,
        });
        Self {
            device: slots.device.get(),
            process: slots.process.map(Pid::get),
            slots: slots.slots,
            holders: holders.collect(),
        }
    }
}

fn owner(owner: Owner) -> &'static str {
    match owner {
        Owner::This => "this process",
        Owner::Other(_) => "other process",
        Owner::Driver => "driver",
    }
}

fn pid(owner: Owner, process: Option<Pid>) -> Option<u32> {
    let pid = match owner {
        Owner::This => process,
        Owner::Other(pid) => Some(pid),
        Owner::Driver => None,
    };
    pid.map(Pid::get)
}
