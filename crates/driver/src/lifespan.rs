//! Lifespan lists: who gives a chunk back if nobody frees it.
//!
//! Every live chunk is on exactly one list: `local`, `all`, `device`, or the list of one of the 16
//! attach slots. New chunks go to the head, so a sweep meets the newest first (driver 2.27), which
//! is the order in which the contiguous scratchpad wants to be freed. A promotion moves a chunk to
//! another list and leaves the lifespan in its record as it was.
//!
//! The links lie in the chunk records, the heads in the slab's first slots, and the lists are
//! circular, so that a chunk is unlinked without knowing its list. Everything here is called under
//! the set's lock.

use std::fmt;

use glia_abi::handle::SlotId;

use crate::chunk::{ChunkRef, ChunkSlab};
use crate::process::ATTACH_SLOTS;
use crate::sync::Ordering;

/// One of the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListId {
    /// Chunks that their taker gives back.
    Local,
    /// Chunks that live as long as any file of the device is open.
    AllProcess,
    /// Chunks that live as long as the device.
    Device,
    /// Chunks of the process in this attach slot.
    Process(SlotId),
}

impl ListId {
    /// Number of lists.
    pub(crate) const COUNT: u32 = 3 + ATTACH_SLOTS;

    /// Every list.
    pub fn all() -> impl Iterator<Item = Self> {
        let processes = (0..ATTACH_SLOTS).map(|slot| Self::Process(SlotId::new(slot)));
        [Self::Local, Self::AllProcess, Self::Device]
            .into_iter()
            .chain(processes)
    }

    /// The slot of the slab that is this list's head.
    fn head(self) -> u32 {
        match self {
            Self::Local => 0,
            Self::AllProcess => 1,
            Self::Device => 2,
            Self::Process(slot) => 3 + slot.get(),
        }
    }
}

impl fmt::Display for ListId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::AllProcess => f.write_str("all"),
            Self::Device => f.write_str("device"),
            Self::Process(slot) => write!(f, "process{}", slot.get()),
        }
    }
}

/// Puts a chunk that is on no list at the head of `list`.
pub(crate) fn push(slab: &ChunkSlab, list: ListId, chunk: ChunkRef) {
    let (head, number) = (list.head(), chunk.slot());
    let head_links = slab.links(head);
    let first = head_links.next.load(Ordering::Relaxed);
    let links = slab.links(number);
    links.prev.store(head, Ordering::Relaxed);
    links.next.store(first, Ordering::Relaxed);
    slab.links(first).prev.store(number, Ordering::Relaxed);
    head_links.next.store(number, Ordering::Relaxed);
}

/// Takes a chunk off the list that it is on.
pub(crate) fn unlink(slab: &ChunkSlab, chunk: ChunkRef) {
    let links = slab.links(chunk.slot());
    let (prev, next) = (
        links.prev.load(Ordering::Relaxed),
        links.next.load(Ordering::Relaxed),
    );
    slab.links(prev).next.store(next, Ordering::Relaxed);
    slab.links(next).prev.store(prev, Ordering::Relaxed);
}

/// The chunks of a list, newest first.
pub(crate) fn iter(slab: &ChunkSlab, list: ListId) -> impl Iterator<Item = ChunkRef> {
    let head = list.head();
    let after = move |number: u32| {
        let next = slab.links(number).next.load(Ordering::Relaxed);
        (next != head).then_some(next)
    };
    std::iter::successors(after(head), move |&number| after(number))
        .map(|number| slab.current(number))
}
