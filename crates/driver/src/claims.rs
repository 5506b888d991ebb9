//! Core claims: which process has marked which core, over all devices of a driver.
//!
//! Processes that share a machine agree by this table on who uses which cores, before anybody
//! touches one: the driver itself never asks it. Cores are numbered through the machine, as many as
//! a device has after those of the device before it. A process claims *so many in a row* in a range
//! of cores and gets the first run that is free; if there is none it is refused, and the error says
//! who is in the way. (The ABI has room for `EBUSY` alone; an
//! [event](glia_abi::event::Event::ClaimRefused) and
//! [`core_holder`](crate::driver::Driver::core_holder) tell who it is.)
//!
//! The search is the reference's: behind the core that ended a run it leaves one out unseen, so
//! that a run which begins there is not found (driver 2.27).
//!
//! **Who gives a claim back.** Its process, by `UNMARK`, or by closing any file that it opened
//! write-only. The close of another file leaves claims alone, so a process that had no write-only
//! file leaves its claims behind (driver 2.27).
//!
//! **Locks.** One mutex, held for one command. What this does not do: know devices, or that a core
//! is used.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use glia_abi::handle::{CORES_MAX, Pid};

/// Cores that the table has: 64 devices of 8.
pub const CORES: u32 = 64 * CORES_MAX;

/// The cores that a process would like to have. Numbers count from the first core of the device by
/// whose file it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// How many in a row.
    pub(crate) count: u32,
    /// The first that will do.
    pub(crate) first: u32,
    /// The last that will do.
    pub(crate) last: u32,
}

/// What a process got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// Its cores, counted as it asked for them.
    pub(crate) cores: Range<u32>,
    /// The longest free run that was seen on the way; no more of a run than was asked for.
    pub(crate) longest: u32,
}

/// Why a claim was refused. Nothing is marked then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// `EINVAL`: the range ends before it begins, or leaves the table.
    #[error(
        "cores {first} to {last}, behind {base} of other devices, are no range of {CORES} cores"
    )]
    NoRange {
        /// Cores of the devices before the one that was asked.
        base: u32,
        /// The first core asked for.
        first: u32,
        /// The last core asked for.
        last: u32,
    },
    /// `EBUSY`: no run is long enough.
    #[error(
        "no {count} free cores in a row were seen among cores {first} to {last}, but {longest}{}",
        holder_text(*holder)
    )]
    TooFew {
        /// Cores asked for.
        count: u32,
        /// The first core that would have done.
        first: u32,
        /// The last core that would have done.
        last: u32,
        /// The longest free run that was seen.
        longest: u32,
        /// The first core of them that somebody has, and who; `None` if all are free.
        holder: Option<(u32, Pid)>,
    },
}

/// Who has which core.
pub(crate) struct CoreClaims {
    holders: Mutex<[Option<Pid>; CORES as usize]>,
}

impl CoreClaims {
    pub(crate) const fn new() -> Self {
        Self {
            holders: Mutex::new([None; CORES as usize]),
        }
    }

    /// Marks the first run of free cores that fits, for `process`. `base` is how many cores come
    /// before those of the device.
    ///
    /// A count of 0 fits every free core and marks none (driver 2.27).
    pub(crate) fn mark(
        &self,
        process: Pid,
        base: u32,
        wanted: Wanted,
    ) -> Result<Claimed, ClaimError> {
        let Wanted { count, first, last } = wanted;
        let mut holders = self.lock();
        let range = range(base, first, last).ok_or(ClaimError::NoRange { base, first, last })?;
        let end = range.end;
        let holder = |core: u32| holders[core as usize];
        let is_taken = |core: &u32| holder(*core).is_some();

        let (mut at, mut longest) = (range.start, 0);
        while at < end {
            let limit = at.saturating_add(count.max(1)).min(end);
            let stop = (at..limit).find(is_taken).unwrap_or(limit);
            let run = stop - at;
            longest = longest.max(run);
            if run == 0 {
                at += 1;
            } else if run < count {
                at = stop + 2;
            } else {
                for core in at..at + count {
                    holders[core as usize] = Some(process);
                }
                let cores = at - base..at - base + count;
                return Ok(Claimed { cores, longest });
            }
        }
        let mut taken = range.filter_map(|core| Some((core - base, holder(core)?)));
        Err(ClaimError::TooFew {
            count,
            first,
            last,
            longest,
            holder: taken.next(),
        })
    }

    /// Gives cores back, as far as they are the process's.
    pub(crate) fn unmark(&self, process: Pid, base: u32, cores: impl Iterator<Item = u32>) {
        let mut holders = self.lock();
        let cores = cores.filter_map(|core| base.checked_add(core));
        for core in cores.take_while(|&core| core < CORES) {
            let holder = &mut holders[core as usize];
            if *holder == Some(process) {
                *holder = None;
            }
        }
    }

    /// Gives all cores of a process back.
    pub(crate) fn unmark_all(&self, process: Pid) {
        for holder in self.lock().iter_mut() {
            if *holder == Some(process) {
                *holder = None;
            }
        }
    }

    /// Who has a core of the device.
    pub(crate) fn holder(&self, base: u32, core: u32) -> Option<Pid> {
        let core = base.checked_add(core)?;
        *self.lock().get(core as usize)?
    }

    fn lock(&self) -> MutexGuard<'_, [Option<Pid>; CORES as usize]> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range of the table, from one that counts from `base`.
fn range(base: u32, first: u32, last: u32) -> Option<Range<u32>> {
    let end = base.checked_add(last)?.checked_add(1)?;
    (first <= last && end <= CORES).then_some(base + first..end)
}

fn holder_text(holder: Option<(u32, Pid)>) -> String {
    holder.map_or_else(String::new, |(core, pid)| {
        format!("; core {core} is {pid}'s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Pid = Pid::new(7);
    const B: Pid = Pid::new(8);

    fn wanted(count: u32, first: u32, last: u32) -> Wanted {
        Wanted { count, first, last }
    }

    fn got(claims: &CoreClaims, process: Pid, wanted: Wanted) -> Result<Range<u32>, ClaimError> {
        claims.mark(process, 0, wanted).map(|claimed| claimed.cores)
    }

    #[test]
    fn the_first_run_that_fits_is_marked() {
        let claims = CoreClaims::new();
        assert_eq!(got(&claims, A, wanted(2, 1, 7)), Ok(1..3));
        assert_eq!(got(&claims, B, wanted(2, 0, 7)), Ok(3..5));
        let holders = [0, 1, 2, 3, 4, 5].map(|core| claims.holder(0, core));
        let expected = [None, Some(A), Some(A), Some(B), Some(B), None];
        assert_eq!(holders, expected);
    }

    #[test]
    fn whoever_comes_second_learns_who_has_the_core() {
        let claims = CoreClaims::new();
        got(&claims, A, wanted(1, 2, 2)).unwrap();
        let refused = got(&claims, B, wanted(3, 0, 3)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no 3 free cores in a row were seen among cores 0 to 3, but 2; core 2 is pid 7's"
        );
        let refused = got(&claims, B, wanted(2, 9, 9)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no 2 free cores in a row were seen among cores 9 to 9, but 1"
        );
    }

    /// Cores 0 and 2 to 3 are free; the search looks at 0, which 1 ends, and goes on at 3.
    #[test]
    fn a_run_right_behind_the_core_that_ended_another_is_not_found() {
        let claims = CoreClaims::new();
        got(&claims, A, wanted(1, 1, 1)).unwrap();
        let refused = got(&claims, B, wanted(2, 0, 3)).unwrap_err();
        assert!(matches!(refused, ClaimError::TooFew { longest: 1, .. }));
        assert_eq!(got(&claims, B, wanted(2, 1, 3)), Ok(2..4));
    }

    #[test]
    fn no_cores_can_be_had_where_one_is_free() {
        let claims = CoreClaims::new();
        assert_eq!(got(&claims, A, wanted(0, 3, 3)), Ok(3..3));
        got(&claims, B, wanted(1, 3, 3)).unwrap();
        assert!(got(&claims, A, wanted(0, 3, 3)).is_err());
    }

    #[test]
    fn ranges_that_end_before_they_begin_or_leave_the_table_are_refused() {
        let claims = CoreClaims::new();
        let last = CORES - 1;
        for (base, first, last) in [
            (0, 1, 0),
            (0, 0, CORES),
            (8, 0, last),
            (0, u32::MAX, u32::MAX),
            (8, u32::MAX - 8, u32::MAX - 7),
            (u32::MAX, 0, 0),
        ] {
            let refused = claims.mark(A, base, wanted(1, first, last)).unwrap_err();
            assert_eq!(refused, ClaimError::NoRange { base, first, last });
        }
        assert_eq!(got(&claims, A, wanted(CORES, 0, last)), Ok(0..CORES));
        let refused = got(&claims, B, wanted(u32::MAX, 0, last)).unwrap_err();
        assert!(matches!(refused, ClaimError::TooFew { longest: 0, .. }));
    }

    #[test]
    fn cores_count_from_the_device_that_was_asked() {
        let claims = CoreClaims::new();
        let claimed = claims.mark(A, 16, wanted(2, 0, 7)).unwrap();
        assert_eq!(claimed.cores, 0..2);
        assert_eq!(claims.holder(0, 17), Some(A));
        assert_eq!(claims.holder(16, 1), Some(A));
        assert_eq!(claims.holder(u32::MAX, 1), None);
    }

    #[test]
    fn a_process_gives_back_its_own_alone() {
        let claims = CoreClaims::new();
        got(&claims, A, wanted(2, 0, 1)).unwrap();
        got(&claims, B, wanted(2, 2, 3)).unwrap();
        claims.unmark(A, 0, 0..CORES + 5);
        assert_eq!([0, 1].map(|core| claims.holder(0, core)), [None; 2]);
        claims.unmark(A, u32::MAX, 0..3);
        claims.unmark_all(A);
        assert_eq!([2, 3].map(|core| claims.holder(0, core)), [Some(B); 2]);
        claims.unmark_all(B);
        assert_eq!(claims.holder(0, 2), None);
    }
}
