//! Ten thousand orders of one load: four processes that allocate, copy, fill, free, reset and go,
//! while things fail now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use glia::machine::{Client as Thread, SchedMode};
use glia_abi::arch::Arch;
use glia_abi::chance::Chance;
use glia_abi::event::{Detail, Event, Ids, Sink};
use glia_abi::fault::{FaultKind, FaultRule, InternalAlloc, Trigger};
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Tick};
use glia_runtime::ndl::WaitHandle;

use super::rig::{Client, Rig, pattern, whole};

const SEEDS: u64 = 10_000;
const PROCESSES: u32 = 4;
const ROUNDS: u64 = 3;

/// A number that follows from every event, its time and its place.
#[derive(Default)]
struct Digest(AtomicU64);

impl Sink for Digest {
    fn detail(&self) -> Detail {
        Detail::Descriptors
    }

    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        let text = format!("{at:?} {ids:?} {event:?}");
        let old = self.0.load(Ordering::Relaxed);
        let new = text.bytes().fold(old, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        self.0.store(new, Ordering::Relaxed);
    }
}

/// What one process does; everything that says it went well is checked.
fn work(rig: &Rig, pid: u32, seed: u64) {
    let mut chance = Chance::of(seed, u64::from(pid));
    for _ in 0..ROUNDS {
        // A machine without a free slot, or without memory for the buffers, lets nobody in.
        let Ok(client) = rig.open(pid) else {
            continue;
        };
        step(rig, &client, &mut chance);
    }
}

fn step(rig: &Rig, client: &Client, chance: &mut Chance) {
    let size_bytes = 1 + chance.below(3 * 65_536);
    let chunks = [Location::Host, Location::Device, Location::Host];
    let chunks = chunks.map(|location| client.alloc(location, size_bytes));
    let [Ok(source), Ok(middle), Ok(back)] = chunks else {
        for chunk in chunks.into_iter().flatten() {
            client.device.free(chunk).unwrap();
        }
        return;
    };
    let content = pattern(size_bytes, chance.below(1000));
    let map = |chunk| client.device.map(chunk, size_bytes).unwrap();
    map(source).write(0, &content).unwrap();
    let came = match chance.below(4) {
        0 => client
            .copy(source, middle, size_bytes)
            .and_then(|()| client.copy(middle, back, size_bytes)),
        1 => {
            let started = client
                .device
                .copy_async(&whole(source, middle, size_bytes), WaitHandle::None);
            started
                .and_then(|handle| client.device.copy_wait(source, middle, handle))
                .and_then(|()| client.copy(middle, back, size_bytes))
        }
        2 => client
            .fill(rig, middle, size_bytes, 0x77)
            .and_then(|()| client.device.buf_write(middle, 0, &content))
            .and_then(|()| client.copy(middle, back, size_bytes)),
        _ => {
            // Goes with a copy under way.
            let copy = whole(source, middle, size_bytes);
            let _ = client.device.copy_async(&copy, WaitHandle::None);
            return;
        }
    };
    if came.is_ok() {
        let mut found = vec![0; content.len()];
        map(back).read(0, &mut found).unwrap();
        assert!(found == content, "wrong bytes in {}", client.process.pid());
    }
    for chunk in [source, middle, back] {
        client.device.free(chunk).unwrap();
    }
}

/// Runs the load in the order of this seed; says what number its events give.
fn run(arch: Arch, seed: u64) -> u64 {
    let digest = Arc::new(Digest::default());
    let rig = Rig::new(arch, SchedMode::Virtual { seed }, Arc::clone(&digest) as _);
    let before = rig.rest();
    for (kind, probability) in [
        (FaultKind::StuckQueue, 0.02),
        (FaultKind::LostMarker, 0.02),
        (FaultKind::LateMarker { delay: Micros(400) }, 0.05),
        (FaultKind::PartialBatch { pairs: 1 }, 0.02),
        (FaultKind::DmaAbort, 0.01),
        (FaultKind::FailedInternalAlloc(InternalAlloc::Request), 0.01),
        (FaultKind::FailedHostAlloc, 0.01),
    ] {
        let trigger = Trigger {
            probability: Some(probability),
            ..Trigger::ALWAYS
        };
        let rule = FaultRule {
            trigger,
            ..FaultRule::new(kind)
        };
        rig.plan.add(rule).unwrap();
    }
    let processes = (0..PROCESSES).map(|number| {
        let rig = &rig;
        let thread: Thread<'_> = Box::new(move || work(rig, 10 + number, seed));
        thread
    });
    let ran = rig.machine.run_clients(processes.collect());
    ran.unwrap_or_else(|error| panic!("{arch}, seed {seed}: {error}"));
    rig.plan.clear();
    let after = rig.rest();
    assert!(
        after == before,
        "{arch}, seed {seed}: {after:?}, before {before:?}"
    );
    digest.0.load(Ordering::Relaxed)
}

#[test]
fn one_seed_gives_one_log_and_another_seed_another() {
    for arch in [Arch::V2, Arch::V3] {
        assert_eq!(run(arch, 1), run(arch, 1));
        assert_ne!(run(arch, 1), run(arch, 2));
    }
}

#[test]
fn ten_thousand_seeds_leave_no_wrong_byte_and_nothing_behind() {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        break;
                    }
                    let arch = if seed.is_multiple_of(2) {
                        Arch::V2
                    } else {
                        Arch::V3
                    };
                    run(arch, seed);
                }
            });
        }
    });
}
