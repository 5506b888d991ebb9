//! What stops a queue, what that leaves behind, and how it is revived.

use super::PortFixture;
use super::rig::{RING_DESCS, Rig, copy};
use crate::addr::{BusAddr, HostPa};
use crate::conformance::{Must, Violation, difference, hold, pattern};
use crate::regs::{QUEUE_CFG_RESET, QueueReg};
use crate::udma::{Direction, MARKER, RingId, RxDesc, TxDesc};

/// Something that stops the queue of a rig that was just brought up.
type Cause = fn(&mut Rig<'_>) -> Result<(), Violation>;
/// Makes a pair that cannot be executed of one that can.
type Spoil = fn(&Rig<'_>, &mut TxDesc, &mut RxDesc) -> Result<(), Violation>;

const EMPTY: &str = "a doorbell that announces nothing stops the queue";
const TOO_MANY: &str = "a doorbell that announces more than the ring holds stops the queue";
const DISABLED: &str = "a doorbell of a queue that is not enabled stops it";
const NO_RING: &str = "a ring that cannot be read stops the queue";
const LAP: &str = "a descriptor of another lap stops the queue";
const LENGTHS: &str = "a pair with two lengths stops the queue";
const PACKET: &str = "a descriptor that is no packet of its own stops the queue";
const ADDRESS: &str = "an address where the device has no memory stops the queue";

const CAUSES: [(&str, Cause); 8] = [
    (EMPTY, |rig| rig.ring(Direction::Rx, 0)),
    (EMPTY, |rig| rig.ring(Direction::Tx, 0)),
    (TOO_MANY, |rig| rig.ring(Direction::Rx, RING_DESCS + 1)),
    (TOO_MANY, |rig| rig.ring(Direction::Tx, RING_DESCS + 1)),
    (DISABLED, |rig| {
        rig.write(QueueReg::Cfg, Direction::Rx, QUEUE_CFG_RESET)?;
        rig.ring(Direction::Rx, 1)
    }),
    (DISABLED, |rig| {
        rig.write(QueueReg::Cfg, Direction::Tx, QUEUE_CFG_RESET)?;
        rig.ring(Direction::Tx, 1)
    }),
    (NO_RING, |rig| lose_ring(rig, Direction::Rx)),
    (NO_RING, |rig| lose_ring(rig, Direction::Tx)),
];

const SPOILS: [(&str, Spoil); 11] = [
    (LAP, |_, tx, _| {
        tx.len_ctrl.set_ring_id(RingId::FIRST.next().get());
        Ok(())
    }),
    (LAP, |_, _, rx| {
        rx.len_ctrl.set_ring_id(0);
        Ok(())
    }),
    (LENGTHS, |_, _, rx| {
        rx.len_ctrl.set_length(63);
        Ok(())
    }),
    (LENGTHS, |_, tx, _| {
        tx.len_ctrl.set_length(0);
        Ok(())
    }),
    (PACKET, |_, tx, _| {
        tx.len_ctrl.set_first(false);
        Ok(())
    }),
    (PACKET, |_, tx, _| {
        tx.len_ctrl.set_last(false);
        Ok(())
    }),
    (ADDRESS, |rig, tx, _| {
        tx.source = nowhere(rig)?;
        Ok(())
    }),
    (ADDRESS, |rig, _, rx| {
        rx.target = nowhere(rig)?;
        Ok(())
    }),
    (ADDRESS, |rig, tx, _| {
        tx.source = across_the_end(rig)?;
        Ok(())
    }),
    (ADDRESS, |rig, _, rx| {
        rx.target = across_the_end(rig)?;
        Ok(())
    }),
    (ADDRESS, |_, tx, _| {
        tx.source = BusAddr::new(u64::MAX - 3);
        Ok(())
    }),
];

pub(super) fn check(fixture: &PortFixture<'_>) -> Result<(), Violation> {
    let [queue, other] = fixture.queues;
    let mut rig = Rig::new(fixture, queue)?;
    let mut beside = Rig::new(fixture, other)?;
    for (rule, cause) in CAUSES {
        rig.bring_up()?;
        cause(&mut rig)?;
        rig.has_stopped(rule)?;
        stays_stopped_until_a_reset(&mut rig)?;
        beside.run(&[]).map_err(|violation| Violation {
            rule: "a queue that has stopped does not hold up others",
            ..violation
        })?;
    }
    for (rule, spoil) in SPOILS {
        a_pair_that_cannot_be_executed_stops_the_queue(&mut rig, rule, spoil)?;
        stays_stopped_until_a_reset(&mut rig)?;
    }
    beside.end()?;
    rig.end()
}

fn a_pair_that_cannot_be_executed_stops_the_queue(
    rig: &mut Rig<'_>,
    rule: &'static str,
    spoil: Spoil,
) -> Result<(), Violation> {
    rig.bring_up()?;
    let bytes = pattern(1, 192);
    rig.fill(0, &bytes)?;
    rig.fill(1, &[0; 192])?;
    for (number, offset) in [0, 64, 128].into_iter().enumerate() {
        let [source, target] = [rig.buffer_bus(0, offset)?, rig.buffer_bus(1, offset)?];
        let pair = copy(source, target, 64).descriptors(rig.lap, rig.lap);
        let (mut tx, mut rx) = pair.must("the check stages sizes that exist")?;
        if number == 1 {
            spoil(rig, &mut tx, &mut rx)?;
        }
        rig.stage_pair(tx, rx)?;
    }
    rig.announce()?;
    rig.has_stopped(rule)?;
    let found = rig.bytes(1, 192)?;
    hold!(
        found[..64] == bytes[..64],
        "what comes before the pair that stops a queue is done",
        "{rule}: {}",
        difference(&bytes[..64], &found[..64])
    );
    hold!(
        found[64..] == [0; 128],
        "of the pair that stops a queue, and of what follows, nothing is done",
        "{rule}: {}",
        difference(&[0; 128], &found[64..])
    );
    for direction in Direction::BOTH {
        rig.pointer_is(
            QueueReg::Drhp,
            direction,
            (1, RingId::FIRST),
            "the head stays at the pair that stopped the queue",
        )?;
    }
    Ok(())
}

fn stays_stopped_until_a_reset(rig: &mut Rig<'_>) -> Result<(), Violation> {
    let bytes = pattern(2, 64);
    rig.fill(0, &bytes)?;
    rig.fill(1, &[0; 64])?;
    let transfer = copy(rig.buffer_bus(0, 0)?, rig.buffer_bus(1, 0)?, 64);
    rig.stage(transfer)?;
    rig.announce()?;
    rig.has_stopped("a queue that has stopped stays so until it is reset")?;
    let found = rig.bytes(1, 64)?;
    hold!(
        found == [0; 64],
        "a queue that has stopped moves nothing",
        "{}",
        difference(&[0; 64], &found)
    );
    rig.bring_up()?;
    rig.run(&[transfer]).map_err(|violation| Violation {
        rule: "a reset revives a queue that has stopped",
        ..violation
    })?;
    let found = rig.bytes(1, 64)?;
    hold!(
        found == bytes,
        "a reset revives a queue that has stopped",
        "{}",
        difference(&bytes, &found)
    );
    Ok(())
}

/// Announces descriptors of which one side cannot be read.
fn lose_ring(rig: &mut Rig<'_>, direction: Direction) -> Result<(), Violation> {
    rig.set_base(direction, nowhere(rig)?)?;
    rig.stage_marker(MARKER)?;
    rig.announce()
}

/// The last page that a host address could name: no machine has so much.
fn nowhere(rig: &Rig<'_>) -> Result<BusAddr, Violation> {
    let end = HostPa::new(rig.fixture.layout.profile().host_base);
    let at = end.checked_sub(4_096);
    Ok(rig.bus(at.must("there are host addresses")?))
}

/// 32 bytes before the end of the first channel that has nothing behind it.
fn across_the_end(rig: &Rig<'_>) -> Result<BusAddr, Violation> {
    let layout = rig.fixture.layout;
    let mut ends = layout.regions().map(crate::addr::Span::end);
    let end = ends.find(|&end| {
        layout.hbm_offset(end).is_none() && layout.profile().bus_to_host(end).is_none()
    });
    match end {
        Some(end) => end.checked_sub(32).must("a channel has more bytes"),
        None => nowhere(rig),
    }
}
