//! Where the reference places: its literal loop, over one bool per granule.

use std::cell::OnceCell;

/// A range of addresses, a bool per granule. The tail below a granule is counted and never given.
pub(super) struct Bits {
    pub(super) base: u64,
    size_bytes: u64,
    granule: u64,
    taken: Vec<bool>,
    /// Read out of `taken` when asked for.
    extents: OnceCell<Vec<(u64, u64)>>,
}

impl Bits {
    pub(super) fn new(base: u64, size_bytes: u64, granule: u64) -> Self {
        let taken = vec![false; (size_bytes / granule) as usize];
        Self {
            base,
            size_bytes,
            granule,
            taken,
            extents: OnceCell::new(),
        }
    }

    /// The literal loop, aligned or (with `align` 0) plain.
    pub(super) fn find(&self, size: u64, align: u64) -> Option<u64> {
        if size == 0 || size > self.free_bytes() {
            return None;
        }
        let (n, len) = (size.div_ceil(self.granule), self.taken.len() as u64);
        let align = align.max(1);
        let mask = align.div_ceil(self.granule) - 1;
        let off = (self.base & (align - 1)) / self.granule;
        let mut start = 0;
        loop {
            let mut i = (start..len).find(|&i| !self.taken[i as usize])?;
            i = ((i + off + mask) & !mask) - off;
            if i + n > len {
                return None;
            }
            match (i..i + n).find(|&j| self.taken[j as usize]) {
                None => return Some(self.base + i * self.granule),
                Some(j) => start = j + 1,
            }
        }
    }

    /// Whether fixed placement at an offset that is a multiple of the granule works.
    pub(super) fn has_room_at(&self, size: u64, offset: u64) -> bool {
        let (i, n) = (offset / self.granule, size.div_ceil(self.granule));
        let inside = u128::from(i) + u128::from(n) <= self.taken.len() as u128;
        size <= self.free_bytes() && inside && (i..i + n).all(|j| !self.taken[j as usize])
    }

    pub(super) fn set(&mut self, at: u64, size: u64, taken: bool) {
        let (i, n) = ((at - self.base) / self.granule, size.div_ceil(self.granule));
        for bit in &mut self.taken[i as usize..(i + n) as usize] {
            assert_ne!(*bit, taken);
            *bit = taken;
        }
        self.extents = OnceCell::new();
    }

    /// All that is not taken, and the tail that no granule covers.
    pub(super) fn free_bytes(&self) -> u64 {
        let covered = self.taken.len() as u64 * self.granule;
        let free: u64 = self.extents().iter().map(|(_, size)| size).sum();
        free + self.size_bytes - covered
    }

    pub(super) fn largest(&self) -> u64 {
        let sizes = self.extents().iter().map(|(_, size)| *size);
        sizes.max().unwrap_or(0)
    }

    pub(super) fn extents(&self) -> &[(u64, u64)] {
        self.extents.get_or_init(|| {
            let mut extents: Vec<(u64, u64)> = Vec::new();
            let mut before = true;
            for (i, &taken) in (0..).zip(&self.taken) {
                match extents.last_mut() {
                    _ if taken => {}
                    Some((_, size)) if !before => *size += self.granule,
                    Some(_) | None => extents.push((self.base + i * self.granule, self.granule)),
                }
                before = taken;
            }
            extents
        })
    }
}
