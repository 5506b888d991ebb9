//! Files of machines in virtual time.

use std::fs;
use std::io::BufWriter;
use std::sync::Arc;

use glia::events::EventLog;
use glia::machine::{Client, Machine, MachineConfig, Model, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::event::Detail;
use glia_abi::handle::{Channel, CoreId, DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device, Transfer};
use serde_json::Value;
use tempfile::NamedTempFile;

/// Three descriptors and a marker, then two batches: a full one, and one of two descriptors.
const SIZES_BYTES: [u64; 2] = [2 * 65_536 + 100, 2032 * 65_536 + 65_537];

/// What two processes do beside each other.
fn work(machine: &Machine, pid: u32) {
    let device = Device::open(machine.process(Pid::new(pid)), DeviceId::new(0)).unwrap();
    for size_bytes in SIZES_BYTES {
        let chunk = || {
            device.allocate(&ChunkSpec {
                size_bytes,
                align_bytes: 0,
                location: Location::Device,
                channel: Channel::new(0),
                core: CoreId::new(pid % 2),
                category: Category::TENSORS_DEVICE,
            })
        };
        let (source, target) = (chunk().unwrap(), chunk().unwrap());
        device
            .copy(&Transfer {
                source,
                target,
                size_bytes,
                source_offset_bytes: 0,
                target_offset_bytes: 0,
            })
            .unwrap();
        device.free(source).unwrap();
        device.free(target).unwrap();
    }
}

/// The event file of a machine on which they do it.
fn file(model: Model, mode: SchedMode, detail: Detail) -> String {
    let file = NamedTempFile::new().unwrap();
    let out = BufWriter::new(file.reopen().unwrap());
    let log = Arc::new(EventLog::new(out, detail, "two copies"));
    let machine = Machine::new(MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 1 << 30,
        },
        sink: Arc::clone(&log) as _,
        ..MachineConfig::new(model).with_mode(mode)
    })
    .unwrap();
    let shared = &machine;
    let clients = [10, 11].map(|pid| -> Client<'_> { Box::new(move || work(shared, pid)) });
    machine.run_clients(clients.into()).unwrap();
    drop(machine);
    let written = log.finish().unwrap();
    let text = fs::read_to_string(file.path()).unwrap();
    assert_eq!(events(&text).len() as u64, written);
    text
}

fn virtual_file(model: Model, seed: u64) -> String {
    file(model, SchedMode::Virtual { seed }, Detail::Descriptors)
}

/// The events of a file, in which each has the number of those before it.
fn events(text: &str) -> Vec<Value> {
    let mut lines = text.lines();
    let header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(
        (&header["format"], &header["version"]),
        (&"glia-events".into(), &1.into())
    );
    let events: Vec<Value> = lines
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line.get("event").is_some())
        .collect();
    assert!((0..).zip(&events).all(|(n, event)| event["n"] == n));
    events
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap()
}

/// The events of this name and of the same queue.
fn of_queue<'a>(
    events: &'a [Value],
    name: &'a str,
    other: &'a Value,
) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| {
        let is_there = ["device", "engine", "queue"].map(|key| event[key] == other[key]);
        event["event"] == name && is_there == [true; 3]
    })
}

#[test]
fn one_seed_gives_the_same_bytes_and_another_seed_others() {
    for model in [Model::Trn1, Model::Trn2] {
        let first = virtual_file(model, 1);
        assert!(first == virtual_file(model, 1), "{model:?}");
        assert!(first != virtual_file(model, 2), "{model:?}");
    }
}

#[test]
fn what_driver_and_device_say_of_a_batch_joins_up() {
    for (model, mode) in [
        (Model::Trn1, SchedMode::Virtual { seed: 3 }),
        (Model::Trn2, SchedMode::Virtual { seed: 3 }),
        (Model::Trn2, SchedMode::Inline),
        (Model::Trn2, SchedMode::THREADED),
    ] {
        let text = file(model, mode, Detail::Batches);
        let events = events(&text);
        let staged: Vec<_> = events
            .iter()
            .filter(|event| event["event"] == "batch_staged")
            .collect();
        let data_descs: u64 = staged.iter().map(|batch| number(batch, "data_descs")).sum();
        assert_eq!(staged.len(), 2 * 3, "{model:?}, {mode:?}");
        assert_eq!(data_descs, 2 * (3 + 2032 + 2), "{model:?}, {mode:?}");
        for batch in staged {
            let (first, pairs) = (number(batch, "first"), number(batch, "data_descs") + 1);
            assert!([10, 11].contains(&number(batch, "process")));
            for direction in ["tx", "rx"] {
                let mut bells = of_queue(&events, "doorbell", batch);
                let bell = bells.find(|bell| {
                    bell["direction"] == direction && number(bell, "total") == first + pairs
                });
                assert_eq!(number(bell.unwrap(), "descs"), pairs, "{batch}");
            }
            // A run of an engine may be a part of a batch, or reach into the next one.
            let mut executed = 0;
            for run in of_queue(&events, "executed", batch) {
                let (from, descs) = (number(run, "first"), number(run, "descs"));
                let end = (from + descs).min(first + pairs);
                executed += end.saturating_sub(from.max(first));
            }
            assert_eq!(executed, pairs, "{batch}");
        }
        // The markers are words of 4 bytes.
        let bytes_of = |name: &str| -> u64 {
            let named = events.iter().filter(|event| event["event"] == name);
            named.map(|event| number(event, "size_bytes")).sum()
        };
        let moved_bytes = 2 * SIZES_BYTES.iter().sum::<u64>();
        assert_eq!(bytes_of("batch_staged"), moved_bytes);
        assert_eq!(bytes_of("executed"), moved_bytes + 6 * 4);
    }
}

#[test]
fn single_pairs_are_told_only_to_who_wants_them() {
    let mode = SchedMode::Virtual { seed: 5 };
    let moved = |detail| {
        let text = file(Model::Trn2, mode, detail);
        let events = events(&text);
        let moved = events.iter().filter(|event| event["event"] == "moved");
        moved.count()
    };
    assert_eq!(moved(Detail::Batches), 0);
    assert_eq!(moved(Detail::Descriptors), 2 * (4 + 2033 + 3));
}
