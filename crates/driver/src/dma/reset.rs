//! Resets of the device and of its cores: asking the firmware, waiting for it, and bringing rings
//! back (driver 2.24.7 and 2.27.4).
//!
//! ```text
//!   reset ──► window opens, rings shut ──► trigger ──► looks ──► rings open, window shuts
//!   (the caller's thread)                 (a worker, every 100 ms)
//! ```
//!
//! [`Dma::reset`] returns when the rings are shut; a [`Worker`] does the rest, one request after
//! the other in the order in which they came, and [`Dma::await_reset`] waits for it. Whatever a
//! process may ask for meanwhile, **a request ends**: the worker looks at the firmware's status
//! until it is well or the [time](ResetTimes) is over. It asks once more now and then.
//!
//! **What a reset does to a ring.** A synchronous copy is let finish. Everything else that is under
//! way is lost, and its owners learn it when they ask, during the reset or after. No copy is taken
//! until the reset has ended well, or after one that has not, until the next one has. The ring's
//! memory stays. Rings of other cores are left alone; on a generation whose engines hang, a copy
//! there may be staged again ([`crate::reset`]), after the reset.
//!
//! **What this does not do.** Queues of processes lose their rings in hardware and keep their
//! owners, who have to set them up again. A scrub that loses an engine times out.
//!
//! **Locks.** One mutex for the requests. The worker holds it while it opens rings, which it takes
//! without waiting; nobody takes it with an engine's lock held.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::handle::{CoreId, EngineId, Pid, WorkerId};
use glia_abi::ioctl::reset::WHOLE_DEVICE;
use glia_abi::regs::{FirmwareReg, NO_REGISTER, RESET_RUNS_BIT, ResetType};
use glia_abi::sched::{Micros, Poll, Sched, Step, Tick, WaitOn, Worker};

use super::budget::Platform;
use super::cores::{ENGINES_PER_CORE, inits_h2t_engine};
use super::{Dma, Links};

/// Outcomes that are remembered for those who have not asked yet.
// LIMIT: as many as there are processes on a device, with room for some that have gone.
const VERDICTS_MAX: usize = 64;

/// How the driver waits for a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResetTimes {
    /// From one look at the status to the next.
    pub look: Micros,
    /// How long after it was asked the firmware is asked once more for a reset of the device.
    pub ask_again_device: Micros,
    /// The same for a reset of cores.
    pub ask_again_cores: Micros,
    /// How often at most.
    pub ask_again_max: u32,
    /// When the reset has failed.
    pub overall: Micros,
}

impl ResetTimes {
    /// Those of the reference. (uncertain: that its scale for emulators is that of the count, and
    /// what the count counts)
    #[must_use]
    pub const fn of(arch: Arch, platform: Platform) -> Self {
        let scale = match (arch, platform) {
            (_, Platform::Emulator) | (Arch::V3 | Arch::V4, Platform::Qemu) => 1000,
            (_, Platform::Hardware) | (Arch::V2, Platform::Qemu) => 1,
        };
        Self {
            look: Micros(100_000),
            ask_again_device: Micros(30_000_000),
            ask_again_cores: Micros(10_000_000),
            ask_again_max: 5 * scale,
            overall: match arch {
                Arch::V2 => Micros(120_000_000),
                Arch::V3 | Arch::V4 => Micros(480_000_000),
            },
        }
    }
}

/// How a wait for resets ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetOutcome {
    /// Well, or there was nothing to wait for.
    Done,
    /// The firmware did not complete it.
    Failed,
    /// The caller is to end; the reset goes on.
    Killed,
}

/// The requests of a device.
pub(crate) struct ResetQueue {
    times: ResetTimes,
    /// The driver leaves resets out.
    is_off: bool,
    /// Who waits for one to end.
    on: WaitOn,
    worker: OnceLock<WorkerId>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the order in which they came; the first is being worked on.
    requests: VecDeque<Request>,
    /// What has become of the first, once the firmware was asked.
    asked: Option<Asked>,
    /// How many have come, and how many have ended.
    came: u64,
    ended: u64,
    /// The latest of each process that has asked, in the order in which they ended.
    verdicts: VecDeque<(Pid, bool)>,
    /// The latest reset of the whole device failed.
    is_device_dead: bool,
}

#[derive(Clone, Copy)]
struct Request {
    number: u64,
    by: Pid,
    /// By their bits; no others than there are.
    cores: u32,
    is_device: bool,
    /// Their rings are shut.
    is_shut: bool,
}

#[derive(Clone, Copy)]
struct Asked {
    first: Tick,
    latest: Tick,
    /// How often it was asked once more.
    again: u32,
    next_look: Tick,
    /// The engines that its cores share have been programmed since it ended.
    has_shared: bool,
}

impl ResetQueue {
    pub(super) fn new(
        profile: &ArchProfile,
        platform: Platform,
        no_reset: bool,
        sched: &dyn Sched,
    ) -> Self {
        Self {
            times: ResetTimes::of(profile.arch, platform),
            // (driver 2.24.7: there is nothing to reset on that emulator)
            is_off: no_reset || (profile.arch, platform) == (Arch::V4, Platform::Emulator),
            on: sched.wait_on(),
            worker: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Whether the driver leaves resets out.
    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    /// Whether the firmware works on a reset.
    pub(super) fn is_at_work(&self) -> bool {
        self.state().asked.is_some()
    }

    /// Waits until the reset that the firmware works on now has ended, if there is one. Its rings
    /// are shut, so whoever holds a ring that is not may wait with it.
    pub(super) fn let_pass(&self, sched: &dyn Sched) {
        let ended = {
            let state = self.state();
            if state.asked.is_none() {
                return;
            }
            state.ended
        };
        let _: Option<()> = self.wait(sched, |state| (state.ended != ended).then_some(()));
    }

    /// Waits until there is an answer. It is taken in one look: what is asked for afterwards does not
    /// change it.
    fn wait<T>(&self, sched: &dyn Sched, answer: impl Fn(&State) -> Option<T>) -> Option<T> {
        let mut answered = None;
        let mut look = || {
            answered = answer(&self.state());
            match answered {
                Some(_) => Poll::Done,
                None => Poll::Pending,
            }
        };
        sched.block(self.on, &mut look, None);
        answered
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remember(&mut self, by: Pid, went_well: bool) {
        self.verdicts.retain(|&(pid, _)| pid != by);
        self.verdicts.push_back((by, went_well));
        if self.verdicts.len() > VERDICTS_MAX {
            self.verdicts.pop_front();
        }
    }

    /// How the latest request ended: that of a process, or of all.
    fn verdict(&self, of: Option<Pid>) -> ResetOutcome {
        let mut latest = self.verdicts.iter().rev();
        match latest.find(|&&(pid, _)| of.is_none_or(|of| of == pid)) {
            Some((_, false)) => ResetOutcome::Failed,
            Some((_, true)) | None => ResetOutcome::Done,
        }
    }

    /// Cores that somebody else waits for to be reset.
    fn wanted_later(&self) -> u32 {
        let later = self.requests.iter().skip(1);
        later.fold(0, |cores, request| cores | request.cores)
    }
}

impl Dma {
    /// Asks for a reset of the cores of a bit map, or of the whole device if all bits are set, for
    /// `by`. Returns when their rings are shut; see the [module](self) for what becomes of copies.
    /// Bits of no core mean nothing. What the same process has asked for already, and nobody works on
    /// yet, is not asked for twice. Where the driver leaves resets out (parameter `no_reset`), and
    /// where no core is meant, that is all, and it went well.
    pub fn reset(self: &Arc<Self>, by: Pid, map: u32) {
        let links = &self.links;
        let there = u32::MAX
            .checked_shr(u32::BITS.saturating_sub(links.profile.cores))
            .unwrap_or(0);
        let cores = map & there;
        if links.requests.is_off || cores == 0 {
            return links.requests.state().remember(by, true);
        }
        let number = {
            let mut state = links.requests.state();
            let is_device = map == WHOLE_DEVICE;
            let is_same = |other: &Request| {
                (other.by, other.cores, other.is_device) == (by, cores, is_device)
            };
            if state.requests.iter().skip(1).any(is_same) {
                return;
            }
            links.resets.began(links.sched.now());
            state.came += 1;
            let number = state.came;
            state.requests.push_back(Request {
                number,
                by,
                cores,
                is_device,
                is_shut: false,
            });
            number
        };
        for (_, lane) in self.lanes(cores) {
            lane.suspend(links);
        }
        let mut state = links.requests.state();
        let mut requests = state.requests.iter_mut();
        if let Some(request) = requests.find(|request| request.number == number) {
            request.is_shut = true;
        }
        drop(state);
        let worker = links.requests.worker.get_or_init(|| {
            let dma: Arc<dyn Worker> = Arc::<Self>::clone(self);
            links.sched.spawn(Arc::downgrade(&dma))
        });
        links.sched.kick(*worker);
    }

    /// Waits for all requests of a process, or of anybody, that have come so far, and says how the
    /// latest of them ended.
    pub fn await_reset(&self, of: Option<Pid>, killed: &dyn Fn() -> bool) -> ResetOutcome {
        let requests = &self.links.requests;
        let latest = requests.state().came;
        let is_meant =
            |request: &Request| request.number <= latest && of.is_none_or(|of| request.by == of);
        let answer = requests.wait(&*self.links.sched, |state| {
            if state.requests.iter().any(is_meant) {
                killed().then_some(ResetOutcome::Killed)
            } else {
                Some(state.verdict(of))
            }
        });
        answer.unwrap_or(ResetOutcome::Killed)
    }

    /// Waits for all resets of the whole device that have been asked for so far, and says whether it
    /// can be used: not if the latest such reset failed (driver 2.27: the device's state).
    pub fn await_device(&self, killed: &dyn Fn() -> bool) -> ResetOutcome {
        let requests = &self.links.requests;
        let latest = requests.state().came;
        let is_meant = |request: &Request| request.is_device && request.number <= latest;
        let answer = requests.wait(&*self.links.sched, |state| {
            if state.requests.iter().any(is_meant) {
                return killed().then_some(ResetOutcome::Killed);
            }
            Some(match state.is_device_dead {
                true => ResetOutcome::Failed,
                false => ResetOutcome::Done,
            })
        });
        answer.unwrap_or(ResetOutcome::Killed)
    }

    /// Lets those who wait for a reset look whether they are to end.
    pub fn let_waiters_look(&self) {
        self.links.sched.wake(self.links.requests.on);
    }

    /// Does what is next for the first request.
    fn work_on_resets(&self, state: &mut State, now: Tick) -> Step {
        let links = &self.links;
        let times = links.requests.times;
        let Some(request) = state.requests.front().copied().filter(|it| it.is_shut) else {
            // Whoever shuts the rings kicks.
            return Step::Idle;
        };
        let Some(asked) = &mut state.asked else {
            ask(links, &request);
            let next_look = now.after(times.look);
            state.asked = Some(Asked {
                first: now,
                latest: now,
                again: 0,
                next_look,
                has_shared: false,
            });
            return Step::At(next_look);
        };
        if now < asked.next_look {
            return Step::At(asked.next_look);
        }
        let status = links.port.reg_read(FirmwareReg::Status.at(links.profile));
        // All bits set is what cannot be read.
        let is_done = status != NO_REGISTER && status & RESET_RUNS_BIT == 0;
        if is_done {
            // Once, before the first ring opens: a ring that somebody has makes us come again.
            if !std::mem::replace(&mut asked.has_shared, true) {
                self.program_shared(&request);
            }
            if let Err(on) = self.resume(&request, state.wanted_later()) {
                return Step::On(on);
            }
        } else if now < asked.first.after(times.overall) {
            let after = if request.is_device {
                times.ask_again_device
            } else {
                times.ask_again_cores
            };
            if asked.again < times.ask_again_max && now >= asked.latest.after(after) {
                (asked.latest, asked.again) = (now, asked.again + 1);
                ask(links, &request);
            }
            asked.next_look = now.after(times.look);
            return Step::At(asked.next_look);
        }
        links.resets.ended(now);
        state.requests.pop_front();
        state.asked = None;
        state.ended += 1;
        state.remember(request.by, is_done);
        if request.is_device {
            state.is_device_dead = !is_done;
        }
        if state.requests.is_empty() {
            return Step::Idle;
        }
        links.resets.began(now);
        Step::Again
    }

    /// Programs the engines of rings that a request has wiped, as far as they ever were: also those
    /// whose own core is to be reset again, since the ring of the other one may open now.
    fn program_shared(&self, request: &Request) {
        for (core, lane) in self.own_lanes(request.cores) {
            let (profile, engine) = (self.links.profile, lane.queue().engine);
            if inits_h2t_engine(profile, core, request.cores, request.is_device)
                && self.engine(engine).is_some_and(|engine| engine.is_up)
            {
                self.program(engine);
            }
        }
    }

    /// Opens the rings that were shut for a request, but for those that are to stay shut: the cores'
    /// own engines first, as at their first bring-up.
    fn resume(&self, request: &Request, but: u32) -> Result<(), WaitOn> {
        let links = &self.links;
        for (core, lane) in self.lanes(request.cores & !but) {
            lane.resume(links, || {
                // Once for each core.
                if lane.number() == core.index() {
                    self.program_own(core);
                }
            })?;
        }
        Ok(())
    }

    fn program_own(&self, core: CoreId) {
        let first = core.get() * ENGINES_PER_CORE;
        for number in first..first + ENGINES_PER_CORE {
            self.program(EngineId::new(number));
        }
    }
}

/// Asks the firmware. (uncertain: the order; the trigger comes last.)
fn ask(links: &Links, request: &Request) {
    let write = |register: FirmwareReg, value| {
        links.port.reg_write(register.at(links.profile), value);
    };
    let of = if request.is_device {
        ResetType::Device
    } else {
        write(FirmwareReg::ResetCores, request.cores);
        ResetType::Cores
    };
    write(FirmwareReg::ResetType, of.to_raw());
    write(FirmwareReg::ResetTrigger, 1);
}

impl Worker for Dma {
    fn step(&self, now: Tick) -> Step {
        let requests = &self.links.requests;
        let mut state = requests.state();
        let ended = state.ended;
        let next = self.work_on_resets(&mut state, now);
        let has_ended = state.ended != ended;
        drop(state);
        if has_ended {
            self.links.sched.wake(requests.on);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the sheet.
    #[test]
    fn times_are_those_of_the_reference() {
        let v2 = ResetTimes::of(Arch::V2, Platform::Hardware);
        assert_eq!((v2.look.0, v2.overall.0), (100_000, 120_000_000));
        assert_eq!(
            (v2.ask_again_device.0, v2.ask_again_cores.0),
            (30_000_000, 10_000_000)
        );
        assert_eq!(
            ResetTimes::of(Arch::V3, Platform::Hardware).overall.0,
            480_000_000
        );
        let again = |arch, platform| ResetTimes::of(arch, platform).ask_again_max;
        assert_eq!(again(Arch::V2, Platform::Hardware), 5);
        assert_eq!(again(Arch::V2, Platform::Emulator), 5_000);
        assert_eq!(again(Arch::V2, Platform::Qemu), 5);
        assert_eq!(again(Arch::V3, Platform::Qemu), 5_000);
    }
}
