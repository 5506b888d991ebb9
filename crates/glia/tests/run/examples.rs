//! The examples do what the README says of them.

use super::run;

#[test]
fn the_first_tensor_comes_back_byte_by_byte() {
    let run = run(&["examples/first-tensor.jsonl"], "");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "examples/first-tensor.jsonl: 18 operations as expected (6 alloc, 5 write, 6 read, 1 free), 2 of them errors that were to come",
            "  209.004 MiB written, 211.504 MiB read and every byte of it verified; 4 objects live at the end",
        ]
    );
}

#[test]
fn what_does_not_fit_ends_in_the_report() {
    let run = run(&["examples/kv-cache-trn2.jsonl"], "");
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    assert!(run.stdout.contains(
        "examples/kv-cache-trn2.jsonl:56: \"kv\" was to end in NRT_SUCCESS, but ended in NRT_RESOURCE: "
    ));
    let (_, report) = run.stdout.split_once("dmem_alloc_internal").unwrap();
    let wanted = r"
              |          |  Model   |  Model   |          |  Shared  |          |          |DMA Rings |DMA Rings | DMA Rings |DMA Rings |           | Profiler |
              |  TOTAL   |   Code   |Constants | Tensors  |Scratchpad|Scratchpad| Runtime  |    IO    |  Spill   |Collectives| Runtime  |Collectives| Buffers  |
ND 0 HBM 2    | 20.188GB |192.102MB | 82.344KB | 20.000GB |  0.000B  |  0.000B  |350.125KB |179.000KB | 64.000KB |  0.000B   | 68.000KB |  0.000B   |  0.000B  |
  \_NC 4      | 20.094GB | 96.065MB | 58.344KB | 20.000GB |  0.000B  |  0.000B  |229.062KB |118.000KB | 48.000KB |  0.000B   | 36.000KB |  0.000B   |  0.000B  |
  \_NC 5      | 96.285MB | 96.037MB | 24.000KB |  0.000B  |  0.000B  |  0.000B  |121.062KB | 61.000KB | 16.000KB |  0.000B   | 32.000KB |  0.000B   |  0.000B  |
";
    assert!(report.contains(wanted), "{report}");
}

#[test]
fn the_workloads_beside_logs_are_what_explain_makes_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["llama-2-rings-inf2", "llama-3-70b-inf2", "trn2-table"] {
        let made = directory.path().join(name);
        let explained = assert_cmd::cargo::cargo_bin_cmd!("glia")
            .arg("explain")
            .arg(examples.join(name).with_extension("log"))
            .arg("--workload")
            .arg(&made)
            .output()
            .unwrap();
        assert!(explained.status.success(), "{name}: {explained:?}");
        let beside = std::fs::read_to_string(examples.join(name).with_extension("jsonl"));
        let made = std::fs::read_to_string(made).unwrap();
        // Line by line, so that a difference is short.
        assert!(
            beside.unwrap().lines().eq(made.lines()),
            "{name}: make it anew"
        );
    }
}

/// The report of a run is a log like any other.
#[test]
fn the_report_can_be_explained() {
    let run = run(&["examples/kv-cache-trn2.jsonl"], "");
    let output = assert_cmd::cargo::cargo_bin_cmd!("glia")
        .args(["explain", "--json"])
        .write_stdin(run.stdout)
        .output()
        .unwrap();
    let explained: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let reports = explained["reports"].as_array().unwrap();
    let report = reports
        .iter()
        .find(|report| report["kind"] == "device_oom")
        .unwrap();
    assert_eq!(report["asked_bytes"], 4_u64 << 30);
    assert_eq!(report["asked_exact"], true);
    assert_eq!(report["usage"], "tensors");
    assert_eq!(
        (&report["device"], &report["core"], &report["hbm"]),
        (&0.into(), &4.into(), &2.into())
    );
    assert_eq!(report["rows"][0]["total"]["text"], "20.188GB");
}

/// Logs and the workloads that rebuild them: all cells that the log has.
#[test]
fn rebuilt_logs_end_as_the_logs_do() {
    for (name, cells) in [
        ("llama-3-70b-inf2", 12),
        ("llama-2-rings-inf2", 12),
        ("trn2-table", 76),
    ] {
        let (workload, log) = (
            format!("examples/{name}.jsonl"),
            format!("examples/{name}.log"),
        );
        let run = run(&[&workload, "--compare", &log], "");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
        let last = run.stdout.lines().last().unwrap();
        let wanted = format!(
            "{log}:{}: the run ended as the log did: all {cells} cells that the log has are equal",
            if name == "trn2-table" { 5 } else { 2 }
        );
        assert_eq!(last, wanted);
    }
}

/// What failed stands above, and is no verdict.
#[test]
fn the_verdict_on_another_log_stands_last_below_what_differs() {
    let log = "examples/llama-3-70b-inf2.log";
    let run = run(&["examples/llama-2-rings-inf2.jsonl", "--compare", log], "");
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    let (_, told) = run.stdout.rsplit_once("\n\n").unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 9, "{told}");
    let first = format!("{log}:2: request, asked bytes: the log has 45429760, the run 13743184");
    assert_eq!(lines[0], first);
    let last = format!("{log}:2: the run did NOT end as the log did: 8 of 12 cells differ");
    assert_eq!(lines[8], last);
}

#[test]
fn one_core_is_full_and_the_others_are_idle() {
    let run = run(&["examples/checkpoint-merge-trn1.jsonl", "--json"], "");
    assert_eq!(run.code, 1);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let run = &document["runs"][0];
    assert_eq!(run["failure"]["id"], "shard 8");
    let devices = run["devices"].as_array().unwrap();
    let hbms = devices
        .iter()
        .flat_map(|one| one["hbms"].as_array().unwrap());
    let present: Vec<u64> = hbms
        .map(|hbm| hbm["present_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!((present.len(), present[0]), (32, 14 << 30));
    assert_eq!(present[1..].iter().sum::<u64>(), 0);
}

/// Every block of the format's page is a workload, or the operations of one.
#[test]
fn the_blocks_of_the_documentation_run_as_they_stand() {
    let page = include_str!("../../../../docs/formats/workload.md");
    let mut blocks = vec![String::new()];
    for line in page.lines() {
        let last = blocks.last_mut().unwrap();
        match line.strip_prefix("    {") {
            Some(rest) => *last += &format!("{{{rest}\n"),
            None if last.is_empty() => {}
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.is_empty());
    assert_eq!(blocks.len(), 7);
    for block in blocks {
        let first = ["{\"workload\":1}\n", ""][usize::from(block.starts_with("{\"workload"))];
        let params: &[&str] = match block.contains("\"params\"") {
            true => &["--param", "MODEL=dense", "-"],
            false => &["-"],
        };
        let run = run(params, &format!("{first}{block}"));
        assert_eq!(run.code, 0, "{block}{}{}", run.stdout, run.stderr);
    }
}

/// With pages of 512 MiB the cache does not fit, and with pages of 2 GiB it does.
#[test]
fn the_size_of_a_scratchpad_page_decides() {
    let small = run(&["examples/scratchpad-512m-trn2.jsonl", "--json"], "");
    assert_eq!(small.code, 1, "{}", small.stderr);
    let report: serde_json::Value = serde_json::from_str(&small.stdout).unwrap();
    let failure = &report["runs"][0]["failure"];
    assert_eq!(
        (&failure["line"], &failure["id"]),
        (&7.into(), &"kv".into())
    );
    assert_eq!(failure["explanation"]["cause"], "wrong_bank");
    let log = failure["log"].as_str().unwrap();
    // Shared and private.
    assert!(log.contains(
        "\\_NC 0      | 4.500GB  |  0.000B  |  0.000B  |  0.000B  | 2.000GB  | 2.500GB  |"
    ));
    let large = run(&["examples/scratchpad-2g-trn2.jsonl"], "");
    assert_eq!(
        (large.code, large.stderr.as_str()),
        (0, ""),
        "{}",
        large.stdout
    );
}
