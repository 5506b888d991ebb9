//! Interleavings of driver and engine around a batch, explored by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p glia-driver --lib --release interleavings`. The
//! driver's side is the real one, from the ring's lock to the acknowledgement. The engine is a
//! thread that does what silicon does and no more: its doorbell is a relaxed word, so that nothing
//! but the driver's fences orders descriptors before it. (A device model's own lock would hide a
//! missing one.) Data is one word a copy.

use std::sync::{Arc, Weak};

use glia_abi::addr::{BusAddr, HostPa, RegOffset};
use glia_abi::arch::v2;
use glia_abi::event::NoSink;
use glia_abi::fault::NoFaults;
use glia_abi::handle::{CoreId, DeviceId, Pid, PinId, QueueId, WorkerId};
use glia_abi::port::{
    BadBar4Range, BadHostRange, Budget, DmaMemory, HostMemory, MachineMemory, Port, TimedOut,
};
use glia_abi::regs::QueueReg;
use glia_abi::sched::{Micros, Poll, Sched, Tick, WaitOn, Worker};
use glia_abi::udma::{DESC_WORDS, Direction, MARKER, RxDesc, TxDesc};
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use super::budget::Platform;
use super::context::WaitHandle;
use super::lane::{H2tRing, Lane, Links};
use super::marker::Markers;
use super::reset::ResetQueue;
use super::split::Run;
use crate::reset::Resets;
use crate::ring::{QueuePair, RingMemory};

const PID: Pid = Pid::new(1);
/// Copies of a model, each of one data pair and one marker pair.
const COPIES: u32 = 2;
/// Slots that the copies use; the model's rings are cut off there.
const SLOTS: usize = 2 * COPIES as usize;
/// What a copy is to move; what is elsewhere is older.
const FRESH: u32 = 100;

const TX: u64 = 0x1_0000;
const RX: u64 = 0x2_0000;
const MARKERS: u64 = 0x3_0000;
const SOURCE: u64 = 0x4_0000;
const TARGET: u64 = 0x5_0000;

/// Host memory of a few words, and the doorbells.
struct Machine {
    regions: [(u64, Vec<AtomicU32>); 5],
    /// TX and RX.
    doorbells: [AtomicU32; 2],
}

impl Machine {
    fn new() -> Self {
        let words = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        Self {
            regions: [
                (TX, words(SLOTS * DESC_WORDS)),
                (RX, words(SLOTS * DESC_WORDS)),
                (MARKERS, words(6)),
                (SOURCE, words(COPIES as usize)),
                (TARGET, words(COPIES as usize)),
            ],
            doorbells: [AtomicU32::new(0), AtomicU32::new(0)],
        }
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        &self.words(HostPa::new(at), 4).unwrap()[0]
    }

    /// What the engine does with the batch behind `before` pairs.
    fn execute(&self, before: u32) {
        let [tx, rx] = &self.doorbells;
        while tx.load(Ordering::Relaxed) < before + 2 {
            thread::yield_now();
        }
        fence(Ordering::Acquire);
        assert!(rx.load(Ordering::Relaxed) >= before + 2, "stale credit");
        for pair in before..before + 2 {
            let words = |ring: u64| -> [u32; DESC_WORDS] {
                let slot = ring + u64::from(pair) * 16;
                std::array::from_fn(|word| {
                    self.word(slot + 4 * word as u64).load(Ordering::Relaxed)
                })
            };
            let (tx, rx) = (TxDesc::from_words(words(TX)), RxDesc::from_words(words(RX)));
            let laps = (tx.len_ctrl.ring_id(), rx.len_ctrl.ring_id());
            assert_eq!(laps, (1, 1), "stale descriptor");
            let host = |at: BusAddr| {
                let at = v2::PROFILE.bus_to_host(at).expect("stale address");
                self.word(at.get())
            };
            let moved = host(tx.source).load(Ordering::Relaxed);
            // Silicon orders the data before the marker; here the marker's store does.
            host(rx.target).store(moved, Ordering::Release);
        }
    }
}

impl Port for Machine {
    fn reg_read(&self, _at: RegOffset) -> u32 {
        0
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        for direction in Direction::BOTH {
            if QueueReg::DrtpInc.at(&v2::PROFILE, queue(), direction) == Some(at) {
                self.doorbells[direction.index()].fetch_add(value, Ordering::Relaxed);
            }
        }
    }

    fn bar4_write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), BadBar4Range> {
        Ok(())
    }

    fn await_word(
        &self,
        _queue: QueueId,
        word: &AtomicU32,
        want: u32,
        _budget: Budget,
    ) -> Result<u64, TimedOut> {
        while word.load(Ordering::Acquire) != want {
            thread::yield_now();
        }
        Ok(1)
    }
}

impl DmaMemory for Machine {
    fn words(&self, at: HostPa, size_bytes: u64) -> Result<&[AtomicU32], BadHostRange> {
        let bad = BadHostRange { at, size_bytes };
        let (base, words) = self
            .regions
            .iter()
            .rfind(|(base, _)| *base <= at.get())
            .ok_or(bad)?;
        let first = ((at.get() - base) / 4) as usize;
        // A ring that is asked for as a whole is cut off behind the slots of the model.
        let end = words.len().min(first + (size_bytes / 4) as usize);
        words.get(first..end).ok_or(bad)
    }

    fn read(&self, at: HostPa, into: &mut [u8]) -> Result<(), BadHostRange> {
        let size_bytes = into.len() as u64;
        Err(BadHostRange { at, size_bytes })
    }

    fn write(&self, at: HostPa, bytes: &[u8]) -> Result<(), BadHostRange> {
        let size_bytes = bytes.len() as u64;
        Err(BadHostRange { at, size_bytes })
    }

    fn fill(&self, at: HostPa, size_bytes: u64, _value: u8) -> Result<(), BadHostRange> {
        Err(BadHostRange { at, size_bytes })
    }
}

impl HostMemory for Machine {
    fn alloc(&self, _device: DeviceId, _size_bytes: u64) -> Option<HostPa> {
        None
    }

    fn free(&self, _device: DeviceId, _at: HostPa, _size_bytes: u64) {}
}

impl MachineMemory for Machine {
    fn unpin(&self, _pin: PinId) {}
}

impl Sched for Machine {
    fn now(&self) -> Tick {
        Tick(0)
    }

    fn wait_on(&self) -> WaitOn {
        WaitOn(0)
    }

    fn wake(&self, _on: WaitOn) {}

    fn pause(&self) {}

    fn spawn(&self, _worker: Weak<dyn Worker>) -> WorkerId {
        WorkerId::new(0)
    }

    fn kick(&self, _worker: WorkerId) {}

    fn block(&self, _: WaitOn, poll: &mut dyn FnMut() -> Poll, _: Option<Micros>) -> bool {
        poll() == Poll::Done
    }
}

fn queue() -> QueueId {
    v2::PROFILE.h2t_queue(CoreId::new(0)).unwrap()
}

/// The driver's side, and the machine below it.
struct Driver {
    machine: Arc<Machine>,
    links: Links,
    lane: Lane,
}

impl Driver {
    fn new(without_fence: bool) -> Self {
        let machine = Arc::new(Machine::new());
        let links = Links {
            device: DeviceId::new(0),
            profile: &v2::PROFILE,
            platform: Platform::Hardware,
            resets: Resets::new(Tick(0)),
            requests: ResetQueue::new(&v2::PROFILE, Platform::Hardware, false, &*machine),
            port: Arc::clone(&machine) as _,
            host: Arc::clone(&machine) as _,
            sched: Arc::clone(&machine) as _,
            faults: Arc::new(NoFaults),
            sink: Arc::new(NoSink),
            told: false,
        };
        let memory = RingMemory {
            tx: HostPa::new(TX),
            rx: HostPa::new(RX),
            descs: 32,
        };
        let mut pair = QueuePair::new(&v2::PROFILE, queue(), memory).unwrap();
        pair.without_fence = without_fence;
        let lane = Lane::new(0, CoreId::new(0), queue());
        lane.open(
            &*machine,
            H2tRing::new(pair, Markers::new(HostPa::new(MARKERS))),
        );
        Self {
            machine,
            links,
            lane,
        }
    }

    /// Copy `number`, with its source just written.
    fn run(&self, number: u32) -> Run {
        let offset = 4 * u64::from(number);
        let source = self.machine.word(SOURCE + offset);
        source.store(FRESH + number, Ordering::Relaxed);
        let bus = |at| v2::PROFILE.host_to_bus(HostPa::new(at));
        Run::copy(bus(SOURCE + offset), bus(TARGET + offset), 4).unwrap()
    }

    fn assert_moved(&self, number: u32) {
        let target = self.machine.word(TARGET + 4 * u64::from(number));
        assert_eq!(target.load(Ordering::Relaxed), FRESH + number, "stale data");
    }
}

/// Explores a driver beside an engine that executes all copies, with at most two preemptions.
fn beside_an_engine(without_fence: bool, drive: impl Fn(&Driver) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let driver = Driver::new(without_fence);
        let machine = Arc::clone(&driver.machine);
        let engine = thread::spawn(move || {
            (0..COPIES).for_each(|copy| machine.execute(2 * copy));
        });
        drive(&driver);
        engine.join().unwrap();
    });
}

fn copy_synchronously(driver: &Driver) {
    for number in 0..COPIES {
        let run = driver.run(number);
        driver
            .lane
            .hold(&driver.links, PID)
            .unwrap()
            .copy(run)
            .unwrap();
        driver.assert_moved(number);
    }
}

/// The second batch finds poll word and marker as the first one has left them.
#[test]
fn a_copy_beside_an_engine_moves_what_was_written_last() {
    beside_an_engine(false, copy_synchronously);
}

/// The mutant: without the fence before the doorbell, the engine reads what was there before.
#[test]
#[should_panic(expected = "stale")]
fn without_the_fence_before_the_doorbell_a_stale_batch_is_found() {
    beside_an_engine(true, copy_synchronously);
}

/// The engine may execute both batches while the driver stages, and one while it waits.
#[test]
fn a_chain_beside_an_engine_moves_what_was_written_last() {
    beside_an_engine(false, |driver| {
        let mut previous = WaitHandle::None;
        for number in 0..COPIES {
            let run = driver.run(number);
            let mut ring = driver.lane.hold(&driver.links, PID).unwrap();
            previous = ring.copy_async(run, previous, None).unwrap();
            if number > 0 {
                driver.assert_moved(number - 1);
            }
        }
        let mut ring = driver.lane.hold(&driver.links, PID).unwrap();
        ring.wait(previous).unwrap();
        driver.assert_moved(COPIES - 1);
    });
}

/// Once the marker was seen, it is armed again, and the next batch's marker is its own.
#[test]
fn a_marker_is_never_taken_for_the_one_before() {
    beside_an_engine(false, |driver| {
        copy_synchronously(driver);
        let marker = |word: u64| {
            driver
                .machine
                .word(MARKERS + 4 * word)
                .load(Ordering::Relaxed)
        };
        assert_eq!((marker(0), marker(1)), (MARKER, 0));
    });
}
