//! Cores that come up and go down, with their engines.

use std::sync::atomic::Ordering;
use std::thread;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::handle::{CoreId, EngineId};
use glia_driver::dma::{DmaError, Place, WaitHandle, inits_h2t_engine};

use crate::engine::Mode;
use crate::rig::{PID, Rig, hbm, pattern};

const ALL: u32 = u32::MAX;

fn writes(rig: &Rig) -> usize {
    std::mem::take(&mut rig.machine.state().writes).len()
}

#[test]
fn a_device_comes_up_with_as_many_writes_as_the_reference_makes() {
    for (arch, expected) in [(Arch::V2, 12_912), (Arch::V3, 18_436)] {
        let rig = Rig::bare(arch);
        rig.dma.init_cores(ALL, true).unwrap();
        assert_eq!(writes(&rig), expected);
        let cores = (0..rig.profile.cores).map(CoreId::new);
        assert!(
            cores
                .clone()
                .all(|core| rig.dma.queue_state(core).is_some())
        );
        rig.dma.init_cores(ALL, true).unwrap();
        assert_eq!(writes(&rig), 0);
    }
}

#[test]
fn of_two_cores_that_share_an_engine_the_even_one_brings_it_up() {
    let inits = |map, reset| {
        let profile = Arch::V3.profile();
        (0..8)
            .filter(|&core| inits_h2t_engine(profile, CoreId::new(core), map, reset))
            .collect::<Vec<u32>>()
    };
    assert_eq!(inits(ALL, true), [0, 2, 4, 6]);
    assert_eq!(inits(0b0011, false), [0]);
    assert_eq!(inits(0b0101, false), []);
    assert_eq!(inits(0b0110, false), []);
    assert_eq!(inits(0xf0, false), [4, 6]);
    assert!(inits_h2t_engine(
        Arch::V2.profile(),
        CoreId::new(1),
        0,
        false
    ));
}

#[test]
fn a_lone_core_does_not_come_up_before_its_engine_and_takes_nothing() {
    let rig = Rig::bare(Arch::V3);
    let before = rig.memory.stats().host_bytes;
    for (map, core) in [(0b01, 0), (0b10, 1)] {
        let refused = rig.dma.init_cores(map, false).unwrap_err();
        let expected = DmaError::EngineDown {
            core: CoreId::new(core),
            engine: EngineId::new(128),
        };
        assert_eq!((refused, refused.errno()), (expected, Errno::EINVAL));
        // Its own 16 engines are programmed all the same.
        assert_eq!(writes(&rig), 16 * 139);
        assert_eq!(rig.memory.stats().host_bytes, before);
    }
    rig.dma.init_cores(0b11, false).unwrap();
    rig.dma.close_cores(0b01);
    rig.dma.init_cores(0b01, false).unwrap();
    assert!(rig.dma.queue_state(CoreId::new(0)).is_some());
}

#[test]
fn a_ring_that_was_closed_gives_its_memory_back_and_can_be_opened_again() {
    let rig = Rig::bare(Arch::V2);
    rig.dma.init_cores(0b01, false).unwrap();
    let open = rig.memory.stats().host_bytes;
    let bytes = pattern(4, 5000);
    rig.machine.store(rig.host(0).at, &bytes);
    rig.up(0, 5000).unwrap();
    writes(&rig);
    rig.dma.close_cores(ALL);
    assert_eq!(writes(&rig), 0);
    assert!(rig.memory.stats().host_bytes < open);
    assert_eq!(rig.up(0, 5000).unwrap_err().errno(), Errno::EPERM);
    assert_eq!(rig.dma.queue_state(CoreId::new(0)), None);
    rig.dma.init_cores(0b01, false).unwrap();
    assert_eq!(rig.memory.stats().host_bytes, open);
    rig.up(8192, 5000).unwrap();
    // The count goes on: the machine's has not begun anew.
    assert_eq!(rig.queue().announced, 4);
}

#[test]
fn what_is_under_way_when_a_ring_is_closed_is_lost_and_told() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang]);
    let handle = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.heard.take();
    rig.dma.close_cores(ALL);
    let told = rig.heard.take();
    assert!(matches!(
        told[0],
        (_, Event::BatchFailed { context: 1, .. })
    ));
    // Nobody waits on a core that is down.
    assert_eq!(rig.wait(handle), Ok(()));
    rig.dma.bring_up(CoreId::new(0)).unwrap();
    assert_eq!(rig.wait(handle).unwrap_err().errno(), Errno::EINVAL);
    rig.machine.script(&[Mode::Normal]);
    rig.dma.fill(PID, hbm(0), 100, 7).unwrap();
    assert_eq!(rig.machine.load(hbm(0).at, 100), [7; 100]);
}

#[test]
fn everything_is_given_back_when_the_op_layer_goes() {
    let rig = Rig::bare(Arch::V3);
    let before = rig.memory.stats().host_bytes;
    rig.dma.init_cores(ALL, true).unwrap();
    rig.dma.close_cores(0b100);
    drop(rig.dma);
    assert_eq!(rig.memory.stats().host_bytes, before);
}

/// Since V3 two cores share an engine, but no ring, and so no lock.
#[test]
fn a_copy_that_waits_does_not_hold_up_the_other_core_of_its_engine() {
    let rig = Rig::bare(Arch::V3);
    let [waiting, other] = [0, 1].map(CoreId::new);
    for core in [waiting, other] {
        rig.dma.bring_up(core).unwrap();
    }
    let on = |core, place: Place| Place { core, ..place };
    // The wait of the first copy does not begin before somebody stands in line.
    rig.machine.gate.store(1, Ordering::SeqCst);
    let source = rig.host(0);
    thread::scope(|scope| {
        let held = scope.spawn(|| rig.dma.copy(PID, source, on(waiting, hbm(0)), 8));
        while rig.machine.state().doorbells.len() < 2 {
            thread::yield_now();
        }
        let target = on(other, hbm(4096));
        let started = rig.dma.copy_async(PID, source, target, 8, WaitHandle::None);
        let in_line = rig.machine.in_line.load(Ordering::SeqCst);
        assert_eq!((in_line, held.is_finished()), (0, false));
        rig.machine.gate.store(0, Ordering::SeqCst);
        held.join().unwrap().unwrap();
        rig.dma.wait(PID, source, target, started.unwrap()).unwrap();
    });
}

/// The reference lets a wait look at the ring while a copy works on it.
#[test]
fn a_wait_stands_in_line_for_its_ring() {
    let rig = Rig::new();
    let handle = rig.up_async(0, 8, WaitHandle::None).unwrap();
    rig.machine.gate.store(1, Ordering::SeqCst);
    thread::scope(|scope| {
        let held = scope.spawn(|| rig.up(4096, 8));
        while rig.machine.state().doorbells.len() < 4 {
            thread::yield_now();
        }
        rig.wait(handle).unwrap();
        held.join().unwrap().unwrap();
    });
    assert_eq!(rig.machine.in_line.load(Ordering::SeqCst), 1);
    assert_eq!(rig.queue().acked, rig.queue().next);
}
