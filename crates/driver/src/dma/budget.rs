//! How long a completion is waited for (driver 2.24.7 and 2.27.4).
//!
//! The profile's times are those of silicon. Under an emulator everything but the first look takes
//! longer by a fixed factor; a copy within HBM that has no asynchronous neighbour is known to be quick
//! and is looked at sooner and given up earlier.

use glia_abi::arch::WaitTimes;
use glia_abi::port::Budget;
use glia_abi::sched::Micros;

/// By how much everything takes longer where there is no silicon (driver 2.27.4; 2.24.7 has 10,000
/// under qemu).
const VIRTUAL_STRETCH: u64 = 100_000;
/// The first look at a copy within HBM.
const D2D_FIRST: Micros = Micros(10);
/// The part of the patience that a copy within HBM gets.
const D2D_PART: u64 = 200;

/// What a device really is. The driver reads it off the PCI revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// Silicon, or a software device that need not be waited for any longer.
    #[default]
    Hardware,
    /// Revision 240: an emulator.
    Emulator,
    /// Revision 255: qemu.
    Qemu,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaited {
    /// Descriptors of each side, the marker included.
    pub descs: u32,
    /// Another batch was staged meanwhile.
    pub is_pipelined: bool,
    /// All bytes stay within HBM. The driver says so for a scrub of HBM only, and never for a copy
    /// or a fill.
    pub is_d2d: bool,
}

/// How long to wait. Times that no number can say are the longest one.
#[must_use]
pub fn budget(wait: &WaitTimes, platform: Platform, awaited: Awaited) -> Budget {
    let Awaited {
        descs,
        is_pipelined,
        is_d2d,
    } = awaited;
    let Budget { first, following } = wait.budget(descs, is_pipelined);
    let stretch = match platform {
        Platform::Hardware => 1,
        Platform::Emulator | Platform::Qemu => VIRTUAL_STRETCH,
    };
    let following = Micros(following.0.saturating_mul(stretch));
    if is_d2d && !is_pipelined {
        return Budget {
            first: D2D_FIRST,
            following: Micros(following.0 / D2D_PART),
        };
    }
    Budget { first, following }
}

#[cfg(test)]
mod tests {
    use glia_abi::arch::Arch;

    use super::*;

    fn times(arch: Arch, platform: Platform, awaited: Awaited) -> (u64, u64) {
        let budget = budget(&arch.profile().wait, platform, awaited);
        (budget.first.0, budget.following.0)
    }

    const SYNC: Awaited = Awaited {
        descs: 5,
        is_pipelined: false,
        is_d2d: false,
    };

    #[test]
    fn only_what_follows_the_first_look_is_stretched() {
        assert_eq!(times(Arch::V2, Platform::Hardware, SYNC), (13, 158_700));
        let stretched = (13, 15_870_000_000);
        assert_eq!(times(Arch::V2, Platform::Emulator, SYNC), stretched);
        assert_eq!(times(Arch::V2, Platform::Qemu, SYNC), stretched);
    }

    #[test]
    fn a_copy_within_hbm_is_given_up_sooner_unless_another_is_behind_it() {
        let d2d = Awaited {
            is_d2d: true,
            ..SYNC
        };
        assert_eq!(times(Arch::V2, Platform::Hardware, d2d), (10, 793));
        assert_eq!(times(Arch::V2, Platform::Qemu, d2d), (10, 79_350_000));
        let pipelined = Awaited {
            is_pipelined: true,
            ..SYNC
        };
        let both = Awaited {
            is_pipelined: true,
            ..d2d
        };
        assert_eq!(
            times(Arch::V3, Platform::Hardware, both),
            times(Arch::V3, Platform::Hardware, pipelined)
        );
    }

    #[test]
    fn the_longest_batch_fits_on_every_platform() {
        let longest = Awaited {
            descs: u32::MAX,
            ..SYNC
        };
        for arch in Arch::ALL {
            let (_, following) = times(arch, Platform::Qemu, longest);
            assert!(following > times(arch, Platform::Hardware, longest).1);
        }
    }
}
