//! What is left of the time before a reset, and what is made anew after it.

use std::collections::BTreeMap;

use glia_abi::arch::Arch;
use glia_abi::handle::{Channel, CoreId, EngineId};
use glia_abi::mem::Location;
use glia_abi::regs;
use glia_driver::alloc::AllocRequest;
use glia_driver::dma::reset::ResetOutcome;
use glia_driver::dma::{DmaError, Place, WaitHandle};
use glia_driver::memory::Freed;

use crate::engine::Mode;
use crate::rig::{CORE, PID, Rig, pattern};

const WHOLE_DEVICE: u32 = u32::MAX;

/// A device that is up as the driver brings it up, and nothing told or written yet.
fn up(arch: Arch) -> Rig {
    let rig = Rig::bare(arch);
    rig.dma.init_cores(WHOLE_DEVICE, true).unwrap();
    rig.heard.take();
    rig.machine.state().writes.clear();
    rig
}

fn reset(rig: &Rig, map: u32) {
    rig.dma.reset(PID, map);
    let ended = rig.dma.await_reset(None, &|| false);
    assert_eq!(ended, ResetOutcome::Done);
}

/// The second life of a copy needs its chunks as the first one did.
#[test]
fn a_copy_that_is_staged_again_keeps_its_chunks_though_they_are_freed() {
    const SIZE_BYTES: u64 = 8192;
    let rig = Rig::new();
    let host = AllocRequest::host(SIZE_BYTES);
    let hbm = AllocRequest::device(SIZE_BYTES, Channel::new(0));
    let chunks = [&host, &hbm].map(|request| rig.memory.alloc(PID, request).unwrap());
    let pins = chunks.map(|chunk| rig.memory.pin_owned(chunk).unwrap());
    let place = |chunk: usize, location| Place {
        at: pins[chunk].record().at(),
        location,
        core: CORE,
    };
    let (source, target) = (place(0, Location::Host), place(1, Location::Device));
    let content = pattern(3, SIZE_BYTES as usize);
    rig.machine.store(source.at, &content);
    rig.dma.reset_began();
    // Both hang; staged again, the first comes at once and the second takes its time.
    let late = Mode::Late(5_000);
    rig.machine
        .script(&[Mode::Hang, Mode::Hang, Mode::Normal, late]);
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    let second = rig
        .dma
        .copy_async_holding(PID, source, target, SIZE_BYTES, first, pins)
        .unwrap();

    let freed = chunks.map(|chunk| rig.memory.free(PID, chunk));
    assert_eq!(freed, [Ok(Freed::Held); 2]);
    let others = rig.memory.alloc(PID, &hbm).unwrap();
    let others = rig.memory.chunk(others).unwrap().at();
    assert_ne!(others, target.at, "somebody else has it");
    rig.machine.store(others, &[0xee; SIZE_BYTES as usize]);
    rig.dma.wait(PID, source, target, second).unwrap();
    assert_eq!(rig.machine.load(target.at, SIZE_BYTES as usize), content);
    assert_eq!(
        rig.machine.load(others, SIZE_BYTES as usize),
        [0xee; SIZE_BYTES as usize]
    );
    assert_eq!(rig.memory.stats().held_chunks, 0);
    let next = rig.memory.alloc(PID, &hbm).unwrap();
    assert_eq!(rig.memory.chunk(next).unwrap().at(), target.at);
}

/// An engine that has a marker in its hands when its core is reset writes it afterwards.
#[test]
fn a_marker_from_before_a_reset_completes_nobody_after_it() {
    let rig = up(Arch::V2);
    rig.machine.script(&[Mode::Straggle, Mode::Hang]);
    let before = rig.up_async(0, 4096, WaitHandle::None).unwrap();
    reset(&rig, 0b01);
    assert!(matches!(rig.wait(before), Err(DmaError::TimedOut(_))));
    let after = rig.up_async(0, 4096, WaitHandle::None).unwrap();
    assert_eq!(after, before, "the same words, if nobody moves on");
    rig.machine.let_stragglers_finish();
    assert!(matches!(rig.wait(after), Err(DmaError::TimedOut(_))));
    rig.machine.script(&[Mode::Normal]);
    rig.up(0, 4096).unwrap();
}

/// By engine, how many of its registers were written since the last time.
fn written(rig: &Rig) -> BTreeMap<u32, usize> {
    let mut written = BTreeMap::new();
    for (at, _) in std::mem::take(&mut rig.machine.state().writes) {
        let engine = match regs::Place::of(rig.profile, at) {
            regs::Place::Queue { queue, .. } => queue.engine,
            regs::Place::Engine { engine, .. } => engine,
            regs::Place::Elsewhere => continue,
        };
        *written.entry(engine.get()).or_default() += 1;
    }
    written
}

/// Programming an engine of a core, one of a ring, and setting a ring up takes so many writes.
const OWN: [usize; 2] = [379, 139];
const OF_RING: [usize; 2] = [377, 131];
const RING: usize = 15;

#[test]
fn a_reset_programs_the_engines_that_it_has_wiped_and_no_others() {
    // Which cores; how often the engine of each ring is programmed, and how many rings it has.
    type Case = (Arch, u32, &'static [(u32, usize, usize)]);
    let cases: [Case; 6] = [
        (Arch::V2, 0b01, &[(32, 1, 1)]),
        (Arch::V2, 0b10, &[(33, 1, 1)]),
        (Arch::V2, WHOLE_DEVICE, &[(32, 1, 1), (33, 1, 1)]),
        // Of two cores that share one, the other one goes on.
        (Arch::V3, 0b10, &[(128, 0, 1)]),
        (Arch::V3, 0b11, &[(128, 1, 2)]),
        (Arch::V3, 0b1101, &[(128, 0, 1), (129, 1, 2)]),
    ];
    for (arch, map, rings) in cases {
        let rig = up(arch);
        let generation = usize::from(arch == Arch::V3);
        let mut expected: BTreeMap<u32, usize> = rings
            .iter()
            .map(|&(engine, programmed, rings)| {
                (engine, programmed * OF_RING[generation] + rings * RING)
            })
            .collect();
        for core in (0..rig.profile.cores).filter(|core| map >> core & 1 != 0) {
            let own = core * 16..core * 16 + 16;
            expected.extend(own.map(|engine| (engine, OWN[generation])));
        }
        reset(&rig, map);
        assert_eq!(written(&rig), expected, "{arch}, cores {map:#b}");
    }
}

/// A ring that was set up before its engine would be wiped out by the programming.
#[test]
fn the_engine_of_a_ring_is_programmed_before_the_ring_is_set_up() {
    for arch in [Arch::V2, Arch::V3] {
        let rig = up(arch);
        let ring = rig.profile.h2t_queue(CoreId::new(0)).unwrap();
        reset(&rig, 0b11);
        let writes = std::mem::take(&mut rig.machine.state().writes);
        let places = writes
            .iter()
            .map(|&(at, _)| regs::Place::of(rig.profile, at));
        let places: Vec<_> = places.collect();
        let of_engine = |engine: EngineId| {
            let of = move |place: &regs::Place| matches!(place, regs::Place::Engine { engine: of, .. } if *of == engine);
            places.iter().rposition(of).unwrap()
        };
        let of_ring = |place: &regs::Place| matches!(place, regs::Place::Queue { queue, .. } if *queue == ring);
        let ring_ends = places.iter().rposition(of_ring).unwrap();
        assert!(of_engine(ring.engine) < ring_ends, "{arch}");
        assert!(of_engine(EngineId::new(0)) < ring_ends, "{arch}");
    }
}
