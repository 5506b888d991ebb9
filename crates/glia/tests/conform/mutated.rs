//! Golden traces with one value of one outcome changed: exactly that record and field must be told.

use std::collections::BTreeSet;

use glia::conform::replay_text;
use glia::conform::report::{FileReport, Wanted};
use serde_json::Value;

use super::{conform_bytes, findings, golden_text, trace};

/// Every golden trace that holds a kind of outcome which the others do not, smallest first.
const FILES: [&str; 10] = [
    "fatal-v2.jsonl",
    "basic-v2.jsonl",
    "basic-v3.jsonl",
    "invalid-args-v2.jsonl",
    "scratchpad-lifo-v2.jsonl",
    "host-tight-v3.jsonl.gz",
    "scratchpad-disorder-v3.jsonl.gz",
    "lifespan-v3.jsonl.gz",
    "handle-table-v2.jsonl.gz",
    "model-life-v3.jsonl.gz",
];

/// One way to spoil an outcome: the field that must be told, and the outcome afterwards.
type Spoilt = (String, Value);

#[test]
fn every_changed_lost_or_surplus_field_is_told_and_nothing_else() {
    let mut seen = BTreeSet::new();
    for file in FILES {
        let text = golden_text(file);
        let records: Vec<&str> = text.lines().skip(1).collect();
        for (index, record) in records.iter().enumerate() {
            let record: Value = serde_json::from_str(record).unwrap();
            for (field, out) in spoilt_outcomes(&record["out"]) {
                let kind = format!("{} {}", record["op"], without_indices(&field));
                if !seen.insert((kind, out.get("bug").is_some())) {
                    continue;
                }
                let mut spoilt = record.clone();
                spoilt["out"] = out;
                let spoilt = spoilt.to_string();
                let lines: Vec<&str> = records[..index]
                    .iter()
                    .copied()
                    .chain([spoilt.as_str()])
                    .collect();
                assert_eq!(
                    told(&trace(&lines)),
                    [format!("{} {field}", index + 2)],
                    "{file}: {spoilt}"
                );
            }
        }
    }
    // Fewer would mean that the files, or the walk through them, have lost kinds of outcomes.
    assert!(
        seen.len() > 100,
        "{} kinds of fields were spoilt",
        seen.len()
    );
}

/// The mismatches of a trace, as `LINE FIELD`.
fn told(text: &str) -> Vec<String> {
    let wanted = Wanted {
        per_kind: 100,
        all_kinds: false,
    };
    let mut report = FileReport::new("test".to_owned());
    replay_text(text, wanted, &mut report).unwrap();
    assert_eq!(report.counts.mismatches, report.findings.len() as u64);
    let fields = report.findings.iter();
    fields
        .map(|finding| {
            format!(
                "{} {}",
                finding.line,
                finding.field.as_deref().unwrap_or("-")
            )
        })
        .collect()
}

/// Every way to change one plain value, to lose one field (of an outcome that is not a stop: what
/// stands beside a stop may be left out), and to have one too many.
fn spoilt_outcomes(out: &Value) -> Vec<Spoilt> {
    let is_stop = out.get("bug").is_some();
    let mut spoilt = Vec::new();
    spoil(out, "", &mut |field, value| {
        // The code of a stop has few values that are allowed; the test below changes it.
        if field != "bug" && !(is_stop && value_at(&value, &field).is_none()) {
            spoilt.push((field, value));
        }
    });
    spoilt
}

/// Calls `tell` with each field below `value` and what `value` is once that is spoilt.
fn spoil(value: &Value, path: &str, tell: &mut dyn FnMut(String, Value)) {
    match value {
        Value::Object(fields) => {
            let full = |name: &str| {
                if path.is_empty() {
                    name.to_owned()
                } else {
                    format!("{path}.{name}")
                }
            };
            for (name, part) in fields {
                spoil(part, &full(name), &mut |field, part| {
                    let mut changed = value.clone();
                    changed[name] = part;
                    tell(field, changed);
                });
                let mut lost = value.clone();
                lost.as_object_mut().unwrap().remove(name);
                tell(full(name), lost);
            }
            let mut surplus = value.clone();
            surplus["surplus"] = 1.into();
            tell(full("surplus"), surplus);
        }
        Value::Array(items) => {
            for (index, part) in items.iter().enumerate() {
                spoil(part, &format!("{path}[{index}]"), &mut |field, part| {
                    let mut changed = value.clone();
                    changed[index] = part;
                    tell(field, changed);
                });
            }
            if let Some(last) = items.len().checked_sub(1) {
                let mut lost = value.clone();
                lost.as_array_mut().unwrap().pop();
                tell(format!("{path}[{last}]"), lost);
            }
        }
        Value::Number(number) => {
            let changed = number.as_i64().map_or(1, |number| number ^ 1);
            tell(path.to_owned(), changed.into());
        }
        Value::Bool(flag) => tell(path.to_owned(), (!flag).into()),
        Value::String(text) => tell(path.to_owned(), format!("{text}?").into()),
        Value::Null => tell(path.to_owned(), 0.into()),
    }
}

/// The value of a field that is not inside another.
fn value_at<'a>(out: &'a Value, field: &str) -> Option<&'a Value> {
    if field.contains(['.', '[']) {
        Some(out)
    } else {
        out.get(field)
    }
}

fn without_indices(field: &str) -> String {
    field
        .chars()
        .filter(|character| !character.is_ascii_digit())
        .collect()
}

/// Replaces `from` by `to` in the first line that holds all of `having`, and gives the whole text
/// and the line's number.
fn replaced(file: &str, having: &[&str], from: &str, to: &str) -> (String, usize) {
    let text = golden_text(file);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let index = lines
        .iter()
        .position(|line| having.iter().all(|part| line.contains(part)))
        .unwrap();
    let changed = lines[index].replacen(from, to, 1);
    assert_ne!(changed, lines[index]);
    lines[index] = changed;
    (lines.join("\n"), index + 1)
}

#[test]
fn the_command_tells_the_record_and_exits_with_1() {
    let cases: [(&str, &[&str], &str, &str, &str); 6] = [
        (
            "basic-v2.jsonl",
            &[r#""op":"alloc","id":5,"#],
            r#""pa":16777216"#,
            r#""pa":16781312"#,
            "alloc pa",
        ),
        (
            "basic-v3.jsonl",
            &[r#""op":"alloc""#, r#""pool":"small""#],
            r#""pool":"small""#,
            r#""pool":"main""#,
            "alloc pool",
        ),
        (
            "weights-v2.jsonl.gz",
            &[r#""ret":-12"#],
            r#""ret":-12"#,
            r#""ret":-22"#,
            "alloc ret",
        ),
        (
            "basic-v2.jsonl",
            &[r#""op":"close""#],
            "[118,117,",
            "[117,118,",
            "close process.freed[0]",
        ),
        (
            "handle-table-v2.jsonl.gz",
            &[r#""op":"halloc","token":9,"#],
            r#""handle":"#,
            r#""handle":1"#,
            "halloc handle",
        ),
        (
            "scratchpad-disorder-v3.jsonl.gz",
            &["scratchpad_order"],
            r#""log":"scratchpad_order","#,
            "",
            "free log",
        ),
    ];
    for (file, having, from, to, told) in cases {
        let (text, line) = replaced(file, having, from, to);
        let (code, report) = conform_bytes(text.as_bytes());
        assert_eq!(code, 1, "{file}");
        assert_eq!(
            findings(&report, "mismatch"),
            [format!("{line} {told}")],
            "{file}"
        );
    }
}

#[test]
fn another_kind_of_stop_is_a_mismatch() {
    let cases = [
        ("null_chunk", "bad_magic", "free bug"),
        ("bad_magic", "null_chunk", "free_stale bug"),
        ("process_not_attached", "null_chunk", "alloc bug"),
        ("chunks_remaining", "process_not_attached", "teardown bug"),
    ];
    for (from, to, told) in cases {
        let (text, line) = replaced("fatal-v2.jsonl", &[from], from, to);
        let (code, report) = conform_bytes(text.as_bytes());
        assert_eq!(
            (code, findings(&report, "mismatch")),
            (1, vec![format!("{line} {told}")])
        );
    }
}

#[test]
fn a_stop_where_glia_answers_is_a_mismatch_and_taints() {
    let (text, line) = replaced(
        "basic-v2.jsonl",
        &[r#""op":"free","id":3,"#],
        r#"{"freed":true}"#,
        r#"{"oops":true}"#,
    );
    let (code, report) = conform_bytes(text.as_bytes());
    assert_eq!(
        (code, findings(&report, "mismatch")),
        (1, vec![format!("{line} free oops")])
    );
    assert_eq!(report["tainted_records"], 212 - line);
}

#[test]
fn a_reserve_counter_that_is_not_the_reference_s_accident_is_a_mismatch() {
    let (text, line) = replaced(
        "host-reserve-v2.jsonl.gz",
        &[r#"{"allocated":-8192,"#],
        "-8192",
        "-4096",
    );
    let (code, report) = conform_bytes(text.as_bytes());
    assert_eq!(code, 1);
    assert_eq!(
        findings(&report, "mismatch"),
        [format!("{line} stats hrm[0].allocated")]
    );
    assert_eq!(report["divergences"]["reserve-counter"], 34);
}

#[test]
fn all_mismatches_are_counted_and_few_are_printed() {
    let text = golden_text("basic-v2.jsonl").replace(r#""ret":0,"#, r#""ret":1,"#);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, text).unwrap();
    let run = super::conform(&["--max", "3", path.to_str().unwrap()]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!((run.code, lines.len()), (1, 6));
    assert!(
        lines[0].ends_with("t.jsonl:2: record 1, init: ret: expected 1, got 0"),
        "{}",
        lines[0]
    );
}
