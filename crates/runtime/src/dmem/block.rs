//! A block of the driver's: its bytes are read, written and filled here, and its end is here.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_abi::event::{CopyPath, CopyWay};
use glia_abi::handle::McHandle;
use glia_abi::mem::Location;
use glia_abi::transport::{Mapping, MappingError};

use super::{List, copy};
use crate::dml::{Allocation, Entered, Level};
use crate::error::RuntimeError;
use crate::ndl::{NdlError, Transfer};
use crate::runtime::OpenDevice;

/// The memory itself, and what all references to it share.
///
/// What changes lies together and first, beside the reference counts of its [`Arc`]: whoever copies
/// a reference takes no cache line from those who read the facts.
#[repr(C)]
pub(crate) struct Block {
    /// [`RELEASED`](Self::RELEASED), and how many accesses are under way.
    accesses: AtomicU32,
    pub(super) handle: McHandle,
    /// With the device.
    list: Arc<List>,
    /// Where it is in the books.
    entered: Entered,
    /// Where it is kept in mind, if it is to be taken back.
    key: u32,
    /// Host memory is mapped at the first access.
    mapping: Mutex<Option<Arc<dyn Mapping>>>,
    _apart: u64,
    pub(super) facts: Allocation,
}

/// A line of the caches lies between the counts, right before the block, and the facts.
const _: () = assert!(std::mem::offset_of!(Block, facts) >= 64);

/// A block that is not given back before this is dropped.
pub(crate) struct UsedBlock(Arc<Block>);

impl Block {
    /// The driver's memory is given back as soon as no access is under way; none begins any more.
    const RELEASED: u32 = 1 << 31;

    /// A block on a list, kept in mind at `key`.
    pub(super) fn new(
        handle: McHandle,
        facts: Allocation,
        list: Arc<List>,
        entered: Entered,
        key: u32,
    ) -> Self {
        Self {
            accesses: AtomicU32::new(0),
            handle,
            list,
            entered,
            key,
            mapping: Mutex::default(),
            _apart: 0,
            facts,
        }
    }

    /// Begins an access; none if the memory went with its model.
    pub(super) fn begin(self: &Arc<Self>) -> Result<UsedBlock, RuntimeError> {
        let begun = self
            .accesses
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
                // Each one holds a reference, of which there are less.
                (state & Self::RELEASED == 0).then_some(state + 1)
            });
        match begun {
            Ok(_) => Ok(UsedBlock(Arc::clone(self))),
            Err(_) => Err(RuntimeError::Gone),
        }
    }

    /// Gives the memory back, as soon as nobody is reading or writing it.
    pub(super) fn release(&self) {
        if self.accesses.fetch_or(Self::RELEASED, Ordering::AcqRel) == 0 {
            self.give_back();
        }
    }

    /// Happens once: when the block is released and no access is under way.
    fn give_back(&self) {
        // Unmap before the memory goes back.
        let mapping = self.mapped().take();
        drop(mapping);
        self.give_back_unmapped();
    }

    fn give_back_unmapped(&self) {
        let dml = &self.device().dml;
        let freed = self.traced_free(|| {
            // In the books before it is in the pool, where the next one may have it at once: else
            // both would count, and stay in the peaks.
            dml.leave(self.entered, &self.facts);
            let freed = self.device().ndl.free(self.handle);
            freed.map_err(RuntimeError::from)
        });
        if let Err(error) = &freed {
            // It lives on, for nobody: there is no second try.
            dml.enter(self.list.id, self.handle, &self.facts);
            let session = &self.device().session;
            session.log(Level::Error, "dmem_free", &error.to_string());
        }
        self.tell_freed(&freed);
    }

    pub(crate) fn device(&self) -> &OpenDevice {
        &self.list.device
    }

    pub(crate) fn handle(&self) -> McHandle {
        self.handle
    }

    pub(super) fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        let range = (offset_bytes, into.len() as u64);
        self.traced_copy(CopyWay::Out, range, || self.read_range(range, into))
    }

    fn read_range(&self, range: (u64, u64), into: &mut [u8]) -> Result<(), RuntimeError> {
        let (offset_bytes, _) = range;
        // On the way out the reference asks first whether to do without the copy buffer, of host
        // memory, too; on the way in it asks first whether it is host memory.
        let (path, copied) = match self.facts.location {
            _ if self.device().copies_without_buffer() => {
                let raw_offset_bytes = self.raw_offset(offset_bytes);
                let ndl = &self.device().ndl;
                let copied = ndl.zero_copy_read(self.handle, raw_offset_bytes, into);
                (CopyPath::ZeroCopy, copied)
            }
            Location::Device => (CopyPath::Staged, copy::copy_out(self, offset_bytes, into)),
            Location::Host => {
                let copied = self.mapping().and_then(|mapping| {
                    let outcome = mapping.read(self.raw_offset(offset_bytes), into);
                    crate::ndl::mapped(self.device().ndl.id(), outcome)
                });
                (CopyPath::Mapped, copied)
            }
        };
        let copied = copied.map_err(RuntimeError::from);
        self.tell_copied((CopyWay::Out, path), range, &copied);
        copied
    }

    pub(super) fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        let range = (offset_bytes, bytes.len() as u64);
        self.traced_copy(CopyWay::In, range, || self.write_range(range, bytes))
    }

    fn write_range(&self, range: (u64, u64), bytes: &[u8]) -> Result<(), RuntimeError> {
        let (offset_bytes, _) = range;
        let (path, copied) = match self.facts.location {
            Location::Host => {
                let copied = self.mapping().and_then(|mapping| {
                    let outcome = mapping.write(self.raw_offset(offset_bytes), bytes);
                    crate::ndl::mapped(self.device().ndl.id(), outcome)
                });
                (CopyPath::Mapped, copied)
            }
            Location::Device if self.device().copies_without_buffer() => {
                let raw_offset_bytes = self.raw_offset(offset_bytes);
                let threshold_bytes = self.device().bar4_wr_threshold_bytes().into();
                let ndl = &self.device().ndl;
                let copied =
                    ndl.zero_copy_write(self.handle, raw_offset_bytes, bytes, threshold_bytes);
                (CopyPath::ZeroCopy, copied)
            }
            Location::Device => (CopyPath::Staged, copy::copy_in(self, offset_bytes, bytes)),
        };
        let copied = copied.map_err(RuntimeError::from);
        self.tell_copied((CopyWay::In, path), range, &copied);
        copied
    }

    /// Offset in the raw block. The driver has given size and alignment offset together, so the sum
    /// of an offset in bounds does not wrap.
    pub(crate) fn raw_offset(&self, offset_bytes: u64) -> u64 {
        self.facts.align_offset_bytes + offset_bytes
    }

    pub(crate) fn facts(&self) -> &Allocation {
        &self.facts
    }

    /// Copies bytes in bounds to another block of the same device, by the device.
    pub(crate) fn copy_to(
        &self,
        offset_bytes: u64,
        target: &Self,
        target_offset_bytes: u64,
        size_bytes: u64,
    ) -> Result<(), RuntimeError> {
        if size_bytes == 0 {
            return Ok(());
        }
        let transfer = Transfer {
            source: self.handle,
            source_offset_bytes: self.raw_offset(offset_bytes),
            target: target.handle,
            target_offset_bytes: target.raw_offset(target_offset_bytes),
            size_bytes,
        };
        let copied = self
            .device()
            .ndl
            .copy(&transfer)
            .map_err(RuntimeError::from);
        let range = (target_offset_bytes, size_bytes);
        target.tell_copied((CopyWay::In, CopyPath::Between), range, &copied);
        copied
    }

    /// Fills bytes in bounds.
    pub(super) fn fill(
        &self,
        offset_bytes: u64,
        size_bytes: u64,
        value: u8,
    ) -> Result<(), RuntimeError> {
        let raw_offset_bytes = self.raw_offset(offset_bytes);
        let ndl = &self.device().ndl;
        let filled = match self.facts.location {
            Location::Device => ndl.fill(self.handle, raw_offset_bytes, size_bytes, value),
            Location::Host => self.mapping().and_then(|mapping| {
                let outcome = fill_mapping(&*mapping, raw_offset_bytes, size_bytes, value);
                crate::ndl::mapped(ndl.id(), outcome)
            }),
        };
        let filled = filled.map_err(RuntimeError::from);
        let range = (offset_bytes, size_bytes);
        self.tell_copied((CopyWay::In, CopyPath::Filled), range, &filled);
        filled
    }

    fn mapping(&self) -> Result<Arc<dyn Mapping>, NdlError> {
        if let Some(mapping) = &*self.mapped() {
            return Ok(Arc::clone(mapping));
        }
        let ndl = &self.device().ndl;
        let new = ndl.map(self.handle, self.facts.allocated_bytes)?;
        // Whoever was faster has mapped the same bytes; the lock is let go before ours is unmapped.
        let mapping = Arc::clone(self.mapped().get_or_insert_with(|| Arc::clone(&new)));
        Ok(mapping)
    }

    fn mapped(&self) -> MutexGuard<'_, Option<Arc<dyn Mapping>>> {
        self.mapping.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Nobody else is there any more: neither an access nor a lock has to be reckoned with.
        if *self.accesses.get_mut() & Self::RELEASED == 0 {
            let mapping = self.mapping.get_mut();
            drop(mapping.unwrap_or_else(PoisonError::into_inner).take());
            self.give_back_unmapped();
        }
        self.list.forget(self.key);
    }
}

impl Deref for UsedBlock {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.0
    }
}

impl Drop for UsedBlock {
    fn drop(&mut self) {
        if self.0.accesses.fetch_sub(1, Ordering::AcqRel) == Block::RELEASED | 1 {
            self.0.give_back();
        }
    }
}

/// Fills a part of mapped memory, piece by piece.
pub(crate) fn fill_mapping(
    mapping: &dyn Mapping,
    offset_bytes: u64,
    size_bytes: u64,
    value: u8,
) -> Result<(), MappingError> {
    let piece = [value; 4096];
    let mut done_bytes = 0;
    while done_bytes < size_bytes {
        let left_bytes = size_bytes - done_bytes;
        let size = usize::try_from(left_bytes).map_or(piece.len(), |left| left.min(piece.len()));
        mapping.write(offset_bytes + done_bytes, &piece[..size])?;
        done_bytes += size as u64;
    }
    Ok(())
}
