//! Why an HBM had no room.

use std::collections::BTreeMap;
use std::ops::Range;

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::insight::{ChannelSnapshot, ChunkFacts, PoolSnapshot};
use glia_abi::mem_usage::MemUsage;

use super::blocks::{Blocks, Own, Owner};
use super::cause::Cause;
use super::gone::Without;
use super::holes::{Align, Pool, PoolPart, granule_bytes};
use super::look::Look;
use super::scratchpad::is_page;
use super::unload::{Found, Freeing, Ties};
use crate::dml::ModelId;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The device.
    pub device: DeviceId,
    /// The core that it was for.
    pub core: CoreId,
    /// How many physical cores make a logical one.
    pub lnc_size: u32,
    /// The HBM channel that had no room.
    pub channel: Channel,
    /// Bytes that the caller asked for.
    pub asked_bytes: u64,
    /// The alignment that the caller asked for, 0 for none.
    pub align_bytes: u64,
    /// Bytes that the driver was asked for: more, where the runtime has to align by itself.
    pub driver_bytes: u64,
    /// The alignment that the driver was asked for, 0 for none.
    pub driver_align_bytes: u64,
    /// What for.
    pub usage: MemUsage,
    /// What the caller calls it.
    pub hint: Option<String>,
    /// Whether it is the next pages of the contiguous scratchpad, for which there is one place.
    pub is_scratchpad_page: bool,
    /// All blocks that have to be had together, in the order in which the driver is asked: what a
    /// scratchpad reservation still needs. Empty for a block that is needed alone.
    pub whole: Vec<Piece>,
    /// Blocks that are not to be freed for it, since then they would be needed, too: the pages that
    /// the scratchpad has, by address.
    pub kept: Vec<BusAddr>,
    /// The model that it is for, which is not to be unloaded for it.
    pub model: Option<ModelId>,
}

/// Some blocks of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// How many.
    pub blocks: u64,
    /// Bytes of each that the driver is asked for.
    pub size_bytes: u64,
    /// The alignment that it is asked for, 0 for none.
    pub align_bytes: u64,
}

impl Request {
    /// The numbers of the physical cores that make the request's logical one.
    #[must_use]
    pub fn logical_core(&self) -> Range<u32> {
        let size = self.lnc_size.max(1);
        let first = self.core.get() / size * size;
        first..first.saturating_add(size)
    }

    /// Bytes that the runtime adds to be able to align by itself.
    fn padding_bytes(&self) -> u64 {
        match self.align_bytes > 0 && self.driver_align_bytes == 0 {
            true => self.driver_bytes.saturating_sub(self.asked_bytes),
            false => 0,
        }
    }

    /// Whether this chunk can be freed: the driver keeps its own, and what has no handle cannot be
    /// named.
    pub(super) fn can_free(&self, chunk: &ChunkFacts) -> bool {
        chunk.owner != Pid::default() && chunk.handle.is_some()
    }

    /// Whether this chunk may be among those to be freed for it.
    fn may_free(&self, chunk: &ChunkFacts) -> bool {
        self.can_free(chunk) && self.kept.binary_search(&chunk.span.start()).is_err()
    }
}

/// A place that would do, and what must be freed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Where the request would then fit; of several blocks, the first. (The driver may choose a lower
    /// place for a block alone, if freeing joins holes there.)
    pub at: BusAddr,
    /// Whether no set of fewer bytes helps. Where blocks of many kinds have to be had together and many
    /// could be freed, or very many that are alike, that is not known; then nothing large of the set
    /// is spare. Nor is it where there are very many sets of models to unload, or where scratchpad
    /// memory of another process is in the set: what goes with that is not known here.
    pub is_least: bool,
    /// Bytes of all blocks.
    pub freed_bytes: u64,
    /// The models of this process that must be unloaded for it.
    pub unloads: Vec<Unload>,
    /// How many of the blocks go with them.
    pub unloaded_blocks: u64,
    /// What must be freed, by address: what goes with models, and what is freed by itself.
    pub blocks: Blocks,
}

/// A model that must be unloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unload {
    /// Which.
    pub model: ModelId,
    /// What it is called.
    pub name: String,
}

/// A pool of the HBM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRoom {
    /// Which.
    pub part: PoolPart,
    /// All its bytes.
    pub size_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// How many holes they are in.
    pub holes: u64,
    /// Bytes of the largest.
    pub largest_hole_bytes: u64,
}

/// What one owner holds on the HBM, charged to one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub owner: Owner,
    /// The core.
    pub core: CoreId,
    /// Bytes, in whole pages.
    pub bytes: u64,
    /// In how many blocks.
    pub blocks: u64,
}

/// How full an HBM is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BankRoom {
    /// Which.
    pub channel: Channel,
    /// The cores whose memory is there by default.
    pub cores: Vec<CoreId>,
    /// All its bytes.
    pub size_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes of the largest hole.
    pub largest_hole_bytes: u64,
    /// Whether the request would fit there now.
    pub has_room: bool,
}

/// Why an HBM had no room, computed from the driver's pools and the runtime's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BankExplanation {
    /// What was asked for.
    pub request: Request,
    /// This process, if the runtime knows its number.
    pub process: Option<Pid>,
    /// Why there was no room.
    pub cause: Cause,
    /// Bytes that the pool must find in one piece: what the driver was asked for, in whole granules.
    pub needed_bytes: u64,
    /// How many blocks have to be had together, this one included.
    pub whole_blocks: u64,
    /// Bytes of all of them, in whole granules.
    pub whole_bytes: u64,
    /// Free bytes of the pools that may serve the request.
    pub usable_bytes: u64,
    /// Free bytes of all of the device's HBM.
    pub device_free_bytes: u64,
    /// Bytes of the largest hole in the pools that may serve it.
    pub largest_hole_bytes: u64,
    /// The most bytes that a caller could have at the alignment without freeing anything; `None` for
    /// an alignment that is no power of two, and for a scratchpad page.
    pub largest_fit_bytes: Option<u64>,
    /// The most that a caller can ever have here at the alignment in one block: with everything freed
    /// that can be. `None` for an alignment that is no power of two; for scratchpad pages the most that
    /// all of them can have that are still wanting, and `None` if that is not wanting.
    pub most_bytes: Option<u64>,
    /// Whether no freeing makes room: the HBM is too small.
    pub is_never: bool,
    /// Of several blocks that can never be had together, how many of the first can.
    pub most_blocks: Option<u64>,
    /// Pages of the contiguous scratchpad that live on the HBM, of whichever process.
    pub scratchpad_pages: u64,
    /// The pools of the HBM.
    pub pools: Vec<PoolRoom>,
    /// The place of the next scratchpad page, if that was asked for and there is one.
    pub page_at: Option<BusAddr>,
    /// What to free: fewest bytes, then fewest blocks, then the lowest place. `None` if freeing does
    /// not help, or is not needed.
    pub opening: Option<Opening>,
    /// The same with blocks of this process alone, where that is something else.
    pub own_opening: Option<Opening>,
    /// Who holds the HBM, most bytes first.
    pub holders: Vec<Holder>,
    /// All HBMs of the device.
    pub banks: Vec<BankRoom>,
    /// Bytes that this process has asked for on the HBM,
    pub charged_bytes: u64,
    /// and bytes that the pools have taken for that, in whole granules.
    pub rounded_bytes: u64,
}

impl BankExplanation {
    /// `None` if the snapshot has no such channel.
    pub(crate) fn new(
        mut snapshot: PoolSnapshot,
        request: Request,
        own: Own,
        cores_of: impl Fn(Channel) -> Vec<CoreId>,
    ) -> Option<Self> {
        let mut channels = snapshot.channels.iter();
        let here = channels.position(|one| one.channel == request.channel)?;
        let (mut found, places) = Self::look(&snapshot, here, request, &own, cores_of);
        let chunks = std::mem::take(&mut snapshot.channels[here].chunks);
        (found.opening, found.own_opening) = Opening::both(chunks, snapshot.births, own, places);
        Some(found)
    }

    /// Everything but what to free, and the places for that: the best, and the best among this
    /// process' own blocks where the best has others.
    fn look(
        snapshot: &PoolSnapshot,
        here: usize,
        request: Request,
        own: &Own,
        cores_of: impl Fn(Channel) -> Vec<CoreId>,
    ) -> (Self, Places) {
        let channel = &snapshot.channels[here];
        let look = Look::new(snapshot, channel, &request);
        let banks: Vec<BankRoom> = snapshot
            .channels
            .iter()
            .map(|channel| BankRoom::new(snapshot, channel, &request, &cores_of))
            .collect();
        let others = banks.iter().filter(|bank| bank.channel != request.channel);
        let is_elsewhere = others.clone().any(|bank| bank.has_room);
        let filled = look.filled();
        let ties = Ties::new(channel, &request, own);
        let may = |chunk: &ChunkFacts| request.may_free(chunk);
        let plain = |chunk: &ChunkFacts| may(chunk) && !ties.has(chunk);
        let everything = look.everything(&ties, plain);
        let may_ever = |number: usize| everything.get(number) == Some(&true);
        let mut most_bytes = look.most_bytes(&filled, look.fit, may_ever);
        let no_room = look.cause_if_room();
        let mut places = Places::default();
        let (mut is_never, mut most_blocks) = (false, None);
        if no_room.is_none() {
            is_never = match look.page() {
                Some(_) => false,
                None if !look.whole.is_empty() => look.is_never_whole(&filled, &everything),
                None => most_bytes.is_some_and(|most_bytes| most_bytes < look.fit.size_bytes),
            };
            // What can never be is not looked for.
            let all = match is_never {
                true => Found::default(),
                false => look.least(&filled, &ties, false, plain),
            };
            if let Some(page) = look.page() {
                is_never = all.freeing.is_none() && all.is_complete && page.is_judged(plain);
            }
            if is_never {
                let left = Without::marked(&look.bank, &everything);
                most_blocks = look.most_blocks(&left);
                most_bytes = most_bytes.or_else(|| look.most_page_bytes(&left));
            }
            let is_foreign = |freeing: &Freeing| {
                let chunks = freeing.place.chunks.iter();
                let mut chunks = chunks.filter_map(|&at| channel.chunks.get(at));
                chunks.any(|chunk| own.owner(chunk) != Owner::This)
            };
            places.best = all.freeing;
            if places.best.as_ref().is_some_and(is_foreign) {
                let is_own = |chunk: &ChunkFacts| plain(chunk) && own.owner(chunk) == Owner::This;
                places.of_own = look.least(&filled, &ties, true, is_own).freeing;
            }
            places.mark(channel, &ties, own);
        }
        let cause = no_room.unwrap_or_else(|| look.cause(is_elsewhere, is_never));
        let padding_bytes = request.padding_bytes();
        let of_caller = |bytes: u64| bytes.saturating_sub(padding_bytes);
        let granule_bytes = granule_bytes(snapshot);
        let mine = own.blocks.sizes();
        let mine = mine.filter(|(channel, _)| *channel == request.channel);
        let (mut charged_bytes, mut rounded_bytes) = (0_u64, 0_u64);
        for (_, allocated_bytes) in mine {
            let rounded = allocated_bytes.checked_next_multiple_of(granule_bytes);
            charged_bytes = charged_bytes.saturating_add(allocated_bytes);
            rounded_bytes = rounded_bytes.saturating_add(rounded.unwrap_or(u64::MAX));
        }
        let found = Self {
            process: own.process,
            cause,
            needed_bytes: look.fit.size_bytes,
            whole_blocks: look.whole.len().max(1) as u64,
            whole_bytes: look.whole_bytes(),
            usable_bytes: look.pools().map(|pool| pool.free_bytes()).sum(),
            device_free_bytes: banks.iter().map(|bank| bank.free_bytes).sum(),
            largest_hole_bytes: look.largest_hole_bytes(),
            largest_fit_bytes: look.largest_fit_bytes().map(of_caller),
            most_bytes: most_bytes.map(of_caller),
            is_never,
            most_blocks,
            scratchpad_pages: channel.chunks.iter().filter(|one| is_page(one)).count() as u64,
            pools: look.bank.pools().map(|pool| PoolRoom::new(&pool)).collect(),
            page_at: look
                .page()
                .and_then(|pages| pages.next_at())
                .map(BusAddr::new),
            opening: None,
            own_opening: None,
            holders: holders(channel, own),
            banks,
            charged_bytes,
            rounded_bytes,
            request,
        };
        (found, places)
    }

    /// Bytes of the HBM that other logical cores than the request's hold: the neighbours' share.
    #[must_use]
    pub fn neighbour_bytes(&self) -> u64 {
        let own = self.request.logical_core();
        let is_neighbour =
            |holder: &&Holder| holder.owner != Owner::Driver && !own.contains(&holder.core.get());
        let neighbours = self.holders.iter().filter(is_neighbour);
        neighbours.map(|holder| holder.bytes).sum()
    }

    /// How full the request's HBM is.
    pub(super) fn bank(&self) -> Option<&BankRoom> {
        let mut banks = self.banks.iter();
        banks.find(|bank| bank.channel == self.request.channel)
    }
}

/// The best place, and the best among this process' own blocks where the best has others.
#[derive(Default)]
struct Places {
    best: Option<Freeing>,
    of_own: Option<Freeing>,
    /// The starts of those chunks of both that go back only with models, by address.
    with_models: Vec<BusAddr>,
}

impl Places {
    fn mark(&mut self, channel: &ChannelSnapshot, ties: &Ties, own: &Own) {
        for freeing in [&mut self.best, &mut self.of_own].into_iter().flatten() {
            let chunks = freeing.place.chunks.iter();
            let chunks = chunks.filter_map(|&at| channel.chunks.get(at));
            let tied = chunks.filter(|chunk| ties.is_with_models(chunk, own));
            let tied: Vec<&ChunkFacts> = tied.collect();
            // What else goes with them is not known.
            freeing.is_least &= tied.iter().all(|chunk| own.owner(chunk) == Owner::This);
            let starts = tied.iter().map(|chunk| chunk.span.start());
            self.with_models.extend(starts);
        }
        self.with_models.sort_unstable();
        self.with_models.dedup();
    }
}

impl Opening {
    /// The best, and the best among this process' own blocks.
    fn both(
        chunks: Vec<ChunkFacts>,
        births: u64,
        mut own: Own,
        places: Places,
    ) -> (Option<Self>, Option<Self>) {
        let names = std::mem::take(&mut own.models);
        own.scratchpads.clear();
        let opening = |freeing: Freeing, blocks| Self {
            at: BusAddr::new(freeing.place.at),
            is_least: freeing.is_least,
            freed_bytes: freeing.place.bytes,
            unloads: freeing
                .models
                .into_iter()
                .map(|model| Unload {
                    model,
                    name: names.get(&model).cloned().unwrap_or_default(),
                })
                .collect(),
            unloaded_blocks: freeing.unloaded as u64,
            blocks,
        };
        let Places {
            best,
            of_own,
            with_models,
        } = places;
        match (best, of_own) {
            (None, _) => (None, None),
            (Some(best), None) => {
                let sets = [&best.place.chunks[..]];
                let [blocks] = Blocks::sets(chunks, births, own, with_models, sets);
                (Some(opening(best, blocks)), None)
            }
            (Some(best), Some(of_own)) => {
                let sets = [&best.place.chunks[..], &of_own.place.chunks[..]];
                let [blocks, own_blocks] = Blocks::sets(chunks, births, own, with_models, sets);
                (
                    Some(opening(best, blocks)),
                    Some(opening(of_own, own_blocks)),
                )
            }
        }
    }
}

impl PoolRoom {
    fn new(pool: &Pool<'_>) -> Self {
        Self {
            part: pool.part,
            size_bytes: pool.size_bytes(),
            free_bytes: pool.free_bytes(),
            holes: pool.holes.len() as u64,
            largest_hole_bytes: pool.largest(Align::None).unwrap_or(0),
        }
    }
}

impl BankRoom {
    fn new(
        snapshot: &PoolSnapshot,
        channel: &ChannelSnapshot,
        request: &Request,
        cores_of: impl Fn(Channel) -> Vec<CoreId>,
    ) -> Self {
        let look = Look::new(snapshot, channel, request);
        Self {
            channel: channel.channel,
            cores: cores_of(channel.channel),
            size_bytes: channel.region.size_bytes(),
            free_bytes: look.bank.free_bytes(),
            largest_hole_bytes: look.bank.largest_hole_bytes(),
            has_room: look.has_room(),
        }
    }
}

/// Who holds a bank, most bytes first.
fn holders(channel: &ChannelSnapshot, own: &Own) -> Vec<Holder> {
    let mut by_owner: BTreeMap<(Owner, CoreId), (u64, u64)> = BTreeMap::new();
    // Neighbours tend to have one owner.
    let whose = |chunk: &ChunkFacts| (chunk.owner, chunk.core);
    let runs = channel
        .chunks
        .chunk_by(|one, next| whose(one) == whose(next) && own.process.is_some());
    for run in runs {
        let Some(first) = run.first() else {
            continue;
        };
        let held = by_owner.entry((own.owner(first), first.core)).or_default();
        let bytes = run.iter().map(|chunk| chunk.span.size_bytes());
        held.0 = bytes.fold(held.0, u64::saturating_add);
        held.1 += run.len() as u64;
    }
    let holders = by_owner.into_iter();
    let mut holders: Vec<Holder> = holders
        .map(|((owner, core), (bytes, blocks))| Holder {
            owner,
            core,
            bytes,
            blocks,
        })
        .collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}
