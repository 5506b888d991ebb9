//! Pins: what a holder holds, and what a free does meanwhile.

use std::sync::Arc;

use glia_abi::fault::NoFaults;
use glia_abi::handle::Channel;
use glia_abi::usage::Category;
use glia_driver::alloc::AllocRequest;
use glia_driver::memory::{DeviceMemory, Freed};

use crate::support::{MIB, PID, TestHost, fresh, small_device};

fn page() -> AllocRequest {
    AllocRequest::device(4096, Channel::new(0))
}

#[test]
fn a_pinned_range_is_given_to_nobody_before_the_last_unpin() {
    let memory = fresh();
    let chunk = memory.alloc(PID, &page()).unwrap();
    let at = memory.chunk(chunk).unwrap().at();
    let pins = [memory.pin(chunk).unwrap(), memory.pin(chunk).unwrap()];
    assert_eq!(memory.free(PID, chunk), Ok(Freed::Held));
    for pin in pins {
        let other = memory.alloc(PID, &page()).unwrap();
        assert_ne!(memory.chunk(other).unwrap().at(), at);
        memory.free(PID, other).unwrap();
        assert_eq!(pin.record().at(), at);
    }
    let next = memory.alloc(PID, &page()).unwrap();
    assert_eq!(
        memory.chunk(next).unwrap().at(),
        at,
        "with the last pin the place is free"
    );
}

#[test]
fn a_chunk_that_dies_pinned_is_dead_to_everybody_else() {
    let memory = fresh();
    let chunk = memory.alloc(PID, &page()).unwrap();
    let handle = memory.publish(chunk).unwrap();
    let at = memory.chunk(chunk).unwrap().at();
    let pin = memory.pin_handle(handle).unwrap();
    memory.free(PID, chunk).unwrap();
    assert_eq!(
        (
            memory.chunk(chunk),
            memory.search(at),
            memory.resolve(handle)
        ),
        (None, None, None)
    );
    assert!(
        memory.pin(chunk).is_err()
            && memory.pin_handle(handle).is_none()
            && memory.pin_at(at).is_none()
    );
    assert!(memory.free(PID, chunk).is_err(), "and cannot die twice");
    let stats = memory.stats();
    assert_eq!(
        (stats.chunks, stats.held_chunks, stats.held_bytes),
        (2, 1, 4096)
    );
    assert_eq!(
        stats.device_bytes,
        32 * MIB,
        "the books of the living have only the carveouts"
    );
    assert_eq!(
        stats.channels[0].allocated_bytes,
        16 * MIB + 4096,
        "the pool still has it out"
    );
    drop(pin);
    assert_eq!(memory.stats().channels[0].allocated_bytes, 16 * MIB);
    assert_eq!(memory.stats().held_chunks, 0);
}

#[test]
fn a_pin_by_address_holds_the_chunk_around_it() {
    let memory = fresh();
    let chunk = memory
        .alloc(PID, &AllocRequest::device(3 * 4096, Channel::new(1)))
        .unwrap();
    let at = memory.chunk(chunk).unwrap().at().checked_add(9000).unwrap();
    assert_eq!(memory.pin_at(at).unwrap().chunk(), chunk);
    assert!(memory.pin_at(at.checked_add(4096).unwrap()).is_none());
}

#[test]
fn a_sweep_ends_a_pinned_chunk_and_leaves_its_memory() {
    let memory = fresh();
    let chunk = memory.alloc(PID, &page()).unwrap();
    let pin = memory.pin(chunk).unwrap();
    let sweep = memory.expire(PID, glia_abi::mem::Lifespan::Device).unwrap();
    assert!(sweep.freed.contains(&chunk));
    assert_eq!(memory.stats().held_bytes, 4096);
    drop(pin);
    assert_eq!(memory.stats().channels[0].allocated_bytes, 0);
}

#[test]
fn a_scratchpad_page_held_by_a_pin_keeps_its_place_in_the_stack() {
    let memory = fresh();
    let scratchpad = AllocRequest {
        category: Category::CONTIGUOUS_SCRATCHPAD_DEVICE,
        ..page()
    };
    let chunk = memory.alloc(PID, &scratchpad).unwrap();
    let pin = memory.pin(chunk).unwrap();
    memory.free(PID, chunk).unwrap();
    let next = memory.alloc(PID, &scratchpad).unwrap();
    assert!(
        memory.chunk(next).unwrap().at() < pin.record().at(),
        "the page below the one that is held"
    );
    drop(pin);
    assert_eq!(
        memory.stats().channels[0].scratchpad_complaints,
        1,
        "it went out of turn"
    );
}

#[test]
fn host_memory_goes_back_to_the_machine_with_the_last_pin_even_after_teardown() {
    let host = TestHost::new(64 * MIB);
    let memory: DeviceMemory =
        DeviceMemory::new(small_device(), host.clone(), Arc::new(NoFaults)).unwrap();
    let chunk = memory.alloc(PID, &AllocRequest::host(8192)).unwrap();
    let pin = memory.pin(chunk).unwrap();
    assert!(memory.teardown(PID).leaked.is_empty());
    assert_eq!(
        host.used_bytes(),
        8 * MIB + 8192,
        "reserve pages wait for the last pin, too"
    );
    drop(pin);
    assert_eq!(host.used_bytes(), 0);
}

#[test]
fn pins_that_were_forgotten_do_not_keep_host_memory_beyond_their_device() {
    // Room for the reserve pools and one coherent chunk: the others lie in reserve pages.
    let host = TestHost::new(8 * MIB + 8192);
    let memory: DeviceMemory =
        DeviceMemory::new(small_device(), host.clone(), Arc::new(NoFaults)).unwrap();
    for _ in 0..3 {
        let chunk = memory.alloc(PID, &AllocRequest::host(8192)).unwrap();
        std::mem::forget(memory.pin(chunk).unwrap());
        memory.free(PID, chunk).unwrap();
    }
    assert_eq!(memory.stats().held_chunks, 3);
    drop(memory);
    assert_eq!(host.used_bytes(), 0);
}

#[test]
fn a_pin_of_an_earlier_life_is_refused_when_the_slot_lives_again() {
    let memory = fresh();
    let first = memory.alloc(PID, &page()).unwrap();
    memory.free(PID, first).unwrap();
    let second = memory.alloc(PID, &page()).unwrap();
    assert_eq!(second.slot(), first.slot());
    assert!(memory.pin(first).is_err());
    assert_eq!(memory.pin(second).unwrap().chunk(), second);
}
