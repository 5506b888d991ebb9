//! Every kind of fault against every operation: the bytes are exact or there is an error, the same
//! operation works afterwards, and nothing is left behind.
//!
//! The table of outcomes is kept in `matrix.txt`. With `GLIA_BLESS=1` in the environment the test
//! writes it anew. "-" says that the fault had no opportunity. Some kinds have one nowhere in the
//! table: `failed-table` and `failed-pool` can strike at bring-up alone, which is over by then.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use glia::machine::SchedMode;
use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::{Detail, Event, Ids, Sink};
use glia_abi::fault::{FaultKind, FaultRule, InternalAlloc, PairFault, Struck, Trigger};
use glia_abi::handle::{McHandle, QueueId};
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Tick};
use glia_runtime::ndl::{NdlError, WaitHandle};

use super::rig::{CORE, Client, Content, DEVICE, Reset, Rig, whole};

/// Longer than any budget here: the two batches of 127 MiB are given 81 s at most.
const TOO_LATE: Micros = Micros(600_000_000);

const FLIPPED: FaultKind = FaultKind::FlippedBits {
    offset_bytes: 5,
    size_bytes: 2,
    mask: 0x18,
};

/// What fails, and at which of its opportunities.
const KINDS: [(&str, FaultKind, u64); 22] = {
    use FaultKind::FailedInternalAlloc as Failed;
    use InternalAlloc as Of;
    let delay = Micros(300);
    [
        ("stuck-queue", FaultKind::StuckQueue, 1),
        ("lost-marker", FaultKind::LostMarker, 1),
        ("late-marker", FaultKind::LateMarker { delay }, 1),
        (
            "too-late-marker",
            FaultKind::LateMarker { delay: TOO_LATE },
            1,
        ),
        ("partial-batch", FaultKind::PartialBatch { pairs: 1 }, 1),
        ("flipped-bits", FLIPPED, 1),
        ("flipped-bits, 2nd", FLIPPED, 2),
        (
            "delayed-retirement",
            FaultKind::DelayedRetirement { delay },
            1,
        ),
        ("dma-abort", FaultKind::DmaAbort, 1),
        ("uncorrectable-hbm", FaultKind::UncorrectableHbm, 1),
        ("reset-hang", FaultKind::ResetHang, 1),
        ("failed-pin", FaultKind::FailedPin, 1),
        ("fragmented-pages", FaultKind::FragmentedPages, 1),
        ("failed-host-alloc", FaultKind::FailedHostAlloc, 1),
        ("failed-request", Failed(Of::Request), 1),
        ("failed-record", Failed(Of::ChunkRecord), 1),
        ("failed-page", Failed(Of::HandlePage), 1),
        ("failed-table", Failed(Of::HandleTable), 1),
        ("failed-pool", Failed(Of::Pool), 1),
        ("exhausted-handles", FaultKind::ExhaustedHandles, 1),
        ("exhausted-ring", FaultKind::ExhaustedRing, 1),
        ("exhausted-slots", FaultKind::ExhaustedProcessSlots, 1),
    ]
};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Open,
    Alloc(Location),
    /// So many allocations that the handle table has to grow.
    Grow,
    /// A copy between two chunks.
    Copy(Location, Location, u64),
    /// From and to user memory.
    Buffer(u64),
    /// Three copies, each of which waits for the one before.
    Chain(u64),
    Memset(u64),
    /// Another core is reset while this one copies.
    ResetOther,
    /// A reset across a chain of asynchronous copies.
    Reset(Reset),
    Free,
    /// The process goes while a copy is under way.
    Close,
    /// From user memory, without a buffer in between.
    ZeroWrite(u64),
    /// To user memory.
    ZeroRead(u64),
    /// From memory of the process, to be told of by a completion.
    ZeroAsync(u64),
    /// The process goes while that is under way.
    ZeroClose,
}

const SMALL: u64 = 4096;
/// Three descriptors.
const MIDDLE: u64 = 2 * 65_536 + 100;
/// Three contexts.
const WIDE: u64 = 600_000;
/// Two batches.
const LARGE: u64 = 2032 * 65_536 + 8192;

const OPERATIONS: [(&str, Operation); 28] = {
    use Location::{Device as D, Host as H};
    use Operation as Do;
    [
        ("open", Do::Open),
        ("alloc h", Do::Alloc(H)),
        ("alloc d", Do::Alloc(D)),
        ("grow", Do::Grow),
        ("h2d 4K", Do::Copy(H, D, SMALL)),
        ("h2d 128K", Do::Copy(H, D, MIDDLE)),
        ("h2d 127M", Do::Copy(H, D, LARGE)),
        ("d2h 4K", Do::Copy(D, H, SMALL)),
        ("d2h 128K", Do::Copy(D, H, MIDDLE)),
        ("d2h 127M", Do::Copy(D, H, LARGE)),
        ("d2d 4K", Do::Copy(D, D, SMALL)),
        ("d2d 128K", Do::Copy(D, D, MIDDLE)),
        ("d2d 127M", Do::Copy(D, D, LARGE)),
        ("h2h 4K", Do::Copy(H, H, SMALL)),
        ("h2h 127M", Do::Copy(H, H, LARGE)),
        ("buffer", Do::Buffer(MIDDLE)),
        ("async", Do::Chain(MIDDLE)),
        ("memset", Do::Memset(MIDDLE)),
        ("reset other", Do::ResetOther),
        ("reset own", Do::Reset(Reset::Cores(1))),
        ("reset all", Do::Reset(Reset::Device)),
        ("free", Do::Free),
        ("close", Do::Close),
        ("zc w 4K", Do::ZeroWrite(SMALL)),
        ("zc w 600K", Do::ZeroWrite(WIDE)),
        ("zc r 600K", Do::ZeroRead(WIDE)),
        ("zc async", Do::ZeroAsync(WIDE)),
        ("zc close", Do::ZeroClose),
    ]
};

impl Operation {
    /// What shows that the ring is usable again: the same, with fewer bytes where they are many.
    fn again(self) -> Self {
        match self {
            Self::Copy(from, to, LARGE) => Self::Copy(from, to, MIDDLE),
            other => other,
        }
    }
}

/// Handles of the first page of the table; the second one is made when the last of them is issued.
const HANDLES_OF_A_PAGE: u32 = 8191;

/// An operation that only has to be done.
struct Ready<'a> {
    rig: &'a Rig,
    client: &'a Client,
    operation: Operation,
    /// The first one is the source, or the only one.
    chunks: Vec<McHandle>,
    content: Content,
    value: u8,
    /// What was read into user memory.
    read_back: Option<Vec<u8>>,
}

impl<'a> Ready<'a> {
    fn new(rig: &'a Rig, client: &'a Client, operation: Operation, seed: u64) -> Self {
        use Location::{Device, Host};
        let (places, size_bytes): (&[Location], u64) = match operation {
            Operation::Open
            | Operation::Alloc(_)
            | Operation::Grow
            | Operation::Close
            | Operation::ZeroClose => (&[], 0),
            Operation::ZeroWrite(size_bytes) | Operation::ZeroAsync(size_bytes) => {
                (&[Host, Device], size_bytes)
            }
            Operation::ZeroRead(size_bytes) => (&[Device], size_bytes),
            Operation::Copy(from, to, size_bytes) => (&[from, to], size_bytes),
            Operation::Buffer(size_bytes) | Operation::Memset(size_bytes) => {
                (&[Device], size_bytes)
            }
            Operation::Chain(size_bytes) => (&[Host, Device, Device, Device], size_bytes),
            Operation::ResetOther => (&[Host, Device], MIDDLE),
            Operation::Reset(_) => (&[Host, Device, Device, Device, Device], MIDDLE),
            Operation::Free => (&[Device], MIDDLE),
        };
        let mut chunks: Vec<_> = places
            .iter()
            .map(|&location| client.alloc(location, size_bytes).unwrap())
            .collect();
        if operation == Operation::Grow && seed == 1 {
            while chunks
                .last()
                .is_none_or(|last: &McHandle| last.get() + 4 < HANDLES_OF_A_PAGE)
            {
                chunks.push(client.alloc(Device, 1).unwrap());
            }
        }
        let content = Content::new(size_bytes, seed);
        if let Some(&source) = chunks.first().filter(|_| size_bytes > 0) {
            let mapping = client.device.map(source, size_bytes).unwrap();
            for (offset, bytes) in content.windows() {
                mapping.write(offset, bytes).unwrap();
            }
        }
        if let (Operation::Reset(_), [source, before, ..]) = (operation, &chunks[..]) {
            client.copy(*source, *before, size_bytes).unwrap();
        }
        Self {
            rig,
            client,
            operation,
            chunks,
            content,
            value: 0x30 + u8::try_from(seed).unwrap(),
            read_back: None,
        }
    }

    fn size_bytes(&self) -> u64 {
        self.content.size_bytes()
    }

    /// Does it. What it says is compared later.
    fn act(&mut self) -> Result<(), Errno> {
        self.try_act().map_err(|error| match error {
            NdlError::Call { errno, .. } => errno,
            other => panic!("{other}"),
        })
    }

    fn try_act(&mut self) -> Result<(), NdlError> {
        let (client, device) = (self.client, &self.client.device);
        match self.operation {
            Operation::Open => self.rig.open(900).map(drop),
            Operation::Alloc(location) => device.free(client.alloc(location, MIDDLE)?),
            Operation::Grow => {
                for _ in 0..8 {
                    self.chunks.push(client.alloc(Location::Device, 1)?);
                }
                Ok(())
            }
            Operation::Copy(..) => client.copy(self.chunks[0], self.chunks[1], self.size_bytes()),
            Operation::Buffer(_) => {
                let content = self.content.bytes();
                device.buf_write(self.chunks[0], 0, &content)?;
                let back = self.read_back.insert(vec![0; content.len()]);
                device.buf_read(self.chunks[0], 0, back)
            }
            Operation::Chain(size_bytes) => {
                let mut previous = WaitHandle::None;
                for &target in &self.chunks[1..] {
                    let copy = whole(self.chunks[0], target, size_bytes);
                    previous = device.copy_async(&copy, previous)?;
                }
                device.copy_wait(self.chunks[0], self.chunks[3], previous)
            }
            Operation::Memset(size_bytes) => {
                client.fill(self.rig, self.chunks[0], size_bytes, self.value)
            }
            Operation::ResetOther => {
                // Which disturbs this one's copies on V2.
                client.reset_begin(Reset::Cores(1 << 1))?;
                self.rig.await_running_reset();
                let copied = client.copy(self.chunks[0], self.chunks[1], self.size_bytes());
                client.reset_wait(Reset::Cores(1 << 1))?;
                copied
            }
            Operation::Reset(reset) => self.reset_across(reset),
            Operation::Free => device.free(self.chunks.remove(0)),
            Operation::Close => {
                let other = self.rig.open(901)?;
                let source = other.alloc(Location::Host, MIDDLE)?;
                let target = other.alloc(Location::Device, MIDDLE)?;
                let copy = whole(source, target, MIDDLE);
                other.device.copy_async(&copy, WaitHandle::None).map(drop)
            }
            Operation::ZeroWrite(_) => {
                let content = self.content.bytes();
                device.zero_copy_write(self.chunks[1], 0, &content, 0)
            }
            Operation::ZeroRead(size_bytes) => {
                let back = vec![0; usize::try_from(size_bytes).unwrap()];
                let back = self.read_back.insert(back);
                device.zero_copy_read(self.chunks[0], 0, back)
            }
            Operation::ZeroAsync(_) => {
                let mut completions = device.completions(CORE)?;
                client.zero_copy_begin(self.chunks[1], &self.content.bytes())?;
                let ended = completions.wait(device, TOO_LATE);
                let ended = ended.expect("every request has a completion");
                match ended.result {
                    0 => Ok(()),
                    other => Err(NdlError::Call {
                        device: DEVICE,
                        call: "completion",
                        errno: of_completion(other),
                    }),
                }
            }
            Operation::ZeroClose => {
                let other = self.rig.open(901)?;
                let target = other.alloc(Location::Device, WIDE)?;
                other.zero_copy_begin(target, &Content::new(WIDE, 3).bytes())
            }
        }
    }

    /// The copy that is under way when the reset begins is lost, which its successor is told after
    /// the reset. Then a new chain begins.
    fn reset_across(&mut self, reset: Reset) -> Result<(), NdlError> {
        let (client, size_bytes) = (self.client, self.size_bytes());
        let [source, _, across, after, last] = self.chunks[..] else {
            unreachable!("{:?}", self.operation);
        };
        let start = |target, previous| {
            let copy = whole(source, target, size_bytes);
            client.device.copy_async(&copy, previous)
        };
        let lost = start(across, WaitHandle::None);
        client.reset_begin(reset)?;
        client.reset_wait(reset)?;
        if let Ok(lost) = lost {
            let told = start(across, lost);
            assert!(is_timeout(&told), "{told:?} behind a copy that was lost");
        }
        let first = start(after, WaitHandle::None)?;
        let second = start(last, first)?;
        client.device.copy_wait(source, last, second)?;
        lost.map(drop)
    }

    /// The chunks that this has written, but for the [lost](Self::lost) one.
    fn targets(&self) -> Vec<McHandle> {
        match self.operation {
            Operation::Copy(..)
            | Operation::Chain(_)
            | Operation::ResetOther
            | Operation::ZeroWrite(_)
            | Operation::ZeroAsync(_) => self.chunks[1..].to_vec(),
            Operation::Reset(_) => [&self.chunks[1..2], &self.chunks[3..]].concat(),
            Operation::Buffer(_) | Operation::Memset(_) | Operation::ZeroRead(_) => {
                self.chunks.clone()
            }
            Operation::Open
            | Operation::Alloc(_)
            | Operation::Grow
            | Operation::Free
            | Operation::Close
            | Operation::ZeroClose => Vec::new(),
        }
    }

    /// The chunk to which a copy was under way when its core was reset: nothing is known of it.
    fn lost(&self) -> Option<McHandle> {
        matches!(self.operation, Operation::Reset(_)).then(|| self.chunks[2])
    }

    /// Compares every byte with what it should be, and gives how many are not what was meant:
    /// exactly those that were flipped by order, in exactly the bits of the order.
    fn check(&self, flips: &[Flip], what: &str) -> u64 {
        let filled = Content::of(self.value, self.size_bytes());
        let meant = match self.operation {
            Operation::Memset(_) => &filled,
            _ => &self.content,
        };
        if let (Operation::ZeroRead(_), Some(read_back)) = (self.operation, &self.read_back) {
            // The engine has written user memory, of whose addresses nothing is known here.
            return check_read(read_back, &self.content.bytes(), flips, what);
        }
        let mut wrong = 0;
        let mut left: Vec<&Flip> = flips.iter().collect();
        for target in self.targets() {
            let start = self.client.device.physical_address(target).unwrap();
            let mut inverted = BTreeMap::new();
            left.retain(|flip| !self.locate(flip, start, &mut inverted));
            wrong += inverted.len() as u64;
            let mapping = self.client.device.map(target, self.size_bytes()).unwrap();
            for (offset, meant) in meant.windows() {
                let mut expected = meant.to_vec();
                for (&at, mask) in inverted.range(offset..offset + meant.len() as u64) {
                    expected[usize::try_from(at - offset).unwrap()] ^= mask;
                }
                let mut found = vec![0; expected.len()];
                mapping.read(offset, &mut found).unwrap();
                assert_same(&found, &expected, what);
                if let Some(read_back) = &self.read_back {
                    let read_back = &read_back[usize::try_from(offset).unwrap()..];
                    assert_same(&read_back[..expected.len()], &expected, what);
                }
            }
        }
        if let Some(lost) = self.lost() {
            let start = self.client.device.physical_address(lost).unwrap();
            left.retain(|flip| !self.locate(flip, start, &mut BTreeMap::new()));
        }
        // Of a process that goes, nobody is left to look.
        let is_seen = !matches!(self.operation, Operation::Close | Operation::ZeroClose);
        assert!(left.is_empty() || !is_seen, "{what}: {left:?}");
        wrong
    }

    /// Which bytes of the chunk that starts there a flip has inverted, if any, by their offsets.
    /// What a fill is replicated from, it replicates with its wrong bits.
    fn locate(&self, flip: &Flip, start: BusAddr, inverted: &mut BTreeMap<u64, u8>) -> bool {
        const PIECE: u64 = 65_536;
        let size_bytes = self.size_bytes();
        let first = flip.at.checked_offset_from(start);
        let Some(first) = first.filter(|&first| first < size_bytes) else {
            return false;
        };
        let is_replicated = matches!(self.operation, Operation::Memset(_)) && first < PIECE;
        let end = if is_replicated { size_bytes } else { first + 1 };
        for at in (first..end).step_by(usize::try_from(PIECE).unwrap()) {
            inverted.extend((at..at + flip.size_bytes).map(|at| (at, flip.mask)));
        }
        true
    }
}

fn is_timeout<T>(answer: &Result<T, NdlError>) -> bool {
    matches!(answer, Err(NdlError::Call { errno, .. }) if *errno == Errno::ETIMEDOUT)
}

/// The bytes that differ are as many as were flipped by order, next to each other, in the bits of the
/// order; says how many they are.
fn check_read(found: &[u8], expected: &[u8], flips: &[Flip], what: &str) -> u64 {
    let pairs = found.iter().zip(expected).enumerate();
    let differ = pairs.filter(|(_, (found, expected))| found != expected);
    let differ: Vec<_> = differ
        .map(|(at, (found, expected))| (at, found ^ expected))
        .collect();
    let flipped: u64 = flips.iter().map(|flip| flip.size_bytes).sum();
    assert_eq!(differ.len() as u64, flipped, "{what}");
    let masks = flips
        .iter()
        .flat_map(|flip| (0..flip.size_bytes).map(|_| flip.mask));
    assert!(differ.iter().map(|(_, mask)| *mask).eq(masks), "{what}");
    assert!(
        differ.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0),
        "{what}"
    );
    flipped
}

/// The error number of a completion that tells of a failure.
fn of_completion(result: i64) -> Errno {
    let all = [Errno::ETIMEDOUT, Errno::EBUSY, Errno::ENOMEM, Errno::EFAULT];
    let mut all = all.into_iter();
    let found = all.find(|errno| i64::from(errno.ret()) == result);
    found.unwrap_or_else(|| panic!("a completion with {result}"))
}

/// Of the first bytes that differ, where and how.
fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    if found != expected {
        let mut pairs = found.iter().zip(expected).enumerate();
        let first = pairs.find(|(_, (found, expected))| found != expected);
        panic!("{what}: byte, found and expected: {first:?}");
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            let _ = self.client.device.free(chunk);
        }
    }
}

/// What came of an operation: an entry of the table.
fn outcome(acted: Result<(), Errno>, flipped: u64) -> String {
    match (acted, flipped) {
        (Ok(()), 0) => "exact".to_owned(),
        (Ok(()), flipped) => format!("{flipped} flipped"),
        (Err(errno), _) => errno.to_string(),
    }
}

/// Bits that an engine has inverted by order.
#[derive(Debug, Clone, Copy)]
struct Flip {
    /// The first byte.
    at: BusAddr,
    size_bytes: u64,
    mask: u8,
}

/// What the engines say about flipped bits: which pair was ordered to, and where it wrote.
#[derive(Default)]
struct Flips(Mutex<FlipLog>);

#[derive(Default)]
struct FlipLog {
    ordered: BTreeMap<(QueueId, u64), PairFault>,
    done: Vec<Flip>,
}

impl Flips {
    /// What was done, and how many orders came to nothing.
    fn take(&self) -> (Vec<Flip>, usize) {
        let mut log = self.0.lock().unwrap();
        (std::mem::take(&mut log.done), log.ordered.len())
    }
}

impl Sink for Flips {
    fn detail(&self) -> Detail {
        Detail::Descriptors
    }

    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        let mut log = self.0.lock().unwrap();
        match *event {
            Event::Ordered { index, fault } if matches!(fault, PairFault::Flipped { .. }) => {
                log.ordered.insert((ids.queue.unwrap(), index), fault);
            }
            Event::Moved {
                index,
                target,
                size_bytes: moved,
                ..
            } => {
                let ordered = log.ordered.remove(&(ids.queue.unwrap(), index));
                if let Some(PairFault::Flipped {
                    offset_bytes,
                    size_bytes,
                    mask,
                }) = ordered
                {
                    log.done.push(Flip {
                        at: target.checked_add(offset_bytes).unwrap(),
                        size_bytes: size_bytes.min(moved - offset_bytes),
                        mask,
                    });
                }
            }
            _ => {}
        }
    }
}

/// One cell of the table: "-" if the fault did not strike.
fn cell(arch: Arch, (kind, nth): (FaultKind, u64), operation: Operation) -> String {
    let flips = Arc::new(Flips::default());
    let rig = Rig::new(
        arch,
        SchedMode::Virtual { seed: 1 },
        Arc::clone(&flips) as _,
    );
    let mut entry = String::new();
    let what = format!("{arch}, {kind:?}, {operation:?}");
    let checked = rig.machine.run_clients(vec![Box::new(|| {
        let before = rig.rest();
        let client = rig.open(7).unwrap();
        let mut ready = Ready::new(&rig, &client, operation, 1);
        let rule = FaultRule {
            trigger: Trigger::nth(nth),
            ..FaultRule::new(kind)
        };
        let rule = rig.plan.add(rule).unwrap();
        let acted = ready.act();
        let Struck { strikes, .. } = rig.plan.remove(rule).unwrap();
        let (flips, undone) = flips.take();
        if let FaultKind::FlippedBits { .. } = kind {
            assert_eq!((flips.len() + undone) as u64, strikes, "{what}");
            assert!(undone == 0 || ready.lost().is_some(), "{what}");
        }
        let flipped = match acted {
            Ok(()) => ready.check(&flips, &what),
            Err(_) => 0,
        };
        drop(ready);
        if !(strikes > 0 && takes_handles_down(kind)) {
            // The same again, and the fault is over.
            let mut again = Ready::new(&rig, &client, operation.again(), 2);
            assert_eq!(again.act(), Ok(()), "{what}: not usable any more");
            assert_eq!(again.check(&[], &what), 0);
        }
        drop(client);
        assert_eq!(rig.rest(), before, "{what}: something is left");
        entry = match strikes {
            0 => "-".to_owned(),
            _ => outcome(acted, flipped),
        };
    })]);
    checked.unwrap_or_else(|error| panic!("{what}: {error}"));
    entry
}

/// The handle table of the reference does not come back either, when it could not grow.
fn takes_handles_down(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::ExhaustedHandles | FaultKind::FailedInternalAlloc(InternalAlloc::HandlePage)
    )
}

/// All cells, of two machines at a time, kind by kind.
fn cells(arch: Arch) -> Vec<String> {
    let all = KINDS.iter().flat_map(|&(_, kind, nth)| {
        let kind = (kind, nth);
        OPERATIONS
            .iter()
            .map(move |&(_, operation)| (kind, operation))
    });
    let all: Vec<_> = all.collect();
    let (next, cells) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(kind, operation)) = all.get(number) else {
                        break;
                    };
                    let cell = cell(arch, kind, operation);
                    cells.lock().unwrap().insert(number, cell);
                }
            });
        }
    });
    cells.into_inner().unwrap().into_values().collect()
}

fn table(arch: Arch) -> String {
    let mut table = format!("{arch}\n\n{:20}", "");
    for (name, _) in OPERATIONS {
        let _ = write!(table, "{name:>12}");
    }
    let cells = cells(arch);
    for ((name, ..), row) in KINDS.iter().zip(cells.chunks(OPERATIONS.len())) {
        let _ = write!(table, "\n{name:20}");
        for cell in row {
            let _ = write!(table, "{cell:>12}");
        }
    }
    table
}

#[test]
fn every_fault_against_every_operation() {
    let tables = Arch::ALL.map(table).join("\n\n") + "\n";
    println!("{tables}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trouble/matrix.txt");
    if std::env::var_os("GLIA_BLESS").is_some() {
        std::fs::write(path, &tables).unwrap();
    }
    assert!(
        tables == std::fs::read_to_string(path).unwrap(),
        "not as {path} has it"
    );
}
