//! Staged copies: their commands, their bytes, and what a failure leaves.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId};
use glia_abi::ioctl::{self, feature};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::transport::Transport;
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device, Transfer};
use glia_runtime::{AllocSpec, Dmem, Runtime, RuntimeConfig};
use proptest::prelude::*;

use crate::fake::{Command, DEVICE, Fake, Moves, core, open, open_with};

const HALF: u64 = 1 << 20;
const NONE: u32 = u32::MAX;

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index % 251) as u8 + 1).collect()
}

fn tensor(runtime: &Runtime, size_bytes: u64) -> Dmem {
    let spec = AllocSpec::device(size_bytes, MemUsage::Tensor);
    runtime.allocate(core(0), &spec).unwrap()
}

/// The commands of a write of this many bytes at offset 256, and those of reading them back.
fn commands(size: usize) -> (Vec<Command>, Vec<Command>) {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let dmem = tensor(&runtime, 256 + size as u64);
    dmem.write(256, &pattern(size)).unwrap();
    let written = fake.take_commands();
    let mut back = vec![0; size];
    dmem.read(256, &mut back).unwrap();
    assert_eq!(back, pattern(size));
    assert_eq!(fake.in_flight(), 0);
    (written, fake.take_commands())
}

/// `(size, half, previous)` of each start, offsets following each other from 256; then the wait.
fn starts(chunks: &[(u64, u64, u32)], last: Option<u32>) -> Vec<Command> {
    let mut hbm_offset = 256;
    let mut commands = Vec::new();
    for &(size, half, previous) in chunks {
        commands.push(Command::Start {
            size,
            buffer_offset: half * HALF,
            hbm_offset,
            previous,
        });
        hbm_offset += size;
    }
    commands.extend(last.map(|copy| Command::Wait { copy }));
    commands
}

#[test]
fn a_small_copy_is_one_synchronous_command() {
    for size in [1, 0x3fff] {
        let wanted = starts(&[(size as u64, 0, 0)], None);
        assert_eq!(commands(size), (wanted.clone(), wanted));
    }
}

#[test]
fn a_copy_of_up_to_a_megabyte_goes_in_two_halves() {
    let wanted = starts(&[(0x2000, 0, NONE), (0x2000, 1, 1)], Some(2));
    assert_eq!(commands(0x4000), (wanted.clone(), wanted));
    let wanted = starts(&[(0x8_0000, 0, NONE), (0x8_0000, 1, 1)], Some(2));
    assert_eq!(commands(0x10_0000), (wanted.clone(), wanted));
}

#[test]
fn a_larger_copy_goes_in_megabytes_that_take_turns() {
    let wanted = starts(&[(HALF, 0, NONE), (1, 1, 1)], Some(2));
    assert_eq!(commands(0x10_0001), (wanted.clone(), wanted));
    let chunks = [
        (HALF, 0, NONE),
        (HALF, 1, 1),
        (HALF, 0, 2),
        (HALF, 1, 1),
        (HALF, 0, 2),
        (1, 1, 1),
    ];
    let wanted = starts(&chunks, Some(2));
    assert_eq!(commands((5 << 20) + 1), (wanted.clone(), wanted));
}

#[test]
fn nothing_to_copy_is_no_command() {
    assert_eq!(commands(0), (vec![], vec![]));
}

#[test]
fn a_failed_write_has_written_what_came_before_and_leaves_nothing_in_flight() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let dmem = tensor(&runtime, 4 << 20);
    // The third of four chunks.
    fake.fail(ioctl::MEM_COPY_ASYNC64, 2, Errno::EIO);

    let error = dmem.write(0, &pattern(4 << 20)).unwrap_err();

    assert_eq!(error.status(), NrtStatus::Failure);
    assert_eq!(error.to_string(), "nd 0: MEM_COPY_ASYNC64 answered EIO");
    assert_eq!(fake.take_commands()[3..], [Command::Wait { copy: 2 }]);
    assert_eq!(fake.in_flight(), 0);
    let mut back = vec![0; 4 << 20];
    dmem.read(0, &mut back).unwrap();
    let mut wanted = pattern(4 << 20);
    wanted[2 << 20..].fill(0);
    assert!(back == wanted);
}

#[test]
fn a_failed_read_delivers_the_chunk_before_the_failed_one() {
    for moves in [Moves::AtStart, Moves::AtWait] {
        let fake = Fake::new(Arch::V3);
        fake.state().moves = moves;
        let (runtime, _) = open(&fake);
        let dmem = tensor(&runtime, 4 << 20);
        dmem.write(0, &pattern(4 << 20)).unwrap();
        fake.fail(ioctl::MEM_COPY_ASYNC64, 2, Errno::ETIMEDOUT);

        let mut back = vec![0; 4 << 20];
        let error = dmem.read(0, &mut back).unwrap_err();

        assert_eq!(error.status(), NrtStatus::Failure);
        assert_eq!(fake.in_flight(), 0);
        let mut wanted = pattern(4 << 20);
        wanted[2 << 20..].fill(0);
        assert!(back == wanted);
        // The buffer is free again.
        dmem.read(0, &mut back).unwrap();
        assert!(back == pattern(4 << 20));
    }
}

#[test]
fn a_failed_last_wait_fails_the_copy() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let dmem = tensor(&runtime, 2 << 20);
    dmem.write(0, &pattern(2 << 20)).unwrap();
    fake.fail(ioctl::MEM_COPY_ASYNC_WAIT, 0, Errno::ETIMEDOUT);

    let mut back = vec![0; 2 << 20];
    let error = dmem.read(0, &mut back).unwrap_err();

    assert_eq!(
        error.to_string(),
        "nd 0: MEM_COPY_ASYNC_WAIT answered ETIMEDOUT"
    );
    assert!(back[..1 << 20] == pattern(2 << 20)[..1 << 20]);
    assert!(back[1 << 20..].iter().all(|&byte| byte == 0));

    fake.fail(ioctl::MEM_COPY_ASYNC_WAIT, 0, Errno::ETIMEDOUT);
    let error = dmem.write(0, &pattern(0x4000)).unwrap_err();
    assert_eq!(error.status(), NrtStatus::Failure);
}

#[test]
fn bytes_begin_where_the_runtime_has_aligned() {
    let fake = Fake::new(Arch::V3);
    fake.state().knows_alignment = false;
    let (runtime, _) = open(&fake);
    let spec = AllocSpec {
        align_bytes: 64 << 10,
        ..AllocSpec::device(5000, MemUsage::Tensor)
    };
    let dmem = runtime.allocate(core(0), &spec).unwrap();
    dmem.write(10, &[7]).unwrap();
    let wanted = Command::Start {
        size: 1,
        buffer_offset: 0,
        hbm_offset: dmem.facts().align_offset_bytes + 10,
        previous: 0,
    };
    assert_eq!(fake.take_commands(), [wanted]);
}

#[test]
fn host_memory_is_reached_through_its_mapping() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let spec = AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(5000, MemUsage::DmaRing)
    };
    let dmem = runtime.allocate(core(0), &spec).unwrap();
    dmem.write(100, &pattern(4900)).unwrap();
    let mut back = vec![0; 4900];
    dmem.read(100, &mut back).unwrap();
    assert!(back == pattern(4900));
    assert_eq!(fake.take_commands(), []);
}

#[test]
fn an_access_that_leaves_the_allocation_is_refused() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    // The driver rounds up to a page; the runtime does not.
    let dmem = tensor(&runtime, 100);
    for (offset, size) in [(0, 101), (100, 1), (u64::MAX, 2)] {
        let error = dmem.write(offset, &pattern(size)).unwrap_err();
        assert_eq!(error.status(), NrtStatus::Invalid, "{error}");
        let error = dmem.read(offset, &mut pattern(size)).unwrap_err();
        assert_eq!(error.status(), NrtStatus::Invalid, "{error}");
    }
    dmem.write(100, &[]).unwrap();
    assert_eq!(fake.take_commands(), []);
}

#[test]
fn chunks_are_copied_and_filled_by_single_calls() {
    let fake = Fake::new(Arch::V2);
    let device = Device::open(Arc::clone(&fake) as Arc<dyn Transport>, DEVICE).unwrap();
    let spec = ChunkSpec {
        size_bytes: 4096,
        align_bytes: 0,
        location: Location::Device,
        channel: glia_abi::handle::Channel::new(1),
        core: glia_abi::handle::CoreId::new(1),
        category: glia_abi::usage::Category::TENSORS_DEVICE,
    };
    let (source, target) = (
        device.allocate(&spec).unwrap(),
        device.allocate(&spec).unwrap(),
    );
    device.buf_write(source, 8, b"across").unwrap();
    let transfer = Transfer {
        source,
        source_offset_bytes: 8,
        target,
        target_offset_bytes: 16,
        size_bytes: 6,
    };
    device.copy(&transfer).unwrap();
    let mut back = [0; 6];
    device.buf_read(target, 16, &mut back).unwrap();
    assert_eq!(&back, b"across");
    assert_eq!(
        device.info(source).unwrap().pa,
        device.physical_address(source).unwrap()
    );
}

#[test]
fn a_runtime_that_is_told_so_copies_by_the_callers_pages_where_the_driver_can() {
    let commands = |features, bar4_wr_threshold_bytes| {
        let fake = Fake::new(Arch::V3);
        fake.state().features |= features;
        let config = RuntimeConfig {
            zero_copy: true,
            bar4_wr_threshold_bytes,
            ..RuntimeConfig::default()
        };
        let (runtime, _) = open_with(&fake, config);
        let dmem = tensor(&runtime, 100);
        dmem.write(7, b"bytes").unwrap();
        let mut back = [0; 5];
        dmem.read(7, &mut back).unwrap();
        assert_eq!(&back, b"bytes");
        fake.take_commands()
    };
    let wanted = |to_device, threshold| Command::ZeroCopy {
        to_device,
        offset: 7,
        size: 5,
        threshold,
    };
    let able = feature::ZEROCOPY;
    assert_eq!(
        commands(able, None),
        [wanted(true, 0x1000), wanted(false, 0)]
    );
    assert_eq!(commands(able, Some(8)), [wanted(true, 8), wanted(false, 0)]);
    let staged = commands(0, None);
    assert!(
        staged
            .iter()
            .all(|one| matches!(one, Command::Start { .. }))
    );
}

/// A write, a copy, a fill and reads of tensors, an aligned block, and copies of user memory, each
/// right only if every size and offset is.
fn exercise(fake: &Arc<Fake>) {
    let (runtime, _) = open(fake);
    let (source, target) = (tensor(&runtime, 70_000), tensor(&runtime, 70_000));
    let data = pattern(50_000);
    source.write(3, &data).unwrap();
    let mut back = vec![0; data.len()];
    source.read(3, &mut back).unwrap();
    assert!(back == data);
    target.write(100, &data).unwrap();
    target.fill(100, 10, 9).unwrap();
    target.read(100, &mut back).unwrap();
    assert!(back[..10] == [9; 10] && back[10..] == data[10..]);
    let aligned = AllocSpec {
        align_bytes: 1 << 20,
        ..AllocSpec::device(5000, MemUsage::Weight)
    };
    let aligned = runtime.allocate(core(0), &aligned).unwrap();
    assert_eq!(aligned.pa().get() % (1 << 20), 0);

    let transport = Arc::clone(fake) as Arc<dyn Transport>;
    let device = Device::open(transport, DEVICE).unwrap();
    let chunk = || {
        device.allocate(&ChunkSpec {
            size_bytes: 8192,
            align_bytes: 0,
            location: Location::Device,
            channel: Channel::new(0),
            core: CoreId::new(0),
            category: Category::TENSORS_DEVICE,
        })
    };
    let (from, to) = (chunk().unwrap(), chunk().unwrap());
    device.buf_write(from, 4000, &data[..300]).unwrap();
    let transfer = Transfer {
        source: from,
        source_offset_bytes: 4000,
        target: to,
        target_offset_bytes: 1,
        size_bytes: 300,
    };
    device.copy(&transfer).unwrap();
    device.buf_read(to, 1, &mut back[..300]).unwrap();
    assert!(back[..300] == data[..300]);
}

/// The newest form of each command that has older ones.
const NEWEST: [u32; 5] = [
    ioctl::MEM_ALLOC_V2MT64,
    ioctl::MEM_COPY64,
    ioctl::MEM_COPY_ASYNC64,
    ioctl::MEMSET64,
    ioctl::MEM_BUF_COPY64,
];

/// A driver of these features that answers `errno` to these words.
fn old(features: u64, lacks: &[u32], errno: Errno) -> Arc<Fake> {
    let fake = Fake::new(Arch::V3);
    fake.state().features = features;
    fake.state().lacks = (lacks.to_vec(), errno);
    fake
}

#[test]
fn an_older_driver_is_asked_in_the_forms_that_it_has() {
    for errno in [Errno::EINVAL, Errno::ENOTTY] {
        // Before the 64-bit forms.
        let middle = feature::ASYNC_DMA | feature::MEM_ALLOC_TYPE;
        let fake = old(middle, &NEWEST, errno);
        exercise(&fake);
        let sent = std::mem::take(&mut fake.state().forms);
        for word in [
            ioctl::MEM_ALLOC_V2MT,
            ioctl::MEM_COPY,
            ioctl::MEM_COPY_ASYNC,
            ioctl::MEMSET,
            ioctl::MEM_BUF_COPY,
        ] {
            assert!(sent.contains(&word), "{word:#x}");
        }
        assert!(!sent.contains(&ioctl::MEM_ALLOC_V2));
        // Two devices were opened, and each was asked once until it was known.
        let asked = |wanted: u32| sent.iter().filter(|word| **word == wanted).count();
        assert_eq!(NEWEST.map(asked), [2, 1, 1, 1, 1]);

        // The oldest: no alignment, no category, no copy that is not waited for, and a question for
        // features that it does not know.
        let lacks = [
            &NEWEST[..],
            &[ioctl::MEM_ALLOC_V2MT, ioctl::MEM_ALLOC_V2],
            &[ioctl::MEM_COPY_ASYNC, ioctl::DRIVER_INFO_GET],
        ];
        let fake = old(u64::MAX, &lacks.concat(), errno);
        exercise(&fake);
        let sent = std::mem::take(&mut fake.state().forms);
        assert!(sent.contains(&ioctl::MEM_ALLOC) && sent.contains(&ioctl::MEM_COPY));
        assert!(!sent.contains(&ioctl::MEM_COPY_ASYNC));
    }
}

#[test]
fn a_driver_that_only_does_not_say_that_it_is_new_is_asked_in_the_newest_forms() {
    let fake = old(feature::ASYNC_DMA, &[], Errno::EINVAL);
    exercise(&fake);
    let sent = std::mem::take(&mut fake.state().forms);
    assert!(NEWEST.iter().all(|word| sent.contains(word)));
    assert!(!sent.contains(&ioctl::MEM_ALLOC_V2MT) && !sent.contains(&ioctl::MEM_COPY));
}

#[test]
fn beyond_4_gib_an_older_driver_is_not_asked() {
    const FOUR_GIB: u64 = 4 << 30;
    let middle = feature::ASYNC_DMA | feature::MEM_ALLOC_TYPE;
    let fake = old(middle, &NEWEST, Errno::EINVAL);
    let (runtime, _) = open(&fake);
    let kv = tensor(&runtime, FOUR_GIB + 4096);
    kv.write(FOUR_GIB - 4096, &[1; 4096]).unwrap();
    kv.fill(FOUR_GIB - 1, 1, 2).unwrap();
    let mut back = [0; 2];
    kv.read(FOUR_GIB - 2, &mut back).unwrap();
    assert_eq!(back, [1, 2]);
    fake.state().forms.clear();

    let refused = [
        (kv.write(FOUR_GIB, &[1]), "MEM_COPY_ASYNC"),
        (kv.read(FOUR_GIB, &mut [0]), "MEM_COPY_ASYNC"),
        (kv.fill(0, FOUR_GIB, 0), "MEMSET"),
    ];
    for (result, call) in refused {
        let message = format!(
            "nd 0: {call} of this driver takes 32-bit sizes and offsets, and 4294967296 is more"
        );
        assert_eq!(result.unwrap_err().to_string(), message);
    }
    assert_eq!(fake.state().forms, [0; 0]);
}

#[test]
fn a_refusal_of_every_form_is_the_newest_forms_and_changes_nothing() {
    let fake = old(feature::ASYNC_DMA, &[ioctl::MEMSET], Errno::EINVAL);
    let (runtime, _) = open(&fake);
    let dmem = tensor(&runtime, 5000);
    for errno in [Errno::EINVAL, Errno::ENOTTY] {
        fake.fail(ioctl::MEMSET64, 0, errno);
        let error = dmem.fill(0, 10, 7).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("nd 0: MEMSET64 answered {errno}")
        );
    }
    dmem.fill(0, 10, 7).unwrap();
    // Now that it is known, nothing else is tried.
    fake.state().forms.clear();
    fake.fail(ioctl::MEMSET64, 0, Errno::EINVAL);
    assert!(dmem.fill(0, 10, 7).is_err());
    dmem.fill(0, 10, 7).unwrap();
    assert_eq!(fake.state().forms, [ioctl::MEMSET64]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_written_is_read_whatever_the_cut(
        size in prop_oneof![1..0x4100_usize, 0x3000..0x11_0000_usize, 0x10_0000..0x48_0000_usize],
        offset in 0..10_000_usize,
        is_host in any::<bool>(),
        moves in prop_oneof![Just(Moves::AtStart), Just(Moves::AtWait)],
        (from, to) in (0.0..1.0, 0.0..1.0),
    ) {
        let fake = Fake::new(Arch::V3);
        fake.state().moves = moves;
        let (runtime, _) = open(&fake);
        let spec = AllocSpec {
            location: if is_host { Location::Host } else { Location::Device },
            ..AllocSpec::device((offset + size + 3) as u64, MemUsage::Tensor)
        };
        let dmem = runtime.allocate(core(5), &spec).unwrap();
        dmem.write(offset as u64, &pattern(size)).unwrap();

        let mut wanted = vec![0; offset + size + 3];
        wanted[offset..offset + size].copy_from_slice(&pattern(size));
        let at = |part: f64| (wanted.len() as f64 * part) as usize;
        let part = at(f64::min(from, to))..at(f64::max(from, to));
        let mut back = vec![0; part.len()];
        dmem.read(part.start as u64, &mut back).unwrap();
        prop_assert!(back == wanted[part]);
        prop_assert_eq!(fake.in_flight(), 0);
    }
}
