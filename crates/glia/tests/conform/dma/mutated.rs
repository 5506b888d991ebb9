//! Golden scenarios with one value of one answer changed: exactly that field must be told.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{replayed, scenario, told};

/// Small scenarios that hold every kind of answer that is compared.
const SCENARIOS: [(&str, &str); 35] = [
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
    ("init_v2.jsonl", "engine_init_h2t"),
    ("init_v3.jsonl", "bring_up_nc0"),
    ("init_v3.jsonl", "close_and_reopen"),
    ("init_v3.jsonl", "odd_nc_only"),
    ("lowlevel_v2.jsonl.gz", "user_ring"),
    ("lowlevel_v3.jsonl.gz", "not_allocatable"),
    ("lowlevel_v3.jsonl.gz", "ack_not_power_of_two"),
    ("lowlevel_v3.jsonl.gz", "zero_doorbell"),
    ("lowlevel_v3.jsonl.gz", "process_exit"),
    ("descriptors_v3.jsonl.gz", "copy_in"),
    ("timing_v2.jsonl.gz", "device_to_device_wait"),
    ("retry_v2.jsonl.gz", "async_prev_hangs"),
    ("retry_v2.jsonl.gz", "wait_loses_sibling"),
];

/// Fields that are not compared, see the format's description.
const NOT_COMPARED: [&str; 2] = ["errors_logged", "sw_status"];

/// Divergences of which every field is compared that is not lost on purpose.
const FOLLOWED: [&str; 10] = [
    "zero-size",
    "timeout",
    "platform-scale",
    "degenerate-wait",
    "lone-core",
    "descriptor-walk",
    "ring-size",
    "odd-ring",
    "unknown-barrier",
    "assertion",
];
/// Operations whose records may be without a `ret`.
const LOOKS: [&str; 9] = [
    "scenario",
    "hash",
    "advance",
    "wait_time",
    "h2t",
    "barrier",
    "ring_desc_count",
    "host_engines",
    "nx_queue_map",
];

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
            let arch = lines[0].contains(r#""arch":"v2""#).then_some("v2");
            for (field, spoilt) in spoilt_answers(&record, arch) {
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
        seen.len() > 1100,
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
    let has_answer = record.get("ret").is_some() || record.get("bug").is_some();
    let is_set_up = op == "new_device" || !has_answer && !LOOKS.contains(&op);
    match shown.as_slice() {
        _ if is_set_up => None,
        [] => Some(op.to_owned()),
        [one] if FOLLOWED.contains(one) => Some(format!("{op} {one}")),
        // Tainted, or compared in part only.
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
        "init_ncs" | "close_ncs" => &["map"],
        "h2t_ring_init" | "get_queue_state" | "get_descriptor_info" => &["eng", "qid"],
        "engine_init" | "get_engine_state" | "nx_queue_map" => &["eng"],
        "set_engine_state" => &["eng", "state"],
        "queue_init" => &[
            "eng",
            "qid",
            "tx_count",
            "rx_count",
            "tx",
            "rx",
            "rxc",
            "port",
            "allocatable",
        ],
        "prepare_one" => &["eng", "qid", "src", "dst", "size", "barrier", "dst_int"],
        "queue_copy_start" => &["eng", "qid", "tx", "rx"],
        "ack_completed" => &["eng", "qid", "count"],
        "process_exit" => &["pid"],
        "copy_descriptors" => &["buf", "src_off", "dst", "dst_off", "size", "type"],
        "device_batch" => &["nc", "copies", "async", "d2d", "src", "dst", "each"],
        "barrier" => &["set"],
        "ring_desc_count" => &["v"],
        "host_engines" => &["hbm"],
        "bar0_write_blocked" => &["off"],
        "validate_pa" => &["pa"],
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
fn spoilt_answers(record: &Value, arch: Option<&str>) -> Vec<(String, Value)> {
    let op = record["op"].as_str().unwrap_or("scenario");
    let kept = |field: &str| {
        let top = field.split(['.', '[']).next().unwrap_or_default();
        // Where a ring lies is taken from the record.
        let is_place = top == "rings" && (field.ends_with(".nc") || field.ends_with("_pa"));
        // A map for which bringing up is asked, and the reference's own word on a queue.
        let is_argument = top == "init_for_map" && field.ends_with("[0]")
            || field.ends_with(".sw_status")
            || op == "init_ncs" && arch == Some("v2") && field == "reg_fnv";
        top != "op"
            && !is_argument
            && !is_place
            && !arguments(op).contains(&top)
            && !NOT_COMPARED.contains(&top)
    };
    let mut spoilt = Vec::new();
    spoil(record, "", &mut |field, value| {
        // Without its stop, the record of one is of another kind.
        let is_of_kind = record.get("bug").is_none() || value.get("bug").is_some();
        if kept(&field) && is_of_kind {
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
