//! Runs under a fault plan.

use std::io::Write as _;

use serde_json::Value;
use tempfile::NamedTempFile;

use super::run;

// Before it come eight of the runtime, which takes a copy buffer for each core of a Trn2.
const ALLOC: &str = r#"{"op":"alloc","id":"a","size":4096,"expect":"NRT_RESOURCE"}"#;

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn what_each_rule_did_is_told_and_one_that_never_struck_is_loud() {
    let plan = file(
        "[[fault]]\nkind = \"failed-internal-alloc\"\nof = \"chunk-record\"\nprocess = 1000\n\
         command = \"MEM_ALLOC_V2MT64\"\nafter = 8\ncount = 1\n\n\
         [[fault]]\nkind = \"failed-pin\"\n\n[[fault]]\nkind = \"exhausted-handles\"\nnth = 1000\n",
    );
    let path = plan.path().to_str().unwrap();
    let workload = format!("{{\"workload\":1}}\n{ALLOC}\n");
    let run_text = run(&["--faults", path, "-"], &workload);
    assert!(
        run_text
            .stdout
            .contains("fault 2, failed-pin (line 9): NEVER STRUCK, and had no opportunity\n"),
        "{}",
        run_text.stdout
    );
    let json = run(&["--json", "--faults", path, "-"], &workload);
    assert_eq!(json.code, run_text.code);
    let document: Value = serde_json::from_str(&json.stdout).unwrap();
    let faults = &document["runs"][0]["faults"];
    assert_eq!(faults[0]["kind"], "failed-internal-alloc");
    assert_eq!(faults[0]["strikes"], 1);
    assert_eq!(faults[1]["opportunities"], 0);
    assert_eq!(faults[2]["strikes"], 0);
    assert!(faults[2]["opportunities"].as_u64().unwrap() > 0);
}

#[test]
fn an_allocation_that_is_to_fail_by_order_is_as_expected() {
    let plan = file(
        "[[fault]]\nkind = \"failed-internal-alloc\"\nof = \"request\"\nprocess = 1000\n\
         core = 1\nafter = 1\n",
    );
    let path = plan.path().to_str().unwrap();
    let fails = r#"{"op":"alloc","id":"b","size":4096,"core":1,"expect":"NRT_RESOURCE"}"#;
    let works = r#"{"op":"alloc","id":"a","size":4096}"#;
    let workload = format!("{{\"workload\":1}}\n{works}\n{fails}\n");
    let ordered = run(&["--faults", path, "-"], &workload);
    assert_eq!(ordered.code, 0, "{}{}", ordered.stdout, ordered.stderr);
    assert_eq!(run(&["-"], &workload).code, 1);
}

#[test]
fn a_plan_under_which_the_runtime_cannot_open_its_devices_is_unusable() {
    let plan =
        file("[[fault]]\nkind = \"failed-internal-alloc\"\nof = \"request\"\nprocess = 1000\n");
    let refused = run(
        &["--faults", plan.path().to_str().unwrap(), "-"],
        "{\"workload\":1}\n",
    );
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    let told = "the runtime cannot open its devices under the fault plan (fault 1, \
                failed-internal-alloc, line 1: strikes: 1): nd 0: MEM_ALLOC_V2MT64 answered ENOMEM\n";
    assert!(refused.stderr.ends_with(told), "{}", refused.stderr);
    // The same before there is a runtime, and of a plan that has two faults and no lines.
    let plan = r#"{"workload":1,"faults":{"fault":[
        {"kind":"failed-pin"},{"kind":"failed-internal-alloc","of":"pool"}]}}"#;
    let refused = run(&["-"], &plan.replace('\n', ""));
    assert_eq!(refused.code, 2);
    let told = "the machine cannot be built under the fault plan (fault 2, failed-internal-alloc: \
                strikes: 1): ";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
}

#[test]
fn the_plan_of_the_examples_strikes_and_is_waited_out() {
    let plan = "examples/faults-late-marker.toml";
    let run = run(
        &["--json", "--faults", plan, "examples/first-tensor.jsonl"],
        "",
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    let faults = document["runs"][0]["faults"].as_array().unwrap();
    let strikes: Vec<_> = faults
        .iter()
        .map(|fault| fault["strikes"].as_u64())
        .collect();
    assert_eq!(strikes, [Some(1), Some(1)]);
}

/// The plans of the format's page, each by the kind of its first fault.
fn documented() -> impl Iterator<Item = (&'static str, &'static str)> {
    let text = include_str!("../../../../docs/formats/faults.md");
    let blocks = text.split("```toml\n").skip(1);
    blocks.map(|block| {
        let plan = block.split("```").next().unwrap();
        let kind = plan.split("kind = \"").nth(1).unwrap();
        (kind.split('"').next().unwrap(), plan)
    })
}

/// Who copies an example of the format's page sees it strike what the page runs.
#[test]
fn the_first_plan_and_the_stuck_queue_of_the_documentation_strike_the_example() {
    for (kind, code) in [("late-marker", 0), ("stuck-queue", 1)] {
        let (_, plan) = documented().find(|&(first, _)| first == kind).unwrap();
        let plan = file(plan);
        let path = plan.path().to_str().unwrap();
        let run = run(
            &["--json", "--faults", path, "examples/first-tensor.jsonl"],
            "",
        );
        assert_eq!(run.code, code, "{}", run.stderr);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(document["runs"][0]["faults"][0]["strikes"], 1, "{kind}");
    }
}

#[test]
fn no_plan_of_the_documentation_stops_the_opening() {
    for (kind, plan) in documented() {
        let plan = file(plan);
        let path = plan.path().to_str().unwrap();
        let run = run(&["--faults", path, "examples/first-tensor.jsonl"], "");
        assert_ne!(run.code, 2, "{kind}: {}", run.stderr);
    }
}

#[test]
fn bits_that_flip_on_the_way_are_found_by_the_verifying_read() {
    let plan = file("[[fault]]\nkind = \"flipped-bits\"\noffset_bytes = 9\nmask = 0x80\nnth = 1\n");
    let workload = "{\"workload\":1}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":4096}\n\
                    {\"op\":\"write\",\"id\":\"a\",\"seed\":3}\n{\"op\":\"read\",\"id\":\"a\"}\n";
    let run = run(&["--faults", plan.path().to_str().unwrap(), "-"], workload);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(
        run.stdout
            .contains("\"a\" was to end in NRT_SUCCESS, but byte 9 is "),
        "{}",
        run.stdout
    );
}

#[test]
fn a_misspelt_plan_is_refused_before_anything_is_run() {
    let plan = file("[[fault]]\nkind = \"failed-pin\"\nprobabilty = 0.5\n");
    let path = plan.path().to_str().unwrap();
    let refused = run(&["--faults", path, "examples/first-tensor.jsonl"], "");
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    let told =
        "line 3: fault 1: unknown key `probabilty`: did you mean `probability`?; allowed are ";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
    let missing = run(
        &["--faults", "no-such.toml", "examples/first-tensor.jsonl"],
        "",
    );
    assert_eq!((missing.code, missing.stdout.as_str()), (2, ""));
    assert!(
        missing
            .stderr
            .starts_with("glia: no-such.toml: cannot be read: ")
    );
}

#[test]
fn a_plan_for_another_machine_is_refused_for_that_workload() {
    let plan = file("[[fault]]\nkind = \"stuck-queue\"\ncore = 7\ncount = 1\nnth = 1000000\n");
    let path = plan.path().to_str().unwrap();
    let on = |machine: &str| {
        let workload = format!("{{\"workload\":1,\"machine\":\"{machine}\"}}\n");
        run(&["--faults", path, "-"], &workload)
    };
    assert_eq!(on("trn2").code, 0);
    let refused = on("trn1");
    assert_eq!(refused.code, 2);
    assert_eq!(
        refused.stderr,
        format!(
            "glia: (standard input): the fault plan {path} does not fit: line 3: fault 1: `core` is \
             7 and has to be 0 to 1 on a machine with 1 device of v2\n"
        )
    );
}

#[test]
fn a_plan_cannot_move_the_cursor() {
    let plan = file("[[fault]]\n\"s\\u001b[2Jy\" = 1\n");
    let refused = run(&["--faults", plan.path().to_str().unwrap(), "-"], "");
    assert_eq!(refused.code, 2);
    assert!(!refused.stderr.contains('\u{1b}'), "{:?}", refused.stderr);
}
