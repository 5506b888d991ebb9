//! Tables of the driver, and what is looked up in them.

use glia_abi::addr::{BusAddr, RegOffset};
use glia_abi::arch::ArchProfile;
use glia_abi::handle::{Channel, CoreId, EngineId, QUEUES_PER_ENGINE, QueueId};
use glia_driver::bar0::is_closed;
use glia_driver::dma::scrub::host_engines;
use glia_driver::dma::user::is_nx_queue;
use glia_driver::dma::{copy_barrier, inits_h2t_engine, ring_descs};

use super::super::arguments::{Argument, ArgumentError, Arguments};
use super::super::value::{Fields, Value};
use super::ring_op::engine;
use super::session::Session;
use super::words::{CoreMap, Hex};

/// What the reference answers for a register that is closed.
const CLOSED_RET: i32 = -1;

/// A look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableCall {
    /// The barrier of a copy's data descriptor.
    Barrier {
        /// Whether it is the last one of its batch.
        closes_batch: bool,
    },
    /// How long a ring is made for so many descriptors.
    RingDescs(u32),
    /// Which engines scrub a channel.
    HostEngines(Channel),
    /// Which queues of an engine are the network accelerator's, and which the driver's own.
    NxQueues(EngineId),
    /// Whether a process may write a register.
    Bar0Write(RegOffset),
    /// Whether a descriptor may hold an address.
    CheckAddress(BusAddr),
}

impl TableCall {
    /// The operation of this name with its arguments taken; `None` if there is none.
    ///
    /// # Errors
    /// [`ArgumentError`] if an argument is missing or not as it must be.
    pub fn take(name: &str, take: &mut Arguments<'_>) -> Result<Option<Self>, ArgumentError> {
        Ok(Some(match name {
            "barrier" => Self::Barrier {
                closes_batch: take.required("set")?,
            },
            "ring_desc_count" => Self::RingDescs(take.required("v")?),
            "host_engines" => Self::HostEngines(take.required("hbm")?),
            "nx_queue_map" => Self::NxQueues(engine(take)?),
            "bar0_write_blocked" => {
                let Hex(at) = take.required("off")?;
                Self::Bar0Write(RegOffset::new(at))
            }
            "validate_pa" => {
                let Hex(at) = take.required("pa")?;
                Self::CheckAddress(BusAddr::new(at))
            }
            _ => return Ok(None),
        }))
    }

    /// What the driver has there.
    pub(super) fn look_up(&self, session: &Session) -> Fields<'static> {
        let profile = session.profile;
        let fields = Fields::new();
        match *self {
            Self::Barrier { closes_batch } => {
                fields.with("type", copy_barrier(closes_batch) as u32)
            }
            Self::RingDescs(wanted) => fields.with("count", ring_descs(wanted)),
            Self::HostEngines(channel) => {
                let engines = host_engines(profile, channel);
                let engines = engines.into_iter().flatten().map(EngineId::get);
                fields.with("engines", engines.collect::<Value<'_>>())
            }
            Self::NxQueues(engine) => {
                let numbers = |is_such: &dyn Fn(QueueId) -> bool| -> Value<'static> {
                    (0..QUEUES_PER_ENGINE)
                        .filter(|&number| is_such(QueueId::new(engine, number)))
                        .collect()
                };
                let mut cores = (0..profile.cores).map(CoreId::new);
                let own: Vec<_> = cores
                    .by_ref()
                    .filter_map(|core| profile.h2t_queue(core))
                    .collect();
                fields
                    .with("qids", numbers(&|queue| is_nx_queue(profile, queue)))
                    .with("h2t", numbers(&|queue| own.contains(&queue)))
            }
            Self::Bar0Write(at) => {
                let ret = if is_closed(profile, at) {
                    CLOSED_RET
                } else {
                    0
                };
                fields.with("ret", ret)
            }
            Self::CheckAddress(at) => {
                let checked = session.dma.check_address(&session.memories, at);
                fields.with(
                    "ret",
                    checked.map_or_else(|error| error.errno().ret(), |()| 0),
                )
            }
        }
    }
}

/// Which queue a core's copies take, and for which of the record's maps bringing the core up brings
/// the queue's engine up.
pub(super) fn h2t_queue(
    profile: &ArchProfile,
    core: CoreId,
    expected: &Fields<'_>,
) -> Fields<'static> {
    let mut fields = Fields::new();
    if let Some(queue) = profile.h2t_queue(core) {
        fields.push("eng", queue.engine.get());
        fields.push("qid", queue.number);
    }
    let turn = |item: &Value<'_>| -> Option<Value<'static>> {
        let Value::List(pair) = item else {
            return None;
        };
        let map = pair.first()?;
        let CoreMap(bits) = CoreMap::from_value(map)?;
        let inits = inits_h2t_engine(profile, core, bits, bits == u32::MAX);
        Some(Value::List(vec![
            map.clone().into_owned(),
            u32::from(inits).into(),
        ]))
    };
    let maps = match expected.get("init_for_map") {
        Some(Value::List(maps)) => maps.as_slice(),
        _ => &[],
    };
    let turns: Value<'_> = maps.iter().filter_map(turn).collect();
    fields.with("init_for_map", turns)
}
