//! How pairs are taken on one by one, when time passes or something goes wrong on order.

use glia_abi::event::{EngineFault, Event};
use glia_abi::fault::{PairAt, PairFault};
use glia_abi::sched::Tick;
use glia_abi::sync::Ordering;
use glia_abi::udma::{Direction, RxDesc, TxDesc};

use super::super::check::check;
use super::super::flight::{Did, Flight};
use super::super::side::RLIMIT_MASK_DMB;
use super::run::load;
use super::{Queue, lock};

impl Queue {
    /// Lets time go on for the pairs that take some, by one thing; says when the next is due.
    pub(super) fn fly(&self, flight: &mut Flight, now: Tick) -> Option<Tick> {
        let goes_on = match self.take_on(flight, now) {
            Ok(goes_on) => goes_on,
            Err(fault) => {
                self.stop(fault);
                return None;
            }
        };
        let [tx, rx] = &self.sides;
        let oldest = tx.retired.load(Ordering::Relaxed);
        match flight.advance(&self.bus, now) {
            Did::Nothing | Did::Something => {}
            Did::Written { place, pair, fault } => {
                let index = oldest + place as u64;
                if self.tells_moved() {
                    self.tell_moved(index, pair);
                }
                lock(&self.late_heads).note(fault, index, now);
                // Each is told by itself: others may come between them.
                self.tell(&Event::Executed {
                    first: index,
                    descs: 1,
                    size_bytes: pair.size_bytes,
                });
            }
            Did::Failed(fault) => {
                flight.clear();
                self.stop(fault);
                return None;
            }
        }
        let done = flight.retire();
        for side in [tx, rx] {
            let retired = side.retired.load(Ordering::Relaxed);
            // ORDER: whoever sees the pair retired sees its bytes.
            side.retired.store(retired + done, Ordering::Release);
        }
        if flight.has_hung() {
            self.stop_silently();
            return None;
        }
        // What is wrong is told when everything before it is done.
        let is_wrong = !goes_on && flight.len() == 0;
        let more = is_wrong || goes_on && flight.has_room() && self.ready() > flight.len();
        if more { Some(now) } else { flight.due() }
    }

    /// Takes on what there is room for. A descriptor that is wrong stops the queue when everything
    /// before it is done; until then the answer is false.
    fn take_on(&self, flight: &mut Flight, now: Tick) -> Result<bool, EngineFault> {
        let [tx, rx] = &self.sides;
        let has_no_dmb = tx.rlimit_mask.load(Ordering::Relaxed) & RLIMIT_MASK_DMB != 0;
        while flight.has_room() && self.ready() > flight.len() {
            let tx_position = tx.retired.load(Ordering::Relaxed) + flight.len();
            let rx_position = rx.retired.load(Ordering::Relaxed) + flight.len();
            let (tx_slot, rx_slot) = (tx.slot(tx_position), rx.slot(rx_position));
            let first = |direction, slot| {
                let descs = self.descriptors(direction, slot, 1)?;
                let missing = EngineFault::NotReady { direction };
                descs.first().map(load).ok_or(missing)
            };
            let checked = first(Direction::Tx, tx_slot).and_then(|tx_words| {
                let mut tx = TxDesc::from_words(tx_words);
                let rx = RxDesc::from_words(first(Direction::Rx, rx_slot)?);
                check((tx, tx_slot), (rx, rx_slot))?;
                if has_no_dmb {
                    tx.len_ctrl.set_data_barrier(false);
                }
                Ok((tx, rx))
            });
            let pair = match checked {
                Ok(pair) => pair,
                Err(_) if flight.len() > 0 => return Ok(false),
                Err(fault) => return Err(fault),
            };
            let fault = self.ordered(tx_position, pair);
            if let Some(fault) = fault {
                let index = tx_position;
                self.tell(&Event::Ordered { index, fault });
            }
            flight.take_on(&self.bus, now, self.id, pair, fault);
        }
        Ok(true)
    }

    /// What the fault plan has for a pair.
    fn ordered(&self, index: u64, (tx, _): (TxDesc, RxDesc)) -> Option<PairFault> {
        let faults = &self.bus.faults;
        if !faults.is_armed() {
            return None;
        }
        let batch = {
            let mut batches = lock(&self.batches);
            while batches.front().is_some_and(|it| it.pairs.end <= index) {
                batches.pop_front();
            }
            // One that was announced before there was a plan is passed over.
            let batch = batches.front().filter(|it| it.pairs.contains(&index));
            batch.cloned()?
        };
        faults.pair(&PairAt {
            device: self.bus.device,
            queue: self.id,
            index,
            in_batch: index - batch.pairs.start,
            is_last: index + 1 == batch.pairs.end,
            size_bytes: tx.len_ctrl.size_bytes(),
            reads_hbm: !self.bus.is_host(tx.source),
            in_reset: batch.in_reset,
        })
    }
}
