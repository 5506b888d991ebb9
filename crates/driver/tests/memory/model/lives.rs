//! The reference's rules of how long things live: processes, sweeps, the end of the device.

use glia_abi::handle::{Pid, SlotId};
use glia_abi::mem::Lifespan;
use glia_driver::chunk::ChunkRef;
use glia_driver::lifespan::ListId;
use glia_driver::memory::Freed;
use glia_driver::memory::open::{Flushed, OpenError, Opened};
use glia_driver::memory::sweep::{Kept, Sweep, SweepError, Teardown};
use glia_driver::process::SlotsFull;

use super::reference::{Model, reserve_page_size};

impl Model {
    pub(super) fn slot(&self, pid: Pid) -> Option<usize> {
        self.slots.iter().position(|slot| slot.pid == Some(pid))
    }

    pub(super) fn list_of(&self, pid: Pid) -> Option<ListId> {
        let slot = self.slot(pid)? as u32;
        Some(ListId::Process(SlotId::new(slot)))
    }

    pub(super) fn list(&mut self, list: ListId) -> &mut Vec<ChunkRef> {
        self.lists.entry(list).or_default()
    }

    pub(super) fn open(&mut self, pid: Pid) -> Result<Opened, OpenError> {
        if self.torn_down {
            return Err(OpenError::Gone);
        }
        let lowest_free = || self.slots.iter().position(|slot| slot.pid.is_none());
        let Some(number) = self.slot(pid).or_else(lowest_free) else {
            let holders = self.slots.map(|slot| slot.pid.unwrap().get());
            return Err(SlotsFull { pid, holders }.into());
        };
        let slot = &mut self.slots[number];
        slot.pid = Some(pid);
        slot.opens += 1;
        self.open_files += 1;
        Ok(Opened {
            slot: SlotId::new(number as u32),
            open_count: slot.opens,
        })
    }

    pub(super) fn flush(&mut self, pid: Pid) -> Flushed {
        let Some(number) = self.slot(pid) else {
            return Flushed::default();
        };
        let attached = self.slots[number].opens;
        let own = self.list_of(pid).unwrap();
        let sweep = (attached == 1).then(|| self.sweep(pid, own, ListId::AllProcess));
        let slot = &mut self.slots[number];
        slot.opens -= 1;
        if slot.opens == 0 {
            slot.pid = None;
        }
        Flushed {
            attached,
            sweep,
            open_left: Some(attached - 1),
        }
    }

    pub(super) fn release(&mut self, pid: Pid) -> Option<Sweep> {
        self.open_files -= 1;
        (self.open_files == 0).then(|| self.sweep(pid, ListId::AllProcess, ListId::Device))
    }

    pub(super) fn expire(&mut self, pid: Pid, lifespan: Lifespan) -> Result<Sweep, SweepError> {
        let own = self.list_of(pid).ok_or(SweepError { pid, lifespan });
        Ok(match lifespan {
            Lifespan::Local => self.sweep(pid, ListId::Local, own?),
            Lifespan::CurrentProcess => self.sweep(pid, own?, ListId::AllProcess),
            Lifespan::AllProcess => self.sweep(pid, ListId::AllProcess, ListId::Device),
            Lifespan::Device => self.force(pid, ListId::Device),
        })
    }

    /// One reference off each, newest first; survivors move on.
    fn sweep(&mut self, caller: Pid, from: ListId, to: ListId) -> Sweep {
        let mut sweep = Sweep::default();
        for chunk in self.list(from).clone() {
            match self.free(caller, chunk).unwrap() {
                Freed::Gone { complaint } => {
                    sweep.freed.push(chunk);
                    sweep.complaint = complaint.or(sweep.complaint);
                }
                Freed::Held => sweep.freed.push(chunk),
                Freed::Kept { refs } => {
                    self.list(from).retain(|entry| *entry != chunk);
                    self.list(to).insert(0, chunk);
                    let list = to;
                    sweep.kept.push(Kept { chunk, refs, list });
                }
            }
        }
        sweep
    }

    /// Whatever references are left.
    fn force(&mut self, caller: Pid, from: ListId) -> Sweep {
        let mut forced = Vec::new();
        for chunk in self.list(from).clone() {
            let entry = self.chunks.get_mut(&chunk).unwrap();
            if entry.refs > 1 {
                forced.push(chunk);
            }
            entry.refs = 1;
        }
        let sweep = self.sweep(caller, from, from);
        Sweep { forced, ..sweep }
    }

    pub(super) fn teardown(&mut self, caller: Pid) -> Teardown {
        let mut end = Teardown::default();
        if self.torn_down {
            return end;
        }
        self.torn_down = true;
        let mut sweeps = Vec::new();
        for number in 0..16 {
            if self.slots[number].pid.is_some() {
                let own = ListId::Process(SlotId::new(number as u32));
                sweeps.push(self.sweep(caller, own, ListId::Device));
            }
        }
        sweeps.push(self.sweep(caller, ListId::AllProcess, ListId::Device));
        sweeps.push(self.force(caller, ListId::Device));
        for sweep in sweeps {
            end.freed.extend(sweep.freed);
            end.forced.extend(sweep.forced);
            end.complaint = sweep.complaint.or(end.complaint);
        }
        for list in ListId::all() {
            end.leaked.extend(self.force(caller, list).freed);
        }
        self.handles.shut_down();
        self.return_reserves_if_over();
        end
    }

    /// Reserve pages go back when the device is gone and nobody holds anything of it.
    pub(super) fn return_reserves_if_over(&mut self) {
        if !self.torn_down || !self.held.is_empty() {
            return;
        }
        for (pool, pages) in self.reserves.iter_mut().enumerate() {
            self.host_used -= pages.len() as u64 * reserve_page_size(pool);
            pages.clear();
        }
    }
}
