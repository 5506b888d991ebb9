//! Interleavings of the lock-free tables, explored by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p glia-driver --lib --release interleavings`. The
//! tables are the real ones, over loom's atomics and with small geometry. Fields of one life are
//! functions of its number, so a copy that mixes two lives is seen. Each model has at most three
//! threads, and the writers among them would hold the set's lock, so there is one.

use std::sync::Arc;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::fault::NoFaults;
use glia_abi::handle::{Channel, CoreId, McHandle, Pid};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Category;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::chunk::{Chunk, ChunkRef, ChunkSlab, FreeSlots, NewChunk, Place};
use crate::handles::{FreeHandles, HandleTable, Object};
use crate::index::AddressIndex;
use crate::site::SiteId;

const PAGE: u64 = 4096;

/// The record of life `number`, at page `page`.
fn life(number: u32, page: u64) -> Chunk {
    NewChunk {
        at: BusAddr::new(page * PAGE),
        size_bytes: u64::from(number) * PAGE,
        location: Location::Device,
        place: Place::Main,
        channel: Channel::new(0),
        core: CoreId::new(0),
        lifespan: Lifespan::Device,
        category: Category(number),
        owner: Pid::new(number),
        site: SiteId::UNKNOWN,
        birth: u64::from(number),
    }
    .into()
}

/// All fields are of one life.
fn assert_whole(copy: &Chunk) {
    let number = copy.category().0;
    let facts = (copy.size_bytes() / PAGE, copy.owner().get(), copy.birth());
    assert_eq!(facts, (number.into(), number, number.into()));
}

/// Explores all interleavings with at most two preemptions. A record has a dozen fields, each an
/// atomic, so without that bound a model takes hours; every defect that these models are for shows
/// with one.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// What was found, if anything, is whole and of the life that its reference names; `first` is life 1.
fn assert_one_life(found: Option<(ChunkRef, Chunk)>, first: ChunkRef) {
    if let Some((found, copy)) = found {
        assert_whole(&copy);
        assert_eq!(copy.category().0 == 1, found == first);
    }
}

struct Tables {
    slab: ChunkSlab,
    index: AddressIndex,
    handles: HandleTable,
}

/// Starts a thread that works on what it shares with this one.
fn beside<T: 'static>(shared: &Arc<T>, work: impl FnOnce(&T) + 'static) -> thread::JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

/// What the set's lock would guard.
struct Set {
    slots: FreeSlots,
    handles: FreeHandles,
}

impl Tables {
    fn new() -> (Self, Set) {
        let (slab, slots) = ChunkSlab::new(1);
        let (table, handles) = HandleTable::new(8, &NoFaults).unwrap();
        let window = Span::new(BusAddr::new(0), 64 * PAGE);
        (
            Self {
                slab,
                index: AddressIndex::new(window.into_iter()),
                handles: table,
            },
            Set { slots, handles },
        )
    }

    fn born(&self, set: &mut Set, chunk: &Chunk) -> ChunkRef {
        let reference = self.slab.bring_to_life(&mut set.slots, chunk).unwrap();
        self.index.insert(chunk.at(), reference.slot());
        reference
    }

    fn dies(&self, set: &mut Set, chunk: ChunkRef, at: BusAddr) {
        let held = self.slab.kill(chunk);
        self.index.remove(at);
        if !held {
            self.slab.recycle(&mut set.slots, chunk);
        }
    }

    fn publish(&self, set: &mut Set, chunk: ChunkRef) -> McHandle {
        let object = Object::Chunk(chunk);
        self.handles
            .alloc(&mut set.handles, object, &NoFaults)
            .unwrap()
    }

    fn resolve(&self, handle: McHandle) -> Option<(ChunkRef, Chunk)> {
        match self.handles.find(handle)? {
            Object::Chunk(chunk) => Some((chunk, self.slab.read(chunk)?)),
            Object::Other(_) => None,
        }
    }

    fn search(&self, at: BusAddr) -> Option<Chunk> {
        let covers = |record: &Chunk| record.contains(at);
        self.index.find(at, |slot| {
            self.slab
                .read_slot(slot)
                .map(|(_, record)| record)
                .filter(covers)
        })
    }
}

#[test]
fn a_find_beside_a_free_answers_the_whole_record_or_nothing() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let record = life(1, 0);
        let chunk = tables.born(&mut set, &record);
        let handle = tables.publish(&mut set, chunk);
        let tables = Arc::new(tables);
        let finder = beside(&tables, move |tables| {
            if let Some((found, copy)) = tables.resolve(handle) {
                assert_eq!(found, chunk);
                assert_whole(&copy);
            }
        });
        tables.handles.free(&mut set.handles, handle).unwrap();
        tables.dies(&mut set, chunk, record.at());
        finder.join().unwrap();
        assert!(tables.resolve(handle).is_none());
    });
}

/// The first life ends and the second begins in the same slot under the same handle while somebody
/// looks.
fn find_beside_reuse(without_death_fence: bool) {
    explore(move || {
        let (mut tables, mut set) = Tables::new();
        tables.slab.without_death_fence = without_death_fence;
        let first = tables.born(&mut set, &life(1, 0));
        let handle = tables.publish(&mut set, first);
        let tables = Arc::new(tables);
        let finder = beside(&tables, move |tables| {
            assert_one_life(tables.resolve(handle), first);
        });
        tables.handles.free(&mut set.handles, handle).unwrap();
        tables.dies(&mut set, first, BusAddr::new(0));
        let second = tables.born(&mut set, &life(2, 0));
        assert_eq!(second.slot(), first.slot());
        assert_eq!(tables.publish(&mut set, second), handle);
        finder.join().unwrap();
    });
}

#[test]
fn a_find_beside_publish_and_reuse_never_mixes_two_lives() {
    find_beside_reuse(false);
}

/// The mutant: without the fence between "dead" and the first field of the next life, a torn copy
/// exists, and loom finds it.
#[test]
#[should_panic(expected = "assertion")]
fn without_the_fence_after_death_a_torn_copy_is_found() {
    find_beside_reuse(true);
}

#[test]
fn a_living_chunk_is_found_while_its_neighbours_come_and_go() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let anchor = life(2, 2);
        tables.born(&mut set, &anchor);
        let below = life(1, 1);
        let neighbour = tables.born(&mut set, &below);
        let tables = Arc::new(tables);
        let finder = beside(&tables, move |tables| {
            assert_eq!(tables.search(BusAddr::new(3 * PAGE + 7)), Some(anchor));
            if let Some(copy) = tables.search(BusAddr::new(PAGE)) {
                assert_whole(&copy);
            }
        });
        tables.dies(&mut set, neighbour, below.at());
        tables.born(&mut set, &life(3, 4));
        finder.join().unwrap();
    });
}

/// The slot dies by one thread's hand and lives again by another's; only the set's lock is between
/// them. The fence has to be the second one's.
#[test]
fn a_copy_is_whole_when_death_and_rebirth_are_on_two_threads() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let first = tables.born(&mut set, &life(1, 0));
        let shared = Arc::new((tables, Mutex::new(set)));
        let finder = beside(&shared, move |shared| {
            assert_one_life(shared.0.slab.read_slot(first.slot()), first);
        });
        let killer = beside(&shared, move |shared| {
            let mut set = shared.1.lock().unwrap();
            shared.0.dies(&mut set, first, BusAddr::new(0));
        });
        shared.0.born(&mut shared.1.lock().unwrap(), &life(2, 1));
        killer.join().unwrap();
        finder.join().unwrap();
    });
}

/// The same when the slot is given back by the last holder, after the death.
#[test]
fn a_copy_is_whole_when_the_last_holder_gives_the_slot_to_the_next_life() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let first = tables.born(&mut set, &life(1, 0));
        tables.slab.pin(first).unwrap();
        let shared = Arc::new((tables, Mutex::new(set)));
        let holder = beside(&shared, move |shared| {
            if shared.0.slab.unpin(first) {
                let mut set = shared.1.lock().unwrap();
                shared.0.slab.recycle(&mut set.slots, first);
                let next = shared
                    .0
                    .slab
                    .bring_to_life(&mut set.slots, &life(2, 0))
                    .unwrap();
                assert_eq!(next.slot(), first.slot());
            }
        });
        let finder = beside(&shared, move |shared| {
            assert_one_life(shared.0.slab.read_slot(first.slot()), first);
        });
        shared
            .0
            .dies(&mut shared.1.lock().unwrap(), first, BusAddr::new(0));
        holder.join().unwrap();
        finder.join().unwrap();
    });
}

/// A start bit that is seen leads to the slot that was written for it.
#[test]
fn a_start_that_is_seen_has_its_slot() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        tables.born(&mut set, &life(3, 0));
        let tables = Arc::new(tables);
        let finder = beside(&tables, move |tables| {
            tables.index.find(BusAddr::new(40 * PAGE), |slot| {
                assert_ne!(slot, 0, "slot 0 is a list's head and never indexed");
                None::<()>
            });
        });
        tables.born(&mut set, &life(1, 20));
        finder.join().unwrap();
    });
}

/// A handle that is found leads to a record that is there.
#[test]
fn a_handle_that_is_found_leads_to_a_live_record() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let tables = Arc::new(tables);
        let finder = beside(&tables, move |tables| {
            let handle = McHandle::new(1).unwrap();
            if let Some(Object::Chunk(chunk)) = tables.handles.find(handle) {
                assert_whole(&tables.slab.read(chunk).unwrap());
            }
        });
        let chunk = tables.born(&mut set, &life(1, 0));
        tables.publish(&mut set, chunk);
        finder.join().unwrap();
    });
}

/// A pin of a life that has ended is refused, also while the slot lives again.
#[test]
fn a_stale_pin_beside_reuse_is_refused() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let first = tables.born(&mut set, &life(1, 0));
        tables.dies(&mut set, first, BusAddr::new(0));
        let tables = Arc::new(tables);
        let pinner = beside(&tables, move |tables| {
            assert!(tables.slab.pin(first).is_err())
        });
        tables.born(&mut set, &life(2, 0));
        pinner.join().unwrap();
    });
}

/// Two holders and one free: the memory is given back once, by the last of the three, and never
/// under a pin.
#[test]
fn two_pins_and_a_free_give_back_exactly_once() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let chunk = tables
            .slab
            .bring_to_life(&mut set.slots, &life(1, 0))
            .unwrap();
        let shared = Arc::new((tables, AtomicU32::new(0)));
        let holders: Vec<_> = (0..2)
            .map(|_| {
                beside(&shared, move |shared| {
                    let (tables, given_back) = shared;
                    if tables.slab.pin(chunk).is_err() {
                        return;
                    }
                    assert_whole(&tables.slab.read_kept(chunk));
                    assert_eq!(
                        given_back.load(Ordering::Relaxed),
                        0,
                        "nobody gives back what is pinned"
                    );
                    if tables.slab.unpin(chunk) {
                        given_back.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let (tables, given_back) = &*shared;
        if !tables.slab.kill(chunk) {
            given_back.fetch_add(1, Ordering::Relaxed);
        }
        for holder in holders {
            holder.join().unwrap();
        }
        assert_eq!(given_back.load(Ordering::Relaxed), 1);
        assert!(tables.slab.pin(chunk).is_err());
    });
}

/// Whoever gives the memory back sees everything that was done under every pin.
#[test]
fn what_was_done_under_a_pin_comes_before_the_give_back() {
    explore(|| {
        let (tables, mut set) = Tables::new();
        let chunk = tables
            .slab
            .bring_to_life(&mut set.slots, &life(1, 0))
            .unwrap();
        let shared = Arc::new((tables, AtomicU32::new(0)));
        let holder = beside(&shared, move |shared| {
            let (tables, byte) = shared;
            if tables.slab.pin(chunk).is_ok() {
                byte.store(1, Ordering::Relaxed);
                if tables.slab.unpin(chunk) {
                    assert_eq!(byte.load(Ordering::Relaxed), 1);
                    byte.store(2, Ordering::Relaxed);
                }
            }
        });
        let (tables, byte) = &*shared;
        if !tables.slab.kill(chunk) {
            // Dead without pins: nobody writes any more, and what was written is visible.
            byte.store(2, Ordering::Relaxed);
        }
        holder.join().unwrap();
        assert_eq!(
            byte.load(Ordering::Relaxed),
            2,
            "the write under the pin never comes after the give-back"
        );
    });
}
