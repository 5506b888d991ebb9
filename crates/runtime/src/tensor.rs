//! Tensors: named bytes on a core. No type and no shape; those are the framework's.
//!
//! ```text
//!   Tensor "kv"      offset 0,    1 MiB ──┐
//!   Tensor "kv[1]"   offset 4096, 4 KiB ──┼─► storage: HBM, or host memory
//!   Tensor "kv[1,0]" offset 4096, 64 B  ──┘   goes with its last view
//! ```
//!
//! A [`Tensor`] is a view: a range of a storage that several views may share. A slice counts from
//! the view that it is cut from and stays within it. An [empty](Tensor::allocate_empty) tensor has
//! no storage until a buffer of the caller's is [attached](Tensor::attach_buffer).
//!
//! Accesses are fenced: a read waits for writes of the same storage, a write for reads and writes.
//! Whoever executes a model takes part with [`read_fence`](Tensor::read_fence) and
//! [`write_fence`](Tensor::write_fence). Batches ([`write_batches`], [`read_batches`]) may leave
//! that out.
//!
//! Every offset is checked against the view, and no sum wraps. All sizes are of 64 bits: tensors of
//! 4 GiB and more are like others (before runtime 2.30.50 they were not).
//!
//! **Who owns what.** A storage owns its device memory; an attached buffer stays the caller's.

mod batch;
mod outputs;
mod set;
mod storage;

use std::fmt;
use std::sync::Arc;

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::sched::Micros;
use glia_abi::transport::Mapping;

use crate::dmem::{AllocSpec, Allocator, AskedAt, Block, Caller, Dmem, UsedBlock};
use crate::dml::Level;
use crate::error::{Hbm, Party, RuntimeError};
use crate::runtime::{Core, Runtime, Session};
use crate::trace::{
    Stop, TensorAllocateStart, TensorAllocateStop, TensorFreeStart, TensorStart, TraceId,
};

pub use batch::{Fencing, ReadBatch, ReadOp, WriteBatch, WriteOp, read_batches, write_batches};
use outputs::Outputs;
pub use set::TensorSet;
pub use storage::Fence;
use storage::{Access, Memory, Storage, check};

/// Where a tensor is to be (runtime 2.31, `nrt_tensor_placement_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// 0: HBM of the core's channel.
    Device,
    /// 1: host memory, for at most 4 MiB. V3 refuses it.
    Host,
}

impl TryFrom<u32> for Placement {
    type Error = RuntimeError;

    /// The placement of a number of the C API.
    ///
    /// # Errors
    /// [`RuntimeError::NoPlacement`]; also for 2, `VIRTUAL`, which runtime 2.32 took away.
    fn try_from(number: u32) -> Result<Self, RuntimeError> {
        match number {
            0 => Ok(Self::Device),
            1 => Ok(Self::Host),
            _ => Err(RuntimeError::NoPlacement { number }),
        }
    }
}

/// What a tensor without a name is called.
const UNKNOWN_NAME: &str = "_unknown_";
/// Host tensors are not meant to be larger; a larger one is made, with a warning.
const HOST_SIZE_BYTES_MAX: u64 = 4 << 20;
/// Bytes that a copy by the processor moves at a time.
const PIECE: usize = 1 << 20;

/// A view of bytes, with a name. The bytes go back with their last view.
pub struct Tensor {
    session: Arc<Session>,
    name: String,
    /// `None` for an empty tensor.
    storage: Option<Arc<Storage>>,
    /// Where the view begins in the storage.
    offset_bytes: u64,
    size_bytes: u64,
    outputs: Outputs,
}

/// Where a tensor's storage lies (`nrt_tensor_get_device_allocation_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AllocationInfo {
    /// The storage's first byte, as the device sees it.
    pub pa: BusAddr,
    /// Bytes of the storage, which may be more than the tensor has.
    pub size_bytes: u64,
    /// On which HBM.
    pub hbm: Hbm,
}

impl Tensor {
    /// Allocates a tensor that lives with its core. Without a name it is `UNNAMED` in the log.
    ///
    /// # Errors
    /// [`RuntimeError::HostTensor`] on a generation without them; otherwise as
    /// [`Runtime::allocate`].
    #[track_caller]
    pub fn allocate(
        runtime: &Runtime,
        core: Core,
        placement: Placement,
        size_bytes: u64,
        name: &str,
    ) -> Result<Self, RuntimeError> {
        Self::allocate_at(runtime, core, placement, size_bytes, name, None)
    }

    /// The same for a place in a program that the caller has a name for, as
    /// [`AllocSpec::site`]; `None` for the line of code that calls this.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_at(
        runtime: &Runtime,
        core: Core,
        placement: Placement,
        size_bytes: u64,
        name: &str,
        site: Option<AskedAt<'_>>,
    ) -> Result<Self, RuntimeError> {
        let caller = std::panic::Location::caller();
        let allocator = runtime.global(core)?;
        let session = runtime.session();
        let start = || TensorAllocateStart {
            size_bytes,
            placement: placement as u32,
            core: core.core,
            device: core.device,
        };
        let stop = |allocated: &Result<Dmem, RuntimeError>| TensorAllocateStop {
            pa: allocated
                .as_ref()
                .map_or(BusAddr::new(0), |memory| memory.pa()),
            status: RuntimeError::status_of(allocated),
        };
        let memory = session.traced(
            TraceId::TensorAllocate,
            start,
            || Self::allocate_memory(allocator, placement, size_bytes, name, (site, caller)),
            stop,
        )?;
        let storage = Storage::new(session, Memory::Allocated(memory));
        Ok(Self::view(session, name, Some(storage), 0, size_bytes))
    }

    fn allocate_memory(
        allocator: &Allocator,
        placement: Placement,
        size_bytes: u64,
        name: &str,
        (site, caller): (Option<AskedAt<'_>>, Caller),
    ) -> Result<Dmem, RuntimeError> {
        let device = allocator.device();
        let spec = AllocSpec {
            location: match placement {
                Placement::Device => Location::Device,
                Placement::Host => Location::Host,
            },
            hint: (!name.is_empty()).then_some(name),
            site,
            ..AllocSpec::device(size_bytes, MemUsage::Tensor)
        };
        let label = spec.hint.unwrap_or("UNNAMED");
        let log = |level, message: &str| device.session.log(level, "tensor_allocate", message);
        let is_refused = placement == Placement::Host && device.ndl.profile().arch == Arch::V3;
        let allocated = if is_refused {
            let refused = RuntimeError::HostTensor {
                device: device.ndl.id(),
            };
            // The line below does not say why.
            log(Level::Error, &refused.to_string());
            Err(allocator.tell(&spec, caller, refused))
        } else {
            if placement == Placement::Host && size_bytes > HOST_SIZE_BYTES_MAX {
                let message = format!(
                    "Tensor {label} has {size_bytes} bytes in host memory, which is meant for {HOST_SIZE_BYTES_MAX} at most"
                );
                log(Level::Warn, &message);
            }
            allocator.allocate(&spec, caller)
        };
        allocated.inspect_err(|_| {
            let place = match placement {
                Placement::Device => "DEVICE",
                Placement::Host => "HOST",
            };
            let message =
                format!("Failed to allocate {size_bytes} bytes on {place} for tensor {label}.");
            log(Level::Error, &message);
        })
    }

    /// A tensor without bytes, to which a buffer can be attached.
    ///
    /// # Errors
    /// [`RuntimeError::Closed`].
    pub fn allocate_empty(runtime: &Runtime, name: &str) -> Result<Self, RuntimeError> {
        let session = runtime.session();
        session.gate()?;
        Ok(Self::view(session, name, None, 0, 0))
    }

    /// Makes the caller's memory the storage of this tensor, which is all of it then. The storage
    /// from before goes with its last view; slices of it stay what they are.
    ///
    /// # Errors
    /// [`RuntimeError::Closed`].
    pub fn attach_buffer(&mut self, buffer: Arc<dyn Mapping>) -> Result<(), RuntimeError> {
        self.session.gate()?;
        let storage = Storage::new(&self.session, Memory::Attached(buffer));
        (self.offset_bytes, self.size_bytes) = (0, storage.size_bytes());
        self.storage = Some(storage);
        Ok(())
    }

    /// A view of a part of this one. Its offset counts from here.
    ///
    /// # Errors
    /// [`RuntimeError::OutOfBounds`] if the part leaves this view; [`RuntimeError::Closed`].
    pub fn slice(
        &self,
        offset_bytes: u64,
        size_bytes: u64,
        name: &str,
    ) -> Result<Self, RuntimeError> {
        self.session.gate()?;
        check(offset_bytes, size_bytes, self.size_bytes)?;
        Ok(Self::view(
            &self.session,
            name,
            self.storage.clone(),
            self.offset_bytes + offset_bytes,
            size_bytes,
        ))
    }

    fn view(
        session: &Arc<Session>,
        name: &str,
        storage: Option<Arc<Storage>>,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            name: match name {
                "" => UNKNOWN_NAME.to_owned(),
                name => name.to_owned(),
            },
            storage,
            offset_bytes,
            size_bytes,
            outputs: Outputs::new(session.sched()),
        }
    }

    /// Its name; `_unknown_` if it was given none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the view.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The allocation behind it; `None` if it is empty, or its bytes are the caller's.
    #[must_use]
    pub fn memory(&self) -> Option<&Dmem> {
        match &self.storage.as_ref()?.memory {
            Memory::Allocated(dmem) => Some(dmem),
            Memory::Attached(_) => None,
        }
    }

    /// Where its storage lies in HBM.
    ///
    /// # Errors
    /// [`RuntimeError::NotOnDevice`]; [`RuntimeError::Closed`].
    pub fn allocation_info(&self) -> Result<AllocationInfo, RuntimeError> {
        self.session.gate()?;
        let (block, _) = self.device_block()?;
        let facts = block.facts();
        Ok(AllocationInfo {
            pa: facts.first_byte(),
            size_bytes: facts.size_bytes,
            hbm: hbm(&block),
        })
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// As [`Dmem::write`]; [`RuntimeError::Closed`].
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        self.session.gate()?;
        check(offset_bytes, bytes.len() as u64, self.size_bytes)?;
        self.traced(TraceId::TensorWrite, offset_bytes, bytes.len(), || {
            let _fence = self.write_fence();
            self.write_unfenced(offset_bytes, bytes)
        })
    }

    /// Reads bytes from an offset.
    ///
    /// # Errors
    /// As [`Dmem::read`]; [`RuntimeError::Closed`].
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        self.session.gate()?;
        check(offset_bytes, into.len() as u64, self.size_bytes)?;
        self.traced(TraceId::TensorRead, offset_bytes, into.len(), || {
            let _fence = self.read_fence();
            self.read_unfenced(offset_bytes, into)
        })
    }

    /// Fills bytes at an offset with one value (`nrt_tensor_memset`).
    ///
    /// # Errors
    /// As [`Dmem::fill`]; [`RuntimeError::Closed`].
    pub fn fill(&self, offset_bytes: u64, size_bytes: u64, value: u8) -> Result<(), RuntimeError> {
        self.session.gate()?;
        check(offset_bytes, size_bytes, self.size_bytes)?;
        let _fence = self.write_fence();
        let Some(storage) = &self.storage else {
            return Ok(());
        };
        storage.fill(self.offset_bytes + offset_bytes, size_bytes, value)
    }

    /// Copies bytes to another tensor: by the device if both are in HBM, by the processor
    /// otherwise. What becomes of ranges that overlap is not said. The other one may be of another
    /// runtime that was opened with the same [`Transport`](glia_abi::transport::Transport).
    ///
    /// # Errors
    /// [`RuntimeError::OtherHbm`] if they are on two HBMs; [`RuntimeError::OtherProcess`] if they are
    /// of two processes; [`RuntimeError::OutOfBounds`]; [`RuntimeError::Driver`];
    /// [`RuntimeError::Closed`] and [`RuntimeError::WrongState`] if either runtime is.
    pub fn copy_to(
        &self,
        offset_bytes: u64,
        target: &Self,
        target_offset_bytes: u64,
        size_bytes: u64,
    ) -> Result<(), RuntimeError> {
        self.session.gate()?;
        target.session.gate()?;
        self.is_of_the_process_of(target)?;
        check(offset_bytes, size_bytes, self.size_bytes)?;
        check(target_offset_bytes, size_bytes, target.size_bytes)?;
        let (Some(from), Some(to)) = (&self.storage, &target.storage) else {
            return Ok(());
        };
        let blocks = (self.device_block(), target.device_block());
        if let (Ok((source, begin_bytes)), Ok((sink, target_begin_bytes))) = blocks {
            let (from_hbm, to_hbm) = (hbm(&source), hbm(&sink));
            if from_hbm != to_hbm {
                return Err(RuntimeError::OtherHbm {
                    from: from_hbm,
                    to: to_hbm,
                });
            }
            let _fence = copy_fence(from, to);
            let offset_bytes = begin_bytes + offset_bytes;
            let target_offset_bytes = target_begin_bytes + target_offset_bytes;
            return source.copy_to(offset_bytes, &sink, target_offset_bytes, size_bytes);
        }
        let _fence = copy_fence(from, to);
        let mut done_bytes = 0;
        let mut piece = Vec::new();
        while done_bytes < size_bytes {
            let left = usize::try_from(size_bytes - done_bytes);
            piece.resize(left.map_or(PIECE, |left| left.min(PIECE)), 0);
            self.read_unfenced(offset_bytes + done_bytes, &mut piece)?;
            target.write_unfenced(target_offset_bytes + done_bytes, &piece)?;
            done_bytes += piece.len() as u64;
        }
        Ok(())
    }

    /// Begins an access that reads, when no write is pending. Whoever holds it and writes to the same
    /// storage waits for himself.
    pub fn read_fence(&self) -> Fence {
        self.fence(Access::Read)
    }

    /// Begins an access that writes, when nothing is pending. Whoever holds it and reads or writes the
    /// same storage waits for himself.
    pub fn write_fence(&self) -> Fence {
        self.fence(Access::Write)
    }

    /// Counts a complete output: for whoever executes a model.
    pub fn add_output_completion(&self) {
        self.outputs.add(self.session.sched());
    }

    /// Waits until so many outputs are complete since the last reset; without bound if `within` is
    /// `None` (a negative `timeout_us` of the C API).
    ///
    /// # Errors
    /// [`RuntimeError::Incomplete`] if they are not in time; [`RuntimeError::Closed`].
    pub fn check_output_completion(
        &self,
        within: Option<Micros>,
        expected: u64,
    ) -> Result<(), RuntimeError> {
        self.session.gate()?;
        let sched = self.session.sched();
        self.outputs.wait(sched, expected, within)
    }

    /// Begins to count at 0 again.
    ///
    /// # Errors
    /// [`RuntimeError::Closed`].
    pub fn reset_output_completion(&self) -> Result<(), RuntimeError> {
        self.session.gate()?;
        self.outputs.reset();
        Ok(())
    }

    /// Moves bytes of it as an event of a trace.
    fn traced(
        &self,
        id: TraceId,
        offset_bytes: u64,
        size: usize,
        access: impl FnOnce() -> Result<(), RuntimeError>,
    ) -> Result<(), RuntimeError> {
        let start = || TensorStart {
            offset_bytes,
            size_bytes: size as u64,
        };
        self.session.traced(id, start, access, Stop::of)
    }

    fn fence(&self, access: Access) -> Fence {
        Fence::begin(self.storage.clone().map(|storage| (storage, access)))
    }

    /// Writes in bounds.
    fn write_unfenced(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        match &self.storage {
            Some(storage) => storage.write(self.offset_bytes + offset_bytes, bytes),
            None => Ok(()),
        }
    }

    /// Reads in bounds.
    fn read_unfenced(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        match &self.storage {
            Some(storage) => storage.read(self.offset_bytes + offset_bytes, into),
            None => Ok(()),
        }
    }

    /// Refuses two tensors whose runtimes reach the driver in two ways. A number by which one driver
    /// knows the memory of the one may be that of anything to the other's.
    fn is_of_the_process_of(&self, other: &Self) -> Result<(), RuntimeError> {
        if self.session.is_one_with(&other.session) {
            return Ok(());
        }
        Err(RuntimeError::OtherProcess {
            one: Box::new(self.party()),
            other: Box::new(other.party()),
        })
    }

    fn party(&self) -> Party {
        Party {
            tensor: self.name.clone(),
            process: self.session.config().process,
        }
    }

    /// Its block in HBM, and where it begins there.
    fn device_block(&self) -> Result<(UsedBlock, u64), RuntimeError> {
        let memory = self.memory();
        let memory = memory.filter(|dmem| dmem.facts().location == Location::Device);
        let memory = memory.ok_or_else(|| RuntimeError::NotOnDevice {
            name: self.name.clone(),
        })?;
        Ok((memory.access(0, 0)?, self.offset_bytes))
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        let start = TensorFreeStart {
            offset_bytes: self.offset_bytes,
            size_bytes: self.size_bytes,
        };
        // The bytes go back in between, if this is their last view.
        let storage = self.storage.take();
        let stop = |(): &()| Stop {
            status: NrtStatus::Success,
        };
        let session = &self.session;
        session.traced(TraceId::TensorFree, || start, || drop(storage), stop);
    }
}

fn copy_fence(from: &Arc<Storage>, to: &Arc<Storage>) -> Fence {
    Fence::begin([
        (Arc::clone(from), Access::Read),
        (Arc::clone(to), Access::Write),
    ])
}

fn hbm(block: &Block) -> Hbm {
    Hbm {
        device: block.device().ndl.id(),
        channel: block.facts().channel,
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name)
            .field("size_bytes", &self.size_bytes)
            .finish_non_exhaustive()
    }
}
