//! Scrubbing HBM through the front door: every byte behind the carveout, and none before it.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, Fd, Pid};
use glia_abi::ioctl::{self, HbmScrubStart, HbmScrubWait};
use glia_abi::params::ModuleParams;
use glia_abi::transport::{OpenMode, Transport};
use zerocopy::IntoBytes;

const MIB: u64 = 1 << 20;
const REGION: u64 = 48 * MIB;
const CARVEOUT: u64 = 16 * MIB;
const FILL: u8 = 0xee;

/// A machine with channels of 48 MiB.
fn machine(model: Model) -> Machine {
    machine_in(SchedMode::Inline, model)
}

fn machine_in(mode: SchedMode, model: Model) -> Machine {
    Machine::new(MachineConfig {
        scale: Scale::RegionSize { size_bytes: REGION },
        params: ModuleParams {
            mempool_small_pool_size: 4 * MIB,
            ..ModuleParams::default()
        },
        hbm_fill: FILL,
        ..MachineConfig::new(model).with_mode(mode)
    })
    .unwrap()
}

/// All bytes of a channel.
fn bytes(machine: &Machine, channel: u32) -> Vec<u8> {
    let device = &machine.devices()[0];
    let region = device.layout().regions().nth(channel as usize).unwrap();
    let mapping = device.mapping(region.start(), REGION).unwrap();
    let mut bytes = vec![0; usize::try_from(REGION).unwrap()];
    mapping.read(0, &mut bytes).unwrap();
    bytes
}

fn start(process: &dyn Transport, fd: Fd, hbm_index: u32, init_val: u32) -> Result<i32, Errno> {
    let mut argument = HbmScrubStart {
        nc_id: 1,
        hbm_index,
        axi_port: 0,
        init_val,
    };
    let word = ioctl::HBM_SCRUB_START;
    process.ioctl(fd, word, argument.as_mut_bytes(), &mut [])
}

fn wait(process: &dyn Transport, fd: Fd, hbm_index: u32) -> Result<i32, Errno> {
    let mut argument = HbmScrubWait {
        nc_id: 1,
        hbm_index,
    };
    let word = ioctl::HBM_SCRUB_WAIT;
    process.ioctl(fd, word, argument.as_mut_bytes(), &mut [])
}

#[test]
fn a_channel_holds_the_word_from_the_carveout_to_its_end_and_the_others_are_left_alone() {
    for model in Model::ALL {
        let machine = machine(model);
        let process = machine.process(Pid::new(7));
        let fd = process.open(DeviceId::new(0), OpenMode::ReadWrite).unwrap();
        let before = machine.driver().memory(DeviceId::new(0)).unwrap().stats();
        for (channel, word) in [(1, 0x0403_0201_u32), (1, 0), (0, 0xffff_fffe)] {
            start(&*process, fd, channel, word).unwrap();
            wait(&*process, fd, channel).unwrap();
            let bytes = bytes(&machine, channel);
            let (carveout, scrubbed) = bytes.split_at(usize::try_from(CARVEOUT).unwrap());
            assert!(carveout.iter().all(|&byte| byte == FILL), "{model:?}");
            let (words, rest) = scrubbed.as_chunks();
            assert!(words.iter().all(|&found| found == word.to_le_bytes()));
            assert!(rest.is_empty());
        }
        let after = machine.driver().memory(DeviceId::new(0)).unwrap().stats();
        assert_eq!(after, before, "{model:?}");
        if model != Model::Trn1 {
            assert!(bytes(&machine, 2).iter().all(|&byte| byte == FILL));
        }
    }
}

#[test]
fn a_process_that_is_gone_has_left_the_channel_free() {
    let machine = machine(Model::Trn2);
    let process: Arc<dyn Transport> = machine.process(Pid::new(7));
    let fd = process.open(DeviceId::new(0), OpenMode::ReadWrite).unwrap();
    start(&*process, fd, 3, 5).unwrap();
    process.close(fd).unwrap();
    let other = machine.process(Pid::new(8));
    let fd = other.open(DeviceId::new(0), OpenMode::ReadWrite).unwrap();
    start(&*other, fd, 3, 6).unwrap();
    wait(&*other, fd, 3).unwrap();
}

/// Sixteen engines share two threads, or chance orders what they do.
#[test]
fn a_scrub_ends_well_in_every_mode() {
    for mode in [SchedMode::THREADED, SchedMode::Virtual { seed: 3 }] {
        for model in Model::ALL {
            let machine = machine_in(mode, model);
            let process = machine.process(Pid::new(7));
            let fd = process.open(DeviceId::new(0), OpenMode::ReadWrite).unwrap();
            start(&*process, fd, 1, 0x5555_5555).unwrap();
            wait(&*process, fd, 1).unwrap();
            let bytes = bytes(&machine, 1);
            let scrubbed = &bytes[usize::try_from(CARVEOUT).unwrap()..];
            assert!(
                scrubbed.iter().all(|&byte| byte == 0x55),
                "{mode:?} {model:?}"
            );
        }
    }
}
