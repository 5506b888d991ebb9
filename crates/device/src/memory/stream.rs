//! Copies that go past the caches.
//!
//! A memcpy of memory that no cache holds moves every byte of the target twice: in, because a cache
//! owns a line before it writes to it, and out again. A **streaming store** writes whole lines
//! straight to memory. It costs twice as much where the caches hold the bytes, so somebody has to
//! know which is which; this module does not.
//!
//! | processor | kernel |
//! | --- | --- |
//! | x86-64 with AVX2 | 32 bytes a store |
//! | other x86-64 | SSE2: 16 bytes a store |
//! | all others | memcpy: there are no such stores in stable Rust |
//!
//! Four pages are copied side by side, line by line: memory answers four streams faster than one,
//! since each is fetched ahead by itself and none beyond its page. What comes a few lines later in
//! each is asked for explicitly; `prefetchnta` instead costs half on some processors
//! (docs/adr/0006-copy-kernel.md).

use std::ptr;
use std::sync::LazyLock;

/// Copies so many bytes between ranges that lie apart. All it has written is ordered before what
/// its thread does next, like a memcpy's stores.
///
/// # Safety
/// So many bytes can be read from the first pointer and written to the second, and the two ranges
/// do not overlap. The processor has what the kernel needs.
pub(super) type Kernel = unsafe fn(*const u8, *mut u8, usize);

/// The best one that this processor has, chosen at the first use.
static CHOSEN: LazyLock<Kernel> = LazyLock::new(|| {
    let best = kernels().next();
    best.map_or(plain, |(_, kernel)| kernel)
});

/// Copies by streaming stores, if the processor has them.
///
/// # Safety
/// So many bytes can be read from `from` and written to `to`, and the two ranges do not overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, size_bytes: usize) {
    // SAFETY: the caller's promise; `kernels` lists what the processor has.
    unsafe { CHOSEN(from, to, size_bytes) }
}

/// The kernels that this processor has, best first.
fn kernels() -> impl Iterator<Item = (&'static str, Kernel)> {
    #[cfg(target_arch = "x86_64")]
    let streaming = {
        let avx2 = is_x86_feature_detected!("avx2");
        let sse2: (&str, Kernel) = ("sse2", x86::copy_sse2);
        avx2.then_some(("avx2", x86::copy_avx2 as Kernel))
            .into_iter()
            .chain([sse2])
    };
    #[cfg(not(target_arch = "x86_64"))]
    let streaming = std::iter::empty();
    streaming.chain([("plain", plain as Kernel)])
}

/// # Safety
/// See [`Kernel`].
unsafe fn plain(from: *const u8, to: *mut u8, size_bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(from, to, size_bytes) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{
        __m128i, __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_setzero_si128,
        _mm_sfence, _mm_stream_si128, _mm256_loadu_si256, _mm256_setzero_si256,
        _mm256_stream_si256,
    };

    use super::plain;

    /// Two cache lines.
    const STEP_BYTES: usize = 128;
    /// How far apart lines are that are copied side by side, and how many they are.
    const LANE_BYTES: usize = 4096;
    const LANES: usize = 4;
    /// How far ahead a lane asks for its lines.
    const AHEAD_BYTES: usize = 256;

    /// A kernel: the bytes before the target's first whole vector and those behind the last whole
    /// step plainly, what lies between by streaming stores, then the fence.
    macro_rules! kernel {
        ($name:ident, $feature:literal, $vector:ty, $zero:ident, $load:ident, $store:ident) => {
            /// # Safety
            /// See [`Kernel`](super::Kernel).
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(from: *const u8, to: *mut u8, size_bytes: usize) {
                const VECTOR: usize = size_of::<$vector>();
                // All of a step is loaded before any of it is stored: a line goes out whole.
                //
                // SAFETY of a call: `at + STEP_BYTES` is at most `size_bytes`, and `to + at` is
                // aligned to a vector.
                let step = |at: usize| {
                    let mut vectors = [$zero(); STEP_BYTES / VECTOR];
                    for (index, vector) in vectors.iter_mut().enumerate() {
                        // SAFETY: see above; a load needs no alignment.
                        *vector = unsafe { $load(from.add(at + index * VECTOR).cast()) };
                    }
                    for (index, vector) in vectors.into_iter().enumerate() {
                        // SAFETY: see above. The ranges lie apart.
                        unsafe { $store(to.add(at + index * VECTOR).cast(), vector) };
                    }
                };
                let head = to.align_offset(VECTOR).min(size_bytes);
                let body = size_bytes - head;
                let lanes_end = head + body / (LANES * LANE_BYTES) * (LANES * LANE_BYTES);
                let steps_end = head + body / STEP_BYTES * STEP_BYTES;
                // SAFETY: `head` is at most `size_bytes`.
                unsafe { plain(from, to, head) };
                for lanes in (head..lanes_end).step_by(LANES * LANE_BYTES) {
                    for at in (lanes..lanes + LANE_BYTES).step_by(STEP_BYTES) {
                        for at in (0..LANES).map(|lane| at + lane * LANE_BYTES) {
                            // No address is wrong to ask for.
                            let ahead = from.wrapping_add(at + AHEAD_BYTES);
                            for line in (0..STEP_BYTES).step_by(64) {
                                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line).cast());
                            }
                            step(at);
                        }
                    }
                }
                for at in (lanes_end..steps_end).step_by(STEP_BYTES) {
                    step(at);
                }
                // ORDER: streaming stores are ordered by nothing else, not by a Release store
                // either. With this, whoever sees what this thread writes next sees them.
                _mm_sfence();
                // SAFETY: `steps_end` is at most `size_bytes`.
                let (from, to) = unsafe { (from.add(steps_end), to.add(steps_end)) };
                // SAFETY: so many bytes are left.
                unsafe { plain(from, to, size_bytes - steps_end) };
            }
        };
    }

    kernel!(
        copy_avx2,
        "avx2",
        __m256i,
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_stream_si256
    );
    kernel!(
        copy_sse2,
        "sse2",
        __m128i,
        _mm_setzero_si128,
        _mm_loadu_si128,
        _mm_stream_si128
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 64;

    /// Copies with every kernel, and compares the target and what lies around it.
    fn check(source_at: usize, target_at: usize, size: usize) {
        let source: Vec<u8> = (0..=250).cycle().take(ROOM + size).collect();
        let mut expected = vec![0xee; 2 * ROOM + size];
        expected[target_at..target_at + size].copy_from_slice(&source[source_at..][..size]);
        for (name, kernel) in kernels() {
            let mut target = vec![0xee; 2 * ROOM + size];
            // SAFETY: neither offset is greater than ROOM, so both have `size` bytes there,
            // in two allocations.
            unsafe {
                let to = target.as_mut_ptr().add(target_at);
                kernel(source.as_ptr().add(source_at), to, size);
            }
            assert!(target == expected, "{name}: {source_at} {target_at} {size}");
        }
    }

    #[test]
    fn every_kernel_moves_exactly_the_bytes_of_every_small_size_and_alignment() {
        for size in 0..=200 {
            for target_at in 0..=33 {
                for source_at in [0, 1, 7, 16, 31, 32] {
                    check(source_at, target_at, size);
                }
            }
        }
    }

    #[test]
    fn every_kernel_moves_exactly_the_bytes_around_the_size_of_a_descriptor() {
        for size in [65_536 - 129, 65_536 - 128, 65_535, 65_536] {
            for (source_at, target_at) in [(0, 0), (1, 0), (0, 1), (31, 33), (16, 48)] {
                check(source_at, target_at, size);
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn x86_has_streaming_stores() {
        assert!(kernels().any(|(name, _)| name == "sse2"));
        assert_ne!(kernels().next().map(|(name, _)| name), Some("plain"));
    }
}
