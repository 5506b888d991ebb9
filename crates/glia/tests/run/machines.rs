//! `glia run --machine`: a machine from a file in the place of the workload's, and what acts upon it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::run;

/// Small, and odd in everything that a run can show.
const ODD: &str = r#"
machine = "trn2"
devices = 2
region_size = "64MiB"
hbm_fill = 0xA5
[params]
mempool_small_pool_size = "16MiB"
mempool_min_alloc_size = "64KiB"
[host]
pinned_max = "8MiB"
scatter_seed = 3
[engines]
run = "virtual"
seed = 7
timing = { latency_ns = 90, bytes_per_us = 1000 }
"#;

const WORK: &str = concat!(
    r#"{"workload":1,"machine":"trn1","devices":1,"engine":"inline","seed":5}"#,
    "\n",
    r#"{"op":"alloc","id":"a","size":"1MiB","device":1,"core":7}"#,
    "\n",
    r#"{"op":"write","id":"a","seed":1}"#,
    "\n",
    r#"{"op":"read","id":"a"}"#,
    "\n",
    r#"{"op":"alloc","id":"b","size":"64MiB","expect":"NRT_RESOURCE"}"#,
    "\n",
    r#"{"op":"check","core":7,"device":1,"free":"47MiB"}"#,
    "\n",
);

fn written(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let file = directory.join(name);
    fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

fn json(args: &[&str], workload: &str) -> (Value, i32) {
    let run = run(&[args, &["--json", "-"]].concat(), workload);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    (document["runs"][0].clone(), run.code)
}

/// What may differ between two runs.
fn timeless(mut run: Value) -> Value {
    for key in ["seconds", "file"] {
        run[key] = Value::Null;
    }
    run
}

#[test]
fn a_file_replaces_the_machine_and_the_run_says_which_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let odd = written(directory.path(), "odd.toml", ODD);
    let (ran, code) = json(&["--machine", &odd], WORK);
    assert_eq!(code, 0, "{ran}");
    let machine = json!({
        "machine": "trn2",
        "devices": 2,
        "region_size": 64 << 20,
        "hbm_fill": 0xa5,
        "params": {"mempool_small_pool_size": 16 << 20, "mempool_min_alloc_size": 64 << 10},
        "host": {"pinned_max": 8 << 20, "scatter_seed": 3},
        "engines": {
            "run": "virtual",
            "seed": 7,
            "timing": {"latency_ns": 90, "bytes_per_us": 1000},
        },
    });
    assert_eq!(ran["machine"], machine);
    // Printed JSON is a machine file, too, and one that says the same.
    let same = written(directory.path(), "same.json", machine.to_string());
    let (again, _) = json(&["--machine", &same], WORK);
    assert_eq!(timeless(again), timeless(ran));

    let told = run(&["--machine", &odd, "-"], WORK).stdout;
    let wanted = "\n  on trn2 with devices 2, engines.run virtual, engines.seed 7, \
                  engines.timing.bytes_per_us 1000, engines.timing.latency_ns 90, hbm_fill 165,";
    assert!(told.contains(wanted), "{told}");
    let (plain, _) = json(&[], "{\"workload\":1,\"engine\":\"virtual\",\"seed\":5}\n");
    let wanted = json!({"machine": "trn2", "devices": 1, "engines": {"run": "virtual", "seed": 5}});
    assert_eq!(plain["machine"], wanted);
    let told = run(&["-"], "{\"workload\":1}\n").stdout;
    assert!(!told.contains("  on trn2"), "{told}");
}

#[test]
fn options_act_upon_the_file_as_they_do_upon_the_first_line() {
    let directory = tempfile::tempdir().unwrap();
    let odd = written(directory.path(), "odd.toml", ODD);
    let machine = |args: &[&str]| {
        let args = [&["--machine", &odd], args].concat();
        let (ran, _) = json(&args, "{\"workload\":1,\"seed\":5}\n");
        ran["machine"].clone()
    };
    assert_eq!(machine(&["--arch", "trn1"])["machine"], "trn1");
    assert_eq!(machine(&["--devices", "3"])["devices"], 3);
    assert_eq!(machine(&["--seed", "9"])["engines"]["seed"], 9);
    let inline = json!({"run": "inline", "timing": {"latency_ns": 90, "bytes_per_us": 1000}});
    assert_eq!(machine(&["--engine", "inline"])["engines"], inline);
    assert_eq!(machine(&["--engine", "inline"])["hbm_fill"], 0xa5);

    // A seed that the file does not say is the run's.
    let bare = written(
        directory.path(),
        "bare.toml",
        "machine = \"trn2\"\nengines = { run = \"virtual\" }",
    );
    let (ran, _) = json(&["--machine", &bare], "{\"workload\":1,\"seed\":5}\n");
    assert_eq!(ran["machine"]["engines"]["seed"], 5);
}

#[test]
fn what_does_not_go_together_is_refused_with_both_values() {
    let directory = tempfile::tempdir().unwrap();
    let odd = written(directory.path(), "odd.toml", ODD);
    let error = |args: &[&str], first: &str| {
        let (ran, code) = json(args, &format!("{first}\n"));
        assert_eq!(code, 2, "{ran}");
        ran["error"].as_str().unwrap().to_owned()
    };
    let refused = error(
        &["--machine", &odd, "--engine", "threaded"],
        "{\"workload\":1}",
    );
    assert_eq!(
        refused,
        "line 1: engine \"threaded\" cannot go with engines.timing { latency_ns = 90, bytes_per_us = \
         1000 } of the machine, which is of inline and virtual engines only"
    );
    let large = "machine = \"trn2\"\nregion_size = \"96GiB\"";
    let large = written(directory.path(), "large.toml", large);
    let refused = error(&["--machine", &large, "--arch", "trn1"], "{\"workload\":1}");
    let wanted = format!(
        "the machine {large} cannot be built: a region of 103079215104 bytes does not fit v2:"
    );
    assert!(refused.starts_with(&wanted), "{refused}");
    // The first line is read all the same.
    let refused = error(&["--machine", &odd], r#"{"workload":1,"machine":"trn9"}"#);
    assert!(
        refused.starts_with("line 1: unknown machine \"trn9\""),
        "{refused}"
    );
    // A plan that is about what only the workload's machine has.
    let plan =
        r#"{"workload":1,"devices":4,"faults":{"fault":[{"kind":"failed-pin","device":3}]}}"#;
    let refused = error(&["--machine", &odd], plan);
    assert!(
        refused.contains("`device` is 3 and has to be 0 to 1"),
        "{refused}"
    );
}

#[test]
fn a_recording_has_the_machine_and_ends_alike() {
    let directory = tempfile::tempdir().unwrap();
    let odd = written(directory.path(), "odd.toml", ODD);
    let trace = directory.path().join("trace.jsonl");
    let trace = trace.to_str().unwrap();
    let recorded = ["--machine", &odd, "--record", trace];
    let (ran, code) = json(&recorded, WORK);
    assert_eq!(code, 0, "{ran}");
    let text = fs::read_to_string(trace).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["machine"], ran["machine"]);
    assert_eq!(
        (&first["seed"], &first["engine"]),
        (&5.into(), &Value::Null)
    );

    let replay = run(&["--json", trace], "");
    assert_eq!(replay.code, 0, "{}", replay.stderr);
    let document: Value = serde_json::from_str(&replay.stdout).unwrap();
    assert_eq!(timeless(document["runs"][0].clone()), timeless(ran));
    // What it says is needed: with another small pool the memory lies elsewhere.
    let other = ODD.replace(
        "mempool_min_alloc_size = \"64KiB\"",
        "mempool_small_alloc_max = \"2MiB\"",
    );
    let other = written(directory.path(), "other.toml", other);
    let moved = run(&["--machine", &other, trace], "");
    assert_eq!(moved.code, 1);
    assert!(
        moved.stdout.contains("and was to lie at"),
        "{}",
        moved.stdout
    );

    // One that has but a name is recorded as ever.
    let plain = written(
        directory.path(),
        "plain.toml",
        "machine = \"inf2\"\ndevices = 2",
    );
    let workload = "{\"workload\":1,\"seed\":5}\n";
    assert_eq!(
        run(&["--machine", &plain, "--record", trace, "-"], workload).code,
        0
    );
    let first = fs::read_to_string(trace).unwrap();
    let wanted = r#"{"recorded":1,"workload":1,"devices":2,"engine":"inline","machine":"trn1","#;
    assert!(first.starts_with(wanted), "{first}");
}

#[test]
fn events_of_a_recording_are_those_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let odd = written(directory.path(), "odd.toml", ODD);
    let named = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (trace, events) = (named("trace.jsonl"), [named("one"), named("two")]);
    let detail = ["--events-detail", "descriptors"];
    let one = [
        "--machine",
        &odd,
        "--record",
        &trace,
        "--events",
        &events[0],
        "-",
    ];
    assert_eq!(run(&[&detail[..], &one].concat(), WORK).code, 0);
    let two = ["--events", &events[1], &trace];
    assert_eq!(run(&[&detail[..], &two].concat(), "").code, 0);
    let lines = events.map(|file| {
        let text = fs::read_to_string(file).unwrap();
        // The first one names the workload, and lines have moved by none.
        text.split_once('\n').unwrap().1.to_owned()
    });
    assert!(lines[0].lines().count() > 100);
    assert!(lines[0] == lines[1], "one machine and seed, two runs");
}

#[test]
fn a_workload_can_say_a_machine_in_full() {
    let first = r#"{"workload":1,"machine":{"machine":"trn2","region_size":"64MiB","params":{"mempool_small_pool_size":"16MiB"}}}"#;
    let workload = format!(
        "{first}\n{{\"op\":\"alloc\",\"id\":\"a\",\"size\":\"33MiB\",\"expect\":\"NRT_RESOURCE\"}}\n"
    );
    let (ran, code) = json(&[], &workload);
    assert_eq!(code, 0, "{ran}");
    let cases = [
        (
            r#"{"machine":"trn2","devices":2},"devices":3"#,
            "\"devices\" 3 stands beside a machine in full, which says devices 2 itself",
        ),
        (
            r#"{"machine":"trn2"},"engine":"virtual""#,
            "\"engine\" virtual stands beside a machine in full, which says engine inline itself",
        ),
        (
            r#"{"machine":"trn2","device":2}"#,
            "machine: unknown field `device`, expected one of `machine`, `devices`",
        ),
        (r#"{"devices":2}"#, "machine: missing field `machine`"),
        (
            r#"{"machine":"trn2","devices":17}"#,
            "machine: devices is 17: 1 to 16 are allowed",
        ),
        (
            r#"["trn2"]"#,
            "unknown machine \"[\\\"trn2\\\"]\": allowed are trn1, trn2, trn3, inf2, or a machine in full",
        ),
    ];
    for (machine, wanted) in cases {
        let refused = run(
            &["-"],
            &format!("{{\"workload\":1,\"machine\":{machine}}}\n"),
        );
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
        let wanted = format!("line 1: {wanted}");
        assert!(refused.stderr.contains(&wanted), "{}", refused.stderr);
    }
}

#[test]
fn hostile_files_are_refused_before_anything_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| written(directory.path(), name, bytes);
    let cases = [
        (
            directory.path().to_str().unwrap().to_owned(),
            "the file cannot be read: Is a directory (os error 21)",
        ),
        (file("empty.toml", b""), "line 1: missing field `machine`"),
        (
            file("binary", b"\x7fELF\xff\x00\x01"),
            "the file cannot be read: invalid utf-8 sequence",
        ),
        (
            file(
                "threads.toml",
                b"machine = \"trn2\"\n[engines]\nrun = \"threaded\"\nthreads = 4294967295",
            ),
            "line 4: threads is 4294967295: 1 to 256 are allowed",
        ),
        (file("nul.toml", b"machine = \"trn2\"\n\0"), "line 2: "),
        ("/dev/zero".to_owned(), "the file has more than 65536 bytes"),
        (
            file("list.json", b"[\"trn2\", 1]"),
            "line 1: invalid type: sequence, expected an object",
        ),
        (
            file("work.jsonl", WORK.as_bytes()),
            "line 1: unknown field `workload`",
        ),
        (
            file("escape.toml", b"\"\\u001b[2J\" = 1"),
            "line 1: unknown field `\\u{1b}[2J`",
        ),
        (
            "trn2".to_owned(),
            "the file cannot be read: No such file or directory (os error 2); a machine by its name is --arch trn2\n",
        ),
    ];
    for (name, wanted) in cases {
        let refused = run(&["--machine", &name, "examples/first-tensor.jsonl"], "");
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{name}");
        let wanted = format!("glia: {name}: {wanted}");
        assert!(refused.stderr.starts_with(&wanted), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    let huge = [
        (
            "region_size = 18446744073709551615",
            "region size 18446744073709551615 is not a positive multiple",
        ),
        (
            "region_size = \"1000TiB\"",
            "a region of 1099511627776000 bytes does not fit v3",
        ),
        (
            "[host]\narena_size = 18446744073709551615",
            "host memory cannot be had: an arena of 18446744073709551615 bytes",
        ),
        (
            "[params]\nmempool_min_alloc_size = 18446744073709551615",
            "module parameter mempool_min_alloc_size is 18446744073709551615",
        ),
    ];
    for (line, wanted) in huge {
        let huge = file(
            "huge.toml",
            format!("machine = \"trn2\"\n{line}\n").as_bytes(),
        );
        let refused = run(&["--machine", &huge, "examples/first-tensor.jsonl"], "");
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{line}");
        let begins =
            format!("glia: examples/first-tensor.jsonl: the machine {huge} cannot be built: ");
        assert!(refused.stderr.starts_with(&begins), "{}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
    }
}
