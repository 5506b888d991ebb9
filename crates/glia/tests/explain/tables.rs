//! Family C: a table with rows for HBM, cores and models.

use glia::explain::finding::FindingKind;
use glia::explain::report::{Family, Kind, Report, Scope};

use super::printer::{MIB, TableReport, size};
use super::{report, reports, texts, total};

const NAMES: [&str; 13] = [
    "model code",
    "model constants",
    "tensors",
    "shared scratchpad",
    "scratchpad",
    "runtime",
    "dma rings io",
    "dma rings spill",
    "dma rings collectives",
    "dma rings runtime",
    "collectives",
    "xt cc",
    "profiler buffers",
];

fn sample() -> TableReport {
    TableReport::sample(9, 3, [4, 5])
}

pub(crate) fn assert_is(found: &Report, printed: &TableReport) {
    assert_eq!((found.family, found.kind), (Family::C, Kind::DeviceOom));
    assert_eq!(
        (found.device, found.core),
        (Some(printed.device), Some(printed.cores[0]))
    );
    assert_eq!(found.asked, Some(size(printed.asked)));
    let scopes: Vec<_> = found.rows.iter().map(|row| row.scope).collect();
    assert_eq!(
        scopes,
        [
            Scope::Hbm,
            Scope::Core,
            Scope::Neff,
            Scope::Core,
            Scope::Neff
        ]
    );
    assert!(
        found
            .rows
            .iter()
            .all(|row| row.device == Some(printed.device))
    );
    for (index, core) in printed.cores.into_iter().enumerate() {
        let row = &found.rows[1 + 2 * index];
        assert_eq!(row.core, Some(core));
        let bytes = printed.core(core);
        assert_eq!(total(row), size(bytes.iter().sum()));
        let wanted = NAMES.iter().zip(bytes);
        let wanted: Vec<_> = wanted
            .filter(|(name, _)| **name != "xt cc" || printed.has_xt_cc)
            .map(|(name, bytes)| (*name, size(bytes)))
            .collect();
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        assert_eq!(texts(row), wanted);
        let model = &found.rows[2 + 2 * index];
        assert_eq!(model.core, Some(core));
        assert_eq!(model.neff, Some(1001 + index as u64));
        assert_eq!(
            model.name,
            Some(format!("2.0.1-/models/nd{}nc{core}", printed.device))
        );
        assert_eq!(texts(model)[2], ("tensors", "n/a"));
        assert_eq!(texts(model)[4].1, size(bytes[4] / 2));
    }
    assert_eq!(found.unread, []);
}

#[test]
fn a_table_gives_its_figures() {
    let found = report(sample().whole());
    assert_is(&found, &sample());
    assert_eq!((found.line, found.hbm), (3, Some(2)));
    assert_eq!(
        (found.lnc_size, found.hbm_cores.as_slice()),
        (Some(1), [4, 5].as_slice())
    );
    assert_eq!(
        (found.asked_bytes, found.asked_exact),
        (Some(sample().asked), Some(true))
    );
    assert_eq!(
        (found.alignment.as_deref(), found.alignment_bytes),
        (Some("none"), None)
    );
    assert_eq!(found.neffs.len(), 2);
    assert_eq!(found.rows[0].hbm, Some(2));
}

#[test]
fn columns_go_by_their_heading() {
    let printed = TableReport {
        has_xt_cc: true,
        indent: "  ",
        ..sample()
    };
    assert_is(&report(printed.whole()), &printed);
    let [upper, lower] = printed.heading();
    // Of a heading that is cut, the lower row does; without any, the number of cells.
    assert_is(&report(printed.whole().replace(&upper, "")), &printed);
    assert_is(
        &report(printed.whole().replace(&upper, "").replace(&lower, "")),
        &printed,
    );
    let without = sample();
    let [upper, lower] = without.heading();
    assert_is(&report(without.whole().replace(&upper, "")), &without);
    assert_is(
        &report(without.whole().replace(&upper, "").replace(&lower, "")),
        &without,
    );
}

#[test]
fn an_alignment_is_read_and_pointed_to() {
    let printed = TableReport {
        alignment: 4 * MIB,
        device: 14,
        ..sample()
    };
    let found = report(printed.whole());
    assert_is(&found, &printed);
    assert_eq!(found.alignment.as_deref(), Some("4.000MB"));
    assert_eq!(found.alignment_bytes, Some(4 * MIB));
    let kinds: Vec<_> = found.points_to.iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&FindingKind::Alignment), "{kinds:?}");
}

#[test]
fn a_table_wrapped_by_a_terminal_is_put_together() {
    let printed = TableReport {
        has_xt_cc: true,
        ..sample()
    };
    for width in [80, 100, 101, 120, 132, 150] {
        let mut log = String::new();
        for line in printed.whole().lines() {
            let pieces = if line.is_empty() {
                vec!["".as_bytes()]
            } else {
                line.as_bytes().chunks(width).collect()
            };
            for piece in pieces {
                log += std::str::from_utf8(piece).unwrap();
                log += "\n";
            }
        }
        assert_is(&report(log), &printed);
    }
}

#[test]
fn prefixes_of_other_tools_do_not_matter() {
    let printed = sample();
    for prefix in [
        "2026-03-01T10:00:00.1Z stderr F ",
        "[1,3]<stderr>:",
        "worker-1  | ",
        "(RayWorker pid=77) \x1b[36m",
    ] {
        let log: String = printed
            .whole()
            .lines()
            .map(|line| format!("{prefix}{line}\n"))
            .collect();
        assert_is(&report(log), &printed);
    }
}

#[test]
fn a_stripped_copy_is_read() {
    let printed = sample();
    let start = super::printer::prefix(9, "ERROR", "")
        .find("ERROR")
        .unwrap();
    let log: String = printed
        .parts()
        .iter()
        .map(|line| {
            if line.starts_with("2026-") {
                &line[start..]
            } else {
                line
            }
        })
        .collect();
    assert_is(&report(log), &printed);
}

#[test]
fn a_table_without_the_line_above_it_belongs_to_the_failure_of_its_device() {
    let printed = sample();
    let log: String = printed
        .parts()
        .into_iter()
        .filter(|line| !line.contains("Displaying"))
        .collect();
    assert_is(&report(log), &printed);
    let other = TableReport::sample(9, 1, [0, 1]);
    let found = reports(other.failure() + &printed.heading().concat() + &printed.rows().concat());
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].family, found[0].rows.len()), (Family::E, 0));
    assert_eq!((found[1].kind, found[1].device), (Kind::Usage, Some(3)));
}

#[test]
fn a_cut_table_gives_what_it_has_and_says_what_it_has_not() {
    let printed = sample();
    let whole = printed.whole();
    let row = whole.find("\\_NC 5").unwrap();
    let found = report(&whole[..row + 40]);
    assert_eq!(found.rows.len(), 4);
    let last = &found.rows[3];
    assert_eq!(last.core, Some(5));
    assert_eq!(total(last), size(printed.core(5).iter().sum()));
    assert_eq!(texts(last)[0].0, "model code");
    assert_eq!(last.categories.get("tensors"), None);
    assert_eq!(found.unread.len(), 1);
    assert_eq!(found.unread[0].line, 10);
    assert!(
        found.unread[0]
            .what
            .contains("cells where the heading has 13"),
        "{:?}",
        found.unread
    );
}

#[test]
fn a_cell_that_is_no_size_is_said_with_its_line() {
    let printed = sample();
    let log = printed.whole().replacen("96.000MB", "96.0#0MB", 1);
    let found = report(log);
    assert_eq!(found.rows.len(), 5);
    assert_eq!(found.unread.len(), 1);
    assert_eq!(found.unread[0].line, 8);
    assert!(
        found.unread[0].what.contains("model code is \"96.0#0MB\""),
        "{:?}",
        found.unread
    );
    assert!(found.rows[1].categories.has("model code"));
    assert_eq!(found.rows[1].categories.get("model code"), None);
}

#[test]
fn a_failure_without_table_is_of_family_e() {
    let found = report(sample().failure());
    assert_eq!((found.family, found.kind), (Family::E, Kind::DeviceOom));
    assert_eq!(found.rows, []);
}

#[test]
fn an_idle_core_of_the_same_hbm_is_pointed_to() {
    let printed = sample();
    let found = report(printed.whole());
    let kinds: Vec<_> = found.points_to.iter().map(|finding| finding.kind).collect();
    // 96 MB of code and 192 MB of buffers are not idle; the tensors are nearly all.
    assert!(kinds.contains(&FindingKind::Neighbour), "{kinds:?}");
    for (total, held) in [("97.000MB", "only 97.000MB"), ("0.000B", "nothing")] {
        let quiet = printed
            .whole()
            .replace(&size(printed.core(5).iter().sum()), total);
        let found = report(quiet);
        let idle = found
            .points_to
            .iter()
            .find(|finding| finding.kind == FindingKind::IdleCore);
        assert_eq!(
            idle.unwrap().text,
            format!(
                "this process holds {held} on NC 5 on the same HBM; a move there makes no room"
            )
        );
    }
}

/// The other core's memory may be another process's, and no report counts that.
#[test]
fn what_other_processes_hold_is_not_reported() {
    let found = report(sample().whole());
    let unknown = [
        "the largest free block",
        "what other processes held",
        "whether other HBMs were idle",
    ];
    assert_eq!(found.not_reported, unknown);
}

#[test]
fn a_table_that_is_cut_before_its_rings_says_nothing_of_them() {
    let printed = sample();
    for width in [80, 92, 94, 96, 100] {
        let cut =
            |line: &str| format!("{}\n", line[..line.len().min(width)].trim_end_matches('\n'));
        let is_of_table = |line: &&String| line.contains('|');
        let log: String = printed
            .parts()
            .iter()
            .map(|line| {
                if is_of_table(&line) {
                    cut(line)
                } else {
                    line.clone()
                }
            })
            .collect();
        let found = report(log);
        assert_eq!(found.rows.len(), 5, "{width}");
        for row in &found.rows {
            let names: Vec<_> = texts(row).into_iter().map(|(name, _)| name).collect();
            let known = names.len().min(6);
            assert!(known >= 5);
            assert_eq!(names[..known], NAMES[..known], "{width}");
        }
        let words = glia::explain::tell::paragraph(&found);
        assert!(
            words.contains("models ") && !words.contains("rings"),
            "{words}"
        );
    }
}

fn kinds(found: &Report) -> Vec<FindingKind> {
    found.points_to.iter().map(|finding| finding.kind).collect()
}

/// A table of one core, which has its HBM alone.
fn one_core(tensors: &str, total: &str, hbm: &str) -> Report {
    let heading = sample().heading().concat();
    let cells = format!(
        "{total:^10}|  1.000MB |  0.000B  |{tensors:^10}|  0.000B  |  0.000B  |  0.000B  |  0.000B  |  0.000B  |  0.000B   |  0.000B  |  0.000B   |  0.000B  |"
    );
    report(format!(
        "{hbm}Failed to allocate 2.000GB (alignment: none, usage: tensors) on ND 0:NC 1\n\
         Displaying Current Memory Utilization:\n{heading}ND 0 HBM 1    |{cells}\n\\_NC 1        |{cells}\n"
    ))
}

#[test]
fn a_table_of_one_core_is_of_an_hbm_of_16_gib() {
    for hbm in ["", "LNC size is 1. Neuron Cores using this HBM: NC 1\n"] {
        let found = one_core("14.000GB", "14.001GB", hbm);
        let capacity = glia::explain::finding::capacity(&found);
        assert_eq!(capacity, Some((16 << 30, "Trn1 or Inf2")));
        assert!(!kinds(&found).contains(&FindingKind::MoreFree));
        assert!(found.points_to[0].text.ends_with("nearly all of it"));
    }
    let found = one_core("30.000GB", "30.001GB", "");
    let capacity = glia::explain::finding::capacity(&found);
    assert_eq!(capacity, Some((36 << 30, "Trn3")));
    let found = one_core("36.000GB", "36.001GB", "");
    assert_eq!(glia::explain::finding::capacity(&found), None);
}

/// The driver keeps 16 MiB of every HBM, and no report counts them.
#[test]
fn what_the_firmware_has_is_not_free() {
    assert_eq!(
        glia::explain::finding::FIRMWARE_BYTES,
        glia_driver::memory::CARVEOUT_SIZE_BYTES
    );
    // 2.000GB are asked for. Of 13.990 GiB, 2.010 GiB are left, of which the firmware has some.
    for (total, is_more) in [("13.990GB", false), ("13.980GB", true)] {
        let found = one_core("13.900GB", total, "");
        assert_eq!(kinds(&found).contains(&FindingKind::MoreFree), is_more);
    }
    // The most that prints as 2.010GB less the firmware's: the total has three decimals.
    let words = glia::explain::tell::paragraph(&one_core("13.900GB", "13.990GB", ""));
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("at most 1.995GB was free beside 16 MiB of firmware"),
        "{words}"
    );
    // More than 15.984 GiB are not to be had of 16.
    let found = one_core("15.000GB", "15.990GB", "");
    let capacity = glia::explain::finding::capacity(&found);
    assert_eq!(capacity, Some((24 << 30, "Trn2")));
}

#[test]
fn more_that_was_free_than_asked_is_pointed_to() {
    let found = one_core("10.000GB", "12.001GB", "");
    let free = found
        .points_to
        .iter()
        .find(|finding| finding.kind == FindingKind::MoreFree);
    assert_eq!(
        free.unwrap().text,
        "the report leaves more room than was asked, 3.984GB if this is Trn1 or Inf2: it was in \
         pieces, split over two pools, or held by another core or process"
    );
    assert!(
        found.points_to[0].text.ends_with(", most of it"),
        "{:?}",
        found.points_to
    );
}
