//! The command: its inputs, its output, its exit code.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin_cmd;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::printer::{ListReport, TableReport};

fn glia() -> Command {
    let mut command = cargo_bin_cmd!("glia");
    command.arg("explain");
    command
}

fn json(command: &mut Command) -> Value {
    let output = command.arg("--json").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_report_has_all_its_keys() {
    let log = TableReport::sample(9, 3, [4, 5]).whole();
    let all = json(glia().write_stdin(log));
    assert_eq!(all["format"], 1);
    let report = &all["reports"][0];
    assert_eq!(report["file"], "(standard input)");
    assert_eq!(report["family"], "C");
    assert_eq!(report["kind"], "device_oom");
    assert_eq!(report["alignment_bytes"], Value::Null);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(report["not_reported"][1], "what other processes held");
    assert_eq!(rows[0]["scope"], "hbm");
    assert_eq!(rows[1]["total"]["text"], "21.326GB");
    assert_eq!(rows[2]["categories"]["tensors"], Value::Null);
    assert_eq!(rows[1]["categories"]["model code"]["bytes"], 96 << 20);
    assert_eq!(report["neffs"]["1002"], "2.0.1-/models/nd3nc5");
    assert_eq!(report["unread"].as_array().unwrap().len(), 0);
    for key in [
        "line",
        "asked_bytes",
        "asked_exact",
        "usage",
        "device",
        "core",
        "hbm",
    ] {
        assert!(!report[key].is_null(), "{key}");
    }
    assert_eq!(all["files"][0]["reports"], 1);
}

#[test]
fn packed_and_plain_logs_are_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("a.log");
    let packed = dir.path().join("b.log.gz");
    fs::write(&plain, ListReport::sample(7, 0, 1).whole()).unwrap();
    let mut gzip = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::fast());
    gzip.write_all(TableReport::sample(9, 3, [4, 5]).whole().as_bytes())
        .unwrap();
    gzip.finish().unwrap();
    let all = json(glia().arg(&plain).arg(&packed));
    let families: Vec<_> = all["reports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|report| report["family"].clone())
        .collect();
    assert_eq!(families, ["B", "C"]);
    assert_eq!(all["files"].as_array().unwrap().len(), 2);
}

#[test]
fn the_exit_code_says_what_happened() {
    glia()
        .write_stdin(ListReport::sample(7, 0, 1).whole())
        .assert()
        .code(0);
    let nothing = glia().write_stdin("hello\n").assert().code(1);
    let text = String::from_utf8(nothing.get_output().stdout.clone()).unwrap();
    assert!(text.contains("none that Glia understands"), "{text}");
    let all = json(glia().write_stdin(""));
    assert_eq!(all["reports"], Value::Array(Vec::new()));
    glia().arg("/no/such/log").assert().code(2);
    glia().arg("--wrong").assert().code(2);
}

#[test]
fn a_packed_log_that_ends_early_gives_what_it_has() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(ListReport::sample(7, 0, 1).whole().as_bytes())
        .unwrap();
    gzip.write_all(&vec![b'\n'; 200_000]).unwrap();
    let packed = gzip.finish().unwrap();
    let output = glia().write_stdin(&packed[..150_000]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("ND 0, NC 1")
    );
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("cannot be read behind line")
    );
}

#[test]
fn the_words_say_what_failed_where_and_who_holds_the_memory() {
    let output = glia()
        .write_stdin(ListReport::sample(7, 1, 0).whole())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for words in [
        "(standard input):2: device memory ran out on ND 1, NC 0",
        "30.000MB, exactly 31457300 bytes, for dma rings, by thread 4100:7",
        "tensors 12.007GB",
        "at most 399.232MB\n                  was free beside 16 MiB of firmware",
        "not reported    the largest free block, what other processes held",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn control_characters_of_a_log_do_not_reach_the_terminal() {
    let log = "Failed to allocate 1.000MB (alignment: \u{7}none\u{8}, usage: te\u{1b}]0;x\u{7}) on ND 0:NC 0\n";
    let output = glia().write_stdin(log).output().unwrap();
    let control = |byte: &u8| byte.is_ascii_control() && *byte != b'\n';
    assert!(!output.stdout.iter().any(control));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_example_is_explained() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let all = json(glia().arg(examples.join("trn2-table.log")));
    let report = &all["reports"][0];
    assert_eq!(
        (&report["family"], &report["core"]),
        (&"C".into(), &4.into())
    );
    assert_eq!(report["asked_bytes"], 4_u64 << 30);
    assert_eq!(report["asked_exact"], true);
    assert_eq!(all["reports"].as_array().unwrap().len(), 1);
    assert_eq!(report["unread"].as_array().unwrap().len(), 0);
}

/// Once, and not as a line that was read.
#[test]
fn a_log_that_cannot_be_opened_is_told_once() {
    let output = glia().arg("/no/such/log").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        told,
        "glia: /no/such/log: cannot be read: No such file or directory (os error 2)\n"
    );
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/first-tensor.jsonl");
    let mut run = cargo_bin_cmd!("glia");
    let output = run
        .arg("run")
        .arg(workload)
        .args(["--compare", "/"])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        told,
        "glia: /: cannot be read: Is a directory (os error 21)\n"
    );
}
