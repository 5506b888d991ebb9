//! The ledger of a device: present and greatest bytes by channel, by core and usage, by model.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use glia_abi::addr::BusAddr;
use glia_abi::arch::ArchProfile;
use glia_abi::handle::{Channel, CoreId, DeviceId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::{Aggregate, MemUsage};

use super::events::Action;
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

    /// Raises one usage to at least so many bytes.
    fn raise(&mut self, usage: MemUsage, bytes: u64) {
        self.add(usage, bytes.saturating_sub(self.get(usage)));
    }
}

/// Bytes of a channel.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    present_bytes: u64,
    peak_bytes: u64,
}

#[derive(Debug, Clone, Default)]
struct CoreAccount {
    present: UsageBytes,
    /// The greatest of each usage. They need not have been at the same time.
    peak: UsageBytes,
    peak_total_bytes: u64,
}

#[derive(Debug)]
struct ModelAccount {
    core: CoreId,
    name: String,
    present: UsageBytes,
}

/// Who holds how much of a device.
#[derive(Debug)]
pub(super) struct Ledger {
    profile: &'static ArchProfile,
    channels: Vec<Level>,
    cores: Vec<CoreAccount>,
    models: BTreeMap<ModelId, ModelAccount>,
}

impl Ledger {
    /// An empty ledger for a device of this kind.
    pub(super) fn new(profile: &'static ArchProfile) -> Self {
        Self {
            profile,
            channels: vec![Level::default(); profile.region_bases.len()],
            cores: vec![CoreAccount::default(); profile.cores as usize],
            models: BTreeMap::new(),
        }
    }

    /// Books an allocation, or its end; gives the bytes in use on its channel after that. Host
    /// memory is not counted.
    ///
    /// A core or channel that the device does not have is not counted either; nobody allocates
    /// there.
    pub(super) fn record(&mut self, action: Action, allocation: &Allocation) -> Option<u64> {
        if allocation.location == Location::Host {
            return None;
        }
        let channel = self.channels.get_mut(allocation.channel.index())?;
        let core = self.cores.get_mut(allocation.core.index())?;
        let model = allocation.model.and_then(|id| self.models.get_mut(&id));
        let (usage, bytes) = (allocation.usage, allocation.allocated_bytes);
        match action {
            Action::Alloc => {
                channel.present_bytes = channel.present_bytes.saturating_add(bytes);
                channel.peak_bytes = channel.peak_bytes.max(channel.present_bytes);
                core.present.add(usage, bytes);
                core.peak.raise(usage, core.present.get(usage));
                core.peak_total_bytes = core.peak_total_bytes.max(core.present.total());
                if let Some(model) = model {
                    model.present.add(usage, bytes);
                }
            }
            Action::Free => {
                channel.present_bytes = channel.present_bytes.saturating_sub(bytes);
                core.present.sub(usage, bytes);
                if let Some(model) = model {
                    model.present.sub(usage, bytes);
                }
            }
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

    /// Bytes of a core for one use, and for all.
    pub(super) fn core_bytes(&self, core: CoreId, usage: MemUsage) -> (u64, u64) {
        let account = self.cores.get(core.index());
        account.map_or((0, 0), |account| {
            (account.present.get(usage), account.present.total())
        })
    }

    /// Who holds what, bank by bank.
    pub(super) fn table(&self, device: DeviceId) -> UsageTable {
        let banks = (0..).zip(&self.channels).map(|(number, level)| {
            let channel = Channel::new(number);
            let cores = (0..)
                .zip(&self.cores)
                .map(|(n, core)| (CoreId::new(n), core));
            let cores = cores.filter(|(id, _)| self.profile.default_channel(*id) == channel);
            BankUsage {
                channel,
                present_bytes: level.present_bytes,
                peak_bytes: level.peak_bytes,
                cores: cores.map(|(id, core)| self.core(id, core)).collect(),
            }
        });
        UsageTable {
            device,
            banks: banks.collect(),
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
            present: account.present,
            peak: account.peak,
            peak_total_bytes: account.peak_total_bytes,
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
        }
    }

    fn any_allocation() -> impl Strategy<Value = Allocation> {
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
            for (allocation, index, kind) in steps {
                if kind == 0 && !live.is_empty() {
                    let freed = live.swap_remove(index.index(live.len()));
                    ledger.record(Action::Free, &freed);
                } else {
                    ledger.record(Action::Alloc, &allocation);
                    live.push(allocation);
                }
                for (channel, peak) in (0..).zip(&mut peaks) {
                    let present = live_bytes(&live, |one| one.channel == Channel::new(channel));
                    *peak = present.max(*peak);
                }
            }

            let table = ledger.table(DeviceId::new(0));
            prop_assert_eq!(table.banks.len(), 4);
            for (bank, peak) in table.banks.iter().zip(peaks) {
                let present = live_bytes(&live, |one| one.channel == bank.channel);
                prop_assert_eq!(bank.present_bytes, present);
                prop_assert_eq!(bank.peak_bytes, peak);
                prop_assert_eq!(bank.cores.len(), 2);
                for core in &bank.cores {
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
    fn host_memory_is_not_counted() {
        let mut ledger = Ledger::new(&v3::PROFILE);
        let host = Allocation {
            location: Location::Host,
            ..device_allocation(0, 4096)
        };
        assert_eq!(ledger.record(Action::Alloc, &host), None);
        assert_eq!(ledger.table(DeviceId::new(0)).banks[0].peak_bytes, 0);
    }

    #[test]
    fn bytes_that_no_device_can_hold_do_not_overflow() {
        let mut ledger = Ledger::new(&v3::PROFILE);
        let huge = device_allocation(0, u64::MAX - 1);
        ledger.record(Action::Alloc, &huge);
        ledger.record(Action::Alloc, &huge);
        assert_eq!(
            ledger.table(DeviceId::new(0)).banks[0].present_bytes,
            u64::MAX
        );
    }
}
