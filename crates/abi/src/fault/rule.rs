//! What a plan consists of: rules, each with its kind, whom it is about, and how often it strikes.

use super::{FaultPoint, PairAt, PairFault, Scope};
use crate::handle::{CoreId, DeviceId, EngineId, Pid, QueueId};
use crate::sched::Micros;
use crate::udma::{DESC_BYTES_MAX, MARKER_SIZE_BYTES};

/// The longest delay that can be ordered: an hour, which no driver waits.
// LIMIT: so that no sum of times wraps.
pub const DELAY_MAX: Micros = Micros(3_600_000_000);

/// Kernel memory of the driver that can be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InternalAlloc {
    /// At the head of an allocation.
    Request,
    /// A chunk record.
    ChunkRecord,
    /// The handle table, at bring-up.
    HandleTable,
    /// A further page of the handle table.
    HandlePage,
    /// An arena or its bookkeeping, at bring-up.
    Pool,
}

/// What fails. An *opportunity* is what a rule of this kind counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A batch that is announced while its device, or any core of it, is being reset never runs (a
    /// defect of chip V2).
    /// Opportunity: such a batch.
    ResetHang,
    /// The queue stops without a word. Opportunity: a batch.
    StuckQueue,
    /// The marker is not written. Opportunity: a batch's marker.
    LostMarker,
    /// The marker is written later. Opportunity: a batch's marker.
    LateMarker {
        /// By how much.
        delay: Micros,
    },
    /// The queue stops without a word after so many pairs of a batch. Opportunity: a batch that has
    /// more.
    PartialBatch {
        /// Pairs that are executed.
        pairs: u64,
    },
    /// Bits of what was moved are inverted. Opportunity: a data pair that moves the first of these
    /// bytes.
    FlippedBits {
        /// The first such byte, from the start of what the pair wrote.
        offset_bytes: u64,
        /// How many bytes; as many as there are, if there are fewer.
        size_bytes: u64,
        /// Which bits of each.
        mask: u8,
    },
    /// The head moves past the pair later. Opportunity: a data pair.
    DelayedRetirement {
        /// By how much.
        delay: Micros,
    },
    /// A DMA abort. Opportunity: a data pair.
    DmaAbort,
    /// An uncorrectable error of HBM. Opportunity: a data pair that reads HBM.
    UncorrectableHbm,
    /// User pages cannot be pinned. Opportunity: a pin.
    FailedPin,
    /// The machine has no coherent host memory. Opportunity: a request for some.
    FailedHostAlloc,
    /// The driver gets no kernel memory. Opportunity: such a request.
    FailedInternalAlloc(InternalAlloc),
    /// Pinned pages lie scattered. Opportunity: a pin.
    FragmentedPages,
    /// All handles are taken. Opportunity: a handle.
    ExhaustedHandles,
    /// The ring has no room. Opportunity: a batch.
    ExhaustedRing,
    /// All process slots are taken. Opportunity: a process that attaches.
    ExhaustedProcessSlots,
}

impl FaultKind {
    /// Its name in plan files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ResetHang => "reset-hang",
            Self::StuckQueue => "stuck-queue",
            Self::LostMarker => "lost-marker",
            Self::LateMarker { .. } => "late-marker",
            Self::PartialBatch { .. } => "partial-batch",
            Self::FlippedBits { .. } => "flipped-bits",
            Self::DelayedRetirement { .. } => "delayed-retirement",
            Self::DmaAbort => "dma-abort",
            Self::UncorrectableHbm => "uncorrectable-hbm",
            Self::FailedPin => "failed-pin",
            Self::FailedHostAlloc => "failed-host-alloc",
            Self::FailedInternalAlloc(_) => "failed-internal-alloc",
            Self::FragmentedPages => "fragmented-pages",
            Self::ExhaustedHandles => "exhausted-handles",
            Self::ExhaustedRing => "exhausted-ring",
            Self::ExhaustedProcessSlots => "exhausted-process-slots",
        }
    }

    /// The point at which it is asked about; `None` if an engine asks.
    #[must_use]
    pub const fn point(self) -> Option<FaultPoint> {
        match self {
            Self::FailedPin => Some(FaultPoint::Pin),
            Self::FailedHostAlloc => Some(FaultPoint::HostMemory),
            Self::FailedInternalAlloc(InternalAlloc::Request) => Some(FaultPoint::Alloc),
            Self::FailedInternalAlloc(InternalAlloc::ChunkRecord) => Some(FaultPoint::ChunkRecord),
            Self::FailedInternalAlloc(InternalAlloc::HandleTable) => Some(FaultPoint::HandleTable),
            Self::FailedInternalAlloc(InternalAlloc::HandlePage) => Some(FaultPoint::HandlePage),
            Self::FailedInternalAlloc(InternalAlloc::Pool) => Some(FaultPoint::Pool),
            Self::FragmentedPages => Some(FaultPoint::ScatteredPages),
            Self::ExhaustedHandles => Some(FaultPoint::HandleCell),
            Self::ExhaustedRing => Some(FaultPoint::RingRoom),
            Self::ExhaustedProcessSlots => Some(FaultPoint::ProcessSlot),
            Self::ResetHang
            | Self::StuckQueue
            | Self::LostMarker
            | Self::LateMarker { .. }
            | Self::PartialBatch { .. }
            | Self::FlippedBits { .. }
            | Self::DelayedRetirement { .. }
            | Self::DmaAbort
            | Self::UncorrectableHbm => None,
        }
    }

    /// What it does to a pair; `None` if the pair is no opportunity for it.
    pub(super) fn at_pair(self, at: &PairAt) -> Option<PairFault> {
        let is_first = at.in_batch == 0;
        let is_marker = at.is_last && at.size_bytes == MARKER_SIZE_BYTES;
        match self {
            Self::ResetHang => (is_first && at.in_reset).then_some(PairFault::Hang),
            Self::StuckQueue => is_first.then_some(PairFault::Hang),
            Self::PartialBatch { pairs } => (at.in_batch == pairs).then_some(PairFault::Hang),
            Self::LostMarker => is_marker.then_some(PairFault::Lost),
            Self::LateMarker { delay } => is_marker.then_some(PairFault::Late(delay)),
            Self::FlippedBits {
                offset_bytes,
                size_bytes,
                mask,
            } => (!is_marker && offset_bytes < at.size_bytes).then_some(PairFault::Flipped {
                offset_bytes,
                size_bytes,
                mask,
            }),
            Self::DelayedRetirement { delay } => {
                (!is_marker).then_some(PairFault::RetiredLate(delay))
            }
            Self::DmaAbort => (!is_marker).then_some(PairFault::Abort),
            Self::UncorrectableHbm => {
                (!is_marker && at.reads_hbm).then_some(PairFault::Uncorrectable)
            }
            Self::FailedPin
            | Self::FailedHostAlloc
            | Self::FailedInternalAlloc(_)
            | Self::FragmentedPages
            | Self::ExhaustedHandles
            | Self::ExhaustedRing
            | Self::ExhaustedProcessSlots => None,
        }
    }

    /// # Errors
    /// What would never do anything.
    fn check(self) -> Result<(), PlanError> {
        match self {
            Self::LateMarker { delay } | Self::DelayedRetirement { delay } => match delay {
                Micros(0) => Err(PlanError::Zero("delay_us")),
                delay if delay > DELAY_MAX => Err(PlanError::Delay(delay)),
                _ => Ok(()),
            },
            Self::PartialBatch { pairs: 0 } => Err(PlanError::Zero("pairs")),
            Self::FlippedBits { size_bytes: 0, .. } => Err(PlanError::Zero("size_bytes")),
            Self::FlippedBits { mask: 0, .. } => Err(PlanError::Zero("mask")),
            Self::FlippedBits { offset_bytes, .. } if offset_bytes >= DESC_BYTES_MAX => {
                Err(PlanError::Offset(offset_bytes))
            }
            _ => Ok(()),
        }
    }
}

/// What a rule is about; what is `None` does not matter. What is asked for and not known of an
/// attempt does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Matching {
    /// The device.
    pub device: Option<DeviceId>,
    /// The engine: engines' faults only.
    pub engine: Option<EngineId>,
    /// The number of the queue in its engine: engines' faults only.
    pub queue: Option<u32>,
    /// The core for which the driver works.
    pub core: Option<CoreId>,
    /// The process for which the driver works.
    pub process: Option<Pid>,
    /// The command word under which the driver works.
    pub command: Option<u32>,
}

impl Matching {
    pub(super) fn scope(&self, scope: Scope) -> bool {
        fn fits<T: PartialEq>(wanted: Option<T>, found: Option<T>) -> bool {
            wanted.is_none() || wanted == found
        }
        fits(self.device, scope.device)
            && fits(self.core, scope.core)
            && fits(self.process, scope.process)
            && fits(self.command, scope.command)
    }

    pub(super) fn queue(&self, queue: QueueId) -> bool {
        self.engine.is_none_or(|engine| engine == queue.engine)
            && self.queue.is_none_or(|number| number == queue.number)
    }
}

/// At which of its opportunities a rule strikes; every condition must hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trigger {
    /// Not at the first so many.
    pub after: u64,
    /// Only at every so-maniest of those that are left, the first of them included.
    pub every: Option<u64>,
    /// Only at this one of those that are left, counted from 1.
    pub nth: Option<u64>,
    /// Only with this probability, 0 to 1.
    pub probability: Option<f64>,
    /// At most so often.
    pub count: Option<u64>,
    /// Once it has struck, it strikes at every opportunity, up to the count.
    pub sticky: bool,
}

impl Trigger {
    /// At every opportunity.
    pub const ALWAYS: Self = Self {
        after: 0,
        every: None,
        nth: None,
        probability: None,
        count: None,
        sticky: false,
    };

    /// At the `nth` opportunity, counted from 1.
    #[must_use]
    pub const fn nth(nth: u64) -> Self {
        Self {
            nth: Some(nth),
            ..Self::ALWAYS
        }
    }

    /// Whether chance alone decides at the opportunity that comes after so many.
    pub(super) fn is_due(&self, before: u64) -> bool {
        before.checked_sub(self.after).is_some_and(|left| {
            self.every.is_none_or(|every| left.is_multiple_of(every))
                && self.nth.is_none_or(|nth| left == nth - 1)
        })
    }

    /// # Errors
    /// What cannot be meant.
    fn check(&self) -> Result<(), PlanError> {
        let Self {
            every,
            nth,
            probability,
            count,
            ..
        } = *self;
        for (name, value) in [("every", every), ("nth", nth), ("count", count)] {
            if value == Some(0) {
                return Err(PlanError::Zero(name));
            }
        }
        if let (Some(every), Some(nth)) = (every, nth)
            && !(nth - 1).is_multiple_of(every)
        {
            return Err(PlanError::Never { every, nth });
        }
        match probability {
            Some(chance) if !(0.0..=1.0).contains(&chance) => Err(PlanError::Probability(chance)),
            _ => Ok(()),
        }
    }
}

/// What fails, whose, and how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultRule {
    /// What.
    pub kind: FaultKind,
    /// Whose.
    pub matching: Matching,
    /// How often.
    pub trigger: Trigger,
}

impl FaultRule {
    /// Always, whoever it is.
    #[must_use]
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            matching: Matching::default(),
            trigger: Trigger::ALWAYS,
        }
    }

    /// Whether the rule makes sense, on whatever machine.
    ///
    /// # Errors
    /// What cannot be meant.
    pub fn check(&self) -> Result<(), PlanError> {
        let Matching { engine, queue, .. } = self.matching;
        if self.kind.point().is_some() && (engine.is_some() || queue.is_some()) {
            return Err(PlanError::NoQueue(self.kind));
        }
        self.kind.check()?;
        self.trigger.check()
    }
}

/// A rule that cannot be meant.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// What must be at least 1.
    #[error("`{0}` is 0 and has to be at least 1")]
    Zero(&'static str),
    /// No probability.
    #[error("`probability` is {0} and has to be from 0 to 1")]
    Probability(f64),
    /// Two conditions that never hold together.
    #[error("`nth` = {nth} is never one of `every` = {every}, whose first is 1")]
    Never {
        /// Every so-maniest.
        every: u64,
        /// This one.
        nth: u64,
    },
    /// A delay that is too long.
    #[error("`delay_us` is {} and can be at most {}", .0.0, DELAY_MAX.0)]
    Delay(Micros),
    /// No descriptor moves so many bytes.
    #[error(
        "`offset_bytes` is {0}, and a descriptor moves at most {max} bytes",
        max = DESC_BYTES_MAX
    )]
    Offset(u64),
    /// A fault that has no queue.
    #[error("`{}` happens at no engine, so it can have neither `engine` nor `queue`", .0.name())]
    NoQueue(FaultKind),
}
