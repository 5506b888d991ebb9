//! Workloads that cannot be run: which line, what was found, what is allowed.

use super::run;

#[test]
fn the_help_is_plain_text() {
    let help = run(&["--help"], "");
    assert_eq!(help.code, 0);
    assert!(
        help.stdout
            .contains("Workloads, plain or gzip; \"-\" is standard input")
    );
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

#[test]
fn a_report_of_a_log_has_a_number_from_1() {
    let zero = run(&["-"], "{\"workload\":1,\"report\":0}\n");
    assert_eq!(zero.code, 2);
    assert_eq!(
        zero.stderr,
        "glia: (standard input): line 1: report 0: 1 to 4294967295 are allowed\n"
    );
    let workload = "{\"workload\":1,\"report\":99}\n";
    for json in [&[][..], &["--json"]] {
        let compare = ["--compare", "examples/trn2-table.log", "-"];
        let many = run(&[json, &compare].concat(), workload);
        assert_eq!(many.code, 1);
        assert_eq!(
            many.stderr,
            "glia: (standard input): it rebuilds report 99, and the log to compare with has 1\n"
        );
    }
    let none = run(&["--compare", "examples/first-tensor.jsonl", "-"], workload);
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (
            1,
            "glia: (standard input): the log has no report to compare with\n"
        )
    );
}

#[test]
fn a_recording_that_cannot_be_written_is_told_and_disturbs_no_run() {
    let mut workload = "{\"workload\":1}\n".to_owned();
    for n in 0..20_000 {
        let id = format!("{{\"op\":\"alloc\",\"id\":\"{n}\",\"size\":1}}\n");
        workload += &id;
    }
    let run = run(&["--record", "/dev/full", "--json", "-"], &workload);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr
            .starts_with("glia: /dev/full: cannot be written: No space left"),
        "{}",
        run.stderr
    );
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(document["runs"][0]["operations"]["total"], 20_000);
}
