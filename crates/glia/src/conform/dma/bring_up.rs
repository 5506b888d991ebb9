//! Bringing cores up and down, and setting their rings up.

use std::collections::BTreeMap;

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{BusAddr, HostPa, RegOffset};
use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::handle::{CORES_MAX, CoreId, QueueId};
use glia_abi::regs::Place;
use glia_abi::udma::{DESC_SIZE_BYTES, Direction};
use glia_driver::dma::{DmaError, Platform};

use super::super::arguments::Argument as _;
use super::super::judge::Verdict;
use super::super::value::{Fields, Value};
use super::judge;
use super::log::{ACCESSES_SHOWN_MAX, Access, hex, tell_accesses};
use super::rig::MARKER_WORDS_BYTES;
use super::session::Session;
use super::trace::Record;
use super::words::{CoreMap, Hex};

/// Bytes of a ring, and of the fill buffer.
const RING_SIZE_BYTES: u64 = 131_072;
const FILL_SIZE_BYTES: u64 = 65_536;
/// Register writes that set both sides of a queue up.
const SET_UP_WRITES: usize = 15;
/// All cores: the device as a whole.
const ALL: u32 = u32::MAX;

/// Brings the cores of a map up, each ring where the trace has it.
pub(super) fn init_cores(
    session: &mut Session,
    record: &Record<'_>,
    CoreMap(map): CoreMap,
) -> Verdict {
    let map_there = map & cores_there(session, record);
    let down: Vec<CoreId> = cores(session)
        .filter(|core| map_there & 1 << core.get() != 0)
        .filter(|core| session.dma.queue_state(*core).is_none())
        .collect();
    place(session, record, &down);
    let now_us = session.rig.state().now_us();
    session.rig.begin();
    let brought_up = session.dma.init_cores(map_there, map == ALL);
    let log = session.rig.end();
    note_set_up(session, &log.accesses);
    for core in down {
        if session.dma.queue_state(core).is_some() {
            let queue = session.queue(core);
            session.lost_rings.remove(&queue);
            session.rig.state().books.remove(&queue);
        }
    }
    if let Err(DmaError::EngineDown { core, .. }) = brought_up {
        session.lost_rings.insert(session.queue(core));
    }
    let is_up = |core: &CoreId| session.dma.queue_state(*core).is_some();
    let done = (0..CORES_MAX).map(|core| u32::from(is_up(&CoreId::new(core))));
    let rings = cores(session).filter(is_up).map(|core| ring(session, core));
    let ret = brought_up.map_or_else(|error| error.errno().ret(), |()| 0);
    let mut got = Fields::new()
        .with("ret", ret)
        .with("t", [now_us; 2].into_iter().collect::<Value<'_>>())
        .with("done", done.collect::<Value<'_>>())
        .with("rings", rings.collect::<Value<'_>>());
    tell_accesses(&log.accesses, ACCESSES_SHOWN_MAX, &mut got);
    let mut expected = record.expected.clone();
    if session.profile.arch == Arch::V2 {
        // In some engine besides the first the reference writes a value that no record tells.
        expected.take("reg_fnv");
        got.take("reg_fnv");
    }
    judge::compared(record.name, &expected, &got)
}

/// Takes the cores of a map down.
pub(super) fn close_cores(
    session: &Session,
    record: &Record<'_>,
    CoreMap(map): CoreMap,
) -> Verdict {
    let now_us = session.rig.state().now_us();
    session.rig.begin();
    session.dma.close_cores(map);
    let log = session.rig.end();
    let mut got = Fields::new()
        .with("ret", 0)
        .with("t", [now_us; 2].into_iter().collect::<Value<'_>>());
    log.tell(&mut got);
    log.tell_registers(&mut got);
    judge::plain(record, &got)
}

fn cores(session: &Session) -> impl Iterator<Item = CoreId> + use<> {
    (0..session.profile.cores).map(CoreId::new)
}

/// Notes the register accesses that set rings up, the last ones of each queue.
pub(super) fn note_set_up(session: &mut Session, accesses: &[Access]) {
    let mut by_queue: BTreeMap<QueueId, Vec<Access>> = BTreeMap::new();
    for access in accesses.iter().filter(|access| access.doorbell.is_none()) {
        if let Place::Queue { queue, .. } = Place::of(session.profile, RegOffset::new(access.at)) {
            by_queue.entry(queue).or_default().push(*access);
        }
    }
    let set_up = by_queue.into_iter().filter_map(|(queue, accesses)| {
        let first = accesses.len().checked_sub(SET_UP_WRITES)?;
        Some((queue, accesses[first..].to_vec()))
    });
    session.ring_set_up.extend(set_up);
}

/// The cores that the device has. On an emulator the reference has as many as its module parameters
/// say. Only the record knows how many that were.
fn cores_there(session: &Session, record: &Record<'_>) -> u32 {
    let done = match (session.scenario.platform, record.expected.get("done")) {
        (Platform::Emulator, Some(Value::List(done))) => done,
        _ => return ALL,
    };
    let bits = cores(session)
        .zip(done)
        .filter(|(_, done)| **done == 1.into());
    bits.fold(0, |map, (core, _)| map | 1 << core.get())
}

/// Has the blocks of these cores' rings put where the record has them.
fn place(session: &Session, record: &Record<'_>, down: &[CoreId]) {
    let rings = match record.expected.get("rings") {
        Some(Value::List(rings)) => rings.as_slice(),
        _ => &[],
    };
    let mut ring_places = Vec::new();
    let mut marker_places = Vec::new();
    for &core in down {
        let ring = rings.iter().find_map(|ring| match ring {
            Value::Object(ring) if ring.get("nc") == Some(&core.get().into()) => Some(ring),
            _ => None,
        });
        let address = |name, size_bytes| {
            let at = Hex::from_value(ring?.get(name)?)?;
            host_place(session.profile, at, size_bytes)
        };
        ring_places.extend(["rx_pa", "tx_pa"].map(|name| address(name, RING_SIZE_BYTES)));
        let marker = address("marker_pa", PAGE_SIZE_BYTES);
        marker_places.push(marker);
        let marker = marker.map(|at| (session.queue(core), at));
        session.rig.state().markers.extend(marker);
    }
    let fill = host_place(
        session.profile,
        session.scenario.fill_buffer,
        FILL_SIZE_BYTES,
    );
    session.rig.place(FILL_SIZE_BYTES, &[fill]);
    session.rig.place(RING_SIZE_BYTES, &ring_places);
    session.rig.place(PAGE_SIZE_BYTES, &marker_places);
}

/// The host address of a block, if host memory can have it there.
pub(super) fn host_place(profile: &ArchProfile, Hex(at): Hex, size_bytes: u64) -> Option<u64> {
    let at = profile.bus_to_host(BusAddr::new(at))?.get();
    let end = at.checked_add(size_bytes)?;
    (at.is_multiple_of(PAGE_SIZE_BYTES) && end <= 1 << 32).then_some(at)
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

/// Compares how a ring is set up. The driver does that when it brings the ring up. One that has
/// been used since goes down and comes up again for this.
pub(super) fn ring_init(session: &mut Session, record: &Record<'_>, queue: QueueId) -> Verdict {
    let core = cores(session).find(|core| session.queue(*core) == queue);
    if let Some(core) = core
        && session
            .dma
            .queue_state(core)
            .is_some_and(|ring| ring.announced > 0)
    {
        bring_up_again(session, core);
    }
    let now_us = session.rig.state().now_us();
    let mut got = Fields::new()
        .with("ret", 0)
        .with("t", [now_us; 2].into_iter().collect::<Value<'_>>());
    if let Some(core) = core {
        got.push("queue", session.tell_queue(queue, core));
    }
    if let Some(accesses) = session.ring_set_up.get(&queue) {
        tell_accesses(accesses, ACCESSES_SHOWN_MAX, &mut got);
    }
    judge::plain(record, &got)
}

/// Takes a ring down and brings it up again where it was. What its markers say stays, as in the
/// reference.
fn bring_up_again(session: &mut Session, core: CoreId) {
    let queue = session.queue(core);
    let host = |at| {
        session
            .profile
            .bus_to_host(BusAddr::new(at))
            .map(HostPa::get)
    };
    let sides = [Direction::Rx, Direction::Tx];
    let bases = sides.map(|direction| session.rig.state().engine.side(queue, direction).base);
    let marker = session.rig.state().markers.get(&queue).copied();
    let words = marker.and_then(|at| session.rig.blocks().read(at, MARKER_WORDS_BYTES));
    session.dma.close_cores(1 << core.get());
    session.rig.place(RING_SIZE_BYTES, &bases.map(host));
    session.rig.place(PAGE_SIZE_BYTES, &[marker]);
    session.rig.begin();
    // If that fails the ring is down, and the record differs.
    let _ = session.dma.bring_up(core);
    let log = session.rig.end();
    if let (Some(at), Some(words)) = (marker, words) {
        session.rig.blocks().write(at, &words);
    }
    note_set_up(session, &log.accesses);
}
