//! Failures that a trace scripts: which of the coming calls of an allocator fail.

use std::sync::{Mutex, PoisonError};

use glia_abi::fault::{FaultPoint, Faults};

/// How many calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    /// So many, then none.
    Next(u64),
    /// All from here on.
    All,
}

/// After so many calls that succeed, so many that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// Calls that must still succeed before the first failure.
    pub after: u64,
    /// The failures then.
    pub failures: Failures,
}

impl Script {
    /// Nothing fails.
    pub const NONE: Self = Self {
        after: 0,
        failures: Failures::Next(0),
    };

    /// Whether the call that is being made fails by the script. If not, and it succeeds, say so
    /// with [`succeeded`](Self::succeeded).
    pub fn strikes(&mut self) -> bool {
        if self.after > 0 {
            return false;
        }
        match &mut self.failures {
            Failures::All => true,
            Failures::Next(0) => false,
            Failures::Next(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// Counts a call that succeeded.
    pub fn succeeded(&mut self) {
        self.after = self.after.saturating_sub(1);
    }
}

/// Kernel memory under a script (`fail_kmem`): chunk records and further pages of the handle table.
/// Nothing else of the driver fails.
#[derive(Debug)]
pub struct ScriptedKernelMemory(Mutex<Script>);

impl ScriptedKernelMemory {
    /// Nothing fails until told so.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(Script::NONE))
    }

    /// Replaces the script.
    pub fn set_script(&self, script: Script) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }
}

impl Default for ScriptedKernelMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl Faults for ScriptedKernelMemory {
    fn strikes(&self, point: FaultPoint) -> bool {
        match point {
            FaultPoint::ChunkRecord | FaultPoint::HandlePage => {
                let mut script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let struck = script.strikes();
                if !struck {
                    script.succeeded();
                }
                struck
            }
            // The traces order no others.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_come_after_the_successes_and_end() {
        let memory = ScriptedKernelMemory::new();
        memory.set_script(Script {
            after: 2,
            failures: Failures::Next(1),
        });
        let struck: Vec<bool> = (0..5)
            .map(|_| memory.strikes(FaultPoint::ChunkRecord))
            .collect();
        assert_eq!(struck, [false, false, true, false, false]);
    }

    #[test]
    fn endless_failures_do_not_end() {
        let memory = ScriptedKernelMemory::new();
        memory.set_script(Script {
            after: 0,
            failures: Failures::All,
        });
        assert!((0..100).all(|_| memory.strikes(FaultPoint::HandlePage)));
    }

    #[test]
    fn only_records_and_handle_pages_fail_and_count() {
        let memory = ScriptedKernelMemory::new();
        memory.set_script(Script {
            after: 1,
            failures: Failures::All,
        });
        assert!(!memory.strikes(FaultPoint::Pool));
        assert!(!memory.strikes(FaultPoint::Alloc));
        assert!(!memory.strikes(FaultPoint::ChunkRecord));
        assert!(memory.strikes(FaultPoint::ChunkRecord));
    }
}
