//! What is known of a chunk: by its handle, by an address in it, or of all chunks of a channel.
//!
//! The mmap offset of a chunk is its address, as the device sees it.

use ::zerocopy::IntoBytes;
use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::insight::ChunkFacts;
use glia_abi::ioctl::{
    DumpMemChunks, MemChunkInfo, MemGetExtendedInfo, MemGetInfo, MemGetPa, MemMcGetInfo,
    MemMcGetInfoV2, ResourceMmapInfo, pointer,
};
use glia_abi::mem::Location;

use super::Call;
use crate::chunk::{Chunk, ChunkRef};

/// Version of the answer to `MEM_GET_EXTENDED_INFO`. (The reference leaves the field as it is.)
const EXTENDED_INFO_VERSION: u32 = 1;

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

/// `MEM_GET_EXTENDED_INFO`: all of a chunk's record that a caller may see (divergence
/// `extended-info`).
pub(crate) fn mem_get_extended_info(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemGetExtendedInfo = call.read()?;
    let (_, record) = call.resolve(argument.mem_handle)?;
    call.write(&MemGetExtendedInfo {
        mem_handle: argument.mem_handle,
        version: EXTENDED_INFO_VERSION,
        host_memory: u32::from(record.location() == Location::Host),
        mmap_offset: record.at().get(),
        pa: record.at().get(),
        pid: record.owner().get().into(),
        size: record.size_bytes(),
    })
}

/// `MEM_MC_GET_INFO`: the chunk that an address lies in.
pub(crate) fn mem_mc_get_info(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemMcGetInfo = call.read()?;
    let (_, record) = containing(call, argument.pa)?;
    call.write(&MemMcGetInfo {
        pa: argument.pa,
        mmap_offset: record.at().get(),
        size: record.size_bytes(),
    })
}

/// `MEM_MC_GET_INFO_V2`: the same with its handle, which is issued now if the chunk has none. So
/// the driver's own chunks can get handles, too (driver 2.27).
pub(crate) fn mem_mc_get_info_v2(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemMcGetInfoV2 = call.read()?;
    let (chunk, record) = containing(call, argument.pa)?;
    let handle = call.device.memory.publish(chunk)?;
    call.write(&MemMcGetInfoV2 {
        pa: argument.pa,
        mmap_offset: record.at().get(),
        size: record.size_bytes(),
        mem_handle: handle.get().into(),
    })
}

/// `DUMP_MEM_CHUNKS`: the chunks of a channel by address, or how many there are if the caller has
/// too little room (`EAGAIN`). A channel that does not exist has none.
pub(crate) fn dump_mem_chunks(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: DumpMemChunks = call.read()?;
    let pools = call.device.memory.insight();
    let channel = pools.channels.get(argument.hbm_index as usize);
    let chunks = channel.map_or(&[][..], |channel| &channel.chunks);
    argument.num_entries_out = u32::try_from(chunks.len()).map_err(|_| Errno::ENOMEM)?;
    call.write(&argument)?;
    if argument.num_entries_out > argument.num_entries_in {
        return Err(Errno::EAGAIN);
    }
    // As many as there are, whatever room the caller speaks of (divergence `chunk-dump`).
    let entries: Vec<MemChunkInfo> = chunks.iter().map(entry).collect();
    call.put(pointer(argument.data), entries.as_bytes())
}

/// `RESOURCE_MMAP_INFO`. The table of register windows is empty here, as for
/// [`mmap`](crate::mmap): no block has a resource.
pub(crate) fn resource_mmap_info(call: &Call<'_>) -> Result<(), Errno> {
    let _: ResourceMmapInfo = call.read()?;
    Err(Errno::EINVAL)
}

/// The live chunk that an address lies in, unless that is what the driver does a command by.
fn containing(call: &Call<'_>, pa: u64) -> Result<(ChunkRef, Chunk), Errno> {
    let found = call.device.find_for_process(BusAddr::new(pa));
    found.ok_or(Errno::ENOMEM)
}

fn entry(chunk: &ChunkFacts) -> MemChunkInfo {
    MemChunkInfo {
        pa: chunk.span.start().get(),
        size: chunk.span.size_bytes(),
        mem_type: chunk.category.0,
        pad: 0,
    }
}
