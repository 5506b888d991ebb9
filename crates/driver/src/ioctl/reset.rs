//! Resets of cores and of the whole device. A request returns when their rings are shut; its end
//! is another command's affair, of whichever process.

use glia_abi::errno::Errno;
use glia_abi::handle::Pid;
use glia_abi::ioctl::reset::{ALL_REQUESTS, DONE, FAILED, WHOLE_DEVICE};
use glia_abi::ioctl::{NcReset, NcResetReady};

use super::Call;
use crate::dma::reset::ResetOutcome;

/// `DEVICE_RESET`: asks for a reset of the whole device.
pub(crate) fn device_reset(call: &Call<'_>) -> Result<(), Errno> {
    call.device.dma.reset(call.caller.pid, WHOLE_DEVICE);
    Ok(())
}

/// `DEVICE_READY`: waits until no reset is left; 1 if the latest went well.
pub(crate) fn device_ready(call: &Call<'_>) -> Result<(), Errno> {
    let is_ready = wait(call, ALL_REQUESTS)?;
    call.write(&u8::from(is_ready))
}

/// `DEVICE_RESET_STATUS`: 1, always (driver 2.27).
pub(crate) fn device_reset_status(call: &Call<'_>) -> Result<(), Errno> {
    call.write(&1_u8)
}

/// `NC_RESET`: asks for a reset of the cores of a map. The request goes by the caller's pid.
pub(crate) fn nc_reset(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: NcReset = call.read()?;
    call.device.dma.reset(call.caller.pid, argument.nc_map);
    argument.request_id = call.caller.pid.get();
    call.write(&argument)
}

/// `NC_RESET_READY`: waits for the requests of an id.
pub(crate) fn nc_reset_ready(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: NcResetReady = call.read()?;
    argument.result = if wait(call, argument.request_id)? {
        DONE
    } else {
        FAILED
    };
    call.write(&argument)
}

/// Waits for what goes by an id; whether it went well. `EINTR` if the caller is to end.
fn wait(call: &Call<'_>, request_id: u32) -> Result<bool, Errno> {
    let of = (request_id != ALL_REQUESTS).then_some(Pid::new(request_id));
    match call.device.dma.await_reset(of, call.caller.killed) {
        ResetOutcome::Done => Ok(true),
        ResetOutcome::Failed => Ok(false),
        ResetOutcome::Killed => Err(Errno::EINTR),
    }
}
