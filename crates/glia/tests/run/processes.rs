//! Several processes in one workload.

use super::{error, json, run};

const START: &str = r#"{"op":"start","id":"trainer"}"#;
const OF_TRAINER: &str =
    r#"{"op":"alloc","id":"t","size":"2MiB","core":1,"process":"trainer","name":"grad"}"#;

#[test]
fn each_process_has_its_memory_and_all_share_the_device() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"1MiB"}"#,
        START,
        OF_TRAINER,
        r#"{"op":"write","id":"a","seed":1}"#,
        r#"{"op":"write","id":"t","seed":2}"#,
        r#"{"op":"read","id":"a"}"#,
        r#"{"op":"read","id":"t"}"#,
        r#"{"op":"check","present":"3MiB"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["bytes"]["verified"], 3 << 20);
    assert_eq!(run["processes"], serde_json::json!(["main", "trainer"]));
    assert_eq!(run["pids"], serde_json::json!([1000, 1001]));
    let hbm = &run["devices"][0]["hbms"][0];
    assert_eq!(hbm["present_bytes"], 3 << 20);
    let cores = hbm["cores"].as_array().unwrap();
    let totals: Vec<_> = cores
        .iter()
        .map(|core| core["total_bytes"].as_u64())
        .collect();
    assert_eq!(totals, [Some(1 << 20), Some(2 << 20)]);
}

#[test]
fn the_summary_says_which_process_has_which_pid_if_there_are_several() {
    let told = |lines: &str| run(&["-"], &format!("{{\"workload\":1}}\n{lines}\n")).stdout;
    let two = told(&format!("{START}\n{OF_TRAINER}"));
    let wanted =
        "\n  running: \"main\" pid 1000, \"trainer\" pid 1001; the tables that follow are of all";
    assert!(two.contains(wanted), "{two}");
    let one = told(r#"{"op":"alloc","id":"a","size":"1MiB"}"#);
    assert!(!one.contains("running"), "{one}");
}

#[test]
fn a_process_that_ends_takes_everything_along_whether_it_exits_or_is_killed() {
    for end in ["exit", "kill"] {
        let end = format!(r#"{{"op":"{end}","id":"trainer"}}"#);
        let (run, code) = json(&[
            r#"{"op":"check","largest_free":{"least":"22GiB"}}"#,
            r#"{"op":"alloc","id":"a","size":4096}"#,
            START,
            OF_TRAINER,
            r#"{"op":"load","id":"m","process":"trainer"}"#,
            r#"{"op":"alloc","id":"w","size":"20GiB","model":"m","usage":"weight"}"#,
            r#"{"op":"reserve","id":"m","variables":[{"offset":"500MiB","size":"100MiB"}]}"#,
            r#"{"op":"check","largest_free":{"most":"3GiB"}}"#,
            &end,
            // The driver has it back, not only the books.
            r#"{"op":"check","present":4096,"largest_free":{"least":"22GiB"}}"#,
            START,
            OF_TRAINER,
            r#"{"op":"load","id":"m","process":"trainer"}"#,
        ]);
        assert_eq!(code, 0, "{run}");
        assert_eq!(run["operations"]["live"], 2);
    }
}

#[test]
fn the_first_process_can_be_killed_and_started_again() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"1MiB"}"#,
        r#"{"op":"kill","id":"main"}"#,
        r#"{"op":"start","id":"main"}"#,
        r#"{"op":"alloc","id":"a","size":"1MiB"}"#,
        r#"{"op":"kill","id":"main"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["processes"], serde_json::json!([]));
    assert_eq!(run["peaks"][0]["bytes"], 1 << 20);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let cases: [(&[&str], &str); 6] = [
        (
            &[OF_TRAINER],
            "line 2: no process \"trainer\" runs here: it was never started, or it has ended",
        ),
        (
            &[START, START],
            "line 3: a process \"trainer\" runs since line 2",
        ),
        (
            &[
                START,
                r#"{"op":"kill","id":"trainer"}"#,
                r#"{"op":"exit","id":"trainer"}"#,
            ],
            "line 4: no process \"trainer\" runs here",
        ),
        (
            &[
                START,
                OF_TRAINER,
                r#"{"op":"kill","id":"trainer"}"#,
                r#"{"op":"read","id":"t"}"#,
            ],
            "line 5: no object \"t\" lives here: it was never allocated, its allocation failed, it has been freed, or it went with its model or its process",
        ),
        (
            &[
                START,
                OF_TRAINER,
                r#"{"op":"alloc","id":"a","size":4096}"#,
                r#"{"op":"copy","id":"a","to":"t"}"#,
            ],
            "line 5: objects \"a\" and \"t\" are of two processes, and no call reaches both",
        ),
        (
            &[
                START,
                r#"{"op":"load","id":"m"}"#,
                r#"{"op":"alloc","id":"w","size":1,"model":"m","process":"trainer"}"#,
            ],
            "line 4: \"process\" means nothing on alloc for a \"model\"",
        ),
    ];
    for (lines, wanted) in cases {
        let error = error(lines);
        assert!(error.contains(wanted), "{error}");
    }
}
