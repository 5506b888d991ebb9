//! The bytes arrive, all of them, and no others.

use proptest::prelude::*;

use glia_abi::mem::Location;
use glia_driver::dma::{DmaError, Place, WaitHandle};

use crate::machine::HBM_SIZE;
use crate::rig::{PID, Rig, hbm, pattern};

#[test]
fn a_copy_of_zero_bytes_does_nothing() {
    let rig = Rig::new();
    let before = rig.queue();
    rig.up(0, 0).unwrap();
    rig.dma.fill(PID, hbm(0), 0, 1).unwrap();
    assert_eq!(rig.queue(), before);
    assert_eq!(rig.doorbells(), []);
}

#[test]
fn host_memory_is_filled_without_the_engine() {
    let rig = Rig::new();
    rig.dma.fill(PID, rig.host(5), 1000, 0xab).unwrap();
    assert_eq!(rig.machine.load(rig.host(5).at, 1000), vec![0xab; 1000]);
    assert_eq!(rig.doorbells(), []);
    let mut nowhere = hbm(0);
    nowhere.location = Location::Host;
    let at = nowhere.at;
    assert_eq!(
        rig.dma.fill(PID, nowhere, 8, 0),
        Err(DmaError::NotHost { at })
    );
}

#[test]
fn memory_is_filled_up_to_the_last_byte_and_not_beyond() {
    let rig = Rig::new();
    for size in [1, 65_535, 65_536, 65_537, 131_072, 300_001] {
        rig.machine.state().hbm.fill(0);
        rig.dma.fill(PID, hbm(3), size, 0xc3).unwrap();
        let state = rig.machine.state();
        let (start, end) = (3, 3 + size as usize);
        assert!(state.hbm[start..end].iter().all(|&byte| byte == 0xc3));
        assert!(
            state.hbm[..start]
                .iter()
                .chain(&state.hbm[end..])
                .all(|&byte| byte == 0)
        );
    }
}

/// One step of the property: a copy between two places of a window.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: (Location, u64),
    to: (Location, u64),
    size_bytes: u64,
    asynchronous: bool,
}

const WINDOW: u64 = 512 << 10;

fn any_place() -> impl Strategy<Value = (Location, u64)> {
    let location = prop_oneof![Just(Location::Host), Just(Location::Device)];
    (location, 0..WINDOW)
}

fn any_step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![8 => 0..300_u64, 1 => 0..WINDOW / 2];
    (any_place(), any_place(), size, any::<bool>()).prop_map(|(from, to, size, asynchronous)| {
        let room = WINDOW - from.1.max(to.1);
        // Halves that do not meet, so that source and target never overlap.
        Step {
            from,
            to: (to.0, to.1 + WINDOW),
            size_bytes: size.min(room),
            asynchronous,
        }
    })
}

/// The model: two arrays of bytes.
struct Model {
    host: Vec<u8>,
    hbm: Vec<u8>,
}

impl Model {
    fn bytes(&mut self, location: Location) -> &mut Vec<u8> {
        match location {
            Location::Host => &mut self.host,
            Location::Device => &mut self.hbm,
        }
    }

    fn copy(&mut self, step: &Step) {
        let range = |offset: u64| offset as usize..(offset + step.size_bytes) as usize;
        let moved = self.bytes(step.from.0)[range(step.from.1)].to_vec();
        self.bytes(step.to.0)[range(step.to.1)].copy_from_slice(&moved);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Many small copies, so that the ring laps, against plain arrays.
    #[test]
    fn copies_over_many_laps_move_what_a_byte_model_moves(
        steps in prop::collection::vec(any_step(), 1..40),
        laps in 1..4_u32,
    ) {
        let rig = Rig::new();
        let both = 2 * WINDOW as usize;
        let mut model = Model { host: pattern(1, both), hbm: pattern(2, both) };
        rig.machine.store(rig.host(0).at, &model.host);
        rig.machine.store(hbm(0).at, &model.hbm);
        let place = |(location, offset): (Location, u64)| -> Place {
            match location {
                Location::Host => rig.host(offset),
                Location::Device => hbm(offset),
            }
        };
        // Start near the end of a lap.
        (0..laps * 4096 - 20).for_each(|_| rig.up(2 * WINDOW, 1).unwrap());
        let mut previous = WaitHandle::None;
        for step in &steps {
            let (source, target) = (place(step.from), place(step.to));
            if step.asynchronous {
                previous = rig.dma.copy_async(PID, source, target, step.size_bytes, previous).unwrap();
            } else {
                rig.dma.copy(PID, source, target, step.size_bytes).unwrap();
            }
            model.copy(step);
        }
        if previous != WaitHandle::None {
            rig.wait(previous).unwrap();
        }
        prop_assert_eq!(rig.machine.load(rig.host(0).at, both), model.host);
        prop_assert_eq!(rig.machine.load(hbm(0).at, both), model.hbm);
        let queue = rig.queue();
        prop_assert_eq!(queue.available, 8176);
        prop_assert_eq!(u64::from(queue.next), queue.announced % 8192);
    }
}

const _: () = assert!(2 * WINDOW < HBM_SIZE);
