//! The driver over the software device, joined through `Port` and host memory alone: no machine, no
//! runtime.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

use std::sync::{Arc, Mutex};

use glia_abi::addr::{BusAddr, RegOffset, Span};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::event::{Event, Ids, NoSink, Sink};
use glia_abi::fault::NoFaults;
use glia_abi::handle::{Channel, CoreId, DeviceId, EngineId, Pid, QueueId};
use glia_abi::mem::Location;
use glia_abi::port::{DmaMemory, MachineMemory, Port, PortTap};
use glia_abi::regs::QueueReg;
use glia_abi::sched::{Sched, Tick};
use glia_abi::sync::Ordering;
use glia_abi::transport::Mapping;
use glia_abi::udma::{Barrier, Direction, RingId, Transfer};
use glia_device::{
    Device, DeviceConfig, EngineOrder, EngineTiming, HostArena, HostConfig, InlineSched,
};
use glia_driver::alloc::AllocRequest;
use glia_driver::dma::user::{QueueRequest, RingRequest};
use glia_driver::dma::zerocopy::ZeroCopyLimits;
use glia_driver::dma::{Dma, DmaConfig, Place, Platform, WaitHandle};
use glia_driver::memory::{DeviceMemory, MemoryConfig};

const DEVICE: DeviceId = DeviceId::new(0);
const PID: Pid = Pid::new(7);

/// A device and the driver's halves over it: its memory and its copies.
struct Joined {
    device: Arc<Device>,
    host: Arc<HostArena>,
    layout: MemoryLayout,
    memory: Arc<DeviceMemory>,
    dma: Dma,
}

impl Joined {
    fn new(arch: Arch, sink: Arc<dyn Sink>) -> Self {
        let layout = MemoryLayout::new(arch, Scale::Full).unwrap();
        Self::with(DeviceConfig::new(DEVICE, layout), sink, |device, _| device)
    }

    /// `port` makes what the driver meets of the device.
    fn with(
        config: DeviceConfig,
        sink: Arc<dyn Sink>,
        port: fn(Arc<Device>, Arc<HostArena>) -> Arc<dyn Port>,
    ) -> Self {
        let layout = config.layout;
        let arch = layout.arch();
        let host = Arc::new(HostArena::new(HostConfig::default()).unwrap());
        let sched: Arc<dyn Sched> = Arc::new(InlineSched::new());
        let device = Device::new(
            config,
            Arc::clone(&host),
            Arc::clone(&sched),
            Arc::clone(&sink),
            Arc::new(NoFaults),
        )
        .unwrap();
        let memory = DeviceMemory::new(
            MemoryConfig::new(layout),
            Arc::clone(&host) as Arc<_>,
            Arc::new(NoFaults),
        );
        let memory = Arc::new(memory.unwrap());
        let port = port(Arc::clone(&device), Arc::clone(&host));
        let bytes: Arc<dyn MachineMemory> = Arc::clone(&host) as Arc<_>;
        let config = DmaConfig {
            device: DEVICE,
            profile: arch.profile(),
            platform: Platform::Hardware,
            zero_copy: ZeroCopyLimits::default(),
        };
        let dma = Dma::new(config, port, bytes, Arc::clone(&memory), sched, sink);
        dma.init_cores(u32::MAX, true).unwrap();
        Self {
            device,
            host,
            layout,
            memory,
            dma,
        }
    }

    /// A chunk in HBM or host memory, and its bytes as the device or the host has them.
    fn chunk(&self, location: Location, core: u32, size_bytes: u64) -> (Place, Arc<dyn Mapping>) {
        let core = CoreId::new(core);
        let channel = self.layout.profile().default_channel(core);
        let request = match location {
            Location::Device => AllocRequest {
                core,
                ..AllocRequest::device(size_bytes, channel)
            },
            Location::Host => AllocRequest {
                core,
                ..AllocRequest::host(size_bytes)
            },
        };
        let chunk = self.memory.alloc(PID, &request).unwrap();
        let record = self.memory.chunk(chunk).unwrap();
        let at = record.at();
        let bytes = match self.layout.profile().bus_to_host(at) {
            Some(at) => self.host.mapping(at, record.size_bytes(), true),
            None => self.device.mapping(at, record.size_bytes()),
        };
        let place = Place { at, location, core };
        (place, bytes.unwrap())
    }
}

fn pattern(size: usize, seed: usize) -> Vec<u8> {
    (0..size)
        .map(|index| u8::try_from((index * 31 + index / 256 * 17 + seed) % 251).unwrap())
        .collect()
}

fn read(bytes: &dyn Mapping, size: usize) -> Vec<u8> {
    let mut read = vec![0; size];
    bytes.read(0, &mut read).unwrap();
    read
}

#[test]
fn bytes_go_in_every_direction_on_every_generation() {
    use Location::{Device, Host};
    for arch in Arch::ALL {
        let joined = Joined::new(arch, Arc::new(NoSink));
        let last = arch.profile().cores - 1;
        for (seed, (from, to)) in [
            (Host, Device),
            (Device, Host),
            (Device, Device),
            (Host, Host),
        ]
        .into_iter()
        .enumerate()
        {
            // Two descriptors and a part of one.
            let size = 2 * 65_536 + 4097;
            let (source, source_bytes) = joined.chunk(from, 0, size as u64);
            let (target, target_bytes) = joined.chunk(to, last, size as u64);
            source_bytes.write(0, &pattern(size, seed)).unwrap();
            joined.dma.copy(PID, source, target, size as u64).unwrap();
            assert_eq!(
                read(&*target_bytes, size),
                pattern(size, seed),
                "{arch}: {from} to {to}"
            );
        }
    }
}

/// The process writes descriptors, the driver rings, and the registers tell how far the engine is.
#[test]
fn a_process_moves_bytes_on_a_queue_of_its_own() {
    for arch in Arch::ALL {
        let joined = Joined::new(arch, Arc::new(NoSink));
        let (source, source_bytes) = joined.chunk(Location::Host, 0, 4096);
        let (target, target_bytes) = joined.chunk(Location::Device, 0, 4096);
        let [tx, rx] = [0, 1].map(|_| joined.chunk(Location::Host, 0, 4096));
        let ring = |at: Place| RingRequest {
            chunk: Span::new(at.at, 4096),
            descs: 64,
        };
        let request = QueueRequest {
            tx: ring(tx.0),
            rx: ring(rx.0),
            completions: None,
            allocatable: false,
        };
        let queue = QueueId::new(EngineId::new(9), 4);
        joined.dma.queue_init(PID, queue, &request).unwrap();
        source_bytes.write(0, &pattern(4096, 8)).unwrap();
        let transfer = Transfer {
            source: source.at,
            target: target.at,
            size_bytes: 4096,
            barrier: Barrier::Write,
        };
        let descs = transfer.descriptors(RingId::FIRST, RingId::FIRST).unwrap();
        let bytes = |words: [u32; 4]| words.map(u32::to_le_bytes).concat();
        tx.1.write(0, &bytes(descs.0.to_words())).unwrap();
        rx.1.write(0, &bytes(descs.1.to_words())).unwrap();
        joined.dma.queue_start(queue, 1, 1).unwrap();
        assert_eq!(read(&*target_bytes, 4096), pattern(4096, 8));
        let sides = joined.dma.queue_registers(queue).unwrap();
        assert_eq!(sides.map(|side| (side.head, side.tail)), [(1, 1); 2]);

        joined.dma.process_exit(PID);
        let [tx_left, rx_left] = joined.dma.queue_registers(queue).unwrap();
        assert_eq!(tx_left.base, rx_left.base);
        assert_eq!((tx_left.head, tx_left.tail), (0, 0));
        assert_ne!(tx_left.base, tx.0.at);
    }
}

#[test]
fn a_chain_of_asynchronous_copies_moves_every_part() {
    let joined = Joined::new(Arch::V3, Arc::new(NoSink));
    let size = 1 << 20;
    let (source, source_bytes) = joined.chunk(Location::Host, 3, size as u64);
    let (target, target_bytes) = joined.chunk(Location::Device, 3, size as u64);
    source_bytes.write(0, &pattern(size, 5)).unwrap();
    let part_bytes = 100_000;
    let mut previous = WaitHandle::None;
    let mut offset_bytes = 0;
    while offset_bytes < size as u64 {
        let at = |place: Place| Place {
            at: place.at.checked_add(offset_bytes).unwrap(),
            ..place
        };
        let bytes = part_bytes.min(size as u64 - offset_bytes);
        previous = joined
            .dma
            .copy_async(PID, at(source), at(target), bytes, previous)
            .unwrap();
        offset_bytes += bytes;
    }
    joined.dma.wait(PID, source, target, previous).unwrap();
    assert_eq!(read(&*target_bytes, size), pattern(size, 5));
}

/// The device counts what it moved, the driver what it staged: they agree, batch by batch.
#[test]
fn driver_and_device_count_the_same_descriptors() {
    #[derive(Default)]
    struct Recorder(Mutex<Vec<(Ids, Event)>>);
    impl Sink for Recorder {
        fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
            self.0.lock().unwrap().push((*ids, *event));
        }
    }
    let recorder = Arc::new(Recorder::default());
    let joined = Joined::new(Arch::V2, Arc::clone(&recorder) as Arc<_>);
    let (source, _) = joined.chunk(Location::Host, 1, 1 << 20);
    let (target, _) = joined.chunk(Location::Device, 1, 1 << 20);
    for size_bytes in [1, 65_536, 65_537, 1 << 20] {
        joined.dma.copy(PID, source, target, size_bytes).unwrap();
    }
    let events = std::mem::take(&mut *recorder.0.lock().unwrap());
    let queue = Arch::V2.profile().h2t_queue(CoreId::new(1));
    let of = |pick: fn(&Event) -> Option<u64>| -> Vec<u64> {
        events
            .iter()
            .filter(|(ids, _)| ids.queue == queue)
            .filter_map(|(_, event)| pick(event))
            .collect()
    };
    let staged_first = of(|event| match event {
        Event::BatchStaged { first, .. } => Some(*first),
        _ => None,
    });
    let executed_first = of(|event| match event {
        Event::Executed { first, .. } => Some(*first),
        _ => None,
    });
    assert_eq!(staged_first, [0, 2, 4, 7]);
    assert_eq!(executed_first, staged_first);
    let rung = of(|event| match event {
        Event::Doorbell {
            direction: Direction::Tx,
            total,
            ..
        } => Some(*total),
        _ => None,
    });
    assert_eq!(rung, [2, 4, 7, 24]);
    // Who follows a trace meets a batch before anything that comes of it.
    let places = |is_meant: fn(&Event) -> bool| {
        let all = events.iter().enumerate();
        all.filter_map(move |(place, (ids, event))| {
            (ids.queue == queue && is_meant(event)).then_some(place)
        })
    };
    let staged_at = places(|event| matches!(event, Event::BatchStaged { .. }));
    let first_rung_at: Vec<_> = places(|event| matches!(event, Event::Doorbell { .. }))
        .step_by(2)
        .collect();
    let in_order: Vec<_> = staged_at
        .zip(&first_rung_at)
        .map(|(staged, &rung)| staged < rung)
        .collect();
    assert_eq!(in_order, [true; 4]);
}

#[test]
fn a_copy_from_nowhere_fails_at_once_and_the_next_one_works() {
    let joined = Joined::new(Arch::V3, Arc::new(NoSink));
    let (source, source_bytes) = joined.chunk(Location::Host, 0, 4096);
    let (target, target_bytes) = joined.chunk(Location::Device, 0, 4096);
    source_bytes.write(0, &pattern(4096, 1)).unwrap();
    let region = joined.layout.regions().next().unwrap();
    let nowhere = Place {
        at: region.end(),
        ..target
    };
    let error = joined.dma.copy(PID, nowhere, target, 4096).unwrap_err();
    assert_eq!(
        error.to_string(),
        "engine 128, queue 0 did not complete: it has stopped"
    );
    joined.dma.copy(PID, source, target, 4096).unwrap();
    assert_eq!(read(&*target_bytes, 4096), pattern(4096, 1));
}

/// What a driver would be that never sets a write barrier: it has rung the doorbell of this device,
/// and the bits are gone.
struct WithoutBarriers {
    device: Arc<Device>,
    host: Arc<HostArena>,
}

impl PortTap for WithoutBarriers {
    fn behind(&self) -> &dyn Port {
        &*self.device
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        const WORD1_WRITE_BARRIER: u32 = 1 << 26;
        let profile = self.device.layout().profile();
        let queue = profile.h2t_queue(CoreId::new(0)).unwrap();
        let register = |register: QueueReg| register.at(profile, queue, Direction::Tx).unwrap();
        if at == register(QueueReg::DrtpInc) {
            let [low, high, descs] = [QueueReg::DrbpLow, QueueReg::DrbpHigh, QueueReg::Drl]
                .map(|of| u64::from(self.device.reg_read(register(of))));
            let base = profile.bus_to_host(BusAddr::new(low | high << 32)).unwrap();
            let ring = self.host.words(base, descs * 16).unwrap();
            for word1 in ring.iter().skip(1).step_by(4) {
                word1.fetch_and(!WORD1_WRITE_BARRIER, Ordering::Relaxed);
            }
        }
        self.device.reg_write(at, value);
    }
}

/// Whether copies, a chain and a fill over an engine in the weak order of this seed have moved all
/// their bytes when the driver says so.
fn is_right_in_weak_order(
    arch: Arch,
    seed: u64,
    port: fn(Arc<Device>, Arc<HostArena>) -> Arc<dyn Port>,
) -> bool {
    let size_bytes = 64 << 20;
    let layout = MemoryLayout::new(arch, Scale::RegionSize { size_bytes }).unwrap();
    let config = DeviceConfig {
        timing: Some(EngineTiming::of(arch)),
        order: EngineOrder::Weak { seed },
        ..DeviceConfig::new(DEVICE, layout)
    };
    let joined = Joined::with(config, Arc::new(NoSink), port);
    let size = 5 * 65_536 + 77;
    let seed = usize::try_from(seed).unwrap();
    let (source, source_bytes) = joined.chunk(Location::Host, 0, size as u64);
    let (target, target_bytes) = joined.chunk(Location::Device, 0, size as u64);
    let (back, back_bytes) = joined.chunk(Location::Host, 0, size as u64);
    source_bytes.write(0, &pattern(size, seed)).unwrap();
    let dma = &joined.dma;
    dma.copy(PID, source, target, size as u64).unwrap();
    let written = read(&*target_bytes, size) == pattern(size, seed);
    let first = dma.copy_async(PID, target, back, size as u64, WaitHandle::None);
    let second = dma.copy_async(PID, source, target, size as u64, first.unwrap());
    let read_back = read(&*back_bytes, size) == pattern(size, seed);
    dma.wait(PID, source, target, second.unwrap()).unwrap();
    dma.fill(PID, target, size as u64, 0x5a).unwrap();
    let filled = read(&*target_bytes, size) == vec![0x5a; size];
    written && read_back && filled
}

#[test]
fn the_driver_sets_the_barriers_that_an_engine_in_weak_order_needs() {
    const SEEDS: u64 = 50;
    for arch in [Arch::V2, Arch::V3] {
        for seed in 0..SEEDS {
            let right = is_right_in_weak_order(arch, seed, |device, _| device);
            assert!(right, "{arch}, seed {seed}");
        }
        let lucky = (0..SEEDS).filter(|&seed| {
            is_right_in_weak_order(arch, seed, |device, host| {
                Arc::new(WithoutBarriers { device, host })
            })
        });
        assert!(lucky.count() < 5, "{arch}: nobody needs them");
    }
}

/// The descriptors of one side of a core's ring, as they lie in host memory.
fn ring(joined: &Joined, core: CoreId, direction: Direction) -> Vec<[u32; 4]> {
    let profile = joined.layout.profile();
    let queue = profile.h2t_queue(core).unwrap();
    let read = |register: QueueReg| {
        let at = register.at(profile, queue, direction).unwrap();
        u64::from(joined.device.reg_read(at))
    };
    let base = BusAddr::new(read(QueueReg::DrbpLow) | read(QueueReg::DrbpHigh) << 32);
    let size_bytes = read(QueueReg::Drl) * 16;
    let at = profile.bus_to_host(base).unwrap();
    let words = joined.host.words(at, size_bytes).unwrap();
    let loaded: Vec<u32> = words
        .iter()
        .map(|word| word.load(Ordering::Relaxed))
        .collect();
    loaded.as_chunks().0.to_vec()
}

#[test]
fn every_descriptor_of_200_mib_lies_in_the_ring_as_the_reference_puts_it() {
    const SIZE_BYTES: u64 = 200 << 20;
    for arch in Arch::ALL {
        let joined = Joined::new(arch, Arc::new(NoSink));
        let (source, _) = joined.chunk(Location::Host, 0, SIZE_BYTES);
        let (target, _) = joined.chunk(Location::Device, 0, SIZE_BYTES);
        joined.dma.copy(PID, source, target, SIZE_BYTES).unwrap();
        let core = CoreId::new(0);
        let tx = ring(&joined, core, Direction::Tx);
        let rx = ring(&joined, core, Direction::Rx);
        assert_eq!((tx.len(), rx.len()), (8192, 8192));
        let halves = |at: Place, offset: u64| {
            let at = at.at.checked_add(offset).unwrap().get();
            [at & 0xffff_ffff, at >> 32].map(|half| u32::try_from(half).unwrap())
        };
        let (mut slot, mut offset) = (0, 0);
        for data_descs in [2032, 1168] {
            for number in 0..data_descs {
                let barrier = if number == data_descs - 1 { 1 << 26 } else { 0 };
                let [low, high] = halves(source, offset);
                assert_eq!(tx[slot], [0x0d00_0000, 0x0108_0003 | barrier, low, high]);
                let [low, high] = halves(target, offset);
                assert_eq!(rx[slot], [0x0100_0000, 0, low, high]);
                slot += 1;
                offset += 65_536;
            }
            // The marker, and where it goes: the word behind its source.
            assert_eq!(tx[slot][..2], [0x0d00_0004, 0x0108_0003]);
            assert_eq!(rx[slot][..2], [0x0100_0004, 0]);
            assert_eq!(rx[slot][2], tx[slot][2] + 4);
            slot += 1;
        }
        assert_eq!(offset, SIZE_BYTES);
        let mut behind = tx[slot..].iter().chain(&rx[slot..]);
        assert!(behind.all(|desc| *desc == [0; 4]), "{arch}");
        let state = joined.dma.queue_state(core).unwrap();
        assert_eq!(
            (state.next, state.acked, state.announced),
            (3202, 3202, 3202)
        );
    }
}

/// The scrub relays through HBM, which needs its data barriers.
#[test]
fn a_scrub_over_an_engine_in_weak_order_finds_its_pattern() {
    for arch in Arch::ALL {
        for seed in 0..8 {
            let size_bytes = 48 << 20;
            let layout = MemoryLayout::new(arch, Scale::RegionSize { size_bytes }).unwrap();
            let config = DeviceConfig {
                timing: Some(EngineTiming::of(arch)),
                order: EngineOrder::Weak { seed },
                ..DeviceConfig::new(DEVICE, layout)
            };
            let joined = Joined::with(config, Arc::new(NoSink), |device, _| device);
            let (core, channel) = (CoreId::new(0), Channel::new(0));
            let dma = &joined.dma;
            dma.scrub_start(PID, core, channel, 0x5a5a_5a5a).unwrap();
            let scrubbed = dma.scrub_wait(core, channel);
            assert!(scrubbed.is_ok(), "{arch}, seed {seed}: {scrubbed:?}");
        }
    }
}
