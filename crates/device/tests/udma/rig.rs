//! A queue that is driven by hand: rings, buffers and a marker in host memory, registers by number.

use std::sync::{Arc, Mutex};

use glia_abi::addr::{BusAddr, HostPa};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::event::{Detail, Event, Ids, Sink};
use glia_abi::fault::{Faults, NoFaults};
use glia_abi::handle::{DeviceId, EngineId, QueueId};
use glia_abi::port::{Budget, DmaMemory, HostMemory, Port, TimedOut};
use glia_abi::regs::{QUEUE_ENABLED, QUEUE_RESET_BIT, QueueReg, RingPointer};
use glia_abi::sched::{Micros, Poll, Sched, Step, Tick, Worker};
use glia_abi::sync::Ordering;
use glia_abi::udma::{Barrier, Direction, MARKER, RingId, RxDesc, Transfer, TxDesc};
use glia_device::{Device, DeviceConfig, HostArena, HostConfig, InlineSched, PinLayout};

pub(crate) const DEVICE: DeviceId = DeviceId::new(0);
pub(crate) const RING_DESCS: u32 = 64;
const BUDGET: Budget = Budget {
    first: Micros(1),
    following: Micros(1_000),
};

/// Remembers what it hears.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<(Ids, Event)>>);

impl Sink for Recorder {
    fn detail(&self) -> Detail {
        Detail::Descriptors
    }

    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        self.0.lock().unwrap().push((*ids, *event));
    }
}

impl Recorder {
    /// What was heard since the last question.
    pub(crate) fn take(&self) -> Vec<Event> {
        let events = std::mem::take(&mut *self.0.lock().unwrap());
        events.into_iter().map(|(_, event)| event).collect()
    }
}

/// Has something to do at that time.
struct Alarm(Tick);

impl Worker for Alarm {
    fn step(&self, now: Tick) -> Step {
        if now < self.0 {
            Step::At(self.0)
        } else {
            Step::Idle
        }
    }
}

/// A device, its host memory, and who hears of them.
pub(crate) struct Rig {
    pub(crate) host: Arc<HostArena>,
    pub(crate) device: Arc<Device>,
    pub(crate) heard: Arc<Recorder>,
    pub(crate) sched: Arc<InlineSched>,
}

impl Rig {
    pub(crate) fn new(arch: Arch, scale: Scale, pin_layout: PinLayout, hbm_fill: u8) -> Self {
        let layout = MemoryLayout::new(arch, scale).unwrap();
        let config = DeviceConfig {
            hbm_fill,
            ..DeviceConfig::new(DEVICE, layout)
        };
        Self::with(config, pin_layout, Arc::new(NoFaults))
    }

    pub(crate) fn with(
        config: DeviceConfig,
        pin_layout: PinLayout,
        faults: Arc<dyn Faults>,
    ) -> Self {
        let host = HostConfig {
            pin_layout,
            ..HostConfig::default()
        };
        let host = Arc::new(HostArena::new(host).unwrap());
        let heard = Arc::new(Recorder::default());
        let sched = Arc::new(InlineSched::new());
        let sink: Arc<Recorder> = Arc::clone(&heard);
        let device = Device::new(
            config,
            Arc::clone(&host),
            Arc::clone(&sched) as _,
            sink,
            faults,
        );
        Self {
            host,
            device: device.unwrap(),
            heard,
            sched,
        }
    }

    /// A small V2 device.
    pub(crate) fn small() -> Self {
        let size_bytes = 32 << 20;
        Self::new(
            Arch::V2,
            Scale::RegionSize { size_bytes },
            PinLayout::Contiguous,
            0,
        )
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, length: Micros) {
        let end = self.sched.now().after(length);
        let alarm = Arc::new(Alarm(end));
        let alarm: Arc<dyn Worker> = alarm;
        self.sched.kick(self.sched.spawn(Arc::downgrade(&alarm)));
        let mut there = || match self.sched.now() >= end {
            true => Poll::Done,
            false => Poll::Pending,
        };
        self.sched.block(self.sched.wait_on(), &mut there, None);
    }

    /// Host memory that starts as zeros.
    pub(crate) fn alloc(&self, size_bytes: u64) -> HostPa {
        self.host.alloc(DEVICE, size_bytes).unwrap()
    }

    pub(crate) fn bus(&self, at: HostPa) -> BusAddr {
        self.device.layout().host_to_bus(at)
    }

    pub(crate) fn host_bytes(&self, at: HostPa, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        self.host.read(at, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn hbm_bytes(&self, at: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let mapping = self.device.mapping(BusAddr::new(at), size as u64).unwrap();
        mapping.read(0, &mut bytes).unwrap();
        bytes
    }
}

/// A queue, brought up.
pub(crate) struct Queue<'a> {
    pub(crate) rig: &'a Rig,
    pub(crate) id: QueueId,
    rings: [BusAddr; 2],
    /// Where its rings' descriptors are stored, by side.
    ring_words: [Store; 2],
    /// The source word; the poll word is the next.
    words: HostPa,
    slot: u32,
    lap: RingId,
}

/// Where a ring lies.
#[derive(Clone, Copy)]
pub(crate) enum Store {
    Host(HostPa),
    Hbm(BusAddr),
}

impl<'a> Queue<'a> {
    /// A queue with rings in host memory.
    pub(crate) fn new(rig: &'a Rig, engine: u32, number: u32) -> Self {
        let ring_bytes = u64::from(RING_DESCS) * 16;
        let rings = [(); 2].map(|()| Store::Host(rig.alloc(ring_bytes.next_multiple_of(4096))));
        Self::with_rings(rig, engine, number, rings)
    }

    pub(crate) fn with_rings(rig: &'a Rig, engine: u32, number: u32, stores: [Store; 2]) -> Self {
        let queue = Self {
            rig,
            id: QueueId::new(EngineId::new(engine), number),
            rings: stores.map(|store| match store {
                Store::Host(at) => rig.bus(at),
                Store::Hbm(at) => at,
            }),
            ring_words: stores,
            words: rig.alloc(4096),
            slot: 0,
            lap: RingId::FIRST,
        };
        queue.bring_up();
        queue
    }

    /// Sets the registers of both sides.
    pub(crate) fn bring_up(&self) {
        for direction in Direction::BOTH {
            let base = self.rings[direction.index()].get();
            self.write(direction, QueueReg::SwCtrl, QUEUE_RESET_BIT);
            self.write(direction, QueueReg::DrbpLow, base as u32);
            self.write(direction, QueueReg::DrbpHigh, (base >> 32) as u32);
            self.write(direction, QueueReg::Drl, RING_DESCS);
            self.write(direction, QueueReg::Cfg, QUEUE_ENABLED);
        }
    }

    /// Brings it up anew: its rings start again.
    pub(crate) fn reset(&mut self) {
        self.bring_up();
        (self.slot, self.lap) = (0, RingId::FIRST);
    }

    pub(crate) fn write(&self, direction: Direction, register: QueueReg, value: u32) {
        let profile = self.rig.device.layout().profile();
        let at = register.at(profile, self.id, direction).unwrap();
        self.rig.device.reg_write(at, value);
    }

    pub(crate) fn read(&self, direction: Direction, register: QueueReg) -> u32 {
        let profile = self.rig.device.layout().profile();
        let at = register.at(profile, self.id, direction).unwrap();
        self.rig.device.reg_read(at)
    }

    /// Slot and lap of a pointer register.
    pub(crate) fn pointer(&self, direction: Direction, register: QueueReg) -> (u32, u32) {
        let pointer = RingPointer::from(self.read(direction, register));
        (pointer.offset(), pointer.ring_id())
    }

    /// Stores any two descriptors into the next slot.
    pub(crate) fn stage_pair(&mut self, tx: TxDesc, rx: RxDesc) {
        for (store, words) in self.ring_words.iter().zip([tx.to_words(), rx.to_words()]) {
            let offset = u64::from(self.slot) * 16;
            let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
            match store {
                Store::Host(at) => {
                    let at = at.checked_add(offset).unwrap();
                    self.rig.host.write(at, &bytes).unwrap();
                }
                Store::Hbm(at) => {
                    let at = at.checked_add(offset).unwrap();
                    let mapping = self.rig.device.mapping(at, 16).unwrap();
                    mapping.write(0, &bytes).unwrap();
                }
            }
        }
        self.slot += 1;
        if self.slot == RING_DESCS {
            (self.slot, self.lap) = (0, self.lap.next());
        }
    }

    /// The descriptors of a plain copy in the present lap.
    pub(crate) fn pair(
        &self,
        source: BusAddr,
        target: BusAddr,
        size_bytes: u64,
    ) -> (TxDesc, RxDesc) {
        self.pair_behind(Barrier::None, source, target, size_bytes)
    }

    pub(crate) fn pair_behind(
        &self,
        barrier: Barrier,
        source: BusAddr,
        target: BusAddr,
        size_bytes: u64,
    ) -> (TxDesc, RxDesc) {
        let transfer = Transfer {
            source,
            target,
            size_bytes,
            barrier,
        };
        transfer.descriptors(self.lap, self.lap).unwrap()
    }

    pub(crate) fn stage(&mut self, source: BusAddr, target: BusAddr, size_bytes: u64) {
        self.stage_behind(Barrier::None, source, target, size_bytes);
    }

    /// A copy with a barrier.
    pub(crate) fn stage_behind(
        &mut self,
        barrier: Barrier,
        source: BusAddr,
        target: BusAddr,
        size_bytes: u64,
    ) {
        let (tx, rx) = self.pair_behind(barrier, source, target, size_bytes);
        self.stage_pair(tx, rx);
    }

    pub(crate) fn stage_marker(&mut self) {
        self.stage_marker_behind(Barrier::None);
    }

    pub(crate) fn stage_marker_behind(&mut self, barrier: Barrier) {
        let words = self.rig.host.words(self.words, 8).unwrap();
        words[0].store(MARKER, Ordering::Relaxed);
        words[1].store(0, Ordering::Relaxed);
        let source = self.rig.bus(self.words);
        let target = source.checked_add(4).unwrap();
        self.stage_behind(barrier, source, target, 4);
    }

    pub(crate) fn ring(&self, direction: Direction, count: u32) {
        self.write(direction, QueueReg::DrtpInc, count);
    }

    pub(crate) fn ring_both(&self, count: u32) {
        self.ring(Direction::Rx, count);
        self.ring(Direction::Tx, count);
    }

    /// Waits for the marker.
    pub(crate) fn wait(&self) -> Result<u64, TimedOut> {
        let words = self.rig.host.words(self.words, 8).unwrap();
        let device = &self.rig.device;
        device.await_word(self.id, &words[1], MARKER, BUDGET)
    }

    /// Copies, and waits.
    pub(crate) fn copy(&mut self, source: BusAddr, target: BusAddr, size_bytes: u64) {
        self.stage(source, target, size_bytes);
        self.stage_marker();
        self.ring_both(2);
        self.wait().unwrap();
    }
}
