//! The rules of the seams, put to this crate's implementations.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::sync::Arc;

use glia_abi::addr::{BusAddr, Span, UserAddr};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::conformance::port::{PinFixture, PortFixture};
use glia_abi::conformance::sched::{Mode, SchedFixture, threads};
use glia_abi::conformance::user_memory::UserFixture;
use glia_abi::conformance::{
    machine_memory, mapping, port, sched, sleep_lock, user_memory, worker,
};
use glia_abi::event::NoSink;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{DeviceId, EngineId, QueueId};
use glia_abi::port::HostMemory;
use glia_abi::sched::Sched;
use glia_abi::transport::{Lent, user_addr};
use glia_device::{
    AddressSpace, Device, DeviceConfig, HostArena, HostConfig, InlineSched, PinLayout,
    ThreadedSched, VirtualSched,
};

const DEVICE: DeviceId = DeviceId::new(3);
const LAYOUTS: [PinLayout; 2] = [PinLayout::Contiguous, PinLayout::Scattered { seed: 11 }];

fn host(pin_layout: PinLayout) -> Arc<HostArena> {
    let config = HostConfig {
        arena_size_bytes: 16 << 20,
        pin_layout,
        ..HostConfig::default()
    };
    Arc::new(HostArena::new(config).unwrap())
}

fn device(arch: Arch, hbm_fill: u8, host: &Arc<HostArena>, sched: Arc<dyn Sched>) -> Arc<Device> {
    let size_bytes = 64 << 20;
    let layout = MemoryLayout::new(arch, Scale::RegionSize { size_bytes }).unwrap();
    let config = DeviceConfig {
        hbm_fill,
        ..DeviceConfig::new(DEVICE, layout)
    };
    let (sink, faults) = (Arc::new(NoSink), Arc::new(NoFaults));
    Device::new(config, Arc::clone(host), sched, sink, faults).unwrap()
}

fn span(bytes: &[u8]) -> Span<UserAddr> {
    Span::new(user_addr(bytes), bytes.len() as u64).unwrap()
}

#[test]
fn host_memory_keeps_its_rules() {
    machine_memory::check(host(PinLayout::Contiguous).as_ref(), DEVICE).unwrap();
}

#[test]
fn user_memory_keeps_its_rules() {
    for layout in LAYOUTS {
        let host = host(layout);
        let process = AddressSpace::new(Arc::clone(&host));
        let buffer = process.buffer(3 * 4096).unwrap();
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let mut writable = vec![0; 3 * 4096 + 100];
        let outside = vec![0; 4096];
        let (readable, writable_at) = (user_addr(&content), span(&writable));
        let mut lent = [Lent::In(&content), Lent::Out(&mut writable)];
        let kept = process.call(&mut [0; 8], &mut lent, |memory| {
            user_memory::check(&UserFixture {
                memory,
                machine: host.as_ref(),
                readable,
                content: &content,
                writable: writable_at,
                lasting: Span::new(buffer.address(), buffer.size_bytes()),
                outside: user_addr(&outside),
            })
        });
        kept.unwrap();
        assert_eq!(host.pinned_bytes(), 0);
    }
}

#[test]
fn buffers_and_mappings_keep_their_rules() {
    let host = host(PinLayout::Contiguous);
    let process = AddressSpace::new(Arc::clone(&host));
    for size_bytes in [4096, 4097, 3 << 20] {
        let buffer = process.buffer(size_bytes).unwrap();
        mapping::check_buffer(buffer.as_ref(), size_bytes).unwrap();
    }
    let at = host.alloc(DEVICE, 8192).unwrap();
    let map = |writable| host.mapping(at, 8192, writable).unwrap();
    mapping::check(map(true).as_ref()).unwrap();
    mapping::check(map(false).as_ref()).unwrap();
    mapping::check_shared(map(true).as_ref(), map(true).as_ref()).unwrap();
    let sched = Arc::new(InlineSched::new());
    let device = device(Arch::V2, 0x5c, &host, sched);
    let map = |at| device.mapping(BusAddr::new(at), 8192).unwrap();
    mapping::check(map(0x1000).as_ref()).unwrap();
    mapping::check_shared(map(0x10_0000_0000).as_ref(), map(0x10_0000_0000).as_ref()).unwrap();
}

/// One of each mode.
fn scheds() -> [Arc<dyn Sched>; 3] {
    [
        Arc::new(InlineSched::new()),
        Arc::new(ThreadedSched::new(2).unwrap()),
        Arc::new(VirtualSched::new(23)),
    ]
}

#[test]
fn devices_of_all_generations_keep_the_rules_of_a_port_in_all_modes() {
    for (arch, sched) in Arch::ALL
        .into_iter()
        .flat_map(|arch| scheds().map(|sched| (arch, sched)))
    {
        for (layout, hbm_fill) in LAYOUTS.into_iter().zip([0, 0xa5]) {
            let host = host(layout);
            let device = device(arch, hbm_fill, &host, Arc::clone(&sched));
            let fixture = PortFixture {
                port: device.as_ref(),
                memory: host.as_ref(),
                layout: &device.layout(),
                device: DEVICE,
                queues: [(0, 15), (33, 0)]
                    .map(|(engine, number)| QueueId::new(EngineId::new(engine), number)),
                hbm: Span::new(BusAddr::new(0x123_0000), 512 << 10).unwrap(),
            };
            port::check(&fixture).unwrap();
            let process = AddressSpace::new(Arc::clone(&host));
            let mut writable = vec![0; 3 * 4096 + 5];
            let writable_at = span(&writable[5..]);
            let mut lent = [Lent::Out(&mut writable)];
            let kept = process.call(&mut [], &mut lent, |user| {
                let writable = writable_at;
                port::check_pins(&fixture, &PinFixture { user, writable })
            });
            kept.unwrap();
        }
    }
}

/// All rules of a scheduler and of what waits through it.
fn keeps_its_rules(fixture: &SchedFixture<'_>) {
    sched::check(fixture).unwrap();
    worker::check(fixture).unwrap();
    sleep_lock::check(fixture).unwrap();
}

#[test]
fn the_inline_scheduler_keeps_its_rules() {
    keeps_its_rules(&SchedFixture {
        sched: Arc::new(InlineSched::new()),
        mode: Mode::Inline,
        clients: &threads,
    });
}

#[test]
fn the_threaded_scheduler_keeps_its_rules() {
    for threads_of_its_own in [1, 2, 5] {
        keeps_its_rules(&SchedFixture {
            sched: Arc::new(ThreadedSched::new(threads_of_its_own).unwrap()),
            mode: Mode::Threaded,
            clients: &threads,
        });
    }
}

#[test]
fn the_virtual_scheduler_keeps_its_rules() {
    for seed in 0..20 {
        let sched = Arc::new(VirtualSched::new(seed));
        keeps_its_rules(&SchedFixture {
            sched: Arc::clone(&sched) as _,
            mode: Mode::Virtual,
            clients: &|clients| sched.run(clients).unwrap(),
        });
    }
}
