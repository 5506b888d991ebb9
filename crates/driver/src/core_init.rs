//! Core initialisation: whose turn it is to initialise a core, so that it is done once.
//!
//! A process that wants to use a core says *started*. If nobody has initialised it, it is told to
//! go on; if somebody is at it, it waits for the outcome; if it has been done, it is told
//! *completed*. Whoever was told to go on says how it went.
//!
//! Of the reference the three states and the longest wait are known, and not what follows it.
//! (uncertain: everything else) Here the waiting process takes over then, and a process that closes
//! the device for the last time while it is at it has failed.
//!
//! **Locks.** One mutex, held for a few instructions; waits are through the [`Sched`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use glia_abi::handle::{CORES_MAX, CoreId, Pid};
use glia_abi::sched::{Micros, Poll, Sched, WaitOn};

/// How long one process waits for another: ten looks, half a second apart (driver 2.27).
const WAIT: Micros = Micros(5_000_000);

/// How far the initialisation of a core is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitState {
    /// Somebody is at it.
    Started,
    /// It is done.
    Completed,
    /// It has not been done, or went wrong.
    Invalid,
}

/// Why a core's state could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InitStateError {
    /// `E2BIG`: the device has no such core.
    #[error("{core} does not exist: the device has {cores} cores")]
    NoCore {
        /// The core asked for.
        core: CoreId,
        /// Cores of the device.
        cores: u32,
    },
    /// `EINTR`: the caller is to end.
    #[error("{process} is to end")]
    Killed {
        /// Who asked.
        process: Pid,
    },
}

/// The states of a device's cores.
pub(crate) struct CoreInit {
    cores: u32,
    states: Mutex<[Core; CORES_MAX as usize]>,
    /// Where those wait who find somebody at it.
    on: WaitOn,
}

#[derive(Debug, Clone, Copy)]
struct Core {
    state: InitState,
    /// Who set it.
    by: Option<Pid>,
}

const UNTOUCHED: Core = Core {
    state: InitState::Invalid,
    by: None,
};

impl InitState {
    /// The state of a number of the ABI.
    pub(crate) fn from_raw(raw: u32) -> Option<Self> {
        [Self::Started, Self::Completed, Self::Invalid]
            .into_iter()
            .find(|state| state.to_raw() == raw)
    }

    /// Its number in the ABI.
    pub(crate) fn to_raw(self) -> u32 {
        match self {
            Self::Started => 1,
            Self::Completed => 2,
            Self::Invalid => 3,
        }
    }
}

impl CoreInit {
    /// Of a device with so many cores.
    pub(crate) fn new(cores: u32, sched: &dyn Sched) -> Self {
        Self {
            cores,
            states: Mutex::new([UNTOUCHED; CORES_MAX as usize]),
            on: sched.wait_on(),
        }
    }

    /// Whether the device has the core.
    pub(crate) fn check(&self, core: CoreId) -> Result<(), InitStateError> {
        let cores = self.cores;
        if core.get() < cores.min(CORES_MAX) {
            Ok(())
        } else {
            Err(InitStateError::NoCore { core, cores })
        }
    }

    /// Asks for a state: the one that the core is in then.
    pub(crate) fn set(
        &self,
        sched: &dyn Sched,
        process: Pid,
        core: CoreId,
        asked: InitState,
        killed: &dyn Fn() -> bool,
    ) -> Result<InitState, InitStateError> {
        self.check(core)?;
        let take = |core: &mut Core| {
            core.state = asked;
            core.by = Some(process);
            asked
        };
        if asked != InitState::Started {
            take(&mut self.lock()[core.index()]);
            sched.wake(self.on);
            return Ok(asked);
        }
        let mut answer = None;
        let mut look = || {
            let core = &mut self.lock()[core.index()];
            answer = match core.state {
                InitState::Completed => Some(Ok(InitState::Completed)),
                InitState::Invalid => Some(Ok(take(core))),
                InitState::Started => killed().then_some(Err(InitStateError::Killed { process })),
            };
            answer.map_or(Poll::Pending, |_| Poll::Done)
        };
        sched.block(self.on, &mut look, Some(WAIT));
        answer.unwrap_or_else(|| Ok(take(&mut self.lock()[core.index()])))
    }

    /// The cores that somebody is at, and who.
    pub(crate) fn under_way(&self) -> Vec<(CoreId, Pid)> {
        let cores = self.lock();
        let at_work = (0..).zip(cores.iter()).filter_map(|(number, core)| {
            let by = core.by.filter(|_| core.state == InitState::Started)?;
            Some((CoreId::new(number), by))
        });
        at_work.collect()
    }

    /// Lets those who wait for their turn look whether they are to end.
    pub(crate) fn let_waiters_look(&self, sched: &dyn Sched) {
        sched.wake(self.on);
    }

    /// What the process is at has failed.
    pub(crate) fn forget(&self, sched: &dyn Sched, process: Pid) {
        let mut is_changed = false;
        for core in self.lock().iter_mut() {
            if core.state == InitState::Started && core.by == Some(process) {
                *core = UNTOUCHED;
                is_changed = true;
            }
        }
        if is_changed {
            sched.wake(self.on);
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Core; CORES_MAX as usize]> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
