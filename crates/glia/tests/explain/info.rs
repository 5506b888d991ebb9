//! Family D: an account for each loaded model.

use glia::explain::report::{Family, Kind, Scope};

use super::printer::{MIB, prefix, size};
use super::{report, reports, texts, total};

const NAMES: [&str; 9] = [
    "model code",
    "model constants",
    "scratchpad",
    "runtime",
    "dma rings io",
    "dma rings spill",
    "dma rings collectives",
    "dma rings runtime",
    "collectives",
];

fn block(tid: u32, core: u32, is_newer: bool) -> String {
    let mut text = prefix(tid, "INFO", "dml_log_dev_neff_mem") + "\n";
    text += &format!(
        "[ND 0:NC {core}] Current Usage Total: {}\n",
        size(150 * MIB)
    );
    text += if is_newer {
        "\tShared Scratchpad: 64.000MB\n\tTensors: 0.000B\n"
    } else {
        "\tshared scratchpad: 64.000MB\n"
    };
    text += "Per NEFF memory usage breakdown for [my[1].neff]:\n";
    text += &format!("\tTotal: {}\n", size(45 * MIB));
    for (index, name) in NAMES.iter().enumerate() {
        let bytes = if index < 3 { 15 * MIB } else { 0 };
        text += &format!("\t* {name}: {}\n", size(bytes));
    }
    text
}

#[test]
fn an_account_of_a_model_is_no_failure() {
    for is_newer in [false, true] {
        let found = report(block(5, 3, is_newer));
        assert_eq!((found.family, found.kind), (Family::D, Kind::Usage));
        assert_eq!((found.device, found.core), (Some(0), Some(3)));
        assert_eq!(
            (found.line, found.asked_bytes, found.asked_exact),
            (2, None, None)
        );
        let [core, model] = found.rows.as_slice() else {
            panic!("{found:#?}")
        };
        assert_eq!((core.scope, total(core)), (Scope::Core, "150.000MB"));
        let mut wanted = vec![("shared scratchpad", "64.000MB")];
        wanted.extend(is_newer.then_some(("tensors", "0.000B")));
        assert_eq!(texts(core), wanted);
        assert_eq!(
            (model.scope, total(model), model.core),
            (Scope::Neff, "45.000MB", Some(3))
        );
        assert_eq!(model.name.as_deref(), Some("my[1].neff"));
        let names: Vec<_> = texts(model).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, NAMES);
        assert_eq!(found.unread, []);
    }
}

#[test]
fn each_block_is_a_report() {
    let coloured: String = (block(5, 5, true) + &block(6, 4, true))
        .lines()
        .map(|line| format!("\x1b[0m{line}\n"))
        .collect();
    let found = reports(coloured);
    let cores: Vec<_> = found
        .iter()
        .map(|report| (report.core, report.rows.len()))
        .collect();
    assert_eq!(cores, [(Some(5), 2), (Some(4), 2)]);
}
