//! What a copy leaves behind, from the events of driver and device.

use std::sync::{Arc, Mutex};

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::sched::Tick;
use glia_abi::udma::Direction;
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device, Transfer};
use glia_runtime::{AllocSpec, Core, Runtime, RuntimeConfig};

/// Keeps all events.
#[derive(Default)]
struct Recorder(Mutex<Vec<(Ids, Event)>>);

impl Sink for Recorder {
    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        self.0.lock().unwrap().push((*ids, *event));
    }
}

impl Recorder {
    fn take(&self) -> Vec<(Ids, Event)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn recorded() -> (Machine, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let machine = Machine::new(MachineConfig {
        sink: Arc::clone(&recorder) as Arc<_>,
        ..MachineConfig::new(Model::Trn2)
    })
    .unwrap();
    (machine, recorder)
}

/// What passed between driver and device.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traffic {
    doorbells: Vec<(Direction, u32)>,
    acknowledged: Vec<(Direction, u32)>,
    executed: u64,
}

fn traffic(events: &[(Ids, Event)]) -> Traffic {
    let mut traffic = Traffic::default();
    for (_, event) in events {
        match *event {
            Event::Doorbell {
                direction, descs, ..
            } => traffic.doorbells.push((direction, descs)),
            Event::Acknowledged { direction, descs } => {
                traffic.acknowledged.push((direction, descs));
            }
            Event::Executed { descs, .. } => traffic.executed += u64::from(descs),
            _ => {}
        }
    }
    traffic
}

const BOTH: [Direction; 2] = [Direction::Rx, Direction::Tx];

/// Both sides of each batch, destination first.
fn sides(batches: &[u32]) -> Vec<(Direction, u32)> {
    batches
        .iter()
        .flat_map(|&descs| BOTH.map(|direction| (direction, descs)))
        .collect()
}

/// 200 MiB are 3,200 descriptors of 64 KiB: a full batch of 2,032, and 1,168; each has a marker.
#[test]
fn a_copy_of_200_mib_between_chunks_takes_two_batches() {
    let (machine, recorder) = recorded();
    let device = Device::open(machine.process(Pid::new(7)), DeviceId::new(0)).unwrap();
    let spec = ChunkSpec {
        size_bytes: 200 << 20,
        align_bytes: 0,
        location: Location::Device,
        channel: Channel::new(0),
        core: CoreId::new(1),
        category: Category::TENSORS_DEVICE,
    };
    let source = device.allocate(&spec).unwrap();
    let target = device.allocate(&spec).unwrap();
    recorder.take();
    device
        .copy(&Transfer {
            source,
            target,
            size_bytes: 200 << 20,
            source_offset_bytes: 0,
            target_offset_bytes: 0,
        })
        .unwrap();
    let events = recorder.take();
    let wanted = Traffic {
        doorbells: sides(&[2033, 1169]),
        acknowledged: sides(&[2033, 1169]),
        executed: 3202,
    };
    assert_eq!(traffic(&events), wanted);
    let staged: Vec<(u64, u32, u64)> = events
        .iter()
        .filter_map(|(_, event)| match *event {
            Event::BatchStaged {
                first,
                data_descs,
                size_bytes,
                ..
            } => Some((first, data_descs, size_bytes)),
            _ => None,
        })
        .collect();
    assert_eq!(
        staged,
        [
            (0, 2032, 133_169_152),
            (2033, 1168, (200 << 20) - 133_169_152)
        ]
    );
    let moved: u64 = events
        .iter()
        .map(|(_, event)| match *event {
            Event::Executed { size_bytes, .. } => size_bytes,
            _ => 0,
        })
        .sum();
    assert_eq!(moved, (200 << 20) + 2 * 4, "the bytes and two markers");
    let core_1 = machine.arch().profile().h2t_queue(CoreId::new(1));
    assert!(events.iter().all(|(ids, event)| {
        !matches!(event, Event::Doorbell { .. } | Event::Executed { .. }) || ids.queue == core_1
    }));
}

/// A tensor goes through the halves of the core's copy buffer: 200 pieces of 1 MiB, each of 16
/// descriptors and a marker.
#[test]
fn a_tensor_of_200_mib_is_written_in_pieces_of_a_mebibyte() {
    let (machine, recorder) = recorded();
    let runtime = Runtime::open(
        machine.process(Pid::new(7)),
        &[DeviceId::new(0)],
        RuntimeConfig::default(),
    )
    .unwrap();
    let core = Core {
        device: DeviceId::new(0),
        core: CoreId::new(0),
    };
    let tensor = runtime
        .allocate(core, &AllocSpec::device(200 << 20, MemUsage::Tensor))
        .unwrap();
    recorder.take();
    tensor.write(0, &vec![0x5a; 200 << 20]).unwrap();
    let wanted = Traffic {
        doorbells: sides(&[17; 200]),
        acknowledged: sides(&[17; 200]),
        executed: 3400,
    };
    assert_eq!(traffic(&recorder.take()), wanted);
}
