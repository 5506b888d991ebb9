//! Moving the bytes of one descriptor pair: the only place where an engine touches what an address
//! names.
//!
//! Bytes are moved by a plain memcpy, and by a memmove where source and target overlap: a
//! descriptor reads all of its source before it writes. Four aligned bytes are a **word**: it is
//! stored at once and after everything that the queue wrote before it (`Release`), so that whoever
//! finds the marker finds the batch. (Streaming stores are not ordered by that. Whoever brings them
//! in fences before the word is stored.)
//!
//! Descriptors run one at a time and in order, so every barrier is kept.

use glia_abi::addr::BusAddr;
use glia_abi::event::EngineFault;
use glia_abi::sync::Ordering;
use glia_abi::udma::{Direction, MARKER_SIZE_BYTES};

use crate::bus::{Bus, Located};
use crate::memory::{Bytes, BytesMut};

/// Moves `size_bytes`.
///
/// # Errors
/// [`EngineFault::Address`] if either range is nothing, or a pin has ended; nothing is moved then.
pub(crate) fn execute(
    bus: &Bus,
    source: BusAddr,
    target: BusAddr,
    size_bytes: u64,
) -> Result<(), EngineFault> {
    let abort = |direction, at| EngineFault::Address {
        direction,
        at,
        size_bytes,
    };
    let from = bus.source(source, size_bytes);
    let from = from.ok_or(abort(Direction::Tx, source))?;
    let to = bus.target(target, size_bytes);
    let to = to.ok_or(abort(Direction::Rx, target))?;
    // One reader for both ends; while it is held, no pin ends.
    let pins = (from.is_pinned() || to.is_pinned()).then(|| bus.pins());
    let from = match from {
        Located::Here(bytes) => Some(bytes),
        Located::Pinned(at) => pins.as_ref().and_then(|pins| pins.bytes(at, size_bytes)),
    };
    let to = match to {
        Located::Here(bytes) => Some(bytes),
        Located::Pinned(at) => pins
            .as_ref()
            .and_then(|pins| pins.bytes_mut(at, size_bytes)),
    };
    let from = from.ok_or(abort(Direction::Tx, source))?;
    let to = to.ok_or(abort(Direction::Rx, target))?;
    move_bytes(from, to);
    Ok(())
}

fn move_bytes(from: Bytes<'_>, to: BytesMut<'_>) {
    if from.size_bytes() == MARKER_SIZE_BYTES
        && let Some(word) = to.word()
    {
        let mut value = [0; 4];
        from.read(&mut value);
        // ORDER: pairs with the Acquire of whoever waits for the word, `Queue::await_word`.
        word.store(u32::from_ne_bytes(value), Ordering::Release);
    } else {
        from.copy_to(to);
    }
}
