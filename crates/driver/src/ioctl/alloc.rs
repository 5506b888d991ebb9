//! Taking and freeing chunks.

use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, Region};
use glia_abi::ioctl::{MemAlloc, MemAllocV2, MemAllocV2Mt, MemAllocV2Mt64, MemFree};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

use super::Call;
use crate::alloc::AllocRequest;
use crate::site::SiteId;

/// `MEM_ALLOC`: a chunk of no stated alignment and use. A struct that cannot be read is `EACCES`
/// here, and nowhere else in the family (driver 2.27).
pub(crate) fn mem_alloc(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemAlloc = call.read().map_err(|_| Errno::EACCES)?;
    let argument = MemAllocV2Mt64 {
        size: argument.size,
        host_memory: argument.host_memory,
        dram_channel: argument.dram_channel,
        dram_region: argument.dram_region,
        nc_id: argument.nc_id,
        mem_type: unknown(argument.host_memory),
        mem_handle: argument.mem_handle,
        ..MemAllocV2Mt64::default()
    };
    alloc(call, &argument)
}

/// `MEM_ALLOC_V2`: a chunk of no stated use.
pub(crate) fn mem_alloc_v2(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemAllocV2 = call.read()?;
    let argument = MemAllocV2Mt64 {
        size: argument.size,
        align: argument.align,
        host_memory: argument.host_memory,
        dram_channel: argument.dram_channel,
        dram_region: argument.dram_region,
        nc_id: argument.nc_id,
        mem_type: unknown(argument.host_memory),
        mem_handle: argument.mem_handle,
        ..MemAllocV2Mt64::default()
    };
    alloc(call, &argument)
}

/// `MEM_ALLOC_V2MT`.
pub(crate) fn mem_alloc_v2mt(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemAllocV2Mt = call.read()?;
    let argument = MemAllocV2Mt64 {
        size: argument.size,
        align: argument.align,
        host_memory: argument.host_memory,
        dram_channel: argument.dram_channel,
        dram_region: argument.dram_region,
        nc_id: argument.nc_id,
        mem_type: argument.mem_type,
        mem_handle: argument.mem_handle,
        ..MemAllocV2Mt64::default()
    };
    alloc(call, &argument)
}

/// `MEM_ALLOC_V2MT64`.
pub(crate) fn mem_alloc_v2mt64(call: &Call<'_>) -> Result<(), Errno> {
    alloc(call, &call.read()?)
}

/// `MEM_FREE`: one reference off, whichever process owns the chunk. The driver's own chunks and the
/// firmware's are not for a process to free: `EPERM` (divergence `own-chunks`).
pub(crate) fn mem_free(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemFree = call.read()?;
    let (chunk, record) = call.resolve(argument.mem_handle)?;
    if record.is_nobodys() {
        return Err(Errno::EPERM);
    }
    call.free(chunk, &record)
}

/// A chunk that dies with the calling process, and its handle.
///
/// Whatever fails after the chunk was taken (no handle: `ENOENT`; the handle cannot be written:
/// `EFAULT`) gives it back.
fn alloc(call: &Call<'_>, argument: &MemAllocV2Mt64) -> Result<(), Errno> {
    let request = AllocRequest {
        size_bytes: argument.size,
        align_bytes: argument.align,
        location: location(argument.host_memory),
        channel: Channel::new(argument.dram_channel),
        region: Region::new(argument.dram_region),
        core: CoreId::new(argument.nc_id),
        lifespan: Lifespan::CurrentProcess,
        category: Category(argument.mem_type),
        site: SiteId::UNKNOWN,
    };
    let memory = &call.device.memory;
    let (chunk, handle) = memory.alloc_published(call.caller.pid, &request)?;
    call.driver.tell_taken(call.device, chunk);
    let written = match handle {
        Ok(handle) => call.write_u64(argument.mem_handle, handle.get().into()),
        Err(refused) => Err(refused.errno()),
    };
    written.inspect_err(|_| {
        // Somebody who guessed the handle may have freed it already.
        if let Some(record) = memory.chunk(chunk) {
            let _ = call.free(chunk, &record);
        }
    })
}

/// Any number but 0 means the host.
fn location(host_memory: u32) -> Location {
    match host_memory {
        0 => Location::Device,
        _ => Location::Host,
    }
}

/// The category of a chunk whose taker has no word for it.
fn unknown(host_memory: u32) -> u32 {
    let category = match location(host_memory) {
        Location::Host => Category::UNKNOWN_HOST,
        Location::Device => Category::UNKNOWN_DEVICE,
    };
    category.0
}
