//! The golden traces replay without a mismatch.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::conform;
use super::dma_dir;

/// Scenarios, records, declared divergences and records that need what is not built, of the traces
/// of one topic and both chips.
type Found = (u64, u64, Value, Value);

#[test]
fn all_golden_traces_replay_without_a_mismatch() {
    let run = conform(&["--json", dma_dir().to_str().unwrap()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let total = &report["total"];
    let counts = ["files", "unusable_files", "scenarios", "records"].map(|name| &total[name]);
    assert_eq!(counts, [22, 0, 142, 1554]);
    assert_eq!(total["mismatches"], 0);
    assert_eq!(total["tainted_records"], 104);
    assert_eq!(by_topic(&report), BTreeMap::from(expected()));
}

fn by_topic(report: &Value) -> BTreeMap<String, Found> {
    let mut topics: BTreeMap<String, Found> = BTreeMap::new();
    for file in report["files"].as_array().unwrap() {
        let name = file["file"].as_str().unwrap().rsplit('/').next().unwrap();
        let topic = name.split("_v").next().unwrap().to_owned();
        let found = topics.entry(topic).or_insert((0, 0, json!({}), json!({})));
        found.0 += file["scenarios"].as_u64().unwrap();
        found.1 += file["records"].as_u64().unwrap();
        add(&mut found.2, &file["divergences"]);
        add(&mut found.3, &file["not_built"]);
    }
    topics
}

fn add(sum: &mut Value, counts: &Value) {
    for (name, count) in counts.as_object().into_iter().flatten() {
        let before = sum[name].as_u64().unwrap_or(0);
        sum[name] = (before + count.as_u64().unwrap()).into();
    }
}

fn expected() -> [(String, Found); 11] {
    let none = || json!({});
    let topics = [
        (
            "async",
            28,
            197,
            json!({"zero-size": 2, "async-oversize": 4, "timeout": 2, "restart-in-flight": 2,
                "bad-previous-handle": 2}),
            none(),
        ),
        (
            "copy",
            16,
            206,
            json!({"zero-size": 12, "timeout": 2}),
            none(),
        ),
        ("copy_big", 4, 16, none(), none()),
        ("descriptors", 4, 8, none(), json!({"copy_descriptors": 79})),
        (
            "init",
            11,
            26,
            json!({"lone-core": 2}),
            json!({"close_ncs": 2, "engine_init": 4, "get_descriptor_info": 2,
                "get_engine_state": 2, "get_queue_state": 4}),
        ),
        (
            "lowlevel",
            14,
            34,
            none(),
            json!({"ack_completed": 6, "get_descriptor_info": 4, "get_engine_state": 2,
                "get_queue_state": 18, "prepare_one": 120, "process_exit": 6,
                "queue_copy_start": 14, "queue_init": 50, "set_engine_state": 10}),
        ),
        (
            "memset",
            6,
            48,
            json!({"zero-size": 2, "timeout": 2, "host-fill": 4}),
            none(),
        ),
        ("retry", 22, 77, json!({"timeout": 4}), json!({"retry": 21})),
        (
            "tables",
            8,
            144,
            json!({"platform-scale": 32, "degenerate-wait": 8}),
            json!({"bar0_write_blocked": 186, "barrier": 12, "host_engines": 6,
                "nx_queue_map": 145, "ring_desc_count": 28, "validate_pa": 19}),
        ),
        (
            "timing",
            24,
            160,
            json!({"timeout": 14, "platform-scale": 2}),
            json!({"device_batch": 50, "h2t_ring_init": 2}),
        ),
        ("wrap", 5, 638, none(), none()),
    ];
    topics.map(|(topic, scenarios, records, divergences, not_built)| {
        (
            topic.to_owned(),
            (scenarios, records, divergences, not_built),
        )
    })
}

#[test]
fn the_text_tells_what_was_not_replayed() {
    let file = dma_dir().join("init_v2.jsonl");
    let run = conform(&["--verbose", file.to_str().unwrap()]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(
        lines[0].ends_with(
            "init_v2.jsonl:2: scenario engine_init_h2t, engine_init: not replayed yet: engine_init"
        ),
        "{}",
        lines[0]
    );
    assert_eq!(
        lines.last().unwrap(),
        &"total: 1 file, 5 scenarios, 11 records, 0 mismatches; tainted: 1 record, 6 differences; not replayed: close_ncs 1, engine_init 2, get_descriptor_info 1, get_engine_state 1, get_queue_state 2"
    );
}
