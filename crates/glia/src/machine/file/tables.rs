//! The tables of a machine file, and what they say of a machine.

use std::fmt;
use std::num::NonZeroU64;

use glia_abi::params::ModuleParams;
use glia_device::sched::THREADS_MAX;
use glia_device::{EngineOrder, EngineTiming, HostConfig, PinLayout};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::super::{MachineConfig, SchedMode};
use crate::workload::{DEVICES_MAX, Engine, Object, Size};

/// The module parameters by the reference's names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Params {
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
pub(super) struct Host {
    #[serde(skip_serializing_if = "Option::is_none")]
    arena_size: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_max: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scatter_seed: Option<u64>,
}

/// How engines run. Each way has its own keys, so that none stands there without effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    try_from = "EngineKeys",
    tag = "run",
    rename_all = "lowercase",
    deny_unknown_fields
)]
pub(super) enum Engines {
    Inline {
        #[serde(skip_serializing_if = "Option::is_none")]
        timing: Option<Timing>,
        #[serde(skip_serializing_if = "Option::is_none")]
        order_seed: Option<u64>,
    },
    Threaded {
        #[serde(skip_serializing_if = "Option::is_none")]
        threads: Option<u32>,
    },
    Virtual {
        #[serde(skip_serializing_if = "Option::is_none")]
        seed: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timing: Option<Timing>,
    },
}

/// The keys of all ways to run engines. They are read before it is known which way it is: where a value
/// is wrong, the parser still knows its line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineKeys {
    #[serde(deserialize_with = "engine")]
    run: Engine,
    #[serde(default, deserialize_with = "timing")]
    timing: Option<Timing>,
    order_seed: Option<u64>,
    #[serde(default, deserialize_with = "threads")]
    threads: Option<u32>,
    seed: Option<u64>,
}

/// A key of another way to run engines.
#[derive(Debug, thiserror::Error)]
#[error("engines.{key} means nothing with run = {:?}: allowed are run, {allowed}", .run.name())]
struct Misplaced {
    key: &'static str,
    run: Engine,
    allowed: &'static str,
}

impl TryFrom<EngineKeys> for Engines {
    type Error = Misplaced;

    fn try_from(keys: EngineKeys) -> Result<Self, Misplaced> {
        let EngineKeys {
            run,
            timing,
            order_seed,
            threads,
            seed,
        } = keys;
        let there = [
            ("timing", timing.is_some()),
            ("order_seed", order_seed.is_some()),
            ("threads", threads.is_some()),
            ("seed", seed.is_some()),
        ];
        let only = |names: &[&str], allowed| {
            let stray = there.iter().find(|(key, is)| *is && !names.contains(key));
            stray.map_or(Ok(()), |&(key, _)| Err(Misplaced { key, run, allowed }))
        };
        Ok(match run {
            Engine::Inline => {
                only(&["timing", "order_seed"], "timing, order_seed")?;
                Self::Inline { timing, order_seed }
            }
            Engine::Threaded => {
                only(&["threads"], "threads")?;
                Self::Threaded { threads }
            }
            Engine::Virtual => {
                only(&["timing", "seed"], "timing, seed")?;
                Self::Virtual { seed, timing }
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Timing {
    pub(super) latency_ns: u64,
    pub(super) bytes_per_us: NonZeroU64,
}

impl Default for Engines {
    fn default() -> Self {
        Self::plain(Engine::default())
    }
}

impl Engines {
    pub(super) fn plain(engine: Engine) -> Self {
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

    pub(super) fn run(&self, config: MachineConfig) -> MachineConfig {
        match *self {
            Self::Inline { timing, order_seed } => MachineConfig {
                timing: timing.map(EngineTiming::from),
                order: order_seed.map_or(EngineOrder::Strict, |seed| EngineOrder::Weak { seed }),
                ..config
            },
            Self::Threaded { threads } => config.with_mode(match threads {
                Some(threads) => SchedMode::Threaded { threads },
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
    pub(super) fn module_params(&self) -> ModuleParams {
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
    pub(super) fn config(&self) -> HostConfig {
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
    pub(super) fn told(self) -> String {
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

/// A table, and no list of its values, which serde would take, too.
pub(super) fn table<'de, T, D>(deserializer: D) -> Result<T, D::Error>
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

/// The name of a way to run engines.
fn engine<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Engine, D::Error> {
    struct Names;

    impl Visitor<'_> for Names {
        type Value = Engine;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("`inline`, `threaded` or `virtual`")
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Engine, E> {
            let named = Engine::ALL.into_iter().find(|one| one.name() == name);
            named.ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
        }
    }

    deserializer.deserialize_str(Names)
}

/// How many devices there are.
pub(super) fn devices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    deserializer.deserialize_option(Count {
        key: "devices",
        most: DEVICES_MAX,
    })
}

/// How many threads run engines.
fn threads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    deserializer.deserialize_option(Count {
        key: "threads",
        most: THREADS_MAX,
    })
}

/// How many there are of something of which there has to be one.
struct Count {
    key: &'static str,
    most: u32,
}

impl Count {
    fn within<E: Error>(&self, found: impl fmt::Display, number: Option<u32>) -> Result<u32, E> {
        let Self { key, most } = self;
        let number = number.filter(|number| (1..=*most).contains(number));
        number.ok_or_else(|| E::custom(format!("{key} is {found}: 1 to {most} are allowed")))
    }
}

impl<'de> Visitor<'de> for Count {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number, 1 to {}", self.most)
    }

    fn visit_none<E: Error>(self) -> Result<Option<u32>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u32>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u32>, D::Error> {
        deserializer.deserialize_u32(self)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Option<u32>, E> {
        self.within(number, number.try_into().ok()).map(Some)
    }

    /// TOML's integers have a sign.
    fn visit_i64<E: Error>(self, number: i64) -> Result<Option<u32>, E> {
        self.within(number, number.try_into().ok()).map(Some)
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
