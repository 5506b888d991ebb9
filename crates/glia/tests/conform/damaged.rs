//! Damaged traces: whatever a file holds, the replay ends with a report or a complaint and never
//! with a panic.

use glia::conform::replay_text;
use glia::conform::report::{FileReport, Wanted};

use super::{golden_text, trace};

const FILES: [&str; 3] = ["basic-v3.jsonl", "fatal-v2.jsonl", "invalid-args-v2.jsonl"];
const ROUNDS: u64 = 200;

/// Numbers at which sizes, counts and indices tend to break.
const EXTREMES: [&str; 10] = [
    "0",
    "1",
    "-1",
    "4095",
    "2147483648",
    "4294967295",
    "1099511627776",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
];

/// A row of numbers that looks random and is the same in every run (the constants are Knuth's).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

fn replay(text: &str) {
    let wanted = Wanted {
        per_kind: 1,
        all_kinds: true,
    };
    // What is found does not matter here.
    let _ = replay_text(text, wanted, &mut FileReport::new("test".to_owned()));
}

#[test]
fn changed_bytes_make_no_panic() {
    for file in FILES {
        let text = golden_text(file);
        let mut numbers = Numbers(1);
        for _ in 0..ROUNDS {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..3 {
                let at = numbers.below(bytes.len());
                bytes[at] = b' ' + u8::try_from(numbers.below(95)).unwrap();
            }
            replay(&String::from_utf8(bytes).unwrap());
        }
    }
}

#[test]
fn extreme_numbers_make_no_panic() {
    for file in FILES {
        let text = golden_text(file);
        let records: Vec<&str> = text.lines().skip(1).collect();
        let mut numbers = Numbers(2);
        for _ in 0..ROUNDS {
            let mut records: Vec<String> =
                records.iter().map(|&record| record.to_owned()).collect();
            for _ in 0..5 {
                let at = numbers.below(records.len());
                records[at] = with_extreme_argument(&records[at], &mut numbers);
            }
            replay(&trace(&records));
        }
    }
}

/// The record with one of the numbers before its outcome replaced, or, of an init, one of its sizes
/// set.
fn with_extreme_argument(record: &str, numbers: &mut Numbers) -> String {
    const SIZES: [&str; 8] = [
        "min_alloc_size",
        "host_memory_size",
        "small_pool_size",
        "small_alloc_max",
        "qemu_bar_size",
        "host_capacity",
        "host_max_alloc",
        "host_fail_after",
    ];
    let extreme = EXTREMES[numbers.below(EXTREMES.len())];
    if record.starts_with(r#"{"op":"init""#) {
        let size = SIZES[numbers.below(SIZES.len())];
        return record.replacen('{', &format!(r#"{{"{size}":{extreme},"#), 1);
    }
    let (arguments, out) = record.split_once(r#","out":"#).unwrap();
    let starts: Vec<usize> = arguments.match_indices(':').map(|(at, _)| at + 1).collect();
    let start = starts[numbers.below(starts.len())];
    let end = arguments[start..]
        .find(',')
        .map_or(arguments.len(), |length| start + length);
    format!(
        "{}{extreme}{},\"out\":{out}",
        &arguments[..start],
        &arguments[end..]
    )
}
