//! A driver's front door with nothing behind it: descriptors, the two commands that any file has,
//! and buffers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use glia_abi::conformance::Violation;
use glia_abi::conformance::transport::{TransportFixture, check};
use glia_abi::errno::Errno;
use glia_abi::handle::{DeviceId, Fd, WorkerId};
use glia_abi::insight::PoolSnapshot;
use glia_abi::ioctl;
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};
use glia_abi::transport::{Lent, Mapping, OpenMode, Transport, UserBuffer};

use crate::breaks;
use crate::mapping::{self, FakeMapping};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    OpensNothing,
    OpensAnything,
    LooksIntoAnything,
    FirstFreeIsLast,
    DupRefuses,
    DupIsTheSame,
    DupEndsWithTheFirst,
    ClosesTwice,
    UnknownIsNotty,
    MatchesByNumber,
    WriteOnlyAllocates,
    ReachesBeyondArguments,
    MapsNothing,
    MapsAnywhere,
    BufferOfNothing,
    BuffersOverlap,
    BuffersAreDirty,
}

struct FakeTransport {
    flaw: Flaw,
    /// Which file a descriptor is of.
    files: Mutex<BTreeMap<i32, (u64, OpenMode)>>,
    buffers: Mutex<u64>,
}

impl FakeTransport {
    fn lowest(&self, file: (u64, OpenMode)) -> Fd {
        let mut files = self.files.lock().unwrap();
        let fd = match self.flaw {
            Flaw::FirstFreeIsLast => files.keys().next_back().map_or(3, |last| last + 1),
            _ => (3..).find(|fd| !files.contains_key(fd)).unwrap(),
        };
        files.insert(fd, file);
        Fd(fd)
    }

    fn file(&self, fd: Fd) -> Result<(u64, OpenMode), Errno> {
        let files = self.files.lock().unwrap();
        files.get(&fd.0).copied().ok_or(Errno::EBADF)
    }
}

impl Transport for FakeTransport {
    fn open(&self, device: DeviceId, mode: OpenMode) -> Result<Fd, Errno> {
        if device != DeviceId::new(0) && self.flaw != Flaw::OpensAnything {
            return Err(Errno::ENOENT);
        }
        if self.flaw == Flaw::OpensNothing {
            return Err(Errno::EBUSY);
        }
        let files = self.files.lock().unwrap();
        let number = files.values().map(|(number, _)| number + 1).max();
        drop(files);
        Ok(self.lowest((number.unwrap_or(0), mode)))
    }

    fn dup(&self, fd: Fd) -> Result<Fd, Errno> {
        let file = self.file(fd)?;
        match self.flaw {
            Flaw::DupIsTheSame => Ok(fd),
            Flaw::DupRefuses => Err(Errno::EMFILE),
            _ => Ok(self.lowest(file)),
        }
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let found = self.file(fd);
        if found.is_err() && self.flaw == Flaw::ClosesTwice {
            return Ok(());
        }
        let (number, _) = found?;
        let same = |&(other, _): &(u64, OpenMode)| other == number;
        let mut files = self.files.lock().unwrap();
        match self.flaw {
            Flaw::DupEndsWithTheFirst => files.retain(|_, file| !same(file)),
            _ => files.retain(|&open, _| open != fd.0),
        }
        Ok(())
    }

    fn ioctl(
        &self,
        fd: Fd,
        word: u32,
        arg: &mut [u8],
        _lent: &mut [Lent<'_>],
    ) -> Result<i32, Errno> {
        let (_, mode) = self.file(fd)?;
        let unknown = match self.flaw {
            Flaw::UnknownIsNotty => Errno::ENOTSUPP,
            _ => Errno::EINVAL,
        };
        let by_number = self.flaw == Flaw::MatchesByNumber;
        let allocates = !mode.is_free_access() || self.flaw == Flaw::WriteOnlyAllocates;
        let needed = match word {
            ioctl::COMPATIBLE_VERSION | ioctl::DEVICE_BASIC_INFO => 8,
            ioctl::MEM_GET_INFO if !mode.is_free_access() => 24,
            ioctl::MEM_ALLOC_V2MT64 if allocates => 56,
            _ if by_number && ioctl::number(word) == ioctl::number(ioctl::DEVICE_BDF_EXT) => 8,
            _ => return Err(unknown),
        };
        if arg.len() < needed && self.flaw != Flaw::ReachesBeyondArguments {
            return Err(Errno::EFAULT);
        }
        arg.fill(2);
        Ok(0)
    }

    fn mmap(&self, fd: Fd, offset: u64, size_bytes: u64) -> Result<Arc<dyn Mapping>, Errno> {
        self.file(fd)?;
        let nothing = || Ok(Arc::new(FakeMapping::new(mapping::Flaw::None, 0, 0)) as _);
        match self.flaw {
            Flaw::MapsNothing if size_bytes == 0 => nothing(),
            Flaw::MapsAnywhere if offset > 4096 && offset < u64::MAX => nothing(),
            _ if size_bytes == 0 || !offset.is_multiple_of(4096) => Err(Errno::EINVAL),
            _ => Err(Errno::EPERM),
        }
    }

    fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, Errno> {
        let granted = size_bytes > 0 || self.flaw == Flaw::BufferOfNothing;
        if !granted || size_bytes > 1 << 30 {
            return Err(Errno::ENOMEM);
        }
        let mut next = self.buffers.lock().unwrap();
        let address = 0x7000_0000 + *next;
        if self.flaw != Flaw::BuffersOverlap {
            *next += size_bytes;
        }
        let flaw = match self.flaw {
            Flaw::BuffersAreDirty => mapping::Flaw::Dirty,
            _ => mapping::Flaw::None,
        };
        Ok(Arc::new(FakeMapping::new(flaw, size_bytes, address)))
    }

    fn sched(&self) -> &dyn Sched {
        &Standstill
    }

    fn insight(&self, device: DeviceId) -> Option<PoolSnapshot> {
        let known = device == DeviceId::new(0) || self.flaw == Flaw::LooksIntoAnything;
        known.then(PoolSnapshot::default)
    }
}

/// Time that nobody needs.
struct Standstill;

impl Sched for Standstill {
    fn now(&self) -> Tick {
        Tick(0)
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(0)
    }

    fn wake(&self, _on: WaitOn) {}

    fn pause(&self) {}

    fn spawn(&self, _worker: std::sync::Weak<dyn Worker>) -> WorkerId {
        WorkerId::new(0)
    }

    fn kick(&self, _worker: WorkerId) {}

    fn block(&self, _on: WaitOn, poll: &mut dyn FnMut() -> Poll, _within: Option<Micros>) -> bool {
        poll() == Poll::Done
    }
}

fn run(flaw: Flaw) -> Result<(), Violation> {
    let transport = FakeTransport {
        flaw,
        files: Mutex::default(),
        buffers: Mutex::default(),
    };
    let found = check(&TransportFixture {
        transport: &transport,
        device: DeviceId::new(0),
        missing: DeviceId::new(63),
    });
    if found.is_ok() {
        assert!(transport.files.lock().unwrap().is_empty(), "all closed");
    }
    found
}

#[test]
fn a_front_door_that_keeps_the_rules_passes() {
    run(Flaw::None).unwrap();
}

#[test]
fn mutants_of_the_front_door_are_caught() {
    let lowest = "an open takes the lowest free descriptor";
    let unknown = "a command that does not exist is refused: EINVAL";
    let mutants = [
        (Flaw::OpensNothing, "a device that exists can be opened"),
        (
            Flaw::DupRefuses,
            "a descriptor that is open can be duplicated",
        ),
        (
            Flaw::OpensAnything,
            "a device that does not exist cannot be opened: ENOENT",
        ),
        (
            Flaw::LooksIntoAnything,
            "a device that does not exist holds nothing",
        ),
        (Flaw::FirstFreeIsLast, lowest),
        (Flaw::DupIsTheSame, "a duplicate is another descriptor"),
        (
            Flaw::DupEndsWithTheFirst,
            "a duplicate lives on when the first descriptor is closed",
        ),
        (
            Flaw::ClosesTwice,
            "a descriptor that is not open is refused: EBADF",
        ),
        (Flaw::UnknownIsNotty, unknown),
        (Flaw::MatchesByNumber, unknown),
        (
            Flaw::WriteOnlyAllocates,
            "a file of free access has no command that needs an attached process: EINVAL",
        ),
        (
            Flaw::ReachesBeyondArguments,
            "a command does not reach beyond the argument that it was given: EFAULT",
        ),
        (
            Flaw::MapsNothing,
            "a mapping of no bytes, or at an offset within a page, is refused: EINVAL",
        ),
        (Flaw::MapsAnywhere, "what is nowhere cannot be mapped"),
        (
            Flaw::BufferOfNothing,
            "a buffer that cannot be had is refused: ENOMEM",
        ),
        (Flaw::BuffersOverlap, "buffers lie apart"),
        (Flaw::BuffersAreDirty, "a fresh buffer is zeroed"),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw), rule, &flaw);
    }
}
