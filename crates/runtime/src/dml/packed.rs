//! Facts of allocations, packed: for those who keep many and show few.
//!
//! 24 bytes for what is different in nearly each; what callers say in words is a
//! [label](super::labels); what is 0 or the same for nearly all is kept aside for those where it is
//! not.

use std::collections::BTreeMap;

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId, McHandle};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;

use super::labels::{LabelId, Labels};
use super::ledger::Allocation;

/// An allocation's facts as they are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    pa: BusAddr,
    size_bytes: u64,
    pub(super) label: LabelId,
    core: u8,
    channel: u8,
    usage: u8,
    /// Bits from 4 on are whose who keeps it.
    pub(super) flags: u8,
}

/// What a packed allocation has no room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Odd {
    allocated_bytes: u64,
    align_offset_bytes: u64,
    core: CoreId,
    channel: Channel,
}

impl Packed {
    /// It is host memory.
    const HOST: u8 = 1 << 0;
    /// There is more of it.
    const ODD: u8 = 1 << 1;

    /// The facts, and what there is no room for.
    pub(super) fn new(allocation: &Allocation, label: LabelId) -> (Self, Option<Odd>) {
        let (core, channel) = (allocation.core, allocation.channel);
        let places = (u8::try_from(core.get()), u8::try_from(channel.get()));
        let is_odd = allocation.allocated_bytes != allocation.size_bytes
            || allocation.align_offset_bytes != 0
            || places.0.is_err()
            || places.1.is_err();
        let odd = is_odd.then_some(Odd {
            allocated_bytes: allocation.allocated_bytes,
            align_offset_bytes: allocation.align_offset_bytes,
            core,
            channel,
        });
        let location = match allocation.location {
            Location::Host => Self::HOST,
            Location::Device => 0,
        };
        let packed = Self {
            pa: allocation.pa,
            size_bytes: allocation.size_bytes,
            label,
            core: places.0.unwrap_or_default(),
            channel: places.1.unwrap_or_default(),
            usage: allocation.usage as u8,
            flags: location | if is_odd { Self::ODD } else { 0 },
        };
        (packed, odd)
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether there is more of it.
    pub(super) fn is_odd(&self) -> bool {
        self.has(Self::ODD)
    }

    fn plain(&self) -> Odd {
        Odd {
            allocated_bytes: self.size_bytes,
            align_offset_bytes: 0,
            core: CoreId::new(self.core.into()),
            channel: Channel::new(self.channel.into()),
        }
    }

    /// The facts again, with what there was no room for.
    pub(super) fn unpack(&self, odd: Option<Odd>, labels: &Labels) -> Allocation {
        let (model, hint, site) = labels.get(self.label);
        let rest = odd.unwrap_or_else(|| self.plain());
        let usages = MemUsage::ALL.get(usize::from(self.usage));
        Allocation {
            size_bytes: self.size_bytes,
            allocated_bytes: rest.allocated_bytes,
            pa: self.pa,
            align_offset_bytes: rest.align_offset_bytes,
            location: match self.has(Self::HOST) {
                true => Location::Host,
                false => Location::Device,
            },
            usage: usages.copied().unwrap_or(MemUsage::Generic),
            core: rest.core,
            channel: rest.channel,
            model,
            hint,
            site,
        }
    }
}

/// Allocations at one moment, by address and handle.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    sorted: Vec<Fact>,
    odd: BTreeMap<Key, Odd>,
    labels: Labels,
}

type Key = (BusAddr, McHandle);

#[derive(Debug, Clone, Copy)]
struct Fact {
    handle: McHandle,
    packed: Packed,
}

const _: () = assert!(size_of::<Fact>() == 32);

impl Fact {
    fn key(&self) -> Key {
        (self.packed.pa, self.handle)
    }
}

impl Facts {
    /// Those that `each` tells, in whatever order.
    pub(crate) fn new(each: impl FnOnce(&mut dyn FnMut(McHandle, &Allocation))) -> Self {
        let mut facts = Self {
            sorted: Vec::new(),
            odd: BTreeMap::new(),
            labels: Labels::new(),
        };
        each(&mut |handle, allocation| {
            let label = facts.labels.take(allocation);
            let (packed, odd) = Packed::new(allocation, label);
            let fact = Fact { handle, packed };
            facts.sorted.push(fact);
            facts.odd.extend(odd.map(|odd| (fact.key(), odd)));
        });
        facts.sorted.sort_unstable_by_key(Fact::key);
        facts
    }

    /// No allocations.
    pub(crate) fn none() -> Self {
        Self::new(|_| {})
    }

    fn position(&self, key: Key) -> Option<&Fact> {
        let found = self.sorted.binary_search_by_key(&key, Fact::key);
        self.sorted.get(found.ok()?)
    }

    /// Whether there is one at this address with this handle.
    pub(crate) fn has(&self, at: BusAddr, handle: McHandle) -> bool {
        self.position((at, handle)).is_some()
    }

    /// The one at this address with this handle.
    pub(crate) fn find(&self, at: BusAddr, handle: McHandle) -> Option<Allocation> {
        let fact = self.position((at, handle))?;
        Some(fact.packed.unpack(self.odd(fact), &self.labels))
    }

    fn odd(&self, fact: &Fact) -> Option<Odd> {
        let odd = fact.packed.is_odd().then(|| self.odd.get(&fact.key()));
        odd.flatten().copied()
    }

    /// The channel of each, and what the driver was asked for.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (Channel, u64)> {
        self.sorted.iter().map(|fact| {
            let rest = self.odd(fact).unwrap_or_else(|| fact.packed.plain());
            (rest.channel, rest.allocated_bytes)
        })
    }

    /// Forgets all but those at some addresses, which rise.
    pub(crate) fn keep(&mut self, at: impl Iterator<Item = BusAddr>) {
        let mut at = at.peekable();
        self.sorted.retain(|fact| {
            while at.next_if(|&at| at < fact.packed.pa).is_some() {}
            at.peek() == Some(&fact.packed.pa)
        });
        self.sorted.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::tests::device_allocation;
    use super::*;

    fn handle(number: u32) -> McHandle {
        McHandle::new(number).unwrap()
    }

    fn at(pa: u64, padding_bytes: u64) -> Allocation {
        Allocation {
            pa: BusAddr::new(pa),
            allocated_bytes: 100 + padding_bytes,
            align_offset_bytes: padding_bytes,
            hint: Some(format!("at {pa}").into()),
            ..device_allocation(3, 100)
        }
    }

    #[test]
    fn an_allocation_is_found_by_address_and_handle_and_is_whole() {
        let (low, high) = (at(4096, 0), at(8192, 64));
        let mut facts = Facts::new(|each| {
            each(handle(2), &high);
            each(handle(1), &low);
        });
        assert_eq!(facts.find(low.pa, handle(1)), Some(low.clone()));
        assert_eq!(facts.find(high.pa, handle(2)), Some(high.clone()));
        // Another has the address now.
        assert_eq!(facts.find(high.pa, handle(1)), None);
        let channel = Channel::new(1);
        let sizes: Vec<_> = facts.sizes().collect();
        assert_eq!(sizes, [(channel, 100), (channel, 164)]);

        facts.keep([0, 8192, 9000].map(BusAddr::new).into_iter());
        assert!(!facts.has(low.pa, handle(1)));
        assert_eq!(facts.find(high.pa, handle(2)), Some(high));
    }
}
