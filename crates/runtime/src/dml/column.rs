//! The columns of the table: which there are, how wide they are, and what stands in them.

use std::fmt::Write as _;

use glia_abi::mem_usage::{Aggregate, MemUsage};

use super::ledger::UsageBytes;
use super::report::ReportProfile;

/// Which columns a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) profile: ReportProfile,
    /// A column for each usage, not for each aggregate.
    pub(super) is_verbose: bool,
}

impl Style {
    pub(super) const fn short(profile: ReportProfile) -> Self {
        Self {
            profile,
            is_verbose: false,
        }
    }

    pub(super) const fn verbose(profile: ReportProfile) -> Self {
        Self {
            profile,
            is_verbose: true,
        }
    }

    fn has_xt_cc(self) -> bool {
        self.profile == ReportProfile::Sdk2_24
    }
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Total,
    Of(Aggregate),
    /// Only in tables of SDK 2.24; part of the runtime's column otherwise.
    XtCc,
    /// In verbose tables.
    Raw(MemUsage),
}

impl Column {
    fn all(style: Style) -> Vec<Self> {
        if style.is_verbose {
            let raw = MemUsage::ALL.into_iter().map(Self::Raw);
            return [Self::Total].into_iter().chain(raw).collect();
        }
        let columns = Aggregate::ALL.into_iter().flat_map(move |aggregate| {
            let before = style.has_xt_cc() && aggregate == Aggregate::ProfilerBuffers;
            before
                .then_some(Self::XtCc)
                .into_iter()
                .chain([Self::Of(aggregate)])
        });
        [Self::Total].into_iter().chain(columns).collect()
    }

    pub(super) fn heading(self) -> [String; 2] {
        match self {
            Self::Total => ["", "TOTAL"].map(str::to_owned),
            Self::Of(aggregate) => aggregate.heading().map(str::to_owned),
            Self::XtCc => ["", "XT CC"].map(str::to_owned),
            Self::Raw(usage) => raw_heading(usage.name()),
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Raw(_) => {
                let rows = self.heading();
                rows.iter().map(String::len).fold(10, usize::max)
            }
            Self::Of(Aggregate::DmaRingsCollectives | Aggregate::Collectives) => 11,
            _ => 10,
        }
    }

    pub(super) fn bytes(self, present: &UsageBytes, style: Style) -> u64 {
        match self {
            Self::Total => present.total(),
            Self::XtCc => present.get(MemUsage::XtCc),
            Self::Raw(usage) => present.get(usage),
            Self::Of(Aggregate::Runtime) if style.has_xt_cc() => {
                present.aggregate(Aggregate::Runtime) - present.get(MemUsage::XtCc)
            }
            Self::Of(aggregate) => present.aggregate(aggregate),
        }
    }

    /// The same of a model; `None` for a column in which models own nothing.
    pub(super) fn model_bytes(self, present: &UsageBytes, style: Style) -> Option<u64> {
        match self {
            Self::XtCc
            | Self::Of(
                Aggregate::Tensors | Aggregate::SharedScratchpad | Aggregate::ProfilerBuffers,
            ) => None,
            Self::Raw(usage) => match usage {
                // Part of the runtime's column, in which models do own something, or not.
                MemUsage::XtCc if style.has_xt_cc() => None,
                _ => Self::Of(usage.aggregate())
                    .model_bytes(present, style)
                    .map(|_| present.get(usage)),
            },
            Self::Of(_) => Some(self.bytes(present, style)),
            Self::Total => {
                let columns = Self::all(style).into_iter();
                let columns = columns.filter(|column| *column != Self::Total);
                let bytes = columns.filter_map(|column| column.model_bytes(present, style));
                Some(bytes.sum())
            }
        }
    }
}

/// One line: the label in 14 letters, then each cell in the middle of its width, an odd space to
/// the right.
pub(super) fn put_row(
    text: &mut String,
    label: &str,
    style: Style,
    cell: impl Fn(Column) -> String,
) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{label:<14}|");
    for column in Column::all(style) {
        let width = column.width();
        let _ = write!(text, "{:^width$}|", cell(column));
    }
    text.push('\n');
}

/// A usage's name in two rows, cut where the longer one is shortest.
fn raw_heading(name: &str) -> [String; 2] {
    let cuts = name.match_indices('_').map(|(at, _)| at);
    let cut = cuts.min_by_key(|at| (*at).max(name.len() - at - 1));
    let (first, second) = match cut {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => ("", name),
    };
    [first, second].map(|row| row.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usages(parts: &[(MemUsage, u64)]) -> UsageBytes {
        let mut usages = UsageBytes::default();
        for &(usage, bytes) in parts {
            usages.add(usage, bytes);
        }
        usages
    }

    #[test]
    fn a_usages_name_stands_in_two_rows() {
        let cases = [
            ("TENSOR", ["", "TENSOR"]),
            ("DMA_RING", ["DMA", "RING"]),
            ("DMA_RING_SPILL", ["DMA RING", "SPILL"]),
            ("SCRATCHPAD_NOT_SHARED", ["SCRATCHPAD", "NOT SHARED"]),
            ("DMA_RING_COLLECTIVES", ["DMA RING", "COLLECTIVES"]),
        ];
        for (name, rows) in cases {
            assert_eq!(raw_heading(name), rows);
        }
    }

    #[test]
    fn xt_cc_is_a_column_of_its_own_in_sdk_2_24_only() {
        let present = usages(&[(MemUsage::XtCc, 3), (MemUsage::Io, 4)]);
        let runtime = Column::Of(Aggregate::Runtime);
        let short = Style::short;
        assert_eq!(runtime.bytes(&present, short(ReportProfile::Sdk2_24)), 4);
        assert_eq!(
            Column::XtCc.bytes(&present, short(ReportProfile::Sdk2_24)),
            3
        );
        assert_eq!(
            runtime.bytes(&present, short(ReportProfile::Runtime2_31)),
            7
        );
    }

    #[test]
    fn a_models_total_is_the_same_in_the_short_and_the_verbose_table() {
        let parts: Vec<_> = MemUsage::ALL
            .into_iter()
            .zip((0..).map(|n| 1_u64 << n))
            .collect();
        let present = usages(&parts);
        let total = |style| Column::Total.model_bytes(&present, style);
        for profile in [ReportProfile::Sdk2_24, ReportProfile::Runtime2_31] {
            let (short, verbose) = (Style::short(profile), Style::verbose(profile));
            assert_eq!(total(short), total(verbose), "{profile:?}");
        }
        let xt_cc = Column::Raw(MemUsage::XtCc);
        let old = Style::verbose(ReportProfile::Sdk2_24);
        let new = Style::verbose(ReportProfile::Runtime2_31);
        assert_eq!(xt_cc.model_bytes(&present, old), None);
        assert_eq!(xt_cc.model_bytes(&present, new), Some(1 << 17));
    }

    #[test]
    fn columns_sum_to_the_total_in_all_tables() {
        let parts: Vec<_> = MemUsage::ALL
            .into_iter()
            .zip((0..).map(|n| 1_u64 << n))
            .collect();
        let present = usages(&parts);
        let (old, new) = (ReportProfile::Sdk2_24, ReportProfile::Runtime2_31);
        for style in [Style::short(old), Style::short(new), Style::verbose(new)] {
            let columns = Column::all(style).into_iter();
            let columns = columns.filter(|column| *column != Column::Total);
            let sum: u64 = columns.map(|column| column.bytes(&present, style)).sum();
            assert_eq!(sum, (1 << 22) - 1);
        }
    }
}
