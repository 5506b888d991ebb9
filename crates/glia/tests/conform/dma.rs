//! Traces of the DMA layer: golden ones, golden ones with one value changed, small ones by hand,
//! and broken files.

mod broken;
mod by_hand;
mod golden;
mod mutated;

use std::path::{Path, PathBuf};

use glia::conform::replay_text;
use glia::conform::report::{FileReport, Wanted};

/// Where the golden traces are.
fn dma_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dma")
}

/// The lines of a golden trace's scenario, with the number of the first one.
fn scenario(file: &str, name: &str) -> Vec<String> {
    let text = glia::conform::source::read_text(&dma_dir().join(file)).unwrap();
    let first = format!(r#"{{"scenario":"{name}","#);
    let lines = text.lines().skip_while(|line| !line.starts_with(&first));
    let mut lines = lines.map(str::to_owned);
    let mut found: Vec<String> = lines.next().into_iter().collect();
    found.extend(lines.take_while(|line| !line.starts_with(r#"{"scenario""#)));
    assert!(found.len() > 1, "{file} has no scenario {name}");
    found
}

/// The report on these lines, with everything that was found.
fn replayed(lines: &[String]) -> FileReport {
    let wanted = Wanted {
        per_kind: 1000,
        all_kinds: true,
    };
    let mut report = FileReport::new("test".to_owned());
    replay_text(&lines.join("\n"), wanted, &mut report).unwrap();
    report
}

/// The findings of a report, as `LINE OP WHAT`.
fn told(report: &FileReport) -> Vec<String> {
    let findings = report.findings.iter();
    findings
        .map(|finding| {
            let what = finding.field.as_deref().or(finding.note.as_deref());
            format!("{} {} {}", finding.line, finding.op, what.unwrap_or("-"))
        })
        .collect()
}
