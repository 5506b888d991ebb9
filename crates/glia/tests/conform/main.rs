//! `glia conform` as its user sees it: golden traces, golden traces with one value changed, broken
//! files, and small traces written by hand for what the golden ones do not hold.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod broken;
mod by_hand;
mod damaged;
mod diverging;
mod dma;
mod golden;
mod mutated;
mod scripted;

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;

/// Where the golden traces are.
fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mempool")
}

/// The text of a golden trace, unpacked.
fn golden_text(file: &str) -> String {
    glia::conform::source::read_text(&golden_dir().join(file)).unwrap()
}

/// What a run of the command came to.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs `glia conform` with these arguments.
fn conform(args: &[&str]) -> Run {
    let output = cargo_bin_cmd!("glia")
        .arg("conform")
        .args(args)
        .output()
        .unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `glia conform --json` on a file of this content: the exit code and the file's report.
fn conform_bytes(content: &[u8]) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    fs::write(&path, content).unwrap();
    let run = conform(&["--json", "--verbose", path.to_str().unwrap()]);
    let mut report: Value = serde_json::from_str(&run.stdout).unwrap();
    (run.code, report["files"][0].take())
}

/// The first line of a trace with so many records.
fn meta(records: usize) -> String {
    format!(
        r#"{{"op":"meta","format":1,"name":"test","reference":"2.24.7.0","records":{records}}}"#
    )
}

/// The whole text of a trace with these records.
fn trace(records: &[impl AsRef<str>]) -> String {
    let lines = records
        .iter()
        .map(|record| format!("{}\n", record.as_ref()));
    format!("{}\n{}", meta(records.len()), lines.collect::<String>())
}

/// The findings of one kind in a file's report, as `LINE OP FIELD`.
fn findings(report: &Value, kind: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["kind"] == kind)
        .map(|finding| {
            let text = |name: &str| finding[name].as_str().unwrap_or_default();
            let what = [text("field"), text("note")]
                .into_iter()
                .find(|text| !text.is_empty());
            format!(
                "{} {} {}",
                finding["line"],
                text("op"),
                what.unwrap_or_default()
            )
        })
        .collect()
}
