//! One scenario under replay: what each record does to Glia's driver, and what came of it.
//!
//! A session holds the driver's op layer ([`Dma`]) and the [`Rig`] around it. It puts what the
//! driver did into the trace's words ([`Done`]), and leaves it to [`judge`] to say
//! what that is worth.
//!
//! **Following.** Where a declared divergence is a copy that the reference makes and Glia does not,
//! the session first makes sure that Glia does nothing, and then orders the same copy in words that
//! Glia takes. The record is compared with that, and the two sides stay together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::arch::{ArchProfile, MemoryLayout, Scale};
use glia_abi::handle::{CoreId, DeviceId, Pid, QueueId};
use glia_abi::mem::Location;
use glia_abi::params::ModuleParams;
use glia_abi::sched::Tick;
use glia_abi::udma::Direction;
use glia_driver::alloc::AllocRequest;
use glia_driver::dma::zerocopy::ZeroCopyLimits;
use glia_driver::dma::{ContextState, Dma, DmaConfig, Place, QueueState, WaitHandle};
use glia_driver::handles::HANDLE_LIMIT;
use glia_driver::memory::{DeviceMemory, MemoryConfig};
use glia_driver::reset::ResetWindow;

use super::super::judge::Verdict;
use super::super::script::ScriptedKernelMemory;
use super::super::value::{Fields, Value};
use super::books::RingBooks;
use super::bring_up::host_place;
use super::content::{Content, Hasher, Piece};
use super::engine::Side;
use super::judge;
use super::log::{Access, Log, hex};
use super::op::{Op, Scenario, SetUp, Spot};
use super::rig::Rig;
use super::trace::{DmaProblem, Record};
use super::words::{Hex, NANOS_PER_MS, Name};

/// The device under replay.
const OWN: DeviceId = DeviceId::new(0);
/// Devices of a machine.
const DEVICES_MAX: usize = 64;
/// Who calls until the trace says otherwise.
const FIRST_CALLER: Pid = Pid::new(1000);

/// What a record came to.
#[derive(Debug)]
pub enum Replayed {
    /// It sets something up, and has no answer.
    SetUp,
    /// The driver answered.
    Judged(Verdict),
}

/// What the driver did in one operation.
#[derive(Debug)]
pub struct Done {
    /// In the trace's words.
    pub fields: Fields<'static>,
    /// One by one.
    pub log: Log,
    /// Whether the answer was that a wait timed out.
    pub has_timed_out: bool,
    /// When it began, in microseconds.
    pub start_us: u64,
    /// What the contexts of its queue were asked to do, by then.
    pub books: RingBooks,
}

impl Done {
    /// Tells the waits once more.
    pub(super) fn tell_waits(&mut self) {
        if let Some(waits) = self.fields.get_mut("waits") {
            *waits = self.log.told_waits();
        }
    }
}

/// A chunk or buffer.
#[derive(Debug, Clone, Copy)]
struct Object {
    at: u64,
    size_bytes: u64,
    location: Location,
    core: CoreId,
}

/// A device and the world around it.
pub struct Session {
    pub(super) rig: Arc<Rig>,
    pub(super) dma: Dma,
    pub(super) scenario: Scenario,
    pub(super) profile: &'static ArchProfile,
    /// All devices' memories, this one's first.
    pub(super) memories: Vec<Arc<DeviceMemory>>,
    /// On whose account things are done.
    pub(super) caller: Pid,
    /// By queue: the register accesses that set its ring up last.
    pub(super) ring_set_up: BTreeMap<QueueId, Vec<Access>>,
    /// Queues whose rings the reference has lost.
    pub(super) lost_rings: BTreeSet<QueueId>,
    /// By process: the register accesses of its exit.
    pub(super) exits: BTreeMap<Pid, Vec<Access>>,
    /// The device is never reset.
    no_reset: bool,
    objects: BTreeMap<String, Object>,
}

impl Session {
    /// A fresh device; the error is why there is none.
    ///
    /// # Errors
    /// The text of whatever the driver, or the size of the device, had against it.
    pub fn new(scenario: Scenario) -> Result<Self, String> {
        let layout = MemoryLayout::new(scenario.arch, Scale::Full).map_err(text)?;
        let rig = Arc::new(Rig::new(layout));
        let memory = Arc::new(memory(OWN, layout, &rig)?);
        // Refused to the 17th process only.
        let _ = memory.open(FIRST_CALLER);
        let profile = layout.profile();
        let config = DmaConfig {
            device: OWN,
            profile,
            platform: scenario.platform,
            zero_copy: ZeroCopyLimits::default(),
        };
        let dma = Dma::new(
            config,
            rig.clone(),
            rig.clone(),
            memory.clone(),
            rig.clone(),
            rig.clone(),
        );
        let never = Tick(0);
        dma.set_reset_window(Some(ResetWindow {
            start: never,
            end: never,
        }));
        Ok(Self {
            rig,
            dma,
            scenario,
            profile,
            memories: vec![memory],
            caller: FIRST_CALLER,
            ring_set_up: BTreeMap::new(),
            lost_rings: BTreeSet::new(),
            exits: BTreeMap::new(),
            no_reset: false,
            objects: BTreeMap::new(),
        })
    }

    /// Does what a record says, and judges what came of it.
    ///
    /// # Errors
    /// [`DmaProblem`] for a record that cannot stand here.
    pub fn replay(
        &mut self,
        record: &Record<'_>,
        hasher: &mut Hasher,
    ) -> Result<Replayed, DmaProblem> {
        match &record.op {
            Op::Scenario(_) => {
                let retry = u32::from(self.profile.retry_memcpy);
                let got = Fields::new().with("retry", retry);
                Ok(Replayed::Judged(judge::plain(record, &got)))
            }
            Op::SetUp(set_up) => {
                self.set_up(record.name, set_up)?;
                Ok(Replayed::SetUp)
            }
            Op::Call(call) => {
                let verdict = self.call(record, call, hasher)?;
                Ok(Replayed::Judged(verdict))
            }
        }
    }

    fn set_up(&mut self, op: &'static str, set_up: &SetUp) -> Result<(), DmaProblem> {
        match set_up {
            SetUp::Chunk {
                name,
                location,
                size,
                core,
                at,
                device,
            } => {
                let object = Object {
                    at: at.0,
                    size_bytes: size.0,
                    location: *location,
                    core: *core,
                };
                self.add_object(op, &name.0, object)?;
                self.add_chunk(*device, &object);
            }
            SetUp::Buffer { name, size, at } => {
                let object = Object {
                    at: at.0 | self.profile.host_base,
                    size_bytes: size.0,
                    location: Location::Host,
                    core: CoreId::new(0),
                };
                self.add_object(op, &name.0, object)?;
            }
            SetUp::Fill { spot, size, seed } => {
                let [seed, ..] = seed.to_le_bytes();
                self.put(op, spot, size.0, Content::Pattern { seed, index: 0 })?;
            }
            SetUp::PutDescriptor { spot, words } => {
                let content = Content::of_bytes(&words.0);
                self.put(op, spot, words.0.len() as u64, content)?;
            }
            SetUp::Engine(modes) => self.rig.set_modes(modes),
            SetUp::ResetWindow { start, end } => self.set_reset_window(*start, *end),
            SetUp::NoReset(no_reset) => {
                self.no_reset = *no_reset;
                self.set_reset_window(Tick(0), Tick(0));
            }
            SetUp::Caller(pid) => self.caller = *pid,
            SetUp::Device(device) => self.add_device(op, *device)?,
            SetUp::Detach(device) => {
                for memory in &self.memories {
                    if memory.config().device == *device {
                        memory.flush(self.caller);
                        memory.release(self.caller);
                    }
                }
            }
            SetUp::End => {}
        }
        Ok(())
    }

    /// Tells the driver when the device was last reset. The reference's clock has milliseconds, and
    /// a copy that began in the one in which the reset ended was disturbed.
    fn set_reset_window(&self, start: Tick, end: Tick) {
        let end = if end > start {
            Tick(end.0.saturating_add(NANOS_PER_MS - 1))
        } else {
            end
        };
        let window = ResetWindow { start, end };
        self.dma
            .set_reset_window((!self.no_reset).then_some(window));
    }

    fn add_device(&mut self, op: &'static str, device: DeviceId) -> Result<(), DmaProblem> {
        let is_known = |memory: &Arc<DeviceMemory>| memory.config().device == device;
        if self.memories.len() == DEVICES_MAX || self.memories.iter().any(is_known) {
            let device = device.get();
            return Err(DmaProblem::BadDevice { op, device });
        }
        let layout = self.memories[0].config().layout;
        if let Ok(memory) = memory(device, layout, &self.rig) {
            let _ = memory.open(self.caller);
            self.memories.push(Arc::new(memory));
        }
        Ok(())
    }

    /// Makes a chunk of host memory known to the driver of its device, as far as there can be one.
    fn add_chunk(&self, device: DeviceId, object: &Object) {
        let Object { at, size_bytes, .. } = *object;
        let memories = &self.memories;
        let memory = memories
            .iter()
            .find(|memory| memory.config().device == device);
        let is_free = |memory: &Arc<DeviceMemory>| {
            let last = at.saturating_add(size_bytes.saturating_sub(1));
            [at, last].map(BusAddr::new).map(|at| memory.search(at)) == [None, None]
        };
        let (Some(memory), Some(host)) = (memory, host_place(self.profile, Hex(at), size_bytes))
        else {
            return;
        };
        if object.location == Location::Host && memories.iter().all(is_free) {
            self.rig.place_object(host);
            // What is refused is not known, and no descriptor may point to it.
            let _ = memory.alloc(self.caller, &AllocRequest::host(size_bytes));
        }
    }

    fn add_object(
        &mut self,
        op: &'static str,
        name: &str,
        object: Object,
    ) -> Result<(), DmaProblem> {
        let Object { at, size_bytes, .. } = object;
        if at.checked_add(size_bytes).is_none() {
            let rule = "the object must end within 64 bits";
            return Err(DmaProblem::BadAddress { op, at, rule });
        }
        if object.location == Location::Host {
            self.rig.state().memory.add_host_object(at, size_bytes);
        }
        self.objects.insert(name.to_owned(), object);
        Ok(())
    }

    fn put(
        &self,
        op: &'static str,
        spot: &Spot,
        size_bytes: u64,
        content: Content,
    ) -> Result<(), DmaProblem> {
        let at = self.range(op, spot, size_bytes)?;
        let piece = Piece {
            size_bytes,
            content,
        };
        self.rig.put(at, vec![piece]);
        Ok(())
    }

    /// Whether an address lies in an object, or in a chunk that the driver has given out.
    pub(super) fn has_chunk(&self, at: BusAddr) -> bool {
        let covers = |object: &Object| {
            let offset = at.get().checked_sub(object.at);
            offset.is_some_and(|offset| offset < object.size_bytes)
        };
        self.memories[0].search(at).is_some() || self.objects.values().any(covers)
    }

    /// The range of an object that an argument names.
    pub(super) fn span(
        &self,
        op: &'static str,
        argument: &'static str,
        name: &Name,
    ) -> Result<Span<BusAddr>, DmaProblem> {
        let name = name.clone();
        let object = self.object(
            op,
            &Spot {
                argument,
                name,
                offset: 0,
            },
        )?;
        Ok(Span::cut(BusAddr::new(object.at), object.size_bytes))
    }

    fn object(&self, op: &'static str, spot: &Spot) -> Result<Object, DmaProblem> {
        let known = || {
            let names: Vec<&str> = self.objects.keys().map(String::as_str).collect();
            if names.is_empty() {
                "there is none".to_owned()
            } else {
                names.join(", ")
            }
        };
        let object = self.objects.get(&spot.name.0);
        object.copied().ok_or_else(|| DmaProblem::NoObject {
            op,
            argument: spot.argument,
            name: spot.name.0.clone(),
            known: known(),
        })
    }

    /// The first address of a range that lies in its object.
    pub(super) fn range(
        &self,
        op: &'static str,
        spot: &Spot,
        size_bytes: u64,
    ) -> Result<u64, DmaProblem> {
        let object = self.object(op, spot)?;
        let room = object.size_bytes.checked_sub(spot.offset);
        if room.is_none_or(|room| room < size_bytes) {
            return Err(DmaProblem::OutOfObject {
                op,
                name: spot.name.0.clone(),
                object_bytes: object.size_bytes,
                offset: spot.offset,
                size_bytes,
            });
        }
        Ok(object.at + spot.offset)
    }

    /// A place in an object, or behind it: the op layer takes any.
    pub(super) fn place(&self, op: &'static str, spot: &Spot) -> Result<Place, DmaProblem> {
        let object = self.object(op, spot)?;
        let at = object.at.checked_add(spot.offset);
        let at = at.ok_or(DmaProblem::BadAddress {
            op,
            at: object.at,
            rule: "address and offset must fit 64 bits",
        })?;
        Ok(Place {
            at: BusAddr::new(at),
            location: object.location,
            core: object.core,
        })
    }

    pub(super) fn hash(&self, hasher: &mut Hasher, at: u64, size_bytes: u64) -> u64 {
        let pieces = self.rig.content(at, size_bytes);
        hasher.hash(&pieces)
    }

    /// The queue of a core's copies. The last core's stands for those that the device does not
    /// have.
    pub(super) fn queue(&self, core: CoreId) -> QueueId {
        let last = CoreId::new(self.profile.cores.saturating_sub(1));
        self.profile.h2t_queue(core.min(last)).unwrap_or_default()
    }

    pub(super) fn in_use(&self, core: CoreId) -> [bool; 3] {
        self.dma
            .queue_state(core)
            .map_or([false; 3], |state| in_use(&state))
    }

    /// How a queue stands by the driver's state and the engine's registers.
    pub(super) fn tell_queue(&self, queue: QueueId, core: CoreId) -> Fields<'static> {
        let driver = self.dma.queue_state(core);
        let state = self.rig.state();
        let sides = Direction::BOTH.map(|direction| state.engine.side(queue, direction));
        let side = |ring: Option<&QueueState>| {
            let number = |field: fn(&QueueState) -> u32| ring.map_or(0, field);
            Fields::new()
                .with("next", number(|ring| ring.next))
                .with("acked", number(|ring| ring.acked))
                .with("ring_id", number(|ring| ring.ring_id))
                .with("avail", number(|ring| ring.available))
        };
        let fields = Fields::new()
            .with("eng", queue.engine.get())
            .with("qid", queue.number)
            .with("tx", side(driver.as_ref()))
            .with("rx", side(driver.as_ref()))
            .with("hw_tx", hardware(&sides[0]))
            .with("hw_rx", hardware(&sides[1]));
        let Some(driver) = driver else {
            return fields;
        };
        let books = state.books.get(&queue).cloned().unwrap_or_default();
        let marker = state.marker_words(self.rig.blocks(), queue);
        fields
            .with("ctx", books.tell(in_use(&driver)))
            .with("marker", marker.into_iter().collect::<Value<'_>>())
    }

    /// A ring's base, as the engine has it.
    pub(super) fn ring_base(&self, queue: QueueId, direction: Direction) -> (String, u32) {
        let side = self.rig.state().engine.side(queue, direction);
        (hex(side.base), side.descs)
    }
}

/// `[head, tail, lap of the head]`.
pub(super) fn hardware(side: &Side) -> Value<'static> {
    [side.head.slot, side.tail.slot, side.head.ring_id]
        .into_iter()
        .collect()
}

/// The memory of a device.
fn memory(device: DeviceId, layout: MemoryLayout, rig: &Arc<Rig>) -> Result<DeviceMemory, String> {
    let config = MemoryConfig {
        device,
        layout,
        // The reserve would take host memory that the trace does not know of.
        params: ModuleParams {
            mempool_host_memory_size: 0,
            ..ModuleParams::default()
        },
        handle_limit: HANDLE_LIMIT,
    };
    let kernel = Arc::new(ScriptedKernelMemory::new());
    DeviceMemory::new(config, rig.clone(), kernel).map_err(text)
}

fn in_use(state: &QueueState) -> [bool; 3] {
    state
        .contexts
        .map(|context| !matches!(context, ContextState::Idle))
}

/// The index of the context that a handle names; of no context, if it names none.
pub(super) fn context_of(handle: WaitHandle) -> usize {
    handle.to_raw() as usize
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
