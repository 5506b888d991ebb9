//! Files: opening the device and closing it again.
//!
//! An open counts a file and attaches its process to one of the 16 slots. A close comes in two
//! halves, as in the reference: [`flush`](DeviceMemory::flush) runs on every close of a descriptor
//! and sweeps what dies with the process; [`release`](DeviceMemory::release) runs when the file
//! itself goes and sweeps what lives as long as any file is open. What a sweep does is told in
//! [`sweep`](super::sweep).

use glia_abi::fault::FaultPoint;
use glia_abi::handle::{Pid, SlotId};

use super::DeviceMemory;
use super::sweep::{Sweep, untold};
use crate::arena::Arena;
use crate::chunk::{Chunk, ChunkRef};
use crate::lifespan::ListId;
use crate::process::SlotsFull;

/// A process has opened the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Its attach slot.
    pub slot: SlotId,
    /// How often it has the device open now.
    pub open_count: u32,
}

/// What a close did, before the file itself is released.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flushed {
    /// How often the process had the device open before.
    pub attached: u32,
    /// The sweep of its list, if this was its last close.
    pub sweep: Option<Sweep>,
    /// How often it has the device open now; `None` if it never had.
    pub open_left: Option<u32>,
}

/// The device cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// `EBUSY`: no attach slot is free.
    #[error(transparent)]
    Busy(#[from] SlotsFull),
    /// `ENODEV`: the device has been torn down.
    #[error("the device has been torn down")]
    Gone,
}

impl<A: Arena> DeviceMemory<A> {
    /// Counts a file of `pid` up and attaches the process.
    ///
    /// # Errors
    /// [`OpenError`] if all 16 attach slots are taken by others, or the device is gone; nothing
    /// changes then.
    pub fn open(&self, pid: Pid) -> Result<Opened, OpenError> {
        let mut set = self.lock();
        if set.torn_down {
            return Err(OpenError::Gone);
        }
        // Whoever is in needs no slot.
        if set.processes.find(pid).is_none() && self.faults.orders(FaultPoint::ProcessSlot) {
            return Err(set.processes.full(pid).into());
        }
        let (slot, open_count) = set.processes.attach(pid)?;
        self.attached.follow(&set.processes);
        set.open_files += 1;
        Ok(Opened { slot, open_count })
    }

    /// How often `pid` has the device open; 0 if it is not attached.
    #[must_use]
    pub fn open_count(&self, pid: Pid) -> u32 {
        self.lock().processes.opens(pid)
    }

    /// Whether `pid` has the device open. Takes no lock.
    #[must_use]
    pub fn is_attached_by(&self, pid: Pid) -> bool {
        self.attached.has(pid)
    }

    /// Whether any process has the device open.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.lock().processes.attached().next().is_some()
    }

    /// The first half of a close: sweeps the process's list if this is its last one, then detaches
    /// it once.
    ///
    /// Runs on every close of a descriptor, so a process that never opened the device (a fork's
    /// child) may come here; nothing is done for it.
    pub fn flush(&self, pid: Pid) -> Flushed {
        self.flush_telling(pid, untold)
    }

    /// The second half of a close: counts the file down and, if that was the device's last one,
    /// sweeps what lives as long as files are open; `None` if it was not.
    ///
    /// Like the reference, this believes its caller: a release without an open makes the count
    /// negative, and the next open and release then sweep nothing.
    pub fn release(&self, pid: Pid) -> Option<Sweep> {
        self.release_telling(pid, untold)
    }

    /// [`flush`](Self::flush), with a word to `ended`, under the lock, on each chunk that goes.
    pub(crate) fn flush_telling(&self, pid: Pid, ended: impl FnMut(ChunkRef, &Chunk)) -> Flushed {
        let mut set = self.lock();
        let attached = set.processes.opens(pid);
        let last = set.processes.find(pid).filter(|_| attached == 1);
        let sweep = last.map(|slot| {
            let own = ListId::Process(slot);
            self.sweep(&mut set, pid, own, ListId::AllProcess, ended)
        });
        let open_left = set.processes.detach(pid);
        self.attached.follow(&set.processes);
        Flushed {
            attached,
            sweep,
            open_left,
        }
    }

    /// [`release`](Self::release), with a word to `ended`, under the lock, on each chunk that goes.
    pub(crate) fn release_telling(
        &self,
        pid: Pid,
        ended: impl FnMut(ChunkRef, &Chunk),
    ) -> Option<Sweep> {
        let mut set = self.lock();
        set.open_files = set.open_files.saturating_sub(1);
        (set.open_files == 0)
            .then(|| self.sweep(&mut set, pid, ListId::AllProcess, ListId::Device, ended))
    }
}
