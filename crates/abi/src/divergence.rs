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
    /// The reference moves 64 KiB for a copy or fill of 0 bytes; Glia moves nothing.
    ZeroSize,
    /// An asynchronous copy that is too large is refused by the reference after its first batch,
    /// which is never acknowledged; Glia refuses it before anything is launched.
    AsyncOversize,
    /// The reference calls a time-out `EPERM` and leaves slots and marker as they are; Glia calls it
    /// `ETIMEDOUT` and sets the ring up afresh.
    Timeout,
    /// A chain that begins while the last one is under way is staged over it by the reference; Glia
    /// waits for the last one first.
    RestartInFlight,
    /// A copy that is refused for its previous handle makes the reference forget another one; Glia
    /// changes nothing.
    BadPreviousHandle,
    /// The reference fills host memory by DMA; Glia does it plainly.
    HostFill,
    /// Under qemu the reference (2.24.7) waits by a smaller factor than on an emulator; Glia waits by
    /// the same.
    PlatformScale,
    /// The reference's wait times underflow below two descriptors; Glia takes fewer for two.
    DegenerateWait,
    /// The reference cannot bring up one of two cores that share an engine, and leaks its ring; Glia
    /// loses nothing.
    LoneCore,
    /// The reference stages a copy that a reset has disturbed again without end, and takes a device that
    /// was never reset for one in reset; Glia tries four times, on a device with one reset behind it.
    RetryLimit,
    /// A copy that is staged again leaves others on its ring behind in the reference, which have to time
    /// out first; Glia stages all of them again.
    LostSibling,
    /// The reference checks the descriptors at the start of a buffer and copies those at an offset, and
    /// has a number of its own for an unknown kind; Glia checks what it copies.
    DescriptorWalk,
    /// The reference lets a process's ring leave the chunk that backs it; Glia refuses it.
    RingSize,
    /// The reference counts the slots of a ring whose length is no power of two as if it were one; Glia
    /// says that it has none to fill.
    OddRing,
    /// The reference stops the kernel for a bad doorbell, or a ring that it cannot fill; Glia answers an
    /// error.
    Assertion,
    /// The reference takes two slots before it finds a barrier unknown; Glia takes none.
    UnknownBarrier,
    /// The reference takes the request for an unknown state of an engine for done; Glia refuses it.
    EngineState,
    /// A process that has gone still owns its queues in the reference, which sets them up anew whenever it
    /// goes again; in Glia nobody owns them.
    KeptOwner,
    /// The reference takes a core's ring anew when the core is reset, and knows nothing of the copies
    /// that were lost; Glia keeps the ring's memory, and tells who waits for them.
    KeptRings,
    /// The cursors of the reference's context queue cross when a pinned zero copy enters behind an
    /// unpinned one; in Glia it waits for it, or enters unpinned, too.
    CrossedCursors,
    /// In the reference a synchronous zero copy ends asynchronous ones of its ring without a completion,
    /// and one that fails takes the others with it; in Glia each ends by itself, and is told once.
    MixedZeroCopies,
    /// A zero copy whose last operation is empty has neither barrier nor completion in the reference;
    /// in Glia the last operation that moves something has them.
    EmptyOperation,
    /// The reference holds a ring while its completion queue is full; Glia refuses the request, `EBUSY`,
    /// for whose completion there would be no room.
    StalledRing,
    /// The reference has the memory for zero copies from the bring-up on; Glia takes it with the first
    /// one of a ring, so that older recordings find host memory as it was.
    LateZeroCopyMemory,
    /// Where the reference cannot reach the caller's memory it answers how many bytes are left, as if that
    /// were a success, and keeps what it has done; Glia answers `EFAULT`.
    UserFault,
    /// The reference answers a kernel address in place of a chunk's handle, leaves the version as it is, and
    /// calls a bad handle a success; Glia answers the handle and version 1, or `EINVAL`.
    ExtendedInfo,
    /// The reference takes kernel memory for as many chunks as the caller speaks of; Glia for as many as
    /// there are.
    ChunkDump,
    /// Of a copy between user memory and HBM the reference moves as many bytes as the low 32 bits of the size
    /// say; Glia moves all.
    BufferCopySize,
    /// The reference adds the offsets of a batch and of its operation in 64 bits and wraps; Glia refuses the
    /// operation.
    BatchOffset,
    /// The reference gives the memory of a ring to the next owner when its chunk is freed, and the engine goes
    /// on reading descriptors there; in Glia a queue holds its ring.
    LiveRing,
    /// The reference has the memory of its datastore from the bring-up on; Glia takes an entry's when it is
    /// used first.
    LateDatastore,
    /// The reference adds target and offset of `PROGRAM_ENGINE` in 64 bits and wraps; Glia refuses the
    /// request.
    ProgramEngineOffset,
    /// The reference lets the queues that a process has asked for outlive it; in Glia they go with it.
    H2tOwner,
    /// A process's queue that keeps its ring when the process goes keeps running in the reference, in memory
    /// that is the next owner's; Glia stops it.
    KeptRunning,
    /// In the reference a process can free the driver's own chunks and the firmware's; Glia refuses, `EPERM`.
    OwnChunks,
    /// The reference finds the buffers by which it does a command for whoever asks by address; Glia does not.
    HiddenBounce,
    /// Driver 2.24.7 lets anybody replace the rings of any queue, 2.27.4 nobody those of one that is set up;
    /// Glia lets its owner.
    TakenQueue,
    /// Commands of which too little is known to answer them; Glia refuses them, `EINVAL`.
    UnknownAnswers,
    /// The reference waits for queues to come to rest when a process goes; in Glia they are at rest at once.
    ExitPause,
    /// The reference can be told to fail the mapping of host memory; Glia cannot.
    MapHook,
}

impl Divergence {
    /// All of them, in the order of the document.
    pub const ALL: [Self; 48] = [
        Self::BoundsWrap,
        Self::HostScratchpad,
        Self::ReserveCounter,
        Self::DeadChunk,
        Self::UnattachedProcess,
        Self::TeardownLeak,
        Self::UnitSize,
        Self::PinnedRange,
        Self::ZeroSize,
        Self::AsyncOversize,
        Self::Timeout,
        Self::RestartInFlight,
        Self::BadPreviousHandle,
        Self::HostFill,
        Self::PlatformScale,
        Self::DegenerateWait,
        Self::LoneCore,
        Self::RetryLimit,
        Self::LostSibling,
        Self::DescriptorWalk,
        Self::RingSize,
        Self::OddRing,
        Self::Assertion,
        Self::UnknownBarrier,
        Self::EngineState,
        Self::KeptOwner,
        Self::KeptRings,
        Self::CrossedCursors,
        Self::MixedZeroCopies,
        Self::EmptyOperation,
        Self::StalledRing,
        Self::LateZeroCopyMemory,
        Self::UserFault,
        Self::ExtendedInfo,
        Self::ChunkDump,
        Self::BufferCopySize,
        Self::BatchOffset,
        Self::LiveRing,
        Self::LateDatastore,
        Self::ProgramEngineOffset,
        Self::H2tOwner,
        Self::KeptRunning,
        Self::OwnChunks,
        Self::HiddenBounce,
        Self::TakenQueue,
        Self::UnknownAnswers,
        Self::ExitPause,
        Self::MapHook,
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
            Self::ZeroSize => "zero-size",
            Self::AsyncOversize => "async-oversize",
            Self::Timeout => "timeout",
            Self::RestartInFlight => "restart-in-flight",
            Self::BadPreviousHandle => "bad-previous-handle",
            Self::HostFill => "host-fill",
            Self::PlatformScale => "platform-scale",
            Self::DegenerateWait => "degenerate-wait",
            Self::LoneCore => "lone-core",
            Self::RetryLimit => "retry-limit",
            Self::LostSibling => "lost-sibling",
            Self::DescriptorWalk => "descriptor-walk",
            Self::RingSize => "ring-size",
            Self::OddRing => "odd-ring",
            Self::Assertion => "assertion",
            Self::UnknownBarrier => "unknown-barrier",
            Self::EngineState => "engine-state",
            Self::KeptOwner => "kept-owner",
            Self::KeptRings => "kept-rings",
            Self::CrossedCursors => "crossed-cursors",
            Self::MixedZeroCopies => "mixed-zero-copies",
            Self::EmptyOperation => "empty-operation",
            Self::StalledRing => "stalled-ring",
            Self::LateZeroCopyMemory => "late-zero-copy-memory",
            Self::UserFault => "user-fault",
            Self::ExtendedInfo => "extended-info",
            Self::ChunkDump => "chunk-dump",
            Self::BufferCopySize => "buffer-copy-size",
            Self::BatchOffset => "batch-offset",
            Self::LiveRing => "live-ring",
            Self::LateDatastore => "late-datastore",
            Self::ProgramEngineOffset => "program-engine-offset",
            Self::H2tOwner => "h2t-owner",
            Self::KeptRunning => "kept-running",
            Self::OwnChunks => "own-chunks",
            Self::HiddenBounce => "hidden-bounce",
            Self::TakenQueue => "taken-queue",
            Self::UnknownAnswers => "unknown-answers",
            Self::ExitPause => "exit-pause",
            Self::MapHook => "map-hook",
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
