//! What a machine holds for its processes: all that one can leave behind.

use std::collections::BTreeSet;

use glia::machine::{Machine, Process};
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, EngineId, Fd, McHandle, Pid, QUEUES_PER_ENGINE, QueueId};
use glia_abi::insight::PoolSnapshot;
use glia_abi::ioctl::{self, DmaQueueInit, GetAsyncH2tDmaComplQueues, H2tDmaAllocQueues, NeuronDs};
use glia_abi::mem::Location;
use glia_abi::transport::{Lent, OpenMode, Transport};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use glia_driver::memory::{ChannelStats, ListLengths};

/// Handles that are looked up; nobody here has more.
const HANDLES: u32 = 1 << 14;
/// Descriptors of a ring, which fill a quarter of a page.
pub(crate) const DESCS: u32 = 64;

/// The books of a device, its driver's and the host's.
#[derive(Debug, PartialEq)]
pub(crate) struct Books {
    pub(crate) host_bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) chunks: u64,
    held: (u64, u64),
    pinned_bytes: u64,
    channels: Vec<ChannelStats>,
    lists: ListLengths,
    pools: PoolSnapshot,
    /// Slot, process and count of opens.
    attached: Vec<(u32, u32, u32)>,
    handles: BTreeSet<u32>,
    /// Who has which core.
    marks: Vec<Option<Pid>>,
    /// Queues that somebody has set up, and who.
    queues: Vec<(QueueId, Pid)>,
    /// Queues that somebody has asked for.
    requested: Vec<(QueueId, Pid)>,
    locks: Vec<(CoreId, Pid)>,
    /// Cores that somebody initialises.
    initialising: Vec<(CoreId, Pid)>,
    datastore: Vec<Pid>,
}

impl Books {
    pub(crate) fn of(machine: &Machine, device: DeviceId) -> Self {
        let driver = machine.driver();
        let (memory, dma) = (driver.memory(device).unwrap(), driver.dma(device).unwrap());
        let stats = memory.stats();
        let profile = machine.arch().profile();
        let cores = || (0..profile.cores).map(CoreId::new);
        let numbers = 0..QUEUES_PER_ENGINE;
        let all = (0..profile.engines)
            .map(EngineId::new)
            .flat_map(|engine| (0..QUEUES_PER_ENGINE).map(move |number| (engine, number)));
        let queues = all.filter_map(|(engine, number)| {
            let queue = QueueId::new(engine, number);
            Some((queue, dma.queue_owner(queue)?))
        });
        let requested = cores()
            .flat_map(|core| numbers.clone().map(move |number| (core, number)))
            .filter_map(|(core, number)| {
                let (queue, requested) = dma.requested_queue(core, number)?;
                Some((queue, requested.owner))
            });
        let is_live = |number: &u32| memory.find(McHandle::new(*number).unwrap()).is_some();
        Self {
            host_bytes: stats.host_bytes,
            device_bytes: stats.device_bytes,
            chunks: stats.chunks,
            held: (stats.held_chunks, stats.held_bytes),
            pinned_bytes: machine.host().pinned_bytes(),
            channels: stats.channels,
            lists: stats.lists,
            // That something was there once is not left behind.
            pools: PoolSnapshot {
                births: 0,
                ..memory.insight()
            },
            attached: stats
                .processes
                .iter()
                .map(|it| (it.slot.get(), it.pid.get(), it.open_count))
                .collect(),
            handles: (1..HANDLES).filter(is_live).collect(),
            marks: cores()
                .map(|core| driver.core_holder(device, core))
                .collect(),
            queues: queues.collect(),
            requested: requested.collect(),
            locks: driver.lock_holders(device),
            initialising: driver.initialising(device),
            datastore: driver.datastore_owners(device),
        }
    }
}

/// A command with its struct: what the struct holds afterwards.
pub(crate) fn send<T>(process: &Process, fd: Fd, word: u32, argument: T) -> Result<T, Errno>
where
    T: FromBytes + IntoBytes + Immutable,
{
    send_with(process, fd, word, argument, &mut [])
}

/// The same with buffers to which the struct's pointers lead.
pub(crate) fn send_with<T>(
    process: &Process,
    fd: Fd,
    word: u32,
    mut argument: T,
    lent: &mut [Lent<'_>],
) -> Result<T, Errno>
where
    T: FromBytes + IntoBytes + Immutable,
{
    process.ioctl(fd, word, argument.as_mut_bytes(), lent)?;
    Ok(argument)
}

/// Takes a chunk of channel 0: its handle and its address.
pub(crate) fn take(
    process: &Process,
    fd: Fd,
    location: Location,
    size: u64,
) -> Result<(u64, u64), Errno> {
    let (mut handle, mut pa) = ([0; 8], [0; 8]);
    let argument = ioctl::MemAllocV2Mt64 {
        size,
        host_memory: u32::from(location == Location::Host),
        mem_type: match location {
            Location::Host => 2,
            Location::Device => 9,
        },
        mem_handle: glia_abi::transport::user_addr(&handle).get(),
        ..Default::default()
    };
    let word = ioctl::MEM_ALLOC_V2MT64;
    send_with(process, fd, word, argument, &mut [Lent::Out(&mut handle)])?;
    let mem_handle = u64::from_ne_bytes(handle);
    let argument = ioctl::MemGetPa {
        mem_handle,
        pa: glia_abi::transport::user_addr(&pa).get(),
    };
    send_with(
        process,
        fd,
        ioctl::MEM_GET_PA,
        argument,
        &mut [Lent::Out(&mut pa)],
    )?;
    Ok((mem_handle, u64::from_ne_bytes(pa)))
}

/// Sets a queue up with two rings in host memory: their handles.
pub(crate) fn set_up_queue(
    process: &Process,
    fd: Fd,
    eng: u32,
    qid: u32,
) -> Result<[u64; 2], Errno> {
    let ring = || take(process, fd, Location::Host, 4096);
    let ((tx_handle, _), (rx_handle, _)) = (ring()?, ring()?);
    let argument = DmaQueueInit {
        eng,
        qid,
        tx_desc_count: DESCS,
        rx_desc_count: DESCS,
        tx_handle,
        rx_handle,
        ..DmaQueueInit::default()
    };
    send(process, fd, ioctl::DMA_QUEUE_INIT, argument)?;
    Ok([tx_handle, rx_handle])
}

/// Asks for a queue of a core's copy engine.
pub(crate) fn ask_for_queue(process: &Process, fd: Fd, core: u16) -> Result<u32, Errno> {
    let argument = H2tDmaAllocQueues {
        size: 20,
        nc_id: core,
        copy_cnt: 1,
        ..H2tDmaAllocQueues::default()
    };
    let given = send(process, fd, ioctl::H2T_DMA_ALLOC_QUEUES, argument)?;
    Ok(given.copy_bmap)
}

/// Takes an entry of the datastore.
pub(crate) fn enter_datastore(process: &Process, fd: Fd) -> Result<NeuronDs, Errno> {
    send(process, fd, ioctl::ACQUIRE_NEURON_DS, NeuronDs::default())
}

/// Has the driver make all that it makes when it is first needed, and keeps: entries of the datastore
/// for sixteen processes, the ring of dead queues, completion queues.
pub(crate) fn make_what_stays(machine: &Machine, device: DeviceId) {
    let all: Vec<_> = (900_001..=900_016)
        .filter_map(|pid| {
            let process = machine.process(Pid::new(pid));
            // There may be fewer slots.
            let fd = process.open(device, OpenMode::ReadWrite).ok()?;
            enter_datastore(&process, fd).unwrap();
            Some((process, fd))
        })
        .collect();
    let (process, fd) = &all[0];
    set_up_queue(process, *fd, 5, 2).unwrap();
    for nc_id in 0..machine.arch().profile().cores {
        let own = machine
            .arch()
            .profile()
            .h2t_queue(CoreId::new(nc_id))
            .unwrap();
        let argument = GetAsyncH2tDmaComplQueues {
            nc_id,
            qid_bitmap: 1 << own.number,
            ..GetAsyncH2tDmaComplQueues::default()
        };
        // V2 has none.
        let _ = send(
            process,
            *fd,
            ioctl::GET_ASYNC_H2T_DMA_COMPL_QUEUES,
            argument,
        );
    }
    for (process, _) in all {
        process.kill();
    }
}
