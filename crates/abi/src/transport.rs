//! The seams around the driver's front door: what a process does to `/dev/neuron*` ([`Transport`]),
//! and how the driver reaches the process's memory ([`UserMemory`]).
//!
//! ```text
//!   runtime ── Transport ──► a process's fd table ── Caller, word, arg ──► driver
//!              ioctl(fd, word, arg, lent)                                  UserMemory: copy_in, copy_out, pin
//! ```
//!
//! **User memory is lent with the call.** A command's argument, and every buffer to which a pointer
//! in it leads, is given to [`Transport::ioctl`] as a Rust borrow. For the driver they are ranges
//! of user addresses, and any other address is a fault: a forged pointer is `EFAULT`, not a crash.
//! When the call returns nothing of the loan is left; a pin on lent memory is revoked. A call that
//! outlives its caller (asynchronous copies from user memory) takes memory that the address space
//! owns: [`Transport::buffer`].
//!
//! **Who owns what.** The fd table belongs to the process. A [`Mapping`] is an object: its bytes are
//! valid memory as long as it lives, and the chunk's place is given to nobody else before it is
//! dropped or its process has closed the device for the last time; from then on every access is
//! refused ([`MappingError::Gone`]). The bytes are shared with the device and other mappings, so no
//! `&[u8]` of them is ever handed out.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::addr::{HostPa, Span, UserAddr};
use crate::errno::Errno;
use crate::handle::{CoreId, DeviceId, Fd, Pid, PinId};
use crate::insight::PoolSnapshot;
use crate::sched::Sched;
use crate::sync::AtomicU32;

/// How a device node is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// `O_RDONLY`: attaches, like `ReadWrite`.
    ReadOnly,
    /// `O_WRONLY`: free access, for the few commands that need no attached process.
    WriteOnly,
    /// `O_RDWR`: attaches the process to the device.
    ReadWrite,
}

impl OpenMode {
    /// Whether the file is of the free-access kind (driver 2.27: write-only).
    #[must_use]
    pub const fn is_free_access(self) -> bool {
        matches!(self, Self::WriteOnly)
    }
}

/// A buffer of the caller's that the driver may use until the call returns. Its address is that of
/// its first byte.
#[derive(Debug)]
pub enum Lent<'a> {
    /// The driver may read it.
    In(&'a [u8]),
    /// The driver may read and write it.
    Out(&'a mut [u8]),
}

/// A process's way to the driver: descriptors, commands, mappings.
///
/// Errors are what the system call would answer.
pub trait Transport: Send + Sync {
    /// Opens `/dev/neuron<device>`: the lowest free descriptor.
    ///
    /// # Errors
    /// `ENOENT` if there is no such device, `EBUSY` if all attach slots are taken, `EMFILE` if no
    /// descriptor is left.
    fn open(&self, device: DeviceId, mode: OpenMode) -> Result<Fd, Errno>;

    /// A second descriptor of the same open file.
    ///
    /// # Errors
    /// `EBADF` if it is not open, `EMFILE` if no descriptor is left.
    fn dup(&self, fd: Fd) -> Result<Fd, Errno>;

    /// Closes a descriptor.
    ///
    /// # Errors
    /// `EBADF` if it is not open.
    fn close(&self, fd: Fd) -> Result<(), Errno>;

    /// Sends a command. `arg` holds the command's struct, in and out; `lent` are the buffers that
    /// pointers in it name ([`user_addr`] gives the address to put there).
    ///
    /// # Errors
    /// `EBADF` if the descriptor is not open, otherwise the command's own.
    fn ioctl(&self, fd: Fd, word: u32, arg: &mut [u8], lent: &mut [Lent<'_>])
    -> Result<i32, Errno>;

    /// Maps device-visible memory by its mmap offset.
    ///
    /// # Errors
    /// `EBADF` if the descriptor is not open, `EINVAL` for a size of 0 or an offset that is no
    /// multiple of 4,096, otherwise the driver's own.
    fn mmap(&self, fd: Fd, offset: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Errno>;

    /// Fresh memory of this process's address space, page-aligned, zeroed.
    ///
    /// # Errors
    /// `ENOMEM` if it cannot be had, or is 0 bytes.
    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno>;

    /// How this process waits.
    fn sched(&self) -> &dyn Sched;

    /// What the device's pools hold at this moment; `None` where nobody can look inside (a real
    /// node), or there is no such device.
    fn insight(&self, device: DeviceId) -> Option<PoolSnapshot>;

    /// Which process has claimed a core; `None` if nobody has, nobody can look inside (a real node),
    /// or there is no such core. Cores count from the device's first one through the machine, as in a
    /// claim.
    fn core_holder(&self, device: DeviceId, core: CoreId) -> Option<Pid> {
        let _ = (device, core);
        None
    }
}

/// The user address of a buffer, for a pointer in a command's struct. An empty buffer has one, too.
#[must_use]
pub fn user_addr(buffer: &[u8]) -> UserAddr {
    UserAddr::new(buffer.as_ptr().addr() as u64)
}

/// An access to a mapping or buffer that leaves it, writes where only reading is allowed, or comes
/// too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MappingError {
    /// It leaves the mapping, or is not aligned.
    #[error(
        "{size_bytes} bytes at offset {offset_bytes} are outside: the mapping has {limit_bytes}"
    )]
    OutOfBounds {
        /// Offset from its first byte.
        offset_bytes: u64,
        /// Bytes.
        size_bytes: u64,
        /// Bytes of the mapping.
        limit_bytes: u64,
    },
    /// It writes, and the mapping is read-only.
    #[error("the mapping is read-only")]
    ReadOnly,
    /// The mapping has ended: its process has, or has closed the device for the last time. Its memory
    /// may be somebody else's by now.
    #[error("the mapping has ended, with its process or with the last close of the device")]
    Gone,
}

/// Memory that a process shares with a device. Dropping it unmaps. All accesses are refused once it has
/// ended ([`MappingError::Gone`]); those that have begun come to their end first.
pub trait Mapping: Send + Sync {
    /// Bytes.
    fn size_bytes(&self) -> u64;

    /// Whether it may be written.
    fn is_writable(&self) -> bool;

    /// Copies out of it.
    ///
    /// # Errors
    /// [`MappingError`] if the range leaves it; nothing is copied then.
    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MappingError>;

    /// Copies into it.
    ///
    /// # Errors
    /// [`MappingError`] if the range leaves it, or it is read-only; nothing is copied then.
    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError>;

    /// Its words, to load and store in place. Both numbers are multiples of 4. Nobody can tell when the
    /// caller is done with them, so the place of their memory is given to nobody else before the
    /// mapping is dropped.
    ///
    /// # Errors
    /// [`MappingError`] if the range leaves it or is not aligned, or it is read-only.
    fn words(&self, offset_bytes: u64, size_bytes: u64) -> Result<&[AtomicU32], MappingError>;
}

/// Memory of a process that lives as long as somebody uses it: what asynchronous calls may name.
pub trait UserBuffer: Mapping {
    /// The user address of its first byte.
    fn address(&self) -> UserAddr;
}

/// An address that the caller may not use so: `EFAULT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{size_bytes} bytes at {at} are not the caller's to use so")]
pub struct UserFault {
    /// First byte.
    pub at: UserAddr,
    /// Bytes.
    pub size_bytes: u64,
}

/// Why user memory could not be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PinFault {
    /// `EFAULT`: it is not the caller's to use so.
    #[error(transparent)]
    Fault(#[from] UserFault),
    /// `ENOMEM`: no room for another pin.
    #[error("no room to pin {size_bytes} bytes")]
    NoRoom {
        /// Bytes asked for.
        size_bytes: u64,
    },
}

/// User memory that devices can reach until [`unpin`](crate::port::MachineMemory::unpin).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedUser {
    /// What to unpin.
    pub pin: PinId,
    /// Where its bytes lie, in order: one span, or as many as its pages are scattered over. The
    /// first starts at the range's offset in its page.
    pub spans: SmallVec<[Span<HostPa>; 1]>,
}

/// The memory of the process that calls, as far as it may be used by this call.
///
/// Every address is an allegation; a range counts when it lies wholly in one lent buffer, or in one
/// [`UserBuffer`] of the process. A range of 0 bytes is never a fault.
pub trait UserMemory {
    /// Copies from the caller.
    ///
    /// # Errors
    /// [`UserFault`] if the caller may not read there; nothing is copied then.
    fn copy_in(&self, from: UserAddr, into: &mut [u8]) -> Result<(), UserFault>;

    /// The bytes of a range in place, which saves a copy of them. Only of memory that nobody can write
    /// before the call returns; `None` for any other, which is [copied](Self::copy_in).
    fn bytes(&self, at: UserAddr, size_bytes: u64) -> Option<&[u8]> {
        let _ = (at, size_bytes);
        None
    }

    /// Copies to the caller.
    ///
    /// # Errors
    /// [`UserFault`] if the caller may not write there; nothing is copied then.
    fn copy_out(&self, to: UserAddr, bytes: &[u8]) -> Result<(), UserFault>;

    /// Whether the caller may read a range, and write it if `write`.
    ///
    /// # Errors
    /// [`UserFault`] if it may not.
    fn check(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<(), UserFault>;

    /// Makes a range reachable for devices, which will write to it if `write`. A pin on lent memory
    /// ends with the call by itself.
    ///
    /// # Errors
    /// [`PinFault`] if the caller may not use the range so, or there is no room.
    fn pin(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault>;

    /// Keeps a range of the address space for use after the call has returned; `None` if it is not
    /// wholly memory that outlives the call (lent memory is not).
    fn capture(&self, at: UserAddr, size_bytes: u64) -> Option<Arc<dyn CapturedMemory>>;
}

/// User memory that outlives the call which named it.
pub trait CapturedMemory: Send + Sync {
    /// Makes a part of the range reachable for devices, as [`UserMemory::pin`].
    ///
    /// # Errors
    /// [`PinFault`] if the address space is gone, the part leaves the range or may not be used so, or
    /// there is no room.
    fn pin(&self, offset_bytes: u64, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault>;
}

/// Who calls the driver.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The process (thread-group id).
    pub pid: Pid,
    /// Its memory, as far as this call may use it.
    pub memory: &'a dyn UserMemory,
    /// Whether a signal wants the process to end: waits that can end early then do.
    pub killed: &'a dyn Fn() -> bool,
}
