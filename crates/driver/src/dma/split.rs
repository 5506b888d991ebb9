//! How a copy is cut into batches and descriptors (driver 2.24.7 and 2.27.4).
//!
//! A batch has at most 2,032 data descriptors of at most 64 KiB. (The reference compares before it
//! counts, so that its constant of 2,031 makes 2,032.) Its last data descriptor carries the write
//! barrier, which keeps the marker behind the data.

use glia_abi::addr::BusAddr;
use glia_abi::udma::{Barrier, DESC_BYTES_MAX, Transfer};

/// Data descriptors of a full batch.
pub(crate) const BATCH_DATA_DESCS: u32 = 2032;

/// Bytes of a full batch, 127 MiB: also the most that an asynchronous copy moves.
pub const BATCH_BYTES_MAX: u64 = BATCH_DATA_DESCS as u64 * DESC_BYTES_MAX;

/// Bytes to move from one place to another, whatever is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    source: BusAddr,
    /// The source advances with the target. A run that fills reads the same 64 KiB over and over.
    source_moves: bool,
    target: BusAddr,
    size_bytes: u64,
    /// Every data descriptor waits for those before it, where in a copy only the marker does.
    is_fenced: bool,
    /// All bytes are known to stay within HBM, which shortens the wait.
    is_d2d: bool,
}

/// The barrier of a copy's data descriptor (driver 2.27, `get_m2m_barrier_type`; the same on every
/// generation): one that closes its batch keeps the marker behind the data.
#[must_use]
pub const fn copy_barrier(closes_batch: bool) -> Barrier {
    if closes_batch {
        Barrier::Write
    } else {
        Barrier::None
    }
}

impl Run {
    /// A plain copy. `None` if an end does not fit 64 bits.
    pub(crate) fn copy(source: BusAddr, target: BusAddr, size_bytes: u64) -> Option<Self> {
        source.checked_add(size_bytes)?;
        target.checked_add(size_bytes)?;
        Some(Self {
            source,
            source_moves: true,
            target,
            size_bytes,
            is_fenced: false,
            is_d2d: false,
        })
    }

    /// A copy of which every descriptor has a data memory barrier. `None` if an end does not fit 64
    /// bits.
    pub(crate) fn fenced(
        source: BusAddr,
        target: BusAddr,
        size_bytes: u64,
        is_d2d: bool,
    ) -> Option<Self> {
        let run = Self::copy(source, target, size_bytes)?;
        Some(Self {
            is_fenced: true,
            is_d2d,
            ..run
        })
    }

    /// Copies of the (up to) 64 KiB at `source`, one after the other. `None` if an end does not fit
    /// 64 bits.
    pub(crate) fn repeat(source: BusAddr, target: BusAddr, size_bytes: u64) -> Option<Self> {
        let run = Self::copy(source, target, size_bytes)?;
        Some(Self {
            source_moves: false,
            ..run
        })
    }

    /// Bytes to move.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether all bytes are known to stay within HBM.
    pub(crate) fn is_d2d(&self) -> bool {
        self.is_d2d
    }

    /// Cuts the first batch off: it, and what is left. `None` if nothing is.
    pub(crate) fn split_batch(self) -> Option<(Self, Self)> {
        if self.size_bytes == 0 {
            return None;
        }
        let size_bytes = self.size_bytes.min(BATCH_BYTES_MAX);
        let (source, target) = self.at(size_bytes);
        let batch = Self { size_bytes, ..self };
        let rest = Self {
            source,
            target,
            size_bytes: self.size_bytes - size_bytes,
            ..self
        };
        Some((batch, rest))
    }

    /// Data descriptors that it takes. At most [`BATCH_DATA_DESCS`] for a batch.
    pub(crate) fn data_descs(&self) -> u32 {
        // CAST: of a batch; a longer run says too many and finds no room.
        u32::try_from(self.size_bytes.div_ceil(DESC_BYTES_MAX)).unwrap_or(u32::MAX)
    }

    /// What each data descriptor moves.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = Transfer> {
        let run = *self;
        let mut offset = 0;
        std::iter::from_fn(move || {
            let left = run.size_bytes - offset;
            if left == 0 {
                return None;
            }
            let size_bytes = left.min(DESC_BYTES_MAX);
            let (source, target) = run.at(offset);
            offset += size_bytes;
            Some(Transfer {
                source,
                target,
                size_bytes,
                barrier: if run.is_fenced {
                    Barrier::Dmb
                } else {
                    copy_barrier(size_bytes == left)
                },
            })
        })
    }

    /// Source and target `offset` bytes into the run; both ends were checked when it was made.
    fn at(&self, offset: u64) -> (BusAddr, BusAddr) {
        let source_offset = if self.source_moves { offset } else { 0 };
        (
            BusAddr::new(self.source.get() + source_offset),
            BusAddr::new(self.target.get() + offset),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn copy(size_bytes: u64) -> Run {
        Run::copy(BusAddr::new(1 << 44), BusAddr::new(0x77), size_bytes).unwrap()
    }

    fn batches(run: Run) -> Vec<Run> {
        let mut rest = run;
        std::iter::from_fn(|| {
            let (batch, left) = rest.split_batch()?;
            rest = left;
            Some(batch)
        })
        .collect()
    }

    #[test]
    fn a_full_batch_has_2032_data_descriptors() {
        assert_eq!(BATCH_BYTES_MAX, 133_169_152);
        let descs = |size_bytes| -> Vec<u32> {
            batches(copy(size_bytes))
                .iter()
                .map(Run::data_descs)
                .collect()
        };
        assert_eq!(descs(65_536), [1]);
        assert_eq!(descs(65_537), [2]);
        assert_eq!(descs(133_169_152), [2032]);
        assert_eq!(descs(133_169_153), [2032, 1]);
        assert!(descs(0).is_empty());
    }

    #[test]
    fn a_run_that_repeats_reads_the_same_place_in_every_batch() {
        let run = Run::repeat(
            BusAddr::new(0x5000),
            BusAddr::new(0x1_5000),
            BATCH_BYTES_MAX + 7,
        );
        let batches = batches(run.unwrap());
        let sources: Vec<u64> = batches
            .iter()
            .flat_map(Run::transfers)
            .map(|transfer| transfer.source.get())
            .collect();
        assert_eq!(sources, vec![0x5000; 2033]);
        let last = batches[1].transfers().next().unwrap();
        assert_eq!(last.target, BusAddr::new(0x1_5000 + BATCH_BYTES_MAX));
    }

    #[test]
    fn a_run_that_leaves_the_address_space_is_none() {
        let (low, high) = (BusAddr::new(0), BusAddr::new(u64::MAX - 9));
        assert_eq!(Run::copy(low, high, 10), None);
        assert_eq!(Run::copy(high, low, 10), None);
        assert!(Run::copy(low, high, 9).is_some());
    }

    proptest! {
        #[test]
        fn descriptors_cover_a_copy_once_and_in_order(size_bytes in 1..3 * BATCH_BYTES_MAX) {
            let run = copy(size_bytes);
            let mut offset = 0;
            for batch in batches(run) {
                let transfers: Vec<Transfer> = batch.transfers().collect();
                prop_assert_eq!(transfers.len(), batch.data_descs() as usize);
                prop_assert!(batch.data_descs() <= BATCH_DATA_DESCS);
                let barriers = transfers.iter().rev().map(|transfer| transfer.barrier);
                prop_assert!(barriers.eq(std::iter::once(Barrier::Write)
                    .chain(std::iter::repeat_n(Barrier::None, transfers.len() - 1))));
                for transfer in transfers {
                    prop_assert_eq!(transfer.source.get(), run.source.get() + offset);
                    prop_assert_eq!(transfer.target.get(), run.target.get() + offset);
                    offset += transfer.size_bytes;
                }
            }
            prop_assert_eq!(offset, size_bytes);
        }
    }
}
