//! `glia run --coverage`.

use std::fs;

use serde_json::Value;

use super::run;

#[test]
fn what_the_runs_exercised_is_written_to_the_file_and_only_over_its_like() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coverage.json");
    let file = path.to_str().unwrap();
    let example = "examples/first-tensor.jsonl";
    // Over what it has written itself, too.
    for times in [1, 2] {
        let ended = run(
            &[&["--coverage", file][..], &[example; 2][..times]].concat(),
            "",
        );
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let text = fs::read_to_string(&path).unwrap();
        let coverage: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(coverage["format"], 1);
        let commands = coverage["commands"].as_array().unwrap();
        let alloc = commands.iter().find(|it| it["name"] == "MEM_ALLOC_V2MT64");
        let alloc = alloc.unwrap();
        assert!(alloc["done"].as_u64().unwrap() >= 6 * times as u64);
        // The example has one that does not fit, and one of 0 bytes.
        assert!(alloc["errors"]["ENOMEM"].as_u64().unwrap() >= times as u64);
        let registers = coverage["registers"].as_array().unwrap();
        let doorbell = registers.iter().find(|it| it["name"] == "queue.tx.DrtpInc");
        assert!(doorbell.unwrap()["writes"].as_u64().unwrap() > 0);
    }
    let other = directory.path().join("workload.jsonl");
    fs::write(&other, "{\"workload\":1}\n").unwrap();
    let ended = run(&["--coverage", other.to_str().unwrap(), example], "");
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("left as it is"), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&other).unwrap(), "{\"workload\":1}\n");
}

#[test]
fn the_file_is_as_it_was_until_the_runs_are_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coverage.json");
    let file = path.to_str().unwrap();
    let ended = run(&["--coverage", file, "-"], "{\"workload\":1}\n");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let before = fs::read_to_string(&path).unwrap();
    // Nothing is run, since the log cannot be read.
    let ended = run(&["--coverage", file, "--compare", "no-such.log", "-"], "");
    assert_eq!(ended.code, 2);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let none = directory.path().join("none").join("coverage.json");
    let ended = run(&["--coverage", none.to_str().unwrap(), "-"], "");
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    assert!(
        ended.stderr.contains("cannot be written"),
        "{}",
        ended.stderr
    );
}
