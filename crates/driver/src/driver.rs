//! The driver's front door: open, ioctl, mmap, flush and release, for all devices of a machine.
//!
//! ```text
//!   open ──► Files ──────────► FileId                        attaches the process
//!   ioctl ─► dispatch.rs ────► ioctl/*.rs ──► memory, dma    moves chunks and bytes
//!   mmap ──► mmap.rs ────────► MapGrant                      pins the chunk
//!   flush ─► sweeps what dies with the process, then its mappings       (every close)
//!   release ► sweeps what lives as long as files are open               (a file's last close)
//! ```
//!
//! A caller is a [`Caller`]: a process id and its memory. Everything else about processes (their
//! descriptors, forks, exits) is told by which of these functions are called, as a kernel tells a
//! driver. A file that was opened **write-only** is of the free-access kind: it neither attaches
//! its process nor counts as open, and reaches just a few commands.
//!
//! Bring-up follows the reference: for each device handle table, pools and carveouts, then, in
//! the order of their numbers, every core's engines and DMA ring, so that placement in host memory is the same
//! in every run.
//!
//! **Locks.** One for each device, the *door*: opening and closing happen one at a time, so that
//! which close is a process's last one is settled, and what it ends is ended, before anybody opens
//! the device again. It is held across the waits of a close but for those for resets, and whoever
//! opens gives up if its process is to end. Commands do not meet it: the table of
//! files is read without a lock, those of mappings and of core claims have their own, and each
//! device's memory and rings have theirs. A command that does nothing takes none.
//!
//! **What this does not do.** It checks no memory and moves no byte; see [`memory`](crate::memory)
//! and [`dma`](crate::dma).

mod device;
mod tell;

use std::fmt;
use std::sync::Arc;

use glia_abi::addr::{BusAddr, UserAddr};
use glia_abi::errno::Errno;
use glia_abi::event::{Detail, Event, Sink};
use glia_abi::fault::Faults;
use glia_abi::handle::{CoreId, DeviceId, FileId, Pid};
use glia_abi::insight::PoolSnapshot;
use glia_abi::port::{HostMemory, MachineMemory, Port};
use glia_abi::sched::{Sched, SleepGuard, SleepLock};
use glia_abi::transport::{Caller, OpenMode};

use crate::chunk::Chunk;
use crate::claims::CoreClaims;
use crate::core_init::CoreInit;
use crate::datastore::Datastore;
use crate::dispatch;
use crate::dma::descriptors::Devices;
use crate::dma::reset::ResetOutcome;
use crate::dma::zerocopy::ZeroCopyLimits;
use crate::dma::{Dma, DmaConfig, DmaError, Platform};
use crate::files::{File, Files};
use crate::ioctl::Call;
use crate::memory::{DeviceMemory, InitError, MemoryConfig};
use crate::mmap::{self, MapGrant, MapId, MapLife, Mappings};
use crate::model_lock::ModelLocks;

pub(crate) use device::Device;

/// What a device is built from.
pub struct DeviceSetup {
    /// Its memory; [`MemoryConfig::device`] is its number.
    pub memory: MemoryConfig,
    /// Its registers.
    pub port: Arc<dyn Port>,
}

/// Why the driver could not come up. Whatever was taken meanwhile has been given back.
#[derive(Debug, thiserror::Error)]
pub enum DriverInitError {
    /// The memory of a device could not be built.
    #[error("{device} does not come up")]
    Memory {
        /// The device.
        device: DeviceId,
        /// Why not.
        #[source]
        cause: InitError,
    },
    /// A DMA ring of a device could not be set up.
    #[error("{device} does not come up: it has no DMA ring")]
    Ring {
        /// The device.
        device: DeviceId,
        /// Why not.
        #[source]
        cause: DmaError,
    },
    /// Two devices have the same number.
    #[error("{device} is there twice")]
    Twice {
        /// The number.
        device: DeviceId,
    },
}

/// The driver of a machine's devices. Shared between threads by reference.
pub struct Driver {
    devices: Vec<Device>,
    files: Files,
    mappings: Mappings,
    pub(crate) claims: CoreClaims,
    pub(crate) host: Arc<dyn MachineMemory>,
    pub(crate) sched: Arc<dyn Sched>,
    sink: Arc<dyn Sink>,
    /// Whether the sink wants to hear anything.
    is_heard: bool,
}

impl Driver {
    /// Brings all devices up.
    ///
    /// # Errors
    /// [`DriverInitError`] for the first device that does not come up.
    pub fn new(
        devices: Vec<DeviceSetup>,
        host: Arc<dyn MachineMemory>,
        sched: Arc<dyn Sched>,
        sink: Arc<dyn Sink>,
        faults: Arc<dyn Faults>,
    ) -> Result<Self, DriverInitError> {
        let mut driver = Self {
            devices: Vec::with_capacity(devices.len()),
            files: Files::new(),
            mappings: Mappings::default(),
            claims: CoreClaims::new(),
            host,
            sched,
            is_heard: sink.detail() > Detail::Nothing,
            sink,
        };
        for setup in devices {
            let device = driver.bring_up(setup, &faults)?;
            driver.devices.push(device);
        }
        Ok(driver)
    }

    /// Opens a device. Any mode but write-only attaches the process to it, and waits while the whole
    /// device is being reset, and while a close of it ends what its process has under way. A reset of
    /// cores is not waited for, neither here nor behind a close that does.
    ///
    /// # Errors
    /// `ENOENT` if there is no such device, `EINTR` if the process is to end meanwhile, `EINVAL` if
    /// the latest reset of the device failed, `EBUSY` if all 16 attach slots are taken by others,
    /// `ENODEV` if the device has been torn down, `EMFILE` if too many files are open.
    pub fn open(
        &self,
        caller: &Caller<'_>,
        device: DeviceId,
        mode: OpenMode,
    ) -> Result<FileId, Errno> {
        self.sched.pause();
        let (number, device) = (0..)
            .zip(&self.devices)
            .find(|(_, known)| known.id == device)
            .ok_or(Errno::ENOENT)?;
        let file = File {
            device: number,
            mode,
        };
        let _for_caller = device.work_for(caller.pid, None);
        if !mode.is_free_access() {
            match device.dma.await_device(caller.killed) {
                ResetOutcome::Done => {}
                ResetOutcome::Killed => return Err(Errno::EINTR),
                ResetOutcome::Failed => return Err(Errno::EINVAL),
            }
        }
        let id = self.files.open(file).ok_or(Errno::EMFILE)?;
        if !mode.is_free_access()
            && let Err(refused) = self.attach(device, caller)
        {
            self.files.close(id);
            return Err(refused);
        }
        self.tell(&device.ids(caller), &Event::Opened);
        Ok(id)
    }

    /// Answers a command: `word` says which, `arg` is where the caller's struct lies.
    ///
    /// # Errors
    /// `EBADF` if there is no such file, otherwise the command's own; `EINVAL` for a command that
    /// is not built, or not for a file that was opened like this one.
    pub fn ioctl(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        word: u32,
        arg: UserAddr,
    ) -> Result<i32, Errno> {
        self.sched.pause();
        let (device, mode) = self.file(file)?;
        let _for_caller = device.work_for(caller.pid, Some(word));
        let call = Call {
            driver: self,
            device,
            caller,
            word,
            arg,
        };
        let answer = dispatch::answer(&call, mode);
        if self.is_heard {
            let event = Event::Ioctl {
                word,
                class: dispatch::class(word, mode),
                ret: answer.unwrap_or_else(Errno::ret),
            };
            self.tell(&device.ids(caller), &event);
        }
        answer
    }

    /// Lets the caller map a chunk. `offset` is any address in it, `size_bytes` its length; see
    /// [`mmap`].
    ///
    /// # Errors
    /// `EBADF` if there is no such file, `EACCES` if it was opened write-only, `EINVAL` for a size
    /// of 0 or an offset within a page, `ENOMEM` for a size that no address space has, `EPERM` if
    /// that is not a whole chunk.
    pub fn mmap(
        &self,
        caller: &Caller<'_>,
        file: FileId,
        offset: u64,
        size_bytes: u64,
    ) -> Result<MapGrant, Errno> {
        self.sched.pause();
        let (device, mode) = self.file(file)?;
        if mode.is_free_access() {
            return Err(Errno::EACCES);
        }
        let _for_caller = device.work_for(caller.pid, None);
        let size_bytes = mmap::page_range(offset, size_bytes)?;
        let found = device.find_for_process(BusAddr::new(offset));
        let mut pin = found
            .and_then(|(chunk, _)| device.memory.pin_owned(chunk).ok())
            .ok_or(Errno::EPERM)?;
        mmap::check_length(&mut pin, size_bytes)?;
        let at = pin.record().at();
        let writable = mode == OpenMode::ReadWrite && mmap::may_write(&pin, caller.pid);
        let map = self.mappings.add(device.id, caller.pid, pin);
        Ok(MapGrant {
            map,
            at,
            size_bytes,
            writable,
        })
    }

    /// Ends a mapping. One that has ended already, with its process, is not an error.
    pub fn munmap(&self, map: MapId) {
        self.mappings.remove(map);
    }

    /// When a mapping may be used; `None` if it has ended already.
    #[must_use]
    pub fn map_life(&self, map: MapId) -> Option<Arc<MapLife>> {
        self.mappings.life(map)
    }

    /// A process has gone, and its address space with it. Comes after the close of its descriptors
    /// and of its last call, and ends what it had without being attached: its queues, copies and
    /// scrubs, its mappings, model locks, unfinished initialisations and entries in datastores. (The
    /// reference ends these at the flush of an attached process alone: divergence
    /// `unattached-process`.) Another process may keep the files open by which it took them.
    pub fn exit(&self, process: Pid) {
        for device in &self.devices {
            let _for_process = device.work_for(process, None);
            let _door = device.door.lock(&*self.sched);
            device.end_dma(process);
            device.forget(&*self.sched, process);
        }
        self.mappings.remove_all(process);
    }

    /// A descriptor of the file is closed by `caller`. Runs on every close, of copies and of
    /// inherited descriptors, too.
    ///
    /// If the process has the device open once, resets are waited for, its DMA queues get a ring that
    /// is never filled, its asynchronous copies are waited for, and what dies with it ends: its model
    /// locks, its entry in the datastore, its chunks, then its mappings. A copy of a
    /// descriptor does not count as an open, so closing one of two copies does the same (driver
    /// 2.27). A process that is not attached ends nothing but its queues. If the file is write-only, the
    /// process gives back all cores that it has claimed; no other file does that, not even its last
    /// one (driver 2.27), so that cores which were claimed by another file stay claimed when it goes.
    pub fn flush(&self, caller: &Caller<'_>, file: FileId) {
        let Ok((device, mode)) = self.file(file) else {
            return;
        };
        let _for_caller = device.work_for(caller.pid, None);
        if mode.is_free_access() {
            self.claims.unmark_all(caller.pid);
        } else {
            let (_door, opens) = self.door_to_close(device, caller.pid);
            if opens <= 1 {
                // Queues first: nothing may be written into chunks that are about to go.
                device.end_dma(caller.pid);
            }
            if opens == 1 {
                device.forget(&*self.sched, caller.pid);
            }
            let mut gone = Vec::new();
            let flush = |chunk, record: &Chunk| gone.push((chunk, *record));
            device.memory.flush_telling(caller.pid, flush);
            self.tell_gone(device, &gone);
            if opens == 1 {
                self.mappings.remove_of(device.id, caller.pid);
            }
        }
        self.tell(&device.ids(caller), &Event::Closed);
    }

    /// The last descriptor of the file is gone. If no file of the device is left, this ends the
    /// chunks that live as long as one is.
    pub fn release(&self, caller: &Caller<'_>, file: FileId) {
        let Some(File { device, mode }) = self.files.close(file) else {
            return;
        };
        let Some(device) = self.devices.get(device as usize) else {
            return;
        };
        let _for_caller = device.work_for(caller.pid, None);
        if !mode.is_free_access() {
            let _door = device.door.lock(&*self.sched);
            // What it began after it had detached, from a copy of the descriptor or while another
            // of its threads closed the file, ends, too.
            if device.memory.open_count(caller.pid) == 0 {
                device.end_dma(caller.pid);
                device.forget(&*self.sched, caller.pid);
            }
            let mut gone = Vec::new();
            let release = |chunk, record: &Chunk| gone.push((chunk, *record));
            if device.memory.release_telling(caller.pid, release).is_some() {
                device.datastore.clear();
            }
            self.tell_gone(device, &gone);
        }
    }

    /// Lets all calls look whether their process is to end: a wait that this may end does then, with
    /// `EINTR`. Comes after [`Caller::killed`] has begun to say so.
    pub fn let_waiters_look(&self) {
        for device in &self.devices {
            device.let_waiters_look(&*self.sched);
        }
    }

    /// What the pools of a device hold at this moment; `None` if there is no such device.
    #[must_use]
    pub fn insight(&self, device: DeviceId) -> Option<PoolSnapshot> {
        self.memory(device).map(|memory| memory.insight())
    }

    /// The memory of a device, for tools; `None` if there is no such device.
    #[must_use]
    pub fn memory(&self, device: DeviceId) -> Option<&Arc<DeviceMemory>> {
        Some(&self.device(device)?.memory)
    }

    /// The op layer of a device, for tools; `None` if there is no such device.
    #[must_use]
    pub fn dma(&self, device: DeviceId) -> Option<&Dma> {
        Some(&self.device(device)?.dma)
    }

    /// Which process has claimed a core; `None` if nobody has, or there is no such core. Cores count
    /// from the device's first one, as in a claim: behind its own come those of the next device.
    #[must_use]
    pub fn core_holder(&self, device: DeviceId, core: CoreId) -> Option<Pid> {
        let first_core = self.device(device)?.first_core();
        self.claims.holder(first_core, core.get())
    }

    /// Which cores of a device have a model lock that is held, with the process that loaded the model;
    /// for tools.
    #[must_use]
    pub fn lock_holders(&self, device: DeviceId) -> Vec<(CoreId, Pid)> {
        let known = self.device(device);
        known.map_or_else(Vec::new, |device| device.locks.holders())
    }

    /// Which cores of a device are being initialised, with the process that is at it; for tools.
    #[must_use]
    pub fn initialising(&self, device: DeviceId) -> Vec<(CoreId, Pid)> {
        let known = self.device(device);
        known.map_or_else(Vec::new, |device| device.init.under_way())
    }

    /// Which processes have an entry in a device's datastore; for tools.
    #[must_use]
    pub fn datastore_owners(&self, device: DeviceId) -> Vec<Pid> {
        let known = self.device(device);
        known.map_or_else(Vec::new, |device| device.datastore.owners())
    }

    /// How many devices there are.
    #[must_use]
    pub fn devices(&self) -> u32 {
        u32::try_from(self.devices.len()).unwrap_or(u32::MAX)
    }

    fn bring_up(
        &self,
        setup: DeviceSetup,
        faults: &Arc<dyn Faults>,
    ) -> Result<Device, DriverInitError> {
        let DeviceSetup {
            memory: config,
            port,
        } = setup;
        let (id, profile) = (config.device, config.layout.profile());
        if self.memory(id).is_some() {
            return Err(DriverInitError::Twice { device: id });
        }
        let host = Arc::clone(&self.host) as Arc<dyn HostMemory>;
        let memory = DeviceMemory::new(config, host, Arc::clone(faults))
            .map_err(|cause| DriverInitError::Memory { device: id, cause })?;
        let memory = Arc::new(memory);
        let dma = Dma::new(
            DmaConfig {
                device: id,
                profile,
                platform: Platform::Hardware,
                zero_copy: ZeroCopyLimits::default(),
            },
            port,
            Arc::clone(&self.host),
            Arc::clone(&memory),
            Arc::clone(&self.sched),
            Arc::clone(&self.sink),
        );
        let carveouts = memory.channel_facts().into_iter();
        let carveouts = carveouts.filter_map(|facts| memory.pin_owned(facts.carveout).ok());
        let device = Device {
            id,
            _carveouts: carveouts.collect(),
            bounce_site: memory.sites().intern("driver bounce buffer"),
            datastore: Datastore::new(Arc::clone(&memory), Arc::clone(&self.host)),
            memory,
            dma: Arc::new(dma),
            locks: ModelLocks::new(&*self.sched),
            init: CoreInit::new(profile.cores, &*self.sched),
            door: SleepLock::new((), &*self.sched),
        };
        for facts in device.memory.channel_facts() {
            self.tell_taken(&device, facts.carveout);
        }
        let all_cores = u32::MAX;
        device
            .dma
            .init_cores(all_cores, true)
            .map_err(|cause| DriverInitError::Ring { device: id, cause })?;
        for chunk in device.dma.chunks() {
            self.tell_taken(&device, chunk);
        }
        Ok(device)
    }

    fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|device| device.id == id)
    }

    /// An open file's device and mode.
    fn file(&self, file: FileId) -> Result<(&Device, OpenMode), Errno> {
        let File { device, mode } = self.files.get(file).ok_or(Errno::EBADF)?;
        let device = self.devices.get(device as usize).ok_or(Errno::EBADF)?;
        Ok((device, mode))
    }

    /// Attaches a process that opens a device.
    fn attach(&self, device: &Device, caller: &Caller<'_>) -> Result<(), Errno> {
        let door = device.door.lock_unless(&*self.sched, caller.killed);
        let _door = door.ok_or(Errno::EINTR)?;
        device.memory.open(caller.pid)?;
        Ok(())
    }

    /// Takes a device's door for a close, with how often the process has the device open. If this is
    /// its last close, resets have been waited for, whatever comes of them; not behind the door, since
    /// nobody else has to.
    fn door_to_close<'a>(&'a self, device: &'a Device, process: Pid) -> (SleepGuard<'a, ()>, u32) {
        let mut has_waited = false;
        loop {
            let door = device.door.lock(&*self.sched);
            let opens = device.memory.open_count(process);
            if opens != 1 || has_waited {
                return (door, opens);
            }
            drop(door);
            let _ = device.dma.await_reset(None, &|| false);
            has_waited = true;
        }
    }
}

impl Devices for Driver {
    fn memory(&self, device: DeviceId) -> Option<&DeviceMemory> {
        Self::memory(self, device).map(AsRef::as_ref)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("devices", &self.devices.len())
            .finish_non_exhaustive()
    }
}
