//! A part of a region as an object that keeps it alive.

use std::sync::Arc;

use glia_abi::addr::access_fits;
use glia_abi::sync::AtomicU32;
use glia_abi::transport::{Mapping, MappingError};

use crate::memory::{BytesMut, Region};

/// What a process holds after mmap, see [`Mapping`].
pub(crate) struct RegionMapping {
    region: Arc<Region>,
    offset_bytes: u64,
    size_bytes: u64,
    writable: bool,
}

impl RegionMapping {
    /// `None` if the range leaves the region.
    pub(crate) fn new(
        region: &Arc<Region>,
        offset_bytes: u64,
        size_bytes: u64,
        writable: bool,
    ) -> Option<Self> {
        access_fits(offset_bytes, size_bytes, region.size_bytes()).then(|| Self {
            region: Arc::clone(region),
            offset_bytes,
            size_bytes,
            writable,
        })
    }

    /// The region that it lies in.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    fn bytes_mut(&self, offset_bytes: u64, size_bytes: u64) -> Result<BytesMut<'_>, MappingError> {
        self.check(offset_bytes, size_bytes)?;
        if !self.writable {
            return Err(MappingError::ReadOnly);
        }
        let bytes = self
            .region
            .bytes_mut(self.offset_bytes + offset_bytes, size_bytes);
        bytes.ok_or_else(|| self.outside(offset_bytes, size_bytes))
    }

    fn check(&self, offset_bytes: u64, size_bytes: u64) -> Result<(), MappingError> {
        if access_fits(offset_bytes, size_bytes, self.size_bytes) {
            Ok(())
        } else {
            Err(self.outside(offset_bytes, size_bytes))
        }
    }

    fn outside(&self, offset_bytes: u64, size_bytes: u64) -> MappingError {
        MappingError::OutOfBounds {
            offset_bytes,
            size_bytes,
            limit_bytes: self.size_bytes,
        }
    }
}

impl Mapping for RegionMapping {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MappingError> {
        let size_bytes = into.len() as u64;
        self.check(offset_bytes, size_bytes)?;
        let bytes = self
            .region
            .bytes(self.offset_bytes + offset_bytes, size_bytes);
        let bytes = bytes.ok_or_else(|| self.outside(offset_bytes, size_bytes))?;
        bytes.read(into);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError> {
        self.bytes_mut(offset_bytes, bytes.len() as u64)?
            .write(bytes);
        Ok(())
    }

    fn words(&self, offset_bytes: u64, size_bytes: u64) -> Result<&[AtomicU32], MappingError> {
        let bytes = self.bytes_mut(offset_bytes, size_bytes)?;
        bytes
            .words()
            .ok_or_else(|| self.outside(offset_bytes, size_bytes))
    }
}
