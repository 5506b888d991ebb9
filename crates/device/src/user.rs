//! The memory of a process, as far as the driver may use it.
//!
//! ```text
//!   lent with a call   real pointers    from the call's begin to its end   AddressSpace::call
//!   buffers            2^56 and above   as long as somebody holds them     AddressSpace::buffer
//! ```
//!
//! A lent buffer's address is that of its first byte. A [buffer](AddressSpace::buffer)'s address is
//! made up, lowest free first, so that traces of two runs are equal; no pointer of a Linux process
//! on the machines that Glia runs on is as high (up to 57 bits, of which the lower half is the
//! user's), so the two cannot be mistaken for each other.
//!
//! **What ends when.** With a call: all pins on lent memory, also when it unwinds. With a buffer
//! (its last `Arc`, or last captured range): its address; what is pinned of it stays valid until it
//! is unpinned. With [`AddressSpace::close`]: everything that would begin anew, such as a pin by a
//! captured range.
//!
//! **Locks.** One mutex around the table of buffers, held for look-ups only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use glia_abi::PAGE_SIZE_BYTES;
use glia_abi::addr::{HostPa, Span, UserAddr, access_fits};
use glia_abi::errno::Errno;
use glia_abi::sync::AtomicU32;
use glia_abi::transport::{
    CapturedMemory, Lent, Mapping, MappingError, PinFault, PinnedUser, UserBuffer, UserFault,
    UserMemory,
};

use crate::extents::Extents;
use crate::host::HostArena;
use crate::mapping::RegionMapping;
use crate::memory::{Loans, Region, lend};

/// First address of a buffer.
const BUFFERS_START: u64 = 1 << 56;
/// Bytes of address space for buffers.
const BUFFERS_SIZE: u64 = 1 << 56;

/// The memory of one process, see the module. Dropping it [closes](Self::close) it.
pub struct AddressSpace {
    space: Arc<Space>,
}

struct Space {
    host: Arc<HostArena>,
    buffers: Mutex<Buffers>,
}

struct Buffers {
    open: bool,
    addresses: Extents,
    /// By first address.
    live: BTreeMap<u64, Weak<Buffer>>,
}

/// Memory of the process that outlives a call.
struct Buffer {
    at: UserAddr,
    /// Bytes of address space, the empty page behind it included.
    taken_bytes: u64,
    mapping: RegionMapping,
    space: Arc<Space>,
}

impl AddressSpace {
    /// An empty address space on a machine.
    #[must_use]
    pub fn new(host: Arc<HostArena>) -> Self {
        let buffers = Buffers {
            open: true,
            addresses: Extents::new(BUFFERS_START, BUFFERS_SIZE),
            live: BTreeMap::new(),
        };
        Self {
            space: Arc::new(Space {
                host,
                buffers: Mutex::new(buffers),
            }),
        }
    }

    /// Makes a call in which `arg` and `lent` are valid, at the addresses that
    /// [`user_addr`](glia_abi::transport::user_addr) gives, beside the buffers. When it returns or
    /// unwinds, nothing of `arg` and `lent` is pinned any more.
    pub fn call<R>(
        &self,
        arg: &mut [u8],
        lent: &mut [Lent<'_>],
        call: impl FnOnce(&dyn UserMemory) -> R,
    ) -> R {
        lend(self.space.host.pins(), arg, lent, |loans| {
            let space = &self.space;
            call(&View { loans, space })
        })
    }

    /// Fresh memory of the process, page-aligned, zeroed.
    ///
    /// # Errors
    /// `ENOMEM` if it cannot be had, is 0 bytes, or the address space is closed.
    pub fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        let taken_bytes = size_bytes
            .checked_next_multiple_of(PAGE_SIZE_BYTES)
            .and_then(|bytes| bytes.checked_add(PAGE_SIZE_BYTES))
            .filter(|_| size_bytes > 0)
            .ok_or(Errno::ENOMEM)?;
        let region = Arc::new(Region::new(size_bytes, 0).map_err(|_| Errno::ENOMEM)?);
        let mapping = RegionMapping::new(&region, 0, size_bytes, true).ok_or(Errno::ENOMEM)?;
        let mut buffers = self.space.buffers();
        if !buffers.open {
            return Err(Errno::ENOMEM);
        }
        let start = buffers
            .addresses
            .take(taken_bytes, BUFFERS_START)
            .ok_or(Errno::ENOMEM)?;
        let buffer = Arc::new(Buffer {
            at: UserAddr::new(start),
            taken_bytes,
            mapping,
            space: Arc::clone(&self.space),
        });
        buffers.live.insert(start, Arc::downgrade(&buffer));
        Ok(buffer)
    }

    /// The process is gone: its buffers have no addresses any more, captured ranges cannot be
    /// pinned. Whoever holds a buffer can still use its bytes, and pins last until they are ended.
    pub fn close(&self) {
        self.space.buffers().open = false;
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.close();
    }
}

impl Space {
    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The buffer that holds a range whole, and the range's offset in it.
    fn find(&self, at: UserAddr, size_bytes: u64) -> Result<(Arc<Buffer>, u64), UserFault> {
        let found = {
            let buffers = self.buffers();
            let mut below = buffers.live.range(..=at.get());
            let below = below.next_back().filter(|_| buffers.open);
            below.and_then(|(_, buffer)| buffer.upgrade())
        };
        // The lock is let go: a buffer whose last holder this is takes it when dropped.
        found
            .and_then(|buffer| {
                let offset = at.checked_offset_from(buffer.at)?;
                access_fits(offset, size_bytes, buffer.size_bytes()).then_some((buffer, offset))
            })
            .ok_or(UserFault { at, size_bytes })
    }
}

impl Buffer {
    fn pin(&self, offset: u64, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault> {
        let range = Span::cut(HostPa::new(offset), size_bytes);
        let pins = self.space.host.pins();
        pins.pin_region(
            self.mapping.region(),
            range,
            offset % PAGE_SIZE_BYTES,
            write,
        )
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut buffers = self.space.buffers();
        buffers.live.remove(&self.at.get());
        buffers.addresses.give(self.at.get(), self.taken_bytes);
    }
}

impl Mapping for Buffer {
    fn size_bytes(&self) -> u64 {
        self.mapping.size_bytes()
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MappingError> {
        self.mapping.read(offset_bytes, into)
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MappingError> {
        self.mapping.write(offset_bytes, bytes)
    }

    fn words(&self, offset_bytes: u64, size_bytes: u64) -> Result<&[AtomicU32], MappingError> {
        self.mapping.words(offset_bytes, size_bytes)
    }
}

impl UserBuffer for Buffer {
    fn address(&self) -> UserAddr {
        self.at
    }
}

/// What a call can reach.
struct View<'a> {
    loans: &'a Loans<'a>,
    space: &'a Arc<Space>,
}

/// Whether an address can only be that of a buffer.
fn is_in_buffers(at: UserAddr) -> bool {
    at.get() >= BUFFERS_START
}

impl UserMemory for View<'_> {
    fn copy_in(&self, from: UserAddr, into: &mut [u8]) -> Result<(), UserFault> {
        let size_bytes = into.len() as u64;
        let fault = UserFault {
            at: from,
            size_bytes,
        };
        if size_bytes == 0 {
            return Ok(());
        }
        if is_in_buffers(from) {
            let (buffer, offset) = self.space.find(from, size_bytes)?;
            return buffer.read(offset, into).map_err(|_| fault);
        }
        self.loans.bytes(from, size_bytes)?.read(into);
        Ok(())
    }

    fn bytes(&self, at: UserAddr, size_bytes: u64) -> Option<&[u8]> {
        // Buffers are written by whoever holds them.
        if is_in_buffers(at) {
            return None;
        }
        self.loans.slice(at, size_bytes)
    }

    fn copy_out(&self, to: UserAddr, bytes: &[u8]) -> Result<(), UserFault> {
        let size_bytes = bytes.len() as u64;
        let fault = UserFault { at: to, size_bytes };
        if size_bytes == 0 {
            return Ok(());
        }
        if is_in_buffers(to) {
            let (buffer, offset) = self.space.find(to, size_bytes)?;
            return buffer.write(offset, bytes).map_err(|_| fault);
        }
        self.loans.bytes_mut(to, size_bytes)?.write(bytes);
        Ok(())
    }

    fn check(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<(), UserFault> {
        if size_bytes == 0 {
            return Ok(());
        }
        if is_in_buffers(at) {
            return self.space.find(at, size_bytes).map(drop);
        }
        if write {
            self.loans.bytes_mut(at, size_bytes).map(drop)
        } else {
            self.loans.bytes(at, size_bytes).map(drop)
        }
    }

    fn pin(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault> {
        if size_bytes == 0 {
            return self.space.host.pins().pin_nothing();
        }
        if is_in_buffers(at) {
            let (buffer, offset) = self.space.find(at, size_bytes)?;
            return buffer.pin(offset, size_bytes, write);
        }
        self.loans.pin(at, size_bytes, write)
    }

    fn capture(&self, at: UserAddr, size_bytes: u64) -> Option<Arc<dyn CapturedMemory>> {
        let (buffer, offset) = self.space.find(at, size_bytes).ok()?;
        Some(Arc::new(Captured {
            buffer,
            offset,
            size_bytes,
        }))
    }
}

/// A range of a buffer, which it keeps alive.
struct Captured {
    buffer: Arc<Buffer>,
    offset: u64,
    size_bytes: u64,
}

impl CapturedMemory for Captured {
    fn pin(&self, offset_bytes: u64, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault> {
        let is_open = self.buffer.space.buffers().open;
        if !is_open || !access_fits(offset_bytes, size_bytes, self.size_bytes) {
            let at = self.buffer.at.get().wrapping_add(self.offset);
            let at = UserAddr::new(at.wrapping_add(offset_bytes));
            return Err(UserFault { at, size_bytes }.into());
        }
        self.buffer
            .pin(self.offset + offset_bytes, size_bytes, write)
    }
}

#[cfg(test)]
mod tests {
    use glia_abi::port::MachineMemory;
    use glia_abi::transport::user_addr;

    use super::*;
    use crate::host::HostConfig;

    fn process() -> (Arc<HostArena>, AddressSpace) {
        let host = Arc::new(HostArena::new(HostConfig::default()).unwrap());
        (Arc::clone(&host), AddressSpace::new(host))
    }

    #[test]
    fn a_call_reaches_what_was_lent_and_buffers_and_nothing_else() {
        let (_, process) = process();
        let buffer = process.buffer(5000).unwrap();
        buffer.write(4990, &[5; 10]).unwrap();
        let input = [1_u8, 2, 3];
        let input_at = user_addr(&input);
        let stranger = [9_u8; 3];
        process.call(&mut [], &mut [Lent::In(&input)], |memory| {
            let mut seen = [0; 3];
            memory.copy_in(input_at, &mut seen).unwrap();
            assert_eq!(seen, [1, 2, 3]);
            let tail = UserAddr::new(buffer.address().get() + 4997);
            memory.copy_in(tail, &mut seen).unwrap();
            assert_eq!(seen, [5; 3]);
            assert!(memory.copy_in(tail, &mut [0; 4]).is_err());
            assert!(memory.copy_in(user_addr(&stranger), &mut seen).is_err());
            assert!(memory.copy_in(UserAddr::new(0), &mut []).is_ok());
            assert!(memory.copy_out(input_at, &[0]).is_err());
            memory.copy_out(buffer.address(), &[8]).unwrap();
        });
        let mut first = [0];
        buffer.read(0, &mut first).unwrap();
        assert_eq!(first, [8]);
    }

    #[test]
    fn addresses_of_buffers_are_the_same_in_every_run() {
        let addresses = || {
            let (_, process) = process();
            let first = process.buffer(1).unwrap();
            let second = process.buffer(8192).unwrap();
            let at = [first.address(), second.address()];
            drop(first);
            (at, process.buffer(4096).unwrap().address())
        };
        let (at, again) = addresses();
        assert_eq!(addresses(), (at, again));
        assert_eq!(at.map(UserAddr::get), [1 << 56, (1 << 56) + 8192]);
        assert_eq!(again, at[0]);
    }

    #[test]
    fn a_buffer_that_was_dropped_is_a_fault() {
        let (_, process) = process();
        let buffer = process.buffer(4096).unwrap();
        let at = buffer.address();
        drop(buffer);
        process.call(&mut [], &mut [], |memory| {
            assert!(memory.copy_in(at, &mut [0]).is_err());
            assert!(memory.capture(at, 1).is_none());
        });
    }

    #[test]
    fn a_captured_range_lives_on_and_is_refused_when_the_process_is_gone() {
        let (host, process) = process();
        let buffer = process.buffer(8192).unwrap();
        let at = buffer.address();
        let mut lent = [0_u8; 8];
        let captured = process.call(&mut lent, &mut [], |memory| {
            memory.capture(at, 8192).unwrap()
        });
        drop(buffer);
        let pinned = captured.pin(0, 8192, true).unwrap();
        assert_eq!(pinned.spans[0].size_bytes(), 8192);
        process.close();
        assert!(matches!(
            captured.pin(0, 8192, true),
            Err(PinFault::Fault(_))
        ));
        assert!(process.buffer(1).is_err());
        assert_eq!(host.pinned_bytes(), 8192);
        host.unpin(pinned.pin);
        assert_eq!(host.pinned_bytes(), 0);
    }

    #[test]
    fn lent_memory_cannot_be_captured() {
        let (_, process) = process();
        let mut arg = [0_u8; 8];
        let at = user_addr(&arg);
        let captured = process.call(&mut arg, &mut [], |memory| memory.capture(at, 8).is_some());
        assert!(!captured);
    }
}
