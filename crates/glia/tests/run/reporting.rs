//! What the runtime reports beside a failure, and how: warnings, forms of reports, details, files.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Run, run};

/// Two models with private blocks on core 0, of which the second wants larger pages.
const SCRATCHPAD: &str = "examples/scratchpad-512m-trn2.jsonl";
/// Models and tensors on both cores of HBM 2, and a request that fails.
const TABLE: &str = "examples/trn2-table.jsonl";

fn json_of(args: &[&str], input: &str) -> Value {
    let run = run(&[&["--json"], args].concat(), input);
    let document: Value = serde_json::from_str(&run.stdout).unwrap();
    document["runs"][0].clone()
}

/// Where these lines stand in a text, each behind the one before.
#[track_caller]
fn assert_in_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for line in wanted {
        let at = rest.find(line);
        assert!(
            at.is_some(),
            "{line:?} is missing, or not in its place, in {text}"
        );
        rest = &rest[at.unwrap() + line.len()..];
    }
}

#[test]
fn the_page_size_that_would_do_is_told_though_the_reservation_succeeded() {
    let Run { stdout, .. } = run(&[SCRATCHPAD], "");
    assert_in_order(
        &stdout,
        &[
            "  WARNED at line 4:\n",
            "WARN  TDRV:tdrv_scratchpad_reserve ",
            ": consider NEURON_SCRATCHPAD_PAGE_SIZE=1536\n",
            "  WARNED at line 5:\n",
            ": consider NEURON_SCRATCHPAD_PAGE_SIZE=2048\n",
            "ND 0 HBM 0 ",
        ],
    );
    let run = json_of(&[SCRATCHPAD], "");
    assert_eq!(run["warnings_total"], 2);
    let warnings = run["warnings"].as_array().unwrap();
    let told = warnings.iter().map(|one| {
        let log = one["log"].as_str().unwrap();
        let (_, advice) = log.split_once(": consider ").unwrap();
        (one["line"].clone(), one["count"].clone(), advice)
    });
    let wanted = [
        (json!(4), json!(1), "NEURON_SCRATCHPAD_PAGE_SIZE=1536\n"),
        (json!(5), json!(1), "NEURON_SCRATCHPAD_PAGE_SIZE=2048\n"),
    ];
    assert_eq!(told.collect::<Vec<_>>(), wanted);
}

#[test]
fn the_same_warning_is_told_once_and_what_was_expected_or_killed_is_none() {
    let reserve = |id: &str, expect: &str| {
        format!(
            r#"{{"op":"load","id":"{id}"}}
{{"op":"reserve","id":"{id}","variables":[{{"offset":"500MiB","size":"13MiB"}}]{expect}}}
"#
        )
    };
    let workload = [
        "{\"workload\":1}\n".to_owned(),
        reserve("a", ""),
        reserve("b", ""),
        reserve("c", ""),
        // Too large for the HBM, as expected; and frees that a dead process is refused.
        r#"{"op":"alloc","id":"x","size":"23GiB","expect":"NRT_RESOURCE"}
{"op":"kill","id":"main"}
"#
        .to_owned(),
    ]
    .concat();
    let told = run(&["-"], &workload);
    assert_eq!(told.code, 0, "{}", told.stdout);
    assert_in_order(&told.stdout, &["  WARNED at line 3 and 2 times more:\n"]);
    let ran = json_of(&["-"], &workload);
    assert_eq!(ran["warnings_total"], 3);
    assert_eq!(ran["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(ran["warnings"][0]["count"], 3);
}

#[test]
fn reports_and_the_tables_at_the_end_have_the_form_that_is_wanted() {
    let told = |profile: &str| run(&["--report-profile", profile, TABLE], "").stdout;
    for profile in ["sdk-2.20", "sdk-2.23"] {
        let rings = match profile {
            "sdk-2.20" => "\n\t* dma rings: 202.000KB\n",
            _ => "\n\t* dma rings io: 118.000KB\n\t* dma rings spill: 48.000KB\n",
        };
        assert_in_order(
            &told(profile),
            &[
                "\nND 0:NC 4, current utilization:\n\t* total: 20.094GB\n",
                rings,
                "Failed to alloc DEVICE memory: 4294967296\n",
                "(usage: tensors) on ND 0:NC 4, current utilization:\n",
                rings,
            ],
        );
    }
    let row = "\nND 0 Overall  | 20.188GB |";
    assert_in_order(&told("sdk-2.24"), &[" XT CC ", row, " XT CC ", row]);
    let row = "\nND 0 HBM 2    | 20.188GB |";
    assert_in_order(&told("runtime-2.31"), &[row, row]);
    let refused = run(&["--report-profile", "sdk-2.22", TABLE], "");
    assert_eq!(refused.code, 2);
    let names = "[possible values: sdk-2.20, sdk-2.23, sdk-2.24, runtime-2.31]";
    assert!(refused.stderr.contains(names), "{}", refused.stderr);
}

#[test]
fn a_verbose_table_has_each_usage_in_the_report_and_at_the_end() {
    let mark = "\n(a column for each usage: a form of Glia's own)\n";
    let told = run(&["--report-verbose", TABLE], "").stdout;
    assert_in_order(&told, &[mark, "|NOTIFICATION|", mark, "|NOTIFICATION|"]);
}

#[test]
fn details_are_the_blocks_of_loaded_models_and_the_counters_of_sysfs() {
    let wanted = [
        "INFO  TDRV:dml_log_dev_neff_mem",
        "\n[ND 0:NC 5] Current Usage Total: 96.285MB\n",
        "\nPer NEFF memory usage breakdown for [concat]:\n\tTotal: 244.875KB\n",
        "memory_usage of nd 0, process \"main\":\n",
        "  neuron_core4/device_mem/tensors                   20.000GB now    20.000GB at most\n",
        "  neuron_core5/device_mem/dma_rings                109.000KB now   109.000KB at most\n",
    ];
    let told = run(&["--details", TABLE], "").stdout;
    assert_in_order(&told, &wanted);
    let told = run(&[TABLE], "").stdout;
    assert!(!told.contains("memory_usage of"), "{told}");
}

#[test]
fn the_document_has_models_and_counters() {
    let run = json_of(
        &["-"],
        r#"{"workload":1}
{"op":"load","id":"m","core":3,"name":"/models/dense"}
{"op":"alloc","id":"w","size":4097,"model":"m","usage":"weight"}
{"op":"alloc","id":"t","size":100,"core":3}
{"op":"alloc","id":"h","size":64,"location":"host","usage":"dma_ring"}
{"op":"free","id":"t"}
"#,
    );
    let model = &run["models"][0];
    let log = model["log"].as_str().unwrap();
    assert!(
        log.contains("breakdown for [dense]:\n\tTotal: 4.001KB\n"),
        "{log}"
    );
    let told = [
        "id",
        "process",
        "neff",
        "name",
        "device",
        "core",
        "total_bytes",
        "categories",
    ];
    let told = told.map(|key| model[key].clone());
    let wanted = json!([
        "m", "main", 1001, "/models/dense", 0, 3, 4097, {"model constants": 4097}
    ]);
    assert_eq!(Value::from(told.to_vec()), wanted);
    let counter = |core: Value, counter: &str, present: u64, peak: u64| {
        json!({
            "process": "main", "device": 0, "core": core, "counter": counter,
            "present_bytes": present, "peak_bytes": peak,
        })
    };
    let wanted = json!([
        counter(Value::Null, "dma_rings", 64, 64),
        counter(json!(3), "tensors", 0, 100),
        counter(json!(3), "constants", 4097, 4097),
    ]);
    assert_eq!(run["metrics"], wanted);
    assert_eq!(
        (&run["warnings"], &run["warnings_total"]),
        (&json!([]), &json!(0))
    );
}

#[test]
fn events_and_chunks_go_to_the_directory_that_is_named() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_str().unwrap();
    let run = json_of(&["--dump", path, TABLE], "");
    let file = |key: &str, begins: &str| {
        let name = run["failure"]["oom"][key].as_str().unwrap();
        assert!(name.starts_with(&format!("{path}/{begins}")), "{name}");
        fs::read_to_string(name).unwrap()
    };
    let events = file("events_file", "nrt_mem_log_device_0_");
    assert_eq!(events.lines().count(), 1 + 25, "{events}");
    assert!(events.starts_with("action,mem_loc,mem_usage,"), "{events}");
    let chunks = file("chunks_file", "neuron_mem_log_device_0_hbm_2_");
    assert!(chunks.starts_with("pa,size,mem_type\n"), "{chunks}");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
}

#[test]
fn a_dump_to_a_directory_that_is_not_there_is_wrong_usage() {
    let refused = run(&["--dump", "no/such/place", TABLE], "");
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    let wanted = "glia: --dump no/such/place: there is no such directory\n";
    assert_eq!(refused.stderr, wanted);
}
