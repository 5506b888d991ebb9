//! What machines take of the memory of their process, before anybody uses them and for good. The
//! tests are alone in their process, and one at a time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Instant;

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem_usage::MemUsage;
use glia_runtime::{AllocSpec, Core, Runtime, RuntimeConfig, ScratchVariable};

static ALONE: Mutex<()> = Mutex::new(());

/// Bytes of this process that lie in memory.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Of those, bytes that are no file's: code that runs for the first time is not counted.
fn own_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

/// A Trn2 instance: 1.5 TiB of HBM, 128 rings for copies.
#[test]
fn sixteen_trn2_devices_come_up_in_less_than_100_mib() {
    let _alone = ALONE.lock();
    let before = resident_bytes();
    let began = Instant::now();
    let machine = Machine::new(MachineConfig {
        devices: 16,
        ..MachineConfig::new(Model::Trn2)
    })
    .unwrap();
    let took = began.elapsed();
    let taken = resident_bytes().saturating_sub(before);
    println!("16 devices: {took:?}, {} KiB", taken >> 10);
    assert_eq!(machine.devices().len(), 16);
    assert!(taken < 100 << 20, "{taken} bytes");
}

/// What a model of a job takes: code, constants, rings, a tensor, a piece of the scratchpad.
fn load_and_unload(runtime: &Runtime, core: Core) {
    let model = runtime.load_model(core, "model.neff").unwrap();
    let parts = [
        (MemUsage::InstrPe, 3_000_000),
        (MemUsage::Weight, 70_000),
        (MemUsage::DmaRingIo, 44_000),
        (MemUsage::DmaRingSpill, 4096),
        (MemUsage::Tensor, 1_000_000),
    ];
    let parts = parts.map(|(usage, size_bytes)| {
        model
            .allocate(&AllocSpec {
                hint: Some("part"),
                ..AllocSpec::device(size_bytes, usage)
            })
            .unwrap()
    });
    parts[1].write(0, &[7; 4096]).unwrap();
    let variable = ScratchVariable {
        offset_bytes: 0,
        size_bytes: 100_000,
    };
    model.reserve_scratchpad(&[variable]).unwrap();
    // Some references outlive their model, as users' do.
    drop(model);
    assert!(parts[1].write(0, &[7]).is_err());
}

#[test]
fn ten_thousand_loads_and_unloads_leave_counters_and_memory_as_after_the_first() {
    const CYCLES: usize = 10_000;
    /// Five parts and a page come and go.
    const EVENTS_OF_CYCLE: usize = 12;
    let _alone = ALONE.lock();
    let device = DeviceId::new(0);
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let config = RuntimeConfig::default();
    let events_max = config.events_max;
    assert_eq!(events_max, 1 << 20);
    let process = machine.process(Pid::new(9));
    let runtime = Runtime::open(process as Arc<_>, &[device], config).unwrap();
    let core = Core {
        device,
        core: CoreId::new(3),
    };
    let books = || {
        let present: Vec<_> = runtime.usage(device).unwrap().banks;
        let stats = machine.driver().memory(device).unwrap().stats();
        (
            present
                .iter()
                .map(|bank| bank.present_bytes)
                .collect::<Vec<_>>(),
            present
                .iter()
                .map(|bank| bank.peak_bytes)
                .collect::<Vec<_>>(),
            (stats.chunks, stats.host_bytes, stats.device_bytes),
        )
    };
    // Copies go round in rings, which take memory as they are used for the first time.
    let tensor = AllocSpec::device(4096, MemUsage::Tensor);
    let tensor = runtime.allocate(core, &tensor).unwrap();
    for _ in 0..CYCLES {
        tensor.write(0, &[7; 4096]).unwrap();
    }
    drop(tensor);
    // The ring of events takes memory as it fills, and each model has names of its own in it. They
    // are forgotten together, once half as many as are needed have no event any more.
    let cycles_of_ring = events_max / EVENTS_OF_CYCLE;
    for _ in 0..cycles_of_ring * 8 / 5 {
        load_and_unload(&runtime, core);
    }
    load_and_unload(&runtime, core);
    let (books_after_first, memory_after_first) = (books(), own_bytes());
    for _ in 1..CYCLES {
        load_and_unload(&runtime, core);
    }
    assert_eq!(books(), books_after_first);
    let more = own_bytes().saturating_sub(memory_after_first);
    println!("{CYCLES} cycles: {more} bytes more than after the first");
    // The heap has its own way with pages. A leak of 16 bytes a cycle would be more.
    assert!(more < 16 * CYCLES as u64, "{more} bytes");
}
