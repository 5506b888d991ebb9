//! A process: a table of descriptors, an address space, and the way to the driver.
//!
//! ```text
//!   open, ioctl, mmap, … ──► gate ──► driver         kill, drop ──► gate shut
//!                             │ entered                              waits: nobody inside
//!                             └ left ──────────────────────────────► flush, release of each file
//! ```
//!
//! **A call is inside** from the gate until it has come out again, however it ends. A process that is
//! [killed](Process::kill) lets nobody in any more and ends when nobody is inside, so that the driver
//! never sees a call of a process that has gone. So is an access to a mapping inside, of the mapping's
//! life: it ends before that does, and later ones are refused.
//!
//! A [child](Process::fork) has its parent's open files, each of which lives as long as one of both has
//! a descriptor of it. It is another process to the driver, attached to nothing.
//!
//! **Locks.** One mutex for descriptors and gate, held for look-ups only.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::addr::UserAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, Fd, FileId, Pid};
use glia_abi::insight::PoolSnapshot;
use glia_abi::sched::{Poll, Sched, SleepLock, WaitOn};
use glia_abi::sync::AtomicU32;
use glia_abi::transport::{
    Caller, Lent, Mapping, MappingError, OpenMode, Transport, UserBuffer, UserMemory, user_addr,
};
use glia_device::AddressSpace;
use glia_driver::mmap::{MapId, MapLife};

use super::Parts;

// LIMIT: the usual limit of a process.
const DESCRIPTORS_MAX: usize = 1024;
/// The process ids that Linux gives. (0 is nobody, and the last one of 32 bits means all processes
/// to the commands for resets.)
const PIDS: RangeInclusive<u32> = 1..=1 << 22;

/// A process of a [`Machine`](super::Machine). Dropping it is its exit: every descriptor is closed,
/// and the driver takes back what was its. [`kill`](Self::kill) does the same earlier.
pub struct Process {
    machine: Arc<Parts>,
    pid: Pid,
    space: AddressSpace,
    table: Mutex<Table>,
    killed: AtomicBool,
    /// Calls that have come out again, of those that [`Table::entered`] counts.
    left: AtomicU64,
    /// Woken when a call comes out of a process that is to end.
    on: WaitOn,
    /// Whether it has ended. Held by whoever ends it, until it has.
    exit: SleepLock<bool>,
}

/// The gate, and what is behind it.
#[derive(Default)]
struct Table {
    files: Vec<Option<Arc<OpenFile>>>,
    /// How calls are answered that do not get in; `None` while the gate is open.
    shut: Option<Errno>,
    /// Calls that have got in so far.
    entered: u64,
}

/// An open file, which lives as long as a descriptor of it or a call through one.
#[derive(Clone, Copy)]
struct OpenFile {
    device: DeviceId,
    id: FileId,
}

/// A call that is inside, until this is dropped.
struct Inside<'a>(&'a Process);

/// A file that a call goes through, open until this is dropped.
struct Used<'a> {
    at: OpenFile,
    /// Some until the drop.
    file: Option<Arc<OpenFile>>,
    inside: Inside<'a>,
}

impl Process {
    pub(super) fn new(machine: Arc<Parts>, pid: Pid) -> Self {
        let sched = &*machine.sched;
        let is_real = PIDS.contains(&pid.get());
        let table = Table {
            shut: (!is_real).then_some(Errno::EINVAL),
            ..Table::default()
        };
        Self {
            pid,
            space: AddressSpace::new(Arc::clone(&machine.host)),
            table: Mutex::new(table),
            killed: AtomicBool::new(false),
            left: AtomicU64::new(0),
            on: sched.wait_on(),
            exit: SleepLock::new(false, sched),
            machine,
        }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A child of this process, as `fork` makes one: of another number, and with the same open files
    /// under the same descriptors, which both close on their own. It is attached to no device before it
    /// opens one itself, and has nothing of its parent's mappings and buffers.
    ///
    /// # Errors
    /// `EBADF` if this process has been killed, `EINVAL` if no process can have the child's number.
    pub fn fork(&self, child: Pid) -> Result<Arc<Self>, Errno> {
        let child = Self::new(Arc::clone(&self.machine), child);
        let mut table = self.table();
        let inside = self.enter(&mut table)?;
        let files = table.files.clone();
        drop(table);
        let shut = {
            let mut table = child.table();
            if table.shut.is_none() {
                table.files = files;
            }
            table.shut
        };
        drop(inside);
        shut.map_or_else(|| Ok(Arc::new(child)), Err)
    }

    /// Ends the process, as a signal does that it cannot catch, and returns when it has ended. Waits
    /// of its calls that a signal may end do so with `EINTR`; all others come to their end. Then
    /// every descriptor is closed, and the driver takes back what was its.
    ///
    /// Calls that come later are answered with `EBADF`, since no descriptor is left; there are no
    /// more buffers (`ENOMEM`). Mappings that somebody still holds have ended
    /// ([`MappingError::Gone`]), buffers keep their bytes. Killing a process again does nothing.
    pub fn kill(&self) {
        let sched = &*self.machine.sched;
        let mut has_ended = self.exit.lock(sched);
        if *has_ended {
            return;
        }
        // ORDER: before the look for calls inside. A call that comes out does it the other way
        // round, so either it sees this and wakes us, or we see that it is out.
        self.killed.store(true, Ordering::SeqCst);
        let entered = {
            let mut table = self.table();
            table.shut.get_or_insert(Errno::EBADF);
            table.entered
        };
        let is_empty = || self.left.load(Ordering::SeqCst) == entered;
        if !is_empty() {
            self.machine.driver.let_waiters_look();
        }
        let mut look = || match is_empty() {
            true => Poll::Done,
            false => Poll::Pending,
        };
        sched.block(self.on, &mut look, None);
        self.space.close();
        let open = std::mem::take(&mut self.table().files);
        for file in open.into_iter().flatten() {
            self.flush(file);
        }
        self.machine.driver.exit(self.pid);
        *has_ended = true;
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call in.
    fn enter(&self, table: &mut Table) -> Result<Inside<'_>, Errno> {
        if let Some(errno) = table.shut {
            return Err(errno);
        }
        table.entered += 1;
        Ok(Inside(self))
    }

    /// Lets a call in that goes through a descriptor.
    fn file(&self, fd: Fd) -> Result<Used<'_>, Errno> {
        let mut table = self.table();
        let inside = self.enter(&mut table)?;
        let index = usize::try_from(fd.0).map_err(|_| Errno::EBADF)?;
        let file = table.files.get(index).and_then(Option::as_ref);
        let file = file.ok_or(Errno::EBADF)?;
        Ok(Used {
            at: **file,
            file: Some(Arc::clone(file)),
            inside,
        })
    }

    /// Gives the file the lowest free descriptor.
    fn install(&self, file: &Arc<OpenFile>) -> Result<Fd, Errno> {
        let mut table = self.table();
        if let Some(errno) = table.shut {
            // Meanwhile.
            return Err(errno);
        }
        let free = table.files.iter().position(Option::is_none);
        let index = free.unwrap_or(table.files.len());
        if index >= DESCRIPTORS_MAX {
            return Err(Errno::EMFILE);
        }
        let fd = i32::try_from(index).map(Fd).map_err(|_| Errno::EMFILE)?;
        if index == table.files.len() {
            table.files.push(None);
        }
        table.files[index] = Some(Arc::clone(file));
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
        self.kill();
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let Self(process) = self;
        process.left.fetch_add(1, Ordering::SeqCst);
        if process.killed.load(Ordering::SeqCst) {
            process.machine.sched.wake(process.on);
        }
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.inside.0.put(file);
        }
    }
}

impl Transport for Process {
    fn open(&self, device: DeviceId, mode: OpenMode) -> Result<Fd, Errno> {
        let _inside = self.enter(&mut self.table())?;
        let id = self.call(&mut [], &mut [], |caller| {
            self.machine.driver.open(caller, device, mode)
        })?;
        let file = Arc::new(OpenFile { device, id });
        self.install(&file).inspect_err(|_| self.flush(file))
    }

    fn dup(&self, fd: Fd) -> Result<Fd, Errno> {
        let used = self.file(fd)?;
        let file = used.file.as_ref().ok_or(Errno::EBADF)?;
        self.install(file)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let index = usize::try_from(fd.0).map_err(|_| Errno::EBADF)?;
        let mut table = self.table();
        let _inside = self.enter(&mut table)?;
        let taken = table.files.get_mut(index).and_then(Option::take);
        drop(table);
        self.flush(taken.ok_or(Errno::EBADF)?);
        Ok(())
    }

    fn ioctl(
        &self,
        fd: Fd,
        word: u32,
        arg: &mut [u8],
        lent: &mut [Lent<'_>],
    ) -> Result<i32, Errno> {
        let used = self.file(fd)?;
        let at: UserAddr = user_addr(arg);
        self.call(arg, lent, |caller| {
            self.machine.driver.ioctl(caller, used.at.id, word, at)
        })
    }

    fn mmap(&self, fd: Fd, offset: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Errno> {
        let used = self.file(fd)?;
        let OpenFile { device, id } = used.at;
        let grant = self.call(&mut [], &mut [], |caller| {
            self.machine.driver.mmap(caller, id, offset, size_bytes)
        })?;
        // Another thread may have closed the device meanwhile.
        let life = self.machine.driver.map_life(grant.map);
        let life = life.ok_or(Errno::EBADF)?;
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
            life,
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

    fn core_holder(&self, device: DeviceId, core: CoreId) -> Option<Pid> {
        self.machine.driver.core_holder(device, core)
    }
}

/// A mapping that the driver knows of, with the access that it granted.
struct Mapped {
    bytes: Arc<dyn Mapping>,
    is_writable: bool,
    map: MapId,
    life: Arc<MapLife>,
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
        let read = || self.bytes.read(offset_bytes, into);
        self.life.access(read).ok_or(MappingError::Gone)?
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError> {
        if !self.is_writable {
            return Err(MappingError::ReadOnly);
        }
        let write = || self.bytes.write(offset_bytes, bytes);
        self.life.access(write).ok_or(MappingError::Gone)?
    }

    fn words(&self, offset_bytes: u64, size_bytes: u64) -> Result<&[AtomicU32], MappingError> {
        if !self.is_writable {
            return Err(MappingError::ReadOnly);
        }
        let words = || self.bytes.words(offset_bytes, size_bytes);
        self.life.lend(words).ok_or(MappingError::Gone)?
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.machine.driver.munmap(self.map);
    }
}
