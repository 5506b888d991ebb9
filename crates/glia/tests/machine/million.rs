//! A million operations of the runtime's, by eight threads of four processes on four devices, while
//! things fail: every byte and every counter is right at the end, and nothing is left. Most tensors
//! are small, some have more than a piece of a copy; a tensor of each process is shared by its
//! threads; models are loaded, and unloaded with all that they own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use glia::machine::{Client, Machine, MachineConfig, Model, SchedMode};
use glia_abi::arch::Arch;
use glia_abi::chance::Chance;
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, InternalAlloc, Trigger};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::usage::Counter;
use glia_runtime::tensor::{
    Fencing, ReadBatch, ReadOp, WriteBatch, WriteOp, read_batches, write_batches,
};
use glia_runtime::{
    AllocSpec, Core, Dmem, Placement, Runtime, RuntimeConfig, RuntimeError, Tensor,
};

const DEVICES: u32 = 4;
const PROCESSES: u32 = 4;
const THREADS_OF_EACH: u64 = 2;
const OPERATIONS: u64 = 1_000_000;
const MODELS: [Model; 3] = Model::ALL;
const LIVE_MAX: usize = 24;

/// Of a hundred operations some two meet one of them.
const FAULTS: [(FaultKind, f64); 4] = [
    (FaultKind::LostMarker, 0.004),
    (FaultKind::FailedPin, 0.01),
    (
        FaultKind::FailedInternalAlloc(InternalAlloc::ChunkRecord),
        0.02,
    ),
    (FaultKind::FailedHostAlloc, 0.02),
];

/// One tensor of so many is larger than 1 MiB, by which copies go.
const LARGE_ONE_OF: u64 = 500;
/// Bytes of the shared tensor that belong to one thread: no whole pages, so that two threads write
/// to one.
const SHARE_BYTES: u64 = 10_001;
const MODELS_MAX: usize = 3;

/// A loaded model with blocks, and what has to be in them.
struct Loaded {
    core: Core,
    blocks: Vec<(Dmem, Vec<u8>)>,
    model: glia_runtime::Model,
}

/// A tensor, and what has to be in it.
struct Live {
    tensor: Tensor,
    core: Core,
    bytes: Vec<u8>,
}

/// What a thread does.
struct Load<'a> {
    runtime: &'a Runtime,
    chance: Chance,
    live: Vec<Live>,
    /// A slice of the tensor that all threads of the process share.
    share: Live,
    models: Vec<Loaded>,
    failed: u64,
}

/// What a thread leaves.
struct Left {
    process: u64,
    live: Vec<Live>,
    share: Live,
    models: Vec<Loaded>,
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

impl Load<'_> {
    fn step(&mut self) {
        if self.live.len() < 2 {
            return self.allocate();
        }
        let at = index(self.chance.below(self.live.len() as u64));
        match self.chance.below(18) {
            0 | 1 if self.live.len() < LIVE_MAX => self.allocate(),
            0..=2 => drop(self.live.swap_remove(at)),
            3..=5 => self.write(at),
            6 => self.fill(at),
            7 | 8 => self.copy(at),
            9 => self.write_batch(at),
            10 => self.read_batch(at),
            11 => self.read_slice(at),
            12 => self.use_share(),
            13 => self.use_model(),
            _ => self.read(at),
        }
    }

    /// A place in a tensor: an offset and a length, which may be 0.
    fn place(&mut self, at: usize) -> (usize, usize) {
        let size = self.live[at].bytes.len() as u64;
        let offset = self.chance.below(size);
        let length = self.chance.below(size - offset + 1);
        (index(offset), index(length))
    }

    fn noise(&mut self, length: usize) -> Vec<u8> {
        let (first, step) = (self.chance.number(), self.chance.number() | 1);
        let period = length.min(65_521);
        let numbers = (0..period as u64).map(|n| first.wrapping_add(n.wrapping_mul(step)));
        let mut noise: Vec<u8> = numbers.map(|number| number.to_be_bytes()[0]).collect();
        noise.reserve(length - period);
        while noise.len() < length {
            noise.extend_from_within(..period.min(length - noise.len()));
        }
        noise
    }

    fn core(&mut self) -> Core {
        let device = DeviceId::new(u32::try_from(self.chance.below(DEVICES.into())).unwrap());
        let cores = self.runtime.devices().next().unwrap().profile().cores;
        Core {
            device,
            core: CoreId::new(u32::try_from(self.chance.below(cores.into())).unwrap()),
        }
    }

    /// Writes to this thread's part of the shared tensor, or reads it.
    fn use_share(&mut self) {
        let offset = self.chance.below(SHARE_BYTES);
        let length = index(self.chance.below(SHARE_BYTES - offset + 1));
        let place = index(offset)..index(offset) + length;
        let is_read = self.chance.below(2) == 0;
        let noise = self.noise(length);
        let share = &mut self.share;
        let mut back = vec![0; length];
        let outcome = match is_read {
            true => share.tensor.read(offset, &mut back),
            false => {
                share.bytes[place.clone()].copy_from_slice(&noise);
                share.tensor.write(offset, &noise)
            }
        };
        match outcome {
            Ok(()) => assert!(!is_read || share.bytes[place] == back),
            Err(error) => {
                self.note(&error);
                self.failed += self.share.rewrite();
            }
        }
    }

    /// Loads a model, lets one allocate, looks at what it holds, or unloads it.
    fn use_model(&mut self) {
        let kind = self.chance.below(4);
        if self.models.is_empty() || kind == 0 && self.models.len() < MODELS_MAX {
            let core = self.core();
            let model = self.runtime.load_model(core, "m.neff").unwrap();
            let blocks = Vec::new();
            return self.models.push(Loaded {
                core,
                blocks,
                model,
            });
        }
        let at = index(self.chance.below(self.models.len() as u64));
        if kind == 1 {
            let Loaded { model, blocks, .. } = self.models.swap_remove(at);
            drop(model);
            for (block, _) in blocks {
                assert!(matches!(block.read(0, &mut [0]), Err(RuntimeError::Gone)));
            }
            return;
        }
        let size = 1 + self.chance.below(20_000);
        let noise = self.noise(index(size));
        let loaded = &mut self.models[at];
        if let Some((block, bytes)) = loaded.blocks.last() {
            let mut back = vec![0; bytes.len()];
            match block.read(0, &mut back) {
                Ok(()) => assert!(*bytes == back),
                Err(error) => return self.note(&error),
            }
        }
        let spec = AllocSpec::device(size, MemUsage::Weight);
        match loaded.model.allocate(&spec) {
            Ok(block) => {
                let failed = (0_u64..100).find(|_| block.write(0, &noise).is_ok());
                loaded.blocks.push((block, noise));
                self.failed += failed.unwrap();
            }
            Err(error) => self.note(&error),
        }
    }

    fn allocate(&mut self) {
        let core = self.core();
        let profile = self.runtime.devices().next().unwrap().profile();
        let placement = match self.chance.below(8) {
            0 if profile.arch != Arch::V3 => Placement::Host,
            _ => Placement::Device,
        };
        let size = match self.chance.below(LARGE_ONE_OF) {
            0 => (1 << 20) + self.chance.below(1 << 20),
            _ => 1 + self.chance.below(30_000),
        };
        match Tensor::allocate(self.runtime, core, placement, size, "t") {
            Ok(tensor) => {
                let bytes = vec![0; index(size)];
                let mut live = Live {
                    tensor,
                    core,
                    bytes,
                };
                self.failed += live.rewrite();
                self.live.push(live);
            }
            Err(error) => self.note(&error),
        }
    }

    /// An operation may fail by order; then nothing is known of what it wrote.
    fn settle(&mut self, at: usize, outcome: Result<(), RuntimeError>) {
        if let Err(error) = outcome {
            self.note(&error);
            self.failed += self.live[at].rewrite();
        }
    }

    fn note(&mut self, error: &RuntimeError) {
        let status = error.status();
        assert!(
            matches!(
                status,
                NrtStatus::Failure
                    | NrtStatus::Resource
                    | NrtStatus::Timeout
                    | NrtStatus::FailHostMemAlloc
            ),
            "{status:?}: {error}"
        );
        self.failed += 1;
    }

    fn write(&mut self, at: usize) {
        let (offset, length) = self.place(at);
        let noise = self.noise(length);
        let live = &mut self.live[at];
        live.bytes[offset..offset + length].copy_from_slice(&noise);
        let outcome = live.tensor.write(offset as u64, &noise);
        self.settle(at, outcome);
    }

    fn fill(&mut self, at: usize) {
        let (offset, length) = self.place(at);
        let value = self.noise(1)[0];
        let live = &mut self.live[at];
        live.bytes[offset..offset + length].fill(value);
        let outcome = live.tensor.fill(offset as u64, length as u64, value);
        self.settle(at, outcome);
    }

    /// From the tensor to another one of its HBM.
    fn copy(&mut self, from: usize) {
        let to = index(self.chance.below(self.live.len() as u64));
        let (source, target) = (&self.live[from], &self.live[to]);
        // The device copies within an HBM.
        let hbm = |live: &Live| live.tensor.allocation_info().map(|info| info.hbm).ok();
        if from == to || hbm(source).is_none() || hbm(source) != hbm(target) {
            return self.read(from);
        }
        let (offset, length) = self.place(from);
        let length = length.min(self.live[to].bytes.len());
        let target_offset = index(
            self.chance
                .below((self.live[to].bytes.len() - length) as u64 + 1),
        );
        let moved = self.live[from].bytes[offset..offset + length].to_vec();
        self.live[to].bytes[target_offset..target_offset + length].copy_from_slice(&moved);
        let (source, target) = (&self.live[from].tensor, &self.live[to].tensor);
        let outcome = source.copy_to(offset as u64, target, target_offset as u64, length as u64);
        self.settle(to, outcome);
    }

    fn write_batch(&mut self, at: usize) {
        if self.live[at].tensor.allocation_info().is_err() {
            return self.write(at);
        }
        let parts = [(); 3].map(|()| {
            let (offset, length) = self.place(at);
            (offset, self.noise(length))
        });
        let live = &mut self.live[at];
        for (offset, noise) in &parts {
            live.bytes[*offset..*offset + noise.len()].copy_from_slice(noise);
        }
        let ops = parts.each_ref().map(|(offset, bytes)| WriteOp {
            offset_bytes: *offset as u64,
            bytes,
        });
        let batch = WriteBatch {
            tensor: &live.tensor,
            ops: &ops,
        };
        let outcome = write_batches(&[batch], Fencing::Fenced);
        self.settle(at, outcome);
    }

    fn read_batch(&mut self, at: usize) {
        if self.live[at].tensor.allocation_info().is_err() {
            return self.read(at);
        }
        let mut parts = [(); 3].map(|()| {
            let (offset, length) = self.place(at);
            (offset, vec![0; length])
        });
        let live = &self.live[at];
        let mut ops = parts.each_mut().map(|(offset, into)| ReadOp {
            offset_bytes: *offset as u64,
            into,
        });
        let batch = ReadBatch {
            tensor: &live.tensor,
            ops: &mut ops,
        };
        match read_batches(&mut [batch], Fencing::Fenced) {
            Ok(()) => {
                for (offset, back) in &parts {
                    assert!(live.bytes[*offset..*offset + back.len()] == *back);
                }
            }
            Err(error) => self.note(&error),
        }
    }

    fn read_slice(&mut self, at: usize) {
        let (offset, length) = self.place(at);
        let live = &self.live[at];
        let slice = live.tensor.slice(offset as u64, length as u64, "slice");
        let Ok(slice) = slice else {
            assert_eq!(length, 0);
            return;
        };
        let mut back = vec![0; length];
        match slice.read(0, &mut back) {
            Ok(()) => assert!(live.bytes[offset..offset + length] == back),
            Err(error) => self.note(&error),
        }
    }

    fn read(&mut self, at: usize) {
        let (offset, length) = self.place(at);
        let live = &self.live[at];
        let mut back = vec![0; length];
        match live.tensor.read(offset as u64, &mut back) {
            Ok(()) => assert!(live.bytes[offset..offset + length] == back),
            Err(error) => self.note(&error),
        }
    }
}

impl Live {
    /// Writes all of it until that succeeds; how often it did not.
    fn rewrite(&mut self) -> u64 {
        let failed = (0_u64..100).find(|_| self.tensor.write(0, &self.bytes).is_ok());
        failed.unwrap()
    }
}

/// Every usage table has the sum of what is live, by usage, and so have each model and the counters.
fn check_books(runtime: &Runtime, live: &[(Core, Location, u64)], models: &[&Loaded]) {
    for device in (0..DEVICES).map(DeviceId::new) {
        let table = runtime.usage(device).unwrap();
        let metrics = runtime.metrics(device).unwrap();
        let host = live.iter().filter(|(core, ..)| core.device == device);
        let host = host.filter(|(_, location, _)| *location == Location::Host);
        let host_bytes: u64 = host.map(|(.., bytes)| bytes).sum();
        let tensors = counter(MemUsage::Tensor, Location::Host);
        for counter in [tensors, Counter::HostTotal] {
            assert_eq!(metrics.host.get(counter).present_bytes, host_bytes);
        }
        for core in table.banks.iter().flat_map(|bank| &bank.cores) {
            let here = Core {
                device,
                core: core.core,
            };
            let mine = live.iter().filter(|(core, ..)| *core == here);
            let mine = mine.filter(|(_, location, _)| *location == Location::Device);
            let bytes: u64 = mine.map(|(.., bytes)| bytes).sum();
            let models = models.iter().filter(|model| model.core == here);
            let owned: Vec<u64> = models.map(|model| model.bytes()).collect();
            let total = bytes + owned.iter().sum::<u64>();
            assert_eq!(core.present.total(), total, "{device} {}", core.core);
            let weights: u64 = owned.iter().sum();
            let counters = metrics.core(core.core).unwrap();
            for (usage, bytes) in [(MemUsage::Tensor, bytes), (MemUsage::Weight, weights)] {
                assert_eq!(
                    core.present.get(usage),
                    bytes,
                    "{device} {} {usage}",
                    core.core
                );
                let counter = counter(usage, Location::Device);
                assert_eq!(counters.get(counter).present_bytes, bytes);
            }
            assert_eq!(counters.get(Counter::DeviceTotal).present_bytes, total);
            let used_bytes = runtime.memory_stats(here).unwrap().used_bytes;
            assert_eq!(used_bytes, total);
            let mut told: Vec<u64> = core.models.iter().map(|one| one.present.total()).collect();
            told.sort_unstable();
            let mut owned = owned;
            owned.sort_unstable();
            assert_eq!(told, owned);
        }
    }
}

/// What the driver counts a usage under.
fn counter(usage: MemUsage, location: Location) -> Counter {
    usage.category(location).unwrap().counter(location)
}

impl Loaded {
    fn bytes(&self) -> u64 {
        self.blocks
            .iter()
            .map(|(_, bytes)| bytes.len() as u64)
            .sum()
    }
}

fn run(model: Model, mode: SchedMode, operations: u64) {
    let plan = Arc::new(FaultPlan::new(5));
    let machine = Machine::new(MachineConfig {
        devices: DEVICES,
        faults: Arc::clone(&plan) as Arc<_>,
        ..MachineConfig::new(model).with_mode(mode)
    })
    .unwrap();
    let books = || {
        let devices = (0..DEVICES).map(DeviceId::new);
        let stats = devices.map(|device| machine.driver().memory(device).unwrap().stats());
        // What lives as long as the device is the driver's own: rings of zero copies, for one.
        let chunks = stats.map(|stats| (stats.chunks - stats.lists.device, stats.device_bytes));
        (chunks.collect::<Vec<_>>(), machine.host().pinned_bytes())
    };
    let before = books();
    let devices: Vec<_> = (0..DEVICES).map(DeviceId::new).collect();
    let runtimes: Vec<_> = (0..PROCESSES)
        .map(|number| {
            let config = RuntimeConfig {
                events_max: 1000,
                // Half of them copy by the copy buffer. Where there are no zero copies, all do.
                zero_copy: number % 2 == 0,
                ..RuntimeConfig::default()
            };
            let process = machine.process(Pid::new(100 + number));
            Runtime::open(process as Arc<_>, &devices, config).unwrap()
        })
        .collect();
    let shared = (0..).zip(&runtimes).map(|(number, runtime)| {
        let core = Core {
            device: DeviceId::new(number % DEVICES),
            core: CoreId::new(0),
        };
        let size = THREADS_OF_EACH * SHARE_BYTES;
        let tensor = Tensor::allocate(runtime, core, Placement::Device, size, "shared");
        (core, tensor.unwrap())
    });
    let shared: Vec<(Core, Tensor)> = shared.collect();
    for (kind, probability) in FAULTS {
        plan.add(FaultRule {
            trigger: Trigger {
                probability: Some(probability),
                ..Trigger::ALWAYS
            },
            ..FaultRule::new(kind)
        })
        .unwrap();
    }

    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let left = std::sync::Mutex::new(Vec::new());
    let client = |(process, runtime, thread): (u64, _, u64)| -> Client<'_> {
        let (done, failed, left) = (&done, &failed, &left);
        let (core, tensor) = &shared[index(process)];
        let share = tensor.slice(thread * SHARE_BYTES, SHARE_BYTES, "share");
        let mut share = Live {
            tensor: share.unwrap(),
            core: *core,
            bytes: vec![0; index(SHARE_BYTES)],
        };
        Box::new(move || {
            share.rewrite();
            let mut load = Load {
                runtime,
                chance: Chance::of(process, thread),
                live: Vec::new(),
                share,
                models: Vec::new(),
                failed: 0,
            };
            while done.fetch_add(1, Ordering::Relaxed) < operations {
                load.step();
            }
            failed.fetch_add(load.failed, Ordering::Relaxed);
            left.lock().unwrap().push(Left {
                process,
                live: load.live,
                share: load.share,
                models: load.models,
            });
        })
    };
    let threads = (0..).zip(&runtimes).flat_map(|(process, runtime)| {
        (0..THREADS_OF_EACH).map(move |thread| (process, runtime, thread))
    });
    machine.run_clients(threads.map(client).collect()).unwrap();

    plan.clear();
    let mut left = left.into_inner().unwrap();
    for ((process, runtime), (core, shared)) in (0..).zip(&runtimes).zip(shared) {
        let its: Vec<Left> = left.extract_if(.., |one| one.process == process).collect();
        let live = its.iter().flat_map(|one| &one.live);
        let sizes = live.clone().map(|live| {
            let location = match live.tensor.allocation_info() {
                Ok(_) => Location::Device,
                Err(_) => Location::Host,
            };
            (live.core, location, live.bytes.len() as u64)
        });
        let shared_bytes = (core, Location::Device, shared.size_bytes());
        let sizes: Vec<_> = sizes.chain([shared_bytes]).collect();
        let models: Vec<&Loaded> = its.iter().flat_map(|one| &one.models).collect();
        check_books(runtime, &sizes, &models);
        for Live { tensor, bytes, .. } in live.chain(its.iter().map(|one| &one.share)) {
            let mut back = vec![0; bytes.len()];
            tensor.read(0, &mut back).unwrap();
            assert!(*bytes == back);
        }
        for (block, bytes) in models.iter().flat_map(|model| &model.blocks) {
            let mut back = vec![0; bytes.len()];
            block.read(0, &mut back).unwrap();
            assert!(*bytes == back);
        }
        drop(its);
        check_books(runtime, &[shared_bytes], &[]);
        drop(shared);
        check_books(runtime, &[], &[]);
    }
    let failed = failed.into_inner();
    println!("{model:?}: {operations} operations, {failed} failed by order");
    assert!(failed > operations / 1000, "{failed}");
    drop(runtimes);
    assert_eq!(books(), before);
}

#[test]
fn a_million_operations_under_faults_leave_every_byte_and_counter_right() {
    for model in MODELS {
        let operations = OPERATIONS.div_ceil(MODELS.len() as u64);
        run(model, SchedMode::Inline, operations);
    }
}

/// The same with engines of their own threads; fewer, since a lost marker takes real time there.
#[test]
fn operations_under_faults_leave_every_byte_and_counter_right_with_threads_of_the_devices() {
    run(Model::Trn2, SchedMode::THREADED, 5_000);
}
