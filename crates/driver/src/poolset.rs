//! The pool set: every pool of a device, and the choice among them.
//!
//! One set per device: a device pool per channel, four host reserve pools, and the machine's DMA
//! allocator before those. A set answers *where*; it keeps no chunk records and no lists.
//! Everything here is called under the set's lock.

use std::fmt;
use std::sync::Arc;

use glia_abi::addr::{BusAddr, HostPa};
use glia_abi::arch::MemoryLayout;
use glia_abi::fault::{FaultPoint, Faults};
use glia_abi::handle::{Channel, DeviceId};
use glia_abi::mem::Location;
use glia_abi::params::ModuleParams;
use glia_abi::port::HostMemory;
use glia_abi::usage::Category;

use crate::alloc::{AllocError, AllocRequest};
use crate::arena::Arena;
use crate::chunk::{Chunk, Place};
use crate::pool::{DevicePool, ScratchpadOrder};
use crate::reserve::{self, DmaZone, RESERVE_POOLS, ReservePool};

/// One of the pools of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolName {
    /// The host reserve pool of this page size, in bytes.
    Reserve {
        /// Its page size.
        page_size_bytes: u64,
    },
    /// Main and small pool of a channel.
    Device {
        /// The channel.
        channel: Channel,
    },
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve { page_size_bytes } => {
                write!(
                    f,
                    "the host reserve pool with pages of {page_size_bytes} bytes"
                )
            }
            Self::Device { channel } => write!(f, "the device pools of {channel}"),
        }
    }
}

/// A pool could not be set up for want of kernel memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoPool(pub(crate) PoolName);

/// All pools of a device.
pub(crate) struct PoolSet<A> {
    layout: MemoryLayout,
    zone: DmaZone,
    channels: Vec<DevicePool<A>>,
    reserves: [ReservePool<A>; RESERVE_POOLS],
}

impl<A: Arena> PoolSet<A> {
    /// Free pools, reserves filled. In the reference's order: reserves from the largest page size
    /// down, then the channels.
    pub(crate) fn new(
        device: DeviceId,
        layout: MemoryLayout,
        params: &ModuleParams,
        host: Arc<dyn HostMemory>,
        faults: &dyn Faults,
    ) -> Result<Self, NoPool> {
        let ready = |pool| match faults.orders(FaultPoint::Pool) {
            true => Err(NoPool(pool)),
            false => Ok(()),
        };
        let zone = DmaZone { host, device };
        let fill = |index| {
            let page_size_bytes = reserve::page_size_bytes(index);
            ready(PoolName::Reserve { page_size_bytes })?;
            Ok(ReservePool::fill(index, params, zone.clone()))
        };
        let (r3, r2, r1, r0) = (fill(3)?, fill(2)?, fill(1)?, fill(0)?);
        let mut channels = Vec::new();
        for (channel, region) in (0..).map(Channel::new).zip(layout.regions()) {
            ready(PoolName::Device { channel })?;
            let has_small_pool = layout.profile().small_pool;
            channels.push(DevicePool::new(channel, region, params, has_small_pool));
        }
        Ok(Self {
            layout,
            zone,
            channels,
            reserves: [r0, r1, r2, r3],
        })
    }

    /// Finds and takes a place. The request's channel and core have been checked.
    pub(crate) fn place(
        &mut self,
        request: &AllocRequest,
        size_bytes: u64,
    ) -> Result<(BusAddr, Place), AllocError> {
        match request.location {
            Location::Device => match self.channels.get_mut(request.channel.index()) {
                Some(pool) => pool.place(request, size_bytes),
                None => Err(AllocError::NoChannel {
                    channel: request.channel,
                    channels: self.layout.channels(),
                }),
            },
            Location::Host => self.place_on_host(request, size_bytes),
        }
    }

    /// Gives a chunk's place back; the complaint, if it was a scratchpad page out of turn.
    pub(crate) fn give_back(&mut self, chunk: &Chunk) -> Option<ScratchpadOrder> {
        match chunk.place() {
            Place::Main | Place::Small => self
                .channels
                .get_mut(chunk.channel().index())?
                .give_back(chunk),
            Place::Coherent => {
                self.zone.free(self.host_of(chunk.at()), chunk.size_bytes());
                None
            }
            Place::Reserve { pool, page } => {
                let at = self.host_of(chunk.at());
                self.reserves
                    .get_mut(pool as usize)?
                    .give_back(page, at, chunk.size_bytes());
                None
            }
        }
    }

    /// Gives the reserve pages back to the machine, at the end of the device.
    pub(crate) fn return_reserves(&mut self) {
        self.reserves.iter_mut().for_each(ReservePool::return_pages);
    }

    pub(crate) fn channels(&self) -> &[DevicePool<A>] {
        &self.channels
    }

    pub(crate) fn reserves(&self) -> &[ReservePool<A>; RESERVE_POOLS] {
        &self.reserves
    }

    fn place_on_host(
        &mut self,
        request: &AllocRequest,
        size_bytes: u64,
    ) -> Result<(BusAddr, Place), AllocError> {
        if request.align_bytes != 0 {
            return Err(AllocError::HostAligned {
                align_bytes: request.align_bytes,
            });
        }
        if size_bytes == 0 {
            return Err(AllocError::ZeroSize);
        }
        if request.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE {
            return Err(AllocError::HostScratchpad);
        }
        if let Some(at) = self.zone.alloc(size_bytes) {
            return Ok((self.layout.host_to_bus(at), Place::Coherent));
        }
        let found = (0..).zip(&mut self.reserves).find_map(|(pool, reserve)| {
            let (at, page) = reserve.place(size_bytes)?;
            Some((at, Place::Reserve { pool, page }))
        });
        match found {
            Some((at, place)) => Ok((self.layout.host_to_bus(at), place)),
            None => {
                let reserve_free_bytes = self.reserves.iter().map(ReservePool::free_bytes).sum();
                Err(AllocError::NoHostMemory {
                    size_bytes,
                    reserve_free_bytes,
                })
            }
        }
    }

    /// The host address behind a host chunk's bus address (driver 2.27 masks the base off).
    fn host_of(&self, at: BusAddr) -> HostPa {
        HostPa::new(at.get() & !self.layout.profile().host_base)
    }
}
