//! What was done.

use glia_abi::nrt::NrtStatus;

use crate::workload::{OpKind, Step};

/// What was done. An operation counts if it ended as its line expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub(super) by_kind: [u64; OpKind::ALL.len()],
    /// How many of all operations were to fail, and did.
    pub expected_errors: u64,
    /// Bytes written, filled and copied to.
    pub written_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes of those that were compared with what was written. The others were never written.
    pub verified_bytes: u64,
    /// Objects that live at the end.
    pub live: u64,
}

impl Counts {
    /// Counts an operation that ended as its line expects.
    pub(super) fn add(&mut self, step: &Step<'_>) {
        self.by_kind[step.op.kind().index()] += 1;
        if step.expect != NrtStatus::Success {
            self.expected_errors += 1;
        }
    }

    /// Operations of one kind.
    #[must_use]
    pub fn of(&self, kind: OpKind) -> u64 {
        self.by_kind[kind.index()]
    }

    /// All operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.by_kind.iter().sum()
    }
}
