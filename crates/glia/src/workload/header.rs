//! The first line: what a workload runs on, and what a command line says instead.

use glia_runtime::config::PageSize;
use serde_json::Value;

use super::WORKLOAD_FORMAT;
use super::error::Fault;
use super::fields::{Allowed, Fields};
use super::params::Params;
use crate::faults::{Format, PlanFile};
use crate::machine::{MachineFile, Model};

// LIMIT: as many devices as an instance has.
pub(crate) const DEVICES_MAX: u32 = 16;
const LNC_MAX: u32 = 8;

const FIRST: Allowed = Allowed::new(
    "the first line",
    &[
        "workload",
        "machine",
        "devices",
        "params",
        "engine",
        "seed",
        "lnc",
        "scratchpad",
        "scratchpad_page",
        "zero_copy",
        "faults",
        "recorded",
        "report",
        "assumed",
    ],
);

/// The first line: what the workload runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The machine, with its devices and its engines.
    pub machine: MachineFile,
    /// What chance comes from: faults, patterns, and, unless the machine has its own, the order of
    /// events in the virtual mode.
    pub seed: u64,
    /// Physical cores that make a logical one.
    pub lnc: u32,
    /// Whether the scratchpad is to be contiguous, where it can be.
    pub contiguous_scratchpad: bool,
    /// How large a page of the paged scratchpad is.
    pub scratchpad_page: PageSize,
    /// Whether copies go by the program's own pages.
    pub zero_copy: bool,
    /// What fails from the beginning on.
    pub faults: Option<PlanFile>,
    /// Which report of a log the workload rebuilds, from 1; `None` if it rebuilds none.
    pub report: Option<u64>,
    /// What a workload that was made of a log takes for granted; `None` if it says nothing of that.
    pub assumed: Option<Vec<String>>,
}

/// How the machine runs its engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// At once, on the thread of whoever rings.
    #[default]
    Inline,
    /// On threads beside, in real time.
    Threaded,
    /// In an order and at times that follow from the seed.
    Virtual,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inline, Self::Threaded, Self::Virtual];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Threaded => "threaded",
            Self::Virtual => "virtual",
        }
    }
}

/// What stands in the place of what a file says.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// The whole machine, with its devices and its engines; what follows acts upon it.
    pub machine: Option<MachineFile>,
    /// Which machine.
    pub model: Option<Model>,
    /// How many devices it has.
    pub devices: Option<u32>,
    /// Who runs its engines.
    pub engine: Option<Engine>,
    /// What chance comes from, that of virtual engines included.
    pub seed: Option<u64>,
    /// Parameters by name.
    pub params: Vec<(String, String)>,
}

impl Header {
    /// The first line of a workload, and the parameters that it declares.
    pub(super) fn read(fields: Fields<'_>, instead: &Overrides) -> Result<(Self, Params), Fault> {
        let Some(format) = fields.workload else {
            return Err(Fault::NoHeader);
        };
        if format != WORKLOAD_FORMAT {
            return Err(Fault::Format { found: format });
        }
        fields.only(&FIRST)?;
        let said = machine(&fields)?;
        let seed = instead.seed.or(fields.seed).unwrap_or(0);
        let machine = instead.on(said, seed)?;
        let scratchpad = fields.scratchpad.as_deref().unwrap_or("paged");
        if !["paged", "contiguous"].contains(&scratchpad) {
            return Err(Fault::Unknown {
                key: "scratchpad",
                found: scratchpad.to_owned(),
                allowed: "paged, contiguous".to_owned(),
            });
        }
        let page_bytes = fields
            .scratchpad_page
            .map_or(PageSize::STEP_BYTES, |it| it.0);
        let faults = fields.faults.map(|document| {
            let plan = PlanFile::parse(Format::Json, &document.to_string());
            plan.map_err(|error| Fault::Rule(Box::new(error)))
        });
        let lnc = within("lnc", fields.lnc, 1, LNC_MAX)?;
        if !lnc.is_power_of_two() {
            return Err(Fault::Unknown {
                key: "lnc",
                found: lnc.to_string(),
                allowed: "1, 2, 4, 8".to_owned(),
            });
        }
        let header = Self {
            machine,
            seed,
            lnc,
            contiguous_scratchpad: scratchpad == "contiguous",
            scratchpad_page: PageSize::new(page_bytes).ok_or_else(|| Fault::Unknown {
                key: "scratchpad_page",
                found: page_bytes.to_string(),
                allowed: "the multiples of 512MiB below 4GiB".to_owned(),
            })?,
            zero_copy: fields.zero_copy.unwrap_or(false),
            faults: faults.transpose()?,
            report: fields.report.map(numbered).transpose()?,
            assumed: fields.assumed,
        };
        let declared = fields.params.map(|params| params.0).unwrap_or_default();
        Ok((header, Params::new(declared, &instead.params)?))
    }
}

impl Overrides {
    /// The machine of a run with this seed, whose workload says the one that is given.
    fn on(&self, said: MachineFile, seed: u64) -> Result<MachineFile, Fault> {
        let mut machine = self.machine.clone().unwrap_or(said);
        if let Some(model) = self.model {
            machine.set_model(model);
        }
        if let Some(devices) = self.devices {
            machine.set_devices(within("devices", Some(devices), 1, DEVICES_MAX)?);
        }
        if let Some(engine) = self.engine {
            machine.set_engine(engine)?;
        }
        if let Some(seed) = self.seed {
            machine.set_seed(seed);
        }
        machine.settle(seed);
        Ok(machine)
    }
}

/// The machine that the line says, by its name or in full.
fn machine(fields: &Fields<'_>) -> Result<MachineFile, Fault> {
    let model = match &fields.machine {
        None => Model::Trn2,
        Some(Value::String(name)) => Model::named(name).ok_or_else(|| unknown(name))?,
        Some(full @ Value::Object(_)) => {
            let full = MachineFile::from_json(full.clone());
            let full = full.map_err(|error| Fault::Machine(Box::new(error)))?;
            let beside = |key, found, own| Fault::Beside { key, found, own };
            if let Some(devices) = fields.devices {
                let own = full.devices().to_string();
                return Err(beside("devices", devices.to_string(), own));
            }
            if let Some(engine) = &fields.engine {
                let own = full.engine().name().to_owned();
                return Err(beside("engine", engine.to_string(), own));
            }
            return Ok(full);
        }
        Some(other) => return Err(unknown(&other.to_string())),
    };
    let engine = fields.engine.as_deref().unwrap_or("inline");
    let engine = (Engine::ALL.into_iter().find(|one| one.name() == engine)).ok_or_else(|| {
        Fault::Unknown {
            key: "engine",
            found: engine.to_owned(),
            allowed: Engine::ALL.map(Engine::name).join(", "),
        }
    })?;
    let devices = within("devices", fields.devices, 1, DEVICES_MAX)?;
    Ok(MachineFile::plain(model, devices, engine))
}

fn unknown(machine: &str) -> Fault {
    Fault::Unknown {
        key: "machine",
        found: machine.to_owned(),
        allowed: format!(
            "{}, inf2, or a machine in full",
            Model::ALL.map(Model::name).join(", ")
        ),
    }
}

/// The number of a report.
fn numbered(report: u64) -> Result<u64, Fault> {
    let most = u64::from(u32::MAX);
    match report {
        number if (1..=most).contains(&number) => Ok(number),
        found => Err(Fault::OutOfRange {
            key: "report",
            found,
            least: 1,
            most,
        }),
    }
}

/// A number, the least one if it is not given.
fn within(key: &'static str, number: Option<u32>, least: u32, most: u32) -> Result<u32, Fault> {
    match number.unwrap_or(least) {
        number if (least..=most).contains(&number) => Ok(number),
        number => Err(Fault::OutOfRange {
            key,
            found: number.into(),
            least: least.into(),
            most: most.into(),
        }),
    }
}
