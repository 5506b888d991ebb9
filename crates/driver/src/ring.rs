//! Descriptor rings: where the next pair of descriptors goes, and how a batch of them is handed to
//! the engine.
//!
//! A queue has two rings of 16-byte descriptors in host memory, a source side (TX) and a
//! destination side (RX). The driver's own queues take one descriptor of each side for every
//! transfer, always at the same position, so one [`RingIndex`] says where both stand:
//!
//! ```text
//!        acked              next                    acked + size - 16
//!   ───────┼──────────────────┼─────────────────────────┼─── gap ───
//!    free  │    announced     │        available        │  16 slots
//!          │   (the engine's) │      (the driver's)     │
//! ```
//!
//! A batch is **filled, then published**. [`QueuePair::stage`] makes sure that the whole batch has
//! room and lends a [`Staging`]: a copy of the index and the rings' words, into which pairs are
//! pushed. Nothing is committed by that: a staging that is dropped half-way leaves the queue as it
//! was, since nobody reads what no doorbell has announced. [`QueuePair::publish`] commits the index,
//! fences, and rings the doorbells, RX first.
//!
//! **Who owns what.** From the doorbell to the acknowledgement the slots of a batch are the
//! engine's. Acknowledgements are counts and not positions, as in the reference: that is enough
//! because a queue executes in order.
//!
//! **What this does not do.** It waits for nothing and knows no markers; it has no lock, the ring's
//! lock is its owner's.

mod pair;

use glia_abi::udma::{RING_DESCS_MAX, RING_DESCS_MIN, RING_GAP_DESCS, RingId};

pub(crate) use pair::{QueuePair, RingMemory, StageError, Staging, set_up, stop, write};

/// What the driver asks for a ring of its own (driver 2.27, `DMA_H2T_DESC_COUNT`).
const H2T_DESCS_NOMINAL: u32 = 4096;

/// Descriptors of each side of the driver's own rings: 8,192, of which 8,176 can be used.
pub(crate) const H2T_RING_DESCS: u32 = ring_descs(H2T_DESCS_NOMINAL);

/// How many descriptors a ring gets for which `wanted` are asked (driver 2.27): room for the gap,
/// and a power of two. Where that is none of 32 bits it is `u32::MAX`, which no ring has.
#[must_use]
pub const fn ring_descs(wanted: u32) -> u32 {
    if wanted < RING_DESCS_MIN {
        return 2 * RING_DESCS_MIN;
    }
    match wanted
        .saturating_add(RING_GAP_DESCS)
        .checked_next_power_of_two()
    {
        Some(descs) => descs,
        None => u32::MAX,
    }
}

/// Where both sides of a ring stand: a copy of it is a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingIndex {
    mask: u32,
    next: u32,
    acked: u32,
    ring_id: RingId,
}

/// A slot that was taken, and the lap in which it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) ring_id: RingId,
}

impl RingIndex {
    /// An empty ring in its first lap; `None` if `descs` is no power of two, or no size of a ring.
    pub(crate) fn new(descs: u32) -> Option<Self> {
        let fits = (RING_DESCS_MIN..=RING_DESCS_MAX).contains(&descs) && descs.is_power_of_two();
        fits.then(|| Self {
            mask: descs - 1,
            next: 0,
            acked: 0,
            ring_id: RingId::FIRST,
        })
    }

    /// The same ring, empty and in its first lap again.
    pub(crate) fn restarted(self) -> Self {
        Self {
            next: 0,
            acked: 0,
            ring_id: RingId::FIRST,
            ..self
        }
    }

    /// Slots of the ring.
    pub(crate) fn descs(self) -> u32 {
        self.mask + 1
    }

    /// The slot that is taken next.
    pub(crate) fn next(self) -> u32 {
        self.next
    }

    /// The oldest slot that is not acknowledged.
    pub(crate) fn acked(self) -> u32 {
        self.acked
    }

    /// The lap of the slot that is taken next.
    pub(crate) fn ring_id(self) -> RingId {
        self.ring_id
    }

    /// Slots that can be taken. 16 never can.
    pub(crate) fn available(self) -> u32 {
        let first_of_gap = self.next.wrapping_add(RING_GAP_DESCS);
        self.acked.wrapping_sub(first_of_gap) & self.mask
    }

    /// Slots that were taken and are not acknowledged.
    pub(crate) fn outstanding(self) -> u32 {
        self.next.wrapping_sub(self.acked) & self.mask
    }

    /// Takes the next slot; `None` if none is available.
    ///
    /// The last slot of a lap still has that lap's id (driver 2.27: the id advances after the
    /// descriptor was built).
    pub(crate) fn take(&mut self) -> Option<Slot> {
        if self.available() == 0 {
            return None;
        }
        let slot = Slot {
            number: self.next,
            ring_id: self.ring_id,
        };
        self.next = (self.next + 1) & self.mask;
        if self.next == 0 {
            self.ring_id = self.ring_id.next();
        }
        Some(slot)
    }

    /// Gives the oldest `descs` slots back, at most those that are outstanding.
    pub(crate) fn acknowledge(&mut self, descs: u32) {
        let given_back = descs.min(self.outstanding());
        self.acked = (self.acked + given_back) & self.mask;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ring() -> RingIndex {
        RingIndex::new(H2T_RING_DESCS).unwrap()
    }

    fn take(index: &mut RingIndex, slots: u32) -> Vec<Slot> {
        (0..slots).map(|_| index.take().unwrap()).collect()
    }

    /// The examples of the sheet.
    #[test]
    fn rings_are_sized_as_the_reference_sizes_them() {
        let sizes = [0, 31, 32, 49, 64, 4080, 4096].map(ring_descs);
        assert_eq!(sizes, [64, 64, 64, 128, 128, 4096, 8192]);
        assert_eq!(H2T_RING_DESCS, 8192);
    }

    #[test]
    fn sizes_that_no_ring_has_are_refused() {
        for descs in [0, 16, 8191, 1 << 24] {
            assert_eq!(RingIndex::new(descs), None);
        }
    }

    #[test]
    fn sixteen_slots_are_never_available() {
        let mut index = ring();
        assert_eq!((index.available(), index.outstanding()), (8176, 0));
        take(&mut index, 2033);
        assert_eq!((index.available(), index.outstanding()), (6143, 2033));
        take(&mut index, 6143);
        let full = index;
        assert_eq!(index.take(), None);
        assert_eq!(index, full);
    }

    #[test]
    fn the_last_slot_of_a_lap_still_carries_its_id() {
        let mut index = ring();
        let mut crossings: Vec<Vec<(u32, u32)>> = Vec::new();
        for _ in 0..4 {
            for _ in 0..8 {
                take(&mut index, 1023);
                index.acknowledge(1023);
            }
            let crossing = take(&mut index, 9);
            index.acknowledge(9);
            let edge = crossing[7..].iter();
            crossings.push(edge.map(|slot| (slot.number, slot.ring_id.get())).collect());
            index = RingIndex {
                next: 0,
                acked: 0,
                ..index
            };
        }
        let laps = [
            [(8191, 1), (0, 2)],
            [(8191, 2), (0, 3)],
            [(8191, 3), (0, 0)],
            [(8191, 0), (0, 1)],
        ];
        assert_eq!(crossings, laps);
    }

    #[test]
    fn more_than_is_outstanding_is_not_given_back() {
        let mut index = ring();
        take(&mut index, 5);
        index.acknowledge(7);
        assert_eq!((index.acked(), index.available()), (5, 8176));
    }

    proptest! {
        /// The index against unbounded counters.
        #[test]
        fn an_index_is_a_window_on_two_counters(steps in prop::collection::vec((0..60_u32, 0..60_u32), 1..200)) {
            let mut index = RingIndex::new(64).unwrap();
            let (mut taken, mut given) = (0_u32, 0_u32);
            for (wanted, acked) in steps {
                for _ in 0..wanted {
                    let Some(slot) = index.take() else {
                        prop_assert_eq!(taken - given, 48);
                        break;
                    };
                    prop_assert_eq!(slot.number, taken % 64);
                    prop_assert_eq!(slot.ring_id.get(), (taken / 64 + 1) % 4);
                    taken += 1;
                }
                let acked = acked.min(taken - given);
                index.acknowledge(acked);
                given += acked;
                prop_assert_eq!(index.outstanding(), taken - given);
                prop_assert_eq!(index.available(), 48 - (taken - given));
                prop_assert_eq!((index.next(), index.acked()), (taken % 64, given % 64));
                prop_assert_eq!(index.ring_id().get(), (taken / 64 + 1) % 4);
            }
        }
    }
}
