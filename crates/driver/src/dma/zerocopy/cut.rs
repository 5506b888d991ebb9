//! How a zero copy is cut into contexts, and a context into descriptors (driver 2.27.4).
//!
//! A context covers at most 64 pages of user memory, which are pinned together. How many is decided
//! once for each operation ([`pin_size_bytes`]): two contexts of half the size keep the engine busier
//! than a large one and a small one. Pages that lie together in host memory become one run, and a run
//! is moved in descriptors of at most 64 KiB.

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{HostPa, Span, UserAddr};
use glia_abi::udma::DESC_BYTES_MAX;

/// Pages of a context (driver 2.27.4, `NDMA_ZC_PAGES_PER_XFER`).
pub const PAGES_PER_CONTEXT: u64 = 64;
/// Bytes of those pages.
const CONTEXT_BYTES_MAX: u64 = PAGES_PER_CONTEXT * PAGE_SIZE_BYTES;

/// How many bytes of an operation are pinned at a time, counted from the start of its first page:
/// `from_page_bytes` is its size and what lies before it in that page.
#[must_use]
pub const fn pin_size_bytes(from_page_bytes: u64) -> u64 {
    if from_page_bytes > 2 * CONTEXT_BYTES_MAX {
        CONTEXT_BYTES_MAX
    } else if from_page_bytes <= CONTEXT_BYTES_MAX {
        from_page_bytes
    } else {
        (from_page_bytes / 2).next_multiple_of(PAGE_SIZE_BYTES)
    }
}

/// What one context moves of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// From the operation's first byte.
    pub(crate) offset_bytes: u64,
    pub(crate) size_bytes: u64,
    /// Pages that it touches, at most [`PAGES_PER_CONTEXT`].
    pub(crate) pages: u32,
}

/// The pieces of an operation of so many bytes at a user address; none if there are none.
pub(crate) fn pieces(at: UserAddr, size_bytes: u64) -> Pieces {
    let in_page_bytes = at.get() % PAGE_SIZE_BYTES;
    Pieces {
        offset_bytes: 0,
        left_bytes: size_bytes,
        in_page_bytes,
        pin_bytes: pin_size_bytes(size_bytes.saturating_add(in_page_bytes)),
    }
}

/// See [`pieces`].
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    offset_bytes: u64,
    left_bytes: u64,
    in_page_bytes: u64,
    pin_bytes: u64,
}

impl Pieces {
    /// Pages that they touch in all, each piece's counted by itself.
    pub(crate) fn pages(&self) -> u64 {
        // Pieces end where pages do.
        (self.in_page_bytes + self.left_bytes).div_ceil(PAGE_SIZE_BYTES)
    }

    /// How many they are.
    pub(crate) fn count_left(&self) -> u64 {
        let first_bytes = (self.pin_bytes - self.in_page_bytes).min(self.left_bytes);
        if first_bytes == 0 {
            return 0;
        }
        1 + (self.left_bytes - first_bytes).div_ceil(self.pin_bytes)
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.left_bytes == 0 {
            return None;
        }
        let size_bytes = (self.pin_bytes - self.in_page_bytes).min(self.left_bytes);
        // CAST: at most PAGES_PER_CONTEXT.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let pages = self.pin_bytes.div_ceil(PAGE_SIZE_BYTES) as u32;
        let piece = Piece {
            offset_bytes: self.offset_bytes,
            size_bytes,
            pages,
        };
        self.offset_bytes += size_bytes;
        self.left_bytes -= size_bytes;
        self.in_page_bytes = 0;
        self.pin_bytes = self.pin_bytes.min(self.left_bytes);
        Some(piece)
    }
}

/// The transfers of so many bytes from a point of pinned spans on: first byte and size of each.
/// Spans that touch are joined. Ends early if the spans do.
pub(crate) fn runs(
    spans: &[Span<HostPa>],
    skip_bytes: u64,
    size_bytes: u64,
) -> impl Iterator<Item = (HostPa, u64)> + Clone + '_ {
    Runs {
        spans,
        skip_bytes,
        left_bytes: size_bytes,
        run: None,
    }
}

#[derive(Clone)]
struct Runs<'a> {
    /// Those that have not begun, or have but for `skip_bytes`.
    spans: &'a [Span<HostPa>],
    skip_bytes: u64,
    left_bytes: u64,
    /// What is left of the run that has begun: its next byte and its end.
    run: Option<(HostPa, HostPa)>,
}

impl Runs<'_> {
    fn next_run(&mut self) -> Option<(HostPa, HostPa)> {
        let (first, rest) = self.spans.split_first()?;
        let start = first.start().checked_add(self.skip_bytes)?;
        let mut end = first.end();
        self.skip_bytes = 0;
        self.spans = rest;
        while let Some((next, rest)) = self.spans.split_first()
            && next.start() == end
        {
            end = next.end();
            self.spans = rest;
        }
        Some((start, end))
    }
}

impl Iterator for Runs<'_> {
    type Item = (HostPa, u64);

    fn next(&mut self) -> Option<(HostPa, u64)> {
        if self.left_bytes == 0 {
            return None;
        }
        let (at, end) = match self.run {
            Some((at, end)) if at < end => (at, end),
            _ => self.next_run()?,
        };
        let here_bytes = end.checked_offset_from(at)?;
        let size_bytes = here_bytes.min(DESC_BYTES_MAX).min(self.left_bytes);
        self.left_bytes -= size_bytes;
        self.run = Some((at.checked_add(size_bytes)?, end));
        Some((at, size_bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(at: u64, size_bytes: u64) -> Vec<(u64, u32)> {
        let pieces = pieces(UserAddr::new(at), size_bytes);
        pieces
            .map(|piece| (piece.size_bytes, piece.pages))
            .collect()
    }

    /// The vectors of the sheet.
    #[test]
    fn pin_sizes_are_the_references() {
        let sizes = [1, 4096, 262_144, 262_145, 262_146, 524_288, 524_289].map(pin_size_bytes);
        let expected = [1, 4096, 262_144, 131_072, 135_168, 262_144, 262_144];
        assert_eq!(sizes, expected);
    }

    #[test]
    fn an_operation_is_cut_at_its_pin_size() {
        assert_eq!(sizes(0, 0), []);
        assert_eq!(sizes(0, 1), [(1, 1)]);
        assert_eq!(sizes(4095, 2), [(2, 2)]);
        assert_eq!(sizes(0, 262_144), [(262_144, 64)]);
        assert_eq!(sizes(0, 262_145), [(131_072, 32), (131_072, 32), (1, 1)]);
        // What lies before it in its first page counts.
        assert_eq!(sizes(1, 262_144), [(131_071, 32), (131_072, 32), (1, 1)]);
        assert_eq!(sizes(100, 1 << 20)[0], (262_044, 64));
        assert_eq!(sizes(100, 1 << 20).len(), 5);
        assert_eq!(sizes(0, 64 << 20), vec![(262_144, 64); 256]);
    }

    fn spans(of: &[(u64, u64)]) -> Vec<Span<HostPa>> {
        let spans = of
            .iter()
            .map(|&(at, size)| Span::new(HostPa::new(at), size));
        spans.map(Option::unwrap).collect()
    }

    fn transfers(of: &[(u64, u64)], skip: u64, size: u64) -> Vec<(u64, u64)> {
        let spans = spans(of);
        runs(&spans, skip, size)
            .map(|(at, size)| (at.get(), size))
            .collect()
    }

    #[test]
    fn pages_that_touch_become_one_run() {
        let pages = [(0x1000, 4096), (0x2000, 4096), (0x9000, 4096)];
        assert_eq!(
            transfers(&pages, 0, 12_288),
            [(0x1000, 8192), (0x9000, 4096)]
        );
        assert_eq!(transfers(&pages, 100, 5000), [(0x1064, 5000)]);
        assert_eq!(transfers(&[], 0, 1), []);
    }

    #[test]
    fn a_run_is_moved_in_descriptors_of_64_kib() {
        let one = [(0x10_0064, 262_044)];
        let expected = [
            (0x10_0064, 65_536),
            (0x11_0064, 65_536),
            (0x12_0064, 65_536),
            (0x13_0064, 65_436),
        ];
        assert_eq!(transfers(&one, 0, 262_044), expected);
    }

    proptest! {
        #[test]
        fn pieces_cover_an_operation_once_and_never_pin_too_much(
            at in 0..1_u64 << 40,
            size_bytes in 0..4_u64 << 20,
        ) {
            let mut offset = 0;
            let mut pieces = pieces(UserAddr::new(at), size_bytes);
            while let Some(piece) = {
                let (count, pages) = (pieces.clone().count(), pieces.clone().map(|it| u64::from(it.pages)));
                prop_assert_eq!(pieces.count_left(), count as u64);
                prop_assert_eq!(pieces.pages(), pages.sum::<u64>());
                pieces.next()
            } {
                prop_assert_eq!(piece.offset_bytes, offset);
                prop_assert!(piece.size_bytes > 0);
                let first = (at + offset) / PAGE_SIZE_BYTES;
                let last = (at + offset + piece.size_bytes - 1) / PAGE_SIZE_BYTES;
                prop_assert_eq!(u64::from(piece.pages), last - first + 1);
                prop_assert!(u64::from(piece.pages) <= PAGES_PER_CONTEXT);
                offset += piece.size_bytes;
            }
            prop_assert_eq!(offset, size_bytes);
        }

        /// The number of pieces of a context never exceeds its pages.
        #[test]
        fn scattered_pages_give_no_more_descriptors_than_pages(
            order in prop::sample::subsequence((0..96_u64).collect::<Vec<_>>(), 64),
            skip in 0..4096_u64,
        ) {
            let pages: Vec<_> = order.iter().map(|page| (page * 4096, 4096)).collect();
            let size = 64 * 4096 - skip;
            let moved = transfers(&pages, skip, size);
            prop_assert!(moved.len() <= 64);
            prop_assert_eq!(moved.iter().map(|(_, size)| size).sum::<u64>(), size);
            prop_assert!(moved.iter().all(|&(_, size)| size <= 65_536));
            let bytes = moved.iter().flat_map(|&(at, size)| at..at + size);
            let expected = pages.iter().flat_map(|&(at, size)| at..at + size).skip(usize::try_from(skip).unwrap());
            prop_assert!(bytes.eq(expected));
        }
    }
}
