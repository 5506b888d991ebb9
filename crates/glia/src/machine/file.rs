//! A machine as a TOML file (docs/formats/machine.md).
//!
//! ```text
//!   file ──► tables of TOML ──► MachineConfig ──► Machine
//!              a misspelt key, a wrong value: the line, what stands there, what is allowed
//! ```
//!
//! What a file leaves out is as in [`MachineConfig::new`]. Files say what a machine is; who listens
//! to it and what fails in it ([`faults`](crate::faults)) is added by whoever builds it.

use std::fs::File;
use std::io::{self, Read as _};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;

use glia_abi::arch::Scale;
use glia_abi::params::ModuleParams;
use glia_device::{EngineOrder, EngineTiming, HostConfig, PinLayout};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{MachineConfig, Model, SchedMode};
use crate::workload::{DEVICES_MAX, Size};

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
    /// It is not TOML, or has a key or a value that no machine has.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Not as many devices as an instance can have.
    #[error("devices is {found}: 1 to {most} are allowed")]
    Devices {
        /// What stands there.
        found: u32,
        /// The most there can be.
        most: u32,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(deserialize_with = "model")]
    machine: Model,
    devices: Option<u32>,
    region_size: Option<Size>,
    #[serde(default)]
    hbm_fill: u8,
    #[serde(default)]
    params: Params,
    #[serde(default)]
    host: Host,
    #[serde(default)]
    engines: Engines,
}

/// The module parameters by the reference's names.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Params {
    mempool_min_alloc_size: Option<Size>,
    mempool_host_memory_size: Option<Size>,
    mempool_small_pool_size: Option<Size>,
    mempool_small_alloc_max: Option<Size>,
    no_reset: bool,
    zerocopy_trn1_override: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Host {
    arena_size: Option<Size>,
    pinned_max: Option<Size>,
    scatter_seed: Option<u64>,
}

/// How engines run. Each way has its own keys, so that none stands there without effect.
#[derive(Deserialize)]
#[serde(tag = "run", rename_all = "lowercase", deny_unknown_fields)]
enum Engines {
    Inline {
        timing: Option<Timing>,
        order_seed: Option<u64>,
    },
    Threaded {
        threads: Option<NonZeroU32>,
    },
    Virtual {
        #[serde(default)]
        seed: u64,
        timing: Option<Timing>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timing {
    latency_ns: u64,
    bytes_per_us: NonZeroU64,
}

impl MachineConfig {
    /// The machine that a TOML file describes.
    ///
    /// # Errors
    /// [`MachineFileError`] if it cannot be read or means no machine.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, MachineFileError> {
        let mut text = String::new();
        File::open(path)?
            .take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let limit_bytes = FILE_BYTES_MAX;
            return Err(MachineFileError::TooLong { limit_bytes });
        }
        Self::from_toml(&text)
    }

    /// The machine that a TOML document describes.
    ///
    /// # Errors
    /// [`MachineFileError`] if it means no machine.
    pub fn from_toml(text: &str) -> Result<Self, MachineFileError> {
        let document: Document = toml::from_str(text)?;
        let devices = document.devices.unwrap_or(1);
        if !(1..=DEVICES_MAX).contains(&devices) {
            return Err(MachineFileError::Devices {
                found: devices,
                most: DEVICES_MAX,
            });
        }
        let scale = document
            .region_size
            .map(|Size(size_bytes)| Scale::RegionSize { size_bytes });
        let config = Self {
            devices,
            scale: scale.unwrap_or_default(),
            hbm_fill: document.hbm_fill,
            params: document.params.into(),
            host: document.host.into(),
            ..Self::new(document.machine)
        };
        Ok(document.engines.run(config))
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

impl Default for Engines {
    fn default() -> Self {
        Self::Inline {
            timing: None,
            order_seed: None,
        }
    }
}

impl Engines {
    fn run(self, config: MachineConfig) -> MachineConfig {
        match self {
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
                let config = config.with_mode(SchedMode::Virtual { seed });
                let timing = timing.map(EngineTiming::from).or(config.timing);
                MachineConfig { timing, ..config }
            }
        }
    }
}

impl From<Params> for ModuleParams {
    fn from(params: Params) -> Self {
        let usual = Self::default();
        let or = |size: Option<Size>, usual| size.map_or(usual, |Size(bytes)| bytes);
        Self {
            mempool_min_alloc_size: or(params.mempool_min_alloc_size, usual.mempool_min_alloc_size),
            mempool_host_memory_size: or(
                params.mempool_host_memory_size,
                usual.mempool_host_memory_size,
            ),
            mempool_small_pool_size: or(
                params.mempool_small_pool_size,
                usual.mempool_small_pool_size,
            ),
            mempool_small_alloc_max: or(
                params.mempool_small_alloc_max,
                usual.mempool_small_alloc_max,
            ),
            no_reset: params.no_reset,
            zerocopy_trn1_override: params.zerocopy_trn1_override,
        }
    }
}

impl From<Host> for HostConfig {
    fn from(host: Host) -> Self {
        let usual = Self::default();
        let or = |size: Option<Size>, usual| size.map_or(usual, |Size(bytes)| bytes);
        Self {
            arena_size_bytes: or(host.arena_size, usual.arena_size_bytes),
            pin_layout: (host.scatter_seed)
                .map_or(usual.pin_layout, |seed| PinLayout::Scattered { seed }),
            pinned_bytes_max: or(host.pinned_max, usual.pinned_bytes_max),
        }
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
        let cases: [(&str, &[&str]); 8] = [
            ("devices = 1", &["machine"]),
            ("machine = \"trn9\"", &["line 1", "trn9", "trn2"]),
            (
                "machine = \"trn2\"\ndevice = 2",
                &["line 2", "device", "devices"],
            ),
            ("machine = \"trn2\"\ndevices = 17", &["17", "1 to 16"]),
            ("machine = \"trn2\"\nhbm_fill = 256", &["line 2", "256"]),
            (
                "machine = \"trn2\"\nregion_size = \"1 parsec\"",
                &["line 2", "parsec"],
            ),
            (
                "machine = \"trn2\"\n[engines]\nrun = \"threaded\"\nseed = 1",
                &["line", "seed", "threads"],
            ),
            ("machine = ", &["line 1"]),
        ];
        for (text, parts) in cases {
            let message = refused(text);
            for part in parts {
                assert!(message.contains(part), "{text}: {message}");
            }
        }
    }
}
