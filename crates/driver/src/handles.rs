//! The handle table: small numbers for user space, in two levels.
//!
//! A handle is an index. Free cells form a chain, last freed first reused; the chain ends in the
//! *frontier*, the cell beyond which nothing was ever handed out. Index 0 is never issued, and
//! neither is the last one, so the default table of 4,194,304 cells has 4,194,302 usable handles
//! (driver 2.27). Pages of 8,192 cells are made one handle ahead of need.
//!
//! When the table is full, or a page cannot be had, it goes **down**: every handle stops resolving,
//! and only a new table helps. The reference does the same, and so do we ("poisoned").
//!
//! Allocation knows nothing of chunks: a cell holds an [`Object`]. Publication, which ties a chunk
//! to its handle, is the business of
//! [`DeviceMemory::publish`](crate::memory::DeviceMemory::publish).
//!
//! The chain's head lies apart from the cells, in [`FreeHandles`]: whoever allocates or frees
//! brings it, and so is alone. (In the driver it lies inside the set's lock; a lock of its own
//! would cost more than the rest.) Cells are atomics in pages that stay where they are, so
//! [`HandleTable::find`] takes no lock. Handles may be logged. A cell of the reference holds a
//! kernel pointer and may not; ours hold a slot and its generation, and the table's `Debug` keeps
//! them to itself all the same.

use std::fmt;
use std::sync::OnceLock;

use glia_abi::fault::{FaultPoint, Faults};
use glia_abi::handle::McHandle;

use crate::chunk::ChunkRef;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Cells of the default table (driver 2.27: 512 pages of 8,192).
pub const HANDLE_LIMIT: u32 = 512 * CELLS_PER_PAGE;

/// A page of cells. Its size is in its type, so that a look into it needs no check.
type Page = [AtomicU64; CELLS_PER_PAGE as usize];

const CELLS_PER_PAGE: u32 = if cfg!(loom) { 4 } else { 8192 };

/// What a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// A mem chunk.
    Chunk(ChunkRef),
    /// Something else that the driver keeps, by a number of its own.
    Other(u32),
}

impl Object {
    /// Set in a cell that is used; a free cell is the index of the next free one.
    const USED: u64 = 1 << 63;
    const OTHER: u64 = 1 << 62;

    fn to_cell(self) -> u64 {
        const { assert!(ChunkRef::BITS <= 62) };
        match self {
            Self::Chunk(chunk) => Self::USED | chunk.to_bits(),
            Self::Other(number) => Self::USED | Self::OTHER | u64::from(number),
        }
    }

    fn from_cell(cell: u64) -> Option<Self> {
        if cell & Self::USED == 0 {
            return None;
        }
        let bits = cell & !(Self::USED | Self::OTHER);
        Some(if cell & Self::OTHER == 0 {
            Self::Chunk(ChunkRef::from_bits(bits))
        } else {
            Self::Other(u32::try_from(bits).unwrap_or(u32::MAX))
        })
    }
}

/// Why the table refused. All of them are `ENOENT` to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// The table went down earlier: it was full, or out of kernel memory, or its device is gone.
    #[error("the handle table is down and stays down until the device is set up again")]
    Down,
    /// This request found no cell that may be used; the table is down from here on.
    #[error("the handle table is full at {limit} cells, and down from here on")]
    Full {
        /// Cells of the table.
        limit: u32,
    },
    /// A further page could not be had; the table is down from here on.
    #[error("no kernel memory for page {page} of the handle table, which is down from here on")]
    NoMemory {
        /// The page's number.
        page: u32,
    },
    /// No such handle is issued.
    #[error("{handle} is not issued; the table has {limit} cells")]
    NotIssued {
        /// The handle given.
        handle: McHandle,
        /// Cells of the table.
        limit: u32,
    },
}

/// Which handles are free: the head of a table's chain. There is one for each table, made with it,
/// and allocating or freeing with another table's gives numbers of nobody.
#[derive(Debug)]
pub struct FreeHandles {
    /// 0 while the table is down.
    head: u32,
}

impl FreeHandles {
    /// The handle that the next allocation gives if it succeeds; `None` when the table is down.
    #[must_use]
    pub fn next(&self) -> Option<McHandle> {
        McHandle::new(self.head)
    }
}

/// The table of a device. Lookups take no lock.
pub struct HandleTable {
    pages: Box<[OnceLock<Box<Page>>]>,
    limit: u32,
    is_down: AtomicBool,
    pages_made: AtomicU32,
}

impl HandleTable {
    /// A table of `limit` cells, 2 to [`HANDLE_LIMIT`] (other values are brought into that range),
    /// with its first page.
    ///
    /// # Errors
    /// [`HandleError::NoMemory`] if kernel memory is refused, for the first level or the first
    /// page.
    pub fn new(limit: u32, faults: &dyn Faults) -> Result<(Self, FreeHandles), HandleError> {
        let limit = limit.clamp(2, HANDLE_LIMIT);
        if faults.orders(FaultPoint::HandleTable) {
            return Err(HandleError::NoMemory { page: 0 });
        }
        let table = Self {
            pages: (0..limit.div_ceil(CELLS_PER_PAGE))
                .map(|_| OnceLock::new())
                .collect(),
            limit,
            is_down: AtomicBool::new(false),
            pages_made: AtomicU32::new(0),
        };
        if faults.orders(FaultPoint::HandleTable) {
            return Err(HandleError::NoMemory { page: 0 });
        }
        table.make_page(0);
        Ok((table, FreeHandles { head: 1 }))
    }

    /// Issues a handle for `object`: the one freed last, or the next never issued.
    ///
    /// # Errors
    /// [`HandleError::Down`]; or [`HandleError::Full`] and [`HandleError::NoMemory`], after which
    /// the table is down.
    pub fn alloc(
        &self,
        free: &mut FreeHandles,
        object: Object,
        faults: &dyn Faults,
    ) -> Result<McHandle, HandleError> {
        let index = free.head;
        let (handle, cell) = McHandle::new(index)
            .zip(self.cell(index))
            .ok_or(HandleError::Down)?;
        if faults.orders(FaultPoint::HandleCell) {
            self.go_down(free);
            return Err(HandleError::Full { limit: self.limit });
        }
        // CAST: a free cell holds an index below the limit.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let chained = cell.load(Ordering::Relaxed) as u32;
        let next = if chained == 0 {
            self.advance_frontier(free, faults)?
        } else {
            chained
        };
        // ORDER: whoever finds the object through its handle sees what was written of it before.
        cell.store(object.to_cell(), Ordering::Release);
        free.head = next;
        Ok(handle)
    }

    /// Takes a handle back. The object that it named is not touched.
    ///
    /// # Errors
    /// [`HandleError::Down`], or [`HandleError::NotIssued`] for a handle that is free or out of
    /// range.
    pub fn free(&self, free: &mut FreeHandles, handle: McHandle) -> Result<(), HandleError> {
        if free.head == 0 {
            return Err(HandleError::Down);
        }
        let issued = |cell: &&AtomicU64| Object::from_cell(cell.load(Ordering::Relaxed)).is_some();
        let cell = self
            .cell(handle.get())
            .filter(issued)
            .ok_or(HandleError::NotIssued {
                handle,
                limit: self.limit,
            })?;
        cell.store(u64::from(free.head), Ordering::Release);
        free.head = handle.get();
        Ok(())
    }

    /// What the handle names now. Takes no lock. `None` when the table is down, or the handle is
    /// out of range or not issued.
    #[must_use]
    pub fn find(&self, handle: McHandle) -> Option<Object> {
        if self.is_down() {
            return None;
        }
        Object::from_cell(self.cell(handle.get())?.load(Ordering::Acquire))
    }

    /// Whether the table is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Pages of 8,192 cells in use.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages_made.load(Ordering::Relaxed)
    }

    /// Cells of the table, index 0 included.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes the table down for good, at the end of its device.
    pub(crate) fn shut_down(&self, free: &mut FreeHandles) {
        self.go_down(free);
        self.pages_made.store(0, Ordering::Relaxed);
    }

    /// The index after the frontier, which is the head, with its page made.
    fn advance_frontier(
        &self,
        free: &mut FreeHandles,
        faults: &dyn Faults,
    ) -> Result<u32, HandleError> {
        let next = free.head + 1;
        if next >= self.limit {
            self.go_down(free);
            return Err(HandleError::Full { limit: self.limit });
        }
        if self.cell(next).is_none() {
            let page = next / CELLS_PER_PAGE;
            if faults.orders(FaultPoint::HandlePage) {
                self.go_down(free);
                return Err(HandleError::NoMemory { page });
            }
            self.make_page(page);
        }
        Ok(next)
    }

    fn make_page(&self, page: u32) {
        self.pages[page as usize].get_or_init(|| {
            let cells: Box<[AtomicU64]> = (0..CELLS_PER_PAGE).map(|_| AtomicU64::new(0)).collect();
            // PANIC: the range has as many cells as the page.
            #[expect(clippy::unwrap_used, reason = "see PANIC")]
            cells.try_into().ok().unwrap()
        });
        self.pages_made.fetch_add(1, Ordering::Relaxed);
    }

    fn go_down(&self, free: &mut FreeHandles) {
        free.head = 0;
        self.is_down.store(true, Ordering::Relaxed);
    }

    fn cell(&self, index: u32) -> Option<&AtomicU64> {
        if index >= self.limit {
            return None;
        }
        let page = self.pages.get((index / CELLS_PER_PAGE) as usize)?.get()?;
        Some(&page[(index % CELLS_PER_PAGE) as usize])
    }
}

impl fmt::Debug for HandleTable {
    /// Says how full the table is, never what its cells hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleTable")
            .field("limit", &self.limit)
            .field("is_down", &self.is_down())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use glia_abi::fault::NoFaults;
    use proptest::prelude::*;

    use super::*;

    fn table(limit: u32) -> (HandleTable, FreeHandles) {
        HandleTable::new(limit, &NoFaults).unwrap()
    }

    fn issue((table, free): &mut (HandleTable, FreeHandles), number: u32) -> u32 {
        table
            .alloc(free, Object::Other(number), &NoFaults)
            .unwrap()
            .get()
    }

    fn handle(index: u32) -> McHandle {
        McHandle::new(index).unwrap()
    }

    #[test]
    fn handles_count_up_and_the_one_freed_last_comes_first() {
        let mut table = table(HANDLE_LIMIT);
        assert_eq!([issue(&mut table, 0), issue(&mut table, 1)], [1, 2]);
        table.0.free(&mut table.1, handle(1)).unwrap();
        assert_eq!([issue(&mut table, 2), issue(&mut table, 3)], [1, 3]);
        assert_eq!(table.0.find(handle(1)), Some(Object::Other(2)));
    }

    #[test]
    fn the_second_page_is_made_one_handle_ahead() {
        let mut table = table(HANDLE_LIMIT);
        for number in 1..=8190 {
            assert_eq!(issue(&mut table, number), number);
        }
        assert_eq!(table.0.pages(), 1);
        assert_eq!(issue(&mut table, 0), 8191);
        assert_eq!(table.0.pages(), 2);
    }

    #[test]
    fn a_full_default_table_has_issued_4194302_handles() {
        let mut table = table(HANDLE_LIMIT);
        for number in 1..=4_194_302 {
            assert_eq!(issue(&mut table, 0), number);
        }
        let error = table
            .0
            .alloc(&mut table.1, Object::Other(0), &NoFaults)
            .unwrap_err();
        assert_eq!(error, HandleError::Full { limit: 4_194_304 });
    }

    #[test]
    fn a_table_that_went_down_stays_down() {
        let mut table = table(4);
        assert_eq!([issue(&mut table, 7), issue(&mut table, 8)], [1, 2]);
        assert!(
            table
                .0
                .alloc(&mut table.1, Object::Other(9), &NoFaults)
                .is_err()
        );
        assert!(table.0.is_down());
        assert_eq!(table.0.find(handle(1)), None);
        assert_eq!(
            table.0.free(&mut table.1, handle(1)),
            Err(HandleError::Down)
        );
        assert_eq!(
            table.0.alloc(&mut table.1, Object::Other(9), &NoFaults),
            Err(HandleError::Down)
        );
    }

    #[test]
    fn handles_that_nobody_holds_are_refused() {
        let mut table = table(HANDLE_LIMIT);
        issue(&mut table, 0);
        for index in [2, 8191, 8192, HANDLE_LIMIT - 1, HANDLE_LIMIT, u32::MAX] {
            assert_eq!(table.0.find(handle(index)), None);
            assert_eq!(
                table.0.free(&mut table.1, handle(index)),
                Err(HandleError::NotIssued {
                    handle: handle(index),
                    limit: HANDLE_LIMIT
                })
            );
        }
    }

    proptest! {
        /// The model is a stack of freed numbers above a frontier.
        #[test]
        fn issued_numbers_follow_a_stack_above_a_frontier(ops in prop::collection::vec((any::<bool>(), any::<u32>()), 1..400)) {
            let mut table = table(60);
            let (mut stack, mut frontier, mut live, mut down) = (Vec::new(), 1_u32, Vec::new(), false);
            for (alloc, pick) in ops {
                if alloc {
                    let expected = if down { None } else { stack.pop().or_else(|| (frontier + 1 < 60).then(|| { frontier += 1; frontier - 1 })) };
                    let got = table.0.alloc(&mut table.1, Object::Other(pick), &NoFaults).ok().map(McHandle::get);
                    prop_assert_eq!(got, expected);
                    down |= expected.is_none();
                    live.extend(expected.map(|number| (number, pick)));
                } else if let Some(at) = (!live.is_empty()).then(|| pick as usize % live.len()) {
                    let (number, _) = live.swap_remove(at);
                    prop_assert_eq!(table.0.free(&mut table.1, handle(number)).is_ok(), !down);
                    stack.push(number);
                }
                for &(number, object) in &live {
                    prop_assert_eq!(table.0.find(handle(number)), (!down).then_some(Object::Other(object)));
                }
            }
        }
    }
}
