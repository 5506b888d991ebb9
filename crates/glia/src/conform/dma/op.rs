//! The operations of a DMA trace and their arguments.

use glia_abi::arch::Arch;
use glia_abi::handle::{CoreId, DeviceId, EngineId, Pid, QueueId};
use glia_abi::mem::Location;
use glia_abi::sched::Tick;
use glia_abi::udma::DESC_SIZE_BYTES;
use glia_driver::dma::Platform;

use super::super::arguments::{ArgumentError, Arguments};
use super::engine::Mode;
use super::ring_op::RingCall;
use super::table_op::TableCall;
use super::words::{CoreMap, DescWords, Hex, Modes, Name, RawHandle, Size};

/// The line that begins a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub name: Name,
    /// The chip.
    pub arch: Arch,
    /// What the driver runs on.
    pub platform: Platform,
    /// Where the fill buffer lies, as the device sees it.
    pub fill_buffer: Hex,
    /// Where the ring lies that queues are left with whose process has gone.
    pub dummy_ring: Option<Hex>,
}

/// A place in a chunk or buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// The argument that names it.
    pub argument: &'static str,
    /// Of the chunk or buffer.
    pub name: Name,
    /// Bytes from its start.
    pub offset: u64,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A fresh device.
    Scenario(Scenario),
    /// Something around the driver is set up or changed. There is no answer.
    SetUp(SetUp),
    /// The driver is called, or something is looked at.
    Call(Call),
}

/// A change of the world around the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUp {
    /// A chunk is there.
    Chunk {
        /// Its name.
        name: Name,
        /// Host memory or HBM.
        location: Location,
        /// Bytes.
        size: Size,
        /// The core that is charged.
        core: CoreId,
        /// First byte, as the device sees it.
        at: Hex,
        /// The device whose driver has given it out; 0 is the one under replay.
        device: DeviceId,
    },
    /// A buffer of the kernel is there.
    Buffer {
        /// Its name.
        name: Name,
        /// Bytes.
        size: Size,
        /// First byte in host memory.
        at: Hex,
    },
    /// A range gets the pattern of a seed.
    Fill {
        /// Where.
        spot: Spot,
        /// Bytes.
        size: Size,
        /// The seed.
        seed: u64,
    },
    /// A descriptor is stored.
    PutDescriptor {
        /// Where.
        spot: Spot,
        /// Its bytes.
        words: DescWords,
    },
    /// What becomes of the batches to come.
    Engine(Vec<Mode>),
    /// The driver is told when the device was last reset.
    ResetWindow {
        /// When that began, in ticks.
        start: Tick,
        /// When the latest one ended.
        end: Tick,
    },
    /// The driver is told whether the device is never reset.
    NoReset(bool),
    /// Another process calls from here on.
    Caller(Pid),
    /// There is another device, and the calling process has it open.
    Device(DeviceId),
    /// The process closes another device.
    Detach(DeviceId),
    /// The reference stopped.
    End,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Cores are brought up.
    InitCores(CoreMap),
    /// Cores are taken down.
    CloseCores(CoreMap),
    /// A core's ring is set up.
    RingInit(QueueId),
    /// A synchronous copy.
    Copy {
        /// From where.
        source: Spot,
        /// To where.
        target: Spot,
        /// Bytes.
        size: Size,
        /// One end is a buffer, so that the core is the chunk's, or core 0 for a chunk in host
        /// memory.
        with_buffer: bool,
    },
    /// A synchronous copy by address.
    CopyRaw {
        /// The core.
        core: CoreId,
        /// First byte to read.
        source: Hex,
        /// First byte to write.
        target: Hex,
        /// Bytes.
        size: Size,
    },
    /// An asynchronous copy.
    CopyAsync {
        /// From where.
        source: Spot,
        /// To where.
        target: Spot,
        /// Bytes.
        size: Size,
        /// The handle of the copy that is waited for.
        previous: RawHandle,
    },
    /// A wait for an asynchronous copy.
    Wait {
        /// From where it copied.
        source: Spot,
        /// To where.
        target: Spot,
        /// Its handle.
        handle: RawHandle,
    },
    /// Memory is filled.
    Memset {
        /// Where.
        target: Spot,
        /// Bytes.
        size: Size,
        /// With what; the low 8 bits count.
        value: u64,
    },
    /// Copies of 64 KiB each in one batch, every pair with a barrier.
    DeviceBatch {
        /// The core.
        core: CoreId,
        /// First byte to read.
        source: Hex,
        /// First byte to write.
        target: Hex,
        /// How many.
        copies: u32,
        /// Whether they are waited for as if another batch stood behind them.
        is_pipelined: bool,
        /// Whether they are waited for as within HBM.
        is_d2d: bool,
    },
    /// Descriptors are checked and copied.
    CopyDescriptors {
        /// From where.
        source: Spot,
        /// To where.
        target: Spot,
        /// Bytes.
        size: Size,
        /// Whose they are: 0 the source side's, 1 the destination side's, or something unknown.
        side: u32,
    },
    /// Something is done to an engine or a queue of a process.
    Ring(RingCall),
    /// A table is looked up.
    Table(TableCall),
    /// Time passes.
    Advance {
        /// How much, in microseconds.
        length_us: u64,
    },
    /// A range is hashed.
    Hash {
        /// Where.
        spot: Spot,
        /// Bytes.
        size: Size,
    },
    /// Which queue a core's copies take.
    H2tQueue(CoreId),
    /// How long a batch is waited for.
    WaitTime {
        /// Its descriptors.
        count: u32,
        /// Whether another batch was staged meanwhile.
        is_pipelined: bool,
    },
}

/// The names of all operations.
const NAMES: [&str; 43] = [
    "chunk",
    "buffer",
    "fill",
    "put_descriptor",
    "engine",
    "reset_window",
    "no_reset",
    "pid",
    "new_device",
    "detach_process",
    "end",
    "advance",
    "hash",
    "init_ncs",
    "close_ncs",
    "h2t_ring_init",
    "memcpy_mc",
    "memcpy",
    "buf_to_mc",
    "buf_from_mc",
    "memcpy_mc_async",
    "mc_wait",
    "memset",
    "device_batch",
    "copy_descriptors",
    "engine_init",
    "queue_init",
    "prepare_one",
    "queue_copy_start",
    "ack_completed",
    "process_exit",
    "get_queue_state",
    "get_descriptor_info",
    "get_engine_state",
    "set_engine_state",
    "h2t",
    "wait_time",
    "barrier",
    "ring_desc_count",
    "host_engines",
    "nx_queue_map",
    "bar0_write_blocked",
    "validate_pa",
];

impl Op {
    /// The names of all operations.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }

    /// The operation of this name with its arguments taken; `None` if there is none. What is left
    /// over of a call is its answer; anything else must have nothing left over.
    ///
    /// # Errors
    /// [`ArgumentError`] if an argument is missing or not as it must be.
    pub fn take(name: &str, arguments: &mut Arguments<'_>) -> Result<Option<Self>, ArgumentError> {
        if let Some(set_up) = SetUp::take(name, arguments)? {
            return Ok(Some(Self::SetUp(set_up)));
        }
        Ok(Call::take(name, arguments)?.map(Self::Call))
    }
}

impl Scenario {
    /// The line's arguments.
    ///
    /// # Errors
    /// [`ArgumentError`] if one is missing or not as it must be.
    pub fn take(arguments: &mut Arguments<'_>) -> Result<Self, ArgumentError> {
        let _: Option<u64> = arguments.optional("num_beats")?;
        Ok(Self {
            name: arguments.required("scenario")?,
            arch: arguments.required("arch")?,
            platform: arguments.required("platform")?,
            fill_buffer: arguments.required("fill_buffer_pa")?,
            dummy_ring: arguments.optional("dummy_ring_pa")?,
        })
    }
}

impl SetUp {
    fn take(name: &str, arguments: &mut Arguments<'_>) -> Result<Option<Self>, ArgumentError> {
        Ok(Some(match name {
            "chunk" => {
                let _: Option<u64> = arguments.optional("channel")?;
                Self::Chunk {
                    name: arguments.required("name")?,
                    location: arguments.required("where")?,
                    size: arguments.required("size")?,
                    core: arguments.required("nc")?,
                    at: arguments.required("pa")?,
                    device: DeviceId::new(arguments.optional("device")?.unwrap_or(0)),
                }
            }
            "buffer" => Self::Buffer {
                name: arguments.required("name")?,
                size: arguments.required("size")?,
                at: arguments.required("pa")?,
            },
            "fill" => Self::Fill {
                spot: Spot::take(arguments, "name", "off")?,
                size: arguments.required("len")?,
                seed: arguments.required("seed")?,
            },
            "put_descriptor" => {
                let index: u32 = arguments.required("index")?;
                Self::PutDescriptor {
                    spot: Spot {
                        offset: u64::from(index) * DESC_SIZE_BYTES,
                        ..Spot::start(arguments, "name")?
                    },
                    words: arguments.required("words")?,
                }
            }
            "engine" => {
                let Modes(modes) = arguments.required("modes")?;
                Self::Engine(modes)
            }
            "reset_window" => {
                let _: Option<u64> = arguments.optional("now")?;
                Self::ResetWindow {
                    start: arguments.required("start")?,
                    end: arguments.required("end")?,
                }
            }
            "no_reset" => Self::NoReset(arguments.required("value")?),
            "pid" => Self::Caller(arguments.required("pid")?),
            "new_device" => {
                let _: Option<u64> = arguments.optional("ret")?;
                Self::Device(DeviceId::new(arguments.required("index")?))
            }
            "detach_process" => Self::Detach(DeviceId::new(arguments.required("device")?)),
            "end" => {
                let _: Option<Name> = arguments.optional("reason")?;
                Self::End
            }
            _ => return Ok(None),
        }))
    }
}

impl Spot {
    /// The place at an argument's offset in the object that another argument names.
    pub(super) fn take(
        arguments: &mut Arguments<'_>,
        name: &'static str,
        offset: &'static str,
    ) -> Result<Self, ArgumentError> {
        Ok(Self {
            offset: arguments.required(offset)?,
            ..Self::start(arguments, name)?
        })
    }

    /// The start of the object that an argument names.
    fn start(arguments: &mut Arguments<'_>, argument: &'static str) -> Result<Self, ArgumentError> {
        Ok(Self {
            argument,
            name: arguments.required(argument)?,
            offset: 0,
        })
    }
}

impl Call {
    fn take(name: &str, arguments: &mut Arguments<'_>) -> Result<Option<Self>, ArgumentError> {
        let take = arguments;
        Ok(Some(match name {
            "advance" => Self::Advance {
                length_us: take.required("us")?,
            },
            "hash" => Self::Hash {
                spot: Spot::take(take, "name", "off")?,
                size: take.required("len")?,
            },
            "init_ncs" => Self::InitCores(take.required("map")?),
            "close_ncs" => Self::CloseCores(take.required("map")?),
            "h2t_ring_init" => {
                let engine = EngineId::new(take.required("eng")?);
                Self::RingInit(QueueId::new(engine, take.required("qid")?))
            }
            "memcpy_mc" => Self::Copy {
                source: Spot::take(take, "src", "src_off")?,
                target: Spot::take(take, "dst", "dst_off")?,
                size: take.required("size")?,
                with_buffer: false,
            },
            "buf_to_mc" => Self::Copy {
                source: Spot::take(take, "buf", "src_off")?,
                target: Spot::take(take, "dst", "dst_off")?,
                size: take.required("size")?,
                with_buffer: true,
            },
            "buf_from_mc" => Self::Copy {
                source: Spot::take(take, "src", "src_off")?,
                target: Spot::take(take, "buf", "dst_off")?,
                size: take.required("size")?,
                with_buffer: true,
            },
            "memcpy" => Self::CopyRaw {
                core: take.required("nc")?,
                source: take.required("src")?,
                target: take.required("dst")?,
                size: take.required("size")?,
            },
            "memcpy_mc_async" => Self::CopyAsync {
                source: Spot::take(take, "src", "src_off")?,
                target: Spot::take(take, "dst", "dst_off")?,
                size: take.required("size")?,
                previous: take.required("prev")?,
            },
            "mc_wait" => Self::Wait {
                source: Spot::start(take, "src")?,
                target: Spot::start(take, "dst")?,
                // As the answer of a copy, a handle is compared; here it is asked for.
                handle: take.required("handle")?,
            },
            "memset" => Self::Memset {
                target: Spot::take(take, "dst", "dst_off")?,
                size: take.required("size")?,
                value: take.required("value")?,
            },
            "device_batch" => {
                let _: Option<u64> = take.optional("each")?;
                Self::DeviceBatch {
                    core: take.required("nc")?,
                    source: take.required("src")?,
                    target: take.required("dst")?,
                    copies: take.required("copies")?,
                    is_pipelined: take.required("async")?,
                    is_d2d: take.required("d2d")?,
                }
            }
            "copy_descriptors" => Self::CopyDescriptors {
                source: Spot::take(take, "buf", "src_off")?,
                target: Spot::take(take, "dst", "dst_off")?,
                size: take.required("size")?,
                side: take.required("type")?,
            },
            "h2t" => Self::H2tQueue(take.required("nc")?),
            "wait_time" => Self::WaitTime {
                count: take.required("count")?,
                is_pipelined: take.required("async")?,
            },
            _ => {
                return Ok(match RingCall::take(name, take)? {
                    Some(call) => Some(Self::Ring(call)),
                    None => TableCall::take(name, take)?.map(Self::Table),
                });
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::value::{Fields, Value};
    use super::*;

    fn take(name: &str, arguments: &str) -> Result<Option<Op>, ArgumentError> {
        let Value::Object(fields) = serde_json::from_str(arguments).unwrap() else {
            panic!("not an object");
        };
        Op::take(name, &mut Arguments::new(fields))
    }

    #[test]
    fn every_name_is_an_operation() {
        for name in Op::names() {
            let taken = Op::take(name, &mut Arguments::new(Fields::new()));
            assert!(!matches!(taken, Ok(None)), "{name}");
        }
        assert_eq!(take("defragment", "{}"), Ok(None));
    }

    #[test]
    fn what_a_call_has_beside_its_arguments_is_left() {
        let text = r#"{"nc":3,"eng":129,"qid":1}"#;
        let Value::Object(fields) = serde_json::from_str(text).unwrap() else {
            panic!("not an object");
        };
        let mut arguments = Arguments::new(fields);
        let op = Op::take("h2t", &mut arguments).unwrap();
        assert_eq!(op, Some(Op::Call(Call::H2tQueue(CoreId::new(3)))));
        let left = arguments.rest();
        assert_eq!(left, Fields::new().with("qid", 1).with("eng", 129));
    }

    #[test]
    fn a_descriptor_lies_at_sixteen_times_its_index() {
        let text = r#"{"name":"K","index":3,"words":"0d001000:01080003:0000000001000000"}"#;
        let Some(Op::SetUp(SetUp::PutDescriptor { spot, .. })) =
            take("put_descriptor", text).unwrap()
        else {
            panic!("another operation");
        };
        assert_eq!(spot.offset, 48);
    }
}
