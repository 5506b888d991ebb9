//! What registers read as.

use super::PortFixture;
use super::rig::{Rig, copy};
use crate::addr::RegOffset;
use crate::conformance::{Must, Violation, hold};
use crate::regs::{COUNT_MASK, NO_REGISTER, QUEUE_ENABLED, QueueReg, RING_BASE_LOW_MASK};
use crate::udma::{Direction, RingId};

pub(super) fn check(fixture: &PortFixture<'_>) -> Result<(), Violation> {
    let [queue, _] = fixture.queues;
    let mut rig = Rig::new(fixture, queue)?;
    what_was_set_is_read_back(&rig)?;
    rig.bring_up()?;
    a_reset_brings_a_queue_to_its_first_lap(&mut rig)?;
    read_only_registers_keep_their_values(&mut rig)?;
    no_register_reads_as_all_ones(&rig)?;
    rig.end()
}

fn what_was_set_is_read_back(rig: &Rig<'_>) -> Result<(), Violation> {
    let settings = [
        (QueueReg::Cfg, QUEUE_ENABLED, QUEUE_ENABLED),
        (QueueReg::DrbpHigh, 0x0123_4567, 0x0123_4567),
        (QueueReg::DrbpLow, u32::MAX, RING_BASE_LOW_MASK),
        (QueueReg::Drl, u32::MAX, COUNT_MASK),
    ];
    for direction in Direction::BOTH {
        for (register, written, expected) in settings {
            rig.write(register, direction, written)?;
            let found = rig.read(register, direction)?;
            hold!(
                found == expected,
                "a register reads as it was set, within the bits that it has",
                "{register:?} of {}: {found:#x}, not {expected:#x}",
                direction.name()
            );
        }
    }
    Ok(())
}

fn a_reset_brings_a_queue_to_its_first_lap(rig: &mut Rig<'_>) -> Result<(), Violation> {
    const RULE: &str = "a reset brings a queue to slot 0 of lap 1";
    let pointers = [QueueReg::Drhp, QueueReg::Drtp, QueueReg::Dcp];
    for _ in 0..2 {
        for direction in Direction::BOTH {
            for register in pointers {
                rig.pointer_is(register, direction, (0, RingId::FIRST), RULE)?;
            }
        }
        // The second time, from the middle of a later lap.
        let nothing = copy(rig.buffer_bus(0, 0)?, rig.buffer_bus(1, 0)?, 4);
        for _ in 0..3 {
            rig.run(&[nothing; 14])?;
        }
        rig.bring_up()?;
    }
    Ok(())
}

fn read_only_registers_keep_their_values(rig: &mut Rig<'_>) -> Result<(), Violation> {
    let nothing = copy(rig.buffer_bus(0, 0)?, rig.buffer_bus(1, 0)?, 4);
    rig.run(&[nothing; 4])?;
    rig.is_idle()?;
    let registers = [
        QueueReg::Status,
        QueueReg::Drhp,
        QueueReg::Drtp,
        QueueReg::Dcp,
        QueueReg::Crhp,
    ];
    for direction in Direction::BOTH {
        for register in registers {
            let before = rig.read(register, direction)?;
            rig.write(register, direction, !before)?;
            let after = rig.read(register, direction)?;
            hold!(
                after == before,
                "a read-only register keeps its value",
                "{register:?} of {}: {before:#x}, then {after:#x}",
                direction.name()
            );
        }
        let doorbell = rig.read(QueueReg::DrtpInc, direction)?;
        hold!(
            doorbell == 0,
            "a doorbell reads as 0",
            "that of {}: {doorbell:#x}",
            direction.name()
        );
    }
    Ok(())
}

fn no_register_reads_as_all_ones(rig: &Rig<'_>) -> Result<(), Violation> {
    let fixture = rig.fixture;
    let profile = fixture.layout.profile();
    let length = QueueReg::Drl.at(profile, rig.queue, Direction::Rx);
    let length = length.must("the fixture's queues are queues of the device")?;
    let before = fixture.port.reg_read(length);
    let block = crate::regs::queue_block(profile, rig.queue, Direction::Rx);
    let block = block.must("the fixture's queues are queues of the device")?;
    // That side has no prefetch and no rate limit; between its registers are gaps; and a register
    // is read at its first byte.
    let in_block = [0x00, 0x74, 0x08, 0x1000 - 4, 0x31, 0x32];
    let in_block = in_block.map(|offset| block.checked_add(offset));
    let outside = [
        RegOffset::new(0),
        RegOffset::new(profile.bar0_size_bytes),
        RegOffset::new(u64::MAX - 3),
    ];
    for at in in_block.into_iter().flatten().chain(outside) {
        for written in [None, Some(0)] {
            if let Some(value) = written {
                fixture.port.reg_write(at, value);
            }
            let found = fixture.port.reg_read(at);
            hold!(
                found == NO_REGISTER,
                "what no register has reads as all ones",
                "{found:#x} at {at}, after a write of {written:?}"
            );
        }
    }
    let after = fixture.port.reg_read(length);
    hold!(
        after == before,
        "a write to what no register has does nothing",
        "a ring's length was {before}, and is {after}"
    );
    Ok(())
}
