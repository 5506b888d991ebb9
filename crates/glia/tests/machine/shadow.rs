//! A chunk of which every byte is known: whatever its process asks for, and whatever comes of it, the
//! chunk holds what the commands that succeeded have put there, and so does the user's memory.

use std::sync::Arc;

use glia::machine::Process;
use glia_abi::chance::Chance;
use glia_abi::errno::Errno;
use glia_abi::handle::Fd;
use glia_abi::ioctl::{
    self, Crwl, DmaAckCompleted, DmaCopyDescriptors64, DmaDescriptorCopyout, DmaQueueCopyStart,
    H2tDmaFreeQueues, HbmScrubStart, HbmScrubWait, MemBufCopy64, MemBufZerocopy64,
    MemBufZerocopy64Batches, MemCopy64, MemCopyAsync64, MemCopyAsyncWait, Memset64, ProgramEngine,
    ProgramEngineNc, ProgramEngineNc64, ZerocopyBatch, ZerocopyOp,
};
use glia_abi::mem::Location;
use glia_abi::transport::{Mapping, Transport, UserBuffer};
use zerocopy::IntoBytes;

use crate::books::{ask_for_queue, send, set_up_queue, take};
use crate::fuzz::KEPT_QUEUE;

/// A command word, and how it was answered.
pub(crate) type Sent = (u32, Result<(), Errno>);

const SIZE: u64 = 8192;

/// The chunk, and the user memory that is copied to it and from it.
pub(crate) struct Shadow {
    pub(crate) mem_handle: u64,
    at: u64,
    /// What it has to hold.
    bytes: Vec<u8>,
    map: Arc<dyn Mapping>,
    /// As large as the chunk; batches and their pieces lie behind that.
    user: Arc<dyn UserBuffer>,
}

/// What is asked for.
struct Range {
    offset: u64,
    size: u64,
}

impl Range {
    /// `None` if it leaves the chunk.
    fn indices(&self) -> Option<std::ops::Range<usize>> {
        let end = self.offset.checked_add(self.size)?;
        let index = |at: u64| usize::try_from(at).unwrap();
        (end <= SIZE).then(|| index(self.offset)..index(end))
    }
}

impl Shadow {
    pub(crate) fn new(process: &Process, fd: Fd) -> Self {
        let (mem_handle, at) = take(process, fd, Location::Device, SIZE).unwrap();
        let map = process.mmap(fd, at, SIZE).unwrap();
        let bytes = vec![0x5a; usize::try_from(SIZE).unwrap()];
        map.write(0, &bytes).unwrap();
        Self {
            mem_handle,
            at,
            bytes,
            map,
            user: process.buffer(2 * SIZE).unwrap(),
        }
    }

    /// Whether the chunk is still there: it goes when its process closes the device.
    pub(crate) fn is_alive(&self) -> bool {
        self.map.read(0, &mut [0]).is_ok()
    }

    /// Sends a command of the chunk, with a range that may be one of `wild`, and looks at all bytes.
    pub(crate) fn step(
        &mut self,
        process: &Process,
        fd: Fd,
        wild: [u64; 2],
        chance: &mut Chance,
    ) -> Vec<Sent> {
        let offset = match chance.below(8) {
            0 => wild[0],
            _ => chance.below(SIZE),
        };
        let size = match chance.below(8) {
            0 => wild[1],
            1 => chance.below(SIZE + 2),
            _ => 1 + chance.below(SIZE - offset.min(SIZE - 1)),
        };
        let range = Range { offset, size };
        let data: Vec<u8> = (0..SIZE / 8)
            .flat_map(|_| chance.number().to_le_bytes())
            .collect();
        self.user.write(0, &data).unwrap();
        let sent = match chance.below(6) {
            0 => vec![self.fill(process, fd, &range, chance)],
            1 => vec![self.program(process, fd, &range, &data, chance)],
            2 => vec![self.copy_inside(process, fd, &range, chance)],
            3 => self.copy_async(process, fd, &range, chance),
            _ => vec![self.copy_user(process, fd, &range, data, chance)],
        };
        let mut found = vec![0; self.bytes.len()];
        self.map.read(0, &mut found).unwrap();
        assert!(found == self.bytes, "{sent:x?}: {offset:#x}, {size:#x}");
        sent
    }

    fn fill(&mut self, process: &Process, fd: Fd, range: &Range, chance: &mut Chance) -> Sent {
        let value = chance.number().to_le_bytes()[0];
        let argument = Memset64 {
            mem_handle: self.mem_handle,
            offset: range.offset,
            value: value.into(),
            pad: 0,
            size: range.size,
        };
        let answer = send(process, fd, ioctl::MEMSET64, argument).map(drop);
        if answer.is_ok() {
            self.bytes[range.indices().unwrap()].fill(value);
        }
        (ioctl::MEMSET64, answer)
    }

    /// By its address, where what leaves the chunk would be somebody else's by right.
    fn program(
        &mut self,
        process: &Process,
        fd: Fd,
        range: &Range,
        data: &[u8],
        chance: &mut Chance,
    ) -> Sent {
        let offset = range.offset.min(SIZE);
        let range = Range {
            offset,
            size: range.size.min(SIZE - offset),
        };
        // (The offset counts on both sides.)
        let (dst, buffer) = (self.at, self.user.address().get());
        let [size32, offset32] = [range.size, offset].map(|it| u32::try_from(it).unwrap());
        let (word, answer) = match chance.below(3) {
            0 => {
                let argument = ProgramEngine {
                    dst,
                    buffer,
                    size: size32,
                    offset: offset32,
                };
                let word = ioctl::PROGRAM_ENGINE;
                (word, send(process, fd, word, argument).map(drop))
            }
            1 => {
                let argument = ProgramEngineNc {
                    nc_id: 1,
                    pad: 0,
                    dst,
                    buffer,
                    size: size32,
                    offset: offset32,
                };
                let word = ioctl::PROGRAM_ENGINE_NC;
                (word, send(process, fd, word, argument).map(drop))
            }
            _ => {
                let argument = ProgramEngineNc64 {
                    nc_id: 1,
                    pad: 0,
                    dst,
                    buffer,
                    size: range.size,
                    offset,
                };
                let word = ioctl::PROGRAM_ENGINE_NC64;
                (word, send(process, fd, word, argument).map(drop))
            }
        };
        if answer.is_ok() {
            let at = range.indices().unwrap();
            self.bytes[at.clone()].copy_from_slice(&data[at]);
        }
        (word, answer)
    }

    fn copy_inside(
        &mut self,
        process: &Process,
        fd: Fd,
        range: &Range,
        chance: &mut Chance,
    ) -> Sent {
        let target = Range {
            offset: chance.below(SIZE),
            size: range.size,
        };
        if overlap(range, &target) {
            return self.fill(process, fd, range, chance);
        }
        let argument = MemCopy64 {
            src: self.mem_handle,
            dst: self.mem_handle,
            size: range.size,
            src_offset: range.offset,
            dst_offset: target.offset,
        };
        let answer = send(process, fd, ioctl::MEM_COPY64, argument).map(drop);
        if answer.is_ok() {
            self.moved(range, &target);
        }
        (ioctl::MEM_COPY64, answer)
    }

    fn copy_async(
        &mut self,
        process: &Process,
        fd: Fd,
        range: &Range,
        chance: &mut Chance,
    ) -> Vec<Sent> {
        let target = Range {
            offset: chance.below(SIZE),
            size: range.size,
        };
        if overlap(range, &target) {
            return vec![self.fill(process, fd, range, chance)];
        }
        let argument = MemCopyAsync64 {
            src: self.mem_handle,
            dst: self.mem_handle,
            size: range.size,
            src_offset: range.offset,
            dst_offset: target.offset,
            pwait: ioctl::wait_handle::NONE,
            ..MemCopyAsync64::default()
        };
        let word = ioctl::MEM_COPY_ASYNC64;
        let begun = match send(process, fd, word, argument) {
            Ok(begun) => begun,
            Err(errno) => return vec![(word, Err(errno))],
        };
        let argument = MemCopyAsyncWait {
            src: self.mem_handle,
            dst: self.mem_handle,
            pwait: begun.wait,
            pad: 0,
        };
        let wait = ioctl::MEM_COPY_ASYNC_WAIT;
        send(process, fd, wait, argument).unwrap();
        self.moved(range, &target);
        vec![(word, Ok(())), (wait, Ok(()))]
    }

    fn moved(&mut self, from: &Range, to: &Range) {
        let target = to.indices().unwrap();
        self.bytes
            .copy_within(from.indices().unwrap(), target.start);
    }

    /// From user memory or to it.
    fn copy_user(
        &mut self,
        process: &Process,
        fd: Fd,
        range: &Range,
        mut data: Vec<u8>,
        chance: &mut Chance,
    ) -> Sent {
        let to_device = chance.below(2);
        let (word, answer) = match chance.below(3) {
            0 => {
                let argument = MemBufCopy64 {
                    mem_handle: self.mem_handle,
                    buffer: self.user.address().get(),
                    size: range.size,
                    offset: range.offset,
                    copy_to_mem_handle: u32::try_from(to_device).unwrap(),
                    pad: 0,
                };
                let word = ioctl::MEM_BUF_COPY64;
                (word, send(process, fd, word, argument).map(drop))
            }
            1 => {
                let argument = MemBufZerocopy64 {
                    mem_handle: self.mem_handle,
                    buffer: self.user.address().get(),
                    size: range.size,
                    offset: range.offset,
                    is_copy_to_device: u32::try_from(to_device).unwrap(),
                    h2t_qid: -1,
                    ..MemBufZerocopy64::default()
                };
                let word = ioctl::MEM_BUF_ZEROCOPY64;
                (word, send(process, fd, word, argument).map(drop))
            }
            _ => self.batch(process, fd, range, to_device, chance),
        };
        if answer.is_ok() {
            let at = range.indices().unwrap();
            let size = at.len();
            match to_device {
                0 => data[..size].copy_from_slice(&self.bytes[at]),
                _ => self.bytes[at].copy_from_slice(&data[..size]),
            }
        }
        let mut found = vec![0; data.len()];
        self.user.read(0, &mut found).unwrap();
        assert!(found == data, "{word:#x}: {answer:?}, {to_device}");
        (word, answer)
    }

    /// One batch of one piece or two.
    fn batch(
        &self,
        process: &Process,
        fd: Fd,
        range: &Range,
        to_device: u64,
        chance: &mut Chance,
    ) -> Sent {
        let cut = chance.below(range.size.max(1));
        let base = chance.below(range.offset.max(1));
        let user = self.user.address().get();
        let offset = range.offset - base;
        let piece = |offset, size, buffer| ZerocopyOp {
            offset,
            size,
            buffer,
        };
        let ops = [
            piece(offset, cut, user),
            piece(
                offset.wrapping_add(cut),
                range.size - cut,
                user.wrapping_add(cut),
            ),
        ];
        // A piece of no bytes would be refused.
        let ops = match cut {
            0 => &ops[1..],
            _ => &ops[..],
        };
        let batch = ZerocopyBatch {
            mem_handle: self.mem_handle,
            mem_handle_offset: base,
            ops_ptr: user + SIZE + 64,
            num_ops: u32::try_from(ops.len()).unwrap(),
            bar4_wr_threshold: u16::try_from(chance.below(2) * 4096).unwrap(),
            ..ZerocopyBatch::default()
        };
        self.user.write(SIZE, batch.as_bytes()).unwrap();
        self.user.write(SIZE + 64, ops.as_bytes()).unwrap();
        let argument = MemBufZerocopy64Batches {
            batches: user + SIZE,
            num_batches: 1,
            is_copy_to_device: u16::try_from(to_device).unwrap(),
            h2t_qid: -1,
            ..MemBufZerocopy64Batches::default()
        };
        let word = ioctl::MEM_BUF_ZEROCOPY64_BATCHES;
        (word, send(process, fd, word, argument).map(drop))
    }
}

fn overlap(one: &Range, other: &Range) -> bool {
    one.offset.abs_diff(other.offset) < one.size
}

/// Commands that are good for something only one after the other: those of a model's lock, of a queue
/// of the process, of a queue of a copy engine.
pub(crate) fn chain(process: &Process, fd: Fd, chance: &mut Chance) -> Vec<Sent> {
    let number = |below, chance: &mut Chance| u32::try_from(chance.below(below)).unwrap();
    match chance.below(4) {
        0 => {
            let argument = Crwl {
                nc_id: number(4, chance),
                uuid: [chance.number().to_le_bytes()[0]; 32],
            };
            let words = [
                ioctl::CRWL_WRITER_ENTER,
                ioctl::CRWL_WRITER_DOWNGRADE,
                ioctl::CRWL_READER_ENTER,
                ioctl::CRWL_READER_EXIT,
            ];
            words
                .map(|word| (word, send(process, fd, word, argument).map(drop)))
                .into()
        }
        1 => {
            let (eng, qid) = (number(8, chance), number(KEPT_QUEUE, chance));
            let start = DmaQueueCopyStart {
                eng,
                qid,
                tx_desc_count: 1,
                rx_desc_count: 1,
            };
            let ack = DmaAckCompleted { eng, qid, count: 1 };
            // Descriptors of no length, of which the engine says that they are none.
            let buffer = process.buffer(64).unwrap();
            let read = DmaDescriptorCopyout {
                eng,
                qid,
                count: 1 + number(4, chance),
                buffer: buffer.address().get(),
                ..DmaDescriptorCopyout::default()
            };
            let rings = match set_up_queue(process, fd, eng, qid) {
                Ok(rings) => rings,
                Err(errno) => return vec![(ioctl::DMA_QUEUE_INIT, Err(errno))],
            };
            let descs = DmaCopyDescriptors64 {
                mem_handle: rings[0],
                buffer: buffer.address().get(),
                num_descs: 1 + number(4, chance),
                ..DmaCopyDescriptors64::default()
            };
            let [word_write, word_start, word_ack, word_read] = [
                ioctl::DMA_COPY_DESCRIPTORS64,
                ioctl::DMA_QUEUE_COPY_START,
                ioctl::DMA_ACK_COMPLETED,
                ioctl::DMA_DESCRIPTOR_COPYOUT,
            ];
            vec![
                (ioctl::DMA_QUEUE_INIT, Ok(())),
                (word_write, send(process, fd, word_write, descs).map(drop)),
                (word_start, send(process, fd, word_start, start).map(drop)),
                (word_ack, send(process, fd, word_ack, ack).map(drop)),
                (word_read, send(process, fd, word_read, read).map(drop)),
            ]
        }
        2 => {
            let start = HbmScrubStart {
                hbm_index: 1,
                ..HbmScrubStart::default()
            };
            let wait = HbmScrubWait {
                hbm_index: 1,
                ..HbmScrubWait::default()
            };
            let [word_start, word_wait] = [ioctl::HBM_SCRUB_START, ioctl::HBM_SCRUB_WAIT];
            vec![
                (word_start, send(process, fd, word_start, start).map(drop)),
                (word_wait, send(process, fd, word_wait, wait).map(drop)),
            ]
        }
        _ => {
            let core = u16::try_from(chance.below(2)).unwrap();
            let given = ask_for_queue(process, fd, core);
            let word = ioctl::H2T_DMA_ALLOC_QUEUES;
            let mut sent = vec![(word, given.map(drop))];
            if let (Ok(queue_bmap), true) = (given, chance.below(2) == 0) {
                let argument = H2tDmaFreeQueues {
                    nc_id: u8::try_from(core).unwrap(),
                    queue_bmap,
                    ..H2tDmaFreeQueues::default()
                };
                let word = ioctl::H2T_DMA_FREE_QUEUES;
                sent.push((word, send(process, fd, word, argument).map(drop)));
            }
            sent
        }
    }
}
