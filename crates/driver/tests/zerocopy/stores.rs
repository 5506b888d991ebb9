//! Small writes that the processor stores through BAR4: which ones those are, by command words.

use std::sync::{Arc, OnceLock};

use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::errno::Errno;
use glia_abi::event::{NoSink, Sink};
use glia_abi::fault::NoFaults;
use glia_abi::handle::{FileId, Pid};
use glia_abi::ioctl::{
    self, MemAllocV2Mt64, MemBufZerocopy64, MemBufZerocopy64Batches, ZerocopyBatch, ZerocopyOp,
};
use glia_abi::port::{MachineMemory, Port};
use glia_abi::sched::Sched;
use glia_abi::transport::{Caller, OpenMode, UserBuffer};
use glia_device::{AddressSpace, Device, DeviceConfig, HostArena, HostConfig, InlineSched};
use glia_driver::dma::Platform;
use glia_driver::driver::{DeviceSetup, Driver};
use glia_driver::memory::MemoryConfig;
use zerocopy::IntoBytes;

use crate::rig::{CORE, DEVICE, Plan, Rig};
use crate::watch::{Seen, Watch};

const PID: Pid = Pid::new(7);
/// No bound of the caller's.
const ANY: u32 = u32::MAX;
/// Bytes of two pages.
const TWO_PAGES: u64 = 8192;

/// A process with the device open, and user memory.
struct Process {
    driver: Driver,
    watch: Arc<Watch>,
    space: AddressSpace,
    user: Arc<dyn UserBuffer>,
    file: OnceLock<FileId>,
}

impl Process {
    fn new() -> Self {
        let size_bytes = 64 << 20;
        let layout = MemoryLayout::new(Arch::V3, Scale::RegionSize { size_bytes }).unwrap();
        let host = Arc::new(HostArena::new(HostConfig::default()).unwrap());
        let sched: Arc<dyn Sched> = Arc::new(InlineSched::new());
        let sink: Arc<dyn Sink> = Arc::new(NoSink);
        let device = Device::new(
            DeviceConfig::new(DEVICE, layout),
            Arc::clone(&host),
            Arc::clone(&sched),
            Arc::clone(&sink),
            Arc::new(NoFaults),
        );
        let watch = Watch::new(layout.profile(), device.unwrap(), Arc::clone(&host));
        let watch = Arc::new(watch);
        let mut memory = MemoryConfig::new(layout);
        memory.params.mempool_small_pool_size = 4 << 20;
        let setup = DeviceSetup {
            memory,
            port: Arc::clone(&watch) as Arc<dyn Port>,
        };
        let bytes = Arc::clone(&watch) as Arc<dyn MachineMemory>;
        let driver = Driver::new(vec![setup], bytes, sched, sink, Arc::new(NoFaults)).unwrap();
        let space = AddressSpace::new(host);
        let user = space.buffer(4 * TWO_PAGES).unwrap();
        let process = Self {
            driver,
            watch,
            space,
            user,
            file: OnceLock::new(),
        };
        let file = process.call(|caller| process.driver.open(caller, DEVICE, OpenMode::ReadWrite));
        process.file.set(file.unwrap()).unwrap();
        process
    }

    fn call<R>(&self, work: impl FnOnce(&Caller<'_>) -> R) -> R {
        self.space.call(&mut [], &mut [], |memory| {
            work(&Caller {
                pid: PID,
                memory,
                killed: &|| false,
            })
        })
    }

    fn put(&self, bytes: &[u8]) -> Arc<dyn UserBuffer> {
        let buffer = self.space.buffer(bytes.len() as u64).unwrap();
        buffer.write(0, bytes).unwrap();
        buffer
    }

    fn ioctl(&self, word: u32, argument: &[u8]) -> Result<i32, Errno> {
        let argument = self.put(argument);
        let (file, at) = (*self.file.get().unwrap(), argument.address());
        self.call(|caller| self.driver.ioctl(caller, file, word, at))
    }

    fn alloc(&self, argument: MemAllocV2Mt64) -> u64 {
        let handle = self.put(&[0; 8]);
        let argument = MemAllocV2Mt64 {
            size: 1 << 20,
            mem_handle: handle.address().get(),
            ..argument
        };
        self.ioctl(ioctl::MEM_ALLOC_V2MT64, argument.as_bytes())
            .unwrap();
        let mut bytes = [0; 8];
        handle.read(0, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }

    /// A chunk of HBM.
    fn hbm(&self) -> u64 {
        self.alloc(MemAllocV2Mt64 {
            mem_type: 9,
            ..MemAllocV2Mt64::default()
        })
    }

    /// A chunk of host memory.
    fn host(&self) -> u64 {
        self.alloc(MemAllocV2Mt64 {
            host_memory: 1,
            mem_type: 2,
            ..MemAllocV2Mt64::default()
        })
    }

    /// Does it, and says whether the processor stored all of it, or the engine moved all.
    fn is_stored(&self, sizes: &[u64], work: impl FnOnce() -> Result<i32, Errno>) -> bool {
        let announced = || {
            let dma = self.driver.dma(DEVICE).unwrap();
            dma.queue_state(CORE).unwrap().announced
        };
        let before = announced();
        self.watch.take();
        work().unwrap();
        let stored = |seen| match seen {
            Seen::Stored(size_bytes) => size_bytes,
            _ => 0,
        };
        let stored: u64 = self.watch.take().into_iter().map(stored).sum();
        let has_engine = announced() > before;
        let expected = if has_engine { 0 } else { sizes.iter().sum() };
        assert_eq!(stored, expected, "one or the other");
        !has_engine
    }

    /// One range by itself.
    fn one(&self, argument: MemBufZerocopy64) -> bool {
        let argument = MemBufZerocopy64 {
            buffer: self.user.address().get(),
            h2t_qid: -1,
            ..argument
        };
        let word = ioctl::MEM_BUF_ZEROCOPY64;
        self.is_stored(&[argument.size], || self.ioctl(word, argument.as_bytes()))
    }

    /// A batch of ranges, by their offsets and sizes.
    fn batch(&self, batch: ZerocopyBatch, ranges: &[(u64, u64)]) -> bool {
        let op = |&(offset, size): &(u64, u64)| ZerocopyOp {
            offset,
            size,
            buffer: self.user.address().get(),
        };
        let ops: Vec<_> = ranges.iter().map(op).collect();
        let ops = self.put(ops.as_bytes());
        let batch = ZerocopyBatch {
            ops_ptr: ops.address().get(),
            num_ops: u32::try_from(ranges.len()).unwrap(),
            ..batch
        };
        let batches = self.put(batch.as_bytes());
        let argument = MemBufZerocopy64Batches {
            batches: batches.address().get(),
            num_batches: 1,
            is_copy_to_device: 1,
            h2t_qid: -1,
            ..MemBufZerocopy64Batches::default()
        };
        let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
        let sizes: Vec<_> = ranges.iter().map(|&(_, size)| size).collect();
        self.is_stored(&sizes, || self.ioctl(word, argument.as_bytes()))
    }
}

#[test]
fn a_write_is_stored_up_to_the_callers_bound_and_two_pages() {
    let process = Process::new();
    let mem_handle = process.hbm();
    let is_stored = |size, bar4_wr_threshold| {
        process.one(MemBufZerocopy64 {
            mem_handle,
            size,
            is_copy_to_device: 1,
            bar4_wr_threshold,
            ..MemBufZerocopy64::default()
        })
    };
    // The bound itself, and a word more.
    for bound in [4, 64, 4096, 8188_u32] {
        assert!(is_stored(bound.into(), bound), "{bound}");
        assert!(!is_stored(u64::from(bound) + 4, bound), "{bound}");
    }
    assert!(!is_stored(4, 0));
    // Never more than two pages.
    assert!(is_stored(TWO_PAGES, ANY));
    assert!(!is_stored(TWO_PAGES + 4, ANY));
}

#[test]
fn only_whole_words_are_stored() {
    let process = Process::new();
    let mem_handle = process.hbm();
    let is_stored = |offset, size| {
        process.one(MemBufZerocopy64 {
            mem_handle,
            offset,
            size,
            is_copy_to_device: 1,
            bar4_wr_threshold: ANY,
            ..MemBufZerocopy64::default()
        })
    };
    assert!(is_stored(4, 4) && is_stored(8, 12));
    for odd in [1, 2, 3, 5] {
        assert!(!is_stored(odd, 4), "offset {odd}");
        assert!(!is_stored(4, odd), "size {odd}");
    }
}

#[test]
fn neither_reads_nor_writes_of_host_memory_are_stored() {
    let process = Process::new();
    let (hbm, host) = (process.hbm(), process.host());
    let is_stored = |mem_handle, is_copy_to_device| {
        process.one(MemBufZerocopy64 {
            mem_handle,
            size: 64,
            is_copy_to_device,
            bar4_wr_threshold: ANY,
            ..MemBufZerocopy64::default()
        })
    };
    assert!(is_stored(hbm, 1));
    assert!(!is_stored(hbm, 0));
    assert!(!is_stored(host, 1));
    assert!(!is_stored(host, 0));
}

#[test]
fn a_batch_is_stored_only_if_each_of_its_ranges_may_be() {
    let process = Process::new();
    let mem_handle = process.hbm();
    let is_stored = |ranges: &[(u64, u64)]| {
        let batch = ZerocopyBatch {
            mem_handle,
            bar4_wr_threshold: 64,
            ..ZerocopyBatch::default()
        };
        process.batch(batch, ranges)
    };
    // The bound is for each, not for all.
    assert!(is_stored(&[(0, 64), (4096, 64), (64, 4)]));
    for bad in [(4096, 68), (4098, 64), (4096, 6)] {
        assert!(!is_stored(&[(0, 64), bad]), "{bad:?}");
        assert!(!is_stored(&[bad, (0, 64)]), "{bad:?}");
    }
}

/// The offset of the batch counts, too: what matters is where the bytes go.
#[test]
fn a_range_of_a_batch_begins_at_a_word_of_the_chunk() {
    let process = Process::new();
    let mem_handle = process.hbm();
    let is_stored = |mem_handle_offset, offset| {
        let batch = ZerocopyBatch {
            mem_handle,
            mem_handle_offset,
            bar4_wr_threshold: 64,
            ..ZerocopyBatch::default()
        };
        process.batch(batch, &[(offset, 8)])
    };
    assert!(is_stored(4, 4) && is_stored(2, 2));
    assert!(!is_stored(2, 4) && !is_stored(4, 2));
}

/// The processor's stores do not reach HBM there.
#[test]
fn an_emulated_device_has_no_stores() {
    let has_bar4 = |platform| {
        let rig = Rig::with(Plan {
            platform,
            ..Plan::of(Arch::V3)
        });
        rig.dma.has_bar4()
    };
    assert!(has_bar4(Platform::Hardware));
    assert!(!has_bar4(Platform::Emulator));
    assert!(!has_bar4(Platform::Qemu));
}
