//! Bringing cores up, and which queue is whose.
//!
//! Of a bring-up only the rings are replayed, not the programming of engines, so the register
//! traffic of an `init_ncs` is not compared. That of a ring's own set-up is, by `h2t_ring_init`.

use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::divergence::Divergence;
use glia_abi::errno::Errno;
use glia_abi::handle::{CORES_MAX, CoreId, QueueId};
use glia_abi::udma::{DESC_SIZE_BYTES, Direction};
use glia_abi::{PAGE_SIZE_BYTES, addr::BusAddr};
use glia_driver::dma::Platform;

use super::super::arguments::Argument as _;
use super::super::judge::Verdict;
use super::super::value::{Fields, Value};
use super::judge;
use super::log::{hex, tell_accesses};
use super::session::{Replayed, Session};
use super::trace::Record;
use super::words::Hex;

/// Bytes of a ring, and of the fill buffer.
const RING_SIZE_BYTES: u64 = 131_072;
const FILL_SIZE_BYTES: u64 = 65_536;

/// Register traffic that `init_ncs` tells of.
const REGISTERS: [&str; 4] = ["reg_writes", "reg_reads", "reg_fnv", "regs"];

/// Brings the cores of a map up, each ring where the trace has it.
pub(super) fn init_cores(session: &mut Session, record: &Record<'_>, map: u64) -> Verdict {
    let profile = session.profile;
    let in_map = |core: &u32| map & (1 << core) != 0;
    let cores = (0..profile.cores)
        .filter(in_map)
        .filter(|core| has_core(session, record, *core));
    let now_us = session.rig.state().now_us();
    let mut ret = 0;
    for core in cores.map(CoreId::new).collect::<Vec<_>>() {
        if session.dma.queue_state(core).is_some() {
            continue;
        }
        let queue = session.queue(core);
        place(session, record, core);
        session.rig.begin();
        let brought_up = session.dma.bring_up(core);
        let log = session.rig.end();
        session.ring_set_up.insert(queue, log.accesses);
        if let Err(error) = brought_up {
            ret = error.errno().ret();
        }
    }
    let is_up = |core: &CoreId| session.dma.queue_state(*core).is_some();
    let done = (0..CORES_MAX).map(|core| u32::from(is_up(&CoreId::new(core))));
    let rings = (0..profile.cores).map(CoreId::new).filter(is_up);
    let rings = rings.map(|core| ring(session, core));
    let got = Fields::new()
        .with("ret", ret)
        .with("t", [now_us; 2].into_iter().collect::<Value<'_>>())
        .with("done", done.collect::<Value<'_>>())
        .with("rings", rings.collect::<Value<'_>>());
    let mut expected = record.expected.clone();
    for name in REGISTERS {
        expected.take(name);
    }
    if is_lone_core(profile, map) && expected.get("ret") == Some(&Errno::EINVAL.ret().into()) {
        return Verdict {
            divergence: Some(Divergence::LoneCore),
            taints: true,
            ..Verdict::default()
        };
    }
    judge::compared(record.name, &expected, &got)
}

/// Whether the device has a core. On an emulator the reference has as many as its module parameters
/// say. Only the record knows how many that were.
fn has_core(session: &Session, record: &Record<'_>, core: u32) -> bool {
    match (session.scenario.platform, record.expected.get("done")) {
        (Platform::Emulator, Some(Value::List(done))) => done.get(core as usize) == Some(&1.into()),
        _ => true,
    }
}

/// Whether the map has one of two cores that share an engine, and not the other.
fn is_lone_core(profile: &ArchProfile, map: u64) -> bool {
    let first = (0..profile.cores).step_by(profile.cores_per_h2t_engine as usize);
    let all = (1_u64 << profile.cores_per_h2t_engine) - 1;
    profile.arch != Arch::V2
        && first
            .map(|first| (map >> first) & all)
            .any(|cores| cores != 0 && cores != all)
}

/// Has the blocks of a core's ring put where the record has them.
fn place(session: &Session, record: &Record<'_>, core: CoreId) {
    let rings = match record.expected.get("rings") {
        Some(Value::List(rings)) => rings.as_slice(),
        _ => &[],
    };
    let ring = rings.iter().find_map(|ring| match ring {
        Value::Object(ring) if ring.get("nc") == Some(&core.get().into()) => Some(ring),
        _ => None,
    });
    let address = |name| ring.and_then(|ring| Hex::from_value(ring.get(name)?));
    let places = |size_bytes, at: &[Option<Hex>]| {
        let at: Vec<u64> = at
            .iter()
            .filter_map(|at| host_place(session.profile, (*at)?, size_bytes))
            .collect();
        session.rig.place(size_bytes, &at);
    };
    places(FILL_SIZE_BYTES, &[Some(session.scenario.fill_buffer)]);
    places(RING_SIZE_BYTES, &[address("rx_pa"), address("tx_pa")]);
    places(PAGE_SIZE_BYTES, &[address("marker_pa")]);
    let marker = address("marker_pa").and_then(|at| {
        let at = host_place(session.profile, at, PAGE_SIZE_BYTES)?;
        Some((session.queue(core), at))
    });
    session.rig.state().markers.extend(marker);
}

/// The host address of a block, if host memory can have it there.
fn host_place(profile: &ArchProfile, Hex(at): Hex, size_bytes: u64) -> Option<u64> {
    let at = profile.bus_to_host(BusAddr::new(at))?.get();
    let fits = at.is_multiple_of(PAGE_SIZE_BYTES) && at + size_bytes <= 1 << 32;
    fits.then_some(at)
}

fn ring(session: &Session, core: CoreId) -> Fields<'static> {
    let queue = session.queue(core);
    let (tx_base, descs) = session.ring_base(queue, Direction::Tx);
    let (rx_base, _) = session.ring_base(queue, Direction::Rx);
    let marker = session.rig.state().markers.get(&queue).copied();
    let marker = marker.map_or_else(String::new, |at| hex(at | session.profile.host_base));
    Fields::new()
        .with("nc", core.get())
        .with("eng", queue.engine.get())
        .with("qid", queue.number)
        .with("tx_pa", tx_base)
        .with("rx_pa", rx_base)
        .with("marker_pa", marker)
        .with("bytes", u64::from(descs) * DESC_SIZE_BYTES)
}

/// Compares how a ring was set up. The driver does that once, so a ring that has been used since
/// cannot be compared.
pub(super) fn ring_init(session: &Session, record: &Record<'_>, queue: QueueId) -> Replayed {
    let cores = (0..session.profile.cores).map(CoreId::new);
    let core = cores
        .filter(|core| session.queue(*core) == queue)
        .find(|core| {
            let state = session.dma.queue_state(*core);
            state.is_some_and(|state| state.announced == 0 && state.failures == 0)
        });
    let (Some(core), Some(accesses)) = (core, session.ring_set_up.get(&queue)) else {
        return Replayed::NotBuilt {
            what: record.name,
            taints: true,
        };
    };
    let now_us = session.rig.state().now_us();
    let mut got = Fields::new()
        .with("ret", 0)
        .with("t", [now_us; 2].into_iter().collect::<Value<'_>>())
        .with("queue", session.tell_queue(queue, core));
    tell_accesses(accesses, &mut got);
    Replayed::Judged(judge::compared(record.name, &record.expected, &got))
}

/// Which queue a core's copies take. When an engine is brought up is not compared: Glia's driver
/// does not do that yet.
pub(super) fn h2t_queue(profile: &ArchProfile, record: &Record<'_>, core: CoreId) -> Verdict {
    let mut got = Fields::new();
    if let Some(queue) = profile.h2t_queue(core) {
        got.push("eng", queue.engine.get());
        got.push("qid", queue.number);
    }
    let mut expected = record.expected.clone();
    expected.take("init_for_map");
    judge::compared(record.name, &expected, &got)
}
