//! Runs workloads: every operation goes from the runtime's API through ioctls, driver and
//! descriptors to the device, and every byte that comes back is compared.
//!
//! ```text
//!   Reader ──► Player ──► Runtime ──► Process (ioctl bytes) ──► Driver ──► Device
//!                └─ which pattern was written where, by object
//! ```
//!
//! Every read is compared twice: what came back, and what lies in HBM, looked at past runtime and
//! driver.
//!
//! The run ends at the first operation that does not end as its line expects. What it leaves live is
//! part of the answer; it is given back when the machine goes.
//!
//! **Memory.** What is kept is what lives: objects, and for each the extents that were written.
//! Patterns are made anew when they are compared.

pub mod compare;
pub mod explanation;
mod log;
mod pattern;
pub mod report;
mod written;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use glia_abi::addr::access_fits;
use glia_abi::event::{NoSink, Sink};
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::transport::Mapping;
use glia_runtime::dml::ModelId;
use glia_runtime::dml::UsageTable;
use glia_runtime::{
    AllocSpec, Core, Dmem, Model, Placement, Runtime, RuntimeConfig, RuntimeError, Tensor,
};

use crate::coverage::Coverage;
use crate::events::Tee;
use crate::faults::{FaultsError, Laid, PlanFile, RuleReport};
use crate::machine::{Machine, MachineConfig, MachineError};
use crate::workload::{Alloc, Fault, Load, Op, Range, Reader, Step, WorkloadError};
use log::Memo;
use pattern::Pattern;
use written::Written;

/// The process that a workload runs as.
const PID: Pid = Pid::new(1000);
/// Bytes that are written or read by one call: what a program would do that streams.
const PIECE_BYTES: u64 = 8 << 20;
// LIMIT: ids on the way to the one that a line names are used up one by one.
const NEFFS_MAX: u32 = 100_000;
/// What stands in a buffer before it is read into.
const UNREAD: u8 = 0xdb;

/// What a run came to.
#[derive(Debug)]
pub struct Played {
    /// What was done.
    pub counts: Counts,
    /// Who holds what at the end, by device.
    pub tables: Vec<UsageTable>,
    /// Which report of a log the workload says that it rebuilds.
    pub report: Option<u64>,
    /// The operation that did not end as expected; `None` if all did.
    pub failure: Option<Failure>,
    /// How the rules of the fault plan have done; empty without one.
    pub faults: Vec<RuleReport>,
}

/// What was done. An operation counts if it ended as its line expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Allocations.
    pub allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Writes.
    pub writes: u64,
    /// Reads.
    pub reads: u64,
    /// Models loaded.
    pub loads: u64,
    /// Models unloaded.
    pub unloads: u64,
    /// How many of all these were to fail, and did.
    pub expected_errors: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes of those that were compared with what was written. The others were never written.
    pub verified_bytes: u64,
    /// Objects that live at the end.
    pub live: u64,
}

impl Counts {
    /// Counts an operation that ended as its line expects.
    fn add(&mut self, step: &Step<'_>) {
        *match step.op {
            Op::Alloc(_) => &mut self.allocs,
            Op::Write { .. } => &mut self.writes,
            Op::Read { .. } => &mut self.reads,
            Op::Free { .. } => &mut self.frees,
            Op::Load(_) => &mut self.loads,
            Op::Unload { .. } => &mut self.unloads,
        } += 1;
        if step.expect != NrtStatus::Success {
            self.expected_errors += 1;
        }
    }

    /// All operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.allocs + self.frees + self.writes + self.reads + self.loads + self.unloads
    }
}

/// An operation that did not end as its line expects.
#[derive(Debug)]
pub struct Failure {
    /// The line.
    pub line: u64,
    /// The object that it is about.
    pub id: String,
    /// What the line expects.
    pub expected: NrtStatus,
    /// What happened instead.
    pub found: Found,
    /// What the runtime logged about it: the out-of-memory report, if that is what happened.
    pub log: String,
}

/// What happened instead of what was expected.
#[derive(Debug, thiserror::Error)]
pub enum Found {
    /// It succeeded.
    #[error("it succeeded")]
    Success,
    /// It failed, or failed otherwise.
    #[error(transparent)]
    Error(#[from] RuntimeError),
    /// What was read is not what was written.
    #[error("byte {offset_bytes} is {found:#04x}, written was {written:#04x} (seed {seed})")]
    Differs {
        /// The byte's offset in the object.
        offset_bytes: u64,
        /// What was read.
        found: u8,
        /// What was written.
        written: u8,
        /// The pattern that was written.
        seed: u64,
    },
}

impl Found {
    /// The status; `None` for bytes that differ.
    #[must_use]
    pub fn status(&self) -> Option<NrtStatus> {
        match self {
            Self::Success => Some(NrtStatus::Success),
            Self::Error(error) => Some(error.status()),
            Self::Differs { .. } => None,
        }
    }
}

/// Why a workload could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A line cannot be used.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The fault plan is about something that the machine does not have.
    #[error("the fault plan{} does not fit", named(.file))]
    Faults {
        /// The plan's file, if it was read from one.
        file: Option<PathBuf>,
        /// What it is about.
        #[source]
        source: Box<FaultsError>,
    },
    /// The machine cannot be built.
    #[error("the machine cannot be built")]
    Machine(#[from] MachineError),
    /// The runtime cannot open its devices.
    #[error("the runtime cannot open its devices")]
    Open(#[source] RuntimeError),
}

fn named(file: &Option<PathBuf>) -> String {
    let name = |file: &PathBuf| format!(" {}", file.display());
    file.as_ref().map_or_else(String::new, name)
}

/// Builds the machine that a workload names, and runs the workload on it.
///
/// # Errors
/// [`PlayError`] if the workload cannot be run to its end. An operation that fails is no error but
/// [`Played::failure`].
pub fn play(source: impl BufRead) -> Result<Played, PlayError> {
    play_under(source, Conditions::default())
}

/// Under which conditions a workload runs, from the moment at which its machine is switched on until
/// it is gone.
#[derive(Clone)]
pub struct Conditions<'a> {
    /// What fails on order.
    pub faults: Option<&'a PlanFile>,
    /// Who hears the events.
    pub sink: Arc<dyn Sink>,
    /// Who counts what the run exercises.
    pub coverage: Option<Arc<Coverage>>,
}

impl Default for Conditions<'_> {
    fn default() -> Self {
        Self {
            faults: None,
            sink: Arc::new(NoSink),
            coverage: None,
        }
    }
}

/// The same under conditions.
///
/// # Errors
/// As [`play`], and [`PlayError::Faults`].
pub fn play_under(source: impl BufRead, conditions: Conditions<'_>) -> Result<Played, PlayError> {
    let Conditions {
        faults,
        sink,
        coverage,
    } = conditions;
    let sink = match &coverage {
        Some(coverage) => Arc::new(Tee::new(sink, Arc::clone(coverage) as _)),
        None => sink,
    };
    let mut reader = Reader::new(source)?;
    let header = reader.header();
    let lay = |plan: &PlanFile| {
        let laid = plan.lay(header.model.arch(), header.devices);
        laid.map_err(|source| PlayError::Faults {
            file: plan.path().map(PathBuf::from),
            source: Box::new(source),
        })
    };
    let laid = faults.map(lay).transpose()?;
    let mut config = MachineConfig {
        devices: header.devices,
        sink,
        coverage,
        ..MachineConfig::new(header.model)
    };
    if let Some(laid) = &laid {
        config.faults = Arc::clone(laid.plan()) as _;
    }
    let sink = Arc::clone(&config.sink);
    let machine = Machine::new(config)?;
    let devices: Vec<DeviceId> = (0..header.devices).map(DeviceId::new).collect();
    let mut player = Player::open(&machine, &devices, sink)?;
    let mut failure = None;
    while failure.is_none() {
        match reader.next(|step| player.step(&step))? {
            Some(outcome) => failure = outcome.err(),
            None => break,
        }
    }
    Ok(Played {
        counts: player.counts(),
        tables: devices
            .iter()
            .filter_map(|&device| player.runtime.usage(device).ok())
            .collect(),
        report: header.report,
        failure: failure.map(|failure| *failure),
        faults: laid.as_ref().map(Laid::told).unwrap_or_default(),
    })
}

/// A workload in the middle of its run.
struct Player {
    machine: Machine,
    runtime: Runtime,
    memo: Arc<Memo>,
    /// In an order, so that what lives at the end is given back in the same one in each run.
    objects: BTreeMap<String, Object>,
    models: BTreeMap<String, Loaded>,
    /// The id of the first model that was loaded.
    first_model: Option<ModelId>,
    counts: Counts,
    /// Bytes on their way; empty between operations, kept for its room.
    piece: Vec<u8>,
    /// The pattern that they are compared with.
    wanted: Vec<u8>,
    /// What lies in HBM.
    direct: Vec<u8>,
}

/// Memory that the workload has taken.
struct Object {
    memory: Memory,
    /// Its bytes in HBM, past runtime and driver; `None` for host memory.
    hbm: Option<Arc<dyn Mapping>>,
    /// The line that took it.
    line: u64,
    /// The model that owns it.
    model: Option<String>,
    written: Written,
}

/// A model that the workload has loaded.
struct Loaded {
    model: Model,
    device: DeviceId,
    /// The line that loaded it.
    line: u64,
}

/// What the runtime gave.
enum Memory {
    /// With the allocation behind it.
    Tensor(Tensor, Dmem),
    Block(Dmem),
}

impl Memory {
    fn block(&self) -> &Dmem {
        match self {
            Self::Tensor(_, block) | Self::Block(block) => block,
        }
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        match self {
            Self::Tensor(tensor, _) => tensor.write(offset_bytes, bytes),
            Self::Block(block) => block.write(offset_bytes, bytes),
        }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        match self {
            Self::Tensor(tensor, _) => tensor.read(offset_bytes, into),
            Self::Block(block) => block.read(offset_bytes, into),
        }
    }
}

impl Player {
    fn open(
        machine: &Machine,
        devices: &[DeviceId],
        sink: Arc<dyn Sink>,
    ) -> Result<Self, PlayError> {
        let memo = Arc::new(Memo::new(PID, Arc::clone(machine.sched()) as Arc<_>));
        let config = RuntimeConfig {
            log: Some(Arc::clone(&memo) as Arc<_>),
            sink,
            process: Some(PID),
            ..RuntimeConfig::default()
        };
        let runtime =
            Runtime::open(machine.process(PID), devices, config).map_err(PlayError::Open)?;
        Ok(Self {
            machine: machine.clone(),
            runtime,
            memo,
            objects: BTreeMap::new(),
            models: BTreeMap::new(),
            first_model: None,
            counts: Counts::default(),
            piece: Vec::new(),
            wanted: Vec::new(),
            direct: Vec::new(),
        })
    }

    fn counts(&self) -> Counts {
        Counts {
            live: self.objects.len() as u64,
            ..self.counts
        }
    }

    /// Runs one operation and compares its end with what is expected.
    fn step(&mut self, step: &Step<'_>) -> Result<Result<(), Box<Failure>>, Fault> {
        self.memo.clear();
        let done = match &step.op {
            Op::Alloc(alloc) => self.alloc(step.line, alloc)?,
            Op::Write { id, range, seed } => self.write(id, *range, Pattern(*seed))?,
            Op::Read { id, range } => self.read(id, *range)?,
            Op::Free { id } => {
                self.objects.remove(*id).ok_or_else(|| no_object(id))?;
                Ok(())
            }
            Op::Load(load) => self.load(step.line, load)?,
            Op::Unload { id } => {
                let loaded = self.models.remove(*id).ok_or_else(|| no_model(id))?;
                self.objects
                    .retain(|_, object| object.model.as_deref() != Some(*id));
                drop(loaded);
                Ok(())
            }
        };
        let found = match done {
            Ok(()) => Found::Success,
            Err(found) => found,
        };
        if found.status() == Some(step.expect) {
            self.counts.add(step);
            return Ok(Ok(()));
        }
        Ok(Err(Box::new(Failure {
            line: step.line,
            id: step.op.id().to_owned(),
            expected: step.expect,
            found,
            log: self.memo.take(),
        })))
    }

    /// Loads a model. Ids only go up: those on the way to the wanted one are used up.
    fn load(&mut self, line: u64, load: &Load<'_>) -> Result<Result<(), Found>, Fault> {
        if let Some(loaded) = self.models.get(load.id) {
            return Err(Fault::SecondModel {
                id: load.id.to_owned(),
                since: loaded.line,
            });
        }
        let core = Core {
            device: load.device,
            core: load.core,
        };
        let wanted = load.neff.map(ModelId);
        let model = loop {
            let model = match self.runtime.load_model(core, load.name) {
                Ok(model) => model,
                Err(error) => return Ok(Err(error.into())),
            };
            let (id, first) = (model.id(), *self.first_model.get_or_insert(model.id()));
            match wanted {
                Some(wanted) if wanted < id || wanted.0 - first.0 > NEFFS_MAX => {
                    return Err(Fault::OutOfRange {
                        key: "neff",
                        found: u64::from(wanted.0),
                        least: u64::from(id.0),
                        most: u64::from(first.0 + NEFFS_MAX),
                    });
                }
                Some(wanted) if wanted > id => {}
                _ => break model,
            }
        };
        let loaded = Loaded {
            model,
            device: load.device,
            line,
        };
        self.models.insert(load.id.to_owned(), loaded);
        Ok(Ok(()))
    }

    /// Takes memory the way a program would, or its model.
    fn take(&self, alloc: &Alloc<'_>, owner: Option<&Model>) -> Result<Memory, RuntimeError> {
        let core = Core {
            device: alloc.device,
            core: alloc.core,
        };
        let is_device = alloc.location == Location::Device;
        let is_tensor = alloc.usage == MemUsage::Tensor && alloc.align_bytes == 0;
        if is_device && is_tensor && owner.is_none() {
            let (place, bytes) = (Placement::Device, alloc.size_bytes);
            let tensor = Tensor::allocate(&self.runtime, core, place, bytes, alloc.name)?;
            // One that was allocated has an allocation.
            let block = tensor.memory().cloned().ok_or(RuntimeError::Gone)?;
            return Ok(Memory::Tensor(tensor, block));
        }
        let spec = AllocSpec {
            size_bytes: alloc.size_bytes,
            align_bytes: alloc.align_bytes,
            usage: alloc.usage,
            location: alloc.location,
            channel: None,
            hint: Some(alloc.name),
        };
        let block = match owner {
            Some(model) => model.allocate(&spec),
            None => self.runtime.allocate(core, &spec),
        };
        block.map(Memory::Block)
    }

    fn alloc(&mut self, line: u64, alloc: &Alloc<'_>) -> Result<Result<(), Found>, Fault> {
        if let Some(object) = self.objects.get(alloc.id) {
            return Err(Fault::SecondObject {
                id: alloc.id.to_owned(),
                since: object.line,
            });
        }
        let owner = |id| self.models.get(id).ok_or_else(|| no_model(id));
        let owner = alloc.model.map(owner).transpose()?;
        let memory = match self.take(alloc, owner.map(|loaded| &loaded.model)) {
            Ok(memory) => memory,
            Err(error) => return Ok(Err(error.into())),
        };
        let device = owner.map_or(alloc.device, |loaded| loaded.device);
        let device = self.machine.devices().get(device.index());
        let hbm = device
            .filter(|_| alloc.location == Location::Device)
            .and_then(|device| device.mapping(memory.block().pa(), alloc.size_bytes));
        let object = Object {
            memory,
            hbm,
            line,
            model: alloc.model.map(str::to_owned),
            written: Written::default(),
        };
        self.objects.insert(alloc.id.to_owned(), object);
        Ok(Ok(()))
    }

    fn write(
        &mut self,
        id: &str,
        range: Range,
        pattern: Pattern,
    ) -> Result<Result<(), Found>, Fault> {
        let object = self.objects.get_mut(id).ok_or_else(|| no_object(id))?;
        let (mut at, size_bytes) = range.of(object.memory.block().size_bytes());
        if let Err(error) = in_bounds(object.memory.block(), at, size_bytes) {
            return Ok(Err(error.into()));
        }
        let end = at + size_bytes;
        // Whatever comes of it, the old bytes are not sure to be there.
        object.written.forget(at, end);
        let start = at;
        while at < end {
            let piece = resized(&mut self.piece, PIECE_BYTES.min(end - at));
            pattern.fill(at, piece);
            if let Err(error) = object.memory.write(at, piece) {
                return Ok(Err(error.into()));
            }
            at += piece.len() as u64;
        }
        object.written.note(start, end, pattern);
        self.counts.written_bytes += size_bytes;
        Ok(Ok(()))
    }

    fn read(&mut self, id: &str, range: Range) -> Result<Result<(), Found>, Fault> {
        let object = self.objects.get(id).ok_or_else(|| no_object(id))?;
        let (mut at, size_bytes) = range.of(object.memory.block().size_bytes());
        if let Err(error) = in_bounds(object.memory.block(), at, size_bytes) {
            return Ok(Err(error.into()));
        }
        let end = at + size_bytes;
        while at < end {
            let piece = resized(&mut self.piece, PIECE_BYTES.min(end - at));
            // Not what the last write left there.
            piece.fill(UNREAD);
            if let Err(error) = object.memory.read(at, piece) {
                return Ok(Err(error.into()));
            }
            let piece_end = at + piece.len() as u64;
            for (from, to, pattern) in object.written.within(at, piece_end) {
                let (from, to) = (from.max(at), to.min(piece_end));
                let wanted = resized(&mut self.wanted, to - from);
                pattern.fill(from, wanted);
                let found = part(piece, from - at, to - from);
                if let Some(differs) = difference(from, found, wanted, pattern) {
                    return Ok(Err(differs));
                }
                // A fault that a write and a read undo for each other shows only there.
                if let Some(hbm) = &object.hbm {
                    let found = resized(&mut self.direct, to - from);
                    let is_read = hbm.read(from, found).is_ok();
                    debug_assert!(is_read, "the mapping is as long as the object");
                    if let Some(differs) = difference(from, found, wanted, pattern) {
                        return Ok(Err(differs));
                    }
                }
                self.counts.verified_bytes += to - from;
            }
            at = piece_end;
        }
        self.counts.read_bytes += size_bytes;
        Ok(Ok(()))
    }
}

impl Range {
    /// Offset and bytes of the part of an object of `object_bytes`. The part may leave the object.
    fn of(self, object_bytes: u64) -> (u64, u64) {
        let rest_bytes = object_bytes.saturating_sub(self.offset_bytes);
        (self.offset_bytes, self.size_bytes.unwrap_or(rest_bytes))
    }
}

/// Parts are moved in pieces; one that leaves the object is refused as a whole.
fn in_bounds(memory: &Dmem, offset_bytes: u64, size_bytes: u64) -> Result<(), RuntimeError> {
    let limit_bytes = memory.size_bytes();
    if access_fits(offset_bytes, size_bytes, limit_bytes) {
        return Ok(());
    }
    Err(RuntimeError::OutOfBounds {
        offset_bytes,
        size_bytes,
        limit_bytes,
    })
}

fn no_object(id: &str) -> Fault {
    Fault::NoObject { id: id.to_owned() }
}

fn no_model(id: &str) -> Fault {
    Fault::NoModel { id: id.to_owned() }
}

/// The buffer, with this many bytes of no matter what.
fn resized(buffer: &mut Vec<u8>, size_bytes: u64) -> &mut [u8] {
    // CAST: at most a piece.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    buffer.resize(size_bytes as usize, 0);
    buffer
}

fn part(piece: &[u8], offset_bytes: u64, size_bytes: u64) -> &[u8] {
    // CAST: within a piece.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    &piece[offset_bytes as usize..][..size_bytes as usize]
}

/// The first byte that is not as written, at its offset in the object.
fn difference(offset_bytes: u64, found: &[u8], wanted: &[u8], pattern: Pattern) -> Option<Found> {
    if found == wanted {
        return None;
    }
    let mut both = (offset_bytes..).zip(found.iter().zip(wanted));
    let (offset_bytes, (&found, &written)) = both.find(|(_, (one, other))| one != other)?;
    Some(Found::Differs {
        offset_bytes,
        found,
        written,
        seed: pattern.0,
    })
}
