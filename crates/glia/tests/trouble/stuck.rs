//! A queue that is stuck holds up everybody who stands in line for it, and once only.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use glia::machine::{Client as Thread, SchedMode};
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::fault::{FaultKind, FaultRule};
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Tick};
use glia_runtime::ndl::NdlError;

use super::rig::{CORE, DEVICE, Rig, pattern};

const SIZE_BYTES: u64 = 3 * 65_536;
const CLIENTS: u32 = 100;
/// The wait for four descriptors and a marker: the first delay, what follows, and the last look.
fn budget(arch: Arch) -> Micros {
    let per_desc_us = if arch == Arch::V2 { 4 } else { 2 };
    let estimate_us = 3 * per_desc_us;
    Micros(estimate_us * 100 * 100 + estimate_us + 1)
}

/// What is told of the batches that cannot end.
#[derive(Default)]
struct Told {
    /// When the first of them was staged.
    first: Mutex<Option<Tick>>,
    staged: AtomicU64,
    failed: AtomicU64,
    /// Whether the first one is not announced before all have come, which only threads can wait for.
    gathers: bool,
    /// Who has come.
    came: AtomicU32,
}

impl Sink for Told {
    fn event(&self, at: Tick, _ids: &Ids, event: &Event) {
        match event {
            Event::BatchStaged { .. } => {
                self.staged.fetch_add(1, Ordering::Relaxed);
                let mut first = self.first.lock().unwrap();
                let is_first = first.is_none();
                first.get_or_insert(at);
                drop(first);
                if is_first && self.gathers {
                    self.gather();
                }
            }
            Event::BatchFailed { .. } => {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

impl Told {
    /// Lets all others get into the line for the ring, which the caller has.
    fn gather(&self) {
        while self.came.load(Ordering::Relaxed) < CLIENTS {
            std::thread::yield_now();
        }
        // From where they are counted it is a short way.
        for _ in 0..10_000 {
            std::thread::yield_now();
        }
    }
}

/// What came of it.
struct Ended {
    /// How long after the first batch was staged the last caller was told.
    took: Micros,
    /// Batches that were staged: each was waited for once.
    staged: u64,
}

/// All copy on one stuck ring at once. However many of them stage anything, each such batch is a
/// failure of the ring, and its only one.
fn all_fail(arch: Arch, mode: SchedMode) -> Ended {
    let told = Arc::new(Told {
        gathers: !matches!(mode, SchedMode::Virtual { .. }),
        ..Told::default()
    });
    let rig = Rig::new(arch, mode, Arc::clone(&told) as _);
    let last = Mutex::new(Tick(0));
    let opened = rig.open(7).unwrap();
    let chunks: Vec<_> = (0..CLIENTS)
        .map(|_| [Location::Host, Location::Device].map(|at| opened.alloc(at, SIZE_BYTES).unwrap()))
        .collect();
    let rule = rig.plan.add(FaultRule::new(FaultKind::StuckQueue)).unwrap();
    let threads = chunks.iter().map(|&[source, target]| {
        let (rig, opened, told, last) = (&rig, &opened, &told, &last);
        let run: Thread<'_> = Box::new(move || {
            told.came.fetch_add(1, Ordering::Relaxed);
            let error = opened.copy(source, target, SIZE_BYTES).unwrap_err();
            assert!(
                matches!(
                    error,
                    NdlError::Call {
                        errno: Errno::ETIMEDOUT,
                        ..
                    }
                ),
                "{error}"
            );
            let now = rig.machine.sched().now();
            let mut last = last.lock().unwrap();
            *last = (*last).max(now);
        });
        run
    });
    rig.machine.run_clients(threads.collect()).unwrap();
    rig.plan.remove(rule).unwrap();
    let staged = told.staged.load(Ordering::Relaxed);
    assert_eq!(told.failed.load(Ordering::Relaxed), staged);
    let dma = rig.machine.driver().dma(DEVICE).unwrap();
    assert_eq!(dma.queue_state(CORE).unwrap().failures, staged);
    let first = *told.first.lock().unwrap();
    let took = last.into_inner().unwrap().micros() - first.unwrap().micros();
    // The ring lives on.
    let [source, target] = chunks[0];
    let mapping = opened.device.map(source, SIZE_BYTES).unwrap();
    mapping.write(0, &pattern(SIZE_BYTES, 3)).unwrap();
    opened.copy(source, target, SIZE_BYTES).unwrap();
    Ended {
        took: Micros(took),
        staged,
    }
}

#[test]
fn a_hundred_copies_on_a_stuck_queue_end_within_one_budget_of_virtual_time() {
    for arch in [Arch::V2, Arch::V3] {
        for seed in 0..5 {
            let Ended { took, staged } = all_fail(arch, SchedMode::Virtual { seed });
            assert_eq!(
                staged, 1,
                "{arch}, seed {seed}: who stands in line stages nothing"
            );
            let budget = budget(arch);
            assert!(took <= budget, "{arch}, seed {seed}: {took:?}, {budget:?}");
            assert!(
                took.0 > budget.0 / 2,
                "{arch}, seed {seed}: {took:?} is no wait"
            );
        }
    }
}

/// In real time nobody waits longer than one wait takes, since only one of them waits: the others are
/// told what it was told. That is counted, not timed. The wait itself ends when the queue says that
/// nothing can come.
///
/// A thread that is held up between its being counted and the line comes late, and stages anew; few
/// are.
#[test]
fn of_a_hundred_copies_on_a_stuck_queue_one_waits_in_real_time_too() {
    for arch in [Arch::V2, Arch::V3] {
        for mode in [SchedMode::THREADED, SchedMode::Inline] {
            let staged = all_fail(arch, mode).staged;
            assert!(
                staged <= u64::from(CLIENTS) / 4,
                "{arch}, {mode:?}: {staged} of {CLIENTS} have waited"
            );
        }
    }
}
