//! The slab of chunk records: type-stable slots that are read without a lock.
//!
//! The reference allocates and frees a record per chunk and lets readers follow pointers into it
//! without a lock. Here records live in a *type-stable slab*: slots of atomics, one cache line
//! each, in segments that are never moved or freed while the device lives. A slot number that has
//! gone stale therefore reads the atomics of some other chunk, never freed memory, and a
//! *generation* tells the two apart. So a read takes no lock:
//!
//! - a writer (one at a time, under the set's lock) marks the slot dead; whoever uses it again
//!   fences, writes the fields, stores the new generation;
//! - the reader loads the generation, the fields, fences, loads the generation again. Equal and
//!   live at both ends means that all fields belong to that one life.
//!
//! Whoever must *hold* a chunk's memory (a copy, a mapping, queued DMA) takes a **pin**: a
//! compare-and-swap on the same word, which fails if that life is over. A chunk that dies while
//! pinned keeps its place and its record; whoever takes the count to zero after its death, and only
//! that one, gives them back.
//!
//! The first slots are the heads of the lifespan lists (see [`lifespan`](crate::lifespan)); the
//! others are handed out last-in, first-out, so that a slot just given back is still in the cache.
//!
//! What this does not do: decide when a chunk dies, or hold its memory. That is
//! [`DeviceMemory`](crate::memory::DeviceMemory).

use std::hint::black_box;
use std::sync::OnceLock;

use glia_abi::handle::McHandle;

use super::{Chunk, ChunkRef, DeadChunk, PinError, low_u32};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A record as it lies in memory. Every field is an atomic of its own; see the module for when they
/// may be read.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    /// Generation in the high half, pins times [`PIN`] below, [`LIVE`] in the lowest bit.
    life: AtomicU64,
    at: AtomicU64,
    size_bytes: AtomicU64,
    /// As [`Chunk`] packs them.
    traits: AtomicU64,
    birth: AtomicU64,
    owner: AtomicU32,
    site: AtomicU32,
    handle: AtomicU32,
    refs: AtomicU32,
    /// Links of the lifespan list; `next` also chains the slots that are free.
    prev: AtomicU32,
    next: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64, "a record is one cache line");

/// Set in `life` while the chunk lives.
const LIVE: u64 = 1;
/// One pin in `life`.
const PIN: u64 = 1 << 1;
/// All pins in `life`.
const PINS: u64 = (1 << 32) - PIN;

/// Slots in the first segment; each further one doubles. (loom keeps a history of every atomic, so
/// there it gets few.)
const FIRST_SEGMENT: u32 = if cfg!(loom) { 32 } else { 1024 };
const SEGMENTS: usize = if cfg!(loom) { 1 } else { 18 };
/// Slots that can exist: fewer than fit [`ChunkRef::SLOT_BITS`].
const SLOTS_MAX: u32 = FIRST_SEGMENT * ((1 << SEGMENTS) - 1);
const _: () = assert!(SLOTS_MAX <= 1 << ChunkRef::SLOT_BITS);

/// All chunk records of a device. Reads take no lock; everything else is called under the set's
/// lock, with the [`FreeSlots`] that lie inside it as proof.
pub(crate) struct ChunkSlab {
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
    /// A mutant for loom to catch: leaves out the fence between "dead" and the fields of the next
    /// life.
    #[cfg(loom)]
    pub(crate) without_death_fence: bool,
}

/// Which slots are free. Lives inside the set's lock.
pub(crate) struct FreeSlots {
    /// Head of the chain of slots given back; 0 is a list head and stands for "none".
    recycled: u32,
    /// First slot never used.
    frontier: u32,
}

impl ChunkSlab {
    /// A slab whose first `heads` slots are list heads, linked to themselves.
    pub(crate) fn new(heads: u32) -> (Self, FreeSlots) {
        let slab = Self {
            segments: [const { OnceLock::new() }; SEGMENTS],
            #[cfg(loom)]
            without_death_fence: false,
        };
        slab.make_segment(0);
        for head in 0..heads {
            slab.slot(head).prev.store(head, Ordering::Relaxed);
            slab.slot(head).next.store(head, Ordering::Relaxed);
        }
        (
            slab,
            FreeSlots {
                recycled: 0,
                frontier: heads,
            },
        )
    }

    /// A copy of the record if that life of it is live now. Takes no lock.
    pub(crate) fn read(&self, chunk: ChunkRef) -> Option<Chunk> {
        let (found, copy) = self.read_slot(chunk.slot)?;
        (found == chunk).then_some(copy)
    }

    /// As [`read`](Self::read), for whoever has only the slot number (the address index): which
    /// life is live, and the copy.
    pub(crate) fn read_slot(&self, number: u32) -> Option<(ChunkRef, Chunk)> {
        let slot = self.get(number)?;
        // ORDER: pairs with the Release store in `bring_to_life`: whoever sees the generation sees
        // the fields.
        let life = slot.life.load(Ordering::Acquire) & !PINS;
        if life & LIVE == 0 {
            return None;
        }
        let copy = slot.copy();
        // ORDER: the field loads above come before the second look at the generation; pairs with
        // the fence in `kill`.
        fence(Ordering::Acquire);
        let chunk = ChunkRef {
            slot: number,
            generation: low_u32(life >> 32),
        };
        (slot.life.load(Ordering::Relaxed) & !PINS == life).then_some((chunk, copy))
    }

    /// Brings the record in this slot near for somebody who will most likely read it, and does not wait for
    /// it. The slot need not exist.
    #[inline]
    pub(crate) fn touch(&self, number: u32) {
        if let Some(slot) = self.get(number) {
            black_box(slot.life.load(Ordering::Relaxed));
        }
    }

    /// Takes a free slot and brings it to life with `chunk`'s fields; `None` when all slots are
    /// taken.
    pub(crate) fn bring_to_life(&self, free: &mut FreeSlots, chunk: &Chunk) -> Option<ChunkRef> {
        let number = self.take(free)?;
        let slot = self.slot(number);
        // ORDER: "dead" comes before the first field of the next life, or a reader could copy new
        // fields and still find the old generation. The fence stands here and not in `kill`: it
        // orders only what its own thread stores, and the slot may have died by another's hand,
        // which the set's lock puts before this.
        #[cfg(loom)]
        let fenced = !self.without_death_fence;
        #[cfg(not(loom))]
        let fenced = true;
        if fenced {
            fence(Ordering::Release);
        }
        slot.write(chunk);
        let generation = low_u32(slot.life.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        // ORDER: the fields above come before the generation that vouches for them.
        slot.life.store(live(generation), Ordering::Release);
        Some(ChunkRef {
            slot: number,
            generation,
        })
    }

    /// Pins the chunk: its memory stays its own until the matching [`unpin`](Self::unpin). Takes no
    /// lock.
    pub(crate) fn pin(&self, chunk: ChunkRef) -> Result<(), PinError> {
        let slot = self.get(chunk.slot).ok_or(DeadChunk { chunk })?;
        // Most chunks have no pin yet, so the first attempt is made without a look.
        let mut life = live(chunk.generation);
        loop {
            // ORDER: Acquire, as in `read`: whoever pins a life sees its fields. Nothing of the
            // pinner's has to be published.
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            let swapped = slot
                .life
                .compare_exchange_weak(life, life + PIN, success, failure);
            let Err(now) = swapped else { return Ok(()) };
            if now & !PINS != live(chunk.generation) {
                return Err(DeadChunk { chunk }.into());
            }
            if now & PINS == PINS {
                return Err(PinError::TooMany { chunk });
            }
            life = now;
        }
    }

    /// Takes one pin off. True for the last one of a chunk that has died meanwhile: the caller has
    /// to give its memory back.
    pub(crate) fn unpin(&self, chunk: ChunkRef) -> bool {
        // ORDER: Release, so that what was done under the pin comes before the memory is given to
        // somebody else; Acquire, so that the one who gives it back comes after all other holders.
        let before = self.slot(chunk.slot).life.fetch_sub(PIN, Ordering::AcqRel);
        before & (PINS | LIVE) == PIN
    }

    /// Ends the life of a chunk that is live: from here on `read` and `pin` answer `None`. True if
    /// somebody holds a pin; then the last unpin gives the memory back, else the caller does. The
    /// slot is not free yet.
    pub(crate) fn kill(&self, chunk: ChunkRef) -> bool {
        // ORDER: Acquire, so that a death without pins comes after what was done under earlier
        // ones. The bit is set, so taking it off is a subtraction, which the processor does in one
        // step.
        let before = self.slot(chunk.slot).life.fetch_sub(LIVE, Ordering::AcqRel);
        before & PINS != 0
    }

    /// The record of a chunk whose slot cannot be used again meanwhile: a pinned one, or one that
    /// has died and is not recycled yet.
    pub(crate) fn read_kept(&self, chunk: ChunkRef) -> Chunk {
        self.slot(chunk.slot).copy()
    }

    /// Gives a dead chunk's slot back, unless it has no generation left: a reference must never
    /// come true again.
    pub(crate) fn recycle(&self, free: &mut FreeSlots, chunk: ChunkRef) {
        if chunk.generation == u32::MAX {
            return;
        }
        self.slot(chunk.slot)
            .next
            .store(free.recycled, Ordering::Relaxed);
        free.recycled = chunk.slot;
    }

    /// The current life of a slot that is on a list, so live. Under the set's lock.
    pub(crate) fn current(&self, slot_number: u32) -> ChunkRef {
        let life = self.slot(slot_number).life.load(Ordering::Relaxed);
        ChunkRef {
            slot: slot_number,
            generation: low_u32(life >> 32),
        }
    }

    /// Changes the number of references. Under the set's lock.
    pub(crate) fn set_refs(&self, chunk: ChunkRef, refs: u32) {
        self.slot(chunk.slot).refs.store(refs, Ordering::Relaxed);
    }

    /// Notes the handle that the chunk was published under. Under the set's lock.
    pub(crate) fn set_handle(&self, chunk: ChunkRef, handle: McHandle) {
        self.slot(chunk.slot)
            .handle
            .store(handle.get(), Ordering::Relaxed);
    }

    /// Links of a slot on a lifespan list.
    pub(crate) fn links(&self, slot_number: u32) -> Links<'_> {
        let slot = self.slot(slot_number);
        Links {
            prev: &slot.prev,
            next: &slot.next,
        }
    }

    fn take(&self, free: &mut FreeSlots) -> Option<u32> {
        if free.recycled != 0 {
            let number = free.recycled;
            free.recycled = self.slot(number).next.load(Ordering::Relaxed);
            return Some(number);
        }
        let number = free.frontier;
        if number >= SLOTS_MAX {
            return None;
        }
        self.make_segment(segment_of(number).0);
        free.frontier += 1;
        Some(number)
    }

    fn make_segment(&self, segment: usize) {
        self.segments[segment].get_or_init(|| {
            (0..FIRST_SEGMENT << segment)
                .map(|_| Slot::default())
                .collect()
        });
    }

    /// The slot with this number, if its segment has been made. For numbers that somebody else
    /// brought.
    fn get(&self, number: u32) -> Option<&Slot> {
        if number >= SLOTS_MAX {
            return None;
        }
        let (segment, offset) = segment_of(number);
        self.segments[segment].get()?.get(offset)
    }

    /// The slot with this number, which the slab itself has handed out.
    fn slot(&self, number: u32) -> &Slot {
        // PANIC: links, list heads and references that were checked under the lock name slots that
        // exist, and slots never go.
        #[expect(clippy::expect_used, reason = "see PANIC")]
        self.get(number).expect("the slab made this slot")
    }
}

/// The two links of one list entry.
pub(crate) struct Links<'a> {
    pub(crate) prev: &'a AtomicU32,
    pub(crate) next: &'a AtomicU32,
}

impl Slot {
    fn copy(&self) -> Chunk {
        Chunk {
            at: self.at.load(Ordering::Relaxed),
            size_bytes: self.size_bytes.load(Ordering::Relaxed),
            traits: self.traits.load(Ordering::Relaxed),
            birth: self.birth.load(Ordering::Relaxed),
            owner: self.owner.load(Ordering::Relaxed),
            site: self.site.load(Ordering::Relaxed),
            handle: self.handle.load(Ordering::Relaxed),
            refs: self.refs.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn write(&self, chunk: &Chunk) {
        self.at.store(chunk.at, Ordering::Relaxed);
        self.size_bytes.store(chunk.size_bytes, Ordering::Relaxed);
        self.traits.store(chunk.traits, Ordering::Relaxed);
        self.birth.store(chunk.birth, Ordering::Relaxed);
        self.owner.store(chunk.owner, Ordering::Relaxed);
        self.site.store(chunk.site, Ordering::Relaxed);
        self.handle.store(chunk.handle, Ordering::Relaxed);
        self.refs.store(chunk.refs, Ordering::Relaxed);
    }
}

/// The `life` word of a live record.
fn live(generation: u32) -> u64 {
    (u64::from(generation) << 32) | LIVE
}

/// Segment and offset of a slot: segment `k` holds `FIRST_SEGMENT << k` slots.
fn segment_of(number: u32) -> (usize, usize) {
    let shifted = number + FIRST_SEGMENT;
    let segment = shifted.ilog2() - FIRST_SEGMENT.ilog2();
    (
        segment as usize,
        (shifted - (FIRST_SEGMENT << segment)) as usize,
    )
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use glia_abi::addr::BusAddr;
    use glia_abi::handle::{Channel, CoreId, Pid};
    use glia_abi::mem::{Lifespan, Location};
    use glia_abi::usage::Category;

    use super::super::{NewChunk, Place, RESERVE_PAGES_MAX};
    use super::*;
    use crate::site::SiteId;

    const HEADS: u32 = 19;

    fn some_facts(at: u64) -> NewChunk {
        NewChunk {
            at: BusAddr::new(at),
            size_bytes: 8192,
            location: Location::Device,
            place: Place::Small,
            channel: Channel::new(3),
            core: CoreId::new(7),
            lifespan: Lifespan::AllProcess,
            category: Category(u32::MAX),
            owner: Pid::new(77),
            site: SiteId::UNKNOWN,
            birth: 5,
        }
    }

    fn some_chunk(at: u64) -> Chunk {
        some_facts(at).into()
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let (slab, mut free) = ChunkSlab::new(HEADS);
        let places = [
            Place::Main,
            Place::Small,
            Place::Coherent,
            Place::Reserve {
                pool: 3,
                page: RESERVE_PAGES_MAX - 1,
            },
            Place::Reserve { pool: 0, page: 0 },
        ];
        for place in places {
            for lifespan in Lifespan::ALL {
                for location in [Location::Host, Location::Device] {
                    let facts = NewChunk {
                        place,
                        lifespan,
                        location,
                        ..some_facts(0x1000)
                    };
                    let reference = slab.bring_to_life(&mut free, &facts.into()).unwrap();
                    let (found, chunk) = slab.read_slot(reference.slot()).unwrap();
                    assert_eq!((found, slab.read(reference)), (reference, Some(chunk)));
                    assert_eq!(
                        (chunk.at(), chunk.size_bytes()),
                        (facts.at, facts.size_bytes)
                    );
                    assert_eq!((chunk.place(), chunk.location()), (place, location));
                    assert_eq!((chunk.channel(), chunk.core()), (facts.channel, facts.core));
                    assert_eq!(
                        (chunk.lifespan(), chunk.category()),
                        (lifespan, facts.category)
                    );
                    assert_eq!((chunk.owner(), chunk.site()), (facts.owner, facts.site));
                    assert_eq!((chunk.birth(), chunk.refs()), (facts.birth, 1));
                    assert_eq!(chunk.handle(), None);
                }
            }
        }
    }

    #[test]
    fn a_dead_reference_is_not_answered_with_its_successor() {
        let (slab, mut free) = ChunkSlab::new(HEADS);
        let first = slab.bring_to_life(&mut free, &some_chunk(0x1000)).unwrap();
        slab.kill(first);
        assert_eq!(slab.read(first), None);
        slab.recycle(&mut free, first);
        let second = slab.bring_to_life(&mut free, &some_chunk(0x2000)).unwrap();
        assert_eq!(second.slot(), first.slot());
        assert_eq!(slab.read(first), None);
        assert_eq!(slab.read(second).unwrap().at(), BusAddr::new(0x2000));
    }

    #[test]
    fn a_slot_without_a_generation_left_is_not_used_again() {
        let (slab, mut free) = ChunkSlab::new(HEADS);
        let first = slab.bring_to_life(&mut free, &some_chunk(0x1000)).unwrap();
        slab.kill(first);
        slab.recycle(&mut free, first);
        let before_last = u64::from(u32::MAX - 1) << 32;
        slab.slot(first.slot)
            .life
            .store(before_last, Ordering::Relaxed);
        let last = slab.bring_to_life(&mut free, &some_chunk(0x2000)).unwrap();
        assert_eq!((last.slot(), last.generation()), (first.slot(), u32::MAX));
        slab.kill(last);
        slab.recycle(&mut free, last);
        let next = slab.bring_to_life(&mut free, &some_chunk(0x3000)).unwrap();
        assert_ne!(next.slot(), first.slot());
    }

    #[test]
    fn pins_are_counted_to_their_limit_and_not_beyond() {
        let (slab, mut free) = ChunkSlab::new(HEADS);
        let chunk = slab.bring_to_life(&mut free, &some_chunk(0x1000)).unwrap();
        let all_but_one = live(chunk.generation) | (PINS - PIN);
        slab.slot(chunk.slot)
            .life
            .store(all_but_one, Ordering::Relaxed);
        assert!(slab.pin(chunk).is_ok());
        assert_eq!(slab.pin(chunk), Err(PinError::TooMany { chunk }));
        assert!(!slab.unpin(chunk));
        assert!(slab.pin(chunk).is_ok());
    }

    #[test]
    fn slots_never_move_while_the_slab_grows() {
        let (slab, mut free) = ChunkSlab::new(HEADS);
        let first = slab.bring_to_life(&mut free, &some_chunk(0)).unwrap();
        let before: *const Slot = slab.slot(first.slot());
        let refs: Vec<_> = (1..5000_u64)
            .map(|n| {
                slab.bring_to_life(&mut free, &some_chunk(n * 4096))
                    .unwrap()
            })
            .collect();
        assert_eq!(before, std::ptr::from_ref(slab.slot(first.slot())));
        for (n, reference) in (1..5000_u64).zip(refs) {
            assert_eq!(slab.read(reference).unwrap().at(), BusAddr::new(n * 4096));
        }
    }

    #[test]
    fn slot_numbers_of_nobody_are_refused() {
        let (slab, _) = ChunkSlab::new(HEADS);
        for slot in [0, 18, 900, 5000, SLOTS_MAX, u32::MAX] {
            assert_eq!(
                slab.read(ChunkRef {
                    slot,
                    generation: 0
                }),
                None
            );
            assert_eq!(slab.read_slot(slot), None);
        }
    }

    #[test]
    fn segments_cover_every_slot_once() {
        assert_eq!(segment_of(0), (0, 0));
        assert_eq!(segment_of(1023), (0, 1023));
        assert_eq!(segment_of(1024), (1, 0));
        assert_eq!(segment_of(3071), (1, 2047));
        assert_eq!(segment_of(3072), (2, 0));
        let last = (FIRST_SEGMENT as usize) << (SEGMENTS - 1);
        assert_eq!(segment_of(SLOTS_MAX - 1), (SEGMENTS - 1, last - 1));
    }
}
