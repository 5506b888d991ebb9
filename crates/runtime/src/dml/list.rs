//! The list of what a core holds, as runtimes before SDK 2.24 print it instead of a table.
//!
//! One line for each item that is not 0, the total first. Up to SDK 2.20 all DMA rings are one.

use std::fmt::Write as _;

use glia_abi::mem_usage::{Aggregate, MemUsage};

use super::ledger::UsageBytes;
use super::report::ReportProfile;
use super::size::printed;

/// The four ring columns in one.
const RINGS: &str = "dma rings";

/// The name under which a list counts a usage.
pub(super) fn name(usage: MemUsage, profile: ReportProfile) -> &'static str {
    item(usage.aggregate(), profile)
}

fn item(aggregate: Aggregate, profile: ReportProfile) -> &'static str {
    match aggregate {
        Aggregate::DmaRingsIo
        | Aggregate::DmaRingsSpill
        | Aggregate::DmaRingsCollectives
        | Aggregate::DmaRingsRuntime
            if profile == ReportProfile::Sdk2_20 =>
        {
            RINGS
        }
        _ => aggregate.name(),
    }
}

/// The lines of a core's list.
pub(super) fn items(present: &UsageBytes, profile: ReportProfile) -> String {
    let mut items: Vec<(&str, u64)> = vec![("total", present.total())];
    for aggregate in Aggregate::ALL {
        let (name, bytes) = (item(aggregate, profile), present.aggregate(aggregate));
        match items.last_mut() {
            Some((last, sum)) if *last == name => *sum += bytes,
            _ => items.push((name, bytes)),
        }
    }
    let mut text = String::new();
    for (name, bytes) in items.into_iter().filter(|&(_, bytes)| bytes > 0) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\t* {name}: {}", printed(bytes));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists of a public log of 2024 (Inf2, SDK 2.18 or 2.19).
    #[test]
    fn the_list_of_sdk_2_20_is_that_of_a_real_log() {
        let mut present = UsageBytes::default();
        for (usage, bytes) in [
            (MemUsage::InstrPe, 505_864_520),   // 482.430 MiB
            (MemUsage::Weight, 1_591_738),      // 1.518 MiB
            (MemUsage::Tensor, 14_141_179_822), // 13.170 GiB
            (MemUsage::Scratchpad, 512 << 20),
            (MemUsage::Generic, 7_528), // 7.352 KiB
            (MemUsage::DmaRingIo, 1_000_000_000),
            (MemUsage::DmaRing, 579_474_223),
            (MemUsage::Cc, 384_829_424), // 367.002 MiB
        ] {
            present.add(usage, bytes);
        }
        let wanted = "\t* total: 15.972GB
\t* model code: 482.430MB
\t* model constants: 1.518MB
\t* tensors: 13.170GB
\t* shared scratchpad: 512.000MB
\t* runtime: 7.352KB
\t* dma rings: 1.471GB
\t* collectives: 367.002MB
";
        assert_eq!(items(&present, ReportProfile::Sdk2_20), wanted);
    }

    #[test]
    fn rings_are_told_apart_from_sdk_2_21_on() {
        let mut present = UsageBytes::default();
        present.add(MemUsage::DmaRingIo, 1);
        present.add(MemUsage::DmaRing, 2);
        let wanted = "\t* total: 3.000B\n\t* dma rings io: 1.000B\n\t* dma rings runtime: 2.000B\n";
        assert_eq!(items(&present, ReportProfile::Sdk2_23), wanted);
    }

    #[test]
    fn a_core_that_holds_nothing_has_no_items() {
        assert_eq!(items(&UsageBytes::default(), ReportProfile::Sdk2_23), "");
    }
}
