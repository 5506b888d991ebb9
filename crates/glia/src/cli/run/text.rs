//! What a run came to, in words.

use std::io::{self, Write};
use std::path::Path;

use glia::faults::RuleReport;
use glia::machine::MachineFile;
use glia::play::compare::{Comparison, Difference};
use glia::play::{Counts, Failure, Found, Peak, Played, ProcessMetrics, Warnings};
use glia::workload::OpKind;
use glia_runtime::dml::printed;
use serde_json::Value;

use super::reporting::Shown;
use crate::cli::printable::{lines, printable};

/// Names of a peak that are printed; `--json` has more.
const NAMES_MAX: usize = 5;

/// What happened, in words.
pub(super) fn write_run(
    out: &mut impl Write,
    name: &str,
    played: &Played,
    shown: Shown,
) -> io::Result<()> {
    let counts = &played.counts;
    writeln!(
        out,
        "{name}: {} operations as expected ({}), {} of them errors that were to come",
        counts.operations(),
        by_kind(counts),
        counts.expected_errors
    )?;
    let verified = if counts.read_bytes == 0 {
        "none to verify".to_owned()
    } else if counts.verified_bytes == counts.read_bytes {
        "every byte of it verified".to_owned()
    } else {
        let never = human(counts.read_bytes - counts.verified_bytes);
        format!("verified but for {never} that were never written")
    };
    writeln!(
        out,
        "  {} written, {} read and {verified}; {} objects live at the end",
        human(counts.written_bytes),
        human(counts.read_bytes),
        counts.live
    )?;
    write_machine(out, &played.machine)?;
    write_rate(out, played)?;
    write_peak(out, &played.peaks)?;
    if let Some(line) = played.stopped {
        writeln!(
            out,
            "  STOPPED behind line {line}; what follows is how things were then"
        )?;
    }
    write_faults(out, &played.faults)?;
    write_warnings(out, &played.warnings)?;
    write_processes(out, played)?;
    for table in &played.tables {
        // A machine can have hundreds of banks; those that hold nothing say nothing.
        let mut table = table.clone();
        table.banks.retain(|bank| bank.present_bytes > 0);
        if !table.banks.is_empty() {
            let text = match shown.is_verbose && !shown.profile.is_list() {
                true => table.verbose_text(shown.profile),
                false => table.text(shown.profile),
            };
            writeln!(out, "\n{}", lines(&text))?;
        }
    }
    if shown.has_details {
        write_details(out, played)?;
    }
    match &played.failure {
        Some(failure) => write_failure(out, name, failure)?,
        None => return Ok(()),
    }
    if played.report.is_some() {
        let what = "What a log does not say is assumed here, and so is what Why says of it: where blocks \
                    lie, which pieces are free, what other HBMs hold.";
        writeln!(out, "{what}")?;
    }
    Ok(())
}

/// Which process has which number, where reports have something to tell apart. They count one process,
/// the tables all.
fn write_processes(out: &mut impl Write, played: &Played) -> io::Result<()> {
    if played.processes.len() < 2 {
        return Ok(());
    }
    let both = played.processes.iter().zip(&played.pids);
    let each = both.map(|(name, pid)| format!("\"{}\" pid {}", printable(name), pid.get()));
    let each: Vec<_> = each.collect();
    let what = "the tables that follow are of all of them, a report of an allocation is of its own process";
    writeln!(out, "  running: {}; {what}", each.join(", "))
}

/// What the runtime had to say about operations that succeeded.
fn write_warnings(out: &mut impl Write, warnings: &Warnings) -> io::Result<()> {
    let mut told = 0;
    for warning in &warnings.kept {
        told += warning.count;
        let again = match warning.count - 1 {
            0 => String::new(),
            1 => " and once more".to_owned(),
            count => format!(" and {count} times more"),
        };
        writeln!(out, "  WARNED at line {}{again}:", warning.line)?;
        write!(out, "{}", lines(&warning.log))?;
    }
    match warnings.total - told {
        0 => Ok(()),
        1 => writeln!(out, "  WARNED otherwise at one more line"),
        others => writeln!(out, "  WARNED otherwise at {others} more lines"),
    }
}

/// What each loaded model owns, as the runtime logs it, and the counters that ever moved.
fn write_details(out: &mut impl Write, played: &Played) -> io::Result<()> {
    for model in &played.models {
        writeln!(out, "{}", lines(&model.log))?;
    }
    for metrics in &played.metrics {
        write_metrics(out, metrics)?;
    }
    Ok(())
}

fn write_metrics(out: &mut impl Write, of: &ProcessMetrics) -> io::Result<()> {
    let moved = of.metrics.leaves();
    let mut moved = moved
        .filter(|(.., balance)| balance.peak_bytes > 0)
        .peekable();
    if moved.peek().is_none() {
        return Ok(());
    }
    let process = printable(&of.process);
    writeln!(out, "memory_usage of {}, process \"{process}\":", of.device)?;
    for (core, counter, balance) in moved {
        let place = match core {
            Some(core) => format!("neuron_core{}/device_mem", core.get()),
            None => "host_mem".to_owned(),
        };
        let name = format!("{place}/{}", counter.sysfs_leaf().unwrap_or_default());
        let (present, peak) = (printed(balance.present_bytes), printed(balance.peak_bytes));
        writeln!(out, "  {name:<46} {present:>11} now {peak:>11} at most")?;
    }
    writeln!(out)
}

/// What did not end as expected, and what the runtime logged about it: the report.
fn write_failure(out: &mut impl Write, name: &str, failure: &Failure) -> io::Result<()> {
    writeln!(
        out,
        "{name}:{}: \"{}\" was to end in {}, but {}",
        failure.line,
        printable(&failure.id),
        failure.expected,
        match &failure.found {
            Found::Error(error) => format!("ended in {}: {error}", error.status()),
            other => other.to_string(),
        }
    )?;
    if !failure.log.is_empty() {
        writeln!(out, "\n{}", lines(&failure.log))?;
    }
    Ok(())
}

/// How often each operation was done: the first four always, the others if they were.
fn by_kind(counts: &Counts) -> String {
    const ALWAYS: [OpKind; 4] = [OpKind::Alloc, OpKind::Write, OpKind::Read, OpKind::Free];
    let others = OpKind::ALL.iter().copied();
    let others = others.filter(|kind| !ALWAYS.contains(kind) && counts.of(*kind) > 0);
    let kinds = ALWAYS.into_iter().chain(others);
    let each = kinds.map(|kind| format!("{} {}", counts.of(kind), kind.name()));
    each.collect::<Vec<_>>().join(", ")
}

/// A machine that is more than its name, its devices and a way to run engines.
fn write_machine(out: &mut impl Write, machine: &MachineFile) -> io::Result<()> {
    const PLAIN: [&str; 4] = ["machine", "devices", "engines.run", "engines.seed"];
    let mut said = Vec::new();
    flatten("", &serde_json::to_value(machine)?, &mut said);
    if said.iter().all(|(key, _)| PLAIN.contains(&key.as_str())) {
        return Ok(());
    }
    let others = said.iter().filter(|(key, _)| key != "machine");
    let others: Vec<_> = others.map(|(key, it)| format!("{key} {it}")).collect();
    let name = machine.model().name();
    writeln!(out, "  on {name} with {}", others.join(", "))
}

/// The values of an object under their keys, with those of the tables that they stand in.
fn flatten(key: &str, value: &Value, said: &mut Vec<(String, String)>) {
    match value {
        Value::Object(table) => {
            for (inner, value) in table {
                let dot = if key.is_empty() { "" } else { "." };
                flatten(&format!("{key}{dot}{inner}"), value, said);
            }
        }
        Value::String(text) => said.push((key.to_owned(), text.clone())),
        other => said.push((key.to_owned(), other.to_string())),
    }
}

/// How fast it was.
fn write_rate(out: &mut impl Write, played: &Played) -> io::Result<()> {
    let counts = &played.counts;
    let seconds = played.took.as_secs_f64().max(1e-6);
    let each_second = |count: u64| {
        // CAST: a figure for people.
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "see CAST"
        )]
        let rate = (count as f64 / seconds) as u64;
        rate
    };
    write!(
        out,
        "  {seconds:.3} s: {} operations/s",
        each_second(counts.operations())
    )?;
    match counts.written_bytes + counts.read_bytes {
        0 => writeln!(out),
        bytes => writeln!(out, ", {}/s", human(each_second(bytes))),
    }
}

/// The fullest HBM, and what lived there then.
fn write_peak(out: &mut impl Write, peaks: &[Peak]) -> io::Result<()> {
    // The first of several that were equally full.
    let Some(peak) = peaks.iter().rev().max_by_key(|peak| peak.bytes) else {
        return Ok(());
    };
    let categories = peak.categories.iter();
    let categories: Vec<String> = categories
        .map(|(one, bytes)| format!("{} {}", one.name(), human(*bytes)))
        .collect();
    writeln!(
        out,
        "  peak {} on {} hbm {} at line {}: {}",
        human(peak.bytes),
        peak.device,
        peak.hbm.get(),
        peak.line,
        categories.join(", ")
    )?;
    let shown = peak.largest.len().min(NAMES_MAX);
    let named = peak.largest[..shown].iter().map(|named| {
        let name = printable(&named.name);
        match named.count {
            1 => format!("\"{name}\" {}", human(named.bytes)),
            count => format!("{count} \"{name}\" {}", human(named.bytes)),
        }
    });
    let mut named: Vec<String> = named.collect();
    let rest = &peak.largest[shown..];
    let count = peak.others.count + rest.iter().map(|named| named.count).sum::<u64>();
    let bytes = peak.others.bytes + rest.iter().map(|named| named.bytes).sum::<u64>();
    if count > 0 {
        named.push(format!("{count} others {}", human(bytes)));
    }
    writeln!(out, "    lived then: {}", named.join(", "))
}

/// Whether the run ended as the log did, and where not.
pub(super) fn write_comparison(
    out: &mut impl Write,
    log: &Path,
    compared: &Comparison,
) -> io::Result<()> {
    let log = printable(&log.display().to_string());
    // The verdict stands last, by itself: what failed above was to fail.
    writeln!(out)?;
    let Comparison {
        line,
        cells,
        differences,
    } = compared;
    for Difference {
        row,
        column,
        log: theirs,
        ours,
    } in differences
    {
        let theirs = printable(theirs);
        writeln!(
            out,
            "{log}:{line}: {row}, {column}: the log has {theirs}, the run {ours}"
        )?;
    }
    match differences.len() {
        0 => writeln!(
            out,
            "{log}:{line}: the run ended as the log did: all {cells} cells that the log has are equal"
        ),
        count => writeln!(
            out,
            "{log}:{line}: the run did NOT end as the log did: {count} of {cells} cells differ"
        ),
    }
}

/// How the rules of the fault plan have done. One that never struck is a surprise for its author.
fn write_faults(out: &mut impl Write, rules: &[RuleReport]) -> io::Result<()> {
    for rule in rules {
        let RuleReport {
            fault,
            id,
            line,
            kind,
            opportunities,
            strikes,
        } = rule;
        let line = match (line, id) {
            (None, _) => String::new(),
            (Some(line), None) => format!(" (line {line})"),
            (Some(line), Some(_)) => format!(" (line {line} of the workload)"),
        };
        let fault = match id {
            None => fault.to_string(),
            Some(id) => format!("\"{}\"", printable(id)),
        };
        let done = match (strikes, opportunities) {
            (0, 0) => "NEVER STRUCK, and had no opportunity".to_owned(),
            (0, _) => format!("NEVER STRUCK, opportunities: {opportunities}"),
            _ => format!("strikes: {strikes}, opportunities: {opportunities}"),
        };
        writeln!(out, "  fault {fault}, {kind}{line}: {done}")?;
    }
    Ok(())
}

/// Bytes with a unit, to three decimals where they are no whole number.
pub(super) fn human(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = UNITS.iter().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        None => format!("{bytes} B"),
        Some((name, shift)) if bytes.is_multiple_of(1 << shift) => {
            format!("{} {name}", bytes >> shift)
        }
        Some((name, shift)) => {
            // To the nearest, as the report does.
            let half = 1 << (shift - 1);
            let milli = (u128::from(bytes) * 1000 + half) >> shift;
            format!("{}.{:03} {name}", milli / 1000, milli % 1000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_like_sizes() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(4096), "4 KiB");
        assert_eq!(human(3 << 29), "1.500 GiB");
        assert_eq!(human((1 << 20) + 524), "1.000 MiB");
        assert_eq!(human((1 << 20) + 525), "1.001 MiB");
        assert_eq!(human(u64::MAX), "16777216.000 TiB");
    }
}
