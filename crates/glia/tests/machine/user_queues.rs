//! Queues that a process sets up and rings by itself, on the real engine in every mode: the bytes
//! arrive, whatever the engine's time and order.

use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::addr::BusAddr;
use glia_abi::arch::Scale;
use glia_abi::handle::{DeviceId, Fd, Pid};
use glia_abi::ioctl::{
    self, DmaAckCompleted, DmaCopyDescriptors64, DmaQueueCopyStart, DmaQueueGetState,
    DmaQueueState, MemBufCopy64,
};
use glia_abi::mem::Location;
use glia_abi::sched::{Micros, Poll};
use glia_abi::transport::{Lent, OpenMode, Transport, user_addr};
use glia_abi::udma::{Barrier, RingId, Transfer};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::books::{Books, DESCS, make_what_stays, send, send_with, set_up_queue, take};

const DEVICE: DeviceId = DeviceId::new(0);
const ENGINE: u32 = 5;
const PIECE: u64 = 5000;
const PIECES: u32 = 12;
const SIZE: u64 = PIECE * PIECES as u64;

struct Program {
    process: Arc<Process>,
    fd: Fd,
    queue: u32,
    rings: [u64; 2],
    /// The next slot of the rings, and which lap it is in.
    next: u32,
}

impl Program {
    fn new(machine: &Machine, pid: u32, queue: u32) -> Self {
        let process = machine.process(Pid::new(pid));
        let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
        let rings = set_up_queue(&process, fd, ENGINE, queue).unwrap();
        Self {
            process,
            fd,
            queue,
            rings,
            next: 0,
        }
    }

    fn bytes(&self, mem_handle: u64, bytes: &mut [u8], to_chunk: bool) {
        let argument = MemBufCopy64 {
            mem_handle,
            buffer: user_addr(bytes).get(),
            size: bytes.len() as u64,
            copy_to_mem_handle: u32::from(to_chunk),
            ..MemBufCopy64::default()
        };
        let lent = &mut [Lent::Out(bytes)];
        send_with(
            &self.process,
            self.fd,
            ioctl::MEM_BUF_COPY64,
            argument,
            lent,
        )
        .unwrap();
    }

    /// Writes a pair of descriptors into the next slot.
    fn put(&mut self, from: u64, to: u64) {
        let transfer = Transfer {
            source: BusAddr::new(from),
            target: BusAddr::new(to),
            size_bytes: PIECE,
            barrier: Barrier::None,
        };
        let lap = (0..self.next / DESCS).fold(RingId::FIRST, |lap, _| lap.next());
        let (tx, rx) = transfer.descriptors(lap, lap).unwrap();
        let sides = self.rings.into_iter().zip([tx.to_words(), rx.to_words()]);
        for (queue_type, (mem_handle, words)) in (0..).zip(sides) {
            let argument = DmaCopyDescriptors64 {
                mem_handle,
                buffer: user_addr(words.as_bytes()).get(),
                num_descs: 1,
                offset: u64::from(self.next % DESCS) * 16,
                queue_type,
                ..DmaCopyDescriptors64::default()
            };
            let lent = &mut [Lent::In(words.as_bytes())];
            let word = ioctl::DMA_COPY_DESCRIPTORS64;
            send_with(&self.process, self.fd, word, argument, lent).unwrap();
        }
        self.next += 1;
    }

    fn ring(&self, count: u32) {
        let argument = DmaQueueCopyStart {
            eng: ENGINE,
            qid: self.queue,
            tx_desc_count: count,
            rx_desc_count: count,
        };
        send(
            &self.process,
            self.fd,
            ioctl::DMA_QUEUE_COPY_START,
            argument,
        )
        .unwrap();
    }

    /// Waits until the engine is where the last doorbell sent it, and says so to the driver.
    fn finish(&self, machine: &Machine, count: u32) {
        let sched = machine.sched();
        let on = sched.wait_on();
        while self.head() != self.next % DESCS {
            sched.block(on, &mut || Poll::Pending, Some(Micros(20)));
        }
        let argument = DmaAckCompleted {
            eng: ENGINE,
            qid: self.queue,
            count,
        };
        send(&self.process, self.fd, ioctl::DMA_ACK_COMPLETED, argument).unwrap();
    }

    fn head(&self) -> u32 {
        let mut sides = [[0; size_of::<DmaQueueState>()]; 2];
        let [tx, rx] = &mut sides;
        let argument = DmaQueueGetState {
            eng: ENGINE,
            qid: self.queue,
            tx: user_addr(tx).get(),
            rx: user_addr(rx).get(),
        };
        let lent = &mut [Lent::Out(tx), Lent::Out(rx)];
        send_with(
            &self.process,
            self.fd,
            ioctl::DMA_QUEUE_GET_STATE,
            argument,
            lent,
        )
        .unwrap();
        DmaQueueState::read_from_bytes(&sides[1]).unwrap().head
    }
}

/// Pieces in reverse, by rings that go round several times; all ways between host memory and HBM.
fn moves(machine: &Machine, program: &mut Program) {
    let places = [Location::Host, Location::Device];
    for from in places {
        for to in places {
            let (process, fd) = (&program.process, program.fd);
            let (source, source_at) = take(process, fd, from, SIZE).unwrap();
            let (target, target_at) = take(process, fd, to, SIZE).unwrap();
            let value = |at: u64| (at ^ at >> 8 ^ u64::from(program.next)).to_le_bytes()[0];
            let mut bytes: Vec<u8> = (0..SIZE).map(value).collect();
            program.bytes(source, &mut bytes, true);
            for _ in 0..3 {
                for piece in 0..u64::from(PIECES) {
                    let mirrored = SIZE - PIECE - piece * PIECE;
                    program.put(source_at + piece * PIECE, target_at + mirrored);
                }
                // In two doorbells.
                program.ring(PIECES - 5);
                program.ring(5);
                program.finish(machine, PIECES);
            }
            let mut found = vec![0; bytes.len()];
            program.bytes(target, &mut found, false);
            let chunks = bytes.chunks(usize::try_from(PIECE).unwrap());
            let expected: Vec<u8> = chunks.rev().flatten().copied().collect();
            assert!(found == expected, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn a_queue_of_a_process_moves_its_bytes_in_every_mode_of_the_engine() {
    let modes = [
        SchedMode::Inline,
        SchedMode::THREADED,
        SchedMode::Virtual { seed: 1 },
        SchedMode::Virtual { seed: 2 },
    ];
    for model in Model::ALL {
        for mode in modes {
            let config = MachineConfig {
                scale: Scale::RegionSize {
                    size_bytes: 64 << 20,
                },
                ..MachineConfig::new(model).with_mode(mode)
            };
            let machine = Machine::new(config).unwrap();
            make_what_stays(&machine, DEVICE);
            let before = Books::of(&machine, DEVICE);
            let mut programs =
                [(7, 2), (8, 3)].map(|(pid, queue)| Program::new(&machine, pid, queue));
            for program in &mut programs {
                moves(&machine, program);
            }
            drop(programs);
            assert_eq!(Books::of(&machine, DEVICE), before, "{model:?} {mode:?}");
        }
    }
}
