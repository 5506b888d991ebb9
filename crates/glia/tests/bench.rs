//! `glia bench pool`, `handles`, `copy` and `runtime` as a user sees them. What things cost is not
//! asserted: that depends on the machine and on who else is on it.

#![expect(
    clippy::unwrap_used,
    reason = "whatever cannot be unwrapped here is a failed test"
)]

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;

/// A case, and the operations that it reports.
type Case = (&'static str, &'static [&'static str]);

/// Every case of `bench pool`.
const POOL_CASES: [Case; 13] = [
    ("empty_4k", &["alloc", "free", "pair"]),
    ("behind_1m_4k", &["alloc", "free"]),
    ("holes_1m_4k", &["alloc", "free"]),
    ("checkerboard_2m", &["alloc", "free"]),
    ("checkerboard_64k_aligned", &["alloc", "free"]),
    ("adversarial_aligned", &["first", "alloc", "free"]),
    ("empty_1g", &["alloc", "free"]),
    ("churn_1k", &["pair"]),
    ("churn_10k", &["pair"]),
    ("churn_100k", &["pair"]),
    ("churn_1m", &["pair"]),
    ("search_1m", &["find"]),
    ("search_1m_index", &["find"]),
];

/// Every case of `bench handles`.
const HANDLE_CASES: [Case; 9] = [
    ("table_100k", &["alloc", "find", "free"]),
    ("table_1m", &["alloc", "find", "free"]),
    ("record_1k", &["find"]),
    ("record_1m", &["find"]),
    ("record_two_threads", &["find", "handoff"]),
    ("pin_1k", &["pair"]),
    ("search_1m", &["find"]),
    ("search_1m_index", &["find"]),
    ("search_1m_busy", &["find", "handoff"]),
];

fn bench(arguments: &[&str]) -> Command {
    let mut command = cargo_bin_cmd!("glia");
    command.arg("bench").args(arguments);
    command
}

fn stdout(arguments: &[&str]) -> String {
    let output = bench(arguments).assert().success().get_output().clone();
    String::from_utf8(output.stdout).unwrap()
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

fn cases_and_operations(rows: &[Value]) -> Vec<(&str, &str)> {
    rows.iter()
        .map(|row| (row["case"].as_str().unwrap(), row["op"].as_str().unwrap()))
        .collect()
}

fn flat(cases: &[(&'static str, &[&'static str])]) -> Vec<(&'static str, &'static str)> {
    cases
        .iter()
        .flat_map(|(case, ops)| ops.iter().map(|op| (*case, *op)))
        .collect()
}

fn assert_agreed_keys(row: &Value) {
    let mut keys: Vec<_> = row.as_object().unwrap().keys().collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        ["case", "glia_ns", "live", "op", "peer", "peer_ns", "ratio"]
    );
}

#[test]
fn json_of_the_pool_holds_every_case_with_its_operations_in_order() {
    let rows = rows(&["pool", "--quick", "--json"]);
    assert_eq!(cases_and_operations(&rows), flat(&POOL_CASES));
}

#[test]
fn json_of_handles_holds_every_case_with_its_operations_in_order() {
    let rows = rows(&["handles", "--quick", "--json"]);
    assert_eq!(cases_and_operations(&rows), flat(&HANDLE_CASES));
    rows.iter().for_each(assert_agreed_keys);
}

#[test]
fn json_rows_have_exactly_the_agreed_keys_and_positive_figures() {
    for row in rows(&[
        "pool",
        "--quick",
        "--json",
        "--case",
        "holes_1m_4k",
        "--case",
        "search_1m",
    ]) {
        assert_agreed_keys(&row);
        for figure in ["glia_ns", "peer_ns", "ratio", "live"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
}

#[test]
fn a_hand_off_between_two_threads_has_no_peer() {
    let rows = rows(&[
        "handles",
        "--quick",
        "--json",
        "--case",
        "record_two_threads",
    ]);
    assert_eq!(rows[0]["peer"], "one thread");
    assert!(rows[0]["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(rows[1]["op"], "handoff");
    assert!(rows[1]["glia_ns"].as_f64().unwrap() > 0.0);
    assert_eq!(rows[1]["peer"], Value::Null);
}

#[test]
fn a_case_without_a_peer_says_null() {
    let rows = rows(&["pool", "--quick", "--json", "--case", "churn_1m"]);
    assert_eq!(rows.len(), 1);
    for key in ["peer", "peer_ns", "ratio"] {
        assert_eq!(rows[0][key], Value::Null);
    }
}

#[test]
fn peers_are_named() {
    let rows = rows(&[
        "pool",
        "--quick",
        "--json",
        "--case",
        "churn_1k",
        "--case",
        "search_1m",
    ]);
    let peers: Vec<_> = rows.iter().map(|row| row["peer"].as_str()).collect();
    assert_eq!(peers, [Some("naive bitmap"), Some("BTreeMap")]);
}

#[test]
fn the_table_says_that_a_quick_run_was_quick_and_shows_growth() {
    let text = stdout(&["pool", "--quick", "--case", "behind_1m_4k"]);
    assert!(text.contains("| behind_1m_4k | alloc |"), "{text}");
    assert!(text.contains("| factor |"), "{text}");
    assert!(text.contains("A QUICK RUN"), "{text}");
}

#[test]
fn an_unknown_case_is_answered_with_those_there_are() {
    for (group, cases) in [("pool", &POOL_CASES[..]), ("handles", &HANDLE_CASES)] {
        let assert = bench(&[group, "--case", "churn_2k"]).assert().code(2);
        let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        for (case, _) in cases {
            assert!(stderr.contains(case), "{case} is missing in: {stderr}");
        }
    }
}

#[test]
fn json_of_copies_has_every_mode_and_exactly_the_agreed_keys() {
    let rows = rows(&["copy", "--quick", "--json"]);
    let agreed = [
        "bytes",
        "case",
        "glia_gbps",
        "hot",
        "memcpy_gbps",
        "mode",
        "ratio",
    ];
    for row in &rows {
        let mut keys: Vec<_> = row.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, agreed);
        assert!(row["glia_gbps"].as_f64().unwrap() > 0.0, "{row}");
    }
    for mode in ["h2d", "d2h", "d2d", "batch", "memset", "first_touch"] {
        assert!(rows.iter().any(|row| row["mode"] == mode), "{mode}");
    }
}

#[test]
fn the_table_of_copies_holds_the_modes_that_were_asked_for() {
    let text = stdout(&["copy", "--quick", "--mode", "d2d"]);
    assert!(text.contains("| d2d_64k_cold"), "{text}");
    assert!(!text.contains("| h2d_"), "{text}");
    assert!(text.contains("A QUICK RUN"), "{text}");
    bench(&["copy", "--mode", "h3d"]).assert().code(2);
}

/// Every case of `bench runtime`, and what runs beside it.
const RUNTIME_CASES: [(&str, Option<&str>); 15] = [
    ("ioctl_nothing", None),
    ("dispatch_copy_64", Some("op layer")),
    ("ioctl_copy_64", Some("op layer")),
    ("dmem_pair_4k", None),
    ("dml_pair", Some("two idle locks")),
    ("dmem_pair_4k_1m_live", None),
    ("dmem_replace_4k_1m_live", None),
    ("write_4k", Some("memcpy")),
    ("read_4k", None),
    ("batch_write_4k", Some("memcpy")),
    ("write_64m", Some("memcpy")),
    ("read_64m", Some("memcpy")),
    ("write_64m_threaded", Some("memcpy")),
    ("read_64m_threaded", Some("memcpy")),
    ("explanation_100k", None),
];

#[test]
fn json_of_the_runtime_has_every_case_its_peer_and_exactly_the_agreed_keys() {
    let rows = rows(&["runtime", "--quick", "--json"]);
    let cases = rows
        .iter()
        .map(|row| (row["case"].as_str().unwrap(), row["peer"].as_str()));
    assert_eq!(cases.collect::<Vec<_>>(), RUNTIME_CASES);
    for row in &rows {
        let mut keys: Vec<_> = row.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        let wanted = [
            "bar_extra_ns",
            "bar_ns",
            "bar_ratio",
            "case",
            "glia_ns",
            "peer",
            "peer_ns",
            "ratio",
        ];
        assert_eq!(keys, wanted);
        assert!(row["glia_ns"].as_f64().unwrap() > 0.0, "{row}");
        let has_peer = row["peer"].is_string();
        assert_eq!(
            (row["peer_ns"].is_number(), row["ratio"].is_number()),
            (has_peer, has_peer)
        );
    }
}
