//! A ring that is held for one operation, and how a batch is handed to its engine.

use glia_abi::event::Event;
use glia_abi::fault::{FaultPoint, Faults, Scope, StagedBatch};
use glia_abi::handle::{CoreId, Pid};
use glia_abi::port::TimedOut;
use glia_abi::sched::{SleepGuard, Tick};
use glia_abi::udma::{Direction, Transfer};

use super::DmaError;
use super::context::{Account, Context, Slot, Turn};
use super::lane::{H2tRing, Lane, Links};
use super::marker::MarkerWords;
use crate::ring::QueuePair;

/// A ring that is held for one operation. What is done with it is told by what it is done for:
/// copies (`copy.rs`), zero copies (`zerocopy/`), and what becomes of both when a marker does not
/// come (`failure.rs`).
pub(crate) struct Held<'a> {
    pub(super) links: &'a Links,
    pub(super) lane: &'a Lane,
    pub(super) ring: SleepGuard<'a, H2tRing>,
    pub(super) by: Pid,
    /// A synchronous zero copy is under way.
    pub(super) is_zero_copying: bool,
    /// The failure that happened while this operation stood in line.
    missed: Option<TimedOut>,
}

/// A batch that is to be staged.
pub(super) struct Batching<'h> {
    /// On whose account.
    pub(super) account: Account,
    /// The number by which events call its context.
    pub(super) context: u32,
    /// Bytes of its data.
    pub(super) size_bytes: u64,
    /// Descriptors of each side for them.
    pub(super) data_descs: u32,
    /// What the engine copies behind the data.
    pub(super) marker: Transfer,
    /// The marker's words.
    pub(super) words: MarkerWords<'h>,
}

/// A batch that the engine has been given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Staged {
    /// Descriptors of each side, the marker included.
    pub(crate) pairs: u32,
    /// The queue's count of pairs before it: the order in which batches were staged.
    pub(crate) first: u64,
    /// When it was staged; 0 where nothing is ever tried again.
    pub(crate) started: Tick,
}

impl<'a> Held<'a> {
    pub(super) fn new(
        links: &'a Links,
        lane: &'a Lane,
        ring: SleepGuard<'a, H2tRing>,
        by: Pid,
        missed: Option<TimedOut>,
    ) -> Self {
        // Mostly it waits for what it stages.
        links.sched.keep_kicks(true);
        Self {
            links,
            lane,
            ring,
            by,
            is_zero_copying: false,
            missed,
        }
    }

    /// Whether the ring takes copies.
    pub(super) fn is_open(&self) -> bool {
        self.ring.is_open()
    }

    pub(super) fn ring_mut(&mut self) -> &mut H2tRing {
        &mut self.ring
    }

    /// On whose account this operation is.
    pub(super) fn account(&self) -> Account {
        Account {
            by: self.by,
            command: Scope::current().command,
        }
    }

    /// Answers with the failure that was missed in line, if any; `asked` is what the caller then
    /// knows to be lost.
    pub(super) fn answer_missed(&mut self, asked: Option<Slot>) -> Result<(), DmaError> {
        let Some(missed) = self.missed else {
            return Ok(());
        };
        if let Some(slot) = asked {
            self.forget(slot);
        }
        Err(missed.into())
    }

    /// Refuses a batch of so many pairs for which there is no room by order of a fault plan. One
    /// that is staged again has had its room.
    pub(super) fn refuse_by_order(&self, account: Account, pairs: u32) -> Result<(), DmaError> {
        let faults = &self.links.faults;
        if !faults.is_armed() {
            return Ok(());
        }
        let _for_batch = self.scope(account).enter();
        if !faults.strikes(FaultPoint::RingRoom) {
            return Ok(());
        }
        Err(DmaError::NoRoom {
            queue: self.ring.pair.queue(),
            pairs,
            available: 0,
        })
    }

    /// For whom a batch is.
    pub(super) fn scope(&self, account: Account) -> Scope {
        scope(self.links, self.lane.core(), account)
    }

    /// Makes a context idle whose batch was lost.
    pub(super) fn forget(&mut self, slot: Slot) {
        if let Context::Failed { .. } = self.ring.context(slot) {
            self.turn(slot, Turn::Forgotten);
        }
    }

    #[inline(always)]
    pub(super) fn turn(&mut self, slot: Slot, turn: Turn) {
        let context = &mut self.ring.contexts[slot.index()];
        let next = context.after(turn);
        debug_assert!(next.is_some(), "{turn:?} in {context:?}");
        if let Some(next) = next {
            *context = next;
        }
        if !matches!(turn, Turn::Staged(_) | Turn::StagedAgain(_)) {
            self.ring.holds[slot.index()] = None;
        }
    }

    /// A marker has come: gives the slots of its batch back.
    pub(super) fn acknowledge(&mut self, account: Account, context: u32, pairs: u32, polls: u64) {
        self.tell(account.by, &Event::BatchDone { context, polls });
        self.ring.pair.acknowledge(pairs);
        for direction in [Direction::Rx, Direction::Tx] {
            let descs = pairs;
            let event = Event::Acknowledged { direction, descs };
            self.tell(account.by, &event);
        }
    }

    pub(super) fn tell(&self, by: Pid, event: &Event) {
        self.links.tell(self.lane, Some(by), event);
    }
}

impl Drop for Held<'_> {
    /// An operation that waits for what it has staged may be unwound. Nobody else would wait for it,
    /// and its memory goes with the caller: the ring fails.
    fn drop(&mut self) {
        let is_copying = matches!(self.ring.context(Slot::Sync), Context::InFlight(_));
        if is_copying || self.is_zero_copying {
            self.desert();
        }
        self.links.sched.keep_kicks(false);
    }
}

/// Writes a batch into a ring and rings the doorbells. After a refusal the ring is as it was.
#[inline]
pub(super) fn announce(
    links: &Links,
    lane: &Lane,
    pair: &mut QueuePair,
    batch: &Batching<'_>,
    transfers: impl Iterator<Item = Transfer>,
) -> Result<Staged, DmaError> {
    let queue = pair.queue();
    let refusal = |error| DmaError::staging(queue, error);
    let started = links.stamp();
    let mut staging = pair
        .stage(&*links.host, batch.data_descs.saturating_add(1))
        .map_err(refusal)?;
    for transfer in transfers {
        staging.push(&transfer).map_err(refusal)?;
    }
    batch.words.arm();
    staging.push(&batch.marker).map_err(refusal)?;

    let staged = Staged {
        pairs: staging.pairs(),
        first: pair.announced(),
        started,
    };
    // Told before the doorbells, since in inline mode the engine runs inside them.
    let event = Event::BatchStaged {
        context: batch.context,
        first: staged.first,
        data_descs: batch.data_descs,
        size_bytes: batch.size_bytes,
    };
    links.tell(lane, Some(batch.account.by), &event);
    let faults: &dyn Faults = &*links.faults;
    if faults.is_armed() {
        faults.staged(&StagedBatch {
            device: links.device,
            queue,
            first: staged.first,
            pairs: staged.pairs,
            scope: scope(links, lane.core(), batch.account),
        });
    }
    pair.publish(&*links.port, staging);
    Ok(staged)
}

fn scope(links: &Links, core: CoreId, account: Account) -> Scope {
    Scope {
        device: Some(links.device),
        process: Some(account.by),
        core: Some(core),
        command: account.command,
    }
}
