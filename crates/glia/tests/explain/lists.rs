//! Family B: a list of items for the core that failed.

use glia::explain::report::{Family, Kind, Scope};

use super::printer::{ListReport, MIB, error, size};
use super::{report, reports, texts, total};

fn assert_is(found: &glia::explain::report::Report, printed: &ListReport) {
    assert_eq!((found.family, found.kind), (Family::B, Kind::DeviceOom));
    assert_eq!(found.usage.as_deref(), Some(printed.usage));
    assert_eq!(found.device, Some(printed.device));
    assert_eq!(found.core, Some(printed.core));
    assert_eq!(found.asked, Some(size(printed.asked)));
    assert_eq!(found.rows.len(), 1);
    assert_eq!(found.rows[0].scope, Scope::Core);
    assert_eq!(total(&found.rows[0]), size(printed.total()));
    let wanted: Vec<_> = printed
        .items
        .iter()
        .map(|(name, bytes)| (*name, size(*bytes)))
        .collect();
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    assert_eq!(texts(&found.rows[0]), wanted);
    assert_eq!(found.unread, []);
}

#[test]
fn a_list_gives_its_figures() {
    let printed = ListReport::sample(7, 1, 0);
    let found = report(printed.whole());
    assert_is(&found, &printed);
    assert_eq!(found.line, 2);
    assert_eq!(
        (found.asked_bytes, found.asked_exact),
        (Some(31_457_300), Some(true))
    );
    assert_eq!(found.hbm, None);
    assert_eq!(found.alignment, None);
}

#[test]
fn without_its_first_line_the_size_is_the_printed_one() {
    let printed = ListReport::sample(7, 1, 0);
    let found = report(printed.head() + &printed.list());
    assert_eq!(found.asked.as_deref(), Some("30.000MB"));
    assert_eq!(
        (found.asked_bytes, found.asked_exact),
        (Some(30 * MIB), Some(false))
    );
}

#[test]
fn the_exact_size_may_come_behind_the_list() {
    let printed = ListReport::sample(7, 1, 0);
    let behind = error(
        7,
        "tensor_allocate",
        "Failed to allocate 31457300 bytes on DEVICE for tensor weights.3.",
    );
    let found = report(printed.head() + &printed.list() + &behind);
    assert_eq!(
        (found.asked_bytes, found.asked_exact),
        (Some(31_457_300), Some(true))
    );
    assert_eq!(found.object.as_deref(), Some("weights.3"));
}

#[test]
fn another_size_of_the_same_thread_is_not_the_one_asked_for() {
    let printed = ListReport::sample(7, 1, 0);
    let other = error(
        7,
        "dmem_alloc_internal",
        "Failed to alloc DEVICE memory: 4096",
    );
    let found = reports(other + &printed.head() + &printed.list());
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].family, found[0].asked_bytes),
        (Family::A, Some(4096))
    );
    assert_eq!(found[1].asked_exact, Some(false));
}

#[test]
fn the_queue_and_the_event_file_are_read() {
    let printed = ListReport::sample(7, 1, 0);
    let file = error(
        7,
        "dml_dump",
        "Wrote nrt memory alloc debug info to [/tmp/a_1.csv](http://host/tmp/a_1.csv)",
    );
    // A name longer than its column runs into its message.
    let queue = error(
        7,
        "a_function_whose_name_is_longer_than_its_column",
        "Failed to allocate static rx ring for queue qIO_3",
    );
    let found = report(printed.first() + &file + &printed.head() + &printed.list() + &queue);
    assert_is(&found, &printed);
    assert_eq!(found.event_file.as_deref(), Some("/tmp/a_1.csv"));
    assert_eq!(found.object.as_deref(), Some("qIO_3"));
}

#[test]
fn the_path_of_an_event_file_may_be_wrapped_or_have_a_line_glued_to_it() {
    let printed = ListReport::sample(7, 1, 0);
    let event_file = |path: &str| {
        let file = format!("Wrote nrt memory alloc debug info to {path}");
        let file = error(7, "dml_dump", &file);
        let found = report(printed.first() + &file + &printed.head() + &printed.list());
        assert_is(&found, &printed);
        found.event_file
    };
    let path = "/tmp/nrt_mem_log_device_0_651a7ca9.csv";
    assert_eq!(event_file(path).as_deref(), Some(path));
    for wrapped in [
        "/tmp/nrt_mem_log_device_0_651\na7ca9.csv",
        "/tmp/nrt_mem\n_log_device_0_6\n51a7ca9.csv",
        "/tmp/nrt_mem_log_device_0_651a7ca9.c\nsv",
    ] {
        assert_eq!(event_file(wrapped).as_deref(), Some(path), "{wrapped:?}");
    }
    // One that is cut is not known.
    assert_eq!(event_file("/tmp/nrt_mem_log_dev"), None);
    let glued = error(
        7,
        "dml_dump",
        &format!("Wrote nrt memory alloc debug info to {path}"),
    );
    let found = report(glued.trim_end().to_owned() + &printed.first() + &printed.head());
    assert_eq!(found.event_file.as_deref(), Some(path));
}

#[test]
fn a_line_of_level_fatal_is_an_error_line() {
    let found = report("2026-Mar-01 10:00:00.123456  4703:9  FATAL  NRT:nrt_init  no device\n");
    assert_eq!((found.family, found.kind), (Family::N, Kind::NotMemory));
    let fatal = |line: String| line.replace("ERROR", "FATAL");
    let printed = ListReport::sample(7, 1, 0);
    let found = report(fatal(printed.first()) + &fatal(printed.head()) + &printed.list());
    assert_is(&found, &printed);
}

#[test]
fn colours_prefixes_and_other_bullets_do_not_matter() {
    let printed = ListReport::sample(7, 1, 0);
    let coloured: String = printed
        .whole()
        .lines()
        .map(|line| format!("\x1b[0m\x1b[31m{line}\x1b[0m\r\n"))
        .collect();
    let of_pod: String = printed
        .whole()
        .lines()
        .map(|line| format!("2026-03-01T10:00:00.1Z stderr F {line}\n"))
        .collect();
    let of_mpi: String = printed
        .whole()
        .lines()
        .map(|line| format!("[1,3]<stderr>:{line}\n"))
        .collect();
    let pasted = printed.whole().replace("\t* ", "        \u{2022} ");
    let rendered = printed.whole().replace("\t* ", "");
    let doubled = printed.whole().replace('\n', "\n\n");
    let squeezed: String = printed
        .whole()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n")
        .collect();
    for log in [
        coloured, of_pod, of_mpi, pasted, rendered, doubled, squeezed,
    ] {
        assert_is(&report(&log), &printed);
    }
}

#[test]
fn a_log_that_became_a_string_is_read() {
    let printed = ListReport::sample(7, 1, 0);
    let log = format!(
        "{{\"log\":\"{}\"}}\n",
        printed.whole().replace('\n', "\\n").replace('\t', "\\t")
    );
    let found = report(log);
    assert_is(&found, &printed);
    assert_eq!(found.line, 1);
}

#[test]
fn glued_lines_are_two_messages() {
    let printed = ListReport::sample(7, 1, 0);
    let log = printed.first().replace('\n', "") + &printed.head() + &printed.list();
    let found = report(log);
    assert_is(&found, &printed);
    assert_eq!(found.asked_exact, Some(true));
    let one_line = printed.whole().replace('\n', " ");
    assert_is(&report(one_line), &printed);
}

#[test]
fn wrapped_lines_are_put_together() {
    let printed = ListReport::sample(7, 1, 0);
    for width in [60, 72, 80, 97, 120, 132] {
        let mut log = printed.first();
        for line in printed.head().lines() {
            for piece in line.as_bytes().chunks(width) {
                log += std::str::from_utf8(piece).unwrap();
                log += "\n";
            }
        }
        assert_is(&report(log + &printed.list()), &printed);
    }
}

#[test]
fn a_list_without_failure_is_an_account_of_usage() {
    let printed = ListReport::sample(7, 1, 0);
    let head = error(7, "log_dev_mem", "ND 1:NC 0, current utilization:").replace("ERROR", " INFO");
    let found = report(head + &printed.list());
    assert_eq!((found.family, found.kind), (Family::B, Kind::Usage));
    assert_eq!((found.asked_bytes, found.asked_exact), (None, None));
    assert_eq!(total(&found.rows[0]), size(printed.total()));
}

#[test]
fn a_list_whose_head_is_lost_is_of_no_known_core() {
    let printed = ListReport::sample(7, 1, 0);
    let found = report(printed.list());
    assert_eq!(
        (found.kind, found.device, found.core),
        (Kind::Usage, None, None)
    );
    assert_eq!(found.rows[0].categories.0.len(), printed.items.len());
}

#[test]
fn rings_and_full_categories_are_pointed_to() {
    let found = report(ListReport::sample(7, 1, 0).whole());
    let all: Vec<_> = found
        .points_to
        .iter()
        .map(|finding| finding.text.as_str())
        .collect();
    assert!(
        all.iter()
            .any(|text| text.starts_with("DMA rings take 3.000GB (19 %)")),
        "{all:?}"
    );
}

#[test]
fn bytes_with_separators_of_thousands_are_read_whole() {
    let printed = ListReport::sample(7, 1, 0);
    let found = report(printed.first() + &printed.head() + &printed.list());
    let bytes = found.asked_bytes.unwrap().to_string();
    let mut grouped = bytes.clone();
    for at in (1..bytes.len())
        .rev()
        .filter(|at| (bytes.len() - at).is_multiple_of(3))
    {
        grouped.insert(at, ',');
    }
    let first = printed.first().replace(&bytes, &grouped);
    assert_ne!(first, printed.first());
    let again = report(first + &printed.head() + &printed.list());
    assert_eq!(again.asked_bytes, found.asked_bytes);
    assert_eq!(again.asked_exact, Some(true));
}

#[test]
fn rings_that_were_asked_for_are_pointed_to_at_any_share() {
    let mut printed = ListReport::sample(7, 1, 0);
    printed.items[3].1 = 500 * MIB;
    let rings = |found: &glia::explain::report::Report| {
        let mut texts = found.points_to.iter().map(|finding| finding.text.clone());
        texts.find(|text| text.starts_with("DMA rings take"))
    };
    let text = rings(&report(printed.whole())).unwrap();
    assert!(text.starts_with("DMA rings take 500.000MB (4 %)"), "{text}");
    printed.usage = "tensors";
    assert_eq!(rings(&report(printed.whole())), None);
}
