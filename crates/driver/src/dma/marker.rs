//! Markers: how the end of a batch becomes visible.
//!
//! The last pair of a batch copies a word of host memory, the marker, into another one, the poll
//! word. Each of a ring's three contexts has such a pair of words:
//!
//! ```text
//!   context 0        context 1        context 2
//!   source, poll     source, poll     source, poll      24 bytes
//! ```
//!
//! After a failure the ring moves on to the next 24 bytes of the buffer: whatever an engine may
//! still have had in its hands then lands in words that nobody looks at.

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::HostPa;
use glia_abi::arch::ArchProfile;
use glia_abi::port::{BadHostRange, DmaMemory};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::{Barrier, MARKER, MARKER_SIZE_BYTES, Transfer};

use super::context::{CONTEXTS, Slot};

/// Bytes of a context's two words.
pub(super) const PAIR_SIZE_BYTES: u64 = 2 * MARKER_SIZE_BYTES;

/// Bytes of the words of all contexts (driver 2.27: what the buffer is asked for).
pub(super) const MARKERS_SIZE_BYTES: u64 = CONTEXTS as u64 * PAIR_SIZE_BYTES;

/// Failures after which the first words are used again: what fits a page, to which the buffer is
/// rounded up.
const LIVES: u64 = PAGE_SIZE_BYTES / MARKERS_SIZE_BYTES;

/// The marker words of a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Markers {
    buffer: HostPa,
    life: u64,
}

/// The two words of a context.
pub(crate) struct MarkerWords<'h> {
    source: &'h AtomicU32,
    /// What the engine writes.
    pub(crate) poll: &'h AtomicU32,
}

impl Markers {
    /// Markers in a buffer of one page.
    pub(crate) fn new(buffer: HostPa) -> Self {
        Self { buffer, life: 0 }
    }

    /// Turns to words that no earlier batch knows.
    pub(crate) fn move_on(&mut self) {
        self.life = (self.life + 1) % LIVES;
    }

    /// The words of a context.
    pub(crate) fn words<'h>(
        &self,
        host: &'h (impl DmaMemory + ?Sized),
        slot: Slot,
    ) -> Result<MarkerWords<'h>, BadHostRange> {
        words_at(host, self.at(slot))
    }

    /// The transfer that ends a batch of this context.
    pub(crate) fn transfer(&self, profile: &ArchProfile, slot: Slot) -> Transfer {
        transfer_at(profile, self.at(slot), Barrier::None)
    }

    fn at(&self, slot: Slot) -> HostPa {
        let offset = self.life * MARKERS_SIZE_BYTES + slot.index() as u64 * PAIR_SIZE_BYTES;
        // The buffer is a page of host memory, so the sum is one of its addresses.
        HostPa::new(self.buffer.get() + offset)
    }
}

/// The two words of a context that lie here.
pub(super) fn words_at(
    host: &(impl DmaMemory + ?Sized),
    at: HostPa,
) -> Result<MarkerWords<'_>, BadHostRange> {
    match host.words(at, PAIR_SIZE_BYTES)? {
        [source, poll] => Ok(MarkerWords { source, poll }),
        _ => Err(BadHostRange {
            at,
            size_bytes: PAIR_SIZE_BYTES,
        }),
    }
}

/// The transfer that ends a batch of the context whose words lie here.
pub(super) fn transfer_at(profile: &ArchProfile, at: HostPa, barrier: Barrier) -> Transfer {
    let at = at.get();
    Transfer {
        source: profile.host_to_bus(HostPa::new(at)),
        target: profile.host_to_bus(HostPa::new(at + MARKER_SIZE_BYTES)),
        size_bytes: MARKER_SIZE_BYTES,
        barrier,
    }
}

impl MarkerWords<'_> {
    /// Makes the words ready for a batch: the marker at the source, nothing yet in the poll word.
    /// They become the engine's with the doorbell.
    pub(crate) fn arm(&self) {
        self.source.store(MARKER, Ordering::Relaxed);
        self.poll.store(0, Ordering::Relaxed);
    }
}
