//! Tensors: views, attached buffers, fences, copies, batches, sets, and the gate before them.

use std::sync::Arc;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, DeviceId, Pid};
use glia_abi::ioctl::{self, feature};
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::sched::Micros;
use glia_abi::transport::Transport;
use glia_runtime::process::Process;
use glia_runtime::stats::MemoryStats;
use glia_runtime::tensor::{
    Fencing, ReadBatch, ReadOp, WriteBatch, WriteOp, read_batches, write_batches,
};
use glia_runtime::{AllocSpec, Placement, Runtime, RuntimeConfig, RuntimeError, Tensor, TensorSet};

use crate::fake::{Command, DEVICE, Fake, buffer, core, open, open_with};

/// One for each core of V3.
const COPY_BUFFERS: usize = 8;

fn status(result: Result<impl Sized, RuntimeError>) -> NrtStatus {
    result.err().unwrap().status()
}

fn tensor(runtime: &Runtime, number: u32, size_bytes: u64) -> Tensor {
    Tensor::allocate(runtime, core(number), Placement::Device, size_bytes, "t").unwrap()
}

fn bytes<const N: usize>(tensor: &Tensor, offset_bytes: u64) -> [u8; N] {
    let mut into = [0; N];
    tensor.read(offset_bytes, &mut into).unwrap();
    into
}

#[test]
fn a_slice_of_a_slice_counts_from_the_slice_and_stays_within_it() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let whole = tensor(&runtime, 0, 1000);
    let part = whole.slice(100, 50, "part").unwrap();
    let small = part.slice(10, 5, "small").unwrap();

    small.write(1, &[7]).unwrap();

    assert_eq!((small.name(), small.size_bytes()), ("small", 5));
    assert_eq!(bytes(&whole, 110), [0, 7, 0]);
    assert_eq!(bytes(&part, 10), [0, 7]);
    // The storage goes on; the view does not.
    assert_eq!(status(small.write(4, &[1, 1])), NrtStatus::Invalid);
    assert_eq!(status(part.slice(46, 5, "")), NrtStatus::Invalid);
    assert_eq!(status(part.slice(u64::MAX, 2, "")), NrtStatus::Invalid);
    assert_eq!(status(small.fill(0, 6, 0)), NrtStatus::Invalid);
}

#[test]
fn a_storage_goes_with_its_last_view() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let whole = tensor(&runtime, 0, 1000);
    let part = whole.slice(100, 50, "part").unwrap();
    drop(whole);
    part.write(0, &[1]).unwrap();
    assert_eq!(fake.live_chunks(), COPY_BUFFERS + 1);
    drop(part);
    assert_eq!(fake.live_chunks(), COPY_BUFFERS);
}

#[test]
fn an_attached_buffer_takes_the_place_of_the_storage() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let mut whole = tensor(&runtime, 0, 1000);
    let part = whole.slice(0, 10, "part").unwrap();
    part.write(0, &[5]).unwrap();
    let mine = buffer(20_000);

    whole.attach_buffer(Arc::clone(&mine)).unwrap();
    whole.write(1, &[9]).unwrap();
    whole.fill(2, 15_000, 3).unwrap();

    let mut seen = [0; 4];
    mine.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0, 9, 3, 3]);
    assert_eq!(bytes(&whole, 15_001), [3, 0]);
    assert_eq!(whole.size_bytes(), 20_000);
    assert!(whole.memory().is_none());
    assert_eq!(status(whole.allocation_info()), NrtStatus::Invalid);
    // The slice has kept what it is a view of, which goes with it.
    assert_eq!(bytes(&part, 0), [5]);
    drop(part);
    assert_eq!(fake.live_chunks(), COPY_BUFFERS);
    // The caller's memory is nobody else's to free.
    drop(whole);
    mine.read(1, &mut seen).unwrap();
}

#[test]
fn an_empty_tensor_has_no_bytes_until_a_buffer_is_attached() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let mut empty = Tensor::allocate_empty(&runtime, "e").unwrap();
    empty.write(0, &[]).unwrap();
    assert_eq!(status(empty.write(0, &[1])), NrtStatus::Invalid);
    assert_eq!(status(empty.read(0, &mut [1])), NrtStatus::Invalid);
    empty.attach_buffer(buffer(4)).unwrap();
    empty.write(0, &[1, 2, 3, 4]).unwrap();
    assert_eq!(bytes(&empty.slice(2, 2, "").unwrap(), 0), [3, 4]);
}

#[test]
fn a_fill_is_one_command_from_where_the_view_begins() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let whole = tensor(&runtime, 0, 1000);
    let part = whole.slice(100, 50, "part").unwrap();
    part.fill(10, 3, 0xab).unwrap();
    part.fill(50, 0, 1).unwrap();
    let wanted = Command::Fill {
        offset: 110,
        size: 3,
        value: 0xab,
    };
    assert_eq!(fake.take_commands(), [wanted]);
    assert_eq!(bytes(&whole, 109), [0, 0xab, 0xab, 0xab, 0]);
}

#[test]
fn tensors_of_one_hbm_are_copied_between_by_the_device() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    // Cores 0 and 1 share HBM 0; core 2 is on HBM 1.
    let (one, two) = (tensor(&runtime, 0, 100), tensor(&runtime, 1, 100));
    let far = tensor(&runtime, 2, 100);
    one.write(5, &[1, 2, 3]).unwrap();
    fake.take_commands();

    let part = two.slice(10, 20, "").unwrap();
    one.copy_to(5, &part, 1, 3).unwrap();

    let wanted = Command::Copy {
        source_offset: 5,
        target_offset: 11,
        size: 3,
    };
    assert_eq!(fake.take_commands(), [wanted]);
    assert_eq!(bytes(&two, 10), [0, 1, 2, 3, 0]);
    let error = one.copy_to(0, &far, 0, 3).unwrap_err();
    assert_eq!(error.status(), NrtStatus::Invalid);
    assert_eq!(
        error.to_string(),
        "a copy from nd 0, channel 0 to nd 0, channel 1 is not possible: they are not the same HBM"
    );
    assert_eq!(status(one.copy_to(98, &two, 0, 3)), NrtStatus::Invalid);
    assert_eq!(status(one.copy_to(0, &part, 18, 3)), NrtStatus::Invalid);
    // Two views of one storage: it is taken once.
    let end = one.slice(50, 50, "").unwrap();
    one.copy_to(5, &end, 0, 3).unwrap();
    assert_eq!(bytes(&one, 50), [1, 2, 3]);
}

#[test]
fn between_host_and_device_the_processor_copies() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let size = (2 << 20) + 5;
    let device = tensor(&runtime, 3, size);
    let mut host = Tensor::allocate_empty(&runtime, "h").unwrap();
    host.attach_buffer(buffer(size)).unwrap();
    host.fill(0, size, 1).unwrap();
    host.write(size - 2, &[8, 9]).unwrap();
    host.copy_to(1, &device, 0, size - 1).unwrap();
    assert_eq!(bytes(&device, size - 4), [1, 8, 9, 0]);
    let mut back = Tensor::allocate_empty(&runtime, "b").unwrap();
    back.attach_buffer(buffer(size)).unwrap();
    device.copy_to(0, &back, 0, size).unwrap();
    assert_eq!(bytes(&back, size - 4), [1, 8, 9, 0]);
}

#[test]
fn tensors_beyond_4_gib_are_like_others() {
    const SIZE: u64 = (5 << 30) + 3;
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let (one, two) = (tensor(&runtime, 0, SIZE), tensor(&runtime, 1, SIZE));
    let end = one.slice(SIZE - 4, 4, "end").unwrap();
    end.write(1, &[7, 8, 9]).unwrap();
    assert_eq!(bytes(&one, SIZE - 3), [7, 8, 9]);
    assert_eq!(status(one.write(SIZE - 1, &[1, 1])), NrtStatus::Invalid);
    fake.take_commands();
    one.fill(1, SIZE - 1, 4).unwrap();
    one.copy_to(0, &two, 0, SIZE).unwrap();
    let wanted = [
        Command::Fill {
            offset: 1,
            size: SIZE - 1,
            value: 4,
        },
        Command::Copy {
            source_offset: 0,
            target_offset: 0,
            size: SIZE,
        },
    ];
    assert_eq!(fake.take_commands(), wanted);
}

#[test]
fn a_read_waits_for_writes_and_a_write_for_everything() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let whole = tensor(&runtime, 0, 1000);
    let part = whole.slice(500, 10, "part").unwrap();

    // Reads do not mind reads.
    let reading = part.read_fence();
    assert_eq!(bytes(&whole, 0), [0]);
    // A write of another view of the same storage does; a fill, too.
    fake.meanwhile(move || drop(reading));
    whole.write(0, &[1]).unwrap();
    assert!(!fake.nobody_waited());
    let reading = part.read_fence();
    fake.meanwhile(move || drop(reading));
    whole.fill(0, 1, 1).unwrap();
    assert!(!fake.nobody_waited());
    // A read minds writes.
    let writing = part.write_fence();
    fake.meanwhile(move || drop(writing));
    assert_eq!(bytes(&whole, 0), [1]);
    assert!(!fake.nobody_waited());
}

/// Writes `[1]` at 3 and `[2, 3]` at 7, and nothing at 0, of a view at 100.
fn write_some(view: &Tensor, fencing: Fencing) -> Result<(), RuntimeError> {
    let op = |offset_bytes, bytes| WriteOp {
        offset_bytes,
        bytes,
    };
    let ops = [op(3, &[1][..]), op(0, &[]), op(7, &[2, 3])];
    let batch = WriteBatch {
        tensor: view,
        ops: &ops,
    };
    write_batches(&[batch], fencing)
}

#[test]
fn batches_are_one_command_that_counts_from_the_chunk() {
    let fake = Fake::new(Arch::V3);
    fake.state().features |= feature::ZEROCOPY;
    let (runtime, _) = open(&fake);
    let (one, two) = (tensor(&runtime, 0, 1000), tensor(&runtime, 5, 50));
    let view = one.slice(100, 10, "").unwrap();
    two.write(4, &[6, 7]).unwrap();
    fake.take_commands();

    write_some(&view, Fencing::Fenced).unwrap();
    let (mut first, mut second) = ([0; 2], [0; 10]);
    let mut into_first = [ReadOp {
        offset_bytes: 4,
        into: &mut first,
    }];
    let mut into_second = [ReadOp {
        offset_bytes: 0,
        into: &mut second,
    }];
    let mut batches = [
        ReadBatch {
            tensor: &two,
            ops: &mut into_first,
        },
        ReadBatch {
            tensor: &view,
            ops: &mut into_second,
        },
    ];
    read_batches(&mut batches, Fencing::Fenced).unwrap();

    let wanted = [
        Command::Batches {
            to_device: true,
            batches: vec![(100, 0x1000, vec![(3, 1), (7, 2)])],
        },
        Command::Batches {
            to_device: false,
            batches: vec![(0, 0x1000, vec![(4, 2)]), (100, 0x1000, vec![(0, 10)])],
        },
    ];
    assert_eq!(fake.take_commands(), wanted);
    assert_eq!(first, [6, 7]);
    assert_eq!(second, [0, 0, 0, 1, 0, 0, 0, 2, 3, 0]);
}

#[test]
fn the_processor_stores_nothing_by_itself_on_v2() {
    let fake = Fake::new(Arch::V2);
    fake.state().features |= feature::ZEROCOPY;
    let (runtime, _) = open(&fake);
    write_some(&tensor(&runtime, 0, 10), Fencing::Fenced).unwrap();
    let wanted = Command::Batches {
        to_device: true,
        batches: vec![(0, 0, vec![(3, 1), (7, 2)])],
    };
    assert_eq!(fake.take_commands(), [wanted]);
}

#[test]
fn a_driver_without_zero_copy_is_asked_range_by_range() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let one = tensor(&runtime, 0, 1000);
    write_some(&one.slice(100, 10, "").unwrap(), Fencing::Fenced).unwrap();
    assert_eq!(fake.take_commands().len(), 2);
    let mut into = [9; 10];
    let mut ops = [ReadOp {
        offset_bytes: 100,
        into: &mut into,
    }];
    let batch = ReadBatch {
        tensor: &one,
        ops: &mut ops,
    };
    read_batches(&mut [batch], Fencing::Unfenced).unwrap();
    assert_eq!(into, [0, 0, 0, 1, 0, 0, 0, 2, 3, 0]);
}

#[test]
fn batches_mind_what_is_pending_unless_told_otherwise() {
    let fake = Fake::new(Arch::V3);
    fake.state().features |= feature::ZEROCOPY;
    let (runtime, _) = open(&fake);
    let one = tensor(&runtime, 0, 10);
    let reading = one.read_fence();
    fake.meanwhile(move || drop(reading));
    write_some(&one, Fencing::Unfenced).unwrap();
    assert!(fake.nobody_waited());
    write_some(&one, Fencing::Fenced).unwrap();
    assert!(!fake.nobody_waited());
}

#[test]
fn a_wrong_batch_moves_nothing() {
    let fake = Fake::new(Arch::V3);
    fake.state().features |= feature::ZEROCOPY;
    let (runtime, _) = open(&fake);
    let one = tensor(&runtime, 0, 1000);
    let mut host = Tensor::allocate_empty(&runtime, "h").unwrap();
    host.attach_buffer(buffer(10)).unwrap();
    let short = one.slice(0, 8, "").unwrap();
    let none = write_batches(&[], Fencing::Fenced);
    assert_eq!(status(none), NrtStatus::Invalid);
    assert_eq!(
        status(write_some(&host, Fencing::Fenced)),
        NrtStatus::Invalid
    );
    for fencing in [Fencing::Fenced, Fencing::Unfenced] {
        assert_eq!(status(write_some(&short, fencing)), NrtStatus::Invalid);
    }
    assert_eq!(fake.take_commands(), []);

    fake.fail(ioctl::MEM_BUF_ZEROCOPY64_BATCHES, 0, Errno::EIO);
    let error = write_some(&one, Fencing::Fenced).unwrap_err();
    assert_eq!(error.status(), NrtStatus::Failure);
    assert_eq!(
        error.to_string(),
        "batch copyin: nd 0: MEM_BUF_ZEROCOPY64_BATCHES answered EIO"
    );
    // Its fence is gone.
    one.write(0, &[1]).unwrap();
}

#[test]
fn a_set_knows_its_tensors_by_name_and_frees_none() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let one = Arc::new(tensor(&runtime, 0, 10));
    let mut set = TensorSet::new();
    set.add("input", Arc::clone(&one));
    assert!(Arc::ptr_eq(set.get("input").unwrap(), &one));
    assert_eq!(status(set.get("output")), NrtStatus::Failure);
    assert_eq!(set.iter().len(), 1);
    drop(set);
    one.write(0, &[1]).unwrap();
}

#[test]
fn allocation_info_is_that_of_the_storage() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let whole = tensor(&runtime, 6, 1000);
    let info = whole.slice(10, 5, "").unwrap().allocation_info().unwrap();
    assert_eq!(info.size_bytes, 1000);
    assert_eq!(info.pa, whole.memory().unwrap().pa());
    assert_eq!(
        (info.hbm.device, info.hbm.channel),
        (DEVICE, Channel::new(3))
    );
}

#[test]
fn outputs_are_counted_until_they_are_reset() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let one = Arc::new(tensor(&runtime, 0, 10));
    let complete = |within, expected| one.check_output_completion(within, expected);
    complete(None, 0).unwrap();
    assert_eq!(status(complete(Some(Micros(0)), 1)), NrtStatus::Timeout);
    let executor = Arc::clone(&one);
    fake.meanwhile(move || executor.add_output_completion());
    complete(None, 1).unwrap();
    let error = complete(Some(Micros(10)), 2).unwrap_err();
    assert_eq!(error.to_string(), "1 of 2 outputs were complete in time");
    one.reset_output_completion().unwrap();
    assert_eq!(status(complete(Some(Micros(10)), 1)), NrtStatus::Timeout);
}

#[test]
fn cores_of_one_hbm_share_the_limit() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let _live = (tensor(&runtime, 0, 100), tensor(&runtime, 1, 7));
    let stats = |number| runtime.memory_stats(core(number)).unwrap();
    let wanted = |used_bytes| MemoryStats {
        used_bytes,
        limit_bytes: 24 << 30,
    };
    assert_eq!(
        (stats(0), stats(1), stats(2)),
        (wanted(100), wanted(7), wanted(0))
    );
    assert_eq!(status(runtime.memory_stats(core(8))), NrtStatus::Invalid);
}

#[test]
fn the_cores_of_a_logical_core_count_together() {
    let fake = Fake::new(Arch::V3);
    let config = RuntimeConfig {
        lnc_size: 2,
        ..RuntimeConfig::default()
    };
    let (runtime, _) = open_with(&fake, config);
    let _live = (tensor(&runtime, 0, 100), tensor(&runtime, 1, 7));
    let used = |number| runtime.memory_stats(core(number)).unwrap().used_bytes;
    assert_eq!([used(0), used(1), used(2)], [107, 107, 0]);
}

#[test]
fn a_large_host_tensor_is_made_with_a_warning() {
    let fake = Fake::new(Arch::V4);
    let (runtime, log) = open(&fake);
    let host =
        |size_bytes| Tensor::allocate(&runtime, core(0), Placement::Host, size_bytes, "y").unwrap();
    let _live = (host(4 << 20), host((4 << 20) + 1));
    let lines = log.take();
    assert_eq!(lines.len(), 1);
    let wanted = "Tensor y has 4194305 bytes in host memory, which is meant for 4194304 at most\n";
    assert!(lines[0].ends_with(wanted), "{}", lines[0]);
}

#[test]
fn placements_are_numbers_of_which_one_is_gone() {
    assert_eq!(Placement::try_from(0).unwrap(), Placement::Device);
    assert_eq!(Placement::try_from(1).unwrap(), Placement::Host);
    assert_eq!(status(Placement::try_from(2)), NrtStatus::Invalid);
}

#[test]
fn the_gate_lets_calls_through_between_init_and_close() {
    let fake = Fake::new(Arch::V3);
    let open = || {
        let transport = Arc::clone(&fake) as Arc<dyn Transport>;
        Runtime::open(transport, &[DEVICE], RuntimeConfig::default())
    };
    let process = Process::new();
    process.close();
    let error = process.runtime().err().unwrap();
    assert_eq!(error.status(), NrtStatus::Uninitialized);
    assert_eq!(error.to_string(), "NRT uninitialized");
    // One that fails leaves it as it was.
    let missing = || {
        let transport = Arc::clone(&fake) as Arc<dyn Transport>;
        Runtime::open(transport, &[DeviceId::new(9)], RuntimeConfig::default())
    };
    assert_eq!(status(process.init(missing)), NrtStatus::Failure);
    let runtime = process.init(open).unwrap();
    assert_eq!(status(process.init(open)), NrtStatus::Failure);
    let mut one = tensor(&process.runtime().unwrap(), 0, 10);
    let model = runtime.load_model(core(0), "m").unwrap();

    process.close();

    let error = process.runtime().err().unwrap();
    assert_eq!(
        (error.status(), error.to_string().as_str()),
        (NrtStatus::Closed, "NRT already closed")
    );
    assert_eq!(status(process.init(open)), NrtStatus::Closed);
    // What is left knows, too, and is freed all the same.
    let closed = [
        status(one.read(0, &mut [0])),
        status(one.write(0, &[0])),
        status(one.fill(0, 1, 0)),
        status(one.slice(0, 1, "")),
        status(one.copy_to(0, &one, 0, 1)),
        status(one.allocation_info()),
        status(one.check_output_completion(None, 0)),
        status(one.reset_output_completion()),
        status(write_some(&one, Fencing::Fenced)),
        status(one.attach_buffer(buffer(1))),
        status(Tensor::allocate_empty(&runtime, "e")),
        status(Tensor::allocate(
            &runtime,
            core(0),
            Placement::Device,
            1,
            "",
        )),
        status(runtime.memory_stats(core(0))),
        status(runtime.load_model(core(0), "m")),
        status(model.allocate(&AllocSpec::device(1, MemUsage::Weight))),
        status(model.reserve_scratchpad(&[])),
    ];
    assert!(
        closed.iter().all(|&status| status == NrtStatus::Closed),
        "{closed:?}"
    );
    drop((one, model, runtime));
    assert_eq!(fake.live_chunks(), 0);
}

#[test]
fn a_forked_child_may_not_use_the_runtime() {
    let fake = Fake::new(Arch::V3);
    let process = Process::new();
    process.forked();
    let open = || {
        let transport = Arc::clone(&fake) as Arc<dyn Transport>;
        Runtime::open(transport, &[DEVICE], RuntimeConfig::default())
    };
    process.init(open).unwrap();
    process.forked();
    let error = process.runtime().err().unwrap();
    assert_eq!(error.status(), NrtStatus::Failure);
    assert_eq!(error.to_string(), "Incompatible runtime state");
}

#[test]
fn what_a_forked_child_has_of_the_runtime_reaches_no_driver() {
    let fake = Fake::new(Arch::V3);
    let process = Process::new();
    let open = || {
        let transport = Arc::clone(&fake) as Arc<dyn Transport>;
        Runtime::open(transport, &[DEVICE], RuntimeConfig::default())
    };
    let runtime = process.init(open).unwrap();
    let mut one = tensor(&runtime, 0, 10);
    let other = tensor(&runtime, 0, 10);
    let model = runtime.load_model(core(0), "m").unwrap();
    let calls = fake.state().calls;

    process.forked();

    let allocated = Tensor::allocate(&runtime, core(0), Placement::Device, 1, "");
    let refused = [
        one.read(0, &mut [0]).err(),
        one.write(0, &[0]).err(),
        one.fill(0, 1, 0).err(),
        one.slice(0, 1, "").err(),
        one.copy_to(0, &other, 0, 1).err(),
        one.allocation_info().err(),
        one.check_output_completion(None, 0).err(),
        one.reset_output_completion().err(),
        write_some(&one, Fencing::Fenced).err(),
        write_some(&one, Fencing::Unfenced).err(),
        one.attach_buffer(buffer(1)).err(),
        Tensor::allocate_empty(&runtime, "e").err(),
        allocated.err(),
        runtime.memory_stats(core(0)).err(),
        runtime.load_model(core(0), "m").err(),
        model
            .allocate(&AllocSpec::device(1, MemUsage::Weight))
            .err(),
        model.reserve_scratchpad(&[]).err(),
    ];
    for error in refused {
        let error = error.unwrap();
        assert_eq!(error.status(), NrtStatus::Failure);
        assert_eq!(error.to_string(), "Incompatible runtime state");
    }
    assert_eq!(fake.state().calls, calls);
}

/// Writes a byte to each of two tensors in one batch copy.
fn write_both(one: &Tensor, other: &Tensor, fencing: Fencing) -> Result<(), RuntimeError> {
    let ops = [WriteOp {
        offset_bytes: 0,
        bytes: &[1],
    }];
    let batches = [one, other].map(|tensor| WriteBatch { tensor, ops: &ops });
    write_batches(&batches, fencing)
}

#[test]
fn a_copy_looks_at_the_state_of_both_runtimes() {
    let fake = Fake::new(Arch::V3);
    let ((open_one, _), (closed_one, _)) = (open(&fake), open(&fake));
    let process = Process::new();
    let forked_one = process.init(|| Ok(open(&fake).0)).unwrap();
    let (open, closed) = (tensor(&open_one, 0, 10), tensor(&closed_one, 0, 10));
    let forked = tensor(&forked_one, 0, 10);
    // As long as all are open, their memory is that of one process.
    open.write(0, &[7]).unwrap();
    open.copy_to(0, &closed, 0, 1).unwrap();
    assert_eq!(bytes(&closed, 0), [7]);
    write_both(&open, &forked, Fencing::Fenced).unwrap();
    assert_eq!(bytes(&forked, 0), [1]);

    closed_one.close();
    process.forked();

    let calls = fake.state().calls;
    for (gone, wanted) in [
        (&closed, "NRT already closed"),
        (&forked, "Incompatible runtime state"),
    ] {
        let refused = [
            open.copy_to(0, gone, 0, 1),
            gone.copy_to(0, &open, 0, 1),
            write_both(&open, gone, Fencing::Fenced),
            write_both(gone, &open, Fencing::Unfenced),
        ];
        for error in refused {
            assert_eq!(error.unwrap_err().to_string(), wanted);
        }
    }
    assert_eq!(fake.state().calls, calls);
}

#[test]
fn tensors_of_two_machines_are_not_copied_between() {
    let (here, there) = (Fake::new(Arch::V3), Fake::new(Arch::V3));
    let config = RuntimeConfig {
        process: Some(Pid::new(8)),
        ..RuntimeConfig::default()
    };
    let ((near, _), (far, _)) = (open(&here), open_with(&there, config));
    // Each driver has the same number for its first tensor.
    let (one, other) = (tensor(&near, 0, 10), tensor(&far, 0, 10));
    let mut host = Tensor::allocate_empty(&far, "host").unwrap();
    host.attach_buffer(buffer(10)).unwrap();
    let calls = (here.state().calls, there.state().calls);

    let refused = [
        one.copy_to(0, &other, 0, 1),
        write_both(&one, &other, Fencing::Fenced),
        write_both(&one, &other, Fencing::Unfenced),
    ];
    for error in refused {
        let error = error.unwrap_err();
        assert_eq!(error.status(), NrtStatus::Invalid);
        assert_eq!(
            error.to_string(),
            "one copy takes tensors of one process, and tensor \"t\" and tensor \"t\" (pid 8) are of two"
        );
    }
    assert_eq!(status(host.copy_to(0, &one, 0, 1)), NrtStatus::Invalid);
    assert_eq!((here.state().calls, there.state().calls), calls);
}

#[test]
fn storages_of_two_runtimes_are_fenced_each_by_itself() {
    let fake = Fake::new(Arch::V3);
    let ((near, _), (far, _)) = (open(&fake), open(&fake));
    // The first of each.
    let (one, other) = (tensor(&near, 0, 10), tensor(&far, 0, 10));
    let writing = one.write_fence();
    fake.meanwhile(move || drop(writing));
    one.copy_to(0, &other, 0, 1).unwrap();
    assert!(!fake.nobody_waited());
    let reading = other.read_fence();
    fake.meanwhile(move || drop(reading));
    one.copy_to(0, &other, 0, 1).unwrap();
    assert!(!fake.nobody_waited());
    let reading = other.read_fence();
    fake.meanwhile(move || drop(reading));
    write_both(&one, &other, Fencing::Fenced).unwrap();
    assert!(!fake.nobody_waited());
}

#[test]
fn a_runtime_that_is_closed_while_it_comes_up_does_not_come_up() {
    let fake = Fake::new(Arch::V3);
    let process = Process::new();
    let open = || {
        let transport = Arc::clone(&fake) as Arc<dyn Transport>;
        let opened = Runtime::open(transport, &[DEVICE], RuntimeConfig::default());
        process.close();
        opened
    };
    assert_eq!(status(process.init(open)), NrtStatus::Closed);
    assert_eq!(status(process.runtime()), NrtStatus::Closed);
    assert_eq!(fake.live_chunks(), 0);
    assert_eq!(fake.state().open, []);
    // One that cannot be opened is closed all the same.
    let process = Process::new();
    let missing = || {
        process.close();
        let transport = Arc::clone(&fake) as Arc<dyn Transport>;
        Runtime::open(transport, &[DeviceId::new(9)], RuntimeConfig::default())
    };
    assert_eq!(status(process.init(missing)), NrtStatus::Failure);
    assert_eq!(status(process.runtime()), NrtStatus::Closed);
}

#[test]
fn a_tensor_without_a_name_has_that_of_the_unknown() {
    let fake = Fake::new(Arch::V3);
    let (runtime, _) = open(&fake);
    let tensor = Tensor::allocate(&runtime, core(0), Placement::Device, 8, "").unwrap();
    let slice = tensor.slice(0, 1, "").unwrap();
    let named = tensor.slice(0, 1, "s").unwrap();
    assert_eq!(
        [tensor.name(), slice.name(), named.name()],
        ["_unknown_", "_unknown_", "s"]
    );
}
