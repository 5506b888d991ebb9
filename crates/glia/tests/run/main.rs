//! `glia run` as its user sees it: the examples, runs that end otherwise than their lines expect,
//! and workloads that cannot be run.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod coverage;
mod ends;
mod examples;
mod faults;
mod flags;
mod machines;
mod models;
mod operations;
mod packed;
mod peaks;
mod processes;
mod recordings;
mod reporting;
mod stops;
mod unusable;

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;

/// What a run of the command came to.
struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs `glia run` with these arguments, in the project's directory, and this on standard input.
fn run(args: &[&str], input: &str) -> Run {
    let output = cargo_bin_cmd!("glia")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .arg("run")
        .args(args)
        .write_stdin(input)
        .output()
        .unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a workload on a Trn2 machine from these lines; the JSON of its run, and the exit code.
fn json(lines: &[&str]) -> (Value, i32) {
    let workload = format!("{{\"workload\":1}}\n{}\n", lines.join("\n"));
    let run = run(&["--json", "-"], &workload);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    (document["runs"][0].clone(), run.code)
}

/// Why a workload on a Trn2 machine from these lines cannot be run.
fn error(lines: &[&str]) -> String {
    let (run, code) = json(lines);
    assert_eq!(code, 2, "{run}");
    run["error"].as_str().unwrap().to_owned()
}
