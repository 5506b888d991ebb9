//! Attach slots: which processes have the device open.
//!
//! A device has 16 slots. The first open of a process takes the lowest free one, each further open
//! counts up, each close counts down, and at 0 the slot is free again. The slot keeps its **byte
//! counters** when its process goes, and the next process that takes it inherits them (driver 2.27;
//! the recorded traces show it). Everything here is called under the set's lock, but for the one
//! question whether a process is attached.

use glia_abi::handle::{Pid, SlotId};
use glia_abi::mem::Location;

use crate::sync::{AtomicU32, Ordering};
use crate::usage::Balance;

/// Attach slots of a device (driver 2.27, `NEURON_MAX_PROCESS_PER_DEVICE`).
pub const ATTACH_SLOTS: u32 = 16;

/// A slot's process and its counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttachSlot {
    /// The process, while attached.
    pub(crate) pid: Option<Pid>,
    /// How often it has the device open.
    pub(crate) opens: u32,
    /// Host bytes charged to the slot.
    pub(crate) host: Balance,
    /// Device bytes charged to the slot.
    pub(crate) device: Balance,
}

impl AttachSlot {
    fn bytes(&mut self, location: Location) -> &mut Balance {
        match location {
            Location::Host => &mut self.host,
            Location::Device => &mut self.device,
        }
    }
}

/// All slots are taken (the reference answers `EBUSY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{pid} cannot attach: all 16 attach slots are taken, by pids {holders:?}")]
pub struct SlotsFull {
    /// Who wanted in.
    pub pid: Pid,
    /// Who is in, by slot; 0 for a slot that is taken by order of a fault plan only.
    pub holders: [u32; ATTACH_SLOTS as usize],
}

/// The slots of a device.
#[derive(Debug, Default)]
pub(crate) struct AttachSlots {
    slots: [AttachSlot; ATTACH_SLOTS as usize],
    /// A bit per slot that has a process.
    taken: u32,
}

impl AttachSlots {
    /// The slot of `pid`, if attached.
    pub(crate) fn find(&self, pid: Pid) -> Option<SlotId> {
        // Every allocation and every free comes here, mostly with few slots taken.
        let mut taken = self.taken;
        while taken != 0 {
            let number = taken.trailing_zeros();
            if self.slots[number as usize].pid == Some(pid) {
                return Some(SlotId::new(number));
            }
            taken &= taken - 1;
        }
        None
    }

    /// Counts one open of `pid` up: its slot, and how often it is open now.
    pub(crate) fn attach(&mut self, pid: Pid) -> Result<(SlotId, u32), SlotsFull> {
        let free = || Some(self.taken.trailing_ones()).filter(|&number| number < ATTACH_SLOTS);
        let Some(number) = self.find(pid).map(SlotId::get).or_else(free) else {
            return Err(self.full(pid));
        };
        let slot = &mut self.slots[number as usize];
        slot.pid = Some(pid);
        slot.opens = slot.opens.saturating_add(1);
        self.taken |= 1 << number;
        Ok((SlotId::new(number), slot.opens))
    }

    /// That there is no slot for `pid`.
    pub(crate) fn full(&self, pid: Pid) -> SlotsFull {
        let holders = self.slots.map(|slot| slot.pid.map_or(0, Pid::get));
        SlotsFull { pid, holders }
    }

    /// How often `pid` has the device open; 0 if it is not attached.
    pub(crate) fn opens(&self, pid: Pid) -> u32 {
        self.find(pid)
            .map_or(0, |slot| self.slots[slot.index()].opens)
    }

    /// Counts one open of `pid` down: how many are left, or `None` if it was not attached. At 0 the
    /// slot is free.
    pub(crate) fn detach(&mut self, pid: Pid) -> Option<u32> {
        let found = self.find(pid)?;
        let slot = &mut self.slots[found.index()];
        slot.opens = slot.opens.saturating_sub(1);
        if slot.opens == 0 {
            slot.pid = None;
            self.taken &= !(1 << found.get());
        }
        Some(slot.opens)
    }

    /// Charges an allocation to the caller's slot, if it has one.
    pub(crate) fn charge(&mut self, caller: Pid, location: Location, size_bytes: u64) {
        if let Some(slot) = self.find(caller) {
            self.slots[slot.index()].bytes(location).up(size_bytes);
        }
    }

    /// Takes a free off the slot of whoever frees, which need not be the owner's, down to 0 and not
    /// below (driver 2.27).
    pub(crate) fn discharge(&mut self, caller: Pid, location: Location, size_bytes: u64) {
        if let Some(slot) = self.find(caller) {
            let bytes = self.slots[slot.index()].bytes(location);
            let rest = bytes.total_bytes.max(0).unsigned_abs();
            bytes.down(size_bytes.min(rest));
        }
    }

    /// The slots that are taken, with their numbers.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (SlotId, Pid, &AttachSlot)> {
        (0..ATTACH_SLOTS)
            .zip(&self.slots)
            .filter_map(|(number, slot)| Some((SlotId::new(number), slot.pid?, slot)))
    }
}

/// Which processes are attached, to be asked without the set's lock: many a command wants to know no
/// more. It follows the slots, whose lock is held by whoever writes here.
#[derive(Debug, Default)]
pub(crate) struct Attached([AtomicU32; ATTACH_SLOTS as usize]);

impl Attached {
    /// Shows what the slots are now.
    pub(crate) fn follow(&self, slots: &AttachSlots) {
        for (shown, slot) in self.0.iter().zip(&slots.slots) {
            shown.store(slot.pid.map_or(0, Pid::get), Ordering::Relaxed);
        }
    }

    /// Whether `pid` is attached. Of a process that is opening or closing the device at this moment
    /// either is true.
    pub(crate) fn has(&self, pid: Pid) -> bool {
        let mut shown = self.0.iter();
        // ORDER: a process that has opened the device knows that, and so does whom it has told.
        pid.get() != 0 && shown.any(|shown| shown.load(Ordering::Relaxed) == pid.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_attached_is_seen_without_the_slots() {
        let (mut slots, attached) = (AttachSlots::default(), Attached::default());
        let (a, b) = (Pid::new(10), Pid::new(11));
        for pid in [a, b, b] {
            slots.attach(pid).unwrap();
            attached.follow(&slots);
        }
        assert_eq!(
            [a, b, Pid::new(0)].map(|pid| attached.has(pid)),
            [true, true, false]
        );
        for pid in [a, b] {
            slots.detach(pid);
            attached.follow(&slots);
        }
        assert_eq!([a, b].map(|pid| attached.has(pid)), [false, true]);
    }

    #[test]
    fn the_lowest_free_slot_is_taken_and_given_back_at_the_last_close() {
        let mut slots = AttachSlots::default();
        let (a, b) = (Pid::new(10), Pid::new(11));
        assert_eq!(slots.attach(a), Ok((SlotId::new(0), 1)));
        assert_eq!(slots.attach(b), Ok((SlotId::new(1), 1)));
        assert_eq!(slots.attach(a), Ok((SlotId::new(0), 2)));
        assert_eq!(slots.detach(a), Some(1));
        assert_eq!(slots.detach(a), Some(0));
        assert_eq!(slots.detach(a), None);
        assert_eq!(slots.attach(Pid::new(12)), Ok((SlotId::new(0), 1)));
    }

    #[test]
    fn the_seventeenth_process_is_told_who_is_in() {
        let mut slots = AttachSlots::default();
        for pid in 1..=16 {
            slots.attach(Pid::new(pid)).unwrap();
        }
        let full = slots.attach(Pid::new(99)).unwrap_err();
        assert_eq!(full.holders[15], 16);
        assert!(
            full.to_string()
                .starts_with("pid 99 cannot attach: all 16 attach slots are taken, by pids [1, 2,")
        );
    }

    #[test]
    fn byte_counters_stay_in_the_slot_and_never_go_below_zero() {
        let mut slots = AttachSlots::default();
        let (first, second) = (Pid::new(1), Pid::new(2));
        slots.attach(first).unwrap();
        slots.charge(first, Location::Device, 4096);
        slots.detach(first);
        slots.attach(second).unwrap();
        assert_eq!(slots.slots[0].device.total_bytes, 4096);
        slots.discharge(second, Location::Device, 1 << 30);
        assert_eq!(slots.slots[0].device.total_bytes, 0);
        assert_eq!(slots.slots[0].device.peak_bytes, 4096);
    }
}
