//! Fakes that the driver's tests share: a machine's host memory with a budget, and faults by count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use glia_abi::addr::HostPa;
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::fault::{FaultPoint, Faults, NoFaults};
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::params::ModuleParams;
use glia_abi::port::HostMemory;
use glia_driver::memory::{DeviceMemory, MemoryConfig};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;

/// Host memory of a fixed number of bytes, from address 64 KiB up, first fit.
pub(crate) struct TestHost {
    capacity_bytes: u64,
    taken: Mutex<BTreeMap<u64, u64>>,
    /// Calls that are still granted before one is refused; negative: no refusal is ordered.
    calls_until_refusal: AtomicI64,
}

impl TestHost {
    pub(crate) fn new(capacity_bytes: u64) -> Arc<Self> {
        let never = AtomicI64::new(-1);
        Arc::new(Self {
            capacity_bytes,
            taken: Mutex::default(),
            calls_until_refusal: never,
        })
    }

    /// Refuses one call, after `calls` further ones.
    pub(crate) fn refuse_after(&self, calls: i64) {
        self.calls_until_refusal.store(calls, Ordering::Relaxed);
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.taken.lock().unwrap().values().sum()
    }
}

impl HostMemory for TestHost {
    fn alloc(&self, _device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        let refused = self.calls_until_refusal.fetch_sub(1, Ordering::Relaxed) == 0;
        if refused || size_bytes == 0 || self.used_bytes() + size_bytes > self.capacity_bytes {
            return None;
        }
        let mut taken = self.taken.lock().unwrap();
        let mut at = 64 << 10;
        for (&start, &size) in taken.iter() {
            if at + size_bytes <= start {
                break;
            }
            at = start + size;
        }
        taken.insert(at, size_bytes);
        Some(HostPa::new(at))
    }

    fn free(&self, _device: DeviceId, at: HostPa, size_bytes: u64) {
        assert_eq!(
            self.taken.lock().unwrap().remove(&at.get()),
            Some(size_bytes),
            "freed as taken"
        );
    }
}

/// Strikes once, at the n-th question about kernel memory.
pub(crate) struct NthFault {
    nth: u64,
    asked: AtomicU64,
}

impl NthFault {
    pub(crate) fn new(nth: u64) -> Arc<Self> {
        Arc::new(Self {
            nth,
            asked: AtomicU64::new(0),
        })
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Faults for NthFault {
    fn strikes(&self, point: FaultPoint) -> bool {
        let is_kernel_memory = matches!(
            point,
            FaultPoint::Alloc
                | FaultPoint::ChunkRecord
                | FaultPoint::HandleTable
                | FaultPoint::HandlePage
                | FaultPoint::Pool
        );
        is_kernel_memory && self.asked.fetch_add(1, Ordering::Relaxed) == self.nth
    }
}

pub(crate) const PID: Pid = Pid::new(77);

/// A V2 device of two channels of 32 MiB, 4 MiB of each in the small pool, with 2 MiB in each host
/// reserve pool.
pub(crate) fn small_device() -> MemoryConfig {
    let layout = MemoryLayout::new(
        Arch::V2,
        Scale::RegionSize {
            size_bytes: 32 * MIB,
        },
    )
    .unwrap();
    let params = ModuleParams {
        mempool_small_pool_size: 4 * MIB,
        mempool_host_memory_size: 2 * MIB,
        ..ModuleParams::default()
    };
    MemoryConfig {
        params,
        ..MemoryConfig::new(layout)
    }
}

/// A fresh small device on a host with room, and nothing that fails.
pub(crate) fn fresh() -> DeviceMemory {
    DeviceMemory::new(small_device(), TestHost::new(64 * MIB), Arc::new(NoFaults)).unwrap()
}
