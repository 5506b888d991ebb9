//! What a run found: rows for machines, tables for people.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::case::{Bar, Effort};
use super::rng::SEED;
use super::timing::Op;

/// One figure beside its peer's. Serialised, it is one element of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The case's name.
    pub case: &'static str,
    /// What was timed.
    pub op: Op,
    /// Glia's cost in nanoseconds an operation.
    pub glia_ns: f64,
    /// What stands on the other side.
    pub peer: Option<&'static str>,
    /// Its cost.
    pub peer_ns: Option<f64>,
    /// The peer's cost over Glia's.
    pub ratio: Option<f64>,
    /// Chunks alive while the clock ran.
    pub live: u32,
    /// What was to be reached.
    #[serde(skip)]
    pub bar: Bar,
}

/// Glia's cost with few live chunks and with many, taken by turns.
#[derive(Debug, Clone)]
pub struct GrowthRow {
    /// The case's name.
    pub case: &'static str,
    /// What was timed.
    pub op: Op,
    /// Few live chunks,
    pub few: u32,
    /// and the cost among them.
    pub few_ns: f64,
    /// Many live chunks,
    pub many: u32,
    /// and the cost among them.
    pub many_ns: f64,
    /// How many times the first cost the second may be.
    pub factor_max: f64,
}

/// What a run found.
#[derive(Debug, Clone)]
pub struct Report {
    /// How much trouble was taken.
    pub effort: Effort,
    /// Glia beside its peers.
    pub rows: Vec<Row>,
    /// Few live chunks beside many; empty unless asked for.
    pub growth: Vec<GrowthRow>,
    /// Nanoseconds of a read that no cache serves, before and after; empty unless asked for.
    pub memory_latency_ns: Vec<f64>,
}

impl Row {
    pub(super) fn new(
        case: &'static str,
        bar: Bar,
        glia_ns: f64,
        peer: Option<(&'static str, f64)>,
        live: u32,
    ) -> Self {
        Self {
            case,
            op: bar.op,
            glia_ns: rounded(glia_ns),
            peer: peer.map(|(name, _)| name),
            peer_ns: peer.map(|(_, ns)| rounded(ns)),
            ratio: peer.map(|(_, ns)| rounded(ns / glia_ns)),
            live,
            bar,
        }
    }

    /// Whether both bars were met, as far as there are any.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let ns = self.bar.ns_max.map(|max| self.glia_ns <= max);
        let ratio = self
            .bar
            .ratio_min
            .zip(self.ratio)
            .map(|(min, ratio)| ratio >= min);
        ns.into_iter().chain(ratio).reduce(|a, b| a && b)
    }
}

impl GrowthRow {
    /// The cost among many over the cost among few.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.many_ns / self.few_ns
    }
}

impl Report {
    /// The tables, as Markdown.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut text = self.rows_table();
        if !self.growth.is_empty() {
            text += "\n\nCost among many live chunks over the cost among few, Glia alone:\n\n";
            text += &self.growth_table();
        }
        text += "\n\nNanoseconds an operation, medians of interleaved turns; `ratio` is the peer's over Glia's. Bars: \
                 at most so many ns, at least such a ratio.\n";
        if let [before, after] = self.memory_latency_ns[..] {
            text += &format!(
                "A dependent read of cold memory took {before:.0} ns before and {after:.0} ns after; the bars were set where it took 150 to 175.\n"
            );
        }
        text += &format!("Random numbers start from {SEED:#x}.\n");
        if self.effort == Effort::Quick {
            text += "A QUICK RUN: few chunks, few batches. It shows that all cases run; the figures mean little.\n";
        }
        text
    }

    fn rows_table(&self) -> String {
        let header = [
            "case",
            "op",
            "live",
            "glia ns",
            "peer",
            "peer ns",
            "ratio",
            "bar ns",
            "bar ratio",
            "met",
        ];
        let mut table = table(&header, &[0, 1, 4]);
        for row in &self.rows {
            table.add_row([
                row.case.to_owned(),
                row.op.name().to_owned(),
                row.live.to_string(),
                number(Some(row.glia_ns)),
                row.peer.unwrap_or("-").to_owned(),
                number(row.peer_ns),
                number(row.ratio),
                number(row.bar.ns_max),
                number(row.bar.ratio_min),
                row.is_met().map_or("-", yes_or_no).to_owned(),
            ]);
        }
        table.to_string()
    }

    fn growth_table(&self) -> String {
        let header = [
            "case", "op", "few", "ns", "many", "ns", "factor", "bar", "met",
        ];
        let mut table = table(&header, &[0, 1]);
        for row in &self.growth {
            table.add_row([
                row.case.to_owned(),
                row.op.name().to_owned(),
                row.few.to_string(),
                number(Some(row.few_ns)),
                row.many.to_string(),
                number(Some(row.many_ns)),
                number(Some(row.factor())),
                number(Some(row.factor_max)),
                yes_or_no(row.factor() <= row.factor_max).to_owned(),
            ]);
        }
        table.to_string()
    }
}

/// An empty table; all columns but those of `text` hold numbers.
pub(super) fn table(header: &[&str], text: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::ASCII_MARKDOWN)
        .set_header(header);
    for (index, column) in table.column_iter_mut().enumerate() {
        if !text.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Three or four digits that count.
pub(super) fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 1.0 => format!("{value:.3}"),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

pub(super) fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// To thousandths: more digits would be noise.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(glia_ns: f64, ns_max: Option<f64>, ratio_min: Option<f64>) -> Row {
        let bar = Bar {
            op: Op::Alloc,
            ns_max,
            ratio_min,
        };
        Row::new("case", bar, glia_ns, Some(("peer", 100.0)), 0)
    }

    #[test]
    fn a_row_is_met_when_both_bars_are() {
        assert_eq!(row(10.0, Some(10.0), Some(10.0)).is_met(), Some(true));
        assert_eq!(row(10.1, Some(10.0), Some(2.0)).is_met(), Some(false));
        assert_eq!(row(10.0, Some(20.0), Some(11.0)).is_met(), Some(false));
        assert_eq!(row(10.0, None, Some(5.0)).is_met(), Some(true));
        assert_eq!(row(10.0, None, None).is_met(), None);
    }

    #[test]
    fn a_quick_run_says_so() {
        let report = |effort| Report {
            effort,
            rows: vec![row(1.0, None, None)],
            growth: Vec::new(),
            memory_latency_ns: vec![150.0, 160.0],
        };
        assert!(report(Effort::Quick).tables().contains("A QUICK RUN"));
        assert!(!report(Effort::Full).tables().contains("A QUICK RUN"));
    }
}
