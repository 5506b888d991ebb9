//! BAR0: where a register of a UDMA engine lies, and what is in it (driver 2.24.7, `udma_regs.h`
//! and the address maps of V2 and V3; offsets checked).
//!
//! BAR0 is a table: each engine has a block whose place the [arch profile](crate::arch) knows, and
//! in it 16 queue blocks for each [`Direction`]. [`QueueReg::at`] finds the offset of a register,
//! [`Place::of`] is the inverse.
//!
//! Beside the engines lies misc RAM, where the driver meets the firmware: [`FirmwareReg`].
//!
//! ```text
//!   engine block        M2S queue q           S2M queue q
//!   0x00000 M2S         0x01000 + q*0x1000    0x21000 + q*0x1000
//!   0x20000 S2M         of 16 queues          of 16 queues
//!   0x38000 GEN
//! ```

use bitfield_struct::bitfield;

use crate::addr::RegOffset;
use crate::arch::ArchProfile;
use crate::handle::{EngineId, QUEUES_PER_ENGINE, QueueId};
use crate::udma::Direction;

/// First M2S queue block in an engine's block.
const TX_QUEUES: u64 = 0x0_1000;
/// First S2M queue block in an engine's block.
const RX_QUEUES: u64 = 0x2_1000;
/// Bytes of a queue block, and from one to the next.
pub const QUEUE_BLOCK_SIZE: u64 = 0x1000;

/// Configuration of a queue that is enabled: bits 16 and 17 set over the reset value.
pub const QUEUE_ENABLED: u32 = 0x0303_0000;
/// The bits of a queue's configuration that enable it: prefetch, and scheduling (M2S) or stream
/// (S2M).
pub const QUEUE_ENABLE_BITS: u32 = 0x0003_0000;
/// Configuration of a queue after power-on.
pub const QUEUE_CFG_RESET: u32 = 0x0300_0000;
/// The bit of [`QueueReg::SwCtrl`] that resets the queue: its indices go to 0, its ring id to 1.
pub const QUEUE_RESET_BIT: u32 = 1 << 8;
/// The bits of [`QueueReg::DrbpLow`] that hold an address.
pub const RING_BASE_LOW_MASK: u32 = 0xffff_ffc0;
/// The bits of [`QueueReg::Drl`] and of a doorbell that hold a count.
pub const COUNT_MASK: u32 = 0x00ff_ffff;
/// What a register that does not exist reads as.
pub const NO_REGISTER: u32 = u32::MAX;

/// A position in a ring with its lap: head, tail and current pointer read like this.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct RingPointer {
    /// Descriptor in the ring.
    #[bits(24)]
    pub offset: u32,
    #[bits(6)]
    __: u32,
    /// Lap, see [`RingId`](crate::udma::RingId).
    #[bits(2)]
    pub ring_id: u32,
}

/// A register of a queue, on either side unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueueReg {
    /// Prefetch thresholds; M2S only.
    DescPrefCfg,
    /// Enable bits.
    Cfg,
    /// Raw status; read-only.
    Status,
    /// Ring base, low word, 64-byte granularity.
    DrbpLow,
    /// Ring base, high word.
    DrbpHigh,
    /// Ring length in descriptors.
    Drl,
    /// Head: the next descriptor that the engine will retire; read-only.
    Drhp,
    /// Doorbell: how many descriptors were added. Write-only; reads as 0.
    DrtpInc,
    /// Tail: one past the last descriptor that was announced; read-only.
    Drtp,
    /// The descriptor that the engine works on; read-only.
    Dcp,
    /// Completion ring base, low word. The driver never attaches one.
    CrbpLow,
    /// Completion ring base, high word.
    CrbpHigh,
    /// Completion head; read-only.
    Crhp,
    /// Completion configuration.
    CompCfg,
    /// Rate-limit mask; M2S only. Bit 2 clear lets a data memory barrier take effect.
    RlimitMask,
    /// Software control, see [`QUEUE_RESET_BIT`].
    SwCtrl,
}

impl QueueReg {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::DescPrefCfg,
        Self::Cfg,
        Self::Status,
        Self::DrbpLow,
        Self::DrbpHigh,
        Self::Drl,
        Self::Drhp,
        Self::DrtpInc,
        Self::Drtp,
        Self::Dcp,
        Self::CrbpLow,
        Self::CrbpHigh,
        Self::Crhp,
        Self::CompCfg,
        Self::RlimitMask,
        Self::SwCtrl,
    ];

    /// Offset in a queue block of this side; `None` if this side has no such register.
    #[must_use]
    pub const fn offset(self, direction: Direction) -> Option<u64> {
        Some(match (self, direction) {
            (Self::DescPrefCfg, Direction::Tx) => 0x00,
            (Self::RlimitMask, Direction::Tx) => 0x74,
            (Self::DescPrefCfg | Self::RlimitMask, Direction::Rx) => return None,
            (Self::Cfg, _) => 0x20,
            (Self::Status, _) => 0x24,
            (Self::DrbpLow, _) => 0x28,
            (Self::DrbpHigh, _) => 0x2c,
            (Self::Drl, _) => 0x30,
            (Self::Drhp, _) => 0x34,
            (Self::DrtpInc, _) => 0x38,
            (Self::Drtp, _) => 0x3c,
            (Self::Dcp, _) => 0x40,
            (Self::CrbpLow, _) => 0x44,
            (Self::CrbpHigh, _) => 0x48,
            (Self::Crhp, _) => 0x4c,
            (Self::CompCfg, Direction::Rx) => 0x54,
            (Self::CompCfg, Direction::Tx) => 0xa0,
            (Self::SwCtrl, Direction::Rx) => 0x64,
            (Self::SwCtrl, Direction::Tx) => 0xb0,
        })
    }

    /// The register at this offset of a queue block.
    #[must_use]
    pub fn of_offset(direction: Direction, offset: u64) -> Option<Self> {
        let number = usize::try_from(offset / 4).ok()?;
        let found = BY_NUMBER[direction.index()].get(number).copied().flatten();
        found.filter(|_| offset.is_multiple_of(4))
    }

    /// Where the register of `queue` lies in BAR0; `None` if the device has no such queue, or that
    /// side no such register.
    #[must_use]
    pub fn at(
        self,
        profile: &ArchProfile,
        queue: QueueId,
        direction: Direction,
    ) -> Option<RegOffset> {
        let in_block = self.offset(direction)?;
        queue_block(profile, queue, direction)?.checked_add(in_block)
    }
}

/// The registers of a queue block, by side and offset / 4. A doorbell finds its register here.
const BY_NUMBER: [[Option<QueueReg>; 48]; 2] = {
    let mut found = [[None; 48]; 2];
    let mut side = 0;
    while side < 2 {
        let mut index = 0;
        while index < QueueReg::ALL.len() {
            let register = QueueReg::ALL[index];
            if let Some(offset) = register.offset(Direction::BOTH[side]) {
                // CAST: the block has no register from 0xc0 on; one there would not compile.
                #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
                let number = offset as usize / 4;
                found[side][number] = Some(register);
            }
            index += 1;
        }
        side += 1;
    }
    found
};

/// Where the queue's block lies in BAR0; `None` if the device has no such queue.
#[must_use]
pub fn queue_block(
    profile: &ArchProfile,
    queue: QueueId,
    direction: Direction,
) -> Option<RegOffset> {
    if queue.number >= QUEUES_PER_ENGINE {
        return None;
    }
    let first = match direction {
        Direction::Tx => TX_QUEUES,
        Direction::Rx => RX_QUEUES,
    };
    profile
        .engine_block(queue.engine)?
        .checked_add(first + u64::from(queue.number) * QUEUE_BLOCK_SIZE)
}

/// Bytes of misc RAM. (uncertain: the last word that the driver uses is at 0x808.)
pub const MISC_RAM_SIZE_BYTES: u64 = 0x1000;
/// The bit of [`FirmwareReg::Status`] that is set while a reset runs.
pub const RESET_RUNS_BIT: u32 = 0x8;

/// A word of misc RAM by which the driver asks the firmware for a reset (driver 2.24.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FirmwareReg {
    /// The cores that are to be reset, a bit for each by its number. (uncertain: the encoding.)
    ResetCores,
    /// What is to be reset, see [`ResetType`].
    ResetType,
    /// Where the request lies, high word. Not used by resets.
    RequestHigh,
    /// Where the request lies, low word.
    RequestLow,
    /// Where the response goes, high word.
    ResponseHigh,
    /// Where the response goes, low word.
    ResponseLow,
    /// Any write sets the reset off.
    ResetTrigger,
    /// How the firmware is, see [`RESET_RUNS_BIT`]; read-only.
    Status,
}

impl FirmwareReg {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ResetCores,
        Self::ResetType,
        Self::RequestHigh,
        Self::RequestLow,
        Self::ResponseHigh,
        Self::ResponseLow,
        Self::ResetTrigger,
        Self::Status,
    ];

    /// Offset in misc RAM.
    #[must_use]
    pub const fn offset(self) -> u64 {
        match self {
            Self::ResetCores => 0x1d8,
            Self::ResetType => 0x1ec,
            Self::RequestHigh => 0x1f0,
            Self::RequestLow => 0x1f4,
            Self::ResponseHigh => 0x1f8,
            Self::ResponseLow => 0x1fc,
            Self::ResetTrigger => 0x800,
            Self::Status => 0x808,
        }
    }

    /// Offset in BAR0.
    #[must_use]
    pub const fn at(self, profile: &ArchProfile) -> RegOffset {
        RegOffset::new(profile.misc_ram_base + self.offset())
    }

    /// The register at this offset of BAR0; `None` for any other.
    #[must_use]
    pub fn of(profile: &ArchProfile, at: RegOffset) -> Option<Self> {
        let offset = misc_ram_offset(profile, at)?;
        Self::ALL.into_iter().find(|it| it.offset() == offset)
    }
}

/// The offset in misc RAM of an offset of BAR0; `None` if that lies elsewhere.
#[must_use]
pub fn misc_ram_offset(profile: &ArchProfile, at: RegOffset) -> Option<u64> {
    let offset = at.get().checked_sub(profile.misc_ram_base)?;
    (offset < MISC_RAM_SIZE_BYTES).then_some(offset)
}

/// What a reset is of. The numbers are guesses: the sources at hand name the register, not its values
/// (uncertain).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetType {
    /// The whole device.
    Device = 1,
    /// The cores of [`FirmwareReg::ResetCores`].
    Cores = 2,
}

impl ResetType {
    /// The value of the register.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        self as u32
    }

    /// The type of this value; `None` if there is no such type.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::Device),
            2 => Some(Self::Cores),
            _ => None,
        }
    }
}

/// What lies at an offset of BAR0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a queue block.
    Queue {
        /// Which queue.
        queue: QueueId,
        /// Which side of it.
        direction: Direction,
        /// Bytes from the start of its block.
        offset: u64,
    },
    /// In an engine's block, outside its queue blocks; or among the registers that it has elsewhere,
    /// which then count from the end of the block on.
    Engine {
        /// Which engine.
        engine: EngineId,
        /// Bytes from the start of its block.
        offset: u64,
    },
    /// In no engine's block.
    Elsewhere,
}

impl Place {
    /// The place of an offset.
    #[must_use]
    pub fn of(profile: &ArchProfile, at: RegOffset) -> Self {
        let Some((engine, offset)) = profile.engine_at(at) else {
            return match profile.side_at(at) {
                Some((engine, in_side)) => Self::Engine {
                    engine,
                    offset: profile.engine_size_bytes + in_side,
                },
                None => Self::Elsewhere,
            };
        };
        for (direction, first) in [(Direction::Tx, TX_QUEUES), (Direction::Rx, RX_QUEUES)] {
            let end = first + u64::from(QUEUES_PER_ENGINE) * QUEUE_BLOCK_SIZE;
            if (first..end).contains(&offset) {
                let in_queues = offset - first;
                // CAST: below 16.
                #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
                let number = (in_queues / QUEUE_BLOCK_SIZE) as u32;
                return Self::Queue {
                    queue: QueueId::new(engine, number),
                    direction,
                    offset: in_queues % QUEUE_BLOCK_SIZE,
                };
            }
        }
        Self::Engine { engine, offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    fn queue(engine: u32, number: u32) -> QueueId {
        QueueId::new(EngineId::new(engine), number)
    }

    /// The offsets of the sheet's test vectors.
    #[test]
    fn doorbells_lie_where_the_reference_has_them() {
        let at = |arch: Arch, queue, direction, register: QueueReg| {
            register
                .at(arch.profile(), queue, direction)
                .map(RegOffset::get)
        };
        let doorbell = QueueReg::DrtpInc;
        assert_eq!(
            at(Arch::V2, queue(33, 3), Direction::Tx, doorbell),
            Some(0x30d0_4038)
        );
        assert_eq!(
            at(Arch::V3, queue(129, 1), Direction::Rx, doorbell),
            Some(0x0692_2038)
        );
        assert_eq!(
            at(Arch::V3, queue(129, 1), Direction::Rx, QueueReg::Drtp),
            Some(0x0692_203c)
        );
    }

    #[test]
    fn every_register_of_every_queue_is_found_again() {
        for arch in Arch::ALL {
            let profile = arch.profile();
            for engine in 0..profile.engines {
                for number in 0..QUEUES_PER_ENGINE {
                    for direction in Direction::BOTH {
                        for register in QueueReg::ALL {
                            let queue = queue(engine, number);
                            let Some(at) = register.at(profile, queue, direction) else {
                                assert_eq!(register.offset(direction), None);
                                continue;
                            };
                            let offset = register.offset(direction).unwrap();
                            let expected = Place::Queue {
                                queue,
                                direction,
                                offset,
                            };
                            assert_eq!(Place::of(profile, at), expected);
                            assert_eq!(QueueReg::of_offset(direction, offset), Some(register));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_queue_that_the_device_does_not_have_has_no_place() {
        let profile = Arch::V2.profile();
        assert_eq!(queue_block(profile, queue(34, 0), Direction::Tx), None);
        assert_eq!(queue_block(profile, queue(0, 16), Direction::Tx), None);
    }

    /// The sheet's addresses; no engine answers there.
    #[test]
    fn the_firmwares_words_lie_in_misc_ram_and_are_found_again() {
        let at = |arch: Arch, register: FirmwareReg| register.at(arch.profile()).get();
        assert_eq!(at(Arch::V2, FirmwareReg::ResetTrigger), 0x30fa_0800);
        assert_eq!(at(Arch::V3, FirmwareReg::Status), 0x06c8_4808);
        assert_eq!(at(Arch::V4, FirmwareReg::ResetCores), 0x06c8_41d8);
        for arch in Arch::ALL {
            let profile = arch.profile();
            for register in FirmwareReg::ALL {
                let at = register.at(profile);
                assert_eq!(Place::of(profile, at), Place::Elsewhere);
                assert_eq!(FirmwareReg::of(profile, at), Some(register));
            }
            let end = RegOffset::new(profile.misc_ram_base + MISC_RAM_SIZE_BYTES);
            assert_eq!(misc_ram_offset(profile, end), None);
            assert!(end.get() <= profile.bar0_size_bytes);
        }
    }

    #[test]
    fn what_is_no_queue_is_told_apart() {
        let profile = Arch::V3.profile();
        let engine = Place::of(profile, RegOffset::new(0x0690_0200));
        assert_eq!(
            engine,
            Place::Engine {
                engine: EngineId::new(129),
                offset: 0x200
            }
        );
        let side = Place::of(profile, RegOffset::new(0x8c02_0090));
        assert_eq!(
            side,
            Place::Engine {
                engine: EngineId::new(1),
                offset: profile.engine_size_bytes + 0x90
            }
        );
        assert_eq!(Place::of(profile, RegOffset::new(0)), Place::Elsewhere);
        assert_eq!(
            Place::of(profile, RegOffset::new(u64::MAX)),
            Place::Elsewhere
        );
    }
}
