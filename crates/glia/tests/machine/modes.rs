//! A machine in each of its modes: the same bytes, and in the virtual one the same events.

use std::sync::{Arc, Mutex};

use glia::machine::{Machine, MachineConfig, MachineError, Model, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem_usage::MemUsage;
use glia_abi::sched::Tick;
use glia_device::sched::Client;
use glia_runtime::{AllocSpec, Core, Runtime, RuntimeConfig};

const DEVICE: DeviceId = DeviceId::new(0);
const PROCESSES: u32 = 4;
const SIZE_BYTES: usize = 3 * 4096 + 20;

/// Keeps all events.
#[derive(Default)]
struct Recorder(Mutex<Vec<(Tick, Ids, Event)>>);

impl Sink for Recorder {
    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        self.0.lock().unwrap().push((at, *ids, *event));
    }
}

fn machine(model: Model, mode: SchedMode, sink: Arc<dyn Sink>) -> Machine {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        sink,
        ..MachineConfig::new(model).with_mode(mode)
    };
    Machine::new(config).unwrap()
}

/// What a process does: allocates, writes, reads back, frees, again and again.
fn work(machine: &Machine, process: u32, rounds: u8) {
    let pid = Pid::new(100 + process);
    let config = RuntimeConfig::default();
    let runtime = Runtime::open(machine.process(pid), &[DEVICE], config).unwrap();
    let core = Core {
        device: DEVICE,
        core: CoreId::new(process % 2),
    };
    for round in 0..rounds {
        let spec = AllocSpec::device(SIZE_BYTES as u64, MemUsage::Tensor);
        let tensor = runtime.allocate(core, &spec).unwrap();
        let salt = round.wrapping_mul(31) ^ u8::try_from(process).unwrap();
        let bytes: Vec<u8> = (0..=250)
            .cycle()
            .take(SIZE_BYTES)
            .map(|byte: u8| byte ^ salt)
            .collect();
        tensor.write(0, &bytes).unwrap();
        let mut read = vec![0; SIZE_BYTES];
        tensor.read(0, &mut read).unwrap();
        assert!(read == bytes, "process {process}, round {round}");
    }
}

/// Several processes at once; whatever they take they give back.
fn processes_find_their_bytes(machine: &Machine, rounds: u8) {
    let books = || {
        let stats = machine.driver().memory(DEVICE).unwrap().stats();
        (stats.host_bytes, stats.device_bytes, stats.chunks)
    };
    let before = books();
    let clients = (0..PROCESSES).map(|process| {
        let run: Client<'_> = Box::new(move || work(machine, process, rounds));
        run
    });
    machine.run_clients(clients.collect()).unwrap();
    assert_eq!(books(), before);
}

#[test]
fn processes_find_their_bytes_in_every_mode() {
    let modes = [
        SchedMode::Inline,
        SchedMode::THREADED,
        SchedMode::Threaded { threads: 1 },
        SchedMode::Virtual { seed: 1 },
        SchedMode::Virtual { seed: 2 },
    ];
    for model in [Model::Trn1, Model::Trn2] {
        for mode in modes {
            let machine = machine(model, mode, Arc::new(Recorder::default()));
            processes_find_their_bytes(&machine, 4);
        }
    }
}

#[test]
fn a_threaded_machine_stands_a_long_stress() {
    let quiet = Arc::new(glia_abi::event::NoSink);
    let machine = machine(Model::Trn1, SchedMode::THREADED, quiet);
    for _ in 0..5 {
        processes_find_their_bytes(&machine, 100);
    }
}

/// All events of a machine from its beginning to its end.
fn events(seed: u64) -> Vec<(Tick, Ids, Event)> {
    let recorder = Arc::new(Recorder::default());
    let mode = SchedMode::Virtual { seed };
    let machine = machine(Model::Trn1, mode, Arc::clone(&recorder) as _);
    processes_find_their_bytes(&machine, 3);
    drop(machine);
    std::mem::take(&mut *recorder.0.lock().unwrap())
}

#[test]
fn a_seed_decides_every_event_and_its_time() {
    for seed in 0..5 {
        let first = events(seed);
        assert!(first.len() > 100, "{}", first.len());
        let again = events(seed);
        let differ = first
            .iter()
            .zip(&again)
            .find(|(first, again)| first != again);
        assert_eq!(differ, None, "seed {seed}");
        assert_eq!(first.len(), again.len(), "seed {seed}");
        assert!(first != events(seed + 100), "seed {seed}");
    }
}

#[test]
fn hundreds_of_seeds_break_nothing() {
    let quiet: Arc<dyn Sink> = Arc::new(glia_abi::event::NoSink);
    for seed in 0..200 {
        let mode = SchedMode::Virtual { seed };
        let machine = machine(Model::Trn1, mode, Arc::clone(&quiet));
        processes_find_their_bytes(&machine, 3);
    }
}

#[test]
fn a_machine_without_threads_is_an_error_that_says_so() {
    let config = MachineConfig {
        mode: SchedMode::Threaded { threads: 0 },
        ..MachineConfig::new(Model::Trn1)
    };
    let error = Machine::new(config).err().unwrap();
    assert!(matches!(error, MachineError::Threads(_)));
    assert_eq!(
        error.to_string(),
        "0 threads cannot run a machine: 1 to 256 can"
    );
}

#[test]
fn a_timing_or_a_weak_order_in_real_time_is_an_error_that_says_so() {
    let timed = MachineConfig {
        mode: SchedMode::THREADED,
        ..MachineConfig::new(Model::Trn1).with_mode(SchedMode::Virtual { seed: 1 })
    };
    let untimed = MachineConfig {
        timing: None,
        ..timed.clone()
    };
    for config in [timed, untimed] {
        let error = Machine::new(config).err().unwrap();
        assert!(matches!(error, MachineError::ThreadedTiming));
        assert!(error.to_string().contains("the inline or the virtual mode"));
    }
}
