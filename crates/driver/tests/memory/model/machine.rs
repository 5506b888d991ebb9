//! A machine whose host memory and kernel memory fail on order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use glia_abi::addr::HostPa;
use glia_abi::fault::{FaultPoint, Faults};
use glia_abi::handle::DeviceId;
use glia_abi::port::HostMemory;

use crate::support::TestHost;

/// An order to fail: `skip` questions are answered yes, then `count` no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Order {
    pub(super) skip: u32,
    pub(super) count: u32,
}

impl Order {
    pub(super) fn strikes(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let strikes = self.count > 0;
        self.count = self.count.saturating_sub(1);
        strikes
    }
}

/// What has been ordered to fail. The model has its own copy and asks it as often as the driver
/// must ask the machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Orders {
    pub(super) host: Order,
    pub(super) alloc: Order,
    pub(super) record: Order,
    pub(super) handle_page: Order,
}

pub(super) struct Machine {
    host: Arc<TestHost>,
    orders: Mutex<Orders>,
    last_granted: AtomicU64,
}

/// The device that asks.
pub(super) const DEVICE: DeviceId = DeviceId::new(5);

impl Machine {
    pub(super) fn new(host_bytes: u64, host: Order) -> Arc<Self> {
        Arc::new(Self {
            host: TestHost::new(host_bytes),
            orders: Mutex::new(Orders {
                host,
                ..Orders::default()
            }),
            last_granted: AtomicU64::new(0),
        })
    }

    pub(super) fn orders(&self) -> Orders {
        *self.orders.lock().unwrap()
    }

    pub(super) fn order(&self, orders: Orders) {
        *self.orders.lock().unwrap() = orders;
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.host.used_bytes()
    }

    /// Where the memory granted last lies.
    pub(super) fn last_granted(&self) -> HostPa {
        HostPa::new(self.last_granted.load(Ordering::Relaxed))
    }
}

impl HostMemory for Machine {
    fn alloc(&self, device: DeviceId, size_bytes: u64) -> Option<HostPa> {
        assert_eq!(device, DEVICE);
        if self.orders.lock().unwrap().host.strikes() {
            return None;
        }
        let at = self.host.alloc(device, size_bytes)?;
        self.last_granted.store(at.get(), Ordering::Relaxed);
        Some(at)
    }

    fn free(&self, device: DeviceId, at: HostPa, size_bytes: u64) {
        assert_eq!(device, DEVICE);
        self.host.free(device, at, size_bytes);
    }
}

impl Faults for Machine {
    fn strikes(&self, point: FaultPoint) -> bool {
        let mut orders = self.orders.lock().unwrap();
        match point {
            FaultPoint::Alloc => orders.alloc.strikes(),
            FaultPoint::ChunkRecord => orders.record.strikes(),
            FaultPoint::HandlePage => orders.handle_page.strikes(),
            // The model orders no others.
            _ => false,
        }
    }
}
