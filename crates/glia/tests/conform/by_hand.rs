//! The parts from which the tests write small traces by hand.

use serde_json::{Value, json};

use super::{conform_bytes, golden_text, trace};

/// Replays records: the exit code, and the file's report.
pub(super) fn replay(records: &[String]) -> (i32, Value) {
    conform_bytes(trace(records).as_bytes())
}

/// Replays records that must all be as the reference answers, without any divergence.
pub(super) fn conforms(records: &[String]) {
    let (code, report) = replay(records);
    assert_eq!((code, &report["findings"]), (0, &json!([])));
    assert_eq!(report["records"], records.len());
}

/// A record: its operation with arguments, and its outcome.
pub(super) fn record(op: &str, out: &str) -> String {
    let arguments = op.strip_suffix('}').unwrap();
    format!(r#"{arguments},"out":{out}}}"#)
}

/// A device of 2.24.7 with defaults, with the outcome that the golden traces have.
pub(super) fn init_v2() -> String {
    golden_text("basic-v2.jsonl")
        .lines()
        .nth(1)
        .unwrap()
        .to_owned()
}

/// A request on channel 0 that lives as long as the device.
pub(super) fn alloc(id: u32, size: u64, location: &str, category: u32, out: &str) -> String {
    let op = format!(
        r#"{{"op":"alloc","id":{id},"size":{size},"align":0,"loc":"{location}","ch":0,"rg":0,"nc":0,"life":"device","type":{category}}}"#
    );
    record(&op, out)
}
