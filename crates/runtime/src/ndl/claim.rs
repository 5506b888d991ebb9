//! Core claims: which process uses which cores, agreed before anybody touches one.
//!
//! The driver keeps the table and asks it for nothing: processes that claim their cores keep out of
//! each other's way by themselves. A claim belongs to the process, not to the [`Device`], and is
//! given back by [`release_cores`](Device::release_cores), or by the drop of *any* device that the
//! process has open, whose write-only descriptor is closed then.

use std::ops::{Range, RangeInclusive};

use glia_abi::errno::Errno;
use glia_abi::handle::CoreId;
use glia_abi::ioctl;

use super::{Device, NdlError};

impl Device {
    /// Claims the first `count` free cores in a row `among` these (`CRWL_NC_RANGE_MARK`): those that
    /// it got. Cores count from the device's first one. A count of 0 claims none.
    ///
    /// # Errors
    /// [`NdlError::CoresTaken`], which names the process that is in the way; [`NdlError::Call`] with
    /// `EINVAL` for an empty range or one that leaves the table of cores.
    pub fn claim_cores(
        &self,
        count: u32,
        among: RangeInclusive<CoreId>,
    ) -> Result<Range<CoreId>, NdlError> {
        let (first, last) = among.into_inner();
        let mut arg = ioctl::NcMapExt {
            nc_count: count,
            start_nc: first.get(),
            end_nc: last.get(),
            ..Default::default()
        };
        let word = ioctl::CRWL_NC_RANGE_MARK_EXT0;
        let answer = self.call(&self.control, word, &mut arg, &mut []);
        match answer {
            Ok(()) => {
                let start = first_core(&arg.bitmap).unwrap_or(first.get());
                let end = start.saturating_add(count);
                Ok(CoreId::new(start)..CoreId::new(end))
            }
            Err(NdlError::Call {
                errno: Errno::EBUSY,
                ..
            }) => {
                let cores = (first.get()..=last.get()).map(CoreId::new);
                let held = |core| Some((core, self.transport.core_holder(self.id, core)?));
                Err(NdlError::CoresTaken {
                    device: self.id,
                    count,
                    first,
                    last,
                    longest: arg.max_nc_available,
                    holder: cores.take(arg.bitmap.len() * 64).find_map(held),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives cores back, as far as this process has claimed them (`CRWL_NC_RANGE_UNMARK`).
    ///
    /// # Errors
    /// [`NdlError::Call`] if the driver refuses.
    pub fn release_cores(&self, cores: Range<CoreId>) -> Result<(), NdlError> {
        let mut arg = ioctl::NcMapExt::default();
        for (word, first) in arg.bitmap.iter_mut().zip((0..).step_by(64)) {
            for bit in 0..64 {
                let core = CoreId::new(first + bit);
                *word |= u64::from(cores.contains(&core)) << bit;
            }
        }
        let word = ioctl::CRWL_NC_RANGE_UNMARK_EXT0;
        self.call(&self.control, word, &mut arg, &mut [])
    }
}

/// The first core of a map.
fn first_core(map: &[u64]) -> Option<u32> {
    let mut words = (0..).step_by(64).zip(map);
    words.find_map(|(first, word)| (*word != 0).then(|| first + word.trailing_zeros()))
}
