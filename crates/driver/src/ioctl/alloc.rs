//! Taking, freeing and describing chunks.

use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, Region};
use glia_abi::ioctl::{MemAllocV2Mt64, MemFree, MemGetInfo, MemGetPa};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

use super::Call;
use crate::alloc::AllocRequest;
use crate::site::SiteId;

/// `MEM_ALLOC_V2MT64`: a chunk that dies with the calling process, and its handle.
///
/// Whatever fails after the chunk was taken (no handle: `ENOENT`; the handle cannot be written:
/// `EFAULT`) gives it back.
pub(crate) fn mem_alloc_v2mt64(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemAllocV2Mt64 = call.read()?;
    let request = AllocRequest {
        size_bytes: argument.size,
        align_bytes: argument.align,
        location: match argument.host_memory {
            0 => Location::Device,
            _ => Location::Host,
        },
        channel: Channel::new(argument.dram_channel),
        region: Region::new(argument.dram_region),
        core: CoreId::new(argument.nc_id),
        lifespan: Lifespan::CurrentProcess,
        category: Category(argument.mem_type),
        site: SiteId::UNKNOWN,
    };
    let chunk = call.take(&request)?;
    let handle = call.device.memory.publish(chunk);
    call.driver.tell_taken(call.device, chunk);
    let written = match handle {
        Ok(handle) => call.write_u64(argument.mem_handle, handle.get().into()),
        Err(refused) => Err(refused.errno()),
    };
    written.inspect_err(|_| {
        // Somebody who guessed the handle may have freed it already.
        if let Some(record) = call.device.memory.chunk(chunk) {
            let _ = call.free(chunk, &record);
        }
    })
}

/// `MEM_FREE`: one reference off, whoever owns the chunk.
pub(crate) fn mem_free(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemFree = call.read()?;
    let (chunk, record) = call.resolve(argument.mem_handle)?;
    call.free(chunk, &record)
}

/// `MEM_GET_PA`: the chunk's address as the device sees it.
pub(crate) fn mem_get_pa(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemGetPa = call.read()?;
    let (_, record) = call.resolve(argument.mem_handle)?;
    call.write_u64(argument.pa, record.at().get())
}

/// `MEM_GET_INFO`: the chunk's address, and its offset for mmap, which is the same number.
pub(crate) fn mem_get_info(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemGetInfo = call.read()?;
    let (_, record) = call.resolve(argument.mem_handle)?;
    call.write_u64(argument.pa, record.at().get())?;
    if argument.mmap_offset != 0 {
        call.write_u64(argument.mmap_offset, record.at().get())?;
    }
    Ok(())
}
