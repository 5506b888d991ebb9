//! The reference's handle table: a stack of freed numbers above a frontier.

use std::collections::BTreeMap;

use glia_abi::handle::McHandle;
use glia_driver::handles::{HandleError, Object};
use glia_driver::memory::HandleStats;

use super::machine::Order;

const CELLS_PER_PAGE: u32 = 8192;

pub(super) struct Handles {
    limit: u32,
    pages: u32,
    is_down: bool,
    /// The number behind the last one that was ever issued.
    frontier: u32,
    freed: Vec<u32>,
    issued: BTreeMap<u32, Object>,
}

impl Handles {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit: limit.max(2),
            pages: 1,
            is_down: false,
            frontier: 1,
            freed: Vec::new(),
            issued: BTreeMap::new(),
        }
    }

    pub(super) fn alloc(
        &mut self,
        object: Object,
        page_fault: &mut Order,
    ) -> Result<McHandle, HandleError> {
        if self.is_down {
            return Err(HandleError::Down);
        }
        let number = match self.freed.pop() {
            Some(number) => number,
            None => self.advance(page_fault)?,
        };
        self.issued.insert(number, object);
        Ok(McHandle::new(number).unwrap())
    }

    /// The frontier, once the cell behind it is there.
    fn advance(&mut self, page_fault: &mut Order) -> Result<u32, HandleError> {
        let (number, next) = (self.frontier, self.frontier + 1);
        let limit = self.limit;
        if next >= limit {
            self.is_down = true;
            return Err(HandleError::Full { limit });
        }
        let page = next / CELLS_PER_PAGE;
        if page >= self.pages {
            if page_fault.strikes() {
                self.is_down = true;
                return Err(HandleError::NoMemory { page });
            }
            self.pages += 1;
        }
        self.frontier = next;
        Ok(number)
    }

    pub(super) fn free(&mut self, handle: McHandle) -> Result<(), HandleError> {
        if self.is_down {
            return Err(HandleError::Down);
        }
        let limit = self.limit;
        let known = self.issued.remove(&handle.get());
        known.ok_or(HandleError::NotIssued { handle, limit })?;
        self.freed.push(handle.get());
        Ok(())
    }

    pub(super) fn find(&self, handle: McHandle) -> Option<Object> {
        let object = self.issued.get(&handle.get()).copied();
        object.filter(|_| !self.is_down)
    }

    pub(super) fn shut_down(&mut self) {
        self.is_down = true;
        self.pages = 0;
    }

    pub(super) fn stats(&self) -> HandleStats {
        let next = self.freed.last().copied().unwrap_or(self.frontier);
        HandleStats {
            is_down: self.is_down,
            next: McHandle::new(next).filter(|_| !self.is_down),
            pages: self.pages,
            limit: self.limit,
        }
    }

    /// A number near those of interest: issued lately, free, behind the frontier, out of range.
    pub(super) fn pick(&self, pick: usize) -> McHandle {
        let edges = [
            1,
            self.frontier,
            self.limit - 1,
            self.limit,
            self.limit + CELLS_PER_PAGE,
            u32::MAX,
        ];
        let freed = self.freed.iter().rev().take(4).copied();
        let numbers: Vec<u32> = self.lately().chain(freed).chain(edges).collect();
        McHandle::new(numbers[pick % numbers.len()]).unwrap()
    }

    /// The highest numbers that are issued.
    pub(super) fn lately(&self) -> impl Iterator<Item = u32> {
        self.issued.keys().rev().take(24).copied()
    }
}
