//! Who holds what, as data and as the runtime's table.
//!
//! ```text
//!               |          |  Model   |  Model   |          | ...
//!               |  TOTAL   |   Code   |Constants | Tensors  | ...
//! ND 0 HBM 0    | 20.188GB |192.102MB | 82.344KB | 20.000GB | ...
//!   \_NC 0      | 20.094GB | 96.065MB | 58.344KB | 20.000GB | ...
//!   \_NEFF 1001 |263.906KB | 28.562KB | 34.344KB |   n/a    | ...
//! ```
//!
//! A bank's row is the sum of the cores whose memory is on that bank by default; a core's row is
//! all that is charged to the core; a model's row is what the model owns, and its TOTAL the sum of
//! the columns in which models own something. (Runtime 2.26 to 2.31.)
//!
//! SDK 2.24 calls the row above the cores `ND 0 Overall`. In the one sample that is public, of a
//! failure, it is the sum of the two cores of one bank. Where a table has several banks, which no
//! sample shows, there is one such row here, the sum of all that stand below it (a guess): a row for
//! each bank would have the same name and be overall nothing.

use std::fmt::Write as _;

use glia_abi::handle::{Channel, CoreId, DeviceId};

use super::column::{Style, put_row};
use super::ledger::{ModelId, UsageBytes};
use super::list;
use super::report::{ReportProfile, headed};
use super::size::printed;

/// Who holds what on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageTable {
    /// The device.
    pub device: DeviceId,
    /// Its HBM channels, in order.
    pub banks: Vec<BankUsage>,
}

/// What is in use on one HBM channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BankUsage {
    /// The channel.
    pub channel: Channel,
    /// Bytes that lie on it now. They are the sum of its cores' bytes unless an allocation was
    /// directed to another channel than its core's.
    pub present_bytes: u64,
    /// The most that ever lay on it.
    pub peak_bytes: u64,
    /// The cores whose memory is on it by default, in order.
    pub cores: Vec<CoreUsage>,
}

/// What is charged to a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreUsage {
    /// The core.
    pub core: CoreId,
    /// Bytes now.
    pub present: UsageBytes,
    /// The most of each usage, each at its own time.
    pub peak: UsageBytes,
    /// The most of all usages together.
    pub peak_total_bytes: u64,
    /// The models that are loaded on it, in order.
    pub models: Vec<ModelUsage>,
}

/// What a loaded model owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelUsage {
    /// The model.
    pub id: ModelId,
    /// Its name.
    pub name: String,
    /// Bytes now.
    pub present: UsageBytes,
}

impl UsageTable {
    /// One of its channels; `None` if the device has no such channel.
    #[must_use]
    pub fn bank(&self, channel: Channel) -> Option<&BankUsage> {
        self.banks.iter().find(|bank| bank.channel == channel)
    }

    /// One of its cores; `None` if the device has no such core.
    #[must_use]
    pub fn core(&self, core: CoreId) -> Option<&CoreUsage> {
        let mut cores = self.banks.iter().flat_map(|bank| &bank.cores);
        cores.find(|one| one.core == core)
    }

    /// The whole device as text, without log prefix: a table, or a list for each core.
    #[must_use]
    pub fn text(&self, profile: ReportProfile) -> String {
        if profile.is_list() {
            let cores = self.banks.iter().flat_map(|bank| &bank.cores);
            return cores
                .map(|core| {
                    let place = place(self.device, core.core);
                    let items = list::items(&core.present, profile);
                    format!("{place}, current utilization:\n{items}\n")
                })
                .collect();
        }
        self.table_text(&self.banks, Style::short(profile))
    }

    /// The whole device as a table with a column for each of the 22 usages, without log prefix. The
    /// reference has such a table, of which no sample is public: this form is Glia's own.
    #[must_use]
    pub fn verbose_text(&self, profile: ReportProfile) -> String {
        self.table_text(&self.banks, Style::verbose(profile))
    }

    /// The whole device as a log message, without prefix and last line feed.
    pub(crate) fn message(&self, profile: ReportProfile, is_verbose: bool) -> String {
        match (profile.is_list(), is_verbose) {
            (true, _) => self.text(profile).trim_end().to_owned() + "\n",
            (false, true) => headed(&self.verbose_text(profile)),
            (false, false) => headed(&self.text(profile)),
        }
    }

    /// Heading, rows and names of some banks.
    pub(super) fn table_text<'a>(
        &'a self,
        banks: impl IntoIterator<Item = &'a BankUsage>,
        style: Style,
    ) -> String {
        let mut text = match style.is_verbose {
            true => VERBOSE_MARK.to_owned(),
            false => String::new(),
        };
        for row in 0..2 {
            put_row(&mut text, "", style, |column| column.heading()[row].clone());
        }
        let banks: Vec<&BankUsage> = banks.into_iter().collect();
        if style.profile == ReportProfile::Sdk2_24 && !banks.is_empty() {
            let label = format!("ND{:>2} Overall", self.device.get());
            sum_row(&label, &banks, style, &mut text);
        }
        let mut names = String::new();
        for bank in banks {
            self.bank_rows(bank, style, &mut text);
            for model in bank.cores.iter().flat_map(|core| &core.models) {
                // Writing to a string cannot fail.
                let _ = writeln!(names, "{}: \"{}\"", model.id, model.name);
            }
        }
        text + "\nNEFF id to name mapping:\n" + &names
    }

    fn bank_rows(&self, bank: &BankUsage, style: Style, text: &mut String) {
        let indent = match style.profile {
            ReportProfile::Sdk2_24 => "",
            _ => {
                let label = format!("ND{:>2} HBM {}", self.device.get(), bank.channel.get());
                sum_row(&label, &[bank], style, text);
                "  "
            }
        };
        for core in &bank.cores {
            let label = format!("{indent}\\_NC{:>2}", core.core.get());
            put_row(text, &label, style, |column| {
                printed(column.bytes(&core.present, style))
            });
            for model in &core.models {
                let label = format!("  \\_NEFF {}", model.id);
                put_row(text, &label, style, |column| {
                    column
                        .model_bytes(&model.present, style)
                        .map_or_else(|| "n/a".to_owned(), printed)
                });
            }
        }
    }
}

/// A row of what the cores of some banks have together.
fn sum_row(label: &str, banks: &[&BankUsage], style: Style, text: &mut String) {
    put_row(text, label, style, |column| {
        let cores = banks.iter().flat_map(|bank| &bank.cores);
        printed(cores.map(|core| column.bytes(&core.present, style)).sum())
    });
}

const VERBOSE_MARK: &str = "(a column for each usage: a form of Glia's own)\n";

/// Device and core as failure lines and lists write them: `ND 0:NC 4`.
pub(super) fn place(device: DeviceId, core: CoreId) -> String {
    format!("ND{:>2}:NC{:>2}", device.get(), core.get())
}

#[cfg(test)]
pub(super) mod tests {
    use glia_abi::mem_usage::MemUsage;

    use super::*;

    const MIB_96_065: u64 = 100_731_453;
    const MIB_96_037: u64 = 100_702_093;

    fn usages(parts: &[(MemUsage, u64)]) -> UsageBytes {
        let mut usages = UsageBytes::default();
        for &(usage, bytes) in parts {
            usages.add(usage, bytes);
        }
        usages
    }

    fn model(id: u32, path: &str, parts: &[(MemUsage, u64)]) -> ModelUsage {
        ModelUsage {
            id: ModelId(id),
            name: format!("1.0.41235.0+df4a714bb-/local/{path}"),
            present: usages(parts),
        }
    }

    fn core(core: u32, parts: &[(MemUsage, u64)], models: Vec<ModelUsage>) -> CoreUsage {
        let present = usages(parts);
        CoreUsage {
            core: CoreId::new(core),
            present,
            peak: present,
            peak_total_bytes: present.total(),
            models,
        }
    }

    /// A device in the state of the public sample of SDK 2.24 (Trn2, two cores of bank 2).
    pub(in crate::dml) fn sample() -> UsageTable {
        use MemUsage::{DmaRing, DmaRingIo, DmaRingSpill, Generic, InstrPe, Tensor, Weight};
        let concat3 = [
            (InstrPe, 32_640),
            (Weight, 24 << 10),
            (Generic, 108 << 10),
            (DmaRingIo, 61 << 10),
            (DmaRingSpill, 16 << 10),
            (DmaRing, 4 << 10),
        ];
        let dense = [
            (InstrPe, 29_248),
            (Weight, 35_168),
            (Generic, 108 << 10),
            (DmaRingIo, 57 << 10),
            (DmaRingSpill, 32 << 10),
            (DmaRing, 4 << 10),
        ];
        let nc4 = [
            (InstrPe, MIB_96_065),
            (Weight, 59_744),
            (Tensor, 20 << 30),
            (Generic, 234_560),
            (DmaRingIo, 118 << 10),
            (DmaRingSpill, 48 << 10),
            (DmaRing, 36 << 10),
        ];
        let nc5 = [
            (InstrPe, MIB_96_037),
            (Weight, 24 << 10),
            (Generic, 123_968),
            (DmaRingIo, 61 << 10),
            (DmaRingSpill, 16 << 10),
            (DmaRing, 32 << 10),
        ];
        let cores = vec![
            core(
                4,
                &nc4,
                vec![
                    model(1001, "out-test0_meta_dense", &dense),
                    model(1002, "out-test0_meta_concat3", &concat3),
                ],
            ),
            core(
                5,
                &nc5,
                vec![model(1003, "out-test0_meta_concat3", &concat3)],
            ),
        ];
        let present_bytes = cores.iter().map(|core| core.present.total()).sum();
        UsageTable {
            device: DeviceId::new(0),
            banks: vec![BankUsage {
                channel: Channel::new(2),
                present_bytes,
                peak_bytes: present_bytes,
                cores,
            }],
        }
    }

    /// The published sample, letter by letter.
    #[test]
    fn the_table_of_sdk_2_24_is_that_of_the_public_sample() {
        let wanted = r#"              |          |  Model   |  Model   |          |  Shared  |          |          |DMA Rings |DMA Rings | DMA Rings |DMA Rings |           |          | Profiler |
              |  TOTAL   |   Code   |Constants | Tensors  |Scratchpad|Scratchpad| Runtime  |    IO    |  Spill   |Collectives| Runtime  |Collectives|  XT CC   | Buffers  |
ND 0 Overall  | 20.188GB |192.102MB | 82.344KB | 20.000GB |  0.000B  |  0.000B  |350.125KB |179.000KB | 64.000KB |  0.000B   | 68.000KB |  0.000B   |  0.000B  |  0.000B  |
\_NC 4        | 20.094GB | 96.065MB | 58.344KB | 20.000GB |  0.000B  |  0.000B  |229.062KB |118.000KB | 48.000KB |  0.000B   | 36.000KB |  0.000B   |  0.000B  |  0.000B  |
  \_NEFF 1001 |263.906KB | 28.562KB | 34.344KB |   n/a    |   n/a    |  0.000B  |108.000KB | 57.000KB | 32.000KB |  0.000B   | 4.000KB  |  0.000B   |   n/a    |   n/a    |
  \_NEFF 1002 |244.875KB | 31.875KB | 24.000KB |   n/a    |   n/a    |  0.000B  |108.000KB | 61.000KB | 16.000KB |  0.000B   | 4.000KB  |  0.000B   |   n/a    |   n/a    |
\_NC 5        | 96.285MB | 96.037MB | 24.000KB |  0.000B  |  0.000B  |  0.000B  |121.062KB | 61.000KB | 16.000KB |  0.000B   | 32.000KB |  0.000B   |  0.000B  |  0.000B  |
  \_NEFF 1003 |244.875KB | 31.875KB | 24.000KB |   n/a    |   n/a    |  0.000B  |108.000KB | 61.000KB | 16.000KB |  0.000B   | 4.000KB  |  0.000B   |   n/a    |   n/a    |

NEFF id to name mapping:
1001: "1.0.41235.0+df4a714bb-/local/out-test0_meta_dense"
1002: "1.0.41235.0+df4a714bb-/local/out-test0_meta_concat3"
1003: "1.0.41235.0+df4a714bb-/local/out-test0_meta_concat3"
"#;
        assert_eq!(sample().text(ReportProfile::Sdk2_24), wanted);
    }

    #[test]
    fn the_newer_table_names_the_bank_and_has_a_column_less() {
        let text = sample().text(ReportProfile::Runtime2_31);
        let mut lines = text.lines().skip(1);
        let heading = lines.next().unwrap();
        assert!(
            heading.ends_with("| Runtime  |Collectives| Buffers  |"),
            "{heading}"
        );
        assert!(
            lines
                .next()
                .unwrap()
                .starts_with("ND 0 HBM 2    | 20.188GB |")
        );
        assert!(
            lines
                .next()
                .unwrap()
                .starts_with("  \\_NC 4      | 20.094GB |")
        );
        assert!(
            lines
                .next()
                .unwrap()
                .starts_with("  \\_NEFF 1001 |263.906KB |")
        );
    }

    #[test]
    fn the_verbose_table_has_a_column_for_each_usage() {
        let text = sample().verbose_text(ReportProfile::Runtime2_31);
        let lines: Vec<&str> = text.lines().take(6).collect();
        let cells = |line: &str| {
            let cells = line.split('|').map(|cell| cell.trim().to_owned());
            cells.collect::<Vec<_>>()
        };
        assert_eq!(lines[0], "(a column for each usage: a form of Glia's own)");
        assert_eq!(cells(lines[1]).len(), 1 + 1 + 22 + 1);
        assert!(lines[1].starts_with("              |          |          |  INSTR   |"));
        assert!(lines[2].starts_with("              |  TOTAL   | GENERIC  |    PE    |"));
        assert!(
            lines[2].ends_with("| RING IO  |COLLECTIVES|"),
            "{}",
            lines[2]
        );
        assert_eq!(
            cells(lines[4])[..4],
            ["\\_NC 4", "20.094GB", "229.062KB", "96.065MB"]
        );
        let neff = cells(lines[5]);
        assert_eq!(
            neff[..4],
            ["\\_NEFF 1001", "263.906KB", "108.000KB", "28.562KB"]
        );
        assert_eq!(neff.iter().filter(|cell| *cell == "n/a").count(), 3);
    }
}
