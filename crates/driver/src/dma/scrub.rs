//! Scrubbing HBM: a pattern over all of a channel that the driver gives out (driver 2.27).
//!
//! A channel is scrubbed by the 16 engines that are [connected to the host](host_engines), each on
//! its queue 0 and with a ring of its own. What is behind the carveout is cut into slots of 64 KiB,
//! and every 16th slot is one engine's:
//!
//! ```text
//!   pattern ──► slot i ──► slot i+16 ──► slot i+32 ──► … ──► last slot ──► what was read back
//!    (host)                                                                      (host)
//! ```
//!
//! So only the first pair reads the pattern; all others hand on what the pair before has written,
//! and each has a data memory barrier. The last slot's bytes come back to the host. They are right
//! only if every slot before them was.
//!
//! [`Dma::scrub_start`] writes and rings one batch for each engine; [`Dma::scrub_wait`] waits for
//! the 16 markers, compares, and gives everything back.
//!
//! **A scrub overwrites nobody's bytes.** Before a byte moves, all that is free on the channel
//! becomes the driver's own. Where a chunk lives besides the carveout the scrub is refused, and
//! until it is over the channel has no memory for anybody. In the same way it is refused where a
//! process has set one of the 16 queues up, and no process can until it is over.
//!
//! **Locks.** A [`SleepLock`](glia_abi::sched::SleepLock) for each channel, held across the wait;
//! inside it those of the engines and of the memory, which are not. No ring's lock is taken.
//!
//! **What this does not do.** It is not tried again after a reset of the device. The port of HBM
//! that a caller may name means nothing here: there is one on every generation.

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, HostPa, Span};
use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::event::{Event, Ids};
use glia_abi::handle::{Channel, CoreId, EngineId, Pid, QueueId};
use glia_abi::udma::{Barrier, DESC_BYTES_MAX, DESC_SIZE_BYTES, MARKER, Transfer};
use glia_abi::usage::Category;

use super::budget::{Awaited, budget};
use super::context::Slot;
use super::cores::{Taking, give_back};
use super::marker::Markers;
use super::split::Run;
use super::{Dma, DmaError};
use crate::alloc::{AllocError, AllocRequest};

use crate::memory::{CARVEOUT_SIZE_BYTES, OwnedPin};
use crate::ring::{QueuePair, RingMemory, Staging, ring_descs};

/// Engines that scrub a channel.
pub const SCRUB_ENGINES: usize = 16;
/// The queue of each that does.
pub(super) const SCRUB_QUEUE: u32 = 0;
/// Bytes of a slot, which are those of the pattern.
const SLOT_BYTES: u64 = DESC_BYTES_MAX;
/// From one slot of an engine to its next.
const STRIDE_BYTES: u64 = SCRUB_ENGINES as u64 * SLOT_BYTES;
/// What an engine's ring holds besides whole rows of slots: a part of a row, the way back, the
/// marker.
const MORE_DESCS: u64 = 3;

/// Why HBM was not scrubbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScrubError {
    /// `EINVAL`: the device has no such channel.
    #[error("{channel} does not exist: the device has {channels} channels")]
    NoChannel {
        /// The channel asked for.
        channel: Channel,
        /// Channels of the device.
        channels: usize,
    },
    /// `EBUSY`: the channel is being scrubbed.
    #[error("{channel} is being scrubbed already")]
    UnderWay {
        /// The channel.
        channel: Channel,
    },
    /// `EINVAL`: there is no scrub to wait for.
    #[error("{channel} is not being scrubbed")]
    NotStarted {
        /// The channel.
        channel: Channel,
    },
    /// `EBUSY`: the scrub would overwrite chunks.
    #[error("{channel} cannot be scrubbed: {live_bytes} bytes of it are in use")]
    InUse {
        /// The channel.
        channel: Channel,
        /// Bytes of its chunks, without the carveout.
        live_bytes: u64,
    },
    /// `EBUSY`: a process has set up a queue that the scrub needs.
    #[error("{queue} has a ring of a process")]
    QueueTaken {
        /// The queue.
        queue: QueueId,
    },
    /// `EINVAL`: an engine was never programmed.
    #[error("{engine} is not up")]
    EngineDown {
        /// The engine.
        engine: EngineId,
    },
    /// `EIO`: HBM does not hold what was written to it.
    #[error("{at} holds {found:#04x} after the scrub, not {expected:#04x}")]
    Wrong {
        /// The first wrong byte of what was read back.
        at: BusAddr,
        /// What it should be.
        expected: u8,
        /// What it is.
        found: u8,
    },
    /// The rings could not be made, or an engine did not complete; the number is the cause's.
    #[error(transparent)]
    Dma(#[from] DmaError),
}

/// How the wait for a [batch](Dma::device_batch) is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchWait {
    /// As if another batch stood behind it.
    pub is_pipelined: bool,
    /// As for bytes that stay within HBM.
    pub is_d2d: bool,
}

/// The engines of a channel that are connected to the host; `None` if the device has no such
/// channel.
#[must_use]
pub fn host_engines(profile: &ArchProfile, channel: Channel) -> Option<[EngineId; SCRUB_ENGINES]> {
    if channel.index() >= profile.region_bases.len() {
        return None;
    }
    let (first, numbers) = match profile.arch {
        Arch::V2 => (
            16 * channel.get(),
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        ),
        Arch::V3 | Arch::V4 => (
            32 * channel.get(),
            [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31],
        ),
    };
    Some(numbers.map(|number| EngineId::new(first + number)))
}

/// Descriptors of the ring with which an engine scrubs its part of so many bytes.
fn scrub_ring_descs(size_bytes: u64) -> u32 {
    ring_descs(u32::try_from(size_bytes / STRIDE_BYTES + MORE_DESCS).unwrap_or(u32::MAX))
}

/// A scrub under way.
pub(crate) struct Scrub {
    by: Pid,
    core: CoreId,
    word: u32,
    engines: [EngineId; SCRUB_ENGINES],
    relays: Vec<Relay>,
    /// The channel's memory, the rings and the buffers.
    chunks: Vec<OwnedPin>,
}

/// One engine's part.
struct Relay {
    pair: QueuePair,
    markers: Markers,
    /// Pairs of its batch, the marker included.
    pairs: u32,
    /// The first of its slots up to the end of all.
    slots: Span<BusAddr>,
    /// Where the last of them is read back to.
    read_back: HostPa,
}

impl Dma {
    /// Begins to scrub a channel: the four bytes of `word`, low byte first, over and over (driver
    /// 2.27; uncertain: that it is all four). `core` is charged for the rings.
    ///
    /// # Errors
    /// [`ScrubError`]; nothing has been taken or moved then.
    pub fn scrub_start(
        &self,
        by: Pid,
        core: CoreId,
        channel: Channel,
        word: u32,
    ) -> Result<(), ScrubError> {
        let links = &self.links;
        self.check_core(core)?;
        let no_channel = self.no_channel(channel);
        let slot = self.scrubs.get(channel.index()).ok_or(no_channel)?;
        let mut slot = slot.lock(&*links.sched);
        if slot.is_some() {
            return Err(ScrubError::UnderWay { channel });
        }
        let engines = host_engines(links.profile, channel).ok_or(no_channel)?;
        self.claim_queues(&engines)?;
        let mut scrub = Scrub {
            by,
            core,
            word,
            engines,
            relays: Vec::new(),
            chunks: Vec::new(),
        };
        let started = self.start_scrub(&mut scrub, channel);
        if started.is_err() {
            self.release_queues(&engines);
        } else {
            *slot = Some(scrub);
        }
        started
    }

    /// Waits for a channel's scrub, whoever began it, compares what was read back, and gives
    /// everything back; also after an error.
    ///
    /// # Errors
    /// [`ScrubError::NotStarted`]; [`ScrubError::Wrong`]; a time-out in [`ScrubError::Dma`], after
    /// which any part of the channel may have been overwritten.
    pub fn scrub_wait(&self, core: CoreId, channel: Channel) -> Result<(), ScrubError> {
        self.check_core(core)?;
        let slot = self.scrubs.get(channel.index());
        let slot = slot.ok_or(self.no_channel(channel))?;
        let mut slot = slot.lock(&*self.links.sched);
        let scrub = slot.take().ok_or(ScrubError::NotStarted { channel })?;
        self.end_scrub(scrub)
    }

    /// Waits for the scrubs that a process has begun, whatever comes of them.
    pub(super) fn settle_scrubs(&self, by: Pid) {
        for slot in &self.scrubs {
            let mut slot = slot.lock(&*self.links.sched);
            if let Some(scrub) = slot.take_if(|scrub| scrub.by == by) {
                let _ = self.end_scrub(scrub);
            }
        }
    }

    /// Stops all scrubs and gives their memory back.
    pub(super) fn stop_scrubs(&self) {
        for slot in &self.scrubs {
            if let Some(scrub) = slot.lock(&*self.links.sched).take() {
                self.dismantle(scrub);
            }
        }
    }

    /// Moves `copies` times 64 KiB from one place to another on the ring of a core, in one batch in
    /// which every pair has a data memory barrier, as those of a scrub, and waits for it.
    ///
    /// # Errors
    /// [`DmaError`], as for [`copy`](Self::copy); [`DmaError::NoRoom`] if it is more than a ring
    /// holds.
    pub fn device_batch(
        &self,
        by: Pid,
        core: CoreId,
        source: BusAddr,
        target: BusAddr,
        copies: u32,
        wait: BatchWait,
    ) -> Result<(), DmaError> {
        let size_bytes = u64::from(copies) * SLOT_BYTES;
        let run = Run::fenced(source, target, size_bytes, wait.is_d2d).ok_or(DmaError::Wraps {
            source_at: source,
            target_at: target,
            size_bytes,
        })?;
        let mut ring = self.lane(core).hold(&self.links, by)?;
        ring.batch(run, wait.is_pipelined)
    }

    /// Takes memory, writes all batches, and rings once nothing can fail any more.
    fn start_scrub(&self, scrub: &mut Scrub, channel: Channel) -> Result<(), ScrubError> {
        let links = &self.links;
        let facts = self.memory.channel_facts();
        let facts = facts.get(channel.index());
        let facts = facts.ok_or_else(|| self.no_channel(channel))?;
        let (start, end) = (facts.effective_base, facts.region.end());
        let size_bytes = end.checked_offset_from(start).unwrap_or(0);

        let mut taking = Taking::new(&self.memory, scrub.core);
        self.claim_channel(&mut taking, channel)?;
        let pattern = taking.host(links.profile, SLOT_BYTES)?;
        let bytes = word_pattern(scrub.word);
        links.host.write(pattern, &bytes).map_err(DmaError::from)?;
        let read_back = taking.host(links.profile, STRIDE_BYTES)?;
        let markers = taking.host(links.profile, SCRUB_ENGINES as u64 * PAGE_SIZE_BYTES)?;
        for (number, &engine) in (0..).zip(&scrub.engines) {
            let begin = number * SLOT_BYTES;
            let queue = QueueId::new(engine, SCRUB_QUEUE);
            let Some(slots) = within(start, begin, size_bytes) else {
                break;
            };
            scrub.relays.push(Relay {
                pair: self.scrub_ring(&mut taking, queue, size_bytes)?,
                markers: Markers::new(HostPa::new(markers.get() + number * PAGE_SIZE_BYTES)),
                pairs: 0,
                slots,
                read_back: HostPa::new(read_back.get() + begin),
            });
        }
        let pattern = links.profile.host_to_bus(pattern);
        let staged: Result<Vec<_>, DmaError> = scrub
            .relays
            .iter()
            .map(|relay| self.stage_relay(relay, pattern))
            .collect();
        for (relay, staging) in scrub.relays.iter_mut().zip(staged?) {
            relay.pairs = staging.pairs();
            relay.pair.reset(&*links.port);
            let ready = Event::RingReady {
                descs: relay.pair.index().descs(),
            };
            let staged = Event::BatchStaged {
                context: Slot::Sync.number(),
                first: relay.pair.announced(),
                data_descs: relay.pairs - 1,
                size_bytes: relay
                    .transfers(links.profile, pattern)
                    .map(|it| it.size_bytes)
                    .sum(),
            };
            for event in [ready, staged] {
                self.tell_scrub(scrub.by, scrub.core, relay.pair.queue(), &event);
            }
            relay.pair.publish(&*links.port, staging);
        }
        scrub.chunks = taking.keep();
        Ok(())
    }

    /// Takes all of a channel that is free, if nobody has a chunk there.
    fn claim_channel(&self, taking: &mut Taking<'_>, channel: Channel) -> Result<(), ScrubError> {
        let books = || {
            let stats = self.memory.stats();
            stats.channels.get(channel.index()).copied()
        };
        let before = books().ok_or_else(|| self.no_channel(channel))?;
        let live_bytes = before.allocated_bytes.saturating_sub(CARVEOUT_SIZE_BYTES);
        let in_use = |live_bytes| ScrubError::InUse {
            channel,
            live_bytes,
        };
        if live_bytes > 0 {
            return Err(in_use(live_bytes));
        }
        // With nothing else in a pool, its largest hole is all that can be taken of it.
        let parts = [before.main_largest_bytes, before.small_largest_bytes];
        for size_bytes in parts.into_iter().filter(|&size_bytes| size_bytes > 0) {
            let request = AllocRequest {
                core: taking.core(),
                category: Category::NCDEV_DEVICE,
                site: self.memory.sites().intern("driver hbm scrub"),
                ..AllocRequest::device(size_bytes, channel)
            };
            taking.take(&request).map_err(|cause| match cause {
                AllocError::NoDeviceMemory { .. } => in_use(0),
                cause => DmaError::NoMemory {
                    core: taking.core(),
                    cause,
                }
                .into(),
            })?;
        }
        // Somebody may have been quicker.
        let after = books().ok_or_else(|| self.no_channel(channel))?;
        let claimed: u64 = parts.iter().sum();
        let live_bytes = after
            .allocated_bytes
            .saturating_sub(CARVEOUT_SIZE_BYTES + claimed);
        if live_bytes > 0 {
            return Err(in_use(live_bytes));
        }
        Ok(())
    }

    fn scrub_ring(
        &self,
        taking: &mut Taking<'_>,
        queue: QueueId,
        size_bytes: u64,
    ) -> Result<QueuePair, DmaError> {
        let profile = self.links.profile;
        let descs = scrub_ring_descs(size_bytes);
        let ring_bytes = u64::from(descs) * DESC_SIZE_BYTES;
        let rx = taking.host(profile, ring_bytes)?;
        let tx = taking.host(profile, ring_bytes)?;
        let core = taking.core();
        QueuePair::new(profile, queue, RingMemory { tx, rx, descs })
            .ok_or(DmaError::NotReady { core })
    }

    /// Writes an engine's batch, with its marker behind it. No doorbell is rung.
    fn stage_relay(&self, relay: &Relay, pattern: BusAddr) -> Result<Staging<'_>, DmaError> {
        let links = &self.links;
        let refusal = |error| DmaError::staging(relay.pair.queue(), error);
        let data_descs = relay.transfers(links.profile, pattern).count();
        let pairs = u32::try_from(data_descs + 1).unwrap_or(u32::MAX);
        let staging = relay.pair.stage(&*links.host, pairs);
        let mut staging = staging.map_err(refusal)?;
        for transfer in relay.transfers(links.profile, pattern) {
            staging.push(&transfer).map_err(refusal)?;
        }
        relay.markers.words(&*links.host, Slot::Sync)?.arm();
        let marker = relay.markers.transfer(links.profile, Slot::Sync);
        staging.push(&marker).map_err(refusal)?;
        Ok(staging)
    }

    fn end_scrub(&self, scrub: Scrub) -> Result<(), ScrubError> {
        // All of them, so that the trace tells of each.
        let waits: Vec<_> = scrub
            .relays
            .iter()
            .map(|relay| self.await_relay(&scrub, relay))
            .collect();
        let awaited: Result<(), DmaError> = waits.into_iter().collect();
        let result = awaited
            .map_err(ScrubError::from)
            .and_then(|()| self.verify(&scrub));
        self.dismantle(scrub);
        result
    }

    fn await_relay(&self, scrub: &Scrub, relay: &Relay) -> Result<(), DmaError> {
        let links = &self.links;
        let words = relay.markers.words(&*links.host, Slot::Sync)?;
        let awaited = Awaited {
            descs: relay.pairs,
            is_pipelined: false,
            is_d2d: true,
        };
        let budget = budget(&links.profile.wait, links.platform, awaited);
        let queue = relay.pair.queue();
        let looked = links.port.await_word(queue, words.poll, MARKER, budget);
        let context = Slot::Sync.number();
        let event = match looked {
            Ok(polls) => Event::BatchDone { context, polls },
            Err(why) => Event::BatchFailed {
                context,
                reason: why.reason,
            },
        };
        self.tell_scrub(scrub.by, scrub.core, queue, &event);
        looked.map(drop).map_err(DmaError::from)
    }

    /// Compares what was read back.
    fn verify(&self, scrub: &Scrub) -> Result<(), ScrubError> {
        let expected = word_pattern(scrub.word);
        let mut found = vec![0; expected.len()];
        let mut wrong: Option<(BusAddr, u8, u8)> = None;
        for relay in &scrub.relays {
            let last = relay.last_slot();
            // CAST: a slot, 64 KiB at most.
            #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
            let found = &mut found[..last.size_bytes() as usize];
            self.links
                .host
                .read(relay.read_back, found)
                .map_err(DmaError::from)?;
            let differs = (0..).zip(expected.iter().zip(&*found));
            let first = differs.filter(|(_, (expected, found))| expected != found);
            let first = first.map(|(offset, (expected, found))| {
                let at = BusAddr::new(last.start().get() + offset);
                (at, *expected, *found)
            });
            wrong = wrong.into_iter().chain(first.take(1)).min();
        }
        match wrong {
            None => Ok(()),
            Some((at, expected, found)) => Err(ScrubError::Wrong {
                at,
                expected,
                found,
            }),
        }
    }

    /// Stops the queues and gives everything back.
    fn dismantle(&self, scrub: Scrub) {
        let Scrub {
            engines,
            relays,
            mut chunks,
            ..
        } = scrub;
        for relay in &relays {
            relay.pair.stop(&*self.links.port);
        }
        give_back(&self.memory, &mut chunks);
        self.release_queues(&engines);
    }

    /// Keeps the queues of a scrub from processes: all of them, or none.
    fn claim_queues(&self, engines: &[EngineId]) -> Result<(), ScrubError> {
        for (index, &id) in engines.iter().enumerate() {
            let claimed = match self.engine(id) {
                Some(mut engine) if engine.is_up => engine.claim_for_scrub().map_err(|()| {
                    let queue = QueueId::new(id, SCRUB_QUEUE);
                    ScrubError::QueueTaken { queue }
                }),
                _ => Err(ScrubError::EngineDown { engine: id }),
            };
            if claimed.is_err() {
                self.release_queues(&engines[..index]);
                return claimed;
            }
        }
        Ok(())
    }

    fn release_queues(&self, engines: &[EngineId]) {
        for &id in engines {
            if let Some(mut engine) = self.engine(id) {
                engine.is_scrubbing = false;
            }
        }
    }

    fn check_core(&self, core: CoreId) -> Result<(), DmaError> {
        let cores = self.links.profile.cores;
        if core.get() < cores {
            Ok(())
        } else {
            Err(DmaError::NoCore { core, cores })
        }
    }

    fn no_channel(&self, channel: Channel) -> ScrubError {
        ScrubError::NoChannel {
            channel,
            channels: self.scrubs.len(),
        }
    }

    fn tell_scrub(&self, by: Pid, core: CoreId, queue: QueueId, event: &Event) {
        let links = &self.links;
        if links.told {
            let ids = Ids {
                process: Some(by),
                core: Some(core),
                ..Ids::queue(links.device, queue)
            };
            links.sink.event(links.sched.now(), &ids, event);
        }
    }
}

impl Relay {
    /// What its data descriptors move: the pattern to the first slot, each slot to the next, and
    /// the last one back.
    fn transfers(&self, profile: &ArchProfile, pattern: BusAddr) -> impl Iterator<Item = Transfer> {
        let (last, read_back) = (self.last_slot(), self.read_back);
        let fenced = |source, target, size_bytes| Transfer {
            source,
            target,
            size_bytes,
            barrier: Barrier::Dmb,
        };
        let mut source = pattern;
        let there = self.own_slots().map(move |slot| {
            let transfer = fenced(source, slot.start(), slot.size_bytes());
            source = slot.start();
            transfer
        });
        let back = profile.host_to_bus(read_back);
        there.chain([fenced(last.start(), back, last.size_bytes())])
    }

    fn own_slots(&self) -> impl Iterator<Item = Span<BusAddr>> {
        let slots = self.slots;
        (0..)
            .map(|row: u64| row * STRIDE_BYTES)
            .map_while(move |offset| within(slots.start(), offset, slots.size_bytes()))
            .map(|rest| Span::cut(rest.start(), rest.size_bytes().min(SLOT_BYTES)))
    }

    fn last_slot(&self) -> Span<BusAddr> {
        // It has a slot at least.
        let rows = (self.slots.size_bytes() - 1) / STRIDE_BYTES;
        let begin = rows * STRIDE_BYTES;
        Span::cut(
            BusAddr::new(self.slots.start().get() + begin),
            (self.slots.size_bytes() - begin).min(SLOT_BYTES),
        )
    }
}

/// What is left of `size_bytes` at `start` after the first `offset`; `None` if nothing is.
fn within(start: BusAddr, offset: u64, size_bytes: u64) -> Option<Span<BusAddr>> {
    let left = size_bytes.checked_sub(offset).filter(|&left| left > 0)?;
    Span::new(start.checked_add(offset)?, left)
}

/// A slot full of a word.
fn word_pattern(word: u32) -> Vec<u8> {
    word.to_le_bytes().repeat(SLOT_WORDS)
}

/// Words of a slot.
const SLOT_WORDS: usize = 1 << 14;
const _: () = assert!(SLOT_WORDS as u64 * 4 == SLOT_BYTES);
