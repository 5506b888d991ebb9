//! The two sides: a device with its driver, and plain memory.

use std::cell::RefCell;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::event::NoSink;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{CoreId, DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::port::HostMemory as _;
use glia_abi::sched::Sched;
use glia_device::{Device, DeviceConfig, HostArena, HostConfig, InlineSched};
use glia_driver::dma::{Dma, DmaConfig, Place, Platform};
use glia_driver::memory::{DeviceMemory, MemoryConfig};
use memmap2::{Advice, MmapMut};

use super::{CopyCase, CopyMode, MIB};
use crate::bench::BenchError;
use crate::bench::timing::{Op, Subject, Tally};

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

/// A V3 device, the op layer of its driver, and windows of memory on either side.
pub(super) struct Windows {
    device: Arc<Device>,
    dma: Dma,
    window_bytes: u64,
    host: Place,
    near: Place,
    far: Place,
    fresh: Place,
}

impl Windows {
    /// All but the fresh window are touched.
    pub(super) fn new(window_bytes: u64) -> Result<Self, BenchError> {
        let layout = MemoryLayout::new(Arch::V3, Scale::Full)?;
        let host = Arc::new(HostArena::new(HostConfig::default())?);
        let sched: Arc<dyn Sched> = Arc::new(InlineSched::new());
        let device = Device::new(
            DeviceConfig::new(DEVICE, layout),
            Arc::clone(&host),
            Arc::clone(&sched),
            Arc::new(NoSink),
            Arc::new(NoFaults),
        )?;
        let memory = DeviceMemory::new(
            MemoryConfig::new(layout),
            Arc::clone(&host) as _,
            Arc::new(NoFaults),
        )?;
        let config = DmaConfig {
            device: DEVICE,
            profile: layout.profile(),
            platform: Platform::Hardware,
        };
        let dma = Dma::new(
            config,
            Arc::clone(&device) as _,
            Arc::clone(&host) as _,
            Arc::new(memory),
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
        let windows = Self {
            device,
            dma,
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
            CopyMode::H2d => copy(self.host, self.near, range)?,
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
}

/// Two buffers in huge pages.
pub(super) struct Peer {
    source: MmapMut,
    target: RefCell<MmapMut>,
}

impl Peer {
    /// Both are touched.
    pub(super) fn new(size_bytes: u64) -> Result<Self, BenchError> {
        let touched = || {
            let mut map = fresh(size_bytes, Advice::HugePage)?;
            map.fill(1);
            Ok::<_, BenchError>(map)
        };
        Ok(Self {
            source: touched()?,
            target: RefCell::new(touched()?),
        })
    }

    fn work(&self, mode: CopyMode, range: &Range<u64>) {
        let mut target = self.target.borrow_mut();
        match mode {
            CopyMode::H2d | CopyMode::D2h | CopyMode::D2d | CopyMode::FirstTouch => {
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
    pub(super) peer: &'a Peer,
}

impl<'a> Subjects<'a> {
    /// Glia, then its peer.
    pub(super) fn of(self, case: CopyCase) -> [Box<dyn Subject + 'a>; 2] {
        let Self { windows, peer } = self;
        let walk = || Walk {
            case,
            window_bytes: windows.window_bytes,
            next: 0,
        };
        match case.mode {
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
