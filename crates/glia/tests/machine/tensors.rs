//! Tensors, batches and scratchpads of the runtime over a whole machine.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, Fd, Pid};
use glia_abi::insight::PoolSnapshot;
use glia_abi::ioctl::{self, feature};
use glia_abi::mem_usage::MemUsage;
use glia_abi::sched::Sched;
use glia_abi::transport::{Lent, Mapping, OpenMode, Transport, UserBuffer};
use glia_runtime::config::PageSize;
use glia_runtime::dml::ReportProfile;
use glia_runtime::ndl::{ChunkSpec, Device};
use glia_runtime::tensor::{
    Fencing, ReadBatch, ReadOp, WriteBatch, WriteOp, read_batches, write_batches,
};
use glia_runtime::{AllocSpec, Core, Placement, Runtime, RuntimeConfig, ScratchVariable, Tensor};

const DEVICE: DeviceId = DeviceId::new(0);
const CORE: Core = Core {
    device: DEVICE,
    core: CoreId::new(0),
};
const SIZE: u64 = 100_000;

fn open(machine: &Machine, pid: u32, config: RuntimeConfig) -> Runtime {
    Runtime::open(machine.process(Pid::new(pid)) as Arc<_>, &[DEVICE], config).unwrap()
}

fn tensor(runtime: &Runtime, name: &str) -> Tensor {
    Tensor::allocate(runtime, CORE, Placement::Device, SIZE, name).unwrap()
}

fn pattern() -> Vec<u8> {
    (0..=250).cycle().take(50_000).collect()
}

/// Zero copies on Trn2, range by range through the copy buffer on Trn1.
#[test]
fn batches_fills_and_copies_move_exactly_their_bytes() {
    for model in [Model::Trn1, Model::Trn2] {
        let machine = Machine::new(MachineConfig::new(model)).unwrap();
        let runtime = open(&machine, 7, RuntimeConfig::default());
        let (source, target) = (tensor(&runtime, "source"), tensor(&runtime, "target"));
        let view = source.slice(5000, 60_000, "view").unwrap();
        let data = pattern();
        let ops = [
            WriteOp {
                offset_bytes: 3,
                bytes: &data,
            },
            WriteOp {
                offset_bytes: 0,
                bytes: &[9],
            },
        ];
        let batch = WriteBatch {
            tensor: &view,
            ops: &ops,
        };
        write_batches(&[batch], Fencing::Fenced).unwrap();

        let (mut back, mut one) = (vec![0; data.len()], [0]);
        let mut all = [ReadOp {
            offset_bytes: 5003,
            into: &mut back,
        }];
        let mut first = [ReadOp {
            offset_bytes: 0,
            into: &mut one,
        }];
        let mut batches = [
            ReadBatch {
                tensor: &source,
                ops: &mut all,
            },
            ReadBatch {
                tensor: &view,
                ops: &mut first,
            },
        ];
        read_batches(&mut batches, Fencing::Fenced).unwrap();
        assert!(back == data && one == [9], "{model:?}");

        view.copy_to(3, &target, 100, 50_000).unwrap();
        target.fill(100, 10, 7).unwrap();
        target.read(100, &mut back).unwrap();
        assert_eq!(back[..12], [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 10, 11]);
        assert!(back[12..] == data[12..]);
    }
}

#[test]
fn a_contiguous_scratchpad_grows_and_shrinks_by_pages_of_64_mib() {
    for model in [Model::Trn1, Model::Trn2] {
        let machine = Machine::new(MachineConfig::new(model)).unwrap();
        let config = RuntimeConfig {
            contiguous_scratchpad: true,
            // The gate: not on a core that stands alone on an arch above V2.
            lnc_size: 2,
            ..RuntimeConfig::default()
        };
        let runtime = open(&machine, 7, config);
        let pages = || runtime.scratchpad(CORE).unwrap().pages.len();
        let load = |name, mib: u64| {
            let model = runtime.load_model(CORE, name).unwrap();
            let variable = ScratchVariable {
                offset_bytes: 0,
                size_bytes: mib << 20,
            };
            model.reserve_scratchpad(&[variable]).unwrap();
            model
        };
        let small = load("small", 100);
        assert_eq!(pages(), 2, "{model:?}");
        let large = load("large", 300);
        assert_eq!(pages(), 5);
        drop(large);
        assert_eq!(pages(), 2);
        drop(small);
        assert_eq!(pages(), 0);
    }
}

/// The documented example of the scratchpad, all three columns: shared and private bytes in MiB.
#[test]
fn the_documented_example_has_what_the_document_says_with_each_kind_of_scratchpad() {
    const A: [(u64, u64); 2] = [(0, 512), (512, 1024)];
    const B: [(u64, u64); 2] = [(0, 100), (100, 1536)];
    let held = |config: RuntimeConfig| {
        let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
        let runtime = open(&machine, 7, config);
        let models = [A, B].map(|variables| {
            let model = runtime.load_model(CORE, "m").unwrap();
            let variables = variables.map(|(offset_mib, size_mib)| ScratchVariable {
                offset_bytes: offset_mib << 20,
                size_bytes: size_mib << 20,
            });
            model.reserve_scratchpad(&variables).unwrap();
            model
        });
        let table = runtime.usage(CORE.device).unwrap();
        let present = table.core(CORE.core).unwrap().present;
        let shared = present.get(MemUsage::Scratchpad) >> 20;
        let private = present.get(MemUsage::ScratchpadNotShared) >> 20;
        let text = table.text(ReportProfile::Runtime2_31);
        let info = runtime.scratchpad(CORE).unwrap();
        drop(models);
        ((shared, private), info.page_size_bytes >> 20, text)
    };
    let paged = |mib| RuntimeConfig {
        scratchpad_page: PageSize::from_mib(mib).unwrap(),
        ..RuntimeConfig::default()
    };
    let contiguous = RuntimeConfig {
        contiguous_scratchpad: true,
        lnc_size: 2,
        ..RuntimeConfig::default()
    };
    let (small, page_mib, text) = held(paged(512));
    assert_eq!((small, page_mib), ((2048, 2560), 512));
    assert!(text.contains("| 2.000GB  | 2.500GB  |"), "{text}");
    let (large, page_mib, text) = held(paged(2048));
    assert_eq!((large, page_mib), ((2048, 0), 2048));
    assert!(text.contains("| 2.000GB  |  0.000B  |"), "{text}");
    // 1,636 MiB in pages of 64 MiB.
    let (contiguous, page_mib, text) = held(contiguous);
    assert_eq!((contiguous, page_mib), ((26 * 64, 0), 64));
    assert!(text.contains("| 1.625GB  |  0.000B  |"), "{text}");
}

#[test]
fn with_zero_copy_on_what_is_written_is_read() {
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let config = RuntimeConfig {
        zero_copy: true,
        ..RuntimeConfig::default()
    };
    let runtime = open(&machine, 7, config);
    let (tensor, data) = (tensor(&runtime, "t"), pattern());
    tensor.write(77, &data).unwrap();
    let mut back = vec![0; data.len()];
    tensor.read(77, &mut back).unwrap();
    assert!(back == data);
}

/// An older driver: fewer features, and commands that it does not know.
struct Old {
    inner: Arc<dyn Transport>,
    /// `None`: it does not know the question.
    features: Option<u64>,
    lacks: &'static [u32],
    errno: Errno,
    /// The words that it was sent.
    sent: Mutex<BTreeSet<u32>>,
}

/// The newest form of each command that has older ones.
const NEWEST: [u32; 5] = [
    ioctl::MEM_ALLOC_V2MT64,
    ioctl::MEM_COPY64,
    ioctl::MEM_COPY_ASYNC64,
    ioctl::MEMSET64,
    ioctl::MEM_BUF_COPY64,
];
const NEWER: [u32; 9] = [
    ioctl::MEM_ALLOC_V2MT64,
    ioctl::MEM_ALLOC_V2MT,
    ioctl::MEM_ALLOC_V2,
    ioctl::MEM_COPY64,
    ioctl::MEM_COPY_ASYNC64,
    ioctl::MEM_COPY_ASYNC,
    ioctl::MEMSET64,
    ioctl::MEM_BUF_COPY64,
    ioctl::DRIVER_INFO_GET,
];

impl Old {
    fn new(
        machine: &Machine,
        features: Option<u64>,
        lacks: &'static [u32],
        errno: Errno,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: machine.process(Pid::new(7)) as Arc<_>,
            features,
            lacks,
            errno,
            sent: Mutex::default(),
        })
    }

    fn take_sent(&self) -> BTreeSet<u32> {
        std::mem::take(&mut *self.sent.lock().unwrap())
    }
}

impl Transport for Old {
    fn open(&self, device: DeviceId, mode: OpenMode) -> Result<Fd, Errno> {
        self.inner.open(device, mode)
    }

    fn dup(&self, fd: Fd) -> Result<Fd, Errno> {
        self.inner.dup(fd)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.inner.close(fd)
    }

    fn ioctl(
        &self,
        fd: Fd,
        word: u32,
        arg: &mut [u8],
        lent: &mut [Lent<'_>],
    ) -> Result<i32, Errno> {
        self.sent.lock().unwrap().insert(word);
        if self.lacks.contains(&word) {
            return Err(self.errno);
        }
        let answer = self.inner.ioctl(fd, word, arg, lent)?;
        if word == ioctl::DRIVER_INFO_GET {
            let all = u64::from_ne_bytes(arg[16..24].try_into().unwrap());
            let left = all & self.features.unwrap();
            arg[16..24].copy_from_slice(&left.to_ne_bytes());
        }
        Ok(answer)
    }

    fn mmap(&self, fd: Fd, offset: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Errno> {
        self.inner.mmap(fd, offset, size_bytes)
    }

    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        self.inner.buffer(size_bytes)
    }

    fn sched(&self) -> &dyn Sched {
        self.inner.sched()
    }

    fn insight(&self, device: DeviceId) -> Option<PoolSnapshot> {
        self.inner.insight(device)
    }
}

/// Every command that has older forms, with bytes that are right only if all sizes and offsets are.
fn exercise(old: &Arc<Old>) {
    let transport = Arc::clone(old) as Arc<dyn Transport>;
    let runtime = Runtime::open(transport, &[DEVICE], RuntimeConfig::default()).unwrap();
    let (source, target) = (tensor(&runtime, "source"), tensor(&runtime, "target"));
    let data = pattern();
    source.write(3, &data).unwrap();
    source.copy_to(3, &target, 100, 50_000).unwrap();
    target.fill(100, 10, 7).unwrap();
    let mut back = vec![0; data.len()];
    target.read(100, &mut back).unwrap();
    assert!(back[..10] == [7; 10] && back[10..] == data[10..]);
    let aligned = AllocSpec {
        align_bytes: 1 << 20,
        ..AllocSpec::device(5000, MemUsage::Weight)
    };
    let aligned = runtime.allocate(CORE, &aligned).unwrap();
    assert_eq!(aligned.pa().get() % (1 << 20), 0);
    aligned.write(4999, &[1]).unwrap();

    let device = Device::open(Arc::clone(old) as Arc<_>, DEVICE).unwrap();
    let chunk = device.allocate(&ChunkSpec {
        size_bytes: 8192,
        align_bytes: 0,
        location: glia_abi::mem::Location::Device,
        channel: glia_abi::handle::Channel::new(0),
        core: CORE.core,
        category: glia_abi::usage::Category::TENSORS_DEVICE,
    });
    let chunk = chunk.unwrap();
    device.buf_write(chunk, 4000, &data[..300]).unwrap();
    device.buf_read(chunk, 4000, &mut back[..300]).unwrap();
    assert!(back[..300] == data[..300]);
    device.free(chunk).unwrap();
}

#[test]
fn an_older_driver_is_asked_in_the_forms_that_it_has() {
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let middle = feature::ASYNC_DMA | feature::MEM_ALLOC_TYPE;
    for errno in [Errno::EINVAL, Errno::ENOTTY] {
        // Driver with categories and asynchronous copies, before the 64-bit forms.
        let old = Old::new(&machine, Some(middle), &NEWEST, errno);
        exercise(&old);
        let sent = old.take_sent();
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
        // The oldest there can be: no alignment, no category, nothing that is not waited for.
        let oldest = Old::new(&machine, None, &NEWER, errno);
        exercise(&oldest);
        let sent = oldest.take_sent();
        assert!(sent.contains(&ioctl::MEM_ALLOC) && sent.contains(&ioctl::MEM_COPY));
        assert!(!sent.contains(&ioctl::MEM_COPY_ASYNC));
    }
}

#[test]
fn a_driver_that_only_does_not_say_that_it_is_new_is_asked_in_the_newest_forms() {
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let modest = Old::new(&machine, Some(feature::ASYNC_DMA), &[], Errno::EINVAL);
    exercise(&modest);
    let sent = modest.take_sent();
    assert!(NEWEST.iter().all(|word| sent.contains(word)));
    assert!(!sent.contains(&ioctl::MEM_ALLOC_V2MT) && !sent.contains(&ioctl::MEM_COPY));
}

/// One call for parts on both sides of 4 GiB and for one across, by the caller's pages and by the
/// copy buffer.
#[test]
fn a_batch_across_4_gib_moves_exactly_its_bytes() {
    const FOUR_GIB: u64 = 4 << 30;
    for model in Model::ALL {
        let machine = Machine::new(MachineConfig::new(model)).unwrap();
        let runtime = open(&machine, 7, RuntimeConfig::default());
        let size_bytes = FOUR_GIB + SIZE;
        let place = Placement::Device;
        let kv = Tensor::allocate(&runtime, CORE, place, size_bytes, "kv").unwrap();
        let data = pattern();
        let (below, across, beyond) = (&data[..10_000], &data[10_000..30_001], &data[30_001..]);
        let parts = [
            (FOUR_GIB + 40_000, beyond),
            (FOUR_GIB - 9_999, across),
            (5, below),
        ];
        let ops = parts.map(|(offset_bytes, bytes)| WriteOp {
            offset_bytes,
            bytes,
        });
        let batch = WriteBatch {
            tensor: &kv,
            ops: &ops,
        };
        write_batches(&[batch], Fencing::Fenced).unwrap();

        let mut back = parts.map(|(offset, bytes)| (offset, vec![9; bytes.len()]));
        let mut ops = back.each_mut().map(|(offset_bytes, into)| ReadOp {
            offset_bytes: *offset_bytes,
            into,
        });
        let batch = ReadBatch {
            tensor: &kv,
            ops: &mut ops,
        };
        read_batches(&mut [batch], Fencing::Fenced).unwrap();
        for ((_, wrote), (offset, read)) in parts.iter().zip(&back) {
            assert!(wrote == read, "{model:?}, {offset}");
            // By another way.
            let mut alone = vec![0; wrote.len()];
            kv.read(*offset, &mut alone).unwrap();
            assert!(*wrote == alone, "{model:?}, {offset}");
        }
        // Neither the bytes beside nor those 4 GiB below have changed.
        for offset in [FOUR_GIB - 10_000, FOUR_GIB + 10_002, 40_000, 10_005] {
            let mut beside = [7];
            kv.read(offset, &mut beside).unwrap();
            assert_eq!(beside, [0], "{model:?}, {offset}");
        }
    }
}

#[test]
fn beyond_4_gib_an_older_driver_is_not_asked() {
    const FOUR_GIB: u64 = 4 << 30;
    let machine = Machine::new(MachineConfig::new(Model::Trn2)).unwrap();
    let middle = feature::ASYNC_DMA | feature::MEM_ALLOC_TYPE;
    let old = Old::new(&machine, Some(middle), &NEWEST, Errno::EINVAL);
    let transport = Arc::clone(&old) as Arc<dyn Transport>;
    let runtime = Runtime::open(transport, &[DEVICE], RuntimeConfig::default()).unwrap();
    let large =
        |name| Tensor::allocate(&runtime, CORE, Placement::Device, FOUR_GIB + 4096, name).unwrap();
    let (kv, other) = (large("kv"), large("other"));
    kv.write(FOUR_GIB - 4096, &[1; 4096]).unwrap();
    kv.copy_to(FOUR_GIB - 4096, &other, 0, 4096).unwrap();
    kv.fill(FOUR_GIB - 1, 1, 2).unwrap();
    let mut back = [0; 4096];
    other.read(0, &mut back).unwrap();
    assert_eq!(back, [1; 4096]);
    old.take_sent();

    let refused = [
        (kv.write(FOUR_GIB, &[1]), "MEM_COPY_ASYNC", FOUR_GIB),
        (kv.read(FOUR_GIB, &mut [0]), "MEM_COPY_ASYNC", FOUR_GIB),
        (kv.fill(0, FOUR_GIB, 0), "MEMSET", FOUR_GIB),
        (kv.copy_to(0, &other, 0, FOUR_GIB), "MEM_COPY", FOUR_GIB),
        (
            kv.copy_to(FOUR_GIB + 1, &other, 0, 9),
            "MEM_COPY",
            FOUR_GIB + 1,
        ),
    ];
    for (result, call, value) in refused {
        let message = format!(
            "nd 0: {call} of this driver takes 32-bit sizes and offsets, and {value} is more"
        );
        assert_eq!(result.unwrap_err().to_string(), message);
    }
    assert_eq!(old.take_sent(), BTreeSet::new());
}
