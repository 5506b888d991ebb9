//! No bytes make it panic, and what it gives can be printed.

use glia::explain::report::Report;
use glia::explain::{explain, tell};
use glia_abi::chance::Chance;

use super::printer::{ListReport, TableReport};

/// The same numbers at every run.
struct Numbers(Chance);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.below(end as u64)).unwrap()
    }
}

const WORDS: [&str; 40] = [
    "Failed to allocate ",
    "Failed to alloc",
    "DEVICE memory: ",
    "HOST memory (",
    "13.107MB",
    "4.000GB",
    "(usage: ",
    "alignment: none, ",
    "dma rings",
    ")",
    " on ND",
    " 0:NC 1",
    ", current utilization:",
    "\n",
    "\t* ",
    "total: ",
    "tensors: ",
    "|",
    "\\_NC 4 |",
    "  \\_NEFF 1001 |",
    "ND 0 HBM 0    |",
    "ND 3 Overall |",
    "  TOTAL   |",
    "DMA Rings |",
    " n/a |",
    "NEFF id to name mapping:\n",
    "1001: \"a-b\"",
    "\x1b[0m",
    "[ND 0:NC 5] Current Usage Total: ",
    "Per NEFF memory usage breakdown for [",
    "]:",
    "2026-Mar-01 10:00:00.1 4100:7 ERROR  TDRV:",
    "LNC size is 2. Neuron Cores using this HBM: NC 1",
    "Overall HBM usage",
    "18446744073709551616",
    "\u{2022}",
    "[... cut ...]\n",
    "Displaying Current Memory Utilization:",
    "status=4 message=\"",
    "mempool [1:0] occupied 5 needed 7 ",
];

fn read(log: &[u8]) -> Vec<Report> {
    let mut reports = Vec::new();
    let (_, result) = explain(log, "fuzz", |report| {
        let words = tell::paragraph(&report);
        assert!(!words.chars().any(|c| c.is_control() && c != '\n'));
        serde_json::to_string(&report).unwrap();
        reports.push(report);
        Ok(())
    });
    // Bytes may begin as gzip does, and then be none.
    assert!(result.is_ok() || log.starts_with(&[0x1f, 0x8b]));
    reports
}

#[test]
fn bytes_of_any_kind_are_read() {
    let mut numbers = Numbers(Chance::new(1));
    for length in 0..400 {
        let log: Vec<u8> = (0..length * 3)
            .map(|_| u8::try_from(numbers.below(256)).unwrap())
            .collect();
        read(&log);
    }
}

#[test]
fn words_in_any_order_are_read() {
    let mut numbers = Numbers(Chance::new(2));
    for _ in 0..4000 {
        let count = numbers.below(60);
        let log: String = (0..count)
            .map(|_| WORDS[numbers.below(WORDS.len())])
            .collect();
        read(log.as_bytes());
        let spaced: String = log.chars().flat_map(|letter| [letter, ' ']).collect();
        read(spaced.as_bytes());
    }
}

#[test]
fn a_real_report_with_damage_is_read() {
    let mut numbers = Numbers(Chance::new(3));
    let whole = ListReport::sample(7, 0, 1).whole() + &TableReport::sample(8, 1, [2, 3]).whole();
    for _ in 0..2000 {
        let mut log = whole.clone().into_bytes();
        for _ in 0..numbers.below(12) {
            let at = numbers.below(log.len());
            match numbers.below(4) {
                0 => log[at] = u8::try_from(numbers.below(256)).unwrap(),
                1 => log.insert(at, b'\n'),
                2 => drop(log.drain(at..(at + numbers.below(200)).min(log.len()))),
                _ => {
                    let piece = log[at..(at + numbers.below(200)).min(log.len())].to_vec();
                    let to = numbers.below(log.len());
                    log.splice(to..to, piece);
                }
            }
        }
        // Copies of pieces may copy reports, but nothing multiplies.
        assert!(read(&log).len() < 40);
    }
}

#[test]
fn every_beginning_of_a_report_is_read() {
    let whole = ListReport::sample(7, 0, 1).whole() + &TableReport::sample(8, 1, [2, 3]).whole();
    for end in 0..whole.len() {
        assert!(read(&whole.as_bytes()[..end]).len() <= 3);
        assert!(read(&whole.as_bytes()[end..]).len() <= 3);
    }
}

#[test]
fn a_line_without_end_is_read_in_linear_time() {
    for word in WORDS {
        let log = word.repeat(200_000 / word.len());
        read(log.replace('\n', " ").as_bytes());
    }
}

#[test]
fn held_memory_is_bounded_when_nothing_completes() {
    let mut log = String::new();
    for tid in 0..20_000 {
        log += &TableReport::sample(tid, tid, [0, 1]).failure();
    }
    assert_eq!(read(log.as_bytes()).len(), 20_000);
}
