//! The ledger of a device: present and greatest bytes by channel, by core and usage, by model.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use glia_abi::addr::BusAddr;
use glia_abi::arch::ArchProfile;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::{Aggregate, MemUsage};
use glia_abi::usage::Counter;

use super::events::Action;
use super::metrics::{CoreMetrics, Counters, MemoryMetrics, counter};
use super::site::Site;
use super::table::{BankUsage, CoreUsage, ModelUsage, UsageTable};

/// A loaded model. Ids start at 1001, as in the reference, and are never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelId(pub u32);

impl ModelId {
    /// The first one of a process.
    pub const FIRST: Self = Self(1001);
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The facts of an allocation, which do not change during its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Bytes that the caller asked for.
    pub size_bytes: u64,
    /// Bytes that the driver was asked for, which is what the ledger counts.
    pub allocated_bytes: u64,
    /// The raw block's first byte, as the device sees it.
    pub pa: BusAddr,
    /// From there to the first byte that is used.
    pub align_offset_bytes: u64,
    /// Host memory or HBM.
    pub location: Location,
    /// What for.
    pub usage: MemUsage,
    /// The core that it is charged to.
    pub core: CoreId,
    /// The HBM channel.
    pub channel: Channel,
    /// The model that owns it; `None` if it lives with the core.
    pub model: Option<ModelId>,
    /// What the caller calls it.
    pub hint: Option<Arc<str>>,
    /// Where it was asked for; `None` if that is not known.
    pub site: Option<Site>,
}

impl Allocation {
    /// The first byte that is used, as the device sees it.
    #[must_use]
    pub fn first_byte(&self) -> BusAddr {
        // An address of the driver's and an offset in its block.
        let first = self.pa.checked_add(self.align_offset_bytes);
        first.unwrap_or(self.pa)
    }
}

/// Bytes by usage, and their sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageBytes {
    by_usage: [u64; MemUsage::COUNT],
    total: u64,
}

impl UsageBytes {
    /// Bytes of one usage.
    #[must_use]
    pub fn get(&self, usage: MemUsage) -> u64 {
        self.by_usage[usage.index()]
    }

    /// Bytes of all usages that a column of the report holds.
    #[must_use]
    pub fn aggregate(&self, aggregate: Aggregate) -> u64 {
        let usages = MemUsage::ALL.into_iter();
        let usages = usages.filter(|usage| usage.aggregate() == aggregate);
        usages.map(|usage| self.get(usage)).sum()
    }

    /// Bytes of all usages.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds bytes of one usage. What no device can hold is cut to what a number can.
    pub fn add(&mut self, usage: MemUsage, bytes: u64) {
        let bytes = bytes.min(u64::MAX - self.total);
        self.by_usage[usage.index()] += bytes;
        self.total += bytes;
    }

    /// Takes bytes of one usage off, at most those that there are.
    fn sub(&mut self, usage: MemUsage, bytes: u64) {
        let present_bytes = &mut self.by_usage[usage.index()];
        let bytes = bytes.min(*present_bytes);
        *present_bytes -= bytes;
        self.total -= bytes;
    }
}

/// Bytes of something now, and the most that there ever were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// Bytes now.
    pub present_bytes: u64,
    /// The most at any time.
    pub peak_bytes: u64,
}

impl Balance {
    /// Books bytes that come or go, as many as a number can hold or as there are; how many.
    pub(super) fn book(&mut self, action: Action, bytes: u64) -> u64 {
        match action {
            Action::Alloc => {
                let bytes = bytes.min(u64::MAX - self.present_bytes);
                self.present_bytes += bytes;
                self.peak_bytes = self.peak_bytes.max(self.present_bytes);
                bytes
            }
            Action::Free => {
                let bytes = bytes.min(self.present_bytes);
                self.present_bytes -= bytes;
                bytes
            }
        }
    }
}

/// What is charged to a core. Present and peak of a usage lie together, as they move together.
#[derive(Debug, Clone, Default)]
struct CoreAccount {
    total: Balance,
    /// Each peak is one of its own time.
    by_usage: [Balance; MemUsage::COUNT],
    /// Without their total, which is that of all usages.
    counters: Counters,
}

impl CoreAccount {
    fn present(&self) -> UsageBytes {
        self.bytes(|balance| balance.present_bytes)
    }

    fn peak(&self) -> UsageBytes {
        self.bytes(|balance| balance.peak_bytes)
    }

    fn bytes(&self, of: impl Fn(&Balance) -> u64) -> UsageBytes {
        let mut bytes = UsageBytes::default();
        for (usage, balance) in MemUsage::ALL.into_iter().zip(&self.by_usage) {
            bytes.add(usage, of(balance));
        }
        bytes
    }
}

#[derive(Debug)]
struct ModelAccount {
    core: CoreId,
    name: String,
    present: UsageBytes,
}

/// What of an allocation the ledger counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    /// Bytes that the driver was asked for.
    pub(super) bytes: u64,
    pub(super) location: Location,
    pub(super) usage: MemUsage,
    pub(super) core: CoreId,
    pub(super) channel: Channel,
    pub(super) model: Option<ModelId>,
}

/// Who holds how much of a device.
#[derive(Debug)]
pub(super) struct Ledger {
    profile: &'static ArchProfile,
    channels: Vec<Balance>,
    cores: Vec<CoreAccount>,
    /// Of host memory.
    host: Counters,
    models: BTreeMap<ModelId, ModelAccount>,
}

impl Ledger {
    /// An empty ledger for a device of this kind.
    pub(super) fn new(profile: &'static ArchProfile) -> Self {
        Self {
            profile,
            channels: vec![Balance::default(); profile.region_bases.len()],
            cores: vec![CoreAccount::default(); profile.cores as usize],
            host: Counters::default(),
            models: BTreeMap::new(),
        }
    }

    /// Books an allocation, or its end; gives the bytes in use on its channel after that. Host memory
    /// is in the device's counters alone.
    ///
    /// A core or channel that the device does not have is not counted either; nobody allocates
    /// there.
    pub(super) fn record(&mut self, action: Action, posting: &Posting) -> Option<u64> {
        let (usage, bytes) = (posting.usage, posting.bytes);
        let counter = counter(usage, posting.location);
        if posting.location == Location::Host {
            let booked_bytes = self.host.book(action, counter, bytes);
            self.host.book(action, Counter::HostTotal, booked_bytes);
            return None;
        }
        let channel = self.channels.get_mut(posting.channel.index())?;
        let core = self.cores.get_mut(posting.core.index())?;
        channel.book(action, bytes);
        let booked_bytes = core.by_usage[usage.index()].book(action, bytes);
        core.total.book(action, booked_bytes);
        core.counters.book(action, counter, booked_bytes);
        let model = posting.model.and_then(|id| self.models.get_mut(&id));
        match (model, action) {
            (None, _) => {}
            (Some(model), Action::Alloc) => model.present.add(usage, bytes),
            (Some(model), Action::Free) => model.present.sub(usage, bytes),
        }
        Some(channel.present_bytes)
    }

    /// Makes a loaded model known.
    pub(super) fn add_model(&mut self, id: ModelId, core: CoreId, name: &str) {
        let account = ModelAccount {
            core,
            name: name.to_owned(),
            present: UsageBytes::default(),
        };
        self.models.insert(id, account);
    }

    /// Forgets a model that was unloaded.
    pub(super) fn remove_model(&mut self, id: ModelId) {
        self.models.remove(&id);
    }

    /// What the loaded models are called.
    pub(super) fn model_names(&self) -> BTreeMap<ModelId, String> {
        let models = self.models.iter();
        models.map(|(&id, one)| (id, one.name.clone())).collect()
    }

    /// Bytes of a core for one use, and for all.
    pub(super) fn core_bytes(&self, core: CoreId, usage: MemUsage) -> (u64, u64) {
        let account = self.cores.get(core.index());
        account.map_or((0, 0), |account| {
            let of_usage = account.by_usage[usage.index()];
            (of_usage.present_bytes, account.total.present_bytes)
        })
    }

    /// What is charged to a core, and what a model on it owns.
    pub(super) fn model(&self, id: ModelId, core: CoreId) -> (UsageBytes, ModelUsage) {
        let account = self.cores.get(core.index());
        let model = self.models.get(&id).filter(|model| model.core == core);
        let usage = ModelUsage {
            id,
            name: model.map(|model| model.name.clone()).unwrap_or_default(),
            present: model.map(|model| model.present).unwrap_or_default(),
        };
        let present = account.map(CoreAccount::present).unwrap_or_default();
        (present, usage)
    }

    /// Who holds what, bank by bank.
    pub(super) fn table(&self, device: DeviceId) -> UsageTable {
        let banks = (0..).zip(&self.channels).map(|(number, balance)| {
            let channel = Channel::new(number);
            let cores = (0..)
                .zip(&self.cores)
                .map(|(n, core)| (CoreId::new(n), core));
            let cores = cores.filter(|(id, _)| self.profile.default_channel(*id) == channel);
            BankUsage {
                channel,
                present_bytes: balance.present_bytes,
                peak_bytes: balance.peak_bytes,
                cores: cores.map(|(id, core)| self.core(id, core)).collect(),
            }
        });
        UsageTable {
            device,
            banks: banks.collect(),
        }
    }

    /// The counters of the driver's categories.
    pub(super) fn metrics(&self, device: DeviceId) -> MemoryMetrics {
        let cores = (0..).zip(&self.cores).map(|(number, account)| CoreMetrics {
            core: CoreId::new(number),
            counters: account.counters.with(Counter::DeviceTotal, account.total),
        });
        MemoryMetrics {
            device,
            host: self.host,
            cores: cores.collect(),
        }
    }

    fn core(&self, id: CoreId, account: &CoreAccount) -> CoreUsage {
        let models = self.models.iter().filter(|(_, model)| model.core == id);
        let models = models.map(|(&id, model)| ModelUsage {
            id,
            name: model.name.clone(),
            present: model.present,
        });
        CoreUsage {
            core: id,
            present: account.present(),
            peak: account.peak(),
            peak_total_bytes: account.total.peak_bytes,
            models: models.collect(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use glia_abi::arch::v3;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    pub(in crate::dml) fn device_allocation(core: u32, size_bytes: u64) -> Allocation {
        Allocation {
            size_bytes,
            allocated_bytes: size_bytes,
            pa: BusAddr::new(0),
            align_offset_bytes: 0,
            location: Location::Device,
            usage: MemUsage::Tensor,
            core: CoreId::new(core),
            channel: Channel::new(core / 2),
            model: None,
            hint: None,
            site: None,
        }
    }

    fn record(ledger: &mut Ledger, action: Action, allocation: &Allocation) -> Option<u64> {
        let posting = Posting {
            bytes: allocation.allocated_bytes,
            location: allocation.location,
            usage: allocation.usage,
            core: allocation.core,
            channel: allocation.channel,
            model: allocation.model,
        };
        ledger.record(action, &posting)
    }

    pub(in crate::dml) fn any_allocation() -> impl Strategy<Value = Allocation> {
        let place = (0..8_u32, 0..4_u32, 0..22_usize, any::<bool>());
        let model = proptest::option::of(1001..1003_u32);
        (place, 0..1_u64 << 36, 0..3_u64, model).prop_map(
            |((core, channel, usage, is_host), size_bytes, padding, model)| Allocation {
                allocated_bytes: size_bytes + padding * 4096,
                location: if is_host {
                    Location::Host
                } else {
                    Location::Device
                },
                usage: MemUsage::ALL[usage],
                channel: Channel::new(channel),
                model: model.map(ModelId),
                ..device_allocation(core, size_bytes)
            },
        )
    }

    /// Sum over the live device allocations that `keep` keeps.
    fn live_bytes(live: &[Allocation], keep: impl Fn(&Allocation) -> bool) -> u64 {
        let live = live.iter().filter(|one| one.location == Location::Device);
        live.filter(|one| keep(one))
            .map(|one| one.allocated_bytes)
            .sum()
    }

    proptest! {
        #[test]
        fn every_total_is_the_sum_of_what_is_live(
            steps in proptest::collection::vec((any_allocation(), any::<Index>(), 0..3_u32), 0..60),
        ) {
            let mut ledger = Ledger::new(&v3::PROFILE);
            ledger.add_model(ModelId(1001), CoreId::new(0), "a");
            ledger.add_model(ModelId(1002), CoreId::new(1), "b");
            let mut live = Vec::new();
            let mut peaks = [0; 4];
            let mut host_peak = 0;
            for (allocation, index, kind) in steps {
                if kind == 0 && !live.is_empty() {
                    let freed = live.swap_remove(index.index(live.len()));
                    record(&mut ledger, Action::Free, &freed);
                } else {
                    record(&mut ledger, Action::Alloc, &allocation);
                    live.push(allocation);
                }
                for (channel, peak) in (0..).zip(&mut peaks) {
                    let present = live_bytes(&live, |one| one.channel == Channel::new(channel));
                    *peak = present.max(*peak);
                }
                let on_host = live.iter().filter(|one| one.location == Location::Host);
                let present = on_host.map(|one| one.allocated_bytes).sum::<u64>();
                host_peak = present.max(host_peak);
            }

            let metrics = ledger.metrics(DeviceId::new(0));
            prop_assert_eq!(metrics.host.get(Counter::HostTotal).peak_bytes, host_peak);
            for (core, shown, balance) in metrics.leaves() {
                let is_it = |one: &&Allocation| match core {
                    Some(core) => one.location == Location::Device && one.core == core,
                    None => one.location == Location::Host,
                } && counter(one.usage, one.location) == shown;
                let present = live.iter().filter(is_it).map(|one| one.allocated_bytes);
                prop_assert_eq!(balance.present_bytes, present.sum::<u64>());
                prop_assert!(balance.peak_bytes >= balance.present_bytes);
            }
            let table = ledger.table(DeviceId::new(0));
            prop_assert_eq!(table.banks.len(), 4);
            for (bank, peak) in table.banks.iter().zip(peaks) {
                let present = live_bytes(&live, |one| one.channel == bank.channel);
                prop_assert_eq!(bank.present_bytes, present);
                prop_assert_eq!(bank.peak_bytes, peak);
                prop_assert_eq!(bank.cores.len(), 2);
                for core in &bank.cores {
                    let counters = metrics.core(core.core).unwrap();
                    prop_assert_eq!(
                        counters.get(Counter::DeviceTotal).present_bytes,
                        core.present.total()
                    );
                    for usage in MemUsage::ALL {
                        let is_it = |one: &Allocation| one.core == core.core && one.usage == usage;
                        let present = live_bytes(&live, is_it);
                        prop_assert_eq!(core.present.get(usage), present);
                        prop_assert!(core.peak.get(usage) >= present);
                    }
                    let columns = Aggregate::ALL.map(|aggregate| core.present.aggregate(aggregate));
                    prop_assert_eq!(columns.iter().sum::<u64>(), core.present.total());
                    prop_assert!(core.peak_total_bytes >= core.present.total());
                    for model in &core.models {
                        let present = live_bytes(&live, |one| one.model == Some(model.id));
                        prop_assert_eq!(model.present.total(), present);
                    }
                }
            }
        }
    }

    #[test]
    fn host_memory_counts_in_no_table() {
        let mut ledger = Ledger::new(&v3::PROFILE);
        let host = Allocation {
            location: Location::Host,
            ..device_allocation(0, 4096)
        };
        assert_eq!(record(&mut ledger, Action::Alloc, &host), None);
        assert_eq!(ledger.table(DeviceId::new(0)).banks[0].peak_bytes, 0);
    }

    #[test]
    fn bytes_that_no_device_can_hold_do_not_overflow() {
        let mut ledger = Ledger::new(&v3::PROFILE);
        let huge = device_allocation(0, u64::MAX - 1);
        record(&mut ledger, Action::Alloc, &huge);
        record(&mut ledger, Action::Alloc, &huge);
        assert_eq!(
            ledger.table(DeviceId::new(0)).banks[0].present_bytes,
            u64::MAX
        );
    }
}
