//! The ledger by the driver's counters: what a process adds to the figures that sysfs shows.
//!
//! The driver charges what it gives to a [`Counter`] for each category (driver 2.27), device memory
//! to the core and host memory to the device, and shows that below `memory_usage/device_mem` and
//! `memory_usage/host_mem`. This is the same division of what this process has, by the category that
//! each allocation's usage is given. Bytes are those that were asked for; the driver's are whole
//! pages, count its own memory and that of other processes.

use glia_abi::handle::{CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::usage::Counter;

use super::events::Action;
use super::ledger::Balance;

const COUNTERS: usize = Counter::ALL.len();

/// A balance for each counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters([Balance; COUNTERS]);

impl Counters {
    /// One of them, or the total of a location.
    #[must_use]
    pub fn get(&self, counter: Counter) -> Balance {
        self.0[counter.index()]
    }

    /// Books bytes that come or go, as many as a number can hold or as there are; how many.
    pub(super) fn book(&mut self, action: Action, counter: Counter, bytes: u64) -> u64 {
        self.0[counter.index()].book(action, bytes)
    }

    /// The same, but for one of them.
    pub(super) fn with(mut self, counter: Counter, balance: Balance) -> Self {
        self.0[counter.index()] = balance;
        self
    }
}

/// What this process has of a core's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreMetrics {
    /// The core.
    pub core: CoreId,
    /// Its device memory, by counter.
    pub counters: Counters,
}

/// What this process has of a device's memory, by the driver's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryMetrics {
    /// The device.
    pub device: DeviceId,
    /// Host memory, of all cores together: `host_mem` is the device's.
    pub host: Counters,
    /// Device memory, core by core: `device_mem` is the core's.
    pub cores: Vec<CoreMetrics>,
}

impl MemoryMetrics {
    /// The device memory of one of its cores; `None` if the device has no such core.
    #[must_use]
    pub fn core(&self, core: CoreId) -> Option<&Counters> {
        let found = self.cores.iter().find(|one| one.core == core);
        found.map(|one| &one.counters)
    }

    /// Each counter that sysfs shows: the core, or `None` for host memory; the counter, whose
    /// [leaf](Counter::sysfs_leaf) is its name there; its balance.
    pub fn leaves(&self) -> impl Iterator<Item = (Option<CoreId>, Counter, Balance)> {
        let host = std::iter::once((None, &self.host));
        let cores = self.cores.iter();
        let cores = cores.map(|one| (Some(one.core), &one.counters));
        host.chain(cores).flat_map(|(core, counters)| {
            let location = match core {
                Some(_) => Location::Device,
                None => Location::Host,
            };
            let shown = Counter::ALL.into_iter();
            let shown = shown.filter(move |counter| is_shown(*counter, location));
            shown.map(move |counter| (core, counter, counters.get(counter)))
        })
    }
}

/// The counter of a use at a location. A use that is refused there has none of its own.
pub(super) const fn counter(usage: MemUsage, location: Location) -> Counter {
    match (usage.category(location), location) {
        (Some(category), _) => category.counter(location),
        (None, Location::Host) => Counter::UncategorizedHost,
        (None, Location::Device) => Counter::UncategorizedDevice,
    }
}

/// Whether sysfs has a counter among those of a location.
fn is_shown(counter: Counter, location: Location) -> bool {
    use Counter as C;
    let is_host = match counter {
        C::HostTotal | C::DeviceTotal => return false,
        C::UncategorizedHost
        | C::CodeHost
        | C::TensorsHost
        | C::ConstantsHost
        | C::MiscHost
        | C::NcdevHost
        | C::NotificationHost
        | C::DmaRingsHost => true,
        C::UncategorizedDevice
        | C::CodeDevice
        | C::TensorsDevice
        | C::ConstantsDevice
        | C::ScratchpadDevice
        | C::MiscDevice
        | C::NcdevDevice
        | C::CollectivesDevice
        | C::ScratchpadNonsharedDevice
        | C::NotificationDevice
        | C::DmaRingsDevice => false,
    };
    is_host == (location == Location::Host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_has_eight_counters_of_host_memory_and_eleven_of_a_core() {
        let metrics = MemoryMetrics {
            device: DeviceId::new(0),
            host: Counters::default(),
            cores: vec![CoreMetrics {
                core: CoreId::new(5),
                counters: Counters::default(),
            }],
        };
        let leaves = |core: Option<CoreId>| -> Vec<&str> {
            let of_core = metrics.leaves().filter(|(one, ..)| *one == core);
            let mut names: Vec<_> = of_core
                .filter_map(|(_, counter, _)| counter.sysfs_leaf())
                .collect();
            names.sort_unstable();
            names
        };
        let host = [
            "application_memory",
            "constants",
            "dma_buffers",
            "dma_rings",
            "driver_memory",
            "notifications",
            "tensors",
            "uncategorized",
        ];
        assert_eq!(leaves(None), host);
        let device = [
            "collectives",
            "constants",
            "dma_rings",
            "driver_memory",
            "model_code",
            "model_shared_scratchpad",
            "nonshared_scratchpad",
            "notifications",
            "runtime_memory",
            "tensors",
            "uncategorized",
        ];
        assert_eq!(leaves(Some(CoreId::new(5))), device);
    }
}
