//! NDL: the thin layer over the driver's ioctls.
//!
//! A [`Device`] is an opened device node. It has one method for each command that the runtime uses;
//! a method fills the command's struct, lends the buffers that pointers in it name, and gives the
//! answer as a type. Nothing is kept between calls but the copy buffers: one of 2 MiB for each core
//! ([`CopyBuffer`]), in host memory that the device can reach, made when the device is opened.
//!
//! Whoever wants cores for its process alone [claims](Device::claim_cores) them first; who comes
//! second learns who has them.
//!
//! Two descriptors are open as long as the device is. The write-only one asks for versions without
//! attaching; it is not closed early, since closing such a descriptor gives up the core marks of
//! the whole process. The read-write one attaches and does the work.
//!
//! A driver that is older than the newest form of a command is asked in an older one. Sizes and
//! offsets of copies and fills are of 32 bits there; more is refused ([`NdlError::Narrow`]).
//!
//! **Who owns what.** Whoever allocates a chunk frees it. The device frees its copy buffers, and
//! closes its descriptors last.

mod chunks;
mod claim;
mod error;
mod forms;
mod transfer;
mod zero_copy;

use std::sync::Arc;

use glia_abi::addr::BusAddr;
use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId, Fd, McHandle, Pid};
use glia_abi::insight::PoolSnapshot;
use glia_abi::ioctl;
#[cfg(doc)]
use glia_abi::ioctl::feature;
use glia_abi::mem::Location;
use glia_abi::sched::{Sched, SleepLock};
use glia_abi::transport::{Lent, Mapping, OpenMode, Transport, user_addr};
use glia_abi::usage::Category;
use zerocopy::{FromBytes, IntoBytes};

pub use chunks::HbmChunk;
pub use error::NdlError;
use forms::{Form, Forms, NEWEST, is_unknown};
pub(crate) use transfer::mapped;
pub use transfer::{
    COPY_BUFFER_HALF_BYTES, COPY_BUFFER_SIZE_BYTES, CopyBuffer, Transfer, WaitHandle,
};
pub use zero_copy::{Completions, LentBatch, LentOp, ZeroCopyBatch, ZeroCopyOp};

/// What is asked of the driver for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSpec {
    /// Bytes.
    pub size_bytes: u64,
    /// Alignment of the first byte, 0 for none.
    pub align_bytes: u64,
    /// Host memory or HBM.
    pub location: Location,
    /// The HBM channel; the driver wants a valid one for host memory, too.
    pub channel: Channel,
    /// The core that it is charged to, and whose queue moves its bytes.
    pub core: CoreId,
    /// What for.
    pub category: Category,
}

/// Where a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Its first byte, as the device sees it.
    pub pa: BusAddr,
    /// What mmap takes for it.
    pub mmap_offset: u64,
}

/// An opened device.
pub struct Device {
    transport: Arc<dyn Transport>,
    id: DeviceId,
    arch: Arch,
    /// Of the driver.
    features: u64,
    forms: Forms,
    control: Node,
    work: Node,
    copy_buffers: Vec<SleepLock<CopyBuffer>>,
    /// The first copy buffer's handle, by which this process knows itself among others.
    own: Option<McHandle>,
}

/// A descriptor, closed when it is dropped.
struct Node {
    transport: Arc<dyn Transport>,
    fd: Fd,
}

impl Node {
    fn open(
        transport: &Arc<dyn Transport>,
        device: DeviceId,
        mode: OpenMode,
    ) -> Result<Self, NdlError> {
        let fd = transport.open(device, mode);
        let fd = fd.map_err(|errno| NdlError::Call {
            device,
            call: "open",
            errno,
        })?;
        Ok(Self {
            transport: Arc::clone(transport),
            fd,
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nobody is left to whom an error would mean something.
        let _ = self.transport.close(self.fd);
    }
}

impl Device {
    /// Opens a device and makes its copy buffers.
    ///
    /// # Errors
    /// [`NdlError::Call`] if the driver refuses; [`NdlError::Version`] and [`NdlError::Arch`] if
    /// driver and runtime do not fit together.
    pub fn open(transport: Arc<dyn Transport>, id: DeviceId) -> Result<Arc<Self>, NdlError> {
        let control = Node::open(&transport, id, OpenMode::WriteOnly)?;
        let work = Node::open(&transport, id, OpenMode::ReadWrite)?;
        let mut device = Self {
            transport,
            id,
            arch: Arch::V2,
            features: 0,
            forms: Forms::of(0),
            control,
            work,
            copy_buffers: Vec::new(),
            own: None,
        };
        (device.arch, device.features) = device.negotiate()?;
        device.forms = Forms::of(device.features);
        for core in 0..device.profile().cores {
            device.add_copy_buffer(CoreId::new(core))?;
        }
        Ok(Arc::new(device))
    }

    /// Which device.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// What the device is.
    #[must_use]
    pub fn profile(&self) -> &'static ArchProfile {
        self.arch.profile()
    }

    /// How this process waits.
    #[must_use]
    pub fn sched(&self) -> &dyn Sched {
        self.transport.sched()
    }

    /// The copy buffer of a core.
    ///
    /// # Errors
    /// [`NdlError::NoCore`] if the device has no such core.
    pub fn copy_buffer(&self, core: CoreId) -> Result<&SleepLock<CopyBuffer>, NdlError> {
        let buffer = self.copy_buffers.get(core.index());
        buffer.ok_or(NdlError::NoCore {
            device: self.id,
            core,
        })
    }

    /// What the driver calls this process, by the owner of its copy buffers.
    pub(crate) fn owner_in(&self, snapshot: &PoolSnapshot) -> Option<Pid> {
        let mut chunks = snapshot.host_chunks.iter();
        let own = chunks.find(|chunk| chunk.handle.is_some() && chunk.handle == self.own);
        own.map(|chunk| chunk.owner)
    }

    /// Takes a chunk for this process (`MEM_ALLOC_V2MT64`, or an older form, which may leave the
    /// category to the driver).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `ENOMEM` if there is no room.
    pub fn allocate(&self, spec: &ChunkSpec) -> Result<McHandle, NdlError> {
        // The category of a contiguous scratchpad says where it is; an alignment must be obeyed.
        let oldest = match (spec.category, spec.align_bytes) {
            (Category::CONTIGUOUS_SCRATCHPAD_DEVICE, _) => 1,
            (_, 0) => 3,
            _ => 2,
        };
        self.newest(&self.forms.allocate, oldest, |form| {
            self.allocate_as(form, spec)
        })
    }

    fn allocate_as(&self, form: Form, spec: &ChunkSpec) -> Result<McHandle, NdlError> {
        let mut handle = [0; 8];
        let mem_handle = user_addr(&handle).get();
        let lent = &mut [Lent::Out(&mut handle)];
        let (size, align) = (spec.size_bytes, spec.align_bytes);
        let host_memory = u32::from(spec.location == Location::Host);
        let (dram_channel, nc_id) = (spec.channel.get(), spec.core.get());
        let mem_type = spec.category.0;
        let (word, called) = match form {
            NEWEST => {
                let mut arg = ioctl::MemAllocV2Mt64 {
                    size,
                    align,
                    host_memory,
                    dram_channel,
                    nc_id,
                    mem_type,
                    mem_handle,
                    ..Default::default()
                };
                let word = ioctl::MEM_ALLOC_V2MT64;
                (word, self.call(&self.work, word, &mut arg, lent))
            }
            1 => {
                let mut arg = ioctl::MemAllocV2Mt {
                    size,
                    align,
                    host_memory,
                    dram_channel,
                    nc_id,
                    mem_type,
                    mem_handle,
                    ..Default::default()
                };
                let word = ioctl::MEM_ALLOC_V2MT;
                (word, self.call(&self.work, word, &mut arg, lent))
            }
            2 => {
                let mut arg = ioctl::MemAllocV2 {
                    size,
                    align,
                    host_memory,
                    dram_channel,
                    nc_id,
                    mem_handle,
                    ..Default::default()
                };
                let word = ioctl::MEM_ALLOC_V2;
                (word, self.call(&self.work, word, &mut arg, lent))
            }
            _ => {
                let mut arg = ioctl::MemAlloc {
                    size,
                    host_memory,
                    dram_channel,
                    nc_id,
                    mem_handle,
                    ..Default::default()
                };
                let word = ioctl::MEM_ALLOC;
                (word, self.call(&self.work, word, &mut arg, lent))
            }
        };
        called?;
        let raw = u64::from_ne_bytes(handle);
        McHandle::from_raw(raw).ok_or(self.answer(word, raw))
    }

    /// Takes one reference off a chunk (`MEM_FREE`).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` if there is no such chunk.
    pub fn free(&self, handle: McHandle) -> Result<(), NdlError> {
        let mut arg = ioctl::MemFree {
            mem_handle: u64::from(handle.get()),
        };
        self.call(&self.work, ioctl::MEM_FREE, &mut arg, &mut [])
    }

    /// The address of a chunk (`MEM_GET_PA`).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` if there is no such chunk.
    pub fn physical_address(&self, handle: McHandle) -> Result<BusAddr, NdlError> {
        let mut pa = [0; 8];
        let mut arg = ioctl::MemGetPa {
            mem_handle: u64::from(handle.get()),
            pa: user_addr(&pa).get(),
        };
        let lent = &mut [Lent::Out(&mut pa)];
        self.call(&self.work, ioctl::MEM_GET_PA, &mut arg, lent)?;
        Ok(BusAddr::new(u64::from_ne_bytes(pa)))
    }

    /// Where a chunk is, and how to map it (`MEM_GET_INFO`).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` if there is no such chunk.
    pub fn info(&self, handle: McHandle) -> Result<ChunkInfo, NdlError> {
        let (mut pa, mut mmap_offset) = ([0; 8], [0; 8]);
        let mut arg = ioctl::MemGetInfo {
            mem_handle: u64::from(handle.get()),
            mmap_offset: user_addr(&mmap_offset).get(),
            pa: user_addr(&pa).get(),
        };
        let lent = &mut [Lent::Out(&mut pa), Lent::Out(&mut mmap_offset)];
        self.call(&self.work, ioctl::MEM_GET_INFO, &mut arg, lent)?;
        Ok(ChunkInfo {
            pa: BusAddr::new(u64::from_ne_bytes(pa)),
            mmap_offset: u64::from_ne_bytes(mmap_offset),
        })
    }

    /// Maps a chunk of `size_bytes`, rounded up to pages as the driver has done (`MEM_GET_INFO`,
    /// mmap).
    ///
    /// # Errors
    /// [`NdlError::Call`] if there is no such chunk, or it cannot be mapped.
    pub fn map(&self, handle: McHandle, size_bytes: u64) -> Result<Arc<dyn Mapping>, NdlError> {
        let info = self.info(handle)?;
        let size_bytes = size_bytes
            .checked_next_multiple_of(glia_abi::PAGE_SIZE_BYTES)
            .unwrap_or(size_bytes);
        let mapping = self
            .transport
            .mmap(self.work.fd, info.mmap_offset, size_bytes);
        mapping.map_err(|errno| self.refused("mmap", errno))
    }

    /// Whether the driver has all these features, of [`feature`].
    #[must_use]
    pub fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    /// What the device's pools hold at this moment; `None` where nobody can look inside.
    #[must_use]
    pub fn insight(&self) -> Option<PoolSnapshot> {
        self.transport.insight(self.id)
    }

    /// Copies from user memory into a chunk (`MEM_BUF_COPY64`, `MEM_BUF_COPY`).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` for a chunk or range that is not there;
    /// [`NdlError::Narrow`].
    pub fn buf_write(
        &self,
        handle: McHandle,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), NdlError> {
        self.buf_copy(
            handle,
            offset_bytes,
            user_addr(bytes).get(),
            Lent::In(bytes),
        )
    }

    /// Copies from a chunk into user memory (`MEM_BUF_COPY64`, `MEM_BUF_COPY`).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` for a chunk or range that is not there;
    /// [`NdlError::Narrow`].
    pub fn buf_read(
        &self,
        handle: McHandle,
        offset_bytes: u64,
        into: &mut [u8],
    ) -> Result<(), NdlError> {
        self.buf_copy(handle, offset_bytes, user_addr(into).get(), Lent::Out(into))
    }

    fn buf_copy(
        &self,
        handle: McHandle,
        offset_bytes: u64,
        buffer: u64,
        lent: Lent<'_>,
    ) -> Result<(), NdlError> {
        let (size, is_write) = match &lent {
            Lent::In(bytes) => (bytes.len(), true),
            Lent::Out(bytes) => (bytes.len(), false),
        };
        let mem_handle = u64::from(handle.get());
        let copy_to_mem_handle = u32::from(is_write);
        let lent = &mut [lent];
        self.newest(&self.forms.buf_copy, 1, |form| {
            if form == NEWEST {
                let mut arg = ioctl::MemBufCopy64 {
                    mem_handle,
                    buffer,
                    size: size as u64,
                    offset: offset_bytes,
                    copy_to_mem_handle,
                    pad: 0,
                };
                return self.call(&self.work, ioctl::MEM_BUF_COPY64, &mut arg, lent);
            }
            let word = ioctl::MEM_BUF_COPY;
            let mut arg = ioctl::MemBufCopy {
                mem_handle,
                buffer,
                size: self.narrow(word, size as u64)?,
                offset: self.narrow(word, offset_bytes)?,
                copy_to_mem_handle,
                pad: 0,
            };
            self.call(&self.work, word, &mut arg, lent)
        })
    }

    /// Learns what device and driver are, and whether they will do.
    ///
    /// The runtime speaks the newest version that driver 2.27 accepts for the generation
    /// (uncertain: the reference's number is not public).
    fn negotiate(&self) -> Result<(Arch, u64), NdlError> {
        let device = self.id;
        let mut versions = ioctl::CompatibleVersion::default();
        let word = ioctl::COMPATIBLE_VERSION;
        self.call(&self.control, word, &mut versions, &mut [])?;
        let features = self.driver_features()?;
        let mut basic = ioctl::DeviceBasicInfo::default();
        let word = ioctl::DEVICE_BASIC_INFO;
        self.call(&self.work, word, &mut basic, &mut [])?;

        let number = basic.architecture;
        let known = |arch: &Arch| arch.profile().number() == number;
        let arch = Arch::ALL.into_iter().find(known);
        let arch = arch.ok_or(NdlError::Arch { device, number })?;
        let (_, version) = arch.profile().compatible_versions;
        let (min, max) = (versions.min, versions.max);
        if !(min..=max).contains(&version) {
            return Err(NdlError::Version {
                device,
                version,
                min,
                max,
            });
        }
        Ok((arch, features))
    }

    /// A driver that does not know the question has none.
    fn driver_features(&self) -> Result<u64, NdlError> {
        let mut driver = ioctl::DriverInfo::default();
        let word = ioctl::DRIVER_INFO_GET;
        match self.call(&self.control, word, &mut driver, &mut []) {
            Ok(()) => Ok(driver.feature_flags1),
            Err(error) if is_unknown(error.errno()) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The category is the driver's for its own bounce buffers (uncertain).
    fn add_copy_buffer(&mut self, core: CoreId) -> Result<(), NdlError> {
        let handle = self.allocate(&ChunkSpec {
            size_bytes: COPY_BUFFER_SIZE_BYTES,
            align_bytes: 0,
            location: Location::Host,
            channel: self.profile().default_channel(core),
            core,
            category: Category::NCDEV_HOST,
        })?;
        let mapping = match self.map(handle, COPY_BUFFER_SIZE_BYTES) {
            Ok(mapping) => mapping,
            Err(error) => {
                // The first error is the one that tells.
                let _ = self.free(handle);
                return Err(error);
            }
        };
        self.own.get_or_insert(handle);
        let buffer = CopyBuffer::new(self.id, handle, mapping);
        let lock = SleepLock::new(buffer, self.sched());
        self.copy_buffers.push(lock);
        Ok(())
    }

    fn call<T: FromBytes + IntoBytes>(
        &self,
        node: &Node,
        word: u32,
        arg: &mut T,
        lent: &mut [Lent<'_>],
    ) -> Result<(), NdlError> {
        let answer = self
            .transport
            .ioctl(node.fd, word, arg.as_mut_bytes(), lent);
        match answer {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.refused(name(word), errno)),
        }
    }

    fn refused(&self, call: &'static str, errno: Errno) -> NdlError {
        NdlError::Call {
            device: self.id,
            call,
            errno,
        }
    }

    fn answer(&self, word: u32, value: u64) -> NdlError {
        NdlError::Answer {
            device: self.id,
            call: name(word),
            value,
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for buffer in &self.copy_buffers {
            let buffer = buffer.lock(self.sched());
            // Closing the descriptor gives back what this cannot.
            let _ = self.free(buffer.handle());
        }
    }
}

fn name(word: u32) -> &'static str {
    ioctl::name(word).unwrap_or("an unknown command")
}
