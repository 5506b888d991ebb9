//! dmem: allocations of device-visible memory.
//!
//! An allocator belongs to a core or to a loaded model. The way of an allocation:
//!
//! 1. what it is for becomes the driver's category; some usages are not allowed on the host;
//! 2. the driver is asked, with the alignment if there is one. A driver that does not understand
//!    alignments is remembered, and from then on the runtime asks for more and aligns by itself;
//! 3. a refusal for want of memory becomes a report (device) or a line (host), with its
//!    [explanation](crate::explanation);
//! 4. the address is asked for, and the allocation is entered in the books ([`dml`](crate::dml)),
//!    which list it as long as it lives.
//!
//! What becomes of an allocation, its end and each copy are told as events, failures too. An access
//! that is refused before any byte moves is not.
//!
//! A [`Dmem`] is a reference; clones are more. With the last one the memory goes back: it is taken out
//! of the books, then the driver gets it, so that no moment has a block in the books twice, of whom it
//! was and of whom it is now. (The reference has it the other way round.) What the driver refuses to
//! take back is entered again. A model that is dropped takes its memory with it; references that are
//! left answer [`RuntimeError::Gone`].
//!
//! Bytes go through the core's copy buffer, or by the caller's own pages if the runtime is told so,
//! or through a mapping for host memory.
//!
//! | part | what it is |
//! | --- | --- |
//! | `allocator` | steps 1 to 4, and what is left at the end |
//! | `block` | what the driver has given: its bytes, its end |
//! | `copy` | staged copies |
//! | `explain` | what is known of this process when something is wanting |
//! | `gc` | references that are let go together |
//!
//! **Locks.** What is to go with a model has a plain mutex, never held during a call into the driver;
//! the other blocks have the books' alone. An access is counted by the block it works on, so memory that is freed meanwhile goes back when the access is
//! over.

mod allocator;
mod block;
mod copy;
mod explain;
mod gc;
mod tell;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use glia_abi::addr::{BusAddr, access_fits};
use glia_abi::handle::{Channel, McHandle};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use slab::Slab;

use crate::dml::{Allocation, Entered, ListId, Site};
use crate::error::RuntimeError;
use crate::runtime::OpenDevice;

pub(crate) use allocator::{Allocator, Caller, Owner, Refusal, Whole};
pub(crate) use block::{Block, UsedBlock, fill_mapping};
pub use gc::GcList;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocSpec<'a> {
    /// Bytes.
    pub size_bytes: u64,
    /// Alignment of the first byte, 0 for none.
    pub align_bytes: u64,
    /// What for.
    pub usage: MemUsage,
    /// Host memory or HBM.
    pub location: Location,
    /// The HBM channel; `None` for the core's own.
    pub channel: Option<Channel>,
    /// What the caller calls it.
    pub hint: Option<&'a str>,
    /// Where it is asked for, as the caller tells it; `None` for the line of code that calls the
    /// runtime.
    pub site: Option<AskedAt<'a>>,
}

/// A place where memory is asked for that is no line of code: see [`Site`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedAt<'a> {
    /// By its name.
    Named(&'a str),
    /// By its number in what the caller reads: for those who read millions of lines.
    Line(u64),
}

impl AllocSpec<'_> {
    /// Where it is asked for, if not by a line of code then by this caller's.
    fn asked_at(&self, caller: Caller) -> Site {
        match self.site {
            Some(AskedAt::Named(name)) => Site::Named(name.into()),
            Some(AskedAt::Line(number)) => Site::Line(number),
            None => Site::Code(caller),
        }
    }

    /// HBM of the core's channel, not aligned, without a name, asked for where the runtime is called.
    #[must_use]
    pub const fn device(size_bytes: u64, usage: MemUsage) -> Self {
        Self {
            size_bytes,
            align_bytes: 0,
            usage,
            location: Location::Device,
            channel: None,
            hint: None,
            site: None,
        }
    }
}

/// What the blocks of an allocator share: their device, and where the books list them.
pub(crate) struct List {
    device: Arc<OpenDevice>,
    /// Stays as long as a block is on it.
    id: ListId,
    taken_back: Option<Mutex<TakenBack>>,
}

/// Blocks that are taken back before their last reference is gone: those of a model.
#[derive(Default)]
struct TakenBack {
    /// Each with its number among all that there ever were.
    blocks: Slab<(u64, Weak<Block>)>,
    serials: u64,
}

impl List {
    fn new(device: Arc<OpenDevice>, owner: Owner) -> Self {
        Self {
            id: device.dml.add_list(),
            device,
            taken_back: match owner {
                Owner::Core => None,
                Owner::Model { .. } => Some(Mutex::default()),
            },
        }
    }

    /// Makes a block, and keeps it in mind if it is one to be taken back.
    fn make(self: &Arc<Self>, handle: McHandle, facts: Allocation, entered: Entered) -> Arc<Block> {
        let make = |key| Arc::new(Block::new(handle, facts, Arc::clone(self), entered, key));
        let Some(mut kept) = self.kept() else {
            return make(0);
        };
        let serial = kept.serials;
        kept.serials += 1;
        // LIMIT: there are fewer blocks than handles.
        let key = u32::try_from(kept.blocks.vacant_key()).unwrap_or(u32::MAX);
        let block = make(key);
        kept.blocks.insert((serial, Arc::downgrade(&block)));
        block
    }

    fn forget(&self, key: u32) {
        // Let go behind the lock.
        let _block = self
            .kept()
            .and_then(|mut kept| kept.blocks.try_remove(key as usize));
    }

    /// Those that are taken back, in the order in which they were made.
    fn take_back(&self) -> Vec<Arc<Block>> {
        let Some(kept) = self.kept() else {
            return Vec::new();
        };
        let blocks = kept.blocks.iter();
        let mut left: Vec<_> = blocks
            .filter_map(|(_, (serial, block))| Some((*serial, block.upgrade()?)))
            .collect();
        drop(kept);
        left.sort_unstable_by_key(|(serial, _)| *serial);
        left.into_iter().map(|(_, block)| block).collect()
    }

    fn kept(&self) -> Option<MutexGuard<'_, TakenBack>> {
        let kept = self.taken_back.as_ref()?.lock();
        Some(kept.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.device.dml.remove_list(self.id);
    }
}

/// A reference to an allocation; clones are more references to the same. The memory goes back with
/// the last one.
#[derive(Clone)]
pub struct Dmem(Arc<Block>);

impl Dmem {
    /// Bytes, as asked for.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.0.facts().size_bytes
    }

    /// The first byte that is used, as the device sees it.
    #[must_use]
    pub fn pa(&self) -> BusAddr {
        self.0.facts().first_byte()
    }

    /// All facts of the allocation.
    #[must_use]
    pub fn facts(&self) -> &Allocation {
        self.0.facts()
    }

    /// Writes bytes at an offset. Nothing to write is no error and no access.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfBounds`]; [`RuntimeError::Gone`] if its model was unloaded;
    /// [`RuntimeError::Driver`] if a copy failed, and then some of the bytes may have been written.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        let block = self.access(offset_bytes, bytes.len() as u64)?;
        if !bytes.is_empty() {
            block.write(offset_bytes, bytes)?;
        }
        Ok(())
    }

    /// Fills bytes at an offset with one value. Nothing to fill is no error and no access.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn fill(&self, offset_bytes: u64, size_bytes: u64, value: u8) -> Result<(), RuntimeError> {
        let block = self.access(offset_bytes, size_bytes)?;
        if size_bytes > 0 {
            block.fill(offset_bytes, size_bytes, value)?;
        }
        Ok(())
    }

    /// Reads bytes from an offset. Nothing to read is no error and no access.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfBounds`]; [`RuntimeError::Gone`] if its model was unloaded;
    /// [`RuntimeError::Driver`] if a copy failed, and then the bytes before it have been read.
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        let block = self.access(offset_bytes, into.len() as u64)?;
        if !into.is_empty() {
            block.read(offset_bytes, into)?;
        }
        Ok(())
    }

    /// The block, for an access that must be in bounds.
    pub(crate) fn access(
        &self,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Result<UsedBlock, RuntimeError> {
        let block = self.0.begin()?;
        let limit_bytes = self.size_bytes();
        if !access_fits(offset_bytes, size_bytes, limit_bytes) {
            return Err(RuntimeError::OutOfBounds {
                offset_bytes,
                size_bytes,
                limit_bytes,
            });
        }
        Ok(block)
    }
}
