//! A process's memory: buffers at made-up addresses, pinned page by page above 4 GiB.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use glia_abi::addr::{HostPa, Span, UserAddr, access_fits};
use glia_abi::conformance::user_memory::{UserFixture, check};
use glia_abi::handle::PinId;
use glia_abi::transport::{CapturedMemory, PinFault, PinnedUser, UserFault, UserMemory};

use crate::breaks;
use crate::host::{self, FakeMachine, Pin};

const PAGE: u64 = 4096;
/// The most pins at a time.
const PINS_MAX: usize = 64;
pub(crate) const READABLE: u64 = 0x1_0000_0123;
pub(crate) const WRITABLE: u64 = 0x2_0000_0400;
const LASTING: u64 = 0x3_0000_0000;
const OUTSIDE: u64 = 0x9_0000_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    ReadsShifted,
    WritesOneMore,
    WritesWhatIsForReading,
    ShowsShifted,
    ShowsAnywhere,
    ShowsWhatIsWritten,
    RefusedReadClobbers,
    RefusedWriteWrites,
    RefusesButWrites,
    TakesAnyAddress,
    WrapsAround,
    FaultNamesFirstByte,
    FaultsOnNothing,
    PinsFewer,
    PinsAtPageStart,
    PinsInOddPieces,
    PinsEmptySpans,
    PinsForWriting,
    PinsAnywhere,
    PinIdsRepeat,
    OnePinAtATime,
    CapturesLent,
    CapturesBeyond,
    CapturesNothing,
    CapturedIsNotPinned,
    ChecksNothing,
    ChecksForReading,
    CapturedPinsBeyond,
    CapturedPinsItsStart,
}

#[derive(Clone)]
struct Buffer {
    at: u64,
    writable: bool,
    lasting: bool,
    bytes: Arc<Mutex<Vec<u8>>>,
}

#[derive(Clone)]
pub(crate) struct FakeUser {
    flaw: Flaw,
    machine: Arc<FakeMachine>,
    buffers: Vec<Buffer>,
    next_pin: Arc<AtomicU64>,
    /// What the readable buffer holds.
    shown: Vec<u8>,
}

impl FakeUser {
    pub(crate) fn new(flaw: Flaw, machine: Arc<FakeMachine>) -> Self {
        let buffer = |at, writable, lasting, bytes: Vec<u8>| Buffer {
            at,
            writable,
            lasting,
            bytes: Arc::new(Mutex::new(bytes)),
        };
        Self {
            flaw,
            machine,
            buffers: vec![
                buffer(READABLE, false, false, content()),
                buffer(WRITABLE, true, false, vec![0; 3 * 4096]),
                buffer(LASTING, true, true, vec![0; 2 * 4096]),
            ],
            next_pin: Arc::default(),
            shown: content(),
        }
    }

    /// The buffer that a range lies in, and where.
    fn find(&self, at: UserAddr, size: u64, write: bool) -> Result<(&Buffer, usize), UserFault> {
        let size_bytes = match self.flaw {
            Flaw::FaultNamesFirstByte => 1,
            _ => size,
        };
        let holds = |buffer: &&Buffer| {
            let limit = buffer.bytes.lock().unwrap().len() as u64;
            let offset = at.get().wrapping_sub(buffer.at);
            access_fits(offset, size, limit)
        };
        let found = match self.buffers.iter().find(holds) {
            None if self.flaw == Flaw::TakesAnyAddress => Some(&self.buffers[1]),
            None if self.flaw == Flaw::WrapsAround && at.get() > 1 << 62 => Some(&self.buffers[1]),
            found => found,
        };
        let allowed = |buffer: &&Buffer| {
            !write || buffer.writable || self.flaw == Flaw::WritesWhatIsForReading
        };
        match found.filter(allowed) {
            Some(buffer) => Ok((buffer, at.get().wrapping_sub(buffer.at) as usize)),
            None => Err(UserFault { at, size_bytes }),
        }
    }

    /// A pin of the pages that a range touches, each two pages from the one before it.
    fn pin_at(&self, buffer: &Buffer, offset: usize, size: u64, write: bool) -> Option<PinnedUser> {
        let pins_max = match self.flaw {
            Flaw::OnePinAtATime => 1,
            _ => PINS_MAX,
        };
        if self.machine.pins().len() >= pins_max {
            return None;
        }
        let number = match (self.next_pin.fetch_add(1, Ordering::Relaxed), self.flaw) {
            (number, Flaw::PinIdsRepeat) => number % 100,
            (number, _) => number,
        };
        let piece_bytes = match self.flaw {
            Flaw::PinsInOddPieces => 1000,
            _ => PAGE,
        };
        let size_bytes = match self.flaw {
            Flaw::PinsFewer => size - 1,
            _ => size,
        };
        let mut page = (1 << 33) + (number << 24);
        let mut in_page = match self.flaw {
            Flaw::PinsAtPageStart => 0,
            _ => (buffer.at + offset as u64) % PAGE,
        };
        let mut spans = Vec::new();
        let mut left = size_bytes;
        while left > 0 {
            let here = left.min(piece_bytes.max(in_page + 1) - in_page);
            spans.extend(Span::new(HostPa::new(page + in_page), here));
            left -= here;
            page += 2 * PAGE;
            in_page = 0;
        }
        if self.flaw == Flaw::PinsEmptySpans {
            spans.extend(Span::new(HostPa::new(page), 0));
        }
        let pin = Pin {
            spans: spans.clone(),
            offset,
            bytes: Arc::clone(&buffer.bytes),
            write: write || self.flaw == Flaw::PinsForWriting,
        };
        self.machine.pins().insert(number, pin);
        let pin = PinId(number);
        Some(PinnedUser {
            pin,
            spans: spans.into(),
        })
    }
}

/// What the readable buffer holds.
pub(crate) fn content() -> Vec<u8> {
    (0..6000_u32).map(|at| (at % 251) as u8).collect()
}

impl UserMemory for FakeUser {
    fn copy_in(&self, from: UserAddr, into: &mut [u8]) -> Result<(), UserFault> {
        if into.is_empty() && self.flaw != Flaw::FaultsOnNothing {
            return Ok(());
        }
        let found = self.find(from, into.len() as u64, false);
        let (buffer, offset) = found.inspect_err(|_| {
            if self.flaw == Flaw::RefusedReadClobbers {
                into.fill(0);
            }
        })?;
        let bytes = buffer.bytes.lock().unwrap();
        let offset = match self.flaw {
            Flaw::ReadsShifted if offset > 0 => offset - 1,
            _ => offset,
        };
        if let Some(source) = bytes.get(offset..).and_then(|rest| rest.get(..into.len())) {
            into.copy_from_slice(source);
        }
        Ok(())
    }

    fn bytes(&self, at: UserAddr, size_bytes: u64) -> Option<&[u8]> {
        let size = usize::try_from(size_bytes).ok()?;
        match self.find(at, size_bytes, false) {
            Ok((buffer, offset)) if !buffer.writable => {
                let offset = match self.flaw {
                    Flaw::ShowsShifted if offset > 0 => offset - 1,
                    _ => offset,
                };
                self.shown.get(offset..)?.get(..size)
            }
            Ok(_) if self.flaw == Flaw::ShowsWhatIsWritten => self.shown.get(..size),
            Err(_) if self.flaw == Flaw::ShowsAnywhere => self.shown.get(..size.min(8)),
            _ => None,
        }
    }

    fn copy_out(&self, to: UserAddr, bytes: &[u8]) -> Result<(), UserFault> {
        if bytes.is_empty() && self.flaw != Flaw::FaultsOnNothing {
            return Ok(());
        }
        let store = |buffer: &Buffer, offset: usize| {
            let mut target = buffer.bytes.lock().unwrap();
            let rest = target.get_mut(offset..).unwrap_or_default();
            rest.iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            if self.flaw == Flaw::WritesOneMore
                && let Some(next) = rest.get_mut(bytes.len())
            {
                *next = 0x99;
            }
        };
        let found = self.find(to, bytes.len() as u64, true);
        let (buffer, offset) = found.inspect_err(|_| {
            let offset = |buffer: &Buffer| to.get().wrapping_sub(buffer.at) as usize;
            match self.flaw {
                Flaw::RefusedWriteWrites => store(&self.buffers[1], offset(&self.buffers[1])),
                Flaw::RefusesButWrites => store(&self.buffers[0], offset(&self.buffers[0])),
                _ => {}
            }
        })?;
        store(buffer, offset);
        Ok(())
    }

    fn check(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<(), UserFault> {
        if size_bytes == 0 || self.flaw == Flaw::ChecksNothing {
            return Ok(());
        }
        self.find(at, size_bytes, write && self.flaw != Flaw::ChecksForReading)
            .map(drop)
    }

    fn pin(&self, at: UserAddr, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault> {
        if size_bytes == 0 {
            let (pin, spans) = (PinId(u64::MAX), Vec::new());
            return Ok(PinnedUser {
                pin,
                spans: spans.into(),
            });
        }
        let write = write && self.flaw != Flaw::PinsForWriting;
        let (buffer, offset) = match self.find(at, size_bytes, write) {
            Err(_) if self.flaw == Flaw::PinsAnywhere && size_bytes < PAGE => (&self.buffers[1], 0),
            found => found?,
        };
        let pinned = self.pin_at(buffer, offset, size_bytes, write);
        pinned.ok_or(PinFault::NoRoom { size_bytes })
    }

    fn capture(&self, at: UserAddr, size_bytes: u64) -> Option<Arc<dyn CapturedMemory>> {
        let (buffer, offset) = match self.find(at, size_bytes, false) {
            Err(_) if self.flaw == Flaw::CapturesBeyond && at.get() == LASTING => {
                (&self.buffers[2], 0)
            }
            found => found.ok()?,
        };
        let refused = match self.flaw {
            Flaw::CapturesLent => false,
            Flaw::CapturesNothing => true,
            _ => !buffer.lasting,
        };
        let captured = Captured {
            user: self.clone(),
            buffer: buffer.clone(),
            offset,
            size_bytes,
        };
        (!refused).then(|| Arc::new(captured) as Arc<dyn CapturedMemory>)
    }
}

struct Captured {
    user: FakeUser,
    buffer: Buffer,
    offset: usize,
    size_bytes: u64,
}

impl CapturedMemory for Captured {
    fn pin(&self, offset_bytes: u64, size_bytes: u64, write: bool) -> Result<PinnedUser, PinFault> {
        let end = offset_bytes.checked_add(size_bytes);
        let is_outside = end.is_none_or(|end| end > self.size_bytes);
        if is_outside && self.user.flaw != Flaw::CapturedPinsBeyond {
            let at = UserAddr::new(0);
            return Err(UserFault { at, size_bytes }.into());
        }
        if self.user.flaw == Flaw::CapturedIsNotPinned {
            return Err(PinFault::NoRoom { size_bytes });
        }
        let offset = match self.user.flaw {
            Flaw::CapturedPinsItsStart => self.offset,
            _ => self.offset + usize::try_from(offset_bytes).unwrap(),
        };
        let pinned = self.user.pin_at(&self.buffer, offset, size_bytes, write);
        pinned.ok_or(PinFault::NoRoom { size_bytes })
    }
}

pub(crate) fn writable() -> Span<UserAddr> {
    Span::new(UserAddr::new(WRITABLE), 3 * PAGE).unwrap()
}

fn run(flaw: Flaw, machine_flaw: host::Flaw) -> Result<(), glia_abi::conformance::Violation> {
    let machine = Arc::new(FakeMachine::new(machine_flaw));
    let user = FakeUser::new(flaw, Arc::clone(&machine));
    let found = check(&UserFixture {
        memory: &user,
        machine: machine.as_ref(),
        readable: UserAddr::new(READABLE),
        content: &content(),
        writable: writable(),
        lasting: Span::new(UserAddr::new(LASTING), 2 * PAGE),
        outside: UserAddr::new(OUTSIDE),
    });
    if found.is_ok() {
        assert!(machine.pins().is_empty(), "all unpinned");
    }
    found
}

#[test]
fn user_memory_that_keeps_the_rules_passes() {
    run(Flaw::None, host::Flaw::None).unwrap();
}

#[test]
fn mutants_of_user_memory_are_caught() {
    let named = "an address that is not the caller's is a fault that names the whole range";
    let nothing = "a fault copies nothing";
    let pinned = "what the caller may not use so cannot be pinned, and the fault names it";
    let captured = "only memory that outlives the call is captured";
    let checked = "what the caller may not use so is told when it is checked";
    let mutants = [
        (Flaw::ReadsShifted, "the caller's bytes come in"),
        (
            Flaw::WritesOneMore,
            "bytes go out where they were sent, and nowhere else",
        ),
        (
            Flaw::WritesWhatIsForReading,
            "memory that may only be read is not written",
        ),
        (Flaw::RefusesButWrites, nothing),
        (Flaw::RefusedReadClobbers, nothing),
        (Flaw::RefusedWriteWrites, nothing),
        (Flaw::TakesAnyAddress, named),
        (Flaw::WrapsAround, named),
        (
            Flaw::FaultNamesFirstByte,
            "memory that may only be read is not written",
        ),
        (Flaw::FaultsOnNothing, "a range of 0 bytes is never a fault"),
        (
            Flaw::PinsFewer,
            "the spans of a pin hold as many bytes as its range",
        ),
        (
            Flaw::PinsAtPageStart,
            "the first span starts at the range's offset in its page",
        ),
        (
            Flaw::PinsInOddPieces,
            "the spans of a pin meet at borders of pages",
        ),
        (Flaw::PinsEmptySpans, "no span of a pin is empty"),
        (Flaw::PinsForWriting, pinned),
        (Flaw::PinsAnywhere, pinned),
        (Flaw::PinIdsRepeat, "the id of a pin is never used twice"),
        (Flaw::OnePinAtATime, "the same memory can be pinned twice"),
        (Flaw::CapturedIsNotPinned, "captured memory can be pinned"),
        (
            Flaw::CapturedPinsBeyond,
            "what leaves the captured range is not pinned",
        ),
        (
            Flaw::CapturedPinsItsStart,
            "the first span starts at the range's offset in its page",
        ),
        (Flaw::ShowsShifted, "bytes in place are the caller's"),
        (
            Flaw::ShowsAnywhere,
            "what is not the caller's is not there in place",
        ),
        (
            Flaw::ShowsWhatIsWritten,
            "what may be written is not there in place",
        ),
        (Flaw::ChecksNothing, checked),
        (Flaw::ChecksForReading, checked),
        (Flaw::CapturesLent, captured),
        (Flaw::CapturesBeyond, captured),
        (
            Flaw::CapturesNothing,
            "memory that outlives the call is captured",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, host::Flaw::None), rule, &flaw);
    }
    let flaw = host::Flaw::UnpinForgets;
    breaks(
        run(Flaw::None, flaw),
        "a pin that has ended makes room",
        &flaw,
    );
}
