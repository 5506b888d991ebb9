//! Several threads write one log.

use glia::explain::report::{Family, Report};

use super::printer::{ListReport, TableReport, error, size};
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
