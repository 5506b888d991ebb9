//! `glia explain` as its user sees it, on logs that are made here.
//!
//! `printer` prints what the runtime prints, from exact bytes; the tests damage it as terminals,
//! wrappers and threads do, and expect the figures back.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test fail it by panicking, too"
)]

mod command;
mod damaged;
mod fuzz;
mod info;
mod known;
mod lines;
mod lists;
mod mixed;
mod printer;
mod rebuild;
mod tables;

use glia::explain::explain;
use glia::explain::report::{Report, Row};

/// The reports of a log.
fn reports(log: impl AsRef<[u8]>) -> Vec<Report> {
    let mut reports = Vec::new();
    let (summary, result) = explain(log.as_ref(), "test.log", |report| {
        reports.push(report);
        Ok(())
    });
    result.unwrap();
    assert_eq!(summary.reports, reports.len() as u64);
    reports
}

/// The only report of a log.
fn report(log: impl AsRef<[u8]>) -> Report {
    let mut reports = reports(log);
    assert_eq!(reports.len(), 1, "{reports:#?}");
    reports.remove(0)
}

/// The categories of a row with their texts; `n/a` for none.
fn texts(row: &Row) -> Vec<(&str, &str)> {
    let categories = row.categories.0.iter();
    categories
        .map(|(name, size)| {
            (
                name.as_ref(),
                size.as_ref().map_or("n/a", |size| &size.text),
            )
        })
        .collect()
}

fn total(row: &Row) -> &str {
    row.total.as_ref().map_or("none", |total| &total.text)
}
