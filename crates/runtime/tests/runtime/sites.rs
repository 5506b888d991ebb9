//! Where memory was asked for: the caller's line, or what he calls it.

use glia_abi::arch::Arch;
use glia_abi::mem_usage::MemUsage;
use glia_runtime::dml::Site;
use glia_runtime::{AllocSpec, AskedAt, Dmem, Placement, ScratchVariable, Tensor};

use crate::fake::{DEVICE, Fake, core, open};

fn site(memory: &Dmem) -> String {
    memory.facts().site.as_ref().unwrap().to_string()
}

/// How a site in this file begins.
fn line(number: u32) -> String {
    format!("{}:{number}:", file!())
}

#[test]
fn memory_knows_the_line_that_asked_for_it() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let spec = AllocSpec::device(100, MemUsage::Weight);
    let model = runtime.load_model(core(0), "a.neff").unwrap();

    let first = line!();
    let of_core = runtime.allocate(core(0), &spec).unwrap();
    let of_model = model.allocate(&spec).unwrap();
    let tensor = Tensor::allocate(&runtime, core(0), Placement::Device, 8, "kv").unwrap();

    assert!(site(&of_core).starts_with(&line(first + 1)));
    assert!(site(&of_model).starts_with(&line(first + 2)));
    assert!(site(tensor.memory().unwrap()).starts_with(&line(first + 3)));
}

#[test]
fn a_scratchpad_was_asked_for_where_a_model_reserved_it() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let model = runtime.load_model(core(0), "a.neff").unwrap();
    let variable = ScratchVariable {
        offset_bytes: 0,
        size_bytes: 4096,
    };
    let before = line!();
    model.reserve_scratchpad(&[variable]).unwrap();
    let events = runtime.dml(DEVICE).unwrap().events();
    let page = events.last().unwrap();
    assert_eq!(page.allocation.usage, MemUsage::Scratchpad);
    let told = page.allocation.site.as_ref().unwrap().to_string();
    assert!(told.starts_with(&line(before + 1)), "{told}");
}

#[test]
fn a_reservation_is_asked_for_at_the_place_that_the_caller_names() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let model = runtime.load_model(core(0), "a.neff").unwrap();
    // A page, and a private block.
    let variables = [0, 500 << 20].map(|offset_bytes| ScratchVariable {
        offset_bytes,
        size_bytes: 12 << 20,
    });
    let variables = [
        variables[0],
        ScratchVariable {
            size_bytes: 13 << 20,
            ..variables[1]
        },
    ];
    let site = Some(AskedAt::Line(7));
    model.reserve_scratchpad_at(&variables, site).unwrap();
    let events = runtime.dml(DEVICE).unwrap().events();
    let told = events.iter().map(|event| {
        let allocation = &event.allocation;
        (allocation.usage, allocation.site.clone().unwrap())
    });
    let wanted = [
        (MemUsage::Scratchpad, Site::Line(7)),
        (MemUsage::Scratchpad, Site::Line(7)),
        (MemUsage::ScratchpadNotShared, Site::Line(7)),
    ];
    assert_eq!(told.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_place_that_the_caller_names_is_told_in_the_events_after_the_memory_is_gone() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let spec = AllocSpec {
        site: Some(AskedAt::Named("w.jsonl:7")),
        ..AllocSpec::device(100, MemUsage::Weight)
    };
    let block = runtime.allocate(core(0), &spec).unwrap();
    assert_eq!(block.facts().site, Some(Site::Named("w.jsonl:7".into())));
    let place = Some(AskedAt::Named("w.jsonl:8"));
    let tensor = Tensor::allocate_at(&runtime, core(0), Placement::Device, 8, "kv", place).unwrap();
    assert_eq!(site(tensor.memory().unwrap()), "w.jsonl:8");
    drop((block, tensor));

    let events = runtime.dml(DEVICE).unwrap().events();
    let sites = events
        .iter()
        .map(|event| event.allocation.site.as_ref().unwrap().to_string());
    let wanted = ["w.jsonl:7", "w.jsonl:8", "w.jsonl:7", "w.jsonl:8"];
    assert_eq!(sites.collect::<Vec<_>>(), wanted);
}
