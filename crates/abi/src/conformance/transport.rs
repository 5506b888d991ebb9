//! Rules of [`Transport`], checked as a process meets the driver: by descriptors, command words and
//! mappings alone.

mod copies;
mod descriptors;

use zerocopy::{FromBytes, IntoBytes};

use super::{Must, Violation, hold};
use crate::errno::Errno;
use crate::handle::{DeviceId, Fd};
use crate::ioctl::{self, MemAllocV2Mt64, MemFree, MemGetInfo};
use crate::transport::{Lent, OpenMode, Transport, user_addr};
use crate::usage::Category;

/// What the checks drive a driver with.
#[derive(Clone, Copy)]
pub struct TransportFixture<'a> {
    /// A process without an open descriptor, the only one that uses the device.
    pub transport: &'a dyn Transport,
    /// A device that it can open, with 1 MiB free in its first channel.
    pub device: DeviceId,
    /// A device that does not exist.
    pub missing: DeviceId,
}

/// Descriptors, commands that do not exist, addresses that are not the caller's, mappings that
/// cannot be, and buffers: what any driver has to answer, whatever is behind it.
///
/// # Errors
/// The rule that it breaks.
pub fn check(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    descriptors::check(fixture)
}

/// Memory that is allocated, mapped, copied to and from HBM in each of the ways that a runtime has,
/// and given back: what a driver with a device behind it has to do. To be checked after [`check`],
/// whose rules are relied on.
///
/// # Errors
/// The rule that it breaks.
pub fn check_copies(fixture: &TransportFixture<'_>) -> Result<(), Violation> {
    copies::check(fixture)
}

/// An open descriptor.
#[derive(Clone, Copy)]
struct File<'a> {
    transport: &'a dyn Transport,
    fd: Fd,
}

impl<'a> File<'a> {
    fn open(fixture: &TransportFixture<'a>, mode: OpenMode) -> Result<Self, Violation> {
        let transport = fixture.transport;
        let fd = transport.open(fixture.device, mode);
        let fd = fd.must("a device that exists can be opened")?;
        Ok(Self { transport, fd })
    }

    fn close(self) -> Result<(), Violation> {
        let closed = self.transport.close(self.fd);
        closed.must("a descriptor that is open can be closed")
    }

    /// Sends a command with its struct.
    fn send<T: FromBytes + IntoBytes>(
        self,
        word: u32,
        arg: &mut T,
        lent: &mut [Lent<'_>],
    ) -> Result<i32, Errno> {
        let bytes = arg.as_mut_bytes();
        self.transport.ioctl(self.fd, word, bytes, lent)
    }

    /// Sends a command that has to succeed.
    fn call<T: FromBytes + IntoBytes>(
        self,
        word: u32,
        arg: &mut T,
        lent: &mut [Lent<'_>],
    ) -> Result<(), Violation> {
        let answer = self.send(word, arg, lent);
        hold!(
            answer == Ok(0),
            "a command with good arguments succeeds",
            "{}: {answer:?}",
            ioctl::name(word).unwrap_or("an unknown command")
        );
        Ok(())
    }

    /// Sends a command that has to fail so.
    fn refused<T: FromBytes + IntoBytes>(
        self,
        word: u32,
        mut arg: T,
        errno: Errno,
        rule: &'static str,
    ) -> Result<(), Violation> {
        let answer = self.send(word, &mut arg, &mut []);
        hold!(
            answer == Err(errno),
            rule,
            "{} ({word:#010x}): {answer:?}, not {errno}",
            ioctl::name(word).unwrap_or("an unknown command")
        );
        Ok(())
    }

    /// Takes a chunk of the device's first channel or of host memory, and gives its handle.
    fn alloc(self, on_host: bool, size_bytes: u64) -> Result<u64, Violation> {
        let mut handle = [0; 8];
        let category = match on_host {
            true => Category::TENSORS_HOST,
            false => Category::TENSORS_DEVICE,
        };
        let mut arg = MemAllocV2Mt64 {
            size: size_bytes,
            host_memory: u32::from(on_host),
            mem_type: category.0,
            mem_handle: user_addr(&handle).get(),
            ..MemAllocV2Mt64::default()
        };
        let mut lent = [Lent::Out(&mut handle)];
        self.call(ioctl::MEM_ALLOC_V2MT64, &mut arg, &mut lent)?;
        let handle = u64::from_le_bytes(handle);
        hold!(
            handle != 0,
            "an allocation writes its handle, which is not 0",
            "{handle}"
        );
        Ok(handle)
    }

    fn free(self, mem_handle: u64) -> Result<(), Violation> {
        self.call(ioctl::MEM_FREE, &mut MemFree { mem_handle }, &mut [])
    }

    /// Where a chunk lies, and its offset for mmap.
    fn info(self, mem_handle: u64) -> Result<(u64, u64), Violation> {
        let (mut pa, mut mmap_offset) = ([0; 8], [0; 8]);
        let mut arg = MemGetInfo {
            mem_handle,
            mmap_offset: user_addr(&mmap_offset).get(),
            pa: user_addr(&pa).get(),
        };
        let mut lent = [Lent::Out(&mut pa), Lent::Out(&mut mmap_offset)];
        self.call(ioctl::MEM_GET_INFO, &mut arg, &mut lent)?;
        Ok((u64::from_le_bytes(pa), u64::from_le_bytes(mmap_offset)))
    }
}
