//! One device under replay: what each operation of a trace does to Glia's driver, and what the
//! driver answers.
//!
//! A session lives from one `init` to the next. It holds the driver's [`DeviceMemory`], the
//! scripted world around it ([`ScriptedHost`], [`ScriptedKernelMemory`], the current process) and
//! the [`Books`] that tie a trace's ids to chunks. It does not know what the trace expects; that is
//! [`judge`](mod@super::judge)'s business. The calls of the driver are in `chunks`, `lifespans` and
//! `handles`, as the format's description groups them.

mod chunks;
mod handles;
mod lifespans;

use std::sync::Arc;

use glia_abi::divergence::Divergence;
use glia_abi::handle::{DeviceId, Pid};
use glia_driver::handles::HANDLE_LIMIT;
use glia_driver::memory::{DeviceMemory, InitError, MemoryConfig};

use super::answer::Answer;
use super::books::Books;
use super::host::ScriptedHost;
use super::op::{Call, ChunkId, Init, Op, World};
use super::outcome;
use super::script::{Script, ScriptedKernelMemory};
use super::trace::{Problem, Stop};
use super::value::Fields;

use chunks::dump;
use handles::{handle_free, handle_stat};

/// The process that is current when a device has been set up.
const FIRST_PID: Pid = Pid::new(1000);

/// A device and the world that the trace scripts around it.
pub struct Session {
    device: Device,
    host: Arc<ScriptedHost>,
    kernel: Arc<ScriptedKernelMemory>,
    current: Pid,
    books: Books,
    tokens: Vec<u64>,
}

/// How far the device got.
#[derive(Clone)]
enum Device {
    /// No `init` yet.
    Absent,
    /// The last `init` failed.
    Failed,
    /// It is up, or torn down again.
    Made(Arc<DeviceMemory>),
}

impl Session {
    /// The state before the first `init`.
    #[must_use]
    pub fn new() -> Self {
        Self::around(Device::Absent, ScriptedHost::new(0, 0, Script::NONE))
    }

    fn around(device: Device, host: ScriptedHost) -> Self {
        Self {
            device,
            host: Arc::new(host),
            kernel: Arc::new(ScriptedKernelMemory::new()),
            current: FIRST_PID,
            books: Books::default(),
            tokens: Vec::new(),
        }
    }

    /// Does what a record says, and tells what came of it.
    ///
    /// # Errors
    /// [`Problem`] for a record that no trace can have here: before the first `init`, or with an id
    /// that is used up.
    pub fn perform(&mut self, op: &Op) -> Result<Answer, Problem> {
        match op {
            Op::Init(init) => Ok(self.init(init)),
            Op::World(_) | Op::Call(_) if matches!(self.device, Device::Absent) => {
                Err(Problem::BeforeInit { op: op.name() })
            }
            Op::World(change) => Ok(self.change(*change)),
            Op::Call(Call::Alloc { id, .. }) if !self.books.use_up(*id) => {
                Err(Problem::IdUsed { id: *id })
            }
            Op::Call(call) => Ok(match self.device.clone() {
                Device::Made(memory) => self.call(&memory, call),
                Device::Failed | Device::Absent => {
                    Answer::error("there is no device, since the last init failed")
                }
            }),
        }
    }

    /// Whatever came before is gone; a new device is set up.
    fn init(&mut self, init: &Init) -> Answer {
        let host = ScriptedHost::new(
            init.host_capacity_bytes,
            init.host_alloc_bytes_max,
            init.host_script,
        );
        *self = Self::around(Device::Failed, host);
        let config = MemoryConfig {
            device: DeviceId::new(0),
            layout: init.layout,
            params: init.params,
            handle_limit: HANDLE_LIMIT,
        };
        let made = DeviceMemory::new(config, self.host.clone(), self.kernel.clone());
        self.host.set_script(Script::NONE);
        let memory: DeviceMemory = match made {
            Ok(memory) => memory,
            Err(InitError::Params(error)) if error.name == "mempool_min_alloc_size" => {
                return Answer::instead_of_stop(
                    error,
                    Divergence::UnitSize,
                    &[Stop::MinAllocSize],
                    Fields::new(),
                );
            }
            Err(error) => return Answer::outcome(outcome::ret(error.errno().ret())),
        };
        for (channel, facts) in (0..).zip(memory.channel_facts()) {
            if let Some(record) = memory.chunk(facts.carveout) {
                self.books
                    .born(ChunkId::carveout(channel), facts.carveout, &record);
            }
        }
        let answer = outcome::init(&memory, self.host.used_bytes());
        self.device = Device::Made(Arc::new(memory));
        Answer::outcome(answer)
    }

    /// Changes the world around the device.
    fn change(&mut self, change: World) -> Answer {
        match change {
            World::As(pid) => self.current = pid,
            World::FailHost(failures) => self.host.set_script(Script { after: 0, failures }),
            World::FailKmem(script) => self.kernel.set_script(script),
        }
        Answer::outcome(Fields::new())
    }

    /// Calls the driver.
    fn call(&mut self, memory: &DeviceMemory, call: &Call) -> Answer {
        match *call {
            Call::Alloc { id, ref request } => self.alloc(memory, id, request),
            Call::Ref(id) => self.add_ref(memory, id),
            Call::Free(id) => self.free(memory, id),
            Call::FreeStale(id) => self.free_stale(memory, id),
            Call::Search(needle) => self.search(memory, needle),
            Call::Bounds {
                id,
                offset_bytes,
                size_bytes,
            } => self.bounds(memory, id, offset_bytes, size_bytes),
            Call::Dump { channel, max } => dump(memory, channel, max),
            Call::Stats { usage } => self.stats(memory, usage),
            Call::Open(pid) => self.open(memory, pid),
            Call::Close(pid) => self.close(memory, pid),
            Call::Expire(lifespan) => self.expire(memory, lifespan),
            Call::Teardown => self.teardown(memory),
            Call::Publish(id) => self.publish(memory, id),
            Call::Find(handle) => self.find(memory, handle),
            Call::HandleAlloc { token } => self.handle_alloc(memory, token),
            Call::HandleBulk { count, token } => self.handle_bulk(memory, count, token),
            Call::HandleFree(handle) => handle_free(memory, handle),
            Call::HandleStat => handle_stat(memory),
        }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}
