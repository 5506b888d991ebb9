//! Mappings and buffers: words that some share.

use std::sync::Arc;

use glia_abi::addr::{UserAddr, access_fits};
use glia_abi::conformance::mapping::{check, check_buffer, check_shared};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::transport::{Mapping, MappingError, UserBuffer};

use crate::breaks;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    LosesLastByte,
    WritesOneMore,
    EndsEarly,
    OnePageForAll,
    WordsFewer,
    WordsOfBytesHighFirst,
    WordsOfACopy,
    WordsAnywhere,
    ReadsBeyond,
    RefusedReadClobbers,
    WritesBeyond,
    RefusedWriteWrites,
    RefusalNamesNothing,
    RefusesNothingAtTheEnd,
    WritesReadOnly,
    LendsReadOnlyWords,
    RefusesButWrites,
    Misplaced,
    Short,
    Dirty,
    BufferIsReadOnly,
    Moves,
}

pub(crate) struct FakeMapping {
    flaw: Flaw,
    words: Arc<Vec<AtomicU32>>,
    copy: Vec<AtomicU32>,
    writable: bool,
    address: u64,
    asked: AtomicU32,
}

impl FakeMapping {
    pub(crate) fn new(flaw: Flaw, size_bytes: u64, address: u64) -> Self {
        let fresh = match flaw {
            Flaw::Dirty => 1 << 31,
            _ => 0,
        };
        let words = |value| (0..size_bytes / 4).map(move |_| AtomicU32::new(value));
        Self {
            flaw,
            words: Arc::new(words(fresh).collect()),
            copy: words(0).collect(),
            writable: flaw != Flaw::BufferIsReadOnly,
            address,
            asked: AtomicU32::new(0),
        }
    }

    fn read_only(flaw: Flaw) -> Self {
        Self {
            writable: false,
            ..Self::new(flaw, 8192, 0)
        }
    }

    /// Another mapping of the same memory.
    fn again(&self) -> Self {
        Self {
            words: Arc::clone(&self.words),
            ..Self::new(self.flaw, self.size_bytes(), self.address)
        }
    }

    fn fits(&self, offset_bytes: u64, size: u64) -> Result<(), MappingError> {
        let limit_bytes = self.size_bytes();
        let size_bytes = match self.flaw {
            Flaw::RefusalNamesNothing => 0,
            _ => size,
        };
        let at_end = self.flaw == Flaw::RefusesNothingAtTheEnd && offset_bytes == limit_bytes;
        let last = self.flaw == Flaw::EndsEarly && offset_bytes + 1 == limit_bytes;
        match access_fits(offset_bytes, size, limit_bytes) && !at_end && !last {
            true => Ok(()),
            false => Err(MappingError::OutOfBounds {
                offset_bytes,
                size_bytes,
                limit_bytes,
            }),
        }
    }

    /// Where a byte is kept.
    fn place(&self, at: u64) -> u64 {
        match self.flaw {
            Flaw::OnePageForAll => at % 4096,
            _ => at,
        }
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        for (at, &byte) in (offset..).zip(bytes) {
            let at = self.place(at);
            if let Some(word) = self.words.get((at / 4) as usize) {
                let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
                bytes[(at % 4) as usize] = byte;
                word.store(u32::from_le_bytes(bytes), Ordering::Relaxed);
            }
        }
    }
}

impl Mapping for FakeMapping {
    fn size_bytes(&self) -> u64 {
        4 * self.words.len() as u64
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MappingError> {
        match self.fits(offset_bytes, into.len() as u64) {
            Err(_) if self.flaw == Flaw::ReadsBeyond => return Ok(()),
            Err(refusal) => {
                if self.flaw == Flaw::RefusedReadClobbers {
                    into.fill(0);
                }
                return Err(refusal);
            }
            Ok(()) => {}
        }
        for (at, byte) in (offset_bytes..).zip(&mut *into) {
            let at = self.place(at);
            let word = self.words[(at / 4) as usize].load(Ordering::Relaxed);
            *byte = word.to_le_bytes()[(at % 4) as usize];
        }
        if self.flaw == Flaw::LosesLastByte
            && let Some(last) = into.last_mut()
        {
            *last = 0;
        }
        Ok(())
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError> {
        if !self.writable && self.flaw != Flaw::WritesReadOnly {
            if self.flaw == Flaw::RefusesButWrites {
                self.store(offset_bytes, bytes);
            }
            return Err(MappingError::ReadOnly);
        }
        match self.fits(offset_bytes, bytes.len() as u64) {
            Err(_) if self.flaw == Flaw::WritesBeyond => return Ok(()),
            Err(refusal) => {
                if self.flaw == Flaw::RefusedWriteWrites && offset_bytes < self.size_bytes() {
                    self.store(offset_bytes, bytes);
                }
                return Err(refusal);
            }
            Ok(()) => {}
        }
        self.store(offset_bytes, bytes);
        if self.flaw == Flaw::WritesOneMore {
            self.store(offset_bytes + bytes.len() as u64, &[0x99]);
        }
        Ok(())
    }

    fn words(&self, offset_bytes: u64, size_bytes: u64) -> Result<&[AtomicU32], MappingError> {
        if !self.writable && self.flaw != Flaw::LendsReadOnlyWords {
            return Err(MappingError::ReadOnly);
        }
        let aligned = offset_bytes.is_multiple_of(4) && size_bytes.is_multiple_of(4);
        if !aligned && self.flaw != Flaw::WordsAnywhere {
            return Err(MappingError::OutOfBounds {
                offset_bytes,
                size_bytes,
                limit_bytes: self.size_bytes(),
            });
        }
        self.fits(offset_bytes, size_bytes)?;
        let first = (offset_bytes / 4) as usize;
        let end = first + (size_bytes / 4) as usize;
        for index in first..end {
            let word = self.words[index].load(Ordering::Relaxed);
            let shown = match self.flaw {
                Flaw::WordsOfBytesHighFirst => word.swap_bytes(),
                _ => word,
            };
            self.copy[index].store(shown, Ordering::Relaxed);
        }
        Ok(match self.flaw {
            Flaw::WordsFewer => &self.words[first..end - 1],
            Flaw::WordsOfACopy | Flaw::WordsOfBytesHighFirst => &self.copy[first..end],
            _ => &self.words[first..end],
        })
    }
}

impl UserBuffer for FakeMapping {
    fn address(&self) -> UserAddr {
        let asked = u64::from(self.asked.fetch_add(1, Ordering::Relaxed));
        UserAddr::new(match self.flaw {
            Flaw::Misplaced => self.address + 64,
            Flaw::Moves => self.address + 4096 * asked,
            _ => self.address,
        })
    }
}

const ADDRESS: u64 = 0x7000_0000;

#[test]
fn mappings_that_keep_the_rules_pass() {
    let mapping = FakeMapping::new(Flaw::None, 8192, ADDRESS);
    check_buffer(&mapping, 8192).unwrap();
    check(&mapping).unwrap();
    check_shared(&mapping, &mapping.again()).unwrap();
    check(&FakeMapping::read_only(Flaw::None)).unwrap();
}

#[test]
fn mutant_mappings_are_caught() {
    let bounds = "an access that leaves the mapping is refused with its numbers";
    let mutants = [
        (Flaw::LosesLastByte, "what was written is read back"),
        (Flaw::WritesOneMore, "a write changes its range alone"),
        (Flaw::EndsEarly, "a range within the mapping is accessible"),
        (Flaw::OnePageForAll, "every page is memory of its own"),
        (Flaw::WordsFewer, "a range has a word for each four bytes"),
        (
            Flaw::WordsOfBytesHighFirst,
            "a word is four bytes of memory, the lowest first",
        ),
        (Flaw::WordsOfACopy, "a store into a word is seen by a read"),
        (
            Flaw::WordsAnywhere,
            "words that leave the mapping, or are not aligned, are refused with their numbers",
        ),
        (Flaw::ReadsBeyond, bounds),
        (Flaw::WritesBeyond, bounds),
        (Flaw::RefusalNamesNothing, bounds),
        (
            Flaw::RefusesNothingAtTheEnd,
            "no bytes at the end are within the mapping",
        ),
        (Flaw::RefusedReadClobbers, "a refused read copies nothing"),
        (Flaw::RefusedWriteWrites, "a refused write copies nothing"),
    ];
    for (flaw, rule) in mutants {
        breaks(check(&FakeMapping::new(flaw, 8192, ADDRESS)), rule, &flaw);
    }
}

#[test]
fn mutant_read_only_mappings_are_caught() {
    let mutants = [
        (
            Flaw::WritesReadOnly,
            "a read-only mapping cannot be written",
        ),
        (
            Flaw::LendsReadOnlyWords,
            "a read-only mapping lends no words",
        ),
        (Flaw::RefusesButWrites, "a refused write copies nothing"),
    ];
    for (flaw, rule) in mutants {
        breaks(check(&FakeMapping::read_only(flaw)), rule, &flaw);
    }
}

#[test]
fn mutant_buffers_are_caught() {
    let mutants = [
        (Flaw::Misplaced, "a buffer is page-aligned"),
        (Flaw::Dirty, "a fresh buffer is zeroed"),
        (Flaw::BufferIsReadOnly, "a buffer is writable"),
        (Flaw::Moves, "a buffer stays where it is"),
    ];
    for (flaw, rule) in mutants {
        let buffer = FakeMapping::new(flaw, 8192, ADDRESS);
        breaks(check_buffer(&buffer, 8192), rule, &flaw);
    }
    let short = FakeMapping::new(Flaw::Short, 4096, ADDRESS);
    let rule = "a buffer has at least the bytes that were asked for";
    breaks(check_buffer(&short, 8192), rule, &Flaw::Short);
}

#[test]
fn mappings_of_other_memory_are_caught() {
    let [first, second] = [(); 2].map(|()| FakeMapping::new(Flaw::None, 8192, ADDRESS));
    let rule = "mappings of the same memory show the same bytes";
    breaks(check_shared(&first, &second), rule, &"two memories");
}
