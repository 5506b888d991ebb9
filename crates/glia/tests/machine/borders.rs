//! Copies whose sizes and offsets lie around the borders of pages, descriptors and batches: every
//! byte arrives, and those around the target stay as they are.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model};
use glia_abi::chance::Chance;
use glia_abi::handle::{Channel, CoreId, DeviceId, McHandle, Pid};
use glia_abi::mem::Location;
use glia_abi::transport::Mapping;
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device, Transfer, WaitHandle};

const PAGE: u64 = 4096;
const DESC: u64 = 65_536;
/// 2,032 descriptors of 64 KiB.
const BATCH: u64 = 127 << 20;
/// What lies on each side of the target.
const GUARD: [u8; 128] = [0xa5; 128];
const MARGIN: u64 = GUARD.len() as u64;

/// Random numbers that are the same in every run.
struct Dice(Chance);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0.number()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Up to 3 bytes from a border, either way.
    fn near(&mut self, border: u64) -> u64 {
        (border + self.below(7)).saturating_sub(3)
    }
}

/// A chunk, and its bytes as the processor sees them.
struct Memory {
    chunk: McHandle,
    bytes: Arc<dyn Mapping>,
}

impl Memory {
    fn new(device: &Device, location: Location, core: u32, size_bytes: u64) -> Self {
        let core = CoreId::new(core);
        let spec = ChunkSpec {
            size_bytes,
            align_bytes: 0,
            location,
            channel: match location {
                Location::Device => device.profile().default_channel(core),
                Location::Host => Channel::new(0),
            },
            core,
            category: match location {
                Location::Device => Category::TENSORS_DEVICE,
                Location::Host => Category::UNKNOWN_HOST,
            },
        };
        let chunk = device.allocate(&spec).unwrap();
        let bytes = device.map(chunk, size_bytes).unwrap();
        Self { chunk, bytes }
    }
}

/// Bytes of which no two words are alike, piece by piece: the offset of each, and its bytes.
fn pattern(size_bytes: u64, seed: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    const PIECE: u64 = 1 << 20;
    (0..size_bytes.div_ceil(PIECE)).map(move |number| {
        let offset = number * PIECE;
        let piece_bytes = PIECE.min(size_bytes - offset);
        let mut bytes = vec![0; usize::try_from(piece_bytes).unwrap()];
        for (word, bytes) in (offset / 8 + 1..).zip(bytes.chunks_mut(8)) {
            let word = word.wrapping_mul(seed | 1).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        (offset, bytes)
    })
}

fn read(bytes: &dyn Mapping, offset: u64, size: usize) -> Vec<u8> {
    let mut read = vec![0; size];
    bytes.read(offset, &mut read).unwrap();
    read
}

#[derive(Debug, Clone, Copy)]
struct Move {
    size_bytes: u64,
    /// Of the source and of the target, the latter at least `MARGIN`.
    offsets: (u64, u64),
    asynchronous: bool,
    seed: u64,
}

fn check(device: &Device, source: &Memory, target: &Memory, it: Move) {
    let (from, to) = it.offsets;
    for (offset, piece) in pattern(it.size_bytes, it.seed) {
        source.bytes.write(from + offset, &piece).unwrap();
    }
    let (before, after) = (to - MARGIN, to + it.size_bytes);
    for at in [before, after] {
        target.bytes.write(at, &GUARD).unwrap();
    }
    let transfer = Transfer {
        source: source.chunk,
        target: target.chunk,
        size_bytes: it.size_bytes,
        source_offset_bytes: from,
        target_offset_bytes: to,
    };
    if it.asynchronous {
        let copy = device.copy_async(&transfer, WaitHandle::None).unwrap();
        device.copy_wait(source.chunk, target.chunk, copy).unwrap();
    } else {
        device.copy(&transfer).unwrap();
    }
    for (offset, sent) in pattern(it.size_bytes, it.seed) {
        let arrived = read(&*target.bytes, to + offset, sent.len());
        if sent != arrived {
            let wrong = sent.iter().zip(&arrived).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "from byte {offset} of {it:?}");
        }
    }
    for at in [before, after] {
        assert_eq!(read(&*target.bytes, at, GUARD.len()), GUARD, "{it:?}");
    }
}

fn on_every_generation(test: impl Fn(&Device, u32)) {
    for model in Model::ALL {
        let machine = Machine::new(MachineConfig::new(model)).unwrap();
        let device = Device::open(machine.process(Pid::new(7)), DeviceId::new(0)).unwrap();
        test(&device, machine.arch().profile().cores - 1);
    }
}

#[test]
fn copies_around_pages_and_descriptors_are_exact_in_every_direction() {
    const COPIES: usize = 240;
    const CHUNK: u64 = 6 * DESC;
    on_every_generation(|device, last_core| {
        let mut dice = Dice(Chance::new(device.profile().host_base));
        let memories = [
            Memory::new(device, Location::Host, 0, CHUNK),
            Memory::new(device, Location::Host, last_core, CHUNK),
            Memory::new(device, Location::Device, 0, CHUNK),
            Memory::new(device, Location::Device, last_core, CHUNK),
        ];
        for number in 0..COPIES {
            // All twelve pairs in turn.
            let (source, target) = (number % 4, (number + 1 + number / 4 % 3) % 4);
            let border = [1, PAGE, DESC, 2 * DESC][usize::try_from(dice.below(4)).unwrap()];
            let offset = |dice: &mut Dice| {
                let which = usize::try_from(dice.below(4)).unwrap();
                dice.near([MARGIN, PAGE, DESC, 2 * DESC][which]) + 3
            };
            let it = Move {
                size_bytes: dice.near(border).max(1),
                offsets: (offset(&mut dice), offset(&mut dice)),
                asynchronous: dice.below(2) == 1,
                seed: dice.roll(),
            };
            check(device, &memories[source], &memories[target], it);
        }
    });
}

#[test]
fn copies_around_a_full_batch_are_exact_in_every_direction() {
    const CHUNK: u64 = BATCH + 2 * PAGE;
    on_every_generation(|device, last_core| {
        let mut dice = Dice(Chance::new(device.profile().engines.into()));
        let [host, hbm] = [Location::Host, Location::Device];
        for (from, to, size_bytes, asynchronous) in [
            (host, hbm, BATCH + 3, false),
            (hbm, hbm, BATCH + 1, false),
            (hbm, host, BATCH, true),
            (host, host, BATCH - 3, true),
        ] {
            let source = Memory::new(device, from, 0, CHUNK);
            let target = Memory::new(device, to, last_core, CHUNK);
            let it = Move {
                size_bytes,
                offsets: (dice.near(PAGE), dice.near(PAGE)),
                asynchronous,
                seed: dice.roll(),
            };
            check(device, &source, &target, it);
            device.free(source.chunk).unwrap();
            device.free(target.chunk).unwrap();
        }
    });
}
