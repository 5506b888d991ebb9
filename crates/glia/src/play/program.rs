//! A process of a workload: its runtime, and its models.

use std::sync::Arc;

use glia_abi::handle::{DeviceId, Pid};
use glia_abi::ioctl::{self, NcReset, NcResetReady, reset};
use glia_abi::transport::{OpenMode, Transport, UserBuffer};
use glia_runtime::dml::ModelId;
use glia_runtime::ndl::NdlError;
use glia_runtime::{Core, Model, Runtime, RuntimeConfig, RuntimeError};
use zerocopy::IntoBytes as _;

use super::failure::Found;
use crate::machine::{Machine, Process};

/// The number of the first process.
const FIRST_PID: u32 = 1000;
// LIMIT: the highest number of a process on Linux is 2^22.
const PIDS: u64 = 4_000_000;

/// A process that runs.
pub(super) struct Program {
    pub(super) name: Box<str>,
    /// The line that started it; the first line for the first one.
    pub(super) line: u64,
    /// The id of the first model that it loaded.
    pub(super) first_model: Option<ModelId>,
    pub(super) runtime: Runtime,
    process: Arc<Process>,
}

/// A model that is loaded.
pub(super) struct Loaded {
    pub(super) model: Model,
    pub(super) core: Core,
    pub(super) program: usize,
    /// The line that loaded it.
    pub(super) line: u64,
    /// Its private blocks of the scratchpad.
    pub(super) private: Vec<usize>,
}

/// The number of the process that is started behind so many others.
pub(super) fn pid(started: u64) -> Pid {
    // CAST: below 2^22.
    Pid::new(FIRST_PID + (started % PIDS) as u32)
}

impl Program {
    /// Starts a process, whose runtime opens the devices.
    pub(super) fn start(
        machine: &Machine,
        devices: &[DeviceId],
        config: RuntimeConfig,
        (name, line): (&str, u64),
        pid: Pid,
    ) -> Result<Self, RuntimeError> {
        let process = machine.process(pid);
        let runtime = Runtime::open(Arc::clone(&process) as Arc<_>, devices, config)?;
        Ok(Self {
            name: Box::from(name),
            line,
            first_model: None,
            runtime,
            process,
        })
    }

    /// Its number, by which reports name it.
    pub(super) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// A buffer of its own memory.
    pub(super) fn buffer(&self, size_bytes: u64) -> Result<Arc<dyn UserBuffer>, RuntimeError> {
        let buffer = self.process.buffer(size_bytes);
        buffer.map_err(|_| RuntimeError::HostMemory {
            size_bytes,
            events_file: None,
            // The program's own memory is nobody's to explain.
            explanation: None,
        })
    }

    /// Resets cores of a device, or all of it, and waits until that is over.
    pub(super) fn reset(&self, device: DeviceId, cores: Option<u32>) -> Result<(), Found> {
        let call = |call, errno| {
            let error = NdlError::Call {
                device,
                call,
                errno,
            };
            Found::Error(RuntimeError::Driver(error))
        };
        let fd = self.process.open(device, OpenMode::ReadWrite);
        let fd = fd.map_err(|errno| call("open", errno))?;
        let mut ask = NcReset {
            nc_map: cores.unwrap_or(reset::WHOLE_DEVICE),
            request_id: 0,
        };
        let bytes = ask.as_mut_bytes();
        let asked = self.process.ioctl(fd, ioctl::NC_RESET, bytes, &mut []);
        let mut ready = NcResetReady {
            request_id: ask.request_id,
            result: reset::FAILED,
        };
        let waited = asked
            .map_err(|errno| call("NC_RESET", errno))
            .and_then(|_| {
                let bytes = ready.as_mut_bytes();
                let waited = self
                    .process
                    .ioctl(fd, ioctl::NC_RESET_READY, bytes, &mut []);
                waited.map_err(|errno| call("NC_RESET_READY", errno))
            });
        // It is open until here; what it comes to is known.
        let _ = self.process.close(fd);
        waited?;
        match ready.result {
            reset::DONE => Ok(()),
            result => Err(Found::Reset { device, result }),
        }
    }

    /// Ends it as a signal does.
    pub(super) fn kill(&self) {
        self.process.kill();
    }
}
