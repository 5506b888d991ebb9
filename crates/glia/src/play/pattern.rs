//! Seeded patterns: bytes that can be written anywhere and verified anywhere, without keeping them.
//!
//! The byte at an offset of an object depends on the seed and the offset alone, so that any part of
//! what was written can be checked by itself, and a part that landed at the wrong place differs.

use std::fmt;

/// Bytes that one step of the generator makes.
const WORD_BYTES: u64 = 8;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// The pattern of a seed; the byte at an offset is that of the pattern at `offset + shift`,
    /// with wrap-around. (Copies, and views that begin within their storage, shift it.)
    Seeded {
        /// Which pattern.
        seed: u64,
        /// How far it is shifted.
        shift: u64,
    },
    /// One value everywhere.
    Filled(u8),
}

impl Pattern {
    /// The pattern of a seed, from its first byte.
    pub(super) const fn seeded(seed: u64) -> Self {
        Self::Seeded { seed, shift: 0 }
    }

    /// The same bytes, counted from another place: what was at `from` is at `to`.
    pub(super) const fn moved(self, from: u64, to: u64) -> Self {
        match self {
            Self::Seeded { seed, shift } => Self::Seeded {
                seed,
                shift: shift.wrapping_add(from).wrapping_sub(to),
            },
            Self::Filled(_) => self,
        }
    }

    /// Fills `into` with the bytes from `offset_bytes` on.
    pub(super) fn fill(self, offset_bytes: u64, into: &mut [u8]) {
        match self {
            Self::Seeded { seed, shift } => fill(seed, offset_bytes.wrapping_add(shift), into),
            Self::Filled(value) => into.fill(value),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeded { seed, .. } => write!(f, "seed {seed}"),
            Self::Filled(_) => f.write_str("memset"),
        }
    }
}

/// Bytes 8 `index` to 8 `index` + 7 of the pattern of a seed: the finalizer of `SplitMix64`.
fn word(seed: u64, index: u64) -> [u8; 8] {
    let mut word = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).to_le_bytes()
}

fn fill(seed: u64, offset_bytes: u64, into: &mut [u8]) {
    let mut index = offset_bytes / WORD_BYTES;
    // CAST: below 8.
    let skip = (offset_bytes % WORD_BYTES) as usize;
    let mut rest = into;
    if skip != 0 {
        let word = word(seed, index);
        let count = rest.len().min(word.len() - skip);
        let (head, tail) = rest.split_at_mut(count);
        head.copy_from_slice(&word[skip..skip + count]);
        rest = tail;
        index = index.wrapping_add(1);
    }
    let mut words = rest.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(seed, index));
        index = index.wrapping_add(1);
    }
    let tail = words.into_remainder();
    let word = word(seed, index);
    tail.copy_from_slice(&word[..tail.len()]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_part_is_the_same_part_of_the_whole(seed: u64, offset in 0..200_usize, size in 0..100_usize) {
            let mut whole = [0; 300];
            Pattern::seeded(seed).fill(0, &mut whole);
            let mut part = vec![0; size];
            Pattern::seeded(seed).fill(offset as u64, &mut part);
            prop_assert_eq!(&part[..], &whole[offset..offset + size]);
        }
    }

    #[test]
    fn seeds_and_places_differ() {
        let bytes = |seed, offset| {
            let mut bytes = [0; 16];
            Pattern::seeded(seed).fill(offset, &mut bytes);
            bytes
        };
        assert_ne!(bytes(1, 0), bytes(2, 0));
        assert_ne!(bytes(1, 0), bytes(1, 65_536));
        assert_eq!(
            bytes(u64::MAX, u64::MAX - 20),
            bytes(u64::MAX, u64::MAX - 20)
        );
    }
}
