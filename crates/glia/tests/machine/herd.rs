//! Sixteen processes at once that load, copy, verify and die, each at a moment of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use glia::machine::{Client, Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::arch::Scale;
use glia_abi::chance::Chance;
use glia_abi::errno::Errno;
use glia_abi::handle::{CoreId, DeviceId, Fd, McHandle, Pid};
use glia_abi::mem::Location;
use glia_abi::transport::{OpenMode, Transport};
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device, NdlError, Transfer, WaitHandle};

use crate::books::{Books, ask_for_queue, enter_datastore, make_what_stays, set_up_queue};

const DEVICE: DeviceId = DeviceId::new(0);
const PROCESSES: u64 = 16;
/// One operation in so many is the last of its process.
const DEATHS_ONE_IN: u64 = 40;

/// What a process knows of its memory.
struct Load {
    /// Which of the sixteen it is.
    number: u32,
    process: Arc<Process>,
    device: Arc<Device>,
    fd: Fd,
    core: CoreId,
    /// With the byte that each is full of.
    chunks: Vec<(McHandle, u64, u8)>,
}

impl Load {
    fn begin(machine: &Machine, number: u32, pid: u32, chance: &mut Chance) -> Self {
        let process = machine.process(Pid::new(pid));
        let fd = process.open(DEVICE, OpenMode::ReadWrite).unwrap();
        let device = Device::open(Arc::clone(&process) as Arc<_>, DEVICE).unwrap();
        let cores = u64::from(device.profile().cores);
        Self {
            number,
            fd,
            process,
            core: CoreId::new(u32::try_from(chance.below(cores)).unwrap()),
            device,
            chunks: Vec::new(),
        }
    }

    fn allocate(&mut self, chance: &mut Chance) {
        let size_bytes = 1 + chance.below(20_000);
        let spec = ChunkSpec {
            size_bytes,
            align_bytes: 0,
            location: match chance.below(4) {
                0 => Location::Host,
                _ => Location::Device,
            },
            channel: self.device.profile().default_channel(self.core),
            core: self.core,
            category: Category::TENSORS_DEVICE,
        };
        match self.device.allocate(&spec) {
            Ok(chunk) => {
                self.chunks.push((chunk, size_bytes, 0));
                let last = self.chunks.len() - 1;
                self.write(last, chance);
            }
            Err(error) => assert_eq!(error.errno(), Some(Errno::ENOMEM), "{error}"),
        }
    }

    /// Takes something that is not memory, if it is to be had.
    fn claim(&mut self, chance: &mut Chance) {
        let is_one_of = |answer: Result<(), Errno>, errnos: &[Errno]| {
            assert!(
                answer.err().is_none_or(|errno| errnos.contains(&errno)),
                "{answer:?}"
            );
        };
        let (process, fd) = (&*self.process, self.fd);
        let core = u16::try_from(self.core.get()).unwrap();
        match chance.below(4) {
            0 => {
                let claimed = self.device.claim_cores(1, CoreId::new(0)..=self.core);
                let errno = claimed
                    .err()
                    .map_or(Ok(()), |error| Err(error.errno().unwrap()));
                is_one_of(errno, &[Errno::EBUSY]);
            }
            1 => is_one_of(ask_for_queue(process, fd, core).map(drop), &[Errno::EBUSY]),
            2 => enter_datastore(process, fd).map(drop).unwrap(),
            _ => {
                // A queue of its own.
                let (engine, queue) = (self.number / 8, 1 + self.number % 8);
                let set_up = set_up_queue(process, fd, engine, queue).map(drop);
                is_one_of(set_up, &[Errno::ENOMEM]);
            }
        }
    }

    fn write(&mut self, at: usize, chance: &mut Chance) {
        let (chunk, size_bytes, value) = &mut self.chunks[at];
        *value = chance.number().to_le_bytes()[0];
        let bytes = vec![*value; usize::try_from(*size_bytes).unwrap()];
        self.device.buf_write(*chunk, 0, &bytes).unwrap();
    }

    fn verify(&self, at: usize) {
        let (chunk, size_bytes, value) = self.chunks[at];
        let mut bytes = vec![!value; usize::try_from(size_bytes).unwrap()];
        self.device.buf_read(chunk, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == value));
    }

    fn free(&mut self, at: usize) {
        let (chunk, ..) = self.chunks.swap_remove(at);
        self.device.free(chunk).unwrap();
    }

    /// Fills a chunk from another one of at least its size, and waits for it or not.
    fn copy(&mut self, chance: &mut Chance) -> Result<(), NdlError> {
        let (source, target) = (self.any(chance), self.any(chance));
        let (from, from_bytes, value) = self.chunks[source];
        let (to, to_bytes, _) = self.chunks[target];
        if source == target || from_bytes < to_bytes {
            return Ok(());
        }
        let transfer = Transfer {
            source: from,
            source_offset_bytes: 0,
            target: to,
            target_offset_bytes: 0,
            size_bytes: to_bytes,
        };
        self.device.copy(&transfer)?;
        self.chunks[target].2 = value;
        Ok(())
    }

    fn any(&self, chance: &mut Chance) -> usize {
        usize::try_from(chance.below(self.chunks.len() as u64)).unwrap()
    }

    fn step(&mut self, chance: &mut Chance) {
        let at = match self.chunks.len() {
            0 | 1 => return self.allocate(chance),
            _ => self.any(chance),
        };
        match chance.below(8) {
            _ if chance.below(25) == 0 => self.claim(chance),
            0 | 1 if self.chunks.len() < 24 => self.allocate(chance),
            0..=2 => self.free(at),
            3 => self.write(at, chance),
            4 | 5 => self.copy(chance).unwrap(),
            _ => self.verify(at),
        }
    }

    /// Dies, and now and then in the middle of a copy.
    fn end(self, chance: &mut Chance) {
        if let ([(from, size_bytes, _), ..], true) = (self.chunks.as_slice(), chance.below(2) == 0)
        {
            let transfer = Transfer {
                source: *from,
                source_offset_bytes: 0,
                target: *from,
                target_offset_bytes: 0,
                size_bytes: *size_bytes,
            };
            // Another process may have an asynchronous copy of this core under way.
            let _ = self.device.copy_async(&transfer, WaitHandle::None);
        }
        match chance.below(3) {
            // All its descriptors are closed in their turn.
            0 => drop((self.device, self.process)),
            _ => self.process.kill(),
        }
    }
}

fn run(machine: &Machine, operations: u64) {
    let done = AtomicU64::new(0);
    let client = |number: u64| -> Client<'_> {
        let done = &done;
        Box::new(move || {
            let mut chance = Chance::of(11, number);
            // Pids of sixteen ranges.
            let mut pid = u32::try_from(1 + number * 100_000).unwrap();
            let which = u32::try_from(number).unwrap();
            let mut load = Load::begin(machine, which, pid, &mut chance);
            while done.fetch_add(1, Ordering::Relaxed) < operations {
                load.step(&mut chance);
                if chance.below(DEATHS_ONE_IN) == 0 {
                    load.end(&mut chance);
                    pid += 1;
                    load = Load::begin(machine, which, pid, &mut chance);
                }
            }
            load.process.kill();
        })
    };
    machine
        .run_clients((0..PROCESSES).map(client).collect())
        .unwrap();
}

fn herd(model: Model, mode: SchedMode, operations: u64) {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        ..MachineConfig::new(model).with_mode(mode)
    };
    let machine = Machine::new(config).unwrap();
    make_what_stays(&machine, DEVICE);
    let before = Books::of(&machine, DEVICE);
    run(&machine, operations);
    assert_eq!(Books::of(&machine, DEVICE), before, "{model:?} {mode:?}");
    // All slots are free again, and all of HBM.
    let again: Vec<_> = (1..=PROCESSES)
        .map(|pid| machine.process(Pid::new(u32::try_from(pid).unwrap())))
        .collect();
    for process in &again {
        Device::open(Arc::clone(process) as Arc<_>, DEVICE).unwrap();
    }
    assert_eq!(Books::of(&machine, DEVICE), before, "{model:?} {mode:?}");
}

#[test]
fn sixteen_processes_come_and_go_and_leave_the_device_as_it_was() {
    for model in Model::ALL {
        herd(model, SchedMode::Inline, 100_000);
    }
}

/// The same with engines that work beside them.
#[test]
fn a_herd_on_threads_leaves_the_device_as_it_was() {
    for model in Model::ALL {
        herd(model, SchedMode::THREADED, 5000);
    }
}
