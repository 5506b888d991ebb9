//! A process: a table of descriptors, an address space, and the way to the driver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::addr::UserAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, Fd, FileId, Pid};
use glia_abi::insight::PoolSnapshot;
use glia_abi::sched::Sched;
use glia_abi::sync::AtomicU32;
use glia_abi::transport::{
    Caller, Lent, Mapping, MappingError, OpenMode, Transport, UserBuffer, UserMemory, user_addr,
};
use glia_device::AddressSpace;
use glia_driver::mmap::MapId;

use super::Parts;

// LIMIT: the usual limit of a process.
const DESCRIPTORS_MAX: usize = 1024;

/// A process of a [`Machine`](super::Machine). Dropping it is its exit: every descriptor is closed,
/// and the driver takes back what was its.
pub struct Process {
    machine: Arc<Parts>,
    pid: Pid,
    space: AddressSpace,
    descriptors: Mutex<Vec<Option<Arc<OpenFile>>>>,
    killed: AtomicBool,
}

/// An open file, which lives as long as a descriptor of it or a call through one.
struct OpenFile {
    device: DeviceId,
    id: FileId,
}

impl Process {
    pub(super) fn new(machine: Arc<Parts>, pid: Pid) -> Self {
        let space = AddressSpace::new(Arc::clone(&machine.host));
        Self {
            machine,
            pid,
            space,
            descriptors: Mutex::default(),
            killed: AtomicBool::new(false),
        }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    fn descriptors(&self) -> MutexGuard<'_, Vec<Option<Arc<OpenFile>>>> {
        self.descriptors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a descriptor, kept open by whoever holds the answer.
    fn file(&self, fd: Fd) -> Result<Arc<OpenFile>, Errno> {
        let index = usize::try_from(fd.0).map_err(|_| Errno::EBADF)?;
        let descriptors = self.descriptors();
        let file = descriptors.get(index).and_then(Option::as_ref);
        file.cloned().ok_or(Errno::EBADF)
    }

    /// Gives the file the lowest free descriptor.
    fn install(&self, file: &Arc<OpenFile>) -> Result<Fd, Errno> {
        let mut descriptors = self.descriptors();
        let free = descriptors.iter().position(Option::is_none);
        let index = free.unwrap_or(descriptors.len());
        if index >= DESCRIPTORS_MAX {
            return Err(Errno::EMFILE);
        }
        let fd = i32::try_from(index).map(Fd).map_err(|_| Errno::EMFILE)?;
        if index == descriptors.len() {
            descriptors.push(None);
        }
        descriptors[index] = Some(Arc::clone(file));
        Ok(fd)
    }

    /// Calls the driver with memory of this process: what is lent, and its buffers.
    fn call<R>(
        &self,
        arg: &mut [u8],
        lent: &mut [Lent<'_>],
        call: impl FnOnce(&Caller<'_>) -> R,
    ) -> R {
        let killed = || self.killed.load(Ordering::Relaxed);
        self.space.call(arg, lent, |memory: &dyn UserMemory| {
            call(&Caller {
                pid: self.pid,
                memory,
                killed: &killed,
            })
        })
    }

    /// Closes one descriptor of the file, which has been taken out of the table.
    fn flush(&self, file: Arc<OpenFile>) {
        self.call(&mut [], &mut [], |caller| {
            self.machine.driver.flush(caller, file.id);
        });
        self.put(file);
    }

    /// Lets go of a file; whoever is the last to do so releases it.
    fn put(&self, file: Arc<OpenFile>) {
        if let Some(file) = Arc::into_inner(file) {
            self.call(&mut [], &mut [], |caller| {
                self.machine.driver.release(caller, file.id);
            });
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.killed.store(true, Ordering::Relaxed);
        self.space.close();
        let open = std::mem::take(&mut *self.descriptors());
        for file in open.into_iter().flatten() {
            self.flush(file);
        }
    }
}

impl Transport for Process {
    fn open(&self, device: DeviceId, mode: OpenMode) -> Result<Fd, Errno> {
        let id = self.call(&mut [], &mut [], |caller| {
            self.machine.driver.open(caller, device, mode)
        })?;
        let file = Arc::new(OpenFile { device, id });
        self.install(&file).inspect_err(|_| self.flush(file))
    }

    fn dup(&self, fd: Fd) -> Result<Fd, Errno> {
        let file = self.file(fd)?;
        let second = self.install(&file);
        self.put(file);
        second
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let index = usize::try_from(fd.0).map_err(|_| Errno::EBADF)?;
        let taken = self
            .descriptors()
            .get_mut(index)
            .and_then(Option::take)
            .ok_or(Errno::EBADF)?;
        self.flush(taken);
        Ok(())
    }

    fn ioctl(
        &self,
        fd: Fd,
        word: u32,
        arg: &mut [u8],
        lent: &mut [Lent<'_>],
    ) -> Result<i32, Errno> {
        let file = self.file(fd)?;
        let at: UserAddr = user_addr(arg);
        let answer = self.call(arg, lent, |caller| {
            self.machine.driver.ioctl(caller, file.id, word, at)
        });
        self.put(file);
        answer
    }

    fn mmap(&self, fd: Fd, offset: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Errno> {
        let file = self.file(fd)?;
        let device = file.device;
        let grant = self.call(&mut [], &mut [], |caller| {
            self.machine
                .driver
                .mmap(caller, file.id, offset, size_bytes)
        });
        self.put(file);
        let grant = grant?;
        let profile = self.machine.arch.profile();
        let bytes = match profile.bus_to_host(grant.at) {
            Some(at) => self.machine.host.mapping(at, grant.size_bytes, true),
            None => self
                .machine
                .devices
                .get(device.index())
                .and_then(|device| device.mapping(grant.at, grant.size_bytes)),
        };
        let Some(bytes) = bytes else {
            self.machine.driver.munmap(grant.map);
            return Err(Errno::EINVAL);
        };
        Ok(Arc::new(Mapped {
            bytes,
            is_writable: grant.writable,
            map: grant.map,
            machine: Arc::clone(&self.machine),
        }))
    }

    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        self.space.buffer(size_bytes)
    }

    fn sched(&self) -> &dyn Sched {
        &*self.machine.sched
    }

    fn insight(&self, device: DeviceId) -> Option<PoolSnapshot> {
        self.machine.driver.insight(device)
    }
}

/// A mapping that the driver knows of, with the access that it granted.
struct Mapped {
    bytes: Arc<dyn Mapping>,
    is_writable: bool,
    map: MapId,
    machine: Arc<Parts>,
}

impl Mapping for Mapped {
    fn size_bytes(&self) -> u64 {
        self.bytes.size_bytes()
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MappingError> {
        self.bytes.read(offset_bytes, into)
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError> {
        if !self.is_writable {
            return Err(MappingError::ReadOnly);
        }
        self.bytes.write(offset_bytes, bytes)
    }

    fn words(&self, offset_bytes: u64, size_bytes: u64) -> Result<&[AtomicU32], MappingError> {
        if !self.is_writable {
            return Err(MappingError::ReadOnly);
        }
        self.bytes.words(offset_bytes, size_bytes)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.machine.driver.munmap(self.map);
    }
}
