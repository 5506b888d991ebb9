//! Allocations: what the driver is asked, what its refusals become, who gives what back.

use std::sync::{Arc, Mutex};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::ioctl;
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::transport::Transport;
use glia_abi::usage::Counter;
use glia_runtime::dmem::GcList;
use glia_runtime::dml::Action;
use glia_runtime::{AllocSpec, Core, Placement, Runtime, RuntimeConfig, RuntimeError, Tensor};
use proptest::prelude::*;

use crate::fake::{Command, DEVICE, Fake, core, open, open_with};

/// One for each core of V3.
const COPY_BUFFERS: usize = 8;

fn status(result: Result<impl Sized, RuntimeError>) -> NrtStatus {
    result.err().unwrap().status()
}

fn try_open(fake: &Arc<Fake>, device: u32) -> Result<Runtime, RuntimeError> {
    let transport = Arc::clone(fake) as Arc<dyn Transport>;
    Runtime::open(
        transport,
        &[DeviceId::new(device)],
        RuntimeConfig::default(),
    )
}

#[test]
fn a_device_has_a_copy_buffer_for_each_core_until_it_is_closed() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    assert_eq!(fake.chunks(true), [(2 << 20, 5); COPY_BUFFERS]);
    assert_eq!(fake.state().open.len(), 2);
    drop(runtime);
    assert_eq!(fake.live_chunks(), 0);
    assert_eq!(fake.state().open, []);
}

#[test]
fn a_driver_that_does_not_fit_is_refused_and_everything_closed() {
    let new = Fake::new(Arch::V3);
    new.state().version_min = 12;
    assert_eq!(
        try_open(&new, 0).err().unwrap().to_string(),
        "nd 0: this runtime speaks version 11, the driver 12 to 11"
    );
    let full = Fake::new(Arch::V3);
    full.fail(ioctl::MEM_ALLOC_V2MT64, 5, Errno::ENOMEM);
    assert_eq!(status(try_open(&full, 0)), NrtStatus::Failure);
    let unmapped = Fake::new(Arch::V3);
    unmapped.fail(ioctl::MEM_GET_INFO, 3, Errno::EINVAL);
    assert_eq!(status(try_open(&unmapped, 0)), NrtStatus::Failure);
    assert_eq!(status(try_open(&unmapped, 1)), NrtStatus::Failure);

    for fake in [new, full, unmapped] {
        assert_eq!(fake.live_chunks(), 0);
        assert_eq!(fake.state().open, []);
    }
}

#[test]
fn usage_and_location_become_the_drivers_category() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let allocate = |location, usage, channel| {
        let spec = AllocSpec {
            location,
            channel,
            ..AllocSpec::device(100, usage)
        };
        runtime.allocate(core(7), &spec).unwrap()
    };
    let _live = [
        allocate(Location::Device, MemUsage::Weight, None),
        allocate(Location::Device, MemUsage::Cc, Some(Channel::new(0))),
        allocate(Location::Host, MemUsage::DmaRing, None),
    ];
    assert_eq!(fake.chunks(false), [(4096, 10), (4096, 14)]);
    assert_eq!(fake.chunks(true)[COPY_BUFFERS..], [(4096, 17)]);
    let table = runtime.usage(DEVICE).unwrap();
    let present = |bank: usize| table.banks[bank].present_bytes;
    assert_eq!((present(0), present(3)), (100, 100));
    assert_eq!(table.core(CoreId::new(7)).unwrap().present.total(), 200);
}

#[test]
fn usages_that_may_not_be_on_the_host_are_refused() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    for usage in MemUsage::ALL {
        let spec = AllocSpec {
            location: Location::Host,
            ..AllocSpec::device(1, usage)
        };
        let refused = runtime.allocate(core(0), &spec).is_err();
        let never = [
            MemUsage::Scratchpad,
            MemUsage::Cc,
            MemUsage::ScratchpadNotShared,
        ];
        assert_eq!(refused, never.contains(&usage), "{usage}");
    }
    assert_eq!(fake.live_chunks(), COPY_BUFFERS);
    let lines = log.take();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].ends_with("Invalid mem_usage_type 11 for host\n"),
        "{}",
        lines[0]
    );
}

#[test]
fn places_that_do_not_exist_are_invalid() {
    let fake = Fake::new(Arch::V2);
    let (runtime, _) = open(&fake);
    let spec = AllocSpec::device(1, MemUsage::Tensor);
    let elsewhere = Core {
        device: DeviceId::new(1),
        core: CoreId::new(0),
    };
    assert_eq!(
        status(runtime.allocate(elsewhere, &spec)),
        NrtStatus::Invalid
    );
    let error = runtime.allocate(core(2), &spec).err().unwrap();
    assert_eq!(
        error.to_string(),
        "nd 0 has no core 2: its cores are 0 to 1"
    );
    assert_eq!(status(runtime.load_model(core(2), "m")), NrtStatus::Invalid);
    let spec = AllocSpec {
        channel: Some(Channel::new(2)),
        ..spec
    };
    assert_eq!(status(runtime.allocate(core(0), &spec)), NrtStatus::Invalid);
}

#[test]
fn refusals_of_the_driver_become_statuses_and_leave_nothing() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let device = AllocSpec::device(4096, MemUsage::Tensor);
    let host = AllocSpec {
        location: Location::Host,
        ..device
    };
    let refuse = |spec: &AllocSpec<'_>, word, errno| {
        fake.fail(word, 0, errno);
        let error = runtime.allocate(core(0), spec).err().unwrap();
        assert_eq!(fake.live_chunks(), COPY_BUFFERS);
        (error.status(), error.oom().is_some(), log.take().len())
    };
    let alloc = ioctl::MEM_ALLOC_V2MT64;
    assert_eq!(
        refuse(&device, alloc, Errno::ENOMEM),
        (NrtStatus::Resource, true, 1)
    );
    assert_eq!(
        refuse(&host, alloc, Errno::ENOMEM),
        (NrtStatus::FailHostMemAlloc, false, 1)
    );
    assert_eq!(
        refuse(&device, alloc, Errno::EINVAL),
        (NrtStatus::Failure, false, 0)
    );
    assert_eq!(
        refuse(&device, ioctl::MEM_GET_PA, Errno::EINVAL),
        (NrtStatus::Failure, false, 0)
    );
}

#[test]
fn memory_begins_with_the_value_that_the_runtime_is_told() {
    let fake = Fake::new(Arch::V3);
    let config = RuntimeConfig {
        hbm_init_value: Some(0xa5),
        ..RuntimeConfig::default()
    };
    let (runtime, _) = open_with(&fake, config);
    let spec = AllocSpec::device(5000, MemUsage::Tensor);
    let dmem = runtime.allocate(core(0), &spec).unwrap();
    let host = AllocSpec {
        location: Location::Host,
        ..spec
    };
    let host = runtime.allocate(core(0), &host).unwrap();
    let nothing = AllocSpec::device(0, MemUsage::Tensor);
    runtime.allocate(core(0), &nothing).unwrap();

    let fill = Command::Fill {
        offset: 0,
        size: 5000,
        value: 0xa5,
    };
    assert_eq!(fake.take_commands(), [fill]);
    let (mut first, mut last, mut of_host) = ([0], [0], [1]);
    dmem.read(0, &mut first).unwrap();
    dmem.read(4999, &mut last).unwrap();
    host.read(0, &mut of_host).unwrap();
    assert_eq!((first, last, of_host), ([0xa5], [0xa5], [0]));

    let live = fake.live_chunks();
    fake.fail(ioctl::MEMSET64, 0, Errno::EIO);
    assert_eq!(status(runtime.allocate(core(0), &spec)), NrtStatus::Failure);
    assert_eq!(fake.live_chunks(), live);
}

#[test]
fn an_alignment_is_the_drivers_affair() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let spec = AllocSpec {
        align_bytes: 64 << 10,
        ..AllocSpec::device(5000, MemUsage::Tensor)
    };
    let dmem = runtime.allocate(core(0), &spec).unwrap();
    assert_eq!(dmem.pa().get() % (64 << 10), 0);
    assert_eq!(dmem.facts().align_offset_bytes, 0);
    assert_eq!(dmem.facts().allocated_bytes, 5000);
}

#[test]
fn a_driver_without_alignment_is_asked_for_more_from_then_on() {
    const ALIGN: u64 = 64 << 10;
    let fake = Fake::new(Arch::V3);
    fake.state().knows_alignment = false;
    let (runtime, log) = open(&fake);
    let spec = AllocSpec {
        align_bytes: ALIGN,
        ..AllocSpec::device(5000, MemUsage::Tensor)
    };
    let first = runtime.allocate(core(0), &spec).unwrap();
    // The driver has learnt; the runtime does not ask again.
    fake.state().knows_alignment = true;
    let second = runtime.allocate(core(1), &spec).unwrap();

    for dmem in [&first, &second] {
        assert_eq!(dmem.pa().get() % ALIGN, 0);
        assert_eq!(dmem.size_bytes(), 5000);
        assert_eq!(dmem.facts().allocated_bytes, 5000 + ALIGN);
        let offset = dmem.facts().align_offset_bytes;
        assert!((1..=ALIGN).contains(&offset), "{offset}");
        dmem.write(4999, &[7]).unwrap();
    }
    let warnings = log.take();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("  WARN  TDRV:dmem_alloc_aligned"),
        "{}",
        warnings[0]
    );
}

#[test]
fn what_the_driver_refuses_without_an_alignment_too_says_nothing_about_alignments() {
    let spec = AllocSpec {
        align_bytes: 64 << 10,
        ..AllocSpec::device(5000, MemUsage::Tensor)
    };
    for errno in [Errno::ENOENT, Errno::EIO, Errno::EINVAL] {
        let fake = Fake::new(Arch::V3);
        let (runtime, log) = open(&fake);
        for nth in [0, 1] {
            fake.fail(ioctl::MEM_ALLOC_V2MT64, nth, errno);
        }
        let error = runtime.allocate(core(0), &spec).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!("nd 0: MEM_ALLOC_V2MT64 answered {errno}")
        );
        assert_eq!(log.take(), [""; 0]);
        // The driver is still asked for aligned blocks.
        let next = runtime.allocate(core(0), &spec).unwrap();
        assert_eq!(next.facts().allocated_bytes, 5000);
    }
}

#[test]
fn another_answer_without_an_alignment_means_that_the_driver_aligns_nothing() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let spec = AllocSpec {
        align_bytes: 64 << 10,
        ..AllocSpec::device(5000, MemUsage::Tensor)
    };
    fake.fail(ioctl::MEM_ALLOC_V2MT64, 0, Errno::EINVAL);
    fake.fail(ioctl::MEM_ALLOC_V2MT64, 1, Errno::ENOMEM);
    assert_eq!(
        status(runtime.allocate(core(0), &spec)),
        NrtStatus::Resource
    );
    let lines = log.take();
    assert!(
        lines[0].contains("  WARN  TDRV:dmem_alloc_aligned"),
        "{}",
        lines[0]
    );
    let next = runtime.allocate(core(0), &spec).unwrap();
    assert_eq!(next.facts().allocated_bytes, 5000 + (64 << 10));
}

#[test]
fn a_fill_of_new_memory_that_fails_is_told_once_and_is_no_want_of_memory() {
    for errno in [Errno::EIO, Errno::EINVAL, Errno::ENOENT, Errno::ENOMEM] {
        let fake = Fake::new(Arch::V3);
        let config = RuntimeConfig {
            hbm_init_value: Some(0xa5),
            ..RuntimeConfig::default()
        };
        let (runtime, log) = open_with(&fake, config);
        let spec = AllocSpec {
            align_bytes: 64 << 10,
            ..AllocSpec::device(5000, MemUsage::Tensor)
        };
        fake.fail(ioctl::MEMSET64, 0, errno);
        let error = runtime.allocate(core(0), &spec).err().unwrap();
        assert_eq!(error.status(), NrtStatus::Failure);
        assert_eq!(
            error.to_string(),
            format!("nd 0: MEMSET64 answered {errno}")
        );
        assert_eq!(log.take(), [""; 0]);
        assert_eq!(fake.live_chunks(), COPY_BUFFERS);
        let next = runtime.allocate(core(0), &spec).unwrap();
        assert_eq!(next.facts().allocated_bytes, 5000);
    }
}

#[test]
fn host_memory_is_aligned_by_the_runtime_and_says_nothing_about_the_driver() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let on_device = AllocSpec {
        align_bytes: 64 << 10,
        ..AllocSpec::device(5000, MemUsage::Tensor)
    };
    let on_host = AllocSpec {
        location: Location::Host,
        ..on_device
    };
    let host = runtime.allocate(core(0), &on_host).unwrap();
    let device = runtime.allocate(core(0), &on_device).unwrap();

    assert_eq!(host.pa().get() % (64 << 10), 0);
    assert_eq!(host.facts().allocated_bytes, 5000 + (64 << 10));
    host.write(4999, &[7]).unwrap();
    assert_eq!(device.facts().align_offset_bytes, 0);
    assert_eq!(log.take(), [""; 0]);
}

#[test]
fn an_aligned_block_gives_away_a_whole_step_when_the_runtime_aligns() {
    let fake = Fake::new(Arch::V3);
    fake.state().knows_alignment = false;
    let (runtime, _) = open(&fake);
    let spec = AllocSpec {
        align_bytes: 4096,
        ..AllocSpec::device(4096, MemUsage::Tensor)
    };
    let dmem = runtime.allocate(core(0), &spec).unwrap();
    assert_eq!(dmem.facts().align_offset_bytes, 4096);
    dmem.write(0, &[1; 4096]).unwrap();
}

#[test]
fn want_of_memory_never_falls_back_to_aligning_in_the_runtime() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    fake.fail(ioctl::MEM_ALLOC_V2MT64, 0, Errno::ENOMEM);
    let spec = AllocSpec {
        align_bytes: 4 << 20,
        ..AllocSpec::device(4096, MemUsage::Tensor)
    };
    let error = runtime.allocate(core(0), &spec).err().unwrap();
    assert_eq!(error.oom().unwrap().align_bytes, 4 << 20);
    assert_eq!(log.take().len(), 1);
    runtime.allocate(core(0), &spec).unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[test]
fn a_size_that_no_alignment_can_be_added_to_is_invalid() {
    let fake = Fake::new(Arch::V3);
    fake.state().knows_alignment = false;
    let (runtime, _) = open(&fake);
    let spec = AllocSpec {
        align_bytes: 4096,
        ..AllocSpec::device(u64::MAX - 4095, MemUsage::Tensor)
    };
    assert_eq!(status(runtime.allocate(core(0), &spec)), NrtStatus::Invalid);
}

#[test]
fn memory_goes_back_with_its_last_reference() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let spec = AllocSpec {
        hint: Some("w"),
        ..AllocSpec::device(100, MemUsage::Weight)
    };
    let one = runtime.allocate(core(0), &spec).unwrap();
    let other = one.clone();
    drop(one);
    other.write(0, &[1]).unwrap();
    assert_eq!(fake.live_chunks(), COPY_BUFFERS + 1);
    drop(other);
    assert_eq!(fake.live_chunks(), COPY_BUFFERS);

    let events = runtime.dml(DEVICE).unwrap().events();
    let seen = events.iter().map(|event| {
        let hint = event.allocation.hint.as_deref();
        (event.action, hint, event.channel_bytes)
    });
    let wanted = [
        (Action::Alloc, Some("w"), Some(100)),
        (Action::Free, Some("w"), Some(0)),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_list_lets_go_of_its_references_and_can_be_used_again() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let spec = AllocSpec::device(100, MemUsage::Weight);
    let [one, two] = [0, 1].map(|number| runtime.allocate(core(number), &spec).unwrap());
    let (mut list, mut other) = (GcList::new(), GcList::new());
    list.push(one.clone());
    list.push(two);
    other.push(one);
    assert_eq!(list.len(), 2);
    list.free();
    assert!(list.is_empty());
    assert_eq!(fake.live_chunks(), COPY_BUFFERS + 1);
    list.push(runtime.allocate(core(0), &spec).unwrap());
    other.free();
    assert_eq!(fake.live_chunks(), COPY_BUFFERS + 1);
    drop(list);
    assert_eq!(fake.live_chunks(), COPY_BUFFERS);
}

#[test]
fn a_model_takes_its_memory_with_it() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let model = runtime.load_model(core(0), "resnet").unwrap();
    assert_eq!(model.id().0, 1001);
    let held = model
        .allocate(&AllocSpec::device(100, MemUsage::Weight))
        .unwrap();
    let freed = model
        .allocate(&AllocSpec::device(10, MemUsage::Weight))
        .unwrap();
    let global = runtime
        .allocate(core(0), &AllocSpec::device(1, MemUsage::Tensor))
        .unwrap();
    drop(freed);
    let core_usage = |runtime: &Runtime| {
        let table = runtime.usage(DEVICE).unwrap();
        let core = table.core(CoreId::new(0)).unwrap().clone();
        (core.present.total(), core.peak_total_bytes, core.models)
    };
    let (present, peak, models) = core_usage(&runtime);
    assert_eq!((present, peak), (101, 111));
    assert_eq!(
        (models[0].name.as_str(), models[0].present.total()),
        ("resnet", 100)
    );

    drop(model);

    assert_eq!(core_usage(&runtime), (1, 111, vec![]));
    assert_eq!(fake.live_chunks(), COPY_BUFFERS + 1);
    assert_eq!(status(held.read(0, &mut [0])), NrtStatus::InvalidHandle);
    drop(held);
    global.write(0, &[1]).unwrap();
    assert_eq!(runtime.load_model(core(1), "next").unwrap().id().0, 1002);
}

#[test]
fn what_outlives_the_runtime_is_named_and_works_until_it_is_dropped() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let dmem = runtime
        .allocate(core(3), &AllocSpec::device(100, MemUsage::Tensor))
        .unwrap();
    drop(runtime);
    let lines = log.take();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].ends_with("1 allocations (100 bytes) are left on nd 0, core 3\n"),
        "{}",
        lines[0]
    );
    dmem.write(0, &[1]).unwrap();
    drop(dmem);
    assert_eq!(fake.live_chunks(), 0);
    assert_eq!(fake.state().open, []);
}

/// Another thread may be given the same block at once: it is not in the books twice.
#[test]
fn memory_is_out_of_the_books_before_the_driver_has_it_back() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let runtime = Arc::new(runtime);
    let spec = AllocSpec::device(100, MemUsage::Tensor);
    let block = runtime.allocate(core(0), &spec).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (seen_by_driver, books) = (Arc::clone(&seen), Arc::clone(&runtime));
    fake.before(ioctl::MEM_FREE, move || {
        let used = books.memory_stats(core(0)).unwrap().used_bytes;
        let last = books.dml(DEVICE).unwrap().events().pop().unwrap();
        seen_by_driver.lock().unwrap().push((used, last.action));
    });
    drop(block);
    assert_eq!(*seen.lock().unwrap(), [(0, Action::Free)]);
    assert_eq!(fake.live_chunks(), COPY_BUFFERS);
}

#[test]
fn a_free_that_the_driver_refuses_is_logged() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let dmem = runtime
        .allocate(core(0), &AllocSpec::device(1, MemUsage::Tensor))
        .unwrap();
    fake.fail(ioctl::MEM_FREE, 0, Errno::EINVAL);
    drop(dmem);
    let lines = log.take();
    assert!(
        lines[0].ends_with("nd 0: MEM_FREE answered EINVAL\n"),
        "{}",
        lines[0]
    );
}

#[test]
fn a_free_that_the_driver_refuses_leaves_the_memory_in_every_view() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let spec = AllocSpec::device(100, MemUsage::Tensor);
    let [kept, freed] = [(); 2].map(|()| runtime.allocate(core(0), &spec).unwrap());
    fake.fail(ioctl::MEM_FREE, 0, Errno::EINVAL);
    drop(kept);
    drop(freed);

    assert_eq!(fake.live_chunks(), COPY_BUFFERS + 1);
    let table = runtime.usage(DEVICE).unwrap();
    let bank = table.bank(Channel::new(0)).unwrap();
    assert_eq!((bank.present_bytes, bank.peak_bytes), (100, 200));
    assert_eq!(bank.cores[0].present.get(MemUsage::Tensor), 100);
    let metrics = runtime.metrics(DEVICE).unwrap();
    let counters = metrics.core(CoreId::new(0)).unwrap();
    assert_eq!(counters.get(Counter::DeviceTotal).present_bytes, 100);
    assert_eq!(runtime.memory_stats(core(0)).unwrap().used_bytes, 100);
    let events = runtime.dml(DEVICE).unwrap().events();
    assert_eq!(events.last().unwrap().channel_bytes, Some(100));
    let signed = events.iter().map(|event| match event.action {
        Action::Alloc => 100,
        Action::Free => -100,
    });
    assert_eq!(signed.sum::<i64>(), 100);
    log.take();
    drop(runtime);
    let lines = log.take();
    assert!(
        lines[0].ends_with("1 allocations (100 bytes) are left on nd 0, core 0\n"),
        "{lines:?}"
    );
}

#[test]
fn a_tensor_is_named_bytes() {
    let fake = Fake::new(Arch::V2);
    let (runtime, log) = open(&fake);
    let allocate = |placement, size_bytes, name| {
        Tensor::allocate(&runtime, core(1), placement, size_bytes, name)
    };
    let tensor = allocate(Placement::Device, 8, "x").unwrap();
    tensor.write(4, &[1, 2]).unwrap();
    let mut back = [0; 4];
    tensor.read(3, &mut back).unwrap();
    assert_eq!(
        (back, tensor.name(), tensor.size_bytes()),
        ([0, 1, 2, 0], "x", 8)
    );
    assert_eq!(status(tensor.write(7, &[1, 2])), NrtStatus::Invalid);
    assert_eq!(fake.chunks(false), [(4096, 9)]);
    let on_host = allocate(Placement::Host, 8, "y").unwrap();
    on_host.write(0, &[1]).unwrap();
    drop((tensor, on_host));
    assert_eq!(fake.chunks(false), []);

    assert_eq!(
        status(allocate(Placement::Device, 17 << 30, "")),
        NrtStatus::Resource
    );
    let lines = log.take();
    let last = lines.last().unwrap();
    let wanted = "Failed to allocate 18253611008 bytes on DEVICE for tensor UNNAMED.\n";
    assert!(last.ends_with(wanted), "{last}");
}

#[test]
fn v3_takes_no_tensors_in_host_memory() {
    let fake = Fake::new(Arch::V3);
    let (runtime, log) = open(&fake);
    let refused = Tensor::allocate(&runtime, core(0), Placement::Host, 8, "y");
    assert_eq!(status(refused), NrtStatus::Resource);
    let lines = log.take();
    let wanted = [
        "ERROR  TDRV:tensor_allocate                         nd 0 does not take tensors in host memory\n",
        "ERROR  TDRV:tensor_allocate                         Failed to allocate 8 bytes on HOST for tensor y.\n",
    ];
    assert_eq!(lines.len(), wanted.len());
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.ends_with(wanted), "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_ledger_is_the_sum_of_what_is_live_and_dropping_all_frees_all(
        steps in proptest::collection::vec(
            (0..8_u32, 0..22_usize, 0..1_u64 << 20, 0..4_u32, any::<bool>()),
            1..60,
        ),
    ) {
        let fake = Fake::new(Arch::V3);
        let (runtime, _) = open(&fake);
        let model = runtime.load_model(core(2), "m").unwrap();
        let mut live = Vec::new();
        for (number, usage, size_bytes, kind, is_model) in steps {
            if kind == 0 && !live.is_empty() {
                live.swap_remove(size_bytes as usize % live.len());
                continue;
            }
            let spec = AllocSpec {
                align_bytes: u64::from(kind == 1) << 16,
                ..AllocSpec::device(size_bytes, MemUsage::ALL[usage])
            };
            live.push(match is_model {
                true => model.allocate(&spec).unwrap(),
                false => runtime.allocate(core(number), &spec).unwrap(),
            });
        }

        let table = runtime.usage(DEVICE).unwrap();
        for bank in &table.banks {
            let on_bank = live.iter().filter(|one| one.facts().channel == bank.channel);
            let bytes: u64 = on_bank.map(|one| one.facts().allocated_bytes).sum();
            prop_assert_eq!(bank.present_bytes, bytes);
            let cores = bank.cores.iter().map(|core| core.present.total());
            prop_assert_eq!(cores.sum::<u64>(), bytes);
        }
        prop_assert_eq!(fake.chunks(false).len(), live.len());

        drop((live, model));
        let table = runtime.usage(DEVICE).unwrap();
        prop_assert!(table.banks.iter().all(|bank| bank.present_bytes == 0));
        drop(runtime);
        prop_assert_eq!(fake.live_chunks(), 0);
    }
}
