//! A driver in a few hundred lines: chunks with bytes, asynchronous copies that move them when they
//! are awaited or at once, room that ends, failures on order. It answers as the driver does, and
//! notes every copy command.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, Fd, WorkerId};
use glia_abi::insight::PoolSnapshot;
use glia_abi::ioctl::{self, feature};
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};
use glia_abi::sync::AtomicU32;
use glia_abi::transport::{
    Lent, Mapping, MappingError, OpenMode, Transport, UserBuffer, user_addr,
};
use glia_runtime::dml::{Log, LogContext};
use glia_runtime::{Core, Runtime, RuntimeConfig};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The category of a page of a contiguous scratchpad.
const CONTIGUOUS: u32 = 19;
/// Where contiguous scratchpads begin to grow down, on each channel.
pub(crate) const SCRATCHPAD_END: u64 = 1 << 45;

/// When an asynchronous copy's bytes move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// When it is started.
    AtStart,
    /// When it is awaited: nothing may be read from the target, or written to the source, before.
    AtWait,
}

/// Where a batch begins, its threshold, and offset and size of its ranges.
pub(crate) type ToldBatch = (u64, u16, Vec<(u64, u64)>);

/// A copy command as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Start {
        size: u64,
        buffer_offset: u64,
        hbm_offset: u64,
        previous: u32,
    },
    Wait {
        copy: u32,
    },
    /// Between two chunks.
    Copy {
        source_offset: u64,
        target_offset: u64,
        size: u64,
    },
    Fill {
        offset: u64,
        size: u64,
        value: u32,
    },
    ZeroCopy {
        to_device: bool,
        offset: u64,
        size: u64,
        threshold: u32,
    },
    Batches {
        to_device: bool,
        batches: Vec<ToldBatch>,
    },
}

/// A failure on order: the `nth` command of this word from now, 0 for the next, answers `errno`.
struct Failure {
    word: u32,
    nth: u32,
    errno: Errno,
}

#[derive(Clone)]
struct Chunk {
    size: u64,
    pa: u64,
    is_host: bool,
    channel: u32,
    category: u32,
    /// Pages that were written, by number.
    bytes: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
}

pub(crate) struct State {
    pub(crate) moves: Moves,
    pub(crate) knows_alignment: bool,
    pub(crate) host_room: u64,
    pub(crate) channel_room: Vec<u64>,
    pub(crate) features: u64,
    /// Words that it does not know, and what it answers to them.
    pub(crate) lacks: (Vec<u32>, Errno),
    /// Words of commands that have several forms, as they came.
    pub(crate) forms: Vec<u32>,
    /// Bytes of each channel's contiguous scratchpad, which grows down from [`SCRATCHPAD_END`].
    pub(crate) scratchpads: Vec<u64>,
    /// Scratchpad pages that came back out of turn.
    pub(crate) out_of_turn: u32,
    pub(crate) version_min: u32,
    pub(crate) commands: Vec<Command>,
    /// How many calls there were.
    pub(crate) calls: u64,
    pub(crate) open: Vec<(Fd, OpenMode)>,
    failures: Vec<Failure>,
    chunks: BTreeMap<u64, Chunk>,
    next_handle: u64,
    next_fd: i32,
    next_pa: u64,
    in_flight: BTreeMap<u32, ioctl::MemCopyAsync64>,
}

pub(crate) struct Fake {
    profile: &'static ArchProfile,
    sched: FakeSched,
    /// What happens before a command of a word is looked at, once.
    before: Mutex<Option<(u32, Meanwhile)>>,
    state: Mutex<State>,
}

impl Fake {
    pub(crate) fn new(arch: Arch) -> Arc<Self> {
        let profile = arch.profile();
        let state = State {
            moves: Moves::AtWait,
            knows_alignment: true,
            host_room: 1 << 30,
            channel_room: vec![profile.region_size_bytes; profile.region_bases.len()],
            features: feature::ASYNC_DMA | feature::MEM_ALLOC_TYPE | feature::MEM_ALLOC64,
            lacks: (Vec::new(), Errno::EINVAL),
            forms: Vec::new(),
            scratchpads: vec![0; profile.region_bases.len()],
            out_of_turn: 0,
            version_min: profile.compatible_versions.0,
            commands: Vec::new(),
            calls: 0,
            open: Vec::new(),
            failures: Vec::new(),
            chunks: BTreeMap::new(),
            next_handle: 1,
            next_fd: 3,
            next_pa: 0x1000,
            in_flight: BTreeMap::new(),
        };
        Arc::new(Self {
            profile,
            sched: FakeSched::default(),
            before: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn fail(&self, word: u32, nth: u32, errno: Errno) {
        self.state().failures.push(Failure { word, nth, errno });
    }

    /// The copy commands since the last call.
    pub(crate) fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.state().commands)
    }

    /// Says what happens when somebody waits, once.
    pub(crate) fn meanwhile(&self, happens: impl FnOnce() + Send + 'static) {
        self.sched.meanwhile.lock().unwrap().push(Box::new(happens));
    }

    /// Says what happens before the next command of a word, once.
    pub(crate) fn before(&self, word: u32, happens: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap() = Some((word, Box::new(happens)));
    }

    /// Whether nobody has waited since [`meanwhile`](Self::meanwhile).
    pub(crate) fn nobody_waited(&self) -> bool {
        !self.sched.meanwhile.lock().unwrap().is_empty()
    }

    pub(crate) fn live_chunks(&self) -> usize {
        self.state().chunks.len()
    }

    /// Size and category of the live chunks in HBM, or in host memory, by age.
    pub(crate) fn chunks(&self, is_host: bool) -> Vec<(u64, u32)> {
        let state = self.state();
        let chunks = state
            .chunks
            .values()
            .filter(|chunk| chunk.is_host == is_host);
        chunks.map(|chunk| (chunk.size, chunk.category)).collect()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.state().in_flight.len()
    }
}

impl State {
    fn fails(&mut self, word: u32) -> Result<(), Errno> {
        let mut fired = None;
        self.failures.retain_mut(|failure| {
            if failure.word != word {
                return true;
            }
            if failure.nth == 0 {
                fired = Some(failure.errno);
                return false;
            }
            failure.nth -= 1;
            true
        });
        fired.map_or(Ok(()), Err)
    }

    fn chunk(&self, handle: u64) -> Result<Chunk, Errno> {
        self.chunks.get(&handle).cloned().ok_or(Errno::EINVAL)
    }

    fn allocate(&mut self, arg: &ioctl::MemAllocV2Mt64) -> Result<u64, Errno> {
        if arg.align > 0 && (!self.knows_alignment || arg.host_memory != 0) {
            return Err(Errno::EINVAL);
        }
        let is_host = arg.host_memory != 0;
        let channel = arg.dram_channel as usize;
        let room = match is_host {
            true => &mut self.host_room,
            false => self.channel_room.get_mut(channel).ok_or(Errno::EINVAL)?,
        };
        let size = arg.size.next_multiple_of(4096);
        *room = room.checked_sub(size).ok_or(Errno::ENOMEM)?;
        let pa = match arg.mem_type {
            CONTIGUOUS => {
                self.scratchpads[channel] += size;
                SCRATCHPAD_END - self.scratchpads[channel]
            }
            _ => {
                let pa = self.next_pa.next_multiple_of(arg.align.max(4096));
                self.next_pa = pa + size;
                pa
            }
        };
        let handle = self.next_handle;
        self.next_handle += 1;
        let chunk = Chunk {
            size,
            pa,
            is_host,
            channel: arg.dram_channel,
            category: arg.mem_type,
            bytes: Arc::default(),
        };
        self.chunks.insert(handle, chunk);
        Ok(handle)
    }

    /// An older form of an allocation in the newest.
    fn widened(word: u32, bytes: &mut [u8]) -> ioctl::MemAllocV2Mt64 {
        let wide = ioctl::MemAllocV2Mt64::default();
        match word {
            ioctl::MEM_ALLOC => {
                let arg: &mut ioctl::MemAlloc = arg(bytes);
                ioctl::MemAllocV2Mt64 {
                    size: arg.size,
                    host_memory: arg.host_memory,
                    dram_channel: arg.dram_channel,
                    nc_id: arg.nc_id,
                    mem_handle: arg.mem_handle,
                    ..wide
                }
            }
            ioctl::MEM_ALLOC_V2 => {
                let arg: &mut ioctl::MemAllocV2 = arg(bytes);
                ioctl::MemAllocV2Mt64 {
                    size: arg.size,
                    align: arg.align,
                    host_memory: arg.host_memory,
                    dram_channel: arg.dram_channel,
                    nc_id: arg.nc_id,
                    mem_handle: arg.mem_handle,
                    ..wide
                }
            }
            _ => {
                let arg: &mut ioctl::MemAllocV2Mt = arg(bytes);
                ioctl::MemAllocV2Mt64 {
                    size: arg.size,
                    align: arg.align,
                    host_memory: arg.host_memory,
                    dram_channel: arg.dram_channel,
                    nc_id: arg.nc_id,
                    mem_type: arg.mem_type,
                    mem_handle: arg.mem_handle,
                    ..wide
                }
            }
        }
    }

    fn free(&mut self, handle: u64) -> Result<(), Errno> {
        let chunk = self.chunks.remove(&handle).ok_or(Errno::EINVAL)?;
        let room = match chunk.is_host {
            true => &mut self.host_room,
            false => &mut self.channel_room[chunk.channel as usize],
        };
        *room += chunk.size;
        if chunk.category == CONTIGUOUS {
            let scratchpad = &mut self.scratchpads[chunk.channel as usize];
            self.out_of_turn += u32::from(chunk.pa != SCRATCHPAD_END - *scratchpad);
            *scratchpad -= chunk.size;
        }
        Ok(())
    }

    fn check(&self, copy: &ioctl::MemCopyAsync64) -> Result<(Chunk, Chunk), Errno> {
        let (source, target) = (self.chunk(copy.src)?, self.chunk(copy.dst)?);
        let fits = |chunk: &Chunk, offset: u64| offset + copy.size <= chunk.size;
        if !fits(&source, copy.src_offset) || !fits(&target, copy.dst_offset) {
            return Err(Errno::EINVAL);
        }
        Ok((source, target))
    }

    fn move_bytes(&self, copy: &ioctl::MemCopyAsync64) -> Result<(), Errno> {
        let (source, target) = self.check(copy)?;
        let mut bytes = vec![0; copy.size as usize];
        get(&source.bytes, copy.src_offset, &mut bytes);
        put(&target.bytes, copy.dst_offset, &bytes);
        Ok(())
    }

    /// The table of the driver: what is waited for, and the handle of the new copy.
    fn start(&mut self, copy: &mut ioctl::MemCopyAsync64) -> Result<(), Errno> {
        let (source, _) = self.check(copy)?;
        let (buffer_offset, hbm_offset) = match source.is_host {
            true => (copy.src_offset, copy.dst_offset),
            false => (copy.dst_offset, copy.src_offset),
        };
        self.commands.push(Command::Start {
            size: copy.size,
            buffer_offset,
            hbm_offset,
            previous: copy.pwait,
        });
        self.fails(ioctl::MEM_COPY_ASYNC64)?;
        copy.wait = match copy.pwait {
            u32::MAX => 1,
            0 => 0,
            1 => 2,
            2 => 1,
            _ => return Err(Errno::EINVAL),
        };
        if copy.wait == 0 {
            return self.move_bytes(copy);
        }
        assert!(
            !self.in_flight.contains_key(&copy.wait),
            "a copy was left in flight"
        );
        if copy.pwait != u32::MAX && !self.in_flight.contains_key(&copy.pwait) {
            return Err(Errno::EINVAL);
        }
        self.in_flight.insert(copy.wait, *copy);
        if self.moves == Moves::AtStart {
            self.move_bytes(copy)?;
        }
        match copy.pwait {
            u32::MAX => Ok(()),
            previous => self.land(previous),
        }
    }

    fn batches(
        &mut self,
        arg: &ioctl::MemBufZerocopy64Batches,
        buffers: &mut [Lent<'_>],
    ) -> Result<(), Errno> {
        let raw: Vec<ioctl::ZerocopyBatch> = array(buffers, arg.batches, arg.num_batches)?;
        let to_device = arg.is_copy_to_device != 0;
        let mut told = Vec::new();
        for batch in &raw {
            let chunk = self.chunk(batch.mem_handle)?;
            let ops: Vec<ioctl::ZerocopyOp> = array(buffers, batch.ops_ptr, batch.num_ops)?;
            for op in &ops {
                let offset = batch.mem_handle_offset + op.offset;
                if op.size == 0 || offset + op.size > chunk.size {
                    return Err(Errno::EINVAL);
                }
                match to_device {
                    true => {
                        let from: Vec<u8> = array(buffers, op.buffer, op.size as u32)?;
                        put(&chunk.bytes, offset, &from);
                    }
                    false => {
                        let into = lent(buffers, op.buffer)?;
                        assert_eq!(into.len() as u64, op.size);
                        get(&chunk.bytes, offset, into);
                    }
                }
            }
            let ops = ops.iter().map(|op| (op.offset, op.size)).collect();
            told.push((batch.mem_handle_offset, batch.bar4_wr_threshold, ops));
        }
        self.commands.push(Command::Batches {
            to_device,
            batches: told,
        });
        Ok(())
    }

    fn land(&mut self, context: u32) -> Result<(), Errno> {
        let copy = self.in_flight.remove(&context).ok_or(Errno::EINVAL)?;
        match self.moves {
            Moves::AtStart => Ok(()),
            Moves::AtWait => self.move_bytes(&copy),
        }
    }
}

fn get(bytes: &Mutex<BTreeMap<u64, Vec<u8>>>, offset: u64, into: &mut [u8]) {
    let pages = bytes.lock().unwrap();
    into.fill(0);
    each_page(offset, into.len(), |page, at, part| {
        if let Some(page) = pages.get(&page) {
            into[part.clone()].copy_from_slice(&page[at..at + part.len()]);
        }
    });
}

fn put(bytes: &Mutex<BTreeMap<u64, Vec<u8>>>, offset: u64, from: &[u8]) {
    let mut pages = bytes.lock().unwrap();
    each_page(offset, from.len(), |page, at, part| {
        let page = pages.entry(page).or_insert_with(|| vec![0; 4096]);
        page[at..at + part.len()].copy_from_slice(&from[part]);
    });
}

/// Cuts a range into pages: the page's number, the offset there, the part of the range.
fn each_page(offset: u64, size: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < size {
        let at = (offset + done as u64) % 4096;
        let part = (size - done).min(4096 - at as usize);
        each(
            (offset + done as u64) / 4096,
            at as usize,
            done..done + part,
        );
        done += part;
    }
}

/// The struct of a command, which must have exactly its size.
fn arg<T: FromBytes + IntoBytes + KnownLayout + Immutable>(bytes: &mut [u8]) -> &mut T {
    T::mut_from_bytes(bytes).unwrap()
}

/// The lent buffer at an address, to be written.
fn lent<'a>(lent: &'a mut [Lent<'_>], at: u64) -> Result<&'a mut [u8], Errno> {
    lent.iter_mut()
        .find_map(|one| match one {
            Lent::Out(bytes) if user_addr(bytes).get() == at => Some(&mut **bytes),
            _ => None,
        })
        .ok_or(Errno::EFAULT)
}

/// What an array in a lent buffer holds.
fn array<T: FromBytes + Immutable + Clone>(
    lent: &[Lent<'_>],
    at: u64,
    count: u32,
) -> Result<Vec<T>, Errno> {
    let found = lent.iter().find_map(|one| match one {
        Lent::In(bytes) if user_addr(bytes).get() == at => Some(*bytes),
        _ => None,
    });
    let bytes = found.ok_or(Errno::EFAULT)?;
    assert_eq!(bytes.len(), count as usize * size_of::<T>());
    let items = bytes.chunks(size_of::<T>());
    Ok(items
        .map(|item| T::read_from_bytes(item).unwrap())
        .collect())
}

/// Commands that move more than this are noted only.
const LARGE: u64 = 64 << 20;

impl Transport for Fake {
    fn open(&self, device: DeviceId, mode: OpenMode) -> Result<Fd, Errno> {
        if device != DeviceId::new(0) {
            return Err(Errno::ENOENT);
        }
        let mut state = self.state();
        let fd = Fd(state.next_fd);
        state.next_fd += 1;
        state.open.push((fd, mode));
        Ok(fd)
    }

    fn dup(&self, _fd: Fd) -> Result<Fd, Errno> {
        Err(Errno::EMFILE)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let mut state = self.state();
        let open = state.open.iter().position(|&(known, _)| known == fd);
        state.open.remove(open.ok_or(Errno::EBADF)?);
        Ok(())
    }

    fn ioctl(
        &self,
        fd: Fd,
        word: u32,
        bytes: &mut [u8],
        buffers: &mut [Lent<'_>],
    ) -> Result<i32, Errno> {
        let first = self.before.lock().unwrap().take_if(|(of, _)| *of == word);
        if let Some((_, happens)) = first {
            happens();
        }
        let mut state = self.state();
        state.calls += 1;
        let mode = state.open.iter().find(|&&(known, _)| known == fd);
        let (_, mode) = *mode.ok_or(Errno::EBADF)?;
        let is_for_all = matches!(
            word,
            ioctl::COMPATIBLE_VERSION | ioctl::DEVICE_BASIC_INFO | ioctl::DRIVER_INFO_GET
        );
        if mode.is_free_access() && !is_for_all {
            return Err(Errno::EINVAL);
        }
        if !matches!(word, ioctl::MEM_COPY_ASYNC64 | ioctl::MEM_COPY_ASYNC_WAIT) {
            state.fails(word)?;
        }
        if ioctl::forms(word).len() > 1 || word == ioctl::MEM_ALLOC {
            state.forms.push(word);
        }
        if state.lacks.0.contains(&word) {
            return Err(state.lacks.1);
        }
        match word {
            ioctl::MEM_ALLOC | ioctl::MEM_ALLOC_V2 | ioctl::MEM_ALLOC_V2MT => {
                let wide = State::widened(word, bytes);
                let handle = state.allocate(&wide)?;
                lent(buffers, wide.mem_handle)?.copy_from_slice(&handle.to_ne_bytes());
            }
            ioctl::MEM_COPY => {
                let arg: &mut ioctl::MemCopy = arg(bytes);
                state.move_bytes(&ioctl::MemCopyAsync64 {
                    src: arg.src,
                    dst: arg.dst,
                    size: arg.size.into(),
                    src_offset: arg.src_offset.into(),
                    dst_offset: arg.dst_offset.into(),
                    ..Default::default()
                })?;
            }
            ioctl::MEM_COPY_ASYNC => {
                let arg: &mut ioctl::MemCopyAsync = arg(bytes);
                let mut wide = ioctl::MemCopyAsync64 {
                    src: arg.src,
                    dst: arg.dst,
                    size: arg.size.into(),
                    src_offset: arg.src_offset.into(),
                    dst_offset: arg.dst_offset.into(),
                    pwait: arg.pwait,
                    ..Default::default()
                };
                state.start(&mut wide)?;
                arg.wait = wide.wait;
            }
            ioctl::MEMSET => {
                let arg: &mut ioctl::Memset = arg(bytes);
                let chunk = state.chunk(arg.mem_handle)?;
                let bytes = vec![arg.value as u8; arg.size as usize];
                put(&chunk.bytes, arg.offset, &bytes);
            }
            ioctl::MEM_BUF_COPY => {
                let arg: &mut ioctl::MemBufCopy = arg(bytes);
                let chunk = state.chunk(arg.mem_handle)?;
                match arg.copy_to_mem_handle {
                    0 => get(&chunk.bytes, arg.offset.into(), lent(buffers, arg.buffer)?),
                    _ => {
                        let from: Vec<u8> = array(buffers, arg.buffer, arg.size)?;
                        put(&chunk.bytes, arg.offset.into(), &from);
                    }
                }
            }
            ioctl::COMPATIBLE_VERSION => {
                *arg(bytes) = ioctl::CompatibleVersion {
                    max: self.profile.compatible_versions.1,
                    min: state.version_min,
                };
            }
            ioctl::DRIVER_INFO_GET => {
                *arg(bytes) = ioctl::DriverInfo {
                    architecture: self.profile.number(),
                    size: 24,
                    feature_flags1: state.features,
                    ..Default::default()
                };
            }
            ioctl::DEVICE_BASIC_INFO => {
                *arg(bytes) = ioctl::DeviceBasicInfo {
                    architecture: self.profile.number(),
                    revision: 0,
                };
            }
            ioctl::MEM_ALLOC_V2MT64 => {
                let arg: &mut ioctl::MemAllocV2Mt64 = arg(bytes);
                let handle = state.allocate(arg)?;
                lent(buffers, arg.mem_handle)?.copy_from_slice(&handle.to_ne_bytes());
            }
            ioctl::MEM_FREE => state.free(arg::<ioctl::MemFree>(bytes).mem_handle)?,
            ioctl::MEM_GET_PA => {
                let arg: &mut ioctl::MemGetPa = arg(bytes);
                let chunk = state.chunk(arg.mem_handle)?;
                lent(buffers, arg.pa)?.copy_from_slice(&chunk.pa.to_ne_bytes());
            }
            ioctl::MEM_GET_INFO => {
                let arg: &mut ioctl::MemGetInfo = arg(bytes);
                let pa = state.chunk(arg.mem_handle)?.pa.to_ne_bytes();
                lent(buffers, arg.pa)?.copy_from_slice(&pa);
                lent(buffers, arg.mmap_offset)?.copy_from_slice(&pa);
            }
            ioctl::MEM_COPY64 => {
                let arg: &mut ioctl::MemCopy64 = arg(bytes);
                state.commands.push(Command::Copy {
                    source_offset: arg.src_offset,
                    target_offset: arg.dst_offset,
                    size: arg.size,
                });
                if arg.size > LARGE {
                    return Ok(0);
                }
                state.move_bytes(&ioctl::MemCopyAsync64 {
                    src: arg.src,
                    dst: arg.dst,
                    size: arg.size,
                    src_offset: arg.src_offset,
                    dst_offset: arg.dst_offset,
                    ..Default::default()
                })?;
            }
            ioctl::MEMSET64 => {
                let arg: &mut ioctl::Memset64 = arg(bytes);
                let chunk = state.chunk(arg.mem_handle)?;
                if arg.offset + arg.size > chunk.size {
                    return Err(Errno::EINVAL);
                }
                state.commands.push(Command::Fill {
                    offset: arg.offset,
                    size: arg.size,
                    value: arg.value,
                });
                if arg.size <= LARGE {
                    let value = arg.value as u8;
                    put(&chunk.bytes, arg.offset, &vec![value; arg.size as usize]);
                }
            }
            ioctl::MEM_BUF_ZEROCOPY64 => {
                let arg: &mut ioctl::MemBufZerocopy64 = arg(bytes);
                let chunk = state.chunk(arg.mem_handle)?;
                state.commands.push(Command::ZeroCopy {
                    to_device: arg.is_copy_to_device != 0,
                    offset: arg.offset,
                    size: arg.size,
                    threshold: arg.bar4_wr_threshold,
                });
                match arg.is_copy_to_device {
                    1 => {
                        let from: Vec<u8> = array(buffers, arg.buffer, arg.size as u32)?;
                        put(&chunk.bytes, arg.offset, &from);
                    }
                    _ => get(&chunk.bytes, arg.offset, lent(buffers, arg.buffer)?),
                }
            }
            ioctl::MEM_BUF_ZEROCOPY64_BATCHES => state.batches(arg(bytes), buffers)?,
            ioctl::MEM_COPY_ASYNC64 => state.start(arg(bytes))?,
            ioctl::MEM_COPY_ASYNC_WAIT => {
                let copy = arg::<ioctl::MemCopyAsyncWait>(bytes).pwait;
                state.commands.push(Command::Wait { copy });
                if let Err(errno) = state.fails(word) {
                    // A wait that times out gives the context up.
                    state.in_flight.remove(&copy);
                    return Err(errno);
                }
                state.land(copy)?;
            }
            ioctl::MEM_BUF_COPY64 => {
                let arg: &mut ioctl::MemBufCopy64 = arg(bytes);
                let chunk = state.chunk(arg.mem_handle)?;
                match buffers {
                    [Lent::In(from)] if arg.copy_to_mem_handle != 0 => {
                        assert_eq!(
                            (user_addr(from).get(), from.len() as u64),
                            (arg.buffer, arg.size)
                        );
                        put(&chunk.bytes, arg.offset, from);
                    }
                    [Lent::Out(into)] if arg.copy_to_mem_handle == 0 => {
                        assert_eq!(
                            (user_addr(into).get(), into.len() as u64),
                            (arg.buffer, arg.size)
                        );
                        get(&chunk.bytes, arg.offset, into);
                    }
                    _ => return Err(Errno::EFAULT),
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    fn mmap(&self, _fd: Fd, offset: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Errno> {
        let state = self.state();
        let chunk = state.chunks.values().find(|chunk| chunk.pa == offset);
        let chunk = chunk.filter(|chunk| chunk.size == size_bytes);
        Ok(Arc::new(Mapped(chunk.ok_or(Errno::EPERM)?.clone())))
    }

    fn buffer(&self, _size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        Err(Errno::ENOMEM)
    }

    fn sched(&self) -> &dyn Sched {
        &self.sched
    }

    fn insight(&self, _device: DeviceId) -> Option<PoolSnapshot> {
        None
    }
}

struct Mapped(Chunk);

impl Mapped {
    fn check(&self, offset_bytes: u64, size: usize) -> Result<(), MappingError> {
        let (size_bytes, limit_bytes) = (size as u64, self.0.size);
        if offset_bytes + size_bytes <= limit_bytes {
            return Ok(());
        }
        Err(MappingError::OutOfBounds {
            offset_bytes,
            size_bytes,
            limit_bytes,
        })
    }
}

impl Mapping for Mapped {
    fn size_bytes(&self) -> u64 {
        self.0.size
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MappingError> {
        self.check(offset_bytes, into.len())?;
        get(&self.0.bytes, offset_bytes, into);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError> {
        self.check(offset_bytes, bytes.len())?;
        put(&self.0.bytes, offset_bytes, bytes);
        Ok(())
    }

    /// The runtime uses no words.
    fn words(&self, _offset_bytes: u64, _size_bytes: u64) -> Result<&[AtomicU32], MappingError> {
        Err(MappingError::ReadOnly)
    }
}

/// What happens when somebody would wait.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// One thread: nobody else could let go what is waited for, unless the test has said what happens
/// meanwhile.
#[derive(Default)]
struct FakeSched {
    next: std::sync::atomic::AtomicU64,
    meanwhile: Mutex<Vec<Meanwhile>>,
}

impl Sched for FakeSched {
    fn now(&self) -> Tick {
        Tick(0)
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    fn wake(&self, _on: WaitOn) {}

    fn pause(&self) {}

    fn spawn(&self, _worker: std::sync::Weak<dyn Worker>) -> WorkerId {
        WorkerId::new(0)
    }

    fn kick(&self, _worker: WorkerId) {}

    fn block(&self, on: WaitOn, poll: &mut dyn FnMut() -> Poll, within: Option<Micros>) -> bool {
        loop {
            match poll() {
                Poll::Done => return true,
                Poll::Never => return false,
                Poll::Pending => {}
            }
            let meanwhile = self.meanwhile.lock().unwrap().pop();
            match (meanwhile, within) {
                (Some(meanwhile), _) => meanwhile(),
                (None, Some(_)) => return false,
                (None, None) => panic!("a single thread waits for itself on {on:?}"),
            }
        }
    }
}

/// Memory of the caller's.
pub(crate) fn buffer(size: u64) -> Arc<dyn Mapping> {
    Arc::new(Mapped(Chunk {
        size,
        pa: 0,
        is_host: true,
        channel: 0,
        category: 0,
        bytes: Arc::default(),
    }))
}

/// A log that keeps each write.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<String>>);

impl Kept {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Log for Kept {
    fn context(&self) -> LogContext {
        LogContext {
            time: "2026-Jan-02 03:04:05.678901".to_owned(),
            pid: 4711,
            tid: 4712,
        }
    }

    fn write(&self, lines: &str) {
        self.0.lock().unwrap().push(lines.to_owned());
    }
}

pub(crate) const DEVICE: DeviceId = DeviceId::new(0);

pub(crate) fn core(number: u32) -> Core {
    Core {
        device: DEVICE,
        core: CoreId::new(number),
    }
}

/// A runtime with one device, and what it logs.
pub(crate) fn open(fake: &Arc<Fake>) -> (Runtime, Arc<Kept>) {
    open_with(fake, RuntimeConfig::default())
}

/// The same, told something.
pub(crate) fn open_with(fake: &Arc<Fake>, config: RuntimeConfig) -> (Runtime, Arc<Kept>) {
    let log = Arc::new(Kept::default());
    let config = RuntimeConfig {
        log: Some(Arc::clone(&log) as Arc<dyn Log>),
        ..config
    };
    let transport = Arc::clone(fake) as Arc<dyn Transport>;
    (Runtime::open(transport, &[DEVICE], config).unwrap(), log)
}
