//! Who gives a chunk back when nobody frees it.

use glia_abi::handle::{Channel, Pid};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::usage::Counter;
use glia_driver::alloc::AllocRequest;
use glia_driver::chunk::ChunkRef;
use glia_driver::lifespan::ListId;
use glia_driver::memory::DeviceMemory;
use glia_driver::usage::Key;

use crate::support::{PID, fresh};

fn take(memory: &DeviceMemory, pid: Pid, lifespan: Lifespan) -> ChunkRef {
    memory
        .alloc(
            pid,
            &AllocRequest {
                lifespan,
                ..AllocRequest::device(4096, Channel::new(0))
            },
        )
        .unwrap()
}

#[test]
fn the_last_close_sweeps_the_newest_first_and_keeps_what_is_referenced() {
    let memory = fresh();
    memory.open(PID).unwrap();
    memory.open(PID).unwrap();
    let [a, b, c] = [(); 3].map(|()| take(&memory, PID, Lifespan::CurrentProcess));
    memory.add_ref(b).unwrap();
    let first = memory.flush(PID);
    assert_eq!(
        (first.attached, first.sweep, first.open_left),
        (2, None, Some(1))
    );
    let second = memory.flush(PID);
    let sweep = second.sweep.unwrap();
    assert_eq!(sweep.freed, [c, a]);
    assert_eq!(
        sweep
            .kept
            .iter()
            .map(|kept| (kept.chunk, kept.refs, kept.list))
            .collect::<Vec<_>>(),
        [(b, 1, ListId::AllProcess)]
    );
    assert_eq!(second.open_left, Some(0));
    assert_eq!(memory.release(PID), None, "one file is left");
    assert_eq!(memory.release(PID).unwrap().freed, [b]);
    assert_eq!(memory.flush(PID).open_left, None);
}

#[test]
fn a_promotion_moves_the_chunk_and_not_its_lifespan() {
    let memory = fresh();
    memory.open(PID).unwrap();
    let chunk = take(&memory, PID, Lifespan::Local);
    memory.add_ref(chunk).unwrap();
    let kept = memory.expire(PID, Lifespan::Local).unwrap().kept;
    assert_eq!(kept[0].list.to_string(), "process0");
    assert_eq!(memory.chunk(chunk).unwrap().lifespan(), Lifespan::Local);
}

#[test]
fn a_process_without_a_slot_has_no_list_to_sweep() {
    let memory = fresh();
    for lifespan in [Lifespan::Local, Lifespan::CurrentProcess] {
        assert_eq!(memory.expire(PID, lifespan).unwrap_err().pid, PID);
    }
    assert!(memory.expire(PID, Lifespan::AllProcess).is_ok());
}

#[test]
fn the_device_sweep_frees_against_references_and_says_so() {
    let memory = fresh();
    let chunk = take(&memory, PID, Lifespan::Device);
    memory.add_ref(chunk).unwrap();
    memory.add_ref(chunk).unwrap();
    let sweep = memory.expire(PID, Lifespan::Device).unwrap();
    assert_eq!(sweep.freed[0], chunk);
    assert_eq!(sweep.forced, [chunk]);
    assert_eq!(memory.chunk(chunk), None);
}

#[test]
fn teardown_names_what_leaked_and_still_takes_it_back() {
    let memory = fresh();
    let local = take(&memory, PID, Lifespan::Local);
    let all = take(&memory, PID, Lifespan::AllProcess);
    let result = memory.teardown(PID);
    assert_eq!(result.leaked, [local]);
    assert_eq!(result.freed[0], all);
    assert_eq!(memory.stats().device_bytes, 0);
    assert_eq!(
        memory
            .usage()
            .balance(
                Counter::DeviceTotal,
                Key::Core(glia_abi::handle::CoreId::new(0))
            )
            .total_bytes,
        0
    );
}

#[test]
fn a_free_goes_to_the_books_of_whoever_frees() {
    let memory = fresh();
    let other = Pid::new(78);
    memory.open(PID).unwrap();
    memory.open(other).unwrap();
    let chunk = take(&memory, PID, Lifespan::Device);
    memory.free(other, chunk).unwrap();
    let charged: Vec<_> = memory
        .stats()
        .processes
        .iter()
        .map(|process| process.device.total_bytes)
        .collect();
    assert_eq!(charged, [4096, 0]);
    assert_eq!(memory.stats().processes[0].device.peak_bytes, 4096);
}

#[test]
fn a_handle_freed_under_its_chunk_is_somebody_elses_when_the_chunk_dies() {
    let memory = fresh();
    let (first, second) = (
        take(&memory, PID, Lifespan::Device),
        take(&memory, PID, Lifespan::Device),
    );
    let handle = memory.publish(first).unwrap();
    memory.free_handle(handle).unwrap();
    assert_eq!(
        memory.publish(second),
        Ok(handle),
        "the number is reused at once"
    );
    memory.free(PID, first).unwrap();
    assert_eq!(
        memory.resolve(handle),
        None,
        "and the death of the first holder frees it again, as in the reference"
    );
}

#[test]
fn every_allocation_carries_its_site_and_age() {
    let memory = fresh();
    let site = memory.sites().intern("load weights");
    let request = AllocRequest {
        site,
        ..AllocRequest::device(4096, Channel::new(1))
    };
    let [older, newer] =
        [(); 2].map(|()| memory.chunk(memory.alloc(PID, &request).unwrap()).unwrap());
    assert_eq!(
        memory.sites().name(older.site()).as_deref(),
        Some("load weights")
    );
    assert!(older.birth() < newer.birth());
    assert_eq!(older.location(), Location::Device);
}
