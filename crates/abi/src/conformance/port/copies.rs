//! What descriptors move, and in which order; how far a queue has come; when a wait ends.

use super::PortFixture;
use super::rig::{RING_DESCS, Rig, above, copy};
use crate::arch::Arch;
use crate::conformance::{Must, Violation, difference, hold, pattern};
use crate::port::{NotCompleted, TimedOut};
use crate::regs::QueueReg;
use crate::udma::{Barrier, DESC_BYTES_MAX, Direction, MARKER, RingId, Transfer};

pub(super) fn check(fixture: &PortFixture<'_>) -> Result<(), Violation> {
    let [queue, other] = fixture.queues;
    let mut rig = Rig::new(fixture, queue)?;
    bytes_are_moved(&mut rig)?;
    a_copy_changes_its_range_alone(&mut rig)?;
    pairs_are_executed_in_order(&mut rig)?;
    laps_go_round(&mut rig)?;
    one_side_alone_moves_nothing(&mut rig)?;
    a_wait_ends_when_its_word_is_there(&mut rig)?;
    let mut beside = Rig::new(fixture, other)?;
    queues_have_rings_of_their_own(&mut rig, &mut beside)?;
    beside.end()?;
    rig.end()
}

fn bytes_are_moved(rig: &mut Rig<'_>) -> Result<(), Violation> {
    let hbm = rig.fixture.hbm.start();
    let bytes = pattern(1, 128 << 10);
    rig.fill(0, &bytes)?;
    // (bytes, offset in the buffers, offset in HBM). A length field of 0 says 65,536.
    let shapes = [
        (1, 0, 0),
        (3, 5, 1),
        (4, 2, DESC_BYTES_MAX - 2),
        (4_096, 0, 4_096),
        (65_535, 1, 3),
        (DESC_BYTES_MAX, 7, 0),
    ];
    for (size_bytes, offset, hbm_offset) in shapes {
        let mut expected = vec![0xee; bytes.len()];
        rig.fill(1, &expected)?;
        let middle = above(hbm, hbm_offset)?;
        rig.run(&[
            copy(rig.buffer_bus(0, offset)?, middle, size_bytes),
            copy(middle, rig.buffer_bus(1, offset)?, size_bytes),
        ])?;
        let bounds = [offset, offset + size_bytes].map(usize::try_from);
        if let [Ok(start), Ok(end)] = bounds {
            expected[start..end].copy_from_slice(&bytes[start..end]);
        }
        let found = rig.bytes(1, expected.len())?;
        hold!(
            found == expected,
            "a pair moves as many bytes as it says, from its source to its target",
            "{size_bytes} bytes at offset {offset}, by way of HBM: {}",
            difference(&expected, &found)
        );
    }
    Ok(())
}

fn a_copy_changes_its_range_alone(rig: &mut Rig<'_>) -> Result<(), Violation> {
    let hbm = rig.fixture.hbm.start();
    let mut expected = pattern(2, 8_192);
    rig.fill(0, &expected)?;
    rig.run(&[copy(rig.buffer_bus(0, 0)?, hbm, 8_192)])?;
    let piece = pattern(3, 5);
    rig.fill(0, &piece)?;
    rig.run(&[
        copy(rig.buffer_bus(0, 0)?, above(hbm, 4_094)?, 5),
        copy(hbm, rig.buffer_bus(1, 0)?, 8_192),
    ])?;
    expected[4_094..4_099].copy_from_slice(&piece);
    let found = rig.bytes(1, expected.len())?;
    hold!(
        found == expected,
        "a pair changes its target alone",
        "{}",
        difference(&expected, &found)
    );
    Ok(())
}

fn pairs_are_executed_in_order(rig: &mut Rig<'_>) -> Result<(), Violation> {
    let hbm = rig.fixture.hbm.start();
    let mut barriers = vec![Barrier::None, Barrier::Dmb, Barrier::Write];
    if rig.fixture.layout.arch() != Arch::V2 {
        barriers.push(Barrier::StrongOrder);
    }
    for (seed, barrier) in (10..).zip(barriers) {
        let bytes = pattern(seed, 2 * 4_096);
        rig.fill(0, &bytes)?;
        rig.fill(1, &[0; 4_096])?;
        let [first, second] = [hbm, above(hbm, 100_000)?];
        // The first page is overwritten by the second before it is passed on.
        let chain = [
            (rig.buffer_bus(0, 0)?, first),
            (rig.buffer_bus(0, 4_096)?, first),
            (first, second),
            (rig.buffer_bus(0, 0)?, first),
            (second, rig.buffer_bus(1, 0)?),
        ];
        let chain = chain.map(|(source, target)| Transfer {
            barrier,
            ..copy(source, target, 4_096)
        });
        rig.run(&chain)?;
        let found = rig.bytes(1, 4_096)?;
        hold!(
            found == bytes[4_096..],
            "the pairs of a queue are executed in order",
            "with barrier {barrier:?}: {}",
            difference(&bytes[4_096..], &found)
        );
    }
    Ok(())
}

fn laps_go_round(rig: &mut Rig<'_>) -> Result<(), Violation> {
    const RULE: &str = "head, tail and current pointer are where the last pair ended";
    rig.bring_up()?;
    let mut done = 0;
    // Markers included; some end with a lap, and the largest leave just the gap.
    for descs in [1, 15, 16, 13, 3, 2, 14, 16, 16, 16].into_iter().cycle() {
        let nothing = copy(rig.buffer_bus(0, 0)?, rig.buffer_bus(1, 0)?, 4);
        rig.run(&vec![nothing; descs - 1])?;
        rig.is_idle()?;
        for direction in Direction::BOTH {
            for register in [QueueReg::Drtp, QueueReg::Drhp, QueueReg::Dcp] {
                rig.pointer_is(register, direction, (rig.slot, rig.lap), RULE)?;
            }
        }
        done += descs;
        if done > 6 * RING_DESCS as usize {
            break;
        }
    }
    Ok(())
}

fn one_side_alone_moves_nothing(rig: &mut Rig<'_>) -> Result<(), Violation> {
    const RULE: &str = "nothing is moved before both sides have announced it";
    const TAIL: &str = "a doorbell moves the tail of its side";
    let first = |slot| (slot, RingId::FIRST);
    let bytes = pattern(20, 128);
    for early in Direction::BOTH {
        let late = match early {
            Direction::Tx => Direction::Rx,
            Direction::Rx => Direction::Tx,
        };
        rig.bring_up()?;
        rig.fill(0, &bytes)?;
        rig.fill(1, &[0; 128])?;
        for offset in [0, 64] {
            let [source, target] = [rig.buffer_bus(0, offset)?, rig.buffer_bus(1, offset)?];
            rig.stage(copy(source, target, 64))?;
        }
        rig.stage_marker(MARKER)?;
        let all = rig.take_staged();
        // In two pieces.
        rig.ring(early, 1)?;
        rig.ring(early, all - 1)?;
        rig.is_idle()?;
        let found = rig.bytes(1, 128)?;
        hold!(
            found == [0; 128],
            RULE,
            "{} alone moved bytes",
            early.name()
        );
        rig.pointer_is(QueueReg::Drtp, early, first(all), TAIL)?;
        rig.pointer_is(QueueReg::Drtp, late, first(0), TAIL)?;
        rig.pointer_is(QueueReg::Drhp, early, first(0), RULE)?;
        // One pair is complete now.
        rig.ring(late, 1)?;
        rig.is_idle()?;
        let found = rig.bytes(1, 128)?;
        hold!(
            found[64..] == [0; 64],
            RULE,
            "one descriptor of {} moved the second pair",
            late.name()
        );
        hold!(
            found[..64] == bytes[..64],
            "a pair is executed as soon as both sides have announced it",
            "{}",
            difference(&bytes[..64], &found[..64])
        );
        rig.pointer_is(
            QueueReg::Drhp,
            early,
            first(1),
            "a head is where the last pair ended",
        )?;
        rig.ring(late, all - 1)?;
        rig.wait()?.must("a batch that is announced is executed")?;
        let found = rig.bytes(1, 128)?;
        hold!(
            found == bytes,
            "what a queue wrote before a word is seen with it",
            "{}",
            difference(&bytes, &found)
        );
    }
    Ok(())
}

fn a_wait_ends_when_its_word_is_there(rig: &mut Rig<'_>) -> Result<(), Violation> {
    rig.bring_up()?;
    rig.is_idle()?;
    rig.run(&[])?;
    let looks = rig.wait()?;
    hold!(
        looks == Ok(1),
        "a wait for a word that is there takes one look",
        "{looks:?}"
    );
    // The batch writes another word.
    rig.stage_marker(MARKER ^ 1)?;
    rig.announce()?;
    let found = rig.wait()?;
    let idle = TimedOut {
        queue: rig.queue,
        reason: NotCompleted::Idle,
    };
    hold!(
        found == Err(idle),
        "a wait is for one value of its word",
        "{found:?}"
    );
    Ok(())
}

fn queues_have_rings_of_their_own(
    rig: &mut Rig<'_>,
    beside: &mut Rig<'_>,
) -> Result<(), Violation> {
    rig.bring_up()?;
    let bytes = pattern(30, 64);
    rig.fill(0, &bytes)?;
    rig.fill(1, &[0; 64])?;
    let transfer = copy(rig.buffer_bus(0, 0)?, rig.buffer_bus(1, 0)?, 64);
    rig.stage(transfer)?;
    rig.stage_marker(MARKER)?;
    // The other queue's doorbell is not this one's, on either side.
    beside.run(&[])?;
    let all = rig.take_staged();
    rig.ring(Direction::Rx, all)?;
    beside.run(&[])?;
    rig.is_idle()?;
    beside.is_idle()?;
    let found = rig.bytes(1, 64)?;
    hold!(
        found == [0; 64],
        "a doorbell is for its own queue",
        "one queue's doorbell moved the other's bytes"
    );
    for (queue, slot) in [(&*rig, 0), (&*beside, 2)] {
        queue.pointer_is(
            QueueReg::Drhp,
            Direction::Tx,
            (slot, RingId::FIRST),
            "each queue has a head of its own",
        )?;
    }
    rig.ring(Direction::Tx, all)?;
    rig.wait()?.must("a batch that is announced is executed")?;
    Ok(())
}
