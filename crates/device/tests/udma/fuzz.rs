//! Hostile registers and descriptors: nothing panics, every wait ends, a reset heals.

use std::sync::Arc;

use glia_abi::addr::{BusAddr, RegOffset};
use glia_abi::arch::{Arch, MemoryLayout, Scale};
use glia_abi::chance::Chance;
use glia_abi::event::Event;
use glia_abi::fault::{FaultKind, FaultPlan, FaultRule, NoFaults, Trigger};
use glia_abi::port::Port;
use glia_abi::regs::QueueReg;
use glia_abi::udma::{Barrier, Direction, RxDesc, TxDesc};
use glia_device::{DeviceConfig, EngineOrder, EngineTiming, PinLayout};

use super::rig::{DEVICE, Queue, RING_DESCS, Rig};

/// Hostile acts on each kind of device.
const ROUNDS: u32 = 4_000;
const HBM: BusAddr = BusAddr::new(0x40_0000);
/// Never written by a good copy, nor named by a descriptor that was not spoilt.
const GUARD: BusAddr = BusAddr::new(0x100_0000);

/// A device that does everything at once, and one for which everything takes time and may go wrong.
fn rigs(arch: Arch) -> [Rig; 2] {
    let size_bytes = 32 << 20;
    let layout = MemoryLayout::new(arch, Scale::RegionSize { size_bytes }).unwrap();
    let plain = DeviceConfig::new(DEVICE, layout);
    let weak = DeviceConfig {
        timing: Some(EngineTiming::of(arch)),
        order: EngineOrder::Weak { seed: 11 },
        ..plain
    };
    let plan = FaultPlan::new(5);
    for kind in [
        FaultKind::StuckQueue,
        FaultKind::LostMarker,
        FaultKind::PartialBatch { pairs: 2 },
        FaultKind::DmaAbort,
    ] {
        let trigger = Trigger {
            probability: Some(0.02),
            ..Trigger::ALWAYS
        };
        let rule = FaultRule {
            trigger,
            ..FaultRule::new(kind)
        };
        plan.add(rule).unwrap();
    }
    [
        Rig::with(plain, PinLayout::Contiguous, Arc::new(NoFaults)),
        Rig::with(weak, PinLayout::Contiguous, Arc::new(plan)),
    ]
}

/// A word that is near to what registers and descriptors hold, or any.
fn word(chance: &mut Chance) -> u32 {
    let any = chance.number() as u32;
    match chance.below(6) {
        0 => 0,
        1 => 1 << chance.below(32),
        2 => RING_DESCS - 1 + chance.below(3) as u32,
        3 => u32::MAX - chance.below(2) as u32,
        4 => any & 0xffff,
        _ => any,
    }
}

/// Stages a few pairs, some with words spoilt, and rings for as many, or for any number.
fn spoilt_batch(queue: &mut Queue<'_>, host: BusAddr, chance: &mut Chance) {
    let pairs = 1 + chance.below(6) as u32;
    for _ in 0..pairs {
        let barrier = match chance.below(4) {
            0 => Barrier::Dmb,
            1 => Barrier::Write,
            2 => Barrier::StrongOrder,
            _ => Barrier::None,
        };
        let size_bytes = 1 + chance.below(65_536);
        let (from, to) = match chance.below(2) {
            0 => (host, HBM),
            _ => (HBM, host),
        };
        let (tx, rx) = queue.pair_behind(barrier, from, to, size_bytes);
        let (mut tx, mut rx) = (tx.to_words(), rx.to_words());
        if chance.below(3) == 0 {
            let side = if chance.below(2) == 0 {
                &mut tx
            } else {
                &mut rx
            };
            side[chance.below(4) as usize] ^= 1 << chance.below(32);
        }
        if chance.below(20) == 0 {
            tx = [(); 4].map(|()| word(chance));
        }
        queue.stage_pair(TxDesc::from_words(tx), RxDesc::from_words(rx));
    }
    queue.stage_marker();
    let count = if chance.below(8) == 0 {
        word(chance)
    } else {
        pairs + 1
    };
    queue.ring_both(count);
}

#[test]
fn no_descriptor_and_no_register_write_does_more_than_stop_a_queue() {
    for arch in [Arch::V2, Arch::V3] {
        for (kind, rig) in rigs(arch).into_iter().enumerate() {
            let mut chance = Chance::of(17, kind as u64);
            let mut queue = Queue::new(&rig, 3, 1);
            let host = rig.bus(rig.alloc(65_536));
            let (mut done, mut failed, mut healed) = (0, 0, 0);
            for _ in 0..ROUNDS {
                match chance.below(4) {
                    // Any register of this queue, of its engine, or of any place.
                    0 => {
                        let direction = Direction::BOTH[chance.below(2) as usize];
                        let register =
                            QueueReg::ALL[chance.below(QueueReg::ALL.len() as u64) as usize];
                        let profile = rig.device.layout().profile();
                        if let Some(at) = register.at(profile, queue.id, direction) {
                            rig.device.reg_write(at, word(&mut chance));
                        }
                    }
                    1 => {
                        let at = RegOffset::new(chance.below(0x3200_0000));
                        rig.device.reg_write(at, word(&mut chance));
                        rig.device.reg_read(at);
                    }
                    _ => {
                        spoilt_batch(&mut queue, host, &mut chance);
                        match queue.wait() {
                            Ok(_) => done += 1,
                            Err(_) => failed += 1,
                        }
                    }
                }
                // A spoilt address may have hit any byte of HBM; only what stops is checked.
                if chance.below(4) == 0 {
                    queue.reset();
                    queue.write(Direction::Tx, QueueReg::RlimitMask, 0b011);
                    queue.stage(host, HBM, 4096);
                    queue.stage_marker_behind(Barrier::StrongOrder);
                    queue.ring_both(2);
                    healed += u32::from(queue.wait().is_ok());
                }
            }
            let heard = rig.heard.take();
            let stops = heard
                .iter()
                .filter(|event| matches!(event, Event::Stopped { .. }));
            let stops = stops.count();
            assert!(
                done > 50 && failed > 300 && stops > 200,
                "{done} {failed} {stops}"
            );
            // All but those that the plan broke.
            assert!(healed > 800, "{healed}");
        }
    }
}

#[test]
fn descriptors_that_were_not_spoilt_in_their_addresses_write_nowhere_else() {
    for rig in rigs(Arch::V3) {
        let mut chance = Chance::new(3);
        let mut queue = Queue::new(&rig, 130, 0);
        let host = rig.bus(rig.alloc(65_536));
        for round in 0..1_000 {
            for _ in 0..3 {
                let size_bytes = 1 + chance.below(65_536);
                let (tx, rx) = queue.pair(host, HBM, size_bytes);
                let mut tx = tx.to_words();
                // Lengths, laps, flags.
                tx[chance.below(2) as usize] ^= 1 << chance.below(32);
                queue.stage_pair(TxDesc::from_words(tx), rx);
            }
            queue.stage_marker();
            queue.ring_both(4);
            let _ = queue.wait();
            queue.reset();
            assert!(
                rig.hbm_bytes(HBM.get() + 65_536, 4096)
                    .iter()
                    .all(|&byte| byte == 0),
                "round {round}"
            );
        }
        assert!(
            rig.hbm_bytes(GUARD.get(), 65_536)
                .iter()
                .all(|&byte| byte == 0)
        );
    }
}
