//! Bytes that are shared: the island of unsafe code.
//!
//! [`Region`] is a sparse mapping of its own (HBM channels, the host arena, a process's buffers).
//! [`lend`] makes the buffers that a caller lends with an ioctl reachable, for as long as the call
//! lasts. [`PinTable`] makes parts of either reachable for devices, until they are unpinned. All
//! three give out [`Bytes`] and [`BytesMut`]: a checked range, borrowed from whoever keeps it
//! alive, to be read, written, filled, copied, or looked at as atomic words.
//!
//! **Who owns what.** A region belongs to its `Arc`s. A loan belongs to the caller of [`lend`];
//! every pin of it is gone before the borrow ends. Readers of the pin table hold its lock while
//! they copy, so that whoever removes a pin waits for them.
//!
//! **What this does not do.** It knows no device, no bus address and no descriptor.

// UNSAFETY: Memory that a software device and its driver share cannot be a `&[u8]`: both sides
// write to it at any time, by design, and a driver can order copies that overlap. It has to be
// reached by pointer. `core::slice` of atomics would be safe, but moves single bytes; a
// device that copies at the speed of memory needs memcpy, and stores that go past the caches.
//
// What is argued once, for every copy below: two threads may copy over the same bytes at the same
// time, if the driver orders it so (two queues writing one buffer). In the language's model that is
// a data race of a memcpy with another; in the machine's it gives some mix of both, as on the
// hardware. The compiler cannot exploit it: each access is an opaque memcpy or memset, or vectors
// that are loaded and stored and nothing else, through a raw pointer to memory that no reference to
// plain bytes ever covers, whose result is never used to make a decision in the same function.
// Whatever must be ordered (doorbells, markers, poll words) is an atomic word.

mod loans;
mod pins;
mod region;
mod stream;

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU8;

use glia_abi::addr::access_fits;
use glia_abi::sync::AtomicU32;

pub(crate) use loans::{Loans, lend};
pub use pins::PinLayout;
pub(crate) use pins::{PINS_START, PinReader, PinTable};
pub use region::MapError;
pub(crate) use region::Region;

/// A read of so many bytes goes past the caches: it is a piece of a large one, through a copy buffer
/// that is as large as the nearest cache, and what would be fetched of its target is soon driven out.
const STREAMED_READ_MIN: usize = 1 << 20;

/// A range of shared memory that may be read, valid for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    first: NonNull<u8>,
    size_bytes: usize,
    memory: PhantomData<&'a [AtomicU8]>,
}

/// How a copy writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// As a memcpy does.
    Cached,
    /// Past the caches, if the processor can and the ranges lie apart. What was written is ordered
    /// before whatever the thread does next all the same: the copy fences before it returns.
    Streamed,
}

/// A range of shared memory that may be read and written, valid for `'a`. Several may cover the
/// same bytes.
#[derive(Clone, Copy)]
pub(crate) struct BytesMut<'a>(Bytes<'a>);

// SAFETY: the memory is valid for `'a` on whichever thread (the constructor's condition), and what
// happens when several threads use it at once is argued at the top.
unsafe impl Send for Bytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bytes<'_> {}

impl<'a> Bytes<'a> {
    /// # Safety
    /// For all of `'a`, `size_bytes` bytes from `first` on are part of one allocation and may be
    /// read from any thread, and no plain reference lets anybody write to them.
    const unsafe fn new(first: NonNull<u8>, size_bytes: usize) -> Self {
        Self {
            first,
            size_bytes,
            memory: PhantomData,
        }
    }

    /// Bytes.
    pub(crate) fn size_bytes(self) -> u64 {
        self.size_bytes as u64
    }

    /// A part of it; `None` if that leaves it.
    pub(crate) fn part(self, offset_bytes: u64, size_bytes: u64) -> Option<Self> {
        if !access_fits(offset_bytes, size_bytes, self.size_bytes()) {
            return None;
        }
        // CAST: neither is greater than `self.size_bytes`, a usize.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let (offset, size_bytes) = (offset_bytes as usize, size_bytes as usize);
        // SAFETY: at most one past the end of the allocation that `self` lies in.
        let first = unsafe { self.first.add(offset) };
        Some(Self {
            first,
            size_bytes,
            memory: PhantomData,
        })
    }

    /// The bytes in place.
    ///
    /// # Safety
    /// Nobody writes to them for all of `'a`.
    const unsafe fn as_slice(self) -> &'a [u8] {
        // SAFETY: so many bytes may be read; that nobody writes is the caller's word.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.size_bytes) }
    }

    /// Copies the bytes into a buffer of the same size; a longer one keeps its rest, a shorter one
    /// gets what it has room for.
    pub(crate) fn read(self, into: &mut [u8]) {
        let size_bytes = self.size_bytes.min(into.len());
        let (from, to) = (self.first.as_ptr(), into.as_mut_ptr());
        // SAFETY: both have so many bytes; `into` is exclusive, so it is no shared memory, and lies
        // apart.
        unsafe {
            match size_bytes >= STREAMED_READ_MIN {
                true => stream::copy(from, to, size_bytes),
                false => ptr::copy_nonoverlapping(from, to, size_bytes),
            }
        }
    }

    /// Where it lies in this process: to compare, not to go there.
    pub(crate) fn address(self) -> u64 {
        self.first.addr().get() as u64
    }

    /// Copies the bytes into another range, up to the smaller of both sizes, as if through a buffer
    /// in between: the two may overlap.
    pub(crate) fn copy_to(self, target: BytesMut<'_>, stores: Stores) {
        let size_bytes = self.size_bytes.min(target.0.size_bytes);
        let (from, to) = (self.first.as_ptr(), target.0.first.as_ptr());
        let lie_apart = from.addr().abs_diff(to.addr()) >= size_bytes;
        // SAFETY: both have so many bytes, and `target` may be written; for what others do to them
        // meanwhile see the top. The first two are only called when they lie apart.
        unsafe {
            match stores {
                Stores::Streamed if lie_apart => stream::copy(from, to, size_bytes),
                Stores::Cached if lie_apart => ptr::copy_nonoverlapping(from, to, size_bytes),
                Stores::Streamed | Stores::Cached => ptr::copy(from, to, size_bytes),
            }
        }
    }
}

impl<'a> BytesMut<'a> {
    /// # Safety
    /// The bytes may be written from any thread for all of `'a`, with no plain reference to them in
    /// use.
    const unsafe fn of(bytes: Bytes<'a>) -> Self {
        Self(bytes)
    }

    /// The same range, to be read only.
    pub(crate) fn bytes(self) -> Bytes<'a> {
        self.0
    }

    /// A part of it; `None` if that leaves it.
    pub(crate) fn part(self, offset_bytes: u64, size_bytes: u64) -> Option<Self> {
        self.0.part(offset_bytes, size_bytes).map(Self)
    }

    /// Copies a buffer of the same size into it; of a longer one, what there is room for.
    pub(crate) fn write(self, bytes: &[u8]) {
        let size_bytes = self.0.size_bytes.min(bytes.len());
        // SAFETY: both have so many bytes. `bytes` is a plain reference, so by the constructor's
        // condition no part of it is this memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.first.as_ptr(), size_bytes) }
    }

    /// Sets every byte.
    pub(crate) fn fill(self, value: u8) {
        // SAFETY: it has so many bytes and may be written.
        unsafe { ptr::write_bytes(self.0.first.as_ptr(), value, self.0.size_bytes) }
    }

    /// The words of it; `None` if it does not begin and end at a multiple of 4.
    pub(crate) fn words(self) -> Option<&'a [AtomicU32]> {
        const WORD: usize = size_of::<AtomicU32>();
        let words = self.0.first.cast::<AtomicU32>();
        if !words.is_aligned() || !self.0.size_bytes.is_multiple_of(WORD) {
            return None;
        }
        // SAFETY: aligned, in bounds, valid for `'a`, and an atomic may be changed by others.
        Some(unsafe { std::slice::from_raw_parts(words.as_ptr(), self.0.size_bytes / WORD) })
    }

    /// The word that it is; `None` unless it is four aligned bytes.
    pub(crate) fn word(self) -> Option<&'a AtomicU32> {
        match self.words()? {
            [word] => Some(word),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_are_copied_as_through_a_buffer_either_way() {
        for stores in [Stores::Cached, Stores::Streamed] {
            for (from, to) in [
                (0_u16, 1_u16),
                (1, 0),
                (0, 4095),
                (4096, 0),
                (64, 0),
                (7, 7),
            ] {
                let region = Region::new(16 << 10, 0).unwrap();
                let content: Vec<u8> = (0..=250).cycle().take(16 << 10).collect();
                region.bytes_mut(0, 16 << 10).unwrap().write(&content);
                let target = region.bytes_mut(to.into(), 4096).unwrap();
                region
                    .bytes(from.into(), 4096)
                    .unwrap()
                    .copy_to(target, stores);
                let mut expected = content;
                let from = usize::from(from);
                expected.copy_within(from..from + 4096, to.into());
                let mut seen = vec![0; 16 << 10];
                region.bytes(0, 16 << 10).unwrap().read(&mut seen);
                assert!(seen == expected, "{stores:?} {from} {to}");
            }
        }
    }
}
