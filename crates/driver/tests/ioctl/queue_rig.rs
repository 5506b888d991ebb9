//! A process with a queue of its own: two rings of 64 descriptors in host memory.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{
    self, DmaCopyDescriptors64, DmaQueueCopyStart, DmaQueueGetState, DmaQueueInit, DmaQueueState,
};
use glia_abi::udma::{Barrier, RingId, Transfer};
use zerocopy::{FromBytes, IntoBytes};

use crate::client::{Client, host_memory};
use crate::support::{PAGE, Rig};

pub(crate) const ARCHES: [Arch; 3] = [Arch::V2, Arch::V3, Arch::V4];
/// A compute engine of every generation, and a queue of it that is nobody's by rule.
pub(crate) const ENGINE: u32 = 5;
pub(crate) const QUEUE: u32 = 2;
/// Descriptors of a ring, which fill a quarter of a page.
pub(crate) const DESCS: u32 = 64;

/// A process with two chunks for rings.
pub(crate) struct Rings<'a> {
    pub(crate) client: Client<'a>,
    pub(crate) file: FileId,
    pub(crate) tx: u64,
    pub(crate) rx: u64,
}

impl<'a> Rings<'a> {
    pub(crate) fn new(rig: &'a Rig, pid: u32) -> Self {
        let (client, file) = Client::attached(rig, pid);
        let ring = || client.alloc(file, host_memory(PAGE)).unwrap();
        let (tx, rx) = (ring(), ring());
        Self {
            client,
            file,
            tx,
            rx,
        }
    }

    /// What sets the queue up.
    pub(crate) fn request(&self) -> DmaQueueInit {
        DmaQueueInit {
            eng: ENGINE,
            qid: QUEUE,
            tx_desc_count: DESCS,
            rx_desc_count: DESCS,
            tx_handle: self.tx,
            rx_handle: self.rx,
            ..DmaQueueInit::default()
        }
    }

    pub(crate) fn init(&self, request: DmaQueueInit) -> Result<(), Errno> {
        let done = self.client.ioctl(self.file, ioctl::DMA_QUEUE_INIT, request);
        done.map(drop)
    }

    pub(crate) fn start(&self, eng: u32, qid: u32, tx: u32, rx: u32) -> Result<(), Errno> {
        let argument = DmaQueueCopyStart {
            eng,
            qid,
            tx_desc_count: tx,
            rx_desc_count: rx,
        };
        let done = self
            .client
            .ioctl(self.file, ioctl::DMA_QUEUE_COPY_START, argument);
        done.map(drop)
    }

    /// A queue as `DMA_QUEUE_GET_STATE` tells it, TX and RX.
    pub(crate) fn state(&self, eng: u32, qid: u32) -> Result<[DmaQueueState; 2], Errno> {
        let sides = [(); 2].map(|()| self.client.space.put(&[0; size_of::<DmaQueueState>()]));
        let argument = DmaQueueGetState {
            eng,
            qid,
            tx: sides[0],
            rx: sides[1],
        };
        self.client
            .ioctl(self.file, ioctl::DMA_QUEUE_GET_STATE, argument)?;
        Ok(sides.map(|at| DmaQueueState::read_from_bytes(&self.client.space.get(at)).unwrap()))
    }

    /// Has the driver write descriptors into a ring.
    pub(crate) fn write(
        &self,
        mem_handle: u64,
        queue_type: u32,
        descs: &[[u32; 4]],
    ) -> Result<(), Errno> {
        let argument = DmaCopyDescriptors64 {
            mem_handle,
            buffer: self.client.space.put(descs.as_bytes()),
            num_descs: descs.len() as u32,
            queue_type,
            ..DmaCopyDescriptors64::default()
        };
        let done = self
            .client
            .ioctl(self.file, ioctl::DMA_COPY_DESCRIPTORS64, argument);
        done.map(drop)
    }

    /// Writes a transfer into the first slot of both rings.
    pub(crate) fn write_transfer(&self, from: u64, to: u64, size_bytes: u64) {
        let (tx, rx) = descriptors(from, to, size_bytes);
        self.write(self.tx, 0, &[tx]).unwrap();
        self.write(self.rx, 1, &[rx]).unwrap();
    }
}

/// The pair of descriptors of the first lap that moves some bytes.
pub(crate) fn descriptors(from: u64, to: u64, size_bytes: u64) -> ([u32; 4], [u32; 4]) {
    let transfer = Transfer {
        source: BusAddr::new(from),
        target: BusAddr::new(to),
        size_bytes,
        barrier: Barrier::None,
    };
    let (tx, rx) = transfer.descriptors(RingId::FIRST, RingId::FIRST).unwrap();
    (tx.to_words(), rx.to_words())
}
