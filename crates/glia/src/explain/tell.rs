//! A report in words, for a person whose job has just died.

use super::finding::{FIRMWARE_BYTES, capacity, free, fullest, largest, percent, ring_bytes};
use super::report::{Kind, Report, Row, Scope};
use super::size::{Size, printed};

const HOLDERS_SHOWN_MAX: usize = 5;
const MODELS_SHOWN_MAX: usize = 3;
const UNREAD_SHOWN_MAX: usize = 5;
const NAME_CHARS_MAX: usize = 100;
const WIDTH: usize = 110;
const INDENT: usize = 18;

/// The report as a few sentences, each with its own line.
#[must_use]
pub fn paragraph(report: &Report) -> String {
    let mut text = format!(
        "{}:{}: {}\n",
        fit(&report.file),
        report.line,
        heading(report)
    );
    let mut line = |label: &str, words: &str| write_wrapped(&mut text, label, words);
    if report.is_oom() && report.asked_exact.is_some() {
        line("asked", &asked(report));
    }
    if let Some(status) = &report.status {
        line("the caller got", &fit(status));
    }
    if let Some(row) = fullest(report) {
        line("in use", &in_use(report, row));
        let holders = holders(row);
        if !holders.is_empty() {
            line("held by", &holders);
        }
    }
    let is_apart = |row: &&Row| row.scope == Scope::Core && !is_fullest(report, row);
    for row in report.rows.iter().filter(is_apart) {
        if row.total.is_some() {
            line("", &of_core(row));
        }
    }
    let models = models(report);
    if !models.is_empty() {
        line("models", &models);
    }
    for finding in &report.points_to {
        line("points to", &finding.text);
    }
    if !report.not_reported.is_empty() {
        line("not reported", &report.not_reported.join(", "));
    }
    if !report.also_lines.is_empty() {
        let lines: Vec<_> = report.also_lines.iter().map(ToString::to_string).collect();
        let plural = if lines.len() == 1 { "line" } else { "lines" };
        line("same failure", &format!("{plural} {}", lines.join(", ")));
    }
    for unread in report.unread.iter().take(UNREAD_SHOWN_MAX) {
        line(
            "not read",
            &format!("line {}: {}", unread.line, fit(&unread.what)),
        );
    }
    if let Some(more) = report.unread.len().checked_sub(UNREAD_SHOWN_MAX + 1) {
        line("", &format!("and {} more", more + 1));
    }
    text
}

fn is_fullest(report: &Report, row: &Row) -> bool {
    fullest(report).is_some_and(|fullest| std::ptr::eq(fullest, row))
}

/// A label and its words, in lines of readable length.
fn write_wrapped(text: &mut String, label: &str, words: &str) {
    let mut line = format!("  {label:<width$}", width = INDENT - 2);
    let mut is_empty = true;
    for word in words.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(INDENT);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        push_escaped(&mut line, word);
        is_empty = false;
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Control characters of a log are shown, not obeyed.
fn push_escaped(to: &mut String, text: &str) {
    for character in text.chars() {
        if character.is_control() {
            to.extend(character.escape_default());
        } else {
            to.push(character);
        }
    }
}

/// Text of the log, fit for a terminal: it may hold anything.
fn fit(text: &str) -> String {
    let mut fit = String::new();
    let end = text.char_indices().nth(NAME_CHARS_MAX);
    push_escaped(&mut fit, &text[..end.map_or(text.len(), |(end, _)| end)]);
    if end.is_some() {
        fit.push('…');
    }
    fit
}

fn heading(report: &Report) -> String {
    let place = place(report);
    match report.kind {
        Kind::DeviceOom => format!("device memory ran out{place}"),
        Kind::HostOom => "host memory ran out".to_owned(),
        Kind::Usage => format!("what was in use{place}; no failure line"),
        Kind::NotMemory => "a failure, but none that the log ties to memory".to_owned(),
    }
}

fn place(report: &Report) -> String {
    let mut place = String::new();
    for (name, number) in [
        ("ND", report.device),
        ("HBM", report.hbm),
        ("NC", report.core),
    ] {
        if let Some(number) = number {
            place += if place.is_empty() { " on " } else { ", " };
            place += &format!("{name} {number}");
        }
    }
    place
}

fn asked(report: &Report) -> String {
    let mut text = String::new();
    match (&report.asked, report.asked_bytes) {
        (Some(asked), Some(bytes)) if report.asked_exact == Some(true) => {
            text += &format!("{asked}, exactly {bytes} bytes");
        }
        (Some(asked), _) => text += asked,
        (None, Some(bytes)) => text += &format!("{}, exactly {bytes} bytes", printed(bytes)),
        (None, None) => text += "a size that cannot be read",
    }
    if let Some(usage) = &report.usage {
        text += &format!(", for {}", fit(usage));
    }
    if let Some(object) = &report.object {
        text += &format!(" ({})", fit(object));
    }
    if let Some(alignment) = report
        .alignment
        .as_deref()
        .filter(|_| report.alignment_bytes != Some(0))
        .filter(|&text| text != "none")
    {
        text += &format!(", aligned to {}", fit(alignment));
    }
    if let Some(thread) = report.thread {
        text += &format!(", by thread {thread}");
    }
    text
}

/// `15.972GB on NC 0, which is 99.8 % of the 16 GiB that an HBM of Trn1 or Inf2 has`.
fn in_use(report: &Report, row: &Row) -> String {
    let Some(total) = &row.total else {
        return "the log has no total".to_owned();
    };
    let mut text = format!("{}{}", total.text, of_row(row));
    let of_hbm = capacity(report).zip(free(report, row));
    if let Some(((capacity, machine), (_, most))) = of_hbm.filter(|_| report.is_oom()) {
        let tenths = percent(total.bytes.saturating_mul(10), capacity);
        text += &format!(
            ", {}.{} % of the {} GiB of an HBM if this is {machine}; at most {} was free beside {} MiB of firmware",
            tenths / 10,
            tenths % 10,
            capacity >> 30,
            printed(most),
            FIRMWARE_BYTES >> 20
        );
    }
    let is_account = report.is_oom() && !row.categories.0.is_empty();
    if let Some(missing) = row.unaccounted_bytes().filter(|_| is_account) {
        text += &format!("; {} of it stand in no item", printed(missing));
    }
    text
}

fn of_row(row: &Row) -> String {
    match (row.scope, row.device, row.hbm, row.core) {
        (Scope::Hbm, Some(device), Some(hbm), _) => format!(" on ND {device}, HBM {hbm}"),
        (Scope::Hbm, ..) => " on the HBM".to_owned(),
        (Scope::Device, Some(device), ..) => format!(" on ND {device} over all its rows"),
        (Scope::Core, _, _, Some(core)) => format!(" on NC {core}"),
        _ => String::new(),
    }
}

/// `tensors 13.170GB (82 %), dma rings 1.471GB (9 %), and 3 more 849.443MB`.
fn holders(row: &Row) -> String {
    let sizes = largest(row);
    let total = row.total.as_ref().map_or(0, |total| total.bytes);
    let mut parts: Vec<String> = sizes
        .iter()
        .take(HOLDERS_SHOWN_MAX)
        .map(|(name, size)| held(name, size, total))
        .collect();
    if sizes.len() > HOLDERS_SHOWN_MAX {
        let rest = &sizes[HOLDERS_SHOWN_MAX..];
        let bytes = rest
            .iter()
            .fold(0_u64, |sum, (_, size)| sum.saturating_add(size.bytes));
        parts.push(format!("and {} more with {}", rest.len(), printed(bytes)));
    }
    parts.join(", ")
}

fn held(name: &str, size: &Size, total: u64) -> String {
    let name = fit(name);
    if total == 0 {
        return format!("{name} {}", size.text);
    }
    let share = match percent(size.bytes, total) {
        0 => "under 1".to_owned(),
        share => share.to_string(),
    };
    format!("{name} {} ({share} %)", size.text)
}

fn of_core(row: &Row) -> String {
    let mut text = String::new();
    if let (Some(core), Some(total)) = (row.core, &row.total) {
        text = format!("NC {core}: {}", total.text);
        let held: Vec<_> = largest(row)
            .into_iter()
            .take(3)
            .map(|(name, size)| format!("{name} {}", size.text))
            .collect();
        if !held.is_empty() {
            text += &format!(" ({})", held.join(", "));
        }
    }
    text
}

/// The largest models, and how many there are.
fn models(report: &Report) -> String {
    let mut rows: Vec<(&Row, &Size)> = report
        .rows
        .iter()
        .filter(|row| row.scope == Scope::Neff)
        .filter_map(|row| Some((row, row.total.as_ref()?)))
        .collect();
    rows.sort_by_key(|(_, total)| std::cmp::Reverse(total.bytes));
    let mut parts: Vec<String> = rows
        .iter()
        .take(MODELS_SHOWN_MAX)
        .map(|(row, total)| {
            let id = row.neff.map_or_else(String::new, |id| format!("{id} "));
            let name = row.name.as_deref().map_or("(no name)".to_owned(), fit);
            let rings = ring_bytes(row).map(printed);
            let rings = rings.map_or_else(String::new, |rings| format!(", rings {rings}"));
            format!("{id}{name} {}{rings}", total.text)
        })
        .collect();
    if rows.len() > MODELS_SHOWN_MAX {
        let rest = &rows[MODELS_SHOWN_MAX..];
        let bytes = rest
            .iter()
            .fold(0_u64, |sum, (_, total)| sum.saturating_add(total.bytes));
        parts.push(format!("and {} more with {}", rest.len(), printed(bytes)));
    }
    parts.join("; ")
}

/// A line about what was read of a log, for the end.
#[must_use]
pub fn nothing(file: &str, lines: u64) -> String {
    format!(
        "{}: {lines} lines, and none that Glia understands. It reads what the runtime prints when memory runs out\n\
         (\"Failed to allocate ...\"), its tables and INFO blocks, and lines of the kernel driver.",
        fit(file)
    )
}
