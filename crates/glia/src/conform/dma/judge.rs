//! Whether what the driver did is what the reference did, a declared divergence, or wrong.
//!
//! Everything is compared in full first. What differs is held against the divergences that can
//! explain it, each of which says which defect the record must show, and to the last field what the
//! reference then has where Glia has something else.

use glia_abi::arch::{ArchProfile, WaitTimes};
use glia_abi::divergence::Divergence;
use glia_abi::errno::Errno;
use glia_abi::handle::QueueId;
use glia_abi::udma::{DESC_BYTES_MAX, RING_GAP_DESCS};
use glia_driver::dma::{Awaited, BATCH_BYTES_MAX, Platform, WaitHandle, budget};

use super::super::compare::{Difference, differences};
use super::super::judge::Verdict;
use super::super::value::{Fields, Value};
use super::books::{CONTEXTS, RingBooks};
use super::engine::Side;
use super::log::{ACCESSES_SHOWN_MAX, TimeoutLog, tell_accesses};
use super::session::{Done, context_of, hardware};
use super::trace::Record;

/// What the reference answers to a time-out.
const TIMEOUT_RET: i32 = -1;

/// How many times longer Glia waits under qemu than the reference (2.24.7) does.
const QEMU_PART: i128 = 10;

/// The fields that tell of register accesses.
pub(super) const REGISTERS: [&str; 4] = ["reg_writes", "reg_reads", "reg_fnv", "regs"];

/// Words of a marker buffer that a record shows.
const MARKER_WORDS: usize = 6;

/// What a case is about.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A synchronous copy, or a fill of HBM.
    Sync,
    /// A fill of host memory.
    MemsetHost,
    /// An asynchronous copy.
    Async {
        /// The handle before it; `None` for one that the driver's types do not have.
        previous: Option<WaitHandle>,
        /// Bytes.
        size: u64,
    },
    /// A wait.
    Wait {
        /// For this handle; `None` for one that the driver's types do not have.
        handle: Option<WaitHandle>,
    },
}

/// A record that is to be judged, and how things stood before it.
#[derive(Debug)]
pub struct Case<'a> {
    /// The record.
    pub record: &'a Record<'a>,
    /// What it is about.
    pub kind: Kind,
    /// What the driver runs on.
    pub platform: Platform,
    /// Which contexts were in use.
    pub in_use: [bool; 3],
    /// What the contexts were asked to do.
    pub books: RingBooks,
    /// The queue that the record shows.
    pub queue: QueueId,
    /// Whether the reference has lost its ring.
    pub is_lost_ring: bool,
}

/// Compares a record with nothing to explain.
#[must_use]
pub fn plain(record: &Record<'_>, got: &Fields<'_>) -> Verdict {
    compared(record.name, &record.expected, got)
}

/// Compares an answer with nothing to explain.
#[must_use]
pub fn compared(op: &str, expected: &Fields<'_>, got: &Fields<'_>) -> Verdict {
    wrong(found(op, expected, got))
}

/// All differences. How many lines the reference logged says nothing.
pub(super) fn found(op: &str, expected: &Fields<'_>, got: &Fields<'_>) -> Vec<Difference> {
    let mut found = differences(op, expected, got);
    found.retain(|difference| difference.field != "errors_logged");
    found
}

/// Compares how long a batch is waited for.
#[must_use]
pub fn wait_time(
    record: &Record<'_>,
    profile: &ArchProfile,
    platform: Platform,
    awaited: Awaited,
) -> Verdict {
    let own = budget(&profile.wait, platform, awaited);
    let got = Fields::new()
        .with("first", own.first.0)
        .with("following", own.following.0);
    let differing = found(record.name, &record.expected, &got);
    if differing.is_empty() {
        return Verdict::default();
    }
    if awaited.descs < 2 {
        let accident = underflown(&profile.wait, awaited);
        let differing = found(record.name, &record.expected, &accident);
        return declared_if_none(differing, Divergence::DegenerateWait);
    }
    declared_if_none(
        without_scale(differing, platform),
        Divergence::PlatformScale,
    )
}

/// What the reference's arithmetic makes of fewer than two descriptors.
fn underflown(wait: &WaitTimes, awaited: Awaited) -> Fields<'static> {
    let estimate = wait.desc_us.wrapping_mul(awaited.descs.wrapping_sub(1));
    let estimate = u64::from(estimate);
    let first = if awaited.is_pipelined {
        1
    } else {
        estimate.wrapping_sub(u64::from(wait.early_us))
    };
    let following = estimate
        .wrapping_mul(u64::from(wait.patience))
        .wrapping_sub(first)
        .wrapping_mul(100);
    Fields::new()
        .with("first", first)
        .with("following", following)
}

/// Without the waits that are shorter by just what the reference has less of a factor under qemu.
pub(super) fn without_scale(mut differing: Vec<Difference>, platform: Platform) -> Vec<Difference> {
    let is_scaled = |difference: &Difference| match (&difference.expected, &difference.got) {
        (Some(Value::Int(expected)), Some(Value::Int(got))) => {
            difference.field.ends_with("following") && expected * QEMU_PART == *got
        }
        _ => false,
    };
    if platform == Platform::Qemu {
        differing.retain(|difference| !is_scaled(difference));
    }
    differing
}

impl Case<'_> {
    /// Judges what the driver did.
    #[must_use]
    pub fn judge(&self, done: &Done) -> Verdict {
        let expected = &self.record.expected;
        let differing = self.found(expected, &done.fields);
        if differing.is_empty() {
            return Verdict::default();
        }
        self.retry_limit(done)
            .or_else(|| self.timeout(done))
            .or_else(|| self.lost_sibling(done))
            .or_else(|| self.lone_core(done))
            .or_else(|| self.oversize(done))
            .or_else(|| self.restart(done))
            .or_else(|| self.bad_previous(done))
            .or_else(|| self.host_fill(done))
            .unwrap_or_else(|| {
                declared_if_none(
                    without_scale(differing, self.platform),
                    Divergence::PlatformScale,
                )
            })
    }

    /// Judges what the driver did when it was asked for what the reference did in another way.
    #[must_use]
    pub fn judge_as(&self, divergence: Divergence, done: &Done) -> Verdict {
        let differing = self.found(&self.record.expected, &done.fields);
        declared_if_none(without_scale(differing, self.platform), divergence)
    }

    pub(super) fn found(&self, expected: &Fields<'_>, got: &Fields<'_>) -> Vec<Difference> {
        found(self.record.name, expected, got)
    }

    fn expects(&self, ret: i32) -> bool {
        self.record.expected.get("ret") == Some(&ret.into())
    }

    /// Whether the reference made 64 KiB of nothing, and Glia nothing.
    #[must_use]
    pub fn is_zero_size(&self, done: &Done) -> bool {
        let expected = &self.record.expected;
        let made_a_copy = ["batches", "doorbells", "moved"]
            .iter()
            .any(|name| expected.get(name).is_some());
        let made_nothing = done.log.accesses.is_empty();
        made_a_copy && made_nothing && done.fields.get("ret") == Some(&0.into())
    }

    /// Judges what the driver did when it was asked for what the reference did.
    #[must_use]
    pub fn judge_followed(&self, done: &Done, followed: &Done) -> Verdict {
        let mut fields = followed.fields.clone();
        // Of no bytes there is no hash, however many were moved.
        if done.fields.get("dst_fnv").is_none() {
            fields.take("dst_fnv");
        }
        if let Some(verdict) = self.timeout(followed) {
            return verdict;
        }
        let differing = self.found(&self.record.expected, &fields);
        declared_if_none(
            without_scale(differing, self.platform),
            Divergence::ZeroSize,
        )
    }

    /// The reference made 64 KiB of nothing, and that cannot be followed.
    #[must_use]
    pub fn declared_zero_size(&self) -> Verdict {
        declared_and_tainting(Divergence::ZeroSize)
    }

    /// The reference leaves everything as it is after a time-out; Glia sets the ring up afresh.
    fn timeout(&self, done: &Done) -> Option<Verdict> {
        let timeout = done.log.timeout.as_ref()?;
        if !done.has_timed_out {
            return None;
        }
        let mut accident = done.fields.clone();
        for name in REGISTERS {
            accident.take(name);
        }
        let accesses = done.log.accesses.get(..timeout.accesses)?;
        tell_accesses(accesses, ACCESSES_SHOWN_MAX, &mut accident);
        *accident.get_mut("ret")? = TIMEOUT_RET.into();
        let queue = self.queue_after_timeout(done, timeout);
        *accident.get_mut("queue")? = queue.into();
        let mut differing =
            without_scale(self.found(&self.record.expected, &accident), self.platform);
        if let Some(ret) = differing.iter_mut().find(|found| found.field == "ret") {
            ret.got = done.fields.get("ret").cloned();
            ret.note = Some(format!("by timeout the reference's is {TIMEOUT_RET}"));
        }
        differing.extend(not_afresh(&done.fields, &timeout.sides));
        Some(tainting(declared_if_none(differing, Divergence::Timeout)))
    }

    /// How the reference leaves a queue on which a wait timed out.
    fn queue_after_timeout(&self, done: &Done, timeout: &TimeoutLog) -> Fields<'static> {
        let released = match self.kind {
            Kind::Sync | Kind::MemsetHost => [None, None],
            Kind::Async { previous, .. } => [previous, previous.map(WaitHandle::next)],
            Kind::Wait { handle } => [handle, None],
        };
        let mut in_use = self.in_use;
        for handle in released.into_iter().flatten() {
            if let Some(in_use) = in_use.get_mut(context_of(handle)) {
                *in_use = false;
            }
        }
        let own = match done.fields.get("queue") {
            Some(Value::Object(own)) => own.clone(),
            _ => Fields::new(),
        };
        let ctx = match own.get("ctx") {
            Some(Value::List(contexts)) => contexts.iter().zip(in_use).map(with_in_use).collect(),
            _ => Value::Null,
        };
        let [tx, rx] = &timeout.sides;
        Fields::new()
            .with("eng", timeout.queue.engine.get())
            .with("qid", timeout.queue.number)
            .with("tx", software(tx))
            .with("rx", software(rx))
            .with("hw_tx", hardware(tx))
            .with("hw_rx", hardware(rx))
            .with("ctx", ctx)
            .with(
                "marker",
                timeout.marker.iter().copied().collect::<Value<'_>>(),
            )
    }

    /// The reference still shows the books of a ring that it has lost.
    fn lone_core(&self, done: &Done) -> Option<Verdict> {
        if !self.is_lost_ring {
            return None;
        }
        let mut accident = done.fields.clone();
        let Some(Value::Object(queue)) = accident.get_mut("queue") else {
            return None;
        };
        queue.push("ctx", done.books.tell([false; CONTEXTS]));
        queue.push(
            "marker",
            [0; MARKER_WORDS].into_iter().collect::<Value<'_>>(),
        );
        let differing = self.found(&self.record.expected, &accident);
        Some(declared_if_none(differing, Divergence::LoneCore))
    }

    /// The reference finds an asynchronous copy too large after its first batch; Glia before.
    fn oversize(&self, done: &Done) -> Option<Verdict> {
        let Kind::Async { previous, size } = self.kind else {
            return None;
        };
        let is_oversize = previous != Some(WaitHandle::Sync) && size > BATCH_BYTES_MAX;
        if !is_oversize || !done.log.is_empty() {
            return None;
        }
        let shown = Fields::new()
            .with("ret", Errno::EINVAL.ret())
            .with("batches[0].built", BATCH_BYTES_MAX / DESC_BYTES_MAX + 1);
        let expected = Fields::new()
            .with("ret", self.record.expected.get("ret")?.clone())
            .with("batches[0].built", first_built(&self.record.expected)?);
        let differing = self.found(&expected, &shown);
        Some(tainting(declared_if_none(
            differing,
            Divergence::AsyncOversize,
        )))
    }

    /// The reference stages over a copy that is under way; Glia waits for that one first.
    fn restart(&self, done: &Done) -> Option<Verdict> {
        let Kind::Async {
            previous: Some(WaitHandle::None),
            ..
        } = self.kind
        else {
            return None;
        };
        let is_restart = self.in_use[context_of(WaitHandle::Async1)];
        if !is_restart || done.log.waits.len() != 1 || !self.expects(0) {
            return None;
        }
        let mut accident = done.fields.clone();
        let mut expected = self.record.expected.clone();
        // Where the two stand afterwards depends on what became of the first copy.
        for name in ["moved", "queue", "dst_fnv"] {
            accident.take(name);
            expected.take(name);
        }
        accident.take("waits");
        if done.log.timeout.is_some() {
            for name in REGISTERS.into_iter().chain(["batches"]) {
                accident.take(name);
                expected.take(name);
            }
        }
        *accident.get_mut("t")? = [done.start_us; 2].into_iter().collect();
        if let Some(Value::List(batches)) = accident.get_mut("batches") {
            for batch in batches {
                if let Value::Object(batch) = batch
                    && let Some(at) = batch.get_mut("at")
                {
                    *at = done.start_us.into();
                }
            }
        }
        let differing = self.found(&expected, &accident);
        Some(tainting(declared_if_none(
            differing,
            Divergence::RestartInFlight,
        )))
    }

    /// The reference forgets a copy under way whose context a refused copy would have had.
    fn bad_previous(&self, done: &Done) -> Option<Verdict> {
        let Kind::Async {
            previous: Some(previous @ (WaitHandle::Async1 | WaitHandle::Async2)),
            size,
        } = self.kind
        else {
            return None;
        };
        let (old, new) = (context_of(previous), context_of(previous.next()));
        if self.in_use[old] || !self.in_use[new] || !self.expects(Errno::EINVAL.ret()) {
            return None;
        }
        let mut books = self.books.clone();
        books.enter(new, &[size]);
        let mut in_use = self.in_use;
        in_use[new] = false;
        let mut accident = done.fields.clone();
        let Some(Value::Object(queue)) = accident.get_mut("queue") else {
            return None;
        };
        *queue.get_mut("ctx")? = books.tell(in_use);
        let differing = self.found(&self.record.expected, &accident);
        Some(tainting(declared_if_none(
            differing,
            Divergence::BadPreviousHandle,
        )))
    }

    /// The reference fills host memory by DMA; Glia plainly.
    fn host_fill(&self, done: &Done) -> Option<Verdict> {
        let is_plain = matches!(self.kind, Kind::MemsetHost) && done.log.is_empty();
        if !is_plain || self.record.expected.get("batches").is_none() {
            return None;
        }
        let picked = |fields: &Fields<'_>| {
            let pick = |name: &'static str| Some((name, fields.get(name)?.clone().into_owned()));
            let mut picked = Fields::new();
            for (name, value) in ["ret", "dst_fnv"].into_iter().filter_map(pick) {
                picked.push(name, value);
            }
            picked
        };
        let differing = self.found(&picked(&self.record.expected), &picked(&done.fields));
        Some(tainting(declared_if_none(differing, Divergence::HostFill)))
    }
}

/// What shows that Glia did not set a ring up afresh.
pub(super) fn not_afresh(own: &Fields<'static>, [tx, rx]: &[Side; 2]) -> Option<Difference> {
    let fresh = |side: &Side| software(&side.afresh());
    let afresh = Fields::new().with("tx", fresh(tx)).with("rx", fresh(rx));
    let queue = match own.get("queue") {
        Some(Value::Object(queue)) => Fields::new()
            .with("tx", queue.get("tx")?.clone())
            .with("rx", queue.get("rx")?.clone()),
        _ => return None,
    };
    let difference = Difference {
        note: Some("after a time-out Glia sets the ring up afresh".to_owned()),
        ..Difference::new(
            "queue",
            Some(&afresh.clone().into()),
            Some(&queue.clone().into()),
        )
    };
    (queue != afresh).then_some(difference)
}

/// The number of pairs in a record's only batch.
fn first_built<'a>(expected: &Fields<'a>) -> Option<Value<'a>> {
    match expected.get("batches") {
        Some(Value::List(batches)) => match batches.as_slice() {
            [Value::Object(batch)] => batch.get("built").cloned(),
            _ => None,
        },
        _ => None,
    }
}

/// A context's numbers behind another word on whether it is in use.
fn with_in_use((context, in_use): (&Value<'static>, bool)) -> Value<'static> {
    match context {
        Value::List(numbers) => {
            let rest = numbers.iter().skip(1).cloned();
            Value::List(
                std::iter::once(u32::from(in_use).into())
                    .chain(rest)
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// A driver's view of a ring that has taken what the engine was told of.
fn software(side: &Side) -> Fields<'static> {
    let mask = side.descs.wrapping_sub(1);
    let first_of_gap = side.tail.slot.wrapping_add(RING_GAP_DESCS);
    Fields::new()
        .with("next", side.tail.slot)
        .with("acked", side.acked)
        .with("ring_id", side.tail.ring_id)
        .with("avail", side.acked.wrapping_sub(first_of_gap) & mask)
}

/// The record is as declared, and the two sides part.
#[must_use]
pub fn declared_and_tainting(divergence: Divergence) -> Verdict {
    tainting(declared(divergence))
}

fn declared(divergence: Divergence) -> Verdict {
    Verdict {
        divergence: Some(divergence),
        ..Verdict::default()
    }
}

pub(super) fn declared_if_none(differences: Vec<Difference>, divergence: Divergence) -> Verdict {
    if differences.is_empty() {
        declared(divergence)
    } else {
        wrong(differences)
    }
}

pub(super) fn tainting(verdict: Verdict) -> Verdict {
    Verdict {
        taints: true,
        ..verdict
    }
}

pub(super) fn wrong(differences: Vec<Difference>) -> Verdict {
    Verdict {
        differences,
        ..Verdict::default()
    }
}
