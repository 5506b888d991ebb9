//! What a pair of descriptors must be to be executed.

use glia_abi::event::EngineFault;
use glia_abi::udma::{Direction, LenCtrl, MetaCtrl, RxDesc, TxDesc};

use super::side::Slot;

/// Both descriptors of a pair are of the engine's lap, plain, and of one length.
pub(super) fn check(
    (tx, tx_slot): (TxDesc, Slot),
    (rx, rx_slot): (RxDesc, Slot),
) -> Result<(), EngineFault> {
    check_lap(Direction::Tx, tx_slot, tx.len_ctrl)?;
    check_lap(Direction::Rx, rx_slot, rx.len_ctrl)?;
    check_plain_copy(tx, rx)?;
    let (tx_size_bytes, rx_size_bytes) = (tx.len_ctrl.size_bytes(), rx.len_ctrl.size_bytes());
    if tx_size_bytes == rx_size_bytes {
        return Ok(());
    }
    Err(EngineFault::Lengths {
        tx_size_bytes,
        rx_size_bytes,
    })
}

fn check_lap(direction: Direction, slot: Slot, len_ctrl: LenCtrl) -> Result<(), EngineFault> {
    let (expected, found) = (slot.ring_id.get(), len_ctrl.ring_id());
    if expected == found {
        return Ok(());
    }
    Err(EngineFault::RingId {
        direction,
        expected,
        found,
    })
}

/// Nothing but length, lap and barriers may differ from the plain copy of one packet.
fn check_plain_copy(tx: TxDesc, rx: RxDesc) -> Result<(), EngineFault> {
    let tx_rest = tx
        .len_ctrl
        .with_length(0)
        .with_ring_id(0)
        .with_data_barrier(false);
    let is_packet = tx_rest == LenCtrl::new().with_first(true).with_last(true);
    if !is_packet || tx.meta_ctrl.with_write_barrier(false) != MetaCtrl::COPY {
        return Err(EngineFault::Unimplemented {
            direction: Direction::Tx,
            len_ctrl: tx.len_ctrl.into(),
            word1: tx.meta_ctrl.into(),
        });
    }
    let rx_rest = rx
        .len_ctrl
        .with_length(0)
        .with_ring_id(0)
        .with_strong_order(false);
    if rx_rest != LenCtrl::new() || rx.second_buffer_low != 0 {
        return Err(EngineFault::Unimplemented {
            direction: Direction::Rx,
            len_ctrl: rx.len_ctrl.into(),
            word1: rx.second_buffer_low,
        });
    }
    Ok(())
}
