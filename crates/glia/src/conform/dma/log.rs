//! What the driver did during one operation, in the trace's words.

use glia_abi::handle::QueueId;
use glia_abi::sched::Micros;
use glia_abi::udma::Direction;

use super::super::value::{Fields, Value};
use super::books::RingBooks;
use super::content::{FNV_OFFSET, fnv_bytes};
use super::engine::{Handed, Mode, Pair, Side};

/// Pairs of a batch that are written out in full.
const PAIRS_SHOWN_MAX: usize = 6;
/// Of a longer batch: so many from its start,
const HEAD_PAIRS: usize = 2;
/// and so many from its end.
const TAIL_PAIRS: usize = 3;
/// Register accesses that are written out, unless all are.
pub const ACCESSES_SHOWN_MAX: usize = 64;

/// A register access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Offset in BAR0.
    pub at: u64,
    /// What was written, or read.
    pub value: u32,
    /// A write.
    pub is_write: bool,
    /// The doorbell that it was.
    pub doorbell: Option<(QueueId, Direction)>,
}

/// A batch that was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchLog {
    /// When, in microseconds.
    pub at_us: u64,
    /// What it was.
    pub handed: Handed,
}

/// A wait for a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLog {
    /// Descriptors waited for, by the driver's own books; 0 until it has told which batch it was.
    pub count: u32,
    /// Whether another batch was staged behind it by the same operation.
    pub is_pipelined: bool,
    /// The delay before the first look.
    pub first: Micros,
    /// From there on, as the driver asked for it.
    pub following: Micros,
    /// Looks.
    pub polls: u64,
    /// When it began, in microseconds.
    pub at_us: u64,
}

/// How a queue stood when a wait on it ended without a marker, before the driver did anything about
/// that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutLog {
    /// Which queue.
    pub queue: QueueId,
    /// TX and RX.
    pub sides: [Side; 2],
    /// The words of the marker buffer.
    pub marker: Vec<u32>,
    /// Register accesses of the operation up to then.
    pub accesses: usize,
}

/// Everything.
#[derive(Debug, Default)]
pub struct Log {
    /// Register accesses, in order.
    pub accesses: Vec<Access>,
    /// Batches, in order.
    pub batches: Vec<BatchLog>,
    /// Waits, in order.
    pub waits: Vec<WaitLog>,
    /// The last wait that ended without a marker.
    pub timeout: Option<TimeoutLog>,
    /// Bytes that the engine moved.
    pub moved_bytes: u64,
    /// Faults of the engine.
    pub faults: Vec<&'static str>,
}

impl Log {
    /// Whether nothing happened at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
            && self.batches.is_empty()
            && self.waits.is_empty()
            && self.moved_bytes == 0
            && self.faults.is_empty()
    }

    /// The last wait was for the batch in this context.
    pub fn count_wait(&mut self, books: &RingBooks, context: usize) {
        if let Some(wait) = self.waits.last_mut() {
            wait.count = books.pending(context);
            wait.is_pipelined = books.has_staged_elsewhere(context);
        }
    }

    /// Adds the fields of waits, batches, doorbells, bytes moved and faults, each if there were
    /// any.
    pub fn tell(&self, fields: &mut Fields<'static>) {
        if !self.waits.is_empty() {
            fields.push("waits", self.told_waits());
        }
        if !self.batches.is_empty() {
            let batches: Value<'_> = self.batches.iter().map(batch).collect();
            fields.push("batches", batches);
        }
        let doorbells: Vec<Value<'_>> = self.accesses.iter().filter_map(doorbell).collect();
        if !doorbells.is_empty() {
            fields.push("doorbells", Value::List(doorbells));
        }
        if self.moved_bytes > 0 {
            fields.push("moved", self.moved_bytes);
        }
        if let Some(&last) = self.faults.last() {
            let count = self.faults.len() as u64;
            fields.push("hw_errors", Value::List(vec![count.into(), last.into()]));
        }
    }

    /// The waits.
    #[must_use]
    pub fn told_waits(&self) -> Value<'static> {
        self.waits.iter().map(wait).collect()
    }

    /// Adds the fields of register accesses, if there were others than doorbells.
    pub fn tell_registers(&self, fields: &mut Fields<'static>) {
        tell_accesses(&self.accesses, ACCESSES_SHOWN_MAX, fields);
    }
}

/// Adds the fields of these register accesses, if there are others than doorbells, and writes them
/// out if they are no more than `shown_max`.
pub fn tell_accesses(accesses: &[Access], shown_max: usize, fields: &mut Fields<'static>) {
    if accesses.iter().all(|access| access.doorbell.is_some()) {
        return;
    }
    let writes = accesses.iter().filter(|access| access.is_write);
    let count = writes.clone().count() as u64;
    fields.push("reg_writes", count);
    fields.push("reg_reads", accesses.len() as u64 - count);
    let hash = writes.fold(FNV_OFFSET, |state, access| {
        // CAST: offsets of BAR0 have 32 bits.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let at = access.at as u32;
        fnv_bytes(
            fnv_bytes(state, &at.to_le_bytes()),
            &access.value.to_le_bytes(),
        )
    });
    fields.push("reg_fnv", hash_text(hash));
    if accesses.len() <= shown_max {
        let shown = accesses.iter().map(|access| {
            let kind = if access.is_write { "w" } else { "r" };
            Value::List(vec![
                kind.into(),
                hex(access.at).into(),
                hex(access.value.into()).into(),
            ])
        });
        fields.push("regs", shown.collect::<Value<'_>>());
    }
}

fn wait(wait: &WaitLog) -> Fields<'static> {
    Fields::new()
        .with("count", wait.count)
        .with("async", u32::from(wait.is_pipelined))
        .with("first", wait.first.0)
        .with("following", wait.following.0)
        .with("polls", wait.polls)
        .with("at", wait.at_us)
}

fn batch(batch: &BatchLog) -> Fields<'static> {
    let Handed { queue, mode, pairs } = &batch.handed;
    let mut fields = Fields::new()
        .with("eng", queue.engine.get())
        .with("qid", queue.number)
        .with("at", batch.at_us)
        .with("engine", mode_text(*mode))
        .with("built", pairs.len() as u64)
        .with("fnv", hash_text(pairs_hash(pairs)));
    if pairs.len() <= PAIRS_SHOWN_MAX {
        fields.push("pairs", pairs.iter().map(pair).collect::<Value<'_>>());
    } else {
        let (head, tail) = (&pairs[..HEAD_PAIRS], &pairs[pairs.len() - TAIL_PAIRS..]);
        fields.push("head", head.iter().map(pair).collect::<Value<'_>>());
        fields.push("tail", tail.iter().map(pair).collect::<Value<'_>>());
    }
    let changes = ring_id_changes(pairs);
    if !changes.is_empty() {
        fields.push("ring_id_change", Value::List(changes));
    }
    fields
}

fn mode_text(mode: Mode) -> String {
    match mode {
        Mode::Normal => "normal".to_owned(),
        Mode::Late(late_us) => format!("late:{late_us}"),
        Mode::Hang => "hang".to_owned(),
    }
}

/// Pairs that were put into a ring and not announced.
#[must_use]
pub fn unannounced(pairs: &[Pair]) -> Fields<'static> {
    Fields::new()
        .with("built", pairs.len() as u64)
        .with("fnv", hash_text(pairs_hash(pairs)))
        .with("pairs", pairs.iter().map(pair).collect::<Value<'_>>())
}

fn pairs_hash(pairs: &[Pair]) -> u64 {
    let words = pairs
        .iter()
        .flat_map(|pair| pair.tx.into_iter().chain(pair.rx));
    words.fold(FNV_OFFSET, |state, word| {
        fnv_bytes(state, &word.to_le_bytes())
    })
}

/// `[slot, descriptor, slot, descriptor]`, TX first.
fn pair(pair: &Pair) -> Value<'static> {
    Value::List(vec![
        pair.tx_slot.into(),
        desc_text(pair.tx).into(),
        pair.rx_slot.into(),
        desc_text(pair.rx).into(),
    ])
}

fn desc_text([len_ctrl, word1, low, high]: [u32; 4]) -> String {
    format!("{len_ctrl:08x}:{word1:08x}:{high:08x}{low:08x}")
}

/// `[index of the first pair of a lap, lap before, lap]`, by the TX descriptors.
fn ring_id_changes(pairs: &[Pair]) -> Vec<Value<'static>> {
    let ring_id = |pair: &Pair| (pair.tx[0] >> 24) & 3;
    let places = (1_u64..).zip(pairs.windows(2));
    places
        .filter_map(|(index, pairs)| {
            let (before, after) = (ring_id(pairs.first()?), ring_id(pairs.last()?));
            let change = || Value::List(vec![index.into(), before.into(), after.into()]);
            (before != after).then(change)
        })
        .collect()
}

fn doorbell(access: &Access) -> Option<Value<'static>> {
    let (queue, direction) = access.doorbell.filter(|_| access.is_write)?;
    Some(Value::List(vec![
        direction.name().into(),
        queue.engine.get().into(),
        queue.number.into(),
        access.value.into(),
        hex(access.at).into(),
    ]))
}

/// An address or a register's value.
#[must_use]
pub fn hex(number: u64) -> String {
    format!("{number:x}")
}

/// A hash.
#[must_use]
pub fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use glia_abi::handle::EngineId;

    use super::*;

    fn pairs(count: u32, first_of_lap: u32) -> Vec<Pair> {
        let pair = |slot: u32| Pair {
            tx_slot: slot,
            tx: [
                if slot < first_of_lap {
                    0x0d00_0000
                } else {
                    0x0e00_0000
                },
                1,
                2,
                3,
            ],
            rx_slot: slot,
            rx: [0; 4],
        };
        (0..count).map(pair).collect()
    }

    fn told(pairs: Vec<Pair>) -> Fields<'static> {
        batch(&BatchLog {
            at_us: 9,
            handed: Handed {
                queue: QueueId::new(EngineId::new(33), 0),
                mode: Mode::Late(5),
                pairs,
            },
        })
    }

    #[test]
    fn a_short_batch_is_written_out() {
        let fields = told(pairs(6, 9));
        let Some(Value::List(shown)) = fields.get("pairs") else {
            panic!("no pairs");
        };
        assert_eq!(
            shown[5].to_string(),
            r#"[5,"0d000000:00000001:0000000300000002",5,"00000000:00000000:0000000000000000"]"#
        );
        assert_eq!(fields.get("engine"), Some(&"late:5".into()));
        assert_eq!(fields.get("ring_id_change"), None);
    }

    #[test]
    fn of_a_long_batch_the_ends_and_the_change_of_laps_are_written_out() {
        let fields = told(pairs(7, 4));
        let count = |name| match fields.get(name) {
            Some(Value::List(items)) => items.len(),
            _ => 0,
        };
        assert_eq!(["pairs", "head", "tail"].map(count), [0, 2, 3]);
        assert_eq!(
            fields.get("ring_id_change").map(ToString::to_string),
            Some("[[4,1,2]]".to_owned())
        );
    }
}
