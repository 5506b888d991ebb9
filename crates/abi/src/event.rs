//! What the layers tell of what they do: the seam [`Sink`], and the events that go into it.
//!
//! An event is a fact that a layer could not have told before it happened: a chunk was taken, a
//! doorbell was rung, a batch was moved. It carries the [`Ids`] of what it is about, taken from the
//! operation's own record (a worker or an exit has no caller), and is `Copy`: no strings, no host
//! pointers. The sink stamps the order in which it heard them.
//!
//! A name (the site of a chunk or an allocation, the hint of an allocation) is a [`NameId`]. The sink gives it: the
//! layer asks [`Sink::name`] for a text's number and then tells the event. So the layers of a
//! machine, its devices and its processes cannot use one number for two names, and the sink has
//! heard of each name before the first event that uses it.
//!
//! Device events count descriptors from the machine's start, never back to 0, so that the driver's
//! [`BatchStaged`](Event::BatchStaged), which carries the same count, tells whose bytes they were.
//!
//! **Who owns what.** The sink belongs to whoever built the machine. A layer calls it at any time,
//! from any thread, possibly with locks held: a sink must not call back into the machine.

use crate::addr::{BusAddr, RegOffset};
use crate::fault::PairFault;
use crate::handle::{Channel, ChunkId, CoreId, DeviceId, McHandle, Pid, QueueId};
use crate::mem::Location;
use crate::mem_usage::MemUsage;
use crate::nrt::NrtStatus;
use crate::port::NotCompleted;
use crate::sched::Tick;
use crate::udma::Direction;
use crate::usage::Category;

/// What an event is about. What does not apply, or is not known where it happens, is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ids {
    /// The process on whose account it happened.
    pub process: Option<Pid>,
    /// The device.
    pub device: Option<DeviceId>,
    /// The core.
    pub core: Option<CoreId>,
    /// The HBM channel.
    pub channel: Option<Channel>,
    /// The mem chunk.
    pub chunk: Option<ChunkId>,
    /// Its handle.
    pub handle: Option<McHandle>,
    /// The DMA queue.
    pub queue: Option<QueueId>,
}

impl Ids {
    /// About a device as a whole.
    #[must_use]
    pub const fn device(device: DeviceId) -> Self {
        Self {
            process: None,
            device: Some(device),
            core: None,
            channel: None,
            chunk: None,
            handle: None,
            queue: None,
        }
    }

    /// About a queue of a device.
    #[must_use]
    pub const fn queue(device: DeviceId, queue: QueueId) -> Self {
        Self {
            queue: Some(queue),
            ..Self::device(device)
        }
    }
}

/// A name in the events of one sink: see [`Sink::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(u32);

impl NameId {
    /// The name of this number.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Which way the runtime copies bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyWay {
    /// From the program into an allocation.
    In,
    /// From an allocation to the program.
    Out,
}

/// How the runtime copies bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyPath {
    /// Through the copy buffer of the core, from where the device moves them.
    Staged,
    /// Through a mapping of the allocation; the device has no part in it.
    Mapped,
    /// By the program's own pages, from or to where the device moves the bytes.
    ZeroCopy,
    /// From another allocation of the device, by the device.
    Between,
    /// From nowhere: the allocation is filled with one value.
    Filled,
}

/// How the driver took a command word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandClass {
    /// It is built.
    Built,
    /// It is a command of the reference that Glia does not have.
    Unimplemented,
    /// It is no command of the reference.
    Unknown,
    /// It exists, but not for a file that was opened like this one.
    WrongLane,
}

/// Why an engine stopped a queue. It stays stopped until the queue is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineFault {
    /// A doorbell announced 0 descriptors, or more than the ring has room for.
    Doorbell {
        /// Which side's.
        direction: Direction,
        /// Descriptors announced.
        count: u32,
        /// Descriptors that could have been announced.
        room: u32,
    },
    /// A doorbell rang on a queue that is not enabled, or whose ring is not set up.
    NotReady {
        /// Which side's.
        direction: Direction,
    },
    /// The ring's memory cannot be read.
    RingAddress {
        /// Which side's.
        direction: Direction,
        /// The descriptor's address.
        at: BusAddr,
    },
    /// A descriptor is of another lap than the engine.
    RingId {
        /// Which side's.
        direction: Direction,
        /// The engine's lap.
        expected: u32,
        /// The descriptor's.
        found: u32,
    },
    /// The two descriptors of a pair do not carry the same length.
    Lengths {
        /// The source side's, in bytes.
        tx_size_bytes: u64,
        /// The destination side's, in bytes.
        rx_size_bytes: u64,
    },
    /// A source or a destination lies neither in HBM nor in host memory: a DMA abort.
    Address {
        /// Which side's.
        direction: Direction,
        /// First byte.
        at: BusAddr,
        /// Bytes.
        size_bytes: u64,
    },
    /// The bus aborted the access (ordered by a fault plan): a DMA abort.
    Aborted {
        /// First byte that was to be written.
        at: BusAddr,
    },
    /// HBM has an uncorrectable error (ordered by a fault plan).
    Uncorrectable {
        /// First byte that was to be read.
        at: BusAddr,
    },
    /// A descriptor asks for what the model does not do: anything but a plain copy of one packet.
    Unimplemented {
        /// Which side's.
        direction: Direction,
        /// Its first word.
        len_ctrl: u32,
        /// Its second word.
        word1: u32,
    },
}

/// A fact that a layer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    // Driver.
    /// A process opened the device.
    Opened,
    /// A process closed a descriptor of the device.
    Closed,
    /// A command was answered.
    Ioctl {
        /// The command word.
        word: u32,
        /// How it was taken.
        class: CommandClass,
        /// What the caller got: 0 or more, or a negative error number.
        ret: i32,
    },
    /// A process asked for cores that others have, and got none. The core of the event is the first
    /// that is taken of those that it would have liked.
    ClaimRefused {
        /// Cores asked for, in a row.
        cores: u32,
        /// The longest free run that was seen.
        longest: u32,
        /// Who has the core.
        holder: Pid,
    },
    /// A mem chunk came to life.
    ChunkTaken {
        /// First byte, as the device sees it.
        at: BusAddr,
        /// Bytes, rounded up.
        size_bytes: u64,
        /// Host memory or HBM.
        location: Location,
        /// What for.
        category: Category,
        /// The place in the program that asked; `None` if it did not say. (No command has room for
        /// a site. What a program calls its memory is in the runtime's [`Allocated`](Self::Allocated)
        /// of the same device and handle.)
        site: Option<NameId>,
    },
    /// A mem chunk's life ended.
    ChunkFreed {
        /// Bytes, rounded up.
        size_bytes: u64,
        /// Host memory or HBM.
        location: Location,
    },
    /// A DMA ring was set up.
    RingReady {
        /// Descriptors of each side.
        descs: u32,
    },
    /// A batch of descriptors was staged and its doorbells were rung.
    BatchStaged {
        /// The context it belongs to: 0 synchronous, 1 and 2 asynchronous, 3 and more of zero copies.
        context: u32,
        /// The queue's count of descriptor pairs before it.
        first: u64,
        /// Data descriptors of each side, without the marker.
        data_descs: u32,
        /// Bytes that they move.
        size_bytes: u64,
    },
    /// A batch's marker came.
    BatchDone {
        /// The context it belongs to.
        context: u32,
        /// How often the poll word was looked at.
        polls: u64,
    },
    /// A batch's marker did not come.
    BatchFailed {
        /// The context it belongs to.
        context: u32,
        /// Why not.
        reason: NotCompleted,
    },
    /// An asynchronous zero copy has ended, and its completion was posted.
    CompletionPosted {
        /// The number that its caller gave it.
        sequence: u64,
        /// 0, or a negative error number.
        result: i64,
    },
    /// Ring slots were given back.
    Acknowledged {
        /// Which side's.
        direction: Direction,
        /// How many.
        descs: u32,
    },
    // Device.
    /// A doorbell was rung.
    Doorbell {
        /// Which side's.
        direction: Direction,
        /// Descriptors announced now.
        descs: u32,
        /// Descriptors announced so far.
        total: u64,
    },
    /// A pair of descriptors was executed. Told only to a sink that [wants](Sink::detail) it.
    Moved {
        /// The queue's count of pairs before it.
        index: u64,
        /// First byte read.
        source: BusAddr,
        /// First byte written.
        target: BusAddr,
        /// Bytes.
        size_bytes: u64,
    },
    /// A run of descriptor pairs was executed and retired.
    Executed {
        /// The queue's count of pairs before it.
        first: u64,
        /// Pairs.
        descs: u32,
        /// Bytes moved, markers included.
        size_bytes: u64,
    },
    /// The fault plan decided what becomes of a pair.
    Ordered {
        /// The queue's count of pairs before it.
        index: u64,
        /// What becomes of it.
        fault: PairFault,
    },
    /// A queue was reset.
    QueueReset {
        /// Which side of it.
        direction: Direction,
    },
    /// The firmware began a reset: what the engines of these cores had under way is lost.
    ResetBegan {
        /// The cores by their bits; all bits for the whole device.
        cores: u32,
    },
    /// The firmware has completed all resets that it was asked for.
    ResetEnded {
        /// The cores of all of them.
        cores: u32,
    },
    /// A queue stopped.
    Stopped {
        /// Why.
        fault: EngineFault,
    },
    /// An access to BAR0 that no register answers, or a write to a read-only one.
    StrayRegister {
        /// Where.
        at: RegOffset,
        /// What was written; `None` for a read.
        value: Option<u32>,
    },
    // Runtime.
    /// The runtime has opened the device and can use it.
    RuntimeOpened,
    /// The runtime will not use the device any more, and begins to close it.
    RuntimeClosed,
    /// A model was loaded.
    ModelLoaded {
        /// Its number in the process.
        model: u32,
        /// What it is called.
        model_name: Option<NameId>,
    },
    /// A model was unloaded; what it had allocated is free.
    ModelUnloaded {
        /// Its number in the process.
        model: u32,
    },
    /// The runtime allocated memory. The handle is the driver's.
    Allocated {
        /// First byte that is used, as the device sees it. Where the runtime had to align by itself,
        /// the chunk begins before.
        at: BusAddr,
        /// Bytes, as asked for.
        size_bytes: u64,
        /// Bytes that the driver was asked for.
        allocated_bytes: u64,
        /// Host memory or HBM.
        location: Location,
        /// What for.
        usage: MemUsage,
        /// The model that owns it; `None` if it lives with its core.
        model: Option<u32>,
        /// What that model is called.
        model_name: Option<NameId>,
        /// What the program calls the memory.
        hint: Option<NameId>,
        /// Where the program asked for it: a line of its code, or what it calls the place.
        site: Option<NameId>,
    },
    /// The runtime could not allocate memory.
    AllocationFailed {
        /// Bytes, as asked for.
        size_bytes: u64,
        /// Alignment that was asked for, 0 for none.
        align_bytes: u64,
        /// Host memory or HBM.
        location: Location,
        /// What for.
        usage: MemUsage,
        /// What the program calls the memory.
        hint: Option<NameId>,
        /// Where the program asked for it, as in [`Allocated`](Self::Allocated).
        site: Option<NameId>,
        /// What the program was answered.
        status: NrtStatus,
    },
    /// The runtime gave memory back.
    Freed {
        /// Bytes, as asked for.
        size_bytes: u64,
        /// Bytes that the driver was asked for.
        allocated_bytes: u64,
        /// Host memory or HBM.
        location: Location,
        /// What for.
        usage: MemUsage,
        /// Whether the driver took it. The runtime forgets it in any case.
        status: NrtStatus,
    },
    /// The runtime copied bytes between the program and an allocation, or failed to. A failed copy
    /// may have moved some of them.
    Copied {
        /// Which way.
        way: CopyWay,
        /// How.
        path: CopyPath,
        /// Offset of the first byte in the allocation.
        offset_bytes: u64,
        /// Bytes.
        size_bytes: u64,
        /// What the program was answered.
        status: NrtStatus,
    },
}

impl Event {
    /// The same event, with each name in it replaced: for a sink that passes events on to another
    /// one, which numbers names by itself.
    #[must_use]
    pub fn renamed(mut self, mut other: impl FnMut(NameId) -> Option<NameId>) -> Self {
        let mut rename = |name: &mut Option<NameId>| *name = name.and_then(&mut other);
        match &mut self {
            Self::ChunkTaken { site, .. } => rename(site),
            Self::ModelLoaded { model_name, .. } => rename(model_name),
            Self::Allocated {
                model_name,
                hint,
                site,
                ..
            } => {
                rename(model_name);
                rename(hint);
                rename(site);
            }
            Self::AllocationFailed { hint, site, .. } => {
                rename(hint);
                rename(site);
            }
            _ => {}
        }
        self
    }
}

/// How much a sink wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Detail {
    /// Nothing at all: layers need not put events together.
    Nothing,
    /// Everything but single descriptors.
    #[default]
    Batches,
    /// Every descriptor pair as well.
    Descriptors,
}

/// Who hears the events of a machine.
pub trait Sink: Send + Sync {
    /// How much it wants to hear. The answer never changes; layers may ask once.
    fn detail(&self) -> Detail {
        Detail::Batches
    }

    /// The number of a name in the events that this sink hears; `None` if it keeps no names. The
    /// same text has the same number whoever asks, and no other text has it. Asked for by whoever
    /// is about to tell an event with it.
    fn name(&self, text: &str) -> Option<NameId> {
        let _ = text;
        None
    }

    /// Hears one. The calls of one thread come in their order; those of several threads come in
    /// some order, which the sink decides.
    fn event(&self, at: Tick, ids: &Ids, event: &Event);
}

/// The sink that wants to hear nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn detail(&self) -> Detail {
        Detail::Nothing
    }

    fn event(&self, _at: Tick, _ids: &Ids, _event: &Event) {}
}
