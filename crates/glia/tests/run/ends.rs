//! How a run ends, and what it says of it.

use super::json;

#[test]
fn totals_are_exact_by_core_and_category() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":4097,"core":3,"usage":"weight"}"#,
        r#"{"op":"alloc","id":"b","size":"1MiB","core":3,"usage":"dma_ring_io"}"#,
        r#"{"op":"alloc","id":"c","size":100,"core":2}"#,
        r#"{"op":"alloc","id":"d","size":4096,"location":"host"}"#,
        r#"{"op":"alloc","id":"e","size":"64MiB","core":2}"#,
        r#"{"op":"free","id":"e"}"#,
    ]);
    assert_eq!(code, 0);
    let hbm = &run["devices"][0]["hbms"][1];
    assert_eq!(hbm["present_bytes"], 4097 + (1 << 20) + 100);
    assert_eq!(hbm["peak_bytes"], 4097 + (1 << 20) + 100 + (64 << 20));
    let core = &hbm["cores"][1];
    assert_eq!(core["core"], 3);
    assert_eq!(core["total_bytes"], 4097 + (1 << 20));
    let categories = core["categories"].as_object().unwrap();
    assert_eq!(categories.len(), 2);
    assert_eq!(categories["model constants"], 4097);
    assert_eq!(categories["dma rings io"], 1 << 20);
    assert_eq!(run["operations"]["live"], 4);
    assert!(run["failure"].is_null() && run["error"].is_null());
}

#[test]
fn an_expected_error_that_comes_is_as_hoped() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"25GiB","expect":"NRT_RESOURCE"}"#,
        r#"{"op":"alloc","id":"a","size":"1GiB"}"#,
        r#"{"op":"write","id":"a","offset":"1GiB","size":1,"expect":"NRT_INVALID"}"#,
        r#"{"op":"alloc","id":"b","size":1,"usage":"cc","location":"host","expect":"NRT_INVALID"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["operations"]["expected_errors"], 3);
    assert_eq!(run["operations"]["total"], 4);
}

#[test]
fn an_expected_error_that_does_not_come_is_not() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"1GiB","expect":"NRT_RESOURCE"}"#,
        r#"{"op":"free","id":"a"}"#,
    ]);
    assert_eq!(code, 1);
    assert_eq!(run["failure"]["line"], 2);
    assert_eq!(run["failure"]["expected"], "NRT_RESOURCE");
    assert_eq!(run["failure"]["status"], "NRT_SUCCESS");
    assert_eq!(run["failure"]["what"], "it succeeded");
    assert_eq!(run["operations"]["total"], 0, "it did not end as expected");
}

#[test]
fn what_does_not_fit_is_told_with_exact_bytes() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"22GiB","core":7,"usage":"weight"}"#,
        r#"{"op":"alloc","id":"b","size":1073741825,"align":"2MiB","core":6,"name":"kv"}"#,
    ]);
    assert_eq!(code, 1);
    let failure = &run["failure"];
    assert_eq!(failure["line"], 3);
    assert_eq!(run["operations"]["alloc"], 1, "the one that fitted");
    assert_eq!(failure["status"], "NRT_RESOURCE");
    assert_eq!(
        failure["oom"],
        serde_json::json!({
            "asked_bytes": 1_073_741_825,
            "alignment_bytes": 2 << 20,
            "usage": "tensors",
            "device": 0,
            "core": 6,
            "hbm": 3,
            "name": "kv",
            "events_file": null,
            "chunks_file": null,
        })
    );
    let log = failure["log"].as_str().unwrap();
    assert!(
        log.contains("(alignment: 2.000MB, usage: tensors) on ND 0:NC 6"),
        "{log}"
    );
}

#[test]
fn what_was_overwritten_in_part_is_compared_part_by_part() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"3MiB"}"#,
        r#"{"op":"write","id":"a","seed":1,"size":"2MiB"}"#,
        r#"{"op":"write","id":"a","seed":2,"offset":1048573,"size":7}"#,
        r#"{"op":"read","id":"a"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["bytes"]["written"], (2 << 20) + 7);
    assert_eq!(run["bytes"]["read"], 3 << 20);
    assert_eq!(
        run["bytes"]["verified"],
        2 << 20,
        "the last MiB was never written"
    );
}

#[test]
fn every_machine_runs_on_each_of_its_devices() {
    for (machine, devices, core) in [("trn1", 16, 1), ("trn2", 16, 7), ("trn3", 2, 7)] {
        let last = devices - 1;
        let workload = format!(
            "{{\"workload\":1,\"machine\":\"{machine}\",\"devices\":{devices}}}\n\
             {{\"op\":\"alloc\",\"id\":\"a\",\"size\":\"5MiB\",\"device\":{last},\"core\":{core}}}\n\
             {{\"op\":\"write\",\"id\":\"a\",\"seed\":9}}\n{{\"op\":\"read\",\"id\":\"a\"}}\n"
        );
        let run = super::run(&["--json", "-"], &workload);
        let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(run.code, 0, "{machine}: {}", run.stderr);
        assert_eq!(document["runs"][0]["bytes"]["verified"], 5 << 20);
    }
}
