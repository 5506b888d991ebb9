//! Scratchpads: what is shared and what is private, who keeps which page, and where growth ends.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::CoreId;
use glia_abi::ioctl::{self, feature};
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::transport::Transport;
use glia_runtime::config::PageSize;
use glia_runtime::dml::{Log, LogContext};
use glia_runtime::scratchpad::{ScratchPlace, ScratchpadInfo};
use glia_runtime::{Model, Runtime, RuntimeConfig, ScratchVariable};
use proptest::prelude::*;

use crate::fake::{DEVICE, Fake, SCRATCHPAD_END, core, open, open_with};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 512 * MIB;
/// The models of the public example: offset and size in MiB.
const A: [(u64, u64); 2] = [(0, 512), (512, 1024)];
const B: [(u64, u64); 2] = [(0, 100), (100, 1536)];

fn variables(of: &[(u64, u64)]) -> Vec<ScratchVariable> {
    let variables = of.iter().map(|&(offset_mib, size_mib)| ScratchVariable {
        offset_bytes: offset_mib * MIB,
        size_bytes: size_mib * MIB,
    });
    variables.collect()
}

fn load(runtime: &Runtime, number: u32, of: &[(u64, u64)]) -> Model {
    let model = runtime.load_model(core(number), "m").unwrap();
    model.reserve_scratchpad(&variables(of)).unwrap();
    model
}

/// Shared and private bytes of a core, in MiB.
fn held(runtime: &Runtime, number: u32) -> (u64, u64) {
    let table = runtime.usage(DEVICE).unwrap();
    let present = table.core(CoreId::new(number)).unwrap().present;
    let mib = |usage| present.get(usage) / MIB;
    (
        mib(MemUsage::Scratchpad),
        mib(MemUsage::ScratchpadNotShared),
    )
}

fn info(runtime: &Runtime) -> ScratchpadInfo {
    runtime.scratchpad(core(0)).unwrap()
}

fn refs(runtime: &Runtime) -> Vec<u32> {
    info(runtime).pages.iter().map(|page| page.refs).collect()
}

fn contiguous(arch: Arch, lnc_size: u32, features: u64) -> (Arc<Fake>, Runtime) {
    let fake = Fake::new(arch);
    fake.state().features |= features;
    let config = RuntimeConfig {
        contiguous_scratchpad: true,
        lnc_size,
        ..RuntimeConfig::default()
    };
    let (runtime, _) = open_with(&fake, config);
    (fake, runtime)
}

#[test]
fn the_public_example_has_2_gib_shared_and_2_5_gib_private() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let _a = load(&runtime, 0, &A);
    assert_eq!(held(&runtime, 0), (1536, 1024));
    let _b = load(&runtime, 0, &B);
    assert_eq!(held(&runtime, 0), (2048, 2560));
    assert_eq!(refs(&runtime), [2, 2, 2, 1]);
    assert_eq!(info(&runtime).largest_oversized_bytes, 1536 * MIB);
    assert_eq!(info(&runtime).size_bytes(), 2048 * MIB);
    let lines = log.take();
    assert_eq!(lines.len(), 2);
    let wanted = "WARN  TDRV:tdrv_scratchpad_reserve                 1 scratchpad variables do not fit a page of 512 MB; the largest has 1610612736 bytes: consider NEURON_SCRATCHPAD_PAGE_SIZE=2048\n";
    assert!(lines[1].ends_with(wanted), "{}", lines[1]);
    // All models count, in whatever order they come: 1536 would do for this one.
    assert!(lines[0].contains("consider NEURON_SCRATCHPAD_PAGE_SIZE=1536"));
    let _again = load(&runtime, 0, &A);
    assert!(log.take()[0].contains("consider NEURON_SCRATCHPAD_PAGE_SIZE=2048"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_page_size_that_is_advised_leaves_nothing_private_and_is_the_least(
        page in 1..8_u64,
        models in proptest::collection::vec(
            proptest::collection::vec((0..4000_u64, 1..2000_u64), 1..4),
            1..4,
        ),
    ) {
        let run = |page_mib| {
            let fake = Fake::new(Arch::V3);
            fake.state().channel_room[0] = u64::MAX / 2;
            let config = RuntimeConfig {
                scratchpad_page: PageSize::from_mib(page_mib).unwrap(),
                ..RuntimeConfig::default()
            };
            let (runtime, log) = open_with(&fake, config);
            let _live: Vec<Model> = models.iter().map(|of| load(&runtime, 0, of)).collect();
            (held(&runtime, 0).1, log.take())
        };
        let least = (1..8).map(|steps| steps * 512).find(|&page_mib| run(page_mib).0 == 0);
        let (private, lines) = run(page * 512);
        prop_assert_eq!(private == 0, lines.is_empty());
        // The last model that has something private has seen all but those behind it.
        if let (Some(line), true) = (lines.last(), lines.len() == models.len()) {
            let wanted = match least {
                Some(mib) => format!("consider NEURON_SCRATCHPAD_PAGE_SIZE={mib}\n"),
                None => "no page size has room for all\n".to_owned(),
            };
            prop_assert!(line.ends_with(&wanted), "{}", line);
        }
    }
}

#[test]
fn the_page_size_in_force_is_never_advised() {
    let fake = Fake::new(Arch::V3);
    let config = RuntimeConfig {
        scratchpad_page: PageSize::from_mib(1536).unwrap(),
        ..RuntimeConfig::default()
    };
    let (runtime, log) = open_with(&fake, config);
    let _b = load(&runtime, 0, &B);
    let lines = log.take();
    assert!(
        lines[0].contains("do not fit a page of 1536 MB")
            && lines[0].ends_with("consider NEURON_SCRATCHPAD_PAGE_SIZE=2048\n"),
        "{}",
        lines[0]
    );
}

#[test]
fn a_larger_page_leaves_nothing_private() {
    let fake = Fake::new(Arch::V3);
    let config = RuntimeConfig {
        scratchpad_page: PageSize::from_mib(2048).unwrap(),
        ..RuntimeConfig::default()
    };
    let (runtime, log) = open_with(&fake, config);
    let _live = (load(&runtime, 0, &A), load(&runtime, 0, &B));
    assert_eq!(held(&runtime, 0), (2048, 0));
    assert_eq!(log.take(), [""; 0]);
}

#[test]
fn a_contiguous_scratchpad_has_small_pages_and_nothing_private() {
    let (fake, runtime) = contiguous(Arch::V3, 2, feature::CONTIGUOUS_SCRATCHPAD);
    let a = load(&runtime, 0, &A);
    assert_eq!(held(&runtime, 0), (1536, 0));
    // 1,636 MiB are 25.6 pages of 64 MiB. The second physical core uses the same scratchpad.
    let b = load(&runtime, 1, &B);
    assert_eq!(held(&runtime, 0), (26 * 64, 0));
    assert_eq!(held(&runtime, 1), (0, 0));
    assert!(info(&runtime).is_contiguous);
    assert_eq!(fake.chunks(false), vec![(64 * MIB, 19); 26]);
    // It grows down: the range begins with the newest page.
    let begin = SCRATCHPAD_END - 26 * 64 * MIB;
    let address = |offset_bytes| a.scratchpad_address(offset_bytes).map(|at| at.get());
    assert_eq!(address(0), Some(begin));
    assert_eq!(address(64 * MIB + 5), Some(begin + 64 * MIB + 5));
    assert_eq!(address(26 * 64 * MIB), None);

    // The larger one goes, then the other: newest pages first.
    drop(b);
    assert_eq!(held(&runtime, 0), (1536, 0));
    drop(a);
    assert_eq!(held(&runtime, 0), (0, 0));
    assert_eq!(fake.state().out_of_turn, 0);
}

#[test]
fn a_scratchpad_is_contiguous_only_where_it_can_be() {
    let able = feature::CONTIGUOUS_SCRATCHPAD;
    let is_contiguous = |arch, lnc_size, features| {
        let (_fake, runtime) = contiguous(arch, lnc_size, features);
        info(&runtime).is_contiguous
    };
    assert!(is_contiguous(Arch::V2, 1, able));
    assert!(is_contiguous(Arch::V3, 2, able));
    assert!(is_contiguous(Arch::V4, 2, able));
    assert!(!is_contiguous(Arch::V3, 1, able));
    assert!(!is_contiguous(Arch::V3, 2, 0));
    let fake = Fake::new(Arch::V2);
    fake.state().features |= able;
    assert!(!info(&open(&fake).0).is_contiguous);
}

#[test]
fn pages_are_aligned_and_belong_to_the_core() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let model = load(&runtime, 0, &[(0, 100), (600, 100)]);
    for page in info(&runtime).pages {
        assert_eq!(page.pa.get() % (4 * MIB), 0);
    }
    assert_eq!(fake.chunks(false), [(PAGE, 11), (PAGE, 11)]);
    let events = runtime.dml(DEVICE).unwrap().events();
    assert!(events.iter().all(|event| {
        let facts = &event.allocation;
        facts.hint.as_deref() == Some("scratchpad") && facts.model.is_none()
    }));
    let second = info(&runtime).pages[1].pa;
    assert_eq!(model.scratchpad_address(PAGE + 7), second.checked_add(7));
    assert_eq!(model.scratchpad_address(2 * PAGE), None);
}

#[test]
fn an_unloaded_model_takes_no_page_from_the_others() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let small = load(&runtime, 0, &[(0, 10)]);
    let large = load(&runtime, 0, &[(0, 512), (1000, 100)]);
    assert_eq!(refs(&runtime), [2, 1, 1]);
    drop(small);
    assert_eq!(refs(&runtime), [1, 1, 1]);
    let small = load(&runtime, 0, &[(0, 10)]);
    drop(large);
    assert_eq!(refs(&runtime), [1]);
    assert_eq!(held(&runtime, 0), (512, 0));
    drop(small);
    assert_eq!(fake.chunks(false), []);
}

#[test]
fn private_blocks_are_the_models() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let model = runtime.load_model(core(0), "m").unwrap();
    let places = model.reserve_scratchpad(&variables(&A)).unwrap();
    let [ScratchPlace::Shared, ScratchPlace::Private(block)] = &places[..] else {
        panic!("the second variable crosses a page");
    };
    assert_eq!(block.size_bytes(), 1024 * MIB);
    assert_eq!(block.facts().model, Some(model.id()));
    drop(model);
    let error = block.write(0, &[1]).unwrap_err();
    assert_eq!(error.status(), NrtStatus::InvalidHandle);
    assert_eq!(fake.chunks(false), []);
}

#[test]
fn what_cannot_be_reserved_leaves_nothing() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let first = load(&runtime, 0, &[(0, 10)]);
    let model = runtime.load_model(core(0), "m").unwrap();
    // A page of the third, then the private block.
    for nth in [1, 3] {
        fake.fail(ioctl::MEM_ALLOC_V2MT64, nth, Errno::ENOMEM);
        let error = model.reserve_scratchpad(&variables(&B)).err().unwrap();
        assert_eq!(error.status(), NrtStatus::Resource);
        assert!(error.oom().is_some());
        assert_eq!(refs(&runtime), [1]);
        assert_eq!(held(&runtime, 0), (512, 0));
    }
    assert!(log.take()[0].contains("usage: shared scratchpad"));
    let error = model.reserve_scratchpad(&variables(&[(0, 1025 * 512)]));
    let error = error.err().unwrap();
    assert_eq!(
        error.to_string(),
        "550292684800 bytes of scratchpad are more than 1024 pages of 536870912 bytes"
    );
    assert_eq!(error.status(), NrtStatus::Resource);
    // The model can still be given what there is.
    model.reserve_scratchpad(&variables(&[(0, 1)])).unwrap();
    assert_eq!(refs(&runtime), [2]);
    drop((first, model));
}

#[test]
fn a_private_block_that_is_refused_where_there_are_pages_enough_leaves_them() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let _large = load(&runtime, 0, &[(0, 512), (1536, 512)]);
    let model = runtime.load_model(core(0), "m").unwrap();
    fake.fail(ioctl::MEM_ALLOC_V2MT64, 0, Errno::ENOMEM);
    let error = model.reserve_scratchpad(&variables(&[(100, 512)]));
    assert_eq!(error.err().unwrap().oom().unwrap().asked_bytes, PAGE);
    assert_eq!(refs(&runtime), [1; 4]);
}

#[test]
fn no_page_size_is_advised_where_none_would_do() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let _model = load(&runtime, 0, &[(0, 3585)]);
    let lines = log.take();
    assert!(
        lines[0].ends_with("3759144960 bytes: no page size has room for all\n"),
        "{}",
        lines[0]
    );
}

#[test]
fn growth_that_finds_no_room_is_a_ceiling_for_those_who_need_more() {
    let fake = Fake::new(Arch::V2);
    fake.state().features |= feature::CONTIGUOUS_SCRATCHPAD;
    fake.state().channel_room[0] = 200 * MIB;
    let config = RuntimeConfig {
        contiguous_scratchpad: true,
        ..RuntimeConfig::default()
    };
    let (runtime, log) = open_with(&fake, config);
    let small = load(&runtime, 0, &[(0, 65)]);
    let model = runtime.load_model(core(0), "m").unwrap();

    let error = model.reserve_scratchpad(&variables(&[(0, 250)]));

    let error = error.err().unwrap();
    assert_eq!(error.status(), NrtStatus::Resource);
    assert_eq!(
        error.to_string(),
        "nd 0, core 0: the contiguous scratchpad ends at 201326592 bytes, and 262144000 are needed"
    );
    let lines = log.take();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].ends_with("The contiguous scratchpad ends at 201326592 bytes\n"),
        "{}",
        lines[0]
    );
    assert_eq!(refs(&runtime), [1, 1]);
    // What fits the ceiling is fine.
    model.reserve_scratchpad(&variables(&[(0, 192)])).unwrap();
    drop((small, model));
    assert_eq!(fake.state().out_of_turn, 0);

    // Another answer of the driver is a failure.
    fake.fail(ioctl::MEM_ALLOC_V2MT64, 0, Errno::EINVAL);
    let model = runtime.load_model(core(0), "m").unwrap();
    let error = model.reserve_scratchpad(&variables(&[(0, 1)]));
    assert_eq!(error.err().unwrap().status(), NrtStatus::Failure);
}

#[test]
fn a_page_that_is_not_below_the_last_is_refused() {
    let (fake, runtime) = contiguous(Arch::V3, 2, feature::CONTIGUOUS_SCRATCHPAD);
    let small = load(&runtime, 0, &[(0, 1)]);
    // Somebody else has taken the place.
    fake.state().scratchpads[0] += 4096;
    let model = runtime.load_model(core(0), "m").unwrap();
    let error = model.reserve_scratchpad(&variables(&[(0, 65)]));
    assert_eq!(error.err().unwrap().status(), NrtStatus::Failure);
    assert_eq!(refs(&runtime), [1]);
    drop(small);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_core_has_pages_for_the_largest_need_and_each_as_often_as_needed(
        models in proptest::collection::vec(
            (proptest::collection::vec((0..3000_u64, 1..600_u64), 0..5), any::<bool>()),
            1..8,
        ),
        is_contiguous in any::<bool>(),
    ) {
        let fake = Fake::new(Arch::V2);
        fake.state().features |= feature::CONTIGUOUS_SCRATCHPAD;
        fake.state().channel_room[0] = u64::MAX / 2;
        let config = RuntimeConfig {
            contiguous_scratchpad: is_contiguous,
            ..RuntimeConfig::default()
        };
        let (runtime, _) = open_with(&fake, config);
        let page_mib = if is_contiguous { 64 } else { 512 };
        let mut live: Vec<(u64, u64, Model)> = Vec::new();
        for (of, unloads) in models {
            if unloads && !live.is_empty() {
                live.remove(of.len() % live.len());
            }
            let need = of.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
            let crosses = |&&(offset, size): &&(u64, u64)| {
                !is_contiguous && offset / page_mib != (offset + size - 1) / page_mib
            };
            let private = of.iter().filter(crosses).map(|(_, size)| size).sum();
            live.push((need.div_ceil(page_mib), private, load(&runtime, 0, &of)));

            let most = live.iter().map(|(pages, ..)| *pages).max().unwrap();
            let wanted: Vec<u32> = (0..most)
                .map(|page| live.iter().filter(|(pages, ..)| *pages > page).count() as u32)
                .collect();
            prop_assert_eq!(refs(&runtime), wanted);
            let private = live.iter().map(|(_, private, _)| private).sum();
            prop_assert_eq!(held(&runtime, 0), (most * page_mib, private));
        }
        drop(live);
        prop_assert_eq!(fake.chunks(false), []);
        prop_assert_eq!(fake.state().out_of_turn, 0);
    }
}

/// A log that asks for the scratchpad whenever it is written.
#[derive(Default)]
struct Curious {
    runtime: OnceLock<Weak<Runtime>>,
    /// What was written, and how many pages there were then.
    seen: Mutex<Vec<(String, usize)>>,
}

impl Log for Curious {
    fn context(&self) -> LogContext {
        LogContext {
            time: String::new(),
            pid: 1,
            tid: 1,
        }
    }

    fn write(&self, lines: &str) {
        let runtime = self.runtime.get().and_then(Weak::upgrade);
        let pages = runtime.map_or(0, |runtime| info(&runtime).pages.len());
        self.seen.lock().unwrap().push((lines.to_owned(), pages));
    }
}

#[test]
fn the_scratchpad_can_be_asked_while_its_refusals_are_logged() {
    for is_contiguous in [true, false] {
        let fake = Fake::new(Arch::V3);
        fake.state().features |= feature::CONTIGUOUS_SCRATCHPAD;
        let log = Arc::new(Curious::default());
        let config = RuntimeConfig {
            contiguous_scratchpad: is_contiguous,
            lnc_size: 2,
            log: Some(Arc::clone(&log) as Arc<dyn Log>),
            ..RuntimeConfig::default()
        };
        let transport = Arc::clone(&fake) as Arc<dyn Transport>;
        let runtime = Arc::new(Runtime::open(transport, &[DEVICE], config).unwrap());
        log.runtime.set(Arc::downgrade(&runtime)).unwrap();
        let model = runtime.load_model(core(0), "m").unwrap();
        log.seen.lock().unwrap().clear();

        // Two pages of it are had, and all are given back.
        fake.fail(ioctl::MEM_ALLOC_V2MT64, 2, Errno::ENOMEM);
        let wanted = variables(&[(0, 2048)]);
        assert!(model.reserve_scratchpad(&wanted).is_err());
        let message = match is_contiguous {
            true => "The contiguous scratchpad ends at 134217728 bytes",
            false => "Failed to allocate DEVICE memory",
        };
        let seen = log.seen.lock().unwrap();
        let [(lines, pages)] = &seen[..] else {
            panic!("{seen:?}")
        };
        assert!(lines.contains(message), "{lines}");
        assert_eq!(*pages, 0);
    }
}
