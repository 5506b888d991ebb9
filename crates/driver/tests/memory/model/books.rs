//! The comparison of the books: the driver's, the model's, and the sums over the chunks.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::{Channel, CoreId, McHandle, SlotId};
use glia_abi::mem::Location;
use glia_abi::usage::Counter;
use glia_driver::arena::Arena;
use glia_driver::chunk::{Chunk, Place};
use glia_driver::lifespan::ListId;
use glia_driver::memory::{ChannelStats, ListLengths, MemoryStats, ProcessStats, ReserveStats};
use glia_driver::usage::Key;

use super::bits::Bits;
use super::pair::Pair;
use super::reference::{Model, ModelChunk, reserve_page_size};

impl<A: Arena> Pair<'_, A> {
    pub(super) fn check(&self) {
        assert_eq!(self.real.stats(), self.model.stats());
        assert_eq!(self.machine.used_bytes(), self.model.host_used);
        assert_eq!(
            self.machine.orders(),
            self.model.orders,
            "asked as often as it must"
        );
        self.check_records();
        self.check_channels();
        self.check_usage();
        self.check_handles();
    }

    fn check_records(&self) {
        for (reference, chunk) in &self.model.chunks {
            assert_same(&self.real.chunk(*reference).unwrap(), chunk);
            for at in [chunk.at, chunk.at + chunk.size - 1].map(BusAddr::new) {
                let found = self.real.search(at);
                assert_eq!(found.map(|(found, _)| found), Some(*reference));
            }
        }
        for pin in self.pins.iter() {
            let held = self.model.held.get(&pin.chunk());
            let chunk = held.or_else(|| self.model.chunks.get(&pin.chunk()));
            let (record, chunk) = (pin.record(), chunk.unwrap());
            assert_eq!(
                (record.at().get(), record.size_bytes()),
                (chunk.at, chunk.size)
            );
        }
        for reference in self.model.dead.iter().rev().take(8) {
            assert_eq!(self.real.chunk(*reference), None);
        }
    }

    fn check_channels(&self) {
        for (channel, pools) in (0..).map(Channel::new).zip(&self.model.pools) {
            let extents = pools.main.extents().iter().chain(pools.small.extents());
            let extents: Vec<Span<BusAddr>> = extents
                .map(|&(at, size)| Span::new(BusAddr::new(at), size).unwrap())
                .collect();
            assert_eq!(self.real.free_extents(channel), extents);
            let of_channel = self.model.chunks.iter().filter(|(_, chunk)| {
                chunk.request.location == Location::Device && chunk.request.channel == channel
            });
            let mut chunks: Vec<Chunk> = of_channel
                .map(|(reference, _)| self.real.chunk(*reference).unwrap())
                .collect();
            chunks.sort_by_key(Chunk::at);
            assert!(
                chunks
                    .windows(2)
                    .all(|pair| !pair[0].span().overlaps(pair[1].span()))
            );
            assert_eq!(self.real.channel_chunks(channel), chunks);
        }
    }

    fn check_usage(&self) {
        let usage = self.real.usage();
        let keys = || (0..8).map(CoreId::new).map(Key::Core).chain([Key::Device]);
        for counter in Counter::ALL {
            for key in keys() {
                let expected = self.model.usage.get(&(counter, key));
                let expected = expected.copied().unwrap_or_default();
                assert_eq!(usage.balance(counter, key), expected, "{counter:?} {key:?}");
            }
            let total: i64 = keys()
                .map(|key| usage.balance(counter, key).total_bytes)
                .sum();
            let counted = |chunk: &&ModelChunk| {
                let (location, category) = (chunk.request.location, chunk.request.category);
                let total = match location {
                    Location::Host => Counter::HostTotal,
                    Location::Device => Counter::DeviceTotal,
                };
                counter == total || counter == category.counter(location)
            };
            let live = self.model.chunks.values().filter(counted);
            let live: u64 = live.map(|chunk| chunk.size).sum();
            assert_eq!(u64::try_from(total), Ok(live));
        }
    }

    fn check_handles(&self) {
        let handles = &self.model.handles;
        assert_eq!(self.real.handle_stats(), handles.stats());
        for handle in handles
            .lately()
            .map(|number| McHandle::new(number).unwrap())
        {
            assert_eq!(self.real.object(handle), handles.find(handle));
            assert_eq!(self.real.resolve(handle), self.named(handle));
        }
        for pick in 0..8 {
            let handle = handles.pick(pick * 5);
            assert_eq!(self.real.object(handle), handles.find(handle));
        }
    }
}

fn assert_same(record: &Chunk, chunk: &ModelChunk) {
    let request = &chunk.request;
    assert_eq!(
        (record.at().get(), record.size_bytes()),
        (chunk.at, chunk.size)
    );
    assert_eq!(
        (record.place(), record.location()),
        (chunk.place, request.location)
    );
    assert_eq!(
        (record.channel(), record.core()),
        (request.channel, request.core)
    );
    assert_eq!(
        (record.lifespan(), record.category()),
        (request.lifespan, request.category)
    );
    assert_eq!((record.owner(), record.birth()), (chunk.owner, chunk.birth));
    assert_eq!(record.refs(), chunk.refs);
    assert_eq!(record.handle().map(McHandle::get), chunk.handle);
}

impl Model {
    /// The whole snapshot, out of bits, lists and sums over chunks.
    fn stats(&self) -> MemoryStats {
        let length = |list| self.lists.get(&list).map_or(0, Vec::len) as u64;
        let slots = (0..).map(SlotId::new).zip(&self.slots);
        let processes = slots.filter_map(|(slot, books)| {
            Some(ProcessStats {
                slot,
                pid: books.pid?,
                open_count: books.opens,
                host: books.bytes[0],
                device: books.bytes[1],
                chunks: length(ListId::Process(slot)),
            })
        });
        MemoryStats {
            host_bytes: self.live_bytes(|chunk| chunk.request.location == Location::Host),
            device_bytes: self.live_bytes(|chunk| chunk.request.location == Location::Device),
            chunks: self.chunks.len() as u64,
            held_chunks: self.held.len() as u64,
            held_bytes: self.held.values().map(|chunk| chunk.size).sum(),
            channels: (0..self.pools.len())
                .map(|n| self.channel_stats(n))
                .collect(),
            reserves: std::array::from_fn(|pool| self.reserve_stats(pool)),
            lists: ListLengths {
                local: length(ListId::Local),
                all: length(ListId::AllProcess),
                device: length(ListId::Device),
            },
            processes: processes.collect(),
        }
    }

    fn live_bytes(&self, counts: impl Fn(&ModelChunk) -> bool) -> u64 {
        let live = self.chunks.values().filter(|chunk| counts(chunk));
        live.map(|chunk| chunk.size).sum()
    }

    /// Of the living and of those that are held.
    fn placed_bytes(&self, counts: impl Fn(&ModelChunk) -> bool) -> u64 {
        let placed = self.chunks.values().chain(self.held.values());
        placed
            .filter(|chunk| counts(chunk))
            .map(|chunk| chunk.size)
            .sum()
    }

    fn channel_stats(&self, number: usize) -> ChannelStats {
        let pools = &self.pools[number];
        let here = |chunk: &ModelChunk| {
            matches!(chunk.place, Place::Main | Place::Small)
                && chunk.request.channel.index() == number
        };
        let scratchpad = |chunk: &ModelChunk| here(chunk) && chunk.request.category.0 == 19;
        assert_eq!(pools.scratchpad, self.placed_bytes(scratchpad));
        ChannelStats {
            allocated_bytes: self.placed_bytes(here),
            main_free_bytes: pools.main.free_bytes(),
            small_free_bytes: pools.small.free_bytes(),
            main_largest_bytes: pools.main.largest(),
            small_largest_bytes: pools.small.largest(),
            scratchpad_bytes: pools.scratchpad,
            scratchpad_complaints: pools.complaints,
        }
    }

    fn reserve_stats(&self, number: usize) -> ReserveStats {
        let pages = &self.reserves[number];
        let size = reserve_page_size(number);
        let here = |chunk: &ModelChunk| match chunk.place {
            Place::Reserve { pool, .. } => pool as usize == number,
            Place::Main | Place::Small | Place::Coherent => false,
        };
        ReserveStats {
            page_size_bytes: size,
            pages_requested: (self.config.params.mempool_host_memory_size / size) as u32,
            pages: pages.len() as u32,
            allocated_bytes: self.placed_bytes(here),
            free_bytes: pages.iter().map(Bits::free_bytes).sum(),
        }
    }
}
