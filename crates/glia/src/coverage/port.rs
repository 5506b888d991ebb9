//! A port that counts which registers are read and written.

use std::fmt;
use std::sync::Arc;

use glia_abi::addr::RegOffset;
use glia_abi::arch::ArchProfile;
use glia_abi::port::{Port, PortTap};
use glia_abi::regs::{FirmwareReg, Place, QueueReg};
use glia_abi::udma::Direction;

use super::Coverage;

/// A register, whichever engine's and queue's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RegisterName {
    /// Of a queue.
    Queue(Direction, QueueReg),
    /// Of the firmware.
    Firmware(FirmwareReg),
    /// In an engine's block, outside of its queues.
    Engine,
    /// Anywhere else.
    Other,
}

impl RegisterName {
    /// All that have a name of their own.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let queues = Direction::BOTH.into_iter().flat_map(|direction| {
            let registers = QueueReg::ALL.into_iter();
            let there = registers.filter(move |register| register.offset(direction).is_some());
            there.map(move |register| Self::Queue(direction, register))
        });
        let firmware = FirmwareReg::ALL.into_iter().map(Self::Firmware);
        queues.chain(firmware).chain([Self::Engine])
    }

    fn of(profile: &ArchProfile, at: RegOffset) -> Self {
        if let Some(register) = FirmwareReg::of(profile, at) {
            return Self::Firmware(register);
        }
        match Place::of(profile, at) {
            Place::Queue {
                direction, offset, ..
            } => QueueReg::of_offset(direction, offset)
                .map_or(Self::Other, |register| Self::Queue(direction, register)),
            Place::Engine { .. } => Self::Engine,
            Place::Elsewhere => Self::Other,
        }
    }
}

impl fmt::Display for RegisterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(Direction::Tx, register) => write!(f, "queue.tx.{register:?}"),
            Self::Queue(Direction::Rx, register) => write!(f, "queue.rx.{register:?}"),
            Self::Firmware(register) => write!(f, "firmware.{register:?}"),
            Self::Engine => f.write_str("engine"),
            Self::Other => f.write_str("other"),
        }
    }
}

/// See the module. Everything else is passed on.
pub(super) struct CoveredPort {
    port: Arc<dyn Port>,
    profile: &'static ArchProfile,
    coverage: Arc<Coverage>,
}

impl CoveredPort {
    pub(super) fn new(
        port: Arc<dyn Port>,
        profile: &'static ArchProfile,
        coverage: Arc<Coverage>,
    ) -> Self {
        Self {
            port,
            profile,
            coverage,
        }
    }
}

impl PortTap for CoveredPort {
    fn behind(&self) -> &dyn Port {
        &*self.port
    }

    fn reg_read(&self, at: RegOffset) -> u32 {
        let name = RegisterName::of(self.profile, at);
        self.coverage.count_register(name, |it| it.reads += 1);
        self.port.reg_read(at)
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        let name = RegisterName::of(self.profile, at);
        self.coverage.count_register(name, |it| it.writes += 1);
        self.port.reg_write(at, value);
    }
}
