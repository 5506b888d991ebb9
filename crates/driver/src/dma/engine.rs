//! Bringing an engine up: every register, in the order of the reference (recorded register traffic of
//! driver 2.24.7; V4 as V3, uncertain).
//!
//! An engine is programmed once before its first queue is: what is in flight at most, bursts, time-outs,
//! which errors are told. Most of it means nothing to a software device, which keeps it as storage;
//! the order and the values are what a real one has been seen to get. An engine that is programmed
//! [again](bring_up) finds its queues enabled, as the reference leaves them then.
//!
//! **What this does not do.** It never asks an engine to run: that is
//! [`Dma::set_engine_state`](super::Dma::set_engine_state), a command of its own.

use glia_abi::addr::RegOffset;
use glia_abi::arch::{Arch, ArchProfile};
use glia_abi::handle::{EngineId, QUEUES_PER_ENGINE, QueueId};
use glia_abi::port::Port;
use glia_abi::regs::{QUEUE_ENABLE_BITS, QUEUE_ENABLED, QueueReg};
use glia_abi::udma::Direction;

/// What an engine's DMA side block gets: axes and clocks on.
const SIDE_ENABLE: [(u64, u32); 3] = [(0x1c, 1), (0x20, 1), (0x00, 1)];

/// Rules for a queue's transfers, first and other banks.
const PERMISSIONS: u64 = 0x3_c400;
const PERMISSIONS_STRIDE: u64 = 0x40;

/// Interrupt groups: which errors of the engine are told, and which stop it.
const INTERRUPTS: [(u64, u32); 14] = [
    (0x3_a028, 0x28),
    (0x3_80e8, 0x28),
    (0x3_a030, 0xf000_0000),
    (0x3_a0b0, 0xffff_ffc0),
    (0x3_a018, 0xf000_0000),
    (0x3_a098, 0xffff_ffc0),
    (0x3_80d8, 0xffff_faff),
    (0x3_a068, 0x28),
    (0x3_80e8, 0x28),
    (0x3_a070, 0x10f8),
    (0x3_a0b0, 0xffff_f03f),
    (0x3_a058, 0x10f8),
    (0x3_a098, 0xffff_f03f),
    (0x3_80d8, 0xffff_f9ff),
];

/// Completion and prefetch.
const PREFETCH: [(u64, u32); 6] = [
    (0x2_0380, 0x1004),
    (0x0_0304, 0x1_0041),
    (0x0_0308, 0x4181),
    (0x2_0308, 0x4181),
    (0x0_011c, 0x1_0008),
    (0x2_011c, 0x1_0008),
];

/// Microseconds after which an access to the bus has failed.
const BUS_TIMEOUT: (u64, u32) = (0x3_a300, 100_000_000);

/// What differs between the generations.
struct Recipe {
    /// Beats of a data read.
    beats: u32,
    /// Source side: accesses in flight.
    tx_in_flight: u32,
    /// Destination side: reads in flight.
    rx_in_flight: u32,
    /// Destination side: a second word of writes in flight.
    rx_writes_more: Option<u32>,
    /// Where the DMA side block lies in the engine's block; none if it lies outside.
    side_in_block: Option<u64>,
    /// A further word of the DMA side block.
    side_more: Option<(u64, u32)>,
    /// What a compute engine's DMA side block gets before everything else.
    side_first: &'static [(u64, u32)],
    /// Errors abort transfers, without a limit on time.
    aborts: bool,
    /// A compute engine keeps quiet about a descriptor of another lap.
    quiet_ring_id: bool,
}

const V2: Recipe = Recipe {
    beats: 1024,
    // A reserved AXI id leaves fewer: 111 data reads, 8 descriptor reads.
    tx_in_flight: 0x86f,
    rx_in_flight: 0x0040_0008,
    rx_writes_more: None,
    side_in_block: None,
    side_more: None,
    side_first: &[(0x100, 0xffff), (0x104, 0xffff)],
    aborts: true,
    quiet_ring_id: false,
};

const V3: Recipe = Recipe {
    beats: 2296,
    tx_in_flight: 0x2080_8080,
    rx_in_flight: 0x0040_0080,
    rx_writes_more: None,
    side_in_block: Some(0x4_0000),
    side_more: Some((0x800, 0x26)),
    side_first: &[],
    aborts: false,
    quiet_ring_id: true,
};

const V4: Recipe = Recipe {
    rx_writes_more: Some(256),
    ..V3
};

/// Programs an engine; false if the device has no such engine. `again` if it was programmed before.
pub(super) fn bring_up(
    port: &dyn Port,
    profile: &ArchProfile,
    engine: EngineId,
    again: bool,
) -> bool {
    let recipe = match profile.arch {
        Arch::V2 => &V2,
        Arch::V3 => &V3,
        Arch::V4 => &V4,
    };
    let Some(start) = profile.engine_block(engine) else {
        return false;
    };
    let block = Block { port, start };
    let beyond = profile
        .side_block(engine)
        .map(|start| Block { port, start });
    let side = match recipe.side_in_block {
        Some(offset) => start.checked_add(offset).map(|start| Block { port, start }),
        None => beyond,
    };
    let is_compute = engine.get() < profile.h2t_engine_first;

    if let Some(side) = side.filter(|_| is_compute) {
        side.set_all(recipe.side_first);
    }
    write_queue_modes(port, profile, engine, again);
    write_limits(block, recipe);
    block.set_all(&INTERRUPTS);
    block.set_all(&PREFETCH);
    if let Some(side) = side {
        side.set_all(&SIDE_ENABLE);
        side.set_all(recipe.side_more.as_slice());
    }
    if recipe.aborts {
        write_aborts(block);
    }
    if let Some(beyond) = beyond.filter(|_| is_compute && recipe.quiet_ring_id) {
        quieten_ring_id(block, beyond);
    }
    true
}

/// The first bring-up knows nothing of a queue's configuration and sets the enabling bits alone.
fn write_queue_modes(port: &dyn Port, profile: &ArchProfile, engine: EngineId, again: bool) {
    let mode = if again {
        QUEUE_ENABLED
    } else {
        QUEUE_ENABLE_BITS
    };
    for number in 0..QUEUES_PER_ENGINE {
        for direction in Direction::BOTH {
            let queue = QueueId::new(engine, number);
            if let Some(at) = QueueReg::Cfg.at(profile, queue, direction) {
                port.reg_write(at, mode);
            }
        }
    }
}

/// Sizes, what is in flight at most, and which queue may do what.
fn write_limits(block: Block<'_>, recipe: &Recipe) {
    let permissions = |bank: u64| {
        let banks = (0..u64::from(QUEUES_PER_ENGINE)).map(move |queue| queue * PERMISSIONS_STRIDE);
        banks.map(move |queue| PERMISSIONS + queue + 4 * bank)
    };
    block.set_all(&[
        (0x0_0310, recipe.beats | 0x100 << 16),
        (0x0_0124, recipe.tx_in_flight),
        BUS_TIMEOUT,
        (0x0_0408, 0),
        (0x0_0254, 0x010f_ffff),
        (0x0_0258, 0x102),
    ]);
    for at in permissions(0) {
        block.set(at, u32::MAX);
    }
    block.set_all(&[(0x0_0118, 0x1_0008), (0x2_038c, 0)]);
    for first in permissions(1) {
        block.set_all(&[first, first + 4, first + 8].map(|at| (at, u32::MAX)));
    }
    block.set_all(&[(0x2_0124, recipe.rx_in_flight), (0x2_0128, 0x4080_4080)]);
    if let Some(more) = recipe.rx_writes_more {
        block.set(0x2_012c, more);
    }
    block.change(0x3_b460, |spare| spare & !1);
}

/// Whatever goes wrong in one of the engine's memories or on the bus ends the transfer.
fn write_aborts(block: Block<'_>) {
    for unit in 0..12 {
        let at = 0x3_a900 + 0x20 * unit;
        block.set_all(&[(at + 4, 0xf), (at + 8, 0xf), (at + 12, 0xf)]);
    }
    for pair in 0..6 {
        let at = 0x3_ab00 + 8 * pair;
        for entry in 0..16 {
            block.set_all(&[(at, 8 * entry + 7), (at + 4, 0x10)]);
        }
    }
    for group in 0..6 {
        let at = 0x3_ad00 + 0x100 * group;
        block.set_all(&[(at + 0x28, 0x28), (at + 0x30, 0), (at + 0x18, 0)]);
    }
    block.set(BUS_TIMEOUT.0, u32::MAX);
}

/// No error is told for a descriptor of another lap, on either side.
fn quieten_ring_id(block: Block<'_>, masks: Block<'_>) {
    const TX: u32 = 1 << 17;
    const RX: u32 = 1 << 11;
    block.change(0x3_a010, |mask| mask | TX);
    block.set(0x3_a030, TX);
    block.change(0x3_a050, |mask| mask | RX);
    block.set(0x3_a070, RX);
    masks.change(0x90, |mask| mask | 1 << 11);
    masks.change(0xd0, |mask| mask | 1 << 2);
    block.change(0x0_020c, |mask| mask | TX);
    block.change(0x2_020c, |mask| mask | RX);
}

/// Registers that lie together.
#[derive(Clone, Copy)]
struct Block<'a> {
    port: &'a dyn Port,
    start: RegOffset,
}

impl Block<'_> {
    fn set(self, offset: u64, value: u32) {
        if let Some(at) = self.start.checked_add(offset) {
            self.port.reg_write(at, value);
        }
    }

    fn set_all(self, writes: &[(u64, u32)]) {
        for &(offset, value) in writes {
            self.set(offset, value);
        }
    }

    fn change(self, offset: u64, change: impl FnOnce(u32) -> u32) {
        if let Some(at) = self.start.checked_add(offset) {
            self.port.reg_write(at, change(self.port.reg_read(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use glia_abi::port::{BadBar4Range, Budget, TimedOut};
    use glia_abi::sync::AtomicU32;

    use super::*;

    /// Registers that read as 0, and what was done to them.
    #[derive(Default)]
    struct Recorder {
        reads: Mutex<u32>,
        writes: Mutex<Vec<(u64, u32)>>,
    }

    impl Port for Recorder {
        fn reg_read(&self, _at: RegOffset) -> u32 {
            *self.reads.lock().unwrap() += 1;
            0
        }

        fn reg_write(&self, at: RegOffset, value: u32) {
            self.writes.lock().unwrap().push((at.get(), value));
        }

        fn bar4_write(&self, _offset: u64, _bytes: &[u8]) -> Result<(), BadBar4Range> {
            Ok(())
        }

        fn await_word(
            &self,
            _queue: QueueId,
            _word: &AtomicU32,
            _want: u32,
            _budget: Budget,
        ) -> Result<u64, TimedOut> {
            Ok(1)
        }
    }

    /// Reads, and writes in order.
    fn accesses(arch: Arch, engine: u32, again: bool) -> (u32, Vec<(u64, u32)>) {
        let recorder = Recorder::default();
        let id = EngineId::new(engine);
        assert!(bring_up(&recorder, arch.profile(), id, again));
        let reads = *recorder.reads.lock().unwrap();
        (reads, recorder.writes.into_inner().unwrap())
    }

    /// FNV-1a over offset and value of all writes, 32 bits each.
    fn hash(writes: &[(u64, u32)]) -> u64 {
        let words = writes
            .iter()
            .flat_map(|(at, value)| [u32::try_from(*at).unwrap(), *value]);
        words
            .flat_map(u32::to_le_bytes)
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
    }

    /// The numbers were recorded from driver 2.24.7.
    #[test]
    fn an_engine_gets_the_registers_of_the_reference_in_its_order() {
        let told = |arch, engine| {
            let (reads, writes) = accesses(arch, engine, false);
            (reads, writes.len(), hash(&writes))
        };
        assert_eq!(told(Arch::V2, 32), (1, 377, 0xf837_f1c5_960c_5c84));
        assert_eq!(told(Arch::V2, 0), (1, 379, 0x8bcd_09c3_3d4f_9a70));
        assert_eq!(told(Arch::V3, 128), (1, 131, 0xf116_a02e_a0cc_d184));
        assert_eq!(told(Arch::V3, 0), (7, 139, 0x72a7_42c1_d615_c484));
    }

    #[test]
    fn an_engine_that_was_programmed_before_finds_its_queues_enabled() {
        let (_, first) = accesses(Arch::V3, 0, false);
        let (_, again) = accesses(Arch::V3, 0, true);
        let changed: Vec<_> = first.iter().zip(&again).filter(|(a, b)| a != b).collect();
        assert_eq!(changed.len(), 32);
        for ((at, before), (again_at, after)) in changed {
            assert_eq!((at, *before, *after), (again_at, 0x0003_0000, 0x0303_0000));
        }
    }

    #[test]
    fn the_fourth_generation_has_one_register_more() {
        let (_, third) = accesses(Arch::V3, 40, false);
        let (_, fourth) = accesses(Arch::V4, 40, false);
        let more: Vec<_> = fourth
            .iter()
            .filter(|write| !third.contains(write))
            .collect();
        assert_eq!(more, [&(0x9482_012c, 256)]);
        assert_eq!(fourth.len(), third.len() + 1);
    }

    #[test]
    fn an_engine_that_the_device_lacks_is_left_alone() {
        let recorder = Recorder::default();
        let profile = Arch::V2.profile();
        assert!(!bring_up(&recorder, profile, EngineId::new(34), false));
        assert_eq!(*recorder.writes.lock().unwrap(), []);
    }
}
