//! A device with its op layer, a process, and what was told.

use std::sync::{Arc, Mutex};

use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::completion::{self, Completion, Consumer};
use glia_abi::event::{Detail, Event, Ids, Sink};
use glia_abi::fault::{FaultPlan, Faults};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::port::{MachineMemory, Port};
use glia_abi::sched::{Micros, Poll, Sched, Tick};
use glia_abi::transport::{Caller, Lent, Mapping, UserBuffer, user_addr};
use glia_device::{
    AddressSpace, Device, DeviceConfig, EngineOrder, EngineTiming, HostArena, HostConfig,
    InlineSched, PinLayout,
};
use glia_driver::alloc::AllocRequest;
use glia_driver::chunk::ChunkRef;
use glia_driver::dma::zerocopy::{Reply, ZeroCopy, ZeroCopyLimits, ZeroCopyOp};
use glia_driver::dma::{Dma, DmaConfig, DmaError, Platform, QueueState};
use glia_driver::memory::{DeviceMemory, MemoryConfig};

use crate::watch::Watch;

pub(crate) const DEVICE: DeviceId = DeviceId::new(0);
pub(crate) const CORE: CoreId = CoreId::new(0);
pub(crate) const PID: Pid = Pid::new(7);
/// Bytes of the chunk that everything is copied to and from.
pub(crate) const CHUNK: u64 = 8 << 20;

/// Everything that was told.
#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<Event>>);

impl Heard {
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Sink for Heard {
    fn detail(&self) -> Detail {
        Detail::Descriptors
    }

    fn event(&self, _at: Tick, _ids: &Ids, event: &Event) {
        self.0.lock().unwrap().push(*event);
    }
}

/// How a rig is built.
pub(crate) struct Plan {
    pub(crate) arch: Arch,
    pub(crate) limits: ZeroCopyLimits,
    pub(crate) pins: PinLayout,
    pub(crate) timing: bool,
    /// A seed for engines of weak order.
    pub(crate) weak: Option<u64>,
    pub(crate) sched: Arc<dyn Sched>,
    pub(crate) platform: Platform,
}

impl Plan {
    pub(crate) fn of(arch: Arch) -> Self {
        Self {
            arch,
            limits: ZeroCopyLimits::default(),
            pins: PinLayout::Contiguous,
            timing: false,
            weak: None,
            sched: Arc::new(InlineSched::new()),
            platform: Platform::Hardware,
        }
    }
}

pub(crate) struct Rig {
    pub(crate) faults: Arc<FaultPlan>,
    pub(crate) heard: Arc<Heard>,
    pub(crate) host: Arc<HostArena>,
    pub(crate) sched: Arc<dyn Sched>,
    pub(crate) dma: Arc<Dma>,
    pub(crate) space: AddressSpace,
    /// Where the chunk lies, and its bytes as the device has them.
    pub(crate) at: BusAddr,
    pub(crate) hbm: Arc<dyn Mapping>,
    /// Between the driver and its device.
    pub(crate) watch: Arc<Watch>,
    device: Arc<Device>,
    memory: Arc<DeviceMemory>,
    layout: MemoryLayout,
}

impl Rig {
    pub(crate) fn new(arch: Arch) -> Self {
        Self::with(Plan::of(arch))
    }

    pub(crate) fn with(plan: Plan) -> Self {
        let size_bytes = 64 << 20;
        let layout = MemoryLayout::new(plan.arch, Scale::RegionSize { size_bytes }).unwrap();
        let faults = Arc::new(FaultPlan::new(1));
        let heard = Arc::new(Heard::default());
        let config = HostConfig {
            pin_layout: plan.pins,
            ..HostConfig::default()
        };
        let asked = Arc::clone(&faults) as Arc<dyn Faults>;
        let host = Arc::new(HostArena::with_faults(config, Arc::clone(&asked)).unwrap());
        let order = plan.weak.map(|seed| EngineOrder::Weak { seed });
        let config = DeviceConfig {
            timing: plan.timing.then(|| EngineTiming::of(plan.arch)),
            order: order.unwrap_or(EngineOrder::Strict),
            ..DeviceConfig::new(DEVICE, layout)
        };
        let sched = plan.sched;
        let device = Device::new(
            config,
            Arc::clone(&host),
            Arc::clone(&sched),
            Arc::clone(&heard) as _,
            Arc::clone(&asked),
        );
        let device = device.unwrap();
        let mut config = MemoryConfig::new(layout);
        config.params.zerocopy_trn1_override = true;
        config.params.mempool_small_pool_size = 4 << 20;
        let memory = DeviceMemory::new(config, Arc::clone(&host) as _, asked);
        let memory = Arc::new(memory.unwrap());
        let config = DmaConfig {
            device: DEVICE,
            profile: layout.profile(),
            platform: plan.platform,
            zero_copy: plan.limits,
        };
        let watch = Watch::new(layout.profile(), Arc::clone(&device), Arc::clone(&host));
        let watch = Arc::new(watch);
        let bytes: Arc<dyn MachineMemory> = Arc::clone(&watch) as _;
        let port: Arc<dyn Port> = Arc::clone(&watch) as _;
        let dma = Dma::new(
            config,
            port,
            bytes,
            Arc::clone(&memory),
            Arc::clone(&sched),
            Arc::clone(&heard) as _,
        );
        dma.init_cores(u32::MAX, true).unwrap();
        let channel = layout.profile().default_channel(CORE);
        let request = AllocRequest::device(CHUNK, channel);
        let chunk = memory.alloc(PID, &request).unwrap();
        let at = memory.chunk(chunk).unwrap().at();
        let hbm = device.mapping(at, CHUNK).unwrap();
        heard.take();
        watch.take();
        Self {
            faults,
            heard,
            space: AddressSpace::new(Arc::clone(&host)),
            host,
            sched,
            dma: Arc::new(dma),
            at,
            hbm,
            watch,
            device,
            memory,
            layout,
        }
    }

    pub(crate) fn caller<R>(
        &self,
        lent: &mut [Lent<'_>],
        call: impl FnOnce(&Caller<'_>) -> R,
    ) -> R {
        self.space.call(&mut [], lent, |memory| {
            call(&Caller {
                pid: PID,
                memory,
                killed: &|| false,
            })
        })
    }

    /// To the chunk or from it, at its start.
    pub(crate) fn copy<'a>(&self, to_device: bool, ops: &'a [ZeroCopyOp]) -> ZeroCopy<'a> {
        ZeroCopy {
            core: CORE,
            to_device,
            base: self.at,
            ops,
        }
    }

    /// Copies lent memory to the chunk, and waits.
    pub(crate) fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), DmaError> {
        let ops = [ZeroCopyOp {
            offset_bytes,
            size_bytes: bytes.len() as u64,
            buffer: user_addr(bytes),
        }];
        self.caller(&mut [Lent::In(bytes)], |caller| {
            self.dma.zero_copy(caller, &self.copy(true, &ops))
        })
    }

    /// Copies the chunk's bytes to lent memory, and waits.
    pub(crate) fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DmaError> {
        let ops = [ZeroCopyOp {
            offset_bytes,
            size_bytes: into.len() as u64,
            buffer: user_addr(into),
        }];
        self.caller(&mut [Lent::Out(into)], |caller| {
            self.dma.zero_copy(caller, &self.copy(false, &ops))
        })
    }

    /// Begins to copy a whole buffer to the chunk's start, or from it.
    pub(crate) fn begin(
        &self,
        to_device: bool,
        buffer: &Arc<dyn UserBuffer>,
        sequence: u64,
    ) -> Result<(), DmaError> {
        let ops = [whole(buffer)];
        self.begin_ops(to_device, &ops, sequence)
    }

    pub(crate) fn begin_ops(
        &self,
        to_device: bool,
        ops: &[ZeroCopyOp],
        sequence: u64,
    ) -> Result<(), DmaError> {
        let reply = Reply {
            sequence,
            context: sequence + 1000,
        };
        self.caller(&mut [], |caller| {
            let copy = self.copy(to_device, ops);
            self.dma.zero_copy_async(caller, &copy, reply, None)
        })
    }

    pub(crate) fn buffer(&self, bytes: &[u8]) -> Arc<dyn UserBuffer> {
        let buffer = self.space.buffer(bytes.len() as u64).unwrap();
        buffer.write(0, bytes).unwrap();
        buffer
    }

    /// The process's end of the completion queue of the core.
    pub(crate) fn completions(&self) -> Completions {
        let mapping = self.completions_of(CORE);
        let words = mapping.words(0, completion::SIZE_BYTES).unwrap();
        let consumer = Consumer::attach(words).unwrap();
        Completions { mapping, consumer }
    }

    /// The completion queue of a core, mapped.
    pub(crate) fn completions_of(&self, core: CoreId) -> Arc<dyn Mapping> {
        self.mapping_of(self.dma.completion_queue(core).unwrap())
    }

    /// A completion queue's chunk, mapped.
    pub(crate) fn mapping_of(&self, chunk: ChunkRef) -> Arc<dyn Mapping> {
        let record = self.memory.chunk(chunk).unwrap();
        assert_eq!(record.size_bytes(), 28_672);
        let at = self.layout.profile().bus_to_host(record.at()).unwrap();
        self.host.mapping(at, record.size_bytes(), true).unwrap()
    }

    /// Bytes of host memory that are taken.
    pub(crate) fn host_bytes(&self) -> u64 {
        self.memory.stats().host_bytes
    }

    pub(crate) fn hbm_bytes(&self, offset_bytes: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        self.hbm.read(offset_bytes, &mut bytes).unwrap();
        bytes
    }

    /// Lets time pass, and whatever is due.
    pub(crate) fn pass(&self, length: Micros) {
        let on = self.sched.wait_on();
        let _ = self.sched.block(on, &mut || Poll::Pending, Some(length));
    }

    pub(crate) fn queue(&self) -> QueueState {
        self.dma.queue_state(CORE).unwrap()
    }

    /// Nothing is pinned, queued or outstanding.
    pub(crate) fn assert_at_rest(&self) {
        let queue = self.queue();
        assert_eq!((queue.zero_copy_contexts, queue.pinned_pages), (0, 0));
        assert_eq!(queue.available, 8176);
        assert_eq!(self.host.pinned_bytes(), 0);
    }
}

/// What a process sees of a completion queue.
pub(crate) struct Completions {
    pub(crate) mapping: Arc<dyn Mapping>,
    consumer: Consumer,
}

impl Completions {
    pub(crate) fn take(&mut self) -> Option<Completion> {
        let words = self.mapping.words(0, completion::SIZE_BYTES).unwrap();
        self.consumer.take(words)
    }

    /// All there are: sequence and result.
    pub(crate) fn all(&mut self) -> Vec<(u64, i64)> {
        std::iter::from_fn(|| self.take())
            .map(|entry| {
                assert_eq!(entry.context, entry.sequence + 1000);
                (entry.sequence, entry.result)
            })
            .collect()
    }
}

/// An operation for a whole buffer at the chunk's start.
pub(crate) fn whole(buffer: &Arc<dyn UserBuffer>) -> ZeroCopyOp {
    ZeroCopyOp {
        offset_bytes: 0,
        size_bytes: buffer.size_bytes(),
        buffer: buffer.address(),
    }
}

/// A part of a buffer.
pub(crate) fn part(
    buffer: &Arc<dyn UserBuffer>,
    from: u64,
    size_bytes: u64,
    offset_bytes: u64,
) -> ZeroCopyOp {
    ZeroCopyOp {
        offset_bytes,
        size_bytes,
        buffer: UserAddr::new(buffer.address().get() + from),
    }
}

pub(crate) fn pattern(size: usize, seed: usize) -> Vec<u8> {
    (0..size)
        .map(|index| u8::try_from((index * 31 + index / 256 * 17 + seed) % 251).unwrap())
        .collect()
}

pub(crate) fn bytes_of(buffer: &Arc<dyn UserBuffer>) -> Vec<u8> {
    let size = usize::try_from(buffer.size_bytes()).unwrap();
    let mut bytes = vec![0; size];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

impl Rig {
    pub(crate) fn profile(&self) -> &'static glia_abi::arch::ArchProfile {
        self.layout.profile()
    }

    pub(crate) fn reg_read(&self, at: glia_abi::addr::RegOffset) -> u32 {
        self.device.reg_read(at)
    }
}
