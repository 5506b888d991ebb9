//! DMA descriptors: the 16 bytes that order a UDMA engine to move up to 64 KiB (driver 2.24.7 and
//! 2.27.4, `udma_m2m.c`; the same on V2, V3 and V4).
//!
//! One copy takes one [`TxDesc`] (source side, "M2S") and one [`RxDesc`] (destination side, "S2M")
//! in the two rings of a queue, at the same position. The engine pairs the k-th of one ring with the
//! k-th of the other. Each descriptor carries the [`RingId`] of the lap in which it was written, so
//! that the engine can tell a fresh one from what was left of the lap before.
//!
//! | bytes | TX | RX |
//! | --- | --- | --- |
//! | 0..4 | [`LenCtrl`] | [`LenCtrl`] |
//! | 4..8 | [`MetaCtrl`] | second buffer's low word, left 0 |
//! | 8..16 | source address | destination address |
//!
//! **What is not here**: completion descriptors. The type exists in the hardware, but no ring for
//! them is ever attached; completion is the [marker](MARKER).

use bitfield_struct::bitfield;

use crate::addr::BusAddr;

/// Bytes of a descriptor.
pub const DESC_SIZE_BYTES: u64 = 16;
/// Words of a descriptor.
pub const DESC_WORDS: usize = 4;
/// The most bytes that one descriptor moves.
pub const DESC_BYTES_MAX: u64 = 65_536;
/// What the last descriptor of a batch writes into the poll word (driver 2.27,
/// `DMA_COMPLETION_MARKER`).
pub const MARKER: u32 = 0xabcd_ef01;
/// Bytes of the marker.
pub const MARKER_SIZE_BYTES: u64 = 4;
/// Descriptors that a ring always keeps free between its tail and its head (one cache line of
/// completion descriptors).
pub const RING_GAP_DESCS: u32 = 16;
/// The fewest descriptors of a ring.
pub const RING_DESCS_MIN: u32 = 32;
/// The most descriptors of a ring.
pub const RING_DESCS_MAX: u32 = (1 << 24) - 16;
/// Alignment of a ring's first byte.
pub const RING_ALIGN_BYTES: u64 = 256;

/// Which side of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The source side, "M2S".
    Tx,
    /// The destination side, "S2M".
    Rx,
}

impl Direction {
    /// Both, in the order in which the driver brings them up.
    pub const BOTH: [Self; 2] = [Self::Tx, Self::Rx];

    /// 0 for TX, 1 for RX.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// "tx" or "rx".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Rx => "rx",
        }
    }
}

/// The lap of a ring, modulo 4: 1 after a queue is brought up, then 2, 3, 0, 1, …
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RingId(u8);

impl RingId {
    /// The lap after bring-up.
    pub const FIRST: Self = Self(1);

    /// The low two bits of `raw`.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        // CAST: two bits.
        Self((raw & 3) as u8)
    }

    /// The number, 0 to 3.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0 as u32
    }

    /// The lap after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 + 1) & 3)
    }
}

/// The first word of a descriptor.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct LenCtrl {
    /// Bytes to move; 0 stands for 65,536.
    #[bits(16)]
    pub length: u32,
    #[bits(7)]
    __: u32,
    /// The descriptor carries metadata; set by user-space rings only.
    pub meta: bool,
    /// Lap of the ring, see [`RingId`].
    #[bits(2)]
    pub ring_id: u32,
    /// TX: first descriptor of its packet. The driver sets it on all.
    pub first: bool,
    /// TX: last descriptor of its packet. The driver sets it on all.
    pub last: bool,
    /// RX: raise an interrupt. The driver never does.
    pub interrupt: bool,
    /// RX: all earlier writes land before this one's (SOW; V3 and later).
    pub strong_order: bool,
    /// TX: data memory barrier (DMB).
    pub data_barrier: bool,
    /// The packet goes on in the next descriptor; set by user-space rings only.
    pub concat: bool,
}

impl LenCtrl {
    /// Bytes to move, 1 to 65,536.
    #[must_use]
    pub const fn size_bytes(self) -> u64 {
        match self.length() {
            0 => DESC_BYTES_MAX,
            length => length as u64,
        }
    }
}

/// The second word of a TX descriptor.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct MetaCtrl {
    /// Last block of an operation; set on a plain copy.
    pub is_last_block: bool,
    /// First block of an operation; set on a plain copy.
    pub is_first_block: bool,
    #[bits(17)]
    __: u32,
    /// Move the source's bytes; set on a plain copy.
    pub copy_source_data: bool,
    /// Operation, 0 on a plain copy.
    #[bits(3)]
    pub op_type: u32,
    /// Sub-operation, `0b010` on a plain copy.
    #[bits(3)]
    pub ssmae_op: u32,
    /// All writes up to this descriptor land before the next one's.
    pub write_barrier: bool,
    #[bits(5)]
    __: u32,
}

impl MetaCtrl {
    /// A plain copy: 0x0108_0003.
    pub const COPY: Self = Self::new()
        .with_is_last_block(true)
        .with_is_first_block(true)
        .with_copy_source_data(true)
        .with_ssmae_op(0b010);
}

/// Which ordering a descriptor asks for (driver 2.27).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Barrier {
    /// 0: none.
    #[default]
    None,
    /// 1: data memory barrier, bit 30 of the TX length word. HBM scrub uses it.
    Dmb,
    /// 2: write barrier, bit 26 of the TX meta word. Classic copies set it on the last data
    /// descriptor of a batch.
    Write,
    /// 3: strong-order write, bit 29 of the RX length word; V3 and later.
    StrongOrder,
}

/// What one pair of descriptors moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// First byte to read, as the device sees it.
    pub source: BusAddr,
    /// First byte to write, as the device sees it.
    pub target: BusAddr,
    /// Bytes, 1 to 65,536.
    pub size_bytes: u64,
    /// Ordering.
    pub barrier: Barrier,
}

/// A transfer whose size no descriptor can say. (The reference takes 0 for 64 KiB.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a descriptor moves 1 to 65536 bytes, not {size_bytes}")]
pub struct BadTransferSize {
    /// Bytes asked for.
    pub size_bytes: u64,
}

/// A source-side descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxDesc {
    /// Length, ring id, packet flags.
    pub len_ctrl: LenCtrl,
    /// Operation and write barrier.
    pub meta_ctrl: MetaCtrl,
    /// Source.
    pub source: BusAddr,
}

/// A destination-side descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxDesc {
    /// Length, ring id, strong order.
    pub len_ctrl: LenCtrl,
    /// Low word of a second buffer; the driver leaves it 0.
    pub second_buffer_low: u32,
    /// Destination.
    pub target: BusAddr,
}

impl Transfer {
    /// The length field.
    fn length(&self) -> Result<u32, BadTransferSize> {
        match self.size_bytes {
            DESC_BYTES_MAX => Ok(0),
            size_bytes @ 1..DESC_BYTES_MAX => {
                // CAST: below 65,536.
                #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
                Ok(size_bytes as u32)
            }
            size_bytes => Err(BadTransferSize { size_bytes }),
        }
    }

    /// The pair of descriptors that moves this, in the laps `tx_ring_id` and `rx_ring_id`.
    ///
    /// # Errors
    /// [`BadTransferSize`] if the size is not 1 to 65,536.
    pub fn descriptors(
        &self,
        tx_ring_id: RingId,
        rx_ring_id: RingId,
    ) -> Result<(TxDesc, RxDesc), BadTransferSize> {
        let length = self.length()?;
        let tx = TxDesc {
            len_ctrl: LenCtrl::new()
                .with_length(length)
                .with_ring_id(tx_ring_id.get())
                .with_first(true)
                .with_last(true)
                .with_data_barrier(self.barrier == Barrier::Dmb),
            meta_ctrl: MetaCtrl::COPY.with_write_barrier(self.barrier == Barrier::Write),
            source: self.source,
        };
        let rx = RxDesc {
            len_ctrl: LenCtrl::new()
                .with_length(length)
                .with_ring_id(rx_ring_id.get())
                .with_strong_order(self.barrier == Barrier::StrongOrder),
            second_buffer_low: 0,
            target: self.target,
        };
        Ok((tx, rx))
    }
}

/// The halves of a 64-bit address, low word first.
fn halves(address: BusAddr) -> [u32; 2] {
    let bytes = address.get().to_le_bytes();
    let [a, b, c, d, e, f, g, h] = bytes;
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}

fn joined(low: u32, high: u32) -> BusAddr {
    BusAddr::new(u64::from(low) | (u64::from(high) << 32))
}

impl TxDesc {
    /// The descriptor as four little-endian words, in ring order.
    #[must_use]
    pub fn to_words(self) -> [u32; DESC_WORDS] {
        let [low, high] = halves(self.source);
        [self.len_ctrl.into(), self.meta_ctrl.into(), low, high]
    }

    /// The descriptor that four words of a ring make. Any words make one.
    #[must_use]
    pub fn from_words([len_ctrl, meta_ctrl, low, high]: [u32; DESC_WORDS]) -> Self {
        Self {
            len_ctrl: len_ctrl.into(),
            meta_ctrl: meta_ctrl.into(),
            source: joined(low, high),
        }
    }
}

impl RxDesc {
    /// The descriptor as four little-endian words, in ring order.
    #[must_use]
    pub fn to_words(self) -> [u32; DESC_WORDS] {
        let [low, high] = halves(self.target);
        [self.len_ctrl.into(), self.second_buffer_low, low, high]
    }

    /// The descriptor that four words of a ring make. Any words make one.
    #[must_use]
    pub fn from_words([len_ctrl, second_buffer_low, low, high]: [u32; DESC_WORDS]) -> Self {
        Self {
            len_ctrl: len_ctrl.into(),
            second_buffer_low,
            target: joined(low, high),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(size_bytes: u64, barrier: Barrier, ring_id: u32) -> (TxDesc, RxDesc) {
        let transfer = Transfer {
            source: BusAddr::new(0x4000_1234_5000),
            target: BusAddr::new(0x10_0000),
            size_bytes,
            barrier,
        };
        transfer
            .descriptors(RingId::new(ring_id), RingId::new(ring_id))
            .unwrap()
    }

    /// The words of the sheet's test vectors.
    #[test]
    fn control_words_are_those_of_the_reference() {
        let (tx, _) = pair(65_536, Barrier::None, 1);
        assert_eq!(tx.to_words()[..2], [0x0d00_0000, 0x0108_0003]);
        let (tx, rx) = pair(4096, Barrier::Write, 1);
        assert_eq!(tx.to_words()[..2], [0x0d00_1000, 0x0508_0003]);
        assert_eq!(rx.to_words()[..2], [0x0100_1000, 0]);
        let (_, rx) = pair(4, Barrier::StrongOrder, 2);
        assert_eq!(rx.to_words()[0], 0x2200_0004);
        let (tx, _) = pair(4, Barrier::None, 1);
        assert_eq!(tx.to_words()[..2], [0x0d00_0004, 0x0108_0003]);
        let (tx, _) = pair(65_536, Barrier::Dmb, 3);
        assert_eq!(tx.to_words()[0], 0x4f00_0000);
    }

    #[test]
    fn addresses_lie_low_word_first() {
        let (tx, rx) = pair(1, Barrier::None, 1);
        assert_eq!(tx.to_words()[2..], [0x1234_5000, 0x4000]);
        assert_eq!(rx.to_words()[2..], [0x10_0000, 0]);
    }

    #[test]
    fn a_size_that_no_descriptor_can_say_is_refused() {
        for size_bytes in [0, 65_537, u64::MAX] {
            let transfer = Transfer {
                source: BusAddr::new(0),
                target: BusAddr::new(0),
                size_bytes,
                barrier: Barrier::None,
            };
            let refused = transfer.descriptors(RingId::FIRST, RingId::FIRST);
            assert_eq!(refused, Err(BadTransferSize { size_bytes }));
        }
    }

    #[test]
    fn laps_go_round() {
        let laps: Vec<u32> = std::iter::successors(Some(RingId::FIRST), |id| Some(id.next()))
            .take(5)
            .map(RingId::get)
            .collect();
        assert_eq!(laps, [1, 2, 3, 0, 1]);
    }

    proptest! {
        #[test]
        fn any_words_survive_a_round_trip(words in any::<[u32; 4]>()) {
            prop_assert_eq!(TxDesc::from_words(words).to_words(), words);
            prop_assert_eq!(RxDesc::from_words(words).to_words(), words);
        }

        #[test]
        fn a_length_field_says_the_size_that_was_put_in(size_bytes in 1..=DESC_BYTES_MAX) {
            let (tx, rx) = pair(size_bytes, Barrier::None, 1);
            prop_assert_eq!(tx.len_ctrl.size_bytes(), size_bytes);
            prop_assert_eq!(rx.len_ctrl.size_bytes(), size_bytes);
        }
    }
}
