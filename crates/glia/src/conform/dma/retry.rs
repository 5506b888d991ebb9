//! Copies that a reset has disturbed, where the reference tries them again in another way.

use glia_abi::divergence::Divergence;

use super::super::judge::Verdict;
use super::super::value::{Fields, Value};
use super::judge::{Case, REGISTERS, declared_if_none, not_afresh, tainting, without_scale};
use super::session::Done;

/// How often Glia waits for a batch that resets disturb.
const WAITS_MAX: usize = 4;

impl Case<'_> {
    /// The reference tries for ever; Glia a few times.
    pub(super) fn retry_limit(&self, done: &Done) -> Option<Verdict> {
        let Some(Value::List(waits)) = self.record.expected.get("waits") else {
            return None;
        };
        let own_waits = done.log.waits.len();
        if !done.has_timed_out || own_waits < WAITS_MAX || own_waits >= waits.len() {
            return None;
        }
        let started = |t: &Value<'_>| match t {
            Value::List(times) => times.first().cloned().map(Value::into_owned),
            _ => None,
        };
        let tried = |fields: &Fields<'_>| {
            let mut tried = Fields::new();
            let lists = [("waits", own_waits), ("batches", done.log.batches.len())];
            for (name, count) in lists {
                if let Some(Value::List(items)) = fields.get(name) {
                    let items = items.iter().take(count).cloned().map(Value::into_owned);
                    tried.push(name, Value::List(items.collect()));
                }
            }
            if let Some(start) = fields.get("t").and_then(started) {
                tried.push("t[0]", start);
            }
            tried
        };
        let differing = self.found(&tried(&self.record.expected), &tried(&done.fields));
        let mut differing = without_scale(differing, self.platform);
        let sides = &done.log.timeout.as_ref()?.sides;
        differing.extend(not_afresh(&done.fields, sides));
        Some(tainting(declared_if_none(
            differing,
            Divergence::RetryLimit,
        )))
    }

    /// The reference stages again what was waited for and its successor; Glia all that was under
    /// way.
    pub(super) fn lost_sibling(&self, done: &Done) -> Option<Verdict> {
        let Some(Value::List(batches)) = self.record.expected.get("batches") else {
            return None;
        };
        let own = match done.fields.get("batches") {
            Some(Value::List(own)) if own.len() > batches.len() => own,
            _ => return None,
        };
        if !has_retried(&self.record.expected) || done.has_timed_out {
            return None;
        }
        let mut accident = done.fields.clone();
        let mut expected = self.record.expected.clone();
        for name in REGISTERS.into_iter().chain(["doorbells", "moved", "queue"]) {
            accident.take(name);
            expected.take(name);
        }
        // Of Glia's batches, those that the reference has, too.
        let mut left = batches.iter().peekable();
        let shared = own.iter().filter_map(|own| {
            let theirs = left.peek()?;
            is_same_batch(own, theirs).then(|| left.next().cloned().map(Value::into_owned))?
        });
        let shared: Vec<_> = shared.collect();
        *accident.get_mut("batches")? = Value::List(shared);
        let differing = self.found(&expected, &accident);
        let differing = without_scale(differing, self.platform);
        Some(tainting(declared_if_none(
            differing,
            Divergence::LostSibling,
        )))
    }
}

/// Whether the reference tried a batch again: a wait that timed out was not its last one.
fn has_retried(expected: &Fields<'_>) -> bool {
    let Some(Value::List(waits)) = expected.get("waits") else {
        return false;
    };
    let has_timed_out = |wait: &Value<'_>| match wait {
        Value::Object(wait) => match (wait.get("following"), wait.get("polls")) {
            (Some(Value::Int(following)), Some(Value::Int(polls))) => *polls == following + 2,
            _ => false,
        },
        _ => false,
    };
    waits
        .split_last()
        .is_some_and(|(_, earlier)| earlier.iter().any(has_timed_out))
}

/// Whether two batches moved the same, wherever in the ring they stand and whatever became of them.
fn is_same_batch(one: &Value<'_>, other: &Value<'_>) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else {
        return false;
    };
    ["eng", "qid", "at", "built", "fnv"]
        .into_iter()
        .all(|name| one.get(name) == other.get(name))
}
