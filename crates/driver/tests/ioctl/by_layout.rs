//! Arguments that are put together from what the table of commands says of their fields, so that a
//! command which the table gets is a command that these tests have: an unknown field fails them.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::insight::PoolSnapshot;
use glia_abi::ioctl::{
    self, Argument, COMMANDS, Command, Field, Flow, Kind, Layout, ZerocopyBatch, ZerocopyOp,
};
use glia_driver::memory::MemoryStats;
use zerocopy::IntoBytes;

use crate::client::{Client, NOWHERE, device_memory, host_memory};
use crate::queue_rig::{DESCS, ENGINE, QUEUE};
use crate::support::{PAGE, Rig};

/// Bytes that each chunk has.
pub(crate) const SIZE: u64 = 2 * PAGE;
/// Bytes that a good command moves.
pub(crate) const MOVED: u64 = 16;

/// Commands of the table whose struct is known and which are not built.
const NOT_BUILT: [u32; 4] = [
    ioctl::MEM_BUF_ZEROCOPY64_2_24,
    ioctl::DMABUF_FD,
    ioctl::NC_MODEL_STARTED_COUNT,
    ioctl::GET_VA_PLACEMENT,
];

/// The commands that are built and have a struct.
pub(crate) fn commands() -> impl Iterator<Item = (&'static Command, &'static Layout)> {
    let built = |command: &&Command| !NOT_BUILT.contains(&command.word);
    let with_struct = |command: &'static Command| match command.argument {
        Argument::Struct(layout) => Some((command, layout)),
        Argument::Nothing | Argument::NotCovered => None,
    };
    COMMANDS.iter().filter(built).filter_map(with_struct)
}

/// The commands that go before one that is to be in order.
pub(crate) fn before(word: u32) -> &'static [u32] {
    match word {
        ioctl::MEM_COPY_ASYNC_WAIT => &[ioctl::MEM_COPY_ASYNC64],
        ioctl::DMA_QUEUE_COPY_START => &[ioctl::DMA_QUEUE_INIT],
        ioctl::DMA_ACK_COMPLETED => &[ioctl::DMA_QUEUE_INIT, ioctl::DMA_QUEUE_COPY_START],
        ioctl::DMA_DESCRIPTOR_COPYOUT => &[ioctl::DMA_QUEUE_INIT],
        ioctl::HBM_SCRUB_WAIT => &[ioctl::HBM_SCRUB_START],
        ioctl::H2T_DMA_FREE_QUEUES => &[ioctl::H2T_DMA_ALLOC_QUEUES],
        ioctl::CRWL_WRITER_DOWNGRADE => &[ioctl::CRWL_WRITER_ENTER],
        ioctl::CRWL_READER_ENTER | ioctl::CRWL_READER_EXIT => {
            &[ioctl::CRWL_WRITER_ENTER, ioctl::CRWL_WRITER_DOWNGRADE]
        }
        _ => &[],
    }
}

/// A field that the caller fills, and where it is in the bytes of the command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filled {
    pub(crate) field: &'static Field,
    pub(crate) at: usize,
}

/// The fields that the caller fills; those of the first entry that follows the struct, too.
pub(crate) fn filled(layout: &'static Layout) -> Vec<Filled> {
    let of = |layout: &'static Layout, base: usize| {
        layout.fields.iter().map(move |field| Filled {
            field,
            at: base + field.offset,
        })
    };
    let tail = layout.tail.filter(|tail| tail.capacity.is_some());
    let entries = tail.map(|tail| of(tail.entry, layout.size_bytes));
    of(layout, 0)
        .chain(entries.into_iter().flatten())
        .filter(|it| it.field.flow != Flow::Out || matches!(it.field.kind, Kind::Pointer))
        .collect()
}

impl Filled {
    pub(crate) fn is_handle(&self) -> bool {
        matches!(self.field.kind, Kind::Handle)
    }

    pub(crate) fn is_offset(&self) -> bool {
        matches!(self.field.kind, Kind::Size) && self.field.name.contains("offset")
    }

    /// Bits of the number that it holds.
    pub(crate) fn bits(&self) -> u32 {
        8 * self.field.element_size_bytes as u32
    }

    pub(crate) fn set(&self, bytes: &mut [u8], value: u64) {
        let size_bytes = self.field.element_size_bytes;
        bytes[self.at..self.at + size_bytes].copy_from_slice(&value.to_le_bytes()[..size_bytes]);
    }
}

/// Two processes with chunks full of bytes: one that sends commands, and its victim.
pub(crate) struct Scene<'a> {
    pub(crate) rig: &'a Rig,
    pub(crate) client: Client<'a>,
    pub(crate) file: FileId,
    /// One in host memory and one in HBM.
    pub(crate) own: [u64; 2],
    /// Address and bytes of all chunks.
    bytes: Vec<(u64, Vec<u8>)>,
    _victim: (Client<'a>, FileId),
}

/// What a command may have changed.
#[derive(Debug, PartialEq)]
pub(crate) struct Books {
    stats: MemoryStats,
    pools: PoolSnapshot,
    bytes: Vec<Vec<u8>>,
    owner: Option<u32>,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(rig: &'a Rig) -> Self {
        let victim = Client::attached(rig, 9);
        let (client, file) = Client::attached(rig, 7);
        let mut bytes = Vec::new();
        let mut take = |client: &Client<'_>, file, request| {
            let handle = client.alloc(file, request).unwrap();
            let at = client.get_pa(file, handle).unwrap();
            let pattern: Vec<u8> = (0..SIZE)
                .map(|byte| (byte ^ at >> 12 ^ byte >> 8) as u8)
                .collect();
            rig.port.poke(glia_abi::addr::BusAddr::new(at), &pattern);
            bytes.push((at, pattern));
            handle
        };
        // Theirs lie on both sides of its own.
        let requests = [host_memory(SIZE), device_memory(SIZE)];
        for request in requests {
            take(&victim.0, victim.1, request);
        }
        let own = requests.map(|request| take(&client, file, request));
        for request in requests {
            take(&victim.0, victim.1, request);
        }
        Self {
            rig,
            client,
            file,
            own,
            bytes,
            _victim: victim,
        }
    }

    pub(crate) fn address(&self, handle: u64) -> u64 {
        self.client.get_pa(self.file, handle).unwrap()
    }

    /// The bytes of a command that is in order, but for the user memory of zero copies, which is not
    /// there: this test's processes have none that a device could reach.
    pub(crate) fn good(&self, command: &Command, layout: &'static Layout) -> Vec<u8> {
        let mut bytes = vec![0; layout.full_size_bytes()];
        for filled in filled(layout) {
            filled.set(&mut bytes, self.value(command, &filled));
        }
        bytes
    }

    fn value(&self, command: &Command, filled: &Filled) -> u64 {
        let [host, device] = self.own;
        let is_zero_copy = command.word == ioctl::MEM_BUF_ZEROCOPY64;
        match (filled.field.name, filled.field.kind) {
            ("tx_handle" | "rx_handle" | "src", Kind::Handle) => host,
            ("rxc_handle", Kind::Handle) => 0,
            ("mem_handle" | "dst", Kind::Handle) => device,
            ("dst", Kind::Address) => self.address(device),
            ("pa", Kind::Address) => self.address(device),
            ("buffer", Kind::Pointer) if is_zero_copy => NOWHERE,
            ("batches", Kind::Pointer) => self.batch(),
            ("buffer", Kind::Pointer) if command.word == ioctl::PRINTK => {
                self.client.space.put(b"fifteen letters\0")
            }
            ("data", Kind::Pointer) => self.client.space.put(&[0; 4096]),
            // Descriptors that name address 0, which is HBM, are in order.
            (_, Kind::Pointer) => self.client.space.put(&[0; 64]),
            ("size", Kind::Size) => MOVED,
            ("host_prefetch_addr", _) => 0,
            (name, Kind::Size) if name.contains("offset") => 0,
            ("align" | "bar4_wr_threshold", Kind::Size) => 0,
            ("pwait", Kind::Wait) if command.word == ioctl::MEM_COPY_ASYNC_WAIT => {
                ioctl::wait_handle::ASYNC1.into()
            }
            ("pwait", Kind::Wait) => ioctl::wait_handle::NONE.into(),
            ("eng", Kind::Number) => ENGINE.into(),
            ("qid", Kind::Number) => QUEUE.into(),
            ("tx_desc_count" | "rx_desc_count", Kind::Number) => DESCS.into(),
            ("num_descs" | "count" | "copy_to_mem_handle" | "is_copy_to_device", _) => 1,
            ("num_batches", _) => 1,
            // All chunks are in channel 0.
            ("hbm_index", _) => 1,
            ("num_entries_in", _) => 64,
            ("h2t_qid", Kind::Signed) => u64::MAX,
            ("state" | "nc_count", Kind::Number) => 1,
            (_, Kind::Number | Kind::Bits | Kind::Signed | Kind::Opaque | Kind::Pad) => 0,
            (_, Kind::Structs(_)) => 0,
            (name, kind) => unreachable!("{}: no value for {name}, {kind:?}", command.name),
        }
    }

    /// A batch of one piece.
    fn batch(&self) -> u64 {
        let op = ZerocopyOp {
            offset: 0,
            size: MOVED,
            buffer: NOWHERE,
        };
        let batch = ZerocopyBatch {
            mem_handle: self.own[1],
            ops_ptr: self.client.space.put(op.as_bytes()),
            num_ops: 1,
            ..ZerocopyBatch::default()
        };
        self.client.space.put(batch.as_bytes())
    }

    /// Sends what a command needs to have gone before.
    pub(crate) fn begin(&self, command: &Command) {
        // There are no descriptors in its rings.
        self.rig.port.set_lazy(true);
        for &word in before(command.word) {
            let (command, layout) = commands().find(|(it, _)| it.word == word).unwrap();
            self.send(word, &self.good(command, layout)).unwrap();
        }
    }

    pub(crate) fn send(&self, word: u32, bytes: &[u8]) -> Result<(), Errno> {
        let at = self.client.space.put(bytes);
        self.client.raw_ioctl(self.file, word, at).map(drop)
    }

    pub(crate) fn books(&self) -> Books {
        let peek = |(at, _): &(u64, _)| {
            let at = glia_abi::addr::BusAddr::new(*at);
            self.rig.port.peek(at, SIZE)
        };
        let queue = glia_abi::handle::QueueId::new(glia_abi::handle::EngineId::new(ENGINE), QUEUE);
        let dma = self.rig.driver.dma(crate::support::ND0).unwrap();
        Books {
            stats: self.rig.memory().stats(),
            pools: self.rig.memory().insight(),
            bytes: self.bytes.iter().map(peek).collect(),
            owner: dma.queue_owner(queue).map(glia_abi::handle::Pid::get),
        }
    }

    /// Handles of nobody.
    pub(crate) fn bad_handles(&self, arch: Arch) -> Vec<u64> {
        let stale = self.client.alloc(self.file, device_memory(SIZE)).unwrap();
        self.client.free(self.file, stale).unwrap();
        // One of another device, where there are more chunks.
        let other = Rig::new(arch);
        let (stranger, file) = Client::attached(&other, 7);
        let foreign = (0..20)
            .map(|_| stranger.alloc(file, device_memory(PAGE)).unwrap())
            .max();
        let [host, device] = self.own;
        let bad = vec![
            0,
            stale,
            stale + 1,
            foreign.unwrap(),
            0x5eed_f00d,
            host | 1 << 32,
            device | 1 << 63,
            self.address(device),
            u64::from(u32::MAX),
            u64::from(u32::MAX) + 1,
            i64::MAX as u64,
            u64::MAX,
        ];
        for &handle in &bad {
            let known = self.client.get_pa(self.file, handle);
            assert_eq!(known, Err(Errno::EINVAL), "{handle:#x}");
        }
        bad
    }
}
