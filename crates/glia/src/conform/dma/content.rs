//! What memory holds, by description instead of byte by byte.
//!
//! The traces fill hundreds of megabytes with a pattern, copy them about and compare a hash of
//! where they arrive. So memory is kept as pieces, each of which says what its bytes are: one
//! value, a stretch of a pattern, or literal bytes. A copy moves descriptions; bytes are made for a
//! hash only, and not twice for the same start of the same pattern ([`Hasher`]).
//!
//! Memory that nobody wrote is zero. Neighbours that continue each other are one piece.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// FNV-1a of 64 bits: the hash of nothing.
pub const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// From how many bytes to how many the hash of a pattern is kept.
const PREFIX_STEP_BYTES: u64 = 1 << 20;

/// One more byte into a hash.
#[must_use]
pub const fn fnv_byte(state: u64, byte: u8) -> u64 {
    (state ^ byte as u64).wrapping_mul(FNV_PRIME)
}

/// More bytes into a hash.
#[must_use]
pub fn fnv_bytes(state: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(state, |state, &byte| fnv_byte(state, byte))
}

/// What a run of bytes is, from its first byte on.
#[derive(Debug, Clone)]
pub enum Content {
    /// One value, over and over.
    Byte(u8),
    /// The pattern of a `fill`: the byte at index i of it is the low 8 bits of
    /// i·31 + (i>>8)·17 + (i>>16)·13 + seed.
    Pattern {
        /// The seed's low 8 bits.
        seed: u8,
        /// The first byte's index.
        index: u64,
    },
    /// Bytes themselves.
    Literal {
        /// All of them.
        bytes: Arc<[u8]>,
        /// Where among them it begins.
        offset: usize,
    },
}

impl Content {
    /// These bytes; one value, if they are all the same.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        match bytes {
            [first, rest @ ..] if rest.iter().all(|byte| byte == first) => Self::Byte(*first),
            [] => Self::Byte(0),
            _ => Self::Literal {
                bytes: bytes.into(),
                offset: 0,
            },
        }
    }

    /// The same without its first bytes.
    fn skip(&self, skipped_bytes: u64) -> Self {
        match self {
            Self::Byte(value) => Self::Byte(*value),
            Self::Pattern { seed, index } => Self::Pattern {
                seed: *seed,
                index: index.wrapping_add(skipped_bytes),
            },
            Self::Literal { bytes, offset } => Self::Literal {
                bytes: Arc::clone(bytes),
                // What is too far to skip leaves nothing.
                offset: usize::try_from(skipped_bytes)
                    .map_or(usize::MAX, |skipped| offset.saturating_add(skipped)),
            },
        }
    }

    /// Whether `next` is what follows after so many bytes of this.
    fn continues(&self, size_bytes: u64, next: &Self) -> bool {
        match (self.skip(size_bytes), next) {
            (Self::Byte(value), Self::Byte(other)) => value == *other,
            (
                Self::Pattern { seed, index },
                Self::Pattern {
                    seed: other_seed,
                    index: other_index,
                },
            ) => (seed, index) == (*other_seed, *other_index),
            (
                Self::Literal { bytes, offset },
                Self::Literal {
                    bytes: other,
                    offset: other_offset,
                },
            ) => Arc::ptr_eq(&bytes, other) && offset == *other_offset,
            _ => false,
        }
    }

    /// Calls `tell` with each of the first bytes.
    fn each(&self, size_bytes: u64, mut tell: impl FnMut(u8)) {
        match self {
            Self::Byte(value) => (0..size_bytes).for_each(|_| tell(*value)),
            Self::Pattern { seed, index } => {
                for offset in 0..size_bytes {
                    tell(pattern_byte(*seed, index.wrapping_add(offset)));
                }
            }
            Self::Literal { bytes, offset } => {
                let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
                let whole = bytes.get(*offset..).unwrap_or_default();
                whole.iter().take(size).for_each(|&byte| tell(byte));
            }
        }
    }
}

fn pattern_byte(seed: u8, index: u64) -> u8 {
    let [low, middle, high, ..] = index.to_le_bytes();
    // Low 8 bits of each product depend on the low 8 bits of its factor only.
    low.wrapping_mul(31)
        .wrapping_add(middle.wrapping_mul(17))
        .wrapping_add(high.wrapping_mul(13))
        .wrapping_add(seed)
}

/// A run of bytes.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Bytes.
    pub size_bytes: u64,
    /// What they are.
    pub content: Content,
}

impl Piece {
    /// All bytes of these pieces.
    #[must_use]
    pub fn bytes(pieces: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            piece
                .content
                .each(piece.size_bytes, |byte| bytes.push(byte));
        }
        bytes
    }
}

/// Bytes by address.
#[derive(Debug, Default)]
pub struct Contents {
    /// By first address; they do not overlap.
    pieces: BTreeMap<u64, Piece>,
}

impl Contents {
    /// What lies in a range, in order and without gaps. The end must be an address.
    #[must_use]
    pub fn read(&self, at: u64, size_bytes: u64) -> Vec<Piece> {
        let end = at.saturating_add(size_bytes);
        let first = self.pieces.range(..=at).next_back();
        let from = first.map_or(at, |(&start, _)| start);
        let mut found = Vec::new();
        let mut done = at;
        for (&start, piece) in self.pieces.range(from..end) {
            let stop = (start + piece.size_bytes).min(end);
            if stop <= done {
                continue;
            }
            if done < start {
                found.push(zeros(start - done));
                done = start;
            }
            found.push(Piece {
                size_bytes: stop - done,
                content: piece.content.skip(done - start),
            });
            done = stop;
        }
        if done < end {
            found.push(zeros(end - done));
        }
        found
    }

    /// Puts pieces one behind the other, from `at` on. The end must be an address.
    pub fn write(&mut self, at: u64, pieces: Vec<Piece>) {
        let size_bytes: u64 = pieces.iter().map(|piece| piece.size_bytes).sum();
        let end = at.saturating_add(size_bytes);
        self.split(at);
        self.split(end);
        let old: Vec<u64> = self
            .pieces
            .range(at..end)
            .map(|(&start, _)| start)
            .collect();
        for start in old {
            self.pieces.remove(&start);
        }
        let mut start = at;
        for piece in pieces.into_iter().filter(|piece| piece.size_bytes > 0) {
            let next = start + piece.size_bytes;
            self.pieces.insert(start, piece);
            self.join(start);
            start = next;
        }
        self.join(end);
    }

    /// Makes a piece begin at `at`, if one lies across it.
    fn split(&mut self, at: u64) {
        let Some((&start, piece)) = self.pieces.range_mut(..at).next_back() else {
            return;
        };
        let kept = at - start;
        if piece.size_bytes <= kept {
            return;
        }
        let rest = Piece {
            size_bytes: piece.size_bytes - kept,
            content: piece.content.skip(kept),
        };
        piece.size_bytes = kept;
        self.pieces.insert(at, rest);
    }

    /// Joins the piece at `at` to the one before it, if it continues that one.
    fn join(&mut self, at: u64) {
        let Some(piece) = self.pieces.get(&at) else {
            return;
        };
        let (size_bytes, content) = (piece.size_bytes, piece.content.clone());
        if let Some((&start, before)) = self.pieces.range_mut(..at).next_back()
            && start + before.size_bytes == at
            && before.content.continues(before.size_bytes, &content)
        {
            before.size_bytes += size_bytes;
            self.pieces.remove(&at);
        }
    }
}

fn zeros(size_bytes: u64) -> Piece {
    Piece {
        size_bytes,
        content: Content::Byte(0),
    }
}

/// Hashes pieces, and keeps hashes of the starts of patterns: what a trace copies from the start of
/// a buffer again and again is made into bytes once.
#[derive(Debug, Default)]
pub struct Hasher {
    /// By seed and first index: how many bytes → their hash.
    prefixes: HashMap<(u8, u64), BTreeMap<u64, u64>>,
}

impl Hasher {
    /// The hash of these pieces, one behind the other.
    pub fn hash(&mut self, pieces: &[Piece]) -> u64 {
        let (state, rest) = match pieces {
            [
                Piece {
                    size_bytes,
                    content: Content::Pattern { seed, index },
                },
                rest @ ..,
            ] => (self.prefix(*seed, *index, *size_bytes), rest),
            all => (FNV_OFFSET, all),
        };
        rest.iter().fold(state, |state, piece| {
            fnv_content(state, &piece.content, piece.size_bytes)
        })
    }

    fn prefix(&mut self, seed: u8, index: u64, size_bytes: u64) -> u64 {
        let known = self.prefixes.entry((seed, index)).or_default();
        let nearest = known.range(..=size_bytes).next_back();
        let (mut done, mut state) =
            nearest.map_or((0, FNV_OFFSET), |(&done, &state)| (done, state));
        while done < size_bytes {
            let next = (done / PREFIX_STEP_BYTES + 1) * PREFIX_STEP_BYTES;
            let next = next.min(size_bytes);
            let pattern = Content::Pattern {
                seed,
                index: index.wrapping_add(done),
            };
            state = fnv_content(state, &pattern, next - done);
            known.insert(next, state);
            done = next;
        }
        state
    }
}

fn fnv_content(mut state: u64, content: &Content, size_bytes: u64) -> u64 {
    content.each(size_bytes, |byte| state = fnv_byte(state, byte));
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(seed: u8, index: u64, size_bytes: u64) -> Piece {
        Piece {
            size_bytes,
            content: Content::Pattern { seed, index },
        }
    }

    fn literal(bytes: &[u8]) -> Piece {
        Piece {
            size_bytes: bytes.len() as u64,
            content: Content::of_bytes(bytes),
        }
    }

    #[test]
    fn the_pattern_is_that_of_the_formula() {
        for index in [0_u64, 1, 255, 256, 65_535, 65_536, 0x0123_4567] {
            let sum = index * 31 + (index >> 8) * 17 + (index >> 16) * 13 + 182;
            let found = Piece::bytes(&[pattern(182, index, 1)]);
            assert_eq!(found, [u8::try_from(sum % 256).unwrap()], "index {index}");
        }
    }

    #[test]
    fn a_hash_is_fnv_1a() {
        assert_eq!(fnv_bytes(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(
            Hasher::default().hash(&[literal(b"foobar")]),
            0x8594_4171_f739_67e8
        );
    }

    #[test]
    fn a_kept_prefix_gives_the_hash_of_the_bytes() {
        let mut hasher = Hasher::default();
        for size_bytes in [3 << 20, 5, (3 << 20) + 1, 1 << 20, (2 << 20) + 77] {
            let pieces = [pattern(9, 4, size_bytes), literal(b"end")];
            let bytes = Piece::bytes(&pieces);
            assert_eq!(hasher.hash(&pieces), fnv_bytes(FNV_OFFSET, &bytes));
        }
    }

    #[test]
    fn memory_that_nobody_wrote_is_zero() {
        let mut contents = Contents::default();
        contents.write(10, vec![literal(&[1, 2])]);
        assert_eq!(Piece::bytes(&contents.read(8, 6)), [0, 0, 1, 2, 0, 0]);
    }

    #[test]
    fn a_write_cuts_what_lies_across_its_ends() {
        let mut contents = Contents::default();
        contents.write(0, vec![pattern(0, 0, 100)]);
        contents.write(40, vec![literal(&[7; 20])]);
        let mut expected = Piece::bytes(&[pattern(0, 0, 100)]);
        expected[40..60].fill(7);
        assert_eq!(Piece::bytes(&contents.read(0, 100)), expected);
        assert_eq!(contents.pieces.len(), 3);
    }

    #[test]
    fn what_is_copied_in_parts_is_one_piece_again() {
        let mut contents = Contents::default();
        contents.write(1000, vec![pattern(3, 0, 300)]);
        for offset in [100, 0, 200] {
            let part = contents.read(1000 + offset, 100);
            contents.write(5000 + offset, part);
        }
        assert_eq!(contents.read(5000, 300).len(), 1);
        assert_eq!(contents.pieces.len(), 2);
    }
}
