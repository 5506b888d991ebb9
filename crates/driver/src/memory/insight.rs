//! A picture of the pools at one moment, for whoever explains a failure.
//!
//! Chunks and holes are copied under the set's lock, so that they belong together: the two cover
//! each region without overlap. What neither covers is the place of a dead chunk that somebody
//! still [pins](super::pin).

use std::sync::Arc;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::handle::Channel;
use glia_abi::insight::{
    AttachedProcess, ChannelSnapshot, ChunkFacts, PoolSnapshot, ReserveSnapshot,
};

use super::DeviceMemory;
use super::init::host_window;
use crate::arena::Arena;
use crate::chunk::{Chunk, ChunkRef};
use crate::genpool::GenPool;
use crate::memory::MemoryConfig;
use crate::process::ATTACH_SLOTS;
use crate::site::{SiteId, Sites};

impl<A: Arena> DeviceMemory<A> {
    /// What the pools hold at this moment. Costs time with the number of live chunks and holes,
    /// during which nothing is allocated.
    #[must_use]
    pub fn insight(&self) -> PoolSnapshot {
        let MemoryConfig { layout, params, .. } = &self.config;
        let mut names = SiteNames::new(&self.sites);
        let set = self.lock();
        let channels = (0..).zip(set.pools.channels());
        let channels = channels.map(|(number, pool)| {
            let parts = std::iter::once(pool.main()).chain(pool.small());
            let free = parts
                .flat_map(GenPool::free_extents)
                .filter_map(|(at, size_bytes)| Span::new(BusAddr::new(at), size_bytes));
            ChannelSnapshot {
                channel: Channel::new(number),
                region: pool.region(),
                main_end: pool.main_end(),
                chunks: self.chunks_in(Some(pool.region()), set.chunks, &mut names),
                free: free.collect(),
            }
        });
        let channels = channels.collect();
        let reserves = set.pools.reserves().iter().map(|pool| ReserveSnapshot {
            page_size_bytes: pool.page_size_bytes(),
            free_bytes: pool.free_bytes(),
            largest_bytes: pool.largest_free_bytes(),
        });
        let attached = set.processes.attached();
        let attached = attached.map(|(_, pid, slot)| AttachedProcess {
            pid,
            opens: slot.opens,
        });
        PoolSnapshot {
            channels,
            host_bytes: set.host_bytes,
            host_chunks: self.chunks_in(host_window(*layout), set.chunks, &mut names),
            reserves: reserves.collect(),
            granule_bytes: 1 << params.granule_order(),
            small_alloc_max_bytes: params.mempool_small_alloc_max,
            births: set.births,
            handle_limit: self.handles.limit(),
            handles_are_down: self.handles.is_down(),
            processes: attached.collect(),
            process_limit: ATTACH_SLOTS,
        }
    }

    /// The chunks that start in a window of the index, by address: at most all that live.
    fn chunks_in(
        &self,
        window: Option<Span<BusAddr>>,
        live: u64,
        names: &mut SiteNames<'_>,
    ) -> Vec<ChunkFacts> {
        let slots = window.into_iter().flat_map(|span| self.index.starts(span));
        // Memory that is not touched costs nothing; a list that grows is copied again and again.
        let mut chunks = Vec::with_capacity(usize::try_from(live).unwrap_or(0));
        let read = slots.filter_map(|slot| self.slab.read_slot(slot));
        chunks.extend(read.map(|(chunk, record)| facts(chunk, &record, names)));
        chunks
    }
}

fn facts(chunk: ChunkRef, record: &Chunk, names: &mut SiteNames<'_>) -> ChunkFacts {
    ChunkFacts {
        chunk: chunk.into(),
        span: record.span(),
        owner: record.owner(),
        handle: record.handle(),
        core: record.core(),
        category: record.category(),
        lifespan: record.lifespan(),
        site: names.name(record.site()),
        birth: record.birth(),
    }
}

/// Looks names up, and remembers the last one: chunks of one site tend to be neighbours.
struct SiteNames<'a> {
    sites: &'a Sites,
    last: Option<(SiteId, Arc<str>)>,
}

impl<'a> SiteNames<'a> {
    fn new(sites: &'a Sites) -> Self {
        Self { sites, last: None }
    }

    fn name(&mut self, site: SiteId) -> Arc<str> {
        match &self.last {
            Some((last, name)) if *last == site => Arc::clone(name),
            _ => {
                let name = self.sites.name(site).unwrap_or_else(|| "unknown".into());
                self.last = Some((site, Arc::clone(&name)));
                name
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use glia_abi::addr::HostPa;
    use glia_abi::arch::{Arch, MemoryLayout, Scale};
    use glia_abi::fault::NoFaults;
    use glia_abi::handle::{DeviceId, Pid};
    use glia_abi::port::HostMemory;

    use super::*;
    use crate::alloc::AllocRequest;

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
        assert_eq!(&*facts.site, "load weights");
        assert_eq!(&*snapshot.channels[0].chunks[0].site, "driver carveout");
    }

    #[test]
    fn whatever_else_can_run_out_is_told_too() {
        let memory = device();
        memory.open(Pid::new(7)).unwrap();
        memory.open(Pid::new(7)).unwrap();
        let snapshot = memory.insight();
        let attached = AttachedProcess {
            pid: Pid::new(7),
            opens: 2,
        };
        assert_eq!(snapshot.processes, [attached]);
        assert_eq!((snapshot.process_limit, snapshot.births), (16, 2));
        assert!(!snapshot.handles_are_down);
        let pages = snapshot.reserves.iter().map(|pool| pool.page_size_bytes);
        let pages: Vec<u64> = pages.collect();
        assert_eq!(pages, [256 << 10, 512 << 10, MIB, 2 * MIB]);
        // The machine of this test has no host memory.
        assert!(snapshot.reserves.iter().all(|pool| pool.free_bytes == 0));
        assert_eq!(
            (snapshot.granule_bytes, snapshot.host_chunks.len()),
            (4096, 0)
        );
    }
}
