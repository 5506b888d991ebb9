//! The two sides: a device with its driver, and plain memory.

use std::cell::RefCell;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::completion::{self, Consumer};
use glia_abi::event::NoSink;
use glia_abi::fault::{FaultPlan, Faults, NoFaults};
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::port::HostMemory as _;
use glia_abi::sched::Sched;
use glia_abi::transport::{Caller, Lent, Mapping, UserBuffer, UserMemory, user_addr};
use glia_device::{
    AddressSpace, Device, DeviceConfig, HostArena, HostConfig, InlineSched, ThreadedSched,
};
use glia_driver::dma::zerocopy::{Reply, ZeroCopy, ZeroCopyLimits, ZeroCopyOp};
use glia_driver::dma::{Dma, DmaConfig, Place, Platform};
use glia_driver::memory::{DeviceMemory, MemoryConfig};
use memmap2::{Advice, MmapMut};

use super::{CopyCase, CopyMode, MIB};
use crate::bench::BenchError;
use crate::bench::timing::{Op, Subject, Tally};
use crate::machine::THREADED_PATIENCE;

const CALLER: Pid = Pid::new(4242);
const DEVICE: DeviceId = DeviceId::new(0);
const CORE: CoreId = CoreId::new(0);
/// Where the windows of HBM begin in their channels: nothing else uses them.
const IN_CHANNEL: u64 = 4 << 30;
const PIECE_BYTES: u64 = 4096;
/// A reading of the clock goes around so many bytes, if they are several operations;
const BATCH_BYTES: u64 = MIB;
/// and around so many operations at most.
const BATCH_MAX: u64 = 64;
/// What is moved before a turn begins.
const WARM_UP_BYTES: u64 = 4 * MIB;

/// How a device is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// On the caller's thread.
    Plain,
    /// The same with a fault plan that holds no rule.
    EmptyPlan,
    /// The engine on a thread of its own.
    Threaded,
}

/// A V3 device, the op layer of its driver, and windows of memory on either side.
pub(super) struct Windows {
    device: Arc<Device>,
    dma: Arc<Dma>,
    window_bytes: u64,
    host: Place,
    near: Place,
    far: Place,
    fresh: Place,
    /// A process, its memory, and what asynchronous requests use of it.
    space: AddressSpace,
    user: RefCell<MmapMut>,
    lasting: Arc<dyn UserBuffer>,
    completions: RefCell<(Arc<dyn Mapping>, Consumer)>,
}

impl Windows {
    /// All but the fresh window are touched.
    pub(super) fn new(window_bytes: u64, kind: Kind) -> Result<Self, BenchError> {
        let layout = MemoryLayout::new(Arch::V3, Scale::Full)?;
        let host = Arc::new(HostArena::new(HostConfig::default())?);
        let sched: Arc<dyn Sched> = match kind {
            Kind::Plain | Kind::EmptyPlan => Arc::new(InlineSched::new()),
            Kind::Threaded => Arc::new(ThreadedSched::new(1)?),
        };
        let faults: Arc<dyn Faults> = match kind {
            Kind::Plain | Kind::Threaded => Arc::new(NoFaults),
            Kind::EmptyPlan => Arc::new(FaultPlan::new(0)),
        };
        let device = Device::new(
            DeviceConfig {
                patience: match kind {
                    Kind::Plain | Kind::EmptyPlan => 1,
                    Kind::Threaded => THREADED_PATIENCE,
                },
                ..DeviceConfig::new(DEVICE, layout)
            },
            Arc::clone(&host),
            Arc::clone(&sched),
            Arc::new(NoSink),
            Arc::clone(&faults),
        )?;
        let memory = DeviceMemory::new(MemoryConfig::new(layout), Arc::clone(&host) as _, faults)?;
        let memory = Arc::new(memory);
        let config = DmaConfig {
            device: DEVICE,
            profile: layout.profile(),
            platform: Platform::Hardware,
            zero_copy: ZeroCopyLimits::default(),
        };
        let dma = Dma::new(
            config,
            Arc::clone(&device) as _,
            Arc::clone(&host) as _,
            Arc::clone(&memory),
            sched,
            Arc::new(NoSink),
        );
        dma.bring_up(CORE)?;
        let host_at = host
            .alloc(DEVICE, window_bytes)
            .ok_or(BenchError::NoHostMemory {
                size_bytes: window_bytes,
            })?;
        let place = |at, location| Place {
            at,
            location,
            core: CORE,
        };
        let mut hbm = layout.regions().filter_map(|region| {
            let at = region.start().checked_add(IN_CHANNEL)?;
            Some(place(at, Location::Device))
        });
        let (Some(near), Some(far), Some(fresh)) = (hbm.next(), hbm.next(), hbm.next()) else {
            return Err(BenchError::NoHostMemory {
                size_bytes: window_bytes,
            });
        };
        let user = touched(window_bytes)?;
        let space = AddressSpace::new(Arc::clone(&host));
        let no_memory = BenchError::NoHostMemory {
            size_bytes: window_bytes,
        };
        let lasting = space.buffer(64 * MIB).map_err(|_| no_memory)?;
        for page in (0..64 * MIB).step_by(4096) {
            // It is as large as that.
            let _ = lasting.write(page, &[1]);
        }
        let chunk = dma.completion_queue(CORE)?;
        let queue = memory.chunk(chunk).and_then(|record| {
            let at = layout.profile().bus_to_host(record.at())?;
            host.mapping(at, record.size_bytes(), true)
        });
        let missing = || BenchError::NoHostMemory {
            size_bytes: completion::SIZE_BYTES,
        };
        let queue = queue.ok_or_else(missing)?;
        let consumer = queue.words(0, completion::SIZE_BYTES).ok();
        let consumer = consumer.and_then(|words| Consumer::attach(words).ok());
        let windows = Self {
            space,
            user: RefCell::new(user),
            lasting,
            completions: RefCell::new((queue, consumer.ok_or_else(missing)?)),
            device,
            dma: Arc::new(dma),
            window_bytes,
            host: place(layout.host_to_bus(host_at), Location::Host),
            near,
            far,
            fresh,
        };
        for window in [windows.host, near, far] {
            windows.dma.fill(CALLER, window, window_bytes, 1)?;
        }
        Ok(windows)
    }

    /// One operation on this part of the windows.
    fn work(&self, mode: CopyMode, range: &Range<u64>) -> Result<(), BenchError> {
        let part = |window: Place, from: u64| Place {
            at: BusAddr::new(window.at.get() + from),
            ..window
        };
        let copy = |from: Place, to: Place, range: &Range<u64>| {
            let size_bytes = range.end - range.start;
            let (from, to) = (part(from, range.start), part(to, range.start));
            self.dma.copy(CALLER, from, to, size_bytes)
        };
        match mode {
            CopyMode::ZcH2d | CopyMode::ZcH2dThreaded => self.zero_copy(true, range)?,
            CopyMode::ZcD2h | CopyMode::ZcD2hThreaded => self.zero_copy(false, range)?,
            CopyMode::ZcSubmit => self.submit(range)?,
            CopyMode::H2d | CopyMode::EmptyPlan => copy(self.host, self.near, range)?,
            CopyMode::D2h => copy(self.near, self.host, range)?,
            CopyMode::D2d => copy(self.near, self.far, range)?,
            CopyMode::Batch => {
                for piece in pieces(range) {
                    copy(self.host, self.near, &piece)?;
                }
            }
            CopyMode::Memset => {
                let target = part(self.near, range.start);
                let size_bytes = range.end - range.start;
                self.dma.fill(CALLER, target, size_bytes, black_box(3))?;
            }
            CopyMode::FirstTouch => copy(self.host, self.fresh, range)?,
        }
        Ok(())
    }

    /// Copies a part of user memory to the same part of HBM, or back.
    fn zero_copy(&self, to_device: bool, range: &Range<u64>) -> Result<(), BenchError> {
        let mut user = self.user.borrow_mut();
        let user = &mut user[indices(range)];
        let ops = [ZeroCopyOp {
            offset_bytes: range.start,
            size_bytes: range.end - range.start,
            buffer: user_addr(user),
        }];
        let mut lent = [match to_device {
            true => Lent::In(user),
            false => Lent::Out(user),
        }];
        self.space.call(&mut [], &mut lent, |memory| {
            self.dma
                .zero_copy(&caller(memory), &self.request(to_device, &ops))
        })?;
        Ok(())
    }

    /// Asks for a part of lasting user memory to be copied to HBM.
    fn submit(&self, range: &Range<u64>) -> Result<(), BenchError> {
        let ops = [ZeroCopyOp {
            offset_bytes: 0,
            size_bytes: range.end - range.start,
            buffer: self.lasting.address(),
        }];
        let reply = Reply {
            sequence: 1,
            context: 0,
        };
        self.space.call(&mut [], &mut [], |memory| {
            let request = self.request(true, &ops);
            self.dma
                .zero_copy_async(&caller(memory), &request, reply, None)
        })?;
        Ok(())
    }

    /// Waits until what was submitted has ended.
    fn await_completion(&self) {
        let mut completions = self.completions.borrow_mut();
        let (queue, consumer) = &mut *completions;
        let Ok(words) = queue.words(0, completion::SIZE_BYTES) else {
            return;
        };
        while consumer.take(words).is_none() {
            std::thread::yield_now();
        }
    }

    fn request<'a>(&self, to_device: bool, ops: &'a [ZeroCopyOp]) -> ZeroCopy<'a> {
        ZeroCopy {
            core: CORE,
            to_device,
            base: self.near.at,
            ops,
        }
    }
}

fn caller(memory: &dyn UserMemory) -> Caller<'_> {
    Caller {
        pid: CALLER,
        memory,
        killed: &|| false,
    }
}

/// Two buffers in huge pages.
pub(super) struct Peer {
    source: MmapMut,
    target: RefCell<MmapMut>,
}

impl Peer {
    /// Both are touched.
    pub(super) fn new(size_bytes: u64) -> Result<Self, BenchError> {
        Ok(Self {
            source: touched(size_bytes)?,
            target: RefCell::new(touched(size_bytes)?),
        })
    }

    fn work(&self, mode: CopyMode, range: &Range<u64>) {
        let mut target = self.target.borrow_mut();
        match mode {
            CopyMode::ZcSubmit => copy(&self.source[..64], &mut target[..64]),
            CopyMode::H2d
            | CopyMode::D2h
            | CopyMode::D2d
            | CopyMode::FirstTouch
            | CopyMode::ZcH2d
            | CopyMode::ZcD2h
            | CopyMode::ZcH2dThreaded
            | CopyMode::ZcD2hThreaded
            | CopyMode::EmptyPlan => {
                copy(&self.source[indices(range)], &mut target[indices(range)]);
            }
            CopyMode::Batch => {
                for piece in pieces(range) {
                    copy(&self.source[indices(&piece)], &mut target[indices(&piece)]);
                }
            }
            CopyMode::Memset => black_box(&mut target[indices(range)]).fill(black_box(3)),
        }
    }
}

/// Anonymous memory in huge pages.
fn touched(size_bytes: u64) -> Result<MmapMut, BenchError> {
    let mut map = fresh(size_bytes, Advice::HugePage)?;
    map.fill(1);
    Ok(map)
}

/// Anonymous memory that nobody has touched.
fn fresh(size_bytes: u64, advice: Advice) -> Result<MmapMut, BenchError> {
    let size_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    let map = MmapMut::map_anon(size_bytes)?;
    // A kernel without huge pages has small ones on both sides.
    let _ = map.advise(advice);
    Ok(map)
}

fn copy(source: &[u8], target: &mut [u8]) {
    black_box(target).copy_from_slice(black_box(source));
}

fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = *range;
    let count = (end - start).div_ceil(PIECE_BYTES);
    (0..count).map(move |index| {
        let start = start + index * PIECE_BYTES;
        start..end.min(start + PIECE_BYTES)
    })
}

fn indices(range: &Range<u64>) -> Range<usize> {
    // CAST: offsets in a buffer.
    #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
    let indices = range.start as usize..range.end as usize;
    indices
}

/// Which part of the windows comes next.
struct Walk {
    case: CopyCase,
    window_bytes: u64,
    next: u64,
}

impl Walk {
    fn next(&mut self) -> Range<u64> {
        let size_bytes = self.case.size_bytes;
        if self.case.hot {
            return 0..size_bytes;
        }
        let start = match self.next + size_bytes > self.window_bytes {
            true => 0,
            false => self.next,
        };
        self.next = start + size_bytes;
        start..self.next
    }

    /// Operations to a reading of the clock.
    fn batch(&self) -> u64 {
        (BATCH_BYTES / self.case.size_bytes).clamp(1, BATCH_MAX)
    }

    fn warm_up(&self) -> u64 {
        (WARM_UP_BYTES / self.case.size_bytes).clamp(1, BATCH_MAX)
    }
}

/// What the sides of a case are made of.
#[derive(Clone, Copy)]
pub(super) struct Subjects<'a> {
    pub(super) windows: &'a Windows,
    pub(super) threaded: Option<&'a Windows>,
    pub(super) planned: Option<&'a Windows>,
    pub(super) peer: &'a Peer,
}

impl<'a> Subjects<'a> {
    /// Glia, then its peer.
    pub(super) fn of(self, case: CopyCase) -> [Box<dyn Subject + 'a>; 2] {
        let Self {
            windows: plain,
            threaded,
            planned,
            peer,
        } = self;
        let windows = match case.mode {
            CopyMode::ZcH2dThreaded | CopyMode::ZcD2hThreaded | CopyMode::ZcSubmit => threaded,
            CopyMode::EmptyPlan => planned,
            _ => None,
        };
        let windows = windows.unwrap_or(plain);
        let walk = || Walk {
            case,
            window_bytes: windows.window_bytes,
            next: 0,
        };
        match case.mode {
            CopyMode::ZcSubmit => [
                Box::new(Submitted { case, windows }),
                Box::new(Touched {
                    walk: walk(),
                    work: move |range: &Range<u64>| {
                        peer.work(CopyMode::ZcSubmit, range);
                        Ok(())
                    },
                }),
            ],
            mode @ CopyMode::EmptyPlan => [windows, plain].map(|windows| {
                let work = move |range: &Range<u64>| windows.work(mode, range);
                Box::new(Touched { walk: walk(), work }) as Box<dyn Subject>
            }),
            CopyMode::FirstTouch => [
                Box::new(FreshHbm { case, windows }),
                Box::new(FreshPages { case, peer }),
            ],
            mode => [
                Box::new(Touched {
                    walk: walk(),
                    work: move |range: &Range<u64>| windows.work(mode, range),
                }),
                Box::new(Touched {
                    walk: walk(),
                    work: move |range: &Range<u64>| {
                        peer.work(mode, range);
                        Ok(())
                    },
                }),
            ],
        }
    }
}

/// Work on memory that was touched before.
struct Touched<W> {
    walk: Walk,
    work: W,
}

impl<W: FnMut(&Range<u64>) -> Result<(), BenchError>> Subject for Touched<W> {
    fn begin_turn(&mut self, _: &mut Tally) -> Result<(), BenchError> {
        for _ in 0..self.walk.warm_up() {
            (self.work)(&self.walk.next())?;
        }
        Ok(())
    }

    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let batch = self.walk.batch();
        let start = Instant::now();
        for _ in 0..batch {
            (self.work)(&self.walk.next())?;
        }
        // CAST: at most `BATCH_MAX`.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        tally.note(Op::Copy, start.elapsed(), batch as usize);
        Ok(())
    }
}

/// Requests of which only the asking is timed.
struct Submitted<'a> {
    case: CopyCase,
    windows: &'a Windows,
}

impl Subject for Submitted<'_> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let start = Instant::now();
        self.windows.submit(&(0..self.case.size_bytes))?;
        tally.note(Op::Copy, start.elapsed(), 1);
        self.windows.await_completion();
        Ok(())
    }
}

/// Copies into HBM that was never touched, or was given back.
struct FreshHbm<'a> {
    case: CopyCase,
    windows: &'a Windows,
}

impl Subject for FreshHbm<'_> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let size_bytes = self.case.size_bytes;
        self.windows
            .device
            .trim(self.windows.fresh.at, self.windows.window_bytes)?;
        let start = Instant::now();
        self.windows.work(CopyMode::FirstTouch, &(0..size_bytes))?;
        tally.note(Op::Copy, start.elapsed(), 1);
        Ok(())
    }
}

/// Copies into memory that the system gives page by page, 4 KiB each.
struct FreshPages<'a> {
    case: CopyCase,
    peer: &'a Peer,
}

impl Subject for FreshPages<'_> {
    fn run_batch(&mut self, tally: &mut Tally) -> Result<(), BenchError> {
        let range = indices(&(0..self.case.size_bytes));
        let mut target = fresh(self.case.size_bytes, Advice::NoHugePage)?;
        let start = Instant::now();
        copy(&self.peer.source[range], &mut target);
        tally.note(Op::Copy, start.elapsed(), 1);
        Ok(())
    }
}
