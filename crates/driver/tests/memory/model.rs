//! Random operations of every kind, against a model that is slow and obviously right.
//!
//! The model keeps a bool per granule, a vector per list and a stack of handles, and follows the
//! reference's rules literally. After each operation the two must agree on every outcome and on
//! every figure of the books, and the books on the live chunks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{MIB, PAGE, TestHost};
use glia_abi::addr::{BusAddr, Span};
use glia_abi::fault::NoFaults;
use glia_abi::handle::{Channel, CoreId, Pid};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::{Category, Counter};
use glia_driver::alloc::AllocRequest;
use glia_driver::arena::{Arena, ExtentTree, NaiveBitmap};
use glia_driver::chunk::{ChunkRef, Place};
use glia_driver::lifespan::ListId;
use glia_driver::memory::sweep::Sweep;
use glia_driver::memory::{DeviceMemory, Freed, MemoryConfig};
use glia_driver::usage::Key;
use proptest::prelude::*;

const PIDS: [u32; 3] = [10, 11, 12];
const HOST_BYTES: u64 = 12 * MIB;

/// One operation; picks are taken modulo what there is.
#[derive(Debug, Clone)]
enum Op {
    Alloc(AllocRequest, usize),
    Free(usize, usize),
    AddRef(usize),
    Publish(usize),
    FreeHandle(u32),
    Search(usize, u64),
    Access(usize, u64, u64),
    Open(usize),
    Close(usize),
    Expire(usize, Lifespan),
}

fn any_request() -> impl Strategy<Value = AllocRequest> {
    let size = prop_oneof![
        4 => (1..64_u64).prop_map(|pages| pages * PAGE),
        2 => 1..(2 * MIB),
        1 => (1..12_u64).prop_map(|n| n * MIB),
        1 => prop_oneof![Just(0), Just(512 << 10), Just((512 << 10) + 1), Just(u64::MAX), Just(i64::MAX.unsigned_abs())],
    ];
    let align = prop_oneof![
        6 => Just(0_u64),
        3 => (12..25_u32).prop_map(|order| 1 << order),
        2 => 1..(1_u64 << 18),
        1 => prop_oneof![Just(0x7fff_ffff_u64), Just(0x8000_0000), Just(u64::MAX)],
    ];
    let category = prop_oneof![4 => 7..19_u32, 3 => Just(19), 1 => any::<u32>(), 1 => 0..7_u32];
    let channel = prop_oneof![8 => 0..2_u32, 1 => 2..4_u32];
    let core = prop_oneof![8 => 0..8_u32, 1 => 8..10_u32];
    let lifespan = prop::sample::select(Lifespan::ALL.to_vec());
    (
        size,
        align,
        prop::bool::weighted(0.2),
        category,
        channel,
        core,
        lifespan,
    )
        .prop_map(
            |(size_bytes, align_bytes, host, category, channel, core, lifespan)| AllocRequest {
                align_bytes: if host && align_bytes < 1 << 14 {
                    0
                } else {
                    align_bytes
                },
                location: if host {
                    Location::Host
                } else {
                    Location::Device
                },
                core: CoreId::new(core),
                lifespan,
                category: Category(category),
                ..AllocRequest::device(size_bytes, Channel::new(channel))
            },
        )
}

fn any_op() -> impl Strategy<Value = Op> {
    let pick = any::<usize>();
    prop_oneof![
        12 => (any_request(), pick).prop_map(|(request, pid)| Op::Alloc(request, pid)),
        8 => (pick, any::<usize>()).prop_map(|(chunk, pid)| Op::Free(chunk, pid)),
        2 => pick.prop_map(Op::AddRef),
        3 => pick.prop_map(Op::Publish),
        1 => (0..40_u32).prop_map(Op::FreeHandle),
        3 => (pick, 0..(3 * MIB)).prop_map(|(chunk, offset)| Op::Search(chunk, offset)),
        3 => (pick, any_edge(), any_edge()).prop_map(|(chunk, offset, size)| Op::Access(chunk, offset, size)),
        2 => pick.prop_map(Op::Open),
        2 => pick.prop_map(Op::Close),
        1 => (pick, prop::sample::select(Lifespan::ALL.to_vec())).prop_map(|(pid, lifespan)| Op::Expire(pid, lifespan)),
    ]
}

fn any_edge() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..(64_u64 << 10), 1 => any::<u64>(), 1 => (u64::MAX - 9000)..=u64::MAX]
}

/// A range of bits, the reference's loop over it.
struct Bits {
    base: u64,
    taken: Vec<bool>,
}

impl Bits {
    fn new(base: u64, size_bytes: u64) -> Self {
        Self {
            base,
            taken: vec![false; usize::try_from(size_bytes / PAGE).unwrap()],
        }
    }

    /// The literal loop, aligned or (with `align_bytes` 1) plain.
    fn find(&self, size_bytes: u64, align_bytes: u64) -> Option<u64> {
        if size_bytes == 0 || size_bytes > self.free_bytes() {
            return None;
        }
        let (n, len) = (size_bytes / PAGE, self.taken.len() as u64);
        let mask = align_bytes.div_ceil(PAGE) - 1;
        let off = (self.base & (align_bytes - 1)) / PAGE;
        let mut start = 0;
        loop {
            let mut i = (start..len).find(|&i| !self.taken[i as usize])?;
            i = ((i + off + mask) & !mask) - off;
            if i + n > len {
                return None;
            }
            match (i..i + n).find(|&j| self.taken[j as usize]) {
                None => return Some(self.base + i * PAGE),
                Some(j) => start = j + 1,
            }
        }
    }

    fn set(&mut self, at: u64, size_bytes: u64, taken: bool) {
        let first = ((at - self.base) / PAGE) as usize;
        for bit in &mut self.taken[first..first + (size_bytes / PAGE) as usize] {
            assert_ne!(*bit, taken);
            *bit = taken;
        }
    }

    fn is_free(&self, at: u64, size_bytes: u64) -> bool {
        let first = at
            .checked_sub(self.base)
            .map(|offset| (offset / PAGE) as usize);
        let range =
            first.and_then(|first| self.taken.get(first..first + (size_bytes / PAGE) as usize));
        range.is_some_and(|bits| bits.iter().all(|bit| !bit))
    }

    fn free_bytes(&self) -> u64 {
        self.taken.iter().filter(|bit| !**bit).count() as u64 * PAGE
    }

    fn free_extents(&self) -> Vec<(u64, u64)> {
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for (at, _) in (0_u64..)
            .map(|i| self.base + i * PAGE)
            .zip(&self.taken)
            .filter(|(_, taken)| !**taken)
        {
            match extents.last_mut() {
                Some((start, size)) if *start + *size == at => *size += PAGE,
                _ => extents.push((at, PAGE)),
            }
        }
        extents
    }
}

struct ModelChunk {
    at: Option<u64>,
    size: u64,
    request: AllocRequest,
    place: Place,
    refs: u32,
    handle: Option<u32>,
}

/// The reference, as a book-keeper would do it.
struct Model {
    pools: Vec<[Bits; 2]>,
    scratchpad: Vec<u64>,
    reserves: Vec<Vec<Bits>>,
    host_left: u64,
    chunks: BTreeMap<ChunkRef, ModelChunk>,
    /// Newest first.
    lists: BTreeMap<String, Vec<ChunkRef>>,
    attached: [(Option<Pid>, u32); 16],
    open_files: i32,
    handles: BTreeMap<u32, ChunkRef>,
    free_handles: Vec<u32>,
    next_handle: u32,
}

enum Refused {
    Einval,
    Enomem,
    Eacces,
}

const REGION: u64 = 32 * MIB;
const SMALL: u64 = 4 * MIB;
const MAIN: u64 = REGION - SMALL;
const BASES: [u64; 2] = [0, 0x10_0000_0000];

impl Model {
    fn new() -> Self {
        let reserves: Vec<Vec<Bits>> = (0..4_u64)
            .map(|i| {
                (0..8 >> i)
                    .map(|_| Bits::new(0, (256 << 10) << i))
                    .collect()
            })
            .collect();
        Self {
            pools: BASES
                .iter()
                .map(|&base| [Bits::new(base, MAIN), Bits::new(base + MAIN, SMALL)])
                .collect(),
            scratchpad: vec![0; 2],
            reserves,
            host_left: HOST_BYTES - 8 * MIB,
            chunks: BTreeMap::new(),
            lists: BTreeMap::new(),
            attached: [(None, 0); 16],
            open_files: 0,
            handles: BTreeMap::new(),
            free_handles: Vec::new(),
            next_handle: 1,
        }
    }

    fn slot(&self, pid: Pid) -> Option<usize> {
        self.attached
            .iter()
            .position(|(holder, _)| *holder == Some(pid))
    }

    /// Where the reference would place the request, and everything that goes with it.
    fn place(
        &mut self,
        pid: Pid,
        request: &AllocRequest,
    ) -> Result<(Option<u64>, u64, Place), Refused> {
        if request.size_bytes > i64::MAX.unsigned_abs() {
            return Err(Refused::Einval);
        }
        let size = request.size_bytes.div_ceil(PAGE) * PAGE;
        if request.channel.get() >= 2 || request.core.get() >= 8 {
            return Err(Refused::Einval);
        }
        let (at, place) = match request.location {
            Location::Host => (None, self.place_host(request, size)?),
            Location::Device => {
                let (at, place) = self.place_device(request, size)?;
                (Some(at), place)
            }
        };
        if request.lifespan == Lifespan::CurrentProcess && self.slot(pid).is_none() {
            return Err(Refused::Eacces);
        }
        Ok((at, size, place))
    }

    fn place_device(&mut self, request: &AllocRequest, size: u64) -> Result<(u64, Place), Refused> {
        let channel = request.channel.index();
        let [main, small] = &self.pools[channel];
        if request.category.0 == 19 {
            let below = self.scratchpad[channel] + size;
            let at = BASES[channel] + MAIN.checked_sub(below).ok_or(Refused::Enomem)?;
            return if size > 0 && main.is_free(at, size) {
                Ok((at, Place::Main))
            } else {
                Err(Refused::Enomem)
            };
        }
        let align = if request.align_bytes <= PAGE {
            1
        } else {
            request.align_bytes
        };
        if align > 0x7fff_ffff {
            return Err(Refused::Einval);
        }
        let mut order = [(main, Place::Main), (small, Place::Small)];
        if size <= 512 << 10 {
            order.reverse();
        }
        let found = order
            .iter()
            .find_map(|(pool, place)| Some((pool.find(size, align)?, *place)));
        let (at, place) = found.ok_or(Refused::Enomem)?;
        if at & (align - 1) == 0 {
            Ok((at, place))
        } else {
            Err(Refused::Enomem)
        }
    }

    fn place_host(&mut self, request: &AllocRequest, size: u64) -> Result<Place, Refused> {
        if request.align_bytes != 0 {
            return Err(Refused::Einval);
        }
        if size == 0 {
            return Err(Refused::Enomem);
        }
        if request.category.0 == 19 {
            return Err(Refused::Einval);
        }
        if size <= self.host_left {
            return Ok(Place::Coherent);
        }
        let mut places = (0_u32..).zip(&self.reserves).flat_map(|(pool, pages)| {
            (0_u32..)
                .zip(pages)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .map(move |(page, bits)| (pool, page, bits))
        });
        let found = places.find(|(_, _, bits)| bits.find(size, 1).is_some());
        found
            .map(|(pool, page, _)| Place::Reserve { pool, page })
            .ok_or(Refused::Enomem)
    }

    fn mark(&mut self, chunk: &ModelChunk, taken: bool) {
        match (chunk.place, chunk.at) {
            (Place::Main | Place::Small, at) => {
                let pool = usize::from(chunk.place == Place::Small);
                self.pools[chunk.request.channel.index()][pool].set(at.unwrap(), chunk.size, taken);
                if chunk.request.category.0 == 19 {
                    let pad = &mut self.scratchpad[chunk.request.channel.index()];
                    *pad = if taken {
                        *pad + chunk.size
                    } else {
                        *pad - chunk.size
                    };
                }
            }
            (Place::Coherent, _) => {
                self.host_left = if taken {
                    self.host_left - chunk.size
                } else {
                    self.host_left + chunk.size
                };
            }
            (Place::Reserve { pool, page }, at) => {
                self.reserves[pool as usize][page as usize].set(at.unwrap(), chunk.size, taken);
            }
        }
    }

    fn stamp(&mut self, pid: Pid, reference: ChunkRef, chunk: ModelChunk) {
        self.mark(&chunk, true);
        let list = match chunk.request.lifespan {
            Lifespan::Local => "local".into(),
            Lifespan::CurrentProcess => format!("process{}", self.slot(pid).unwrap()),
            Lifespan::AllProcess => "all".into(),
            Lifespan::Device => "device".into(),
        };
        self.list(&list).insert(0, reference);
        self.chunks.insert(reference, chunk);
    }

    fn list(&mut self, name: &str) -> &mut Vec<ChunkRef> {
        self.lists.entry(name.into()).or_default()
    }

    /// One reference off: how many are left.
    fn free(&mut self, reference: ChunkRef) -> u32 {
        let chunk = self.chunks.get_mut(&reference).unwrap();
        chunk.refs -= 1;
        if chunk.refs > 0 {
            return chunk.refs;
        }
        let chunk = self.chunks.remove(&reference).unwrap();
        if let Some(handle) = chunk.handle {
            self.free_handle(handle);
        }
        self.mark(&chunk, false);
        for list in self.lists.values_mut() {
            list.retain(|entry| *entry != reference);
        }
        0
    }

    fn free_handle(&mut self, handle: u32) -> bool {
        let known = self.handles.remove(&handle).is_some();
        if known {
            self.free_handles.push(handle);
        }
        known
    }

    fn sweep(&mut self, from: &str, to: &str) -> (Vec<ChunkRef>, Vec<(ChunkRef, u32)>) {
        let (mut freed, mut kept) = (Vec::new(), Vec::new());
        for reference in self.list(from).clone() {
            match self.free(reference) {
                0 => freed.push(reference),
                refs => {
                    kept.push((reference, refs));
                    self.list(from).retain(|entry| *entry != reference);
                    self.list(to).insert(0, reference);
                }
            }
        }
        (freed, kept)
    }
}

/// Both sides of the comparison.
struct Pair<A: Arena> {
    real: DeviceMemory<A>,
    model: Model,
    config: MemoryConfig,
}

impl<A: Arena> Pair<A> {
    fn new() -> Self {
        let config = crate::support::small_device();
        let real =
            DeviceMemory::<A>::new(config, TestHost::new(HOST_BYTES), Arc::new(NoFaults)).unwrap();
        let mut model = Model::new();
        for (facts, channel) in real.channel_facts().iter().zip(0..) {
            let request = AllocRequest {
                core: CoreId::new(channel),
                category: Category::NCDEV_DEVICE,
                ..AllocRequest::device(16 * MIB, Channel::new(channel))
            };
            let chunk = ModelChunk {
                at: Some(BASES[channel as usize]),
                size: 16 * MIB,
                request,
                place: Place::Main,
                refs: 1,
                handle: None,
            };
            model.stamp(Pid::new(0), facts.carveout, chunk);
        }
        Self {
            real,
            model,
            config,
        }
    }

    fn pick(&self, pick: usize) -> Option<ChunkRef> {
        let live: Vec<_> = self.model.chunks.keys().copied().collect();
        (!live.is_empty()).then(|| live[pick % live.len()])
    }

    fn step(&mut self, op: &Op) {
        let pid = |pick: usize| Pid::new(PIDS[pick % PIDS.len()]);
        match *op {
            Op::Alloc(request, who) => self.alloc(pid(who), &request),
            Op::Free(pick, who) => {
                let Some(chunk) = self.pick(pick) else { return };
                match (self.real.free(pid(who), chunk), self.model.free(chunk)) {
                    (Ok(Freed::Gone { .. }), 0) => assert_eq!(self.real.chunk(chunk), None),
                    (Ok(Freed::Kept { refs }), left) => assert_eq!(refs, left),
                    (got, left) => panic!("{got:?}, model {left} left"),
                }
            }
            Op::AddRef(pick) => {
                let Some(chunk) = self.pick(pick) else { return };
                let entry = self.model.chunks.get_mut(&chunk).unwrap();
                entry.refs += 1;
                assert_eq!(self.real.add_ref(chunk), Ok(entry.refs));
            }
            Op::Publish(pick) => {
                let Some(chunk) = self.pick(pick) else { return };
                let model = &mut self.model;
                let handle = model.chunks[&chunk].handle.unwrap_or_else(|| {
                    let handle = model.free_handles.pop().unwrap_or_else(|| {
                        model.next_handle += 1;
                        model.next_handle - 1
                    });
                    model.handles.insert(handle, chunk);
                    handle
                });
                model.chunks.get_mut(&chunk).unwrap().handle = Some(handle);
                assert_eq!(self.real.publish(chunk).unwrap().get(), handle);
            }
            Op::FreeHandle(number) => {
                let Some(handle) = glia_abi::handle::McHandle::new(number) else {
                    return;
                };
                assert_eq!(
                    self.real.free_handle(handle).is_ok(),
                    self.model.free_handle(number)
                );
            }
            Op::Search(pick, offset) => {
                let Some(chunk) = self.pick(pick) else { return };
                let at = self
                    .real
                    .chunk(chunk)
                    .unwrap()
                    .at()
                    .checked_add(offset)
                    .unwrap();
                let holds = |c: &ChunkRef| self.real.chunk(*c).unwrap().span().contains(at);
                let expected = self.model.chunks.keys().copied().find(holds);
                assert_eq!(self.real.search(at).map(|(found, _)| found), expected);
            }
            Op::Access(pick, offset, size) => {
                let Some(chunk) = self.pick(pick) else { return };
                let entry = &self.model.chunks[&chunk];
                let limit = match entry.at {
                    Some(at) if entry.request.category.0 == 19 => {
                        BASES[entry.request.channel.index()] + MAIN - at
                    }
                    _ => entry.size,
                };
                let fits = u128::from(offset) + u128::from(size) <= u128::from(limit);
                assert_eq!(self.real.check_access(chunk, offset, size).is_ok(), fits);
            }
            Op::Open(who) => {
                let pid = pid(who);
                let model = &mut self.model;
                let slot = model
                    .slot(pid)
                    .or_else(|| {
                        model
                            .attached
                            .iter()
                            .position(|(holder, _)| holder.is_none())
                    })
                    .unwrap();
                model.attached[slot] = (Some(pid), model.attached[slot].1 + 1);
                model.open_files += 1;
                let opened = self.real.open(pid).unwrap();
                assert_eq!(
                    (opened.slot.index(), opened.open_count),
                    (slot, model.attached[slot].1)
                );
            }
            Op::Close(who) => self.close(pid(who)),
            Op::Expire(who, lifespan) => self.expire(pid(who), lifespan),
        }
    }

    fn alloc(&mut self, pid: Pid, request: &AllocRequest) {
        let (got, expected) = (
            self.real.alloc(pid, request),
            self.model.place(pid, request),
        );
        match (got, expected) {
            (Ok(reference), Ok((at, size, place))) => {
                let record = self.real.chunk(reference).unwrap();
                if let Some(at) = at {
                    assert_eq!(record.at(), BusAddr::new(at));
                }
                assert_eq!(
                    (record.size_bytes(), record.place(), record.refs()),
                    (size, place, 1)
                );
                let at = at.or_else(|| self.offset_in_page(place, record.at()));
                self.model.stamp(
                    pid,
                    reference,
                    ModelChunk {
                        at,
                        size,
                        request: *request,
                        place,
                        refs: 1,
                        handle: None,
                    },
                );
            }
            (Err(error), Err(refused)) => {
                let errno = match refused {
                    Refused::Einval => -22,
                    Refused::Enomem => -12,
                    Refused::Eacces => -13,
                };
                assert_eq!(error.errno().ret(), errno, "{error}");
            }
            (got, expected) => panic!("{request:?}: {got:?}, model {:?}", expected.is_ok()),
        }
    }

    /// The model's reserve pages all begin at 0; first fit must have given the lowest place of the
    /// page.
    fn offset_in_page(&self, place: Place, at: BusAddr) -> Option<u64> {
        let Place::Reserve { pool, page } = place else {
            return None;
        };
        let start = self
            .config
            .layout
            .host_to_bus(self.real.reserve_page(pool, page).unwrap());
        at.checked_offset_from(start)
    }

    fn close(&mut self, pid: Pid) {
        let flushed = self.real.flush(pid);
        let slot = self.model.slot(pid);
        assert_eq!(
            flushed.attached,
            slot.map_or(0, |slot| self.model.attached[slot].1)
        );
        if let Some(slot) = slot.filter(|&slot| self.model.attached[slot].1 == 1) {
            let expected = self.model.sweep(&format!("process{slot}"), "all");
            assert_swept(
                flushed.sweep.as_ref().unwrap(),
                &expected,
                ListId::AllProcess,
            );
        } else {
            assert_eq!(flushed.sweep, None);
        }
        let left = slot.map(|slot| {
            let (holder, opens) = &mut self.model.attached[slot];
            *opens -= 1;
            if *opens == 0 {
                *holder = None;
            }
            *opens
        });
        assert_eq!(flushed.open_left, left);
        let released = self.real.release(pid);
        self.model.open_files -= 1;
        if self.model.open_files == 0 {
            let expected = self.model.sweep("all", "device");
            assert_swept(&released.unwrap(), &expected, ListId::Device);
        } else {
            assert_eq!(released, None);
        }
    }

    fn expire(&mut self, pid: Pid, lifespan: Lifespan) {
        let slot = self.model.slot(pid).map(|slot| format!("process{slot}"));
        let (from, to, next) = match (lifespan, slot) {
            (Lifespan::Local, Some(own)) => {
                let next = ListId::all().find(|list| list.to_string() == own).unwrap();
                ("local".into(), own, next)
            }
            (Lifespan::CurrentProcess, Some(own)) => (own, "all".into(), ListId::AllProcess),
            (Lifespan::AllProcess, _) => ("all".into(), "device".into(), ListId::Device),
            // Sweeping the device's list would take the carveouts with it; teardown does that at
            // the end.
            (Lifespan::Device, _) => return,
            (Lifespan::Local | Lifespan::CurrentProcess, None) => {
                assert_eq!(
                    self.real.expire(pid, lifespan).unwrap_err().errno().ret(),
                    -13
                );
                return;
            }
        };
        let expected = self.model.sweep(&from, &to);
        assert_swept(&self.real.expire(pid, lifespan).unwrap(), &expected, next);
    }

    /// The books, against the model and against the live chunks.
    fn check(&self) {
        let (stats, usage) = (self.real.stats(), self.real.usage());
        let live: Vec<_> = self
            .model
            .chunks
            .keys()
            .map(|c| (*c, self.real.chunk(*c).unwrap()))
            .collect();
        assert_eq!(stats.chunks, live.len() as u64);
        for (channel, books) in (0..).map(Channel::new).zip(&stats.channels) {
            let [main, small] = &self.model.pools[channel.index()];
            assert_eq!(
                (books.main_free_bytes, books.small_free_bytes),
                (main.free_bytes(), small.free_bytes())
            );
            assert_eq!(
                books.allocated_bytes + books.main_free_bytes + books.small_free_bytes,
                REGION
            );
            assert_eq!(
                books.scratchpad_bytes,
                self.model.scratchpad[channel.index()]
            );
            let extents = [main.free_extents(), small.free_extents()];
            let largest = extents
                .each_ref()
                .map(|pool| pool.iter().map(|(_, size)| *size).max().unwrap_or(0));
            assert_eq!(
                [books.main_largest_bytes, books.small_largest_bytes],
                largest
            );
            let expected: Vec<_> = extents
                .concat()
                .into_iter()
                .map(|(at, size)| Span::new(BusAddr::new(at), size).unwrap())
                .collect();
            assert_eq!(self.real.free_extents(channel), expected);
            let mut chunks: Vec<_> = live
                .iter()
                .map(|(_, c)| *c)
                .filter(|c| c.location() == Location::Device && c.channel() == channel)
                .collect();
            chunks.sort_by_key(|chunk| chunk.at());
            assert_eq!(self.real.channel_chunks(channel), chunks);
            for pair in chunks.windows(2) {
                assert!(!pair[0].span().overlaps(pair[1].span()));
            }
        }
        let bytes = |location| {
            live.iter()
                .filter(|(_, c)| c.location() == location)
                .map(|(_, c)| c.size_bytes())
                .sum::<u64>()
        };
        assert_eq!(
            (stats.host_bytes, stats.device_bytes),
            (bytes(Location::Host), bytes(Location::Device))
        );
        for counter in Counter::ALL {
            for key in
                std::iter::once(Key::Device).chain((0..8).map(|core| Key::Core(CoreId::new(core))))
            {
                let charged = |c: &glia_driver::chunk::Chunk| {
                    let (total, category_key) = match c.location() {
                        Location::Host => (Counter::HostTotal, Key::Device),
                        Location::Device => (Counter::DeviceTotal, Key::Core(c.core())),
                    };
                    (counter, key) == (total, Key::Core(c.core()))
                        || (counter, key) == (c.category().counter(c.location()), category_key)
                };
                let sum: u64 = live
                    .iter()
                    .filter(|(_, c)| charged(c))
                    .map(|(_, c)| c.size_bytes())
                    .sum();
                assert_eq!(
                    usage.balance(counter, key).total_bytes,
                    i64::try_from(sum).unwrap(),
                    "{counter:?} {key:?}"
                );
            }
        }
        for (books, pages) in stats.reserves.iter().zip(&self.model.reserves) {
            assert_eq!(
                books.free_bytes,
                pages.iter().map(Bits::free_bytes).sum::<u64>()
            );
            assert_eq!(books.allocated_bytes + books.free_bytes, 2 * MIB);
        }
        let length = |name: &str| self.model.lists.get(name).map_or(0, Vec::len) as u64;
        assert_eq!(
            (stats.lists.local, stats.lists.all, stats.lists.device),
            (length("local"), length("all"), length("device"))
        );
        for process in &stats.processes {
            assert_eq!(
                process.chunks,
                length(&format!("process{}", process.slot.get()))
            );
        }
        for (&handle, &chunk) in &self.model.handles {
            let handle = glia_abi::handle::McHandle::new(handle).unwrap();
            let alive = self.model.chunks.contains_key(&chunk).then_some(chunk);
            assert_eq!(self.real.resolve(handle), alive);
        }
    }

    fn teardown(mut self) {
        for slot in 0..16 {
            if self.model.attached[slot].0.is_some() {
                self.model.sweep(&format!("process{slot}"), "device");
            }
        }
        self.model.sweep("all", "device");
        let leaks = self.model.list("local").clone();
        let device = self.model.list("device").clone();
        let result = self.real.teardown(Pid::new(10));
        assert_eq!(result.leaked, leaks);
        assert!(result.freed.ends_with(&device));
        let stats = self.real.stats();
        assert_eq!(
            (stats.chunks, stats.host_bytes, stats.device_bytes),
            (0, 0, 0)
        );
    }
}

fn assert_swept(got: &Sweep, expected: &(Vec<ChunkRef>, Vec<(ChunkRef, u32)>), next: ListId) {
    assert_eq!(got.freed, expected.0);
    assert_eq!(
        got.kept
            .iter()
            .map(|kept| (kept.chunk, kept.refs))
            .collect::<Vec<_>>(),
        expected.1
    );
    assert!(got.kept.iter().all(|kept| kept.list == next));
}

fn run<A: Arena>(ops: &[Op]) {
    let mut pair = Pair::<A>::new();
    for op in ops {
        pair.step(op);
        pair.check();
    }
    pair.teardown();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_extent_tree_behaves_as_the_model(ops in prop::collection::vec(any_op(), 1..120)) {
        run::<ExtentTree>(&ops);
    }

    #[test]
    fn the_naive_bitmap_behaves_as_the_model(ops in prop::collection::vec(any_op(), 1..60)) {
        run::<NaiveBitmap>(&ops);
    }
}
