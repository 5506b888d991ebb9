//! The report of an allocation that failed for want of device memory: as data with exact bytes, and
//! as the text of the reference's log.

use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::mem_usage::MemUsage;

use super::column::Style;
use super::dump::{dumped, dumped_chunks};
use super::line::{Level, LogContext};
use super::list;
use super::size::printed;
use super::table::{BankUsage, UsageTable, place};
use crate::explanation::Explanation;

/// Whose report's text it is to be: it has changed with the reference's versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReportProfile {
    /// Up to SDK 2.20: a list for the core, DMA rings in one.
    Sdk2_20,
    /// SDK 2.21 to 2.23: a list for the core, DMA rings in four.
    Sdk2_23,
    /// SDK 2.24: a table; what stands above the cores is called `ND 0 Overall`, XT CC has a column.
    Sdk2_24,
    /// Runtime 2.31: a table; the bank is called `ND 0 HBM 0`, cores are indented.
    #[default]
    Runtime2_31,
}

impl ReportProfile {
    /// Whether it is a list for one core, and not a table for a bank.
    #[must_use]
    pub const fn is_list(self) -> bool {
        matches!(self, Self::Sdk2_20 | Self::Sdk2_23)
    }
}

/// Device memory was asked for, and there was no room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no device memory for {asked_bytes} bytes (alignment {align_bytes}, usage {usage}) on {device}, {core}, {channel}"
)]
pub struct OomReport {
    /// The device.
    pub device: DeviceId,
    /// The core that it was for.
    pub core: CoreId,
    /// The HBM channel that had no room.
    pub channel: Channel,
    /// Bytes that the caller asked for. (Where the runtime has to align by itself, it needs more, and
    /// the reference names that sum and no alignment.)
    pub asked_bytes: u64,
    /// The alignment that the caller asked for, 0 for none.
    pub align_bytes: u64,
    /// What for.
    pub usage: MemUsage,
    /// What the caller calls it.
    pub hint: Option<String>,
    /// Physical cores that make a logical one.
    pub lnc_size: u32,
    /// Who holds what, on all of the device.
    pub table: UsageTable,
    /// Where the events of the device were written; `None` if they were not.
    pub events_file: Option<String>,
    /// Where the chunks of the channel were written, those of other processes with them; `None` if
    /// they were not.
    pub chunks_file: Option<String>,
    /// Why there was no room, which the reference does not say; `None` where nobody can look into the
    /// driver.
    pub explanation: Option<Explanation>,
}

impl OomReport {
    /// The lines that the reference logs, in its order. (It writes more files than those of the
    /// events and of the chunks, and has a line for each.)
    #[must_use]
    pub fn text(&self, profile: ReportProfile, context: &LogContext) -> String {
        self.lines(Style::short(profile), context)
    }

    /// The same with a [verbose table](UsageTable::verbose_text), where it is a table.
    #[must_use]
    pub fn verbose_text(&self, profile: ReportProfile, context: &LogContext) -> String {
        self.lines(Style::verbose(profile), context)
    }

    fn lines(&self, style: Style, context: &LogContext) -> String {
        let profile = style.profile;
        let error = |function, message: String| context.line(Level::Error, function, message);
        let first = match profile.is_list() {
            true => self.old_first_line(),
            false => self.first_line(),
        };
        let mut text = error("dmem_alloc_internal", first);
        if let Some(place) = &self.events_file {
            text += &error("dml_dump", dumped(place));
        }
        if let Some(place) = &self.chunks_file {
            text += &error("dmem_alloc_internal", dumped_chunks(place));
        }
        if profile.is_list() {
            return text + &error("log_dev_mem", self.list(profile));
        }
        if self.align_bytes > 0 {
            text += &error("dmem_alloc_internal", ALIGNMENT_REMARK.to_owned());
        }
        let bank = self.table.bank(self.channel);
        if let Some(bank) = bank {
            text += &error("print_lnc_hbm_details", self.bank_line(bank));
        }
        text += &error("log_dev_mem", self.failure_line());
        let table = headed(&self.table.table_text(bank, style));
        text += &error("log_dev_mem_usage_table", table);
        text
    }

    fn first_line(&self) -> String {
        let bytes = self.asked_bytes;
        format!(
            "Failed to allocate DEVICE memory ({bytes} bytes): memory allocation failed (ret=-12)"
        )
    }

    fn old_first_line(&self) -> String {
        format!("Failed to alloc DEVICE memory: {}", self.asked_bytes)
    }

    fn bank_line(&self, bank: &BankUsage) -> String {
        let cores = bank.cores.iter();
        let cores: Vec<_> = cores
            .map(|core| format!("NC {}", core.core.get()))
            .collect();
        let (size, cores) = (self.lnc_size, cores.join(" and "));
        format!("LNC size is {size}. Neuron Cores using this HBM: {cores}")
    }

    fn failure_line(&self) -> String {
        let alignment = match self.align_bytes {
            0 => "none".to_owned(),
            bytes => printed(bytes),
        };
        format!(
            "Failed to allocate {} (alignment: {alignment}, usage: {}) on {}",
            printed(self.asked_bytes),
            self.usage.aggregate().name(),
            place(self.device, self.core)
        )
    }

    fn list(&self, profile: ReportProfile) -> String {
        let core = self.table.core(self.core);
        format!(
            "Failed to allocate {} (usage: {}) on {}, current utilization:\n{}",
            printed(self.asked_bytes),
            list::name(self.usage, profile),
            place(self.device, self.core),
            core.map_or_else(String::new, |core| list::items(&core.present, profile))
        )
    }
}

const ALIGNMENT_REMARK: &str = "Aligned allocations may fail even if HBM has space for the actual size requested, due to running out of alignment boundaries";
const TABLE_HEAD: &str = "Displaying Current Memory Utilization:";

/// A table under its heading, as a message.
pub(super) fn headed(table: &str) -> String {
    format!("{TABLE_HEAD}\n\n{}", table.trim_end())
}

/// What is logged of an allocation that failed for want of host memory.
pub(crate) fn host_failure(
    size_bytes: u64,
    events_file: Option<&str>,
    context: &LogContext,
) -> String {
    let message = format!("Failed to allocate HOST memory ({size_bytes} bytes)");
    let mut text = context.line(Level::Error, "dmem_alloc_internal", message);
    if let Some(place) = events_file {
        text += &context.line(Level::Error, "dml_dump", dumped(place));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::sample;
    use super::*;

    fn context() -> LogContext {
        LogContext {
            time: "2025-May-15 20:58:33.895937".to_owned(),
            pid: 224_822,
            tid: 224_822,
        }
    }

    fn report(core: u32, align_bytes: u64) -> OomReport {
        OomReport {
            device: DeviceId::new(0),
            core: CoreId::new(core),
            channel: Channel::new(2),
            asked_bytes: 4 << 30,
            align_bytes,
            usage: MemUsage::Tensor,
            hint: None,
            lnc_size: 1,
            table: sample(),
            events_file: None,
            chunks_file: None,
            explanation: None,
        }
    }

    /// The lines of the public sample above its table, and the one that it does not show.
    #[test]
    fn the_lines_above_the_table_are_those_of_the_public_sample() {
        let text = report(4, 0).text(ReportProfile::Sdk2_24, &context());
        let prefix = "2025-May-15 20:58:33.895937 224822:224822 ERROR  TDRV:";
        let lines: Vec<&str> = text.lines().take(5).collect();
        let wanted = [
            "dmem_alloc_internal                     Failed to allocate DEVICE memory (4294967296 bytes): memory allocation failed (ret=-12)",
            "print_lnc_hbm_details                   LNC size is 1. Neuron Cores using this HBM: NC 4 and NC 5",
            "log_dev_mem                             Failed to allocate 4.000GB (alignment: none, usage: tensors) on ND 0:NC 4",
            "log_dev_mem_usage_table                 Displaying Current Memory Utilization:",
        ];
        assert_eq!(lines[..4], wanted.map(|line| format!("{prefix}{line}")));
        assert_eq!(lines[4], "");
        assert!(text.ends_with(&sample().text(ReportProfile::Sdk2_24)));
    }

    #[test]
    fn an_alignment_is_named_and_brings_a_remark() {
        let text = report(4, 4 << 20).text(ReportProfile::Runtime2_31, &context());
        let second = text.lines().nth(1).unwrap();
        assert!(second.ends_with(ALIGNMENT_REMARK), "{second}");
        assert!(text.contains("(alignment: 4.000MB, usage: tensors)"));
    }

    #[test]
    fn the_old_form_lists_what_the_core_holds_and_ends_with_an_empty_line() {
        let text = report(5, 4 << 20).text(ReportProfile::Sdk2_23, &context());
        let prefix = "2025-May-15 20:58:33.895937 224822:224822 ERROR  TDRV:";
        let wanted = format!(
            "{prefix}dmem_alloc_internal                     Failed to alloc DEVICE memory: 4294967296
{prefix}log_dev_mem                             Failed to allocate 4.000GB (usage: tensors) on ND 0:NC 5, current utilization:
\t* total: 96.285MB
\t* model code: 96.037MB
\t* model constants: 24.000KB
\t* runtime: 121.062KB
\t* dma rings io: 61.000KB
\t* dma rings spill: 16.000KB
\t* dma rings runtime: 32.000KB

"
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn the_file_of_events_is_named_behind_the_first_line_in_every_form() {
        let mut report = report(4, 4 << 20);
        report.events_file = Some("/tmp/nrt_mem_log_device_0_651a7ca9.csv".to_owned());
        for profile in [ReportProfile::Sdk2_20, ReportProfile::Runtime2_31] {
            let text = report.text(profile, &context());
            assert_eq!(
                text.lines().nth(1).unwrap(),
                "2025-May-15 20:58:33.895937 224822:224822 ERROR  TDRV:dml_dump                                Wrote nrt memory alloc debug info to /tmp/nrt_mem_log_device_0_651a7ca9.csv"
            );
        }
    }

    #[test]
    fn two_digits_of_a_device_take_the_place_of_the_space() {
        let mut report = report(6, 0);
        report.device = DeviceId::new(14);
        assert!(report.failure_line().ends_with(" on ND14:NC 6"));
    }
}
