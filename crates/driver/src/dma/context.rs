//! Contexts: the three batches that a ring can have under way, and the handles that name them.
//!
//! Context 0 belongs to whoever holds the ring for a synchronous copy. Contexts 1 and 2 take turns:
//! an asynchronous copy names its predecessor, gets the other one, and waits for the predecessor
//! after it has been staged itself, so that the engine always has something to do. A batch that is
//! staged again, after a reset of the device, stays in flight.
//!
//! ```text
//!            staged               marker came
//!   idle ─────────────► in flight ───────────► idle
//!                           │ the ring failed
//!                           ▼
//!                         failed ────────────► idle
//!                                 owner told
//! ```

use std::fmt;

use glia_abi::handle::Pid;
use glia_abi::port::TimedOut;

use super::held::Staged;
use super::split::Run;

/// Contexts of a ring.
pub(crate) const CONTEXTS: usize = 3;

/// What a caller names an asynchronous copy by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitHandle {
    /// -1: no copy; as a predecessor, it begins a chain.
    None,
    /// 0: a synchronous copy; as a predecessor, it asks for one.
    Sync,
    /// 1: the first asynchronous context.
    Async1,
    /// 2: the second asynchronous context.
    Async2,
}

impl WaitHandle {
    /// The handle that an ioctl's field holds; `None` if it holds none.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            u32::MAX => Some(Self::None),
            0 => Some(Self::Sync),
            1 => Some(Self::Async1),
            2 => Some(Self::Async2),
            _ => None,
        }
    }

    /// What an ioctl's field holds for it.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::None => u32::MAX,
            Self::Sync => 0,
            Self::Async1 => 1,
            Self::Async2 => 2,
        }
    }

    /// The handle of a copy whose predecessor this is.
    #[must_use]
    pub const fn next(self) -> Self {
        self.next_slot().handle()
    }

    /// The context of a copy whose predecessor this is.
    pub(super) const fn next_slot(self) -> Slot {
        match self {
            Self::Sync => Slot::Sync,
            Self::None | Self::Async2 => Slot::Async1,
            Self::Async1 => Slot::Async2,
        }
    }

    /// The context that it names.
    pub(super) const fn slot(self) -> Option<Slot> {
        match self {
            Self::None => None,
            Self::Sync => Some(Slot::Sync),
            Self::Async1 => Some(Slot::Async1),
            Self::Async2 => Some(Slot::Async2),
        }
    }
}

impl fmt::Display for WaitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no handle",
            Self::Sync => "handle 0 (synchronous)",
            Self::Async1 => "handle 1",
            Self::Async2 => "handle 2",
        })
    }
}

/// Which context of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Of the copy that holds the ring.
    Sync,
    /// Of handle 1.
    Async1,
    /// Of handle 2.
    Async2,
}

impl Slot {
    pub(super) const ALL: [Self; CONTEXTS] = [Self::Sync, Self::Async1, Self::Async2];

    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// The number by which events call it.
    pub(super) const fn number(self) -> u32 {
        self as u32
    }

    pub(super) const fn handle(self) -> WaitHandle {
        match self {
            Self::Sync => WaitHandle::Sync,
            Self::Async1 => WaitHandle::Async1,
            Self::Async2 => WaitHandle::Async2,
        }
    }
}

/// On whose account something is done, and under which command, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(super) by: Pid,
    pub(super) command: Option<u32>,
}

/// A batch that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(super) account: Account,
    /// What it moves, to stage it again.
    pub(super) run: Run,
    /// A batch of no pairs is a copy of 0 bytes, which has nothing to wait for.
    pub(super) staged: Staged,
}

/// What a context is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Context {
    /// Nothing.
    #[default]
    Idle,
    /// Its batch is staged and announced.
    InFlight(Batch),
    /// Its batch was lost with its ring, and the owner does not know yet.
    Failed {
        /// Whose it was.
        by: Pid,
        /// Why the ring failed.
        why: TimedOut,
    },
}

/// What happens to a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A batch was staged.
    Staged(Batch),
    /// The same batch was staged again, in a ring that was set up afresh.
    StagedAgain(Batch),
    /// The marker came.
    Done,
    /// The ring failed.
    Lost(TimedOut),
    /// Its owner knows that it failed, or nobody can ask any more.
    Forgotten,
}

impl Context {
    /// Who has it in use.
    pub(super) const fn owner(self) -> Option<Pid> {
        match self {
            Self::Idle => None,
            Self::InFlight(batch) => Some(batch.account.by),
            Self::Failed { by, .. } => Some(by),
        }
    }

    /// The state after a turn; `None` if that cannot happen in this state.
    // Inlined: the turn is known where it happens, and nothing but what it changes is stored.
    #[inline(always)]
    pub(super) const fn after(self, turn: Turn) -> Option<Self> {
        match (self, turn) {
            (Self::Idle, Turn::Staged(batch)) | (Self::InFlight(_), Turn::StagedAgain(batch)) => {
                Some(Self::InFlight(batch))
            }
            (Self::InFlight(_), Turn::Done) | (Self::Failed { .. }, Turn::Forgotten) => {
                Some(Self::Idle)
            }
            (Self::InFlight(batch), Turn::Lost(why)) => Some(Self::Failed {
                by: batch.account.by,
                why,
            }),
            (Self::Idle, Turn::StagedAgain(_) | Turn::Done | Turn::Lost(_) | Turn::Forgotten)
            | (Self::InFlight(_), Turn::Staged(_) | Turn::Forgotten)
            | (
                Self::Failed { .. },
                Turn::Staged(_) | Turn::StagedAgain(_) | Turn::Done | Turn::Lost(_),
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asynchronous_handles_take_turns() {
        let next = [
            WaitHandle::None,
            WaitHandle::Sync,
            WaitHandle::Async1,
            WaitHandle::Async2,
        ]
        .map(WaitHandle::next);
        assert_eq!(
            next,
            [
                WaitHandle::Async1,
                WaitHandle::Sync,
                WaitHandle::Async2,
                WaitHandle::Async1
            ]
        );
    }

    #[test]
    fn the_raw_numbers_are_those_of_the_reference() {
        for raw in [u32::MAX, 0, 1, 2] {
            assert_eq!(WaitHandle::from_raw(raw).unwrap().to_raw(), raw);
        }
        assert_eq!(WaitHandle::from_raw(3), None);
        assert_eq!(WaitHandle::from_raw(u32::MAX - 1), None);
    }
}
