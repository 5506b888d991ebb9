//! Open files: what a [`FileId`] stands for.
//!
//! Every call into the driver names a file, so looking one up must cost next to nothing and must
//! not make callers of different devices meet on a lock. A file is two facts, its device and its
//! mode, and they fit into one atomic word together with the *generation* of their slot:
//!
//! ```text
//!   FileId   generation of the slot : 32 | slot : 32
//!   word     generation of the slot : 32 | device : 29 | mode : 2 | open : 1
//! ```
//!
//! A look-up is one load and one comparison. An id whose file was closed, or that was never given
//! out, meets another generation and is answered `None`; a slot that has used up its generations is
//! not used again, so an id never comes true twice. Slots lie in pages that are made on demand and
//! never moved. Opening and closing take a lock.
//!
//! What this does not do: count openers or know processes. A file's descriptors are the process's
//! business, who is attached is the [device memory's](crate::process).

use std::sync::{Mutex, OnceLock, PoisonError};

use glia_abi::handle::FileId;
use glia_abi::transport::OpenMode;

use crate::sync::{AtomicU64, Ordering};

/// Files of a page.
const PAGE_FILES: u32 = 256;
/// Pages that can exist.
const PAGES: u32 = 256;
/// Files that can be open at the same time.
pub(crate) const FILES_MAX: u32 = PAGE_FILES * PAGES;

type Page = [AtomicU64; PAGE_FILES as usize];

/// An open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct File {
    /// Which of the driver's devices, by its place among them.
    pub(crate) device: u32,
    pub(crate) mode: OpenMode,
}

/// All open files of a driver.
pub(crate) struct Files {
    pages: [OnceLock<Box<Page>>; PAGES as usize],
    slots: Mutex<FreeSlots>,
}

struct FreeSlots {
    closed: Vec<u32>,
    /// First slot never used.
    frontier: u32,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            pages: [const { OnceLock::new() }; PAGES as usize],
            slots: Mutex::new(FreeSlots {
                closed: Vec::new(),
                frontier: 0,
            }),
        }
    }

    /// A new id for a file; `None` if [`FILES_MAX`] are open.
    pub(crate) fn open(&self, file: File) -> Option<FileId> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match slots.closed.pop() {
            Some(number) => number,
            None if slots.frontier < FILES_MAX => {
                slots.frontier += 1;
                slots.frontier - 1
            }
            None => return None,
        };
        let page = self.pages.get((number / PAGE_FILES) as usize)?;
        let page = page.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))));
        let word = &page[(number % PAGE_FILES) as usize];
        let generation = (word.load(Ordering::Relaxed) >> 32) + 1;
        // ORDER: the word says everything, and its id reaches other threads by their own ways.
        word.store((generation << 32) | file.to_bits(), Ordering::Relaxed);
        Some(FileId((generation << 32) | u64::from(number)))
    }

    /// The file that is open under this id.
    pub(crate) fn get(&self, id: FileId) -> Option<File> {
        let word = self.word(id)?.load(Ordering::Relaxed);
        (word >> 32 == id.0 >> 32)
            .then(|| File::from_bits(word))
            .flatten()
    }

    /// Ends the file: which one it was.
    pub(crate) fn close(&self, id: FileId) -> Option<File> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.get(id)?;
        let generation = id.0 >> 32;
        self.word(id)?.store(generation << 32, Ordering::Relaxed);
        if generation < u64::from(u32::MAX) {
            slots.closed.push(slot(id));
        }
        Some(file)
    }

    fn word(&self, id: FileId) -> Option<&AtomicU64> {
        let number = slot(id);
        let page = self.pages.get((number / PAGE_FILES) as usize)?.get()?;
        page.get((number % PAGE_FILES) as usize)
    }
}

/// The slot that an id names.
fn slot(id: FileId) -> u32 {
    // CAST: masked to 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    let number = (id.0 & u64::from(u32::MAX)) as u32;
    number
}

impl File {
    const OPEN: u64 = 1;

    /// The low half of a word.
    fn to_bits(self) -> u64 {
        let mode = match self.mode {
            OpenMode::ReadOnly => 0,
            OpenMode::WriteOnly => 1,
            OpenMode::ReadWrite => 2,
        };
        (u64::from(self.device) << 3) | (mode << 1) | Self::OPEN
    }

    /// The inverse of [`to_bits`](Self::to_bits), whatever the high half; `None` if no file is
    /// open.
    fn from_bits(word: u64) -> Option<Self> {
        if word & Self::OPEN == 0 {
            return None;
        }
        let mode = match (word >> 1) & 3 {
            0 => OpenMode::ReadOnly,
            1 => OpenMode::WriteOnly,
            _ => OpenMode::ReadWrite,
        };
        // CAST: 29 bits.
        let device = ((word >> 3) & 0x1fff_ffff) as u32;
        Some(Self { device, mode })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn file(device: u32, mode: OpenMode) -> File {
        File { device, mode }
    }

    #[test]
    fn a_file_is_found_as_it_was_opened() {
        let files = Files::new();
        let modes = [OpenMode::ReadOnly, OpenMode::WriteOnly, OpenMode::ReadWrite];
        for mode in modes {
            for device in [0, 63, (1 << 29) - 1] {
                let id = files.open(file(device, mode)).unwrap();
                assert_eq!(files.get(id), Some(file(device, mode)));
            }
        }
    }

    #[test]
    fn an_id_that_was_closed_never_comes_true_again() {
        let files = Files::new();
        let first = files.open(file(1, OpenMode::ReadWrite)).unwrap();
        assert_eq!(files.close(first), Some(file(1, OpenMode::ReadWrite)));
        let second = files.open(file(2, OpenMode::ReadWrite)).unwrap();
        assert_eq!(slot(first), slot(second));
        assert_eq!((files.get(first), files.close(first)), (None, None));
        assert_eq!(files.get(second), Some(file(2, OpenMode::ReadWrite)));
    }

    #[test]
    fn a_slot_without_a_generation_left_is_not_used_again() {
        let files = Files::new();
        let first = files.open(file(0, OpenMode::ReadWrite)).unwrap();
        files.close(first).unwrap();
        let word = files.word(first).unwrap();
        word.store(u64::from(u32::MAX - 1) << 32, Ordering::Relaxed);
        let last = files.open(file(0, OpenMode::ReadWrite)).unwrap();
        assert_eq!(last.0 >> 32, u64::from(u32::MAX));
        files.close(last).unwrap();
        let next = files.open(file(0, OpenMode::ReadWrite)).unwrap();
        assert_ne!(slot(next), slot(last));
    }

    #[test]
    fn ids_of_nobody_are_answered_none() {
        let files = Files::new();
        files.open(file(0, OpenMode::ReadWrite)).unwrap();
        for id in [0, 1, 1 << 32 | 1, 2 << 32, u64::MAX, 1 << 32 | 0xffff_ffff] {
            assert_eq!(files.get(FileId(id)), None, "{id:#x}");
        }
    }

    #[test]
    fn when_all_slots_are_open_no_more_can_be() {
        let files = Files::new();
        let ids: Vec<_> = (0..FILES_MAX)
            .map(|_| files.open(file(0, OpenMode::ReadOnly)).unwrap())
            .collect();
        assert_eq!(files.open(file(0, OpenMode::ReadOnly)), None);
        files.close(ids[70]).unwrap();
        assert!(files.open(file(0, OpenMode::ReadOnly)).is_some());
    }
}
