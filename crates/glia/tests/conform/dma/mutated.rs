//! Golden scenarios with one value of one answer changed: exactly that field must be told.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{replayed, scenario, told};

/// Small scenarios that hold every kind of answer that is compared.
const SCENARIOS: [(&str, &str); 22] = [
    ("tables_v2.jsonl", "tables_shared"),
    ("tables_v3.jsonl", "tables_shared"),
    ("tables_v3.jsonl", "tables_qemu_shared"),
    ("tables_v3.jsonl", "wait_time_degenerate"),
    ("init_v2.jsonl", "bring_up_all"),
    ("init_v3.jsonl", "bring_up_all"),
    ("copy_v2.jsonl.gz", "copy_to"),
    ("copy_v3.jsonl.gz", "copy_dd"),
    ("copy_v3.jsonl.gz", "memcpy_raw"),
    ("memset_v3.jsonl", "memset"),
    ("memset_v3.jsonl", "memset_hang"),
    ("async_v3.jsonl.gz", "chain"),
    ("async_v3.jsonl.gz", "bad_handles"),
    ("async_v3.jsonl.gz", "pipeline_late"),
    ("async_v3.jsonl.gz", "cross_core"),
    ("async_v3.jsonl.gz", "hang"),
    ("timing_v3.jsonl.gz", "late_last_poll"),
    ("timing_v3.jsonl.gz", "false_completion"),
    ("timing_v3.jsonl.gz", "emulator_late"),
    ("retry_v2.jsonl.gz", "started_after_end"),
    ("lowlevel_v3.jsonl.gz", "uninitialised_core"),
    ("wrap_v3.jsonl.gz", "wrap_many"),
];

/// Fields that are not compared, see the format's description.
const NOT_COMPARED: [&str; 2] = ["errors_logged", "init_for_map"];

#[test]
fn every_changed_lost_or_surplus_field_is_told_and_nothing_else() {
    let mut seen = BTreeSet::new();
    for (file, name) in SCENARIOS {
        let lines = scenario(file, name);
        let clean = told(&replayed(&lines));
        for (index, line) in lines.iter().enumerate() {
            let record: Value = serde_json::from_str(line).unwrap();
            let Some(kind) = kind_of(&record, index, &clean) else {
                continue;
            };
            for (field, spoilt) in spoilt_answers(&record) {
                if !seen.insert(format!("{kind} {}", without_indices(&field))) {
                    continue;
                }
                let mut changed = lines[..index].to_vec();
                changed.push(spoilt.to_string());
                let op = record["op"].as_str().unwrap_or("scenario");
                let expected = format!("{} {op} {field}", index + 1);
                let found: Vec<String> = told(&replayed(&changed))
                    .into_iter()
                    .filter(|told| told.starts_with(&format!("{} ", index + 1)))
                    .collect();
                assert_eq!(found, [expected], "{file}, {name}: {spoilt}");
            }
        }
    }
    // Fewer would mean that the scenarios, or the walk through them, have lost kinds of answers.
    assert!(
        seen.len() > 300,
        "{} kinds of fields were spoilt",
        seen.len()
    );
}

/// What kind of answer a record has: its operation, and the divergence that it shows. `None` if it
/// has none that is compared in full.
fn kind_of(record: &Value, index: usize, clean: &[String]) -> Option<String> {
    let op = record["op"].as_str().unwrap_or("scenario");
    let prefix = format!("{} {op} ", index + 1);
    let shown: Vec<&str> = clean
        .iter()
        .filter_map(|told| told.strip_prefix(&prefix))
        .collect();
    let is_set_up = record.get("ret").is_none()
        && !["scenario", "hash", "advance", "wait_time", "h2t"].contains(&op);
    match shown.as_slice() {
        _ if is_set_up => None,
        [] => Some(op.to_owned()),
        [one @ ("zero-size" | "timeout" | "platform-scale" | "degenerate-wait")] => {
            Some(format!("{op} {one}"))
        }
        // Not built, tainted, or compared in part only.
        _ => None,
    }
}

/// The fields of a record that are no answer.
fn arguments(op: &str) -> &'static [&'static str] {
    match op {
        "scenario" => &[
            "scenario",
            "arch",
            "platform",
            "num_beats",
            "fill_buffer_pa",
            "dummy_ring_pa",
        ],
        "init_ncs" => &["map", "reg_writes", "reg_reads", "reg_fnv"],
        "h2t_ring_init" => &["eng", "qid"],
        "memcpy" => &["nc", "src", "dst", "size"],
        "memcpy_mc" | "buf_to_mc" | "buf_from_mc" => {
            &["src", "src_off", "dst", "dst_off", "buf", "size"]
        }
        "memcpy_mc_async" => &["src", "src_off", "dst", "dst_off", "size", "prev"],
        "mc_wait" => &["src", "dst", "handle"],
        "memset" => &["dst", "dst_off", "value", "size"],
        "h2t" => &["nc"],
        "wait_time" => &["count", "async"],
        "advance" => &["us"],
        "hash" => &["name", "off", "len"],
        _ => &[],
    }
}

/// Every way to change one plain value of an answer, to lose one field, and to have one too many.
fn spoilt_answers(record: &Value) -> Vec<(String, Value)> {
    let op = record["op"].as_str().unwrap_or("scenario");
    let kept = |field: &str| {
        let top = field.split(['.', '[']).next().unwrap_or_default();
        // Where a ring lies is taken from the record.
        let is_place = top == "rings" && (field.ends_with(".nc") || field.ends_with("_pa"));
        top != "op" && !is_place && !arguments(op).contains(&top) && !NOT_COMPARED.contains(&top)
    };
    let mut spoilt = Vec::new();
    spoil(record, "", &mut |field, value| {
        if kept(&field) {
            spoilt.push((field, value));
        }
    });
    spoilt
}

/// Calls `tell` with each field below `value` and what `value` is once that is spoilt.
fn spoil(value: &Value, path: &str, tell: &mut dyn FnMut(String, Value)) {
    match value {
        Value::Object(fields) => {
            let full = |name: &str| match path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
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
            let mut more = value.clone();
            more["surplus"] = 1.into();
            tell(full("surplus"), more);
        }
        Value::Array(items) => {
            for (index, part) in items.iter().enumerate() {
                spoil(part, &format!("{path}[{index}]"), &mut |field, part| {
                    let mut changed = value.clone();
                    changed[index] = part;
                    tell(field, changed);
                });
            }
        }
        Value::Number(number) => {
            let number = number.as_i64().map_or(7, |number| number.wrapping_add(1));
            tell(path.to_owned(), number.into());
        }
        Value::String(text) => tell(path.to_owned(), format!("{text}?").into()),
        Value::Bool(_) | Value::Null => {}
    }
}

fn without_indices(field: &str) -> String {
    let mut depth = 0;
    let is_outside = |letter: &char| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => return depth == 0,
        }
        false
    };
    field.chars().filter(is_outside).collect()
}
