//! Several threads write one log.

use glia::explain::report::{Family, Report};

use super::printer::{GIB, ListReport, MIB, TableReport, error, size};
use super::{report, reports, total};

#[test]
fn a_thread_that_only_began_has_no_report() {
    let printed = ListReport::sample(7, 0, 1);
    let other = ListReport::sample(8, 0, 1);
    let found = report(printed.first() + &other.first() + &printed.head() + &printed.list());
    assert_eq!(found.line, 3);
    assert_eq!(found.also_lines, [2]);
    assert_eq!(found.thread.unwrap().tid, 7);
}

#[test]
fn lists_of_two_threads_stay_two() {
    let first = ListReport::sample(7, 0, 0);
    let second = ListReport {
        asked: 9_000_000,
        ..ListReport::sample(8, 2, 1)
    };
    let noise = error(
        9,
        "nrt_infodump",
        "--8<---[ cut to here ]---8<--- HBM 3 Failure of something",
    );
    let log = [
        second.first(),
        first.first(),
        first.head(),
        // The second comes between the head and the list of the first, whole.
        second.head(),
        second.list(),
        noise.clone(),
        first.list(),
        noise,
    ];
    let found = reports(log.concat());
    assert_eq!(found.len(), 2);
    for (found, printed) in found.iter().zip([&first, &second]) {
        assert_eq!(found.device, Some(printed.device));
        assert_eq!(found.asked_bytes, Some(printed.asked));
        assert_eq!(total(&found.rows[0]), size(printed.total()));
        assert_eq!(found.rows[0].categories.0.len(), printed.items.len());
        assert_eq!(found.unread, []);
    }
}

#[test]
fn items_that_alternate_go_where_they_fit() {
    let first = ListReport::sample(7, 0, 0);
    let second = ListReport::sample(8, 2, 1);
    let mut log = first.head();
    let (one, two) = (first.list(), second.list());
    let (one, two): (Vec<_>, Vec<_>) = (one.lines().collect(), two.lines().collect());
    // Half of the first list, then the second thread, then the rest.
    for line in one[..3]
        .iter()
        .copied()
        .chain(second.head().trim_end().lines())
        .chain(two)
        .chain(one[3..].iter().copied())
    {
        log += line;
        log += "\n";
    }
    let found = reports(log);
    for (found, printed) in found.iter().zip([&first, &second]) {
        assert_eq!(total(&found.rows[0]), size(printed.total()));
        assert_eq!(
            found.rows[0].categories.0.len(),
            printed.items.len(),
            "{found:#?}"
        );
        assert_eq!(found.rows[0].unaccounted_bytes(), None);
    }
}

fn by_device(mut reports: Vec<Report>) -> Vec<Report> {
    reports.sort_by_key(|report| report.device);
    reports
}

#[test]
fn tables_of_two_threads_stay_two_in_every_interleaving_of_whole_lines() {
    let first = TableReport::sample(7, 0, [0, 1]);
    let second = TableReport {
        has_xt_cc: true,
        ..TableReport::sample(8, 1, [4, 5])
    };
    let (one, two) = (first.parts(), second.parts());
    for shift in 0..one.len() {
        // The second table starts after `shift` lines of the first, and is written in one go.
        let log: String = one[..shift]
            .iter()
            .chain(&two)
            .chain(&one[shift..])
            .cloned()
            .collect();
        // Names say nothing of their table: ids are those of one process, and both tables have
        // them.
        let found = by_device(reports(&log));
        assert_eq!(found.len(), 2, "{shift}");
        for (found, printed) in found.iter().zip([&first, &second]) {
            assert_eq!(found.family, Family::C);
            assert_eq!(found.rows.len(), 5, "{shift}: {log}");
            for (row, core) in [1, 3].into_iter().zip(printed.cores) {
                assert_eq!(found.rows[row].core, Some(core));
                assert_eq!(
                    total(&found.rows[row]),
                    size(printed.core(core).iter().sum())
                );
            }
            assert_eq!(found.asked_exact, Some(true));
            assert_eq!(found.unread, [], "{shift}");
        }
    }
}

#[test]
fn a_row_into_which_another_thread_writes_is_put_together() {
    let printed = TableReport::sample(7, 0, [4, 5]);
    let whole = printed.whole();
    let row = whole.find("\\_NC 4").unwrap();
    let noise = error(
        9,
        "io_create_queues",
        "Failed to create static rings for qIO",
    );
    for at in [30, 50, 51, 77, 100] {
        let log = format!("{}{noise}{}", &whole[..row + at], &whole[row + at..]);
        super::tables::assert_is(&report(log), &printed);
    }
}

#[test]
fn reports_come_in_the_order_of_their_lines() {
    let mut log = String::new();
    for tid in 0..50 {
        log += &ListReport::sample(tid, tid, 0).whole();
        log += &error(99, "quiet", "nothing").repeat(2000);
    }
    let lines: Vec<_> = reports(&log).iter().map(|report| report.line).collect();
    assert_eq!(lines.len(), 50);
    assert!(lines.is_sorted());
}

/// The lines of two texts, one of each in turn, until the second ends.
fn in_turn(one: &str, two: &str) -> String {
    let mut two = two.lines();
    let mut log = String::new();
    for line in one.lines() {
        let other = two.next().map(|line| format!("{line}\n"));
        log += &format!("{line}\n{}", other.unwrap_or_default());
    }
    log + &two.map(|line| format!("{line}\n")).collect::<String>()
}

/// Two lists of which no item is like one of the other.
fn unlike() -> [ListReport; 2] {
    let first = ListReport {
        items: vec![
            ("model code", 301 * MIB),
            ("tensors", 12 * GIB),
            ("dma rings", 3 * GIB),
        ],
        ..ListReport::sample(7, 0, 0)
    };
    let second = ListReport {
        asked: 9_000_000,
        items: vec![
            ("model code", 640 * MIB),
            ("tensors", 9 * GIB),
            ("shared scratchpad", 512 * MIB),
            ("dma rings", 5 * GIB),
        ],
        ..ListReport::sample(8, 2, 1)
    };
    [first, second]
}

fn assert_lists(log: &str, printed: &[ListReport; 2]) -> Vec<Report> {
    let found = reports(log);
    assert_eq!(found.len(), 2, "{log}");
    for (found, printed) in found.iter().zip(printed) {
        assert_eq!(found.device, Some(printed.device), "{log}");
        assert_eq!(total(&found.rows[0]), size(printed.total()), "{log}");
        let wanted: Vec<_> = printed
            .items
            .iter()
            .map(|(name, bytes)| format!("{name} {}", size(*bytes)))
            .collect();
        let texts: Vec<_> = super::texts(&found.rows[0])
            .into_iter()
            .map(|(name, text)| format!("{name} {text}"))
            .collect();
        assert_eq!(texts, wanted, "{log}");
    }
    found
}

#[test]
fn lists_whose_lines_alternate_are_parted_by_their_totals() {
    let printed = unlike();
    let [one, two] = &printed;
    // The second begins when the first has its total, so the totals are certain.
    let list = one.list();
    let (total_line, items) = list.split_once('\n').unwrap();
    let log = one.head() + total_line + "\n" + &two.head() + &in_turn(items, &two.list());
    for found in assert_lists(&log, &printed) {
        assert_eq!(found.unread, []);
    }
    // From the beginning, the whole lists may be one another's.
    let log = one.head() + &two.head() + &in_turn(&one.list(), &two.list());
    for found in assert_lists(&log, &printed) {
        assert_eq!(found.unread.len(), 1, "{:?}", found.unread);
        assert!(
            found.unread[0]
                .what
                .contains("a guess whether total, model code, tensors and more are")
        );
    }
}

#[test]
fn lists_that_cannot_be_parted_are_said_to_be_guessed() {
    let [one, two] = unlike();
    let log = one.head() + &two.head() + &in_turn(&one.list(), &two.list());
    let found = reports(log.replace("9.000GB", "8.000GB"));
    assert_eq!(found.len(), 2);
    for found in &found {
        assert!(
            found
                .unread
                .iter()
                .any(|unread| unread.what.contains("no way comes to both totals")),
            "{found:#?}"
        );
    }
}

#[test]
fn tables_of_two_threads_line_by_line_stay_two() {
    for (has_xt_cc, indent) in [(false, ""), (true, "  ")] {
        let first = TableReport {
            has_xt_cc,
            indent,
            ..TableReport::sample(7, 0, [4, 5])
        };
        let second = TableReport {
            has_xt_cc,
            indent,
            ..TableReport::sample(8, 1, [6, 7])
        };
        let log = in_turn(&first.whole(), &second.whole());
        // As the documentation has it, above the table.
        let log = log.replacen(
            "Utilization:\n",
            "Utilization:\n(NOTE: NEFF id to name mapping is printed after)\n",
            2,
        );
        let found = by_device(reports(&log));
        assert_eq!(found.len(), 2, "{log}");
        for (found, printed) in found.iter().zip([&first, &second]) {
            assert_eq!(found.unread, [], "{log}");
            assert_eq!(found.rows.len(), 5);
            for (row, core) in [1, 3].into_iter().zip(printed.cores) {
                assert_eq!(found.rows[row].core, Some(core));
                let code = found.rows[row + 1].categories.get("model constants");
                assert_eq!(&*code.unwrap().text, size(printed.core(core)[1] / 2));
                assert_eq!(found.rows[row + 1].core, Some(core));
            }
            assert_eq!(found.neffs.len(), 2);
        }
    }
}

#[test]
fn three_lists_whose_lines_alternate_are_said_to_be_guessed_once() {
    let printed = [7, 8, 9].map(|tid| ListReport::sample(tid, tid, 0));
    let mut log: String = printed.iter().map(ListReport::head).collect();
    let lists = printed.each_ref().map(ListReport::list);
    for at in 0..6 {
        for list in &lists {
            log += list.lines().nth(at).unwrap();
            log += "\n";
        }
    }
    let found = reports(log);
    assert_eq!(found.len(), 3);
    for found in &found {
        let guesses = found
            .unread
            .iter()
            .filter(|unread| unread.what.contains("several lists"));
        assert_eq!(guesses.count(), 1, "{:?}", found.unread);
    }
    // One behind the other they are as they stand, whatever stands above them.
    let heads: String = printed.iter().map(ListReport::head).collect();
    for found in reports(heads + &lists.concat()) {
        assert_eq!(found.unread, []);
    }
}
