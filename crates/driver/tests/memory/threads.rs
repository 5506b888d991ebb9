//! Lookups that take no lock, beside writers that do: a bounded number of rounds with real threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use glia_abi::addr::BusAddr;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{Channel, McHandle, Pid};
use glia_abi::usage::Category;
use glia_driver::alloc::AllocRequest;
use glia_driver::memory::DeviceMemory;

use crate::support::{MIB, PID, TestHost, fresh, small_device};

/// Tells the writer that the reader has ended, even if it panicked.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Every chunk's category and owner are functions of its size, so a copy that mixes two lives is
/// seen.
fn request(pages: u64) -> AllocRequest {
    let category = Category(u32::try_from(pages * 1000).unwrap());
    AllocRequest {
        category,
        ..AllocRequest::device(pages * 4096, Channel::new(0))
    }
}

#[test]
fn a_copy_never_mixes_two_lives_and_a_living_chunk_is_always_found() {
    let memory = fresh();
    let anchor = memory
        .chunk(memory.alloc(PID, &request(3)).unwrap())
        .unwrap();
    let (done, last_handle) = (AtomicBool::new(false), AtomicU32::new(1));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let _done = SetWhenDropped(&done);
            let mut hits = 0_u64;
            for lookup in 0..100_000_u64 {
                let (found, _) = memory
                    .search(anchor.at().checked_add(lookup % 12_288).unwrap())
                    .unwrap();
                assert_eq!(
                    memory.chunk(found).unwrap().at(),
                    anchor.at(),
                    "the anchor lives through every lookup"
                );
                let handle = McHandle::new(last_handle.load(Ordering::Relaxed)).unwrap();
                let near = anchor.at().checked_add(12_288 + lookup % 65_536).unwrap();
                let records = [
                    memory.resolve(handle).and_then(|chunk| memory.chunk(chunk)),
                    memory.search(near).map(|(_, record)| record),
                ];
                for record in records.into_iter().flatten() {
                    hits += 1;
                    let pages = record.size_bytes() / 4096;
                    assert_eq!(u64::from(record.category().0), pages * 1000);
                    assert_eq!(u64::from(record.owner().get()), pages);
                }
            }
            hits
        });
        // The writer goes on for as long as the reader has lookups left, and keeps a few chunks
        // alive at any time.
        let mut live = VecDeque::new();
        for round in 0.. {
            let pages = 1 + round % 7;
            let owner = Pid::new(u32::try_from(pages).unwrap());
            let chunk = memory.alloc(owner, &request(pages)).unwrap();
            last_handle.store(memory.publish(chunk).unwrap().get(), Ordering::Relaxed);
            live.push_back(chunk);
            if live.len() > 3 {
                memory.free(owner, live.pop_front().unwrap()).unwrap();
            }
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
        assert!(
            reader.join().unwrap() > 0,
            "some lookups met a chunk while it lived"
        );
    });
}

#[test]
fn threads_that_load_and_unload_leave_the_books_balanced() {
    let memory: DeviceMemory =
        DeviceMemory::new(small_device(), TestHost::new(64 * MIB), Arc::new(NoFaults)).unwrap();
    let before = memory.stats();
    std::thread::scope(|scope| {
        for thread in 0..2_u32 {
            let memory = &memory;
            scope.spawn(move || {
                let pid = Pid::new(100 + thread);
                memory.open(pid).unwrap();
                for round in 0..3000_u64 {
                    let request =
                        AllocRequest::device((1 + round % 9) * 4096, Channel::new(thread % 2));
                    let chunks: Vec<_> = (0..4)
                        .filter_map(|_| memory.alloc(pid, &request).ok())
                        .collect();
                    for chunk in chunks {
                        memory.publish(chunk).unwrap();
                        memory.free(pid, chunk).unwrap();
                    }
                }
                memory.flush(pid);
                memory.release(pid);
            });
        }
    });
    assert_eq!(memory.stats(), before);
}

/// Holders pin by handle and by address while an owner frees and takes; no two chunks that are
/// alive or held ever share an address.
#[test]
fn a_pinned_range_never_belongs_to_two() {
    let memory = fresh();
    let (done, last_handle, last_at) =
        (AtomicBool::new(false), AtomicU32::new(1), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _done = SetWhenDropped(&done);
            for round in 0..50_000_u64 {
                let pin = if round % 2 == 0 {
                    McHandle::new(last_handle.load(Ordering::Relaxed))
                        .and_then(|handle| memory.pin_handle(handle))
                } else {
                    memory.pin_at(BusAddr::new(last_at.load(Ordering::Relaxed)))
                };
                let Some(pin) = pin else { continue };
                let (span, chunk) = (pin.record().span(), pin.chunk());
                if let Some((other, record)) = memory.search(span.start()) {
                    assert!(
                        other == chunk || !record.span().overlaps(span),
                        "{other} lies in what is pinned of {chunk}"
                    );
                }
            }
        });
        let mut live = VecDeque::new();
        for round in 0.. {
            let pages = 1 + round % 7;
            let chunk = memory.alloc(PID, &request(pages)).unwrap();
            last_at.store(memory.chunk(chunk).unwrap().at().get(), Ordering::Relaxed);
            last_handle.store(memory.publish(chunk).unwrap().get(), Ordering::Relaxed);
            live.push_back(chunk);
            if live.len() > 3 {
                memory.free(PID, live.pop_front().unwrap()).unwrap();
            }
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
        holder.join().unwrap();
        for chunk in live {
            memory.free(PID, chunk).unwrap();
        }
    });
    let stats = memory.stats();
    assert_eq!((stats.chunks, stats.held_chunks), (2, 0));
    assert_eq!(stats.channels[0].allocated_bytes, 16 * MIB);
}
