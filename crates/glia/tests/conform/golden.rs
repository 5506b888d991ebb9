//! The golden traces replay without a mismatch.

use std::collections::BTreeMap;
use std::process::Stdio;

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;

use super::{conform, golden_dir, golden_text};

/// The report on all golden traces.
fn report() -> Value {
    let run = conform(&["--json", golden_dir().to_str().unwrap()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn all_golden_traces_replay_without_a_mismatch() {
    let report = report();
    assert_eq!(report["format"], 1);
    let total = &report["total"];
    assert_eq!(
        (&total["files"], &total["records"]),
        (&22.into(), &103_762.into())
    );
    assert_eq!(
        (&total["mismatches"], &total["unusable_files"]),
        (&0.into(), &0.into())
    );
    assert_eq!(total["tainted_differences"], 0);
}

#[test]
fn the_golden_traces_hold_these_divergences_and_no_other() {
    let report = report();
    let by_file: BTreeMap<&str, String> = report["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|file| file["divergences"] != serde_json::json!({}))
        .map(|file| {
            let name = file["file"].as_str().unwrap().rsplit('/').next().unwrap();
            (name, file["divergences"].to_string())
        })
        .collect();
    let expected = [
        (
            "fatal-v2.jsonl",
            r#"{"dead-chunk":3,"teardown-leak":1,"unattached-process":4}"#.to_owned(),
        ),
        (
            "host-reserve-v2.jsonl.gz",
            r#"{"reserve-counter":35}"#.to_owned(),
        ),
        (
            "host-tight-v3.jsonl.gz",
            r#"{"reserve-counter":25}"#.to_owned(),
        ),
    ];
    assert_eq!(by_file, BTreeMap::from(expected));
}

#[test]
fn the_text_has_a_line_for_each_file_and_one_for_all() {
    let run = conform(&[golden_dir().to_str().unwrap()]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines.len(), 23);
    assert!(
        lines[2].ends_with("basic-v2.jsonl: 211 records, 0 mismatches"),
        "{}",
        lines[2]
    );
    assert_eq!(
        lines[22],
        "total: 22 files, 103762 records, 0 mismatches; declared: reserve-counter 60, dead-chunk 3, unattached-process 4, teardown-leak 1"
    );
}

#[test]
fn verbose_names_each_divergence_and_its_record() {
    let file = golden_dir().join("fatal-v2.jsonl");
    let run = conform(&["--verbose", file.to_str().unwrap()]);
    let first = run.stdout.lines().next().unwrap();
    assert!(
        first.ends_with("fatal-v2.jsonl:5: record 4, free: declared divergence dead-chunk"),
        "{first}"
    );
    assert_eq!(run.stdout.lines().count(), 8 + 2);
}

#[test]
fn a_reader_that_closes_the_pipe_has_seen_enough() {
    let mut child = std::process::Command::new(cargo_bin!("glia"))
        .arg("conform")
        .arg(golden_dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_reader_that_closes_the_pipe_does_not_change_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.jsonl");
    let text = golden_text("basic-v2.jsonl").replacen("\"slot\":0", "\"slot\":1", 1);
    std::fs::write(&path, text).unwrap();
    let mut child = std::process::Command::new(cargo_bin!("glia"))
        .arg("conform")
        .args([&path, &golden_dir(), &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
