//! The commands: one small function each, and what they have in common.
//!
//! A command reads its struct from the caller, works, and writes its answers back, every byte
//! through the caller's [`UserMemory`](glia_abi::transport::UserMemory): an address that the caller
//! may not use is `EFAULT` (the reference answers the count of bytes that it could not copy:
//! divergence `user-fault`).
//! Handles, offsets and sizes are allegations; each function checks them in the reference's order,
//! and the first that fails decides the error.
//!
//! | module | commands |
//! | --- | --- |
//! | [`info`] | versions and features |
//! | [`identity`] | which device it is, where it is, and who uses it |
//! | [`claim`] | who uses which core |
//! | [`alloc`] | taking and freeing chunks |
//! | [`describe`] | what is known of a chunk |
//! | [`copy`] | copies between chunks, and between chunks and user memory; fills |
//! | [`zerocopy`] | copies between a chunk and user memory without a buffer in between |
//! | [`program`] | bytes to any address of the device |
//! | [`datastore`] | memory that processes share counters by |
//! | [`queue`] | DMA engines, and queues of processes |
//! | [`descriptor`] | descriptors into a ring and out of one |
//! | [`h2t`] | queues of the copy engines for a process |
//! | [`reset`] | resets of cores and of the device |
//! | [`scrub`] | overwriting all HBM of a channel |

pub(crate) mod alloc;
pub(crate) mod claim;
pub(crate) mod copy;
pub(crate) mod datastore;
pub(crate) mod describe;
pub(crate) mod descriptor;
pub(crate) mod h2t;
pub(crate) mod identity;
pub(crate) mod info;
pub(crate) mod program;
pub(crate) mod queue;
pub(crate) mod reset;
pub(crate) mod scrub;
pub(crate) mod zerocopy;

use ::zerocopy::{FromBytes, Immutable, IntoBytes};
use glia_abi::addr::UserAddr;
use glia_abi::arch::ArchProfile;
use glia_abi::errno::Errno;
use glia_abi::handle::McHandle;
use glia_abi::ioctl::pointer;
use glia_abi::transport::Caller;

use crate::alloc::AllocRequest;
use crate::chunk::{Chunk, ChunkRef};
use crate::driver::{Device, Driver};
use crate::memory::{Freed, OwnedPin, Pinned};

/// A command under way.
pub(crate) struct Call<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) device: &'a Device,
    pub(crate) caller: &'a Caller<'a>,
    pub(crate) word: u32,
    /// Where the command's struct lies.
    pub(crate) arg: UserAddr,
}

impl Call<'_> {
    /// The device's generation.
    fn profile(&self) -> &'static ArchProfile {
        self.device.memory.config().layout.profile()
    }

    /// Reads the command's struct.
    fn read<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        let mut argument = T::new_zeroed();
        self.read_to(&mut argument)?;
        Ok(argument)
    }

    /// The same, in its place: a struct that is moved just after it was read waits until the bytes are
    /// stored, which is a good part of what a command costs.
    fn read_to<T: FromBytes + IntoBytes>(&self, argument: &mut T) -> Result<(), Errno> {
        let bytes = argument.as_mut_bytes();
        let read = self.caller.memory.copy_in(self.arg, bytes);
        read.map_err(|_| Errno::EFAULT)
    }

    /// Writes the command's struct back.
    fn write<T: IntoBytes + Immutable>(&self, argument: &T) -> Result<(), Errno> {
        self.put(self.arg, argument.as_bytes())
    }

    /// Writes 8 bytes where a pointer of the struct leads.
    fn write_u64(&self, at: u64, value: u64) -> Result<(), Errno> {
        self.put(pointer(at), &value.to_le_bytes())
    }

    fn put(&self, at: UserAddr, bytes: &[u8]) -> Result<(), Errno> {
        let written = self.caller.memory.copy_out(at, bytes);
        written.map_err(|_| Errno::EFAULT)
    }

    /// The live chunk that a handle names.
    fn resolve(&self, handle: u64) -> Result<(ChunkRef, Chunk), Errno> {
        let handle = McHandle::from_raw(handle).ok_or(Errno::EINVAL)?;
        self.device.memory.find(handle).ok_or(Errno::EINVAL)
    }

    /// The live chunk that a handle names, pinned for the time of the call.
    fn pin(&self, handle: u64) -> Result<Pinned<'_>, Errno> {
        let handle = McHandle::from_raw(handle).ok_or(Errno::EINVAL)?;
        self.device.memory.pin_handle(handle).ok_or(Errno::EINVAL)
    }

    /// The same beyond the call.
    fn pin_owned(&self, handle: u64) -> Result<OwnedPin, Errno> {
        let (chunk, _) = self.resolve(handle)?;
        Ok(self.device.memory.pin_owned(chunk)?)
    }

    /// Takes a chunk for the caller, of which the trace is told by
    /// [`tell_taken`](Driver::tell_taken).
    fn take(&self, request: &AllocRequest) -> Result<ChunkRef, Errno> {
        Ok(self.device.memory.alloc(self.caller.pid, request)?)
    }

    /// Takes one reference off a chunk and tells the trace if it was the last.
    fn free(&self, chunk: ChunkRef, record: &Chunk) -> Result<(), Errno> {
        match self.device.memory.free(self.caller.pid, chunk)? {
            Freed::Gone { .. } | Freed::Held => {
                self.driver.tell_freed(self.device, chunk, record);
            }
            Freed::Kept { .. } => {}
        }
        Ok(())
    }
}
