//! What the command line says in the place of the workload.

use serde_json::Value;

use super::run;

const WORK: &str = concat!(
    r#"{"workload":1,"machine":"trn2","params":{"SIZE":"1MiB","CORE":0,"SEED":null}}"#,
    "\n",
    r#"{"op":"alloc","id":"a","size":"$SIZE","core":"$CORE"}"#,
    "\n",
    r#"{"op":"write","id":"a","seed":"$SEED"}"#,
    "\n",
    r#"{"op":"read","id":"a"}"#,
    "\n",
);

fn json(args: &[&str], workload: &str) -> (Value, i32) {
    let run = run(&[args, &["--json", "-"]].concat(), workload);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    (document["runs"][0].clone(), run.code)
}

#[test]
fn parameters_are_put_in_and_what_is_not_declared_is_refused() {
    let (ran, code) = json(&["--param", "SEED=7", "--param", "CORE=3"], WORK);
    assert_eq!(code, 0, "{ran}");
    assert_eq!(ran["devices"][0]["hbms"][1]["present_bytes"], 1 << 20);
    let (ran, _) = json(&["--param", "SEED=7", "--param", "SIZE=4096"], WORK);
    assert_eq!(ran["bytes"]["verified"], 4096);

    let error = |args: &[&str]| {
        let (ran, code) = json(args, WORK);
        assert_eq!(code, 2);
        ran["error"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        error(&[]),
        "line 1: parameter \"SEED\" has no value: give it with --param SEED=VALUE"
    );
    assert_eq!(
        error(&["--param", "SEED=7", "--param", "SIZ=1"]),
        "line 1: unknown parameter \"SIZ\": allowed are CORE, SEED, SIZE"
    );
    assert_eq!(
        error(&["--param", "SEED=7", "--param", "CORE=8"]),
        "line 2: core 8: 0 to 7 are allowed: each device of a trn2 has 8 cores"
    );
    let usage = run(&["--param", "SEED", "-"], WORK);
    assert_eq!(usage.code, 2);
    assert!(usage.stderr.contains("NAME=VALUE"), "{}", usage.stderr);
}

#[test]
fn every_engine_runs_a_workload_to_the_same_end() {
    let ends = ["inline", "threaded", "virtual"].map(|engine| {
        let args = ["--json", "--engine", engine, "--param", "SEED=7", "-"];
        let run = run(&args, WORK);
        assert_eq!(run.code, 0, "{engine}: {}", run.stderr);
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        let run = &document["runs"][0];
        (
            run["bytes"].clone(),
            run["devices"].clone(),
            run["peaks"].clone(),
        )
    });
    assert_eq!(ends[0], ends[1]);
    assert_eq!(ends[0], ends[2]);
    let wrong = run(&["--engine", "inlin", "-"], WORK);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong
            .stderr
            .contains("[possible values: inline, threaded, virtual]")
    );
}

#[test]
fn a_seed_decides_the_order_of_the_virtual_engine_and_the_bytes_of_patterns() {
    let directory = tempfile::tempdir().unwrap();
    let events = |seed: &str, n: u32| {
        let file = directory.path().join(format!("{seed}-{n}"));
        let name = file.to_str().unwrap();
        let args = ["--engine", "virtual", "--seed", seed, "--param", "SEED=7"];
        let told = ["--events", name, "--events-detail", "descriptors", "-"];
        let run = run(&[&args[..], &told[..]].concat(), WORK);
        assert_eq!(run.code, 0, "{}", run.stderr);
        std::fs::read(file).unwrap()
    };
    assert!(events("1", 1) == events("1", 2), "one seed, two runs");
    assert!(events("1", 1) != events("2", 1), "two seeds, one run");
}

#[test]
fn another_machine_and_more_devices_stand_in_the_place_of_the_workloads() {
    let workload = "{\"workload\":1}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":\"25GiB\"}\n";
    assert_eq!(run(&["-"], workload).code, 1, "trn2 has no room");
    let other = run(&["--arch", "trn3", "-"], workload);
    assert_eq!(other.code, 0, "{}", other.stdout);
    let workload = "{\"workload\":1}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":1,\"device\":2}\n";
    let refused = run(&["-"], workload);
    assert!(
        refused.stderr.ends_with(
            "line 2: device 2: 0 to 0 are allowed: the machine has 1 device; \"devices\" of the first \
             line or of the machine's file, or --devices, gives it others\n"
        ),
        "{}",
        refused.stderr
    );
    let refused = run(&["--arch", "inf2", "examples/kv-cache-trn2.jsonl"], "");
    let wanted = "core 4: 0 to 1 are allowed: each device of a trn1 or inf2 has 2 cores\n";
    assert!(refused.stderr.ends_with(wanted), "{}", refused.stderr);
    assert_eq!(run(&["--devices", "3", "-"], workload).code, 0);
    assert_eq!(run(&["--devices", "17", "-"], workload).code, 2);
    assert_eq!(run(&["--arch", "trn9", "-"], workload).code, 2);
}

#[test]
fn first_lines_that_cannot_be_meant_are_refused() {
    let cases = [
        (
            r#"{"workload":1,"engine":"fast"}"#,
            "unknown engine \"fast\": allowed are inline, threaded, virtual",
        ),
        (
            r#"{"workload":1,"scratchpad":"big"}"#,
            "unknown scratchpad \"big\": allowed are paged, contiguous",
        ),
        (
            r#"{"workload":1,"scratchpad_page":"1MiB"}"#,
            "unknown scratchpad_page \"1048576\": allowed are the multiples of 512MiB below 4GiB",
        ),
        (r#"{"workload":1,"lnc":0}"#, "lnc 0: 1 to 8 are allowed"),
        (
            r#"{"workload":1,"params":{"A":true}}"#,
            "unknown value of a parameter \"true\": allowed are a string, a number, or null",
        ),
        (
            r#"{"workload":1,"params":[1]}"#,
            "invalid type: sequence, expected an object",
        ),
        (
            r#"{"workload":1,"faults":{"fault":[{"kind":"failed-pin","nt":1}]}}"#,
            "fault 1: unknown key `nt`: did you mean `nth`?",
        ),
        (
            "[1,\"trn2\"]",
            "no workload: that begins with a line such as",
        ),
    ];
    for (first, wanted) in cases {
        let refused = run(&["-"], &format!("{first}\n"));
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
        let wanted = format!("line 1: {wanted}");
        assert!(refused.stderr.contains(&wanted), "{}", refused.stderr);
    }
}
