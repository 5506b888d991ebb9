//! What the runtime tells, with the names that it and the driver use, in the files of whole runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::sync::Arc;

use glia::events::EventLog;
use glia::machine::{Client, Machine, MachineConfig, Model, SchedMode};
use glia::play::{Conditions, play_under};
use glia_abi::arch::Scale;
use glia_abi::event::Detail;
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem_usage::MemUsage;
use glia_runtime::{AllocSpec, Core, Placement, Runtime, RuntimeConfig, Tensor};
use serde_json::Value;
use tempfile::NamedTempFile;

const DEVICES: [DeviceId; 2] = [DeviceId::new(0), DeviceId::new(1)];

/// What is written by whoever gets the log.
fn file(write: impl FnOnce(Arc<EventLog<fs::File>>)) -> String {
    let file = NamedTempFile::new().unwrap();
    let out = file.reopen().unwrap();
    let log = Arc::new(EventLog::new(out, Detail::Batches, "names"));
    write(Arc::clone(&log));
    log.finish().unwrap();
    fs::read_to_string(file.path()).unwrap()
}

/// Two processes, each on a core of two devices, with models and tensors of equal and of different names.
fn two_processes(mode: SchedMode) -> String {
    file(|log| {
        let machine = Machine::new(MachineConfig {
            devices: 2,
            scale: Scale::RegionSize {
                size_bytes: 1 << 30,
            },
            sink: Arc::clone(&log) as _,
            ..MachineConfig::new(Model::Trn1).with_mode(mode)
        })
        .unwrap();
        let work = |pid: u32| {
            let config = RuntimeConfig {
                sink: Arc::clone(&log) as _,
                process: Some(Pid::new(pid)),
                ..RuntimeConfig::default()
            };
            let process = machine.process(Pid::new(pid));
            let runtime = Runtime::open(process, &DEVICES, config).unwrap();
            for device in DEVICES {
                let core = Core {
                    device,
                    core: CoreId::new(pid % 2),
                };
                let model = runtime.load_model(core, "llama").unwrap();
                let weights = AllocSpec {
                    hint: Some("weights"),
                    ..AllocSpec::device(70_000, MemUsage::Weight)
                };
                let weights = model.allocate(&weights).unwrap();
                weights.write(0, &[1; 70_000]).unwrap();
                let name = format!("kv cache of {pid}");
                let cache =
                    Tensor::allocate(&runtime, core, Placement::Device, 4096, &name).unwrap();
                cache.read(0, &mut [0; 4096]).unwrap();
                let huge = AllocSpec {
                    hint: Some("driver dma rings"),
                    ..AllocSpec::device(1 << 40, MemUsage::Tensor)
                };
                assert!(runtime.allocate(core, &huge).is_err());
            }
        };
        let work = &work;
        let clients = [10, 11].map(|pid| -> Client<'_> { Box::new(move || work(pid)) });
        machine.run_clients(clients.into()).unwrap();
    })
}

fn example() -> String {
    let workload = include_str!("../../../../examples/first-tensor.jsonl");
    file(|log| {
        let played = play_under(
            Cursor::new(workload),
            Conditions {
                sink: log,
                ..Conditions::default()
            },
        )
        .unwrap();
        assert!(played.failure.is_none());
    })
}

/// The events of a file with their names put in. Fails if a name is defined twice, is not when it
/// is used, or has the text of another; or if a text is defined and not used.
fn resolved(text: &str) -> Vec<Value> {
    let mut names = BTreeMap::new();
    let mut used = BTreeSet::new();
    let mut events = Vec::new();
    for line in text.lines().skip(1) {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if let Some(name) = line.get("name") {
            let before = names.insert(name.as_u64().unwrap(), line["text"].clone());
            assert_eq!(before, None, "{line}");
            continue;
        }
        for key in ["site", "hint", "model_name"] {
            if let Some(name) = line.get(key).and_then(Value::as_u64) {
                let told = names.get(&name);
                assert!(told.is_some(), "{line}");
                line[key] = told.cloned().into();
                used.insert(name);
            }
        }
        events.push(line);
    }
    let texts: BTreeSet<_> = names.values().map(ToString::to_string).collect();
    assert_eq!(texts.len(), names.len());
    assert_eq!(used.len(), names.len());
    events
}

fn named<'a>(events: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["event"] == name)
}

const MODES: [SchedMode; 3] = [
    SchedMode::Inline,
    SchedMode::THREADED,
    SchedMode::Virtual { seed: 3 },
];

#[test]
fn each_name_is_defined_once_and_before_its_use() {
    let example = resolved(&example());
    let hints: Vec<_> = named(&example, "allocated")
        .map(|event| event["hint"].as_str().unwrap())
        .collect();
    assert_eq!(
        hints,
        [
            "input",
            "layers.0.weight",
            "kv_cache",
            "staging",
            "second_kv_cache"
        ]
    );
    for mode in MODES {
        let events = resolved(&two_processes(mode));
        let count = |event, key: &str, text: &str| {
            let events = named(&events, event);
            events.filter(|event| event[key] == text).count()
        };
        // Both devices, both processes, both layers.
        let rings = named(&events, "chunk_taken");
        let devices: BTreeSet<_> = rings
            .filter(|event| event["site"] == "driver dma rings")
            .map(|event| event["device"].as_u64())
            .collect();
        assert_eq!(devices, BTreeSet::from([Some(0), Some(1)]));
        assert_eq!(count("allocation_failed", "hint", "driver dma rings"), 4);
        assert_eq!(count("model_loaded", "model_name", "llama"), 4);
        assert_eq!(count("allocated", "model_name", "llama"), 4);
        assert_eq!(count("allocated", "hint", "weights"), 4);
        assert_eq!(count("allocated", "hint", "kv cache of 11"), 2);
    }
}

/// By process, too: when one tells that it freed memory, another may have got the handle already.
#[test]
fn an_allocation_joins_the_chunk_of_its_handle() {
    for mode in MODES {
        let events = resolved(&two_processes(mode));
        let ids = ["process", "device", "core", "channel", "handle"];
        for (at, allocated) in (0..).zip(&events) {
            if allocated["event"] != "allocated" {
                continue;
            }
            let is_same = |event: &&Value| ids.iter().all(|id| event[id] == allocated[id]);
            let before = events.iter().take(at).rev();
            let taken = before
                .filter(is_same)
                .find(|event| event["event"] == "chunk_taken");
            let taken = taken.unwrap();
            assert_eq!(taken["at"], allocated["at"]);
            let behind = events.iter().skip(at).filter(is_same);
            let told: Vec<_> = behind.take(4).map(|event| &event["event"]).collect();
            assert_eq!(
                told,
                ["allocated", "copied", "chunk_freed", "freed"],
                "{mode:?}"
            );
        }
        assert_eq!(named(&events, "allocated").count(), 8);
        assert_eq!(named(&events, "copied").count(), 8);
    }
}

#[test]
fn what_the_runtime_opens_it_closes_and_the_driver_is_asked_between() {
    let events = resolved(&example());
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str()).collect();
    let at = |name| names.iter().position(|told| *told == Some(name)).unwrap();
    let order = [
        "opened",
        "runtime_opened",
        "allocated",
        "runtime_closed",
        "closed",
    ];
    assert!(order.map(at).is_sorted());
    assert!(named(&events, "runtime_closed").all(|event| event["process"] == 1000));
}

#[test]
fn one_seed_gives_the_same_bytes_with_names_and_another_seed_others() {
    let seed = |seed| two_processes(SchedMode::Virtual { seed });
    let first = seed(1);
    assert!(first == seed(1));
    assert!(first != seed(2));
}
