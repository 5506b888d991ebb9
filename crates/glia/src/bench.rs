//! Benches for users: what an allocation costs on this machine, beside the reference's loop in the
//! same run.
//!
//! Every figure is taken at chunk level, through
//! [`DeviceMemory`](glia_driver::memory::DeviceMemory): checks, lock, placement, chunk record,
//! address index, lifespan list, counters. The driver's [extent
//! tree](glia_driver::arena::ExtentTree) stands on one side; on the other the [naive
//! bitmap](glia_driver::arena::NaiveBitmap) under the very same path, so that a ratio tells what
//! the structure brings and nothing else. Lookups by address stand beside a `BTreeMap` instead,
//! handles and what they lead to beside the `slab` crate, two threads beside one.
//!
//! How a figure comes about (docs/adr/0002-benchmarks-in-one-run.md says why):
//!
//! 1. a [`Case`] names a scene: what lies in memory, and what is asked of it;
//! 2. the scene is set up once for each side, as two subjects;
//! 3. the sides take turns; in a turn a subject runs batches, one reading of the clock around many
//!    operations, and the turn counts as the median of its batches;
//! 4. the figure is the median of the turns, the ratio that of two such medians.
//!
//! What is done to the bytes of chunks, copies and fills, has a bench of its own: [`run_copies`]; so
//! has what a program pays for it all, through the runtime and ioctls: [`run_runtime`].
//!
//! [`Report::growth`] compares Glia with itself instead: the same scene with few and with many live
//! chunks.
//!
//! **What this does not do.** It judges nothing: the bars of the project stand beside the figures,
//! and the caller decides. It pins no thread and asks nothing of the system; run it on a quiet
//! machine.

mod case;
mod churn;
mod copy;
mod herd;
mod latency;
mod lookups;
mod records;
mod report;
mod rig;
mod rng;
mod runtime;
mod scene;
mod search;
mod steady;
mod tables;
mod threads;
mod timing;

use glia_abi::arch::ScaleError;
use glia_device::sched::ThreadsError;
use glia_device::{BadHbmRange, DeviceError, HostError};
use glia_driver::alloc::AllocError;
use glia_driver::chunk::DeadChunk;
use glia_driver::dma::DmaError;
use glia_driver::handles::HandleError;
use glia_driver::memory::open::OpenError;
use glia_driver::memory::{InitError, PublishError};

pub use case::{Bar, Case, Effort, HANDLE_CASES, POOL_CASES, UnknownCase};
pub use copy::{CopyBar, CopyMode, CopyReport, CopyRow, run_copies};
pub use report::{GrowthRow, Report, Row};
pub use rng::SEED;
pub use runtime::{RuntimeReport, RuntimeRow, run_runtime};
pub use timing::Op;

use glia_abi::errno::Errno;
use glia_runtime::RuntimeError;
use glia_runtime::ndl::NdlError;

use crate::machine::MachineError;
use latency::memory_latency_ns;
use timing::{Medians, interleave};

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cases, in the order of the report.
    pub cases: Vec<&'static Case>,
    /// Full figures, or a look whether everything runs.
    pub effort: Effort,
    /// Whether to measure what a reader may want beside the rows, too: growth, for the cases that
    /// have such a bar, and the latency of memory before and after.
    pub context: bool,
}

/// How far a run has come: told before each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The case that comes now.
    pub case: &'static str,
    /// Steps that lie behind.
    pub done: u64,
    /// Steps in all.
    pub total: u64,
}

/// Why a bench could not be run to its end: each of these but [`Alone`](Self::Alone) and
/// want of memory is a bug, of the bench or of the driver.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The device's layout was refused.
    #[error("the bench's device cannot be laid out")]
    Layout(#[from] ScaleError),
    /// The device's memory did not come up.
    #[error("the bench's device did not come up")]
    Init(#[from] InitError),
    /// The bench's process was not let in.
    #[error("the bench's process cannot open its device")]
    Open(#[from] OpenError),
    /// A request of a case was refused.
    #[error("a request of the bench was refused")]
    Alloc(#[from] AllocError),
    /// A chunk of a case was gone before its time.
    #[error("a chunk of the bench was gone")]
    Dead(#[from] DeadChunk),
    /// A handle of a case was refused, or was not known any more.
    #[error("a handle of the bench was refused")]
    Handle(#[from] HandleError),
    /// A chunk of a case did not get its handle.
    #[error("a chunk of the bench could not be published")]
    Publish(#[from] PublishError),
    /// The bench's device could not be had.
    #[error("the bench's device cannot be had")]
    Device(#[from] DeviceError),
    /// Its host memory could not be had.
    #[error("the host memory of the bench's device cannot be had")]
    Host(#[from] HostError),
    /// No room for the window of the copies.
    #[error("no {size_bytes} bytes of host memory for the bench's copies")]
    NoHostMemory {
        /// Bytes asked for.
        size_bytes: u64,
    },
    /// A copy of a case failed.
    #[error("a copy of the bench failed")]
    Copy(#[from] DmaError),
    /// The engine of a case got no thread.
    #[error("the engine of the bench has no thread")]
    Threads(#[from] ThreadsError),
    /// HBM of a case could not be given back.
    #[error("memory of the bench's device cannot be given back")]
    Trim(#[from] BadHbmRange),
    /// The system has no memory for the peer.
    #[error("no memory for the peer of the bench's copies")]
    Peer(#[from] std::io::Error),
    /// The bench's machine could not be had.
    #[error("the bench's machine cannot be had")]
    Machine(#[from] Box<MachineError>),
    /// A call of the runtime was refused.
    #[error("a call of the bench's program was refused")]
    Runtime(#[from] RuntimeError),
    /// A call of its lowest layer was refused.
    #[error("a call of the bench's program was refused")]
    Ndl(#[from] NdlError),
    /// A command was refused.
    #[error("a command of the bench was refused: {0}")]
    Command(Errno),
    /// The second thread of a case never came, or stopped to answer: the system does not run it.
    #[error("the second thread of the bench did not answer for a second")]
    Alone,
    /// A lookup did not find what is there.
    #[error("{missed} of {asked} lookups found nothing where something lives")]
    Missed {
        /// Lookups without an answer.
        missed: usize,
        /// Lookups in all.
        asked: usize,
    },
}

/// Runs the cases.
///
/// `on_step` is told what comes next, before anything of it is set up; the clock does not run
/// meanwhile.
///
/// # Errors
/// [`BenchError`] if the driver refuses what a case needs.
pub fn run(options: &Options, on_step: &mut dyn FnMut(Step)) -> Result<Report, BenchError> {
    let effort = options.effort;
    let growing = || {
        options
            .cases
            .iter()
            .filter(|case| options.context && case.growth.is_some())
    };
    let total = (options.cases.len() + growing().count()) as u64;
    let mut done = 0;
    let mut step = |case: &Case| {
        on_step(Step {
            case: case.id,
            done,
            total,
        });
        done += 1;
    };
    let mut report = Report {
        effort,
        rows: Vec::new(),
        growth: Vec::new(),
        memory_latency_ns: Vec::new(),
    };
    let latency = || options.context.then(memory_latency_ns);
    report.memory_latency_ns.extend(latency());
    for &case in &options.cases {
        step(case);
        report.rows.extend(measure(case, effort)?);
    }
    for &case in growing() {
        step(case);
        report.growth.extend(measure_growth(case, effort)?);
    }
    report.memory_latency_ns.extend(latency());
    Ok(report)
}

/// The rows of one case: Glia beside its peer.
fn measure(case: &'static Case, effort: Effort) -> Result<Vec<Row>, BenchError> {
    let scene = effort.scaled(case.scene);
    let mut subjects = scene.subjects(case.peer.is_some())?;
    let medians = interleave(&mut subjects, &effort.pace())?;
    let rows = case.bars.iter().filter_map(|bar| {
        let glia_ns = figure(medians.first(), bar.op)?;
        let peer = case.peer.zip(figure(medians.get(1), bar.op));
        Some(Row::new(case.id, *bar, glia_ns, peer, scene.live()))
    });
    Ok(rows.collect())
}

/// The rows of one case's growth: Glia with few live chunks beside Glia with many.
fn measure_growth(case: &'static Case, effort: Effort) -> Result<Vec<GrowthRow>, BenchError> {
    let Some(growth) = case.growth else {
        return Ok(Vec::new());
    };
    let [few, many] = [growth.few, growth.many].map(|live| effort.scaled(case.scene.sized(live)));
    let mut subjects = few.subjects(false)?;
    subjects.extend(many.subjects(false)?);
    let medians = interleave(&mut subjects, &effort.pace())?;
    let rows = case
        .bars
        .iter()
        .filter(|bar| bar.op != Op::First)
        .filter_map(|bar| {
            Some(GrowthRow {
                case: case.id,
                op: bar.op,
                few: few.live(),
                few_ns: figure(medians.first(), bar.op)?,
                many: many.live(),
                many_ns: figure(medians.get(1), bar.op)?,
                factor_max: growth.factor_max,
            })
        });
    Ok(rows.collect())
}

fn figure(medians: Option<&Medians>, op: Op) -> Option<f64> {
    medians?.get(&op).copied()
}
