//! Trace events, as the reference has them: each has an id, and a payload of bytes where it begins
//! and where it stops (runtime 2.31).
//!
//! ```text
//!   TensorAllocate ─┬─ begins: 24 bytes
//!     DeviceAlloc   │  ─┬─ begins: 16 bytes
//!                   │   └─ stops: 40 bytes
//!                   └─ stops: 16 bytes
//! ```
//!
//! They go to a [`Tracer`], if the runtime is given one ([`RuntimeConfig::tracer`]): on the thread
//! that does what they tell of, one inside the other. A call that is refused before it does anything
//! has no event. Nothing here writes a trace: whoever does takes ids and bytes.
//!
//! What is public of the payloads: those of [`DeviceAlloc`](TraceId::DeviceAlloc) field by field, and
//! that both of [`DeviceFree`](TraceId::DeviceFree) have 24 bytes. The rest is Glia's own: fields of
//! 8 bytes first, then those of 4, all little-endian. A status is a field of 8 bytes
//! ([`NrtStatus::code`]), as it is where it is public.

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;

#[cfg(doc)]
use crate::config::RuntimeConfig;
use crate::error::RuntimeError;

/// What a trace event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TraceId {
    /// A tensor is read.
    TensorRead = 9,
    /// A tensor is written. (A fill has no event.)
    TensorWrite = 10,
    /// Tensors are read by one call.
    TensorReadBatch = 11,
    /// Tensors are written by one call.
    TensorWriteBatch = 12,
    /// A tensor is allocated.
    TensorAllocate = 27,
    /// A tensor is freed: a view of its bytes, which may not be the last.
    TensorFree = 28,
    /// Bytes are copied to an allocation.
    CopyIn = 30,
    /// Bytes are copied from an allocation.
    CopyOut = 31,
    /// Device memory is allocated.
    DeviceAlloc = 34,
    /// Device memory is freed.
    DeviceFree = 35,
}

impl TraceId {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// Who hears of trace events.
///
/// It is called by the thread that does what the event is about, and must not call the runtime.
pub trait Tracer: Send + Sync {
    /// Something begins.
    fn begin(&self, id: TraceId, payload: &[u8]);

    /// It stops: the last that has begun on this thread and not stopped.
    fn stop(&self, id: TraceId, payload: &[u8]);
}

/// A payload.
pub trait Payload {
    /// Its bytes.
    type Bytes: AsRef<[u8]>;

    /// The bytes, little-endian.
    fn to_bytes(&self) -> Self::Bytes;
}

/// What [`DeviceAlloc`](TraceId::DeviceAlloc) begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocStart {
    /// The device.
    pub device: DeviceId,
    /// The HBM.
    pub channel: Channel,
    /// What for.
    pub usage: MemUsage,
    /// Whether the HBM is the core's own.
    pub is_core_hbm: bool,
    /// Whether an alignment is asked for.
    pub is_aligned: bool,
}

/// What [`DeviceAlloc`](TraceId::DeviceAlloc) ends with. If it failed, the first two are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocStop {
    /// Bytes that the driver was asked for.
    pub allocated_bytes: u64,
    /// The first byte of the block.
    pub pa: BusAddr,
    /// How it ended, and what is in use behind it.
    pub end: MemoryEnd,
}

/// How an allocation or its end came out, and what the core holds behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEnd {
    /// How it ended.
    pub status: NrtStatus,
    /// Bytes of the core's that are for the same use.
    pub usage_bytes: u64,
    /// All bytes of the core.
    pub total_bytes: u64,
}

/// What [`DeviceFree`](TraceId::DeviceFree) begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeStart {
    /// The first byte of the block.
    pub pa: BusAddr,
    /// Bytes that the driver was asked for.
    pub allocated_bytes: u64,
    /// The HBM.
    pub channel: Channel,
    /// The device.
    pub device: DeviceId,
}

/// What [`CopyIn`](TraceId::CopyIn) and [`CopyOut`](TraceId::CopyOut) begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyStart {
    /// The first byte of the allocation.
    pub pa: BusAddr,
    /// From there.
    pub offset_bytes: u64,
    /// Bytes to copy.
    pub size_bytes: u64,
    /// The core whose queue moves them.
    pub core: CoreId,
    /// The device.
    pub device: DeviceId,
}

/// What [`TensorRead`](TraceId::TensorRead) and [`TensorWrite`](TraceId::TensorWrite) begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorStart {
    /// From the tensor's first byte.
    pub offset_bytes: u64,
    /// Bytes to move.
    pub size_bytes: u64,
}

/// What [`TensorReadBatch`](TraceId::TensorReadBatch) and
/// [`TensorWriteBatch`](TraceId::TensorWriteBatch) begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchStart {
    /// Batches, each of one tensor.
    pub batches: u64,
    /// Ranges of all batches.
    pub ranges: u64,
    /// Bytes of all ranges.
    pub size_bytes: u64,
}

/// What [`TensorAllocate`](TraceId::TensorAllocate) begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorAllocateStart {
    /// Bytes of the tensor.
    pub size_bytes: u64,
    /// The number of its placement: 0 the device, 1 the host.
    pub placement: u32,
    /// The core.
    pub core: CoreId,
    /// The device.
    pub device: DeviceId,
}

/// What [`TensorAllocate`](TraceId::TensorAllocate) stops with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorAllocateStop {
    /// The first byte of its storage, 0 if it failed.
    pub pa: BusAddr,
    /// How it ended.
    pub status: NrtStatus,
}

/// What [`TensorFree`](TraceId::TensorFree) begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorFreeStart {
    /// Where the view begins in its storage.
    pub offset_bytes: u64,
    /// Bytes of the view.
    pub size_bytes: u64,
}

/// What an event stops with if there is nothing to say but how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// How it ended.
    pub status: NrtStatus,
}

impl Stop {
    /// How a call ended.
    pub(crate) fn of<T>(outcome: &Result<T, RuntimeError>) -> Self {
        Self {
            status: RuntimeError::status_of(outcome),
        }
    }
}

/// A payload under construction: fields at their offsets, zeros between them.
struct Fields<const SIZE: usize>([u8; SIZE]);

impl<const SIZE: usize> Fields<SIZE> {
    const fn new() -> Self {
        Self([0; SIZE])
    }

    fn put<const N: usize>(mut self, at: usize, field: [u8; N]) -> Self {
        // PANIC: each payload below has room for its fields, as its test shows.
        self.0[at..at + N].copy_from_slice(&field);
        self
    }

    fn put_u32(self, at: usize, field: u32) -> Self {
        self.put(at, field.to_le_bytes())
    }

    fn put_u64(self, at: usize, field: u64) -> Self {
        self.put(at, field.to_le_bytes())
    }

    /// 4 bytes of the field's 8 (uncertain).
    fn put_status(self, at: usize, status: NrtStatus) -> Self {
        self.put(at, status.code().to_le_bytes())
    }

    fn put_end(self, at: usize, end: &MemoryEnd) -> Self {
        self.put_status(at, end.status)
            .put_u64(at + 8, end.usage_bytes)
            .put_u64(at + 16, end.total_bytes)
    }
}

impl Payload for AllocStart {
    type Bytes = [u8; 16];

    /// HBM at 0, usage at 4, the two answers at 8 and 9, device at 12.
    fn to_bytes(&self) -> Self::Bytes {
        // There are 22.
        let usage = u32::try_from(self.usage.index());
        let fields = Fields::new()
            .put_u32(0, self.channel.get())
            .put_u32(4, usage.unwrap_or_default())
            .put(8, [u8::from(self.is_core_hbm)])
            .put(9, [u8::from(self.is_aligned)])
            .put_u32(12, self.device.get());
        fields.0
    }
}

impl Payload for AllocStop {
    type Bytes = [u8; 40];

    /// Bytes at 0, address at 8, status at 16, the two sums at 24 and 32.
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.allocated_bytes)
            .put_u64(8, self.pa.get())
            .put_end(16, &self.end);
        fields.0
    }
}

impl Payload for FreeStart {
    type Bytes = [u8; 24];

    /// Address at 0, bytes at 8, HBM at 16, device at 20 (uncertain: all but the size).
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.pa.get())
            .put_u64(8, self.allocated_bytes)
            .put_u32(16, self.channel.get())
            .put_u32(20, self.device.get());
        fields.0
    }
}

/// What [`DeviceFree`](TraceId::DeviceFree) stops with.
impl Payload for MemoryEnd {
    type Bytes = [u8; 24];

    /// Status at 0, the two sums at 8 and 16, as an allocation stops with them (uncertain: all but
    /// the size).
    fn to_bytes(&self) -> Self::Bytes {
        Fields::new().put_end(0, self).0
    }
}

impl Payload for CopyStart {
    type Bytes = [u8; 32];

    /// Address at 0, offset at 8, bytes at 16, core at 24, device at 28 (Glia's own).
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.pa.get())
            .put_u64(8, self.offset_bytes)
            .put_u64(16, self.size_bytes)
            .put_u32(24, self.core.get())
            .put_u32(28, self.device.get());
        fields.0
    }
}

impl Payload for TensorStart {
    type Bytes = [u8; 16];

    /// Offset at 0, bytes at 8 (Glia's own).
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.offset_bytes)
            .put_u64(8, self.size_bytes);
        fields.0
    }
}

impl Payload for BatchStart {
    type Bytes = [u8; 24];

    /// Batches at 0, ranges at 8, bytes at 16 (Glia's own).
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.batches)
            .put_u64(8, self.ranges)
            .put_u64(16, self.size_bytes);
        fields.0
    }
}

impl Payload for TensorAllocateStart {
    type Bytes = [u8; 24];

    /// Bytes at 0, placement at 8, core at 12, device at 16 (Glia's own).
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.size_bytes)
            .put_u32(8, self.placement)
            .put_u32(12, self.core.get())
            .put_u32(16, self.device.get());
        fields.0
    }
}

impl Payload for TensorAllocateStop {
    type Bytes = [u8; 16];

    /// Address at 0, status at 8 (Glia's own).
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.pa.get())
            .put_status(8, self.status);
        fields.0
    }
}

impl Payload for TensorFreeStart {
    type Bytes = [u8; 16];

    /// Offset at 0, bytes at 8 (Glia's own).
    fn to_bytes(&self) -> Self::Bytes {
        let fields = Fields::new()
            .put_u64(0, self.offset_bytes)
            .put_u64(8, self.size_bytes);
        fields.0
    }
}

impl Payload for Stop {
    type Bytes = [u8; 8];

    /// The status (Glia's own).
    fn to_bytes(&self) -> Self::Bytes {
        Fields::new().put_status(0, self.status).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: MemoryEnd = MemoryEnd {
        status: NrtStatus::Resource,
        usage_bytes: 5,
        total_bytes: 6,
    };

    /// The bytes as words of 8.
    fn words(payload: &impl Payload) -> Vec<u64> {
        let bytes = payload.to_bytes();
        let (words, rest) = bytes.as_ref().as_chunks::<8>();
        assert_eq!(rest.len(), 0);
        words.iter().copied().map(u64::from_le_bytes).collect()
    }

    #[test]
    fn a_start_has_its_fields_at_the_references_offsets() {
        let start = AllocStart {
            device: DeviceId::new(0x0403_0201),
            channel: Channel::new(3),
            usage: MemUsage::ScratchpadNotShared,
            is_core_hbm: true,
            is_aligned: false,
        };
        let wanted = [3, 0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4];
        assert_eq!(start.to_bytes(), wanted);
        let aligned = AllocStart {
            is_core_hbm: false,
            is_aligned: true,
            ..start
        };
        assert_eq!(aligned.to_bytes()[8..10], [0, 1]);
    }

    #[test]
    fn a_stop_has_its_fields_at_the_references_offsets() {
        let stop = AllocStop {
            allocated_bytes: 0x1122,
            pa: BusAddr::new(0x3344),
            end: END,
        };
        assert_eq!(words(&stop), [0x1122, 0x3344, 4, 5, 6]);
    }

    /// 24 bytes each, as the reference's.
    #[test]
    fn both_payloads_of_a_free_have_the_references_size() {
        let start = FreeStart {
            pa: BusAddr::new(0x3344),
            allocated_bytes: 0x1122,
            channel: Channel::new(3),
            device: DeviceId::new(14),
        };
        assert_eq!(words(&start), [0x3344, 0x1122, 14 << 32 | 3]);
        assert_eq!(words(&END), [4, 5, 6]);
    }

    #[test]
    fn the_other_payloads_have_their_fields_without_gaps() {
        let (core, device) = (CoreId::new(7), DeviceId::new(9));
        let copy = CopyStart {
            pa: BusAddr::new(1),
            offset_bytes: 2,
            size_bytes: 3,
            core,
            device,
        };
        assert_eq!(words(&copy), [1, 2, 3, 9 << 32 | 7]);
        let access = TensorStart {
            offset_bytes: 1,
            size_bytes: 2,
        };
        assert_eq!(words(&access), [1, 2]);
        let batch = BatchStart {
            batches: 1,
            ranges: 2,
            size_bytes: 3,
        };
        assert_eq!(words(&batch), [1, 2, 3]);
        let allocate = TensorAllocateStart {
            size_bytes: 5,
            placement: 1,
            core,
            device,
        };
        assert_eq!(words(&allocate), [5, 7 << 32 | 1, 9]);
        let status = NrtStatus::Resource;
        let allocated = TensorAllocateStop {
            pa: BusAddr::new(8),
            status,
        };
        assert_eq!(words(&allocated), [8, 4]);
        let free = TensorFreeStart {
            offset_bytes: 3,
            size_bytes: 4,
        };
        assert_eq!(words(&free), [3, 4]);
        assert_eq!(words(&Stop { status }), [4]);
    }

    #[test]
    fn ids_are_the_references() {
        use TraceId::{
            CopyIn, CopyOut, DeviceAlloc, DeviceFree, TensorAllocate, TensorFree, TensorRead,
            TensorReadBatch, TensorWrite, TensorWriteBatch,
        };
        let ids = [
            TensorRead,
            TensorWrite,
            TensorReadBatch,
            TensorWriteBatch,
            TensorAllocate,
            TensorFree,
            CopyIn,
            CopyOut,
            DeviceAlloc,
            DeviceFree,
        ];
        let wanted = [9, 10, 11, 12, 27, 28, 30, 31, 34, 35];
        assert_eq!(ids.map(TraceId::number), wanted);
    }
}
