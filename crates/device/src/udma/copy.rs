//! Moving the bytes of one descriptor pair: the only place where an engine touches what an address
//! names.
//!
//! Bytes are moved as if by a memmove: a descriptor reads all of its source before it writes. How
//! they are *written* is chosen for each descriptor:
//!
//! ```text
//!   less than 4 KiB                              plainly
//!   target touched within the last 20 MiB        plainly           (udma/reuse.rs)
//!   host memory, in a stretch below 2 MiB        plainly           [`Stretch`]
//!   anything else                                past the caches   (memory/stream.rs)
//! ```
//!
//! Neither a size nor a clock could tell: 1 MiB that the caches hold is copied twice as fast
//! plainly, 1 MiB that they do not hold half as fast. Host memory is mostly read by a program soon
//! after, from the caches if it is not too much.
//!
//! Four aligned bytes are a **word**: it is stored at once and after everything that the queue
//! wrote before it (`Release`), so that whoever finds the marker finds the batch. Streaming stores
//! are not ordered by that; so the copy that makes them fences before it returns, on this thread.
//!
//! [`execute`] moves a pair at once; [`read`] and [`write()`] are its halves, for a pair that takes time
//! (`udma/flight.rs`).

use glia_abi::addr::BusAddr;
use glia_abi::event::EngineFault;
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::{Direction, MARKER_SIZE_BYTES, RxDesc, TxDesc};

use crate::bus::{Bus, Located};
use crate::memory::{Bytes, BytesMut, PinReader, Stores};

/// Less than this is always written plainly, and not remembered: a fence costs more than it saves.
const STREAM_SIZE_MIN: u64 = 4 << 10;
/// Host memory is written past the caches from so many bytes on that follow each other.
const STRETCH_SIZE_MIN: u64 = 2 << 20;
/// The pins are let go after so many bytes.
const HELD_BYTES_MAX: u64 = 1 << 20;

/// The bytes of host memory that a queue writes one behind the other, over several descriptors: in
/// this process, since what a program reads in one go may be pinned in pieces.
#[derive(Default)]
pub(crate) struct Stretch {
    /// Where it goes on.
    end: Option<u64>,
    size_bytes: u64,
    /// Whether it has [`STRETCH_SIZE_MIN`], or will have.
    is_long: bool,
}

/// What a step keeps from one pair to the next.
pub(crate) struct Held<'a, 's> {
    pub(crate) pins: HeldPins<'a>,
    pub(crate) stretch: &'s mut Stretch,
}

/// The pin table, held over several pairs.
///
/// To let it go is a locked instruction, which waits until everything that was copied has left the
/// store buffer: a good part of the time of a copy that the caches hold. So it is let go after
/// [`HELD_BYTES_MAX`], and whoever pins or unpins meanwhile does not wait for long.
#[derive(Default)]
pub(crate) struct HeldPins<'a> {
    reader: Option<PinReader<'a>>,
    moved_bytes: u64,
}

/// What one pair moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) source: BusAddr,
    pub(crate) target: BusAddr,
    pub(crate) size_bytes: u64,
}

/// Moves the bytes of a pair. `ahead` are the descriptors of the receiving side behind it, as far
/// as they are known.
///
/// # Errors
/// [`EngineFault::Address`] if either range is nothing, or a pin has ended; nothing is moved then.
pub(crate) fn execute<'a>(
    bus: &'a Bus,
    pair: Pair,
    held: &mut Held<'a, '_>,
    ahead: impl Iterator<Item = RxDesc>,
) -> Result<(), EngineFault> {
    if pair.is_word() {
        // Whoever finds the marker is about to unpin.
        held.pins.let_go();
    }
    let (from, to) = ends(bus, pair, &mut held.pins)?;
    if pair.is_word() {
        move_word(from, to);
    } else {
        from.copy_to(to, stores(bus, pair, (from, to), held.stretch, ahead));
    }
    Ok(())
}

/// Where the bytes of a pair lie. While `pins` is borrowed, no pin ends.
fn ends<'b, 'a: 'b>(
    bus: &'a Bus,
    pair: Pair,
    pins: &'b mut HeldPins<'a>,
) -> Result<(Bytes<'b>, BytesMut<'b>), EngineFault> {
    let size_bytes = pair.size_bytes;
    let (no_source, no_target) = (pair.abort(Direction::Tx), pair.abort(Direction::Rx));
    let from = bus.source(pair.source, size_bytes).ok_or(no_source)?;
    let to = bus.target(pair.target, size_bytes).ok_or(no_target)?;
    // One reader for both ends.
    let is_pinned = from.is_pinned() || to.is_pinned();
    let pins = is_pinned.then(|| pins.reader(bus, size_bytes));
    let from = match from {
        Located::Here(bytes) => Some(bytes),
        Located::Pinned(at) => pins.and_then(|pins| pins.bytes(at, size_bytes)),
    };
    let to = match to {
        Located::Here(bytes) => Some(bytes),
        Located::Pinned(at) => pins.and_then(|pins| pins.bytes_mut(at, size_bytes)),
    };
    Ok((from.ok_or(no_source)?, to.ok_or(no_target)?))
}

/// How the bytes of a pair are written.
fn stores(
    bus: &Bus,
    pair: Pair,
    (from, to): (Bytes<'_>, BytesMut<'_>),
    stretch: &mut Stretch,
    ahead: impl Iterator<Item = RxDesc>,
) -> Stores {
    if pair.size_bytes < STREAM_SIZE_MIN {
        return Stores::Cached;
    }
    let (from, to) = (from.address(), to.bytes().address());
    let is_near = bus.reuse.note(from, to, pair.size_bytes);
    let is_wanted_soon = bus.is_host(pair.target) && !stretch.is_long_with(to, pair, ahead);
    match is_near || is_wanted_soon {
        true => Stores::Cached,
        false => Stores::Streamed,
    }
}

/// The first half of a pair that takes time: reads its source.
///
/// # Errors
/// [`EngineFault::Address`] if it is nothing, or a pin has ended.
pub(crate) fn read(bus: &Bus, pair: Pair) -> Result<Vec<u8>, EngineFault> {
    let abort = pair.abort(Direction::Tx);
    // CAST: at most 65,536.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    let mut bytes = vec![0; pair.size_bytes as usize];
    match bus.source(pair.source, pair.size_bytes).ok_or(abort)? {
        Located::Here(from) => from.read(&mut bytes),
        Located::Pinned(at) => {
            let pins = bus.pins();
            pins.bytes(at, pair.size_bytes)
                .ok_or(abort)?
                .read(&mut bytes);
        }
    }
    Ok(bytes)
}

/// The second half: writes what was read to its target.
///
/// # Errors
/// [`EngineFault::Address`] if it is nothing, or a pin has ended.
pub(crate) fn write(bus: &Bus, pair: Pair, bytes: &[u8]) -> Result<(), EngineFault> {
    let abort = pair.abort(Direction::Rx);
    let store = |to: BytesMut<'_>| match (<[u8; 4]>::try_from(bytes), to.word()) {
        (Ok(value), Some(word)) => store_word(word, value),
        _ => to.write(bytes),
    };
    match bus.target(pair.target, pair.size_bytes).ok_or(abort)? {
        Located::Here(to) => store(to),
        Located::Pinned(at) => {
            let pins = bus.pins();
            store(pins.bytes_mut(at, pair.size_bytes).ok_or(abort)?);
        }
    }
    Ok(())
}

fn move_word(from: Bytes<'_>, to: BytesMut<'_>) {
    let Some(word) = to.word() else {
        return from.copy_to(to, Stores::Cached);
    };
    let mut value = [0; size_of::<u32>()];
    from.read(&mut value);
    store_word(word, value);
}

fn store_word(word: &AtomicU32, value: [u8; 4]) {
    // ORDER: pairs with the Acquire of whoever waits for the word, `Queue::await_word`. Streaming
    // stores of earlier pairs are behind a fence by now, see `Stores::Streamed`.
    word.store(u32::from_ne_bytes(value), Ordering::Release);
}

impl<'a> HeldPins<'a> {
    /// The table, for so many bytes more.
    fn reader(&mut self, bus: &'a Bus, size_bytes: u64) -> &PinReader<'a> {
        if self.moved_bytes >= HELD_BYTES_MAX {
            self.let_go();
        }
        self.moved_bytes += size_bytes;
        self.reader.get_or_insert_with(|| bus.pins())
    }

    /// Lets whoever pins or unpins go on.
    pub(crate) fn let_go(&mut self) {
        *self = Self::default();
    }
}

impl Pair {
    /// What these two descriptors of one length move.
    pub(crate) fn of(tx: TxDesc, rx: RxDesc) -> Self {
        Self {
            source: tx.source,
            target: rx.target,
            size_bytes: tx.len_ctrl.size_bytes(),
        }
    }

    /// Whether it is of the size of a marker.
    fn is_word(self) -> bool {
        self.size_bytes == MARKER_SIZE_BYTES
    }

    /// One of its ends is nothing.
    fn abort(self, direction: Direction) -> EngineFault {
        EngineFault::Address {
            direction,
            at: match direction {
                Direction::Tx => self.source,
                Direction::Rx => self.target,
            },
            size_bytes: self.size_bytes,
        }
    }
}

impl Stretch {
    /// Adds a pair, which writes to `to` in this process, to the stretch, or begins a new one with
    /// it; says whether it is long.
    fn is_long_with(&mut self, to: u64, pair: Pair, ahead: impl Iterator<Item = RxDesc>) -> bool {
        if self.end != Some(to) {
            let end = pair.target.checked_add(pair.size_bytes);
            self.is_long = pair.size_bytes + follows(end, ahead) >= STRETCH_SIZE_MIN;
            self.size_bytes = 0;
        }
        self.end = to.checked_add(pair.size_bytes);
        self.size_bytes += pair.size_bytes;
        self.is_long |= self.size_bytes >= STRETCH_SIZE_MIN;
        self.is_long
    }
}

/// How many bytes from `end` on the descriptors write one behind the other; that it is a long
/// stretch is enough to know.
fn follows(mut end: Option<BusAddr>, ahead: impl Iterator<Item = RxDesc>) -> u64 {
    let mut size_bytes = 0;
    for desc in ahead {
        if size_bytes >= STRETCH_SIZE_MIN || Some(desc.target) != end {
            break;
        }
        size_bytes += desc.len_ctrl.size_bytes();
        end = desc.target.checked_add(desc.len_ctrl.size_bytes());
    }
    size_bytes
}

#[cfg(test)]
mod tests {
    use glia_abi::udma::{Barrier, RingId, Transfer};

    use super::*;

    fn pair(at: u64) -> Pair {
        Pair {
            source: BusAddr::new(0),
            target: BusAddr::new(at),
            size_bytes: 65_536,
        }
    }

    fn descs(at: u64, count: u64) -> impl Iterator<Item = RxDesc> {
        (0..count).map(move |index| {
            let transfer = Transfer {
                source: BusAddr::new(0),
                target: BusAddr::new(at + index * 65_536),
                size_bytes: 65_536,
                barrier: Barrier::None,
            };
            transfer
                .descriptors(RingId::FIRST, RingId::FIRST)
                .unwrap()
                .1
        })
    }

    #[test]
    fn a_stretch_is_long_from_its_first_descriptor_on_if_2_mib_follow_each_other() {
        let ahead = |count| descs(65_536, count);
        assert!(Stretch::default().is_long_with(0, pair(0), ahead(31)));
        assert!(!Stretch::default().is_long_with(0, pair(0), ahead(30)));
        assert!(!Stretch::default().is_long_with(0, pair(0), ahead(30).chain(descs(0, 9))));
    }

    #[test]
    fn a_stretch_goes_on_where_the_next_piece_is_pinned_elsewhere() {
        let mut stretch = Stretch::default();
        let mut is_long = |to, at| stretch.is_long_with(to, pair(at), descs(0, 0));
        for index in 0..31 {
            assert!(!is_long(index * 65_536, index * 70_000));
        }
        assert!(is_long(31 * 65_536, 31 * 70_000));
    }

    #[test]
    fn a_stretch_that_is_seen_piece_by_piece_becomes_long_and_a_jump_ends_it() {
        let mut stretch = Stretch::default();
        let mut is_long = |at| stretch.is_long_with(at, pair(at), descs(0, 0));
        for index in 0..31 {
            assert!(!is_long(index * 65_536));
        }
        assert!(is_long(31 * 65_536));
        assert!(is_long(32 * 65_536));
        assert!(!is_long(99 * 65_536));
    }
}
