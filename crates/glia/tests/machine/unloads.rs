//! A model that is unloaded while its memory is written: the copy goes on to its end, and then the
//! memory goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glia::machine::{Client, Machine, MachineConfig, Model, SchedMode};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem_usage::MemUsage;
use glia_runtime::{AllocSpec, Core, Runtime, RuntimeConfig, RuntimeError};

const DEVICE: DeviceId = DeviceId::new(0);
const CORE: Core = Core {
    device: DEVICE,
    core: CoreId::new(1),
};
const SIZE: usize = 3 << 20;

/// Whether the model went during the write.
fn unload_beside_a_write(seed: u64) -> bool {
    let config = MachineConfig::new(Model::Trn2).with_mode(SchedMode::Virtual { seed });
    let machine = Machine::new(config).unwrap();
    let process = machine.process(Pid::new(7));
    let runtime = Runtime::open(process as Arc<_>, &[DEVICE], RuntimeConfig::default()).unwrap();
    let live = || machine.driver().memory(DEVICE).unwrap().stats().chunks;
    let before = live();
    let model = runtime.load_model(CORE, "model").unwrap();
    let spec = AllocSpec::device(SIZE as u64, MemUsage::Weight);
    let (weights, other) = (
        model.allocate(&spec).unwrap(),
        model.allocate(&spec).unwrap(),
    );
    let (is_writing, has_gone_meanwhile) = (AtomicBool::new(false), AtomicBool::new(false));

    let writer: Client<'_> = Box::new(|| {
        is_writing.store(true, Ordering::Relaxed);
        let written = weights.write(0, &vec![7; SIZE]);
        is_writing.store(false, Ordering::Relaxed);
        assert!(
            matches!(written, Ok(()) | Err(RuntimeError::Gone)),
            "{written:?}"
        );
    });
    let (is_writing, gone) = (&is_writing, &has_gone_meanwhile);
    let unloader: Client<'_> = Box::new(move || {
        machine_pauses(&other, seed);
        drop(model);
        gone.store(is_writing.load(Ordering::Relaxed), Ordering::Relaxed);
        assert!(matches!(other.write(0, &[1]), Err(RuntimeError::Gone)));
    });
    machine.run_clients(vec![writer, unloader]).unwrap();

    // References are left, and nothing of the device's behind them.
    assert_eq!(live(), before, "seed {seed}");
    assert_eq!(
        runtime
            .usage(DEVICE)
            .unwrap()
            .core(CORE.core)
            .unwrap()
            .present
            .total(),
        0
    );
    assert!(matches!(weights.read(0, &mut [0]), Err(RuntimeError::Gone)));
    has_gone_meanwhile.into_inner()
}

/// A few commands, so that the unload comes at another moment with each seed.
fn machine_pauses(memory: &glia_runtime::Dmem, seed: u64) {
    for _ in 0..seed % 7 {
        memory.write(0, &[0]).unwrap();
    }
}

#[test]
fn memory_of_a_model_that_goes_during_a_write_goes_back_when_the_write_is_over() {
    let met = (0..60).filter(|&seed| unload_beside_a_write(seed)).count();
    assert!(met > 5, "only {met} of 60 unloads fell into the write");
}
