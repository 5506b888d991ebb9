//! Why an HBM had no room.

use std::collections::BTreeMap;
use std::ops::Range;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::insight::{ChannelSnapshot, ChunkFacts, PoolSnapshot};
use glia_abi::mem_usage::MemUsage;

use super::blocks::{Blocks, Own, Owner};
use super::cause::Cause;
use super::evict::{self, Filling, Place};
use super::holes::{Align, Bank, Fit, Pool, PoolPart, granule_bytes};
use super::scratchpad::Pages;
use super::whole::{self, Freed};

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

    /// Whether this chunk may be among those to be freed: the driver keeps its own, and what has no
    /// handle cannot be named.
    fn may_free(&self, chunk: &ChunkFacts) -> bool {
        chunk.owner != Pid::default()
            && chunk.handle.is_some()
            && self.kept.binary_search(&chunk.span.start()).is_err()
    }
}

/// A place that would do, and what must be freed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Where the request would then fit; of several blocks, the first. (The driver may choose a lower
    /// place for a block alone, if freeing joins holes there.)
    pub at: BusAddr,
    /// Whether no set of fewer bytes helps. Where blocks that differ have to be had together and many
    /// could be freed, or very many that are alike, that is not known; then nothing large of the set
    /// is spare.
    pub is_least: bool,
    /// Bytes of all blocks.
    pub freed_bytes: u64,
    /// What must be freed, by address.
    pub blocks: Blocks,
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
    /// The most bytes that would fit at the alignment without freeing anything; `None` for an
    /// alignment that is no power of two, and for a scratchpad page.
    pub largest_fit_bytes: Option<u64>,
    /// The most that one block of the alignment can ever have here: with everything freed that can
    /// be. `None` as before.
    pub most_bytes: Option<u64>,
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
    ) -> (Self, Option<(Freed, Option<Freed>)>) {
        let channel = &snapshot.channels[here];
        let look = Look::new(snapshot, channel, &request);
        let banks: Vec<BankRoom> = snapshot
            .channels
            .iter()
            .map(|channel| BankRoom::new(snapshot, channel, &request, &cores_of))
            .collect();
        let others = banks.iter().filter(|bank| bank.channel != request.channel);
        let is_elsewhere = others.clone().any(|bank| bank.has_room);
        let cause = look.cause(is_elsewhere);
        let filled = look.filled();
        let may = |chunk: &ChunkFacts| request.may_free(chunk);
        let place = match cause {
            Cause::Passing | Cause::ZeroSize => None,
            _ => look.least(&filled, may),
        };
        let is_own = |chunk: &ChunkFacts| own.owner(chunk) == Owner::This;
        let places = place.map(|place| {
            let chunks = place.place.chunks.iter();
            let mut chunks = chunks.filter_map(|&at| channel.chunks.get(at));
            let own_place = match chunks.all(is_own) {
                true => None,
                false => look.least(&filled, |chunk| may(chunk) && is_own(chunk)),
            };
            (place, own_place)
        });
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
            largest_fit_bytes: look.largest_fit_bytes(),
            most_bytes: look.most_bytes(&filled, may),
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

/// A pool, and what lies between its holes.
struct Filled<'a> {
    pool: Pool<'a>,
    fillings: Vec<Filling>,
}

/// A request and a bank that it is looked for in.
struct Look<'a> {
    bank: Bank<'a>,
    fit: Fit,
    /// Everything that has to be had together, if it is more than that.
    whole: Vec<Fit>,
    is_scratchpad_page: bool,
}

impl<'a> Look<'a> {
    fn new(snapshot: &PoolSnapshot, channel: &'a ChannelSnapshot, request: &Request) -> Self {
        let granule_bytes = granule_bytes(snapshot);
        let fit = |size_bytes: u64, align_bytes| {
            let pages_bytes = size_bytes.checked_next_multiple_of(PAGE_SIZE_BYTES);
            let needed_bytes =
                pages_bytes.and_then(|bytes| bytes.checked_next_multiple_of(granule_bytes));
            Fit {
                size_bytes: needed_bytes.unwrap_or(u64::MAX),
                align: match request.is_scratchpad_page {
                    true => Align::None,
                    false => Align::new(align_bytes),
                },
            }
        };
        let whole = request.whole.iter().flat_map(|piece| {
            let fit = fit(piece.size_bytes, piece.align_bytes);
            (0..piece.blocks).map(move |_| fit)
        });
        let whole: Vec<Fit> = whole.collect();
        Self {
            bank: Bank::new(snapshot, channel),
            fit: fit(request.driver_bytes, request.driver_align_bytes),
            whole: Some(whole)
                .filter(|whole| whole.len() > 1)
                .unwrap_or_default(),
            is_scratchpad_page: request.is_scratchpad_page,
        }
    }

    fn whole_bytes(&self) -> u64 {
        let whole = self.whole.iter().map(|fit| fit.size_bytes);
        let bytes = whole.fold(0, u64::saturating_add);
        bytes.max(self.fit.size_bytes)
    }

    /// The pools that may serve it.
    fn pools(&self) -> impl Iterator<Item = Pool<'a>> {
        let is_page = self.is_scratchpad_page;
        let pools = self.bank.pools();
        pools.filter(move |pool| !is_page || pool.part == PoolPart::Main)
    }

    fn page(&self) -> Option<Pages<'a>> {
        self.is_scratchpad_page
            .then(|| Pages::new(self.bank.main(), self.fit.size_bytes))
    }

    fn has_room(&self) -> bool {
        match self.page() {
            Some(page) => page.has_room(),
            None if !self.whole.is_empty() => whole::has_room(&self.bank, &self.whole),
            None => self.bank.has_room(self.fit),
        }
    }

    fn largest_hole_bytes(&self) -> u64 {
        let largest = self.pools().filter_map(|pool| pool.largest(Align::None));
        largest.max().unwrap_or(0)
    }

    fn largest_fit_bytes(&self) -> Option<u64> {
        match self.is_scratchpad_page {
            true => None,
            false => self.bank.largest_bytes(self.fit.align),
        }
    }

    /// What fills the pools that may serve it.
    fn filled(&self) -> Vec<Filled<'a>> {
        let pools = self.pools();
        pools
            .map(|pool| Filled {
                fillings: evict::fillings(&pool),
                pool,
            })
            .collect()
    }

    fn most_bytes(&self, filled: &[Filled<'a>], may: impl Fn(&ChunkFacts) -> bool) -> Option<u64> {
        if self.is_scratchpad_page || matches!(self.fit.align, Align::Mask(_)) {
            return None;
        }
        let most = filled.iter().map(|Filled { pool, fillings }| {
            evict::most_bytes(pool, fillings, self.fit.align, &may)
        });
        most.max()
    }

    fn cause(&self, is_elsewhere: bool) -> Cause {
        let needed_bytes = self.fit.size_bytes;
        if needed_bytes == 0 {
            return Cause::ZeroSize;
        }
        if self.has_room() {
            return Cause::Passing;
        }
        if !self.whole.is_empty() {
            return self.cause_of_whole(is_elsewhere);
        }
        let mut free = self.pools().map(|pool| pool.free_bytes());
        if free.any(|free_bytes| free_bytes >= needed_bytes) {
            return match self.page() {
                Some(page) if page.is_out_of_order() => Cause::ScratchpadOrder,
                Some(_) => Cause::ScratchpadPlace,
                None if self.largest_hole_bytes() >= needed_bytes => Cause::Alignment,
                None => Cause::Fragmentation,
            };
        }
        let usable_bytes: u64 = self.pools().map(|pool| pool.free_bytes()).sum();
        match is_elsewhere {
            _ if usable_bytes >= needed_bytes => Cause::WrongPool,
            true => Cause::WrongBank,
            false => Cause::Capacity,
        }
    }

    fn cause_of_whole(&self, is_elsewhere: bool) -> Cause {
        let free_bytes: u64 = self.pools().map(|pool| pool.free_bytes()).sum();
        let unaligned = self.whole.iter().map(|fit| Fit {
            align: Align::None,
            ..*fit
        });
        let unaligned: Vec<Fit> = unaligned.collect();
        match is_elsewhere {
            _ if whole::has_room(&self.bank, &unaligned) => Cause::Alignment,
            _ if free_bytes >= self.whole_bytes() => Cause::Fragmentation,
            true => Cause::WrongBank,
            false => Cause::Capacity,
        }
    }

    /// The best place. Its chunks are told by their place in the channel's list.
    fn least(&self, filled: &[Filled<'a>], may: impl Fn(&ChunkFacts) -> bool) -> Option<Freed> {
        let least = |place| Freed {
            place,
            is_least: true,
        };
        if let Some(page) = self.page() {
            return page.in_the_way(may).map(least);
        }
        if !self.whole.is_empty() {
            return whole::least(&self.bank, &self.whole, may);
        }
        let places = filled.iter().filter_map(|Filled { pool, fillings }| {
            let mut place = evict::least(pool, fillings, self.fit, &may)?;
            for chunk in &mut place.chunks {
                *chunk += pool.chunks_before;
            }
            Some(place)
        });
        places.min_by_key(Place::cost).map(least)
    }
}

impl Opening {
    /// The best, and the best among this process' own blocks.
    fn both(
        chunks: Vec<ChunkFacts>,
        births: u64,
        own: Own,
        places: Option<(Freed, Option<Freed>)>,
    ) -> (Option<Self>, Option<Self>) {
        let opening = |freed: Freed, blocks| Self {
            at: BusAddr::new(freed.place.at),
            is_least: freed.is_least,
            freed_bytes: freed.place.bytes,
            blocks,
        };
        match places {
            None => (None, None),
            Some((best, None)) => {
                let [blocks] = Blocks::sets(chunks, births, own, [&best.place.chunks]);
                (Some(opening(best, blocks)), None)
            }
            Some((best, Some(of_own))) => {
                let sets = [&best.place.chunks[..], &of_own.place.chunks[..]];
                let [blocks, own_blocks] = Blocks::sets(chunks, births, own, sets);
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
