//! The memory that a scenario speaks of: HBM, its chunks and buffers in host memory, and the
//! driver's own blocks.

use glia_abi::addr::BusAddr;
use glia_abi::arch::MemoryLayout;

use super::blocks::Blocks;
use super::content::{Content, Contents, Piece};

/// Everything but the driver's own blocks, by the addresses that the device sees.
#[derive(Debug)]
pub struct Memory {
    layout: MemoryLayout,
    contents: Contents,
    /// Chunks and buffers in host memory: first address and size.
    host_objects: Vec<(u64, u64)>,
}

impl Memory {
    /// All zero, and nothing in host memory yet.
    #[must_use]
    pub fn new(layout: MemoryLayout) -> Self {
        Self {
            layout,
            contents: Contents::default(),
            host_objects: Vec::new(),
        }
    }

    /// Makes a range of host memory known.
    pub fn add_host_object(&mut self, at: u64, size_bytes: u64) {
        self.host_objects.push((at, size_bytes));
    }

    /// Whether the range lies in HBM, or in one object of host memory.
    #[must_use]
    pub fn has(&self, at: u64, size_bytes: u64) -> bool {
        let Some(last) = at.checked_add(size_bytes.saturating_sub(1)) else {
            return false;
        };
        let channel = |at| self.layout.hbm_offset(BusAddr::new(at));
        if let (Some((first, _)), Some((second, _))) = (channel(at), channel(last)) {
            return first == second;
        }
        self.host_objects.iter().any(|&(start, object_bytes)| {
            at.checked_sub(start)
                .and_then(|offset| object_bytes.checked_sub(offset))
                .is_some_and(|room| size_bytes <= room)
        })
    }

    /// What lies in a range of HBM or an object, or would.
    #[must_use]
    pub fn read(&self, at: u64, size_bytes: u64) -> Vec<Piece> {
        self.contents.read(at, size_bytes)
    }

    /// Puts pieces into HBM or an object.
    pub fn write(&mut self, at: u64, pieces: Vec<Piece>) {
        self.contents.write(at, pieces);
    }

    /// The host address of an address that the device sees, if it is one.
    #[must_use]
    pub fn host_address(&self, at: u64) -> Option<u64> {
        let profile = self.layout.profile();
        profile.bus_to_host(BusAddr::new(at)).map(|at| at.get())
    }

    /// What a descriptor may read, wherever it lies; `None` if nobody owns all of it.
    #[must_use]
    pub fn fetch(&self, blocks: &Blocks, at: u64, size_bytes: u64) -> Option<Vec<Piece>> {
        if let Some(host) = self.host_address(at)
            && let Some(bytes) = blocks.read(host, size_bytes)
        {
            return Some(vec![Piece {
                size_bytes,
                content: Content::of_bytes(&bytes),
            }]);
        }
        self.has(at, size_bytes).then(|| self.read(at, size_bytes))
    }

    /// Puts what a descriptor writes where it says; false if nobody owns all of that.
    #[must_use]
    pub fn store(&mut self, blocks: &Blocks, at: u64, pieces: Vec<Piece>) -> bool {
        let size_bytes = pieces.iter().map(|piece| piece.size_bytes).sum();
        if let Some(host) = self.host_address(at)
            && blocks.read(host, size_bytes).is_some()
        {
            return blocks.write(host, &Piece::bytes(&pieces));
        }
        let is_owned = self.has(at, size_bytes);
        if is_owned {
            self.write(at, pieces);
        }
        is_owned
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::arch::{Arch, Scale};

    use super::*;

    const HOST: u64 = 1 << 46;

    fn memory() -> (Memory, Blocks) {
        let layout = MemoryLayout::new(Arch::V3, Scale::Full).unwrap();
        let mut memory = Memory::new(layout);
        memory.add_host_object(HOST + 0x10_0000, 100);
        let blocks = Blocks::default();
        assert!(blocks.add(0x2000, 64));
        (memory, blocks)
    }

    #[test]
    fn hbm_is_there_and_host_memory_only_where_somebody_has_it() {
        let (memory, blocks) = memory();
        let is_there = |at, size_bytes| memory.fetch(&blocks, at, size_bytes).is_some();
        assert!(is_there(0x100_0000, 65_536));
        assert!(is_there(HOST + 0x10_0000, 100) && !is_there(HOST + 0x10_0000, 101));
        assert!(is_there(HOST + 0x2000, 64) && !is_there(HOST + 0x2000, 65));
        assert!(!is_there(HOST + 0x40, 4));
        assert!(!is_there((24 << 30) - 1, 2));
    }

    #[test]
    fn a_copy_between_a_block_and_an_object_keeps_the_bytes() {
        let (mut memory, blocks) = memory();
        assert!(blocks.write(0x2008, &[1, 2, 3, 4]));
        let pieces = memory.fetch(&blocks, HOST + 0x2006, 8).unwrap();
        assert!(memory.store(&blocks, HOST + 0x10_0010, pieces));
        let back = memory.fetch(&blocks, HOST + 0x10_0010, 8).unwrap();
        assert!(memory.store(&blocks, HOST + 0x2020, back));
        assert_eq!(blocks.read(0x2020, 8).unwrap(), [0, 0, 1, 2, 3, 4, 0, 0]);
    }
}
