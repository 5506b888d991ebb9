//! Where the reference places a request, and with what it refuses one.

use glia_abi::addr::BusAddr;
use glia_abi::handle::Pid;
use glia_abi::mem::{Lifespan, Location};
use glia_driver::alloc::{AllocError, AllocRequest, Room};
use glia_driver::chunk::Place;

use super::bits::Bits;
use super::reference::Model;
use crate::support::PAGE;

impl Model {
    /// Where the reference would place the request, its size, and its address unless that is the
    /// machine's to choose.
    pub(super) fn place(
        &mut self,
        caller: Pid,
        request: &AllocRequest,
    ) -> Result<(Option<u64>, u64, Place), AllocError> {
        let size_bytes = request.size_bytes;
        if size_bytes > i64::MAX.unsigned_abs() {
            return Err(AllocError::SizeTooLarge { size_bytes });
        }
        let size = size_bytes.div_ceil(PAGE) * PAGE;
        let channels = self.pools.len() as u32;
        if request.channel.get() >= channels {
            let channel = request.channel;
            return Err(AllocError::NoChannel { channel, channels });
        }
        if self.orders.alloc.strikes() {
            return Err(AllocError::Injected { size_bytes });
        }
        if request.core.get() >= 8 {
            let core = request.core;
            return Err(AllocError::NoCore { core });
        }
        if self.orders.record.strikes() {
            return Err(AllocError::NoRecord { size_bytes });
        }
        if self.torn_down {
            return Err(AllocError::Gone);
        }
        let (at, place) = match request.location {
            Location::Host => self.place_on_host(request, size)?,
            Location::Device => {
                let (at, place) = self.place_on_device(request, size)?;
                (Some(at), place)
            }
        };
        if request.lifespan == Lifespan::CurrentProcess && self.slot(caller).is_none() {
            return Err(AllocError::NotAttached { pid: caller });
        }
        Ok((at, size, place))
    }

    fn place_on_device(
        &self,
        request: &AllocRequest,
        size: u64,
    ) -> Result<(u64, Place), AllocError> {
        let channel = request.channel;
        let pools = &self.pools[channel.index()];
        if request.category.0 == 19 {
            return self.place_scratchpad(request, size);
        }
        let align = Some(request.align_bytes).filter(|align| *align > PAGE);
        let align = align.unwrap_or(0);
        if align > 0x7fff_ffff {
            return Err(AllocError::AlignTooLarge { align_bytes: align });
        }
        if size == 0 {
            return Err(AllocError::ZeroSize);
        }
        let mut order = [(&pools.main, Place::Main), (&pools.small, Place::Small)];
        if size <= self.config.params.mempool_small_alloc_max {
            order.reverse();
        }
        let found = order
            .iter()
            .find_map(|(pool, place)| Some((pool.find(size, align)?, *place)));
        let room = |pool: &Bits| Room {
            free_bytes: pool.free_bytes(),
            largest_bytes: pool.largest(),
        };
        let (at, place) = found.ok_or_else(|| AllocError::NoDeviceMemory {
            size_bytes: size,
            align_bytes: align,
            channel,
            main: room(&pools.main),
            small: (pools.small_size > 0).then(|| room(&pools.small)),
        })?;
        if align > 0 && at & (align - 1) != 0 {
            return Err(AllocError::PlacedMisaligned {
                size_bytes: size,
                align_bytes: align,
                at: BusAddr::new(at),
            });
        }
        Ok((at, place))
    }

    fn place_scratchpad(
        &self,
        request: &AllocRequest,
        size: u64,
    ) -> Result<(u64, Place), AllocError> {
        let channel = request.channel;
        let pools = &self.pools[channel.index()];
        if size == 0 {
            return Err(AllocError::ZeroSize);
        }
        let offset = pools
            .main_size
            .wrapping_sub(pools.scratchpad)
            .wrapping_sub(size);
        let blocked = AllocError::ScratchpadBlocked {
            size_bytes: size,
            channel,
            below: BusAddr::new(pools.base + pools.main_size - pools.scratchpad),
        };
        if size > pools.main.free_bytes() {
            return Err(blocked);
        }
        if !offset.is_multiple_of(self.granule()) {
            return Err(AllocError::ScratchpadMisaligned {
                size_bytes: size,
                offset_bytes: offset,
                granule_bytes: self.granule(),
            });
        }
        if !pools.main.has_room_at(size, offset) {
            return Err(blocked);
        }
        Ok((pools.base + offset, Place::Main))
    }

    fn place_on_host(
        &mut self,
        request: &AllocRequest,
        size: u64,
    ) -> Result<(Option<u64>, Place), AllocError> {
        let align_bytes = request.align_bytes;
        if align_bytes != 0 {
            return Err(AllocError::HostAligned { align_bytes });
        }
        if size == 0 {
            return Err(AllocError::ZeroSize);
        }
        if request.category.0 == 19 {
            return Err(AllocError::HostScratchpad);
        }
        if self.host_grants(size) {
            return Ok((None, Place::Coherent));
        }
        for (pool, pages) in (0_u32..).zip(&self.reserves) {
            let pages: Vec<(u32, &Bits)> = (0..).zip(pages).collect();
            for (page, bits) in pages.into_iter().rev() {
                if let Some(at) = bits.find(size, 0) {
                    return Ok((Some(at), Place::Reserve { pool, page }));
                }
            }
        }
        let pages = self.reserves.iter().flatten();
        Err(AllocError::NoHostMemory {
            size_bytes: size,
            reserve_free_bytes: pages.map(Bits::free_bytes).sum(),
        })
    }
}
