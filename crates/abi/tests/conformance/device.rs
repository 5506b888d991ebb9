//! A device of two small channels: registers, and descriptors that are executed where the doorbell
//! is rung.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use glia_abi::addr::{BusAddr, HostPa, RegOffset, Span, access_fits};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::conformance::Violation;
use glia_abi::conformance::port::{PinFixture, PortFixture, check, check_pins};
use glia_abi::handle::{DeviceId, EngineId, QueueId};
use glia_abi::port::{BadBar4Range, Budget, DmaMemory, NotCompleted, Port, TimedOut};
use glia_abi::regs::{
    COUNT_MASK, NO_REGISTER, Place, QUEUE_ENABLE_BITS, QUEUE_RESET_BIT, QueueReg,
    RING_BASE_LOW_MASK, RingPointer,
};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::udma::{DESC_SIZE_BYTES, DESC_WORDS, Direction, RingId, RxDesc, TxDesc};

use crate::breaks;
use crate::host::{self, FakeMachine};
use crate::user::{self, FakeUser, writable};

const REGION_SIZE: u64 = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    // Registers.
    UnmaskedLength,
    DoorbellReadsBack,
    WritableHead,
    NothingReadsAsZero,
    WritesNearby,
    ResetKeepsLap,
    // Execution.
    NeverRuns,
    ZeroIsNothing,
    ClearsByteBefore,
    MovesOneMore,
    SwapsPairs,
    TailStaysInLap,
    LapOfTheHeadStays,
    RunsOnRxAlone,
    RunsOnTxAlone,
    RunsWholeBatches,
    TailIsHead,
    HeadWaitsForItsBatch,
    OneHeadForAll,
    SharedDoorbells,
    // Stops.
    EmptyDoorbellPasses,
    LongDoorbellPasses,
    DisabledRuns,
    LostRingIsIdle,
    AnyLap,
    ShorterLength,
    PiecesOfPackets,
    SkipsBadAddresses,
    ClipsAtTheEnd,
    GoesOnAfterFault,
    LooksAhead,
    RunsThoughStopped,
    HeadPassesFault,
    ForgetsItStopped,
    ResetDoesNotRevive,
    StopsAll,
    // Waits.
    LooksOnceMore,
    AnyChangeIsDone,
    IdleIsTimeOver,
    // BAR4 and pins.
    Bar4Refuses,
    Bar4Elsewhere,
    Bar4Clips,
    Bar4NamesNothing,
    WritesReadPins,
    PinsAsOneSpan,
    ReadsNoPins,
    ReadsNoReadPins,
}

#[derive(Clone, Copy, Default)]
struct Side {
    cfg: u32,
    low: u32,
    high: u32,
    length: u32,
    head: u32,
    head_lap: u32,
    tail: u32,
    tail_lap: u32,
    /// Announced and not executed.
    credit: u32,
    doorbell: u32,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    sides: [Side; 2],
    stopped: bool,
}

struct FakeDevice {
    flaw: Flaw,
    layout: MemoryLayout,
    machine: Arc<FakeMachine>,
    queues: Mutex<HashMap<QueueId, Queue>>,
    hbm: Mutex<Vec<Vec<u8>>>,
}

/// Why a pair cannot be executed.
struct Fault;

impl Side {
    fn base(&self) -> BusAddr {
        BusAddr::new(u64::from(self.high) << 32 | u64::from(self.low))
    }

    fn pointer(at: u32, lap: u32) -> u32 {
        RingPointer::new().with_offset(at).with_ring_id(lap).into()
    }

    /// The pair at the head is done.
    fn retire(&mut self) {
        (self.head, self.head_lap) = Self::step((self.head, self.head_lap), self.length.max(1));
        self.credit = self.credit.saturating_sub(1);
    }

    /// One further in the ring, into the next lap at its end.
    fn step((at, lap): (u32, u32), length: u32) -> (u32, u32) {
        match at + 1 == length {
            true => (0, RingId::new(lap).next().get()),
            false => (at + 1, lap),
        }
    }
}

impl FakeDevice {
    fn new(flaw: Flaw, arch: Arch, machine: Arc<FakeMachine>) -> Self {
        let scale = Scale::RegionSize {
            size_bytes: REGION_SIZE,
        };
        let layout = MemoryLayout::new(arch, scale).unwrap();
        Self {
            flaw,
            layout,
            machine,
            queues: Mutex::default(),
            hbm: Mutex::new(vec![
                vec![0; REGION_SIZE as usize];
                layout.channels() as usize
            ]),
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<QueueId, Queue>> {
        self.queues.lock().unwrap()
    }

    fn load(&self, at: BusAddr, size: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; size];
        if let Some(host) = self.layout.profile().bus_to_host(at) {
            if self.machine.read(host, &mut bytes).is_ok() {
                return Ok(bytes);
            }
            let reach = |pin: &host::Pin, from: usize| {
                if self.flaw == Flaw::ReadsNoPins
                    || self.flaw == Flaw::ReadsNoReadPins && !pin.write
                {
                    return;
                }
                let held = pin.bytes.lock().unwrap();
                bytes.copy_from_slice(&held[from..from + size]);
            };
            self.pinned(host, size, reach)?;
            return Ok(bytes);
        }
        let (channel, offset) = self.layout.hbm_offset(at).ok_or(Fault)?;
        let hbm = self.hbm.lock().unwrap();
        let rest = &hbm[channel.index()][offset as usize..];
        match rest.get(..size) {
            Some(found) => Ok(found.to_vec()),
            None if self.flaw == Flaw::ClipsAtTheEnd => {
                Ok([rest, &bytes].concat()[..size].to_vec())
            }
            None => Err(Fault),
        }
    }

    fn store(&self, at: BusAddr, bytes: &[u8]) -> Result<(), Fault> {
        if let Some(host) = self.layout.profile().bus_to_host(at) {
            if self.machine.write(host, bytes).is_ok() {
                return Ok(());
            }
            let mut writable = true;
            self.pinned(host, bytes.len(), |pin, to| {
                writable = pin.write || self.flaw == Flaw::WritesReadPins;
                if writable {
                    let mut held = pin.bytes.lock().unwrap();
                    held[to..to + bytes.len()].copy_from_slice(bytes);
                }
            })?;
            return if writable { Ok(()) } else { Err(Fault) };
        }
        let (channel, offset) = self.layout.hbm_offset(at).ok_or(Fault)?;
        let mut hbm = self.hbm.lock().unwrap();
        let target = hbm[channel.index()]
            .get_mut(offset as usize..)
            .ok_or(Fault)?;
        let target = target.get_mut(..bytes.len()).ok_or(Fault)?;
        target.copy_from_slice(bytes);
        if self.flaw == Flaw::ClearsByteBefore && offset > 0 {
            hbm[channel.index()][offset as usize - 1] = 0;
        }
        Ok(())
    }

    /// Finds the pin that a range lies in, and where in its bytes.
    fn pinned(
        &self,
        at: HostPa,
        size: usize,
        mut reach: impl FnMut(&host::Pin, usize),
    ) -> Result<(), Fault> {
        for pin in self.machine.pins().values() {
            let mut offset = pin.offset;
            for span in &pin.spans {
                let inside = span.offset_of(at);
                if let Some(inside) = inside
                    && access_fits(inside, size as u64, span.size_bytes())
                {
                    let inside = match self.flaw {
                        Flaw::PinsAsOneSpan => 0,
                        _ => inside as usize + offset - pin.offset,
                    };
                    reach(pin, pin.offset + inside);
                    return Ok(());
                }
                offset += span.size_bytes() as usize;
            }
        }
        Err(Fault)
    }

    fn descriptor(&self, side: &Side) -> Result<[u32; DESC_WORDS], Fault> {
        let at = u64::from(side.head) * DESC_SIZE_BYTES;
        let at = side.base().checked_add(at).ok_or(Fault)?;
        let bytes = self.load(at, DESC_SIZE_BYTES as usize)?;
        let word = |number: usize| bytes[4 * number..].first_chunk().copied().unwrap();
        Ok([0, 1, 2, 3].map(|number| u32::from_le_bytes(word(number))))
    }

    /// Executes what both sides have announced.
    fn run(&self, queue: &mut Queue) {
        let ready = |queue: &Queue| {
            let [tx, rx] = queue.sides.map(|side| side.credit);
            match self.flaw {
                Flaw::RunsOnRxAlone => rx > 0,
                Flaw::RunsOnTxAlone => tx > 0,
                Flaw::NeverRuns => false,
                Flaw::RunsWholeBatches => tx > 0 && tx == rx,
                _ => tx > 0 && rx > 0,
            }
        };
        let mut late_stop = false;
        if self.flaw == Flaw::LooksAhead {
            let mut at = *queue;
            while ready(&at) && !queue.stopped {
                queue.stopped = self.descriptors(&at).is_err();
                at.sides.iter_mut().for_each(Side::retire);
            }
        }
        while ready(queue) && !queue.stopped {
            let credit = queue.sides[0].credit;
            let ahead = match self.flaw {
                Flaw::SwapsPairs if credit > 4 => vec![1, 0],
                _ => vec![0],
            };
            for &ahead in &ahead {
                let mut at = *queue;
                (0..ahead).for_each(|_| at.sides.iter_mut().for_each(Side::retire));
                match self.pair(&at) {
                    Ok(()) => {}
                    Err(Fault) if self.flaw == Flaw::GoesOnAfterFault => late_stop = true,
                    Err(Fault) => {
                        queue.stopped = true;
                        if self.flaw != Flaw::HeadPassesFault {
                            return;
                        }
                    }
                }
            }
            for side in &mut queue.sides {
                ahead.iter().for_each(|_| side.retire());
                if self.flaw == Flaw::LapOfTheHeadStays {
                    side.head_lap = RingId::FIRST.get();
                }
            }
        }
        queue.stopped |= late_stop;
    }

    /// The pair at the heads, if its words can be executed.
    fn descriptors(&self, queue: &Queue) -> Result<(TxDesc, RxDesc), Fault> {
        let [tx_side, rx_side] = &queue.sides;
        let tx = TxDesc::from_words(self.descriptor(tx_side)?);
        let rx = RxDesc::from_words(self.descriptor(rx_side)?);
        let laps_fit =
            tx.len_ctrl.ring_id() == tx_side.head_lap && rx.len_ctrl.ring_id() == rx_side.head_lap;
        let whole = tx.len_ctrl.first() && tx.len_ctrl.last();
        let [tx_size, rx_size] = [tx.len_ctrl, rx.len_ctrl].map(|ctrl| ctrl.size_bytes() as usize);
        if !laps_fit && !matches!(self.flaw, Flaw::AnyLap | Flaw::LapOfTheHeadStays)
            || !whole && self.flaw != Flaw::PiecesOfPackets
            || tx_size != rx_size && self.flaw != Flaw::ShorterLength
        {
            return Err(Fault);
        }
        Ok((tx, rx))
    }

    fn pair(&self, queue: &Queue) -> Result<(), Fault> {
        let (tx, rx) = self.descriptors(queue)?;
        let sizes = [tx.len_ctrl, rx.len_ctrl].map(|ctrl| ctrl.size_bytes() as usize);
        let size = sizes[0].min(sizes[1]);
        if tx.len_ctrl.length() == 0 && self.flaw == Flaw::ZeroIsNothing {
            return Ok(());
        }
        let moved = self.load(tx.source, size).and_then(|mut bytes| {
            if self.flaw == Flaw::MovesOneMore && size < 4096 && size != 4 {
                bytes.push(0x99);
            }
            self.store(rx.target, &bytes)
        });
        match self.flaw {
            Flaw::SkipsBadAddresses => Ok(()),
            _ => moved,
        }
    }

    fn doorbell(&self, id: QueueId, direction: Direction, count: u32) {
        let mut queues = self.queues();
        let queue = queues.entry(id).or_default();
        if self.flaw == Flaw::ForgetsItStopped {
            queue.stopped = false;
        }
        let stays_stopped = queue.stopped;
        if queue.stopped && self.flaw != Flaw::RunsThoughStopped {
            return;
        }
        queue.stopped = false;
        let side = &mut queue.sides[direction.index()];
        side.doorbell = count;
        let enabled = side.cfg & QUEUE_ENABLE_BITS == QUEUE_ENABLE_BITS && side.length > 0;
        let room = side.length.saturating_sub(side.credit);
        if count == 0 && self.flaw != Flaw::EmptyDoorbellPasses
            || count > room && self.flaw != Flaw::LongDoorbellPasses
            || !enabled && self.flaw != Flaw::DisabledRuns
        {
            queue.stopped = true;
        } else {
            for _ in 0..count.min(room) {
                let lap = side.tail_lap;
                (side.tail, side.tail_lap) =
                    Side::step((side.tail, side.tail_lap), side.length.max(1));
                if self.flaw == Flaw::TailStaysInLap {
                    side.tail_lap = lap;
                }
            }
            side.credit += count.min(room);
            if self.flaw == Flaw::LostRingIsIdle && self.descriptor(side).is_err() {
                side.credit = 0;
            }
            self.run(queue);
        }
        queue.stopped |= stays_stopped;
        if self.flaw == Flaw::StopsAll && queue.stopped {
            queues.values_mut().for_each(|queue| queue.stopped = true);
        }
    }
}

impl Port for FakeDevice {
    fn reg_read(&self, at: RegOffset) -> u32 {
        let nothing = match self.flaw {
            Flaw::NothingReadsAsZero => 0,
            _ => NO_REGISTER,
        };
        let place = Place::of(self.layout.profile(), at);
        let Place::Queue {
            queue,
            direction,
            offset,
        } = place
        else {
            return nothing;
        };
        let Some(register) = QueueReg::of_offset(direction, offset) else {
            return nothing;
        };
        let side = self.queues().entry(queue).or_default().sides[direction.index()];
        let id = match self.flaw {
            Flaw::OneHeadForAll => QueueId::new(queue.engine, 1),
            _ => queue,
        };
        let heads = *self.queues().entry(id).or_default();
        let head = heads.sides[direction.index()];
        match register {
            QueueReg::Drhp
                if self.flaw == Flaw::HeadWaitsForItsBatch
                    && heads.sides.iter().any(|side| side.credit > 0) =>
            {
                Side::pointer(0, RingId::FIRST.get())
            }
            QueueReg::Cfg => side.cfg,
            QueueReg::DrbpLow => side.low,
            QueueReg::DrbpHigh => side.high,
            QueueReg::Drl => side.length,
            QueueReg::Drhp | QueueReg::Dcp => Side::pointer(head.head, head.head_lap),
            QueueReg::Drtp if self.flaw == Flaw::TailIsHead => {
                Side::pointer(side.head, side.head_lap)
            }
            QueueReg::Drtp => Side::pointer(side.tail, side.tail_lap),
            QueueReg::DrtpInc if self.flaw == Flaw::DoorbellReadsBack => side.doorbell,
            QueueReg::DescPrefCfg
            | QueueReg::Status
            | QueueReg::DrtpInc
            | QueueReg::CrbpLow
            | QueueReg::CrbpHigh
            | QueueReg::Crhp
            | QueueReg::CompCfg
            | QueueReg::RlimitMask
            | QueueReg::SwCtrl => 0,
        }
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        let at = match self.flaw {
            Flaw::WritesNearby => RegOffset::new(at.get() & !3),
            _ => at,
        };
        let place = Place::of(self.layout.profile(), at);
        let Place::Queue {
            queue: id,
            direction,
            offset,
        } = place
        else {
            return;
        };
        let register = QueueReg::of_offset(direction, offset);
        if register == Some(QueueReg::DrtpInc) {
            if self.flaw == Flaw::SharedDoorbells && id.number == 0 {
                self.doorbell(QueueId::new(id.engine, 1), direction, value & COUNT_MASK);
            }
            return self.doorbell(id, direction, value & COUNT_MASK);
        }
        let mut queues = self.queues();
        let queue = queues.entry(id).or_default();
        let side = &mut queue.sides[direction.index()];
        match register {
            Some(QueueReg::Cfg) => side.cfg = value,
            Some(QueueReg::DrbpLow) => side.low = value & RING_BASE_LOW_MASK,
            Some(QueueReg::DrbpHigh) => side.high = value,
            Some(QueueReg::Drl) if self.flaw == Flaw::UnmaskedLength => side.length = value,
            Some(QueueReg::Drl) => side.length = value & COUNT_MASK,
            Some(QueueReg::Drhp) if self.flaw == Flaw::WritableHead => side.head = value & 0xff,
            Some(QueueReg::SwCtrl) if value & QUEUE_RESET_BIT != 0 => {
                let lap = match self.flaw {
                    Flaw::ResetKeepsLap => side.tail_lap.max(1),
                    _ => RingId::FIRST.get(),
                };
                (side.head, side.tail, side.credit) = (0, 0, 0);
                (side.head_lap, side.tail_lap) = (lap, lap);
                if self.flaw != Flaw::ResetDoesNotRevive {
                    queue.stopped = false;
                }
            }
            _ => {}
        }
    }

    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range> {
        let stride = self.layout.profile().bar4_channel_stride_bytes;
        let size_bytes = bytes.len() as u64;
        let refusal = match self.flaw {
            Flaw::Bar4NamesNothing => BadBar4Range {
                offset: 0,
                size_bytes,
            },
            _ => BadBar4Range { offset, size_bytes },
        };
        if self.flaw == Flaw::Bar4Refuses {
            return Err(refusal);
        }
        let mut hbm = self.hbm.lock().unwrap();
        let channel = hbm.get_mut((offset / stride) as usize).ok_or(refusal)?;
        let in_channel = match self.flaw {
            Flaw::Bar4Elsewhere => (offset % stride) ^ 1,
            _ => offset % stride,
        };
        if !access_fits(offset % stride, size_bytes, REGION_SIZE) {
            if self.flaw == Flaw::Bar4Clips
                && let Some(rest) = channel.get_mut(in_channel as usize..)
            {
                rest.iter_mut()
                    .zip(bytes)
                    .for_each(|(to, from)| *to = *from);
            }
            return Err(refusal);
        }
        channel[in_channel as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        _budget: Budget,
    ) -> Result<u64, TimedOut> {
        let found = word.load(Ordering::Acquire);
        if found == want || self.flaw == Flaw::AnyChangeIsDone && found != 0 {
            return Ok(1 + u64::from(self.flaw == Flaw::LooksOnceMore));
        }
        let stopped = self.queues().entry(queue).or_default().stopped;
        let reason = match (stopped, self.flaw) {
            (true, _) => NotCompleted::Stopped,
            (false, Flaw::IdleIsTimeOver) => NotCompleted::TimeOver,
            (false, _) => NotCompleted::Idle,
        };
        Err(TimedOut { queue, reason })
    }
}

fn run(flaw: Flaw, arch: Arch, pins: bool) -> Result<(), Violation> {
    let machine = Arc::new(FakeMachine::new(host::Flaw::None));
    with_machine(flaw, arch, pins, machine)
}

fn with_machine(
    flaw: Flaw,
    arch: Arch,
    pins: bool,
    machine: Arc<FakeMachine>,
) -> Result<(), Violation> {
    let device = FakeDevice::new(flaw, arch, Arc::clone(&machine));
    let second = device.layout.regions().nth(1).unwrap().start();
    let fixture = PortFixture {
        port: &device,
        memory: machine.as_ref(),
        layout: &device.layout,
        device: DeviceId::new(0),
        queues: [1, 0].map(|number| QueueId::new(EngineId::new(33), number)),
        hbm: Span::new(second.checked_add(4096).unwrap(), 256 << 10).unwrap(),
    };
    if !pins {
        return check(&fixture);
    }
    let user = FakeUser::new(user::Flaw::None, Arc::clone(&machine));
    let pins = PinFixture {
        user: &user,
        writable: writable(),
    };
    check_pins(&fixture, &pins)
}

#[test]
fn devices_that_keep_the_rules_pass() {
    for arch in Arch::ALL {
        run(Flaw::None, arch, false).unwrap();
        run(Flaw::None, arch, true).unwrap();
    }
}

#[test]
fn mutants_of_registers_are_caught() {
    let mutants = [
        (
            Flaw::UnmaskedLength,
            "a register reads as it was set, within the bits that it has",
        ),
        (Flaw::DoorbellReadsBack, "a doorbell reads as 0"),
        (Flaw::WritableHead, "a read-only register keeps its value"),
        (
            Flaw::NothingReadsAsZero,
            "what no register has reads as all ones",
        ),
        (
            Flaw::WritesNearby,
            "a write to what no register has does nothing",
        ),
        (
            Flaw::ResetKeepsLap,
            "a reset brings a queue to slot 0 of lap 1",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Arch::V2, false), rule, &flaw);
    }
}

#[test]
fn mutants_of_the_execution_are_caught() {
    let pointers = "head, tail and current pointer are where the last pair ended";
    let both = "nothing is moved before both sides have announced it";
    let mutants = [
        (
            Flaw::ZeroIsNothing,
            "a pair moves as many bytes as it says, from its source to its target",
        ),
        (
            Flaw::MovesOneMore,
            "a pair moves as many bytes as it says, from its source to its target",
        ),
        (Flaw::NeverRuns, "a batch that is announced is executed"),
        (Flaw::ClearsByteBefore, "a pair changes its target alone"),
        (
            Flaw::HeadWaitsForItsBatch,
            "a head is where the last pair ended",
        ),
        (Flaw::OneHeadForAll, "each queue has a head of its own"),
        (
            Flaw::SwapsPairs,
            "the pairs of a queue are executed in order",
        ),
        (Flaw::TailStaysInLap, pointers),
        (Flaw::LapOfTheHeadStays, pointers),
        (Flaw::RunsOnRxAlone, both),
        (Flaw::RunsOnTxAlone, both),
        (
            Flaw::RunsWholeBatches,
            "a pair is executed as soon as both sides have announced it",
        ),
        (Flaw::TailIsHead, "a doorbell moves the tail of its side"),
        (Flaw::SharedDoorbells, "a doorbell is for its own queue"),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Arch::V3, false), rule, &flaw);
    }
}

#[test]
fn mutants_of_stops_are_caught() {
    let address = "an address where the device has no memory stops the queue";
    let mutants = [
        (
            Flaw::EmptyDoorbellPasses,
            "a doorbell that announces nothing stops the queue",
        ),
        (
            Flaw::LongDoorbellPasses,
            "a doorbell that announces more than the ring holds stops the queue",
        ),
        (
            Flaw::DisabledRuns,
            "a doorbell of a queue that is not enabled stops it",
        ),
        (
            Flaw::LostRingIsIdle,
            "a ring that cannot be read stops the queue",
        ),
        (Flaw::AnyLap, "a descriptor of another lap stops the queue"),
        (
            Flaw::ShorterLength,
            "a pair with two lengths stops the queue",
        ),
        (
            Flaw::PiecesOfPackets,
            "a descriptor that is no packet of its own stops the queue",
        ),
        (Flaw::SkipsBadAddresses, address),
        (Flaw::ClipsAtTheEnd, address),
        (
            Flaw::GoesOnAfterFault,
            "of the pair that stops a queue, and of what follows, nothing is done",
        ),
        (
            Flaw::LooksAhead,
            "what comes before the pair that stops a queue is done",
        ),
        (
            Flaw::RunsThoughStopped,
            "a queue that has stopped moves nothing",
        ),
        (
            Flaw::HeadPassesFault,
            "the head stays at the pair that stopped the queue",
        ),
        (
            Flaw::ForgetsItStopped,
            "a queue that has stopped stays so until it is reset",
        ),
        (
            Flaw::ResetDoesNotRevive,
            "a reset revives a queue that has stopped",
        ),
        (
            Flaw::StopsAll,
            "a queue that has stopped does not hold up others",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Arch::V2, false), rule, &flaw);
    }
}

#[test]
fn mutants_of_waits_are_caught() {
    let mutants = [
        (
            Flaw::LooksOnceMore,
            "a wait for a word that is there takes one look",
        ),
        (Flaw::AnyChangeIsDone, "a wait is for one value of its word"),
        (
            Flaw::IdleIsTimeOver,
            "a wait for a queue that has nothing to do ends, and says so",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Arch::V2, false), rule, &flaw);
    }
}

#[test]
fn mutants_of_bar4_are_caught() {
    let mutants = [
        (Flaw::Bar4Refuses, "BAR4 takes bytes for all of the HBM"),
        (
            Flaw::Bar4Elsewhere,
            "a store through BAR4 lands in HBM, in its range alone",
        ),
        (
            Flaw::Bar4Clips,
            "a refused store through BAR4 stores nothing",
        ),
        (
            Flaw::Bar4NamesNothing,
            "a store through BAR4 that leaves the HBM is refused with its numbers",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Arch::V3, false), rule, &flaw);
    }
}

#[test]
fn mutants_of_pins_are_caught() {
    let mutants = [
        (
            Flaw::WritesReadPins,
            "a device does not write what was pinned for reading",
        ),
        (
            Flaw::ReadsNoPins,
            "a device reads pinned user memory, where its spans say",
        ),
        (
            Flaw::ReadsNoReadPins,
            "a device reads memory that was pinned for reading",
        ),
        (
            Flaw::PinsAsOneSpan,
            "a device writes to pinned user memory, where its spans say",
        ),
    ];
    for (flaw, rule) in mutants {
        breaks(run(flaw, Arch::V2, true), rule, &flaw);
    }
    let mutants = [
        (
            host::Flaw::UnpinForgets,
            "a device does not write where a pin has ended",
        ),
        (
            host::Flaw::UnpinLeavesReads,
            "a device does not read where a pin has ended",
        ),
    ];
    for (flaw, rule) in mutants {
        let machine = Arc::new(FakeMachine::new(flaw));
        let found = with_machine(Flaw::None, Arch::V2, true, machine);
        breaks(found, rule, &flaw);
    }
}
