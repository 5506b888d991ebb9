//! Which registers of BAR0 a process may write (driver 2.24.7 and 2.27.4).
//!
//! The command that writes registers for a process refuses those by which the engines could be made
//! to read or write anything: where rings lie, and the doorbells; and the words by which a reset is
//! asked for. Everything else of BAR0 is open.
//!
//! This is a rule and no more: [`check_write`] looks at one offset and touches nothing.

use glia_abi::addr::{RegOffset, access_fits};
use glia_abi::arch::ArchProfile;
use glia_abi::regs::{FirmwareReg, Place, QueueReg};

/// Bytes of a register.
const REGISTER_BYTES: u64 = 4;

/// Why a process may not write there. All are `EINVAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bar0Refusal {
    /// It is no multiple of 4. (The reference would let such a write through.)
    #[error("{at} is no multiple of 4")]
    Unaligned {
        /// The offset.
        at: RegOffset,
    },
    /// It lies outside of BAR0. (The reference accepts the offset that equals the size.)
    #[error("{at} is outside: BAR0 has {size_bytes} bytes")]
    Outside {
        /// The offset.
        at: RegOffset,
        /// Bytes of BAR0.
        size_bytes: u64,
    },
    /// It is one of the registers that are closed to processes.
    #[error("{at} is closed to processes")]
    Closed {
        /// The offset.
        at: RegOffset,
    },
}

/// Checks that a process may write the register at an offset of BAR0.
///
/// # Errors
/// [`Bar0Refusal`] if it may not.
pub fn check_write(profile: &ArchProfile, at: RegOffset) -> Result<(), Bar0Refusal> {
    let size_bytes = profile.bar0_size_bytes;
    if !at.get().is_multiple_of(REGISTER_BYTES) {
        return Err(Bar0Refusal::Unaligned { at });
    }
    if !access_fits(at.get(), REGISTER_BYTES, size_bytes) {
        return Err(Bar0Refusal::Outside { at, size_bytes });
    }
    if is_closed(profile, at) {
        return Err(Bar0Refusal::Closed { at });
    }
    Ok(())
}

/// Whether exactly this offset is closed to processes.
#[must_use]
pub fn is_closed(profile: &ArchProfile, at: RegOffset) -> bool {
    match Place::of(profile, at) {
        Place::Queue {
            direction, offset, ..
        } => matches!(
            QueueReg::of_offset(direction, offset),
            Some(
                QueueReg::DrbpLow
                    | QueueReg::DrbpHigh
                    | QueueReg::CrbpLow
                    | QueueReg::CrbpHigh
                    | QueueReg::DrtpInc
            )
        ),
        Place::Engine { .. } | Place::Elsewhere => matches!(
            FirmwareReg::of(profile, at),
            Some(
                FirmwareReg::RequestHigh
                    | FirmwareReg::RequestLow
                    | FirmwareReg::ResponseHigh
                    | FirmwareReg::ResponseLow
                    | FirmwareReg::ResetTrigger
            )
        ),
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::arch::Arch;
    use glia_abi::handle::{EngineId, QUEUES_PER_ENGINE, QueueId};
    use glia_abi::udma::Direction;

    use super::*;

    fn closed(arch: Arch, at: u64) -> bool {
        is_closed(arch.profile(), RegOffset::new(at))
    }

    #[test]
    fn rings_and_doorbells_of_every_queue_are_closed_and_nothing_else_of_it() {
        for arch in Arch::ALL {
            let profile = arch.profile();
            for engine in (0..profile.engines).map(EngineId::new) {
                for number in 0..QUEUES_PER_ENGINE {
                    for direction in Direction::BOTH {
                        let block = QueueReg::Cfg
                            .at(profile, QueueId::new(engine, number), direction)
                            .unwrap()
                            .get()
                            - 0x20;
                        let offsets: Vec<u64> = (0..0x100)
                            .filter(|offset| closed(arch, block + offset))
                            .collect();
                        assert_eq!(offsets, [0x28, 0x2c, 0x38, 0x44, 0x48]);
                    }
                }
            }
        }
    }

    #[test]
    fn what_sets_a_reset_off_is_closed() {
        for (arch, base) in [(Arch::V2, 0x30fa_0000), (Arch::V3, 0x06c8_4000)] {
            let offsets: Vec<u64> = (0..0x900)
                .filter(|offset| closed(arch, base + offset))
                .collect();
            assert_eq!(offsets, [0x1f0, 0x1f4, 0x1f8, 0x1fc, 0x800]);
        }
    }

    /// The sheet's test vectors.
    #[test]
    fn writes_are_refused_as_the_reference_refuses_them() {
        let check = |arch: Arch, at| check_write(arch.profile(), RegOffset::new(at));
        let closed = |at| {
            Err(Bar0Refusal::Closed {
                at: RegOffset::new(at),
            })
        };
        assert_eq!(check(Arch::V2, 0x30d0_4038), closed(0x30d0_4038));
        assert_eq!(check(Arch::V3, 0x0692_2038), closed(0x0692_2038));
        assert_eq!(check(Arch::V3, 0x0692_203c), Ok(()));
    }

    #[test]
    fn odd_offsets_and_those_beyond_the_end_are_refused() {
        let profile = Arch::V2.profile();
        let size_bytes = profile.bar0_size_bytes;
        let check = |at| check_write(profile, RegOffset::new(at));
        for at in [0x3000_1039, 0x3000_1036, 1] {
            let at = RegOffset::new(at);
            assert_eq!(check_write(profile, at), Err(Bar0Refusal::Unaligned { at }));
        }
        for at in [size_bytes, size_bytes + 4, u64::MAX - 3] {
            let at = RegOffset::new(at);
            assert_eq!(
                check_write(profile, at),
                Err(Bar0Refusal::Outside { at, size_bytes })
            );
        }
        assert_eq!(check(size_bytes - 4), Ok(()));
    }
}
