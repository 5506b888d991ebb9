//! How far the two sides stand apart.
//!
//! A declared divergence can leave Glia and the reference in different states. What follows is then
//! still replayed and compared, but says little. After a time-out only the ring differs; the bytes
//! in memory are the same. Once a record shows that both have set the ring up afresh, they are
//! together again, provided that the engine moved the same meanwhile.

use std::collections::BTreeSet;

use glia_abi::divergence::Divergence;
use glia_abi::handle::{EngineId, QueueId};

use super::super::judge::Verdict;
use super::super::value::Value;
use super::op::{Call, Op};
use super::trace::Record;

/// Fields that tell what lies in memory.
const MEMORY: [&str; 4] = ["moved", "dst_fnv", "fnv", "hw_errors"];

/// What differs.
#[derive(Debug, Default)]
pub struct Taint {
    /// More than rings.
    everything: bool,
    rings: BTreeSet<QueueId>,
}

impl Taint {
    /// Whether anything does.
    #[must_use]
    pub fn is_tainted(&self) -> bool {
        self.everything || !self.rings.is_empty()
    }

    /// Takes in what a record came to.
    pub fn note(&mut self, record: &Record<'_>, verdict: &Verdict) {
        let is_same = verdict.differences.is_empty();
        if verdict.taints {
            let is_ring = is_same && verdict.divergence == Some(Divergence::Timeout);
            match queue(record).filter(|_| is_ring) {
                Some(queue) => {
                    self.rings.insert(queue);
                }
                None => self.everything = true,
            }
        }
        let is_of_memory = |field: &str| {
            let name = field.split(['.', '[']).next().unwrap_or_default();
            MEMORY.contains(&name)
        };
        if self.is_tainted() && verdict.differences.iter().any(|it| is_of_memory(&it.field)) {
            self.everything = true;
        }
        if let Op::Call(Call::RingInit(queue)) = &record.op
            && is_same
        {
            self.rings.remove(queue);
        }
    }
}

/// The queue that a record shows.
fn queue(record: &Record<'_>) -> Option<QueueId> {
    let Some(Value::Object(queue)) = record.expected.get("queue") else {
        return None;
    };
    let number = |name| match queue.get(name) {
        Some(Value::Int(number)) => u32::try_from(*number).ok(),
        _ => None,
    };
    Some(QueueId::new(EngineId::new(number("eng")?), number("qid")?))
}
