//! A machine as a file (docs/formats/machine.md).
//!
//! ```text
//!   file ──► tables of TOML or JSON ──► MachineFile ──► MachineConfig ──► Machine
//!              a misspelt key, a wrong value: the line, what stands there, what is allowed
//! ```
//!
//! What a file leaves out is as in [`MachineConfig::new`]. Files say what a machine is; who listens
//! to it and what fails in it ([`faults`](crate::faults)) is added by whoever builds it. A recording
//! carries one in JSON, so what is read can be written again.

mod tables;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use glia_abi::arch::Scale;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use tables::{Engines, Host, Params, devices, is_default, table};

use super::{MachineConfig, Model};
use crate::faults::{BadSyntax, Format, unmarked};
use crate::unpack::begins_packed;
use crate::workload::{Engine, Object, Size, ranges};

// LIMIT: a machine has some twenty keys.
const FILE_BYTES_MAX: u64 = 1 << 16;

/// Why a file is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineFileError {
    /// It cannot be read.
    #[error("the file cannot be read")]
    Read(#[from] io::Error),
    /// It is too long to be one.
    #[error("the file has more than {limit_bytes} bytes")]
    TooLong {
        /// The most it may have.
        limit_bytes: u64,
    },
    /// It is packed.
    #[error("the file is packed with gzip: unpack it, only workloads and logs can be packed")]
    Packed,
    /// It is neither TOML nor JSON, or has a key or a value that no machine has.
    #[error("{}{what}", at(*.line))]
    Syntax {
        /// The line, from 1, where it is known.
        line: Option<u64>,
        /// What stands there, and what is allowed.
        what: String,
    },
}

fn at(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

/// Another way to run its engines than a machine's own, and something that the machine says of them
/// which that way does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "engine {asked:?} cannot go with engines.{key} {found} of the machine, which is of {of} engines only"
)]
pub struct EngineClash {
    asked: &'static str,
    key: &'static str,
    found: String,
    of: &'static str,
}

/// A machine as a file says it: some of it may be left to whoever builds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// The file it was read from.
    #[serde(skip)]
    path: Option<PathBuf>,
    #[serde(deserialize_with = "model", serialize_with = "model_name")]
    machine: Model,
    #[serde(
        default,
        deserialize_with = "devices",
        skip_serializing_if = "Option::is_none"
    )]
    devices: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region_size: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hbm_fill: Option<u8>,
    #[serde(
        default,
        deserialize_with = "table",
        skip_serializing_if = "is_default"
    )]
    params: Params,
    #[serde(
        default,
        deserialize_with = "table",
        skip_serializing_if = "is_default"
    )]
    host: Host,
    #[serde(default, deserialize_with = "table")]
    engines: Engines,
}

impl MachineConfig {
    /// The machine that a file describes, TOML or JSON.
    ///
    /// # Errors
    /// [`MachineFileError`] if it cannot be read or means no machine.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, MachineFileError> {
        MachineFile::read(path).map(|file| file.config())
    }

    /// The machine that a TOML document describes.
    ///
    /// # Errors
    /// [`MachineFileError`] if it means no machine.
    pub fn from_toml(text: &str) -> Result<Self, MachineFileError> {
        MachineFile::parse(Format::Toml, text).map(|file| file.config())
    }
}

impl MachineFile {
    /// Reads a file, TOML or JSON.
    ///
    /// # Errors
    /// [`MachineFileError`] if it cannot be read or means no machine.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, MachineFileError> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        File::open(path)?
            .take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let limit_bytes = FILE_BYTES_MAX;
            return Err(MachineFileError::TooLong { limit_bytes });
        }
        if begins_packed(&bytes) {
            return Err(MachineFileError::Packed);
        }
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let file = Self::parse(Format::of(path, &text), &text)?;
        Ok(Self {
            path: Some(path.to_owned()),
            ..file
        })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`MachineFileError`] if it means no machine.
    pub fn parse(format: Format, text: &str) -> Result<Self, MachineFileError> {
        let text = unmarked(text);
        let read = match format {
            Format::Toml => toml::from_str(text).map_err(|error| BadSyntax::of_toml(text, &error)),
            Format::Json => serde_json::from_str(text)
                .map(|Object(file)| file)
                .map_err(|error| BadSyntax::of_json(&error)),
        };
        read.map_err(|BadSyntax { line, what }| MachineFileError::Syntax {
            line,
            what: ranges(&what),
        })
    }

    /// The machine that a JSON value describes.
    ///
    /// # Errors
    /// [`MachineFileError`] if it means none.
    pub(crate) fn from_json(value: serde_json::Value) -> Result<Self, MachineFileError> {
        let read = serde_json::from_value(value).map(|Object(file)| file);
        read.map_err(|error| MachineFileError::Syntax {
            line: None,
            what: ranges(&error.to_string()),
        })
    }

    /// One of which nothing is said but which, how many devices, and how its engines run.
    pub(crate) fn plain(machine: Model, devices: u32, engine: Engine) -> Self {
        Self {
            path: None,
            machine,
            devices: Some(devices),
            region_size: None,
            hbm_fill: None,
            params: Params::default(),
            host: Host::default(),
            engines: Engines::plain(engine),
        }
    }

    /// Whether all that is said of it is which it is, how many devices it has, and how its engines run;
    /// virtual ones by this seed.
    pub(crate) fn is_plain(&self, by: u64) -> bool {
        let mut plain = Self::plain(self.machine, self.devices(), self.engine());
        plain.settle(by);
        plain.path.clone_from(&self.path);
        *self == plain
    }

    /// The file it was read from, if it was.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Which machine.
    #[must_use]
    pub fn model(&self) -> Model {
        self.machine
    }

    /// How many devices it has.
    #[must_use]
    pub fn devices(&self) -> u32 {
        self.devices.unwrap_or(1)
    }

    /// How its engines run.
    #[must_use]
    pub fn engine(&self) -> Engine {
        match self.engines {
            Engines::Inline { .. } => Engine::Inline,
            Engines::Threaded { .. } => Engine::Threaded,
            Engines::Virtual { .. } => Engine::Virtual,
        }
    }

    /// Makes it this machine.
    pub(crate) fn set_model(&mut self, machine: Model) {
        self.machine = machine;
    }

    /// Gives it so many devices.
    pub(crate) fn set_devices(&mut self, devices: u32) {
        self.devices = Some(devices);
    }

    /// Has its engines run so. What the way that it had needs by itself, threads and a seed, goes with
    /// it; what is said of the engines stays.
    ///
    /// # Errors
    /// [`EngineClash`] if that is something which the new way does not have.
    pub(crate) fn set_engine(&mut self, engine: Engine) -> Result<(), EngineClash> {
        if engine == self.engine() {
            return Ok(());
        }
        let (timing, order_seed) = match self.engines {
            Engines::Inline { timing, order_seed } => (timing, order_seed),
            Engines::Threaded { .. } => (None, None),
            Engines::Virtual { timing, .. } => (timing, None),
        };
        let clash = |key, found, of| EngineClash {
            asked: engine.name(),
            key,
            found,
            of,
        };
        if let Some(seed) = order_seed {
            return Err(clash("order_seed", seed.to_string(), "inline"));
        }
        self.engines = match (engine, timing) {
            (Engine::Threaded, Some(timing)) => {
                return Err(clash("timing", timing.told(), "inline and virtual"));
            }
            (Engine::Threaded, None) => Engines::plain(engine),
            (Engine::Inline, timing) => Engines::Inline {
                timing,
                order_seed: None,
            },
            (Engine::Virtual, timing) => Engines::Virtual { seed: None, timing },
        };
        Ok(())
    }

    /// Has virtual engines go by this seed. Others go by none.
    pub(crate) fn set_seed(&mut self, by: u64) {
        if let Engines::Virtual { seed, .. } = &mut self.engines {
            *seed = Some(by);
        }
    }

    /// Says what a run has to know, where the file does not: how many devices there are, and the seed
    /// of virtual engines.
    pub(crate) fn settle(&mut self, by: u64) {
        self.devices = Some(self.devices());
        if let Engines::Virtual { seed, .. } = &mut self.engines {
            seed.get_or_insert(by);
        }
    }

    /// What to build it from.
    #[must_use]
    pub fn config(&self) -> MachineConfig {
        let usual = MachineConfig::new(self.machine);
        let scale = self
            .region_size
            .map(|Size(size_bytes)| Scale::RegionSize { size_bytes });
        self.engines.run(MachineConfig {
            devices: self.devices(),
            scale: scale.unwrap_or_default(),
            hbm_fill: self.hbm_fill.unwrap_or(usual.hbm_fill),
            params: self.params.module_params(),
            host: self.host.config(),
            ..usual
        })
    }
}

/// The model that a name of [`Model::named`] names.
fn model<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Model, D::Error> {
    let name = String::deserialize(deserializer)?;
    Model::named(&name).ok_or_else(|| {
        let allowed = Model::ALL.map(Model::name).join(", ");
        D::Error::custom(format!(
            "machine {name:?} is unknown: {allowed}, inf2 are allowed"
        ))
    })
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn model_name<S: Serializer>(model: &Model, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(model.name())
}
