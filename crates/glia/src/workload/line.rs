//! One line of a workload, and what may stand on it.

use std::borrow::Cow;

use serde::Deserialize;

use glia_abi::handle::{CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;

use super::reader::Fault;
use super::size::Size;
use super::{Alloc, Header, Load, Op, Range, WORKLOAD_FORMAT};
use crate::machine::Model;

/// Operations, for error messages.
const OPS: &str = "alloc, write, read, free, load, unload";
// LIMIT: as many devices as an instance has.
pub(crate) const DEVICES_MAX: u32 = 16;

/// Every key that a line can have. A key that is not here is an error that lists them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    op: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    size: Option<Size>,
    offset: Option<Size>,
    align: Option<Size>,
    core: Option<u32>,
    device: Option<u32>,
    usage: Option<Cow<'a, str>>,
    location: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    seed: Option<u64>,
    expect: Option<Cow<'a, str>>,
    workload: Option<u64>,
    machine: Option<Cow<'a, str>>,
    devices: Option<u32>,
    model: Option<Cow<'a, str>>,
    neff: Option<u32>,
    report: Option<u64>,
    /// What a rebuilt state takes for granted, in words. Nothing depends on it.
    assumed: Option<Vec<String>>,
}

impl Line<'_> {
    /// Whether a key is there.
    fn keys(&self) -> [(&'static str, bool); 19] {
        [
            ("op", self.op.is_some()),
            ("id", self.id.is_some()),
            ("size", self.size.is_some()),
            ("offset", self.offset.is_some()),
            ("align", self.align.is_some()),
            ("core", self.core.is_some()),
            ("device", self.device.is_some()),
            ("usage", self.usage.is_some()),
            ("location", self.location.is_some()),
            ("name", self.name.is_some()),
            ("seed", self.seed.is_some()),
            ("expect", self.expect.is_some()),
            ("workload", self.workload.is_some()),
            ("machine", self.machine.is_some()),
            ("devices", self.devices.is_some()),
            ("model", self.model.is_some()),
            ("neff", self.neff.is_some()),
            ("report", self.report.is_some()),
            ("assumed", self.assumed.is_some()),
        ]
    }

    /// Refuses keys that do not belong on such a line.
    fn only(&self, what: &'static str, allowed: &'static [&'static str]) -> Result<(), Fault> {
        match self
            .keys()
            .into_iter()
            .find(|(key, there)| *there && !allowed.contains(key))
        {
            Some((key, _)) => Err(Fault::Misplaced { what, key, allowed }),
            None => Ok(()),
        }
    }

    /// The line as the first one of a workload.
    pub(super) fn header(&self) -> Result<Header, Fault> {
        let Some(format) = self.workload else {
            return Err(Fault::NoHeader);
        };
        if format != WORKLOAD_FORMAT {
            return Err(Fault::Format { found: format });
        }
        self.only(
            "the first line",
            &["workload", "machine", "devices", "report", "assumed"],
        )?;
        let name = self.machine.as_deref().unwrap_or("trn2");
        let model = Model::named(name).ok_or_else(|| Fault::Unknown {
            key: "machine",
            found: name.to_owned(),
            allowed: format!("{}, inf2", Model::ALL.map(Model::name).join(", ")),
        })?;
        let devices = self.devices.unwrap_or(1);
        if devices == 0 || devices > DEVICES_MAX {
            return Err(Fault::OutOfRange {
                key: "devices",
                found: u64::from(devices),
                least: 1,
                most: u64::from(DEVICES_MAX),
            });
        }
        Ok(Header {
            model,
            devices,
            report: self.report,
        })
    }

    /// The line as an operation on a machine of `header`, and the status that it expects.
    pub(super) fn step(&self, header: Header) -> Result<(Op<'_>, NrtStatus), Fault> {
        let op = self.op.as_deref().ok_or(Fault::Missing {
            what: "a line",
            key: "op",
        })?;
        let op = match op {
            "alloc" => Op::Alloc(self.alloc(header)?),
            "write" => {
                self.only("write", &["op", "id", "offset", "size", "seed", "expect"])?;
                Op::Write {
                    id: self.id("write")?,
                    range: self.range(),
                    seed: self.seed.unwrap_or(0),
                }
            }
            "read" => {
                self.only("read", &["op", "id", "offset", "size", "expect"])?;
                Op::Read {
                    id: self.id("read")?,
                    range: self.range(),
                }
            }
            "free" => {
                self.only("free", &["op", "id"])?;
                Op::Free {
                    id: self.id("free")?,
                }
            }
            "load" => Op::Load(self.load(header)?),
            "unload" => {
                self.only("unload", &["op", "id"])?;
                Op::Unload {
                    id: self.id("unload")?,
                }
            }
            _ => {
                return Err(Fault::Unknown {
                    key: "op",
                    found: op.to_owned(),
                    allowed: OPS.to_owned(),
                });
            }
        };
        Ok((op, self.expected()?))
    }

    fn alloc(&self, header: Header) -> Result<Alloc<'_>, Fault> {
        if self.model.is_some() {
            self.only(
                "alloc for a \"model\"",
                &[
                    "op", "id", "size", "align", "model", "usage", "location", "name", "expect",
                ],
            )?;
        }
        self.only(
            "alloc",
            &[
                "op", "id", "size", "align", "core", "device", "model", "usage", "location",
                "name", "expect",
            ],
        )?;
        let id = self.id("alloc")?;
        let size = self.size.ok_or(Fault::Missing {
            what: "alloc",
            key: "size",
        })?;
        let usage = self.usage.as_deref().unwrap_or("tensor");
        let usage = MemUsage::named(usage).ok_or_else(|| Fault::Unknown {
            key: "usage",
            found: usage.to_owned(),
            allowed: MemUsage::ALL
                .map(|usage| usage.name().to_ascii_lowercase())
                .join(", "),
        })?;
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
        let cores = header.model.arch().profile().cores;
        Ok(Alloc {
            id,
            size_bytes: size.0,
            align_bytes: self.align.map_or(0, |align| align.0),
            device: DeviceId::new(below("device", self.device, header.devices)?),
            core: CoreId::new(below("core", self.core, cores)?),
            location,
            usage,
            name: self.name.as_deref().unwrap_or(id),
            model: self.model.as_deref(),
        })
    }

    fn load(&self, header: Header) -> Result<Load<'_>, Fault> {
        self.only("load", &["op", "id", "core", "device", "neff", "name"])?;
        let id = self.id("load")?;
        let cores = header.model.arch().profile().cores;
        Ok(Load {
            id,
            device: DeviceId::new(below("device", self.device, header.devices)?),
            core: CoreId::new(below("core", self.core, cores)?),
            neff: self.neff,
            name: self.name.as_deref().unwrap_or(id),
        })
    }

    fn id(&self, what: &'static str) -> Result<&str, Fault> {
        self.id.as_deref().ok_or(Fault::Missing { what, key: "id" })
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
        NrtStatus::ALL
            .iter()
            .copied()
            .find(|status| status.name() == expect)
            .ok_or_else(|| Fault::Unknown {
                key: "expect",
                found: expect.to_owned(),
                allowed: NrtStatus::ALL
                    .iter()
                    .map(|status| status.name())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }
}

/// The number of a device or core, 0 if not given, among `count` of them.
fn below(key: &'static str, number: Option<u32>, count: u32) -> Result<u32, Fault> {
    match number.unwrap_or(0) {
        number if number < count => Ok(number),
        number => Err(Fault::OutOfRange {
            key,
            found: u64::from(number),
            least: 0,
            most: u64::from(count.saturating_sub(1)),
        }),
    }
}
