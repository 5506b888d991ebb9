//! A workload in the middle of its run.

mod memory;
mod models;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glia_abi::addr::BusAddr;
use glia_abi::event::Sink;
use glia_abi::fault::FaultPlan;
use glia_abi::handle::DeviceId;
use glia_abi::nrt::NrtStatus;
use glia_runtime::{RuntimeConfig, RuntimeError};
use slab::Slab;

use super::bytes::{self, Done, Moved, Pieces};
use super::counts::Counts;
use super::failure::{Failure, Found};
use super::log::{Memo, TIME_LEN};
use super::object::Store;
use super::pattern::Pattern;
use super::program::{Loaded, Program, pid};
use super::reporting::{Reporting, Warnings};
use super::{PlayError, batch};
use crate::faults::{Laid, PlanFile, RuleReport};
use crate::machine::Machine;
use crate::workload::{Fault, Header, MAIN, Op, Reset, Step};

/// A workload in the middle of its run. What is given back first stands first.
pub(super) struct Player<'a> {
    store: Store,
    models: BTreeMap<String, Loaded>,
    programs: Slab<Program>,
    machine: Machine,
    devices: Vec<DeviceId>,
    config: RuntimeConfig,
    memo: Arc<Memo>,
    warnings: Warnings,
    /// Processes that were started.
    started: u64,
    /// Pages of scratchpads, by process, device and logical core.
    pages: BTreeMap<(usize, DeviceId, u32), Vec<usize>>,
    plan: Arc<FaultPlan>,
    laid: Vec<Laid>,
    /// Faults that lines order, by name, with the line.
    ordered: BTreeMap<String, (u64, Laid)>,
    /// How those have done that were mended.
    mended: Vec<RuleReport>,
    seed: u64,
    counts: Counts,
    moved: Moved,
    pieces: Pieces<'a>,
    /// Where the memory lies that the last operation took, if its line does not say.
    lies_at: Option<BusAddr>,
}

impl<'a> Player<'a> {
    /// Starts the first process.
    pub(super) fn open(
        machine: &Machine,
        header: &Header,
        reporting: Reporting,
        sink: Arc<dyn Sink>,
        plan: Arc<FaultPlan>,
        laid: Vec<Laid>,
        stop: Option<&'a AtomicBool>,
    ) -> Result<Self, PlayError> {
        let memo = Arc::new(Memo::new(pid(0), Arc::clone(machine.sched())));
        let usual = RuntimeConfig::default();
        let config = RuntimeConfig {
            profile: reporting.profile,
            verbose_tables: reporting.verbose_tables,
            log: Some(Arc::clone(&memo) as Arc<_>),
            sink,
            // Nobody asks for them but the file, and they keep the facts of what has been freed.
            events_max: match reporting.dump {
                Some(_) => usual.events_max,
                None => 0,
            },
            dump: reporting.dump,
            lnc_size: header.lnc,
            scratchpad_page: header.scratchpad_page,
            contiguous_scratchpad: header.contiguous_scratchpad,
            zero_copy: header.zero_copy,
            ..usual
        };
        let mut player = Self {
            store: Store::default(),
            models: BTreeMap::new(),
            programs: Slab::new(),
            machine: machine.clone(),
            devices: (0..header.machine.devices()).map(DeviceId::new).collect(),
            config,
            memo,
            warnings: Warnings::default(),
            started: 0,
            pages: BTreeMap::new(),
            plan,
            laid,
            ordered: BTreeMap::new(),
            mended: Vec::new(),
            seed: header.seed,
            counts: Counts::default(),
            moved: Moved::default(),
            pieces: Pieces::new(stop),
            lies_at: None,
        };
        match player.start(1, MAIN) {
            Ok(()) => Ok(player),
            Err(source) => Err(PlayError::Open {
                faults: player.laid.iter().flat_map(Laid::told).collect(),
                source,
            }),
        }
    }

    /// Runs one operation and compares its end with what is expected.
    pub(super) fn step(&mut self, step: &Step<'_>) -> Result<Result<(), Box<Failure>>, Fault> {
        self.lies_at = None;
        let found = match self.run(step.line, &step.op)? {
            Ok(()) => Found::Success,
            Err(found) => found,
        };
        if found.status() == Some(step.expect) {
            self.counts.add(step);
            match (step.expect, &step.op) {
                // What a killed process would say of its memory, nobody hears.
                (NrtStatus::Success, op) if !matches!(op, Op::Kill { .. }) => {
                    if let Some(log) = self.memo.take_any() {
                        self.warnings.add(step.line, &log, TIME_LEN);
                    }
                }
                _ => drop(self.memo.take_any()),
            }
            return Ok(Ok(()));
        }
        Ok(Err(Box::new(Failure {
            line: step.line,
            id: step.op.id().to_owned(),
            expected: step.expect,
            found,
            log: self.memo.take_any().unwrap_or_default(),
        })))
    }

    fn run(&mut self, line: u64, op: &Op<'_>) -> Done {
        let (store, moved) = (&mut self.store, &mut self.moved);
        let (machine, pieces, run_seed) = (&self.machine, &mut self.pieces, self.seed);
        let pattern = |seed: u64| Pattern::seeded(seed ^ run_seed);
        match op {
            Op::Alloc(alloc) => self.alloc(line, alloc),
            Op::Write { id, range, seed } => {
                bytes::write(store, id, *range, pattern(*seed), pieces, moved)
            }
            Op::Read { id, range } => bytes::read(store, machine, id, *range, pieces, moved),
            Op::Free { id } => store.free(id).map(Ok),
            Op::Load(load) => self.load(line, load),
            Op::Unload { id } => self.unload(id).map(Ok),
            Op::Memset { id, range, value } => bytes::memset(store, id, *range, *value, moved),
            Op::Copy(copy) => bytes::copy(store, copy, moved),
            Op::Slice(slice) => self.slice(line, slice),
            Op::Attach(attach) => self.attach(line, attach),
            Op::WriteBatch(batch) => batch::write(store, batch, pattern, pieces, moved),
            Op::ReadBatch(batch) => batch::read(store, machine, batch, pieces, moved),
            Op::Reserve { id, variables } => self.reserve(line, id, variables),
            Op::Reset(reset) => self.reset(reset),
            Op::Start { id } => {
                if let Some((_, program)) = self.programs.iter().find(|(_, it)| *it.name == **id) {
                    return Err(second("a process", id, "runs", program.line));
                }
                Ok(self.start(line, id).map_err(Found::from))
            }
            Op::Exit { id } => self.finish(id, false).map(Ok),
            Op::Kill { id } => self.finish(id, true).map(Ok),
            Op::Fault { id, plan } => self.order(line, id, plan).map(Ok),
            Op::Mend { id } => self.mend(id).map(Ok),
            Op::Check(check) => Ok(self.check(check)),
        }
    }

    /// The process of a name.
    fn program(&self, name: Option<&str>) -> Result<(usize, &Program), Fault> {
        let name = name.unwrap_or(MAIN);
        let mut programs = self.programs.iter();
        let program = programs.find(|(_, program)| &*program.name == name);
        program.ok_or_else(|| Fault::NoProcess {
            id: name.to_owned(),
        })
    }

    fn start(&mut self, line: u64, name: &str) -> Result<(), RuntimeError> {
        let pid = pid(self.started);
        let config = RuntimeConfig {
            process: Some(pid),
            ..self.config.clone()
        };
        let program = Program::start(&self.machine, &self.devices, config, (name, line), pid)?;
        self.started += 1;
        self.programs.insert(program);
        Ok(())
    }

    /// Ends a process, with all that is its.
    fn finish(&mut self, name: &str, is_killed: bool) -> Result<(), Fault> {
        let (key, program) = self.program(Some(name))?;
        if is_killed {
            // Before what it holds is let go: the driver takes that back.
            program.kill();
        }
        self.store.free_all(|object, _| object.program == key);
        let mut private = Vec::new();
        self.models.retain(|_, loaded| {
            let goes = loaded.program == key;
            if goes {
                private.append(&mut loaded.private);
            }
            !goes
        });
        let mut pages = Vec::new();
        self.pages.retain(|&(program, ..), of_core| {
            let goes = program == key;
            if goes {
                pages.append(of_core);
            }
            !goes
        });
        for storage in private.into_iter().chain(pages) {
            self.store.put(Some(storage));
        }
        self.programs.remove(key);
        Ok(())
    }

    fn reset(&mut self, reset: &Reset<'_>) -> Done {
        let (_, program) = self.program(reset.process)?;
        Ok(program.reset(reset.device, reset.cores))
    }

    fn order(&mut self, line: u64, id: &str, plan: &PlanFile) -> Result<(), Fault> {
        if let Some((since, _)) = self.ordered.get(id) {
            return Err(second("a fault", id, "is ordered", *since));
        }
        let devices = self.machine.devices().len();
        let devices = u32::try_from(devices).unwrap_or(u32::MAX);
        let laid = plan.lay_into(&self.plan, self.machine.arch(), devices);
        let laid = laid.map_err(|error| Fault::Rule(Box::new(error)))?;
        self.ordered.insert(id.to_owned(), (line, laid));
        Ok(())
    }

    fn mend(&mut self, id: &str) -> Result<(), Fault> {
        let none = || Fault::NoFault { id: id.to_owned() };
        let (line, laid) = self.ordered.remove(id).ok_or_else(none)?;
        let at = |rule| RuleReport {
            id: Some(id.to_owned()),
            line: Some(line),
            ..rule
        };
        self.mended.extend(laid.told().into_iter().map(at));
        laid.lift();
        Ok(())
    }

    /// Where the memory lies that the last operation took, if its line does not say.
    pub(super) fn lies_at(&self) -> Option<BusAddr> {
        self.lies_at
    }
}

fn second(what: &'static str, id: &str, lives: &'static str, since: u64) -> Fault {
    Fault::Second {
        what,
        id: id.to_owned(),
        lives,
        since,
    }
}

fn no_model(id: &str) -> Fault {
    Fault::NoModel { id: id.to_owned() }
}
