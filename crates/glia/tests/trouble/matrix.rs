//! Every kind of fault against every operation: the bytes are exact or there is an error, the same
//! operation works afterwards, and nothing is left behind.
//!
//! The table of outcomes is kept in `matrix.txt`. With `GLIA_BLESS=1` in the environment the test
//! writes it anew.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use glia::machine::SchedMode;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::{Event, Ids, Sink};
use glia_abi::fault::{FaultKind, FaultRule, InternalAlloc, PairFault, Trigger};
use glia_abi::handle::McHandle;
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Tick};
use glia_runtime::ndl::{NdlError, WaitHandle};

use super::rig::{Client, Rig, pattern, whole};

/// Longer than any budget of a copy here.
const TOO_LATE: Micros = Micros(60_000_000);

const KINDS: [(&str, FaultKind); 18] = [
    ("stuck-queue", FaultKind::StuckQueue),
    ("lost-marker", FaultKind::LostMarker),
    ("late-marker", FaultKind::LateMarker { delay: Micros(300) }),
    ("too-late-marker", FaultKind::LateMarker { delay: TOO_LATE }),
    ("partial-batch", FaultKind::PartialBatch { pairs: 1 }),
    (
        "flipped-bits",
        FaultKind::FlippedBits {
            offset_bytes: 5,
            size_bytes: 2,
            mask: 0x18,
        },
    ),
    (
        "delayed-retirement",
        FaultKind::DelayedRetirement { delay: Micros(300) },
    ),
    ("dma-abort", FaultKind::DmaAbort),
    ("uncorrectable-hbm", FaultKind::UncorrectableHbm),
    ("reset-hang", FaultKind::ResetHang),
    ("failed-pin", FaultKind::FailedPin),
    ("fragmented-pages", FaultKind::FragmentedPages),
    ("failed-host-alloc", FaultKind::FailedHostAlloc),
    (
        "failed-request",
        FaultKind::FailedInternalAlloc(InternalAlloc::Request),
    ),
    (
        "failed-record",
        FaultKind::FailedInternalAlloc(InternalAlloc::ChunkRecord),
    ),
    ("exhausted-handles", FaultKind::ExhaustedHandles),
    ("exhausted-ring", FaultKind::ExhaustedRing),
    ("exhausted-slots", FaultKind::ExhaustedProcessSlots),
];

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Open,
    Alloc(Location),
    /// A copy between two chunks.
    Copy(Location, Location, u64),
    /// From and to user memory.
    Buffer(u64),
    /// Three copies, each of which waits for the one before.
    Chain(u64),
    Memset(u64),
    Reset,
    Free,
    /// The process goes while a copy is under way.
    Close,
}

const SMALL: u64 = 4096;
/// Three descriptors.
const MIDDLE: u64 = 2 * 65_536 + 100;
/// Two batches.
const LARGE: u64 = 2032 * 65_536 + 8192;

const OPERATIONS: [(&str, Operation); 17] = {
    use Location::{Device as D, Host as H};
    use Operation as Do;
    [
        ("open", Do::Open),
        ("alloc h", Do::Alloc(H)),
        ("alloc d", Do::Alloc(D)),
        ("h2d 4K", Do::Copy(H, D, SMALL)),
        ("h2d 128K", Do::Copy(H, D, MIDDLE)),
        ("d2h 4K", Do::Copy(D, H, SMALL)),
        ("d2h 128K", Do::Copy(D, H, MIDDLE)),
        ("d2d 4K", Do::Copy(D, D, SMALL)),
        ("d2d 128K", Do::Copy(D, D, MIDDLE)),
        ("d2d 127M", Do::Copy(D, D, LARGE)),
        ("h2h 4K", Do::Copy(H, H, SMALL)),
        ("buffer", Do::Buffer(MIDDLE)),
        ("async", Do::Chain(MIDDLE)),
        ("memset", Do::Memset(MIDDLE)),
        ("reset", Do::Reset),
        ("free", Do::Free),
        ("close", Do::Close),
    ]
};

/// An operation that only has to be done.
struct Ready<'a> {
    rig: &'a Rig,
    client: &'a Client,
    operation: Operation,
    /// The first one is the source, or the only one.
    chunks: Vec<McHandle>,
    content: Vec<u8>,
    value: u8,
}

impl<'a> Ready<'a> {
    fn new(rig: &'a Rig, client: &'a Client, operation: Operation, seed: u64) -> Self {
        use Location::{Device, Host};
        let (places, size_bytes): (&[Location], u64) = match operation {
            Operation::Open | Operation::Alloc(_) | Operation::Close => (&[], 0),
            Operation::Copy(from, to, size_bytes) => (&[from, to], size_bytes),
            Operation::Buffer(size_bytes) | Operation::Memset(size_bytes) => {
                (&[Device], size_bytes)
            }
            Operation::Chain(size_bytes) => (&[Host, Device, Device, Device], size_bytes),
            Operation::Reset => (&[Host, Device], MIDDLE),
            Operation::Free => (&[Device], MIDDLE),
        };
        let chunks: Vec<_> = places
            .iter()
            .map(|&location| client.alloc(location, size_bytes).unwrap())
            .collect();
        let content = pattern(size_bytes, seed);
        if let Some(&source) = chunks.first() {
            let mapping = client.device.map(source, size_bytes).unwrap();
            mapping.write(0, &content).unwrap();
        }
        Self {
            rig,
            client,
            operation,
            chunks,
            content,
            value: 0x30 + u8::try_from(seed).unwrap(),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.content.len() as u64
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
            Operation::Copy(..) => client.copy(self.chunks[0], self.chunks[1], self.size_bytes()),
            Operation::Buffer(_) => {
                device.buf_write(self.chunks[0], 0, &self.content)?;
                let mut back = vec![0; self.content.len()];
                device.buf_read(self.chunks[0], 0, &mut back)
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
            Operation::Reset => {
                // Of another core, which disturbs this one's copies on V2.
                client.reset_begin(1 << 1)?;
                self.rig.await_running_reset();
                let copied = client.copy(self.chunks[0], self.chunks[1], self.size_bytes());
                client.reset_wait()?;
                copied
            }
            Operation::Free => device.free(self.chunks.remove(0)),
            Operation::Close => {
                let other = self.rig.open(901)?;
                let source = other.alloc(Location::Host, MIDDLE)?;
                let target = other.alloc(Location::Device, MIDDLE)?;
                let copy = whole(source, target, MIDDLE);
                other.device.copy_async(&copy, WaitHandle::None).map(drop)
            }
        }
    }

    /// How many bytes are not what they should be.
    fn wrong(&self) -> u64 {
        let targets: &[McHandle] = match self.operation {
            Operation::Copy(..) | Operation::Chain(_) | Operation::Reset => &self.chunks[1..],
            Operation::Buffer(_) | Operation::Memset(_) => &self.chunks,
            Operation::Open | Operation::Alloc(_) | Operation::Free | Operation::Close => &[],
        };
        let wrong = targets.iter().map(|&target| {
            let mapping = self.client.device.map(target, self.size_bytes()).unwrap();
            let mut found = vec![0; self.content.len()];
            mapping.read(0, &mut found).unwrap();
            let expected = match self.operation {
                Operation::Memset(_) => &vec![self.value; self.content.len()],
                _ => &self.content,
            };
            if found == *expected {
                return 0;
            }
            let pairs = found.iter().zip(expected);
            pairs.filter(|(found, expected)| found != expected).count() as u64
        });
        wrong.sum()
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
fn outcome(acted: Result<(), Errno>, wrong: u64) -> String {
    match (acted, wrong) {
        (Ok(()), 0) => "exact".to_owned(),
        (Ok(()), wrong) => format!("{wrong} wrong"),
        (Err(errno), _) => errno.to_string(),
    }
}

/// How often the engines were told to invert bits.
#[derive(Default)]
struct Flips(AtomicU64);

impl Sink for Flips {
    fn event(&self, _at: Tick, _ids: &Ids, event: &Event) {
        if let Event::Ordered {
            fault: PairFault::Flipped { .. },
            ..
        } = event
        {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One cell of the table: "-" if the fault had no opportunity.
fn cell(arch: Arch, kind: FaultKind, operation: Operation) -> String {
    let flips = Arc::new(Flips::default());
    let rig = Rig::new(
        arch,
        SchedMode::Virtual { seed: 1 },
        Arc::clone(&flips) as _,
    );
    let mut entry = String::new();
    let checked = rig.machine.run_clients(vec![Box::new(|| {
        let what = format!("{arch}, {kind:?}, {operation:?}");
        let before = rig.rest();
        let client = rig.open(7).unwrap();
        let mut ready = Ready::new(&rig, &client, operation, 1);
        let rule = FaultRule {
            trigger: Trigger {
                count: Some(1),
                ..Trigger::ALWAYS
            },
            ..FaultRule::new(kind)
        };
        let rule = rig.plan.add(rule).unwrap();
        let acted = ready.act();
        let struck = rig.plan.remove(rule).unwrap();
        let wrong = if acted.is_ok() { ready.wrong() } else { 0 };
        let planned = match kind {
            FaultKind::FlippedBits { size_bytes, .. } => {
                // What a fill is replicated from, it replicates with its wrong bits.
                let pieces = match operation {
                    Operation::Memset(size_bytes) => size_bytes.div_ceil(65_536),
                    // Nobody is left to compare.
                    Operation::Close => 0,
                    _ => 1,
                };
                flips.0.load(Ordering::Relaxed) * size_bytes * pieces
            }
            _ => 0,
        };
        assert_eq!(wrong, planned, "{what}: wrong bytes, and planned ones");
        drop(ready);
        // A handle table that was full stays down for good, as in the reference.
        let is_down = kind == FaultKind::ExhaustedHandles && struck.strikes > 0;
        if !is_down {
            // The same again, and the fault is over.
            let mut again = Ready::new(&rig, &client, operation, 2);
            assert_eq!(again.act(), Ok(()), "{what}: not usable any more");
            assert_eq!(again.wrong(), 0, "{what}: wrong bytes afterwards");
        }
        drop(client);
        assert_eq!(rig.rest(), before, "{what}: something is left");
        entry = match struck.strikes {
            0 => "-".to_owned(),
            _ => outcome(acted, wrong),
        };
    })]);
    checked.unwrap_or_else(|error| panic!("{arch}, {kind:?}, {operation:?}: {error}"));
    entry
}

fn table(arch: Arch) -> String {
    let mut table = format!("{arch}\n\n{:20}", "");
    for (name, _) in OPERATIONS {
        let _ = write!(table, "{name:>11}");
    }
    for (name, kind) in KINDS {
        let _ = write!(table, "\n{name:20}");
        for (_, operation) in OPERATIONS {
            let _ = write!(table, "{:>11}", cell(arch, kind, operation));
        }
    }
    table
}

#[test]
fn every_fault_against_every_operation() {
    let tables = [Arch::V2, Arch::V3].map(table).join("\n\n") + "\n";
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
