//! What a loaded model owns, as data and as the block that the runtime logs after a load.
//!
//! The block has changed: up to SDK 2.23 it is the list of the core; SDK 2.24 has a block for the
//! model, under the core's total and shared scratchpad; later ones add the core's tensors.

use std::fmt::Write as _;

use glia_abi::handle::{CoreId, DeviceId};
use glia_abi::mem_usage::Aggregate;

use super::ledger::UsageBytes;
use super::line::{Level, LogContext};
use super::list;
use super::report::ReportProfile;
use super::size::printed;
use super::table::{ModelUsage, place};

/// The items of a model, in their order.
const ITEMS: [Aggregate; 9] = [
    Aggregate::ModelCode,
    Aggregate::ModelConstants,
    Aggregate::Scratchpad,
    Aggregate::Runtime,
    Aggregate::DmaRingsIo,
    Aggregate::DmaRingsSpill,
    Aggregate::DmaRingsCollectives,
    Aggregate::DmaRingsRuntime,
    Aggregate::Collectives,
];

/// What a loaded model owns, and what its core holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReport {
    /// The device.
    pub device: DeviceId,
    /// The core that the model is loaded on.
    pub core: CoreId,
    /// What is charged to the core.
    pub core_present: UsageBytes,
    /// The model, and what it owns.
    pub model: ModelUsage,
}

impl ModelReport {
    /// What the block calls the model: the last part of its path.
    #[must_use]
    pub fn short_name(&self) -> &str {
        let name = &self.model.name;
        name.rsplit('/').next().unwrap_or(name)
    }

    /// Bytes of the model that the block counts: the sum of its nine items.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let items = ITEMS.into_iter();
        items.map(|item| self.model.present.aggregate(item)).sum()
    }

    /// The lines that the reference logs.
    #[must_use]
    pub fn text(&self, profile: ReportProfile, context: &LogContext) -> String {
        let place = place(self.device, self.core);
        let core = &self.core_present;
        if profile.is_list() {
            let items = list::items(core, profile);
            let message = format!("{place}, current utilization:\n{items}");
            return context.line(Level::Info, "log_dev_mem", message);
        }
        let mut text = context.line(Level::Info, "dml_log_dev_neff_mem", "");
        let total = printed(core.total());
        let scratchpad = printed(core.aggregate(Aggregate::SharedScratchpad));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{place}] Current Usage Total: {total}");
        let _ = match profile {
            ReportProfile::Sdk2_24 => writeln!(text, "\tshared scratchpad: {scratchpad}"),
            _ => writeln!(
                text,
                "\tShared Scratchpad: {scratchpad}\n\tTensors: {}",
                printed(core.aggregate(Aggregate::Tensors))
            ),
        };
        let name = self.short_name();
        let _ = writeln!(text, "Per NEFF memory usage breakdown for [{name}]:");
        let _ = writeln!(text, "\tTotal: {}", printed(self.total_bytes()));
        for item in ITEMS {
            let bytes = self.model.present.aggregate(item);
            let _ = writeln!(text, "\t* {}: {}", item.name(), printed(bytes));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::mem_usage::MemUsage;

    use super::super::ledger::ModelId;
    use super::*;

    fn usages(parts: &[(MemUsage, u64)]) -> UsageBytes {
        let mut usages = UsageBytes::default();
        for &(usage, bytes) in parts {
            usages.add(usage, bytes);
        }
        usages
    }

    /// The state of a public log of 2026 (Trn2), with a few bytes in two columns that it does not
    /// count.
    fn report() -> ModelReport {
        let parts = [
            (MemUsage::InstrPe, 44_635_783), // 42.568 MiB
            (MemUsage::Weight, 272 << 10),
            (MemUsage::Generic, 362_528), // 354.031 KiB
            (MemUsage::DmaRingIo, 124 << 10),
            (MemUsage::DmaRingSpill, 1_977_615), // 1.886 MiB
            (MemUsage::DmaRing, 4096),
        ];
        let mut core_present = usages(&parts);
        core_present.add(MemUsage::UcodeLib, 1_810_000);
        let mut present = usages(&parts);
        present.add(MemUsage::Tensor, 3);
        present.add(MemUsage::Notification, 4);
        ModelReport {
            device: DeviceId::new(0),
            core: CoreId::new(5),
            core_present,
            model: ModelUsage {
                id: ModelId(1001),
                name: "1.0.0-/models/module.neff".to_owned(),
                present,
            },
        }
    }

    fn text(profile: ReportProfile) -> String {
        let context = LogContext {
            time: "2026-Jul-21 09:58:37.454955".to_owned(),
            pid: 56901,
            tid: 57275,
        };
        report().text(profile, &context)
    }

    #[test]
    fn the_block_of_2026_is_that_of_a_real_log() {
        let wanted = "2026-Jul-21 09:58:37.454955 56901:57275  INFO  TDRV:dml_log_dev_neff_mem                    
[ND 0:NC 5] Current Usage Total: 46.917MB
\tShared Scratchpad: 0.000B
\tTensors: 0.000B
Per NEFF memory usage breakdown for [module.neff]:
\tTotal: 45.190MB
\t* model code: 42.568MB
\t* model constants: 272.000KB
\t* scratchpad: 0.000B
\t* runtime: 354.031KB
\t* dma rings io: 124.000KB
\t* dma rings spill: 1.886MB
\t* dma rings collectives: 0.000B
\t* dma rings runtime: 4.000KB
\t* collectives: 0.000B
";
        assert_eq!(text(ReportProfile::Runtime2_31), wanted);
    }

    #[test]
    fn the_block_of_sdk_2_24_has_one_line_for_the_core() {
        let text = text(ReportProfile::Sdk2_24);
        let lines: Vec<&str> = text.lines().skip(2).take(2).collect();
        let wanted = [
            "\tshared scratchpad: 0.000B",
            "Per NEFF memory usage breakdown for [module.neff]:",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn before_that_it_is_the_list_of_the_core() {
        let wanted = "2026-Jul-21 09:58:37.454955 56901:57275  INFO  TDRV:log_dev_mem                             ND 0:NC 5, current utilization:
\t* total: 46.917MB
\t* model code: 44.294MB
\t* model constants: 272.000KB
\t* runtime: 354.031KB
\t* dma rings: 2.011MB

";
        assert_eq!(text(ReportProfile::Sdk2_20), wanted);
    }
}
