//! `glia bench pool` as a user sees it. What it costs is not asserted: that depends on the machine and on who else is on it.

#![expect(
    clippy::unwrap_used,
    reason = "whatever cannot be unwrapped here is a failed test"
)]

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;

/// Every case with the operations that it reports.
const CASES: [(&str, &[&str]); 12] = [
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
];

fn bench_pool(arguments: &[&str]) -> Command {
    let mut command = cargo_bin_cmd!("glia");
    command.args(["bench", "pool"]).args(arguments);
    command
}

fn stdout(arguments: &[&str]) -> String {
    let output = bench_pool(arguments)
        .assert()
        .success()
        .get_output()
        .clone();
    String::from_utf8(output.stdout).unwrap()
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

#[test]
fn json_holds_every_case_with_its_operations_in_order() {
    let rows = rows(&["--quick", "--json"]);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row["case"].as_str().unwrap(), row["op"].as_str().unwrap()))
        .collect();
    let wanted: Vec<_> = CASES
        .iter()
        .flat_map(|(case, ops)| ops.iter().map(|op| (*case, *op)))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn json_rows_have_exactly_the_agreed_keys_and_positive_figures() {
    for row in rows(&[
        "--quick",
        "--json",
        "--case",
        "holes_1m_4k",
        "--case",
        "search_1m",
    ]) {
        let mut keys: Vec<_> = row
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            ["case", "glia_ns", "live", "op", "peer", "peer_ns", "ratio"]
        );
        for figure in ["glia_ns", "peer_ns", "ratio", "live"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
    }
}

#[test]
fn a_case_without_a_peer_says_null() {
    let rows = rows(&["--quick", "--json", "--case", "churn_1m"]);
    assert_eq!(rows.len(), 1);
    for key in ["peer", "peer_ns", "ratio"] {
        assert_eq!(rows[0][key], Value::Null);
    }
}

#[test]
fn peers_are_named() {
    let rows = rows(&[
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
    let text = stdout(&["--quick", "--case", "behind_1m_4k"]);
    assert!(text.contains("| behind_1m_4k | alloc |"), "{text}");
    assert!(text.contains("| factor |"), "{text}");
    assert!(text.contains("A QUICK RUN"), "{text}");
}

#[test]
fn an_unknown_case_is_answered_with_those_there_are() {
    let assert = bench_pool(&["--case", "churn_2k"]).assert().code(2);
    let stderr = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    for (case, _) in CASES {
        assert!(stderr.contains(case), "{case} is missing in: {stderr}");
    }
}
