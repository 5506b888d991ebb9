//! What a run has exercised.

use std::sync::Arc;

use glia::coverage::{CommandCoverage, Coverage, CoverageReport};
use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::arch::Scale;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::ioctl;
use glia_abi::mem::Location;
use glia_abi::transport::{OpenMode, Transport};
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device};

const DEVICE: DeviceId = DeviceId::new(0);

fn covered(model: Model) -> (Machine, Arc<Coverage>) {
    let coverage = Arc::new(Coverage::new());
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        sink: Arc::clone(&coverage) as _,
        coverage: Some(Arc::clone(&coverage)),
        ..MachineConfig::new(model)
    };
    (Machine::new(config).unwrap(), coverage)
}

fn command(report: &CoverageReport, word: u32) -> &CommandCoverage {
    let word = format!("{word:#010x}");
    let mut commands = report.commands.iter();
    commands.find(|command| command.word == word).unwrap()
}

#[test]
fn commands_are_counted_by_class_and_by_how_they_were_answered() {
    let (machine, coverage) = covered(Model::Trn2);
    let process = machine.process(Pid::new(7));
    let [full, free] =
        [OpenMode::ReadWrite, OpenMode::WriteOnly].map(|mode| process.open(DEVICE, mode).unwrap());
    let ask = |fd, word, bytes: &mut [u8]| process.ioctl(fd, word, bytes, &mut []);
    assert_eq!(ask(full, ioctl::DEVICE_INIT, &mut []), Ok(0));
    assert_eq!(ask(full, ioctl::DEVICE_INIT, &mut []), Ok(0));
    assert_eq!(ask(free, ioctl::DEVICE_INIT, &mut []), Err(Errno::EINVAL));
    assert_eq!(ask(full, ioctl::MEM_FREE, &mut [0; 8]), Err(Errno::EINVAL));
    assert_eq!(ask(full, 0x4e4e_4e4e, &mut [0; 8]), Err(Errno::EINVAL));
    let read = ask(full, ioctl::SEMAPHORE_READ, &mut [0; 8]);
    assert_eq!(read, Err(Errno::EINVAL));

    let report = coverage.report();
    let init = command(&report, ioctl::DEVICE_INIT);
    assert_eq!(init.name, Some("DEVICE_INIT"));
    assert_eq!((init.classes["built"], init.classes["wrong_lane"]), (2, 1));
    assert_eq!((init.done, init.errors["EINVAL"]), (2, 1));
    let free = command(&report, ioctl::MEM_FREE);
    assert_eq!((free.done, free.errors["EINVAL"]), (0, 1));
    let unknown = command(&report, 0x4e4e_4e4e);
    assert_eq!((unknown.name, unknown.classes["unknown"]), (None, 1));
    let read = command(&report, ioctl::SEMAPHORE_READ);
    assert_eq!(read.name, Some("SEMAPHORE_READ"));
    let classes = read.classes.iter().map(|(&class, &count)| (class, count));
    assert_eq!(classes.collect::<Vec<_>>(), [("unimplemented", 1)]);
    assert_eq!((read.done, read.errors["EINVAL"]), (0, 1));
    // Known and unknown together are all that there are.
    let known = report.commands.iter().filter(|it| it.name.is_some());
    let all = known.count() + report.not_called.len();
    assert_eq!(all, ioctl::COMMANDS.len());
    assert!(report.not_called.iter().any(|it| it.name == "MEMSET"));
}

#[test]
fn registers_are_counted_by_what_they_are() {
    let (machine, coverage) = covered(Model::Trn2);
    let before = coverage.report();
    let process = machine.process(Pid::new(7));
    let device = Device::open(Arc::clone(&process) as Arc<_>, DEVICE).unwrap();
    let spec = ChunkSpec {
        size_bytes: 4096,
        align_bytes: 0,
        location: Location::Device,
        channel: Channel::new(0),
        core: CoreId::new(0),
        category: Category::TENSORS_DEVICE,
    };
    let chunk = device.allocate(&spec).unwrap();
    process
        .close(process.open(DEVICE, OpenMode::ReadWrite).unwrap())
        .unwrap();
    let writes = |report: &CoverageReport, name: &str| {
        let mut registers = report.registers.iter();
        registers
            .find(|it| it.name == name)
            .map_or(0, |it| it.writes)
    };
    let doorbell = "queue.tx.DrtpInc";
    let rung = writes(&coverage.report(), doorbell);
    let transfer = glia_runtime::ndl::Transfer {
        source: chunk,
        source_offset_bytes: 0,
        target: chunk,
        target_offset_bytes: 2048,
        size_bytes: 1024,
    };
    device.copy(&transfer).unwrap();
    let report = coverage.report();
    assert_eq!(writes(&report, doorbell), rung + 1);
    assert_eq!(writes(&report, "queue.rx.DrtpInc"), rung + 1);
    // The bring-up programs rings, and nobody attaches a completion ring.
    assert!(writes(&before, "queue.tx.DrbpLow") > 0);
    assert!(report.not_accessed.iter().any(|it| it == "queue.tx.Crhp"));
    assert_eq!(report.stray_accesses, 0);
}
