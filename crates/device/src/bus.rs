//! What an engine of a device reaches by an address, and whom it tells.
//!
//! ```text
//!   host base set, below 4 GiB       coherent host memory
//!   host base set, from 4 GiB on     pinned user pages
//!   otherwise                        HBM of this device
//! ```
//!
//! Everything else is nothing: a DMA abort.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glia_abi::addr::{BusAddr, HostPa};
use glia_abi::arch::MemoryLayout;
use glia_abi::event::{Detail, Event, Ids, Sink};
use glia_abi::fault::Faults;
use glia_abi::handle::DeviceId;
use glia_abi::sched::Sched;
use glia_abi::sync::AtomicU32;
use glia_abi::udma::{DESC_SIZE_BYTES, DESC_WORDS};

use crate::hbm::Hbm;
use crate::host::HostArena;
use crate::memory::{Bytes, BytesMut, PINS_START, PinReader};
use crate::udma::reuse::Reuse;
use crate::udma::timing::{EngineOrder, EngineTiming};

/// The surroundings of a device's engines.
pub(crate) struct Bus {
    pub(crate) device: DeviceId,
    pub(crate) layout: MemoryLayout,
    pub(crate) hbm: Hbm,
    pub(crate) host: Arc<HostArena>,
    pub(crate) sched: Arc<dyn Sched>,
    pub(crate) sink: Arc<dyn Sink>,
    /// What the sink wants to hear, asked once.
    pub(crate) detail: Detail,
    /// What the engines touched lately.
    pub(crate) reuse: Reuse,
    /// What goes wrong.
    pub(crate) faults: Arc<dyn Faults>,
    /// How long descriptors take; none if no time.
    pub(crate) timing: Option<EngineTiming>,
    /// In which order they run.
    pub(crate) order: EngineOrder,
    /// How often the driver's budget is waited for.
    pub(crate) patience: u64,
    /// The firmware is resetting something.
    pub(crate) in_reset: AtomicBool,
}

/// Where a range lies.
pub(crate) enum Located<T> {
    /// Here.
    Here(T),
    /// In pinned pages, if anywhere: ask a [`PinReader`].
    Pinned(HostPa),
}

impl<T> Located<T> {
    /// Whether a [`PinReader`] is needed.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self, Self::Pinned(_))
    }
}

impl Bus {
    /// A range to read; `None` if nothing is there.
    pub(crate) fn source(&self, at: BusAddr, size_bytes: u64) -> Option<Located<Bytes<'_>>> {
        let found = match self.layout.profile().bus_to_host(at) {
            Some(host) if host >= PINS_START => return Some(Located::Pinned(host)),
            Some(host) => self.host.bytes(host, size_bytes),
            None => self.hbm.bytes(at, size_bytes),
        };
        found.map(Located::Here)
    }

    /// A range to write; `None` if nothing is there.
    pub(crate) fn target(&self, at: BusAddr, size_bytes: u64) -> Option<Located<BytesMut<'_>>> {
        let found = match self.layout.profile().bus_to_host(at) {
            Some(host) if host >= PINS_START => return Some(Located::Pinned(host)),
            Some(host) => self.host.bytes_mut(host, size_bytes),
            None => self.hbm.bytes_mut(at, size_bytes),
        };
        found.map(Located::Here)
    }

    /// Whether everything an engine does is done at once, in order, and well.
    pub(crate) fn is_plain(&self) -> bool {
        self.timing.is_none() && self.order == EngineOrder::Strict && !self.faults.is_armed()
    }

    /// Whether the address is one of host memory.
    pub(crate) fn is_host(&self, at: BusAddr) -> bool {
        self.layout.profile().bus_to_host(at).is_some()
    }

    /// Descriptors of a ring, which lies in coherent host memory or in HBM; `None` if not.
    pub(crate) fn descriptors(
        &self,
        at: BusAddr,
        count: u64,
    ) -> Option<&[[AtomicU32; DESC_WORDS]]> {
        match self.target(at, count * DESC_SIZE_BYTES)? {
            Located::Here(bytes) => Some(bytes.words()?.as_chunks().0),
            Located::Pinned(_) => None,
        }
    }

    /// Holds the pins as they are.
    pub(crate) fn pins(&self) -> PinReader<'_> {
        self.host.pins().reader()
    }

    /// Tells the sink, if it wants to hear.
    pub(crate) fn tell(&self, ids: &Ids, event: &Event) {
        if self.detail > Detail::Nothing {
            self.sink.event(self.sched.now(), ids, event);
        }
    }
}
