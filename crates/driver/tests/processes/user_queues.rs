//! Queues that processes set up, fill and ring by commands, on engines that take their time, that
//! write in weak order, and that work on threads of their own.

use std::sync::Arc;

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::ioctl::DmaQueueInit;
use glia_abi::sched::{Micros, Sched};
use glia_abi::udma::{Barrier, RingId, Transfer};
use glia_device::{ThreadedSched, VirtualSched};

use crate::client::{device_memory, host_memory};
use crate::queue_rig::{ENGINE, QUEUE, Rings};
use crate::support::{PAGE, Plan, Rig};

/// Pairs for data; one more is the marker.
const PAIRS: u64 = 8;
const PIECE: u64 = 3000;
const SIZE: u64 = PAIRS * PIECE;
const MARK: &[u8; 4] = b"done";
/// Looks for a marker until a test gives up.
const LOOKS_MAX: u32 = 10_000_000;

/// A process with a queue, and what it moves.
struct Mover<'a> {
    rig: &'a Rig,
    rings: Rings<'a>,
    queue: (u32, u32),
    source: u64,
    target: u64,
    /// Where the marker is read from and written to.
    marker: (u64, u64),
}

impl<'a> Mover<'a> {
    fn new(rig: &'a Rig, pid: u32, queue: (u32, u32)) -> Self {
        let rings = Rings::new(rig, pid);
        let (client, file) = (&rings.client, rings.file);
        let pa = |handle| client.get_pa(file, handle).unwrap();
        let host = |size| pa(client.alloc(file, host_memory(size)).unwrap());
        let (source, markers) = (host(8 * PAGE), host(PAGE));
        let target = pa(client.alloc(file, device_memory(8 * PAGE)).unwrap());
        let marker = (markers, markers + 64);
        Self {
            rig,
            rings,
            queue,
            source,
            target,
            marker,
        }
    }

    /// Sets the queue up, fills both rings from their first slots on, and rings.
    fn begin(&self, content: &[u8]) {
        let (eng, qid) = self.queue;
        let rings = &self.rings;
        let request = DmaQueueInit {
            eng,
            qid,
            ..rings.request()
        };
        rings.init(request).unwrap();
        self.rig.poke(self.source, content);
        self.rig.poke(self.marker.0, MARK);
        self.rig.poke(self.marker.1, &[0; 4]);
        let data = (0..PAIRS).map(|number| {
            let is_last = number == PAIRS - 1;
            Transfer {
                source: BusAddr::new(self.source + number * PIECE),
                target: BusAddr::new(self.target + number * PIECE),
                size_bytes: PIECE,
                barrier: match is_last {
                    true => Barrier::Write,
                    false => Barrier::None,
                },
            }
        });
        let marker = Transfer {
            source: BusAddr::new(self.marker.0),
            target: BusAddr::new(self.marker.1),
            size_bytes: 4,
            barrier: Barrier::None,
        };
        let pairs = data.chain([marker]).map(|transfer| {
            let pair = transfer.descriptors(RingId::FIRST, RingId::FIRST);
            let (tx, rx) = pair.unwrap();
            (tx.to_words(), rx.to_words())
        });
        let (tx, rx): (Vec<_>, Vec<_>) = pairs.unzip();
        rings.write(rings.tx, 0, &tx).unwrap();
        rings.write(rings.rx, 1, &rx).unwrap();
        let descs = tx.len() as u32;
        rings.start(eng, qid, descs, descs).unwrap();
    }

    fn has_marker(&self) -> bool {
        self.rig.peek(self.marker.1, 4) == MARK
    }

    /// Waits for the marker: whether all bytes are there when it is.
    fn ends_well(&self, content: &[u8], mut wait: impl FnMut()) -> bool {
        let mut looks = 0;
        while !self.has_marker() {
            looks += 1;
            assert!(looks < LOOKS_MAX, "no marker");
            wait();
        }
        self.rig.peek(self.target, SIZE as usize) == content
    }

    fn heads(&self) -> [u32; 2] {
        let sides = self.rings.state(self.queue.0, self.queue.1).unwrap();
        sides.map(|side| side.head)
    }
}

fn content(seed: u64) -> Vec<u8> {
    (0..SIZE)
        .map(|at| ((at * 31 + seed * 7) % 251) as u8)
        .collect()
}

#[test]
fn an_engine_that_takes_its_time_moves_what_a_process_has_rung_for_and_no_more() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan {
            has_timing: true,
            ..Plan::of(arch)
        });
        let mover = Mover::new(&rig, 7, (ENGINE, QUEUE));
        mover.begin(&content(1));
        assert!(!mover.has_marker(), "{arch}: it takes time");
        assert!(mover.ends_well(&content(1), || rig.pass(Micros(1))));
        rig.pass(Micros(1000));
        let descs = PAIRS as u32 + 1;
        assert_eq!(mover.heads(), [descs; 2]);
        let behind = rig.peek(mover.target + SIZE, 64);
        assert_eq!(behind, [0; 64], "{arch}: nothing behind the target");
    }
}

#[test]
fn a_barrier_holds_the_marker_of_a_process_back_until_its_bytes_are_there() {
    for arch in Arch::ALL {
        for seed in 0..20 {
            let rig = Rig::with(Plan {
                has_timing: true,
                weak: Some(seed),
                ..Plan::of(arch)
            });
            let mover = Mover::new(&rig, 7, (ENGINE, QUEUE));
            for round in 0..3 {
                let content = content(seed + round);
                mover.begin(&content);
                let is_right = mover.ends_well(&content, || rig.pass(Micros(1)));
                assert!(is_right, "{arch}, seed {seed}, round {round}");
            }
        }
    }
}

#[test]
fn processes_in_virtual_time_move_their_own_bytes_on_queues_of_one_engine() {
    for seed in 0..10 {
        let sched = Arc::new(VirtualSched::new(seed));
        let rig = Rig::with(Plan {
            has_timing: true,
            weak: Some(seed),
            sched: Arc::clone(&sched) as Arc<dyn Sched>,
            ..Plan::of(Arch::V3)
        });
        let life = |number: u32| {
            let (rig, sched) = (&rig, &sched);
            move || {
                let mover = Mover::new(rig, 7 + number, (ENGINE, number));
                for round in 0..4 {
                    let content = content(u64::from(number) * 10 + round);
                    mover.begin(&content);
                    assert!(mover.ends_well(&content, || sched.pause()));
                }
                mover.rings.client.close(mover.rings.file);
            }
        };
        let lives = (0..3).map(|number| Box::new(life(number)) as _);
        let run = sched.run(lives.collect());
        assert!(run.is_ok(), "seed {seed}: {run:?}");
        assert_eq!(rig.memory().stats().held_chunks, 0);
    }
}

#[test]
fn processes_on_threads_move_their_own_bytes_beside_each_other() {
    for arch in Arch::ALL {
        let rig = Rig::with(Plan {
            sched: Arc::new(ThreadedSched::new(2).unwrap()),
            ..Plan::of(arch)
        });
        std::thread::scope(|scope| {
            // Two queues of one engine, and one of another.
            for (number, queue) in [(1, (ENGINE, 1)), (2, (ENGINE, 2)), (3, (ENGINE + 1, 1))] {
                let rig = &rig;
                scope.spawn(move || {
                    let mover = Mover::new(rig, 7 + number, queue);
                    for round in 0..50 {
                        let content = content(u64::from(number) * 100 + round);
                        mover.begin(&content);
                        assert!(mover.ends_well(&content, std::thread::yield_now));
                    }
                    mover.rings.client.close(mover.rings.file);
                });
            }
        });
        assert_eq!(rig.memory().stats().held_chunks, 0);
    }
}
