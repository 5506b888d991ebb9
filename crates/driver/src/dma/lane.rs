//! A core's lane: its queue, its ring once that is up, and what every operation on it needs.

use std::sync::{Arc, OnceLock};

use glia_abi::arch::ArchProfile;
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::fault::Faults;
use glia_abi::handle::{CoreId, DeviceId, Pid, QueueId};
use glia_abi::port::{MachineMemory, Port, TimedOut};
use glia_abi::sched::{Sched, SleepLock, Tick, WaitOn};

use super::budget::Platform;
use super::context::{CONTEXTS, Context, Slot};
use super::held::Held;
use super::marker::Markers;
use super::reset::ResetQueue;
use super::zerocopy::ZeroCopies;
use super::{DmaError, NOBODY};
use crate::memory::OwnedPin;
use crate::reset::Resets;
use crate::ring::QueuePair;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// What the op layer stands on.
pub(crate) struct Links {
    pub(super) device: DeviceId,
    pub(super) profile: &'static ArchProfile,
    pub(super) platform: Platform,
    pub(super) resets: Resets,
    pub(super) requests: ResetQueue,
    pub(super) port: Arc<dyn Port>,
    pub(super) host: Arc<dyn MachineMemory>,
    pub(super) sched: Arc<dyn Sched>,
    pub(super) faults: Arc<dyn Faults>,
    pub(super) sink: Arc<dyn Sink>,
    /// Whether the sink wants to hear anything.
    pub(super) told: bool,
}

impl Links {
    /// The time at which a batch begins, where anybody will ask for it.
    pub(super) fn stamp(&self) -> Tick {
        if self.profile.retry_memcpy {
            self.resets.stamp(self.sched.now())
        } else {
            Tick(0)
        }
    }

    pub(super) fn tell(&self, lane: &Lane, process: Option<Pid>, event: &Event) {
        if !self.told {
            return;
        }
        let ids = Ids {
            process,
            core: Some(lane.core()),
            ..Ids::queue(self.device, lane.queue)
        };
        self.sink.event(self.sched.now(), &ids, event);
    }
}

/// A queue for the driver's own copies: a core's own, or one that a process has asked for.
pub(crate) struct Lane {
    /// Its place among the lanes: a core's own number, or one behind all cores'.
    number: usize,
    /// The core that it works for, which changes only while its ring is closed.
    core: AtomicU32,
    queue: QueueId,
    /// How often the ring has failed. It goes up under the ring's lock and is read before taking it.
    failures: AtomicU64,
    ring: OnceLock<SleepLock<H2tRing>>,
}

/// The pins on the chunks that a batch works on, if whoever staged it gave them away.
pub(crate) type Hold = Option<[OwnedPin; 2]>;

/// What the ring's lock guards.
pub(crate) struct H2tRing {
    pub(super) pair: QueuePair,
    pub(super) markers: Markers,
    pub(super) contexts: [Context; CONTEXTS],
    /// What the batches under way work on.
    pub(super) holds: [Hold; CONTEXTS],
    /// There from the first zero copy on.
    pub(super) zero_copies: Option<Box<ZeroCopies>>,
    /// Why the ring failed last.
    pub(super) failure: Option<TimedOut>,
    access: Access,
}

/// Whether copies may use a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// They may.
    Open,
    /// Not before its core has been reset.
    Suspended,
    /// Not before the next bring-up: its memory is gone.
    Closed,
}

impl H2tRing {
    pub(super) fn new(pair: QueuePair, markers: Markers) -> Self {
        Self {
            pair,
            markers,
            contexts: [Context::Idle; CONTEXTS],
            holds: [const { None }; CONTEXTS],
            zero_copies: None,
            failure: None,
            access: Access::Open,
        }
    }

    /// Whether copies may use it.
    pub(super) fn is_open(&self) -> bool {
        self.access == Access::Open
    }

    pub(super) fn context(&self, slot: Slot) -> Context {
        self.contexts[slot.index()]
    }
}

impl Lane {
    pub(super) fn new(number: usize, core: CoreId, queue: QueueId) -> Self {
        Self {
            number,
            core: AtomicU32::new(core.get()),
            queue,
            failures: AtomicU64::new(0),
            ring: OnceLock::new(),
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn core(&self) -> CoreId {
        CoreId::new(self.core.load(Ordering::Relaxed))
    }

    /// Has it work for another core from its next opening on.
    pub(super) fn set_core(&self, core: CoreId) {
        // ORDER: who finds the ring open has taken its lock after whoever opened it.
        self.core.store(core.get(), Ordering::Relaxed);
    }

    pub(super) fn queue(&self) -> QueueId {
        self.queue
    }

    /// Lets copies use the ring. In place of one that was closed it goes on counting.
    pub(super) fn open(&self, sched: &dyn Sched, mut ring: H2tRing) {
        match self.ring.get() {
            Some(lock) => {
                let mut closed = lock.lock(sched);
                ring.pair.count_on_from(&closed.pair);
                *closed = ring;
            }
            None => {
                self.ring.get_or_init(|| SleepLock::new(ring, sched));
            }
        }
    }

    /// Loses what is under way, and refuses copies until the ring is opened again.
    pub(super) fn shut(&self, links: &Links) {
        if let Ok(mut held) = self.hold_any(links, NOBODY) {
            if held.ring_mut().access != Access::Closed {
                held.abandon();
            }
            held.ring_mut().access = Access::Closed;
        }
    }

    /// Loses what is under way, of which its owners will be told when they ask, and refuses copies
    /// until the ring is [resumed](Self::resume).
    pub(super) fn suspend(&self, links: &Links) {
        if let Ok(mut held) = self.hold(links, NOBODY) {
            held.interrupt();
            held.ring_mut().access = Access::Suspended;
        }
    }

    /// Sets the queue of a suspended ring up afresh, when `program` has programmed its engines, and
    /// lets copies use it again. Any other ring is left as it is.
    ///
    /// # Errors
    /// What to wait for if somebody has the ring.
    pub(super) fn resume(&self, links: &Links, program: impl FnOnce()) -> Result<(), WaitOn> {
        let Some(lock) = self.ring.get() else {
            return Ok(());
        };
        let mut ring = lock.poll_lock(&*links.sched)?;
        if ring.access == Access::Suspended {
            program();
            ring.pair.reset(&*links.port);
            let descs = ring.pair.index().descs();
            links.tell(self, None, &Event::RingReady { descs });
            ring.access = Access::Open;
        }
        Ok(())
    }

    /// Stops the queue for good, before its memory goes.
    pub(super) fn close(&mut self, links: &Links) {
        if let Some(ring) = self.ring.take() {
            let ring = ring.lock(&*links.sched);
            if ring.is_open() {
                ring.pair.stop(&*links.port);
            }
        }
    }

    /// Takes the ring for an operation of `by`, waiting while another one has it.
    #[inline]
    pub(super) fn hold<'a>(&'a self, links: &'a Links, by: Pid) -> Result<Held<'a>, DmaError> {
        let held = self.hold_any(links, by)?;
        if held.is_open() {
            return Ok(held);
        }
        let core = self.core();
        Err(DmaError::NotReady { core })
    }

    /// The same to ask what became of copies, also while none are taken.
    #[inline]
    pub(super) fn hold_any<'a>(&'a self, links: &'a Links, by: Pid) -> Result<Held<'a>, DmaError> {
        let core = self.core();
        let lock = self.ring.get().ok_or(DmaError::NotReady { core })?;
        // ORDER: before the lock is asked for, so that a failure that happens while this caller
        // stands in line is seen.
        let before = self.failures.load(Ordering::Acquire);
        let ring = lock.lock(&*links.sched);
        let missed = if self.failures.load(Ordering::Acquire) == before {
            None
        } else {
            ring.failure
        };
        Ok(Held::new(links, self, ring, by, missed))
    }

    /// The same for a worker, which does not wait; `None` if the ring is not up.
    ///
    /// # Errors
    /// What to wait for if somebody has the ring.
    pub(super) fn poll_hold<'a>(&'a self, links: &'a Links) -> Result<Option<Held<'a>>, WaitOn> {
        let Some(lock) = self.ring.get() else {
            return Ok(None);
        };
        let ring = lock.poll_lock(&*links.sched)?;
        Ok(Some(Held::new(links, self, ring, NOBODY, None)))
    }

    /// One more failure.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Release);
    }

    pub(super) fn state(&self, sched: &dyn Sched) -> Option<QueueState> {
        let ring = self.ring.get()?.lock(sched);
        if !ring.is_open() {
            return None;
        }
        let index = ring.pair.index();
        let zero_copies = ring.zero_copies.as_deref();
        Some(QueueState {
            queue: self.queue,
            descs: index.descs(),
            next: index.next(),
            acked: index.acked(),
            ring_id: index.ring_id().get(),
            available: index.available(),
            announced: ring.pair.announced(),
            failures: self.failures.load(Ordering::Acquire),
            contexts: ring.contexts.map(|context| match context {
                Context::Idle => ContextState::Idle,
                Context::InFlight(batch) => ContextState::InFlight {
                    pairs: batch.staged.pairs,
                },
                Context::Failed { .. } => ContextState::Failed,
            }),
            zero_copy_contexts: zero_copies.map_or(0, |zero| zero.contexts()),
            pinned_pages: zero_copies.map_or(0, |zero| zero.pinned_pages()),
        })
    }
}

/// How a queue stands at some moment; both sides of its rings stand alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    /// Which queue.
    pub queue: QueueId,
    /// Slots of each ring.
    pub descs: u32,
    /// The slot that is taken next.
    pub next: u32,
    /// The oldest slot that is not acknowledged.
    pub acked: u32,
    /// The lap of the slot that is taken next, modulo 4.
    pub ring_id: u32,
    /// Slots that can be taken.
    pub available: u32,
    /// Descriptor pairs announced so far; failures do not count back.
    pub announced: u64,
    /// How often the ring has failed.
    pub failures: u64,
    /// What each context is doing: the synchronous one, handle 1, handle 2.
    pub contexts: [ContextState; 3],
    /// Contexts of zero copies that have not ended.
    pub zero_copy_contexts: u32,
    /// Pages that they have pinned.
    pub pinned_pages: u64,
}

/// What a context of a ring is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextState {
    /// Nothing.
    Idle,
    /// Its batch is under way.
    InFlight {
        /// Descriptors of each side, the marker included.
        pairs: u32,
    },
    /// Its batch was lost with the ring, and nobody has asked for it yet.
    Failed,
}
