//! Stands between the driver and its machine: passes everything on, remembers what matters, and
//! answers waits as a test wants.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use glia_abi::addr::{HostPa, RegOffset};
use glia_abi::arch::ArchProfile;
use glia_abi::handle::{DeviceId, PinId, QueueId, WorkerId};
use glia_abi::port::{
    BadBar4Range, BadHostRange, Budget, DmaMemory, HostMemory, Look, MachineMemory, NotCompleted,
    Port, PortTap, TimedOut,
};
use glia_abi::regs::{Place, QueueReg};
use glia_abi::sched::Tick;
use glia_abi::sync::AtomicU32;
use glia_abi::udma::Direction;
use glia_device::{Device, HostArena};

/// What the driver did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It reset one side of a queue, which does nothing from here on that it was given before.
    Stopped(Direction),
    /// It gave a pin back.
    Unpinned,
    /// It waited for a word.
    Waited(Budget),
    /// Its worker looked for a word, for which it has waited since then.
    Looked(Tick, Budget),
    /// Nobody is kicked by a queue any more.
    Unattended,
    /// It stored bytes through BAR4.
    Stored(u64),
}

/// How a wait, or a look, ends whatever the engine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    TimedOut,
    /// The thread that waits is unwound.
    Unwound,
}

pub(crate) struct Watch {
    profile: &'static ArchProfile,
    device: Arc<Device>,
    host: Arc<HostArena>,
    seen: Mutex<Vec<Seen>>,
    answers: Mutex<VecDeque<Answer>>,
}

impl Watch {
    pub(crate) fn new(
        profile: &'static ArchProfile,
        device: Arc<Device>,
        host: Arc<HostArena>,
    ) -> Self {
        Self {
            profile,
            device,
            host,
            seen: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    /// What was seen since the last time.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    pub(crate) fn last(&self) -> Option<Seen> {
        self.seen.lock().unwrap().last().copied()
    }

    /// The next so many waits and looks end like this; those behind them are real.
    pub(crate) fn script(&self, answer: Answer, count: usize) {
        let mut answers = self.answers.lock().unwrap();
        answers.extend(std::iter::repeat_n(answer, count));
    }

    fn see(&self, seen: Seen) {
        self.seen.lock().unwrap().push(seen);
    }

    fn answer(&self, queue: QueueId) -> Result<(), TimedOut> {
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            None => Ok(()),
            Some(Answer::TimedOut) => Err(TimedOut {
                queue,
                reason: NotCompleted::TimeOver,
            }),
            Some(Answer::Unwound) => std::panic::resume_unwind(Box::new("unwound")),
        }
    }
}

impl PortTap for Watch {
    fn behind(&self) -> &dyn Port {
        &*self.device
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        if let Place::Queue {
            direction, offset, ..
        } = Place::of(self.profile, at)
            && QueueReg::of_offset(direction, offset) == Some(QueueReg::SwCtrl)
        {
            self.see(Seen::Stopped(direction));
        }
        self.device.reg_write(at, value);
    }

    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range> {
        self.see(Seen::Stored(bytes.len() as u64));
        self.device.bar4_write(offset, bytes)
    }

    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut> {
        self.see(Seen::Waited(budget));
        self.answer(queue)?;
        self.device.await_word(queue, word, want, budget)
    }

    fn look_for_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        began: Tick,
        budget: Budget,
    ) -> Look {
        self.see(Seen::Looked(began, budget));
        match self.answer(queue) {
            Ok(()) => self.device.look_for_word(queue, word, want, began, budget),
            Err(why) => Look::TimedOut(why),
        }
    }

    fn attend(&self, queue: QueueId, worker: Option<WorkerId>) {
        if worker.is_none() {
            self.see(Seen::Unattended);
        }
        self.device.attend(queue, worker);
    }
}

impl DmaMemory for Watch {
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange> {
        self.host.words(at, size_bytes)
    }

    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange> {
        self.host.read(at, into)
    }

    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange> {
        self.host.write(at, bytes)
    }

    fn fill(&self, at: HostPa, size_bytes: u64, value: u8) -> Result<(), BadHostRange> {
        self.host.fill(at, size_bytes, value)
    }
}

impl HostMemory for Watch {
    fn alloc(&self, device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        self.host.alloc(device, size_bytes)
    }

    fn free(&self, device: DeviceId, at: HostPa, size_bytes: u64) {
        self.host.free(device, at, size_bytes);
    }
}

impl MachineMemory for Watch {
    fn unpin(&self, pin: PinId) {
        self.see(Seen::Unpinned);
        self.host.unpin(pin);
    }
}
