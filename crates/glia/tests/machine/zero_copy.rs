//! Zero copies as a process asks for them: by command words, with every refusal in its order, and
//! with completions read from mapped memory.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId, Fd, McHandle, Pid};
use glia_abi::ioctl::{
    self, GetAsyncH2tDmaComplQueues, MemBufZerocopy64, MemBufZerocopy64Batches, ZerocopyBatch,
    ZerocopyOp,
};
use glia_abi::mem::Location;
use glia_abi::sched::Micros;
use glia_abi::transport::{Lent, OpenMode, Transport, UserBuffer, user_addr};
use glia_abi::usage::Category;
use glia_runtime::ndl::{self, ChunkSpec, Completions, Device, NdlError, ZeroCopyBatch};
use zerocopy::IntoBytes;

const DEVICE: DeviceId = DeviceId::new(0);
const CORE: CoreId = CoreId::new(0);
const CHUNK: u64 = 4 << 20;

fn machine(model: Model, mode: SchedMode) -> Machine {
    let mut config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 512 << 20,
        },
        ..MachineConfig::new(model).with_mode(mode)
    };
    config.params.zerocopy_trn1_override = true;
    Machine::new(config).unwrap()
}

/// A process with a chunk of HBM, or of host memory.
struct Client {
    process: Arc<Process>,
    device: Arc<Device>,
    fd: Fd,
    chunk: McHandle,
}

impl Client {
    fn new(machine: &Machine, pid: u32, location: Location) -> Self {
        let process = machine.process(Pid::new(pid));
        let device = Device::open(Arc::clone(&process) as Arc<_>, DEVICE).unwrap();
        let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
        let chunk = device.allocate(&ChunkSpec {
            size_bytes: CHUNK,
            align_bytes: 0,
            location,
            channel: Channel::new(0),
            core: CORE,
            category: match location {
                Location::Device => Category::TENSORS_DEVICE,
                Location::Host => Category::TENSORS_HOST,
            },
        });
        Self {
            chunk: chunk.unwrap(),
            process,
            device,
            fd,
        }
    }

    fn content(&self, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let mapping = self.device.map(self.chunk, CHUNK).unwrap();
        mapping.read(0, &mut bytes).unwrap();
        bytes
    }

    fn send(&self, arg: &mut MemBufZerocopy64, lent: &mut [Lent<'_>]) -> Result<i32, Errno> {
        let word = ioctl::MEM_BUF_ZEROCOPY64;
        self.process.ioctl(self.fd, word, arg.as_mut_bytes(), lent)
    }

    /// One batch of these operations, changed.
    fn send_batch(
        &self,
        ops: &[ZerocopyOp],
        change: impl FnOnce(&mut MemBufZerocopy64Batches, &mut ZerocopyBatch),
        user: &[u8],
    ) -> Result<i32, Errno> {
        let mut batch = ZerocopyBatch {
            mem_handle: u64::from(self.chunk.get()),
            ops_ptr: user_addr(ops.as_bytes()).get(),
            num_ops: u32::try_from(ops.len()).unwrap(),
            ..ZerocopyBatch::default()
        };
        let mut arg = MemBufZerocopy64Batches {
            num_batches: 1,
            is_copy_to_device: 1,
            h2t_qid: -1,
            ..MemBufZerocopy64Batches::default()
        };
        let mut boxed = [batch];
        arg.batches = user_addr(boxed.as_bytes()).get();
        change(&mut arg, &mut batch);
        boxed[0] = batch;
        let lent = [user, ops.as_bytes(), boxed.as_bytes()];
        let mut lent = lent.map(Lent::In);
        let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
        let bytes = arg.as_mut_bytes();
        self.process.ioctl(self.fd, word, bytes, &mut lent)
    }

    fn buffer(&self, bytes: &[u8]) -> Arc<dyn UserBuffer> {
        let buffer = self.process.buffer(bytes.len() as u64).unwrap();
        buffer.write(0, bytes).unwrap();
        buffer
    }

    /// The whole buffer to the chunk's start, or from it.
    fn begin(
        &self,
        buffer: &Arc<dyn UserBuffer>,
        to_device: bool,
        sequence: u64,
    ) -> Result<(), NdlError> {
        let ops = [ndl::ZeroCopyOp {
            chunk_offset_bytes: 0,
            buffer,
            buffer_offset_bytes: 0,
            size_bytes: buffer.size_bytes(),
        }];
        let batch = ZeroCopyBatch {
            handle: self.chunk,
            ops: &ops,
            context: sequence * 3,
        };
        self.device.zero_copy_batches(&[batch], to_device, sequence)
    }
}

fn pattern(size: usize, seed: usize) -> Vec<u8> {
    (0..size)
        .map(|index| u8::try_from((index * 31 + index / 256 * 17 + seed) % 251).unwrap())
        .collect()
}

fn ends(completions: &mut Completions) -> Vec<(u64, i64)> {
    std::iter::from_fn(|| completions.take())
        .map(|it| (it.sequence, it.result))
        .collect()
}

#[test]
fn bytes_go_both_ways_between_user_memory_and_either_kind_of_chunk() {
    for model in Model::ALL {
        let machine = machine(model, SchedMode::Inline);
        for location in [Location::Device, Location::Host] {
            let client = Client::new(&machine, 7, location);
            // The small ones through BAR4, or not: 4,097 is no multiple of 4.
            for (seed, size) in [4096, 4097, 8192, 8196, 1_000_000].into_iter().enumerate() {
                let bytes = pattern(size, seed);
                let (device, chunk) = (&client.device, client.chunk);
                device.zero_copy_write(chunk, 0, &bytes, 8192).unwrap();
                assert!(client.content(size) == bytes, "{model:?} {location} {size}");
                let mut back = vec![0; size];
                device.zero_copy_read(chunk, 0, &mut back).unwrap();
                assert!(back == bytes, "{model:?} {location} {size}");
            }
        }
        assert_eq!(machine.host().pinned_bytes(), 0);
    }
}

#[test]
fn a_small_write_goes_through_bar4_only_if_all_of_it_may() {
    let machine = machine(Model::Trn2, SchedMode::Inline);
    let client = Client::new(&machine, 7, Location::Device);
    let announced = || {
        let dma = machine.driver().dma(DEVICE).unwrap();
        dma.queue_state(CORE).unwrap().announced
    };
    let bytes = pattern(16_384, 1);
    // Offset, size, threshold.
    let through_bar4 = [(0, 8192, 8192), (4, 4, 4), (0, 0, 0), (8, 8192, u32::MAX)];
    let by_engine = [
        (0, 8196, u32::MAX),
        (0, 4096, 4095),
        (2, 4, 64),
        (0, 6, 64),
        (0, 4, 0),
    ];
    for (cases, is_bar4) in [(&through_bar4[..], true), (&by_engine[..], false)] {
        for &(offset, size, threshold) in cases {
            let before = announced();
            let chunk = client.chunk;
            let written = client
                .device
                .zero_copy_write(chunk, offset, &bytes[..size], threshold);
            written.unwrap();
            let case = (offset, size, threshold);
            assert_eq!(announced() == before, is_bar4, "{case:?}");
            let from = usize::try_from(offset).unwrap();
            assert!(client.content(from + size)[from..] == bytes[..size]);
        }
    }
}

/// Each refusal with everything behind it wrong, too, so that the order shows.
#[test]
fn one_range_is_refused_in_the_order_of_the_reference() {
    for model in Model::ALL {
        let machine = machine(model, SchedMode::Inline);
        let client = Client::new(&machine, 7, Location::Device);
        let bytes = [9_u8; 64];
        let right = MemBufZerocopy64 {
            mem_handle: u64::from(client.chunk.get()),
            buffer: user_addr(&bytes).get(),
            size: 64,
            offset: 0,
            is_copy_to_device: 1,
            h2t_qid: -1,
            ..MemBufZerocopy64::default()
        };
        let try_with = |change: &dyn Fn(&mut MemBufZerocopy64)| {
            let mut arg = right;
            change(&mut arg);
            client.send(&mut arg, &mut [Lent::In(&bytes)])
        };
        type Change = fn(&mut MemBufZerocopy64);
        // From the last check to the first.
        let faults: [(Change, Errno); 4] = [
            (|arg| arg.h2t_qid = 5, Errno::ENOENT),
            (|arg| arg.buffer = 0x1000, Errno::EFAULT),
            (|arg| arg.offset = CHUNK - 63, Errno::EINVAL),
            (|arg| arg.mem_handle = 0xdead, Errno::EINVAL),
        ];
        for (number, (_, errno)) in faults.iter().enumerate() {
            let refused = try_with(&|arg| {
                let all = faults[..=number].iter();
                all.for_each(|(change, _)| change(arg));
            });
            assert_eq!(refused, Err(*errno), "{model:?}, fault {number}");
        }
        for k in [1, 2, 63, 64, 4096] {
            let wraps = try_with(&|arg| {
                (arg.offset, arg.size) = (0_u64.wrapping_sub(k), k + 1);
            });
            assert_eq!(wraps, Err(Errno::EINVAL), "{model:?}, 2^64 - {k}");
        }
        assert_eq!(try_with(&|arg| arg.size = 0), Ok(0), "nothing is no fault");
        assert_eq!(client.content(64), [0; 64], "nothing was written");
        assert_eq!(try_with(&|_| ()), Ok(0));
        assert_eq!(client.content(64), [9; 64]);
        // Lent to be read.
        let refused = try_with(&|arg| arg.is_copy_to_device = 0);
        assert_eq!(refused, Err(Errno::EFAULT));
    }
}

#[test]
fn batches_are_refused_in_the_order_of_the_reference_and_those_before_stay_done() {
    let machine = machine(Model::Trn2, SchedMode::Inline);
    let client = Client::new(&machine, 7, Location::Device);
    let bytes = pattern(64, 3);
    let op = |offset, size| ZerocopyOp {
        offset,
        size,
        buffer: user_addr(&bytes).get(),
    };
    let good = [op(0, 64)];
    type Change = fn(&mut MemBufZerocopy64Batches, &mut ZerocopyBatch);
    let faults: [(Change, Errno); 8] = [
        (|arg, _| arg.batches = 0, Errno::EINVAL),
        (|arg, _| arg.num_batches = 0, Errno::EINVAL),
        (|arg, _| arg.num_batches = u32::MAX, Errno::ENOMEM),
        (|arg, _| arg.num_batches = 2, Errno::EFAULT),
        (|_, batch| batch.num_ops = 0, Errno::EINVAL),
        (|_, batch| batch.ops_ptr = 0, Errno::EINVAL),
        (|_, batch| batch.num_ops = 2, Errno::EFAULT),
        (|_, batch| batch.mem_handle = 0xdead, Errno::EINVAL),
    ];
    for (number, (change, errno)) in faults.into_iter().enumerate() {
        let refused = client.send_batch(&good, change, &bytes);
        assert_eq!(refused, Err(errno), "fault {number}");
    }
    let wrong_ops = [
        op(0, 0),
        op(CHUNK - 63, 64),
        op(0_u64.wrapping_sub(8), 9),
        ZerocopyOp {
            buffer: 0,
            ..op(0, 4)
        },
    ];
    for (number, wrong) in wrong_ops.into_iter().enumerate() {
        let refused = client.send_batch(&[good[0], wrong], |_, _| (), &bytes);
        assert_eq!(refused, Err(Errno::EINVAL), "operation {number}");
    }
    // The sum of both offsets wraps to what would be in the chunk.
    let wraps = |_: &mut MemBufZerocopy64Batches, batch: &mut ZerocopyBatch| {
        batch.mem_handle_offset = 0_u64.wrapping_sub(64);
    };
    let refused = client.send_batch(&[op(64, 64)], wraps, &bytes);
    assert_eq!(refused, Err(Errno::EINVAL));
    let nowhere = ZerocopyOp {
        buffer: 0x1000,
        ..op(0, 4)
    };
    let refused = client.send_batch(&[nowhere], |_, _| (), &bytes);
    assert_eq!(refused, Err(Errno::EFAULT));
    let other_queue = |arg: &mut MemBufZerocopy64Batches, _: &mut ZerocopyBatch| arg.h2t_qid = 9;
    let refused = client.send_batch(&good, other_queue, &bytes);
    assert_eq!(refused, Err(Errno::ENOENT));
    assert_eq!(client.content(64), [0; 64], "nothing was written");

    // Not atomic: the first of two batches stays done.
    let buffer = client.buffer(&bytes);
    let range = |chunk_offset_bytes, size_bytes| ndl::ZeroCopyOp {
        chunk_offset_bytes,
        buffer: &buffer,
        buffer_offset_bytes: 0,
        size_bytes,
    };
    let (right, wrong) = ([range(0, 64)], [range(CHUNK, 64)]);
    let batch = |ops| ZeroCopyBatch {
        handle: client.chunk,
        ops,
        context: 0,
    };
    let refused = client
        .device
        .zero_copy_batches(&[batch(&right[..]), batch(&wrong[..])], true, 0);
    assert_eq!(refused.unwrap_err().errno(), Some(Errno::EINVAL));
    assert!(client.content(64) == bytes);
    assert_eq!(machine.host().pinned_bytes(), 0);
}

#[test]
fn without_the_parameter_v2_says_that_it_has_no_zero_copy_and_refuses_it() {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 512 << 20,
        },
        ..MachineConfig::new(Model::Trn1)
    };
    let machine = Machine::new(config).unwrap();
    let client = Client::new(&machine, 7, Location::Device);
    let has_it = |client: &Client| {
        let mut info = ioctl::DriverInfo::default();
        let word = ioctl::DRIVER_INFO_GET;
        let (bytes, fd) = (info.as_mut_bytes(), client.fd);
        client.process.ioctl(fd, word, bytes, &mut []).unwrap();
        info.feature_flags1 & ioctl::feature::ZEROCOPY != 0
    };
    assert!(!has_it(&client));
    let refused = client.device.zero_copy_write(client.chunk, 0, &[1; 100], 0);
    assert_eq!(refused.unwrap_err().errno(), Some(Errno::EINVAL));
    let machine = self::machine(Model::Trn2, SchedMode::Inline);
    assert!(has_it(&Client::new(&machine, 7, Location::Device)));
}

#[test]
fn the_completion_queue_of_a_core_can_be_mapped_and_no_other() {
    for model in Model::ALL {
        let machine = machine(model, SchedMode::Inline);
        let client = Client::new(&machine, 7, Location::Device);
        let profile = machine.arch().profile();
        let ask = |nc_id: u32, qid_bitmap: u32| {
            let mut arg = GetAsyncH2tDmaComplQueues {
                nc_id,
                qid_bitmap,
                ..GetAsyncH2tDmaComplQueues::default()
            };
            let word = ioctl::GET_ASYNC_H2T_DMA_COMPL_QUEUES;
            let bytes = arg.as_mut_bytes();
            let answer = client.process.ioctl(client.fd, word, bytes, &mut []);
            answer.map(|_| arg.queues)
        };
        let cores = profile.cores;
        assert_eq!(ask(cores, 1).unwrap_err(), Errno::EINVAL);
        let last = CoreId::new(cores - 1);
        let number = profile.h2t_queue(last).unwrap().number;
        let queues = ask(last.get(), 1 << number).unwrap();
        let range = queues[number as usize];
        assert_eq!(range.mmap_size, 28_672);
        let again = ask(last.get(), 1 << number).unwrap();
        assert_eq!(again[number as usize], range, "there is one");
        for wrong in [1 << (number + 1), 1 << 16, u32::MAX] {
            assert_eq!(ask(last.get(), wrong).unwrap_err(), Errno::EINVAL);
        }
        let mapped = client.process.mmap(client.fd, range.mmap_offset, 28_672);
        assert!(mapped.unwrap().is_writable());
    }
}

#[test]
fn every_batch_of_a_request_has_a_completion_with_its_context() {
    for mode in [
        SchedMode::Inline,
        SchedMode::Threaded { threads: 2 },
        SchedMode::Virtual { seed: 5 },
    ] {
        let machine = machine(Model::Trn2, mode);
        let work = || {
            let client = Client::new(&machine, 7, Location::Device);
            let mut completions = client.device.completions(CORE).unwrap();
            let bytes = pattern(3_000_000, 4);
            let source = client.buffer(&bytes);
            let range = |from: u64, size_bytes| ndl::ZeroCopyOp {
                chunk_offset_bytes: from,
                buffer: &source,
                buffer_offset_bytes: from,
                size_bytes,
            };
            let (first, second) = (
                [range(0, 4096), range(4096, 995_904)],
                [range(1_000_000, 2_000_000)],
            );
            let batch = |ops, context| ZeroCopyBatch {
                handle: client.chunk,
                ops,
                context,
            };
            let batches = [batch(&first[..], 11), batch(&second[..], 22)];
            let device = &client.device;
            device.zero_copy_batches(&batches, true, 77).unwrap();
            for context in [11, 22] {
                let came = completions.wait(device, Micros(1_000_000)).unwrap();
                assert_eq!((came.sequence, came.result, came.context), (77, 0, context));
            }
            assert_eq!(completions.take(), None);
            assert!(client.content(3_000_000) == bytes, "{mode:?}");
            let target = client.buffer(&vec![0; 3_000_000]);
            client.begin(&target, false, 78).unwrap();
            let came = completions.wait(device, Micros(1_000_000)).unwrap();
            assert_eq!((came.sequence, came.result, came.context), (78, 0, 234));
            let mut back = vec![0; 3_000_000];
            target.read(0, &mut back).unwrap();
            assert!(back == bytes, "{mode:?}");
        };
        match mode {
            SchedMode::Virtual { .. } => machine.run_clients(vec![Box::new(work)]).unwrap(),
            _ => work(),
        }
        assert_eq!(machine.host().pinned_bytes(), 0);
    }
}

#[test]
fn a_small_write_that_nobody_waits_for_has_its_completion_in_its_turn() {
    let machine = machine(Model::Trn2, SchedMode::Inline);
    let client = Client::new(&machine, 7, Location::Device);
    let mut completions = client.device.completions(CORE).unwrap();
    let (large, small) = (pattern(600_000, 1), pattern(64, 2));
    let source = client.buffer(&large);
    client.begin(&source, true, 1).unwrap();
    let ops = [ZerocopyOp {
        offset: 1 << 20,
        size: 64,
        buffer: user_addr(&small).get(),
    }];
    // Stored before the call returns, so that lent memory will do.
    let change = |arg: &mut MemBufZerocopy64Batches, batch: &mut ZerocopyBatch| {
        (arg.sequence_num, batch.bar4_wr_threshold) = (2, 64);
    };
    client.send_batch(&ops, change, &small).unwrap();
    client.begin(&source, true, 3).unwrap();
    assert_eq!(ends(&mut completions), [(1, 0), (2, 0), (3, 0)]);
    assert!(client.content((1 << 20) + 64)[1 << 20..] == small);
    // The engine needs memory that outlives the call.
    let change = |arg: &mut MemBufZerocopy64Batches, _: &mut ZerocopyBatch| arg.sequence_num = 4;
    let refused = client.send_batch(&ops, change, &small);
    assert_eq!(refused, Err(Errno::EFAULT));
    assert_eq!(ends(&mut completions), []);
}

/// The chunk goes to nobody else before the engine is done with it.
#[test]
fn a_chunk_that_is_freed_meanwhile_stays_until_the_request_has_ended() {
    let machine = machine(Model::Trn2, SchedMode::Virtual { seed: 3 });
    let checked = machine.run_clients(vec![Box::new(|| {
        let client = Client::new(&machine, 7, Location::Device);
        let mut completions = client.device.completions(CORE).unwrap();
        let bytes = pattern(4_000_000, 4);
        let source = client.buffer(&bytes);
        let pa = client.device.physical_address(client.chunk).unwrap();
        client.begin(&source, true, 1).unwrap();
        client.device.free(client.chunk).unwrap();
        drop(source);
        let other = Client::new(&machine, 8, Location::Device);
        let other_pa = other.device.physical_address(other.chunk).unwrap();
        assert_ne!(pa, other_pa, "it is still worked on");
        let came = completions
            .wait(&client.device, Micros(10_000_000))
            .unwrap();
        assert_eq!((came.sequence, came.result), (1, 0));
        assert!(other.content(100) == [0; 100]);
    })]);
    checked.unwrap();
    assert_eq!(machine.host().pinned_bytes(), 0);
}

/// A process that dies at any moment of an asynchronous copy leaves nothing, and nothing is written
/// to what was its.
#[test]
fn a_process_that_dies_with_requests_under_way_leaves_the_device_as_it_was() {
    for seed in 0..60 {
        let machine = machine(
            Model::ALL[usize::try_from(seed).unwrap() % 3],
            SchedMode::Virtual { seed },
        );
        let checked = machine.run_clients(vec![Box::new(|| {
            // What stays with the rings is there before.
            drop(
                Client::new(&machine, 6, Location::Device)
                    .device
                    .completions(CORE),
            );
            let stats = || machine.driver().memory(DEVICE).unwrap().stats();
            let before = (stats(), machine.host().pinned_bytes());
            let client = Client::new(&machine, 7, Location::Device);
            let bytes = pattern(2_000_000, 4);
            let (source, target) = (client.buffer(&bytes), client.buffer(&vec![0; 2_000_000]));
            client.begin(&source, true, 1).unwrap();
            client.begin(&target, false, 2).unwrap();
            for _ in 0..seed % 7 {
                machine.sched().pause();
            }
            drop(client);
            let left = || {
                let mut back = vec![0; 2_000_000];
                target.read(0, &mut back).unwrap();
                back
            };
            let at_exit = left();
            assert_eq!(
                (stats(), machine.host().pinned_bytes()),
                before,
                "seed {seed}"
            );
            // Others work, and what was the dead one's stays as it was.
            let other = Client::new(&machine, 8, Location::Device);
            other
                .device
                .zero_copy_write(other.chunk, 0, &bytes, 0)
                .unwrap();
            assert!(other.content(2_000_000) == bytes);
            assert!(left() == at_exit, "seed {seed}");
        })]);
        checked.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
