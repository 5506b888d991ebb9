//! The operations of a trace and their arguments.

use std::fmt;

use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::handle::{Channel, Pid};
use glia_abi::mem::{Lifespan, Location};
use glia_abi::params::ModuleParams;
use glia_abi::usage::Category;
use glia_driver::alloc::AllocRequest;
use glia_driver::site::SiteId;

use super::arguments::{ArgumentError, Arguments, NewChunkId};
use super::script::{Failures, Script};

/// A chunk as the trace names it: positive for its own allocations, -1, -2, … for the carveouts of
/// channel 0, 1, ….
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub i64);

impl ChunkId {
    /// The carveout of the channel with this index.
    #[must_use]
    pub fn carveout(channel: u32) -> Self {
        Self(-1 - i64::from(channel))
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {}", self.0)
    }
}

/// How a device and its host are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Init {
    /// Generation and size of the device.
    pub layout: MemoryLayout,
    /// The driver's module parameters.
    pub params: ModuleParams,
    /// Host memory that there is in all.
    pub host_capacity_bytes: u64,
    /// The largest single request for host memory.
    pub host_alloc_bytes_max: u64,
    /// Failures of host memory while the device is set up.
    pub host_script: Script,
}

impl Init {
    fn parse(arguments: &mut Arguments<'_>) -> Result<Self, ArgumentError> {
        let defaults = ModuleParams::default();
        let arch: Arch = arguments.required("arch")?;
        let scale = match arguments.optional("qemu_bar_size")? {
            None => Scale::Full,
            Some(bar_size_bytes) => Scale::EmulatorBar { bar_size_bytes },
        };
        let layout = MemoryLayout::new(arch, scale)?;
        let mut size = |name, default| arguments.optional(name).map(|size| size.unwrap_or(default));
        let params = ModuleParams {
            mempool_min_alloc_size: size("min_alloc_size", defaults.mempool_min_alloc_size)?,
            mempool_host_memory_size: size("host_memory_size", defaults.mempool_host_memory_size)?,
            mempool_small_pool_size: size("small_pool_size", defaults.mempool_small_pool_size)?,
            mempool_small_alloc_max: size("small_alloc_max", defaults.mempool_small_alloc_max)?,
            ..defaults
        };
        let host_capacity_bytes = size("host_capacity", 2 << 30)?;
        let host_alloc_bytes_max = size("host_max_alloc", 4 << 20)?;
        let host_fail_after: Option<u64> = arguments.optional("host_fail_after")?;
        let host_fail_count: Option<Failures> = arguments.optional("host_fail_count")?;
        let host_script = match (host_fail_after, host_fail_count) {
            (None, None) => Script::NONE,
            (after, failures) => Script {
                after: after.unwrap_or(0),
                failures: failures.unwrap_or(Failures::All),
            },
        };
        Ok(Self {
            layout,
            params,
            host_capacity_bytes,
            host_alloc_bytes_max,
            host_script,
        })
    }
}

/// What an address search starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needle {
    /// An address.
    Pa(u64),
    /// A place in, or near, a chunk.
    Of {
        /// The chunk.
        id: ChunkId,
        /// Bytes from its start.
        offset_bytes: u64,
    },
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A new device; nothing is left of the one before.
    Init(Init),
    /// Something around the device changes.
    World(World),
    /// The driver is called.
    Call(Call),
}

/// A change of the world around the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// Another process is the current one.
    As(Pid),
    /// Scripts failures of host memory.
    FailHost(Failures),
    /// Scripts failures of kernel memory.
    FailKmem(Script),
}

/// A call of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Allocates a chunk.
    Alloc {
        /// Its name from here on.
        id: ChunkId,
        /// What is asked for.
        request: AllocRequest,
    },
    /// Adds a reference.
    Ref(ChunkId),
    /// Gives up a reference.
    Free(ChunkId),
    /// Gives up a reference through a pointer to a chunk that is gone.
    FreeStale(ChunkId),
    /// Looks an address up.
    Search(Needle),
    /// Asks whether an access is inside a chunk.
    Bounds {
        /// The chunk.
        id: ChunkId,
        /// First byte.
        offset_bytes: u64,
        /// Number of bytes.
        size_bytes: u64,
    },
    /// Lists the chunks of a channel.
    Dump {
        /// The channel.
        channel: Channel,
        /// How many at most.
        max: u64,
    },
    /// All books.
    Stats {
        /// With the usage counters.
        usage: bool,
    },
    /// A process, current from here on, opens the device.
    Open(Pid),
    /// A process, current from here on, closes a file of the device.
    Close(Pid),
    /// Sweeps a list.
    Expire(Lifespan),
    /// Takes the device down.
    Teardown,
    /// Gives a chunk a handle.
    Publish(ChunkId),
    /// Looks a handle up.
    Find(u64),
    /// A handle for something that is no chunk.
    HandleAlloc {
        /// Its name.
        token: u64,
    },
    /// Many of these.
    HandleBulk {
        /// How many at most.
        count: u64,
        /// The name of each.
        token: u64,
    },
    /// Frees a handle.
    HandleFree(u64),
    /// State of the handle table.
    HandleStat,
}

/// What is wrong with an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// There is no such operation.
    #[error("operation \"{found}\" is not one of {}", Op::NAMES.join(", "))]
    Unknown {
        /// The name found.
        found: String,
    },
    /// An argument is not as it must be.
    #[error("{op}: {source}")]
    Argument {
        /// The operation.
        op: String,
        /// What is wrong.
        source: ArgumentError,
    },
}

impl Op {
    /// The names of all operations.
    pub const NAMES: [&'static str; 22] = [
        "init",
        "alloc",
        "ref",
        "free",
        "free_stale",
        "search",
        "bounds",
        "dump",
        "stats",
        "as",
        "open",
        "close",
        "expire",
        "teardown",
        "publish",
        "find",
        "halloc",
        "hbulk",
        "hfree",
        "hstat",
        "fail_host",
        "fail_kmem",
    ];

    /// The operation's name in a trace.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Init(_) => "init",
            Self::World(World::As(_)) => "as",
            Self::World(World::FailHost(_)) => "fail_host",
            Self::World(World::FailKmem(_)) => "fail_kmem",
            Self::Call(call) => call.name(),
        }
    }

    /// Reads an operation.
    ///
    /// # Errors
    /// [`OpError`] if there is no such operation, or its arguments are not as it needs them.
    pub fn parse(name: &str, mut arguments: Arguments<'_>) -> Result<Self, OpError> {
        let argument_error = |source| OpError::Argument {
            op: name.to_owned(),
            source,
        };
        let op = Self::take(name, &mut arguments).map_err(argument_error)?;
        let op = op.ok_or_else(|| OpError::Unknown {
            found: name.to_owned(),
        })?;
        arguments.finish().map_err(argument_error)?;
        Ok(op)
    }

    /// The operation with its arguments taken; `None` if there is none of this name.
    fn take(name: &str, arguments: &mut Arguments<'_>) -> Result<Option<Self>, ArgumentError> {
        Ok(Some(match name {
            "init" => Self::Init(Init::parse(arguments)?),
            "as" => Self::World(World::As(arguments.required("pid")?)),
            "fail_host" => Self::World(World::FailHost(arguments.required("count")?)),
            "fail_kmem" => Self::World(World::FailKmem(Script {
                after: arguments.required("after")?,
                failures: arguments.required("count")?,
            })),
            _ => return Ok(Call::take(name, arguments)?.map(Self::Call)),
        }))
    }
}

impl Call {
    const fn name(&self) -> &'static str {
        match self {
            Self::Alloc { .. } => "alloc",
            Self::Ref(_) => "ref",
            Self::Free(_) => "free",
            Self::FreeStale(_) => "free_stale",
            Self::Search(_) => "search",
            Self::Bounds { .. } => "bounds",
            Self::Dump { .. } => "dump",
            Self::Stats { .. } => "stats",
            Self::Open(_) => "open",
            Self::Close(_) => "close",
            Self::Expire(_) => "expire",
            Self::Teardown => "teardown",
            Self::Publish(_) => "publish",
            Self::Find(_) => "find",
            Self::HandleAlloc { .. } => "halloc",
            Self::HandleBulk { .. } => "hbulk",
            Self::HandleFree(_) => "hfree",
            Self::HandleStat => "hstat",
        }
    }

    fn take(name: &str, arguments: &mut Arguments<'_>) -> Result<Option<Self>, ArgumentError> {
        Ok(Some(match name {
            "alloc" => Self::Alloc {
                id: arguments.required::<NewChunkId>("id")?.0,
                request: request(arguments)?,
            },
            "ref" => Self::Ref(arguments.required("id")?),
            "free" => Self::Free(arguments.required("id")?),
            "free_stale" => Self::FreeStale(arguments.required("id")?),
            "search" if arguments.has("of") => Self::Search(Needle::Of {
                id: arguments.required("of")?,
                offset_bytes: arguments.required("off")?,
            }),
            "search" => Self::Search(Needle::Pa(arguments.required("pa")?)),
            "bounds" => Self::Bounds {
                id: arguments.required("id")?,
                offset_bytes: arguments.required("off")?,
                size_bytes: arguments.required("len")?,
            },
            "dump" => Self::Dump {
                channel: arguments.required("ch")?,
                max: arguments.required("max")?,
            },
            "stats" => Self::Stats {
                usage: arguments.optional("usage")?.unwrap_or(false),
            },
            "open" => Self::Open(arguments.required("pid")?),
            "close" => Self::Close(arguments.required("pid")?),
            "expire" => Self::Expire(arguments.required("life")?),
            "teardown" => Self::Teardown,
            "publish" => Self::Publish(arguments.required("id")?),
            "find" => Self::Find(arguments.required("handle")?),
            "halloc" => Self::HandleAlloc {
                token: arguments.required("token")?,
            },
            "hbulk" => Self::HandleBulk {
                count: arguments.required("count")?,
                token: arguments.required("token")?,
            },
            "hfree" => Self::HandleFree(arguments.required("handle")?),
            "hstat" => Self::HandleStat,
            _ => return Ok(None),
        }))
    }
}

fn request(arguments: &mut Arguments<'_>) -> Result<AllocRequest, ArgumentError> {
    Ok(AllocRequest {
        size_bytes: arguments.required("size")?,
        align_bytes: arguments.required("align")?,
        location: arguments.required::<Location>("loc")?,
        channel: arguments.required("ch")?,
        region: arguments.required("rg")?,
        core: arguments.required("nc")?,
        lifespan: arguments.required("life")?,
        category: arguments.required::<Category>("type")?,
        site: SiteId::UNKNOWN,
    })
}

#[cfg(test)]
mod tests {
    use super::super::value::Value;
    use super::*;

    /// Parses a record's text, without `out`.
    fn parse(text: &str) -> Result<Op, OpError> {
        let Value::Object(mut fields) = serde_json::from_str(text).unwrap() else {
            panic!("{text} is no object");
        };
        match fields.take("op") {
            Some(Value::Text(name)) => Op::parse(&name, Arguments::new(fields)),
            other => panic!("op is {other:?}"),
        }
    }

    #[test]
    fn every_operation_is_read_and_keeps_its_name() {
        let samples = [
            r#"{"op":"init","arch":"v2"}"#,
            r#"{"op":"alloc","id":1,"size":1,"align":0,"loc":"host","ch":0,"rg":0,"nc":0,"life":"all","type":7}"#,
            r#"{"op":"ref","id":1}"#,
            r#"{"op":"free","id":1}"#,
            r#"{"op":"free_stale","id":1}"#,
            r#"{"op":"search","pa":1}"#,
            r#"{"op":"bounds","id":1,"off":0,"len":1}"#,
            r#"{"op":"dump","ch":0,"max":1}"#,
            r#"{"op":"stats"}"#,
            r#"{"op":"as","pid":1}"#,
            r#"{"op":"open","pid":1}"#,
            r#"{"op":"close","pid":1}"#,
            r#"{"op":"expire","life":"local"}"#,
            r#"{"op":"teardown"}"#,
            r#"{"op":"publish","id":1}"#,
            r#"{"op":"find","handle":1}"#,
            r#"{"op":"halloc","token":1}"#,
            r#"{"op":"hbulk","count":1,"token":1}"#,
            r#"{"op":"hfree","handle":1}"#,
            r#"{"op":"hstat"}"#,
            r#"{"op":"fail_host","count":-1}"#,
            r#"{"op":"fail_kmem","after":0,"count":1}"#,
        ];
        let names: Vec<&str> = samples
            .iter()
            .map(|text| parse(text).unwrap().name())
            .collect();
        assert_eq!(names, Op::NAMES);
    }

    #[test]
    fn an_init_has_the_defaults_of_the_format() {
        let Ok(Op::Init(init)) = parse(r#"{"op":"init","arch":"v3"}"#) else {
            panic!("no init");
        };
        assert_eq!(init.params, ModuleParams::default());
        assert_eq!(
            (init.host_capacity_bytes, init.host_alloc_bytes_max),
            (2 << 30, 4 << 20)
        );
        assert_eq!(init.host_script, Script::NONE);
        assert_eq!(Ok(init.layout), MemoryLayout::new(Arch::V3, Scale::Full));
    }

    #[test]
    fn scripted_failures_of_an_init_are_all_unless_counted() {
        let script = |text| match parse(text) {
            Ok(Op::Init(init)) => init.host_script,
            other => panic!("{other:?}"),
        };
        let all = script(r#"{"op":"init","arch":"v2","host_fail_after":5}"#);
        assert_eq!((all.after, all.failures), (5, Failures::All));
        let some = script(r#"{"op":"init","arch":"v2","host_fail_after":5,"host_fail_count":2}"#);
        assert_eq!((some.after, some.failures), (5, Failures::Next(2)));
    }

    #[test]
    fn a_search_has_one_kind_of_needle() {
        let error = parse(r#"{"op":"search","pa":1,"of":2,"off":3}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "search: argument `pa` is not one of this operation with these others: it has of, off"
        );
    }

    #[test]
    fn an_unknown_operation_is_answered_with_the_known_ones() {
        let error = parse(r#"{"op":"defragment"}"#).unwrap_err().to_string();
        assert!(
            error.starts_with(r#"operation "defragment" is not one of init, alloc, "#),
            "{error}"
        );
    }

    #[test]
    fn the_emulator_belongs_to_v3() {
        let error = parse(r#"{"op":"init","arch":"v2","qemu_bar_size":1073741824}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "init: v2 has no emulator platform; it exists for v3 only"
        );
    }

    #[test]
    fn numbers_of_carveouts_are_not_for_allocations() {
        let error = parse(
            r#"{"op":"alloc","id":-1,"size":1,"align":0,"loc":"host","ch":0,"rg":0,"nc":0,"life":"all","type":7}"#,
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "alloc: argument `id` is -1: it must be a whole number from 1 to 9223372036854775807"
        );
    }
}
