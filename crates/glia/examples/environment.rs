//! A program that goes by the environment, as programs of the C API do. Try
//! `NEURON_RT_VISIBLE_CORES=3-4 NEURON_RT_LOG_LEVEL=INFO`.

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::handle::{DeviceId, Pid};
use glia_runtime::{Placement, Runtime, RuntimeConfig, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::new(MachineConfig {
        devices: 2,
        ..MachineConfig::new(Model::Trn2)
    })?;
    let config = RuntimeConfig::from_env(|name| std::env::var(name).ok())?;
    let devices = [0, 1].map(|number| (DeviceId::new(number), machine.arch()));
    let cores = config.logical_cores(&devices)?;
    println!(
        "log: {:?} and worse, {:?}",
        config.log_level, config.log_location
    );
    println!("{} of {} logical cores", cores.len(), cores.total());

    let process = machine.process(Pid::new(100));
    let runtime = Runtime::open(process, &cores.devices(), config)?;
    for vnc in (0..).map_while(|vnc| cores.get(vnc)) {
        let kv = Tensor::allocate(&runtime, vnc.first(), Placement::Device, 1 << 20, "kv")?;
        let stats = runtime.memory_stats(vnc.first())?;
        let site = kv.memory().and_then(|memory| memory.facts().site.clone());
        let site = site.map_or_else(String::new, |site| site.to_string());
        println!(
            "{}, physical cores {:?}: {} bytes in use, from {site}",
            vnc.device, vnc.cores, stats.used_bytes
        );
    }
    Ok(())
}
