//! A device's HBM: a sparse region per channel, found by bus address.

use std::sync::Arc;

use glia_abi::addr::{BusAddr, Span};
use glia_abi::arch::MemoryLayout;
use glia_abi::handle::Channel;

use crate::mapping::RegionMapping;
use crate::memory::{Bytes, BytesMut, MapError, Region};

/// A range that does not lie in one channel of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the device has no {size_bytes} bytes of HBM at {at}")]
pub struct BadHbmRange {
    /// First byte.
    pub at: BusAddr,
    /// Bytes.
    pub size_bytes: u64,
}

/// All channels of a device. Every range is `None` unless it lies in one of them.
pub(crate) struct Hbm {
    channels: Vec<(Span<BusAddr>, Arc<Region>)>,
}

impl Hbm {
    /// The channels of a layout; fresh bytes read as `fill`.
    pub(crate) fn new(layout: &MemoryLayout, fill: u8) -> Result<Self, MapError> {
        let channels = layout
            .regions()
            .map(|span| Ok((span, Arc::new(Region::new(span.size_bytes(), fill)?))))
            .collect::<Result<_, _>>()?;
        Ok(Self { channels })
    }

    pub(crate) fn bytes(&self, at: BusAddr, size_bytes: u64) -> Option<Bytes<'_>> {
        let (region, offset) = self.find(at)?;
        region.bytes(offset, size_bytes)
    }

    pub(crate) fn bytes_mut(&self, at: BusAddr, size_bytes: u64) -> Option<BytesMut<'_>> {
        let (region, offset) = self.find(at)?;
        region.bytes_mut(offset, size_bytes)
    }

    /// A range of a channel, as BAR4 shows it.
    pub(crate) fn channel_bytes_mut(
        &self,
        channel: Channel,
        offset_bytes: u64,
        size_bytes: u64,
    ) -> Option<BytesMut<'_>> {
        let (_, region) = self.channels.get(channel.index())?;
        region.bytes_mut(offset_bytes, size_bytes)
    }

    pub(crate) fn mapping(&self, at: BusAddr, size_bytes: u64) -> Option<RegionMapping> {
        let (region, offset) = self.find(at)?;
        RegionMapping::new(region, offset, size_bytes, true)
    }

    pub(crate) fn trim(&self, at: BusAddr, size_bytes: u64) -> Option<()> {
        let (region, offset) = self.find(at)?;
        region.trim(offset, size_bytes)
    }

    fn find(&self, at: BusAddr) -> Option<(&Arc<Region>, u64)> {
        self.channels
            .iter()
            .find_map(|(span, region)| Some((region, span.offset_of(at)?)))
    }
}
