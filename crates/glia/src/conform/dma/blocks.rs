//! The driver's own host memory: rings, markers and the fill buffer, as words that it and the
//! engine share.
//!
//! Blocks are added and never go away before the scenario ends, so that words can be lent out
//! while more are added. What has been given back lies unused.

use std::sync::OnceLock;

use glia_abi::sync::{AtomicU32, Ordering};

const WORD_BYTES: usize = 4;

// LIMIT: a fill buffer, a dummy ring, three blocks for each of 8 cores whenever it is brought up,
// two for each queue of a process; what is refused is an allocation that fails.
const BLOCKS_MAX: usize = 256;

/// All blocks of a scenario.
#[derive(Debug)]
pub struct Blocks(Box<[OnceLock<Block>]>);

/// A block.
#[derive(Debug)]
struct Block {
    at: u64,
    words: Box<[AtomicU32]>,
}

impl Block {
    fn size_bytes(&self) -> u64 {
        (self.words.len() * WORD_BYTES) as u64
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Self((0..BLOCKS_MAX).map(|_| OnceLock::new()).collect())
    }
}

impl Blocks {
    /// Adds a block of zeros at a host address. False if it overlaps another one, is not made of
    /// words, or is one too many.
    pub fn add(&self, at: u64, size_bytes: u64) -> bool {
        let Some(end) = at.checked_add(size_bytes) else {
            return false;
        };
        let overlaps = |block: &Block| at < block.at + block.size_bytes() && block.at < end;
        if self.iter().any(overlaps) || !at.is_multiple_of(WORD_BYTES as u64) {
            return false;
        }
        let Ok(size) = usize::try_from(size_bytes) else {
            return false;
        };
        let words = (0..size / WORD_BYTES).map(|_| AtomicU32::new(0)).collect();
        let mut block = Block { at, words };
        for place in &self.0 {
            match place.set(block) {
                Ok(()) => return true,
                Err(refused) => block = refused,
            }
        }
        false
    }

    /// Whether there is just this block.
    #[must_use]
    pub fn has(&self, at: u64, size_bytes: u64) -> bool {
        self.iter()
            .any(|block| block.at == at && block.size_bytes() == size_bytes)
    }

    /// The words of a range; `None` if it does not lie in one block, or is not made of words.
    #[must_use]
    pub fn words(&self, at: u64, size_bytes: u64) -> Option<&[AtomicU32]> {
        let (block, first, last) = self.find(at, size_bytes)?;
        if first % WORD_BYTES != 0 || last % WORD_BYTES != 0 {
            return None;
        }
        block.words.get(first / WORD_BYTES..last / WORD_BYTES)
    }

    /// The bytes of a range; `None` if it does not lie in one block.
    #[must_use]
    pub fn read(&self, at: u64, size_bytes: u64) -> Option<Vec<u8>> {
        let (block, first, last) = self.find(at, size_bytes)?;
        let words = block
            .words
            .get(first / WORD_BYTES..last.div_ceil(WORD_BYTES))?;
        let bytes = words
            .iter()
            .flat_map(|word| word.load(Ordering::Acquire).to_le_bytes());
        Some(bytes.skip(first % WORD_BYTES).take(last - first).collect())
    }

    /// Stores bytes; false if they do not fit one block.
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let Some((block, first, _)) = self.find(at, bytes.len() as u64) else {
            return false;
        };
        let mut word_index = first / WORD_BYTES;
        let mut in_word = first % WORD_BYTES;
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(word) = block.words.get(word_index) else {
                return false;
            };
            let count = rest.len().min(WORD_BYTES - in_word);
            let (now, later) = rest.split_at(count);
            let mut value = word.load(Ordering::Relaxed).to_le_bytes();
            value[in_word..in_word + count].copy_from_slice(now);
            word.store(u32::from_le_bytes(value), Ordering::Release);
            rest = later;
            word_index += 1;
            in_word = 0;
        }
        true
    }

    /// The block of a range, and where in it the range begins and ends.
    fn find(&self, at: u64, size_bytes: u64) -> Option<(&Block, usize, usize)> {
        self.iter().find_map(|block| {
            let first = at.checked_sub(block.at)?;
            let last = first.checked_add(size_bytes)?;
            if first >= block.size_bytes() || last > block.size_bytes() {
                return None;
            }
            Some((
                block,
                usize::try_from(first).ok()?,
                usize::try_from(last).ok()?,
            ))
        })
    }

    fn iter(&self) -> impl Iterator<Item = &Block> {
        self.0.iter().map_while(OnceLock::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_at_any_place_are_read_as_they_were_written() {
        let blocks = Blocks::default();
        assert!(blocks.add(0x1000, 64));
        assert!(blocks.write(0x1003, &[1, 2, 3, 4, 5, 6]));
        assert_eq!(blocks.read(0x1002, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 0]);
        let words = blocks.words(0x1004, 4).unwrap();
        assert_eq!(words[0].load(Ordering::Relaxed), 0x0504_0302);
    }

    #[test]
    fn a_range_that_leaves_its_block_is_none() {
        let blocks = Blocks::default();
        assert!(blocks.add(0x1000, 64) && blocks.add(0x1040, 64));
        assert!(blocks.words(0x1000, 68).is_none());
        assert!(blocks.read(0xfff, 1).is_none());
        assert!(!blocks.write(0x107f, &[0, 0]));
        assert!(blocks.words(0x1002, 4).is_none());
    }

    #[test]
    fn blocks_do_not_overlap_and_come_to_an_end() {
        let blocks = Blocks::default();
        assert!(blocks.add(0x1000, 64));
        assert!(!blocks.add(0x1020, 64));
        let added = (0..300).filter(|number| blocks.add(0x2000 + number * 64, 64));
        assert_eq!(added.count(), BLOCKS_MAX - 1);
    }
}
