//! Copies between chunks, and between a chunk and user memory; fills.
//!
//! Every copy pins its chunks before it looks at their bounds, and then all that it reaches of the
//! scratchpad, so that a free meanwhile leaves the memory to it (divergence `pinned-range`). An
//! asynchronous copy runs on after its command has been answered, and its pins stay with the ring's
//! context until the copy has been waited for. A copy of 0 bytes passes the same checks and moves
//! nothing. (The reference would encode it as 64 KiB.)

use glia_abi::addr::{HostPa, UserAddr};
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId};
use glia_abi::ioctl::{
    MemBufCopy, MemBufCopy64, MemCopy, MemCopy64, MemCopyAsync, MemCopyAsync64, MemCopyAsyncWait,
    Memset, Memset64, pointer,
};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;

use super::Call;
use crate::alloc::AllocRequest;
use crate::chunk::Chunk;
use crate::dma::{Place, WaitHandle};
use crate::memory::Pinned;

/// Bytes of the host buffer through which user memory reaches HBM (driver 2.27).
pub(super) const BOUNCE_SIZE_BYTES: u64 = 64 << 10;
/// Bytes that pass through the driver's stack at a time between user and host memory.
const STEP_BYTES: usize = 4096;

/// `MEM_COPY`.
pub(crate) fn mem_copy(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemCopy = call.read()?;
    let argument = MemCopy64 {
        src: argument.src,
        dst: argument.dst,
        size: argument.size.into(),
        src_offset: argument.src_offset.into(),
        dst_offset: argument.dst_offset.into(),
    };
    copy(call, &argument)
}

/// `MEM_COPY64`.
pub(crate) fn mem_copy64(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument = MemCopy64::default();
    call.read_to(&mut argument)?;
    copy(call, &argument)
}

fn copy(call: &Call<'_>, argument: &MemCopy64) -> Result<(), Errno> {
    let mut source = call.pin(argument.src)?;
    let mut target = call.pin(argument.dst)?;
    let from = source.hold_access(argument.src_offset, argument.size)?;
    let to = target.hold_access(argument.dst_offset, argument.size)?;
    if argument.size == 0 {
        return Ok(());
    }
    let (from, to) = (
        place(&from, argument.src_offset)?,
        place(&to, argument.dst_offset)?,
    );
    let dma = &call.device.dma;
    dma.copy(call.caller.pid, from, to, argument.size)?;
    Ok(())
}

/// `MEM_COPY_ASYNC`.
pub(crate) fn mem_copy_async(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: MemCopyAsync = call.read()?;
    let wide = MemCopyAsync64 {
        src: argument.src,
        dst: argument.dst,
        size: argument.size.into(),
        src_offset: argument.src_offset.into(),
        dst_offset: argument.dst_offset.into(),
        host_prefetch_addr: argument.host_prefetch_addr,
        pwait: argument.pwait,
        wait: argument.wait,
    };
    argument.wait = copy_async(call, &wide)?;
    call.write(&argument)
}

/// `MEM_COPY_ASYNC64`.
pub(crate) fn mem_copy_async64(call: &Call<'_>) -> Result<(), Errno> {
    let mut argument: MemCopyAsync64 = call.read()?;
    argument.wait = copy_async(call, &argument)?;
    call.write(&argument)
}

/// Starts a copy: its handle. The prefetch address is a hint that nobody needs here.
///
/// A struct that cannot be written back then is `EFAULT`, and the copy is under way all the same:
/// its handle follows from the one that was passed.
fn copy_async(call: &Call<'_>, argument: &MemCopyAsync64) -> Result<u32, Errno> {
    let mut source = call.pin_owned(argument.src)?;
    let mut target = call.pin_owned(argument.dst)?;
    let from = source.hold_access(argument.src_offset, argument.size)?;
    let to = target.hold_access(argument.dst_offset, argument.size)?;
    let previous = WaitHandle::from_raw(argument.pwait).ok_or(Errno::EINVAL)?;
    let started = call.device.dma.copy_async_holding(
        call.caller.pid,
        place(&from, argument.src_offset)?,
        place(&to, argument.dst_offset)?,
        argument.size,
        previous,
        [source, target],
    );
    Ok(started?.to_raw())
}

/// `MEM_COPY_ASYNC_WAIT`. The two chunks just tell which ring it is.
pub(crate) fn mem_copy_async_wait(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemCopyAsyncWait = call.read()?;
    let (_, source) = call.resolve(argument.src)?;
    let (_, target) = call.resolve(argument.dst)?;
    let handle = match WaitHandle::from_raw(argument.pwait) {
        Some(handle @ (WaitHandle::Async1 | WaitHandle::Async2)) => handle,
        Some(WaitHandle::None | WaitHandle::Sync) | None => return Err(Errno::EINVAL),
    };
    let (source, target) = (place(&source, 0)?, place(&target, 0)?);
    let dma = &call.device.dma;
    dma.wait(call.caller.pid, source, target, handle)?;
    Ok(())
}

/// `MEMSET`.
pub(crate) fn memset(call: &Call<'_>) -> Result<(), Errno> {
    let argument: Memset = call.read()?;
    let argument = Memset64 {
        mem_handle: argument.mem_handle,
        offset: argument.offset,
        value: argument.value,
        pad: 0,
        size: argument.size.into(),
    };
    fill(call, &argument)
}

/// `MEMSET64`.
pub(crate) fn memset64(call: &Call<'_>) -> Result<(), Errno> {
    fill(call, &call.read()?)
}

fn fill(call: &Call<'_>, argument: &Memset64) -> Result<(), Errno> {
    let mut pin = call.pin(argument.mem_handle)?;
    let record = pin.hold_access(argument.offset, argument.size)?;
    let target = place(&record, argument.offset)?;
    let [value, ..] = argument.value.to_le_bytes();
    let dma = &call.device.dma;
    dma.fill(call.caller.pid, target, argument.size, value)?;
    Ok(())
}

/// `MEM_BUF_COPY`.
pub(crate) fn mem_buf_copy(call: &Call<'_>) -> Result<(), Errno> {
    let argument: MemBufCopy = call.read()?;
    let argument = MemBufCopy64 {
        mem_handle: argument.mem_handle,
        buffer: argument.buffer,
        size: argument.size.into(),
        offset: argument.offset.into(),
        copy_to_mem_handle: argument.copy_to_mem_handle,
        pad: 0,
    };
    buf_copy(call, &argument)
}

/// `MEM_BUF_COPY64`.
pub(crate) fn mem_buf_copy64(call: &Call<'_>) -> Result<(), Errno> {
    buf_copy(call, &call.read()?)
}

/// User memory to a chunk, or back.
///
/// A host chunk's bytes are copied directly; HBM is reached through a bounce buffer, piece by
/// piece, and a fault in the middle leaves the earlier pieces done. (The reference counts in 32
/// bits there: divergence `buffer-copy-size`.)
fn buf_copy(call: &Call<'_>, argument: &MemBufCopy64) -> Result<(), Errno> {
    let mut pin = call.pin(argument.mem_handle)?;
    let range = (argument.offset, argument.size);
    let to_chunk = argument.copy_to_mem_handle != 0;
    copy_buffer(call, &mut pin, range, pointer(argument.buffer), to_chunk)
}

/// A range of a pinned chunk (offset and size) from user memory, or to it.
pub(super) fn copy_buffer(
    call: &Call<'_>,
    pin: &mut Pinned<'_>,
    (offset_bytes, size_bytes): (u64, u64),
    buffer: UserAddr,
    to_chunk: bool,
) -> Result<(), Errno> {
    let record = pin.hold_access(offset_bytes, size_bytes)?;
    if size_bytes == 0 {
        return Ok(());
    }
    let chunk = place(&record, offset_bytes)?;
    match record.location() {
        Location::Host => {
            let at = call.host_pa(&chunk)?;
            call.copy_user(buffer, at, size_bytes, to_chunk)
        }
        Location::Device => {
            let bounce = Bounce::take(call, record.core(), BOUNCE_SIZE_BYTES)?;
            for (offset_bytes, size_bytes) in pieces(size_bytes, BOUNCE_SIZE_BYTES) {
                let piece = Place {
                    at: chunk.at.checked_add(offset_bytes).ok_or(Errno::EINVAL)?,
                    ..chunk
                };
                let user = buffer.checked_add(offset_bytes).ok_or(Errno::EFAULT)?;
                bounce.copy(user, piece, size_bytes, to_chunk)?;
            }
            Ok(())
        }
    }
}

/// The bounce buffer of one command. It is pinned: its handle can be learned, and freed.
pub(super) struct Bounce<'a> {
    call: &'a Call<'a>,
    pin: Pinned<'a>,
}

impl<'a> Bounce<'a> {
    /// Takes the buffer, on the account of a core.
    pub(super) fn take(call: &'a Call<'a>, core: CoreId, size_bytes: u64) -> Result<Self, Errno> {
        let request = AllocRequest {
            core,
            lifespan: Lifespan::Local,
            category: Category::NCDEV_HOST,
            site: call.device.bounce_site,
            channel: Channel::new(0),
            ..AllocRequest::host(size_bytes)
        };
        let chunk = call.take(&request)?;
        call.driver.tell_taken(call.device, chunk);
        let pin = call.device.memory.pin(chunk);
        let pin = pin.map_err(|_| Errno::ENODEV)?;
        Ok(Self { call, pin })
    }

    /// Where it begins.
    pub(super) fn place(&self) -> Result<Place, Errno> {
        place(&self.pin.record(), 0)
    }

    /// Moves at most its own size between user memory and HBM.
    pub(super) fn copy(
        &self,
        user: UserAddr,
        chunk: Place,
        size_bytes: u64,
        to_chunk: bool,
    ) -> Result<(), Errno> {
        let Call { device, caller, .. } = self.call;
        let here = self.place()?;
        let at = self.call.host_pa(&here)?;
        if to_chunk {
            self.call.copy_user(user, at, size_bytes, true)?;
            device.dma.copy(caller.pid, here, chunk, size_bytes)?;
        } else {
            device.dma.copy(caller.pid, chunk, here, size_bytes)?;
            self.call.copy_user(user, at, size_bytes, false)?;
        }
        Ok(())
    }
}

impl Drop for Bounce<'_> {
    fn drop(&mut self) {
        // Only a teardown of the device can have taken it, and then there is nothing to give back.
        let _ = self.call.free(self.pin.chunk(), &self.pin.record());
    }
}

impl Call<'_> {
    /// Copies between user memory and host memory.
    fn copy_user(
        &self,
        user: UserAddr,
        at: HostPa,
        size_bytes: u64,
        to_host: bool,
    ) -> Result<(), Errno> {
        let (memory, host) = (self.caller.memory, &self.driver.host);
        let mut buffer = [0; STEP_BYTES];
        for (offset_bytes, step_bytes) in pieces(size_bytes, STEP_BYTES as u64) {
            let user = user.checked_add(offset_bytes).ok_or(Errno::EFAULT)?;
            let at = at.checked_add(offset_bytes).ok_or(Errno::EIO)?;
            // CAST: at most STEP_BYTES.
            #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
            let step = &mut buffer[..step_bytes as usize];
            if to_host {
                memory.copy_in(user, step).map_err(|_| Errno::EFAULT)?;
                host.write(at, step).map_err(|_| Errno::EIO)?;
            } else {
                host.read(at, step).map_err(|_| Errno::EIO)?;
                memory.copy_out(user, step).map_err(|_| Errno::EFAULT)?;
            }
        }
        Ok(())
    }

    /// The host address of a place in a host chunk.
    fn host_pa(&self, place: &Place) -> Result<HostPa, Errno> {
        self.profile().bus_to_host(place.at).ok_or(Errno::EIO)
    }
}

/// A point of a chunk, whose bounds have been checked, as DMA names it.
pub(super) fn place(chunk: &Chunk, offset_bytes: u64) -> Result<Place, Errno> {
    Ok(Place {
        at: chunk.at().checked_add(offset_bytes).ok_or(Errno::EINVAL)?,
        location: chunk.location(),
        core: chunk.core(),
    })
}

/// Cuts a size into pieces: offset and size of each.
fn pieces(size_bytes: u64, piece_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let count = size_bytes.div_ceil(piece_bytes);
    (0..count).map(move |number| {
        let offset_bytes = number * piece_bytes;
        (offset_bytes, (size_bytes - offset_bytes).min(piece_bytes))
    })
}
