//! What a program pays: commands, allocations and copies through the whole stack, from the
//! runtime's calls through ioctl bytes to the device, on the caller's thread.
//!
//! Beside a copy runs the C library's memcpy, beside a command the driver's own layer below it, beside
//! the books the two locks that the list of live allocations takes with them or without. The other rows
//! have no peer: they stand by their nanoseconds.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use glia_abi::handle::{CoreId, DeviceId, FileId, Pid};
use glia_abi::ioctl::{self, MemCopy64};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::transport::{Caller, OpenMode, Transport, user_addr};
use glia_device::AddressSpace;
use glia_driver::dma::Place;
use glia_driver::driver::Driver;
use glia_runtime::dml::{Action, Dml};
use glia_runtime::ndl::{self, ChunkSpec, Transfer};
use glia_runtime::tensor::{Fencing, WriteBatch, WriteOp, write_batches};
use glia_runtime::{AllocSpec, Core, Dmem, Placement, Runtime, RuntimeConfig, Tensor};
use serde::Serialize;
use zerocopy::IntoBytes;

use super::report::{number, rounded, table, yes_or_no};
use super::rng::Rng;
use super::timing::{Op, Subject, Tally, interleave};
use super::{BenchError, Effort, Step};
use crate::machine::{Machine, MachineConfig, Model, SchedMode};

const DEVICE: DeviceId = DeviceId::new(0);
const CORE: Core = Core {
    device: DEVICE,
    core: CoreId::new(0),
};
const PID: Pid = Pid::new(4242);
const PAGE_BYTES: usize = 4096;
const STAGED_BYTES: usize = 64 << 20;
/// More than there is room for, and less than the small pool has: nearly all of its pages are in the
/// way.
const WANTED_BYTES: u64 = 1020 << 20;
/// Operations between two readings of the clock.
const BATCH: usize = 64;

/// One case. Serialised, it is one element of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct RuntimeRow {
    /// Which.
    pub case: &'static str,
    /// Nanoseconds of an operation.
    pub glia_ns: f64,
    /// What ran beside it.
    pub peer: Option<&'static str>,
    /// Nanoseconds of the peer's.
    pub peer_ns: Option<f64>,
    /// The peer's nanoseconds over Glia's.
    pub ratio: Option<f64>,
    /// At most so many nanoseconds,
    pub bar_ns: Option<f64>,
    /// at most so many more than the peer,
    pub bar_extra_ns: Option<f64>,
    /// or at least such a ratio is to be reached.
    pub bar_ratio: Option<f64>,
}

/// What a run found.
#[derive(Debug, Clone)]
pub struct RuntimeReport {
    /// How much trouble was taken.
    pub effort: Effort,
    /// The cases.
    pub rows: Vec<RuntimeRow>,
}

impl RuntimeRow {
    /// Whether the bar was met, if there is one.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let within = self.bar_ns.map(|max| self.glia_ns <= max);
        let extra = (self.bar_extra_ns.zip(self.peer_ns))
            .map(|(max, peer_ns)| self.glia_ns - peer_ns <= max);
        let ratio = (self.bar_ratio.zip(self.ratio)).map(|(min, ratio)| ratio >= min);
        within.or(extra).or(ratio)
    }
}

impl RuntimeReport {
    /// The table, as Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let header = ["case", "glia ns", "peer", "peer ns", "ratio", "bar", "met"];
        let mut table = table(&header, &[0, 2]);
        for row in &self.rows {
            let bar = match (row.bar_ns, row.bar_extra_ns, row.bar_ratio) {
                (Some(ns), ..) => format!("{ns:.0} ns"),
                (_, Some(ns), _) => format!("+{ns:.0} ns"),
                (.., Some(ratio)) => format!("x {ratio:.2}"),
                _ => "-".to_owned(),
            };
            table.add_row([
                row.case.to_owned(),
                number(Some(row.glia_ns)),
                row.peer.unwrap_or("-").to_owned(),
                number(row.peer_ns),
                number(row.ratio),
                bar,
                row.is_met().map_or("-", yes_or_no).to_owned(),
            ]);
        }
        let mut text = table.to_string();
        text += "\n\nNanoseconds of an operation, medians of interleaved turns; `ratio` is the \
                 peer's over Glia's.\n";
        if self.effort == Effort::Quick {
            text += "A QUICK RUN: few batches, few live chunks. It shows that all cases run; the \
                     figures mean little.\n";
        }
        text
    }
}

/// What is done once, so many times between two readings of the clock.
struct Timed<F> {
    times: usize,
    run: F,
}

impl<F: FnMut() -> Result<(), BenchError>> Subject for Timed<F> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let start = Instant::now();
        for _ in 0..self.times {
            (self.run)()?;
        }
        tally.note(Op::Copy, start.elapsed(), self.times);
        Ok(())
    }
}

fn timed<'a>(
    times: usize,
    run: impl FnMut() -> Result<(), BenchError> + 'a,
) -> Box<dyn Subject + 'a> {
    Box::new(Timed { times, run })
}

/// A machine with a program on it.
struct Stack {
    machine: Machine,
    process: Arc<crate::machine::Process>,
    runtime: Runtime,
    device: Arc<ndl::Device>,
}

impl Stack {
    fn new(mode: SchedMode) -> Result<Self, BenchError> {
        let config = MachineConfig::new(Model::Trn2).with_mode(mode);
        let machine = Machine::new(config).map_err(Box::new)?;
        let process = machine.process(PID);
        let transport = || Arc::clone(&process) as Arc<dyn Transport>;
        let runtime = Runtime::open(transport(), &[DEVICE], RuntimeConfig::default())?;
        let device = ndl::Device::open(transport(), DEVICE)?;
        Ok(Self {
            machine,
            runtime,
            device,
            process,
        })
    }

    fn page(&self) -> Result<Dmem, BenchError> {
        let spec = AllocSpec::device(PAGE_BYTES as u64, MemUsage::Tensor);
        Ok(self.runtime.allocate(CORE, &spec)?)
    }
}

/// What a case is to reach.
#[derive(Clone, Copy)]
struct Bar {
    ns: Option<f64>,
    extra_ns: Option<f64>,
    ratio: Option<f64>,
}

const NO_BAR: Bar = Bar {
    ns: None,
    extra_ns: None,
    ratio: None,
};

const fn at_most(ns: f64) -> Bar {
    Bar {
        ns: Some(ns),
        ..NO_BAR
    }
}

/// Runs all cases.
///
/// `on_step` is told what comes next; the clock does not run meanwhile.
///
/// # Errors
/// [`BenchError`] if the machine cannot be had, or refuses what a case needs.
pub fn run_runtime(
    effort: Effort,
    on_step: &mut dyn FnMut(Step),
) -> Result<RuntimeReport, BenchError> {
    let stack = Stack::new(SchedMode::Inline)?;
    let mut bench = Bench {
        effort,
        on_step,
        rows: Vec::new(),
    };
    commands(&stack, &mut bench)?;
    let live = match effort {
        Effort::Full => 1_000_000,
        Effort::Quick => 10_000,
    };
    allocations(&stack, live, &mut bench)?;
    copies(&stack, &mut bench)?;
    explanation(effort, &mut bench)?;
    Ok(RuntimeReport {
        effort,
        rows: bench.rows,
    })
}

struct Bench<'a> {
    effort: Effort,
    on_step: &'a mut dyn FnMut(Step),
    rows: Vec<RuntimeRow>,
}

/// Cases in all.
const CASES: u64 = 15;

impl Bench<'_> {
    fn case<'s>(
        &mut self,
        case: &'static str,
        glia: Box<dyn Subject + 's>,
        peer: Option<(&'static str, Box<dyn Subject + 's>)>,
        bar: Bar,
    ) -> Result<(), BenchError> {
        (self.on_step)(Step {
            case,
            done: self.rows.len() as u64,
            total: CASES,
        });
        let mut subjects = vec![glia];
        let peer = peer.map(|(name, subject)| {
            subjects.push(subject);
            name
        });
        let medians = interleave(&mut subjects, &self.effort.pace())?;
        let figure = |side: usize| medians.get(side)?.get(&Op::Copy).copied();
        let glia_ns = figure(0).unwrap_or_default();
        let peer_ns = figure(1);
        self.rows.push(RuntimeRow {
            case,
            glia_ns: rounded(glia_ns),
            peer,
            peer_ns: peer_ns.map(rounded),
            ratio: peer_ns.map(|peer_ns| rounded(peer_ns / glia_ns)),
            bar_ns: bar.ns,
            bar_extra_ns: bar.extra_ns,
            bar_ratio: bar.ratio,
        });
        Ok(())
    }
}

/// What a command costs that does nothing, and what it adds to one that does something.
fn commands(stack: &Stack, bench: &mut Bench<'_>) -> Result<(), BenchError> {
    let Stack {
        process, device, ..
    } = stack;
    let fd = process
        .open(DEVICE, OpenMode::ReadWrite)
        .map_err(BenchError::Command)?;
    let nothing = || {
        let answer = process.ioctl(fd, ioctl::DEVICE_INIT, &mut [], &mut []);
        answer.map(drop).map_err(BenchError::Command)
    };
    bench.case("ioctl_nothing", timed(BATCH, nothing), None, at_most(100.0))?;

    let spec = ChunkSpec {
        size_bytes: PAGE_BYTES as u64,
        align_bytes: 0,
        location: Location::Device,
        channel: device.profile().default_channel(CORE.core),
        core: CORE.core,
        category: glia_abi::usage::Category::TENSORS_DEVICE,
    };
    let (source, target) = (device.allocate(&spec)?, device.allocate(&spec)?);
    let transfer = Transfer {
        source,
        source_offset_bytes: 0,
        target,
        target_offset_bytes: 0,
        size_bytes: 64,
    };
    let place = |handle| -> Result<Place, BenchError> {
        Ok(Place {
            at: device.physical_address(handle)?,
            location: Location::Device,
            core: CORE.core,
        })
    };
    let (from, to) = (place(source)?, place(target)?);
    let dma = stack.machine.driver().dma(DEVICE);
    let dma = dma.ok_or(BenchError::Command(glia_abi::errno::Errno::ENODEV))?;
    let below = || {
        let op = timed(BATCH, || Ok(dma.copy(PID, from, to, 64)?));
        Some(("op layer", op))
    };
    let door = Door::open(stack)?;
    let by_driver = timed(BATCH, || door.copy(&transfer));
    let bar = Bar {
        extra_ns: Some(60.0),
        ..NO_BAR
    };
    bench.case("dispatch_copy_64", by_driver, below(), bar)?;
    drop(door);
    let by_command = timed(BATCH, || Ok(device.copy(&transfer)?));
    bench.case("ioctl_copy_64", by_command, below(), NO_BAR)?;
    for handle in [source, target] {
        device.free(handle)?;
    }
    process.close(fd).map_err(BenchError::Command)
}

/// A file of the driver's, entered as a kernel enters it: without a process and its descriptors.
struct Door<'a> {
    driver: &'a Driver,
    space: AddressSpace,
    file: FileId,
}

impl<'a> Door<'a> {
    fn open(stack: &'a Stack) -> Result<Self, BenchError> {
        let driver = stack.machine.driver();
        let space = AddressSpace::new(Arc::clone(stack.machine.host()));
        let opened = Self::enter(&space, &mut [], |caller| {
            driver.open(caller, DEVICE, OpenMode::ReadWrite)
        });
        Ok(Self {
            driver,
            file: opened.map_err(BenchError::Command)?,
            space,
        })
    }

    /// Calls the driver with a struct in the caller's memory.
    fn enter<R>(space: &AddressSpace, arg: &mut [u8], call: impl FnOnce(&Caller<'_>) -> R) -> R {
        space.call(arg, &mut [], |memory| {
            call(&Caller {
                pid: PID,
                memory,
                killed: &|| false,
            })
        })
    }

    /// `MEM_COPY64`.
    fn copy(&self, transfer: &Transfer) -> Result<(), BenchError> {
        let mut argument = MemCopy64 {
            src: transfer.source.get().into(),
            dst: transfer.target.get().into(),
            size: transfer.size_bytes,
            src_offset: transfer.source_offset_bytes,
            dst_offset: transfer.target_offset_bytes,
        };
        let arg = argument.as_mut_bytes();
        let at = user_addr(arg);
        let answer = Self::enter(&self.space, arg, |caller| {
            self.driver.ioctl(caller, self.file, ioctl::MEM_COPY64, at)
        });
        answer.map(drop).map_err(BenchError::Command)
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        Self::enter(&self.space, &mut [], |caller| {
            self.driver.flush(caller, self.file);
            self.driver.release(caller, self.file);
        });
    }
}

/// What an allocation and its free cost, ledger and all.
fn allocations(stack: &Stack, live: usize, bench: &mut Bench<'_>) -> Result<(), BenchError> {
    let pair = || stack.page().map(drop);
    let bar = at_most(600.0);
    bench.case("dmem_pair_4k", timed(BATCH, pair), None, bar)?;
    // The books alone: an allocation and its end.
    let page = stack.page()?;
    let dml = Dml::new(DEVICE, stack.device.profile(), 1 << 20);
    let books = timed(BATCH, || {
        dml.record(Action::Alloc, black_box(page.facts()));
        dml.record(Action::Free, black_box(page.facts()));
        Ok(())
    });
    // What an allocation and its end need in any case, to be listed while it lives: a lock for each.
    let idle = Mutex::new(());
    let locks = timed(BATCH, || {
        for _ in 0..2 {
            drop(black_box(&idle).lock());
        }
        Ok(())
    });
    let locks = Some(("two idle locks", locks));
    bench.case("dml_pair", books, locks, at_most(25.0))?;
    drop(page);
    let mut others = (0..live)
        .map(|_| stack.page())
        .collect::<Result<Vec<_>, _>>()?;
    bench.case("dmem_pair_4k_1m_live", timed(BATCH, pair), None, bar)?;
    let mut rng = Rng::seeded();
    let replace = timed(BATCH, || {
        let at = rng.below(others.len());
        // The old one goes first; the new one takes its place, or a lower one.
        drop(others.swap_remove(at));
        others.push(stack.page()?);
        Ok(())
    });
    bench.case("dmem_replace_4k_1m_live", replace, None, at_most(1500.0))
}

/// What an allocation costs for which there is no room: the refusal, the report and why. In the
/// small pool, every second page is taken; the main pool is full.
fn explanation(effort: Effort, bench: &mut Bench<'_>) -> Result<(), BenchError> {
    let live = match effort {
        Effort::Full => 100_000,
        Effort::Quick => 1_000,
    };
    let stack = Stack::new(SchedMode::Inline)?;
    let mut pages = (0..2 * live)
        .map(|_| stack.page())
        .collect::<Result<Vec<_>, _>>()?;
    let mut number = 0;
    pages.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let fill = |size_bytes| {
        let spec = AllocSpec::device(size_bytes, MemUsage::Weight);
        stack.runtime.allocate(CORE, &spec)
    };
    let mut weights = Vec::new();
    for size_bytes in [8 << 30, 8 << 30, 6 << 30, 1000 << 20, 8 << 20] {
        weights.push(fill(size_bytes)?);
    }
    let refused = || match fill(WANTED_BYTES) {
        Err(error) if error.explanation().is_some() => Ok(()),
        Err(error) => Err(error.into()),
        // There was room, and so nothing was measured.
        Ok(_) => Err(BenchError::Command(glia_abi::errno::Errno::EINVAL)),
    };
    let bar = at_most(20_000_000.0);
    bench.case("explanation_100k", timed(1, refused), None, bar)
}

/// What reads and writes cost, beside memcpy.
fn copies(stack: &Stack, bench: &mut Bench<'_>) -> Result<(), BenchError> {
    let page = stack.page()?;
    let bytes = vec![1; PAGE_BYTES];
    let (mut small, mut other) = (vec![2; PAGE_BYTES], vec![2; PAGE_BYTES]);
    let write = timed(BATCH, || Ok(page.write(0, black_box(&bytes))?));
    let peer = timed(BATCH, || {
        black_box(&mut other[..]).copy_from_slice(black_box(&bytes));
        Ok(())
    });
    bench.case("write_4k", write, Some(("memcpy", peer)), at_most(800.0))?;
    let read = timed(BATCH, || Ok(page.read(0, black_box(&mut small))?));
    bench.case("read_4k", read, None, NO_BAR)?;
    batches(stack, bench)?;

    staged(stack, ["write_64m", "read_64m"], bench)?;
    let threaded = Stack::new(SchedMode::THREADED)?;
    staged(
        &threaded,
        ["write_64m_threaded", "read_64m_threaded"],
        bench,
    )
}

/// What is copied through the halves of the copy buffer.
fn staged(
    stack: &Stack,
    cases: [&'static str; 2],
    bench: &mut Bench<'_>,
) -> Result<(), BenchError> {
    let spec = AllocSpec::device(STAGED_BYTES as u64, MemUsage::Tensor);
    let tensor = stack.runtime.allocate(CORE, &spec)?;
    let source = vec![3; STAGED_BYTES];
    let (mut back, mut plain) = (vec![4; STAGED_BYTES], vec![4; STAGED_BYTES]);
    let bar = Bar {
        ratio: Some(0.8),
        ..NO_BAR
    };
    let [write_case, read_case] = cases;
    let write = timed(1, || Ok(tensor.write(0, black_box(&source))?));
    let peer = timed(1, || {
        black_box(&mut plain[..]).copy_from_slice(black_box(&source));
        Ok(())
    });
    bench.case(write_case, write, Some(("memcpy", peer)), bar)?;
    let read = timed(1, || Ok(tensor.read(0, black_box(&mut back))?));
    let peer = timed(1, || {
        black_box(&mut plain[..]).copy_from_slice(black_box(&source));
        Ok(())
    });
    bench.case(read_case, read, Some(("memcpy", peer)), bar)
}

/// What one of many writes costs that are made in one call.
fn batches(stack: &Stack, bench: &mut Bench<'_>) -> Result<(), BenchError> {
    const WRITES: usize = 256;
    let size_bytes = (WRITES * PAGE_BYTES) as u64;
    let tensor = Tensor::allocate(&stack.runtime, CORE, Placement::Device, size_bytes, "batch")?;
    let source = vec![5; WRITES * PAGE_BYTES];
    let mut target = vec![6; WRITES * PAGE_BYTES];
    let pages = source.chunks(PAGE_BYTES).zip((0..).step_by(PAGE_BYTES));
    let ops: Vec<_> = pages
        .map(|(bytes, offset_bytes)| WriteOp {
            offset_bytes,
            bytes,
        })
        .collect();
    let write = Box::new(Shared {
        of: WRITES,
        run: || {
            let tensor = &tensor;
            Ok(write_batches(
                &[WriteBatch { tensor, ops: &ops }],
                Fencing::Fenced,
            )?)
        },
    });
    let peer = Box::new(Shared {
        of: WRITES,
        run: || {
            black_box(&mut target[..]).copy_from_slice(black_box(&source));
            Ok(())
        },
    });
    bench.case(
        "batch_write_4k",
        write,
        Some(("memcpy", peer)),
        at_most(300.0),
    )
}

/// What is done for many at once: its time is divided among them.
struct Shared<F> {
    of: usize,
    run: F,
}

impl<F: FnMut() -> Result<(), BenchError>> Subject for Shared<F> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let start = Instant::now();
        (self.run)()?;
        tally.note(Op::Copy, start.elapsed(), self.of);
        Ok(())
    }
}
