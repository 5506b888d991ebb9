//! Logs and streams of any length are read in memory that does not grow with them.
//!
//! The program itself is run, fed through a pipe, and asked for the most memory it ever had.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// How much more a long input may take: what allocators keep, no more.
const SLACK_KIB: u64 = 3 * 1024;

/// The most memory that `glia` had, when it had read all but the last of `pieces` from its standard
/// input.
fn peak_kib(arguments: &[&str], pieces: impl Iterator<Item = String>) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_glia"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for piece in pieces {
        input.write_all(piece.as_bytes()).unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.unwrap().trim_end_matches("kB").trim().parse().unwrap()
}

/// Two hundred ordinary lines, then reports of a dozen threads, none of which ends for certain.
fn dense(round: u64) -> String {
    let mut text = String::new();
    for line in 0..200 {
        let _ = writeln!(
            text,
            "2026-03-01 10:00:00 INFO trainer step={} loss=1.25 | lr 1e-4 | \"shard\": 12.5GB",
            round * 200 + line
        );
    }
    for thread in 0..12 {
        let (tid, bytes) = (round * 12 + thread, 41_000_000 + round * 4096 + thread);
        let prefix = format!("2026-Mar-01 10:00:00.123456  4703:{tid} ERROR  TDRV:log_dev_mem  ");
        let _ = match thread % 3 {
            0 => writeln!(
                text,
                "{prefix}Failed to allocate {bytes}.000B (usage: tensors) on ND 0:NC 1, current \
                 utilization:\n\t* total: 15.500GB\n\t* tensors: 15.000GB\n\t* runtime: 1.062KB\n"
            ),
            1 => writeln!(text, "{prefix}Failed to alloc DEVICE memory: {bytes}"),
            _ => writeln!(
                text,
                "{prefix}Failed to allocate {bytes}.000B (alignment: none, usage: tensors) on \
                 ND 0:NC 0\n{prefix}Displaying Current Memory Utilization:\n\
                 ND 0 HBM 0    | 15.500GB |\n\\_NC 0        | 15.500GB |\n\
                 NEFF id to name mapping:\n{tid}: \"module.neff\"\n"
            ),
        };
    }
    text
}

#[test]
fn a_long_log_takes_no_more_memory_than_a_short_one() {
    let peak = |rounds| peak_kib(&["explain", "--json"], (0..rounds).map(dense));
    // 10 MiB, at which the allocator has taken what it keeps, huge page by huge page, and 40 MiB.
    let (short, long) = (peak(500), peak(2000));
    assert!(long < short + SLACK_KIB, "{short} KiB, then {long} KiB");
}

/// Five hundred objects come, and as many go; three hundred live.
fn churn(round: u64) -> String {
    if round == 0 {
        return "{\"workload\":1,\"machine\":\"trn2\"}\n".to_owned();
    }
    let mut text = String::new();
    for n in 0..500 {
        let id = round * 500 + n;
        let _ = writeln!(
            text,
            "{{\"op\":\"alloc\",\"id\":\"t{id}\",\"size\":{},\"name\":\"tensor of step {id}\"}}",
            4096 * (1 + id % 64)
        );
        let gone = id.saturating_sub(300);
        if gone >= 500 {
            let _ = writeln!(text, "{{\"op\":\"free\",\"id\":\"t{gone}\"}}");
        }
    }
    text
}

#[test]
fn a_long_stream_takes_no_more_memory_than_what_lives_in_it() {
    let peak = |rounds| peak_kib(&["run", "-"], (0..rounds).map(churn));
    // 20 000 and 200 000 operations, 300 objects live.
    let (short, long) = (peak(21), peak(201));
    assert!(long < short + SLACK_KIB, "{short} KiB, then {long} KiB");
}
