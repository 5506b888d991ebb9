//! `glia explain --workload` and `glia run --compare`: the state of a log, rebuilt and run.

use std::fs;

use assert_cmd::cargo::cargo_bin_cmd;
use serde_json::Value;
use tempfile::TempDir;

use super::printer::{GIB, ListReport, MIB, TableReport};

/// What became of a log.
struct Rebuilt {
    directory: TempDir,
    /// What is assumed, on stderr.
    assumed: String,
    code: i32,
}

fn rebuild(log: &str, args: &[&str]) -> Rebuilt {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("job.log"), log).unwrap();
    let output = cargo_bin_cmd!("glia")
        .current_dir(directory.path())
        .args(["explain", "job.log", "--workload", "job.jsonl"])
        .args(args)
        .output()
        .unwrap();
    Rebuilt {
        directory,
        assumed: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap(),
    }
}

impl Rebuilt {
    fn workload(&self) -> String {
        fs::read_to_string(self.directory.path().join("job.jsonl")).unwrap()
    }

    /// Runs the workload; the run's JSON and the exit code.
    fn run(&self) -> (Value, i32) {
        assert_eq!(self.code, 0, "{}", self.assumed);
        let output = cargo_bin_cmd!("glia")
            .current_dir(self.directory.path())
            .args(["run", "job.jsonl", "--compare", "job.log", "--json"])
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (document["runs"][0].clone(), output.status.code().unwrap())
    }

    /// All cells are equal, and there are so many of them.
    fn is_equal(&self, cells: u64) -> Value {
        let (run, code) = self.run();
        let comparison = &run["comparison"];
        assert_eq!(comparison["differences"], Value::Array(Vec::new()), "{run}");
        assert_eq!((comparison["cells"].as_u64().unwrap(), code), (cells, 0));
        run
    }
}

#[test]
fn a_list_is_rebuilt_and_its_request_fails() {
    let report = ListReport {
        items: vec![
            ("model code", 301 * MIB + 17),
            ("tensors", 12 * GIB + 700 * MIB + 1),
            ("runtime", 1088),
            ("dma rings", 2 * GIB + 700 * MIB + 333),
            ("collectives", 301 * MIB + 1),
        ],
        asked: 31_457_300,
        ..ListReport::sample(9, 2, 1)
    };
    let rebuilt = rebuild(&report.whole(), &[]);
    assert!(rebuilt.assumed.contains("the machine is a trn1"));
    // Bytes, usage, device and core of the request; the total and five items.
    let run = rebuilt.is_equal(10);
    // Whoever reads only the run is told, too.
    assert!(
        run["assumed"][0]
            .as_str()
            .unwrap()
            .contains("the machine is a trn1"),
        "{run}"
    );
    assert_eq!(run["failure"]["oom"]["asked_bytes"], 31_457_300);
    assert_eq!(run["failure"]["oom"]["device"], 2);
}

/// More bytes are free than were asked for, in both pools of the HBM.
#[test]
fn a_request_that_would_fit_finds_holes_that_are_too_small() {
    for asked in [20 * MIB, 300 * MIB, 1100 * MIB] {
        let report = ListReport {
            items: vec![("model code", 100 * MIB), ("tensors", 13 * GIB + 7)],
            asked,
            ..ListReport::sample(9, 0, 0)
        };
        let rebuilt = rebuild(&report.whole(), &[]);
        assert!(
            rebuilt.assumed.contains("that were given back"),
            "{}",
            rebuilt.assumed
        );
        rebuilt.is_equal(7);
    }
}

/// A list is about one core; on a Trn2 two share an HBM.
#[test]
fn a_neighbour_of_which_the_log_is_silent_holds_the_rest() {
    let report = ListReport {
        items: vec![("tensors", 12 * GIB + 7)],
        ..ListReport::sample(9, 0, 4)
    };
    let rebuilt = rebuild(&report.whole(), &[]);
    assert!(
        rebuilt.assumed.contains("NC 5, which shares the HBM"),
        "{}",
        rebuilt.assumed
    );
    rebuilt.is_equal(6);
}

/// No report counts other processes: a core on which its own holds nothing may be full of theirs.
#[test]
fn what_a_report_leaves_free_beside_an_empty_core_is_another_processs() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let workload = "{\"workload\":1}\n\
         {\"op\":\"start\",\"id\":\"rank1\"}\n\
         {\"op\":\"alloc\",\"id\":\"o\",\"size\":\"12GiB\",\"core\":0,\"process\":\"rank1\"}\n\
         {\"op\":\"alloc\",\"id\":\"m\",\"size\":\"8GiB\",\"core\":1}\n\
         {\"op\":\"alloc\",\"id\":\"k\",\"size\":\"4GiB\",\"core\":1}\n";
    fs::write(path("two.jsonl"), workload).unwrap();
    let mut glia = cargo_bin_cmd!("glia");
    let ended = glia.arg("run").arg(path("two.jsonl")).output().unwrap();
    let log = String::from_utf8(ended.stdout).unwrap();
    // The report, without what the run says at its end of all processes.
    let report = &log[log.find("Failed to allocate DEVICE memory").unwrap()..];
    let rebuilt = rebuild(report, &[]);
    assert!(
        rebuilt
            .assumed
            .contains("another process holds 11.985GB on NC 0"),
        "{}",
        rebuilt.assumed
    );
    let run = rebuilt.is_equal(3 * 13 + 4);
    let explanation = &run["failure"]["explanation"];
    assert_ne!(explanation["cause"], "fragmentation", "{explanation}");
}

#[test]
fn a_table_comes_out_with_its_models() {
    for has_xt_cc in [false, true] {
        let report = TableReport {
            has_xt_cc,
            asked: 4 * GIB,
            ..TableReport::sample(9, 1, [6, 7])
        };
        let rebuilt = rebuild(&report.whole(), &[]);
        // Three rows of 13 cells and two of 10, one more in three rows with XT CC, two names; bytes,
        // usage, device and core of the request.
        rebuilt.is_equal(3 * 13 + 2 * 10 + 2 + 4 + if has_xt_cc { 3 } else { 0 });
    }
}

#[test]
fn a_request_of_a_category_that_is_counted_elsewhere_now_is_the_same_request() {
    let report = TableReport {
        has_xt_cc: true,
        asked: 4 * GIB,
        ..TableReport::sample(9, 1, [6, 7])
    };
    let log = report.whole().replace("usage: tensors", "usage: xt cc");
    assert!(log.contains("usage: xt cc"));
    rebuild(&log, &[]).is_equal(3 * 14 + 2 * 10 + 2 + 4);
}

/// Each of the parts has lost up to half of a thousandth, and their sum shows it.
#[test]
fn totals_that_their_printed_parts_miss_come_out() {
    for step in 0..6 {
        let report = ListReport {
            items: vec![
                ("model code", 300 * MIB + 520 * step),
                ("model constants", 1 + 97 * step),
                ("tensors", 15 * GIB + 536_870 * step),
                ("scratchpad", 77 * MIB + 523),
                ("runtime", 1088 + step),
                ("dma rings", 130 * MIB + 524 + 111 * step),
            ],
            ..ListReport::sample(9, 0, 0)
        };
        let report = ListReport {
            asked: 900 * MIB,
            ..report
        };
        rebuild(&report.whole(), &[]).is_equal(11);
    }
}

#[test]
fn each_report_of_a_log_can_be_rebuilt() {
    let first = ListReport {
        items: vec![("tensors", 15 * GIB)],
        asked: 2 * GIB,
        ..ListReport::sample(9, 0, 0)
    };
    let second = ListReport {
        items: vec![("dma rings", 15 * GIB + 7)],
        asked: 3 * GIB,
        ..ListReport::sample(10, 0, 1)
    };
    let log = first.whole() + &second.whole();
    let rebuilt = rebuild(&log, &["--report", "2"]);
    assert!(rebuilt.assumed.contains("report 2 of 2"));
    let run = rebuilt.is_equal(6);
    assert_eq!(run["failure"]["oom"]["asked_bytes"], 3 * GIB);
    // The HBM of report 1 was as full, and must not look like a place to go to.
    assert!(
        rebuilt
            .assumed
            .contains("ND 0 HBM 0 is as report 1 of the log, line 2, has it"),
        "{}",
        rebuilt.assumed
    );
    let present = run["devices"][0]["hbms"][0]["present_bytes"].as_u64();
    assert!(present.is_some_and(|bytes| bytes > 15 * GIB - MIB), "{run}");
    assert_ne!(run["failure"]["explanation"]["cause"], "wrong_bank");
}

#[test]
fn a_run_that_ends_otherwise_is_told_by_its_cells() {
    let report = ListReport {
        items: vec![("tensors", 15 * GIB), ("runtime", 4096)],
        asked: 2 * GIB,
        ..ListReport::sample(9, 0, 0)
    };
    let rebuilt = rebuild(&report.whole(), &[]);
    let changed = rebuilt.workload().replace(":4096,", ":8192,");
    fs::write(rebuilt.directory.path().join("job.jsonl"), changed).unwrap();
    let (run, code) = rebuilt.run();
    assert_eq!(code, 1);
    let differences = run["comparison"]["differences"].as_array().unwrap();
    let wanted = serde_json::json!({
        "row": "ND 0 NC 0", "column": "runtime", "log": "4.000KB", "ours": "8.000KB",
    });
    assert_eq!(differences, &[wanted]);
}

#[test]
fn a_failure_without_a_breakdown_cannot_be_rebuilt() {
    let log = ListReport::sample(9, 0, 0).first();
    let rebuilt = rebuild(&log, &[]);
    assert_eq!(rebuilt.code, 1);
    assert!(
        rebuilt
            .assumed
            .contains("the log does not say what held the memory"),
        "{}",
        rebuilt.assumed
    );
    assert!(!rebuilt.directory.path().join("job.jsonl").exists());
}

/// What somebody has in a file is not ours to write over, the log itself least of all.
#[test]
fn a_file_that_is_no_workload_is_left_as_it_is() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("job.log");
    let text = ListReport::sample(9, 0, 0).whole();
    fs::write(&log, &text).unwrap();
    let mut glia = cargo_bin_cmd!("glia");
    let ended = glia.arg("explain").arg(&log).arg("--workload").arg(&log);
    let ended = ended.output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("left as it is"));
    assert_eq!(fs::read_to_string(&log).unwrap(), text);
}

/// One that was written by hand is not; one that was made of a log is made anew.
#[test]
fn only_a_workload_that_was_made_of_a_log_is_written_over() {
    let rebuilt = rebuild(&ListReport::sample(9, 0, 0).whole(), &[]);
    let path = |name: &str| rebuilt.directory.path().join(name);
    let explain = || {
        let mut glia = cargo_bin_cmd!("glia");
        let glia = glia.arg("explain").arg(path("job.log"));
        glia.arg("--workload").arg(path("job.jsonl"));
        glia.output().unwrap()
    };
    let made = rebuilt.workload();
    assert!(made.starts_with(glia::workload::REBUILT_STARTS));
    assert_eq!(explain().status.code(), Some(0));
    let mine =
        "{\"workload\":1,\"machine\":\"trn1\"}\n{\"op\":\"alloc\",\"id\":\"a\",\"size\":1}\n";
    fs::write(path("job.jsonl"), mine).unwrap();
    let ended = explain();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("left as it is"));
    assert_eq!(rebuilt.workload(), mine);
}

#[test]
fn a_device_that_no_workload_has_is_named() {
    for device in [16, u32::MAX] {
        let directory = TempDir::new().unwrap();
        let log = directory.path().join("job.log");
        fs::write(&log, ListReport::sample(9, device, 0).whole()).unwrap();
        let mut glia = cargo_bin_cmd!("glia");
        let ended = glia.arg("explain").arg(&log).arg("--workload");
        let ended = ended
            .arg(directory.path().join("job.jsonl"))
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1));
        let told = format!("device {device}; a workload has 16 devices at most");
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(stderr.contains(&told), "{stderr}");
    }
}

/// The smallest requests too: down to one byte, which any free page would take.
#[test]
fn a_small_request_finds_no_hole_however_little_is_free() {
    for asked in [
        1,
        4096,
        4097,
        9000,
        64 << 10,
        512 << 10,
        (512 << 10) + 1,
        700 << 10,
    ] {
        for tensors in [15 * GIB + 970 * MIB + 7, 15 * GIB + 1000 * MIB] {
            let report = ListReport {
                items: vec![("model code", 2 * MIB), ("tensors", tensors)],
                asked,
                ..ListReport::sample(9, 0, 0)
            };
            let rebuilt = rebuild(&report.whole(), &[]);
            if asked < 8192 && tensors < 15 * GIB + 1000 * MIB {
                assert_eq!(rebuilt.code, 1);
                let why = "holes that are smaller than it, and 5000 are the most that are made";
                assert!(rebuilt.assumed.contains(why), "{}", rebuilt.assumed);
                continue;
            }
            rebuilt.is_equal(7);
        }
    }
}

/// Next to nothing is in use, and a large request failed.
#[test]
fn a_nearly_empty_hbm_is_parted_by_little() {
    let report = ListReport {
        items: vec![("tensors", 5 * MIB)],
        asked: 100 * MIB,
        ..ListReport::sample(9, 0, 0)
    };
    rebuild(&report.whole(), &[]).is_equal(6);
}

#[test]
fn what_cannot_be_rebuilt_says_why() {
    let nothing = ListReport {
        items: vec![("tensors", 0)],
        asked: 100 * MIB,
        ..ListReport::sample(9, 0, 0)
    };
    let none_asked = ListReport {
        asked: 0,
        ..ListReport::sample(9, 0, 0)
    };
    let elsewhere = TableReport::sample(9, 1, [6, 7])
        .whole()
        .replace("on ND 1:NC 6", "on ND 1:NC 2");
    for (log, why) in [
        (nothing.whole(), "show nothing on the HBM"),
        (
            none_asked.whole(),
            "does not say how many bytes were asked for",
        ),
        (elsewhere, "does not say what held ND 1 HBM 1"),
    ] {
        let rebuilt = rebuild(&log, &[]);
        assert_eq!(rebuilt.code, 1);
        assert!(rebuilt.assumed.contains(why), "{}", rebuilt.assumed);
    }
}

/// The driver names an HBM and no core.
#[test]
fn a_request_of_the_drivers_line_is_made_on_its_hbm() {
    let log = "neuron:mc_alloc: device mempool [1:0] total 17179869184 occupied 17000000000 needed 1073741824 available 1\n";
    let rebuilt = rebuild(log, &[]);
    assert!(
        rebuilt.assumed.contains("on ND 0 NC 1"),
        "{}",
        rebuilt.assumed
    );
    assert!(rebuilt.assumed.contains("does not say what it was for"));
    let run = rebuilt.is_equal(2);
    assert_eq!(run["failure"]["oom"]["core"], 1);
}

/// Names that this runtime has not stay in the log's words, and the comparison has them.
#[test]
fn strange_names_are_told() {
    let report = ListReport {
        items: vec![("tensors", 15 * GIB), ("secret sauce", 300 * MIB + 7)],
        asked: 2 * GIB,
        usage: "moon dust",
        ..ListReport::sample(9, 0, 0)
    };
    let rebuilt = rebuild(&report.whole(), &[]);
    for told in [
        "\"secret sauce\" is no category of the runtime: its bytes are profiler buffers here",
        "\"moon dust\" is no usage of the runtime",
    ] {
        assert!(rebuilt.assumed.contains(told), "{}", rebuilt.assumed);
    }
    assert!(!rebuilt.assumed.contains("do not come out"));
    let (run, code) = rebuilt.run();
    assert_eq!(code, 1);
    let differences = run["comparison"]["differences"].as_array().unwrap();
    let columns: Vec<_> = differences
        .iter()
        .map(|one| one["column"].clone())
        .collect();
    assert_eq!(columns, ["usage", "secret sauce"]);
}

/// Ids that no process of the runtime gives.
#[test]
fn models_with_strange_ids_are_rebuilt_under_others() {
    let report = TableReport {
        asked: 4 * GIB,
        ..TableReport::sample(9, 1, [6, 7])
    };
    for (first, second) in [
        ("1001", "1001"),
        ("5000000000", "1001"),
        ("7", "9"),
        ("999999", "7"),
    ] {
        let log = report.whole();
        let log = log
            .replace("NEFF 1001", "NEFF x")
            .replace("1001: \"", "x: \"");
        let log = log.replace("NEFF 1002", &format!("NEFF {second}"));
        let log = log.replace("1002: \"", &format!("{second}: \""));
        let log = log.replace("NEFF x", &format!("NEFF {first}"));
        let log = log.replace("x: \"", &format!("{first}: \""));
        let rebuilt = rebuild(&log, &[]);
        assert!(
            rebuilt.assumed.contains("with another id"),
            "{}",
            rebuilt.assumed
        );
        rebuilt.is_equal(3 * 13 + 2 * 10 + 2 + 4);
    }
}

/// Lists of which the cut has left no line that says where: they are of the core that is taken to
/// have failed, in the state and in the comparison.
#[test]
fn lists_without_a_place_are_rebuilt_and_found_again() {
    let items = "\t* total: 23.577GB\n\t* shared scratchpad: 9.000GB\n\t* scratchpad: 8.149GB\n";
    let of_hbm = format!("Overall HBM usage:\n{items}");
    for (log, cells) in [(of_hbm.as_str(), 4), (items, 4)] {
        rebuild(log, &[]).is_equal(cells);
    }
}

/// The total of a model's account is known, and its last items are cut off.
#[test]
fn an_account_of_a_model_that_is_cut_is_rebuilt() {
    let head = "[ND 0:NC 5] Current Usage Total: 46.917MB\n\tshared scratchpad: 0.000B\n\
                Per NEFF memory usage breakdown for [module.neff]:\n\tTotal: 45.190MB\n";
    rebuild(head, &[]).is_equal(5);
    let cut = format!("{head}\t* model code: 42.568MB\n\t* model constants: 272.000KB\n");
    rebuild(&cut, &[]).is_equal(7);
}
