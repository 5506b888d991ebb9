//! The firmware: misc RAM, and the resets that a driver asks for there.
//!
//! ```text
//!   ResetCores, ResetType ──► ResetTrigger ──► engines: as after power-on
//!                                              Status: bit 3 set ── a while ──► clear
//! ```
//!
//! Misc RAM is storage, but for two words. A write to the trigger begins the reset that the other
//! words describe: what the affected engines had under way is lost at once, with their registers
//! and whatever had stopped them, and nobody else's is. Then nothing happens for a
//! [configured](crate::DeviceConfig::reset) time, until the status says that the reset has ended.
//! A type that the firmware does not know, and a map of no core, affect nobody, and take their time
//! all the same.
//!
//! **A second trigger while a reset runs** is a reset in its own right: its cores are affected at
//! once, and the time begins anew, for both. So a reset never ends before the cores that were asked
//! for last have had theirs. (uncertain: what real firmware does)
//!
//! **A defect of V2** belongs to the fault plan: each batch that is announced meanwhile is marked as
//! such, whichever core's it is.
//!
//! **Locks.** One mutex, for the words and the reset. Engines are reset under it, so that a write
//! to the trigger has taken effect when it returns, before the reset can end, and two do not mix.
//! That kicks queues, which never take it; no kick steps anybody else meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use glia_abi::event::{Event, Ids};
use glia_abi::handle::{CoreId, WorkerId};
use glia_abi::regs::{FirmwareReg, RESET_RUNS_BIT, ResetType};
use glia_abi::sched::{Micros, Step, Tick, Worker};
use glia_abi::sync::Ordering;

use crate::bus::Bus;

/// Cores by their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cores(u32);

impl Cores {
    /// The whole device: its cores and what belongs to none.
    pub(crate) const ALL: Self = Self(u32::MAX);

    /// Whether a core is among them.
    pub(crate) fn has(self, core: CoreId) -> bool {
        self.0.checked_shr(core.get()).unwrap_or(0) & 1 != 0
    }
}

/// The firmware of a device, see the module.
pub(crate) struct Firmware {
    bus: Arc<Bus>,
    /// How long a reset takes.
    takes: Micros,
    state: Mutex<State>,
    worker: OnceLock<WorkerId>,
}

#[derive(Default)]
struct State {
    /// What was written, by offset in misc RAM.
    words: BTreeMap<u64, u32>,
    running: Option<Running>,
}

/// Resets that run.
#[derive(Clone, Copy)]
struct Running {
    cores: Cores,
    until: Tick,
}

impl State {
    fn word(&self, register: FirmwareReg) -> u32 {
        self.words.get(&register.offset()).copied().unwrap_or(0)
    }

    /// What the words ask for.
    fn asked(&self) -> Cores {
        match ResetType::from_raw(self.word(FirmwareReg::ResetType)) {
            Some(ResetType::Device) => Cores::ALL,
            Some(ResetType::Cores) => Cores(self.word(FirmwareReg::ResetCores)),
            None => Cores(0),
        }
    }
}

impl Firmware {
    /// Firmware with nothing to do.
    pub(crate) fn new(bus: Arc<Bus>, takes: Micros) -> Self {
        Self {
            bus,
            takes,
            state: Mutex::default(),
            worker: OnceLock::new(),
        }
    }

    /// The value of a word of misc RAM; 0 if it was never written. The offset is a multiple of 4.
    pub(crate) fn read(&self, offset: u64) -> u32 {
        let state = self.state();
        if offset == FirmwareReg::Status.offset() {
            return if state.running.is_some() {
                RESET_RUNS_BIT
            } else {
                0
            };
        }
        state.words.get(&offset).copied().unwrap_or(0)
    }

    /// Sets a word; false if it is read-only. The trigger has `power_on` reset what is affected.
    pub(crate) fn write(
        self: &Arc<Self>,
        offset: u64,
        value: u32,
        power_on: impl FnOnce(Cores),
    ) -> bool {
        if offset == FirmwareReg::Status.offset() {
            return false;
        }
        let mut state = self.state();
        state.words.insert(offset, value);
        if offset == FirmwareReg::ResetTrigger.offset() {
            let cores = state.asked();
            let before = state.running.map_or(0, |running| running.cores.0);
            state.running = Some(Running {
                cores: Cores(before | cores.0),
                until: self.bus.sched.now().after(self.takes),
            });
            self.bus.in_reset.store(true, Ordering::Release);
            self.tell(&Event::ResetBegan { cores: cores.0 });
            power_on(cores);
            drop(state);
            self.kick();
        }
        true
    }

    fn kick(self: &Arc<Self>) {
        let sched = &self.bus.sched;
        let worker = self.worker.get_or_init(|| {
            let firmware: Arc<dyn Worker> = Arc::<Self>::clone(self);
            sched.spawn(Arc::downgrade(&firmware))
        });
        sched.kick(*worker);
    }

    fn tell(&self, event: &Event) {
        self.bus.tell(&Ids::device(self.bus.device), event);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker for Firmware {
    fn step(&self, now: Tick) -> Step {
        let mut state = self.state();
        match state.running {
            Some(Running { until, .. }) if now < until => Step::At(until),
            Some(Running { cores, .. }) => {
                state.running = None;
                self.bus.in_reset.store(false, Ordering::Release);
                self.tell(&Event::ResetEnded { cores: cores.0 });
                Step::Idle
            }
            None => Step::Idle,
        }
    }
}
