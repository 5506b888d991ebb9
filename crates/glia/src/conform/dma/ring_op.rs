//! Operations on engines and on queues of processes, and their arguments.

use glia_abi::handle::{EngineId, Pid, QueueId};

use super::super::arguments::{ArgumentError, Arguments};
use super::words::{Hex, Name};

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingCall {
    /// An engine is programmed.
    InitEngine(EngineId),
    /// A queue gets rings of the calling process.
    InitQueue(QueueInit),
    /// The driver puts a pair of descriptors into a queue.
    Push(Push),
    /// The doorbells are rung.
    Start {
        /// The queue.
        queue: QueueId,
        /// Descriptors to announce on the source side.
        tx: u32,
        /// On the destination side.
        rx: u32,
    },
    /// Slots are given back.
    Ack {
        /// The queue.
        queue: QueueId,
        /// How many, on each side.
        descs: u32,
    },
    /// A process goes.
    Exit(Pid),
    /// A queue's registers are read.
    QueueState(QueueId),
    /// Where a queue's rings are, and how long.
    DescriptorInfo(QueueId),
    /// An engine's state is read.
    EngineState(EngineId),
    /// An engine is asked for a state.
    SetEngineState {
        /// The engine.
        engine: EngineId,
        /// The number of the state, known or not.
        state: u32,
    },
}

/// What a process asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueInit {
    /// The queue.
    pub queue: QueueId,
    /// The source side: its chunk, and descriptors.
    pub tx: (Option<Name>, u32),
    /// The destination side.
    pub rx: (Option<Name>, u32),
    /// The chunk for completions.
    pub completions: Option<Name>,
    /// Whether the driver may put descriptors into it.
    pub allocatable: bool,
}

/// A pair of descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The queue.
    pub queue: QueueId,
    /// First byte to read.
    pub source: Hex,
    /// First byte to write.
    pub target: Hex,
    /// Bytes.
    pub size_bytes: u64,
    /// The number of the barrier, known or not.
    pub barrier: u32,
    /// Whether the destination's descriptor asks for an interrupt.
    pub interrupts: bool,
}

impl RingCall {
    /// The operation of this name with its arguments taken; `None` if there is none.
    ///
    /// # Errors
    /// [`ArgumentError`] if an argument is missing or not as it must be.
    pub fn take(name: &str, take: &mut Arguments<'_>) -> Result<Option<Self>, ArgumentError> {
        Ok(Some(match name {
            "engine_init" => Self::InitEngine(engine(take)?),
            "queue_init" => {
                let _: Option<u64> = take.optional("port")?;
                Self::InitQueue(QueueInit {
                    queue: queue(take)?,
                    tx: (chunk(take, "tx")?, take.required("tx_count")?),
                    rx: (chunk(take, "rx")?, take.required("rx_count")?),
                    completions: chunk(take, "rxc")?,
                    allocatable: take.required("allocatable")?,
                })
            }
            "prepare_one" => Self::Push(Push {
                queue: queue(take)?,
                source: take.required("src")?,
                target: take.required("dst")?,
                size_bytes: take.required("size")?,
                barrier: take.required("barrier")?,
                interrupts: take.required("dst_int")?,
            }),
            "queue_copy_start" => Self::Start {
                queue: queue(take)?,
                tx: take.required("tx")?,
                rx: take.required("rx")?,
            },
            "ack_completed" => Self::Ack {
                queue: queue(take)?,
                descs: take.required("count")?,
            },
            "process_exit" => Self::Exit(take.required("pid")?),
            "get_queue_state" => Self::QueueState(queue(take)?),
            "get_descriptor_info" => Self::DescriptorInfo(queue(take)?),
            "get_engine_state" => Self::EngineState(engine(take)?),
            "set_engine_state" => Self::SetEngineState {
                engine: engine(take)?,
                state: take.required("state")?,
            },
            _ => return Ok(None),
        }))
    }
}

/// The engine of a record.
pub(super) fn engine(take: &mut Arguments<'_>) -> Result<EngineId, ArgumentError> {
    take.required("eng").map(EngineId::new)
}

/// The queue of a record.
pub(super) fn queue(take: &mut Arguments<'_>) -> Result<QueueId, ArgumentError> {
    let engine = engine(take)?;
    Ok(QueueId::new(engine, take.required("qid")?))
}

/// A chunk, or `-` for none.
fn chunk(take: &mut Arguments<'_>, name: &'static str) -> Result<Option<Name>, ArgumentError> {
    let name: Name = take.required(name)?;
    Ok((name.0 != "-").then_some(name))
}
