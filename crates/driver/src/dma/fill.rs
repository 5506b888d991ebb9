//! Filling memory with a byte (driver 2.27, `memset`).
//!
//! The first 64 KiB come from a host buffer that all fills of a device share; what is left is
//! copied from there by the device, which reads the same 64 KiB over and over.

use glia_abi::handle::Pid;
use glia_abi::mem::Location;

use super::lane::Links;
use super::split::Run;
use super::{Dma, DmaError, Place};

/// Bytes of the host buffer (driver 2.27, `MEMSET_HOST_BUF_SIZE`).
pub(super) const FILL_SIZE_BYTES: u64 = 65_536;

impl Dma {
    /// Sets bytes, and returns when it is done. HBM is filled on the ring of its core; host memory
    /// is filled plainly, where the reference asks the engine.
    ///
    /// # Errors
    /// [`DmaError`], as for [`copy`](Self::copy).
    pub fn fill(&self, by: Pid, target: Place, size_bytes: u64, value: u8) -> Result<(), DmaError> {
        let Links {
            profile,
            host,
            sched,
            ..
        } = &self.links;
        if size_bytes == 0 {
            return Ok(());
        }
        let at = target.at;
        if target.location == Location::Host {
            let at = profile.bus_to_host(at).ok_or(DmaError::NotHost { at })?;
            return Ok(host.fill(at, size_bytes, value)?);
        }
        let core = target.core;
        let buffer = self.fill_buffer.get().ok_or(DmaError::NotReady { core })?;
        let buffer = buffer.lock(&**sched);
        let first_bytes = size_bytes.min(FILL_SIZE_BYTES);
        let wraps = DmaError::Wraps {
            source_at: at,
            target_at: at,
            size_bytes,
        };
        let first = Run::copy(profile.host_to_bus(*buffer), at, first_bytes).ok_or(wraps)?;
        let rest_at = at.checked_add(first_bytes).ok_or(wraps)?;
        let rest = Run::repeat(at, rest_at, size_bytes - first_bytes).ok_or(wraps)?;

        host.fill(*buffer, first_bytes, value)?;
        let mut ring = self.lane(core).hold(&self.links, by)?;
        ring.copy(first)?;
        ring.copy(rest)
    }
}
