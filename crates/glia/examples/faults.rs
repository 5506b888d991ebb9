//! A fault on order, in virtual time: the third completion marker is lost, a copy times out at
//! once instead of after its budget, and the next one succeeds.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, SchedMode};
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, Trigger};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_runtime::{Core, Placement, Runtime, RuntimeConfig, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Arc::new(FaultPlan::new(0));
    plan.add(FaultRule {
        trigger: Trigger::nth(3),
        ..FaultRule::new(FaultKind::LostMarker)
    })?;
    let machine = Machine::new(MachineConfig {
        faults: plan,
        ..MachineConfig::new(Model::Trn2).with_mode(SchedMode::Virtual { seed: 7 })
    })?;

    let device = DeviceId::new(0);
    let core = Core {
        device,
        core: CoreId::new(0),
    };
    let process = machine.process(Pid::new(100));
    let runtime = Runtime::open(process, &[device], RuntimeConfig::default())?;
    let tensor = Tensor::allocate(&runtime, core, Placement::Device, 4096, "page")?;
    for attempt in 1..=4 {
        match tensor.write(0, &[attempt; 4096]) {
            Ok(()) => println!("write {attempt}: done"),
            Err(error) => println!("write {attempt}: {error}"),
        }
    }
    Ok(())
}
