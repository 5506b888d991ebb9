//! A machine for tests: host memory in one array, an engine that executes descriptors when its TX
//! doorbell is rung (or when they are waited for, to have copies under way), time that stands
//! still, and a sink that remembers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use glia_abi::addr::{BusAddr, HostPa, RegOffset};
use glia_abi::arch::{Arch, ArchProfile, MemoryLayout, Scale};
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::fault::NoFaults;
use glia_abi::handle::{DeviceId, EngineId, PinId, QueueId, WorkerId};
use glia_abi::params::ModuleParams;
use glia_abi::port::{
    BadBar4Range, BadHostRange, Budget, DmaMemory, HostMemory, MachineMemory, NotCompleted, Port,
    TimedOut,
};
use glia_abi::regs::{NO_REGISTER, Place, QueueReg};
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};
use glia_abi::sync::AtomicU32;
use glia_abi::udma::{Direction, RxDesc, TxDesc};
use glia_driver::driver::{DeviceSetup, Driver};
use glia_driver::memory::{DeviceMemory, MemoryConfig};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const ND0: DeviceId = DeviceId::new(0);
pub(crate) const ND1: DeviceId = DeviceId::new(1);

/// Host memory from address 0 up; the first 64 KiB are given to nobody.
pub(crate) struct TestHost {
    words: Box<[AtomicU32]>,
    taken: Mutex<BTreeMap<u64, u64>>,
    /// Whether requests are refused.
    is_full: AtomicBool,
}

impl TestHost {
    fn new(size_bytes: u64) -> Self {
        Self {
            words: (0..size_bytes / 4).map(|_| AtomicU32::new(0)).collect(),
            taken: Mutex::default(),
            is_full: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    fn size_bytes(&self) -> u64 {
        self.words.len() as u64 * 4
    }

    fn bytes(&self, at: HostPa, size_bytes: u64) -> Result<std::ops::Range<u64>, BadHostRange> {
        match at.get().checked_add(size_bytes) {
            Some(end) if end <= self.size_bytes() => Ok(at.get()..end),
            Some(_) | None => Err(BadHostRange { at, size_bytes }),
        }
    }
}

impl HostMemory for TestHost {
    fn alloc(&self, _device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        if size_bytes == 0 || self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        let mut taken = self.taken.lock().unwrap();
        let mut at = 64 << 10;
        for (&start, &size) in taken.iter() {
            if at + size_bytes <= start {
                break;
            }
            at = start + size;
        }
        if at + size_bytes > self.size_bytes() {
            return None;
        }
        taken.insert(at, size_bytes);
        Some(HostPa::new(at))
    }

    fn free(&self, _device: DeviceId, at: HostPa, size_bytes: u64) {
        let freed = self.taken.lock().unwrap().remove(&at.get());
        assert_eq!(freed, Some(size_bytes), "freed as taken");
    }
}

impl DmaMemory for TestHost {
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange> {
        let bytes = self.bytes(at, size_bytes)?;
        Ok(&self.words[bytes.start as usize / 4..bytes.end as usize / 4])
    }

    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange> {
        let range = self.bytes(at, into.len() as u64)?;
        for (at, byte) in range.zip(into) {
            let word = self.words[at as usize / 4].load(Ordering::Acquire);
            *byte = word.to_le_bytes()[at as usize % 4];
        }
        Ok(())
    }

    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange> {
        let range = self.bytes(at, bytes.len() as u64)?;
        for (at, byte) in range.zip(bytes) {
            let word = &self.words[at as usize / 4];
            let mut new = word.load(Ordering::Acquire).to_le_bytes();
            new[at as usize % 4] = *byte;
            word.store(u32::from_le_bytes(new), Ordering::Release);
        }
        Ok(())
    }

    fn fill(&self, at: HostPa, size_bytes: u64, value: u8) -> Result<(), BadHostRange> {
        self.write(at, &vec![value; size_bytes as usize])
    }
}

impl MachineMemory for TestHost {
    fn unpin(&self, _pin: PinId) {}
}

/// One side of a queue, as its registers and the engine see it.
#[derive(Default)]
struct Side {
    base: u64,
    descs: u64,
    done: u64,
    announced: u64,
}

/// A device: registers, HBM, and an engine behind them.
pub(crate) struct TestPort {
    profile: &'static ArchProfile,
    host: Arc<TestHost>,
    queues: Mutex<HashMap<QueueId, [Side; 2]>>,
    hbm: Mutex<BTreeMap<u64, Box<[u8; PAGE as usize]>>>,
    /// What the registers of engines were given last.
    registers: Mutex<BTreeMap<RegOffset, u32>>,
    /// Whether the engine works at the doorbell, or just when somebody waits.
    is_lazy: AtomicBool,
    /// Whether it does not work at all.
    is_stuck: AtomicBool,
}

impl TestPort {
    pub(crate) fn set_lazy(&self, is_lazy: bool) {
        self.is_lazy.store(is_lazy, Ordering::Relaxed);
    }

    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// What a register of an engine was given last; `offset` counts from the engine's block.
    pub(crate) fn engine_register(&self, engine: u32, offset: u64) -> Option<u32> {
        let block = self.profile.engine_block(EngineId::new(engine)).unwrap();
        let at = RegOffset::new(block.get() + offset);
        self.registers.lock().unwrap().get(&at).copied()
    }

    pub(crate) fn peek(&self, at: BusAddr, size_bytes: u64) -> Vec<u8> {
        if let Some(at) = self.profile.bus_to_host(at) {
            let mut bytes = vec![0; size_bytes as usize];
            self.host.read(at, &mut bytes).unwrap();
            return bytes;
        }
        let hbm = self.hbm.lock().unwrap();
        let byte = |at: u64| {
            hbm.get(&(at / PAGE))
                .map_or(0xee, |page| page[(at % PAGE) as usize])
        };
        (at.get()..at.get() + size_bytes).map(byte).collect()
    }

    pub(crate) fn poke(&self, at: BusAddr, bytes: &[u8]) {
        if let Some(at) = self.profile.bus_to_host(at) {
            return self.host.write(at, bytes).unwrap();
        }
        let mut hbm = self.hbm.lock().unwrap();
        for (at, byte) in (at.get()..).zip(bytes) {
            let page = hbm
                .entry(at / PAGE)
                .or_insert_with(|| Box::new([0xee; PAGE as usize]));
            page[(at % PAGE) as usize] = *byte;
        }
    }

    fn work(&self, queue: QueueId) {
        if self.is_stuck.load(Ordering::Relaxed) {
            return;
        }
        let mut queues = self.queues.lock().unwrap();
        let [tx, rx] = queues.entry(queue).or_default();
        while tx.done < tx.announced && rx.done < rx.announced {
            let source = TxDesc::from_words(self.descriptor(tx));
            let target = RxDesc::from_words(self.descriptor(rx));
            let size_bytes = source.len_ctrl.size_bytes();
            assert_eq!(size_bytes, target.len_ctrl.size_bytes());
            let bytes = self.peek(source.source, size_bytes);
            self.poke(target.target, &bytes);
        }
    }

    fn descriptor(&self, side: &mut Side) -> [u32; 4] {
        let at = BusAddr::new(side.base + side.done % side.descs * 16);
        side.done += 1;
        let at = self.profile.bus_to_host(at).unwrap();
        let words = self.host.words(at, 16).unwrap();
        std::array::from_fn(|index| words[index].load(Ordering::Acquire))
    }
}

impl Port for TestPort {
    fn reg_read(&self, at: RegOffset) -> u32 {
        let Place::Queue {
            queue,
            direction,
            offset,
        } = Place::of(self.profile, at)
        else {
            return self
                .registers
                .lock()
                .unwrap()
                .get(&at)
                .copied()
                .unwrap_or(NO_REGISTER);
        };
        let queues = self.queues.lock().unwrap();
        let Some(side) = queues.get(&queue).map(|sides| &sides[direction.index()]) else {
            return 0;
        };
        match QueueReg::of_offset(direction, offset) {
            Some(QueueReg::DrbpLow) => side.base as u32,
            Some(QueueReg::DrbpHigh) => (side.base >> 32) as u32,
            Some(QueueReg::Drl) => side.descs as u32,
            Some(QueueReg::Drhp) => side.done.checked_rem(side.descs).unwrap_or(0) as u32,
            Some(QueueReg::Drtp) => side.announced.checked_rem(side.descs).unwrap_or(0) as u32,
            _ => 0,
        }
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        let Place::Queue {
            queue,
            direction,
            offset,
        } = Place::of(self.profile, at)
        else {
            if let Place::Engine { .. } = Place::of(self.profile, at) {
                self.registers.lock().unwrap().insert(at, value);
            }
            return;
        };
        let mut queues = self.queues.lock().unwrap();
        let side = &mut queues.entry(queue).or_default()[direction.index()];
        match QueueReg::of_offset(direction, offset) {
            Some(QueueReg::DrbpLow) => side.base = side.base >> 32 << 32 | u64::from(value),
            Some(QueueReg::DrbpHigh) => {
                side.base = u64::from(value) << 32 | side.base & u64::from(u32::MAX);
            }
            Some(QueueReg::Drl) => side.descs = value.into(),
            Some(QueueReg::SwCtrl) => (side.done, side.announced) = (0, 0),
            Some(QueueReg::DrtpInc) => side.announced += u64::from(value),
            _ => return,
        }
        drop(queues);
        if direction == Direction::Tx && !self.is_lazy.load(Ordering::Relaxed) {
            self.work(queue);
        }
    }

    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range> {
        let size_bytes = bytes.len() as u64;
        Err(BadBar4Range { offset, size_bytes })
    }

    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        _budget: Budget,
    ) -> Result<u64, TimedOut> {
        self.work(queue);
        if word.load(Ordering::Acquire) == want {
            return Ok(1);
        }
        let reason = NotCompleted::Idle;
        Err(TimedOut { queue, reason })
    }
}

/// Time stands still; whoever waits looks until it is there. A wait with a bound is over when it has
/// been looked for in vain once, unless the test says that it is patient.
#[derive(Default)]
pub(crate) struct TestSched {
    keys: AtomicU64,
    pub(crate) pauses: AtomicU64,
    pub(crate) is_patient: AtomicBool,
    /// Looks in vain so far.
    pub(crate) looks: AtomicU64,
    /// The bound of the last wait in vain.
    pub(crate) bound_us: AtomicU64,
}

impl Sched for TestSched {
    fn now(&self) -> Tick {
        Tick(0)
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(self.keys.fetch_add(1, Ordering::Relaxed))
    }

    fn wake(&self, _on: WaitOn) {}

    fn pause(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }

    fn spawn(&self, _worker: Weak<dyn Worker>) -> WorkerId {
        WorkerId::new(0)
    }

    fn kick(&self, _worker: WorkerId) {}

    fn block(&self, _on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool {
        loop {
            match poll() {
                Poll::Done => return true,
                Poll::Never => return false,
                Poll::Pending => self.looks.fetch_add(1, Ordering::Relaxed),
            };
            if let Some(bound) = within
                && !self.is_patient.load(Ordering::Relaxed)
            {
                self.bound_us.store(bound.0, Ordering::Relaxed);
                return false;
            }
            std::thread::yield_now();
        }
    }
}

/// Remembers all events.
#[derive(Default)]
pub(crate) struct Recorder {
    events: Mutex<Vec<(Ids, Event)>>,
}

impl Recorder {
    /// What was heard since the last time.
    pub(crate) fn take(&self) -> Vec<(Ids, Event)> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

impl Sink for Recorder {
    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        self.events.lock().unwrap().push((*ids, *event));
    }
}

/// A driver with one small device (nd 0), or a pair, on a machine of its own.
pub(crate) struct Rig {
    pub(crate) driver: Driver,
    pub(crate) host: Arc<TestHost>,
    pub(crate) port: Arc<TestPort>,
    pub(crate) sched: Arc<TestSched>,
    pub(crate) heard: Arc<Recorder>,
}

impl Rig {
    /// Regions of 32 MiB, 4 MiB of each in the small pool, and no host reserve.
    pub(crate) fn new(arch: Arch) -> Self {
        Self::with(arch, |_| ())
    }

    pub(crate) fn with(arch: Arch, adjust: impl FnOnce(&mut MemoryConfig)) -> Self {
        let mut memory = small_device(arch);
        adjust(&mut memory);
        Self::of(arch, vec![memory])
    }

    /// Devices 0 and 1.
    pub(crate) fn pair(arch: Arch) -> Self {
        let devices = [ND0, ND1].map(|device| MemoryConfig {
            device,
            ..small_device(arch)
        });
        Self::of(arch, devices.into())
    }

    fn of(arch: Arch, devices: Vec<MemoryConfig>) -> Self {
        let host = Arc::new(TestHost::new(8 * MIB));
        let port = Arc::new(TestPort {
            profile: arch.profile(),
            host: Arc::clone(&host),
            queues: Mutex::default(),
            hbm: Mutex::default(),
            registers: Mutex::default(),
            is_lazy: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
        });
        let setups = devices.into_iter().map(|memory| DeviceSetup {
            memory,
            port: Arc::clone(&port) as Arc<dyn Port>,
        });
        let (sched, heard) = (Arc::<TestSched>::default(), Arc::<Recorder>::default());
        let driver = Driver::new(
            setups.collect(),
            Arc::clone(&host) as Arc<dyn MachineMemory>,
            Arc::clone(&sched) as Arc<dyn Sched>,
            Arc::clone(&heard) as Arc<dyn Sink>,
            Arc::new(NoFaults),
        );
        Self {
            driver: driver.unwrap(),
            host,
            port,
            sched,
            heard,
        }
    }

    pub(crate) fn memory(&self) -> &Arc<DeviceMemory> {
        self.driver.memory(ND0).unwrap()
    }
}

pub(crate) fn small_device(arch: Arch) -> MemoryConfig {
    let scale = Scale::RegionSize {
        size_bytes: 32 * MIB,
    };
    MemoryConfig {
        params: ModuleParams {
            mempool_small_pool_size: 4 * MIB,
            mempool_host_memory_size: 0,
            ..ModuleParams::default()
        },
        ..MemoryConfig::new(MemoryLayout::new(arch, scale).unwrap())
    }
}
