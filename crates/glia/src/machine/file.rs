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

use std::fs::File;
use std::io::{self, Read as _};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};

use glia_abi::arch::Scale;
use glia_abi::params::ModuleParams;
use glia_device::{EngineOrder, EngineTiming, HostConfig, PinLayout};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{MachineConfig, Model, SchedMode};
use crate::faults::{BadSyntax, Format, unmarked};
use crate::workload::{DEVICES_MAX, Engine, Object, Size, ranges};

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
    /// It is neither TOML nor JSON, or has a key or a value that no machine has.
    #[error("{}{what}", at(*.line))]
    Syntax {
        /// The line, from 1, where it is known.
        line: Option<u64>,
        /// What stands there, and what is allowed.
        what: String,
    },
    /// Not as many devices as an instance can have.
    #[error("devices is {found}: 1 to {most} are allowed")]
    Devices {
        /// What stands there.
        found: u32,
        /// The most there can be.
        most: u32,
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
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// The module parameters by the reference's names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    mempool_min_alloc_size: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mempool_host_memory_size: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mempool_small_pool_size: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mempool_small_alloc_max: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_reset: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zerocopy_trn1_override: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Host {
    #[serde(skip_serializing_if = "Option::is_none")]
    arena_size: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_max: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scatter_seed: Option<u64>,
}

/// How engines run. Each way has its own keys, so that none stands there without effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "run", rename_all = "lowercase", deny_unknown_fields)]
enum Engines {
    Inline {
        #[serde(default, deserialize_with = "timing")]
        #[serde(skip_serializing_if = "Option::is_none")]
        timing: Option<Timing>,
        #[serde(skip_serializing_if = "Option::is_none")]
        order_seed: Option<u64>,
    },
    Threaded {
        #[serde(skip_serializing_if = "Option::is_none")]
        threads: Option<NonZeroU32>,
    },
    Virtual {
        #[serde(skip_serializing_if = "Option::is_none")]
        seed: Option<u64>,
        #[serde(default, deserialize_with = "timing")]
        #[serde(skip_serializing_if = "Option::is_none")]
        timing: Option<Timing>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Timing {
    latency_ns: u64,
    bytes_per_us: NonZeroU64,
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
        let read = read.map_err(|BadSyntax { line, what }| MachineFileError::Syntax {
            line,
            what: said(&what),
        });
        read.and_then(Self::checked)
    }

    /// The machine that a JSON value describes.
    ///
    /// # Errors
    /// [`MachineFileError`] if it means none.
    pub(crate) fn from_json(value: serde_json::Value) -> Result<Self, MachineFileError> {
        let read = serde_json::from_value(value).map(|Object(file)| file);
        let read = read.map_err(|error| MachineFileError::Syntax {
            line: None,
            what: said(&error.to_string()),
        });
        read.and_then(Self::checked)
    }

    fn checked(self) -> Result<Self, MachineFileError> {
        match self.devices() {
            1..=DEVICES_MAX => Ok(self),
            found => Err(MachineFileError::Devices {
                found,
                most: DEVICES_MAX,
            }),
        }
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

/// What a parser says, in words of the format.
fn said(what: &str) -> String {
    ranges(what).replace("variant identifier", "`inline`, `threaded` or `virtual`")
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

/// A table, and no list of its values, which serde would take, too.
fn table<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    let table: Option<Object<T>> = Option::deserialize(deserializer)?;
    Ok(table.map(|Object(table)| table).unwrap_or_default())
}

fn timing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timing>, D::Error> {
    let timing: Option<Object<Timing>> = Option::deserialize(deserializer)?;
    Ok(timing.map(|Object(timing)| timing))
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for Engines {
    fn default() -> Self {
        Self::plain(Engine::default())
    }
}

impl Engines {
    fn plain(engine: Engine) -> Self {
        match engine {
            Engine::Inline => Self::Inline {
                timing: None,
                order_seed: None,
            },
            Engine::Threaded => Self::Threaded { threads: None },
            Engine::Virtual => Self::Virtual {
                seed: None,
                timing: None,
            },
        }
    }

    fn run(&self, config: MachineConfig) -> MachineConfig {
        match *self {
            Self::Inline { timing, order_seed } => MachineConfig {
                timing: timing.map(EngineTiming::from),
                order: order_seed.map_or(EngineOrder::Strict, |seed| EngineOrder::Weak { seed }),
                ..config
            },
            Self::Threaded { threads } => config.with_mode(match threads {
                Some(threads) => SchedMode::Threaded {
                    threads: threads.get(),
                },
                None => SchedMode::THREADED,
            }),
            Self::Virtual { seed, timing } => {
                let seed = seed.unwrap_or(0);
                let config = config.with_mode(SchedMode::Virtual { seed });
                let timing = timing.map(EngineTiming::from).or(config.timing);
                MachineConfig { timing, ..config }
            }
        }
    }
}

impl Params {
    fn module_params(&self) -> ModuleParams {
        let usual = ModuleParams::default();
        let or = |size: Option<Size>, usual| size.map_or(usual, |Size(bytes)| bytes);
        ModuleParams {
            mempool_min_alloc_size: or(self.mempool_min_alloc_size, usual.mempool_min_alloc_size),
            mempool_host_memory_size: or(
                self.mempool_host_memory_size,
                usual.mempool_host_memory_size,
            ),
            mempool_small_pool_size: or(
                self.mempool_small_pool_size,
                usual.mempool_small_pool_size,
            ),
            mempool_small_alloc_max: or(
                self.mempool_small_alloc_max,
                usual.mempool_small_alloc_max,
            ),
            no_reset: self.no_reset.unwrap_or(usual.no_reset),
            zerocopy_trn1_override: self
                .zerocopy_trn1_override
                .unwrap_or(usual.zerocopy_trn1_override),
        }
    }
}

impl Host {
    fn config(&self) -> HostConfig {
        let usual = HostConfig::default();
        let or = |size: Option<Size>, usual| size.map_or(usual, |Size(bytes)| bytes);
        HostConfig {
            arena_size_bytes: or(self.arena_size, usual.arena_size_bytes),
            pin_layout: (self.scatter_seed)
                .map_or(usual.pin_layout, |seed| PinLayout::Scattered { seed }),
            pinned_bytes_max: or(self.pinned_max, usual.pinned_bytes_max),
        }
    }
}

impl Timing {
    fn told(self) -> String {
        let Self {
            latency_ns,
            bytes_per_us,
        } = self;
        format!("{{ latency_ns = {latency_ns}, bytes_per_us = {bytes_per_us} }}")
    }
}

impl From<Timing> for EngineTiming {
    fn from(timing: Timing) -> Self {
        Self {
            latency_ns: timing.latency_ns,
            bytes_per_us: timing.bytes_per_us.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match MachineConfig::from_toml(text) {
            Ok(_) => panic!("a machine: {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_file_can_say_everything() {
        let config = MachineConfig::from_toml(
            r#"
            machine = "trn3"
            devices = 2
            region_size = "256MiB"
            hbm_fill = 0xA5
            [params]
            mempool_min_alloc_size = "64KiB"
            mempool_host_memory_size = "1MiB"
            mempool_small_pool_size = 16777216
            mempool_small_alloc_max = 4096
            no_reset = true
            zerocopy_trn1_override = true
            [host]
            arena_size = "1GiB"
            pinned_max = "8MiB"
            scatter_seed = 3
            [engines]
            run = "virtual"
            seed = 7
            timing = { latency_ns = 90, bytes_per_us = 1000 }
            "#,
        )
        .unwrap();

        assert_eq!(config.arch, Model::Trn3.arch());
        assert_eq!((config.devices, config.hbm_fill), (2, 0xA5));
        assert_eq!(
            config.scale,
            Scale::RegionSize {
                size_bytes: 256 << 20
            }
        );
        assert_eq!(
            config.params,
            ModuleParams {
                mempool_min_alloc_size: 65_536,
                mempool_host_memory_size: 1 << 20,
                mempool_small_pool_size: 16 << 20,
                mempool_small_alloc_max: 4096,
                no_reset: true,
                zerocopy_trn1_override: true,
            }
        );
        assert_eq!(
            config.host,
            HostConfig {
                arena_size_bytes: 1 << 30,
                pin_layout: PinLayout::Scattered { seed: 3 },
                pinned_bytes_max: 8 << 20,
            }
        );
        assert_eq!(config.mode, SchedMode::Virtual { seed: 7 });
        assert_eq!(config.order, EngineOrder::Weak { seed: 7 });
        assert_eq!(
            config.timing,
            Some(EngineTiming {
                latency_ns: 90,
                bytes_per_us: 1000
            })
        );
    }

    #[test]
    fn the_example_is_a_machine() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/machine.toml");
        let config = MachineConfig::read(&path).unwrap();
        assert_eq!((config.devices, config.hbm_fill), (2, 0xA5));
        let document = include_str!("../../../../docs/formats/machine.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (_comment, body) = text.split_once('\n').unwrap();
        assert!(document.contains(body), "the document shows another one");
        crate::machine::Machine::new(config).unwrap();
    }

    #[test]
    fn files_that_cannot_be_read_or_are_too_long_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let read = |path: &Path| MachineConfig::read(path).err().unwrap().to_string();
        assert_eq!(read(directory.path()), "the file cannot be read");
        let long = directory.path().join("long.toml");
        std::fs::write(&long, "#".repeat(65_537)).unwrap();
        assert_eq!(read(&long), "the file has more than 65536 bytes");
        // A character that the limit cuts is not what is wrong.
        std::fs::write(&long, "ä".repeat(65_537)).unwrap();
        assert_eq!(read(&long), "the file has more than 65536 bytes");
        std::fs::write(&long, b"machine = \"\xff\"").unwrap();
        assert_eq!(read(&long), "the file cannot be read");
        std::fs::write(&long, "\u{feff}machine = \"trn2\"\r\n").unwrap();
        assert!(MachineConfig::read(&long).is_ok(), "a byte order mark");
    }

    #[test]
    fn what_is_written_is_read_again_as_json_or_toml() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/machine.toml");
        let file = MachineFile::read(&path).unwrap();
        assert_eq!(file.path(), Some(&*path));
        let text = serde_json::to_string(&file).unwrap();
        let again = MachineFile::parse(Format::Json, &text).unwrap();
        assert_eq!(again.path(), None);
        let same = MachineFile {
            path: None,
            ..file.clone()
        };
        assert_eq!(again, same);
        assert_eq!(
            MachineFile::from_json(serde_json::json!(file)).unwrap(),
            same
        );
        let plain = MachineFile::plain(Model::Trn2, 1, Engine::Inline);
        assert_eq!(
            serde_json::to_string(&plain).unwrap(),
            r#"{"machine":"trn2","devices":1,"engines":{"run":"inline"}}"#
        );
    }

    #[test]
    fn another_way_to_run_engines_keeps_what_is_said_of_them_or_is_refused() {
        let with = |engines: &str, engine| {
            let text = format!("machine = \"trn2\"\nengines = {engines}");
            let mut file = MachineFile::parse(Format::Toml, &text).unwrap();
            file.set_engine(engine).map(|()| file.engines)
        };
        let timed = "timing = { latency_ns = 1, bytes_per_us = 2 }";
        let timing = Some(Timing {
            latency_ns: 1,
            bytes_per_us: NonZeroU64::new(2).unwrap(),
        });
        let virtually = format!("{{ run = \"virtual\", seed = 7, {timed} }}");
        let inline = format!("{{ run = \"inline\", {timed} }}");
        let order_seed = None;
        assert_eq!(
            with(&virtually, Engine::Inline),
            Ok(Engines::Inline { timing, order_seed })
        );
        let seed = None;
        assert_eq!(
            with(&inline, Engine::Virtual),
            Ok(Engines::Virtual { seed, timing })
        );
        let seed = Some(7);
        assert_eq!(
            with(&virtually, Engine::Virtual),
            Ok(Engines::Virtual { seed, timing })
        );
        assert_eq!(
            with("{ run = \"threaded\", threads = 9 }", Engine::Inline),
            Ok(Engines::plain(Engine::Inline))
        );
        let error = |engines: &str, engine| with(engines, engine).unwrap_err().to_string();
        assert_eq!(
            error(&virtually, Engine::Threaded),
            "engine \"threaded\" cannot go with engines.timing { latency_ns = 1, bytes_per_us = 2 } of \
             the machine, which is of inline and virtual engines only"
        );
        assert_eq!(
            error("{ run = \"inline\", order_seed = 5 }", Engine::Virtual),
            "engine \"virtual\" cannot go with engines.order_seed 5 of the machine, which is of inline \
             engines only"
        );
    }

    #[test]
    fn a_seed_is_of_virtual_engines_and_one_that_is_said_stays() {
        let mut file = MachineFile::plain(Model::Trn2, 1, Engine::Virtual);
        let settled = |file: &MachineFile, by| {
            let mut file = file.clone();
            file.settle(by);
            file.config().mode
        };
        assert_eq!(settled(&file, 3), SchedMode::Virtual { seed: 3 });
        assert!(!file.is_plain(3), "it does not say so");
        file.set_seed(7);
        assert_eq!(settled(&file, 3), SchedMode::Virtual { seed: 7 });
        assert!(file.is_plain(7) && !file.is_plain(3));
        let mut inline = MachineFile::plain(Model::Trn2, 1, Engine::Inline);
        inline.set_seed(7);
        assert!(inline.is_plain(3));
    }

    #[test]
    fn what_a_file_leaves_out_is_as_in_code() {
        let config = MachineConfig::from_toml("machine = \"inf2\"").unwrap();
        let usual = MachineConfig::new(Model::Trn1);
        assert_eq!(config.arch, usual.arch);
        assert_eq!(config.scale, usual.scale);
        assert_eq!(config.devices, usual.devices);
        assert_eq!(config.params, usual.params);
        assert_eq!(config.host, usual.host);
        assert_eq!(config.mode, usual.mode);
        assert_eq!((config.timing, config.order), (usual.timing, usual.order));
    }

    #[test]
    fn each_way_to_run_engines_has_its_own_keys() {
        let mode = |engines: &str| {
            let text = format!("machine = \"trn2\"\n[engines]\n{engines}");
            let config = MachineConfig::from_toml(&text).unwrap();
            (config.mode, config.timing, config.order)
        };
        let v3 = EngineTiming::of(Model::Trn2.arch());
        let (strict, weak) = (EngineOrder::Strict, EngineOrder::Weak { seed: 5 });
        assert_eq!(
            mode("run = \"inline\"\norder_seed = 5"),
            (SchedMode::Inline, None, weak)
        );
        assert_eq!(
            mode("run = \"threaded\""),
            (SchedMode::THREADED, None, strict)
        );
        assert_eq!(
            mode("run = \"threaded\"\nthreads = 9"),
            (SchedMode::Threaded { threads: 9 }, None, strict)
        );
        assert_eq!(
            mode("run = \"virtual\"\nseed = 5"),
            (SchedMode::Virtual { seed: 5 }, Some(v3), weak)
        );
    }

    #[test]
    fn what_is_no_machine_is_refused_with_its_line_and_what_is_allowed() {
        let cases: [(&str, &[&str]); 19] = [
            ("", &["line 1", "missing field `machine`"]),
            ("devices = 1", &["machine"]),
            ("machine = \"trn9\"", &["line 1", "trn9", "trn2"]),
            (
                "machine = \"trn2\"\nmachine = \"trn1\"",
                &["line 2: duplicate key `machine`"],
            ),
            (
                "machine = \"trn2\"\ndevice = 2",
                &["line 2", "device", "devices"],
            ),
            ("machine = \"trn2\"\ndevices = 17", &["17", "1 to 16"]),
            ("machine = \"trn2\"\ndevices = 0", &["0", "1 to 16"]),
            (
                "machine = \"trn2\"\ndevices = -1",
                &["line 2", "-1", "0 to 4294967295"],
            ),
            (
                "machine = \"trn2\"\ndevices = 99999999999999999999",
                &["line 2", "99999999999999999999", "0 to 4294967295"],
            ),
            (
                "machine = \"trn2\"\nhbm_fill = 256",
                &["line 2", "256", "0 to 255"],
            ),
            (
                "machine = \"trn2\"\nregion_size = \"1 parsec\"",
                &["line 2", "parsec"],
            ),
            (
                "machine = \"trn2\"\nregion_size = \"16777216TiB\"",
                &["line 2", "16777216TiB", "below 2^64"],
            ),
            (
                "machine = \"trn2\"\n[engines]\nrun = \"threaded\"\nseed = 1",
                &["line", "seed", "threads"],
            ),
            (
                "machine = \"trn2\"\n[engines]\nrun = \"threaded\"\nthreads = 0",
                &["line", "`0`", "1 to 4294967295"],
            ),
            (
                "machine = \"trn2\"\n[engines]\nseed = 1",
                &["line 2", "missing field `run`"],
            ),
            (
                "machine = \"trn2\"\n[engines]\nrun = 1",
                &["line 3", "`1`", "`inline`, `threaded` or `virtual`"],
            ),
            (
                "machine = \"trn2\"\nparams = [4096]",
                &["line 2", "sequence", "object"],
            ),
            (
                "machine = \"trn2\"\n[engines]\nrun = \"virtual\"\ntiming = [1, 2]",
                &["line", "sequence", "object"],
            ),
            ("machine = ", &["line 1"]),
        ];
        for (text, parts) in cases {
            let message = refused(text);
            assert!(!message.contains('\n'), "{message}");
            for part in parts {
                assert!(message.contains(part), "{text}: {message}");
            }
        }
    }
}
