//! A process for tests: user memory as a map of ranges, and commands by their bytes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use glia_abi::addr::UserAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, FileId, Pid};
use glia_abi::ioctl::{self, MemAllocV2Mt64, MemFree, MemGetPa};
use glia_abi::transport::{
    Caller, CapturedMemory, OpenMode, PinFault, PinnedUser, UserFault, UserMemory,
};
use glia_driver::driver::Driver;
use glia_driver::mmap::MapGrant;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::support::{ND0, Rig};

/// User memory: ranges with a gap behind each.
#[derive(Default)]
pub(crate) struct UserSpace {
    ranges: RefCell<BTreeMap<u64, Vec<u8>>>,
    read_only: Cell<Option<u64>>,
    end: Cell<u64>,
}

impl UserSpace {
    /// A range with these bytes.
    pub(crate) fn put(&self, bytes: &[u8]) -> u64 {
        let at = self.end.get() + 0x10_0000;
        self.end.set(at + bytes.len() as u64);
        self.ranges.borrow_mut().insert(at, bytes.to_vec());
        at
    }

    /// A range with these bytes that the driver may not write. There is one at a time.
    pub(crate) fn put_read_only(&self, bytes: &[u8]) -> u64 {
        let at = self.put(bytes);
        self.read_only.set(Some(at));
        at
    }

    /// The bytes of a whole range.
    pub(crate) fn get(&self, at: u64) -> Vec<u8> {
        self.ranges.borrow()[&at].clone()
    }

    /// The number in a range of 8 bytes.
    pub(crate) fn number(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.get(at).try_into().unwrap())
    }

    fn with(
        &self,
        at: UserAddr,
        size_bytes: usize,
        work: impl FnOnce(&mut [u8]),
    ) -> Result<(), UserFault> {
        let fault = UserFault {
            at,
            size_bytes: size_bytes as u64,
        };
        if size_bytes == 0 {
            work(&mut []);
            return Ok(());
        }
        let mut ranges = self.ranges.borrow_mut();
        let (start, bytes) = ranges.range_mut(..=at.get()).next_back().ok_or(fault)?;
        let offset = (at.get() - start) as usize;
        let end = offset.checked_add(size_bytes).ok_or(fault)?;
        work(bytes.get_mut(offset..end).ok_or(fault)?);
        Ok(())
    }
}

impl UserMemory for UserSpace {
    fn copy_in(&self, from: UserAddr, into: &mut [u8]) -> Result<(), UserFault> {
        self.with(from, into.len(), |bytes| into.copy_from_slice(bytes))
    }

    fn copy_out(&self, to: UserAddr, bytes: &[u8]) -> Result<(), UserFault> {
        if self.read_only.get() == Some(to.get()) {
            return Err(UserFault {
                at: to,
                size_bytes: bytes.len() as u64,
            });
        }
        self.with(to, bytes.len(), |range| range.copy_from_slice(bytes))
    }

    fn check(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<(), UserFault> {
        let is_refused = write && self.read_only.get() == Some(at.get());
        if is_refused || size_bytes > 1 << 40 {
            return Err(UserFault { at, size_bytes });
        }
        self.with(at, size_bytes as usize, |_| ())
    }

    fn pin(&self, at: UserAddr, size_bytes: u64, _write: bool) -> Result<PinnedUser, PinFault> {
        Err(UserFault { at, size_bytes }.into())
    }

    fn capture(&self, _at: UserAddr, _size_bytes: u64) -> Option<Arc<dyn CapturedMemory>> {
        None
    }
}

/// An address at which nobody has memory.
pub(crate) const NOWHERE: u64 = 0xdead_0000_0000;

/// A process.
pub(crate) struct Client<'a> {
    driver: &'a Driver,
    pid: Pid,
    is_killed: Cell<bool>,
    pub(crate) space: UserSpace,
}

impl<'a> Client<'a> {
    pub(crate) fn new(rig: &'a Rig, pid: u32) -> Self {
        Self {
            driver: &rig.driver,
            pid: Pid::new(pid),
            is_killed: Cell::new(false),
            space: UserSpace::default(),
        }
    }

    /// A signal wants the process to end.
    pub(crate) fn kill(&self) {
        self.is_killed.set(true);
    }

    /// A process that has the device open, and its file.
    pub(crate) fn attached(rig: &'a Rig, pid: u32) -> (Self, FileId) {
        let client = Self::new(rig, pid);
        let file = client.open(OpenMode::ReadWrite).unwrap();
        (client, file)
    }

    pub(crate) fn call<T>(&self, work: impl FnOnce(&Caller<'_>) -> T) -> T {
        work(&Caller {
            pid: self.pid,
            memory: &self.space,
            killed: &|| self.is_killed.get(),
        })
    }

    pub(crate) fn open(&self, mode: OpenMode) -> Result<FileId, Errno> {
        self.open_device(ND0, mode)
    }

    pub(crate) fn open_device(&self, device: DeviceId, mode: OpenMode) -> Result<FileId, Errno> {
        self.call(|caller| self.driver.open(caller, device, mode))
    }

    pub(crate) fn flush(&self, file: FileId) {
        self.call(|caller| self.driver.flush(caller, file));
    }

    /// Closes the only descriptor of a file.
    pub(crate) fn close(&self, file: FileId) {
        self.flush(file);
        self.call(|caller| self.driver.release(caller, file));
    }

    pub(crate) fn raw_ioctl(&self, file: FileId, word: u32, at: u64) -> Result<i32, Errno> {
        self.call(|caller| self.driver.ioctl(caller, file, word, UserAddr::new(at)))
    }

    /// A command with its struct: what the struct holds afterwards.
    pub(crate) fn ioctl<T: IntoBytes + FromBytes + Immutable>(
        &self,
        file: FileId,
        word: u32,
        argument: T,
    ) -> Result<T, Errno> {
        let at = self.space.put(argument.as_bytes());
        let ret = self.raw_ioctl(file, word, at)?;
        assert_eq!(ret, 0, "no built command answers anything else");
        Ok(T::read_from_bytes(&self.space.get(at)).unwrap())
    }

    pub(crate) fn mmap(&self, file: FileId, offset: u64, size: u64) -> Result<MapGrant, Errno> {
        self.call(|caller| self.driver.mmap(caller, file, offset, size))
    }

    /// Takes a chunk: its handle.
    pub(crate) fn alloc(&self, file: FileId, argument: MemAllocV2Mt64) -> Result<u64, Errno> {
        let mem_handle = self.space.put(&[0; 8]);
        let argument = MemAllocV2Mt64 {
            mem_handle,
            ..argument
        };
        self.ioctl(file, ioctl::MEM_ALLOC_V2MT64, argument)?;
        Ok(self.space.number(mem_handle))
    }

    pub(crate) fn free(&self, file: FileId, mem_handle: u64) -> Result<(), Errno> {
        self.ioctl(file, ioctl::MEM_FREE, MemFree { mem_handle })
            .map(drop)
    }

    pub(crate) fn get_pa(&self, file: FileId, mem_handle: u64) -> Result<u64, Errno> {
        let pa = self.space.put(&[0; 8]);
        self.ioctl(file, ioctl::MEM_GET_PA, MemGetPa { mem_handle, pa })?;
        Ok(self.space.number(pa))
    }
}

/// A request for HBM of channel 0, charged to core 0.
pub(crate) fn device_memory(size: u64) -> MemAllocV2Mt64 {
    MemAllocV2Mt64 {
        size,
        mem_type: 9,
        ..MemAllocV2Mt64::default()
    }
}

/// A request for host memory, charged to core 0.
pub(crate) fn host_memory(size: u64) -> MemAllocV2Mt64 {
    MemAllocV2Mt64 {
        size,
        host_memory: 1,
        mem_type: 2,
        ..MemAllocV2Mt64::default()
    }
}
