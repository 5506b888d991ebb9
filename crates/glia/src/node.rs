//! The way to a real driver: [`DeviceNode`] is a [`Transport`] over `/dev/neuron*`.
//!
//! ```text
//!   runtime ── Transport ──► DeviceNode ── Sys ──► Linux: open, ioctl, mmap ──► the kernel's driver
//!                            fd table, pointers      └► in tests: a fake over the software driver
//! ```
//!
//! **It has never met silicon.** It is tested over a fake of the system calls that answers with
//! Glia's own driver, and with the real system calls on ordinary files. What a real node does beyond
//! that is not known here.
//!
//! A real node is a program's own: its process id, its address space, its clock. So a buffer that is
//! lent with a command is where the struct says that it is, and no pointer has to be translated. But
//! the kernel follows any pointer, so each is looked at first (`node/call.rs`): a program in safe
//! Rust cannot have the driver write to memory that is not lent to it.
//!
//! | | the embedded driver ([`Process`](crate::machine::Process)) | a real node |
//! | --- | --- | --- |
//! | descriptors | the process's own table | the node's own table, from 0 on, over the system's |
//! | forged pointers | `EFAULT` | `EFAULT`, as far as the driver looks |
//! | pointers to arrays of pointers | to what is lent, or buffers | to what is lent for reading |
//! | asynchronous copies of lent memory that is stored at once | yes | `EFAULT` |
//! | commands of a struct that is not known | `EINVAL` | `EINVAL`; they are not sent |
//! | error numbers that no command of Glia's has | none | `EIO` |
//! | mappings after the last close | refused ([`MappingError::Gone`]) | memory, maybe somebody else's |
//! | insight, holders of cores | yes | no |
//!
//! **Who owns what.** An entry of the table owns its file; calls through it share it, so that the
//! system's descriptor is closed once, when the last of them has come out. Mappings outlive their
//! descriptor. Buffers that an asynchronous command names are held until the last descriptor of the
//! node is closed, since nobody tells when the driver is done with them.
//!
//! **Locks.** One mutex for the table, one for the list of buffers; neither is held in a system call.
//!
//! [`MappingError::Gone`]: glia_abi::transport::MappingError::Gone

mod call;
mod island;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, Fd};
use glia_abi::insight::PoolSnapshot;
use glia_abi::sched::Sched;
use glia_abi::transport::{Lent, Mapping, OpenMode, Transport, UserBuffer};
use glia_device::ThreadedSched;
use glia_device::sched::ThreadsError;

pub use call::Call;
pub use island::{Linux, NodeFile};

/// What the nodes of the reference driver are called, without their number.
const PREFIX: &str = "/dev/neuron";
/// `ENFILE`: the system has no file left, which for us is as good as no descriptor.
const ENFILE: i32 = 23;

/// The system calls that a node needs. [`Linux`] makes them; a fake can answer them.
///
/// Errors are the numbers that the system gives; those that [`Errno`] does not have are `EIO`.
pub trait Sys: Send + Sync {
    /// An open file. Dropping it closes it.
    type File: Send + Sync;

    /// Opens a node.
    ///
    /// # Errors
    /// What the system answers: `ENOENT`, `EACCES`, `EBUSY`, …
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Self::File, Errno>;

    /// A second descriptor of the same open file.
    ///
    /// # Errors
    /// `EMFILE` if no descriptor is left.
    fn dup(&self, file: &Self::File) -> Result<Self::File, Errno>;

    /// Sends a command.
    ///
    /// # Errors
    /// The command's own.
    fn ioctl(&self, file: &Self::File, call: Call<'_, '_, Self>) -> Result<i32, Errno>
    where
        Self: Sized;

    /// Maps a part of a file, for reading and, if file and driver let us, for writing.
    ///
    /// # Errors
    /// The driver's own.
    fn mmap(
        &self,
        file: &Self::File,
        offset: u64,
        size_bytes: u64,
    ) -> Result<Arc<dyn Mapping>, Errno>;

    /// Fresh memory of the process, page-aligned, zeroed.
    ///
    /// # Errors
    /// `ENOMEM` if it cannot be had.
    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno>;
}

/// The devices of this host, as their driver offers them, see the module.
pub struct DeviceNode<S: Sys = Linux> {
    sys: S,
    prefix: OsString,
    sched: ThreadedSched,
    table: Mutex<Table<S::File>>,
    /// Those that live, by address.
    buffers: Mutex<BTreeMap<u64, Weak<dyn UserBuffer>>>,
}

struct Table<F> {
    files: Vec<Option<Arc<Open<F>>>>,
    /// Of the files that are open now.
    kept: Weak<Kept>,
}

/// A descriptor. The file is closed first, then what it may still use is let go.
struct Open<F> {
    file: F,
    kept: Arc<Kept>,
}

/// Buffers that the driver may use until the last file is closed, by address.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<u64, Arc<dyn UserBuffer>>>);

impl DeviceNode {
    /// The devices of this host: `/dev/neuron0` and so on. Nothing is opened yet.
    ///
    /// # Errors
    /// [`ThreadsError`] if the thread of its clock cannot be had.
    pub fn new() -> Result<Self, ThreadsError> {
        Self::over(Linux, PREFIX)
    }
}

impl<S: Sys> DeviceNode<S> {
    /// Nodes of other names, or by other means: the name of a device's node is `prefix` and its
    /// number. On a real system they have to be nodes of the Neuron driver: another one could take
    /// its commands for something else.
    ///
    /// # Errors
    /// [`ThreadsError`] if the thread of its clock cannot be had.
    pub fn over(sys: S, prefix: impl Into<OsString>) -> Result<Self, ThreadsError> {
        Ok(Self {
            sys,
            prefix: prefix.into(),
            // Waiters of this program wake each other. There are no engines to step.
            sched: ThreadedSched::new(1)?,
            table: Mutex::new(Table {
                files: Vec::new(),
                kept: Weak::new(),
            }),
            buffers: Mutex::default(),
        })
    }

    fn path(&self, device: DeviceId) -> PathBuf {
        let mut path = self.prefix.clone();
        path.push(device.get().to_string());
        path.into()
    }

    fn table(&self) -> MutexGuard<'_, Table<S::File>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, fd: Fd) -> Result<Arc<Open<S::File>>, Errno> {
        let index = usize::try_from(fd.0).map_err(|_| Errno::EBADF)?;
        let table = self.table();
        let open = table.files.get(index).and_then(Option::as_ref);
        open.cloned().ok_or(Errno::EBADF)
    }

    /// Gives the file the lowest free number.
    fn install(&self, file: S::File) -> Result<Fd, Errno> {
        let mut table = self.table();
        let free = table.files.iter().position(Option::is_none);
        let index = free.unwrap_or(table.files.len());
        let fd = i32::try_from(index).map(Fd).map_err(|_| Errno::EMFILE)?;
        let kept = table.kept.upgrade().unwrap_or_default();
        table.kept = Arc::downgrade(&kept);
        if index == table.files.len() {
            table.files.push(None);
        }
        table.files[index] = Some(Arc::new(Open { file, kept }));
        Ok(fd)
    }

    fn buffers(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<dyn UserBuffer>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buffer that begins at an address, or next below it.
    fn find(&self, at: u64) -> Option<Arc<dyn UserBuffer>> {
        let buffers = self.buffers();
        let (_, buffer) = buffers.range(..=at).next_back()?;
        buffer.upgrade()
    }
}

impl Kept {
    fn keep(&self, buffers: &[Arc<dyn UserBuffer>]) {
        let Self(kept) = self;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let by_address = buffers.iter().map(|buffer| {
            let buffer = Arc::clone(buffer);
            (buffer.address().get(), buffer)
        });
        kept.extend(by_address);
    }
}

impl<S: Sys> Transport for DeviceNode<S> {
    fn open(&self, device: DeviceId, mode: OpenMode) -> Result<Fd, Errno> {
        self.install(self.sys.open(&self.path(device), mode)?)
    }

    fn dup(&self, fd: Fd) -> Result<Fd, Errno> {
        let open = self.file(fd)?;
        self.install(self.sys.dup(&open.file)?)
    }

    /// The system's descriptor is closed when the last call through it has come out.
    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let index = usize::try_from(fd.0).map_err(|_| Errno::EBADF)?;
        let taken = self.table().files.get_mut(index).and_then(Option::take);
        // The table is free again: a close can take its time.
        taken.map(drop).ok_or(Errno::EBADF)
    }

    fn ioctl(
        &self,
        fd: Fd,
        word: u32,
        arg: &mut [u8],
        lent: &mut [Lent<'_>],
    ) -> Result<i32, Errno> {
        let open = self.file(fd)?;
        let pointers = call::look(word, arg, lent, &|at| self.find(at))?;
        if pointers.outlast {
            open.kept.keep(&pointers.buffers);
        }
        call::send(word, arg, lent, &pointers, |call| {
            self.sys.ioctl(&open.file, call)
        })
    }

    fn mmap(&self, fd: Fd, offset: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Errno> {
        let open = self.file(fd)?;
        if size_bytes == 0 || !offset.is_multiple_of(PAGE_SIZE_BYTES) {
            return Err(Errno::EINVAL);
        }
        let mapping = self.sys.mmap(&open.file, offset, size_bytes)?;
        match mapping.size_bytes() >= size_bytes {
            true => Ok(mapping),
            false => Err(Errno::EIO),
        }
    }

    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        if size_bytes == 0 {
            return Err(Errno::ENOMEM);
        }
        let buffer = self.sys.buffer(size_bytes)?;
        let mut buffers = self.buffers();
        buffers.retain(|_, buffer| buffer.strong_count() > 0);
        buffers.insert(buffer.address().get(), Arc::downgrade(&buffer));
        Ok(buffer)
    }

    fn sched(&self) -> &dyn Sched {
        &self.sched
    }

    /// Nobody can look into a real driver.
    fn insight(&self, _: DeviceId) -> Option<PoolSnapshot> {
        None
    }
}

/// The error of a number that the system gave.
fn errno(number: i32) -> Errno {
    let known = Errno::ALL
        .into_iter()
        .find(|known| known.number() == number);
    match (known, number) {
        (Some(known), _) => known,
        (None, ENFILE) => Errno::EMFILE,
        (None, _) => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_the_systems_is_its_error_and_one_that_is_not_known_is_eio() {
        let numbers = [2, 13, 16, 23, 25, 524, 28, 0, -1];
        let known = [
            Errno::ENOENT,
            Errno::EACCES,
            Errno::EBUSY,
            Errno::EMFILE,
            Errno::ENOTTY,
            Errno::ENOTSUPP,
            Errno::EIO,
            Errno::EIO,
            Errno::EIO,
        ];
        assert_eq!(numbers.map(errno), known);
    }
}
