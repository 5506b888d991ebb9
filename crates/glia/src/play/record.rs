//! Recordings: the lines that were run, as a workload that can be run again.
//!
//! ```text
//!   {"recorded":1,"workload":1,"machine":"trn2","engine":"inline","seed":0,…}  what it ran on
//!   {"op":"alloc","id":"w","size":"200MiB","at":"0x4001000000"}                the line, and where
//!   {"op":"write","id":"w","seed":7}                                           it came to lie
//! ```
//!
//! Parameters are put in, command line and fault plan are in the first line, and memory in HBM has
//! its address, so that a run of the recording names the first allocation that lies elsewhere. Lines
//! are written in blocks; whenever the run ends, the last one is whole.

use std::io::Write;

use glia_abi::addr::BusAddr;
use serde_json::{Map, Value, json};

use crate::faults::PlanFile;
use crate::workload::{Header, RECORDING_STARTS, WORKLOAD_FORMAT};

/// Bytes of a block.
const BLOCK_BYTES: usize = 256 << 10;

/// Writes what is run. The rest is written when it is dropped.
pub(super) struct Recorder<'a> {
    /// `None` after a write that failed.
    out: Option<&'a mut (dyn Write + Send)>,
    block: Vec<u8>,
}

impl<'a> Recorder<'a> {
    /// Begins with a first line for the machine of the run.
    pub(super) fn new(
        out: &'a mut (dyn Write + Send),
        header: &Header,
        faults: Option<&PlanFile>,
    ) -> Self {
        let mut recorder = Self {
            out: Some(out),
            block: Vec::with_capacity(2 * BLOCK_BYTES),
        };
        let rest = Value::Object(first(header, faults)).to_string();
        let rest = rest.trim_start_matches('{');
        let first = format!("{RECORDING_STARTS}{WORKLOAD_FORMAT},{rest}");
        recorder.put(first.as_bytes(), None);
        recorder
    }

    /// Adds a line, with the address of the memory that it took.
    pub(super) fn put(&mut self, line: &[u8], at: Option<BusAddr>) {
        match (at, line.strip_suffix(b"}")) {
            (Some(at), Some(open)) => {
                self.block.extend_from_slice(open);
                self.block.extend_from_slice(b",\"at\":\"0x");
                put_hex(&mut self.block, at.get());
                self.block.extend_from_slice(b"\"}");
            }
            _ => self.block.extend_from_slice(line),
        }
        self.block.push(b'\n');
        if self.block.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(out) = &mut self.out
            && out.write_all(&self.block).is_err()
        {
            self.out = None;
        }
        self.block.clear();
    }
}

/// Hexadecimal digits, without the formatting machinery: there are millions.
fn put_hex(into: &mut Vec<u8>, number: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = 16 - (number | 1).leading_zeros() / 4;
    for digit in (0..digits).rev() {
        into.push(DIGITS[(number >> (4 * digit) & 0xf) as usize]);
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.flush();
        if let Some(out) = &mut self.out {
            // Whoever gave the writer notices by itself.
            let _ = out.flush();
        }
    }
}

/// The first line. What is as usual is left out.
fn first(header: &Header, faults: Option<&PlanFile>) -> Map<String, Value> {
    let mut first = Map::new();
    let mut put = |key: &str, value: Value| first.insert(key.to_owned(), value);
    let (machine, seed) = (&header.machine, header.seed);
    if machine.is_plain(seed) {
        put("machine", machine.model().name().into());
        put("devices", machine.devices().into());
        put("engine", machine.engine().name().into());
    } else {
        put("machine", json!(machine));
    }
    put("seed", seed.into());
    if header.lnc != 1 {
        put("lnc", header.lnc.into());
    }
    if header.contiguous_scratchpad {
        put("scratchpad", "contiguous".into());
    }
    put("scratchpad_page", header.scratchpad_page.bytes().into());
    if header.zero_copy {
        put("zero_copy", true.into());
    }
    if let Some(plan) = faults {
        put("faults", plan.document().clone());
    }
    if let Some(report) = header.report {
        put("report", json!(report));
    }
    if let Some(assumed) = &header.assumed {
        put("assumed", json!(assumed));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_formatter() {
        for number in [0, 1, 15, 16, 0x5c0_0000_0000, 0x40_0100_0000, u64::MAX] {
            let mut digits = Vec::new();
            put_hex(&mut digits, number);
            assert_eq!(String::from_utf8(digits).unwrap(), format!("{number:x}"));
        }
    }
}
