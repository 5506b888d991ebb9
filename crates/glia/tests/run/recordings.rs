//! `glia run --record`: what was run can be run again.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::run;

fn record(directory: &Path, args: &[&str], workload: &str) -> (PathBuf, i32) {
    let file = directory.join("trace.jsonl");
    let name = file.to_str().unwrap();
    let ended = run(&[args, &["--record", name, "-"]].concat(), workload);
    assert_eq!(ended.stderr, "");
    (file, ended.code)
}

fn again(file: &Path, args: &[&str]) -> (Value, i32) {
    let ended = run(&[args, &["--json", file.to_str().unwrap()]].concat(), "");
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    (document["runs"][0].clone(), ended.code)
}

#[test]
fn a_recording_has_parameters_conditions_and_addresses_and_ends_alike() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    fs::write(
        &plan,
        "seed = 5\n[[fault]]\nkind = \"late-marker\"\ndelay_us = 500\nnth = 1\n",
    )
    .unwrap();
    let workload = concat!(
        r#"{"workload":1,"params":{"SIZE":"1MiB"}}"#,
        "\n\n",
        r#"{"op":"alloc","id":"a","size":"$SIZE","name":"a \"}"}"#,
        " \t \n",
        r#"{"op":"alloc","id":"h","size":"4KiB","location":"host"}"#,
        "\r\n",
        r#"{"op":"write","id":"a","seed":1}  "#,
        "\n",
        r#"{"op":"read","id":"a"}"#,
        "\n",
        r#"{"op":"alloc","id":"b","size":"25GiB","expect":"NRT_RESOURCE"}"#,
    );
    let faults = plan.to_str().unwrap();
    let args = ["--engine", "virtual", "--seed", "9", "--devices", "2"];
    let args = [&args[..], &["--faults", faults, "--param", "SIZE=8192"]].concat();
    let (file, code) = record(directory.path(), &args, workload);
    assert_eq!(code, 0);
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[0]["engine"], "virtual");
    assert_eq!(
        (&lines[0]["seed"], &lines[0]["devices"]),
        (&9.into(), &2.into())
    );
    assert_eq!(lines[0]["faults"]["seed"], 5);
    assert_eq!(lines[1]["size"], "8192");
    assert!(lines[1]["at"].as_str().unwrap().starts_with("0x"));
    assert!(lines[2]["at"].is_null() && lines[5]["at"].is_null());
    let (ran, code) = again(&file, &[]);
    assert_eq!(code, 0, "{ran}");
    assert_eq!(ran["bytes"]["verified"], 8192);
    assert_eq!(ran["faults"][0]["strikes"], 1);
    // A recording of it is the same.
    let (second, _) = record(directory.path(), &[], &text);
    assert_eq!(fs::read_to_string(second).unwrap(), text);
}

#[test]
fn a_run_that_fails_fails_again_in_the_same_place() {
    let directory = tempfile::tempdir().unwrap();
    let workload = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/kv-cache-trn2.jsonl"
    ))
    .unwrap();
    let (file, code) = record(directory.path(), &[], &workload);
    assert_eq!(code, 1);
    let (ran, code) = again(&file, &[]);
    assert_eq!((code, &ran["failure"]["id"]), (1, &"kv".into()));
    assert_eq!(ran["failure"]["status"], "NRT_RESOURCE");
}

#[test]
fn the_first_allocation_that_lies_elsewhere_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let workload = "{\"workload\":1}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":4096,\"core\":1}\n";
    let (file, _) = record(directory.path(), &[], workload);
    let (ran, code) = again(&file, &["--arch", "trn1"]);
    assert_eq!(code, 1, "{ran}");
    assert_eq!(ran["failure"]["line"], 2);
    let what = ran["failure"]["what"].as_str().unwrap();
    assert!(what.starts_with("it lies at 0x"), "{what}");
    assert!(what.contains(", and was to lie at 0x"), "{what}");
}

#[test]
fn only_a_recording_is_written_over_and_only_one_run_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("work.jsonl");
    let name = file.to_str().unwrap();
    fs::write(&file, "{\"workload\":1}\n").unwrap();
    let example = "examples/first-tensor.jsonl";
    let refused = |args: &[&str], wanted: &str| {
        let refused = run(args, "");
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
    };
    refused(
        &["--record", name, example],
        "holds something else than a recording",
    );
    refused(&["--record", name, name], "would write over the workload");
    let new = directory.path().join("new");
    let new = new.to_str().unwrap();
    refused(
        &["--record", new, example, example],
        "--record takes one workload",
    );
    refused(
        &["--record", new, "--events", new, example],
        "--events and --record name one file; each needs its own",
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"workload\":1}\n");
}
