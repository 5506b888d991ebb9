//! A queue brought up and driven by hand: what the rules of a port are checked with.
//!
//! ```text
//!   block in host memory: TX ring │ RX ring │ words │ two buffers of 128 KiB
//! ```

use super::PortFixture;
use crate::PAGE_SIZE_BYTES;
use crate::addr::{BusAddr, HostPa, Span};
use crate::conformance::dma_memory::{get, put};
use crate::conformance::host_memory::{give, take};
use crate::conformance::{Must, Violation, hold};
use crate::handle::QueueId;
use crate::port::{Budget, NotCompleted, TimedOut};
use crate::regs::{QUEUE_CFG_RESET, QUEUE_ENABLED, QUEUE_RESET_BIT, QueueReg, RingPointer};
use crate::sched::Micros;
use crate::sync::{AtomicU32, Ordering};
use crate::udma::{
    Barrier, DESC_SIZE_BYTES, DESC_WORDS, Direction, MARKER, MARKER_SIZE_BYTES, RING_DESCS_MIN,
    RingId, RxDesc, Transfer, TxDesc,
};

/// Descriptors of each ring.
pub(super) const RING_DESCS: u32 = RING_DESCS_MIN;
/// Bytes of a buffer.
pub(super) const BUFFER_SIZE_BYTES: u64 = 128 << 10;
/// Offsets in the block.
const RX_RING: u64 = PAGE_SIZE_BYTES;
const WORDS: u64 = 2 * PAGE_SIZE_BYTES;
const BUFFERS: u64 = 3 * PAGE_SIZE_BYTES;
/// Bytes of the block.
const BLOCK_SIZE_BYTES: u64 = BUFFERS + 2 * BUFFER_SIZE_BYTES;
/// The words: what the marker is copied from, where it goes, and one that nobody writes.
const SOURCE_WORD: u64 = 0;
const POLL_WORD: u64 = 4;
const SPARE_WORD: u64 = 8;
/// Nobody writes this anywhere.
const UNSEEN: u32 = 0x0bad_cafe;
/// Long enough for any device, and not endless for one that is wrong.
const BUDGET: Budget = Budget {
    first: Micros(1),
    following: Micros(2_000_000),
};

/// A queue and the memory that it is driven with.
pub(super) struct Rig<'a> {
    pub(super) fixture: &'a PortFixture<'a>,
    pub(super) queue: QueueId,
    block: Span<HostPa>,
    /// The next slot of both rings, and its lap.
    pub(super) slot: u32,
    pub(super) lap: RingId,
    /// Pairs that were staged and not announced.
    staged: u32,
}

impl<'a> Rig<'a> {
    /// Takes memory for a queue and brings it up.
    pub(super) fn new(fixture: &'a PortFixture<'a>, queue: QueueId) -> Result<Self, Violation> {
        let mut rig = Self {
            fixture,
            queue,
            block: take(fixture.memory, fixture.device, BLOCK_SIZE_BYTES)?,
            slot: 0,
            lap: RingId::FIRST,
            staged: 0,
        };
        rig.bring_up()?;
        Ok(rig)
    }

    /// Resets the queue and gives the memory back.
    pub(super) fn end(self) -> Result<(), Violation> {
        self.reset()?;
        give(self.fixture.memory, self.fixture.device, self.block);
        Ok(())
    }

    /// Resets the queue and sets up both of its rings, as the driver does.
    pub(super) fn bring_up(&mut self) -> Result<(), Violation> {
        self.reset()?;
        for direction in Direction::BOTH {
            let ring = match direction {
                Direction::Tx => self.host(0)?,
                Direction::Rx => self.host(RX_RING)?,
            };
            self.set_base(direction, self.bus(ring))?;
            self.write(QueueReg::Drl, direction, RING_DESCS)?;
            self.write(QueueReg::CompCfg, direction, 0)?;
            self.write(QueueReg::Cfg, direction, QUEUE_ENABLED)?;
        }
        (self.slot, self.lap, self.staged) = (0, RingId::FIRST, 0);
        Ok(())
    }

    /// Disables both sides and resets them.
    fn reset(&self) -> Result<(), Violation> {
        for direction in Direction::BOTH {
            self.write(QueueReg::Cfg, direction, QUEUE_CFG_RESET)?;
            self.write(QueueReg::SwCtrl, direction, QUEUE_RESET_BIT)?;
            self.write(QueueReg::SwCtrl, direction, 0)?;
        }
        Ok(())
    }

    /// Tells where a ring begins.
    pub(super) fn set_base(&self, direction: Direction, at: BusAddr) -> Result<(), Violation> {
        let [low, high] = words_of(at);
        self.write(QueueReg::DrbpLow, direction, low)?;
        self.write(QueueReg::DrbpHigh, direction, high)
    }

    // Registers.

    pub(super) fn read(&self, register: QueueReg, direction: Direction) -> Result<u32, Violation> {
        let at = register.at(self.fixture.layout.profile(), self.queue, direction);
        Ok(self.fixture.port.reg_read(at.must(HAS_QUEUES)?))
    }

    pub(super) fn write(
        &self,
        register: QueueReg,
        direction: Direction,
        value: u32,
    ) -> Result<(), Violation> {
        let at = register.at(self.fixture.layout.profile(), self.queue, direction);
        self.fixture.port.reg_write(at.must(HAS_QUEUES)?, value);
        Ok(())
    }

    /// A head, a tail or a current pointer has to be at this slot of this lap.
    pub(super) fn pointer_is(
        &self,
        register: QueueReg,
        direction: Direction,
        (slot, lap): (u32, RingId),
        rule: &'static str,
    ) -> Result<(), Violation> {
        let found = RingPointer::from(self.read(register, direction)?);
        let expected = RingPointer::new().with_offset(slot).with_ring_id(lap.get());
        hold!(
            found == expected,
            rule,
            "{register:?} of {} is slot {} of lap {}, not slot {slot} of lap {}",
            direction.name(),
            found.offset(),
            found.ring_id(),
            lap.get()
        );
        Ok(())
    }

    // Memory.

    /// A place in the block.
    fn host(&self, offset: u64) -> Result<HostPa, Violation> {
        let at = self.block.start().checked_add(offset);
        at.must("a range does not wrap")
    }

    /// A host address as the device sees it.
    pub(super) fn bus(&self, at: HostPa) -> BusAddr {
        self.fixture.layout.host_to_bus(at)
    }

    /// A place in one of the two buffers.
    pub(super) fn buffer(&self, number: u64, offset: u64) -> Result<HostPa, Violation> {
        self.host(BUFFERS + number * BUFFER_SIZE_BYTES + offset)
    }

    /// The same as the device sees it.
    pub(super) fn buffer_bus(&self, number: u64, offset: u64) -> Result<BusAddr, Violation> {
        Ok(self.bus(self.buffer(number, offset)?))
    }

    /// Fills a buffer from its start.
    pub(super) fn fill(&self, number: u64, bytes: &[u8]) -> Result<(), Violation> {
        put(self.fixture.memory, self.buffer(number, 0)?, bytes)
    }

    /// The first bytes of a buffer.
    pub(super) fn bytes(&self, number: u64, size: usize) -> Result<Vec<u8>, Violation> {
        get(self.fixture.memory, self.buffer(number, 0)?, size)
    }

    /// A word of the block.
    pub(super) fn word(&self, offset: u64) -> Result<&AtomicU32, Violation> {
        let words = self.fixture.memory.words(self.host(offset)?, 4);
        let words = words.must("a range within host memory is accessible")?;
        words.first().must("a range has a word for each four bytes")
    }

    // Descriptors.

    /// Stages one pair.
    pub(super) fn stage(&mut self, transfer: Transfer) -> Result<(), Violation> {
        let pair = transfer.descriptors(self.lap, self.lap);
        let (tx, rx) = pair.must("the check stages sizes that exist")?;
        self.stage_pair(tx, rx)
    }

    /// Stages any two descriptors.
    pub(super) fn stage_pair(&mut self, tx: TxDesc, rx: RxDesc) -> Result<(), Violation> {
        let in_ring = u64::from(self.slot) * DESC_SIZE_BYTES;
        self.store(in_ring, tx.to_words())?;
        self.store(RX_RING + in_ring, rx.to_words())?;
        self.staged += 1;
        self.slot += 1;
        if self.slot == RING_DESCS {
            (self.slot, self.lap) = (0, self.lap.next());
        }
        Ok(())
    }

    fn store(&self, offset: u64, desc: [u32; DESC_WORDS]) -> Result<(), Violation> {
        let words = self
            .fixture
            .memory
            .words(self.host(offset)?, DESC_SIZE_BYTES);
        let words = words.must("a range within host memory is accessible")?;
        for (word, value) in words.iter().zip(desc) {
            word.store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Stages the pair that copies `value` into the poll word.
    pub(super) fn stage_marker(&mut self, value: u32) -> Result<(), Violation> {
        self.word(WORDS + SOURCE_WORD)?
            .store(value, Ordering::Relaxed);
        self.word(WORDS + POLL_WORD)?.store(0, Ordering::Relaxed);
        let source = self.bus(self.host(WORDS + SOURCE_WORD)?);
        let target = self.bus(self.host(WORDS + POLL_WORD)?);
        self.stage(copy(source, target, MARKER_SIZE_BYTES))
    }

    /// Rings one side's doorbell.
    pub(super) fn ring(&self, direction: Direction, descs: u32) -> Result<(), Violation> {
        self.write(QueueReg::DrtpInc, direction, descs)
    }

    /// Announces all that was staged, RX first.
    pub(super) fn announce(&mut self) -> Result<(), Violation> {
        self.ring(Direction::Rx, self.staged)?;
        self.ring(Direction::Tx, self.staged)?;
        self.staged = 0;
        Ok(())
    }

    /// How many were staged and not announced; the caller announces them.
    pub(super) fn take_staged(&mut self) -> u32 {
        std::mem::take(&mut self.staged)
    }

    // Waiting.

    /// Waits for the marker.
    pub(super) fn wait(&self) -> Result<Result<u64, TimedOut>, Violation> {
        let poll = self.word(WORDS + POLL_WORD)?;
        Ok(self
            .fixture
            .port
            .await_word(self.queue, poll, MARKER, BUDGET))
    }

    /// Stages these and a marker, announces them, and waits for it.
    pub(super) fn run(&mut self, transfers: &[Transfer]) -> Result<(), Violation> {
        for &transfer in transfers {
            self.stage(transfer)?;
        }
        self.stage_marker(MARKER)?;
        self.announce()?;
        self.wait()?.must("a batch that is announced is executed")?;
        Ok(())
    }

    /// Waits until the queue has done all that was announced.
    pub(super) fn is_idle(&self) -> Result<(), Violation> {
        self.rests(
            NotCompleted::Idle,
            "a wait for a queue that has nothing to do ends, and says so",
        )
    }

    /// Waits until the queue has stopped, which it has to.
    pub(super) fn has_stopped(&self, rule: &'static str) -> Result<(), Violation> {
        self.rests(NotCompleted::Stopped, rule)
    }

    /// Waits for a word that never comes, until that is certain.
    fn rests(&self, reason: NotCompleted, rule: &'static str) -> Result<(), Violation> {
        let spare = self.word(WORDS + SPARE_WORD)?;
        let found = self
            .fixture
            .port
            .await_word(self.queue, spare, UNSEEN, BUDGET);
        let queue = self.queue;
        hold!(
            found == Err(TimedOut { queue, reason }),
            rule,
            "{found:?} where {reason:?} was to be said"
        );
        Ok(())
    }
}

const HAS_QUEUES: &str = "the fixture's queues are queues of the device";

/// A plain copy.
pub(super) fn copy(source: BusAddr, target: BusAddr, size_bytes: u64) -> Transfer {
    Transfer {
        source,
        target,
        size_bytes,
        barrier: Barrier::None,
    }
}

/// The address this far up.
pub(super) fn above(at: BusAddr, offset: u64) -> Result<BusAddr, Violation> {
    at.checked_add(offset).must("a range does not wrap")
}

/// The halves of an address, low word first.
fn words_of(at: BusAddr) -> [u32; 2] {
    let desc = TxDesc {
        source: at,
        ..TxDesc::default()
    };
    let [_, _, low, high] = desc.to_words();
    [low, high]
}
