//! A machine from a TOML document, and two programs whose tensors share a device: what one writes
//! lies in HBM until it ends.

use glia::machine::{Machine, MachineConfig};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_runtime::dml::ReportProfile;
use glia_runtime::{Core, Placement, Runtime, RuntimeConfig, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = MachineConfig::from_toml("machine = \"trn2\"\nhbm_fill = 0xA5")?;
    let machine = Machine::new(config)?;
    let device = DeviceId::new(0);
    let open = |pid| {
        let process = machine.process(Pid::new(pid));
        Runtime::open(process, &[device], RuntimeConfig::default())
    };

    let (trainer, loader) = (open(100)?, open(200)?);
    let core = |core| Core {
        device,
        core: CoreId::new(core),
    };
    let weights = Tensor::allocate(&trainer, core(0), Placement::Device, 1 << 30, "weights")?;
    let batch = Tensor::allocate(&loader, core(1), Placement::Device, 64 << 20, "batch")?;
    weights.write(0, b"what the trainer knows")?;
    batch.write(0, b"what the loader has read")?;

    let head = weights.slice(0, 22, "head")?;
    let mut back = [0; 22];
    head.read(0, &mut back)?;
    println!("{}", String::from_utf8_lossy(&back));
    let usage = trainer.usage(device)?;
    println!("{}", usage.text(ReportProfile::default()));
    Ok(())
}
