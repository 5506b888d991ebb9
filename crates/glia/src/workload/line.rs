//! One line of a workload behind the first: which keys it has, and the operation that they say.

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_runtime::ScratchVariable;

use super::error::Fault;
use super::fields::{Allowed, Fields};
use super::{
    Alloc, Attach, Batch, Check, Copy, Gauge, Header, Load, Op, OpKind, Part, Range, Reset, Slice,
};
use crate::faults::{Format, PlanFile};

/// The keys of each operation.
impl OpKind {
    const fn allowed(self) -> &'static Allowed {
        macro_rules! keys {
            ($what:literal, $($key:literal),*) => {{
                const KEYS: Allowed = Allowed::new($what, &["op", $($key),*]);
                &KEYS
            }};
        }
        match self {
            Self::Alloc => keys!(
                "alloc", "id", "size", "align", "core", "device", "model", "process", "usage",
                "location", "name", "at", "expect"
            ),
            Self::Write => keys!("write", "id", "offset", "size", "seed", "expect"),
            Self::Read => keys!("read", "id", "offset", "size", "expect"),
            Self::Free => keys!("free", "id"),
            Self::Load => keys!("load", "id", "core", "device", "neff", "name", "process"),
            Self::Unload => keys!("unload", "id"),
            Self::Memset => keys!("memset", "id", "offset", "size", "value", "expect"),
            Self::Copy => keys!("copy", "id", "offset", "size", "to", "to_offset", "expect"),
            Self::Slice => keys!("slice", "id", "of", "offset", "size", "name", "expect"),
            Self::Attach => keys!("attach", "id", "size", "name", "process", "expect"),
            Self::WriteBatch => keys!("write_batch", "parts", "fenced", "expect"),
            Self::ReadBatch => keys!("read_batch", "parts", "fenced", "expect"),
            Self::Reserve => keys!("reserve", "id", "variables", "expect"),
            Self::Reset => keys!("reset", "device", "cores", "process", "expect"),
            Self::Start => keys!("start", "id", "expect"),
            Self::Exit => keys!("exit", "id"),
            Self::Kill => keys!("kill", "id"),
            Self::Fault => keys!("fault", "id", "rule"),
            Self::Mend => keys!("mend", "id"),
            Self::Check => keys!(
                "check",
                "device",
                "hbm",
                "core",
                "present",
                "peak",
                "free",
                "largest_free"
            ),
        }
    }
}

const ALLOC_FOR_MODEL: Allowed = Allowed::new(
    "alloc for a \"model\"",
    &[
        "op", "id", "size", "align", "model", "usage", "location", "name", "at", "expect",
    ],
);

const ALLOC_OF_HOST: Allowed = Allowed::new(
    "alloc of host memory",
    &[
        "op", "id", "size", "align", "core", "device", "model", "process", "usage", "location",
        "name", "expect",
    ],
);

impl Fields<'_> {
    /// The line as an operation on a machine of `header`, and the status that it expects.
    pub(super) fn step(&self, header: &Header) -> Result<(Op<'_>, NrtStatus), Fault> {
        let Some(op) = self.op.as_deref() else {
            self.no_strangers()?;
            return Err(Fault::Missing {
                what: "a line",
                key: "op",
            });
        };
        let kind = OpKind::named(op).ok_or_else(|| Fault::Unknown {
            key: "op",
            found: op.to_owned(),
            allowed: names(OpKind::ALL.iter().map(|kind| kind.name())),
        })?;
        if kind == OpKind::Alloc && self.model.is_some() {
            self.only(&ALLOC_FOR_MODEL)?;
        }
        self.only(kind.allowed())?;
        let what = kind.name();
        let op = match kind {
            OpKind::Alloc => Op::Alloc(self.alloc(header)?),
            OpKind::Write => Op::Write {
                id: self.id(what)?,
                range: self.range(),
                seed: self.seed.unwrap_or(0),
            },
            OpKind::Read => Op::Read {
                id: self.id(what)?,
                range: self.range(),
            },
            OpKind::Free => Op::Free { id: self.id(what)? },
            OpKind::Load => Op::Load(self.load(header)?),
            OpKind::Unload => Op::Unload { id: self.id(what)? },
            OpKind::Memset => Op::Memset {
                id: self.id(what)?,
                range: self.range(),
                value: self.value.unwrap_or(0),
            },
            OpKind::Copy => Op::Copy(Copy {
                id: self.id(what)?,
                range: self.range(),
                to: needed(what, "to", self.to.as_deref())?,
                to_offset_bytes: self.to_offset.map_or(0, |offset| offset.0),
            }),
            OpKind::Slice => Op::Slice(Slice {
                id: self.id(what)?,
                of: needed(what, "of", self.of.as_deref())?,
                range: self.range(),
                name: self.name(what)?,
            }),
            OpKind::Attach => Op::Attach(Attach {
                id: self.id(what)?,
                size_bytes: needed(what, "size", self.size)?.0,
                name: self.name(what)?,
                process: self.process.as_deref(),
            }),
            OpKind::WriteBatch => Op::WriteBatch(self.batch(what)?),
            OpKind::ReadBatch => {
                let parts = self.parts.iter().flatten();
                if parts.clone().any(|part| part.0.seed.is_some()) {
                    return Err(Fault::Misplaced {
                        what: "a part of read_batch",
                        key: "seed",
                        allowed: &["id", "offset", "size"],
                    });
                }
                Op::ReadBatch(self.batch(what)?)
            }
            OpKind::Reserve => Op::Reserve {
                id: self.id(what)?,
                variables: self.variables(what)?,
            },
            OpKind::Reset => Op::Reset(self.reset(header)?),
            OpKind::Start => Op::Start { id: self.id(what)? },
            OpKind::Exit => Op::Exit { id: self.id(what)? },
            OpKind::Kill => Op::Kill { id: self.id(what)? },
            OpKind::Fault => Op::Fault {
                id: self.id(what)?,
                plan: Box::new(self.rule(what)?),
            },
            OpKind::Mend => Op::Mend { id: self.id(what)? },
            OpKind::Check => Op::Check(self.check(what, header)?),
        };
        Ok((op, self.expected()?))
    }

    fn alloc(&self, header: &Header) -> Result<Alloc<'_>, Fault> {
        let named = |usage: &str| {
            MemUsage::named(usage).ok_or_else(|| Fault::Unknown {
                key: "usage",
                found: usage.to_owned(),
                allowed: MemUsage::ALL
                    .map(|usage| usage.name().to_ascii_lowercase())
                    .join(", "),
            })
        };
        let usage = self.usage.as_deref().map_or(Ok(MemUsage::Tensor), named)?;
        let location = match self.location.as_deref() {
            None | Some("device") => Location::Device,
            Some("host") => Location::Host,
            Some(found) => {
                return Err(Fault::Unknown {
                    key: "location",
                    found: found.to_owned(),
                    allowed: "device, host".to_owned(),
                });
            }
        };
        if location == Location::Host {
            self.only(&ALLOC_OF_HOST)?;
        }
        Ok(Alloc {
            id: self.id("alloc")?,
            size_bytes: needed("alloc", "size", self.size)?.0,
            align_bytes: self.align.map_or(0, |align| align.0),
            device: self.device(header)?,
            core: self.core(header)?,
            location,
            usage,
            name: self.name("alloc")?,
            model: self.model.as_deref(),
            process: self.process.as_deref(),
            at: self.at.map(|at| BusAddr::new(at.0)),
        })
    }

    fn load(&self, header: &Header) -> Result<Load<'_>, Fault> {
        Ok(Load {
            id: self.id("load")?,
            device: self.device(header)?,
            core: self.core(header)?,
            neff: self.neff,
            name: self.name("load")?,
            process: self.process.as_deref(),
        })
    }

    fn batch(&self, what: &'static str) -> Result<Batch<'_>, Fault> {
        let parts = needed(what, "parts", self.parts.as_deref())?;
        let parts = parts.iter().map(|part| Part {
            id: &part.0.id,
            range: Range {
                offset_bytes: part.0.offset.map_or(0, |offset| offset.0),
                size_bytes: part.0.size.map(|size| size.0),
            },
            seed: part.0.seed.unwrap_or(0),
        });
        Ok(Batch {
            parts: parts.collect(),
            is_fenced: self.fenced.unwrap_or(true),
        })
    }

    fn variables(&self, what: &'static str) -> Result<Vec<ScratchVariable>, Fault> {
        let variables = needed(what, "variables", self.variables.as_deref())?;
        let variables = variables.iter().map(|one| ScratchVariable {
            offset_bytes: one.0.offset.0,
            size_bytes: one.0.size.0,
        });
        Ok(variables.collect())
    }

    fn reset(&self, header: &Header) -> Result<Reset<'_>, Fault> {
        let cores = header.machine.model().arch().profile().cores;
        let bit = |&core: &u32| below("cores", Some(core), cores, header).map(|core| 1 << core);
        let of = |list: &Vec<u32>| {
            if list.is_empty() {
                return Err(Fault::Unknown {
                    key: "cores",
                    found: "[]".to_owned(),
                    allowed: format!("lists of 0 to {}, or no such key: the device", cores - 1),
                });
            }
            let mut bits = list.iter().map(bit);
            bits.try_fold(0, |map, bit| Ok::<u32, Fault>(map | bit?))
        };
        Ok(Reset {
            device: self.device(header)?,
            cores: self.cores.as_ref().map(of).transpose()?,
            process: self.process.as_deref(),
        })
    }

    fn rule(&self, what: &'static str) -> Result<PlanFile, Fault> {
        let rule = needed(what, "rule", self.rule.as_ref())?;
        let plan = serde_json::json!({ "fault": [rule] }).to_string();
        PlanFile::parse(Format::Json, &plan).map_err(|error| Fault::Rule(Box::new(error)))
    }

    fn check(&self, what: &'static str, header: &Header) -> Result<Check, Fault> {
        let profile = header.machine.model().arch().profile();
        let hbm = match (self.hbm, self.core) {
            (Some(_), Some(_)) => {
                return Err(Fault::Misplaced {
                    what: "check of an \"hbm\"",
                    key: "core",
                    allowed: &[
                        "op",
                        "device",
                        "hbm",
                        "present",
                        "peak",
                        "free",
                        "largest_free",
                    ],
                });
            }
            (None, Some(_)) => profile.default_channel(self.core(header)?),
            (hbm, None) => {
                // CAST: a handful.
                #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
                let hbms = profile.region_bases.len() as u32;
                Channel::new(below("hbm", hbm, hbms, header)?)
            }
        };
        let bounds = [
            (Gauge::Present, self.present),
            (Gauge::Peak, self.peak),
            (Gauge::Free, self.free),
            (Gauge::LargestFree, self.largest_free),
        ];
        let bounds = bounds.into_iter();
        let bounds: Vec<_> = bounds
            .filter_map(|(gauge, bounds)| Some((gauge, bounds?.0)))
            .collect();
        if bounds.is_empty() {
            let key = "present\", \"peak\", \"free\" or \"largest_free";
            return Err(Fault::Missing { what, key });
        }
        Ok(Check {
            device: self.device(header)?,
            hbm,
            bounds,
        })
    }

    fn id(&self, what: &'static str) -> Result<&str, Fault> {
        needed(what, "id", self.id.as_deref())
    }

    /// What reports call it: the id if the line does not say.
    fn name(&self, what: &'static str) -> Result<&str, Fault> {
        self.name.as_deref().map_or_else(|| self.id(what), Ok)
    }

    fn device(&self, header: &Header) -> Result<DeviceId, Fault> {
        below("device", self.device, header.machine.devices(), header).map(DeviceId::new)
    }

    fn core(&self, header: &Header) -> Result<CoreId, Fault> {
        let cores = header.machine.model().arch().profile().cores;
        below("core", self.core, cores, header).map(CoreId::new)
    }

    fn range(&self) -> Range {
        Range {
            offset_bytes: self.offset.map_or(0, |offset| offset.0),
            size_bytes: self.size.map(|size| size.0),
        }
    }

    fn expected(&self) -> Result<NrtStatus, Fault> {
        let Some(expect) = self.expect.as_deref() else {
            return Ok(NrtStatus::Success);
        };
        let mut all = NrtStatus::ALL.iter().copied();
        all.find(|status| status.name() == expect)
            .ok_or_else(|| Fault::Unknown {
                key: "expect",
                found: expect.to_owned(),
                allowed: names(NrtStatus::ALL.iter().map(|status| status.name())),
            })
    }
}

fn needed<T>(what: &'static str, key: &'static str, value: Option<T>) -> Result<T, Fault> {
    value.ok_or(Fault::Missing { what, key })
}

fn names(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The number of a device, core or channel, 0 if not given, among the `count` that the machine has.
fn below(
    key: &'static str,
    number: Option<u32>,
    count: u32,
    header: &Header,
) -> Result<u32, Fault> {
    match number.unwrap_or(0) {
        number if number < count => Ok(number),
        found => Err(Fault::NotThere {
            key,
            found,
            count,
            model: header.machine.model(),
        }),
    }
}
