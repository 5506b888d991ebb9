//! Files that cannot be replayed: exit code 2 and a message that names file and line.

use std::fs;

use super::{conform, golden_dir, golden_text, meta, trace};

const INIT: &str = r#"{"op":"init","arch":"v2","out":{"ret":0}}"#;

/// Runs the command on a file of this name and content, and gives what it says on stderr after the
/// file's name.
fn complaint(name: &str, content: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    let run = conform(&[path.to_str().unwrap()]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    let prefix = format!("glia: {}: ", path.display());
    run.stderr
        .strip_prefix(&prefix)
        .unwrap_or(&run.stderr)
        .trim_end()
        .to_owned()
}

/// The complaint about a record that stands on line 3, after an init.
fn complaint_about(record: &str) -> String {
    complaint("t.jsonl", trace(&[INIT, record]).as_bytes())
}

#[test]
fn a_line_that_is_no_json_is_named() {
    let text = complaint_about(r#"{"op":"free","id":1,"out":{"freed":tru}}"#);
    assert!(
        text.starts_with("line 3: not JSON as traces have it, at column 39: "),
        "{text}"
    );
}

#[test]
fn an_unknown_operation_is_named_with_the_known_ones() {
    let text = complaint_about(r#"{"op":"defragment","out":{}}"#);
    assert!(
        text.starts_with(r#"line 3: operation "defragment" is not one of init, alloc, ref, "#),
        "{text}"
    );
}

#[test]
fn arguments_that_are_missing_wrong_or_unknown_are_named() {
    assert_eq!(
        complaint_about(r#"{"op":"bounds","id":1,"off":0,"out":{"ok":true}}"#),
        "line 3: bounds: argument `len` is missing: it must be a whole number from 0 to 18446744073709551615"
    );
    assert_eq!(
        complaint_about(r#"{"op":"expire","life":"forever","out":{}}"#),
        r#"line 3: expire: argument `life` is "forever": it must be "local", "process", "all" or "device""#
    );
    assert_eq!(
        complaint_about(r#"{"op":"as","pid":1,"why":2,"out":{}}"#),
        "line 3: as: argument `why` is not one of this operation with these others: it has pid"
    );
}

#[test]
fn a_file_cut_short_is_refused_before_it_is_replayed() {
    let whole = golden_text("basic-v2.jsonl");
    let lines: Vec<&str> = whole.lines().take(100).collect();
    assert_eq!(
        complaint("t.jsonl", lines.join("\n").as_bytes()),
        "line 101: the file has 99 records, but its first line says 211: it is cut short or glued together"
    );
}

#[test]
fn a_file_cut_inside_its_last_line_names_that_line() {
    let whole = golden_text("basic-v2.jsonl");
    let text = complaint("t.jsonl", &whole.as_bytes()[..whole.len() - 20]);
    assert!(text.starts_with("line 212: not JSON"), "{text}");
}

#[test]
fn a_packed_file_cut_short_names_the_line() {
    let packed = fs::read(golden_dir().join("weights-v2.jsonl.gz")).unwrap();
    let text = complaint("t.jsonl.gz", &packed[..packed.len() / 2]);
    let (line, rest) = text
        .strip_prefix("line ")
        .unwrap()
        .split_once(": ")
        .unwrap();
    assert!(
        (1000..3000).contains(&line.parse::<u32>().unwrap()),
        "{text}"
    );
    assert!(rest.starts_with("its gzip data is cut"), "{text}");
}

#[test]
fn another_version_of_the_format_is_refused() {
    let text = meta(0).replace(r#""format":1"#, r#""format":2"#);
    assert_eq!(
        complaint("t.jsonl", text.as_bytes()),
        "line 1: format version 2 is not supported: it must be 1"
    );
}

#[test]
fn a_record_before_the_first_init_is_refused() {
    let text = complaint("t.jsonl", trace(&[r#"{"op":"hstat","out":{}}"#]).as_bytes());
    assert_eq!(
        text,
        "line 2: hstat before the first init: a trace's first record must be init"
    );
}

#[test]
fn an_id_that_is_used_up_is_refused() {
    let alloc = r#"{"op":"alloc","id":7,"size":1,"align":0,"loc":"device","ch":9,"rg":0,"nc":0,"life":"all","type":7,"out":{"ret":-22}}"#;
    let text = complaint("t.jsonl", trace(&[INIT, alloc, alloc]).as_bytes());
    assert_eq!(
        text,
        "line 4: alloc: id 7 was used since the last init: ids must be new"
    );
}

#[test]
fn a_file_that_is_not_there_is_named_and_the_others_are_replayed() {
    let basic = golden_dir().join("basic-v2.jsonl");
    let run = conform(&["/nowhere/t.jsonl", basic.to_str().unwrap()]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr
            .starts_with("glia: /nowhere/t.jsonl: cannot be read: No such file"),
        "{}",
        run.stderr
    );
    assert!(
        run.stdout
            .contains("basic-v2.jsonl: 211 records, 0 mismatches\n"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout
            .ends_with("total: 2 files (1 unusable), 211 records, 0 mismatches\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_directory_without_traces_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = conform(&[dir.path().to_str().unwrap()]);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr
            .contains("no file *.jsonl or *.jsonl.gz in this directory"),
        "{}",
        run.stderr
    );
}

#[test]
fn the_usage_is_told_when_there_is_nothing_to_replay() {
    let run = conform(&[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("Usage: glia conform"), "{}", run.stderr);
}

#[test]
fn the_help_has_examples_and_exit_codes() {
    let run = conform(&["--help"]);
    assert_eq!(run.code, 0);
    assert!(
        run.stdout.contains("Examples:") && run.stdout.contains("Exit status:"),
        "{}",
        run.stdout
    );
}

#[test]
fn what_was_found_before_a_broken_line_is_told_too() {
    let records = [r#"{"op":"init","arch":"v2","out":{"ret":1}}"#, "broken"];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    fs::write(&path, trace(&records)).unwrap();
    let run = conform(&[path.to_str().unwrap()]);
    assert_eq!(run.code, 2);
    assert!(
        run.stdout
            .contains("t.jsonl:2: record 1, init: ret: expected 1, got 0"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.contains("; not replayed to its end\n"),
        "{}",
        run.stdout
    );
}

/// A hundred kilobytes packed can be gigabytes of values; a line has a limit, and says so.
#[test]
fn a_line_beyond_its_limit_is_refused_before_it_is_read() {
    let long = format!(
        r#"{{"op":"meta","format":1,"records":0,"x":[{}{{}}]}}"#,
        "{},".repeat(3_000_000)
    );
    let said = complaint("long.jsonl", long.as_bytes());
    assert!(
        said.starts_with("line 1: 9000045 bytes in one line"),
        "{said}"
    );
}

#[test]
fn names_from_a_file_are_shown_and_not_obeyed() {
    let record =
        r#"{"op":"as","pid":1,"out":{"\u001b[2J\nforged.jsonl: 5 records, 0 mismatches":1}}"#;
    let init = r#"{"op":"init","arch":"v2","out":{"ret":0}}"#;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    std::fs::write(&path, trace(&[init, record])).unwrap();
    let run = conform(&["--max", "100", path.to_str().unwrap()]);
    assert_eq!(run.code, 1);
    assert!(!run.stdout.contains('\u{1b}'), "{}", run.stdout);
    assert!(!run.stdout.lines().any(|line| line.starts_with("forged")));
    assert!(
        run.stdout.contains("\\u{1b}[2J\\nforged.jsonl"),
        "{}",
        run.stdout
    );
}
