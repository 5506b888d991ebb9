//! Families A and N: single lines, and failures that are none of memory.

use glia::explain::report::{Family, Kind};

use super::printer::{ListReport, error};
use super::{report, reports};

#[test]
fn a_single_line_gives_its_bytes_and_nothing_else() {
    let log = "[TDRV:dmem_alloc] Failed to alloc DEVICE memory: 8192\n\
               [TDRV:copy_and_stage] Failed to allocate aligned (64) buffer in MLA DRAM for W7-a of size 8192 bytes, channel 1\n";
    let found = report(log);
    assert_eq!(
        (found.family, found.kind, found.line),
        (Family::A, Kind::DeviceOom, 1)
    );
    assert_eq!(
        (found.asked_bytes, found.asked_exact),
        (Some(8192), Some(true))
    );
    assert_eq!(
        (found.asked, found.device, found.core, found.hbm),
        (None, None, None, Some(1))
    );
    // By the name alone.
    assert_eq!(found.usage.as_deref(), Some("weight"));
    assert_eq!(
        (found.object.as_deref(), found.alignment_bytes),
        (Some("W7-a"), Some(64))
    );
}

#[test]
fn every_wording_of_the_first_line_is_read() {
    for words in [
        "Failed to alloc DEVICE memory: 77",
        "Failed to allocate DEVICE memory (77 bytes): memory allocation failed (ret=-12)",
        "Failed to allocate DEVICE memory (77 bytes): ret=-12",
    ] {
        assert_eq!(report(words).asked_bytes, Some(77), "{words}");
    }
}

#[test]
fn host_memory_is_not_device_memory() {
    let log = error(
        3,
        "dmem_alloc_internal",
        "Failed to allocate HOST memory (123456 bytes)",
    );
    let found = report(log);
    assert_eq!((found.family, found.kind), (Family::A, Kind::HostOom));
    assert_eq!(found.asked_bytes, Some(123_456));
    assert_eq!(found.device, None);
}

#[test]
fn lines_of_the_kernel_driver_are_read() {
    let log = "[ 12.5] neuron:mc_alloc: device mempool [1:0] total 17179869184 occupied 17000000000 needed 1073741824 available 179869184\n";
    let found = report(log);
    assert_eq!(
        (found.family, found.hbm, found.asked_bytes),
        (Family::A, Some(1), Some(1 << 30))
    );
    assert_eq!(found.rows[0].total.as_ref().unwrap().bytes, 17_000_000_000);
    let log = "neuron: nd 3 HBM 2: Could not allocate 536870912 bytes at offset 4096 for contiguous scratchpad\n";
    let found = report(log);
    assert_eq!(
        (found.device, found.hbm, found.asked_bytes),
        (Some(3), Some(2), Some(512 << 20))
    );
}

#[test]
fn a_failure_of_another_kind_is_not_one_of_memory() {
    for (line, status) in [
        (
            "RuntimeError: nrt_load status=4 message=\"Allocation Failure\"",
            "4 (Allocation Failure)",
        ),
        ("Failure: NRT_TIMEOUT in nrt_execute()", "NRT_TIMEOUT"),
        (
            "ERROR: Estimated peak HBM usage (17.5) exceeds 16GB",
            "Estimated peak HBM usage (17.5) exceeds 16GB",
        ),
        (
            "2025-Nov-02 11:02:03.100000  4100:4133  ERROR  TDRV:tdrv_init_mla   Failed to reset device 0",
            "an error line of the runtime: Failed to reset device 0",
        ),
    ] {
        let found = report(format!("starting\n{line}\n"));
        assert_eq!(
            (found.family, found.kind, found.line),
            (Family::N, Kind::NotMemory, 2)
        );
        assert_eq!(found.status.as_deref(), Some(status));
        assert_eq!(found.asked_bytes, None);
    }
    let found = report("[F137] neuronx-cc was forcibly killed\n");
    assert_eq!((found.family, found.kind), (Family::N, Kind::HostOom));
}

#[test]
fn a_status_belongs_to_the_failure_that_it_ends() {
    let printed = ListReport::sample(7, 0, 0);
    let end = error(7, "nrt_infodump", "Failure: NRT_RESOURCE in nrt_load()");
    let found = report(printed.whole() + &end);
    assert_eq!(found.status.as_deref(), Some("NRT_RESOURCE"));
}

#[test]
fn nothing_is_made_of_nothing() {
    let log = "hello\nHBM | TOTAL | is 5.000GB\n* total: 5 apples\nNC 4 and ND 3\nstatus=0 message=\"ok\"\n\
               * total: 5.000GB\n- [ ] total: 3.000MB\nTOTAL 12 Failed to allocate hope\n";
    assert_eq!(reports(log), []);
}

#[test]
fn a_damaged_failure_line_is_said() {
    let log = b"x\nFailed to allocate 5.000MB (usage: tensors) in Paris\n".as_slice();
    let (summary, _) = glia::explain::explain(log, "x", |_| Ok(()));
    assert_eq!(summary.reports, 0);
    assert_eq!(summary.unread[0].line, 2);
}

/// What cannot be counted is unknown, and said; the failure stays.
#[test]
fn a_size_of_2_to_the_64_is_null_and_said() {
    let huge = "18446744073709551616";
    let told = "the size asked for is more than 2^64 bytes";
    for line in [
        format!("Failed to alloc DEVICE memory: {huge}"),
        format!("Failed to allocate DEVICE memory ({huge} bytes): ret=-12"),
        format!("neuron:mc_alloc: device mempool [1:0] total 5 occupied 3 needed {huge} available"),
        format!("neuron: nd 3 HBM 2: Could not allocate {huge} bytes at offset 4096 for"),
    ] {
        let found = report(&line);
        assert_eq!(
            (found.kind, found.asked_bytes, found.asked_exact),
            (Kind::DeviceOom, None, None)
        );
        assert_eq!(found.unread[0].what, told, "{line}");
    }
    let line = "Failed to allocate 17179869184.000GB (alignment: 99999999999.000GB, usage: tensors) on ND 3:NC 1";
    let found = report(format!("x\n{line}\n"));
    assert_eq!(found.asked.as_deref(), Some("17179869184.000GB"));
    assert_eq!((found.asked_bytes, found.alignment_bytes), (None, None));
    assert_eq!((found.device, found.core), (Some(3), Some(1)));
    let unread: Vec<_> = found.unread.iter().map(|unread| unread.line).collect();
    assert_eq!(unread, [2, 2]);
}

#[test]
fn a_cell_of_2_to_the_64_is_null_and_said() {
    let printed = ListReport::sample(7, 0, 1);
    let log = printed
        .whole()
        .replace("runtime: 1.062KB", "runtime: 17179869184.000GB");
    let found = report(log);
    let names: Vec<_> = found.rows[0]
        .categories
        .0
        .iter()
        .map(|(name, size)| (name.as_ref(), size.is_some()))
        .collect();
    assert_eq!(names[2], ("runtime", false));
    assert_eq!(names.len(), 5);
    assert_eq!(
        found.unread[0].what,
        "runtime: 17179869184.000GB is more than 2^64 bytes"
    );
    let printed = super::printer::TableReport::sample(7, 0, [0, 1]);
    let log = printed
        .whole()
        .replacen(" 96.000MB |", "17179869184.000GB|", 2)
        .replacen("0.000B", "0.0x0B", 1);
    let found = report(log);
    assert_eq!(found.unread.len(), 3, "{:?}", found.unread);
    assert!(found.rows[1].categories.has("model code"));
    assert_eq!(found.rows[1].categories.get("model code"), None);
}

#[test]
fn a_buffer_that_is_no_weight_has_no_usage() {
    for name in ["Weights-a", "W-b", "w7-a", "W7"] {
        let line = format!(
            "Failed to allocate aligned (0) buffer in MLA DRAM for {name} of size 8 bytes\n"
        );
        let found = report(line);
        assert_eq!((found.usage, found.hbm), (None, None), "{name}");
    }
}

#[test]
fn a_failure_of_no_memory_has_the_thread_of_its_line() {
    let found = report(error(7, "nrt_load", "no such device"));
    assert_eq!(found.family, Family::N);
    assert_eq!(
        found.thread.map(|thread| thread.to_string()).as_deref(),
        Some("4100:7")
    );
}

#[test]
fn a_line_that_has_lost_its_thread_takes_nobodys() {
    let printed = ListReport::sample(7, 1, 0);
    let start = super::printer::prefix(7, "ERROR", "").find("TDRV").unwrap();
    let stranger = error(99, "nrt_infodump", "cut here");
    let log = stranger + &printed.first()[start..] + &printed.head()[start..] + &printed.list();
    let found = report(log);
    assert_eq!((found.family, found.thread), (Family::B, None));
    assert_eq!(found.asked_exact, Some(true));
    assert_eq!(found.rows[0].categories.0.len(), 5);
}

/// The lines that a log's summary says could not be read.
fn unread(log: impl AsRef<[u8]>) -> Vec<(u64, String)> {
    let (summary, _) = glia::explain::explain(log.as_ref(), "x", |_| Ok(()));
    let unread = summary.unread.into_iter();
    unread.map(|unread| (unread.line, unread.what)).collect()
}

#[test]
fn a_failure_in_other_words_is_named() {
    let log = "x\nCUDA: Failed to allocate 5 buffers\nFailed to allocate hope\n";
    let found = unread(log);
    assert_eq!(
        found.iter().map(|unread| unread.0).collect::<Vec<_>>(),
        [2, 3]
    );
    assert!(
        found[0].1.contains("this reads the runtime's own log"),
        "{found:?}"
    );
    // Beside a report, callers' lines are of no interest.
    let printed = ListReport::sample(7, 1, 0);
    assert_eq!(unread(printed.whole() + log), []);
}

#[test]
fn utf_16_is_said() {
    let text = "Failed to alloc DEVICE memory: 77\n";
    let wide: Vec<u8> = text.bytes().flat_map(|byte| [byte, 0]).collect();
    let marked = [&[0xff, 0xfe], wide.as_slice()].concat();
    for log in [wide.as_slice(), &marked] {
        let found = unread(log);
        assert_eq!(found[0].0, 1);
        assert!(found[0].1.starts_with("looks like UTF-16"), "{found:?}");
    }
    assert_eq!(unread(text), []);
    assert_eq!(unread([0; 64]), []);
}
