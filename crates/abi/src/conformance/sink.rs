//! Rules of [`Sink`].

use std::collections::BTreeSet;

use super::{Must, Violation, hold};
use crate::addr::{BusAddr, RegOffset};
use crate::event::{CommandClass, CopyPath, CopyWay, EngineFault, Event, Ids, NameId, Sink};
use crate::fault::PairFault;
use crate::handle::{ChunkId, CoreId, DeviceId, EngineId, McHandle, Pid, QueueId};
use crate::mem::Location;
use crate::mem_usage::MemUsage;
use crate::nrt::NrtStatus;
use crate::port::NotCompleted;
use crate::sched::{Micros, Tick};
use crate::udma::Direction;
use crate::usage::Category;

/// What a sink that remembers has heard: time, ids, event.
pub type Heard = (Tick, Ids, Event);

/// Names as programs choose them.
const NAMES: [&str; 5] = [
    "weights",
    "",
    "a \"b\"\n\u{0}",
    "weights ",
    "Gewichte \u{1f9e0}",
];

/// A sink takes any event at any time, from several threads, never changes its mind about what it
/// wants to hear, and gives each name a number of its own, or no number to any.
///
/// # Errors
/// The rule that it breaks.
pub fn check(sink: &dyn Sink) -> Result<(), Violation> {
    let before = sink.detail();
    let tell_all = || {
        for (at, ids, event) in everything() {
            sink.event(at, &ids, &event);
        }
    };
    let name_all = || NAMES.map(|text| sink.name(text));
    let tell = || {
        let names = name_all();
        tell_all();
        names
    };
    let told = std::thread::scope(|scope| {
        let tellers = [scope.spawn(tell), scope.spawn(tell)];
        // Join all of them: a panic that nobody took would go on here.
        tellers.map(|teller| teller.join().ok())
    });
    let [Some(names), Some(same)] = told else {
        return Err(Violation {
            rule: "a sink takes any event at any time",
            found: "it panicked".to_owned(),
        });
    };
    hold!(
        names == same && names == name_all(),
        "a name keeps its number",
        "{names:?}, then {same:?} or {:?}",
        name_all()
    );
    let numbers: BTreeSet<_> = names.iter().collect();
    let kept = names.iter().flatten().count();
    hold!(
        kept == 0 || (kept == NAMES.len() && numbers.len() == NAMES.len()),
        "two names have two numbers",
        "{names:?}"
    );
    let after = sink.detail();
    hold!(
        before == after,
        "what a sink wants to hear never changes",
        "{before:?}, then {after:?}"
    );
    Ok(())
}

/// All that [`check`] asks; and a sink that remembers loses nothing, changes nothing, and keeps the
/// order of each thread. `heard` gives all that it has heard so far, in its order.
///
/// # Errors
/// The rule that it breaks.
pub fn check_recorder(sink: &dyn Sink, heard: &dyn Fn() -> Vec<Heard>) -> Result<(), Violation> {
    check(sink)?;
    let before = heard().len();
    let said_by = |device: u32| {
        everything().into_iter().map(move |(at, ids, event)| {
            let device = Some(DeviceId::new(device));
            (at, Ids { device, ..ids }, event)
        })
    };
    let speak = |device| {
        for (at, ids, event) in said_by(device) {
            sink.event(at, &ids, &event);
        }
    };
    let spoken = std::thread::scope(|scope| {
        let speakers = [scope.spawn(|| speak(1)), scope.spawn(|| speak(2))];
        speakers.map(|speaker| speaker.join().is_ok())
    });
    hold!(
        spoken == [true, true],
        "a sink takes any event at any time",
        "it panicked"
    );
    let heard = heard();
    let new = heard
        .get(before..)
        .must("what a sink has heard stays heard")?;
    for device in [1, 2] {
        let of_thread: Vec<Heard> = new
            .iter()
            .filter(|(_, ids, _)| ids.device == Some(DeviceId::new(device)))
            .copied()
            .collect();
        let said: Vec<Heard> = said_by(device).collect();
        hold!(
            of_thread.len() == said.len(),
            "a sink hears each event once",
            "{} of {}",
            of_thread.len(),
            said.len()
        );
        let first_off = of_thread.iter().zip(&said).position(|(is, was)| is != was);
        hold!(
            first_off.is_none(),
            "a sink hears the events of a thread as they were told, in their order",
            "event {first_off:?} is another"
        );
    }
    let others = new.len() - 2 * everything().len();
    hold!(others == 0, "a sink hears each event once", "{others} more");
    Ok(())
}

/// One of each event, with numbers at the ends of their ranges, at times that go back and forth.
fn everything() -> Vec<Heard> {
    let queue = QueueId::new(EngineId::new(131), 15);
    let full = Ids {
        process: Some(Pid::new(u32::MAX)),
        core: Some(CoreId::new(7)),
        chunk: Some(ChunkId {
            slot: u32::MAX,
            generation: u32::MAX,
        }),
        handle: McHandle::new(u32::MAX),
        ..Ids::queue(DeviceId::new(63), queue)
    };
    let (at, size_bytes) = (BusAddr::new(u64::MAX), u64::MAX);
    let direction = Direction::Rx;
    let name = Some(NameId::new(u32::MAX));
    let stopped = [
        EngineFault::Doorbell {
            direction,
            count: u32::MAX,
            room: 0,
        },
        EngineFault::NotReady { direction },
        EngineFault::RingAddress { direction, at },
        EngineFault::RingId {
            direction,
            expected: 1,
            found: 3,
        },
        EngineFault::Lengths {
            tx_size_bytes: 1,
            rx_size_bytes: 65_536,
        },
        EngineFault::Address {
            direction,
            at,
            size_bytes,
        },
        EngineFault::Aborted { at },
        EngineFault::Uncorrectable { at },
        EngineFault::Unimplemented {
            direction,
            len_ctrl: u32::MAX,
            word1: u32::MAX,
        },
    ];
    let events = [
        Event::Opened,
        Event::Closed,
        Event::Ioctl {
            word: u32::MAX,
            class: CommandClass::Unknown,
            ret: i32::MIN,
        },
        Event::ChunkTaken {
            at,
            size_bytes,
            location: Location::Device,
            category: Category(u32::MAX),
            site: name,
        },
        Event::ChunkFreed {
            size_bytes,
            location: Location::Host,
        },
        Event::RingReady { descs: u32::MAX },
        Event::BatchStaged {
            context: 2,
            first: u64::MAX,
            data_descs: u32::MAX,
            size_bytes,
        },
        Event::BatchDone {
            context: 0,
            polls: u64::MAX,
        },
        Event::BatchFailed {
            context: 1,
            reason: NotCompleted::Idle,
        },
        Event::CompletionPosted {
            sequence: u64::MAX,
            result: i64::MIN,
        },
        Event::Acknowledged {
            direction,
            descs: u32::MAX,
        },
        Event::Doorbell {
            direction,
            descs: 0,
            total: u64::MAX,
        },
        Event::Moved {
            index: u64::MAX,
            source: at,
            target: at,
            size_bytes,
        },
        Event::Executed {
            first: u64::MAX,
            descs: u32::MAX,
            size_bytes,
        },
        Event::QueueReset { direction },
        Event::ResetBegan { cores: u32::MAX },
        Event::ResetEnded { cores: 0 },
        Event::ClaimRefused {
            cores: u32::MAX,
            longest: 0,
            holder: Pid::new(u32::MAX),
        },
        Event::StrayRegister {
            at: RegOffset::new(u64::MAX),
            value: None,
        },
        Event::RuntimeOpened,
        Event::RuntimeClosed,
        Event::ModelLoaded {
            model: u32::MAX,
            model_name: name,
        },
        Event::ModelUnloaded { model: 0 },
        Event::Allocated {
            at,
            size_bytes,
            allocated_bytes: u64::MAX,
            location: Location::Device,
            usage: MemUsage::DmaRingCollectives,
            model: None,
            model_name: None,
            hint: name,
            site: name,
        },
        Event::AllocationFailed {
            size_bytes,
            align_bytes: 1 << 63,
            location: Location::Host,
            usage: MemUsage::Generic,
            hint: None,
            site: name,
            status: NrtStatus::Resource,
        },
        Event::Freed {
            size_bytes,
            allocated_bytes: 0,
            location: Location::Host,
            usage: MemUsage::Tensor,
            status: NrtStatus::Failure,
        },
        Event::Copied {
            way: CopyWay::In,
            path: CopyPath::Staged,
            offset_bytes: u64::MAX,
            size_bytes,
            status: NrtStatus::Success,
        },
    ];
    let faults = stopped.map(|fault| Event::Stopped { fault });
    let ordered = [
        PairFault::Hang,
        PairFault::Lost,
        PairFault::Late(Micros(u64::MAX)),
        PairFault::RetiredLate(Micros(1)),
        PairFault::Flipped {
            offset_bytes: u64::MAX,
            size_bytes,
            mask: 0x80,
        },
        PairFault::Abort,
        PairFault::Uncorrectable,
    ];
    let orders = ordered.map(|fault| Event::Ordered {
        index: u64::MAX,
        fault,
    });
    // Each with no ids and with many, at three times.
    [Ids::default(), full]
        .into_iter()
        .flat_map(|ids| {
            [Tick(0), Tick(u64::MAX), Tick(1)]
                .into_iter()
                .flat_map(move |at| {
                    let all = events.into_iter().chain(faults).chain(orders);
                    all.map(move |event| (at, ids, event))
                })
        })
        .collect()
}
