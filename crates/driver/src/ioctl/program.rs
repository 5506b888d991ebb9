//! `PROGRAM_ENGINE` and its later forms: bytes of the caller to an address of the device, which need
//! not be in a chunk.
//!
//! Which addresses may be written the reference knows from a table of each generation. What a device
//! of software has of it is HBM, so that is the table here: any byte of a region, the firmware's and
//! other processes' included, as in the reference. The bytes pass through one buffer of the full size
//! and go by DMA.

use glia_abi::addr::{BusAddr, Span};
use glia_abi::errno::Errno;
use glia_abi::handle::CoreId;
use glia_abi::ioctl::{ProgramEngine, ProgramEngineNc, ProgramEngineNc64, pointer};
use glia_abi::mem::Location;

use super::Call;
use super::copy::Bounce;
use crate::dma::Place;

/// `PROGRAM_ENGINE`, by the ring of core 0.
pub(crate) fn program_engine(call: &Call<'_>) -> Result<(), Errno> {
    let argument: ProgramEngine = call.read()?;
    let argument = ProgramEngineNc64 {
        nc_id: 0,
        pad: 0,
        dst: argument.dst,
        buffer: argument.buffer,
        size: argument.size.into(),
        offset: argument.offset.into(),
    };
    program(call, &argument)
}

/// `PROGRAM_ENGINE_NC`.
pub(crate) fn program_engine_nc(call: &Call<'_>) -> Result<(), Errno> {
    let argument: ProgramEngineNc = call.read()?;
    let argument = ProgramEngineNc64 {
        nc_id: argument.nc_id,
        pad: 0,
        dst: argument.dst,
        buffer: argument.buffer,
        size: argument.size.into(),
        offset: argument.offset.into(),
    };
    program(call, &argument)
}

/// `PROGRAM_ENGINE_NC64`.
pub(crate) fn program_engine_nc64(call: &Call<'_>) -> Result<(), Errno> {
    program(call, &call.read()?)
}

/// The offset counts on both sides. (The sums of the reference wrap: divergence
/// `program-engine-offset`.)
fn program(call: &Call<'_>, argument: &ProgramEngineNc64) -> Result<(), Errno> {
    let at = argument.dst.checked_add(argument.offset);
    let at = BusAddr::new(at.ok_or(Errno::ENOMEM)?);
    let target = Span::new(at, argument.size).ok_or(Errno::ENOMEM)?;
    let mut regions = call.device.memory.config().layout.regions();
    if !regions.any(|region| region.contains_span(target)) {
        return Err(Errno::ENOMEM);
    }
    if argument.size == 0 {
        return Ok(());
    }
    let core = CoreId::new(argument.nc_id);
    let bounce = Bounce::take(call, core, argument.size)?;
    let from = pointer(argument.buffer).checked_add(argument.offset);
    let place = Place {
        at,
        location: Location::Device,
        core,
    };
    let _held = call.device.memory.pin_span(target);
    bounce.copy(from.ok_or(Errno::EFAULT)?, place, argument.size, true)
}
