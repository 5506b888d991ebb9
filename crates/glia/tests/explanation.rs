#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
//! Why there was no room, on whole machines: every cause as a program meets it, and the set to free,
//! freed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use glia::explain::explain;
use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::addr::BusAddr;
use glia_abi::arch::Scale;
use glia_abi::fault::{FaultPoint, Faults};
use glia_abi::handle::{Channel, CoreId, DeviceId, McHandle, Pid};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::params::ModuleParams;
use glia_abi::transport::Transport;
use glia_abi::usage::Category;
use glia_device::HostConfig;
use glia_runtime::dml::{Log, LogContext, ModelId};
use glia_runtime::explanation::{BankExplanation, Block, Cause, Explanation, Opening, Owner};
use glia_runtime::ndl::{self, ChunkSpec};
use glia_runtime::{AllocSpec, Core, Dmem, Runtime, RuntimeConfig, RuntimeError, ScratchVariable};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId::new(0);
const THIS: Pid = Pid::new(7);
const OTHER: Pid = Pid::new(8);

fn core(number: u32) -> Core {
    Core {
        device: DEVICE,
        core: CoreId::new(number),
    }
}

/// HBMs of 32 MiB: 16 are the driver's, 4 the small pool, 12 are left.
fn small(model: Model) -> MachineConfig {
    MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 32 * MIB,
        },
        params: ModuleParams {
            mempool_small_pool_size: 4 * MIB,
            ..ModuleParams::default()
        },
        ..MachineConfig::new(model)
    }
}

/// A log that keeps each write.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

impl Log for Kept {
    fn context(&self) -> LogContext {
        LogContext {
            time: "2026-Jan-02 03:04:05.678901".to_owned(),
            pid: 7,
            tid: 7,
        }
    }

    fn write(&self, lines: &str) {
        self.0.lock().unwrap().push(lines.to_owned());
    }
}

impl Kept {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn try_open(machine: &Machine, pid: Pid, log: &Arc<Kept>) -> Result<Runtime, RuntimeError> {
    try_open_with(machine, pid, log, true)
}

fn try_open_with(
    machine: &Machine,
    pid: Pid,
    log: &Arc<Kept>,
    contiguous_scratchpad: bool,
) -> Result<Runtime, RuntimeError> {
    let config = RuntimeConfig {
        process: Some(pid),
        log: Some(Arc::clone(log) as _),
        contiguous_scratchpad,
        lnc_size: 2,
        ..RuntimeConfig::default()
    };
    Runtime::open(machine.process(pid) as Arc<_>, &[DEVICE], config)
}

fn open(machine: &Machine, pid: Pid) -> Runtime {
    try_open(machine, pid, &Arc::default()).unwrap()
}

/// Memory of HBM 0, whichever core it is charged to.
fn spec(size_bytes: u64, align_bytes: u64) -> AllocSpec<'static> {
    AllocSpec {
        align_bytes,
        channel: Some(Channel::new(0)),
        hint: Some("kv"),
        ..AllocSpec::device(size_bytes, MemUsage::Tensor)
    }
}

fn take(runtime: &Runtime, size_bytes: u64) -> Dmem {
    runtime.allocate(core(0), &spec(size_bytes, 0)).unwrap()
}

fn refused(runtime: &Runtime, spec: &AllocSpec<'_>) -> RuntimeError {
    runtime.allocate(core(0), spec).err().unwrap()
}

fn bank(error: &RuntimeError) -> &BankExplanation {
    error.explanation().unwrap().bank().unwrap()
}

#[test]
fn a_full_hbm_whose_neighbours_are_empty_is_the_wrong_one() {
    for model in Model::ALL {
        let machine = Machine::new(small(model)).unwrap();
        let runtime = open(&machine, THIS);
        let _full = take(&runtime, 12 * MIB);

        let error = refused(&runtime, &spec(5 * MIB, 0));

        let found = bank(&error);
        assert_eq!(found.cause, Cause::WrongBank, "{model:?}");
        assert_eq!(
            (found.usable_bytes, found.most_bytes),
            (4 * MIB, Some(12 * MIB))
        );
        let others = found.banks.iter().skip(1);
        assert!(
            others
                .clone()
                .all(|bank| bank.has_room && bank.free_bytes == 16 * MIB)
        );
        assert_eq!(
            found.device_free_bytes,
            4 * MIB + 16 * MIB * others.len() as u64
        );
    }
}

#[test]
fn a_full_device_wants_capacity() {
    let machine = Machine::new(small(Model::Trn1)).unwrap();
    let runtime = open(&machine, THIS);
    let _here = take(&runtime, 12 * MIB);
    let _there = runtime
        .allocate(core(1), &AllocSpec::device(12 * MIB, MemUsage::Weight))
        .unwrap();
    let error = refused(&runtime, &spec(5 * MIB, 0));
    assert_eq!(bank(&error).cause, Cause::Capacity);
    let error = refused(&runtime, &spec(13 * MIB, 0));
    assert_eq!(
        (bank(&error).cause, bank(&error).opening.is_none()),
        (Cause::Capacity, true)
    );
}

#[test]
fn pieces_of_enough_bytes_are_fragmentation_and_the_neighbour_is_named() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let (runtime, neighbour) = (open(&machine, THIS), open(&machine, OTHER));
    let first = take(&runtime, 4 * MIB);
    // NC 0 and NC 1 are one logical core.
    let foreign = neighbour.allocate(core(2), &spec(2 * MIB, 0)).unwrap();
    let second = take(&runtime, 4 * MIB);
    let model = runtime.load_model(core(0), "a.neff").unwrap();
    let weights = AllocSpec {
        hint: Some("layer.3"),
        ..AllocSpec::device(2 * MIB - 100, MemUsage::Weight)
    };
    let _weights = model.allocate(&weights).unwrap();
    drop((first, second));

    let error = refused(&runtime, &spec(6 * MIB, 0));

    let found = bank(&error);
    assert_eq!(found.cause, Cause::Fragmentation);
    // Either would do; the neighbour's lies lower.
    let blocks: Vec<Block> = found.opening.as_ref().unwrap().blocks.iter().collect();
    let [block] = &blocks[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (block.owner, block.core),
        (Owner::Other(OTHER), CoreId::new(2))
    );
    assert_eq!(
        (block.span.start(), block.allocation.is_none()),
        (foreign.pa(), true)
    );
    let blocks: Vec<Block> = found.own_opening.as_ref().unwrap().blocks.iter().collect();
    let [own] = &blocks[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (own.name(), own.usage()),
        (Some("layer.3"), Some(MemUsage::Weight))
    );
    assert_eq!((own.model(), own.allocations_since), (Some(model.id()), 0));
    assert_eq!(found.neighbour_bytes(), 2 * MIB);
    assert_eq!(
        (found.charged_bytes, found.rounded_bytes),
        (2 * MIB - 100, 2 * MIB)
    );
}

#[test]
fn a_block_to_free_is_named_with_the_line_that_asked_for_it() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let runtime = open(&machine, THIS);
    let first = take(&runtime, 5 * MIB);
    let line = line!() + 1;
    let _here = runtime.allocate(core(0), &spec(2 * MIB, 0)).unwrap();
    let named = AllocSpec {
        site: Some(glia_runtime::AskedAt::Named("decoder.py:88")),
        ..spec(4 * MIB, 0)
    };
    let _named = runtime.allocate(core(0), &named).unwrap();
    drop(first);

    let site = |error: &RuntimeError| -> String {
        let block = bank(error).opening.as_ref().unwrap().blocks.iter().next();
        block.unwrap().site.unwrap().to_string()
    };
    let error = refused(&runtime, &spec(7 * MIB, 0));
    let place = format!("{}:{line}:", file!());
    assert!(site(&error).starts_with(&place), "{}", site(&error));
    let words = error.explanation().unwrap().words();
    assert!(words.contains(&format!(", from \"{place}")), "{words}");
    // More than the two can be had by freeing both.
    let error = refused(&runtime, &spec(11 * MIB, 0));
    let words = error.explanation().unwrap().words();
    assert!(words.contains(", from \"decoder.py:88\""), "{words}");
}

#[test]
fn holes_at_the_wrong_addresses_want_alignment() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let runtime = open(&machine, THIS);
    let _first = take(&runtime, MIB);
    // 11 MiB are free from 17 MiB on, of which 24 MiB is a multiple of 8.
    let error = refused(&runtime, &spec(5 * MIB, 8 * MIB));
    let found = bank(&error);
    assert_eq!(found.cause, Cause::Alignment);
    assert_eq!(
        (found.largest_hole_bytes, found.largest_fit_bytes),
        (11 * MIB, Some(4 * MIB))
    );
    assert_eq!(error.oom().unwrap().align_bytes, 8 * MIB);
}

#[test]
fn free_bytes_on_both_sides_of_the_border_are_the_wrong_pools() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let runtime = open(&machine, THIS);
    let _most = take(&runtime, 9 * MIB);
    let error = refused(&runtime, &spec(5 * MIB, 0));
    assert_eq!(
        (bank(&error).cause, bank(&error).usable_bytes),
        (Cause::WrongPool, 7 * MIB)
    );
}

#[test]
fn an_alignment_beyond_the_drivers_is_told_as_it_was_asked_for() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let runtime = open(&machine, THIS);
    let error = refused(&runtime, &spec(MIB, 4 << 30));
    let report = error.oom().unwrap();
    assert_eq!((report.asked_bytes, report.align_bytes), (MIB, 4 << 30));
    let found = bank(&error);
    assert_eq!(
        (found.cause, found.needed_bytes),
        (Cause::Capacity, MIB + (4 << 30))
    );
}

/// HBMs of 512 MiB, for pages of 64 MiB.
fn with_pages() -> Machine {
    Machine::new(MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 512 * MIB,
        },
        ..small(Model::Trn2)
    })
    .unwrap()
}

fn reserve(runtime: &Runtime, mib: u64) -> Result<glia_runtime::Model, RuntimeError> {
    let model = runtime.load_model(core(0), "a.neff")?;
    let variable = ScratchVariable {
        offset_bytes: 0,
        size_bytes: mib * MIB,
    };
    model.reserve_scratchpad(&[variable]).map(|_| model)
}

#[test]
fn a_block_at_the_place_of_the_next_scratchpad_page_is_named() {
    let machine = with_pages();
    let log = Arc::new(Kept::default());
    let runtime = try_open(&machine, THIS, &log).unwrap();
    let low = take(&runtime, 350 * MIB);
    let blocks = [take(&runtime, 30 * MIB), take(&runtime, 20 * MIB)];
    drop(low);

    let error = reserve(&runtime, 192).err().unwrap();

    let found = bank(&error);
    assert_eq!(found.cause, Cause::ScratchpadPlace);
    let starts = found
        .opening
        .as_ref()
        .unwrap()
        .blocks
        .iter()
        .map(|block| block.span.start());
    assert_eq!(starts.collect::<Vec<_>>(), blocks.each_ref().map(Dmem::pa));
    let [message] = &log.take()[..] else {
        panic!("one message");
    };
    assert!(
        message.contains("WARN  TDRV:tdrv_scratchpad_reserve"),
        "{message}"
    );
    assert!(message.contains("Why: the next 192.000MB of the contiguous scratchpad"));
    drop(blocks);
    reserve(&runtime, 192).unwrap();
}

#[test]
fn of_scratchpad_pages_freed_out_of_order_those_are_named_that_can_go() {
    let machine = with_pages();
    let runtime = open(&machine, THIS);
    let device = ndl::Device::open(machine.process(OTHER) as Arc<_>, DEVICE).unwrap();
    let page = ChunkSpec {
        size_bytes: 64 * MIB,
        align_bytes: 0,
        location: Location::Device,
        channel: Channel::new(0),
        core: CoreId::new(0),
        category: Category::CONTIGUOUS_SCRATCHPAD_DEVICE,
    };
    let [first, second, third] = [(); 3].map(|()| device.allocate(&page).unwrap());
    device.free(first).unwrap();

    let error = reserve(&runtime, 64).err().unwrap();

    let found = bank(&error);
    assert_eq!(found.cause, Cause::ScratchpadOrder);
    let blocks = found.opening.as_ref().unwrap().blocks.iter();
    let starts: Vec<_> = blocks.map(|block| block.span.start()).collect();
    let at = |handle: McHandle| device.physical_address(handle).unwrap();
    // The second is in the way. A scratchpad gives it back after the third.
    assert_eq!(starts, [at(third), at(second)]);
    let words = error.explanation().unwrap().words();
    assert!(
        words.contains("free 128.000MB in 2 blocks, all pages of the scratchpad:\n"),
        "{words}"
    );
    assert!(
        words.contains(", goes back as pid 8 unloads models;"),
        "{words}"
    );
    device.free(third).unwrap();
    device.free(second).unwrap();
    reserve(&runtime, 64).unwrap();
}

#[test]
fn not_all_pages_of_the_scratchpad_are_said_to_be_all() {
    let machine = with_pages();
    let first = open(&machine, Pid::new(20));
    let first_page = reserve(&first, 64).unwrap();
    let (second, third) = (open(&machine, OTHER), open(&machine, Pid::new(21)));
    let (second_page, third_page) = (reserve(&second, 64).unwrap(), reserve(&third, 64).unwrap());
    drop(second_page);

    let error = reserve(&open(&machine, THIS), 64).err().unwrap();

    let found = bank(&error);
    assert_eq!(
        (found.cause, found.scratchpad_pages),
        (Cause::ScratchpadOrder, 2)
    );
    let words = error.explanation().unwrap().words();
    assert!(
        words.contains("to make room: free 64.000MB in 1 block, which is enough:\n"),
        "{words}"
    );
    assert!(words.contains(", pid 21, NC 0: "), "{words}");
    drop(third_page);
    reserve(&open(&machine, THIS), 64).unwrap();
    drop(first_page);
}

/// A machine whose HBMs have 3,604 MiB in their main pools, room for seven pages of 512 MiB, and a
/// process that may have a scratchpad.
fn with_scratchpad(contiguous_scratchpad: bool) -> (Machine, Runtime, Arc<Kept>) {
    let machine = Machine::new(MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 4096 * MIB,
        },
        params: ModuleParams {
            mempool_small_pool_size: 476 * MIB,
            ..ModuleParams::default()
        },
        ..MachineConfig::new(Model::Trn2)
    });
    let (machine, log) = (machine.unwrap(), Arc::default());
    let runtime = try_open_with(&machine, THIS, &log, contiguous_scratchpad).unwrap();
    (machine, runtime, log)
}

/// Reserves variables of 512 MiB at most, none of which needs a block of its own.
fn reserve_pages(runtime: &Runtime, mib: u64) -> Result<glia_runtime::Model, RuntimeError> {
    let model = runtime.load_model(core(0), "a.neff")?;
    let offsets = (0..mib).step_by(512);
    let variables = offsets.map(|offset_mib| ScratchVariable {
        offset_bytes: offset_mib * MIB,
        size_bytes: (mib - offset_mib).min(512) * MIB,
    });
    let variables: Vec<ScratchVariable> = variables.collect();
    model.reserve_scratchpad(&variables).map(|_| model)
}

/// Where the blocks lie that are to be freed.
fn named(error: &RuntimeError) -> Vec<BusAddr> {
    let opening = bank(error).opening.as_ref().unwrap();
    opening
        .blocks
        .iter()
        .map(|block| block.span.start())
        .collect()
}

#[test]
fn a_reservation_without_room_names_none_of_the_pages_that_it_had_got() {
    let (_machine, runtime, log) = with_scratchpad(false);
    // Two pages fit behind the tensors. Two more fit into 1,200 MiB, and no fewer bytes do.
    let tensors = [300, 900, 400, 860].map(|mib| take(&runtime, mib * MIB));

    let error = reserve_pages(&runtime, 2048).err().unwrap();

    let found = bank(&error);
    assert_eq!(found.cause, Cause::WrongBank);
    assert_eq!((found.whole_blocks, found.whole_bytes), (4, 2048 * MIB));
    assert_eq!(
        found.holders[0].bytes,
        2460 * MIB,
        "what is there afterwards"
    );
    assert_eq!(named(&error), [tensors[0].pa(), tensors[1].pa()]);
    let report = error.oom().unwrap();
    assert_eq!(
        report.table.core(CoreId::new(0)).unwrap().present.total(),
        2460 * MIB
    );
    let [message] = &log.take()[..] else {
        panic!("one message");
    };
    assert!(
        message.contains("2.000GB in 4 blocks are needed"),
        "{message}"
    );
    let [first, second, _third, _last] = tensors;
    drop(first);
    reserve_pages(&runtime, 2048).err().unwrap();
    drop(second);
    reserve_pages(&runtime, 2048).unwrap();
}

#[test]
fn a_contiguous_reservation_without_room_names_all_that_lies_in_its_run() {
    let (_machine, runtime, _) = with_scratchpad(true);
    let low = take(&runtime, 3348 * MIB);
    let tensors = [(); 3].map(|()| take(&runtime, 64 * MIB));
    drop(low);
    // The first page fits above the tensors.
    let error = reserve(&runtime, 256).err().unwrap();
    let found = bank(&error);
    assert_eq!(found.cause, Cause::ScratchpadPlace);
    assert_eq!(found.request.asked_bytes, 256 * MIB);
    assert_eq!(named(&error), tensors.each_ref().map(Dmem::pa));
    drop(tensors);
    reserve(&runtime, 256).unwrap();
}

/// Does what an explanation says: unloads models, and frees blocks.
fn carry_out(
    opening: &Opening,
    models: &mut Vec<glia_runtime::Model>,
    live: &mut BTreeMap<BusAddr, Dmem>,
) {
    let is_named =
        |model: Option<ModelId>| opening.unloads.iter().any(|one| Some(one.model) == model);
    for block in opening.blocks.iter() {
        let is_with_models = block.goes_with_models || is_named(block.model());
        let freed = live.remove(&block.span.start());
        assert!(is_with_models || freed.is_some(), "{block:?}");
    }
    let before = models.len();
    models.retain(|model| !is_named(Some(model.id())));
    assert_eq!(before - models.len(), opening.unloads.len());
}

/// Models hold some of the scratchpad and tensors the rest; what a reservation that has no room names
/// is freed, and nothing else.
fn free_what_a_reservation_names(
    contiguous_scratchpad: bool,
    sizes: &[(u64, bool)],
    held_mib: u64,
    wanted: &[(u64, u64)],
) {
    let (machine, runtime, _) = with_scratchpad(contiguous_scratchpad);
    let mut held = vec![reserve_pages(&runtime, held_mib).unwrap()];
    let mut live = BTreeMap::new();
    let mut dead = Vec::new();
    for &(mib, is_kept) in sizes {
        match runtime.allocate(core(0), &spec(mib * MIB, 0)) {
            Ok(block) if is_kept => drop(live.insert(block.pa(), block)),
            Ok(block) => dead.push(block),
            Err(_) => {}
        }
    }
    drop(dead);
    let variables = wanted
        .iter()
        .map(|&(offset_mib, size_mib)| ScratchVariable {
            offset_bytes: offset_mib * MIB,
            size_bytes: size_mib * MIB,
        });
    let variables: Vec<ScratchVariable> = variables.collect();
    let model = runtime.load_model(core(0), "b.neff").unwrap();
    let free_bytes = || -> u64 {
        let pools = machine.process(THIS).insight(DEVICE).unwrap();
        pools.channels[0]
            .free
            .iter()
            .map(|hole| hole.size_bytes())
            .sum()
    };
    let before = free_bytes();
    let Err(error) = model.reserve_scratchpad(&variables) else {
        return;
    };
    assert_eq!(free_bytes(), before, "nothing is left of it");
    let found = bank(&error);
    assert_ne!(found.cause, Cause::Passing, "{found:?}");
    let Some(opening) = &found.opening else {
        // Not with everything freed, and never if that is said.
        live.clear();
        assert!(model.reserve_scratchpad(&variables).is_err());
        if found.is_never {
            held.clear();
            assert!(model.reserve_scratchpad(&variables).is_err());
        }
        return;
    };
    carry_out(opening, &mut held, &mut live);
    assert_eq!(free_bytes(), before + opening.freed_bytes);
    model.reserve_scratchpad(&variables).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn freeing_what_a_reservation_names_lets_the_same_reservation_succeed(
        contiguous in any::<bool>(),
        sizes in proptest::collection::vec((40..700_u64, any::<bool>()), 4..24),
        held_mib in 1..1100_u64,
        wanted in proptest::collection::vec((0..2000_u64, 1..900_u64), 1..4),
    ) {
        free_what_a_reservation_names(contiguous, &sizes, held_mib, &wanted);
    }
}

#[test]
fn a_page_that_only_its_model_gives_back_is_not_named_alone() {
    let (_machine, runtime, _) = with_scratchpad(false);
    let model = reserve_pages(&runtime, 2048).unwrap();
    // A model that needs only the first page has come and gone.
    drop(reserve_pages(&runtime, 512).unwrap());
    let tensors = [1000, 556, 476].map(|mib| take(&runtime, mib * MIB));

    // A page alone would be less than the second tensor; the model gives back four.
    let error = refused(&runtime, &spec(500 * MIB, 0));
    assert_eq!(named(&error), [tensors[1].pa()]);
    assert!(bank(&error).opening.as_ref().unwrap().is_least);

    let error = refused(&runtime, &spec(1500 * MIB, 0));
    let found = bank(&error);
    let opening = found.opening.as_ref().unwrap();
    let models: Vec<ModelId> = opening.unloads.iter().map(|one| one.model).collect();
    // The two tensors in the main pool have 1,556 MiB.
    assert_eq!((models, opening.freed_bytes), (vec![], 1556 * MIB));
    let error = refused(&runtime, &spec(1600 * MIB, 0));
    let words = error.explanation().unwrap().words();
    let unload = format!(
        "  to make room: unload NEFF {} \"a.neff\": 2.000GB in 4 blocks, the least that helps:\n",
        model.id()
    );
    assert!(words.contains(&unload), "{words}");
    drop(model);
    take(&runtime, 1600 * MIB);
}

/// Models with pages, private blocks and weights fill an HBM together with tensors; what is named for
/// a tensor that is refused is carried out, and is exactly what comes free.
fn free_what_is_named_beside_models(
    contiguous_scratchpad: bool,
    loads: &[(Vec<(u64, u64)>, u64)],
    sizes: &[(u64, bool)],
    wants: &[(u64, u32)],
) {
    let (machine, runtime, _) = with_scratchpad(contiguous_scratchpad);
    let (mut models, mut live) = (Vec::new(), BTreeMap::new());
    let mut dead = Vec::new();
    for (variables, weight_mib) in loads {
        let model = runtime.load_model(core(0), "a.neff").unwrap();
        let variables = variables.iter();
        let variables = variables.map(|&(offset_mib, size_mib)| ScratchVariable {
            offset_bytes: offset_mib * MIB,
            size_bytes: size_mib * MIB,
        });
        let variables: Vec<ScratchVariable> = variables.collect();
        let _ = model.reserve_scratchpad(&variables);
        if let Ok(weight) = model.allocate(&spec(weight_mib * MIB, 0)) {
            live.insert(weight.pa(), weight);
        }
        models.push(model);
        for &(mib, is_kept) in sizes {
            match runtime.allocate(core(0), &spec(mib * MIB, 0)) {
                Ok(block) if is_kept => drop(live.insert(block.pa(), block)),
                Ok(block) => dead.push(block),
                Err(_) => {}
            }
        }
    }
    drop(dead);
    let free_bytes = || -> u64 {
        let pools = machine.process(THIS).insight(DEVICE).unwrap();
        let holes = pools.channels[0].free.iter();
        holes.map(|hole| hole.size_bytes()).sum()
    };
    for &(mib, align_bits) in wants {
        let wanted = spec(mib * MIB, 1 << align_bits);
        let Err(error) = runtime.allocate(core(0), &wanted) else {
            continue;
        };
        let found = bank(&error);
        let Some(opening) = &found.opening else {
            assert!(found.is_never && found.most_bytes.unwrap() < found.needed_bytes);
            continue;
        };
        let before = free_bytes();
        carry_out(opening, &mut models, &mut live);
        assert_eq!(free_bytes(), before + opening.freed_bytes, "{found:?}");
        let block = runtime.allocate(core(0), &wanted).unwrap();
        live.insert(block.pa(), block);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_named_beside_models_can_be_carried_out_and_helps(
        contiguous in any::<bool>(),
        loads in proptest::collection::vec(
            (proptest::collection::vec((0..1200_u64, 1..700_u64), 1..4), 1..300_u64),
            1..4,
        ),
        sizes in proptest::collection::vec((40..700_u64, any::<bool>()), 1..6),
        wants in proptest::collection::vec((30..2500_u64, 0..28_u32), 1..5),
    ) {
        free_what_is_named_beside_models(contiguous, &loads, &sizes, &wants);
    }
}

#[test]
fn what_is_said_to_fit_does_even_if_the_runtime_aligns_by_itself() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let runtime = open(&machine, THIS);
    // The driver does not know this alignment. From now on the runtime aligns.
    let error = refused(&runtime, &spec(MIB, 4 << 30));
    assert_eq!(
        (bank(&error).largest_fit_bytes, bank(&error).is_never),
        (Some(0), true)
    );
    let _half = take(&runtime, 5 * MIB);

    let error = refused(&runtime, &spec(7 * MIB, MIB));
    let found = bank(&error);
    // Of a hole of 7 MiB, and once all is free of 12.
    assert_eq!(
        (found.largest_fit_bytes, found.most_bytes),
        (Some(6 * MIB), Some(11 * MIB))
    );
    let words = error.explanation().unwrap().words();
    assert!(
        words.contains("fits here:    up to 6.000MB without freeing anything at this alignment\n"),
        "{words}"
    );
    refused(&runtime, &spec(6 * MIB + 4096, MIB));
    let most = runtime.allocate(core(0), &spec(6 * MIB, MIB)).unwrap();
    assert_eq!(most.pa().get() % MIB, 0);

    drop(most);
    let error = refused(&runtime, &spec(11 * MIB + 4096, MIB));
    assert!(bank(&error).is_never && bank(&error).opening.is_none());
    let error = refused(&runtime, &spec(11 * MIB, MIB));
    assert!(!bank(&error).is_never && bank(&error).opening.is_some());
}

#[test]
fn what_is_larger_than_the_bank_or_its_main_pool_is_said_to_be_too_large() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let runtime = open(&machine, THIS);
    for (size_bytes, needed) in [
        (12 * MIB + 1, "12.004MB"),
        (14 * MIB, "14.000MB"),
        (40 * MIB, "40.000MB"),
    ] {
        let error = refused(&runtime, &spec(size_bytes, 0));
        let found = bank(&error);
        assert_eq!((found.cause, found.is_never), (Cause::Capacity, true));
        let words = error.explanation().unwrap().words();
        let why = format!(
            "Why: nd 0 HBM 0 is too small for this. {needed} are needed; even with everything freed that can be, no block of more than 12.000MB has room.\n"
        );
        assert!(words.starts_with(&why), "{words}");
        assert!(words.contains("  to make room: freeing does not help; ask for less at once\n"));
    }
}

#[test]
fn a_reservation_that_is_larger_than_the_bank_is_said_to_be_too_large() {
    for (is_contiguous, why) in [
        (
            false,
            "4.000GB in 8 blocks are needed; even with everything freed that can be, only 7 of them have room.",
        ),
        (
            true,
            "4.000GB of contiguous scratchpad are needed; even with everything freed that can be, there is room for 3.520GB.",
        ),
    ] {
        let (_machine, runtime, log) = with_scratchpad(is_contiguous);
        let _tensor = take(&runtime, 600 * MIB);
        let error = reserve_pages(&runtime, 4096).err().unwrap();
        let found = bank(&error);
        assert_eq!((found.cause, found.is_never), (Cause::Capacity, true));
        let text = log.take().concat();
        let why = format!("Why: nd 0 HBM 0 is too small for this. {why}\n");
        assert!(text.contains(&why), "{text}");
        assert!(text.contains("  to make room: freeing does not help; reserve less\n"));
    }
}

#[test]
fn sizes_that_read_alike_are_told_with_their_bytes() {
    let (_machine, runtime, _) = with_scratchpad(false);
    let low = take(&runtime, 1024 * MIB);
    let _high = take(&runtime, 2580 * MIB);
    drop(low);
    let error = refused(&runtime, &spec(1024 * MIB + 4096, 0));
    assert_eq!(bank(&error).cause, Cause::WrongPool);
    let words = error.explanation().unwrap().words();
    assert!(
        words.contains("1.000GB (1073745920 bytes) are needed; 1.000GB (1073741824 bytes) are free in the main pool, 476.000MB in the small one."),
        "{words}"
    );
}

#[test]
fn host_memory_is_told_apart_and_its_holders_are_named() {
    let host = HostConfig {
        arena_size_bytes: 256 * MIB,
        ..HostConfig::default()
    };
    let machine = Machine::new(MachineConfig {
        host,
        ..small(Model::Trn1)
    })
    .unwrap();
    let log = Arc::new(Kept::default());
    let runtime = try_open(&machine, THIS, &log).unwrap();
    let on_host = |size_bytes| AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(size_bytes, MemUsage::Generic)
    };
    let _held = runtime.allocate(core(0), &on_host(64 * MIB)).unwrap();

    let error = refused(&runtime, &on_host(200 * MIB));

    let Some(Explanation::Host(found)) = error.explanation() else {
        panic!("{error:?}");
    };
    assert_eq!(found.asked_bytes, 200 * MIB);
    // With the copy buffers of two cores.
    assert_eq!(
        (found.holders[0].owner, found.holders[0].bytes),
        (Owner::This, 68 * MIB)
    );
    assert_eq!(
        found.held_bytes,
        found.holders.iter().map(|share| share.bytes).sum::<u64>()
    );
    assert_eq!(found.reserve_largest_bytes(), 2 * MIB);
    let [message] = &log.take()[..] else {
        panic!("one message");
    };
    assert!(
        message.contains("Failed to allocate HOST memory"),
        "{message}"
    );
    assert!(message.contains("Why: the host has no 200.000MB in one piece"));
}

/// One kind of thing fails while it is armed.
struct Failing(FaultPoint, AtomicU32);

impl Faults for Failing {
    fn is_armed(&self) -> bool {
        self.1.load(Ordering::Relaxed) > 0
    }

    fn strikes(&self, point: FaultPoint) -> bool {
        self.is_armed() && point == self.0
    }
}

fn failing(point: FaultPoint) -> (Machine, Arc<Failing>) {
    let faults = Arc::new(Failing(point, AtomicU32::new(0)));
    let machine = Machine::new(MachineConfig {
        faults: Arc::clone(&faults) as _,
        ..small(Model::Trn2)
    });
    (machine.unwrap(), faults)
}

#[test]
fn a_handle_table_that_goes_down_is_no_want_of_memory() {
    let (machine, faults) = failing(FaultPoint::HandleCell);
    let log = Arc::new(Kept::default());
    let runtime = try_open(&machine, THIS, &log).unwrap();
    let _live = take(&runtime, MIB);
    faults.1.store(1, Ordering::Relaxed);

    let error = refused(&runtime, &spec(MIB, 0));

    let Some(Explanation::Handles(found)) = error.explanation() else {
        panic!("{error:?}");
    };
    assert!(found.is_down);
    assert_eq!(found.handles_max, 4_194_302);
    // The tensor, and a copy buffer for each core.
    assert_eq!(
        (found.holders[0].owner, found.holders[0].blocks),
        (Owner::This, 9)
    );
    assert!(log.take()[0].contains("Why: the handle table of nd 0 is down."));
}

#[test]
fn the_seventeenth_process_is_told_who_has_the_slots() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let first = open(&machine, THIS);
    let _tensor = take(&first, 3 * MIB);
    let others: Vec<_> = (20..35).map(|pid| machine.process(Pid::new(pid))).collect();
    for process in &others {
        process
            .open(DEVICE, glia_abi::transport::OpenMode::ReadWrite)
            .unwrap();
    }
    let log = Arc::new(Kept::default());

    let error = try_open(&machine, Pid::new(99), &log).err().unwrap();

    let Some(Explanation::Slots(found)) = error.explanation() else {
        panic!("{error:?}");
    };
    assert_eq!((found.slots, found.holders.len()), (16, 16));
    let holder = found.holders[0];
    assert_eq!((holder.process.pid, holder.device_bytes), (THIS, 3 * MIB));
    assert_eq!(holder.host_bytes, 16 * MIB);
    let text = log.take().concat();
    assert!(
        text.contains("Why: all 16 attach slots of nd 0 are taken"),
        "{text}"
    );
    assert_eq!(error.status().name(), "NRT_FAILURE");
}

#[test]
fn a_refusal_for_another_reason_does_not_blame_memory() {
    let (machine, faults) = failing(FaultPoint::ChunkRecord);
    let runtime = open(&machine, THIS);
    faults.1.store(1, Ordering::Relaxed);
    let error = refused(&runtime, &spec(MIB, 0));
    assert_eq!(bank(&error).cause, Cause::Passing);
    faults.1.store(0, Ordering::Relaxed);
    let error = refused(&runtime, &spec(0, 0));
    assert_eq!(bank(&error).cause, Cause::ZeroSize);
}

#[test]
fn who_does_not_want_to_know_is_not_told() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let config = RuntimeConfig {
        explain_oom: false,
        ..RuntimeConfig::default()
    };
    let runtime = Runtime::open(machine.process(THIS) as Arc<_>, &[DEVICE], config).unwrap();
    let error = refused(&runtime, &spec(64 * MIB, 0));
    assert!(error.oom().is_some() && error.explanation().is_none());
}

/// The report and why are one message, and the report reads as before.
#[test]
fn a_log_with_explanations_is_read_like_one_without() {
    let machine = Machine::new(small(Model::Trn2)).unwrap();
    let log = Arc::new(Kept::default());
    let runtime = try_open(&machine, THIS, &log).unwrap();
    let blocks: Vec<Dmem> = (0..12).map(|_| take(&runtime, MIB)).collect();
    let _kept: Vec<&Dmem> = blocks.iter().collect();
    let error = refused(&runtime, &spec(9 * MIB, 2 * MIB));

    let [message] = &log.take()[..] else {
        panic!("one message");
    };
    let words = error.explanation().unwrap().words();
    assert!(message.ends_with(&words), "{message}");
    assert!(words.lines().count() <= 20);
    let read = |text: &str| {
        let mut reports = Vec::new();
        let (file, read) = explain(text.as_bytes(), "log", |report| {
            reports.push(report);
            Ok(())
        });
        read.unwrap();
        assert!(file.unread.is_empty(), "{:?}", file.unread);
        reports
    };
    let without = &message[..message.find("explain_dev_mem").unwrap()];
    let without = &without[..=without.rfind('\n').unwrap()];
    let (with, without) = (read(message), read(without));
    assert_eq!((with.len(), with[0].unread.len()), (1, 0));
    assert_eq!(with, without);
    // A second failure behind it is a report of its own.
    let _ = refused(&runtime, &spec(9 * MIB, 0));
    let two = format!("{message}{}", log.take()[0]);
    assert_eq!(read(&two).len(), 2);
}

/// Two processes fill HBM 0 in some order and leave holes; a request that is refused then succeeds
/// once what the explanation names is freed, and nothing else.
fn free_what_is_named(model: Model, sizes: &[(u64, bool, bool)], wants: &[(u64, u32)]) {
    let machine = Machine::new(small(model)).unwrap();
    let both = [open(&machine, THIS), open(&machine, OTHER)];
    let mut live = BTreeMap::new();
    let mut dead = Vec::new();
    for &(pages, is_foreign, is_kept) in sizes {
        let runtime = &both[usize::from(is_foreign)];
        match runtime.allocate(core(0), &spec(pages * 16 * KIB, 0)) {
            Ok(block) if is_kept => drop(live.insert(block.pa(), block)),
            Ok(block) => dead.push(block),
            Err(_) => {}
        }
    }
    drop(dead);
    for &(pages, align_bits) in wants {
        let wanted = spec(pages * 16 * KIB, 1 << align_bits);
        let Err(error) = both[0].allocate(core(0), &wanted) else {
            continue;
        };
        let found = bank(&error);
        let driver = machine.driver().memory(DEVICE).unwrap();
        let largest = driver.largest_aligned_fit(Channel::new(0), 1 << align_bits);
        assert_eq!(found.largest_fit_bytes, Some(largest));
        let Some(opening) = &found.opening else {
            assert!(found.most_bytes.unwrap() < found.needed_bytes);
            continue;
        };
        for block in opening.blocks.iter() {
            let freed = live.remove(&block.span.start()).unwrap();
            assert_eq!(
                freed.size_bytes().next_multiple_of(4096),
                block.span.size_bytes()
            );
        }
        let block = both[0].allocate(core(0), &wanted).unwrap();
        live.insert(block.pa(), block);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn freeing_exactly_what_is_named_lets_the_same_request_succeed(
        model in proptest::sample::select(&Model::ALL[..]),
        sizes in proptest::collection::vec((1..80_u64, any::<bool>(), any::<bool>()), 20..80),
        wants in proptest::collection::vec((1..700_u64, 0..23_u32), 1..12),
    ) {
        free_what_is_named(model, &sizes, &wants);
    }
}
