//! Tensors: named bytes on a core. No type and no shape; those are the framework's.

use std::fmt;

use glia_abi::arch::Arch;
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;

use crate::dmem::{AllocSpec, Dmem};
use crate::dml::Level;
use crate::error::RuntimeError;
use crate::runtime::{Core, Runtime};

/// Where a tensor is to be (runtime 2.31, `nrt_tensor_placement_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// 0: HBM of the core's channel.
    Device,
    /// 1: host memory. V3 refuses it.
    Host,
}

/// Bytes with a name. They go back when it is dropped.
pub struct Tensor {
    name: String,
    memory: Dmem,
}

impl Tensor {
    /// Allocates a tensor that lives with its core. Without a name it is `UNNAMED` in the log.
    ///
    /// # Errors
    /// [`RuntimeError::HostTensor`] on a generation without them; otherwise as
    /// [`Runtime::allocate`].
    pub fn allocate(
        runtime: &Runtime,
        core: Core,
        placement: Placement,
        size_bytes: u64,
        name: &str,
    ) -> Result<Self, RuntimeError> {
        let allocator = runtime.global(core)?;
        let device = allocator.device();
        let spec = AllocSpec {
            location: match placement {
                Placement::Device => Location::Device,
                Placement::Host => Location::Host,
            },
            hint: (!name.is_empty()).then_some(name),
            ..AllocSpec::device(size_bytes, MemUsage::Tensor)
        };
        if placement == Placement::Host && device.ndl.profile().arch == Arch::V3 {
            let device = core.device;
            return Err(allocator.refuse(&spec, RuntimeError::HostTensor { device }));
        }
        let memory = allocator.allocate(&spec).inspect_err(|_| {
            let place = match placement {
                Placement::Device => "DEVICE",
                Placement::Host => "HOST",
            };
            let name = spec.hint.unwrap_or("UNNAMED");
            let message =
                format!("Failed to allocate {size_bytes} bytes on {place} for tensor {name}.");
            device
                .session
                .log(Level::Error, "tensor_allocate", &message);
        })?;
        Ok(Self {
            name: name.to_owned(),
            memory,
        })
    }

    /// Its name, which may be empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Dmem {
        &self.memory
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// As [`Dmem::write`].
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), RuntimeError> {
        self.memory.write(offset_bytes, bytes)
    }

    /// Reads bytes from an offset.
    ///
    /// # Errors
    /// As [`Dmem::read`].
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), RuntimeError> {
        self.memory.read(offset_bytes, into)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name)
            .field("size_bytes", &self.size_bytes())
            .finish_non_exhaustive()
    }
}
