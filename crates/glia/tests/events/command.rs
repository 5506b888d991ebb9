//! `glia run --events`.

use std::fs;
use std::path::Path;

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

const EXAMPLE: &str = "examples/first-tensor.jsonl";

/// Exit code and stderr of `glia run` with these arguments, in the project's directory.
fn run(args: &[&str]) -> (i32, String) {
    let output = cargo_bin_cmd!("glia")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .arg("run")
        .args(args)
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn two_runs_of_a_workload_write_the_same_file_over_each_other() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("events.jsonl");
    let write = || {
        assert_eq!(
            run(&["--events", path.to_str().unwrap(), EXAMPLE]),
            (0, String::new())
        );
        fs::read(&path).unwrap()
    };
    let first = write();
    assert!(first == write());
    let lines = lines(&path);
    assert_eq!(lines[0]["run"], EXAMPLE);
    assert_eq!(lines[0]["detail"], "batches");
    let of_the_process = |event: &str| {
        let mut lines = lines.iter();
        lines.any(|line| line["event"] == event && line["process"] == 1000)
    };
    assert!(["opened", "chunk_freed", "closed"].map(of_the_process) == [true; 3]);
}

#[test]
fn each_workload_has_its_header_and_numbers_of_its_own() {
    let file = NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let workload = NamedTempFile::new().unwrap();
    fs::write(&workload, "{\"workload\":1}\n").unwrap();
    let workload = workload.path().to_str().unwrap();
    let detail = ["--events-detail", "descriptors"];
    let args = [&["--events", path], &detail[..], &[workload, workload]].concat();
    assert_eq!(run(&args), (0, String::new()));
    let lines = lines(file.path());
    let (one, other) = lines.split_at(lines.len() / 2);
    assert_eq!(one, other);
    assert_eq!(one[0]["detail"], "descriptors");
    let numbers: Vec<_> = one.iter().filter_map(|line| line.get("n")).collect();
    assert_eq!(numbers[0], 0);
    let names: Vec<_> = one.iter().filter_map(|line| line.get("name")).collect();
    assert_eq!(names[0], 0);
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_is_run() {
    let (code, told) = run(&["--events", "no-such-folder/events.jsonl", EXAMPLE]);
    assert_eq!(code, 2);
    let start = "glia: no-such-folder/events.jsonl: cannot be written: No such file";
    assert!(told.starts_with(start), "{told}");
}

#[test]
fn a_workload_that_is_named_by_mistake_is_not_written_over() {
    let workload = NamedTempFile::new().unwrap();
    fs::write(&workload, "{\"workload\":1}\n").unwrap();
    let path = workload.path().to_str().unwrap();
    let (code, told) = run(&["--events", path, EXAMPLE]);
    assert_eq!(code, 2);
    assert!(told.contains("holds something else than events"), "{told}");
    assert_eq!(fs::read(&workload).unwrap(), b"{\"workload\":1}\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_once_and_the_runs_go_to_their_ends() {
    let (code, told) = run(&["--events", "/dev/full", EXAMPLE, EXAMPLE]);
    assert_eq!(code, 2);
    assert_eq!(
        told,
        "glia: /dev/full: cannot be written: No space left on device (os error 28)\n"
    );
}

#[test]
fn a_detail_without_a_file_is_wrong_usage() {
    assert_eq!(run(&["--events-detail", "descriptors", EXAMPLE]).0, 2);
}
