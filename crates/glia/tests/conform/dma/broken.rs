//! Files that cannot be replayed: exit code 2 and a message that names file and line.

use std::fs;

use super::super::conform;
use super::scenario;

/// What the command says about a scenario with this line at its end, after the file's name.
fn complaint_about(line: &str) -> String {
    let mut lines = scenario("copy_v3.jsonl.gz", "memcpy_raw")[..4].to_vec();
    lines.push(line.to_owned());
    complaint(&lines.join("\n"))
}

fn complaint(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    fs::write(&path, text).unwrap();
    let run = conform(&[path.to_str().unwrap()]);
    assert_eq!(run.code, 2, "{}", run.stderr);
    let prefix = format!("glia: {}: ", path.display());
    run.stderr
        .strip_prefix(&prefix)
        .unwrap()
        .trim_end()
        .to_owned()
}

#[test]
fn a_line_that_is_no_record_is_named() {
    let text = complaint_about(r#"{"op":"hash","name":"D","#);
    assert!(
        text.starts_with("line 5: not JSON as traces have it, at column "),
        "{text}"
    );
    assert_eq!(
        complaint_about("7"),
        "line 5: 7 where an object {\"op\":…} or {\"scenario\":…} must stand"
    );
    assert_eq!(
        complaint_about(r#"{"size":7}"#),
        "line 5: field `op` is missing: it must be the name of an operation"
    );
}

#[test]
fn an_unknown_operation_is_named_with_the_known_ones() {
    let text = complaint_about(r#"{"op":"defragment"}"#);
    assert!(
        text.starts_with(r#"line 5: operation "defragment" is not one of chunk, buffer, fill, "#),
        "{text}"
    );
}

#[test]
fn arguments_that_are_missing_wrong_or_unknown_are_named() {
    assert_eq!(
        complaint_about(r#"{"op":"hash","name":"D","off":0}"#),
        "line 5: hash: argument `len` is missing: it must be a whole number from 0 to 4294967296"
    );
    assert_eq!(
        complaint_about(r#"{"op":"engine","modes":["late"]}"#),
        r#"line 5: engine: argument `modes` is ["late"]: it must be a list of "normal", "hang" and "late:N", N in microseconds"#
    );
    assert_eq!(
        complaint_about(r#"{"op":"buffer","name":"K","size":1,"pa":"0x10"}"#),
        r#"line 5: buffer: argument `pa` is "0x10": it must be a string of up to 16 hexadecimal digits"#
    );
    assert_eq!(
        complaint_about(r#"{"op":"buffer","name":"K","size":1,"pa":"10","nc":0}"#),
        "line 5: buffer: argument `nc` is not one of this operation with these others: it has name, size, pa"
    );
    assert_eq!(
        complaint(r#"{"scenario":"s","arch":"v9","platform":"hw","fill_buffer_pa":"0"}"#),
        r#"line 1: scenario: argument `arch` is "v9": it must be "v2" or "v3""#
    );
}

#[test]
fn objects_that_are_not_there_are_named() {
    assert_eq!(
        complaint_about(r#"{"op":"hash","name":"E","off":0,"len":1}"#),
        "line 5: hash: `name` is \"E\": it must be a chunk or buffer of this scenario (D)"
    );
    assert_eq!(
        complaint_about(r#"{"op":"fill","name":"D","seed":1,"off":8388600,"len":9}"#),
        "line 5: fill: `D` has 8388608 bytes, and none at offset 8388600 + 9"
    );
    assert_eq!(
        complaint_about(r#"{"op":"buffer","name":"K","size":2,"pa":"ffffffffffffffff"}"#),
        "line 5: buffer: address ffffffffffffffff cannot be: the object must end within 64 bits"
    );
}

#[test]
fn what_was_found_before_a_broken_line_is_reported() {
    let mut lines = scenario("copy_v3.jsonl.gz", "memcpy_raw")[..5].to_vec();
    lines[4] = lines[4].replace(r#""moved":8"#, r#""moved":9"#);
    lines.push("broken".to_owned());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    let run = conform(&[path.to_str().unwrap()]);
    assert_eq!(run.code, 2);
    let first = run.stdout.lines().next().unwrap();
    assert!(
        first.ends_with("t.jsonl:5: scenario memcpy_raw, memcpy: moved: expected 9, got 8"),
        "{first}"
    );
}

#[test]
fn an_address_at_which_no_ring_can_be_is_a_mismatch_and_no_panic() {
    let mut lines = scenario("copy_v3.jsonl.gz", "memcpy_raw")[..2].to_vec();
    lines[1] = lines[1]
        .replace("400018124000", "ffffffffffffff00")
        .replace("400018145000", "7");
    let found = super::told(&super::replayed(&lines));
    assert_eq!(
        found,
        [
            "2 init_ncs rings[0].tx_pa",
            "2 init_ncs rings[0].marker_pa",
            "2 init_ncs reg_fnv"
        ]
    );
}
