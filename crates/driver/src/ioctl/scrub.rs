//! Overwriting all HBM of a channel that nobody has.

use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId};
use glia_abi::ioctl::{HbmScrubStart, HbmScrubWait};

use super::Call;

/// `HBM_SCRUB_START`: returns when the engines have their orders.
pub(crate) fn hbm_scrub_start(call: &Call<'_>) -> Result<(), Errno> {
    let argument: HbmScrubStart = call.read()?;
    let core = CoreId::new(argument.nc_id);
    let channel = Channel::new(argument.hbm_index);
    let dma = &call.device.dma;
    dma.scrub_start(call.caller.pid, core, channel, argument.init_val)?;
    Ok(())
}

/// `HBM_SCRUB_WAIT`: returns when all is overwritten, and looked at.
pub(crate) fn hbm_scrub_wait(call: &Call<'_>) -> Result<(), Errno> {
    let argument: HbmScrubWait = call.read()?;
    let core = CoreId::new(argument.nc_id);
    let channel = Channel::new(argument.hbm_index);
    call.device.dma.scrub_wait(core, channel)?;
    Ok(())
}
