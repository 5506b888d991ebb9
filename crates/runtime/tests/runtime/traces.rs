//! The events of the reference's trace: what begins, what stops, with which bytes.

use std::sync::{Arc, Mutex};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl;
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_runtime::tensor::{Fencing, ReadBatch, ReadOp, WriteBatch, WriteOp};
use glia_runtime::tensor::{read_batches, write_batches};
use glia_runtime::trace::{TraceId, Tracer};
use glia_runtime::{AllocSpec, Placement, Runtime, RuntimeConfig, Tensor};

use crate::fake::{Fake, core, open_with};

/// Whether it begins, its id, and its bytes as words.
type Heard = (bool, u32, Vec<u64>);

#[derive(Default)]
struct Recorder(Mutex<Vec<Heard>>);

impl Recorder {
    fn hear(&self, begins: bool, id: TraceId, payload: &[u8]) {
        let (words, rest) = payload.as_chunks::<8>();
        assert_eq!(rest.len(), 0);
        let words = words.iter().copied().map(u64::from_le_bytes).collect();
        self.0.lock().unwrap().push((begins, id.number(), words));
    }

    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Tracer for Recorder {
    fn begin(&self, id: TraceId, payload: &[u8]) {
        self.hear(true, id, payload);
    }

    fn stop(&self, id: TraceId, payload: &[u8]) {
        self.hear(false, id, payload);
    }
}

fn opened(fake: &Arc<Fake>) -> (Runtime, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let config = RuntimeConfig {
        tracer: Some(Arc::clone(&recorder) as Arc<dyn Tracer>),
        ..RuntimeConfig::default()
    };
    let (runtime, _) = open_with(fake, config);
    (runtime, recorder)
}

fn begins(id: u32, words: &[u64]) -> Heard {
    (true, id, words.to_vec())
}

fn stops(id: u32, words: &[u64]) -> Heard {
    (false, id, words.to_vec())
}

/// Core 5 is charged, whose HBM is 2; usage 12 is that of tensors.
#[test]
fn the_life_of_a_tensor_is_events_inside_events() {
    let fake = Fake::new(Arch::V3);
    let (runtime, recorder) = opened(&fake);
    let tensor = Tensor::allocate(&runtime, core(5), Placement::Device, 5000, "kv").unwrap();
    let pa = tensor.memory().unwrap().pa().get();
    let own_hbm = 1;
    let wanted = [
        begins(27, &[5000, 5 << 32, 0]),
        begins(34, &[12 << 32 | 2, own_hbm]),
        stops(34, &[5000, pa, 0, 5000, 5000]),
        stops(27, &[pa, 0]),
    ];
    assert_eq!(recorder.take(), wanted);

    let view = tensor.slice(1000, 4000, "view").unwrap();
    view.write(8, &[1; 100]).unwrap();
    view.read(0, &mut [0; 4]).unwrap();
    let wanted = [
        begins(10, &[8, 100]),
        begins(30, &[pa, 1008, 100, 5]),
        stops(30, &[0]),
        stops(10, &[0]),
        begins(9, &[0, 4]),
        begins(31, &[pa, 1000, 4, 5]),
        stops(31, &[0]),
        stops(9, &[0]),
    ];
    assert_eq!(recorder.take(), wanted);

    drop(tensor);
    drop(view);
    let wanted = [
        begins(28, &[0, 5000]),
        stops(28, &[0]),
        begins(28, &[1000, 4000]),
        begins(35, &[pa, 5000, 2]),
        stops(35, &[0, 0, 0]),
        stops(28, &[0]),
    ];
    assert_eq!(recorder.take(), wanted);
}

#[test]
fn batches_are_one_event_each_way() {
    let fake = Fake::new(Arch::V3);
    fake.state().features |= ioctl::feature::ZEROCOPY;
    let (runtime, recorder) = opened(&fake);
    let tensor = Tensor::allocate(&runtime, core(0), Placement::Device, 5000, "kv").unwrap();
    recorder.take();
    let op = |offset_bytes, bytes| WriteOp {
        offset_bytes,
        bytes,
    };
    let (first, second) = ([op(0, &[1; 10][..]), op(20, &[2; 5])], [op(40, &[3; 7])]);
    let batches = [&first[..], &second].map(|ops| WriteBatch {
        tensor: &tensor,
        ops,
    });
    write_batches(&batches, Fencing::Fenced).unwrap();
    let mut into = [0; 6];
    let mut ops = [ReadOp {
        offset_bytes: 40,
        into: &mut into,
    }];
    let mut batches = [ReadBatch {
        tensor: &tensor,
        ops: &mut ops,
    }];
    read_batches(&mut batches, Fencing::Fenced).unwrap();
    let wanted = [
        begins(12, &[2, 3, 22]),
        stops(12, &[0]),
        begins(11, &[1, 1, 6]),
        stops(11, &[0]),
    ];
    assert_eq!(recorder.take(), wanted);
}

#[test]
fn a_failure_stops_its_events_with_its_status() {
    let fake = Fake::new(Arch::V3);
    let (runtime, recorder) = opened(&fake);
    let held = AllocSpec {
        align_bytes: 4096,
        channel: Some(glia_abi::handle::Channel::new(3)),
        ..AllocSpec::device(4096, MemUsage::Weight)
    };
    let held = runtime.allocate(core(0), &held).unwrap();
    let pa = held.pa().get();
    let (aligned, on_another_hbm) = (1 << 8, 0);
    let wanted = [
        begins(34, &[6 << 32 | 3, aligned | on_another_hbm]),
        stops(34, &[4096, pa, 0, 4096, 4096]),
    ];
    assert_eq!(recorder.take(), wanted);

    // NRT_RESOURCE is 4; what is in use is the core's, weights and all.
    let large = Tensor::allocate(&runtime, core(0), Placement::Device, 25 << 30, "large");
    assert!(large.is_err());
    let wanted = [
        begins(27, &[25 << 30, 0, 0]),
        begins(34, &[12 << 32, 1]),
        stops(34, &[0, 0, 4, 0, 4096]),
        stops(27, &[0, 4]),
    ];
    assert_eq!(recorder.take(), wanted);

    fake.fail(ioctl::MEM_COPY_ASYNC64, 0, Errno::EIO);
    assert!(held.write(0, &[1]).is_err());
    fake.fail(ioctl::MEM_FREE, 0, Errno::EINVAL);
    drop(held);
    let wanted = [
        begins(30, &[pa, 0, 1, 0]),
        stops(30, &[1]),
        begins(35, &[pa, 4096, 3]),
        stops(35, &[1, 0, 0]),
    ];
    assert_eq!(recorder.take(), wanted);
}

#[test]
fn what_is_refused_before_it_begins_and_host_memory_are_no_events_of_device_memory() {
    let fake = Fake::new(Arch::V3);
    let (runtime, recorder) = opened(&fake);
    let tensor = Tensor::allocate(&runtime, core(0), Placement::Device, 10, "kv").unwrap();
    recorder.take();
    assert!(tensor.read(9, &mut [0; 2]).is_err());
    assert!(write_batches(&[], Fencing::Fenced).is_err());
    let nowhere = AllocSpec {
        channel: Some(glia_abi::handle::Channel::new(4)),
        ..AllocSpec::device(4096, MemUsage::Weight)
    };
    assert!(runtime.allocate(core(0), &nowhere).is_err());
    let host = AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(64, MemUsage::DmaRing)
    };
    let ring = runtime.allocate(core(0), &host).unwrap();
    let pa = ring.pa().get();
    ring.write(0, &[1]).unwrap();
    drop(ring);
    let wanted = [begins(30, &[pa, 0, 1, 0]), stops(30, &[0])];
    assert_eq!(recorder.take(), wanted);
}
