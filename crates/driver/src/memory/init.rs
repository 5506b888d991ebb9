//! Bring-up: what a device's memory is built from, and in which order.
//!
//! Handle table, host reserve pools, the channels' pools, and the carveout at the start of each
//! region (driver 2.27). Whatever fails on the way, what was taken before it is given back.

use std::sync::{Arc, Mutex};

use glia_abi::addr::{BusAddr, HostPa, Span};
use glia_abi::arch::MemoryLayout;
use glia_abi::fault::{Faults, Scope};
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::params::{ModuleParams, ParamError};
use glia_abi::port::HostMemory;
use glia_abi::usage::Category;

use super::{DeviceMemory, Set};
use crate::alloc::{AllocError, AllocRequest};
use crate::arena::Arena;
use crate::chunk::ChunkSlab;
use crate::handles::{HANDLE_LIMIT, HandleTable};
use crate::index::AddressIndex;
use crate::lifespan::ListId;
use crate::pool::DevicePool;
use crate::poolset::{NoPool, PoolName, PoolSet};
use crate::process::{AttachSlots, Attached};
use crate::reserve::DmaZone;
use crate::site::Sites;
use crate::sync::AtomicU32;
use crate::usage::Usage;

/// Size of the carveout at the start of each region (driver 2.27).
pub const CARVEOUT_SIZE_BYTES: u64 = 16 << 20;

/// What a device's memory is built from.
#[derive(Debug, Clone, Copy)]
pub struct MemoryConfig {
    /// Which device of the machine.
    pub device: DeviceId,
    /// Its address map.
    pub layout: MemoryLayout,
    /// The driver's module parameters.
    pub params: ModuleParams,
    /// Cells of the handle table: [`HANDLE_LIMIT`], or fewer to test a full one.
    pub handle_limit: u32,
}

impl MemoryConfig {
    /// Device 0 with default parameters and a full handle table.
    #[must_use]
    pub fn new(layout: MemoryLayout) -> Self {
        Self {
            device: DeviceId::new(0),
            layout,
            params: ModuleParams::default(),
            handle_limit: HANDLE_LIMIT,
        }
    }
}

/// Why a device's memory could not be built. Everything taken meanwhile has been given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// `EINVAL`: a module parameter breaks its rule (divergence `unit-size`).
    #[error(transparent)]
    Params(#[from] ParamError),
    /// `ENOMEM`: no kernel memory for the handle table.
    #[error("no kernel memory for the handle table")]
    HandleTable,
    /// `ENOMEM`: no kernel memory for a pool.
    #[error("no kernel memory for {pool}")]
    Pool {
        /// Which one.
        pool: PoolName,
    },
    /// `ENOMEM`: a region has no room for its carveout.
    #[error("no carveout on {channel}")]
    Carveout {
        /// The channel.
        channel: Channel,
        /// Why not.
        #[source]
        cause: AllocError,
    },
    /// `EINVAL`: the main pool is smaller than the carveout, which then landed elsewhere.
    #[error(
        "the carveout of {channel} lies at {at} and not at the region's start {start}: the main pool is too small"
    )]
    CarveoutMoved {
        /// The channel.
        channel: Channel,
        /// Where it was placed.
        at: BusAddr,
        /// Where it has to be.
        start: BusAddr,
    },
}

impl<A: Arena> DeviceMemory<A> {
    /// Brings the memory of a device up: handle table, pools, carveouts.
    ///
    /// # Errors
    /// [`InitError`]; nothing is left behind then.
    pub fn new(
        config: MemoryConfig,
        host: Arc<dyn HostMemory>,
        faults: Arc<dyn Faults>,
    ) -> Result<Self, InitError> {
        config.params.validate()?;
        let MemoryConfig {
            device,
            layout,
            params,
            handle_limit,
        } = config;
        let _for_device = Scope {
            device: Some(device),
            ..Scope::current()
        }
        .enter();
        let (handles, free_handles) =
            HandleTable::new(handle_limit, &*faults).map_err(|_| InitError::HandleTable)?;
        let pools = PoolSet::new(device, layout, &params, host, &*faults)
            .map_err(|NoPool(pool)| InitError::Pool { pool })?;
        let main_ends = pools.channels().iter().map(DevicePool::main_end).collect();
        let (slab, free_slots) = ChunkSlab::new(ListId::COUNT);
        let set = Set {
            pools,
            free_slots,
            free_handles,
            processes: AttachSlots::default(),
            usage: Usage::default(),
            open_files: 0,
            host_bytes: 0,
            device_bytes: 0,
            chunks: 0,
            births: 0,
            held: Vec::new(),
            torn_down: false,
        };
        let index = AddressIndex::new(layout.regions().chain(host_window(layout)));
        let sites = Sites::default();
        let mut memory = Self {
            config,
            faults,
            slab,
            index,
            handles,
            sites,
            carveouts: Vec::new(),
            main_ends,
            attached: Attached::default(),
            lead: AtomicU32::new(0),
            set: Mutex::new(set),
        };
        memory.take_carveouts()?;
        Ok(memory)
    }

    /// The first 16 MiB of each region belong to the driver (driver 2.27: scrubbing starts behind
    /// them).
    fn take_carveouts(&mut self) -> Result<(), InitError> {
        let nobody = Pid::default();
        for (number, region) in (0..).zip(self.config.layout.regions()) {
            let channel = Channel::new(number);
            let request = AllocRequest {
                core: CoreId::new(number),
                category: Category::NCDEV_DEVICE,
                site: self.sites.intern("driver carveout"),
                ..AllocRequest::device(CARVEOUT_SIZE_BYTES, channel)
            };
            let carveout = self
                .alloc(nobody, &request)
                .map_err(|cause| InitError::Carveout { channel, cause })?;
            if let Some(record) = self
                .chunk(carveout)
                .filter(|record| record.at() != region.start())
            {
                return Err(InitError::CarveoutMoved {
                    channel,
                    at: record.at(),
                    start: region.start(),
                });
            }
            self.carveouts.push(carveout);
        }
        Ok(())
    }
}

/// The bus addresses of host memory that the driver's own chunks can have.
pub(super) fn host_window(layout: MemoryLayout) -> Option<Span<BusAddr>> {
    Span::new(layout.host_to_bus(HostPa::new(0)), DmaZone::END)
}
