//! The seams between driver and machine. For now one: host memory, as the driver's pools ask for
//! it.

use crate::addr::HostPa;
use crate::handle::DeviceId;

/// The machine's allocator of host memory that devices can reach (the reference's coherent DMA
/// allocator, DMA32 zone).
///
/// **Who owns what.** The machine owns all host memory. A range belongs to the driver from the
/// `alloc` that returned it to the `free` that names it with the same address and size; the machine
/// does not touch or move it meanwhile, and never returns overlapping ranges.
///
/// An implementation may refuse at any time; the driver then falls back on its reserve pools and
/// answers `ENOMEM` in the end.
pub trait HostMemory: Send + Sync {
    /// A fresh range of `size_bytes` (a multiple of 4,096), page-aligned and wholly below 4 GiB;
    /// `None` if it cannot be had. A size of 0 cannot be had.
    fn alloc(&self, device: DeviceId, size_bytes: u64) -> Option<HostPa>;

    /// Gives a range back, whole, as it was taken.
    fn free(&self, device: DeviceId, at: HostPa, size_bytes: u64);
}
