//! Workloads that cannot be run: which line, what was found, what is allowed.

use super::run;

#[test]
fn the_help_is_plain_text() {
    let help = run(&["--help"], "");
    assert_eq!(help.code, 0);
    assert!(help.stdout.contains("Workloads; \"-\" is standard input"));
    assert!(!help.stdout.contains('\\'), "{}", help.stdout);
}

#[test]
fn a_wrong_line_is_named_and_nothing_behind_it_is_run() {
    let run = run(
        &["-"],
        "{\"workload\":1}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":1}\n{\"op\":\"free\",\"id\":\"b\"}\n",
    );
    assert_eq!(run.code, 2);
    assert_eq!(run.stdout, "");
    assert_eq!(
        run.stderr,
        "glia: (standard input): line 3: no object \"b\" lives here: it was never allocated, its allocation failed, it has been freed, or it went with its model or its process\n"
    );
}

#[test]
fn an_object_under_a_name_that_lives_is_refused() {
    let run = run(
        &["-"],
        "{\"workload\":1}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":1}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":1}\n",
    );
    assert_eq!(run.code, 2);
    assert_eq!(
        run.stderr,
        "glia: (standard input): line 3: an object \"a\" lives since line 2\n"
    );
}

#[test]
fn a_file_that_is_no_workload_or_not_there_is_told() {
    let log = run(&["examples/trn2-table.log"], "");
    assert_eq!(log.code, 2);
    assert!(
        log.stderr
            .starts_with("glia: examples/trn2-table.log: line 1: "),
        "{}",
        log.stderr
    );
    let missing = run(&["no-such.jsonl"], "");
    assert_eq!(missing.code, 2);
    assert!(
        missing
            .stderr
            .starts_with("glia: no-such.jsonl: No such file"),
        "{}",
        missing.stderr
    );
    for args in [
        ["--compare", "examples"],
        ["--faults", "examples"],
        ["--engine", "inline"],
    ] {
        let directory = run(&[&args[..], &["examples"]].concat(), "");
        assert_eq!(directory.code, 2);
        let said = directory.stderr.matches("(os error 21)").count();
        assert_eq!(said, 1, "{}", directory.stderr);
    }
}

#[test]
fn of_several_workloads_each_is_run_and_the_worst_end_counts() {
    let run = run(
        &["--json", "no-such.jsonl", "examples/first-tensor.jsonl"],
        "",
    );
    assert_eq!(run.code, 2);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["format"], 1);
    assert!(document["runs"][0]["error"].is_string());
    assert_eq!(document["runs"][1]["operations"]["total"], 18);
}

#[test]
fn a_name_from_the_file_cannot_move_the_cursor() {
    let run = run(
        &["-"],
        "{\"workload\":1}\n{\"op\":\"alloc\",\"id\":\"\\u001b[2Ja\",\"size\":1,\"expect\":\"NRT_RESOURCE\"}\n",
    );
    assert_eq!(run.code, 1);
    assert!(!run.stdout.contains('\u{1b}'), "{:?}", run.stdout);
    let key = run_key("s\\u001b[31miz");
    assert!(!key.stderr.contains('\u{1b}'), "{:?}", key.stderr);
    let long = run_key(&"x".repeat(100_000));
    assert!(long.stderr.len() < 10_000, "{}", long.stderr.len());
}

/// A line with a key that does not exist.
fn run_key(key: &str) -> super::Run {
    run(&["-"], &format!("{{\"workload\":1}}\n{{\"{key}\":1}}\n"))
}

#[test]
fn events_and_faults_need_a_file_with_a_name() {
    for option in ["--events", "--faults"] {
        let run = run(&[option, "-", "examples/first-tensor.jsonl"], "");
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        let found = format!("error: invalid value '-' for '{option} <FILE>'");
        assert!(run.stderr.starts_with(&found), "{}", run.stderr);
        assert!(run.stderr.contains("here, name a file"), "{}", run.stderr);
    }
    let stray = concat!(env!("CARGO_MANIFEST_DIR"), "/../../-");
    assert!(!std::path::Path::new(stray).exists());
}
