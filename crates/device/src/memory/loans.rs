//! Memory that a caller lends with a call: reachable by its addresses until the call returns.
//!
//! [`lend`] takes the borrows, and gives a closure [`Loans`] that finds a range by address. The
//! closure can look, copy, and pin; when it returns or unwinds, every pin it made is ended, and
//! with it the last way to the memory. It cannot keep the [`Loans`], so the end cannot be missed.
//!
//! A range counts if it lies in one buffer. Buffers for reading may overlap each other, so the
//! finder remembers for each, in order of address, the one up to it that reaches furthest. A buffer
//! for writing overlaps no other (Rust's borrows), so it is always the one found for its bytes.

use std::cell::RefCell;
use std::ptr::NonNull;

use glia_abi::addr::UserAddr;
use glia_abi::handle::PinId;
use glia_abi::transport::{Lent, PinFault, PinnedUser, UserFault};
use smallvec::SmallVec;

use super::{Bytes, BytesMut, PinTable};

/// Buffers that need no allocation.
const FEW: usize = 4;

#[derive(Clone, Copy)]
struct Buffer {
    first: NonNull<u8>,
    size_bytes: usize,
    writable: bool,
    /// The buffer that reaches furthest, of those up to this one.
    furthest: usize,
}

impl Buffer {
    const NONE: Self = Self {
        first: NonNull::dangling(),
        size_bytes: 0,
        writable: false,
        furthest: 0,
    };

    fn read(bytes: &[u8]) -> Self {
        Self {
            first: NonNull::from(bytes).cast(),
            size_bytes: bytes.len(),
            ..Self::NONE
        }
    }

    fn write(bytes: &mut [u8]) -> Self {
        Self {
            size_bytes: bytes.len(),
            first: NonNull::from(bytes).cast(),
            writable: true,
            ..Self::NONE
        }
    }

    fn start(&self) -> u64 {
        self.first.addr().get() as u64
    }

    fn end(&self) -> u64 {
        self.start() + self.size_bytes as u64
    }
}

/// The memory on loan, see the module.
pub(crate) struct Loans<'a> {
    /// By address.
    buffers: &'a [Buffer],
    pins: &'a PinTable,
    pinned: RefCell<SmallVec<[PinId; FEW]>>,
}

/// Lends `arg` (to be read and written) and `lent` to a closure.
pub(crate) fn lend<R>(
    pins: &PinTable,
    arg: &mut [u8],
    lent: &mut [Lent<'_>],
    call: impl FnOnce(&Loans<'_>) -> R,
) -> R {
    let mut few = [Buffer::NONE; FEW];
    let mut many = Vec::new();
    let count = 1 + lent.len();
    let buffers = if count <= FEW {
        &mut few[..count]
    } else {
        many.resize(count, Buffer::NONE);
        &mut many[..]
    };
    // From here on, `arg` and `lent` are only used through these pointers.
    buffers[0] = Buffer::write(arg);
    for (buffer, lent) in buffers[1..].iter_mut().zip(lent.iter_mut()) {
        *buffer = match lent {
            Lent::In(bytes) => Buffer::read(bytes),
            Lent::Out(bytes) => Buffer::write(bytes),
        };
    }
    buffers.sort_unstable_by_key(Buffer::start);
    let mut furthest = 0;
    for index in 0..count {
        if buffers[index].end() > buffers[furthest].end() {
            furthest = index;
        }
        buffers[index].furthest = furthest;
    }
    let loans = Loans {
        buffers,
        pins,
        pinned: RefCell::default(),
    };
    call(&loans)
    // Here `loans` is dropped, and every pin with it; only then do the borrows end.
}

impl Loans<'_> {
    /// A range to read.
    ///
    /// # Errors
    /// [`UserFault`] if it is not on loan.
    pub(crate) fn bytes(&self, at: UserAddr, size_bytes: u64) -> Result<Bytes<'_>, UserFault> {
        let fault = UserFault { at, size_bytes };
        let (bytes, _writable) = self.find(at, size_bytes).ok_or(fault)?;
        Ok(bytes)
    }

    /// A range that is lent for reading, in place.
    pub(crate) fn slice(&self, at: UserAddr, size_bytes: u64) -> Option<&[u8]> {
        let (bytes, writable) = self.find(at, size_bytes)?;
        // SAFETY: of one borrow for reading, which outlives `self`, so that nobody writes there: a pin for
        // writing is refused, and a buffer for writing overlaps no other.
        (!writable).then(|| unsafe { bytes.as_slice() })
    }

    /// A range to write.
    ///
    /// # Errors
    /// [`UserFault`] if it is not on loan for writing.
    pub(crate) fn bytes_mut(
        &self,
        at: UserAddr,
        size_bytes: u64,
    ) -> Result<BytesMut<'_>, UserFault> {
        match self.find(at, size_bytes) {
            // SAFETY: lent for writing, and the borrow outlives `self`.
            Some((bytes, true)) => Ok(unsafe { BytesMut::of(bytes) }),
            Some((_, false)) | None => Err(UserFault { at, size_bytes }),
        }
    }

    /// Pins a range until the loan ends.
    ///
    /// # Errors
    /// [`PinFault`] if it is not on loan, not for writing, or there is no room.
    pub(crate) fn pin(
        &self,
        at: UserAddr,
        size_bytes: u64,
        write: bool,
    ) -> Result<PinnedUser, PinFault> {
        let fault = UserFault { at, size_bytes };
        let (bytes, writable) = self.find(at, size_bytes).ok_or(fault)?;
        if write && !writable {
            return Err(fault.into());
        }
        let in_page_bytes = at.get() % glia_abi::PAGE_SIZE_BYTES;
        // SAFETY: the borrows outlive `self`, whose drop unpins; `write` was checked.
        let pinned = unsafe { self.pins.insert(bytes, write, None, in_page_bytes) }?;
        self.pinned.borrow_mut().push(pinned.pin);
        Ok(pinned)
    }

    /// A range of one buffer, and whether it may be written.
    fn find(&self, at: UserAddr, size_bytes: u64) -> Option<(Bytes<'_>, bool)> {
        let upto = self
            .buffers
            .partition_point(|buffer| buffer.start() <= at.get());
        let lowest = self.buffers.get(upto.checked_sub(1)?)?;
        let buffer = self.buffers.get(lowest.furthest)?;
        let size = usize::try_from(size_bytes).ok()?;
        let offset = usize::try_from(at.get().checked_sub(buffer.start())?).ok()?;
        if offset.checked_add(size)? > buffer.size_bytes {
            return None;
        }
        // SAFETY: in the buffer, whose borrow outlives `self`.
        let bytes = unsafe { Bytes::new(buffer.first.add(offset), size) };
        Some((bytes, buffer.writable))
    }
}

impl Drop for Loans<'_> {
    fn drop(&mut self) {
        self.pins.end_loans(self.pinned.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use glia_abi::fault::NoFaults;
    use glia_abi::transport::user_addr;

    use super::*;
    use crate::memory::PinLayout;

    fn table() -> PinTable {
        PinTable::new(PinLayout::Contiguous, u64::MAX, Arc::new(NoFaults))
    }

    #[test]
    fn a_range_counts_if_any_lent_buffer_holds_it_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        let at = |offset| user_addr(&bytes[offset..]);
        let mut lent = [
            Lent::In(&bytes[20..30]),
            Lent::In(&bytes[10..60]),
            Lent::In(&bytes[40..80]),
            Lent::In(&bytes[50..50]),
            Lent::In(&bytes[10..60]),
        ];
        lend(&table(), &mut [], &mut lent, |loans| {
            let mut seen = [0; 2];
            loans.bytes(at(55), 2).unwrap().read(&mut seen);
            assert_eq!(seen, [55, 56]);
            assert_eq!(loans.slice(at(55), 2), Some(&seen[..]));
            assert_eq!(loans.slice(at(59), 22), None);
            for (offset, size) in [(10, 50), (20, 10), (25, 30), (40, 40), (61, 19)] {
                assert!(loans.bytes(at(offset), size).is_ok(), "{offset} {size}");
            }
            for (offset, size) in [(9, 1), (10, 51), (59, 22), (80, 1), (30, u64::MAX)] {
                assert!(loans.bytes(at(offset), size).is_err(), "{offset} {size}");
            }
        });
    }

    #[test]
    fn only_what_is_lent_for_writing_can_be_written() {
        let input = [1_u8; 8];
        let mut output = [0_u8; 8];
        let mut arg = [0_u8; 4];
        let (input_at, output_at) = (user_addr(&input), user_addr(&output));
        let arg_at = user_addr(&arg);
        let mut lent = [Lent::In(&input), Lent::Out(&mut output)];
        lend(&table(), &mut arg, &mut lent, |loans| {
            assert!(loans.bytes_mut(input_at, 8).is_err());
            assert_eq!(loans.slice(input_at, 8), Some(&input[..]));
            assert_eq!(loans.slice(output_at, 8), None);
            assert!(loans.pin(input_at, 8, true).is_err());
            assert!(loans.pin(input_at, 8, false).is_ok());
            loans.bytes_mut(output_at, 8).unwrap().write(&[7; 8]);
            loans.bytes_mut(arg_at, 4).unwrap().write(&[3; 4]);
        });
        assert_eq!((output, arg), ([7; 8], [3; 4]));
    }

    #[test]
    fn every_pin_ends_with_the_loan_by_unwinding_too() {
        let table = table();
        let mut buffer = [0_u8; 64];
        let at = user_addr(&buffer);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lend(&table, &mut buffer, &mut [], |loans| {
                loans.pin(at, 64, true).unwrap();
                assert_eq!(table.pinned_bytes(), 64);
                std::panic::resume_unwind(Box::new(()));
            });
        }));
        assert!(unwound.is_err());
        assert_eq!(table.pinned_bytes(), 0);
    }
}
