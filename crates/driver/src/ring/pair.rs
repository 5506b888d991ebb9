//! A queue pair: two rings in host memory and the registers behind them.

use glia_abi::addr::{BusAddr, HostPa, RegOffset};
use glia_abi::arch::ArchProfile;
use glia_abi::handle::QueueId;
use glia_abi::port::{BadHostRange, DmaMemory, Port};
use glia_abi::regs::{QUEUE_CFG_RESET, QUEUE_ENABLED, QUEUE_RESET_BIT, QueueReg};
use glia_abi::sync::{AtomicU32, Ordering, fence};
use glia_abi::udma::{BadTransferSize, DESC_SIZE_BYTES, DESC_WORDS, Direction, Transfer};

use super::RingIndex;

/// Rate-limit mask of the TX side: bit 2 clear lets data memory barriers take effect.
const RLIMIT_MASK: u32 = 0b011;

/// Why a batch could not be staged. The queue is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageError {
    /// The ring has no room for the whole batch.
    NoRoom {
        /// Pairs wanted.
        pairs: u32,
        /// Pairs that there is room for.
        available: u32,
    },
    /// The ring is not in host memory.
    Memory(BadHostRange),
    /// A transfer has a size that no descriptor can say.
    Size(BadTransferSize),
}

/// Where the two rings lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingMemory {
    /// The source side.
    pub(crate) tx: HostPa,
    /// The destination side.
    pub(crate) rx: HostPa,
    /// Slots of each.
    pub(crate) descs: u32,
}

impl RingMemory {
    fn base(&self, direction: Direction) -> HostPa {
        match direction {
            Direction::Tx => self.tx,
            Direction::Rx => self.rx,
        }
    }

    fn size_bytes(&self) -> u64 {
        u64::from(self.descs) * DESC_SIZE_BYTES
    }
}

/// The driver's side of a queue.
pub(crate) struct QueuePair {
    profile: &'static ArchProfile,
    queue: QueueId,
    memory: RingMemory,
    /// TX and RX.
    doorbells: [RegOffset; 2],
    index: RingIndex,
    /// Pairs announced since the queue's first bring-up; resets do not count back.
    announced: u64,
    /// A mutant for loom to catch: rings the doorbells without a fence.
    #[cfg(loom)]
    pub(crate) without_fence: bool,
}

impl QueuePair {
    /// A queue that is not set up yet: [`reset`](Self::reset) does it. `None` if the device has no
    /// such queue, or no ring has that many slots.
    pub(crate) fn new(
        profile: &'static ArchProfile,
        queue: QueueId,
        memory: RingMemory,
    ) -> Option<Self> {
        let doorbell = |direction| QueueReg::DrtpInc.at(profile, queue, direction);
        Some(Self {
            profile,
            queue,
            memory,
            doorbells: [doorbell(Direction::Tx)?, doorbell(Direction::Rx)?],
            index: RingIndex::new(memory.descs)?,
            announced: 0,
            #[cfg(loom)]
            without_fence: false,
        })
    }

    /// Which queue.
    pub(crate) fn queue(&self) -> QueueId {
        self.queue
    }

    /// Where its rings stand.
    pub(crate) fn index(&self) -> RingIndex {
        self.index
    }

    /// Pairs announced so far.
    pub(crate) fn announced(&self) -> u64 {
        self.announced
    }

    /// Goes on counting where an earlier pair of the same queue has stopped.
    pub(crate) fn count_on_from(&mut self, earlier: &Self) {
        self.announced = earlier.announced;
    }

    /// Stops the queue, drops what it has to do, and sets it up with empty rings: the register
    /// writes of the reference, in its order. The first bring-up is the same.
    pub(crate) fn reset(&mut self, port: &dyn Port) {
        for direction in Direction::BOTH {
            let base = self.profile.host_to_bus(self.memory.base(direction));
            set_up(
                port,
                self.profile,
                self.queue,
                direction,
                base,
                self.memory.descs,
            );
        }
        self.index = self.index.restarted();
    }

    /// Stops a queue and drops what it has to do.
    pub(crate) fn stop(&self, port: &dyn Port) {
        stop(port, self.profile, self.queue);
    }

    /// Lends the rings for a batch of exactly `pairs` pairs.
    pub(crate) fn stage<'h>(
        &self,
        host: &'h (impl DmaMemory + ?Sized),
        pairs: u32,
    ) -> Result<Staging<'h>, StageError> {
        let available = self.index.available();
        if available < pairs {
            return Err(StageError::NoRoom { pairs, available });
        }
        let size_bytes = self.memory.size_bytes();
        let words = |direction| {
            host.words(self.memory.base(direction), size_bytes)
                .map(|words| words.as_chunks().0)
                .map_err(StageError::Memory)
        };
        Ok(Staging {
            tx: words(Direction::Tx)?,
            rx: words(Direction::Rx)?,
            index: self.index,
            pairs: 0,
        })
    }

    /// Commits what was staged and announces it: RX first, which is only credit, so that nothing
    /// runs before both sides are there.
    pub(crate) fn publish(&mut self, port: &dyn Port, staged: Staging<'_>) {
        self.index = staged.index;
        self.announced += u64::from(staged.pairs);
        let [tx, rx] = self.doorbells;
        for doorbell in [rx, tx] {
            self.publish_fence();
            port.reg_write(doorbell, staged.pairs);
        }
    }

    /// ORDER: the stores of descriptors and markers before the store of the doorbell.
    fn publish_fence(&self) {
        #[cfg(loom)]
        if self.without_fence {
            return;
        }
        fence(Ordering::Release);
    }

    /// Gives slots back that the engine has executed.
    pub(crate) fn acknowledge(&mut self, descs: u32) {
        self.index.acknowledge(descs);
    }
}

/// A batch that is being filled. Dropping it leaves the queue as it was.
pub(crate) struct Staging<'h> {
    tx: &'h [[AtomicU32; DESC_WORDS]],
    rx: &'h [[AtomicU32; DESC_WORDS]],
    index: RingIndex,
    pairs: u32,
}

impl Staging<'_> {
    /// Writes the pair of descriptors that makes this transfer.
    pub(crate) fn push(&mut self, transfer: &Transfer) -> Result<(), StageError> {
        let no_room = StageError::NoRoom {
            pairs: self.pairs + 1,
            available: self.pairs,
        };
        let slot = self.index.take().ok_or(no_room)?;
        let (tx, rx) = transfer
            .descriptors(slot.ring_id, slot.ring_id)
            .map_err(StageError::Size)?;
        let number = slot.number as usize;
        write(self.tx.get(number).ok_or(no_room)?, tx.to_words());
        write(self.rx.get(number).ok_or(no_room)?, rx.to_words());
        self.pairs += 1;
        Ok(())
    }

    /// Pairs written so far.
    pub(crate) fn pairs(&self) -> u32 {
        self.pairs
    }
}

/// Sets one side of a queue up with an empty ring: the register writes of the reference, in its
/// order. What the queue had to do is dropped.
pub(crate) fn set_up(
    port: &dyn Port,
    profile: &ArchProfile,
    queue: QueueId,
    direction: Direction,
    base: BusAddr,
    descs: u32,
) {
    // CAST: the halves of the address.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    let (base_low, base_high) = (base.get() as u32, (base.get() >> 32) as u32);
    let writes = [
        (QueueReg::RlimitMask, RLIMIT_MASK),
        (QueueReg::Cfg, QUEUE_CFG_RESET),
        (QueueReg::SwCtrl, QUEUE_RESET_BIT),
        (QueueReg::DrbpLow, base_low),
        (QueueReg::DrbpHigh, base_high),
        (QueueReg::Drl, descs),
        (QueueReg::CompCfg, 0),
        (QueueReg::Cfg, QUEUE_ENABLED),
    ];
    write_all(port, profile, queue, direction, &writes);
}

/// Stops a queue, both sides, and drops what it has to do.
pub(crate) fn stop(port: &dyn Port, profile: &ArchProfile, queue: QueueId) {
    let writes = [
        (QueueReg::Cfg, QUEUE_CFG_RESET),
        (QueueReg::SwCtrl, QUEUE_RESET_BIT),
    ];
    for direction in Direction::BOTH {
        write_all(port, profile, queue, direction, &writes);
    }
}

fn write_all(
    port: &dyn Port,
    profile: &ArchProfile,
    queue: QueueId,
    direction: Direction,
    writes: &[(QueueReg, u32)],
) {
    for &(register, value) in writes {
        // The RX side has no rate limit.
        if let Some(at) = register.at(profile, queue, direction) {
            port.reg_write(at, value);
        }
    }
}

/// Writes a descriptor into its slot. It is the engine's with the doorbell.
pub(crate) fn write(slot: &[AtomicU32; DESC_WORDS], words: [u32; DESC_WORDS]) {
    for (cell, word) in slot.iter().zip(words) {
        cell.store(word, Ordering::Relaxed);
    }
}
