//! Copies by DMA: the op layer of one device.
//!
//! [`Dma`] moves bytes between host memory and HBM, either way and within either, by descriptors
//! and nothing else. A core has a queue for this, the "host-to-tensor" or H2T queue, with a ring of
//! 8,192 descriptors on each side. This is the path of a copy:
//!
//! 1. the core is chosen ([`Dma::copy`], [`Dma::copy_async`]) and its ring is locked, for the whole
//!    copy;
//! 2. the copy is cut into batches of at most 127 MiB (`dma/split.rs`);
//! 3. each batch is staged into the ring (`ring.rs`), its marker (`dma/marker.rs`) behind it, and
//!    announced;
//! 4. the driver waits through [`Port::await_word`] until the engine has copied the marker;
//! 5. the slots are acknowledged and the [`context`] is idle again.
//!
//! A synchronous copy stages a batch when the one before has completed. An asynchronous one has a
//! single batch, stays under way when the call returns, and is waited for by its successor or by
//! [`Dma::wait`].
//!
//! **When a marker does not come**, the ring has failed, not the request: the caller whose wait ended
//! resets the queue at once, and every batch under way on it is lost. Their owners learn it when
//! they ask; whoever stood before the ring's lock at that moment gets the same error without
//! staging anything. The next caller finds a fresh ring. On generations that say so, a batch that
//! was under way during a [reset](crate::reset) of the device is no failure: when the reset has
//! ended everything is staged again, a few times at most.
//!
//! Cores, and the device, are [reset] on demand, which shuts their rings for a while.
//!
//! Bytes of user memory need not be copied into a chunk first: the engine [reaches
//! them](zerocopy) while they are pinned.
//!
//! Before all that, engines and rings are [brought up](Dma::init_cores). Besides the driver's own
//! queues there are those of processes, which are set up and rung here ([`user`]), and whose
//! descriptors the driver checks if it is asked to copy them ([`descriptors`]); and further queues of
//! the copy engines can be [asked for](h2t). HBM that nobody has
//! is overwritten on demand ([`scrub`]).
//!
//! **A refusal changes nothing**: neither the ring nor any context. Where the reference takes a
//! size of 0 for 64 KiB, Glia moves nothing.
//!
//! **Locks.** A [`SleepLock`] for each ring, held across waits. Before it are taken: one for the
//! fill buffer; one for whoever brings something up or down. Beside it, one for each channel's
//! scrub. After it, never across a wait, a mutex for each engine.
//!
//! **What this does not do.** It takes addresses on trust: which chunk they lie in, whether the
//! caller may use it, and that it stays there until the copy has ended is the business of whoever
//! calls.

mod budget;
pub mod context;
mod copy;
mod cores;
pub mod descriptors;
mod engine;
mod error;
mod failure;
mod fill;
pub mod h2t;
mod held;
#[cfg(test)]
#[cfg(loom)]
mod interleavings;
mod lane;
mod marker;
pub mod reset;
pub mod scrub;
mod split;
pub mod user;
pub mod zerocopy;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use glia_abi::addr::{BusAddr, HostPa};
use glia_abi::arch::ArchProfile;
use glia_abi::event::{Detail, Sink};
use glia_abi::handle::{CoreId, DeviceId, EngineId, Pid, QUEUES_PER_ENGINE, QueueId, WorkerId};
use glia_abi::mem::Location;
use glia_abi::port::{MachineMemory, Port};
use glia_abi::sched::{Sched, SleepLock};

pub use budget::{Awaited, Platform, budget};
pub use context::WaitHandle;
pub use cores::inits_h2t_engine;
pub use error::DmaError;
pub use lane::{ContextState, QueueState};
pub use split::{BATCH_BYTES_MAX, copy_barrier};

pub use crate::ring::ring_descs;

use crate::memory::{DeviceMemory, OwnedPin};
use crate::reset::{ResetWindow, Resets};
use cores::Owned;
use h2t::Requests;
use lane::{Hold, Lane, Links};
use reset::ResetQueue;
use scrub::Scrub;
use split::Run;
use user::Engine;
use zerocopy::{Completer, ZeroCopyLimits};

/// The driver's own chunks belong to no process.
const NOBODY: Pid = Pid::new(0);

/// What the op layer of a device is built from.
#[derive(Debug, Clone, Copy)]
pub struct DmaConfig {
    /// Which device of the machine.
    pub device: DeviceId,
    /// Its generation.
    pub profile: &'static ArchProfile,
    /// What it really is.
    pub platform: Platform,
    /// How much of zero copies a ring takes at a time.
    pub zero_copy: ZeroCopyLimits,
}

/// One end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First byte, as the device sees it.
    pub at: BusAddr,
    /// Host memory or HBM.
    pub location: Location,
    /// The core that its chunk is charged to.
    pub core: CoreId,
}

/// The DMA op layer of one device.
///
/// When it is dropped its queues are stopped and its rings given back.
pub struct Dma {
    links: Links,
    memory: Arc<DeviceMemory>,
    /// One for each core, then one for each further queue of the copy engines.
    lanes: Box<[Lane]>,
    /// The further queues that processes have.
    requests: Mutex<Requests>,
    /// What memory is filled from; there from the first bring-up on.
    fill_buffer: OnceLock<SleepLock<HostPa>>,
    /// What a queue is left with whose process has gone; there from the first such queue on.
    dummy_ring: OnceLock<HostPa>,
    /// One for each engine.
    engines: Box<[Mutex<Engine>]>,
    /// By channel: the scrub that is under way.
    scrubs: Box<[SleepLock<Option<Scrub>>]>,
    /// The chunks that it has taken. Whoever brings something up or down holds this.
    owned: SleepLock<Owned>,
    limits: ZeroCopyLimits,
    /// Who finishes asynchronous zero copies; there from the first one on.
    completer: OnceLock<(Arc<Completer>, WorkerId)>,
}

impl Dma {
    /// The op layer of a device, with no ring yet.
    #[must_use]
    pub fn new(
        config: DmaConfig,
        port: Arc<dyn Port>,
        host: Arc<dyn MachineMemory>,
        memory: Arc<DeviceMemory>,
        sched: Arc<dyn Sched>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let DmaConfig {
            device,
            profile,
            platform,
            zero_copy,
        } = config;
        let lanes = lanes(profile);
        let engines = (0..profile.engines).map(|_| Mutex::default()).collect();
        let channels = profile.region_bases.iter();
        let scrubs = channels.map(|_| SleepLock::new(None, &*sched)).collect();
        let no_reset = memory.config().params.no_reset;
        let requests = ResetQueue::new(profile, platform, no_reset, &*sched);
        let resets = Resets::new(sched.now());
        if requests.is_off() {
            resets.set(None);
        }
        Self {
            owned: SleepLock::new(Owned::none(lanes.len()), &*sched),
            limits: zero_copy,
            completer: OnceLock::new(),
            links: Links {
                device,
                profile,
                platform,
                resets,
                requests,
                port,
                host,
                sched,
                faults: Arc::clone(memory.faults()),
                told: sink.detail() > Detail::Nothing,
                sink,
            },
            memory,
            lanes,
            requests: Mutex::default(),
            fill_buffer: OnceLock::new(),
            dummy_ring: OnceLock::new(),
            engines,
            scrubs,
        }
    }

    /// Copies, and returns when it is done: any number of bytes, on the ring of the target's core if
    /// the target is in HBM, else on that of the source's (driver 2.27, `memcpy_mc`; of two places in
    /// host memory, it is the target's).
    ///
    /// # Errors
    /// [`DmaError`]. After [`DmaError::TimedOut`] any part of the bytes may have been moved, and
    /// nothing moves any more.
    pub fn copy(
        &self,
        by: Pid,
        source: Place,
        target: Place,
        size_bytes: u64,
    ) -> Result<(), DmaError> {
        if size_bytes == 0 {
            return Ok(());
        }
        let run = copy_run(source, target, size_bytes)?;
        let core = match (target.location, source.location) {
            (Location::Device, _) | (Location::Host, Location::Host) => target.core,
            (Location::Host, Location::Device) => source.core,
        };
        self.lane(core).hold(&self.links, by)?.copy(run)
    }

    /// Copies up to [`BATCH_BYTES_MAX`] bytes, on the ring of the source's core if the source is in
    /// HBM, else on that of the target's (driver 2.27, `memcpy_mc_async`). Returns when `previous`
    /// has completed; the copy itself is under way then, under the handle that is returned.
    ///
    /// Both places must stay until the copy has been waited for, by [`wait`](Self::wait) or as a
    /// later copy's `previous`, or until its ring has failed:
    /// [`copy_async_holding`](Self::copy_async_holding) sees to that.
    ///
    /// [`WaitHandle::Sync`] asks for a synchronous copy of any size instead. A copy of 0 bytes moves
    /// nothing, but has a handle and a place in the chain like any other. If the handle's context is
    /// still in use, by a chain that nobody waited for, that copy is waited for first (the
    /// reference stages over it); if it fails, only an event tells so.
    ///
    /// # Errors
    /// [`DmaError`]. After [`DmaError::TimedOut`] both handles are free again; after all others
    /// `previous` can still be waited for.
    pub fn copy_async(
        &self,
        by: Pid,
        source: Place,
        target: Place,
        size_bytes: u64,
        previous: WaitHandle,
    ) -> Result<WaitHandle, DmaError> {
        self.start(by, (source, target, size_bytes), previous, None)
    }

    /// As [`copy_async`](Self::copy_async), and keeps the pins of both chunks until the copy has
    /// ended: completed, or lost with its ring. After a refusal they are let go at once.
    ///
    /// # Errors
    /// As [`copy_async`](Self::copy_async).
    pub fn copy_async_holding(
        &self,
        by: Pid,
        source: Place,
        target: Place,
        size_bytes: u64,
        previous: WaitHandle,
        pins: [OwnedPin; 2],
    ) -> Result<WaitHandle, DmaError> {
        self.start(by, (source, target, size_bytes), previous, Some(pins))
    }

    fn start(
        &self,
        by: Pid,
        (source, target, size_bytes): (Place, Place, u64),
        previous: WaitHandle,
        hold: Hold,
    ) -> Result<WaitHandle, DmaError> {
        if previous != WaitHandle::Sync && size_bytes > BATCH_BYTES_MAX {
            return Err(DmaError::TooLarge { size_bytes });
        }
        let run = copy_run(source, target, size_bytes)?;
        let mut ring = self.async_lane(source, target).hold(&self.links, by)?;
        if previous == WaitHandle::Sync {
            ring.copy(run)?;
            return Ok(WaitHandle::Sync);
        }
        ring.copy_async(run, previous, hold)
    }

    /// Waits for the asynchronous copies and the scrubs that a process has under way, on any ring,
    /// whatever comes of them: the process goes, and nobody else will ask.
    pub fn settle(&self, by: Pid) {
        self.settle_scrubs(by);
        for lane in &self.lanes {
            if let Ok(mut ring) = lane.hold_any(&self.links, by) {
                ring.settle();
                ring.settle_zero_copies();
            }
        }
    }

    /// Waits for an asynchronous copy; the handle is free then, also after an error. The places are
    /// those of the copy: they say which ring it is on.
    ///
    /// On a core whose ring is not up there is nothing to wait for (driver 2.27), unless the copy was
    /// lost to a reset.
    ///
    /// # Errors
    /// [`DmaError::NotInUse`] if nothing is under way under that handle; [`DmaError::TimedOut`] if
    /// it was lost.
    pub fn wait(
        &self,
        by: Pid,
        source: Place,
        target: Place,
        handle: WaitHandle,
    ) -> Result<(), DmaError> {
        match self.async_lane(source, target).hold_any(&self.links, by) {
            Ok(mut ring) => ring.wait(handle),
            Err(DmaError::NotReady { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A reset of the device, or of some of its cores, begins. From here on a copy that times out is
    /// staged again, on generations that do so.
    pub fn reset_began(&self) {
        self.links.resets.began(self.links.sched.now());
    }

    /// The reset has ended, well or not: only copies that began before are staged again.
    pub fn reset_ended(&self) {
        self.links.resets.ended(self.links.sched.now());
    }

    /// Replaces what is known of resets; none if the device is never reset (driver parameter
    /// `no_reset`).
    pub fn set_reset_window(&self, window: Option<ResetWindow>) {
        self.links.resets.set(window);
    }

    /// How the queue of a core stands; `None` if its ring is not up. Waits while a copy holds the
    /// ring.
    #[must_use]
    pub fn queue_state(&self, core: CoreId) -> Option<QueueState> {
        self.own_lane(core)?.state(&*self.links.sched)
    }

    /// What is known of an engine, under its lock; `None` if the device has no such engine.
    fn engine(&self, id: EngineId) -> Option<MutexGuard<'_, Engine>> {
        let engine = self.engines.get(id.index())?;
        Some(engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn async_lane(&self, source: Place, target: Place) -> &Lane {
        self.lane(match source.location {
            Location::Device => source.core,
            Location::Host => target.core,
        })
    }

    /// The lane of a core. A chunk may be charged to a core that the generation does not have; the
    /// last one copies for it (driver 2.27).
    fn lane(&self, core: CoreId) -> &Lane {
        // PANIC: every generation has cores, and each has a lane.
        let last = self.links.profile.cores as usize - 1;
        &self.lanes[core.index().min(last)]
    }

    /// The lane of a core that the device has.
    fn own_lane(&self, core: CoreId) -> Option<&Lane> {
        let is_there = core.get() < self.links.profile.cores;
        self.lanes.get(core.index()).filter(|_| is_there)
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        self.take_down();
    }
}

/// Lanes of all queues of a generation's copy engines, the cores' own ones first.
fn lanes(profile: &ArchProfile) -> Box<[Lane]> {
    let cores = (0..profile.cores).map(CoreId::new);
    let own = cores.filter_map(|core| Some((core, profile.h2t_queue(core)?)));
    let per_engine = profile.cores_per_h2t_engine;
    let firsts = (0..profile.cores).step_by(per_engine as usize);
    let engines = firsts.filter_map(|first| {
        let core = CoreId::new(first);
        Some((core, profile.h2t_queue(core)?.engine))
    });
    let more = engines.flat_map(|(core, engine)| {
        (per_engine..QUEUES_PER_ENGINE).map(move |number| (core, QueueId::new(engine, number)))
    });
    let all = own.chain(more).enumerate();
    all.map(|(number, (core, queue))| Lane::new(number, core, queue))
        .collect()
}

fn copy_run(source: Place, target: Place, size_bytes: u64) -> Result<Run, DmaError> {
    Run::copy(source.at, target.at, size_bytes).ok_or(DmaError::Wraps {
        source_at: source.at,
        target_at: target.at,
        size_bytes,
    })
}
