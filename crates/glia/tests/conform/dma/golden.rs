//! The golden traces replay without a mismatch.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::conform;
use super::dma_dir;

/// Scenarios, records and declared divergences of the traces of one topic and both chips.
type Found = (u64, u64, Value);

#[test]
fn all_golden_traces_replay_without_a_mismatch() {
    let run = conform(&["--json", dma_dir().to_str().unwrap()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let total = &report["total"];
    let counts = ["files", "unusable_files", "scenarios", "records"].map(|name| &total[name]);
    assert_eq!(counts, [22, 0, 142, 2346]);
    assert_eq!(total["mismatches"], 0);
    assert_eq!(total["tainted_records"], 99);
    assert_eq!(by_topic(&report), BTreeMap::from(expected()));
}

fn by_topic(report: &Value) -> BTreeMap<String, Found> {
    let mut topics: BTreeMap<String, Found> = BTreeMap::new();
    for file in report["files"].as_array().unwrap() {
        let name = file["file"].as_str().unwrap().rsplit('/').next().unwrap();
        let topic = name.split("_v").next().unwrap().to_owned();
        let found = topics.entry(topic).or_insert((0, 0, json!({})));
        found.0 += file["scenarios"].as_u64().unwrap();
        found.1 += file["records"].as_u64().unwrap();
        add(&mut found.2, &file["divergences"]);
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
    let topics = [
        (
            "async",
            28,
            197,
            json!({"zero-size": 2, "async-oversize": 4, "timeout": 2, "restart-in-flight": 2,
                "bad-previous-handle": 2}),
        ),
        ("copy", 16, 206, json!({"zero-size": 12, "timeout": 2})),
        ("copy_big", 4, 16, json!({})),
        (
            "descriptors",
            4,
            87,
            json!({"zero-size": 2, "descriptor-walk": 6}),
        ),
        ("init", 11, 40, json!({"lone-core": 1})),
        (
            "lowlevel",
            14,
            264,
            json!({"zero-size": 2, "ring-size": 2, "odd-ring": 14, "assertion": 8,
                "unknown-barrier": 2}),
        ),
        (
            "memset",
            6,
            48,
            json!({"zero-size": 2, "timeout": 2, "host-fill": 4}),
        ),
        ("retry", 22, 98, json!({"timeout": 6, "lost-sibling": 3})),
        (
            "tables",
            8,
            540,
            json!({"platform-scale": 32, "degenerate-wait": 8}),
        ),
        (
            "timing",
            24,
            212,
            json!({"timeout": 24, "platform-scale": 2}),
        ),
        ("wrap", 5, 638, json!({})),
    ];
    topics.map(|(topic, scenarios, records, divergences)| {
        (topic.to_owned(), (scenarios, records, divergences))
    })
}

#[test]
fn the_text_tells_divergences_and_what_they_taint() {
    let file = dma_dir().join("retry_v3.jsonl");
    let run = conform(&["--verbose", file.to_str().unwrap()]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(
        lines[0].ends_with(
            "retry_v3.jsonl:7: scenario v3_never_retries, buf_to_mc: declared divergence timeout"
        ),
        "{}",
        lines[0]
    );
    assert_eq!(
        lines.last().unwrap(),
        &"total: 1 file, 2 scenarios, 10 records, 0 mismatches; declared: timeout 2; tainted: 3 records, 27 differences"
    );
}
