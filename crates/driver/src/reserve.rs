//! Host reserve pools: pages put aside at bring-up for the day when the machine has no host memory
//! left.
//!
//! Four pools with pages of 256 KiB, 512 KiB, 1 MiB and 2 MiB. Each is filled to
//! `mempool_host_memory_size` at bring-up; the first page that cannot be had ends the filling,
//! which is no error. A request that the machine refuses goes to the first pool, in ascending
//! order, whose pages are large enough and that has room; inside a pool the page obtained last is
//! tried first (driver 2.27). Requests may share a page.

use std::sync::Arc;

use glia_abi::addr::{Alignment, HostPa, Span};
use glia_abi::handle::DeviceId;
use glia_abi::params::ModuleParams;
use glia_abi::port::HostMemory;

use crate::arena::Arena;
use crate::chunk::RESERVE_PAGES_MAX;
use crate::genpool::GenPool;

/// Number of reserve pools.
pub const RESERVE_POOLS: usize = 4;

/// Page size of pool `index`: 256 KiB, doubled by each further one.
pub(crate) fn page_size_bytes(index: usize) -> u64 {
    (256 << 10) << index
}

/// Host memory as this device takes it, with the machine's promises checked.
#[derive(Clone)]
pub(crate) struct DmaZone {
    pub(crate) host: Arc<dyn HostMemory>,
    pub(crate) device: DeviceId,
}

impl DmaZone {
    /// The zone ends at 4 GiB (the reference's DMA32 zone).
    pub(crate) const END: u64 = 1 << 32;

    /// A range from the machine. One that breaks the machine's promise, by its alignment or beyond
    /// 4 GiB, goes back at once: no address index covers it.
    pub(crate) fn alloc(&self, size_bytes: u64) -> Option<HostPa> {
        let at = self.host.alloc(self.device, size_bytes)?;
        let end = Span::new(at, size_bytes).map(|span| span.end().get());
        if at.is_aligned(Alignment::PAGE) && end.is_some_and(|end| end <= Self::END) {
            return Some(at);
        }
        self.free(at, size_bytes);
        None
    }

    pub(crate) fn free(&self, at: HostPa, size_bytes: u64) {
        self.host.free(self.device, at, size_bytes);
    }
}

/// One reserve pool. Dropping it gives its pages back to the machine.
pub(crate) struct ReservePool<A> {
    zone: DmaZone,
    page_size_bytes: u64,
    pages_requested: u32,
    /// In the order obtained; searched from the end.
    pages: Vec<GenPool<A>>,
    allocated_bytes: u64,
}

impl<A: Arena> ReservePool<A> {
    /// Pool `index`, filled as far as the machine gives pages.
    pub(crate) fn fill(index: usize, params: &ModuleParams, zone: DmaZone) -> Self {
        let page_size_bytes = page_size_bytes(index);
        let wanted = params.mempool_host_memory_size / page_size_bytes;
        // LIMIT: a valid parameter gives at most 8,192 pages; a record has room for more.
        let pages_requested = u32::try_from(wanted)
            .unwrap_or(u32::MAX)
            .min(RESERVE_PAGES_MAX);
        let order = params.granule_order();
        let pages = (0..pages_requested)
            .map_while(|_| zone.alloc(page_size_bytes))
            .map(|at| GenPool::new(at.get(), page_size_bytes, order))
            .collect();
        Self {
            zone,
            page_size_bytes,
            pages_requested,
            pages,
            allocated_bytes: 0,
        }
    }

    /// A place of `size_bytes` in one of the pages: its address and the page's number.
    pub(crate) fn place(&mut self, size_bytes: u64) -> Option<(HostPa, u32)> {
        if size_bytes > self.page_size_bytes {
            return None;
        }
        let mut newest_first = self.pages.iter_mut().enumerate().rev();
        let (at, page) =
            newest_first.find_map(|(number, page)| Some((page.alloc(size_bytes)?, number)))?;
        self.allocated_bytes += size_bytes;
        // LIMIT: a pool has fewer pages than `RESERVE_PAGES_MAX`.
        Some((HostPa::new(at), u32::try_from(page).unwrap_or(u32::MAX)))
    }

    pub(crate) fn give_back(&mut self, page: u32, at: HostPa, size_bytes: u64) {
        let freed = self
            .pages
            .get_mut(page as usize)
            .is_some_and(|page| page.free(at.get(), size_bytes));
        debug_assert!(
            freed,
            "reserve page {page} had given these {size_bytes} bytes out"
        );
        self.allocated_bytes -= size_bytes;
    }

    /// Number of pages wanted at bring-up.
    pub(crate) fn pages_requested(&self) -> u32 {
        self.pages_requested
    }

    /// First address of each page, in the order obtained.
    pub(crate) fn pages(&self) -> impl ExactSizeIterator<Item = HostPa> {
        self.pages.iter().map(|page| HostPa::new(page.start()))
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.pages.iter().map(GenPool::available_bytes).sum()
    }

    /// Bytes of the largest hole in any page.
    pub(crate) fn largest_free_bytes(&self) -> u64 {
        let holes = self.pages.iter().map(GenPool::largest_free_bytes);
        holes.max().unwrap_or(0)
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    pub(crate) fn page_size_bytes(&self) -> u64 {
        self.page_size_bytes
    }
}

impl<A> ReservePool<A> {
    /// Gives all pages back to the machine.
    pub(crate) fn return_pages(&mut self) {
        for page in self.pages.drain(..) {
            self.zone
                .free(HostPa::new(page.start()), self.page_size_bytes);
        }
    }
}

impl<A> Drop for ReservePool<A> {
    /// A device that fails to come up must not keep host memory.
    fn drop(&mut self) {
        self.return_pages();
    }
}
