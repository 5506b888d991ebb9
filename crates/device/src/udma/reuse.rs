//! Which memory the engines of a device have touched lately: a guess at what the caches hold.
//!
//! Time is counted in bytes that the engines have moved. Every page of 64 KiB has a slot, which
//! holds the page's number and when it was last touched; a page that shares the slot takes it over.
//! Slots are drawn by a hash: buffers lie at round distances, and page by page two of them would
//! drive each other out. A page that was touched less than [`NEAR_BYTES`] ago is **near**. So the same copies in the same
//! order give the same answers, whatever the size of each and however long they take.
//!
//! Pages are those of this process, not of the bus: a buffer that is pinned anew lies elsewhere for
//! the device, and in the same lines of the cache. So which pages share a slot may differ between
//! two runs. An answer decides how bytes are written, never which.
//!
//! **Threads.** One table for all queues of a device, without a lock. Two at once may lose some of
//! the other's count, or a slot: a guess a little worse.

use std::sync::atomic::{AtomicU64, Ordering};

/// What has been touched within so much traffic counts as near. Measured: copies that come back
/// after 16 MiB are served by caches, after 32 MiB by memory.
const NEAR_BYTES: u64 = 20 << 20;
/// Bytes of a page.
const PAGE_BYTES: u64 = 64 << 10;
/// Pages that are remembered: half a gigabyte.
const SLOT_BITS: u32 = 13;
/// Time is kept in units of so many bytes,
const TICK_BYTES: u64 = 64 << 10;
/// and in so many bits, below the page's number. It is the same again after a terabyte.
const STAMP_BITS: u32 = 24;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// 2^64 over the golden ratio: spreads numbers that follow each other.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// See the module.
pub(crate) struct Reuse {
    moved_bytes: AtomicU64,
    /// A page's number, then its stamp.
    slots: Box<[AtomicU64]>,
}

impl Reuse {
    /// Nothing is near.
    pub(crate) fn new() -> Self {
        Self {
            moved_bytes: AtomicU64::new(0),
            // The page number of all ones is no page's: no address is so high.
            slots: (0..1 << SLOT_BITS)
                .map(|_| AtomicU64::new(u64::MAX))
                .collect(),
        }
    }

    /// Notes that so many bytes are moved now; says whether the target is near.
    ///
    /// Both ends count as touched. The source does not count in the answer: where it is near and
    /// the target is not, as in a fill, there is still a target to keep out of the caches.
    pub(crate) fn note(&self, source: u64, target: u64, size_bytes: u64) -> bool {
        let moved_bytes = self.moved_bytes.load(Ordering::Relaxed) + size_bytes;
        self.moved_bytes.store(moved_bytes, Ordering::Relaxed);
        let now = (moved_bytes / TICK_BYTES) & STAMP_MASK;
        // First, since they may share a slot.
        let age = self.touch(target, now);
        self.touch(source, now);
        age.is_some_and(|ticks| ticks < NEAR_BYTES / TICK_BYTES)
    }

    /// How long ago the page was touched, in ticks; `None` if that is not known.
    fn touch(&self, at: u64, now: u64) -> Option<u64> {
        let page = at / PAGE_BYTES;
        // CAST: `SLOT_BITS` bits.
        let number = (page.wrapping_mul(SPREAD) >> (u64::BITS - SLOT_BITS)) as usize;
        let slot = self.slots.get(number)?;
        let entry = page << STAMP_BITS | now;
        let before = slot.load(Ordering::Relaxed);
        slot.store(entry, Ordering::Relaxed);
        let is_same = (before ^ entry) >> STAMP_BITS == 0;
        is_same.then_some(now.wrapping_sub(before) & STAMP_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TARGET: u64 = 0x7f12_3456_0000;
    const SOURCE: u64 = 0x7f55_0000_0000;

    #[test]
    fn a_page_is_near_until_20_mib_have_been_moved_since() {
        let reuse = Reuse::new();
        assert!(!reuse.note(SOURCE, TARGET, 65_536));
        assert!(reuse.note(SOURCE, TARGET, 65_536));
        reuse.note(SOURCE, SOURCE + MIB, 20 * MIB - 2 * 65_536);
        assert!(reuse.note(SOURCE, TARGET, 65_536));
        reuse.note(SOURCE, SOURCE + MIB, 20 * MIB - 65_536);
        assert!(!reuse.note(SOURCE, TARGET, 65_536));
    }

    /// How many of a hundred targets of a copy of this size are near when it is made again, from
    /// a source that lies `apart` bytes before the target.
    fn near_again(size_bytes: u64, apart: u64) -> u64 {
        let reuse = Reuse::new();
        let near = || {
            let steps = (0..size_bytes).step_by(65_536);
            let near = steps.filter(|at| reuse.note(TARGET - apart + at, TARGET + at, 65_536));
            near.count() as u64 * 100 / (size_bytes / 65_536)
        };
        assert_eq!(near(), 0);
        near()
    }

    #[test]
    fn a_copy_is_near_again_by_when_it_comes_back_and_wherever_its_ends_lie() {
        for apart in [64 * MIB, 512 * MIB, 514 * MIB, 1 << 32, (1 << 36) + 65_536] {
            assert!(near_again(MIB, apart) >= 90, "{apart:#x}");
            assert!(near_again(16 * MIB, apart) >= 90, "{apart:#x}");
            assert_eq!(near_again(32 * MIB, apart), 0);
        }
        assert_eq!(near_again(1024 * MIB, 1 << 32), 0);
    }

    #[test]
    fn a_target_that_was_read_lately_is_near_and_a_source_alone_does_not_count() {
        let reuse = Reuse::new();
        reuse.note(SOURCE, TARGET, 4096);
        assert!(reuse.note(TARGET, SOURCE, 4096));
        assert!(!reuse.note(SOURCE, TARGET + MIB, 4096));
    }

    #[test]
    fn pages_that_share_a_slot_are_told_apart() {
        let reuse = Reuse::new();
        // So many pages that most slots have been taken over.
        let pages = (0..4 << SLOT_BITS).map(|page| TARGET + page * PAGE_BYTES);
        let near = pages.filter(|&page| reuse.note(SOURCE, page, 4096));
        assert_eq!(near.count(), 0);
    }
}
