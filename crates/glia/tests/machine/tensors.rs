//! Tensors, batches and scratchpads of the runtime over a whole machine.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_runtime::tensor::{
    Fencing, ReadBatch, ReadOp, WriteBatch, WriteOp, read_batches, write_batches,
};
use glia_runtime::{Core, Placement, Runtime, RuntimeConfig, ScratchVariable, Tensor};

const DEVICE: DeviceId = DeviceId::new(0);
const CORE: Core = Core {
    device: DEVICE,
    core: CoreId::new(0),
};
const SIZE: u64 = 100_000;

fn open(machine: &Machine, pid: u32, config: RuntimeConfig) -> Runtime {
    Runtime::open(machine.process(Pid::new(pid)) as Arc<_>, &[DEVICE], config).unwrap()
}

fn tensor(runtime: &Runtime, name: &str) -> Tensor {
    Tensor::allocate(runtime, CORE, Placement::Device, SIZE, name).unwrap()
}

fn pattern() -> Vec<u8> {
    (0..=250).cycle().take(50_000).collect()
}

/// Zero copies on Trn2, range by range through the copy buffer on Trn1.
#[test]
fn batches_fills_and_copies_move_exactly_their_bytes() {
    for model in [Model::Trn1, Model::Trn2] {
        let machine = Machine::new(MachineConfig::new(model)).unwrap();
        let runtime = open(&machine, 7, RuntimeConfig::default());
        let (source, target) = (tensor(&runtime, "source"), tensor(&runtime, "target"));
        let view = source.slice(5000, 60_000, "view").unwrap();
        let data = pattern();
        let ops = [
            WriteOp {
                offset_bytes: 3,
                bytes: &data,
            },
            WriteOp {
                offset_bytes: 0,
                bytes: &[9],
            },
        ];
        let batch = WriteBatch {
            tensor: &view,
            ops: &ops,
        };
        write_batches(&[batch], Fencing::Fenced).unwrap();

        let (mut back, mut one) = (vec![0; data.len()], [0]);
        let mut all = [ReadOp {
            offset_bytes: 5003,
            into: &mut back,
        }];
        let mut first = [ReadOp {
            offset_bytes: 0,
            into: &mut one,
        }];
        let mut batches = [
            ReadBatch {
                tensor: &source,
                ops: &mut all,
            },
            ReadBatch {
                tensor: &view,
                ops: &mut first,
            },
        ];
        read_batches(&mut batches, Fencing::Fenced).unwrap();
        assert!(back == data && one == [9], "{model:?}");

        view.copy_to(3, &target, 100, 50_000).unwrap();
        target.fill(100, 10, 7).unwrap();
        target.read(100, &mut back).unwrap();
        assert_eq!(back[..12], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 10, 11]);
        assert!(back[12..] == data[12..]);
    }
}

#[test]
fn a_contiguous_scratchpad_grows_and_shrinks_by_pages_of_64_mib() {
    for model in [Model::Trn1, Model::Trn2] {
        let machine = Machine::new(MachineConfig::new(model)).unwrap();
        let config = RuntimeConfig {
            contiguous_scratchpad: true,
            // The gate: not on a core that stands alone on an arch above V2.
            lnc_size: 2,
            ..RuntimeConfig::default()
        };
        let runtime = open(&machine, 7, config);
        let pages = || runtime.scratchpad(CORE).unwrap().pages.len();
        let load = |name, mib: u64| {
            let model = runtime.load_model(CORE, name).unwrap();
            let variable = ScratchVariable {
                offset_bytes: 0,
                size_bytes: mib << 20,
            };
            model.reserve_scratchpad(&[variable]).unwrap();
            model
        };
        let small = load("small", 100);
        assert_eq!(pages(), 2, "{model:?}");
        let large = load("large", 300);
        assert_eq!(pages(), 5);
        drop(large);
        assert_eq!(pages(), 2);
        drop(small);
        assert_eq!(pages(), 0);
    }
}

#[test]
fn with_zero_copy_on_what_is_written_is_read() {
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let config = RuntimeConfig {
        zero_copy: true,
        ..RuntimeConfig::default()
    };
    let runtime = open(&machine, 7, config);
    let (tensor, data) = (tensor(&runtime, "t"), pattern());
    tensor.write(77, &data).unwrap();
    let mut back = vec![0; data.len()];
    tensor.read(77, &mut back).unwrap();
    assert!(back == data);
}
