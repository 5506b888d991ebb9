//! Copies that a reset of the device disturbs.

use glia_abi::arch::Arch;
use glia_abi::event::Event;
use glia_abi::handle::{CoreId, EngineId, Pid};
use glia_abi::regs::FirmwareReg;
use glia_abi::sched::Tick;
use glia_driver::dma::reset::ResetOutcome;
use glia_driver::dma::{ContextState, DmaError, Place, WaitHandle};
use glia_driver::reset::ResetWindow;

use crate::engine::Mode;
use crate::machine::Reset;
use crate::rig::{CORE, PID, Rig, hbm, pattern};

const IDLE: ContextState = ContextState::Idle;

/// How many looks each wait took; `None` for one that ended without a marker.
fn waits(rig: &Rig) -> Vec<Option<u64>> {
    let waits = std::mem::take(&mut rig.machine.state().waits);
    waits.into_iter().map(|(_, looks)| looks).collect()
}

#[test]
fn a_copy_that_a_reset_has_eaten_is_staged_again() {
    let rig = Rig::new();
    let bytes = pattern(1, 70_000);
    rig.machine.store(rig.host(0).at, &bytes);
    rig.up(4096, 10).unwrap();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    rig.up(0, 70_000).unwrap();
    assert_eq!(rig.machine.load(hbm(0).at, 70_000), bytes);
    assert_eq!(waits(&rig), [Some(1), None, Some(1)]);
    let queue = rig.queue();
    assert_eq!((queue.next, queue.acked, queue.failures), (3, 3, 0));
    assert_eq!(rig.contexts(), [IDLE; 3]);
}

#[test]
fn only_the_batch_that_was_lost_is_staged_again() {
    let rig = Rig::new();
    rig.machine
        .bodiless
        .store(true, std::sync::atomic::Ordering::Relaxed);
    rig.dma.reset_began();
    rig.machine
        .script(&[Mode::Normal, Mode::Hang, Mode::Normal]);
    rig.up(0, 133_169_153).unwrap();
    let batches: Vec<u32> = rig.doorbells().iter().map(|(_, count)| *count).collect();
    assert_eq!(batches, [2033, 2033, 2, 2, 2, 2]);
}

#[test]
fn a_copy_is_tried_four_times_at_most() {
    let rig = Rig::new();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang]);
    assert!(matches!(rig.up(0, 1), Err(DmaError::TimedOut(_))));
    assert_eq!(waits(&rig), [None; 4]);
    assert_eq!(rig.queue().failures, 1);
    rig.machine.script(&[Mode::Normal]);
    rig.up(0, 1).unwrap();
}

#[test]
fn a_copy_that_began_after_the_reset_fails() {
    let rig = Rig::new();
    rig.machine.script(&[Mode::Hang]);
    let before = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.dma.reset_began();
    rig.dma.reset_ended();
    rig.machine.script(&[Mode::Normal]);
    rig.wait(before).unwrap();
    assert_eq!(waits(&rig), [None, Some(1)]);
    rig.machine.script(&[Mode::Hang]);
    assert!(matches!(rig.up(0, 1), Err(DmaError::TimedOut(_))));
    assert_eq!(waits(&rig), [None]);
}

/// The second life of a copy begins when it is staged again.
#[test]
fn a_copy_that_hangs_again_after_the_reset_fails() {
    let rig = Rig::new();
    let window = ResetWindow {
        start: Tick(1),
        end: Tick(20_000_000),
    };
    rig.dma.set_reset_window(Some(window));
    rig.machine.script(&[Mode::Hang]);
    assert!(matches!(rig.up(0, 1), Err(DmaError::TimedOut(_))));
    assert_eq!(waits(&rig), [None, None]);
}

#[test]
fn a_device_that_is_never_reset_and_a_generation_that_does_not_care_do_not_retry() {
    let rig = Rig::new();
    rig.dma.set_reset_window(None);
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang]);
    assert!(rig.up(0, 1).is_err());
    assert_eq!(waits(&rig), [None]);
    let rig = Rig::bare(Arch::V3);
    rig.dma.bring_up(CORE).unwrap();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang]);
    assert!(rig.up(0, 1).is_err());
    assert_eq!(waits(&rig), [None]);
}

#[test]
fn all_that_is_under_way_is_staged_again_the_oldest_first() {
    let rig = Rig::new();
    let bytes = pattern(6, 3 * 4096);
    rig.machine.store(rig.host(0).at, &bytes);
    // Handle 2 is the older one.
    let first = rig.up_async(0, 1, WaitHandle::None).unwrap();
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    let older = rig.up_async(0, 4096, first).unwrap();
    let newer = rig.up_async(4096, 4096, WaitHandle::None).unwrap();
    rig.dma.reset_began();
    waits(&rig);
    rig.machine.state().pairs.clear();
    rig.up(8192, 4096).unwrap();
    assert_eq!(waits(&rig), [None, Some(1)]);
    rig.wait(older).unwrap();
    rig.wait(newer).unwrap();
    assert_eq!(waits(&rig), [Some(1), Some(1)]);
    let moved = |offset| hbm(offset).at;
    let targets: Vec<_> = rig
        .machine
        .state()
        .pairs
        .iter()
        .map(|pair| pair.2.target)
        .collect();
    assert_eq!(
        [targets[0], targets[2], targets[4]],
        [moved(0), moved(4096), moved(8192)]
    );
    assert_eq!(rig.machine.load(moved(0), 3 * 4096), bytes);
    let queue = rig.queue();
    assert_eq!((queue.next, queue.acked, queue.failures), (6, 6, 0));
}

#[test]
fn a_predecessor_that_is_staged_again_is_waited_for_as_if_nothing_was_behind_it() {
    let rig = Rig::new();
    rig.dma.reset_began();
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    let first = rig.up_async(0, 200_000, WaitHandle::None).unwrap();
    let second = rig.up_async(0, 1, first).unwrap();
    let firsts: Vec<u64> = {
        let state = rig.machine.state();
        state
            .waits
            .iter()
            .map(|(budget, _)| budget.first.0)
            .collect()
    };
    // Five descriptors on V2: 1 us with a batch behind it, else 4 * 4 - 3.
    assert_eq!(firsts, [1, 13]);
    rig.wait(second).unwrap();
}

const OTHER: CoreId = CoreId::new(1);
const WHOLE_DEVICE: u32 = u32::MAX;

/// A V2 device with the rings of both cores, up as the driver does it.
fn two_cores() -> Rig {
    let rig = Rig::bare(Arch::V2);
    rig.dma.init_cores(0b11, true).unwrap();
    rig.heard.take();
    rig.machine.state().writes.clear();
    rig
}

/// A place in the HBM of core 1.
fn other(offset: u64) -> Place {
    Place {
        core: OTHER,
        ..hbm(offset)
    }
}

fn wait_for_resets(rig: &Rig) -> ResetOutcome {
    rig.dma.await_reset(None, &|| false)
}

/// What the firmware was told since the last time.
fn asked(rig: &Rig) -> Vec<(FirmwareReg, u32)> {
    let writes = std::mem::take(&mut rig.machine.state().writes);
    let firmware = |(at, value)| Some((FirmwareReg::of(rig.profile, at)?, value));
    writes.into_iter().filter_map(firmware).collect()
}

#[test]
fn the_firmware_is_told_what_to_reset_then_to_do_it() {
    let rig = two_cores();
    rig.dma.reset(PID, 0b10);
    // The next one has to wait.
    rig.dma.reset(PID, WHOLE_DEVICE);
    let (cores, kind) = (FirmwareReg::ResetCores, FirmwareReg::ResetType);
    let trigger = FirmwareReg::ResetTrigger;
    assert_eq!(asked(&rig), [(cores, 0b10), (kind, 2), (trigger, 1)]);
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    assert_eq!(asked(&rig), [(kind, 1), (trigger, 1)]);
    assert_eq!(rig.machine.state().looks_us, [100_000, 200_000]);
}

#[test]
fn a_ring_is_shut_for_the_reset_and_comes_back_empty_with_its_neighbour_as_it_was() {
    let rig = two_cores();
    let chain = |target| {
        let source = rig.host(0);
        rig.dma
            .copy_async(PID, source, target, 4096, WaitHandle::None)
    };
    let own = chain(hbm(0)).unwrap();
    let neighbours = chain(other(8192)).unwrap();
    let before = rig.dma.queue_state(OTHER).unwrap();
    let taken_bytes = rig.machine.state().host_taken_bytes;
    rig.heard.take();

    rig.dma.reset(PID, 0b01);
    assert_eq!(rig.dma.queue_state(CORE), None);
    assert!(matches!(rig.up(0, 1), Err(DmaError::NotReady { core }) if core == CORE));
    assert_eq!(rig.dma.queue_state(OTHER), Some(before));
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);

    assert!(matches!(rig.wait(own), Err(DmaError::TimedOut(_))));
    let queue = rig.queue();
    assert_eq!((queue.next, queue.acked, queue.ring_id), (0, 0, 1));
    assert_eq!(rig.contexts(), [IDLE; 3]);
    assert_eq!(rig.dma.queue_state(OTHER), Some(before));
    assert_eq!(rig.machine.state().host_taken_bytes, taken_bytes);
    let ready = |event: &Event| matches!(event, Event::RingReady { .. });
    let events = rig.heard.take();
    assert_eq!(events.iter().filter(|(_, event)| ready(event)).count(), 1);
    rig.dma
        .wait(PID, rig.host(0), other(8192), neighbours)
        .unwrap();
    rig.up(0, 4096).unwrap();
}

/// A core whose ring is down is reset, and its ring stays down.
#[test]
fn only_rings_that_were_up_come_back() {
    let rig = two_cores();
    rig.dma.close_cores(0b10);
    rig.dma.reset(PID, 0b11);
    assert_eq!(asked(&rig)[0], (FirmwareReg::ResetCores, 0b11));
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    assert!(rig.dma.queue_state(CORE).is_some());
    assert_eq!(rig.dma.queue_state(OTHER), None);
    // A ring that is closed during a reset stays closed.
    rig.dma.reset(PID, 0b01);
    rig.dma.close_cores(0b01);
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    assert_eq!(rig.dma.queue_state(CORE), None);
}

#[test]
fn a_firmware_that_never_ends_is_asked_again_and_given_up_and_the_next_reset_helps() {
    for (map, asks) in [(0b01, 1 + 5), (WHOLE_DEVICE, 1 + 3)] {
        for stuck in [Reset::Until(u64::MAX), Reset::Unreadable] {
            let rig = two_cores();
            rig.machine.state().reset = stuck;
            rig.dma.reset(PID, map);
            assert_eq!(wait_for_resets(&rig), ResetOutcome::Failed);
            let triggers = asked(&rig);
            let triggers = triggers
                .iter()
                .filter(|(it, _)| *it == FirmwareReg::ResetTrigger);
            assert_eq!(triggers.count(), asks);
            assert_eq!(rig.machine.now_us(), 120_000_000);
            assert_eq!(rig.machine.state().looks_us.len(), 1200);
            assert!(matches!(rig.up(0, 1), Err(DmaError::NotReady { .. })));
            let is_dead = rig.dma.await_device(&|| false) == ResetOutcome::Failed;
            assert_eq!(is_dead, map == WHOLE_DEVICE);

            rig.machine.state().reset = Reset::default();
            rig.dma.reset(Pid::new(5), map);
            assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
            assert_eq!(
                rig.dma.await_reset(Some(PID), &|| false),
                ResetOutcome::Failed
            );
            assert_eq!(rig.dma.await_device(&|| false), ResetOutcome::Done);
            rig.up(0, 1).unwrap();
        }
    }
}

#[test]
fn a_ring_stays_shut_between_two_resets_of_its_core() {
    let rig = two_cores();
    rig.machine.state().reset = Reset::Until(250_000);
    rig.dma.reset(PID, 0b01);
    rig.dma.reset(Pid::new(5), 0b01);
    assert_eq!(
        rig.dma.await_reset(Some(PID), &|| false),
        ResetOutcome::Done
    );
    assert_eq!(rig.machine.now_us(), 300_000);
    assert_eq!(rig.dma.queue_state(CORE), None);
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    assert!(rig.dma.queue_state(CORE).is_some());
}

#[test]
fn who_is_to_end_does_not_wait_and_the_reset_goes_on() {
    let rig = two_cores();
    rig.dma.reset(PID, 0b01);
    assert_eq!(rig.dma.await_reset(None, &|| true), ResetOutcome::Killed);
    assert_eq!(
        rig.dma.await_device(&|| true),
        ResetOutcome::Done,
        "not all of it"
    );
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    rig.up(0, 1).unwrap();
}

/// The retry comes when the reset has ended, and is not lost to it.
#[test]
fn a_neighbours_copy_that_hangs_is_tried_again_after_the_reset() {
    let rig = two_cores();
    rig.machine.state().reset = Reset::Until(700_000);
    rig.dma.reset(PID, 0b01);
    rig.machine.script(&[Mode::Hang, Mode::Normal]);
    rig.dma.copy(PID, rig.host(0), other(0), 4096).unwrap();
    assert!(rig.machine.now_us() >= 700_000);
    assert_eq!(waits(&rig), [None, Some(1)]);
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    // What begins now is not covered.
    rig.machine.script(&[Mode::Hang]);
    assert!(matches!(rig.up(0, 1), Err(DmaError::TimedOut(_))));
    assert_eq!(waits(&rig), [None]);
}

#[test]
fn a_reset_of_no_core_is_done_at_once() {
    let rig = two_cores();
    rig.dma.reset(PID, 0b1100);
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    assert_eq!(asked(&rig), []);
    rig.up(0, 1).unwrap();
}

/// How often each engine of rings was programmed, told by one of its registers, for these resets in
/// a row.
fn programmed(arch: Arch, maps: &[u32]) -> Vec<(u32, usize)> {
    const BEATS: u64 = 0x310;
    let rig = Rig::bare(arch);
    rig.dma.init_cores(WHOLE_DEVICE, true).unwrap();
    rig.machine.state().writes.clear();
    for &map in maps {
        rig.dma.reset(PID, map);
    }
    assert_eq!(wait_for_resets(&rig), ResetOutcome::Done);
    let writes = std::mem::take(&mut rig.machine.state().writes);
    (rig.profile.h2t_engine_first..rig.profile.engines)
        .filter_map(|number| {
            let block = rig.profile.engine_block(EngineId::new(number))?;
            let beats = block.checked_add(BEATS)?;
            let times = writes.iter().filter(|&&(at, _)| at == beats).count();
            Some((number, times))
        })
        .collect()
}

/// The even core of the two programs it, also if that core is to be reset once more.
#[test]
fn an_engine_that_a_reset_wipes_is_programmed_before_the_rings_of_either_core_come_back() {
    const CORE_0: u32 = 0b01;
    const CORE_1: u32 = 0b10;
    let once = [(128, 1), (129, 1), (130, 1), (131, 1)];
    for arch in [Arch::V3, Arch::V4] {
        for later in [&[][..], &[CORE_0], &[CORE_1], &[CORE_0, CORE_1]] {
            let maps = [&[WHOLE_DEVICE], later].concat();
            assert_eq!(programmed(arch, &maps), once, "{arch:?} {maps:x?}");
        }
        let both = [CORE_0 | CORE_1, CORE_0];
        assert_eq!(
            programmed(arch, &both),
            [(128, 1), (129, 0), (130, 0), (131, 0)]
        );
        assert_eq!(programmed(arch, &[CORE_0, CORE_1])[0], (128, 0));
    }
    assert_eq!(programmed(Arch::V2, &[CORE_1]), [(32, 0), (33, 1)]);
}
