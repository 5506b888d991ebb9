//! What a run of copies found.

use serde::Serialize;

use super::{CopyCase, CopyMode};
use crate::bench::Effort;
use crate::bench::report::{number, rounded, table, yes_or_no};

/// One case. Serialised, it is one element of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct CopyRow {
    /// Mode, size and warmth in one word.
    pub case: String,
    /// Bytes that one operation moves.
    pub bytes: u64,
    /// What moves.
    pub mode: CopyMode,
    /// Glia's rate, in 10^9 bytes a second.
    pub glia_gbps: f64,
    /// The C library's.
    pub memcpy_gbps: f64,
    /// Glia's rate over the C library's.
    pub ratio: f64,
    /// Whether the same bytes were moved over and over.
    pub hot: bool,
    /// Nanoseconds that Glia took more, an operation.
    #[serde(skip)]
    pub extra_ns: f64,
    /// What was to be reached.
    #[serde(skip)]
    pub bar: CopyBar,
}

/// What a case is to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyBar {
    /// How many times the C library's rate, at least.
    pub ratio_min: Option<f64>,
    /// Nanoseconds more than the C library, at most.
    pub extra_ns_max: Option<f64>,
}

impl CopyBar {
    pub(super) const NONE: Self = Self {
        ratio_min: None,
        extra_ns_max: None,
    };

    pub(super) const fn ratio(ratio_min: f64) -> Self {
        Self {
            ratio_min: Some(ratio_min),
            ..Self::NONE
        }
    }

    pub(super) const fn extra_ns(extra_ns_max: f64) -> Self {
        Self {
            extra_ns_max: Some(extra_ns_max),
            ..Self::NONE
        }
    }
}

/// What a run found.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// How much trouble was taken.
    pub effort: Effort,
    /// The cases.
    pub rows: Vec<CopyRow>,
}

impl CopyRow {
    pub(super) fn new(case: &CopyCase, glia_ns: f64, memcpy_ns: f64) -> Self {
        let rate = |ns: f64| rounded(case.size_bytes as f64 / ns);
        Self {
            case: case.name(),
            bytes: case.size_bytes,
            mode: case.mode,
            glia_gbps: rate(glia_ns),
            memcpy_gbps: rate(memcpy_ns),
            ratio: rounded(memcpy_ns / glia_ns),
            hot: case.hot,
            extra_ns: glia_ns - memcpy_ns,
            bar: case.bar(),
        }
    }

    /// Whether the bar was met, if there is one.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let CopyBar {
            ratio_min,
            extra_ns_max,
        } = self.bar;
        let ratio = ratio_min.map(|min| self.ratio >= min);
        ratio.or(extra_ns_max.map(|max| self.extra_ns <= max))
    }
}

impl CopyReport {
    /// The table, as Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let header = [
            "case",
            "glia GB/s",
            "memcpy GB/s",
            "ratio",
            "extra ns",
            "bar ratio",
            "bar ns",
            "met",
        ];
        let mut table = table(&header, &[0]);
        for row in &self.rows {
            table.add_row([
                row.case.clone(),
                number(Some(row.glia_gbps)),
                number(Some(row.memcpy_gbps)),
                number(Some(row.ratio)),
                format!("{:.0}", row.extra_ns),
                number(row.bar.ratio_min),
                number(row.bar.extra_ns_max),
                row.is_met().map_or("-", yes_or_no).to_owned(),
            ]);
        }
        let mut text = table.to_string();
        text += "\n\n10^9 bytes a second, medians of interleaved turns; `ratio` is Glia's rate over \
                 memcpy's\n(memset: over memset's; first_touch: over memcpy's to fresh pages of \
                 4 KiB), `extra ns` what an\noperation takes more. Bars: at least such a ratio, \
                 at most so many ns more.\n";
        if self.effort == Effort::Quick {
            text += "A QUICK RUN: small windows, few batches. It shows that all cases run; the \
                     figures mean little.\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(size_bytes: u64, glia_ns: f64) -> CopyRow {
        let case = CopyCase {
            mode: CopyMode::H2d,
            size_bytes,
            hot: true,
        };
        CopyRow::new(&case, glia_ns, 1000.0)
    }

    #[test]
    fn a_rate_is_bytes_over_nanoseconds_and_a_ratio_above_one_is_faster() {
        let row = row(65_536, 500.0);
        assert_eq!(
            (row.glia_gbps, row.memcpy_gbps, row.ratio),
            (131.072, 65.536, 2.0)
        );
        assert_eq!(row.is_met(), Some(true));
    }

    #[test]
    fn a_page_is_judged_by_what_it_takes_more() {
        assert_eq!(row(4096, 1250.0).is_met(), Some(true));
        assert_eq!(row(4096, 1251.0).is_met(), Some(false));
        assert_eq!(row(64, 9999.0).is_met(), None);
    }
}
