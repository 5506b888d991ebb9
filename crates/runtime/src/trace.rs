//! The payloads of the reference's trace events, byte for byte (runtime 2.31), as far as they are
//! known: those of a device allocation. Nothing here writes a trace; a writer takes ids and bytes.

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, DeviceId};
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;

/// What a trace event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TraceId {
    /// A tensor is read.
    TensorRead = 9,
    /// A tensor is written.
    TensorWrite = 10,
    /// Tensors are read by one command.
    TensorReadBatch = 11,
    /// Tensors are written by one command.
    TensorWriteBatch = 12,
    /// A tensor is allocated.
    TensorAllocate = 27,
    /// A tensor is freed.
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

/// What [`DeviceAlloc`](TraceId::DeviceAlloc) ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocStop {
    /// Bytes that the driver was asked for.
    pub allocated_bytes: u64,
    /// The first byte of the block.
    pub pa: BusAddr,
    /// How it ended.
    pub status: NrtStatus,
    /// Bytes of the core's that are for the same use.
    pub usage_bytes: u64,
    /// All bytes of the core.
    pub total_bytes: u64,
}

/// A payload under construction: fields at their offsets, zeros between them.
struct Payload<const SIZE: usize>([u8; SIZE]);

impl<const SIZE: usize> Payload<SIZE> {
    fn put<const N: usize>(mut self, at: usize, field: [u8; N]) -> Self {
        // PANIC: each payload below has room for its fields, as its test shows.
        self.0[at..at + N].copy_from_slice(&field);
        self
    }
}

impl AllocStart {
    /// HBM at 0, usage at 4, the two answers at 8 and 9, device at 12; little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut numbers = (0_u32..).zip(MemUsage::ALL);
        let usage = numbers.find_map(|(number, usage)| (usage == self.usage).then_some(number));
        Payload([0; 16])
            .put(0, self.channel.get().to_le_bytes())
            .put(4, usage.unwrap_or_default().to_le_bytes())
            .put(8, [u8::from(self.is_core_hbm)])
            .put(9, [u8::from(self.is_aligned)])
            .put(12, self.device.get().to_le_bytes())
            .0
    }
}

impl AllocStop {
    /// Bytes at 0, address at 8, status at 16 (4 bytes: uncertain), the two sums at 24 and 32;
    /// little-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 40] {
        Payload([0; 40])
            .put(0, self.allocated_bytes.to_le_bytes())
            .put(8, self.pa.get().to_le_bytes())
            .put(16, self.status.code().to_le_bytes())
            .put(24, self.usage_bytes.to_le_bytes())
            .put(32, self.total_bytes.to_le_bytes())
            .0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            status: NrtStatus::Resource,
            usage_bytes: 5,
            total_bytes: 6,
        };
        let bytes = stop.to_bytes();
        let words = bytes.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
        assert_eq!(words, [0x1122, 0x3344, 4, 5, 6]);
    }

    #[test]
    fn ids_are_the_references() {
        use TraceId::{DeviceAlloc, DeviceFree, TensorAllocate, TensorRead, TensorWriteBatch};
        let ids = [
            TensorRead,
            TensorWriteBatch,
            TensorAllocate,
            DeviceAlloc,
            DeviceFree,
        ];
        assert_eq!(ids.map(TraceId::number), [9, 12, 27, 34, 35]);
    }
}
