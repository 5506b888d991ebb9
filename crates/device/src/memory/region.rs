//! A sparse mapping: address space at once, memory when it is touched.
//!
//! ```text
//!   | bytes, 2 MiB aligned: blocks of 2 MiB in windows of 64 KiB | touched | huge |
//!                                                                  a word per block each
//! ```
//!
//! Fresh bytes read as the region's *fill*. A fill of 0 is what the kernel gives; any other is
//! written into a window when the window is reached for the first time, which the block's *touched*
//! word remembers, a bit per window. The two rows of words lie behind the bytes in the same
//! mapping, so that they, too, cost only what is used.
//!
//! **Huge pages.** A fault of 4 KiB moves 2 GB/s, one of 2 MiB 9 GB/s, but a huge page for one
//! small write wastes it. A block gets huge pages before its first fault if it is first touched by
//! 64 KiB or more at once, or if the block below is huge or was touched in two windows: then
//! somebody is writing his way upward. Where the kernel gives no huge pages the advice does
//! nothing.
//!
//! **Locks.** `touching` is held while a window is touched first; whoever finds the bit set takes
//! no lock.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use glia_abi::addr::access_fits;
use glia_abi::sync::{AtomicU32, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::{Bytes, BytesMut};

/// Bytes of a huge page.
const BLOCK_BYTES: u64 = 2 << 20;
/// Bytes of a window: 32 make a block, so that a word remembers them.
const WINDOW_BYTES: u64 = 64 << 10;
const WINDOWS_PER_BLOCK: u64 = BLOCK_BYTES / WINDOW_BYTES;
const PAGE_BYTES: u64 = glia_abi::PAGE_SIZE_BYTES;
const WORD_BYTES: u64 = 4;
/// LIMIT: each separate run of huge blocks costs the kernel two ranges of its table, which is
/// limited to 65,530 for the whole process.
const HUGE_RUNS_MAX: u32 = 256;

/// Address space that could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{size_bytes} bytes of address space cannot be mapped")]
pub struct MapError {
    /// Bytes asked for.
    pub size_bytes: u64,
    /// What the system said; `None` if it was not even asked.
    #[source]
    pub cause: Option<rustix::io::Errno>,
}

/// A sparse mapping, see the module.
pub(crate) struct Region {
    /// All that is mapped.
    mapping: NonNull<c_void>,
    mapping_bytes: usize,
    /// The first of its bytes.
    first: NonNull<u8>,
    size_bytes: usize,
    /// The touched words, then the huge words, one of each per block.
    notes: NonNull<AtomicU32>,
    blocks: usize,
    fill: u8,
    /// Separate runs of huge blocks.
    touching: Mutex<u32>,
}

// SAFETY: the pointers are to a mapping that is this value's own until it is dropped; see the top
// of the island for what several threads may do to it at once.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `size_bytes` that read as `fill`.
    ///
    /// # Errors
    /// [`MapError`] if the system refuses.
    pub(crate) fn new(size_bytes: u64, fill: u8) -> Result<Self, MapError> {
        let refused = MapError {
            size_bytes,
            cause: None,
        };
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| refused);
        let blocks = size_bytes.div_ceil(BLOCK_BYTES);
        // Room to align the blocks, the bytes, then the words. None of it can wrap: a size that
        // comes near 2^64 is refused here.
        let total_bytes = size_bytes
            .checked_next_multiple_of(PAGE_BYTES)
            .and_then(|bytes| bytes.checked_add(BLOCK_BYTES + blocks * 2 * WORD_BYTES))
            .ok_or(refused)?;
        let mapping_bytes = size(total_bytes)?;
        // SAFETY: a fresh anonymous mapping touches nothing that exists.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                mapping_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let mapped = mapped.map_err(|cause| MapError {
            cause: Some(cause),
            ..refused
        })?;
        let mapping = NonNull::new(mapped).ok_or(refused)?;
        let unaligned = mapping.cast::<u8>();
        let to_first = unaligned.as_ptr().align_offset(size(BLOCK_BYTES)?);
        let to_notes = to_first + size(size_bytes.next_multiple_of(PAGE_BYTES))?;
        // SAFETY: `to_first` is below a block, for which there is room in the mapping.
        let first = unsafe { unaligned.add(to_first) };
        // SAFETY: behind the bytes there is room for the words, and a page boundary is aligned.
        let notes = unsafe { unaligned.add(to_notes) }.cast();
        Ok(Self {
            mapping,
            mapping_bytes,
            first,
            size_bytes: size(size_bytes)?,
            notes,
            blocks: size(blocks)?,
            fill,
            touching: Mutex::new(0),
        })
    }

    /// Bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes as u64
    }

    /// A range to read; `None` if it leaves the region.
    pub(crate) fn bytes(&self, offset_bytes: u64, size_bytes: u64) -> Option<Bytes<'_>> {
        let bytes = self.all().bytes().part(offset_bytes, size_bytes)?;
        // A hole reads as 0 by itself.
        if self.fill != 0 {
            self.touch(offset_bytes, size_bytes);
        }
        Some(bytes)
    }

    /// A range to read and write; `None` if it leaves the region.
    pub(crate) fn bytes_mut(&self, offset_bytes: u64, size_bytes: u64) -> Option<BytesMut<'_>> {
        let bytes = self.all().part(offset_bytes, size_bytes)?;
        self.touch(offset_bytes, size_bytes);
        Some(bytes)
    }

    /// Gives a range back to the system: it reads as the fill again. `None` if it leaves the
    /// region.
    ///
    /// Who uses the range meanwhile finds its old bytes, 0 or the fill.
    pub(crate) fn trim(&self, offset_bytes: u64, size_bytes: u64) -> Option<()> {
        if !access_fits(offset_bytes, size_bytes, self.size_bytes()) {
            return None;
        }
        let end = offset_bytes + size_bytes;
        // Whole windows go back, the bytes beside them are set.
        let first_whole = offset_bytes.next_multiple_of(WINDOW_BYTES).min(end);
        let end_whole = match end == self.size_bytes() {
            true => end,
            false => (end - end % WINDOW_BYTES).max(first_whole),
        };
        for (from, to) in [(offset_bytes, first_whole), (end_whole, end)] {
            self.bytes_mut(from, to - from)?.fill(self.fill);
        }
        if first_whole == end_whole {
            return Some(());
        }
        let _touching = self.touching.lock().unwrap_or_else(PoisonError::into_inner);
        self.advise(first_whole, end_whole, Advice::LinuxDontNeed);
        let windows = first_whole / WINDOW_BYTES..end_whole.div_ceil(WINDOW_BYTES);
        for window in windows {
            let bit = 1 << (window % WINDOWS_PER_BLOCK);
            // CAST: a window of the region, whose size is a usize.
            let block = (window / WINDOWS_PER_BLOCK) as usize;
            self.touched(block).fetch_and(!bit, Ordering::Release);
        }
        Some(())
    }

    fn all(&self) -> BytesMut<'_> {
        // SAFETY: the bytes are mapped, to be read and written, as long as `self` is, and nothing
        // but `Bytes` and `BytesMut` refers to them.
        unsafe { BytesMut::of(Bytes::new(self.first, self.size_bytes)) }
    }

    /// Which windows of a block have been touched.
    #[inline]
    fn touched(&self, block: usize) -> &AtomicU32 {
        &self.notes()[block]
    }

    /// Not 0 if the block has huge pages.
    fn huge(&self, block: usize) -> &AtomicU32 {
        &self.notes()[self.blocks + block]
    }

    fn notes(&self) -> &[AtomicU32] {
        // SAFETY: `new` has made room for two words per block there; they start as 0, which is an
        // atomic, and nothing else refers to them.
        unsafe { std::slice::from_raw_parts(self.notes.as_ptr(), self.blocks * 2) }
    }

    /// Notes that a range is about to be used; the caller has checked that it lies in the region.
    #[inline]
    fn touch(&self, offset_bytes: u64, size_bytes: u64) {
        let last = offset_bytes + size_bytes.saturating_sub(1);
        let window = offset_bytes / WINDOW_BYTES;
        // CAST: a block of the region, whose size is a usize.
        let block = (window / WINDOWS_PER_BLOCK) as usize;
        let bit = 1 << (window % WINDOWS_PER_BLOCK);
        let is_short = last / WINDOW_BYTES == window && size_bytes > 0;
        // ORDER: pairs with the Release below: whoever sees the bit sees the fill.
        if is_short && self.touched(block).load(Ordering::Acquire) & bit != 0 {
            return;
        }
        self.touch_all(offset_bytes, size_bytes);
    }

    fn touch_all(&self, offset_bytes: u64, size_bytes: u64) {
        if size_bytes == 0 {
            return;
        }
        let last = offset_bytes + (size_bytes - 1);
        // CAST: blocks of the region, whose size is a usize.
        let blocks = (offset_bytes / BLOCK_BYTES) as usize..=(last / BLOCK_BYTES) as usize;
        for block in blocks {
            let start = block as u64 * BLOCK_BYTES;
            let from = offset_bytes.saturating_sub(start) / WINDOW_BYTES;
            let to = (last - start).min(BLOCK_BYTES - 1) / WINDOW_BYTES;
            let windows = (u32::MAX << from) & (u32::MAX >> (WINDOWS_PER_BLOCK - 1 - to));
            // ORDER: as in `touch`.
            if self.touched(block).load(Ordering::Acquire) & windows != windows {
                self.touch_first(block, windows, size_bytes >= WINDOW_BYTES);
            }
        }
    }

    #[cold]
    fn touch_first(&self, block: usize, windows: u32, bulk: bool) {
        let mut huge_runs = self.touching.lock().unwrap_or_else(PoisonError::into_inner);
        let touched = self.touched(block).load(Ordering::Relaxed);
        let start = block as u64 * BLOCK_BYTES;
        let end = (start + BLOCK_BYTES).min(self.size_bytes());
        if touched == 0 && end - start == BLOCK_BYTES {
            let below = block.checked_sub(1);
            let below_huge =
                below.is_some_and(|below| self.huge(below).load(Ordering::Relaxed) != 0);
            let below_dense = below
                .is_some_and(|below| self.touched(below).load(Ordering::Relaxed).count_ones() >= 2);
            if below_huge || ((bulk || below_dense) && *huge_runs < HUGE_RUNS_MAX) {
                *huge_runs += u32::from(!below_huge);
                self.advise(start, end, Advice::LinuxHugepage);
                self.huge(block).store(1, Ordering::Relaxed);
            }
        }
        let fresh = windows & !touched;
        if self.fill != 0 {
            for window in (0..WINDOWS_PER_BLOCK).filter(|window| fresh & (1 << window) != 0) {
                let from = (start + window * WINDOW_BYTES).min(end);
                let size_bytes = WINDOW_BYTES.min(end - from);
                if let Some(bytes) = self.all().part(from, size_bytes) {
                    bytes.fill(self.fill);
                }
            }
        }
        // ORDER: pairs with the Acquire in `touch`.
        self.touched(block)
            .store(touched | fresh, Ordering::Release);
    }

    /// Tells the kernel something of the pages from `from` to `to`, which lie in the region and
    /// start at one. A refusal costs speed or memory, nothing else.
    fn advise(&self, from: u64, to: u64, advice: Advice) {
        let Some(range) = self.all().part(from, to.saturating_sub(from)) else {
            return;
        };
        let Bytes {
            first, size_bytes, ..
        } = range.bytes();
        if size_bytes == 0 {
            return;
        }
        // SAFETY: the range is part of our mapping. Hugepage changes no byte; DontNeed makes them
        // 0, which memory that anybody may write at any time can become.
        let _advice = unsafe { rustix::mm::madvise(first.as_ptr().cast(), size_bytes, advice) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing that borrows it is left.
        let _unmapped = unsafe { rustix::mm::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(region: &Region, at: u64) -> u8 {
        let mut byte = [0];
        region.bytes(at, 1).unwrap().read(&mut byte);
        byte[0]
    }

    #[test]
    fn a_fresh_byte_reads_as_the_fill_and_a_written_one_stays() {
        let region = Region::new(5 << 20, 0xa5).unwrap();
        region.bytes_mut(70_000, 2).unwrap().write(&[1, 2]);
        assert_eq!(
            [69_999, 70_000, 70_001, 70_002].map(|at| byte(&region, at)),
            [0xa5, 1, 2, 0xa5]
        );
        assert_eq!(byte(&region, (5 << 20) - 1), 0xa5);
    }

    #[test]
    fn what_was_trimmed_reads_as_the_fill_again_and_its_neighbours_stay() {
        for fill in [0, 0x77] {
            let region = Region::new(4 << 20, fill).unwrap();
            region.bytes_mut(0, 4 << 20).unwrap().fill(9);
            region.trim(100_000, 3_000_001).unwrap();
            let at = [99_999, 100_000, 200_000, 2_000_000, 3_100_000, 3_100_001];
            assert_eq!(
                at.map(|at| byte(&region, at)),
                [9, fill, fill, fill, fill, 9]
            );
        }
    }

    #[test]
    fn the_end_of_a_region_that_is_no_multiple_of_a_window_can_be_trimmed() {
        let region = Region::new(3 * WINDOW_BYTES + 4096, 0x11).unwrap();
        region.bytes_mut(0, region.size_bytes()).unwrap().fill(2);
        region.trim(2 * WINDOW_BYTES, WINDOW_BYTES + 4096).unwrap();
        assert_eq!(byte(&region, region.size_bytes() - 1), 0x11);
        assert_eq!(byte(&region, 2 * WINDOW_BYTES - 1), 2);
    }

    #[test]
    fn a_range_that_leaves_the_region_is_none() {
        let region = Region::new(4096, 0).unwrap();
        assert!(region.bytes(4096, 0).is_some());
        assert!(region.bytes(4095, 2).is_none());
        assert!(region.bytes_mut(u64::MAX, 2).is_none());
        assert!(region.trim(0, 4097).is_none());
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(Region::new(u64::MAX, 0).is_err());
        assert!(Region::new(1 << 60, 0).is_err());
    }

    #[test]
    fn blocks_above_a_dense_one_are_huge_and_a_lone_touch_is_small() {
        let region = Region::new(8 << 20, 0).unwrap();
        for at in [0, WINDOW_BYTES, BLOCK_BYTES, 3 * BLOCK_BYTES] {
            region.bytes_mut(at, 16).unwrap().fill(1);
        }
        let huge = [0, 1, 2, 3].map(|block| region.huge(block).load(Ordering::Relaxed));
        assert_eq!(huge, [0, 1, 0, 0]);
    }

    #[test]
    fn words_need_alignment() {
        let region = Region::new(4096, 0).unwrap();
        assert_eq!(
            region.bytes_mut(4, 8).unwrap().words().map(<[_]>::len),
            Some(2)
        );
        assert!(region.bytes_mut(2, 8).unwrap().words().is_none());
        assert!(region.bytes_mut(4, 6).unwrap().words().is_none());
    }
}
