//! Damage: what cannot be read is null and said, and the rest stays what it is.

use glia::explain::report::{Family, Kind};

use super::printer::{ListReport, TableReport, size};
use super::{report, reports, texts, total};

/// What is said of a report.
fn said(report: &glia::explain::report::Report) -> Vec<&str> {
    let unread = report.unread.iter();
    unread.map(|unread| unread.what.as_str()).collect()
}

#[test]
fn an_item_that_is_no_size_is_null_and_said() {
    let printed = ListReport::sample(7, 1, 0);
    let tensors = format!("tensors: {}", size(printed.items[1].1));
    for (damage, text) in [
        ("abc", "\"abc\""),
        ("12.0#7GB", "\"12.0#7GB\""),
        ("", "\"\""),
    ] {
        let log = printed
            .whole()
            .replace(&tensors, &format!("tensors: {damage}"));
        let found = report(log);
        assert_eq!(found.rows[0].categories.0.len(), 5, "{damage}");
        assert_eq!(texts(&found.rows[0])[1], ("tensors", "n/a"));
        assert_eq!(texts(&found.rows[0])[3], ("dma rings", "3.000GB"));
        assert_eq!(
            said(&found),
            [format!("tensors is {text}, which is no size")]
        );
        assert_eq!(found.unread[0].line, 5);
    }
    // Printed as not there, it is null and nothing is wrong.
    let found = report(printed.whole().replace(&tensors, "tensors: n/a"));
    assert_eq!(texts(&found.rows[0])[1], ("tensors", "n/a"));
    assert_eq!(found.unread, []);
    let found = report(printed.whole().replacen(&size(printed.total()), "??", 1));
    assert_eq!(
        (total(&found.rows[0]), said(&found)),
        ("none", vec!["total is \"??\", which is no size"])
    );
    assert_eq!(texts(&found.rows[0]).len(), 5);
}

#[test]
fn an_item_that_is_no_size_is_nothing_without_a_list() {
    assert_eq!(
        reports("* tensors: abc\n* total: n/a\n- total: many\nTotal: 5 of 7\n"),
        []
    );
    let printed = ListReport::sample(7, 1, 0);
    let found = report(printed.whole() + "Total: 5 of 7\n- [x] todo: all\nruntime: 12 s\n");
    assert_eq!((texts(&found.rows[0]).len(), found.unread.len()), (5, 0));
}

#[test]
fn terabytes_and_digits_in_groups_are_sizes() {
    let log = "ND 0:NC 1, current utilization:\n\t* total: 1.5TB\n\t* tensors: 1,535.000GB\n\t* dma rings: 1,024.000MB\n";
    let found = report(log);
    assert_eq!(found.rows[0].total.as_ref().unwrap().bytes, 3 << 39);
    assert_eq!(
        texts(&found.rows[0]),
        [("tensors", "1,535.000GB"), ("dma rings", "1,024.000MB")]
    );
    assert_eq!(
        found.rows[0].categories.get("dma rings").unwrap().bytes,
        1 << 30
    );
    assert_eq!(found.unread, []);
    // It may be a comma for a point.
    let found = report(log.replace("1,024.000MB", "1,024MB"));
    assert_eq!(said(&found), ["dma rings is \"1,024MB\", which is no size"]);
}

#[test]
fn a_failure_line_with_a_damaged_size_is_a_failure() {
    let printed = ListReport::sample(7, 1, 0);
    for damaged in ["3?.000MB", "30.0\u{fffd}0MB", "?0.000MB"] {
        let head = printed.head().replace("30.000MB", damaged);
        let found = report(head.clone() + &printed.list());
        assert_eq!(
            (found.family, found.kind),
            (Family::B, Kind::DeviceOom),
            "{damaged}"
        );
        assert_eq!(
            (&found.asked, found.asked_bytes, found.asked_exact),
            (&None, None, Some(false))
        );
        assert_eq!(found.usage.as_deref(), Some("dma rings"));
        assert_eq!((found.device, found.core), (Some(1), Some(0)));
        assert_eq!(texts(&found.rows[0]).len(), 5);
        assert_eq!(
            said(&found),
            [format!(
                "the size asked for is {damaged:?}, which is no size"
            )]
        );
        // The thread's other line has all bytes, and no digit of it is another.
        let found = report(printed.first() + &head + &printed.list());
        assert_eq!((found.line, &found.asked), (2, &None));
        assert_eq!(
            (found.asked_bytes, found.asked_exact),
            (Some(printed.asked), Some(true))
        );
    }
    let head = printed.head().replace("30.000MB", "4?.000MB");
    let found = report(printed.first() + &head + &printed.list());
    assert_eq!((found.asked_bytes, found.asked_exact), (None, Some(false)));
    assert_eq!(found.also_lines, [1]);
}

#[test]
fn a_failure_line_that_is_cut_behind_its_size_is_a_failure() {
    let printed = ListReport::sample(7, 1, 0);
    let head = printed.head();
    for (cut, usage, device) in [
        ("usage: dma rings) on ND 1", Some("dma rings"), None),
        ("usage: dma rings) on ND 1:", Some("dma rings"), Some(1)),
        ("usage: dma rings) ", Some("dma rings"), None),
        ("usage: dma", None, None),
        ("30.000MB", None, None),
    ] {
        let end = head.find(cut).unwrap() + cut.len();
        let log = format!("{}{}\n{}", printed.first(), &head[..end], printed.list());
        let found = report(log);
        assert_eq!(
            (found.family, found.kind),
            (Family::B, Kind::DeviceOom),
            "{cut}"
        );
        assert_eq!(found.asked.as_deref(), Some("30.000MB"));
        assert_eq!(found.asked_bytes, Some(printed.asked));
        assert_eq!(
            (found.usage.as_deref(), found.device),
            (usage, device),
            "{cut}"
        );
        assert_eq!((found.core, texts(&found.rows[0]).len()), (None, 5));
        assert_eq!(said(&found), ["the failure line is cut behind its size"]);
    }
    // Damaged within.
    for (place, device) in [("on ND, current", None), ("on ND 1:N? 0, current", Some(1))] {
        let log = head.replace("on ND 1:NC 0, current", place) + &printed.list();
        let found = report(log);
        assert_eq!(
            (found.kind, found.device, found.core),
            (Kind::DeviceOom, device, None)
        );
        assert_eq!(texts(&found.rows[0]).len(), 5);
        assert_eq!(said(&found), ["the place in the failure line is damaged"]);
    }
    // A thread that writes on has not written the rest.
    let printed = TableReport::sample(9, 3, [4, 5]);
    let log: String = printed
        .parts()
        .iter()
        .map(|line| line.replace(" on ND 3:NC 4", " on"))
        .collect();
    let found = report(log);
    assert_eq!(
        (found.family, found.kind, found.rows.len()),
        (Family::C, Kind::DeviceOom, 5)
    );
    assert_eq!(found.asked_bytes, Some(printed.asked));
}

#[test]
fn utilization_opens_a_list_whatever_is_in_the_brackets() {
    let printed = ListReport::sample(7, 1, 0);
    for inside in [
        "alignment: none, usage: dma rings",
        "usage: dma rings, tries: 2",
        "dma rings",
        "",
    ] {
        let head = printed.head().replace("usage: dma rings", inside);
        let found = report(printed.first() + &head + &printed.list());
        assert_eq!(
            (found.family, found.kind),
            (Family::B, Kind::DeviceOom),
            "{inside}"
        );
        assert_eq!(
            (found.rows[0].core, texts(&found.rows[0]).len()),
            (Some(0), 5)
        );
        assert_eq!((found.asked_exact, found.unread.len()), (Some(true), 0));
    }
}

#[test]
fn a_sorted_list_is_read_whole() {
    let printed = ListReport::sample(7, 1, 0);
    let list = printed.list();
    let mut items: Vec<_> = list.trim_end().lines().collect();
    let total_line = items.remove(0);
    let orders = [[1, 0, 2, 3, 4], [4, 3, 2, 1, 0]];
    for order in orders {
        let sorted: Vec<_> = order.iter().map(|&at| items[at]).collect();
        for whole in [
            format!("{total_line}\n{}\n", sorted.join("\n")),
            format!("{}\n{total_line}\n", sorted.join("\n")),
        ] {
            let found = report(printed.whole().replace(&list, &whole));
            assert_eq!(total(&found.rows[0]), size(printed.total()), "{whole}");
            assert_eq!(texts(&found.rows[0]).len(), 5, "{whole}");
            assert_eq!(found.unread, []);
        }
    }
}

#[test]
fn a_damaged_cell_does_not_shift_the_others() {
    let printed = TableReport::sample(9, 3, [4, 5]);
    let row = printed.rows().remove(1);
    let cells: Vec<_> = row.trim_end().split('|').collect();
    // The bar between two cells is lost with a digit.
    let both = format!("{}|{}", cells[4], cells[5]);
    let damaged = row.replacen(&both, &both.replace('|', "?"), 1);
    assert_ne!(damaged, row);
    let found = report(printed.whole().replace(&row, &damaged));
    let core = &found.rows[1];
    assert_eq!(total(core), cells[1].trim());
    assert_eq!(texts(core)[1].1, cells[3].trim());
    assert_eq!(core.categories.0.len(), 12);
    for name in [
        "tensors",
        "shared scratchpad",
        "runtime",
        "dma rings io",
        "profiler buffers",
    ] {
        assert!(
            core.categories.has(name) && core.categories.get(name).is_none(),
            "{name}"
        );
    }
    assert!(said(&found)[1].ends_with("those behind the damaged one cannot be told apart"));
    assert_eq!(found.rows[0].categories.sizes().count(), 12);
}
