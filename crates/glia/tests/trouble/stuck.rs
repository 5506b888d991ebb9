//! A queue that is stuck holds up everybody who stands in line for it, and once only.

use std::sync::{Arc, Mutex};

use glia::machine::{Client as Thread, SchedMode};
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::fault::{FaultKind, FaultRule};
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Tick};
use glia_runtime::ndl::NdlError;

use super::rig::{Rig, pattern};

const SIZE_BYTES: u64 = 3 * 65_536;
const CLIENTS: u32 = 100;
/// The wait for four descriptors and a marker: the first delay, what follows, and the last look.
fn budget(arch: Arch) -> Micros {
    let per_desc_us = if arch == Arch::V2 { 4 } else { 2 };
    let estimate_us = 3 * per_desc_us;
    Micros(estimate_us * 100 * 100 + estimate_us + 1)
}

/// When the first batch was staged that cannot end.
#[derive(Default)]
struct FirstStaged(Mutex<Option<Tick>>);

impl Sink for FirstStaged {
    fn event(&self, at: Tick, _ids: &Ids, event: &Event) {
        if let Event::BatchStaged { .. } = event {
            self.0.lock().unwrap().get_or_insert(at);
        }
    }
}

/// All copy on one stuck ring at once; says how long after the first of them the last was told so.
fn all_fail(arch: Arch, mode: SchedMode) -> Micros {
    let staged = Arc::new(FirstStaged::default());
    let rig = Rig::new(arch, mode, Arc::clone(&staged) as _);
    let told = Mutex::new(Tick(0));
    let opened = rig.open(7).unwrap();
    let chunks: Vec<_> = (0..CLIENTS)
        .map(|_| [Location::Host, Location::Device].map(|at| opened.alloc(at, SIZE_BYTES).unwrap()))
        .collect();
    let rule = rig.plan.add(FaultRule::new(FaultKind::StuckQueue)).unwrap();
    let threads = chunks.iter().map(|&[source, target]| {
        let (rig, opened, told) = (&rig, &opened, &told);
        let run: Thread<'_> = Box::new(move || {
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
            let mut told = told.lock().unwrap();
            *told = (*told).max(now);
        });
        run
    });
    rig.machine.run_clients(threads.collect()).unwrap();
    rig.plan.remove(rule).unwrap();
    // The ring lives on.
    let [source, target] = chunks[0];
    let mapping = opened.device.map(source, SIZE_BYTES).unwrap();
    mapping.write(0, &pattern(SIZE_BYTES, 3)).unwrap();
    opened.copy(source, target, SIZE_BYTES).unwrap();
    let (first, last) = (*staged.0.lock().unwrap(), *told.lock().unwrap());
    Micros(last.micros() - first.unwrap().micros())
}

#[test]
fn a_hundred_copies_on_a_stuck_queue_end_within_one_budget_of_virtual_time() {
    for arch in [Arch::V2, Arch::V3] {
        for seed in 0..5 {
            let took = all_fail(arch, SchedMode::Virtual { seed });
            let budget = budget(arch);
            assert!(took <= budget, "{arch}, seed {seed}: {took:?}, {budget:?}");
            assert!(
                took.0 > budget.0 / 2,
                "{arch}, seed {seed}: {took:?} is no wait"
            );
        }
    }
}

/// They end because the queue says that nothing can come; how long that takes is not asked.
#[test]
fn a_hundred_copies_on_a_stuck_queue_end_in_real_time_too() {
    for arch in [Arch::V2, Arch::V3] {
        all_fail(arch, SchedMode::THREADED);
        all_fail(arch, SchedMode::Inline);
    }
}
