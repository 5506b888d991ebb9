//! Where Glia differs from the reference on purpose.
//!
//! Fidelity is the product, so each difference is declared: a variant here and an entry of the same
//! [name](Divergence::name) in `docs/divergences.md`, kept equal by a test. `glia conform` counts
//! what falls under one apart from mismatches.

use std::fmt;

/// A declared difference. In each of them the reference has a defect and Glia gives a clear answer
/// instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Divergence {
    /// The bounds check of driver 2.24.7 adds offset and size in 64 bits and wraps; Glia refuses
    /// the access.
    BoundsWrap,
    /// A contiguous-scratchpad request on the host leaves the reference with a chunk that crashes
    /// it later; Glia refuses it, `EINVAL`.
    HostScratchpad,
    /// The reference subtracts from a reserve pool's allocated counter without ever adding; Glia's
    /// counter balances.
    ReserveCounter,
    /// The reference frees through no pointer, or one to a chunk that is gone, and stops the
    /// kernel; Glia answers an error.
    DeadChunk,
    /// An unattached process asks for, or sweeps, a list that only attached ones have, and the
    /// kernel stops; Glia answers `EACCES`.
    UnattachedProcess,
    /// Chunks are left at teardown and the kernel stops; Glia takes them back and reports each as a
    /// leak.
    TeardownLeak,
    /// A unit size that is no multiple of the page size stops the kernel; Glia names parameter,
    /// value and rule.
    UnitSize,
    /// The reference gives a chunk's memory to the next owner while a copy is under way; Glia waits
    /// for the last pin.
    PinnedRange,
}

impl Divergence {
    /// All of them, in the order of the document.
    pub const ALL: [Self; 8] = [
        Self::BoundsWrap,
        Self::HostScratchpad,
        Self::ReserveCounter,
        Self::DeadChunk,
        Self::UnattachedProcess,
        Self::TeardownLeak,
        Self::UnitSize,
        Self::PinnedRange,
    ];

    /// The name under which the document and the tools speak of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BoundsWrap => "bounds-wrap",
            Self::HostScratchpad => "host-scratchpad",
            Self::ReserveCounter => "reserve-counter",
            Self::DeadChunk => "dead-chunk",
            Self::UnattachedProcess => "unattached-process",
            Self::TeardownLeak => "teardown-leak",
            Self::UnitSize => "unit-size",
            Self::PinnedRange => "pinned-range",
        }
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document's entries are its second-level headings, each a name in backquotes.
    #[test]
    fn the_document_lists_exactly_these() {
        let text = include_str!("../../../docs/divergences.md");
        let listed: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`'))
            .collect();
        assert_eq!(listed, Divergence::ALL.map(Divergence::name));
    }
}
