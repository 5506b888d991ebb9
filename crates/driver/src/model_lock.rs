//! Model locks: one per core, by which a process's threads and the process before it agree on what
//! is loaded there (driver 2.27, "core reader and writer locks").
//!
//! A process that wants to load a model on a core enters as its *writer*, with the model's id, and
//! becomes a *reader* when it has loaded it; other threads of the same process that run the same
//! model enter as readers. Readers of another model, or of another process, are told so. Whoever
//! finds the lock taken waits, for a while:
//!
//! ```text
//!   free ── writer enters ──► loading ── downgrade ──► read by 1 ── the last exits ──► free
//!                             all wait                 writers wait           model still known
//! ```
//!
//! The lock remembers the last writer and its model when it is free. If the same writer comes again
//! with the same model, it has the lock *and* is told `EALREADY`: it need not load anything.
//!
//! **Who gives a lock back.** Its holder, or the last close of the device by the last writer's
//! process, which forgets it whole.
//!
//! **Locks.** One mutex, held for a few instructions; waits are through the [`Sched`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use glia_abi::handle::{CORES_MAX, CoreId, Pid};
use glia_abi::sched::{Micros, Poll, Sched, WaitOn};

/// How long a reader waits for a writer.
const READER_WAIT: Micros = Micros(500_000);
/// How long a writer waits for a writer and for readers.
const WRITER_WAIT: Micros = Micros(2_000_000);

/// Names a model.
pub(crate) type ModelId = [u8; 32];

/// Why a lock could not be taken, or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// `EINVAL`: no core has this number.
    #[error("{core} has no lock: cores 0 to 7 have, on every arch")]
    NoCore {
        /// The core asked for.
        core: CoreId,
    },
    /// `EBUSY`: somebody was there all the time.
    #[error("{core} is in use by {holder}")]
    Busy {
        /// The core.
        core: CoreId,
        /// The process of its last writer.
        holder: Pid,
    },
    /// `ENOENT`: another model is loaded there, or by another process.
    #[error("{core} does not have that model of {process}")]
    OtherModel {
        /// The core.
        core: CoreId,
        /// Who asked.
        process: Pid,
    },
    /// `EINVAL`: nobody is there to exit.
    #[error("{core} has no reader")]
    NoReader {
        /// The core.
        core: CoreId,
    },
    /// `EINVAL`: nobody is loading anything there.
    #[error("{core} has no writer")]
    NoWriter {
        /// The core.
        core: CoreId,
    },
    /// `EALREADY`: the model is loaded. The caller has the lock.
    #[error("{core} has that model of {process} already")]
    Loaded {
        /// The core.
        core: CoreId,
        /// Who asked.
        process: Pid,
    },
    /// `EINTR`: the caller is to end.
    #[error("{process} is to end")]
    Killed {
        /// Who asked.
        process: Pid,
    },
}

/// Who asks for which lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) process: Pid,
    pub(crate) core: CoreId,
    pub(crate) model: ModelId,
}

/// The locks of a device's cores.
pub(crate) struct ModelLocks {
    cores: Mutex<[ModelLock; CORES_MAX as usize]>,
    /// Where those wait who find a lock taken.
    on: WaitOn,
}

#[derive(Debug, Clone, Copy, Default)]
struct ModelLock {
    /// The last writer, and what it has loaded.
    loaded: Option<(Pid, ModelId)>,
    /// Whether it is at it.
    is_loading: bool,
    readers: u32,
}

impl ModelLocks {
    pub(crate) fn new(sched: &dyn Sched) -> Self {
        Self {
            cores: Mutex::default(),
            on: sched.wait_on(),
        }
    }

    /// Enters as a reader of a model that the process has loaded.
    pub(crate) fn reader_enter(
        &self,
        sched: &dyn Sched,
        ask: &Ask,
        killed: &dyn Fn() -> bool,
    ) -> Result<(), LockError> {
        let Ask { core, process, .. } = *ask;
        self.wait(sched, ask, killed, READER_WAIT, |lock| {
            if lock.is_loading {
                return None;
            }
            Some(if lock.has(ask) {
                lock.readers = lock.readers.saturating_add(1);
                Ok(())
            } else {
                Err(LockError::OtherModel { core, process })
            })
        })
    }

    /// Goes as a reader.
    pub(crate) fn reader_exit(&self, sched: &dyn Sched, ask: &Ask) -> Result<(), LockError> {
        let Ask { core, process, .. } = *ask;
        {
            let mut cores = self.lock();
            let lock = lock_of(&mut *cores, core)?;
            if !lock.has(ask) {
                return Err(LockError::OtherModel { core, process });
            }
            let left = lock.readers.checked_sub(1);
            lock.readers = left.ok_or(LockError::NoReader { core })?;
        }
        sched.wake(self.on);
        Ok(())
    }

    /// Enters as the writer. [`LockError::Loaded`] is an answer with which it has the lock, too.
    pub(crate) fn writer_enter(
        &self,
        sched: &dyn Sched,
        ask: &Ask,
        killed: &dyn Fn() -> bool,
    ) -> Result<(), LockError> {
        let Ask { core, process, .. } = *ask;
        self.wait(sched, ask, killed, WRITER_WAIT, |lock| {
            if lock.is_loading || lock.readers != 0 {
                return None;
            }
            let is_loaded = lock.has(ask);
            lock.loaded = Some((process, ask.model));
            lock.is_loading = true;
            Some(if is_loaded {
                Err(LockError::Loaded { core, process })
            } else {
                Ok(())
            })
        })
    }

    /// Makes the writer one reader.
    pub(crate) fn writer_downgrade(&self, sched: &dyn Sched, ask: &Ask) -> Result<(), LockError> {
        let Ask { core, process, .. } = *ask;
        {
            let mut cores = self.lock();
            let lock = lock_of(&mut *cores, core)?;
            if !lock.is_loading {
                return Err(LockError::NoWriter { core });
            }
            if !lock.has(ask) {
                return Err(LockError::OtherModel { core, process });
            }
            lock.is_loading = false;
            lock.readers = 1;
        }
        sched.wake(self.on);
        Ok(())
    }

    /// Forgets the locks whose last writer the process is.
    pub(crate) fn forget(&self, sched: &dyn Sched, process: Pid) {
        let mut is_changed = false;
        for lock in self.lock().iter_mut() {
            if lock.loaded.is_some_and(|(writer, _)| writer == process) {
                *lock = ModelLock::default();
                is_changed = true;
            }
        }
        if is_changed {
            sched.wake(self.on);
        }
    }

    /// Lets those who wait for a lock look whether they are to end.
    pub(crate) fn let_waiters_look(&self, sched: &dyn Sched) {
        sched.wake(self.on);
    }

    /// The cores that a process holds, as writer or reader, and the model of each.
    pub(crate) fn held_by(&self, process: Pid) -> Vec<(CoreId, ModelId)> {
        let cores = self.lock();
        let held = (0..).zip(cores.iter()).filter_map(|(number, lock)| {
            let (writer, model) = lock.loaded?;
            let is_held = writer == process && (lock.is_loading || lock.readers != 0);
            is_held.then_some((CoreId::new(number), model))
        });
        held.collect()
    }

    /// The cores that somebody holds, as writer or reader, and who loaded the model.
    pub(crate) fn holders(&self) -> Vec<(CoreId, Pid)> {
        let cores = self.lock();
        let held = (0..).zip(cores.iter()).filter_map(|(number, lock)| {
            let (writer, _) = lock.loaded?;
            let is_held = lock.is_loading || lock.readers != 0;
            is_held.then_some((CoreId::new(number), writer))
        });
        held.collect()
    }

    /// Tries to take a lock until it comes to something, for a while.
    fn wait(
        &self,
        sched: &dyn Sched,
        ask: &Ask,
        killed: &dyn Fn() -> bool,
        within: Micros,
        mut attempt: impl FnMut(&mut ModelLock) -> Option<Result<(), LockError>>,
    ) -> Result<(), LockError> {
        let Ask { core, process, .. } = *ask;
        // What it comes to if the time is over.
        let mut answer = Err(LockError::NoCore { core });
        let mut look = || {
            let mut cores = self.lock();
            let Ok(lock) = lock_of(&mut *cores, core) else {
                return Poll::Never;
            };
            if let Some(result) = attempt(lock) {
                answer = result;
                return Poll::Done;
            }
            let holder = lock.loaded.map_or(process, |(writer, _)| writer);
            answer = Err(LockError::Busy { core, holder });
            drop(cores);
            if killed() {
                answer = Err(LockError::Killed { process });
                return Poll::Done;
            }
            Poll::Pending
        };
        sched.block(self.on, &mut look, Some(within));
        answer
    }

    fn lock(&self) -> MutexGuard<'_, [ModelLock; CORES_MAX as usize]> {
        self.cores.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelLock {
    /// Whether the process has loaded this model.
    fn has(&self, ask: &Ask) -> bool {
        self.loaded == Some((ask.process, ask.model))
    }
}

fn lock_of(cores: &mut [ModelLock], core: CoreId) -> Result<&mut ModelLock, LockError> {
    cores
        .get_mut(core.index())
        .ok_or(LockError::NoCore { core })
}
