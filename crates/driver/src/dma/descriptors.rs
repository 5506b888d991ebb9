//! Descriptors that a process gives to the driver, which copies them into a ring.
//!
//! A descriptor is an order to an engine that no page table checks. So a descriptor's address must be
//! HBM of the device itself, or host memory that the driver has given out: to this device, or to
//! another one that a process has open. Lengths and flags are the process's own business.
//!
//! What is checked is what is written: descriptors reach memory that only the driver sees, in pieces
//! of 64 KiB, each is read there once, and when all have been checked that copy goes on: to host memory
//! as it is, to HBM by DMA, for which it is staged in host memory that no process finds.
//!
//! **What this does not do.** Addresses of HBM are not checked (driver 2.27). A chunk that is freed
//! after the check leaves a descriptor behind that points to memory of somebody else.

use std::sync::Arc;

use glia_abi::addr::{BusAddr, HostPa, Span, UserAddr};
use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::mem::Location;
use glia_abi::port::BadHostRange;
use glia_abi::transport::{Caller, UserFault};
use glia_abi::udma::{DESC_SIZE_BYTES, DESC_WORDS, Direction, RxDesc, TxDesc};

use super::{Dma, DmaError, Place};
use crate::memory::DeviceMemory;

/// Bytes that are copied in, checked and written at a time (driver 2.27).
pub const DESCRIPTOR_PIECE_BYTES: u64 = 64 << 10;
/// Bytes that pass through the driver's stack at a time.
const STEP_BYTES: usize = 4096;
/// Bytes of a descriptor.
const DESC_BYTES: usize = DESC_WORDS * size_of::<u32>();
/// Numbers that a device can have (driver 2.27).
const DEVICES_MAX: u32 = 64;

/// The memories of a machine's devices.
pub trait Devices {
    /// The memory of a device; `None` if there is no such device.
    fn memory(&self, device: DeviceId) -> Option<&DeviceMemory>;
}

impl Devices for Vec<Arc<DeviceMemory>> {
    fn memory(&self, device: DeviceId) -> Option<&DeviceMemory> {
        let known = self.iter().find(|known| known.config().device == device)?;
        Some(known)
    }
}

/// Descriptors to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorCopy {
    /// Where they go.
    pub target: Place,
    /// Bytes of them, 16 for each.
    pub size_bytes: u64,
    /// Which side's they are.
    pub direction: Direction,
}

/// Why descriptors were not copied. Pieces before the one at fault stay written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// `EINVAL`: it is no whole number of descriptors. (The reference would look for ever.)
    #[error("{size_bytes} bytes are no whole number of descriptors")]
    Uneven {
        /// Bytes.
        size_bytes: u64,
    },
    /// `EINVAL`: an address is host memory that the driver has not given out.
    #[error("{at} is no memory of a device that is open")]
    Address {
        /// The address.
        at: BusAddr,
    },
    /// `EFAULT`: the caller may not read there.
    #[error(transparent)]
    User(#[from] UserFault),
    /// `EIO`: what was copied in, or where it goes, is not in host memory.
    #[error(transparent)]
    Memory(#[from] BadHostRange),
    /// They could not be copied into HBM, or their place leaves the address space; the number is the
    /// cause's.
    #[error(transparent)]
    Copy(#[from] DmaError),
}

/// Whether an address is one of host memory, as the driver decides it for descriptors (driver
/// 2.24.7). Addresses that no memory has may be either.
#[must_use]
pub fn is_host_address(profile: &ArchProfile, at: BusAddr) -> bool {
    let mask = match profile.arch {
        Arch::V2 => 0x1f << 44,
        Arch::V3 | Arch::V4 => profile.host_base,
    };
    at.get() & mask == profile.host_base
}

impl Dma {
    /// Whether a descriptor may hold an address: what is no host memory always may, host memory if it
    /// lies in a live chunk of a device that some process has open, whichever it is (driver 2.24.7 asks
    /// no more). This device is looked at first, then its neighbours, then all others.
    ///
    /// # Errors
    /// [`DescriptorError::Address`] if it may not.
    pub fn check_address(&self, devices: &dyn Devices, at: BusAddr) -> Result<(), DescriptorError> {
        self.find_chunk(devices, at).map(drop)
    }

    /// Copies descriptors from a process into a ring, or wherever else the target is, piece by piece.
    /// Of each piece every one is checked before it goes on. What goes to HBM is staged in `staging`
    /// after that: host memory of [`DESCRIPTOR_PIECE_BYTES`] that no process can find.
    ///
    /// # Errors
    /// [`DescriptorError`]. Pieces before the one at fault stay written, of that one nothing is.
    pub fn copy_descriptors_in(
        &self,
        caller: &Caller<'_>,
        devices: &dyn Devices,
        from: UserAddr,
        staging: Place,
        copy: DescriptorCopy,
    ) -> Result<(), DescriptorError> {
        let DescriptorCopy {
            target,
            size_bytes,
            direction,
        } = copy;
        check_even(size_bytes)?;
        let wraps = DmaError::Wraps {
            source_at: staging.at,
            target_at: target.at,
            size_bytes,
        };
        let host = &self.links.host;
        let mut buffer = Vec::new();
        for (offset, piece_bytes) in pieces(size_bytes, DESCRIPTOR_PIECE_BYTES) {
            let fault = UserFault {
                at: from,
                size_bytes,
            };
            let from = from.checked_add(offset).ok_or(fault)?;
            // CAST: at most DESCRIPTOR_PIECE_BYTES.
            #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
            buffer.resize(piece_bytes as usize, 0);
            caller.memory.copy_in(from, &mut buffer)?;
            self.check_all(devices, &buffer, direction, &mut None)?;
            let at = target.at.checked_add(offset).ok_or(wraps)?;
            let target = Place { at, ..target };
            if target.location == Location::Host {
                host.write(self.host_pa(target)?, &buffer)?;
            } else {
                host.write(self.host_pa(staging)?, &buffer)?;
                self.copy(caller.pid, staging, target, piece_bytes)?;
            }
        }
        Ok(())
    }

    /// Checks the descriptors at `source`, host memory that nobody else writes, and copies them if
    /// all may be. None are copied for a size of 0.
    ///
    /// # Errors
    /// [`DescriptorError`]. Nothing is written then, unless the copy itself fails.
    pub fn copy_descriptors(
        &self,
        by: Pid,
        devices: &dyn Devices,
        source: Place,
        copy: DescriptorCopy,
    ) -> Result<(), DescriptorError> {
        let DescriptorCopy {
            target,
            size_bytes,
            direction,
        } = copy;
        check_even(size_bytes)?;
        let from = self.host_pa(source)?;
        let host = &self.links.host;
        let mut known = None;
        for (offset, mut step) in steps(size_bytes) {
            host.read(after(from, offset), step.bytes())?;
            self.check_all(devices, step.bytes(), direction, &mut known)?;
        }
        if target.location == Location::Device {
            return Ok(self.copy(by, source, target, size_bytes)?);
        }
        let to = self.host_pa(target)?;
        for (offset, mut step) in steps(size_bytes) {
            host.read(after(from, offset), step.bytes())?;
            host.write(after(to, offset), step.bytes())?;
        }
        Ok(())
    }

    /// Checks descriptors. Most point where the one before does, so that this is `known`.
    fn check_all(
        &self,
        devices: &dyn Devices,
        descs: &[u8],
        direction: Direction,
        known: &mut Option<Span<BusAddr>>,
    ) -> Result<(), DescriptorError> {
        let (descs, _) = descs.as_chunks();
        for desc in descs {
            let at = address(desc, direction);
            if !known.is_some_and(|chunk| chunk.contains(at)) {
                *known = self.find_chunk(devices, at)?;
            }
        }
        Ok(())
    }

    /// The chunk of host memory that an address is in, if it is an address of host memory.
    fn find_chunk(
        &self,
        devices: &dyn Devices,
        at: BusAddr,
    ) -> Result<Option<Span<BusAddr>>, DescriptorError> {
        let links = &self.links;
        if !is_host_address(links.profile, at) {
            return Ok(None);
        }
        let own = links.device.get();
        let near = [Some(own), own.checked_sub(1), own.checked_add(1)];
        let far = (0..DEVICES_MAX).filter(|number| !near.contains(&Some(*number)));
        near.into_iter()
            .flatten()
            .filter(|number| *number < DEVICES_MAX)
            .chain(far)
            .filter_map(|number| devices.memory(DeviceId::new(number)))
            .filter(|memory| memory.is_attached())
            .find_map(|memory| {
                let (_, chunk) = memory.search(at)?;
                Span::new(chunk.at(), chunk.size_bytes())
            })
            .map(Some)
            .ok_or(DescriptorError::Address { at })
    }

    fn host_pa(&self, place: Place) -> Result<HostPa, DmaError> {
        let at = place.at;
        let host = self.links.profile.bus_to_host(at);
        host.ok_or(DmaError::NotHost { at })
    }
}

fn check_even(size_bytes: u64) -> Result<(), DescriptorError> {
    if size_bytes.is_multiple_of(DESC_SIZE_BYTES) {
        Ok(())
    } else {
        Err(DescriptorError::Uneven { size_bytes })
    }
}

/// Where a descriptor of this side points to.
fn address(desc: &[u8; DESC_BYTES], direction: Direction) -> BusAddr {
    let mut words = [0; DESC_WORDS];
    for (word, bytes) in words.iter_mut().zip(desc.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    match direction {
        Direction::Tx => TxDesc::from_words(words).source,
        Direction::Rx => RxDesc::from_words(words).target,
    }
}

/// An address within a range that lies in host memory, or is refused there.
fn after(at: HostPa, offset_bytes: u64) -> HostPa {
    at.checked_add(offset_bytes)
        .unwrap_or(HostPa::new(u64::MAX))
}

/// Cuts a size into pieces: offset and size of each.
fn pieces(size_bytes: u64, piece_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let count = size_bytes.div_ceil(piece_bytes);
    (0..count).map(move |number| {
        let offset = number * piece_bytes;
        (offset, (size_bytes - offset).min(piece_bytes))
    })
}

/// A piece of the driver's stack.
struct StepBuffer {
    bytes: [u8; STEP_BYTES],
    len: usize,
}

impl StepBuffer {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// Cuts a size into pieces that fit the driver's stack: the offset of each, and room for it.
fn steps(size_bytes: u64) -> impl Iterator<Item = (u64, StepBuffer)> {
    pieces(size_bytes, STEP_BYTES as u64).map(|(offset, step_bytes)| {
        // CAST: at most STEP_BYTES.
        #[expect(clippy::cast_possible_truncation, reason = "see CAST")]
        let len = step_bytes as usize;
        let bytes = [0; STEP_BYTES];
        (offset, StepBuffer { bytes, len })
    })
}
