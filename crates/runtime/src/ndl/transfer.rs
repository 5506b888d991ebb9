//! Copies between two chunks, and fills. What a copy needs: the transfer, the name of one in flight,
//! and the buffer that stands at one end of it.

use std::sync::Arc;

use glia_abi::handle::{DeviceId, McHandle};
use glia_abi::ioctl::{self, feature, wait_handle};
use glia_abi::transport::{Mapping, MappingError};

use super::forms::NEWEST;
use super::{Device, NdlError};

/// Bytes of a core's copy buffer: two halves.
pub const COPY_BUFFER_SIZE_BYTES: u64 = 2 << 20;
/// Bytes of a half: one is in flight while the other is filled or emptied.
pub const COPY_BUFFER_HALF_BYTES: u64 = COPY_BUFFER_SIZE_BYTES / 2;

/// Bytes to move from one chunk to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// From here,
    pub source: McHandle,
    /// from this offset,
    pub source_offset_bytes: u64,
    /// to here,
    pub target: McHandle,
    /// to this offset,
    pub target_offset_bytes: u64,
    /// so many bytes.
    pub size_bytes: u64,
}

impl Transfer {
    /// The two handles, as commands have them.
    fn ends(&self) -> (u64, u64) {
        (u64::from(self.source.get()), u64::from(self.target.get()))
    }
}

/// Names a copy that was started, or says that there is none ([`wait_handle`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitHandle {
    /// No copy: the next one starts a chain.
    None,
    /// The copy waits for itself.
    Sync,
    /// The first context.
    Async1,
    /// The second context.
    Async2,
}

impl WaitHandle {
    pub(super) const fn raw(self) -> u32 {
        match self {
            Self::None => wait_handle::NONE,
            Self::Sync => wait_handle::SYNC,
            Self::Async1 => wait_handle::ASYNC1,
            Self::Async2 => wait_handle::ASYNC2,
        }
    }

    /// The handle that a started copy may have.
    pub(super) const fn of_started(raw: u32) -> Option<Self> {
        match raw {
            wait_handle::SYNC => Some(Self::Sync),
            wait_handle::ASYNC1 => Some(Self::Async1),
            wait_handle::ASYNC2 => Some(Self::Async2),
            _ => None,
        }
    }

    /// Whether a copy of this handle may be in flight.
    #[must_use]
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Self::Async1 | Self::Async2)
    }
}

/// Host memory through which a core's copies go: two halves of
/// [`COPY_BUFFER_HALF_BYTES`]. Whoever holds its lock may use it, and leaves no copy in flight.
pub struct CopyBuffer {
    device: DeviceId,
    handle: McHandle,
    mapping: Arc<dyn Mapping>,
}

impl CopyBuffer {
    pub(super) fn new(device: DeviceId, handle: McHandle, mapping: Arc<dyn Mapping>) -> Self {
        Self {
            device,
            handle,
            mapping,
        }
    }

    /// The chunk.
    #[must_use]
    pub fn handle(&self) -> McHandle {
        self.handle
    }

    /// Copies into it.
    ///
    /// # Errors
    /// [`NdlError::Mapping`] if the range leaves it.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), NdlError> {
        mapped(self.device, self.mapping.write(offset_bytes, bytes))
    }

    /// Copies out of it.
    ///
    /// # Errors
    /// [`NdlError::Mapping`] if the range leaves it.
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), NdlError> {
        mapped(self.device, self.mapping.read(offset_bytes, into))
    }
}

impl Device {
    /// Copies between two chunks and waits (`MEM_COPY64`, `MEM_COPY`).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` for a chunk or range that is not there;
    /// [`NdlError::Narrow`].
    pub fn copy(&self, transfer: &Transfer) -> Result<(), NdlError> {
        let (src, dst) = transfer.ends();
        self.newest(&self.forms.copy, 1, |form| {
            if form == NEWEST {
                let mut arg = ioctl::MemCopy64 {
                    src,
                    dst,
                    size: transfer.size_bytes,
                    src_offset: transfer.source_offset_bytes,
                    dst_offset: transfer.target_offset_bytes,
                };
                return self.call(&self.work, ioctl::MEM_COPY64, &mut arg, &mut []);
            }
            let word = ioctl::MEM_COPY;
            let mut arg = ioctl::MemCopy {
                src,
                dst,
                size: self.narrow(word, transfer.size_bytes)?,
                src_offset: self.narrow(word, transfer.source_offset_bytes)?,
                dst_offset: self.narrow(word, transfer.target_offset_bytes)?,
                pad: 0,
            };
            self.call(&self.work, word, &mut arg, &mut [])
        })
    }

    /// Fills a part of a chunk with one value and waits (`MEMSET64`, `MEMSET`).
    ///
    /// # Errors
    /// [`NdlError::Call`], with `EINVAL` for a chunk or range that is not there;
    /// [`NdlError::Narrow`].
    pub fn fill(
        &self,
        handle: McHandle,
        offset_bytes: u64,
        size_bytes: u64,
        value: u8,
    ) -> Result<(), NdlError> {
        let mem_handle = u64::from(handle.get());
        self.newest(&self.forms.fill, 1, |form| {
            if form == NEWEST {
                let mut arg = ioctl::Memset64 {
                    mem_handle,
                    offset: offset_bytes,
                    value: value.into(),
                    pad: 0,
                    size: size_bytes,
                };
                return self.call(&self.work, ioctl::MEMSET64, &mut arg, &mut []);
            }
            let word = ioctl::MEMSET;
            let mut arg = ioctl::Memset {
                mem_handle,
                offset: offset_bytes,
                value: value.into(),
                size: self.narrow(word, size_bytes)?,
            };
            self.call(&self.work, word, &mut arg, &mut [])
        })
    }

    /// Starts a copy between two chunks, and waits for the `previous` one (`MEM_COPY_ASYNC64`,
    /// `MEM_COPY_ASYNC`). Where the driver can only wait, it is done when this returns.
    ///
    /// # Errors
    /// [`NdlError::Call`]; the previous copy may then still be in flight. [`NdlError::Narrow`].
    pub fn copy_async(
        &self,
        transfer: &Transfer,
        previous: WaitHandle,
    ) -> Result<WaitHandle, NdlError> {
        if !self.has(feature::ASYNC_DMA) {
            return self.copy(transfer).map(|()| WaitHandle::Sync);
        }
        let (src, dst) = transfer.ends();
        let pwait = previous.raw();
        let started = |word, wait: u32| {
            WaitHandle::of_started(wait).ok_or(self.answer(word, u64::from(wait)))
        };
        self.newest(&self.forms.copy_async, 1, |form| {
            if form == NEWEST {
                let mut arg = ioctl::MemCopyAsync64 {
                    src,
                    dst,
                    size: transfer.size_bytes,
                    src_offset: transfer.source_offset_bytes,
                    dst_offset: transfer.target_offset_bytes,
                    pwait,
                    ..Default::default()
                };
                let word = ioctl::MEM_COPY_ASYNC64;
                self.call(&self.work, word, &mut arg, &mut [])?;
                return started(word, arg.wait);
            }
            let word = ioctl::MEM_COPY_ASYNC;
            let mut arg = ioctl::MemCopyAsync {
                src,
                dst,
                size: self.narrow(word, transfer.size_bytes)?,
                src_offset: self.narrow(word, transfer.source_offset_bytes)?,
                dst_offset: self.narrow(word, transfer.target_offset_bytes)?,
                pwait,
                ..Default::default()
            };
            self.call(&self.work, word, &mut arg, &mut [])?;
            started(word, arg.wait)
        })
    }

    /// Waits for a copy between two chunks (`MEM_COPY_ASYNC_WAIT`).
    ///
    /// # Errors
    /// [`NdlError::Call`] if it failed, or with `EINVAL` if it is not in flight.
    pub fn copy_wait(
        &self,
        source: McHandle,
        target: McHandle,
        copy: WaitHandle,
    ) -> Result<(), NdlError> {
        let mut arg = ioctl::MemCopyAsyncWait {
            src: u64::from(source.get()),
            dst: u64::from(target.get()),
            pwait: copy.raw(),
            pad: 0,
        };
        self.call(&self.work, ioctl::MEM_COPY_ASYNC_WAIT, &mut arg, &mut [])
    }
}

/// The outcome of an access to mapped memory of a device.
pub(crate) fn mapped(device: DeviceId, outcome: Result<(), MappingError>) -> Result<(), NdlError> {
    outcome.map_err(|source| NdlError::Mapping { device, source })
}
