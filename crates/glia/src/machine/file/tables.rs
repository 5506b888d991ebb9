//! The tables of a machine file, and what they say of a machine.

use std::num::{NonZeroU32, NonZeroU64};

use glia_abi::params::ModuleParams;
use glia_device::{EngineOrder, EngineTiming, HostConfig, PinLayout};
use serde::{Deserialize, Deserializer, Serialize};

use super::super::{MachineConfig, SchedMode};
use crate::workload::{Engine, Object, Size};

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
#[serde(tag = "run", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Engines {
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

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
