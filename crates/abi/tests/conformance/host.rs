//! A machine's host memory: an arena of words, and pins above it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use glia_abi::addr::{HostPa, Span, access_fits};
use glia_abi::conformance::{dma_memory, host_memory, machine_memory};
use glia_abi::handle::{DeviceId, PinId};
use glia_abi::port::{BadHostRange, DmaMemory, HostMemory, MachineMemory};
use glia_abi::sync::{AtomicU32, Ordering};

use crate::breaks;

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000;
const SIZE: u64 = 4 << 20;
const DEVICE: DeviceId = DeviceId::new(0);

/// How a mutant breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    GrantsNothing,
    GrantsTooMuch,
    Misaligned,
    High,
    SharesSinglePages,
    ArenaPerThread,
    OneThreadOnly,
    NeverTakesBack,
    TakesBackAPage,
    Refuses,
    LosesLastByte,
    WritesOneMore,
    FillsOneLess,
    FillsOneMore,
    WordsFewer,
    WordsOfBytesHighFirst,
    WordsOfACopy,
    WordsAnywhere,
    NoWordsRefused,
    TakesAnyAddress,
    RefusedReadClobbers,
    RefusedFillFills,
    RefusalNamesNothing,
    WordsOfAPageAtMost,
    FreeClearsNeighbour,
    UnpinForgets,
    UnpinLeavesReads,
}

/// User pages that a device reaches.
pub(crate) struct Pin {
    pub(crate) spans: Vec<Span<HostPa>>,
    /// Where the first span's first byte is in the bytes.
    pub(crate) offset: usize,
    pub(crate) bytes: Arc<Mutex<Vec<u8>>>,
    pub(crate) write: bool,
}

pub(crate) struct FakeMachine {
    flaw: Flaw,
    words: Vec<AtomicU32>,
    /// What a mutant shows instead.
    copy: Vec<AtomicU32>,
    /// Start and size of what is taken; by thread for a mutant.
    taken: Mutex<BTreeMap<(Option<ThreadIdKey>, u64), u64>>,
    pins: Mutex<BTreeMap<u64, Pin>>,
}

/// A thread, in some order.
type ThreadIdKey = String;

impl FakeMachine {
    pub(crate) fn new(flaw: Flaw) -> Self {
        let words = || (0..SIZE / 4).map(|_| AtomicU32::new(0)).collect();
        Self {
            flaw,
            words: words(),
            copy: words(),
            taken: Mutex::default(),
            pins: Mutex::default(),
        }
    }

    pub(crate) fn pins(&self) -> MutexGuard<'_, BTreeMap<u64, Pin>> {
        self.pins.lock().unwrap()
    }

    /// Where a range begins in the arena.
    fn offset(&self, at: HostPa, size_bytes: u64) -> Result<u64, BadHostRange> {
        let refusal = match self.flaw {
            Flaw::RefusalNamesNothing => BadHostRange { at, size_bytes: 0 },
            _ => BadHostRange { at, size_bytes },
        };
        let offset = at.get().checked_sub(BASE).ok_or(refusal)?;
        match access_fits(offset, size_bytes, SIZE) {
            true => Ok(offset),
            false => Err(refusal),
        }
    }

    fn get(&self, offset: u64) -> u8 {
        let word = self.words[(offset / 4) as usize].load(Ordering::Relaxed);
        word.to_le_bytes()[(offset % 4) as usize]
    }

    fn set(&self, offset: u64, value: u8) {
        let word = &self.words[(offset / 4) as usize];
        let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
        bytes[(offset % 4) as usize] = value;
        word.store(u32::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

impl HostMemory for FakeMachine {
    fn alloc(&self, _device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        let known = std::thread::current().name().is_some();
        assert!(
            known || self.flaw != Flaw::OneThreadOnly,
            "asked by a thread without a name"
        );
        let thread = (self.flaw == Flaw::ArenaPerThread).then(thread_key);
        let mut taken = self.taken.lock().unwrap();
        match self.flaw {
            Flaw::Refuses => return None,
            Flaw::GrantsNothing if size_bytes == 0 => return Some(HostPa::new(BASE)),
            Flaw::GrantsTooMuch if size_bytes > SIZE => return Some(HostPa::new(BASE)),
            Flaw::SharesSinglePages if size_bytes == PAGE => return Some(HostPa::new(BASE)),
            _ if size_bytes == 0 => return None,
            _ => {}
        }
        // First fit.
        let mut at = BASE;
        for ((owner, start), &size) in taken.iter() {
            if *owner == thread {
                if at.checked_add(size_bytes)? <= *start {
                    break;
                }
                at = start + size;
            }
        }
        if at.checked_add(size_bytes)? > BASE + SIZE {
            return None;
        }
        taken.insert((thread, at), size_bytes);
        Some(HostPa::new(match self.flaw {
            Flaw::Misaligned => at + 64,
            Flaw::High => at + (1 << 32),
            _ => at,
        }))
    }

    fn free(&self, _device: DeviceId, at: HostPa, size_bytes: u64) {
        let mut taken = self.taken.lock().unwrap();
        match self.flaw {
            Flaw::NeverTakesBack => return,
            Flaw::TakesBackAPage if size_bytes > PAGE => {
                taken.insert((None, at.get() + PAGE), size_bytes - PAGE);
            }
            Flaw::FreeClearsNeighbour => {
                let end = at.get() + size_bytes - BASE;
                (end..end + 64).for_each(|offset| self.set(offset, 0));
            }
            _ => {}
        }
        taken.retain(|(_, start), _| *start != at.get());
    }
}

fn thread_key() -> ThreadIdKey {
    let id: ThreadId = std::thread::current().id();
    format!("{id:?}")
}

impl DmaMemory for FakeMachine {
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange> {
        let offset = self.offset(at, size_bytes)?;
        let aligned = offset.is_multiple_of(4) && size_bytes.is_multiple_of(4);
        let none = self.flaw == Flaw::NoWordsRefused && size_bytes == 0;
        let too_long = self.flaw == Flaw::WordsOfAPageAtMost && size_bytes > PAGE;
        if (!aligned && self.flaw != Flaw::WordsAnywhere) || too_long || none {
            return Err(BadHostRange { at, size_bytes });
        }
        let first = (offset / 4) as usize;
        let end = first + (size_bytes / 4) as usize;
        let range = match self.flaw {
            Flaw::WordsFewer if end > first => first..end - 1,
            _ => first..end,
        };
        for index in range.clone() {
            let word = self.words[index].load(Ordering::Relaxed);
            let shown = match self.flaw {
                Flaw::WordsOfBytesHighFirst => word.swap_bytes(),
                _ => word,
            };
            self.copy[index].store(shown, Ordering::Relaxed);
        }
        Ok(match self.flaw {
            Flaw::WordsOfACopy | Flaw::WordsOfBytesHighFirst => &self.copy[range],
            _ => &self.words[range],
        })
    }

    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange> {
        let offset = match self.offset(at, into.len() as u64) {
            Err(_) if self.flaw == Flaw::TakesAnyAddress => return Ok(()),
            Err(refusal) => {
                if self.flaw == Flaw::RefusedReadClobbers {
                    into.fill(0);
                }
                return Err(refusal);
            }
            Ok(offset) => offset,
        };
        (offset..)
            .zip(&mut *into)
            .for_each(|(at, byte)| *byte = self.get(at));
        if self.flaw == Flaw::LosesLastByte
            && let Some(last) = into.last_mut()
        {
            *last = 0;
        }
        Ok(())
    }

    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange> {
        let offset = self.offset(at, bytes.len() as u64)?;
        (offset..)
            .zip(bytes)
            .for_each(|(at, &byte)| self.set(at, byte));
        if self.flaw == Flaw::WritesOneMore {
            self.set(offset + bytes.len() as u64, 0x99);
        }
        Ok(())
    }

    fn fill(&self, at: HostPa, size_bytes: u64, value: u8) -> Result<(), BadHostRange> {
        let offset = self.offset(at, size_bytes).inspect_err(|_| {
            if self.flaw == Flaw::RefusedFillFills {
                self.set(at.get() - BASE, value);
            }
        })?;
        let end = match self.flaw {
            Flaw::FillsOneLess if size_bytes > 0 => offset + size_bytes - 1,
            Flaw::FillsOneMore => offset + size_bytes + 1,
            _ => offset + size_bytes,
        };
        (offset..end).for_each(|at| self.set(at, value));
        Ok(())
    }
}

impl MachineMemory for FakeMachine {
    fn unpin(&self, pin: PinId) {
        let mut pins = self.pins();
        match self.flaw {
            Flaw::UnpinForgets => {}
            Flaw::UnpinLeavesReads => {
                pins.entry(pin.0).and_modify(|pin| pin.write = false);
            }
            _ => {
                pins.remove(&pin.0);
            }
        }
    }
}

#[test]
fn a_machine_that_keeps_the_rules_passes() {
    let machine = FakeMachine::new(Flaw::None);
    machine_memory::check(&machine, DEVICE).unwrap();
    assert!(machine.taken.lock().unwrap().is_empty(), "all given back");
    machine_memory::check(&machine, DEVICE).unwrap();
}

#[test]
fn mutants_of_the_allocator_are_caught() {
    let mutants = [
        (Flaw::GrantsNothing, "a size of 0 cannot be had"),
        (
            Flaw::GrantsTooMuch,
            "what does not fit below 4 GiB cannot be had",
        ),
        (Flaw::Refuses, "what there is room for can be had"),
        (Flaw::Misaligned, "a range is page-aligned"),
        (Flaw::High, "a range lies wholly below 4 GiB"),
        (Flaw::SharesSinglePages, "live ranges never overlap"),
        (Flaw::ArenaPerThread, "live ranges never overlap"),
        (Flaw::OneThreadOnly, "several threads may ask at a time"),
        (Flaw::NeverTakesBack, "what was given back can be had again"),
        (Flaw::TakesBackAPage, "what was given back can be had again"),
    ];
    for (flaw, rule) in mutants {
        let machine = FakeMachine::new(flaw);
        breaks(host_memory::check(&machine, DEVICE), rule, &flaw);
    }
}

#[test]
fn mutants_of_the_bytes_are_caught() {
    let refused = "a range that leaves host memory is refused with its address and size";
    let mutants = [
        (Flaw::LosesLastByte, "what was written is read back"),
        (Flaw::WritesOneMore, "a write changes its range alone"),
        (
            Flaw::FillsOneLess,
            "a fill sets every byte of its range and no other",
        ),
        (
            Flaw::FillsOneMore,
            "a fill sets every byte of its range and no other",
        ),
        (Flaw::WordsFewer, "a range has a word for each four bytes"),
        (
            Flaw::WordsOfBytesHighFirst,
            "a word is four bytes of memory, the lowest first",
        ),
        (Flaw::WordsOfACopy, "a store into a word is seen by a read"),
        (
            Flaw::WordsAnywhere,
            "words that are not aligned are refused with their address and size",
        ),
        (Flaw::NoWordsRefused, "no words are within any range"),
        (Flaw::TakesAnyAddress, refused),
        (Flaw::RefusalNamesNothing, refused),
        (Flaw::RefusedReadClobbers, "a refused read copies nothing"),
        (Flaw::RefusedFillFills, "a refused access changes nothing"),
    ];
    for (flaw, rule) in mutants {
        let machine = FakeMachine::new(flaw);
        let range = Span::new(HostPa::new(BASE), 2 * PAGE).unwrap();
        breaks(dma_memory::check(&machine, range), rule, &flaw);
    }
}

#[test]
fn mutants_of_the_whole_are_caught() {
    let mutants = [
        (
            Flaw::WordsOfAPageAtMost,
            "every word of a range that was allocated can be reached",
        ),
        (
            Flaw::FreeClearsNeighbour,
            "a range keeps its bytes until it is given back",
        ),
    ];
    for (flaw, rule) in mutants {
        let machine = FakeMachine::new(flaw);
        breaks(machine_memory::check(&machine, DEVICE), rule, &flaw);
    }
}
