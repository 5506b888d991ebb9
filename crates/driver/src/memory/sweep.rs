//! Sweeps: what happens to chunks when their process, the last file, or the device goes.
//!
//! A sweep walks one lifespan list, newest first, and takes **one** reference off each chunk. A
//! chunk that still has references moves to the head of the next list: local → the caller's process
//! → all → device. Only the list changes; the chunk's own lifespan stays. The device's list has no
//! next one: its survivors are freed against their references and reported (driver 2.27).
//!
//! | event | sweeps |
//! | --- | --- |
//! | a process closes its last file ([`flush`](DeviceMemory::flush)) | its own list |
//! | the last file of all is closed ([`release`](DeviceMemory::release)) | all |
//! | the device is torn down ([`teardown`](DeviceMemory::teardown)) | every process's, all, device; what is left then is a leak |

use glia_abi::handle::{Pid, SlotId};
use glia_abi::mem::Lifespan;

use super::{DeviceMemory, Freed, Set};
use crate::arena::Arena;
use crate::chunk::{Chunk, ChunkRef};
use crate::lifespan::{self, ListId};
use crate::pool::ScratchpadOrder;

/// A chunk that a sweep did not free, because references are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The chunk.
    pub chunk: ChunkRef,
    /// References left.
    pub refs: u32,
    /// The list that it is on now.
    pub list: ListId,
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sweep {
    /// Chunks freed, in that order.
    pub freed: Vec<ChunkRef>,
    /// Chunks that moved to the next list, in the order in which they were met.
    pub kept: Vec<Kept>,
    /// Those of `freed` that still had references.
    pub forced: Vec<ChunkRef>,
    /// The last complaint about a scratchpad page out of turn.
    pub complaint: Option<ScratchpadOrder>,
}

/// What the end of a device came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Teardown {
    /// Chunks freed by the sweeps, in that order.
    pub freed: Vec<ChunkRef>,
    /// Those of `freed` that still had references.
    pub forced: Vec<ChunkRef>,
    /// Chunks that no sweep reaches: whoever took them never gave them back. The reference stops
    /// the kernel here (divergence `teardown-leak`); Glia takes them back and names them.
    pub leaked: Vec<ChunkRef>,
    /// The last complaint about a scratchpad page out of turn.
    pub complaint: Option<ScratchpadOrder>,
}

/// A list that only attached processes have was to be swept for another (the reference stops the
/// kernel: divergence `unattached-process`). `EACCES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{pid} has not opened the device, so it has no list of the {lifespan} lifespan to sweep")]
pub struct SweepError {
    /// The caller.
    pub pid: Pid,
    /// The lifespan asked for.
    pub lifespan: Lifespan,
}

impl<A: Arena> DeviceMemory<A> {
    /// Sweeps the list of one lifespan, on behalf of `caller`.
    ///
    /// # Errors
    /// [`SweepError`] if the lifespan is local or the current process's and the caller is not
    /// attached, even if the list is empty.
    pub fn expire(&self, caller: Pid, lifespan: Lifespan) -> Result<Sweep, SweepError> {
        let mut set = self.lock();
        let own = set
            .processes
            .find(caller)
            .map(ListId::Process)
            .ok_or(SweepError {
                pid: caller,
                lifespan,
            });
        Ok(match lifespan {
            Lifespan::Local => self.sweep(&mut set, caller, ListId::Local, own?, untold),
            Lifespan::CurrentProcess => {
                self.sweep(&mut set, caller, own?, ListId::AllProcess, untold)
            }
            Lifespan::AllProcess => {
                self.sweep(&mut set, caller, ListId::AllProcess, ListId::Device, untold)
            }
            Lifespan::Device => self.sweep_device(&mut set, caller),
        })
    }

    /// Ends the device: sweeps every list, takes back what leaked, shuts the handle table down and
    /// returns the reserve pages to the machine (with the last pin, if pins are held). Whatever is
    /// asked of the device afterwards is refused; a second teardown finds nothing to do.
    pub fn teardown(&self, caller: Pid) -> Teardown {
        let mut set = self.lock();
        let mut result = Teardown::default();
        if std::mem::replace(&mut set.torn_down, true) {
            return result;
        }
        let slots: Vec<SlotId> = set.processes.attached().map(|(slot, _, _)| slot).collect();
        for slot in slots {
            let list = ListId::Process(slot);
            let sweep = self.sweep(&mut set, caller, list, ListId::Device, untold);
            result.absorb(sweep);
        }
        let sweep = self.sweep(&mut set, caller, ListId::AllProcess, ListId::Device, untold);
        result.absorb(sweep);
        let sweep = self.sweep_device(&mut set, caller);
        result.absorb(sweep);
        for list in ListId::all() {
            let left: Vec<ChunkRef> = lifespan::iter(&self.slab, list).collect();
            for chunk in left {
                // The complaint, if any, belongs to a step that the reference does not reach.
                self.free_by_force(&mut set, caller, chunk);
                result.leaked.push(chunk);
            }
        }
        if set.held.is_empty() {
            set.pools.return_reserves();
        }
        self.handles.shut_down(&mut set.free_handles);
        result
    }

    /// One reference off each chunk of `list`; survivors move to `next`, and `ended` is told of the
    /// others, with their records.
    pub(super) fn sweep(
        &self,
        set: &mut Set<A>,
        caller: Pid,
        list: ListId,
        next: ListId,
        mut ended: impl FnMut(ChunkRef, &Chunk),
    ) -> Sweep {
        let mut sweep = Sweep::default();
        let chunks: Vec<ChunkRef> = lifespan::iter(&self.slab, list).collect();
        for chunk in chunks {
            let record = self.slab.read_kept(chunk);
            match self.drop_reference(set, caller, chunk) {
                Ok(Freed::Gone { complaint }) => {
                    ended(chunk, &record);
                    sweep.note_freed(chunk, complaint);
                }
                Ok(Freed::Held) => {
                    ended(chunk, &record);
                    sweep.note_freed(chunk, None);
                }
                Ok(Freed::Kept { refs }) => {
                    lifespan::unlink(&self.slab, chunk);
                    lifespan::push(&self.slab, next, chunk);
                    sweep.kept.push(Kept {
                        chunk,
                        refs,
                        list: next,
                    });
                }
                Err(dead) => debug_assert!(false, "a list held a dead chunk: {dead}"),
            }
        }
        sweep
    }

    /// The device's own list has no next one: survivors are freed against their references.
    fn sweep_device(&self, set: &mut Set<A>, caller: Pid) -> Sweep {
        let mut sweep = Sweep::default();
        let chunks: Vec<ChunkRef> = lifespan::iter(&self.slab, ListId::Device).collect();
        for chunk in chunks {
            if self.chunk(chunk).is_some_and(|record| record.refs() > 1) {
                sweep.forced.push(chunk);
            }
            let complaint = self.free_by_force(set, caller, chunk);
            sweep.note_freed(chunk, complaint);
        }
        sweep
    }

    fn free_by_force(
        &self,
        set: &mut Set<A>,
        caller: Pid,
        chunk: ChunkRef,
    ) -> Option<ScratchpadOrder> {
        self.slab.set_refs(chunk, 1);
        match self.drop_reference(set, caller, chunk) {
            Ok(Freed::Gone { complaint }) => complaint,
            Ok(Freed::Held | Freed::Kept { .. }) | Err(_) => None,
        }
    }
}

/// For sweeps of which nobody wants to hear.
pub(super) fn untold(_: ChunkRef, _: &Chunk) {}

impl Sweep {
    fn note_freed(&mut self, chunk: ChunkRef, complaint: Option<ScratchpadOrder>) {
        self.freed.push(chunk);
        self.complaint = complaint.or(self.complaint);
    }
}

impl Teardown {
    fn absorb(&mut self, sweep: Sweep) {
        self.freed.extend(sweep.freed);
        self.forced.extend(sweep.forced);
        self.complaint = sweep.complaint.or(self.complaint);
    }
}
