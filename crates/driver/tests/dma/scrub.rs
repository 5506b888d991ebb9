//! Scrubbing HBM.

use std::collections::BTreeMap;

use glia_abi::addr::{BusAddr, HostPa, Span};
use glia_abi::arch::{Arch, Scale};
use glia_abi::errno::Errno;
use glia_abi::event::Event;
use glia_abi::handle::{Channel, CoreId, EngineId, Pid, QueueId};
use glia_abi::port::NotCompleted;
use glia_abi::regs::QueueReg;
use glia_abi::udma::{Barrier, Direction};
use glia_driver::alloc::{AllocError, AllocRequest};
use glia_driver::dma::scrub::{BatchWait, ScrubError, host_engines};
use glia_driver::dma::user::{QueueError, QueueRequest, RingRequest};
use glia_driver::dma::{DmaError, copy_barrier, ring_descs};

use crate::engine::{Mode, Pair};
use crate::machine::{HBM, HBM_SIZE};
use crate::rig::{CORE, PID, Rig, SCRATCH, hbm};

const CHANNEL: Channel = Channel::new(0);
const MIB: u64 = 1 << 20;
/// What is behind the carveout of a channel of 32 MiB.
const SCRUBBED: u64 = 16 * MIB;
const WORD: u32 = 0xdead_10cc;

/// A device whose engines are up.
fn rig(arch: Arch) -> Rig {
    up(Rig::bare(arch))
}

fn up(rig: Rig) -> Rig {
    rig.dma.init_cores(u32::MAX, true).unwrap();
    rig.heard.take();
    let mut state = rig.machine.state();
    state.writes.clear();
    state.doorbells.clear();
    drop(state);
    rig
}

fn start(rig: &Rig) -> Result<(), ScrubError> {
    rig.dma.scrub_start(PID, CORE, CHANNEL, WORD)
}

fn wait(rig: &Rig) -> Result<(), ScrubError> {
    rig.dma.scrub_wait(CORE, CHANNEL)
}

fn scrub(rig: &Rig) -> Result<(), ScrubError> {
    start(rig)?;
    wait(rig)
}

/// The first byte of HBM, from the start of what is scrubbed, that is not the word's.
fn first_other(rig: &Rig) -> Option<usize> {
    let word = WORD.to_le_bytes();
    let hbm = &rig.machine.state().hbm;
    hbm.iter()
        .zip(word.iter().cycle())
        .position(|(a, b)| a != b)
}

/// Without the markers, by the order in which they ran.
fn data(pairs: &[Pair]) -> Vec<Pair> {
    let is_data = |pair: &&Pair| pair.1.len_ctrl.length() != 4;
    pairs.iter().filter(is_data).copied().collect()
}

/// The numbers were recorded from driver 2.24.7.
#[test]
fn the_engines_that_are_connected_to_the_host_are_those_of_the_reference() {
    let engines = |arch: Arch, channel| {
        let engines = host_engines(arch.profile(), Channel::new(channel));
        engines.map(|engines| engines.map(EngineId::get))
    };
    let v2 = |first: u32| Some(std::array::from_fn(|n| first + n as u32));
    let v3 = |first: u32| {
        let of_die = [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31];
        Some(of_die.map(|engine| first + engine))
    };
    assert_eq!([0, 1].map(|it| engines(Arch::V2, it)), [v2(0), v2(16)]);
    for arch in [Arch::V3, Arch::V4] {
        let of_channels = [0, 1, 2, 3].map(|it| engines(arch, it));
        assert_eq!(of_channels, [0, 32, 64, 96].map(v3));
        assert_eq!(engines(arch, 4), None);
    }
    assert_eq!(engines(Arch::V2, 2), None);
}

/// The numbers were recorded from driver 2.24.7.
#[test]
fn rings_are_sized_and_barriers_chosen_as_the_reference_does() {
    let wanted = [0, 1, 31, 32, 48, 49, 64, 1024, 4080, 4096];
    let sizes = wanted.map(ring_descs);
    assert_eq!(sizes, [64, 64, 64, 64, 64, 128, 128, 2048, 4096, 8192]);
    assert_eq!(ring_descs(u32::MAX), u32::MAX);
    assert_eq!(copy_barrier(false) as u32, 0);
    assert_eq!(copy_barrier(true) as u32, 2);
    assert_eq!(copy_barrier(true), Barrier::Write);
}

#[test]
fn every_byte_behind_the_carveout_is_overwritten_and_no_other() {
    for arch in Arch::ALL {
        let rig = rig(arch);
        let before = rig.memory.stats();
        scrub(&rig).unwrap();
        assert_eq!(first_other(&rig), Some(SCRUBBED as usize), "{arch}");
        let rest = &rig.machine.state().hbm[SCRUBBED as usize..];
        assert!(rest.iter().all(|&byte| byte == 0), "{arch}");
        assert_eq!(rig.memory.stats(), before, "{arch}: all is given back");
    }
}

/// The word's bytes are numbered from the slot's start, and so is what is odd at the end.
#[test]
fn a_channel_that_is_no_multiple_of_a_row_is_scrubbed_to_its_last_byte() {
    let scrubbed = SCRUBBED + 100_001;
    let bar_size_bytes = 4 * (16 * MIB + scrubbed);
    let rig = up(Rig::at_scale(
        Arch::V3,
        Scale::EmulatorBar { bar_size_bytes },
    ));
    scrub(&rig).unwrap();
    assert_eq!(first_other(&rig), Some(scrubbed as usize));
    let doorbells = rig.doorbells();
    let counts: Vec<u32> = doorbells.iter().step_by(2).map(|it| it.1).collect();
    // 256 whole slots, and of the last row one and a part of another.
    assert_eq!(counts[..3], [19, 19, 18]);
    assert_eq!(counts[3..], [18; 13]);
}

#[test]
fn each_engine_hands_the_pattern_on_from_slot_to_slot_and_back() {
    let rig = rig(Arch::V2);
    scrub(&rig).unwrap();
    let state = rig.machine.state();
    let queues: Vec<_> = state.doorbells.clone();
    let expected = (0..16).flat_map(|engine| {
        let queue = QueueId::new(EngineId::new(engine), 0);
        [(Direction::Rx, queue, 18), (Direction::Tx, queue, 18)]
    });
    assert!(queues.into_iter().eq(expected));

    let pairs = data(&state.pairs);
    assert_eq!(pairs.len(), 16 * 17);
    let pattern = pairs[0].1.source;
    for (engine, pairs) in (0..).zip(pairs.chunks(17)) {
        let slot = |row: u64| BusAddr::new(HBM + (row * 16 + engine) * 65_536);
        assert_eq!(pairs[0].1.source, pattern);
        for (row, (_, tx, rx)) in (0..).zip(pairs) {
            assert_eq!(u32::from(tx.len_ctrl), 0x4d00_0000, "64 KiB with DMB");
            assert_eq!(u32::from(tx.meta_ctrl), 0x0108_0003);
            assert_eq!(u32::from(rx.len_ctrl), 0x0100_0000);
            if row > 0 {
                assert_eq!(tx.source, slot(row - 1));
            }
            if row < 16 {
                assert_eq!(rx.target, slot(row));
            }
        }
        let back = pairs[16].2.target;
        assert!(rig.profile.bus_to_host(back).is_some());
    }
    let markers = state.pairs.iter().filter(|it| it.1.len_ctrl.length() == 4);
    assert!(markers.clone().all(|it| !it.1.len_ctrl.data_barrier()));
    assert_eq!(markers.count(), 16);
    // 17 data descriptors take 68 us by estimate: 10 us, then a 200th of what is left of 100 times.
    let budgets = state
        .waits
        .iter()
        .map(|(it, _)| (it.first.0, it.following.0));
    assert!(budgets.eq([(10, 3367); 16]));
}

#[test]
fn the_trace_tells_of_one_batch_for_each_engine() {
    let rig = rig(Arch::V3);
    scrub(&rig).unwrap();
    let mut told: BTreeMap<QueueId, Vec<Event>> = BTreeMap::new();
    for (ids, event) in rig.heard.take() {
        assert_eq!(ids.process, Some(PID));
        told.entry(ids.queue.unwrap()).or_default().push(event);
    }
    let engines = host_engines(rig.profile, CHANNEL).unwrap();
    let queues = engines.map(|engine| QueueId::new(engine, 0));
    assert!(told.keys().copied().eq(queues));
    for events in told.values() {
        let [ready, staged, done] = events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(ready, Event::RingReady { descs: 64 });
        let expected = Event::BatchStaged {
            context: 0,
            first: 0,
            data_descs: 17,
            size_bytes: 17 * 65_536,
        };
        assert_eq!(staged, expected);
        let (context, polls) = (0, 1);
        assert_eq!(done, Event::BatchDone { context, polls });
    }
}

#[test]
fn a_channel_where_a_chunk_lives_is_not_scrubbed() {
    let rig = rig(Arch::V2);
    // One chunk in the main pool, one in the small pool, one on another channel.
    for size_bytes in [MIB, 4096] {
        let request = AllocRequest::device(size_bytes, CHANNEL);
        let chunk = rig.memory.alloc(PID, &request).unwrap();
        let before = (rig.memory.stats(), rig.machine.state().host_taken_bytes);
        let refused = start(&rig).unwrap_err();
        let live_bytes = size_bytes;
        let channel = CHANNEL;
        assert_eq!(
            refused,
            ScrubError::InUse {
                channel,
                live_bytes
            }
        );
        assert_eq!(refused.errno(), Errno::EBUSY);
        let after = (rig.memory.stats(), rig.machine.state().host_taken_bytes);
        assert_eq!(after, before);
        assert_eq!(rig.machine.state().writes, []);
        rig.memory.free(PID, chunk).unwrap();
    }
    let elsewhere = AllocRequest::device(MIB, Channel::new(1));
    rig.memory.alloc(PID, &elsewhere).unwrap();
    scrub(&rig).unwrap();
}

#[test]
fn nobody_gets_memory_of_a_channel_while_it_is_scrubbed() {
    let rig = rig(Arch::V2);
    start(&rig).unwrap();
    for size_bytes in [4096, MIB] {
        let request = AllocRequest::device(size_bytes, CHANNEL);
        let refused = rig.memory.alloc(PID, &request).unwrap_err();
        assert!(matches!(refused, AllocError::NoDeviceMemory { .. }));
    }
    wait(&rig).unwrap();
    let request = AllocRequest::device(12 * MIB, CHANNEL);
    let chunk = rig.memory.alloc(PID, &request).unwrap();
    assert_eq!(rig.memory.chunk(chunk).unwrap().at(), BusAddr::new(HBM));
}

#[test]
fn a_scrub_is_begun_once_and_waited_for_once() {
    let rig = rig(Arch::V2);
    let channel = CHANNEL;
    assert_eq!(wait(&rig), Err(ScrubError::NotStarted { channel }));
    start(&rig).unwrap();
    assert_eq!(start(&rig), Err(ScrubError::UnderWay { channel }));
    wait(&rig).unwrap();
    assert_eq!(wait(&rig), Err(ScrubError::NotStarted { channel }));
    scrub(&rig).unwrap();
}

#[test]
fn a_channel_or_core_that_the_device_lacks_cannot_be_scrubbed() {
    let rig = rig(Arch::V2);
    let (channel, channels) = (Channel::new(2), 2);
    let no_channel = ScrubError::NoChannel { channel, channels };
    assert_eq!(rig.dma.scrub_start(PID, CORE, channel, 0), Err(no_channel));
    assert_eq!(rig.dma.scrub_wait(CORE, channel), Err(no_channel));
    let (core, cores) = (CoreId::new(2), 2);
    let no_core = ScrubError::Dma(DmaError::NoCore { core, cores });
    assert_eq!(rig.dma.scrub_start(PID, core, CHANNEL, 0), Err(no_core));
    assert_eq!(rig.dma.scrub_wait(core, CHANNEL), Err(no_core));
    assert_eq!([no_channel, no_core].map(Errno::from), [Errno::EINVAL; 2]);
}

#[test]
fn the_first_byte_that_did_not_take_the_pattern_is_named() {
    let rig = rig(Arch::V2);
    start(&rig).unwrap();
    // What engines 9 and 3 read back, each wrong in two places.
    let pairs = data(&rig.machine.state().pairs);
    for engine in [9, 3] {
        let (_, _, rx) = pairs[engine * 17 + 16];
        for offset in [70, 4001] {
            let at = rx.target.checked_add(offset).unwrap();
            rig.machine.store(at, &[0x55]);
        }
    }
    let wrong = ScrubError::Wrong {
        at: BusAddr::new(HBM + (15 * 16 + 3) * 65_536 + 70),
        // The third byte of the word.
        expected: 0xad,
        found: 0x55,
    };
    let refused = wait(&rig).unwrap_err();
    assert_eq!(refused, wrong);
    assert_eq!(
        refused.to_string(),
        "0x1f30046 holds 0x55 after the scrub, not 0xad"
    );
    assert_eq!(refused.errno(), Errno::EIO);
    scrub(&rig).unwrap();
}

#[test]
fn an_engine_that_hangs_ends_the_scrub_and_leaves_nothing_behind() {
    let rig = rig(Arch::V2);
    let before = (rig.memory.stats(), rig.machine.state().host_taken_bytes);
    let (normal, hang) = (Mode::Normal, Mode::Hang);
    rig.machine.script(&[normal, normal, hang, normal]);
    let refused = scrub(&rig).unwrap_err();
    let ScrubError::Dma(DmaError::TimedOut(why)) = refused else {
        panic!("{refused}");
    };
    assert_eq!(why.queue, QueueId::new(EngineId::new(2), 0));
    assert_eq!(why.reason, NotCompleted::TimeOver);
    assert_eq!(refused.errno(), Errno::ETIMEDOUT);
    let after = (rig.memory.stats(), rig.machine.state().host_taken_bytes);
    assert_eq!(after, before);
    let cfg = QueueReg::Cfg.at(rig.profile, why.queue, Direction::Tx);
    let state = rig.machine.state();
    let last = state.writes.iter().rfind(|(at, _)| Some(*at) == cfg);
    assert_eq!(last.unwrap().1, 0x0300_0000, "the queue is off");
    drop(state);
    scrub(&rig).unwrap();
}

fn request(rig: &Rig) -> QueueRequest {
    let ring = |offset| RingRequest {
        chunk: Span::new(
            rig.profile.host_to_bus(HostPa::new(SCRATCH + MIB + offset)),
            4096,
        ),
        descs: 64,
    };
    QueueRequest {
        tx: ring(0),
        rx: ring(4096),
        completions: None,
        allocatable: false,
    }
}

#[test]
fn a_scrub_and_a_process_do_not_share_a_queue() {
    let rig = rig(Arch::V2);
    let queue = QueueId::new(EngineId::new(7), 0);
    let request = request(&rig);
    start(&rig).unwrap();
    let taken = rig.dma.queue_init(PID, queue, &request);
    assert_eq!(taken, Err(QueueError::Taken { queue }));
    let other = QueueId::new(EngineId::new(7), 1);
    rig.dma.queue_init(PID, other, &request).unwrap();
    wait(&rig).unwrap();

    rig.dma.queue_init(PID, queue, &request).unwrap();
    let before = rig.memory.stats();
    for _ in 0..2 {
        let refused = start(&rig).unwrap_err();
        assert_eq!(refused, ScrubError::QueueTaken { queue });
        assert_eq!(refused.errno(), Errno::EBUSY);
    }
    assert_eq!(rig.memory.stats(), before);
    rig.dma.process_exit(PID);
    scrub(&rig).unwrap();
}

#[test]
fn engines_that_are_not_up_cannot_scrub() {
    let rig = Rig::bare(Arch::V2);
    let engine = EngineId::new(0);
    assert_eq!(start(&rig), Err(ScrubError::EngineDown { engine }));
}

#[test]
fn a_scrub_of_a_process_that_goes_is_waited_for() {
    let rig = rig(Arch::V2);
    let before = rig.memory.stats();
    start(&rig).unwrap();
    rig.dma.settle(Pid::new(1));
    assert_ne!(rig.memory.stats(), before);
    rig.dma.settle(PID);
    assert_eq!(rig.memory.stats(), before);
    assert_eq!(rig.machine.state().waits.len(), 16);
}

#[test]
fn everything_is_given_back_when_the_op_layer_goes_in_the_middle() {
    let rig = Rig::bare(Arch::V2);
    let before = rig.memory.stats();
    let rig = up(rig);
    rig.machine.script(&[Mode::Hang]);
    start(&rig).unwrap();
    drop(rig.dma);
    let after = rig.memory.stats();
    assert_eq!(
        (after.host_bytes, after.device_bytes, after.chunks),
        (before.host_bytes, before.device_bytes, before.chunks)
    );
}

#[test]
fn without_memory_for_its_rings_a_scrub_takes_nothing() {
    let rig = rig(Arch::V2);
    let before = (rig.memory.stats(), rig.machine.state().host_taken_bytes);
    // Pattern, what is read back, markers, and 16 times two rings.
    for granted in [0, 1, 2, 3, 20, 34] {
        let grants = &rig.machine.grants;
        grants.store(granted, std::sync::atomic::Ordering::Relaxed);
        let refused = start(&rig).unwrap_err();
        assert_eq!(refused.errno(), Errno::ENOMEM, "{granted}: {refused}");
        let after = (rig.memory.stats(), rig.machine.state().host_taken_bytes);
        assert_eq!(after, before, "{granted}");
        assert_eq!(rig.machine.state().writes, [], "{granted}");
    }
}

/// The numbers were recorded from driver 2.24.7, the budgets follow from its polls.
#[test]
fn a_batch_within_hbm_has_the_barriers_and_budgets_of_the_reference() {
    let batch = |rig: &Rig, copies, is_pipelined, is_d2d| {
        let (source, target) = (hbm(0).at, hbm(8 * MIB).at);
        let wait = BatchWait {
            is_pipelined,
            is_d2d,
        };
        rig.dma
            .device_batch(PID, CORE, source, target, copies, wait)
    };
    let rig = Rig::new();
    for (copies, is_pipelined, is_d2d) in [
        (1, false, true),
        (16, false, true),
        (16, true, true),
        (100, false, true),
        (100, false, false),
    ] {
        batch(&rig, copies, is_pipelined, is_d2d).unwrap();
    }
    let state = rig.machine.state();
    let [copy, marker] = [&state.pairs[0], &state.pairs[1]].map(|(_, tx, rx)| {
        let (tx, rx) = (tx.to_words(), rx.to_words());
        [tx[0], tx[1], rx[0], rx[1]]
    });
    assert_eq!(copy, [0x4d00_0000, 0x0108_0003, 0x0100_0000, 0]);
    assert_eq!(marker, [0x0d00_0004, 0x0108_0003, 0x0100_0004, 0]);
    let budgets: Vec<_> = state
        .waits
        .iter()
        .map(|(it, _)| (it.first.0, it.following.0))
        .collect();
    let polls_when_it_hangs = [201, 3171, 639_902, 19_803, 3_960_302];
    assert_eq!(
        budgets,
        [10, 10, 1, 10, 397]
            .into_iter()
            .zip(polls_when_it_hangs.map(|polls| polls - 2))
            .collect::<Vec<_>>()
    );
    drop(state);
    let too_many = batch(&rig, 8176, false, true);
    assert!(matches!(too_many, Err(DmaError::NoRoom { .. })));
    batch(&rig, 0, false, true).unwrap();
}

const _: () = assert!(HBM_SIZE > SCRUBBED + 100_001);
