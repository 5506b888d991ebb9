//! The reference, as a book-keeper would do it: what it keeps, how a chunk is born and dies.

use std::collections::{BTreeMap, HashMap};

use glia_abi::addr::BusAddr;
use glia_abi::handle::Pid;
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Counter;
use glia_driver::alloc::AllocRequest;
use glia_driver::chunk::{ChunkRef, DeadChunk, Place};
use glia_driver::lifespan::ListId;
use glia_driver::memory::{Freed, MemoryConfig};
use glia_driver::pool::ScratchpadOrder;
use glia_driver::usage::{Balance, Key};

use super::bits::Bits;
use super::device::Device;
use super::handles::Handles;
use super::machine::Orders;

/// The pools of one channel.
pub(super) struct Pools {
    pub(super) base: u64,
    pub(super) main_size: u64,
    pub(super) small_size: u64,
    pub(super) main: Bits,
    /// Empty if there is none.
    pub(super) small: Bits,
    pub(super) scratchpad: u64,
    pub(super) complaints: u64,
}

#[derive(Clone)]
pub(super) struct ModelChunk {
    pub(super) request: AllocRequest,
    pub(super) owner: Pid,
    pub(super) birth: u64,
    pub(super) at: u64,
    pub(super) size: u64,
    pub(super) place: Place,
    pub(super) refs: u32,
    pub(super) handle: Option<u32>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    pub(super) pid: Option<Pid>,
    pub(super) opens: u32,
    /// Host and device bytes. They stay when the process goes.
    pub(super) bytes: [Balance; 2],
}

pub(super) struct Model {
    pub(super) config: MemoryConfig,
    pub(super) pools: Vec<Pools>,
    /// Pages of each reserve pool, oldest first.
    pub(super) reserves: [Vec<Bits>; 4],
    pub(super) host_bytes: u64,
    pub(super) host_used: u64,
    pub(super) orders: Orders,
    pub(super) chunks: BTreeMap<ChunkRef, ModelChunk>,
    /// Dead, but pinned.
    pub(super) held: BTreeMap<ChunkRef, ModelChunk>,
    pub(super) dead: Vec<ChunkRef>,
    pub(super) pins: BTreeMap<ChunkRef, u32>,
    /// Newest first.
    pub(super) lists: HashMap<ListId, Vec<ChunkRef>>,
    pub(super) slots: [Slot; 16],
    pub(super) open_files: i64,
    pub(super) usage: HashMap<(Counter, Key), Balance>,
    pub(super) handles: Handles,
    pub(super) births: u64,
    pub(super) torn_down: bool,
}

/// What each page of a reserve pool has.
pub(super) fn reserve_page_size(pool: usize) -> u64 {
    (256 << 10) << pool
}

impl Model {
    /// A device before its carveouts are taken.
    pub(super) fn new(device: &Device) -> Self {
        let (config, params) = (device.config, device.config.params);
        let unit = params.mempool_min_alloc_size;
        let granule = (1_u64..).map(|n| 1 << n).take_while(|size| *size <= unit);
        let granule: u64 = granule.max().unwrap();
        let region_size = config.layout.region_size_bytes();
        let mut small_size = params.mempool_small_pool_size;
        if small_size >= region_size || !small_size.is_multiple_of(unit) {
            small_size = 0;
        }
        let main_size = region_size - small_size;
        let pools = |base| Pools {
            base,
            main_size,
            small_size,
            main: Bits::new(base, main_size, granule),
            small: Bits::new(base + main_size, small_size, granule),
            scratchpad: 0,
            complaints: 0,
        };
        let bases = config.layout.profile().region_bases;
        let mut model = Self {
            config,
            pools: bases.iter().map(|&base| pools(base)).collect(),
            reserves: [const { Vec::new() }; 4],
            host_bytes: device.host_bytes,
            host_used: 0,
            orders: Orders {
                host: device.bring_up_refusals,
                ..Orders::default()
            },
            chunks: BTreeMap::new(),
            held: BTreeMap::new(),
            dead: Vec::new(),
            pins: BTreeMap::new(),
            lists: HashMap::new(),
            slots: [Slot::default(); 16],
            open_files: 0,
            usage: HashMap::new(),
            handles: Handles::new(config.handle_limit),
            births: 0,
            torn_down: false,
        };
        for pool in [3, 2, 1, 0] {
            let size = reserve_page_size(pool);
            for _ in 0..params.mempool_host_memory_size / size {
                if !model.host_grants(size) {
                    break;
                }
                model.host_used += size;
                model.reserves[pool].push(Bits::new(0, size, granule));
            }
        }
        model
    }

    pub(super) fn host_grants(&mut self, size: u64) -> bool {
        !self.orders.host.strikes() && self.host_used + size <= self.host_bytes
    }

    pub(super) fn granule(&self) -> u64 {
        let order = self.config.params.mempool_min_alloc_size.ilog2();
        1 << order
    }

    /// A chunk is born.
    pub(super) fn stamp(&mut self, reference: ChunkRef, chunk: ModelChunk) {
        self.births += 1;
        self.mark(&chunk, true);
        let list = match chunk.request.lifespan {
            Lifespan::Local => ListId::Local,
            Lifespan::CurrentProcess => self.list_of(chunk.owner).unwrap(),
            Lifespan::AllProcess => ListId::AllProcess,
            Lifespan::Device => ListId::Device,
        };
        self.list(list).insert(0, reference);
        self.count(chunk.owner, &chunk, true);
        let before = self.chunks.insert(reference, chunk);
        assert!(before.is_none() && !self.held.contains_key(&reference));
        assert!(!self.dead.contains(&reference));
    }

    /// Takes the chunk's place, or gives it back.
    fn mark(&mut self, chunk: &ModelChunk, taken: bool) {
        let pools = &mut self.pools[chunk.request.channel.index()];
        let moved = |total: u64, size| if taken { total + size } else { total - size };
        match chunk.place {
            Place::Main => pools.main.set(chunk.at, chunk.size, taken),
            Place::Small => pools.small.set(chunk.at, chunk.size, taken),
            Place::Coherent => self.host_used = moved(self.host_used, chunk.size),
            Place::Reserve { pool, page } => {
                self.reserves[pool as usize][page as usize].set(chunk.at, chunk.size, taken);
            }
        }
        if chunk.request.category.0 == 19 {
            pools.scratchpad = moved(pools.scratchpad, chunk.size);
        }
    }

    /// The counters of a birth or of a death, for the process that allocates or frees.
    fn count(&mut self, caller: Pid, chunk: &ModelChunk, up: bool) {
        let AllocRequest {
            location,
            core,
            category,
            ..
        } = chunk.request;
        let core = Key::Core(core);
        let (total, key) = match location {
            Location::Host => (Counter::HostTotal, Key::Device),
            Location::Device => (Counter::DeviceTotal, core),
        };
        for counter in [(total, core), (category.counter(location), key)] {
            change(self.usage.entry(counter).or_default(), chunk.size, up);
        }
        if let Some(slot) = self.slot(caller) {
            let balance = &mut self.slots[slot].bytes[usize::from(location == Location::Device)];
            let held = balance.total_bytes.unsigned_abs();
            change(
                balance,
                if up { chunk.size } else { chunk.size.min(held) },
                up,
            );
        }
    }

    /// One reference off.
    pub(super) fn free(&mut self, caller: Pid, chunk: ChunkRef) -> Result<Freed, DeadChunk> {
        let entry = self.chunks.get_mut(&chunk).ok_or(DeadChunk { chunk })?;
        entry.refs -= 1;
        if entry.refs > 0 {
            return Ok(Freed::Kept { refs: entry.refs });
        }
        let gone = self.chunks.remove(&chunk).unwrap();
        if let Some(handle) = gone.handle.and_then(glia_abi::handle::McHandle::new) {
            // Whoever holds the number now.
            let _ = self.handles.free(handle);
        }
        self.count(caller, &gone, false);
        for list in self.lists.values_mut() {
            list.retain(|entry| *entry != chunk);
        }
        self.dead.push(chunk);
        if self.pins.contains_key(&chunk) {
            self.held.insert(chunk, gone);
            return Ok(Freed::Held);
        }
        let complaint = self.give_back(&gone);
        Ok(Freed::Gone { complaint })
    }

    fn give_back(&mut self, chunk: &ModelChunk) -> Option<ScratchpadOrder> {
        let pools = &mut self.pools[chunk.request.channel.index()];
        let expected_at = pools.base + pools.main_size - pools.scratchpad;
        let complains = chunk.request.category.0 == 19 && chunk.at != expected_at;
        pools.complaints += u64::from(complains);
        self.mark(chunk, false);
        complains.then(|| ScratchpadOrder {
            at: BusAddr::new(chunk.at),
            expected_at: BusAddr::new(expected_at),
        })
    }

    /// A pin goes; with the last one of a dead chunk, its place.
    pub(super) fn unpin(&mut self, chunk: ChunkRef) {
        let pins = self.pins.get_mut(&chunk).unwrap();
        *pins -= 1;
        if *pins > 0 {
            return;
        }
        self.pins.remove(&chunk);
        if let Some(held) = self.held.remove(&chunk) {
            self.give_back(&held);
            self.return_reserves_if_over();
        }
    }
}

fn change(balance: &mut Balance, size: u64, up: bool) {
    if size == 0 {
        return;
    }
    let size_signed = size as i64;
    balance.total_bytes += if up { size_signed } else { -size_signed };
    balance.present_bytes = size;
    balance.peak_bytes = balance.peak_bytes.max(balance.total_bytes);
}
