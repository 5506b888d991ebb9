//! Facts of allocations, packed: for those who keep many and show few.
//!
//! 24 bytes for what is different in nearly each; what callers say in words is a
//! [label](super::labels); what is 0 or the same for nearly all is kept aside for those where it is
//! not.

use glia_abi::addr::BusAddr;
use glia_abi::handle::{Channel, CoreId};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;

use super::labels::{LabelId, Words};
use super::ledger::{Allocation, ModelId, Posting};

/// An allocation's facts as they are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    pub(super) pa: BusAddr,
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
    pub(super) allocated_bytes: u64,
    align_offset_bytes: u64,
    core: CoreId,
    pub(super) channel: Channel,
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

    /// The rest of one of which there is no more.
    pub(super) fn plain(&self) -> Odd {
        Odd {
            allocated_bytes: self.size_bytes,
            align_offset_bytes: 0,
            core: CoreId::new(self.core.into()),
            channel: Channel::new(self.channel.into()),
        }
    }

    /// What for.
    pub(super) fn usage(&self) -> MemUsage {
        let usages = MemUsage::ALL.get(usize::from(self.usage));
        usages.copied().unwrap_or(MemUsage::Generic)
    }

    /// What of it the ledger counts, with what there was no room for and the model that the label says.
    #[inline]
    pub(super) fn posting(&self, odd: Option<Odd>, model: Option<ModelId>) -> Posting {
        let rest = odd.unwrap_or_else(|| self.plain());
        Posting {
            bytes: rest.allocated_bytes,
            location: self.location(),
            usage: self.usage(),
            core: rest.core,
            channel: rest.channel,
            model,
        }
    }

    /// The facts again, with what there was no room for, and what the label says.
    pub(super) fn unpack(&self, odd: Option<Odd>, words: Words) -> Allocation {
        let rest = odd.unwrap_or_else(|| self.plain());
        Allocation {
            size_bytes: self.size_bytes,
            allocated_bytes: rest.allocated_bytes,
            pa: self.pa,
            align_offset_bytes: rest.align_offset_bytes,
            location: self.location(),
            usage: self.usage(),
            core: rest.core,
            channel: rest.channel,
            model: words.model,
            hint: words.hint,
            site: words.site,
        }
    }

    pub(super) fn location(&self) -> Location {
        match self.has(Self::HOST) {
            true => Location::Host,
            false => Location::Device,
        }
    }
}
