//! Workloads that are packed with gzip.

use std::fs;
use std::io::Write as _;

use assert_cmd::cargo::cargo_bin_cmd;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

fn packed(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

/// The JSON of a run of what comes on standard input, what was complained, and the exit code.
fn run(input: &[u8]) -> (Value, String, i32) {
    let output = cargo_bin_cmd!("glia")
        .args(["run", "--json", "-"])
        .write_stdin(input)
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    (
        document["runs"][0].clone(),
        told,
        output.status.code().unwrap(),
    )
}

/// So many pairs of operations; incompressible enough to be in several blocks.
fn work(pairs: u64) -> String {
    let mut work = "{\"workload\":1}\n".to_owned();
    for n in 0..pairs {
        let id = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        work += &format!("{{\"op\":\"alloc\",\"id\":\"{id:x}\",\"size\":4096}}\n");
        work += &format!("{{\"op\":\"free\",\"id\":\"{id:x}\"}}\n");
    }
    work
}

#[test]
fn a_packed_workload_is_run_as_a_plain_one_from_a_file_and_from_standard_input() {
    let work = work(1000);
    let (plain, _, code) = run(work.as_bytes());
    assert_eq!(code, 0);
    let (from_input, _, code) = run(&packed(work.as_bytes()));
    assert_eq!(code, 0);
    assert_eq!(from_input["operations"], plain["operations"]);

    // Its name says nothing; two packed files behind each other are one.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("work.jsonl");
    let (one, two) = work.as_bytes().split_at(work.len() / 3);
    fs::write(&file, [packed(one), packed(two)].concat()).unwrap();
    let output = super::run(&["--json", file.to_str().unwrap()], "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document["runs"][0]["operations"], plain["operations"]);
}

#[test]
fn a_wrong_line_is_named_by_its_place_in_what_was_packed() {
    let work = work(2) + "{\"op\":\"free\",\"id\":\"gone\"}\n";
    let (ran, told, code) = run(&packed(work.as_bytes()));
    assert_eq!(code, 2);
    let error = ran["error"].as_str().unwrap();
    assert!(
        error.starts_with("line 6: no object \"gone\" lives here"),
        "{error}"
    );
    assert_eq!(told, format!("glia: (standard input): {error}\n"));
}

#[test]
fn a_packed_workload_that_is_cut_or_damaged_is_told_with_the_line() {
    let whole = packed(work(1000).as_bytes());
    let (ran, _, code) = run(&whole[..whole.len() / 2]);
    assert_eq!(code, 2);
    let error = ran["error"].as_str().unwrap();
    let wanted = ": cannot be read: its gzip data is cut: it ends before its end";
    let line = error.strip_prefix("line ").unwrap().strip_suffix(wanted);
    let line: u64 = line.unwrap().parse().unwrap();
    assert!((2..2000).contains(&line), "{error}");

    let mut wrong = whole.clone();
    wrong[whole.len() - 5] ^= 0x80;
    let (ran, _, code) = run(&wrong);
    assert_eq!(code, 2);
    let error = ran["error"].as_str().unwrap();
    let wanted = "line 2002: cannot be read: its gzip data is damaged: ";
    assert!(error.starts_with(wanted), "{error}");
}

#[test]
fn a_packed_machine_or_plan_is_refused_as_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("packed.toml");
    fs::write(&file, packed(b"machine = \"trn2\"\n")).unwrap();
    let name = file.to_str().unwrap();
    for (option, what) in [("--machine", "the file is"), ("--faults", "is")] {
        let refused = super::run(&[option, name, "examples/first-tensor.jsonl"], "");
        let wanted = format!(
            "glia: {name}: {what} packed with gzip: unpack it, only workloads and logs can be packed\n"
        );
        assert_eq!((refused.code, refused.stderr), (2, wanted));
    }
}

#[test]
fn a_line_that_unpacks_to_more_than_a_line_can_be_is_refused() {
    // 64 MiB in 64 KiB: none of it is kept.
    let bomb = [
        b"{\"workload\":1,\"assumed\":[\"".to_vec(),
        vec![b'x'; 64 << 20],
    ]
    .concat();
    let (ran, _, code) = run(&packed(&bomb));
    assert_eq!(code, 2);
    assert_eq!(ran["error"], "line 1: is longer than 1048576 bytes");
}
