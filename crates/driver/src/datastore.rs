//! The datastore: a piece of host memory for each process, which it and others map to share counters.
//!
//! A device has 16 entries of 256 KiB. A process takes one for itself, others find it by the process's
//! number, and it is empty again when the process gives it back, closes the device, or nobody has the
//! device open any more. An entry takes its memory when it is used first (divergence
//! `late-datastore`) and keeps it until the device goes; whoever still maps one that has been given
//! back sees its next owner's numbers, as in the reference.
//!
//! **Locks.** One, under which memory is taken; never across a wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::addr::BusAddr;
use glia_abi::errno::Errno;
use glia_abi::handle::Pid;
use glia_abi::port::MachineMemory;
use glia_abi::usage::Category;

use crate::alloc::{AllocError, AllocRequest};
use crate::memory::{DeviceMemory, OwnedPin};

/// Entries of a device (driver 2.27).
const ENTRIES: usize = 16;
/// Bytes of each (driver 2.27).
pub(crate) const ENTRY_SIZE_BYTES: u64 = 256 << 10;
/// The memory belongs to no process.
const NOBODY: Pid = Pid::new(0);

/// The datastore of a device.
pub(crate) struct Datastore {
    memory: Arc<DeviceMemory>,
    host: Arc<dyn MachineMemory>,
    entries: Mutex<[Entry; ENTRIES]>,
}

#[derive(Default)]
struct Entry {
    owner: Option<Pid>,
    /// There from the first use on.
    pin: Option<OwnedPin>,
}

/// Why there is no entry for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DatastoreError {
    /// `ENOMEM`: all entries are taken.
    #[error("all {ENTRIES} entries of the datastore are taken")]
    Full,
    /// `ENOENT`: the process has none.
    #[error("{pid} has no entry in the datastore")]
    Unknown {
        /// The process asked for.
        pid: Pid,
    },
    /// No memory for it; the number is the cause's.
    #[error(transparent)]
    NoMemory(#[from] AllocError),
    /// `EIO`: its memory is not in host memory.
    #[error("an entry of the datastore is not in host memory")]
    NotHost,
}

impl DatastoreError {
    fn errno(self) -> Errno {
        match self {
            Self::Full => Errno::ENOMEM,
            Self::Unknown { .. } => Errno::ENOENT,
            Self::NoMemory(cause) => cause.errno(),
            Self::NotHost => Errno::EIO,
        }
    }
}

impl From<DatastoreError> for Errno {
    fn from(error: DatastoreError) -> Self {
        error.errno()
    }
}

impl Datastore {
    pub(crate) fn new(memory: Arc<DeviceMemory>, host: Arc<dyn MachineMemory>) -> Self {
        Self {
            memory,
            host,
            entries: Mutex::default(),
        }
    }

    /// The entry of the caller, a new and empty one if it has none: where it is.
    pub(crate) fn acquire(&self, caller: Pid) -> Result<BusAddr, DatastoreError> {
        let mut entries = self.lock();
        if let Some(at) = find(&entries, caller) {
            return Ok(at);
        }
        let free = entries.iter_mut().find(|entry| entry.owner.is_none());
        let free = free.ok_or(DatastoreError::Full)?;
        let pin = match free.pin.take() {
            Some(pin) => pin,
            None => self.take()?,
        };
        let pin = free.pin.insert(pin);
        let at = pin.record().at();
        let profile = self.memory.config().layout.profile();
        let host = profile.bus_to_host(at).ok_or(DatastoreError::NotHost)?;
        let cleared = self.host.fill(host, ENTRY_SIZE_BYTES, 0);
        cleared.map_err(|_| DatastoreError::NotHost)?;
        free.owner = Some(caller);
        Ok(at)
    }

    /// The entry of another process: where it is.
    pub(crate) fn find(&self, pid: Pid) -> Result<BusAddr, DatastoreError> {
        find(&self.lock(), pid).ok_or(DatastoreError::Unknown { pid })
    }

    /// Gives the entry of a process back, if it has one.
    pub(crate) fn release(&self, pid: Pid) {
        let mut entries = self.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.owner == Some(pid)) {
            entry.owner = None;
        }
    }

    /// Gives all entries back.
    pub(crate) fn clear(&self) {
        for entry in &mut *self.lock() {
            entry.owner = None;
        }
    }

    /// The processes that have an entry.
    pub(crate) fn owners(&self) -> Vec<Pid> {
        self.lock().iter().filter_map(|entry| entry.owner).collect()
    }

    fn take(&self) -> Result<OwnedPin, AllocError> {
        let request = AllocRequest {
            category: Category::NCDEV_HOST,
            site: self.memory.sites().intern("driver datastore"),
            ..AllocRequest::host(ENTRY_SIZE_BYTES)
        };
        let chunk = self.memory.alloc(NOBODY, &request)?;
        self.memory.pin_owned(chunk).map_err(|_| AllocError::Gone)
    }

    fn lock(&self) -> MutexGuard<'_, [Entry; ENTRIES]> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(entries: &[Entry; ENTRIES], pid: Pid) -> Option<BusAddr> {
    let entry = entries.iter().find(|entry| entry.owner == Some(pid))?;
    Some(entry.pin.as_ref()?.record().at())
}

impl Drop for Datastore {
    fn drop(&mut self) {
        let entries = self.entries.get_mut();
        for entry in entries.unwrap_or_else(PoisonError::into_inner) {
            if let Some(pin) = entry.pin.take() {
                let chunk = pin.chunk();
                drop(pin);
                // One that is dead went with the device's memory, or was freed by a process.
                let _ = self.memory.free(NOBODY, chunk);
            }
        }
    }
}
