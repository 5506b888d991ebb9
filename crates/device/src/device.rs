//! One Neuron device: what its driver meets as a [`Port`].
//!
//! ```text
//!   reg_write(doorbell) ──► bar0 ──► queue ──► Sched::kick ──► queue's step ──► copies
//!   bar4_write          ──► HBM
//!   await_word          ──► the word; if it is not there, Sched::block on the queue
//! ```
//!
//! In inline mode the copies are done when the doorbell's write returns, so the word is there at
//! the first look. The device knows nothing of processes, chunks and handles, and nothing of who
//! owns which bytes: it does what descriptors say.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glia_abi::addr::{BusAddr, RegOffset};
use glia_abi::arch::MemoryLayout;
use glia_abi::event::Sink;
use glia_abi::fault::Faults;
use glia_abi::handle::{Channel, DeviceId, QueueId, WorkerId};
use glia_abi::port::{BadBar4Range, Budget, Look, NotCompleted, Port, TimedOut};
use glia_abi::sched::{Micros, Sched, Tick};
use glia_abi::sync::{AtomicU32, Ordering};
use glia_abi::transport::Mapping;

use crate::bar0::Bar0;
use crate::bus::Bus;
use crate::hbm::{BadHbmRange, Hbm};
use crate::host::HostArena;
use crate::memory::MapError;
use crate::udma::reuse::Reuse;
use crate::udma::timing::{EngineOrder, EngineTiming};

/// How long a reset takes unless the configuration says otherwise. A model: real firmware is slower,
/// by how much is not known.
const RESET: Micros = Micros(1_000);

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Which device of the machine.
    pub device: DeviceId,
    /// Its generation and size.
    pub layout: MemoryLayout,
    /// What HBM that nobody has written reads as.
    pub hbm_fill: u8,
    /// How long its engines take; none if no time.
    pub timing: Option<EngineTiming>,
    /// In which order its engines read and write.
    pub order: EngineOrder,
    /// How often the time that the driver gives a completion may pass before it is over; 1 where
    /// time is a model. In real time this machine is no silicon, and budgets were made for that.
    pub patience: u64,
    /// How long its firmware takes for a reset.
    pub reset: Micros,
}

impl DeviceConfig {
    /// Fresh HBM reads as 0, engines take no time and keep the order, a reset takes a
    /// millisecond.
    #[must_use]
    pub const fn new(device: DeviceId, layout: MemoryLayout) -> Self {
        Self {
            device,
            layout,
            hbm_fill: 0,
            timing: None,
            order: EngineOrder::Strict,
            patience: 1,
            reset: RESET,
        }
    }
}

/// Why a device cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the HBM of {device}")]
pub struct DeviceError {
    /// Which device.
    pub device: DeviceId,
    /// The address space that could not be had.
    #[source]
    pub cause: MapError,
}

/// A device, see the module.
pub struct Device {
    bus: Arc<Bus>,
    bar0: Bar0,
}

impl Device {
    /// A device after power-on, beside this host memory. It costs address space only.
    ///
    /// # Errors
    /// [`DeviceError`] if its HBM cannot be mapped.
    pub fn new(
        config: DeviceConfig,
        host: Arc<HostArena>,
        sched: Arc<dyn Sched>,
        sink: Arc<dyn Sink>,
        faults: Arc<dyn Faults>,
    ) -> Result<Arc<Self>, DeviceError> {
        let device = config.device;
        let hbm = Hbm::new(&config.layout, config.hbm_fill);
        let bus = Arc::new(Bus {
            device,
            layout: config.layout,
            hbm: hbm.map_err(|cause| DeviceError { device, cause })?,
            host,
            sched,
            detail: sink.detail(),
            sink,
            reuse: Reuse::new(),
            faults,
            timing: config.timing,
            order: config.order,
            patience: config.patience.max(1),
            in_reset: AtomicBool::new(false),
        });
        let bar0 = Bar0::new(Arc::clone(&bus), config.reset);
        Ok(Arc::new(Self { bus, bar0 }))
    }

    /// The generation and size.
    #[must_use]
    pub fn layout(&self) -> MemoryLayout {
        self.bus.layout
    }

    /// HBM as an object that keeps its bytes alive; `None` unless the range lies in one channel.
    #[must_use]
    pub fn mapping(&self, at: BusAddr, size_bytes: u64) -> Option<Arc<dyn Mapping>> {
        Some(Arc::new(self.bus.hbm.mapping(at, size_bytes)?))
    }

    /// Gives a range of HBM back to the system: it reads as the fill again.
    ///
    /// # Errors
    /// [`BadHbmRange`] unless the range lies in one channel.
    pub fn trim(&self, at: BusAddr, size_bytes: u64) -> Result<(), BadHbmRange> {
        let trimmed = self.bus.hbm.trim(at, size_bytes);
        trimmed.ok_or(BadHbmRange { at, size_bytes })
    }
}

impl Port for Device {
    fn reg_read(&self, at: RegOffset) -> u32 {
        self.bar0.read(at)
    }

    fn reg_write(&self, at: RegOffset, value: u32) {
        self.bar0.write(at, value);
    }

    fn bar4_write(&self, offset: u64, bytes: &[u8]) -> Result<(), BadBar4Range> {
        let size_bytes = bytes.len() as u64;
        let stride = self.bus.layout.profile().bar4_channel_stride_bytes;
        let target = u32::try_from(offset / stride).ok().and_then(|channel| {
            let channel = Channel::new(channel);
            self.bus
                .hbm
                .channel_bytes_mut(channel, offset % stride, size_bytes)
        });
        target
            .ok_or(BadBar4Range { offset, size_bytes })?
            .write(bytes);
        Ok(())
    }

    fn await_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        budget: Budget,
    ) -> Result<u64, TimedOut> {
        // ORDER: pairs with the Release store of the word by the queue.
        if word.load(Ordering::Acquire) == want {
            return Ok(1);
        }
        match self.bar0.live_queue(queue) {
            Some(queue) => queue.await_word(word, want, budget),
            // Nobody has ever touched it.
            None => Err(TimedOut {
                queue,
                reason: NotCompleted::Idle,
            }),
        }
    }

    fn look_for_word(
        &self,
        queue: QueueId,
        word: &AtomicU32,
        want: u32,
        began: Tick,
        budget: Budget,
    ) -> Look {
        match self.bar0.live_queue(queue) {
            Some(queue) => queue.look_for_word(word, want, began, budget),
            None => Look::TimedOut(TimedOut {
                queue,
                reason: NotCompleted::Idle,
            }),
        }
    }

    fn attend(&self, queue: QueueId, worker: Option<WorkerId>) {
        if let Some(queue) = self.bar0.live_queue(queue) {
            queue.attend(worker);
        }
    }
}
