//! How pairs are executed while nothing takes time.

use glia_abi::event::{EngineFault, Event};
use glia_abi::sched::Step;
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::{DESC_SIZE_BYTES, DESC_WORDS, Direction, RxDesc, TxDesc};

use super::super::check::check;
use super::super::copy::{self, Held, HeldPins, Pair, Stretch};
use super::super::side::Slot;
use super::Queue;

/// Pairs that one step executes at most: whoever else has work gets a turn.
const STEP_PAIRS: u64 = 64;

impl Queue {
    /// Executes what is ready, up to [`STEP_PAIRS`] pairs, and tells so.
    pub(super) fn run_straight(&self, stretch: &mut Stretch) -> Step {
        let first = self.side(Direction::Tx).retired.load(Ordering::Relaxed);
        let (done, size_bytes, fault) = self.run(self.ready().min(STEP_PAIRS), stretch);
        if done > 0 {
            // CAST: at most STEP_PAIRS.
            #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
            let descs = done as u32;
            self.tell(&Event::Executed {
                first,
                descs,
                size_bytes,
            });
        }
        if let Some(fault) = fault {
            self.stop(fault);
        }
        if self.ready() > 0 {
            Step::Again
        } else {
            Step::Idle
        }
    }

    /// Executes up to so many pairs; says how many bytes they moved, and how many they were, and
    /// the fault that ended them.
    fn run(&self, pairs: u64, stretch: &mut Stretch) -> (u64, u64, Option<EngineFault>) {
        let [tx, rx] = &self.sides;
        let (mut done, mut moved_bytes) = (0, 0);
        let mut held = Held {
            pins: HeldPins::default(),
            stretch,
        };
        while done < pairs {
            let tx_position = tx.retired.load(Ordering::Relaxed);
            let rx_position = rx.retired.load(Ordering::Relaxed);
            let (tx_slot, rx_slot) = (tx.slot(tx_position), rx.slot(rx_position));
            // As far as neither ring ends.
            let tx_left = tx.ring_len().saturating_sub(tx_slot.index);
            let rx_left = rx.ring_len().saturating_sub(rx_slot.index);
            let straight = (pairs - done).min(tx_left).min(rx_left);
            if straight == 0 {
                // A length of 0 was written while descriptors were posted.
                let direction = if tx_left == 0 {
                    Direction::Tx
                } else {
                    Direction::Rx
                };
                return (done, moved_bytes, Some(EngineFault::NotReady { direction }));
            }
            let tx_descs = self.descriptors(Direction::Tx, tx_slot, straight);
            let rx_descs = self.descriptors(Direction::Rx, rx_slot, straight);
            let (tx_descs, rx_descs) = match (tx_descs, rx_descs) {
                (Ok(tx_descs), Ok(rx_descs)) => (tx_descs, rx_descs),
                (Err(fault), _) | (_, Err(fault)) => return (done, moved_bytes, Some(fault)),
            };
            for (step, (tx_desc, rx_desc)) in tx_descs.iter().zip(rx_descs).enumerate() {
                // A doorbell may have stopped the queue meanwhile.
                if self.stopped.load(Ordering::Relaxed) != 0 {
                    return (done, moved_bytes, None);
                }
                let tx_desc = TxDesc::from_words(load(tx_desc));
                let rx_desc = RxDesc::from_words(load(rx_desc));
                let behind = rx_descs.iter().skip(step + 1);
                let ahead = behind.map(|desc| RxDesc::from_words(load(desc)));
                let step = step as u64;
                let index = tx_position + step;
                let (sent, received) = ((tx_desc, tx_slot), (rx_desc, rx_slot));
                match self.execute(index, sent, received, &mut held, ahead) {
                    Ok(size_bytes) => moved_bytes += size_bytes,
                    Err(fault) => return (done, moved_bytes, Some(fault)),
                }
                done += 1;
                // ORDER: whoever sees the pair retired sees its bytes.
                tx.retired.store(index + 1, Ordering::Release);
                rx.retired.store(rx_position + step + 1, Ordering::Release);
            }
        }
        (done, moved_bytes, None)
    }

    /// Executes one pair, at this slot of either ring; `ahead` are the descriptors behind `rx`.
    fn execute<'a>(
        &'a self,
        index: u64,
        (tx, tx_slot): (TxDesc, Slot),
        (rx, rx_slot): (RxDesc, Slot),
        held: &mut Held<'a, '_>,
        ahead: impl Iterator<Item = RxDesc>,
    ) -> Result<u64, EngineFault> {
        check((tx, tx_slot), (rx, rx_slot))?;
        let pair = Pair::of(tx, rx);
        copy::execute(&self.bus, pair, held, ahead)?;
        if self.tells_moved() {
            // Whoever hears it may do what it likes with pins.
            held.pins.let_go();
            self.tell_moved(index, pair);
        }
        Ok(pair.size_bytes)
    }

    /// Whether somebody wants to hear of each pair.
    pub(super) fn tells_moved(&self) -> bool {
        self.bus.detail >= glia_abi::event::Detail::Descriptors
    }

    pub(super) fn tell_moved(&self, index: u64, pair: Pair) {
        self.tell(&Event::Moved {
            index,
            source: pair.source,
            target: pair.target,
            size_bytes: pair.size_bytes,
        });
    }

    /// The descriptors of a side from a slot on: `count` of them, or the first if the ring leaves
    /// memory behind it.
    pub(super) fn descriptors(
        &self,
        direction: Direction,
        slot: Slot,
        count: u64,
    ) -> Result<&[[AtomicU32; DESC_WORDS]], EngineFault> {
        let base = self.side(direction).ring_base();
        let at = base.checked_add(slot.index * DESC_SIZE_BYTES);
        let found = at.and_then(|at| {
            let all = self.bus.descriptors(at, count);
            all.or_else(|| self.bus.descriptors(at, 1))
        });
        found.ok_or(EngineFault::RingAddress {
            direction,
            at: at.unwrap_or(base),
        })
    }
}

/// The words of a descriptor. They belong to the queue, so they do not change meanwhile; if
/// somebody changes them all the same, some mix is executed, as on hardware.
pub(super) fn load(words: &[AtomicU32; DESC_WORDS]) -> [u32; DESC_WORDS] {
    words.each_ref().map(|word| word.load(Ordering::Relaxed))
}
