//! A picture of the pools at one moment, for whoever explains a failure.
//!
//! Chunks and holes are copied under the set's lock, so that they belong together: the two cover
//! each region without overlap. What neither covers is the place of a dead chunk that somebody
//! still [pins](super::pin). Names are looked up after the lock is gone; they never change.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::Channel;
use glia_abi::insight::{ChannelSnapshot, ChunkFacts, PoolSnapshot};

use super::DeviceMemory;
use crate::arena::Arena;
use crate::chunk::{Chunk, ChunkRef};
use crate::genpool::GenPool;
use crate::pool::DevicePool;

/// A channel as it is copied under the lock.
struct Copied {
    region: Span<BusAddr>,
    main_end: BusAddr,
    chunks: Vec<(ChunkRef, Chunk)>,
    free: Vec<Span<BusAddr>>,
}

impl<A: Arena> DeviceMemory<A> {
    /// What the pools hold at this moment. Costs time with the number of live chunks and holes,
    /// during which nothing is allocated.
    #[must_use]
    pub fn insight(&self) -> PoolSnapshot {
        let (channels, host_bytes) = {
            let set = self.lock();
            let pools = set.pools.channels().iter();
            let channels: Vec<Copied> = pools.map(|pool| self.copy_channel(pool)).collect();
            (channels, set.host_bytes)
        };
        let channels = (0..).zip(channels).map(|(number, copied)| ChannelSnapshot {
            channel: Channel::new(number),
            region: copied.region,
            main_end: copied.main_end,
            chunks: copied
                .chunks
                .iter()
                .map(|(chunk, record)| self.facts(*chunk, record))
                .collect(),
            free: copied.free,
        });
        PoolSnapshot {
            channels: channels.collect(),
            host_bytes,
        }
    }

    /// Chunks and holes of a channel, both by address.
    fn copy_channel(&self, pool: &DevicePool<A>) -> Copied {
        let parts = std::iter::once(pool.main()).chain(pool.small());
        let free = parts
            .flat_map(GenPool::free_extents)
            .filter_map(|(at, size_bytes)| Span::new(BusAddr::new(at), size_bytes));
        Copied {
            region: pool.region(),
            main_end: pool.main_end(),
            chunks: self
                .index
                .starts(pool.region())
                .filter_map(|slot| self.slab.read_slot(slot))
                .collect(),
            free: free.collect(),
        }
    }

    fn facts(&self, chunk: ChunkRef, record: &Chunk) -> ChunkFacts {
        let site = self.sites.name(record.site());
        ChunkFacts {
            chunk: chunk.into(),
            span: record.span(),
            owner: record.owner(),
            handle: record.handle(),
            core: record.core(),
            category: record.category(),
            lifespan: record.lifespan(),
            site: site.map_or_else(|| "unknown".to_owned(), |name| name.to_string()),
            birth: record.birth(),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;

    use glia_abi::addr::HostPa;
    use glia_abi::arch::{Arch, MemoryLayout, Scale};
    use glia_abi::fault::NoFaults;
    use glia_abi::handle::{DeviceId, Pid};
    use glia_abi::port::HostMemory;

    use super::*;
    use crate::alloc::AllocRequest;
    use crate::memory::MemoryConfig;

    struct NoHost;

    impl HostMemory for NoHost {
        fn alloc(&self, _device: DeviceId, _size_bytes: u64) -> Option<HostPa> {
            None
        }
        fn free(&self, _device: DeviceId, _at: HostPa, _size_bytes: u64) {}
    }

    const MIB: u64 = 1 << 20;

    fn device() -> DeviceMemory {
        let scale = Scale::RegionSize {
            size_bytes: 32 * MIB,
        };
        let layout = MemoryLayout::new(Arch::V2, scale).unwrap();
        let mut config = MemoryConfig::new(layout);
        config.params.mempool_small_pool_size = 4 * MIB;
        DeviceMemory::new(config, Arc::new(NoHost), Arc::new(NoFaults)).unwrap()
    }

    #[test]
    fn chunks_and_holes_cover_every_region_without_overlap() {
        let memory = device();
        let mut taken = Vec::new();
        for size_bytes in [4096, 3 * MIB, 8192, 5000] {
            let request = AllocRequest::device(size_bytes, Channel::new(1));
            taken.push(memory.alloc(Pid::new(7), &request).unwrap());
        }
        memory.free(Pid::new(7), taken[1]).unwrap();
        for channel in memory.insight().channels {
            let chunks = channel.chunks.iter().map(|facts| facts.span);
            let mut spans: Vec<_> = chunks.chain(channel.free).collect();
            spans.sort_by_key(|span| span.start());
            assert_eq!(spans[0].start(), channel.region.start());
            assert_eq!(spans[spans.len() - 1].end(), channel.region.end());
            assert!(
                spans
                    .windows(2)
                    .all(|pair| pair[0].end() == pair[1].start())
            );
        }
    }

    #[test]
    fn a_chunk_says_who_took_it_and_where() {
        let memory = device();
        let request = AllocRequest {
            site: memory.sites().intern("load weights"),
            ..AllocRequest::device(4096, Channel::new(1))
        };
        let chunk = memory.alloc(Pid::new(7), &request).unwrap();
        let handle = memory.publish(chunk).unwrap();
        let snapshot = memory.insight();
        let facts = snapshot.channels[1].chunks.last().unwrap();
        assert_eq!((facts.chunk, facts.owner), (chunk.into(), Pid::new(7)));
        assert_eq!((facts.handle, facts.birth), (Some(handle), 2));
        assert_eq!(facts.site, "load weights");
        assert_eq!(snapshot.channels[0].chunks[0].site, "driver carveout");
    }
}
