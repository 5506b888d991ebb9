//! The reference's loop over a bitmap: obviously right, linear in the size of the arena.
//!
//! One bit a unit, set when the unit is taken. Every request walks the loop of the contract (see
//! [`Arena::alloc_aligned`]) from unit 0: next free unit, round up, first taken unit in the wanted
//! run, start again behind it. Nothing is remembered between requests, so there is nothing that
//! could be stale: that makes it the model in the tests.
//!
//! As the peer in benches it is the *fast coding* of that loop: the search for the next free unit
//! passes full words eight at a time (about 0.1 ns a word, where the reference's word by word takes
//! 0.3). A ratio against it is thus the stricter one behind long taken stretches; where the loop
//! steps over many small holes the coding makes no difference.
//!
//! It does not merge or order anything: extents are read out of the bits when asked for.

use std::num::NonZeroU32;

use super::{Arena, Extent, FreeError};

const WORD_BITS: u64 = 64;

/// How many words the search for a free unit passes in one step while all of them are full.
const STRIDE: usize = 8;

/// The model: a bitmap searched from its first bit each time.
#[derive(Debug, Clone)]
pub struct NaiveBitmap {
    base_unit: u64,
    len_units: u32,
    free_units: u32,
    /// Bit `i % 64` of word `i / 64` is set when unit `i` is taken. Bits past the last unit are
    /// always set.
    words: Vec<u64>,
}

impl NaiveBitmap {
    /// The loop of the contract; `round_up` is the alignment's arithmetic, which never answers less
    /// than it is given.
    fn search(&self, units: u32, round_up: impl Fn(u64) -> u64) -> Option<u32> {
        let len_units = u64::from(self.len_units);
        let mut start = 0;
        loop {
            let free = self.next_free(start);
            if free == len_units {
                return None;
            }
            let at = round_up(free);
            let end = at + u64::from(units);
            if end > len_units {
                return None;
            }
            let taken = self.next_taken(at, end);
            if taken == end {
                return u32::try_from(at).ok();
            }
            start = taken + 1;
        }
    }

    /// The first free unit at or after `from`; the arena's end if there is none.
    fn next_free(&self, from: u64) -> u64 {
        let len_units = u64::from(self.len_units);
        if from >= len_units {
            return len_units;
        }
        let (word, bit) = split(from);
        let free_bits = !self.words[word] & (u64::MAX << bit);
        if free_bits != 0 {
            return unit(word, free_bits);
        }
        let word = self.next_word_with_free(word + 1);
        self.words
            .get(word)
            .map_or(len_units, |&bits| unit(word, !bits))
    }

    /// The first word at or after `word` that is not full; the number of words if there is none.
    fn next_word_with_free(&self, word: usize) -> usize {
        let rest = &self.words[word..];
        // Where holes are frequent, the very next word has one.
        if rest.first().is_some_and(|&bits| bits != u64::MAX) {
            return word;
        }
        let full = |stride: &&[u64; STRIDE]| {
            stride.iter().fold(u64::MAX, |all, bits| all & bits) == u64::MAX
        };
        let strides = rest.as_chunks::<STRIDE>().0.iter().take_while(full).count();
        let tail = &rest[strides * STRIDE..];
        let words = tail.iter().take_while(|&&bits| bits == u64::MAX).count();
        word + strides * STRIDE + words
    }

    /// The first taken unit in `[from, to)`, which lies inside the arena; `to` if there is none.
    fn next_taken(&self, from: u64, to: u64) -> u64 {
        let (first, bit) = split(from);
        let (last, _) = split(to - 1);
        let taken_bits = self.words[first] & (u64::MAX << bit);
        if taken_bits != 0 {
            return unit(first, taken_bits).min(to);
        }
        let rest = self.words.get(first + 1..=last).unwrap_or_default();
        let taken = rest.iter().zip(first + 1..).find(|&(&bits, _)| bits != 0);
        taken.map_or(to, |(&bits, word)| unit(word, bits).min(to))
    }

    /// Marks a run that lies inside the arena. The caller has made sure that every unit of it is in
    /// the other state.
    fn mark(&mut self, at: u32, units: u32, taken: bool) {
        let (mut from, end) = (u64::from(at), u64::from(at) + u64::from(units));
        while from < end {
            let (word, bit) = split(from);
            let count = (WORD_BITS - bit).min(end - from);
            let bits = (u64::MAX >> (WORD_BITS - count)) << bit;
            if taken {
                self.words[word] |= bits;
            } else {
                self.words[word] &= !bits;
            }
            from += count;
        }
        if taken {
            self.free_units -= units;
        } else {
            self.free_units += units;
        }
    }

    fn refuses(&self, units: u32) -> bool {
        units == 0 || units > self.len_units
    }

    fn extents(&self) -> Extents<'_> {
        Extents {
            arena: self,
            from: 0,
        }
    }
}

/// Word and bit of a unit.
fn split(unit: u64) -> (usize, u64) {
    // CAST: units are numbers below 2^32 throughout.
    let word = (unit / WORD_BITS) as usize;
    (word, unit % WORD_BITS)
}

/// The unit of the lowest bit set.
fn unit(word: usize, bits: u64) -> u64 {
    word as u64 * WORD_BITS + u64::from(bits.trailing_zeros())
}

/// Free extents in address order, read from the bits.
struct Extents<'a> {
    arena: &'a NaiveBitmap,
    from: u64,
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let len_units = u64::from(self.arena.len_units);
        let start = self.arena.next_free(self.from);
        if start == len_units {
            return None;
        }
        let end = self.arena.next_taken(start, len_units);
        self.from = end;
        let len = u32::try_from(end - start).ok()?;
        Some(Extent {
            start: u32::try_from(start).ok()?,
            len,
        })
    }
}

impl Arena for NaiveBitmap {
    const NAME: &'static str = "naive bitmap";

    fn new(base_unit: u64, len_units: u32) -> Self {
        let mut words = vec![0; len_units.div_ceil(u64::BITS) as usize];
        let (last, used_bits) = split(u64::from(len_units));
        if let Some(last) = words.get_mut(last) {
            *last = u64::MAX << used_bits;
        }
        Self {
            base_unit,
            len_units,
            free_units: len_units,
            words,
        }
    }

    fn len_units(&self) -> u32 {
        self.len_units
    }

    fn free_units(&self) -> u32 {
        self.free_units
    }

    fn alloc(&mut self, units: u32) -> Option<u32> {
        if self.refuses(units) {
            return None;
        }
        let at = self.search(units, |free| free)?;
        self.mark(at, units, true);
        Some(at)
    }

    fn alloc_aligned(&mut self, units: u32, align_units: NonZeroU32) -> Option<u32> {
        if self.refuses(units) {
            return None;
        }
        let mask = u64::from(align_units.get() - 1);
        let off = self.base_unit & mask;
        // `(x + mask) & !mask` is never below `x`, whatever the mask, so taking `off` away again
        // cannot wrap; and the sum of three numbers below 2^32 fits easily.
        let at = self.search(units, |free| ((free + off + mask) & !mask) - off)?;
        self.mark(at, units, true);
        Some(at)
    }

    fn alloc_at(&mut self, at: u32, units: u32) -> bool {
        let end = u64::from(at) + u64::from(units);
        if self.refuses(units) || end > u64::from(self.len_units) {
            return false;
        }
        if self.next_taken(u64::from(at), end) < end {
            return false;
        }
        self.mark(at, units, true);
        true
    }

    fn free(&mut self, at: u32, units: u32) -> Result<(), FreeError> {
        let len_units = self.len_units;
        let end = u64::from(at) + u64::from(units);
        if units == 0 || end > u64::from(len_units) {
            return Err(FreeError::OutOfRange {
                start: at,
                len: units,
                len_units,
            });
        }
        if self.next_free(u64::from(at)) < end {
            return Err(FreeError::NotTaken {
                start: at,
                len: units,
            });
        }
        self.mark(at, units, false);
        Ok(())
    }

    fn largest_free(&self) -> u32 {
        self.extents().map(|extent| extent.len).max().unwrap_or(0)
    }

    fn largest_aligned_fit(&self, align_units: NonZeroU32) -> u32 {
        let mask = u64::from(align_units.get() - 1);
        let off = self.base_unit & mask;
        // The units that the arithmetic can answer are those it maps to themselves: no bit of the
        // mask is set in `unit + off`.
        let answers = |&unit: &u32| (u64::from(unit) + off) & mask == 0;
        self.extents()
            .filter_map(|extent| Some(extent.end() - (extent.start..extent.end()).find(answers)?))
            .max()
            .unwrap_or(0)
    }

    fn free_extents(&self) -> Box<dyn Iterator<Item = Extent> + '_> {
        Box::new(self.extents())
    }

    fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
