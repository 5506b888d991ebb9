//! Runs workloads: every operation goes from the runtime's API through ioctls, driver and
//! descriptors to the device, and every byte that comes back is compared.
//!
//! ```text
//!   Reader ──► Player ──► Runtime ──► Process (ioctl bytes) ──► Driver ──► Device
//!                └─ which pattern was written where, by object
//! ```
//!
//! The run ends at the first operation that does not end as its line expects. What it leaves live is
//! part of the answer; it is given back when the machine goes.
//!
//! **Memory.** What is kept is what lives: objects, and for each the extents that were written.
//! Patterns are made anew when they are compared.

mod log;
mod pattern;
pub mod report;
mod written;

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;

use glia_abi::addr::access_fits;
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::nrt::NrtStatus;
use glia_runtime::dml::UsageTable;
use glia_runtime::{AllocSpec, Core, Dmem, Runtime, RuntimeConfig, RuntimeError};

use crate::machine::{Machine, MachineConfig, MachineError};
use crate::workload::{Alloc, Fault, Op, Range, Reader, Step, WorkloadError};
use log::Memo;
use pattern::Pattern;
use written::Written;

/// The process that a workload runs as.
const PID: Pid = Pid::new(1000);
/// Bytes that are written or read by one call: what a program would do that streams.
const PIECE_BYTES: u64 = 8 << 20;

/// What a run came to.
#[derive(Debug)]
pub struct Played {
    /// What was done.
    pub counts: Counts,
    /// Who holds what at the end, by device.
    pub tables: Vec<UsageTable>,
    /// The operation that did not end as expected; `None` if all did.
    pub failure: Option<Failure>,
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
    /// All operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.allocs + self.frees + self.writes + self.reads
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
    /// The machine cannot be built.
    #[error("the machine cannot be built")]
    Machine(#[from] MachineError),
    /// The runtime cannot open its devices.
    #[error("the runtime cannot open its devices")]
    Open(#[source] RuntimeError),
}

/// Builds the machine that a workload names, and runs the workload on it.
///
/// # Errors
/// [`PlayError`] if the workload cannot be run to its end. An operation that fails is no error but
/// [`Played::failure`].
pub fn play(source: impl BufRead) -> Result<Played, PlayError> {
    let mut reader = Reader::new(source)?;
    let header = reader.header();
    let machine = Machine::new(MachineConfig {
        devices: header.devices,
        ..MachineConfig::new(header.model)
    })?;
    let devices: Vec<DeviceId> = (0..header.devices).map(DeviceId::new).collect();
    let mut player = Player::open(&machine, &devices)?;
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
        failure: failure.map(|failure| *failure),
    })
}

/// A workload in the middle of its run.
struct Player {
    runtime: Runtime,
    memo: Arc<Memo>,
    objects: HashMap<String, Object>,
    counts: Counts,
    /// Bytes on their way; empty between operations, kept for its room.
    piece: Vec<u8>,
    /// The pattern that they are compared with.
    wanted: Vec<u8>,
}

/// Memory that the workload has taken.
struct Object {
    memory: Dmem,
    /// The line that took it.
    line: u64,
    written: Written,
}

impl Player {
    fn open(machine: &Machine, devices: &[DeviceId]) -> Result<Self, PlayError> {
        let memo = Arc::new(Memo::new(PID, Arc::clone(machine.sched()) as Arc<_>));
        let config = RuntimeConfig {
            log: Some(Arc::clone(&memo) as Arc<_>),
            ..RuntimeConfig::default()
        };
        let runtime =
            Runtime::open(machine.process(PID), devices, config).map_err(PlayError::Open)?;
        Ok(Self {
            runtime,
            memo,
            objects: HashMap::new(),
            counts: Counts::default(),
            piece: Vec::new(),
            wanted: Vec::new(),
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
            Op::Alloc(alloc) => {
                let done = self.alloc(step.line, alloc)?;
                self.counts.allocs += 1;
                done
            }
            Op::Write { id, range, seed } => {
                let done = self.write(id, *range, Pattern(*seed))?;
                self.counts.writes += 1;
                done
            }
            Op::Read { id, range } => {
                let done = self.read(id, *range)?;
                self.counts.reads += 1;
                done
            }
            Op::Free { id } => {
                self.objects.remove(*id).ok_or_else(|| no_object(id))?;
                self.counts.frees += 1;
                Ok(())
            }
        };
        let found = match done {
            Ok(()) => Found::Success,
            Err(found) => found,
        };
        if found.status() == Some(step.expect) {
            if step.expect != NrtStatus::Success {
                self.counts.expected_errors += 1;
            }
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

    fn alloc(&mut self, line: u64, alloc: &Alloc<'_>) -> Result<Result<(), Found>, Fault> {
        if let Some(object) = self.objects.get(alloc.id) {
            return Err(Fault::SecondObject {
                id: alloc.id.to_owned(),
                since: object.line,
            });
        }
        let core = Core {
            device: alloc.device,
            core: alloc.core,
        };
        let spec = AllocSpec {
            size_bytes: alloc.size_bytes,
            align_bytes: alloc.align_bytes,
            usage: alloc.usage,
            location: alloc.location,
            channel: None,
            hint: Some(alloc.name),
        };
        let memory = match self.runtime.allocate(core, &spec) {
            Ok(memory) => memory,
            Err(error) => return Ok(Err(error.into())),
        };
        let object = Object {
            memory,
            line,
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
        let (mut at, size_bytes) = range.of(object.memory.size_bytes());
        if let Err(error) = in_bounds(&object.memory, at, size_bytes) {
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
        let (mut at, size_bytes) = range.of(object.memory.size_bytes());
        if let Err(error) = in_bounds(&object.memory, at, size_bytes) {
            return Ok(Err(error.into()));
        }
        let end = at + size_bytes;
        while at < end {
            let piece = resized(&mut self.piece, PIECE_BYTES.min(end - at));
            if let Err(error) = object.memory.read(at, piece) {
                return Ok(Err(error.into()));
            }
            let piece_end = at + piece.len() as u64;
            for (from, to, pattern) in object.written.within(at, piece_end) {
                let (from, to) = (from.max(at), to.min(piece_end));
                let wanted = resized(&mut self.wanted, to - from);
                pattern.fill(from, wanted);
                let found = part(piece, from - at, to - from);
                if let Some(index) = first_difference(found, wanted) {
                    return Ok(Err(Found::Differs {
                        offset_bytes: from + index as u64,
                        found: found[index],
                        written: wanted[index],
                        seed: pattern.0,
                    }));
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

fn first_difference(found: &[u8], wanted: &[u8]) -> Option<usize> {
    if found == wanted {
        return None;
    }
    found
        .iter()
        .zip(wanted)
        .position(|(one, other)| one != other)
}
