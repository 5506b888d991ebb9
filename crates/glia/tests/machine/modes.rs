//! A machine in each of its modes: the same bytes, and in the virtual one the same events.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use glia::machine::{Machine, MachineConfig, MachineError, Model, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::event::{Detail, Event, Ids, Sink};
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, Faults, InternalAlloc, Trigger};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::ioctl;
use glia_abi::mem_usage::MemUsage;
use glia_abi::sched::{Micros, Tick};
use glia_abi::transport::{OpenMode, Transport};
use glia_device::sched::Client;
use glia_runtime::{AllocSpec, Core, Runtime, RuntimeConfig, RuntimeError};
use zerocopy::IntoBytes;

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
    let quiet: Arc<dyn Sink> = Arc::new(glia_abi::event::NoSink);
    for model in [Model::Trn1, Model::Trn2] {
        let machine = machine(model, SchedMode::THREADED, Arc::clone(&quiet));
        for _ in 0..3 {
            processes_find_their_bytes(&machine, 100);
        }
    }
}

/// Hears every descriptor of a machine, and counts how things begin and end.
#[derive(Default)]
struct Ledger {
    heard: AtomicU64,
    /// Files that are open, batches that are under way, chunks that live.
    open: AtomicI64,
    under_way: AtomicI64,
    chunks: AtomicI64,
}

impl Sink for Ledger {
    fn detail(&self) -> Detail {
        Detail::Descriptors
    }

    fn event(&self, _at: Tick, _ids: &Ids, event: &Event) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        let (counter, by) = match event {
            Event::Opened => (&self.open, 1),
            Event::Closed => (&self.open, -1),
            Event::BatchStaged { .. } => (&self.under_way, 1),
            Event::BatchDone { .. } | Event::BatchFailed { .. } => (&self.under_way, -1),
            Event::ChunkTaken { .. } => (&self.chunks, 1),
            Event::ChunkFreed { .. } => (&self.chunks, -1),
            _ => return,
        };
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

impl Ledger {
    fn balance(&self) -> [i64; 3] {
        [&self.open, &self.under_way, &self.chunks].map(|it| it.load(Ordering::Relaxed))
    }
}

/// What fails for a while in each round of a process, for all of them.
const TROUBLE: [FaultKind; 12] = [
    FaultKind::StuckQueue,
    FaultKind::LostMarker,
    FaultKind::LateMarker { delay: Micros(50) },
    FaultKind::PartialBatch { pairs: 1 },
    FaultKind::DelayedRetirement { delay: Micros(50) },
    FaultKind::DmaAbort,
    FaultKind::UncorrectableHbm,
    FaultKind::ResetHang,
    FaultKind::ExhaustedRing,
    FaultKind::ExhaustedProcessSlots,
    FaultKind::FailedHostAlloc,
    FaultKind::FailedInternalAlloc(InternalAlloc::ChunkRecord),
];

/// How often each process changes the plan at least, however slow the machine is on which this runs;
/// each change lasts for so many of its rounds.
const CHANGES_MIN: usize = 2 * TROUBLE.len();
const ROUNDS_OF_A_CHANGE: usize = 10;

/// What became of the rounds of all processes.
#[derive(Default)]
struct Rounds {
    verified: AtomicU64,
    failed: AtomicU64,
    strikes: AtomicU64,
}

/// As [`work`], but everything may fail, and it changes the plan again and again, until the resets are
/// over and every kind of trouble was there.
fn work_in_trouble(
    machine: &Machine,
    plan: &FaultPlan,
    process: u32,
    are_over: &AtomicBool,
    rounds: &Rounds,
) {
    let core = Core {
        device: DEVICE,
        core: CoreId::new(process % 2),
    };
    let try_round = |salt: u8| -> Result<(), RuntimeError> {
        let pid = Pid::new(100 + process);
        let config = RuntimeConfig::default();
        let runtime = Runtime::open(machine.process(pid), &[DEVICE], config)?;
        let spec = AllocSpec::device(SIZE_BYTES as u64, MemUsage::Tensor);
        let tensor = runtime.allocate(core, &spec)?;
        let bytes = vec![salt; SIZE_BYTES];
        let mut read = vec![0; SIZE_BYTES];
        tensor.write(0, &bytes)?;
        tensor.read(0, &mut read)?;
        assert!(read == bytes, "process {process}");
        Ok(())
    };
    let kinds = TROUBLE.into_iter().cycle().skip(process as usize * 3);
    let mut salt = 0_u8;
    for (change, kind) in kinds.enumerate() {
        if change >= CHANGES_MIN && are_over.load(Ordering::Relaxed) {
            break;
        }
        let trigger = Trigger {
            every: Some(20),
            ..Trigger::ALWAYS
        };
        let rule = FaultRule {
            trigger,
            ..FaultRule::new(kind)
        };
        let rule = plan.add(rule).unwrap();
        for _ in 0..ROUNDS_OF_A_CHANGE {
            salt = salt.wrapping_add(1);
            let outcome = match try_round(salt) {
                Ok(()) => &rounds.verified,
                Err(_) => &rounds.failed,
            };
            outcome.fetch_add(1, Ordering::Relaxed);
        }
        let struck = plan.remove(rule).unwrap();
        rounds.strikes.fetch_add(struck.strikes, Ordering::Relaxed);
    }
}

/// Resets one core, the other one, both and the device, again and again.
fn reset_again_and_again(machine: &Machine) {
    let process = machine.process(Pid::new(99));
    let fd = loop {
        // A fault plan may have no slot for it.
        match process.open(DEVICE, OpenMode::ReadWrite) {
            Ok(fd) => break fd,
            Err(_) => machine.sched().pause(),
        }
    };
    for map in [0b01, 0b10, 0b11, u32::MAX].repeat(4) {
        let mut argument = [map, 0_u32];
        let word = ioctl::NC_RESET;
        let asked = process.ioctl(fd, word, argument.as_mut_bytes(), &mut []);
        assert_eq!(asked, Ok(0));
        let mut argument = [99_u32, 77];
        let word = ioctl::NC_RESET_READY;
        let ended = process.ioctl(fd, word, argument.as_mut_bytes(), &mut []);
        assert_eq!((ended, argument[1]), (Ok(0), 0));
    }
    process.close(fd).unwrap();
}

/// Two cores' worth of threads and more, all at once; in real time, so that nobody can say who meets
/// whom.
#[test]
fn a_threaded_machine_stands_changing_faults_and_resets_under_a_listener() {
    for model in [Model::Trn1, Model::Trn2] {
        let (ledger, plan) = (Arc::<Ledger>::default(), Arc::new(FaultPlan::new(1)));
        let config = MachineConfig {
            scale: Scale::RegionSize {
                size_bytes: 64 << 20,
            },
            sink: Arc::clone(&ledger) as _,
            faults: Arc::clone(&plan) as _,
            ..MachineConfig::new(model).with_mode(SchedMode::THREADED)
        };
        let machine = Machine::new(config).unwrap();
        let before = ledger.balance();
        let (are_over, rounds) = (AtomicBool::new(false), Rounds::default());
        let mut clients: Vec<Client<'_>> = vec![Box::new(|| {
            reset_again_and_again(&machine);
            are_over.store(true, Ordering::Relaxed);
        })];
        for process in 0..PROCESSES {
            let (machine, plan, are_over, rounds) = (&machine, &plan, &are_over, &rounds);
            clients.push(Box::new(move || {
                work_in_trouble(machine, plan, process, are_over, rounds);
            }));
        }
        machine.run_clients(clients).unwrap();
        assert!(!plan.is_armed());
        processes_find_their_bytes(&machine, 4);
        assert_eq!(ledger.balance(), before, "{model:?}");
        let heard = ledger.heard.load(Ordering::Relaxed);
        let [verified, failed, strikes] =
            [rounds.verified, rounds.failed, rounds.strikes].map(AtomicU64::into_inner);
        println!(
            "{model:?}: {verified} verified, {failed} failed, {strikes} strikes, {heard} heard"
        );
        assert!(verified > 100 && failed > 0 && strikes > 20, "{model:?}");
        assert!(heard > 10 * verified, "{model:?}");
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
