//! An allocation that fails, and why: HBM that is full of small pieces, every second of them freed.

use glia::machine::Machine;
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem_usage::MemUsage;
use glia_runtime::{AllocSpec, Core, Runtime, RuntimeConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::trn2()?;
    let device = DeviceId::new(0);
    let core = Core {
        device,
        core: CoreId::new(0),
    };
    let process = machine.process(Pid::new(100));
    let runtime = Runtime::open(process, &[device], RuntimeConfig::default())?;

    let piece = AllocSpec {
        hint: Some("activations"),
        ..AllocSpec::device(256 << 20, MemUsage::Tensor)
    };
    let mut pieces: Vec<_> = std::iter::from_fn(|| runtime.allocate(core, &piece).ok()).collect();
    let mut number = 0;
    pieces.retain(|_| {
        number += 1;
        number % 2 == 0
    });

    let weights = AllocSpec::device(512 << 20, MemUsage::Weight);
    if let Err(error) = runtime.allocate(core, &weights) {
        println!("{error}");
        if let Some(explanation) = error.explanation() {
            println!("{}", explanation.words());
        }
    }
    Ok(())
}
