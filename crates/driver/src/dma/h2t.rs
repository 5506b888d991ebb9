//! Queues of the copy engines beyond the cores' own, which processes ask for.
//!
//! A copy engine has 16 queues. The first ones are the cores' own; the rest is given to processes, the
//! lowest free one first. A queue for **copies** gets a ring of the driver's and is used by name in
//! zero copies, by the process that asked for it alone. One for **services** is set up by that process
//! itself ([`user`](super::user)), and nobody else may.
//!
//! A queue that is given back loses what is under way on it, and its owners are told. When a process
//! goes, all that it has are given back (divergence `h2t-owner`).
//!
//! **Locks.** The op layer's own for bringing things up and down; after it an engine's; last the
//! table's, for a look.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use glia_abi::handle::{CoreId, Pid, QUEUES_PER_ENGINE, QueueId};

use super::cores::give_back;
use super::lane::Lane;
use super::{Dma, DmaError};

/// What a queue is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H2tUse {
    /// The driver copies by it.
    Copies,
    /// The process fills it by itself.
    Service,
}

/// By the number of its lane: a queue that a process has asked for.
pub(super) type Requests = BTreeMap<usize, Requested>;

/// Who has a queue, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requested {
    /// The core that it works for.
    pub core: CoreId,
    /// What for.
    pub used_for: H2tUse,
    /// The process.
    pub owner: Pid,
}

/// Why a queue was not given, or not given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum H2tError {
    /// `ENOENT`: the device has no such core.
    #[error("{core} does not exist")]
    NoCore {
        /// The core.
        core: CoreId,
    },
    /// `EBUSY`: all queues of the core's copy engine are taken.
    #[error("the copy engine of {core} has no queue left")]
    NoneLeft {
        /// The core.
        core: CoreId,
    },
    /// `EINVAL`: no engine has so many queues.
    #[error("an engine has {QUEUES_PER_ENGINE} queues, and none has number {number}")]
    NoQueue {
        /// The number.
        number: u32,
    },
    /// `ENXIO`: nobody has the queue for that core.
    #[error("queue {number} of the copy engine of {core} is not given to anybody for that core")]
    NotGiven {
        /// The core.
        core: CoreId,
        /// The queue's number.
        number: u32,
    },
    /// The ring could not be set up; the number is the cause's.
    #[error(transparent)]
    Ring(#[from] DmaError),
}

impl Dma {
    /// Gives a queue of a core's copy engine to a process.
    ///
    /// # Errors
    /// [`H2tError`]; nothing is taken then.
    pub fn request_queue(
        &self,
        by: Pid,
        core: CoreId,
        used_for: H2tUse,
    ) -> Result<QueueId, H2tError> {
        let profile = self.links.profile;
        let own = profile.h2t_queue(core).ok_or(H2tError::NoCore { core })?;
        let mut owned = self.owned.lock(&*self.links.sched);
        let down = DmaError::EngineDown {
            core,
            engine: own.engine,
        };
        let mut engine = self.engine(own.engine).ok_or(down)?;
        if !engine.is_up {
            return Err(down.into());
        }
        let mut requests = self.requests();
        let is_free = |lane: &&Lane| {
            let queue = lane.queue();
            queue.engine == own.engine
                && !requests.contains_key(&lane.number())
                && !engine.has_ring(queue.number)
        };
        let lane = self.more_lanes().find(is_free);
        let lane = lane.ok_or(H2tError::NoneLeft { core })?;
        let requested = Requested {
            core,
            used_for,
            owner: by,
        };
        requests.insert(lane.number(), requested);
        drop(requests);
        let kept = engine.take_kept(lane.queue().number);
        drop(engine);
        if used_for == H2tUse::Copies {
            lane.set_core(core);
            if let Err(error) = self.open(&mut owned, core, lane) {
                self.requests().remove(&lane.number());
                if let Some(mut engine) = self.engine(own.engine) {
                    engine.keep(lane.queue().number, kept);
                }
                return Err(error.into());
            }
        }
        // What a queue was left with is held until its registers point elsewhere.
        match (used_for, self.engine(own.engine)) {
            (H2tUse::Service, Some(mut engine)) => engine.keep(lane.queue().number, kept),
            _ => drop(kept),
        }
        Ok(lane.queue())
    }

    /// Takes a queue back from whoever has it for a core. What is under way on it is lost. A core's own
    /// queue stays, which is no error (driver 2.27.4).
    ///
    /// # Errors
    /// [`H2tError`]; nothing changes then.
    pub fn release_queue(&self, core: CoreId, number: u32) -> Result<(), H2tError> {
        self.release(core, number, |_| true)
    }

    /// As [`release_queue`](Self::release_queue), and only if `by` is who has it.
    ///
    /// # Errors
    /// As [`release_queue`](Self::release_queue).
    pub fn release_queue_by(&self, by: Pid, core: CoreId, number: u32) -> Result<(), H2tError> {
        self.release(core, number, |requested| requested.owner == by)
    }

    fn release(
        &self,
        core: CoreId,
        number: u32,
        is_meant: impl FnOnce(&Requested) -> bool,
    ) -> Result<(), H2tError> {
        let profile = self.links.profile;
        let own = profile.h2t_queue(core).ok_or(H2tError::NoCore { core })?;
        if number >= QUEUES_PER_ENGINE {
            return Err(H2tError::NoQueue { number });
        }
        if number < profile.cores_per_h2t_engine {
            return Ok(());
        }
        let queue = QueueId::new(own.engine, number);
        let lane = self.more_lanes().find(|lane| lane.queue() == queue);
        let lane = lane.ok_or(H2tError::NotGiven { core, number })?;
        let is_meant = |requested: &Requested| requested.core == core && is_meant(requested);
        self.take_back(lane, is_meant)
            .then_some(())
            .ok_or(H2tError::NotGiven { core, number })
    }

    /// A process goes: all queues that it has asked for are taken back.
    pub fn release_queues_of(&self, by: Pid) {
        for lane in self.more_lanes() {
            self.take_back(lane, |requested| requested.owner == by);
        }
    }

    /// Who has a queue of a core's copy engine for that core; `None` if nobody has asked for it.
    #[must_use]
    pub fn requested_queue(&self, core: CoreId, number: u32) -> Option<(QueueId, Requested)> {
        let own = self.links.profile.h2t_queue(core)?;
        let queue = QueueId::new(own.engine, number);
        let requested = self.request_of(queue)?;
        (requested.core == core).then_some((queue, requested))
    }

    /// Who has asked for a queue.
    pub(super) fn request_of(&self, queue: QueueId) -> Option<Requested> {
        let lane = self.more_lanes().find(|lane| lane.queue() == queue)?;
        self.requests().get(&lane.number()).copied()
    }

    /// Whether a process may copy by a lane for a core: by a core's own anybody may.
    pub(super) fn may_copy_by(&self, lane: &Lane, core: CoreId, by: Pid) -> bool {
        let wanted = Requested {
            core,
            used_for: H2tUse::Copies,
            owner: by,
        };
        let is_own = lane.number() < self.links.profile.cores as usize;
        is_own || self.requests().get(&lane.number()) == Some(&wanted)
    }

    fn take_back(&self, lane: &Lane, is_meant: impl FnOnce(&Requested) -> bool) -> bool {
        if !self.requests().contains_key(&lane.number()) {
            return false;
        }
        let mut owned = self.owned.lock(&*self.links.sched);
        let requested = self.requests().get(&lane.number()).copied();
        let Some(requested) = requested.filter(is_meant) else {
            return false;
        };
        if requested.used_for == H2tUse::Copies {
            lane.shut(&self.links);
            give_back(&self.memory, owned.ring(lane));
        }
        self.requests().remove(&lane.number());
        true
    }

    /// The lanes of the queues that are no core's own.
    pub(super) fn more_lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().skip(self.links.profile.cores as usize)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
